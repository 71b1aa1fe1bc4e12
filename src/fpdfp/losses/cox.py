"""The partial likelihood of Cox's proportional hazards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from scipy.special import gammaln

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError
from fpdfp.linops.base import LinOp
from fpdfp.linops.maps import Diagonal
from fpdfp.losses.base import InformationSums, Losses
from fpdfp.losses.linear import DENSE_HESSIAN, LinearModel, lower_triangle
from fpdfp.losses.rows import stack
from fpdfp.rng import Draws
from fpdfp.survival.response import Times

Ties = Literal["efron", "breslow"]
TIES: tuple[Ties, ...] = ("efron", "breslow")


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
    """The risk sets of the groups, for kernels, with their sizes and weights.

    Attributes
    ----------
    table
        For kernels.
    times
        The times of events, group after group.
    strata
        The label of each group's stratum.
    given
        The place of each row among the rows of its client, in the given order.
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
        """Return the risk sets of some of the rows; those that are excluded weigh nothing, and have no events."""
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
        rows = _dense(X[a:b])
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

    def skewness(self, root: Array, *, efron: bool) -> Array:
        """Half the sum over events of E[|Rᵀ(a − ā)|² (a − ā)], with a row a at risk and its mean ā, and a matrix R.

        Third central moments are the derivatives of the information: a pass over the rows at risk for each event time,
        and with Efron's ties for each event.
        """
        out = np.zeros(self.X.shape[1])
        happened = self.event >= 0
        for time, events in enumerate(self.events.tolist()):
            own = happened & (self.event == time)
            if not own.any():
                continue
            risk = ((self.first <= time) & (time < self.last)) | own
            rows, chances = self.X[risk], self.weights[risk] * np.exp(self.z[risk] - self.z[risk].max())
            steps = events if efron else 1
            for step in range(steps):
                p = chances * (1.0 - step / events * own[risk])
                p /= p.sum()
                centred = rows - p @ rows
                out += 0.5 * self.weights[own].sum() / steps * ((p * np.square(centred @ root).sum(axis=1)) @ centred)
        return out

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


def _dense(X: Any) -> Array:
    found: Array = X if isinstance(X, np.ndarray) else X.toarray()
    return found


def _spans(offsets: IntArray, chosen: IntArray) -> IntArray:
    """Return the numbers of everything in some of the spans between offsets."""
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(offsets[i], offsets[i + 1]) for i in chosen)])


def _ends(lengths: Any) -> IntArray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


