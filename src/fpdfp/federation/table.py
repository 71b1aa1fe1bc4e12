"""The table of a site: typed columns, answers to questions about them, and the losses of a model."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, get_args

import numpy as np

from fpdfp import families
from fpdfp import losses as kinds
from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.question import Offer, Question
from fpdfp.datasets import Moments
from fpdfp.datasets.readers import csv_rows
from fpdfp.errors import ArgumentError, ArgumentTypeError, DataSetError
from fpdfp.families import Binomial
from fpdfp.federation.questions import (
    Baselines,
    ColumnSchema,
    Descriptions,
    Histograms,
    Kind,
    LogRankQuestion,
    ModelSpec,
    Order,
    Schema,
    Sums,
)
from fpdfp.formula.coding import Design, InverseWeights
from fpdfp.formula.evaluation import Rows, Values, codes, evaluate, level_of
from fpdfp.formula.parsing import is_definition, name_of, nearest, parse_condition, parse_variable
from fpdfp.formula.tree import (
    Coded,
    Converted,
    Cut,
    Definition,
    Elapsed,
    Expression,
    Level,
    Recode,
    Spline,
    Survival,
    columns_of,
)
from fpdfp.formula.tree import Column as ColumnNode
from fpdfp.inference import Information
from fpdfp.losses import Cox, Losses
from fpdfp.losses.classes import LINKS, Link, base_of
from fpdfp.losses.cox import Ties
from fpdfp.scores.site import Predicted, SiteScores, information_of, score_rows
from fpdfp.survival import Baseline, Concordance, LogRank, RiskCounts, Times, split_periods
from fpdfp.survival.concordance import DIGITS as DIGITS
from fpdfp.survival.proportionality import Proportionality, Transform, add_proportionality

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


class Predictor(NamedTuple):
    """A model with its coefficients, as losses of its kind have them.

    Attributes
    ----------
    kind
        The losses of the model.
    x
        Its coefficients.
    classes
        How many classes there are, for models of several.
    family
        The family of outcomes of a GLM.
    link
        The link of ``"Ordinal"``.
    """

    kind: str
    x: Array
    classes: int = 0
    family: Any = None
    link: Link = "logit"

    @classmethod
    def of(cls, spec: ModelSpec, x: Array) -> Predictor:
        """Return the model of a specification."""
        family = None if spec.distribution is None else spec.distribution.make()
        return cls(spec.family, x, len(spec.classes), family, spec.link)

    @property
    def outcomes(self) -> Any:
        """The family of outcomes, as scores know it."""
        known = {
            "Logistic": families.Binomial(), "LeastSquares": families.Gaussian(), "GLM": self.family, "Cox": "cox",
            "Ordinal": "ordinal",
        }  # fmt: skip
        return known.get(self.kind, "multinomial")

    def predict(self, rows: Any) -> Predicted:
        """Return rows of a model (:class:`fpdfp.federation.table.ModelRows`) with what is predicted for them."""
        y = rows.y if self.kind != "Cox" else rows.times
        return Predicted(self.outcomes, self._predictors(rows), y, rows.weights, rows.strata)

    def _predictors(self, rows: Any) -> Array:
        X, x = rows.X, self.x
        if self.kind == "Softmax":
            return np.asarray(X @ x.T)
        if self.kind == "Multinomial":
            z = np.asarray(X @ x.reshape(self.classes - 1, X.shape[1]).T)
            z = z if rows.offset is None else z + rows.offset.reshape(len(z), -1)
            return np.concatenate([np.zeros((len(z), 1)), z], axis=1)
        shift = 0.0 if rows.offset is None else rows.offset
        if self.kind != "Ordinal":
            return np.asarray(X @ x + shift)
        place = X @ x[: X.shape[1]] + shift
        inner = base_of(self.link, self.classes) + x[X.shape[1] :] - place[:, None]
        ends = np.concatenate([np.full((len(place), 1), -np.inf), inner, np.full((len(place), 1), np.inf)], axis=1)
        with np.errstate(all="ignore"):
            return -LINKS[self.link].interval(ends[:, 1:], ends[:, :-1]).value


def evaluate_response(node: Expression | Survival, rows: Rows) -> Array:
    """Return the response of each row, NaN where it is missing; of times the time."""
    if not isinstance(node, Survival):
        return evaluate(node, rows, {})
    time, event = evaluate(node.leaves, rows, {}), evaluate(node.event, rows, {})
    valid = np.isfinite(time) & np.isin(event, (0.0, 1.0))
    if node.enters is not None:
        entry = evaluate(node.enters, rows, {})
        valid &= np.isfinite(entry) & (entry < np.where(valid, time, -np.inf))
    return np.where(valid, time, np.nan)


def read_times(node: Survival, rows: Rows) -> Times:
    """Return the times of rows; refuse anything else."""
    bad = int((~np.isfinite(evaluate_response(node, rows))).sum())
    if bad:
        raise ArgumentError(
            "the response",
            f"is not an event time in {bad} of {len(rows)} rows: times must be numbers, events 0 or 1, and rows must "
            "enter before they leave",
        )
    entry = None if node.enters is None else evaluate(node.enters, rows, {})
    return Times.of(evaluate(node.leaves, rows, {}), evaluate(node.event, rows, {}), entry)


def read_strata(columns: tuple[str, ...], rows: Rows) -> Array:
    """Return the name of each row's stratum, such as ``"sex=F, stage=II"``; empty where there is one alone."""
    names = np.full(len(rows), "", dtype=object)
    for column in columns:
        found = rows.values(column)
        if found.levels is None and (found.numbers != np.floor(found.numbers)).any():
            raise ArgumentError(f"the column {column!r}", "must hold texts or integers to define strata")
        own, number = np.unique(found.numbers, return_inverse=True)
        labels = np.array([f"{column}={level_of(one, found.levels)}" for one in own.tolist()], dtype=object)
        names = labels[number] if column == columns[0] else names + ", " + labels[number]
    return names.astype(str)


