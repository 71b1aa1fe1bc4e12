"""Two runs side by side: what differs in their settings, how near they came, what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._numbers import format_bits
from fpdfp.declarative import results, runner
from fpdfp.engines.result import SENT
from fpdfp.errors import RunFolderError
from fpdfp.runs import SavedRun, find, load

#: Relative errors of which it is told when each run reached them.
ERRORS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)


def compare(first: Path, second: Path) -> dict[str, Any]:
    """Return what a program may want to know of two runs."""
    runs = [_one(path) for path in (first, second)]
    return {
        "runs": [{"folder": str(run.path), "method": run.info.get("method"), **runner.summary(run)} for run in runs],
        "settings": {key: list(values) for key, values in runner.differences(runs[0].config, runs[1].config).items()},
        "reached": _find_reached(runs),
    }


def _one(path: Path) -> SavedRun:
    """Read a run, or the only one that is under a folder."""
    folders = find(path)
    if len(folders) > 1:
        raise RunFolderError(f"{path} holds {len(folders)} runs: name one of them, such as {folders[0]}")
    return load(folders[0] if folders else path)


def _find_reached(runs: list[SavedRun]) -> list[dict[str, Any]]:
    """Return after how many rounds and bits each run was first as near to the minimum as this.

    Where no minimum is known, the least objective of both stands for it.
    """
    known = [run.info.get("reference") for run in runs]
    objectives = [run.history.objective for run in runs if run.history.rows]
    if not objectives:
        return []
    least = min(float(one.min()) for one in objectives)
    # Different problems have different minima, and each run its own.
    minima = [least if one is None else float(one) for one in known]
    found = []
    for error in ERRORS:
        row = [_first(run, minimum, error) for run, minimum in zip(runs, minima, strict=True)]
        if any(one is not None for one in row):
            found.append({"relative_error": error, "runs": row})
    return found


def _first(run: SavedRun, minimum: float, error: float) -> dict[str, Any] | None:
    history = run.history
    near = np.flatnonzero(history.objective - minimum <= error * max(abs(minimum), 1e-300))
    if not near.size:
        return None
    row = int(near[0])
    sent = {name: int(history[name][row]) for name in SENT}
    return {"rounds": int(history.round[row]), **sent, "seconds": float(history.seconds[row])}


def show(found: dict[str, Any]) -> None:
    """Print tables."""
    from rich.console import Console
    from rich.table import Column, Table

    console, (first, second) = Console(), found["runs"]
    titles = [str(run["name"]) for run in (first, second)]
    if titles[0] == titles[1]:
        titles = [str(run["folder"]) for run in (first, second)]

    def titled(first_column: str, title: str) -> Table:
        return Table(first_column, *(Column(title, overflow="fold") for title in titles), title=title)

    outcome = titled("", "outcome")
    for name in dict.fromkeys([*first, *second]):
        if name not in ("folder", "name"):
            outcome.add_row(name.replace("_", " "), *(_show_value(name, run.get(name)) for run in (first, second)))
    console.print(outcome)
    settings = titled("setting", "what differs in the settings")
    for key, values in found["settings"].items():
        settings.add_row(key, *("" if value is None else results.short(value) for value in values))
    console.print(settings if found["settings"] else "the settings are the same")
    reached = titled("relative error", "when it was reached, with all bits but those of evaluations")
    for row in found["reached"]:
        reached.add_row(f"{row['relative_error']:.0e}", *map(_when, row["runs"]))
    if found["reached"]:
        console.print(reached)


def _show_value(name: str, value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if name.endswith(("_up", "_down")):
        return format_bits(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _when(reached: dict[str, Any] | None) -> str:
    if reached is None:
        return "not"
    up, down = (reached[f"total_{way}"] - reached[f"evaluation_{way}"] for way in ("up", "down"))
    return f"{reached['rounds']} rounds, {format_bits(up)} up, {format_bits(down)} down"
