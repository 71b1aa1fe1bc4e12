"""RandProx: local steps without drift, with compressed messages, some clients, and the prox on the server."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, NamedTuple

import numpy as np

from fpdfp import steps
from fpdfp._array import norms, to_host
from fpdfp._typing import Array
from fpdfp.methods._forms import (
    Control,
    Difference,
    Primal,
    PrimalAlgorithm,
    ServerSolves,
    constant_momentum,
    start_sums,
)
from fpdfp.methods.base import MAX_LOCAL_STEPS, Facts, Method, Remembering, Traits, Update
from fpdfp.problem import LocalLosses
from fpdfp.quadratic.solve import minimise, needs_inner
from fpdfp.quadratic.statement import Distance, InnerSolve
from fpdfp.rng import Draws

#: How near to its prox the server goes, relative to ‖y − u‖.
TOLERANCE = 1e-2
#: What γτ(1 + ζ + ω/n) lacks to 1, and which part of the curvature of f makes up for mistakes of local solves.
MARGIN, SHARE = 0.1, 0.5
#: An automatic γ is that of a condition number of at most this.
CONDITION = 1000.0


class RandProxState(NamedTuple):
    """The iterate x̂ that clients get, its dual, the mean of the clients' control variates, and the cost so far."""

    x: Array
    v: Array
    control: Array
    work: Array


