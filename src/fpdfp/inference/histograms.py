"""Histograms that sites make of scores and residuals: counts that are large enough, or none, and that add up."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, RefusalError


@dataclass(frozen=True)
class Cells:
    """Sums over cells; those with the same cells add up, and other cells are joined.

    A cell has the values from ``lower`` to below ``upper``.
    """

    lower: Array
    upper: Array

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        if self.lower.ndim != 1 or self.lower.shape != self.upper.shape or not (self.lower < self.upper).all():
            raise ArgumentError("upper", "must have a number above each of lower")
        for name in self._columns():
            column = _checks.float_array(name, getattr(self, name), shape=self.lower.shape, dtype=np.float64)
            object.__setattr__(self, name, column)

    @classmethod
    def _columns(cls) -> list[str]:
        return [field.name for field in fields(cls) if field.name not in ("lower", "upper")]

    def __add__(self, other: Self) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        both = np.stack([np.concatenate([self.lower, other.lower]), np.concatenate([self.upper, other.upper])])
        cells, places = np.unique(both, axis=1, return_inverse=True)
        sums: Any = {
            name: np.bincount(places.ravel(), np.concatenate([getattr(self, name), getattr(other, name)]))
            for name in self._columns()
        }
        return replace(self, lower=cells[0], upper=cells[1], **sums)

    def __radd__(self, other: object) -> Self:
        if other == 0:  # where sum() begins
            return self
        return NotImplemented


@dataclass(frozen=True)
class ScoreHistogram(Cells):
    """The number of rows that with an event, and without, have a predicted chance in each cell, or a linear predictor.

    Parameters
    ----------
    lower, upper
        Of the cells, shape (k,).
    positives, negatives
        Rows with an event and without, shape (k,); where rows have weights, the sums of these.
    predicted
        The sum of the chances in each cell, times the weights, shape (k,).
    rows
        The rows in each cell, whatever their weight, shape (k,).
    """

    positives: Array
    negatives: Array
    predicted: Array
    rows: Array

    @property
    def weight(self) -> Array:
        """The weight of the rows in each cell."""
        weight: Array = self.positives + self.negatives
        return weight


@dataclass(frozen=True)
class ResidualHistogram(Cells):
    """The number of rows that have a residual in each cell.

    Parameters
    ----------
    lower, upper
        Of the cells, shape (k,); the first and the last may be infinite.
    counts
        Rows, shape (k,).
    """

    counts: Array

    def quantile(self, level: float) -> tuple[float, float]:
        """Return two numbers between which the quantile lies.

        >>> made = residual_histogram([-1.5, -0.2, 0.1, 0.3, 2.2], [-3.0, -1.0, 0.0, 1.0, 3.0])
        >>> made.quantile(0.5)
        (0.0, 1.0)
        """
        if not 0.0 <= _checks.real("level", level) <= 1.0:
            raise ArgumentError("level", f"must be from 0 to 1, got {level:g}")
        rows = self.counts.sum()
        if not rows:
            raise ArgumentError("counts", "must count at least one row")
        # That of the empirical distribution: the smallest residual that this many do not exceed. It is between those of
        # all rows at the lower limits of their cells, and at the upper.
        needed = max(np.ceil(level * rows * (1.0 - 1e-12)), 1.0)
        found = []
        for limits in (self.lower, self.upper):
            order = np.argsort(limits, kind="stable")
            found.append(float(limits[order][np.searchsorted(np.cumsum(self.counts[order]), needed)]))
        return found[0], found[1]

    def summary(self) -> dict[str, tuple[float, float]]:
        """Return limits of the quartiles and of the 5 % and 95 % quantiles; extremes are single rows'."""
        return {f"{100 * level:g} %": self.quantile(level) for level in (0.05, 0.25, 0.5, 0.75, 0.95)}


