"""The squared loss over linear operators, one for each client."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError
from fpdfp.linops import Compose, LinOp, aslinop
from fpdfp.linops.base import squared_norm_bound
from fpdfp.losses.base import Losses
from fpdfp.rng import Draws

#: Lanczos steps for the norm of an operator in other coordinates.
STEPS = 60


class OperatorLeastSquares(Losses):
    r"""Squared losses over linear operators: each client holds an operator A_i and its data b_i.

    .. math:: f_i(x) = \frac{c_i}{2} \|A_i x - b_i\|^2 + \frac{l_2}{2} \|x\|^2

    with :math:`c_i = 1/\mathrm{size}(b_i)` for ``scale="mean"`` and :math:`c_i = 1` for ``scale="sum"``.

    Parameters
    ----------
    operators
        One operator for each client: a matrix, a SciPy ``LinearOperator`` or an :mod:`fpdfp.linops` map.
    data
        The data of each client, of the shape that its operator gives.
    l2
        The weight of the ridge.
    scale
        ``"mean"`` over a client's data, or ``"sum"``.
    check
        Whether to compare ⟨A_i x, v⟩ with ⟨x, A_iᵀv⟩ at random points, for operators of other packages.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> halves = [np.eye(4)[:2], np.eye(4)[2:]]
    >>> losses = fpdfp.losses.OperatorLeastSquares(halves, [np.ones(2), np.ones(2)], scale="sum")
    >>> losses.values(np.zeros(4), np.array([0, 1]))
    array([1., 1.])
    """

    lower_bound = 0.0

    def __init__(
        self,
        operators: Sequence[Any],
        data: Sequence[Any],
        l2: float = 0.0,
        scale: str = "mean",
        *,
        check: bool = True,
    ) -> None:
        if len(operators) == 0:
            raise ValueError("operators must hold one operator for each client, got none")
        if len(operators) != len(data):
            raise ValueError(
                f"there must be an operator and a data array for each client, got {len(operators)} and {len(data)}"
            )
        self._operators: list[LinOp] = [
            aslinop(operator, name=f"operators[{i}]") for i, operator in enumerate(operators)
        ]
        self.shape = self._operators[0].in_shape
        for i, operator in enumerate(self._operators):
            if operator.in_shape != self.shape:
                raise ValueError(
                    f"operators[{i}] acts on shape {operator.in_shape} but operators[0] on shape {self.shape}"
                )
        self._data = [
            _checks.own_array(f"data[{i}]", part, shape=operator.out_shape)
            for i, (part, operator) in enumerate(zip(data, self._operators, strict=True))
        ]
        self.dtype = np.result_type(*(part.dtype for part in self._data))
        if check:
            from fpdfp._verify import verify_adjoint

            for i, operator in enumerate(self._operators):
                verify_adjoint(f"operators[{i}]", operator, self.dtype)
        self.sizes = np.array([part.size for part in self._data], dtype=np.int64)
        self.l2 = _checks.real("l2", l2, at_least=0.0)
        mean = _checks.choice("scale", scale, ("mean", "sum")) == "mean"
        self._scales = 1.0 / self.sizes if mean else np.ones(len(self.sizes))

    def __repr__(self) -> str:
        return f"OperatorLeastSquares({self.n_clients} clients, x of shape {self.shape}, l2={self.l2:g})"

    @property
    def supports_batches(self) -> bool:
        return False

    @property
    def nearly_convolution(self) -> bool:
        return len(self.shape) > 1

    def values(self, x: Array, clients: IntArray) -> Array:
        self.check(x, clients, shared=True)
        out = np.empty(len(clients), dtype=np.float64)
        ridge = 0.5 * self.l2 * float(np.vdot(x, x))
        for row, client in enumerate(clients):
            residual = self._operators[client].apply(x) - self._data[client]
            out[row] = 0.5 * self._scales[client] * float(np.vdot(residual, residual)) + ridge
        return out

    def gradients(
        self, x: Array, clients: IntArray, batch_size: int | None = None, draws: Draws | None = None
    ) -> Array:
        if batch_size is not None:
            raise ArgumentError("batch_size", "must be None: an operator cannot be applied to a part of its samples")
        self.check(x, clients)
        out = np.empty((len(clients), *self.shape), dtype=self.dtype)
        shared = np.ndim(x) == len(self.shape)
        for row, client in enumerate(clients):
            point = x if shared else x[row]
            operator = self._operators[client]
            residual = operator.apply(point) - self._data[client]
            out[row] = self._scales[client] * operator.adjoint(residual) + self.l2 * point
        return out

    def lipschitz(self) -> Array:
        return self._lipschitz

    @functools.cached_property
    def _lipschitz(self) -> Array:
        norms = np.array([operator.squared_norm for operator in self._operators])
        constants: Array = self._scales * norms + self.l2
        return constants

    def lipschitz_in(self, factor: LinOp) -> Array:
        # Fewer steps than for a client's own constant: methods that use this one adapt their steps.
        norms = [squared_norm_bound(Compose(operator, factor), STEPS) for operator in self._operators]
        constants: Array = self._scales * np.array(norms) + self.l2 * factor.squared_norm
        return np.minimum(constants, super().lipschitz_in(factor))

    @property
    def least_convexity(self) -> float:
        return self.l2

    def hessian_product(self, x: Array, direction: Array, weights: Array) -> Array:
        total: Array = self.l2 * float(weights.sum()) * direction
        for operator, weight in zip(self._operators, weights * self._scales, strict=True):
            total = total + weight * operator.adjoint(operator.apply(direction))
        return total
