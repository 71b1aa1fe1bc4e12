"""Sparse inverse covariance selection: the graph of features, from rows or from moments of clients."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.datasets.graph import FeatureGraph
from fpdfp.datasets.moments import Moments, check_rows
from fpdfp.errors import ArgumentError

#: Tried in turn until the graphical lasso succeeds: how much of the mean variance is added to the diagonal.
SHRINKAGES = (0.0, 1e-3, 1e-2, 1e-1)
#: Tolerances of the regressions inside, tried in turn: with scikit-learn's, the first, some do not converge.
TOLERANCES = (1e-4, 1e-7)
#: With more features scikit-learn takes minutes, and :mod:`fpdfp.datasets._glasso` seconds.
MANY = 200
#: The duality gap with which that one is content.
GAP = 1e-5


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
            precision = _large_graphical_lasso(covariance, alpha, tolerance, progress)
        else:
            precision = _graphical_lasso(covariance, alpha, tolerance)
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


def _large_graphical_lasso(covariance: Array, alpha: float, tolerance: float, progress: bool | None) -> Array | None:
    """Return the sparse inverse covariance of many features, or None where the solver fails or does not converge."""
    from fpdfp._blas import one_thread
    from fpdfp._progress import Bar
    from fpdfp.datasets._glasso import MOST_STEPS, graphical_lasso

    with one_thread(), Bar(MOST_STEPS, 0, progress, sends=False) as bar:
        return graphical_lasso(covariance, alpha, tolerance, lambda step, value: bar.update(step, value, 0))


def _graphical_lasso(covariance: Array, alpha: float, tolerance: float) -> Array | None:
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
