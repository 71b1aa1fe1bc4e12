"""Statistical inference from the sums of sites: standard errors, intervals, tests, diagnostics."""

from fpdfp.inference.calibration import Calibration, CalibrationTable, calibrate, calibration_table
from fpdfp.inference.covariances import covariance
from fpdfp.inference.debiased import Split, approximate_inverse, debias, selected, split_sites
from fpdfp.inference.heterogeneity import (
    Heterogeneity,
    HeterogeneityTable,
    Pooled,
    forest_plot,
    forest_svg,
    homogeneity_test,
    site_tables,
)
from fpdfp.inference.histograms import (
    ResidualHistogram,
    ScoreHistogram,
    chance_edges,
    residual_histogram,
    score_histogram,
)
from fpdfp.inference.hypotheses import HypothesisTest, likelihood_ratio_test, variance_inflation, wald_test
from fpdfp.inference.information import Information, add_up
from fpdfp.inference.model_table import ModelTable, model_table
from fpdfp.inference.roc import RocCurve, roc_curve
from fpdfp.inference.summary import Summary
from fpdfp.inference.table import PENALISED, Table, coefficient_table

__all__ = [
    "PENALISED",
    "Calibration",
    "CalibrationTable",
    "Heterogeneity",
    "HeterogeneityTable",
    "HypothesisTest",
    "Information",
    "ModelTable",
    "Pooled",
    "ResidualHistogram",
    "RocCurve",
    "ScoreHistogram",
    "Split",
    "Summary",
    "Table",
    "add_up",
    "approximate_inverse",
    "calibrate",
    "calibration_table",
    "chance_edges",
    "coefficient_table",
    "covariance",
    "debias",
    "forest_plot",
    "forest_svg",
    "homogeneity_test",
    "likelihood_ratio_test",
    "model_table",
    "residual_histogram",
    "roc_curve",
    "score_histogram",
    "selected",
    "site_tables",
    "split_sites",
    "variance_inflation",
    "wald_test",
]
