"""Losses given by the user: as functions, or as squared residuals of linear operators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._array import read_only
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.linops.base import LinOp, squared_norm_bound
from fpdfp.linops.maps import Compose, aslinop, check_shape
from fpdfp.losses.base import Losses
from fpdfp.rng import Draws, Purpose, table_size

#: Lanczos steps for the norm of an operator in other coordinates.
STEPS = 60


class Custom(Losses):
    """Custom losses, given by functions of the client number and the point.

    Parameters
    ----------
    value
        ``value(i, x)`` returns f_i(x).
    gradient
        ``gradient(i, x)`` returns ∇f_i(x); if ``sizes`` is given, ``gradient(i, x, samples)``, where
        ``samples`` holds the numbers of the samples to use, or None for all.
    n_clients
        How many clients there are.
    shape
        The shape of x.
    lipschitz
        The Lipschitz constant of ∇f_i, or an upper bound: one number, or one for each client. None for losses without
        one, as for exponentials; then only a method that needs no constant can be used, :class:`fpdfp.ProximalNewton`.
    hessian
        ``hessian(i, x)`` returns the Hessian of f_i at x, a symmetric matrix, for methods that need it; x must be a
        vector then.
    strong_convexity
        A constant with which every f_i is strongly convex; 0 if unknown.
    sizes
        The number of samples of each client, if ``gradient`` can use a part of them.
    dtype
        The dtype of x.
    check
        Whether to compare, at a few random points, the gradients of the first and the last client with differences of
        their values, and with the constants given, and Hessians with differences of gradients. What does not agree
        raises a ValueError.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> centres = np.array([[0.0, 2.0], [4.0, 0.0]])
    >>> losses = fpdfp.losses.Custom(
    ...     value=lambda i, x: 0.5 * np.sum((x - centres[i]) ** 2),
    ...     gradient=lambda i, x: x - centres[i],
    ...     n_clients=2, shape=(2,), lipschitz=1.0, strong_convexity=1.0,
    ... )
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.5))
    >>> fpdfp.minimize(problem).x.round(6)
    array([1.5, 0.5])

    A loss whose gradient has no Lipschitz constant:

    >>> exponential = fpdfp.losses.Custom(
    ...     value=lambda i, x: float(np.sum(np.exp(x) - centres[i] * x)),
    ...     gradient=lambda i, x: np.exp(x) - centres[i],
    ...     hessian=lambda i, x: np.diag(np.exp(x)), n_clients=2, shape=2,
    ... )
    >>> problem = fpdfp.Problem(exponential, fpdfp.penalties.L1(0.5))
    >>> fpdfp.solve(problem, fpdfp.ProximalNewton(), rounds=50, tol=1e-9).x.round(6)
    array([0.405465, 0.      ])
    """

    def __init__(
        self,
        value: Callable[[int, Array], float],
        gradient: Callable[..., Array],
        *,
        n_clients: int,
        shape: int | Shape,
        lipschitz: Any = None,
        hessian: Callable[[int, Array], Array] | None = None,
        strong_convexity: float = 0.0,
        sizes: Any = None,
        dtype: Any = np.float64,
        check: bool = True,
    ) -> None:
        for name, function in (("value", value), ("gradient", gradient)):
            if not callable(function):
                raise ArgumentTypeError(name, f"must be a function, got {type(function).__name__}")
        if hessian is not None and not callable(hessian):
            raise ArgumentTypeError("hessian", f"must be a function or None, got {type(hessian).__name__}")
        count = _checks.integer("n_clients", n_clients, at_least=1)
        self.shape = check_shape(shape)
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.float32, np.float64):
            raise ValueError(f"dtype must be float32 or float64, got {self.dtype}")
        if hessian is not None and len(self.shape) != 1:
            raise ArgumentError("hessian", f"must be None unless x is a vector, got x of shape {self.shape}")
        constants = np.asarray(np.inf)
        if lipschitz is not None:
            constants = _checks.float_array("lipschitz", lipschitz, dtype=np.float64)
        if constants.shape not in ((), (count,)) or (constants <= 0).any():
            raise ValueError(f"lipschitz must be one positive number, or one for each of the {count} clients")
        self._lipschitz = np.broadcast_to(constants, (count,)).copy()
        self._strong_convexity = _checks.real("strong_convexity", strong_convexity, at_least=0.0)
        self._sampled = sizes is not None
        if self._sampled:
            given = np.asarray(sizes)
            self.sizes = given.astype(np.int64)
            if given.dtype.kind not in "iu" or given.shape != (count,) or (given < 1).any():
                raise ValueError(f"sizes must hold a positive number of samples for each of the {count} clients")
        else:
            self.sizes = np.ones(count, dtype=np.int64)
        self._value = value
        self._gradient = gradient
        self._hessian = hessian
        if check:
            from fpdfp._verify import verify_losses

            verify_losses(self)

    def __repr__(self) -> str:
        return f"Custom({self.n_clients} clients, x of shape {self.shape})"

    @property
    def supports_batches(self) -> bool:
        return self._sampled

    def values(self, x: Array, clients: IntArray) -> Array:
        self.check(x, clients, shared=True)
        point = read_only(x)
        return np.array([float(self._value(int(i), point)) for i in clients], dtype=np.float64)

    def gradients(
        self, x: Array, clients: IntArray, batch_size: int | None = None, draws: Draws | None = None
    ) -> Array:
        self.check(x, clients)
        out = np.empty((len(clients), *self.shape), dtype=self.dtype)
        x = read_only(x)
        shared = np.ndim(x) == len(self.shape)
        for row, client in enumerate(clients):
            point = x if shared else x[row]
            arguments = (int(client), point)
            if self._sampled:
                gradient = self._gradient(*arguments, self._samples(int(client), row, batch_size, draws))
            else:
                gradient = self._gradient(*arguments)
            if np.shape(gradient) != self.shape:
                raise ValueError(
                    f"gradient must return an array of shape {self.shape}, got {np.shape(gradient)} for client {client}"
                )
            if np.iscomplexobj(gradient):
                raise TypeError(f"gradient must return real numbers, got complex ones for client {client}")
            out[row] = gradient
        return out

    def _samples(self, client: int, row: int, batch_size: int | None, draws: Draws | None) -> IntArray | None:
        size = int(self.sizes[client])
        if batch_size is None or batch_size >= size:
            return None
        if draws is None:
            raise ValueError("draws must be given with batch_size")
        from fpdfp._kernels import philox

        chosen = np.empty(batch_size, dtype=np.int64)
        table = np.empty(table_size(batch_size), dtype=np.int64)
        k0, k1 = draws.key
        tag, name = draws.tag(Purpose.BATCH), int(draws.clients[row])
        philox.sample_subset(k0, k1, tag, name, draws.round, size, batch_size, table, chosen)
        return chosen

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        if self._hessian is None:
            return None
        self.check(x, clients, shared=True)
        point, (d,) = read_only(x), self.shape
        out = np.empty((len(clients), d, d))
        for row, client in enumerate(clients):
            found = np.asarray(self._hessian(int(client), point))
            if found.shape != (d, d):
                raise ValueError(
                    f"hessian must return a matrix of shape {(d, d)}, got {found.shape} for client {client}"
                )
            out[row] = found
        return out

    def hessian(self, x: Array, weights: Array) -> Array | None:
        found = self.hessians(x, np.arange(self.n_clients))
        if found is None:
            return None
        total: Array = np.tensordot(weights, found, axes=1)
        return total

    def lipschitz(self) -> Array:
        return self._lipschitz

    @property
    def least_convexity(self) -> float:
        return self._strong_convexity


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
