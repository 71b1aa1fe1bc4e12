"""The prox of g∘B by dual steps, for methods that need it where B is not the identity."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._array import namespace, to_host
from fpdfp._blas import one_thread
from fpdfp._momentum import accelerate
from fpdfp._typing import Array
from fpdfp.linops import Diagonal
from fpdfp.methods._parameters import dots, norms
from fpdfp.methods.base import Work
from fpdfp.penalties.zero import Zero
from fpdfp.problem import Model
from fpdfp.semismooth import Subproblem, as_matrix

#: Dual steps between two looks at the gap, which costs as much as a step.
LOOK = 5
#: Dual steps before Newton steps are taken, and multiplications that a Newton step may cost.
FIRST, CHEAP = 20, 1 << 25
#: The same in the coordinates of a preconditioner, in which dual steps alone can be so far from the prox that a run
#: diverges; and for a penalty of x itself, for which few Newton steps do.
DEAR, OF_X = 1 << 28, 1 << 30
#: σ starts in units that suit a typical row of B, grows by so much with each multiplier up to so many units, and there
#: are at most so many multipliers.
GROWTH, LARGEST, MULTIPLIERS = 10.0, 1e7, 14


@dataclasses.dataclass(frozen=True)
class InnerSolve:
    """How exactly problems inside a round are solved.

    Parameters
    ----------
    tol
        The relative accuracy of a prox u of y. Errors of proximal steps add up from step to step, so FedMiD's are at
        most tol ‖y − u‖ from the true prox; those of dual averaging do not, and there it is tol (‖u‖ + s‖y − u‖),
        with s the share of one local step in ‖y − u‖. For g finite everywhere this is certain up to rounding (in
        float32 a tol below about √(1e-7 ‖y‖/‖y − u‖) asks for more than there is); for constraints it is an estimate.
    max_steps
        When to give up; the history counts what was not solved.

    Examples
    --------
    >>> InnerSolve(tol=1e-2)
    InnerSolve(tol=0.01, max_steps=1000)
    """

    tol: float = 1e-3
    max_steps: int = 1000

    def __post_init__(self) -> None:
        tol = _checks.real("tol", self.tol, positive=True)
        if tol >= 1:
            raise ValueError(f"tol must be below 1, got {tol:g}")
        object.__setattr__(self, "tol", tol)
        object.__setattr__(self, "max_steps", _checks.integer("max_steps", self.max_steps, at_least=1))


def check_inner(inner: InnerSolve | None) -> None:
    """Refuse what is neither None nor an InnerSolve."""
    if inner is not None and not isinstance(inner, InnerSolve):
        raise TypeError(f"inner must be an InnerSolve or None, got {_checks.kind(inner)}")


def needs_inner(model: Model) -> bool:
    """Whether the prox of g∘B is no closed form for this model."""
    linop, penalty = model.linop, model.penalty
    scaled = isinstance(linop, Diagonal) and penalty.separable and bool((linop.factors != 0).all())
    return not (linop.is_identity or scaled or isinstance(penalty, Zero))


def closed_prox(model: Model, y: Array, t: float) -> tuple[Array, Array]:
    """Return u = prox_{t g∘B}(y) for B the identity, or diagonal and g separable, and v with u = y − tBᵀv."""
    penalty, linop = model.penalty, model.linop
    if not isinstance(linop, Diagonal):
        return penalty.prox(y, t), penalty.conjugate_prox(y / t, 1.0 / t)
    # With w = Bu each entry has a step of its own.
    scale = linop.beside(y)
    u, v = penalty.prox(scale * y, t * scale**2) / scale, penalty.conjugate_prox(y / (t * scale), 1.0 / (t * scale**2))
    return u.astype(y.dtype, copy=False), v.astype(y.dtype, copy=False)


class Solved(NamedTuple):
    """Approximate proxes u = y − tBᵀv over a client axis, their dual points v, and what they cost."""

    u: Array
    v: Array
    work: Work


def prox(
    model: Model,
    y: Array,
    t: float,
    v: Array,
    inner: InnerSolve | None = None,
    reach: tuple[float, float] = (0.0, 1.0),
    origin: Array | None = None,
    matrix: Array | None = None,
) -> Solved:  # fmt: skip
    """Return prox_{t g∘B}(y) over a leading client axis; in closed form where ``inner`` is None.

    Otherwise the dual problem min_v t/2 ‖Bᵀv − y/t‖² + g*(v) is solved from ``v`` by accelerated proximal gradient
    steps with adaptive restart,

    ::

        v⁺ = prox_{σ g*}( w + σB(y − tBᵀw) ),   w⁺ = v⁺ + θ (v⁺ − v),   σ = λ/t

    until the duality gap, which bounds ‖u − prox(y)‖²/2t, shows that u is within tol (a‖u‖ + b‖y − u‖) of the prox,
    with (a, b) = ``reach``; with ``origin`` it is within tol (a‖u‖ + b‖origin − u‖), after at least one step. Where
    g is not finite everywhere there is no gap, and the progress of a dual step is taken for it. A client's steps do
    not depend on those of others.

    For a single y, with B as a ``matrix`` (see :func:`dense`), Newton steps follow where a few dual steps do not
    suffice: where B is ill-conditioned they would take thousands.
    """
    if t == 0 or isinstance(model.penalty, Zero):
        return Solved(y, v, Work())
    if inner is None:
        return Solved(closed_prox(model, y, t)[0], v, Work())
    if matrix is None:
        return _DualSteps(model, y, t, v, inner, reach, origin).run()
    few = dataclasses.replace(inner, max_steps=min(inner.max_steps, FIRST))
    found = _DualSteps(model, y, t, v, few, reach, origin).run()
    if not found.work.unsolved:
        return found
    return _NewtonSteps(model, y, t, found, inner, reach, origin, matrix).run()


def dense(model: Model, cost: int = CHEAP) -> Array | None:
    """Return B as a matrix if Newton steps with it cost no more, for the server's proxes; else None, as on the GPU."""
    linop = model.linop
    if model.device != "cpu" or not needs_inner(model) or linop.size_out * linop.size_in**2 > cost:
        return None
    return as_matrix(linop, np.dtype(np.float64)) if has_derivative(model) else None


