"""ShiftedPDFP: the server alone keeps the dual, clients send compressed differences to a learned shift."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, NamedTuple

import numpy as np

from fpdfp import steps
from fpdfp._array import beside
from fpdfp._numbers import accelerate
from fpdfp._typing import Array
from fpdfp.losses.base import EPS, ROUNDINGS
from fpdfp.methods._forms import Difference, start_points, start_sums
from fpdfp.methods._preconditioned import DualBudget, PreconditionedMethod
from fpdfp.methods._shift_certificate import ShiftCertificate
from fpdfp.methods.base import Facts, Remembering, Traits, Update, WeightedMeans
from fpdfp.precondition import Preconditioner
from fpdfp.precondition.agreement import Wanted
from fpdfp.problem import LocalLosses
from fpdfp.rng import Draws, Purpose

#: Progress is smoothed with this weight of the past; when it exceeds the best so far by this factor, there is an alarm.
PAST, ALARM = 0.7, 64.0
#: Before the shifts are learned progress says less, and so much more is allowed.
LOOSE = 16.0
#: A step grows by at most GROWTH in a round, up to LARGEST times where it began, and to SAFE over the curvature seen,
#: which is forgotten at the rate FORGET.
GROWTH, LARGEST, SAFE, FORGET = 2.0, 8.0, 0.8, 0.8


class Momentum(NamedTuple):
    """The momentum of FISTA, with a largest value.

    It is restarted where it points uphill (B. O'Donoghue and E. Candès, "Adaptive restart for accelerated gradient
    schemes", Foundations of Computational Mathematics 15, 2015).
    """

    theta: float
    largest: float

    def restart(self) -> Momentum:
        """Begin anew."""
        return Momentum(1.0, self.largest)

    def advance(self, moved: Array, step: Array) -> tuple[float, Momentum]:
        """Return β for z⁺ = x + β·step after a round that went from z to x = z − moved, with step = x − x_before."""
        theta = 1.0 if float(np.vdot(moved, step)) > 0 else self.theta
        beta, following = accelerate(theta)
        return min(beta, self.largest), Momentum(following, self.largest)


class StepControl(NamedTuple):
    """The factor of a step, by the curvature that gradients show and by the progress of the run.

    Attributes
    ----------
    cut
        The factor by which alarms have shortened the step.
    smoothed, least
        Squared progress ‖z − x‖²/γ², smoothed over rounds, and its least.
    growth
        The factor by which the step has grown.
    curvature
        The curvature seen lately.
    """

    cut: float = 1.0
    smoothed: float = np.inf
    least: float = np.inf
    growth: float = 1.0
    curvature: float = 0.0

    @property
    def factor(self) -> float:
        """The factor of the step."""
        return self.cut * self.growth

    def grow(self, moved: Array, turned: Array, gamma: float) -> StepControl:
        """Return the control with a step that fits the curvature which gradients at two points show.

        For f convex with an L-Lipschitz gradient, ‖∇f(z) − ∇f(z')‖² ≤ L⟨∇f(z) − ∇f(z'), z − z'⟩. The least such L, as
        far as the last rounds know it, takes the place of the bound that γ was chosen from. Noise makes it look larger.
        """
        product = float(np.vdot(moved, turned))
        seen = float(np.vdot(turned, turned)) / product if product > 0 else 1.0 / gamma
        curvature = max(seen, FORGET * self.curvature)
        growth = max(1.0, min(GROWTH * self.growth, LARGEST, SAFE / (curvature * gamma)))
        return self._replace(growth=growth, curvature=curvature)

    def watch(self, moved: Array, gamma: float, learned: bool) -> tuple[bool, StepControl]:
        """Return whether there is an alarm, and the control after a round; an alarm halves the step for good.

        There is one when ‖z − x‖/γ, smoothed over rounds, has grown to eight times its least since the shifts were
        ``learned``, or to thirty times its least before.
        """
        progress = float(np.vdot(moved, moved)) / gamma**2
        smoothed = progress if self.smoothed == np.inf else PAST * self.smoothed + (1.0 - PAST) * progress
        least = min(self.least, smoothed if learned else LOOSE * smoothed)
        if smoothed > ALARM * least:
            return True, StepControl(self.cut / 2.0, smoothed, smoothed, 1.0, self.curvature)
        return False, self._replace(smoothed=smoothed, least=least)


class ShiftedState(NamedTuple):
    """The iterate, the point where gradients are taken, the dual, and the mean of the clients' shifts.

    ``last`` and ``slope`` are the point and the estimated gradient of the round before; ``momentum``, ``control`` and
    ``work`` hold a :class:`Momentum`, a :class:`StepControl` and a :class:`DualBudget`; ``drift`` bounds what rounding
    may have done to the mean of the shifts. Where there is a preconditioner, points and gradients are in its
    coordinates.
    """

    x: Array
    z: Array
    v: Array
    shift: Array
    last: Array
    slope: Array
    momentum: Array
    control: Array
    work: Array
    drift: Array


class ShiftedMessage(NamedTuple):
    """The message of the server: the point at which gradients are wanted, in the coordinates of the preconditioner."""

    z: Array


class ShiftMemory(NamedTuple):
    """The memory of a client: its shift h_i."""

    shift: Array


class BatchMemory(NamedTuple):
    """The memory of a client with mini-batches: its shift, a point w_i, ∇f_i(w_i), and whether there is one yet."""

    shift: Array
    point: Array
    slope: Array
    known: Array


@dataclasses.dataclass(frozen=True)
class ShiftedPDFP(PreconditionedMethod):
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
    (loopless SVRG). With probability p it computes the full gradient and remembers it with its point w_i, otherwise it
    takes ∇f_batch(z_k) − ∇f_batch(w_i) + ∇f_i(w_i).

    The momentum β_k is FISTA's, restarted where it points uphill. An automatic γ grows, up to eight times, where
    the estimated gradients of successive rounds show less curvature than L. When ‖z_k − x_k+1‖/γ, smoothed over rounds,
    has grown to eight times its least since the shifts were first learned, γ is halved for good and the momentum is
    restarted.

    What is proved. Without momentum, let γ ≤ 1/(L_max(1 + 6ζ + 6ω/n)) with ζ = (N − n)/(n(N − 1)), and α = 1/(1 + ω).
    Let Q be unbiased with E‖Q(x) − x‖² ≤ ω‖x‖², f_i convex and f strongly convex. Convergence is linear if BBᵀ is
    positive definite (one dual step) or if the prox of g∘B is exact. The proof is in ``docs/mathematics.md``, also for
    clients drawn with unequal probabilities p_i, where ĝ = h̄ + (1/N) Σ_S m_i/p_i. ``"auto"`` takes γ = 1/(L +
    2L̄ω'/N), ω' = (1 + ω)N/n − 1, with L of f, L̄ = ΣL_i²/ΣL_i of the clients. It takes the typical error of Q for ω,
    which for a quantizer is far below the bound. Nothing is proved with that, with momentum, with inexact proxes, with
    mini-batches, with a compressed downlink, or for other B.

    Parameters
    ----------
    step
        γ: a number or ``"auto"``.
    dual_steps
        The most dual steps that the server takes in a round; it stops when they no longer matter. By default 20 for up
        to some hundred features. Where they were too few, semismooth Newton steps follow, also in the coordinates of a
        preconditioner of up to 1,000 features (645 where B is not the identity). Otherwise 100, and twice as many
        after every round in which they were too few, up to 3,200 and to 400 on average.
    preconditioner
        Coordinates to work in, x = S u: a :class:`fpdfp.precondition.Preconditioner`; ``"moments"``, the inverse of a
        bound of the Hessian, from second moments that clients send once (d(d + 1)/2 numbers, counted apart);
        ``"diagonal"``, from its diagonal (d numbers); :class:`fpdfp.precondition.QuantizedMoments`, the same from some
        clients in few bits; :class:`fpdfp.precondition.LowRank`, for many features; ``"fourier"``, for images, from the
        clients' responses to one impulse (d numbers); ``"auto"``, what the losses allow and ``prefer`` of
        :func:`fpdfp.solve` says, if it is predicted to pay; or None, the
        default where the method is given by name. With S, clients send Q(Sᵀ∇f_i − h_i).
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
        constant_step=True,
        sends=("difference",),
        unequal_sampling=True,
        downlink=True,
        proved="without momentum: linear for f strongly convex if BBᵀ is positive definite or the prox of g∘B exact",
        reference="Mishchenko et al. 2019; Salim et al. 2022; Condat and Richtárik 2023",
    )
    #: Whether an automatic step may grow.
    may_grow: ClassVar[bool] = True
    #: Whether the server takes its mean shift after the round for the gradient, as with error feedback.
    feedback: ClassVar[bool] = False

    step: steps.Step = "auto"
    dual_steps: int | None = None
    preconditioner: Wanted = None
    momentum: bool = True
    shift_step: float | None = None
    batch_size: int | None = None
    refresh: float | None = None

    def prepare(self, facts: Facts) -> ShiftedAlgorithm:
        constants = facts.constants
        return ShiftedAlgorithm(
            self,
            facts.model,
            step=steps.resolve_constant(self.step, 1.0 / self.noisy_smoothness(constants)),
            coordinates=facts.agreement.coordinates,
            chosen=facts.agreement.reason,
            shift_step=self.choose_shift_step(constants) if self.shift_step is None else self.shift_step,
            convexity=constants.least_convexity,
            n_clients=constants.n_clients,
            warm_up=self.rounds_to_learn(constants),
            adaptive=self.may_grow and isinstance(self.step, str),
        )

    def noisy_smoothness(self, constants: steps.Constants) -> float:
        """L + 2L̄ω'/N, and what mini-batches and the downlink add."""
        omega, drawn = constants.typical_omega, constants.drawn
        spread = (1.0 + omega) * constants.n_clients / constants.clients_per_round - 1.0
        noise = constants.client_spread * spread / constants.n_clients
        if drawn is not None:
            noise = (1.0 + omega) * drawn.spread - constants.client_spread / constants.n_clients
        smoothness = (constants.lipschitz_mean or 1.0) + 2.0 * noise
        smoothness += 2.0 * (1.0 + omega) * constants.batch_smoothness / constants.clients_per_round
        return smoothness * (1.0 + 2.0 * constants.downlink_omega)

    def choose_shift_step(self, constants: steps.Constants) -> float:
        """Return α where it is not given."""
        return steps.shift_step(constants.typical_omega, constants.omega)

    def rounds_to_learn(self, constants: steps.Constants) -> int:
        """The number of rounds that the shifts take to be of use: until then progress says nothing."""
        alpha = self.choose_shift_step(constants)
        if constants.drawn is not None:
            return math.ceil(2.0 * constants.drawn.wait / alpha)
        return math.ceil(2.0 * constants.n_clients / (alpha * constants.clients_per_round))


@dataclasses.dataclass(frozen=True)
class ShiftedAlgorithm(ShiftCertificate, Remembering):
    """The algorithm of :class:`ShiftedPDFP`, in the coordinates u of its preconditioner, x = S u.

    Attributes
    ----------
    coordinates, chosen
        The preconditioner, and why it was chosen.
    shift_step
        α.
    convexity
        The mean over clients of the constants with which N w_i f_i are strongly convex, for the certificate.
    n_clients
        N.
    warm_up
        The rounds after which shifts are of use.
    adaptive
        Whether the step may grow.
    """

    shared_memory: ClassVar[tuple[str, ...]] = ("shift",)
    double: ClassVar[tuple[str, ...]] = ("difference",)

    method: ShiftedPDFP
    shift_step: float
    convexity: float
    n_clients: int
    warm_up: int
    adaptive: bool

    def for_sites(self) -> ShiftedAlgorithm:
        # The preconditioner is sent once, as coordinates.
        return dataclasses.replace(self, method=dataclasses.replace(self.method, preconditioner=None), chosen="")

    def init(self, x0: Array) -> ShiftedState:
        model = self.model
        u0 = x0 if self.coordinates is None else self.coordinates.coordinates(x0)
        v = model.xp.zeros((1, *model.dual_shape), dtype=x0.dtype)
        shift = model.xp.zeros(u0.shape, dtype=np.float64)
        momentum = np.array(Momentum(1.0, 1.0 if self.method.momentum else 0.0))
        return ShiftedState(
            u0, u0, v, shift, u0, np.zeros_like(u0), momentum, np.array(StepControl()), self.prox.start().pack(),
            np.zeros(1),
        )  # fmt: skip

    def init_memory(self, n_clients: int) -> ShiftMemory | BatchMemory:
        shift = start_sums(self.model, n_clients)
        if self.method.batch_size is None:
            return ShiftMemory(shift)
        point, slope = start_points(self.model, n_clients), start_points(self.model, n_clients)
        return BatchMemory(shift, point, slope, np.zeros(n_clients, dtype=bool))

    def broadcast(self, state: ShiftedState) -> ShiftedMessage:
        return ShiftedMessage(state.z)

    def client_update(self, local: LocalLosses, message: ShiftedMessage, k: int, draws: Draws) -> Update:
        # m_i = ∇f_i(z) − h_i
        z = message.z if self.factor is None else self.factor.apply(message.z)
        method = self.method
        if method.batch_size is None:
            gradients, memory = local.gradients(z), local.memory
        else:
            gradients, memory = reduce_variance(local, z, method.batch_size, method.refresh, draws)
        if self.factor is not None:
            gradients = self.factor.adjoint(gradients)
        return Update(Difference((gradients - memory.shift).astype(self.model.dtype, copy=False)), memory)

    def remember(self, shared: dict[str, Array], sent: Difference, k: int) -> dict[str, Array]:
        # h_i ← h_i + α m_i
        after = self.shift_step * sent.difference.astype(np.float64, copy=False)
        after += shared["shift"]
        return {"shift": after}

    def server_update(self, state: ShiftedState, mean: Difference, k: int, count: int) -> ShiftedState:
        return self._advance(state, k, *self.estimate_gradient(state, mean.difference, mean.difference, count))

    def weighted_update(self, state: ShiftedState, means: WeightedMeans, k: int, count: int) -> ShiftedState:
        weighted, plain = means.weighted.difference, means.plain.difference
        return self._advance(state, k, *self.estimate_gradient(state, weighted, plain, count))

    def _advance(self, state: ShiftedState, k: int, estimate: Array, shift: Array, drift: Array) -> ShiftedState:
        momentum, control = Momentum(*state.momentum.tolist()), StepControl(*state.control.tolist())
        budget = DualBudget(*state.work.tolist())
        if self.adaptive and k > 0:
            control = control.grow(state.z - state.last, estimate - state.slope, self.step(0))
        gamma = self.step(0) * control.factor
        x, v, work = self.prox.apply(state.z - gamma * estimate, gamma, state.v, state.z, budget.most)
        moved, change = state.z - x, x - state.x
        alarm, control = control.watch(moved, gamma, learned=k >= self.warm_up)
        beta, momentum = (momentum.restart() if alarm else momentum).advance(moved, change)
        z = x + beta * change
        return ShiftedState(
            x, z, v, shift, state.z, estimate, np.array(momentum), np.array(control),
            self.prox.allow(budget, work, k).pack(), drift,
        )  # fmt: skip

    def estimate_gradient(
        self, state: ShiftedState, weighted: Array, plain: Array, count: int
    ) -> tuple[Array, Array, Array]:
        """Return ĝ, the mean shift after the round, and what rounding may have done to that."""
        # ĝ = h̄ + (weighted) mean of m_i over those who answered,   h̄ ← h̄ + (α/N) Σ m_i
        shift = state.shift + self.shift_step * count / self.n_clients * plain
        estimate = shift if self.method.feedback else state.shift + weighted
        rounding = EPS * float(np.linalg.norm(shift))
        return estimate.astype(self.model.dtype, copy=False), shift, state.drift + ROUNDINGS * rounding

    def solution(self, state: ShiftedState) -> tuple[Array, Array | None]:
        x, v = state.x, state.v[0]
        if self.coordinates is None:
            return x, v
        x = self.coordinates.factor.apply(x)
        return self._settle(state, x, v, self.coordinates) if self.model.linop.is_identity else x, v

    def _settle(self, state: ShiftedState, x: Array, v: Array, coordinates: Preconditioner) -> Array:
        """Return x with zeros where v states it: other coordinates leave none.

        Only where that lowers the objective, by the estimated gradient and the smoothness that the step was chosen by.
        v may be far from its limit, and before the first round it has no meaning.
        """
        penalty, known = self.model.penalty, bool(state.slope.any())
        settled = penalty.settle(x, v) if known else x
        if settled is x:
            return x
        change = coordinates.coordinates(settled - x)
        smooth = float(np.vdot(state.slope, change)) + float(np.vdot(change, change)) / (2.0 * self.step(0))
        return settled if smooth + penalty.value(settled) - penalty.value(x) <= 0 else x


def reduce_variance(
    local: LocalLosses, z: Array, batch_size: int, refresh: float | None, draws: Draws
) -> tuple[Array, BatchMemory]:
    """Return the estimates of the clients' gradients at z, and what they remember after the round.

    ::

        with probability p:   ∇f_i(z), and w_i ← z
        otherwise:            ∇f_batch(z) − ∇f_batch(w_i) + ∇f_i(w_i)

    (D. Kovalev, S. Horváth and P. Richtárik, "Don't jump through hoops and remove those loops: SVRG and Katyusha are
    better without the outer loop", ALT 2020.) Without ``refresh`` p is the batch's share of the client's samples. A
    client that takes part for the first time has no w_i, and computes the full gradient.
    """
    memory: BatchMemory = local.memory
    sizes = local.losses.sizes[local.clients]
    chance = np.minimum(batch_size / sizes, 1.0) if refresh is None else np.full(len(sizes), refresh)
    coins = draws.words(Purpose.REFRESH, 1)[:, 0] / 2.0**32
    full = ~memory.known | (coins < chance)
    estimates = np.empty_like(memory.slope)
    if full.any():
        whole = local._replace(clients=local.clients[full])
        estimates[full] = whole.gradients(z)
    part = ~full
    if part.any():
        some, draw = local._replace(clients=local.clients[part]), draws._replace(clients=draws.clients[part])
        there = some.gradients(memory.point[part], batch_size, draw)
        estimates[part] = some.gradients(z, batch_size, draw) - there + memory.slope[part]
    wide = beside(full.reshape(-1, *[1] * z.ndim), z)
    point, slope = np.where(wide, z, memory.point), np.where(wide, estimates, memory.slope)
    return estimates, BatchMemory(memory.shift, point, slope, np.ones_like(full))
