"""The figures of the second experiment: curves, and slices with their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.experiments.cases import Case
from fpdfp.experiments.ct_lines import Line, Lines
from fpdfp.experiments.ct_runs import FIXED_LEVELS, LEVELS, PARTICIPATION, PER_ROUND, our_cases, short
from fpdfp.experiments.figures import COLOURS, SETTINGS, band, figure_of, finish

#: An objective this near to the lowest, relative to it, is within the accuracy of that.
FLOOR = 1e-6
#: Errors are shown on a scale of so many times the largest of their root mean squares, with one digit.
SPREAD = 4.0


#: What the figures of the printed model show of images, by title.
QUALITIES = {"PSNR of the middle slice": "slice_psnr", "PSNR of the volume": "psnr"}


def draw(
    lines: Lines, truth: Array, lowest: float, folder: Path, qualities: Mapping[str, str] = QUALITIES
) -> list[str]:
    """Draw all figures into a folder, as PNG and, the curves, as SVG; return their names.

    ``lowest`` is the objective that others are compared with, ``qualities`` what is shown of images: columns by title.
    """
    from matplotlib import rc_context

    by_levels = [lines[case] for case in (Case(PER_ROUND, levels) for levels in LEVELS) if case in lines]
    by_clients = [lines[case] for case in (Case(n, FIXED_LEVELS) for n in PARTICIPATION) if case in lines]
    ours = [lines[case] for case in our_cases() if case in lines]
    with rc_context(SETTINGS):
        curves = {
            "levels": against_rounds(by_levels, ours, qualities, lowest, f"n = {PER_ROUND}"),
            "participation": against_rounds(by_clients, ours, qualities, lowest, f"s = {FIXED_LEVELS}"),
            "bits": bits_and_rounds(by_levels, by_clients),
            "against-bits": against_bits([*by_levels, *by_clients], ours, qualities, lowest),
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


def against_rounds(
    lines: Sequence[Line], ours: Sequence[Line], qualities: Mapping[str, str], lowest: float, title: str
) -> Any:
    """Objective and PSNR against rounds."""
    figure, (objective, *others) = figure_of(1 + len(qualities), width=4.2)
    names = {one.case: f"FPDFP, {short(one.case, [each.case for each in lines])}" for one in lines}
    styles = [*((one, colour, "-") for one, colour in zip(lines, COLOURS, strict=False)),
              *((one, "black", style) for one, style in zip(ours, ("-", "--"), strict=False))]  # fmt: skip
    for one, colour, style in styles:
        name = names.get(one.case, one.case.label)
        band(objective, one.rounds[1:], excess(one, lowest), name, colour, style)
        for axes, column in zip(others, qualities.values(), strict=True):
            band(axes, one.rounds[1:], getattr(one, column)[:, 1:], name, colour, style)
    objective.set(xscale="log", yscale="log", ylabel="(F(x) − F_low) / F_low", title=f"{title}: objective")
    for axes, quality in zip(others, qualities, strict=True):
        axes.set(xscale="log", ylabel="dB", title=quality)
    finish((objective, *others), "round")
    return figure


def excess(line: Line, lowest: float) -> Array:
    """How far objectives are above the lowest, relative to it, from the first evaluated round on."""
    return np.maximum(line.objective[:, 1:] / lowest - 1.0, FLOOR)


def mean_bits(line: Line) -> Array:
    """The bits that clients have sent, the mean over seeds."""
    mean: Array = line.bits_up.mean(axis=0)
    return mean


def bits_and_rounds(by_levels: Sequence[Line], by_clients: Sequence[Line]) -> Any:
    """Bits that clients send against rounds."""
    figure, panels = figure_of(2)
    for axes, lines in zip(panels, (by_levels, by_clients), strict=True):
        for line, colour in zip(lines, COLOURS, strict=False):
            name = short(line.case, [one.case for one in lines])
            axes.plot(line.rounds, mean_bits(line) / 1e9, color=colour, label=name, linewidth=1.4)
        axes.set(ylabel="Gbit sent by clients")
    panels[0].set(title=f"n = {PER_ROUND}")
    panels[1].set(title=f"s = {FIXED_LEVELS}")
    finish(panels, "round")
    return figure


def against_bits(lines: Sequence[Line], ours: Sequence[Line], qualities: Mapping[str, str], lowest: float) -> Any:
    """Objective and PSNR of the paper's method and of ours against bits."""
    figure, (objective, quality) = figure_of(2, width=5.0)
    cases = {line.case: line for line in lines}.values()
    colours = (*COLOURS, "#66ccee", "#bbbbbb", "#994455")
    styles = [*((one, colour, "-", one.case.label) for one, colour in zip(cases, colours, strict=False)),
              *((one, "black", style, f"{one.case.label}, with what is sent once")
                for one, style in zip(ours, ("-", "--"), strict=False))]  # fmt: skip
    title, column = next(iter(qualities.items()))
    for one, colour, style, name in styles:
        sent = mean_bits(one)[1:] + one.once_up
        band(objective, sent, excess(one, lowest), name, colour, style)
        band(quality, sent, getattr(one, column)[:, 1:], name, colour, style)
    objective.set(xscale="log", yscale="log", ylabel="(F(x) − F_low) / F_low")
    quality.set(xscale="log", ylabel=f"{title} (dB)")
    finish((objective, quality), "bits sent by clients")
    objective.get_legend().remove()
    quality.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return figure


def pictures(lines: Sequence[Line], truth: Array) -> Any:
    """The slice of every case with its PSNR, and below it its error."""
    from matplotlib.figure import Figure

    columns = len(lines) + 1
    figure = Figure(figsize=(1.7 * columns, 3.9), layout="constrained")
    panels = figure.subplots(2, columns, squeeze=False)
    show(panels[0, 0], truth, "truth")
    panels[1, 0].axis("off")
    sizes = [float(np.sqrt(np.mean((line.picture - truth) ** 2))) for line in lines]
    most = float(f"{SPREAD * max(sizes, default=1.0):.0e}")
    for line, (above, below) in zip(lines, panels.T[1:], strict=True):
        title = f"{line.case.label.removeprefix('FPDFP, ')}\n{line.slice_psnr[0, -1]:.2f} dB"
        show(above, line.picture, title)
        image = show(below, line.picture - truth, "error", cmap="RdBu_r", vmin=-most, vmax=most)
        if line is lines[-1]:
            figure.colorbar(image, ax=panels[1, :].tolist(), shrink=0.8)
    return figure


def show(axes: Any, picture: Array, title: str, cmap: str = "gray", vmin: float = 0.0, vmax: float = 1.0) -> Any:
    """Draw a slice with x to the right and y upwards."""
    axes.set_title(title, fontsize=7)
    axes.axis("off")
    return axes.imshow(np.asarray(picture).T, cmap=cmap, vmin=vmin, vmax=vmax, origin="lower")