def read_clusters(column: str, rows: Rows) -> Array:
    """Return a number for each row, the same for rows that belong together."""
    return np.unique(rows.values(column).numbers, return_inverse=True)[1].astype(np.float64)


def _groups(
    table: Any, response: Survival, group: Coded | None, strata: tuple[str, ...] = ()
) -> tuple[Any, Times, IntArray, int]:
    """Return the rows in which nothing is missing, their times and groups, and how many groups there are."""
    columns = list(dict.fromkeys([*columns_of([response, group]), *strata]))
    complete = ~np.any([table.values(name).missing for name in columns], axis=0)
    if not complete.any():
        raise ArgumentError("table", "must have rows without missing values in the columns of the question, got none")
    rows = table.take(complete, columns)
    times = read_times(response, rows)
    if group is None:
        return rows, times, np.zeros(len(rows), dtype=np.int64), 1
    return rows, times, codes(group.coded, group.levels, rows), len(group.levels)


def find_concordance(rows: Any, x: Array) -> Concordance:
    """Return the concordance of the risks of rows with their times."""
    risk = rows.X @ x + (0.0 if rows.offset is None else rows.offset)
    return Concordance.of(
        rows.times, np.round(risk, DIGITS), strata=rows.strata, weights=rows.weights, clusters=rows.clusters
    )


def find_baselines(rows: Any, x: Array, ties: Ties, times: Array | None = None) -> Baselines:
    """Return the baseline hazard of each stratum of rows."""
    losses = Cox(
        rows.X, rows.times.time, rows.times.event, entry=rows.times.entry, strata=rows.strata, weights=rows.weights,
        offset=rows.offset, ties=ties,
    )  # fmt: skip
    found = losses.hazards(x, 0)
    hazards = [Baseline.of(*one[1:5], one.events.astype(np.float64)) for one in found]
    if times is not None:
        hazards = [one.at(times) for one in hazards]
    return Baselines(tuple(str(one.stratum) for one in found), hazards)


def group_rows(table: Any, by: Coded | None) -> tuple[IntArray, int]:
    """Return the number of each row's group, −1 for none, and how many groups there are."""
    if by is None:
        return np.zeros(len(table), dtype=np.int64), 1
    return codes(by.coded, by.levels, table), len(by.levels)


