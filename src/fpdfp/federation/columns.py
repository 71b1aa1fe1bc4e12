"""Columns of tables: read from files and data frames, typed, and compared between sites."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from fpdfp._typing import Array
from fpdfp.datasets.readers import csv_rows
from fpdfp.errors import ArgumentError, ArgumentTypeError, DataSetError
from fpdfp.federation.questions import ColumnSchema, Kind, Order, Schema
from fpdfp.formula import tree
from fpdfp.formula.evaluation import evaluate
from fpdfp.formula.parsing import is_definition, nearest
from fpdfp.formula.tree import (
    Categorical,
    Converted,
    Cut,
    Definition,
    Elapsed,
    Expression,
    Formula,
    Level,
    Numeric,
    Recode,
)  # fmt: skip

#: Integers of at most this many different values have levels.
FEW = 50
#: Endings of files that pandas unpacks and :mod:`fpdfp.datasets` does not; their rows are not checked.
ARCHIVES = (".zip", ".zst", ".tar")
#: Texts that are dates, and how many days other units of time have.
DATE = re.compile(r"\d{4}-\d{2}-\d{2}($|[ T])")
DAYS = {"days": 1.0, "months": 30.4375, "years": 365.25}
#: What may be declared of a column.
DECLARED = ("unit", "type", "levels", "missing", "recode", "format")


@dataclasses.dataclass(frozen=True)
class Column:
    """A column: its type, its values (truth values and texts as numbers), its missing entries, its levels.

    ``order`` says where the order of the levels comes from.
    """

    kind: Kind
    numbers: Array
    missing: Array
    levels: tuple[Level, ...] | None = None
    unit: str | None = None
    order: Order = "sorted"

    def take(self, rows: Array) -> Column:
        """Return some rows of it."""
        return dataclasses.replace(self, numbers=self.numbers[rows], missing=self.missing[rows])


def read_frame(source: Any) -> Any:
    """Return a data frame of pandas."""
    import pandas

    if isinstance(source, str | Path):
        path = Path(source)
        if not path.is_file():
            raise ArgumentError("table", f"must be a file that is there, got {str(source)!r}")
        try:
            if path.suffix.lower() in (".parquet", ".pq"):
                return pandas.read_parquet(path)
            if path.suffix.lower() not in ARCHIVES:
                _check_rows(path)
            return pandas.read_csv(path, skipinitialspace=True, low_memory=False)
        except (ValueError, OSError, DataSetError, pandas.errors.ParserError) as error:
            raise ArgumentError("table", f"{str(source)!r} cannot be read: {error}") from None
    if type(source).__module__.startswith("polars"):
        source = pandas.DataFrame({name: source[name].to_list() for name in source.columns})
    if not isinstance(source, pandas.DataFrame):
        raise ArgumentTypeError("table", f"must be a file or a data frame, got {type(source).__name__}")
    return source


def _check_rows(path: Path) -> None:
    """Refuse a CSV file with a name twice, or with a row that is shorter or longer than the header.

    pandas numbers such names; it fills short rows, and shifts all columns if the first row is too long.
    """
    rows = csv_rows(path, ",", strip=True)
    _, header = next(rows, (1, []))
    names = [name.strip() for name in header if name.strip()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"it must have one column of each name, got {twice!r} twice")
    for _ in rows:
        pass


def find_type(name: str, series: Any, given: Mapping[str, Any]) -> Column:
    """Return a column of the type that is declared, or else found."""
    import pandas
    from pandas.api import types

    wanted, unit = given.get("type"), given.get("unit")
    if wanted is not None and wanted not in get_args(Kind)[:5]:
        raise ArgumentError(
            f"columns: {name!r}", f"type must be one of {', '.join(get_args(Kind)[:5])}, got {wanted!r}"
        )
    if given.get("format") is not None and wanted != "date":
        raise ArgumentError(f"columns: {name!r}", "has a format, which is for the type 'date' only")
    series = _clean(name, series, given)
    missing = series.isna().to_numpy(dtype=bool)
    values, listed = series[~missing], given.get("levels")
    order: Order = "sorted" if listed is None else "ordered"
    if isinstance(series.dtype, pandas.CategoricalDtype):
        values = values.astype(series.cat.categories.dtype)
        if listed is None:
            listed, order = list(map(_text, series.cat.categories)), "ordered" if series.cat.ordered else "listed"
    kind: Kind
    if wanted == "date" or (wanted is None and _holds_dates(values)):
        return _read_dates(name, series, given.get("format"), unit)
    if not len(values):
        kind = wanted or "empty"
    elif types.is_bool_dtype(values.dtype) or (values.dtype == object and all(isinstance(v, bool) for v in values)):
        kind = "truth"
    elif types.is_numeric_dtype(values.dtype) and not types.is_complex_dtype(values.dtype):
        numbers = values.to_numpy(dtype=np.float64)
        whole = bool(np.isfinite(numbers).all() and (numbers == np.rint(numbers)).all() and abs(numbers).max() < 2**53)
        # Integers with gaps are read as floating-point numbers; those of many values are measurements.
        few = types.is_integer_dtype(values.dtype) or len(np.unique(numbers)) <= FEW
        kind = "integer" if whole and few else "number"
    elif values.dtype == object or types.is_string_dtype(values.dtype):
        kind = "category"
    else:
        return Column("other", np.zeros(len(series)), missing, None, unit)
    kind = _convert(name, kind, wanted, values)
    numbers = np.zeros(len(series))
    levels: tuple[Level, ...] | None = None
    if kind == "category":
        places, different = pandas.factorize(values)
        texts = [_text(value) for value in different]
        levels = _ordered(name, sorted(set(texts)), listed)
        number_of = {level: float(number) for number, level in enumerate(levels)}
        numbers[~missing] = np.array([number_of[text] for text in texts])[places] if texts else 0.0
    elif kind != "empty":
        numbers[~missing] = values.to_numpy(dtype=np.float64)
    return Column(kind, numbers, missing, levels, unit, "sorted" if levels is None else order)


def _holds_dates(values: Any) -> bool:
    """Whether values are dates: of their type, or texts such as 2024-03-31."""
    from pandas.api import types

    if types.is_datetime64_any_dtype(values.dtype):
        return True
    texts = (values.dtype == object or types.is_string_dtype(values.dtype)) and len(values) > 0
    return texts and all(isinstance(one, str) and DATE.match(one) is not None for one in values)


def _read_dates(name: str, series: Any, form: str | None, unit: str | None) -> Column:
    """Return a column of dates, as days since 1970."""
    import pandas

    try:
        dates = pandas.to_datetime(series, format=form or "ISO8601", utc=True)
    except (ValueError, TypeError) as error:
        shown = "have dates such as 2024-03-31, or declare their format, as '%d.%m.%Y'"
        raise ArgumentError(f"columns: {name!r}", f"must {shown}: {str(error).splitlines()[0]}") from None
    missing = dates.isna().to_numpy(dtype=bool)
    since = (dates - pandas.Timestamp("1970-01-01", tz="UTC")) / pandas.Timedelta(days=1)
    return Column("date", np.where(missing, 0.0, since.to_numpy(dtype=np.float64)), missing, None, unit)


def define(node: Expression | Definition, table: Any) -> Column:
    """Return the column that a definition, or an expression, makes of a table.

    A year has 365.25 days, and a month 30.4375.
    """
    if isinstance(node, Cut):
        values = evaluate(node.cut, table, {})
        missing = ~np.isfinite(values)
        places = np.searchsorted(node.edges, np.where(missing, 0.0, values), "left" if node.right else "right")
        return Column("category", places.astype(np.float64), missing, node.labels, order="ordered")
    if isinstance(node, Elapsed):
        start, end = (table.column(one.column) for one in (node.start, node.end))
        for one, column in ((node.start, start), (node.end, end)):
            if column.kind not in ("date", "empty"):
                raise ArgumentError(f"the column {one.column!r}", f"must hold dates, but its type is {column.kind}")
        missing = start.missing | end.missing
        days = np.where(missing, 0.0, end.numbers - start.numbers)
        return Column("number", days / DAYS[node.elapsed], missing, None, node.elapsed)
    if isinstance(node, Converted):
        column, known = (
            table.column(node.converted.column),
            {node.unit: 1.0, **dict(zip(node.units, node.factors, strict=True))},
        )
        if column.kind not in ("number", "integer", "empty") or column.unit not in known:
            raise ArgumentError(
                f"the column {node.converted.column!r}",
                f"must be a number in one of the units {', '.join(known)}, but it is {column.kind} in "
                f"{column.unit or 'no declared unit'}",
            )
        return Column("number", column.numbers * known[column.unit], column.missing, None, node.unit)
    if isinstance(node, Recode):
        return _recode(node, table.column(node.recode.column))
    values = evaluate(node, table, {})
    missing = ~np.isfinite(values)
    whole = (values[~missing] == np.rint(values[~missing])).all()
    return Column("integer" if whole else "number", np.where(missing, 0.0, values), missing)


def _recode(node: Recode, column: Column) -> Column:
    """Return a column with other values in place of some.

    It holds numbers where no new value is a text, and all others are numbers. Levels are in the order in which they are
    written, others after them; the first one is the reference.
    """
    if column.kind in ("other", "hidden", "date"):
        raise ArgumentError(f"the column {node.recode.column!r}", f"must hold numbers or texts, but is {column.kind}")
    found = np.unique(column.numbers[~column.missing])
    own = [column.levels[int(one)] if column.levels else bool(one) if column.kind == "truth" else one for one in found]
    replaced = {_text(old): new for old, new in zip(node.old, node.new, strict=True)}
    new = [replaced.get(_text(one), one) for one in own]
    texts = any(isinstance(one, str) for one in node.new)
    numbers = np.zeros(len(found))
    for place, one in enumerate(new):
        try:
            numbers[place] = np.nan if one is None else float(one)
        except ValueError:
            texts = True
    lost = np.array([one is None for one in new], dtype=bool)
    where = np.searchsorted(found, column.numbers)
    where = np.minimum(where, max(len(found) - 1, 0))
    missing = column.missing | (lost[where] if len(found) else False)
    if not texts:
        values = np.where(missing, 0.0, numbers[where]) if len(found) else np.zeros(len(column.numbers))
        truth = len(new) > 0 and all(one is None or isinstance(one, bool) for one in new)
        whole = bool((values == np.rint(values)).all())
        return Column("truth" if truth else "integer" if whole else "number", values, missing, None, column.unit)
    written = dict.fromkeys(_text(one) for one in node.new if one is not None)
    rest = sorted({_text(one) for one in new if one is not None} - set(written))
    levels = (*written, *rest)
    places = np.array([0 if one is None else levels.index(_text(one)) for one in new], dtype=np.float64)
    values = np.where(missing, 0.0, places[where]) if len(found) else np.zeros(len(column.numbers))
    return Column("category", values, missing, levels, order="listed")


def _clean(name: str, series: Any, given: Mapping[str, Any]) -> Any:
    """Return a column without the codes that are declared as missing, and with values replaced as declared."""
    import pandas

    missing, recode = given.get("missing"), given.get("recode")
    if missing is None and recode is None:
        return series
    if not isinstance(missing, list | tuple | None):
        raise ArgumentError(f"columns: {name!r}", f"missing must be a list of codes, as ['?', -9], got {missing!r}")
    if not isinstance(recode, Mapping | None):
        raise ArgumentError(f"columns: {name!r}", f"recode must be a table of values by value, got {recode!r}")
    plain, codes = series.astype(object), {_text(one) for one in missing or ()}
    told = plain.map(_text, na_action="ignore")
    plain = plain.mask(told.isin(codes))
    if recode:
        replaced = {_text(old): new for old, new in recode.items()}
        plain = pandas.Series([replaced.get(text, one) for text, one in zip(told, plain, strict=True)], dtype=object)
        plain = plain.mask(told.isin(codes).reset_index(drop=True))
    numbers = pandas.to_numeric(plain, errors="coerce")
    truth = all(isinstance(one, bool) for one in plain.dropna())
    return numbers if not truth and bool((numbers.isna() == plain.isna()).all()) else plain


def _text(value: Any) -> str:
    """Return the text of a level; whole numbers have no point."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _convert(name: str, kind: Kind, wanted: Kind | None, values: Any) -> Kind:
    """Return the declared type, if the values can be that."""
    if wanted is None or wanted == kind or wanted == "category" or kind == "empty":
        return wanted or kind
    fits = {"number": kind in ("integer", "truth"), "integer": kind == "truth", "truth": False}
    if wanted == "truth" and kind == "integer":
        fits["truth"] = bool(values.isin([0, 1]).all())
    if not fits.get(wanted, False):
        raise ArgumentError(f"columns: {name!r}", f"is declared as {wanted}, but its values are of the type {kind}")
    return wanted


