"""Evaluation of a model over all sites and at each, from the answers of sites."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fpdfp._numbers import format_bits
from fpdfp._sections import Section
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.inference.calibration import Calibration, CalibrationTable, calibration_table
from fpdfp.inference.histograms import ResidualHistogram
from fpdfp.inference.intervals import by_log_odds, quantile_of, wilson
from fpdfp.inference.roc import RocCurve, find_area, roc_curve
from fpdfp.inference.table import format_number, html_table, text_table
from fpdfp.scores.base import Estimate, outcome_of
from fpdfp.scores.named import by_name
from fpdfp.scores.site import EXACT, SiteScores

#: What the area under the curve, and calibration, are called in tables.
AREA, INTERCEPT, SLOPE, EXPLAINED = "auc", "calibration intercept", "calibration slope", "explained deviance"


class Measure(NamedTuple):
    """A number that describes how good predictions are.

    Attributes
    ----------
    value
        The number; NaN where it has no meaning, or a site does not send it.
    lower, upper
        Confidence limits; NaN if not available.
    bound
        The value differs from the exact one by at most this, by what binning hides; limits include it.
    standard_error
        NaN if not available.
    """

    value: float
    lower: float = math.nan
    upper: float = math.nan
    bound: float = 0.0
    standard_error: float = math.nan


MISSING = Measure(math.nan)


@dataclasses.dataclass(frozen=True)
class Evaluation(Section):
    """The evaluation of a model; ``print`` shows it, and so does a notebook.

    Attributes
    ----------
    overall
        The measures over all sites by name.
    by_site
        Those of each site.
    rows
        The rows of each site that were used.
    level
        Of the confidence limits.
    roc, site_roc
        The ROC curves over all sites and of each, for two classes; thresholds are linear predictors.
    calibration, site_calibration
        Intercept and slope of the linear predictor, where there is one: over all sites, and of each by itself.
    calibration_table
        Predicted and observed chances in groups, for two classes.
    residuals
        The histogram of deviance residuals, whose ``summary()`` has their quantiles.
    notes
        The scores that sites did not send.
    exchanges, bits_up, bits_down
        How often sites were asked, and all bits that sites and server sent.
    """

    section = "evaluation"

    overall: dict[str, Measure]
    by_site: dict[str, dict[str, Measure]]
    rows: dict[str, int]
    level: float
    roc: RocCurve | None = None
    site_roc: dict[str, RocCurve] = dataclasses.field(default_factory=dict)
    calibration: Calibration | None = None
    site_calibration: dict[str, Calibration] = dataclasses.field(default_factory=dict)
    calibration_table: CalibrationTable | None = None
    residuals: ResidualHistogram | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    exchanges: int = 0
    bits_up: int = 0
    bits_down: int = 0

    def to_frame(self) -> Any:
        """Return a data frame of pandas: a row for each measure of all sites, and then of each."""
        import pandas

        lines = [
            {"site": site, "measure": name, **one._asdict()}
            for site, found in [("all sites", self.overall), *self.by_site.items()]
            for name, one in found.items()
        ]
        return pandas.DataFrame(lines)

    def _grids(self) -> list[list[list[str]]]:
        """Return the cells of the tables: one of all sites with limits, and one with a row for each site."""
        tail = 50.0 * (1.0 - self.level)
        head = ["all sites", "value", f"{tail:.6g} %", f"{100.0 - tail:.6g} %"]
        whole = [[name, *map(show, (one.value, one.lower, one.upper))] for name, one in self.overall.items()]
        if len(self.by_site) == 1:
            return [[head, *whole]]
        sites = [
            [name, f"{self.rows[name]:,}", *(show(found.get(one, MISSING).value) for one in self.overall)]
            for name, found in self.by_site.items()
        ]
        return [[head, *whole], [["site", "rows", *self.overall], *sites]]

    def _lines(self) -> list[str]:
        """Return what is said under the table."""
        said = [f"{sum(self.rows.values()):,} rows at {len(self.rows)} site{'s' if len(self.rows) != 1 else ''}"]
        bound = self.overall.get(AREA, MISSING).bound
        if bound > 0:
            said.append(f"the area under the ROC curve is known to ± {bound:.2g}, which its limits include")
        if self.calibration is not None:
            said.append(f"calibration: {self.calibration.test}")
        if self.residuals is not None:
            shown = [f"{name} {_middle(limits)}" for name, limits in self.residuals.summary().items()]
            said.append(f"deviance residuals: {', '.join(shown)}")
        said += self.notes
        sent = f"{format_bits(self.bits_up)} from sites, {format_bits(self.bits_down)} to them"
        said.append(f"{self.exchanges} exchange{'s' if self.exchanges != 1 else ''}, {sent}")
        return said

    def __str__(self) -> str:
        return "\n".join([*(f"{text_table(grid)}\n" for grid in self._grids()), *self._lines()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        shown = "".join(html_table(head, lines) for head, *lines in self._grids())
        return shown + "".join(f"<p>{escape(line)}</p>" for line in self._lines())

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain numbers, texts and lists: what a report shows."""
        roc = {"all sites": self.roc} | dict(self.site_roc)
        table = self.calibration_table
        return {
            "level": self.level,
            "rows": dict(self.rows),
            "overall": {name: one._asdict() for name, one in self.overall.items()},
            "sites": {
                site: {name: one._asdict() for name, one in found.items()} for site, found in self.by_site.items()
            },
            "roc": {
                name: {
                    "false": _thin(curve.false_positive_rates).tolist(),
                    "true": _thin(curve.true_positive_rates).tolist(),
                }
                for name, curve in roc.items()
                if curve is not None
            },
            "calibration": None
            if table is None
            else {name: getattr(table, name).tolist() for name in ("rows", "predicted", "observed", "lower", "upper")},
            "notes": self._lines(),
        }


