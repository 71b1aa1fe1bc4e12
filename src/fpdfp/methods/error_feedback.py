"""ErrorFeedbackPDFP: the shifted method for biased compressors (EF21)."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

from fpdfp import steps
from fpdfp.errors import ArgumentError
from fpdfp.methods.base import Facts, Traits
from fpdfp.methods.shifted import ShiftedAlgorithm, ShiftedPDFP


@dataclasses.dataclass(frozen=True)
class ErrorFeedbackPDFP(ShiftedPDFP):
    """The shifted method with error feedback: for compressors that are biased but make no error larger than its cause.

    ::

        server:          sends z_k to n clients S, drawn uniformly
        client i in S:   sends m_i = C(∇f_i(z_k) − h_i);   h_i ← h_i + m_i, once the server has it
        server:          h̄ ← h̄ + (1/N) Σ_S m_i,   ĝ = h̄
                         and from there on as :class:`ShiftedPDFP`, with ĝ for its estimate

    C may be top-k, kept signs, or rounding to nearest: all that is asked is ‖C(x) − x‖² ≤ (1 − a)‖x‖² with some a > 0
    (in the mean, where C draws). What is not sent in a round stays in ∇f_i − h_i and is sent later.

    The following is proved without momentum, with full gradients, exact messages of the server and the exact prox of
    g∘B. Let f be convex, r = √(1 − a n/N), and L̃ the root mean square of the clients' constants: E[F(x_k)] stays
    bounded for γ ≤ 1/(L + L̃ r/(1 − r)). For γ ≤ 1/(L + √2 L̃ r/(1 − r)) and f strongly convex with μ convergence is
    linear with the factor max(1 − γμ, (1 + r)/2). The proof is in ``docs/mathematics.md``. ``"auto"`` takes the second
    of these steps, with a bound of L. Nothing is proved with momentum, mini-batches, inexact proxes, or a compressed
    downlink.

    Parameters
    ----------
    step, dual_steps, preconditioner, momentum, batch_size, refresh
        As for :class:`ShiftedPDFP`; ``momentum`` is off by default.
    shift_step
        1, always.

    References
    ----------
    P. Richtárik, I. Sokolov and I. Fatkhullin, "EF21: a new, simpler, theoretically better, and practically faster
    error feedback", NeurIPS (2021); I. Fatkhullin, I. Sokolov, E. Gorbunov, Z. Li and P. Richtárik, "EF21 with bells
    & whistles: practical algorithmic extensions of modern error feedback", arXiv:2110.03294 (2021).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(4))
    >>> top = fpdfp.compress.TopK(1)
    >>> result = fpdfp.solve(problem, fpdfp.ErrorFeedbackPDFP(), rounds=500, compressor=top)
    >>> result.certificate.relative_gap < 1e-9
    True
    """

    traits: ClassVar[Traits] = dataclasses.replace(
        ShiftedPDFP.traits,
        title="PDFP on the server, biased messages with error feedback",
        unequal_sampling=False,
        needs_unbiased=False,
        proved="without momentum, with the exact prox: linear for f strongly convex",
        reference="Richtárik, Sokolov and Fatkhullin 2021; Fatkhullin et al. 2021",
    )

    may_grow: ClassVar[bool] = False
    feedback: ClassVar[bool] = True

    momentum: bool = False

    def prepare(self, facts: Facts) -> ShiftedAlgorithm:
        omega = facts.constants.omega
        if omega >= 1:
            raise ArgumentError(
                "compressor",
                "must have a relative error below 1 for ErrorFeedbackPDFP, as TopK, Sign(random=False) and "
                f"Half have, got one with the bound {omega:.3g}; ShiftedPDFP takes unbiased ones of any size",
            )
        if self.shift_step not in (None, 1.0):
            raise ArgumentError("shift_step", f"must be 1 for ErrorFeedbackPDFP, got {self.shift_step:g}")
        return super().prepare(facts)

    def noisy_smoothness(self, constants: steps.Constants) -> float:
        """L + √2 L̃ r/(1 − r) with r² = 1 − a n/N, and what mini-batches and the downlink add."""
        share = (1.0 - constants.omega) * constants.clients_per_round / constants.n_clients
        r = math.sqrt(1.0 - share)
        smoothness = (constants.lipschitz_mean or 1.0) + math.sqrt(2.0) * constants.lipschitz_rms * r / (1.0 - r)
        smoothness += 2.0 * constants.batch_smoothness / constants.clients_per_round
        return smoothness * (1.0 + 2.0 * constants.downlink_omega)

    def rounds_to_learn(self, constants: steps.Constants) -> int:
        return math.ceil(4.0 * constants.n_clients / (constants.clients_per_round * (1.0 - constants.omega)))

    def choose_shift_step(self, constants: steps.Constants) -> float:
        return 1.0
