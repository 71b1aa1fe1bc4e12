"""SPDFP, the stochastic primal-dual fixed point method."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from fpdfp import steps
from fpdfp.methods._parameters import choose_within
from fpdfp.methods.base import Facts, Method
from fpdfp.methods.pdfp import PDFPAlgorithm
from fpdfp.methods.traits import Traits


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
        λ; by default 1/ρ_max(BBᵀ).

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

    traits: ClassVar[Traits] = Traits(
        title="stochastic primal-dual fixed point method",
        solves="f + g∘B",
        sends=("gradient",),
        partial_participation=False,
        compression=False,
        compressed_form="FPDFP",
        proved="O(k^(−α)), 0 < α ≤ 1, for f strongly convex and steps that fall like k^(−α)",
        reference="Zhu and Zhang 2020",
    )

    step: steps.Step = "auto"
    batch_size: int | None = None
    lam: float | None = None

    def prepare(self, facts: Facts) -> PDFPAlgorithm:
        schedule = steps.resolve(self.step, facts.constants, noisy=self.batch_size is not None)
        lam = choose_within("lam", self.lam, facts.model.largest_lambda, "1/ρ_max(BBᵀ)")
        return PDFPAlgorithm(self, facts.model, schedule, lam)
