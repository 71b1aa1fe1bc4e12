"""The local steps that FedAvg, FedPAQ and FedProx share."""

from __future__ import annotations

from fpdfp import steps
from fpdfp._typing import Array
from fpdfp.methods._common import (
    check_hyper_parameters,
    gradients_are_noisy,
    is_noisy,
    largest_local_step,
)
from fpdfp.methods._forms import PrimalForm
from fpdfp.methods._smooth import SmoothMethod
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Draws


class LocalSGD(SmoothMethod, PrimalForm):
    """A method whose clients take τ steps of stochastic gradient descent on their own."""

    averaging: str

    def __post_init__(self) -> None:
        check_hyper_parameters(self)

    def weigh(self, local: LocalLosses, change: Array) -> Array:
        """Return what a client's change counts for in the mean: N w_i / W of it, or all of it."""
        return local.weigh(change, local.total) if self.averaging == "weighted" else change

    def smoothness(self, constants: steps.Constants) -> float:
        """The largest smoothness of what a client minimises."""
        return constants.own_lipschitz_max if self.averaging == "weighted" else constants.lipschitz_max

    def choose_step(self, model: Model, constants: steps.Constants) -> steps.Schedule:
        """Return γ_k for what the user gave."""
        differ = is_noisy if self.local_steps > 1 else gradients_are_noisy
        noisy = differ(self.batch_size, constants) or self.uses_subgradients(model)
        return steps.resolve(
            self.step,
            constants,
            noisy=noisy,
            local_steps=self.local_steps,
            local_smoothness=self.smoothness(constants),
        )

    def largest_step(self, model: Model, constants: steps.Constants) -> float:
        return largest_local_step(constants, self.local_steps, smoothness=self.smoothness(constants))

    def gradients(self, model: Model, local: LocalLosses, x: Array, draws: Draws) -> Array:
        """Return the stochastic gradient of what each client minimises."""
        of = local.own_gradients if self.averaging == "weighted" else local.gradients
        return of(x, self.batch_size, draws) + self.slope(model, x)

    def descend(self, model: Model, local: LocalLosses, x: Array, gamma: float, draws: Draws) -> Array:
        """Return x_τ of x_t+1 = x_t − γ ∇̃f_i(x_t), x_0 = x, for each client."""
        for t in range(self.local_steps):
            x = x - gamma * self.gradients(model, local, x, draws._replace(step=t))
        return x