def has_derivative(model: Model) -> bool:
    """Whether the penalty knows the derivative of its prox; one of the user's own need not."""
    try:
        model.penalty.conjugate_prox_derivative(np.zeros(model.dual_shape), 1.0)
    except NotImplementedError:
        return False
    return True


class _DualSteps:
    """One inner solve under way; arrays have a row for each client that is not done."""

    def __init__(
        self, model: Model, y: Array, t: float, v: Array, inner: InnerSolve, reach: tuple[float, float],
        origin: Array | None,
    ) -> None:  # fmt: skip
        self.model, self.inner, self.t, self.reach = model, inner, t, reach
        self.sigma = model.largest_lambda / t
        self.u, self.v = y.copy(), v.copy()
        self.y, self.origin = y, y if origin is None else origin
        self.at_least = 0 if origin is None else 1

    def run(self) -> Solved:
        todo = np.arange(len(self.y))
        y, previous, point = self.y, self.v, self.v
        xp = namespace(y)
        # The server's prox is that of one point: a number is handled faster than an array of one.
        theta: float | Array = 1.0 if len(y) == 1 and xp is np else xp.ones(len(y))
        total, steps = 0, 0
        while True:
            solved = self._look(y, previous, todo)
            if steps >= self.at_least and solved.any():
                left = ~solved
                todo, y, previous, point = todo[left], y[left], previous[left], point[left]
                theta = theta if isinstance(theta, float) else theta[left]
            if not len(todo) or steps >= self.inner.max_steps:
                return Solved(self.u, self.v, Work(total, len(todo)))
            for _ in range(min(LOOK, self.inner.max_steps - steps)):
                previous, point, theta = self._step(y, previous, point, theta)
                total += len(todo)
                steps += 1

    def _step(
        self, y: Array, previous: Array, point: Array, theta: float | Array
    ) -> tuple[Array, Array, float | Array]:
        current = self.model.dual_step(y, point, self.t, self.sigma)
        change = current - previous
        # Momentum that points uphill is dropped (B. O'Donoghue and E. Candès, "Adaptive restart", 2015).
        uphill = dots(point - current, change) > 0
        if isinstance(theta, float):
            momentum, theta = accelerate(1.0 if uphill[0] else theta)
            return current, current + momentum * change, theta
        momenta, theta = accelerate(np.where(uphill, 1.0, theta))
        rows = momenta.astype(y.dtype).reshape(-1, *[1] * len(self.model.dual_shape))
        return current, current + rows * change, theta

    def _look(self, y: Array, v: Array, todo: Array) -> Array:
        """Keep the present points, and say which of them are good enough."""
        model, t = self.model, self.t
        u = y - t * model.linop.adjoint(v)
        self.u[todo], self.v[todo] = u, v
        image = model.linop.apply(u)
        reach = to_host(self.reach[0] * norms(u) + self.reach[1] * norms(self.origin[todo] - u))
        if not (model.penalty.finite and model.penalty.has_conjugate):
            # A dual step from v to v⁺ has D(v⁺) − D* ≤ ‖v − v⁺‖‖v − v*‖/σ, and D(v) − D* is at least ‖u − u*‖²/2t. What
            # v* is is not known; from a start at zero dual steps come nearer, so ‖v − v*‖ is taken as ‖v‖ or ‖v⁺‖.
            new = model.penalty.conjugate_prox(v + self.sigma * image, self.sigma)
            away = np.maximum(norms(v), norms(new))
            close: Array = to_host(np.sqrt(2.0 * t * norms(new - v) * away / self.sigma)) <= self.inner.tol * reach
            return close
        values = np.array([model.penalty.value(row) for row in image])
        conjugates = np.array([model.penalty.conjugate(row) for row in v])
        products = to_host(dots(image, v))
        # What rounding can hide: in both sums, and in Bu, which has the errors of y = u + tBᵀv.
        hidden = to_host(norms(v) * norms(y)) / np.sqrt(model.largest_lambda)
        rounding = 8 * np.finfo(y.dtype).eps * (abs(values) + abs(products) + hidden)
        gap = np.maximum(values + conjugates - products - rounding, 0.0)
        solved: Array = (np.sqrt(2.0 * t * gap) <= self.inner.tol * reach) & np.isfinite(rounding)
        return solved


