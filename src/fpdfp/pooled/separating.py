"""Problems without a minimum: outcomes that some combination of columns separates, and no penalty holds it back.

As for likelihoods (`fpdfp/inference/estimability.py`): from where a solver ended, and from where Newton steps along
what g∘B does not see lead from there, such a step, ten times as long, still gains something.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.bounds import Feasibility
from fpdfp.inference.estimability import FAR, FLAT, NOTHING, Step, newton_step
from fpdfp.losses.linear import LinearModel
from fpdfp.problem import Problem

#: With a tolerance below so many units of the last place a promise may be rounding.
UNITS = 1e6
#: The most Newton steps, and the least part of one. Where so many of them, up to the last, have promised e times less
#: than the one before, there is no minimum: towards one, promises come down faster and faster.
MOST, LEAST, STEADY = 20, 1e-6, 4


#: A limit that is farther away than this, in units of a step, does not count.
ENDLESS = 1e20


class Place(NamedTuple):
    """A point, the objective there, the Newton step from it, and how many before it promised e times more each."""

    x: Array
    value: float
    step: Step
    steady: int


def find_growing(problem: Problem, x: Array, v: Array, objective: float, tol: float) -> list[str]:
    """Return the names of the features whose coefficients grow without end; none where nothing shows that they do.

    x and v are where a solver ended. Questions to clients are counted if the problem belongs to a run.
    """
    losses, x = problem.losses, x.astype(np.float64)
    if not isinstance(losses, LinearModel):
        return []
    directions = find_free(problem, losses.ridge_of_x, x, v)
    hessian = problem.hessian(x) if len(directions) else None
    if hessian is None:
        return []
    last = follow(problem, x, directions, max(tol, UNITS * float(np.finfo(losses.dtype).eps)))
    grows: list[int] = []
    if last is not None:
        with np.errstate(over="ignore"):
            far = problem.objective(last.x + FAR * last.step.step.reshape(x.shape))
        # Deviances are twice the objective.
        if last.steady >= STEADY or last.step.separates(2.0 * last.value, 2.0 * far):
            grows = last.step.growing(last.x.ravel())
    if not grows and objective < NOTHING * problem.total_weight:
        # All rows are fitted; perhaps none of them has information left.
        before = problem.hessian(np.zeros_like(x))
        if before is not None and np.diag(hessian).max() < NOTHING * np.diag(before).max():
            grows = np.flatnonzero(directions.any(axis=0)).tolist()
    if not is_unlimited(problem, x if last is None else last.step.step.reshape(x.shape)):
        return []
    names = losses.feature_names or [f"x{j}" for j in range(x.shape[-1])]
    return list(dict.fromkeys(names[j % len(names)] for j in grows))


def is_unlimited(problem: Problem, direction: Array) -> bool:
    """Whether limits on Bx, if there are some, let x go along a direction without end."""
    image = ENDLESS * problem.linop.apply(direction)
    return problem.penalty.finite or bool(np.allclose(problem.penalty.project(image), image, rtol=1e-3, atol=0.0))


def follow(problem: Problem, x: Array, directions: Array, tol: float) -> Place | None:
    """Take Newton steps along some directions; return the last place whose step promises too much for a minimum.

    A solver may have ended far from a minimum, and there a long step gains something as well.
    """
    last, steady = None, 0
    for _ in range(MOST):
        hessian = problem.hessian(x)
        assert hessian is not None
        slope = problem.gradient(x).ravel().astype(np.float64)
        if not (np.isfinite(hessian).all() and np.isfinite(slope).all()):
            return None
        inside = newton_step(-(directions @ slope), directions @ hessian @ directions.T)
        step, value = inside._replace(step=directions.T @ inside.step), problem.objective(x)
        # Where all rows are fitted, steps are rounding.
        fitted = last is not None and value < NOTHING * problem.total_weight
        if fitted or not step.is_suspect(value, problem.total_weight, tol):
            break
        steady = steady + 1 if last is not None and 2.5 < last.step.promise / step.promise < 3.0 else 0
        last, share, change = Place(x, value, step, steady), 1.0, step.step.reshape(x.shape)
        with np.errstate(over="ignore"):
            while share > LEAST and not problem.objective(x + share * change) < value - 1e-4 * share * step.promise:
                share *= 0.5
        if share <= LEAST:
            break
        x = x + share * change
    return last


def find_free(problem: Problem, ridge: Array, x: Array, v: Array) -> Array:
    """Return directions that neither g∘B nor a ridge sees, one a row: along all others F has a minimum."""
    directions = find_unseen(problem, x, v)
    if not (len(directions) and ridge.any()):
        return directions
    seen = directions[:, np.broadcast_to(ridge > 0, x.shape).ravel()]
    values, vectors = np.linalg.eigh(seen @ seen.T)
    free: Array = vectors[:, values <= FLAT * max(float(values[-1]), 0.0)].T @ directions
    return free


def find_unseen(problem: Problem, x: Array, v: Array) -> Array:
    """Return directions that g∘B does not see, one a row; of limits it sees those that hold an entry of Bx."""
    penalty, seen = problem.penalty, problem._feasibility
    if not penalty.finite:
        shifted = problem.linop.apply(x) + v
        try:
            held = penalty.conjugate_prox_derivative(shifted, 1.0)(np.ones_like(shifted)) != 0
        except NotImplementedError:  # of a penalty of another package, whose limits are not known
            return np.zeros((0, x.size))
        # Near an entry whose dual is 0 and does not change, g is constant.
        held |= penalty.conjugate_prox(shifted, 1.0) != 0
        seen = Feasibility(problem.model, held.astype(np.float64))
    return seen.kernel.reshape(-1, x.size)
