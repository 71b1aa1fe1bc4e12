"""How each row of a model makes up what is summed at a point: its weight in the gradient, and its curvature.

A gradient is Σ c_i a_i over rows a_i, and a Hessian Σ b_i a_i a_iᵀ. A site's guard looks at c and b before it sends
such sums: where few rows have most of c or b, the sums are these rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from fpdfp._typing import Array
from fpdfp.losses.classes import LINKS, ClassModel, Multinomial, Ordinal, Softmax
from fpdfp.losses.cox import Cox
from fpdfp.losses.glm import GLM, LeastSquares, Logistic

#: Link functions whose means are in the domain of their families for all coefficients.
FULL_DOMAIN = ("logit", "probit", "cloglog", "loglog", "cauchit")


class OutsideError(Exception):
    """A point is outside the domain of a family at this site."""


class Response(NamedTuple):
    """The response of rows to a point: the weights of features in the gradient and their curvature, or None.

    ``what`` says of what they are, behind "the curvature" or "the sum". Curvature is that of outcomes as they are where
    ``observed`` is true, and otherwise the expected one.
    """

    what: str
    slope: Array
    bend: Array | None = None
    observed: bool = False


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
        # The expected curvature is what fits are told, and the other what the difference of two gradients is a sum by:
        # with a link that is not canonical it may be nearly one row's where the expected one is not.
        expected, own_bend = _bend_of(losses, z, y, weights), weights * np.abs(losses._second(z, y))
        return [Response("", slope, expected), Response(" as observed", slope, own_bend, True)]


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
        bend_of, count = losses._bends_of(z, codes), z.shape[1]
        by_threshold = [weights * sum(bend_of(k, other) for other in range(count)) for k in range(count)]
        found = [one._replace(bend=bends[:, k]) for k, one in enumerate(found)]
        found += [Response(f" of threshold {k}", one) for k, one in enumerate(by_threshold)]
        return [*found, Response(" as observed", weights * slopes.sum(axis=1), np.abs(sum(by_threshold)), True)]
    p = losses.probabilities(z) if isinstance(losses, Multinomial) else softmax(z, axis=1)
    present = np.flatnonzero(np.bincount(codes, minlength=p.shape[1]))
    couples = [(int(a), int(b)) for i, a in enumerate(present) for b in present[:i]]
    found += [Response(f" between classes {b} and {a}", weights, weights * p[:, a] * p[:, b]) for a, b in couples]
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
    """Return the expected curvature of rows; raise OutsideError where a number is none that could be one elsewhere."""
    family = losses.distribution
    bend = family.functions.weight(z, y, family.parameters) * weights
    value = family.functions.value(z, y, family.parameters)
    if np.isfinite(bend).all() and np.isfinite(value).all():
        return np.asarray(bend)
    if family.link not in FULL_DOMAIN:
        raise OutsideError
    return np.full(len(y), np.nan)
