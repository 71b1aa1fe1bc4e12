"""Solutions along a path of penalty weights."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._sections import Section, shorten
from fpdfp._typing import Array
from fpdfp.cohorts.record import open_record
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.penalties import L1, ElasticNet, GroupL12, SparseGroup, Stacked, Zero
from fpdfp.penalties.base import Penalty
from fpdfp.problem import Model, Problem
from fpdfp.selection.batch import Batch
from fpdfp.selection.curves import finish_axes, make_axes
from fpdfp.selection.many import bound_gaps, collect, run
from fpdfp.selection.task import Anchor, Task, flatten

#: The accuracy of the solution at which the largest weight is computed, and by how much its penalty is above that.
TIGHT, ABOVE = 1e-15, 2.0
#: How often the weight of the trivial solution is doubled.
DOUBLINGS = 60
#: Penalties below this, relative to the weight and to x, are zero.
NOTHING = 1e-9


def largest_alpha(batch: Batch, model_of: Callable[[float], Model], rounds: int) -> tuple[float, Anchor]:
    """Return the smallest weight α at which the penalised part Bx of the solution is zero, and that solution.

    ``model_of(α)`` is g and B. With x the solution of a weight that is large enough, where Bx = 0, that is the least α
    for which −∇f(x) is in Bᵀ∂(αg)(0).
    """
    batch.begin([model_of(1.0)])
    alpha = ABOVE * max(dual_size(model_of(1.0), -batch.known.anchors[-1][0].slope), 1e-300)
    for _ in range(DOUBLINGS):
        task = Task(model_of(alpha), level=3)
        batch.solve([task], TIGHT, rounds)
        if task.best is None:
            raise ArgumentError("rounds", f"must be more than {rounds}: the start of the path was not found")
        found = task.best
        if task.penalty(found.x) <= NOTHING * alpha * max(np.abs(found.x).max(initial=0.0), 1.0):
            # With many features, those with the largest slopes are known exactly.
            size = dual_size(model_of(1.0), np.where(found.sure, -found.slope, 0.0))
            if size <= alpha * (1.0 + 1e-9):
                return size, found
        alpha *= ABOVE
    raise ArgumentError("alphas", "must be given: no weight was found whose solution is trivial")


def dual_size(model: Model, slope: Array) -> float:
    """Return the least α for which a slope is in Bᵀ∂(αg)(0): a dual norm of it, exactly.

    Entries that nothing is penalised of are excluded: at a solution they are zero.
    """
    penalty, linop = model.penalty, model.linop
    if not linop.is_identity:
        return _least_multiple(model, slope)
    if isinstance(penalty, ElasticNet):
        return _ratio(np.abs(slope), np.broadcast_to(penalty.l1, slope.shape))
    if isinstance(penalty, L1):
        return _ratio(np.abs(slope), np.broadcast_to(penalty.weight, slope.shape))
    if isinstance(penalty, GroupL12 | SparseGroup):
        return _of_groups(penalty, slope)
    if isinstance(penalty, Zero):
        return 0.0
    raise ArgumentError("alphas", f"must be given for the penalty {type(penalty).__name__}")


def _ratio(sizes: Array, weights: Array) -> float:
    some = weights > 0
    return float((sizes[some] / weights[some]).max(initial=0.0))


def _of_groups(penalty: GroupL12 | SparseGroup, slope: Array) -> float:
    """Find the least α by bisection: a multiple of the penalty whose prox takes the slope to zero."""
    if not np.abs(slope).max(initial=0.0) > 0:
        return 0.0

    def vanishes(alpha: float) -> bool:
        moved = penalty.prox(slope, alpha)
        # what is not penalised is not moved
        free = penalty.prox(slope, 1e300) != 0
        return not np.any(moved[~free])

    low, high = 0.0, 1.0
    while not vanishes(high):
        low, high = high, 2.0 * high
        if high > 1e300:
            raise ArgumentError("alphas", "must be given: the penalty has no weight whose solution is trivial")
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (low, middle) if vanishes(middle) else (middle, high)
    return high


def _least_multiple(model: Model, slope: Array) -> float:
    """Return min α with Bᵀv = slope and |v_j| ≤ α w_j, a linear programme, for an l1 norm of Bx."""
    penalty = model.penalty
    if not isinstance(penalty, L1):
        raise ArgumentError("alphas", f"must be given for the penalty {type(penalty).__name__} of Bx")
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, hstack

    rows = csr_array(model.linop.apply(np.eye(model.shape[0])).T)
    weights = np.broadcast_to(penalty.weight, (rows.shape[0],)).astype(np.float64)
    used = weights > 0
    # v = w (p − q) with p, q ≥ 0 and p + q ≤ α: where α is least, one of them is 0
    scaled = (rows.T.tocsc()[:, used] * weights[used]).tocsc()
    m = int(used.sum())
    touched = np.flatnonzero(np.abs(scaled).sum(axis=1) > 0)
    # What is not in the range of Bᵀ is 0 where Bx = 0 and x is best otherwise, up to rounding.
    dense = scaled[touched].toarray()
    slope = slope.copy()
    slope[touched] = dense @ np.linalg.lstsq(dense, slope[touched], rcond=None)[0]
    size = float(np.abs(slope[touched]).max(initial=0.0))
    if size == 0.0:
        return 0.0
    A = hstack([scaled[touched], -scaled[touched]]).tocsr()
    # with α as the last variable: p_j + q_j − α ≤ 0
    eye = csr_array((np.ones(2 * m), (np.tile(np.arange(m), 2), np.arange(2 * m))), shape=(m, 2 * m))
    upper = hstack([eye, csr_array(-np.ones((m, 1)))]).tocsr()
    equal = hstack([A, csr_array((len(touched), 1))]).tocsr()
    cost = np.append(np.zeros(2 * m), 1.0)
    found = linprog(cost, A_ub=upper, b_ub=np.zeros(m), A_eq=equal, b_eq=slope[touched] / size, method="highs")
    if not found.success:
        raise ArgumentError("alphas", f"must be given: the largest weight was not found ({found.message})")
    return float(found.x[-1]) * size


def make_grid(largest: float, count: int, ratio: float) -> Array:
    """Return weights from the largest down, evenly spaced in their logarithms."""
    if not largest > 0:
        return np.zeros(1)
    return np.asarray(largest * np.logspace(0.0, math.log10(ratio), count))


def check_alphas(alphas: Sequence[float] | Array) -> Array:
    """Return given weights from the largest down."""
    found = _checks.float_array("alphas", alphas, dtype=np.float64)
    if found.ndim != 1 or not len(found) or (found < 0).any():
        raise ArgumentError("alphas", "must be a number of weights, or weights of at least 0")
    return np.sort(found)[::-1]


def multiply(penalty: Penalty, factor: float) -> Penalty:
    """Return α g; limits of coefficients stay unchanged.

    >>> multiply(L1(2.0), 0.5)
    L1(1)
    """
    if isinstance(penalty, L1):
        return L1(factor * penalty.weight)
    if isinstance(penalty, ElasticNet):
        return ElasticNet(factor * penalty.l1, factor * penalty.l2, penalty.lower, penalty.upper)
    if isinstance(penalty, GroupL12):
        return GroupL12(factor * penalty.weight, groups=penalty.groups, axis=penalty.axis)
    if isinstance(penalty, SparseGroup):
        return SparseGroup(factor * penalty.weight, factor * penalty.group_weight, groups=penalty.groups)
    if isinstance(penalty, Stacked):
        return Stacked([multiply(part, factor) for part in penalty.parts], list(penalty.shapes))
    raise ArgumentError(
        "problem", f"must have an l1, elastic-net or group penalty for a path, got {type(penalty).__name__}"
    )


#: By default the least weight is this part of the largest one.
RATIO = 1e-3
#: This many coefficients and weights are in a report.
MOST_DRAWN, MOST_WEIGHTS = 40, 200


@dataclasses.dataclass(frozen=True, repr=False)
class Path(Section):
    """The solutions along a path, from the largest weight down.

    Attributes
    ----------
    alphas
        The weights.
    coef
        The coefficients: a row for each weight; an estimator's are for features as they were given. Of several
        classes there is a matrix for each weight, with a row for each class.
    intercept
        The intercepts of an estimator, otherwise zeros; of several classes, or of the thresholds between ordered ones,
        a row for each weight.
    objective, gap, status
        The objective, its expected relative distance from the least one, and how each problem ended; see
        :class:`fpdfp.ManyResult`.
    rounds, bits_up, bits_down
        The exchanges with all clients, and all that was sent.
    names
        The names of the coefficients.
    labels
        The classes that have coefficients, or the names of thresholds; none where there is one intercept.
    chosen
        The weight that was chosen, None for a path alone.
    certified
        Which gaps are upper bounds; none where it is empty.
    """

    section = "path"

    alphas: Array
    coef: Array
    intercept: Array
    objective: Array
    gap: Array
    status: tuple[str, ...]
    rounds: int
    bits_up: int
    bits_down: int
    names: tuple[str, ...]
    labels: tuple[str, ...] = ()
    chosen: float | None = None
    certified: Array = dataclasses.field(default_factory=lambda: np.zeros(0, dtype=bool))

    def __repr__(self) -> str:
        return (
            f"Path({len(self.alphas)} weights from {self.alphas[0]:.4g} to {self.alphas[-1]:.4g}, {self.rounds} "
            f"rounds, {self.bits_up / 1e6:.3g} Mbit up, {self.bits_down / 1e6:.3g} Mbit down)"
        )

    def to_frame(self) -> Any:
        """Return the coefficients as a pandas table, with a row for each weight."""
        import pandas as pd

        coef, names = self._flat
        first = ["Intercept"]
        if self.labels:
            first = [f"{label}: Intercept" if self.coef.ndim == 3 else label for label in self.labels]
        rows = np.column_stack([self.intercept, coef])
        return pd.DataFrame(rows, index=pd.Index(self.alphas, name="alpha"), columns=[*first, *names])

    @property
    def _flat(self) -> tuple[Array, list[str]]:
        """The coefficients in a row for each weight, and their names."""
        names = list(self.names)
        if self.coef.ndim == 3:
            names = [f"{label}: {name}" for label in self.labels for name in names]
        return self.coef.reshape(len(self.alphas), len(names)), names

    def plot(self, ax: Any = None, *, chosen: float | None = None, labels: int = 10) -> Any:
        """Draw the coefficients against the weight; return the axes.

        Parameters
        ----------
        ax
            Axes of Matplotlib, new ones by default.
        chosen
            A weight to mark; by default the one that was chosen, if one was.
        labels
            How many of the largest coefficients are named.
        """
        ax = make_axes(ax, "coefficient")
        some = self.alphas > 0
        coef, names = self._flat
        largest = set(_find_largest(coef, labels).tolist())
        for j, name in enumerate(names):
            ax.plot(self.alphas[some], coef[some, j], lw=1.0, label=name if j in largest else None)
        chosen = self.chosen if chosen is None else chosen
        if chosen is not None:
            ax.axvline(chosen, color="0.3", lw=0.8, ls="--")
        return finish_axes(ax)

    def to_dict(self) -> dict[str, Any]:
        """Return what a report shows: the 40 largest coefficients, at 200 weights at most, with six digits."""
        coef, names = self._flat
        kept = _find_largest(coef, MOST_DRAWN)
        kept = kept[np.abs(coef[:, kept]).max(axis=0, initial=0.0) > 0]
        step = -(-len(self.alphas) // MOST_WEIGHTS)
        some = sorted(
            {*range(0, len(self.alphas), step), len(self.alphas) - 1, *np.flatnonzero(self.alphas == self.chosen)}
        )
        return {
            "alphas": self.alphas[some],
            "names": [names[j] for j in kept],
            "values": [shorten(coef[some, j]) for j in kept],
            "nonzero": np.count_nonzero(coef[some], axis=1),
            "of": len(names),
            "weights": len(self.alphas),
            "chosen": self.chosen,
            "rounds": self.rounds,
            "bits_up": self.bits_up,
            "bits_down": self.bits_down,
        }


def _find_largest(coef: Array, count: int) -> Array:
    """Return the coefficients that are largest anywhere on a path, the largest first."""
    order: Array = np.argsort(-np.abs(coef).max(axis=0, initial=0.0), kind="stable")[:count]
    return order


def path(
    source: Any,
    *data: Any,
    alphas: int | Sequence[float] | Array = 100,
    ratio: float = RATIO,
    tol: float = 1e-6,
    rounds: int = 500,
    certify: bool = False,
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Path:
    """Return the solutions for a grid of penalty weights, from the smallest one that gives zero down.

    All weights travel in the same exchanges, from one set-up; see :func:`fpdfp.solve_many`.

    Parameters
    ----------
    source
        A :class:`fpdfp.Problem`, whose penalty is multiplied with the weights; or an estimator, which is given ``data``
        and ``options`` as its ``fit`` is.
    alphas
        How many weights, or the weights themselves.
    ratio
        The least weight relative to the largest, where a number of them is given.
    tol, rounds, certify, progress, checkpoint
        As in :func:`fpdfp.solve_many`.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 5))
    >>> y = X @ [1.0, 0.0, 0.0, -0.5, 0.0] + rng.standard_normal(200)
    >>> losses = fpdfp.losses.LeastSquares(X, y, clients=np.arange(200) % 4)
    >>> found = fpdfp.path(fpdfp.Problem(losses, fpdfp.penalties.L1(1.0)), alphas=20)
    >>> (found.coef != 0).sum(axis=1)
    array([0, 1, 2, 2, 2, 2, 2, 3, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5])
    """
    grid = {
        "alphas": alphas,
        "ratio": ratio,
        "tol": tol,
        "rounds": rounds,
        "certify": certify,
        "progress": progress,
        "checkpoint": checkpoint,
    }
    if hasattr(source, "path") and hasattr(source, "fit"):
        found: Path = source.path(*data, **grid, **options)
        return found
    if not isinstance(source, Problem):
        raise ArgumentTypeError("source", f"must be a problem or an estimator, got {type(source).__name__}")
    if data or options:
        raise ArgumentError("data", "must not be given with a problem, which has its own")
    check_grid(alphas, ratio, tol, rounds)
    multiply(source.penalty, 1.0)  # refuses what has no multiples
    batch = Batch(source, problems=count_alphas(alphas))

    def model_of(alpha: float) -> Model:
        one = source.model._replace(penalty=multiply(source.penalty, alpha).bind(source.linop.out_shape))
        return flatten(one)

    names, labels = names_of(source)
    with open_record(checkpoint, source):
        weights, trivial = find_alphas(batch, model_of, alphas, ratio, rounds)
        found = follow(batch, model_of, weights, trivial, tol, rounds, progress, names, certify=certify)
    shape = source.model.shape
    return dataclasses.replace(
        found, coef=found.coef.reshape(-1, *shape), intercept=np.zeros((len(weights), *shape[:-1])), labels=labels
    )


def follow(
    batch: Batch, model_of: Callable[[float], Model], weights: Array, trivial: Anchor | None, tol: float, rounds: int,
    progress: bool | None, names: tuple[str, ...], *, certify: bool = False,
) -> Path:  # fmt: skip
    """Return the path of penalties α ↦ (g, B); ``trivial`` is the solution of the first weight, if it is known."""
    tasks = [Task(model_of(float(alpha))) for alpha in weights]
    settle(tasks[0], trivial)
    run(batch, tasks, tol, rounds, progress)
    if certify:
        bound_gaps(batch, tasks)
    found = collect(batch, tasks)
    return Path(
        weights, found.x, np.zeros(len(weights)), found.objective, found.gap, found.status, found.rounds,
        found.bits_up, found.bits_down, names, certified=found.certified,
    )  # fmt: skip


def find_alphas(
    batch: Batch, model_of: Callable[[float], Model], alphas: Any, ratio: float, rounds: int
) -> tuple[Array, Anchor | None]:
    """Return given weights; or a grid of a given number of below the largest one, and the solution of that."""
    if not isinstance(alphas, int | np.integer):
        return check_alphas(alphas), None
    largest, trivial = largest_alpha(batch, model_of, rounds)
    return make_grid(largest, int(alphas), ratio), trivial


def settle(task: Task, found: Anchor | None) -> None:
    """End a task whose solution is known."""
    if found is not None:
        task.best, task.objective = found, found.value + task.penalty(found.x)
        task.gap, task.status = 0.0, "converged"


def count_alphas(alphas: Any) -> int:
    """Return how many weights are requested."""
    return int(alphas) if isinstance(alphas, int | np.integer) else len(alphas)


def check_grid(alphas: Any, ratio: float, tol: float, rounds: int) -> None:
    """Refuse anything but a grid of weights."""
    if isinstance(alphas, int | np.integer):
        _checks.integer("alphas", alphas, at_least=1)
        if not 0.0 < _checks.real("ratio", ratio) < 1.0:
            raise ArgumentError("ratio", f"must be between 0 and 1, got {ratio:g}")
    else:
        check_alphas(alphas)
    _checks.real("tol", tol, positive=True)
    _checks.integer("rounds", rounds, at_least=1)


def names_of(problem: Problem) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the coefficients, and the numbers of classes where each has them."""
    given = problem.losses.feature_names
    *classes, d = problem.model.shape
    names = given if given is not None and len(given) == d else tuple(f"x{j}" for j in range(d))
    return names, tuple(map(str, range(classes[0]))) if classes else ()