class _NewtonSteps(_DualSteps):
    """The same prox by an augmented Lagrangian and semismooth Newton steps, on the server."""

    def __init__(
        self, model: Model, y: Array, t: float, start: Solved, inner: InnerSolve, reach: tuple[float, float],
        origin: Array | None, matrix: Array,
    ) -> None:  # fmt: skip
        super().__init__(model, y, t, start.v, inner, reach, origin)
        self.taken, self.matrix = start.work.steps, matrix

    def run(self) -> Solved:
        model, y = self.model, self.y[0].astype(np.float64)
        self._look(self.y, self.v, FIRST_ROW)  # what dual steps have reached, if nothing better is found
        smooth = _Distance(y, self.t)
        v, x, steps = self.v[0].astype(np.float64), self.u[0].astype(np.float64), self.taken
        rows = np.square(self.matrix.reshape(len(self.matrix), -1)).sum(axis=0)
        unit = 1.0 / (self.t * float(np.median(rows[rows > 0])))
        # Where there is no gap, what is looked at grows with the root of the error.
        has_gap = model.penalty.finite and model.penalty.has_conjugate
        accuracy = 0.1 * self.inner.tol * (1.0 if has_gap else self.inner.tol)
        least = np.inf
        with one_thread():
            for outer in range(MULTIPLIERS):
                sigma = unit * min(GROWTH**outer, LARGEST)
                u = y - self.t * model.linop.adjoint(v)
                reach = self.reach[0] * norms(u[None])[0] + self.reach[1] * norms(self.origin - u[None])[0]
                problem = Subproblem(smooth, model.penalty, model.linop, v, sigma, x, 0.0, self.matrix)
                target = accuracy * reach / self.t
                x, v, taken, length = problem.minimise(x, target)
                steps += taken
                if length > max(target, least):  # rounding grows with σ: the multiplier before was better
                    break
                least = min(least, length)
                if self._look(self.y, v[None].astype(self.v.dtype), FIRST_ROW).all():
                    return Solved(self.u, self.v, Work(steps))
        return Solved(self.u, self.v, Work(steps, 1))


#: The only client there is.
FIRST_ROW = np.arange(1)


class _Distance:
    """‖x − y‖²/2t."""

    def __init__(self, y: Array, t: float) -> None:
        self.y, self.t = y, t

    def value(self, x: Array) -> float:
        return float(np.vdot(x - self.y, x - self.y)) / (2.0 * self.t)

    def gradient(self, x: Array) -> Array:
        gradient: Array = (x - self.y) / self.t
        return gradient

    def hessian(self, x: Array) -> Array:
        return np.eye(x.size) / self.t

    def hessian_product(self, x: Array, direction: Array) -> Array:
        product: Array = direction / self.t
        return product
