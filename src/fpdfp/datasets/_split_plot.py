"""A picture of who holds which rows."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import IntArray
from fpdfp.errors import ArgumentError

#: Up to so many clients are named, with their sizes.
NAMED = 20
#: Up to so many clients have bars with gaps between them; with more, gaps would be thinner than a dot.
APART = 150
#: Up to so many labels have a colour each; of more texts, the most frequent ones do.
COLOURED = 10
#: Colours that most eyes tell apart, whatever their cones: those of Okabe and Ito, and three more for the last labels.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9",
    "#D55E00", "#F0E442", "#7F4F9E", "#8C6D46", "#1B3A4B",
)  # fmt: skip
GREY = "#A0A0A0"


class Layer(NamedTuple):
    """One colour of the bars: how many rows each client holds of a label, or of any where the name is None."""

    name: str | None
    counts: IntArray
    colour: str


def plot(clients: Any, y: Any = None, path: str | os.PathLike[str] | None = None) -> Any:
    """Draw how many rows each client holds, by label where labels are given.

    Parameters
    ----------
    clients
        Who holds each row: numbers or names.
    y
        The label of each row. Numbers with more than ten distinct values are taken as continuous, and only sizes are
        shown; of more than ten texts, the nine most frequent have colours of their own.
    path
        A file for the picture, whose ending sets the format; None saves nothing.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Examples
    --------
    >>> figure = plot(["A", "B", "B", "C"], y=[-1, 1, 1, -1])
    >>> figure.axes[0].get_xlabel()
    'client'
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    names, codes = _checks.labels("clients", clients)
    if codes.ndim != 1 or codes.size == 0:
        raise ValueError(f"clients must have one entry for each row, and at least one, got shape {codes.shape}")
    layers = _layers(codes, len(names), y)
    figure = Figure(figsize=(min(max(4.8, 1.6 + 0.5 * len(names)), 9.0), 3.8), layout="constrained")
    axes = figure.add_subplot()
    _draw(axes, layers, len(names))
    if len(names) <= NAMED:
        texts = [_short(name) for name in names]
        tilted = max(map(len, texts)) * len(texts) > 60
        axes.set_xticks(range(len(names)), texts, rotation=30 if tilted else 0, ha="right" if tilted else "center")
        axes.tick_params(axis="x", length=0)
        axes.set_xlabel("client")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10], integer=True))
        axes.set_xlabel(f"client ({len(names):,} in all)")
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_ylim(0, 1.08 * np.bincount(codes).max())
    axes.set_ylabel("rows")
    axes.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10], integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.spines[["top", "right"]].set_visible(False)
    if layers[0].name is not None:
        handles, texts = axes.get_legend_handles_labels()
        # in the order of the bars, the topmost colour first, and beside them, where it hides nothing
        figure.legend(handles[::-1], texts[::-1], title="label", loc="outside right upper", frameon=False)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _layers(codes: IntArray, n_clients: int, y: Any) -> list[Layer]:
    """Return what the bars are made of, from the bottom to the top."""
    sizes = Layer(None, np.bincount(codes, minlength=n_clients), COLOURS[0])
    if y is None:
        return [sizes]
    labels, numbers = _checks.labels("y", y)
    if numbers.shape != codes.shape:
        raise ArgumentError("y", f"must have one entry for each of the {len(codes)} rows, got shape {numbers.shape}")
    if len(labels) > COLOURED and labels.dtype.kind in "fiu":
        return [sizes]
    counts = np.bincount(numbers * n_clients + codes, minlength=len(labels) * n_clients).reshape(-1, n_clients)
    shown = np.arange(len(labels))
    if len(labels) > COLOURED:
        shown = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[: COLOURED - 1])
    layers = [Layer(_short(labels[i]), counts[i], colour) for i, colour in zip(shown, COLOURS, strict=False)]
    others = len(labels) - len(shown)
    if others:
        layers.append(Layer(f"{others} others", sizes.counts - counts[shown].sum(axis=0), GREY))
    return layers


def _draw(axes: Any, layers: list[Layer], n_clients: int) -> None:
    bottom = np.zeros(n_clients)
    for name, counts, colour in layers:
        if n_clients <= APART:
            width = 0.75 if n_clients <= NAMED else 0.85
            axes.bar(range(n_clients), counts, width, bottom=bottom, color=colour, label=name)
        else:
            edges = np.arange(n_clients + 1) - 0.5
            axes.stairs(bottom + counts, edges, baseline=bottom, fill=True, color=colour, label=name)
        bottom = bottom + counts
    if n_clients <= NAMED:
        small = 8 if n_clients <= 10 else 6
        for client, size in enumerate(bottom):
            place = {"xytext": (0, 2), "textcoords": "offset points", "ha": "center", "fontsize": small}
            axes.annotate(f"{size:,.0f}", (client, size), **place)


def _short(name: Any) -> str:
    """Write a name or a label in few letters: whole numbers without a point."""
    if isinstance(name, float | np.floating):
        return f"{name:g}".replace("-", "−")
    text = str(name)
    return text if len(text) <= 24 else text[:23] + "…"
