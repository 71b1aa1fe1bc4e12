"""Linear and logistic regression with a structured penalty."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from fpdfp._typing import Array
from fpdfp.compress.plain import plain_bits
from fpdfp.engines.prepare import RunOptions
from fpdfp.errors import ArgumentError
from fpdfp.families import Gaussian
from fpdfp.formula.coding import Imputation
from fpdfp.methods.base import Method
from fpdfp.models.base import FederatedModel, MakeDesign
from fpdfp.models.design import Design, Settings
from fpdfp.models.fitting import is_plain
from fpdfp.models.formulas import InverseProbability, Plan
from fpdfp.models.outcomes import Data, Numbers, Outcome, Symmetric, TwoClasses
from fpdfp.models.penalty import ModelPenalty, Name
from fpdfp.models.result import FitResult
from fpdfp.models.rows import check_class_weight, class_weights, column, refuse_column, refuse_of_rows, row_weights


class FederatedLogisticRegression(ClassifierMixin, FederatedModel):
    r"""Logistic regression with a structured penalty; rows stay at their sites.

    Minimises the mean of the logistic losses (of the softmax losses for three or more classes) over all rows, plus a
    penalty of the coefficients w, of features with unit variance unless ``standardize=False``. The intercept is not
    penalised. scikit-learn, which does not scale, has C = 1/(weight · n) for n rows.

    Parameters
    ----------
    penalty
        A penalty with its weight: :class:`fpdfp.L1`, :class:`fpdfp.ElasticNet`, :class:`fpdfp.Group`,
        :class:`fpdfp.SparseGroup`, :class:`fpdfp.MCP`, :class:`fpdfp.SCAD`, :class:`fpdfp.Fused`, :class:`fpdfp.Graph`
        or :class:`fpdfp.Ridge`. Or the name of one with its defaults: ``"l1"``, ``"elasticnet"``, ``"group"``,
        ``"sparse group"``, ``"mcp"``, ``"scad"``, ``"fused"``, ``"graph"``, ``"ridge"``; or ``"none"``. None means
        ``"none"`` for a formula, so that the summary has standard errors, and ``"l1"`` for a matrix.
    bounds
        The least and the largest value of coefficients (not of the intercept), for features as they are given. A pair
        of numbers or arrays, None or infinite for no limit, or a dictionary of such pairs by feature or term. Standard
        errors are not available then.
    start
        Where coefficients start from: an array of a number for each feature, perhaps with the intercept after them (a
        row for each of several classes), or a dictionary by feature, term and ``"Intercept"``.
    class_weight
        What multiplies the losses of the rows of each class: a dictionary by class (1 for all others), or
        ``"balanced"`` for n / (classes · rows of the class), with the counts of all sites.
    fit_intercept
        Whether there is an intercept.
    standardize
        Whether features are scaled to unit variance by the moments of all sites together; coefficients are for the
        original features. Features are also centred, unless X is sparse or there is no intercept. None means that
        they are scaled if there is a penalty, which then does not depend on units. Rows count by their weights, and
        all of them, in cross-validation too. In a pipeline, ``StandardScaler`` would need all rows in one place.
    method
        As in :func:`fpdfp.solve`; None chooses one.
    inference
        Whether sites send the sums for standard errors: ``"auto"`` requests them for fits without a penalty.
    run
        :class:`fpdfp.RunOptions`: rounds, tolerance, participation, messages, seed and progress bar of the run, as in
        :func:`fpdfp.solve`. None is for at most 1,000 rounds, a tolerance of 1e-6 and no progress bar; a
        ``tol`` that is not given is this one as well, and ``tol=0`` runs all rounds.
        Predictions have about half the digits of the objective: the test of sample weights in scikit-learn's
        ``check_estimator`` compares them to 1e-7 and needs all rounds, as of ``RunOptions(tol=0, rounds=120)``.

    Attributes
    ----------
    coef_, intercept_
        Of shape (1, features) and (1,) for two classes, (classes, features) and (classes,) for more.
    classes_
        The classes.
    sites_
        The names of the sites.
    graph_
        The graph, for :class:`fpdfp.Graph`.
    penalty_
        The penalty, with its weight.
    n_iter_
        Rounds.
    bits_up_, bits_down_
        All bits that sites and server sent, including those before the first round.
    history_, result_
        The history of the run, and the result of :func:`fpdfp.solve`.

    n_steps_
        How many problems were solved, more than one for MCP and SCAD; rounds and bits are of all, ``result_`` is
        that of the last.

    Notes
    -----
    X may be an array, a sparse matrix, or a table of pandas or Polars with numeric columns.

    ``groups`` of ``fit`` is the site of each row; without it there is one site. In cross-validation scikit-learn passes
    ``groups`` to the splitter. To pass it to the estimator as well, enable metadata routing and call
    ``set_fit_request(groups=True)``. Otherwise a warning says that all rows are fitted as one site.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> import fpdfp
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> hospital = (X[:, 0] > 12).astype(int) + (X[:, 0] > 15)
    >>> model = fpdfp.FederatedLogisticRegression(fpdfp.Graph(weight=0.01))
    >>> model.fit(X, y, groups=hospital).score(X, y) > 0.96
    True
    >>> len(model.sites_), model.n_iter_ < 100, model.graph_.edges > 100
    (3, True, True)
    """

    def __init__(
        self,
        penalty: Name | ModelPenalty | None = None,
        *,
        class_weight: Any = None,
        bounds: Any = None,
        start: Any = None,
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
        self.class_weight = class_weight

    def fit(
        self,
        X: Any,
        y: Any,
        groups: Any = None,
        *,
        sample_weight: Any = None,
        offset: Any = None,
        weights: str | InverseProbability | None = None,
        missing: Imputation = "drop",
        levels: Any = "shared",
        on_refusal: Literal["stop", "exclude"] = "stop",
    ) -> FederatedLogisticRegression:
        """Fit the model to rows X with classes y; ``groups`` is the site of each row.

        Or to a formula y: then X is a table (a data frame, or a file) with ``groups`` the name of the column of sites,
        or a federation.

        Parameters
        ----------
        X, y
            Rows and classes; or a table or a federation, and a formula such as ``"died ~ age + C(stage)"``.
        groups
            The site of each row, or the name of the column that states it.
        sample_weight
            The weight of each row; their mean is made 1, so that the weight of the penalty means the same.
        offset
            What is added to the score of each row, for two classes.
        weights
            With a formula, for two classes: the column that weighs rows, an expression of columns, or
            :class:`fpdfp.InverseProbability`. The formula has ``offset(…)``.
        missing
            With a formula: ``"drop"`` excludes rows with missing values, ``"mean"`` imputes the mean over all sites
            (and excludes rows whose response or category is missing). ``"indicator"`` also adds a column that marks
            imputed values, and a level for categories.
        levels
            With a formula: ``"shared"`` refuses a level that only one of several sites has, ``"any"`` accepts it, and
            lists by column name which levels there are, in order.
        on_refusal
            With a federation: ``"stop"`` raises an error with what all sites that refuse say; ``"exclude"`` fits
            the model without these sites, which ``excluded_`` and the summary name.
        """
        return self._fit_data(
            X, y, groups, on_refusal=on_refusal, sample_weight=sample_weight, offset=offset, weights=weights,
            missing=missing, levels=levels,
        )  # fmt: skip

    def _settings(self, *, selecting: bool = False) -> Settings:
        check_class_weight(self.class_weight)
        return super()._settings(selecting=selecting)

    def _design(
        self, X: Any, y: Any, groups: Any, settings: Settings, *, sample_weight: Any = None, offset: Any = None,
        weights: Any = None, missing: Any = "drop", levels: Any = "shared",
    ) -> MakeDesign:  # fmt: skip
        if isinstance(y, str):
            refuse_of_rows(sample_weight=sample_weight, offset=offset)

            def code(features: int, intercept: bool, sites: int, plan: Plan | None) -> tuple[Outcome, Plan | None]:
                assert plan is not None
                outcome = self._of_plan(plan)
                if isinstance(outcome, Symmetric):
                    outcome = self._symmetric(np.array(plan.classes), features, intercept, sites, settings)
                return outcome, plan

            return self._design_of_formula(
                y, settings, code, classify=True, weights=weights, missing=missing, levels=levels
            )
        refuse_column(weights)
        X, y = self._validate(X, y)
        check_classification_targets(y)
        shifts = None if offset is None else column("offset", offset, len(y))
        row_weight, _ = row_weights(sample_weight, len(y))
        kept = None
        if row_weight is not None and not row_weight.all():
            kept = row_weight > 0
            X, y, row_weight = X[kept], y[kept], row_weight[kept]
            shifts = None if shifts is None else shifts[kept]
            groups = None if groups is None else np.asarray(groups)[kept]
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ArgumentError("y", f"must hold at least two classes, got one class: {classes[0]}")
        many = len(classes) > 2
        if many and shifts is not None:
            raise ArgumentError("offset", f"must be None for more than two classes, got {len(classes)} classes")
        by_class = class_weights(self.class_weight, classes, np.bincount(codes))
        factors = None if row_weight is None else row_weight * (len(y) / row_weight.sum())

        def make(features: int, intercept: bool, sites: int, plan: Plan | None) -> tuple[Outcome, Plan | None]:
            if many:
                return self._symmetric(classes, features, intercept, sites, settings, by_class), None
            glm = not (factors is None and shifts is None and not by_class)
            return TwoClasses(classes, tuple(classes), by_class, glm=glm), None

        data = Data(codes, factors, offset=shifts, kept=kept)
        return self._design_of_rows(X, data, groups, settings, make)

    def _symmetric(
        self, classes: Array, features: int, intercept: bool, sites: int, settings: Settings,
        by_class: tuple[float, ...] = (),
    ) -> Symmetric:  # fmt: skip
        """Return the outcome of several classes: compared with the first where nothing is penalised."""
        coefficients = (features + int(intercept)) * (len(classes) - 1)
        free = settings.bounds is None and settings.start is None
        plain = free and is_plain(settings, coefficients, sites)
        return Symmetric(classes, tuple(classes), by_class, by_reference=plain)

    def _of_plan(self, plan: Plan) -> Outcome:
        """Return the outcome of a formula."""
        classes, design = np.array(plan.classes), plan.design
        extra = self.class_weight is not None or design.has_more
        if len(classes) > 2:
            if extra:
                raise ArgumentError(
                    "formula:",
                    f"the response has {len(classes)} classes; weights, class_weight, offsets and clusters take two "
                    "here",
                )
            return Symmetric(classes, plan.classes)
        by_class = class_weights(self.class_weight, plan.classes, np.array(plan.counts))
        return TwoClasses(classes, plan.classes, by_class, glm=extra)

    def _outcome_of(self, plan: Plan | None, classes: Array | None) -> Outcome:
        if plan is not None:
            return self._of_plan(plan)
        assert classes is not None
        kind = Symmetric if len(classes) > 2 else TwoClasses
        return kind(classes, tuple(classes))

    def _complete(self, fit: FitResult, design: Design) -> FitResult:
        if design.plan is not None or not isinstance(self.class_weight, str):
            return fit
        # Sites have sent how many rows of each class they have.
        sent = len(fit.sites) * plain_bits((len(fit.attribute("classes_")),), np.dtype(np.float64))
        return dataclasses.replace(fit, bits_up=fit.bits_up + sent)

    def decision_function(self, X: Any, *, offset: Any = None) -> Array:
        """Return the scores of rows: one number each for two classes, one for each class for more.

        With two classes ``offset`` is added; with a formula that has an offset, in addition to that.
        """
        rows = self._rows(X)
        return self.fitted_.decision_function(rows, offset=offset)

    def predict(self, X: Any, *, offset: Any = None) -> Array:
        """Return the most probable class of each row; ``offset`` is as in :meth:`decision_function`."""
        rows = self._rows(X)
        return self.fitted_.predict(rows, offset=offset)

    def predict_log_proba(self, X: Any, *, offset: Any = None) -> Array:
        """Return the logarithms of the classes' probabilities."""
        rows = self._rows(X)
        return self.fitted_.predict_log_proba(rows, offset=offset)

    def predict_proba(self, X: Any, *, offset: Any = None) -> Array:
        """Return the classes' probabilities."""
        rows = self._rows(X)
        return self.fitted_.predict_proba(rows, offset=offset)


