"""A site's guard: whatever is asked passes here before the data, and what is not allowed is refused.

From top to bottom: what may stand where in a model; what columns may reveal; at which points losses are evaluated;
which operations of the data a question gets; what is hidden in answers. :mod:`fpdfp.federation.request_guard` asks all
of these for each request, counts, and logs.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.losses import probe
from fpdfp.cohorts.question import ROWS, Offer, Question
from fpdfp.errors import ArgumentError, Refusal, RefusalError
from fpdfp.families import Binomial
from fpdfp.federation.descriptives import Histograms
from fpdfp.federation.policy import Policy, refuse
from fpdfp.federation.questions import CalibrationQuestion, EvaluationQuestion, Sums
from fpdfp.formula.coding import Design, InverseWeights, Term
from fpdfp.formula.evaluation import evaluate
from fpdfp.formula.tree import (
    Arithmetic,
    Call,
    Coded,
    Column,
    Missing,
    Number,
    Numeric,
    Poly,
    Spline,
    Survival,
    columns_of,
)
from fpdfp.losses.base import Losses
from fpdfp.losses.classes import LINKS, ClassModel, Multinomial, Ordinal, Softmax
from fpdfp.losses.cox import Cox
from fpdfp.losses.glm import GLM, LeastSquares, Logistic
from fpdfp.losses.linear import LinearModel
from fpdfp.scores.counts import PredictorCounts
from fpdfp.survival import LogRank, RiskCounts

#: Functions of a column that a model may use, and powers.
FUNCTIONS, POWERS = ("log", "log1p", "log2", "log10", "sqrt"), (2.0, 3.0)
#: A number that is subtracted from a column is within this many of its ranges; a second one within fewer, since two
#: roundings can be shifted against each other.
FAR, NEAR = 1e6, 10.0
#: The largest share that one row may have of a combination of columns.
MOST_LEVERAGE = 0.95
#: This many columns at most: leverages are computed, and pairs of columns compared.
MOST_COLUMNS = 2000
#: Combinations of columns that are so much shorter than the longest are only rounding.
ROUNDED = 1e-12
#: This many rows must share the curvature at a point, a third of the rows where that is less: to separate N evenly
#: spaced rows at a plane amplifies rounding by about exp(π²N/6), more than double precision has from N = 23 on. Of the
#: rows in which a feature is not at its most common value one in fifteen must: in honest fits of a9a one in twelve
#: does.
EFFECTIVE, IN_A_GROUP = 30.0, 15.0
TOO_FEW = "this site does not answer at this point: too few of its rows would decide the reply"
#: Scores that are sums of smooth functions of the linear predictor, as losses are; others count rows.
SMOOTH = ("brier", "deviance")
#: To this many digits an area under a ROC curve is sent; in this many cells rows are counted at further points.
DIGITS, CELLS, LEAST_CELLS = 4, 24, 4
#: Link functions whose means are in the domain of their families for all coefficients.
FULL_DOMAIN = ("logit", "probit", "cloglog", "loglog", "cauchit")


# --- What may stand where ---------------------------------------------------------------------------------------------


def check_design(design: Design, policy: Policy, edges: Mapping[str, Sequence[float]] | None = None) -> None:
    """Refuse columns that may not be used, and what is neither a column nor a transformation nor approved.

    ``edges`` are those at which this site has told of columns: knots of splines may be there.
    """
    if policy.goes_by("columns"):
        for name in [*design.columns, *design.filled]:
            check_column(name, policy)
    if policy.goes_by("places"):
        if not is_trials(design):
            check_response(design.response, policy)
        for what, node in (("the offset", design.offset), ("the weights", design.weights)):
            if isinstance(node, InverseWeights):
                check_design(node.treatment, policy, edges)
            elif not is_trials(design):
                _check_plain(what, node, policy)
        for term in design.terms:
            for factor in term.factors:
                _check_factor(factor, policy, edges)
            used = [name for factor in term.factors for name in columns_of(factor)]
            if len(set(used)) < len(used):
                # (age - 30)(age - 31)… is zero but where one likes: a comparison by another name.
                raise refuse("places", f"the term {term.names[0][:100]!a} has a column twice; use its square or cube")


def is_trials(design: Design) -> bool:
    """Whether a response is a share of successes, of plain columns, and weights are numbers of trials."""
    response, weights = design.response, design.weights
    return (
        isinstance(weights, Arithmetic)
        and isinstance(weights.left, Column)
        and isinstance(weights.right, Column)
        and weights.operator == "+"
        and response == Arithmetic("/", weights.left, weights)
    )


def knots_of(design: Design, policy: Policy) -> list[Spline]:
    """Return the splines of columns whose knots are not approved, but perhaps quantiles."""
    factors = [factor for term in design.terms for factor in term.factors]
    splines = [one for one in factors if isinstance(one, Spline) and isinstance(one.of, Column)]
    return [one for one in splines if dataclasses.replace(one, name="") not in policy.approved]


def check_column(name: str, policy: Policy) -> None:
    """Refuse a column that may not be used."""
    if policy.goes_by("columns") and not policy.allows(name):
        raise refuse("columns", f"the policy of this site does not allow the column {name!a}; use another one")


def check_response(response: Any, policy: Policy) -> None:
    """Refuse a response that is neither a column nor an approved variable."""
    if not isinstance(response, Survival):
        _check_plain("the response", response, policy)
        return
    for what, node in (("the time", response.leaves), ("the event", response.event), ("the entry", response.enters)):
        _check_plain(what, node, policy)


def _check_plain(what: str, node: Any, policy: Policy) -> None:
    if node is not None and not isinstance(node, Column) and node not in policy.approved:
        raise refuse(
            "places", f"{what} must be a column of this site, or a variable that it has approved; propose it", f"{node}"
        )


def check_condition(node: Any, policy: Policy) -> None:
    """Refuse rows of a condition that is neither a column nor approved."""
    for name in columns_of(node) if node not in policy.approved else ():
        check_column(name, policy)
    if policy.goes_by("places"):
        _check_plain("the condition of rows", node, policy)


def check_parts(conditions: Sequence[Array], policy: Policy) -> None:
    """Refuse rows by conditions that together tell few rows.

    Sums over rows that meet conditions, added and subtracted in any way, weigh all rows alike that meet the same ones.
    So no part of the rows may be smaller than a site.
    """
    if not policy.goes_by("rows"):
        return
    sizes = np.unique(np.stack(conditions), axis=1, return_counts=True)[1]
    if sizes.min(initial=policy.rows) < policy.rows:
        raise refuse(
            "rows", f"the condition of rows, with those before it, tells fewer than {policy.rows} rows of this site; "
            "use one that was used before", f"parts of {sorted(sizes.tolist())} rows",
        )  # fmt: skip


def _check_factor(
    factor: Numeric | Spline | Poly | Coded, policy: Policy, edges: Mapping[str, Sequence[float]] | None = None
) -> None:
    if isinstance(factor, Spline) and dataclasses.replace(factor, name="") not in policy.approved:
        known = (edges or {}).get(factor.of.column, ()) if isinstance(factor.of, Column) else ()
        if {factor.lower, *factor.knots, factor.upper} <= set(known):
            return
        raise refuse(
            "places", f"the term {factor.name[:100]!a} has knots that this site has not approved; give df=, or propose "
            "it",
        )  # fmt: skip
    if isinstance(factor, Numeric) and not _is_standardised(factor.value, policy):
        raise refuse(
            "places",
            f"the term {factor.name[:100]!a} is neither a column nor one of {', '.join(FUNCTIONS)}, a square or a cube "
            "of one, and this site has not approved it; propose it",
            f"{factor.value}",
        )


def _is_standardised(node: Any, policy: Policy) -> bool:
    """Whether a node is a transformation, perhaps less a number, and then perhaps divided by one."""
    node = bare(node)
    if isinstance(node, Column | Missing) or node in policy.approved:
        return True
    if isinstance(node, Call):
        return node.function in FUNCTIONS and isinstance(node.of, Column)
    power = isinstance(node, Arithmetic) and node.operator == "**" and isinstance(node.left, Column)
    return power and isinstance(node.right, Number) and node.right.number in POWERS


def bare(node: Any) -> Any:
    """Return a node without the mean that is subtracted from it, and the deviation that this is divided by."""
    if isinstance(node, Arithmetic) and (node.operator, type(node.right)) == ("/", Number):
        inner = node.left
        if isinstance(inner, Arithmetic) and (inner.operator, type(inner.right)) == ("-", Number):
            return inner.left
    if isinstance(node, Arithmetic) and (node.operator, type(node.right)) == ("-", Number):
        return node.left
    return node


def check_centres(design: Design, rows: Any, policy: Policy, means: Array, centre: Array | None = None) -> None:
    """Refuse numbers that are far from what they are subtracted from.

    What is left would be rounded to few values, with an edge where one likes: a comparison by another name.
    """
    if not policy.goes_by("places"):
        return
    known = dict(zip(design.filled, map(float, means), strict=True))
    shifted = []
    for term in design.terms:
        nodes = [factor.value for factor in term.factors if isinstance(factor, Numeric)]
        nodes = [node.left if isinstance(node, Arithmetic) and node.operator == "/" else node for node in nodes]
        found = [node for node in nodes if isinstance(node, Arithmetic) and node.operator == "-"]
        for node in found:
            if isinstance(node.right, Number):
                _check_centre(evaluate(node.left, rows, known), node.right.number, FAR, term)
        shifted += [bool(found)] * len(term.names)
        for factor in term.factors:
            if isinstance(factor, Poly):
                column = evaluate(factor.poly, rows, known)
                for one in factor.centres:
                    _check_centre(column, one, NEAR, term)
                # What is subtracted is a ratio times an earlier one, which is as large as the range to its degree.
                if max(map(abs, factor.ratios), default=0.0) > NEAR * np.ptp(column[np.isfinite(column)]) ** 2:
                    raise refuse("places", f"a ratio of {factor.name[:100]!a} is far from its values")
    if centre is not None:
        X, terms = design.matrix(rows, means), [term for term in design.terms for _ in term.names]
        for column, number, again, term in zip(X.T, centre, shifted, terms, strict=True):
            _check_centre(column, float(number), NEAR if again else FAR, term)


def _check_centre(column: Array, centre: float, times: float, term: Term) -> None:
    low, high = float(column.min(initial=np.inf)), float(column.max(initial=-np.inf))
    if low < high and not abs(centre - low) <= times * (high - low):
        raise refuse("places", f"the number that is subtracted from {term.names[0][:100]!a} is far from its values")


def analysis_of(design: Design) -> list[Any]:
    """Return a key of an analysis: its columns, whatever they are centred and divided by."""
    terms = [
        [repr(bare(factor.value)) if isinstance(factor, Numeric) else getattr(factor, "coded", repr(factor))
         for factor in term.factors]
        for term in design.terms
    ]  # fmt: skip
    about = (design.response, design.offset, design.weights, design.strata, design.cluster, design.filled)
    return [terms, design.missing, *map(repr, about)]


# --- What columns may reveal
# --------------------------------------------------------------------------------------------


def check_size(rows: int, coefficients: int, policy: Policy) -> None:
    """Refuse too few rows, and more coefficients than a share of them."""
    if policy.goes_by("rows") and rows < policy.rows:
        raise refuse("rows", f"this site takes part with at least {policy.rows} rows only", f"{rows} rows")
    if policy.goes_by("parameters") and coefficients > policy.parameters * rows:
        raise refuse(
            "parameters",
            f"this site answers for at most {policy.parameters:g} coefficients for each of its rows; use fewer columns",
            f"{coefficients} coefficients, {rows} rows",
        )


def check_model(losses: Losses, policy: Policy) -> None:
    """Refuse a model that reveals single rows whatever the point: by its rows, coefficients and columns."""
    coefficients = int(np.prod(losses.shape))
    if isinstance(losses, Softmax):
        coefficients -= losses.n_features  # one class is determined by the others
    check_size(int(losses.sizes.min()), coefficients, policy)
    for client in range(losses.n_clients):
        check_part(losses, client, np.ones(int(losses.sizes[client]), dtype=bool), policy)


def check_part(losses: Any, client: int, some: Array, policy: Policy, where: str = "") -> None:
    """Refuse some rows of a client by their columns, response, weights and strata, in the order in which they are."""
    if not isinstance(losses, LinearModel):
        raise refuse("columns", f"this site does not answer for models of the family {losses.family}")
    names = list((losses.column_names if isinstance(losses, ClassModel) else losses.feature_names) or ())
    own, others = losses._place(client), dict[str, Array]()
    weights = losses._risk.table.weights[own] if isinstance(losses, Cox) else losses.weights_of_rows[own]
    some = some & (weights > 0)  # columns may differ in one of the rows that count
    X, weights = losses._rows_of(client)[some], weights[some]
    check_size(len(weights), 0, policy)
    if isinstance(losses, Cox):
        _check_events(losses, client, some, policy, where)
        others["the offset"] = losses._risk.table.offset[own][some]
    else:
        y = np.asarray(losses.targets_of(client))[some]
        _check_classes(losses, y, policy, where)
        if isinstance(losses, GLM):
            _check_clusters(losses, client, policy)
        others["the response"] = y.astype(np.float64)
        shifts = losses._rows.shifts
        if shifts is not None:
            wide = shifts[own][some].reshape(len(y), -1)
            others |= {f"the offset{place or ''}": column for place, column in enumerate(wide.T)}
    dense = check_columns(X, names, policy, others, where)
    if weights.min() < weights.max():
        check_weights(weights, policy, where)
        _check_leverage(dense * np.sqrt(weights)[:, None], policy, where)


def _check_classes(losses: Any, y: Array, policy: Policy, where: str) -> None:
    classes = isinstance(losses, Logistic | Softmax | ClassModel) or (
        isinstance(losses, GLM) and isinstance(losses.distribution, Binomial)
    )
    # Shares of trials are measurements, as other responses are.
    classes = classes and not (isinstance(losses, GLM) and ((y != 0) & (y != 1)).any())
    least = int(np.unique(y, return_counts=True)[1].min(initial=len(y)))
    if classes and policy.goes_by("cells") and least < policy.cell:
        raise refuse(
            "cells", f"this site answers for classes of at least {policy.cell} rows only{where}", f"one has {least}"
        )


def _check_events(losses: Cox, client: int, some: Array, policy: Policy, where: str) -> None:
    events = int((losses._risk.table.event[losses._place(client)][some] >= 0).sum())
    if policy.goes_by("rows") and events < policy.rows:
        raise refuse(
            "rows", f"this site fits models of times with at least {policy.rows} events only{where}", f"{events} events"
        )
    if not policy.goes_by("cells"):
        return
    sizes = losses.strata_sizes(client)
    counts = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[some], minlength=len(sizes))
    if counts[counts > 0].min(initial=policy.cell) < policy.cell:
        raise refuse("cells", f"this site answers for strata of at least {policy.cell} rows only{where}")
    _check_clusters(losses, client, policy)


def _check_clusters(losses: Cox | GLM, client: int, policy: Policy) -> None:
    # Robust errors with and without clusters differ by products of rows that belong together.
    several = int((losses.cluster_sizes(client) > 1).sum())
    if policy.goes_by("cells") and 0 < several < policy.cell:
        raise refuse("cells", f"this site answers for clusters only if {policy.cell} of them have several rows")


def check_weights(weights: Array, policy: Policy, where: str = "") -> None:
    """Refuse weights that leave few rows: their sum, and sums with them, would be these rows'."""
    needed = min(EFFECTIVE, len(weights) / 3.0)
    if policy.goes_by("weights") and (found := effective(weights)) < needed:
        raise refuse(
            "weights", f"the weights of rows leave too few of them at this site{where}; use other weights",
            f"{found:.1f} effective rows, {needed:.1f} are needed",
        )  # fmt: skip


