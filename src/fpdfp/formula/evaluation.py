"""Values of expressions, with NumPy alone."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError
from fpdfp.formula.tree import (
    Arithmetic,
    Call,
    Coded,
    Column,
    Comparison,
    Expression,
    Level,
    Logic,
    Missing,
    Number,
    Numeric,
    Poly,
    Spline,
    Text,
)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "log": np.log, "log1p": np.log1p, "log2": np.log2, "log10": np.log10, "exp": np.exp, "expm1": np.expm1,
    "sqrt": np.sqrt, "abs": np.abs, "negative": np.negative, "not": lambda x: (x == 0).astype(np.float64),
}  # fmt: skip
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "**": np.power
}  # fmt: skip
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip
#: The level that stands for no value.
NO_VALUE = "missing"


class Values(NamedTuple):
    """The values of a column in some rows.

    Attributes
    ----------
    numbers
        Numbers; for a column of texts, numbers of levels.
    missing
        Where a value is missing.
    levels
        The levels of a column of texts, None for numbers.
    """

    numbers: Array
    missing: Array
    levels: tuple[Level, ...] | None


class Rows(Protocol):
    """Rows of a table."""

    def __len__(self) -> int: ...

    def values(self, column: str) -> Values:
        """Return the values of a column."""


def evaluate(node: Expression, rows: Rows, means: Mapping[str, float]) -> Array:
    """Return the values of an expression, NaN where a column has none and ``means`` gives no substitute."""
    with np.errstate(all="ignore"):
        return np.broadcast_to(np.asarray(_evaluate(node, rows, means), dtype=np.float64), (len(rows),))


def _evaluate(node: Expression, rows: Rows, means: Mapping[str, float]) -> Any:
    def value(inner: Expression) -> Any:
        return _evaluate(inner, rows, means)

    if isinstance(node, Column):
        found = rows.values(node.column)
        if found.levels is not None:
            raise ArgumentError(
                "formula:", f"the column {node.column!r} holds texts, so it can be a term or compared with a text only"
            )
        return np.where(found.missing, means.get(node.column, np.nan), found.numbers)
    if isinstance(node, Missing):
        return rows.values(node.missing).missing.astype(np.float64)
    if isinstance(node, Number):
        return np.float64(node.number)
    if isinstance(node, Call):
        return FUNCTIONS[node.function](value(node.of))
    if isinstance(node, Arithmetic):
        return OPERATORS[node.operator](value(node.left), value(node.right))
    if isinstance(node, Comparison):
        text = next((side.text for side in (node.left, node.right) if isinstance(side, Text)), None)
        if text is not None:
            return _is_text(node, text, rows)
        left, right = value(node.left), value(node.right)
        known = ~(np.isnan(left) | np.isnan(right))
        return np.where(known, COMPARISONS[node.comparison](left, right), np.nan)
    if isinstance(node, Logic):
        left, right = value(node.left) != 0, value(node.right) != 0
        return (left & right if node.logic == "and" else left | right).astype(np.float64)
    raise ArgumentError("formula:", f"a {type(node).__name__} cannot be evaluated here")


def _is_text(node: Comparison, text: str, rows: Rows) -> Array:
    """Return where a column has a text, or has another."""
    column = next(side.column for side in (node.left, node.right) if isinstance(side, Column))
    found = rows.values(column)
    if found.levels is None:
        raise ArgumentError("formula:", f"the column {column!r} holds numbers: it cannot be compared with {text!r}")
    same = found.numbers == (found.levels.index(text) if text in found.levels else -1)
    return np.where(found.missing, np.nan, same if node.comparison == "==" else ~same)


def codes(column: str, levels: tuple[Level, ...], rows: Rows) -> IntArray:
    """Return the number of each row's level, −1 where it has none."""
    found = rows.values(column)
    own = np.unique(found.numbers[~found.missing])
    labels = [level_of(number, found.levels, levels) for number in own.tolist()]
    place = {_key(level): number for number, level in enumerate(levels)}
    for label in labels:
        if _key(label) not in place:
            raise ArgumentError(
                f"the column {column!r}",
                f"has the level {label!r}, which the model does not know; known are {', '.join(map(repr, levels))}",
            )
    numbers = np.full(len(rows), -1, dtype=np.int64)
    table = np.array([place[_key(label)] for label in labels], dtype=np.int64)
    if len(table):
        numbers[~found.missing] = table[np.searchsorted(own, found.numbers[~found.missing])]
    if NO_VALUE in levels:
        numbers[found.missing] = levels.index(NO_VALUE)
    return numbers


