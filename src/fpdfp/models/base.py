"""Base of all models: scikit-learn estimators that hold parameters; a design, a fit and a result do the rest."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, ClassVar, Literal, Self

import numpy as np
import sklearn
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.engines import History, Result
from fpdfp.engines.prepare import RunOptions
from fpdfp.errors import ArgumentError, ArgumentTypeError, DataWarning, RefusalError, StorageError
from fpdfp.federation.cohort import LocalCohort, TableCohort
from fpdfp.inference import Heterogeneity, HeterogeneityTable, HypothesisTest, Information, Summary, Table
from fpdfp.inference.covariances import Kind
from fpdfp.inference.heterogeneity import SiteErrors
from fpdfp.inference.intervals import quantile_of
from fpdfp.methods.base import Method
from fpdfp.models.cross_validation import (
    CrossValidation,
    check_convex,
    check_draws,
    cross_validate,
    draw_sites,
    find_path,
    find_stability,
)
from fpdfp.models.design import Design, MakeOutcome, Settings, check_groups, design_of_formula, design_of_rows
from fpdfp.models.fitting import Search, fit_design
from fpdfp.models.formulas import Plan
from fpdfp.models.likelihood import ProfileIntervals, profile_intervals
from fpdfp.models.outcomes import Data, Outcome, SiteEffects
from fpdfp.models.penalty import ModelPenalty, Name, NoPenalty, as_model_penalty
from fpdfp.models.private import fit_private, in_ranges
from fpdfp.models.result import FitResult
from fpdfp.models.rows import as_rows, as_targets
from fpdfp.models.saving import UNKNOWN, save, write_parameter
from fpdfp.scores.evaluation import Evaluation
from fpdfp.scores.learning import LearningCurve
from fpdfp.selection.curves import Bootstrap, Stability
from fpdfp.selection.paths import RATIO, Path, check_grid
from fpdfp.traffic import counting_exchanges

#: Modules of scikit-learn that pass ``groups`` to the splitter only, unless metadata routing is enabled.
MODULES = ("sklearn.model_selection._validation", "sklearn.model_selection._search")


def warn_of_groups(name: str) -> None:
    """Warn if this is called from a cross-validation that has groups and does not pass them to ``fit``."""
    if sklearn.get_config()["enable_metadata_routing"]:
        return
    frame = inspect.currentframe()
    while frame is not None:
        where = frame.f_globals.get("__name__")
        if where in MODULES:
            given, to_fit = frame.f_locals.get("groups"), frame.f_locals.get("params") or {}
            search = where == MODULES[1]
            if (search and "groups" in to_fit) or (not search and given is not None and "groups" not in to_fit):
                _warn(name, search)
                return
        frame = frame.f_back


def advise_on_search(name: str) -> None:
    """Say that there is a cheaper way if this is called from a search over penalty weights."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == MODULES[1]:
            search = frame.f_locals.get("self")
            given = getattr(search, "param_grid", None) or getattr(search, "param_distributions", None) or {}
            grids = given if isinstance(given, list) else [given]
            if any(
                str(key).split("__")[-1] == "penalty" and _weights(one) for grid in grids for key, one in grid.items()
            ):
                warn(
                    f"{type(search).__name__} fits every penalty and every fold by itself; fpdfp.{name}CV finds "
                    "all weights in the exchanges of about one fit",
                    UserWarning,
                    "sklearn",
                    "joblib",
                )
                return
        frame = frame.f_back


def _weights(penalties: Any) -> bool:
    """Whether some of the penalties of a search differ in nothing but weight or options."""
    kinds = [as_model_penalty(one).name for one in penalties] if isinstance(penalties, list | tuple) else ["", ""]
    return len(set(kinds)) < len(kinds)


def _warn(name: str, search: bool) -> None:
    or_else = "" if search else ', or give params={"groups": groups} as well'
    warn(
        f"groups are passed to the splitter only, so {name} is fitted as if one site held all rows; enable metadata "
        f"routing (sklearn.set_config(enable_metadata_routing=True)) and call set_fit_request(groups=True){or_else}",
        UserWarning,
        "sklearn",
        "joblib",
    )


