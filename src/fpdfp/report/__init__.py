"""Runs to look at: one HTML file that needs nothing else, and a page that follows runs as they go on."""

from fpdfp.report.quality import ssim
from fpdfp.report.writing import write

__all__ = ["ssim", "write"]
