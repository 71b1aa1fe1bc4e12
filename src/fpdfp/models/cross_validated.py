"""The estimators that choose the weight of their penalty."""

from __future__ import annotations

from typing import Any, Literal

from fpdfp._typing import Array
from fpdfp.engines.prepare import RunOptions
from fpdfp.losses.classes import Link
from fpdfp.losses.cox import Ties
from fpdfp.methods.base import Method
from fpdfp.models.classes import FederatedMultinomialRegression, FederatedOrdinalRegression
from fpdfp.models.cox import FederatedCoxRegression
from fpdfp.models.cross_validation import CrossValidation
from fpdfp.models.glm import FederatedGLM
from fpdfp.models.linear import FederatedLinearRegression, FederatedLogisticRegression
from fpdfp.models.penalty import ModelPenalty, Name


class FederatedLogisticRegressionCV(FederatedLogisticRegression):
    r"""Logistic regression whose penalty weight is chosen by cross-validation; rows stay at their sites.

    All weights and all folds travel in the same exchanges (:func:`fpdfp.solve_many`), so that the choice takes about as
    many rounds as one fit. The model with the chosen weight is then fitted to all rows, from the solution that the
    cross-validation has, to ``tol``.

    Parameters
    ----------
    penalty
        As in :class:`FederatedLogisticRegression`, without a weight, and convex. Options of it may be lists of numbers,
        from which one is chosen as well: ``fpdfp.ElasticNet(l1_ratio=[0.5, 0.9])``, ``fpdfp.Graph(l1=[0.5, 1.0])``.
    cv
        :class:`fpdfp.CrossValidation`, or its ``folds``: how many folds at each site, ``"sites"`` to exclude one site
        at a time, or the fold of each row.
    class_weight, bounds, fit_intercept, standardize, method, inference, run
        As in :class:`FederatedLogisticRegression`.

    Attributes
    ----------
    alpha_, alpha_min_, alpha_1se_
        The weight that was chosen, and the weight by either rule.
    penalty_
        The penalty with the weight and the options that were chosen.
    alphas_
        The weights, largest first.
    scores_
        The score of each weight and fold.
    mean_score_, score_error_
        Its mean over folds, weighted by their size, and the standard error of that.
    score_bound_
        How far any score is off at most, 0 for exact ones.
    curves_
        The same for each way of mixing, as a table and a picture (:class:`fpdfp.selection.Curves`).
    path_
        The coefficients of all weights, fitted to all rows (:class:`fpdfp.Path`).
    n_iter_, bits_up_, bits_down_
        All rounds and bits, the cross-validation included.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> import fpdfp
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> hospital = (X[:, 0] > 12).astype(int) + (X[:, 0] > 15)
    >>> model = fpdfp.FederatedLogisticRegressionCV(cv=fpdfp.CrossValidation(alphas=20))
    >>> model = model.fit(X, y, groups=hospital)
    >>> model.scores_.shape, 0.0 < model.alpha_min_ <= model.alpha_1se_
    ((20, 5), True)
    """

    def __init__(
        self,
        penalty: Name | ModelPenalty = "l1",
        *,
        cv: int | str | Array | CrossValidation | Any = 5,
        class_weight: Any = None,
        bounds: Any = None,
        fit_intercept: bool = True,
        standardize: bool | None = None,
        method: Method | None = None,
        inference: bool | Literal["auto"] = "auto",
        run: RunOptions | None = None,
    ) -> None:
        super().__init__(
            penalty, class_weight=class_weight, bounds=bounds, fit_intercept=fit_intercept, standardize=standardize,
            method=method, inference=inference, run=run,
        )  # fmt: skip
        self.cv = cv


class FederatedLinearRegressionCV(FederatedLinearRegression):
    """Linear regression whose penalty weight is chosen by cross-validation; see
    :class:`FederatedLogisticRegressionCV` and :class:`FederatedLinearRegression`.
    """  # noqa: D205

    def __init__(
        self,
        penalty: Name | ModelPenalty = "l1",
        *,
        cv: int | str | Array | CrossValidation | Any = 5,
        bounds: Any = None,
        fit_intercept: bool = True,
        standardize: bool | None = None,
        method: Method | None = None,
        inference: bool | Literal["auto"] = "auto",
        run: RunOptions | None = None,
    ) -> None:
        super().__init__(
            penalty, bounds=bounds, fit_intercept=fit_intercept, standardize=standardize, method=method,
            inference=inference, run=run,
        )  # fmt: skip
        self.cv = cv


