"""What methods of the same form share: what is sent, what is kept, and where the run stands."""

from __future__ import annotations

from typing import Any, NamedTuple

from fpdfp import steps
from fpdfp._typing import Array, Shape
from fpdfp.methods._common import check_hyper_parameters, largest_local_step, mean
from fpdfp.methods.base import Method, Update, Work
from fpdfp.methods.inner import InnerSolve, check_inner
from fpdfp.methods.traits import Solves
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Draws


class Primal(NamedTuple):
    """The model, which the server also broadcasts."""

    x: Array


class Change(NamedTuple):
    """What a client sends: the change of its model."""

    x: Array


class PrimalForm(Method):
    """The server sends x, clients send changes of it, and the server adds their mean."""

    def reply_shapes(self, model: Model) -> dict[str, Shape]:
        return {"x": model.shape}

    def init(self, model: Model, x0: Array) -> Primal:
        return Primal(x0)

    def broadcast(self, model: Model, state: Primal) -> Primal:
        return state

    def server_update(self, model: Model, state: Primal, reply: Any, k: int) -> Primal:
        return Primal(state.x + mean(reply.x))

    def solution(self, state: Primal) -> tuple[Array, Array | None]:
        return state.x, None


class PrimalDual(NamedTuple):
    """The primal and the dual variable."""

    x: Array
    v: Array


class Gradient(NamedTuple):
    """What a client sends: its gradient."""

    gradient: Array


class GradientForm(Method):
    """The server sends x, clients send gradients, and the server takes a primal-dual step."""

    def reply_shapes(self, model: Model) -> dict[str, Shape]:
        return {"gradient": model.shape}

    def init(self, model: Model, x0: Array) -> PrimalDual:
        return PrimalDual(x0, model.xp.zeros(model.dual_shape, dtype=x0.dtype))

    def broadcast(self, model: Model, state: PrimalDual) -> Primal:
        return Primal(state.x)

    def client_update(self, model: Model, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        return Update(Gradient(local.gradients(message.x, self.batch_size, draws)))

    def solution(self, state: PrimalDual) -> tuple[Array, Array | None]:
        return state.x, state.v


class ProximalForm(Method):
    """Clients take local steps with the prox of g∘B, by an inner solve where B is not the identity."""

    inner: InnerSolve | None
    #: η, where a method has no such hyper-parameter.
    server_step: float = 1.0

    def __post_init__(self) -> None:
        check_hyper_parameters(self)
        check_inner(self.inner)

    @property
    def solves(self) -> Solves:
        return "f + g" if self.inner is None else "f + g∘B"

    @property
    def has_inner_solve(self) -> bool:
        return self.inner is not None

    def largest_step(self, model: Model, constants: steps.Constants) -> float:
        # A server step above 1 makes a round that much longer.
        return largest_local_step(constants, self.local_steps) / max(1.0, self.server_step)

    def dual_points(self, model: Model, rows: int) -> Array:
        """Return dual points for inner solves to start from; empty ones where there are none."""
        shape = model.dual_shape if self.has_inner_solve else (0,)
        points: Array = model.xp.zeros((rows, *shape), dtype=model.dtype)
        return points

    def solution(self, state: Any) -> tuple[Array, Array | None]:
        return state.x, None

    def server_work(self, state: Any) -> Work:
        return Work(*map(int, state.work))
