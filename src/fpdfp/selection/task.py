"""One of many related problems: its form with one vector, how far it is, and in which order they are solved."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray, Shape
from fpdfp.errors import ArgumentError
from fpdfp.linops import Identity, LinOp, Matrix
from fpdfp.penalties import L1, ElasticNet, GroupL12, SparseGroup, Zero
from fpdfp.penalties.base import Penalty
from fpdfp.problem import Model

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
