"""Base of methods that work in the coordinates of a preconditioner, with the prox of g∘B on the server."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.linops import Compose, LinOp
from fpdfp.methods._forms import ServerSolves
from fpdfp.methods.base import Facts, Method
from fpdfp.penalties.base import Zero
from fpdfp.precondition import Preconditioner, QuantizedMoments, Scaling, Whitening, exchange
from fpdfp.precondition.agreement import Agreement, Clients, Wanted, agree
from fpdfp.precondition.quantized import nearest_powers
from fpdfp.problem import Model
from fpdfp.quadratic.banded import Banded
from fpdfp.quadratic.solve import CHEAP, banded, closed_prox, dense, minimise, needs_inner
from fpdfp.quadratic.statement import Distance, InnerSolve, Work

#: How near to the prox the server goes, relative to the progress of the round, and where Newton steps make it cheap.
TOLERANCE, FINE_TOLERANCE = 0.1, 0.01
#: The most dual steps in a round, at first and at all, and on average, where they are chosen automatically.
DUAL_STEPS, MOST_DUAL_STEPS, MEAN_DUAL_STEPS = 100, 3200, 400
#: The largest condition number κ for which the dual steps of one round are enough: they need √κ ln(1/tolerance). In the
#: coordinates of a whitening, κ is about the ratio of the largest to the smallest mean square of a feature.
UNEVEN = (MOST_DUAL_STEPS / math.log(1.0 / TOLERANCE)) ** 2
#: Multiplications that a Newton step of the prox may cost in the coordinates of a preconditioner, in which dual steps
#: alone can be so far from the prox that a run diverges; and for a penalty of x itself, for which few Newton steps do.
DEAR, OF_X = 1 << 28, 1 << 30


class DualBudget(NamedTuple):
    """The dual steps taken so far, and the most of the next round."""

    taken: int
    most: int

    def pack(self) -> Array:
        """Return an array, for the state."""
        return np.array(self, dtype=np.int64)


@dataclasses.dataclass(frozen=True)
class ServerProx:
    """prox_{γ g∘B} on the server, by dual steps that are warm-started and stop when they no longer matter.

    Attributes
    ----------
    model
        g and B, in the coordinates of the algorithm.
    dual_steps
        The most dual steps of a round; None chooses them, and allows Newton steps.
    newton_cost
        The most multiplications of a Newton step.
    """

    model: Model
    dual_steps: int | None
    newton_cost: int

    @functools.cached_property
    def is_closed(self) -> bool:
        """Whether the prox has a closed form that is not just y."""
        return not (needs_inner(self.model) or isinstance(self.model.penalty, Zero))

    @functools.cached_property
    def matrix(self) -> Array | Banded | None:
        """How Newton steps are taken, where they are cheap and allowed: with B as a matrix, or with a narrow band."""
        if self.dual_steps is not None:
            return None
        small = dense(self.model)
        if small is not None or self.newton_cost <= CHEAP:
            return small
        found = banded(self.model)
        return dense(self.model, self.newton_cost) if found is None else found

    def start(self) -> DualBudget:
        """Return the budget of the first round."""
        return DualBudget(0, self.dual_steps or DUAL_STEPS)

    def apply(self, y: Array, gamma: float, v: Array, origin: Array, most: int) -> tuple[Array, Array, Work]:
        """Return x ≈ prox_{γ g∘B}(y), its dual, and what it took; v is where to start, origin where the round began."""
        if self.is_closed:
            x, dual = closed_prox(self.model, y, gamma)
            return x, dual[None], Work()
        inner = InnerSolve(FINE_TOLERANCE if isinstance(self.matrix, np.ndarray) else TOLERANCE, most)
        prox = Distance(y[None], gamma)
        (x,), v, work = minimise(self.model, prox, v, inner, origin=origin[None], matrix=self.matrix)
        return x, v, work

    def allow(self, before: DualBudget, work: Work, k: int) -> DualBudget:
        """Return the budget after round k; where it is chosen automatically, more after it was too small."""
        taken, most = before.taken + work.steps, before.most
        if self.dual_steps is None:
            # Near the solution no number is enough, since progress is no more than rounding: so on average few are.
            affordable = taken + 2 * most <= MEAN_DUAL_STEPS * (k + 2)
            most = min(2 * most, MOST_DUAL_STEPS) if work.unsolved and affordable else DUAL_STEPS
        return DualBudget(taken, most)


class PreconditionedMethod(Method):
    """A method with the hyper-parameters ``preconditioner`` and ``dual_steps``."""

    preconditioner: Wanted
    dual_steps: int | None

    def __post_init__(self) -> None:
        super().__post_init__()
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
        """Have clients send what the preconditioner is made of.

        Features of very different sizes get units in powers of two alone, except where the penalty is a finite one of
        single entries of x. In the coordinates of a whitening the prox of others is as badly conditioned as the
        features are, and one of limits is a quadratic programme that dual steps do not solve.
        """
        found = agree(self.preconditioner, clients)
        made, model = found.coordinates, clients.model
        entries = model.penalty.separable and model.penalty.finite and model.linop.is_identity and len(model.shape) == 1
        if self.preconditioner != "auto" or not isinstance(made, Whitening) or isinstance(model.penalty, Zero):
            return found
        diagonal = made.diagonal
        if entries or diagonal.max() <= UNEVEN * diagonal.min():
            return found
        units = Scaling.coarse(nearest_powers(diagonal), made.rows)
        return Agreement(units, "units in powers of two, since features differ by far")

    def largest_step(self, facts: Facts) -> float:
        return 2.0 / (facts.constants.lipschitz_mean or 1.0)


@dataclasses.dataclass(frozen=True)
class PreconditionedAlgorithm(ServerSolves):
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
    def prox(self) -> ServerProx:
        """The prox of g∘B in the coordinates of the algorithm."""
        model, factor = self.model, self.factor
        if factor is None:
            return ServerProx(model, self.method.dual_steps, CHEAP)
        inside = model._replace(linop=factor if model.linop.is_identity else Compose(model.linop, factor))
        return ServerProx(inside, self.method.dual_steps, OF_X if model.linop.is_identity else DEAR)

    @property
    def summary(self) -> str:
        name = super().summary
        return name if self.coordinates is None else f"{name}, preconditioner {type(self.coordinates).__name__}"

    @property
    def reason(self) -> str:
        return self.chosen
