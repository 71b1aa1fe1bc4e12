"""The answer of a site about a model on its rows: sums, counts in cells, and its own calibration."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, RefusalError
from fpdfp.inference.calibration import calibrate
from fpdfp.inference.information import Information
from fpdfp.losses.cox import Cox
from fpdfp.scores.auc import LARGE, exact_area
from fpdfp.scores.base import Score, as_family, log_chances, outcome_of
from fpdfp.scores.counts import PredictorCounts, ResidualCounts
from fpdfp.scores.named import by_name
from fpdfp.survival import Times

#: The scores that are sums, for each kind of outcomes, the means over rows first.
EXACT: dict[str, tuple[str, ...]] = {
    "binary": ("deviance", "brier", "accuracy"),
    "numbers": ("deviance", "mse", "mae"),
    "classes": ("deviance", "brier", "accuracy"),
    "times": ("deviance", "concordance"),
}
#: Means over rows have these of their six sums in common: rows, and the sums of weights and of their squares.
COMMON, OWN = [0, 1, 3], [2, 4, 5]
#: The digits of an area under a ROC curve where counts are put together.
DIGITS = 4
#: What stands for the infinite deviance outside of the domain of a link: it can be sent, and no step ends there.
OUTSIDE = 1e100


class Predicted(NamedTuple):
    """Rows with what a model predicts for them.

    Attributes
    ----------
    family
        As of :func:`fpdfp.scores.by_name`.
    eta, y, weights, strata
        As of :meth:`fpdfp.scores.Score.sums`; strata belong to times.
    """

    family: Any
    eta: Array
    y: Any
    weights: Array | None = None
    strata: Array | None = None


@dataclasses.dataclass(frozen=True)
class SiteScores:
    """The answer of a site.

    Attributes
    ----------
    rows
        How many rows there are.
    sums
        The sums of each score of ``EXACT``, one after the other; of means over rows first those that they share.
    totals
        The sums of weights, of outcomes and of predicted means times the weights; of times and classes those of weights
        alone.
    areas
        For each of ``predictors`` the area under the ROC curve of these rows, by how much it was rounded at most, and
        its standard error; no row without one.
    predictors
        Counts by linear predictor: one of two classes, one for each of several, none for other outcomes.
    residuals
        Counts by deviance residual; none for times.
    own, own_sums
        Intercept and slope of the linear predictor in a fit to this site's rows alone, and its sums; empty where there
        is none.
    hits
        The rows of classes for which theirs is the most probable; None for other outcomes.
    withheld
        The scores that the site does not send: sums of such scores are zeros.
    more
        The same of further points, where these were requested; without residuals and calibrations.
    """

    rows: int
    sums: Array
    totals: Array
    areas: Array
    predictors: list[PredictorCounts]
    residuals: list[ResidualCounts]
    own: Array
    own_sums: list[Information]
    hits: int | None = None
    withheld: tuple[str, ...] = ()
    more: list[SiteScores] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        if any(one.more for one in self.more):
            raise ArgumentError("more", "must be of points that have no further ones")
        if self.rows < 1 or self.sums.ndim != 1 or self.totals.ndim != 1:
            raise ArgumentError("sums", "must be rows of numbers, of at least one row of data")
        if self.areas.ndim != 2 or self.areas.shape[1] != 3 or len(self.areas) not in (0, len(self.predictors)):
            raise ArgumentError("areas", f"must be three numbers for each of the predictors, got {self.areas.shape}")
        if len(self.own) and len(self.own_sums) != 1:
            raise ArgumentError("own", "must have its sums")
        if any(len(one.score) != len(self.own) for one in self.own_sums):
            raise ArgumentError("own_sums", "must be of the coefficients")

    def sums_of(self, outcome: str) -> dict[str, Array]:
        """Return the sums of each score by its name; refuse scores of other outcomes."""
        names = EXACT[outcome]
        wanted = 9 if outcome == "times" else len(COMMON) + len(OWN) * len(names)
        if len(self.sums) != wanted:
            raise ArgumentError("sums", f"must be {wanted} numbers, got {len(self.sums)}")
        if outcome == "times":
            return dict(zip(names, np.split(self.sums, [2]), strict=True))
        found = {}
        for name, own in zip(names, self.sums[len(COMMON) :].reshape(-1, len(OWN)), strict=True):
            found[name] = np.empty(6)
            found[name][COMMON], found[name][OWN] = self.sums[: len(COMMON)], own
            if name in self.withheld:
                found[name][:] = 0.0
        return found

    def change_errors(self, change: Callable[[float], float]) -> SiteScores:
        """Return the same with changed sums of absolute errors, where there are such: they have an edge at each row."""
        sums, names = self.sums.copy(), EXACT["numbers"]
        if self.hits is None and len(sums) == len(COMMON) + len(OWN) * len(names):
            place = len(COMMON) + len(OWN) * names.index("mae")
            sums[place : place + 2] = [change(float(one)) for one in sums[place : place + 2]]
        return dataclasses.replace(self, sums=sums, more=[one.change_errors(change) for one in self.more])

    def without_calibration(self) -> SiteScores:
        """Return the same without the site's own fit."""
        return dataclasses.replace(self, own=np.zeros(0), own_sums=[], withheld=(*self.withheld, "calibration"))

    def coarsen(self, least: int, *, few: bool = False) -> SiteScores:
        """Return the same without counts below the least one: cells are put together, and what stays small is withheld.

        Areas have few digits, so that one pair of rows that changes places does not show. With ``few``, as for further
        points, there are only as many cells as a curve needs.
        """
        sums, hits, areas, withheld = self.sums.copy(), self.hits, self.areas.copy(), list(self.withheld)
        areas[:, 0], areas[:, 1] = np.round(areas[:, 0], DIGITS), 0.5 * 10.0**-DIGITS
        try:
            predictors = [one.coarsen(max(least, one.least_of_few) if few else least) for one in self.predictors]
        except RefusalError:
            predictors, areas = [], np.zeros((0, 3))
            withheld.append("auc")
        if hits is not None and (0 < hits < least or 0 < self.rows - hits < least):
            place, hits = len(COMMON) + len(OWN) * EXACT["binary"].index("accuracy"), None
            sums[place : place + len(OWN)] = 0.0
            withheld.append("accuracy")
        residuals = [one.coarsen(least) for one in self.residuals]
        return dataclasses.replace(
            self, sums=sums, areas=areas, predictors=predictors, residuals=residuals, hits=hits,
            withheld=tuple(withheld), more=[one.coarsen(least, few=True) for one in self.more],
        )  # fmt: skip