def check_columns(
    X: Any, names: Sequence[str], policy: Policy, others: dict[str, Array] | None = None, where: str = ""
) -> Array:
    """Refuse columns, pairs and combinations of columns that reveal fewer than ``cell`` rows from all others.

    ``others`` are columns that are not features: the response and the offset. All of them are returned as one matrix.
    """
    added = others or {}
    shown = [*(f"the column {name!a}" for name in names or map(str, range(X.shape[1]))), *added]
    if len(shown) > MOST_COLUMNS:
        raise refuse("columns", f"this site answers for at most {MOST_COLUMNS:,} columns", f"{len(shown)}")
    dense = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    dense = np.column_stack([dense, *added.values()])
    least = policy.cell

    def few_rows(what: str, found: str) -> Refusal:
        return refuse(
            "cells", f"{what} at this site tells fewer than {least} rows from all others{where}; merge levels, or "
            "leave it out", found,
        )  # fmt: skip

    if policy.goes_by("cells") and least > 1:
        members = uncommon(dense)
        sizes = np.asarray(members.sum(axis=0)).ravel()
        few = np.flatnonzero((sizes > 0) & (sizes < least))
        if few.size:
            raise few_rows(shown[few[0]], f"{sizes[few[0]]:g} rows are not at its most common value")
        few = np.flatnonzero(shares(dense) < least - 1e-6)
        if few.size:
            raise few_rows(shown[few[0]], "fewer rows have nearly all of its deviations from the middle")
        # Measurements are excluded: nearly every row has a value of its own there.
        coded = np.flatnonzero((sizes > 0) & (sizes <= len(dense) / 2))
        some = members[:, coded]
        apart = sizes[coded][:, None] + sizes[coded] - 2.0 * (some.T @ some).toarray()
        close = np.argwhere(
            (np.minimum(apart, len(dense) - apart) > 0) & (np.minimum(apart, len(dense) - apart) < least)
        )
        if close.size:
            first, second = (shown[coded[one]] for one in close[0])
            raise few_rows(f"the difference of {first} and {second}", "they differ in fewer rows")
    _check_leverage(dense, policy, where)
    return dense


