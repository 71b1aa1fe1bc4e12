"""Many related problems in the exchanges of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._progress import Bar
from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.record import open_record
from fpdfp.engines.loop import Interrupt
from fpdfp.errors import ArgumentError
from fpdfp.folds import Folds
from fpdfp.problem import Problem
from fpdfp.selection.batch import Batch
from fpdfp.selection.bounds import bound_gaps
from fpdfp.selection.task import Task, flatten


@dataclasses.dataclass(frozen=True, repr=False)
class ManyResult:
    """What :func:`solve_many` returns; arrays have a leading axis for the problems.

    Attributes
    ----------
    x
        The solutions.
    objective
        F(x) of each, of the rows that were used.
    gap
        By how much each is expected to be above its least objective, relative to it: what the last quadratic model
        promises. An estimate, but where ``certified``.
    status
        ``"converged"``, ``"stalled"``, or ``"unfinished"`` where rounds were not enough.
    held_out_loss
        The mean loss of the rows that were excluded, NaN where there were none.
    evaluations
        At how many points each was evaluated.
    rounds, bits_up, bits_down
        The exchanges with all clients, and all that was sent.
    certified
        Which gaps are upper bounds.
    """

    x: Array
    objective: Array
    gap: Array
    status: tuple[str, ...]
    held_out_loss: Array
    evaluations: IntArray
    rounds: int
    bits_up: int
    bits_down: int
    certified: Array

    @property
    def converged(self) -> bool:
        """Whether all have converged."""
        return all(status == "converged" for status in self.status)

    def __repr__(self) -> str:
        done = sum(status == "converged" for status in self.status)
        return (
            f"ManyResult({done} of {len(self.status)} converged, {self.rounds} rounds, "
            f"{self.bits_up / 1e6:.3g} Mbit up, {self.bits_down / 1e6:.3g} Mbit down)"
        )


def solve_many(
    problems: Sequence[Problem],
    *,
    folds: Any = None,
    held_out: Sequence[int | None] | None = None,
    tol: float = 1e-6,
    rounds: int = 200,
    certify: bool = False,
    progress: bool | None = None,
    checkpoint: str | Path | None = None,
) -> ManyResult:
    """Solve problems that share their losses and differ in penalties, or in the rows that are used.

    All of them travel in the same exchanges, which is what makes a path of penalties or a cross-validation cost little
    more rounds than one fit; see `fpdfp/selection/batch.py` for the method. Clients keep nothing.

    Parameters
    ----------
    problems
        Problems of the same losses and weights, with at most 2,000 coefficients; or with an l1, elastic-net or group
        norm of x itself and losses of bounded curvature, with solutions of at most 2,000 features together. Neighbours
        in the list should be similar: of a path, in the order of its weights.
    folds
        How rows are excluded: a number of folds into which each client divides its rows, a :class:`fpdfp.Folds`, or an
        array with the fold of each client.
    held_out
        The fold that each problem excludes, None for all rows.
    tol
        Each problem ends when its objective is expected to be within this part of the least one.
    rounds
        The most exchanges.
    certify
        Whether to replace estimated gaps by upper bounds, in two to five more exchanges, up to nine where coefficients
        are not penalised. There are none for Cox's model and for losses whose conjugates are not known (such as those
        of a probit link); ``certified`` of the result shows which gaps are bounds.
    progress
        Whether to show a progress bar; by default where standard error is a terminal. Ctrl-C ends the run after the
        current exchange, and what was found is returned.
    checkpoint
        A folder to which every answer of the clients is written. The same call continues there after an interruption,
        or with more ``rounds``: to exactly the bits of a run that was not interrupted, and nothing is asked twice. A
        checkpoint of other data or other problems is refused.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 5))
    >>> losses = fpdfp.losses.Logistic(X, X[:, 0] + rng.standard_normal(200) > 0, clients=np.arange(200) % 4)
    >>> weights = [0.2, 0.1, 0.05, 0.02]
    >>> result = fpdfp.solve_many([fpdfp.Problem(losses, fpdfp.penalties.L1(one)) for one in weights])
    >>> (result.x != 0).sum(axis=1)
    array([1, 1, 1, 4])
    >>> result.converged
    True
    """
    problems = list(problems)
    check_problems(problems)
    _checks.real("tol", tol, positive=True)
    _checks.integer("rounds", rounds, at_least=1)
    first = problems[0]
    batch = Batch(first, *read_folds(folds, first.n_clients), problems=len(problems))
    held = check_held(held_out, len(problems), batch.n_folds)
    tasks = [Task(flatten(problem.model), fold) for problem, fold in zip(problems, held, strict=True)]
    with open_record(checkpoint, first):
        run(batch, tasks, tol, rounds, progress)
        if certify:
            bound_gaps(batch, tasks)
    found = collect(batch, tasks)
    return dataclasses.replace(found, x=found.x.reshape(-1, *first.model.shape))


def run(batch: Batch, tasks: Sequence[Task], tol: float, rounds: int, progress: bool | None) -> bool:
    """Solve tasks with a progress bar; Ctrl-C ends the run after an exchange. Return whether it was pressed."""
    with Interrupt() as interrupt, Bar(len(tasks), 0, progress, label="problems") as bar:

        def report() -> bool:
            solved = [task for task in tasks if task.status in ("converged", "stalled")]
            bar.update(len(solved), tasks[0].objective, batch.bits_up)
            return interrupt.requested

        batch.solve(tasks, tol, rounds, report)
    return interrupt.requested


def collect(batch: Batch, tasks: Sequence[Task]) -> ManyResult:
    """Return the result of tasks."""
    nothing = np.full(batch.d, np.nan)
    objectives = np.array([task.objective for task in tasks])
    gaps = np.array([task.gap for task in tasks])
    scale = np.where(np.isfinite(objectives) & (objectives != 0), np.abs(objectives), 1.0)
    return ManyResult(
        np.array([nothing if task.best is None else task.best.x for task in tasks]),
        objectives,
        gaps / scale,
        tuple("unfinished" if task.status in ("open", "waiting") else task.status for task in tasks),
        np.array([np.nan if task.best is None else task.best.held for task in tasks]),
        np.array([task.evaluations for task in tasks]),
        batch.exchanges,
        batch.bits_up,
        batch.bits_down,
        np.array([task.certified for task in tasks]),
    )


def check_problems(problems: Sequence[Problem]) -> None:
    """Refuse problems that are not about the same losses."""
    if not problems:
        raise ArgumentError("problems", "must hold at least one problem")
    first = problems[0]
    for place, problem in enumerate(problems):
        if not isinstance(problem, Problem):
            raise ArgumentError("problems", f"must be of fpdfp.Problem, but number {place} is {type(problem).__name__}")
        if problem.losses is not first.losses or not np.array_equal(problem.weights, first.weights):
            raise ArgumentError(
                "problems", f"must share one object of losses and the weights of clients, but number {place} does not"
            )


def read_folds(folds: Any, n_clients: int) -> tuple[Folds | None, IntArray | None]:
    """Return how rows are drawn, or how often each client counts without each fold of clients."""
    if folds is None or isinstance(folds, Folds):
        return folds, None
    if isinstance(folds, int | np.integer):
        return Folds(_checks.integer("folds", folds, at_least=2)), None
    groups = np.asarray(folds)
    if groups.shape != (n_clients,) or groups.dtype.kind not in "iu" or groups.min() < 0:
        raise ArgumentError("folds", f"must be a number of folds, a Folds, or the fold of each of {n_clients} clients")
    groups = groups.astype(np.int64)
    if len(np.unique(groups)) != groups.max() + 1 or groups.max() < 1:
        raise ArgumentError("folds", "must be numbered from 0 without gaps, and be at least two")
    return None, (groups != np.arange(groups.max() + 1)[:, None]).astype(np.int64)


def check_held(held_out: Sequence[int | None] | None, count: int, n_folds: int) -> list[int]:
    """Return the fold that each problem excludes, −1 for none."""
    if held_out is None:
        return [-1] * count
    held = [-1 if one is None else int(one) for one in held_out]
    if len(held) != count or any(not -1 <= one < n_folds for one in held):
        raise ArgumentError("held_out", f"must name one of {n_folds} folds, or None, for each of {count} problems")
    return held
