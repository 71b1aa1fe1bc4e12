"""How good a model is, as ``Evaluation.save`` wrote it into the folder of a run; whatever else is there is left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fpdfp.report.plain import as_list, mapping, number, text
from fpdfp.scores.evaluation import FILE

#: A file that is longer is none of ours, and so many sites and points are shown at most.
LONGEST, MOST = 1 << 24, 400
NUMBERS = ("value", "lower", "upper", "bound")
COLUMNS = ("predicted", "observed", "lower", "upper")


def evaluation_of(folder: Path) -> dict[str, Any] | None:
    """Return what the page shows; None where there is no evaluation. Raise ValueError for a damaged one."""
    path = folder / FILE
    try:
        if path.stat().st_size > LONGEST:
            raise ValueError(f"{path} is too long")
        tree = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, RecursionError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {type(error).__name__}") from None
    if not isinstance(tree, dict):
        raise ValueError(f"{path} is no evaluation")
    calibration = mapping(tree.get("calibration"))
    roc = {
        name: points
        for name, curve in list(mapping(tree.get("roc")).items())[:MOST]
        if (points := _points(mapping(curve), ("false", "true")))
    }
    level = number(tree.get("level"))
    return {
        "level": 0.95 if level is None else level,
        "overall": _measures(tree.get("overall")),
        "sites": [
            {"name": text(name), "rows": number(mapping(tree.get("rows")).get(name)), "measures": _measures(found)}
            for name, found in list(mapping(tree.get("sites")).items())[:MOST]
        ],
        "roc": [{"name": text(name), "points": points} for name, points in roc.items()],
        "calibration": _points(calibration, COLUMNS),
        "notes": [text(one) for one in as_list(tree.get("notes"))],
    }


def _measures(found: Any) -> list[dict[str, Any]]:
    return [
        {"name": text(name), **{key: number(mapping(one).get(key)) for key in NUMBERS}}
        for name, one in mapping(found).items()
    ]


def _points(found: Mapping[str, Any], names: tuple[str, ...]) -> list[list[float]]:
    """Return points with a number of each name; none where one is not a list of numbers."""
    columns = [found.get(name) for name in names]
    if not all(isinstance(one, list) and all(number(value) is not None for value in one) for one in columns):
        return []
    return [list(point) for point in zip(*columns, strict=False)][:MOST]
