"""Data: sets of rows, who holds them, graphs of their features."""

from fpdfp.datasets import splits
from fpdfp.datasets.graph import FeatureGraph, as_graph, feature_graph, plot_graph
from fpdfp.datasets.images import ImageCohort, image_cohort
from fpdfp.datasets.loading import DataSet, load
from fpdfp.datasets.moments import Moments
from fpdfp.datasets.patients import patients

__all__ = [
    "DataSet",
    "FeatureGraph",
    "ImageCohort",
    "Moments",
    "as_graph",
    "feature_graph",
    "image_cohort",
    "load",
    "patients",
    "plot_graph",
    "splits",
]