def score_rows(rows: Predicted, *, scores_only: bool = False) -> SiteScores:
    """Return the answer of a site about its rows; perhaps without residuals and its own calibration."""
    outcome = outcome_of(rows.family)
    parts = [_sums(by_name(name, rows.family), rows) for name in EXACT[outcome]]
    sums = np.concatenate(parts if outcome == "times" else [parts[0][COMMON], *(one[OWN] for one in parts)])
    count = len(rows.eta)
    w = np.ones(count) if rows.weights is None else rows.weights
    if not np.isfinite(sums).all():
        raise ArgumentError("data", "must be such that the model predicts means of its family, but some are not")
    totals, predictors, residuals = np.array([w.sum()]), [], []
    pairs: list[tuple[Array, Array, Array | None]] = []
    if outcome == "classes":
        logarithms = log_chances(rows.eta)
        chances, codes = np.exp(logarithms), np.asarray(rows.y, dtype=np.int64)
        with np.errstate(divide="ignore"):
            odds = logarithms - np.log(-np.expm1(logarithms))
        odds = np.clip(odds, -LARGE, LARGE)
        pairs = [(odds[:, k], (codes == k).astype(np.float64), rows.weights) for k in range(chances.shape[1])]
        predictors = [PredictorCounts.of(*one, chances[:, k]) for k, one in enumerate(pairs)]
        residuals = [ResidualCounts.of(np.sqrt(-2.0 * w * logarithms[np.arange(count), codes]))]
    elif outcome != "times":
        family = as_family(rows.family)
        mu = family.mean(rows.eta)
        totals = np.array([w.sum(), (w * rows.y).sum(), (w * mu).sum()])
        half = np.maximum(family.functions.value(rows.eta, rows.y, family.parameters), 0.0)
        residuals = [ResidualCounts.of(np.sign(rows.y - mu) * np.sqrt(2.0 * w * half))]
        if outcome == "binary":
            pairs = [(rows.eta, np.asarray(rows.y, dtype=np.float64), rows.weights)]
            predictors = [PredictorCounts.of(*pairs[0], mu)]
    own, own_sums = (np.zeros(0), []) if scores_only else _calibrate_alone(rows)
    residuals = [] if scores_only else residuals
    areas, hits = np.zeros((0, 3)), None
    if areas_of := [exact_area(*one) for one in pairs]:
        areas = np.array(areas_of)
        # An area of one class alone has no meaning, and an error of one row none.
        areas = areas if np.isfinite(areas).all() else np.zeros((0, 3))
    if "accuracy" in EXACT[outcome]:
        hits = int(by_name("accuracy", rows.family).sums(rows.eta, np.round(rows.y), None, rows.family)[2])
    return SiteScores(count, sums, totals, areas, predictors, residuals, own, own_sums, hits)


