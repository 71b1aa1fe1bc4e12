"""Figures of Matplotlib: axes of their own, the colours of all plots, and files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

BLUE, DARK, GREY = "#0072B2", "#1B3A4B", "#808080"


def new_axes(width: float = 7.0, height: float = 4.5, hidden: Sequence[str] = ()) -> Any:
    """Return the axes of a new figure of a size in inches, without some of their borders.

    >>> new_axes(3.0, 2.0, hidden=["top"]).figure.get_size_inches().tolist()
    [3.0, 2.0]
    """
    from matplotlib.figure import Figure

    axes = Figure(figsize=(width, height), layout="constrained").add_subplot()
    for side in hidden:
        axes.spines[side].set_visible(False)
    return axes


def save(figure: Any, path: str | os.PathLike[str] | None) -> Any:
    """Return the figure, written into a file whose ending sets the format; None saves nothing."""
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure
