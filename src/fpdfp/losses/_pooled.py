"""f with the rows of all clients in one place: value, gradient and Hessian share the linear forms of a point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fpdfp._typing import Array

if TYPE_CHECKING:
    from fpdfp.losses._single import SingleForm

#: The Hessian of an earlier point serves where no row's curvature is off by more than this share of its own.
STALE = 0.05


class PooledRows:
    """Σ_j w_j φ(a_jᵀx, y_j) + ½ Σ_k r_k x_k², over the rows of all clients.

    A solver asks for the value, the gradient and the Hessian at the same point in turn; each of them starts from the
    linear forms a_jᵀx, which are computed once. The Hessian may be that of an earlier point (``STALE``): good enough
    for a search direction, and a weighted Gram matrix saved.
    """

    def __init__(self, losses: SingleForm, weights: Array) -> None:
        self._losses = losses
        self._X = losses._rows.X
        self._y = losses._rows.y
        self._weights = losses._row_weights(weights)
        self._ridge = float(weights.sum()) * losses._ridge
        self._at: Array | None = None
        self._forms: Any = None
        self._curvatures: Array | None = None
        self._hessian: Array | None = None

    def _linear_forms(self, x: Array) -> Array:
        if self._at is None or not np.array_equal(x, self._at):
            self._forms = self._X @ x
            self._at = x.copy()
        forms: Array = self._forms
        return forms

    def value(self, x: Array) -> float:
        """Return f(x)."""
        losses = self._losses._phi(self._linear_forms(x), self._y)
        return float((self._weights * losses).sum() + 0.5 * (self._ridge * x * x).sum())

    def gradient(self, x: Array) -> Array:
        """Return ∇f(x)."""
        slopes = self._weights * self._losses._slopes(self._linear_forms(x), self._y)
        gradient: Array = self._X.T @ slopes + self._ridge * x
        return gradient

    def hessian(self, x: Array) -> Array | None:
        """Return ∇²f of x or of a point near it; None where it is too large for a matrix."""
        if not self._losses.has_dense_hessian:
            return None
        curvatures = self._losses._second_derivative(self._linear_forms(x))
        if self._hessian is None or not self._is_close(curvatures):
            self._hessian = self._losses._weighted_gram(self._weights * curvatures)
            self._hessian[np.diag_indices_from(self._hessian)] += self._ridge
            self._curvatures = curvatures
        return self._hessian

    def _is_close(self, curvatures: Array) -> bool:
        assert self._curvatures is not None
        return bool((np.abs(curvatures - self._curvatures) <= STALE * self._curvatures).all())

    def hessian_product(self, x: Array, direction: Array) -> Array:
        """Return ∇²f(x) times a direction."""
        scale = self._weights * self._losses._second_derivative(self._linear_forms(x))
        product: Array = self._X.T @ (scale * (self._X @ direction)) + self._ridge * direction
        return product
