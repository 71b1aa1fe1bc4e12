"""The squared loss over a matrix."""

from __future__ import annotations

import numpy as np

from fpdfp._typing import Array
from fpdfp.losses._single import SingleForm
from fpdfp.losses.base import Form

#: The smallest eigenvalue of AᵀA is looked for if forming it takes no more operations than this.
GRAM_BUDGET = 10**10


class LeastSquares(SingleForm):
    r"""Squared losses over the rows of a matrix, one for each client.

    .. math:: f_i(x) = \frac{1}{2 n_i} \|A_i x - b_i\|^2 + \frac{1}{2} \sum_k l_{2,k} x_k^2

    where A_i and b_i are the rows that client i holds. For operators see :class:`OperatorLeastSquares`.

    Parameters
    ----------
    X
        The rows of all clients: a dense matrix or a SciPy sparse one.
    y
        Their targets.
    clients
        Which client holds each row: any labels, numbered in sorted order. None means one client.
    l2
        The weight of the ridge: a number, or one for each feature (0 for an intercept, for instance).
    n_clients
        If given, ``clients`` must be integers below it, and each must hold a row.
    feature_names
        The names of the columns; by default those of a table. Sites of one federation must agree on them.
    dtype
        float32 or float64: the precision of the rows, and with them of x, gradients and messages. By default that of X.
        Sums that must not lose digits, objectives and certificates are float64 in any case.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(2 * np.eye(2), [1.0, 1.0], clients=[0, 1])
    >>> losses.gradients(np.zeros(2), np.array([0, 1]))
    array([[-2.,  0.],
           [ 0., -2.]])
    >>> losses.lipschitz()
    array([4., 4.])
    """

    kind = 1  # SQUARED of the kernels
    outcome_family = "gaussian"
    curvature = 1.0

    @property
    def form(self) -> Form:
        return "quadratic"

    def strong_convexity(self, weights: Array) -> float:
        ridge = super().strong_convexity(weights)
        rows, columns = self._rows.X.shape
        if rows * columns**2 > GRAM_BUDGET:
            return ridge
        hessian = self.hessian(np.zeros(self.shape, dtype=self.dtype), weights)
        if hessian is None:
            return ridge
        spectrum = np.linalg.eigvalsh(hessian.astype(np.float64))
        # What forming the matrix (in float64, over all rows) and LAPACK can have added, with room to spare.
        rounding = 16 * (rows + columns) * float(np.finfo(np.float64).eps) * float(np.trace(hessian))
        least = float(spectrum[0])
        return max(ridge, least - rounding) if least > 4 * rounding else ridge

    def _phi(self, z: Array, y: Array) -> Array:
        losses: Array = 0.5 * (z - y) ** 2
        return losses

    def _slopes(self, z: Array, y: Array) -> Array:
        return z - y

    def _second_derivative(self, z: Array) -> Array:
        return np.ones_like(z)

    def _young_gaps(self, z: Array, y: Array, change: Array | None, scale: float) -> Array:
        moved = (scale - 1.0) * (z - y) - (0.0 if change is None else scale * change)
        gaps: Array = 0.5 * np.square(moved)
        return gaps
