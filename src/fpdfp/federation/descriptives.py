"""Questions of a first table: counts, means and deviations of columns by group, and histograms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.question import Question, question, reveals
from fpdfp.errors import MessageError
from fpdfp.formula.evaluation import codes
from fpdfp.formula.tree import Coded

#: Between the edges of a histogram is a tenth of a deviation, rounded to one digit; they cover COVERED deviations.
STEPS, COVERED = 10, 5
#: At most so many edges a histogram has.
MOST_EDGES = 500


@dataclasses.dataclass(frozen=True)
class Descriptions:
    """Sums by group; sums over sites add up.

    Attributes
    ----------
    rows
        The rows of each group.
    ungrouped
        The rows that have no group.
    known, means, scatters
        Shape (columns, groups): in how many rows a column has a value, their mean, and Σ (x − mean)².
    counts
        For each factor the rows of each level and group, shape (levels, groups).
    withheld
        For each column, and after these for each factor, how many sites withhold it; their numbers are zeros.
    """

    rows: IntArray
    ungrouped: int
    known: IntArray
    means: Array
    scatters: Array
    counts: list[IntArray]
    withheld: IntArray

    def __add__(self, other: Descriptions) -> Descriptions:
        """Return the sums of the rows of both."""
        known = self.known + other.known
        share = np.divide(other.known, known, out=np.zeros(known.shape), where=known > 0)
        apart = other.means - self.means
        return Descriptions(
            self.rows + other.rows,
            self.ungrouped + other.ungrouped,
            known,
            np.where(self.known > 0, self.means + share * apart, other.means),
            self.scatters + other.scatters + np.where(self.known > 0, self.known * share * apart**2, 0.0),
            [a + b for a, b in zip(self.counts, other.counts, strict=True)],
            self.withheld + other.withheld,
        )

    def withhold(self, places: Sequence[int]) -> Descriptions:
        """Return the same without some columns, and factors after these."""
        sums = {name: getattr(self, name).copy() for name in ("known", "means", "scatters", "withheld")}
        counts, columns = list(self.counts), len(self.known)
        for place in places:
            sums["withheld"][place] = 1
            if place >= columns:
                counts[place - columns] = np.zeros_like(counts[place - columns])
            else:
                sums["known"][place] = sums["means"][place] = sums["scatters"][place] = 0
        return dataclasses.replace(self, counts=counts, **sums)

    def coarsen(self, fewest: int) -> Descriptions:
        """Return the same without factors that have a level of fewer rows in some group."""
        few = [bool(((cells > 0) & (cells < fewest)).any()) for cells in self.counts]
        return self.withhold([len(self.known) + place for place, one in enumerate(few) if one])


@question("description")
@dataclasses.dataclass(frozen=True)
class DescriptionQuestion(Question):
    """Counts, means and deviations of columns and counts of levels, over all rows or in each level of a column."""

    columns: tuple[str, ...]
    factors: tuple[Coded, ...] = ()
    by: Coded | None = None

    reveals = reveals("table", designs="columns factors by", uses="summarise")
    answers = Descriptions

    def answer(self, table: Any) -> Any:
        """Return what the table has."""
        return table.summarise(self.columns, self.factors, self.by)

    def check(self, answer: Any) -> None:
        """Refuse sums of other columns, and counts that cannot be."""
        groups = 1 if self.by is None else len(self.by.levels)
        shape = (len(self.columns), groups)
        if answer.rows.shape != (groups,) or any(
            one.shape != shape for one in (answer.known, answer.means, answer.scatters)
        ):
            raise MessageError(f"a description must be of {shape[0]} columns in {groups} groups")
        if [one.shape for one in answer.counts] != [(len(one.levels), groups) for one in self.factors]:
            raise MessageError("a description must have a count for each level and group")
        counts = [answer.known, *answer.counts]
        if answer.rows.min(initial=0) < 0 or answer.ungrouped < 0 or any(
            (one < 0).any() or (one > answer.rows).any() for one in counts
        ):  # fmt: skip
            raise MessageError("a description must have counts from 0 to the rows of each group")
        if (
            answer.withheld.shape != (len(self.columns) + len(self.factors),)
            or not np.isin(answer.withheld, (0, 1)).all()
        ):
            raise MessageError("a description must have 0 or 1 for each column and factor")
        if not (np.isfinite(answer.means).all() and (answer.scatters >= 0).all()):
            raise MessageError("a description must have finite means, and sums of squares of at least 0")


@dataclasses.dataclass(frozen=True)
class Histograms:
    """In how many rows columns are below edges, by group; sums over sites add up.

    Attributes
    ----------
    least, most
        For each column, shape (groups, edges): between these the number of rows is that are at most the edge. They are
        the same where a site tells the count, and otherwise those of the nearest edges at which it does.
    totals
        In how many rows each column has a value, shape (columns, groups).
    """

    least: list[IntArray]
    most: list[IntArray]
    totals: IntArray

    def coarsen(self, fewest: int) -> Histograms:
        """Return the same such that no two edges that differ have fewer rows between them, but for none.

        >>> counts = np.array([[1, 2, 5, 5, 9]])
        >>> coarse = Histograms([counts], [counts], np.array([[9]])).coarsen(3)
        >>> coarse.least[0].tolist(), coarse.most[0].tolist()
        ([[0, 0, 5, 5, 9]], [[5, 5, 5, 5, 9]])
        """
        least, most = [], []
        for below, above, totals in zip(self.least, self.most, self.totals, strict=True):
            same = below == above  # what is not told here already stays so
            low, high = np.zeros_like(below), np.zeros_like(below)
            for group, (row, total) in enumerate(zip(below, totals.tolist(), strict=True)):
                told, last = np.zeros(len(row), dtype=bool), 0
                for place, count in enumerate(row.tolist()):
                    near = 0 < count - last < fewest or 0 < total - count < fewest
                    if same[group, place] and not near:
                        told[place], last = True, count
                known = np.where(told, row, -1)
                low[group] = np.maximum(np.maximum.accumulate(known), 0)
                after = np.where(told, row, total)
                high[group] = np.minimum.accumulate(after[::-1])[::-1]
            least.append(low)
            most.append(high)
        return Histograms(least, most, self.totals)


@question("histogram")
@dataclasses.dataclass(frozen=True)
class HistogramQuestion(Question):
    """In how many rows columns are at most as large as given edges, over all rows or in each level of a column.

    With ``fewest`` the cells between edges have at least this number of rows, also where a policy allows fewer.
    """

    columns: tuple[str, ...]
    edges: list[Array]
    by: Coded | None = None
    fewest: int = 1

    reveals = reveals("table", designs="columns by", settings="edges fewest", uses="count_below")
    answers = Histograms

    def __post_init__(self) -> None:
        if len(self.edges) != len(self.columns):
            raise MessageError("a histogram must have edges for each column")
        for one in self.edges:
            if (
                one.ndim != 1
                or not 1 <= len(one) <= MOST_EDGES
                or not np.isfinite(one).all()
                or (np.diff(one) <= 0).any()
            ):
                raise MessageError(f"edges must be 1 to {MOST_EDGES} finite numbers that increase")

    def answer(self, table: Any) -> Any:
        """Return what the table has."""
        return table.count_below(self.columns, self.edges, self.by).coarsen(max(self.fewest, 1))

    def add_up(self, sent: Any, places: IntArray, times: Array | None = None) -> Histograms:
        """Return the sums over sites."""
        least, most = ([sum(parts) for parts in zip(*one, strict=True)] for one in
                       ((part.least for part in sent), (part.most for part in sent)))  # fmt: skip
        return Histograms(least, most, sum(part.totals for part in sent))

    def check(self, answer: Any) -> None:
        """Refuse counts of other columns and edges, and such as cannot be."""
        groups = 1 if self.by is None else len(self.by.levels)
        wanted = [(groups, len(one)) for one in self.edges]
        if [one.shape for one in answer.least] != wanted or [one.shape for one in answer.most] != wanted:
            raise MessageError("a histogram must have counts for each edge and group")
        if answer.totals.shape != (len(self.columns), groups):
            raise MessageError("a histogram must have the rows of each column and group")
        for low, high, total in zip(answer.least, answer.most, answer.totals, strict=True):
            rising = (np.diff(low, axis=1) >= 0).all() and (np.diff(high, axis=1) >= 0).all()
            if not rising or (low < 0).any() or (low > high).any() or (high > total[:, None]).any():
                raise MessageError("a histogram must have counts that increase, from 0 to the rows")


def group_rows(table: Any, by: Coded | None) -> tuple[IntArray, int]:
    """Return the number of each row's group, −1 for none, and how many groups there are."""
    if by is None:
        return np.zeros(len(table), dtype=np.int64), 1
    return codes(by.coded, by.levels, table), len(by.levels)


