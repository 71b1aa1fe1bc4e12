"""ShiftedPDFP: the server alone keeps the dual, clients send compressed differences to a learned shift."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from fpdfp import _checks, steps
from fpdfp._typing import Array, Shape
from fpdfp.linops import Compose, LinOp
from fpdfp.methods._common import check_hyper_parameters, mean
from fpdfp.methods.base import Method, Update, Work
from fpdfp.methods.inner import InnerSolve, needs_inner, prox
from fpdfp.methods.traits import Traits
from fpdfp.precondition import Preconditioner, Scaling, Whitening
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Draws

#: How near to the prox the server goes, relative to the progress of the round.
TOLERANCE = 0.1
#: Progress is smoothed with this weight of the past; when it exceeds the best so far by this factor, momentum is cut.
PAST, ALARM = 0.7, 16.0


class Once(NamedTuple):
    """What a client sends once: the bound of its Hessian, its lower triangle or its diagonal."""

    moments: Array


class State(NamedTuple):
    """The iterate, the point where gradients are taken, the dual, the mean of the clients' shifts, and the momentum.

    Where there is a preconditioner, all but the dual are in its coordinates.

    ``control`` holds θ of the momentum, the largest momentum, the factor of the step, and the smoothed and the least
    squared progress.
    """

    x: Array
    z: Array
    v: Array
    shift: Array
    control: Array
    work: Array


class Message(NamedTuple):
    """What the server sends: the point at which gradients are wanted."""

    z: Array


class Reply(NamedTuple):
    """What a client sends: its gradient's difference to its shift."""

    difference: Array


class Memory(NamedTuple):
    """What a client keeps: its shift h_i."""

    shift: Array