def _check_leverage(dense: Array, policy: Policy, where: str) -> None:
    if policy.goes_by("leverage") and (largest := leverages(dense).max(initial=0.0)) > MOST_LEVERAGE:
        raise refuse(
            "leverage", f"a combination of the columns of the model is nearly one row's alone at this site{where}; use "
            "fewer columns", f"to {largest:.1%}",
        )  # fmt: skip


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
    from scipy.sparse import csc_array

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


# --- Points -----------------------------------------------------------------------------------------------------------


class Outside(Exception):  # noqa: N818 - it is no error
    """A point is outside the domain of a family at this site."""


class Response(NamedTuple):
    """The response of rows to a point: the weights of features in the gradient and their curvature, or None."""

    what: str
    slope: Array
    bend: Array | None = None


def respond(losses: Any, x: Array, client: int) -> list[Response]:
    """Return how the rows of a client respond to a point; raise Outside of the domain.

    A gradient may be nearly one row's, where all others fit. And the gradient at a steep plane is a sum over many rows,
    while the difference of two such gradients may be a single row: there curvature is near zero but for the rows at the
    plane. Where it is the same everywhere, it does not count.
    """
    from scipy.special import softmax

    own = losses._place(client)
    if not np.isfinite(x).all():
        raise refuse("points", TOO_FEW, "the point is not finite")
    if isinstance(losses, Cox):
        expected, bend = losses.responses(x, client)
        return [Response("", expected - (losses._risk.table.event[own] >= 0), bend)]
    weights, y = losses.weights_of_rows[own], losses._rows.y[own]
    if isinstance(losses, Softmax | ClassModel):
        codes = y.astype(np.int64)
        z = losses._rows_of(client) @ x.T if isinstance(losses, Softmax) else losses.predictors(x, own)
        if isinstance(losses, Ordinal):
            if not (np.diff(losses.thresholds(x)) > 0).all():
                raise Outside  # whatever the rows are
            if not (np.diff(z, axis=1) > 0).all():
                raise refuse("points", TOO_FEW, "rounding makes thresholds equal")
        slopes = losses._slopes(z, codes) if isinstance(losses, Softmax) else losses._slopes_of(z, codes)
        found = [Response(f" in the gradient of class {k}", weights * one) for k, one in enumerate(slopes.T)]
        if isinstance(losses, Ordinal):
            link = LINKS[losses.link]
            chances = link.chances(z) * link.chances(-z)
            return [one._replace(bend=weights * chances[:, k]) for k, one in enumerate(found)]
        p = losses.probabilities(z) if isinstance(losses, Multinomial) else softmax(z, axis=1)
        present = np.flatnonzero(np.bincount(codes, minlength=p.shape[1]))
        pairs = [(int(a), int(b)) for i, a in enumerate(present) for b in present[:i]]
        found += [Response(f" between classes {b} and {a}", weights, weights * p[:, a] * p[:, b]) for a, b in pairs]
        return found
    if not isinstance(losses, Logistic | GLM | LeastSquares):
        raise refuse("points", f"this site does not answer for models of the family {losses.family}")
    y = y.astype(np.float64)
    z = losses.forms(x, own).astype(np.float64)
    with np.errstate(all="ignore"):
        slope = weights * losses._slopes(z, y)
        if isinstance(losses, LeastSquares) or losses.form == "quadratic":
            return [Response("", slope)]
        if isinstance(losses, Logistic):
            return [Response("", slope, weights * losses._curve(z, y, np.ones(len(y))))]
        return [Response("", slope, _bend_of(losses, z, y, weights))]


