"""The guard of a site: the only door to its rows. Read it from top to bottom: four rules, and the door.

1. **Places.** A question is made of columns that the policy allows, and of a few functions of one column. Anything else
   is a variable that the site has approved. So nobody writes an expression that is one person's.
2. **Rows.** What a site tells are sums over rows, Σ c_i r_i. Enough rows share the weights c of every sum, of every
   fold and group, and of every combination of columns; else the sum would be a few rows.
3. **Numbers.** Some numbers are one person's in any sum: the largest value, a count of two, an edge where a row changes
   sides. They are withheld, put together with others, or replaced by a bound.
4. **Budget.** Many answers tell more than one. Analyses, points, refusals, folds and lists of times are limited.

Each rule raises a refusal. Its sentence is in ``refusals.toml``, and its numbers are explained in ``policy.toml``. How
rows weigh in sums at a point is in :mod:`fpdfp.losses.responses`.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import datetime
import hashlib
import importlib
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csc_array

from fpdfp._typing import Array, IntArray
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.losses import probe
from fpdfp.cohorts.question import ROWS, Offer, Question
from fpdfp.cohorts.requests import Request
from fpdfp.cohorts.serialization import pack
from fpdfp.cohorts.site import Site
from fpdfp.errors import ArgumentError, MessageError, Refusal
from fpdfp.families import Binomial
from fpdfp.federation import outbox
from fpdfp.federation.approvals import Approvals
from fpdfp.federation.audit import Audit
from fpdfp.federation.budget import Budget
from fpdfp.federation.keys import Asker
from fpdfp.federation.policy import IDENTIFIERS, Policy, matches, refuse, sentences
from fpdfp.federation.questions import LogRankQuestion, Sums
from fpdfp.federation.rollback import say_full
from fpdfp.federation.table import group_rows, values_of
from fpdfp.federation.text import log
from fpdfp.federation.wording import describe, write_design
from fpdfp.formula.coding import Design, InverseWeights
from fpdfp.formula.evaluation import evaluate
from fpdfp.formula.parsing import parse_condition
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
from fpdfp.inference import Information
from fpdfp.losses.base import Losses
from fpdfp.losses.classes import ClassModel, Softmax
from fpdfp.losses.cox import Cox
from fpdfp.losses.glm import GLM, LeastSquares, Logistic
from fpdfp.losses.linear import LinearModel
from fpdfp.losses.responses import (
    OutsideError,
    Response,
    respond,
    respond_at_start,
    respond_in_squares,
    respond_in_third_moments,
)
from fpdfp.scores.site import SiteScores
from fpdfp.survival import Concordance, LogRank, RiskCounts
from fpdfp.survival.proportionality import Proportionality

# --- 1. Places: what may stand where ----------------------------------------------------------------------------------
#
# Response, offset, weights, times, strata and groups are columns. A covariate is a column, one of FUNCTIONS, a square
# or a cube of one, a category, or a product of different columns. Knots of splines are edges at which this site has
# counted, with enough rows between all that were used. Numbers that an analyst chooses have a size at which nothing is
# rounded: rounding has an edge where one likes, which is a comparison by another name.

FUNCTIONS, POWERS = ("log", "log1p", "log2", "log10", "sqrt"), (2.0, 3.0)
#: A number that is subtracted is at most so many times as large as the values of a column. One that divides is between
#: 1/LARGE and LARGE, and a product has so many factors: else values underflow.
FAR, LARGE, FACTORS = 10.0, 1e40, 6
#: Sums with as many functions of a column as it has values tell the sum over each value. A model may have a constant,
#: the column, its logarithm, log1p, root, square and cube.
FEW_VALUES = 7


def check_column(name: str, policy: Policy) -> None:
    """Refuse a column that may not be used."""
    policy.refuse_if(not policy.allows(name), "column", name=name)


def check_named(value: Any, policy: Policy) -> None:
    """Refuse what a question names beside a model, unless it is columns that may be used, and times of these."""
    if isinstance(value, tuple):
        for one in value:
            check_named(one, policy)
    elif isinstance(value, str | Coded):
        check_column(value if isinstance(value, str) else value.coded, policy)
    elif isinstance(value, Survival):
        check_named(tuple(columns_of(value)), policy)
        check_response(value, policy)
    elif value is not None:
        raise refuse("plain", what="what a question is about")


def check_design(design: Design, policy: Policy, edges: Mapping[str, Sequence[float]] | None = None) -> None:
    """Refuse columns that may not be used, and what is neither a column nor a transformation nor approved.

    ``edges`` are the edges at which this site has counted columns: knots of splines may be there.
    """
    for name in [*design.columns, *design.filled]:
        check_column(name, policy)
    trials = is_trials(design)
    if not trials:
        check_response(design.response, policy)
    check_plain("the offset", design.offset, policy)
    if isinstance(design.weights, InverseWeights):
        check_design(design.weights.treatment, policy, edges)
    elif not trials:
        check_plain("the weights", design.weights, policy)
    for term in design.terms:
        for factor in term.factors:
            _check_factor(factor, policy, edges or {})
        # (age - 30)(age - 31)… is zero but where one likes: a comparison by another name.
        used = [name for factor in term.factors for name in columns_of(factor)]
        policy.refuse_if(len(set(used)) < len(used), "twice", name=term.names[0])
        policy.refuse_if(len(term.factors) > FACTORS, "product", name=term.names[0], most=FACTORS)


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


def check_response(response: Any, policy: Policy) -> None:
    """Refuse a response, or times, that are neither columns nor approved variables."""
    parts = {"the response": response}
    if isinstance(response, Survival):
        parts = {"the time": response.leaves, "the event": response.event, "the entry": response.enters}
    for what, node in parts.items():
        check_plain(what, node, policy)


def check_plain(what: str, node: Any, policy: Policy) -> None:
    """Refuse what is neither a column nor an approved variable."""
    allowed = node is None or isinstance(node, Column) or node in policy.approved
    policy.refuse_if(not allowed, "plain", f"{node}", what=what)


def is_approved(spline: Spline, policy: Policy) -> bool:
    """Whether a site has approved a spline with its knots."""
    return dataclasses.replace(spline, name="") in policy.approved


def _check_factor(factor: Any, policy: Policy, edges: Mapping[str, Sequence[float]]) -> None:
    if isinstance(factor, Spline) and not is_approved(factor, policy):
        known = edges.get(factor.of.column, ()) if isinstance(factor.of, Column) else ()
        policy.refuse_if(not {factor.lower, *factor.knots, factor.upper} <= set(known), "knots", name=factor.name)
    if isinstance(factor, Numeric):
        node = bare(factor.value)
        allowed = isinstance(node, Column | Missing) or node in policy.approved
        if isinstance(node, Call):
            allowed |= node.function in FUNCTIONS and isinstance(node.of, Column)
        if isinstance(node, Arithmetic) and node.operator == "**" and isinstance(node.left, Column):
            allowed |= isinstance(node.right, Number) and node.right.number in POWERS
        policy.refuse_if(not allowed, "form", f"{factor.value}", name=factor.name, functions=", ".join(FUNCTIONS))


def bare(node: Any) -> Any:
    """Return a node without the mean that is subtracted from it, and the deviation that this is divided by."""
    inner = node.left if _has_number(node, "/") else node
    return inner.left if _has_number(inner, "-") else node


def _has_number(node: Any, operator: str) -> bool:
    return isinstance(node, Arithmetic) and node.operator == operator and isinstance(node.right, Number)


def check_numbers(
    design: Design, rows: Any, policy: Policy, means: Array, centre: Array | None = None, scale: Array | None = None
) -> None:
    """Refuse numbers that are subtracted from columns, or divide them, in the formula and after it, that round them.

    And means that stand for few missing values: two models with different ones differ in these rows.
    """
    for name in design.filled:
        check_cells(rows.values(name).missing.sum(), f"missing values of {name[:99]!a} that are filled in", policy)
    known, subtracted = dict(zip(design.filled, map(float, means), strict=True)), list[tuple[Any, float, str]]()
    names = [term.names[0] for term in design.terms for _ in term.names]
    divisors = [] if scale is None else [(number, name) for number, name in zip(scale, names, strict=True) if number]
    for factor in factors_of(design):
        if isinstance(factor, Numeric) and (own := bare(factor.value)) is not factor.value:
            shifted: Any = factor.value.left if _has_number(factor.value, "/") else factor.value  # type: ignore[union-attr]
            subtracted.append((evaluate(own, rows, known), shifted.right.number, factor.name))
            divisors += [(factor.value.right.number, factor.name)] if shifted is not factor.value else []  # type: ignore[union-attr]
        if isinstance(factor, Poly):
            column = evaluate(factor.poly, rows, known)
            subtracted += [(column, number, factor.name) for number in factor.centres]
            divisors += [(number, factor.name) for number in factor.scales]
            # What is subtracted is a ratio times an earlier one, which is as large as values to its degree.
            largest = max(map(abs, factor.ratios), default=0.0)
            policy.refuse_if(largest > FAR * (2.0 * magnitude(column)) ** 2, "centre", name=factor.name)
    for number, name in divisors:
        check_scale(number, name, policy)
    for factor in factors_of(design):
        node = bare(factor.value) if isinstance(factor, Numeric) else dataclasses.replace(factor, name="")
        if not isinstance(node, Column | Missing | Coded) and node not in policy.approved:
            for name in columns_of(node):
                values, counts = np.unique(rows.values(name).numbers, return_counts=True)
                rare = len(values) <= FEW_VALUES and is_few(counts, policy.cell)
                policy.refuse_if(rare, "rare", f"{counts.tolist()} rows", name=factor.name, cell=policy.cell)
    if centre is not None:
        subtracted += zip(design.matrix(rows, means).T, map(float, centre), names, strict=True)
    for column, number, name in subtracted:
        policy.refuse_if(abs(number) > FAR * magnitude(column), "centre", name=name)


def magnitude(column: Any) -> float:
    """Return a power of two above the values of a column: what is told by refusals is no more than that.

    >>> magnitude([1.0, -3.0]), magnitude([5.0, 5.0])
    (4.0, inf)
    """
    low, high = float(np.min(column, initial=np.inf)), float(np.max(column, initial=-np.inf))
    return float(2.0 ** np.ceil(np.log2(max(-low, high)))) if low < high else np.inf


def check_scale(number: float, name: str, policy: Policy) -> None:
    """Refuse a number that divides or multiplies what is so large or small that values are rounded to zero."""
    policy.refuse_if(not 1.0 / LARGE <= abs(number) <= LARGE, "scale", name=name)


def recode(column: Any, levels: Sequence[Any] | None) -> Array:
    """Return the values of a column, by their places among the levels of another where both have levels."""
    numbers: Array = column.numbers
    if column.levels is None or levels is None or column.levels == levels:
        return numbers
    places = {level: float(place) for place, level in enumerate(levels)}
    return np.array([*(places.get(level, -1.0) for level in column.levels), -1.0])[numbers.astype(np.int64)]


def factors_of(design: Any) -> list[Any]:
    """Return all factors of the terms of a design."""
    return [factor for term in getattr(design, "terms", ()) for factor in term.factors]


def analysis_of(design: Design) -> list[Any]:
    """Return a key of an analysis: its columns, whatever they are centred and divided by."""
    terms = [
        [repr(bare(factor.value)) if isinstance(factor, Numeric) else getattr(factor, "coded", repr(factor))
         for factor in term.factors]
        for term in design.terms
    ]  # fmt: skip
    about = (design.response, design.offset, design.weights, design.strata, design.cluster, design.filled)
    return [terms, design.missing, *map(repr, about)]


# --- 2. Rows: enough of them share every sum --------------------------------------------------------------------------
#
# A sum Σ c_i r_i is a few rows where few of the weights c_i are large. So (Σc)²/Σc², the effective rows, is at least
# CELL for indicators of classes and levels, for a column's deviations from its median, and for the gradient at a point;
# it is larger for weights, and for the curvature at a point, since the difference of two gradients is a sum by
# curvature. Of all combinations of columns at once, no row has a share (leverage) near 1. The same holds for each fold.

#: The largest share that one row may have of a combination of columns.
MOST_LEVERAGE = 0.95
#: This many columns at most: leverages are computed, and pairs of columns compared.
MOST_COLUMNS = 2000
#: This many rows must share the curvature at a point, a third of the rows where that is less: to separate N evenly
#: spaced rows at a plane amplifies rounding by about exp(π²N/6), more than double precision has from N = 23 on. Of the
#: rows in which a feature is not at its most common value one in fifteen must: in honest fits of a9a one in twelve
#: does.
EFFECTIVE, IN_A_GROUP = 30.0, 15.0
#: Of observed curvature so much is needed, since honest fits of counts with an identity link have 21 effective rows.
OBSERVED = 2.0 / 3.0
#: Combinations of columns that are so much shorter than the longest are only rounding.
ROUNDED = 1e-12
TOO_FEW = sentences()["point"][1]


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


def shares(X: Array) -> Array:
    """Return for each column how many effective rows share its deviations from the middle; infinite for a constant.

    >>> shares(np.array([[1.0, 0.0, 5.0], [1.0, 0.0, 5.0], [0.0, 1e-9, 5.0], [0.0, 1.0, 5.0], [0.0, 0.0, 5.0]]))
    array([ 2.,  1., inf])
    """
    deviations = np.abs(X - np.median(X, axis=0))
    return np.array([effective(one) if one.max(initial=0.0) > 0 else np.inf for one in deviations.T])


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


def uncommon(X: Any) -> Any:
    """Return in which rows each column is not at its most common value: a sparse matrix of zeros and ones."""
    dense = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
    common = np.zeros(dense.shape[1])
    for j, column in enumerate(dense.T):
        values, counts = np.unique(column, return_counts=True)
        common[j] = values[counts.argmax()] if len(values) else 0.0
    return csc_array((dense != common).astype(np.float64))


def is_few(counts: Any, least: int) -> bool:
    """Whether a count is small, but not zero."""
    return bool(((np.asarray(counts) > 0) & (np.asarray(counts) < least)).any())


def check_size(rows: int, coefficients: int, policy: Policy) -> None:
    """Refuse too few rows, and more coefficients than a share of them."""
    policy.refuse_if(rows < policy.rows, "rows", f"{rows} rows", rows=policy.rows)
    detail = f"{coefficients} coefficients, {rows} rows"
    policy.refuse_if(coefficients > policy.parameters * rows, "parameters", detail, parameters=policy.parameters)


def check_cells(counts: Any, what: str, policy: Policy, where: str = "") -> None:
    """Refuse counts of rows of which one is small, but not zero."""
    few = is_few(counts, policy.cell)
    policy.refuse_if(few, "cells", f"{np.asarray(counts).tolist()}", what=what, cell=policy.cell, where=where)


def check_parts(conditions: Sequence[Array], policy: Policy) -> None:
    """Refuse rows by conditions that together reveal few rows.

    Sums over rows that meet conditions, added and subtracted in any way, weigh all rows alike that meet the same ones.
    So no part of the rows may be smaller than a site.
    """
    sizes = np.unique(np.stack(conditions), axis=1, return_counts=True)[1]
    detail = f"parts of {sorted(sizes.tolist())} rows"
    policy.refuse_if(sizes.min(initial=policy.rows) < policy.rows, "parts", detail, rows=policy.rows)


def check_weights(weights: Array, policy: Policy, where: str = "") -> None:
    """Refuse weights that leave few rows: their sum, and sums with them, would be these rows'."""
    found, needed = effective(weights), min(EFFECTIVE, len(weights) / 3.0)
    policy.refuse_if(found < needed, "weights", f"{found:.1f} effective rows, {needed:.1f} are needed", where=where)


