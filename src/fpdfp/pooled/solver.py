"""Minimise f(x) + g(Bx) with all data in one place, and certify the result.

The way depends on the problem. For linear models, proximal Newton steps: on working sets (`working_set.py`) where B is
the identity and g a weighted l1 or group norm, else on all coordinates (`composite.py`). For linear models with fewer
rows than features and a large B, primal-dual steps (`wide.py`). For all other problems, an augmented Lagrangian
(`lagrangian.py`). The certificate does not depend on how x was found.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._numbers import one_thread
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.errors import AccuracyWarning, SeparationError
from fpdfp.inference.estimability import NOTHING
from fpdfp.pooled.composite import is_composite, solve_composite
from fpdfp.pooled.lagrangian import Found, solve_alike
from fpdfp.pooled.separating import find_growing
from fpdfp.pooled.wide import Wide, is_wide
from fpdfp.pooled.working_set import find_blocks, solve_blocks
from fpdfp.problem import Certificate, Problem, infinite_start

#: A relative gap of this many machine epsilons is as small as rounding of x allows: no other way is tried.
ROUNDINGS = 10


@dataclasses.dataclass(frozen=True)
class Minimum:
    """A solution and its certificate.

    Attributes
    ----------
    x, v
        The solution and its dual.
    objective
        F(x); with constraints, g is taken at the point of its domain nearest to Bx, so that an x which is outside
        by ``certificate.violation``, and has not converged, may have an objective below the minimum.
    certificate
        The duality gap, if one is known, and the residual of Lemma 1.
    converged
        Whether the duality gap is at most the tolerance, and constraints hold: for B = I exactly, otherwise up to the
        rounding of Bx.
    stationary
        Whether no duality gap is known for the problem, the residual is at most the tolerance and 1e-6, and
        constraints hold.
    newton_steps
        The number of Newton steps, or of primal-dual steps where B is large and rows are few.
    seconds
        Time taken.
    """

    x: Array
    v: Array
    objective: float
    certificate: Certificate
    converged: bool
    stationary: bool
    newton_steps: int
    seconds: float

    def __str__(self) -> str:
        gap = self.certificate.relative_gap
        bound = f"relative gap {gap:.2g}" if gap is not None else f"residual {self.certificate.residual.norm:.2g}"
        return f"objective {self.objective:.15g}, {bound}, {self.newton_steps} Newton steps in {self.seconds:.2f} s"


def minimize(problem: Problem, tol: float = 1e-10, x0: Any = None) -> Minimum:
    """Minimise f(x) + g(Bx) with all data in one place, and certify the result.

    Parameters
    ----------
    problem
        The problem; its penalty must have the derivative of its prox, as all of :mod:`fpdfp.penalties` do.
    tol
        The relative duality gap to reach. If no gap is known (see :meth:`Problem.certificate`), two residuals must be
        small. One, ‖∇f(x) + Bᵀv‖ relative to ‖∇f(0)‖ must be at most ``tol``. The other, ‖Bx − y‖ relative
        to ‖Bx‖ with y in the domain of g, must be at most 1e-6 (1.2e-5 in single precision). A small residual does not
        bound the distance to the minimum. With float32 data, gaps below about 1e-6 are often out of reach.
    x0
        Where to start, for instance the solution for another weight of the penalty. By default, zero, or a rough
        solution of a part of the rows. If the losses are infinite at zero (gamma outcomes with the inverse link), a
        start is looked for; an error requests x0 if none is found.

    Returns
    -------
    Minimum
        With a warning if the tolerance was not reached, or if outcomes are separated and the minimum does not exist.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(3), [3.0, 2.8, 0.0])
    >>> best = fpdfp.minimize(fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(3)))
    >>> best.x.round(6)
    array([2.75, 2.75, 0.3 ])
    >>> best.converged, best.certificate.relative_gap < 1e-10
    (True, True)

    A path of solutions, each of which starts from the last:

    >>> x = None
    >>> for weight in (0.4, 0.2, 0.1):
    ...     x = fpdfp.minimize(fpdfp.Problem(losses, fpdfp.penalties.L1(weight)), x0=x).x
    >>> x.round(6)
    array([2.7, 2.5, 0. ])
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be an fpdfp.Problem, got {type(problem).__name__}")
    if problem.model.device != "cpu":
        raise ValueError(
            "problem must be on the CPU, but its losses are on the GPU, which this solver does not support"
        )
    tol = _checks.real("tol", tol, positive=True)
    shape, dtype = problem.model.shape, problem.model.dtype
    x = None if x0 is None else _checks.own_array("x0", x0, shape=shape, dtype=dtype)
    if x is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            objective = problem.evaluate(x)[0]
        if not np.isfinite(objective):
            raise infinite_start(objective)
    started = time.perf_counter()
    # Idle threads of BLAS slow down the kernels' threads, and with several of them bits depend on their number.
    # A step that is too long may lead to where F overflows; it is made shorter.
    with one_thread(), np.errstate(over="ignore", invalid="ignore"):
        found = _solve(problem, tol, x)
    reached, gap_known = found.reached, found.certificate.gap is not None
    # Rows that are all fitted have an objective of 0 at infinity, and near it any gap is small.
    certain = reached.enough and gap_known and found.certificate.objective >= NOTHING * problem.total_weight
    growing = [] if certain else find_growing(problem, found.x, found.v, found.certificate.objective, tol)
    if growing:
        warn(f"minimize found no minimum: {SeparationError(growing)}", AccuracyWarning)
    elif not reached.enough:
        goal = f"tol={tol:g}" if reached.goal == tol else f"{reached.goal:g}"
        warn(f"minimize reached a relative {reached.name} of {reached.error:.2g} instead of {goal}", AccuracyWarning)
    return Minimum(
        found.x,
        found.v,
        found.certificate.objective,
        found.certificate,
        converged=reached.enough and gap_known and not growing,
        stationary=reached.enough and not gap_known and not growing,
        newton_steps=found.steps,
        seconds=time.perf_counter() - started,
    )


def _solve(problem: Problem, tol: float, x: Array | None) -> Found:
    """Solve in the way that suits the problem."""
    if is_wide(problem):
        return Wide(problem, tol).solve(np.zeros(problem.model.shape) if x is None else x)
    blocks = find_blocks(problem)
    if blocks is not None:
        found = solve_blocks(problem, blocks, tol, x)
    else:
        found = solve_composite(problem, tol, x) if is_composite(problem) else None
    if found is not None and found.reached.error <= max(tol, ROUNDINGS * float(np.finfo(problem.model.dtype).eps)):
        return found
    # Slower, and also for problems that the fast ways do not solve to the tolerance.
    other = solve_alike(problem, tol, x)
    return other if found is None or _is_better(other, found) else found


def _is_better(one: Found, other: Found) -> bool:
    """Whether a point has the smaller gap, or where one has none, the smaller objective; g is finite."""
    if one.certificate.gap is None or other.certificate.gap is None:
        return one.certificate.objective < other.certificate.objective
    return one.certificate.gap < other.certificate.gap