def values_of(table: Any, name: str, group: IntArray, groups: int) -> list[Array]:
    """Return the values that a column has in each group."""
    found = table.values(name)
    return [found.numbers[(group == g) & ~found.missing] for g in range(groups)]


#: Texts of at most this many different values have levels.
MANY = 1000
#: Refuses rows of features, with the weights of rows.
CheckRows = Callable[[Array, Array | None], None]


class SiteTable:
    """The rows of a site.

    Parameters
    ----------
    columns
        The columns by name.
    rows
        How many rows there are.
    derives
        Whether columns are made where they are named by a definition, as ``cut(age, [40, 60])``. In a site's table
        there are only those that it has approved.

    Examples
    --------
    >>> import pandas as pd
    >>> from fpdfp.federation.questions import SchemaQuestion
    >>> table = SiteTable.read(pd.DataFrame({"age": [61, 48, None], "stage": ["I", "II", "I"]}))
    >>> for column in table.answer(SchemaQuestion()).columns:
    ...     print(column.name, column.kind, column.levels, column.missing)
    age integer (48, 61) 1
    stage category ('I', 'II') 0
    """

    def __init__(self, columns: Mapping[str, Column], rows: int, *, derives: bool = False) -> None:
        self.columns = dict(columns)
        self.rows = rows
        self.derives = derives

    @classmethod
    def read(
        cls, source: Any, columns: Mapping[str, Mapping[str, Any]] | None = None, *, derives: bool = False
    ) -> Self:
        """Return the table of a CSV or Parquet file, or of a data frame of pandas or Polars.

        Parameters
        ----------
        source
            The file, or the frame. Spaces around the names of columns do not count; columns without a name are left
            out.
        columns
            What is known of some columns: ``{"age": {"unit": "years", "type": "number"}}``, and the order of
            ``"levels"`` of a categorical one. Types are found from the values where none is given. ``"missing"`` lists
            codes that mean no value, as ``["?", -9]``, and ``"recode"`` describes what to put in place of some values.
            Dates that are not written as 2024-03-31 have ``"type": "date"`` and a ``"format"``, as ``"%d.%m.%Y"``.
        derives
            As of the class.
        """
        frame = read_frame(source)
        declared = {str(name): dict(given) for name, given in (columns or {}).items()}
        names = [str(name).strip() for name in frame.columns]
        kept = [place for place, name in enumerate(names) if name and not name.startswith("Unnamed: ")]
        for place in kept:
            if names.count(names[place]) > 1:
                raise ArgumentError("table", f"must have one column of each name, got {names[place]!r} twice")
        for name, given in declared.items():
            if name not in names:
                raise ArgumentError(
                    f"columns: {name!r}", f"is not a column of the table{nearest(name, names)}; it has {show(names)}"
                )
            if set(given) - set(DECLARED):
                raise ArgumentError(f"columns: {name!r}", f"takes {', '.join(DECLARED)}, got {', '.join(given)}")
        made = {
            names[place]: find_type(names[place], frame.iloc[:, place], declared.get(names[place], {}))
            for place in kept
        }
        return cls(made, len(frame), derives=derives)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of all columns and values, which reveals that a table has changed. It stays at the site."""
        summary = hashlib.sha256()
        for name, column in sorted(self.columns.items()):
            summary.update(repr((name, column.kind, column.unit, column.levels, column.numbers.dtype.str)).encode())
            summary.update(np.ascontiguousarray(np.where(column.missing, 0, column.numbers)).tobytes())
            summary.update(np.ascontiguousarray(column.missing).tobytes())
        return summary.hexdigest()

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"SiteTable({self.rows} rows, {len(self.columns)} columns)"

    def column(self, name: str) -> Column:
        """Return a column, or name which name is near."""
        if self.derives and name not in self.columns and is_definition(name):
            self.columns[name] = define(parse_variable(name), self)  # type: ignore[arg-type]
        if name not in self.columns:
            raise ArgumentError(
                f"the column {name!r}",
                f"is not in the table{nearest(name, self.columns)}; it has {show(self.columns)}",
            )
        return self.columns[name]

    def values(self, column: str) -> Values:
        """Return the values of a column, as formulas read them."""
        found = self.column(column)
        if found.kind == "date":
            raise ArgumentError(f"the column {column!r}", "holds dates; write years(start, end), or days or months")
        if found.kind == "other":
            raise ArgumentError(f"the column {column!r}", "holds neither numbers nor texts, so it cannot be in a model")
        return Values(found.numbers, found.missing, found.levels)

    def with_variables(self, variables: Mapping[str, str]) -> SiteTable:
        """Return the table with columns that are defined by others, as ``{"old": "age >= 65"}``, and no further ones.

        A definition such as ``cut(age, [40, 60])`` is a name of its column as well. Splines have several columns: they
        are terms of formulas, and no columns of a table.
        """
        made, whole = dict(self.columns), SiteTable(self.columns, self.rows, derives=True)
        for name, text in variables.items():
            node = parse_variable(text)
            if name in made:
                raise ArgumentError("variables", f"must have names that no column has, got {name!r}")
            if not isinstance(node, Spline):
                made[name] = define(node, whole)
                if is_definition(text):
                    made[name_of(text)] = made[name]
        return SiteTable(made, self.rows, derives=self.derives)

    def where(self, text: str) -> Array:
        """Return in which rows a condition holds, as ``"age >= 18"`` or the name of a variable."""
        found = define(parse_condition(text), self)
        if not np.isin(found.numbers[~found.missing], (0.0, 1.0)).all():
            raise ArgumentError("condition", f"must be true or false in each row, as 'age >= 18', got {text!r}")
        met: Array = (found.numbers == 1.0) & ~found.missing
        return met

    def take(self, rows: Array, columns: Sequence[str] | None = None) -> SiteTable:
        """Return some rows, of some columns or all."""
        names = self.columns if columns is None else columns
        count = int(np.count_nonzero(rows)) if rows.dtype == bool else len(rows)
        return SiteTable({name: self.column(name).take(rows) for name in names}, count, derives=self.derives)

    def answer(self, question: Question, check: CheckRows | None = None, site: str = "") -> Any:
        """Answer a question about the table.

        ``check`` is given the rows that moments are of and their weights, and may refuse them; ``site`` is the name of
        the site that has the table, for models in which sites have effects.
        """
        if not isinstance(question, Question) or question.reveals.of != "table":
            raise ArgumentTypeError("question", f"must be one about a table, got {type(question).__name__}")
        return question.answer(Offer(TableView(self, check, site), question.reveals.uses))

    def losses(self, spec: ModelSpec, site: str = "", *, split: bool = True) -> Losses:
        """Return the losses of a model on this table, one client; ``site`` is the name of the site that has it.

        Without ``split`` each person has one row, also for effects that change with time.
        """
        return make_losses(spec, [self.features(spec, site, split=split)])

    def people(self, spec: ModelSpec) -> IntArray:
        """Return which person each row of a model of periods is of."""
        times = self.features(spec.by_person, split=False).times
        assert times is not None
        rows = split_periods(times, spec.periods).row if spec.periods else times.split()[0]
        return np.unique(rows, return_inverse=True)[1]

    def strata_of(self, question: LogRankQuestion) -> Array:
        """Return the stratum of each row of a log-rank test."""
        rows, *_ = _groups(self, question.response, question.group, question.strata)
        return read_strata(question.strata, rows)

    def features(self, spec: ModelSpec, site: str = "", *, split: bool = True) -> ModelRows:
        """Return the rows that are used as a model has them; ``site`` is the name of the site that has them.

        Where effects change with time, and with ``split``, a row becomes one for each stretch up to an event of any
        row, with the time of its end in the features. Rows of a person belong together.
        """
        used, rows = self.complete(spec.design)
        if not used.any():
            raise ArgumentError("table", "must have rows without missing values in the columns of the model, got none")
        person: IntArray | None = None
        times: Times | None = None
        if split and not spec.periods and spec.several_rows:
            rows, times, person = _split_by_events(spec.design.response, rows)
        X = rows.matrix_of(spec.design, spec.means)
        X = standardize(X, spec.centre, spec.scale)
        effects = [float(site == name) for name in spec.effects]
        X = np.concatenate([X, np.tile([*([1.0] if spec.intercept else []), *effects], (len(X), 1))], axis=1)
        weights, response = rows.weigh(spec.design.weights), spec.design.response
        survives = isinstance(response, Survival)
        if person is None and isinstance(response, Survival):
            times = read_times(response, rows)
        y = times.event.astype(np.float64) if times is not None else rows.response(response, spec.classes)
        if spec.class_weights:
            by_class = np.array(spec.class_weights)[y.astype(np.int64)]
            weights = by_class if weights is None else weights * by_class
        made = ModelRows(
            X,
            y,
            weights,
            None if spec.design.offset is None else rows.number("the offset", spec.design.offset),
            times,
            read_strata(spec.design.strata, rows) if survives else None,
            person if spec.design.cluster is None else read_clusters(spec.design.cluster.column, rows),
        )
        return split_rows(made, spec.periods) if spec.periods else made

    def number(self, name: str, node: Expression) -> Array:
        """Return a number for each row, which must be finite."""
        found = np.ascontiguousarray(np.broadcast_to(evaluate(node, self, {}), len(self)), dtype=np.float64)
        if not np.isfinite(found).all():
            raise ArgumentError(name, f"is not finite in {int((~np.isfinite(found)).sum())} rows")
        return found

    def weigh(self, node: Expression | InverseWeights | None) -> Array | None:
        """Return the weight of each row, None if missing."""
        if node is None:
            return None
        weights = self._invert(node) if isinstance(node, InverseWeights) else self.number("the weight", node)
        if not ((weights >= 0).all() and weights.any()):
            raise ArgumentError("weights", "must be at least 0 in all rows, and positive in some")
        return weights

    def _invert(self, node: InverseWeights) -> Array:
        """Return weights by the probability of each row's own treatment."""
        design, x = node.treatment, np.array(node.coefficients)
        predictor = self.matrix_of(design, ()) @ x[: design.width] + (x[-1] if node.intercept else 0.0)
        if design.offset is not None:
            predictor = predictor + self.number("the offset", design.offset)
        chance, treated = Binomial(node.link).mean(predictor), self.response(design.response, node.classes)
        if not np.isin(treated, (0.0, 1.0)).all():
            raise ArgumentError("weights", "must be of a model of a treatment of two values")
        with np.errstate(divide="ignore", over="ignore"):
            own = np.where(treated == 1.0, chance, 1.0 - chance)
            weights: Array = 1.0 / own if node.estimand == "all" else np.where(treated == 1.0, 1.0, chance / own)
        if not np.isfinite(weights).all():
            raise ArgumentError("weights", "are not finite where the treatment of a row has the probability 0")
        return weights

    def matrix_of(self, design: Design, means: Sequence[float] | Array) -> Array:
        """Return the features of all rows, which must be finite."""
        X = design.matrix(self, means)
        bad = ~np.isfinite(X)
        if bad.any():
            name = design.names[int(bad.any(axis=0).argmax())]
            raise ArgumentError(f"the term {name!r}", f"is not finite in {int(bad.any(axis=1).sum())} of {len(X)} rows")
        return X

    def response(self, node: Expression | Survival, classes: tuple[Level, ...]) -> Array:
        """Return the response of all rows: numbers, or numbers of classes."""
        if classes and isinstance(node, ColumnNode):
            return codes(node.column, classes, self).astype(np.float64)
        if isinstance(node, Survival):
            raise ArgumentError("the response", "Surv(…) is for models of times")
        y = evaluate(node, self, {})
        if not np.isfinite(y).all():
            raise ArgumentError("the response", f"is not finite in {int((~np.isfinite(y)).sum())} rows")
        if classes and not np.isin(y, np.arange(len(classes))).all():
            raise ArgumentError("the response", "must be 0 or 1 for a classification")
        return np.ascontiguousarray(y)

    def complete(self, design: Design) -> tuple[Array, SiteTable]:
        """Return where nothing is missing, and these rows of the columns that a design uses."""
        used = design.complete(self)
        return used, self.take(used, design.columns)


