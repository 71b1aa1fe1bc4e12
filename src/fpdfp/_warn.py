"""Warnings that point at the user's line, however deep in the package they arise."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

#: The folder of the package.
HERE = str(Path(__file__).parent)


def warn(message: str, category: type[Warning]) -> None:
    """Warn as if the first caller outside this package had."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HERE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
