"""Run one benchmark at an earlier commit and in the working tree, in turn, and compare the numbers of its last line.

    python -m tools.compare REF benchmarks.simulation [--repeats 3] [-- OPTIONS OF THE BENCHMARK]

The earlier commit is checked out once, into ``.compare/REF``, so that its kernels stay compiled. Both run the
benchmark with the packages of this environment. The table has the median of each number, and the ratio of after to
before; the last line is the same as JSON. Timings of a shared machine are noisy: more repeats help.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Run both in turn, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ref", help="a commit, a tag or a branch")
    parser.add_argument("module", help="the benchmark, as benchmarks.simulation")
    parser.add_argument("--repeats", type=int, default=3, help="how often each runs (default 3)")
    parser.add_argument("--above", type=float, default=0.0, help="show ratios that differ from 1 by more than this")
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    given = parser.parse_args(arguments[:split])
    before = check_out(given.ref)
    found: dict[str, dict[str, list[float]]] = {"before": {}, "after": {}}
    for repeat in range(given.repeats):
        # The order alternates, so that a machine that becomes slower hits both alike.
        for name in ("before", "after") if repeat % 2 == 0 else ("after", "before"):
            numbers = run(before if name == "before" else ROOT, given.module, arguments[split + 1 :])
            for place, number in numbers.items():
                found[name].setdefault(place, []).append(number)
            print(f"{name}, run {repeat + 1} of {given.repeats}: {len(numbers)} numbers", file=sys.stderr)
    rows = list(compare(found))
    width = max((len(place) for place, *_ in rows), default=10)
    print(f"{'number':<{width}}  {'before':>12}  {'after':>12}  {'ratio':>7}")
    for place, old, new, ratio in rows:
        if ratio is None or abs(ratio - 1.0) >= given.above:
            print(f"{place:<{width}}  {old:>12.6g}  {new:>12.6g}  {'' if ratio is None else f'{ratio:.3f}':>7}")
    print(json.dumps({place: {"before": old, "after": new, "ratio": ratio} for place, old, new, ratio in rows}))


def check_out(ref: str) -> Path:
    """Return a folder with the files of a commit."""
    folder = ROOT / ".compare" / ref.replace("/", "_")
    if not folder.exists():
        command = ["git", "worktree", "add", "--quiet", "--detach", str(folder), ref]
        subprocess.run(command, cwd=ROOT, check=True)
    return folder


def run(tree: Path, module: str, options: list[str]) -> dict[str, float]:
    """Return the numbers of the last line that a benchmark prints, by their places."""
    # Where a tree looks for data beside itself, both are to find the same.
    environment = {"FPDFP_DATA": str(ROOT.parent / "shared" / "data"), **os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-m", module, *options]
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if not lines or not lines[-1].startswith(("{", "[")):
        raise SystemExit(f"{module} printed no JSON in {tree} (exit status {done.returncode})")
    return dict(flatten(json.loads(lines[-1])))


def flatten(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """Yield every number of a JSON value with its place."""
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        yield place, float(value)
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from flatten(part, f"{place}.{key}" if place else str(key))


def compare(found: dict[str, dict[str, list[float]]]) -> Iterator[tuple[str, float, float, float | None]]:
    """Yield the place of every number that both have, its medians before and after, and their ratio."""
    for place, numbers in found["before"].items():
        if place in found["after"]:
            old, new = statistics.median(numbers), statistics.median(found["after"][place])
            yield place, old, new, new / old if old else None


if __name__ == "__main__":
    main()
