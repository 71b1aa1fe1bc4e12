"""Axes for what depends on a penalty weight."""

from __future__ import annotations

from typing import Any


def make_axes(ax: Any, name: str) -> Any:
    """Return axes of Matplotlib, new ones if there are none, with weights from the largest to the smallest."""
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(7.0, 4.5), layout="constrained").add_subplot()
    ax.set_xscale("log")
    ax.set_xlabel("penalty weight α")
    ax.set_ylabel(name)
    return ax


def finish_axes(ax: Any) -> Any:
    """Turn the axis of weights round, and name what has a name."""
    ax.invert_xaxis()
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize="small", frameon=False)
    return ax