@dataclasses.dataclass(frozen=True)
class ShiftedPDFP(Method):
    """PDFP on the server, fed by compressed differences of gradients to shifts that clients and server learn.

    ::

        server:          sends z_k to n clients S, drawn uniformly
        client i in S:   sends m_i = Q(∇f_i(z_k) − h_i);   h_i ← h_i + α m_i, once the server has it
        server:          ĝ     = h̄ + (1/n) Σ_S m_i,   h̄ ← h̄ + (α/N) Σ_S m_i
                         v_k+1 = prox_{(λ/γ) g*}( (λ/γ) B(z_k − γĝ) + (I − λBBᵀ) v_k ),   once or several times
                         x_k+1 = z_k − γĝ − γBᵀ v_k+1
                         z_k+1 = x_k+1 + β_k (x_k+1 − x_k)

    The differences vanish as h_i tends to ∇f_i(x*), and with them the noise of Q and of who takes part: a constant step
    has no floor. A client sends d numbers, whatever B is. Several dual steps a round (accelerated, warm-started, at the
    cost of the server alone) tend to the prox of g∘B.

    The momentum β_k is that of FISTA, restarted where it points uphill. When ‖z_k − x_k+1‖/γ, smoothed over rounds, has
    grown to four times its least since the shifts were first learned, the largest momentum and γ are halved for good.

    What is proved: without momentum, for γ ≤ 1/(L_max(1 + 6ω'/N)), ω' = (1 + ω)N/n − 1, α = 1/(1 + ω), an unbiased Q
    with E‖Q(x) − x‖² ≤ ω‖x‖² and f strongly convex, linear convergence if BBᵀ is positive definite (one dual step) or
    if the prox of g∘B is exact. ``"auto"`` takes γ = 1/(L(1 + 6ω'/N)) with L of f instead of the largest of a client,
    which is larger where clients differ. Nothing is proved with that, with momentum, with inexact proxes, or for
    other B.

    Parameters
    ----------
    step
        γ: a number or ``"auto"``.
    dual_steps
        The most dual steps that the server takes in a round; it stops when they no longer matter.
    preconditioner
        Coordinates to work in, x = S u: a :class:`fpdfp.precondition.Preconditioner`; ``"moments"``, the inverse of a
        bound of the Hessian, from second moments that clients send once (d(d + 1)/2 numbers, counted apart);
        ``"diagonal"``, from its diagonal (d numbers); or None. Clients then send Q(Sᵀ∇f_i − h_i).
    momentum
        Whether to use momentum.
    shift_step
        α; by default 1/(1 + ω) for the compressor's bound ω.
    n_clients, warm_up, space
        Filled in by ``solve``.

    References
    ----------
    K. Mishchenko, E. Gorbunov, M. Takáč and P. Richtárik, "Distributed learning with compressed gradient differences"
    (DIANA), arXiv:1901.09269 (2019); A. Salim, L. Condat, K. Mishchenko and P. Richtárik, "Dualize, split, randomize:
    toward fast nonsmooth optimization algorithms", Journal of Optimization Theory and Applications 195 (2022);
    L. Condat and P. Richtárik, "RandProx: primal-dual optimization algorithms with randomized proximal updates",
    ICLR (2023).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(4))
    >>> quantizer = fpdfp.QSGD(levels=3, norm="max")
    >>> result = fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=200, clients_per_round=1, compressor=quantizer)
    >>> result.certificate.relative_gap < 1e-9
    True
    """

    traits: ClassVar[Traits] = Traits(
        title="PDFP on the server, compressed differences to learned shifts",
        solves="f + g∘B",
        sends=("difference",),
        uplink="d",
        mini_batches=False,
        proved="without momentum: linear for f strongly convex if BBᵀ is positive definite or the prox of g∘B exact",
        reference="Mishchenko et al. 2019; Salim et al. 2022; Condat and Richtárik 2023",
    )
    batch_size: ClassVar[None] = None  # type: ignore[misc]

    step: steps.Step = "auto"
    dual_steps: int = 100
    preconditioner: Preconditioner | Literal["moments", "diagonal"] | None = None
    momentum: bool = True
    shift_step: float | None = None
    n_clients: int | None = dataclasses.field(default=None, repr=False)
    warm_up: int | None = dataclasses.field(default=None, repr=False)
    space: Model | None = dataclasses.field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_hyper_parameters(self, constant_step=True)
        object.__setattr__(self, "dual_steps", _checks.integer("dual_steps", self.dual_steps, at_least=1))
        object.__setattr__(self, "momentum", _checks.flag("momentum", self.momentum))
        if isinstance(self.preconditioner, str):
            _checks.choice("preconditioner", self.preconditioner, ("moments", "diagonal"))
        elif not isinstance(self.preconditioner, Preconditioner | None):
            raise TypeError(
                "preconditioner must be 'moments', 'diagonal', one of fpdfp.precondition or None, got "
                + _checks.kind(self.preconditioner)
            )
        if self.shift_step is not None:
            alpha = _checks.real("shift_step", self.shift_step, positive=True)
            if alpha > 1:
                raise ValueError(f"shift_step must be at most 1, got {alpha:g}")
            object.__setattr__(self, "shift_step", alpha)

    @property
    def has_inner_solve(self) -> bool:
        return True

    def gather(self, model: Model, local: LocalLosses) -> Any:
        if not isinstance(self.preconditioner, str):
            return ()
        diagonal = self.preconditioner == "diagonal"
        bounds = local.curvature_diagonals() if diagonal else local.curvatures()
        if bounds is None:
            raise ValueError(
                f"preconditioner={self.preconditioner!r} needs losses with known bounds of their Hessians (linear "
                "models; 'moments' for at most 2,000 features); give one of fpdfp.precondition, or None"
            )
        if not diagonal:
            rows, columns = np.tril_indices(bounds.shape[1])
            bounds = bounds[:, rows, columns]
        return Once(bounds.astype(np.float32))

    def install(self, model: Model, gathered: Any) -> ShiftedPDFP:
        if not gathered:
            return self
        if self.preconditioner == "diagonal":
            return dataclasses.replace(self, preconditioner=Scaling(gathered.moments))
        d = int(np.prod(model.shape))
        hessian = np.zeros((d, d))
        hessian[np.tril_indices(d)] = gathered.moments
        hessian += np.tril(hessian, -1).T
        return dataclasses.replace(self, preconditioner=Whitening(hessian))

    @property
    def coordinates(self) -> Preconditioner | None:
        """The preconditioner, once it is there."""
        return self.preconditioner if isinstance(self.preconditioner, Preconditioner) else None

    def announcement(self) -> tuple[Array, ...]:
        return () if self.coordinates is None else (self.coordinates.numbers,)

    @property
    def factor(self) -> LinOp | None:
        return None if self.coordinates is None else self.coordinates.factor

    def prepare(self, model: Model, constants: steps.Constants) -> ShiftedPDFP:
        return dataclasses.replace(
            self,
            step=steps.resolve_constant(self.step, 1.0 / (self.smoothness(constants) * (1.0 + self.noise(constants)))),
            shift_step=self.automatic_shift_step(constants) if self.shift_step is None else self.shift_step,
            n_clients=constants.n_clients,
            warm_up=self.rounds_to_learn(constants),
            space=model if self.factor is None else model._replace(linop=Compose(model.linop, self.factor)),
        )

    def smoothness(self, constants: steps.Constants) -> float:
        """L of f in the coordinates of the method."""
        smoothness = constants.lipschitz_mean or 1.0
        if self.coordinates is not None and self.coordinates.smoothness is not None:
            return min(smoothness, self.coordinates.smoothness)
        return smoothness

    def noise(self, constants: steps.Constants) -> float:
        """How much smaller than 1/L the step must be: 6ω'/N."""
        spread = (1.0 + constants.omega) * constants.n_clients / constants.clients_per_round - 1.0
        return 6.0 * spread / constants.n_clients

    def automatic_shift_step(self, constants: steps.Constants) -> float:
        """α = 1/(1 + ω)."""
        return 1.0 / (1.0 + constants.omega)

    def rounds_to_learn(self, constants: steps.Constants) -> int:
        """How many rounds the shifts take to be of use: until then progress says nothing."""
        return math.ceil(2.0 * (1.0 + constants.omega) * constants.n_clients / constants.clients_per_round)

    def largest_step(self, model: Model, constants: steps.Constants) -> float:
        return 2.0 / self.smoothness(constants)

    def reply_shapes(self, model: Model) -> dict[str, Shape]:
        return {"difference": model.shape}

    def init(self, model: Model, x0: Array) -> State:
        u0 = x0 if self.coordinates is None else self.coordinates.coordinates(x0)
        v = np.zeros((1, *model.dual_shape), dtype=x0.dtype)
        control = np.array([1.0, 1.0 if self.momentum else 0.0, 1.0, np.inf, np.inf])
        return State(u0, u0, v, np.zeros_like(u0), control, np.zeros(2, dtype=np.int64))

    def init_memory(self, model: Model, n_clients: int) -> Memory:
        return Memory(np.zeros((n_clients, *model.shape), dtype=model.dtype))

    def broadcast(self, model: Model, state: State) -> Message:
        return Message(state.z if self.factor is None else self.factor.apply(state.z))

    def client_update(self, model: Model, local: LocalLosses, message: Message, k: int, draws: Draws) -> Update:
        gradients = local.gradients(message.z)
        if self.factor is not None:
            gradients = self.factor.adjoint(gradients)
        return Update(Reply(gradients - local.memory.shift), local.memory)

    def confirm(self, model: Model, memory: Memory, sent: Reply, k: int) -> Memory:
        assert self.shift_step is not None
        return Memory(memory.shift + self.shift_step * sent.difference)

    def server_update(self, model: Model, state: State, reply: Reply, k: int) -> State:
        assert self.shift_step is not None
        assert self.n_clients is not None
        assert self.space is not None
        gamma = self.schedule()(0) * float(state.control[2])
        difference = mean(reply.difference)
        shift = state.shift + self.shift_step * len(reply.difference) / self.n_clients * difference
        estimate = self.estimate(state.shift, shift, difference)
        inner = InnerSolve(TOLERANCE, self.dual_steps) if needs_inner(self.space) else None
        y = state.z - gamma * estimate
        (x,), v, work = prox(self.space, y[None], gamma, state.v, inner, origin=state.z[None])
        if self.space.linop.is_identity:
            v = (y - x)[None] / gamma  # Moreau: x = y − γv
        beta, control = self.next_momentum(state, x, gamma, k)
        z = x + beta * (x - state.x)
        return State(x, z, v, shift, control, state.work + np.array([work.steps, 0]))

    def estimate(self, before: Array, after: Array, difference: Array) -> Array:
        """Return ĝ, from the mean shift before and after the round and the mean difference that was sent."""
        return before + difference

    def next_momentum(self, state: State, x: Array, gamma: float, k: int) -> tuple[float, Array]:
        """Return β_k and what it is chosen from in the next round."""
        assert self.warm_up is not None
        theta, cap, scale, smoothed, best = state.control
        moved = state.z - x
        progress = float(np.vdot(moved, moved)) / gamma**2
        smoothed = progress if smoothed == np.inf else PAST * smoothed + (1.0 - PAST) * progress
        best = min(best, smoothed) if k >= self.warm_up else np.inf
        if smoothed > ALARM * best:
            theta, cap, scale, best = 1.0, cap / 2.0, scale / 2.0, smoothed
        if float(np.vdot(moved, x - state.x)) > 0:
            theta = 1.0
        following = (1.0 + np.sqrt(1.0 + 4.0 * theta**2)) / 2.0
        beta = min((theta - 1.0) / following, cap)
        return float(beta), np.array([following, cap, scale, smoothed, best])

    def solution(self, state: State) -> tuple[Array, Array | None]:
        return state.x if self.factor is None else self.factor.apply(state.x), state.v[0]

    def server_work(self, state: State) -> Work:
        return Work(*map(int, state.work))
