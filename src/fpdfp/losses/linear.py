"""Losses of linear models: rows of samples, a ridge, bounds of the curvature, and dual points that follow from them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike

from fpdfp import _checks
from fpdfp._naming import own_init
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentTypeError
from fpdfp.linops.base import LinOp, squared_norm_bound
from fpdfp.linops.maps import Diagonal
from fpdfp.losses.base import EPS, ROUNDINGS, Form, InformationSums, Losses, checked_draws
from fpdfp.losses.rows import Rows, collect, stack
from fpdfp.rng import Draws, Purpose

#: Up to this many columns the Hessian is formed as a dense matrix.
DENSE_HESSIAN = 2000
#: The same for the second moments of one client at a time.
DENSE_MOMENTS = 4000
#: Up to this many columns a client's matrix is formed in the coordinates of a factor. Power steps take 120 n d
#: operations with n rows, forming it takes 2 n d².
FORMED = 256
#: Matrices up to this size go through LAPACK; of larger ones so many power steps show the largest eigenvalue.
POWER, STEPS = 64, 30
#: Numbers in the partial sums of a weighted Gram matrix, of which there are at most eight.
GRAM_PARTS = 1 << 22
#: Rows that are multiplied with a dense matrix at a time.
ROWS = 4096
#: With more clients than this, no matrix is formed for each of them.
MANY = 1000
#: Rows of single precision that are widened at a time.
WIDENED = 1 << 14
#: A plain integer, since arithmetic with an enumeration is slow.
BATCH = int(Purpose.BATCH)


class LinearModel(Losses):
    """A mean over rows a_j of a loss of a_jᵀx, plus a ridge ½ Σ l2_j x_j².

    x is a vector, or has a row for each class, each with a linear form of its own; all rows have the same ridge.
    """

    #: A bound of the Hessian of the loss of one row in its linear forms: at most this times the identity; infinite
    #: if missing.
    curvature: float
    #: A bound of the derivative of the loss of one row in each of its linear forms; infinite if missing.
    steepest: float = np.inf
    lower_bound = 0.0
    concurrent = True
    #: The fold of each row, as rows are kept; None where they have none of their own.
    folds: IntArray | None = None
    #: Whether losses are sums over rows of functions of linear forms, one for each row of x: then ``curvature`` bounds
    #: the Hessian, mini-batches are possible, and there may be dual points.
    by_forms: bool = True
    #: What weights of rows were multiplied with.
    weight_scale: float = 1.0

    def __init__(
        self,
        X: Any,
        y: Any,
        clients: Any = None,
        l2: Any = 0.0,
        n_clients: int | None = None,
        *,
        feature_names: Sequence[str] | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        self._gather(X, self._targets(y), clients, l2, n_clients, feature_names, dtype)

    def _gather(
        self, X: Any, y: Any, clients: Any, l2: Any, n_clients: int | None, names: Sequence[str] | None,
        dtype: DTypeLike | None, weights: Any = None, weight_scale: float = 1.0, offset: Any = None,
        width: int | None = None,
    ) -> None:  # fmt: skip
        """Check what was given, and keep it."""
        self.weight_scale = _checks.real("weight_scale", weight_scale, positive=True)
        rows = collect(X, y, clients, n_clients, dtype, weights, offset, width=width)
        if rows.weights is not None:
            rows = rows._replace(weights=self.weight_scale * rows.weights)
        self._hold(rows, l2, _names_of(X, names))

    def _hold(self, rows: Rows, l2: Any, names: tuple[str, ...] | None) -> None:
        """Keep rows, a ridge and the names of features."""
        self._rows = rows
        self.n_features = int(self._rows.X.shape[1])
        self.l2 = _check_ridge(l2, self.n_features)
        self._ridge = np.broadcast_to(np.float64(self.l2), (self.n_features,)).copy()
        self.shape = (self.n_features,)
        self.dtype = self._rows.X.dtype
        self.sizes = np.diff(self._rows.offsets)
        self._squares: tuple[bytes, Array] | None = None
        if names is not None and len(names) != self.n_features:
            raise ValueError(
                f"feature_names must be one name for each of the {self.n_features} features, got {len(names)}"
            )
        self.feature_names = names

    def __repr__(self) -> str:
        least, most = (float(self._ridge.min()), float(self._ridge.max())) if self.n_features else (0.0, 0.0)
        ridge = f"{least:g}" if isinstance(self.l2, float) else f"{least:g} to {most:g}"
        return f"{type(self).__name__}({self._size}, {self.n_clients} clients, l2={ridge})"

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        own_init(cls)

    @property
    def form(self) -> Form:
        return "linear" if self.by_forms else "other"

    @property
    def supports_batches(self) -> bool:
        return self.by_forms

    def part(self, clients: IntArray) -> Self:
        made = self._without_caches()
        made.sizes, made._rows = self.sizes[clients], self._rows.take(clients)
        return made

    @property
    def can_restrict(self) -> bool:
        return True

    def restrict(self, features: IntArray) -> Self:
        made = self._without_caches()
        X = self._rows.X[:, features]
        made._rows = self._rows._replace(X=X if self._sparse else np.ascontiguousarray(X))
        made.n_features, made.shape = len(features), (*self.shape[:-1], len(features))
        made._ridge = self._ridge[features]
        made.l2 = self.l2 if isinstance(self.l2, float) else self.l2[features]
        if self.feature_names is not None:
            made.feature_names = tuple(self.feature_names[j] for j in features)
        return made

    def rescale(self, factors: Array) -> Self:
        """Return the losses of features that are multiplied by factors, as a function of x divided by them."""
        made, X, factors = self._without_caches(), self._rows.X, factors.astype(self.dtype)
        made._rows = self._rows._replace(X=X.multiply(factors).tocsr() if self._sparse else X * factors)
        made.l2 = made._ridge = self._ridge * factors.astype(np.float64) ** 2
        return made

    def _without_caches(self) -> Self:
        """Return a copy for other rows or columns."""
        made = copy.copy(self)
        for kept in ("_kernels", "_lipschitz", "_whole", "_most_rows", "_as_glm"):
            vars(made).pop(kept, None)
        made._squares = None
        return made

    @property
    def _size(self) -> str:
        rows, columns = self._rows.X.shape
        return f"{'sparse' if self._sparse else 'dense'} {rows} × {columns}"

    @classmethod
    def from_clients(cls, parts: Any, targets: Any, l2: Any = 0.0, **others: Any) -> Self:
        """Build the losses from one matrix and one target vector for each client.

        >>> import numpy as np
        >>> import fpdfp
        >>> fpdfp.losses.LeastSquares.from_clients([np.eye(2), np.ones((3, 2))], [np.ones(2), np.ones(3)]).sizes
        array([2, 3])
        """
        for i, part in enumerate(parts):
            if np.shape(part)[:1] == (0,):
                raise ValueError(f"clients: client {i} holds no rows; leave it out")
        X, y, owner = stack(parts, targets)
        return cls(X, y, clients=owner, l2=l2, **others)

    @staticmethod
    def _targets(y: Any) -> Any:
        return y

    @property
    def client_names(self) -> Array:
        """The names of the clients, in the order of client numbers."""
        return self._rows.names

    def targets_of(self, client: int) -> Array:
        """Return the targets of a client's samples."""
        return self._rows.y[self._place(client)]

    @property
    def weights_of_rows(self) -> Array:
        """The weight of each row, as it was given."""
        weights = self._rows.weights
        return np.ones(len(self._rows.y)) if weights is None else weights / self.weight_scale

    def values(self, x: Array, clients: IntArray) -> Array:
        out = np.empty(len(clients), dtype=np.float64)
        # A copy: kernels would be compiled once more for arrays that must not be written to.
        x = np.array(x, dtype=self.dtype, order="C")
        self.check(x, clients, shared=True)
        self._kernels["values"](clients, x, self._ridge_at(x), out)
        return out

    def _ridge_at(self, x: Array) -> float:
        from fpdfp._kernels.glm import dot

        if isinstance(self.l2, float):
            return float(0.5 * self.l2 * dot(x.ravel(), x.ravel()))
        return float(0.5 * dot((self.l2 * x).ravel(), x.ravel()))

    def gradients(
        self, x: Array, clients: IntArray, batch_size: int | None = None, draws: Draws | None = None
    ) -> Array:
        points = np.ascontiguousarray(x, dtype=self.dtype)
        self.check(points, clients, draws=draws)
        points = points.reshape(-1, *self.shape)
        out = np.empty((len(clients), *self.shape), dtype=self.dtype)
        drawn = None
        if batch_size is not None:
            seed, round_, names, _ = draws = checked_draws(draws, clients)
            drawn = seed & 0xFFFFFFFF, seed >> 32, draws.tag(BATCH), round_, min(batch_size, self._most_rows), names
        self._kernels["gradients"](clients, drawn, points, self._ridge, out)
        return out

    def evaluate_many(self, points: Array, held: IntArray, labels: IntArray, clients: IntArray) -> ManySums:
        """Return sums over rows at each of some points, without those whose label is ``held`` there (−1: all rows).

        ``labels`` has one for each row of all clients, in the order in which they are kept. The ridge is not part of
        what is returned.
        """
        self.check(np.ascontiguousarray(points[0], dtype=self.dtype), clients, shared=True)
        how = evaluate_one_by_one if self._functions() is None else evaluate_rows
        return how(self, points, held, labels, clients)

    def duals_at_many(self, points: Array, held: IntArray, labels: IntArray, clients: IntArray) -> ManyDuals:
        """Return the dual points near each of some points, with rows excluded as in ``evaluate_many``."""
        self.check(np.ascontiguousarray(points[0], dtype=self.dtype), clients, shared=True)
        return ManyDuals(self, points, held, labels)

    def _functions(self) -> tuple[Any, ...] | None:
        """Return what kernels need of a sum over rows of functions of one linear form; None for other losses.

        The addresses of the loss and of its slope, their parameters, weights and offsets of rows.
        """
        return None

    def sums_at(self, x: Array, clients: IntArray, *, robust: bool) -> InformationSums | None:
        made = [self._sums_of(x, self._place(client), robust) for client in clients]
        return InformationSums(*map(np.stack, zip(*made, strict=True)))

    def _sums_of(self, x: Array, own: slice, robust: bool) -> tuple[Array, ...]:
        """The fields of :class:`InformationSums` of one client, given the place of its rows."""
        raise NotImplementedError

    def admit_score(self, name: str, about: Any) -> bool:
        """Return whether all sums of a score may be sent at the points of a question; a site may refuse."""
        return True

    def keep_rows(self, kept: Array) -> Self:
        """Return the losses of some of the rows, given by a mask of those kept, divided by the size of all."""
        made = self._without_caches()
        rows = self._rows
        weights, shifts = (np.full(len(rows.y), fill) for fill in (1.0, 0.0))
        made._rows = rows._replace(
            weights=(weights if rows.weights is None else rows.weights) * kept,
            shifts=shifts if rows.shifts is None else rows.shifts,
        )
        return made

    @property
    def ridge_of_x(self) -> Array:
        """The ridge of each entry of x."""
        return self._ridge

    @property
    def masses(self) -> Array:
        """The weight of each row; all ones by default."""
        return np.ones(len(self._rows.y)) if self._rows.weights is None else self._rows.weights

    def place_rows(self, values: Array) -> Array:
        """Return values of rows, sorted by client, in the order in which rows are kept."""
        return values

    @property
    def counted(self) -> Array:
        """The weight of each row in a mean of losses of rows that were excluded."""
        return self.masses

    def saturations(self, clients: IntArray) -> Array:
        """Return what makes each client's loss half a deviance: 0, where losses of rows are half deviances."""
        return np.zeros(len(clients))

    @functools.cached_property
    def _most_rows(self) -> int:
        """The number of rows that the client with most has."""
        return int(self.sizes.max())

    @functools.cached_property
    def _kernels(self) -> dict[str, Callable[..., None]]:
        """The kernels, given the rows; looked up once, as rounds are short."""
        given = *self._matrix, self._rows.y, np.arange(len(self._rows.y)), self._rows.offsets
        return {name: functools.partial(self._kernel(name), *given) for name in ("values", "gradients")}

    def _kernel(self, name: str) -> Callable[..., None]:
        """Return the kernel of this name."""
        raise NotImplementedError

    @property
    def _sparse(self) -> bool:
        """Whether the rows are a CSR matrix."""
        return not isinstance(self._rows.X, np.ndarray)

    @property
    def _matrix(self) -> tuple[Array | None, ...]:
        """The rows as kernels take them: a dense matrix, or the three arrays of a CSR matrix."""
        X = self._rows.X
        return (None, X.data, X.indices, X.indptr) if self._sparse else (X, None, None, None)

    @property
    def smooth(self) -> bool:
        return bool(np.isfinite(self.curvature))

    def lipschitz(self) -> Array:
        return self._lipschitz

    @functools.cached_property
    def _lipschitz(self) -> Array:
        """The largest eigenvalue of X_iᵀX_i/n_i, times the curvature of the loss, plus the largest ridge."""
        if not self.smooth:
            return np.full(self.n_clients, np.inf)
        return self.curvature * gram_norms(self._rows.X, self._rows.offsets) / self.sizes + float(self._ridge.max())

    def lipschitz_in(self, factor: LinOp) -> Array:
        if not self.by_forms:
            return super().lipschitz_in(factor)
        if not self.smooth:
            return np.full(self.n_clients, np.inf)
        if isinstance(factor, Diagonal):
            scales = self._scales(factor)
            norms = self._norms(lambda X: X.multiply(scales).tocsr() if self._sparse else X * scales)
            return self.curvature * norms / self.sizes + float((self._ridge * scales**2).max())
        columns = self._columns(factor)
        if columns is None:
            one = getattr(factor, "one", factor)
            return self._power_norms(one) if one.in_shape == (self.n_features,) else super().lipschitz_in(factor)
        ridge = (self._ridge * columns) @ columns.T
        if self.n_clients > MANY:
            # What rows and ridge have at most: no matrix is formed for each client.
            norms = self._norms(lambda X: X @ columns.T)
            return self.curvature * norms / self.sizes + _largest_eigenvalue(ridge)
        largest = np.empty(self.n_clients)
        for client in range(self.n_clients):
            part = self._rows_of(client) @ columns.T
            largest[client] = _largest_eigenvalue(self.curvature / self.sizes[client] * (part.T @ part) + ridge)
        return largest

    def _norms(self, change: Callable[[Any], Any]) -> Array:
        """Bound ‖X_i‖² for each client after a change of its rows, some thousand rows at a time."""
        offsets, norms = self._rows.offsets, np.empty(self.n_clients)
        cuts = np.flatnonzero(np.diff(offsets[:-1] // ROWS, prepend=-1))
        for first, last in zip(cuts, [*cuts[1:], self.n_clients], strict=True):
            part = change(self._rows.X[offsets[first] : offsets[last]])
            norms[first:last] = gram_norms(part, offsets[first : last + 1] - offsets[first])
        return norms

    def _power_norms(self, factor: LinOp) -> Array:
        """Estimate the constants in coordinates of one row of x by power steps, a tenth above what they show.

        Only products with the factor and with rows are needed: there may be any number of features.
        """
        largest = np.empty(self.n_clients)
        for client in range(self.n_clients):
            X, share = self._rows_of(client), self.curvature / self.sizes[client]
            u, value = np.cos(np.arange(1.0, self.n_features + 1.0)), 0.0
            u /= np.linalg.norm(u)
            for _ in range(STEPS):
                x = factor.apply(u)
                # In the type of the rows: a product with another type copies them all.
                slope = X.T @ (X @ x.astype(X.dtype))
                u = factor.adjoint(share * slope + self._ridge * x)
                value = float(np.linalg.norm(u))
                u /= max(value, 1e-300)
            largest[client] = 1.1 * value
        return largest

    def _rows_of(self, client: int) -> Any:
        """The rows of a client."""
        return self._rows.X[self._place(client)]

    def _place(self, client: int) -> slice:
        """The slice of a client's rows among the rows of all clients."""
        return slice(int(self._rows.offsets[client]), int(self._rows.offsets[client + 1]))

    def _scales(self, factor: Diagonal) -> Array:
        """The size of each feature's factor; where the rows of x have different ones, the largest."""
        largest: Array = np.abs(factor.factors).reshape(-1, self.n_features).max(axis=0)
        return largest

    def _columns(self, factor: LinOp) -> Array | None:
        """The rows of Sᵀ, S what the factor does to each row of x; None where that is too large, or not one matrix."""
        one = getattr(factor, "one", factor)
        if self.n_features > FORMED or one.in_shape != (self.n_features,):
            return None
        return one.apply(np.eye(self.n_features))

    def curvatures(self, clients: IntArray) -> Array | None:
        if not (self.by_forms and self.smooth):
            return None
        return self._grams(clients, lambda rows: np.full(rows.stop - rows.start, self.curvature), DENSE_MOMENTS)

    def _grams(self, clients: IntArray, weights: Callable[[slice], Array], most: int = DENSE_HESSIAN) -> Array | None:
        """Return X_iᵀ diag(weights) X_i/n_i plus the ridge for each client, for at most a given number of features."""
        d = self.n_features
        if d > most:
            return None
        out = np.empty((len(clients), d, d))
        for row, client in enumerate(clients):
            own = self._place(client)
            out[row] = gram(self._rows.X[own], weights(own))
            out[row] /= self.sizes[client]
            out[row][np.diag_indices(d)] += self._ridge
        return out

    def curvature_products(self, clients: IntArray, vectors: Array) -> Array | None:
        if not (self.by_forms and self.smooth):
            return None
        out = np.empty((len(clients), *vectors.shape))
        for row, client in enumerate(clients):
            X = self._rows_of(client)
            products = X.T @ (X @ vectors.T)
            out[row] = self.curvature / self.sizes[client] * products.T + self._ridge * vectors
        return out

    def curvature_diagonals(self, clients: IntArray) -> Array | None:
        if not (self.by_forms and self.smooth):
            return None
        out = np.empty((len(clients), self.n_features))
        # Clients that hold rows next to each other are done together, some thousand rows at a time.
        starts = np.flatnonzero(np.diff(clients, prepend=-2) != 1)
        for first, last in zip(starts, [*starts[1:], len(clients)], strict=True):
            run = clients[first:last]
            cuts = np.flatnonzero(np.diff(self._rows.offsets[run] // ROWS, prepend=-1))
            for a, b in zip(cuts, [*cuts[1:], len(run)], strict=True):
                out[first + a : first + b] = self._sums_of_squares(int(run[a]), int(run[b - 1]) + 1)
        return self.curvature / self.sizes[clients][:, None] * out + self._ridge

    def _sums_of_squares(self, first: int, last: int) -> Array:
        """Σ_j a_jk² over the rows of each of some clients that follow each other."""
        offsets = self._rows.offsets[first : last + 1] - self._rows.offsets[first]
        X = self._rows.X[self._rows.offsets[first] : self._rows.offsets[last]]
        if not self._sparse:
            sums: Array = np.add.reduceat(np.square(X, dtype=np.float64), offsets[:-1], axis=0)
            return sums
        from scipy.sparse import csr_array

        owners = csr_array(
            (np.ones(len(X.indptr) - 1), np.arange(len(X.indptr) - 1), offsets), (last - first, X.shape[0])
        )
        squares: Array = (owners @ X.power(2)).toarray()
        return squares

    def slope_bounds(self, clients: IntArray) -> Array | None:
        if not np.isfinite(self.steepest):
            return None
        out = np.empty((len(clients), self.n_features))
        for row, client in enumerate(clients):
            out[row] = self.steepest / self.sizes[client] * abs(self._rows_of(client)).sum(axis=0, dtype=np.float64)
        return out

    def batch_smoothness(self, batch_size: int, factor: LinOp | None = None) -> Array:
        if not self.by_forms:
            return super().batch_smoothness(batch_size, factor)
        ridge = float(self._ridge.max()) * (1.0 if factor is None else factor.squared_norm)
        added: Array = self._batch_shares(batch_size) * (self.curvature * self._largest_rows(factor) + ridge)
        return added

    def _largest_rows(self, factor: LinOp | None) -> Array:
        """The largest squared norm of a row of each client, or of Sᵀ times a row."""
        X = self._rows.X
        if factor is None:
            squares = X.power(2).sum(axis=1) if self._sparse else np.einsum("ij,ij->i", X, X)
        elif isinstance(factor, Diagonal):
            squares = (X.power(2) if self._sparse else X**2) @ self._scales(factor) ** 2
        else:
            columns = self._columns(factor)
            if columns is None:
                return factor.squared_norm * self._largest_rows(None)
            squares = np.concatenate([
                np.square(X[first : first + ROWS] @ columns.T).sum(axis=1) for first in range(0, X.shape[0], ROWS)
            ])  # fmt: skip
        largest: Array = np.maximum.reduceat(np.asarray(squares, dtype=np.float64), self._rows.offsets[:-1])
        return largest

    @property
    def least_convexity(self) -> float:
        return float(self.ridge_of_x.min(initial=np.inf))

    def constants(self) -> tuple[Array, ...]:
        # A ridge that is everywhere the same shows in every value; how another one is spread may not.
        return () if self._ridge.min() == self._ridge.max() else (self._ridge,)

    def _weighted_gram(self, scale: Array) -> Array:
        """Σ_j s_j a_j a_jᵀ over all rows, in float64."""
        X = self._rows.X
        if self._sparse:
            from fpdfp._kernels import matrix

            d = self.n_features
            out, parts = np.empty((d, d)), np.zeros((max(1, min(8, GRAM_PARTS // d**2)), d, d))
            matrix.weighted_gram_csr(X.data, X.indices, X.indptr, scale, np.arange(d), parts, out)
            return out
        wide = X.astype(np.float64, copy=False)
        product: Array = wide.T @ (wide * scale[:, None])
        return product

    def _row_weights(self, weights: Array) -> Array:
        """The weight of each row in Σ w_i f_i."""
        shares = np.repeat(weights / self.sizes, self.sizes)
        return shares if self._rows.weights is None else shares * self._rows.weights

    def _column_squares(self, weights: Array) -> Array:
        """Σ_j c_j a_jk² for each feature k, with c_j the weight of row j; kept, since it is requested again."""
        key = weights.tobytes()
        if self._squares is None or self._squares[0] != key:
            X, scale = self._rows.X, self._row_weights(weights)
            if self._sparse:
                squares = X.power(2).T @ scale
            else:
                starts = range(0, len(X), ROWS)
                squares = sum(scale[i : i + ROWS] @ np.square(X[i : i + ROWS], dtype=np.float64) for i in starts)
            self._squares = key, squares
        kept: Array = self._squares[1]
        return kept

    @property
    def has_duals(self) -> bool:
        """Whether the conjugate of the loss of a row is known."""
        return self.by_forms

    def dual_points(self, x: Array, weights: Array) -> RowDuals | None:
        return RowDuals(self, x, weights) if self.has_duals else None

    def _shift(self, z: Array) -> Array:
        """Return linear forms with the offsets of rows."""
        return z

    def _bend(self, z: Array, y: Array) -> float:
        """A bound of the second derivative of the loss of a row near its linear form."""
        return self.curvature

    def _slopes(self, z: Array, y: Array) -> Array:
        """The derivative of the loss of each row in its linear forms."""
        raise NotImplementedError

    def _curve(self, z: Array, y: Array, change: Array) -> Array:
        """The second derivative of the loss of each row, times a change of its linear forms."""
        raise NotImplementedError

    def _young_gaps(self, z: Array, y: Array, change: Array | None, scale: float) -> Array:
        """φ(z) + φ*(θ) − zθ of each row at θ = scale (φ'(z) − change), infinite outside the domain of φ*."""
        raise NotImplementedError


def _names_of(X: Any, given: Any) -> tuple[str, ...] | None:
    """Return the names of the features: the given names, or else a table's column names."""
    found = getattr(X, "columns", None) if given is None else given
    if isinstance(found, str):
        raise ArgumentTypeError("feature_names", f"must be a sequence of names, got the text {found!r}")
    return None if found is None else tuple(map(str, found))


def _check_ridge(l2: Any, n_features: int) -> float | Array:
    """Return a ridge: a number, or one for each feature."""
    if not isinstance(l2, list | tuple) and np.ndim(l2) == 0:
        return _checks.real("l2", l2, at_least=0.0)
    ridge = _checks.float_array("l2", l2, dtype=np.float64).copy()
    if ridge.shape != (n_features,):
        raise ValueError(
            f"l2 must be one number, or one for each of the {n_features} features, got shape {ridge.shape}"
        )
    if (ridge < 0).any():
        where = int(ridge.argmin())
        raise ValueError(f"l2 must be at least 0 for every feature, got {ridge[where]:g} for feature {where}")
    return ridge


def _largest_eigenvalue(gram: Array) -> float:
    """The largest eigenvalue; of larger matrices an estimate from power steps, a tenth above what they show."""
    if len(gram) <= POWER:
        return float(np.linalg.eigvalsh(gram)[-1]) * (1.0 + 1e-9)
    vector = np.cos(np.arange(1.0, len(gram) + 1.0))
    value = 0.0
    for _ in range(STEPS):
        image = gram @ vector
        if not image.any():
            return float(np.trace(gram))
        value = float(np.linalg.norm(image)) / float(np.linalg.norm(vector))
        vector = image / max(float(np.linalg.norm(image)), 1e-300)
    return min(1.1 * value, float(np.trace(gram)))


#: Where Lanczos gives a client's bound it is then at most a twentieth too large: more steps take longer than they save.
NORM_STEPS = 80


def gram_norms(X: Any, offsets: IntArray) -> Array:
    """Return, for each client, an upper bound of ‖X_i‖², the largest eigenvalue of X_iᵀX_i.

    Clients with equally many rows, fewer than columns, go through LAPACK together; a million small clients
    then take seconds.
    """
    counts = np.diff(offsets)
    columns = X.shape[1]
    norms = np.empty(len(counts))
    for count in np.unique(counts):
        clients = np.flatnonzero(counts == count)
        if count < min(columns, 128):
            # No more at once than takes some ten megabytes.
            each = count * (columns if isinstance(X, np.ndarray) else count)
            for part in np.array_split(clients, max(1, len(clients) * each // (1 << 21))):
                norms[part] = _small_norms(X, offsets[part], int(count))
        else:
            for client in clients:
                first, last = offsets[client : client + 2]
                norms[client] = squared_norm_bound(X[first:last], NORM_STEPS)
    return norms


def _small_norms(X: Any, starts: IntArray, count: int) -> Array:
    """The largest eigenvalues of X_iX_iᵀ for clients with ``count`` rows each, padded for rounding."""
    if not isinstance(X, np.ndarray):
        from fpdfp._kernels.matrix import row_grams

        grams = np.empty((len(starts), count, count))
        row_grams(X.data, X.indices, X.indptr, starts, grams)
    else:
        block = X[(starts[:, None] + np.arange(count)).ravel()].astype(np.float64, copy=False)
        block = block.reshape(len(starts), count, X.shape[1])
        grams = block @ block.transpose(0, 2, 1)
    spectra = np.linalg.eigvalsh(grams)
    largest: Array = spectra[:, -1] * (1.0 + 16 * (count + X.shape[1]) * np.finfo(np.float64).eps)
    return largest


def gram(X: Any, scale: Array) -> Array:
    """Return Σ_j s_j a_j a_jᵀ as a dense matrix."""
    product = X.T @ (X.multiply(scale[:, None]).tocsr() if hasattr(X, "tocsr") else X * scale[:, None])
    return np.asarray(product.toarray() if hasattr(product, "toarray") else product, dtype=np.float64)


def lower_triangle(matrix: Array) -> Array:
    """Return the lower triangle of a symmetric matrix."""
    triangle: Array = matrix[np.tril_indices(len(matrix))]
    return triangle


#: The curvature of the loss of a row, for families in which it is the same everywhere; these have dual points there.
CURVATURES = {"Logistic": 0.25, "LeastSquares": 1.0, "Softmax": 0.5}


class RowDuals:
    """The dual points of a model with rows of samples, in double precision for rows of any precision.

    Who knows the linear forms of x already, and Aᵀcφ'(z), need not have them computed again. Forms that were added up
    over some steps are rounded as at a point as large as ``travel``, the sum of the sizes of all that was added.
    """

    def __init__(
        self,
        losses: LinearModel,
        x: Array,
        weights: Array,
        forms: Array | None = None,
        slope: Array | None = None,
        travel: Array | None = None,
    ) -> None:
        self._losses = losses
        self._X, self._y = losses._rows.X, losses._rows.y.astype(np.float64, copy=False)
        self._x = x.astype(np.float64)
        self._travel = np.abs(self._x) if travel is None else travel
        self._weights = losses._row_weights(weights)
        self._client_weights = weights
        self.ridge = np.broadcast_to(float(weights.sum()) * losses._ridge, losses.shape)
        self._forms = losses._shift(self._times(self._x)) if forms is None else forms
        self._slope = slope
        self.columns = losses._column_squares(weights)

    def _times(self, x: Array) -> Array:
        """Return the linear forms of x, with a column for each class where x has rows."""
        wide = x.T
        if self._losses._sparse or self._X.dtype == np.float64:
            product: Array = self._X @ wide
            return product
        starts = range(0, len(self._X), WIDENED)
        return np.concatenate([self._X[i : i + WIDENED].astype(np.float64) @ wide for i in starts])

    def _back(self, slopes: Array) -> Array:
        """Return Aᵀ slopes, in the shape of x."""
        if self._losses._sparse or self._X.dtype == np.float64:
            product: Array = self._X.T @ slopes
            return product.T
        starts = range(0, len(self._X), WIDENED)
        total = sum(self._X[i : i + WIDENED].astype(np.float64).T @ slopes[i : i + WIDENED] for i in starts)
        return np.asarray(total).T

    def _weigh(self, values: Array) -> Array:
        weighed: Array = (self._weights * values.T).T
        return weighed

    def begin(self) -> None:
        """Nothing needs to be asked."""

    def gradient(self, direction: Array | None = None, *, gap: bool = False) -> Array:
        """Return Aᵀcθ with s = 1."""
        if direction is None and self._slope is not None:
            return self._slope
        slopes = self._losses._slopes(self._forms, self._y)
        if direction is not None:
            slopes = slopes - self._losses._curve(self._forms, self._y, self._times(direction))
        return self._back(self._weigh(slopes))

    def gap(self, direction: Array | None, scale: float) -> float:
        """Return Σ c_j (φ(z_j) + φ*(θ_j) − z_j θ_j)."""
        rounding = form_rounding(self._losses._bend(self._forms, self._y), self.columns, self._travel)
        if direction is None and scale == 1.0:
            return rounding
        change = None if direction is None else self._losses._curve(self._forms, self._y, self._times(direction))
        gaps = self._losses._young_gaps(self._forms, self._y, change, scale)
        return add_gaps(gaps, self._weights) + rounding

    def rounding(self) -> Array:
        """Return an estimated bound of the rounding error of each entry of the gradient."""
        return sum_rounding(self.sizes(), self.columns)

    def sizes(self) -> Array:
        """Return Σ_j c_j φ'(z_j)², for each class where there are some."""
        sizes: Array = np.square(self._losses._slopes(self._forms, self._y)).T @ self._weights
        return sizes

    def hessian_products(self, directions: Array) -> Array:
        """Return the Hessian of h at x times each of some directions."""
        curve = self._losses._curve
        return np.stack([self._back(self._weigh(curve(self._forms, self._y, self._times(one)))) for one in directions])

    def hessian(self) -> Array | None:
        """Return the Hessian of h at x as a matrix, None where it would be too large."""
        matrix = self._losses.hessian(self._x, self._client_weights)
        if matrix is not None:
            matrix[np.diag_indices_from(matrix)] -= self.ridge.ravel()
        return matrix


def add_gaps(gaps: Array, weights: Array) -> float:
    """Return Σ c_j gap_j over rows that count; infinity (no bound) where a gap is below 0 or not a number."""
    used = weights > 0
    return float(weights[used] @ gaps[used]) if (gaps[used] >= 0).all() else np.inf


def sum_rounding(sizes: Array, columns: Array) -> Array:
    """Return ROUNDINGS units of the last place of Σ_j |c_j a_jk θ_j|, by the inequality of Cauchy and Schwarz.

    ``sizes`` are Σ_j c_j θ_j², and ``columns`` are Σ_j c_j a_jk².
    """
    return ROUNDINGS * EPS * np.multiply.outer(np.sqrt(sizes), np.sqrt(columns))


def form_rounding(curvature: float, columns: Array, x: Array) -> float:
    """Return what the rounding of the linear forms adds to a gap, since θ is computed from rounded ones."""
    error = ROUNDINGS * EPS * float((np.sqrt(columns) * np.abs(x)).sum())
    return 0.5 * curvature * error**2


class ManySums(NamedTuple):
    """Sums of clients at many points, with a leading client axis, without ridge, divided by the number of rows.

    Attributes
    ----------
    values
        The sum of the losses of the rows that are not excluded at a point.
    helds
        What leaving the others out takes off the loss of all rows: the sum of their losses, or for Cox's partial
        likelihood the difference.
    slopes
        The gradients of ``values``.
    """

    values: Array
    helds: Array
    slopes: Array


def evaluate_rows(losses: LinearModel, points: Array, held: IntArray, labels: IntArray, clients: IntArray) -> ManySums:
    """Return the sums of a model whose loss is a sum over rows of a function of one linear form."""
    from fpdfp._kernels import many

    functions = losses._functions()
    assert functions is not None
    rows, shape = losses._rows, (len(clients), len(points))
    out = ManySums(np.zeros(shape), np.zeros(shape), np.empty((*shape, losses.n_features)))
    columns = np.ascontiguousarray(points.T, dtype=np.float64)
    kernel: Any = many.evaluate
    kernel(*functions, *losses._matrix, rows.y, rows.offsets, labels, clients, columns, held, *out)
    return out


def evaluate_classes(
    losses: LinearModel, points: Array, held: IntArray, labels: IntArray, clients: IntArray, shifts: Array | None
) -> ManySums:
    """Return the sums of softmax losses; a point has a row for each class, ``shifts`` a column."""
    from fpdfp._kernels import many

    rows, (count, classes, d) = losses._rows, points.shape
    shape = (len(clients), count)
    out = ManySums(np.zeros(shape), np.zeros(shape), np.empty((len(clients), count * classes, d)))
    columns = np.ascontiguousarray(points.reshape(-1, d).T, dtype=np.float64)
    kernel: Any = many.evaluate_classes
    kernel(rows.weights, shifts, *losses._matrix, rows.y, rows.offsets, labels, clients, columns, held, *out)
    return out._replace(slopes=out.slopes.reshape(*shape, classes, d))


def evaluate_one_by_one(
    losses: LinearModel, points: Array, held: IntArray, labels: IntArray, clients: IntArray
) -> ManySums:
    """Do the same for losses of any form that can leave rows out."""
    shape = (len(clients), len(points))
    out = ManySums(np.empty(shape), np.zeros(shape), np.empty((*shape, *losses.shape)))
    ridge = losses.ridge_of_x
    for fold in np.unique(held):
        kept = losses if fold < 0 else losses.keep_rows(labels != fold)
        for p in np.flatnonzero(held == fold):
            x = points[p].astype(losses.dtype)
            found = kept.values(x, clients)
            out.helds[:, p] = losses.saturations(clients)
            if fold >= 0:
                out.helds[:, p] += losses.values(x, clients) - found - kept.saturations(clients)
            out.values[:, p] = found - 0.5 * float(ridge @ x**2)
            out.slopes[:, p] = kept.gradients(x, clients) - ridge * x
    return out


class ManyDuals:
    """The dual points of a linear model near many points, of one client at a time.

    Sums are divided by the number of the client's rows, and have no ridge.
    """

    def __init__(self, losses: LinearModel, points: Array, held: IntArray, labels: IntArray) -> None:
        self.losses, self.points, self.held, self.labels = losses, points, held, labels
        self._client: tuple[int, Any, Array] | None = None

    def of(self, client: int, place: int, direction: Array) -> PointDuals:
        """Return the dual points of a client near one of the points, along a direction."""
        own = self.losses._place(client)
        X, columns = self._prepare(client)
        weights = (self.labels[own] != self.held[place]) * self.losses.masses[own] / self.losses.sizes[client]
        return PointDuals(self.losses, X, columns, own, weights, self.points[place], direction)

    def columns_of(self, client: int) -> Array:
        """Return Σ c a² of each feature over all rows of a client."""
        return self._prepare(client)[1]

    def _prepare(self, client: int) -> tuple[Any, Array]:
        """Return the rows of a client in double precision and their sums of squares, kept for the last client."""
        if self._client is None or self._client[0] != client:
            own, sparse, X = self.losses._place(client), self.losses._sparse, self.losses._rows_of(client)
            X = X if sparse else X.astype(np.float64, copy=False)
            squares = X.power(2) if sparse else np.square(X)
            self._client = client, X, np.asarray(squares.T @ (self.losses.masses[own] / self.losses.sizes[client]))
        return self._client[1:]


class PointDuals:
    """The dual points θ = s (φ'(z) − φ''(z) Ad) of a client near a point x along a direction d, with rows weighted."""

    def __init__(
        self, losses: LinearModel, X: Any, columns: Array, own: slice, weights: Array, x: Array, direction: Array
    ) -> None:
        self._losses, self._X, self._columns, self._weights, self._x = losses, X, columns, weights, x
        self._y = losses._rows.y[own].astype(np.float64)
        shifts = losses._rows.shifts
        self._forms = X @ x if shifts is None else X @ x + shifts[own]
        self._change = losses._curve(self._forms, self._y, X @ direction) if direction.any() else None

    def gradient(self) -> Array:
        """Return Aᵀcθ with s = 1."""
        slopes = self._losses._slopes(self._forms, self._y)
        if self._change is not None:
            slopes = slopes - self._change
        product: Array = self._X.T @ (self._weights * slopes)
        return product

    def curvature(self, direction: Array) -> Array:
        """Return the Hessian times a direction."""
        change = self._losses._curve(self._forms, self._y, self._X @ direction)
        product: Array = self._X.T @ (self._weights * change)
        return product

    def gap(self, scale: float) -> float:
        """Return Σ c (φ(z) + φ*(θ) − zθ), and what rounding of the linear forms adds to it."""
        gaps = self._losses._young_gaps(self._forms, self._y, self._change, float(scale))
        return add_gaps(gaps, self._weights) + self.rounding()

    def rounding(self) -> float:
        """Return what rounding of the linear forms may add to a gap."""
        bend = self._losses._bend(self._forms, self._y)
        return form_rounding(bend, self._columns, self._x)

    def size(self) -> float:
        """Return Σ c φ'(z)²."""
        return float(self._weights @ np.square(self._losses._slopes(self._forms, self._y)))