def _ordered(name: str, found: list[str], given: Any) -> tuple[Level, ...]:
    """Return the levels in the order that is declared, or sorted."""
    if given is None:
        return tuple(found)
    order = [str(one) for one in given]
    strange = [one for one in found if one not in order]
    if strange or len(set(order)) < len(order):
        raise ArgumentError(f"columns: {name!r}", f"levels must be all levels once, but {show(strange or order)} …")
    return tuple(order)


def show(names: Any) -> str:
    """Return some names for an error."""
    shown = [repr(name) for name in names]
    return ", ".join(shown[:12]) + (", …" if len(shown) > 12 else "")


#: Which levels are accepted: those that more than one site has, any, or lists by column.
Levels = Literal["shared", "any"] | Mapping[str, Sequence[Level]]
#: Columns whose values are all different are taken for identifiers from this many rows on.
IDENTIFIED = 20
#: How many levels a table for people shows.
SHOWN = 6


@dataclasses.dataclass(frozen=True)
class Agreed:
    """The schema of a formula over sites.

    Attributes
    ----------
    kinds, levels
        The types of columns, and their levels in order.
    absent
        The columns that have missing values somewhere.
    ordered
        The columns whose levels are on a scale: integers and truth values, and texts whose order is declared.
    """

    kinds: dict[str, str]
    levels: dict[str, tuple[Level, ...]]
    absent: tuple[str, ...]
    ordered: tuple[str, ...] = ()


