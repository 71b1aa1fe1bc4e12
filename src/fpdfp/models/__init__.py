"""Federated linear models as scikit-learn estimators."""

from fpdfp.models.classes import FederatedMultinomialRegression, FederatedOrdinalRegression
from fpdfp.models.cox import FederatedCoxRegression
from fpdfp.models.cross_validated import (
    FederatedCoxRegressionCV,
    FederatedGLMCV,
    FederatedLinearRegressionCV,
    FederatedLogisticRegressionCV,
    FederatedMultinomialRegressionCV,
    FederatedOrdinalRegressionCV,
)
from fpdfp.models.cross_validation import CrossValidation
from fpdfp.models.descriptives import (
    Correlations,
    GroupCurves,
    Histogram,
    correlations,
    histogram,
    log_rank_test,
    survival_curves,
    table_one,
)
from fpdfp.models.formulas import InverseProbability
from fpdfp.models.glm import FederatedGLM
from fpdfp.models.linear import FederatedLinearRegression, FederatedLogisticRegression
from fpdfp.models.penalty import (
    L1,
    MCP,
    SCAD,
    ElasticNet,
    Firth,
    Fused,
    Graph,
    Group,
    Ridge,
    SparseGroup,
    TotalVariation,
)
from fpdfp.models.result import FitResult
from fpdfp.models.saving import load_model, read_parameter
from fpdfp.models.site_fits import SiteFits, fit_sites

__all__ = [
    "L1",
    "MCP",
    "SCAD",
    "Correlations",
    "CrossValidation",
    "ElasticNet",
    "FederatedCoxRegression",
    "FederatedCoxRegressionCV",
    "FederatedGLM",
    "FederatedGLMCV",
    "FederatedLinearRegression",
    "FederatedLinearRegressionCV",
    "FederatedLogisticRegression",
    "FederatedLogisticRegressionCV",
    "FederatedMultinomialRegression",
    "FederatedMultinomialRegressionCV",
    "FederatedOrdinalRegression",
    "FederatedOrdinalRegressionCV",
    "Firth",
    "FitResult",
    "Fused",
    "Graph",
    "Group",
    "GroupCurves",
    "Histogram",
    "InverseProbability",
    "Ridge",
    "SiteFits",
    "SparseGroup",
    "TotalVariation",
    "correlations",
    "fit_sites",
    "histogram",
    "load_model",
    "log_rank_test",
    "read_parameter",
    "survival_curves",
    "table_one",
]
