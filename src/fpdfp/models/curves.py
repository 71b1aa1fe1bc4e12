"""Survival curves and log-rank tests over the sites of a federation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.federation.cohort import LocalCohort, TableCohort
from fpdfp.federation.columns import Levels, Schemas
from fpdfp.federation.questions import LogRankQuestion, RiskQuestion, SchemaQuestion
from fpdfp.formula.parsing import parse
from fpdfp.formula.tree import Categorical, Coded, Column, Formula, Level, Numeric, Survival
from fpdfp.inference.hypotheses import HypothesisTest
from fpdfp.models.formulas import Asking, check_response
from fpdfp.survival import RiskCounts, RiskTotal, SurvivalCurve, kaplan_meier
from fpdfp.survival.counts import check_grid
from fpdfp.survival.curves import Scale, bound_survival
from fpdfp.survival.log_rank import LogRank


class GroupCurves(Mapping[Level, SurvivalCurve]):
    """The curve of each group, by its level; of all rows if there are no groups, by ``"all"``.

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


class _Asked(NamedTuple):
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
    to the row. Where rows leave between the given times the curve is that of a life table
    (:func:`fpdfp.survival.kaplan_meier`). In both cases ``least`` and ``largest`` of a curve bound that of the exact
    times, unless rows enter late.

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
    asked = _read(source, formula, groups, levels)
    if asked.strata:
        raise ArgumentError("formula:", "strata(…) is for models and tests; a curve uses all rows of a group")
    grid = None if times is None else check_grid(times)
    total, ends = _count(asked, grid)
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
        The power of the survival curve that weighs events: 0 for the log-rank test, 1 for that of Peto and Peto.
    stratify
        Whether rows are compared with those of the same site alone. Sites then compute their sums from exact times, and
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
    asked = _read(source, formula, groups, levels)
    if asked.group is None:
        raise ArgumentError("formula:", "must name the column of the groups that are compared, as in Surv(t, d) ~ arm")
    power = _checks.real("rho", rho)
    if _checks.flag("stratify", stratify):
        if times is not None:
            raise ArgumentError("times", "must be None with stratify=True, where sites use their exact times")
        sums: LogRank = asked.asking.ask(LogRankQuestion(asked.response, asked.group, asked.strata, power))
        return sums.test()
    if asked.strata:
        raise ArgumentError("stratify", "must be True with strata(…) in the formula")
    grid = None if times is None else check_grid(times)
    return LogRank.of(_count(asked, grid)[0], power).test()


def _count(asked: _Asked, grid: Array | None) -> RiskTotal:
    """Return the counts of all sites."""
    total: RiskTotal = asked.asking.ask(RiskQuestion(asked.response, asked.group, grid))
    return total


def _read(source: Any, text: str, groups: Any, levels: Levels) -> _Asked:
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
    return _Asked(asking, formula.response, coded, formula.strata)


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
