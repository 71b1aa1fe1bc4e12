"""Linear models with one linear form: a mean over rows of φ(a_jᵀx, y_j)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.losses._linear import DENSE_HESSIAN, LinearModel


class SingleForm(LinearModel):
    """What logistic and least-squares losses over a matrix share; see there."""

    #: Which φ the kernels take.
    kind: ClassVar[int]

    def _kernel(self, name: str) -> Callable[..., None]:
        from fpdfp._kernels import glm

        return functools.partial(getattr(glm, name), self.kind)

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        return self._grams(clients, lambda X: self._second_derivative(X @ x))

    def hessian(self, x: Array, weights: Array) -> Array | None:
        if self.n_features > DENSE_HESSIAN:
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

    def _second_derivative(self, z: Array) -> Array:
        """The second derivative of φ at each row."""
        raise NotImplementedError
