"""Tables and curves before a model, over the sites of a federation or of a table.

The first table of a study, histograms, correlations, survival curves and log-rank tests.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.federation.cohort import Agreed, Levels, LocalCohort, Schemas, TableCohort
from fpdfp.federation.questions import (
    POWERS,
    DescriptionQuestion,
    Descriptions,
    HistogramQuestion,
    Histograms,
    LogRankQuestion,
    MomentsQuestion,
    RiskQuestion,
    SchemaQuestion,
    find_edges,
)
from fpdfp.formula.coding import Design, Term
from fpdfp.formula.parsing import parse
from fpdfp.formula.tree import Categorical, Coded, Column, Formula, Level, Numeric, Survival
from fpdfp.inference.hypotheses import HypothesisTest
from fpdfp.inference.table import format_number, format_p
from fpdfp.inference.table_one import LevelRows, NumberRow, RankTest, TableOne, find_quantile
from fpdfp.models.formulas import Asking, check_response
from fpdfp.survival import RiskCounts, RiskTotal, SurvivalCurve, kaplan_meier
from fpdfp.survival.counts import check_grid
from fpdfp.survival.curves import Scale, bound_survival
from fpdfp.survival.log_rank import LogRank


def table_one(
    source: Any,
    columns: Sequence[str],
    by: str | None = None,
    groups: Any = None,
    *,
    quartiles: bool = False,
    levels: Levels = "shared",
) -> TableOne:
    """Return the first table of a paper: means and deviations, or counts and percentages, of columns by group.

    Sites send sums; means, deviations, tests and standardised differences are exact. With quartiles, groups are
    compared by ranks too (Wilcoxon's test for two groups, the Kruskal–Wallis test for more). Ranks come from counts in
    cells, with bounds of the p value of exact ranks. Whole numbers have a cell each where that is at most 500 cells,
    and then the test is exact. A column of which a site cannot report a group without revealing few rows is withheld
    there, and the table states at how many sites.

    Parameters
    ----------
    source, groups
        A table and the site of each row, tables of sites, or a federation, as in ``fit``.
    columns
        Names of columns. Texts and truth values are categorical, numbers are not; ``"C(grade)"`` makes them so.
    by
        The column that makes groups; None for all rows.
    quartiles
        Whether sites send histograms too, so that quartiles are known to a tenth of a deviation, or as far as
        the site's least number of rows in a cell allows.
    levels
        As in ``fit``.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"age": rng.normal(60, 9, 300).round(), "arm": rng.choice(["new", "old"], 300),
    ...                       "stage": rng.choice(["I", "II"], 300), "clinic": np.arange(300) % 3})
    >>> print(table_one(table, ["age", "stage"], by="arm", groups="clinic"))
    arm                              new            old      p       test      SMD
    rows                             142            158
    age, mean (deviation)  59.82 (9.063)  59.56 (9.324)  0.802  Welch's t  0.02904
    stage, rows (%)                                      0.827         χ²  0.02532
      I                        71 (50.0)      77 (48.7)
      II                       71 (50.0)      81 (51.3)
    tests: Welch's of means, χ² of levels, Fisher's where counts are small
    SMD: the largest standardised difference of two groups
    """
    asked = _read(source, columns, by, groups, levels)
    total: Descriptions = asked.cohort.ask(asked.question).sums
    names = [*asked.numbers, *(one.coded for one in asked.factors)]
    withheld = {name: int(sites) for name, sites in zip(names, total.withheld, strict=True) if sites}
    numbers = dict(_number_rows(asked, total))
    if quartiles and asked.numbers:
        numbers |= _add_quartiles(asked, total, numbers)
    found: dict[str, NumberRow | LevelRows] = {**numbers}
    for factor, counts in zip(asked.factors, total.counts, strict=True):
        found[factor.coded] = LevelRows(factor.coded, factor.levels, counts)
    shown = ("all",) if asked.by is None else asked.by.levels
    notes = (f"{total.ungrouped:,} rows have no value of {by}",) if total.ungrouped else ()
    return TableOne(by, shown, total.rows, tuple(found[name] for name in asked.order), withheld, notes)


@dataclasses.dataclass(frozen=True)
class Histogram:
    """The number of rows that a column has between edges, by group; ``print`` shows it, :meth:`plot` draws it.

    Attributes
    ----------
    name, groups, edges
        The column, the groups, and the edges.
    counts
        Shape (groups, edges + 1): rows up to the first edge, between each two, and above the last. Where a site puts
        neighbouring cells together its rows are spread evenly over them.
    """

    name: str
    groups: tuple[Any, ...]
    edges: Array
    counts: Array

    def frame(self) -> Any:
        """Return a data frame of pandas with a row for each cell."""
        import pandas

        ends = [-math.inf, *self.edges.tolist(), math.inf]
        index = pandas.IntervalIndex.from_breaks(ends, name=self.name)
        return pandas.DataFrame(self.counts.T, index=index, columns=list(self.groups))

    def __str__(self) -> str:
        return str(self.frame())

    __repr__ = __str__

    def plot(self, path: Any = None) -> Any:
        """Draw the shares of rows in cells, a line for each group; ``path`` is a file for the picture."""
        from fpdfp._plotting import new_axes, save

        axes = new_axes(6.0, 3.2, hidden=["top", "right"])
        inside = self.counts[:, 1:-1]
        for group, row, total in zip(self.groups, inside, self.counts.sum(axis=1), strict=True):
            axes.stairs(row / max(total, 1.0), self.edges, label=str(group))
        axes.set_xlabel(self.name)
        axes.set_ylabel("share of rows")
        if len(self.groups) > 1:
            axes.legend(frameon=False)
        return save(axes.figure, path)


def histogram(
    source: Any, column: str, by: str | None = None, groups: Any = None, *, edges: Any = None,
    levels: Levels = "shared",
) -> Histogram:  # fmt: skip
    """Return the histogram of a column, by group.

    Parameters
    ----------
    source, by, groups, levels
        As in :func:`table_one`.
    column
        A column of numbers.
    edges
        The edges of cells. By default they are tenths of a deviation, rounded to one digit. A site reports a column at
        the edges of its first request, and at no others.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [41, 52, 53, 68, 71, 74]})
    >>> histogram(table, "age", edges=[50, 60, 70]).counts.tolist()
    [[1.0, 2.0, 1.0, 2.0]]
    """
    asked = _read(source, [column], by, groups, levels)
    if not asked.numbers:
        raise ArgumentError("column", f"must hold numbers, got {column!r}; table_one counts levels")
    if edges is None:
        plain = DescriptionQuestion(asked.question.columns)
        known = asked.cohort.edges
        if column not in known:
            known[column] = find_edges(asked.cohort.whole.ask(plain).sums, asked.whole)[0]
        grid = known[column]
    else:
        grid = _checks.float_array("edges", edges, dtype=np.float64)
        if grid.ndim != 1 or not grid.size or (np.diff(grid) <= 0).any():
            raise ArgumentError("edges", "must be increasing numbers, at least one")
    found: Histograms = asked.cohort.ask(HistogramQuestion((column,), [grid], asked.by)).sums
    middle = (found.least[0] + found.most[0]) / 2.0
    counts = np.diff(middle, axis=1, prepend=0.0, append=found.totals[0][:, None].astype(np.float64))
    return Histogram(column, ("all",) if asked.by is None else asked.by.levels, grid, counts)


@dataclasses.dataclass(frozen=True)
class Correlations:
    """Pearson's correlations of columns over all rows in which none of them is missing; ``print`` shows them."""

    names: tuple[str, ...]
    matrix: Array
    rows: int

    def p_value(self, first: str, second: str) -> float:
        """Return the two-sided p value for no correlation, by Student's t."""
        from scipy import stats

        r = float(self.matrix[self.names.index(first), self.names.index(second)])
        if abs(r) >= 1.0:
            return 0.0
        return 2.0 * float(stats.t.sf(abs(r) * math.sqrt((self.rows - 2) / (1.0 - r * r)), self.rows - 2))

    def interval(self, first: str, second: str, level: float = 0.95) -> tuple[float, float]:
        """Return confidence limits, by Fisher's transformation."""
        from scipy import stats

        r = float(self.matrix[self.names.index(first), self.names.index(second)])
        width = float(stats.norm.isf((1.0 - level) / 2.0)) / math.sqrt(self.rows - 3)
        return math.tanh(math.atanh(r) - width), math.tanh(math.atanh(r) + width)

    def frame(self) -> Any:
        """Return a data frame of pandas."""
        import pandas

        return pandas.DataFrame(self.matrix, index=list(self.names), columns=list(self.names))

    def plot(self, path: Any = None) -> Any:
        """Draw the matrix as squares, blue above 0 and red below, with numbers; ``path`` is a file for the picture."""
        from fpdfp._plotting import new_axes, save

        count = len(self.names)
        axes = new_axes(2.0 + 0.7 * count, 1.2 + 0.7 * count, hidden=["top", "right", "left", "bottom"])
        axes.imshow(self.matrix, cmap="RdBu", vmin=-1.0, vmax=1.0)
        for (i, j), r in np.ndenumerate(self.matrix):
            axes.text(j, i, f"{r:.2f}", ha="center", va="center", color="white" if abs(r) > 0.6 else "black")
        axes.set_xticks(range(count), self.names, rotation=45, ha="right")
        axes.set_yticks(range(count), self.names)
        axes.tick_params(length=0)
        return save(axes.figure, path)

    def __str__(self) -> str:
        lines = [
            f"{a} and {b}: {format_number(float(self.matrix[i, j]))}, p = {format_p(self.p_value(a, b))}"
            for i, a in enumerate(self.names) for j, b in enumerate(self.names) if j < i
        ]  # fmt: skip
        return "\n".join([*lines, f"{self.rows:,} rows"])

    __repr__ = __str__


