"""The table of a paper: several models side by side."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp.errors import ArgumentTypeError
from fpdfp.inference.summary import Summary
from fpdfp.inference.table import Table, TextTable, format_number, format_p, html_table


@dataclasses.dataclass(frozen=True, repr=False)
class ModelTable(TextTable):
    """Several models side by side; ``print`` shows them, and so does a notebook.

    Attributes
    ----------
    headings
        Those of the columns: the models, and under each what is shown of it.
    rows
        The name of each row and its cells, as text.
    notes
        What is said below.
    """

    headings: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]

    def frame(self) -> Any:
        """Return the texts as a data frame of pandas, with a column for each model and what is shown of it."""
        import pandas

        columns = pandas.MultiIndex.from_tuples(self.headings)
        return pandas.DataFrame([row[1:] for row in self.rows], index=[row[0] for row in self.rows], columns=columns)

    def _grid(self) -> list[list[str]]:
        """Return all lines as cells; a model is named once, above its first column."""
        names = [name if not k or self.headings[k - 1][0] != name else "" for k, (name, _) in enumerate(self.headings)]
        return [["", *names], ["", *(what for _, what in self.headings)], *map(list, self.rows)]

    def _remarks(self) -> tuple[str, ...]:
        return self.notes

    def _repr_html_(self) -> str:
        headings = [f"{name}: {what}" for name, what in self.headings]
        return html_table(["", *headings], self.rows) + "".join(f"<p>{escape(note)}</p>" for note in self.notes)


def model_table(
    models: Mapping[str, Any], *, ratios: bool | None = None, errors: Any = "model", level: float = 0.95,
    names: Mapping[str, str] | None = None,
) -> ModelTable:  # fmt: skip
    """Return the table of a paper: estimates with intervals and p values of several models side by side.

    Parameters
    ----------
    models
        Fitted models, or their summaries, by the names that the columns get.
    ratios
        Whether odds, rate or hazard ratios are shown in place of coefficients; None for where they are meaningful.
    errors, level
        As in :meth:`fpdfp.FederatedGLM.summary`; of no effect on summaries that are given.
    names
        What coefficients are called in the table.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> import fpdfp
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"dose": rng.normal(size=400), "age": rng.normal(60, 8, 400)})
    >>> table["visits"] = rng.poisson(np.exp(0.2 + 0.5 * table["dose"]))
    >>> crude = fpdfp.FederatedGLM("poisson").fit(table, "visits ~ dose")
    >>> adjusted = fpdfp.FederatedGLM("poisson").fit(table, "visits ~ dose + age")
    >>> print(fpdfp.inference.model_table({"crude": crude, "adjusted": adjusted}))
                        crude                           adjusted
            rate ratio (95 %)        p         rate ratio (95 %)        p
    dose   1.557 (1.428 to 1.697)  < 0.001    1.562 (1.432 to 1.705)  < 0.001
    age                                     0.9964 (0.9857 to 1.007)    0.505
    rows                      400                                400
    sites                       1                                  1
    AIC                   1121.88                            1123.44
    crude: models visits; FederatedGLM; standard errors of the model (expected information)
    adjusted: models visits; FederatedGLM; standard errors of the model (expected information)
    """
    if not isinstance(models, Mapping) or not models:
        raise ArgumentTypeError("models", "must be a dictionary of fitted models by name, with at least one")
    found = {str(name): _summarise(one, errors, level, ratios) for name, one in models.items()}
    called = dict(names or {})
    parts = [_columns(one, ratios) for one in found.values()]
    order = list(dict.fromkeys(name for cells in parts for name in cells.cells))
    order.sort(key=lambda name: name == "Intercept")  # constants last, the others as they come
    headings = [(name, what) for name, cells in zip(found, parts, strict=True) for what in cells.headings]
    rows = []
    for name in order:
        row = [called.get(name, name)]
        for cells in parts:
            row += cells.cells.get(name, [""] * len(cells.headings))
        rows.append(tuple(row))
    for title, tell in FOOT:
        told = [tell(one) for one in found.values()]
        if any(told):
            blank = [[text, *[""] * (len(cells.headings) - 1)] for text, cells in zip(told, parts, strict=True)]
            rows.append((title, *(text for cells in blank for text in cells)))
    return ModelTable(tuple(headings), tuple(rows), tuple(_notes(found)))


@dataclasses.dataclass(frozen=True)
class _Columns:
    """The columns of one model: their headings, and the cells of each coefficient."""

    headings: tuple[str, ...]
    cells: dict[str, list[str]]


def _summarise(model: Any, errors: Any, level: float, ratios: bool | None) -> Summary:
    if isinstance(model, Summary):
        return model
    if not hasattr(model, "summary"):
        raise ArgumentTypeError("models", f"must hold fitted models or summaries, got {_checks.kind(model)}")
    summary: Summary = model.summary(errors=errors, level=level, ratios=ratios)
    return summary


def _columns(summary: Summary, ratios: bool | None) -> _Columns:
    """Return what is shown of a model: the estimate with its interval, and the p value; or the estimate alone."""
    table = summary.table
    if table is None:
        return _Columns(("coefficient",), {name: [format_number(float(b))] for name, b in _flat(summary).items()})
    lower, upper = table.intervals().T
    estimates = table.coefficients
    exponential = table.ratios is not None and ratios is not False
    cells = {}
    for name, *numbers, p in zip(table.names, estimates, lower, upper, table.p_values, strict=True):
        shown = np.exp(numbers) if exponential and name not in table.constants else np.array(numbers)
        if exponential and name in table.constants:
            continue
        cells[name] = [_with_interval(*shown), format_p(float(p))]
    for factor, level in summary.references.items():
        cells = _insert_reference(cells, factor, level, 1.0 if exponential else 0.0)
    what = str(table.ratios) if exponential else "coefficient"
    return _Columns((f"{what} ({100 * table.level:g} %)", "p"), cells)


def _flat(summary: Summary) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in summary.coefficients.items():
        flat |= {f"{name}: {inner}": one for inner, one in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _insert_reference(cells: dict[str, list[str]], factor: str, level: str, value: float) -> dict[str, list[str]]:
    """Return the cells with a row of the reference before the first level of a factor."""
    first = next((name for name in cells if name.startswith(f"{factor}[T.")), None)
    if first is None:
        return cells
    made: dict[str, list[str]] = {}
    for name, texts in cells.items():
        if name == first:
            made[f"{factor}[{level}]"] = [f"{value:g} (reference)", ""]
        made[name] = texts
    return made


def _with_interval(estimate: float, lower: float, upper: float) -> str:
    return f"{format_number(estimate)} ({format_number(lower)} to {format_number(upper)})"


def _tell_left_out(summary: Summary) -> str:
    return f"{sum(summary.left_out):,}" if sum(summary.left_out) else ""


#: What is said of each model below its coefficients.
FOOT: Sequence[tuple[str, Any]] = (
    ("rows", lambda one: f"{sum(one.rows):,}"),
    ("events", lambda one: "" if one.events is None else f"{one.events:,}"),
    ("rows left out", _tell_left_out),
    ("sites", lambda one: str(len(one.sites))),
    ("AIC", lambda one: "" if one.aic is None or math.isnan(one.aic) else f"{one.aic:.6g}"),
)


def _notes(found: Mapping[str, Summary]) -> list[str]:
    """Return what is said below the table: what is modelled, which errors, and what each summary notes."""
    notes = []
    for name, one in found.items():
        parts = [f"models {one.outcome}" if one.outcome else "", one.title]
        if isinstance(one.table, Table):
            parts.append(f"standard errors {one.table.errors}")
        elif one.refused is not None:
            parts.append(f"penalty {one.penalty}: no intervals")
        parts += one.notes
        parts += [f"{key}: {value}" for key, value in one.more.items() if key.startswith("without ")]
        notes.append(f"{name}: " + "; ".join(part for part in parts if part))
    return notes
