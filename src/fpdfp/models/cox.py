"""Federated proportional hazards regression."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.cohorts.serialization import pack
from fpdfp.compress.plain import plain_bits
from fpdfp.engines.prepare import RunOptions
from fpdfp.errors import ArgumentError, RefusalError
from fpdfp.federation.questions import BaselineQuestion, Baselines, ConcordanceQuestion, write_answer
from fpdfp.federation.table import find_baselines, find_concordance
from fpdfp.formula.coding import Imputation
from fpdfp.losses.cox import TIES, Ties
from fpdfp.methods.base import Method
from fpdfp.models.base import FederatedModel, MakeDesign
from fpdfp.models.design import Design, Settings
from fpdfp.models.formulas import Asking, InverseProbability, Plan
from fpdfp.models.outcomes import Data, Hazards, Outcome
from fpdfp.models.penalty import ModelPenalty, Name
from fpdfp.models.result import VARIES, EventTimes, FitResult
from fpdfp.models.rows import read_rows
from fpdfp.survival import Baseline, Concordance, SurvivalCurves
from fpdfp.survival.counts import check_grid
from fpdfp.survival.proportionality import ProportionalityTests, Transform
from fpdfp.traffic import count_exchange


class FederatedCoxRegression(FederatedModel):
    r"""Cox's proportional hazards, stratified by site; rows stay at their sites.

    The hazard of a row a of site i is :math:`h_i(t) \exp(a^T w)`. Every site, and every stratum within it, has a
    baseline hazard of its own, and no row is compared with one of another site. Minimises minus the partial
    log-likelihood divided by the number of rows, plus one of the penalties of :class:`FederatedLogisticRegression`,
    none by default. Without a penalty it is R's ``coxph(Surv(time, event) ~ … + strata(site))``, in about its
    iterations.

    Parameters
    ----------
    penalty, bounds, start
        As in :class:`FederatedLogisticRegression`; by default ``"none"``.
    ties
        How events at the same time are treated: ``"efron"`` or ``"breslow"``.
    baseline
        The times at which sites are requested their baseline hazards after the fit; True for all times of events, False
        for no baseline. Sites of a federation answer at given times, unless their policy allows more, and at fewer
        where too few events are between two of them.
    standardize
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
    coef_
        The coefficients of the features, logarithms of hazard ratios.
    coefficients_
        The same by name.
    deviance_, null_deviance_
        Minus twice the partial log-likelihood, and the same without features; None where it was not requested.
    score_statistic_
        The statistic of the score test that all coefficients are 0, the log-rank test for groups; None likewise.
    events_
        The number of events of each site; None without baselines.
    baselines_
        By site and by stratum, the baseline hazard (:class:`fpdfp.survival.Baseline`); None if a site refuses.
    concordance_
        The concordance of risks and times within sites and strata (:class:`fpdfp.survival.Concordance`); None if a site
        refuses.
    sites_, rows_, left_out_, n_iter_, bits_up_, bits_down_, history_, result_
        The sites, rows used and excluded at each, rounds, all bits sent, and the run.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 2))
    >>> time, censored = rng.exponential(np.exp(-0.7 * X[:, 0])), rng.exponential(2.0, 300)
    >>> y = np.column_stack([np.minimum(time, censored), time <= censored])
    >>> model = fpdfp.FederatedCoxRegression().fit(X, y, groups=np.arange(300) % 3)
    >>> print(model.table(exponentiate=True))
        exp(coefficient)      z        p   2.5 %  97.5 %
    x0             2.244   9.03  < 0.001   1.883   2.675
    x1            0.9462  -0.73    0.462  0.8166   1.096
    >>> print(model.concordance_)
    concordance 0.6881 (standard error 0.0209, 10203 pairs)
    >>> model.predict_survival([[0.0, 0.0]], times=[0.5, 1.0], site=0).survival.round(2)
    array([[0.49, 0.31]])
    """

    baselines_: dict[str, dict[str, Baseline]] | None
    concordance_: Concordance | None
    events_: dict[str, int] | None
    score_statistic_: float | None
    _tol = 1e-8

    def __init__(
        self,
        penalty: Name | ModelPenalty = "none",
        *,
        ties: Ties = "efron",
        baseline: Any = True,
        bounds: Any = None,
        start: Any = None,
        standardize: bool | None = None,
        method: Method | None = None,
        inference: bool | Literal["auto"] = "auto",
        run: RunOptions | None = None,
    ) -> None:
        super().__init__(
            penalty, bounds=bounds, start=start, standardize=standardize, method=method, inference=inference, run=run
        )
        self.ties = ties
        self.baseline = baseline

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        groups: Any = None,
        *,
        strata: Any = None,
        clusters: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        weights: str | InverseProbability | None = None,
        missing: Imputation = "drop",
        levels: Any = "shared",
        on_refusal: Literal["stop", "exclude"] = "stop",
    ) -> FederatedCoxRegression:
        """Fit the model to rows X with times y, or a formula y to a table or a federation X.

        Parameters
        ----------
        X, y
            Rows and their times: a matrix with the columns (time, event) or (start, stop, event), a structured array as
            in scikit-survival, or times alone if all are events. Or a table or a federation, and a formula such as
            ``"Surv(time, died) ~ age + C(stage) + strata(sex)"`` or ``"Surv(start, stop, died == 'yes') ~ dose"``.
        groups
            The site of each row, or the name of the column that states it.
        strata
            The stratum of each row, within its site.
        clusters
            Which rows belong together, of the same subject for instance: a label of each row, or ``cluster(subject)``
            in a formula. Robust errors then add up the scores of such rows, as they must where a subject has several.
        sample_weight
            The weight of each row.
        offset
            What is added to the linear predictor of each row.
        weights
            With a formula: the column that weighs rows, an expression of columns, or
            :class:`fpdfp.InverseProbability`.
        missing, levels
            With a formula: as in :meth:`FederatedLogisticRegression.fit`.
        on_refusal
            With a federation: ``"stop"`` raises an error with what all sites that refuse say; ``"exclude"`` fits
            the model without these sites, which ``excluded_`` and the summary name.
        """
        return self._fit_data(
            X, y, groups, on_refusal=on_refusal, strata=strata, clusters=clusters, sample_weight=sample_weight,
            offset=offset, weights=weights, missing=missing, levels=levels,
        )  # fmt: skip

    def _settings(self, *, selecting: bool = False) -> Settings:
        _checks.choice("ties", self.ties, TIES)
        self._baseline_times()
        return super()._settings(selecting=selecting)

    def _baseline_times(self) -> Array | None:
        """Return the times at which baselines are requested, None for all."""
        return None if isinstance(self.baseline, bool | np.bool_) else check_grid(self.baseline)

    def _outcome_of(self, plan: Plan | None, classes: Array | None) -> Outcome:
        return Hazards(ties=self.ties)

    def _design(
        self, X: Any, y: Any, groups: Any, settings: Settings, *, strata: Any = None, clusters: Any = None,
        sample_weight: Any = None, offset: Any = None, weights: Any = None, missing: Any = "drop",
        levels: Any = "shared",
    ) -> MakeDesign:  # fmt: skip
        outcome = Hazards(ties=self.ties)
        if isinstance(y, str):
            if clusters is not None:
                raise ArgumentError("clusters", "must be None with a formula; give cluster(…) in the formula")
            for name, value in (("strata", strata), ("sample_weight", sample_weight), ("offset", offset)):
                if value is not None:
                    instead = "weights='column'" if name == "sample_weight" else f"{name}(…) in the formula"
                    raise ArgumentError(name, f"must be None with a formula; give {instead}")
            return self._design_of_formula(
                y, settings, lambda d, intercept, sites, plan: (outcome, plan), classify=False, survival=True,
                weights=weights, missing=missing, levels=levels,
            )  # fmt: skip
        if weights is not None:
            raise ArgumentError("weights", "must be None without a formula; give sample_weight")
        X = self._validate(X)
        rows = read_rows(X, y, strata, sample_weight, offset)
        if clusters is not None:
            clusters = _checks.labels("clusters", clusters)[1]
            if clusters.shape != rows.y.shape:
                raise ArgumentError("clusters", f"must have one label for each of the {len(rows.y)} rows")
        scale = 1.0 if rows.weights is None else len(rows.weights) / float(rows.weights.sum())
        data = Data(rows.y, rows.weights, scale, rows.offset, rows.times, rows.strata, clusters)
        return self._design_of_rows(X, data, groups, settings, lambda *_: (outcome, None))

    def _complete(self, fit: FitResult, design: Design) -> FitResult:
        """Ask for concordance and baseline hazards."""
        assert fit.run is not None
        if fit.plan is not None and fit.plan.design.varies:
            return dataclasses.replace(fit, times=EventTimes(None, None, VARIES))
        x, grid = fit.run.x.astype(np.float64), self._baseline_times()
        concordance: Concordance | None = None
        found: list[Baselines] = []
        refused = "it was not asked for when the model was fitted (baseline=False)"
        if design.parts is not None:
            parts = design.parts()
            sums = [find_concordance(part, x) for part in parts]
            concordance = sum(sums[1:], start=sums[0])
            found = [] if self.baseline is False else [find_baselines(part, x, self.ties, grid) for part in parts]
            up = 8 * sum(len(pack(write_answer(one))) for one in [*sums, *found])
            down = (len(sums) + len(found)) * plain_bits(x.shape, x.dtype)
            for what in ["concordance", *(["baseline"] if found else [])]:
                count_exchange(what)
        else:
            assert design.cohort is not None
            assert design.spec is not None
            assert fit.ridge is not None
            asking, spec = Asking(design.cohort), dataclasses.replace(design.spec, ridge=fit.ridge)
            try:
                concordance = asking.ask(ConcordanceQuestion(spec, x))
                if self.baseline is not False:
                    found = asking.ask_each(BaselineQuestion(spec, x, grid))
            except RefusalError as error:
                refused = f"{error} (give baseline=[…], the times at which sites tell their hazards)"
            up, down = asking.up, asking.down
        baselines = {
            str(name): {
                stratum: one.unscale(x, *design.scaled) for stratum, one in zip(site.strata, site.hazards, strict=True)
            }
            for name, site in zip(fit.sites, found, strict=True)
        } if found else None  # fmt: skip
        return dataclasses.replace(
            fit, times=EventTimes(baselines, concordance, refused), bits_up=fit.bits_up + up,
            bits_down=fit.bits_down + down,
        )  # fmt: skip

    def predict(self, X: Any) -> Array:
        """Return the risk of each row, the logarithm of its hazard ratio to a row of zeros, with a formula's offset."""
        rows = self._rows(X)
        return self.fitted_.predict(rows)

    def predict_survival(
        self, X: Any, times: Any = None, *, site: Any = None, stratum: str | None = None, level: float = 0.95
    ) -> SurvivalCurves:
        """Return survival curves of rows: :meth:`fpdfp.models.result.FitResult.predict_survival`."""
        rows = self._rows(X)
        return self.fitted_.predict_survival(rows, times, site=site, stratum=stratum, level=level)

    def check_proportional_hazards(
        self, X: Any, groups: Any = None, *, transform: Transform = "log"
    ) -> ProportionalityTests:
        """Test proportional hazards: :meth:`fpdfp.models.result.FitResult.check_proportional_hazards`."""
        return self._fitted().check_proportional_hazards(X, groups, transform=transform)

    def concordance(self, X: Any, y: Any = None, *, strata: Any = None, sample_weight: Any = None) -> Concordance:
        """Return the concordance of risks with the times of rows, compared within strata alone.

        With a formula, X is a table with times and strata, and y is None.
        """
        rows = self._rows(X)
        return self.fitted_.concordance_of(rows, y, strata=strata, sample_weight=sample_weight)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the concordance index: 0.5 for no relation of risks and times, 1 for the order of times."""
        return self.concordance(X, y, sample_weight=sample_weight).index