def correlations(source: Any, columns: Sequence[str], groups: Any = None) -> Correlations:
    """Return the correlations of columns of numbers, from sums of products over sites.

    The arguments are as in :func:`table_one`; a site must send products of columns.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [41, 52, 53, 68, 71, 74], "dose": [1.0, 2.5, 2.0, 3.5, 3.0, 4.5]})
    >>> print(correlations(table, ["age", "dose"]))
    dose and age: 0.9288, p = 0.007
    6 rows
    """
    asked = _read(source, columns, None, groups, "shared")
    if len(asked.numbers) < 2 or asked.factors:
        raise ArgumentError("columns", "must be at least two columns of numbers")
    terms = tuple(Term((Numeric(name, Column(name)),), k) for k, name in enumerate(asked.numbers))
    design = Design(Column(asked.numbers[0]), terms, tuple(asked.numbers))
    moments = asked.cohort.ask(MomentsQuestion(design, np.zeros(0), diagonal=False)).sums
    deviations = np.sqrt(np.diag(moments.scatter))
    if not (deviations > 0).all():
        raise ArgumentError("columns", f"must vary, but {asked.numbers[int(deviations.argmin())]!r} has one value")
    return Correlations(tuple(asked.numbers), moments.scatter / np.outer(deviations, deviations), int(moments.count))


