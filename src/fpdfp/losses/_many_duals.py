"""Dual points near many points at once, at each with some of the rows left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.losses._duals import add_gaps, form_rounding

if TYPE_CHECKING:
    from fpdfp.losses._linear import LinearModel


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
