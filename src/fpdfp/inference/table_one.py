"""The first table of a paper: who was studied, by group, with tests and standardised differences."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.inference.table import TextTable, format_number, format_p

#: Expected counts below this call for Fisher's test in a table of two rows and two columns (Cochran 1954).
FEW_EXPECTED = 5.0


class RankTest(NamedTuple):
    """The rank test of Kruskal and Wallis, from counts of rows in cells; for two groups it is Wilcoxon's rank-sum test.

    Rows of a cell are tied. The p value is by the χ² distribution with the correction for ties and none of continuity,
    and the exact ranks have one between ``least`` and ``largest``, up to the ties that they have.
    """

    name: str
    p: float
    least: float
    largest: float

    @classmethod
    def of_counts(cls, least: Array, most: Array, totals: Array) -> RankTest | None:
        """Return the test, from bounds of the rows at most at edges, shape (groups, edges); None without two groups.

        >>> below = np.array([[1, 2, 3], [0, 1, 1]])
        >>> found = RankTest.of_counts(below, below, np.array([3, 3]))
        >>> found.name, round(found.p, 4)
        ('Wilcoxon', 0.1775)
        """
        from scipy import stats

        some = np.asarray(totals) > 0
        sizes = np.asarray(totals, dtype=np.float64)[some]
        groups, whole = len(sizes), float(sizes.sum())
        if groups < 2:
            return None
        ends = sizes[:, None]
        low, high = (np.concatenate([np.zeros_like(ends), one[some], ends], axis=1) for one in (least, most))
        middle = (low + high) / 2.0
        tied = np.diff(middle.sum(axis=0))
        ties = 1.0 - float((tied**3 - tied).sum()) / (whole**3 - whole)
        if ties <= 0:
            return None
        expected = sizes * (whole - sizes) / 2.0
        below, few, many = (one.sum(axis=0) - one for one in (middle, low, high))  # of the other groups
        # How often a row of each group is above one of another: by half of ties, and as counts allow.
        wins = (np.diff(middle) * (below[:, :-1] + below[:, 1:]) / 2.0).sum(axis=1) - expected
        fewest = (np.diff(high) * few[:, :-1]).sum(axis=1) - expected
        often = (np.diff(low) * many[:, 1:]).sum(axis=1) - expected

        def judge(away: Array, ties: float = 1.0) -> float:
            statistic = 12.0 * float((away**2 / sizes).sum()) / (whole * (whole + 1.0)) / ties
            return float(stats.chi2.sf(statistic, groups - 1))

        found = judge(wins, ties)
        bounds = [found, judge(np.maximum(-fewest, often)), judge(np.clip(0.0, fewest, often))]
        if (fewest == often).all():
            bounds = [found]
        return cls("Wilcoxon" if groups == 2 else "Kruskal-Wallis", found, min(bounds), max(bounds))


@dataclasses.dataclass(frozen=True)
class NumberRow:
    """A column of numbers by group.

    Attributes
    ----------
    name
        Of the column.
    known, means, deviations
        In how many rows of each group it has a value, their mean, and their standard deviation.
    quartiles
        For each group the three quartiles, each as the two numbers between which it lies; None if not requested.
    ranks
        The rank test, with the quartiles; None otherwise, and without two groups.
    """

    name: str
    known: Array
    means: Array
    deviations: Array
    quartiles: tuple[tuple[tuple[float, float], ...], ...] | None = None
    ranks: RankTest | None = None

    def test(self) -> tuple[str, float]:
        """Return the name of a test that the means of all groups are the same, and its p value.

        For two groups it is Welch's, which needs no equal variances; for more the analysis of variance of Welch
        (1951).
        """
        some = self.known > 1
        n, mean, variance = self.known[some], self.means[some], self.deviations[some] ** 2
        if len(n) < 2 or not (variance > 0).all():
            return "", math.nan
        return _welch(n, mean, variance)

    def difference(self) -> float:
        """Return the largest standardised difference of the means of two groups, by the root of the mean variance."""
        return max(
            (
                _standardise(self.means[a] - self.means[b], (self.deviations[a] ** 2 + self.deviations[b] ** 2) / 2.0)
                for a in range(len(self.known)) for b in range(a) if self.known[a] > 1 and self.known[b] > 1
            ),
            default=math.nan,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class LevelRows:
    """A categorical column by group: how many rows of each group have each level."""

    name: str
    levels: tuple[Any, ...]
    counts: Array

    def test(self) -> tuple[str, float]:
        """Return the name of a test that levels and groups are independent, and its p value.

        It is Pearson's χ² without a correction, and for two levels and two groups Fisher's where an expected count is
        below 5.
        """
        from scipy import stats

        cells = self.counts[self.counts.sum(axis=1) > 0][:, self.counts.sum(axis=0) > 0]
        if min(cells.shape) < 2:
            return "", math.nan
        found = stats.chi2_contingency(cells, correction=False)
        if cells.shape == (2, 2) and found.expected_freq.min() < FEW_EXPECTED:
            return "Fisher", float(stats.fisher_exact(cells).pvalue)
        return "χ²", float(found.pvalue)

    def difference(self) -> float:
        """Return the largest standardised difference of two groups (Yang and Dalton 2012)."""
        totals = self.counts.sum(axis=0)
        shares = self.counts / np.where(totals > 0, totals, 1)
        groups = [g for g in range(len(totals)) if totals[g] > 0]
        return max((_mahalanobis(shares[1:, a], shares[1:, b]) for a in groups for b in groups if b < a),
                   default=math.nan)  # fmt: skip


@dataclasses.dataclass(frozen=True, repr=False)
class TableOne(TextTable):
    """The first table of a paper; ``print`` shows it, and so does a notebook.

    Attributes
    ----------
    by, groups
        The column that makes groups, and its levels; None and ``("all",)`` without.
    rows
        The rows of each group.
    columns
        A :class:`NumberRow` or :class:`LevelRows` for each column.
    withheld
        Columns that some sites do not report, with the number of these: the table has the rows of the others there.
    notes
        What else is said below.
    """

    by: str | None
    groups: tuple[Any, ...]
    rows: Array
    columns: tuple[NumberRow | LevelRows, ...]
    withheld: dict[str, int]
    notes: tuple[str, ...] = ()

    def _lines(self) -> list[list[str]]:
        """Return all lines as cells."""
        several = len(self.groups) > 1
        made = [["rows", *(f"{int(n):,}" for n in self.rows), *(["", "", ""] if several else [])]]
        for one in self.columns:
            test, p = one.test() if several else ("", math.nan)
            tests = [format_p(p), test, format_number(one.difference())] if several else []
            made += _number_lines(one, tests) if isinstance(one, NumberRow) else _level_lines(one, tests)
            missing = self.rows - (one.known if isinstance(one, NumberRow) else one.counts.sum(axis=0))
            if missing.any() and one.name not in self.withheld:
                made.append(["  missing", *(f"{int(n):,}" for n in missing), *[""] * len(tests)])
        return made

    def _grid(self) -> list[list[str]]:
        tests = ["p", "test", "SMD"] if len(self.groups) > 1 else []
        return [["" if self.by is None else self.by, *map(str, self.groups), *tests], *self._lines()]

    def _remarks(self) -> list[str]:
        remarks = [f"{name}: without the rows of {sites} site{'s' * (sites > 1)}, which would tell few rows"
                   for name, sites in self.withheld.items()]  # fmt: skip
        if len(self.groups) > 1:
            remarks.append("tests: Welch's of means, χ² of levels, Fisher's where counts are small")
            remarks.append("SMD: the largest standardised difference of two groups")
        for one in self.columns:
            if isinstance(one, NumberRow) and one.ranks is not None:
                low, high = format_p(one.ranks.least), format_p(one.ranks.largest)
                told = "" if low == high else f", between {low} and {high} with exact ranks"
                remarks.append(f"{one.name}: {one.ranks.name}'s p of values in cells{told}")
        return [*remarks, *self.notes]

    def frame(self) -> Any:
        """Return the texts as a data frame of pandas."""
        import pandas

        headings, *lines = self._grid()
        return pandas.DataFrame([line[1:] for line in lines], index=[line[0].strip() for line in lines],
                                columns=headings[1:])  # fmt: skip


def _number_lines(one: NumberRow, tests: list[str]) -> list[list[str]]:
    cells = [f"{format_number(m)} ({format_number(s)})" if n else "" for n, m, s in
             zip(one.known, one.means, one.deviations, strict=True)]  # fmt: skip
    lines = [[f"{one.name}, mean (deviation)", *cells, *tests]]
    if one.quartiles is not None:
        texts = ["; ".join(map(_between, found)) if found else "" for found in one.quartiles]
        ranked = [] if one.ranks is None or not tests else [format_p(one.ranks.p), one.ranks.name, ""]
        lines.append(["  quartiles", *texts, *(ranked or [""] * len(tests))])
    return lines


def _between(ends: tuple[float, float]) -> str:
    """Write a quantile with the digits that its bounds share, or the bounds."""
    low, high = ends
    if low == high:
        return format_number(low)
    return f"{format_number(low)} to {format_number(high)}"


def _level_lines(one: LevelRows, tests: list[str]) -> list[list[str]]:
    totals = one.counts.sum(axis=0)
    lines = [[f"{one.name}, rows (%)", *[""] * len(totals), *tests]]
    for level, counts in zip(one.levels, one.counts, strict=True):
        cells = [
            f"{int(n):,} ({100 * n / total:.1f})" if total else "" for n, total in zip(counts, totals, strict=True)
        ]
        lines.append([f"  {level}", *cells, *[""] * len(tests)])
    return lines


def _standardise(difference: float, variance: float) -> float:
    return abs(float(difference)) / math.sqrt(variance) if variance > 0 else 0.0 if difference == 0 else math.inf


def _mahalanobis(a: Array, b: Array) -> float:
    """Return the standardised difference of the shares of levels of two groups, the first level excluded."""
    spread = (np.diag(a) - np.outer(a, a) + np.diag(b) - np.outer(b, b)) / 2.0
    gap = a - b
    return math.sqrt(max(float(gap @ np.linalg.pinv(spread, hermitian=True) @ gap), 0.0))


def _welch(n: Array, mean: Array, variance: Array) -> tuple[str, float]:
    """Return Welch's test of equal means: t for two groups, F for more."""
    from scipy import stats

    weights = n / variance
    total = float(weights.sum())
    centre = float(weights @ mean) / total
    k = len(n)
    spread = float((((1.0 - weights / total) ** 2) / (n - 1)).sum())
    statistic = float(weights @ (mean - centre) ** 2) / (k - 1) / (1.0 + 2.0 * (k - 2) / (k**2 - 1) * spread)
    p = float(stats.f.sf(statistic, k - 1, (k**2 - 1) / (3.0 * spread)))
    return ("Welch's t" if k == 2 else "Welch's F"), p


def find_quantile(least: Array, most: Array, total: int, edges: Sequence[float], share: float) -> tuple[float, float]:
    """Return two numbers between which the quantile of a column lies, from counts of rows below edges.

    >>> find_quantile(np.array([0, 4, 9]), np.array([0, 4, 9]), 10, [0.0, 1.0, 2.0], 0.5)
    (1.0, 2.0)
    """
    wanted = share * total
    below = np.flatnonzero(most < wanted)
    above = np.flatnonzero(least >= wanted)
    return (
        float(edges[below[-1]]) if below.size else -math.inf,
        float(edges[above[0]]) if above.size else math.inf,
    )
