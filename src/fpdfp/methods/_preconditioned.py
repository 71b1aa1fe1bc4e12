"""What methods share that work in the coordinates of a preconditioner, with the prox of g∘B on the server."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from fpdfp import _checks
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.linops import Compose, LinOp
from fpdfp.methods._dual_prox import DualProx
from fpdfp.methods.base import Algorithm, Facts, Method, Work
from fpdfp.precondition import Preconditioner, QuantizedMoments, exchange
from fpdfp.precondition.agreement import Agreement, Clients, Wanted, agree
from fpdfp.problem import Model


class PreconditionedMethod(Method):
    """A method with the hyper-parameters ``preconditioner`` and ``dual_steps``."""

    preconditioner: Wanted
    dual_steps: int | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dual_steps is not None:
            object.__setattr__(self, "dual_steps", _checks.integer("dual_steps", self.dual_steps, at_least=1))
        given = self.preconditioner
        if isinstance(given, str):
            _checks.choice("preconditioner", given, exchange.KINDS)
        elif not isinstance(given, Preconditioner | QuantizedMoments | None):
            raise ArgumentTypeError(
                "preconditioner",
                f"must be one of {', '.join(map(repr, exchange.KINDS))}, one of fpdfp.precondition or None, got "
                f"{_checks.kind(given)}",
            )

    def check(self, model: Model) -> None:
        super().check(model)
        given = self.preconditioner
        if isinstance(given, Preconditioner) and given.factor.in_shape != model.shape:
            there = given.factor.in_shape
            raise ArgumentError("preconditioner", f"must be for x of shape {model.shape}, got one for {there}")

    def agree(self, clients: Clients) -> Agreement:
        """Have clients send what the preconditioner is made of."""
        return agree(self.preconditioner, clients)

    def largest_step(self, facts: Facts) -> float:
        return 2.0 / (facts.constants.lipschitz_mean or 1.0)


@dataclasses.dataclass(frozen=True)
class PreconditionedAlgorithm(Algorithm):
    """An algorithm in the coordinates u of a preconditioner, x = S u, whose state counts dual steps in ``work``.

    Attributes
    ----------
    coordinates, chosen
        The preconditioner, and why it was chosen.
    """

    method: Any
    coordinates: Preconditioner | None
    chosen: str = dataclasses.field(repr=False)

    @property
    def factor(self) -> LinOp | None:
        return None if self.coordinates is None else self.coordinates.factor

    @functools.cached_property
    def prox(self) -> DualProx:
        """The prox of g∘B in the coordinates of the algorithm."""
        model, factor = self.model, self.factor
        if factor is not None:
            model = model._replace(linop=factor if model.linop.is_identity else Compose(model.linop, factor))
        return DualProx(model, self.method.dual_steps, self.model, self.coordinates)

    @property
    def has_inner_solve(self) -> bool:
        return True

    @property
    def summary(self) -> str:
        name = super().summary
        return name if self.coordinates is None else f"{name}, preconditioner {type(self.coordinates).__name__}"

    @property
    def reason(self) -> str:
        return self.chosen

    def server_work(self, state: Any) -> Work:
        return Work(int(state.work[0]))
