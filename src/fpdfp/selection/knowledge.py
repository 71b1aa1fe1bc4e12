"""What is known of losses from the points at which clients were asked: values, gradients, and some Hessians."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fpdfp._typing import Array
from fpdfp.selection.task import Anchor, Task

#: How many points a model looks back at.
PAIRS = 4
#: Secants whose curvature is further from that of the model than this are not believed, nor those of steps whose square
#: is less than the second number times what rounding adds.
FACTOR, CLEAR = 100.0, 30.0


class Knowledge:
    """Hessians of all rows, and points with the rows of each fold left out."""

    def __init__(self) -> None:
        self.hessians: list[tuple[Array, Array]] = []
        self.anchors: dict[int, list[Anchor]] = {}

    def nearest_hessian(self, x: Array) -> Array:
        """Return the Hessian whose point is nearest, by its own measure and that of the start together.

        By its own alone, a point where losses are nearly flat would be near to everything.
        """
        first = self.hessians[0][1]
        steps = [x - point for point, _ in self.hessians]
        lengths = [
            float(step @ (hessian @ step + first @ step))
            for step, (_, hessian) in zip(steps, self.hessians, strict=True)
        ]
        return self.hessians[int(np.argmin(lengths))][1]

    def best_for(self, task: Task) -> tuple[Anchor, int]:
        """Return the point of least objective for a task, and for which fold it was asked.

        Those with the same rows left out count, and all rows where only the start is known of these.
        """
        fold = task.fold if len(self.anchors[task.fold]) > 1 else -1
        known = self.anchors[fold]
        return known[int(np.argmin([one.value + task.penalty(one.x) for one in known]))], fold

    def model(self, at: Anchor, fold: int, further: Sequence[Anchor] = ()) -> Array:
        """Return the Hessian near a point, changed so that it explains the gradients nearby (BFGS).

        Two gradients with the same rows left out tell the curvature between them, which is the direction in which
        solutions move. Entries of gradients that were sent with few bits are not believed: they change as the Hessian
        says.
        """
        hessian = self.nearest_hessian(at.x)
        diagonal = np.where(np.diag(hessian) > 0, np.diag(hessian), 1.0)
        for other in [*self._around(at, fold, np.diag(hessian)), *further]:
            step = other.x - at.x
            image = hessian @ step
            change = np.where(at.sure & other.sure, other.slope - at.slope, image)
            bend, expected = float(step @ change), float(step @ image)
            clear = expected > CLEAR * (at.blur + other.blur) and expected / FACTOR < bend < FACTOR * expected
            if clear and float(change @ (change / diagonal)) < FACTOR * len(step) * bend:
                hessian = hessian + np.outer(change, change) / bend - np.outer(image, image) / expected
        return hessian

    def _around(self, at: Anchor, fold: int, diagonal: Array) -> list[Anchor]:
        """Return the points nearest to one that were evaluated with the same rows left out, the nearest last."""
        known = [one for one in self.anchors[fold] if one is not at and one.value < math.inf]
        if not known:
            return []
        lengths = (np.array([one.x for one in known]) - at.x) ** 2 @ diagonal
        return [known[place] for place in np.argsort(lengths, kind="stable")[:PAIRS][::-1]]
