"""The table of a fit: coefficients with standard errors, tests and confidence intervals."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.inference.covariances import Kind, covariance
from fpdfp.inference.information import Information, add_up, as_sites

#: Why there are no plain standard errors after a fit with a penalty.
PENALISED = (
    "no standard errors: they hold for fits without a penalty. A penalty moves coefficients towards zero (or each "
    "other), and intervals by the plain formula would not cover the true ones as often as they say. Fit with "
    "penalty='none', or see fpdfp.inference.debias and fpdfp.inference.split_sites"
)

#: How standard errors of each kind are described under a table.
WORDS = {
    "model": "of the model (expected information)",
    "HC0": "robust (HC0)",
    "HC1": "robust (HC1)",
    "robust": "robust (HC1)",
    "sites": "clustered by site",
    "jackknife": "clustered by site (jackknife)",
}


@dataclasses.dataclass(frozen=True)
class Table:
    """Coefficients with their covariance: ``print`` shows them, :meth:`frame` returns a data frame.

    Parameters
    ----------
    names
        Of the coefficients.
    coefficients
        Shape (p,).
    covariance
        Shape (p, p).
    df
        Degrees of freedom of Student's t; None for the normal distribution.
    errors
        The standard errors, in words.
    level
        Of the confidence intervals.
    exponentiate
        Whether the table shows exp of coefficients and limits: odds, rate or hazard ratios.
    rank
        The most coefficients that can be tested together; None if that is all.
    ratios
        What exp of a coefficient is, ``"odds ratio"`` for instance: it is shown next to the coefficient, and the limits
        are its own. None for no such column.
    constants
        The names of intercepts and thresholds, whose exponential is not a ratio.

    Examples
    --------
    >>> table = Table(["Intercept", "age"], np.array([-1.0, 0.5]), np.diag([0.04, 0.01]))
    >>> print(table)
               coefficient  standard error      z        p   2.5 %   97.5 %
    Intercept       -1.000          0.2000  -5.00  < 0.001  -1.392  -0.6080
    age             0.5000          0.1000   5.00  < 0.001  0.3040   0.6960
    """

    names: Sequence[str]
    coefficients: Array
    covariance: Array
    df: float | None = None
    errors: str = WORDS["model"]
    level: float = 0.95
    exponentiate: bool = False
    rank: int | None = None
    ratios: str | None = None
    constants: Sequence[str] = ("Intercept",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", [str(name) for name in self.names])
        size = len(self.names)
        given = _checks.float_array("coefficients", self.coefficients, shape=(size,), dtype=np.float64)
        object.__setattr__(self, "coefficients", given)
        given = _checks.float_array("covariance", self.covariance, shape=(size, size), dtype=np.float64)
        object.__setattr__(self, "covariance", given)
        if not 0.0 < _checks.real("level", self.level) < 1.0:
            raise ArgumentError("level", f"must be between 0 and 1, as 0.95, got {self.level:g}")
        _checks.flag("exponentiate", self.exponentiate)

    @property
    def standard_errors(self) -> Array:
        """The square roots of the variances."""
        errors: Array = np.sqrt(np.diag(self.covariance))
        return errors

    @property
    def statistics(self) -> Array:
        """Coefficients divided by standard errors: z, or t if there are degrees of freedom."""
        statistics: Array = self.coefficients / self.standard_errors
        return statistics

    @property
    def p_values(self) -> Array:
        """Two-sided, for the hypothesis that a coefficient is 0."""
        p_values: Array = 2.0 * self._distribution().sf(np.abs(self.statistics))
        return p_values

    def intervals(self, level: float | None = None) -> Array:
        """Return the confidence limits of each coefficient, shape (p, 2), never exponentiated.

        ``level`` defaults to the table's.
        """
        level = self.level if level is None else _checks.real("level", level)
        if not 0.0 < level < 1.0:
            raise ArgumentError("level", f"must be between 0 and 1, as 0.95, got {level:g}")
        width = self._distribution().isf((1.0 - level) / 2.0) * self.standard_errors
        return np.stack([self.coefficients - width, self.coefficients + width], axis=1)

    def _distribution(self) -> Any:
        from scipy import stats

        return stats.norm() if self.df is None else stats.t(self.df)

    @property
    def limits(self) -> tuple[str, str]:
        """The headings of the limits, as ``("2.5 %", "97.5 %")``."""
        tail = 50.0 * (1.0 - self.level)
        return f"{tail:.6g} %", f"{100.0 - tail:.6g} %"

    def columns(self) -> dict[str, Array]:
        """Return the columns of the table by heading.

        With ``exponentiate`` the standard error is omitted, since a ratio's limits do not follow from it. With
        ``ratios`` the limits are of ratios.
        """
        lower, upper = self.intervals().T
        tests = {"z" if self.df is None else "t": self.statistics, "p": self.p_values}
        if self.exponentiate:
            with np.errstate(over="ignore"):
                shown = {"exp(coefficient)": np.exp(self.coefficients)}
                return shown | tests | dict(zip(self.limits, (np.exp(lower), np.exp(upper)), strict=True))
        shown = {"coefficient": self.coefficients, "standard error": self.standard_errors}
        if self.ratios is not None:
            own = np.array([name in self.constants for name in self.names])
            with np.errstate(over="ignore"):
                found = {name: np.where(own, np.nan, np.exp(one)) for name, one in zip(
                    (self.ratios, *self.limits), (self.coefficients, lower, upper), strict=True
                )}  # fmt: skip
            return shown | tests | found
        return shown | tests | dict(zip(self.limits, (lower, upper), strict=True))

    def frame(self) -> Any:
        """Return a data frame of pandas with a row for each coefficient."""
        import pandas

        return pandas.DataFrame(self.columns(), index=pandas.Index(list(self.names), name="name"))

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the headings and the rows of the table as text."""
        columns = self.columns()
        formats = {"p": format_p, "z": "{:.2f}".format, "t": "{:.2f}".format}
        texts = [[formats.get(name, format_number)(value) for value in column] for name, column in columns.items()]
        return list(columns), [list(row) for row in zip(*texts, strict=True)]

    def __str__(self) -> str:
        headings, rows = self.cells()
        grid = [["", *headings], *([name, *row] for name, row in zip(self.names, rows, strict=True))]
        return text_table(grid)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        headings, rows = self.cells()
        return html_table(["", *headings], [[name, *row] for name, row in zip(self.names, rows, strict=True)])

    def to_latex(self) -> str:
        """Return the table in LaTeX, with the rules of the package booktabs."""
        headings, rows = self.cells()
        return latex_table(["", *headings], [[name, *row] for name, row in zip(self.names, rows, strict=True)])


