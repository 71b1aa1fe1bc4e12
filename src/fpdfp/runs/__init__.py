"""Runs on disk: one folder each, written during the run, read back with ``load``."""

from fpdfp.runs.folder import Best, SavedRun, find, load
from fpdfp.runs.recorder import Recorder, linear_model, write_result

__all__ = ["Best", "Recorder", "SavedRun", "find", "linear_model", "load", "write_result"]
