"""The design of a fit: outcomes, weights, offsets, strata and sites of a matrix, or of a formula and its sites.

Both become a :class:`Design`, and take the same way from there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.compress.plain import plain_bits
from fpdfp.datasets import FeatureGraph, Moments, as_graph, feature_graph
from fpdfp.engines.prepare import RunOptions
from fpdfp.errors import ArgumentError
from fpdfp.federation.cohort import TableCohort
from fpdfp.federation.questions import Distribution, ModelSpec, MomentsQuestion
from fpdfp.federation.table import ModelRows
from fpdfp.losses import Losses
from fpdfp.methods.base import Method
from fpdfp.models.formulas import Asking, Plan, plan
from fpdfp.models.outcomes import Data, Outcome, Scaled, SiteEffects
from fpdfp.models.penalty import (
    Columns,
    Details,
    Graph,
    Group,
    Limits,
    ModelPenalty,
    Names,
    find_factors,
    find_limits,
    find_start,
    no_edges,
)
from fpdfp.models.rows import append_columns, read_sites, take_rows

#: A feature whose deviation is at most this part of its mean is constant up to rounding.
CONSTANT = 1e-12


@dataclasses.dataclass(frozen=True, eq=False)
class Settings:
    """The checked settings of a fit.

    Attributes
    ----------
    title
        The name of the model, as summaries and warnings show it.
    penalty, bounds, start, intercept, standardize, method, inference
        As parameters of the model.
    effects
        Which intercepts sites have.
    options
        Those of the run, with a tolerance, or None to run all rounds.
    selecting
        Whether weights of the penalty are compared, so that there is a penalty whatever its weight is.
    """

    title: str
    penalty: ModelPenalty
    bounds: Any
    start: Any
    intercept: bool
    standardize: bool
    method: Method | None
    inference: Any
    options: RunOptions
    effects: SiteEffects = "none"
    selecting: bool = False

    @property
    def first_effect(self) -> int:
        """The number of the first site that has an intercept of its own, where sites have."""
        return 0 if self.effects == "random" else 1

    def wanted_moments(self, features: int) -> bool | None:
        """Return whether the diagonal of moments is enough; None if none are needed."""
        learns = isinstance(self.penalty, Graph) and self.penalty.graph is None and features > 1
        return not learns if learns or self.standardize else None


#: Makes the outcome of a number of features, with an intercept or not, of sites and of the plan of a formula; and
#: returns the plan with the classes in the order of the model.
MakeOutcome = Callable[[int, bool, int, Plan | None], tuple[Outcome, Plan | None]]


@dataclasses.dataclass(frozen=True, eq=False)
class Design:
    """Rows at sites as a model sees them, from a matrix or from a formula.

    Attributes
    ----------
    outcome
        The kind of outcome.
    names
        The names of the features, and the terms of a formula that they belong to.
    named
        Whether columns of a matrix had names.
    sites, rows, left_out
        The sites, the rows of each that are used, and those excluded.
    columns, scaled
        The columns of the model, and how features are centred and scaled.
    moments
        Those of all features, where the penalty or a scaling needs them.
    build
        Makes the losses for an outcome and a ridge of each column.
    up, down
        The bits that were sent so far.
    formula, plan, spec, cohort
        Of a formula: its text, its coding, from what sites make their losses, and the sites.
    owner, kept, parts
        Of a matrix: the site of each row, which rows were kept where some have weight 0, and the rows of each site.
    """

    outcome: Outcome
    names: Names
    named: bool
    sites: Array
    rows: dict[str, int]
    left_out: dict[str, int]
    columns: Columns
    scaled: Scaled
    moments: list[Moments]
    build: Callable[[Outcome, Array], Losses]
    up: int
    down: int
    formula: str | None = None
    plan: Plan | None = None
    spec: ModelSpec | None = None
    cohort: TableCohort | None = None
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    owner: IntArray | None = None
    kept: Array | None = None
    parts: Callable[[], list[ModelRows]] | None = None

    def details(self, penalty: ModelPenalty, *, progress: bool | None) -> Details:
        """Return what a penalty needs of the design."""
        graph = self._graph(penalty, progress) if isinstance(penalty, Graph) else None
        groups = self._groups(penalty.groups) if isinstance(penalty, Group) else None
        return Details(find_factors(penalty.factors, self.names), groups, graph)

    def _graph(self, penalty: Graph, progress: bool | None) -> FeatureGraph:
        """Return the given graph, or the one estimated from the sites' moments."""
        if penalty.graph is not None:
            return as_graph(penalty.graph, self.columns.features, self.names.features if self.named else None)
        if not self.moments or self.columns.features < 2:
            return no_edges(self.columns.features)
        total, scale = Moments.total(self.moments), self.scaled.scale
        standard = Moments(total.count, total.mean / scale, total.scatter / np.outer(scale, scale))
        if not standard.variance.any():
            return no_edges(self.columns.features)
        return feature_graph(standard, penalty.sparsity, progress=progress)

    def _groups(self, given: Any) -> Any:
        """Return the label of each feature's group: as given, or the label of its term."""
        if self.plan is None:
            return given
        design = self.plan.design
        if given is None:
            return design.term_of_each
        if not isinstance(given, dict):
            return given
        known = {*design.names, *design.term_of_each}
        strange = [name for name in given if name not in known]
        if strange:
            raise ArgumentError("groups:", f"{strange[0]!r} is neither a feature nor a term of the formula")
        pairs = zip(design.names, design.term_of_each, strict=True)
        return [str(given.get(name, given.get(term, term))) for name, term in pairs]

    def limits(self, bounds: Any) -> Limits | None:
        """Return the limits of the coefficients of scaled features."""
        found = find_limits(bounds, self.names)
        return None if found is None else Limits(found.lower * self.scaled.scale, found.upper * self.scaled.scale)

    def within(self, bounds: Any) -> Callable[[Array], Array]:
        """Return what puts coefficients within their limits, where rounding, or what a run has left, is outside."""
        found = find_limits(bounds, self.names)
        return (lambda one: one) if found is None else (lambda one: np.clip(one, found.lower, found.upper))

    def start(self, given: Any) -> Array | None:
        """Return where runs start, in the columns of the model."""
        columns, scaled = self.columns, self.scaled
        found = find_start(given, self.names, intercept=columns.intercept, classes=columns.classes)
        if found is None:
            return None
        x0 = np.zeros((*found.shape[:-1], columns.all))
        x0[..., : found.shape[-1]] = found
        if columns.intercept:
            x0[..., columns.features] += found[..., : columns.features] @ scaled.centre
        x0[..., : columns.features] *= scaled.scale
        return x0.ravel() if columns.flat else x0


