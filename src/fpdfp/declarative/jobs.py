"""What is to be run: every setting with every seed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fpdfp.declarative.build import build, problem_key
from fpdfp.declarative.settings import Case, Settings
from fpdfp.runs import writing


class Job(NamedTuple):
    """A run: what it is called in tables and reports, its settings, its seed, its folder, and that of the experiment.

    ``changes`` are the values of the keys that are swept.
    """

    name: str
    settings: Settings
    seed: int
    folder: Path
    output: Path
    changes: Mapping[str, Any]


def list_jobs(cases: Iterable[Case], output: Path) -> list[Job]:
    """Return all runs of an experiment: every setting with every seed."""
    found = []
    for case in cases:
        run, title = case.settings["run"], case.label.replace(",", ", ") or case.settings["name"]
        for seed in run["seeds"]:
            name = f"{title}, seed {seed}" if len(run["seeds"]) > 1 else title
            settings = {**case.settings, "run": {**run, "seeds": [seed]}}
            found.append(Job(name, settings, seed, output / case.label / f"seed-{seed}", output, case.changes))
    return found


def find_reference(job: Job) -> float:
    """Return the minimum of a run's problem, found once for all runs that share it."""
    digest = hashlib.sha256(problem_key(job.settings).encode()).hexdigest()[:16]
    path = job.output / "references" / f"{digest}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return float(json.loads(path.read_text())["objective"])
    began = time.perf_counter()
    objective = build(job.settings).reference()
    writing.write_json(path, {"objective": objective, "seconds": time.perf_counter() - began})
    return objective