def _bend_of(losses: GLM, z: Array, y: Array, weights: Array) -> Array:
    """Return the expected curvature of rows; raise Outside where a number is none."""
    family = losses.distribution
    bend = family.functions.weight(z, y, family.parameters) * weights
    value = family.functions.value(z, y, family.parameters)
    if not (np.isfinite(bend).all() and np.isfinite(value).all()):
        if family.link in FULL_DOMAIN:
            raise refuse("points", TOO_FEW, "numbers overflow")
        raise Outside
    return np.asarray(bend)


class Group(NamedTuple):
    """Rows over which sums are sent, and in which of these each feature is not at its most common value."""

    rows: Any
    size: int
    members: Any
    sizes: Array


class PointRule:
    """Refuses points of a model at which too few rows decide, over all rows or those of a fold.

    ``people`` names which rows are one person's, where a model has several rows of each.
    """

    def __init__(
        self, losses: Any, policy: Policy, divide: Callable[[int, bytes, int], None], people: IntArray | None = None
    ) -> None:
        self.losses, self.policy, self.people, self._divide = losses, policy, people, divide
        self._groups: dict[int, Group] = {}
        self._folds: dict[bytes, list[list[Group]]] = {}

    def check(self, x: Array, client: int, folds: Sequence[Group] = (), *, squares: bool = False) -> None:
        """Refuse a point of one client, with ``squares`` also for sums of squares; raise Outside of the domain."""
        if not self.policy.goes_by("points"):
            return
        for response in respond(self.losses, x, client):
            for group in (self._of(client), *folds):
                self._count(response, group)
            if squares:
                self._count(Response(" of squared scores", response.slope**2), self._of(client))
        if squares and isinstance(self.losses, GLM):
            own, family = self.losses._place(client), self.losses.distribution
            mean = family.mean(self.losses.forms(x, own))
            with np.errstate(all="ignore"):
                left = np.nan_to_num((self.losses._rows.y[own] - mean) ** 2 / family.variance(mean))
            self._count(Response(" of squared residuals", self.losses.weights_of_rows[own] * left), self._of(client))

    def check_start(self, client: int) -> None:
        """Refuse the quadratic models that a fit starts from: of each row where its own outcome is."""
        if not self.policy.goes_by("points") or not isinstance(self.losses, GLM | Logistic | LeastSquares):
            return
        glm: GLM = self.losses if isinstance(self.losses, GLM) else self.losses._as_glm
        own = glm._place(client)
        y, weights = glm._rows.y[own].astype(np.float64), glm.weights_of_rows[own]
        with np.errstate(all="ignore"):
            bend = _bend_of(glm, glm.distribution.start(y, weights), y, weights)
        self._count(Response(" of the start", bend, bend), self._of(client))

    def _of(self, client: int) -> Group:
        if client not in self._groups:
            self._groups[client] = self._group(client, slice(None))
        return self._groups[client]

    def _count(self, response: Response, group: Group) -> None:
        slope = np.abs(self._of_people(response.slope)[group.rows])
        if self.policy.cell > effective(slope) > 0.0:
            raise refuse("points", TOO_FEW, f"{effective(slope):.1f} effective rows make up the sum{response.what}")
        if response.bend is None:
            return
        own, what = self._of_people(response.bend)[group.rows], response.what
        needed = max(float(self.losses.n_features), min(EFFECTIVE, group.size / 3.0))
        needed = min(needed, group.size / 2.0)
        found = effective(own)
        if not found >= needed:
            raise refuse(
                "points", TOO_FEW, f"{found:.1f} effective rows{what} share the curvature, {needed:.1f} are needed"
            )
        with np.errstate(invalid="ignore", divide="ignore"):
            inside = (group.members.T @ own) ** 2 / (group.members.T @ own**2)
        short = np.flatnonzero(~(inside >= np.minimum(needed, group.sizes / IN_A_GROUP)))
        if short.size:
            raise refuse(
                "points", TOO_FEW, f"{inside[short[0]]:.1f} effective rows{what} of the {group.sizes[short[0]]} in "
                "which a feature is not at its most common value share the curvature",
            )  # fmt: skip

    def _of_people(self, values: Array) -> Array:
        return values if self.people is None else np.bincount(self.people, values)

    def _group(self, client: int, rows: Any) -> Group:
        members = uncommon(self.losses._rows_of(client)[rows])
        if self.people is not None:
            from scipy.sparse import csc_array

            own = csc_array((np.ones(len(self.people)), (self.people, np.arange(len(self.people)))))
            members = ((own @ members) > 0).astype(np.float64)
        sizes = np.asarray(members.sum(axis=0)).ravel()
        # A column of measurements has no common value: all rows are in it, and these are counted already.
        some = np.flatnonzero((sizes > 0) & (sizes < 0.9 * members.shape[0]))
        return Group(rows, int(members.shape[0]), members[:, some], sizes[some])

    def admit_folds(self, labels: IntArray) -> list[list[Group]]:
        """Return the folds of each client; refuse a division of rows of which one fold reveals few, and one too many.

        What a fold takes off a sum is the sum over the fold, so each must be as large as a site.
        """
        key = labels.tobytes()
        if labels.max(initial=-1) < 0:
            return [[] for _ in range(self.losses.n_clients)]
        if self.people is not None and self.policy.goes_by("folds"):
            raise refuse("folds", "this site does not divide the rows of models of periods: one person has several")
        if key not in self._folds:
            ends, made = np.concatenate([[0], np.cumsum(self.losses.sizes)]), []
            for client in range(self.losses.n_clients):
                own, folds = labels[ends[client] : ends[client + 1]], []
                for fold in np.unique(own[own >= 0]):
                    if self.policy.goes_by("folds"):
                        check_size(int((own == fold).sum()), 0, self.policy)
                        check_part(self.losses, client, own == fold, self.policy, " in a fold; use fewer folds")
                    folds.append(self._group(client, own == fold))
                made.append(folds)
            self._divide(len(labels), key, int(labels.max()) + 1)
            self._folds[key] = made
        return self._folds[key]


