"""FedADMM, federated learning with the augmented Lagrangian."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from fpdfp import steps
from fpdfp._typing import Array, Shape
from fpdfp.methods._common import check_hyper_parameters, largest_local_step, mean
from fpdfp.methods._forms import Primal
from fpdfp.methods._smooth import SmoothMethod
from fpdfp.methods.base import Update
from fpdfp.methods.traits import Traits
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Draws


class State(NamedTuple):
    """The model θ, and the mean of all clients' augmented models."""

    x: Array
    total: Array


class Reply(NamedTuple):
    """What a client sends: the change of its augmented model."""

    augmented: Array


class Memory(NamedTuple):
    """What a client keeps: its dual variable, and its augmented model w_i + y_i/ρ, which the server follows."""

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
    have a_i = y_i = 0, and the mean takes the place of x0 after the first round. It minimises f alone. With exact local
    solves it is :class:`FedDR` for g = 0, α = 1 and η = 1/ρ.

    What is proved: for f smooth, convex or not, ρ above a multiple of L and local solves to a fixed accuracy, the mean
    of the squared gradients is O(1/k) up to that accuracy (Gong, Li and Freris 2022).

    Parameters
    ----------
    rho
        ρ; by default L_max.
    step
        γ_k: a number, a schedule of :mod:`fpdfp.steps`, or ``"auto"``, which is 1/(L_max + ρ), and falls with
        mini-batches.
    local_steps
        τ.
    batch_size
        The size of the mini-batches; None uses all samples.
    penalty
        What to do with a penalty: ``"refuse"`` it, add a ``"subgradient"`` of g∘B to every gradient, or ``"ignore"``
        it and minimise f.
    n_clients
        Filled in by ``solve``.

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
        uplink="d",
        compression=False,
        local_steps=True,
        strong_convexity="not needed",
        proved="O(1/k) for squared gradients, f convex or not, up to the accuracy of local solves, ρ large enough",
        reference="Gong, Li and Freris 2022",
    )
    shared_memory: ClassVar[tuple[str, ...]] = ("augmented",)

    rho: float | None = None
    step: steps.Step = "auto"
    local_steps: int = 10
    batch_size: int | None = None
    penalty: Literal["refuse", "subgradient", "ignore"] = "refuse"
    n_clients: int | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_hyper_parameters(self)
        if self.rho == 0:
            raise ValueError("rho must be greater than 0 for FedADMM, got 0; FedAvg has no proximal term")

    def prepare(self, model: Model, constants: steps.Constants) -> FedADMM:
        rho = self.rho or constants.lipschitz_max or 1.0
        schedule = steps.check(self.step)
        if schedule == "auto":
            gamma = 1.0 / (constants.lipschitz_max + constants.batch_smoothness + rho)
            noisy = self.batch_size is not None or self.uses_subgradients(model)
            schedule = steps.Automatic(gamma, constants.strong_convexity) if noisy else steps.Constant(gamma)
        schedule = steps.resolve(schedule, constants, noisy=False)
        return dataclasses.replace(self, rho=rho, step=schedule, n_clients=constants.n_clients)

    def largest_step(self, model: Model, constants: steps.Constants) -> float:
        if self.local_steps == 1:
            return constants.largest_safe_step
        return largest_local_step(constants, self.local_steps, smoothness=constants.lipschitz_max + (self.rho or 0.0))

    def reply_shapes(self, model: Model) -> dict[str, Shape]:
        return {"augmented": model.shape}

    def init(self, model: Model, x0: Array) -> State:
        return State(x0, np.zeros_like(x0, dtype=np.float64))

    def init_memory(self, model: Model, n_clients: int) -> Memory:
        zeros = model.xp.zeros((n_clients, *model.shape), dtype=np.float64)
        return Memory(zeros, zeros.copy())

    def broadcast(self, model: Model, state: State) -> Primal:
        return Primal(state.x)

    def client_update(self, model: Model, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        assert self.rho is not None
        gamma, x = self.schedule()(k), message.x
        dual = local.memory.dual.astype(model.dtype, copy=False)
        w = np.repeat(x[None], len(dual), axis=0)
        for t in range(self.local_steps):
            gradients = local.gradients(w, self.batch_size, draws._replace(step=t)) + self.slope(model, w)
            w = w - gamma * (gradients + dual + self.rho * (w - x))
        dual = local.memory.dual + self.rho * (w - x)
        augmented = (w + dual / self.rho - local.memory.augmented).astype(model.dtype, copy=False)
        return Update(Reply(augmented), Memory(dual, local.memory.augmented))

    def remember(self, model: Model, shared: dict[str, Array], sent: Reply, k: int) -> dict[str, Array]:
        return {"augmented": shared["augmented"] + sent.augmented.astype(np.float64)}

    def server_update(self, model: Model, state: State, reply: Reply, k: int) -> State:
        assert self.n_clients is not None
        total = state.total + len(reply.augmented) / self.n_clients * mean(reply.augmented.astype(np.float64))
        return State(total.astype(model.dtype, copy=False), total)

    def solution(self, state: State) -> tuple[Array, Array | None]:
        return state.x, None
