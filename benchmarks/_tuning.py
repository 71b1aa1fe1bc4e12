"""Tuning on a grid by stages, on all cores, with scores kept in a file so that nothing is done twice."""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import math
import multiprocessing
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import fpdfp
from benchmarks._problems import Setting
from fpdfp import steps
from fpdfp.methods.base import Method

Grid = TypeVar("Grid")


def bar() -> Progress:
    """A progress bar on standard error."""
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))


def workers(start: Callable[..., None], *arguments: Any) -> Any:
    """Processes for the tuning, each with one thread."""
    os.environ["NUMBA_NUM_THREADS"] = "1"
    pool = multiprocessing.get_context("spawn").Pool(os.cpu_count(), start, arguments)
    del os.environ["NUMBA_NUM_THREADS"]
    return pool


def positive(text: str) -> int:
    """Read a positive integer from the command line."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def code(kind: type[Method]) -> str:
    """A digest of the source of a method and of the modules that it uses: scores of other code are not taken."""
    bases = [base for base in kind.__mro__ if issubclass(base, Method) and base is not Method]
    sources = {base.__module__: inspect.getsource(sys.modules[base.__module__]) for base in bases}
    for text in list(sources.values()):
        for name in re.findall(r"from (fpdfp\.methods\.\w+) import", text):
            if name not in ("fpdfp.methods.base", "fpdfp.methods.traits"):
                sources[name] = inspect.getsource(sys.modules[name])
    return hashlib.sha256("".join(sources[name] for name in sorted(sources)).encode()).hexdigest()[:12]


class Scores:
    """Scores by key, kept in a file of JSON lines."""

    def __init__(self, path: Path, pool: Any, work: Callable[[Any], tuple[str, Any]], progress: Progress) -> None:
        self.path, self.pool, self.work, self.progress = path, pool, work, progress
        self.known: dict[str, Any] = {}
        if path.is_file():
            self.known = dict(json.loads(line) for line in path.read_text().splitlines() if line.endswith("]"))

    def compute(self, title: str, jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the scores of jobs, whose first entry is their key, in their order; do those that are not known."""
        todo = [job for job in jobs if job[0] not in self.known]
        task = self.progress.add_task(title, total=len(jobs), completed=len(jobs) - len(todo))
        for key, value in self.pool.imap_unordered(self.work, todo):
            self.known[key] = value
            with self.path.open("a") as file:
                file.write(json.dumps([key, value]) + "\n")
            self.progress.advance(task)
        self.progress.remove_task(task)
        return [self.known[job[0]] for job in jobs]


#: Rounds of the stages of tuning before the last, and how many of so many settings go on.
STAGES: tuple[tuple[int, Callable[[int], int]], ...] = ((250, lambda count: math.ceil(count / 3)), (1000, lambda _: 2))


def stages(rounds: int, last: Callable[[int], int]) -> list[tuple[int, Callable[[int], int]]]:
    """Return the stages of tuning, the last of which has all rounds."""
    return [*(stage for stage in STAGES if stage[0] < rounds), (rounds, last)]


def schedule(where: Setting, gamma: float, decay: float) -> steps.Schedule:
    """Return γ_k = γ0/(1 + ck) with γ0 given in units of 1/L."""
    gamma0 = gamma / float(where.federated.lipschitz.mean())
    return steps.Decreasing(gamma0, decay) if decay else steps.Constant(gamma0)


def run_until(where: Setting, problem: fpdfp.Problem, method: Any, error: float, **arguments: Any) -> fpdfp.Result:
    """Run until the relative error of the objective is at most so much, or to the end; Ctrl-C ends everything."""

    def close(now: fpdfp.Run) -> bool:
        return now.history.last()["objective"] <= where.best * (1 + error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some steps of a grid are meant to be too large
        result = fpdfp.solve(problem, method, callbacks=[close], progress=False, **arguments)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return result


def first_within(where: Setting, history: fpdfp.History, error: float, names: Sequence[str]) -> dict[str, float] | None:
    """Return some columns at the first evaluation within a relative error; None if there is none."""
    within = np.flatnonzero(history.objective <= where.best * (1 + error))
    return {name: float(history[name][within[0]]) for name in names} if len(within) else None


def halve(
    grid: Sequence[Grid],
    plan: Sequence[tuple[int, Callable[[int], int]]],
    score: Callable[[Sequence[Grid], int], list[Any]],
) -> list[Grid]:
    """Return the settings that are left, best first, after stages of (rounds, how many of so many go on)."""
    left = list(grid)
    for rounds, survivors in plan:
        scores = dict(zip(left, score(left, rounds), strict=True))
        left = sorted(left, key=scores.__getitem__)[: survivors(len(left))]
    return left
