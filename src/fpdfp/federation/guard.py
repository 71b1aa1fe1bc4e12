"""A site's guard: whatever is asked passes here before the data, and what is not allowed is refused.

From top to bottom: what may stand where in a model; what columns may reveal; at which points losses are evaluated;
which operations of the data a question gets; what is hidden in answers. The sentences of refusals, each with its rule,
are in :mod:`fpdfp.federation.policy`; how many rows share a sum is measured in :mod:`fpdfp.federation.row_shares`.
:mod:`fpdfp.federation.request_guard` asks all of these for each request, counts, and logs.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.sparse import csc_array

from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.losses import probe
from fpdfp.cohorts.question import ROWS, Offer, Question
from fpdfp.errors import ArgumentError, Refusal, RefusalError
from fpdfp.families import Binomial
from fpdfp.federation.descriptives import Histograms
from fpdfp.federation.policy import Policy, refuse, sentences
from fpdfp.federation.questions import CalibrationQuestion, EvaluationQuestion, Sums
from fpdfp.federation.row_shares import (
    OutsideError,
    Response,
    effective,
    leverages,
    respond,
    respond_at_start,
    respond_in_squares,
    respond_in_third_moments,
    shares,
    uncommon,
)
from fpdfp.formula.coding import Design, InverseWeights
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
from fpdfp.losses.classes import ClassModel, Softmax
from fpdfp.losses.cox import Cox
from fpdfp.losses.glm import GLM, LeastSquares, Logistic
from fpdfp.losses.linear import LinearModel
from fpdfp.scores.counts import PredictorCounts
from fpdfp.survival import LogRank, RiskCounts

#: Functions of a column that a model may use, and powers.
FUNCTIONS, POWERS = ("log", "log1p", "log2", "log10", "sqrt"), (2.0, 3.0)
#: A number that is subtracted from a column is within so many of its ranges, or of its largest value. What is left of
#: one that is far is rounded, with an edge where one likes: a comparison by another name.
FAR = 10.0
#: The largest share that one row may have of a combination of columns.
MOST_LEVERAGE = 0.95
#: This many columns at most: leverages are computed, and pairs of columns compared.
MOST_COLUMNS = 2000
#: This many rows must share the curvature at a point, a third of the rows where that is less: to separate N evenly
#: spaced rows at a plane amplifies rounding by about exp(π²N/6), more than double precision has from N = 23 on. Of the
#: rows in which a feature is not at its most common value one in fifteen must: in honest fits of a9a one in twelve
#: does.
EFFECTIVE, IN_A_GROUP = 30.0, 15.0
TOO_FEW = sentences()["point"][1]
#: Scores that are sums of smooth functions of the linear predictor, as losses are; others count rows.
SMOOTH = ("brier", "deviance")
#: The digits of an area under a ROC curve, and the largest share that is added to a sum with edges.
DIGITS, BLUR = 4, 1e-3
#: At further points a cell has at least a 24th of the rows, or a quarter of those of the rarer outcome if that is less.
CELLS, LEAST_CELLS = 24, 4


# --- What may stand where ---------------------------------------------------------------------------------------------


def check_design(design: Design, policy: Policy, edges: Mapping[str, Sequence[float]] | None = None) -> None:
    """Refuse columns that may not be used, and what is neither a column nor a transformation nor approved.

    ``edges`` are the edges at which this site has counted columns: knots of splines may be there.
    """
    for name in [*design.columns, *design.filled]:
        check_column(name, policy)
    if not is_trials(design):
        check_response(design.response, policy)
    for what, node in (("the offset", design.offset), ("the weights", design.weights)):
        if isinstance(node, InverseWeights):
            check_design(node.treatment, policy, edges)
        elif node is not design.weights or not is_trials(design):
            _check_plain(what, node, policy)
    for term in design.terms:
        for factor in term.factors:
            _check_factor(factor, policy, edges)
        # (age - 30)(age - 31)… is zero but where one likes: a comparison by another name.
        used = [name for factor in term.factors for name in columns_of(factor)]
        policy.refuse_if(len(set(used)) < len(used), "twice", name=term.names[0])


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
    policy.refuse_if(not policy.allows(name), "column", name=name)


def check_response(response: Any, policy: Policy) -> None:
    """Refuse a response that is neither a column nor an approved variable."""
    if not isinstance(response, Survival):
        _check_plain("the response", response, policy)
        return
    for what, node in (("the time", response.leaves), ("the event", response.event), ("the entry", response.enters)):
        _check_plain(what, node, policy)


def _check_plain(what: str, node: Any, policy: Policy) -> None:
    allowed = node is None or isinstance(node, Column) or node in policy.approved
    policy.refuse_if(not allowed, "plain", f"{node}", what=what)


def check_condition(node: Any, policy: Policy) -> None:
    """Refuse rows of a condition that is neither a column nor approved."""
    for name in columns_of(node) if node not in policy.approved else ():
        check_column(name, policy)
    _check_plain("the condition of rows", node, policy)


def check_parts(conditions: Sequence[Array], policy: Policy) -> None:
    """Refuse rows by conditions that together reveal few rows.

    Sums over rows that meet conditions, added and subtracted in any way, weigh all rows alike that meet the same ones.
    So no part of the rows may be smaller than a site.
    """
    sizes = np.unique(np.stack(conditions), axis=1, return_counts=True)[1]
    detail = f"parts of {sorted(sizes.tolist())} rows"
    policy.refuse_if(sizes.min(initial=policy.rows) < policy.rows, "parts", detail, rows=policy.rows)


def _check_factor(
    factor: Numeric | Spline | Poly | Coded, policy: Policy, edges: Mapping[str, Sequence[float]] | None = None
) -> None:
    if isinstance(factor, Spline) and dataclasses.replace(factor, name="") not in policy.approved:
        known = (edges or {}).get(factor.of.column, ()) if isinstance(factor.of, Column) else ()
        policy.refuse_if(not {factor.lower, *factor.knots, factor.upper} <= set(known), "knots", name=factor.name)
    if isinstance(factor, Numeric) and not _is_allowed(bare(factor.value), policy):
        policy.refuse_if(True, "form", f"{factor.value}", name=factor.name, functions=", ".join(FUNCTIONS))


def _is_allowed(node: Any, policy: Policy) -> bool:
    """Whether a node is a column, a transformation of one, or approved."""
    if isinstance(node, Column | Missing) or node in policy.approved:
        return True
    if isinstance(node, Call):
        return node.function in FUNCTIONS and isinstance(node.of, Column)
    power = isinstance(node, Arithmetic) and node.operator == "**" and isinstance(node.left, Column)
    return power and isinstance(node.right, Number) and node.right.number in POWERS


def bare(node: Any) -> Any:
    """Return a node without the mean that is subtracted from it, and the deviation that this is divided by."""
    inner = node.left if _has_number(node, "/") else node
    return inner.left if _has_number(inner, "-") else node


def _has_number(node: Any, operator: str) -> bool:
    return isinstance(node, Arithmetic) and node.operator == operator and isinstance(node.right, Number)


def check_centres(design: Design, rows: Any, policy: Policy, means: Array, centre: Array | None = None) -> None:
    """Refuse numbers that columns are centred by, in the formula and after it, that are far from these columns.

    And means that stand for few missing values: two models with different ones differ in these rows.
    """
    for name in design.filled:
        check_cells(rows.values(name).missing.sum(), f"missing values of {name[:99]!a} that are filled in", policy)
    known = dict(zip(design.filled, map(float, means), strict=True))
    for term in design.terms:
        for factor in term.factors:
            if isinstance(factor, Numeric) and (own := bare(factor.value)) is not factor.value:
                node: Any = factor.value
                node = node.left if _has_number(node, "/") else node
                _check_centre(evaluate(own, rows, known), node.right.number, term.names[0], policy)
            if isinstance(factor, Poly):
                column = evaluate(factor.poly, rows, known)
                for number in factor.centres:
                    _check_centre(column, number, factor.name, policy)
                # What is subtracted is a ratio times an earlier one, which is as large as the range to its degree.
                largest = max(map(abs, factor.ratios), default=0.0)
                far = largest > FAR * max(float(np.ptp(column)), float(np.abs(column).max(initial=0.0))) ** 2
                policy.refuse_if(far, "centre", name=factor.name)
    if centre is not None:
        names = [term.names[0] for term in design.terms for _ in term.names]
        for column, number, name in zip(design.matrix(rows, means).T, centre, names, strict=True):
            _check_centre(column, float(number), name, policy)


def _check_centre(column: Any, centre: float, name: str, policy: Policy) -> None:
    low, high = float(np.min(column, initial=np.inf)), float(np.max(column, initial=-np.inf))
    far = low < high and abs(centre - low) > FAR * (high - low) and abs(centre) > FAR * max(-low, high)
    policy.refuse_if(far, "centre", name=name)


def analysis_of(design: Design) -> list[Any]:
    """Return a key of an analysis: its columns, whatever they are centred and divided by."""
    terms = [
        [repr(bare(factor.value)) if isinstance(factor, Numeric) else getattr(factor, "coded", repr(factor))
         for factor in term.factors]
        for term in design.terms
    ]  # fmt: skip
    about = (design.response, design.offset, design.weights, design.strata, design.cluster, design.filled)
    return [terms, design.missing, *map(repr, about)]


# --- What columns may reveal ------------------------------------------------------------------------------------------


def check_size(rows: int, coefficients: int, policy: Policy) -> None:
    """Refuse too few rows, and more coefficients than a share of them."""
    policy.refuse_if(rows < policy.rows, "rows", f"{rows} rows", rows=policy.rows)
    detail = f"{coefficients} coefficients, {rows} rows"
    policy.refuse_if(coefficients > policy.parameters * rows, "parameters", detail, parameters=policy.parameters)


def check_cells(counts: Any, what: str, policy: Policy, where: str = "") -> None:
    """Refuse counts of rows of which one is small, but not zero."""
    few = _is_few(counts, policy.cell)
    policy.refuse_if(few, "cells", f"{np.asarray(counts).tolist()}", what=what, cell=policy.cell, where=where)


def _is_few(counts: Any, least: int) -> bool:
    return bool(((np.asarray(counts) > 0) & (np.asarray(counts) < least)).any())


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
        shifts = losses._rows.shifts
        if shifts is not None:
            wide = shifts[own][some].reshape(len(y), -1)
            others |= {f"the offset{place or ''}": column for place, column in enumerate(wide.T)}
    if isinstance(losses, Cox | GLM):
        # Robust errors with and without clusters differ by products of rows that belong together.
        several = int((losses.cluster_sizes(client) > 1).sum())
        policy.refuse_if(_is_few(several, policy.cell), "clusters", f"{several} clusters", cell=policy.cell)
    check_weighted(check_columns(X, names, policy, others, where), weights, policy, where)


def check_weighted(dense: Array, weights: Array, policy: Policy, where: str = "") -> None:
    """Refuse weights, and columns with them, that leave few rows."""
    if weights.min() < weights.max():
        check_weights(weights, policy, where)
        _check_leverage(dense * np.sqrt(weights)[:, None], policy, where)


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


# --- Points -----------------------------------------------------------------------------------------------------------


class Group(NamedTuple):
    """Rows over which sums are sent, and in which of these each feature is not at its most common value."""

    rows: Any
    size: int
    members: Any
    sizes: Array


class PointRule:
    """Refuses points of a model at which too few rows decide, over all rows or the rows of a fold.

    A gradient may be nearly one row's, where all others fit. And the gradient at a steep plane is a sum over many rows,
    while the difference of two such gradients may be a single row: there curvature is near zero but for the rows at the
    plane. ``people`` names which rows are one person's, where a model has several rows of each.
    """

    def __init__(
        self, losses: Any, policy: Policy, divide: Callable[[int, bytes, int], None], people: IntArray | None = None
    ) -> None:
        self.losses, self.policy, self.people, self._divide = losses, policy, people, divide
        self._groups: dict[int, Group] = {}
        self._folds: dict[bytes, list[list[Group]]] = {}

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
                self._count(response, group)
        for response in respond_in_squares(self.losses, x, client) if squares else ():
            self._count(response, self._of(client))

    def check_third_moments(self, x: Array, client: int, inverse: Array) -> None:
        """Refuse a matrix V, as an inverse of an information, with which few rows make up Σ w' (aᵀVa) a."""
        if not self.policy.goes_by("points"):
            return
        scale = np.sqrt(np.abs(np.diag(inverse)))
        far = np.linalg.eigvalsh(inverse / np.maximum(np.outer(scale, scale), 1e-300))
        if not np.allclose(inverse, inverse.T, rtol=1e-6) or far[0] < -1e-6 * max(far[-1], 1.0):
            raise refuse("point", "the inverse of an information is symmetric and positive")
        for response in respond_in_third_moments(self.losses, x, client, inverse):
            self._count(response, self._of(client))

    def check_start(self, client: int) -> None:
        """Refuse the quadratic models that a fit starts from: of each row where its own outcome is."""
        for response in respond_at_start(self.losses, client) if self.policy.goes_by("points") else ():
            self._count(response, self._of(client))

    def _of(self, client: int) -> Group:
        if client not in self._groups:
            self._groups[client] = self._group(client, slice(None))
        return self._groups[client]

    def _count(self, response: Response, group: Group) -> None:
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
        self._watch.policy.refuse_if(question.score not in SMOOTH, "held", score=question.score)
        for number, labels in enumerate(question.about.draw_folds(losses)):
            count = 1 if about.folds is None else about.folds.count
            some = np.maximum(about.held, 0) // count == number
            if self.check_points(about.x[some], about.held[some], labels, range(losses.n_clients)):
                raise refuse("outside")

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
            check_products(policy)  # those in a chosen direction are second moments
            policy.refuse_if(isinstance(losses, Cox), "coordinates")
        if name == "slope_bounds" and policy.goes_by("constants"):
            return self._slope_bounds
        if name in REFUSED:
            policy.refuse_if(True, "single_rows", what=REFUSED[name])
        if name in PAIRS:
            check_products(policy)
        if name == "start_model":
            try:
                for client in range(losses.n_clients):
                    self._rule.check_start(client)
            except OutsideError:
                raise refuse("start") from None
        return found

    def _slope_bounds(self, clients: IntArray) -> Array | None:
        """Return larger bounds, by squares: Σ|x − c| has an edge at each x, so that many c reveal all of them."""
        losses = self._rule.losses
        if losses.slope_bounds(np.arange(0)) is None:
            return None
        rows = [losses._rows_of(int(client)) for client in clients]
        means = [(X.multiply(X) if hasattr(X, "multiply") else X * X).mean(axis=0) for X in rows]
        return np.array([losses.steepest * np.sqrt(np.asarray(one, dtype=np.float64).ravel()) for one in means])

    def _at_point(self, name: str, found: Any, x: Array, *given: Any, **options: Any) -> Any:
        losses, watch = self._rule.losses, self._watch
        if name == "values" and watch.policy.goes_by("points") and np.array_equal(x, probe(losses.shape, losses.dtype)):
            # Data are recognised by their fingerprint: at a point that no one has looked at nothing is sent.
            x = np.zeros_like(x)
        everywhere = name == "values" and not np.any(x)  # asked of every model, anyone who asks
        batch = options.get("batch_size", given[1] if name == "gradients" and len(given) > 1 else None)
        # Who is in a batch is known from its seed: as many batches as rows are a linear system for each row.
        watch.policy.refuse_if(batch is not None and batch < int(losses.sizes.max()), "batches")
        clients = np.arange(losses.n_clients) if name in BY_CLIENT else np.asarray(given[0])
        points = np.asarray(x, dtype=np.float64)
        outside = False
        for place, client in enumerate(map(int, clients)):
            watch.spend_point(1)
            try:
                point = points if points.shape == losses.shape else points[place]
                self._rule.check(point, client, squares=name in SQUARES)
                if name == "jeffreys_at":
                    self._rule.check_third_moments(point, client, given[1])
            except OutsideError:
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
                raise refuse("outside")
            answer = np.full_like(answer, np.inf if name == "values" else np.nan)
        return GuardedDuals(answer, DUALS, watch) if name == "dual_points" and answer is not None else answer

    def _at_points(self, name: str, found: Any, points: Array, held: IntArray, labels: IntArray, clients: Any) -> Any:
        outside = self.check_points(points, held, labels, clients)
        with np.errstate(all="ignore"):
            answer = found(points, held, labels, clients)
        if name == "duals_at_many":
            if outside:
                raise refuse("outside")
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
                except OutsideError:
                    outside.add(place)
        for _ in outside:
            self._watch.note_outside()
        return sorted(outside) if self._watch.policy.goes_by("domain") else []


