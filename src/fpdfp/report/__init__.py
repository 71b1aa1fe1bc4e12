"""Runs to look at: one HTML file that needs nothing else, and a page that follows runs as they go on."""

from typing import TYPE_CHECKING, Any

from fpdfp.report.quality import ssim
from fpdfp.report.writing import write

if TYPE_CHECKING:
    from fpdfp.report import live

__all__ = ["live", "ssim", "write"]


def __getattr__(name: str) -> Any:
    # A web server is loaded when it is asked for.
    if name == "live":
        import importlib

        return importlib.import_module("fpdfp.report.live")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
