"""PDFP, the primal-dual fixed point method (Algorithm 3), and SPDFP, the same with mini-batches."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from fpdfp import steps
from fpdfp.methods._forms import Gradient, PrimalDual, PrimalDualAlgorithm, choose_lambda
from fpdfp.methods.base import Facts, Method, Traits


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

    step: steps.Step = "auto"
    lam: float | None = None

    def prepare(self, facts: Facts) -> PDFPAlgorithm:
        schedule = steps.resolve(self.step, facts.constants, noisy=False)
        return PDFPAlgorithm(self, facts.model, schedule, choose_lambda(self.lam, facts.model))


@dataclasses.dataclass(frozen=True)
class SPDFP(Method):
    """The stochastic primal-dual fixed point method: PDFP with gradients over random mini-batches.

    ::

        x½    = x_k − γ_k ∇̃f(x_k)
        v_k+1 = prox_{(λ/γ_k) g*}( (λ/γ_k) B x½ + (I − λBBᵀ) v_k )
        x_k+1 = x½ − γ_k Bᵀ v_k+1

    A centralised method: it is meant for one client that holds all data. With several, each sends the gradient over a
    mini-batch of its own, uncompressed, every round, and the server takes the step with their mean. Without
    mini-batches it is PDFP.

    What is proved: for f strongly convex and steps that fall like k^(−α), E‖x_k − x*‖² = O(k^(−α)), 0 < α ≤ 1.

    Parameters
    ----------
    step
        γ_k: a number, a schedule of :mod:`fpdfp.steps`, or ``"auto"``.
    batch_size
        The size of the mini-batches; None uses all samples.
    lam
        As for :class:`PDFP`.

    References
    ----------
    Y.-N. Zhu and X. Zhang, "Stochastic primal dual fixed point method for composite optimization", Journal of
    Scientific Computing 84 (2020).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(4))
    >>> result = fpdfp.solve(problem, fpdfp.SPDFP(batch_size=2), rounds=10000)
    >>> bool(abs(result.x - fpdfp.minimize(problem).x).max() < 0.1)
    True
    """

    traits: ClassVar[Traits] = dataclasses.replace(
        PDFP.traits,
        title="stochastic primal-dual fixed point method",
        mini_batches=True,
        strong_convexity="for its rate",
        proved="O(k^(−α)), 0 < α ≤ 1, for f strongly convex and steps that fall like k^(−α)",
        reference="Zhu and Zhang 2020",
    )

    step: steps.Step = "auto"
    batch_size: int | None = None
    lam: float | None = None

    def prepare(self, facts: Facts) -> PDFPAlgorithm:
        schedule = steps.resolve(self.step, facts.constants, noisy=self.batch_size is not None)
        return PDFPAlgorithm(self, facts.model, schedule, choose_lambda(self.lam, facts.model))


@dataclasses.dataclass(frozen=True)
class PDFPAlgorithm(PrimalDualAlgorithm):
    """The step of PDFP on the server, from the mean of whatever gradients clients send; ``lam`` is λ."""

    lam: float

    def server_update(self, state: PrimalDual, mean: Gradient, k: int, count: int) -> PrimalDual:
        gamma, lam = self.step(k), self.lam
        half = state.x - gamma * mean.gradient
        return PrimalDual(*self.model.primal_dual_step(half, state.v, gamma, lam / gamma))
