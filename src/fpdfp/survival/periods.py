"""Rows by periods, for hazards in discrete time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError
from fpdfp.survival.counts import check_grid
from fpdfp.survival.response import Times


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
    its end: one that was censored within a period is not counted there, nor is one that entered within it, nor is what
    is before the first edge and after the last one.

    A regression of ``event`` on the features with an indicator of each period has the hazard of each period as its
    baseline, which sites share. With the link cloglog its coefficients are logarithms of hazard ratios, those of
    proportional hazards in continuous time (Prentice and Gloeckler); with the logit they are those of the odds.

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
