"""What clients send of their losses in few features: a quadratic model of each."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.question import Points, Question, question, reveals
from fpdfp.compress import QSGD, Compressor, Full
from fpdfp.engines.traffic import payload
from fpdfp.errors import MessageError
from fpdfp.precondition.base import lower
from fpdfp.problem import LocalLosses

#: With how many levels second derivatives are sent.
LEVELS = 2047


class LocalModel(NamedTuple):
    """The message of a client: the slope of its loss, and the lower triangle of its Hessian, in some features."""

    slope: Array
    triangle: Array


@question("local_models")
@dataclasses.dataclass(frozen=True)
class LocalModels(Question):
    """Everyone sends the slope and the curvature of its loss in some features, at a point that is zero in all others.

    Attributes
    ----------
    features
        The features, in ascending order.
    x
        The point, in these features.
    """

    features: IntArray
    x: Array

    reveals = reveals(points="x", settings="features", uses="restrict hessians gradients")

    def __post_init__(self) -> None:
        features = self.features
        if features.ndim != 1 or not len(features) or features[0] < 0 or (np.diff(features) <= 0).any():
            raise ValueError("features must be numbers of features, in ascending order")
        if self.x.shape != features.shape or not np.isfinite(self.x).all():
            raise ValueError(f"x must be {len(features)} finite numbers")

    @property
    def bits(self) -> int:
        """The bits of the question."""
        return payload(self)

    @property
    def tells_pairs(self) -> bool:
        """A Hessian is products of pairs of features."""
        return True

    def points_at(self, shape: Shape) -> Points:
        """Return the point, with all features."""
        if len(shape) != 1 or self.features[-1] >= shape[-1]:
            raise MessageError(f"losses of shape {shape} have no model in the features that are asked for")
        x = np.zeros(shape)
        x[self.features] = self.x
        return Points(x[None], np.array([-1]))

    def count_numbers(self, shape: Shape) -> int:
        """The number of numbers that a client works with."""
        return len(self.features) ** 2

    def messages(self, shape: Shape) -> dict[str, tuple[Compressor, Shape]]:
        """Return how the fields are sent, and their shapes."""
        count = len(self.features)
        return {"slope": (Full(), (count,)), "triangle": (QSGD(LEVELS, norm="max"), (count * (count + 1) // 2,))}

    def answer(self, local: LocalLosses) -> LocalModel:
        """Return what clients send."""
        losses = local.losses
        if not losses.can_restrict or len(losses.shape) != 1 or self.features[-1] >= losses.shape[-1]:
            raise MessageError(f"losses of shape {losses.shape} have no model in the features that are asked for")
        few = losses.restrict(self.features)
        point = self.x.astype(few.dtype)
        matrices = few.hessians(point, local.clients)
        if matrices is None:
            raise MessageError(f"{losses!r} has no Hessians of {len(self.features)} features")
        slopes = local.weigh(few.gradients(point, local.clients))
        return LocalModel(slopes.astype(np.float32), lower(local.weigh(matrices)).astype(np.float32))
