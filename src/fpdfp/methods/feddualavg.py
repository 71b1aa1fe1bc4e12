"""FedDualAvg, federated dual averaging."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import numpy as np

from fpdfp import steps
from fpdfp._typing import Array
from fpdfp.methods._forms import ProximalAlgorithm, ProximalMethod
from fpdfp.methods._parameters import local_schedule
from fpdfp.methods.base import Facts, Update
from fpdfp.methods.traits import Traits
from fpdfp.problem import LocalLosses
from fpdfp.quadratic.solve import minimise, needs_inner
from fpdfp.quadratic.statement import Distance, InnerSolve, Work
from fpdfp.rng import Draws


class FedDualAvgState(NamedTuple):
    """The dual model z, the sum a of all steps so far, the model x that they stand for, and how x was found.

    ``v`` is the dual point of the prox that gave x, and ``work`` what the server's proxes cost.
    """

    z: Array
    a: Array
    x: Array
    v: Array
    work: Array


class FedDualAvgMessage(NamedTuple):
    """What the server sends: the dual model, the sum of steps, and where the prox may start (empty for B = I)."""

    z: Array
    a: Array
    v: Array


class FedDualAvgReply(NamedTuple):
    """What a client sends: the change of its dual model."""

    z: Array


@dataclasses.dataclass(frozen=True)
class FedDualAvg(ProximalMethod):
    """Federated dual averaging for f + g, with the Euclidean distance: the mean is taken before the prox.

    ::

        server:          sends z_k and a_k = Σ_j<k η γ_j τ to n clients S, drawn uniformly
        client i in S:   z_i,0 = z_k,   then for t = 0, …, τ − 1
                         x_i,t   = prox_{(a_k + γ_k t) g∘B}( z_i,t )
                         z_i,t+1 = z_i,t − γ_k ∇̃f_i(x_i,t)
                         sends Q(z_i,τ − z_k)
        server:          z_k+1 = z_k + η (1/n) Σ_S Q(z_i,τ − z_k),   x_k+1 = prox_{a_k+1 g∘B}( z_k+1 ),   z_0 = x_0

    The server's x_k is a prox, and so as sparse as g makes it: averaging dual models undoes the "curse of primal
    averaging" of :class:`FedMiD`.

    Where B is not the identity, ``inner`` says how exactly the prox of g∘B is computed, by dual steps that start where
    the last ones ended (the server sends its dual point, m more numbers down); without it such a problem is refused.
    The history counts the dual steps.

    What is proved: for f convex, everyone, a constant step and no compressor, O(1/√(n k τ)) plus terms of higher order
    for a mean of the iterates, with bounded gradients and small client steps or with quadratic losses (Yuan et al.
    2021). Nothing for falling steps, for the last iterate, or for compressed messages.

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
    inner
        How exactly the prox of g∘B is computed where B is not the identity; None refuses such a B.

    References
    ----------
    H. Yuan, M. Zaheer and S. Reddi, "Federated composite optimization", ICML (2021), Algorithm 3.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1))
    >>> fpdfp.solve(problem, fpdfp.FedDualAvg(local_steps=2), rounds=1000).x.round(2)
    array([2.57, 2.64, 0.  , 0.  ])
    """

    traits: ClassVar[Traits] = Traits(
        title="local dual averaging, mean of dual models",
        solves="f + g",
        sends=("z",),
        local_steps=True,
        strong_convexity="not needed",
        with_inner_solve="f + g∘B",
        proved="O(1/√k) for a mean of the iterates, f convex, constant steps, everyone, uncompressed",
        reference="Yuan, Zaheer and Reddi 2021",
    )

    step: steps.Step = "auto"
    local_steps: int = 1
    batch_size: int | None = None
    server_step: float = 1.0
    inner: InnerSolve | None = None

    def prepare(self, facts: Facts) -> FedDualAvgAlgorithm:
        schedule = local_schedule(self.step, self.batch_size, self.local_steps, facts.constants, self.server_step)
        return FedDualAvgAlgorithm(self, facts.model, schedule, self.inner if needs_inner(facts.model) else None)


@dataclasses.dataclass(frozen=True)
class FedDualAvgAlgorithm(ProximalAlgorithm):
    """Algorithm 3 of Yuan, Zaheer and Reddi."""

    method: FedDualAvg

    def init(self, x0: Array) -> FedDualAvgState:
        (v,) = self.dual_points(1)
        return FedDualAvgState(x0, np.zeros(1), x0, v, np.zeros(2, dtype=np.int64))

    def broadcast(self, state: FedDualAvgState) -> FedDualAvgMessage:
        return FedDualAvgMessage(state.z, state.a, state.v)

    def client_update(self, local: LocalLosses, message: FedDualAvgMessage, k: int, draws: Draws) -> Update:
        gamma, work, rows = self.step(k), Work(), len(local.clients)
        z, v = np.repeat(message.z[None], rows, axis=0), np.repeat(message.v[None], rows, axis=0)
        for t in range(self.method.local_steps):
            a = float(message.a[0]) + gamma * t
            x, v, cost = minimise(self.model, Distance(z, a), v, self.inner, reach=(1.0, gamma / a if a > 0 else 1.0))
            work += cost
            z = z - gamma * local.gradients(x, self.method.batch_size, draws.at(t))
        return Update(FedDualAvgReply(z - message.z), work=work)

    def server_update(self, state: FedDualAvgState, mean: FedDualAvgReply, k: int, count: int) -> FedDualAvgState:
        gamma, eta = self.step(k), self.method.server_step
        z = state.z + eta * mean.z
        a = state.a + eta * gamma * self.method.local_steps
        reach = (1.0, gamma / float(a[0]))
        (x,), (v,), work = minimise(self.model, Distance(z[None], float(a[0])), state.v[None], self.inner, reach=reach)
        return FedDualAvgState(z, a, x, v, state.work + np.array(work))
