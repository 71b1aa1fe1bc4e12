"""The partial likelihood of Cox's proportional hazards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError
from fpdfp.linops.base import LinOp
from fpdfp.linops.maps import Diagonal
from fpdfp.losses._linear import DENSE_HESSIAN, LinearModel
from fpdfp.losses._risk import Hazards, Look, Risk, dense
from fpdfp.losses._rows import stack
from fpdfp.losses.base import Form, InformationSums, Losses
from fpdfp.rng import Draws
from fpdfp.survival.response import Times

Ties = Literal["efron", "breslow"]
TIES: tuple[Ties, ...] = ("efron", "breslow")


class Cox(LinearModel):
    r"""Minus the partial log-likelihood of Cox, one for each client, with a ridge.

    .. math:: f_i(x) = \frac{1}{n_i} \sum_{j \text{ with an event}} w_j \Big( \log \sum_{k \in R_j} w_k e^{z_k} - z_j
              \Big) + \frac{1}{2} \sum_m l_{2,m} x_m^2, \qquad z_j = a_j^T x + o_j,

    over the n_i rows that client i holds. The risk set R_j has the rows of the same client and stratum that entered
    before the time of row j and have not left: every client has a baseline hazard of its own, and no row is compared
    with another client's.

    The Hessian of each term is a covariance of rows in a risk set, hence at most the largest squared distance of a row
    from their middle: gradients have a Lipschitz constant, though a large one. :class:`fpdfp.ProximalNewton` does not
    use it.

    Parameters
    ----------
    X
        The rows of all clients: a dense matrix or a SciPy sparse one.
    time
        When each row leaves.
    event
        Whether that is an event (1 or True), or the row is censored.
    clients
        Which client holds each row: any labels, numbered in sorted order. None means one client.
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
    l2
        The weight of the ridge: a number, or one for each feature.
    n_clients
        If given, ``clients`` must be integers below it, and each must hold a row.
    feature_names
        The names of the columns; by default those of a table. Sites of one federation must agree on them.

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

    @property
    def form(self) -> Form:
        return "other"

    @property
    def supports_batches(self) -> bool:
        return False

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
        matrix = (None, X.data, X.indices, X.indptr) if self._rows.sparse else (X, None, None, None)
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
        some = np.tril_indices(self.n_features)
        numbers, scores, hessians, meats = [], [], [], []
        for client in map(int, clients):
            looks = [self._look(group, x) for group in self._risk.groups_of(client)]
            parts = np.concatenate([look.scores() for look in looks])
            weight, deviance = (sum(getattr(look, name) for look in looks) for name in ("weight", "deviance"))
            numbers.append([float(self.sizes[client]), weight, 0.0, deviance, 0.0])
            scores.append(parts.sum(axis=0))
            first, last = self._rows.offsets[client : client + 2]
            number = np.unique(self._risk.clusters[first:last], return_inverse=True)[1]
            if number.max() + 1 < len(number):
                sums = np.zeros((number.max() + 1, self.n_features))
                np.add.at(sums, number, parts)
                parts = sums
            hessians.append(np.sum([look.information() for look in looks], axis=0)[some])
            meats.append((parts.T @ parts)[some] if robust else np.zeros(0))
        return InformationSums(*map(np.array, (numbers, scores, hessians, meats)))

    def scores(self, x: Array, client: int) -> Array:
        """Return the score residual of each row of a client, times its weight, in the order of its rows.

        They add up to minus the gradient of n_i f_i, without the ridge and ``weight_scale``. Sums of their products,
        over rows or over subjects with several rows, are the middle of a robust covariance.
        """
        x = np.array(x, dtype=np.float64)
        self.check(x, np.array([client]), shared=True)
        parts = [self._look(group, x).scores() for group in self._risk.groups_of(client)]
        out = np.empty((int(self.sizes[client]), self.n_features))
        first, last = self._rows.offsets[client : client + 2]
        out[self._risk.given[first:last]] = np.concatenate(parts)
        return out

    def responses(self, x: Array, client: int) -> tuple[Array, Array]:
        """Return how many events are expected of each row of a client, and how much that responds to its linear form.

        The rows are in the order in which they are kept.
        """
        looks = [self._look(group, x) for group in self._risk.groups_of(client)]
        return np.concatenate([look.expected for look in looks]), np.concatenate([look.spread() for look in looks])

    def cluster_sizes(self, client: int) -> IntArray:
        """Return how many rows each cluster of a client has."""
        first, last = self._rows.offsets[client : client + 2]
        sizes: IntArray = np.unique(self._risk.clusters[first:last], return_counts=True)[1]
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
                X = change(dense(self._rows.X[table.rows[group] : table.rows[group + 1]]))
                middle = (X.max(axis=0) + X.min(axis=0)) / 2.0
                mass = table.masses[table.times[group] : table.times[group + 1]].sum()
                out[client] += mass * np.square(X - middle).sum(axis=1).max()
        return out * self.weight_scale / self.sizes

    def lipschitz_in(self, factor: LinOp) -> Array:
        if isinstance(factor, Diagonal):
            scales = self._scales(factor)
            return self._spread(lambda X: X * scales) + float((self._ridge * scales**2).max())
        return Losses.lipschitz_in(self, factor)

    def curvatures(self, clients: IntArray) -> None:
        """Return None: no matrix is known that bounds the Hessian everywhere."""

    def curvature_diagonals(self, clients: IntArray) -> None:
        """Return None, as for ``curvatures``."""

    def curvature_products(self, clients: IntArray, vectors: Array) -> None:
        """Return None, as for ``curvatures``."""

    def slope_bounds(self, clients: IntArray) -> None:
        """Return None: none are known."""

    @property
    def has_duals(self) -> bool:
        return False  # the loss is no sum over rows

    def batch_smoothness(self, batch_size: int, factor: LinOp | None = None) -> Array:
        return np.zeros(self.n_clients)


def _vector(name: str, value: Any, rows: int, default: float) -> Array:
    """Return a number for each row."""
    if value is None:
        return np.full(rows, default)
    return _checks.float_array(name, value, dtype=np.float64, shape=(rows,))


def _write_gradients(given: Any, clients: IntArray, drawn: None, x: Array, l2: Array, out: Array) -> None:
    """Call the kernel as that of other linear models is called; there are no mini-batches."""
    from fpdfp._kernels import cox

    kernel: Callable[..., None] = cox.gradients
    kernel(*given, clients, x, l2, out)
