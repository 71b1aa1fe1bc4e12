"""FedProx, federated averaging with a proximal term in the local objective."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fpdfp import _checks, steps
from fpdfp._typing import Array, Shape
from fpdfp.methods._common import mean
from fpdfp.methods._local_sgd import LocalSGD
from fpdfp.methods.base import Update, Work
from fpdfp.methods.traits import Traits
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Draws


class State(NamedTuple):
    """The model, which the server also broadcasts."""

    x: Array


class Reply(NamedTuple):
    """What a client sends: the change of its model."""

    x: Array


@dataclasses.dataclass(frozen=True)
class FedProx(LocalSGD):
    """FedAvg with a proximal term that keeps clients near the server's model.

    ::

        server:          sends x_k to n clients S, drawn uniformly
        client i in S:   x_i ≈ argmin_x h_i(x) = f_i(x) + (ρ/2) ‖x − x_k‖²,   by at most τ steps
                         x_i,t+1 = x_i,t − γ_k (∇̃f_i(x_i,t) + ρ (x_i,t − x_k)),   x_i,0 = x_k
                         sends Q(x_i − x_k)
        server:          x_k+1 = x_k + (1/n) Σ_S Q(x_i − x_k)

    With an ``inexactness`` η a client stops as soon as ‖∇h_i(x)‖ ≤ η ‖∇h_i(x_k)‖, as the paper defines an inexact
    solution; without, it takes τ steps. The history then counts the steps as inner steps. ρ = 0 is FedAvg. It
    minimises f alone.

    What is proved: for an exact or η-inexact local solve, bounded dissimilarity of the clients and ρ large enough,
    the expected objective decreases by a multiple of ‖∇f(x_k)‖² each round (Li et al. 2020, Theorem 4); not for
    compressed messages. For clients that differ, its fixed point is not the minimiser of f.

    Parameters
    ----------
    rho
        ρ, the weight of the proximal term.
    step
        γ_k: a number, a schedule of :mod:`fpdfp.steps`, or ``"auto"``.
    local_steps
        τ, the most steps of a local solve.
    inexactness
        η between 0 and 1, for full gradients; None takes all τ steps.
    batch_size
        The size of the mini-batches; None uses all samples.
    averaging
        ``"weighted"`` or ``"plain"``, as for :class:`FedAvg`.
    penalty
        What to do with a penalty: ``"refuse"`` it, add a ``"subgradient"`` of g∘B to every gradient, or ``"ignore"``
        it and minimise f.

    References
    ----------
    T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar and V. Smith, "Federated optimization in heterogeneous
    networks", MLSys (2020).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    >>> method = fpdfp.FedProx(rho=0.5, local_steps=20, inexactness=0.1)
    >>> fpdfp.solve(problem, method, rounds=3000).x.round(2)
    array([2.86, 2.93, 0.  , 0.07])
    """

    traits: ClassVar[Traits] = Traits(
        title="local solves with a proximal term",
        solves="f",
        uplink="d",
        local_steps=True,
        strong_convexity="not needed",
        proved="decrease in every round for clients of bounded dissimilarity and ρ large enough, uncompressed",
        reference="Li et al. 2020",
    )

    rho: float
    step: Any = "auto"
    local_steps: int = 10
    inexactness: float | None = None
    batch_size: int | None = None
    averaging: str = "weighted"
    penalty: str = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.real("rho", self.rho, at_least=0.0)
        if self.inexactness is None:
            return
        if not 0.0 < _checks.real("inexactness", self.inexactness) < 1.0:
            raise ValueError(f"inexactness must be above 0 and below 1, got {self.inexactness:g}")
        if self.batch_size is not None:
            raise ValueError("inexactness must be None with batch_size: mini-batches do not tell how far a solve is")

    @property
    def has_inner_solve(self) -> bool:
        return self.inexactness is not None

    def smoothness(self, constants: steps.Constants) -> float:
        return super().smoothness(constants) + self.rho

    def prepare(self, model: Model, constants: steps.Constants) -> FedProx:
        return dataclasses.replace(self, step=self.choose_step(model, constants))

    def reply_shapes(self, model: Model) -> dict[str, Shape]:
        return {"x": model.shape}

    def init(self, model: Model, x0: Array) -> State:
        return State(x0)

    def broadcast(self, model: Model, state: State) -> State:
        return state

    def client_update(self, model: Model, local: LocalLosses, message: State, k: int, draws: Draws) -> Update:
        x_k, gamma = message.x, self.schedule()(k)
        x = np.repeat(x_k[None], len(local.clients), axis=0)
        todo = np.ones(len(x), dtype=bool)
        enough: Array = np.zeros(len(x))
        work = 0
        for t in range(self.local_steps):
            slope = self.gradients(model, local, x, draws._replace(step=t)) + self.rho * (x - x_k)
            if self.inexactness is not None:
                size = np.sqrt((slope * slope).reshape(len(x), -1).sum(axis=1))
                enough = self.inexactness * size if t == 0 else enough
                todo &= size > enough
                work += int(todo.sum())
                if not todo.any():
                    break
            x = np.where(todo.reshape(-1, *[1] * len(model.shape)), x - gamma * slope, x)
        change = x - x_k
        return Update(Reply(local.weigh(change) if self.weighs(local) else change), work=Work(work))

    def server_update(self, model: Model, state: State, reply: Reply, k: int) -> State:
        return State(state.x + mean(reply.x))

    def solution(self, state: State) -> tuple[Array, Array | None]:
        return state.x, None
