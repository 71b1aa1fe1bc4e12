"""Losses of rows with classes, as functions of several linear predictors of each row."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.linops.base import LinOp
from fpdfp.losses import _rows
from fpdfp.losses._linear import DENSE_HESSIAN, LinearModel, _names_of
from fpdfp.losses.base import InformationSums, Losses
from fpdfp.rng import Draws

#: Of two linear predictors: a number for each row.
Pairs = Callable[[int, int], Array]
#: The largest loss of a row in the statistic of Pearson: its exponential, and a sum of those, are finite.
LARGEST = 600.0


class ClassModel(LinearModel):
    """A mean over rows of a loss of the row's class and its linear predictors η_1, …, η_m, which are linear in x.

    x is a vector. A subclass says what the predictors are, collects derivatives in them into derivatives in x, and has
    the loss of a row.
    """

    #: That losses are never negative says little of how far a point is from the minimum.
    lower_bound = -np.inf

    def _begin(
        self, X: Any, y: Any, clients: Any, l2: Any, n_clients: int | None, n_classes: int | None, weights: Any,
        weight_scale: float, offset: Any, feature_names: Sequence[str] | None, *, width: int | None = None,
    ) -> None:  # fmt: skip
        self.weight_scale = _checks.real("weight_scale", weight_scale, positive=True)
        rows = _rows.collect(X, y, clients, n_clients, np.float64, weights, offset, width=width)
        if rows.weights is not None:
            rows = rows._replace(weights=self.weight_scale * rows.weights)
        self._hold(rows, l2, _names_of(X, feature_names))
        self.n_classes = _rows.count_classes(rows.y, n_classes)
        self.shape = (self._length(self.n_features),)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the entries of x; None if columns have no names."""
        return None if self.column_names is None else tuple(self._entry_names(self.column_names))

    @feature_names.setter
    def feature_names(self, names: tuple[str, ...] | None) -> None:
        #: The names of the columns.
        self.column_names = names

    @abc.abstractmethod
    def _entry_names(self, columns: Sequence[str]) -> list[str]:
        """Return the names of the entries of x, given those of columns."""

    def _restrict_columns(self, columns: IntArray) -> Self:
        """Return the losses as functions of some columns."""
        made = LinearModel.restrict(self, columns)
        names = self.column_names
        made.column_names = None if names is None else tuple(names[j] for j in columns)
        made.shape = (made._length(len(columns)),)
        return made

    @property
    def _size(self) -> str:
        return f"{super()._size}, {self.n_classes} classes"

    @property
    def weights_of_rows(self) -> Array:
        """The weight of each row, as it was given."""
        weights = self._rows.weights
        return np.ones(len(self._rows.y)) if weights is None else weights / self.weight_scale

    @abc.abstractmethod
    def _length(self, features: int) -> int:
        """The length of x for so many features."""

    @abc.abstractmethod
    def predictors(self, x: Array, rows: slice = slice(None)) -> Array:
        """Return the linear predictors of rows, a column for each."""

    @abc.abstractmethod
    def class_forms(self, x: Array, rows: slice = slice(None)) -> Array:
        """Return what the softmax of is the chances of classes, a column for each, of some rows."""

    @property
    def ridge_of_x(self) -> Array:
        return self._ridge_of()

    @abc.abstractmethod
    def _ridge_of(self) -> Array:
        """The ridge of each entry of x."""

    @abc.abstractmethod
    def _losses_of(self, z: Array, y: IntArray) -> Array:
        """The loss of each row, infinite outside the domain."""

    @abc.abstractmethod
    def _slopes_of(self, z: Array, y: IntArray) -> Array:
        """Its derivatives in the predictors, a column for each."""

    @abc.abstractmethod
    def _bends_of(self, z: Array, y: IntArray) -> Pairs:
        """Its second derivatives."""

    @abc.abstractmethod
    def _collect(self, X: Any, slopes: Array) -> Array:
        """Return Σ_j over rows of derivatives in x, given those in the predictors."""

    @abc.abstractmethod
    def _collect_pairs(self, X: Any, bends: Pairs) -> Array:
        """Return Σ_j over rows of second derivatives in x, given those in pairs of predictors."""

    def values(self, x: Array, clients: IntArray) -> Array:
        x = np.asarray(x, dtype=np.float64)
        self.check(x, clients, shared=True)
        ridge = 0.5 * float((self._ridge_of() * x**2).sum())
        out = np.empty(len(clients))
        for place, client in enumerate(clients):
            own = self._place(client)
            found = self._losses_of(self.predictors(x, own), self._classes(own))
            out[place] = self._weigh(found, own).sum() / self.sizes[client] + ridge
        return out

    def gradients(
        self, x: Array, clients: IntArray, batch_size: int | None = None, draws: Draws | None = None
    ) -> Array:
        if batch_size is not None:
            raise ValueError(f"{type(self).__name__} has no gradients over mini-batches")
        points = np.asarray(x, dtype=np.float64)
        self.check(points, clients)
        points = np.broadcast_to(points, (len(clients), *self.shape))
        out = np.empty(points.shape)
        for place, (client, point) in enumerate(zip(clients, points, strict=True)):
            own = self._place(client)
            slopes = self._slopes_of(self.predictors(point, own), self._classes(own))
            out[place] = self._collect(self._rows.X[own], self._weigh(slopes, own)) / self.sizes[client]
            out[place] += self._ridge_of() * point
        return out

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        if self.shape[0] > DENSE_HESSIAN:
            return None
        out = np.empty((len(clients), *self.shape, *self.shape))
        for place, client in enumerate(clients):
            own = self._place(client)
            bends = self._bends_of(self.predictors(x, own), self._classes(own))
            out[place] = self._collect_pairs(self._rows.X[own], self._weighed(bends, own)) / self.sizes[client]
            out[place][np.diag_indices(self.shape[0])] += self._ridge_of()
        return out

    def hessian(self, x: Array, weights: Array) -> Array | None:
        found = self.hessians(x, np.arange(self.n_clients))
        return None if found is None else np.asarray((weights[:, None, None] * found).sum(axis=0))

    def hessian_product(self, x: Array, direction: Array, weights: Array) -> Array:
        return Losses.hessian_product(self, x, direction, weights)

    def sums_at(self, x: Array, clients: IntArray, *, robust: bool) -> InformationSums | None:
        return add_up([self._sums_of(x, self._place(client), robust) for client in clients])

    def _sums_of(self, x: Array, own: slice, robust: bool) -> tuple[Array, ...]:
        X, y, z = self._rows.X[own], self._classes(own), self.predictors(x, own)
        return class_sums(
            self.weights_of_rows[own], self._losses_of(z, y), self._slopes_of(z, y), self._bends_of(z, y), robust,
            lambda slopes: self._collect(X, slopes), lambda bends: self._collect_pairs(X, bends),
        )  # fmt: skip

    def _place(self, client: int) -> slice:
        return slice(int(self._rows.offsets[client]), int(self._rows.offsets[client + 1]))

    def _classes(self, own: slice) -> IntArray:
        return self._rows.y[own].astype(np.int64)

    def _weigh(self, numbers: Array, own: slice) -> Array:
        if self._rows.weights is None:
            return numbers
        weights = self._rows.weights[own]
        weighed: Array = numbers * (weights if numbers.ndim == 1 else weights[:, None])
        return weighed

    def _weighed(self, bends: Pairs, own: slice) -> Pairs:
        return bends if self._rows.weights is None else lambda a, b: self._weigh(bends(a, b), own)

    @property
    def supports_batches(self) -> bool:
        return False

    @property
    def can_restrict(self) -> bool:
        # Entries of x are not features, so that runs cannot be restricted to some of them.
        return False

    @property
    def has_duals(self) -> bool:
        return False

    @property
    def least_convexity(self) -> float:
        return float(self._ridge_of().min(initial=np.inf))

    def constants(self) -> tuple[Array, ...]:
        return (self._ridge_of(),)

    def lipschitz_in(self, factor: LinOp) -> Array:
        return Losses.lipschitz_in(self, factor)

    def curvatures(self, clients: IntArray) -> Array | None:
        return None

    def curvature_diagonals(self, clients: IntArray) -> Array | None:
        return None

    def curvature_products(self, clients: IntArray, vectors: Array) -> Array | None:
        return None