# --- Which operations of the data a question gets ---------------------------------------------------------------------


class Watch(Protocol):
    """The guard's record of a model between questions."""

    policy: Policy
    people: IntArray | None

    def spend_point(self, points: int) -> None:
        """Count points at which a model is answered."""

    def note_fitted(self, x: Array) -> None:
        """Note a point of which standard errors were asked."""

    def note_outside(self) -> None:
        """Count a point outside the domain."""

    def divide(self, rows: int, key: bytes, folds: int) -> None:
        """Count a division of rows into folds; refuse one too many."""


class GuardedData(Offer):
    """The losses of a model as questions get them: every operation that touches rows looks at its arguments first."""

    __slots__ = ("_rule", "_uses", "_watch")

    def __init__(self, losses: Any, watch: Watch, uses: frozenset[str], rule: PointRule | None = None) -> None:
        losses = losses if rule else coarsen(losses, watch.policy)
        super().__init__(losses, uses)
        self._watch, self._uses = watch, uses
        self._rule = rule or PointRule(losses, watch.policy, watch.divide, watch.people)

    def offer(self, question: Question) -> GuardedData:
        """Return the data for a question: with what it declares, after all points that it names were looked at."""
        # Dual points along a direction are products of the Hessian with it.
        if question.tells_pairs or getattr(question, "direction", None) is not None:
            check_products(self._watch.policy)
        if ROWS in question.reveals.uses:
            self._check_scores(question)
        return GuardedData(self._rule.losses, self._watch, question.reveals.uses, self._rule)

    def _check_scores(self, question: Any) -> None:
        """Refuse scores that count rows; those that are smooth are sums at points like all others."""
        losses, about = self._rule.losses, question.points_at(self._rule.losses.shape)
        if self._watch.policy.goes_by("folds") and question.score not in SMOOTH:
            raise refuse(
                "folds", f"this site sends deviances and Brier scores of held-out rows, and not "
                f"{question.score!a}, which counts rows: counts at many points tell single ones; use model.evaluate",
            )  # fmt: skip
        for number, labels in enumerate(question.about.draw_folds(losses)):
            count = 1 if about.folds is None else about.folds.count
            some = np.maximum(about.held, 0) // count == number
            if self.check_points(about.x[some], about.held[some], labels, range(losses.n_clients)):
                raise refuse("domain", "a point is outside the domain of the model at this site")

    def __getattr__(self, name: str) -> Any:
        found, losses, policy = super().__getattr__(name), self._rule.losses, self._watch.policy
        if name == ROWS and policy.goes_by("folds"):
            found = copy.copy(losses)
            found.admit_score = lambda *_: False  # the sums for standard errors are not sent
            return found
        if name in AT_POINT:
            return lambda x, *given, **options: self._at_point(name, found, x, *given, **options)
        if name in AT_POINTS:
            return lambda points, held, labels, clients: self._at_points(name, found, points, held, labels, clients)
        if name == "restrict":
            return lambda *given: GuardedData(losses.restrict(*given), self._watch, self._uses)
        if name == "lipschitz_in" and policy.goes_by("constants"):
            return lambda factor: self._constants(found, factor)
        if name in REFUSED and policy.goes_by("constants"):
            raise refuse("constants", f"this site does not tell {REFUSED[name]}")
        if name in PAIRS:
            check_products(policy)
        if name == "start_model":
            for client in range(losses.n_clients):
                try:
                    self._rule.check_start(client)
                except Outside:
                    raise refuse(
                        "domain", "a fit of this model cannot start at this site: outcomes are out of range"
                    ) from None
        return found

    def _constants(self, found: Callable[[Any], Array], factor: Any) -> Array:
        check_products(self._watch.policy)  # those in a chosen direction are second moments
        if isinstance(self._rule.losses, Cox):
            raise refuse("constants", "this site tells no constants in other coordinates of this model")
        return found(factor)

    def _at_point(self, name: str, found: Any, x: Array, *given: Any, **options: Any) -> Any:
        losses, watch = self._rule.losses, self._watch
        if name == "values" and watch.policy.goes_by("points") and np.array_equal(x, probe(losses.shape, losses.dtype)):
            # Data are recognised by their fingerprint: at a point that no one has looked at nothing is sent.
            x = np.zeros_like(x)
        everywhere = name == "values" and not np.any(x)  # asked of every model, anyone who asks
        batch = options.get("batch_size", given[1] if name == "gradients" and len(given) > 1 else None)
        if batch is not None and batch < int(losses.sizes.max()) and watch.policy.goes_by("rows"):
            # Who is in a batch is known from its seed: as many batches as rows are a linear system for each row.
            raise refuse("rows", "this site does not answer for mini-batches; use a method that takes all rows")
        by_client = name in BY_CLIENT
        clients = np.arange(losses.n_clients) if by_client else np.asarray(given[0])
        points = np.asarray(x, dtype=np.float64)
        outside = False
        for place, client in enumerate(map(int, clients)):
            watch.spend_point(1)
            try:
                point = points if points.shape == losses.shape else points[place]
                self._rule.check(point, client, squares=name in SQUARES)
            except Outside:
                outside = watch.policy.goes_by("domain")
            except Refusal:
                if not everywhere:
                    raise
                return np.full(len(clients), np.inf)
        with np.errstate(all="ignore"):
            answer = found(x, *given, **options)
        if name in FITTED and points.shape == losses.shape and not outside:
            watch.note_fitted(points)
        if outside:
            watch.note_outside()
            if name not in NUMBERS:
                raise refuse("domain", "this point is outside the domain of the model at this site")
            answer = np.full_like(answer, np.inf if name == "values" else np.nan)
        return GuardedDuals(answer, DUALS, watch) if name == "dual_points" and answer is not None else answer

    def _at_points(self, name: str, found: Any, points: Array, held: IntArray, labels: IntArray, clients: Any) -> Any:
        outside = self.check_points(points, held, labels, clients)
        with np.errstate(all="ignore"):
            answer = found(points, held, labels, clients)
        if name == "duals_at_many":
            if outside:
                raise refuse("domain", "a point is outside the domain of the model at this site")
            return GuardedDuals(answer, frozenset({"of", "columns_of"}), self._watch)
        for part in answer:
            part[:, outside] = np.nan
        return answer

    def check_points(self, points: Array, held: IntArray, labels: IntArray, clients: Any) -> list[int]:
        """Refuse points, some with a fold excluded; if one is refused, nothing is sent of any.

        Returns the places of those outside the domain.
        """
        folds, outside = self._rule.admit_folds(np.asarray(labels)), set[int]()
        self._watch.spend_point(len(points))
        for client in map(int, clients):
            for place, (x, fold) in enumerate(zip(points, held, strict=True)):
                try:
                    self._rule.check(
                        np.asarray(x).reshape(self._rule.losses.shape), client, folds[client] if fold >= 0 else ()
                    )
                except Outside:
                    outside.add(place)
        for _ in outside:
            self._watch.note_outside()
        return sorted(outside) if self._watch.policy.goes_by("domain") else []


