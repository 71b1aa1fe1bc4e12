"""How good a model is, and was after each round, as the page shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fpdfp.report.plain import as_list, mapping, number, numbers, text

#: So many sites and points are shown at most.
MOST = 400
NUMBERS = ("value", "lower", "upper", "bound")
COLUMNS = ("predicted", "observed", "lower", "upper")


def clean_evaluation(tree: dict[str, Any]) -> dict[str, Any]:
    """Return what the page shows of an evaluation."""
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


def clean_learning_curve(tree: dict[str, Any]) -> dict[str, Any]:
    """Return what the page shows of scores along the rounds."""
    rounds = numbers(tree.get("rounds"), MOST)
    count = len(rounds)
    sent = {key: numbers(tree.get(key), MOST) for key in ("bits_up", "bits_down")}
    return {
        "rounds": rounds,
        **{key: column if len(column) == count else [None] * count for key, column in sent.items()},
        "overall": _columns(tree.get("overall"), count),
        "sites": [
            {"name": text(name), "measures": _columns(found, count)}
            for name, found in list(mapping(tree.get("sites")).items())[:MOST]
        ],
        "notes": [text(one) for one in as_list(tree.get("notes"))],
    }


def _columns(found: Any, count: int) -> dict[str, Any]:
    """Return the values of each measure, after each of the rounds."""
    columns = {text(name): numbers(one, MOST) for name, one in mapping(found).items()}
    return {name: column for name, column in columns.items() if len(column) == count}
