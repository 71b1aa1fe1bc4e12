"""The graphical lasso for many features, by proximal gradient steps.

Minimises −log det Θ + tr(SΘ) + α Σ_{i≠j} |Θ_ij| over positive definite Θ. Features that no chain of covariances above α
joins are not joined in the solution, so that groups of them are solved apart. Within a group,

    Θ⁺ = soft(Θ − ζ (S − Θ⁻¹), ζα)      off the diagonal thresholded, with ζ from the two steps before

until the duality gap is at most the tolerance. A step costs one Cholesky factorisation and one inverse; scikit-learn's
coordinate descent solves as many regressions as there are features.

R. Mazumder and T. Hastie, "Exact covariance thresholding into connected components for large-scale graphical lasso",
JMLR 13 (2012); B. Rolfs, B. Rajaratnam, D. Guillot, I. Wong and A. Maleki, "Iterative thresholding algorithm for sparse
inverse covariance estimation", NeurIPS 2012.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array

#: Steps after which a group of features counts as not converging, and halvings of one step.
MOST_STEPS = 1000
MOST_HALVINGS = 60
#: The gap is computed after so many steps: it takes a factorisation of its own.
LOOK = 5


class Point(NamedTuple):
    """A positive definite Θ, its inverse, and −log det Θ + tr(SΘ)."""

    theta: Array
    inverse: Array
    smooth: float


def graphical_lasso(covariance: Array, alpha: float, tol: float, look: Callable[[int, float], None]) -> Array | None:
    """Return the sparse inverse covariance, None if it is not found; ``look`` is told the steps and the objective."""
    if not (np.diag(covariance) > 0).all():
        return None
    precision = np.diag(1.0 / np.diag(covariance))
    groups = list(_groups(covariance, alpha))
    done = 0
    for group in groups:
        found, steps = _solve(covariance[np.ix_(group, group)], alpha, tol / len(groups), done, look)
        if found is None:
            return None
        precision[np.ix_(group, group)] = found
        done += steps
    return precision


def _groups(covariance: Array, alpha: float) -> Iterator[Array]:
    """Yield the numbers of the features of each group of two or more."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    _, labels = connected_components(csr_array(abs(covariance) > alpha), directed=False)
    order = np.argsort(labels, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        if group.size > 1:
            yield group


def _solve(
    S: Array, alpha: float, tol: float, done: int, look: Callable[[int, float], None]
) -> tuple[Array | None, int]:
    """Return the inverse covariance of a group, or None, and the steps it took."""
    start = np.diag(1.0 / np.diag(S))
    at = _point(S, start, np.sqrt(start))
    assert at is not None  # a diagonal of positive numbers
    step = float(np.diag(S).min()) ** -2
    for steps in range(1, MOST_STEPS + 1):
        following = _advance(S, alpha, at, step)
        if following is None:
            return None, steps
        moved, turned = following.theta - at.theta, at.inverse - following.inverse
        curvature = float(np.vdot(moved, turned))
        at = following
        if curvature <= 0.0:
            return at.theta, steps  # nothing moves any more
        step = float(np.vdot(moved, moved)) / curvature
        if steps % LOOK == 0:
            objective = at.smooth + alpha * _off_diagonal(at.theta)
            look(done + steps, objective)
            if objective - _dual(S, alpha, at.inverse) <= tol:
                return at.theta, steps
    return None, MOST_STEPS


def _advance(S: Array, alpha: float, at: Point, step: float) -> Point | None:
    """Return the point after a step, as long as it may be; None where rounding leaves none."""
    from scipy.linalg import lapack

    slope = S - at.inverse
    for _ in range(MOST_HALVINGS):
        theta = at.theta - step * slope
        thresholded = np.sign(theta) * np.maximum(abs(theta) - step * alpha, 0.0)
        np.fill_diagonal(thresholded, np.diag(theta))
        factor, failed = lapack.dpotrf(thresholded, lower=True, clean=True)
        if not failed:
            moved = thresholded - at.theta
            bound = at.smooth + float(np.vdot(slope, moved)) + float(np.vdot(moved, moved)) / (2.0 * step)
            if _smooth(S, thresholded, factor) <= bound + 1e-12 * abs(bound):
                return _point(S, thresholded, factor)
        step /= 2.0
    return None


def _point(S: Array, theta: Array, factor: Array) -> Point | None:
    """Return a point with its inverse, from its Cholesky factor; None where that is too near to singular."""
    from scipy.linalg import lapack

    lower, failed = lapack.dpotri(factor, lower=True)  # twice the work of the factor: for points that are kept alone
    return None if failed else Point(theta, lower + np.tril(lower, -1).T, _smooth(S, theta, factor))


def _smooth(S: Array, theta: Array, factor: Array) -> float:
    """Return −log det Θ + tr(SΘ)."""
    return -2.0 * float(np.log(np.diag(factor)).sum()) + float(np.vdot(S, theta))


def _off_diagonal(matrix: Any) -> float:
    return float(abs(matrix).sum() - abs(np.diag(matrix)).sum())


def _dual(S: Array, alpha: float, inverse: Array) -> float:
    """Return log det W + d at the matrix W near Θ⁻¹ that the dual allows; −∞ where that is not positive definite."""
    from scipy.linalg import lapack

    allowed = S + np.clip(inverse - S, -alpha, alpha)
    np.fill_diagonal(allowed, np.diag(S))
    factor, failed = lapack.dpotrf(allowed, lower=True, clean=True)
    return -np.inf if failed else 2.0 * float(np.log(np.diag(factor)).sum()) + len(S)
