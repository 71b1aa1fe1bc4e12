"""FedPAQ, federated averaging with quantized differences (Algorithm 2)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from fpdfp import steps
from fpdfp.methods._forms import Change, Primal
from fpdfp.methods._local_sgd import LocalSGD, LocalSGDAlgorithm
from fpdfp.methods.base import Facts, Update
from fpdfp.methods.traits import Traits
from fpdfp.problem import LocalLosses
from fpdfp.rng import Draws


@dataclasses.dataclass(frozen=True)
class FedPAQ(LocalSGD):
    """Federated periodic averaging with quantization: FedAvg whose clients send compressed differences.

    ::

        server:          sends x_k to n clients S, drawn uniformly
        client i in S:   x_i,0 = x_k,   x_i,t+1 = x_i,t − γ_k ∇̃f_i(x_i,t)   for t = 0, …, τ − 1
                         sends Q(x_i,τ − x_k)
        server:          x_k+1 = x_k + (1/n) Σ_S Q(x_i,τ − x_k)

    For clients of unequal weights w_i, ``averaging="weighted"`` sends Q(N w_i (x_i,τ − x_k)); with ``"plain"`` client
    i descends on N w_i f_i. It minimises f alone.

    What is proved: for f strongly convex, an unbiased Q, clients with identically distributed data and steps of the
    order of 1/k, E‖x_k − x*‖² = O(1/k) (Reisizadeh et al. 2020).

    Parameters
    ----------
    step
        γ_k: a number, a schedule of :mod:`fpdfp.steps`, or ``"auto"``.
    local_steps
        τ.
    batch_size
        The size of the mini-batches; None uses all samples.
    averaging
        ``"weighted"`` or ``"plain"``.
    penalty
        What to do with a penalty: ``"refuse"`` it, add a ``"subgradient"`` of g∘B to every gradient, or ``"ignore"``
        it and minimise f.

    References
    ----------
    A. Reisizadeh, A. Mokhtari, H. Hassani, A. Jadbabaie and R. Pedarsani, "FedPAQ: a communication-efficient
    federated learning method with periodic averaging and quantization", AISTATS (2020); Algorithm 2 of the FPDFP
    paper.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    >>> method = fpdfp.FedPAQ(local_steps=5)
    >>> fpdfp.solve(problem, method, rounds=2000, compressor=fpdfp.QSGD(levels=50)).x.round(1)
    array([2.9, 2.9, 0. , 0.1])
    """

    traits: ClassVar[Traits] = Traits(
        title="local SGD, mean of compressed differences",
        solves="f",
        sends=("x",),
        local_steps=True,
        proved="O(1/k) for f strongly convex, decreasing steps and clients with identically distributed data",
        reference="Reisizadeh et al. 2020; Algorithm 2",
    )

    step: steps.Step = "auto"
    local_steps: int = 1
    batch_size: int | None = None
    averaging: Literal["weighted", "plain"] = "weighted"
    penalty: Literal["refuse", "subgradient", "ignore"] = "refuse"

    def prepare(self, facts: Facts) -> FedPAQAlgorithm:
        return FedPAQAlgorithm(self, facts.model, self.choose_step(facts))


@dataclasses.dataclass(frozen=True)
class FedPAQAlgorithm(LocalSGDAlgorithm):
    """Algorithm 2 of the paper."""

    def client_update(self, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        change = self.descend(local, message.x, self.step(k), draws) - message.x
        return Update(Change(self.weigh(local, change)))