def check_columns(
    X: Any, names: Sequence[str], policy: Policy, others: dict[str, Array] | None = None, where: str = ""
) -> Array:
    """Refuse columns, differences of two and combinations that reveal fewer than ``cell`` rows from all others.

    ``others`` are columns that are not features: the response and the offset. All of them are returned as one matrix.
    """
    added, least = others or {}, policy.cell
    shown = [*(f"the column {name!a}" for name in names or map(str, range(X.shape[1]))), *added]
    policy.refuse_if(len(shown) > MOST_COLUMNS, "many", f"{len(shown)}", most=MOST_COLUMNS)
    dense = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    dense = np.column_stack([dense, *added.values()])
    if policy.goes_by("cells"):
        rows = shares(dense)
        few = np.flatnonzero(rows < least - 1e-6)
        if few.size:
            detail = f"{rows[few[0]]:.1f} effective rows share its deviations from the middle"
            raise refuse("few", detail, what=shown[few[0]], cell=least, where=where)
        # Measurements are excluded: nearly every row has a value of its own there.
        members = uncommon(dense)
        sizes = np.asarray(members.sum(axis=0)).ravel()
        coded = np.flatnonzero((sizes > 0) & (sizes <= len(dense) / 2))
        some = members[:, coded]
        apart = sizes[coded][:, None] + sizes[coded] - 2.0 * (some.T @ some).toarray()
        apart = np.minimum(apart, len(dense) - apart)
        close = np.argwhere((apart > 0) & (apart < least))
        if close.size:
            first, second = (shown[coded[one]] for one in close[0])
            what = f"the difference of {first} and {second}"
            raise refuse("few", "they differ in fewer rows", what=what, cell=least, where=where)
    _check_leverage(dense, policy, where)
    return dense


