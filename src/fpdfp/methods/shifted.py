"""ShiftedPDFP: the server alone keeps the dual, clients send compressed differences to a learned shift."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fpdfp import _checks, steps
from fpdfp._array import to_host
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.compress import Compressor
from fpdfp.linops import Compose, LinOp
from fpdfp.losses._duals import ROUNDINGS
from fpdfp.losses.base import Losses
from fpdfp.methods import _control
from fpdfp.methods._common import check_hyper_parameters, mean, norms
from fpdfp.methods._variance import Anchors
from fpdfp.methods._variance import gradients as variance_reduced
from fpdfp.methods.base import Method, Update, Work
from fpdfp.methods.inner import InnerSolve, dense, needs_inner, prox
from fpdfp.methods.traits import Traits
from fpdfp.precondition import Fourier, Preconditioner, QuantizedMoments, exchange
from fpdfp.precondition.cost import Circumstances
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Draws

#: How near to the prox the server goes, relative to the progress of the round.
TOLERANCE = 0.1
#: The same where Newton steps make accuracy cheap.
FINE_TOLERANCE = 0.01
#: The most dual steps in a round, at first and at all, and on average, where they are chosen automatically.
DUAL_STEPS, MOST_DUAL_STEPS, MEAN_DUAL_STEPS = 100, 3200, 400


class State(NamedTuple):
    """The iterate, the point where gradients are taken, the dual, and the mean of the clients' shifts.

    ``last`` and ``slope`` are the point and the estimated gradient of the round before; ``control`` is that of step and
    momentum; ``work`` is the cost so far and the most dual steps of the next round; ``drift`` bounds what rounding may
    have done to the mean of the shifts. Where there is a preconditioner, points and gradients are in its coordinates.
    """

    x: Array
    z: Array
    v: Array
    shift: Array
    last: Array
    slope: Array
    control: Array
    work: Array
    drift: Array


class Message(NamedTuple):
    """What the server sends: the point at which gradients are wanted, in the coordinates of the preconditioner."""

    z: Array


class Question(NamedTuple):
    """What the server sends to have the gap certified: its iterate, and what the shifts lack to be a dual point.

    ``drift`` is what rounding may add to that.
    """

    x: Array
    lack: Array
    drift: Array


class Reply(NamedTuple):
    """What a client sends: its gradient's difference to its shift."""

    difference: Array


class Memory(NamedTuple):
    """What a client keeps: its shift h_i."""

    shift: Array


