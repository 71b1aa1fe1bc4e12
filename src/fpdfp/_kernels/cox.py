"""Values and gradients of the partial likelihood of Cox, many clients in one call.

Rows are sorted by client, by stratum, and by ``last``; a stratum of one client is a group. The m times of a group at
which events happen are numbered in order. A row is at risk, without an event, at the times from ``first`` on and before
``last``; if it has an event, that is at the time ``event`` (−1 for none), which is then ``last``.

With r_j = w_j exp(z_j) let N be the sum over the rows that are at risk at a time without an event there, D that over
the c rows with an event. Efron's approximation has c denominators N + (1 − l/c) D, l = 0, …, c − 1, each with the mean
weight of the events; Breslow's has one, N + D, with the sum of their weights.

Nothing is subtracted and no exponential overflows. A sum is a pair of the largest exponent and of what remains, and
rows that enter late are added to the nodes of a binary tree over the times.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import prange

from fpdfp._kernels.glm import add_rows, linear_forms, start_with_ridge
from fpdfp._kernels.jit import inline, serial, threaded

#: The rows of ``sets``: the exponent that N and D are without, these, what rows with and without an event get from a
#: time, how much the means of both enter the Hessian (twice without, mixed, twice with an event), and the variance of
#: the hazard.
TOP, WITHOUT, WITH, HAZARD, OWN, BOTH_WITHOUT, MIXED, BOTH_WITH, VARIANCE = range(9)
SETS = 9


class Table(NamedTuple):
    """The rows at risk at each time.

    Attributes
    ----------
    first, last, event
        Of each row, numbers of times in its group.
    weights, offset
        The weight of each row, 0 for one that does not count, and what is added to its linear form.
    counts, masses
        The events at each time, and the sum of their weights.
    rows, times
        Where each group's rows and times start, and the last one's end.
    groups
        Where each client's groups start, and the last one's end.
    efron
        Whether ties are Efron's.
    scale
        What losses are multiplied with.
    """

    first: Any
    last: Any
    event: Any
    weights: Any
    offset: Any
    counts: Any
    masses: Any
    rows: Any
    times: Any
    groups: Any
    efron: bool
    scale: float


@inline
def join(top: Any, total: Any, other: Any, more: Any) -> Any:
    """Add more·exp(other) to total·exp(top); a pair with a total of 0 is nothing."""
    if more == 0.0:
        return top, total
    if total == 0.0:
        return other, more
    if other <= top:
        return top, total + more * math.exp(other - top)
    return other, more + total * math.exp(top - other)


@serial
def add_over(tops: Any, totals: Any, first: Any, last: Any, top: Any, total: Any) -> None:
    """Add a pair to the nodes of a tree that together are the times from first on and before last."""
    a, b = first + tops.size // 2, last + tops.size // 2
    while a < b:
        if a & 1:
            tops[a], totals[a] = join(tops[a], totals[a], top, total)
            a += 1
        if b & 1:
            b -= 1
            tops[b], totals[b] = join(tops[b], totals[b], top, total)
        a >>= 1
        b >>= 1


@serial
def sum_over(tops: Any, totals: Any, first: Any, last: Any) -> Any:
    """Return the sum of the nodes of a tree that together are the times from first on and before last."""
    top, total = 0.0, 0.0
    a, b = first + tops.size // 2, last + tops.size // 2
    while a < b:
        if a & 1:
            top, total = join(top, total, tops[a], totals[a])
            a += 1
        if b & 1:
            b -= 1
            top, total = join(top, total, tops[b], totals[b])
        a >>= 1
        b >>= 1
    return top, total


@serial
def risk_sums(z: Any, first: Any, last: Any, event: Any, weights: Any, sums: Any) -> None:
    """Write the pairs of N and of D at each time of a group into the four rows of sums."""
    m = sums.shape[1]
    sums[:] = 0.0
    late = False
    for j in range(z.size):
        late = late or first[j] > 0
        k = event[j]
        if k >= 0:
            sums[2, k], sums[3, k] = join(sums[2, k], sums[3, k], z[j], weights[j])
    tops, totals = np.zeros(2 * m if late else 0), np.zeros(2 * m if late else 0)
    top, total, j = 0.0, 0.0, z.size - 1
    for k in range(m - 1, -1, -1):
        while j >= 0 and last[j] > k:
            if first[j] == 0:
                top, total = join(top, total, z[j], weights[j])
            else:
                add_over(tops, totals, first[j], last[j], z[j], weights[j])
            j -= 1
        sums[0, k], sums[1, k] = top, total
    if late:
        for k in range(m):
            node = k + m
            while node >= 1:
                sums[0, k], sums[1, k] = join(sums[0, k], sums[1, k], tops[node], totals[node])
                node >>= 1


@serial
def examine(z: Any, first: Any, last: Any, event: Any, weights: Any, counts: Any, masses: Any, efron: Any,
            sets: Any) -> Any:  # fmt: skip
    """Fill in the sets of a group, given the linear forms of its rows; return minus its log-likelihood."""
    m = counts.size
    sums = np.empty((4, m))
    risk_sums(z, first, last, event, weights, sums)
    value = 0.0
    for j in range(z.size):
        if event[j] >= 0:
            value -= weights[j] * z[j]
    for k in range(m):
        top = max(sums[0, k], sums[2, k]) if sums[1, k] > 0.0 else sums[2, k]
        without = sums[1, k] * math.exp(sums[0, k] - top) if sums[1, k] > 0.0 else 0.0
        own = sums[3, k] * math.exp(sums[2, k] - top)
        sets[:, k] = 0.0
        sets[TOP, k], sets[WITHOUT, k], sets[WITH, k] = top, without, own
        if counts[k] == 0:  # all rows with an event at that time are excluded, and perhaps all rows at risk
            continue
        steps = counts[k] if efron else 1
        share = masses[k] / steps
        for step in range(steps):
            part = 1.0 - step / steps
            whole = without + part * own
            value += share * (top + math.log(whole))
            sets[HAZARD, k] += share / whole
            sets[OWN, k] += share * part / whole
            sets[VARIANCE, k] += share / (whole * whole)
            a, b = without / whole, part * own / whole
            sets[BOTH_WITHOUT, k] += share * a * a
            sets[MIXED, k] += share * a * b
            sets[BOTH_WITH, k] += share * b * b
    return value


@serial
def expect(z: Any, first: Any, last: Any, event: Any, weights: Any, sets: Any, expected: Any) -> None:
    """Write the expected number of events of each row of a group."""
    m = sets.shape[1]
    late = False
    for j in range(z.size):
        late = late or (first[j] > 0 and first[j] < last[j])
    tops, totals = np.zeros(2 * m if late else 0), np.zeros(2 * m if late else 0)
    if late:
        for k in range(m):
            tops[k + m], totals[k + m] = -sets[TOP, k], sets[HAZARD, k]
        for node in range(m - 1, 0, -1):
            tops[node], totals[node] = join(tops[2 * node], totals[2 * node], tops[2 * node + 1], totals[2 * node + 1])
    top, total, k = 0.0, 0.0, 0
    for j in range(z.size):
        while k < last[j]:
            top, total = join(top, total, -sets[TOP, k], sets[HAZARD, k])
            k += 1
        own_top, own = top, total
        if first[j] > 0:
            own_top, own = sum_over(tops, totals, first[j], last[j]) if first[j] < last[j] else (0.0, 0.0)
        at = event[j]
        if at >= 0:
            own_top, own = join(own_top, own, -sets[TOP, at], sets[OWN, at])
        expected[j] = 0.0 if weights[j] == 0.0 or own == 0.0 else weights[j] * own * math.exp(z[j] + own_top)


@serial
def examine_group(table: Any, group: Any, z: Any, sets: Any) -> Any:
    """Fill in the sets of a group and return minus its log-likelihood; z has all linear forms of its rows."""
    a, b = table.rows[group], table.rows[group + 1]
    s, e = table.times[group], table.times[group + 1]
    return examine(
        z, table.first[a:b], table.last[a:b], table.event[a:b], table.weights[a:b], table.counts[s:e],
        table.masses[s:e], table.efron, sets,
    )  # fmt: skip


@serial
def residuals(table: Any, group: Any, z: Any, out: Any) -> Any:
    """Write the derivative of minus the log-likelihood of a group in its linear forms; return its value."""
    a, b = table.rows[group], table.rows[group + 1]
    sets = np.empty((SETS, table.times[group + 1] - table.times[group]))
    value = examine_group(table, group, z, sets)
    expect(z, table.first[a:b], table.last[a:b], table.event[a:b], table.weights[a:b], sets, out)
    for j in range(a, b):
        if table.event[j] >= 0:
            out[j - a] -= table.weights[j]
    return value


@threaded
def values(
    X: Any, data: Any, indices: Any, indptr: Any, numbers: Any, table: Any, clients: Any, x: Any, ridge: Any, out: Any
) -> None:
    """Write f_i(x) of each client."""
    for i in prange(clients.size):
        client = clients[i]
        total = 0.0
        for group in range(table.groups[client], table.groups[client + 1]):
            own = numbers[table.rows[group] : table.rows[group + 1]]
            z = np.empty(own.size, dtype=np.float64)
            linear_forms(X, data, indices, indptr, own, x, z)
            z += table.offset[own[0] : own[0] + own.size]
            sets = np.empty((SETS, table.times[group + 1] - table.times[group]))
            total += examine_group(table, group, z, sets)
        count = table.rows[table.groups[client + 1]] - table.rows[table.groups[client]]
        out[i] = total * table.scale / count + ridge


@threaded
def gradients(
    X: Any, data: Any, indices: Any, indptr: Any, numbers: Any, table: Any, clients: Any, x: Any, l2: Any, out: Any
) -> None:
    """Write ∇f_i of each client, at one point or at one for each."""
    shared = x.shape[0] == 1
    for i in prange(clients.size):
        client = clients[i]
        point = x[0] if shared else x[i]
        start_with_ridge(l2, point, out[i])
        count = table.rows[table.groups[client + 1]] - table.rows[table.groups[client]]
        for group in range(table.groups[client], table.groups[client + 1]):
            own = numbers[table.rows[group] : table.rows[group + 1]]
            z = np.empty(own.size, dtype=np.float64)
            linear_forms(X, data, indices, indptr, own, point, z)
            z += table.offset[own[0] : own[0] + own.size]
            slopes = np.empty(own.size, dtype=np.float64)
            residuals(table, group, z, slopes)
            slopes *= table.scale / count
            add_rows(X, data, indices, indptr, own, slopes, out[i])


@serial
def add_to(tops: Any, totals: Any, means: Any, place: Any, top: Any, total: Any, row: Any) -> None:
    """Add a row to a weighted mean of rows, kept with the pair of the sum of its weights."""
    if total == 0.0:
        return
    joined_top, joined = join(tops[place], totals[place], top, total)
    share = total / joined * math.exp(top - joined_top)
    for d in range(row.size):
        means[place, d] += share * (row[d] - means[place, d])
    tops[place], totals[place] = joined_top, joined


@serial
def risk_means(X: Any, z: Any, first: Any, last: Any, event: Any, weights: Any, without: Any, own: Any) -> None:
    """Write the mean of the rows of a group at risk at each time: of those without, and of those with an event."""
    m, d = without.shape
    late = False
    for j in range(z.size):
        late = late or first[j] > 0
    without[:] = 0.0
    own[:] = 0.0
    own_tops, own_totals = np.zeros(m), np.zeros(m)
    size = 2 * m if late else 0
    tops, totals, means = np.zeros(size), np.zeros(size), np.zeros((size, d))
    top, total, mean = np.zeros(1), np.zeros(1), np.zeros((1, d))
    here_top, here = np.zeros(m), np.zeros(m)
    j = z.size - 1
    for k in range(m - 1, -1, -1):
        while j >= 0 and last[j] > k:
            if first[j] == 0:
                add_to(top, total, mean, 0, z[j], weights[j], X[j])
            else:
                a, b = first[j] + m, last[j] + m
                while a < b:
                    if a & 1:
                        add_to(tops, totals, means, a, z[j], weights[j], X[j])
                        a += 1
                    if b & 1:
                        b -= 1
                        add_to(tops, totals, means, b, z[j], weights[j], X[j])
                    a >>= 1
                    b >>= 1
            j -= 1
        without[k] = mean[0]
        here_top[k], here[k] = top[0], total[0]
    for k in range(m if late else 0):
        node = k + m
        while node >= 1:
            add_to(here_top, here, without, k, tops[node], totals[node], means[node])
            node >>= 1
    for j in range(z.size):
        if event[j] >= 0:
            add_to(own_tops, own_totals, own, event[j], z[j], weights[j], X[j])


@serial
def hazard_means(first: Any, last: Any, sets: Any, means: Any, sums: Any, out: Any) -> None:
    """Write the mean of some vectors of times over the times at which each row is at risk without an event.

    Weights are the hazards; ``sums`` gets the pairs of their sums.
    """
    m, d = means.shape
    late = False
    for j in range(first.size):
        late = late or (first[j] > 0 and first[j] < last[j])
    size = 2 * m if late else 0
    tops, totals, nodes = np.zeros(size), np.zeros(size), np.zeros((size, d))
    if late:
        for k in range(m):
            add_to(tops, totals, nodes, k + m, -sets[TOP, k], sets[HAZARD, k], means[k])
        for node in range(m - 1, 0, -1):
            for child in (2 * node, 2 * node + 1):
                add_to(tops, totals, nodes, node, tops[child], totals[child], nodes[child])
    top, total, mean = np.zeros(1), np.zeros(1), np.zeros((1, d))
    out[:] = 0.0
    sums[:] = 0.0
    k = 0
    for j in range(first.size):
        while k < last[j]:
            add_to(top, total, mean, 0, -sets[TOP, k], sets[HAZARD, k], means[k])
            k += 1
        if first[j] == 0:
            sums[0, j], sums[1, j] = top[0], total[0]
            out[j] = mean[0]
            continue
        a, b = first[j] + m, last[j] + m
        while a < b:
            if a & 1:
                add_to(sums[0], sums[1], out, j, tops[a], totals[a], nodes[a])
                a += 1
            if b & 1:
                b -= 1
                add_to(sums[0], sums[1], out, j, tops[b], totals[b], nodes[b])
            a >>= 1
            b >>= 1
