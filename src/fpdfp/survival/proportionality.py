"""The test of proportional hazards: whether a coefficient of a Cox model changes with time, from sums over sites."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.inference.hypotheses import HypothesisTest, judge
from fpdfp.survival.response import Times

#: How time enters: unchanged, or by its logarithm.
Transform = Literal["identity", "log"]


@dataclasses.dataclass(frozen=True)
class Proportionality:
    """Sums over events at times t with g(t) their transform; sums over sites and strata add up.

    Attributes
    ----------
    score
        Σ g(t) (x − x̄), with x̄ the mean of those at risk by their hazards.
    information, crossed, weighted
        Σ V, Σ g(t) V and Σ g(t)² V, with V the covariance of those at risk by their hazards.
    rows, events
        How many rows and events there are.
    """

    score: Array
    information: Array
    crossed: Array
    weighted: Array
    rows: int
    events: int

    def __post_init__(self) -> None:
        p = len(self.score)
        if any(one.shape != (p, p) for one in (self.information, self.crossed, self.weighted)) or self.score.ndim != 1:
            raise ArgumentError("score", "must have a number for each coefficient, and matrices of as many rows")

    def __add__(self, other: Proportionality) -> Proportionality:
        """Return the sums of both."""
        return Proportionality(*(
            getattr(self, one.name) + getattr(other, one.name) for one in dataclasses.fields(self)
        ))  # fmt: skip

    def take(self, places: Sequence[int]) -> Proportionality:
        """Return the sums of some coefficients."""
        own, square = np.asarray(places), np.ix_(places, places)
        return dataclasses.replace(
            self, score=self.score[own], information=self.information[square], crossed=self.crossed[square],
            weighted=self.weighted[square],
        )  # fmt: skip

    def test(self, places: Sequence[int] | None = None, name: str = "all coefficients") -> HypothesisTest:
        """Return the score test that some coefficients, or all, do not change with g(t) (Grambsch, Therneau 1994)."""
        own = np.arange(len(self.score)) if places is None else np.asarray(places)
        cross = self.crossed[:, own]
        schur = self.weighted[np.ix_(own, own)] - cross.T @ np.linalg.solve(self.information, cross)
        return judge(name, float(self.score[own] @ np.linalg.solve(schur, self.score[own])), len(own), None)


@dataclasses.dataclass(frozen=True)
class ProportionalityTests:
    """The test of each term of a Cox model, and of all together; ``print`` shows them, as R's ``cox.zph``."""

    terms: Mapping[str, HypothesisTest]
    whole: HypothesisTest

    def frame(self) -> Any:
        """Return a data frame of pandas with a row for each term, and one for all."""
        import pandas

        tests = {**self.terms, "all": self.whole}
        cells = {name: (one.statistic, one.df, one.p) for name, one in tests.items()}
        return pandas.DataFrame.from_dict(cells, orient="index", columns=["chi2", "df", "p"])

    def __str__(self) -> str:
        return "\n".join(map(str, [*self.terms.values(), self.whole]))

    __repr__ = __str__


def add_proportionality(
    X: Array, times: Times, risk: Array, strata: Any, weights: Array | None, *, efron: bool, transform: Transform
) -> Proportionality:
    """Return the sums of the rows of a site; ``risk`` is the linear predictor of each row."""
    n, p = X.shape
    weight = np.ones(n) if weights is None else weights
    if transform == "log" and (times.time[times.event] <= 0).any():
        raise ArgumentError("transform", "must be 'identity' where events are at times of at most 0")
    labels = np.zeros(n, dtype=np.int64) if strata is None else np.unique(strata, return_inverse=True)[1]
    found = Proportionality(np.zeros(p), np.zeros((p, p)), np.zeros((p, p)), np.zeros((p, p)), n, 0)
    for stratum in range(int(labels.max()) + 1):
        own = labels == stratum
        hazard = weight[own] * np.exp(risk[own] - risk[own].max())
        part = Times(*(one[own] for one in times))
        found = found + _add_stratum(X[own], part, weight[own], hazard, efron=efron, transform=transform)
    return dataclasses.replace(found, rows=n)


def _add_stratum(
    X: Array, times: Times, weight: Array, hazard: Array, *, efron: bool, transform: Transform
) -> Proportionality:
    p = X.shape[1]
    score, sums = np.zeros(p), np.zeros((3, p, p))
    for time in np.unique(times.time[times.event & (weight > 0)]):
        at_risk = (times.entry < time) & (times.time >= time)
        tied = (times.time == time) & times.event & (weight > 0)
        g, count = (float(np.log(time)) if transform == "log" else float(time)), int(tied.sum())
        mean_weight = float(weight[tied].mean())
        shares = np.arange(count) / count if efron else np.zeros(count)
        rows, events = X[at_risk], X[tied]
        s0, s1 = hazard[at_risk].sum(), hazard[at_risk] @ rows
        s2 = (hazard[at_risk, None] * rows).T @ rows
        d0, d1, d2 = hazard[tied].sum(), hazard[tied] @ events, (hazard[tied, None] * events).T @ events
        score += g * (weight[tied] @ events)
        for share in shares:
            total, mean = s0 - share * d0, (s1 - share * d1) / (s0 - share * d0)
            spread = (s2 - share * d2) / total - np.outer(mean, mean)
            score -= g * mean_weight * mean
            sums += mean_weight * np.array([1.0, g, g * g])[:, None, None] * spread
    events = int((times.event & (weight > 0)).sum())
    return Proportionality(score, sums[0], sums[1], sums[2], 0, events)
