"""Problems without a minimum: outcomes that some combination of columns separates, and no penalty holds it back.

As for likelihoods (`fpdfp/inference/separation.py`): from where a solver ended, a Newton step along what g∘B does not
see, ten times as long, still gains something.
"""

from __future__ import annotations

import numpy as np

from fpdfp._typing import Array
from fpdfp.inference.separation import FAR, NOTHING, newton_step
from fpdfp.losses._linear import LinearModel
from fpdfp.pooled.lagrangian import Found
from fpdfp.problem import Problem

#: With a tolerance below so many units of the last place a promise may be rounding.
UNITS = 1e6


def find_growing(problem: Problem, found: Found, tol: float) -> list[str]:
    """Return the names of the features whose coefficients grow without end; none where nothing shows that they do."""
    losses, x = problem.losses, found.x.astype(np.float64)
    directions = find_unseen(problem, x, found.v)
    hessian = losses.hessian(x, problem.weights) if isinstance(losses, LinearModel) and len(directions) else None
    if hessian is None:
        return []
    slope = losses.gradient(x, problem.weights).ravel().astype(np.float64)
    promised = newton_step(-(directions @ slope), directions @ hessian @ directions.T)
    step = promised._replace(step=directions.T @ promised.step)
    tol = max(tol, UNITS * float(np.finfo(losses.dtype).eps))
    if step.is_suspect(found.certificate.objective, problem.total_weight, tol):
        with np.errstate(over="ignore"):
            values = [problem.objective(at) for at in (x, x + FAR * step.step.reshape(x.shape))]
        # Deviances are twice the objective.
        grows = step.growing(x.ravel()) if step.separates(2.0 * values[0], 2.0 * values[1]) else []
    else:
        # All rows are fitted, and none of them has information left.
        before = losses.hessian(np.zeros_like(x), problem.weights)
        fitted = found.certificate.objective < NOTHING * problem.total_weight
        lost = fitted and before is not None and np.diag(hessian).max() < NOTHING * np.diag(before).max()
        grows = np.flatnonzero(directions.any(axis=0)).tolist() if lost else []
    names = losses.feature_names or [f"x{j}" for j in range(x.shape[-1])]
    return list(dict.fromkeys(names[j % len(names)] for j in grows))


def find_unseen(problem: Problem, x: Array, v: Array) -> Array:
    """Return directions that g∘B does not see, one a row; with limits on x, of the coordinates that are at none."""
    if problem.penalty.finite or not problem.linop.is_identity:
        return problem._feasibility.kernel.reshape(-1, x.size)
    kept = problem.penalty.conjugate_prox_derivative(x + v, 1.0)(np.ones_like(x))
    free: Array = np.eye(x.size)[kept.ravel() == 0]
    return free
