"""Federated generalised linear models."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
from sklearn.base import RegressorMixin

from fpdfp import _checks, families
from fpdfp._typing import Array
from fpdfp.engines.prepare import RunOptions
from fpdfp.errors import ArgumentError
from fpdfp.families import Family
from fpdfp.families.base import link_of
from fpdfp.formula.coding import Imputation
from fpdfp.methods.base import Method
from fpdfp.models.base import FederatedModel, MakeDesign
from fpdfp.models.design import Design, Settings
from fpdfp.models.fitting import Search, Theta, Width
from fpdfp.models.formulas import InverseProbability, Plan
from fpdfp.models.outcomes import Data, Numbers, Outcome, SiteEffects
from fpdfp.models.penalty import ModelPenalty, Name
from fpdfp.models.result import FitResult
from fpdfp.models.rows import as_targets, column, refuse_column, refuse_of_rows, row_weights
from fpdfp.survival.counts import check_grid


class FederatedGLM(RegressorMixin, FederatedModel):
    r"""A generalised linear model; rows stay at their sites.

    Minimises the mean of half the unit deviances over all rows (weighted, if rows have weights), plus one of the
    penalties of :class:`FederatedLogisticRegression`, none by default. Without a penalty it is the maximum likelihood
    estimate of R's ``glm``, in about its iterations, each one exchange with all sites; :meth:`summary` then shows
    standard errors, tests and intervals.

    Parameters
    ----------
    family
        ``"gaussian"``, ``"binomial"``, ``"poisson"``, ``"gamma"``, ``"inverse gaussian"``, ``"negative binomial"``
        (whose θ is estimated), ``"tweedie"``, ``"quantile"``, ``"quasi-poisson"``, ``"quasi-binomial"``, or one of
        :mod:`fpdfp.families` with its parameters.
    link
        The link, by default the usual one: :attr:`fpdfp.families.Family.links`.
    penalty, bounds, start
        As in :class:`FederatedLogisticRegression`; by default ``"none"``.
    site_effects
        ``"none"``, or an intercept of each site: ``"fixed"`` for differences to the first site, not penalised, or
        ``"random"`` for differences to their mean with a normal distribution. The variance is estimated by penalised
        quasi-likelihood (Breslow and Clayton 1993; for the gaussian family this is restricted maximum likelihood).
        With few rows at each site and outcomes of two values it underestimates the variance. Standard errors are those
        of a mixed model; there is no likelihood, so neither AIC nor likelihood ratio tests.
    fit_intercept, standardize
        As there.
    method
        By default :class:`fpdfp.ProximalNewton` for up to 1,000 columns.
    inference
        Whether sites send the sums for standard errors: ``"auto"`` requests them for fits without a penalty.
    run
        :class:`fpdfp.RunOptions`: rounds, tolerance, participation, messages, seed and progress bar of the run, as in
        :func:`fpdfp.solve`. None is for at most 1,000 rounds, a tolerance of 1e-8 and no progress bar; a
        ``tol`` that is not given is this one as well, and ``tol=0`` runs all rounds.

    Attributes
    ----------
    coef_, intercept_
        The coefficients of the features, and the intercept.
    family_
        The family, with its parameters.
    coefficients_
        All coefficients by name.
    theta_, theta_standard_error_
        Of ``family="negative binomial"``: θ as R's ``glm.nb`` estimates it, with Poisson's family in place of an
        infinite one; coefficients and θ are found in turn, and all exchanges are counted.
    deviance_, null_deviance_
        The deviance, and the same for the intercept alone; None where it was not requested.
    site_variance_
        The variance of random site effects.
    sites_, rows_, left_out_
        The sites, the rows of each that were used, and those excluded.
    n_iter_, bits_up_, bits_down_, history_, result_
        Rounds, all bits sent, and the run.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 2))
    >>> visits = rng.poisson(np.exp(0.3 + X @ [0.5, 0.0]))
    >>> model = fpdfp.FederatedGLM("poisson").fit(X, visits, groups=np.arange(300) % 3)
    >>> print(model.table())
               coefficient  standard error      z        p    2.5 %   97.5 %
    Intercept       0.2688         0.05257   5.11  < 0.001   0.1657   0.3718
    x0              0.5078         0.05088   9.98  < 0.001   0.4081   0.6075
    x1           -0.009824         0.04995  -0.20    0.844  -0.1077  0.08808
    """

    _tol = 1e-8

    def __init__(
        self,
        family: Any = "gaussian",
        link: str | None = None,
        *,
        penalty: Name | ModelPenalty = "none",
        bounds: Any = None,
        start: Any = None,
        site_effects: Literal["none", "fixed", "random"] = "none",
        fit_intercept: bool = True,
        standardize: bool | None = None,
        method: Method | None = None,
        inference: bool | Literal["auto"] = "auto",
        run: RunOptions | None = None,
    ) -> None:
        super().__init__(
            penalty, bounds=bounds, start=start, standardize=standardize, method=method, inference=inference, run=run
        )
        self.fit_intercept = fit_intercept
        self.family = family
        self.link = link
        self.site_effects = site_effects

    def fit(
        self,
        X: Any,
        y: Any,
        groups: Any = None,
        *,
        sample_weight: Any = None,
        offset: Any = None,
        exposure: Any = None,
        weights: str | InverseProbability | None = None,
        periods: Any = None,
        missing: Imputation = "drop",
        levels: Any = "shared",
        on_refusal: Literal["stop", "exclude"] = "stop",
    ) -> FederatedGLM:
        """Fit the model to rows X with outcomes y, or a formula y to a table or a federation X.

        Parameters
        ----------
        X, y
            Rows and outcomes; or a table or a federation, and a formula such as
            ``"visits ~ age + C(stage) + offset(log(months))"``.
        groups
            The site of each row, or the name of the column that states it.
        sample_weight
            The weight of each row; for the binomial family with shares as outcomes, the trials.
        offset
            What is added to the linear predictor of each row.
        exposure
            The same by its exponential, for links that are logarithms: the time at risk, for instance.
        weights
            With a formula: the column that weighs rows, an expression of columns, or
            :class:`fpdfp.InverseProbability`.
        periods
            With a formula whose response is ``Surv(time, event)``, and the binomial family: the edges of periods. Sites
            make a row for each period in which a row was at risk (:func:`fpdfp.survival.split_periods`), and all share
            the hazards of periods.
        missing, levels
            With a formula: as in :meth:`FederatedLogisticRegression.fit`.
        on_refusal
            With a federation: ``"stop"`` raises an error with what all sites that refuse say; ``"exclude"`` fits
            the model without these sites, which ``excluded_`` and the summary name.
        """
        return self._fit_data(
            X, y, groups, on_refusal=on_refusal, sample_weight=sample_weight, offset=offset, exposure=exposure,
            weights=weights, periods=periods, missing=missing, levels=levels,
        )  # fmt: skip

    @property
    def _site_effects(self) -> SiteEffects:
        return self.site_effects

    def _settings(self, *, selecting: bool = False) -> Settings:
        _checks.choice("site_effects", self.site_effects, ("none", "fixed", "random"))
        settings = super()._settings(selecting=selecting)
        concave = settings.penalty.is_concave
        if self.site_effects == "random" and concave:
            raise ArgumentError("site_effects", f"must not be random with the penalty {settings.penalty.name}")
        several = self.site_effects == "random" or concave or self._validation is not None
        if several and isinstance(self._make_search(), Width):
            raise ArgumentError(
                "family",
                "must be Quantile(level=…, width=…) with a width in units of the outcome for cross-validation, the "
                "penalties mcp and scad, and random site effects",
            )
        return settings

    def _make_search(self) -> Search | None:
        family = families.make(self.family, self.link)
        if isinstance(self.family, str) and family.name == "negative binomial":
            return Theta()
        return Width(family) if isinstance(family, families.Quantile) and family.width is None else None

    def _first_family(self) -> Family:
        """Return the family of the first fit: the family of a simpler model where a parameter is not known yet."""
        search = self._make_search()
        if search is None:
            return families.make(self.family, self.link)
        return families.Poisson() if isinstance(search, Theta) else families.Gaussian()

    def _design(
        self, X: Any, y: Any, groups: Any, settings: Settings, *, sample_weight: Any = None, offset: Any = None,
        exposure: Any = None, weights: Any = None, periods: Any = None, missing: Any = "drop", levels: Any = "shared",
    ) -> MakeDesign:  # fmt: skip
        family = self._first_family()
        edges = self._read_periods(periods, y, family)
        outcome = Numbers(distribution=family, effects=self.site_effects, periods=edges)
        if isinstance(y, str):
            refuse_of_rows(sample_weight=sample_weight, offset=offset, exposure=exposure)
            return self._design_of_formula(
                y, settings, lambda d, intercept, sites, plan: (outcome, plan), survival=bool(edges),
                classify=None if isinstance(family, families.Binomial) else False, weights=weights, missing=missing,
                levels=levels,
            )  # fmt: skip
        refuse_column(weights)
        X, y = self._validate(X, y, y_numeric=True)
        targets = y.astype(np.float64)
        shifts = self._shifts(family, offset, exposure, len(targets))
        own_weights, scale = row_weights(sample_weight, len(targets))
        family.check(targets)
        data = Data(targets, own_weights, scale, shifts)
        return self._design_of_rows(X, data, groups, settings, lambda *_: (outcome, None))

    def _outcome_of(self, plan: Plan | None, classes: Array | None) -> Outcome:
        return Numbers(distribution=self._first_family(), effects=self.site_effects)

    def _read_periods(self, periods: Any, formula: Any, family: Family) -> tuple[float, ...]:
        """Return the edges of periods, none if missing."""
        if periods is None:
            return ()
        edges = tuple(map(float, check_grid(periods).tolist()))
        if not isinstance(formula, str) or not isinstance(family, families.Binomial) or self.site_effects != "none":
            raise ArgumentError("periods", "must be None without a formula, the binomial family, and no site effects")
        if len(edges) < 2:
            raise ArgumentError("periods", "must be two or more edges, between which periods are")
        return edges

    def _shifts(self, family: Family, offset: Any, exposure: Any, rows: int) -> Array | None:
        """Return the offset of each row, None if missing."""
        if exposure is None:
            return None if offset is None else column("offset", offset, rows)
        if family.link != "log":
            raise ArgumentError("exposure", f"must be None for the link {family.link}; give offset")
        times = column("exposure", exposure, rows)
        if (times <= 0).any():
            raise ArgumentError("exposure", f"must be positive, got {times.min():g}")
        shifts: Array = np.log(times)
        return shifts if offset is None else shifts + column("offset", offset, rows)

    def _fit_design(self, design: Design, settings: Settings, search: Search | None = None) -> FitResult:
        search = self._make_search()
        fit = super()._fit_design(design, settings, search)
        if isinstance(search, Theta):
            fit = dataclasses.replace(fit, theta=search.value, theta_standard_error=search.standard_error)
        return fit

    def decision_function(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the linear predictor of each row; see :meth:`predict`."""
        rows = self._rows(X)
        return self.fitted_.decision_function(rows, offset=offset, site=site)

    def predict(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the expected outcome of each row.

        Parameters
        ----------
        X
            Rows, or a table with the columns of the formula.
        offset
            What is added to the linear predictor; with a formula that has an offset, in addition to that.
        site
            With site effects: the site of the rows, or of each. Random effects of other sites, or of none, are 0.
        """
        rows = self._rows(X)
        return self.fitted_.predict(rows, offset=offset, site=site)

    def predict_hazards(self, X: Any, *, offset: Any = None) -> Array:
        """Return the probability of an event in each period, if none came before; a row for each row."""
        rows = self._rows(X)
        return self.fitted_.predict_hazards(rows, offset=offset)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None, site: Any = None) -> float:
        """Return the explained share of the deviance: 1 − deviance / deviance of the weighted mean."""
        targets = column("y", as_targets(y), len(np.atleast_1d(y)))
        family = self._fitted().outcome.likelihood
        z = self.decision_function(X, offset=offset, site=site)
        weights, _ = row_weights(sample_weight, len(targets))
        w = np.ones(len(targets)) if weights is None else weights
        mean = np.full(len(targets), float(np.average(targets, weights=w)))
        null = link_of(family.link, mean)
        left, whole = (float((w * family.functions.value(at, targets, family.parameters)).sum()) for at in (z, null))
        return 1.0 - left / whole if whole > 0 else float(left <= 0)
