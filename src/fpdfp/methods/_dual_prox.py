"""The prox of g∘B on the server, by dual steps that are warm-started and stop when they no longer matter."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.methods.base import Work
from fpdfp.methods.inner import DEAR, OF_X, InnerSolve, closed_prox, dense, needs_inner, prox
from fpdfp.penalties import Zero
from fpdfp.precondition import Preconditioner
from fpdfp.problem import Model

#: How near to the prox the server goes, relative to the progress of the round.
TOLERANCE = 0.1
#: The same where Newton steps make accuracy cheap.
FINE_TOLERANCE = 0.01
#: The most dual steps in a round, at first and at all, and on average, where they are chosen automatically.
DUAL_STEPS, MOST_DUAL_STEPS, MEAN_DUAL_STEPS = 100, 3200, 400


class DualBudget(NamedTuple):
    """The dual steps taken so far, and the most of the next round."""

    taken: int
    most: int


@dataclasses.dataclass(frozen=True)
class DualProx:
    """prox_{γ g∘B} for a model, by at most so many dual steps a round.

    Attributes
    ----------
    model
        g and B, in the coordinates of the algorithm.
    dual_steps
        The most dual steps of a round; None chooses them.
    plain, coordinates
        g and B in the coordinates of x, and the preconditioner.
    """

    model: Model
    dual_steps: int | None
    plain: Model
    coordinates: Preconditioner | None

    @functools.cached_property
    def is_closed(self) -> bool:
        """Whether the prox has a closed form that is not just y."""
        return not (needs_inner(self.model) or isinstance(self.model.penalty, Zero))

    @functools.cached_property
    def matrix(self) -> Array | None:
        """B as a matrix, where Newton steps are cheap and may be taken."""
        if self.dual_steps is not None or not needs_inner(self.model):
            return None
        matrix = dense(self.model)
        if matrix is not None or self.coordinates is None:
            return matrix
        return dense(self.model, OF_X if self.plain.linop.is_identity else DEAR)

    def start(self) -> DualBudget:
        """Return the budget of the first round."""
        return DualBudget(0, self.dual_steps or DUAL_STEPS)

    def apply(self, y: Array, gamma: float, v: Array, origin: Array, most: int) -> tuple[Array, Array, Work]:
        """Return x ≈ prox_{γ g∘B}(y), its dual, and what it took; v is where to start, origin where the round began."""
        if self.is_closed:
            x, dual = closed_prox(self.model, y, gamma)
            return x, dual[None], Work()
        inner = InnerSolve(TOLERANCE if self.matrix is None else FINE_TOLERANCE, most)
        (x,), v, work = prox(self.model, y[None], gamma, v, inner, origin=origin[None], matrix=self.matrix)
        return x, v, work

    def allow(self, before: DualBudget, work: Work, k: int) -> DualBudget:
        """Return the budget after round k; where it is chosen automatically, more after it was too small."""
        taken, most = before.taken + work.steps, before.most
        if self.dual_steps is None:
            # Near the solution no number is enough, since progress is no more than rounding: so on average few are.
            affordable = taken + 2 * most <= MEAN_DUAL_STEPS * (k + 2)
            most = min(2 * most, MOST_DUAL_STEPS) if work.unsolved and affordable else DUAL_STEPS
        return DualBudget(taken, most)


def pack(budget: DualBudget) -> Array:
    """Return a budget as an array, for the state."""
    return np.array(budget, dtype=np.int64)