def design_of_rows(
    X: Any, data: Data, groups: Any, names: Array | None, settings: Settings, make: MakeOutcome
) -> Design:
    """Return the design of a matrix; ``groups`` is the site of each row."""
    sites, owner = read_sites(groups, X.shape[0])
    d, first, count = X.shape[1], settings.first_effect, len(sites)
    diagonal = settings.wanted_moments(d)
    moments = [] if diagonal is None else Moments.of_clients(X, owner, weights=data.weights, diagonal=diagonal)
    outcome, _ = make(d, settings.intercept, count, None)
    effects = count - first if settings.effects != "none" else 0
    columns = outcome.columns(d, intercept=settings.intercept, effects=effects, random=settings.effects == "random")
    whole, scaled = _standardize(X, moments, settings.standardize, centre=outcome.may_centre(columns))
    if settings.intercept:
        whole = append_columns(whole, np.ones((X.shape[0], 1)))
    if effects:
        whole = append_columns(whole, (owner[:, None] == np.arange(first, count)).astype(np.float64))

    def parts() -> list[ModelRows]:
        made = ModelRows(whole, data.y, data.weights, data.offset, data.times, data.strata, data.clusters)
        return [take_rows(made, owner == site) for site in range(count)]

    double = np.dtype(np.float64)
    rows = {str(site): int(one) for site, one in zip(sites, np.bincount(owner), strict=True)}
    features = [f"x{j}" for j in range(d)] if names is None else list(map(str, names))
    return Design(
        outcome, Names(features, features), names is not None, sites, rows, dict.fromkeys(rows, 0), columns, scaled,
        moments, lambda outcome, ridge: outcome.make_losses(whole, data, owner, ridge),
        sum(plain_bits((part.numbers,), double) for part in moments),
        len(moments) * plain_bits((2 * d,), double) if settings.standardize else 0,
        owner=owner, kept=data.kept, parts=parts,
    )  # fmt: skip


