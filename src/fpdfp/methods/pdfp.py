"""PDFP, the primal-dual fixed point method (Algorithm 3)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from fpdfp import steps
from fpdfp.methods._forms import Gradient, GradientAlgorithm, PrimalDual
from fpdfp.methods._parameters import choose_within
from fpdfp.methods.base import Facts, Method
from fpdfp.methods.traits import Traits


@dataclasses.dataclass(frozen=True)
class PDFP(Method):
    """The primal-dual fixed point method, exact and deterministic.

    ::

        x½    = x_k − γ ∇f(x_k)
        v_k+1 = prox_{(λ/γ) g*}( (λ/γ) B x½ + (I − λBBᵀ) v_k )
        x_k+1 = x½ − γ Bᵀ v_k+1

    With several clients each sends its full gradient, uncompressed, every round, and the server takes the
    step: the same iterates as if the data lay in one place.

    Converges for 0 < γ < 2/L and 0 < λ ≤ 1/ρ_max(BBᵀ).

    Parameters
    ----------
    step
        γ: a number, a schedule of :mod:`fpdfp.steps`, or ``"auto"``, which is 1/L.
    lam
        λ; by default 1/ρ_max(BBᵀ).

    References
    ----------
    P. Chen, J. Huang and X. Zhang, "A primal-dual fixed point algorithm for convex separable minimization
    with applications to image restoration", Inverse Problems 29 (2013).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(4))
    >>> result = fpdfp.solve(problem, fpdfp.PDFP(), rounds=500)
    >>> result.x.round(2)
    array([2.75, 2.75, 0.18, 0.18])
    """

    traits: ClassVar[Traits] = Traits(
        title="primal-dual fixed point method",
        solves="f + g∘B",
        sends=("gradient",),
        partial_participation=False,
        compression=False,
        compressed_form="FPDFP",
        mini_batches=False,
        strong_convexity="not needed",
        proved="convergence for γ < 2/L; linear for f strongly convex and B of full row rank",
        reference="Chen, Huang and Zhang 2013; Algorithm 3",
    )
    batch_size: ClassVar[None] = None  # type: ignore[misc]

    step: steps.Step = "auto"
    lam: float | None = None

    def prepare(self, facts: Facts) -> PDFPAlgorithm:
        schedule = steps.resolve(self.step, facts.constants, noisy=False)
        lam = choose_within("lam", self.lam, facts.model.largest_lambda, "1/ρ_max(BBᵀ)")
        return PDFPAlgorithm(self, facts.model, schedule, lam)


@dataclasses.dataclass(frozen=True)
class PDFPAlgorithm(GradientAlgorithm):
    """The step of PDFP on the server, from the mean of whatever gradients clients send.

    Attributes
    ----------
    lam
        λ.
    """

    lam: float

    def server_update(self, state: PrimalDual, mean: Gradient, k: int, count: int) -> PrimalDual:
        gamma, lam = self.step(k), self.lam
        half = state.x - gamma * mean.gradient
        return PrimalDual(*self.model.primal_dual_step(half, state.v, gamma, lam / gamma))