class TableView(NamedTuple):
    """The table of a site as questions see it.

    Attributes
    ----------
    table
        The rows.
    check
        Is given the rows that moments are of and their weights, None where all are 1, and may refuse them.
    site
        The name of the site, for models in which sites have effects.
    """

    table: SiteTable
    check: CheckRows | None
    site: str

    def describe(self, columns: tuple[str, ...] | None) -> Schema:
        """Return what is said of some columns, or of all."""
        for name in columns or () if self.table.derives else ():
            if is_definition(name):
                self.table.column(name)
        known = self.table.columns
        own = [name for name in known if not (self.table.derives and is_definition(name))]
        names = own if columns is None else [name for name in columns if name in known]
        return Schema(self.table.rows, tuple(describe(name, known[name]) for name in names))

    def summarise(self, columns: tuple[str, ...], factors: tuple[Coded, ...], by: Coded | None) -> Descriptions:
        """Return counts, means and deviations by group."""
        group, groups = group_rows(self.table, by)
        inside = group >= 0
        shape = (len(columns), groups)
        known, means, scatters = np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros(shape)
        for i, name in enumerate(columns):
            for g, values in enumerate(values_of(self.table, name, group, groups)):
                known[i, g] = len(values)
                if len(values):
                    means[i, g] = values.mean()
                    scatters[i, g] = np.square(values - means[i, g]).sum()
        counts = []
        for factor in factors:
            level = codes(factor.coded, factor.levels, self.table)
            some = inside & (level >= 0)
            cells = np.bincount(level[some] * groups + group[some], minlength=len(factor.levels) * groups)
            counts.append(cells.astype(np.int64).reshape(-1, groups))
        rows = np.bincount(group[inside], minlength=groups).astype(np.int64)
        withheld = np.zeros(len(columns) + len(factors), dtype=np.int64)
        return Descriptions(rows, int((~inside).sum()), known, means, scatters, counts, withheld)

    def count_below(self, columns: tuple[str, ...], edges: list[Array], by: Coded | None, fewest: int) -> Histograms:
        """Return in how many rows columns are at most as large as edges, by group; cells have ``fewest`` rows."""
        group, groups = group_rows(self.table, by)
        counts, totals = [], np.zeros((len(columns), groups), dtype=np.int64)
        for i, (name, grid) in enumerate(zip(columns, edges, strict=True)):
            parts = [np.sort(values) for values in values_of(self.table, name, group, groups)]
            totals[i] = [len(one) for one in parts]
            counts.append(np.stack([np.searchsorted(one, grid, "right") for one in parts]).astype(np.int64))
        return Histograms(counts, counts, totals).coarsen(max(fewest, 1))

    def add_up(self, design: Design, classes: tuple[Level, ...]) -> Sums:
        """Count the rows for a design, and add up what is there of columns that are filled in."""
        used, rows = self.table.complete(design)
        filled = [self.table.column(name) for name in design.filled]
        sums = [float(one.numbers[~one.missing].sum()) for one in filled]
        known = [int((~one.missing).sum()) for one in filled]
        guess = [total / count if count else 0.0 for total, count in zip(sums, known, strict=True)]
        levels = [codes(one.coded, one.levels, rows) for one in design.coded]
        counts = [
            np.bincount(found, minlength=len(one.levels)) for found, one in zip(levels, design.coded, strict=True)
        ]
        by_class = np.zeros(0, dtype=np.int64)
        invalid = [0]
        if classes:
            y = rows.response(design.response, classes).astype(np.int64)
            by_class = np.bincount(y, minlength=len(classes))
        else:
            bad = ~np.isfinite(evaluate_response(design.response, rows))
            invalid = [int(bad.sum())]
        bad = ~np.isfinite(design.matrix(rows, guess))
        ends = np.cumsum([0, *(len(term.names) for term in design.terms)])
        invalid += [int(bad[:, ends[i] : ends[i + 1]].any(axis=1).sum()) for i in range(len(design.terms))]
        return Sums(
            self.table.rows,
            int(used.sum()),
            np.array(known, dtype=np.int64),
            np.array(sums, dtype=np.float64),
            [count.astype(np.int64) for count in counts],
            by_class.astype(np.int64),
            np.array(invalid, dtype=np.int64),
            float(used.sum() if (weights := rows.weigh(design.weights)) is None else weights.sum()),
        )

    def moments(self, design: Design, means: Array, diagonal: bool, weighted: bool) -> Moments:
        """Return the moments of the features of a design."""
        rows = self.table.complete(design)[1]
        X, weights = rows.matrix_of(design, means), rows.weigh(design.weights) if weighted else None
        if self.check is not None:
            self.check(X, weights)
        return Moments.of(X, weights=weights, diagonal=diagonal)

    def count_at_risk(self, response: Survival, group: Coded | None, times: Array | None) -> RiskCounts:
        """Count who is at risk in each level of a column."""
        _, own, groups, count = _groups(self.table, response, group)
        return RiskCounts.of(own, groups, count, times=times)

    def log_rank(self, response: Survival, group: Coded, strata: tuple[str, ...], rho: float) -> LogRank:
        """Add up what a log-rank test needs, over strata."""
        rows, times, groups, count = _groups(self.table, response, group, strata)
        labels = read_strata(strata, rows)
        sums = [
            LogRank.of(RiskCounts.of(Times(*(one[own] for one in times)), groups[own], count), rho)
            for own in (labels == label for label in np.unique(labels))
        ]
        return sum(sums[1:], start=sums[0])

    def hazards(self, spec: ModelSpec, x: Array, times: Array | None) -> Baselines:
        """Return baseline hazards at the coefficients of a model."""
        return find_baselines(self.table.features(spec), x, spec.ties, times)

    def proportionality(self, spec: ModelSpec, x: Array, transform: Transform) -> Proportionality:
        """Return the sums of a test of proportional hazards."""
        rows = self.table.features(spec)
        assert rows.times is not None
        risk = rows.X @ x + (0.0 if rows.offset is None else rows.offset)
        return add_proportionality(
            rows.X, rows.times, risk, rows.strata, rows.weights, efron=spec.ties == "efron", transform=transform
        )

    def concordance(self, spec: ModelSpec, x: Array) -> Concordance:
        """Return the concordance of the risks of rows with their times."""
        return find_concordance(self.table.features(spec), x)

    def score(self, spec: ModelSpec, x: Array, more: Sequence[Array]) -> SiteScores:
        """Return how good predictions are, at some coefficients and at more of them."""
        rows = self._rows(spec)
        others = [score_rows(Predictor.of(spec, one).predict(rows), scores_only=True) for one in more]
        return dataclasses.replace(score_rows(Predictor.of(spec, x).predict(rows)), more=others)

    def calibrate(self, spec: ModelSpec, x: Array, point: Array) -> Information:
        """Return the sums of a model of the linear predictor."""
        return information_of(Predictor.of(spec, x).predict(self._rows(spec)), point)

    def _rows(self, spec: ModelSpec) -> ModelRows:
        if spec.effects and not self.site:
            raise ArgumentError("site", "must be the name of the site, for a model with effects of sites")
        return self.table.features(spec, self.site)


