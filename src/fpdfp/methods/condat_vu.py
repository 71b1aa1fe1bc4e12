"""The primal-dual method of Condat and Vũ."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from fpdfp import steps
from fpdfp.methods._forms import Gradient, PrimalDual, PrimalDualAlgorithm, choose_within
from fpdfp.methods.base import Facts, Method, Traits


@dataclasses.dataclass(frozen=True)
class CondatVu(Method):
    """The primal-dual splitting method of Condat and Vũ, a centralised reference.

    ::

        x_k+1 = x_k − γ (∇f(x_k) + Bᵀv_k)
        v_k+1 = prox_{σ g*}( v_k + σ B (2x_k+1 − x_k) )

    With several clients each sends its full gradient, uncompressed, every round, and the server takes the step.

    Converges for 1/γ − σ‖B‖² > L/2.

    Parameters
    ----------
    step
        γ: a number or ``"auto"``, which is 1/L.
    sigma
        σ; by default 0.99 (1/γ − L/2)/‖B‖², just within the condition, or 0.99/(2γ‖B‖²) where γ > 1.9/L.

    References
    ----------
    L. Condat, "A primal-dual splitting method for convex optimization involving Lipschitzian, proximable and linear
    composite terms", Journal of Optimization Theory and Applications 158 (2013); B. C. Vũ, "A splitting algorithm for
    dual monotone inclusions involving cocoercive operators", Advances in Computational Mathematics 38 (2013).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(4))
    >>> fpdfp.solve(problem, fpdfp.CondatVu(), rounds=500).x.round(2)
    array([2.75, 2.75, 0.18, 0.18])
    """

    traits: ClassVar[Traits] = Traits(
        title="primal-dual splitting with gradients of f",
        solves="f + g∘B",
        sends=("gradient",),
        partial_participation=False,
        compression=False,
        mini_batches=False,
        strong_convexity="not needed",
        proved="convergence for 1/γ − σ‖B‖² > L/2",
        constant_step=True,
        reference="Condat 2013; Vũ 2013",
    )

    step: steps.Step = "auto"
    sigma: float | None = None

    def prepare(self, facts: Facts) -> CondatVuAlgorithm:
        smoothness = facts.constants.lipschitz_mean
        step = steps.resolve_constant(self.step, 1.0 / (smoothness or 1.0))
        # Near 2/L, and above it, there is no room for a useful σ; then γσ‖B‖² = ½, and the engine warns of the step.
        safe = step.gamma <= self.largest_step(facts)
        room = 1.0 / step.gamma - smoothness / 2.0 if safe else 0.5 / step.gamma
        sigma = choose_within("sigma", self.sigma, 0.99 * room * facts.model.largest_lambda, "(1/γ − L/2)/‖B‖²")
        return CondatVuAlgorithm(self, facts.model, step, sigma)

    def largest_step(self, facts: Facts) -> float:
        return 0.95 * facts.constants.largest_safe_step


@dataclasses.dataclass(frozen=True)
class CondatVuAlgorithm(PrimalDualAlgorithm):
    """The step of Condat and Vũ on the server; ``sigma`` is σ."""

    sigma: float

    def server_update(self, state: PrimalDual, mean: Gradient, k: int, count: int) -> PrimalDual:
        linop, penalty, sigma = self.model.linop, self.model.penalty, self.sigma
        x = state.x - self.step(k) * (mean.gradient + linop.adjoint(state.v))
        return PrimalDual(x, penalty.conjugate_prox(state.v + sigma * linop.apply(2.0 * x - state.x), sigma))
