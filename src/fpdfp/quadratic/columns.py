"""Coordinate descent for a quadratic whose Hessian is that of sparse columns, with a weighted l1 norm.

    m(u) = ⟨s, u − c⟩ + ½ Σ_j w_j (A(u − c))_j² + ½ Σ_k R_k (u_k − c_k)² + Σ_k λ_k |u_k|

A sweep takes as long as to read the columns twice, so that hundreds of them take less time than to make AᵀWA where rows
have few entries. After every few sweeps the last points are extrapolated (D. G. Anderson, "Iterative procedures for
nonlinear integral equations", J. ACM 12, 1965), where m is smaller there. Coordinates that vanish are exactly 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fpdfp._typing import Array, IntArray

#: The most rounds, sweeps in each, and rounds whose points are extrapolated.
ROUNDS, SWEEPS, POINTS = 200, 5, 5
#: A ridge of the normal equations of an extrapolation, relative to their trace.
SMALL = 1e-12


class ColumnDescent:
    """Minimises m for one A; ``weights`` are those of the norm."""

    def __init__(self, matrix: Any, columns: IntArray, ridge: Array, weights: Array) -> None:
        self.matrix, self.columns, self.ridge, self.weights = matrix, columns, ridge, weights

    def minimise(self, curvatures: Array, x: Array, slope: Array, near: Callable[[Array, Array], bool]) -> Array:
        """Return a u of about the least m, one that with its slope is near enough, from x and the slope there."""
        from fpdfp._kernels.quadratic import curve_columns, descend_columns, slope_columns

        A = self.matrix
        arrays = A.data, A.indices, A.indptr, self.columns
        bounds, at = np.empty(len(x)), np.empty(len(x))
        curve_columns(*arrays, curvatures, self.ridge, bounds)
        u, image = x.copy(), np.zeros(A.shape[0])
        kept: list[tuple[Array, Array]] = []
        for _ in range(ROUNDS):
            before = u.copy()
            descend_columns(
                *arrays, curvatures, self.ridge, self.weights, bounds, slope, x, u, image, SWEEPS
            )  # fmt: skip
            kept = [*kept[-POINTS:], (u.copy(), image.copy())]
            if len(kept) > POINTS:
                self._extrapolate(kept, curvatures, x, slope, u, image)
                kept = []
            slope_columns(*arrays, curvatures, self.ridge, slope, x, u, image, at)
            if near(u, at) or np.array_equal(u, before):
                break
        return u

    def _extrapolate(
        self, kept: list[tuple[Array, Array]], curvatures: Array, x: Array, slope: Array, u: Array, image: Array
    ) -> None:
        """Move to the extrapolated point, if m is smaller there and the same coordinates are 0."""
        points, images = (np.array(part) for part in zip(*kept, strict=True))
        changes = np.diff(points, axis=0)
        system = changes @ changes.T
        system[np.diag_indices_from(system)] += SMALL * np.trace(system)
        if not system.any():
            return
        shares = np.linalg.solve(system, np.ones(len(system)))
        shares /= shares.sum()
        new, new_image = shares @ points[1:], shares @ images[1:]
        if self._value(new, new_image, curvatures, x, slope) < self._value(u, image, curvatures, x, slope):
            u[:], image[:] = new, new_image

    def _value(self, u: Array, image: Array, curvatures: Array, x: Array, slope: Array) -> float:
        away = u - x
        quadratic = float(curvatures @ np.square(image)) + float(self.ridge @ np.square(away))
        return float(slope @ away) + 0.5 * quadratic + float(self.weights @ np.abs(u))