class GuardedDuals(Offer):
    """Dual points as questions get them: where a gap is infinite one row is out of range, which counts as a refusal.

    The way in which a gap rises reveals the same row, so that gaps are blurred.
    """

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
            if not watch.policy.goes_by("domain"):
                return told
            if not np.isfinite(told):
                watch.note_outside()
            return blur(told)

        return gap


#: Operations at one point; those that take weights of all clients; those that add up squares of rows' scores; and
#: those whose answers are numbers of any kind.
AT_POINT = frozenset({
    "values", "gradients", "hessians", "informations", "sums_at", "overdispersion_at", "spread_at", "jeffreys_at",
    "value", "gradient",
    "hessian", "hessian_product", "dual_points",
})  # fmt: skip
BY_CLIENT = frozenset({"value", "gradient", "hessian", "hessian_product", "dual_points"})
SQUARES = frozenset({"sums_at", "overdispersion_at"})
#: Those that standard errors of a fit need, at its coefficients.
FITTED = frozenset({"informations", "sums_at"})
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


def blur(number: float) -> float:
    """Return a number that is up to a thousandth larger: by a hash of itself, so noise to others.

    The same number is the same again, and a bound stays one.

    >>> 2.0 <= blur(2.0) <= 2.002, blur(2.0) == blur(2.0), blur(np.inf)
    (True, True, inf)
    """
    drawn = int.from_bytes(hashlib.sha256(struct.pack("<d", number)).digest()[:8], "little") / 2.0**64
    return number * (1.0 + BLUR * drawn)


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


