"""Warnings that point at the user's line, however deep in the package they arise."""

from __future__ import annotations

import sys
import warnings


def warn(message: str, category: type[Warning], *also: str) -> None:
    """Warn as if the first caller outside this package, and outside some others, had."""
    inside, level, frame = ("fpdfp", *also), 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in inside:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
