"""Linear models with one linear form: a mean over rows of φ(a_jᵀx, y_j)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.losses._linear import DENSE_HESSIAN, LinearModel
from fpdfp.losses.base import InformationSums

if TYPE_CHECKING:
    from fpdfp.losses.glm import GLM

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


class SingleForm(LinearModel):
    """What logistic and least-squares losses over a matrix share; see there."""

    #: Which φ the kernels take.
    kind: ClassVar[int]
    #: The family of outcomes whose likelihood it is.
    outcome_family: ClassVar[str]

    def _kernel(self, name: str) -> Callable[..., None]:
        from fpdfp._kernels import glm

        name_of_phi = ("logistic", "squared")[self.kind]
        function = getattr(glm, name_of_phi if name == "values" else f"{name_of_phi}_slope")
        return functools.partial(getattr(glm, name), function.address, 0.0, 0.0, None, None)

    def _functions(self) -> tuple[Any, ...]:
        from fpdfp._kernels import glm

        name = ("logistic", "squared")[self.kind]
        return getattr(glm, name).address, getattr(glm, f"{name}_slope").address, 0.0, 0.0, None, None

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        return self._grams(clients, lambda rows: self._second_derivative(self._rows.X[rows] @ x))

    def hessian(self, x: Array, weights: Array) -> Array | None:
        if not self.has_dense_hessian:
            return None
        scale = self._row_weights(weights) * self._second_derivative(self._rows.X @ x)
        hessian = self._weighted_gram(scale)
        hessian[np.diag_indices_from(hessian)] += float(weights.sum()) * self._ridge
        return hessian

    def hessian_product(self, x: Array, direction: Array, weights: Array) -> Array:
        X = self._rows.X
        scale = self._row_weights(weights) * self._second_derivative(X @ x)
        product: Array = X.T @ (scale * (X @ direction)) + float(weights.sum()) * self._ridge * direction
        return product

    def sums_at(self, x: Array, clients: IntArray, *, robust: bool) -> InformationSums | None:
        return self._as_glm.sums_at(x, clients, robust=robust)

    def start_model(self, clients: IntArray, *, level: bool = False) -> tuple[Array, Array] | None:
        return self._as_glm.start_model(clients, level=level)

    @functools.cached_property
    def _as_glm(self) -> GLM:
        """The same losses as those of a generalised linear model."""
        from fpdfp.losses.glm import GLM

        return GLM.of_rows(self._rows._replace(y=self._outcomes()), self.outcome_family, self.l2, self.feature_names)

    def _outcomes(self) -> Array:
        """The outcomes of rows as a family has them."""
        return self._rows.y

    def pooled(self, weights: Array) -> PooledRows | None:
        # The products of single precision are too coarse for what is built on them; the kernels sum in double.
        return PooledRows(self, weights) if self.dtype == np.float64 else None

    @property
    def has_dense_hessian(self) -> bool:
        """Whether the Hessian is formed as a matrix."""
        return self.n_features <= DENSE_HESSIAN

    def _phi(self, z: Array, y: Array) -> Array:
        """φ at each row."""
        raise NotImplementedError

    def _curve(self, z: Array, y: Array, change: Array) -> Array:
        return self._second_derivative(z) * change

    def _second_derivative(self, z: Array) -> Array:
        """The second derivative of φ at each row."""
        raise NotImplementedError
