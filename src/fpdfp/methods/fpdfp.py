"""FPDFP, the federated primal-dual fixed point method: Algorithm 4, and Algorithm 5 for B = I."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from fpdfp import steps
from fpdfp._typing import Shape
from fpdfp.methods._forms import LocalMethod, Primal, PrimalAlgorithm, PrimalDual, PrimalDualAlgorithm, choose_lambda
from fpdfp.methods.base import Algorithm, Facts, Traits, Update, WeightedMeans
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Draws


@dataclasses.dataclass(frozen=True)
class FPDFP(LocalMethod):
    """The federated primal-dual fixed point method.

    ::

        server:          sends x_k, v_k to n clients S, drawn uniformly
        client i in S:   x_i = x_k, v_i = v_k, then τ times (in the paper once)
                         x½    = x_i − γ_k ∇̃f_i(x_i)
                         v_i   = prox_{(λ/γ_k) g*}( (λ/γ_k) B x½ + (I − λBBᵀ) v_i )
                         x_i   = x½ − γ_k Bᵀ v_i
                         sends Q(x_i − x_k) and Q(v_i)
        server:          x_k+1 = x_k + (1/n) Σ_S Q(x_i − x_k)
                         v_k+1 = (1/n) Σ_S Q(v_i)

    where ∇̃f_i is the gradient over a random mini-batch, or over all samples. Where B is the identity and λ is 1 or not
    given, ``prepare`` returns Algorithm 5 (see :class:`FPDFPIdentity`), and no dual is sent. For clients drawn with
    unequal probabilities p_i, the server takes x_k + (1/N) Σ_S Q(x_i − x_k)/p_i and v_k + (1/N) Σ_S (Q(v_i) − v_k)/p_i.

    What is proved, for τ = 1. Let f be strongly convex, Q unbiased, and variances and dual iterates bounded. Then
    liminf E‖x_k − x*‖² = 0 for decreasing steps with infinite sum and finite sum of squares (Theorem 1). If B has full
    row rank, E‖x_k − x*‖² = O(1/k) for γ_k = 2/(D₁k + 1), 0 < D₁ < 2μ (Theorem 2). At a constant step the iterates stop
    short of the solution, at a mean-square distance of the order of γ. Each client pushes its own gradient through a
    nonlinear prox, and the noise of Q(v) does not vanish.

    For τ > 1 nothing is proved; the paper leaves it to future work. What can be said: at one client with full
    gradients and no compressor, τ local steps are τ steps of PDFP, and so converge. For clients that differ, local
    steps drift towards each client's own solution, so that at a constant step the iterates settle farther away the
    larger τ is. With falling steps the drift within a round, of the order of (γ_k τ)², falls faster than the
    progress, of the order of γ_k τ.

    Parameters
    ----------
    step
        γ_k: a number, a schedule of :mod:`fpdfp.steps`, or ``"auto"``.
    batch_size
        The size of the mini-batches; None uses all samples.
    lam
        λ; by default 1/ρ_max(BBᵀ).
    local_steps
        τ, the steps that a client takes in a round; 1 in the paper.

    References
    ----------
    Y.-N. Zhu, J. Liang and X. Zhang, "Federated primal dual fixed point algorithm", SIAM Journal on
    Mathematics of Data Science (2024), Algorithm 4.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(4))
    >>> result = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=2000, clients_per_round=1, compressor=fpdfp.QSGD(levels=50))
    >>> result.x.round(2)
    array([2.75, 2.75, 0.18, 0.18])
    """

    traits: ClassVar[Traits] = Traits(
        title="federated primal-dual fixed point method",
        solves="f + g∘B",
        sends=("x", "v"),
        uplink="d + m",
        unequal_sampling=True,
        local_steps=True,
        proved="for τ = 1 and f strongly convex: liminf E‖x_k − x*‖² = 0, and O(1/k) if B has full row rank; "
        "nothing for τ > 1",
        reference="Zhu, Liang and Zhang 2024; Algorithm 4",
    )

    step: steps.Step = "auto"
    batch_size: int | None = None
    lam: float | None = None
    local_steps: int = 1

    def sends_dual(self, model: Model) -> bool:
        """Whether Algorithm 4 runs; where B = I and λ = 1 it is Algorithm 5, which has no dual variable."""
        return not (model.linop.is_identity and self.lam in (None, 1.0))

    def reply_shapes(self, model: Model) -> dict[str, Shape]:
        return {"x": model.shape} | ({"v": model.dual_shape} if self.sends_dual(model) else {})

    def prepare(self, facts: Facts) -> Algorithm:
        model, schedule = facts.model, self.schedule(facts.constants)
        if not self.sends_dual(model):
            return IdentityAlgorithm(self, model, schedule)
        return FPDFPAlgorithm(self, model, schedule, choose_lambda(self.lam, model))


@dataclasses.dataclass(frozen=True)
class FPDFPAlgorithm(PrimalDualAlgorithm):
    """Algorithm 4 of the paper, line by line; ``lam`` is λ."""

    method: FPDFP
    lam: float

    def broadcast(self, state: PrimalDual) -> PrimalDual:
        return state

    def client_update(self, local: LocalLosses, message: PrimalDual, k: int, draws: Draws) -> Update:
        gamma, lam = self.step(k), self.lam
        x, v = message
        for t in range(self.method.local_steps):
            gradients = local.gradients(x, self.method.batch_size, draws.at(t))
            # Line 7: x½ = x − γ ∇̃f_i(x), line 8: v = prox_{(λ/γ) g*}( (λ/γ) B x½ + (I − λBBᵀ) v ),
            # and line 9: x = x½ − γ Bᵀ v
            x, v = self.model.pdfp_step(x, gradients, v, gamma, lam / gamma)
        return Update(PrimalDual(x - message.x, v))

    def server_update(self, state: PrimalDual, mean: PrimalDual, k: int, count: int) -> PrimalDual:
        return PrimalDual(state.x + mean.x, mean.v)

    def weighted_update(self, state: PrimalDual, means: WeightedMeans, k: int, count: int) -> PrimalDual:
        # v_k+1 is right in expectation with or without the last term, which takes the noise of the weights from v_k.
        mean = means.weighted
        return PrimalDual(state.x + mean.x, mean.v + (1.0 - means.weight) * state.v)


@dataclasses.dataclass(frozen=True)
class FPDFPIdentity(LocalMethod):
    """The federated primal-dual fixed point method where B is the identity: no dual variable is sent.

    ::

        server:          sends x_k to n clients S, drawn uniformly
        client i in S:   x_i = x_k, then τ times (in the paper once)
                         x_i = prox_{γ_k g}( x_i − γ_k ∇̃f_i(x_i) )
                         sends Q(x_i − x_k)
        server:          x_k+1 = x_k + (1/n) Σ_S Q(x_i − x_k)

    With λ = 1, Moreau's identity turns a step of Algorithm 4 into this one, and :class:`FPDFP` runs it where B = I. It
    is :class:`FedMiD` with a server step of 1 and no prox on the server. What is proved, for τ = 1, is what holds for
    FPDFP; B = I has full row rank.

    Parameters
    ----------
    step, batch_size, local_steps
        As for :class:`FPDFP`.

    References
    ----------
    Y.-N. Zhu, J. Liang and X. Zhang, "Federated primal dual fixed point algorithm", SIAM Journal on
    Mathematics of Data Science (2024), Algorithm 5 and Remark 1.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1))
    >>> result = fpdfp.solve(problem, fpdfp.FPDFPIdentity(), rounds=2000, compressor=fpdfp.QSGD(levels=50))
    >>> result.x.round(2)
    array([2.57, 2.64, 0.  , 0.  ])
    """

    traits: ClassVar[Traits] = Traits(
        title="FPDFP for B = I: proximal gradient steps at the clients",
        solves="f + g",
        sends=("x",),
        unequal_sampling=True,
        local_steps=True,
        proved="for τ = 1 and f strongly convex: O(1/k); nothing for τ > 1",
        reference="Zhu, Liang and Zhang 2024; Algorithm 5",
    )

    step: steps.Step = "auto"
    batch_size: int | None = None
    local_steps: int = 1

    def prepare(self, facts: Facts) -> IdentityAlgorithm:
        return IdentityAlgorithm(self, facts.model, self.schedule(facts.constants))


@dataclasses.dataclass(frozen=True)
class IdentityAlgorithm(PrimalAlgorithm):
    """Algorithm 5 of the paper, for :class:`FPDFP` and :class:`FPDFPIdentity`."""

    def client_update(self, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        gamma, x = self.step(k), message.x
        for t in range(self.method.local_steps or 1):
            gradients = local.gradients(x, self.method.batch_size, draws.at(t))
            x = self.model.penalty.prox(x - gamma * gradients, gamma)
        return Update(Primal(x - message.x))
