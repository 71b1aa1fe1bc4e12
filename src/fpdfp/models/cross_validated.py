"""The estimators that choose the weight of their penalty."""

from __future__ import annotations

from fpdfp.models.classifier import FederatedLogisticRegression
from fpdfp.models.cox import FederatedCoxRegression
from fpdfp.models.cross_validation import CrossValidated
from fpdfp.models.glm import FederatedGLM
from fpdfp.models.multinomial import FederatedMultinomialRegression
from fpdfp.models.ordinal import FederatedOrdinalRegression
from fpdfp.models.regressor import FederatedLinearRegression


class FederatedLogisticRegressionCV(CrossValidated, FederatedLogisticRegression):
    r"""Logistic regression whose penalty weight is chosen by cross-validation; rows stay at their sites.

    All weights and all folds travel in the same exchanges (:func:`fpdfp.solve_many`), so that the choice takes about as
    many rounds as one fit. The model with the chosen weight is then fitted to all rows, from the solution that the
    cross-validation has, to ``tol``.

    Parameters
    ----------
    penalty
        As in :class:`FederatedLogisticRegression`, except ``"none"``, ``"mcp"`` and ``"scad"``.
    alphas
        How many weights, from the smallest whose solution is zero down to ``ratio`` times that; or the weights.
    ratio
        The least weight relative to the largest.
    cv
        In how many folds each site divides its rows at random, classes evenly; ``"sites"`` to leave out one site at a
        time; or an array with the fold of each row, a splitter of scikit-learn, or its pairs of training and test rows,
        whose test rows must be all rows once.
    scoring
        ``"deviance"``: that of the rows left out, divided by their weight. Or, in one more exchange, ``"brier"``,
        ``"accuracy"`` or ``"auc"`` for classes, ``"mse"`` or ``"mae"`` for numbers, ``"concordance"`` for times. The
        area under the ROC curve (of several classes the mean of each against all others) is that of histograms of the
        linear predictor with 1,002 cells, in two exchanges; ``score_bound_`` says how far it is off at most.
        Sites with a policy tell deviances and Brier scores only.
    rule
        ``"min"`` for the weight of the best mean score, ``"1se"`` for the largest weight whose score is within one
        standard error of that.
    cv_tol, cv_rounds
        The relative accuracy of the problems of the cross-validation, as it is estimated, and the most exchanges.
    cv_checkpoint
        A folder to which all answers of sites, and the fit at the end, are written. After an interruption the same
        ``fit`` goes on there, to exactly the bits of one that was not interrupted; nothing is asked, nor paid for,
        twice.
    l1_ratio, l1_weight
        Numbers, or lists of numbers to choose from as well: how an elastic net is mixed, and the weight of single
        coefficients beside that of the edges of a graph.
    **others
        As in :class:`FederatedLogisticRegression`.

    Attributes
    ----------
    alpha_, alpha_min_, alpha_1se_
        The weight that was chosen, and that of either rule.
    l1_ratio_, l1_weight_
        How the penalty is mixed.
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
        All rounds and bits, those of the cross-validation included.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> import fpdfp
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> hospital = (X[:, 0] > 12).astype(int) + (X[:, 0] > 15)
    >>> model = fpdfp.FederatedLogisticRegressionCV(standardize=True, alphas=20).fit(X, y, groups=hospital)
    >>> model.scores_.shape, 0.0 < model.alpha_min_ <= model.alpha_1se_
    ((20, 5), True)
    """


class FederatedLinearRegressionCV(CrossValidated, FederatedLinearRegression):
    """Linear regression whose penalty weight is chosen by cross-validation; see
    :class:`FederatedLogisticRegressionCV` and :class:`FederatedLinearRegression`.
    """  # noqa: D205


class FederatedGLMCV(CrossValidated, FederatedGLM):
    """A generalised linear model whose penalty weight is chosen by cross-validation; see
    :class:`FederatedLogisticRegressionCV` and :class:`FederatedGLM`.
    """  # noqa: D205


class FederatedMultinomialRegressionCV(CrossValidated, FederatedMultinomialRegression):
    """Multinomial regression whose penalty weight is chosen by cross-validation; see
    :class:`FederatedLogisticRegressionCV` and :class:`FederatedMultinomialRegression`.

    Differences to the reference are penalised, so that the choice depends on it. ``FederatedLogisticRegressionCV``
    treats all classes alike, as ``cv.glmnet(family="multinomial")`` does.
    """  # noqa: D205


class FederatedOrdinalRegressionCV(CrossValidated, FederatedOrdinalRegression):
    """Regression of ordered classes whose penalty weight is chosen by cross-validation; see
    :class:`FederatedLogisticRegressionCV` and :class:`FederatedOrdinalRegression`.
    """  # noqa: D205


class FederatedCoxRegressionCV(CrossValidated, FederatedCoxRegression):
    """A Cox model whose penalty weight is chosen by cross-validation; see
    :class:`FederatedLogisticRegressionCV` and :class:`FederatedCoxRegression`.

    The deviance of rows left out is what they add to that of the others, per event (van Houwelingen et al. 2006).
    """  # noqa: D205
