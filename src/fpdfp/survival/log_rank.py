"""Log-rank tests, over one site or stratified by site."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.inference.hypotheses import HypothesisTest, judge
from fpdfp.survival.counts import RiskCounts


@dataclasses.dataclass(frozen=True)
class LogRank:
    """Events in each group, and those expected if all groups had the same hazard; strata add up.

    Attributes
    ----------
    observed, expected
        Of each group, weighted where ``rho`` is not 0.
    variance
        The covariance of observed less expected.
    rows, events
        How many rows and how many events each group has.
    """

    observed: Array
    expected: Array
    variance: Array
    rows: Array
    events: Array

    def __post_init__(self) -> None:
        count = len(self.observed)
        shapes = [self.expected.shape, self.rows.shape, self.events.shape, self.variance.shape]
        if shapes != [(count,), (count,), (count,), (count, count)]:
            raise ArgumentError("expected", f"must belong to {count} groups, got shapes {shapes}")

    def __add__(self, other: LogRank) -> LogRank:
        """Return the sums of two strata."""
        return LogRank(
            self.observed + other.observed,
            self.expected + other.expected,
            self.variance + other.variance,
            self.rows + other.rows,
            self.events + other.events,
        )

    def coarsen(self, least: int) -> LogRank:
        """Return the sums; refuse groups of fewer rows, and with fewer events or others than a minimum."""
        counts = np.concatenate([self.rows, self.events, self.rows - self.events])
        if ((counts > 0) & (counts < least)).any():
            raise ArgumentError("group", f"has {self.rows} rows with {self.events} events")
        return self

    @staticmethod
    def of(counts: RiskCounts, rho: float = 0.0) -> LogRank:
        """Return the sums of one stratum.

        Parameters
        ----------
        counts
            How many are at risk in each group. With counts of several sites together the test treats all rows as if
            of one site; for a test stratified by site, add up what each site's counts give.
        rho
            The weight of an event is the probability of no event before it, to this power: 0 for the log-rank test, 1
            for the test of Peto and Peto.

        Examples
        --------
        >>> from fpdfp.survival import RiskCounts, Times
        >>> rows = Times.of([1.0, 2.0, 3.0, 4.0], [1, 1, 1, 0])
        >>> sums = LogRank.of(RiskCounts.of(rows, [0, 0, 1, 1]))
        >>> sums.observed, sums.expected.round(3)
        (array([2., 1.]), array([0.833, 2.167]))
        >>> print(sums.test())
        log-rank test: χ² = 2.882 on 1 degrees of freedom, p = 0.090
        """
        power = _checks.real("rho", rho)
        if len(counts.start) < 2:
            raise ArgumentError("groups", "must be two or more for a test between them")
        at_risk, events = counts.at_risk, counts.events
        n, d = at_risk.sum(axis=0), events.sum(axis=0)
        some = d > 0
        at_risk, events, n, d = at_risk[:, some], events[:, some], n[some], d[some]
        before = np.cumprod(np.append(1.0, np.where(n > d, 1.0 - d / n, 0.0)))[:-1]
        with np.errstate(divide="ignore"):
            weight = before**power if power else np.ones_like(before)
        share = at_risk / n
        spread = weight**2 * d * np.where(n > 1, (n - d) / np.where(n > 1, n - 1, 1.0), 0.0)
        variance = np.diag((share * spread).sum(axis=1)) - (share * spread) @ share.T
        return LogRank(
            (weight * events).sum(axis=1),
            (weight * d * share).sum(axis=1),
            variance,
            counts.start + counts.entered.sum(axis=1),
            counts.events.sum(axis=1),
        )

    def test(self) -> HypothesisTest:
        """Return the test that all groups have the same hazard."""
        used = np.flatnonzero(self.expected > 0)
        if len(used) < 2:
            raise ArgumentError("groups", "must have rows at risk in two or more of them when events happen")
        difference = (self.observed - self.expected)[used[:-1]]
        inverse = np.linalg.pinv(self.variance[np.ix_(used[:-1], used[:-1])], hermitian=True)
        return judge("log-rank test", float(difference @ inverse @ difference), len(used) - 1, None)


def log_rank(parts: Any, rho: float = 0.0) -> HypothesisTest:
    """Return the test stratified by site, given the counts of each site.

    >>> from fpdfp.survival import RiskCounts, Times
    >>> site = RiskCounts.of(Times.of([1.0, 2.0, 3.0, 4.0], [1, 1, 1, 0]), [0, 0, 1, 1])
    >>> log_rank([site, site]).p < log_rank([site]).p
    True
    """
    first, *others = [LogRank.of(part, rho) for part in parts]
    return sum(others, start=first).test()
