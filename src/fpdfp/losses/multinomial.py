"""The multinomial logit: coefficients of every class but one, against that one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError
from fpdfp.losses._classes import ClassModel, Pairs, class_blocks, gram
from fpdfp.losses._duals import ManySums, evaluate_classes
from fpdfp.losses.base import Form


class Multinomial(ClassModel):
    r"""Multinomial logistic losses with a reference class and a ridge, one for each client; x is a vector.

    .. math:: f_i(x) = \frac{1}{n_i} \sum_j w_j \Big( \log \sum_{k=0}^{K-1} \exp(a_j^T x_k) - a_j^T x_{y_j} \Big)
              + \frac{1}{2} \sum_{k,m} l_{2,m} x_{km}^2, \qquad x_0 = 0,

    over the rows j that client i holds. x has the coefficients of the classes 1, …, K − 1, one after the other.
    Unlike :class:`Softmax`, whose coefficients are determined up to a constant, it has a single minimum where there is
    one, and standard errors.

    Parameters
    ----------
    X
        The rows of all clients: a dense matrix or a SciPy sparse one.
    y
        Their classes, integers from 0; 0 is the reference.
    clients
        Which client holds each row: any labels, numbered in sorted order. None means one client.
    l2
        The weight of the ridge: a number, or one for each feature (0 for an intercept, for instance).
    n_clients
        If given, ``clients`` must be integers below it, and each must hold a row.
    n_classes
        The number of classes; by default as many as ``y`` has. Needed where a class has no rows.
    weights
        The weight of each row, 1 by default.
    weight_scale
        What weights are multiplied with in the losses, and not in deviances and likelihoods: so that their mean is 1.
    offset
        What is added to the linear predictors of each row: a number for all classes but the reference, or a column for
        each of the classes 1, …, K − 1.
    feature_names
        The names of the columns; by default those of a table. Sites of one federation must agree on them.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.Multinomial(np.ones((6, 1)), [0, 1, 1, 2, 2, 2])
    >>> losses
    Multinomial(dense 6 × 1, 3 classes, 1 clients, l2=0)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    >>> fpdfp.solve(problem, fpdfp.ProximalNewton(), rounds=50, tol=1e-10).x.round(4)  # log 2 and log 3
    array([0.6931, 1.0986])
    """

    curvature = 0.5

    def __init__(
        self,
        X: Any,
        y: Any,
        clients: Any = None,
        l2: Any = 0.0,
        n_clients: int | None = None,
        *,
        n_classes: int | None = None,
        weights: Any = None,
        weight_scale: float = 1.0,
        offset: Any = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        shape = np.shape(offset)
        width = shape[1] if len(shape) == 2 else None
        self._begin(X, y, clients, l2, n_clients, n_classes, weights, weight_scale, offset, feature_names, width=width)
        if width not in (None, self.n_classes - 1):
            raise ArgumentError("offset", f"must have a column for each of {self.n_classes - 1} classes, got {width}")
        if self._rows.weights is not None:
            self.curvature = 0.5 * float(self._rows.weights.max())

    @property
    def form(self) -> Form:
        return "other"

    def _length(self, features: int) -> int:
        return (self.n_classes - 1) * features

    def predictors(self, x: Array, rows: slice = slice(None)) -> Array:
        z: Array = np.asarray(self._rows.X[rows] @ x.reshape(self.n_classes - 1, self.n_features).T)
        if self._rows.shifts is None:
            return z
        shifts = self._rows.shifts[rows]
        return z + (shifts if shifts.ndim == 2 else shifts[:, None])

    def evaluate_many(self, points: Array, held: IntArray, labels: IntArray, clients: IntArray) -> ManySums:
        self.check(np.ascontiguousarray(points[0], dtype=self.dtype), clients, shared=True)
        count, (n, others) = len(points), (len(self._rows.y), self.n_classes - 1)
        whole = np.zeros((count, others + 1, self.n_features))  # with the coefficients of the reference
        whole[:, 1:] = points.reshape(count, others, -1)
        shifts = None
        if self._rows.shifts is not None:
            shifts = np.zeros((n, others + 1))
            shifts[:, 1:] = self._rows.shifts.reshape(n, -1)
        found = evaluate_classes(self, whole, held, labels, clients, shifts)
        return found._replace(slopes=found.slopes[:, :, 1:].reshape(len(clients), *points.shape))

    def probabilities(self, z: Array) -> Array:
        """Return the probability of each class, the reference first, given linear predictors."""
        from scipy.special import softmax

        found: Array = softmax(np.concatenate([np.zeros((len(z), 1)), z], axis=1), axis=1)
        return found

    def class_forms(self, x: Array, rows: slice = slice(None)) -> Array:
        z = self.predictors(x, rows)
        return np.concatenate([np.zeros((len(z), 1)), z], axis=1)

    def restrict(self, features: IntArray) -> Self:
        """Return the losses as functions of some entries of x: the same features of all classes."""
        columns = np.unique(np.asarray(features) % self.n_features)
        whole = (np.arange(self.n_classes - 1)[:, None] * self.n_features + columns).ravel()
        if not np.array_equal(whole, features):
            raise ArgumentError("features", "must be the same for all classes")
        return self._restrict_columns(columns)

    def _entry_names(self, columns: Sequence[str]) -> list[str]:
        return [f"{k}: {name}" for k in range(1, self.n_classes) for name in columns]

    def _ridge_of(self) -> Array:
        return np.tile(self._ridge, self.n_classes - 1)

    def _losses_of(self, z: Array, y: IntArray) -> Array:
        from scipy.special import logsumexp

        whole = np.concatenate([np.zeros((len(z), 1)), z], axis=1)
        found: Array = logsumexp(whole, axis=1) - whole[np.arange(len(y)), y]
        return found

    def _slopes_of(self, z: Array, y: IntArray) -> Array:
        slopes = self.probabilities(z)
        slopes[np.arange(len(y)), y] -= 1.0
        return slopes[:, 1:]

    def _bends_of(self, z: Array, y: IntArray) -> Pairs:
        chances = self.probabilities(z)[:, 1:]
        return lambda a, b: chances[:, a] * (float(a == b) - chances[:, b])

    def _collect(self, X: Any, slopes: Array) -> Array:
        return np.asarray(X.T @ slopes).T.ravel()

    def _collect_pairs(self, X: Any, bends: Pairs) -> Array:
        return class_blocks(self.n_classes - 1, X.shape[1], lambda a, b: gram(X, bends(a, b)))