#: Where parameters are that estimators had themselves.
MOVED = {
    "alpha": "penalty=fpdfp.L1(weight=…), or another penalty with its weight",
    "alphas": "cv=fpdfp.CrossValidation(alphas=…)",
    "l1_ratio": "penalty=fpdfp.ElasticNet(l1_ratio=…) or fpdfp.SparseGroup(l1_ratio=…)",
    "l1_weight": "penalty=fpdfp.Graph(l1=…) or fpdfp.Fused(l1=…)",
    "l2": "penalty=fpdfp.Ridge(weight=…), or l2=… of another penalty",
    "graph": "penalty=fpdfp.Graph(graph=…)",
    "graph_alpha": "penalty=fpdfp.Graph(sparsity=…)",
    "graph_form": "penalty=fpdfp.Graph(form=…)",
    "feature_groups": "penalty=fpdfp.Group(groups=…) or fpdfp.SparseGroup(groups=…)",
    "concavity": "penalty=fpdfp.MCP(concavity=…) or fpdfp.SCAD(concavity=…)",
    "penalty_weights": "factors=… of the penalty, as in penalty=fpdfp.L1(factors=…)",
    "random_state": "run=fpdfp.RunOptions(seed=…)",
    "ratio": "cv=fpdfp.CrossValidation(ratio=…)",
    "scoring": "cv=fpdfp.CrossValidation(scoring=…)",
    "rule": "cv=fpdfp.CrossValidation(rule=…)",
    "cv_tol": "cv=fpdfp.CrossValidation(tol=…)",
    "cv_rounds": "cv=fpdfp.CrossValidation(rounds=…)",
    "cv_checkpoint": "cv=fpdfp.CrossValidation(checkpoint=…)",
    **{
        name: f"run=fpdfp.RunOptions({name}=…)"
        for name in (
            "rounds", "tol", "clients_per_round", "compressor", "downlink", "sampling", "drop_out", "prefer",
            "progress",
        )
    },
}  # fmt: skip

#: The models that have a cross-validation of their own.
SEARCHED = (
    "FederatedLogisticRegression", "FederatedLinearRegression", "FederatedGLM", "FederatedCoxRegression",
    "FederatedMultinomialRegression", "FederatedOrdinalRegression",
)  # fmt: skip
#: Makes the design of what ``fit`` is given: of the sites of a formula, or of a matrix (None).
MakeDesign = Callable[[TableCohort | None], Design]