class FederatedGLMCV(FederatedGLM):
    """A generalised linear model whose penalty weight is chosen by cross-validation; see
    :class:`FederatedLogisticRegressionCV` and :class:`FederatedGLM`.
    """  # noqa: D205

    def __init__(
        self,
        family: Any = "gaussian",
        link: str | None = None,
        *,
        penalty: Name | ModelPenalty = "l1",
        cv: int | str | Array | CrossValidation | Any = 5,
        site_effects: Literal["none", "fixed", "random"] = "none",
        bounds: Any = None,
        fit_intercept: bool = True,
        standardize: bool | None = None,
        method: Method | None = None,
        inference: bool | Literal["auto"] = "auto",
        run: RunOptions | None = None,
    ) -> None:
        super().__init__(
            family, link, penalty=penalty, site_effects=site_effects, bounds=bounds, fit_intercept=fit_intercept,
            standardize=standardize, method=method, inference=inference, run=run,
        )  # fmt: skip
        self.cv = cv


class FederatedMultinomialRegressionCV(FederatedMultinomialRegression):
    """Multinomial regression whose penalty weight is chosen by cross-validation; see
    :class:`FederatedLogisticRegressionCV` and :class:`FederatedMultinomialRegression`.

    Differences to the reference are penalised, so that the choice depends on it. ``FederatedLogisticRegressionCV``
    treats all classes alike, as ``cv.glmnet(family="multinomial")`` does.
    """  # noqa: D205

    def __init__(
        self,
        reference: Any = None,
        *,
        penalty: Name | ModelPenalty = "l1",
        cv: int | str | Array | CrossValidation | Any = 5,
        site_effects: Literal["none", "fixed"] = "none",
        bounds: Any = None,
        fit_intercept: bool = True,
        standardize: bool | None = None,
        method: Method | None = None,
        inference: bool | Literal["auto"] = "auto",
        run: RunOptions | None = None,
    ) -> None:
        super().__init__(
            reference, penalty=penalty, site_effects=site_effects, bounds=bounds, fit_intercept=fit_intercept,
            standardize=standardize, method=method, inference=inference, run=run,
        )  # fmt: skip
        self.cv = cv


class FederatedOrdinalRegressionCV(FederatedOrdinalRegression):
    """Regression of ordered classes whose penalty weight is chosen by cross-validation; see
    :class:`FederatedLogisticRegressionCV` and :class:`FederatedOrdinalRegression`.
    """  # noqa: D205

    def __init__(
        self,
        link: Link = "logit",
        *,
        order: Any = None,
        penalty: Name | ModelPenalty = "l1",
        cv: int | str | Array | CrossValidation | Any = 5,
        site_effects: Literal["none", "fixed"] = "none",
        bounds: Any = None,
        standardize: bool | None = None,
        method: Method | None = None,
        inference: bool | Literal["auto"] = "auto",
        run: RunOptions | None = None,
    ) -> None:
        super().__init__(
            link, order=order, penalty=penalty, site_effects=site_effects, bounds=bounds, standardize=standardize,
            method=method, inference=inference, run=run,
        )  # fmt: skip
        self.cv = cv


class FederatedCoxRegressionCV(FederatedCoxRegression):
    """A Cox model whose penalty weight is chosen by cross-validation; see
    :class:`FederatedLogisticRegressionCV` and :class:`FederatedCoxRegression`.

    The deviance of rows excluded is what they add to the deviance of the others, per event (van Houwelingen et al.
    2006).
    """  # noqa: D205

    def __init__(
        self,
        penalty: Name | ModelPenalty = "l1",
        *,
        cv: int | str | Array | CrossValidation | Any = 5,
        ties: Ties = "efron",
        baseline: Any = True,
        bounds: Any = None,
        standardize: bool | None = None,
        method: Method | None = None,
        inference: bool | Literal["auto"] = "auto",
        run: RunOptions | None = None,
    ) -> None:
        super().__init__(
            penalty, ties=ties, baseline=baseline, bounds=bounds, standardize=standardize, method=method,
            inference=inference, run=run,
        )  # fmt: skip
        self.cv = cv
