"""From a formula and sites to a design: types, levels, means and rows, by sums over sites in their order."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.cohorts.question import Question
from fpdfp.datasets import Moments
from fpdfp.errors import ArgumentError
from fpdfp.families import Binomial
from fpdfp.federation.cohort import Agreed, Levels, Schemas, TableCohort
from fpdfp.federation.questions import (
    COVERED,
    DescriptionQuestion,
    HistogramQuestion,
    Histograms,
    MomentsQuestion,
    SchemaQuestion,
    SumsQuestion,
    SumsTotal,
    find_edges,
)
from fpdfp.formula.coding import Design, Imputation, InverseWeights, Term, code
from fpdfp.formula.evaluation import NO_VALUE
from fpdfp.formula.parsing import clocks_of, parse, parse_weights
from fpdfp.formula.tree import (
    Arithmetic,
    Column,
    Formula,
    Knotless,
    Level,
    Number,
    Numeric,
    Poly,
    Spline,
    Standard,
    Survival,
    rebuild,
)  # fmt: skip

#: The shares of rows outside of the bounds of natural splines, on each side; the rows that cells have for this; and the
#: least part of the variance of a power that lower ones leave.
OUTER, CELL, LEAST_NORM = 0.05, 3, 1e-10
IMPUTATIONS: tuple[Imputation, ...] = ("drop", "mean", "indicator")


class Plan(NamedTuple):
    """The state before a model is fitted.

    Attributes
    ----------
    design, means
        The features, and the means of the columns that are filled in.
    classes
        The classes of the response, none for numbers.
    intercept
        Whether there is one.
    rows, used
        The rows of each site, and those that are used.
    weight_scale
        What weights of rows are multiplied with, so that their mean is 1.
    counts
        The rows of each class that are used.
    ordered
        Whether the classes are on a scale: numbers, or texts whose order is declared.
    imputed
        The columns in which means were put.
    """

    design: Design
    means: Array
    classes: tuple[Level, ...]
    intercept: bool
    rows: list[int]
    used: list[int]
    weight_scale: float = 1.0
    counts: tuple[int, ...] = ()
    ordered: bool = True
    imputed: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class InverseProbability:
    """Weights of rows by a fitted model of their treatment, which the sites make: 1/P(own treatment).

    Give it as ``weights`` of a fit with a formula: ``weights=fpdfp.InverseProbability(model)``. The coefficients then
    belong to a marginal structural model: rows are weighted as if the treatment did not depend on the covariates of its
    model. Sites use only coefficients at which they computed standard errors of the same model before. Standard errors
    of the weighted fit are robust ones (``"HC0"``), which take the probabilities for known; for effects on all rows
    they are then too large on average (Lunceford and Davidian 2004).

    Parameters
    ----------
    model
        A :class:`fpdfp.FederatedGLM` of the family ``"binomial"`` or a :class:`fpdfp.FederatedLogisticRegression`,
        fitted to a formula without a penalty, weights or site effects. For rows that were selected or not lost give a
        model of that; the outcome of others is missing.
    estimand
        ``"all"`` for the effect on all rows, or ``"treated"``: weights of 1 where there was the treatment, and its
        odds elsewhere.

    Examples
    --------
    >>> import fpdfp
    >>> patients = fpdfp.datasets.patients()
    >>> given = fpdfp.FederatedGLM("binomial").fit(patients, "treated ~ age + C(stage)", groups="hospital")
    >>> weights = fpdfp.InverseProbability(given)
    >>> model = fpdfp.FederatedGLM("binomial").fit(patients, "readmitted ~ treated", groups="hospital", weights=weights)
    >>> print(model.table())
               coefficient  standard error      z        p    2.5 %   97.5 %
    Intercept      -0.5974         0.09751  -6.13  < 0.001  -0.7885  -0.4063
    treated        -0.6926          0.1512  -4.58  < 0.001  -0.9889  -0.3962
    """

    model: Any
    estimand: Literal["all", "treated"] = "all"

    def __post_init__(self) -> None:
        _checks.choice("estimand", self.estimand, ("all", "treated"))
        fit = vars(self.model).get("fitted_") if hasattr(self.model, "__dict__") else None
        family = None if fit is None else fit.outcome.likelihood
        if fit is None or fit.plan is None or not isinstance(family, Binomial) or fit.run is None:
            raise ArgumentError("model", "must be a logistic or binomial model that was fitted to a formula here")
        strange = {
            "a penalty": fit.penalised, "standardised features": fit.standardized, "site effects": fit.effects.size,
            "weights": fit.plan.design.weights is not None, "aliased coefficients": fit.aliased,
            "imputed values": fit.plan.design.missing != "drop", "no standard errors": fit.information is None,
        }  # fmt: skip
        for what, there in strange.items():
            if there:
                raise ArgumentError("model", f"must be without {what}")

    def describe(self) -> InverseWeights:
        """Return what sites make the weights from."""
        fit = self.model.fitted_
        plan, link = fit.plan, fit.outcome.likelihood.link
        x = [*np.ravel(fit.coef), *(np.ravel(fit.intercept) if plan.intercept else ())]
        return InverseWeights(
            plan.design, tuple(map(float, x)), plan.intercept, link, tuple(plan.classes), self.estimand
        )

    def __repr__(self) -> str:
        return f"InverseProbability({self.model.formula_}, {self.estimand!r})"


class Asking:
    """Asks sites, and counts the bits of questions and answers.

    Attributes
    ----------
    up, down
        The bits of what sites answered, and of what they were asked.
    """

    def __init__(self, cohort: TableCohort) -> None:
        self.cohort = cohort
        self.names = list(cohort.names)
        self.up = self.down = 0

    def ask(self, question: Question) -> Any:
        """Return the sums over all sites."""
        told = self.cohort.ask(question)
        self.up, self.down = self.up + told.up, self.down + told.down
        return told.sums

    def ask_each(self, question: Question) -> list[Any]:
        """Return the answers of all sites, in order."""
        told = self.cohort.ask_each(question)
        self.up, self.down = self.up + told.up, self.down + told.down
        return told.answers


def plan(
    asking: Asking, text: str, *, classify: bool | None, intercept: bool, missing: Imputation, levels: Levels,
    weights: str | InverseProbability | None = None, survival: bool = False,
) -> Plan:  # fmt: skip
    """Return the design of a formula; what sites do not agree on is refused by column and site.

    ``classify`` states whether the response has classes; with None it has two, or is a number. ``weights`` names the
    column that weighs rows. With ``survival`` the response is the time of an event, and the hazard is the intercept.
    """
    _checks.choice("missing", missing, IMPUTATIONS)
    formula = parse(text)
    check_response(formula, survival=survival)
    if survival or not intercept:
        formula = dataclasses.replace(formula, intercept=survival)
    if formula.trials and classify is not None:
        raise ArgumentError("formula:", "the response cbind(…) is for FederatedGLM with the family binomial")
    if weights is not None:
        if formula.trials:
            raise ArgumentError("weights", "must be None with cbind(…), whose trials are weights")
        node = weights.describe() if isinstance(weights, InverseProbability) else parse_weights(weights)
        formula = dataclasses.replace(formula, weights=node)
    agreed = _agree(asking, formula, levels, classify)
    classes = _classes(formula, agreed, classify=classify)
    formula = _place_knots(asking, formula, agreed)
    plain = rebuild(formula, lambda node: node.inner if isinstance(node, Standard) else node)

    def design_of(tree: Formula) -> Design:
        # The hazard has what is the same in all rows at a time: levels are coded as besides that.
        clocks = tuple((one,) for one in clocks_of(tree))
        tree = dataclasses.replace(tree, terms=(*clocks, *tree.terms))
        made = code(tree, agreed.kinds, agreed.levels, missing=missing, absent=agreed.absent)
        if not clocks:
            return made
        kept = [dataclasses.replace(one, term=one.term - len(clocks)) for one in made.terms if one.term >= len(clocks)]
        return dataclasses.replace(made, terms=tuple(kept), titles=made.titles[len(clocks) :])

    design = design_of(plain)
    sums: SumsTotal = asking.ask(SumsQuestion(design, classes))
    _check_sums(asking.names, design, formula, sums)
    agreed, classes, counts = _used_levels(design, agreed, classes, sums)
    means = _means(design, sums)
    standard = _standards(formula)
    if standard:
        extra = tuple(Term((Numeric("", node.inner),), 0) for node in standard)
        inner = dataclasses.replace(design_of(plain), terms=(*extra, *design_of(plain).terms))
        total: Moments = asking.ask(MomentsQuestion(inner, means))
        formula = _resolve(
            formula, dict(zip(standard, zip(total.mean, total.variance, strict=False), strict=False)), total.count
        )
    formula = _find_centres(asking, formula, design, means)
    weight, used = sums.weight, sums.used
    if not weight > 0:
        raise ArgumentError(
            "weights", f"must be at least 0 in all rows, and positive in some, but add up to {weight:g}"
        )
    scale = 1.0 if formula.weights is None else sum(used) / weight
    intercept = formula.intercept and not survival
    ordered = not isinstance(formula.response, Column) or formula.response.column in agreed.ordered
    imputed = tuple(name for name in design.filled if name in agreed.absent)
    return Plan(design_of(formula), means, classes, intercept, sums.rows, used, scale, counts, ordered, imputed)


def check_response(formula: Formula, *, survival: bool) -> None:
    """Refuse times of events as the response of other models, and other responses for models of times."""
    if survival and not isinstance(formula.response, Survival):
        raise ArgumentError("formula:", "the response must be Surv(time, event) or Surv(start, stop, event)")
    if not survival and isinstance(formula.response, Survival):
        raise ArgumentError("formula:", "the response Surv(…) is for FederatedCoxRegression and survival curves")


def _agree(asking: Asking, formula: Formula, levels: Levels, classify: bool | None) -> Agreed:
    """Compare the columns of sites; where one is missing, all names are needed to name which is near."""
    schemas = Schemas(asking.names, asking.ask_each(SchemaQuestion(tuple(formula.columns))))
    if any(len(schemas.of(name)) < len(asking.names) for name in formula.columns):
        schemas = Schemas(asking.names, asking.ask_each(SchemaQuestion()))
    return schemas.agree(formula, levels, classify=classify)


def _classes(formula: Formula, agreed: Agreed, *, classify: bool | None) -> tuple[Level, ...]:
    """Return the classes of the response, none for a regression."""
    response = formula.response
    kind = agreed.kinds[response.column] if isinstance(response, Column) else "number"
    if classify is None:
        classify = kind in ("truth", "category")
    if not classify:
        if kind == "category":
            raise ArgumentError(
                "formula:",
                f"the response {response.column!r} holds texts; regression needs numbers",  # type: ignore[union-attr]
            )
        return ()
    if not isinstance(response, Column):
        return (0, 1)
    if kind == "truth":
        return (False, True)
    found = agreed.levels.get(response.column, ())
    if len(found) < 2:
        shown = f"only the class {found[0]!r}" if found else f"no classes that sites tell (its type is {kind})"
        raise ArgumentError(
            "formula:", f"the response {response.column!r} has {shown}; classification needs two or more"
        )
    return found


def _check_sums(names: list[str], design: Design, formula: Formula, sums: SumsTotal) -> None:
    """Refuse sites without rows, and terms that are not finite numbers."""
    titles = ["the response", *(f"the term {design.titles[term.term]!r}" for term in design.terms)]
    with_standard = {number for number, term in enumerate(formula.terms) if _standards(term)}
    skipped = {1 + i for i, term in enumerate(design.terms) if term.term in with_standard}
    for name, rows, used, invalid in zip(names, sums.rows, sums.used, sums.invalid, strict=True):
        if not used:
            raise ArgumentError(
                "formula:",
                f"none of the {rows} rows of {name} has all columns of the formula: leave the site out, or fill in "
                'what is missing (missing="mean" or "indicator")',
            )
        for place in np.flatnonzero(invalid):
            if place == 0 and isinstance(design.response, Survival):
                raise ArgumentError(
                    "formula:",
                    f"the response is not an event time in {invalid[0]} of {used} rows at {name}: times must "
                    "be numbers, events 0 or 1, and rows must enter before they leave",
                )
            if int(place) not in skipped:
                raise ArgumentError(
                    "formula:",
                    f"{titles[place]} is not finite in {invalid[place]} of {used} rows at {name}, as the "
                    "logarithm of 0 is not",
                )


def _used_levels(
    design: Design, agreed: Agreed, classes: tuple[Level, ...], sums: SumsTotal
) -> tuple[Agreed, tuple[Level, ...], tuple[int, ...]]:
    """Exclude levels and classes of which no row is used; return the counts of classes as well."""
    used: tuple[int, ...] = ()
    levels = dict(agreed.levels)
    for factor, counts in zip(design.coded, sums.levels, strict=True):
        kept = [level for level, count in zip(factor.levels, counts, strict=True) if count]
        levels[factor.coded] = tuple(level for level in kept if level != NO_VALUE)
    if classes:
        classes = tuple(level for level, count in zip(classes, sums.classes, strict=True) if count)
        used = tuple(int(count) for count in sums.classes if count)
        if len(classes) < 2:
            raise ArgumentError("formula:", f"all rows that are used are of the class {classes[0]!r}")
    return dataclasses.replace(agreed, levels=levels), classes, used


def _means(design: Design, sums: SumsTotal) -> Array:
    """Return the means of the columns that are filled in, over all sites."""
    if (sums.known == 0).any():
        name = design.filled[int((sums.known == 0).argmax())]
        raise ArgumentError("formula:", f"the column {name!r} has no value at any site")
    return sums.sums / sums.known


def _standards(tree: Any) -> list[Standard]:
    """Return what is centred or scaled, each once."""
    found: dict[Standard, None] = {}

    def note(node: Any) -> Any:
        if isinstance(node, Standard):
            found[node] = None
        return node

    rebuild(tree if isinstance(tree, tuple) else tree.terms, note)
    if any(_standards((node.inner,)) for node in found):
        raise ArgumentError("formula:", "center(…) and scale(…) must not be inside of each other")
    return list(found)


def _resolve(formula: Formula, known: dict[Standard, tuple[float, float]], count: float) -> Formula:
    """Put the mean and the deviation of all rows in their place; the deviation with n − 1, as in R."""

    def change(node: Any) -> Any:
        if not isinstance(node, Standard):
            return node
        mean, variance = known[node]
        centred = Arithmetic("-", node.inner, Number(float(mean)))
        if node.standard == "center":
            return centred
        deviation = float(np.sqrt(variance * count / max(count - 1, 1)))
        if deviation == 0.0:
            raise ArgumentError("formula:", "scale(…) needs values that differ, but all are the same")
        return Arithmetic("/", centred, Number(deviation))

    changed: Formula = rebuild(formula, change)
    return changed


def _place_knots(asking: Asking, formula: Formula, agreed: Agreed) -> Formula:
    """Return a formula in which splines have knots at quantiles over all rows of the sites, rounded to edges of cells.

    Inner knots are at equal shares of rows, as R's. Bounds are at 5 % and 95 % for natural splines, which are lines
    outside, and where no row is outside for others.
    """
    splines = [factor for term in formula.terms for factor in term if isinstance(factor, Knotless)]
    if not splines:
        return formula
    names = tuple(dict.fromkeys(one.of.column for one in splines))
    # A site tells of a column at one set of edges: that of all rows, also where there is a condition of rows.
    known, new = asking.cohort.edges, tuple(name for name in names if name not in asking.cohort.edges)
    if new:
        told = asking.cohort.whole.ask(DescriptionQuestion(new))
        asking.up, asking.down = asking.up + told.up, asking.down + told.down
        withheld = [name for name, sites in zip(new, told.sums.withheld, strict=True) if sites]
        if withheld:
            raise ArgumentError(
                "formula:", f"the policy of a site withholds {', '.join(withheld)}, so quantiles are not available"
            )
        known |= dict(zip(new, find_edges(told.sums, [agreed.kinds[name] == "integer" for name in new]), strict=True))
    edges = [known[name] for name in names]
    counts: Histograms = asking.ask(HistogramQuestion(names, edges, fewest=CELL))
    placed = {}
    for one in splines:
        k = names.index(one.of.column)
        least, most, total = counts.least[k][0], counts.most[k][0], int(counts.totals[k, 0])
        inner = one.df - one.degree if one.knotless == "bs" else one.df - 1
        shares = [(i + 1) / (inner + 1) for i in range(inner)]
        middle = (least + most) / 2.0

        def at(share: float, k: int = k, middle: Array = middle, total: int = total) -> float:
            # As R's quantiles of type 1, rounded up to an edge.
            return float(edges[k][min(int((middle < share * total).sum()), len(edges[k]) - 1)])

        if one.knotless == "ns":
            ends = (at(OUTER), at(1.0 - OUTER))
        else:
            below, above = np.flatnonzero(most == 0), np.flatnonzero(least == total)
            if not below.size or not above.size:
                raise ArgumentError(
                    "formula:", f"{one.name} needs bounds, but some values are more than {COVERED} deviations from the "
                    "mean: give knots and bounds, or use ns, or the logarithm",
                )  # fmt: skip
            ends = (float(edges[k][below[-1]]), float(edges[k][above[0]]))
        knots = tuple(map(at, shares))
        if any(b <= a for a, b in itertools.pairwise((ends[0], *knots, ends[1]))):
            raise ArgumentError(
                "formula:", f"{one.name} has knots at {', '.join(f'{x:g}' for x in (ends[0], *knots, ends[1]))}, which "
                "must all differ: use a smaller df",
            )  # fmt: skip
        placed[one] = Spline(one.name, one.knotless, one.of, knots, *ends, one.degree)
    changed: Formula = rebuild(formula, lambda node: placed.get(node, node) if isinstance(node, Knotless) else node)
    return changed


def _find_centres(asking: Asking, formula: Formula, design: Design, means: Array) -> Formula:
    """Return a formula whose orthogonal polynomials have their centres, ratios and scales over all rows that are used.

    From the moments of (x − mean)/deviation up to twice the degree: pₖ are the rows of the inverse of the Cholesky
    factor of their Hankel matrix.
    """
    found = list(dict.fromkeys(factor for term in formula.terms for factor in term if isinstance(factor, Poly)))
    if not found:
        return formula

    # Rows are used where no column lacks a value that is needed; strata stand for all of these.
    handled = {*design.filled, *(one.coded for one in design.coded if NO_VALUE in one.levels)}
    needed = tuple(name for name in design.columns if name not in handled)

    def ask(factors: Sequence[Any], *, diagonal: bool) -> Moments:
        terms = tuple(Term((factor,), 0) for factor in factors)
        some = dataclasses.replace(design, terms=terms, titles=("",), strata=needed)
        moments: Moments = asking.ask(MomentsQuestion(some, means, diagonal))
        return moments

    first = ask([Numeric(one.name, one.poly) for one in found], diagonal=True)
    deviations = np.sqrt(first.variance[: len(found)])
    if not (deviations > 0).all():
        raise ArgumentError("formula:", f"{found[int(deviations.argmin())].name} needs values that differ")
    powers = [
        dataclasses.replace(
            one, centres=(float(mean),) * one.degree, ratios=(0.0,) * one.degree,
            scales=tuple(float(deviation) ** k for k in range(1, one.degree + 1)),
        )
        for one, mean, deviation in zip(found, first.mean, deviations, strict=False)
    ]  # fmt: skip
    second = ask(powers, diagonal=False)
    resolved, start = {}, 0
    for one, mean, deviation in zip(found, first.mean, deviations, strict=False):
        part = slice(start, start + one.degree)
        start += one.degree
        products = second.scatter[part, part] / second.count + np.outer(second.mean[part], second.mean[part])
        known = [1.0, *second.mean[part], *products[-1]]  # E z^k up to twice the degree
        resolved[one] = _orthogonalise(one, np.array(known), float(mean), float(deviation), second.count)
    changed: Formula = rebuild(formula, lambda node: resolved.get(node, node) if isinstance(node, Poly) else node)
    return changed


def _orthogonalise(factor: Poly, moments: Array, mean: float, deviation: float, count: float) -> Poly:
    """Return orthogonal polynomials from the moments of a standardised column."""
    degree = factor.degree
    hankel = np.array([[moments[i + j] for j in range(degree + 1)] for i in range(degree + 1)])
    try:
        lower = np.linalg.cholesky(hankel)
    except np.linalg.LinAlgError:
        lower = np.zeros_like(hankel)
    norms = np.diag(lower) ** 2
    if not (norms > LEAST_NORM).all():
        raise ArgumentError("formula:", f"{factor.name} needs more than {degree} different values")
    monic = np.linalg.inv(lower) * np.diag(lower)[:, None]
    inner = np.array([[moments[i + j + 1] for j in range(degree)] for i in range(degree)])
    centres = [float(row @ inner @ row) / norm for row, norm in zip(monic[:degree, :degree], norms, strict=False)]
    ratios = [0.0, *(norms[1:degree] / norms[: degree - 1])]
    return dataclasses.replace(
        factor,
        centres=tuple(mean + deviation * centre for centre in centres),
        ratios=tuple(float(deviation**2 * ratio) for ratio in ratios),
        scales=tuple(float(deviation**k * np.sqrt(count * norms[k])) for k in range(1, degree + 1)),
    )
