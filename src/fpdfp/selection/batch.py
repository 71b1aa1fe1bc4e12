"""Many related problems at once: the same losses, with other penalties, and with some of the rows excluded.

An exchange with the clients costs latency whatever it holds, so that all problems travel together. Each is solved by
proximal Newton steps with a line search, as :class:`fpdfp.ProximalNewton` does::

    clients:   f(u), ∇f(u) of each problem at its own point u, and Hessians at a few of the points
    server:    u is accepted if F(u) ≤ F(x) less a part of what the model promised; otherwise the step is shortened
               at an accepted x:  u = argmin_u ⟨∇f(x), u − x⟩ + ½ (u − x)ᵀH(u − x) + g(Bu)

What makes many of them cheap is what they share:

- Hessians: one at a point serves all problems whose solutions are near it, with any rows excluded, corrected by the
  gradients around (BFGS). Each problem has its own gradients, so that a Hessian that is a little off costs an
  exchange, and no accuracy. More are requested where steps have proved poor.
- Starts. Of the problems with all rows one in eight is solved first, then the same ones with rows excluded, and then
  those in between. Each starts from the model around the best point that is known for its rows.
- Digits: points and gradients are rounded so that a hundredth of the tolerance is lost.

A problem has converged where its model promises no decrease beyond the tolerance. That is an estimate of the duality
gap, as good as the model is near its minimum, and no certificate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fpdfp._numbers import one_thread
from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.local import clients_of
from fpdfp.cohorts.many_points import BEYOND, MOMENTS, UNIT, ZERO, Evaluations, HeldScores, Sums, locate, unit_sizes
from fpdfp.cohorts.many_points import COARSE as FEWER
from fpdfp.compress.fixed import EXACT, largest_step
from fpdfp.errors import ArgumentError
from fpdfp.folds import Folds
from fpdfp.penalties import L1, ElasticNet
from fpdfp.problem import Model, Problem
from fpdfp.quadratic.solve import minimise
from fpdfp.quadratic.statement import InnerSolve, Quadratic
from fpdfp.scores.auc import AUC
from fpdfp.scores.base import Estimate, Score
from fpdfp.selection.task import MOST, TOO_MANY, Anchor, Task, Wide, arrange, suits
from fpdfp.traffic import count_exchange

#: How many points a model looks back at.
PAIRS = 4
#: Secants whose curvature is further from that of the model than this are not believed, nor those of steps whose square
#: is less than the second number times what rounding adds.
FACTOR, CLEAR = 100.0, 30.0


class Knowledge:
    """Hessians of all rows, and points with the rows of each fold excluded."""

    def __init__(self) -> None:
        self.hessians: list[tuple[Array, Array]] = []
        self.anchors: dict[int, list[Anchor]] = {}

    def nearest_hessian(self, x: Array) -> Array:
        """Return the Hessian whose point is nearest, by its own measure and the start's together.

        By its own alone, a point where losses are nearly flat would be near to everything.
        """
        steps = x - np.array([point for point, _ in self.hessians])
        own = [float(step @ (hessian @ step)) for step, (_, hessian) in zip(steps, self.hessians, strict=True)]
        lengths = np.array(own) + ((steps @ self.hessians[0][1]) * steps).sum(axis=1)
        return self.hessians[int(np.argmin(lengths))][1]

    def best_for(self, task: Task) -> tuple[Anchor, int]:
        """Return the point of least objective for a task, and for which fold it was asked.

        Those with the same rows excluded count, and all rows where only the start is known of these.
        """
        fold = task.fold if len(self.anchors[task.fold]) > 1 else -1
        known = self.anchors[fold]
        values = np.array([one.value for one in known]) + task.penalties(np.array([one.x for one in known]))
        return known[int(np.argmin(values))], fold

    def model(self, at: Anchor, fold: int, further: Sequence[Anchor] = ()) -> Array:
        """Return the Hessian near a point, changed so that it explains the gradients nearby (BFGS).

        Two gradients with the same rows excluded show the curvature between them, which is the direction in which
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
        """Return the points nearest to one that were evaluated with the same rows excluded, the nearest last."""
        known = [one for one in self.anchors[fold] if one is not at and one.value < math.inf]
        if not known:
            return []
        lengths = (np.array([one.x for one in known]) - at.x) ** 2 @ diagonal
        return [known[place] for place in np.argsort(lengths, kind="stable")[:PAIRS][::-1]]