def _check_leverage(dense: Array, policy: Policy, where: str) -> None:
    if policy.goes_by("leverage") and (largest := leverages(dense).max(initial=0.0)) > MOST_LEVERAGE:
        raise refuse("leverage", f"to {largest:.1%}", where=where)


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
        raise refuse("family", family=losses.family)
    names = list((losses.column_names if isinstance(losses, ClassModel) else losses.feature_names) or ())
    own, others = losses._place(client), dict[str, Array]()
    weights = losses._risk.table.weights[own] if isinstance(losses, Cox) else losses.weights_of_rows[own]
    some = some & (weights > 0)  # columns may differ in one of the rows that count
    X, weights = losses._rows_of(client)[some], weights[some]
    check_size(len(weights), 0, policy)
    if isinstance(losses, Cox):
        events, sizes = int((losses._risk.table.event[own][some] >= 0).sum()), losses.strata_sizes(client)
        policy.refuse_if(events < policy.rows, "events", f"{events} events", rows=policy.rows, where=where)
        check_cells(np.bincount(np.repeat(np.arange(len(sizes)), sizes)[some]), "strata", policy, where)
        others["the offset"] = losses._risk.table.offset[own][some]
    else:
        y = np.asarray(losses.targets_of(client))[some]
        # Shares of trials are measurements, as other responses are.
        two = isinstance(losses, GLM) and isinstance(losses.distribution, Binomial) and np.isin(y, (0.0, 1.0)).all()
        if two or isinstance(losses, Logistic | Softmax | ClassModel):
            check_cells(np.unique(y, return_counts=True)[1], "classes", policy, where)
        others["the response"] = y.astype(np.float64)
        if losses._rows.shifts is not None:
            wide = losses._rows.shifts[own][some].reshape(len(y), -1)
            others |= {f"the offset{place or ''}": column for place, column in enumerate(wide.T)}
    if isinstance(losses, Cox | GLM):
        # Robust errors with and without clusters differ by products of rows that belong together.
        several = int((losses.cluster_sizes(client) > 1).sum())
        policy.refuse_if(is_few(several, policy.cell), "clusters", f"{several} clusters", cell=policy.cell)
    check_weighted(check_columns(X, names, policy, others, where), weights, policy, where)


def check_weighted(dense: Array, weights: Array, policy: Policy, where: str = "") -> None:
    """Refuse weights, and columns with them, that leave few rows."""
    if weights.min() < weights.max():
        check_weights(weights, policy, where)
        _check_leverage(dense * np.sqrt(weights)[:, None], policy, where)


class Group(NamedTuple):
    """Rows over which sums are sent, and in which of these each feature is not at its most common value."""

    rows: Any
    size: int
    members: Any
    sizes: Array