@dataclasses.dataclass(frozen=True)
class _Asked:
    """The question: the columns of numbers and the factors, their order in the table, and which are whole numbers."""

    cohort: TableCohort
    numbers: tuple[str, ...]
    factors: tuple[Coded, ...]
    by: Coded | None
    order: tuple[str, ...]
    whole: tuple[bool, ...]

    @property
    def question(self) -> DescriptionQuestion:
        return DescriptionQuestion(self.numbers, self.factors, self.by)


def _read(source: Any, columns: Sequence[str], by: str | None, groups: Any, levels: Levels) -> _Asked:
    """Return what is asked, once sites agree on the columns."""
    if isinstance(columns, str) or not columns or not all(isinstance(one, str) for one in columns):
        raise ArgumentError("columns", f"must be a list of names of columns, got {columns!r}")
    if not isinstance(source, TableCohort):
        source = LocalCohort(source, groups)
    elif groups is not None:
        raise ArgumentError("groups", "must be None for a federation, whose sites are known")
    source = source.at_level()
    factors = [_read_column(one) for one in columns]
    group = None if by is None else _read_column(f"C({by})" if "(" not in by else by)
    names = [one.column for one in (*factors, group) if isinstance(one, Categorical)]
    names += [one.value.column for one in factors if isinstance(one, Numeric) and isinstance(one.value, Column)]
    if len(set(names)) < len(names):
        raise ArgumentError("columns", "must be different columns, and not the one that makes groups")
    terms = tuple((one,) for one in (*factors, *([] if group is None else [group])))
    formula = Formula("", Column(names[-1]), terms, True)
    schemas = Schemas(source.names, source.ask_each(SchemaQuestion(tuple(names))).answers)
    if any(len(schemas.of(name)) < len(source.names) for name in names):
        schemas = Schemas(source.names, source.ask_each(SchemaQuestion()).answers)
    agreed = schemas.agree(formula, levels, classify=False)
    numbers, coded, order = [], [], []
    for one in factors:
        name = one.column if isinstance(one, Categorical) else one.name.strip("`")
        order.append(name)
        made = _code(one, name, agreed)
        if made is None:
            numbers.append(name)
        else:
            coded.append(made)
    made_by = None if group is None else _code(group, getattr(group, "column", ""), agreed)
    whole = tuple(agreed.kinds[name] == "integer" for name in numbers)
    return _Asked(source, tuple(numbers), tuple(coded), made_by, tuple(order), whole)


