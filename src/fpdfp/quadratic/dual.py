"""The dual step that primal-dual methods share, and the prox of g∘B by accelerated dual steps.

For a total variation, and for ‖Bx‖₁ with a sparse B, a dual step is one pass over the arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpdfp._array import dots, namespace, norms, to_host
from fpdfp._numbers import accelerate
from fpdfp._typing import Array
from fpdfp.linops import Compose, Diagonal, Gradient, LinOp, MaskedGradient, Matrix, VStack
from fpdfp.linops.maps import tv_kernels
from fpdfp.penalties import L1, GroupL12, NonNegative, Penalty, Stacked
from fpdfp.quadratic.statement import Distance, Solution, Work

if TYPE_CHECKING:
    from fpdfp.problem import Model

#: Dual steps between two looks at the gap, which costs as much as a step.
LOOK = 5
#: Where the prox of a total variation inside a mask takes many steps, a look follows after so much of them.
SELDOM = 4


class DualSteps:
    """The proxes u = y − tBᵀv of g∘B at each y of a leading client axis, by accelerated steps in the dual.

    The dual problem min_v t/2 ‖Bᵀv − y/t‖² + g*(v) is solved from v by the steps of FISTA (A. Beck and M. Teboulle,
    2009) with adaptive restart (B. O'Donoghue and E. Candès, "Adaptive restart for accelerated gradient schemes",
    Found. Comput. Math. 15, 2015):

    ::

        v⁺ = prox_{σ g*}( w + σB(y − tBᵀw) ),   w⁺ = v⁺ + θ (v⁺ − v),   σ = λ/t

    They end when the duality gap, which bounds ‖u − prox(y)‖²/2t, shows that u is within tol (a‖u‖ + b‖y − u‖) of the
    prox, (a, b) = ``reach``. With ``origin`` within tol (a‖u‖ + b‖origin − u‖), after at least one step. Where g is not
    finite everywhere the gap is unknown, and the progress of a dual step is taken for it. A client's steps do not
    depend on other clients' steps.
    """

    def __init__(
        self, model: Model, q: Distance, v: Array, tol: float, reach: tuple[float, float], origin: Array | None
    ) -> None:
        self.model, self.tol, self.reach = model, tol, reach
        self.y, self.t = q
        self.sigma = model.largest_lambda / self.t
        self.u, self.v = self.y.copy(), v.copy()
        self.origin = self.y if origin is None else origin
        self.at_least = 0 if origin is None else 1
        # Only a server has an origin. Where there may be several clients, the bits of one must not depend on others,
        # and sums of several steps in one call are taken in another order.
        alone = origin is not None and len(self.y) == 1 and type(self.y) is np.ndarray
        self.fused = find_scaled(model) if alone and self.y.dtype == v.dtype == np.float64 else None

    def run(self, most: int) -> Solution:
        """Take at most a given number of steps for each client."""
        todo = np.arange(len(self.y))
        y, previous, point = self.y, self.v, self.v
        xp = namespace(y)
        # The server's prox is that of one point: a number is handled faster than an array of one.
        theta: float | Array = 1.0 if len(y) == 1 and xp is np else xp.ones(len(y))
        total, steps = 0, 0
        while True:
            solved = self.look(y, previous, todo)
            if steps >= self.at_least and solved.any():
                left = ~solved
                todo, y, previous, point = todo[left], y[left], previous[left], point[left]
                theta = theta if isinstance(theta, float) else theta[left]
            if not len(todo) or steps >= most:
                return Solution(self.u, self.v, Work(total, len(todo)))
            seldom = steps // SELDOM if isinstance(self.fused, ScaledTV) else 0
            count = min(max(LOOK, seldom), most - steps)
            if self.fused is not None and isinstance(theta, float):
                previous, point = previous.copy(), point.copy()
                theta = self.fused.take(y[0], self.t, self.sigma, previous[0], point[0], theta, count)
            else:
                for _ in range(count):
                    previous, point, theta = self._step(y, previous, point, theta)
            total += count * len(todo)
            steps += count

    def _step(
        self, y: Array, previous: Array, point: Array, theta: float | Array
    ) -> tuple[Array, Array, float | Array]:
        current = self.model.dual_step(y, point, self.t, self.sigma)
        change = current - previous
        # Momentum that points uphill is dropped.
        uphill = dots(point - current, change) > 0
        if isinstance(theta, float):
            momentum, theta = accelerate(1.0 if uphill[0] else theta)
            return current, current + momentum * change, theta
        momenta, theta = accelerate(np.where(uphill, 1.0, theta))
        rows = momenta.astype(y.dtype).reshape(-1, *[1] * len(self.model.dual_shape))
        return current, current + rows * change, theta

    @property
    def has_gap(self) -> bool:
        """Whether the duality gap of a prox is known."""
        return self.model.penalty.finite and self.model.penalty.has_conjugate

    def look(self, y: Array, v: Array, todo: Array) -> Array:
        """Keep the present points, and name which of them are good enough."""
        model, t = self.model, self.t
        u = y - t * model.linop.adjoint(v)
        self.u[todo], self.v[todo] = u, v
        image = model.linop.apply(u)
        reach = to_host(self.reach[0] * norms(u) + self.reach[1] * norms(self.origin[todo] - u))
        if not self.has_gap:
            # A dual step from v to v⁺ has D(v⁺) − D* ≤ ‖v − v⁺‖‖v − v*‖/σ, and D(v) − D* is at least ‖u − u*‖²/2t. What
            # v* is is not known; from a start at zero dual steps come nearer, so ‖v − v*‖ is taken as ‖v‖ or ‖v⁺‖.
            new = model.penalty.conjugate_prox(v + self.sigma * image, self.sigma)
            away = np.maximum(norms(v), norms(new))
            close: Array = to_host(np.sqrt(2.0 * t * norms(new - v) * away / self.sigma)) <= self.tol * reach
            return close
        values = np.array([model.penalty.value(row) for row in image])
        conjugates = np.array([model.penalty.conjugate(row) for row in v])
        products = to_host(dots(image, v))
        # What rounding can hide: in both sums, and in Bu, which has the errors of y = u + tBᵀv.
        hidden = to_host(norms(v) * norms(y)) / np.sqrt(model.largest_lambda)
        rounding = 8 * np.finfo(y.dtype).eps * (abs(values) + abs(products) + hidden)
        gap = np.maximum(values + conjugates - products - rounding, 0.0)
        solved: Array = (np.sqrt(2.0 * t * gap) <= self.tol * reach) & np.isfinite(rounding)
        return solved


class ScaledL1(NamedTuple):
    """g(Bx) = weight · ‖ASx‖₁ with a sparse matrix A and a diagonal S: several dual steps are one call."""

    matrix: Matrix
    factors: Array
    weight: float

    def take(self, y: Array, t: float, sigma: float, previous: Array, point: Array, theta: float, count: int) -> float:
        """Take some dual steps for the prox of y, writing over the last dual and where the next step starts."""
        return self.matrix.dual_steps(
            self.factors, y, float(t), float(sigma), self.weight, previous, point, theta, count
        )


class ScaledTV(NamedTuple):
    """g(Bx) = weight · Σ‖(∇Sx)_j‖ + Σ limit_j |(Sx)_j| inside a mask, S diagonal: several dual steps are one call."""

    gradient: MaskedGradient
    isotropic: bool
    weight: float
    limits: Array
    factors: Array

    def take(self, y: Array, t: float, sigma: float, previous: Array, point: Array, theta: float, count: int) -> float:
        """Take some dual steps for the prox of y, writing over the last dual and where the next step starts."""
        from fpdfp._kernels import masked

        following, preceding = self.gradient.following, self.gradient.preceding
        found: float = masked.dual_steps(
            following, preceding, self.isotropic, self.weight, self.limits, self.factors, np.ascontiguousarray(y),
            float(t), float(sigma), previous.reshape(-1), point.reshape(-1), theta, count,
        )  # fmt: skip
        return found


def _find_tv(linop: LinOp, penalty: Penalty, factors: Array) -> ScaledTV | None:
    """Return the total variation inside a mask that g∘B is, with an l1 norm or not; None where it is something else."""
    limits = np.empty(0)
    if isinstance(linop, VStack) and isinstance(penalty, Stacked):
        if len(linop.parts) != 2 or len(penalty.parts) != 2 or not linop.parts[1].is_identity:
            return None
        single = penalty.parts[1]
        if type(single) is not L1 or penalty.shapes[0] != linop.parts[0].out_shape:
            return None
        limits = np.broadcast_to(np.asarray(single.weight, dtype=np.float64), linop.in_shape).copy()
        linop, penalty = linop.parts[0], penalty.parts[0]
    if type(linop) is not MaskedGradient or type(penalty) not in (GroupL12, L1):
        return None
    isotropic = isinstance(penalty, GroupL12)
    weight: Any = penalty.weight  # type: ignore[attr-defined]
    if not isinstance(weight, float) or (isotropic and penalty.axis != 0):  # type: ignore[attr-defined]
        return None
    return ScaledTV(linop, isotropic, weight, limits, factors)


def find_scaled(model: Model) -> ScaledL1 | ScaledTV | None:
    """Return g∘B in one of these forms, None where it has another."""
    linop, penalty, factors = model.linop, model.penalty, np.ones(model.shape)
    inner = linop.inner if isinstance(linop, Compose) else None
    if isinstance(linop, Compose) and isinstance(inner, Diagonal):
        linop, factors = linop.outer, np.asarray(inner.factors, dtype=np.float64)
    of_mask = _find_tv(linop, penalty, factors)
    if of_mask is not None:
        return of_mask
    if type(linop) is not Matrix or not linop.sparse or type(penalty) is not L1:
        return None
    if not isinstance(penalty.weight, float) or penalty.weight <= 0:
        return None
    return ScaledL1(linop, factors, penalty.weight)


class TotalVariation(NamedTuple):
    """g(Bx) = weight · ‖∇x‖ of a volume, isotropic or not, with x ≥ 0 or not."""

    weight: float
    isotropic: bool


def take_step(
    model: Model, half: Array, v: Array, gamma: float, sigma: float, *, wants_x: bool = True
) -> tuple[Array, Array]:
    """Return x⁺ = half − γBᵀv⁺, if it is wanted, and v⁺ = prox_{σg*}( v + σB(half − γBᵀv) ).

    Both or ``half`` alone may have a client axis.
    """
    kind = _fused(model, half, v)
    if kind is not None:
        return _one_pass(kind, model, half, v, gamma, sigma, wants_x=wants_x)
    if _is_sparse_l1(model, half, v):
        return _sparse_pass(model, half, v, gamma, sigma, wants_x=wants_x)
    x = half - gamma * model.linop.adjoint(v)
    new_v = _filtered_pass(model, x, v, sigma)
    if new_v is None:
        new_v = model.penalty.conjugate_prox(sigma * model.linop.apply(x) + v, sigma)
    return half - gamma * model.linop.adjoint(new_v) if wants_x else half, new_v


def _filtered_pass(model: Model, x: Array, v: Array, sigma: float) -> Array | None:
    """Return v⁺ = prox_{σg*}( v + σBSx ) in one pass where g∘B is a total variation; None for other models."""
    linop = model.linop
    if not isinstance(linop, Compose):
        return None
    outer = model._replace(linop=linop.outer)
    kind = _fused(outer, x, v)
    return None if kind is None else _one_pass(kind, outer, linop.inner.apply(x), v, 0.0, sigma, wants_x=False)[1]


def pdfp_step(model: Model, x: Array, slopes: Array, v: Array, gamma: float, sigma: float) -> tuple[Array, Array]:
    """Return what :func:`take_step` does from half = x − γ · slopes, with one x for all or one for each."""
    alike = x.dtype == slopes.dtype and x.shape in (slopes.shape[1:], slopes.shape)
    if type(gamma) is float and alike and _is_sparse_l1(model, slopes, v):
        return _sparse_pass(model, x, v, gamma, sigma, wants_x=True, slopes=slopes)
    return take_step(model, x - gamma * slopes, v, gamma, sigma)


def total_variation(model: Model) -> TotalVariation | None:
    """Say which total variation g∘B is; None if it is something else."""
    linop, penalty = model.linop, model.penalty
    if isinstance(linop, VStack) and isinstance(penalty, Stacked):
        if len(linop.parts) != 2 or len(penalty.parts) != 2 or penalty.shapes[0] != linop.parts[0].out_shape:
            return None
        if not linop.parts[1].is_identity or type(penalty.parts[1]) is not NonNegative:
            return None
        linop, penalty = linop.parts[0], penalty.parts[0]
    return _of_gradient(linop, penalty)


def _of_gradient(linop: LinOp, penalty: Penalty) -> TotalVariation | None:
    if type(linop) is not Gradient or len(linop.in_shape) != 3:
        return None
    if type(penalty) is GroupL12 and penalty.axis == 0 and isinstance(penalty.weight, float):
        return TotalVariation(penalty.weight, isotropic=True)
    if type(penalty) is L1 and isinstance(penalty.weight, float):
        return TotalVariation(penalty.weight, isotropic=False)
    return None


def _fused(model: Model, half: Array, v: Array) -> TotalVariation | None:
    """Return the total variation if there is a kernel for it and for these arrays."""
    if len(model.shape) != 3:  # the kernels are for volumes; said first, since most problems are not
        return None
    if half.dtype != v.dtype or half.dtype.char not in "fd" or half.size == 0:
        return None
    if v.ndim > len(model.dual_shape) and v.shape[:1] != half.shape[: half.ndim - 3]:
        return None
    return total_variation(model)


def _is_sparse_l1(model: Model, half: Array, v: Array) -> bool:
    """Whether g∘B is a multiple of ‖Bx‖₁ with a sparse matrix B, and these are arrays with a client axis."""
    linop, penalty = model.linop, model.penalty
    return (
        type(linop) is Matrix and linop.sparse and type(penalty) is L1 and type(penalty.weight) is float
        and penalty.weight > 0 and type(half) is np.ndarray and half.ndim == 2
        and half.dtype.char in "fd" and half.dtype == v.dtype
        and half.shape[1:] == linop.in_shape and v.shape[-1:] == linop.out_shape
        and (v.ndim == 1 or v.shape[0] in (1, half.shape[0]))
    )  # fmt: skip


def _sparse_pass(
    model: Model, x: Array, v: Array, gamma: float, sigma: float, *, wants_x: bool, slopes: Array | None = None
) -> tuple[Array, Array]:
    linop: Any = model.linop
    weight: float = model.penalty.weight  # type: ignore[attr-defined]
    (rows,), (columns,), dtype = linop.out_shape, linop.in_shape, x.dtype
    count = len(x if slopes is None else slopes)
    slopes = np.empty((0, columns), dtype=dtype) if slopes is None else np.ascontiguousarray(slopes)
    x, v = np.ascontiguousarray(x).reshape(-1, columns), np.ascontiguousarray(v).reshape(-1, rows)
    new_v = np.empty((count, rows), dtype=dtype)
    new_x = np.empty((count, columns if wants_x else 0), dtype=dtype)
    linop.dual_step(x, slopes, v, float(gamma), float(sigma), weight, new_x, new_v)
    return new_x, new_v


def _one_pass(
    kind: TotalVariation, model: Model, half: Array, v: Array, gamma: float, sigma: float, *, wants_x: bool
) -> tuple[Array, Array]:
    xp, shape = namespace(half), model.linop.in_shape
    components = model.linop.size_out // model.linop.size_in
    halves = xp.ascontiguousarray(half).reshape(-1, *shape)
    duals = xp.ascontiguousarray(v).reshape(-1, components, *shape)
    new_v = xp.empty((len(halves), components, *shape), dtype=half.dtype)
    new_x = xp.empty(halves.shape if wants_x else (len(halves), 0, 0, 0), dtype=half.dtype)
    constants = np.array([1.0, gamma, sigma, kind.weight], dtype=half.dtype)
    tv_kernels(half).dual_step(halves, duals, kind.isotropic, constants, wants_x, new_v, new_x)
    lead = half.shape[: half.ndim - len(shape)]
    return new_x.reshape(half.shape) if wants_x else half, new_v.reshape(*lead, *model.dual_shape)
