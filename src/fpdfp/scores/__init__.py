"""Scores of predictions, from sums over rows that add up over clients and sites."""

from fpdfp.scores.auc import AUC
from fpdfp.scores.base import Estimate, Score
from fpdfp.scores.evaluation import Evaluation, Measure
from fpdfp.scores.learning import LearningCurve
from fpdfp.scores.named import (
    AbsoluteError,
    Accuracy,
    Brier,
    ConcordanceScore,
    Deviance,
    PartialDeviance,
    SquaredError,
    by_name,
    names_for,
)
from fpdfp.scores.plots import plot_calibration, plot_roc, plot_sites

__all__ = [
    "AUC",
    "AbsoluteError",
    "Accuracy",
    "Brier",
    "ConcordanceScore",
    "Deviance",
    "Estimate",
    "Evaluation",
    "LearningCurve",
    "Measure",
    "PartialDeviance",
    "Score",
    "SquaredError",
    "by_name",
    "names_for",
    "plot_calibration",
    "plot_roc",
    "plot_sites",
]
