"""A forest plot: the coefficient of each site with its interval, and what they are together."""

from __future__ import annotations

import math
import os
from typing import Any

from fpdfp import _checks
from fpdfp.errors import ArgumentTypeError
from fpdfp.inference.heterogeneity import Heterogeneity

BLUE, DARK = "#0072B2", "#1B3A4B"


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
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if not isinstance(found, Heterogeneity):
        raise ArgumentTypeError("found", f"must be a Heterogeneity, got {_checks.kind(found)}")
    rows = found._rows()
    figure = Figure(figsize=(7.0, 1.4 + 0.32 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    if found.exponentiate:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    texts = []
    for place, (_, estimate, lower, upper, weight) in enumerate(rows):
        texts.append(f"{estimate:.3g} ({lower:.3g} to {upper:.3g})")
        if math.isnan(weight):
            axes.fill([lower, estimate, upper, estimate], [place, place - 0.25, place, place + 0.25], color=DARK)
            continue
        axes.plot([lower, upper], [place, place], color=BLUE, linewidth=1.2)
        axes.scatter([estimate], [place], s=20.0 + 180.0 * weight, marker="s", color=BLUE, zorder=3)
    axes.axvline(1.0 if found.exponentiate else 0.0, color="#808080", linewidth=0.8)
    axes.axhline(len(found.sites) - 0.5, color="#C0C0C0", linewidth=0.6)
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel(f"exp({found.name})" if found.exponentiate else found.name)
    axes.set_title(found.words(), fontsize="small", loc="left")
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(rows)), texts)
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


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
