"""How many rows share a sum: of weights, of columns and their combinations, and of a loss at a point.

Every answer of a site is Σ c_i r_i over its rows. It says something of few rows where few of the c_i are large, which
:func:`effective` measures for c, :func:`shares` for columns and :func:`leverages` for all combinations of columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csc_array
from scipy.special import softmax

from fpdfp._typing import Array
from fpdfp.losses.classes import LINKS, ClassModel, Multinomial, Ordinal, Softmax
from fpdfp.losses.cox import Cox
from fpdfp.losses.glm import GLM, LeastSquares, Logistic

#: Combinations of columns that are so much shorter than the longest are only rounding.
ROUNDED = 1e-12
#: Link functions whose means are in the domain of their families for all coefficients.
FULL_DOMAIN = ("logit", "probit", "cloglog", "loglog", "cauchit")


def effective(weights: Array) -> float:
    """Return (Σw)²/Σw² of weights of at least 0: how many rows share them; 0 where all are 0.

    >>> effective(np.array([1.0, 1.0, 1.0, 0.0])), effective(np.zeros(3))
    (3.0, 0.0)
    """
    largest = float(weights.max(initial=0.0))
    if largest == 0.0:
        return 0.0
    scaled = weights / largest  # squares of small numbers would be zero
    return float(scaled.sum() ** 2 / np.square(scaled).sum())


def uncommon(X: Any) -> Any:
    """Return in which rows each column is not at its most common value: a sparse matrix of zeros and ones."""
    dense = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
    common = np.zeros(dense.shape[1])
    for j, column in enumerate(dense.T):
        values, counts = np.unique(column, return_counts=True)
        common[j] = values[counts.argmax()] if len(values) else 0.0
    return csc_array((dense != common).astype(np.float64))


def leverages(X: Array) -> Array:
    """Return each row's share of some combination of columns: 1 if one distinguishes it from all others."""
    largest = np.abs(X).max(axis=0, initial=0.0)
    if not largest.any():
        return np.zeros(len(X))
    columns = X[:, largest > 0] / largest[largest > 0]  # squares of small numbers would be zero
    columns = columns / np.sqrt(np.square(columns).mean(axis=0))
    # Not of products of columns: two that differ by a millionth in one row would be the same there.
    basis, triangle = np.linalg.qr(columns)
    vectors, values, _ = np.linalg.svd(triangle)
    kept = values > ROUNDED * values.max(initial=0.0)
    return np.asarray(np.square(basis @ vectors[:, : len(values)][:, kept]).sum(axis=1))


def shares(X: Array) -> Array:
    """Return for each column how many effective rows share its deviations from the middle; infinite for a constant.

    >>> shares(np.array([[1.0, 0.0, 5.0], [1.0, 0.0, 5.0], [0.0, 1e-9, 5.0], [0.0, 1.0, 5.0], [0.0, 0.0, 5.0]]))
    array([ 2.,  1., inf])
    """
    deviations = np.abs(X - np.median(X, axis=0))
    return np.array([effective(one) if one.max(initial=0.0) > 0 else np.inf for one in deviations.T])


class OutsideError(Exception):
    """A point is outside the domain of a family at this site."""


class Response(NamedTuple):
    """The response of rows to a point: the weights of features in the gradient and their curvature, or None.

    ``what`` names them, behind "the curvature" or "the sum".
    """

    what: str
    slope: Array
    bend: Array | None = None


def respond(losses: Any, x: Array, client: int) -> list[Response]:
    """Return how the rows of a client respond to a point; raise OutsideError outside the domain.

    Curvature that is the same everywhere does not count, and numbers that are not finite stay so.
    """
    own = losses._place(client)
    if isinstance(losses, Cox):
        expected, bend = losses.responses(x, client)
        return [Response("", expected - (losses._risk.table.event[own] >= 0), bend)]
    weights, y = losses.weights_of_rows[own], losses._rows.y[own]
    if isinstance(losses, Softmax | ClassModel):
        return _respond_in_classes(losses, x, client, weights, y.astype(np.int64))
    y = y.astype(np.float64)
    z = losses.forms(x, own).astype(np.float64)
    with np.errstate(all="ignore"):
        slope = weights * losses._slopes(z, y)
        if isinstance(losses, LeastSquares) or losses.form == "quadratic":
            return [Response("", slope)]
        if isinstance(losses, Logistic):
            return [Response("", slope, weights * losses._curve(z, y, np.ones(len(y))))]
        return [Response("", slope, _bend_of(losses, z, y, weights))]