def protect_times(answer: Any, policy: Policy) -> Any:
    """Return what may leave of an answer about times: they are put together until enough rows are at each."""
    least = policy.cell
    if not policy.goes_by("cells"):
        return answer
    try:
        if hasattr(answer, "hazards"):
            return dataclasses.replace(answer, hazards=[one.coarsen(least) for one in answer.hazards])
        if isinstance(answer, RiskCounts):
            check_size(int(answer.start.sum() + answer.entered.sum()), 0, policy)
            return answer.coarsen(least)
    except ArgumentError as error:
        raise refuse("times", str(error), cell=least) from None
    check_size(int(np.sum(answer.rows)), 0, policy)
    if isinstance(answer, LogRank):
        few = any(_is_few(cells, least) for cells in (answer.rows, answer.events, answer.rows - answer.events))
        policy.refuse_if(few, "times", f"groups of {answer.rows} rows with {answer.events} events", cell=least)
    return answer


def check_groups(counts: Array, policy: Policy) -> None:
    """Refuse groups of few rows, and few rows without a group; the first count is of these."""
    few = policy.goes_by("cells") and _is_few(counts[0], policy.cell)
    few = few or _is_few(counts[1:], policy.rows)
    policy.refuse_if(few, "groups", f"{counts.tolist()} rows", rows=policy.rows, cell=policy.cell)