class FederatedModel(BaseEstimator):
    """Base class of all models; see :class:`FederatedLogisticRegression`.

    Attributes
    ----------
    fitted_
        The result of the fit (:class:`fpdfp.models.result.FitResult`), which owns what is known of it: the attributes
        with an underscore at the end are its fields.
    """

    fitted_: FitResult
    coef_: Array
    intercept_: Any
    coefficients_: dict[str, Any]
    classes_: Array
    sites_: Array
    rows_: dict[str, int]
    left_out_: dict[str, int]
    excluded_: Mapping[str, str]
    formula_: str | None
    plan_: Plan
    penalty_: ModelPenalty
    graph_: Any
    status_: str
    n_iter_: int
    n_steps_: int
    bits_up_: int
    bits_down_: int
    exchanges_: dict[str, int]
    information_: list[Information] | None
    deviance_: float
    null_deviance_: float | None
    aliased_: tuple[str, ...]
    result_: Result
    history_: History
    iterates_: Any
    run_folder_: FilePath | None
    n_features_in_: int
    feature_names_in_: Array

    #: The tolerance of a fit to which none is given.
    _tol: ClassVar[float] = 1e-6
    __signature__: ClassVar[inspect.Signature]

    def __new__(cls, *given: Any, **named: Any) -> Self:
        """Refuse parameters of old, by the name of the place where they are now."""
        _refuse_moved(cls.__name__, named)
        made: Self = super().__new__(cls)
        return made

    def __init__(
        self,
        penalty: Name | ModelPenalty | None = None,
        *,
        bounds: Any = None,
        start: Any = None,
        standardize: bool | None = None,
        method: Method | None = None,
        inference: bool | Literal["auto"] = "auto",
        run: RunOptions | None = None,
    ) -> None:
        self.penalty = penalty
        self.bounds = bounds
        self.start = start
        self.standardize = standardize
        self.method = method
        self.inference = inference
        self.run = run

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as of every estimator of scikit-learn; return the model."""
        _refuse_moved(type(self).__name__, params)
        made: Self = super().set_params(**params)
        return made

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        signature = inspect.signature(cls.__init__)
        own = [one for name, one in signature.parameters.items() if name != "self"]
        cls.__signature__ = signature.replace(parameters=own)  # not that of __new__

    def __getattr__(self, name: str) -> Any:
        fitted = vars(self).get("fitted_")
        if fitted is None or name.startswith("_") or not name.endswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return fitted.attribute(name)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_clone__(self) -> Any:
        # Cross-validation clones the estimator where it still knows the groups.
        warn_of_groups(type(self).__name__)
        if type(self).__name__ in SEARCHED:
            advise_on_search(type(self).__name__)
        return super().__sklearn_clone__()

    # What a model says about its fit.

    def _settings(self, *, selecting: bool = False) -> Settings:
        """Return what the parameters say, checked."""
        _checks.flag("fit_intercept", getattr(self, "fit_intercept", False))
        standardize = self.standardize is not None and _checks.flag("standardize", self.standardize)
        if self.inference != "auto":
            _checks.flag("inference", self.inference)
        if self.run is not None and not isinstance(self.run, RunOptions):
            raise ArgumentTypeError("run", f"must be fpdfp.RunOptions or None, got {_checks.kind(self.run)}")
        if self.run is not None and (self.run.x0 is not None or self.run.metrics):
            raise ArgumentError("run", "must not have x0 or metrics; use start and learning_curve")
        given = RunOptions(progress=False) if self.run is None else self.run
        options = dataclasses.replace(given, tol=self._tol if given.tol is None else given.tol or None)
        penalty = as_model_penalty("l1" if self.penalty is None else self.penalty)
        validation = self._validation
        if validation is None:
            several = [name for name in penalty.mixed if np.ndim(getattr(penalty, name))]
            if several:
                chooses = "cross-validation chooses from several"
                raise ArgumentError("penalty", f"must have one number for {several[0]}; {chooses}")
        else:
            check_convex(penalty, "for cross-validation")
            if penalty.weight is not None:
                chosen = "it is chosen, from cv=fpdfp.CrossValidation(alphas=…)"
                raise ArgumentError("penalty", f"must have no weight: {chosen}")
        return Settings(
            type(self).__name__, penalty, self.bounds, self.start, bool(getattr(self, "fit_intercept", False)),
            standardize, self.method, self.inference, options, self._site_effects, selecting,
        )  # fmt: skip

    def _settings_of(self, y: Any, *, selecting: bool = False) -> Settings:
        """Return the same for outcomes y, or for a formula, which has no penalty unless one is given."""
        settings = self._settings(selecting=selecting)
        penalty = settings.penalty
        if isinstance(y, str) and self.penalty is None and not selecting:
            penalty = NoPenalty()
        standardize = settings.standardize if self.standardize is not None else penalty.penalises
        return dataclasses.replace(settings, penalty=penalty, standardize=standardize)

    @property
    def _site_effects(self) -> SiteEffects:
        """The kind of the sites' intercepts."""
        return "none"

    @property
    def _validation(self) -> CrossValidation | None:
        """The choice of the penalty's weight; None if it is given."""
        given = getattr(self, "cv", None)
        return given if given is None or isinstance(given, CrossValidation) else CrossValidation(given)

    def _validate(self, X: Any, *y: Any, **options: Any) -> Any:
        """Return rows, and outcomes where they are given, of a matrix as they are fitted."""
        return validate_data(self, as_rows(X), *map(as_targets, y), accept_sparse="csr", dtype=np.float64, **options)

    def _rows(self, X: Any) -> Any:
        """Return new rows: as they are for a formula, otherwise checked against those that were fitted."""
        check_is_fitted(self, "fitted_")
        return X if self.fitted_.plan is not None else self._validate(X, reset=False)

    def _fitted(self) -> FitResult:
        check_is_fitted(self, "fitted_")
        return self.fitted_

    # Fits.

    def _design(self, *data: Any, **options: Any) -> MakeDesign:
        """Return the function that makes the design of X, y, groups and settings, which are checked here."""
        raise NotImplementedError

    def _design_of_rows(self, X: Any, data: Data, groups: Any, settings: Settings, make: MakeOutcome) -> MakeDesign:
        names = vars(self).get("feature_names_in_")
        return lambda _: design_of_rows(X, data, groups, names, settings, make)

    def _design_of_formula(
        self, formula: str, settings: Settings, make: MakeOutcome, *, classify: bool | None, survival: bool = False,
        intercept: bool | None = None, **options: Any,
    ) -> MakeDesign:  # fmt: skip
        beside = settings.intercept if intercept is None else intercept

        def build(cohort: TableCohort | None) -> Design:
            assert cohort is not None
            return design_of_formula(
                cohort, formula, settings, make, classify=classify, survival=survival, intercept=beside, **options
            )

        return build

    @staticmethod
    def _cohort(X: Any, y: Any, groups: Any, on_refusal: str) -> TableCohort | None:
        """Return the sites of a table, or of a federation, for a formula; None for a matrix."""
        if not isinstance(y, str):
            return None
        _checks.choice("on_refusal", on_refusal, ("stop", "exclude"))
        if isinstance(X, TableCohort):
            check_groups(groups)
            return X.at_level()
        return LocalCohort(X, groups)

    def _fit_data(self, X: Any, y: Any, groups: Any, *, on_refusal: str = "stop", **options: Any) -> Self:
        """Fit rows and outcomes, or a formula y to a table or to a federation."""
        settings = self._settings_of(y)
        with counting_exchanges() as exchanges:
            cohort: Any = self._cohort(X, y, groups, on_refusal)
            if cohort is not None and cohort.level == "private":
                settings = in_ranges(settings)
            make = self._design(X, y, groups, settings, **options)
            fit = self._fit_willing(make, cohort, settings, on_refusal)
            self.fitted_ = fit = dataclasses.replace(fit, exchanges=exchanges)
            if fit.run_folder is not None:
                try:
                    fit.write_run()
                except StorageError as error:  # the fit is worth more than its report
                    warn(f"the report has no summary of the fit: {error}", RuntimeWarning)
        if fit.imputed:
            warn(
                f"means were put in where {', '.join(fit.imputed)} had no value: standard errors take them for known, "
                'and are too small; missing="drop" leaves these rows out',
                DataWarning,
            )
        if fit.plan is not None:
            self.feature_names_in_, self.n_features_in_ = np.array(fit.names.features, dtype=object), len(fit.coef.T)
        return self

    def _fit_willing(self, make: MakeDesign, cohort: Any, settings: Settings, on_refusal: str) -> FitResult:
        """Return the fit of all sites, or of those that do not refuse."""
        excluded: dict[str, str] = {}
        while True:
            try:
                design = make(cohort)
                found = self._complete(self._fit_design(design, settings), design)
                condition = "" if cohort is None else cohort.rows
                return dataclasses.replace(found, excluded=excluded, condition=condition)
            except RefusalError as error:
                if on_refusal == "stop" or cohort is None or not error.sites or set(cohort.names) <= set(error.sites):
                    raise
                excluded |= error.sites
                cohort = cohort.without(error.sites)

    def _fit_design(self, design: Design, settings: Settings, search: Search | None = None) -> FitResult:
        """Return the fit of a design; ``search`` finds a parameter of the family together with the coefficients."""

        def note(engine: Any) -> None:
            """Write into the folder of a federation's run from what the fit can be repeated."""
            if getattr(engine, "run_folder", None) is None:  # not that of a federation
                return
            parameters = {**self.get_params(deep=False), **design.arguments}
            written = {name: write_parameter(value) for name, value in parameters.items()}
            plain = {name: value for name, value in written.items() if value is not UNKNOWN}
            objects = {name: repr(parameters[name]) for name in parameters if name not in plain}
            engine.note_fit(type(self).__name__, plain, objects, tuple(design.arguments))

        validation = self._validation
        if design.cohort is not None and design.cohort.level == "private":
            if validation is not None or search is not None:
                raise ArgumentError(
                    "cv", "must be None at the level 'private', where each fit spends budget: with "
                    "Privacy(mechanism='statistics') one release serves any penalty at no further cost",
                )  # fmt: skip
            return fit_private(design, settings)
        if validation is not None:
            return cross_validate(design, settings, validation, search=search, note=note)
        return fit_design(design, settings, search=search, note=note)

    def _complete(self, fit: FitResult, design: Design) -> FitResult:
        """Return the fit with what a model has besides its coefficients."""
        return fit

    def _outcome_of(self, plan: Plan | None, classes: Array | None) -> Outcome:
        """Return the kind of outcome of a fit, from its coding and its classes: for a model read from a file."""
        raise NotImplementedError

    # What the result says.

    def table(self, *, errors: Kind = "model", level: float = 0.95, exponentiate: bool = False) -> Table:
        """Return the coefficients with standard errors: :meth:`fpdfp.models.result.FitResult.table`."""
        return self._fitted().table(errors=errors, level=level, exponentiate=exponentiate)

    def summary(self, *, errors: Kind = "model", level: float = 0.95, ratios: bool | None = None) -> Summary:
        """Return the summary of the fit: :meth:`fpdfp.models.result.FitResult.summary`."""
        return self._fitted().summary(errors=errors, level=level, ratios=ratios)

    def wald_test(self, hypothesis: Any, values: Any = 0.0, *, errors: Kind = "model") -> HypothesisTest:
        """Test coefficients: :meth:`fpdfp.models.result.FitResult.wald_test`."""
        return self._fitted().wald_test(hypothesis, values, errors=errors)

    def compare(self, other: Any) -> HypothesisTest:
        """Test this model against a larger one of the same rows, of which it is a special case."""
        if not isinstance(other, FederatedModel):
            raise ArgumentTypeError("other", f"must be a fitted model, got {type(other).__name__}")
        return self._fitted().compare(other._fitted())

    def variance_inflation(self) -> dict[str, tuple[float, int, float]]:
        """Return variance inflation factors: :meth:`fpdfp.models.result.FitResult.variance_inflation`."""
        return self._fitted().variance_inflation()

    def site_tables(
        self, *, errors: SiteErrors = "model", level: float = 0.95, exponentiate: bool = False
    ) -> dict[str, Table | None]:
        """Return the coefficients of each site: :meth:`fpdfp.models.result.FitResult.site_tables`."""
        return self._fitted().site_tables(errors=errors, level=level, exponentiate=exponentiate)

    def heterogeneity(
        self, name: str, *, errors: SiteErrors = "model", level: float = 0.95, exponentiate: bool = False
    ) -> Heterogeneity:
        """Return how much a coefficient differs: :meth:`fpdfp.models.result.FitResult.heterogeneity`."""
        return self._fitted().heterogeneity(name, errors=errors, level=level, exponentiate=exponentiate)

    def heterogeneity_table(
        self, *, errors: SiteErrors = "model", level: float = 0.95, exponentiate: bool = False
    ) -> HeterogeneityTable:
        """Return how much all coefficients differ: :meth:`fpdfp.models.result.FitResult.heterogeneity_table`."""
        return self._fitted().heterogeneity_table(errors=errors, level=level, exponentiate=exponentiate)

    def debiased_table(
        self,
        *,
        unpenalised: Sequence[str] = (),
        node_alpha: float | None = None,
        errors: Literal["model", "HC0"] = "model",
        level: float = 0.95,
        exponentiate: bool = False,
    ) -> Table:
        """Return the debiased lasso: :meth:`fpdfp.models.result.FitResult.debiased_table`."""
        return self._fitted().debiased_table(
            unpenalised=unpenalised, node_alpha=node_alpha, errors=errors, level=level, exponentiate=exponentiate
        )

    def evaluate(
        self, X: Any, y: Any = None, groups: Any = None, *, sample_weight: Any = None, offset: Any = None,
        strata: Any = None, level: float = 0.95,
    ) -> Evaluation:  # fmt: skip
        """Return how good predictions are: :meth:`fpdfp.models.result.FitResult.evaluate`."""
        options = {"sample_weight": sample_weight, "offset": offset, "strata": strata, "level": level}
        return self._fitted().evaluate(self._new_rows(X, y), y, groups, **options)

    def learning_curve(
        self, X: Any, y: Any = None, groups: Any = None, *, sample_weight: Any = None, offset: Any = None,
        strata: Any = None, level: float = 0.95, points: int = 15,
    ) -> LearningCurve:  # fmt: skip
        """Return how good the fit was after its rounds: :meth:`fpdfp.models.result.FitResult.learning_curve`."""
        options = {"sample_weight": sample_weight, "offset": offset, "strata": strata, "level": level}
        return self._fitted().learning_curve(self._new_rows(X, y), y, groups, points=points, **options)

    def profile_intervals(
        self, X: Any, y: Any = None, groups: Any = None, *, names: Sequence[str] | None = None, level: float = 0.95,
        **options: Any,
    ) -> ProfileIntervals:  # fmt: skip
        """Return intervals and tests of coefficients by the profile likelihood, as ``confint`` of R's MASS.

        They hold better than the intervals of :meth:`table` where rows are few or effects large, and with
        ``penalty="firth"``
        also where outcomes are separated: then they belong to the penalised likelihood, as in R's ``logistf``. With
        a dispersion, limits are by the F distribution. Each limit takes some six exchanges with all sites (twice as
        many with Firth's penalty), and each test some four.

        Parameters
        ----------
        X, y, groups, options
            The data of the fit, as in ``fit``; for a formula y may be missing.
        names
            Of coefficients; by default all.
        level
            Of the intervals.

        Examples
        --------
        >>> import fpdfp
        >>> dose, cured = [[0.0], [0.0], [0.0], [1.0], [1.0], [1.0]], [0, 0, 0, 1, 1, 1]
        >>> model = fpdfp.FederatedLogisticRegression("firth").fit(dose, cured)
        >>> print(model.profile_intervals(dose, cured, names=["x0"]))
            coefficient   2.5 %  97.5 %      p
        x0        3.892  0.4389   9.748  0.024
        profile likelihood, 21 exchanges
        """
        fit = self._fitted()
        quantile_of(level)
        y = fit.formula if y is None else y
        settings = self._settings_of(y)
        make = self._design(X, y, groups, settings, **options)
        return profile_intervals(fit, make(self._cohort(X, y, groups, "stop")), names, level)

    def write_run(
        self, folder: str | os.PathLike[str] | None = None, *, name: str | None = None, errors: Kind = "model",
        level: float = 0.95, ratios: bool | None = None,
    ) -> FilePath:  # fmt: skip
        """Write the folder of a run: :meth:`fpdfp.models.result.FitResult.write_run`."""
        return self._fitted().write_run(folder, name=name, errors=errors, level=level, ratios=ratios)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file of JSON, which :func:`fpdfp.load_model` reads.

        The file has the coefficients, the formula with its coding, means for missing values, the family with its
        parameters, and the classes. It also has the sites with their rows and sums for standard errors, and how the
        model was fitted, but not the history. Parameters that are objects, such as a method or a graph, are named in
        it, and have their defaults in the model that is read. With ``sites_`` of few rows the sums may show about them:
        a file is as confidential as ``information_``.

        Parameters
        ----------
        path
            The file, ``"model.json"`` for instance. An older one is replaced.
        """
        check_is_fitted(self, "fitted_")
        save(self, path)

    def _new_rows(self, X: Any, y: Any) -> Any:
        """Return rows to evaluate; what they are is checked where they are asked about."""
        return X if isinstance(X, TableCohort) or y is None else self._rows(X)

    # Paths and resampling, for which nothing is fitted.

    def path(
        self, X: Any, y: Any, groups: Any = None, *, alphas: Any = 100, ratio: float = RATIO, tol: float = 1e-6,
        rounds: int = 500, certify: bool = False, progress: bool | None = False, checkpoint: Any = None,
        **options: Any,
    ) -> Path:  # fmt: skip
        """Return the coefficients for a grid of penalty weights, all found in the same exchanges.

        The model is not fitted; the weight of its penalty is not used.

        Parameters
        ----------
        X, y, groups, options
            As in ``fit``.
        alphas
            How many weights, from the smallest that gives zero down; or the weights.
        ratio
            The least weight relative to the largest, where a number of them is given.
        tol, rounds, certify, progress, checkpoint
            As in :func:`fpdfp.solve_many`.
        """
        check_grid(alphas, ratio, tol, rounds)
        return find_path(
            *self._selecting(X, y, groups, **options), alphas=alphas, ratio=ratio, tol=tol, rounds=rounds,
            certify=certify, progress=progress, checkpoint=checkpoint,
        )  # fmt: skip

    def stability(
        self, X: Any, y: Any, groups: Any = None, *, alphas: Any = 20, ratio: float = 0.3, pairs: int = 50,
        tol: float = 1e-4, rounds: int = 500, progress: bool | None = False, checkpoint: Any = None,
        **options: Any,
    ) -> Stability:  # fmt: skip
        """Return how often each feature is selected with half of the rows, for a grid of penalty weights.

        Each site divides its rows in halves at random, many times; all halves and weights travel in the same exchanges.
        Of several classes a feature is selected if it has a coefficient for any. The model is not fitted.

        Parameters
        ----------
        X, y, groups, options
            As in ``fit``.
        alphas, ratio
            As in :meth:`path`. Small weights select much, and make the bound on false selections large.
        pairs
            How many times rows are divided: twice as many halves are fitted.
        tol, rounds, progress, checkpoint
            As in :func:`fpdfp.solve_many`.
        """
        check_grid(alphas, ratio, tol, rounds)
        _checks.integer("pairs", pairs, at_least=1, at_most=1000)
        return find_stability(
            *self._selecting(X, y, groups, **options), alphas=alphas, ratio=ratio, pairs=pairs, tol=tol, rounds=rounds,
            progress=progress, checkpoint=checkpoint,
        )  # fmt: skip

    def bootstrap_sites(
        self, X: Any, y: Any, groups: Any = None, *, draws: int = 200, level: float = 0.95, tol: float = 1e-6,
        rounds: int = 500, progress: bool | None = False, checkpoint: Any = None,
        **options: Any,
    ) -> Bootstrap:  # fmt: skip
        """Return how coefficients vary if sites are drawn with replacement, for the penalty of the model.

        All draws travel in the same exchanges; sites do not learn which of them count. With few sites this shows
        little: there must be five. The model is not fitted. A penalty shrinks coefficients in every draw, so that
        intervals belong to the penalised estimate, and need not cover the coefficients of the population.

        Parameters
        ----------
        X, y, groups, options
            As in ``fit``.
        draws
            How many samples of sites.
        level
            The level of the intervals, by quantiles.
        tol, rounds, progress, checkpoint
            As in :func:`fpdfp.solve_many`.
        """
        check_draws(draws, level, tol, rounds)
        return draw_sites(
            *self._selecting(X, y, groups, **options), draws=draws, level=level, tol=tol, rounds=rounds,
            progress=progress, checkpoint=checkpoint,
        )  # fmt: skip

    def _selecting(
        self, X: Any, y: Any, groups: Any, *, on_refusal: str = "stop", **options: Any
    ) -> tuple[Design, Settings]:
        """Return the design of data and the settings, for many penalties."""
        check_convex(as_model_penalty("l1" if self.penalty is None else self.penalty), "here")
        one = copy.copy(self)  # which learns of columns
        settings = one._settings_of(y, selecting=True)
        make = one._design(X, y, groups, settings, **options)
        return make(self._cohort(X, y, groups, on_refusal)), settings


def _refuse_moved(title: str, names: Iterable[str]) -> None:
    """Refuse parameters of old, by the name of the place where they are now."""
    for name in names:
        if name in MOVED:
            raise ArgumentTypeError(name, f"is not a parameter of {title}: give {MOVED[name]}")
