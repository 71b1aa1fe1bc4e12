"""Statistical inference from the sums of sites: standard errors, intervals, tests."""

from fpdfp.inference.covariances import covariance
from fpdfp.inference.hypotheses import HypothesisTest, likelihood_ratio_test, variance_inflation, wald_test
from fpdfp.inference.information import Information, add_up
from fpdfp.inference.likelihood import information_criteria, log_likelihood
from fpdfp.inference.summary import Summary
from fpdfp.inference.table import PENALISED, Table, coefficient_table

__all__ = [
    "PENALISED",
    "HypothesisTest",
    "Information",
    "Summary",
    "Table",
    "add_up",
    "coefficient_table",
    "covariance",
    "information_criteria",
    "likelihood_ratio_test",
    "log_likelihood",
    "variance_inflation",
    "wald_test",
]
