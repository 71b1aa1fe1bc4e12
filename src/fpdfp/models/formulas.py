"""From a formula and sites to a design: types, levels, means and rows, by sums over sites in their order."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.cohorts.question import Question
from fpdfp.datasets import Moments
from fpdfp.errors import ArgumentError
from fpdfp.federation.cohort import TableCohort
from fpdfp.federation.columns import Agreed, Levels, Schemas
from fpdfp.federation.questions import MomentsQuestion, SchemaQuestion, SumsQuestion, SumsTotal
from fpdfp.formula.coding import Design, Imputation, Term, code
from fpdfp.formula.evaluation import NO_VALUE
from fpdfp.formula.parsing import clocks_of, parse, parse_weights
from fpdfp.formula.tree import Arithmetic, Column, Formula, Level, Number, Numeric, Standard, Survival, rebuild

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
    weights: str | None = None, survival: bool = False,
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
    if weights is not None:
        formula = dataclasses.replace(formula, weights=parse_weights(weights))
    agreed = _agree(asking, formula, levels, classify)
    classes = _classes(formula, agreed, classify=classify)
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
    weight, used = sums.weight, sums.used
    if not weight > 0:
        raise ArgumentError(
            "weights", f"must be at least 0 in all rows, and positive in some, but add up to {weight:g}"
        )
    scale = 1.0 if weights is None else sum(used) / weight
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
    """Compare what sites say of the columns; where one is missing, all names are needed to name which is near."""
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
                    f"the response is no event time in {invalid[0]} of {used} rows at {name}: times must "
                    "be numbers, events 0 or 1, and rows must enter before they leave",
                )
            if int(place) not in skipped:
                raise ArgumentError(
                    "formula:",
                    f"{titles[place]} is not finite in {invalid[place]} of {used} rows at {name}, as the "
                    "logarithm of 0 is none",
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


def _resolve(formula: Formula, known: dict[Standard, tuple[float, float]], count: int) -> Formula:
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
