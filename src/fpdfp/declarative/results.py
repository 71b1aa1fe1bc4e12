"""What came of the runs of an experiment: a table for a person, a file for a program."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fpdfp._numbers import format_bits
from fpdfp.engines.traffic import Traffic
from fpdfp.runs import writing

#: Columns of a line that are not metrics.
PLAIN = (
    "folder", "setting", "name", "seed", "status", "rounds", "objective", "relative_error", "relative_gap",
    *Traffic().totals, "seconds",
)  # fmt: skip
#: Up to so many runs each have a column of their own.
FEW = 3


def write(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write ``results.csv``: a line for each run, a column for each swept key, each total and each metric."""
    rows = [
        {"folder": _relative(line["folder"], path.parent), **_flat(line["setting"]), **_rest(line)} for line in lines
    ]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(rows)
    writing.write(path, text.getvalue().encode(), flush=True)


def _relative(folder: str, to: Path) -> str:
    return Path(folder).relative_to(to).as_posix() if Path(folder).is_relative_to(to) else folder


def _flat(setting: dict[str, Any]) -> dict[str, Any]:
    return {key: short(value) for key, value in setting.items()}


def _rest(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in ("folder", "setting")}


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