def summarise(table: Any, columns: Sequence[str], factors: Sequence[Coded], by: Coded | None) -> Descriptions:
    """Return what a table has of some columns, by group."""
    group, groups = group_rows(table, by)
    inside = group >= 0
    shape = (len(columns), groups)
    known, means, scatters = np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros(shape)
    for i, name in enumerate(columns):
        for g, values in enumerate(values_of(table, name, group, groups)):
            known[i, g] = len(values)
            if len(values):
                means[i, g] = values.mean()
                scatters[i, g] = np.square(values - means[i, g]).sum()
    counts = []
    for factor in factors:
        level = codes(factor.coded, factor.levels, table)
        some = inside & (level >= 0)
        cells = np.bincount(level[some] * groups + group[some], minlength=len(factor.levels) * groups)
        counts.append(cells.astype(np.int64).reshape(-1, groups))
    rows = np.bincount(group[inside], minlength=groups).astype(np.int64)
    withheld = np.zeros(len(columns) + len(factors), dtype=np.int64)
    return Descriptions(rows, int((~inside).sum()), known, means, scatters, counts, withheld)


def values_of(table: Any, name: str, group: IntArray, groups: int) -> list[Array]:
    """Return the values that a column has in each group."""
    found = table.values(name)
    return [found.numbers[(group == g) & ~found.missing] for g in range(groups)]


