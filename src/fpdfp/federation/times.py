"""Times of events in the table of a site: read from its columns, and their answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError
from fpdfp.federation.questions import Baselines
from fpdfp.formula.evaluation import Rows, codes, evaluate, level_of
from fpdfp.formula.tree import Coded, Expression, Survival, columns_of
from fpdfp.losses import Cox
from fpdfp.losses.cox import Ties
from fpdfp.survival import Baseline, Concordance, LogRank, RiskCounts, Times
from fpdfp.survival.concordance import DIGITS as DIGITS


def evaluate_response(node: Expression | Survival, rows: Rows) -> Array:
    """Return the response of each row, NaN where it is none; of times the time."""
    if not isinstance(node, Survival):
        return evaluate(node, rows, {})
    time, event = evaluate(node.leaves, rows, {}), evaluate(node.event, rows, {})
    valid = np.isfinite(time) & np.isin(event, (0.0, 1.0))
    if node.enters is not None:
        entry = evaluate(node.enters, rows, {})
        valid &= np.isfinite(entry) & (entry < np.where(valid, time, -np.inf))
    return np.where(valid, time, np.nan)


def read_times(node: Survival, rows: Rows) -> Times:
    """Return the times of rows; refuse anything else."""
    bad = int((~np.isfinite(evaluate_response(node, rows))).sum())
    if bad:
        raise ArgumentError(
            "the response",
            f"is no event time in {bad} of {len(rows)} rows: times must be numbers, events 0 or 1, and rows must "
            "enter before they leave",
        )
    entry = None if node.enters is None else evaluate(node.enters, rows, {})
    return Times.of(evaluate(node.leaves, rows, {}), evaluate(node.event, rows, {}), entry)


def read_strata(columns: tuple[str, ...], rows: Rows) -> Array:
    """Return the name of each row's stratum, such as ``"sex=F, stage=II"``; empty where there is one alone."""
    names = np.full(len(rows), "", dtype=object)
    for column in columns:
        found = rows.values(column)
        if found.levels is None and (found.numbers != np.floor(found.numbers)).any():
            raise ArgumentError(f"the column {column!r}", "must hold texts or integers to define strata")
        own, number = np.unique(found.numbers, return_inverse=True)
        labels = np.array([f"{column}={level_of(one, found.levels)}" for one in own.tolist()], dtype=object)
        names = labels[number] if column == columns[0] else names + ", " + labels[number]
    return names.astype(str)


def read_clusters(column: str, rows: Rows) -> Array:
    """Return a number for each row, the same for rows that belong together."""
    return np.unique(rows.values(column).numbers, return_inverse=True)[1].astype(np.float64)


def count_at_risk(table: Any, response: Survival, group: Coded | None, times: Array | None) -> RiskCounts:
    """Count who is at risk in each level of a column."""
    _, own, groups, count = _groups(table, response, group)
    return RiskCounts.of(own, groups, count, times=times)


def add_log_rank(table: Any, response: Survival, group: Coded, strata: tuple[str, ...], rho: float) -> LogRank:
    """Add up what a log-rank test needs, over strata."""
    rows, times, groups, count = _groups(table, response, group, strata)
    labels = read_strata(strata, rows)
    sums = [
        LogRank.of(RiskCounts.of(Times(*(one[own] for one in times)), groups[own], count), rho)
        for own in (labels == label for label in np.unique(labels))
    ]
    return sum(sums[1:], start=sums[0])


def strata_of(table: Any, response: Survival, group: Coded, strata: tuple[str, ...]) -> Array:
    """Return the stratum of each row of a log-rank test."""
    return read_strata(strata, _groups(table, response, group, strata)[0])


def _groups(
    table: Any, response: Survival, group: Coded | None, strata: tuple[str, ...] = ()
) -> tuple[Any, Times, IntArray, int]:
    """Return the rows in which nothing is missing, their times and groups, and how many groups there are."""
    columns = list(dict.fromkeys([*columns_of([response, group]), *strata]))
    complete = ~np.any([table.values(name).missing for name in columns], axis=0)
    if not complete.any():
        raise ArgumentError("table", "must have rows without missing values in the columns of the question, got none")
    rows = table.take(complete, columns)
    times = read_times(response, rows)
    if group is None:
        return rows, times, np.zeros(len(rows), dtype=np.int64), 1
    return rows, times, codes(group.coded, group.levels, rows), len(group.levels)


def find_concordance(rows: Any, x: Array) -> Concordance:
    """Return the concordance of the risks of rows with their times."""
    risk = rows.X @ x + (0.0 if rows.offset is None else rows.offset)
    return Concordance.of(
        rows.times, np.round(risk, DIGITS), strata=rows.strata, weights=rows.weights, clusters=rows.clusters
    )


def find_baselines(rows: Any, x: Array, ties: Ties, times: Array | None = None) -> Baselines:
    """Return the baseline hazard of each stratum of rows."""
    losses = Cox(
        rows.X, rows.times.time, rows.times.event, entry=rows.times.entry, strata=rows.strata, weights=rows.weights,
        offset=rows.offset, ties=ties,
    )  # fmt: skip
    found = losses.hazards(x, 0)
    hazards = [Baseline.of(*one[1:5], one.events.astype(np.float64)) for one in found]
    if times is not None:
        hazards = [one.at(times) for one in hazards]
    return Baselines(tuple(str(one.stratum) for one in found), hazards)
