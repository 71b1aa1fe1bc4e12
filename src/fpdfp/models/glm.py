"""Federated generalised linear models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from fpdfp import _checks, families
from fpdfp._typing import Array, IntArray
from fpdfp.engines import Result
from fpdfp.engines.options import RunOptions
from fpdfp.errors import ArgumentError
from fpdfp.families import Family
from fpdfp.formula.coding import Imputation
from fpdfp.inference.table import format_number
from fpdfp.losses import GLM, Losses
from fpdfp.methods.base import Method
from fpdfp.models import codecs, tables
from fpdfp.models.base import FederatedLinearModel
from fpdfp.models.overdispersion import Theta
from fpdfp.models.penalty import Columns, ModelPenalty, Name
from fpdfp.models.rows import column, refuse_column, refuse_of_rows, row_weights
from fpdfp.models.site_effects import effects_of
from fpdfp.models.width import Width
from fpdfp.problem import Problem
from fpdfp.survival.counts import check_grid
from fpdfp.survival.periods import name_periods


class FederatedGLM(RegressorMixin, FederatedLinearModel):
    r"""A generalised linear model; rows stay at their sites.

    Minimises the mean of half the unit deviances over all rows (weighted, if rows have weights), plus one of the
    penalties of :class:`FederatedLogisticRegression`, none by default. Without a penalty it is the maximum likelihood
    estimate of R's ``glm``, in about its iterations, each one exchange with all sites; :meth:`summary` then shows
    standard errors, tests and intervals.

    Parameters
    ----------
    family
        ``"gaussian"``, ``"binomial"``, ``"poisson"``, ``"gamma"``, ``"inverse gaussian"``, ``"negative binomial"``
        (whose θ is estimated), ``"tweedie"``, ``"quantile"``, or one of :mod:`fpdfp.families` with its parameters.
    link
        The link, by default the usual one: :attr:`fpdfp.families.Family.links`.
    penalty, bounds, start
        As in :class:`FederatedLogisticRegression`; by default ``"none"``.
    site_effects
        ``"none"``, or an intercept of each site: ``"fixed"`` for differences to the first site, not penalised, or
        ``"random"`` for differences to their mean with a normal distribution, whose variance is estimated by penalised
        quasi-likelihood (Breslow and Clayton 1993; for the gaussian family this is restricted maximum likelihood).
        With few rows at each site and outcomes of two values it underestimates the variance. Standard errors are those
        of a mixed model; there is no likelihood, so neither AIC nor likelihood ratio tests.
    fit_intercept, standardize
        As there.
    method
        By default :class:`fpdfp.ProximalNewton` for up to 1,000 columns.
    inference
        Whether sites are asked for the sums that standard errors need: ``"auto"`` asks where there is no penalty.
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
        The deviance, and that of the intercept alone; None where it was not asked for.
    site_variance_
        The variance of random site effects.
    sites_, rows_, left_out_
        The sites, the rows of each that were used, and those left out.
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

    _by_glm = True
    _tol = 1e-8
    _kept = FederatedLinearModel._kept | {
        "family_": codecs.FAMILY, "theta_": codecs.NUMBER, "theta_standard_error_": codecs.NUMBER,
        "_periods": codecs.NUMBERS, "_variances": codecs.VARIANCES, "site_variance_": codecs.NUMBER,
    }  # fmt: skip

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
            penalty, bounds=bounds, start=start, fit_intercept=fit_intercept, standardize=standardize, method=method,
            inference=inference, run=run,
        )  # fmt: skip
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
        weights: str | None = None,
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
            The site of each row, or the name of the column that says so.
        sample_weight
            The weight of each row; for the binomial family with shares as outcomes, the trials.
        offset
            What is added to the linear predictor of each row.
        exposure
            The same by its exponential, for links that are logarithms: the time at risk, for instance.
        weights
            With a formula: the column that weighs rows, or an expression of columns.
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
        self._check_parameters()
        self.family_ = self._given_family()
        self._search: Theta | Width | None = None
        for name in ("theta_", "theta_standard_error_"):
            if hasattr(self, name):
                delattr(self, name)  # of an earlier fit
        if isinstance(self.family, str) and self.family_.name == "negative binomial":
            self._search, self.family_ = Theta(), families.Poisson()
        elif isinstance(self.family_, families.Quantile) and self.family_.width is None:
            self._refuse_unknown_width()
            self._search, self.family_ = Width(self.family_), families.Gaussian()
        self._take_periods(periods, y)
        effects = _checks.choice("site_effects", self.site_effects, ("none", "fixed", "random")) != "none"
        if self.site_effects == "random" and self.penalty_.is_concave:
            raise ArgumentError("site_effects", f"must not be random with the penalty {self.penalty_.name}")
        if isinstance(y, str):
            refuse_of_rows(sample_weight=sample_weight, offset=offset, exposure=exposure)
            self._take_model(
                self._fit_formula(X, y, groups, missing, levels, on_refusal, weights=weights, effects=effects)
            )
        else:
            refuse_column(weights)
            X, y = validate_data(
                self, tables.rows(X), tables.targets(y), accept_sparse="csr", dtype=np.float64, y_numeric=True
            )
            targets = y.astype(np.float64)
            shifts = self._shifts(offset, exposure, len(targets))
            own_weights, scale = row_weights(sample_weight, len(targets))
            self.family_.check(targets)

            def losses(rows: Any, owner: IntArray, ridge: Array) -> Losses:
                return GLM(
                    rows, targets, clients=owner, family=self.family_, l2=ridge, weights=own_weights,
                    weight_scale=scale, offset=shifts,
                )  # fmt: skip

            self._take_model(self._fit(X, groups, None, losses, effects=effects))
        if isinstance(self._search, Theta):
            self.theta_, self.theta_standard_error_ = self._search.value, self._search.standard_error
        self._add_sections()
        return self

    def _refuse_unknown_width(self) -> None:
        """Refuse a quantile whose width would have to follow from one fit, where there are several."""
        if self.site_effects == "random" or self.penalty_.is_concave or hasattr(self, "cv"):
            raise ArgumentError(
                "family",
                "must be Quantile(level=…, width=…) with a width in units of the outcome for cross-validation, the "
                "penalties mcp and scad, and random site effects",
            )

    def _run(
        self, problem: Problem, method: Any, rebuild: Callable[[], Problem], x0: Array | None
    ) -> tuple[Result, Problem]:
        if self._search is None:
            return super()._run(problem, method, rebuild, x0)
        return self._search.alternate(self, problem, method, rebuild)

    def _conclude(self, problem: Problem, columns: Columns, centre: Array, scale: Array) -> Array:
        model = super()._conclude(problem, columns, centre, scale)
        if (search := self._search) is not None:
            self.exchanges_[search.name] = search.exchanges
            self.n_iter_ += search.rounds
            self.bits_up_, self.bits_down_ = self.bits_up_ + search.up, self.bits_down_ + search.down
        return model

    @property
    def _further_parameters(self) -> int:
        return int(np.isfinite(getattr(self, "theta_", np.inf)))

    def _more(self) -> dict[str, Any]:
        if isinstance(self.family_, families.Quantile):
            return {"smoothing width": self.family_.parameters[1]}
        if hasattr(self, "_variances"):
            effects = dict(zip(self._effect_names(len(self._effects)), self._effects, strict=True))
            shown = ", ".join(f"{name[5:-1]} {format_number(value)}" for name, value in effects.items())
            return {"variance of site effects, τ²": float(self.site_variance_), "site effects": shown}
        if not hasattr(self, "theta_"):
            return {}
        return {"theta": self.theta_, "its standard error": self.theta_standard_error_}

    def _take_periods(self, periods: Any, formula: Any) -> None:
        """Keep the edges of periods, if there are any."""
        self._periods: tuple[float, ...] = () if periods is None else tuple(check_grid(periods).tolist())
        self._survives = periods is not None
        if not self._survives:
            return
        if not isinstance(formula, str) or self.family_.name != "binomial" or self.site_effects != "none":
            raise ArgumentError("periods", "must be None without a formula, the binomial family, and no site effects")
        if len(self._periods) < 2:
            raise ArgumentError("periods", "must be two or more edges, between which periods are")

    def _spec_options(self) -> dict[str, Any]:
        return {"periods": tuple(map(float, self._periods))} if len(self._periods) else {}

    def _effect_names(self, count: int) -> list[str]:
        return name_periods(tuple(self._periods)) or super()._effect_names(count)

    def predict_hazards(self, X: Any, *, offset: Any = None) -> Array:
        """Return the probability of an event in each period, if there was none before; a row for each row."""
        if not len(self._periods):
            raise ArgumentError("periods", "must be given when the model is fitted, for hazards")
        return self.family_.mean(self.decision_function(X, offset=offset)[:, None] + self._effects)

    @property
    def _first_effect(self) -> int:  # type: ignore[override]
        return 0 if self.site_effects == "random" else 1

    def _given_family(self) -> Family:
        return families.make(self.family, self.link)

    def _family(self) -> Family | None:
        return self.family_

    def _distribution(self, found: Any) -> Any:
        return self.family_

    def _classifies(self) -> bool | None:
        return None if self.family_.name == "binomial" else False

    def _shifts(self, offset: Any, exposure: Any, rows: int) -> Array | None:
        """Return the offset of each row, None where there is none."""
        if exposure is None:
            return None if offset is None else column("offset", offset, rows)
        if self.family_.link != "log":
            raise ArgumentError("exposure", f"must be None for the link {self.family_.link}; give offset")
        times = column("exposure", exposure, rows)
        if (times <= 0).any():
            raise ArgumentError("exposure", f"must be positive, got {times.min():g}")
        shifts: Array = np.log(times)
        return shifts if offset is None else shifts + column("offset", offset, rows)

    def decision_function(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the linear predictor of each row; see :meth:`predict`."""
        check_is_fitted(self)
        scores = self._shifted(self._scores(X)[:, 0], X, offset)
        if self.site_effects == "none":
            return scores
        random = self.site_effects == "random"
        return scores + effects_of(site, self.sites_, self._effects, len(scores), random=random)

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
        check_is_fitted(self)
        return self.family_.mean(self.decision_function(X, offset=offset, site=site))

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None, site: Any = None) -> float:
        """Return the share of the deviance that is explained: 1 less the deviance by that of the weighted mean."""
        targets = column("y", tables.targets(y), len(np.atleast_1d(y)))
        family = self.family_
        z = self.decision_function(X, offset=offset, site=site)
        weights, _ = row_weights(sample_weight, len(targets))
        w = np.ones(len(targets)) if weights is None else weights
        from fpdfp.families.base import link_of

        mean = np.full(len(targets), float(np.average(targets, weights=w)))
        null = link_of(family.link, mean)
        left, whole = (float((w * family.functions.value(at, targets, family.parameters)).sum()) for at in (z, null))
        return 1.0 - left / whole if whole > 0 else float(left <= 0)