def _read_column(text: str) -> Numeric | Categorical:
    """Return the column that a text names, plain or as ``C(column)``."""
    terms = parse(f"response_of_none ~ {text}").terms
    factor = terms[0][0] if len(terms) == 1 and len(terms[0]) == 1 else None
    if isinstance(factor, Categorical) or (isinstance(factor, Numeric) and isinstance(factor.value, Column)):
        return factor
    raise ArgumentError("columns", f"must be names of columns, or C(column), got {text!r}")


def _code(one: Numeric | Categorical, name: str, agreed: Agreed) -> Coded | None:
    """Return the levels of a categorical column; None for one of numbers."""
    kind = agreed.kinds[name]
    if isinstance(one, Numeric) and kind in ("number", "integer", "empty"):
        return None
    found = one.levels if isinstance(one, Categorical) and one.levels is not None else agreed.levels.get(name, ())
    found = found or ((False, True) if kind == "truth" else ())
    if len(found) < 2:
        raise ArgumentError("columns", f"the column {name!r} must have two or more levels that policies show")
    return Coded(name, name, tuple(found))


def _number_rows(asked: _Asked, total: Descriptions) -> list[tuple[str, NumberRow]]:
    with np.errstate(invalid="ignore", divide="ignore"):
        deviations = np.sqrt(np.where(total.known > 1, total.scatters / np.maximum(total.known - 1, 1), np.nan))
    return [
        (name, NumberRow(name, total.known[i], total.means[i], deviations[i])) for i, name in enumerate(asked.numbers)
    ]


def _add_quartiles(asked: _Asked, total: Descriptions, found: dict[str, NumberRow]) -> dict[str, NumberRow]:
    """Return rows with quartiles, from histograms with edges that do not depend on groups."""
    kept = [i for i in range(len(asked.numbers)) if not total.withheld[i]]
    if not kept:
        return {}
    known, own = asked.cohort.edges, find_edges(total, asked.whole)
    edges = [known.setdefault(name, one) for name, one in zip(asked.numbers, own, strict=True)]
    names = tuple(asked.numbers[i] for i in kept)
    told: Histograms = asked.cohort.ask(HistogramQuestion(names, [edges[i] for i in kept], asked.by)).sums
    made = {}
    for name, i, least, most, totals in zip(names, kept, told.least, told.most, told.totals, strict=True):
        quartiles = tuple(
            tuple(find_quantile(low, high, int(n), edges[i].tolist(), share) for share in (0.25, 0.5, 0.75))
            for low, high, n in zip(least, most, totals, strict=True)
        )
        ranks = RankTest.of_counts(least, most, totals)
        made[name] = dataclasses.replace(found[name], quartiles=quartiles, ranks=ranks)
    return made


