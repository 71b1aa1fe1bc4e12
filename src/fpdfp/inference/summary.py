"""The summary of a fitted model."""

from __future__ import annotations

import dataclasses
import json
import math
import textwrap
from typing import Any

import numpy as np

from fpdfp._numbers import format_bits
from fpdfp._sections import Section, plain
from fpdfp.inference.table import Table, format_number, html_table, latex_table, write_text

#: This many coefficients are in a report, the most remarkable ones.
MOST = 400


@dataclasses.dataclass(frozen=True)
class Summary(Section):
    """A fitted model: ``print`` shows it, and :meth:`frame` returns the coefficients as a table.

    Attributes
    ----------
    title
        The estimator.
    formula
        The formula, None for a model of a matrix.
    coefficients
        By name; for more than two classes a dictionary of these by class.
    sites, rows, left_out
        The sites, the rows of each that were used, and those excluded for missing values.
    deviance
        Twice the sum of the negative log-likelihoods less the sum for a perfect fit, or the sum of squares; without the
        penalty.
    penalty
        In words.
    status, rounds, bits_up, bits_down
        How the run ended, its rounds, and all bits that sites and server sent.
    outcome
        What is modelled: the response, and which of its levels.
    references
        The reference level of each categorical factor.
    table
        The coefficients with standard errors, tests and intervals; None if not available.
    refused
        The reason for missing standard errors, in a sentence.
    family
        The family and its link, in words.
    has_dispersion, dispersion
        Whether the family has a dispersion that is estimated, and what it is.
    log_likelihood, null_deviance
        Of the model, and the deviance of the intercept alone; None if they are not known.
    df_residual, df_null
        Degrees of freedom of the two deviances.
    further_parameters
        What is estimated besides coefficients and dispersion, as θ of the negative binomial family.
    exchanges
        Exchanges after the rounds, by purpose: ``{"information": 1}``.
    more
        Further lines, by name: numbers and texts.
    notes
        Sentences that a reader of the coefficients should know.
    events
        How many of the rows used have an event, or the modelled level; None where that is not known.
    """

    section = "summary"

    title: str
    formula: str | None
    coefficients: dict[str, Any]
    sites: list[str]
    rows: list[int]
    left_out: list[int]
    deviance: float
    penalty: str
    status: str
    rounds: int
    bits_up: int
    bits_down: int
    outcome: str | None = None
    references: dict[str, str] = dataclasses.field(default_factory=dict)
    table: Table | None = None
    refused: str | None = None
    family: str | None = None
    has_dispersion: bool = False
    dispersion: float | None = None
    log_likelihood: float | None = None
    null_deviance: float | None = None
    df_residual: int | None = None
    df_null: int | None = None
    further_parameters: int = 0
    exchanges: dict[str, int] = dataclasses.field(default_factory=dict)
    more: dict[str, Any] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    events: int | None = None

    @property
    def parameters(self) -> int:
        """The number of coefficients, of what else is estimated, and one more if a dispersion is."""
        if self.table is not None:
            count = len(self.table.names)
        else:
            count = sum(len(value) if isinstance(value, dict) else 1 for value in self.coefficients.values())
        return count + self.further_parameters + bool(self.has_dispersion)

    @property
    def aic(self) -> float | None:
        """Akaike's information criterion; None for a fit with a penalty, or if the likelihood is not known."""
        return self._criterion(2.0)

    @property
    def bic(self) -> float | None:
        """The Bayesian information criterion, in the same cases."""
        return self._criterion(math.log(sum(self.rows)))

    def _criterion(self, price: float) -> float | None:
        if self.log_likelihood is None or math.isnan(self.log_likelihood) or self.penalty != "none":
            return None
        return price * self.parameters - 2.0 * self.log_likelihood

    def frame(self) -> Any:
        """Return a data frame of pandas with a row for each coefficient.

        It has the columns of :attr:`table`, or else the coefficients alone, with a column for each of several classes.
        """
        import pandas

        if self.table is not None:
            return self.table.frame()
        several = any(isinstance(value, dict) for value in self.coefficients.values())
        made = pandas.DataFrame(self.coefficients) if several else pandas.DataFrame({"coefficient": self.coefficients})
        made.index.name = "name"
        return made

    def _facts(self) -> list[tuple[str, str]]:
        """Return what is said above the coefficients."""
        sent = f"{format_bits(self.bits_up)} by sites, {format_bits(self.bits_down)} by the server"
        facts = [("models", self.outcome)] if self.outcome is not None else []
        if self.references:
            facts.append(("reference", ", ".join(f"{name}: {level}" for name, level in self.references.items())))
        facts += [("family", self.family)] if self.family is not None else []
        ended = f"{self.status} after {self.rounds} rounds"
        others = {purpose: count for purpose, count in self.exchanges.items() if purpose != "rounds"}
        if others:
            words = [purpose if count == 1 else f"{purpose} ({count})" for purpose, count in others.items()]
            count = sum(others.values())
            ended += f" and {count} exchange{'s' if count > 1 else ''} for {', '.join(words)}"
        facts += [("penalty", self.penalty), ("", ended), ("sent", sent)]
        events = "" if self.events is None else f", {self.events:,} with the event"
        facts.append(("rows", f"{sum(self.rows):,} used, {sum(self.left_out):,} left out{events}"))
        if not math.isnan(self.deviance):
            facts.append(("deviance", f"{self.deviance:.7g}{_on(self.df_residual)}"))
        if self.null_deviance is not None:
            facts.append(("null deviance", f"{self.null_deviance:.7g}{_on(self.df_null)}"))
        if self.aic is not None:
            facts.append(("AIC, BIC", f"{self.aic:.7g}, {self.bic:.7g}"))
        if self.has_dispersion and self.dispersion is not None:
            facts.append(("dispersion", f"{self.dispersion:.6g}"))
        facts += [
            (name, f"{value:.6g}" if isinstance(value, float) else str(value)) for name, value in self.more.items()
        ]
        return facts

    def _notes(self) -> list[str]:
        """Return what is said below the coefficients."""
        if self.table is None:
            return [*([] if self.refused is None else [self.refused]), *self.notes]
        df = "" if self.table.df is None else f" with {self.table.df:g} degrees of freedom"
        name = "z" if self.table.df is None else "t"
        return [f"standard errors {self.table.errors}; {name}{df}", *self.notes]

    def _site_rows(self) -> list[list[str]]:
        counts = zip(self.sites, self.rows, self.left_out, strict=True)
        return [[site, f"{used:,}", f"{out:,}"] for site, used, out in counts]

    def __str__(self) -> str:
        width = max(12, *(len(name) for name, _ in self._facts()))
        lines = [self.title if self.formula is None else f"{self.title}: {self.formula}"]
        lines += [f"{name:{width}}  {text}" if name else text for name, text in self._facts()]
        if self.table is not None:
            table = str(self.table)
        else:
            table = self.frame().to_string(float_format=lambda value: f"{value:.6g}", index_names=False)
        lines += ["", *table.split("\n"), *(line for note in self._notes() for line in textwrap.wrap(note, 100))]
        width = max([4, *(len(site) for site in self.sites)])
        lines += ["", f"{'site':{width}}  {'rows used':>10}  {'left out':>10}"]
        lines += [f"{site:{width}}  {used:>10}  {out:>10}" for site, used, out in self._site_rows()]
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        title = self.title if self.formula is None else f"{self.title}: {self.formula}"
        facts = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in self._facts())
        if self.table is not None:
            table = self.table._repr_html_()
        else:
            frame = self.frame()
            rows = [
                [str(name), *map(format_number, row)] for name, row in zip(frame.index, frame.to_numpy(), strict=True)
            ]
            table = html_table(["", *map(str, frame.columns)], rows)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self._notes())
        sites = html_table(["site", "rows used", "left out"], self._site_rows())
        return f"<div><p><b>{escape(title)}</b></p><table>{facts}</table>{table}{notes}{sites}</div>"

    def to_dict(self) -> dict[str, Any]:
        """Return what a report shows; of more than 400 coefficients those with the largest statistics or values."""
        if self.table is not None:
            names, columns = list(self.table.names), self.table.columns()
            sizes = np.abs(self.table.statistics)
        else:
            by_class = self.coefficients
            if not any(isinstance(value, dict) for value in by_class.values()):
                by_class = {"coefficient": self.coefficients}
            names = list(dict.fromkeys(name for column in by_class.values() for name in column))
            columns = {
                str(label): np.array([column.get(name, math.nan) for name in names])
                for label, column in by_class.items()
            }
            sizes = np.max([np.abs(column) for column in columns.values()], axis=0)
        kept = np.sort(np.argsort(-np.nan_to_num(sizes), kind="stable")[:MOST])
        return {
            "title": self.title,
            "formula": self.formula,
            "facts": [list(fact) for fact in self._facts()],
            "notes": self._notes(),
            "level": None if self.table is None else self.table.level,
            "refused": self.table is None and self.refused is not None,
            "columns": {name: column[kept] for name, column in columns.items()},
            "names": [names[j] for j in kept],
            "of": len(names),
            "sites": [list(row) for row in zip(self.sites, self.rows, self.left_out, strict=True)],
        }

    def to_csv(self, path: Any = None) -> str | None:
        """Write :meth:`frame` as CSV with all digits to a file, or return the text without a path."""
        text = str(self.frame().to_csv(lineterminator="\n"))
        return write_text(path, text)

    def to_html(self, path: Any = None) -> str | None:
        """Write the summary as HTML to a file, as a notebook shows it, or return the text without a path."""
        return write_text(path, self._repr_html_())

    def to_latex(self, path: Any = None) -> str | None:
        """Write the coefficients as a table in LaTeX (package booktabs), or return the text without a path."""
        if self.table is not None:
            headings, rows = self.table.cells()
            cells = [[name, *row] for name, row in zip(self.table.names, rows, strict=True)]
        else:
            frame = self.frame()
            headings = [str(one) for one in frame.columns]
            cells = [
                [str(name), *map(format_number, row)] for name, row in zip(frame.index, frame.to_numpy(), strict=True)
            ]
        return write_text(path, latex_table(["", *headings], cells, self._notes()))

    def to_json(self, path: Any = None) -> str | None:
        """Write everything as JSON with all digits to a file, or return the text without a path.

        Numbers that are not finite become null.
        """
        shown = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "table"}
        shown |= {"aic": self.aic, "bic": self.bic, "table": None}
        if self.table is not None:
            table = self.table
            shown["table"] = {
                "names": list(table.names),
                **{name: column.tolist() for name, column in table.columns().items()},
                "covariance": table.covariance.tolist(),
                "df": table.df,
                "errors": table.errors,
                "level": table.level,
                "exponentiate": table.exponentiate,
            }
        return write_text(path, json.dumps(plain(shown), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _on(df: int | None) -> str:
    return "" if df is None else f" on {df:,} degrees of freedom"