class GuardedDuals(Offer):
    """Dual points as questions get them: where a gap is infinite one row is out of range, which counts as a refusal."""

    __slots__ = ("_watch",)

    def __init__(self, duals: Any, uses: frozenset[str], watch: Watch) -> None:
        super().__init__(duals, uses)
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        found, watch = super().__getattr__(name), self._watch
        if name == "of":
            return lambda *given: GuardedDuals(found(*given), DUALS, watch)
        if name != "gap":
            return found

        def gap(*given: Any) -> float:
            told = float(found(*given))
            if not np.isfinite(told) and watch.policy.goes_by("domain"):
                watch.note_outside()
            return told

        return gap


#: Operations at one point; those that take weights of all clients; those that add up squares of rows' scores; and
#: those whose answers are numbers of any kind.
AT_POINT = frozenset({
    "values", "gradients", "hessians", "informations", "sums_at", "overdispersion_at", "spread_at", "value", "gradient",
    "hessian", "hessian_product", "dual_points",
})  # fmt: skip
BY_CLIENT = frozenset({"value", "gradient", "hessian", "hessian_product", "dual_points"})
SQUARES = frozenset({"sums_at", "overdispersion_at"})
#: Those that standard errors of a fit need, at its coefficients.
FITTED = frozenset({"informations", "sums_at"})
NUMBERS = frozenset({"values", "gradients", "hessians", "informations"})
#: Operations at many points, and what may be asked of dual points.
AT_POINTS = frozenset({"evaluate_many", "duals_at_many"})
DUALS = frozenset({"gradient", "gap", "rounding", "curvature", "hessian", "size", "sizes", "columns", "ridge"})
#: Operations that reveal products of two columns, and those that are one person's regardless.
PAIRS = frozenset({"curvatures", "curvature_products", "start_model", "strong_convexity"})
REFUSED = {"batch_smoothness": "constants for mini-batches: they are those of single rows", "pooled": "pooled rows"}
#: Those that reveal sums or bounds over all rows, or the folds of rows, and need no more looking at.
SUMS = frozenset({
    "lipschitz", "lipschitz_in", "curvature_diagonals", "slope_bounds", "targets_of", "masses", "counted", "folds",
    "saturations", "place_rows", "restrict", "rows",
})  # fmt: skip


