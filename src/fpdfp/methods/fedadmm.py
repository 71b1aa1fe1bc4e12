"""FedADMM, federated learning with the augmented Lagrangian."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from fpdfp import steps
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.methods._forms import Primal, SmoothAlgorithm, SmoothMethod, Summing, largest_local_step, start_sums
from fpdfp.methods.base import Facts, Traits, Update
from fpdfp.problem import LocalLosses
from fpdfp.rng import Draws


class FedADMMState(NamedTuple):
    """The model x, and the same in float64: the mean of all clients' augmented models."""

    x: Array
    total: Array


class FedADMMReply(NamedTuple):
    """The message of a client: the change of its augmented model."""

    augmented: Array


class FedADMMMemory(NamedTuple):
    """The memory of a client: its dual variable, and its augmented model w_i + y_i/ρ, which the server follows."""

    dual: Array
    augmented: Array


@dataclasses.dataclass(frozen=True)
class FedADMM(SmoothMethod):
    """Local steps on the augmented Lagrangian: FedProx with dual variables, which undo its bias.

    ::

        server:          sends x_k to n clients S, drawn uniformly
        client i in S:   w_i ≈ argmin_w f_i(w) + ⟨y_i, w − x_k⟩ + (ρ/2) ‖w − x_k‖²,   by τ steps from x_k
                         w ← w − γ_k (∇̃f_i(w) + y_i + ρ (w − x_k))
                         y_i ← y_i + ρ (w_i − x_k),   a_i⁺ = w_i + y_i/ρ,   sends a_i⁺ − a_i;   a_i ← a_i⁺
        server:          x_k+1 = x_k + (1/N) Σ_S (a_i⁺ − a_i)

    The server's step is the paper's with η = n/N, for which x_k is the mean of all a_i. Before they take part, clients
    have a_i = y_i = 0, and the mean takes the place of x0 after the first round. The authors' published code has η as
    an option, and measures the change of w_i from x_k instead of from the client's last w_i. It minimises f alone.
    With exact local solves it is :class:`FedDR` for g = 0, α = 1 and η = 1/ρ.

    What is proved. Let f be smooth, convex or not, ρ above a multiple of L, and local solves of a fixed accuracy. Then
    the mean of the squared gradients is O(1/k) up to that accuracy (Gong, Li and Freris 2022).

    Parameters
    ----------
    rho
        ρ; by default L_max.
    step
        γ_k: a number, a schedule of :mod:`fpdfp.steps`, or ``"auto"``, which is 1/(L_max + ρ), and falls with
        mini-batches.
    local_steps, batch_size, penalty
        As for :class:`FedAvg`.

    References
    ----------
    Y. Gong, Y. Li and N. M. Freris, "FedADMM: a robust federated deep learning framework with adaptivity to system
    heterogeneity", ICDE (2022), Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    >>> fpdfp.solve(problem, fpdfp.FedADMM(), rounds=300, clients_per_round=1).x.round(2)
    array([2.86, 2.93, 0.  , 0.07])
    """

    traits: ClassVar[Traits] = Traits(
        title="local steps on the augmented Lagrangian, mean of augmented models",
        solves="f",
        sends=("augmented",),
        compression=False,
        local_steps=True,
        strong_convexity="not needed",
        proved="O(1/k) for squared gradients, f convex or not, up to the accuracy of local solves, ρ large enough",
        reference="Gong, Li and Freris 2022",
    )

    rho: float | None = None
    step: steps.Step = "auto"
    local_steps: int = 10
    batch_size: int | None = None
    penalty: Literal["refuse", "subgradient", "ignore"] = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rho == 0:
            raise ArgumentError("rho", "must be greater than 0 for FedADMM, got 0; FedAvg has no proximal term")

    def choose_rho(self, constants: steps.Constants) -> float:
        """Return ρ."""
        return self.rho or constants.lipschitz_max or 1.0

    def prepare(self, facts: Facts) -> FedADMMAlgorithm:
        constants, rho = facts.constants, self.choose_rho(facts.constants)
        schedule = self.schedule_from(1.0 / (constants.lipschitz_max + constants.batch_smoothness + rho), facts)
        return FedADMMAlgorithm(self, facts.model, schedule, rho, constants.n_clients)

    def largest_step(self, facts: Facts) -> float:
        smoothness = facts.constants.lipschitz_max + self.choose_rho(facts.constants)
        return largest_local_step(facts.constants, self.local_steps, smoothness=smoothness)


@dataclasses.dataclass(frozen=True)
class FedADMMAlgorithm(Summing, SmoothAlgorithm):
    """Algorithm 1 of Gong, Li and Freris with η = n/N; ``rho`` is ρ and ``n_clients`` N."""

    double: ClassVar[tuple[str, ...]] = ("augmented",)
    shared_memory: ClassVar[tuple[str, ...]] = ("augmented",)

    method: FedADMM
    rho: float
    n_clients: int

    def init(self, x0: Array) -> FedADMMState:
        return FedADMMState(x0, np.zeros_like(x0, dtype=np.float64))

    def init_memory(self, n_clients: int) -> FedADMMMemory:
        return FedADMMMemory(start_sums(self.model, n_clients), start_sums(self.model, n_clients))

    def client_update(self, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        gamma, rho, x, memory = self.step(k), self.rho, message.x, local.memory
        dual = memory.dual.astype(self.model.dtype, copy=False)
        w = np.repeat(x[None], len(dual), axis=0)
        for t in range(self.method.local_steps):
            gradients = local.gradients(w, self.method.batch_size, draws.at(t)) + self.slope(w)
            w = w - gamma * (gradients + dual + rho * (w - x))
        dual = memory.dual + rho * (w - x)
        change = (w + dual / rho - memory.augmented).astype(self.model.dtype, copy=False)
        return Update(FedADMMReply(change), FedADMMMemory(dual, memory.augmented))

    def server_update(self, state: FedADMMState, mean: FedADMMReply, k: int, count: int) -> FedADMMState:
        total = state.total + count / self.n_clients * mean.augmented
        return FedADMMState(total.astype(self.model.dtype, copy=False), total)