class BatchMemory(NamedTuple):
    """What a client keeps that uses mini-batches: its shift, and the point that it compares with."""

    shift: Array
    point: Array
    slope: Array
    known: Array

    @property
    def anchors(self) -> Anchors:
        """All but the shift."""
        return Anchors(*self[1:])


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

    With ``batch_size`` a client's ∇f_i(z_k) is an estimate from some of its samples whose noise vanishes as well
    (loopless SVRG): with probability p it computes the full gradient and remembers it with its point w_i, otherwise it
    takes ∇f_batch(z_k) − ∇f_batch(w_i) + ∇f_i(w_i).

    The momentum β_k is that of FISTA, restarted where it points uphill. An automatic γ grows, up to eight times, where
    the estimated gradients of successive rounds show less curvature than L. When ‖z_k − x_k+1‖/γ, smoothed over rounds,
    has grown to eight times its least since the shifts were first learned, the largest momentum and γ are halved for
    good.

    What is proved: without momentum, for γ ≤ 1/(L_max(1 + 6ζ + 6ω/n)), ζ = (N − n)/(n(N − 1)), α = 1/(1 + ω), an
    unbiased Q with E‖Q(x) − x‖² ≤ ω‖x‖², f_i convex and f strongly convex, linear convergence if BBᵀ is positive
    definite (one dual step) or if the prox of g∘B is exact. The proof is in ``docs/theory.md``. ``"auto"`` takes
    γ = 1/(L + 2L̄ω'/N), ω' = (1 + ω)N/n − 1, with L of f, L̄ = ΣL_i²/ΣL_i of the clients, and the typical error of Q for
    ω, which for a quantizer is far below the bound. Nothing is proved with that, with momentum, with inexact proxes,
    with mini-batches, with a compressed downlink, or for other B.

    Parameters
    ----------
    step
        γ: a number or ``"auto"``.
    dual_steps
        The most dual steps that the server takes in a round; it stops when they no longer matter. By default, for up
        to some hundred features, 20, and then semismooth Newton steps where they were too few; for more features 100,
        and twice as many after every round in which they were too few, up to 3,200 and to 400 on average.
    preconditioner
        Coordinates to work in, x = S u: a :class:`fpdfp.precondition.Preconditioner`; ``"moments"``, the inverse of a
        bound of the Hessian, from second moments that clients send once (d(d + 1)/2 numbers, counted apart);
        ``"diagonal"``, from its diagonal (d numbers); :class:`fpdfp.precondition.QuantizedMoments`, the same from some
        clients in few bits; ``"fourier"``, for images, from the clients' responses to one impulse (d numbers);
        ``"auto"``, what the losses allow and ``prefer`` of :func:`fpdfp.solve` says, if it is predicted to pay; or
        None. Clients then send Q(Sᵀ∇f_i − h_i).
        For softmax losses d is the number of features here, and S does the same to the row of each class.
    momentum
        Whether to use momentum.
    shift_step
        α; by default 1/(1 + ω̂) for the compressor's typical error ω̂, and at most 1.5/(1 + ω) for its bound ω. With 0
        shifts are not learned, and compressed gradients are sent: then a constant step stops short of the solution.
    batch_size
        How many samples a client uses when it does not compute the full gradient; None for all, always.
    refresh
        p; by default the batch's share of the client's samples.
    asks, circumstances, reason, unless, smoothness, convexity, n_clients, warm_up, adaptive, space, matrix
        Filled in by ``solve``.

    References
    ----------
    K. Mishchenko, E. Gorbunov, M. Takáč and P. Richtárik, "Distributed learning with compressed gradient differences"
    (DIANA), arXiv:1901.09269 (2019); A. Salim, L. Condat, K. Mishchenko and P. Richtárik, "Dualize, split, randomize:
    toward fast nonsmooth optimization algorithms", Journal of Optimization Theory and Applications 195 (2022);
    L. Condat and P. Richtárik, "RandProx: primal-dual optimization algorithms with randomized proximal updates",
    ICLR (2023); S. Horváth, D. Kovalev, K. Mishchenko, S. Stich and P. Richtárik, "Stochastic distributed learning with
    gradient quantization and double-variance reduction", Optimization Methods and Software 38 (2023).

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
        downlink=True,
        proved="without momentum: linear for f strongly convex if BBᵀ is positive definite or the prox of g∘B exact",
        reference="Mishchenko et al. 2019; Salim et al. 2022; Condat and Richtárik 2023",
    )
    shared_memory: ClassVar[tuple[str, ...]] = ("shift",)
    #: Whether an automatic step may grow.
    may_grow: ClassVar[bool] = True

    step: steps.Step = "auto"
    dual_steps: int | None = None
    preconditioner: Preconditioner | QuantizedMoments | exchange.Kind | None = None
    momentum: bool = True
    shift_step: float | None = None
    batch_size: int | None = None
    refresh: float | None = None
    asks: QuantizedMoments | exchange.Kind | None = dataclasses.field(default=None, repr=False)
    circumstances: Circumstances | None = dataclasses.field(default=None, repr=False)
    reason: str = dataclasses.field(default="", repr=False)
    unless: float | None = dataclasses.field(default=None, repr=False)
    smoothness: float | None = dataclasses.field(default=None, repr=False)
    convexity: float = dataclasses.field(default=0.0, repr=False)
    n_clients: int | None = dataclasses.field(default=None, repr=False)
    warm_up: int | None = dataclasses.field(default=None, repr=False)
    adaptive: bool = dataclasses.field(default=False, repr=False)
    space: Model | None = dataclasses.field(default=None, repr=False, compare=False)
    matrix: Array | None = dataclasses.field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_hyper_parameters(self, constant_step=True)
        if self.dual_steps is not None:
            object.__setattr__(self, "dual_steps", _checks.integer("dual_steps", self.dual_steps, at_least=1))
        object.__setattr__(self, "momentum", _checks.flag("momentum", self.momentum))
        if isinstance(self.preconditioner, str):
            _checks.choice("preconditioner", self.preconditioner, exchange.KINDS)
        elif not isinstance(self.preconditioner, Preconditioner | QuantizedMoments | None):
            raise TypeError(
                f"preconditioner must be one of {', '.join(map(repr, exchange.KINDS))}, one of fpdfp.precondition or "
                f"None, got {_checks.kind(self.preconditioner)}"
            )
        if self.shift_step != 0:  # 0 is for gradients that are sent as they are
            self._check_share("shift_step")
        self._check_share("refresh")

    def _check_share(self, name: str) -> None:
        if getattr(self, name) is not None:
            object.__setattr__(self, name, _checks.share(name, getattr(self, name)))

    def check(self, model: Model) -> None:
        super().check(model)
        if self.coordinates is not None and self.coordinates.factor.in_shape != model.shape:
            raise ValueError(
                f"preconditioner must be for x of shape {model.shape}, got one for {self.coordinates.factor.in_shape}"
            )

    @property
    def has_inner_solve(self) -> bool:
        return True

    @property
    def summary(self) -> str:
        name = type(self).__name__
        return name if self.coordinates is None else f"{name}, preconditioner {type(self.coordinates).__name__}"

    def plan(self, losses: Losses, circumstances: Callable[[], Circumstances]) -> ShiftedPDFP:
        if self.preconditioner != "auto":
            asks = None if isinstance(self.preconditioner, Preconditioner) else self.preconditioner
            return dataclasses.replace(self, asks=asks)
        given = circumstances()
        return dataclasses.replace(self, asks=exchange.planned(losses, given), circumstances=given)

    @property
    def gathers(self) -> bool:
        return self.asks is not None

    def asked_once(self, n_clients: int, seed: int) -> IntArray:
        if isinstance(self.asks, QuantizedMoments):
            return self.asks.drawn(n_clients, seed)
        return super().asked_once(n_clients, seed)

    def gather(self, model: Model, local: LocalLosses) -> Any:
        if isinstance(self.asks, QuantizedMoments):
            return self.asks.gather(model, local)
        return () if self.asks is None else exchange.gather(self.asks, model, local)

    def messages_once(self, model: Model) -> dict[str, tuple[Compressor, Shape]]:
        return self.asks.messages(model) if isinstance(self.asks, QuantizedMoments) else {}

    def summed(self, sent: Any, places: IntArray) -> Any:
        if isinstance(self.asks, QuantizedMoments):
            return self.asks.summed(sent, places)
        return super().summed(sent, places)

    def install(self, model: Model, sums: Any, count: int, n_clients: int) -> ShiftedPDFP:
        settled = dataclasses.replace(self, asks=None, circumstances=None)
        automatic = self.preconditioner == "auto"
        if self.asks is None:
            return dataclasses.replace(settled, preconditioner=None) if automatic else settled
        if isinstance(self.asks, QuantizedMoments):
            made, reason = self.asks.build(sums, model, n_clients, self.circumstances)
            if isinstance(made, str | QuantizedMoments):
                why = "clients find their features too ill conditioned for quantized moments"
                return dataclasses.replace(self, asks=made, reason=why if isinstance(made, str) else "")
            return dataclasses.replace(settled, preconditioner=made, reason=reason)
        gathered = exchange.mean(sums, count)
        try:
            coordinates = exchange.build(gathered, model.shape, careful=automatic)
        except ValueError as error:
            if automatic:
                return dataclasses.replace(settled, preconditioner=None)
            raise ValueError(f"preconditioner={self.preconditioner!r} does not fit these losses: {error}") from error
        unless = None
        if automatic and isinstance(coordinates, Fourier):
            assert isinstance(gathered, exchange.Response)
            unless = float(gathered.lipschitz[0])
        return dataclasses.replace(settled, preconditioner=coordinates, unless=unless)

    def for_clients(self) -> ShiftedPDFP:
        return dataclasses.replace(self, space=None, matrix=None, circumstances=None, reason="")

    @property
    def coordinates(self) -> Preconditioner | None:
        """The preconditioner, once it is there."""
        return self.preconditioner if isinstance(self.preconditioner, Preconditioner) else None

    @property
    def announced_bits(self) -> int:
        return 0 if self.coordinates is None else self.coordinates.bits

    @property
    def factor(self) -> LinOp | None:
        return None if self.coordinates is None else self.coordinates.factor

    @property
    def smoothness_in_factor(self) -> float | None:
        return None if self.coordinates is None else self.coordinates.smoothness

    def settle(self, constants: steps.Constants) -> ShiftedPDFP:
        if self.unless is None:
            return self
        assert isinstance(self.preconditioner, Fourier)
        helps = self.preconditioner.helps(self.unless, constants.lipschitz_mean)
        return dataclasses.replace(self, unless=None) if helps else dataclasses.replace(self, preconditioner=None)

    def prepare(self, model: Model, constants: steps.Constants) -> ShiftedPDFP:
        space = model if self.factor is None else model._replace(linop=Compose(model.linop, self.factor))
        return dataclasses.replace(
            self,
            step=steps.resolve_constant(self.step, 1.0 / self.noisy_smoothness(constants)),
            shift_step=self.automatic_shift_step(constants) if self.shift_step is None else self.shift_step,
            smoothness=constants.lipschitz_mean or 1.0,
            convexity=constants.least_convexity,
            n_clients=constants.n_clients,
            warm_up=self.rounds_to_learn(constants),
            adaptive=self.may_grow and isinstance(self.step, str),
            space=space,
            matrix=dense(space) if self.dual_steps is None else None,
        )

    def noisy_smoothness(self, constants: steps.Constants) -> float:
        """L + 2L̄ω'/N, and what mini-batches and the downlink add."""
        omega = constants.typical_omega
        spread = (1.0 + omega) * constants.n_clients / constants.clients_per_round - 1.0
        smoothness = (constants.lipschitz_mean or 1.0) + 2.0 * constants.client_spread * spread / constants.n_clients
        smoothness += 2.0 * (1.0 + omega) * constants.batch_smoothness / constants.clients_per_round
        return smoothness * (1.0 + 2.0 * constants.downlink_omega)

    def automatic_shift_step(self, constants: steps.Constants) -> float:
        """α."""
        return steps.shift_step(constants.typical_omega, constants.omega)

    def rounds_to_learn(self, constants: steps.Constants) -> int:
        """How many rounds the shifts take to be of use: until then progress says nothing."""
        alpha = self.automatic_shift_step(constants)
        return math.ceil(2.0 * constants.n_clients / (alpha * constants.clients_per_round))

    def largest_step(self, model: Model, constants: steps.Constants) -> float:
        return constants.largest_safe_step if self.smoothness is None else 2.0 / self.smoothness

    def reply_shapes(self, model: Model) -> dict[str, Shape]:
        return {"difference": model.shape}

    def init(self, model: Model, x0: Array) -> State:
        u0 = x0 if self.coordinates is None else self.coordinates.coordinates(x0)
        v = model.xp.zeros((1, *model.dual_shape), dtype=x0.dtype)
        zero, work = np.zeros_like(u0), np.array([0, self.dual_steps or DUAL_STEPS], dtype=np.int64)
        shift = model.xp.zeros(u0.shape, dtype=np.float64)
        return State(u0, u0, v, shift, u0, zero, _control.start(self.momentum), work, np.zeros(1))

    def init_memory(self, model: Model, n_clients: int) -> Memory | BatchMemory:
        shift = model.xp.zeros((n_clients, *model.shape), dtype=np.float64)
        if self.batch_size is None:
            return Memory(shift)
        return BatchMemory(shift, *Anchors.empty(n_clients, model))

    def broadcast(self, model: Model, state: State) -> Message:
        return Message(state.z)

    def client_update(self, model: Model, local: LocalLosses, message: Message, k: int, draws: Draws) -> Update:
        z = message.z if self.factor is None else self.factor.apply(message.z)
        memory = local.memory
        if self.batch_size is None:
            gradients = local.gradients(z)
        else:
            gradients, anchors = variance_reduced(local, z, memory.anchors, self.batch_size, self.refresh, draws)
            memory = BatchMemory(memory.shift, *anchors)
        if self.factor is not None:
            gradients = self.factor.adjoint(gradients)
        return Update(Reply((gradients - memory.shift).astype(model.dtype, copy=False)), memory)

    def remember(self, model: Model, shared: dict[str, Array], sent: Reply, k: int) -> dict[str, Array]:
        assert self.shift_step is not None
        return {"shift": shared["shift"] + self.shift_step * sent.difference.astype(np.float64)}

    def server_update(self, model: Model, state: State, reply: Reply, k: int) -> State:
        assert self.shift_step is not None
        assert self.n_clients is not None
        assert self.space is not None
        assert self.warm_up is not None
        difference = mean(reply.difference.astype(np.float64))  # as clients add it to their shifts
        shift = state.shift + self.shift_step * len(reply.difference) / self.n_clients * difference
        estimate = self.estimate(state.shift, shift, difference).astype(model.dtype, copy=False)
        control = state.control
        if self.adaptive and k > 0:
            control = _control.grown(control, state.z - state.last, estimate - state.slope, self.schedule()(0))
        gamma = self.schedule()(0) * _control.factor(control)
        tolerance = TOLERANCE if self.matrix is None else FINE_TOLERANCE
        inner = InnerSolve(tolerance, int(state.work[1])) if needs_inner(self.space) else None
        y = state.z - gamma * estimate
        (x,), v, work = prox(self.space, y[None], gamma, state.v, inner, origin=state.z[None], matrix=self.matrix)
        if self.space.linop.is_identity:
            v = model.penalty.conjugate_prox(y / gamma, 1.0 / gamma)[None]  # Moreau: x = y − γv
        beta, control = _control.following(control, state.z, x, state.x, gamma, k >= self.warm_up)
        z = x + beta * (x - state.x)
        rounding = float(np.finfo(np.float64).eps) * float(np.linalg.norm(shift))
        drift = state.drift + ROUNDINGS * rounding
        return State(x, z, v, shift, state.z, estimate, control, self.next_work(state.work, work, k), drift)

    def next_work(self, so_far: Array, work: Work, k: int) -> Array:
        """Add what a round has cost; where dual steps are chosen automatically, allow more after they were too few."""
        steps_taken, most = int(so_far[0]) + work.steps, int(so_far[1])
        if self.dual_steps is None:
            # Near the solution no number is enough, since progress is no more than rounding: so on average few are.
            affordable = steps_taken + 2 * most <= MEAN_DUAL_STEPS * (k + 2)
            most = min(2 * most, MOST_DUAL_STEPS) if work.unsolved and affordable else DUAL_STEPS
        return np.array([steps_taken, most], dtype=np.int64)

    def estimate(self, before: Array, after: Array, difference: Array) -> Array:
        """Return ĝ, from the mean shift before and after the round and the mean difference that was sent."""
        return before + difference

    @property
    def can_certify(self) -> bool:
        return True

    def question(self, model: Model, state: State, *, fine: bool) -> Question:
        x = self.solution(state)[0]
        drift = state.drift if self.factor is None else state.drift * self.stretch
        dtype = model.dtype if fine else np.float32
        return Question(x.astype(dtype), self.lack(model, state).astype(dtype), drift)

    def lack(self, model: Model, state: State) -> Array:
        """What the mean of the shifts lacks to be −Bᵀv."""
        v = self.solution(state)[1]
        assert v is not None
        lack: Array = self.plain(state.shift) + model.linop.adjoint(v)
        return lack

    def slope_estimate(self, state: State) -> Array:
        return self.plain(state.slope)

    def answer(self, model: Model, local: LocalLosses, question: Question) -> Array:
        """N w_i f_i(x), and ‖∇f_i(x) − p_i‖²/2μ_i with p_i the shift less what all shifts lack.

        The p_i have the mean −Bᵀv, so f*(−Bᵀv) is at most the mean of f_i*(p_i), and f_i strongly convex with μ_i has
        f_i(x) + f_i*(p_i) ≤ ⟨x, p_i⟩ + ‖∇f_i(x) − p_i‖²/2μ_i.
        """
        gradients = local.gradients(question.x)
        points = self.plain(local.memory.shift) - question.lack
        sizes = to_host(norms(gradients) + norms(points)) + local.lipschitz() * float(np.linalg.norm(question.x))
        mismatch = to_host(norms(gradients - points)) + model.rounding * sizes
        mismatch = mismatch + float(question.drift[0])
        return np.stack([local.values(question.x), mismatch**2 / (2.0 * local.least_convexities())], axis=1)

    def conclude(self, model: Model, state: State, question: Question, answers: Array) -> tuple[float, float | None]:
        """F(x), and g(Bx) + g*(v) − ⟨Bx, v⟩ + the mean of the clients' parts.

        The p_i have the mean −Bᵀv but for an error e from rounding the question. Clients could take it on by their
        weights: then the mean of their parts is at most (√M + ‖e‖/√2μ)², with M that of what they have sent.
        """
        v = self.solution(state)[1]
        assert v is not None
        image = model.linop.apply(question.x.astype(model.dtype))
        value = model.penalty.value(image)
        if not np.isfinite(value):
            return np.inf, None
        error = float(np.linalg.norm(question.lack.astype(np.float64) - self.lack(model, state)))
        part = (math.sqrt(float(answers[1])) + error / math.sqrt(2.0 * self.convexity)) ** 2
        return float(answers[0]) + value, model.fenchel_gap(image, v) + part

    @property
    def stretch(self) -> float:
        """A bound of how much longer a gradient in x is than in u, from a sample."""
        sample = np.cos(np.arange(1.0, 1.0 + math.prod(self.factor.in_shape))).reshape(self.factor.in_shape)  # type: ignore[union-attr]
        return 10.0 * float(np.linalg.norm(self.plain(sample)) / np.linalg.norm(sample))

    def plain(self, slopes: Array) -> Array:
        """Gradients in x from gradients in the coordinates of the method."""
        return slopes if self.coordinates is None else self.coordinates.gradient(slopes)

    def solution(self, state: State) -> tuple[Array, Array | None]:
        return state.x if self.factor is None else self.factor.apply(state.x), state.v[0]

    def server_work(self, state: State) -> Work:
        return Work(int(state.work[0]))
