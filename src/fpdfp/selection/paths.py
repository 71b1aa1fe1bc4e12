"""Solutions along a path of penalty weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.problem import Model, Problem
from fpdfp.selection.axes import finish_axes, make_axes
from fpdfp.selection.batch import Batch
from fpdfp.selection.bounds import bound_gaps
from fpdfp.selection.largest import check_alphas, largest_alpha, make_grid
from fpdfp.selection.many import collect, run
from fpdfp.selection.multiples import multiply
from fpdfp.selection.task import Anchor, Task

#: By default the least weight is this part of the largest one.
RATIO = 1e-3


@dataclasses.dataclass(frozen=True, repr=False)
class Path:
    """The solutions along a path, from the largest weight down.

    Attributes
    ----------
    alphas
        The weights.
    coef
        The coefficients: a row for each weight; those of an estimator are for features as they were given.
    intercept
        The intercepts of an estimator, otherwise zeros.
    objective, gap, status
        The objective, its expected relative distance from the least one, and how each problem ended; see
        :class:`fpdfp.ManyResult`.
    rounds, bits_up, bits_down
        The exchanges with all clients, and all that was sent.
    names
        The names of the coefficients.
    certified
        Which gaps are upper bounds; none where it is empty.
    """

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
    certified: Array = dataclasses.field(default_factory=lambda: np.zeros(0, dtype=bool))

    def __repr__(self) -> str:
        return (
            f"Path({len(self.alphas)} weights from {self.alphas[0]:.4g} to {self.alphas[-1]:.4g}, {self.rounds} "
            f"rounds, {self.bits_up / 1e6:.3g} Mbit up, {self.bits_down / 1e6:.3g} Mbit down)"
        )

    def to_frame(self) -> Any:
        """Return the coefficients as a pandas table, with a row for each weight."""
        import pandas as pd

        table = pd.DataFrame(self.coef, index=pd.Index(self.alphas, name="alpha"), columns=list(self.names))
        table.insert(0, "Intercept", self.intercept)
        return table

    def plot(self, ax: Any = None, *, chosen: float | None = None, labels: int = 10) -> Any:
        """Draw the coefficients against the weight; return the axes.

        Parameters
        ----------
        ax
            Axes of Matplotlib, new ones by default.
        chosen
            A weight to mark.
        labels
            How many of the largest coefficients are named.
        """
        ax = make_axes(ax, "coefficient")
        some = self.alphas > 0
        largest = set(np.argsort(-np.abs(self.coef).max(axis=0), kind="stable")[:labels].tolist())
        for j, name in enumerate(self.names):
            ax.plot(self.alphas[some], self.coef[some, j], lw=1.0, label=name if j in largest else None)
        if chosen is not None:
            ax.axvline(chosen, color="0.3", lw=0.8, ls="--")
        return finish_axes(ax)


def path(
    source: Any,
    *data: Any,
    alphas: int | Sequence[float] | Array = 100,
    ratio: float = RATIO,
    tol: float = 1e-6,
    rounds: int = 500,
    certify: bool = False,
    progress: bool | None = None,
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
    tol, rounds, certify, progress
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
    grid = {"alphas": alphas, "ratio": ratio, "tol": tol, "rounds": rounds, "certify": certify,
            "progress": progress}  # fmt: skip
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
        return source.model._replace(penalty=multiply(source.penalty, alpha).bind(source.linop.out_shape))

    weights, trivial = find_alphas(batch, model_of, alphas, ratio, rounds)
    return follow(batch, model_of, weights, trivial, tol, rounds, progress, names_of(source), certify=certify)


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
        found.bits_up, found.bits_down, names, found.certified,
    )  # fmt: skip


def find_alphas(
    batch: Batch, model_of: Callable[[float], Model], alphas: Any, ratio: float, rounds: int
) -> tuple[Array, Anchor | None]:
    """Return given weights; or a grid of so many below the largest one, and the solution of that."""
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
    """Return how many weights are asked for."""
    return int(alphas) if isinstance(alphas, int | np.integer) else len(alphas)


def check_grid(alphas: Any, ratio: float, tol: float, rounds: int) -> None:
    """Refuse what is no grid of weights."""
    if isinstance(alphas, int | np.integer):
        _checks.integer("alphas", alphas, at_least=1)
        if not 0.0 < _checks.real("ratio", ratio) < 1.0:
            raise ArgumentError("ratio", f"must be between 0 and 1, got {ratio:g}")
    else:
        check_alphas(alphas)
    _checks.real("tol", tol, positive=True)
    _checks.integer("rounds", rounds, at_least=1)


def names_of(problem: Problem) -> tuple[str, ...]:
    """Return the names of the coefficients."""
    given = problem.losses.feature_names
    (d,) = problem.model.shape
    return given if given is not None and len(given) == d else tuple(f"x{j}" for j in range(d))
