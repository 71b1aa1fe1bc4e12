"""What estimators say of their coefficients: standard errors, tests, differences between sites."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.cohort import Each
from fpdfp.cohorts.local import clients_of
from fpdfp.cohorts.losses import Informations
from fpdfp.engines.choice import choose_method
from fpdfp.engines.options import RunOptions
from fpdfp.engines.solve import run
from fpdfp.errors import ArgumentError, ArgumentTypeError, RefusalError
from fpdfp.inference import (
    PENALISED,
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
from fpdfp.inference.aliasing import Alias, find_alias
from fpdfp.inference.covariances import Kind
from fpdfp.inference.differences import SiteErrors
from fpdfp.losses.base import InformationSums
from fpdfp.models.penalty import Columns, ModelPenalty
from fpdfp.models.random_effects import integrate
from fpdfp.models.separating import FAMILIES, check_separation
from fpdfp.models.wording import name_outcome, name_ratio, name_references
from fpdfp.penalties.base import Zero
from fpdfp.precondition.base import full
from fpdfp.problem import Problem

if TYPE_CHECKING:
    from fpdfp.families import Family

#: Why there are no standard errors of coefficients with limits.
BOUNDED = (
    "Coefficients have bounds: at a bound an estimate is not normal, so standard errors and intervals from the plain "
    "formula would be wrong, and they are not shown."
)


class Inferring:
    """The part of an estimator that knows standard errors.

    Attributes
    ----------
    information_
        The sums of each site at the coefficients, in the order of ``sites_`` (:class:`fpdfp.inference.Information`);
        None where they were not asked for.
    """

    information_: list[Information] | None
    null_deviance_: float | None
    #: The coefficients of a formula that are not estimated, since others determine their columns.
    aliased_: tuple[str, ...] = ()
    _alias: Alias | None = None

    @property
    def _aliases(self: Any) -> bool:
        """Whether columns that others determine are left out: with a formula, of one linear predictor."""
        return self.formula_ is not None

    def _family(self: Any) -> Family | None:
        """Return the family of outcomes; None where there is no inference."""
        return None

    @property
    def _penalised(self: Any) -> bool:
        penalty: ModelPenalty = self.penalty_
        return penalty.penalises

    @property
    def _refusal(self: Any) -> str | None:
        """Why there are no standard errors; None if there may be."""
        return PENALISED if self._penalised else BOUNDED if self.bounds is not None else None

    def _ask(self: Any, problem: Problem, back: Array, columns: Columns) -> None:
        """Ask all sites for their sums at the solution, in an exchange that is counted.

        ``back`` takes coefficients of the model to those of the features as they were given.
        """
        self.information_ = self.null_deviance_ = self._alias = None
        self.aliased_ = ()
        self.exchanges_: dict[str, int] = {}
        family = self._family()
        if family is None:
            return
        wanted = self.inference is True or (self.inference == "auto" and self._refusal is None)
        fixed = self._refusal is None and not columns.random
        may_separate = fixed and getattr(family, "name", "") in FAMILIES
        if not (wanted or may_separate):
            return
        purpose = "information" if wanted else "separation"
        x = np.asarray(self.result_.x, dtype=np.float64)
        told = self._ask_sites(problem, Informations(x, wanted), needed=columns.random)
        self._count_exchange(purpose, told.up, told.down)
        sums = InformationSums(*(np.sum(field, axis=0) for field in zip(*told.answers, strict=True)))
        if may_separate:
            check_separation(self, problem, self.result_.x, sums, self._names_of_x(columns))
        if not wanted:
            return
        found = []
        for numbers, score, hessian, meat in told.answers:
            rows, weight, saturated, deviance, pearson = map(float, numbers)
            known = saturated - 0.5 * deviance if not family.has_dispersion else math.nan
            site = Information(int(rows), weight, known, deviance, pearson, score, full(hessian), full(meat))
            found.append(site.change(back))
        self._saturated = float(sums.numbers[2])
        if columns.random:
            found = integrate(found, columns.effects, self._variances)
        if self._aliases and self._refusal is None and not columns.random:
            names = self._names_of_x(columns)
            self._alias = find_alias(sum(found[1:], found[0]).hessian, self._order(names))
            if self._alias is not None:
                found = [site.take(self._alias.kept) for site in found]
                self.aliased_ = tuple(names[j] for j in self._alias.left)
        self.information_ = found
        self.deviance_ = sum(site.deviance for site in found)
        self._null_parameters = len(self._null_places(columns))
        if self._refusal is not None or columns.random:
            return
        if self._null_parameters:
            self._ask_null(problem, columns)
        else:
            self._ask_zero(problem, columns)

    def _ask_sites(self: Any, problem: Problem, question: Informations, *, needed: bool) -> Each:
        """Return the sums of each site, or of all together where a site does not show its own."""
        clients = clients_of(problem)
        try:
            return clients.ask_each(question)
        except RefusalError:
            if needed:
                raise
            told = clients.ask(question)
            return Each([told.sums], told.up, told.down)

    def _ask_sums(self: Any, problem: Problem, x: Array, purpose: str, *, robust: bool) -> InformationSums:
        """Return the sums over all sites at a point, and count the exchange."""
        told = clients_of(problem).ask(Informations(np.asarray(x, dtype=np.float64), robust))
        self._count_exchange(purpose, told.up, told.down)
        sums: InformationSums = told.sums
        return sums

    def _count_exchange(self: Any, purpose: str, up: int, down: int) -> None:
        self.bits_up_, self.bits_down_ = self.bits_up_ + up, self.bits_down_ + down
        self.exchanges_[purpose] = self.exchanges_.get(purpose, 0) + 1

    def _ask_zero(self: Any, problem: Problem, columns: Columns) -> None:
        """Keep the deviance at zero, or at the offsets, which is that of the null model without an intercept."""
        family = self._family()
        mean = family.mean(np.zeros(1))
        if np.isfinite(mean).all() and (family.variance(mean) > 0).all():
            sums = self._ask_sums(problem, np.zeros(problem.losses.shape), "null deviance", robust=False)
            self.null_deviance_ = float(sums.numbers[3])

    def _names_of_x(self: Any, columns: Columns) -> list[str]:
        """Return the names of the coefficients of the model, in its order."""
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(columns.features)])
        return [*map(str, names), *(["Intercept"] if columns.intercept else []), *self._effect_names(columns.effects)]

    def _null_places(self: Any, columns: Columns) -> IntArray:
        """Return which coefficients the model without features has."""
        return np.array([columns.features] if columns.intercept else [], dtype=np.int64)

    def _ask_null(self: Any, problem: Problem, columns: Columns) -> None:
        """Fit the intercept alone, by the same exchanges, and keep its deviance."""
        losses = problem.losses.restrict(self._null_places(columns))
        null = Problem(losses, Zero(), weights=problem.weights, check=False)
        own = self._options()
        options = RunOptions(rounds=own.rounds, tol=own.tol or 1e-8, progress=False)
        found = run(null, choose_method(null, options, "exact"), options)
        # The objective is the weighted mean of half the unit deviances.
        self.null_deviance_ = 2.0 * sum(site.weight for site in self.information_) * found.objective
        self.bits_up_, self.bits_down_ = self.bits_up_ + found.total_up, self.bits_down_ + found.total_down
        self.exchanges_["null deviance"] = found.rounds

    def _needed(self: Any) -> list[Information]:
        check_is_fitted(self)
        if self.information_ is None:
            raise ArgumentError(
                "inference",
                "must be True when the model is fitted, so that sites are asked for the sums that standard errors need",
            )
        found: list[Information] = self.information_
        return found

    @property
    def _flat(self: Any) -> tuple[list[str], Array]:
        """The names of all coefficients and their values, in the order of the sums: the intercept last."""
        coefficients = dict(self.coefficients_)
        constant = {name: coefficients.pop(name) for name in ("Intercept",) if name in coefficients}
        last = self._effect_names(len(self._effects))
        effects = {name: value for name, value in coefficients.items() if name in last}
        ordered = {name: value for name, value in coefficients.items() if name not in effects} | constant
        ordered |= {} if hasattr(self, "_variances") else effects
        return list(ordered), np.array(list(ordered.values()))

    def table(self: Any, *, errors: Kind = "model", level: float = 0.95, exponentiate: bool = False) -> Table:
        """Return the coefficients with standard errors, tests and confidence intervals.

        Parameters
        ----------
        errors
            ``"model"``, ``"robust"`` (also ``"HC0"``, ``"HC1"``), ``"sites"`` or ``"jackknife"``: see
            :func:`fpdfp.inference.covariance`. For quantiles, which are no model of a distribution, ``"model"`` means
            ``"robust"``.
        level
            Of the intervals.
        exponentiate
            Whether to show odds, rate or hazard ratios.
        """
        if self.bounds is not None:
            check_is_fitted(self)
            raise ArgumentError("bounds:", BOUNDED)
        family = self._family()
        if errors == "model" and not family.is_likelihood:
            errors = "robust"
        return coefficient_table(
            *self._intercept_first(), has_dispersion=family.has_dispersion, errors=errors, level=level,
            exponentiate=exponentiate, penalty=self.penalty_.describe(),
        )  # fmt: skip

    def _is_intercept(self, name: str) -> bool:
        """Whether a coefficient is an intercept, of all rows or of a site: nothing of these is penalised."""
        return name == "Intercept" or name.startswith("site[")

    def _order(self, names: list[str]) -> list[int]:
        """Return the order in which coefficients are shown: the intercept first."""
        return sorted(range(len(names)), key=lambda j: names[j] != "Intercept")

    def _intercept_first(self: Any) -> tuple[list[str], Array, list[Information]]:
        """Return names, coefficients and sums in the order of tables."""
        sites, (names, values) = self._needed(), self._flat
        order = self._order(names)
        return [names[j] for j in order], values[order], [site.take(order) for site in sites]

    def summary(self: Any, *, errors: Kind = "model", level: float = 0.95, ratios: bool | None = None) -> Summary:
        """Return coefficients by name, with standard errors, tests and intervals; ``print`` shows it.

        With a penalty there are no standard errors, and a sentence says why.

        Parameters
        ----------
        errors, level
            As of :meth:`table`.
        ratios
            Whether odds, rate or hazard ratios with their limits are beside the coefficients; None for where the link
            makes them meaningful.
        """
        check_is_fitted(self)
        ratio = self._ratio_name() if ratios is not False else None
        if ratios and ratio is None:
            raise ArgumentError("ratios", "must not be True: exp of a coefficient of this model is no ratio")
        family, sites = self._family(), self.information_
        more: dict[str, Any] = {}
        if sites is not None and family is not None:
            p, rows = len(self._flat[0]), sum(site.rows for site in sites)  # those of weight 0 do not count
            weight = sum(site.weight for site in sites)
            random = hasattr(self, "_variances")
            likelihood = None if random else family.log_likelihood(self.deviance_, self._saturated, weight, rows)
            more = {
                "family": f"{family.name}, link {family.link}",
                "has_dispersion": family.has_dispersion,
                "dispersion": sum(sites[1:], sites[0]).dispersion() if family.has_dispersion else None,
                "log_likelihood": likelihood,
                "null_deviance": self.null_deviance_,
                "df_residual": None if self._penalised else rows - p,
                "df_null": rows - self._null_parameters,
                "exchanges": self.exchanges_,
                "further_parameters": self._further_parameters,
            }
            if self._refusal is not None:
                more["refused"] = self._refusal
            else:
                found = self.table(errors=errors, level=level)
                constants = tuple(filter(self._is_intercept, found.names))
                more["table"] = dataclasses.replace(found, ratios=ratio, constants=constants)
        elif self._refusal is not None:
            more["refused"] = self._refusal
        return Summary(
            title=type(self).__name__,
            formula=self.formula_,
            outcome=self._outcome(),
            references={} if self._plan is None else name_references(self._plan.design),
            coefficients=self.coefficients_,
            sites=list(self.rows_),
            rows=list(self.rows_.values()),
            left_out=list(self.left_out_.values()),
            events=self._events(),
            deviance=self.deviance_,
            penalty=self.penalty_.describe(),
            status=self.status_,
            rounds=self.n_iter_,
            bits_up=self.bits_up_,
            bits_down=self.bits_down_,
            notes=self._remarks(),
            more=self._more() | {f"without {name}": why for name, why in self.excluded_.items()},
            **more,
        )

    def _ratio_name(self: Any) -> str | None:
        """Return what exp of a coefficient is."""
        family = self._family()
        return None if family is None else name_ratio(family.name, family.link)

    def _events(self: Any) -> int | None:
        """Return how many rows have the modelled level; None where that is not known."""
        plan = self._plan
        return plan.counts[-1] if plan is not None and len(plan.counts) == 2 else None

    def _remarks(self: Any) -> list[str]:
        """Return what a reader should know of the coefficients."""
        remarks = []
        if self.aliased_:
            remarks.append(f"not estimated, since other columns determine them: {', '.join(self.aliased_)}")
        if self._plan is not None and self._plan.imputed and self.information_ is not None:
            remarks.append(
                f"means were put in where {', '.join(self._plan.imputed)} had no value: standard errors take them for "
                "known, and are too small"
            )
        return remarks

    @property
    def _plan(self: Any) -> Any:
        """What was known before the fit of a formula; None for a matrix."""
        return None if self.formula_ is None else getattr(self, "plan_", None)

    def _outcome(self: Any) -> str:
        """Return what is modelled."""
        plan = self._plan
        response = "y" if plan is None else str(self.formula_).partition("~")[0].strip()
        kind, classes = self._outcome_kind()
        return name_outcome(response, kind, classes)

    def _outcome_kind(self: Any) -> tuple[str, Any]:
        """Return the kind of outcome, as :func:`fpdfp.models.wording.name_outcome` has it, and the classes."""
        classes = getattr(self, "classes_", () if self._plan is None else self._plan.classes)
        if len(classes) > 2:
            return "classes", classes
        binomial = getattr(self._family(), "name", "") == "binomial"
        return ("event" if len(classes) or binomial else "number"), classes

    @property
    def _further_parameters(self) -> int:
        """How many parameters are estimated beside coefficients and a dispersion."""
        return 0

    def _more(self) -> dict[str, Any]:
        """Return further lines of the summary."""
        return {}

    def wald_test(self: Any, hypothesis: Any, values: Any = 0.0, *, errors: Kind = "model") -> HypothesisTest:
        """Test that some coefficients, by name, or linear combinations of all are 0 (:func:`inference.wald_test`)."""
        return wald_test(self.table(errors=errors), hypothesis, values)

    def compare(self, other: Any) -> HypothesisTest:
        """Test this model against a larger one of the same rows, of which it is a special case."""
        if not isinstance(other, Inferring):
            raise ArgumentTypeError("other", f"must be a fitted model, got {type(other).__name__}")
        return likelihood_ratio_test(self.summary(), other.summary())

    def variance_inflation(self: Any) -> dict[str, tuple[float, int, float]]:
        """Return the variance inflation factor of each term, its columns, and the factor's root by columns."""
        sites, (names, _) = self._needed(), self._flat
        return variance_inflation(sum(sites[1:], sites[0]).hessian, names, self._terms())

    def _terms(self: Any) -> dict[str, Any] | None:
        """Return the names of the columns of each term of the formula; None for a matrix."""
        plan = getattr(self, "plan_", None)
        if plan is None:
            return None
        terms: dict[str, Any] = {}
        for name, term in zip(plan.design.names, plan.design.term_of_each, strict=True):
            if name not in self.aliased_:
                terms.setdefault(term, []).append(name)
        return terms

    def site_tables(
        self: Any, *, errors: SiteErrors = "model", level: float = 0.95, exponentiate: bool = False
    ) -> dict[str, Table | None]:
        """Return the coefficients that each site by itself would have, by one Newton step from the common ones.

        No further exchange is needed. Where a site differs much the step is not its own fit:
        :func:`fpdfp.fit_sites` makes that. ``errors`` is ``"model"``, ``"HC0"``, ``"HC1"`` or ``"robust"``;
        ``level`` and ``exponentiate`` are those of :meth:`table`.
        """
        names, values, sites = self._intercept_first()
        family = self._family()
        if errors == "model" and not family.is_likelihood:
            errors = "HC0"
        found = site_tables(
            names, values, sites, has_dispersion=family.has_dispersion, errors=errors, level=level,
            exponentiate=exponentiate,
        )  # fmt: skip
        return dict(zip(self.rows_, found, strict=True))

    def heterogeneity(
        self: Any, name: str, *, errors: SiteErrors = "model", level: float = 0.95, exponentiate: bool = False
    ) -> Heterogeneity:
        """Return how much a coefficient differs between sites: Cochran's Q, I², pooled estimates, a forest plot.

        The estimates of sites, and the arguments, are those of :meth:`site_tables`.
        """
        tables = self.site_tables(errors=errors, level=level, exponentiate=exponentiate)
        return Heterogeneity.of_tables(name, tables)

    def heterogeneity_table(
        self: Any, *, errors: SiteErrors = "model", level: float = 0.95, exponentiate: bool = False
    ) -> HeterogeneityTable:
        """Return how much every coefficient differs between sites: a table of Cochran's Q, I² and τ².

        The estimates of sites, and the arguments, are those of :meth:`site_tables`.
        """
        return HeterogeneityTable.of_tables(self.site_tables(errors=errors, level=level, exponentiate=exponentiate))

    def debiased_table(
        self: Any,
        *,
        unpenalised: Sequence[str] = (),
        node_alpha: float | None = None,
        errors: Literal["model", "HC0"] = "model",
        level: float = 0.95,
        exponentiate: bool = False,
    ) -> Table:
        """Return corrected coefficients of a fit with a penalty, with intervals: the debiased lasso.

        The model must have been made with ``inference=True``. The assumptions, and the arguments, are those of
        :func:`fpdfp.inference.debias`.

        Parameters
        ----------
        unpenalised
            Names of coefficients that have no penalty, beside intercepts.
        node_alpha, errors, level, exponentiate
            As there.
        """
        names, values, sites = self._intercept_first()
        return debias(
            names, values, sites, has_dispersion=self._family().has_dispersion,
            unpenalised=[*filter(self._is_intercept, names), *unpenalised],
            node_alpha=node_alpha, errors=errors, level=level, exponentiate=exponentiate,
        )  # fmt: skip