ALL = AT_POINT | AT_POINTS | PAIRS | SUMS | frozenset(REFUSED)


def check_products(policy: Policy) -> None:
    """Refuse sums of products of two columns where the policy does."""
    if policy.goes_by("kinds") and "products" not in policy.kinds:
        raise refuse("kinds", "this site does not send second moments of its rows (products)")


def coarsen(losses: Any, policy: Policy) -> Any:
    """Return losses whose bounds go by a power of two times the mean weight: the largest weight is one person's."""
    if not policy.goes_by("constants") or not isinstance(losses, LinearModel) or isinstance(losses, Cox):
        return losses
    largest, mean = float(losses.weights_of_rows.max()), float(losses.weights_of_rows.mean())
    if largest <= mean * (1 + 1e-12):
        return losses
    made, factor = losses._without_caches(), float(2.0 ** np.ceil(np.log2(largest / mean)) * mean / largest)
    made.curvature, made.steepest = factor * losses.curvature, factor * losses.steepest
    return made


# --- What is hidden in answers ----------------------------------------------------------------------------------------


def hide(schema: dict[str, Any], policy: Policy) -> dict[str, Any]:
    """Return a schema without columns that may not be used, rare levels, and the values of single rows."""
    if not policy.goes_by("hiding"):
        return schema
    columns = []
    for column in schema.get("columns", ()):
        if not policy.allows(column["name"]):
            columns.append({"name": column["name"], "kind": "hidden"})
            continue
        shown = dict(column)
        often = [count >= policy.cell for count in column.get("counts", ())]
        for name in ("levels", "counts"):
            shown[name] = [one for one, enough in zip(column.get(name, ()), often, strict=True) if enough]
        if "ranges" not in policy.kinds:
            shown |= {"least": None, "largest": None}
        if 0 < column.get("missing", 0) < policy.cell:
            shown["missing"] = policy.cell
        columns.append(shown)
    rows = schema.get("rows")
    return schema | {"columns": columns, "rows": None if rows is None or rows < policy.rows else rows}


def check_sums(sums: Sums, design: Design, policy: Policy) -> None:
    """Refuse sums over too few rows, counts of levels with too few, and terms that are not numbers in some rows."""
    counts = [("the classes", sums.classes), *zip((one.name for one in design.coded), sums.levels, strict=True)]
    if policy.goes_by("rows") and (sums.used < policy.rows or any(0 < known < policy.rows for known in sums.known)):
        raise refuse("rows", f"this site takes part with at least {policy.rows} rows only", f"{sums.used} rows")
    for name, found in counts:
        if policy.goes_by("cells") and ((np.asarray(found) > 0) & (np.asarray(found) < policy.cell)).any():
            raise refuse(
                "cells", f"this site answers for levels of at least {policy.cell} rows only: {name[:99]}; merge levels",
                f"{list(map(int, found))}",
            )  # fmt: skip
    # A term may be written so that it is not a number in any rows one likes: to count these would count anything.
    if policy.goes_by("cells") and np.asarray(sums.invalid).any():
        place = int(np.argmax(sums.invalid))
        term = "the response" if not place else f"the term {design.terms[place - 1].names[0][:100]!a}"
        raise refuse(
            "cells", f"the model has terms that are not finite in some rows of this site: {term}",
            f"{list(map(int, sums.invalid))} rows",
        )  # fmt: skip


def check_strata(strata: Array, policy: Policy) -> None:
    """Refuse strata with too few rows: a test in one of two rows reveals these."""
    if policy.goes_by("cells") and np.unique(strata, return_counts=True)[1].min(initial=policy.cell) < policy.cell:
        raise refuse("cells", f"this site answers for strata of at least {policy.cell} rows only; use fewer strata")


def protect_times(answer: Any, policy: Policy) -> Any:
    """Return what may leave of an answer about times: they are put together until enough rows are at each."""
    least = policy.cell
    told = f"this site tells of times only where no fewer than {least} of its rows are in a cell"
    if not policy.goes_by("cells"):
        return answer
    try:
        if hasattr(answer, "hazards"):
            return dataclasses.replace(answer, hazards=[one.coarsen(least) for one in answer.hazards])
        if isinstance(answer, RiskCounts):
            check_size(int(answer.start.sum() + answer.entered.sum()), 0, policy)
            return answer.coarsen(least)
    except ArgumentError as error:
        raise refuse("cells", told, str(error)) from None
    check_size(int(np.sum(answer.rows)), 0, policy)
    if isinstance(answer, LogRank):
        for cells in (answer.rows, answer.events, answer.rows - answer.events):
            if ((cells > 0) & (cells < least)).any():
                raise refuse("cells", told, f"groups of {answer.rows} rows with {answer.events} events")
    return answer