class Cox(LinearModel):
    r"""Minus the partial log-likelihood of Cox, one for each client, with a ridge.

    .. math:: f_i(x) = \frac{1}{n_i} \sum_{j \text{ with an event}} w_j \Big( \log \sum_{k \in R_j} w_k e^{z_k} - z_j
              \Big) + \frac{1}{2} \sum_m l_{2,m} x_m^2, \qquad z_j = a_j^T x + o_j,

    over the n_i rows that client i holds. The risk set R_j has the rows of the same client and stratum that entered
    before the time of row j and have not left. Every client has a baseline hazard of its own, and no row is compared
    with another client's.

    The Hessian of each term is a covariance of rows in a risk set, hence at most the largest squared distance of a row
    from their middle. Gradients have a Lipschitz constant, though a large one. :class:`fpdfp.ProximalNewton` does not
    use it.

    Parameters
    ----------
    X, clients, l2, n_clients, feature_names
        As in :class:`LeastSquares`.
    time
        When each row leaves.
    event
        Whether that is an event (1 or True), or the row is censored.
    entry
        When each row enters, if that is after the start (left truncation). A subject whose covariates change has a row
        for each stretch of time: entry, time, and the event in the last one.
    ties
        How events at the same time are treated: ``"efron"`` or ``"breslow"``.
    strata
        Labels of strata, each with a baseline hazard of its own, in addition to the clients.
    clusters
        Labels of rows that belong together, of one subject for instance: :meth:`sums_at` adds up their scores. Those of
        different clients are apart.
    weights
        The weight of each row, at least 0.
    weight_scale
        What the log-likelihood is multiplied with, so that the balance with a penalty does not depend on the size of
        weights.
    offset
        What is added to the linear form of each row.

    References
    ----------
    B. Efron, "The efficiency of Cox's likelihood function for censored data", JASA 72 (1977).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.Cox(np.array([[1.0], [0.0], [2.0]]), time=[1.0, 2.0, 3.0], event=[1, 1, 0])
    >>> losses
    Cox(dense 3 × 1, 2 events, efron, 1 clients, l2=0)
    >>> losses.values(np.zeros(1), np.array([0])) * 3  # log 3 + log 2
    array([1.79175947])
    """

    lower_bound = -np.inf
    by_forms = False

    def __init__(
        self,
        X: Any,
        time: Any,
        event: Any,
        clients: Any = None,
        *,
        entry: Any = None,
        ties: Ties = "efron",
        strata: Any = None,
        clusters: Any = None,
        weights: Any = None,
        weight_scale: float = 1.0,
        offset: Any = None,
        l2: Any = 0.0,
        n_clients: int | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        times = Times.of(time, event, entry)
        rows = len(times.time)
        if np.shape(X)[:1] != (rows,):
            raise ArgumentError("X", f"must have a row for each of the {rows} times, got shape {np.shape(X)}")
        self.ties = _checks.choice("ties", ties, TIES)
        super().__init__(X, np.arange(rows), clients, l2, n_clients, feature_names=feature_names, dtype=np.float64)
        labels, codes = np.array([0]), np.zeros(rows, dtype=np.int64)
        if strata is not None:
            labels, codes = _checks.labels("strata", strata)
            if codes.shape != (rows,):
                raise ArgumentError("strata", f"must have one label for each of the {rows} rows, got {codes.shape}")
        w = _vector("weights", weights, rows, 1.0)
        if (w < 0).any():
            raise ArgumentError("weights", f"must be at least 0, got {w.min():g}")
        if weights is None:
            self.lower_bound = 0.0
        self.weight_scale = _checks.real("weight_scale", weight_scale, positive=True)
        shifts = _vector("offset", offset, rows, 0.0)
        together: IntArray = np.arange(rows)
        if clusters is not None:
            together = _checks.labels("clusters", clusters)[1]
            if together.shape != (rows,):
                raise ArgumentError(
                    "clusters", f"must have one label for each of the {rows} rows, got {together.shape}"
                )
        self._risk, order = Risk.of(
            times, codes, labels, w, shifts, self._rows, efron=self.ties == "efron", scale=self.weight_scale,
            clusters=together,
        )  # fmt: skip
        # Rows sorted by client, as they come, are sorted within clients as well.
        self._rows = self._rows._replace(X=self._rows.X[order], y=(self._risk.table.event >= 0).astype(np.float64))

    @classmethod
    def from_clients(cls, parts: Any, targets: Any, l2: Any = 0.0, **others: Any) -> Self:
        """Build the losses from one matrix and one response for each client.

        A response is a matrix with the columns (time, event) or (start, stop, event), or a structured array; see
        :meth:`fpdfp.survival.Times.read`.

        >>> import numpy as np
        >>> import fpdfp
        >>> rows, response = np.ones((3, 2)), [[1.0, 1], [2.0, 0], [3.0, 1]]
        >>> fpdfp.losses.Cox.from_clients([rows, rows], [response, response])
        Cox(dense 6 × 2, 4 events, efron, 2 clients, l2=0)
        """
        read = [Times.read(target) for target in targets]
        X, _, owner = stack(parts, [one.time for one in read])
        time, event, entry = (np.concatenate(one) for one in zip(*read, strict=True))
        return cls(X, time, event, owner, entry=entry, l2=l2, **others)

    @property
    def _size(self) -> str:
        return f"{super()._size}, {int(self._risk.table.counts.sum())} events, {self.ties}"

    def part(self, clients: IntArray) -> Self:
        made = super().part(clients)
        made._risk = self._risk.part(clients)
        return made

    def keep_rows(self, kept: Array) -> Self:
        made = self._without_caches()
        made._risk = self._risk.keep_rows(kept)
        return made

    @property
    def masses(self) -> Array:
        weights: Array = self._risk.table.weights
        return weights

    def place_rows(self, values: Array) -> Array:
        first = np.repeat(self._rows.offsets[:-1], self.sizes)
        placed: Array = values[first + self._risk.given]
        return placed

    @property
    def counted(self) -> Array:
        """The weights of events: what is said of the others is all in the risk sets of these."""
        weights: Array = np.where(self._risk.table.event >= 0, self.masses, 0.0)
        return weights

    def saturations(self, clients: IntArray) -> Array:
        """Return the log-likelihood of each client if all events were certain, but for those at the same time."""
        found = [self._risk.saturation(int(client)) for client in clients]
        return np.array(found) * self.weight_scale / self.sizes[clients]

    @functools.cached_property
    def _kernels(self) -> dict[str, Callable[..., None]]:
        from fpdfp._kernels import cox

        X = self._rows.X
        matrix = (None, X.data, X.indices, X.indptr) if self._sparse else (X, None, None, None)
        given = (*matrix, np.arange(X.shape[0]), self._risk.table)
        return {
            "values": functools.partial(cox.values, *given),
            "gradients": functools.partial(_write_gradients, given),
        }

    def gradients(
        self, x: Array, clients: IntArray, batch_size: int | None = None, draws: Draws | None = None
    ) -> Array:
        if batch_size is not None:
            raise ArgumentError("batch_size", "must be None: risk sets need all rows of a client")
        return super().gradients(x, clients)

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        d = self.n_features
        if d > DENSE_HESSIAN:
            return None
        x = np.array(x, dtype=np.float64)
        self.check(x, clients, shared=True)
        out = np.zeros((len(clients), d, d))
        for row, client in enumerate(clients):
            for group in self._risk.groups_of(int(client)):
                out[row] += self._look(group, x).information()
            out[row] *= self.weight_scale / self.sizes[client]
            out[row][np.diag_indices(d)] += self._ridge
        return out

    def hessian(self, x: Array, weights: Array) -> Array | None:
        hessians = self.hessians(x, np.arange(self.n_clients))
        return None if hessians is None else np.einsum("i,ijk->jk", weights, hessians)

    def hessian_product(self, x: Array, direction: Array, weights: Array) -> Array:
        hessian = self.hessian(x, weights)
        if hessian is None:
            return Losses.hessian_product(self, x, direction, weights)
        product: Array = hessian @ direction
        return product

    def sums_at(self, x: Array, clients: IntArray, *, robust: bool) -> InformationSums | None:
        """Return what standard errors need; the deviance is minus twice the partial log-likelihood."""
        if self.n_features > DENSE_HESSIAN:
            return None
        x = np.array(x, dtype=np.float64)
        self.check(x, clients, shared=True)
        numbers, scores, hessians, meats = [], [], [], []
        for client in map(int, clients):
            looks = [self._look(group, x) for group in self._risk.groups_of(client)]
            parts = np.concatenate([look.scores() for look in looks])
            weight, deviance = (sum(getattr(look, name) for look in looks) for name in ("weight", "deviance"))
            numbers.append([float(self.sizes[client]), weight, 0.0, deviance, 0.0])
            scores.append(parts.sum(axis=0))
            number = np.unique(self._risk.clusters[self._place(client)], return_inverse=True)[1]
            if number.max() + 1 < len(number):
                sums = np.zeros((number.max() + 1, self.n_features))
                np.add.at(sums, number, parts)
                parts = sums
            hessians.append(lower_triangle(np.sum([look.information() for look in looks], axis=0)))
            meats.append(lower_triangle(parts.T @ parts) if robust else np.zeros(0))
        return InformationSums(*map(np.array, (numbers, scores, hessians, meats)))

    def jeffreys_at(self, x: Array, clients: IntArray, inverse: Array) -> Array | None:
        if self.n_features > DENSE_HESSIAN:
            return None
        x = np.array(x, dtype=np.float64)
        self.check(x, clients, shared=True)
        values, vectors = np.linalg.eigh(inverse)  # 0 for columns that others determine
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        out = np.zeros((len(clients), self.n_features))
        for row, client in enumerate(map(int, clients)):
            for group in self._risk.groups_of(client):
                out[row] += self._look(group, x).skewness(root, efron=self._risk.table.efron)
        return out

    def scores(self, x: Array, client: int) -> Array:
        """Return the score residual of each row of a client, times its weight, in the order of its rows.

        They add up to minus the gradient of n_i f_i, without the ridge and ``weight_scale``. Sums of their products,
        over rows or over subjects with several rows, are the middle of a robust covariance.
        """
        x = np.array(x, dtype=np.float64)
        self.check(x, np.array([client]), shared=True)
        parts = [self._look(group, x).scores() for group in self._risk.groups_of(client)]
        out = np.empty((int(self.sizes[client]), self.n_features))
        out[self._risk.given[self._place(client)]] = np.concatenate(parts)
        return out

    def responses(self, x: Array, client: int) -> tuple[Array, Array]:
        """Return how many events are expected of each row of a client, and how much that responds to its linear form.

        The rows are in the order in which they are kept.
        """
        looks = [self._look(group, x) for group in self._risk.groups_of(client)]
        return np.concatenate([look.expected for look in looks]), np.concatenate([look.spread() for look in looks])

    def cluster_sizes(self, client: int) -> IntArray:
        """Return how many rows each cluster of a client has."""
        sizes: IntArray = np.unique(self._risk.clusters[self._place(client)], return_counts=True)[1]
        return sizes

    def strata_sizes(self, client: int) -> IntArray:
        """Return how many rows each stratum of a client has."""
        sizes: IntArray = np.diff(self._risk.table.rows)[self._risk.groups_of(client)]
        return sizes

    def hazards(self, x: Array, client: int) -> list[Hazards]:
        """Return the baseline hazard of each stratum of a client, given the coefficients."""
        x = np.array(x, dtype=np.float64)
        self.check(x, np.array([client]), shared=True)
        return [self._look(group, x).hazards(x) for group in self._risk.groups_of(client)]

    def _look(self, group: int, x: Array) -> Look:
        return Look(self._rows.X, self._risk, group, x)

    @property
    def smooth(self) -> bool:
        return True

    def lipschitz(self) -> Array:
        return self._lipschitz

    @functools.cached_property
    def _lipschitz(self) -> Array:
        """The events of each client times the largest squared distance of a row from the middle of its stratum."""
        return self._spread(lambda X: X) + float(self._ridge.max())

    def _spread(self, change: Callable[[Any], Any]) -> Array:
        out = np.zeros(self.n_clients)
        table = self._risk.table
        for client in range(self.n_clients):
            for group in self._risk.groups_of(client):
                X = change(_dense(self._rows.X[table.rows[group] : table.rows[group + 1]]))
                middle = (X.max(axis=0) + X.min(axis=0)) / 2.0
                mass = table.masses[table.times[group] : table.times[group + 1]].sum()
                out[client] += mass * np.square(X - middle).sum(axis=1).max()
        return out * self.weight_scale / self.sizes

    def lipschitz_in(self, factor: LinOp) -> Array:
        if isinstance(factor, Diagonal):
            scales = self._scales(factor)
            return self._spread(lambda X: X * scales) + float((self._ridge * scales**2).max())
        return super().lipschitz_in(factor)


def _vector(name: str, value: Any, rows: int, default: float) -> Array:
    """Return a number for each row."""
    if value is None:
        return np.full(rows, default)
    return _checks.float_array(name, value, dtype=np.float64, shape=(rows,))


def _write_gradients(given: Any, clients: IntArray, drawn: None, x: Array, l2: Array, out: Array) -> None:
    """Call the kernel with the arguments of other linear models, without mini-batches."""
    from fpdfp._kernels import cox

    kernel: Callable[..., None] = cox.gradients
    kernel(*given, clients, x, l2, out)
