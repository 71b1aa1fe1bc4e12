"""Questions about the losses of a whole cohort: sums over its clients, which hide single ones."""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.cohorts.question import Question, question, reveals
from fpdfp.errors import MessageError
from fpdfp.precondition.base import lower
from fpdfp.problem import LocalLosses

#: What may be asked at a point, and without one.
Part = Literal["value", "gradient", "hessian", "information", "start", "level", "curvature", "slopes", "facts"]
#: Parts that are about no point.
ANYWHERE = ("start", "level", "curvature", "slopes", "facts")


class SumsAtPoint(NamedTuple):
    """Each client's part of the sums; parts that are not requested are empty.

    Attributes
    ----------
    outside
        Whether a loss is not finite at the point; its numbers are then zeros.
    value, gradient, matrix
        The loss, its gradient (or the slope of a model to start from), and the lower triangle of a matrix.
    facts
        The number of rows, and a flag if the Hessian has no bound; ``gradient`` is the diagonal of such a bound.
    """

    outside: Array
    value: Array
    gradient: Array
    matrix: Array
    facts: Array


@question("sums_at")
@dataclasses.dataclass(frozen=True)
class SumsAt(Question):
    """Sums over clients, each with its weight: losses, gradients and Hessians at a point, or what a run starts from.

    Attributes
    ----------
    parts
        What is asked: ``"value"``, ``"gradient"`` and ``"hessian"`` or ``"information"`` at a point; the models that a
        fit may start from; the bound of the Hessian; bounds of slopes; or the facts.
    x
        The point.
    """

    parts: tuple[Part, ...]
    x: Array | None = None

    reveals = reveals(
        points="x", settings="parts",
        uses="values gradients hessians informations start_model curvatures curvature_diagonals slope_bounds",
    )  # fmt: skip

    def __post_init__(self) -> None:
        anywhere = [part for part in self.parts if part in ANYWHERE]
        if not self.parts or (len(self.parts) > 1 and anywhere) or (self.x is None) != bool(anywhere):
            raise MessageError("sums must be of a point, or one of what is about no point")
        if {"hessian", "information"} <= set(self.parts):
            raise MessageError("parts must have one matrix at most")
        if self.x is not None and (self.x.dtype != np.float64 or not np.isfinite(self.x).all()):
            raise MessageError("x must be finite numbers in float64")

    @property
    def tells_pairs(self) -> bool:
        """Whether a matrix is requested."""
        return bool({"hessian", "information", "curvature", "start", "level"} & set(self.parts))

    def answer(self, local: LocalLosses) -> SumsAtPoint:
        """Return what clients add to the sums."""
        losses, parts, n = local.losses, self.parts, len(local.clients)
        value, gradient, matrix = np.zeros((n, 0)), np.zeros((n, 0)), np.zeros((n, 0))
        outside, facts = np.zeros((n, 1)), np.zeros((n, 0))
        if parts == ("facts",):
            # not Lipschitz constants: sums of largest eigenvalues in other coordinates would tell each term
            bounds = local.curvature_diagonals()
            facts = np.column_stack([losses.sizes, np.full(n, bounds is None)])
            gradient = gradient if bounds is None else bounds
        elif parts == ("curvature",):
            bounds = local.curvatures()
            if bounds is None:
                raise MessageError(f"{losses.family} has no bound of its Hessian")
            matrix = lower(bounds)
        elif parts == ("slopes",):
            slopes = local.slope_bounds()
            if slopes is None:
                raise MessageError(f"{losses.family} has no bounds of its slopes")
            gradient = slopes
        elif parts in (("start",), ("level",)):
            started = local.start_model(level=parts == ("level",))
            if started is None:
                outside[:] = 1.0
            else:
                gradient, matrix = started[0], lower(started[1])
        else:
            outside, value, gradient, matrix = self._at_point(local)
        return SumsAtPoint(outside, value, gradient.reshape(n, -1), matrix, facts)

    def _at_point(self, local: LocalLosses) -> tuple[Array, Array, Array, Array]:
        """Return what is asked at the point, zeros outside the domain."""
        x, n = self.x, len(local.clients)
        if x is None or x.shape != local.losses.shape:
            raise MessageError(f"x must be a point of shape {local.losses.shape}")
        value, gradient, matrix = np.zeros((n, 0)), np.zeros((n, 0)), np.zeros((n, 0))
        with np.errstate(all="ignore"):
            if "value" in self.parts:
                value = local.values(x)[:, None]
            if "gradient" in self.parts:
                gradient = local.gradients(x).reshape(n, -1)
            if "hessian" in self.parts or "information" in self.parts:
                found = local.hessians(x) if "hessian" in self.parts else local.informations(x)
                if found is None:
                    raise MessageError(f"{local.losses.family} has no Hessian")
                matrix = lower((found + found.swapaxes(1, 2)) / 2.0)
        finite = np.ones(n, dtype=bool)
        for one in (value, gradient, matrix):
            finite &= np.isfinite(one).all(axis=1)
        value, gradient, matrix = (np.where(finite[:, None], one, 0.0) for one in (value, gradient, matrix))
        return (~finite).astype(np.float64)[:, None], value, gradient, matrix
