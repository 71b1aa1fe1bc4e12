"""FedAvg, federated averaging (Algorithm 1)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from fpdfp import steps
from fpdfp.methods._forms import Primal
from fpdfp.methods._local_sgd import LocalSGD, LocalSGDAlgorithm
from fpdfp.methods.base import Facts, Update
from fpdfp.methods.traits import Traits
from fpdfp.problem import LocalLosses
from fpdfp.rng import Draws


@dataclasses.dataclass(frozen=True)
class FedAvg(LocalSGD):
    """Federated averaging: τ steps of stochastic gradient descent at each client, then the mean of their models.

    ::

        server:          sends x_k to n clients S, drawn uniformly
        client i in S:   x_i,0 = x_k,   x_i,t+1 = x_i,t − γ_k ∇̃f_i(x_i,t)   for t = 0, …, τ − 1,   sends x_i,τ
        server:          x_k+1 = (1/n) Σ_S x_i,τ

    For clients of unequal weights w_i with sum 1, ``averaging="weighted"`` gives
    x_k+1 = x_k + (1/n) Σ_S N w_i (x_i,τ − x_k), which is Σ w_i x_i,τ where everyone takes part; ``"plain"`` keeps the
    plain mean, and client i descends on N w_i f_i. Both are the paper's algorithm for w_i = 1/N. (Weights with another
    sum W count as w_i/W, with W f_i for f_i.) It minimises f alone, and sends whole models: for compressed differences
    see :class:`FedPAQ`.

    McMahan et al. divide by the weights of those who take part, Σ_S w_i x_i,τ / Σ_S w_i. For everyone, or for equal
    weights, that is the same. Otherwise it is not Σ w_i x_i,τ on average over draws (with n = 1 all clients would count
    alike), so that the method would minimise another mean of the f_i; what is here is right on average, and the server
    need not be told the weights.

    What is proved: with τ = 1 it is stochastic gradient descent. For τ > 1 and clients that differ, its fixed point
    at a constant step is not the minimiser; for f strongly convex and steps of the order of 1/k,
    E f(x_k) − f* = O(τ²/k) (X. Li et al., "On the convergence of FedAvg on non-IID data", ICLR 2020).

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
        What to do with a penalty: ``"refuse"`` it, add a ``"subgradient"`` of g∘B to every gradient (FedAvg(∂) of
        Yuan et al. 2021), or ``"ignore"`` it and minimise f.

    References
    ----------
    B. McMahan, E. Moore, D. Ramage, S. Hampson and B. Agüera y Arcas, "Communication-efficient learning of deep
    networks from decentralized data", AISTATS (2017); Algorithm 1 of the FPDFP paper.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    >>> fpdfp.solve(problem, fpdfp.FedAvg(local_steps=5), rounds=3000).x.round(2)
    array([2.86, 2.93, 0.  , 0.07])
    """

    traits: ClassVar[Traits] = Traits(
        title="local SGD, mean of models",
        solves="f",
        sends=("x",),
        compression=False,
        compressed_form="FedPAQ",
        local_steps=True,
        proved="O(1/k) for f strongly convex and decreasing steps; biased at a constant step if τ > 1",
        reference="McMahan et al. 2017; Algorithm 1",
    )

    step: steps.Step = "auto"
    local_steps: int = 1
    batch_size: int | None = None
    averaging: Literal["weighted", "plain"] = "weighted"
    penalty: Literal["refuse", "subgradient", "ignore"] = "refuse"

    def prepare(self, facts: Facts) -> FedAvgAlgorithm:
        return FedAvgAlgorithm(self, facts.model, self.choose_step(facts))


@dataclasses.dataclass(frozen=True)
class FedAvgAlgorithm(LocalSGDAlgorithm):
    """Algorithm 1 of the paper."""

    method: FedAvg

    def client_update(self, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        x = self.descend(local, message.x, self.step(k), draws)
        if self.method.averaging == "weighted" and local.scaling is not None:
            x = message.x + self.weigh(local, x - message.x)
        return Update(Primal(x))

    def server_update(self, state: Primal, mean: Primal, k: int, count: int) -> Primal:
        return Primal(mean.x)
