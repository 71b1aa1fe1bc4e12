"""Harrell's concordance between risks and times, as sums over sites."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError
from fpdfp.survival.response import Times

#: Risks that agree in this many digits after the point are the same, whatever rounding says.
DIGITS = 10


@dataclasses.dataclass(frozen=True)
class Concordance:
    """Pairs of rows of which one has an event while the other is at risk; pairs of several sites add up.

    Attributes
    ----------
    concordant, discordant, tied
        The weight of the pairs in which the row with the event has the higher risk, the lower risk, and the same.
    squares
        Over rows, with a the concordant pairs of a row plus half of its tied ones, and b all its pairs: the sums of a²,
        ab and b², from which the error follows. With clusters a and b belong to all rows of one.
    rows
        How many rows there are.
    """

    concordant: float
    discordant: float
    tied: float
    squares: Array
    rows: int

    def __post_init__(self) -> None:
        if self.squares.shape != (3,):
            raise ArgumentError("squares", f"must be three numbers, got shape {self.squares.shape}")

    def __add__(self, other: Concordance) -> Concordance:
        """Return the sums of two sites, or strata: no pair has a row of each."""
        return Concordance(
            self.concordant + other.concordant,
            self.discordant + other.discordant,
            self.tied + other.tied,
            self.squares + other.squares,
            self.rows + other.rows,
        )

    @property
    def pairs(self) -> float:
        """The weight of all pairs."""
        return self.concordant + self.discordant + self.tied

    @property
    def index(self) -> float:
        """The share of concordant pairs, with tied ones counted half; NaN without pairs."""
        return (self.concordant + self.tied / 2.0) / self.pairs if self.pairs else float("nan")

    @property
    def error(self) -> float:
        """Its standard error, by the infinitesimal jackknife over rows, or over clusters of rows."""
        if not self.pairs:
            return float("nan")
        c = self.index
        aa, ab, bb = map(float, self.squares)
        return float(np.sqrt(max(aa - 2.0 * c * ab + c * c * bb, 0.0))) / self.pairs

    def __str__(self) -> str:
        return f"concordance {self.index:.4f} (standard error {self.error:.4f}, {self.pairs:g} pairs)"

    @staticmethod
    def of(rows: Times, risk: Any, *, strata: Any = None, weights: Any = None, clusters: Any = None) -> Concordance:
        """Return the sums of the rows of one site; it takes as long as sorting.

        A row with an event is compared with those at risk then: they have entered before, and leave later, or at the
        same time without an event. Rows of different strata are not compared. ``clusters`` are labels of rows that
        belong together, of one subject for instance: the error takes clusters for independent, rather than rows.

        >>> rows = Times.of([1.0, 2.0, 3.0, 4.0], [1, 1, 0, 1])
        >>> Concordance.of(rows, [3.0, 1.0, 2.0, 0.0]).index
        0.8
        """
        count = len(rows.time)
        score = _checks.float_array("risk", risk, dtype=np.float64, shape=(count,))
        weight = np.ones(count) if weights is None else _checks.float_array("weights", weights, shape=(count,))
        if (weight < 0).any():
            raise ArgumentError("weights", f"must be at least 0, got {weight.min():g}")
        codes = np.zeros(count, dtype=np.int64) if strata is None else _checks.labels("strata", strata)[1]
        if codes.shape != (count,):
            raise ArgumentError("strata", f"must have one label for each of the {count} rows, got {codes.shape}")
        sums, each = np.zeros(3), np.zeros((count, 2))
        for stratum in range(int(codes.max()) + 1):
            own = np.flatnonzero(codes == stratum)
            as_event, as_other = _pairs(Times(*(one[own] for one in rows)), score[own], weight[own])
            sums += as_event.sum(axis=0)
            both = as_event + as_other
            each[own] = np.stack([both[:, 0] + both[:, 2] / 2.0, both.sum(axis=1)], axis=1)
        if clusters is not None:
            labels = _checks.labels("clusters", clusters)[1]
            if labels.shape != (count,):
                raise ArgumentError("clusters", f"must have one label for each of the {count} rows, got {labels.shape}")
            each = np.stack([np.bincount(labels, column) for column in each.T], axis=1)
        a, b = each.T
        squares = np.array([a @ a, a @ b, b @ b])
        return Concordance(float(sums[0]), float(sums[1]), float(sums[2]), squares, count)


def _pairs(rows: Times, score: Array, weight: Array) -> tuple[Array, Array]:
    """Return the weights of each row's concordant, discordant and tied pairs, as the one with an event and the other.

    Those at risk when a row has its event are those that leave later, less those that enter then or later.
    """
    rank = np.unique(score, return_inverse=True)[1].astype(np.int64)
    happened = np.flatnonzero(rows.event)
    everyone = np.arange(len(score))
    # Among equal times events come first: censored rows are at risk when they happen.
    leave = np.lexsort((~rows.event, rows.time))
    ordered_time = rows.time[leave]
    events_at = np.cumsum(rows.event[leave])
    entered = np.argsort(rows.entry, kind="stable")
    late = np.isfinite(rows.entry).any()

    # Of each event: rows that leave after it, and rows that enter at or after it.
    end_of_events = _end_of_events(leave, rows)
    as_event = np.zeros((len(score), 3))
    later = _count(leave, end_of_events[happened], rank, weight, rank[happened], after=True)
    if late:
        enters = np.searchsorted(rows.entry[entered], rows.time[happened], "left")
        later -= _count(entered, enters, rank, weight, rank[happened], after=True)
    as_event[happened] = later * weight[happened, None]

    # Of each row: events before it leaves (at the same time too if it is censored), and those until it enters.
    events = leave[rows.event[leave]]
    last = np.where(
        rows.event,
        np.append(0, events_at)[np.searchsorted(ordered_time, rows.time, "left")],
        np.append(0, events_at)[np.searchsorted(ordered_time, rows.time, "right")],
    )
    before = _count(events, last, rank, weight, rank[everyone], after=False)
    if late:
        until = np.searchsorted(rows.time[events], rows.entry, "right")
        before -= _count(events, until, rank, weight, rank[everyone], after=False)
    # What is below the row is discordant: the event has the lower risk.
    return as_event, before[:, [1, 0, 2]] * weight[:, None]


def _end_of_events(leave: IntArray, rows: Times) -> IntArray:
    """Return for each row the place in the order of leaving after the last event at its time."""
    time = rows.time[leave]
    first = np.searchsorted(time, rows.time, "left")
    events = np.append(0, np.cumsum(rows.event[leave]))
    last = np.searchsorted(time, rows.time, "right")
    ends: IntArray = first + events[last] - events[first]
    return ends


def _count(order: IntArray, place: IntArray, rank: IntArray, weight: Array, asked: IntArray, *, after: bool) -> Array:
    """Return the weight of the rows from a place in an order on, or before it, with a lower, higher and equal rank."""
    from fpdfp._kernels.rows import count_ranks

    turned = order[::-1] if after else order
    most = len(order) - place if after else place
    sequence = np.argsort(most, kind="stable")
    out = np.zeros((len(place), 3))
    count_ranks(
        np.ascontiguousarray(rank[turned]), np.ascontiguousarray(weight[turned]), most.astype(np.int64), sequence,
        asked.astype(np.int64), int(rank.max()) + 1, out,
    )  # fmt: skip
    return out
