"""Questions to all clients outside of a run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.compress.plain import plain_bits
from fpdfp.engines import spec
from fpdfp.engines.evaluations import Evaluations, Sums
from fpdfp.engines.held_scores import HeldScores
from fpdfp.engines.informations import Informations
from fpdfp.engines.overdispersions import Overdispersions
from fpdfp.engines.parcel import payload
from fpdfp.engines.record import keep
from fpdfp.engines.remote_losses import RemoteLosses
from fpdfp.engines.tuples import tuple_kind
from fpdfp.losses.base import InformationSums
from fpdfp.problem import Problem

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


def ask_evaluations(problem: Problem, question: Evaluations, factors: Array | None = None) -> tuple[Sums, int, int]:
    """Return the means over all clients at many points, and all bits up and down."""
    sent, up, down = _ask(problem, question)
    return question.read(sent, math.prod(problem.model.shape), factors), up, down


def ask_scores(problem: Problem, question: HeldScores, factors: Array | None = None) -> tuple[Array, int, int]:
    """Return the sums of a score over the rows left out at many points, and all bits up and down."""
    sent, up, down = _ask(problem, question)
    return question.read(sent, factors), up, down


def _ask(problem: Problem, question: Any) -> tuple[Any, int, int]:
    """Return what clients answer, and all bits up and down."""
    asked = np.arange(problem.n_clients)
    down = len(asked) * payload([spec.dump(question)])

    def ask() -> dict[str, Array]:
        if isinstance(problem.losses, RemoteLosses):
            sent, up = problem.losses.engine.gather(problem, question, asked, 0)
        else:
            sent = question.gather(problem.model, problem.local(asked))
            up = sum(len(array) * plain_bits(array.shape[1:], array.dtype) for array in sent)
        return {**sent._asdict(), BITS: np.array(up)}

    found = dict(keep(question, ask))
    up = int(found.pop(BITS))
    return tuple_kind("Sent", tuple(found))(*found.values()), up, down
