"""Histograms that a site sends of a model's predictions and residuals: counts in cells of public grids.

Cells are sent by their numbers, and only those that hold rows. What a site's policy says about small counts is done in
:meth:`coarsen`: then no count is below the least one.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.inference.histograms import ResidualHistogram, ScoreHistogram, merge_small

#: Cells of the linear predictor, of equal width between −REACH and REACH (on the scale of log-odds), and one beyond
#: each end.
REACH, CELLS = 8.0, 16384
#: Where few cells are enough, each has at least a 24th of the rows, or a quarter of those of the rarer outcome if that
#: is less.
FEW_CELLS, FEW_OF_RARER = 24, 4
#: Residuals from −5 to 5 in steps of 0.1, and those beyond.
RESIDUAL_EDGES = np.arange(-50, 51) / 10


def predictor_edges() -> Array:
    """Return the edges of the grid of linear predictors."""
    return np.linspace(-REACH, REACH, CELLS + 1)


@dataclasses.dataclass(frozen=True)
class PredictorCounts:
    """Rows with an event, and without, by cells of the linear predictor.

    Attributes
    ----------
    factor
        How many cells of the grid are one here, a power of 2.
    first, last
        The numbers of the first and the last of these that each cell here has; 0 is below the grid.
    events, others
        Rows with an event and without in each; a row whose outcome is a share counts as both.
    weights
        The weights of these, of shape (2, k); (2, 0) where every row counts 1.
    squares
        The sums of squares of both weights.
    predicted
        The sum of the predicted chances in each cell, times the weights, in single precision.
    trials
        Whether outcomes are shares of trials, so that weights are what is counted.
    """

    factor: int
    first: Array
    last: Array
    events: Array
    others: Array
    weights: Array
    squares: Array
    predicted: Array
    trials: bool = False

    def __post_init__(self) -> None:
        k = len(self.first)
        shapes = {name: getattr(self, name).shape for name in ("first", "last", "events", "others", "predicted")}
        if set(shapes.values()) != {(k,)} or self.weights.shape not in ((2, k), (2, 0)) or self.squares.shape != (2,):
            raise ArgumentError("first", f"must have a number for each cell, as all others, got {shapes}")
        if self.factor < 1 or CELLS % self.factor:
            raise ArgumentError("factor", f"must divide {CELLS}")
        most = CELLS // self.factor + 1
        if k and not (self.first.min() >= 0 and (self.first <= self.last).all() and self.last.max() <= most):
            raise ArgumentError("first", f"must be the numbers of cells from 0 to {most}")
        if any(one.min(initial=0) < 0 for one in (self.events, self.others, self.weights, self.squares)):
            raise ArgumentError("events", "must be at least 0, as all counts and weights")

    @classmethod
    def of(cls, eta: Array, y: Array, weights: Array | None, chances: Array) -> PredictorCounts:
        """Return the counts of rows with linear predictors eta and outcomes y."""
        cell, size = np.searchsorted(predictor_edges(), eta, side="right"), CELLS + 2
        w = np.ones(len(y)) if weights is None else weights
        trials = bool(((y > 0) & (y < 1)).any())
        both = (w * y, w * (1.0 - y))
        events, others = (np.bincount(cell[one], minlength=size) for one in (y > 0, y < 1))
        filled = np.flatnonzero(events + others)
        own = [np.bincount(cell, one, size)[filled] for one in both]
        return cls(
            1, shorten(filled), shorten(filled), shorten(events[filled]), shorten(others[filled]),
            np.array(own) if weights is not None or trials else np.zeros((2, 0)),
            np.array([float((one**2).sum()) for one in both]),
            np.bincount(cell, w * chances, size)[filled].astype(np.float32), trials,
        )  # fmt: skip

    @property
    def least_of_few(self) -> int:
        """How many rows a cell must have where a curve of few cells is enough."""
        sums = [int(one.sum(dtype=np.int64)) for one in (self.events, self.others)]
        return min(sum(sums) // FEW_CELLS, min(sums) // FEW_OF_RARER)

    def coarsen(self, least: int) -> PredictorCounts:
        """Return wider cells: on average ``least`` rows or more in those that hold some, and no count below that but 0.

        Rows with an event, and others, have cells of their own then. The predicted chances of a cell of the grid are
        divided between them as its rows are.

        Raises
        ------
        RefusalError
            If there are fewer rows with an event, or without, in all.
        """
        _checks.integer("least", least, at_least=0)
        if self.factor > 1:
            raise ArgumentError("factor", "must be 1: cells are wide already")
        if least < 2 or not len(self.first):
            return self
        rows = int(max(self.events.sum(dtype=np.int64), self.others.sum(dtype=np.int64)))
        factor = 1
        while factor < CELLS and len(np.unique(_widen(self.first, factor))) * least > rows:
            factor *= 2
        # Cells of the grid are put together by twos, fours and so on, the same for all sites; and then neighbours, of
        # rows with an event and of others each by themselves: so cells are no wider than they must be.
        size = CELLS // factor + 2
        group = _widen(self.first, factor)
        own = self.weights if self.weights.size else np.stack([self.events, self.others]).astype(np.float64)
        share = np.divide(own, own.sum(axis=0), out=np.zeros(own.shape), where=own.sum(axis=0) > 0)
        parts = []
        for place, counts in enumerate((self.events, self.others)):
            columns = [np.bincount(group, one, size) for one in (counts, own[place], share[place] * self.predicted)]
            starts = merge_small(columns[0][None], least)
            stops = np.array([*starts[1:], size]) - 1
            sums, weight, predicted = (np.add.reduceat(one, starts) for one in columns)
            kept, zero = sums > 0, np.zeros(len(sums))
            told = (sums, zero, weight, zero) if place == 0 else (zero, sums, zero, weight)
            parts.append([one[kept] for one in (np.array(starts), stops, *told, predicted)])
        first, last, events, others, positive, negative, chances = map(np.concatenate, zip(*parts, strict=True))
        return dataclasses.replace(
            self, factor=factor, first=shorten(first), last=shorten(last), events=shorten(events),
            others=shorten(others), weights=np.stack([positive, negative]) if self.weights.size else self.weights,
            predicted=chances.astype(np.float32),
        )  # fmt: skip

    def histogram(self) -> ScoreHistogram:
        """Return the cells with their limits, which add up over sites."""
        limits = np.concatenate([[-np.inf], predictor_edges()[:: self.factor], [np.inf]])
        own = self.weights if self.weights.size else np.stack([self.events, self.others]).astype(np.float64)
        rows = own.sum(axis=0) if self.trials else (self.events.astype(np.float64) + self.others)
        lower, upper = limits[self.first], limits[self.last.astype(np.int64) + 1]
        return ScoreHistogram(lower, upper, own[0], own[1], self.predicted, rows)


def _widen(cells: Array, factor: int) -> Array:
    """Return the numbers of cells that are a given number of of the grid; those beyond its ends stay by themselves."""
    return np.asarray(-(-cells.astype(np.int64) // factor))


@dataclasses.dataclass(frozen=True)
class ResidualCounts:
    """Rows by cells of their residual; ``first`` and ``last`` are numbers of cells, from 0 below −5."""

    first: Array
    last: Array
    counts: Array

    def __post_init__(self) -> None:
        k, most = len(self.first), len(RESIDUAL_EDGES)
        if not self.first.shape == self.last.shape == self.counts.shape == (k,):
            raise ArgumentError("first", "must have a number for each cell, as all others")
        if k and not (self.first.min() >= 0 and (self.first <= self.last).all() and self.last.max() <= most):
            raise ArgumentError("first", f"must be the numbers of cells from 0 to {most}")

    @classmethod
    def of(cls, residuals: Array) -> ResidualCounts:
        """Return the counts of residuals."""
        cell = np.searchsorted(RESIDUAL_EDGES, residuals, side="right")
        counts = np.bincount(cell, minlength=len(RESIDUAL_EDGES) + 1)
        filled = np.flatnonzero(counts)
        return cls(shorten(filled), shorten(filled), shorten(counts[filled]))

    def coarsen(self, least: int) -> ResidualCounts:
        """Return wider cells, without counts below ``least`` but 0; raise RefusalError if all rows are fewer."""
        if least < 2 or not len(self.first):
            return self
        counts = np.bincount(self.first, self.counts, len(RESIDUAL_EDGES) + 1)
        starts = merge_small(counts[None], least)
        stops = np.array([*starts[1:], len(counts)]) - 1
        sums = np.add.reduceat(counts, starts)
        kept = sums > 0
        return ResidualCounts(shorten(np.array(starts)[kept]), shorten(stops[kept]), shorten(sums[kept]))

    def histogram(self) -> ResidualHistogram:
        """Return the cells with their limits, which add up over sites."""
        limits = np.concatenate([[-np.inf], RESIDUAL_EDGES, [np.inf]])
        return ResidualHistogram(limits[self.first], limits[self.last.astype(np.int64) + 1], self.counts)


def shorten(counts: Array) -> Array:
    """Return counts as integers of few bits.

    >>> shorten(np.array([3.0, 200.0])).dtype, shorten(np.array([70000])).dtype
    (dtype('uint8'), dtype('int32'))
    """
    return counts.astype(np.uint8 if counts.max(initial=0) < 256 else np.int32)
