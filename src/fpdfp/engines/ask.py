"""Questions to all clients outside of a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.compress.plain import plain_bits
from fpdfp.engines import spec
from fpdfp.engines.dual_sums import DualSums, Means
from fpdfp.engines.evaluations import Evaluations, Sums
from fpdfp.engines.held_scores import HeldScores
from fpdfp.engines.informations import Informations
from fpdfp.engines.overdispersions import Overdispersions
from fpdfp.engines.parcel import payload
from fpdfp.engines.remote_losses import RemoteLosses
from fpdfp.losses.base import InformationSums
from fpdfp.problem import Problem


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
    return question.read(sent, problem.model.shape[0], factors), up, down


def ask_duals(problem: Problem, question: DualSums, factors: Array | None = None) -> tuple[Means, int, int]:
    """Return the means over all clients of what bounds of gaps need at many points, and all bits up and down."""
    sent, up, down = _ask(problem, question)
    return question.read_duals(sent, problem.model.shape[0], factors), up, down


def ask_scores(problem: Problem, question: HeldScores, factors: Array | None = None) -> tuple[Array, int, int]:
    """Return the sums of a score over the rows left out at many points, and all bits up and down."""
    sent, up, down = _ask(problem, question)
    return question.read(sent, factors), up, down


def _ask(problem: Problem, question: Any) -> tuple[Any, int, int]:
    """Return what clients answer, and all bits up and down."""
    asked = np.arange(problem.n_clients)
    down = len(asked) * payload([spec.dump(question)])
    if isinstance(problem.losses, RemoteLosses):
        sent, up = problem.losses.engine.gather(problem, question, asked, 0)
        return sent, up, down
    sent = question.gather(problem.model, problem.local(asked))
    return sent, sum(len(array) * plain_bits(array.shape[1:], array.dtype) for array in sent), down
