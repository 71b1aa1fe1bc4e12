"""What federated classification and regression share."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp._warn import warn
from fpdfp.compress.plain import plain_bits
from fpdfp.datasets import FeatureGraph, Moments, as_graph, feature_graph
from fpdfp.engines import Result
from fpdfp.engines.choice import MOST_COEFFICIENTS, choose_method, suits_newton
from fpdfp.engines.options import RunOptions
from fpdfp.engines.solve import run
from fpdfp.errors import ArgumentError, ArgumentTypeError, RefusalError
from fpdfp.federation.table import SiteTable
from fpdfp.inference.aliasing import Alias
from fpdfp.methods import ProximalNewton
from fpdfp.methods.base import Method
from fpdfp.models import tables
from fpdfp.models.by_feature import find_factors
from fpdfp.models.by_formula import ByFormula
from fpdfp.models.evaluating import Evaluating
from fpdfp.models.inferring import Inferring
from fpdfp.models.learning import Learning
from fpdfp.models.penalty import (
    Columns,
    Details,
    Graph,
    Group,
    ModelPenalty,
    Name,
    Structure,
    as_model_penalty,
    no_edges,
)
from fpdfp.models.reporting import Reporting
from fpdfp.models.routing import advise_on_search, warn_of_groups
from fpdfp.models.rows import column
from fpdfp.models.saving import Saving
from fpdfp.models.selecting import Selecting
from fpdfp.models.separating import check_separation
from fpdfp.models.stepping import Scaled, Stepping
from fpdfp.problem import Problem

#: A feature whose deviation is at most this part of its mean is constant up to rounding.
CONSTANT = 1e-12


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

#: The estimators that have a cross-validation of their own.
SEARCHED = (
    "FederatedLogisticRegression", "FederatedLinearRegression", "FederatedGLM", "FederatedCoxRegression",
    "FederatedMultinomialRegression", "FederatedOrdinalRegression",
)  # fmt: skip


class Prepared(NamedTuple):
    """Rows as the model sees them, and how coefficients are taken back."""

    X: Any
    centre: Array
    scale: Array


class FederatedLinearModel(
    ByFormula, Stepping, Selecting, Inferring, Evaluating, Learning, Reporting, Saving, BaseEstimator
):
    """What :class:`FederatedLogisticRegression` and :class:`FederatedLinearRegression` share; see there."""

    def __new__(cls, *given: Any, **named: Any) -> Self:
        """Refuse parameters of old, by the name of the place where they are now."""
        for name in named:
            if name in MOVED:
                raise ArgumentTypeError(name, f"is no parameter of {cls.__name__}: give {MOVED[name]}")
        made: Self = super().__new__(cls)
        return made

    def __init__(
        self,
        penalty: Name | ModelPenalty | None = None,
        *,
        bounds: Any = None,
        start: Any = None,
        fit_intercept: bool = True,
        standardize: bool | None = None,
        method: Method | None = None,
        inference: bool | Literal["auto"] = "auto",
        run: RunOptions | None = None,
    ) -> None:
        self.penalty = penalty
        self.bounds = bounds
        self.start = start
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.method = method
        self.inference = inference
        self.run = run

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        signature = inspect.signature(cls.__init__)
        own = [one for name, one in signature.parameters.items() if name != "self"]
        cls.__signature__ = signature.replace(parameters=own)  # not that of __new__

    #: A number, or one for each of several classes.
    intercept_: Any
    #: The intercepts of sites, or of periods.
    _effects: Array
    #: What estimators have that do not take these parameters.
    start: Any = None
    fit_intercept: bool = True
    #: The penalty, with its weight.
    penalty_: ModelPenalty
    #: The tolerance of a fit to which none is given.
    _tol: ClassVar[float] = 1e-6
    __signature__: ClassVar[inspect.Signature]
    #: The number of the first site that has an intercept of its own, where sites have: 0 if effects are random.
    _first_effect: int = 1
    #: Whether losses are those of a generalised linear model, which know weights and offsets of rows.
    _by_glm: bool = False
    #: Whether the estimate is wanted as exactly as Newton's method finds it, penalties or not.
    _exact: ClassVar[bool] = False

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

    def _check_parameters(self) -> None:
        self.penalty_ = self._check_penalty(as_model_penalty("l1" if self.penalty is None else self.penalty))
        _checks.flag("fit_intercept", self.fit_intercept)
        self._standardized = self.standardize is not None and _checks.flag("standardize", self.standardize)
        if self.inference != "auto":
            _checks.flag("inference", self.inference)
        if self.run is not None and not isinstance(self.run, RunOptions):
            raise ArgumentTypeError("run", f"must be fpdfp.RunOptions or None, got {_checks.kind(self.run)}")
        if self.run is not None and (self.run.x0 is not None or self.run.metrics):
            raise ArgumentError("run", "must have neither x0 nor metrics; give start, and see learning_curve")

    def _check_penalty(self, given: ModelPenalty) -> ModelPenalty:
        """Return the penalty of a fit; refuse lists of options, from which nothing chooses here."""
        several = [name for name in given.mixed if np.ndim(getattr(given, name))]
        if several:
            raise ArgumentError(
                "penalty", f"must have one number for {several[0]}; cross-validation chooses from several"
            )
        return given

    def _fit(self, X: Any, groups: Any, classes: int | None, losses: Any, *, effects: bool = False) -> Array:
        """Fit and return the model, intercept last; ``losses(X, owner, ridge)`` makes the clients' losses.

        With ``effects`` sites have intercepts of their own.
        """
        if hasattr(self, "plan_"):
            del self.plan_  # of an earlier fit with a formula
        self.formula_ = None
        owner = self._owners(X.shape[0], groups)
        moments = self._moments(X, owner)
        prepared = self._prepare(X, moments)
        first, count = self._first_effect, len(self.sites_)
        columns = self._columns(X.shape[1], bool(self.fit_intercept), classes, count - first if effects else 0)
        columns = columns._replace(random=effects and first == 0)
        if columns.effects:
            indicators = (owner[:, None] == np.arange(first, count)).astype(np.float64)
            prepared = prepared._replace(X=append_columns(prepared.X, indicators))
        structure = self._structure(columns, moments, prepared.scale)
        problem = self._minimise(
            lambda: losses(prepared.X, owner, structure.ridge), structure, columns,
            Scaled(prepared.centre, prepared.scale),
            self._choose_method,
        )  # fmt: skip
        double = np.dtype(np.float64)
        up = sum(plain_bits((part.numbers,), double) for part in moments)
        down = len(moments) * plain_bits((2 * self.n_features_in_,), double) if self._standardized else 0
        self._note_run(None)
        self._keep(problem, columns, structure.ridge, up, down)
        self.rows_ = {str(site): int(count) for site, count in zip(self.sites_, np.bincount(owner), strict=True)}
        self.left_out_ = dict.fromkeys(self.rows_, 0)
        self._coded = (columns, prepared.centre, prepared.scale)
        return self._conclude(problem, columns, prepared.centre, prepared.scale)

    def _adopt(self, x: Array, columns: Columns, centre: Array, scale: Array) -> None:
        """Take the coefficients that x, of a run of this fit, stands for."""
        if columns.classes is None:
            self._effects = x[len(x) - columns.effects :]
        self._take_model(self._undo_scaling(x, centre, scale, columns.intercept))

    def _take_model(self, model: Array) -> None:
        """Keep coefficients and intercept of a model for features as they were given."""
        (row,) = model
        self.coef_, self.intercept_ = row[:-1], float(row[-1])

    def _conclude(self, problem: Problem, columns: Columns, centre: Array, scale: Array) -> Array:
        """Ask for what standard errors need, and return the model for features as they were given."""
        self._effects = np.zeros(0)
        if columns.classes is None:
            self._ask(problem, unscale(columns, centre, scale), columns)
            self._effects = self.result_.x[len(self.result_.x) - columns.effects :].astype(np.float64)
            if self._alias is not None:
                return self._leave_out(self._alias, columns, centre, scale)
        else:
            self.information_, self.null_deviance_, self.exchanges_ = None, None, {}
            self._look_at_classes(problem, columns)
        return self._undo_scaling(self.result_.x, centre, scale, columns.intercept)

    def _leave_out(self, alias: Alias, columns: Columns, centre: Array, scale: Array) -> Array:
        """Return the model with the same predictions and zeros for coefficients that are not estimated."""
        (model,) = self._undo_scaling(self.result_.x, centre, scale, columns.intercept)
        ends = [columns.features, columns.features + int(columns.intercept)]
        moved = alias.move(np.concatenate([model[: ends[1]], self._effects]))
        self._effects = moved[ends[1] :]
        return np.append(moved[: ends[0]], moved[ends[0] : ends[1]].sum())[None]

    def _look_at_classes(self, problem: Problem, columns: Columns) -> None:
        """Refuse a fit of several classes, with coefficients of each, that has no maximum."""
        x = self.result_.x
        if self._refusal is not None or x.size > MOST_COEFFICIENTS:
            return
        try:
            sums = self._ask_sums(problem, x, "separation", robust=False)
        except RefusalError:  # a site that tells no second moments takes part in the fit nevertheless
            return
        # Coefficients of classes are known up to a constant, so that all classes of a column grow: it alone is named.
        names = self._names_of_x(columns)
        check_separation(self, problem, x, sums, names * (x.size // len(names)))

    def _columns(self, features: int, intercept: bool, classes: int | None, effects: int) -> Columns:
        """Return the columns of the model."""
        return Columns(features, intercept, classes, effects)

    def _choose_method(self, problem: Problem) -> Method | None:
        """Return the method of a fit: the given one, Newton's, or None for the default of ``solve``.

        With None, ``solve`` also compresses messages, and begins with few features.
        """
        if self.method is not None:
            given: Method = self.method
            return given
        exact = self._exact or self._by_glm or self._suits_newton(math.prod(problem.losses.shape))
        chosen = choose_method(problem, self._options(), "exact" if exact else "fit")
        return chosen if isinstance(chosen, ProximalNewton) else None

    def _suits_newton(self, coefficients: int) -> bool:
        """Whether a fit is plain maximum likelihood, whose standard errors are wanted, with nothing said against it."""
        plain = self.method is None and not self._penalised and self.inference is not False
        return plain and suits_newton(coefficients, len(self.sites_), self._options())

    def _find_groups(self, given: Any) -> Any:
        """Return the label of each feature's group, as a penalty says it, or by the terms of a formula."""
        return given if self.formula_ is None else self._formula_groups(given)

    def _owners(self, rows: int, groups: Any) -> IntArray:
        """Return the number of each row's site."""
        if groups is None:
            self.sites_ = np.array([0])
            return np.zeros(rows, dtype=np.int64)
        labels = _checks.host_array("groups", groups)
        if labels.shape != (rows,):
            raise ValueError(f"groups must name the site of each of the {rows} rows of X, got shape {labels.shape}")
        self.sites_, owner = _checks.labels("groups", labels)
        return owner

    def _moments(self, X: Any, owner: IntArray) -> list[Moments]:
        """Return the moments of the sites' rows, if they are needed."""
        diagonal = self._wanted_moments(X.shape[1])
        return [] if diagonal is None else Moments.of_clients(X, owner, diagonal=diagonal)

    def _wanted_moments(self, features: int) -> bool | None:
        """Return whether the diagonal of moments is enough; None if none are needed."""
        learns = isinstance(self.penalty_, Graph) and self.penalty_.graph is None and features > 1
        return not learns if learns or self._standardized else None

    def _scaling(self, features: int, moments: list[Moments]) -> tuple[Array, Array]:
        """Return what features are centred and scaled by; a scale of 0 for those that are constant up to rounding."""
        if not self._standardized or not moments:
            return np.zeros(features), np.ones(features)
        total = Moments.total(moments)
        deviation = np.sqrt(total.variance)
        return total.mean, np.where(deviation > CONSTANT * np.abs(total.mean), deviation, 0.0)

    def _prepare(self, X: Any, moments: list[Moments]) -> Prepared:
        """Standardise the features where asked, by the moments of all sites, and append the intercept's column."""
        centre, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
        sparse = hasattr(X, "tocsr")
        if self._standardized:
            mean, deviation = self._scaling(X.shape[1], moments)
            varies = deviation > 0
            scale = np.where(varies, deviation, 1.0)
            # A constant column is redundant with the intercept, and rounding must not make a feature of it.
            if sparse:
                X = X.multiply(np.where(varies, 1.0 / scale, 0.0)).tocsr()  # centring would fill in the zeros
            else:
                centre = mean
                X = np.where(varies, (X - centre) / scale, 0.0)
        if self.fit_intercept:
            X = append_columns(X, np.ones((X.shape[0], 1)))
        return Prepared(X, centre, scale)

    def _structure(self, columns: Columns, moments: list[Moments], scale: Array) -> Structure:
        return self.penalty_.build(columns, self._details(self.penalty_, columns.features, moments, scale))

    def _details(self, penalty: ModelPenalty, features: int, moments: list[Moments], scale: Array) -> Details:
        """Return what a penalty needs of the design."""
        graph = None
        if isinstance(penalty, Graph):
            graph = self.graph_ = self._graph(penalty, features, moments, scale)
        groups = self._find_groups(penalty.groups) if isinstance(penalty, Group) else None
        return Details(find_factors(penalty.factors, self._names()), groups, graph)

    def _graph(self, penalty: Graph, features: int, moments: list[Moments], scale: Array) -> FeatureGraph:
        """Return the given graph, or the one estimated from the sites' moments."""
        if penalty.graph is not None:
            return as_graph(penalty.graph, features, getattr(self, "feature_names_in_", None))
        if not moments:
            return no_edges(features)
        total = Moments.total(moments)
        scaled = Moments(total.count, total.mean / scale, total.scatter / np.outer(scale, scale))
        if not scaled.variance.any():
            return no_edges(features)
        return feature_graph(scaled, penalty.sparsity, progress=self._options().progress)

    def _run(
        self, problem: Problem, method: Any, rebuild: Callable[[], Problem], x0: Array | None
    ) -> tuple[Result, Problem]:
        """Return the fit and its problem; ``rebuild`` makes the problem anew, of what is known of outcomes by then."""
        return self._solve(problem, method, x0), problem

    def _options(self, **more: Any) -> RunOptions:
        """Return the options of a run; by default there is no progress bar."""
        given = RunOptions(progress=False) if self.run is None else self.run
        tol = self._tol if given.tol is None else given.tol or None
        return dataclasses.replace(given, tol=tol, **more)

    def _solve(self, problem: Problem, method: Any, x0: Array | None = None) -> Result:
        options = self._options()
        result = run(
            problem, method, dataclasses.replace(options, x0=x0, callbacks=[*options.callbacks, self.iterates_])
        )
        # Newton's method ends where its model of F says that tol is reached, which is no bound.
        newton = self._exact or self._by_glm or isinstance(method, ProximalNewton)
        reached = ("converged", "diverged", "stationary") if newton else ("converged", "diverged")
        if options.tol is not None and result.status not in reached:
            warn(self._shortfall(result, options.tol), ConvergenceWarning)
        return result

    def _shortfall(self, result: Result, tol: float) -> str:
        """Return a text on how far a run is from the tolerance and what may help."""
        gap = result.certificate.relative_gap
        reached = "no duality gap is available" if gap is None else f"the relative duality gap is {gap:.2g}"
        advice = ["allow more rounds or a larger tol"] if result.status == "finished" else []
        advice += [] if self._standardized else ["scale the features (standardize=True)"]
        hint = f"; {', or '.join(advice)}" if advice else ""
        return (
            f"{type(self).__name__} may not have reached tol={tol:g} after {result.rounds} rounds "
            f"({result.status}; {reached}){hint}"
        )

    def _keep(self, problem: Problem, columns: Columns, ridge: Array, up: int, down: int) -> None:
        """Count what was sent before the run as well, and take the penalties off the objective."""
        self.status_ = self.result_.status
        self.bits_up_ += up
        self.bits_down_ += down
        rows, x = int(problem.losses.sizes.sum()), self.result_.x
        image = problem.penalty.project(problem.linop.apply(x))
        penalised = problem.penalty.value(image) + columns.square(ridge, x) / 2.0
        self.deviance_ = 2.0 * rows * (self.result_.objective - penalised)

    def _undo_scaling(self, x: Array, centre: Array, scale: Array, intercept: bool) -> Array:
        """Return the model for features as they were given."""
        model = np.atleast_2d(x)
        constant = model[:, len(scale) : len(scale) + 1] if intercept else np.zeros((len(model), 1))
        coefficients = self._within(model[:, : len(scale)] / scale)
        shift = coefficients @ centre
        return np.concatenate([coefficients, constant - shift[:, None]], axis=1)

    @property
    def coefficients_(self) -> dict[str, Any]:
        """The coefficients by name, the intercept first; for more than two classes by class."""
        rows = self._by_name()
        if len(rows) == 1:
            effects = getattr(self, "_effects", np.zeros(0))
            found = rows[0] | dict(zip(self._effect_names(len(effects)), map(float, effects), strict=True))
            return {name: value for name, value in found.items() if name not in self.aliased_}
        return {str(label): row for label, row in zip(self.classes_, rows, strict=True)}

    def _by_name(self) -> list[dict[str, float]]:
        """Return each row of coefficients by name, the intercept first."""
        check_is_fitted(self)
        coefficients, constants = np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(coefficients.shape[1])])
        plan = getattr(self, "plan_", None)
        first = ["Intercept"] if (self.fit_intercept if plan is None else plan.intercept) else []
        return [
            dict(zip([*first, *map(str, names)], map(float, [*([constant] if first else []), *row]), strict=True))
            for constant, row in zip(constants, coefficients, strict=True)
        ]

    def _effect_names(self, count: int) -> list[str]:
        """Return the names of the columns after the intercept."""
        return [f"site[{name}]" for name in list(self.sites_)[len(self.sites_) - count :]] if count else []

    def _scores(self, X: Any) -> Array:
        """Return Xw + b, a column for each row of ``coef_``."""
        check_is_fitted(self)
        if getattr(self, "formula_", None) is not None:
            formula_rows = self._code(X)
            by_formula: Array = formula_rows @ np.atleast_2d(self.coef_).T + self.intercept_
            return by_formula
        rows = validate_data(self, tables.rows(X), accept_sparse="csr", dtype=np.float64, reset=False)
        scores: Array = rows @ np.atleast_2d(self.coef_).T + self.intercept_
        return scores

    def _shifted(self, scores: Array, X: Any, offset: Any) -> Array:
        """Return scores with the offset of the formula, if it has one, and a further one."""
        plan = getattr(self, "plan_", None)
        if plan is not None and plan.design.offset is not None:
            table = X if isinstance(X, SiteTable) else SiteTable.read(X)
            scores = scores + table.number("the offset", plan.design.offset)
        return scores if offset is None else scores + column("offset", offset, len(scores))


def append_columns(X: Any, columns: Array) -> Any:
    """Return rows with further columns, dense or sparse as they were."""
    if not hasattr(X, "tocsr"):
        return np.concatenate([X, columns], axis=1)
    import scipy.sparse

    return scipy.sparse.hstack([X, columns], format="csr")


def unscale(columns: Columns, centre: Array, scale: Array) -> Array:
    """Return the matrix that takes the coefficients of scaled features to those of features as they were given."""
    matrix = np.eye(columns.all)
    features = np.arange(columns.features)
    matrix[features, features] = 1.0 / scale
    if columns.intercept:
        matrix[columns.features, : columns.features] = -centre / scale
    return matrix