def design_of_formula(
    cohort: TableCohort, formula: str, settings: Settings, make: MakeOutcome, *, classify: bool | None,
    survival: bool, intercept: bool, **options: Any,
) -> Design:  # fmt: skip
    """Return the design of a formula, by sums over sites in their order.

    ``intercept`` is whether categories are coded as besides one; ``options`` are ``missing``, ``levels`` and
    ``weights`` of :func:`fpdfp.models.formulas.plan`.
    """
    if settings.effects != "none" and cohort.level != "filter":
        raise ArgumentError(
            "site_effects", f"must be 'none' at the level {cohort.level!r}: the sums of a column that is not zero at "
            "one site alone are that site's",
        )  # fmt: skip
    asking = Asking(cohort)
    found = plan(asking, formula, classify=classify, survival=survival, intercept=intercept, **options)
    d, names = len(found.design.names), asking.names
    outcome, arranged = make(d, found.intercept, len(names), found)
    assert arranged is not None
    found = arranged
    design = found.design
    if design.varies and (settings.penalty.penalises or settings.standardize):
        raise ArgumentError("penalty", "must be 'none', and standardize False, where effects change with time")
    if design.cluster is not None and outcome.loss not in ("Cox", "GLM"):
        raise ArgumentError("formula:", "cluster(…) is for models of times and of one linear predictor")
    diagonal = settings.wanted_moments(d)
    weighted = design.weights is not None
    moments = (
        [asking.ask(MomentsQuestion(design, found.means, diagonal, weighted))] if diagonal is not None and d else []
    )
    others = tuple(names[settings.first_effect :]) if settings.effects != "none" else ()
    columns = outcome.columns(
        d, intercept=found.intercept, effects=len(others), random=bool(others) and settings.effects == "random"
    )
    centre, scale = _scaling(d, moments, settings.standardize, centre=outcome.may_centre(columns))
    scaled = Scaled(centre, np.where(scale > 0, scale, 1.0))
    spec = ModelSpec(
        design, found.means, centre, scale, found.intercept, outcome.loss, found.classes, np.zeros(columns.of_rows),
        None if outcome.family is None else Distribution.of(outcome.family), found.weight_scale, others,
        **outcome.describe(),
    )  # fmt: skip

    def build(outcome: Outcome, ridge: Array) -> Losses:
        family = None if outcome.family is None else Distribution.of(outcome.family)
        losses: Losses = cohort.losses(dataclasses.replace(spec, ridge=ridge, distribution=family))
        return losses

    told = len(names) if moments and settings.standardize else 0
    used = dict(zip(names, found.used, strict=True))
    left_out = {name: rows - used for name, rows, used in zip(names, found.rows, found.used, strict=True)}
    return Design(
        outcome, Names(list(design.names), list(design.term_of_each)), True, np.array(names), used, left_out, columns,
        scaled, moments, build, asking.up, asking.down + told * plain_bits((2 * d,), np.dtype(np.float64)),
        str(formula), found, spec, cohort, {"formula": str(formula)} | options,
    )  # fmt: skip


def _scaling(features: int, moments: list[Moments], standardize: bool, *, centre: bool) -> tuple[Array, Array]:
    """Return what features are centred and scaled by.

    Features that are constant up to rounding have a scale of 0 where they are centred. Otherwise nothing stands for a
    constant but such a feature, and its scale is 1.
    """
    if not standardize or not moments:
        return np.zeros(features), np.ones(features)
    total = Moments.total(moments)
    deviation = np.sqrt(total.variance)
    scale = np.where(deviation > CONSTANT * np.abs(total.mean), deviation, 0.0 if centre else 1.0)
    return total.mean if centre else np.zeros(features), scale


def _standardize(X: Any, moments: list[Moments], standardize: bool, *, centre: bool) -> tuple[Any, Scaled]:
    """Standardise features where asked, by the moments of all sites."""
    d = X.shape[1]
    if not standardize:
        return X, Scaled(np.zeros(d), np.ones(d))
    mean, deviation = _scaling(d, moments, standardize, centre=centre)
    varies = deviation > 0
    scale = np.where(varies, deviation, 1.0)
    # A constant column is redundant with an intercept, and rounding must not make a feature of it.
    if hasattr(X, "tocsr"):  # centring would fill in the zeros
        return X.multiply(np.where(varies, 1.0 / scale, 0.0)).tocsr(), Scaled(np.zeros(d), scale)
    return np.where(varies, (X - mean) / scale, 0.0), Scaled(mean, scale)


def check_groups(groups: Any) -> None:
    """Refuse the sites of rows besides a federation, whose sites are known."""
    if groups is not None:
        raise ArgumentError("groups", "must be None for a federation, whose sites are known")
