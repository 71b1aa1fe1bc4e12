"""What all experiments write: numbers in JSON, figures, and tables of the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reproduce.runs import Array, Line

#: Text in SVG files stays text, and the same picture is the same file.
SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "fpdfp", "font.size": 9}
KINDS: dict[str, Any] = {"png": {"dpi": 110, "metadata": {"Software": None}}, "svg": {"metadata": {"Date": None}}}
COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#ccbb44", "#66ccee", "#bbbbbb", "#994455")
#: Lines of our own methods.
OUR_LOOKS = (("black", "-"), ("black", "--"))


def format_bits(bits: float) -> str:
    """Write a number of bits with a unit.

    >>> format_bits(12_345_678)
    '12.3 Mbit'
    """
    power = max((power for power in range(5) if bits >= 1000**power), default=0)
    unit = ("bit", "kbit", "Mbit", "Gbit", "Tbit")[power]
    return f"{bits:.0f} {unit}" if not power else f"{bits / 1000**power:.3g} {unit}"


def publish(
    output: Path, summary: Mapping[str, Any], claims: Iterable[Mapping[str, str]], indent: int | None = 1
) -> None:
    """Write numbers into a folder, and print the verdicts."""
    from rich.console import Console

    numbers = json.dumps(summary, indent=indent, ensure_ascii=False)
    (output / "results.json").write_text(numbers + "\n", encoding="utf-8")
    for claim in claims:
        Console().print(f"[bold]{claim['verdict']}[/bold]: {claim['claim']}", highlight=False)
    Console().print(f"results and figures: {output}", highlight=False, soft_wrap=True)


def rows(cells: Iterable[Sequence[str]], header: Sequence[str] = ()) -> str:
    """The rows of a table, below a header if it is not in the template."""
    above = [header, ["---"] * len(header)] if header else []
    return "\n".join(f"| {' | '.join(line)} |" for line in [*above, *cells])


class Curve(NamedTuple):
    """A line of a panel: x, and values with a row for each seed."""

    x: Array
    values: Array
    label: str
    colour: str
    style: str = "-"


class Panel(NamedTuple):
    """A panel of a figure: lines through the centres over seeds, with ranges as bands; ``log`` names its log axes."""

    curves: Sequence[Curve]
    xlabel: str
    ylabel: str
    title: str = ""
    log: str = ""
    centre: Callable[..., Array] = np.median


def curves(
    lines: Sequence[Line], column: str, against: str = "round", floor: float = -np.inf, scale: float = 1.0
) -> list[Curve]:
    """Cases of FPDFP in colours and our own methods in black, against rounds or, with what is sent once, bits."""
    colours, ours, found = iter(COLOURS), iter(OUR_LOOKS), []
    theirs = [one.case for one in lines if one.case.method == "FPDFP"]
    for one in lines:
        colour, style = (next(colours), "-") if one.case in theirs else next(ours)
        at = one.rounds > 0
        x = one.rounds if against == "round" else np.median(one["bits_up"], axis=0) + one.once_up
        label = one.case.beside(*theirs) if one.case in theirs and against == "round" else one.case.label
        found.append(Curve(x[at], np.maximum(one[column][:, at], floor) / scale, label, colour, style))
    return found


def draw_cases(
    folder: Path, groups: Mapping[str, tuple[str, Sequence[Line]]], ours: Sequence[Line], error: str,
    rest: Sequence[tuple[str, str, str, float]], *, floor: float, unit: str, more: Mapping[str, Sequence[Panel]],
) -> list[str]:  # fmt: skip
    """Draw groups of cases, each with its title, beside our own methods, against rounds and bits; return the names.

    ``error`` names the errors, in the column ``error``; ``rest`` has other columns: what they are, log axes, scale.
    """
    sent, scale = "bits sent by clients, with what is sent once", {"Mbit": 1e6, "Gbit": 1e9}[unit]
    figures = {
        name: [
            Panel(curves([*some, *ours], "error", floor=floor), "round", error, title, "xy"),
            *(Panel(curves([*some, *ours], of, scale=by), "round", what, "", log) for of, what, log, by in rest),
        ]
        for name, (title, some) in groups.items()
    }
    figures["bits"] = [
        Panel(curves(some, "bits_up", scale=scale), "round", f"{unit} sent by clients", title)
        for title, some in groups.values()
    ]
    every = [*{one.case: one for _, some in groups.values() for one in some}.values(), *ours]
    (column, what, _, by), *_ = rest
    figures["against-bits"] = [
        Panel(curves(every, "error", sent, floor=floor), sent, error, "", "xy"),
        Panel(curves(every, column, sent, scale=by), sent, what, "", "x"),
    ]
    draw(folder, figures | dict(more))
    return [*figures, *more]


def draw(folder: Path, figures: Mapping[str, Sequence[Panel]]) -> None:
    """Write figures of panels side by side as PNG and SVG; many lines against bits have one legend, to the right."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    with rc_context(SETTINGS):
        for name, panels in figures.items():
            beside = name == "against-bits"
            figure = Figure(figsize=(4.2 * len(panels) + 2.4 * beside, 3.4), layout="constrained")
            for axes, panel in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels, strict=True):
                for x, values, label, colour, style in panel.curves:
                    axes.plot(x, panel.centre(values, axis=0), style, color=colour, label=label, linewidth=1.4)
                    low, high = values.min(axis=0), values.max(axis=0)
                    axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
                axes.set(xlabel=panel.xlabel, ylabel=panel.ylabel, title=panel.title)
                axes.set(**{f"{axis}scale": "log" for axis in panel.log})
                axes.grid(True, which="major", alpha=0.3)
                if not beside or panel is panels[-1]:
                    axes.legend(fontsize=7, **({"loc": "center left", "bbox_to_anchor": (1.02, 0.5)} if beside else {}))
            for kind, how in KINDS.items():
                figure.savefig(folder / f"{name}.{kind}", **how)