def check_groups(counts: Array, policy: Policy) -> None:
    """Refuse groups of few rows, and few rows without a group; the first count is that of these."""
    groups, without = counts[1:], int(counts[0])
    few = policy.goes_by("rows") and bool(((groups > 0) & (groups < policy.rows)).any())
    if few or (policy.goes_by("cells") and 0 < without < policy.cell):
        raise refuse(
            "rows", f"this site tells of groups of at least {policy.rows} rows only, and not of columns that have no "
            f"value in fewer than {policy.cell} rows; merge levels, or use other groups", f"{counts.tolist()} rows",
        )  # fmt: skip


def protect_descriptives(answer: Any, question: Any, values: Callable[[str], list[Array]], policy: Policy) -> Any:
    """Return what may leave of a table of columns by group; columns of which some rows are few are withheld."""
    withheld = [i for i, name in enumerate(question.columns) if _tells_rows(name, values(name), policy)]
    if isinstance(answer, Histograms):
        answer = answer.coarsen(policy.cell) if policy.goes_by("cells") else answer
        if withheld:
            names = ", ".join(repr(question.columns[i])[:99] for i in withheld)
            raise refuse("cells", f"few rows of this site have a value of their own, or none, in {names}; leave it out")
        return answer
    known, means, scatters = answer.known.copy(), answer.means.copy(), answer.scatters.copy()
    known[withheld], means[withheld], scatters[withheld] = 0, 0.0, 0.0
    counts = []
    for place, cells in enumerate(answer.counts):
        few = policy.goes_by("cells") and bool(((cells > 0) & (cells < policy.cell)).any())
        counts.append(np.zeros_like(cells) if few else cells)
        withheld += [len(question.columns) + place] if few else []
    return dataclasses.replace(
        answer, known=known, means=means, scatters=scatters, counts=counts, withheld=tuple(withheld)
    )


def _tells_rows(name: str, groups: list[Array], policy: Policy) -> bool:
    """Whether a column tells few rows of a group from all others by its mean and deviation, or has few values."""
    for own in groups:
        if len(own) == 0:
            continue
        if policy.goes_by("rows") and len(own) < policy.rows:
            return True
        try:
            check_columns(own[:, None], [name], policy)
        except Refusal:
            return True
    return False


def check_predictions(question: EvaluationQuestion | CalibrationQuestion, losses: Any, policy: Policy) -> PointRule:
    """Refuse points of a question about predictions; return what further points are looked at with."""
    rule = PointRule(losses, policy, lambda *_: None)
    for x in (question.x, *getattr(question, "more", ())):
        _look(rule, x)
    if isinstance(question, CalibrationQuestion):
        look_along(rule, question.x, question.point)
    return rule


def look_along(rule: PointRule, x: Array, point: Array) -> None:
    """Refuse an intercept and a slope of the linear predictor at x, if too few rows decide."""
    losses = rule.losses
    if not isinstance(losses, LinearModel) or isinstance(losses, Softmax | ClassModel):
        return
    if isinstance(losses, Cox):
        _look(rule, point[-1] * x)
        return
    X = np.column_stack([np.ones(int(losses.sizes[0])), losses._rows_of(0) @ x])
    along = copy.copy(losses)
    along.__dict__.pop("_whole", None)
    along._rows = losses._rows._replace(X=X)
    _look(PointRule(along, rule.policy, lambda *_: None), np.asarray(point, dtype=np.float64))


def _look(rule: PointRule, x: Array) -> None:
    try:
        rule.check(np.asarray(x, dtype=np.float64), 0)
    except Outside:
        raise refuse("domain", "this point is outside the domain of the model at this site") from None


def protect_scores(found: Any, question: EvaluationQuestion, rule: PointRule, *, few: bool = False) -> Any:
    """Return what may leave: cells are put together until no count is small, and what is still small is withheld.

    With ``few`` there are only a given number of cells as a curve needs.
    """
    policy, withheld, sums, hits = rule.policy, list(found.withheld), found.sums, found.hits
    if not policy.goes_by("cells"):
        return found
    # Rounded areas do not reveal that one pair of rows has changed places.
    areas = found.areas.copy()
    areas[:, 0], areas[:, 1] = np.round(areas[:, 0], DIGITS), 0.5 * 10.0**-DIGITS
    least = policy.cell
    try:
        predictors = [one.coarsen(max(least, _least_of_few(one)) if few else least) for one in found.predictors]
    except RefusalError:
        predictors, areas = [], np.zeros((0, 3))
        withheld.append("auc")
    if hits is not None and any(0 < count < least for count in (hits, found.rows - hits)):
        sums, hits = found.withhold("accuracy"), None
        withheld.append("accuracy")
    own, own_sums = found.own, found.own_sums
    if len(found.own):
        try:
            look_along(rule, question.x, found.own)
        except Refusal:
            own, own_sums = np.zeros(0), []
            withheld.append("calibration")
    # Each further point by itself, as if it had been requested alone.
    more = [
        protect_scores(one, dataclasses.replace(question, x=x, more=[]), rule, few=True)
        for one, x in zip(found.more, question.more, strict=True)
    ]
    residuals = [one.coarsen(least) for one in found.residuals]
    return dataclasses.replace(
        found, sums=sums, areas=areas, predictors=predictors, residuals=residuals, own=own, own_sums=own_sums,
        hits=hits, withheld=tuple(withheld), more=more,
    )  # fmt: skip


def _least_of_few(counts: PredictorCounts) -> int:
    """Return how many rows a cell must have where few cells are sent."""
    sums = [int(one.sum(dtype=np.int64)) for one in (counts.events, counts.others)]
    return min(sum(sums) // CELLS, min(sums) // LEAST_CELLS)