def protect_descriptives(answer: Any, question: Any, values: Callable[[str], list[Array]], policy: Policy) -> Any:
    """Return what may leave of a table of columns by group; columns of which some rows are few are withheld."""
    withheld = [i for i, name in enumerate(question.columns) if _tells_rows(name, values(name), policy)]
    if isinstance(answer, Histograms):
        answer = answer.coarsen(policy.cell) if policy.goes_by("cells") else answer
        names = ", ".join(repr(question.columns[i])[:99] for i in withheld)
        policy.refuse_if(withheld, "own", names=names)
        return answer
    known, means, scatters = answer.known.copy(), answer.means.copy(), answer.scatters.copy()
    known[withheld], means[withheld], scatters[withheld] = 0, 0.0, 0.0
    counts = []
    for place, cells in enumerate(answer.counts):
        few = policy.goes_by("cells") and _is_few(cells, policy.cell)
        counts.append(np.zeros_like(cells) if few else cells)
        withheld += [len(question.columns) + place] if few else []
    marks = np.zeros_like(answer.withheld)
    marks[withheld] = 1
    return dataclasses.replace(answer, known=known, means=means, scatters=scatters, counts=counts, withheld=marks)


def _tells_rows(name: str, groups: list[Array], policy: Policy) -> bool:
    """Whether a column separates few rows of a group from all others by its mean and deviation, or has few values."""
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
    _look(PointRule(along(losses, x), rule.policy, lambda *_: None), np.asarray(point, dtype=np.float64))


