"""Counts of rows at risk over time, from which survival curves and log-rank tests are made.

And rows by periods, for hazards in discrete time.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError
from fpdfp.survival.response import Times

#: Counts that are spread are multiples of one by this.
FINE = 2.0**20


@dataclasses.dataclass(frozen=True)
class RiskCounts:
    """The rows that enter and leave at each time, in each group; counts of several sites add up.

    Arrays have a row for each group and a column for each time.

    Attributes
    ----------
    times
        Increasing times.
    start
        How many rows each group has that are there from the start.
    entered
        How many rows are at risk at a time, but not at the one before; none at the first.
    left
        How many rows leave at a time, with an event or without.
    events
        How many of these have an event.
    delayed
        Whether rows were moved to later times until enough were at each: see :meth:`coarsen`.
    rounded
        Whether rows leave or enter between two of the times. Curves then take those that leave without an event there,
        or that enter, to do so in the middle of their interval, as life tables do.
    lost
        How much of those at risk is lost so in each interval, half of these rows; None where that is unknown.
    """

    times: Array
    start: Array
    entered: Array
    left: Array
    events: Array
    delayed: bool = False
    rounded: bool = False
    lost: Array | None = None

    def __post_init__(self) -> None:
        for name in ("times", "start", "entered", "left", "events"):  # sites may send small integers
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        shape = (len(self.start), len(self.times))
        for name in ("entered", "left", "events"):
            array = getattr(self, name)
            if array.shape != shape:
                raise ArgumentError(name, f"must have shape {shape}, got {array.shape}")
        if self.entered[:, :1].any():
            raise ArgumentError(
                "entered", "must be 0 at the first time: rows that are at risk then are there from the start"
            )
        if (np.diff(self.times) <= 0).any() or not np.isfinite(self.times).all():
            raise ArgumentError("times", "must be finite and increasing")
        if not all((one >= 0).all() for one in (self.start, self.entered, self.left, self.events)):
            raise ArgumentError("start, entered, left and events", "must be at least 0")
        # Weights may be any numbers, so sums of them are rounded.
        if (self.events > self.left * (1 + 1e-9)).any() or (self.at_risk < self.left * (1 - 1e-9)).any():
            raise ArgumentError("events", "must be of rows that leave, and those that leave must be at risk")

    @classmethod
    def of(
        cls, rows: Times, groups: Any = None, n_groups: int | None = None, *, weights: Any = None, times: Any = None
    ) -> Self:
        """Return the counts of some rows.

        Parameters
        ----------
        rows
            When they enter and leave.
        groups
            The number of each row's group; None for one group.
        n_groups
            How many groups there are.
        weights
            The weight of each row.
        times
            The times to count at; by default all at which rows enter or leave. Rows that leave between two of them
            leave at the later one, and those that enter between two are at risk after the earlier one. Rows that leave
            after the last one stay.

        Examples
        --------
        >>> counts = RiskCounts.of(Times.of([2.0, 3.0, 3.0, 5.0], [1, 1, 0, 1]))
        >>> counts.times, counts.at_risk
        (array([2., 3., 5.]), array([[4., 3., 1.]]))
        >>> RiskCounts.of(Times.of([2.0, 3.0, 3.0, 5.0], [1, 1, 0, 1]), times=[4.0, 8.0]).events
        array([[2., 1.]])
        """
        count = len(rows.time)
        number = np.zeros(count, dtype=np.int64) if groups is None else _checks.host_array("groups", groups)
        if number.shape != (count,) or number.dtype.kind not in "iu":
            raise ArgumentError("groups", f"must be the number of the group of each of the {count} rows")
        total = int(number.max()) + 1 if n_groups is None else _checks.integer("n_groups", n_groups, at_least=1)
        if number.min() < 0 or number.max() >= total:
            raise ArgumentError("groups", f"must be numbers from 0 to {total - 1}")
        weight = np.ones(count) if weights is None else _checks.float_array("weights", weights, dtype=np.float64)
        if weight.shape != (count,) or (weight < 0).any():
            raise ArgumentError("weights", f"must be at least 0, one for each of the {count} rows")
        enter = rows.entry[np.isfinite(rows.entry)]
        grid = np.unique(np.concatenate([rows.time, enter])) if times is None else check_grid(times)

        def table(columns: IntArray, some: Array) -> Array:
            inside = some & (columns < len(grid))
            cells = number[inside] * len(grid) + columns[inside]
            return np.bincount(cells, weight[inside], minlength=total * len(grid)).astype(np.float64).reshape(total, -1)

        leaves = np.searchsorted(grid, rows.time, "left")
        enters = np.searchsorted(grid, rows.entry, "right")
        late = enters > 0
        inside = (~np.isin(rows.time, grid) & ~rows.event, late & ~np.isin(rows.entry, grid))
        rounded = times is not None and not np.isin(np.concatenate([rows.time, enter]), grid).all()
        return cls(
            grid,
            np.bincount(number[~late], weight[~late], minlength=total).astype(np.float64),
            table(enters, late),
            table(leaves, np.ones(count, dtype=bool)),
            table(leaves, rows.event),
            rounded=rounded,
            lost=(table(leaves, inside[0]) + table(enters, inside[1])) / 2.0 if rounded else None,
        )

    @property
    def exposed(self) -> Array:
        """The number of are that at risk at each time, less what is lost in the interval before it."""
        return self.at_risk if self.lost is None else self.at_risk - self.lost

    def halve(self) -> RiskCounts:
        """Return the counts with what is lost in intervals where that is unknown: half of all who may be inside.

        >>> RiskCounts.of(Times.of([1.5, 2.5, 2.0], [0, 1, 0]), times=[2.0, 3.0]).exposed
        array([[2.5, 1. ]])
        """
        if not self.rounded or self.lost is not None:
            return self
        return dataclasses.replace(self, lost=(self.censored + self.entered) / 2.0)

    @property
    def censored(self) -> Array:
        """The number of leave that without an event."""
        return self.left - self.events

    @property
    def at_risk(self) -> Array:
        """The number of are that at risk at each time."""
        entered = self.start[:, None] + np.cumsum(self.entered, axis=1)
        before = np.cumsum(self.left, axis=1) - self.left
        at_risk: Array = entered - before
        return at_risk

    def __add__(self, other: RiskCounts) -> RiskCounts:
        """Return the counts of the rows of both, at the times of both."""
        if len(self.start) != len(other.start):
            raise ArgumentError("groups", f"must be the same, got {len(self.start)} and {len(other.start)}")
        times = np.union1d(self.times, other.times)
        parts: dict[str, Any] = {}
        for name in ("entered", "left", "events"):
            parts[name] = np.zeros((len(self.start), len(times)))
            for one in (self, other):
                place = np.searchsorted(times, one.times)
                if name == "entered":  # after the time before
                    place = np.append(0, place[:-1] + 1)[: len(place)]
                parts[name][:, place] += getattr(one, name)
        if self.lost is not None or other.lost is not None:
            parts["lost"] = np.zeros((len(self.start), len(times)))
            for one in (self, other):
                if one.lost is not None:
                    parts["lost"][:, np.searchsorted(times, one.times)] += one.lost
        flags: dict[str, Any] = {"delayed": self.delayed or other.delayed, "rounded": self.rounded or other.rounded}
        return RiskCounts(times, self.start + other.start, **parts, **flags)

    @staticmethod
    def total(parts: Iterable[RiskCounts]) -> RiskCounts:
        """Return the sum of the counts of several sites."""
        return functools.reduce(operator.add, parts)

    def group(self, number: int) -> RiskCounts:
        """Return the counts of one group."""
        some = slice(number, number + 1)
        names = ("start", "entered", "left", "events", *(["lost"] if self.lost is not None else []))
        return dataclasses.replace(self, **{name: getattr(self, name)[some] for name in names})

    def merge_groups(self) -> RiskCounts:
        """Return the counts of all groups together."""
        names = ("entered", "left", "events", *(["lost"] if self.lost is not None else []))
        sums = {name: getattr(self, name).sum(axis=0, keepdims=True) for name in names}
        return dataclasses.replace(self, start=self.start.sum(keepdims=True), **sums)

    def coarsen(self, least: int) -> RiskCounts:
        """Return counts at the same times, such that no cell counts fewer rows than a minimum.

        In every group, rows with events are moved to later times until each number is 0 or at least ``least``, and so
        are those that leave without an event. Rows that enter are moved to earlier times. No one leaves before he
        enters, and those at risk are at most more than they were. What cannot be hidden so raises an error.

        >>> counts = RiskCounts.of(Times.of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1, 1, 1, 1, 1, 1]))
        >>> counts.coarsen(3).times, counts.coarsen(3).events
        (array([3., 6.]), array([[3., 3.]]))
        """
        least = _checks.integer("least", least, at_least=0)
        start, entered = self.start.copy(), np.zeros_like(self.entered)
        events, censored = np.zeros_like(self.events), np.zeros_like(self.events)
        for group in range(len(start)):
            events[group], rest = _delay(self.events[group], least)
            censored[group], other = _delay(self.censored[group], least)
            turned, early = _delay(self.entered[group][::-1], least)
            entered[group] = turned[::-1]
            start[group] += early  # as if there from the start
            stay = start[group] + entered[group].sum() - events[group].sum() - censored[group].sum() - rest - other
            for k in np.flatnonzero(censored[group])[::-1]:  # as if they left after the last time
                if not 0 < stay < least:
                    break
                stay, censored[group, k] = stay + censored[group, k], 0.0
            if rest or other or 0 < stay < least or 0 < start[group] < least:
                raise ArgumentError(
                    "times",
                    f"must be such that no group has cells of fewer than {least} rows: end them when all have left, or "
                    "when more stay, or compare fewer groups",
                )
        some = (events + censored + entered).any(axis=0)
        late = np.flatnonzero(some)[:1]
        start += entered[:, late].sum(axis=1)  # the first time that is kept
        entered[:, late] = 0.0
        left = (events + censored)[:, some]
        flags: dict[str, Any] = {"delayed": least > 1, "rounded": self.rounded}
        return RiskCounts(self.times[some], start, entered[:, some], left, events[:, some], **flags)

    def spread(self, times: Any) -> RiskCounts:
        """Return delayed counts at all times that were requested, as if rows had left at a steady pace.

        Those with events that were delayed to a time have left after the time before it that has some: they are spread
        over the times in between, by their distances. So are those without an event. Sums over all times stay the same,
        and so do counts that are not ``delayed``.

        >>> counts = RiskCounts.of(Times.of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1, 1, 1, 1, 1, 1])).coarsen(3)
        >>> counts.spread([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).events.round(3)
        array([[1., 1., 1., 1., 1., 1.]])
        """
        if not self.delayed:
            return self
        grid = check_grid(times)
        place = np.searchsorted(grid, self.times)
        if not np.array_equal(grid[np.minimum(place, len(grid) - 1)], self.times):
            raise ArgumentError("times", "must be the requested times, including all times of the counts")
        entered = np.zeros((len(self.start), len(grid)))
        entered[:, np.append(0, place[:-1] + 1)[: len(place)]] = self.entered  # after the time before
        reached = self.start[:, None] + np.cumsum(entered, axis=1)
        events, censored = (_even_out(cells, place, grid) for cells in (self.events, self.censored))
        gone = np.minimum(np.cumsum(events + censored, axis=1), reached)
        left = np.diff(gone, axis=1, prepend=0.0)
        return RiskCounts(grid, self.start, entered, left, np.minimum(events, left), rounded=self.rounded)

    def place(self, times: Any, *, early: bool) -> RiskCounts:
        """Return counts at all times that were requested, with rows leaving as late or as early as they can have.

        Rows that were delayed to a time have left after the time before it that has some. At the earliest they leave at
        the next one of those that were requested, and those that stay after the last one that has some.

        >>> counts = RiskCounts.of(Times.of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1, 1, 1, 1, 1, 1])).coarsen(3)
        >>> counts.place([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], early=True).events
        array([[3., 0., 0., 3., 0., 0.]])
        >>> counts.place([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], early=False).events
        array([[0., 0., 3., 0., 0., 3.]])
        """
        grid = check_grid(times)
        place = np.searchsorted(grid, self.times)
        entered = np.zeros((len(self.start), len(grid)))
        entered[:, np.append(0, place[:-1] + 1)[: len(place)]] = self.entered  # after the time before
        hasten = early and self.delayed
        stay = self.start + self.entered.sum(axis=1) - self.left.sum(axis=1)
        moved = {}
        for name, cells in (("events", self.events), ("censored", self.censored)):
            moved[name] = np.zeros_like(entered)
            for row, counts, staying in zip(moved[name], cells, stay, strict=True):
                some = np.flatnonzero(counts)
                ends = place[some]
                starts = np.append(0, ends + 1)
                row[starts[:-1] if hasten else ends] = counts[some]
                if hasten and name == "censored" and starts[-1] < len(grid):
                    row[starts[-1]] += staying
        left = moved["events"] + moved["censored"]
        flags: dict[str, Any] = {"delayed": self.delayed, "rounded": self.rounded}
        return RiskCounts(grid, self.start, entered, left, moved["events"], **flags)


class RiskTotal(NamedTuple):
    """The counts of several sites.

    Attributes
    ----------
    counts
        Their sum, with those spread that sites have moved to later times.
    ends
        The same with rows leaving as late, and as early, as they can have. None where nothing is hidden, and where rows
        enter late: of these few may have been at risk before the first time.
    """

    counts: RiskCounts
    ends: tuple[RiskCounts, RiskCounts] | None

    @classmethod
    def of(cls, parts: Sequence[RiskCounts], times: Array | None, *, late_entries: bool) -> RiskTotal:
        """Return the counts of sites at given times, or at all of theirs."""
        whole = np.unique(np.concatenate([part.times for part in parts])) if times is None else times
        counts = RiskCounts.total(part.spread(whole).halve() for part in parts)
        delayed = any(part.delayed for part in parts)
        if late_entries or not (delayed or any(part.rounded for part in parts)):
            return cls(counts, None)
        late, early = (RiskCounts.total(part.place(whole, early=early) for part in parts) for early in (False, True))
        return cls(counts, (late, early))


def _delay(counts: Array, least: int) -> tuple[Array, float]:
    """Move counts to later places until each is 0 or at least that many; return them, and what cannot be hidden."""
    out, waiting, ends = np.zeros_like(counts), 0.0, list[int]()
    for k, count in enumerate(counts.tolist()):
        waiting += count
        if waiting and waiting >= least:
            out[k], waiting = waiting, 0.0
            ends.append(k)
    if waiting and ends:  # the last ones wait for those at the end
        last = int(np.flatnonzero(counts)[-1])
        out[last], out[ends[-1]] = waiting + out[ends[-1]], 0.0
        waiting = 0.0
    return out, waiting


def _even_out(cells: Array, place: IntArray, grid: Array) -> Array:
    """Spread counts at some places of a grid over the times since the last one before that has any."""
    start = 0.0 if grid[0] > 0 else grid[0] - float(np.diff(grid)[:1].sum() or 1.0)
    out = np.zeros((len(cells), len(grid)))
    for row, counts in zip(out, cells, strict=True):
        some = np.flatnonzero(counts)
        ends = np.append(start, grid[place[some]])
        whole = np.interp(grid, ends, np.append(0.0, np.cumsum(counts[some])))
        # Of numbers with few digits sums are exact, so that no one is left over.
        row[:] = np.diff(np.round(whole * FINE) / FINE, prepend=0.0)
    return out


def check_grid(times: Any) -> Array:
    """Return increasing times."""
    grid = _checks.float_array("times", times, dtype=np.float64)
    if grid.ndim != 1 or not grid.size or (np.diff(grid) <= 0).any():
        raise ArgumentError("times", "must be increasing numbers, at least one")
    return grid


class PersonPeriods(NamedTuple):
    """A row for every period in which a row was at risk.

    Attributes
    ----------
    row
        The number of the row it comes from.
    period
        The number of the period.
    event
        1 where the event happened in it, else 0.
    """

    row: IntArray
    period: IntArray
    event: Array


def split_periods(rows: Times, edges: Any) -> PersonPeriods:
    """Return rows by periods: period k is from the edge k, not included, to the edge k + 1.

    A row is counted in a period if it was at risk when that began, and if it had its event in it or was at risk until
    its end. One that was censored within a period is not counted there, nor is one that entered within it, nor is what
    is before the first edge and after the last one.

    A regression of ``event`` on the features with an indicator of each period has the hazard of each period as its
    baseline, which sites share. With the link cloglog its coefficients are logarithms of hazard ratios, those of
    proportional hazards in continuous time (Prentice and Gloeckler); with the logit, of odds ratios.

    >>> rows = split_periods(Times.of([2.0, 1.5, 3.0], [1, 0, 0]), edges=[0.0, 1.0, 2.0, 3.0])
    >>> rows.row, rows.period
    (array([0, 0, 1, 2, 2, 2]), array([0, 1, 0, 0, 1, 2]))
    >>> rows.event
    array([0., 1., 0., 0., 0., 0.])
    """
    grid = check_grid(edges)
    if len(grid) < 2:
        raise ArgumentError("edges", "must be two or more, between which periods are")
    # The period of an event is the one that ends at or after it; a censored row has those that end by then.
    last = np.where(rows.event, np.searchsorted(grid, rows.time, "left"), np.searchsorted(grid, rows.time, "right") - 1)
    last = np.clip(last, 0, len(grid) - 1)
    first = np.clip(np.searchsorted(grid, rows.entry, "left"), 0, len(grid) - 1)
    lengths = np.maximum(last - first, 0)
    row = np.repeat(np.arange(len(lengths)), lengths)
    within = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    period = first[row] + within
    inside = rows.event & (rows.time > grid[0]) & (rows.time <= grid[-1])
    event = inside[row] & (period == last[row] - 1)
    return PersonPeriods(row.astype(np.int64), period.astype(np.int64), event.astype(np.float64))


def name_periods(edges: Sequence[float]) -> list[str]:
    """Return the names of periods.

    >>> name_periods([0, 12, 24])
    ['period (0, 12]', 'period (12, 24]']
    """
    return [f"period ({a:g}, {b:g}]" for a, b in itertools.pairwise(edges)]