def standardize(X: Array, centre: Array, scale: Array) -> Array:
    """Return features less their centre, divided by their scale; zero where that is zero."""
    return np.where(scale > 0, (X - centre) / np.where(scale > 0, scale, 1.0), 0.0)


class ModelRows(NamedTuple):
    """Rows of a site as a model has them: features with the intercept, the response, weights and offset.

    Models of times have these and the strata too, and perhaps clusters; y states whether there is an event.
    """

    X: Array
    y: Array
    weights: Array | None = None
    offset: Array | None = None
    times: Times | None = None
    strata: Array | None = None
    clusters: Array | None = None


def _split_by_events(response: Any, rows: SiteTable) -> tuple[SiteTable, Times, IntArray]:
    """Return rows for the stretches between events, whose time is their end, with their times and whose they are."""
    person, times = read_times(response, rows).split()
    split, name = rows.take(person), response.leaves.column
    split.columns[name] = dataclasses.replace(split.column(name), kind="number", numbers=times.time)
    return split, times, person


def split_rows(rows: ModelRows, edges: Sequence[float]) -> ModelRows:
    """Return a row for each period in which a row was at risk, with indicators of periods after its features."""
    assert rows.times is not None
    found = split_periods(rows.times, edges)
    if not len(found.row):
        raise ArgumentError("periods", "must be such that some row is at risk in one of them, got none")
    indicators = (found.period[:, None] == np.arange(len(edges) - 1)).astype(np.float64)
    weights, offset, clusters = (
        None if one is None else one[found.row] for one in (rows.weights, rows.offset, rows.clusters)
    )
    X = np.concatenate([rows.X[found.row], indicators], axis=1)
    return ModelRows(X, found.event, weights, offset, clusters=clusters)