def along(losses: Any, x: Array) -> Any:
    """Return losses whose columns are an intercept and the linear predictor at x; an offset is part of that."""
    made = copy.copy(losses)
    made.__dict__.pop("_whole", None)
    X = np.column_stack([np.ones(int(losses.sizes[0])), losses.forms(x, slice(None))])
    made._rows = losses._rows._replace(X=X, shifts=None)
    return made


def _look(rule: PointRule, x: Array) -> None:
    try:
        rule.check(np.asarray(x, dtype=np.float64), 0)
    except OutsideError:
        raise refuse("outside") from None


def protect_scores(found: Any, question: EvaluationQuestion, rule: PointRule, *, few: bool = False) -> Any:
    """Return what may leave: cells are put together until no count is small, and what is still small is withheld.

    With ``few`` there are only a given number of cells as a curve needs.
    """
    policy, withheld, hits = rule.policy, list(found.withheld), found.hits
    if not policy.goes_by("cells"):
        return found
    # Rounded areas do not reveal that one pair of rows has changed places.
    areas = found.areas.copy()
    areas[:, 0], areas[:, 1] = np.round(areas[:, 0], DIGITS), 0.5 * 10.0**-DIGITS
    least = policy.cell
    sums = found.change_errors(blur)  # Σ|y − xβ| has an edge at each row: its slopes beside it tell the row
    try:
        predictors = [one.coarsen(max(least, _least_of_few(one)) if few else least) for one in found.predictors]
    except RefusalError:
        predictors, areas = [], np.zeros((0, 3))
        withheld.append("auc")
    if hits is not None and _is_few((hits, found.rows - hits), least):
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
