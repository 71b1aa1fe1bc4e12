"""The graph of features from sparse inverse covariance selection: the graphical lasso.

Up to 200 features scikit-learn solves it, by coordinate descent. With more features its regressions often do not
converge, and proximal gradient steps take its place. They minimise

    −log det Θ + tr(SΘ) + α Σ_{i≠j} |Θ_ij|      over positive definite Θ.

Features that no chain of covariances above α joins are not joined in the solution, so that groups are solved apart:

    Θ⁺ = soft(Θ − ζ (S − Θ⁻¹), ζα)      off the diagonal thresholded, with ζ from the two steps before

until the duality gap is at most the tolerance. A step costs one Cholesky factorisation and one inverse.

R. Mazumder and T. Hastie, "Exact covariance thresholding into connected components for large-scale graphical lasso",
JMLR 13 (2012); B. Rolfs, B. Rajaratnam, D. Guillot, I. Wong and A. Maleki, "Iterative thresholding algorithm for sparse
inverse covariance estimation", NeurIPS 2012.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._blas import one_thread
from fpdfp._progress import Bar
from fpdfp._typing import Array
from fpdfp.datasets.graph import FeatureGraph
from fpdfp.datasets.moments import Moments, check_rows
from fpdfp.errors import ArgumentError

#: Tried in turn until the graphical lasso succeeds: how much of the mean variance is added to the diagonal.
SHRINKAGES = (0.0, 1e-3, 1e-2, 1e-1)
#: Tolerances of scikit-learn's regressions, tried in turn: with its default, the first, some do not converge.
TOLERANCES = (1e-4, 1e-7)
#: With more features, proximal gradient steps take the place of scikit-learn.
MANY = 200
#: The largest duality gap after proximal gradient steps.
GAP = 1e-5
#: Steps after which a group of features counts as not converging, and halvings of one step.
MOST_STEPS = 1000
MOST_HALVINGS = 60
#: The gap is computed once in this many steps: it takes a factorisation of its own.
LOOK = 5


def feature_graph(X: Any, alpha: float = 0.1, *, clients: Any = None, progress: bool | None = None) -> FeatureGraph:
    """Estimate the graph of the columns of X with the graphical lasso.

    If the graphical lasso fails, as for a singular covariance, the covariance is shrunk towards a multiple of the
    identity, as little as necessary.

    Parameters
    ----------
    X
        Rows of features, dense or sparse; or :class:`Moments`, which need not be computed in one place: each client
        computes its own with ``Moments.of``, and the server merges them with ``Moments.total``.
    alpha
        The penalty: larger means fewer edges.
    clients
        Which client holds each row: then the moments of every client are merged, as they would be in a federation. The
        covariance is that of all rows together up to rounding, and so is the graph up to the tolerance of the graphical
        lasso.
    progress
        Whether to show a bar where there are more than 200 features; None, only where standard error is a terminal.

    References
    ----------
    O. Banerjee, L. El Ghaoui and A. d'Aspremont, "Model selection through sparse maximum likelihood estimation for
    multivariate Gaussian or binary data", JMLR 9 (2008).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> a, b, c = rng.standard_normal((3, 500))
    >>> X = np.stack([a, a + 0.5 * b, c], axis=1)
    >>> graph = feature_graph(X, alpha=0.2)
    >>> graph.edges
    1
    >>> graph.stacked().shape
    (6, 3)

    The same from three clients who keep their rows:

    >>> parts = [Moments.of(rows) for rows in np.array_split(X, 3)]
    >>> feature_graph(Moments.total(parts), alpha=0.2).edges
    1
    """
    alpha = _checks.real("alpha", alpha, positive=True)
    moments = X if isinstance(X, Moments) else _moments(X, clients)
    if isinstance(X, Moments) and clients is not None:
        raise ValueError("clients must not be given with moments, which have no rows")
    if moments.scatter.ndim != 2:
        raise ValueError("X: these moments have no covariances, only variances")
    if not moments.variance.any():
        raise ArgumentError("X", "must have a column that varies; every column is constant")
    many = len(moments.covariance) > MANY
    for shrinkage, tolerance in itertools.product(SHRINKAGES, (GAP,) if many else TOLERANCES):
        covariance = _shrunk(moments.covariance, shrinkage)
        if many:
            with one_thread(), Bar(MOST_STEPS, 0, progress, sends=False) as bar:
                precision = graphical_lasso(
                    covariance, alpha, tolerance, lambda step, value: bar.update(step, value, 0)
                )
        else:
            precision = _scikit_learn(covariance, alpha, tolerance)
        if precision is not None:
            return FeatureGraph(_normalise(precision), alpha, shrinkage)
    raise ValueError(f"the graphical lasso failed with alpha={alpha:g} for every shrinkage tried; raise alpha")


def _moments(X: Any, clients: Any) -> Moments:
    rows = check_rows(X)
    if min(rows.shape) < 2:
        raise ArgumentError("X", f"must have at least two rows and two columns, got shape {rows.shape}")
    return Moments.of(rows) if clients is None else Moments.total(Moments.of_clients(rows, clients))


def _shrunk(covariance: Array, shrinkage: float) -> Array:
    """Return a covariance with some of the mean variance on its diagonal."""
    size = float(np.trace(covariance)) / len(covariance)
    shrunk: Array = (1 - shrinkage) * covariance + shrinkage * size * np.eye(len(covariance))
    return shrunk


def _scikit_learn(covariance: Array, alpha: float, tolerance: float) -> Array | None:
    """Return the sparse inverse covariance, or None where the solver fails or does not converge."""
    from sklearn.covariance import graphical_lasso
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # divisions by the variance of a constant column
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            _, precision = graphical_lasso(covariance, alpha, max_iter=200, enet_tol=tolerance)
        except (FloatingPointError, ConvergenceWarning, np.linalg.LinAlgError):
            return None
    found: Array = precision
    return found if np.isfinite(found).all() else None


def _normalise(precision: Array) -> Any:
    """The off-diagonal entries, scaled to largest absolute value 1."""
    import scipy.sparse

    weights = precision - np.diag(np.diag(precision))
    largest = abs(weights).max()
    return scipy.sparse.csr_array(weights / largest if largest > 0 else weights)


class Point(NamedTuple):
    """A positive definite Θ, its inverse, and −log det Θ + tr(SΘ)."""

    theta: Array
    inverse: Array
    smooth: float


def graphical_lasso(covariance: Array, alpha: float, tol: float, look: Callable[[int, float], None]) -> Array | None:
    """Return the sparse inverse covariance, None if it is not found; ``look`` receives the steps and the objective."""
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
