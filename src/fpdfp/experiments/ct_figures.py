"""The figures of the second experiment: curves, and slices with their errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.ct.quality import psnr
from fpdfp.experiments.ct_cases import FIXED_LEVELS, LEVELS, OURS, PARTICIPATION, PER_ROUND, label, short
from fpdfp.experiments.ct_mean_runs import Line
from fpdfp.experiments.figures import COLOURS, SETTINGS, figure_of, finish
from fpdfp.experiments.runs import Case

Lines = Mapping[Case, Line]
#: An objective this near to the minimum, relative to it, is within the accuracy of that.
FLOOR = 1e-5
#: Errors are shown on a scale from minus this to this.
ERROR = 0.1


def draw(lines: Lines, truth: Array, best: dict[str, float], folder: Path) -> list[str]:
    """Draw all figures into a folder, as PNG and, the curves, as SVG; return their names."""
    from matplotlib import rc_context

    by_levels = [lines[Case(PER_ROUND, levels)] for levels in LEVELS]
    by_clients = [lines[Case(n, FIXED_LEVELS)] for n in PARTICIPATION]
    ours = [one for one in lines.values() if one.case.method == OURS]
    with rc_context(SETTINGS):
        curves = {
            "levels": against_rounds(by_levels, ours, best, f"n = {PER_ROUND}"),
            "participation": against_rounds(by_clients, ours, best, f"s = {FIXED_LEVELS}"),
            "bits": bits_and_rounds(by_levels, by_clients),
            "against-bits": against_bits([*by_levels, *by_clients], ours, best),
        }
        slices = {
            "slices-levels": pictures([*by_levels, *ours], truth),
            "slices-participation": pictures(by_clients, truth),
        }
        for name, figure in curves.items():
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        for name, figure in {**curves, **slices}.items():
            figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})
    return [*curves, *slices]


def against_rounds(lines: Sequence[Line], ours: Sequence[Line], best: dict[str, float], title: str) -> Any:
    """Objective and PSNR against rounds."""
    figure, (objective, quality) = figure_of(2, width=4.6)
    excess = excess_over(best)
    for line, colour in zip(lines, COLOURS, strict=False):
        name = f"FPDFP, {short(line.case, [one.case for one in lines])}"
        objective.plot(line.rounds[1:], excess(line), color=colour, label=name, linewidth=1.4)
        quality.plot(line.rounds[1:], line.psnr[1:], color=colour, label=name, linewidth=1.4)
    for line, style in zip(ours, ("-", "--"), strict=True):
        objective.plot(line.rounds[1:], excess(line), style, color="black", label=label(line.case), linewidth=1.4)
        quality.plot(line.rounds[1:], line.psnr[1:], style, color="black", label=label(line.case), linewidth=1.4)
    quality.axhline(best["psnr"], color="#888888", linewidth=0.8, label="minimiser")
    objective.set(xscale="log", yscale="log", ylabel="(F(x) − F*) / F*", title=f"{title}: objective")
    quality.set(xscale="log", ylabel="PSNR (dB)", title=f"{title}: PSNR")
    finish((objective, quality), "round")
    return figure


def excess_over(best: dict[str, float]) -> Callable[[Line], Array]:
    """How far objectives are above the minimum, relative to it, from the first evaluated round on."""
    return lambda line: np.maximum(line.objective[1:] / best["objective"] - 1.0, FLOOR)


def bits_and_rounds(by_levels: Sequence[Line], by_clients: Sequence[Line]) -> Any:
    """Bits that clients send against rounds."""
    figure, panels = figure_of(2)
    for axes, lines in zip(panels, (by_levels, by_clients), strict=True):
        for line, colour in zip(lines, COLOURS, strict=False):
            axes.plot(
                line.rounds,
                line.bits_up / 1e9,
                color=colour,
                label=short(line.case, [one.case for one in lines]),
                linewidth=1.4,
            )
        axes.set(ylabel="Gbit sent by clients")
    panels[0].set(title=f"n = {PER_ROUND}")
    panels[1].set(title=f"s = {FIXED_LEVELS}")
    finish(panels, "round")
    return figure


def against_bits(lines: Sequence[Line], ours: Sequence[Line], best: dict[str, float]) -> Any:
    """Objective and PSNR of the paper's method and of ours against bits."""
    figure, (objective, quality) = figure_of(2, width=5.0)
    excess = excess_over(best)
    colours = (*COLOURS, "#66ccee", "#bbbbbb", "#994455")
    for one, colour in zip({line.case: line for line in lines}.values(), colours, strict=True):
        for axes, values in ((objective, excess(one)), (quality, one.psnr[1:])):
            axes.plot(one.bits_up[1:], values, color=colour, label=label(one.case), linewidth=1.4)
    for one, style in zip(ours, ("-", "--"), strict=True):
        for axes, values in ((objective, excess(one)), (quality, one.psnr[1:])):
            sent, name = one.bits_up[1:] + one.once_up, f"{label(one.case)}, with what is sent once"
            axes.plot(sent, values, style, color="black", label=name, linewidth=1.4)
    objective.set(xscale="log", yscale="log", ylabel="(F(x) − F*) / F*")
    quality.set(xscale="log", ylabel="PSNR (dB)")
    finish((objective, quality), "bits sent by clients")
    objective.get_legend().remove()
    quality.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return figure


def pictures(lines: Sequence[Line], truth: Array) -> Any:
    """The slice of every case with its PSNR, and below it its error."""
    from matplotlib.figure import Figure

    columns = len(lines) + 1
    figure = Figure(figsize=(1.7 * columns, 3.9), layout="constrained")
    panels = figure.subplots(2, columns)
    show(panels[0, 0], truth, "truth")
    panels[1, 0].axis("off")
    for line, (above, below) in zip(lines, panels.T[1:], strict=True):
        show(
            above,
            line.picture,
            f"{label(line.case).removeprefix('FPDFP, ')}\n{psnr(line.picture, truth, peak=1.0):.2f} dB",
        )
        image = show(below, line.picture - truth, "error", cmap="RdBu_r", vmin=-ERROR, vmax=ERROR)
    figure.colorbar(image, ax=panels[1, :].tolist(), shrink=0.8)
    return figure


def show(axes: Any, picture: Array, title: str, cmap: str = "gray", vmin: float = 0.0, vmax: float = 1.0) -> Any:
    """Draw a slice with x to the right and y upwards."""
    axes.set_title(title, fontsize=7)
    axes.axis("off")
    return axes.imshow(np.asarray(picture).T, cmap=cmap, vmin=vmin, vmax=vmax, origin="lower")
