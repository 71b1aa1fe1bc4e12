"""Formulas as trees of declared nodes, which sites evaluate; no text is ever executed.

A node is recognised by the names of its fields, which no two kinds share, so that a tree of dictionaries names which is
meant.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, Literal

from fpdfp.errors import ArgumentError

#: The functions of one number that formulas know, besides those of :mod:`fpdfp.formula.parsing`.
Function = Literal["log", "log1p", "log2", "log10", "exp", "expm1", "sqrt", "abs", "negative", "not"]
#: The largest degree of orthogonal polynomials.
MOST_DEGREE = 3
#: A level of a categorical column.
Level = bool | int | str


@dataclasses.dataclass(frozen=True)
class Column:
    """The values of a column."""

    column: str


@dataclasses.dataclass(frozen=True)
class Number:
    """A number."""

    number: float


@dataclasses.dataclass(frozen=True)
class Text:
    """A text, to compare with."""

    text: str


@dataclasses.dataclass(frozen=True)
class Call:
    """A function of numbers."""

    function: Function
    of: Expression


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """Two numbers, added, subtracted, multiplied, divided, or one to the power of the other."""

    operator: Literal["+", "-", "*", "/", "**"]
    left: Expression
    right: Expression


@dataclasses.dataclass(frozen=True)
class Comparison:
    """1 where a comparison holds, else 0."""

    comparison: Literal["==", "!=", "<", "<=", ">", ">="]
    left: Expression
    right: Expression


@dataclasses.dataclass(frozen=True)
class Logic:
    """1 where both hold, or where one does, else 0."""

    logic: Literal["and", "or"]
    left: Expression
    right: Expression


@dataclasses.dataclass(frozen=True)
class Standard:
    """A number less its mean, and divided by its deviation with ``"scale"``; both over all sites, so known later."""

    standard: Literal["center", "scale"]
    inner: Expression


@dataclasses.dataclass(frozen=True)
class Missing:
    """1 where a column has no value, else 0."""

    missing: str


@dataclasses.dataclass(frozen=True)
class Survival:
    """When a row leaves, whether that is an event, and when it enters; None if it was there from the start."""

    leaves: Expression
    event: Expression
    enters: Expression | None = None


Expression = Column | Number | Text | Call | Arithmetic | Comparison | Logic | Standard | Missing


@dataclasses.dataclass(frozen=True)
class Numeric:
    """A factor of a term with one number for each row."""

    name: str
    value: Expression


@dataclasses.dataclass(frozen=True)
class Categorical:
    """A factor with levels, by default all levels of the column at all sites."""

    name: str
    column: str
    levels: tuple[Level, ...] | None = None
    ref: Level | None = None


@dataclasses.dataclass(frozen=True)
class Spline:
    """A basis of splines: B-splines of a degree (``"bs"``), or natural cubic ones (``"ns"``), without the constant."""

    name: str
    spline: Literal["bs", "ns"]
    of: Expression
    knots: tuple[float, ...]
    lower: float
    upper: float
    degree: int = 3

    def __post_init__(self) -> None:
        ends = (self.lower, *self.knots, self.upper)
        if not 1 <= self.degree <= 5 or any(not a < b for a, b in itertools.pairwise(ends)):
            raise ArgumentError("formula:", "a spline has a degree from 1 to 5, and bounds and knots that increase")

    @property
    def size(self) -> int:
        """The number of functions in the basis."""
        return len(self.knots) + (self.degree if self.spline == "bs" else 1)


@dataclasses.dataclass(frozen=True)
class Knotless:
    """A basis of splines whose knots are quantiles over all sites, so known later."""

    name: str
    knotless: Literal["bs", "ns"]
    of: Column
    df: int
    degree: int = 3


@dataclasses.dataclass(frozen=True)
class Poly:
    """Orthogonal polynomials, from the first degree on: p₀ = 1, p₁ = x − c₀, pₖ₊₁ = (x − cₖ) pₖ − rₖ pₖ₋₁, over scales.

    Centres, ratios and scales come from moments over all sites, so they are empty at first.
    """

    name: str
    poly: Column
    degree: int
    centres: tuple[float, ...] = ()
    ratios: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.degree <= MOST_DEGREE or any(one <= 0 for one in self.scales):
            raise ArgumentError("formula:", f"a polynomial has a degree from 1 to {MOST_DEGREE}, and positive scales")
        if any(len(one) not in (0, self.degree) for one in (self.centres, self.ratios, self.scales)):
            raise ArgumentError("formula:", f"a polynomial has {self.degree} centres, ratios and scales")


@dataclasses.dataclass(frozen=True)
class Coded:
    """A categorical factor as it is coded: an indicator of each level, but for the reference where there is one."""

    name: str
    coded: str
    levels: tuple[Level, ...]
    reference: int | None = None

    @property
    def shown(self) -> list[int]:
        """The numbers of the levels that have an indicator."""
        return [i for i in range(len(self.levels)) if i != self.reference]


@dataclasses.dataclass(frozen=True)
class Cut:
    """A column made of a number: the intervals between edges, closed at the right or at the left."""

    cut: Expression
    edges: tuple[float, ...]
    labels: tuple[str, ...]
    right: bool = True


@dataclasses.dataclass(frozen=True)
class Recode:
    """A column with other values in place of some; None for no value."""

    recode: Column
    old: tuple[Level | float, ...]
    new: tuple[Level | float | None, ...]


@dataclasses.dataclass(frozen=True)
class Elapsed:
    """The time between two dates, in days, or in months or years of the same length."""

    elapsed: Literal["days", "months", "years"]
    start: Column
    end: Column


@dataclasses.dataclass(frozen=True)
class Converted:
    """A column in another unit: its values times the factor of the unit that a site declares."""

    converted: Column
    unit: str
    units: tuple[str, ...]
    factors: tuple[float, ...]


#: What defines a column of its own. Sites evaluate it; in formulas it is a column, whose name is the definition.
Definition = Cut | Recode | Elapsed | Converted
Factor = Numeric | Categorical | Spline | Knotless | Poly


@dataclasses.dataclass(frozen=True)
class Formula:
    """A formula that was parsed: the response, and terms that are products of factors.

    Attributes
    ----------
    text
        As it was written.
    response
        What is predicted.
    terms
        The factors of each term, without the intercept.
    intercept
        Whether there is one.
    offset, weights
        What is added to the linear predictor, and the weight of each row; None if absent.
    strata
        The columns whose levels are strata.
    cluster
        The column that names which rows belong together, of the same subject for instance; None if all are apart.
    trials
        Whether the response is a share of successes, and weights are numbers of trials.
    """

    text: str
    response: Expression | Survival
    terms: tuple[tuple[Factor, ...], ...]
    intercept: bool
    offset: Expression | None = None
    weights: Any = None
    strata: tuple[str, ...] = ()
    cluster: Column | None = None
    trials: bool = False

    @property
    def columns(self) -> list[str]:
        """The columns that are used, the response's first."""
        used = columns_of([self.response, self.terms, self.offset, self.weights])
        return list(dict.fromkeys([*used, *self.strata, *columns_of(self.cluster)]))


def columns_of(node: Any) -> Iterator[str]:
    """Yield the names of the columns in a node, or in many."""
    if isinstance(node, list | tuple):
        for one in node:
            yield from columns_of(one)
    elif isinstance(node, Column | Categorical):
        yield node.column
    elif isinstance(node, Coded):
        yield node.coded
    elif isinstance(node, Missing):
        yield node.missing
    elif dataclasses.is_dataclass(node):
        for field in dataclasses.fields(node):
            yield from columns_of(getattr(node, field.name))


def rebuild(node: Any, change: Any) -> Any:
    """Return a tree in which ``change`` has replaced nodes, the inner ones first."""
    if isinstance(node, tuple):
        return tuple(rebuild(one, change) for one in node)
    if not dataclasses.is_dataclass(node) or isinstance(node, type):
        return node
    parts = {field.name: rebuild(getattr(node, field.name), change) for field in dataclasses.fields(node)}
    return change(dataclasses.replace(node, **parts))
