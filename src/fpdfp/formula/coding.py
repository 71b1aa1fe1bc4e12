"""From a formula to the columns of a model, once types and levels at all sites are known."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.formula.evaluation import NO_VALUE, Rows, expand
from fpdfp.formula.tree import (
    Categorical,
    Coded,
    Column,
    Expression,
    Factor,
    Formula,
    Knotless,
    Level,
    Missing,
    Numeric,
    Poly,
    Spline,
    Survival,
    columns_of,
)

#: What is done where a value is missing: the row is excluded; the mean over all sites is put there; the same, with a
#: column that says where (and a level of its own for categorical columns).
Imputation = Literal["drop", "mean", "indicator"]
#: The most columns of a model.
MOST_COLUMNS = 100_000


@dataclasses.dataclass(frozen=True)
class Term:
    """A product of factors: a column for every combination, the first factor running fastest.

    ``term`` is the number of the term of the formula that it belongs to.
    """

    factors: tuple[Numeric | Spline | Poly | Coded, ...]
    term: int

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        parts = [_names(factor) for factor in self.factors]
        return [":".join(reversed(names)) for names in itertools.product(*reversed(parts))]


@dataclasses.dataclass(frozen=True)
class InverseWeights:
    """Weights of rows by a model of a treatment that was fitted before: 1/P(own treatment).

    With ``estimand="treated"`` they are 1 where there was the treatment, and its odds elsewhere.

    Attributes
    ----------
    treatment
        The model, without a weight of its own.
    coefficients
        Those of its features, and then its intercept.
    link
        Of the binomial family.
    classes
        The classes of the treatment; none for numbers.
    """

    treatment: Design
    coefficients: tuple[float, ...]
    intercept: bool
    link: Literal["logit", "probit", "cloglog", "log"]
    classes: tuple[Level, ...] = ()
    estimand: Literal["all", "treated"] = "all"

    def __post_init__(self) -> None:
        plain = self.treatment.weights is None and self.treatment.missing == "drop"
        if not plain or len(self.coefficients) != self.treatment.width + self.intercept:
            raise ArgumentError("weights:", "a model of a treatment has all coefficients, no weights, missing='drop'")


@dataclasses.dataclass(frozen=True)
class Design:
    """The columns of a model, as sites evaluate them.

    Attributes
    ----------
    response
        What is predicted.
    terms
        The terms in order, without the intercept.
    titles
        The terms of the formula as they were written.
    filled
        The columns in which missing values are filled in.
    missing
        What is done with missing values.
    offset, weights
        What is added to the linear predictor, and the weight of each row; None if absent.
    strata
        The columns whose levels are strata.
    cluster
        The column that names which rows belong together; None if all are apart.
    """

    response: Expression | Survival
    terms: tuple[Term, ...]
    titles: tuple[str, ...]
    filled: tuple[str, ...] = ()
    missing: Imputation = "drop"
    offset: Expression | None = None
    weights: Expression | InverseWeights | None = None
    strata: tuple[str, ...] = ()
    cluster: Column | None = None

    def __post_init__(self) -> None:
        if self.width > MOST_COLUMNS:
            raise ArgumentError("formula", f"must have at most {MOST_COLUMNS:,} columns, got {self.width:,}")

    @property
    def width(self) -> int:
        """The number of features."""
        return sum(math.prod(_size(factor) for factor in term.factors) for term in self.terms)

    @property
    def has_more(self) -> bool:
        """Whether rows have weights, offsets or clusters."""
        return any(one is not None for one in (self.weights, self.offset, self.cluster))

    @property
    def columns(self) -> list[str]:
        """The columns of the table that are used, the response's first."""
        used = columns_of([self.response, self.terms, self.offset, self.weights])
        return list(dict.fromkeys([*used, *self.strata, *columns_of(self.cluster)]))

    @property
    def varies(self) -> bool:
        """Whether a term is an effect that changes with time: a product with a function of the response's time."""
        response = self.response
        if not isinstance(response, Survival) or not isinstance(response.leaves, Column):
            return False
        return response.leaves.column in columns_of(self.terms)

    @property
    def names(self) -> list[str]:
        """The names of the features."""
        return [name for term in self.terms for name in term.names]

    @property
    def term_of_each(self) -> list[str]:
        """The term of the formula that each feature belongs to."""
        return [self.titles[term.term] for term in self.terms for _ in term.names]

    @property
    def coded(self) -> list[Coded]:
        """The categorical factors, each column once."""
        found = [factor for term in self.terms for factor in term.factors if isinstance(factor, Coded)]
        return list({factor.coded: factor for factor in found}.values())

    def complete(self, rows: Rows, *, response: bool = True) -> Array:
        """Return where nothing is missing that is not filled in."""
        own = (
            {*columns_of([self.response, self.offset, self.weights, self.cluster]), *self.strata} if response else set()
        )
        levels = {factor.coded: factor.levels for factor in self.coded}
        good = np.ones(len(rows), dtype=bool)
        for name in self.columns if response else dict.fromkeys(columns_of(self.terms)):
            handled = name in self.filled or (self.missing == "indicator" and NO_VALUE in levels.get(name, ()))
            if name in own or not handled:
                good &= ~rows.values(name).missing
        return good

    def matrix(self, rows: Rows, means: Sequence[float] | Array) -> Array:
        """Return the features of rows; ``means`` belong to the columns in ``filled``."""
        known = dict(zip(self.filled, map(float, means), strict=True))
        blocks = []
        for term in self.terms:
            block = np.ones((len(rows), 1))
            for factor in term.factors:
                part = expand(factor, rows, known)
                block = (part[:, :, None] * block[:, None, :]).reshape(len(rows), part.shape[1] * block.shape[1])
            blocks.append(block)
        return np.concatenate([np.zeros((len(rows), 0)), *blocks], axis=1)


