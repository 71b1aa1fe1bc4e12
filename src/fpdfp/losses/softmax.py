"""The softmax loss: logistic regression with several classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fpdfp._numbers import kullback_leibler
from fpdfp._typing import Array, IntArray
from fpdfp.losses import _rows
from fpdfp.losses._classes import add_up, class_blocks, class_sums, gram
from fpdfp.losses._duals import ManySums, evaluate_classes
from fpdfp.losses._linear import DENSE_HESSIAN, LinearModel, _names_of
from fpdfp.losses.base import InformationSums


class Softmax(LinearModel):
    r"""Multinomial logistic losses with a ridge, one for each client; x has a row for each class.

    .. math:: f_i(x) = \frac{1}{n_i} \sum_j \Big( \log \sum_k \exp(a_j^T x_k) - a_j^T x_{y_j} \Big)
              + \frac{1}{2} \sum_{k,m} l_{2,m} x_{km}^2

    over the rows j that client i holds. Its Hessian is at most :math:`\frac{1}{2} I \otimes A_i^T A_i / n_i` plus the
    ridge, and :meth:`curvatures` are the blocks of that, the same for each class.

    Parameters
    ----------
    X
        The rows of all clients: a dense matrix or a SciPy sparse one.
    y
        Their classes, integers from 0.
    clients
        Which client holds each row: any labels, numbered in sorted order. None means one client.
    l2
        The weight of the ridge: a number, or one for each feature (0 for an intercept, for instance).
    n_clients
        If given, ``clients`` must be integers below it, and each must hold a row.
    feature_names
        The names of the columns; by default those of a table. Sites of one federation must agree on them.
    dtype
        float32 or float64: the precision of the rows, and with them of x, gradients and messages. By default that of X.
        Sums that must not lose digits, objectives and certificates are float64 in any case.
    weights
        The weight of each row, 1 by default. With weights there are no mini-batches.
    n_classes
        The number of classes; by default as many as ``y`` has. Needed where a class has no rows.

    References
    ----------
    D. Böhning, "Multinomial logistic regression algorithm", Annals of the Institute of Statistical Mathematics 44
    (1992).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.Softmax(np.eye(3), [0, 2, 1], l2=0.1)
    >>> losses
    Softmax(dense 3 × 3, 3 classes, 1 clients, l2=0.1)
    >>> losses.values(np.zeros((3, 3)), np.array([0]))  # log 3
    array([1.09861229])
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.01))
    >>> fpdfp.solve(problem, rounds=30).x.argmax(axis=0)
    array([0, 2, 1])
    """

    curvature = 0.5
    steepest = 1.0

    def __init__(
        self,
        X: Any,
        y: Any,
        clients: Any = None,
        l2: Any = 0.0,
        n_clients: int | None = None,
        n_classes: int | None = None,
        *,
        weights: Any = None,
        feature_names: Sequence[str] | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        self._hold(_rows.collect(X, y, clients, n_clients, dtype, weights), l2, _names_of(X, feature_names))
        if self._rows.weights is not None:
            most = float(self._rows.weights.max())
            self.curvature, self.steepest = 0.5 * most, most
        self.n_classes = _rows.count_classes(self._rows.y, n_classes)
        self.shape = (self.n_classes, self.n_features)

    @property
    def _size(self) -> str:
        return f"{super()._size}, {self.n_classes} classes"

    @property
    def supports_batches(self) -> bool:
        return self._rows.weights is None

    def _row_weights(self, weights: Array) -> Array:
        shares = super()._row_weights(weights)
        return shares if self._rows.weights is None else shares * self._rows.weights

    def _kernel(self, name: str) -> Callable[..., None]:
        if self._rows.weights is not None:
            return self._weighted_values if name == "values" else self._weighted_gradients
        from fpdfp._kernels import softmax

        kernel: Callable[..., None] = getattr(softmax, name)
        return kernel

    def _weighted_values(self, *given: Any) -> None:
        """Write the values of clients whose rows have weights; the arguments end as those of a kernel do."""
        from scipy.special import logsumexp

        clients, x, ridge, out = given[-4:]
        for place, client in enumerate(clients):
            z, y, weights = self._own_forms(int(client), x)
            losses = logsumexp(z, axis=1) - z[np.arange(len(y)), y]
            out[place] = float(weights @ losses) / len(y) + ridge

    def _weighted_gradients(self, *given: Any) -> None:
        """The same for gradients."""
        clients, _, x, l2, out = given[-5:]
        for place, client in enumerate(clients):
            point = x[0] if len(x) == 1 else x[place]
            z, y, weights = self._own_forms(int(client), point)
            slopes = self._slopes(z, y) * (weights / len(y))[:, None]
            out[place] = np.asarray(self._rows_of(int(client)).T @ slopes).T + l2 * point

    def _own_forms(self, client: int, x: Array) -> tuple[Array, IntArray, Array]:
        """Return the linear forms of a client's rows, their classes and weights."""
        own = slice(int(self._rows.offsets[client]), int(self._rows.offsets[client + 1]))
        assert self._rows.weights is not None
        z: Array = np.asarray(self._rows.X[own] @ x.T, dtype=np.float64)
        return z, self._rows.y[own].astype(np.int64), self._rows.weights[own]

    def evaluate_many(self, points: Array, held: IntArray, labels: IntArray, clients: IntArray) -> ManySums:
        self.check(np.ascontiguousarray(points[0], dtype=self.dtype), clients, shared=True)
        return evaluate_classes(self, points, held, labels, clients, None)

    def class_forms(self, x: Array, rows: slice = slice(None)) -> Array:
        """Return what the softmax of is the chances of classes, a column for each, of some rows."""
        forms: Array = np.asarray(self._rows.X[rows] @ x.T, dtype=np.float64)
        return forms

    @property
    def ridge_of_x(self) -> Array:
        return np.broadcast_to(self._ridge, self.shape)

    def informations(self, x: Array, clients: IntArray) -> Array | None:
        """Return the Hessian of each client, with the entries of x in the order of its rows."""
        if x.size > DENSE_HESSIAN:
            return None
        return np.stack([self._hessian_of(x, int(client)) for client in clients])

    def _hessian_of(self, x: Array, client: int) -> Array:
        X, weights = self._rows_of(client), np.ones(self.sizes[client])
        if self._rows.weights is not None:
            weights = self._rows.weights[self._rows.offsets[client] : self._rows.offsets[client + 1]]
        chances, scale = _softmax(np.asarray(X @ x.T, dtype=np.float64)), weights / self.sizes[client]
        found = class_blocks(self.n_classes, self.n_features, lambda a, b: gram(X, scale * _bend(chances, a, b)))
        found[np.diag_indices(x.size)] += self.ridge_of_x.ravel()
        return found

    def hessian(self, x: Array, weights: Array) -> Array | None:
        classes, d = self.shape
        if classes * d > DENSE_HESSIAN:
            return None
        probabilities, scale = self._probabilities(x), self._row_weights(weights)
        hessian = class_blocks(classes, d, lambda k, m: self._weighted_gram(scale * _bend(probabilities, k, m)))
        hessian[np.diag_indices_from(hessian)] += np.tile(float(weights.sum()) * self._ridge, classes)
        return hessian

    def sums_at(self, x: Array, clients: IntArray, *, robust: bool) -> InformationSums | None:
        return add_up([self._sums_of(x, int(client), robust) for client in clients])

    def _sums_of(self, x: Array, client: int, robust: bool) -> tuple[Array, ...]:
        from scipy.special import logsumexp

        own = slice(int(self._rows.offsets[client]), int(self._rows.offsets[client + 1]))
        X, y = self._rows.X[own], self._rows.y[own].astype(np.int64)
        weights = np.ones(len(y)) if self._rows.weights is None else self._rows.weights[own]
        z = np.asarray(X @ x.T, dtype=np.float64)
        lost, chances = logsumexp(z, axis=1) - z[np.arange(len(y)), y], _softmax(z)
        return class_sums(
            weights, lost, self._slopes(z, y), lambda a, b: _bend(chances, a, b), robust,
            lambda slopes: np.asarray(X.T @ slopes).T.ravel(),
            lambda bends: class_blocks(self.n_classes, self.n_features, lambda a, b: gram(X, bends(a, b))),
        )  # fmt: skip

    def hessian_product(self, x: Array, direction: Array, weights: Array) -> Array:
        X, probabilities = self._rows.X, self._probabilities(x)
        change = _covariance(probabilities, X @ direction.T)
        product: Array = (X.T @ (self._row_weights(weights)[:, None] * change)).T
        return product + float(weights.sum()) * self._ridge * direction

    def _probabilities(self, x: Array) -> Array:
        """The probability of each class at each row."""
        return _softmax(self._rows.X @ x.T.astype(np.float64))

    def _slopes(self, z: Array, y: Array) -> Array:
        slopes = _softmax(z)
        slopes[np.arange(len(z)), y.astype(np.int64)] -= 1.0
        return slopes

    def _curve(self, z: Array, y: Array, change: Array) -> Array:
        return _covariance(_softmax(z), change)

    def _young_gaps(self, z: Array, y: Array, change: Array | None, scale: float) -> Array:
        # θ is what the probabilities p have more than the class of the row: φ + φ* − ⟨z, θ⟩ is the divergence from p.
        moved = (scale - 1.0) * self._slopes(z, y) - (0.0 if change is None else scale * change)
        # Probabilities that rounding keeps from adding up to 1 are scaled, which moves ⟨z, θ⟩ and the divergence.
        scaled = np.abs(moved.sum(axis=1)) * (1.0 + np.ptp(z, axis=1))
        gaps: Array = kullback_leibler(moved, _softmax(z)).sum(axis=1) + scaled
        return gaps


def _softmax(z: Array) -> Array:
    """The probability of each class, given the linear forms of rows."""
    from scipy.special import softmax

    probabilities: Array = softmax(z, axis=1)
    return probabilities


def _bend(chances: Array, a: int, b: int) -> Array:
    """The second derivative of each row's loss in the linear forms of two classes."""
    bend: Array = chances[:, a] * (float(a == b) - chances[:, b])
    return bend


def _covariance(probabilities: Array, change: Array) -> Array:
    """(diag(p) − ppᵀ) times a change of the linear forms, for each row.

    What all classes have in common drops out first: it may be very large, and rows of the product add up to 0.
    """
    likeliest = probabilities.argmax(axis=1)[:, None]
    apart = change - np.take_along_axis(change, likeliest, axis=1)
    product: Array = probabilities * (apart - (probabilities * apart).sum(axis=1, keepdims=True))
    np.put_along_axis(product, likeliest, 0.0, axis=1)
    np.put_along_axis(product, likeliest, -product.sum(axis=1, keepdims=True), axis=1)
    return product
