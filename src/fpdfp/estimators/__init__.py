"""Federated linear models as scikit-learn estimators."""

from fpdfp.estimators.classifier import FederatedLogisticRegression
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
    "FederatedGLM",
    "FederatedGammaRegressor",
    "FederatedLinearRegression",
    "FederatedLogisticRegression",
    "FederatedMultinomialRegression",
    "FederatedOrdinalRegression",
    "FederatedPoissonRegressor",
    "FederatedQuantileRegressor",
    "FederatedTweedieRegressor",
    "load_model",
]