@dataclasses.dataclass(frozen=True)
class RandProx(Method):
    """Local steps without drift: clients solve a regularised problem of their own, the server takes the prox of g∘B.

    ::

        server:          sends x̂_k to n clients S, drawn uniformly
        client i in S:   y_i ≈ argmin_y f_i(y) − ⟨u_i, y⟩ + τ/2 ‖y − x̂_k‖², by local steps from x̂_k
                         sends m_i = Q(∇f_i(y_i) − u_i);   u_i ← u_i + α m_i, once the server has it
        server:          ū     ← ū + (α/N) Σ_S m_i
                         x̂_k+1 = prox_{γ g∘B}( x̂_k − (γ/n) Σ_S m_i − γū )

    The control variates u_i, which tend to ∇f_i(x*), keep local steps from running to a client's own minimum: at the
    solution y_i = x̂ and m_i = 0 for every number of them. The ridge that the losses are known to have is taken from
    the clients, and the server has it in its prox, which then is a contraction.

    It is RandProx (Condat and Richtárik) for min g̃(x) + mean of f_i(x_i), x_i = x, whose random dual step is who takes
    part and what Q does; ProxSkip and Scaffnew are other members of its family, and 5GCS is this one without Q.

    What is proved. Let f_i be convex and L-smooth, γτ(1 + ζ + ω/n) < 1 with ζ = (N − n)/(n(N − 1)), and α = 1/(1 + ω).
    The prox and the messages of the server are exact, and errors of local solves are small relative to what they
    change. Then the distance to the solution does not grow in the mean, whatever γ is. With a ridge μ convergence is
    linear, with O((√(κ(1 + ω')) + ω') log 1/ε) rounds, κ = L/μ, ω' = (1 + ω)N/n − 1, for the best γ. The proof is in
    ``docs/mathematics.md``. ``"auto"`` takes that γ for a condition number κ of at most 1,000. Nothing is proved for
    ``local_steps`` that are given, for inexact proxes, or with a compressed downlink.

    Parameters
    ----------
    step
        γ: a number or ``"auto"``.
    local_steps
        Accelerated gradient steps of a client in a round; by default as many as the theory requests, which the client
        sees from its gradients. Fewer make an automatic γ smaller.
    dual_steps
        The most dual steps that the server takes in a round.

    References
    ----------
    L. Condat and P. Richtárik, "RandProx: primal-dual optimization algorithms with randomized proximal updates",
    ICLR (2023); M. Grudzień, G. Malinovsky and P. Richtárik, "Can 5th generation local training methods support client
    sampling? Yes!", AISTATS (2023); K. Mishchenko, G. Malinovsky, S. Stich and P. Richtárik, "ProxSkip: yes! local
    gradient steps provably lead to communication acceleration! finally!", ICML (2022).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(4))
    >>> quantizer = fpdfp.QSGD(levels=3, norm="max")
    >>> result = fpdfp.solve(problem, fpdfp.RandProx(), rounds=200, clients_per_round=1, compressor=quantizer)
    >>> result.certificate.relative_gap < 1e-9
    True
    """

    traits: ClassVar[Traits] = Traits(
        title="local steps with control variates, prox on the server",
        solves="f + g∘B",
        sends=("difference",),
        downlink=True,
        mini_batches=False,
        local_steps=True,
        proved="linear for f with a ridge and the exact prox; O(√κ) rounds for everyone, exact messages and the best γ",
        constant_step=True,
        reference="Condat and Richtárik 2023; Grudzień, Malinovsky and Richtárik 2023",
    )

    step: steps.Step = "auto"
    local_steps: int | None = None
    dual_steps: int = 300

    def prepare(self, facts: Facts) -> RandProxAlgorithm:
        model, constants = facts.model, facts.constants
        count, n, omega = constants.n_clients, constants.clients_per_round, constants.omega
        smoothness = constants.lipschitz_max or 1.0
        ridge = constants.least_convexity
        zeta = (count - n) / (n * (count - 1)) if count > 1 else 0.0
        spread = 1.0 + zeta + omega / n
        overall = (1.0 + omega) * count / n
        # As much contraction by the ridge as by the dual steps.
        curvature = max(ridge, smoothness / CONDITION)
        automatic = math.sqrt((1.0 - MARGIN) * (1.0 - SHARE / 2.0) / (curvature * smoothness * overall * spread))
        if self.local_steps is not None:
            # So few steps solve problems of so small a condition number only.
            automatic = min(automatic, max(0.25, (self.local_steps / 3.0) ** 2) / (smoothness * spread))
        step = steps.resolve_constant(self.step, automatic)
        tau = (1.0 - MARGIN) / (step(0) * spread)
        accuracy, local_steps = None, self.local_steps
        if local_steps is None:
            # In exact arithmetic so many steps always suffice.
            condition = (smoothness + tau) / tau
            accuracy = math.sqrt(MARGIN * SHARE * tau / smoothness)
            enough = math.sqrt(condition) * math.log(8.0 * condition**3 / accuracy**2)
            local_steps = min(MAX_LOCAL_STEPS, math.ceil(enough))
        return RandProxAlgorithm(
            self,
            model,
            step,
            tau=tau,
            local_steps=local_steps,
            local_step=1.0 / (smoothness + tau),
            accuracy=accuracy,
            ridge=ridge,
            shift_step=1.0 / (1.0 + omega),
            inner=InnerSolve(TOLERANCE, self.dual_steps) if needs_inner(model) else None,
            n_clients=count,
        )

    def largest_step(self, facts: Facts) -> float:
        return math.inf


