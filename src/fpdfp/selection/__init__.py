"""Choosing a model: many related problems at once, paths of penalties, cross-validation."""

from fpdfp.selection.curves import Curves
from fpdfp.selection.many import ManyResult, solve_many
from fpdfp.selection.paths import Path, path

__all__ = ["Curves", "ManyResult", "Path", "path", "solve_many"]
