"""Models of classes with standard errors: against a reference, and of ordered classes."""

from __future__ import annotations

import abc
from typing import Any, Literal

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.engines.prepare import RunOptions
from fpdfp.errors import ArgumentError
from fpdfp.formula.coding import Imputation
from fpdfp.losses.classes import LINKS, Link
from fpdfp.methods.base import Method
from fpdfp.models.base import FederatedModel, MakeDesign
from fpdfp.models.design import Settings
from fpdfp.models.formulas import InverseProbability, Plan
from fpdfp.models.outcomes import Classes, Compared, Data, Ordered, Outcome, SiteEffects
from fpdfp.models.penalty import ModelPenalty, Name
from fpdfp.models.rows import column, refuse_column, refuse_of_rows, row_weights, scale_of


class ClassModel(ClassifierMixin, FederatedModel):
    """Models of classes whose coefficients are one vector, fitted by Newton steps."""

    _tol = 1e-8
    site_effects: Literal["none", "fixed"]

    @abc.abstractmethod
    def _arrange(self, classes: list[Any], *, ordered: bool) -> Classes:
        """Return the outcome of classes that are given in their own order; refuse what does not fit.

        ``ordered`` states whether their own order is declared.
        """

    def _arrange_plan(self, plan: Plan) -> tuple[Outcome, Plan]:
        """Return the outcome of a formula, and the plan with the classes in the order of the model."""
        outcome = self._arrange(list(plan.classes), ordered=plan.ordered)
        return outcome, plan._replace(classes=outcome.labels)

    @property
    def _site_effects(self) -> SiteEffects:
        return self.site_effects

    def _settings(self, *, selecting: bool = False) -> Settings:
        _checks.choice("site_effects", self.site_effects, ("none", "fixed"))
        return super()._settings(selecting=selecting)

    def _code_intercept(self, settings: Settings) -> bool:
        """Return whether categories of a formula are coded as besides an intercept."""
        return settings.intercept

    def _design(
        self, X: Any, y: Any, groups: Any, settings: Settings, *, sample_weight: Any = None, offset: Any = None,
        weights: Any = None, missing: Any = "drop", levels: Any = "shared",
    ) -> MakeDesign:  # fmt: skip
        if isinstance(y, str):
            refuse_of_rows(sample_weight=sample_weight, offset=offset)

            def code(features: int, intercept: bool, sites: int, plan: Plan | None) -> tuple[Outcome, Plan | None]:
                assert plan is not None
                return self._arrange_plan(plan)

            return self._design_of_formula(
                y, settings, code, classify=True, intercept=self._code_intercept(settings), weights=weights,
                missing=missing, levels=levels,
            )  # fmt: skip
        refuse_column(weights)
        declared = scale_of(y)
        X, y = self._validate(X, y)
        check_classification_targets(y)
        found = list(np.unique(y))
        if len(found) < 2:
            raise ArgumentError("y", f"must hold at least two classes, got one class: {found[0]}")
        if declared is not None:
            found.sort(key=declared.index)
        outcome = self._arrange(found, ordered=declared is not None)
        place = {label: code for code, label in enumerate(outcome.labels)}
        codes = np.array([place[label] for label in y])
        own_weights, scale = row_weights(sample_weight, len(codes))
        if own_weights is not None:
            empty = [label for label in outcome.labels if not own_weights[codes == place[label]].any()]
            if empty:
                raise ArgumentError("sample_weight", f"must not be zero for all rows of the class {empty[0]!r}")
        shifts = None if offset is None else self._read_offset(outcome, offset, len(codes))
        data = Data(codes, own_weights, scale, shifts)
        return self._design_of_rows(X, data, groups, settings, lambda *_: (outcome, None))

    @staticmethod
    def _read_offset(outcome: Classes, offset: Any, rows: int) -> Array:
        """Return what is added to the linear predictors of rows."""
        return outcome.read_offset(offset, rows) if isinstance(outcome, Compared) else column("offset", offset, rows)

    def _outcome_of(self, plan: Plan | None, classes: Array | None) -> Outcome:
        assert classes is not None
        return self._arrange(classes.tolist(), ordered=True)

    def predict_proba(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the classes' probabilities, in the order of ``classes_``; see :meth:`predict`."""
        rows = self._rows(X)
        return self.fitted_.predict_proba(rows, offset=offset, site=site)

    def predict(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the most probable class of each row.

        Parameters
        ----------
        X
            Rows, or a table with the columns of the formula.
        offset
            What is added to the linear predictors, as in ``fit``; with a formula that has an offset, in addition to it.
        site
            With site effects: the site of the rows, or of each.
        """
        rows = self._rows(X)
        return self.fitted_.predict(rows, offset=offset, site=site)

    def predict_log_proba(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the logarithms of the classes' probabilities; see :meth:`predict`."""
        rows = self._rows(X)
        return self.fitted_.predict_log_proba(rows, offset=offset, site=site)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None, site: Any = None) -> float:
        """Return the share of rows, weighted, whose most probable class is theirs; see :meth:`predict`."""
        from sklearn.metrics import accuracy_score

        return float(accuracy_score(y, self.predict(X, offset=offset, site=site), sample_weight=sample_weight))


class FederatedMultinomialRegression(ClassModel):
    r"""Multinomial logistic regression against a reference class, with standard errors; rows stay at their sites.

    Each class but the reference has coefficients: :math:`\log(P(y = k)/P(y = \text{reference})) = x^T w_k + b_k`.
    Without a penalty it is the maximum likelihood estimate of R's ``multinom``, by Newton steps that are one exchange
    with all sites each, and :meth:`summary` shows standard errors for each class.

    Parameters
    ----------
    reference
        The class that others are compared with; by default the first.
    penalty, bounds, start
        As in :class:`FederatedLogisticRegression`; by default ``"none"``. Differences to the reference are penalised,
        so a penalised model depends on it. Groups of :class:`fpdfp.Group` have the coefficients of all classes.
    site_effects
        ``"none"``, or ``"fixed"`` for an intercept of each site, as differences to the first, which are not penalised:
        of each class.
    fit_intercept
        Whether each class has an intercept.
    standardize, method, inference, run
        As in :class:`FederatedGLM`.

    Attributes
    ----------
    classes_, reference_, others_
        The classes, the reference, and the others, which are the rows of ``coef_``.
    coef_, intercept_
        Of shape (classes − 1, features) and (classes − 1,).
    coefficients_
        By class and name.
    deviance_, null_deviance_
        Minus twice the log-likelihood, and the same for the intercepts alone.
    sites_, rows_, left_out_, n_iter_, bits_up_, bits_down_, history_, result_
        As in :class:`FederatedGLM`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import fpdfp
    >>> X, y = load_iris(return_X_y=True)
    >>> sepals = X[:, :2] - X[:, :2].mean(axis=0)
    >>> model = fpdfp.FederatedMultinomialRegression(reference=1, penalty=fpdfp.Ridge(0.01))
    >>> model = model.fit(sepals, y, groups=y + X[:, 1] > 3)
    >>> model.others_, model.coef_.shape
    (array([0, 2]), (2, 2))
    """

    reference_: Any
    others_: Array

    def __init__(
        self,
        reference: Any = None,
        *,
        penalty: Name | ModelPenalty = "none",
        bounds: Any = None,
        start: Any = None,
        site_effects: Literal["none", "fixed"] = "none",
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
        self.reference = reference
        self.site_effects = site_effects

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
    ) -> FederatedMultinomialRegression:
        """Fit the model to rows X with classes y, or a formula y to a table or a federation X.

        Parameters
        ----------
        X, y, groups
            As in :meth:`FederatedGLM.fit`; the response of a formula is a column of classes.
        sample_weight
            The weight of each row.
        offset
            What is added to the linear predictors of each row: a number for all classes but the reference, as
            ``offset(…)`` in a formula is, or a column for each of the classes, in their order.
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
            X, y, groups, on_refusal=on_refusal, sample_weight=sample_weight, offset=offset, weights=weights,
            missing=missing, levels=levels,
        )  # fmt: skip

    def _arrange(self, classes: list[Any], *, ordered: bool) -> Classes:
        reference = classes[0] if self.reference is None else self.reference
        if reference not in classes:
            shown = ", ".join(map(repr, classes))
            raise ArgumentError("reference", f"must be one of the classes {shown}, got {reference!r}")
        first = classes[classes.index(reference)]
        return Compared(np.array(classes), (first, *(one for one in classes if one != first)))

    def decision_function(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return the linear predictor of each class, 0 for the reference; with two classes for the second alone.

        The arguments are as in :meth:`predict`.
        """
        rows = self._rows(X)
        return self.fitted_.decision_function(rows, offset=offset, site=site)


class FederatedOrdinalRegression(ClassModel):
    r"""Regression of ordered classes with proportional odds, with standard errors; rows stay at their sites.

    A row is in one of the classes up to k with the chance :math:`F(\theta_k - x^T w)`, F the logistic or the normal
    distribution function: positive coefficients make higher classes more probable. Without a penalty it is the maximum
    likelihood estimate of ``polr`` of R's MASS, by Newton steps that are one exchange with all sites each, and
    :meth:`summary` shows standard errors of coefficients and thresholds.

    Parameters
    ----------
    link
        ``"logit"`` or ``"probit"``.
    order
        The classes from the lowest to the highest. By default numbers are sorted, and an ordered categorical column has
        its own order, as has one whose levels all sites declare. Classes that are texts have no other order.
    penalty, bounds, start
        As in :class:`FederatedLogisticRegression`; by default ``"none"``. Thresholds are not penalised.
    site_effects
        ``"none"``, or ``"fixed"`` for an intercept of each site, as differences to the first, which are not penalised.
    standardize, method, inference, run
        As in :class:`FederatedGLM`.

    Attributes
    ----------
    classes_
        The classes, from the lowest to the highest.
    coef_, thresholds_
        The coefficients of the features, and the thresholds between neighbouring classes.
    coefficients_
        Both by name; thresholds are named ``"low|high"`` by the classes at their sides.
    deviance_, null_deviance_
        Minus twice the log-likelihood, and the same for the thresholds alone.
    sites_, rows_, left_out_, n_iter_, bits_up_, bits_down_, history_, result_
        As in :class:`FederatedGLM`.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((300, 1))
    >>> pain = np.digitize(x[:, 0] + rng.logistic(size=300), [-1.0, 1.0])
    >>> model = fpdfp.FederatedOrdinalRegression().fit(x, pain, groups=np.arange(300) % 3)
    >>> print(model.table())
         coefficient  standard error      z        p   2.5 %   97.5 %
    x0         1.156          0.1336   8.65  < 0.001  0.8939    1.417
    0|1       -1.218          0.1481  -8.22  < 0.001  -1.508  -0.9272
    1|2       0.9909          0.1421   6.97  < 0.001  0.7124    1.269
    """

    thresholds_: Array

    def __init__(
        self,
        link: Link = "logit",
        *,
        order: Any = None,
        penalty: Name | ModelPenalty = "none",
        bounds: Any = None,
        start: Any = None,
        site_effects: Literal["none", "fixed"] = "none",
        standardize: bool | None = None,
        method: Method | None = None,
        inference: bool | Literal["auto"] = "auto",
        run: RunOptions | None = None,
    ) -> None:
        super().__init__(
            penalty, bounds=bounds, start=start, standardize=standardize, method=method, inference=inference, run=run
        )
        self.link = link
        self.order = order
        self.site_effects = site_effects

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # of classes that have no order
        return tags

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
    ) -> FederatedOrdinalRegression:
        """Fit the model to rows X with classes y, or a formula y to a table or a federation X.

        Parameters
        ----------
        X, y, groups
            As in :meth:`FederatedGLM.fit`; the response of a formula is a column of classes.
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
            X, y, groups, on_refusal=on_refusal, sample_weight=sample_weight, offset=offset, weights=weights,
            missing=missing, levels=levels,
        )  # fmt: skip

    def _settings(self, *, selecting: bool = False) -> Settings:
        _checks.choice("link", self.link, tuple(LINKS))
        return super()._settings(selecting=selecting)

    def _code_intercept(self, settings: Settings) -> bool:
        return True

    def _arrange(self, classes: list[Any], *, ordered: bool) -> Classes:
        arranged = classes
        if self.order is None and not ordered and any(isinstance(one, str) for one in classes):
            shown = ", ".join(repr(str(one)) for one in classes)
            raise ArgumentError(
                "order",
                f"must list the classes from the lowest to the highest, got none: {shown} are texts, and no order is "
                "declared (an ordered categorical column, or the levels of the column)",
            )
        if self.order is not None:
            order = list(self.order)
            if len(set(order)) != len(order) or set(order) != set(classes):
                shown = ", ".join(map(repr, classes))
                raise ArgumentError("order", f"must have each of the classes {shown} once, got {order!r}")
            arranged = [classes[classes.index(one)] for one in order]
        return Ordered(np.array(arranged), tuple(arranged), link=self.link)

    def _arrange_plan(self, plan: Plan) -> tuple[Outcome, Plan]:
        if not plan.intercept:
            raise ArgumentError("formula:", "the intercept must not be removed: thresholds take its place")
        if not plan.design.names:
            raise ArgumentError("formula:", "must have a term; thresholds alone are the model of the null deviance")
        outcome, arranged = super()._arrange_plan(plan)
        return outcome, arranged._replace(intercept=False)

    def linear_predictor(self, X: Any, *, offset: Any = None, site: Any = None) -> Array:
        """Return x^T w of each row: where it is on the scale of the thresholds; see :meth:`predict`."""
        rows = self._rows(X)
        return self.fitted_.decision_function(rows, offset=offset, site=site)
