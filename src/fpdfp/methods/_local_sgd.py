"""The local steps that FedAvg, FedPAQ and FedProx share."""

from __future__ import annotations

from fpdfp import steps
from fpdfp._typing import Array
from fpdfp.methods._forms import PrimalAlgorithm
from fpdfp.methods._parameters import gradients_are_noisy, is_noisy, largest_local_step
from fpdfp.methods._smooth import SmoothAlgorithm, SmoothMethod
from fpdfp.methods.base import Facts
from fpdfp.problem import LocalLosses
from fpdfp.rng import Draws


class LocalSGD(SmoothMethod):
    """A method whose clients take τ steps of stochastic gradient descent on their own."""

    averaging: str

    def smoothness(self, constants: steps.Constants) -> float:
        """The largest smoothness of what a client minimises."""
        return constants.own_lipschitz_max if self.averaging == "weighted" else constants.lipschitz_max

    def choose_step(self, facts: Facts) -> steps.Schedule:
        """Return γ_k for what the user gave."""
        constants, tau = facts.constants, self.local_steps
        differ = is_noisy if tau > 1 else gradients_are_noisy
        noisy = differ(self.batch_size, constants) or self.uses_subgradients(facts.model)
        smoothness = self.smoothness(constants)
        return steps.resolve(self.step, constants, noisy=noisy, local_steps=tau, local_smoothness=smoothness)

    def largest_step(self, facts: Facts) -> float:
        return largest_local_step(facts.constants, self.local_steps, smoothness=self.smoothness(facts.constants))


class LocalSGDAlgorithm(SmoothAlgorithm, PrimalAlgorithm):
    """The algorithm of such a method, but for what clients send."""

    method: LocalSGD

    def weigh(self, local: LocalLosses, change: Array) -> Array:
        """Return what a client's change counts for in the mean: N w_i / W of it, or all of it."""
        return local.weigh(change, local.total) if self.method.averaging == "weighted" else change

    def gradients(self, local: LocalLosses, x: Array, draws: Draws) -> Array:
        """Return the stochastic gradient of what each client minimises."""
        of = local.own_gradients if self.method.averaging == "weighted" else local.gradients
        return of(x, self.method.batch_size, draws) + self.slope(x)

    def descend(self, local: LocalLosses, x: Array, gamma: float, draws: Draws) -> Array:
        """Return x_τ of x_t+1 = x_t − γ ∇̃f_i(x_t), x_0 = x, for each client."""
        for t in range(self.method.local_steps):
            x = x - gamma * self.gradients(local, x, draws.at(t))
        return x
