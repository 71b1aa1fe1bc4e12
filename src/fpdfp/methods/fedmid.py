"""FedMiD, federated mirror descent."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fpdfp import steps
from fpdfp._typing import Array
from fpdfp.methods._forms import Primal, ProximalAlgorithm, ProximalMethod
from fpdfp.methods.base import Facts, Remembering, Traits, Update
from fpdfp.problem import LocalLosses
from fpdfp.quadratic.solve import minimise
from fpdfp.quadratic.statement import Distance, InnerSolve, Work
from fpdfp.rng import Draws


class FedMiDState(NamedTuple):
    """The model, the dual point of the server's last prox, and what its proxes cost."""

    x: Array
    v: Array
    work: Array


class FedMiDMemory(NamedTuple):
    """The memory of a client: the dual point of its last prox, where the next one starts."""

    v: Array


@dataclasses.dataclass(frozen=True)
class FedMiD(ProximalMethod):
    """Federated mirror descent for f + g, with the Euclidean distance: local proximal steps, mean of the models.

    ::

        server:          sends x_k to n clients S, drawn uniformly
        client i in S:   x_i,0 = x_k,   x_i,t+1 = prox_{γ_k g∘B}( x_i,t − γ_k ∇̃f_i(x_i,t) )   for t = 0, …, τ − 1
                         sends Q(x_i,τ − x_k)
        server:          x_k+1 = x_k + η (1/n) Σ_S Q(x_i,τ − x_k)
                         and with server_prox, x_k+1 = prox_{η γ_k τ g∘B}( x_k + η (1/n) Σ_S Q(x_i,τ − x_k) )

    The mean of sparse models is dense: the "curse of primal averaging". With ``server_prox`` the server takes a mirror
    step too, as Yuan et al. write the algorithm; it then applies g twice: for one client and τ = 1 it minimises f + 2g.

    Where B is not the identity, ``inner`` describes how exactly the prox of g∘B is computed, by dual steps that start
    where the client's last ones ended; without it such a problem is refused. The history counts the dual steps.

    What is proved: with τ = 1 and η = 1, what holds for FPDFP at B = I, which it then is. For τ > 1 Yuan et al. prove
    O(1/√(n k τ)) for a mean of the iterates of the form with ``server_prox``. They assume f convex with bounded
    gradients, all clients, no compressor, and client steps with which a round is nearly one large step. At a constant
    step the iterates stop short of the solution.

    Parameters
    ----------
    step
        γ_k: a number, a schedule of :mod:`fpdfp.steps`, or ``"auto"``.
    local_steps
        τ.
    batch_size
        The size of the mini-batches; None uses all samples.
    server_step
        η.
    server_prox
        Whether the server takes a proximal step of its own.
    inner
        How exactly the prox of g∘B is computed where B is not the identity; None refuses such a B.

    References
    ----------
    H. Yuan, M. Zaheer and S. Reddi, "Federated composite optimization", ICML (2021), Algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1))
    >>> fpdfp.solve(problem, fpdfp.FedMiD(local_steps=2), rounds=1000).x.round(2)
    array([2.57, 2.64, 0.  , 0.  ])

    For a general B:

    >>> fused = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(4))
    >>> result = fpdfp.solve(fused, fpdfp.FedMiD(inner=fpdfp.InnerSolve(tol=1e-8)), rounds=1000)
    >>> result.x.round(2)
    array([2.75, 2.75, 0.18, 0.18])
    >>> bool(result.history.inner_clients[-1] > 0)
    True
    """

    traits: ClassVar[Traits] = Traits(
        title="local proximal steps, mean of models",
        solves="f + g",
        sends=("x",),
        local_steps=True,
        with_inner_solve="f + g∘B",
        strong_convexity="not needed",
        proved="with a server prox: O(1/√k) for a mean of the iterates, f convex, small client steps, everyone, "
        "uncompressed",
        reference="Yuan, Zaheer and Reddi 2021",
    )

    step: steps.Step = "auto"
    local_steps: int = 1
    batch_size: int | None = None
    server_step: float = 1.0
    server_prox: bool = False
    inner: InnerSolve | None = None

    def prepare(self, facts: Facts) -> FedMiDAlgorithm:
        model = facts.model
        return FedMiDAlgorithm(self, model, self.schedule(facts.constants), self.inner_for(model))


@dataclasses.dataclass(frozen=True)
class FedMiDAlgorithm(Remembering, ProximalAlgorithm):
    """Algorithm 2 of Yuan, Zaheer and Reddi."""

    method: FedMiD

    def init(self, x0: Array) -> FedMiDState:
        return FedMiDState(x0, self.dual_points(1), np.zeros(2, dtype=np.int64))

    def init_memory(self, n_clients: int) -> Any:
        return FedMiDMemory(self.dual_points(n_clients)) if self.has_inner_solve else ()

    def client_update(self, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        gamma, work, x = self.step(k), Work(), message.x
        v = local.memory.v if self.has_inner_solve else self.dual_points(len(local.clients))
        for t in range(self.method.local_steps):
            gradients = local.gradients(x, self.method.batch_size, draws.at(t))
            x, v, cost = minimise(self.model, Distance(x - gamma * gradients, gamma), v, self.inner)
            work += cost
        return Update(Primal(x - message.x), FedMiDMemory(v) if self.has_inner_solve else (), work)

    def server_update(self, state: FedMiDState, mean: Primal, k: int, count: int) -> FedMiDState:
        eta, tau = self.method.server_step, self.method.local_steps
        x = state.x + eta * mean.x
        if not self.method.server_prox:
            return state._replace(x=x)
        (x,), v, work = minimise(self.model, Distance(x[None], eta * self.step(k) * tau), state.v, self.inner)
        return FedMiDState(x, v, state.work + np.array(work))
