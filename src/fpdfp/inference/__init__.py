"""Statistical inference from the sums of sites: standard errors, intervals, tests."""

from fpdfp.inference.covariances import covariance
from fpdfp.inference.differences import homogeneity_test, site_tables
from fpdfp.inference.forest import forest_plot, forest_svg
from fpdfp.inference.heterogeneity import Heterogeneity, Pooled
from fpdfp.inference.hypotheses import HypothesisTest, likelihood_ratio_test, variance_inflation, wald_test
from fpdfp.inference.information import Information, add_up
from fpdfp.inference.likelihood import information_criteria, log_likelihood
from fpdfp.inference.summary import Summary
from fpdfp.inference.table import PENALISED, Table, coefficient_table

__all__ = [
    "PENALISED",
    "Heterogeneity",
    "HypothesisTest",
    "Information",
    "Pooled",
    "Summary",
    "Table",
    "add_up",
    "coefficient_table",
    "covariance",
    "forest_plot",
    "forest_svg",
    "homogeneity_test",
    "information_criteria",
    "likelihood_ratio_test",
    "log_likelihood",
    "site_tables",
    "variance_inflation",
    "wald_test",
]
