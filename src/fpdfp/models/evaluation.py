"""Evaluation of a fitted model from sums and counts, also at sites without a part in the fit."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.cohorts.serialization import pack
from fpdfp.errors import ArgumentError
from fpdfp.families import Gaussian
from fpdfp.families.base import link_of
from fpdfp.federation.cohort import LocalCohort, TableCohort
from fpdfp.federation.questions import (
    CalibrationQuestion,
    Distribution,
    EvaluationQuestion,
    ModelSpec,
    write_answer,
)
from fpdfp.federation.table import ModelRows, Predictor
from fpdfp.inference import Information, coefficient_table, wald_test
from fpdfp.inference.calibration import Calibration, calibrate
from fpdfp.models.design import check_groups
from fpdfp.models.formulas import Asking
from fpdfp.models.outcomes import Classes, Compared, Numbers, Symmetric
from fpdfp.models.rows import append_columns, as_targets, column, effects_of, read_rows, row_weights, take_rows
from fpdfp.scores.base import outcome_of
from fpdfp.scores.evaluation import Evaluation, summarise
from fpdfp.scores.site import SiteScores, has_calibration, information_of, score_rows
from fpdfp.survival import Times

if TYPE_CHECKING:
    from fpdfp.models.result import FitResult


class Sites(abc.ABC):
    """Sites that are asked about the predictions of a model, and what that took.

    Attributes
    ----------
    names
        Of the sites.
    up, down
        All bits from sites, and to them.
    exchanges
        How often they were asked.
    """

    names: list[str]
    up: int
    down: int
    exchanges: int = 0

    def score(self) -> list[SiteScores]:
        """Return what each site shows of its rows."""
        self.exchanges += 1
        return self._score()

    def calibrate(self, point: Array) -> list[Information]:
        """Return the sums over sites at an intercept and a slope."""
        self.exchanges += 1
        return self._calibrate(point, each=False)

    def calibrate_each(self, point: Array) -> list[Information]:
        """Return the sums of each site at an intercept and a slope."""
        self.exchanges += 1
        return self._calibrate(point, each=True)

    @abc.abstractmethod
    def _score(self) -> list[SiteScores]: ...

    @abc.abstractmethod
    def _calibrate(self, point: Array, *, each: bool) -> list[Information]: ...


class CohortSites(Sites):
    """The sites of a cohort, which code their rows themselves."""

    def __init__(self, cohort: TableCohort, spec: ModelSpec, x: Array) -> None:
        self._asking, self._spec, self._x = Asking(cohort), spec, x
        self.names = self._asking.names

    @property
    def up(self) -> int:  # type: ignore[override]
        return self._asking.up

    @property
    def down(self) -> int:  # type: ignore[override]
        return self._asking.down

    def score_also(self, more: Sequence[Array]) -> list[list[SiteScores]]:
        """Return what sites show of the model and, in the same exchange, of others with further coefficients."""
        told: list[SiteScores] = self._asking.ask_each(EvaluationQuestion(self._spec, self._x, list(more)))
        return [told, *map(list, zip(*(one.more for one in told), strict=True))]

    def _score(self) -> list[SiteScores]:
        return self._asking.ask_each(EvaluationQuestion(self._spec, self._x))

    def _calibrate(self, point: Array, *, each: bool) -> list[Information]:
        question = CalibrationQuestion(self._spec, self._x, point)
        return self._asking.ask_each(question) if each else [self._asking.ask(question)]


class RowsSites(Sites):
    """Sites whose rows are in this process; what they would send is counted."""

    def __init__(self, names: list[str], parts: list[ModelRows], predictor: Predictor) -> None:
        self.names, self.up = names, 0
        self._rows = [predictor.predict(part) for part in parts]
        self.down = len(parts) * 8 * len(pack({"x": predictor.x}))

    def _score(self) -> list[SiteScores]:
        return self._count([score_rows(one) for one in self._rows])

    def _calibrate(self, point: Array, *, each: bool) -> list[Information]:
        self.down += len(self._rows) * 8 * len(pack({"point": point}))
        return self._count([information_of(one, point) for one in self._rows])

    def _count(self, answers: list[Any]) -> list[Any]:
        self.up += sum(8 * len(pack(write_answer(one))) for one in answers)
        return answers


def sites_of(
    fit: FitResult, X: Any, y: Any, groups: Any, sample_weight: Any, offset: Any, strata: Any
) -> Sites:  # fmt: skip
    """Return the sites that are asked about a model."""
    if fit.plan is None:
        return _rows_sites(fit, X, y, groups, sample_weight, offset, strata)
    for name, given in (("y", y), ("sample_weight", sample_weight), ("offset", offset), ("strata", strata)):
        if given is not None:
            raise ArgumentError(name, "must be None for a model with a formula, which defines it")
    return _cohort_sites(fit, X, groups)


def _cohort_sites(fit: FitResult, source: Any, groups: Any) -> Sites:
    """Return the sites of a cohort, or of a table."""
    if not isinstance(source, TableCohort):
        source = LocalCohort(source, groups)
    else:
        check_groups(groups)
    source = source.at_level()
    predictor, columns = fit.outcome.predictor(fit, fit.effects)
    plan, options = fit.plan, {name: one for name, one in fit.outcome.describe().items() if name != "class_weights"}
    assert plan is not None
    d = len(plan.design.names)
    effects = () if options.get("periods") else _effect_sites(fit)
    if effects:
        _check_effects(fit, list(source.names))
    distribution = None if predictor.family is None else Distribution.of(predictor.family)
    kind: Any = predictor.kind
    spec = ModelSpec(
        plan.design, plan.means, np.zeros(d), np.ones(d), columns == d + 1 + len(effects), kind,
        plan.classes, np.zeros(columns), distribution, effects=effects, **options,
    )  # fmt: skip
    return CohortSites(source, spec, predictor.x)


def _effect_sites(fit: FitResult) -> tuple[str, ...]:
    """Return the sites that have an intercept of their own."""
    count = fit.effects.shape[-1]
    return tuple(fit.site_names[len(fit.sites) - count :]) if count else ()


def _has_random_effects(fit: FitResult) -> bool:
    return isinstance(fit.outcome, Numbers) and fit.outcome.effects == "random"


def _check_effects(fit: FitResult, names: list[str]) -> None:
    """Refuse sites whose intercept is not known."""
    known = fit.site_names
    strange = [name for name in names if name not in known]
    if strange and not _has_random_effects(fit):
        raise ArgumentError(
            "X",
            f"must be of sites that had part in the fit, since each has an intercept: {', '.join(known)}; "
            f"got {', '.join(strange)} (site_effects='random' predicts for other sites)",
        )


def _rows_sites(
    fit: FitResult, X: Any, y: Any, groups: Any, sample_weight: Any, offset: Any, strata: Any
) -> Sites:  # fmt: skip
    """Return sites with rows of a matrix."""
    if isinstance(X, TableCohort):
        raise ArgumentError("X", "must be rows, for a model that was fitted to rows; fit a formula for a federation")
    if y is None:
        raise ArgumentError("y", "must be the outcomes of rows")
    rows = fit.matrix(X)
    count = rows.shape[0]
    predictor, columns = fit.outcome.predictor(fit, fit.effects[..., :0])
    if columns > rows.shape[1]:
        rows = append_columns(rows, np.ones((count, 1)))
    labels = np.zeros(count, dtype=np.int64) if groups is None else _checks.host_array("groups", groups)
    if labels.shape != (count,):
        raise ArgumentError("groups", f"must name the site of each of the {count} rows, got shape {labels.shape}")
    found, owner = _checks.labels("groups", labels)
    names = [str(one) for one in found]
    shifts = None if offset is None else _read_shifts(fit, offset, count)
    if _effect_sites(fit):
        _check_effects(fit, names)
        random = _has_random_effects(fit)
        own = effects_of([names[one] for one in owner], fit.sites, fit.effects, count, random=random).T
        shifts = own if shifts is None else shifts.reshape(count, *[-1] * (own.ndim - 1)) + own
    weights, _ = row_weights(sample_weight, count)
    targets, times, strata = _outcomes(fit, y, strata, predictor, count)
    whole = ModelRows(rows, targets, weights, shifts, times, strata)
    return RowsSites(names, [take_rows(whole, owner == site) for site in range(len(names))], predictor)


def _read_shifts(fit: FitResult, offset: Any, count: int) -> Array:
    """Return the offset of each row; of classes perhaps one for each but the reference."""
    if isinstance(fit.outcome, Symmetric):
        raise ArgumentError("offset", "must be None for more than two classes without a reference")
    if isinstance(fit.outcome, Compared):
        return fit.outcome.read_offset(offset, count)
    return column("offset", offset, count)


def _outcomes(
    fit: FitResult, y: Any, strata: Any, predictor: Predictor, count: int
) -> tuple[Array, Times | None, Array | None]:
    """Return the outcomes of rows as numbers, and where they are times these and their strata."""
    outcome = outcome_of(predictor.outcomes)
    if outcome == "times":
        made = read_rows(np.zeros((count, 0)), y, strata, None, None)
        return made.y, made.times, made.strata
    if strata is not None:
        raise ArgumentError("strata", "must be None for models of other outcomes than times")
    given = np.asarray(as_targets(y))
    if given.shape != (count,):
        raise ArgumentError("y", f"must have an outcome for each of the {count} rows, got shape {given.shape}")
    if not isinstance(fit.outcome, Classes):
        targets = column("y", given, count)
        if outcome in ("binary", "numbers"):
            (predictor.family or Gaussian()).check(targets)
        return targets, None, None
    codes = {label: float(code) for code, label in enumerate(fit.outcome.labels)}
    strange = [label for label in given.tolist() if label not in codes]
    if strange:
        assert fit.outcome.classes is not None
        shown = ", ".join(map(str, fit.outcome.classes))
        raise ArgumentError("y", f"must be classes that the model knows, {shown}, got {strange[0]!r}")
    return np.array([codes[label] for label in given.tolist()]), None, None


def evaluate_sites(sites: Sites, family: Any, level: float) -> Evaluation:
    """Ask sites, and put together what they answer."""
    answers, outcome = sites.score(), outcome_of(family)
    dispersion = bool(getattr(family, "has_dispersion", False))
    calibration: Calibration | None = None
    own: dict[str, Calibration] = {}
    notes: list[str] = []
    if has_calibration(family):
        own = {
            name: made
            for name, one in zip(sites.names, answers, strict=True)
            if (made := _own_calibration(one, dispersion, level)) is not None
        }
        try:
            calibration = calibrate(
                sites.calibrate, has_dispersion=dispersion, has_intercept=outcome != "times", start=_start(answers),
                level=level,
            )  # fmt: skip
        except ArgumentError as error:
            notes.append(f"no calibration: {error}")
    nulls: list[float] = []
    if outcome == "numbers" and family.is_likelihood:
        weight, total, _ = np.sum([one.totals for one in answers], axis=0)
        with np.errstate(all="ignore"):
            level_point = float(link_of(family.link, np.array(total / weight)))
        if np.isfinite(level_point):
            nulls = [one.deviance for one in sites.calibrate_each(np.array([level_point, 0.0]))]
    evaluation = summarise(
        sites.names, answers, family, level=level, calibration=calibration, site_calibration=own, null_deviances=nulls,
        exchanges=sites.exchanges, bits_up=sites.up, bits_down=sites.down,
    )  # fmt: skip
    evaluation.notes.extend(notes)
    return evaluation


def _own_calibration(answer: SiteScores, dispersion: bool, level: float) -> Calibration | None:
    """Return the calibration of a site by itself; None where it shows none, or has too few rows."""
    if not len(answer.own):
        return None
    names = ["intercept", "slope"] if len(answer.own) == 2 else ["slope"]
    try:
        table = coefficient_table(names, answer.own, answer.own_sums[0], has_dispersion=dispersion, level=level)
        return Calibration(table, wald_test(table, names, np.array([0.0, 1.0])[2 - len(names) :]), 0)
    except ArgumentError:
        return None


def _start(answers: list[SiteScores]) -> Array | None:
    """Return the mean of sites' own intercepts and slopes, weighted by what they know; None if some have none."""
    if not all(len(one.own) for one in answers):
        return None
    hessian = np.sum([one.own_sums[0].hessian for one in answers], axis=0)
    pulled = np.sum([one.own_sums[0].hessian @ one.own for one in answers], axis=0)
    found: Array = np.linalg.solve(hessian, pulled)
    return found
