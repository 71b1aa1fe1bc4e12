"""What all experiments write: pages in Markdown, numbers in JSON, and figures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reproduce.runs import CONFIDENCE, Array, Line

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


def fill(template: str, summary: Mapping[str, Any], figures: Sequence[str], **more: Any) -> str:
    """Return a page: a template beside this file, filled with what the results say and more.

    A part ``[[name:text]]`` of a template is left out where the value of that name is empty.
    """
    text = Path(__file__).with_name(f"{template}.md").read_text(encoding="utf-8")
    shown = {
        "claims": "\n".join(
            f"* **{one['verdict']}**: {one['claim']} {upper(one['numbers'])}" for one in summary.get("claims", ())
        ),
        "figures": "\n\n".join(f"![{one}]({one}.png)" for one in figures),
        "confidence": 100 * CONFIDENCE,
    }
    known = {**summary, **shown, **more}
    text = re.sub(r"\[\[(\w+):(.*?)\]\]", lambda part: part[2] if known[part[1]] else "", text, flags=re.DOTALL)
    return text.format(**known)


def publish(
    output: Path, summary: Mapping[str, Any], text: str, claims: Iterable[Mapping[str, str]], indent: int | None = 1
) -> None:
    """Write numbers and page into a folder, and print the verdicts."""
    from rich.console import Console

    numbers = json.dumps(summary, indent=indent, ensure_ascii=False)
    (output / "results.json").write_text(numbers + "\n", encoding="utf-8")
    (output / "claims.md").write_text(text, encoding="utf-8")
    for claim in claims:
        Console().print(f"[bold]{claim['verdict']}[/bold]: {claim['claim']}", highlight=False)
    Console().print(f"results, figures and claims: {output}", highlight=False, soft_wrap=True)


def rows(header: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *cells])


def braces(values: Sequence[float]) -> str:
    return "{" + ", ".join(f"{value:g}" for value in values) + "}"


def upper(text: str) -> str:
    return text[0].upper() + text[1:]


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
    ticks: Sequence[float] = ()


def curves(
    lines: Sequence[Line], column: str, against: str = "round", *, most: float = np.inf, floor: float = -np.inf,
    scale: float = 1.0,
) -> list[Curve]:  # fmt: skip
    """Cases of FPDFP in colours and our own methods in black, against rounds or, with what is sent once, bits."""
    colours, ours, found = iter(COLOURS), iter(OUR_LOOKS), []
    theirs = [one.case for one in lines if one.case.method == "FPDFP"]
    for one in lines:
        colour, style = (next(colours), "-") if one.case in theirs else next(ours)
        at = (one.rounds > 0) & (one.rounds <= most)
        x = one.rounds if against == "round" else np.median(one["bits_up"], axis=0) + one.once_up
        label = one.case.beside(*theirs) if one.case in theirs and against == "round" else one.case.label
        found.append(Curve(x[at], np.maximum(one[column][:, at], floor) / scale, label, colour, style))
    return found


def draw(folder: Path, figures: Mapping[str, Sequence[Panel]], beside: Sequence[str] = (), width: float = 3.7) -> None:
    """Write figures of panels side by side as PNG and SVG; those named in ``beside`` have one legend, to the right."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS):
        for name, panels in figures.items():
            figure = Figure(figsize=(width * len(panels) + 2.4 * (name in beside), 3.4), layout="constrained")
            for axes, panel in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels, strict=True):
                for x, values, label, colour, style in panel.curves:
                    axes.plot(x, panel.centre(values, axis=0), style, color=colour, label=label, linewidth=1.4)
                    low, high = values.min(axis=0), values.max(axis=0)
                    axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
                axes.set(xlabel=panel.xlabel, ylabel=panel.ylabel, title=panel.title)
                axes.set(**{f"{axis}scale": "log" for axis in panel.log})
                axes.grid(True, which="major", alpha=0.3)
                if panel.ticks:
                    axes.set_xticks(panel.ticks, [f"{one:g}" for one in panel.ticks])
                    axes.minorticks_off()
                if name not in beside:
                    axes.legend(fontsize=7)
                elif panel is panels[-1]:
                    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
            save(figure, folder / name)


def save(figure: Any, path: Path, kinds: Sequence[str] = ("png", "svg")) -> None:
    """Write a figure as files of some kinds; the same figure makes the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        figure.savefig(path.with_suffix(f".{kind}"), **KINDS[kind])
