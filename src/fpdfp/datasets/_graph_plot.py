"""A picture of a graph of features and of the coefficients on it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.datasets.graph import FeatureGraph

#: Up to so many features have their names written beside them.
NAMED = 80


def plot(
    graph: FeatureGraph,
    coefficients: Any = None,
    names: Sequence[str] | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Any:
    """Draw a graph of features on a circle, with linked features near each other.

    Lines are blue between positively linked features and red between negatively linked ones. Dots are green for
    positive coefficients, purple for negative ones and white for zero. With more than 80 features, names are omitted.

    Parameters
    ----------
    graph
        The graph.
    coefficients
        A number for each feature: the area of its dot, and its sign the colour.
    names
        The features' names; numbers by default.
    path
        A file for the picture, whose ending sets the format; None saves nothing.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Examples
    --------
    >>> from fpdfp.datasets import as_graph
    >>> figure = plot(as_graph([(0, 1), (1, 2)], 3), coefficients=[1.0, -0.5, 0.0])
    >>> len(figure.axes[0].lines)
    2
    """
    from matplotlib.figure import Figure

    if not isinstance(graph, FeatureGraph):
        raise TypeError(f"graph must be a FeatureGraph, got {_checks.kind(graph)}; as_graph makes one")
    count = graph.n_features
    values = None
    if coefficients is not None:
        values = _checks.float_array("coefficients", coefficients, shape=(count,), dtype=np.float64)
    if names is not None and len(names) != count:
        raise ValueError(f"names must have one entry for each of the {count} features, got {len(names)}")
    texts = [str(i) for i in range(count)] if names is None else [str(name) for name in names]
    angle = np.empty(count)
    angle[_order(graph)] = np.pi / 2 - 2 * np.pi * np.arange(count) / count
    places = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    figure = Figure(figsize=(7.0, 7.0), layout="constrained")
    axes = figure.add_subplot()
    _draw_edges(axes, graph, places)
    _draw_features(axes, places, values)
    if count <= NAMED:
        _write_names(axes, angle, texts)
    axes.set(xlim=(-1.75, 1.75), ylim=(-1.75, 1.75), aspect="equal")
    axes.axis("off")
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _order(graph: FeatureGraph) -> Array:
    """An order in which linked features are near each other: reverse Cuthill and McKee."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    order: Array = np.asarray(reverse_cuthill_mckee(abs(graph.weights).tocsr(), symmetric_mode=True))
    return order


def _draw_edges(axes: Any, graph: FeatureGraph, places: Array) -> None:
    """Lines as wide as the weights, those of features that move together in another colour than the others."""
    upper, together = graph.signed_edges()
    size = abs(upper.data) / max(float(abs(upper.data).max(initial=0.0)), 1e-300)
    for i, j, width, sign in zip(upper.row, upper.col, size, together, strict=True):
        colour = "#4477aa" if sign > 0 else "#cc6677"
        axes.plot(*places[[i, j]].T, color=colour, linewidth=0.4 + 2.6 * width, alpha=0.25 + 0.6 * width, zorder=1)


def _draw_features(axes: Any, places: Array, values: Array | None) -> None:
    if values is None:
        axes.scatter(*places.T, s=40, color="black", zorder=2)
        return
    area = 30 + 370 * abs(values) / max(float(abs(values).max(initial=0.0)), 1e-300)
    zero = abs(values) <= 1e-6 * float(abs(values).max(initial=0.0))
    colours = np.where(zero, "white", np.where(values > 0, "#228833", "#aa3377"))
    axes.scatter(
        *places.T, s=np.where(zero, 30, area), c=colours.tolist(), edgecolors="black", linewidths=0.6, zorder=2
    )


def _write_names(axes: Any, angle: Array, texts: list[str]) -> None:
    for at, text in zip(angle, texts, strict=True):
        left = np.cos(at) < 0
        turn = np.degrees(at) + (180 if left else 0)
        axes.text(
            1.1 * np.cos(at), 1.1 * np.sin(at), text, rotation=turn, rotation_mode="anchor",
            ha="right" if left else "left", va="center", fontsize=8,
        )  # fmt: skip