#: The part of the decrease that a model promises which a step must have, and what rounding can do to an objective.
ENOUGH, ROUNDING = 1e-4, 1e-13
#: How near to the minimum of its model the server goes, relative to the length of the step, for bounds nearer; and in
#: how many steps.
TOLERANCE, TIGHTER, DUAL_STEPS = 1e-4, 1e-6, 10_000
#: A model is poor if more than this part of what it promised is promised again. Hessians are requested where the
#: promise is this many times the tolerance.
MISSED, WORTH = 0.1, 10.0
#: Rounding points and gradients may add this part of the tolerance to gaps; and how many bits more there are after
#: steps that have proved it too coarse, and how often until numbers are exact.
ROUGHLY, MORE, LEVELS = 0.03, 6, 4
#: Directions with less than this part of the curvature of single features are not what bits are spent on.
FLAT = 1e-3
#: Entries of gradients are sent with fewer bits where they are this many times their error away from mattering.
CLEARLY = 10.0
#: A step is shortened by this factor, and below the second number more digits are requested; later, and far from
#: the solution, below the third.
SHORTER, SHORTEST, FURTHEST = 0.5, 0.2, 1e-3
#: The bits of numbers where a batch begins at several points, which were rounded before.
ALONG = 28
#: The bits of a number that is exact, less a few for the sums that it is of.
DOUBLE = 48