def summarise(
    names: Sequence[str],
    answers: Sequence[SiteScores],
    family: Any,
    *,
    level: float,
    calibration: Calibration | None = None,
    site_calibration: Mapping[str, Calibration] | None = None,
    null_deviances: Sequence[float] = (),
    **others: Any,
) -> Evaluation:
    """Return what the answers of sites say together.

    Parameters
    ----------
    names, answers
        The sites, with the answer of each.
    family
        As of :func:`fpdfp.scores.by_name`.
    level
        Of confidence limits.
    calibration, site_calibration
        Over all sites, and of those that have one.
    null_deviances
        The deviance of each site at the mean outcome of all; none where it was not requested.
    others
        Further attributes of :class:`Evaluation`.
    """
    outcome, own = outcome_of(family), dict(site_calibration or {})
    sums = [one.sums_of(outcome) for one in answers]
    total = {name: np.sum([one[name] for one in sums], axis=0) for name in EXACT[outcome]}
    curves = {name: _curve([one]) for name, one in zip(names, answers, strict=True)} if outcome == "binary" else {}
    pooled = _pool(answers)
    by_site = {}
    for place, (name, one) in enumerate(zip(names, answers, strict=True)):
        null = null_deviances[place] if len(null_deviances) else None
        by_site[name] = _measures(family, sums[place], _areas([one]), own.get(name), null, level)
    null = float(sum(null_deviances)) if len(null_deviances) else None
    table = calibration_table(pooled[0]) if outcome == "binary" and pooled else None
    residuals = [one.residuals[0].histogram() for one in answers if one.residuals]
    return Evaluation(
        overall=_measures(family, total, _areas(answers), calibration, null, level),
        by_site=by_site,
        rows={name: one.rows for name, one in zip(names, answers, strict=True)},
        level=level,
        roc=_curve(answers) if outcome == "binary" else None,
        site_roc={name: curve for name, curve in curves.items() if curve is not None},
        calibration=calibration,
        site_calibration=own,
        calibration_table=table,
        residuals=sum(residuals[1:], residuals[0]) if residuals else None,
        notes=[
            f"{name} withholds {' and '.join(one.withheld)}, since counts would be too small, or would not add up; "
            "what is over all sites is without it"
            for name, one in zip(names, answers, strict=True)
            if one.withheld
        ],
        **others,
    )


def _measures(
    family: Any, sums: Mapping[str, Array], area: Estimate | None, calibration: Calibration | None, null: float | None,
    level: float,
) -> dict[str, Measure]:  # fmt: skip
    """Return the measures of a site, or of all."""
    found: dict[str, Measure] = {}
    for name in (*[one for one in ("concordance", "accuracy") if one in sums], *sums):
        found.setdefault(name, limit(name, by_name(name, family).finish(sums[name]), sums[name], level))
    if area is not None:
        found = {AREA: limit(AREA, area, np.zeros(0), level)} | found
    if null is not None and null > 0:
        found[EXPLAINED] = Measure(1.0 - float(sums["deviance"][2]) / null)
    if calibration is not None:
        table = calibration.table
        for place, name in enumerate(table.names):
            lower, upper = table.intervals(level)[place].tolist()
            error = float(table.standard_errors[place])
            found[f"calibration {name}"] = Measure(float(table.coefficients[place]), lower, upper, 0.0, error)
    elif outcome_of(family) == "binary":
        found |= {INTERCEPT: MISSING, SLOPE: MISSING}
    return found