class Schemas:
    """The columns of all sites; ``print`` shows one table, :meth:`frame` returns it.

    Parameters
    ----------
    sites
        The names of the sites.
    schemas
        What each says.

    Examples
    --------
    >>> here = Schema(100, (ColumnSchema("age", "integer", "years", 2, least=18, largest=90),))
    >>> there = Schema(80, (ColumnSchema("age", "number", "years", 0, least=20, largest=85),))
    >>> print(Schemas(["north", "south"], [here, there]))
    2 sites: north (100 rows), south (80 rows)
    column  type    unit   missing  levels or range
    age     number  years  2        18 to 90
    """

    def __init__(self, sites: Sequence[str], schemas: Sequence[Schema]) -> None:
        self.sites, self.schemas = list(sites), list(schemas)
        self.by_site = [{column.name: column for column in schema.columns} for schema in schemas]

    @property
    def names(self) -> list[str]:
        """The columns of all sites, in the order of the first site that has them."""
        return list(dict.fromkeys(name for found in self.by_site for name in found))

    def of(self, name: str) -> dict[str, ColumnSchema]:
        """Return what each site that has a column says about it."""
        return {site: found[name] for site, found in zip(self.sites, self.by_site, strict=True) if name in found}

    def frame(self) -> Any:
        """Return a data frame of pandas with a row for each column; what differs between sites is named."""
        import pandas

        return pandas.DataFrame([self._row(name) for name in self.names]).set_index("column")

    def _row(self, name: str) -> dict[str, Any]:
        found = self.of(name)
        kinds = {one.kind for one in found.values()} - {"empty"}
        units = sorted({one.unit for one in found.values() if one.unit is not None})
        lacking = [site for site in self.sites if site not in found]
        differs = [f"not at {', '.join(lacking)}"] if lacking else []
        if _common(kinds) is None and len(kinds) > 1:
            differs.append("type: " + ", ".join(f"{one.kind} at {site}" for site, one in found.items()))
        if len(units) > 1:
            differs.append("unit: " + ", ".join(f"{one.unit} at {site}" for site, one in found.items() if one.unit))
        for level, sites in self._owners(name).items():
            if len(sites) == 1 and len(self.sites) > 1 and "category" in kinds:
                differs.append(f"level {level!r} only at {sites[0]}")
        return {
            "column": name,
            "type": _common(kinds) or ", ".join(sorted(kinds)) or "empty",
            "unit": " or ".join(units),
            "missing": sum(one.missing for one in found.values()),
            "levels or range": _values(list(found.values())),
            "differs": "; ".join(differs),
        }

    def __str__(self) -> str:
        sites = [
            f"{site} ({schema.rows:,} rows)" if schema.rows is not None else site
            for site, schema in zip(self.sites, self.schemas, strict=True)
        ]
        rows = [self._row(name) for name in self.names]
        heads = [head for head in rows[0] if head != "differs" or any(row["differs"] for row in rows)] if rows else []
        cells = [heads, *([str(row[head]) for head in heads] for row in rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
        count = f"{len(self.sites)} site{'s' if len(self.sites) != 1 else ''}: "
        return "\n".join([count + ", ".join(sites), *(line.rstrip() for line in lines if heads)])

    __repr__ = __str__

    def agree(self, formula: Formula, levels: Levels = "shared", *, classify: bool | None = True) -> Agreed:
        """Return what a formula needs to know, or refuse a difference by column and site.

        Parameters
        ----------
        formula
            A formula.
        levels
            ``"shared"`` refuses a level that only one of several sites has, ``"any"`` accepts it, and lists by column
            name which levels there are, in order.
        classify
            Whether the response has classes; with None only one of texts or truth values.
        """
        given = _check_levels(levels)
        kinds = {name: self._kind(name) for name in formula.columns}
        for name in formula.columns:
            self._check_unit(name)
        plain = {factor.value.column: factor for factor in _factors(formula) if _is_plain(factor)}
        categorical = {one.column for one in _factors(formula) if isinstance(one, Categorical)}
        categorical |= {name for name in plain if kinds[name] == "category"}
        for name in (*plain, *categorical):
            self._check_identifier(name, kinds[name])
        response = formula.response
        with_classes = isinstance(response, tree.Column) and (
            kinds[response.column] in ("truth", "category") if classify is None else classify
        )
        wanted = [*categorical, *([response.column] if with_classes and isinstance(response, tree.Column) else [])]
        arranged = {name: self._levels(name, given, any_level=levels == "any") for name in wanted}
        found = {name: order for name, (order, _) in arranged.items()}
        declared = {one.column for one in _factors(formula) if isinstance(one, Categorical) and one.levels is not None}
        for name in categorical - declared:
            if not found[name]:
                raise ArgumentError(
                    "formula:",
                    f"no site lists levels of the column {name!r} ({kinds[name]}): it has too many different values, "
                    f"or policies hide them; name the levels as C({name}, levels=[…])",
                )
        absent = tuple(name for name in formula.columns if any(one.missing for one in self.of(name).values()))
        return Agreed(kinds, found, absent, tuple(name for name, (_, on_scale) in arranged.items() if on_scale))

    def _kind(self, name: str) -> str:
        """Return the type of a column, if all sites have it and of one type."""
        found = self.of(name)
        if not found and not is_definition(name):
            raise ArgumentError("formula:", f"no site has the column {name!r}{nearest(name, self.names)}")
        without = [site for site in self.sites if site not in found]
        if without and is_definition(name):
            raise ArgumentError(
                "formula:",
                f"{', '.join(without)} has not approved {name}: federation.propose('a_name', {name!r}) proposes it",
            )
        for site, columns in zip(self.sites, self.by_site, strict=True):
            if site not in found:
                raise ArgumentError(
                    "formula:",
                    f"the column {name!r} is missing at {site}{nearest(name, columns)}; add or rename it there, or "
                    "leave it out of the formula",
                )
        hidden = [site for site, one in found.items() if one.kind == "hidden"]
        if hidden:
            raise ArgumentError(
                "formula:",
                f"the policy of {', '.join(hidden)} does not allow the column {name!r} (columns and never in its "
                "policy.toml); use another column, or request it from these sites",
            )
        dates = [site for site, one in found.items() if one.kind == "date"]
        if dates:
            raise ArgumentError(
                "formula:",
                f"the column {name!r} holds dates at {', '.join(dates)}; write years(start, end), or days or months",
            )
        other = [site for site, one in found.items() if one.kind == "other"]
        if other:
            raise ArgumentError(
                "formula:", f"the column {name!r} holds neither numbers nor texts at {', '.join(other)}"
            )
        kinds = {one.kind for one in found.values()} - {"empty"}
        kind = _common(kinds) if kinds else "number"
        if kind is None:
            each = ", ".join(f"{one.kind} at {site}" for site, one in found.items())
            raise ArgumentError(
                "formula:",
                f"the column {name!r} has different types: {each}; make them the same, or declare its type at sites",
            )
        return kind

    def _check_unit(self, name: str) -> None:
        units = {site: one.unit for site, one in self.of(name).items() if one.unit is not None}
        if len(set(units.values())) > 1:
            each = ", ".join(f"{unit} at {site}" for site, unit in units.items())
            raise ArgumentError(
                "formula:", f"the column {name!r} has different units: {each}; convert it to one unit at all sites"
            )

    def _check_identifier(self, name: str, kind: str) -> None:
        """Refuse a column whose values are all different at every site."""
        found = self.of(name).values()
        rows = [schema.rows or 0 for schema in self.schemas]
        if kind in ("category", "integer") and all(one.distinct for one in found) and sum(rows) >= IDENTIFIED:
            raise ArgumentError(
                "formula:",
                f"all values of the column {name!r} are different, like an identifier's; exclude it"
                + (f", or write I({name}) if it is a measurement" if kind == "integer" else ""),
            )

    def _owners(self, name: str) -> dict[Level, list[str]]:
        """Return the sites that have each level of a column."""
        owners: dict[Level, list[str]] = {}
        for site, one in self.of(name).items():
            for level in one.levels:
                owners.setdefault(level, []).append(site)
        return owners

    def _levels(
        self, name: str, given: Mapping[str, Sequence[Level]], *, any_level: bool
    ) -> tuple[tuple[Level, ...], bool]:
        """Return the levels of a column as given, as sites declare them, or sorted; and whether they have a scale."""
        owners = self._owners(name)
        if name in given:
            strange = [level for level in owners if level not in given[name]]
            if strange:
                raise ArgumentError(
                    f"levels[{name!r}]",
                    f"must have all levels, but {strange[0]!r} at {owners[strange[0]][0]} is not there",
                )
            return tuple(given[name]), True
        for level, sites in owners.items():
            if len(sites) == 1 and len(self.sites) > 1 and not any_level and not name.startswith("cut("):
                others = sorted((one for one in owners if len(owners[one]) > 1), key=str)
                shown = ", ".join(map(repr, others[:12])) or "none"
                raise ArgumentError(
                    "formula:",
                    f"the column {name!r} has the level {level!r} only at {sites[0]} (levels that more than one site "
                    f'has: {shown}); correct it there, or accept it with levels="any"',
                )
        declared = {site: one for site, one in self.of(name).items() if one.order != "sorted" and one.levels}
        levels = sorted(owners, key=lambda level: (isinstance(level, str), level))
        if not declared:
            return tuple(levels), not any(isinstance(level, str) for level in levels)
        merged = merge_orders([one.levels for one in declared.values()])
        if merged is None:
            each = "; ".join(f"{' < '.join(map(str, one.levels))} at {site}" for site, one in declared.items())
            raise ArgumentError(
                "formula:",
                f"the levels of the column {name!r} are in different orders: {each}; give the order as "
                f"levels={{{name!r}: […]}}",
            )
        order, unique = merged
        rest = [level for level in levels if level not in order]
        on_scale = unique and not rest and all(one.order == "ordered" for one in declared.values())
        return (*order, *rest), on_scale


def merge_orders(orders: Sequence[Sequence[Level]]) -> tuple[tuple[Level, ...], bool] | None:
    """Return all levels in an order that agrees with each given one, and whether it is the only such; None for none.

    >>> merge_orders([("low", "high"), ("low", "medium", "high")])
    (('low', 'medium', 'high'), True)
    >>> merge_orders([("b", "a"), ("c", "a")]), merge_orders([("b", "a"), ("a", "b")])
    ((('b', 'c', 'a'), False), None)
    """
    left = {level: {above for one in orders if level in one for above in one[: one.index(level)]}
            for one in orders for level in one}  # fmt: skip
    merged: list[Level] = []
    unique = True
    while left:
        free = [level for level, above in left.items() if not above - set(merged)]
        if not free:
            return None
        unique &= len(free) == 1
        first = min(free, key=lambda level: (isinstance(level, str), level))
        merged.append(first)
        del left[first]
    return tuple(merged), unique


def _check_levels(levels: Any) -> Mapping[str, Sequence[Level]]:
    if isinstance(levels, Mapping):
        for name, one in levels.items():
            if not isinstance(one, list | tuple) or len(set(one)) < max(2, len(one)):
                raise ArgumentError(
                    f"levels[{name!r}]", f"must be a list of at least two different levels, got {one!r}"
                )
        return levels
    if levels not in ("shared", "any"):
        raise ArgumentTypeError("levels", f"must be 'shared', 'any' or lists by column, got {levels!r}")
    return {}


def _factors(formula: Formula) -> list[Any]:
    return [factor for term in formula.terms for factor in term]


def _is_plain(factor: Any) -> bool:
    return isinstance(factor, Numeric) and factor.value == tree.Column(factor.name)


def _common(kinds: set[Any]) -> str | None:
    """Return the type of values of some types together, None if missing; integers are numbers."""
    if len(kinds) == 1:
        return str(next(iter(kinds)))
    return "number" if kinds == {"integer", "number"} else None


def _values(found: list[ColumnSchema]) -> str:
    """Return the levels, or the range, of a column at all sites."""
    numbers = [one for one in found if one.least is not None and one.largest is not None]
    levels = list(dict.fromkeys(level for one in found for level in one.levels))
    if levels and (not numbers or len(levels) <= SHOWN):
        return ", ".join(shown if (shown := str(one)).isprintable() else ascii(one) for one in levels[:SHOWN]) + (
            ", …" if len(levels) > SHOWN else ""
        )
    if numbers:
        least, largest = min(one.least or 0.0 for one in numbers), max(one.largest or 0.0 for one in numbers)
        return f"{least:g} to {largest:g}"
    return ""
