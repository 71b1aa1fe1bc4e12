"""Reports of runs: one self-contained HTML file, and a live page that follows runs in progress."""

from typing import TYPE_CHECKING

from fpdfp._lazy import attach

if TYPE_CHECKING:
    from fpdfp.report import live
    from fpdfp.report.pictures import ssim
    from fpdfp.report.writing import write

__all__ = ["live", "ssim", "write"]

__getattr__ = attach(__name__, {"": "live", "pictures": "ssim", "writing": "write"})
