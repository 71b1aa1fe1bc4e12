"""The slopes of all features at a point, as the server learns them: in few levels, finely only where that matters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fpdfp._array import to_host
from fpdfp._typing import Array
from fpdfp.compress import QSGD
from fpdfp.engines.features import Left
from fpdfp.engines.options import RunOptions
from fpdfp.engines.prepare import AskedClients, choose
from fpdfp.methods.base import Method
from fpdfp.penalties.l1 import L1
from fpdfp.precondition.base import Announced
from fpdfp.precondition.exchange import Slopes
from fpdfp.problem import Problem

#: The levels of slopes that tell which features are likely to matter.
LEVELS = 63
#: The levels of the point that they are sent at.
POINT_LEVELS = 1 << 14
#: The levels of slopes of features that may be steeper than their weights, as far as the first ones tell.
FINE = 4095
#: What rounding of a gradient may be beside the weight of the penalty, by the bytes of a number.
ROUNDING = {4: 1e-3, 8: 1e-9}


class Looked(NamedTuple):
    """What is known of the slopes of all features.

    Attributes
    ----------
    slopes
        They themselves.
    ratios
        How large they are beside the weights, for each feature; at least that large where bounds are asked for. A
        feature is zero in the solution where that is below 1.
    up, down
        The bits that this took.
    """

    slopes: Array
    ratios: Array
    up: int
    down: int


class Slopemeter:
    """Asks the clients of a problem with an l1 norm for their slopes."""

    def __init__(self, problem: Problem, method: Method | None, options: RunOptions) -> None:
        self.problem = problem
        self._clients = AskedClients(problem, choose(problem, method, options), options)
        self._down = 0

    def guess(self, x: Array) -> Looked:
        """Return slopes that are about right, at about x."""
        point = to_host(x).astype(np.float32)
        told = Announced.rounded(QSGD(POINT_LEVELS, block=None, norm="max"), point) if point.any() else None
        slopes, _ = self._ask(Slopes(told, LEVELS))
        return self._tell(slopes, measure(self.problem, slopes))

    def bound(self, x: Array, known: Array) -> Looked:
        """Return bounds of the slopes at x: of features that are not known, fine ones where coarse ones exceed 1."""
        told = Announced.plain(to_host(x))
        slopes, error = self._ask(Slopes(told, LEVELS))
        slack = ROUNDING[np.dtype(self.problem.model.dtype).itemsize]
        ratios = measure(self.problem, np.abs(slopes) + error) + slack
        doubtful = np.setdiff1d(np.flatnonzero(ratios > 1.0), known)
        if len(doubtful):
            mask = Left(doubtful, self.problem.model.shape, 0).mask
            slopes[..., doubtful], error = self._ask(Slopes(told, FINE, mask))
            bounds = np.zeros_like(slopes)
            bounds[..., doubtful] = np.abs(slopes[..., doubtful]) + error
            ratios[doubtful] = measure(self.problem, bounds)[doubtful] + slack
        return self._tell(slopes, ratios)

    def _ask(self, question: Slopes) -> tuple[Array, float]:
        """Return means over clients, and their largest error; count what clients are told."""
        sums, count = self._clients.add_up(question)
        self._down += count * sum(one.bits for one in (question.x, question.mask) if one is not None)
        return sums.slope / count, float(sums.error) / count

    def _tell(self, slopes: Array, ratios: Array) -> Looked:
        return Looked(slopes, ratios, self._clients.bits, self._down)


def measure(problem: Problem, slopes: Array) -> Array:
    """Return how large the slope of each feature is beside its weight."""
    assert isinstance(problem.penalty, L1)
    weight = np.maximum(to_host(np.asarray(problem.penalty.weight)), 1e-300)
    ratios: Array = (np.abs(to_host(slopes)) / weight).reshape(-1, problem.model.shape[-1]).max(axis=0)
    return ratios