def score_histogram(scores: Any, outcomes: Any, edges: Any = None, *, least: int = 0) -> ScoreHistogram:
    """Return the histogram of a site: what a site calls.

    Parameters
    ----------
    scores
        The predicted chance of each row.
    outcomes
        1 for rows with an event, 0 for others.
    edges
        From 0 to 1; None for the edges of :func:`chance_edges`.
    least
        Every count is at least this, or 0: neighbouring cells are put together until it is so.

    Raises
    ------
    RefusalError
        If even all cells together have too few rows with an event, or without.

    Examples
    --------
    >>> made = score_histogram([0.1, 0.2, 0.3, 0.9], [0, 0, 1, 1], [0.0, 0.25, 0.5, 0.75, 1.0], least=2)
    >>> made.upper.tolist(), made.positives.tolist(), made.negatives.tolist()
    ([0.25, 1.0], [0.0, 2.0], [2.0, 0.0])
    """
    chance = _checks.float_array("scores", scores, dtype=np.float64)
    if chance.ndim != 1 or ((chance < 0) | (chance > 1)).any():
        raise ArgumentError("scores", "must have one chance from 0 to 1 for each row")
    events = _checks.float_array("outcomes", outcomes, shape=chance.shape, dtype=np.float64)
    if not np.isin(events, (0.0, 1.0)).all():
        raise ArgumentError("outcomes", "must be 0 or 1")
    cuts = chance_edges() if edges is None else check_edges(edges)
    if cuts[0] != 0 or cuts[-1] != 1:
        raise ArgumentError("edges", f"must begin with 0 and end with 1, got {cuts[0]:g} and {cuts[-1]:g}")
    cell = _cells(chance, cuts)
    count = len(cuts) - 1
    positives, rows = np.bincount(cell, events, count), np.bincount(cell, minlength=count)
    starts = merge_small(np.stack([positives, rows - positives]), least)
    given = (positives, rows - positives, np.bincount(cell, chance, count), rows)
    columns = [np.add.reduceat(one, starts) for one in given]
    return ScoreHistogram(cuts[starts], cuts[[*starts[1:], count]], *columns)


def residual_histogram(residuals: Any, edges: Any = None, *, least: int = 0) -> ResidualHistogram:
    """Return the histogram of a site's residuals: what a site calls.

    Parameters
    ----------
    residuals
        Of each row, as deviance residuals.
    edges
        None for steps of 0.1 from −5 to 5, and all beyond them.
    least
        Every count is at least this, or 0: neighbouring cells are put together until it is so.
    """
    values = _checks.float_array("residuals", residuals, dtype=np.float64)
    if values.ndim != 1:
        raise ArgumentError("residuals", f"must have one for each row, got shape {values.shape}")
    usual = np.concatenate([[-np.inf], np.arange(-50, 51) / 10, [np.inf]])
    cuts = usual if edges is None else check_edges(edges)
    if len(values) and not cuts[0] <= values.min() <= values.max() <= cuts[-1]:
        raise ArgumentError("edges", "must include all residuals: the first and the last may be infinite")
    counts = np.bincount(_cells(values, cuts), minlength=len(cuts) - 1)
    starts = merge_small(counts[None], least)
    return ResidualHistogram(cuts[starts], cuts[[*starts[1:], len(counts)]], np.add.reduceat(counts, starts))


def chance_edges(count: int = 200) -> Array:
    """Return edges from 0 to 1 that are evenly spaced in the log-odds from −8 to 8, so that rare events are resolved.

    >>> chance_edges(4).round(3).tolist()
    [0.0, 0.018, 0.5, 0.982, 1.0]
    """
    count = _checks.integer("count", count, at_least=1)
    inner = 1.0 / (1.0 + np.exp(-np.linspace(-8.0, 8.0, count + 1)[1:-1]))
    return np.concatenate([[0.0], inner, [1.0]])


def check_edges(edges: Any) -> Array:
    """Return edges of cells as an array; refuse those that do not increase."""
    array = np.asarray(edges, dtype=np.float64)
    if array.ndim != 1 or len(array) < 2 or not (np.diff(array) > 0).all() or np.isinf(array[1:-1]).any():
        raise ArgumentError("edges", "must be at least two increasing numbers, of which only the outer may be infinite")
    return array


def _cells(values: Array, edges: Array) -> Array:
    """Return the cell of each value; the last edge belongs to the last cell."""
    cells: Array = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return cells


def hold_one_number(lower: Array, upper: Array) -> Array:
    """Return whether there is one number of float64 alone in each cell.

    >>> hold_one_number(np.array([0.0, 1.0]), np.array([5e-324, 1.1])).tolist()
    [True, False]
    """
    with np.errstate(over="ignore"):
        found: Array = np.nextafter(lower, np.inf) >= upper
    return found


def merge_small(counts: Array, least: int) -> list[int]:
    """Return where larger cells begin, in each of which every row of counts is at least ``least``, or 0.

    >>> merge_small(np.array([[1, 2, 0, 4], [3, 0, 0, 0]]), 3)
    [0, 2, 3]
    """
    least = _checks.integer("least", least, at_least=0)

    def allowed(sums: Array) -> bool:
        return bool(((sums == 0) | (sums >= least)).all())

    if not allowed(counts.sum(axis=1)):
        raise RefusalError(f"fewer than {least} rows of a kind: no histogram of them is made")
    starts, sums = [0], counts[:, 0]
    for place in range(1, counts.shape[1]):
        if allowed(sums):
            starts.append(place)
            sums = counts[:, place]
        else:
            sums = sums + counts[:, place]
    # What is left over at the end goes to the cells before it, until these are large enough.
    while not allowed(counts[:, starts[-1] :].sum(axis=1)):
        starts.pop()
    return starts