def coefficient_table(
    names: Sequence[str],
    coefficients: Array,
    sites: Information | Sequence[Information],
    *,
    has_dispersion: bool,
    errors: Kind = "model",
    level: float = 0.95,
    exponentiate: bool = False,
    penalty: str = "none",
) -> Table:
    """Return the table of a fit from the sums of the sites at its coefficients.

    Parameters
    ----------
    names, coefficients
        Of the model, the intercept among them, in the order of the sums.
    sites
        The sums of each site, or of all.
    has_dispersion
        Whether the family has a dispersion that is estimated. If so, tests and intervals use Student's t with n − p
        degrees of freedom, otherwise the normal distribution. Errors that are clustered by site use t with one degree
        less than there are sites.
    errors
        The kind of standard errors; see :func:`covariance`.
    level, exponentiate
        As of :class:`Table`.
    penalty
        The penalty of the fit in words. Any other than ``"none"`` is refused.

    Examples
    --------
    >>> rows = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0], [1.0, 4.0]])
    >>> y, x = np.array([2.0, 1.0, 6.0, 9.0]), np.array([1.0, 2.0])
    >>> left = y - rows @ x
    >>> site = Information.of_rows(rows, left, np.ones(4), weight=4.0, pearson=(left**2).sum())
    >>> coefficient_table(["Intercept", "dose"], x, site, has_dispersion=True).p_values.round(3).tolist()
    [0.534, 0.076]
    """
    if penalty != "none":
        raise ArgumentError("penalty", f"is {penalty}: {PENALISED}")
    found = as_sites(sites)
    total = add_up(found)
    clustered = errors in ("sites", "jackknife")
    dispersion = total.dispersion() if has_dispersion else 1.0
    df = float(len(found) - 1) if clustered else float(total.rows - total.parameters) if has_dispersion else None
    return Table(
        names,
        coefficients,
        covariance(found, dispersion, errors, names=names),
        df=df,
        errors=WORDS[errors],
        level=level,
        exponentiate=exponentiate,
        rank=len(found) - 1 if clustered else None,
    )