class Batch:
    """Problems that share their losses, what is known of these, and what was sent.

    Parameters
    ----------
    problem
        The losses and the weights of clients; its penalty is not used.
    folds
        How the rows of each client are divided, None where all are used or ``samples`` is given.
    samples
        How often each client counts, a row for each fold, where clients are excluded or drawn instead of rows.
    problems
        How many problems there will be, which sites learn before anything is asked.
    """

    def __init__(
        self, problem: Problem, folds: Folds | None = None, samples: IntArray | None = None, *, problems: int
    ) -> None:
        if problem.model.device != "cpu":
            raise ArgumentError("losses", "must be functions of an array in memory")
        #: How many coefficients there are: those of several classes are one vector here.
        self.d = math.prod(problem.model.shape)
        self.problem, self.folds, self.samples = problem, folds, samples
        self._problems = problems
        #: The constant of the losses, which clients send with the first answer.
        self.ridge: Array = np.zeros(self.d)
        self.known = Knowledge()
        self.shares: Array = np.zeros(0)
        self.weights: Array = np.zeros(0)
        self.units: Array = np.full(self.d, ZERO, dtype=np.uint8)
        self.size, self.spread = 0.0, 1.0
        self.tol = 1e-6
        self.exchanges, self.bits_up, self.bits_down = 0, 0, 0
        #: Where there are many features, what chooses those that are worked with.
        self.wide: Wide | None = None

    @property
    def n_folds(self) -> int:
        """The number of folds."""
        if self.samples is not None:
            return len(self.samples)
        return 0 if self.folds is None else self.folds.all

    def solve(self, tasks: Sequence[Task], tol: float, rounds: int, report: Callable[[], bool] | None = None) -> bool:
        """Solve tasks to a relative tolerance within some exchanges; return whether none is left.

        ``report`` is called after each exchange, and ends the run if it returns True.
        """
        self.tol = tol
        self.begin([task.model for task in tasks])
        if self.wide is not None:
            return self.wide.solve(tasks, tol, rounds, report)
        return all(self.solve_stage(stage, rounds, report) for stage in arrange(tasks))

    def solve_stage(self, stage: Sequence[Task], rounds: int, report: Callable[[], bool] | None) -> bool:
        """Solve tasks that are solved at the same time; determine whether to continue."""
        with one_thread():
            for task in stage:
                self._open(task)
        while left := [task for task in stage if task.status == "open"]:
            if self.exchanges >= rounds:
                return False
            self._exchange(left)
            if report is not None and report():
                return False
        return True

    def score(self, points: Array, held: IntArray, score: Score, *, classes: bool = False) -> list[Estimate]:
        """Return a score of the rows that are excluded at each point, in one exchange.

        Areas under curves take two, the first to place cells, except for several classes.
        """
        if classes or not isinstance(score, AUC):
            cells = (np.zeros(len(points)), np.ones(len(points))) if isinstance(score, AUC) else ()
            return [score.finish(one) for one in self.ask_scores(points, held, score.name, *cells)]
        mean, deviation = locate(self.ask_scores(points, held, MOMENTS))
        constant = deviation == 0
        sums = self.ask_scores(points, held, score.name, mean, np.where(constant, 1.0, deviation))
        tied = Estimate(0.5, 0.0, math.nan)
        return [tied if same else score.finish(one) for one, same in zip(sums, constant, strict=True)]

    def ask_scores(self, points: Array, held: IntArray, name: str, *cells: Array) -> Array:
        """Return the sums of a score over the rows that are excluded at each point."""
        if self.wide is not None:
            return self.wide.ask_scores(points, held, name, *cells)
        own, factors = self.who(held)
        about = Evaluations.of(
            points, points != 0, (28, 28), own, np.zeros(0, dtype=np.int64), units=self.units, folds=self.folds
        )
        told = clients_of(self.problem).ask(HeldScores(about, name, *cells), times=factors)
        self.count(1, told.up, told.down)
        found: Array = told.sums.sums
        return found

    def count(self, exchanges: int, up: int, down: int) -> None:
        """Add what was sent."""
        self.exchanges += exchanges
        self.bits_up += up
        self.bits_down += down

    def who(self, held: IntArray) -> tuple[IntArray, Array | None]:
        """Return the fold of rows that each point excludes, and how often each client counts there."""
        if self.samples is None:
            return held, None
        return np.full_like(held, -1), np.where(held >= 0, self.samples[held].T, 1).astype(np.float64)

    def begin(self, models: Sequence[Model]) -> None:
        """Ask about the start, once, for problems with some penalties.

        With few features that is the gradient with the rows of each fold excluded, and the Hessian.
        """
        if self.known.anchors:
            return
        engine = getattr(self.problem.losses, "engine", None)
        count_exchange("plan")
        if engine is not None:
            engine.declare(self._problems, 0 if self.folds is None else self.folds.all)
        if suits(self.problem, models):
            self.wide = Wide(self, models)
        elif self.d > MOST:
            raise ArgumentError("problems", TOO_MANY.format(self.d))
        else:
            self.begin_at([(self._start(), -1)])

    def begin_at(self, points_of: Sequence[tuple[Array, int]]) -> None:
        """Ask about points with some rows excluded, about zero without the rows of all other folds, and for Hessians.

        Those are at the first and at the last point.
        """
        others = sorted({*range(-1, self.n_folds)} - {fold for _, fold in points_of})
        start = points_of[0][0] if len(points_of) == 1 else np.zeros(self.d)
        asked = [*points_of, *((start, fold) for fold in others)]
        points, folds = np.array([x for x, _ in asked]), np.array([fold for _, fold in asked])
        whole = np.ones(points.shape, dtype=bool)
        curved = np.unique([0, len(points_of) - 1])
        bits = (EXACT, EXACT) if len(points_of) == 1 else (ALONG, ALONG)
        question, sums = self._ask(points, whole, folds, curved, bits)
        sent = question.points(self.d)
        zero = np.zeros(self.problem.model.dual_shape)
        for place, fold in enumerate(map(int, folds)):
            found = self._anchor(question, sums, place, sent[place], zero, fold, whole[place])
            self.known.anchors.setdefault(fold, []).append(found)
        hessian = self.known.hessians[0][1]
        roots = np.sqrt(np.where(np.diag(hessian) > 0, np.diag(hessian), 1.0))
        self.units = np.clip(np.rint(np.log2(roots)) + ZERO, 0, 255).astype(np.uint8)
        # How much more errors of gradients matter, on average, since features are correlated.
        values = np.linalg.eigvalsh(hessian / np.outer(roots, roots))
        self.spread = float((1.0 / np.maximum(values, FLAT)).mean())
        self.size = max(float(np.abs(sums.slopes / self.unit).max()), 1e-300)

    def _start(self) -> Array:
        """Return zero, or where the losses are not finite there, a point of their domain."""
        zero = np.zeros(self.d)
        if np.isfinite(self.problem.smooth_value(zero.reshape(self.problem.model.shape))):
            return zero
        from fpdfp.engines.choice import choose_method
        from fpdfp.engines.prepare import RunOptions
        from fpdfp.engines.solve import run

        options = RunOptions(rounds=50, tol=0.1, progress=False)
        result = run(self.problem, choose_method(self.problem, options, "exact"), options)
        self.count(result.rounds, result.total_up, result.total_down)
        return result.x.astype(np.float64).ravel()

    # What is asked.

    def _exchange(self, tasks: Sequence[Task]) -> None:
        """Ask about the next point of each of some tasks, and learn from the answers."""
        points = np.array([task.trial for task in tasks])
        # Where digits are wanted, those of all entries are.
        places = np.array([task.places | (task.level >= LEVELS - 1) for task in tasks])
        held = np.array([task.fold for task in tasks])
        question, sums = self._ask(points, places, held, self._worst(tasks), self._bits(tasks, points))
        sent = question.points(self.d)
        self.size = float(sums.sizes.max())
        with one_thread():
            for place, task in enumerate(tasks):
                found = self._anchor(question, sums, place, sent[place], task.trial_v, task.fold, places[place])
                self._learn(task, found)

    def _ask(
        self, points: Array, places: Array, held: IntArray, curved: IntArray, bits: tuple[int, int]
    ) -> tuple[Evaluations, Sums]:
        """Return what was asked about points, and what all clients together say about them."""
        own, factors = self.who(held)
        question = Evaluations.of(points, places, bits, own, curved, units=self.units, folds=self.folds)
        sums, _, up, down = clients_of(self.problem).ask(question, times=factors)
        self.count(1, up, down)
        if not len(self.shares):
            self._weigh_folds(sums, held)
        if len(curved):
            self.ridge = sums.ridge
        # what rounding its entries can have done to eigenvalues
        noise = 2.0 * UNIT * math.sqrt(self.d / self.problem.n_clients)
        for point, hessian in zip(question.points(self.d)[curved], sums.hessians, strict=True):
            self.known.hessians.append((point, hessian + np.diag(noise * np.diag(hessian) + self.ridge)))
        return question, sums

    def _weigh_folds(self, sums: Sums, held: IntArray) -> None:
        """Keep the share of the loss that is left without each fold, and the weight of the fold in scores.

        ``held`` are the folds that the points exclude.
        """
        if self.samples is None:
            repeats = 1 if self.folds is None else self.folds.repeats
            self.shares, self.weights = 1.0 - repeats * sums.masses / sums.masses.sum(), sums.weights
        else:
            own = self.problem.weights / self.problem.weights.sum()
            self.shares = self.samples @ own
            self.weights = np.array([sums.left_out[int(np.argmax(held == fold))] for fold in range(self.n_folds)])
        if self.n_folds and (self.shares >= 1.0).any() and self.samples is None:
            raise ArgumentError("folds", f"must all have rows, but fold {int(np.argmax(self.shares))} has none")

    def share_of(self, fold: int) -> float:
        """Return the share of the loss that is left without a fold, 1 for all rows."""
        return float(self.shares[fold]) if fold >= 0 else 1.0

    def _anchor(
        self, question: Evaluations, sums: Sums, place: int, x: Array, v: Array, fold: int, sure: Array
    ) -> Anchor:
        """Return what was found at a point, about whose entries in ``sure`` gradients have all bits."""
        code = question.bits, float(question.scales[place])
        if float(sums.values[place]) > BEYOND:
            return Anchor(x, v, math.inf, np.zeros(self.d), math.inf, sure, 0.0, code)
        share, ridge = self.share_of(fold), self.ridge * x
        value = float(sums.values[place]) / share + 0.5 * float(ridge @ x)
        outside = float(self.weights[fold]) if fold >= 0 else 0.0
        held = float(sums.helds[place]) / outside if outside > 0 else math.nan
        error = self._error(float(sums.sizes[place]), question.slope_bits)
        blur = 0.5 * self.spread * int(sure.sum()) * error**2
        return Anchor(x, v, value, sums.slopes[place] / share + ridge, held, sure, blur, code)

    def _error(self, size: float, bits: int) -> float:
        """Return the error of entries of the mean gradient, in units, if errors of clients are up to ``size``."""
        return size / largest_step(min(bits, DOUBLE)) / math.sqrt(12.0 * self.problem.n_clients)

    @property
    def unit(self) -> Array:
        """The unit of each entry of gradients."""
        return unit_sizes(self.units)

    def _bits(self, tasks: Sequence[Task], points: Array) -> tuple[int, int]:
        """Return how many bits the entries of points and of gradients need."""
        level = max(task.level for task in tasks)
        if level >= LEVELS - 1:
            return EXACT, EXACT
        sizes = [abs(self.known.anchors[-1][0].value if task.best is None else task.objective) for task in tasks]
        least = min([size for size in sizes if 0.0 < size < math.inf], default=1.0)
        error = math.sqrt(24.0 * ROUGHLY * self.tol * least / self.d)
        of_points = float(np.abs(points * self.unit).max())
        of_slopes = self.size * math.sqrt(self.spread / self.problem.n_clients)
        bits = [math.ceil(1.0 + math.log2(max(size / error, 32.0))) + MORE * level for size in (of_points, of_slopes)]
        return (EXACT, EXACT) if max(bits) > 32 else (bits[0], bits[1])

    def _worst(self, tasks: Sequence[Task]) -> IntArray:
        """Return the task whose Hessian is requested: the one furthest from its solution of those with poor models."""
        poor = [
            place
            for place, task in enumerate(tasks)
            if task.poor and (task.level > 0 or task.promised > WORTH * self.tol * abs(task.objective))
        ]
        worst = sorted(poor, key=lambda place: -min(tasks[place].gap, tasks[place].promised))
        return np.array(worst[:1], dtype=np.int64)

    # What is learnt.

    def _open(self, task: Task) -> None:
        """Let a task start from the best point that is known."""
        if task.status != "waiting":
            return
        near, fold = self.known.best_for(task)
        if near.v.shape != task.model.dual_shape:
            near = near._replace(v=np.zeros(task.model.dual_shape))
        self._propose(task, near, fold)
        task.status = "open"

    def _propose(self, task: Task, at: Anchor, fold: int, *further: Anchor) -> None:
        """Minimise the model around a point plus the penalty of a task: that is where to look next."""
        hessian = self.known.model(at, fold, further)
        q, inner = Quadratic(hessian, at.x, at.slope), InnerSolve(TOLERANCE, DUAL_STEPS)
        found = minimise(task.model, q, at.v, inner)
        step = found.u - at.x
        image = hessian @ step
        gain = task.penalty(at.x) - task.penalty(found.u) - float(at.slope @ step) - 0.5 * float(step @ image)
        task.trial, task.trial_v, task.share, task.promised = found.u, found.v, 1.0, max(gain, 0.0)
        task.places = self._matter(task, found.u, at.slope + image)

    def improve(self, task: Task, at: Anchor, further: Sequence[Anchor]) -> tuple[Array, Array]:
        """Return where the model around a point plus the penalty of a task is least, and the dual there."""
        q = Quadratic(self.known.model(at, task.fold, further), at.x, at.slope)
        found = minimise(task.model, q, at.v, InnerSolve(TIGHTER, DUAL_STEPS))
        return found.u, found.v

    def _matter(self, task: Task, x: Array, slope: Array) -> Array:
        """Return which entries are not clearly zero: all where the penalty is not one of single entries."""
        penalty = task.model.penalty
        if not task.model.linop.is_identity or not isinstance(penalty, L1 | ElasticNet):
            return np.ones(self.d, dtype=bool)
        weight = penalty.weight if isinstance(penalty, L1) else penalty.l1
        error = self.unit * self._error(self.size, FEWER)
        found: Array = (x != 0) | (np.broadcast_to(weight, x.shape) - np.abs(slope) < CLEARLY * error)
        return found

    def _learn(self, task: Task, found: Anchor) -> None:
        """Accept a point if the objective has decreased enough, and say where to look next; or shorten the step."""
        reached = found.value + task.penalty(found.x)
        start = self.known.anchors[task.fold][0]
        if task.best is None and start.value + task.penalty(start.x) < reached < math.inf:
            # The model of the first point promised too much, as that of exp does: it ends above where it began.
            task.best, task.objective = start, start.value + task.penalty(start.x)
        needed = task.objective - ENOUGH * task.share * task.promised + ROUNDING * abs(task.objective)
        task.evaluations += 1
        self.known.anchors[task.fold].append(found)
        if task.objective < math.inf and not reached <= needed:
            self._shorten(task, found)
            return
        if reached == math.inf:
            self._retreat(task)
            return
        before = task.promised
        task.best, task.objective = found, reached
        self._propose(task, found, task.fold)
        task.gap = task.promised
        task.poor = task.promised > MISSED * before
        if task.gap <= self.tol * abs(reached):
            task.status = "converged"

    def _shorten(self, task: Task, found: Anchor) -> None:
        """Look again after a step that failed: by what is known now, nearer, or with more digits."""
        assert task.best is not None
        task.poor = True
        # Where more digits, and a Hessian at the point, have not helped, it is not rounding that makes a step too long.
        far = task.level > 0 and task.promised > max(WORTH * self.tol, 1e-6) * abs(task.objective)
        if task.share * SHORTER < (FURTHEST if far else SHORTEST):
            task.level, task.share = task.level + 1, 1.0
            if task.level == LEVELS + 2:
                task.status = "stalled"
                return
            # The same point once more: its gradient is rounded less.
            task.trial, task.objective = task.best.x, math.inf
        elif task.share == 1.0 and found.value < math.inf:
            self._propose(task, task.best, task.fold, found)
            task.share = SHORTER
        else:
            task.share *= SHORTER
            task.trial = task.best.x + SHORTER * (task.trial - task.best.x)

    def _retreat(self, task: Task) -> None:
        """Look nearer to the best point that is known, after one outside the domain."""
        near, _ = self.known.best_for(task)
        task.share *= SHORTER
        task.trial = near.x + SHORTER * (task.trial - near.x)
        if task.share < 1e-6:
            task.status = "stalled"
