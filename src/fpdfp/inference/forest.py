"""A forest plot: the coefficient of each site with its interval, and what they are together."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from fpdfp import _checks
from fpdfp._plotting import BLUE, DARK, GREY, new_axes, save
from fpdfp.errors import ArgumentTypeError
from fpdfp.inference.heterogeneity import Heterogeneity


def forest_plot(found: Heterogeneity, path: str | os.PathLike[str] | None = None) -> Any:
    """Draw the estimates of sites as squares, larger for those that weigh more, and pooled ones as diamonds.

    Parameters
    ----------
    found
        The estimates. Ratios are drawn on a logarithmic axis.
    path
        A file for the picture, whose ending sets the format; None saves nothing.

    Returns
    -------
    matplotlib.figure.Figure
        The picture.

    Examples
    --------
    >>> figure = forest_plot(Heterogeneity([0.1, 0.5, 0.3], [0.1, 0.15, 0.08], ["east", "north", "south"], "dose"))
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['east', 'north', 'south', 'fixed effect', 'random effects']
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if not isinstance(found, Heterogeneity):
        raise ArgumentTypeError("found", f"must be a Heterogeneity, got {_checks.kind(found)}")
    rows = [
        Row(name, estimate, lower, upper, None if math.isnan(weight) else 20.0 + 180.0 * weight)
        for name, estimate, lower, upper, weight in found._rows()
    ]
    axes = draw_forest(rows)
    if found.exponentiate:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.axvline(1.0 if found.exponentiate else 0.0, color=GREY, linewidth=0.8)
    axes.axhline(len(found.sites) - 0.5, color="#C0C0C0", linewidth=0.6)
    axes.set_xlabel(f"exp({found.name})" if found.exponentiate else found.name)
    axes.set_title("\n".join([found.words(), *([found.note] if found.note else [])]), fontsize="small", loc="left")
    return save(axes.figure, path)


class Row(NamedTuple):
    """A row of a forest plot: a square of this size for a site, a diamond where the size is None."""

    name: str
    estimate: float
    lower: float
    upper: float
    size: float | None


def draw_forest(rows: Sequence[Row]) -> Any:
    """Return axes with names on the left and numbers on the right."""
    axes = new_axes(7.0, 1.4 + 0.32 * len(rows), hidden=["top", "right", "left"])
    for place, (_, estimate, lower, upper, size) in enumerate(rows):
        if size is None:
            axes.fill([lower, estimate, upper, estimate], [place, place - 0.25, place, place + 0.25], color=DARK)
            continue
        axes.plot([lower, upper], [place, place], color=BLUE, linewidth=1.2)
        axes.scatter([estimate], [place], s=size, marker="s", color=BLUE, zorder=3)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(rows)), [f"{row.estimate:.3g} ({row.lower:.3g} to {row.upper:.3g})" for row in rows])
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)
    return axes


def forest_svg(found: Heterogeneity) -> str:
    """Return the forest plot as text in SVG, to be put into a page; the same plot is always the same text.

    >>> forest_svg(Heterogeneity([0.1, 0.5], [0.1, 0.15])).startswith("<svg")
    True
    """
    import io

    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.hashsalt": "forest", "svg.fonttype": "none"}):
        forest_plot(found).savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    whole = text.getvalue()
    return whole[whole.index("<svg") :]