def format_number(value: float) -> str:
    """Write a number with four digits; nothing for NaN.

    >>> [format_number(value) for value in (0.123456, -12.3456, 1234567.0, 1.5e-7, float("nan"))]
    ['0.1235', '-12.35', '1.235e+06', '1.5e-07', '']
    """
    if not np.isfinite(value):
        return "" if np.isnan(value) else f"{value:g}"
    text = f"{value:#.4g}"
    return f"{value:.4g}" if "e" in text else text.rstrip(".")


def format_p(value: float) -> str:
    """Write a p value as journals do.

    >>> format_p(0.0312), format_p(2e-9)
    ('0.031', '< 0.001')
    """
    return "" if np.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def text_table(grid: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> str:
    """Return cells as text in columns, the first column to the left, and notes below.

    >>> print(text_table([["", "rows"], ["north", "120"]], ["all rows"]))
           rows
    north   120
    all rows
    """
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in grid]
    return "\n".join([*lines, *notes])


class TextTable(abc.ABC):
    """A table of texts: ``print`` and notebooks show it, and it is written as HTML, CSV or LaTeX."""

    @abc.abstractmethod
    def _grid(self) -> list[list[str]]:
        """Return all lines as cells, the headings first."""

    @abc.abstractmethod
    def _remarks(self) -> Sequence[str]:
        """Return what is said below."""

    def __str__(self) -> str:
        return text_table(self._grid(), self._remarks())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        headings, *rows = self._grid()
        return html_table(headings, rows) + "".join(f"<p>{escape(note)}</p>" for note in self._remarks())

    def to_html(self, path: Any = None) -> str | None:
        """Write the table as HTML to a file, or return the text without a path."""
        return write_text(path, self._repr_html_())

    def to_csv(self, path: Any = None) -> str | None:
        """Write the table as CSV to a file, or return the text without a path."""
        import csv
        import io

        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self._grid())
        return write_text(path, text.getvalue())

    def to_latex(self, path: Any = None) -> str | None:
        """Write the table in LaTeX (package booktabs) to a file, or return the text without a path."""
        headings, *rows = self._grid()
        return write_text(path, latex_table(headings, rows, self._remarks()))


def html_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in HTML, the first cell of each row as its heading."""
    from html import escape

    head = "".join(f"<th>{escape(one)}</th>" for one in headings)
    body = "".join(
        f"<tr><th>{escape(first)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        for first, *cells in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


#: What letters mean in LaTeX that mean something else there.
ESCAPED = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "χ": r"$\chi$", "τ": r"$\tau$",
    "²": r"$^2$", "±": r"$\pm$", "−": "$-$", "–": "--", "≥": r"$\geq$", "≤": r"$\leq$", "|": r"$|$", "θ": r"$\theta$",
}  # fmt: skip


def escape_latex(text: str) -> str:
    """Return a text as LaTeX shows it.

    >>> print(escape_latex("5 < x"))
    5 $<$ x
    """
    return "".join(ESCAPED.get(letter, letter) for letter in text)


def latex_table(headings: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> str:
    """Return a table in LaTeX, the first column to the left; the package booktabs has its rules."""
    lines = [" & ".join(map(escape_latex, row)) + r" \\" for row in (headings, *rows)]
    body = [r"\begin{tabular}{l" + "r" * (len(headings) - 1) + "}", r"\toprule", lines[0], r"\midrule", *lines[1:]]
    width = len(headings)
    under = [rf"\multicolumn{{{width}}}{{l}}{{\footnotesize {escape_latex(note)}}} \\" for note in notes]
    return "\n".join([*body, r"\bottomrule", *under, r"\end{tabular}"]) + "\n"


def write_text(path: Any, text: str) -> str | None:
    """Write a text into a file, or return it without a path."""
    if path is None:
        return text
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ArgumentError("path", f"cannot be written: {error}") from error
    return None
