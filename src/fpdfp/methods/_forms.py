"""Algorithms of the same form share what is sent, what is kept, and where the run stands."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from fpdfp._typing import Array
from fpdfp.methods._parameters import largest_local_step
from fpdfp.methods.base import Algorithm, Facts, Method, Update
from fpdfp.methods.traits import Solves
from fpdfp.problem import LocalLosses
from fpdfp.quadratic.statement import InnerSolve, Work, check_inner
from fpdfp.rng import Draws


class Primal(NamedTuple):
    """The primal variable: a state, or what the server sends."""

    x: Array


class Change(NamedTuple):
    """What a client sends: the change of its primal variable."""

    x: Array


class PrimalDual(NamedTuple):
    """The primal and the dual variable: a state, or what the server sends."""

    x: Array
    v: Array


class Gradient(NamedTuple):
    """What a client sends: its gradient."""

    gradient: Array


class PrimalAlgorithm(Algorithm):
    """The server sends x, clients send changes of it, and the server adds their mean."""

    def init(self, x0: Array) -> Primal:
        return Primal(x0)

    def broadcast(self, state: Primal) -> Primal:
        return state

    def server_update(self, state: Primal, mean: Any, k: int, count: int) -> Primal:
        return Primal(state.x + mean.x)

    def solution(self, state: Primal) -> tuple[Array, Array | None]:
        return state.x, None


class GradientAlgorithm(Algorithm):
    """The server sends x, clients send gradients, and the server takes a primal-dual step."""

    def init(self, x0: Array) -> PrimalDual:
        return PrimalDual(x0, self.model.xp.zeros(self.model.dual_shape, dtype=x0.dtype))

    def broadcast(self, state: PrimalDual) -> Primal:
        return Primal(state.x)

    def client_update(self, local: LocalLosses, message: Primal, k: int, draws: Draws) -> Update:
        return Update(Gradient(local.gradients(message.x, self.method.batch_size, draws)))

    def solution(self, state: PrimalDual) -> tuple[Array, Array | None]:
        return state.x, state.v


class ProximalMethod(Method):
    """A method whose clients take local steps with the prox of g∘B, by an inner solve where B is not the identity."""

    inner: InnerSolve | None
    local_steps: int
    #: η, where a method has no such hyper-parameter.
    server_step: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_inner(self.inner)

    @property
    def solves(self) -> Solves:
        return "f + g" if self.inner is None else "f + g∘B"

    def largest_step(self, facts: Facts) -> float:
        # A server step above 1 makes a round that much longer.
        return largest_local_step(facts.constants, self.local_steps) / max(1.0, self.server_step)


@dataclasses.dataclass(frozen=True)
class ProximalAlgorithm(Algorithm):
    """The algorithm of such a method.

    Attributes
    ----------
    inner
        How exactly the prox of g∘B is computed; None where it has a closed form.
    """

    inner: InnerSolve | None

    @property
    def has_inner_solve(self) -> bool:
        return self.inner is not None

    @property
    def client_steps(self) -> int:
        return super().client_steps * (1 if self.inner is None else self.inner.max_steps)

    def dual_points(self, rows: int) -> Array:
        """Return dual points for inner solves to start from; empty ones where there are none."""
        shape = self.model.dual_shape if self.has_inner_solve else (0,)
        points: Array = self.model.xp.zeros((rows, *shape), dtype=self.model.dtype)
        return points

    def solution(self, state: Any) -> tuple[Array, Array | None]:
        return state.x, None

    def server_work(self, state: Any) -> Work:
        return Work(*map(int, state.work))
