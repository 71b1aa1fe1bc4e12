"""Where data sets lie: a folder that is named, the folder of ``FPDFP_DATA``, the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

from fpdfp.datasets._packed import ENDINGS


def cache_folder() -> Path:
    """Return the user's cache of this package; ``FPDFP_CACHE`` names another."""
    chosen = os.environ.get("FPDFP_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("fpdfp"))


def data_folder() -> Path | None:
    """Return the folder that ``FPDFP_DATA`` names, if it names one."""
    chosen = os.environ.get("FPDFP_DATA")
    return Path(chosen).expanduser() if chosen else None


def candidates(folder: Path, file: str) -> list[Path]:
    """Return the paths that a file may have in a folder: plain first, then compressed."""
    return [folder / (file + ending) for ending in ("", *ENDINGS)]


def find(folder: Path, file: str) -> Path | None:
    """Return the first of the candidates that is there."""
    return next((path for path in candidates(folder, file) if path.is_file()), None)
