"""Sections of the page that files in the folder of a run fill; whatever else is in these files is excluded.

Anyone may have written these files: each value is what it should be, or nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

#: This many rows of a table, points, weights or sites, curves, and sites of a coefficient are shown at most.
MOST, MOST_CURVES, MOST_SITES = 400, 100, 200
#: A file that is longer is none of ours.
LONGEST = 1 << 24


def number(value: Any) -> float | int | None:
    """Return a finite number unchanged, and None for anything else.

    >>> number(2.5), number("2.5"), number(float("nan")), number(True)
    (2.5, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def text(value: Any) -> str:
    """Return a text unchanged, and an empty one for anything else; surrogates have no place in UTF-8."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def as_list(value: Any) -> list[Any]:
    """Return a list unchanged, and an empty one for anything else."""
    return value if isinstance(value, list) else []


def texts(value: Any) -> list[str]:
    """Return the entries of a list as texts; an empty list for anything else."""
    return [text(one) for one in as_list(value)]


def mapping(value: Any) -> dict[str, Any]:
    """Return a dictionary unchanged, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def numbers(value: Any, most: int) -> list[float | int | None]:
    """Return the first entries of a list as finite numbers or None; an empty list for anything else.

    >>> numbers([1, "a", 2.5, 4], 3), numbers("abc", 3)
    ([1, None, 2.5], [])
    """
    return [number(one) for one in as_list(value)[:most]]


def read_section(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the data of a section for the page; None if absent. Raise ValueError for a damaged file."""
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
        raise ValueError(f"{path} is not a section of a report")
    return CLEAN[name](tree)


def clean_summary(tree: dict[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a summary."""
    names = texts(tree.get("names"))[:MOST]
    columns = [
        {"name": text(name), "values": values}
        for name, found in mapping(tree.get("columns")).items()
        if len(values := numbers(found, MOST)) == len(names)
    ]
    return {
        "title": text(tree.get("title")),
        "formula": text(tree.get("formula")),
        "facts": [texts(fact) for fact in as_list(tree.get("facts")) if isinstance(fact, list) and len(fact) == 2],
        "notes": texts(tree.get("notes")),
        "level": number(tree.get("level")),
        "refused": tree.get("refused") is True,
        "names": names,
        "columns": columns,
        "of": number(tree.get("of")) or len(names),
        "sites": [
            [text(site[0]), number(site[1]), number(site[2])]
            for site in as_list(tree.get("sites"))[:MOST_SITES]
            if isinstance(site, list) and len(site) == 3
        ],
    }


def clean_heterogeneity(tree: dict[str, Any]) -> dict[str, Any]:
    """Return what the page shows of coefficients at several sites."""
    level = number(tree.get("level"))
    found = [_coefficient(mapping(one)) for one in as_list(tree.get("coefficients"))[:MOST]]
    return {
        "level": 0.95 if level is None else level,
        "exponentiate": tree.get("exponentiate") is True,
        "coefficients": found,
        "of": number(tree.get("of")) or len(found),
    }


def _coefficient(one: dict[str, Any]) -> dict[str, Any]:
    sites = [
        [text(site[0]), *numbers(site[1:], 4)]
        for site in as_list(one.get("sites"))[:MOST_SITES]
        if isinstance(site, list) and len(site) == 5
    ]
    return {
        "name": text(one.get("name")),
        **{key: number(one.get(key)) for key in ("q", "df", "p", "i_squared", "tau_squared")},
        "sites": sites,
        "sites_in_all": number(one.get("sites_in_all")) or len(sites),
        **{key: numbers(one.get(key), 3) for key in ("fixed", "random", "prediction")},
    }


def clean_path(tree: dict[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a path."""
    alphas = numbers(tree.get("alphas"), MOST)
    pairs = zip(as_list(tree.get("names"))[:MOST_CURVES], as_list(tree.get("values")), strict=False)
    nonzero = numbers(tree.get("nonzero"), MOST)
    return {
        "alphas": alphas,
        "lines": [
            {"name": text(name), "values": values}
            for name, found in pairs
            if len(values := numbers(found, MOST)) == len(alphas)
        ],
        "nonzero": nonzero if len(nonzero) == len(alphas) else [],
        **{key: number(tree.get(key)) for key in ("of", "weights", "chosen", "rounds", "bits_up", "bits_down")},
    }


def clean_cross_validation(tree: dict[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a cross-validation."""
    curves = [_curve(mapping(one)) for one in as_list(tree.get("curves"))[:MOST_CURVES]]
    return {
        "scoring": text(tree.get("scoring")) or "score",
        "greater_is_better": tree.get("greater_is_better") is True,
        "rule": text(tree.get("rule")),
        **{key: number(tree.get(key)) for key in ("folds", "of", "alpha")},
        "curves": [curve for curve in curves if curve is not None],
    }


def _curve(one: dict[str, Any]) -> dict[str, Any] | None:
    columns = {key: numbers(one.get(key), MOST) for key in ("alphas", "mean", "error")}
    if len({len(column) for column in columns.values()}) != 1:
        return None
    return {
        "name": text(one.get("name")),
        "chosen": one.get("chosen") is True,
        **columns,
        **{key: number(one.get(key)) for key in ("alpha_min", "alpha_1se")},
    }


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
        "calibration": _points(calibration, ("predicted", "observed", "lower", "upper")),
        "notes": texts(tree.get("notes")),
    }


def _measures(found: Any) -> list[dict[str, Any]]:
    return [
        {"name": text(name), **{key: number(mapping(one).get(key)) for key in ("value", "lower", "upper", "bound")}}
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
        "notes": texts(tree.get("notes")),
    }


def _columns(found: Any, count: int) -> dict[str, Any]:
    """Return the values of each measure, after each of the rounds."""
    columns = {text(name): numbers(one, MOST) for name, one in mapping(found).items()}
    return {name: column for name, column in columns.items() if len(column) == count}


#: What the page shows of each section.
CLEAN: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "summary": clean_summary, "heterogeneity": clean_heterogeneity, "path": clean_path,
    "cross_validation": clean_cross_validation, "evaluation": clean_evaluation,
    "learning_curve": clean_learning_curve,
}  # fmt: skip