def class_sums(
    weights: Array, lost: Array, slopes: Array, bends: Pairs, robust: bool, collect: Callable[[Array], Array],
    collect_pairs: Callable[[Pairs], Array],
) -> tuple[Array, ...]:  # fmt: skip
    """Return the fields of :class:`InformationSums` of one client, given losses of rows and their derivatives.

    ``collect`` and ``collect_pairs`` take derivatives in the linear predictors to derivatives in x.
    """
    pull = -weights[:, None] * slopes
    # A row's class has the chance exp(−loss): its squared distance from what was expected, by its variance.
    pearson = float((weights * np.expm1(np.minimum(lost, LARGEST))).sum())
    numbers = np.array([np.count_nonzero(weights), weights.sum(), 0.0, 2.0 * (weights * lost).sum(), pearson])
    hessian = collect_pairs(lambda a, b: weights * bends(a, b))
    meat = _lower(collect_pairs(lambda a, b: pull[:, a] * pull[:, b])) if robust else np.zeros(0)
    return numbers, collect(pull), _lower(hessian), meat


def add_up(sites: list[tuple[Array, ...]]) -> InformationSums:
    """Return the sums of all clients together."""
    return InformationSums(*map(np.stack, zip(*sites, strict=True)))


def class_blocks(count: int, features: int, block: Callable[[int, int], Array]) -> Array:
    """Return a symmetric matrix of blocks, one for each pair of classes."""
    blocks = np.empty((count, features, count, features))
    for a in range(count):
        for b in range(a + 1):
            blocks[a, :, b] = block(a, b)
            blocks[b, :, a] = blocks[a, :, b].T
    return blocks.reshape(count * features, count * features)


def gram(X: Any, scale: Array) -> Array:
    """Return Σ_j s_j a_j a_jᵀ as a dense matrix."""
    product = X.T @ (X.multiply(scale[:, None]).tocsr() if hasattr(X, "tocsr") else X * scale[:, None])
    return np.asarray(product.toarray() if hasattr(product, "toarray") else product, dtype=np.float64)


def _lower(matrix: Array) -> Array:
    """Return the lower triangle of a symmetric matrix."""
    triangle: Array = matrix[np.tril_indices(len(matrix))]
    return triangle
