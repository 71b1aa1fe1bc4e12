"""Federated linear models as scikit-learn estimators."""

from fpdfp.estimators.classifier import FederatedLogisticRegression
from fpdfp.estimators.cox import FederatedCoxRegression
from fpdfp.estimators.curves import GroupCurves, log_rank_test, survival_curves
from fpdfp.estimators.glm import (
    FederatedGammaRegressor,
    FederatedGLM,
    FederatedPoissonRegressor,
    FederatedQuantileRegressor,
    FederatedTweedieRegressor,
)
from fpdfp.estimators.regressor import FederatedLinearRegression

__all__ = [
    "FederatedCoxRegression",
    "FederatedGLM",
    "FederatedGammaRegressor",
    "FederatedLinearRegression",
    "FederatedLogisticRegression",
    "FederatedPoissonRegressor",
    "FederatedQuantileRegressor",
    "FederatedTweedieRegressor",
    "GroupCurves",
    "log_rank_test",
    "survival_curves",
]