class Model:
    """A model that a site answers for: points at which too few rows decide are refused, and others are counted.

    A gradient may be nearly one row's, where all others fit. And the gradient at a steep plane is a sum over many
    rows, while the difference of two such gradients may be a single row. There, curvature is near zero but for the
    rows at the plane. ``people`` names which rows are one person's, where a model has several rows of each. Without a
    budget nothing is counted.
    """

    def __init__(
        self, losses: Any, policy: Policy, budget: Budget | None = None, analysis: str = "", people: Any = None,
        design: str = "",
    ) -> None:  # fmt: skip
        self.losses, self.policy, self.people = bound_weights(losses, policy), policy, people
        self._budget, self._analysis, self._design = budget, analysis, design
        self._groups, self._folds = dict[int, Group](), dict[bytes, list[list[Group]]]()

    def restrict(self, features: IntArray) -> Model:
        """Return the model of some features, which is of the same analysis."""
        made = copy.copy(self)
        made.losses, made._design, made._groups, made._folds = self.losses.restrict(features), "", {}, {}
        return made

    def check(self, x: Array, client: int, folds: Sequence[Group] = (), *, squares: bool = False) -> None:
        """Refuse a point of one client, with ``squares`` also for sums of squares; raise OutsideError of the domain."""
        if not self.policy.goes_by("points"):
            return
        if not isinstance(self.losses, Cox | Softmax | ClassModel | Logistic | GLM | LeastSquares):
            raise refuse("family", family=self.losses.family)
        if not np.isfinite(x).all():
            raise refuse("point", "the point is not finite")
        for response in respond(self.losses, x, client):
            for group in (self._of(client), *folds):
                self._check_response(response, group)
        for response in respond_in_squares(self.losses, x, client) if squares else ():
            self._check_response(response, self._of(client))

    def check_third_moments(self, x: Array, client: int, inverse: Array) -> None:
        """Refuse a matrix V, as an inverse of an information, with which few rows make up Σ w' (aᵀVa) a."""
        if not self.policy.goes_by("points"):
            return
        scale = np.sqrt(np.abs(np.diag(inverse)))
        far = np.linalg.eigvalsh(inverse / np.maximum(np.outer(scale, scale), 1e-300))
        if not np.allclose(inverse, inverse.T, rtol=1e-6) or far[0] < -1e-6 * max(far[-1], 1.0):
            raise refuse("point", "the inverse of an information is symmetric and positive")
        for response in respond_in_third_moments(self.losses, x, client, inverse):
            self._check_response(response, self._of(client))

    def check_start(self) -> None:
        """Refuse the quadratic models that a fit starts from: of each row where its own outcome is."""
        try:
            for client in range(self.losses.n_clients if self.policy.goes_by("points") else 0):
                for response in respond_at_start(self.losses, client):
                    self._check_response(response, self._of(client))
        except OutsideError:
            raise refuse("start") from None

    def check_prediction(self, x: Array) -> None:
        """Refuse a point of a question about predictions."""
        try:
            self.check(np.asarray(x, dtype=np.float64), 0)
        except OutsideError:
            raise refuse("outside") from None

    def check_along(self, x: Array, point: Array) -> None:
        """Refuse an intercept and a slope of the linear predictor at x, if too few rows decide."""
        losses = self.losses
        if isinstance(losses, Cox):
            self.check_prediction(point[-1] * x)
        elif isinstance(losses, LinearModel) and not isinstance(losses, Softmax | ClassModel):
            Model(along(losses, x), self.policy).check_prediction(point)

    def _check_response(self, response: Response, group: Group) -> None:
        """Refuse a sum over rows, and curvature, that too few rows share: in all, and of those that a feature marks."""
        found = effective(np.abs(self._of_people(response.slope)[group.rows]))
        if not (found == 0.0 or found >= self.policy.cell):
            raise refuse("point", f"{found:.1f} effective rows make up the sum{response.what}")
        if response.bend is None:
            return
        own = self._of_people(response.bend)[group.rows]
        needed = max(float(self.losses.n_features), min(EFFECTIVE, group.size / 3.0))
        needed = min(needed, group.size / 2.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            inside = (group.members.T @ own) ** 2 / (group.members.T @ own**2)
        all_found = np.array([effective(own), *inside])
        all_needed = np.array([needed, *np.minimum(needed, group.sizes / IN_A_GROUP)])
        all_needed *= OBSERVED if response.observed else 1.0
        short = np.flatnonzero(~(all_found >= all_needed))
        if short.size:
            place = int(short[0])
            among = f" of the {group.sizes[place - 1]:g} in which a feature is uncommon" if place else ""
            raise refuse(
                "point", f"{all_found[place]:.1f} effective rows{response.what}{among} share the curvature, "
                f"{all_needed[place]:.1f} are needed",
            )  # fmt: skip

    def _of_people(self, values: Array) -> Array:
        return values if self.people is None else np.bincount(self.people, values)

    def _of(self, client: int) -> Group:
        if client not in self._groups:
            self._groups[client] = self._group(client, slice(None))
        return self._groups[client]

    def _group(self, client: int, rows: Any) -> Group:
        members = uncommon(self.losses._rows_of(client)[rows])
        if self.people is not None:
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
        self.policy.refuse_if(self.people is not None, "people")
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
            if self._budget is not None:
                self._budget.divide(len(labels), hashlib.sha256(key).hexdigest()[:16], int(labels.max()) + 1)
            self._folds[key] = made
        return self._folds[key]

    def spend_points(self, points: int) -> None:
        """Count points at which it is answered."""
        if self._budget is not None:
            self._budget.spend_points(self._analysis, points)

    def note_fitted(self, x: Array) -> None:
        """Note a point of which standard errors were asked: weights by a model's predictions may be of such alone."""
        if self._budget is not None and self._design:
            self._budget.note_fitted(self._design, digest_of(x.ravel()))

    def note_outside(self) -> None:
        """Count a point outside the domain: its status reveals where the extreme rows lie."""
        if self._budget is not None and self._budget.count_refusal():
            raise refuse("outside_often")


def along(losses: Any, x: Array) -> Any:
    """Return losses whose columns are an intercept and the linear predictor at x; an offset is part of that."""
    made = copy.copy(losses)
    made.__dict__.pop("_whole", None)
    X = np.column_stack([np.ones(int(losses.sizes[0])), losses.forms(x, slice(None))])
    made._rows = losses._rows._replace(X=X, shifts=None)
    return made


# --- 3. Numbers: what is one person's in any sum ----------------------------------------------------------------------
#
# The largest value, weight or curvature is one row's: a bound by sums is told in its place. Counts leave in cells of at
# least CELL rows, columns that tell few rows are withheld, and areas under curves have four digits. Sums with an edge
# at each row (Σ|y − xβ|, infinite gaps) are blurred. Answers of the table pass protect(), those of models
# GuardedData.

#: Scores that are sums of smooth functions of the linear predictor, as losses are; others count rows.
SMOOTH = ("brier", "deviance")
#: The largest share that is added to a sum with edges.
BLUR = 1e-3


def blur(number: float) -> float:
    """Return a number that is up to a thousandth larger: by a hash of itself, so noise to others.

    The same number is the same again, and a bound stays one.

    >>> 2.0 <= blur(2.0) <= 2.002, blur(2.0) == blur(2.0), blur(np.inf)
    (True, True, inf)
    """
    drawn = int.from_bytes(hashlib.sha256(struct.pack("<d", number)).digest()[:8], "little") / 2.0**64
    return number * (1.0 + BLUR * drawn)


def bound_weights(losses: Any, policy: Policy) -> Any:
    """Return losses whose bounds go by a power of two times the mean weight: the largest weight is one person's."""
    if not policy.goes_by("constants") or not isinstance(losses, LinearModel) or isinstance(losses, Cox):
        return losses
    largest, mean = float(losses.weights_of_rows.max()), float(losses.weights_of_rows.mean())
    if largest <= mean * (1 + 1e-12):
        return losses
    made, factor = losses._without_caches(), float(2.0 ** np.ceil(np.log2(largest / mean)) * mean / largest)
    made.curvature, made.steepest = factor * losses.curvature, factor * losses.steepest
    return made


def bound_slopes(losses: Any, clients: IntArray) -> Array | None:
    """Return larger bounds of slopes, by squares: Σ|x − c| has an edge at each x, so that many c tell all of them."""
    if losses.slope_bounds(np.arange(0)) is None:
        return None
    rows = [losses._rows_of(int(client)) for client in clients]
    means = [(X.multiply(X) if hasattr(X, "multiply") else X * X).mean(axis=0) for X in rows]
    return np.array([losses.steepest * np.sqrt(np.asarray(one, dtype=np.float64).ravel()) for one in means])


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
    few = sums.used < policy.rows or any(0 < known < policy.rows for known in sums.known)
    policy.refuse_if(few, "rows", f"{sums.used} rows", rows=policy.rows)
    for name, counts in [("classes", sums.classes), *zip((one.name for one in design.coded), sums.levels, strict=True)]:
        check_cells(counts, f"levels of {name[:99]!a}", policy)
    # A term may be written so that it is not a number in any rows one likes: to count these would count anything.
    for place in np.flatnonzero(sums.invalid):
        what = f"the term {design.terms[place - 1].names[0][:100]!a}" if place else "the response"
        policy.refuse_if(True, "invalid", f"{sums.invalid[place]} rows", what=what)


def check_groups(counts: Array, policy: Policy) -> None:
    """Refuse groups of few rows, and few rows without a group; the first count is that of these."""
    few = policy.goes_by("cells") and is_few(counts[0], policy.cell)
    few = few or is_few(counts[1:], policy.rows)
    policy.refuse_if(few, "groups", f"{counts.tolist()} rows", rows=policy.rows, cell=policy.cell)


def tells_rows(name: str, groups: list[Array], policy: Policy) -> bool:
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


def protect(answer: Any, policy: Policy) -> Any:
    """Return an answer of the table without counts of few rows: each kind of answer knows how to put cells together."""
    if not policy.goes_by("cells"):
        return answer
    if isinstance(answer, SiteScores):
        answer = answer.change_errors(blur)
    elif isinstance(answer, RiskCounts):
        check_size(int(answer.start.sum() + answer.entered.sum()), 0, policy)
    elif isinstance(answer, LogRank | Concordance | Proportionality):
        check_size(int(np.sum(answer.rows)), 0, policy)
    if isinstance(answer, Concordance | Proportionality | Information):
        return answer  # sums over all rows
    if not hasattr(answer, "coarsen"):
        raise refuse("kind", kind=type(answer).__name__)
    try:
        return answer.coarsen(policy.cell)
    except ArgumentError as error:
        raise refuse("times", str(error), cell=policy.cell) from None


# --- The losses of a model, as a question gets them -------------------------------------------------------------------
#
# A question names the operations that it uses, and gets these alone. Each belongs to one of five groups.

#: Operations at one point. Of these: those that take weights of all clients, add up squares of rows' scores, are needed
#: for standard errors of a fit, and have numbers of any kind as answers.
AT_POINT = frozenset({
    "values", "gradients", "hessians", "informations", "sums_at", "overdispersion_at", "spread_at", "jeffreys_at",
    "value", "gradient", "hessian", "hessian_product", "dual_points",
})  # fmt: skip
BY_CLIENT = frozenset({"value", "gradient", "hessian", "hessian_product", "dual_points"})
SQUARES, FITTED = frozenset({"sums_at", "overdispersion_at"}), frozenset({"informations", "sums_at"})
NUMBERS = frozenset({"values", "gradients", "hessians", "informations"})
#: Operations at many points, and what may be asked of dual points.
AT_POINTS = frozenset({"evaluate_many", "duals_at_many"})
DUALS = frozenset({
    "gradient", "gap", "rounding", "curvature", "hessian_products", "hessian", "size", "sizes", "columns", "ridge",
})  # fmt: skip
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
    policy.refuse_if("products" not in policy.kinds, "products")


class GuardedData(Offer):
    """The losses of a model as questions get them: every operation that touches rows looks at its arguments first."""

    __slots__ = ("_model", "_uses")

    def __init__(self, model: Model, uses: frozenset[str]) -> None:
        super().__init__(model.losses, uses)
        self._model, self._uses = model, uses

    def offer(self, question: Question) -> GuardedData:
        """Return the data for a question: with what it declares, after all points that it names were looked at."""
        # Dual points along a direction are products of the Hessian with it.
        if question.tells_pairs or getattr(question, "direction", None) is not None:
            check_products(self._model.policy)
        if ROWS in question.reveals.uses:
            self._check_scores(question)
        return GuardedData(self._model, question.reveals.uses)

    def _check_scores(self, question: Any) -> None:
        """Refuse scores that count rows; those that are smooth are sums at points like all others."""
        losses, about = self._model.losses, question.points_at(self._model.losses.shape)
        self._model.policy.refuse_if(question.score not in SMOOTH, "held", score=question.score)
        for number, labels in enumerate(question.about.draw_folds(losses)):
            count = 1 if about.folds is None else about.folds.count
            some = np.maximum(about.held, 0) // count == number
            if self.check_points(about.x[some], about.held[some], labels, range(losses.n_clients)):
                raise refuse("outside")

    def __getattr__(self, name: str) -> Any:
        found, model = super().__getattr__(name), self._model
        losses, policy = model.losses, model.policy
        if name in AT_POINT:
            return lambda x, *given, **options: self._at_point(name, found, x, *given, **options)
        if name in AT_POINTS:
            return lambda points, held, labels, clients: self._at_points(name, found, points, held, labels, clients)
        if name in REFUSED:
            policy.refuse_if(True, "single_rows", what=REFUSED[name])
        if name in PAIRS:
            check_products(policy)
        if name == "start_model":
            model.check_start()
        if name == "restrict":
            return lambda features: GuardedData(model.restrict(features), self._uses)
        if name == ROWS and policy.goes_by("folds"):
            found = copy.copy(losses)
            found.admit_score = lambda *_: False  # the sums for standard errors are not sent
        if name == "lipschitz_in" and policy.goes_by("constants"):
            check_products(policy)  # those in a chosen direction are second moments
            policy.refuse_if(isinstance(losses, Cox), "coordinates")
        if name == "slope_bounds" and policy.goes_by("constants"):
            return lambda clients: bound_slopes(losses, clients)
        return found

    def _at_point(self, name: str, found: Any, x: Array, *given: Any, **options: Any) -> Any:
        model, losses, policy = self._model, self._model.losses, self._model.policy
        if name == "values" and policy.goes_by("points") and np.array_equal(x, probe(losses.shape, losses.dtype)):
            # Data are recognised by their fingerprint: at a point that no one has looked at nothing is sent.
            x = np.zeros_like(x)
        everywhere = name == "values" and not np.any(x)  # asked of every model, anyone who asks
        batch = options.get("batch_size", given[1] if name == "gradients" and len(given) > 1 else None)
        # Who is in a batch is known from its seed: as many batches as rows are a linear system for each row.
        policy.refuse_if(batch is not None and batch < int(losses.sizes.max()), "batches")
        clients = np.arange(losses.n_clients) if name in BY_CLIENT else np.asarray(given[0])
        points, outside = np.asarray(x, dtype=np.float64), False
        for place, client in enumerate(map(int, clients)):
            model.spend_points(1)
            try:
                point = points if points.shape == losses.shape else points[place]
                model.check(point, client, squares=name in SQUARES)
                if name == "jeffreys_at":
                    model.check_third_moments(point, client, given[1])
            except OutsideError:
                outside = policy.goes_by("domain")
            except Refusal:
                if not everywhere:
                    raise
                return np.full(len(clients), np.inf)
        with np.errstate(all="ignore"):
            answer = found(x, *given, **options)
        if outside:
            model.note_outside()
            if name not in NUMBERS:
                raise refuse("outside")
            answer = np.full_like(answer, np.inf if name == "values" else np.nan)
        elif name in FITTED and points.shape == losses.shape:
            model.note_fitted(points)
        return GuardedDuals(answer, DUALS, model) if name == "dual_points" and answer is not None else answer

    def _at_points(self, name: str, found: Any, points: Array, held: IntArray, labels: IntArray, clients: Any) -> Any:
        outside = self.check_points(points, held, labels, clients)
        with np.errstate(all="ignore"):
            answer = found(points, held, labels, clients)
        if name == "duals_at_many":
            if outside:
                raise refuse("outside")
            return GuardedDuals(answer, frozenset({"of", "columns_of"}), self._model)
        for part in answer:
            part[:, outside] = np.nan
        return answer

    def check_points(self, points: Array, held: IntArray, labels: IntArray, clients: Any) -> list[int]:
        """Refuse points, some with a fold excluded; if one is refused, nothing is sent of any.

        Returns the places of those outside the domain.
        """
        model, outside = self._model, set[int]()
        folds = model.admit_folds(np.asarray(labels))
        model.spend_points(len(points))
        for client in map(int, clients):
            for place, (x, fold) in enumerate(zip(points, held, strict=True)):
                try:
                    point = np.asarray(x).reshape(model.losses.shape)
                    model.check(point, client, folds[client] if fold >= 0 else ())
                except OutsideError:
                    outside.add(place)
        for _ in outside:
            model.note_outside()
        return sorted(outside) if model.policy.goes_by("domain") else []


class GuardedDuals(Offer):
    """Dual points as questions get them: where a gap is infinite one row is out of range, which counts as a refusal.

    How a gap rises before tells the same row, so that gaps are blurred.
    """

    __slots__ = ("_model",)

    def __init__(self, duals: Any, uses: frozenset[str], model: Model) -> None:
        super().__init__(duals, uses)
        self._model = model

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if name == "of":
            return lambda *given: GuardedDuals(found(*given), DUALS, self._model)
        return self._blur(found) if name == "gap" and self._model.policy.goes_by("domain") else found

    def _blur(self, found: Callable[..., float]) -> Callable[..., float]:
        def gap(*given: Any) -> float:
            told = float(found(*given))
            if not np.isfinite(told):
                self._model.note_outside()
            return blur(told)

        return gap


# --- 4. Budget, and the door ------------------------------------------------------------------------------------------
#
# fpdfp.federation.budget counts, and refuses what is too much. Every request comes through answer(): it is admitted,
# computed behind the rules, counted, held or copied where the policy says so, and logged before it leaves.

#: How many models a site keeps ready, and how many seconds it waits for a person to release a reply.
MODELS, WAIT = 4, 3600.0
#: A point at which rows are counted, in the order of their predictions, costs as much as this many others: counts
#: change where one row changes sides, so that a search by points finds where each is.
COUNTED = 1000
#: The mark of a site that answers nothing until a person has looked at it, and the folder of copies.
STOPPED, OUTBOX = "stopped", "outbox"
NOT_RELEASED = "this site did not release its reply"
#: The kinds of the policy that each kind of request is of; that of a solver's request depends on what is in it.
KINDS = {
    "schema": "schema", "sums": "sums", "moments": "moments", "risk": "times", "log_rank": "times",
    "baseline": "times", "concordance": "times", "evaluation": "evaluation", "calibration": "evaluation",
    "request": "fits", "plan": "fits", "budget": "schema",
    "propose": "schema", "description": "sums", "histogram": "sums", "proportionality": "times",
}  # fmt: skip
#: Refusals by these rules reveal nothing of the rows, and do not count.
FREE = ("kinds", "budget", "hours", "places", "columns")
#: The questions that the kind "tests" is about.
TESTS = ("information", "overdispersion", "jeffreys")


class RequestGuard:
    """Answers for a site.

    Parameters
    ----------
    name
        The name of the site.
    table
        Its data: :class:`fpdfp.federation.table.SiteTable`.
    policy
        What it answers.
    folder
        Where the log, the budget and copies of what leaves are kept; for its owner alone.
    questions
        What reads questions; by default :mod:`fpdfp.federation.questions`.
    """

    #: The kinds of the policy that each kind of request is of.
    kinds: Mapping[str, str] = KINDS

    def __init__(self, name: str, table: Any, policy: Policy, folder: Path, questions: Any = None) -> None:
        self.name, self.policy, self.folder = name, policy, Path(folder)
        #: The table and the policy of the file, to which variables are added that were approved since.
        table = copy.copy(table)
        table.derives = False  # columns are made here by approved definitions alone
        self._table, self._policy, self._approved = table, policy, dict[str, str]()
        self.table = table if not policy.variables else table.with_variables(policy.variables)
        self.approvals = Approvals(self.folder)
        self.questions: Any = questions or importlib.import_module("fpdfp.federation.questions")
        #: A key that distinguishes the data from others, for runs that continue after a restart of the site.
        self._data = str(getattr(table, "fingerprint", ""))
        self._rows = int(getattr(table, "rows", 0))
        #: The condition of the rows that are asked about.
        self._condition = ""
        names = [*getattr(table, "columns", ()), *policy.variables]
        for pattern in [*policy.columns, *(one for one in policy.never if one not in IDENTIFIERS)]:
            if names and not any(matches(name, [pattern]) for name in names):
                log.warning("the policy names the columns %r, of which the table has none", pattern)
        self.audit = Audit(self.folder)
        try:
            self.budget = Budget(self.folder, policy, None if self.audit.last is None else self.audit.last.spent)
        except BaseException:
            self.audit.close()
            raise
        self._models: collections.OrderedDict[str, Site] = collections.OrderedDict()
        self._lock = threading.Lock()
        #: Whether an analysis began with the request that is being answered.
        self._new = False
        #: Seconds to wait for a person who releases a reply, and the clock by which the hours of the policy are judged.
        self.wait = WAIT
        self.clock: Callable[[], datetime.datetime] = datetime.datetime.now

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write down what is not on the disk yet."""
        with self._lock:
            try:
                self.budget.write(ahead=False)
            finally:
                self.audit.close()

    def answer(self, asked: dict[str, Any], asker: Asker) -> dict[str, Any]:
        """Return the reply to a request: ``reply``, ``refused``, ``error`` or ``needs_model``."""
        with self._lock:
            run, kind, words = str(asked.get("run", ""))[:64], str(asked.get("kind", ""))[:16], describe(asked)
            why, outcome, self._new = "", "answered", False
            try:
                self._admit(asked, kind, run)
                reply = self._propose(asked, asker) if kind == "propose" else self._compute(asked, kind)
                self._release(asked, kind, reply)
            except Refusal as error:
                reply, why = self._refuse(error)
                outcome = "refused"
            except outbox.RefusedError:
                reply, outcome, why = {"refused": NOT_RELEASED}, "not released", NOT_RELEASED
            except MessageError as error:
                reply, outcome, why = {"error": str(error)}, "failed", str(error)
            except OSError as error:
                reply, outcome, why = self._fail_to_write(error), "failed", str(error)
            except Exception as error:
                # The text of other errors might say something of the data, and so does that there is one.
                log.exception("a request could not be answered")
                self._count_refusal()
                reply = {"error": f"{type(error).__name__} at the site; its log says more"}
                outcome, why = "failed", f"{type(error).__name__}: {error}"
            try:
                self.audit.append(
                    sync=self._new or outcome != "answered", asker=asker.name, role=asker.role, study=asker.study,
                    fingerprint=asker.fingerprint, run=run, kind=kind, asked=words + self._formula(asked),
                    left=len(pack(reply)), outcome=outcome, why=why, spent=self._counts(),
                )  # fmt: skip
            except OSError as error:
                return self._fail_to_write(error)
            return reply

    def _counts(self) -> dict[str, float]:
        """Return what the log says was spent; the files that count it must not have less when the site starts again."""
        return self.budget.spent.counts()

    def _refuse(self, error: Refusal) -> tuple[dict[str, Any], str]:
        """Return the analyst's part of a refusal, and what the log is."""
        if error.rule not in FREE:
            self._count_refusal()
        detail = f" ({error.detail})" if error.detail else ""
        told = error.sentence + (detail if self.policy.counts else "")
        return {"refused": told, "rule": error.rule}, f"{error.rule}: {error.sentence}{detail}"

    def _count_refusal(self) -> None:
        if self.budget.count_refusal():
            (self.folder / STOPPED).touch(mode=0o600)

    def _fail_to_write(self, error: OSError) -> dict[str, Any]:
        """Return what is said in place of a reply that cannot be written down: it is asked again, until it can."""
        log.error("nothing leaves: %s", error)
        return {"error": say_full(error)}

    def _formula(self, asked: dict[str, Any]) -> str:
        """Return the formula of what is asked, and its digest, where it has one."""
        asked = asked["ask"] if isinstance(asked.get("ask"), dict) else asked
        given = asked.get("spec", asked.get("question"))
        if not isinstance(given, dict) or not ({"design", "spec", "response"} & set(given)):
            return ""
        rows = f", rows with {asked['rows']}"[:500] if asked.get("rows") else ""
        try:
            return f": {write_design(given)}{rows} [{digest_of(given)[:16]}]"
        except Exception:  # whatever came has its line in the log
            return f": what is no formula{rows}"

    def _admit(self, asked: dict[str, Any], kind: str, run: str) -> None:
        """Refuse what the policy does not allow before anything is computed."""
        self._adopt(self.approvals.approved)
        policy = self.policy
        if policy.goes_by("budget") and self.budget.spent.refusals >= policy.refusals:
            if (self.folder / STOPPED).exists():
                raise refuse("stopped", f"remove the file {self.folder / STOPPED} when you have")
            self.budget.forgive()
        policy.refuse_if(not policy.is_open(self.clock()), "hours", hours=policy.hours)
        if kind not in self.kinds:
            raise refuse("kind", kind=kind)
        policy.refuse_if(self.kinds[kind] not in policy.kinds, "kind", kind=self.kinds[kind])
        policy.refuse_if(asked.get("each") and not policy.single_sites, "single")
        if not run:
            raise MessageError("a request must name its run")
        self.budget.compare_data(run, self._data)

    def _adopt(self, approved: dict[str, str]) -> None:
        """Add variables that were approved to the table and the policy."""
        if approved != self._approved:
            variables = {**approved, **self._policy.variables}
            self.policy = dataclasses.replace(self._policy, variables=variables)
            self.table = self._table.with_variables(variables)
            self._approved = approved
            self._models.clear()

    def _propose(self, asked: dict[str, Any], asker: Asker) -> dict[str, Any]:
        """Note a variable that an analyst proposes, if there is one; return the states of all."""
        if asked.get("name") is not None:
            self.approvals.propose(asked.get("name"), asked.get("text"), asker.name, self._table)
        known = {name: one.state for name, one in self.approvals.read().items()}
        return {"reply": dict.fromkeys(self._policy.variables, "yes") | known}

    def _compute(self, asked: dict[str, Any], kind: str) -> dict[str, Any]:
        """Return the reply, about the rows that meet a condition where there is one."""
        if not asked.get("rows"):
            return self._compute_whole(asked, kind)
        table, rows = self.table, self._rows
        try:
            self.table, self._condition = self._filter(asked["rows"]), asked["rows"]
            self._rows = len(self.table)
            return self._compute_whole(asked, kind)
        finally:
            self.table, self._rows, self._condition = table, rows, ""

    def _filter(self, condition: Any) -> Any:
        """Return the rows that meet a condition; refuse one that reveals few rows, alone or with earlier conditions."""
        if not isinstance(condition, str):
            raise MessageError("a condition must be a text")
        try:
            node, found = parse_condition(condition), self.table.where(condition)
        except ArgumentError as error:
            raise MessageError(f"the condition {condition[:100]!a} cannot be used: {error}") from None
        if node not in self.policy.approved:
            check_named(tuple(columns_of(node)), self.policy)
        check_plain("the condition of rows", node, self.policy)
        # By its definition: what a variable's name means may change.
        text = self.policy.variables.get(condition.strip(), condition)
        known = self._rows_of([one for one in self.budget.spent.conditions if one != text])
        check_parts([*known, found], self.policy)
        self.budget.note_condition(text)
        return self.table.take(found)

    def _rows_of(self, conditions: list[str]) -> Iterator[Array]:
        """Yield the rows of earlier conditions whose columns the table still has."""
        for one in conditions:
            with contextlib.suppress(ArgumentError):
                yield self.table.where(one)

    def _compute_whole(self, asked: dict[str, Any], kind: str) -> dict[str, Any]:
        if kind == "request":
            return self._answer_request(asked)
        if kind == "budget":
            spent = self.budget.spent
            return {"reply": {"spent": spent.total, "allowed": self.policy.analyses, "refusals": spent.refusals}}
        if kind == "plan":
            return {"reply": _declare(asked)}
        question, write = self.questions.read_question(asked), self.questions.write_answer
        if kind == "schema":
            return {"reply": hide(write(self.table.answer(question)), self.policy)}
        answers = {"sums": self._answer_design, "moments": self._answer_design,
                   "description": self._answer_descriptive, "histogram": self._answer_descriptive}  # fmt: skip
        answer = answers.get(kind, self._answer_model if hasattr(question, "spec") else self._answer_times)
        reply: dict[str, Any] = write(answer(question))
        return {"reply": _shorten(reply) if kind == "risk" else reply}

    def _begin(self, analysis: Any, model: Any = "") -> str:
        """Pay for an analysis, and return its digest."""
        digest = digest_of([analysis, self._condition] if self._condition else analysis)
        self._new = self.budget.begin(digest, digest_of(model) if model else "")
        return digest

    def _check_design(self, design: Any, means: Any, centre: Any = None, scale: Any = None) -> None:
        check_design(design, self.policy, self.budget.spent.edges)
        weights = getattr(design, "weights", None)
        if isinstance(weights, InverseWeights):
            known = self.budget.spent.fitted.get(digest_of(analysis_of(weights.treatment)), [])
            self.policy.refuse_if(digest_of(np.array(weights.coefficients)) not in known, "fitted")
        check_size(self._rows or 10**9, design.width, self.policy)
        if isinstance(design, Design):
            rows = self.table.complete(design)[1]
            check_numbers(design, rows, self.policy, means, centre, scale)
            for one in factors_of(design):
                if isinstance(one, Spline) and isinstance(one.of, Column) and not is_approved(one, self.policy):
                    self._check_knots(one, evaluate(one.of, rows, {}))

        self._use(getattr(design, "columns", ()))

    def _use(self, names: Sequence[str]) -> None:
        """Refuse columns that differ in few rows from others that were used: two answers would tell these rows."""
        columns, used = getattr(self._table, "columns", {}), list(self.budget.spent.columns)
        known = [name for name in dict.fromkeys(names) if name in columns]
        fresh = [name for name in known if name not in used]
        for name in known:
            own = columns[name]
            for other in used[: used.index(name) if name in used else None]:
                another = columns.get(other, own)
                values = recode(another, own.levels)
                differ = (own.missing != another.missing) | (~own.missing & (own.numbers != values))
                few = (own.levels is None) == (another.levels is None) and is_few(differ.sum(), self.policy.cell)
                detail = f"{differ.sum()} rows"
                self.policy.refuse_if(few, "near", detail, name=name, other=other, cell=self.policy.cell)
        self.budget.note_columns(fresh)

    def _check_knots(self, spline: Spline, values: Array) -> None:
        """Refuse knots that have few rows between them and others that were used, and other ends than before.

        Splines with knots, or ends, on both sides of few rows would tell these rows.
        """
        name, own = f"{spline.of}", [spline.lower, *spline.knots, spline.upper]
        known = self.budget.spent.knots.get(name, own)
        together = sorted({*known, *own})
        counts = np.histogram(values[np.isfinite(values)], together)[0]
        few = is_few(counts, self.policy.rows) or (own[0], own[-1]) != (known[0], known[-1])
        self.policy.refuse_if(few, "apart", f"{counts.tolist()} rows", name=spline.name, rows=self.policy.rows)
        # And one set of knots of a kind.
        what = f"{len(spline.knots)} knots ({spline.spline} {spline.degree}) of {spline.of}{self._condition}"
        self.budget.fix_times(what, digest_of(own))
        self.budget.note_knots(name, together)

    def _answer_design(self, question: Any) -> Any:
        """Answer a question about the columns of a design: counts and sums for coding, or moments."""
        design, policy = question.design, self.policy

        def check(X: Array, weights: Array | None) -> None:
            X = X if weights is None else X[weights > 0]
            check_size(len(X), X.shape[1], policy)
            dense = check_columns(X, design.names, policy)
            if weights is not None:
                check_weighted(dense, weights[weights > 0], policy)

        if hasattr(question, "diagonal"):
            self._check_design(design, question.means)
            if not question.diagonal:
                check_products(policy)
            answer = self.table.answer(question, check)
        else:
            self._check_design(design, np.zeros(len(design.filled)))
            answer = self.table.answer(question)
            check_sums(answer, design, policy)
            if design.weights is not None:
                check_weights(self.table.complete(design)[1].weigh(design.weights), policy)
        self._begin(analysis_of(design))
        return answer

    def _answer_descriptive(self, question: Any) -> Any:
        """Answer a question about columns by group: rows that tell few are withheld, or refused."""
        factors, by = getattr(question, "factors", ()), question.by
        check_named((question.columns, factors, by), self.policy)
        for name in (*question.columns, *(one.coded for one in (*factors, by) if one is not None)):
            self._use([name])
        group, groups = group_rows(self.table, by)
        check_groups(np.bincount(group + 1, minlength=groups + 1), self.policy)
        for name, edges in zip(question.columns, getattr(question, "edges", ()), strict=False):
            self.budget.fix_times(f"edges of {name}", digest_of(edges))
            self.budget.spent.edges[name] = [float(one) for one in edges]
        coded = [one.coded for one in (*factors, by) if one is not None]
        self._begin(["description", sorted(question.columns), sorted(coded)], self.questions.dump(question))
        answer, columns = self.table.answer(question), list(question.columns)
        few = [one for one in columns if tells_rows(one, values_of(self.table, one, group, groups), self.policy)]
        if hasattr(question, "edges"):
            self.policy.refuse_if(few, "own", names=", ".join(repr(one)[:99] for one in few))
        else:
            answer = answer.withhold([i for i, one in enumerate(columns) if one in few])
        return protect(answer, self.policy)

    def _answer_times(self, question: Any) -> Any:
        """Answer a question about times of events, without a model."""
        policy, response, group = self.policy, question.response, question.group
        strata, times = list(getattr(question, "strata", ())), getattr(question, "times", ())
        policy.refuse_if(times is None and "ranges" not in policy.kinds, "ranges")
        check_named((group, tuple(strata), response), policy)
        self._use([*([] if group is None else [group.coded]), *strata, *columns_of(response)])
        if group is not None:  # sums over all rows, less those by group, tell rows without a group
            without = int((group_rows(self.table, group)[0] < 0).sum())
            check_cells(without, f"rows without a value of {group.coded!a}", policy)
        if isinstance(question, LogRankQuestion):  # a test in one of two rows reveals these
            check_cells(np.unique(self.table.strata_of(question), return_counts=True)[1], "strata", policy)
        columns = [] if group is None else [group.coded]
        self._begin([self.questions.dump(response), columns, strata], [getattr(question, "rho", 0.0)])
        if times is not None and len(times):
            self._fix_times("times", response, times)
        return protect(self.table.answer(question), policy)

    def _answer_model(self, question: Any) -> Any:
        """Answer a question about the times, or the predictions, of a model at its coefficients."""
        policy, spec, times = self.policy, question.spec, getattr(question, "times", ())
        counts_rows = question.name in ("evaluation", "concordance", "proportionality")
        policy.refuse_if(times is None and "ranges" not in policy.kinds, "ranges")
        if question.tells_pairs:
            check_products(policy)
        model, more = Model(self._losses(spec), policy), getattr(question, "more", [])
        for x in (question.x, *more):
            model.check_prediction(x)
        if hasattr(question, "point"):
            model.check_along(question.x, question.point)
        analysis = self._begin(analysis_of(spec.design), self.questions.dump(spec))
        self.budget.spend_points(analysis, COUNTED * (1 + len(more)) if counts_rows else 1)
        if times is not None and len(times):
            self._fix_times("times", spec.design.response, times)
        answer = protect(self.table.answer(question, site=self.name), policy)
        if isinstance(answer, SiteScores) and len(answer.own) and policy.goes_by("cells"):
            try:
                model.check_along(question.x, answer.own)
            except Refusal:
                return answer.without_calibration()
        return answer

    def _fix_times(self, what: str, response: Any, times: Any) -> None:
        for column in (response.leaves, response.enters):
            if column is not None:
                self.budget.fix_times(f"{what} of {column}", digest_of(np.asarray(times, dtype=np.float64)))

    def _losses(self, described: Any) -> Losses:
        """Return the losses of a model that the rules allow."""
        design: Any = getattr(described, "design", None)
        if design is not None:
            self._check_design(design, described.means, described.centre, described.scale)
            for number in (described.weight_scale, *described.class_weights):
                check_scale(number, "the weights", self.policy)
        if getattr(described, "several_rows", False):
            if described.periods:
                self._fix_times("periods", design.response, described.periods)
            check_model(self.table.losses(described.by_person, self.name, split=False), self.policy)
        losses: Losses = self.table.losses(described, self.name)
        check_model(losses, self.policy)
        return losses

    def _answer_request(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer a solver's request."""
        name, policy = asked.get("model"), self.policy
        if not isinstance(name, str) or not 0 < len(name) <= 64:
            raise MessageError("a request must name its model")
        name += self._condition
        if name not in self._models:
            if "spec" not in asked:
                return {"needs_model": True}
            data: Any = GuardedData(self._make(asked["spec"]), ALL)
            self._models[name] = Site(data, _offer)
            if len(self._models) > MODELS:
                self._models.popitem(last=False)
        self._models.move_to_end(name)
        request = Request.read(parcels.load(asked.get("request")))
        for question in request.questions:
            policy.refuse_if(question.name == "memory", "memory")
            policy.refuse_if(question.name in TESTS and "tests" not in policy.kinds, "tests")
        job = request.about.job
        if job is not None and "hessian" in job.algorithm.reply_shapes():
            check_products(policy)
        return {"reply": self._models[name].handle(request)}

    def _make(self, tree: Any) -> Model:
        described = self.questions.read_spec(tree)
        losses = self._losses(described)
        design = getattr(described, "design", None)
        analysis = self._begin(tree if design is None else analysis_of(design), tree)
        people = self.table.people(described) if getattr(described, "several_rows", False) else None
        # Only coefficients of features as they are can weigh rows.
        plain = isinstance(design, Design) and not described.centre.any() and (described.scale == 1.0).all()
        key = digest_of(analysis_of(design)) if plain and not described.ridge.any() else ""  # type: ignore[arg-type]
        return Model(losses, self.policy, self.budget, analysis, people, key)

    def _release(self, asked: dict[str, Any], kind: str, reply: dict[str, Any]) -> None:
        """Keep a copy of what is about to leave, and wait for a person where the policy states it."""
        policy = self.policy
        waits = "reply" in reply and (self.kinds[kind] in policy.hold or (self._new and "analysis" in policy.hold))
        if waits or policy.copies:
            number = asked.get("sequence")
            sequence = number if type(number) is int else 0
            envelope = outbox.Envelope(str(asked.get("run", "")), sequence, self.name, reply)
            outbox.keep(outbox.seal(envelope), self.folder / OUTBOX, self.wait if waits else 0.0)


def _offer(question: Question, data: Any) -> GuardedData:
    """Return the data of a model as a question gets them."""
    offered: GuardedData = data.offer(question)
    return offered


def _declare(asked: dict[str, Any]) -> dict[str, Any]:
    """Return a path or a cross-validation that is declared before it begins, so that the log has it."""
    plan, problems, folds = asked.get("plan"), asked.get("problems"), asked.get("folds", 0)
    if not isinstance(plan, str) or not 0 < len(plan) <= 64 or type(problems) is not int or problems < 1:
        raise MessageError("a plan must have a name of at most 64 letters and a number of problems")
    if type(folds) is not int or folds < 0:
        raise MessageError("folds must be a number of folds")
    return {"price": 1, "problems": problems, "folds": folds}


def _shorten(tree: dict[str, Any]) -> dict[str, Any]:
    """Return counts of rows at risk as integers of few bits."""
    short = dict(tree)
    for name in ("start", "entered", "left"):
        short[name] = tree[name].astype(np.uint8 if tree[name].max(initial=0.0) < 256 else np.int32)
    short["events"] = tree["events"].astype(short["left"].dtype)  # they are among those that leave
    return short


def digest_of(tree: Any) -> str:
    """Return a text that distinguishes questions and models."""
    return hashlib.sha256(pack(tree)).hexdigest()[:32]