def limit(name: str, found: Estimate, sums: Array, level: float) -> Measure:
    """Return a score with confidence limits.

    Of accuracy these are Wilson's, with (Σw)²/Σw² rows. Of the area under the curve and of concordance from the
    standard error on the scale of log-odds, widened by the bound; of others the value ± its standard errors.
    """
    value, bound, error = found
    if not math.isfinite(value):
        return MISSING
    if name == "accuracy":
        lower, upper = (float(one) for one in wilson(value, float(sums[1] ** 2 / sums[3]), level))
    elif name in (AREA, "concordance"):
        lower, upper = by_log_odds(value, error, level)
        lower, upper = max(lower - bound, 0.0), min(upper + bound, 1.0)
    else:
        width = quantile_of(level) * error
        lower, upper = max(value - width, 0.0), value + width
    return Measure(value, lower, upper, bound, error)


def _pool(answers: Sequence[SiteScores]) -> list[Any]:
    """Return the histograms of all sites, one for each class."""
    told = [one.predictors for one in answers if one.predictors]
    if not told:
        return []
    if len({len(one) for one in told}) > 1:
        raise ArgumentError("answers", "must be of the same classes")
    return [sum((one.histogram() for one in column[1:]), column[0].histogram()) for column in zip(*told, strict=True)]


def _effective(answers: Sequence[SiteScores], place: int) -> tuple[float, float]:
    """Return how many rows with an event, and without, weights are worth: (Σw)²/Σw²."""
    histograms = [one.predictors[place].histogram() for one in answers if one.predictors]
    squares = np.sum([one.predictors[place].squares for one in answers if one.predictors], axis=0)
    sums = [sum(float(getattr(one, name).sum()) for one in histograms) for name in ("positives", "negatives")]
    found = [total**2 / square if square > 0 else 0.0 for total, square in zip(sums, squares, strict=True)]
    return found[0], found[1]


def _areas(answers: Sequence[SiteScores]) -> Estimate | None:
    """Return the area under the curve, of several classes the mean over them; None if no site sends it.

    Pairs of rows of one site are counted there, and only pairs of two sites from counts in cells.
    """
    pooled, found = _pool(answers), []
    for place, histogram in enumerate(pooled):
        events, others = float(histogram.positives.sum()), float(histogram.negatives.sum())
        if not events or not others:
            return Estimate(math.nan, math.nan, math.nan)
        area, bound, error = find_area(histogram, _effective(answers, place))
        for one in answers:
            if len(one.areas):
                own = one.predictors[place].histogram()
                share = float(own.positives.sum() * own.negatives.sum()) / (events * others)
                binned, hidden, _ = find_area(own)
                exact, rounded, _ = one.areas[place]
                area, bound = area + share * (float(exact) - binned), bound + share * (float(rounded) - hidden)
        found.append((area, max(bound, 0.0), error))
    return Estimate(*(float(np.mean(column)) for column in zip(*found, strict=True))) if found else None


def _curve(answers: Sequence[SiteScores]) -> RocCurve | None:
    """Return the ROC curve of sites, None if they have rows of one class alone, or do not send it."""
    pooled, area = _pool(answers), _areas(answers)
    if area is None or math.isnan(area.value):
        return None
    return dataclasses.replace(roc_curve(pooled[0], _effective(answers, 0)), area=area.value, error=area.bound)


def show(value: float) -> str:
    """Return a number with four digits, a dash for none."""
    return "–" if math.isnan(value) else format_number(value)


def _middle(limits: tuple[float, float]) -> str:
    """Write a quantile that is between two numbers."""
    lower, upper = limits
    if math.isinf(lower) or math.isinf(upper):
        return f"below {upper:g}" if math.isinf(lower) else f"above {lower:g}"
    return f"{(lower + upper) / 2:.3g} ± {(upper - lower) / 2:.2g}"


def _thin(values: Array, most: int = 200) -> Array:
    """Return at most a given number of of the points of a curve, the ends included."""
    return values[np.unique(np.linspace(0, len(values) - 1, min(most, len(values))).astype(np.int64))]
