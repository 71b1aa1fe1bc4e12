"""Many related problems in the exchanges of one, and bounds of their gaps."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from fpdfp import _checks
from fpdfp._numbers import one_thread
from fpdfp._progress import Bar
from fpdfp._typing import Array, IntArray
from fpdfp.bounds import Feasibility, Search
from fpdfp.cohorts.local import clients_of
from fpdfp.cohorts.many_points import BEYOND, MOST_DIRECTIONS, DualSums, Evaluations, Means, unit_sizes
from fpdfp.cohorts.record import open_record
from fpdfp.compress.fixed import EXACT, largest_step
from fpdfp.engines.loop import Interrupt
from fpdfp.errors import ArgumentError, RefusalError
from fpdfp.folds import Folds
from fpdfp.losses.linear import sum_rounding
from fpdfp.penalties import L1, GroupL12, SparseGroup
from fpdfp.problem import Problem
from fpdfp.selection.batch import Batch
from fpdfp.selection.task import Anchor, Task, flatten

if TYPE_CHECKING:
    from fpdfp.folds import Folds
    from fpdfp.problem import Problem
    from fpdfp.selection.batch import Batch
    from fpdfp.selection.task import Wide


log = logging.getLogger("fpdfp.selection")
#: Bits of the entries of gradients that are not near the limits of the dual; those are near whose errors would be this
#: many times as large. Rounding of all others may add this part of the tolerance.
FAR_BITS, CLEARLY, ROUGHLY = 10, 4.0, 0.1
#: How often clients are asked about problems whose bounds are above this many times the tolerance.
TIMES, ENOUGH = 4, 2.0
#: Steps in which a dual point is improved where the losses have a ridge.
STEPS = 100
#: The most numbers of all clients in one question.
ROOM = 1 << 25


class Space(Protocol):
    """The part of a batch that bounds need, for all or the remaining features: see :class:`Batch`."""

    problem: Problem
    d: int
    folds: Folds | None
    ridge: Array
    units: Array
    size: float
    tol: float

    @property
    def unit(self) -> Array:
        """The unit of each entry of gradients."""

    def share_of(self, fold: int) -> float:
        """Return the share of the loss that is left without a fold."""

    def who(self, held: IntArray) -> tuple[IntArray, Array | None]:
        """Return the fold of rows that each point excludes, and how often each client counts there."""

    def count(self, exchanges: int, up: int, down: int) -> None:
        """Add what was sent."""

    def improve(self, task: Task, at: Anchor, further: Sequence[Anchor]) -> tuple[Array, Array]:
        """Return where the model around a point plus the penalty is least, and the dual there."""


class Answered:
    """The dual points of one problem, from what clients have answered (:class:`fpdfp.losses.base.DualPoints`).

    ``scale`` is that at which the gap was requested last; ``gaps`` are known, by their scales.
    """

    def __init__(self, ridge: Array, gradient: Array, rounding: Array) -> None:
        self.ridge, self._gradient, self._rounding = ridge, gradient, rounding
        self.scale, self.gaps = 1.0, dict[float, float]()

    def gradient(self, direction: Array | None = None, *, gap: bool = False) -> Array:
        """Return Aᵀcθ with s = 1, for the direction that clients received."""
        return self._gradient

    def rounding(self) -> Array:
        """Return what rounding may have done to each entry of the gradient."""
        return self._rounding

    def gap(self, direction: Array | None, scale: float) -> float:
        """Return Σ c (φ + φ* − zθ); 0 as long as none is known."""
        self.scale = scale
        return self.gaps.get(scale, math.inf) if self.gaps else 0.0


def bound_gaps(batch: Batch, tasks: Sequence[Task]) -> None:
    """Replace estimated gaps of tasks by upper bounds, where there are some."""
    losses = batch.problem.losses
    if not getattr(losses, "has_duals", False) or not losses.is_convex or len(losses.shape) != 1:
        return
    try:
        if batch.wide is not None:
            bound_wide(batch.wide, [task for task in tasks if task.best is not None])
        else:
            _bound(batch, tasks)
    except RefusalError as error:
        # What was found is worth more than its bounds.
        log.warning("gaps are estimates: %s", error)


def _bound(batch: Space, tasks: Sequence[Task]) -> None:
    """Bound the gaps of tasks in a space."""
    alike: dict[bytes, tuple[Feasibility, list[Task]]] = {}
    for task in tasks:
        if task.best is not None and math.isfinite(task.objective) and task.model.penalty.has_conjugate:
            own = Feasibility(task.model)
            # Those with the same B see the same where their penalties do.
            key = own.seen.tobytes() + str(task.model.linop.is_identity or id(task.model.linop)).encode()
            alike.setdefault(key, (own, []))[1].append(task)
    length = max(1, ROOM // (batch.problem.n_clients * batch.d))
    for feasibility, some in alike.values():
        for first in range(0, len(some), length):
            Questions(batch, some[first : first + length], feasibility).bound()


class Remaining:
    """The features that are left of a batch with many, as a space: models are of the working set."""

    def __init__(self, wide: Wide) -> None:
        self.wide, self.problem, self.d = wide, wide.problem, len(wide.left)
        self.folds, self.units, self.tol = wide.batch.folds, wide.units, wide.batch.tol
        self.size, self.unit = wide.size, unit_sizes(wide.units)
        self.share_of, self.who, self.count = wide.batch.share_of, wide.batch.who, wide.batch.count
        # Outside of the working set x is 0: bounds hold, and are a little larger, if a ridge there is not used.
        self.ridge = np.zeros(self.d)
        self.ridge[wide.inside] = wide.inner.ridge

    def take(self, task: Task) -> Task:
        """Return a task in the features that are left, with all that is known of it in the working set."""
        wide = self.wide
        features, one, bounds = task.within or wide.place(task)
        assert one.best is not None
        inside = np.searchsorted(wide.left, features)

        def lift(values: Array, rest: Array | float = 0.0) -> Array:
            whole = np.array(np.broadcast_to(rest, (self.d,)))
            whole[inside] = values
            return whole

        slope = lift(one.best.slope, bounds)
        best = one.best._replace(x=lift(one.best.x), v=lift(one.best.v), slope=slope, code=(EXACT, 0.0))
        return dataclasses.replace(
            one, model=wide.leave(task), best=best, trial=lift(one.ahead), trial_v=lift(one.dual), share=1.0
        )

    def improve(self, task: Task, at: Anchor, further: Sequence[Anchor]) -> tuple[Array, Array]:
        """Return where the model around a point is least in the working set, and the dual there."""
        inside = self.wide.inside

        def take(one: Anchor) -> Anchor:
            parts = {name: getattr(one, name)[inside] for name in ("x", "v", "slope", "sure")}
            return one._replace(**parts)

        penalty = task.model.penalty.restrict(inside)  # type: ignore[attr-defined]
        small = dataclasses.replace(task, model=self.wide.inner.problem.model._replace(penalty=penalty))
        lifted = np.zeros((2, self.d))
        lifted[:, inside] = self.wide.inner.improve(small, take(at), [take(one) for one in further])
        return lifted[0], lifted[1]


def bound_wide(wide: Wide, tasks: Sequence[Task]) -> None:
    """Bound the gaps of tasks with many features: those that were excluded are zero in all solutions."""
    space = Remaining(wide)
    taken = [space.take(task) for task in tasks]
    _bound(space, taken)
    for task, one in zip(tasks, taken, strict=True):
        if one.certified:
            task.gap, task.certified = one.gap, True


class End(NamedTuple):
    """The expected minimum of a problem, its dual there, and its quadratic model elsewhere."""

    x: Array
    v: Array
    known: tuple[Anchor, ...]
    best: Ready | None = None


class Ready(NamedTuple):
    """A problem whose gap is to be requested, what it should be; its dual points, the direction and steps to them."""

    expected: float
    task: Task
    duals: Answered
    end: End
    steps: Array


class Questions:
    """A question about problems whose penalties share B."""

    def __init__(self, batch: Space, tasks: Sequence[Task], feasibility: Feasibility) -> None:
        self.batch, self.feasibility = batch, feasibility
        self.free = batch.ridge == 0
        self.kernel = np.zeros((0, batch.d))
        if self.free.any():
            self.kernel = feasibility.kernel.reshape(-1, batch.d)
        self._turn_to(tasks, [End(task.ahead, task.dual, ()) for task in tasks])

    def _turn_to(self, tasks: Sequence[Task], ends: Sequence[End]) -> None:
        """Ask about these tasks from now on."""
        self.tasks, self.ends = list(tasks), list(ends)
        self.points = np.array([task.point for task in tasks])
        self.shares = np.array([self.batch.share_of(task.fold) for task in tasks])
        self.directions = self.points - np.array([end.x for end in ends])

    def bound(self) -> None:
        """Bound the gaps of all tasks."""
        if len(self.kernel) > MOST_DIRECTIONS:
            return
        ready: list[Ready] = []
        for time in range(TIMES):
            ready += self._look(last=time == TIMES - 1)
            if not self.tasks:
                break
        self._turn_to([one.task for one in ready], [one.end for one in ready])
        gaps = self._ask(
            "gap", np.array([one.steps for one in ready]), shrinks=np.array([one.duals.scale for one in ready])
        ).numbers[:, 0]
        with one_thread():
            for place, (_, task, duals, *_) in enumerate(ready):
                # An answer that stands for infinity is the mean of a few of these.
                duals.gaps[duals.scale] = gaps[place] / self.shares[place] if gaps[place] < BEYOND else math.inf
                gap = self._bound(place, duals)
                if gap < math.inf:
                    task.gap, task.certified = gap, True

    def _look(self, *, last: bool) -> list[Ready]:
        """Ask for gradients at the dual points of all tasks; return those whose bounds are expected to be small."""
        steps = self._find_steps()
        means = self._ask("gradient", steps)
        ready, left, ends = [], [], []
        with one_thread():
            for place, (task, end) in enumerate(zip(self.tasks, self.ends, strict=True)):
                duals = self._make(means, place)
                # What is not known is of second order: the square of the step, and of the scaling.
                gap = self._bound(place, duals) + task.promised + (1.0 - duals.scale) ** 2 * abs(task.objective)
                best = Ready(gap, task, duals, end, steps[place])
                if end.best is not None and end.best.expected <= gap:
                    best = end.best
                if last or gap <= ENOUGH * self.batch.tol * abs(task.objective):
                    ready.append(best)
                else:
                    left.append(task)
                    slope = duals.gradient() + self.batch.ridge * self.points[place]
                    ends.append(self._improve(place, slope)._replace(best=best))
        if left:
            self._turn_to(left, ends)
        self.tasks = left
        return ready

    def _improve(self, place: int, slope: Array) -> End:
        """Return where the problem is least by the slope that clients sent for the end of the last direction.

        That is linear in the direction: the part of the Hessian from earlier ones is exact.
        """
        task, end = self.tasks[place], self.ends[place]
        assert task.best is not None
        at = task.best._replace(x=end.x, v=end.v, slope=slope, sure=np.ones(len(slope), dtype=bool), blur=0.0)
        return End(*self.batch.improve(task, at, end.known), (*end.known, at))

    def _find_steps(self) -> Array:
        """Return how far to go along each direction that no penalty sees, so that the gradient is 0 there."""
        kernel, k, ridge = self.kernel, len(self.kernel), self.batch.ridge
        steps = np.zeros((len(self.tasks), k))
        if not k:
            return steps
        numbers = self._ask("curvature", steps).numbers / self.shares[:, None]
        for place, one in enumerate(numbers):
            slope = one[:k] + kernel @ (ridge * self.points[place])
            curved = one[k:].reshape(k, k) + (kernel * ridge) @ kernel.T
            steps[place] = np.linalg.pinv((curved + curved.T) / 2.0, rcond=1e-13, hermitian=True) @ slope
        return steps

    def _make(self, means: Means, place: int) -> Answered:
        """Return the dual points of a problem."""
        share, numbers = float(self.shares[place]), means.numbers[place]
        slope, errors = means.slopes[place] / share, means.errors[place] / share
        if self._can_round:
            # Along what is not seen, single entries of x, gradients are known exactly.
            for direction, exact in zip(self.kernel, numbers[2:] / share, strict=True):
                slope, errors = np.where(direction != 0, exact, slope), np.where(direction != 0, 0.0, errors)
        rounding = sum_rounding(np.array(numbers[0] / share), means.columns / share) + errors
        return Answered(self.batch.ridge, slope, rounding)

    def _bound(self, place: int, duals: Answered) -> float:
        """Return the bound of a problem."""
        model, x, v = self.tasks[place].model, self.points[place], self.ends[place].v
        image = model.linop.apply(x)
        nearest = image if model.penalty.finite else model.penalty.project(image)
        search = Search(model, self.feasibility, duals, x, image, nearest)
        if self.free.any():
            return search.bound(v).gap
        return min(search.bound(v).gap, search.improve(v, STEPS).gap)

    def _ask(self, wants: str, steps: Array, **more: Array) -> Means:
        """Ask all clients about all points."""
        batch = self.batch
        held, factors = batch.who(np.array([task.fold for task in self.tasks]))
        bits, near = self._digits() if wants == "gradient" else (EXACT, np.zeros(self.points.shape, dtype=bool))
        digits = max([task.code[0] for task in self.tasks if task.point.any()], default=2)
        about = Evaluations.of(
            self.points, near | (self.points != 0) | (self.directions != 0), (digits, bits), held,
            np.zeros(0, dtype=np.int64), units=batch.units, folds=batch.folds,
            scales=np.array([task.code[1] for task in self.tasks], dtype=np.float32),
            rest_bits=EXACT if bits == EXACT else FAR_BITS,
        )  # fmt: skip
        question = DualSums.along(about, self.directions, wants=wants, shared=self.kernel, steps=steps, **more)
        told = clients_of(batch.problem).ask(question, times=factors)
        batch.count(1, told.up, told.down)
        means: Means = told.sums
        return means

    def _digits(self) -> tuple[int, Any]:
        """Return the bits of entries of gradients that are near the limits of the dual, and which these are."""
        if not self._can_round:
            return EXACT, np.ones(self.points.shape, dtype=bool)
        batch = self.batch
        far = 0.5 * CLEARLY * batch.size * batch.unit / largest_step(FAR_BITS)
        near = np.array([task.near(far / share) for task, share in zip(self.tasks, self.shares, strict=True)])
        lengths = np.abs(self.points) @ batch.unit
        allowed = min(ROUGHLY * batch.tol * abs(task.objective) / max(length, 1e-300)
                      for task, length in zip(self.tasks, lengths, strict=True))  # fmt: skip
        bits = 2 + math.ceil(math.log2(max(batch.size / max(allowed, 1e-300), 32.0)))
        return (bits, near) if bits <= 32 else (EXACT, near)

    @property
    def _can_round(self) -> bool:
        """Whether bounds hold for rounded gradients: where the conjugate is 0 in all of its domain, a box or balls."""
        norms = all(isinstance(task.model.penalty, L1 | GroupL12 | SparseGroup) for task in self.tasks)
        return norms and self.feasibility.linop.is_identity


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
        The mean loss of the rows that were excluded, NaN without such rows.
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
        Problems of the same losses and weights, with at most 2,000 coefficients. Or with an l1, elastic-net or group
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
