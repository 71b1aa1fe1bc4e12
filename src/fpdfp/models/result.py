"""The result of a fit: coefficients, their covariance, tests, predictions, evaluations, and what a report shows."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, Literal, get_args

import numpy as np
from sklearn.utils import check_array

from fpdfp import _checks
from fpdfp._sections import Section
from fpdfp._typing import Array
from fpdfp.datasets import FeatureGraph
from fpdfp.engines import Result
from fpdfp.engines.loop import Iterates
from fpdfp.engines.prepare import RunOptions
from fpdfp.errors import ArgumentError
from fpdfp.families import Binomial
from fpdfp.federation.cohort import LocalCohort, TableCohort
from fpdfp.federation.questions import MOST_POINTS, ModelSpec, ProportionalityQuestion
from fpdfp.federation.table import DIGITS, SiteTable, read_clusters, read_strata, read_times
from fpdfp.formula.coding import Design, InverseWeights
from fpdfp.formula.tree import Coded, Poly, Spline, Survival
from fpdfp.inference import (
    Heterogeneity,
    HeterogeneityTable,
    HypothesisTest,
    Information,
    Summary,
    Table,
    coefficient_table,
    debias,
    likelihood_ratio_test,
    site_tables,
    variance_inflation,
    wald_test,
)
from fpdfp.inference.covariances import Kind
from fpdfp.inference.heterogeneity import SiteErrors
from fpdfp.inference.hypotheses import judge
from fpdfp.inference.intervals import quantile_of
from fpdfp.inference.table import format_number
from fpdfp.models.evaluation import CohortSites, Sites, evaluate_sites, sites_of
from fpdfp.models.formulas import Plan
from fpdfp.models.outcomes import Classes, Compared, Hazards, Ordered, Outcome, Scaled, Symmetric
from fpdfp.models.penalty import Columns, Firth, Limits, ModelPenalty, Names
from fpdfp.models.random_effects import Variances
from fpdfp.models.rows import as_rows, column, read_response
from fpdfp.privacy.accounting import Spent
from fpdfp.runs.recorder import linear_model, write_result
from fpdfp.scores.evaluation import Evaluation, summarise
from fpdfp.scores.learning import LearningCurve
from fpdfp.selection.curves import Curves
from fpdfp.selection.paths import Path
from fpdfp.survival import Baseline, Concordance, SurvivalCurves
from fpdfp.survival.proportionality import Proportionality, ProportionalityTests, Transform


def name_outcome(response: str, kind: str, classes: Any) -> str:
    """Return what is modelled: the level whose chance rises with a positive coefficient, or the order of classes.

    Parameters
    ----------
    response
        The response as the formula has it; ``"y"`` for a matrix.
    kind
        ``"survival"``, ``"ordinal"``, ``"multinomial"``, ``"classes"`` of which each has coefficients, ``"event"`` for
        one of two, or ``"number"``.
    classes
        The classes, in the order of the model; empty for numbers.

    Examples
    --------
    >>> name_outcome("died", "event", ["no", "yes"])
    'died = yes'
    >>> name_outcome("pain", "ordinal", ["low", "medium", "high"])
    'pain: low < medium < high'
    >>> name_outcome("Surv(months, died)", "survival", [])
    'the hazard of died = 1'
    """
    if kind == "survival":
        return f"the hazard of {response.removeprefix('Surv(').removesuffix(')').rpartition(',')[2].strip() or 'y'} = 1"
    shown = [str(one) for one in classes]
    if kind == "ordinal":
        return f"{response}: {' < '.join(shown)}"
    if kind == "multinomial":
        return f"{response}, against {shown[0]}: {', '.join(shown[1:])}"
    if kind == "classes":
        return f"{response}: {', '.join(shown)}"
    return f"{response} = {shown[-1] if shown else 1}" if kind == "event" else response


def name_ratio(family: str, link: str) -> str | None:
    """Return what exp of a coefficient is; None where it is nothing.

    >>> name_ratio("binomial", "logit"), name_ratio("poisson", "log"), name_ratio("gaussian", "identity")
    ('odds ratio', 'rate ratio', None)
    """
    if family == "Cox" or link == "cloglog":
        return "hazard ratio"
    if link == "logit":
        return "odds ratio"
    if link in ("log", "log(mu-1)"):
        ratios = {"poisson": "rate ratio", "negative binomial": "rate ratio", "binomial": "risk ratio"}
        return ratios.get(family.removeprefix("quasi-"), "ratio of means") if link == "log" else None
    return None


def name_references(design: Design) -> dict[str, str]:
    """Return the reference level of each categorical factor that has one."""
    factors = [factor for term in design.terms for factor in term.factors if isinstance(factor, Coded)]
    return {one.name: str(one.levels[one.reference]) for one in factors if one.reference is not None}


def name_knots(design: Design) -> dict[str, str]:
    """Return the knots that were placed at quantiles, and the centres of orthogonal polynomials."""
    named = {}
    for factor in (factor for term in design.terms for factor in term.factors):
        if isinstance(factor, Spline) and "df=" in factor.name:
            inner = ", ".join(f"{knot:g}" for knot in factor.knots)
            named[f"knots of {factor.name}"] = f"{inner or 'none'}; bounds {factor.lower:g} and {factor.upper:g}"
        if isinstance(factor, Poly):
            named[f"centres of {factor.name}"] = ", ".join(f"{one:.6g}" for one in factor.centres)
    return named


#: Why there are no standard errors of coefficients with limits.
BOUNDED = (
    "Coefficients have bounds: at a bound an estimate is not normal, so standard errors and intervals from the plain "
    "formula would be wrong, and they are not shown."
)


#: Why there are no baselines, predictions and concordances.
VARIES = "effects change with time"
#: The most that coefficients are taken to be of the rows near a quantile.
MOST_OWN = 0.9


@dataclasses.dataclass(frozen=True)
class EventTimes:
    """Results for event times besides the coefficients.

    Attributes
    ----------
    baselines
        By site and by stratum, the baseline hazard; None if a site refuses, and ``refused`` says why.
    concordance
        The concordance of risks and times within sites and strata; None if a site refuses.
    """

    baselines: dict[str, dict[str, Baseline]] | None
    concordance: Concordance | None
    refused: str | None

    @property
    def events(self) -> dict[str, int] | None:
        """The number of events of each site; None without baselines."""
        if self.baselines is None:
            return None
        return {name: int(sum(one.events.sum() for one in strata.values())) for name, strata in self.baselines.items()}


@dataclasses.dataclass(frozen=True)
class Choice:
    """The result of a cross-validation: see :class:`fpdfp.FederatedLogisticRegressionCV`."""

    alpha: float
    alpha_min: float
    alpha_1se: float
    alphas: Array
    scores: Array
    mean_score: Array
    score_error: Array
    score_bound: float
    curves: Curves
    path: Path


@dataclasses.dataclass(frozen=True, eq=False)
class FitResult:
    """A fitted model, which nothing changes.

    Models keep it as ``fitted_``; their attributes with an underscore at the end are its fields.

    Attributes
    ----------
    title, outcome, names
        The name of the model, the kind of its outcome, and the names of its features.
    coef, intercept, effects, thresholds
        The coefficients of features as they were given, the intercept, the intercepts of sites or periods, and the
        thresholds of ordered classes.
    sites, rows, left_out, excluded
        The sites, their rows that were used and excluded, and the sites that have refused.
    formula, plan
        The formula and its coding; None for a matrix.
    penalty, refusal, graph
        The penalty with its weight; why standard errors are missing; the graph of features.
    status, n_iter, n_steps, bits_up, bits_down, exchanges
        How the fit ended, its rounds, how many problems were solved, all bits, and all exchanges with sites by purpose.
    run, iterates, options, columns, scaled, ridge
        The last run, iterates of all, the options, the columns of x with their scaling, and the ridge that sites were
        sent; None for a model that was read from a file.
    deviance, null_deviance, information
        The deviance, the null deviance, and the sums of each site at the coefficients
        (:class:`fpdfp.inference.Information`); None where they were not requested.
    privacy
        What a private fit has cost: ε, δ, their unit, and what was released; None for another.
    variances
        Those of random intercepts of sites.
    effective_rows
        How many rows near a quantile the density of the residuals is estimated from; None for other families.
    aliased
        The coefficients of a formula that are not estimated, since other columns determine theirs.
    condition
        The condition of the rows that were used; empty for all.
    """

    title: str
    outcome: Outcome
    names: Names
    named: bool
    sites: Array
    rows: dict[str, int]
    left_out: dict[str, int]
    formula: str | None
    plan: Plan | None
    coef: Array
    intercept: Any
    effects: Array
    thresholds: Array | None
    has_intercept: bool
    penalty: ModelPenalty
    refusal: str | None
    status: str
    deviance: float
    graph: FeatureGraph | None = None
    run: Result | None = None
    iterates: Iterates | None = None
    options: RunOptions | None = None
    columns: Columns | None = None
    scaled: Scaled | None = None
    limits: Limits | None = None
    ridge: Array | None = None
    standardized: bool = False
    n_iter: int = 0
    n_steps: int = 1
    bits_up: int = 0
    bits_down: int = 0
    exchanges: dict[str, int] = dataclasses.field(default_factory=dict)
    information: list[Information] | None = None
    saturated: float = 0.0
    null_parameters: int = 0
    null_deviance: float | None = None
    score_statistic: float | None = None
    privacy: Spent | None = None
    variances: Variances | None = None
    theta: float | None = None
    theta_standard_error: float | None = None
    effective_rows: float | None = None
    times: EventTimes | None = None
    choice: Choice | None = None
    run_folder: FilePath | None = None
    aliased: tuple[str, ...] = ()
    excluded: Mapping[str, str] = dataclasses.field(default_factory=lambda: types.MappingProxyType({}))
    condition: str = ""

    # What models show as attributes.

    def attribute(self, name: str) -> Any:
        """Return what a model shows under a name with an underscore at the end."""
        name = name.removesuffix("_")
        if name in SHOWN:
            return getattr(self, name)
        value = None
        if name in PRESENT:
            value = getattr(self, name)
        elif name in ALIASES:
            value = ALIASES[name](self)
        elif self.times is not None and name in ("baselines", "concordance", "events"):
            return getattr(self.times, name)
        elif self.choice is not None and hasattr(self.choice, name):
            value = getattr(self.choice, name)
        elif name == "score_statistic" and isinstance(self.outcome, Hazards):
            return self.score_statistic
        if value is None:
            raise AttributeError(f"{self.title!r} object has no attribute '{name}_'")
        return value

    @property
    def site_names(self) -> list[str]:
        """The names of the sites."""
        return list(map(str, self.sites))

    @property
    def coefficients(self) -> dict[str, Any]:
        """The coefficients by name, the intercept first; for several classes by class."""
        found = self.outcome.coefficients(self)
        return {
            name: {one: number for one, number in value.items() if f"{name}: {one}" not in self.aliased}
            if isinstance(value, dict) else value
            for name, value in found.items() if name not in self.aliased
        }  # fmt: skip

    @property
    def fixed_effects(self) -> Array:
        """The intercepts of sites that have standard errors: none if they are random."""
        return self.effects if self.variances is None else self.effects[..., :0]

    def rows_by_name(self) -> list[dict[str, float]]:
        """Return each row of coefficients by name, the intercept first."""
        first = ["Intercept"] if self.has_intercept else []
        names = [*first, *map(str, self.names.features)]
        coefficients, constants = np.atleast_2d(self.coef), np.atleast_1d(self.intercept)
        return [
            dict(zip(names, map(float, [*([constant] if first else []), *row]), strict=True))
            for constant, row in zip(constants, coefficients, strict=True)
        ]

    # Standard errors, tests and differences between sites.

    @property
    def penalised(self) -> bool:
        """Whether anything was penalised."""
        return self.penalty.penalises

    def flat(self) -> tuple[list[str], Array]:
        """Return the names of all coefficients and their values, in the order of the sums of sites."""
        names = self.outcome.names_of(self)
        values = self.outcome.values(self)
        kept = [j for j, name in enumerate(names) if name not in self.aliased]
        return [names[j] for j in kept], values[kept]

    def _needed(self) -> list[Information]:
        if self.information is None:
            raise ArgumentError(
                "inference",
                "must be True when the model is fitted, so that sites send the sums that standard errors need",
            )
        return self.information

    def _ordered(self) -> tuple[list[str], Array, list[Information]]:
        """Return names, coefficients and sums in the order of tables: the intercept first."""
        sites, (names, values) = self._needed(), self.flat()
        order = self.outcome.order(names)
        return [names[j] for j in order], values[order], [site.take(order) for site in sites]

    def table(self, *, errors: Kind = "model", level: float = 0.95, exponentiate: bool = False) -> Table:
        """Return the coefficients with standard errors, tests and confidence intervals.

        Parameters
        ----------
        errors
            ``"model"``, ``"robust"`` (also ``"HC0"``, ``"HC1"``), ``"sites"`` or ``"jackknife"``: see
            :func:`fpdfp.inference.covariance`. For quantiles, which are no model of a distribution, ``"model"`` means
            ``"HC0"`` with a correction for few rows near the quantile: see :class:`fpdfp.families.Quantile`.
            With :class:`fpdfp.InverseProbability` it means ``"HC0"``. For Cox models, and with ``cluster(…)`` in the
            formula, ``"robust"`` means ``"HC0"``, as R's ``coxph(robust=TRUE)``; with clusters the scores of rows that
            belong together are added up first.
        level
            Of the intervals.
        exponentiate
            Whether to show odds, rate or hazard ratios.
        """
        if self.limits is not None or self.refusal == BOUNDED:
            raise ArgumentError("bounds:", BOUNDED)
        family = self.outcome.likelihood
        kind = errors
        if errors == "model" and (not family.is_likelihood or self.inverse is not None):
            kind = "HC0"
        cluster = None if self.plan is None else self.plan.design.cluster
        if kind == "robust" and (isinstance(self.outcome, Hazards) or cluster is not None):
            kind = "HC0"
        found = coefficient_table(
            *self._ordered(), has_dispersion=family.has_dispersion, errors=kind, level=level,
            exponentiate=exponentiate, penalty=self.penalty.describe() if self.penalised else "none",
        )  # fmt: skip
        if errors == "model" and self.effective_rows is not None:
            found = _correct_quantile(found, self.effective_rows)
        if cluster is not None and kind in ("HC0", "HC1"):
            found = dataclasses.replace(found, errors=f"{found.errors}, clustered by {cluster.column}")
        if kind == "model" and isinstance(self.outcome, Ordered | Hazards):
            found = dataclasses.replace(found, errors="of the model (observed information)")
        return found

    def summary(self, *, errors: Kind = "model", level: float = 0.95, ratios: bool | None = None) -> Summary:
        """Return coefficients by name, with standard errors, tests and intervals; ``print`` shows it.

        With a penalty standard errors are missing, and a sentence explains why. The deviance of a Cox model is minus
        twice the partial log-likelihood, which has no degrees of freedom of residuals.

        Parameters
        ----------
        errors, level
            As of :meth:`table`.
        ratios
            Whether odds, rate or hazard ratios with their limits are besides the coefficients; None for where the link
            makes them meaningful.
        """
        ratio = self._ratio() if ratios is not False else None
        if ratios and ratio is None:
            raise ArgumentError(
                "ratios", "must not be True: the exponential of a coefficient of this model is not a ratio"
            )
        family, sites = self.outcome.likelihood, self.information
        more: dict[str, Any] = {}
        if sites is not None and family is not None:
            p, rows = len(self.flat()[0]), sum(site.rows for site in sites)  # those of weight 0 do not count
            weight = sum(site.weight for site in sites)
            random, survives = self.variances is not None, isinstance(self.outcome, Hazards)
            unknown = random or self.privacy is not None or self.inverse is not None
            likelihood = None if unknown else family.log_likelihood(self.deviance, self.saturated, weight, rows)
            more = {
                "family": f"{family.name}, link {family.link}",
                "has_dispersion": family.has_dispersion,
                "dispersion": sum(sites[1:], sites[0]).dispersion() if family.has_dispersion else None,
                "log_likelihood": likelihood,
                "null_deviance": self.null_deviance,
                "df_residual": None if self.penalised or survives else rows - p,
                "df_null": None if survives else rows - self.null_parameters,
                "exchanges": self.exchanges,
                "further_parameters": int(self.theta is not None and np.isfinite(self.theta)),
            }
            if self.refusal is not None:
                more["refused"] = self.refusal
            else:
                table = self.table(errors=errors, level=level)
                constants = tuple(name for name in table.names if self.outcome.is_intercept(name, self))
                more["table"] = dataclasses.replace(table, ratios=ratio, constants=constants)
        elif self.refusal is not None:
            more["refused"] = self.refusal
        return Summary(
            title=self.title,
            formula=self.formula,
            outcome=self._name_outcome(),
            references={} if self.plan is None else name_references(self.plan.design),
            events=self._count_events(),
            notes=self._remarks(),
            coefficients=self.coefficients,
            sites=list(self.rows),
            rows=list(self.rows.values()),
            left_out=list(self.left_out.values()),
            deviance=self.deviance,
            penalty=self.penalty.describe(),
            status=self.status,
            rounds=self.n_iter,
            bits_up=self.bits_up,
            bits_down=self.bits_down,
            more=({"rows with": self.condition} if self.condition else {})
            | ({} if self.plan is None else name_knots(self.plan.design))
            | self._more()
            | {f"without {name}": why for name, why in self.excluded.items()},
            **more,
        )

    def _ratio(self) -> str | None:
        """Return what exp of a coefficient is."""
        family = self.outcome.likelihood
        return None if family is None else name_ratio(family.name, family.link)

    def _name_outcome(self) -> str:
        """Return what is modelled."""
        outcome, plan = self.outcome, self.plan
        response = "y" if plan is None else str(self.formula).partition("~")[0].strip()
        labels = list(outcome.labels if isinstance(outcome, Classes) else () if plan is None else plan.classes)
        if not labels and outcome.classes is not None:
            labels = list(outcome.classes)
        binomial = isinstance(outcome.likelihood, Binomial)
        kinds = {Hazards: "survival", Ordered: "ordinal", Compared: "multinomial", Symmetric: "classes"}
        kind = kinds.get(type(outcome), "event" if labels or binomial else "number")
        return name_outcome(response, kind, labels)

    def _count_events(self) -> int | None:
        """Return how many rows have the modelled level; None where that is not known."""
        if self.times is not None:
            return None if self.times.events is None else sum(self.times.events.values())
        return self.plan.counts[-1] if self.plan is not None and len(self.plan.counts) == 2 else None

    def _remarks(self) -> list[str]:
        """Return what a reader should know of the coefficients."""
        remarks = []
        if isinstance(self.penalty, Firth):
            remarks.append("Firth's penalty: where outcomes are separated use profile_intervals, not the limits above")
        if self.privacy is not None:
            remarks.append(str(self.privacy))
        if self.aliased:
            remarks.append(f"not estimated, since other columns determine them: {', '.join(self.aliased)}")
        if self.plan is not None and self.plan.design.cluster is not None:
            remarks.append(f"rows belong together by {self.plan.design.cluster.column}: see errors='robust'")
        if self.inverse is not None:
            remarks.append("weights are inverse probabilities, which standard errors take for known")
        if self.imputed:
            remarks.append(
                f"means were put in where {', '.join(self.imputed)} had no value: standard errors take them for known, "
                "and are too small"
            )
        return remarks

    @property
    def imputed(self) -> tuple[str, ...]:
        """The columns in which means were put that standard errors take for known."""
        if self.plan is None or self.information is None or self.penalised:
            return ()
        return self.plan.imputed

    def _more(self) -> dict[str, Any]:
        """Return further lines of the summary."""
        if self.outcome.family is not None and self.outcome.family.name == "quantile":
            return {"smoothing width": self.outcome.family.parameters[1]}
        if self.variances is not None:
            names = self.outcome.effect_names(self.site_names, len(self.effects))
            told = (f"{name[5:-1]} {format_number(float(b))}" for name, b in zip(names, self.effects, strict=True))
            return {"variance of site effects, τ²": float(self.variances.variance), "site effects": ", ".join(told)}
        if self.theta is not None:
            return {"theta": self.theta, "its standard error": self.theta_standard_error}
        if self.times is None:
            return {}
        lines: dict[str, Any] = {}
        if self.times.concordance is not None:
            lines[""] = str(self.times.concordance)
        if self.null_deviance is not None and not self.penalised and self.inverse is None:
            count = len(self.coef)
            lines["likelihood ratio"] = judge("", self.null_deviance - self.deviance, count, None)
            lines["score"] = judge("", float(self.score_statistic or 0.0), count, None)
        return {name: str(value).removeprefix(": ") for name, value in lines.items()}

    def wald_test(self, hypothesis: Any, values: Any = 0.0, *, errors: Kind = "model") -> HypothesisTest:
        """Test that some coefficients, by name, or linear combinations of all are 0 (:func:`inference.wald_test`)."""
        return wald_test(self.table(errors=errors), hypothesis, values)

    @property
    def inverse(self) -> InverseWeights | None:
        """The inverse probabilities that weigh rows; None where something else does, or nothing."""
        weights = None if self.plan is None else self.plan.design.weights
        return weights if isinstance(weights, InverseWeights) else None

    def compare(self, larger: FitResult) -> HypothesisTest:
        """Test this model against a larger one of the same rows, of which it is a special case."""
        if self.privacy is not None or larger.privacy is not None:
            raise RuntimeError("private fits have no likelihood to compare: sites release none")
        if self.inverse is not None or larger.inverse is not None:
            raise ArgumentError("model", "must not have inverse probabilities as weights: use wald_test")
        return likelihood_ratio_test(self.summary(), larger.summary())

    def variance_inflation(self) -> dict[str, tuple[float, int, float]]:
        """Return the variance inflation factor of each term, its columns, and the factor's root by columns."""
        if isinstance(self.outcome, Compared):
            raise ArgumentError("model", "must have one linear predictor for variance inflation; this one has several")
        sites, (names, _) = self._needed(), self.flat()
        hessian = sum(sites[1:], sites[0]).hessian
        if isinstance(self.outcome, Ordered):  # as of models with an intercept
            count = len(names) - len(self.outcome.threshold_names())
            cross, inner = hessian[:count, count:], hessian[count:, count:]
            hessian, names = hessian[:count, :count] - cross @ np.linalg.solve(inner, cross.T), names[:count]
        return variance_inflation(hessian, names, self._terms())

    def _terms(self) -> dict[str, Any] | None:
        """Return the names of the columns of each term of the formula; None for a matrix."""
        if self.plan is None:
            return None
        terms: dict[str, Any] = {}
        for name, term in zip(self.plan.design.names, self.plan.design.term_of_each, strict=True):
            if name not in self.aliased:
                terms.setdefault(term, []).append(name)
        return terms

    def site_tables(
        self, *, errors: SiteErrors = "model", level: float = 0.95, exponentiate: bool = False
    ) -> dict[str, Table | None]:
        """Return the coefficients that each site by itself would have, by one Newton step from the common ones.

        No further exchange is needed. Where a site differs much the step is not its own fit:
        :func:`fpdfp.fit_sites` makes that. ``errors`` is ``"model"``, ``"HC0"``, ``"HC1"`` or ``"robust"``;
        ``level`` and ``exponentiate`` are as in :meth:`table`.
        """
        names, values, sites = self._ordered()
        family = self.outcome.likelihood
        if errors == "model" and (not family.is_likelihood or self.inverse is not None):
            errors = "HC0"
        found = site_tables(
            names, values, sites, has_dispersion=family.has_dispersion, errors=errors, level=level,
            exponentiate=exponentiate,
        )  # fmt: skip
        return dict(zip(self.rows, found, strict=True))

    def heterogeneity(
        self, name: str, *, errors: SiteErrors = "model", level: float = 0.95, exponentiate: bool = False
    ) -> Heterogeneity:
        """Return how much a coefficient differs between sites: Cochran's Q, I², pooled estimates, a forest plot.

        The estimates of sites, and the arguments, are as in :meth:`site_tables`.
        """
        tables = self.site_tables(errors=errors, level=level, exponentiate=exponentiate)
        return Heterogeneity.of_tables(name, tables)

    def heterogeneity_table(
        self, *, errors: SiteErrors = "model", level: float = 0.95, exponentiate: bool = False
    ) -> HeterogeneityTable:
        """Return how much every coefficient differs between sites: a table of Cochran's Q, I² and τ².

        The estimates of sites, and the arguments, are as in :meth:`site_tables`.
        """
        return HeterogeneityTable.of_tables(self.site_tables(errors=errors, level=level, exponentiate=exponentiate))

    def debiased_table(
        self,
        *,
        unpenalised: Sequence[str] = (),
        node_alpha: float | None = None,
        errors: Literal["model", "HC0"] = "model",
        level: float = 0.95,
        exponentiate: bool = False,
    ) -> Table:
        """Return corrected coefficients of a fit with a penalty, with intervals: the debiased lasso.

        The model must have been made with ``inference=True``. The assumptions, and the arguments, are as in
        :func:`fpdfp.inference.debias`.

        Parameters
        ----------
        unpenalised
            Names of coefficients that have no penalty, besides intercepts.
        node_alpha, errors, level, exponentiate
            As there.
        """
        names, values, sites = self._ordered()
        constants = [name for name in names if self.outcome.is_intercept(name, self)]
        return debias(
            names, values, sites, has_dispersion=self.outcome.likelihood.has_dispersion,
            unpenalised=[*constants, *unpenalised], node_alpha=node_alpha, errors=errors, level=level,
            exponentiate=exponentiate,
        )  # fmt: skip

    # Predictions.

    def matrix(self, X: Any) -> Any:
        """Return rows of a matrix, checked; rows of a table for a formula unchanged."""
        if self.plan is not None:
            return X
        rows = check_array(as_rows(X), accept_sparse="csr", dtype=np.float64)
        if rows.shape[1] != len(self.names.features):
            raise ArgumentError("X", f"must have {len(self.names.features)} columns, got {rows.shape[1]}")
        return rows

    def code(self, X: Any) -> Any:
        """Return the features of rows: of a matrix, or of a table coded as that which was fitted."""
        if self.plan is None:
            return self.matrix(X)
        design, table = self.plan.design, X if isinstance(X, SiteTable) else SiteTable.read(X, derives=True)
        lacking = ~design.complete(table, response=False)
        if lacking.any():
            used = [name for name in table.columns if name in design.columns and table.columns[name].missing.any()]
            raise ArgumentError(
                "X",
                f"must have a value for every column of the formula, but {int(lacking.sum())} of {len(table)} rows "
                f'lack one of {", ".join(map(repr, used))}; leave them out, or fit with missing="mean" or "indicator"',
            )
        return table.matrix_of(design, self.plan.means)

    def scores(self, X: Any) -> Array:
        """Return Xw + b, a column for each row of ``coef``."""
        found: Array = self.code(X) @ np.atleast_2d(self.coef).T + self.intercept
        return found

    def shift(self, scores: Array, X: Any, offset: Any) -> Array:
        """Return scores with the offset of the formula, if it has one, and a further one."""
        if self.plan is not None and self.plan.design.offset is not None:
            table = X if isinstance(X, SiteTable) else SiteTable.read(X, derives=True)
            scores = scores + table.number("the offset", self.plan.design.offset)
        return scores if offset is None else scores + column("offset", offset, len(scores))

    def decision_function(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the linear predictors of rows; see :meth:`predict`."""
        return self.outcome.decide(self, X, offset, site)

    def predict(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the expected outcome, the most probable class, or the logarithm of the hazard ratio of each row.

        Parameters
        ----------
        X
            Rows, or a table with the columns of the formula.
        offset
            What is added to the linear predictor; with a formula that has an offset, in addition to that.
        site
            With site effects: the site of the rows, or of each. Random effects of other sites, or of none, are 0.
        """
        return self.outcome.respond(self, X, offset, site)

    def predict_log_proba(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the logarithms of the classes' probabilities; see :meth:`predict`."""
        return self.outcome.chances(self, X, offset, site)

    def predict_proba(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the classes' probabilities, in the order of the classes; see :meth:`predict`."""
        if isinstance(self.outcome, Ordered):
            return self.outcome.probabilities(self, X, offset, site)
        return np.exp(self.outcome.chances(self, X, offset, site))

    def predict_hazards(self, X: Any, *, offset: Any = None) -> Array:
        """Return the probability of an event in each period, if none came before; a row for each row."""
        if not getattr(self.outcome, "periods", ()):
            raise ArgumentError("periods", "must be given when the model is fitted, for hazards")
        found: Array = self.outcome.likelihood.mean(self.decision_function(X, offset=offset)[:, None] + self.effects)
        return found

    def predict_survival(
        self, X: Any, times: Any = None, *, site: Any = None, stratum: str | None = None, level: float = 0.95
    ) -> SurvivalCurves:
        """Return the probability of no event up to given times, for each row.

        Parameters
        ----------
        X
            Rows, or a table with the columns of the formula.
        times
            Times; by default those at which the site shows its hazard.
        site, stratum
            Whose baseline hazard to use: one of ``baselines_``. Needed where there are several.
        level
            Of the confidence intervals, which there are for a fit without a penalty.
        """
        hazard = self._baseline_of(site, stratum)
        hazard = hazard if times is None else hazard.at(times)
        rows = self.code(X)
        dense = rows.toarray() if hasattr(rows, "toarray") else rows
        known = self.information is not None and not self.penalised
        covariance = self.table().covariance if known else None
        return hazard.curves(dense, self.coef, covariance, offset=self.predict(X) - dense @ self.coef, level=level)

    def _baseline_of(self, site: Any, stratum: str | None) -> Baseline:
        """Return the baseline hazard of a site and a stratum."""
        if self.times is None or self.times.baselines is None:
            why = "the model is not one of times" if self.times is None else self.times.refused
            raise ArgumentError("baseline", f"is not known: {why}")
        baselines = self.times.baselines
        if site is None and len(baselines) > 1:
            raise ArgumentError("site", f"must say whose baseline hazard to use: one of {', '.join(baselines)}")
        strata = baselines.get(str(site) if site is not None else next(iter(baselines)))
        if strata is None:
            raise ArgumentError("site", f"must be one of {', '.join(baselines)}, got {site!r}")
        if stratum is None and len(strata) == 1:
            return next(iter(strata.values()))
        if stratum is None or str(stratum) not in strata:
            raise ArgumentError("stratum", f"must be one of {', '.join(map(repr, strata))}, got {stratum!r}")
        return strata[str(stratum)]

    def concordance_of(self, X: Any, y: Any = None, *, strata: Any = None, sample_weight: Any = None) -> Concordance:
        """Return the concordance of risks with the times of rows, compared within strata alone.

        With a formula, X is a table with times and strata, and y is None.
        """
        risk = self.predict(X)
        if y is None:
            design = None if self.plan is None else self.plan.design
            if design is None or not isinstance(design.response, Survival):
                raise ArgumentError("y", "must be the times of rows")
            table = X if isinstance(X, SiteTable) else SiteTable.read(X, derives=True)
            times, strata = read_times(design.response, table), read_strata(design.strata, table)
            clusters = None if design.cluster is None else read_clusters(design.cluster.column, table)
        else:
            times, clusters = read_response(y, len(risk)), None
        risk = np.round(risk, DIGITS)
        return Concordance.of(times, risk, strata=strata, weights=sample_weight, clusters=clusters)

    def check_proportional_hazards(
        self, X: Any, groups: Any = None, *, transform: Transform = "log"
    ) -> ProportionalityTests:
        """Test whether coefficients of a Cox model change with time, as R's ``cox.zph``.

        It is the score test of Grambsch and Therneau (1994) of a coefficient that changes with g(t), for each term of
        the formula and for all together. Sites send sums over their events, hazards of sites are their own.

        Parameters
        ----------
        X, groups
            The table, or the federation, that was fitted with a formula, and the sites of its rows.
        transform
            g: ``"log"`` or ``"identity"``. Kaplan and Meier's transform and ranks are of all rows together, which no
            site knows.
        """
        if self.plan is None or not isinstance(self.outcome, Hazards):
            raise ArgumentError("model", "must be a Cox model of a formula for a test of proportional hazards")
        if self.plan.design.varies:
            raise ArgumentError("model", f"must have proportional hazards to test, but {VARIES}")
        _checks.choice("transform", transform, get_args(Transform))
        cohort = (X if isinstance(X, TableCohort) else LocalCohort(X, groups)).at_level()
        d, kept = len(self.coef), [j for j, name in enumerate(self.names.features) if name not in self.aliased]
        spec = ModelSpec(
            self.plan.design, self.plan.means, np.zeros(d), np.ones(d), False, "Cox", (), np.zeros(d),
            weight_scale=self.plan.weight_scale, ties=self.outcome.ties,
        )  # fmt: skip
        sums: Proportionality = cohort.ask(ProportionalityQuestion(spec, self.coef.astype(np.float64), transform)).sums
        whole = sums.take(kept)
        terms: dict[str, list[int]] = {}
        for place, j in enumerate(kept):
            terms.setdefault(self.names.terms[j], []).append(place)
        return ProportionalityTests({name: whole.test(own, name) for name, own in terms.items()}, whole.test())

    # How good the predictions are.

    def evaluate(
        self, X: Any, y: Any = None, groups: Any = None, *, sample_weight: Any = None, offset: Any = None,
        strata: Any = None, level: float = 0.95,
    ) -> Evaluation:  # fmt: skip
        """Return how good the model's predictions are, over all sites and at each; no prediction leaves a site.

        Sites may have had no part in the fit. They send sums and counts: see :doc:`validation </validation>`.

        Parameters
        ----------
        X
            For a model of a formula a federation, or a table with all columns of the formula, the response included;
            rows in which one is missing are excluded or imputed, as in the fit. Otherwise rows as in ``fit``.
        y
            The outcomes, as in ``fit``; None for a formula.
        groups
            The site of each row, or the name of the column that states it; None for a federation.
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
        quantile_of(level)  # before sites are asked
        sites = sites_of(self, X, y, groups, sample_weight, offset, strata)
        return evaluate_sites(sites, self._predicted_outcomes(), level)

    def _predicted_outcomes(self) -> Any:
        return self.outcome.predictor(self, self.effects)[0].outcomes

    def learning_curve(
        self, X: Any, y: Any = None, groups: Any = None, *, sample_weight: Any = None, offset: Any = None,
        strata: Any = None, level: float = 0.95, points: int = 15,
    ) -> LearningCurve:  # fmt: skip
        """Return how good the model was after rounds of its fit, over all sites and at each.

        Some of the iterates of every fit are kept in memory (:class:`fpdfp.engines.loop.Iterates`). Sites are asked
        as by :meth:`evaluate`, about all of them in one exchange; a site with a policy counts each as a question of
        its own. A model that was read from a file has no iterates.

        Parameters
        ----------
        X, y, groups, sample_weight, offset, strata, level
            As of :meth:`evaluate`.
        points
            How many iterates at most, from 2 to 100: the first, the last, and others between them, more of early ones.

        Returns
        -------
        fpdfp.scores.LearningCurve
            Scores against rounds and bits.

        Examples
        --------
        >>> import numpy as np
        >>> import fpdfp
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((600, 3))
        >>> y, hospital = (X[:, 0] + rng.logistic(size=600) > 0).astype(int), np.arange(600) % 3
        >>> model = fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01)).fit(X[:300], y[:300], groups=hospital[:300])
        >>> found = model.learning_curve(X[300:], y[300:], groups=hospital[300:])
        >>> print([round(one.value, 2) for one in found.overall["auc"]][:2], found.rounds[0])
        [0.5, 0.76] 0
        """
        quantile_of(level)
        _checks.integer("points", points, at_least=2, at_most=MOST_POINTS)
        if self.iterates is None:
            raise ArgumentError("model:", "has no iterates, since it was read from a file; fit it to have them")
        kept = self.iterates.kept
        places = np.unique(np.linspace(0, len(kept) - 1, points).round().astype(np.int64))
        chosen = [kept[place] for place in places]
        # A fit that has converged stays where it is, and is asked about once.
        distinct = {one.x.tobytes(): self._at_point(one.x) for one in chosen}
        models = list(distinct.values())
        family, data = self._predicted_outcomes(), (X, y, groups, sample_weight, offset, strata)
        asked: list[Sites] = [sites_of(models[0], *data)]
        if isinstance(asked[0], CohortSites):
            answers = asked[0].score_also([one.outcome.predictor(one, one.effects)[0].x for one in models[1:]])
        else:
            # Effects of sites are in the rows, so that each model has rows of its own.
            asked += [sites_of(one, *data) for one in models[1:]]
            answers = [one.score() for one in asked]
        found = [summarise(asked[0].names, one, family, level=level) for one in answers]
        by_point = dict(zip(distinct, found, strict=True))
        # The choice of a penalty weight comes before the fit.
        before = None if self.choice is None else self.choice.path
        rounds, up, down = (0, 0, 0) if before is None else (before.rounds, before.bits_up, before.bits_down)
        return LearningCurve.of(
            [by_point[one.x.tobytes()] for one in chosen],
            rounds=rounds + np.array([one.round for one in chosen]),
            bits_up=up + np.array([one.bits_up for one in chosen]),
            bits_down=down + np.array([one.bits_down for one in chosen]),
            exchanges=1,
            asked_up=sum(one.up for one in asked),
            asked_down=sum(one.down for one in asked),
        )

    def _at_point(self, x: Array) -> FitResult:
        """Return the model with the coefficients that x, of a run of the fit, stands for."""
        assert self.columns is not None
        assert self.scaled is not None
        found = self.outcome.take(x, self.columns, self.scaled, self._within)
        return dataclasses.replace(self, **found._asdict())

    def _within(self, coefficients: Array) -> Array:
        if self.limits is None:
            return coefficients
        return np.clip(coefficients, self.limits.lower, self.limits.upper)

    # Reports.

    def write_run(
        self, folder: str | os.PathLike[str] | None = None, *, name: str | None = None, errors: Kind = "model",
        level: float = 0.95, ratios: bool | None = None,
    ) -> FilePath:  # fmt: skip
        """Write the folder of a run with all that is known of the fit; :func:`fpdfp.report.write` makes a page of it.

        The page has the table of :meth:`summary`, how much coefficients differ between sites with forest plots, and
        after a cross-validation its curve and the path. What :meth:`evaluate` and :meth:`learning_curve` return is
        added with ``save(folder)``. Fits of a federation do this themselves, with these arguments at their defaults.

        Parameters
        ----------
        folder
            The folder. If it holds a run already, as in a federation, sections are added to it. By default the
            one that the federation has written.
        name
            The name of the run in the page, by default the name of the folder.
        errors, level, ratios
            As of :meth:`summary`.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> import fpdfp, fpdfp.report
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((300, 2))
        >>> y = X @ [1.0, -0.5] + rng.standard_normal(300)
        >>> model = fpdfp.FederatedLinearRegression("none").fit(X, y, groups=np.arange(300) % 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = model.write_run(f"{folder}/fit", level=0.9)
        ...     print(sorted(file.name for file in run.glob("*.json")))
        ...     page = fpdfp.report.write(run, f"{folder}/report.html")
        ['heterogeneity.json', 'model.json', 'run.json', 'summary.json']
        """
        if folder is None:
            folder = self.run_folder
            if folder is None:
                raise ArgumentError("folder", "must be a folder: the model was not fitted by a federation")
        path = FilePath(folder)
        sections = list(self._sections(errors, level, ratios))  # before anything is written
        if not (path / "run.json").exists():
            if self.run is None:
                raise ArgumentError("folder", "must be a run's folder for a model that was read from a file")
            self._write_result(path, name)
        for section in sections:
            section.save(path)
        return path

    def _sections(self, errors: Kind, level: float, ratios: bool | None) -> Iterator[Section]:
        """Yield what is known of the fit."""
        yield self.summary(errors=errors, level=level, ratios=ratios)
        if self.information is not None and self.refusal is None and len(self.rows) > 1:
            exponential = ratios is not False and self._ratio() is not None
            with contextlib.suppress(ArgumentError):  # sites may have no coefficient in common
                yield self.heterogeneity_table(level=level, exponentiate=exponential)
        if self.choice is not None:
            yield self.choice.path
            yield self.choice.curves

    def _write_result(self, folder: FilePath, name: str | None) -> None:
        rows = np.atleast_2d(self.coef).astype(np.float64)
        names, intercept = [*map(str, self.names.features)], None
        if self.outcome.has_constant:
            rows = np.concatenate([rows, np.atleast_1d(self.intercept).reshape(-1, 1)], axis=1)
            intercept, names = len(names), [*names, "Intercept"]
        classes = self.outcome.others if isinstance(self.outcome, Compared) else self.outcome.classes
        scales = np.ones(len(names))
        if self.standardized and self.scaled is not None:
            scales[: len(self.names.features)] = self.scaled.scale
        model = linear_model(
            names, intercept=intercept, graph=self.graph, classes=classes, standardized=False,
            scales=scales if self.standardized else None,
        )  # fmt: skip
        assert self.options is not None
        assert self.run is not None
        config = {
            "estimator": self.title, "formula": self.formula or "", "penalty": self.penalty.describe(),
            "tol": self.options.tol or 0.0, "rounds": self.options.rounds, "standardize": self.standardized,
        }  # fmt: skip
        write_result(
            folder, self.run, name=name, config=config, model=model, x=rows if len(rows) > 1 else rows[0],
            clients=self.rows, seed=self.options.seed,
        )  # fmt: skip


def _correct_quantile(table: Table, rows: float) -> Table:
    """Return a table of a quantile with errors for the number of rows near it, of which p fit themselves."""
    p = len(table.names)
    share, df = min(p / rows, MOST_OWN), max(rows - p, 1.0)
    words = f"robust, corrected for {rows:.0f} effective rows near the quantile"
    return dataclasses.replace(table, covariance=table.covariance / (1.0 - share) ** 2, df=df, errors=words)


#: The fields that models show regardless, and those that they show where there are any.
SHOWN = (
    "coef", "intercept", "coefficients", "sites", "rows", "left_out", "excluded", "n_iter", "n_steps", "bits_up",
    "bits_down", "status", "formula", "information", "exchanges", "deviance", "null_deviance", "penalty", "run_folder",
    "aliased", "privacy",
)  # fmt: skip
PRESENT = ("thresholds", "plan", "graph", "iterates", "theta", "theta_standard_error", "effective_rows")
#: What models show by another name than it has here.
ALIASES: dict[str, Any] = {
    "result": lambda fit: fit.run,
    "history": lambda fit: None if fit.run is None else fit.run.history,
    "classes": lambda fit: fit.outcome.classes,
    "reference": lambda fit: fit.outcome.labels[0] if isinstance(fit.outcome, Compared) else None,
    "others": lambda fit: fit.outcome.others if isinstance(fit.outcome, Compared) else None,
    "family": lambda fit: getattr(fit.outcome, "distribution", None),
    "site_variance": lambda fit: None if fit.variances is None else fit.variances.variance,
}
