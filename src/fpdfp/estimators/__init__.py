"""Federated linear models as scikit-learn estimators."""

from fpdfp.estimators.classifier import FederatedLogisticRegression
from fpdfp.estimators.cox import FederatedCoxRegression
from fpdfp.estimators.cross_validated import (
    FederatedCoxRegressionCV,
    FederatedGLMCV,
    FederatedLinearRegressionCV,
    FederatedLogisticRegressionCV,
    FederatedMultinomialRegressionCV,
    FederatedOrdinalRegressionCV,
)
from fpdfp.estimators.curves import GroupCurves, log_rank_test, survival_curves
from fpdfp.estimators.glm import (
    FederatedGammaRegressor,
    FederatedGLM,
    FederatedPoissonRegressor,
    FederatedQuantileRegressor,
    FederatedTweedieRegressor,
)
from fpdfp.estimators.multinomial import FederatedMultinomialRegression
from fpdfp.estimators.ordinal import FederatedOrdinalRegression
from fpdfp.estimators.regressor import FederatedLinearRegression
from fpdfp.estimators.saving import load_model

__all__ = [
    "FederatedCoxRegression",
    "FederatedCoxRegressionCV",
    "FederatedGLM",
    "FederatedGLMCV",
    "FederatedGammaRegressor",
    "FederatedLinearRegression",
    "FederatedLinearRegressionCV",
    "FederatedLogisticRegression",
    "FederatedLogisticRegressionCV",
    "FederatedMultinomialRegression",
    "FederatedMultinomialRegressionCV",
    "FederatedOrdinalRegression",
    "FederatedOrdinalRegressionCV",
    "FederatedPoissonRegressor",
    "FederatedQuantileRegressor",
    "FederatedTweedieRegressor",
    "GroupCurves",
    "load_model",
    "log_rank_test",
    "survival_curves",
]
