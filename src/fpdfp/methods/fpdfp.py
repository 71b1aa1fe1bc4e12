"""FPDFP, the federated primal-dual fixed point method (Algorithm 4)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

from fpdfp import steps
from fpdfp._typing import Array, Shape
from fpdfp.methods._common import (
    check_hyper_parameters,
    choose_within,
    largest_local_step,
    local_schedule,
    mean,
)
from fpdfp.methods._forms import PrimalDual
from fpdfp.methods._pdfp_step import pdfp_step
from fpdfp.methods.base import Method, Update
from fpdfp.methods.fpdfp_identity import FPDFPIdentity
from fpdfp.methods.traits import Traits
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Draws


class Reply(NamedTuple):
    """What a client sends: the change of its primal variable, and its dual variable."""

    x: Array
    v: Array


@dataclasses.dataclass(frozen=True)
class FPDFP(Method):
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

    where ∇̃f_i is the gradient over a random mini-batch, or over all samples. Where B is the identity,
    Algorithm 5 (:class:`FPDFPIdentity`) runs instead, and no dual is sent.

    What is proved, for τ = 1: for f strongly convex, an unbiased Q, bounded variances and bounded dual iterates,
    liminf E‖x_k − x*‖² = 0 for decreasing steps with infinite sum and finite sum of squares (Theorem 1), and
    E‖x_k − x*‖² = O(1/k) for γ_k = 2/(D₁k + 1), 0 < D₁ < 2μ, if B has full row rank (Theorem 2). At a constant
    step the iterates stop short of the solution, at a mean-square distance of the order of γ: each client pushes
    its own gradient through a nonlinear prox, and the noise of Q(v) does not vanish.

    For τ > 1 nothing is proved; the paper leaves it to future work. What can be said: at one client with full
    gradients and no compressor, τ local steps are τ steps of PDFP, and so converge. For clients that differ, local
    steps drift towards each client's own solution, so that at a constant step the iterates settle farther away the
    larger τ is; with falling steps the drift within a round, of the order of (γ_k τ)², falls faster than the
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
        local_steps=True,
        proved="for τ = 1 and f strongly convex: liminf E‖x_k − x*‖² = 0, and O(1/k) if B has full row rank; "
        "nothing for τ > 1",
        reference="Zhu, Liang and Zhang 2024; Algorithm 4",
    )

    step: steps.Step = "auto"
    batch_size: int | None = None
    lam: float | None = None
    local_steps: int = 1

    def __post_init__(self) -> None:
        check_hyper_parameters(self)

    def specialise(self, model: Model) -> Method:
        if model.linop.is_identity and self.lam in (None, 1.0):
            return FPDFPIdentity(self.step, self.batch_size, self.local_steps)
        return self

    def prepare(self, model: Model, constants: steps.Constants) -> FPDFP:
        schedule = local_schedule(self.step, self.batch_size, self.local_steps, constants)
        return dataclasses.replace(
            self, step=schedule, lam=choose_within("lam", self.lam, model.largest_lambda, "1/ρ_max(BBᵀ)")
        )

    def largest_step(self, model: Model, constants: steps.Constants) -> float:
        return largest_local_step(constants, self.local_steps)

    def reply_shapes(self, model: Model) -> dict[str, Shape]:
        return {"x": model.shape, "v": model.dual_shape}

    def init(self, model: Model, x0: Array) -> PrimalDual:
        return PrimalDual(x0, model.xp.zeros(model.dual_shape, dtype=x0.dtype))

    def broadcast(self, model: Model, state: PrimalDual) -> PrimalDual:
        return state

    def client_update(self, model: Model, local: LocalLosses, message: PrimalDual, k: int, draws: Draws) -> Update:
        assert self.lam is not None
        gamma = self.schedule()(k)
        x, v = message
        for t in range(self.local_steps):
            gradients = local.gradients(x, self.batch_size, draws.at(t))
            x, v = pdfp_step(model, x, v, gradients, gamma, self.lam)
        return Update(Reply(x - message.x, v))

    def server_update(self, model: Model, state: PrimalDual, reply: Reply, k: int) -> PrimalDual:
        return PrimalDual(state.x + mean(reply.x), mean(reply.v))

    def solution(self, state: PrimalDual) -> tuple[Array, Array | None]:
        return state.x, state.v
