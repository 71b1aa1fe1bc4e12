"""The figures of the first experiment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.experiments.cases import Case, named
from fpdfp.experiments.claims import EARLY, clients_of, levels_of
from fpdfp.experiments.graph_guided import AUTOMATIC, FIXED_LEVELS, GAMMAS, LEVELS, SWEPT, Findings, Line, Sweep, Task

#: Text in SVG files stays text, and the same picture is the same file.
SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "fpdfp", "font.size": 9}
#: Errors below this are within the certificate of the optimum.
FLOOR = 1e-9
COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#ccbb44")


def draw(found: Findings, folder: Path) -> list[str]:
    """Draw all figures into a folder, as PNG and SVG; return their names."""
    from matplotlib import rc_context

    task, lines = found.task, found.lines
    by_levels = [lines[Case(task.per_round, levels)] for levels in LEVELS]
    by_clients = [lines[Case(n, FIXED_LEVELS)] for n in task.participation]
    automatic = [one for one in lines.values() if one.case.method == AUTOMATIC]
    with rc_context(SETTINGS):
        figures = {
            "levels": training_and_test(by_levels, levels_of, f"{task.name}, n = {task.per_round}"),
            "participation": training_and_test(by_clients, clients_of, f"{task.name}, s = {FIXED_LEVELS}"),
            "first-rounds": first_rounds(by_levels, by_clients, task),
        }
        if found.sweep.errors:
            figures["steps"] = steps_and_levels(found.sweep, task)
        figures["bits"] = bits_and_rounds(by_levels, by_clients, task)
        figures["against-bits"] = against_bits(by_levels, automatic, task)
        for name, figure in figures.items():
            figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    return list(figures)


def figure_of(columns: int, width: float = 3.7) -> tuple[Any, Any]:
    """A figure with panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, 3.4), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(1, columns))


def band(axes: Any, x: Array, values: Array, label: str, colour: str, style: str = "-") -> None:
    """Draw the median over seeds, and the range of all."""
    axes.plot(x, np.median(values, axis=0), style, color=colour, label=label, linewidth=1.4)
    axes.fill_between(x, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2, linewidth=0)


def training_and_test(lines: Sequence[Line], name: Any, title: str) -> Any:
    """The relative error of the training loss, the test loss and the test accuracy against rounds."""
    figure, (training, loss, accuracy) = figure_of(3)
    for line, colour in zip(lines, COLOURS, strict=False):
        band(training, line.rounds, line.error, name(line), colour)
        band(loss, line.rounds[1:], line.test_loss[:, 1:], name(line), colour)
        band(accuracy, line.rounds[1:], 100 * line.accuracy[:, 1:], name(line), colour)
    training.set(yscale="log", ylabel="(F(x) − F*) / F*", title=f"{title}: training")
    loss.set(yscale="log", xscale="log", ylabel="test loss", title="test loss")
    accuracy.set(xscale="log", ylabel="accuracy (%)", title="test accuracy")
    finish((training, loss, accuracy), "round")
    return figure


def first_rounds(by_levels: Sequence[Line], by_clients: Sequence[Line], task: Task) -> Any:
    """The relative error at first, against rounds and against bits, for levels and for participation."""
    figure, panels = figure_of(4, width=3.2)
    for (rounds, bits), lines, name, title in (
        (panels[:2], by_levels, levels_of, f"{task.name}, n = {task.per_round}"),
        (panels[2:], by_clients, clients_of, f"{task.name}, s = {FIXED_LEVELS}"),
    ):
        for line, colour in zip(lines, COLOURS, strict=False):
            at = (line.rounds > 0) & (line.rounds <= 2 * EARLY[-1])
            band(rounds, line.rounds[at], line.error[:, at], name(line), colour)
            band(bits, np.median(line.bits_up, axis=0)[at], line.error[:, at], name(line), colour)
        for axes, label in ((rounds, "round"), (bits, "bits sent by clients")):
            axes.set(xscale="log", yscale="log", ylabel="(F(x) − F*) / F*", title=title)
            finish((axes,), label)
    return figure


def steps_and_levels(sweep: Sweep, task: Task) -> Any:
    """The relative error at the end against γ0, for numbers of levels; steps at which a seed diverges are left out."""
    figure, (axes,) = figure_of(1, width=5.5)
    for levels, colour in zip(SWEPT, ("#222222", "#66ccee", *COLOURS), strict=False):
        kept = [gamma for gamma in GAMMAS if np.isfinite(sweep.errors[levels, gamma]).all()]
        if kept:
            errors = np.stack([sweep.errors[levels, gamma] for gamma in kept], axis=1)
            band(axes, np.array(kept), errors, named(levels), colour, "o-")
    axes.set(
        xscale="log", yscale="log", ylabel="(F(x) − F*) / F* at the end", title=f"{task.name}, n = {task.per_round}"
    )
    axes.set_xticks(GAMMAS, [f"{gamma:g}" for gamma in GAMMAS], minor=False)
    axes.minorticks_off()
    finish((axes,), "γ0 in units of 1/L")
    return figure


def bits_and_rounds(by_levels: Sequence[Line], by_clients: Sequence[Line], task: Task) -> Any:
    """Bits that clients send against rounds."""
    figure, (levels, clients) = figure_of(2)
    for axes, lines, name in ((levels, by_levels, levels_of), (clients, by_clients, clients_of)):
        for line, colour in zip(lines, COLOURS, strict=False):
            band(axes, line.rounds, line.bits_up / 1e6, name(line), colour)
        axes.set(ylabel="Mbit sent by clients")
    levels.set(title=f"{task.name}, n = {task.per_round}")
    clients.set(title=f"{task.name}, s = {FIXED_LEVELS}")
    finish((levels, clients), "round")
    return figure


def against_bits(by_levels: Sequence[Line], automatic: Sequence[Line], task: Task) -> Any:
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
        axes.set(xscale="log", yscale="log", ylabel="(F(x) − F*) / F*")
    rounds.set(title=f"{task.name}, FPDFP with n = {task.per_round}")
    bits.set(title="against bits")
    finish((rounds, bits), "round")
    bits.set_xlabel("bits sent by clients")
    rounds.get_legend().remove()
    bits.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return figure


def finish(panels: Sequence[Any], xlabel: str) -> None:
    """Grids, legends and the label of x."""
    for axes in panels:
        axes.set_xlabel(xlabel)
        axes.grid(True, which="major", alpha=0.3)
        axes.legend(fontsize=7)