def has_calibration(family: Any) -> bool:
    """Whether intercept and slope of the linear predictor can be fitted: the model has one, and a likelihood."""
    outcome = outcome_of(family)
    return outcome == "times" or (outcome != "classes" and as_family(family).is_likelihood)


def information_of(rows: Predicted, point: Array) -> Information:
    """Return the sums of the model with the linear predictor intercept + slope · η, at ``[intercept, slope]``.

    For times of events there is the slope alone.
    """
    if outcome_of(rows.family) == "times":
        return _information_of_times(rows, point)
    family, (a, b) = as_family(rows.family), point
    z = a + b * rows.eta
    w = np.ones(len(z)) if rows.weights is None else rows.weights
    functions, parameters = family.functions, family.parameters
    mu = family.mean(z)
    variance = family.variance(mu)
    deviance = 2.0 * float((w * functions.value(z, rows.y, parameters)).sum())
    if not math.isfinite(deviance):
        return Information(len(z), float(w.sum()), 0.0, OUTSIDE, 0.0, np.zeros(2), np.zeros((2, 2)))
    left = np.divide((rows.y - mu) ** 2, variance, out=np.zeros(len(z)), where=variance > 0)
    return Information.of_rows(
        np.stack([np.ones(len(z)), rows.eta], axis=1),
        -w * functions.slope(z, rows.y, parameters),
        w * functions.weight(z, rows.y, parameters),
        weight=float(w.sum()), log_likelihood=0.0, deviance=deviance, pearson=float((w * left).sum()), robust=False,
    )  # fmt: skip


def _information_of_times(rows: Predicted, point: Array) -> Information:
    times: Times = rows.y
    if not times.event.any():
        return Information(len(rows.eta), 0.0, 0.0, 0.0, 0.0, np.zeros(1), np.zeros((1, 1)))
    losses = Cox(
        rows.eta[:, None], times.time, times.event, entry=times.entry, strata=rows.strata, weights=rows.weights
    )
    found = losses.sums_at(point, np.arange(1), robust=False)
    assert found is not None
    numbers = found.numbers[0]
    hessian = found.hessian[0].reshape(1, 1)
    return Information(len(rows.eta), float(numbers[1]), 0.0, float(numbers[3]), 0.0, found.score[0], hessian)


def _sums(score: Score, rows: Predicted) -> Array:
    y = (rows.y, rows.strata) if outcome_of(rows.family) == "times" else rows.y
    return score.sums(rows.eta, y, rows.weights, rows.family)


def _calibrate_alone(rows: Predicted) -> tuple[Array, list[Information]]:
    """Return intercept and slope in a fit to these rows, and the sums there; nothing without such a fit."""
    if not has_calibration(rows.family):
        return np.zeros(0), []
    last: list[Information] = []

    def ask(point: Array) -> list[Information]:
        last[:] = [information_of(rows, point)]
        return last

    try:
        with np.errstate(all="ignore"):
            found = calibrate(ask, has_intercept=outcome_of(rows.family) != "times")
    except ArgumentError:
        return np.zeros(0), []
    return np.asarray(found.table.coefficients), last