def _key(level: Level) -> Level | float:
    """Return what levels are compared by: True is 1, and a text is never a number."""
    return level if isinstance(level, str) else float(level)


def level_of(number: float, own: tuple[Level, ...] | None, levels: tuple[Level, ...] = ()) -> Level:
    """Return the level that a number of a column stands for."""
    if own is not None:
        return own[int(number)]
    if number in (0.0, 1.0) and levels and all(isinstance(level, bool) for level in levels if level != NO_VALUE):
        return bool(number)
    if number != int(number):
        raise ArgumentError("formula:", f"{number:g} cannot be a level: C(…) takes integers and texts")
    return int(number)


def expand(factor: Numeric | Spline | Poly | Coded, rows: Rows, means: Mapping[str, float]) -> Array:
    """Return the columns of a factor."""
    if isinstance(factor, Numeric):
        return evaluate(factor.value, rows, means)[:, None]
    if isinstance(factor, Spline):
        return _basis(factor, evaluate(factor.of, rows, means))
    if isinstance(factor, Poly):
        return _polynomials(factor, evaluate(factor.poly, rows, means))
    found = codes(factor.coded, factor.levels, rows)
    indicators: Array = found[:, None] == np.array(factor.shown)[None]
    return indicators.astype(np.float64)


def _polynomials(factor: Poly, x: Array) -> Array:
    """Return orthogonal polynomials at x, as R's ``poly``; powers of x while their centres are not known."""
    if not factor.centres:
        powers: Array = np.stack([x**k for k in range(1, factor.degree + 1)], axis=1)
        return powers
    before, last, found = np.zeros_like(x), np.ones_like(x), []
    for centre, ratio in zip(factor.centres, factor.ratios, strict=True):
        before, last = last, (x - centre) * last - ratio * before
        found.append(last)
    values: Array = np.stack(found, axis=1) / np.array(factor.scales)
    return values


def _basis(spline: Spline, x: Array) -> Array:
    """Return the functions of a basis at x, without the constant.

    B-splines without the first one, as in R's ``bs`` and patsy's; NaN outside of the bounds. Natural ones are those
    combinations of cubic B-splines whose second derivative is zero at both bounds, as R's ``ns``; outside they are
    lines.
    """
    from scipy.interpolate import BSpline

    if spline.spline == "ns":
        nearest = np.clip(x, spline.lower, spline.upper)
        values, slopes = (_natural(spline, nearest, order) for order in (0, 1))
        natural: Array = values + np.nan_to_num(x - nearest)[:, None] * slopes
        return natural
    degree = spline.degree
    knots = np.concatenate([[spline.lower] * (degree + 1), spline.knots, [spline.upper] * (degree + 1)])
    inside = (x >= spline.lower) & (x <= spline.upper)
    values = np.full((len(x), len(knots) - degree - 1), np.nan)
    if inside.any():
        values[inside] = BSpline.design_matrix(x[inside], knots, degree).toarray()
    return values[:, 1:]


def _natural(spline: Spline, x: Array, order: int) -> Array:
    """Return natural cubic splines within their bounds, or their derivatives."""
    from scipy.interpolate import BSpline

    knots = np.concatenate([[spline.lower] * 4, spline.knots, [spline.upper] * 4])
    unit = np.eye(len(knots) - 4)[1:]
    bends = np.stack([BSpline(knots, one, 3).derivative(2)(np.array([spline.lower, spline.upper])) for one in unit])
    complete = np.linalg.qr(bends, mode="complete")[0]
    known = np.where(np.isfinite(x), x, spline.lower)
    values = np.stack([BSpline(knots, one, 3)(known, nu=order) for one in unit], axis=1)
    natural: Array = np.where(np.isfinite(x)[:, None], values @ complete[:, 2:], np.nan)
    return natural
