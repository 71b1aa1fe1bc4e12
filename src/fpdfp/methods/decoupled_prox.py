"""FedDecoupledProx: Zhang, Hu and Johansson's method for composite problems whose clients differ."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import numpy as np

from fpdfp import steps
from fpdfp._array import beside
from fpdfp._typing import Array
from fpdfp.methods._forms import DualChange, ProximalAlgorithm, ProximalMethod, start_points
from fpdfp.methods.base import Facts, Remembering, Traits, Update
from fpdfp.problem import LocalLosses
from fpdfp.quadratic.solve import minimise
from fpdfp.quadratic.statement import Distance, InnerSolve, Work
from fpdfp.rng import Draws


class FedDecoupledProxState(NamedTuple):
    """The point x̄ before the prox, P(x̄), the dual point of that prox, and what the server's proxes cost."""

    before: Array
    x: Array
    v: Array
    work: Array


class FedDecoupledProxMessage(NamedTuple):
    """The message of the server: x̄, and the dual point of its prox (empty for B = I)."""

    before: Array
    v: Array


class FedDecoupledProxMemory(NamedTuple):
    """The memory of a client: P(x̄) and the mean of its gradients in the last round, and whether there was one."""

    x: Array
    slope: Array
    known: Array


@dataclasses.dataclass(frozen=True)
class FedDecoupledProx(ProximalMethod):
    """Local proximal steps without drift: clients send points before the prox, and follow the mean gradient.

    ::

        server:          sends x̄_k to all clients
        client i:        ẑ_i,0 = z_i,0 = P(x̄_k),   then for t = 0, …, τ − 1
                         ẑ_i,t+1 = ẑ_i,t − γ (∇̃f_i(z_i,t) + c_i),   z_i,t+1 = prox_{(t + 1)γ g∘B}( ẑ_i,t+1 )
                         sends ẑ_i,τ
        server:          x̄_k+1 = P(x̄_k) + η (mean of ẑ_i,τ − P(x̄_k))
        client i:        c_i = (P(x̄_k) − x̄_k+1)/ηγτ − (1/τ) Σ_t ∇̃f_i(z_i,t),   once it has x̄_k+1

    with P = prox_{ηγτ g∘B} and c_i = 0 at first. The iterate is P(x̄_k). The c_i have the mean 0, so that x̄_k+1 is
    P(x̄_k) less ηγτ times the mean of all gradients, and at the solution every ẑ_i,t is x* − tγ∇f(x*), whose prox is x*.
    Neither local steps nor differences between clients move it. The paper has no name for the method.

    Where B is not the identity, ``inner`` describes how exactly the prox of g∘B is computed, by dual steps that start
    from the dual point of P(x̄_k), which the server sends (m more numbers down). Without it such a problem is refused.

    What is proved. For f_i smooth, f strongly convex, all clients and γτη below a small constant over L, convergence to
    the solution is linear; with mini-batches to a neighbourhood of it (Zhang, Hu and Johansson 2024). ``"auto"`` takes
    γ = 1/(2τL_max max(1, η)), and 1/L for τ = 1, larger than the paper's constants allow.

    Parameters
    ----------
    step
        γ: a number or ``"auto"``.
    local_steps, batch_size, server_step, inner
        As for :class:`FedMiD`.

    References
    ----------
    J. Zhang, J. Hu and M. Johansson, "Composite federated learning with heterogeneous data", ICASSP (2024),
    arXiv:2309.01795, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1))
    >>> fpdfp.solve(problem, fpdfp.FedDecoupledProx(local_steps=5), rounds=300).x.round(2)
    array([2.57, 2.64, 0.  , 0.  ])
    """

    traits: ClassVar[Traits] = Traits(
        title="local proximal steps with drift correction, means before the prox",
        solves="f + g",
        sends=("z",),
        partial_participation=False,
        compression=False,
        local_steps=True,
        with_inner_solve="f + g∘B",
        proved="linear for f strongly convex, full gradients and small steps, whatever the clients' differences",
        constant_step=True,
        reference="Zhang, Hu and Johansson 2024",
        restorable=False,
    )

    step: steps.Step = "auto"
    local_steps: int = 1
    batch_size: int | None = None
    server_step: float = 1.0
    inner: InnerSolve | None = None

    def prepare(self, facts: Facts) -> FedDecoupledProxAlgorithm:
        model, constants, tau, eta = facts.model, facts.constants, self.local_steps, self.server_step
        smoothness = 2.0 * tau * constants.lipschitz_max if tau > 1 else constants.lipschitz_mean
        smoothness = max(1.0, eta) * ((smoothness + 2.0 * tau * constants.batch_smoothness) or 1.0)
        step = steps.resolve_constant(self.step, 1.0 / smoothness)
        return FedDecoupledProxAlgorithm(self, model, step, self.inner_for(model), reach=eta * step.gamma * tau)


