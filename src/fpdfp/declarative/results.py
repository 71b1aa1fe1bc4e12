"""The results of runs: a table for a person, a file for a program, and two runs side by side."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._numbers import format_bits
from fpdfp.engines.result import RESERVED, SENT
from fpdfp.errors import RunFolderError
from fpdfp.runs import SavedRun, find, load
from fpdfp.runs.folder import relative_error, write_file
from fpdfp.traffic import Traffic

#: Columns of a line that are not metrics.
PLAIN = (
    "folder", "setting", "name", "seed", "status", "rounds", "objective", "relative_error", "relative_gap",
    *Traffic().totals, "seconds",
)  # fmt: skip
#: Up to this many runs each have a column of their own.
FEW = 3
#: Relative errors for which the table reports when each run reached them.
ERRORS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)


def summary(saved: SavedRun) -> dict[str, Any]:
    """Return a run in numbers: how it ended, how near it came, what that cost, and its metrics at the end."""
    info, history = saved.info, saved.history
    error = relative_error(info["objective"], info.get("reference"))
    certificate = info.get("certificate") or {}
    metrics = {name: float(history[name][-1]) for name in history if name not in RESERVED and history.rows}
    known = {name: info[name] for name in ("name", "seed", "status", "rounds", "objective")}
    near = {"relative_error": error, "relative_gap": certificate.get("relative_gap")}
    sent = {name: info[name] for name in Traffic().totals}
    return {**known, **near, **metrics, **sent, "seconds": info["seconds"]}


def write(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write ``results.csv``: a line for each run, a column for each swept key, each total and each metric."""
    rows = []
    for line in lines:
        folder, swept = Path(line["folder"]), {key: short(value) for key, value in line["setting"].items()}
        place = folder.relative_to(path.parent).as_posix() if folder.is_relative_to(path.parent) else str(folder)
        rest = {name: value for name, value in line.items() if name not in ("folder", "setting")}
        rows.append({"folder": place, **swept, **rest})
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(rows)
    write_file(path, text.getvalue().encode(), flush=True)


def short(value: Any) -> str:
    """Write a swept value in a few words.

    >>> short({"kind": "QSGD", "levels": 5})
    'QSGD(levels=5)'
    """
    if not isinstance(value, dict):
        return f"{value:g}" if isinstance(value, float) else str(value)
    rest = ", ".join(f"{name}={short(one)}" for name, one in value.items() if name != "kind")
    return f"{value.get('kind', '')}({rest})" if rest else str(value.get("kind", ""))


def table(title: str, lines: Sequence[dict[str, Any]]) -> Any:
    """Return a table of runs for a terminal: a column for each of a few runs, else a row."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    metrics = list(dict.fromkeys(name for line in lines for name in line if name not in PLAIN))
    if len(lines) <= FEW:
        sent = ["total up", "total down", "evaluation up", "evaluation down"]
        names = ["status", "rounds", "objective", "relative error", *metrics, *sent, "seconds"]
        cells = [_cells(line, names) for line in lines]
        found = Table("", *(escape(str(line["name"])) for line in lines), title=escape(title))
        for name, *row in zip(names, *cells, strict=True):
            found.add_row(name.replace("_", " "), *row)
        return found
    # What fits on a line; results.csv has the rest.
    names = ["status", "rounds", "objective", "relative error", *(set(metrics) & {"accuracy", "psnr"}), "total up"]
    found = Table(title=escape(title), box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    found.add_column("run", overflow="fold", min_width=16)
    for name in names:
        found.add_column(name.replace(" ", "\n"), justify="right")
    for line in lines:
        found.add_row(escape(str(line["name"])), *_cells(line, names))
    return found


def _cells(line: dict[str, Any], names: Sequence[str]) -> list[str]:
    known = {
        "status": line["status"],
        "rounds": str(line["rounds"]),
        "objective": number(line["objective"], ".6g"),
        "relative error": number(line["relative_error"], ".1e"),
        **{name.replace("_", " "): format_bits(line[name]) for name in Traffic().totals},
        "seconds": number(line["seconds"], ".2f"),
    }
    return [known[name] if name in known else number(line.get(name), ".4g") for name in names]


def number(value: float | None, form: str) -> str:
    """Write a number that may be unknown."""
    return "" if value is None else format(value, form)


# --- Two runs side by side --------------------------------------------------------------------------------------------


def differences(first: Any, second: Any) -> dict[str, tuple[Any, Any]]:
    """Return the dotted keys at which nested settings differ, with both values, None for missing ones.

    >>> differences({"run": {"rounds": 1, "tol": 0.0}}, {"run": {"rounds": 2, "tol": 0.0}})
    {'run.rounds': (1, 2)}
    """
    found: dict[str, tuple[Any, Any]] = {}
    for name in dict.fromkeys([*first, *second]):
        one, other = first.get(name), second.get(name)
        if isinstance(one, dict) or isinstance(other, dict):
            inner = differences(one if isinstance(one, dict) else {}, other if isinstance(other, dict) else {})
            found |= {f"{name}.{key}": values for key, values in inner.items()}
        elif one != other:
            found[name] = (one, other)
    return found


def compare(first: Path, second: Path) -> dict[str, Any]:
    """Return what a program may want to know of two runs."""
    runs = [_one(path) for path in (first, second)]
    return {
        "runs": [{"folder": str(run.path), "method": run.info.get("method"), **summary(run)} for run in runs],
        "settings": {key: list(values) for key, values in differences(runs[0].config, runs[1].config).items()},
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


def show_comparison(found: dict[str, Any]) -> None:
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
        settings.add_row(key, *("" if value is None else short(value) for value in values))
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