def code(
    formula: Formula,
    kinds: Mapping[str, str],
    levels: Mapping[str, Sequence[Level]],
    *,
    missing: Imputation = "drop",
    absent: Iterable[str] = (),
) -> Design:
    """Return the design of a formula: every categorical factor gets a reference level where it would be redundant.

    The rules follow patsy and formulaic: with an intercept, or after terms that span the same, a factor is coded
    without its first level (or ``ref``); else with all of them. Names are theirs too: ``stage[T.II]`` is the difference
    of II to the reference, and ``stage[II]`` the indicator of II.

    Parameters
    ----------
    formula
        A formula.
    kinds
        The type of each column: ``"number"``, ``"integer"``, ``"truth"`` or ``"category"``.
    levels
        The levels of categorical columns, and of those in ``C(…)``, in order.
    missing
        What is done with missing values.
    absent
        The columns that have missing values at some site.

    Examples
    --------
    >>> from fpdfp.formula import parse
    >>> design = code(parse("y ~ age * stage"), {"age": "number", "stage": "category"}, {"stage": ["I", "II"]})
    >>> design.names
    ['age', 'stage[T.II]', 'age:stage[T.II]']
    """
    gaps = set(absent)
    terms = [tuple(_typed(factor, kinds) for factor in term) for term in formula.terms]
    everyone = [factor for term in terms for factor in term]
    known: dict[str, tuple[Level, ...]] = {}
    for factor in everyone:
        if isinstance(factor, Categorical):
            extra = (NO_VALUE,) if missing == "indicator" and factor.column in gaps else ()
            known[factor.name] = (*_levels_of(factor, levels), *extra)
    numeric = [name for name in dict.fromkeys(columns_of(everyone)) if kinds.get(name) != "category"]
    numeric = [name for name in numeric if any(name in _numeric_columns(factor) for factor in everyone)]
    filled = tuple(numeric) if missing != "drop" else ()
    spanned: set[frozenset[tuple[str, bool]]] = {frozenset()} if formula.intercept else set()
    coded, titles = [], []
    for number, term in enumerate(terms):
        by_name = {factor.name: factor for factor in term}
        titles.append(":".join(by_name))
        for parts in _scoped(by_name, spanned):
            factors = tuple(_finish(by_name[name], reduced, known) for name, reduced in parts)
            coded.append(Term(factors, number))
    if missing == "indicator":
        for name in (name for name in numeric if name in gaps):
            titles.append(f"missing({name})")
            coded.append(Term((Numeric(f"missing({name})", Missing(name)),), len(titles) - 1))
    return Design(
        formula.response, tuple(coded), tuple(titles), filled, missing, formula.offset, formula.weights, formula.strata,
        formula.cluster,
    )  # fmt: skip