@dataclasses.dataclass(frozen=True)
class FedDecoupledProxAlgorithm(Remembering, ProximalAlgorithm):
    """Algorithm 1 of Zhang, Hu and Johansson; ``reach`` is ηγτ, the parameter of P."""

    method: FedDecoupledProx
    reach: float

    def init(self, x0: Array) -> FedDecoupledProxState:
        return FedDecoupledProxState(x0, x0, self.dual_points(1), np.zeros(2, dtype=np.int64))

    def init_memory(self, n_clients: int) -> FedDecoupledProxMemory:
        point, slope = start_points(self.model, n_clients), start_points(self.model, n_clients)
        return FedDecoupledProxMemory(point, slope, np.zeros(n_clients, dtype=bool))

    def broadcast(self, state: FedDecoupledProxState) -> FedDecoupledProxMessage:
        return FedDecoupledProxMessage(state.before, state.v[0])

    def client_update(self, local: LocalLosses, message: FedDecoupledProxMessage, k: int, draws: Draws) -> Update:
        gamma, tau, memory, work = self.step(k), self.method.local_steps, local.memory, Work()
        x = self.apply_prox(message) if k > 0 else message.before
        rows = np.repeat(x[None], len(local.clients), axis=0)
        known = beside(memory.known.reshape(-1, *[1] * x.ndim), x)
        correction = np.where(known, (memory.x - message.before) / self.reach - memory.slope, 0.0)
        correction = correction.astype(self.model.dtype)
        z = moved = rows
        v, total = np.repeat(message.v[None], len(rows), axis=0), np.zeros_like(rows)
        for t in range(tau):
            gradients = local.gradients(z, self.method.batch_size, draws.at(t))
            total, moved = total + gradients, moved - gamma * (gradients + correction)
            if t + 1 < tau:
                z, v, cost = minimise(self.model, Distance(moved, (t + 1) * gamma), v, self.inner)
                work += cost
        kept = FedDecoupledProxMemory(rows, total / tau, np.ones(len(rows), dtype=bool))
        return Update(DualChange(moved - x), kept, work)

    def server_update(
        self, state: FedDecoupledProxState, mean: DualChange, k: int, count: int
    ) -> FedDecoupledProxState:
        before = state.x + self.method.server_step * mean.z
        _, v, work = minimise(self.model, Distance(before[None], self.reach), state.v, self.inner)
        x = self.apply_prox(FedDecoupledProxMessage(before, v[0]))
        return FedDecoupledProxState(before, x, v, state.work + np.array(work))

    def apply_prox(self, message: FedDecoupledProxMessage) -> Array:
        """Return P(x̄), to the last bit the same on the server and the clients."""
        if self.has_inner_solve:
            x: Array = message.before - self.reach * self.model.linop.adjoint(message.v)
        else:
            (x,) = minimise(self.model, Distance(message.before[None], self.reach), message.v[None]).u
        return x