class FederatedLinearRegression(RegressorMixin, FederatedModel):
    r"""Linear regression with a structured penalty; rows stay at their sites.

    Minimises :math:`\frac{1}{2n}\|y - Xw - b\|^2` over all n rows, plus one of the penalties of
    :class:`FederatedLogisticRegression`, whose attributes it shares; ``coef_`` has shape (features,) and
    ``intercept_`` is a number. With ``standardize=False``, :class:`fpdfp.L1` and :class:`fpdfp.ElasticNet` this is the
    objective of scikit-learn's ``Lasso`` and ``ElasticNet``: their ``alpha`` is ``weight``, and ``l1_ratio`` means the
    same.

    Parameters
    ----------
    penalty, bounds, start, fit_intercept, standardize, method, inference, run
        As in :class:`FederatedLogisticRegression`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Lasso
    >>> import fpdfp
    >>> X, y = load_diabetes(return_X_y=True)
    >>> clinic = X[:, 0] > 0  # older patients, and younger ones
    >>> model = fpdfp.FederatedLinearRegression(fpdfp.L1(0.5), run=fpdfp.RunOptions(tol=1e-8)).fit(X, y, groups=clinic)
    >>> bool(abs(model.coef_ - Lasso(0.5, tol=1e-10).fit(X, y).coef_).max() < 1e-3)
    True
    """

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
        super().__init__(
            penalty, bounds=bounds, start=start, standardize=standardize, method=method, inference=inference, run=run
        )
        self.fit_intercept = fit_intercept

    def fit(
        self,
        X: Any,
        y: Any,
        groups: Any = None,
        *,
        sample_weight: Any = None,
        offset: Any = None,
        weights: str | InverseProbability | None = None,
        missing: Imputation = "drop",
        levels: Any = "shared",
        on_refusal: Literal["stop", "exclude"] = "stop",
    ) -> FederatedLinearRegression:
        """Fit the model to rows X with targets y, or a formula y to a table or a federation X.

        See :meth:`FederatedLogisticRegression.fit`; with weights the mean of squares is a weighted one.
        """
        return self._fit_data(
            X, y, groups, on_refusal=on_refusal, sample_weight=sample_weight, offset=offset, weights=weights,
            missing=missing, levels=levels,
        )  # fmt: skip

    def _design(
        self, X: Any, y: Any, groups: Any, settings: Settings, *, sample_weight: Any = None, offset: Any = None,
        weights: Any = None, missing: Any = "drop", levels: Any = "shared",
    ) -> MakeDesign:  # fmt: skip
        if isinstance(y, str):
            refuse_of_rows(sample_weight=sample_weight, offset=offset)
            return self._design_of_formula(
                y, settings, lambda d, intercept, sites, plan: (self._outcome_of(plan, None), plan), classify=False,
                weights=weights, missing=missing, levels=levels,
            )  # fmt: skip
        refuse_column(weights)
        X, y = self._validate(X, y, y_numeric=True)
        targets = y.astype(np.float64)
        row_weight, scale = row_weights(sample_weight, len(targets))
        shifts = None if offset is None else column("offset", offset, len(targets))
        outcome = Numbers(distribution=Gaussian(), glm=row_weight is not None or shifts is not None)
        data = Data(targets, row_weight, scale, shifts)
        return self._design_of_rows(X, data, groups, settings, lambda *_: (outcome, None))

    def _outcome_of(self, plan: Plan | None, classes: Array | None) -> Outcome:
        extra = plan is not None and plan.design.has_more
        return Numbers(distribution=Gaussian(), glm=extra)

    def predict(self, X: Any, *, offset: Any = None) -> Array:
        """Return the prediction for each row; ``offset`` is added to the offset of the formula."""
        rows = self._rows(X)
        return self.fitted_.predict(rows, offset=offset)
