"""One of many related problems: its form, how far it is, in which order they are solved; working sets of features."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.local import clients_of
from fpdfp.cohorts.many_points import ZERO, Evaluations, unit_sizes
from fpdfp.compress.fixed import largest_step
from fpdfp.engines.result import FeatureSubset
from fpdfp.errors import ArgumentError
from fpdfp.linops import Identity, LinOp, Matrix
from fpdfp.penalties import L1, ElasticNet, GroupL12, SparseGroup, Zero
from fpdfp.penalties.base import Penalty
from fpdfp.precondition.exchange import FeatureBounds, Slopes
from fpdfp.problem import Model, Problem
from fpdfp.traffic import FACTS

if TYPE_CHECKING:
    from fpdfp.selection.batch import Batch


Status = Literal["waiting", "open", "converged", "stalled"]


class Anchor(NamedTuple):
    """A point at which the clients were asked, with some rows excluded.

    Attributes
    ----------
    x, v
        The point, and a dual point of the problem that it was requested.
    value, slope
        The mean loss of the rows that are used, with the ridge, and its gradient; infinite outside the domain.
    held
        The mean loss of the rows that are excluded, NaN if missing.
    sure, blur
        Which entries of the gradient were sent with all bits, and how much rounding of these adds to a gap.
    code
        The bits of the entries of the point as it was sent, and their step.
    """

    x: Array
    v: Array
    value: float
    slope: Array
    held: float
    sure: Array
    blur: float
    code: tuple[int, float]


@dataclasses.dataclass
class Task:
    """One of the problems.

    Attributes
    ----------
    model, fold
        g and B, and which rows are excluded, −1 for none.
    best, objective
        The best point that was evaluated, None before the first, and the objective there.
    gap, certified
        An estimate of how far that is above the least objective, what the quadratic model promises; or, if certified,
        an upper bound.
    trial, trial_v, places
        The next point, its dual, and which of its entries are not clearly zero.
    share, promised
        The share of the step that it is, and by how much the objective should decrease.
    level
        How often more digits were requested.
    poor
        Whether the model was poor.
    evaluations
        How many points were evaluated.
    within
        With many features, what is known of it in the working set.
    """

    model: Model
    fold: int = -1
    best: Anchor | None = None
    objective: float = math.inf
    gap: float = math.inf
    certified: bool = False
    trial: Array = dataclasses.field(default_factory=lambda: np.zeros(0))
    trial_v: Array = dataclasses.field(default_factory=lambda: np.zeros(0))
    places: Array = dataclasses.field(default_factory=lambda: np.zeros(0, dtype=bool))
    share: float = 1.0
    promised: float = math.inf
    level: int = 0
    status: Status = "waiting"
    poor: bool = True
    evaluations: int = 0
    within: Within | None = None

    def penalty(self, x: Array) -> float:
        """Return g(Bx), at the nearest point of the domain of g."""
        penalty, image = self.model.penalty, self.model.linop.apply(x)
        return float(penalty.value(image if penalty.finite else penalty.project(image)))

    @property
    def point(self) -> Array:
        """The best point."""
        assert self.best is not None
        return self.best.x

    @property
    def ahead(self) -> Array:
        """The minimum of the model of the best point, or that point without a model."""
        return self.trial if self.trial.shape == self.point.shape and self.share == 1.0 else self.point

    @property
    def dual(self) -> Array:
        """The dual point of ``ahead``."""
        assert self.best is not None
        return self.best.v if self.ahead is self.point else self.trial_v

    @property
    def code(self) -> tuple[int, float]:
        """The bits of the entries of the best point as it was sent, and their step."""
        assert self.best is not None
        return self.best.code

    def near(self, error: Array) -> Array:
        """Return which entries of the best point are not 0, or may be so if the gradient has an error."""
        assert self.best is not None
        slope = np.abs(self.best.slope) + error
        proxes = [self.model.penalty.prox(one, 1.0) for one in (slope, -slope)]
        found: Array = (self.best.x != 0) | (proxes[0] != 0) | (proxes[1] != 0)
        return found

    def penalties(self, points: Array) -> Array:
        """Return g(Bx) of each of some points; at once for an l1 norm, since there are many."""
        penalty = self.model.penalty
        if isinstance(penalty, L1) and self.model.linop.is_identity:
            found: Array = np.abs(points) @ np.broadcast_to(penalty.weight, points.shape[1:])
            return found
        return np.array([self.penalty(x) for x in points])


class Within(NamedTuple):
    """A task with many features in the working set: these features, the task, and bounds of slopes of all others."""

    features: IntArray
    task: Task
    bounds: Array


#: Of the problems one in this many is solved first, if there are more.
COARSE = 8


def arrange(tasks: Sequence[Task]) -> list[list[Task]]:
    """Return which tasks are solved first, and which then: coarse ones, with all rows before those with some."""
    of_fold: dict[int, list[Task]] = {}
    for task in tasks:
        of_fold.setdefault(task.fold, []).append(task)
    main = -1 if -1 in of_fold else next(iter(of_fold))
    numbers = {fold: list(range(len(own))) for fold, own in of_fold.items()}
    done: dict[int, set[int]] = {fold: set() for fold in of_fold}
    stages: list[list[Task]] = []
    spacing = COARSE if len(of_fold[main]) > COARSE else 1
    for level in [spacing >> shift for shift in range(spacing.bit_length())]:
        fresh: dict[int, list[Task]] = {}
        for fold, own in numbers.items():
            some = sorted({*own[level // 2 :: level], own[-1]} - done[fold])
            done[fold] |= set(some)
            fresh[fold] = [of_fold[fold][place] for place in some]
        rest = [task for fold, own in fresh.items() if fold != main for task in own]
        stages += [fresh[main], rest] if not stages else [fresh[main] + rest]
    return [stage for stage in stages if stage]


def flatten(model: Model) -> Model:
    """Return g and B as functions of the entries of x, one row after the other.

    >>> one = Model(L1(2.0), Identity((3, 4)), (3, 4), np.dtype(np.float64))
    >>> flatten(one).shape, flatten(one).penalty
    ((12,), L1(weights of shape (12,)))
    """
    if len(model.shape) == 1:
        return _take_entries(model)
    d = math.prod(model.shape)
    linop: LinOp = Identity((d,))
    if not model.linop.is_identity:
        from scipy.sparse import csr_array

        images = model.linop.apply(np.eye(d).reshape(d, *model.shape)).reshape(d, -1)
        linop = Matrix(csr_array(images.T))
    penalty = _flatten_penalty(model.penalty, model.linop.out_shape)
    return _take_entries(Model(penalty.bind(linop.out_shape), linop, (d,), np.dtype(np.float64)))


def _take_entries(model: Model) -> Model:
    """Return the l1 norm of multiples of single entries, such as of all but the intercept, as one with weights."""
    if not isinstance(model.linop, Matrix) or not isinstance(model.penalty, L1):
        return model
    from scipy.sparse import csr_array

    rows = csr_array(model.linop.matrix, copy=True)
    rows.eliminate_zeros()
    if (np.diff(rows.indptr) > 1).any():
        return model
    weights = np.repeat(np.broadcast_to(model.penalty.weight, (rows.shape[0],)), np.diff(rows.indptr))
    total = np.bincount(rows.indices, weights * np.abs(rows.data), minlength=model.shape[0])
    return model._replace(penalty=L1(total), linop=Identity(model.shape))


def _flatten_penalty(penalty: Penalty, shape: Shape) -> Penalty:
    """Return a penalty of arrays of a shape as one of vectors."""

    def spread(values: Any) -> Array:
        return np.broadcast_to(values, shape).ravel()

    if isinstance(penalty, Zero) or len(shape) == 1:
        return penalty
    if isinstance(penalty, L1):
        return L1(spread(penalty.weight))
    if isinstance(penalty, ElasticNet):
        return ElasticNet(*map(spread, (penalty.l1, penalty.l2, penalty.lower, penalty.upper)))
    if isinstance(penalty, SparseGroup):
        return SparseGroup(spread(penalty.weight), penalty.group_weight, groups=penalty.groups.ravel())
    if isinstance(penalty, GroupL12):
        if penalty.axis is None:
            return GroupL12(penalty.weight, groups=penalty.groups.ravel())
        along = penalty.axis % len(shape)
        others = tuple(size for axis, size in enumerate(shape) if axis != along)
        numbers = np.expand_dims(np.arange(math.prod(others)).reshape(others), along)
        weights = penalty.weight if np.ndim(penalty.weight) == 0 else np.ravel(penalty.weight)
        return GroupL12(weights, groups=spread(numbers))
    raise ArgumentError(
        "problems", f"must have an l1, elastic-net or group penalty for several classes, got {type(penalty).__name__}"
    )


#: With fewer features all are worked with; and the most features of a working set: Hessians are matrices.
FEWEST, MOST = 512, 2000
TOO_MANY = (
    f"must have at most {MOST:,} coefficients, or an l1, elastic-net or group norm of x itself and losses of bounded "
    "curvature (such as logistic ones and least squares), got {:,} coefficients; call fpdfp.solve for each"
)
#: How many features a working set begins with, and that may join it at a time if it is not larger.
FIRST = 64
#: The relative accuracies of the first solutions in working sets, before the tolerance.
LOOSE = (1e-2, 1e-4)
#: Features that are missing may cost this part of the tolerance.
MISSING = 0.1
#: Bits of slopes of features outside of the working set, and of points.
SLOPE_BITS, POINT_BITS = 10, 28
#: What rounding may do to a bound, and sizes that are nearly nothing and beyond everything.
MARGIN, NOTHING, BEYOND = 1.0 + 1e-6, 1e-100, 1e100
#: The bits of a number in double precision.
DOUBLE = 64
#: The most points a working set is changed at, and the most numbers of all clients in one question.
SEEDS, ROOM = 32, 1 << 25


def suits(problem: Problem, models: Sequence[Model]) -> bool:
    """Whether problems with these penalties are solved in working sets."""
    losses = problem.losses
    if len(losses.shape) != 1 or losses.shape[0] <= FEWEST or not losses.can_restrict:
        return False
    norms = all(
        isinstance(model.penalty, L1 | ElasticNet | SparseGroup)
        or (isinstance(model.penalty, GroupL12) and model.penalty.axis is None)
        for model in models
    )
    identity = all(model.linop.is_identity for model in models)
    return norms and identity and bool(np.isfinite(losses.lipschitz()).all())


def may_move(model: Model, sizes: Array) -> Array:
    """Return which entries of x may be other than zero if no slope is larger than these sizes."""
    sizes = MARGIN * sizes
    return np.asarray((model.penalty.prox(sizes, 1.0) != 0) | (model.penalty.prox(-sizes, 1.0) != 0))


def move_first(models: Sequence[Model], slopes: Array) -> Array:
    """Return the entries that move first if slopes at zero grow, until there are enough; and what is not penalised."""
    moved = np.any([may_move(model, np.full(len(slopes), NOTHING)) for model in models], axis=0)
    low, high = -300.0, 300.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        more = np.any([may_move(model, 2.0**middle * np.abs(slopes)) for model in models], axis=0)
        low, high = (middle, high) if int(more.sum()) < FIRST else (low, middle)
    found: Array = moved | np.any([may_move(model, 2.0**high * np.abs(slopes)) for model in models], axis=0)
    return found


class Looked(NamedTuple):
    """A point at which the features that are left were looked at.

    Attributes
    ----------
    x, slope
        The point, and its slope without a ridge, which is known in the working set.
    bounds
        Bounds of the sizes of slopes outside of it.
    """

    x: Array
    slope: Array
    bounds: Array


class Wide:
    """The working set of a batch of problems with many features, and what is known of the others.

    Features are numbered as they are left: those that are bounded below all weights leave for good.
    """

    def __init__(self, batch: Batch, models: Sequence[Model]) -> None:
        self.batch, self.whole = batch, batch.problem
        (self.d,) = self.whole.model.shape
        zero = np.zeros(self.d)
        if not np.isfinite(self.whole.smooth_value(zero)):
            raise ArgumentError("losses", f"must be finite at zero where there are more than {FEWEST} features")
        self.curvatures = self._ask_features(FeatureBounds("curvatures"))
        slopes = self._ask_features(Slopes())
        self.slope_bounds: Array | None = None
        #: The features that are left, their problem, and which of all features are worked with.
        self.left: IntArray = np.arange(self.d)
        self.problem = self.whole
        #: What was looked at in the features that are left, for each fold.
        self.looked: dict[int, list[Looked]] = {}
        #: The largest entry of a client's gradient there, in units.
        self.size = 1.0
        self.inner = self._work_with(np.flatnonzero(move_first(models, slopes)), [])
        batch.shares, batch.weights = self.inner.shares, self.inner.weights
        sure = np.zeros(self.d, dtype=bool)
        batch.known.anchors[-1] = [Anchor(zero, zero, 0.0, slopes, math.nan, sure, 0.0, (2, 0.0))]

    def _ask_features(self, question: FeatureBounds | Slopes) -> Array:
        """Ask all clients for a number for each feature."""
        told = clients_of(self.whole).ask(question)
        self.batch.count(1, told.up, 0)
        means: Array = told.sums[0] / told.asked
        return means

    # The working set.

    def _work_with(self, features: IntArray, seeds: Sequence[tuple[Array, int]]) -> Batch:
        """Work with some features from now on; ``seeds`` are points, with the excluded rows, to begin at."""
        from fpdfp.selection.batch import Batch

        if len(features) > MOST:
            raise ArgumentError(
                "problems",
                f"must have solutions with at most {MOST:,} features together, but {len(features):,} are needed: "
                "give fewer or larger weights, or call fpdfp.solve for each",
            )
        self.features = features
        made = Batch(self._restrict(features), self.batch.folds, self.batch.samples, problems=0)
        self._lend(made)
        made.begin_at([(x[features], fold) for x, fold in seeds] or [(np.zeros(len(features)), -1)])
        self._note(made)
        return made

    def _restrict(self, features: IntArray) -> Problem:
        """Return the problem of some features without a penalty, and count the message that names them."""
        mask, clients = FeatureSubset(features, (self.d,)).mask, self.whole.n_clients
        # Sites say of the smaller losses what they have said of all.
        self.batch.count(1, clients * DOUBLE * FACTS, clients * mask.bits)
        return self.whole.with_losses(self.whole.losses.restrict(features), Zero())

    def _lend(self, inner: Batch) -> None:
        """Let the working set continue counting what was sent."""
        inner.exchanges, inner.bits_up, inner.bits_down = (
            self.batch.exchanges, self.batch.bits_up, self.batch.bits_down,
        )  # fmt: skip

    def _note(self, inner: Batch) -> None:
        """Take over what was sent in the working set."""
        self.batch.exchanges, self.batch.bits_up, self.batch.bits_down = (
            inner.exchanges, inner.bits_up, inner.bits_down,
        )  # fmt: skip

    def _inside(self, task: Task) -> Task:
        """Return a task in the working set."""
        penalty = task.model.penalty.restrict(self.features)  # type: ignore[attr-defined]
        return Task(self.inner.problem.model._replace(penalty=penalty), task.fold, level=task.level)

    # Solving.

    def solve(
        self, tasks: Sequence[Task], tol: float, rounds: int, report: Callable[[], bool] | None = None
    ) -> bool:  # fmt: skip
        """Solve tasks; see :meth:`Batch.solve`."""
        self._leave_out(tasks)
        loose = [one for one in LOOSE if one > tol and not any(task.level for task in tasks)]
        for stage in arrange(tasks):
            left = [task for task in stage if task.status == "waiting"]
            while left:
                at = loose.pop(0) if loose else tol
                inside = [self._inside(task) for task in left]
                self._lend(self.inner)
                self.inner.tol = at
                going = self.inner.solve_stage(inside, rounds, None if report is None else self._watch(report))
                self._note(self.inner)
                found = [(task, one) for task, one in zip(left, inside, strict=True) if one.best is not None]
                left = self._judge(found, self._look(found) if going else [], at, tol)
                if not going:
                    return False
                if not left:
                    loose = []
        return True

    def _watch(self, report: Callable[[], bool]) -> Callable[[], bool]:
        """Return what is called after each exchange in the working set."""

        def watch() -> bool:
            self._note(self.inner)
            return report()

        return watch

    def _leave_out(self, tasks: Sequence[Task]) -> None:
        """Exclude features for good whose slopes are bounded below all weights."""
        if self.whole.losses.slope_bounds(np.arange(0)) is None:
            return
        if self.slope_bounds is None:
            self.slope_bounds = self._ask_features(FeatureBounds("slopes"))
        remain = np.zeros(self.d, dtype=bool)
        remain[self.features] = True
        for task in tasks:
            remain |= may_move(task.model, self._without(task.fold) * self.slope_bounds)
        self.left, self.looked = np.flatnonzero(remain), {}
        self.problem = self._restrict(self.left) if len(self.left) < self.d else self.whole

    def _without(self, fold: int) -> float:
        """Return by how much bounds of sums over all rows grow where a fold is excluded."""
        if fold < 0:
            return 1.0
        most = 1.0 if self.batch.samples is None else float(self.batch.samples[fold].max())
        return most / self.batch.share_of(fold)

    def _judge(
        self, found: Sequence[tuple[Task, Task]], looks: Sequence[tuple[Array, Array]], at: float, tol: float
    ) -> list[Task]:
        """Keep what was found; return the tasks that continue, with the features that they miss in the working set."""
        if not looks:
            for task, one in found:
                self._keep(task, one, np.full(len(self.left), BEYOND), 0.0)
                task.status = "open"
            return []
        left, missing = [], np.zeros(len(self.left))
        for (task, one), (gain, bounds) in zip(found, looks, strict=True):
            self._keep(task, one, bounds, float(gain.sum()))
            poor = float(gain.sum()) > MISSING * at * abs(one.objective)
            if poor:
                missing = np.maximum(missing, gain)
            if poor or at > tol:
                left.append(task)
                task.status = "waiting"
        if missing.any():
            order = np.argsort(-missing, kind="stable")[: max(FIRST, len(self.features))]
            chosen = np.union1d(self.features, self.left[order[missing[order] > 0]])
            few = found[:: -(-len(found) // SEEDS)]
            self.inner = self._work_with(chosen, [(task.point, task.fold) for task, _ in few])
        return left

    def _keep(self, task: Task, one: Task, bounds: Array, missing: float) -> None:
        """Let a task have what was found in the working set."""
        assert one.best is not None
        x, nothing = np.zeros(self.d), np.broadcast_to(0.0, (self.d,))
        slope, sure = nothing, nothing.astype(bool)
        x[self.features] = one.best.x
        if task.level:
            # Who wants all digits wants to know slopes: the start of a path.
            slope, sure = np.zeros(self.d), np.zeros(self.d, dtype=bool)
            slope[self.features], sure[self.features] = one.best.slope, True
        task.best = one.best._replace(x=x, v=nothing, slope=slope, sure=sure)
        task.objective, task.gap, task.status = one.objective, one.gap + missing, one.status
        task.evaluations += one.evaluations
        task.within = Within(self.features, one, bounds)

    def ask_scores(self, points: Array, held: IntArray, name: str, *cells: Array) -> Array:
        """Return the sums of a score at points, in the features that are other than zero in some of them."""
        used = np.flatnonzero(points.any(axis=0))
        if not set(used.tolist()) <= set(self.features.tolist()):
            self.inner = self._work_with(np.union1d(used, self.features), [])
        self._lend(self.inner)
        found = self.inner.ask_scores(points[:, self.features], held, name, *cells)
        self._note(self.inner)
        return found

    # Looking at other features.

    def place(self, task: Task) -> Within:
        """Return a task that was not solved here in the working set."""
        assert task.best is not None
        best = task.best
        own = {name: getattr(best, name)[self.features] for name in ("x", "v", "slope", "sure")}
        one = dataclasses.replace(self._inside(task), best=best._replace(**own), objective=task.objective, promised=0.0)
        return Within(self.features, one, np.full(len(self.left), BEYOND))

    def _look(self, found: Sequence[tuple[Task, Task]]) -> list[tuple[Array, Array]]:
        """Return by how much each task would gain from each of the features that are left, and bounds of slopes."""
        looks = []
        length = max(1, ROOM // (self.whole.n_clients * len(self.left)))
        for first in range(0, len(found), length):
            some = found[first : first + length]
            points = np.zeros((len(some), len(self.left)))
            points[:, self.inside] = [one.point for _, one in some]
            models = [self.leave(task) for task, _ in some]
            known = [self._bound_slopes(task.fold, one, x) for (task, one), x in zip(some, points, strict=True)]
            asked = np.array([may_move(model, bounds) for model, bounds in zip(models, known, strict=True)])
            asked[:, self.inside] = False
            slopes, errors = self._ask_slopes(points, asked, [task.fold for task, _ in some])
            for place, (task, one) in enumerate(some):
                assert one.best is not None
                x, slope = points[place], np.where(asked[place], slopes[place], 0.0)
                bounds = np.where(asked[place], np.abs(slope) + errors[place], known[place])
                slope[self.inside] = one.best.slope
                moved = models[place].penalty.prox(x - slope, 1.0)
                slope[self.inside] -= self.inner.ridge * one.best.x
                self.looked.setdefault(task.fold, []).append(Looked(x, slope, bounds))
                looks.append((np.where(asked[place], 0.5 * moved**2 / self._curved, 0.0), bounds))
        return looks

    @property
    def inside(self) -> IntArray:
        """The places of the working set among the remaining features."""
        return np.searchsorted(self.left, self.features)

    @property
    def _curved(self) -> Array:
        """Bounds of the curvature in the features that are left, 1 if missing."""
        own = self.curvatures[self.left]
        found: Array = np.where(own > 0, own, 1.0)
        return found

    @property
    def units(self) -> Array:
        """The exponents of the units of slopes in the features that are left: roots of the curvature."""
        found: Array = np.clip(np.rint(0.5 * np.log2(self._curved)) + ZERO, 0, 255).astype(np.uint8)
        return found

    def leave(self, task: Task) -> Model:
        """Return g and B of a task in the features that are left."""
        penalty = task.model.penalty.restrict(self.left)  # type: ignore[attr-defined]
        return self.problem.model._replace(penalty=penalty)

    def _bound_slopes(self, fold: int, one: Task, x: Array) -> Array:
        """Return bounds of the slopes of a task at x, from what is known at other points with the same rows."""
        bounds = np.full(len(self.left), BEYOND)
        assert one.best is not None
        inside, own = self.inside, one.best.slope - self.inner.ridge * one.best.x
        for other in self.looked.get(fold, ()):
            apart = float((own - other.slope[inside]) @ (x - other.x)[inside])
            reach = np.sqrt(self._without(fold) * self.curvatures[self.left] * max(apart, 0.0))
            bounds = np.minimum(bounds, other.bounds + reach)
        return bounds

    def _ask_slopes(self, points: Array, asked: Array, held: Sequence[int]) -> tuple[Array, Array]:
        """Return slopes at points where they are requested, and bounds of their errors."""
        if not asked.any():
            return np.zeros(points.shape), np.zeros(points.shape)
        batch, units = self.batch, self.units
        own, factors = batch.who(np.array(held))
        question = Evaluations.of(
            points, points != 0, (POINT_BITS, SLOPE_BITS), own, np.zeros(0, dtype=np.int64), units=units,
            folds=batch.folds, asked=asked, rest_bits=SLOPE_BITS,
        )  # fmt: skip
        sums, _, up, down = clients_of(self.problem).ask(question, times=factors)
        batch.count(1, up, down)
        shares = np.array([batch.share_of(fold) for fold in held])[:, None]
        most = 1.0 if factors is None else factors.max(axis=0)[:, None]
        self.size = float(sums.sizes.max())
        errors = 0.5 * most * sums.sizes[:, None] / largest_step(SLOPE_BITS) * unit_sizes(units) / shares
        return np.nan_to_num(sums.slopes) / shares, errors
