"""The logistic loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._numbers import kullback_leibler
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.losses._single import SingleForm


class Logistic(SingleForm):
    r"""Logistic losses with a ridge, one for each client.

    .. math:: f_i(x) = \frac{1}{n_i} \sum_{j} \log(1 + \exp(-y_j a_j^T x)) + \frac{1}{2} \sum_k l_{2,k} x_k^2

    over the rows j that client i holds.

    Parameters
    ----------
    X
        The rows of all clients: a dense matrix or a SciPy sparse one.
    y
        Their labels, in {−1, 1} or in {0, 1}.
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
    >>> losses = fpdfp.losses.Logistic(np.eye(4), [0, 1, 1, 0], clients=["b", "a", "a", "b"], l2=0.1)
    >>> losses
    Logistic(dense 4 × 4, 2 clients, l2=0.1)
    >>> losses.values(np.zeros(4), np.array([0, 1]))
    array([0.69314718, 0.69314718])
    """

    kind = 0  # LOGISTIC of the kernels
    outcome_family = "binomial"
    curvature = 0.25
    steepest = 1.0

    @staticmethod
    def _targets(y: Any) -> Any:
        labels = _checks.float_array("y", y)
        found = np.unique(labels)
        if not (np.isin(found, (-1.0, 1.0)).all() or np.isin(found, (0.0, 1.0)).all()):
            shown = ", ".join(f"{value:g}" for value in found[:6]) + (", …" if found.size > 6 else "")
            raise ArgumentError("y", f"must hold labels in {{-1, 1}} or in {{0, 1}}, got {shown}")
        if found.size < 2:
            raise ArgumentError("y", f"must hold both classes, but every label is {found[0]:g}")
        return np.where(labels > 0, 1.0, -1.0)

    def _outcomes(self) -> Array:
        outcomes: Array = (self._rows.y + 1.0) / 2.0
        return outcomes

    def _phi(self, z: Array, y: Array) -> Array:
        from scipy.special import log_expit

        losses: Array = -log_expit(y * z)
        return losses

    def _slopes(self, z: Array, y: Array) -> Array:
        from scipy.special import expit

        slopes: Array = -y * expit(-y * z)
        return slopes

    def _second_derivative(self, z: Array) -> Array:
        from scipy.special import expit

        probability = expit(z)
        curvature: Array = probability * (1.0 - probability)
        return curvature

    def _young_gaps(self, z: Array, y: Array, change: Array | None, scale: float) -> Array:
        # θ = −y p with p the probability of the other class: φ + φ* − zθ is the divergence of the new p from p.
        from scipy.special import expit

        probability, opposite = expit(-y * z), expit(y * z)
        moved = (scale - 1.0) * probability + (0.0 if change is None else scale * y * change)
        return kullback_leibler(moved, probability) + kullback_leibler(-moved, opposite)
