"""Data: graphs of features."""

from fpdfp.datasets.graph import FeatureGraph, feature_graph

__all__ = ["FeatureGraph", "feature_graph"]
