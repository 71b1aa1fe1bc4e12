"""The page of the paper's experiments: ``python -m reproduce page`` makes it from the stored results."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from reproduce import ct
from reproduce.output import rows
from reproduce.theory import FIRST

RESULTS = Path(__file__).parents[1] / "docs" / "results"
#: Folders of the stored results, with the heads of their columns.
ROWS = {"a9a": "a9a", "covtype": "covtype"}
SCANS = {"ct/paper": "phantom", "ct/paper-head": "head", "ct/small": "small"}


def write(folder: Path = RESULTS) -> str:
    """Return the page, from the results in a folder."""
    names = [*ROWS, *SCANS, "theory"]
    stored = {one: json.loads((folder / one / "results.json").read_text(encoding="utf-8")) for one in names}
    template = Path(__file__).with_name("paper.md").read_text(encoding="utf-8")
    filled: dict[str, Any] = {
        name.replace("/", "_").replace("-", "_"): {**one, "seed_count": count(one)} for name, one in stored.items()
    }
    filled["regression"] = regression(stored)
    filled["regression_claims"] = claims(stored, ROWS)
    filled["scan"] = rows(
        [ct.row(one, stored["ct/paper"]["rounds"]) for one in ct.lines_of(stored["ct/paper"]["runs"]).values()]
    )
    filled["scan_claims"] = claims(stored, SCANS)
    for number, entries in stored["theory"]["theorems"].items():
        filled[f"theorem{number}"] = theorem(entries, slopes=number == "2")
        filled[f"share{number}"] = f"{max(one['largest_share_of_bound'] or 0.0 for one in entries):.2g}"
    return template.format(**filled, first=FIRST, steps=steps(stored))


def count(summary: dict[str, Any]) -> int:
    """Return the number of seeds."""
    seeds = summary["seeds"]
    return seeds if isinstance(seeds, int) else len(seeds)


def steps(stored: dict[str, Any]) -> str:
    """Return the tuned step of each data set, as the first of its cases has it."""
    first = {name: stored[name]["cases"][0] for name in ROWS}
    return ", ".join(f"{one['gamma0_times_L']:g}/L on {name}" for name, one in first.items())


def regression(stored: dict[str, Any]) -> str:
    """Return the table of cases: errors at the end and bits, for each data set."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for name in ROWS:
        for case in stored[name]["cases"]:
            label = case["label"].removeprefix("FPDFP, ")
            if "gamma0_times_L" not in case:
                label = f"{label}, {case['round'][-1]} rounds"
            error = f"{statistics.median(case['error_at_the_end']):.2e}"
            sent = (case["bits_up"]["median"][-1] + case["bits_once_up"]) / 1e6
            found.setdefault(label, {})[name] = error, f"{sent:,.1f}"
    blank = ("", "")
    found = dict(sorted(found.items(), key=lambda one: one[0].startswith("automatic")))
    return rows([[label, *(cell for name in ROWS for cell in one.get(name, blank))] for label, one in found.items()])


def claims(stored: dict[str, Any], columns: dict[str, str]) -> str:
    """Return the verdicts: a row for each claim, a column for each experiment."""
    verdicts: dict[str, dict[str, str]] = {}
    for name in columns:
        for claim in stored[name]["claims"]:
            text = claim["claim"].removeprefix("Beyond the paper: ").split(" (")[0].rstrip(".")
            if claim["verdict"] != "measured":
                verdicts.setdefault(text, {})[name] = claim["verdict"]
    return rows(
        [[text, *(one.get(name, "") for name in columns)] for text, one in verdicts.items()],
        ["claim", *columns.values()],
    )


def theorem(entries: list[dict[str, Any]], slopes: bool) -> str:
    """Return the settings of a theorem: errors, slopes, and what is bounded beside the bound."""
    lines = []
    for one in entries:
        held = one["bound_at_the_end"] is not None
        ends = [f"{one[name]:.2e}" if held else "none" for name in ("bounded_at_the_end", "bound_at_the_end")]
        slope = [f"{one['slope']:+.2f}"] if slopes else []
        lines.append([one["name"], f"{one['at_the_end']:.2e}", *slope, *ends])
    return rows(lines)


def publish(folder: Path = RESULTS) -> Path:
    """Write the page beside the results."""
    path = folder / "paper.md"
    path.write_text(write(folder), encoding="utf-8")
    return path
