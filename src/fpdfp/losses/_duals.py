"""Dual points of linear models, for bounds of F(x) − F*, and sums at many points, each without some rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from fpdfp._typing import Array, IntArray

if TYPE_CHECKING:
    from fpdfp.losses._linear import LinearModel

#: How many roundings a sum over rows allows for, relative to the sum of the terms' sizes.
ROUNDINGS = 8
#: The machine epsilon of double precision.
EPS = float(np.finfo(np.float64).eps)
#: Rows of single precision that are widened at a time.
ROWS = 1 << 14


class DualPoints(Protocol):
    r"""Dual points of f = h + ½ Σ R_j x_j² near a point x, with h(x) = Σ c_j φ(a_jᵀx).

    A direction d and a scale s give θ = s (φ'(z) − φ''(z) Ad) at the linear forms z = Ax. With d = 0 and s = 1 it is
    the dual point of x itself.
    """

    #: R, with the shape of x.
    ridge: Array

    def gradient(self, direction: Array | None = None) -> Array:
        """Return Aᵀcθ with s = 1: the gradient of h at x where there is no direction."""

    def gap(self, direction: Array | None, scale: float) -> float:
        """Return Σ c_j (φ(z_j) + φ*(θ_j) − z_j θ_j), at least 0; infinity where θ is outside the domain of φ*."""

    def rounding(self) -> Array:
        """Return an estimated bound of the rounding error of each entry of the gradient."""

    def curvature(self, direction: Array) -> Array:
        """Return the Hessian of h at x times a direction."""

    def hessian(self) -> Array | None:
        """Return the Hessian of h at x as a matrix, None if it is not available."""


class RowDuals:
    """The dual points of a model with rows of samples, in double precision for rows of any precision.

    Who knows the linear forms of x already, and Aᵀcφ'(z), need not have them computed again. Forms that were added up
    over some steps are rounded as those of a point as large as ``travel``, the sum of the sizes of all that was added.
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
        if self._losses._rows.sparse or self._X.dtype == np.float64:
            product: Array = self._X @ wide
            return product
        starts = range(0, len(self._X), ROWS)
        return np.concatenate([self._X[i : i + ROWS].astype(np.float64) @ wide for i in starts])

    def _back(self, slopes: Array) -> Array:
        """Return Aᵀ slopes, in the shape of x."""
        if self._losses._rows.sparse or self._X.dtype == np.float64:
            product: Array = self._X.T @ slopes
            return product.T
        starts = range(0, len(self._X), ROWS)
        total = sum(self._X[i : i + ROWS].astype(np.float64).T @ slopes[i : i + ROWS] for i in starts)
        return np.asarray(total).T

    def _weigh(self, values: Array) -> Array:
        weighed: Array = (self._weights * values.T).T
        return weighed

    def gradient(self, direction: Array | None = None) -> Array:
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

    def curvature(self, direction: Array) -> Array:
        """Return the Hessian of h at x times a direction."""
        return self._back(self._weigh(self._losses._curve(self._forms, self._y, self._times(direction))))

    def hessian(self) -> Array | None:
        """Return the Hessian of h at x as a matrix, None where it would be too large."""
        matrix = self._losses.hessian(self._x, self._client_weights)
        if matrix is not None:
            matrix[np.diag_indices_from(matrix)] -= self.ridge.ravel()
        return matrix


def add_gaps(gaps: Array, weights: Array) -> float:
    """Return Σ c_j gap_j over rows that count; infinity, which is no bound, where a gap is below 0 or not a number."""
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
    """What clients have at many points, with a leading client axis; without ridge, and divided by the number of rows.

    Attributes
    ----------
    values
        The sum of the losses of the rows that are not left out at a point.
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
    matrix = (None, rows.X.data, rows.X.indices, rows.X.indptr) if rows.sparse else (rows.X, None, None, None)
    columns = np.ascontiguousarray(points.T, dtype=np.float64)
    kernel: Any = many.evaluate
    kernel(*functions, *matrix, rows.y, rows.offsets, labels, clients, columns, held, *out)
    return out


def evaluate_classes(
    losses: LinearModel, points: Array, held: IntArray, labels: IntArray, clients: IntArray, shifts: Array | None
) -> ManySums:
    """Return the sums of softmax losses; a point has a row for each class, ``shifts`` a column."""
    from fpdfp._kernels import many

    rows, (count, classes, d) = losses._rows, points.shape
    shape = (len(clients), count)
    out = ManySums(np.zeros(shape), np.zeros(shape), np.empty((len(clients), count * classes, d)))
    matrix = (None, rows.X.data, rows.X.indices, rows.X.indptr) if rows.sparse else (rows.X, None, None, None)
    columns = np.ascontiguousarray(points.reshape(-1, d).T, dtype=np.float64)
    kernel: Any = many.evaluate_classes
    kernel(rows.weights, shifts, *matrix, rows.y, rows.offsets, labels, clients, columns, held, *out)
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
        """Return those of a client near one of the points, along a direction."""
        own = self._place(client)
        X, columns = self._prepare(client)
        weights = (self.labels[own] != self.held[place]) * self.losses.masses[own] / self.losses.sizes[client]
        return PointDuals(self.losses, X, columns, own, weights, self.points[place], direction)

    def columns_of(self, client: int) -> Array:
        """Return Σ c a² of each feature over all rows of a client."""
        return self._prepare(client)[1]

    def _place(self, client: int) -> slice:
        offsets = self.losses._rows.offsets
        return slice(int(offsets[client]), int(offsets[client + 1]))

    def _prepare(self, client: int) -> tuple[Any, Array]:
        """Return the rows of a client in double precision, and their sums of squares; those of the last are kept."""
        if self._client is None or self._client[0] != client:
            rows, own = self.losses._rows, self._place(client)
            X = rows.X[own] if rows.sparse else rows.X[own].astype(np.float64, copy=False)
            squares = X.power(2) if rows.sparse else np.square(X)
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