def _respond_in_classes(losses: Any, x: Array, client: int, weights: Array, codes: Array) -> list[Response]:
    own = losses._place(client)
    z = losses._rows_of(client) @ x.T if isinstance(losses, Softmax) else losses.predictors(x, own)
    slopes = losses._slopes(z, codes) if isinstance(losses, Softmax) else losses._slopes_of(z, codes)
    found = [Response(f" in the gradient of class {k}", weights * one) for k, one in enumerate(slopes.T)]
    if isinstance(losses, Ordinal):
        if not (np.diff(losses.thresholds(x)) > 0).all():
            raise OutsideError  # whatever the rows are
        link = LINKS[losses.link]
        bends = (weights * (link.chances(z) * link.chances(-z)).T).T
        if not (np.diff(z, axis=1) > 0).all():
            bends = np.full_like(bends, np.nan)  # rounding makes thresholds equal
        return [one._replace(bend=bends[:, k]) for k, one in enumerate(found)]
    p = losses.probabilities(z) if isinstance(losses, Multinomial) else softmax(z, axis=1)
    present = np.flatnonzero(np.bincount(codes, minlength=p.shape[1]))
    pairs = [(int(a), int(b)) for i, a in enumerate(present) for b in present[:i]]
    found += [Response(f" between classes {b} and {a}", weights, weights * p[:, a] * p[:, b]) for a, b in pairs]
    return found


def respond_in_squares(losses: Any, x: Array, client: int) -> list[Response]:
    """Return how rows make up the sums of squares of scores, and of residuals."""
    found = [Response(" of squared scores", one.slope**2) for one in respond(losses, x, client)]
    if isinstance(losses, GLM):
        own, family = losses._place(client), losses.distribution
        mean = family.mean(losses.forms(x, own))
        with np.errstate(all="ignore"):
            left = np.nan_to_num((losses._rows.y[own] - mean) ** 2 / family.variance(mean))
        found.append(Response(" of squared residuals", losses.weights_of_rows[own] * left))
    return found


def respond_in_third_moments(losses: Any, x: Array, client: int, inverse: Array) -> list[Response]:
    """Return how rows make up Σ w' (aᵀVa) a, with V as the inverse of an information."""
    if isinstance(losses, Cox):
        X = losses._rows_of(client)
        dense = X.toarray() if hasattr(X, "toarray") else X
        weights = losses.responses(x, client)[1] * ((dense @ inverse) * dense).sum(axis=1)
    else:
        weights = losses.jeffreys_weights(x, client, inverse)
    return [] if weights is None else [Response(" of third moments", weights)]


def respond_at_start(losses: Any, client: int) -> list[Response]:
    """Return how rows make up the quadratic model that a fit starts from, which is of each where its own outcome is."""
    if not isinstance(losses, GLM | Logistic | LeastSquares):
        return []
    glm: GLM = losses if isinstance(losses, GLM) else losses._as_glm
    own = glm._place(client)
    y, weights = glm._rows.y[own].astype(np.float64), glm.weights_of_rows[own]
    with np.errstate(all="ignore"):
        bend = _bend_of(glm, glm.distribution.start(y, weights), y, weights)
    return [Response(" of the start", bend, bend)]


def _bend_of(losses: GLM, z: Array, y: Array, weights: Array) -> Array:
    """Return the expected curvature of rows; raise OutsideError at a point outside the domain of the loss."""
    family = losses.distribution
    bend = family.functions.weight(z, y, family.parameters) * weights
    value = family.functions.value(z, y, family.parameters)
    if np.isfinite(bend).all() and np.isfinite(value).all():
        return np.asarray(bend)
    if family.link not in FULL_DOMAIN:
        raise OutsideError
    return np.full(len(y), np.nan)
