"""Columns of tables: read from files and data frames, their types declared or found."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fpdfp._typing import Array
from fpdfp.datasets.readers import csv_rows
from fpdfp.errors import ArgumentError, ArgumentTypeError, DataSetError
from fpdfp.federation.questions import Kind, Order
from fpdfp.formula.evaluation import evaluate
from fpdfp.formula.tree import Converted, Cut, Definition, Elapsed, Expression, Level, Recode

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

    It holds numbers where no new value is a text, and all others are numbers.
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
    levels = tuple(sorted({_text(one) for one in new if one is not None}))
    places = np.array([0 if one is None else levels.index(_text(one)) for one in new], dtype=np.float64)
    values = np.where(missing, 0.0, places[where]) if len(found) else np.zeros(len(column.numbers))
    return Column("category", values, missing, levels)


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
    """Return the text of a level; that of a whole number has no point."""
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
