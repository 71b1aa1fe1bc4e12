"""FedDualAvg, federated dual averaging; and FastFedDualAvg, for strongly convex losses, with restarts."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fpdfp import _checks, steps
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.methods._forms import DualChange, ProximalAlgorithm, ProximalMethod
from fpdfp.methods.base import Facts, Traits, Update
from fpdfp.problem import LocalLosses
from fpdfp.quadratic.solve import minimise
from fpdfp.quadratic.statement import Distance, InnerSolve, Solution, Work
from fpdfp.rng import Draws


class FedDualAvgState(NamedTuple):
    """The dual model z, the sum a of the steps (of a stage), the model x that they stand for, and how x was found.

    ``v`` is the dual point of the prox that gave x, and ``work`` what the server's proxes cost.
    """

    z: Array
    a: Array
    x: Array
    v: Array
    work: Array


class FedDualAvgMessage(NamedTuple):
    """The message of the server: the dual model, the sum of steps, and where the prox may start (empty for B = I)."""

    z: Array
    a: Array
    v: Array


class FastFedDualAvgMessage(NamedTuple):
    """The message of the server: the dual model, and where the prox may start (empty for B = I)."""

    z: Array
    v: Array


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

    Where B is not the identity, ``inner`` describes how exactly the prox of g∘B is computed. Dual steps start where the
    last ones ended (the server sends its dual point, m more numbers down). Without it such a problem is refused. The
    history counts the dual steps.

    What is proved. For f convex, all clients, a constant step and no compressor: O(1/√(n k τ)) plus terms of higher
    order for a mean of the iterates. Gradients must be bounded and client steps small, or losses quadratic (Yuan et al.
    2021). Nothing for falling steps, for the last iterate, or for compressed messages.

    Parameters
    ----------
    step, local_steps, batch_size, server_step, inner
        As for :class:`FedMiD`.

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
        model = facts.model
        return FedDualAvgAlgorithm(self, model, self.schedule(facts.constants), self.inner_for(model), 0.0)


@dataclasses.dataclass(frozen=True)
class FastFedDualAvg(ProximalMethod):
    """Fast federated dual averaging for f + g with f strongly convex, in stages.

    ::

        server:          sends z_k to n clients S, drawn uniformly
        client i in S:   z_i,0 = z_k,   then for t = 0, …, τ − 1, with a = γ((k − k_s)τ + t) and c = 1 + μ̃a
                         x_i,t   = prox_{(a/c) g∘B}( z_i,t / c )
                         z_i,t+1 = z_i,t − γ (∇̃f_i(x_i,t) − μ̃ x_i,t)
                         sends Q(z_i,τ − z_k)
        server:          z_k+1 = z_k + (1/n) Σ_S Q(z_i,τ − z_k)
                         x_k+1 = prox_{(a/c) g∘B}( z_k+1 / c )   with a, c for k + 1, t = 0
                         if a stage begins at k + 1:   k_s = k + 1 and z_k+1 = x_k+1

    Read differently, x minimises the sum over all steps j of the stage of the lower models
    ⟨∇̃f(x_j), x⟩ + (μ̃/2)‖x − x_j‖² + g(Bx), plus ‖x − x_{k_s}‖²/2γ. Plain :class:`FedDualAvg` has μ̃ = 0. The
    curvature makes the weight of a new gradient fall like 1/j by itself, which is what gives the fast rate; so γ is
    constant. The authors sum gradients and iterates apart and send both; only their combination z is ever used, and
    sending it halves the messages. They take μ̃ = μ/2, as is done here.

    What is proved: for one stage, f strongly convex, all clients, no compressor and γ small enough for τ, the expected
    error falls like O(1/(n k τ)) plus terms of higher order (Bao et al. 2022). Restarts are proved for their
    constrained multi-stage form, whose l1 ball shrinks from stage to stage; here stages restart, without a ball.
    Nothing is proved for compressed messages.

    Parameters
    ----------
    step
        γ: a number or ``"auto"``.
    strong_convexity
        μ; by default what is known of f, and a problem where nothing is known is refused.
    restarts
        The rounds at which a new stage begins, ascending.
    local_steps, batch_size, inner
        As for :class:`FedMiD`.

    References
    ----------
    Y. Bao, M. Crawshaw, S. Luo and M. Liu, "Fast composite optimization and statistical recovery in federated
    learning", ICML (2022).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1))
    >>> method = fpdfp.FastFedDualAvg(local_steps=2, restarts=(10, 30))
    >>> fpdfp.solve(problem, method, rounds=1000).x.round(2)
    array([2.57, 2.64, 0.  , 0.  ])
    """

    traits: ClassVar[Traits] = dataclasses.replace(
        FedDualAvg.traits,
        title="local dual averaging with curvature, in stages",
        strong_convexity="needed",
        proved="O(1/k) for f strongly convex, one stage, everyone, uncompressed",
        constant_step=True,
        reference="Bao, Crawshaw, Luo and Liu 2022",
    )

    step: steps.Step = "auto"
    local_steps: int = 1
    batch_size: int | None = None
    strong_convexity: float | None = None
    restarts: tuple[int, ...] = ()
    inner: InnerSolve | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.restarts, tuple | list):
            raise ArgumentTypeError("restarts", f"must be a tuple of rounds, got {type(self.restarts).__name__}")
        restarts = tuple(_checks.integer("restarts: a round", round_, at_least=1) for round_ in self.restarts)
        if any(later <= earlier for earlier, later in itertools.pairwise(restarts)):
            raise ArgumentError("restarts", f"must be ascending, got {restarts}")
        object.__setattr__(self, "restarts", restarts)

    def prepare(self, facts: Facts) -> FastFedDualAvgAlgorithm:
        model, constants = facts.model, facts.constants
        mu = constants.strong_convexity if self.strong_convexity is None else self.strong_convexity
        if mu > constants.lipschitz_mean * (1 + 1e-9):
            raise ArgumentError(
                "strong_convexity",
                f"must be at most the smoothness L of f, which is at most {constants.lipschitz_mean:.6g}, got {mu:g}",
            )
        step = steps.resolve_constant(self.step, self.schedule(constants, "auto")(0))
        return FastFedDualAvgAlgorithm(self, model, step, self.inner_for(model), curvature=float(mu) / 2.0)


@dataclasses.dataclass(frozen=True)
class FedDualAvgAlgorithm(ProximalAlgorithm):
    """Algorithm 3 of Yuan, Zaheer and Reddi; ``curvature`` is μ̃ of :class:`FastFedDualAvg`, and 0 otherwise."""

    method: FedDualAvg | FastFedDualAvg
    curvature: float

    def init(self, x0: Array) -> FedDualAvgState:
        (v,) = self.dual_points(1)
        return FedDualAvgState(x0, np.zeros(1), x0, v, np.zeros(2, dtype=np.int64))

    def broadcast(self, state: FedDualAvgState) -> Any:
        return FedDualAvgMessage(state.z, state.a, state.v)

    def client_update(self, local: LocalLosses, message: Any, k: int, draws: Draws) -> Update:
        gamma, work, rows = self.step(k), Work(), len(local.clients)
        z, v = np.repeat(message.z[None], rows, axis=0), np.repeat(message.v[None], rows, axis=0)
        for t in range(self.method.local_steps):
            x, v, cost = self.read_out(z, v, self.add_steps(message, k, t), gamma)
            work += cost
            gradients = local.gradients(x, self.method.batch_size, draws.at(t))
            z = z - gamma * (gradients - self.curvature * x)
        return Update(DualChange(z - message.z), work=work)

    def server_update(self, state: FedDualAvgState, mean: DualChange, k: int, count: int) -> FedDualAvgState:
        z = state.z + self.method.server_step * mean.z
        a = self.add_round(state, k)
        (x,), (v,), work = self.read_out(z[None], state.v[None], float(a[0]), self.step(k))
        return FedDualAvgState(z, a, x, v, state.work + np.array(work))

    def read_out(self, z: Array, v: Array, a: float, gamma: float) -> Solution:
        """Return x = prox_{(a/c) g∘B}(z/c), c = 1 + μ̃a, for the sum a of all steps."""
        c = 1.0 + self.curvature * a
        return minimise(self.model, Distance(z / c, a / c), v, self.inner, reach=(1.0, gamma / a if a > 0 else 1.0))

    def add_steps(self, message: Any, k: int, t: int) -> float:
        """Return the sum of all steps, t local ones of round k included."""
        return float(message.a[0]) + self.step(k) * t

    def add_round(self, state: FedDualAvgState, k: int) -> Array:
        """Return the sum of all steps after round k."""
        return state.a + self.method.server_step * self.step(k) * self.method.local_steps


@dataclasses.dataclass(frozen=True)
class FastFedDualAvgAlgorithm(FedDualAvgAlgorithm):
    """The same with curvature, in stages. Clients know the sum of a stage's steps, which are all equal."""

    method: FastFedDualAvg

    def broadcast(self, state: FedDualAvgState) -> FastFedDualAvgMessage:
        return FastFedDualAvgMessage(state.z, state.v)

    def server_update(self, state: FedDualAvgState, mean: DualChange, k: int, count: int) -> FedDualAvgState:
        after = super().server_update(state, mean, k, count)
        return after._replace(z=after.x) if self.stage_start(k + 1) == k + 1 else after

    def add_steps(self, message: Any, k: int, t: int) -> float:
        return self.step(k) * ((k - self.stage_start(k)) * self.method.local_steps + t)

    def add_round(self, state: FedDualAvgState, k: int) -> Array:
        return np.array([self.step(k) * ((k + 1 - self.stage_start(k)) * self.method.local_steps)])

    def stage_start(self, k: int) -> int:
        """Return the round at which the stage of round k began."""
        stages = bisect.bisect_right(self.method.restarts, k)
        return self.method.restarts[stages - 1] if stages else 0
