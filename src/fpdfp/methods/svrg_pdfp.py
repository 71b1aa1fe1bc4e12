"""SVRG-PDFP, the primal-dual fixed point method with variance reduced gradients."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import numpy as np

from fpdfp import steps
from fpdfp._typing import Array
from fpdfp.methods._forms import Gradient, Primal, choose_lambda, start_points
from fpdfp.methods.base import Facts, Method, Remembering, Traits, Update
from fpdfp.methods.pdfp import PDFP, PDFPAlgorithm
from fpdfp.problem import LocalLosses
from fpdfp.rng import Draws


class SVRGPDFPMemory(NamedTuple):
    """The memory of a client: the snapshot, its gradient there, and the sum of the iterates since."""

    point: Array
    slope: Array
    total: Array


@dataclasses.dataclass(frozen=True)
class SVRGPDFP(Method):
    """The primal-dual fixed point method with mini-batches and variance reduction by snapshots.

    ::

        every m rounds:  x̃ = the mean of the last m iterates (x_0 at first), and ∇f(x̃)
        every round:     u     = ∇f_batch(x_k) − ∇f_batch(x̃) + ∇f(x̃)
                         x½    = x_k − γu
                         v_k+1 = prox_{(λ/γ) g*}( (λ/γ) B x½ + (I − λBBᵀ) v_k )
                         x_k+1 = x½ − γ Bᵀ v_k+1

    A centralised method: it is meant for one client that holds all data. With several, each sends its u over a
    mini-batch of its own, uncompressed, every round, and the server takes the step with their mean. They follow the
    iterates themselves, so that a snapshot costs no message. Without mini-batches it is PDFP. Iterates and dual
    continue from one epoch to the next, as in the form for general convex f; the paper's other form, for f strongly
    convex, is not here.

    What is proved: O(1/k) for f convex (Zhu and Zhang 2021).

    Parameters
    ----------
    step
        γ: a number, or ``"auto"``, which is 1/(L + 4L_b) with L_b what mini-batches add to the smoothness.
    epoch
        m.
    batch_size, lam
        As for :class:`SPDFP`.

    References
    ----------
    Y.-N. Zhu and X. Zhang, "A stochastic variance reduced primal dual fixed point method for linearly constrained
    separable optimization", SIAM Journal on Imaging Sciences 14 (2021), arXiv:2007.11783.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(4))
    >>> fpdfp.solve(problem, fpdfp.SVRGPDFP(batch_size=2, epoch=10), rounds=2000).x.round(2)
    array([2.75, 2.75, 0.18, 0.18])
    """

    traits: ClassVar[Traits] = dataclasses.replace(
        PDFP.traits,
        title="primal-dual fixed point method, variance reduced mini-batches",
        compressed_form="ShiftedPDFP",
        mini_batches=True,
        proved="O(1/k) for f convex",
        constant_step=True,
        reference="Zhu and Zhang 2021",
        restorable=False,
    )

    step: steps.Step = "auto"
    batch_size: int | None = None
    epoch: int = 100
    lam: float | None = None

    def prepare(self, facts: Facts) -> SVRGPDFPAlgorithm:
        model, constants = facts.model, facts.constants
        noisy = constants.lipschitz_mean + 4.0 * constants.batch_smoothness / constants.n_clients
        step = steps.resolve_constant(self.step, 1.0 / (noisy or 1.0))
        return SVRGPDFPAlgorithm(self, model, step, choose_lambda(self.lam, model))


@dataclasses.dataclass(frozen=True)
class SVRGPDFPAlgorithm(Remembering, PDFPAlgorithm):
    """Steps of PDFP on the server, from gradients that clients compare with those at a snapshot."""

    method: SVRGPDFP

    def init_memory(self, n_clients: int) -> SVRGPDFPMemory:
        return SVRGPDFPMemory(*(start_points(self.model, n_clients) for _ in SVRGPDFPMemory._fields))

    def client_update(self, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        x, (point, slope, total) = message.x, local.memory
        batch_size, epoch = self.method.batch_size, self.method.epoch
        total = total + x
        if k % epoch == 0:
            point = total / epoch if k > 0 else np.repeat(x[None], len(local.clients), axis=0)
            slope, total = local.gradients(point), np.zeros_like(total)
        estimate = local.gradients(x, batch_size, draws)
        if batch_size is not None:
            estimate = estimate - local.gradients(point, batch_size, draws) + slope
        return Update(Gradient(estimate), SVRGPDFPMemory(point, slope, total))
