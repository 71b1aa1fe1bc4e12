"""How good a fitted model is, at sites that may have had no part in the fit: asked of them as sums and counts."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.cohorts.serialization import pack
from fpdfp.errors import ArgumentError
from fpdfp.families import Binomial, Gaussian
from fpdfp.families.base import link_of
from fpdfp.federation.cohort import LocalCohort, TableCohort
from fpdfp.federation.predictions import Predictor
from fpdfp.federation.questions import (
    CalibrationQuestion,
    Distribution,
    EvaluationQuestion,
    ModelSpec,
    write_answer,
)
from fpdfp.federation.table import ModelRows
from fpdfp.inference import Information, coefficient_table, wald_test
from fpdfp.inference.calibration import Calibration, calibrate
from fpdfp.inference.intervals import quantile_of
from fpdfp.losses.classes import base_of
from fpdfp.models import tables
from fpdfp.models.formulas import Asking
from fpdfp.models.rows import column, row_weights
from fpdfp.models.site_effects import effects_of
from fpdfp.scores.base import outcome_of
from fpdfp.scores.evaluation import Evaluation, summarise
from fpdfp.scores.site import SiteScores, has_calibration, information_of, score_rows
from fpdfp.survival import Times


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
        """Return what each site tells of its rows."""
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
        """Return what sites tell of the model and, in the same exchange, of others with further coefficients."""
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


class Evaluating:
    """The part of an estimator that says how good its predictions are."""

    def evaluate(
        self: Any, X: Any, y: Any = None, groups: Any = None, *, sample_weight: Any = None, offset: Any = None,
        strata: Any = None, level: float = 0.95,
    ) -> Evaluation:  # fmt: skip
        """Return how good the model's predictions are, over all sites and at each; no prediction leaves a site.

        Sites may have had no part in the fit. They send sums and counts: see :doc:`validation </validation>`.

        Parameters
        ----------
        X
            For a model of a formula a federation, or a table with all columns of the formula, the response included;
            rows in which one is missing are left out, or filled in, as in the fit. Otherwise rows as in ``fit``.
        y
            The outcomes, as in ``fit``; None for a formula.
        groups
            The site of each row, or the name of the column that says so; None for a federation.
        sample_weight, offset, strata
            Of rows, without a formula: a formula has its own weights, offset and strata. Weights of classes do not
            count.
        level
            Of confidence limits.

        Returns
        -------
        fpdfp.scores.Evaluation
            Measures with confidence limits, ROC curves, calibration and residuals.

        Examples
        --------
        >>> import numpy as np
        >>> import fpdfp
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((600, 2))
        >>> y, hospital = (X[:, 0] + rng.logistic(size=600) > 0).astype(int), np.arange(600) % 3
        >>> model = fpdfp.FederatedLogisticRegression("none").fit(X[:300], y[:300], groups=hospital[:300])
        >>> found = model.evaluate(X[300:], y[300:], groups=hospital[300:])
        >>> {name: round(found.overall[name].value, 3) for name in ("auc", "accuracy", "calibration slope")}
        {'auc': 0.695, 'accuracy': 0.68, 'calibration slope': 0.993}
        """
        check_is_fitted(self)
        quantile_of(level)  # before sites are asked
        sites = self._sites_of(X, y, groups, sample_weight, offset, strata)
        return _evaluate(sites, self._predictor()[0].outcomes, level)

    def _sites_of(
        self: Any, X: Any, y: Any, groups: Any, sample_weight: Any, offset: Any, strata: Any
    ) -> Sites:  # fmt: skip
        """Return the sites that are asked."""
        if getattr(self, "formula_", None) is None:
            rows: Sites = self._rows_sites(X, y, groups, sample_weight, offset, strata)
            return rows
        for name, given in (("y", y), ("sample_weight", sample_weight), ("offset", offset), ("strata", strata)):
            if given is not None:
                raise ArgumentError(name, "must be None for a model of a formula, which says what it is")
        sites: Sites = self._cohort_sites(X, groups)
        return sites

    def _cohort_sites(self: Any, source: Any, groups: Any) -> Sites:
        """Return the sites of a cohort, or of a table."""
        if not isinstance(source, TableCohort):
            source = LocalCohort(source, groups)
        elif groups is not None:
            raise ArgumentError("groups", "must be None for a federation, whose sites are known")
        predictor, columns = self._predictor()
        plan, d = self.plan_, len(self.plan_.design.names)
        options = self._spec_options()
        effects = () if options.get("periods") else self._effect_sites()
        if effects:
            self._check_effects(list(source.names))
        distribution = None if predictor.family is None else Distribution.of(predictor.family)
        spec = ModelSpec(
            plan.design, plan.means, np.zeros(d), np.ones(d), columns == d + 1 + len(effects), predictor.kind,
            plan.classes, np.zeros(columns), distribution, effects=effects, **options,
        )  # fmt: skip
        return CohortSites(source, spec, predictor.x)

    def _effect_sites(self: Any) -> tuple[str, ...]:
        """Return the sites that have an intercept of their own."""
        count = np.shape(getattr(self, "_effects", ()))[-1]
        return tuple(map(str, self.sites_[len(self.sites_) - count :])) if count else ()

    def _check_effects(self: Any, names: list[str]) -> None:
        """Refuse sites whose intercept is not known."""
        known = list(map(str, self.sites_))
        strange = [name for name in names if name not in known]
        if strange and getattr(self, "site_effects", "none") == "fixed":
            raise ArgumentError(
                "X",
                f"must be of sites that had part in the fit, since each has an intercept: {', '.join(known)}; "
                f"got {', '.join(strange)} (site_effects='random' predicts for other sites)",
            )

    def _predictor(self: Any, *, with_effects: bool = True) -> tuple[Predictor, int]:
        """Return the model as sites have it, with the number of its columns: features, intercept, effects of sites."""
        kind = getattr(self, "_kind", None)
        coefficients, classes = np.atleast_2d(self.coef_), len(getattr(self, "classes_", ()))
        d, effects = coefficients.shape[1], np.asarray(getattr(self, "_effects", np.zeros(0)))
        effects = effects if with_effects else effects[..., :0]
        if kind == "Ordinal":
            x = np.concatenate([self.coef_, effects, self.thresholds_ - base_of(self.link, classes)])
            return Predictor(kind, x, classes, link=self.link), d + len(effects)
        constants = np.atleast_1d(np.asarray(self.intercept_, dtype=np.float64))
        whole = np.concatenate([coefficients, constants[:, None]], axis=1)
        if kind == "Multinomial":
            whole = np.concatenate([whole, effects], axis=1)
            return Predictor(kind, whole.ravel(), classes), whole.shape[1]
        if classes > 2:
            return Predictor("Softmax", whole, classes), d + 1
        family = getattr(self, "family_", None)
        if family is None and self._survives:
            return Predictor("Cox", coefficients[0]), d
        if len(getattr(self, "_periods", ())):
            return Predictor("GLM", np.concatenate([coefficients[0], effects + constants[0]]), family=family), (
                d + len(effects)
            )
        x = np.concatenate([whole[0], effects])
        plain = "Logistic" if classes else "LeastSquares"
        design = getattr(getattr(self, "plan_", None), "design", None)
        if family is None and design is not None and (design.weights is not None or design.offset is not None):
            family = Binomial() if classes else Gaussian()
        return Predictor("GLM" if family is not None else plain, x, family=family), len(x)

    def _rows_sites(self: Any, X: Any, y: Any, groups: Any, sample_weight: Any, offset: Any, strata: Any) -> Sites:
        """Return sites with rows of a matrix."""
        if isinstance(X, TableCohort):
            raise ArgumentError(
                "X", "must be rows, for a model that was fitted to rows; fit a formula for a federation"
            )
        if y is None:
            raise ArgumentError("y", "must be the outcomes of rows")
        rows = validate_data(self, tables.rows(X), accept_sparse="csr", dtype=np.float64, reset=False)
        count = rows.shape[0]
        predictor, columns = self._predictor(with_effects=False)
        if columns > rows.shape[1]:
            from fpdfp.models.base import append_columns

            rows = append_columns(rows, np.ones((count, 1)))
        labels = np.zeros(count, dtype=np.int64) if groups is None else _checks.host_array("groups", groups)
        if labels.shape != (count,):
            raise ArgumentError("groups", f"must name the site of each of the {count} rows, got shape {labels.shape}")
        found, owner = _checks.labels("groups", labels)
        names = [str(one) for one in found]
        shifts = None if offset is None else self._read_shifts(offset, predictor.kind, count)
        if self._effect_sites():
            self._check_effects(names)
            random = self.site_effects == "random"
            own = effects_of([names[one] for one in owner], self.sites_, self._effects, count, random=random).T
            shifts = own if shifts is None else shifts.reshape(count, *[-1] * (own.ndim - 1)) + own
        weights, _ = row_weights(sample_weight, count)
        targets, times, labels = self._outcomes(y, strata, predictor, count)
        parts = []
        for site in range(len(names)):
            some = owner == site
            own_times = None if times is None else Times(*(one[some] for one in times))
            own_weights, own_shifts, own_labels = (
                None if one is None else one[some] for one in (weights, shifts, labels)
            )
            parts.append(ModelRows(rows[some], targets[some], own_weights, own_shifts, own_times, own_labels))
        return RowsSites(names, parts, predictor)

    def _read_shifts(self: Any, offset: Any, kind: str, count: int) -> Array:
        """Return the offset of each row; of classes perhaps one for each but the reference."""
        if kind == "Softmax":
            raise ArgumentError("offset", "must be None for more than two classes without a reference")
        found: Array = self._read_offset(offset, count) if kind == "Multinomial" else column("offset", offset, count)
        return found

    def _outcomes(
        self: Any, y: Any, strata: Any, predictor: Predictor, count: int
    ) -> tuple[Array, Times | None, Array | None]:
        """Return the outcomes of rows as numbers, and where they are times these and their strata."""
        outcome = outcome_of(predictor.outcomes)
        if outcome == "times":
            from fpdfp.models.cox import _read_rows

            made = _read_rows(np.zeros((count, 0)), y, strata, None, None)
            return made.y, made.times, made.strata
        if strata is not None:
            raise ArgumentError("strata", "must be None for models of other outcomes than times")
        given = np.asarray(tables.targets(y))
        if given.shape != (count,):
            raise ArgumentError("y", f"must have an outcome for each of the {count} rows, got shape {given.shape}")
        if not hasattr(self, "classes_"):
            targets = column("y", given, count)
            if outcome in ("binary", "numbers"):
                (predictor.family or Gaussian()).check(targets)
            return targets, None, None
        classes = list(self.classes_)
        if predictor.kind == "Multinomial":  # the reference is first
            classes = [self.reference_, *self.others_]
        codes = {label: float(code) for code, label in enumerate(classes)}
        strange = [label for label in given.tolist() if label not in codes]
        if strange:
            shown = ", ".join(map(str, self.classes_))
            raise ArgumentError("y", f"must be classes that the model knows, {shown}, got {strange[0]!r}")
        return np.array([codes[label] for label in given.tolist()]), None, None


def _evaluate(sites: Sites, family: Any, level: float) -> Evaluation:
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
    """Return the calibration of a site by itself; None where it tells none, or has too few rows."""
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
