"""ProximalNewton: exact Newton steps on sums, with a line search that needs no Lipschitz constant."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, NamedTuple

import numpy as np

from fpdfp import steps
from fpdfp._typing import Array, Shape
from fpdfp.errors import ArgumentError
from fpdfp.losses.base import EPS, ROUNDINGS
from fpdfp.methods._forms import ServerSolves
from fpdfp.methods.base import Facts, Method, TracksObjective, Traits, Update
from fpdfp.precondition.base import full, lower
from fpdfp.problem import LocalLosses, Model
from fpdfp.quadratic.solve import minimise
from fpdfp.quadratic.statement import InnerSolve, Quadratic, Solution
from fpdfp.rng import Draws

#: How near to the minimum of its model the server goes, relative to the length of the step.
TOLERANCE = 1e-4
#: The part of the decrease that the model promises which a step must have.
ENOUGH = 1e-4
#: What is left after a step is expected to be this many times what follows from how the promises of models shrink.
CAUTION = 1e3
#: What rounding can do to an objective, relative to it.
ROUNDING = 1e-13
#: A loss above this counts as infinite: nothing is left of other clients' digits besides it.
BEYOND = 1e20
#: What clients say of what they send: that it is of a point, of a start, or nothing, since their loss is not finite at
#: the point. In a mean a single NOWHERE is seen however small the client's weight, as all others say 0 then.
POINT, START, NOWHERE = 0.0, 1.0, -1.0
#: Which model to start from the server requests (see :meth:`fpdfp.losses.GLM.start_model`), or may request later.
OPEN, DONE, ROWS, LEVEL = -1.0, 0.0, 1.0, 2.0


class ProximalNewtonState(NamedTuple):
    """The point that was accepted last, the next one to try, and the quadratic model of f at the first.

    ``numbers`` holds F at the accepted point, the share of the step that is tried, and the decrease of F that this
    model and the one before it promise. The last number bounds how far the next point is above the model's minimum.
    ``begins`` is ROWS or LEVEL while a model to start from is requested. Afterwards OPEN as long as LEVEL may still be
    requested, since no point in the domain of f is known, and then DONE.
    """

    x: Array
    trial: Array
    v: Array
    trial_v: Array
    numbers: Array
    begins: Array
    work: Array


class ProximalNewtonMessage(NamedTuple):
    """The message of the server: the point, and which model to start from, if any, is wanted in place of one there."""

    x: Array
    begins: Array


class ProximalNewtonReply(NamedTuple):
    """The message of a client: the value of its loss and what that is of, its slope, and its Hessian."""

    value: Array
    slope: Array
    hessian: Array


@dataclasses.dataclass(frozen=True)
class ProximalNewton(Method):
    r"""Proximal Newton steps on sums over all clients, with a line search.

    ::

        server:     sends x to all clients
        client i:   sends f_i(x), ∇f_i(x) and H_i, its Hessian, or the expected one where f_i is not convex
        server:     x is accepted if F(x) is at most F(x_k) less ENOUGH times what the model promised; otherwise the
                    step from x_k is halved, and tried again
                    at an accepted x:  u = argmin_u ⟨∇f(x), u − x⟩ + ½ (u − x)ᵀH(u − x) + g(Bu), and u is sent next

    No Lipschitz constant is needed, so f may be a Poisson, gamma or Cox loss. Where f is convex and smooth on its
    domain and has a minimum, F decreases to its least value from any start in the domain, and near the minimum each
    round squares the error. (Where f is not convex, and Hessians are expected ones, the error shrinks by a constant
    factor.) Clients keep nothing, so that any of them can be replaced at any time.

    Generalised linear models start from the linear predictors of their family, row by row, as iteratively reweighted
    least squares do: without a penalty rounds are the iterations of R's ``glm``. Messages are exact:
    2 + d(d + 3)/2 numbers of each client in a round. That suits some hundred coefficients.

    Parameters
    ----------
    dual_steps
        The most dual steps that the server takes for a model, where g∘B has no closed prox.
    begin
        Whether to start from the family's linear predictors where the losses have them. Otherwise, and always where
        ``x0`` of ``solve`` is not zero, from ``x0``.

    References
    ----------
    J. D. Lee, Y. Sun and M. A. Saunders, "Proximal Newton-type methods for minimizing composite functions", SIAM
    J. Optim. 24 (2014). P. McCullagh and J. A. Nelder, "Generalized Linear Models", 2nd ed. (1989).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.standard_normal((90, 3)), np.ones(90)])
    >>> y = rng.poisson(np.exp(0.5 * X[:, 0] + 1.0))
    >>> losses = fpdfp.losses.GLM(X, y, clients=np.arange(90) % 3, family="poisson")
    >>> result = fpdfp.solve(fpdfp.Problem(losses, fpdfp.penalties.Zero()), fpdfp.ProximalNewton(), rounds=50, tol=1e-8)
    >>> result.status, result.rounds
    ('converged', 5)
    """

    traits: ClassVar[Traits] = Traits(
        title="proximal Newton steps on sums, with a line search",
        solves="f + g∘B",
        sends=("value", "slope", "hessian"),
        uplink="2 + d(d + 3)/2",
        mini_batches=False,
        partial_participation=False,
        compression=False,
        needs_smooth=False,
        needs_hessians=True,
        strong_convexity="not needed",
        proved="for convex f: F decreases to its minimum from any start, quadratically near it; no constant is needed",
        constant_step=True,
        reference="Lee et al. 2014",
    )

    dual_steps: int = 10_000
    begin: bool = True
    step: steps.Step = dataclasses.field(default=1.0, repr=False, kw_only=True)

    def check(self, model: Model) -> None:
        super().check(model)
        if len(model.shape) != 1 or model.device != "cpu":
            raise ArgumentError("losses", f"must be functions of a vector in memory for {type(self).__name__}")

    def prepare(self, facts: Facts) -> ProximalNewtonAlgorithm:
        return ProximalNewtonAlgorithm(self, facts.model, steps.Constant(1.0))

    def largest_step(self, facts: Facts) -> float:
        return 1.0

    def reply_shapes(self, model: Model) -> dict[str, Shape]:
        (d,) = model.shape
        return {"value": (2,), "slope": (d,), "hessian": (d * (d + 1) // 2,)}


@dataclasses.dataclass(frozen=True)
class ProximalNewtonAlgorithm(ServerSolves, TracksObjective):
    """The algorithm of :class:`ProximalNewton`."""

    double: ClassVar[tuple[str, ...]] = ("value", "slope", "hessian")

    method: ProximalNewton

    def init(self, x0: Array) -> ProximalNewtonState:
        v = np.zeros(self.model.dual_shape)
        begins = np.array([ROWS if self.method.begin and not x0.any() else OPEN])
        start = x0.astype(np.float64)
        return ProximalNewtonState(
            start,
            start,
            v,
            v,
            np.array([math.inf, 1.0, math.inf, math.inf, math.inf]),
            begins,
            np.zeros(1, dtype=np.int64),
        )

    def broadcast(self, state: ProximalNewtonState) -> ProximalNewtonMessage:
        return ProximalNewtonMessage(state.trial.astype(self.model.dtype, copy=False), state.begins)

    def client_update(self, local: LocalLosses, message: ProximalNewtonMessage, k: int, draws: Draws) -> Update:
        dtype = self.model.dtype
        wanted = float(message.begins[0])
        started = local.start_model(level=wanted == LEVEL) if wanted in (ROWS, LEVEL) else None
        if started is not None:
            slopes, matrices = started
            values = np.stack([np.zeros(len(slopes)), np.full(len(slopes), START)], axis=1)
        else:
            with np.errstate(all="ignore"):
                found, slopes = local.values(message.x), local.gradients(message.x)
                known = local.hessians(message.x) if local.losses.is_convex else local.informations(message.x)
            if known is None:
                raise ArgumentError("losses", "must have known Hessians for ProximalNewton")
            bad = ~((found < BEYOND) & np.isfinite(slopes).all(axis=1) & np.isfinite(known).all(axis=(1, 2)))
            matrices = np.where(bad[:, None, None], 0.0, known)
            slopes = np.where(bad[:, None], 0.0, slopes)
            values = np.stack([np.where(bad, 0.0, found), np.where(bad, NOWHERE, POINT)], axis=1)
        triangles = lower((matrices + matrices.swapaxes(1, 2)) / 2.0)
        return Update(
            ProximalNewtonReply(values.astype(dtype), slopes.astype(dtype, copy=False), triangles.astype(dtype))
        )

    def server_update(
        self, state: ProximalNewtonState, mean: ProximalNewtonReply, k: int, count: int
    ) -> ProximalNewtonState:
        value, kind = map(float, mean.value)
        begins = np.array([DONE if state.begins[0] in (LEVEL, DONE) else OPEN])
        slope, hessian = mean.slope.astype(np.float64), full(mean.hessian.astype(np.float64))
        if kind > 0.5:  # a model to start from: its slope is that at zero, and nothing is known of F
            found = minimise(self.model, Quadratic(hessian, np.zeros_like(state.x), slope), state.v, self._inner)
            numbers = np.array([math.inf, 1.0, math.inf, math.inf, math.inf])
            return state._replace(
                trial=found.u, trial_v=found.v, numbers=numbers, begins=begins, work=state.work + found.work.steps
            )
        objective, share, promised, _, left = state.numbers
        reached = value + self._penalty(state.trial) if kind == POINT else math.inf
        enough = (
            math.inf if objective == math.inf else objective - ENOUGH * share * promised + ROUNDING * abs(objective)
        )
        if reached == objective == math.inf and begins[0] == OPEN:
            return state._replace(begins=np.array([LEVEL]))
        if not reached <= enough or reached == math.inf:
            trial = state.x + 0.5 * (state.trial - state.x)
            return state._replace(
                trial=trial, numbers=np.array([objective, 0.5 * share, promised, math.inf, left]), begins=begins
            )
        x = state.trial
        found = minimise(self.model, Quadratic.of(hessian, slope - hessian @ x, x), state.trial_v, self._inner)
        step = found.u - x
        gain = -float(slope @ step) - 0.5 * float(step @ hessian @ step) + self._penalty(x) - self._penalty(found.u)
        before = promised if share == 1.0 else math.inf
        numbers = np.array([reached, 1.0, max(gain, 0.0), before, self._left(found)])
        work = state.work + found.work.steps
        return ProximalNewtonState(x, found.u, state.trial_v, found.v, numbers, np.array([DONE]), work)

    @property
    def _inner(self) -> InnerSolve:
        return InnerSolve(TOLERANCE, self.method.dual_steps)

    def _penalty(self, x: Array) -> float:
        image = self.model.linop.apply(x)
        return self.model.penalty.value(image if self.model.penalty.finite else self.model.penalty.project(image))

    def _left(self, found: Solution) -> float:
        """Return the gap of g∘B at the minimum of a model, whose slope is −Bᵀv there: a bound of what is left of it."""
        penalty, image = self.model.penalty, self.model.linop.apply(found.u)
        if not penalty.has_conjugate:
            return math.inf if found.work.unsolved else 0.0
        nearest = image if penalty.finite else penalty.project(image)
        young = penalty.value(nearest) + penalty.conjugate(found.v) - float(np.vdot(nearest, found.v))
        young += float(np.abs(found.v * (nearest - image)).sum())
        # Other coordinates leave zeros of Bu that are rounding of the largest entries of u.
        rounding = ROUNDINGS * EPS * float(np.abs(found.u).max(initial=0.0)) / self.model.largest_lambda**0.5
        hidden = penalty.value(np.full(image.shape, rounding)) if penalty.finite else 0.0
        return max(young - hidden, 0.0)

    def known_objective(self, state: ProximalNewtonState) -> float:
        return float(state.numbers[0])

    def expected_gap(self, state: ProximalNewtonState) -> float:
        _, share, promised, before, left = state.numbers
        if share < 1.0:
            return math.inf
        if not self._is_sure(state) or not 0.0 < before < math.inf:
            return float(promised + left)
        # The step is taken unseen. What is left after it shrinks at least as it did before, faster near the minimum.
        return float(left + promised * min(1.0, CAUTION * max(promised / before, TOLERANCE**2)))

    def solution(self, state: ProximalNewtonState) -> tuple[Array, Array | None]:
        x, v = (state.trial, state.trial_v) if self._is_sure(state) else (state.x, state.v)
        return x.astype(self.model.dtype), v.astype(self.model.dtype)

    def _is_sure(self, state: ProximalNewtonState) -> bool:
        """Whether the next point is better: a step that promises a small part of F has about its square as error."""
        objective, share, promised, _, left = state.numbers
        return bool(share == 1.0 and promised + left <= 1e-3 * abs(objective))
