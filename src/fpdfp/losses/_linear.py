"""Losses of linear models: a mean over rows of φ(a_jᵀx, y_j), plus a ridge."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.linops.base import LinOp
from fpdfp.linops.diagonal import Diagonal
from fpdfp.losses import _rows
from fpdfp.losses.base import Losses
from fpdfp.rng import Draws, Purpose

#: Up to this many columns the Hessian is formed as a dense matrix.
DENSE_HESSIAN = 2000
#: Matrices up to this size go through LAPACK; of larger ones so many power steps tell the largest eigenvalue.
POWER, STEPS = 64, 30
#: Rows that are multiplied with a dense matrix at a time.
ROWS = 4096


class LinearModel(Losses):
    """What logistic and least-squares losses over a matrix share; see there."""

    kind: ClassVar[int]
    #: The largest second derivative of φ in its first argument.
    curvature: ClassVar[float]

    def __init__(self, X: Any, y: Any, clients: Any = None, l2: float = 0.0, n_clients: int | None = None) -> None:
        self.l2 = _checks.real("l2", l2, at_least=0.0)
        self._rows = _rows.collect(X, self._targets(y), clients, n_clients)
        self.shape = (self._rows.X.shape[1],)
        self.dtype = self._rows.X.dtype
        self.sizes = np.diff(self._rows.offsets)

    def __repr__(self) -> str:
        rows, columns = self._rows.X.shape
        kind = "sparse" if self._rows.sparse else "dense"
        return f"{type(self).__name__}({kind} {rows} × {columns}, {self.n_clients} clients, l2={self.l2:g})"

    @classmethod
    def from_clients(cls, parts: Any, targets: Any, l2: float = 0.0) -> LinearModel:
        """Build the losses from one matrix and one target vector for each client.

        >>> import numpy as np
        >>> import fpdfp
        >>> fpdfp.losses.LeastSquares.from_clients([np.eye(2), np.ones((3, 2))], [np.ones(2), np.ones(3)]).sizes
        array([2, 3])
        """
        for i, part in enumerate(parts):
            if np.shape(part)[:1] == (0,):
                raise ValueError(f"clients: client {i} holds no rows; leave it out")
        X, y, owner = _rows.stack(parts, targets)
        return cls(X, y, clients=owner, l2=l2)

    @staticmethod
    def _targets(y: Any) -> Any:
        return y

    @property
    def client_names(self) -> Array:
        """The names of the clients, in the order of client numbers."""
        return self._rows.names

    def values(self, x: Array, clients: IntArray) -> Array:
        from fpdfp._kernels import glm

        rows = self._rows
        out = np.empty(len(clients), dtype=np.float64)
        x = np.ascontiguousarray(x, dtype=self.dtype)
        self.check(x, clients, shared=True)
        if rows.sparse:
            X = rows.X
            glm.values_csr(self.kind, X.data, X.indices, X.indptr, rows.y, rows.offsets, clients, x, self.l2, out)
        else:
            glm.values_dense(self.kind, rows.X, rows.y, rows.offsets, clients, x, self.l2, out)
        return out

    def gradients(
        self, x: Array, clients: IntArray, batch_size: int | None = None, draws: Draws | None = None
    ) -> Array:
        from fpdfp._kernels import glm

        rows = self._rows
        points = np.ascontiguousarray(x, dtype=self.dtype)
        self.check(points, clients)
        points = points.reshape(-1, self.shape[0])
        out = np.empty((len(clients), self.shape[0]), dtype=self.dtype)
        if batch_size is None:
            batch, k0, k1, tag, round_ = np.iinfo(np.int64).max, 0, 0, 0, 0
        else:
            if draws is None:
                raise ValueError("draws must be given with batch_size")
            batch, (k0, k1), tag, round_ = batch_size, draws.key, draws.tag(Purpose.BATCH), draws.round
        if rows.sparse:
            X = rows.X
            glm.gradients_csr(
                self.kind, X.data, X.indices, X.indptr, rows.y, rows.offsets, clients, points, self.l2,
                batch, k0, k1, tag, round_, out,
            )  # fmt: skip
        else:
            glm.gradients_dense(
                self.kind, rows.X, rows.y, rows.offsets, clients, points, self.l2,
                batch, k0, k1, tag, round_, out,
            )  # fmt: skip
        return out

    def lipschitz(self) -> Array:
        return self._lipschitz

    @functools.cached_property
    def _lipschitz(self) -> Array:
        """The largest eigenvalue of X_iᵀX_i/n_i, times the curvature of φ, plus the ridge."""
        from fpdfp.losses._spectra import gram_norms

        return self.curvature * gram_norms(self._rows) / self.sizes + self.l2

    def lipschitz_in(self, factor: LinOp) -> Array:
        if isinstance(factor, Diagonal):
            from fpdfp.losses._spectra import gram_norms

            X = self._rows.X
            scaled = X.multiply(factor.factors).tocsr() if self._rows.sparse else X * factor.factors
            norms = gram_norms(self._rows._replace(X=scaled))
            return self.curvature * norms / self.sizes + self.l2 * factor.squared_norm
        if self.shape[0] > DENSE_HESSIAN:
            return super().lipschitz_in(factor)
        columns = factor.apply(np.eye(self.shape[0]))  # the rows of Sᵀ
        largest = np.empty(self.n_clients)
        ridge = self.l2 * columns @ columns.T
        for client in range(self.n_clients):
            first, last = self._rows.offsets[client], self._rows.offsets[client + 1]
            part = self._rows.X[first:last] @ columns.T
            gram = self.curvature / self.sizes[client] * (part.T @ part) + ridge
            largest[client] = _largest_eigenvalue(gram)
        return largest

    def curvatures(self, clients: IntArray) -> Array | None:
        return self._grams(clients, lambda X: np.full(X.shape[0], self.curvature))

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        return self._grams(clients, lambda X: self._second_derivative(X @ x))

    def _grams(self, clients: IntArray, weights: Callable[[Any], Array]) -> Array | None:
        """Return X_iᵀ diag(weights) X_i/n_i plus the ridge for each client."""
        d = self.shape[0]
        if d > DENSE_HESSIAN:
            return None
        out = np.empty((len(clients), d, d))
        for row, client in enumerate(clients):
            first, last = self._rows.offsets[client], self._rows.offsets[client + 1]
            X = self._rows.X[first:last]
            scaled = X.multiply(weights(X)[:, None]).tocsr() if self._rows.sparse else X * weights(X)[:, None]
            gram = X.T @ scaled
            out[row] = gram.toarray() if self._rows.sparse else gram
            out[row] /= self.sizes[client]
            out[row][np.diag_indices(d)] += self.l2
        return out

    def curvature_diagonals(self, clients: IntArray) -> Array | None:
        out = np.empty((len(clients), self.shape[0]))
        for row, client in enumerate(clients):
            first, last = self._rows.offsets[client], self._rows.offsets[client + 1]
            X = self._rows.X[first:last]
            squares = X.power(2).sum(axis=0) if self._rows.sparse else np.einsum("ij,ij->j", X, X)
            out[row] = self.curvature / self.sizes[client] * squares + self.l2
        return out

    def batch_smoothness(self, batch_size: int, factor: LinOp | None = None) -> Array:
        m, b = self.sizes, np.minimum(batch_size, self.sizes)
        share = (m - b) / (b * np.maximum(m - 1, 1))
        ridge = self.l2 if factor is None else self.l2 * factor.squared_norm
        added: Array = share * (self.curvature * self._largest_rows(factor) + ridge)
        return added

    def _largest_rows(self, factor: LinOp | None) -> Array:
        """The largest squared norm of a row of each client, or of Sᵀ times a row."""
        X = self._rows.X
        if factor is None:
            squares = X.power(2).sum(axis=1) if self._rows.sparse else np.einsum("ij,ij->i", X, X)
        elif isinstance(factor, Diagonal):
            squares = (X.power(2) if self._rows.sparse else X**2) @ factor.factors**2
        elif self.shape[0] <= DENSE_HESSIAN:
            columns = factor.apply(np.eye(self.shape[0]))  # the rows of Sᵀ
            squares = np.concatenate([
                np.square(X[first : first + ROWS] @ columns.T).sum(axis=1) for first in range(0, X.shape[0], ROWS)
            ])  # fmt: skip
        else:
            return factor.squared_norm * self._largest_rows(None)
        largest: Array = np.maximum.reduceat(np.asarray(squares, dtype=np.float64), self._rows.offsets[:-1])
        return largest

    def strong_convexity(self, weights: Array) -> float:
        return self.l2 * float(weights.sum())

    @property
    def least_convexity(self) -> float:
        return self.l2

    def hessian(self, x: Array, weights: Array) -> Array | None:
        if self.shape[0] > DENSE_HESSIAN:
            return None
        X = self._rows.X
        scale = self._row_weights(weights) * self._second_derivative(X @ x)
        if self._rows.sparse:
            from fpdfp._kernels import matrix

            hessian = np.zeros((self.shape[0], self.shape[0]))
            matrix.weighted_gram_csr(X.data, X.indices, X.indptr, scale, hessian)
        else:
            wide = X.astype(np.float64, copy=False)
            hessian = wide.T @ (wide * scale[:, None])
        hessian[np.diag_indices_from(hessian)] += self.l2 * float(weights.sum())
        return hessian

    def hessian_product(self, x: Array, direction: Array, weights: Array) -> Array:
        X = self._rows.X
        scale = self._row_weights(weights) * self._second_derivative(X @ x)
        product: Array = X.T @ (scale * (X @ direction)) + self.l2 * float(weights.sum()) * direction
        return product

    def _second_derivative(self, z: Array) -> Array:
        """The second derivative of φ at each row."""
        raise NotImplementedError

    def _row_weights(self, weights: Array) -> Array:
        return np.repeat(weights / self.sizes, self.sizes)


def _largest_eigenvalue(gram: Array) -> float:
    """The largest eigenvalue; of larger matrices an estimate from power steps, a tenth above what they show."""
    if len(gram) <= POWER:
        return float(np.linalg.eigvalsh(gram)[-1]) * (1.0 + 1e-9)
    vector = np.cos(np.arange(1.0, len(gram) + 1.0))
    value = 0.0
    for _ in range(STEPS):
        image = gram @ vector
        value = float(np.linalg.norm(image)) / float(np.linalg.norm(vector))
        vector = image / max(float(np.linalg.norm(image)), 1e-300)
    return min(1.1 * value, float(np.trace(gram)))
