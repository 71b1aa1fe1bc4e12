"""FedSGD: one gradient step a round, on the server."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from fpdfp import steps
from fpdfp.methods._forms import Gradient, Primal, PrimalAlgorithm
from fpdfp.methods._parameters import gradients_are_noisy
from fpdfp.methods._smooth import SmoothAlgorithm, SmoothMethod
from fpdfp.methods.base import Facts, Update
from fpdfp.methods.traits import Traits
from fpdfp.problem import LocalLosses
from fpdfp.rng import Draws


@dataclasses.dataclass(frozen=True)
class FedSGD(SmoothMethod):
    """Distributed synchronous stochastic gradient descent.

    ::

        server:          sends x_k to n clients S, drawn uniformly
        client i in S:   sends Q(∇̃f_i(x_k))
        server:          x_k+1 = x_k − γ_k (1/n) Σ_S Q(∇̃f_i(x_k))

    It minimises f alone: there is no prox.

    What is proved: with everyone, full gradients and no compressor it is gradient descent, which converges for
    γ < 2/L, linearly for f strongly convex. With noise, E f(x_k) − f* = O(1/k) for f strongly convex and steps of
    the order of 1/k (for instance Gower et al., ICML 2019).

    Parameters
    ----------
    step
        γ_k: a number, a schedule of :mod:`fpdfp.steps`, or ``"auto"``.
    batch_size
        The size of the mini-batches; None uses all samples.
    penalty
        What to do with a penalty: ``"refuse"`` it, have the server add a ``"subgradient"`` of g∘B to the mean
        gradient, or ``"ignore"`` it and minimise f.

    References
    ----------
    J. Chen, X. Pan, R. Monga, S. Bengio and R. Jozefowicz, "Revisiting distributed synchronous SGD",
    arXiv:1604.00981 (2016).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1])
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    >>> fpdfp.solve(problem, fpdfp.FedSGD(), rounds=200).x.round(2)
    array([4. , 4.1, 0. , 0.1])
    """

    traits: ClassVar[Traits] = Traits(
        title="gradient descent, one gradient a round",
        solves="f",
        sends=("gradient",),
        unequal_sampling=True,
        proved="linear rate without noise, O(1/k) with noise, for f strongly convex",
        reference="Chen et al. 2016",
    )

    step: steps.Step = "auto"
    batch_size: int | None = None
    penalty: Literal["refuse", "subgradient", "ignore"] = "refuse"

    def prepare(self, facts: Facts) -> FedSGDAlgorithm:
        noisy = gradients_are_noisy(self.batch_size, facts.constants) or self.uses_subgradients(facts.model)
        return FedSGDAlgorithm(self, facts.model, steps.resolve(self.step, facts.constants, noisy=noisy))


@dataclasses.dataclass(frozen=True)
class FedSGDAlgorithm(SmoothAlgorithm, PrimalAlgorithm):
    """A gradient step on the server."""

    def client_update(self, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        return Update(Gradient(local.gradients(message.x, self.method.batch_size, draws)))

    def server_update(self, state: Primal, mean: Gradient, k: int, count: int) -> Primal:
        return Primal(state.x - self.step(k) * (mean.gradient + self.slope(state.x)))
