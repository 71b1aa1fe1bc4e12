"""Federated proportional hazards regression."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.serialization import pack
from fpdfp.compress.plain import plain_bits
from fpdfp.engines.options import RunOptions
from fpdfp.errors import ArgumentError, RefusalError
from fpdfp.federation.questions import BaselineQuestion, Baselines, ConcordanceQuestion, ModelSpec, write_answer
from fpdfp.federation.table import ModelRows, SiteTable
from fpdfp.federation.times import DIGITS, find_baselines, find_concordance, read_clusters, read_strata, read_times
from fpdfp.formula.coding import Imputation
from fpdfp.formula.tree import Survival
from fpdfp.inference import Summary, Table
from fpdfp.inference.covariances import Kind
from fpdfp.inference.hypotheses import judge
from fpdfp.losses import Cox, Losses
from fpdfp.losses.cox import TIES, Ties
from fpdfp.methods.base import Method
from fpdfp.models import codecs, tables
from fpdfp.models.base import FederatedLinearModel
from fpdfp.models.formulas import Asking
from fpdfp.models.penalty import Columns, ModelPenalty, Name
from fpdfp.precondition.base import full
from fpdfp.problem import Problem
from fpdfp.survival import Baseline, Concordance, SurvivalCurves, Times
from fpdfp.survival.counts import check_grid


class PartialLikelihood:
    """What a summary says of the likelihood of Cox."""

    name, link, has_dispersion, is_likelihood = "Cox", "log", False, True

    @staticmethod
    def log_likelihood(deviance: float, saturated: float, weight: float, rows: int) -> float:
        """Return the partial log-likelihood."""
        return saturated - 0.5 * deviance


class FederatedCoxRegression(FederatedLinearModel):
    r"""Cox's proportional hazards, stratified by site; rows stay at their sites.

    The hazard of a row a of site i is :math:`h_i(t) \exp(a^T w)`: every site, and every stratum within it, has a
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
        The times at which sites are asked for their baseline hazards after the fit; True for all times of events, False
        for no baseline. Sites of a federation answer at given times, unless their policy allows more, and at fewer
        where too few events are between two of them.
    standardize
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
    coef_
        The coefficients of the features, logarithms of hazard ratios.
    coefficients_
        The same by name.
    deviance_, null_deviance_
        Minus twice the partial log-likelihood, and that of no features; None where it was not asked for.
    score_statistic_
        The statistic of the score test that all coefficients are 0, the log-rank test for groups; None likewise.
    events_
        The number of events of each site; None where there are no baselines.
    baselines_
        By site and by stratum, the baseline hazard (:class:`fpdfp.survival.Baseline`); None if a site refuses.
    concordance_
        The concordance of risks and times within sites and strata (:class:`fpdfp.survival.Concordance`); None if a site
        refuses.
    sites_, rows_, left_out_, n_iter_, bits_up_, bits_down_, history_, result_
        The sites, rows used and left out at each, rounds, all bits sent, and the run.

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
    _exact = True
    _tol = 1e-8
    _survives = True

    _kept = FederatedLinearModel._kept | {
        "baselines_": codecs.optional(codecs.by_name(codecs.by_name(codecs.record(
            Baseline, times=codecs.NUMBERS, hazard=codecs.NUMBERS, variance=codecs.NUMBERS, means=codecs.MATRIX,
            events=codecs.NUMBERS,
        )))),
        "events_": codecs.optional(codecs.COUNTS),
        "concordance_": codecs.optional(codecs.record(
            Concordance, concordant=codecs.NUMBER, discordant=codecs.NUMBER, tied=codecs.NUMBER,
            squares=codecs.NUMBERS, rows=codecs.INTEGER,
        )),
        "score_statistic_": codecs.optional(codecs.NUMBER),
        "_refused": codecs.TEXT,
    }  # fmt: skip

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
            penalty, bounds=bounds, start=start, fit_intercept=False, standardize=standardize, method=method,
            inference=inference, run=run,
        )  # fmt: skip
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
        weights: str | None = None,
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
            The site of each row, or the name of the column that says so.
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
            With a formula: the column that weighs rows, or an expression of columns.
        missing, levels
            With a formula: as in :meth:`FederatedLogisticRegression.fit`.
        on_refusal
            With a federation: ``"stop"`` raises an error with what all sites that refuse say; ``"exclude"`` fits
            the model without these sites, which ``excluded_`` and the summary name.
        """
        self._check_parameters()
        _checks.choice("ties", self.ties, TIES)
        grid = self._baseline_times()
        self.baselines_ = self.concordance_ = self.events_ = None
        self._refused = "it was not asked for when the model was fitted (baseline=False)"
        if isinstance(y, str):
            if clusters is not None:
                raise ArgumentError("clusters", "must be None with a formula; give cluster(…) in the formula")
            for name, value in (("strata", strata), ("sample_weight", sample_weight), ("offset", offset)):
                if value is not None:
                    instead = "weights='column'" if name == "sample_weight" else f"{name}(…) in the formula"
                    raise ArgumentError(name, f"must be None with a formula; give {instead}")
            self._take_model(self._fit_formula(X, y, groups, missing, levels, on_refusal, weights=weights))
            self._add_sections()
            return self
        if weights is not None:
            raise ArgumentError("weights", "must be None without a formula; give sample_weight")
        X = validate_data(self, tables.rows(X), accept_sparse="csr", dtype=np.float64)
        whole = _read_rows(X, y, strata, sample_weight, offset)
        if clusters is not None:
            codes = _checks.labels("clusters", clusters)[1]
            if codes.shape != whole.y.shape:
                raise ArgumentError("clusters", f"must have one label for each of the {len(whole.y)} rows")
            whole = whole._replace(clusters=codes)
        parts: list[ModelRows] = []

        def losses(rows: Any, owner: IntArray, ridge: Array) -> Losses:
            parts.extend(_take(whole._replace(X=rows), owner == site) for site in range(len(self.sites_)))
            times, weight = read_response(y, len(whole.y)), whole.weights
            scale = 1.0 if weight is None else len(weight) / float(weight.sum())
            return Cox(
                rows, times.time, times.event, owner, entry=times.entry, l2=ridge, ties=self.ties, strata=whole.strata,
                clusters=clusters, weights=weight, weight_scale=scale, offset=whole.offset,
            )  # fmt: skip

        self._take_model(self._fit(X, groups, None, losses))
        x = self.result_.x.astype(np.float64)
        sums = [find_concordance(part, x) for part in parts]
        self._keep_concordance(sum(sums[1:], start=sums[0]))
        found = [] if self.baseline is False else [find_baselines(part, x, self.ties, grid) for part in parts]
        self._keep_baselines(found)
        self.bits_up_ += 8 * sum(len(pack(write_answer(one))) for one in sums)
        self.bits_up_ += 8 * sum(len(pack(write_answer(one))) for one in found)
        self.bits_down_ += (len(sums) + len(found)) * plain_bits(x.shape, x.dtype)
        return self

    def _baseline_times(self) -> Array | None:
        """Return the times at which baselines are asked for, None for all."""
        if isinstance(self.baseline, bool | np.bool_):
            return None
        return check_grid(self.baseline)

    def _spec_options(self) -> dict[str, Any]:
        return {"ties": self.ties}

    def _family(self) -> Any:
        return PartialLikelihood

    @property
    def intercept_(self) -> float:
        """Zero: baseline hazards have the constant."""
        return 0.0

    def _conclude(self, problem: Problem, columns: Columns, centre: Array, scale: Array) -> Array:
        self._standard, self.score_statistic_ = (centre, scale), None
        return super()._conclude(problem, columns, centre, scale)

    def _ask_zero(self, problem: Problem, columns: Columns) -> None:
        null = self._ask_sums(problem, np.zeros(problem.losses.shape), "null deviance", robust=False)
        self.null_deviance_ = float(null.numbers[3])
        score, before = null.score, full(null.hessian)
        self.score_statistic_ = float(score @ np.linalg.pinv(before, hermitian=True) @ score)

    def _ask_more(self, asking: Asking, spec: ModelSpec) -> None:
        x, before = self.result_.x.astype(np.float64), (asking.up, asking.down)
        try:
            self._keep_concordance(asking.ask(ConcordanceQuestion(spec, x)))
            if self.baseline is not False:
                self._keep_baselines(asking.ask_each(BaselineQuestion(spec, x, self._baseline_times())))
        except RefusalError as error:
            self._refused = f"{error} (give baseline=[…], the times at which sites tell their hazards)"
        self.bits_up_, self.bits_down_ = (
            self.bits_up_ + asking.up - before[0],
            self.bits_down_ + asking.down - before[1],
        )

    def _take_model(self, model: Array) -> None:
        (row,) = model
        self.coef_ = row[:-1]

    def _keep_concordance(self, found: Concordance) -> None:
        self.exchanges_ |= {"concordance": 1}
        self.concordance_ = found

    def _keep_baselines(self, found: list[Baselines]) -> None:
        """Keep baseline hazards, for features as they were given."""
        if not found:
            return
        self.exchanges_ |= {"baseline hazards": 1}
        x = self.result_.x.astype(np.float64)
        self.baselines_ = {
            str(name): {
                stratum: one.unscale(x, *self._standard) for stratum, one in zip(site.strata, site.hazards, strict=True)
            }
            for name, site in zip(self.sites_, found, strict=True)
        }
        self.events_ = {
            name: int(sum(one.events.sum() for one in strata.values())) for name, strata in self.baselines_.items()
        }

    def _outcome_kind(self) -> tuple[str, Any]:
        return "survival", ()

    def _events(self) -> int | None:
        return None if self.events_ is None else sum(self.events_.values())

    def _more(self) -> dict[str, Any]:
        lines: dict[str, Any] = {}
        if self.concordance_ is not None:
            lines[""] = str(self.concordance_)
        if self.null_deviance_ is not None and not self._penalised:
            count = len(self.coef_)
            lines["likelihood ratio"] = judge("", self.null_deviance_ - self.deviance_, count, None)
            lines["score"] = judge("", float(self.score_statistic_ or 0.0), count, None)
        return {name: str(value).removeprefix(": ") for name, value in lines.items()}

    def table(self, *, errors: Kind = "model", level: float = 0.95, exponentiate: bool = False) -> Table:
        """Return the coefficients with standard errors, tests and confidence intervals; see :meth:`FederatedGLM.table`.

        ``"robust"`` means ``"HC0"``: without a factor for small samples, as R's ``coxph(robust=TRUE)``. With clusters
        the scores of rows that belong together are added up first.
        """
        kind: Kind = "HC0" if errors == "robust" else errors
        found = super().table(errors=kind, level=level, exponentiate=exponentiate)
        return dataclasses.replace(found, errors="of the model (observed information)") if errors == "model" else found

    def summary(self, **options: Any) -> Summary:
        """Return coefficients by name, with standard errors, tests and intervals; the arguments are those of ``table``.

        The deviance is minus twice the partial log-likelihood, which has no degrees of freedom of residuals.
        """
        return dataclasses.replace(super().summary(**options), df_residual=None, df_null=None)

    def predict(self, X: Any) -> Array:
        """Return the risk of each row, the logarithm of its hazard ratio to a row of zeros, with a formula's offset."""
        scores = self._scores(X)[:, 0]
        design = getattr(getattr(self, "plan_", None), "design", None)
        if design is not None and design.offset is not None:
            table = X if isinstance(X, SiteTable) else SiteTable.read(X)
            scores = scores + table.number("the offset", design.offset)
        return scores

    def predict_survival(
        self, X: Any, times: Any = None, *, site: Any = None, stratum: str | None = None, level: float = 0.95
    ) -> SurvivalCurves:
        """Return the probability of no event up to given times, for each row.

        Parameters
        ----------
        X
            Rows, or a table with the columns of the formula.
        times
            Times; by default those at which the site tells its hazard.
        site, stratum
            Whose baseline hazard to use: one of ``baselines_``. Needed where there are several.
        level
            Of the confidence intervals, which there are for a fit without a penalty.
        """
        check_is_fitted(self)
        hazard = self._baseline_of(site, stratum)
        hazard = hazard if times is None else hazard.at(times)
        formula = getattr(self, "formula_", None) is not None
        rows = (
            self._code(X)
            if formula
            else validate_data(self, tables.rows(X), accept_sparse="csr", dtype=np.float64, reset=False)
        )
        dense = rows.toarray() if hasattr(rows, "toarray") else rows
        known = self.information_ is not None and not self._penalised
        covariance = self.table().covariance if known else None
        return hazard.curves(dense, self.coef_, covariance, offset=self.predict(X) - dense @ self.coef_, level=level)

    def _baseline_of(self, site: Any, stratum: str | None) -> Baseline:
        """Return the baseline hazard of a site and a stratum."""
        if self.baselines_ is None:
            raise ArgumentError("baseline", f"is not known: {self._refused}")
        if site is None and len(self.baselines_) > 1:
            raise ArgumentError("site", f"must say whose baseline hazard to use: one of {', '.join(self.baselines_)}")
        strata = self.baselines_.get(str(site) if site is not None else next(iter(self.baselines_)))
        if strata is None:
            raise ArgumentError("site", f"must be one of {', '.join(self.baselines_)}, got {site!r}")
        if stratum is None and len(strata) == 1:
            return next(iter(strata.values()))
        if stratum is None or str(stratum) not in strata:
            raise ArgumentError("stratum", f"must be one of {', '.join(map(repr, strata))}, got {stratum!r}")
        return strata[str(stratum)]

    def concordance(self, X: Any, y: Any = None, *, strata: Any = None, sample_weight: Any = None) -> Concordance:
        """Return the concordance of risks with the times of rows, compared within strata alone.

        With a formula, X is a table with times and strata, and y is None.
        """
        risk, design = self.predict(X), getattr(getattr(self, "plan_", None), "design", None)
        if y is None:
            if design is None or not isinstance(design.response, Survival):
                raise ArgumentError("y", "must be the times of rows")
            table = X if isinstance(X, SiteTable) else SiteTable.read(X)
            times, strata = read_times(design.response, table), read_strata(design.strata, table)
            clusters = None if design.cluster is None else read_clusters(design.cluster.column, table)
        else:
            times, clusters = read_response(y, len(risk)), None
        risk = np.round(risk, DIGITS)
        return Concordance.of(times, risk, strata=strata, weights=sample_weight, clusters=clusters)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the concordance index: 0.5 for no relation of risks and times, 1 for the order of times."""
        return self.concordance(X, y, sample_weight=sample_weight).index


def read_response(y: Any, rows: int) -> Times:
    """Return the times of rows; numbers alone are times of events."""
    if y is None:
        raise ArgumentError(
            "y", "must be the times of rows: the model requires y to be passed, but the target y is None"
        )
    given = tables.targets(y)
    array = _checks.host_array("y", given)
    if array.dtype.names is None and array.ndim == 1:
        if array.dtype.kind == "O":
            type_of_target(array, input_name="y", raise_unknown=True)
        times = Times.of(_checks.float_array("y", array), np.ones(len(array)))
    else:
        times = Times.read(array)
    if len(times.time) != rows:
        raise ArgumentError("y", f"must have a time for each of the {rows} rows of X, got {len(times.time)}")
    if not times.event.any():
        raise ArgumentError("y", "must have an event in some row, but all are censored")
    return times


def _read_rows(X: Any, y: Any, strata: Any, weights: Any, offset: Any) -> ModelRows:
    """Return rows with their times, as a site has them."""
    times, count = read_response(y, X.shape[0]), X.shape[0]
    weight = (
        None if weights is None else _checks.float_array("sample_weight", weights, dtype=np.float64, shape=(count,))
    )
    if weight is not None and ((weight < 0).any() or not (weight[times.event] > 0).any()):
        raise ArgumentError("sample_weight", "must be at least zero for all rows, and not zero for some with an event")
    shifts = None if offset is None else _checks.float_array("offset", offset, dtype=np.float64, shape=(count,))
    labels = np.full(count, "")
    if strata is not None:
        names, codes = _checks.labels("strata", strata)
        if codes.shape != (count,):
            raise ArgumentError("strata", f"must have one label for each of the {count} rows, got {codes.shape}")
        labels = names.astype(str)[codes]
    return ModelRows(X, times.event.astype(np.float64), weight, shifts, times, labels)


def _take(rows: ModelRows, some: Array) -> ModelRows:
    """Return some rows."""
    times = None if rows.times is None else Times(*(one[some] for one in rows.times))
    weights, offset, strata = (None if one is None else one[some] for one in (rows.weights, rows.offset, rows.strata))
    clusters = None if rows.clusters is None else rows.clusters[some]
    return ModelRows(rows.X[some], rows.y[some], weights, offset, times, strata, clusters)