@dataclasses.dataclass(frozen=True)
class RandProxAlgorithm(Remembering, ServerSolves, PrimalAlgorithm):
    """Local solves with control variates, and the prox of g∘B on the server.

    Attributes
    ----------
    tau
        τ, the weight of the quadratic term of local problems.
    local_steps, local_step
        How many accelerated gradient steps a client takes at most, and how long they are.
    accuracy
        How large ‖∇φ_i(y_i)‖ may be, relative to ‖∇f_i(y_i) − u_i‖; None takes all local steps.
    ridge
        What the server has of the curvature of f, in the mean.
    shift_step
        α.
    inner
        How exactly the prox of g∘B is computed; None where it has a closed form.
    n_clients
        N.
    """

    double: ClassVar[tuple[str, ...]] = ("difference",)
    shared_memory: ClassVar[tuple[str, ...]] = ("control",)

    method: RandProx
    tau: float
    local_steps: int
    local_step: float
    accuracy: float | None
    ridge: float
    shift_step: float
    inner: InnerSolve | None
    n_clients: int

    def init(self, x0: Array) -> RandProxState:
        xp = self.model.xp
        v = xp.zeros((1, *self.model.dual_shape), dtype=x0.dtype)
        return RandProxState(x0, v, xp.zeros(x0.shape, dtype=np.float64), np.zeros(1, dtype=np.int64))

    def init_memory(self, n_clients: int) -> Control:
        return Control(start_sums(self.model, n_clients))

    def client_update(self, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        """Accelerated gradient steps with the constant momentum of a strongly convex problem, until they suffice."""
        momentum, dtype = constant_momentum(self.tau * self.local_step), self.model.dtype
        controls = local.memory.control
        differences = np.empty_like(controls, dtype=dtype)
        active = np.arange(len(local.clients))
        y = point = np.repeat(message.x[None], len(active), axis=0)
        for step in range(self.local_steps + 1):
            last = step == self.local_steps
            at = y if last else point
            slopes = self.slopes(local._replace(clients=local.clients[active]), at)
            difference = slopes - controls[active]
            slope = difference + self.tau * (at - message.x)
            going = np.zeros(len(active), dtype=bool) if last else self.find_unsolved(slope, difference, slopes, at)
            differences[active[~going]] = difference[~going].astype(dtype, copy=False)
            if not going.any():
                break
            after = (point[going] - self.local_step * slope[going]).astype(dtype, copy=False)
            y, point, active = after, after + momentum * (after - y[going]), active[going]
        return Update(Difference(differences), local.memory)

    def find_unsolved(self, slope: Array, difference: Array, slopes: Array, at: Array) -> Array:
        """Say for which clients ‖∇φ_i(y)‖ exceeds its share of ‖∇f_i(y) − u_i‖, and what rounding allows."""
        if self.accuracy is None:
            return np.ones(len(slope), dtype=bool)
        sizes = norms(slopes) + norms(at) / self.local_step
        rounding = 4.0 * float(np.finfo(slope.dtype).eps) * sizes
        unsolved: Array = to_host(norms(slope) > self.accuracy * norms(difference) + rounding)
        return unsolved

    def slopes(self, local: LocalLosses, y: Array) -> Array:
        """Return the gradients of N w_i f_i without the ridge that the server has."""
        ridges = local.least_convexities() if self.ridge else np.zeros(len(y))
        slopes: Array = local.gradients(y) - ridges.astype(y.dtype).reshape(-1, *[1] * (y.ndim - 1)) * y
        return slopes

    def remember(self, shared: dict[str, Array], sent: Difference, k: int) -> dict[str, Array]:
        return {"control": shared["control"] + self.shift_step * sent.difference.astype(np.float64)}

    def server_update(self, state: RandProxState, mean: Difference, k: int, count: int) -> RandProxState:
        model, gamma = self.model, self.step(k)
        control = state.control + self.shift_step * count / self.n_clients * mean.difference
        # prox of γ(g∘B + μ/2 ‖·‖²) at y is that of γ/(1 + γμ) g∘B at y/(1 + γμ).
        shrink = 1.0 + gamma * self.ridge
        y = ((state.x - gamma * mean.difference - gamma * control) / shrink).astype(model.dtype, copy=False)
        (x,), v, work = minimise(model, Distance(y[None], gamma / shrink), state.v, self.inner, origin=state.x[None])
        if model.linop.is_identity:
            v = model.penalty.conjugate_prox(y * (shrink / gamma), shrink / gamma)[None]  # Moreau
        return RandProxState(x, v, control, state.work + work.steps)

    def solution(self, state: RandProxState) -> tuple[Array, Array | None]:
        return state.x, state.v[0]
