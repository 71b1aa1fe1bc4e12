"""The figures of the first experiment, and what figures of all experiments share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.experiments import graph_guided as guided
from fpdfp.experiments.cases import Case, name_levels
from fpdfp.experiments.claims import EARLY, clients_of, levels_of
from fpdfp.experiments.graph_guided import Findings, Line, Sweep

#: Text in SVG files stays text, and the same picture is the same file.
SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "fpdfp", "font.size": 9}
#: Errors below this are within the certificate of the optimum.
FLOOR = 1e-9
COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#ccbb44")
ERROR = "(F(x) − F*) / F*"


def draw(found: Findings, folder: Path) -> list[str]:
    """Draw all figures into a folder, as PNG and SVG; return their names."""
    from matplotlib import rc_context

    task, lines = found.task, found.lines
    by_levels = [lines[Case(task.per_round, levels)] for levels in guided.LEVELS]
    by_clients = [lines[Case(n, guided.FIXED_LEVELS)] for n in task.participation]
    automatic = [one for one in lines.values() if one.case.method == guided.AUTOMATIC]
    levels = (by_levels, levels_of, f"{task.name}, n = {task.per_round}")
    clients = (by_clients, clients_of, f"{task.name}, s = {guided.FIXED_LEVELS}")
    with rc_context(SETTINGS):
        figures = {
            "levels": training_and_test(*levels),
            "participation": training_and_test(*clients),
            "first-rounds": first_rounds(levels, clients),
        }
        if found.sweep.errors:
            figures["steps"] = steps_and_levels(found.sweep, levels[2])
        figures["bits"] = bits_and_rounds(levels, clients)
        figures["against-bits"] = against_bits(by_levels, automatic, f"{task.name}, FPDFP with n = {task.per_round}")
        save(figures, folder)
    return list(figures)


def save(figures: Mapping[str, Any], folder: Path, kinds: Sequence[str] = ("png", "svg")) -> None:
    """Write figures as files of some kinds; the same figure makes the same file."""
    options: dict[str, Any] = {"png": {"dpi": 110, "metadata": {"Software": None}}, "svg": {"metadata": {"Date": None}}}
    for kind in kinds:
        for name, figure in figures.items():
            figure.savefig(folder / f"{name}.{kind}", **options[kind])


def figure_of(columns: int, width: float = 3.7) -> tuple[Any, Any]:
    """A figure with panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, 3.4), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(1, columns))


def band(axes: Any, x: Array, values: Array, label: str, colour: str, style: str = "-", *, scale: float = 1.0) -> None:
    """Draw the median over seeds, and the range of all."""
    values = values / scale
    axes.plot(x, np.median(values, axis=0), style, color=colour, label=label, linewidth=1.4)
    axes.fill_between(x, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2, linewidth=0)


#: Some lines, what each is called, and what all have in common.
Group = tuple[Sequence[Line], Callable[[Line], str], str]


def training_and_test(lines: Sequence[Line], name: Any, title: str) -> Any:
    """The relative error of the training loss, the test loss and the test accuracy against rounds."""
    figure, (training, loss, accuracy) = figure_of(3)
    for line, colour in zip(lines, COLOURS, strict=False):
        band(training, line.rounds, line.error, name(line), colour)
        band(loss, line.rounds[1:], line.test_loss[:, 1:], name(line), colour)
        band(accuracy, line.rounds[1:], 100 * line.accuracy[:, 1:], name(line), colour)
    training.set(yscale="log", ylabel=ERROR, title=f"{title}: training")
    loss.set(yscale="log", xscale="log", ylabel="test loss", title="test loss")
    accuracy.set(xscale="log", ylabel="accuracy (%)", title="test accuracy")
    finish((training, loss, accuracy), "round")
    return figure


