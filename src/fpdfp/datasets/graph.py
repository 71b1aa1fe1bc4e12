"""The graph of features behind graph-guided models, by sparse inverse covariance selection."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array

#: Tried in turn until the graphical lasso succeeds: how much of the mean variance is added to the diagonal.
SHRINKAGES = (0.0, 1e-3, 1e-2, 1e-1)


class FeatureGraph(NamedTuple):
    """A graph of features and how it was found.

    Attributes
    ----------
    weights
        The off-diagonal entries of the sparse inverse covariance, a CSR array, scaled to largest absolute value 1.
    alpha
        The penalty of the graphical lasso.
    shrinkage
        How much of the mean variance was added to the diagonal of the covariance to make it invertible.
    """

    weights: Any
    alpha: float
    shrinkage: float

    @property
    def edges(self) -> int:
        """The number of edges."""
        return int(self.weights.nnz) // 2

    def stacked(self) -> Any:
        """Return B = [G; I] as a CSR array."""
        import scipy.sparse

        return scipy.sparse.vstack([self.weights, scipy.sparse.eye_array(self.weights.shape[0])]).tocsr()


def feature_graph(X: Any, alpha: float = 0.1) -> FeatureGraph:
    """Find the graph of the columns of X with the graphical lasso.

    A covariance that is singular makes the graphical lasso fail; it is then shrunk towards a multiple of the identity
    and tried again, as little as suffices.

    Parameters
    ----------
    X
        Rows of features, dense or sparse.
    alpha
        The penalty: larger means fewer edges.

    References
    ----------
    O. Banerjee, L. El Ghaoui and A. d'Aspremont, "Model selection through sparse maximum likelihood estimation for
    multivariate Gaussian or binary data", JMLR 9 (2008).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> a, b, c = rng.standard_normal((3, 500))
    >>> graph = feature_graph(np.stack([a, a + 0.5 * b, c], axis=1), alpha=0.2)
    >>> graph.edges
    1
    >>> graph.stacked().shape
    (6, 3)
    """
    alpha = _checks.real("alpha", alpha, positive=True)
    dense = _checks.float_array("X", X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    if dense.ndim != 2 or min(dense.shape) < 2:
        raise ValueError(f"X must have at least two rows and two columns, got shape {dense.shape}")
    if not (dense != dense[0]).any():
        raise ValueError("X must have a column that varies; every column is constant")
    covariance = np.cov(dense, rowvar=False, bias=True)
    for shrinkage in SHRINKAGES:
        precision = _graphical_lasso(covariance, alpha, shrinkage)
        if precision is not None:
            return FeatureGraph(_normalised(precision), alpha, shrinkage)
    raise ValueError(f"the graphical lasso failed with alpha={alpha:g} for every shrinkage tried; raise alpha")


def _graphical_lasso(covariance: Array, alpha: float, shrinkage: float) -> Array | None:
    """Return the sparse inverse covariance, or None where the solver fails or does not converge."""
    from sklearn.covariance import graphical_lasso
    from sklearn.exceptions import ConvergenceWarning

    size = float(np.trace(covariance)) / len(covariance)
    shrunk = (1 - shrinkage) * covariance + shrinkage * size * np.eye(len(covariance))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # divisions by the variance of a constant column
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            _, precision = graphical_lasso(shrunk, alpha, max_iter=200)
        except (FloatingPointError, ConvergenceWarning, np.linalg.LinAlgError):
            return None
    found: Array = precision
    return found if np.isfinite(found).all() else None


def _normalised(precision: Array) -> Any:
    import scipy.sparse

    weights = precision - np.diag(np.diag(precision))
    largest = abs(weights).max()
    return scipy.sparse.csr_array(weights / largest if largest > 0 else weights)
