"""StatelessPDFP: PDFP on the server with compressed gradients; clients keep nothing between rounds."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

from fpdfp import steps
from fpdfp._typing import Array
from fpdfp.methods._forms import Gradient, Primal, gradients_are_noisy
from fpdfp.methods._preconditioned import DualBudget, PreconditionedAlgorithm, PreconditionedMethod
from fpdfp.methods.base import Facts, Traits, Update
from fpdfp.precondition.agreement import Wanted
from fpdfp.problem import LocalLosses
from fpdfp.rng import Draws


class StatelessState(NamedTuple):
    """The iterate u, with x = S u, the dual of the prox, and its budget of dual steps."""

    u: Array
    v: Array
    work: Array


@dataclasses.dataclass(frozen=True)
class StatelessPDFP(PreconditionedMethod):
    """PDFP on the server, fed by compressed gradients of clients that keep nothing between rounds.

    ::

        server:          sends x_k = S u_k to n clients S_k, drawn uniformly
        client i in S_k: sends m_i = Q(∇̃f_i(x_k))
        server:          u_k+1 = prox_{γ_k g∘BS}( u_k − γ_k Sᵀ (1/n) Σ m_i )

    For clients that take part once or rarely, as phones do: they need neither a shift nor an earlier model. The noise
    of Q and of who takes part does not vanish, so steps decrease and the objective falls more slowly than with
    :class:`ShiftedPDFP`. The preconditioner S is applied on the server alone; the prox is the one of
    :class:`ShiftedPDFP`, by several dual steps.

    What is proved. For S = I and the exact prox it is the proximal stochastic gradient method. For f strongly convex
    and steps of the order of 1/k, E‖x_k − x*‖² = O(1/k) (Rosasco, Villa and Vũ 2020). Nothing is proved for inexact
    proxes.

    Parameters
    ----------
    step
        γ_k: a number, a schedule of :mod:`fpdfp.steps`, or ``"auto"``.
    batch_size
        The size of the mini-batches; None uses all samples.
    preconditioner, dual_steps
        As for :class:`ShiftedPDFP`.

    References
    ----------
    L. Rosasco, S. Villa and B. C. Vũ, "Convergence of stochastic proximal gradient algorithm", Applied Mathematics and
    Optimization 82 (2020); A. Salim, L. Condat, K. Mishchenko and P. Richtárik, "Dualize, split, randomize: toward fast
    nonsmooth optimization algorithms", Journal of Optimization Theory and Applications 195 (2022).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(4))
    >>> result = fpdfp.solve(problem, fpdfp.StatelessPDFP(), rounds=2000, clients_per_round=1)
    >>> result.x.round(1)
    array([2.7, 2.7, 0.2, 0.2])
    """

    traits: ClassVar[Traits] = Traits(
        title="PDFP on the server, compressed gradients, clients without memory",
        solves="f + g∘B",
        sends=("gradient",),
        unequal_sampling=True,
        proved="without preconditioner and with the exact prox: O(1/k) for f strongly convex",
        reference="Rosasco, Villa and Vũ 2020; Salim et al. 2022",
    )

    step: steps.Step = "auto"
    preconditioner: Wanted = None
    batch_size: int | None = None
    dual_steps: int | None = None

    def prepare(self, facts: Facts) -> StatelessAlgorithm:
        noisy = gradients_are_noisy(self.batch_size, facts.constants)
        schedule = steps.resolve(self.step, facts.constants, noisy=noisy)
        return StatelessAlgorithm(self, facts.model, schedule, facts.agreement.coordinates, facts.agreement.reason)


@dataclasses.dataclass(frozen=True)
class StatelessAlgorithm(PreconditionedAlgorithm):
    """A proximal gradient step on the server, in the coordinates of the preconditioner."""

    method: StatelessPDFP

    def for_sites(self) -> StatelessAlgorithm:
        # Clients compute gradients in x: they need no preconditioner.
        method = dataclasses.replace(self.method, preconditioner=None)
        return dataclasses.replace(self, method=method, coordinates=None, chosen="")

    def init(self, x0: Array) -> StatelessState:
        u = x0 if self.coordinates is None else self.coordinates.coordinates(x0)
        v = self.model.xp.zeros((1, *self.model.dual_shape), dtype=x0.dtype)
        return StatelessState(u, v, self.prox.start().pack())

    def broadcast(self, state: StatelessState) -> Primal:
        return Primal(self.solution(state)[0])

    def client_update(self, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        return Update(Gradient(local.gradients(message.x, self.method.batch_size, draws)))

    def server_update(self, state: StatelessState, mean: Gradient, k: int, count: int) -> StatelessState:
        gamma, budget = self.step(k), DualBudget(*state.work.tolist())
        slope = mean.gradient if self.factor is None else self.factor.adjoint(mean.gradient)
        u, v, work = self.prox.apply(state.u - gamma * slope, gamma, state.v, state.u, budget.most)
        return StatelessState(u, v, self.prox.allow(budget, work, k).pack())

    def solution(self, state: StatelessState) -> tuple[Array, Array | None]:
        return state.u if self.factor is None else self.factor.apply(state.u), state.v[0]
