"""FedDR, randomized Douglas–Rachford splitting."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, NamedTuple

import numpy as np

from fpdfp import _checks, steps
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.methods._forms import Primal, ProximalAlgorithm, ProximalMethod, Summing, constant_momentum, start_sums
from fpdfp.methods.base import MAX_LOCAL_STEPS, Facts, Traits, Update
from fpdfp.problem import LocalLosses
from fpdfp.quadratic.solve import minimise
from fpdfp.quadratic.statement import Distance, InnerSolve
from fpdfp.rng import Draws

#: Local steps make a client's mistake smaller than this share of where it began.
LOCAL_ACCURACY = 0.05


class FedDRState(NamedTuple):
    """The model x̄, the mean x̃ of all clients' reflected points, the dual point of the last prox, and its cost."""

    x: Array
    total: Array
    v: Array
    work: Array


class FedDRReply(NamedTuple):
    """The message of a client: the change of its reflected point."""

    reflected: Array


class FedDRMemory(NamedTuple):
    """The memory of a client: y_i − αx_i, and its reflected point x̂_i = 2x_i − y_i, which the server follows."""

    offset: Array
    reflected: Array


@dataclasses.dataclass(frozen=True)
class FedDR(ProximalMethod):
    """Douglas–Rachford splitting over clients, some of which take part in a round; the prox of g on the server.

    ::

        server:          sends x̄_k to n clients S, drawn uniformly
        client i in S:   y_i ← y_i + α (x̄_k − x_i),   x_i ← prox_{ηf_i}( y_i ),   x̂_i⁺ = 2x_i − y_i
                         sends x̂_i⁺ − x̂_i;   x̂_i ← x̂_i⁺
        server:          x̃_k+1 = x̃_k + (1/N) Σ_S (x̂_i⁺ − x̂_i),   x̄_k+1 = prox_{ηg∘B}( x̃_k+1 )

    The prox of f_i is computed by accelerated gradient steps from x̄_k, where it is at the solution. Before they take
    part, clients have x_i = y_i = x̂_i = 0, and x̄_0 = x0: with α = 1 a client's first y_i is what the server sent.

    Where B is not the identity, ``inner`` describes how exactly the server computes the prox of g∘B; without it such a
    problem is refused. The history counts the dual steps.

    What is proved: for f_i smooth and η < 1/L small enough, convex or not, and local solves whose errors can be summed,
    the mean square of the gradient mapping is O(1/k) (Tran-Dinh et al. 2021); for f_i convex, all clients and exact
    solves, convergence for every η > 0 and 0 < α < 2, as of all Douglas–Rachford splitting. ``"auto"`` takes
    η = 1/√(μL_max) for f with a ridge μ, 10/L_max without.

    Parameters
    ----------
    step
        η: a number or ``"auto"``.
    relaxation
        α, above 0 and below 2.
    local_steps
        Accelerated gradient steps of a client in a round; by default enough that they make its mistake twenty times
        smaller.
    inner
        As for :class:`FedMiD`.

    References
    ----------
    Q. Tran-Dinh, N. H. Pham, D. T. Phan and L. M. Nguyen, "FedDR: randomized Douglas–Rachford splitting algorithms for
    nonconvex federated composite optimization", NeurIPS (2021), Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1))
    >>> fpdfp.solve(problem, fpdfp.FedDR(), rounds=200, clients_per_round=1).x.round(2)
    array([2.57, 2.64, 0.  , 0.  ])
    """

    traits: ClassVar[Traits] = Traits(
        title="Douglas–Rachford splitting, local solves, prox on the server",
        solves="f + g",
        sends=("reflected",),
        compression=False,
        mini_batches=False,
        local_steps=True,
        with_inner_solve="f + g∘B",
        strong_convexity="not needed",
        proved="O(1/k) for the gradient mapping, f convex or not, small η, local errors that can be summed",
        constant_step=True,
        reference="Tran-Dinh et al. 2021",
    )

    step: steps.Step = "auto"
    relaxation: float = 1.0
    local_steps: int | None = None  # type: ignore[assignment]
    inner: InnerSolve | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        relaxation = _checks.real("relaxation", self.relaxation, positive=True)
        if relaxation >= 2:
            raise ArgumentError("relaxation", f"must be above 0 and below 2, got {relaxation:g}")
        object.__setattr__(self, "relaxation", relaxation)

    def prepare(self, facts: Facts) -> FedDRAlgorithm:
        model, constants = facts.model, facts.constants
        smoothness, ridge = constants.lipschitz_max or 1.0, constants.least_convexity
        step = steps.resolve_constant(self.step, 1.0 / math.sqrt(ridge * smoothness) if ridge else 10.0 / smoothness)
        tau = 1.0 / step.gamma
        needed = math.ceil(math.sqrt((smoothness + tau) / tau) * math.log(1.0 / LOCAL_ACCURACY))
        return FedDRAlgorithm(
            self,
            model,
            step,
            self.inner_for(model),
            local_steps=self.local_steps or min(MAX_LOCAL_STEPS, needed),
            local_step=1.0 / (smoothness + tau),
            n_clients=constants.n_clients,
        )

    def largest_step(self, facts: Facts) -> float:
        return math.inf


@dataclasses.dataclass(frozen=True)
class FedDRAlgorithm(Summing, ProximalAlgorithm):
    """Algorithm 1 of Tran-Dinh et al.

    A client takes ``local_steps`` accelerated gradient steps of length ``local_step`` for a prox of f_i; ``n_clients``
    is N.
    """

    double: ClassVar[tuple[str, ...]] = ("reflected",)
    shared_memory: ClassVar[tuple[str, ...]] = ("reflected",)

    method: FedDR
    local_steps: int
    local_step: float
    n_clients: int

    @property
    def client_steps(self) -> int:
        return self.local_steps  # the server alone has an inner solve

    def init(self, x0: Array) -> FedDRState:
        return FedDRState(x0, np.zeros_like(x0, dtype=np.float64), self.dual_points(1), np.zeros(2, dtype=np.int64))

    def init_memory(self, n_clients: int) -> FedDRMemory:
        return FedDRMemory(start_sums(self.model, n_clients), start_sums(self.model, n_clients))

    def client_update(self, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        eta, alpha, memory = self.step(k), self.method.relaxation, local.memory
        momentum = constant_momentum(1.0 / eta * self.local_step)
        y = (memory.offset + alpha * message.x).astype(self.model.dtype, copy=False)
        x = point = np.repeat(message.x[None], len(y), axis=0)
        for _ in range(self.local_steps):
            slope = local.gradients(point) + (point - y) / eta
            after = (point - self.local_step * slope).astype(x.dtype, copy=False)
            x, point = after, after + momentum * (after - x)
        change = (2.0 * x - y - memory.reflected).astype(self.model.dtype, copy=False)
        return Update(FedDRReply(change), FedDRMemory((y - alpha * x).astype(np.float64), memory.reflected))

    def server_update(self, state: FedDRState, mean: FedDRReply, k: int, count: int) -> FedDRState:
        total = state.total + count / self.n_clients * mean.reflected
        y = total.astype(self.model.dtype, copy=False)
        (x,), v, work = minimise(self.model, Distance(y[None], self.step(k)), state.v, self.inner)
        return FedDRState(x, total, v, state.work + np.array(work))