def count_below(table: Any, columns: Sequence[str], edges: Sequence[Array], by: Coded | None) -> Histograms:
    """Return in how many rows columns are at most as large as edges, by group."""
    group, groups = group_rows(table, by)
    counts, totals = [], np.zeros((len(columns), groups), dtype=np.int64)
    for i, (name, grid) in enumerate(zip(columns, edges, strict=True)):
        parts = [np.sort(values) for values in values_of(table, name, group, groups)]
        totals[i] = [len(one) for one in parts]
        counts.append(np.stack([np.searchsorted(one, grid, "right") for one in parts]).astype(np.int64))
    return Histograms(counts, counts, totals)


def find_edges(total: Descriptions, whole: Sequence[bool]) -> list[Array]:
    """Return the edges of histograms, the same whatever groups there are: whole numbers have a cell each, if few."""
    edges = []
    for known, means, scatters, integer in zip(total.known, total.means, total.scatters, whole, strict=True):
        n = int(known.sum())
        mean = float(known @ means) / max(n, 1)
        variance = float(scatters.sum() + known @ (means - mean) ** 2) / max(n - 1, 1)
        deviation = math.sqrt(variance) or max(abs(mean), 1.0)
        step = 10.0 ** math.floor(math.log10(deviation / STEPS))
        step *= max(one for one in (1.0, 2.0, 5.0) if one * step <= deviation / STEPS * (1 + 1e-9))
        if integer and 2 * COVERED * deviation + 2 <= MOST_EDGES:
            step = 1.0
        first, last = math.floor((mean - COVERED * deviation) / step), math.ceil((mean + COVERED * deviation) / step)
        edges.append(np.round(np.arange(first, last + 1) * step, max(0, -math.floor(math.log10(step)))))
    return edges
