"""Sections of the page that files in the folder of a run fill; whatever else is in these files is left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fpdfp._sections import SECTIONS
from fpdfp.report.evaluation import clean_evaluation, clean_learning_curve
from fpdfp.report.inference import clean_heterogeneity, clean_summary
from fpdfp.report.selection import clean_cross_validation, clean_path

__all__ = ["SECTIONS", "read_section"]

#: A file that is longer is none of ours.
LONGEST = 1 << 24

Clean = Callable[[dict[str, Any]], dict[str, Any]]
CLEAN: dict[str, Clean] = {
    "summary": clean_summary, "heterogeneity": clean_heterogeneity, "path": clean_path,
    "cross_validation": clean_cross_validation, "evaluation": clean_evaluation,
    "learning_curve": clean_learning_curve,
}  # fmt: skip


def read_section(folder: Path, name: str) -> dict[str, Any] | None:
    """Return what the page shows of a section; None where there is none. Raise ValueError for a damaged file."""
    path = folder / f"{name}.json"
    try:
        if path.stat().st_size > LONGEST:
            raise ValueError(f"{path} is too long")
        tree = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, RecursionError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {type(error).__name__}") from None
    if not isinstance(tree, dict):
        raise ValueError(f"{path} is no section of a report")
    return CLEAN[name](tree)
