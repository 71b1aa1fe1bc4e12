"""Engines choose clients, carry messages, keep time, checkpoint and report; methods do the rest."""

from fpdfp.engines.loop import Observer
from fpdfp.engines.options import RunOptions
from fpdfp.engines.ray import Ray
from fpdfp.engines.result import History, Result
from fpdfp.engines.run import Run
from fpdfp.engines.solve import solve
from fpdfp.engines.traffic import Traffic

__all__ = ["History", "Observer", "Ray", "Result", "Run", "RunOptions", "Traffic", "solve"]
