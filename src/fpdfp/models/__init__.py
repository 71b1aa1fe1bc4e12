"""Federated linear models as scikit-learn estimators."""

from fpdfp.models.classifier import FederatedLogisticRegression
from fpdfp.models.cox import FederatedCoxRegression
from fpdfp.models.cross_validated import (
    FederatedCoxRegressionCV,
    FederatedGLMCV,
    FederatedLinearRegressionCV,
    FederatedLogisticRegressionCV,
    FederatedMultinomialRegressionCV,
    FederatedOrdinalRegressionCV,
)
from fpdfp.models.curves import GroupCurves, log_rank_test, survival_curves
from fpdfp.models.glm import (
    FederatedGammaRegressor,
    FederatedGLM,
    FederatedPoissonRegressor,
    FederatedQuantileRegressor,
    FederatedTweedieRegressor,
)
from fpdfp.models.image_map import ImageMap
from fpdfp.models.multinomial import FederatedMultinomialRegression
from fpdfp.models.ordinal import FederatedOrdinalRegression
from fpdfp.models.regressor import FederatedLinearRegression
from fpdfp.models.saving import load_model

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
    "ImageMap",
    "load_model",
    "log_rank_test",
    "survival_curves",
]
