"""The figures of the second experiment: curves, and slices with their errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.experiments.cases import Case
from fpdfp.experiments.ct_lines import Line, Lines
from fpdfp.experiments.ct_runs import FIXED_LEVELS, LEVELS, PARTICIPATION, PER_ROUND, our_cases, short
from fpdfp.experiments.figures import COLOURS, SETTINGS, band, bits_and_rounds, figure_of, finish, move_legend, save

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
    levels, clients = (
        (by_levels, names(by_levels), f"n = {PER_ROUND}"),
        (by_clients, names(by_clients), f"s = {FIXED_LEVELS}"),
    )
    with rc_context(SETTINGS):
        curves = {
            "levels": against_rounds(*levels, ours, qualities, lowest),
            "participation": against_rounds(*clients, ours, qualities, lowest),
            "bits": bits_and_rounds(levels, clients, unit="Gbit", show=mean),
            "against-bits": against_bits([*by_levels, *by_clients], ours, qualities, lowest),
        }
        slices = {
            "slices-levels": pictures([*by_levels, *ours], truth),
            "slices-participation": pictures(by_clients, truth),
        }
        save(curves, folder, ("svg", "png"))
        save(slices, folder, ("png",))
    return [*curves, *slices]


def names(lines: Sequence[Line]) -> Callable[[Line], str]:
    """Return what tells a line apart from others."""
    return lambda line: short(line.case, [one.case for one in lines])


def mean(axes: Any, x: Array, values: Array, label: str, colour: str, scale: float) -> None:
    """Draw the mean over seeds."""
    axes.plot(x, values.mean(axis=0) / scale, color=colour, label=label, linewidth=1.4)


def against_rounds(
    lines: Sequence[Line], name: Callable[[Line], str], title: str, ours: Sequence[Line],
    qualities: Mapping[str, str], lowest: float,
) -> Any:  # fmt: skip
    """Objective and PSNR against rounds."""
    figure, (objective, *others) = figure_of(1 + len(qualities), width=4.2)
    theirs = [(one, f"FPDFP, {name(one)}", colour, "-") for one, colour in zip(lines, COLOURS, strict=False)]
    mine = [(one, one.case.label, "black", style) for one, style in zip(ours, ("-", "--"), strict=False)]
    for one, *look in theirs + mine:
        band(objective, one.rounds[1:], excess(one, lowest), *look)
        for axes, column in zip(others, qualities.values(), strict=True):
            band(axes, one.rounds[1:], getattr(one, column)[:, 1:], *look)
    objective.set(xscale="log", yscale="log", ylabel="(F(x) − F_low) / F_low", title=f"{title}: objective")
    for axes, quality in zip(others, qualities, strict=True):
        axes.set(xscale="log", ylabel="dB", title=quality)
    finish((objective, *others), "round")
    return figure


def excess(line: Line, lowest: float) -> Array:
    """How far objectives are above the lowest, relative to it, from the first evaluated round on."""
    return np.maximum(line.objective[:, 1:] / lowest - 1.0, FLOOR)


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
        sent = one.bits_up.mean(axis=0)[1:] + one.once_up
        band(objective, sent, excess(one, lowest), name, colour, style)
        band(quality, sent, getattr(one, column)[:, 1:], name, colour, style)
    objective.set(xscale="log", yscale="log", ylabel="(F(x) − F_low) / F_low")
    quality.set(xscale="log", ylabel=f"{title} (dB)")
    finish((objective, quality), "bits sent by clients")
    move_legend(objective, quality)
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
