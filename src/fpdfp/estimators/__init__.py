"""Federated linear models as scikit-learn estimators."""

from fpdfp.estimators.classifier import FederatedLogisticRegression
from fpdfp.estimators.regressor import FederatedLinearRegression

__all__ = ["FederatedLinearRegression", "FederatedLogisticRegression"]
