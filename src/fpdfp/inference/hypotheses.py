"""Tests of several coefficients at once, and between nested models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.inference.summary import Summary
from fpdfp.inference.table import Table, format_number, format_p

#: A larger model may fit worse than a smaller one by this part of the deviance, from ending a run early.
WORSE = 1e-6


@dataclass(frozen=True)
class HypothesisTest:
    """A test: ``print`` shows it.

    Attributes
    ----------
    name
        What was tested.
    statistic
        χ², or F if there are degrees of freedom of the residuals.
    df, df_residual
        Degrees of freedom; ``df_residual`` is None for χ².
    p
        The p value.
    """

    name: str
    statistic: float
    df: int
    df_residual: float | None
    p: float

    def __str__(self) -> str:
        p = f"p {'' if self.p < 0.001 else '= '}{format_p(self.p)}"
        shown = format_number(0.0 if self.statistic < 5e-4 else self.statistic)
        if self.df_residual is None:
            return f"{self.name}: χ² = {shown} on {self.df} degrees of freedom, {p}"
        degrees = f"{self.df} and {self.df_residual:g} degrees of freedom"
        return f"{self.name}: F = {shown} on {degrees}, {p}"

    __repr__ = __str__


def judge(name: str, chi_squared: float, df: int, df_residual: float | None) -> HypothesisTest:
    """Return the test of a statistic that is χ² for many rows; F of it by its degrees if there are few."""
    from scipy import stats

    if df_residual is None:
        return HypothesisTest(name, chi_squared, df, None, float(stats.chi2.sf(chi_squared, df)))
    ratio = chi_squared / df
    return HypothesisTest(name, ratio, df, df_residual, float(stats.f.sf(ratio, df, df_residual)))


def wald_test(table: Table, hypothesis: Any, values: Any = 0.0) -> HypothesisTest:
    """Test that some coefficients, or combinations of them, have given values, all at once.

    Parameters
    ----------
    table
        Of a fit: ``model.summary().table``. Its covariance decides whether the test is robust.
    hypothesis
        A name, names, or a matrix L with a row for each combination Lx.
    values
        What they are under the hypothesis.

    Returns
    -------
    HypothesisTest
        χ², or F where the table has degrees of freedom.

    Examples
    --------
    >>> table = Table(["Intercept", "stage[II]", "stage[III]"], np.array([-1.0, 0.2, 0.5]), np.diag([0.04, 0.01, 0.01]))
    >>> wald_test(table, ["stage[II]", "stage[III]"])
    stage[II] = stage[III] = 0: χ² = 29.00 on 2 degrees of freedom, p < 0.001
    >>> wald_test(table, [[0, -1, 1]])
    Lx = 0: χ² = 4.500 on 1 degrees of freedom, p = 0.034
    """
    if not isinstance(table, Table):
        raise ArgumentTypeError("table", f"must be a Table, as model.summary().table, got {_checks.kind(table)}")
    matrix, name = _combinations(table, hypothesis)
    count = len(matrix)
    wanted = np.broadcast_to(_checks.float_array("values", values, dtype=np.float64), (count,))
    if table.rank is not None and count > table.rank:
        raise ArgumentError(
            "hypothesis",
            f"has {count} parts, but errors clustered by {table.rank + 1} sites can test at most {table.rank} together",
        )
    shown = f"{wanted[0]:g}" if (wanted == wanted[0]).all() else f"({', '.join(f'{one:g}' for one in wanted)})"
    inner = matrix @ table.covariance @ matrix.T
    if np.linalg.matrix_rank(inner, hermitian=True) < count:
        raise ArgumentError("hypothesis", "must have linearly independent parts")
    difference = matrix @ table.coefficients - wanted
    return judge(f"{name} = {shown}", float(difference @ np.linalg.solve(inner, difference)), count, table.df)


def _combinations(table: Table, hypothesis: Any) -> tuple[Array, str]:
    """Return the matrix of a hypothesis and its left side in words."""
    names = list(table.names)
    if isinstance(hypothesis, str):
        hypothesis = [hypothesis]
    if isinstance(hypothesis, Sequence) and hypothesis and all(isinstance(one, str) for one in hypothesis):
        unknown = [one for one in hypothesis if one not in names]
        if unknown:
            raise ArgumentError(
                "hypothesis", f"must have names of coefficients ({', '.join(names)}), got {unknown[0]!r}"
            )
        return np.eye(len(names))[[names.index(one) for one in hypothesis]], " = ".join(hypothesis)
    matrix = np.atleast_2d(_checks.float_array("hypothesis", hypothesis, dtype=np.float64))
    if matrix.ndim != 2 or matrix.shape[1] != len(names) or not len(matrix):
        raise ArgumentError(
            "hypothesis", f"must be names, or a matrix with {len(names)} columns, got an array of shape {matrix.shape}"
        )
    return matrix, "Lx"


def likelihood_ratio_test(small: Summary, large: Summary) -> HypothesisTest:
    """Compare two models of the same rows, of which one is a special case of the other.

    Without a dispersion the difference of the deviances (twice the difference of the log-likelihoods) is compared with
    χ². With one it is divided by the dispersion of the larger model and compared with F, as ``anova(…, test="F")`` of R
    does.

    Parameters
    ----------
    small, large
        What ``summary()`` of the two models returned, both fitted without a penalty. That the smaller is a special case
        of the larger cannot be seen from them, and is not checked.

    Returns
    -------
    HypothesisTest
    """
    for argument, one in (("small", small), ("large", large)):
        if not isinstance(one, Summary):
            raise ArgumentTypeError(argument, f"must be what summary() of a model returns, got {_checks.kind(one)}")
        if one.penalty != "none":
            raise ArgumentError(
                argument, f"must be fitted without a penalty, for which the distribution is known; it has {one.penalty}"
            )
    if small.family != large.family or small.has_dispersion != large.has_dispersion:
        raise ArgumentError("large", f"must be of the family of the smaller ({small.family}), got {large.family}")
    if (small.sites, small.rows) != (large.sites, large.rows):
        raise ArgumentError(
            "large",
            f"must be a model of the same rows, but {sum(small.rows):,} and {sum(large.rows):,} were used; exclude "
            "rows with missing values from both",
        )
    df = large.parameters - small.parameters
    if df < 1:
        raise ArgumentError(
            "large", f"must have more coefficients than small, got {large.parameters}, {small.parameters}"
        )
    if large.has_dispersion:
        difference = small.deviance - large.deviance
    elif _known(small.log_likelihood) and _known(large.log_likelihood):
        difference = 2.0 * (float(large.log_likelihood or 0.0) - float(small.log_likelihood or 0.0))
    elif small.log_likelihood is not None and large.log_likelihood is not None:
        raise ArgumentError("large", f"must have a likelihood, and the family {large.family} has none: use a Wald test")
    else:
        difference = small.deviance - large.deviance
    if difference < -WORSE * max(abs(large.deviance), 1.0):
        raise ArgumentError("large", "fits worse than small, of which it should be a generalisation: is it?")
    name = f"{_title(large)} against {_title(small)}"
    if not large.has_dispersion:
        return judge(name, max(difference, 0.0), df, None)
    if large.dispersion is None or large.df_residual is None:
        raise ArgumentError("large", "has no estimate of the dispersion")
    return judge(name, max(difference, 0.0) / large.dispersion, df, float(large.df_residual))


def _known(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _title(summary: Summary) -> str:
    return f"{summary.parameters} parameters" if summary.formula is None else summary.formula


def variance_inflation(
    hessian: Array,
    names: Sequence[str],
    terms: Mapping[str, Sequence[str]] | None = None,
    *,
    intercept: str = "Intercept",
) -> dict[str, tuple[float, int, float]]:
    """Return how much each term's variance is inflated by the other terms.

    The generalised factor of Fox and Monette (1992), as ``vif`` of R's package car: for a term of one column the usual
    variance inflation factor.

    Parameters
    ----------
    hessian
        The summed Hessian at the fit, ``total.hessian``, or XᵀX of a linear model.
    names
        Of the coefficients.
    terms
        The names that belong to each term; by default every name is a term.
    intercept
        The name of the intercept, which is not a term.

    Returns
    -------
    dict
        For each term the factor, its number of columns q, and factor^(1/(2q)), which can be compared between terms.

    Examples
    --------
    >>> factor, columns, _ = variance_inflation(np.array([[1.0, 0.6], [0.6, 1.0]]), ["age", "weight"])["age"]
    >>> round(factor, 4), columns
    (1.5625, 1)
    """
    from fpdfp.inference.information import invert

    names = [str(name) for name in names]
    square = _checks.float_array("hessian", hessian, shape=(len(names), len(names)), dtype=np.float64)
    kept = [j for j, name in enumerate(names) if name != intercept]
    if not kept:
        raise ArgumentError("names", "must have a term besides the intercept")
    columns = {name: [name] for name in names if name != intercept} if terms is None else terms
    known = [names[j] for j in kept]
    unknown = [one for group in columns.values() for one in group if one not in known]
    if unknown:
        raise ArgumentError("terms", f"must be made of names of coefficients ({', '.join(known)}), got {unknown[0]!r}")
    inverse = invert(square, names)[np.ix_(kept, kept)]
    scale = 1.0 / np.sqrt(np.diag(inverse))
    correlation = inverse * np.outer(scale, scale)
    whole = np.linalg.slogdet(correlation)[1]
    found = {}
    for term, group in columns.items():
        own = [known.index(one) for one in group]
        others = [j for j in range(len(known)) if j not in own]
        parts = sum(np.linalg.slogdet(correlation[np.ix_(part, part)])[1] for part in (own, others) if part)
        factor = float(np.exp(parts - whole))
        found[term] = (factor, len(own), factor ** (1.0 / (2 * len(own))))
    return found
