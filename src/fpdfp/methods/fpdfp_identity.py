"""FPDFP for B = I (Algorithm 5)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from fpdfp import steps
from fpdfp.methods._forms import Change, Primal, PrimalAlgorithm
from fpdfp.methods._parameters import largest_local_step, local_schedule
from fpdfp.methods.base import Facts, Method, Update
from fpdfp.methods.traits import Traits
from fpdfp.problem import LocalLosses
from fpdfp.rng import Draws


@dataclasses.dataclass(frozen=True)
class FPDFPIdentity(Method):
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
    step
        γ_k: a number, a schedule of :mod:`fpdfp.steps`, or ``"auto"``.
    batch_size
        The size of the mini-batches; None uses all samples.
    local_steps
        τ, the steps that a client takes in a round; 1 in the paper.

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
        schedule = local_schedule(self.step, self.batch_size, self.local_steps, facts.constants)
        return IdentityAlgorithm(self, facts.model, schedule)

    def largest_step(self, facts: Facts) -> float:
        return largest_local_step(facts.constants, self.local_steps)


@dataclasses.dataclass(frozen=True)
class IdentityAlgorithm(PrimalAlgorithm):
    """Algorithm 5 of the paper, for :class:`FPDFP` and :class:`FPDFPIdentity`."""

    def client_update(self, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        gamma, x = self.step(k), message.x
        for t in range(self.method.local_steps or 1):
            gradients = local.gradients(x, self.method.batch_size, draws.at(t))
            x = self.model.penalty.prox(x - gamma * gradients, gamma)
        return Update(Change(x - message.x))
