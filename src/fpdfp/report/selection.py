"""The path of a penalty weight, and the curves of a cross-validation, as the page shows them."""

from __future__ import annotations

from typing import Any

from fpdfp.report.plain import as_list, mapping, number, numbers, text

#: So many weights, and curves, are drawn at most.
MOST_WEIGHTS, MOST_CURVES = 400, 100


def clean_path(tree: dict[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a path."""
    alphas = numbers(tree.get("alphas"), MOST_WEIGHTS)
    pairs = zip(as_list(tree.get("names"))[:MOST_CURVES], as_list(tree.get("values")), strict=False)
    nonzero = numbers(tree.get("nonzero"), MOST_WEIGHTS)
    return {
        "alphas": alphas,
        "lines": [
            {"name": text(name), "values": values}
            for name, found in pairs
            if len(values := numbers(found, MOST_WEIGHTS)) == len(alphas)
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
    columns = {key: numbers(one.get(key), MOST_WEIGHTS) for key in ("alphas", "mean", "error")}
    if len({len(column) for column in columns.values()}) != 1:
        return None
    return {
        "name": text(one.get("name")),
        "chosen": one.get("chosen") is True,
        **columns,
        **{key: number(one.get(key)) for key in ("alpha_min", "alpha_1se")},
    }