def first_rounds(*groups: Group) -> Any:
    """The relative error at first, against rounds and against bits, for levels and for participation."""
    figure, panels = figure_of(4, width=3.2)
    for (rounds, bits), (lines, name, title) in zip((panels[:2], panels[2:]), groups, strict=True):
        for line, colour in zip(lines, COLOURS, strict=False):
            at = (line.rounds > 0) & (line.rounds <= 2 * EARLY[-1])
            band(rounds, line.rounds[at], line.error[:, at], name(line), colour)
            band(bits, np.median(line.bits_up, axis=0)[at], line.error[:, at], name(line), colour)
        for axes, label in ((rounds, "round"), (bits, "bits sent by clients")):
            axes.set(xscale="log", yscale="log", ylabel=ERROR, title=title)
            finish((axes,), label)
    return figure


def steps_and_levels(sweep: Sweep, title: str) -> Any:
    """The relative error at the end against γ0, for numbers of levels; steps at which a seed diverges are left out."""
    figure, (axes,) = figure_of(1, width=5.5)
    for levels, colour in zip(guided.SWEPT, ("#222222", "#66ccee", *COLOURS), strict=False):
        kept = [gamma for gamma in guided.GAMMAS if np.isfinite(sweep.errors[levels, gamma]).all()]
        if kept:
            errors = np.stack([sweep.errors[levels, gamma] for gamma in kept], axis=1)
            band(axes, np.array(kept), errors, name_levels(levels), colour, "o-")
    axes.set(xscale="log", yscale="log", ylabel=f"{ERROR} at the end", title=title)
    axes.set_xticks(guided.GAMMAS, [f"{gamma:g}" for gamma in guided.GAMMAS], minor=False)
    axes.minorticks_off()
    finish((axes,), "γ0 in units of 1/L")
    return figure


def bits_and_rounds(
    *groups: tuple[Sequence[Any], Callable[[Any], str], str], unit: str = "Mbit", show: Callable[..., None] = band
) -> Any:
    """Bits that clients send against rounds."""
    figure, panels = figure_of(len(groups))
    for axes, (lines, name, title) in zip(panels, groups, strict=True):
        for line, colour in zip(lines, COLOURS, strict=False):
            show(axes, line.rounds, line.bits_up, name(line), colour, scale={"Mbit": 1e6, "Gbit": 1e9}[unit])
        axes.set(ylabel=f"{unit} sent by clients", title=title)
    finish(panels, "round")
    return figure


def against_bits(by_levels: Sequence[Line], automatic: Sequence[Line], title: str) -> Any:
    """The relative error of the paper's method and of ours against rounds and bits."""
    figure, (rounds, bits) = figure_of(2, width=5.0)
    for line, colour in zip(by_levels, COLOURS, strict=False):
        band(rounds, line.rounds[1:], line.error[:, 1:], f"FPDFP, {levels_of(line)}", colour)
        band(bits, np.median(line.bits_up, axis=0)[1:], line.error[:, 1:], f"FPDFP, {levels_of(line)}", colour)
    for line, style in zip(automatic, ("-", "--"), strict=False):
        error, sent = np.maximum(line.error, FLOOR), np.median(line.bits_up, axis=0)[1:]
        band(rounds, line.rounds[1:], error[:, 1:], line.case.label, "black", style)
        band(bits, sent, error[:, 1:], f"{line.case.label}, rounds alone", "#888888", style)
        band(bits, sent + line.once_up, error[:, 1:], f"{line.case.label}, with what is sent once", "black", style)
    for axes in (rounds, bits):
        axes.set(xscale="log", yscale="log", ylabel=ERROR)
    rounds.set(title=title)
    bits.set(title="against bits")
    finish((rounds, bits), "round")
    bits.set_xlabel("bits sent by clients")
    move_legend(rounds, bits)
    return figure


def move_legend(left: Any, right: Any) -> None:
    """Show one legend, beside both panels."""
    left.get_legend().remove()
    right.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))


def finish(panels: Sequence[Any], xlabel: str) -> None:
    """Grids, legends and the label of x."""
    for axes in panels:
        axes.set_xlabel(xlabel)
        axes.grid(True, which="major", alpha=0.3)
        axes.legend(fontsize=7)