def _typed(factor: Factor, kinds: Mapping[str, str]) -> Factor:
    """Return a factor that is categorical where its column holds texts."""
    if isinstance(factor, Numeric) and isinstance(factor.value, Column):
        column = factor.value.column
        if kinds.get(column) == "category":
            return Categorical(factor.name, column)
    return factor


def _numeric_columns(factor: Factor) -> set[str]:
    return set() if isinstance(factor, Categorical) else set(columns_of(factor))


def _levels_of(factor: Categorical, levels: Mapping[str, Sequence[Level]]) -> tuple[Level, ...]:
    """Return the levels of a factor, in order; the reference must be one of them."""
    found = factor.levels if factor.levels is not None else tuple(levels[factor.column])
    if len(found) < 2:
        shown = f"only the level {found[0]!r}" if found else "no level"
        raise ArgumentError("formula:", f"the column {factor.column!r} has {shown} at all sites; leave it out")
    if factor.ref is not None and factor.ref not in found:
        raise ArgumentError(
            "formula:", f"ref={factor.ref!r} of {factor.name} is not a level; these are {', '.join(map(repr, found))}"
        )
    return tuple(found)


def _scoped(
    factors: Mapping[str, Factor], spanned: set[frozenset[tuple[str, bool]]]
) -> list[tuple[tuple[str, bool], ...]]:
    """Return how the factors of a term are coded, (name, whether without its reference), besides what is spanned.

    A categorical factor spans the constant and its differences to a reference. What earlier terms span is excluded, and
    the rest put together again: (anything):(differences) + (anything) is (anything):(all levels).
    """
    choices = [
        [((name, True),), ()] if isinstance(factor, Categorical) else [((name, False),)]
        for name, factor in factors.items()
    ]
    products = [tuple(itertools.chain(*parts)) for parts in itertools.product(*choices)]
    new = [parts for parts in products if frozenset(parts) not in spanned]
    spanned.update(map(frozenset, new))
    return _join(new)


def _join(parts: Iterable[tuple[tuple[str, bool], ...]]) -> list[tuple[tuple[str, bool], ...]]:
    joined: list[tuple[tuple[str, bool], ...]] = []
    for one in sorted(parts, key=len):
        for other in joined:
            apart = set(one) - set(other)
            if len(one) - 1 != len(other) or len(apart) != 1:
                continue
            (name, reduced) = next(iter(apart))
            if reduced:
                whole = tuple((part, False) if part == name else (part, without) for part, without in one)
                joined = _join([*(kept for kept in joined if kept is not other), whole])
                break
        else:
            joined.append(one)
    return joined


def _finish(factor: Factor, reduced: bool, known: Mapping[str, tuple[Level, ...]]) -> Numeric | Spline | Poly | Coded:
    if isinstance(factor, Knotless):
        raise ArgumentError("formula:", f"{factor.name} has no knots yet")
    if not isinstance(factor, Categorical):
        return factor
    levels = known[factor.name]
    reference = levels.index(factor.ref) if factor.ref is not None else 0
    return Coded(factor.name, factor.column, levels, reference if reduced else None)


def _size(factor: Numeric | Spline | Poly | Coded) -> int:
    """Return how many columns a factor has."""
    if isinstance(factor, Numeric):
        return 1
    if isinstance(factor, Poly):
        return factor.degree
    return factor.size if isinstance(factor, Spline) else len(factor.shown)


def _names(factor: Numeric | Spline | Poly | Coded) -> list[str]:
    """Return the names of a factor's columns."""
    if isinstance(factor, Numeric):
        return [factor.name]
    if isinstance(factor, Spline | Poly):
        return [f"{factor.name}[{i + 1}]" for i in range(_size(factor))]
    mark = "" if factor.reference is None else "T."
    return [f"{factor.name}[{mark}{factor.levels[i]}]" for i in factor.shown]
