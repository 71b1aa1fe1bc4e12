"""Methods for a smooth objective, and what they do where there is a penalty after all."""

from __future__ import annotations

import numpy as np

from fpdfp import steps
from fpdfp._typing import Array
from fpdfp.methods.base import Algorithm, Facts, Method
from fpdfp.methods.traits import Solves
from fpdfp.penalties.base import Zero
from fpdfp.problem import Model


class SmoothMethod(Method):
    """A method that minimises f alone."""

    penalty: str
    local_steps: int

    @property
    def solves(self) -> Solves:
        return "f + g∘B" if self.penalty == "subgradient" else self.traits.solves

    def check(self, model: Model) -> None:
        name = type(self).__name__
        if isinstance(model.penalty, Zero) or self.penalty == "ignore":
            return
        if self.penalty == "refuse":
            raise ValueError(
                f"the problem's penalty must be Zero() for {name}, which minimises f alone, got {model.penalty!r}; "
                f"{name}(penalty='subgradient') takes steps along subgradients of f + g∘B, and "
                f"{name}(penalty='ignore') minimises f all the same"
            )
        if not model.penalty.finite:
            raise ValueError(f"penalty='subgradient' needs a penalty that is finite everywhere, got {model.penalty!r}")
        try:
            model.penalty.subgradient(np.zeros(model.dual_shape, dtype=model.dtype))
        except NotImplementedError as error:
            raise ValueError(f"penalty='subgradient': {error}") from None

    def uses_subgradients(self, model: Model) -> bool:
        """Whether steps go along subgradients of f + g∘B, which do not vanish at the solution."""
        return self.penalty == "subgradient" and not isinstance(model.penalty, Zero)

    def schedule_from(self, gamma: float, facts: Facts, *, steps_per_round: int = 1) -> steps.Schedule:
        """Return γ_k for what the user gave: ``"auto"`` is γ, which falls where gradients do not vanish."""
        step = self.step
        if step == "auto":
            noisy = self.batch_size is not None or self.uses_subgradients(facts.model)
            convexity = steps_per_round * facts.constants.strong_convexity
            step = steps.Automatic(gamma, convexity) if noisy else steps.Constant(gamma)
        return steps.resolve(step, facts.constants, noisy=False)


class SmoothAlgorithm(Algorithm):
    """The algorithm of such a method."""

    method: SmoothMethod

    def slope(self, x: Array) -> Array | float:
        """Return Bᵀs with s in ∂g(Bx), or 0 where the penalty is left out."""
        if not self.method.uses_subgradients(self.model):
            return 0.0
        return self.model.linop.adjoint(self.model.penalty.subgradient(self.model.linop.apply(x)))