class GroupCurves(Mapping[Level, SurvivalCurve]):
    """The curve of each group, by its level; of all rows without groups, by ``"all"``.

    Attributes
    ----------
    counts
        The counts from which the curves are made, summed over sites.
    bits_up, bits_down
        What sites and server sent for them.
    """

    def __init__(
        self, levels: tuple[Level, ...], counts: RiskCounts, asking: Asking,
        ends: tuple[RiskCounts, RiskCounts] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self.counts, self.bits_up, self.bits_down = counts, asking.up, asking.down
        self._curves = {level: kaplan_meier(counts.group(i), **options) for i, level in enumerate(levels)}
        if ends is not None:
            late, early = ends
            for i, level in enumerate(levels):
                bounds = bound_survival(late.group(i), early.group(i))
                some = np.searchsorted(late.times, self._curves[level].times)
                least, largest = (one[some] for one in bounds)
                self._curves[level] = dataclasses.replace(self._curves[level], least=least, largest=largest)

    def __getitem__(self, level: Level) -> SurvivalCurve:
        return self._curves[level]

    def __iter__(self) -> Any:
        return iter(self._curves)

    def __len__(self) -> int:
        return len(self._curves)

    def frame(self) -> Any:
        """Return all curves as one data frame of pandas."""
        import pandas as pd

        return pd.concat({level: curve.frame() for level, curve in self.items()}, names=["group"]).reset_index(level=0)

    def __str__(self) -> str:
        percent = 100 * next(iter(self.values())).level
        lines = [f"{'group':12}  {'rows':>8}  {'events':>8}  {'median':>10}  {percent:g} % interval"]
        for i, (level, curve) in enumerate(self.items()):
            rows = float(self.counts.start[i] + self.counts.entered[i].sum())
            middle, lower, upper = curve.quantile(0.5)
            lines.append(
                f"{level!s:12}  {rows:>8g}  {curve.events.sum():>8g}  {middle:>10.4g}  {lower:.4g} to {upper:.4g}"
            )
        return "\n".join(lines)

    __repr__ = __str__


class _Curves(NamedTuple):
    """The questions of a formula of times to sites."""

    asking: Asking
    response: Survival
    group: Coded | None
    strata: tuple[str, ...]


def survival_curves(
    source: Any,
    formula: str,
    groups: Any = None,
    *,
    times: Any = None,
    level: float = 0.95,
    scale: Scale = "log",
    levels: Levels = "shared",
) -> GroupCurves:
    """Return Kaplan–Meier curves of all rows of a table or of the sites of a federation.

    Sites show how many rows are at risk, leave and have events at which times, nothing of single rows; a site puts
    neighbouring times together until its least number of rows is in each cell. Rows that were put together are then
    taken to have left at a steady pace (:meth:`fpdfp.survival.RiskCounts.spread`), which is right on average, but not
    to the row. Where rows leave between the given times the curve is a life table
    (:func:`fpdfp.survival.kaplan_meier`). In both cases ``least`` and ``largest`` of a curve bound the curve of the
    exact times, unless rows enter late.

    Parameters
    ----------
    source
        A table, or a federation.
    formula
        ``"Surv(time, event) ~ 1"``, or ``"Surv(time, event) ~ arm"`` for a curve of each level of a column.
    groups
        The site of each row of a table, or the name of the column that states it.
    times
        The times at which sites count: times between two of them are rounded up to the later one. By default all times
        at which rows enter and leave.
    level, scale
        Of confidence intervals: see :func:`fpdfp.survival.kaplan_meier`.
    levels
        As in :meth:`FederatedLogisticRegression.fit`.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"months": [3, 5, 8, 9, 4, 7], "died": [1, 1, 0, 1, 1, 0], "clinic": list("aaabbb")})
    >>> curves = survival_curves(table, "Surv(months, died) ~ 1", groups="clinic")
    >>> curves["all"].survival.round(3).tolist()
    [0.833, 0.667, 0.5, 0.5, 0.5, 0.0]
    """
    asked = _read_curves(source, formula, groups, levels)
    if asked.strata:
        raise ArgumentError("formula:", "strata(…) is for models and tests; a curve uses all rows of a group")
    grid = None if times is None else check_grid(times)
    total, ends = _count_at_risk(asked, grid)
    known: tuple[Level, ...] = ("all",) if asked.group is None else asked.group.levels
    return GroupCurves(known, total, asked.asking, ends, level=level, scale=scale)


def log_rank_test(
    source: Any,
    formula: str,
    groups: Any = None,
    *,
    rho: float = 0.0,
    stratify: bool = True,
    times: Any = None,
    levels: Levels = "shared",
) -> HypothesisTest:
    """Test whether groups have the same hazard.

    Parameters
    ----------
    source, groups, levels
        As in :func:`survival_curves`.
    formula
        ``"Surv(time, event) ~ arm"``, and ``"… + strata(stage)"`` to compare rows of the same stratum alone.
    rho
        The power of the survival curve that weighs events: 0 for the log-rank test, 1 for the test of Peto and Peto, or
        0.5.
    stratify
        Whether rows are compared with rows of the same site alone. Sites then compute their sums from exact times, and
        no time leaves them. Otherwise they show counts, as for curves, and hazards must be the same at all sites.
    times
        Without ``stratify``: the times at which sites count.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"months": [3, 5, 8, 9, 4, 7], "died": [1, 1, 0, 1, 1, 0], "arm": list("ababab")})
    >>> print(log_rank_test(table, "Surv(months, died) ~ arm", groups=["x", "x", "x", "y", "y", "y"]))
    log-rank test: χ² = 0.3600 on 1 degrees of freedom, p = 0.549
    """
    asked = _read_curves(source, formula, groups, levels)
    if asked.group is None:
        raise ArgumentError("formula:", "must name the column of the groups that are compared, as in Surv(t, d) ~ arm")
    power = _checks.real("rho", rho)
    if power not in POWERS:
        raise ArgumentError("rho", f"must be 0, 0.5 or 1, got {power:g}")
    if _checks.flag("stratify", stratify):
        if times is not None:
            raise ArgumentError("times", "must be None with stratify=True, where sites use their exact times")
        sums: LogRank = asked.asking.ask(LogRankQuestion(asked.response, asked.group, asked.strata, power))
        return sums.test()
    if asked.strata:
        raise ArgumentError("stratify", "must be True with strata(…) in the formula")
    grid = None if times is None else check_grid(times)
    return LogRank.of(_count_at_risk(asked, grid)[0], power).test()


def _count_at_risk(asked: _Curves, grid: Array | None) -> RiskTotal:
    """Return the counts of all sites."""
    total: RiskTotal = asked.asking.ask(RiskQuestion(asked.response, asked.group, grid))
    return total


def _read_curves(source: Any, text: str, groups: Any, levels: Levels) -> _Curves:
    """Return what is asked, once sites agree on the columns."""
    if not isinstance(source, TableCohort):
        source = LocalCohort(source, groups)
    elif groups is not None:
        raise ArgumentError("groups", "must be None for a federation, whose sites are known")
    source = source.at_level()
    formula = parse(text)
    check_response(formula, survival=True)
    if formula.cluster is not None:
        raise ArgumentError("formula:", "cluster(…) is for FederatedCoxRegression")
    assert isinstance(formula.response, Survival)
    asking = Asking(source)
    factor = _only_factor(formula)
    if factor is not None:
        formula = dataclasses.replace(formula, terms=((factor,),))
    schemas = Schemas(asking.names, asking.ask_each(SchemaQuestion(tuple(formula.columns))))
    if any(len(schemas.of(name)) < len(asking.names) for name in formula.columns):
        schemas = Schemas(asking.names, asking.ask_each(SchemaQuestion()))
    agreed = schemas.agree(formula, levels)
    coded = None
    if factor is not None:
        found = factor.levels or tuple(agreed.levels[factor.column])
        if len(found) < 2:
            raise ArgumentError("formula:", f"the column {factor.column!r} must have two or more levels for groups")
        coded = Coded(factor.name, factor.column, found)
    assert isinstance(formula.response, Survival)
    return _Curves(asking, formula.response, coded, formula.strata)


def _only_factor(formula: Formula) -> Categorical | None:
    """Return the column that makes groups."""
    if not formula.terms:
        return None
    factor = formula.terms[0][0]
    if len(formula.terms) == 1 and len(formula.terms[0]) == 1:
        if isinstance(factor, Categorical):
            return factor
        if isinstance(factor, Numeric) and isinstance(factor.value, Column):
            return Categorical(factor.name, factor.value.column)
    raise ArgumentError("formula:", "must have one column after '~', whose levels are the groups, or 1 for all rows")
