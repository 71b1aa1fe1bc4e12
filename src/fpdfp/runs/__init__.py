"""Runs on disk: one folder each, written during the run, read back with ``load``."""

from fpdfp.runs.finished import write_result
from fpdfp.runs.model import linear_model
from fpdfp.runs.recorder import Recorder
from fpdfp.runs.saved import Best, SavedRun, find, load

__all__ = ["Best", "Recorder", "SavedRun", "find", "linear_model", "load", "write_result"]
