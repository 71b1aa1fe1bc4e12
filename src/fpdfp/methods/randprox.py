"""RandProx: local steps without drift, with compressed messages, some clients, and the prox on the server."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fpdfp import _checks, steps
from fpdfp._typing import Array, Shape
from fpdfp.methods import _local_solve
from fpdfp.methods._common import check_hyper_parameters, mean
from fpdfp.methods.base import Method, Update, Work
from fpdfp.methods.inner import InnerSolve, needs_inner, prox
from fpdfp.methods.traits import Traits
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Draws

#: How near to its prox the server goes, relative to ‖y − u‖.
TOLERANCE = 1e-2


class State(NamedTuple):
    """The iterate x̂ that clients get, its dual, the mean of the clients' control variates, and the cost so far."""

    x: Array
    v: Array
    control: Array
    work: Array


class Message(NamedTuple):
    """What the server sends: x̂."""

    x: Array


class Reply(NamedTuple):
    """What a client sends: the difference of its new control variate to the old one."""

    difference: Array


class Memory(NamedTuple):
    """What a client keeps: its control variate u_i, which tends to ∇f_i(x*)."""

    control: Array


@dataclasses.dataclass(frozen=True)
class RandProx(Method):
    """Local steps without drift: clients solve a regularised problem of their own, the server takes the prox of g∘B.

    ::

        server:          sends x̂_k to n clients S, drawn uniformly
        client i in S:   y_i ≈ argmin_y f_i(y) − ⟨u_i, y⟩ + τ/2 ‖y − x̂_k‖², by local steps from x̂_k
                         sends m_i = Q(∇f_i(y_i) − u_i);   u_i ← u_i + α m_i, once the server has it
        server:          ū     ← ū + (α/N) Σ_S m_i
                         x̂_k+1 = prox_{γ g∘B}( x̂_k − (γ/n) Σ_S m_i − γū )

    The control variates u_i keep local steps from running to a client's own minimum: at the solution y_i = x̂ and
    m_i = 0 for every number of them. The ridge that the losses are known to have is taken from the clients, and the
    server has it in its prox, which then is a contraction.

    It is RandProx (Condat and Richtárik) for min g̃(x) + mean of f_i(x_i), x_i = x, whose random dual step is who takes
    part and what Q does; ProxSkip and Scaffnew are other members of its family, and 5GCS is this one without Q.

    What is proved: for f_i convex and L-smooth, γτ(1 + ζ + ω/n) ≤ 1 with ζ = (N − n)/(n(N − 1)), α = 1/(1 + ω), exact
    local solves, the exact prox and a ridge μ, linear convergence, with O((√(κ(1 + ω')) + ω') log 1/ε) rounds, κ = L/μ,
    ω' = (1 + ω)N/n − 1, for γ² = 2/(μL(1 + ω')(1 + ζ + ω/n)), which is what ``"auto"`` takes. For inexact local solves
    it is proved where Q is exact (5GCS). Without a ridge nothing is proved, and ``"auto"`` takes γ = 10/L.

    Parameters
    ----------
    step
        γ: a number or ``"auto"``.
    local_steps
        Accelerated gradient steps of a client in a round; by default so many that they make its mistake twenty times
        smaller. Fewer make an automatic γ smaller.
    dual_steps
        The most dual steps that the server takes in a round.
    tau, ridge, local_step, shift_step, n_clients
        Filled in by ``solve``.

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
        uplink="d",
        downlink=True,
        mini_batches=False,
        local_steps=True,
        proved="linear for f with a ridge, local solves and prox exact; O(√κ) rounds for everyone and exact messages",
        reference="Condat and Richtárik 2023; Grudzień, Malinovsky and Richtárik 2023",
    )
    batch_size: ClassVar[None] = None  # type: ignore[misc]

    shared_memory: ClassVar[tuple[str, ...]] = ("control",)

    step: steps.Step = "auto"
    local_steps: int | None = None  # type: ignore[assignment]
    dual_steps: int = 300
    tau: float | None = dataclasses.field(default=None, repr=False)
    ridge: float = dataclasses.field(default=0.0, repr=False)
    local_step: float | None = dataclasses.field(default=None, repr=False)
    shift_step: float | None = dataclasses.field(default=None, repr=False)
    n_clients: int | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_hyper_parameters(self, constant_step=True)
        object.__setattr__(self, "dual_steps", _checks.integer("dual_steps", self.dual_steps, at_least=1))

    @property
    def has_inner_solve(self) -> bool:
        return True

    def prepare(self, model: Model, constants: steps.Constants) -> RandProx:
        count, n, omega = constants.n_clients, constants.clients_per_round, constants.omega
        smoothness = constants.lipschitz_max or 1.0
        ridge = constants.least_convexity
        zeta = (count - n) / (n * (count - 1)) if count > 1 else 0.0
        spread = 1.0 + zeta + omega / n
        overall = (1.0 + omega) * count / n
        automatic = 10.0 / smoothness
        if ridge > 0:
            automatic = math.sqrt(2.0 / (ridge * smoothness * overall * spread))
        if self.local_steps is not None:
            # So few steps solve problems of so small a condition number only.
            automatic = min(automatic, max(0.25, (self.local_steps / 3.0) ** 2) / (smoothness * spread))
        step = steps.resolve_constant(self.step, automatic)
        tau = 1.0 / (step(0) * spread)
        local_steps = self.local_steps or _local_solve.steps_needed(smoothness, tau)
        return dataclasses.replace(
            self,
            step=step,
            local_steps=local_steps,
            tau=tau,
            ridge=ridge,
            local_step=1.0 / (smoothness + tau),
            shift_step=1.0 / (1.0 + omega),
            n_clients=count,
        )

    def largest_step(self, model: Model, constants: steps.Constants) -> float:
        return math.inf

    def reply_shapes(self, model: Model) -> dict[str, Shape]:
        return {"difference": model.shape}

    def init(self, model: Model, x0: Array) -> State:
        v = model.xp.zeros((1, *model.dual_shape), dtype=x0.dtype)
        return State(x0, v, model.xp.zeros(x0.shape, dtype=np.float64), np.zeros(1, dtype=np.int64))

    def init_memory(self, model: Model, n_clients: int) -> Memory:
        return Memory(model.xp.zeros((n_clients, *model.shape), dtype=np.float64))

    def broadcast(self, model: Model, state: State) -> Message:
        return Message(state.x)

    def client_update(self, model: Model, local: LocalLosses, message: Message, k: int, draws: Draws) -> Update:
        assert self.tau is not None
        assert self.local_step is not None
        assert self.local_steps is not None
        tau, controls = self.tau, local.memory.control

        def slopes(y: Array) -> Array:
            slope: Array = self.slopes(local, y) - controls + tau * (y - message.x)
            return slope

        y = _local_solve.minimise(slopes, message.x, len(local.clients), self.local_steps, self.local_step, tau)
        difference = (self.slopes(local, y) - controls).astype(model.dtype, copy=False)
        return Update(Reply(difference), local.memory)

    def slopes(self, local: LocalLosses, y: Array) -> Array:
        """The gradients of N w_i f_i without the ridge that the server has."""
        ridges = local.least_convexities() if self.ridge else np.zeros(len(y))
        slopes: Array = local.gradients(y) - ridges.astype(y.dtype).reshape(-1, *[1] * (y.ndim - 1)) * y
        return slopes

    def remember(self, model: Model, shared: dict[str, Array], sent: Reply, k: int) -> dict[str, Array]:
        assert self.shift_step is not None
        return {"control": shared["control"] + self.shift_step * sent.difference.astype(np.float64)}

    def server_update(self, model: Model, state: State, reply: Reply, k: int) -> State:
        assert self.shift_step is not None
        assert self.n_clients is not None
        gamma = self.schedule()(0)
        difference = mean(reply.difference.astype(np.float64))  # as clients add it to their control variates
        control = state.control + self.shift_step * len(reply.difference) / self.n_clients * difference
        # prox of γ(g∘B + μ/2 ‖·‖²) at y is that of γ/(1 + γμ) g∘B at y/(1 + γμ).
        shrink = 1.0 + gamma * self.ridge
        y = ((state.x - gamma * difference - gamma * control) / shrink).astype(model.dtype, copy=False)
        inner = InnerSolve(TOLERANCE, self.dual_steps) if needs_inner(model) else None
        (x,), v, work = prox(model, y[None], gamma / shrink, state.v, inner, origin=state.x[None])
        if model.linop.is_identity:
            v = model.penalty.conjugate_prox(y * (shrink / gamma), shrink / gamma)[None]  # Moreau
        return State(x, v, control, state.work + work.steps)

    def solution(self, state: State) -> tuple[Array, Array | None]:
        return state.x, state.v[0]

    def server_work(self, state: Any) -> Work:
        return Work(int(state.work[0]))
