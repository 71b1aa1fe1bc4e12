"""Who is at risk when at each client, and what a stratum of one client looks like at a point."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from fpdfp._typing import Array, IntArray
from fpdfp.survival.response import Times


class Hazards(NamedTuple):
    """The baseline hazard of a stratum of one client, for a row whose features and offset are all zero.

    Attributes
    ----------
    stratum
        The label of the stratum.
    times
        The times of events.
    hazard
        What the cumulative hazard grows by at each.
    variance
        What its variance grows by, if the coefficients were known.
    means
        The hazard times the mean of the rows at risk.
    events
        How many events there are at each time.
    """

    stratum: Any
    times: Array
    hazard: Array
    variance: Array
    means: Array
    events: IntArray


class Risk(NamedTuple):
    """Who is at risk when, for kernels, and what else is known of the groups.

    Attributes
    ----------
    table
        For kernels.
    times
        The times of events, group after group.
    strata
        The label of each group's stratum.
    given
        The place of each row among those of its client, as they were given.
    clusters
        The number of each row's cluster.
    """

    table: Any
    times: Array
    strata: Array
    given: IntArray
    clusters: IntArray

    @classmethod
    def of(
        cls, times: Times, codes: IntArray, labels: Array, weights: Array, offset: Array, rows: Any, *, efron: bool,
        scale: float, clusters: IntArray,
    ) -> tuple[Risk, IntArray]:  # fmt: skip
        """Return the risk sets of rows that are sorted by client, and the order in which they are to be sorted."""
        from fpdfp._kernels.cox import Table

        given = rows.y.astype(np.int64)  # the row numbers that went in
        time, entry, stratum = times.time[given], times.entry[given], codes[given]
        weights, offset = weights[given], offset[given]
        happened = times.event[given] & (weights > 0)
        client = np.repeat(np.arange(len(rows.offsets) - 1), np.diff(rows.offsets))
        order = np.lexsort((time, stratum, client))
        starts = np.flatnonzero(np.diff(client[order], prepend=-1) | np.diff(stratum[order], prepend=-1))
        ends = np.append(starts[1:], len(order))
        first, last, event = (np.empty(len(order), dtype=np.int64) for _ in range(3))
        moments, counts, masses, numbers = [], [], [], [0]
        for a, b in zip(starts, ends, strict=True):
            own = order[a:b].copy()
            found = np.unique(time[own[happened[own]]])
            begin, end = np.searchsorted(found, entry[own], "right"), np.searchsorted(found, time[own], "right")
            at = np.where(happened[own], end - 1, -1)
            end = np.where(happened[own], at, end)
            again = np.argsort(end, kind="stable")
            order[a:b] = own[again]
            first[a:b], last[a:b], event[a:b] = begin[again], end[again], at[again]
            with_event = at[at >= 0]
            moments.append(found)
            counts.append(np.bincount(with_event, minlength=len(found)))
            masses.append(np.bincount(with_event, weights[own[at >= 0]], minlength=len(found)))
            numbers.append(numbers[-1] + len(found))
        groups = np.searchsorted(client[order[starts]], np.arange(len(rows.offsets))).astype(np.int64)
        table = Table(
            first, last, event, weights[order], offset[order], np.concatenate(counts).astype(np.int64),
            np.concatenate(masses).astype(np.float64), np.append(starts, len(order)).astype(np.int64),
            np.array(numbers, dtype=np.int64), groups, efron, scale,
        )  # fmt: skip
        places = order - rows.offsets[client[order]]
        made = cls(table, np.concatenate(moments), labels[stratum[order[starts]]], places, clusters[given][order])
        return made, order

    def keep_rows(self, kept: Array) -> Risk:
        """Return the risk sets of some of the rows; those that are left out weigh nothing, and have no events."""
        table = self.table
        weights, event = table.weights * kept, np.where(kept, table.event, -1)
        group = np.repeat(np.arange(len(table.rows) - 1), np.diff(table.rows))
        places = (table.times[group] + event)[event >= 0]
        size = len(table.masses)
        changed = table._replace(
            weights=weights, event=event, counts=np.bincount(places, minlength=size).astype(np.int64),
            masses=np.bincount(places, weights[event >= 0], minlength=size).astype(np.float64),
        )  # fmt: skip
        return self._replace(table=changed)

    def saturation(self, client: int) -> float:
        """Return the least upper bound of the log-likelihood of a client over all linear forms.

        With c events at a time, of weights that sum to m, it is −m log m, and for Efron's ties −(m/c) log(c!/cᶜ) more.
        """
        table, groups = self.table, self.groups_of(client)
        own = slice(int(table.times[groups.start]), int(table.times[groups.stop]))
        masses, counts = (one[own][table.counts[own] > 0] for one in (table.masses, table.counts))
        found = -float(masses @ np.log(masses))
        if table.efron:
            found -= float(masses / counts @ (gammaln(counts + 1.0) - counts * np.log(counts)))
        return found

    def groups_of(self, client: int) -> range:
        return range(int(self.table.groups[client]), int(self.table.groups[client + 1]))

    def part(self, clients: IntArray) -> Risk:
        """Return the risk sets of some clients."""
        table = self.table
        groups = np.concatenate([np.array(self.groups_of(int(i)), dtype=np.int64) for i in clients])
        rows, times = _spans(table.rows, groups), _spans(table.times, groups)
        counts = [len(self.groups_of(int(i))) for i in clients]
        changed = table._replace(
            **{name: getattr(table, name)[rows] for name in ("first", "last", "event", "weights", "offset")},
            counts=table.counts[times],
            masses=table.masses[times],
            rows=_ends(np.diff(table.rows)[groups]),
            times=_ends(np.diff(table.times)[groups]),
            groups=_ends(counts),
        )
        return Risk(changed, self.times[times], self.strata[groups], self.given[rows], self.clusters[rows])


class Look:
    """A stratum of one client at a point."""

    def __init__(self, X: Any, risk: Risk, group: int, x: Array) -> None:
        from fpdfp._kernels import cox

        table, self.stratum = risk.table, risk.strata[group]
        a, b = table.rows[group : group + 2]
        s, e = table.times[group : group + 2]
        self.times, self.events = risk.times[s:e], table.counts[s:e]
        rows = dense(X[a:b])
        # Covariances do not change with what is subtracted, but lose fewer digits.
        self.centre = rows.mean(axis=0)
        self.X = rows - self.centre
        self.z = self.X @ x + table.offset[a:b]
        self.first, self.last, self.event = table.first[a:b], table.last[a:b], table.event[a:b]
        self.weights = table.weights[a:b]
        self.sets = np.empty((cox.SETS, e - s))
        self.weight = float(self.weights.sum())
        #: Minus twice the log-likelihood.
        self.deviance = 2.0 * float(cox.examine_group(table, group, self.z, self.sets))
        self.expected = np.empty(b - a)
        own = self.first, self.last, self.event, self.weights
        cox.expect(self.z, *own, self.sets, self.expected)
        self.without, self.own = np.empty((e - s, X.shape[1])), np.empty((e - s, X.shape[1]))
        cox.risk_means(self.X, self.z, *own, self.without, self.own)

    def information(self) -> Array:
        """The Hessian of minus the log-likelihood."""
        from fpdfp._kernels import cox

        twice, mixed, own = self.sets[[cox.BOTH_WITHOUT, cox.MIXED, cox.BOTH_WITH]]
        cross = (self.without * mixed[:, None]).T @ self.own
        gram = self.X.T @ (self.X * self.expected[:, None])
        gram -= (self.without * twice[:, None]).T @ self.without + (self.own * own[:, None]).T @ self.own
        gram -= cross + cross.T
        symmetric: Array = (gram + gram.T) / 2.0
        return symmetric

    def scores(self) -> Array:
        """The score residual of each row, times its weight, in the order of rows here."""
        from fpdfp._kernels import cox

        s = self.sets
        happened, at = self.event >= 0, np.maximum(self.event, 0)
        mass = s[cox.WITHOUT] * s[cox.HAZARD] + s[cox.WITH] * s[cox.OWN]
        middle = self._mix(s[cox.WITHOUT] * s[cox.HAZARD] / mass, s[cox.WITH] * s[cox.OWN] / mass)
        own = self._mix(s[cox.MIXED] / s[cox.WITH], s[cox.BOTH_WITH] / s[cox.WITH])
        means = self._hazard_means() / s[cox.HAZARD][:, None]
        sums, past = np.empty((2, len(self.z))), np.empty(self.X.shape)
        cox.hazard_means(self.first, self.last, s, means, sums, past)
        before = np.where(
            sums[1] > 0, self.weights * sums[1] * np.exp(np.where(sums[1] > 0, self.z + sums[0], 0.0)), 0.0
        )
        out: Array = (self.weights * happened - self.expected)[:, None] * self.X + before[:, None] * past
        if len(self.times):
            now = self.weights * np.exp(np.where(happened, self.z - s[cox.TOP][at], 0.0))
            out += happened[:, None] * (now[:, None] * own[at] - self.weights[:, None] * middle[at])
        return out

    def spread(self) -> Array:
        """The second derivative of minus the log-likelihood in each linear form: Σ c p(1 − p) over risk sets."""
        from fpdfp._kernels import cox

        s, at = self.sets, np.maximum(self.event, 0)
        if not len(self.times):
            return np.zeros(len(self.z))
        with np.errstate(all="ignore"):  # far away, curvature is 0 or not known
            base = s[cox.TOP].min()
            fall, rise = np.exp(2.0 * (base - s[cox.TOP])), np.square(self.weights * np.exp(self.z - base))
            sums = np.append(0.0, np.cumsum(fall * s[cox.VARIANCE]))
            own = np.where(self.event >= 0, (fall * s[cox.BOTH_WITH] / s[cox.WITH] ** 2)[at], 0.0)
            found: Array = self.expected - rise * (sums[self.last] - sums[self.first] + own)
        return np.maximum(found, 0.0)

    def _mix(self, without: Array, own: Array) -> Array:
        mixed: Array = without[:, None] * self.without + own[:, None] * self.own
        return mixed

    def _hazard_means(self) -> Array:
        """The hazard at each time, without its exponent, times the mean of the rows at risk."""
        from fpdfp._kernels import cox

        s = self.sets
        without = s[cox.BOTH_WITHOUT] / np.where(s[cox.WITHOUT] > 0, s[cox.WITHOUT], 1.0)
        return self._mix(without, s[cox.HAZARD] - without)

    def hazards(self, x: Array) -> Hazards:
        """The baseline hazard."""
        from fpdfp._kernels import cox

        s = self.sets
        # Of a row of zeros: the linear forms here are those of centred rows.
        factor = np.exp(-s[cox.TOP] - float(self.centre @ x))
        hazard = s[cox.HAZARD] * factor
        means = factor[:, None] * self._hazard_means() + hazard[:, None] * self.centre
        return Hazards(self.stratum, self.times, hazard, s[cox.VARIANCE] * factor**2, means, self.events)


def dense(X: Any) -> Array:
    dense: Array = X if isinstance(X, np.ndarray) else X.toarray()
    return dense


def _spans(offsets: IntArray, chosen: IntArray) -> IntArray:
    """Return the numbers of everything in some of the spans between offsets."""
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(offsets[i], offsets[i + 1]) for i in chosen)])


def _ends(lengths: Any) -> IntArray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