def make_losses(spec: ModelSpec, parts: Sequence[ModelRows]) -> Losses:
    """Return the losses of a model on the rows of some sites, a client for each."""
    owner: IntArray = np.repeat(np.arange(len(parts)), [len(part.y) for part in parts])
    family, names = getattr(kinds, spec.family), spec.names
    y = np.concatenate([part.y for part in parts])
    y = y.astype(np.int64) if spec.classes else y
    several = spec.family in ("Softmax", "Multinomial", "Ordinal")
    options: dict[str, Any] = {"n_classes": len(spec.classes)} if several else {}
    X = np.concatenate([part.X for part in parts])
    if spec.distribution is not None:
        options["family"] = spec.distribution.make()
    if spec.family == "Cox":
        times = Times(*(np.concatenate(one) for one in zip(*(part.times or () for part in parts), strict=True)))
        y = times.time
        options |= {"event": times.event, "entry": times.entry, "ties": spec.ties}
        options["strata"] = np.concatenate([part.strata for part in parts if part.strata is not None])
    if spec.family in ("Cox", "GLM") and spec.design.cluster is not None:
        options["clusters"] = np.concatenate([part.clusters for part in parts if part.clusters is not None])
    if spec.family == "Ordinal":
        options["link"] = spec.link
    if spec.family in ("GLM", "Multinomial", "Ordinal", "Cox"):
        options["weight_scale"] = spec.weight_scale
        for name in ("weights", "offset"):
            given = [getattr(part, name) for part in parts]
            options[name] = None if given[0] is None else np.concatenate(given)
    if spec.family != "Logistic" or len(np.unique(y)) > 1:
        made: Losses = family(X, y, clients=owner, l2=spec.ridge, n_clients=len(parts), feature_names=names, **options)
        return made
    # A site may have one class alone; losses want to see both, so one more client has them, and is excluded again.
    X, y, owner = np.concatenate([X, X[[0, 0]]]), np.append(y, [0, 1]), np.append(owner, [len(parts)] * 2)
    both = family(X, y, clients=owner, l2=spec.ridge, feature_names=names)
    one: Losses = both.part(np.arange(len(parts)))
    return one


def describe(name: str, column: Column) -> ColumnSchema:
    """Return the description of a column at a site."""
    values, counts = np.unique(column.numbers[~column.missing], return_counts=True)
    distinct = len(values) > 1 and bool((counts == 1).all())
    most = {"category": MANY, "integer": FEW, "truth": 2}.get(column.kind, 0)
    listed = 0 < len(values) <= most and not (distinct and column.kind == "category" and len(values) > FEW)
    levels: tuple[Level, ...] = ()
    if listed:
        levels = tuple(bool(one) if column.kind == "truth" else level_of(one, column.levels) for one in values.tolist())
    is_number = column.kind in ("number", "integer") and len(values)
    return ColumnSchema(
        name,
        column.kind,
        column.unit,
        int(column.missing.sum()),
        levels,
        tuple(map(int, counts)) if listed else (),
        float(values[0]) if is_number else None,
        float(values[-1]) if is_number else None,
        distinct,
        column.order,
    )
