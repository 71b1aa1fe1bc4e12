"""Questions to all clients outside of a run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.engines import spec
from fpdfp.engines.dual_sums import DualSums, Means
from fpdfp.engines.evaluations import Evaluations, Sums
from fpdfp.engines.held_scores import HeldScores
from fpdfp.engines.informations import Informations
from fpdfp.engines.overdispersions import Overdispersions
from fpdfp.engines.prepare import send_once
from fpdfp.engines.record import keep
from fpdfp.engines.requests import write
from fpdfp.engines.spread import Spread
from fpdfp.engines.traffic import payload
from fpdfp.engines.tuples import tuple_kind
from fpdfp.losses.base import InformationSums
from fpdfp.precondition.exchange import FeatureBounds, Slopes
from fpdfp.problem import Problem

#: The most numbers of features that are asked for at a time.
FEATURES = 1 << 25
#: Beside what clients send: the bits of that.
BITS = "bits up"


def ask_informations(problem: Problem, x: Array, *, robust: bool) -> tuple[InformationSums, int, int]:
    """Return the sums of each client at x, and all bits up and down."""
    sent, up, down = _ask(problem, Informations(np.asarray(x, dtype=np.float64), robust))
    return InformationSums(*sent), up, down


def ask_overdispersions(problem: Problem, x: Array, theta: float) -> tuple[Array, int, int]:
    """Return the sums over clients from which θ is found, and all bits up and down."""
    (numbers,), up, down = _ask(problem, Overdispersions(np.asarray(x, dtype=np.float64), float(theta)))
    return np.asarray(numbers.sum(axis=0)), up, down


def ask_spread(problem: Problem, x: Array) -> tuple[float, float, int, int]:
    """Return the weight of all rows, their kernel weight about a quantile, and all bits up and down."""
    (numbers,), up, down = _ask(problem, Spread(np.asarray(x, dtype=np.float64)))
    weight, inside = map(float, numbers.sum(axis=0))
    return weight, inside, up, down


def ask_evaluations(problem: Problem, question: Evaluations, factors: Array | None = None) -> tuple[Sums, int, int]:
    """Return the means over all clients at many points, and all bits up and down."""
    sent, up, down = _ask(problem, question)
    return question.read(sent, math.prod(problem.model.shape), factors), up, down


def ask_duals(problem: Problem, question: DualSums, factors: Array | None = None) -> tuple[Means, int, int]:
    """Return the means over all clients of what bounds of gaps need at many points, and all bits up and down."""
    sent, up, down = _ask(problem, question)
    return question.read_duals(sent, math.prod(problem.model.shape), factors), up, down


def ask_scores(problem: Problem, question: HeldScores, factors: Array | None = None) -> tuple[Array, int, int]:
    """Return the sums of a score over the rows left out at many points, and all bits up and down."""
    sent, up, down = _ask(problem, question)
    return question.read(sent, factors), up, down


def ask_features(problem: Problem, question: FeatureBounds | Slopes) -> tuple[Array, int]:
    """Return the mean over all clients of a number for each feature, and all bits up."""
    total, bits = np.zeros(problem.model.shape), 0
    length = max(1, FEATURES // problem.model.shape[-1])
    for first in range(0, problem.n_clients, length):
        asked = np.arange(first, min(first + length, problem.n_clients))
        sent, more = _keep(problem, question, asked)
        total, bits = total + question.add_up(sent, asked)[0], bits + more
    return total / problem.n_clients, bits


def _ask(problem: Problem, question: Any) -> tuple[Any, int, int]:
    """Return what clients answer, and all bits up and down."""
    asked = np.arange(problem.n_clients)
    return *_keep(problem, question, asked), len(asked) * payload(write(question, spec.dump))


def _keep(problem: Problem, question: Any, clients: IntArray) -> tuple[Any, int]:
    """Return what some clients send once, and its bits, through the record of the run."""

    def ask() -> dict[str, Array]:
        sent, up = send_once(problem, question, clients, 0)
        return {**sent._asdict(), BITS: np.array(up)}

    found = dict(keep(question, ask))
    up = int(found.pop(BITS))
    return tuple_kind("Sent", tuple(found))(*found.values()), up
