"""What the benchmarks share: interleaved timing, a table, and the last line of JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def interleaved(measures: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Call every measure in turn, ``repeats`` times: a slow moment of the machine then hits all of them."""
    seen: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(repeats):
        for name, measure in measures.items():
            seen[name].append(measure())
    return seen


def ratio(seen: Mapping[str, Sequence[float]], ours: str, peer: str) -> float:
    """Return the median over repeats of ours divided by the peer's of the same repeat."""
    return statistics.median(a / b for a, b in zip(seen[ours], seen[peer], strict=True))


def spread(values: Sequence[float]) -> str:
    """Write the median and the range."""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def machine() -> str:
    """Say what machine this is, in a line."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    table = Table(title=title)
    for name in header:
        table.add_column(name)
    for row in rows:
        table.add_row(*row)
    Console(width=120).print(table)


def finish(results: Mapping[str, Any]) -> None:
    """Print the last line: one JSON object."""
    print(json.dumps({**results, "machine": machine()}))
