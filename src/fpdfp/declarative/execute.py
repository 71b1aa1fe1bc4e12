"""The runs of an experiment, each in a folder of its own."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from fpdfp.declarative.build import build, how, problem_key
from fpdfp.declarative.document import SettingsError
from fpdfp.declarative.settings import Case, Settings
from fpdfp.engines.history import RESERVED
from fpdfp.engines.traffic import Traffic
from fpdfp.errors import RunFolderError
from fpdfp.runs import Recorder, SavedRun, load, writing
from fpdfp.runs.recorder import now
from fpdfp.runs.saved import relative_error

#: Runs that have ended so are not done again.
DONE = ("finished", "converged", "stationary", "rounding", "stopped", "diverged")


class Job(NamedTuple):
    """A run: its setting, its seed, its folder, and that of the whole experiment."""

    case: Case
    seed: int
    folder: Path
    output: Path

    @property
    def settings(self) -> Settings:
        """The settings of this run alone."""
        whole = self.case.settings
        return {**whole, "run": {**whole["run"], "seeds": [self.seed]}}

    @property
    def name(self) -> str:
        """What the run is called in tables and reports."""
        parts = [self.case.label.replace(",", ", ") or self.case.settings["name"]]
        if len(self.case.settings["run"]["seeds"]) > 1:
            parts.append(f"seed {self.seed}")
        return ", ".join(parts)


def jobs(cases: Iterable[Case], output: Path) -> list[Job]:
    """Return all runs of an experiment: every setting with every seed."""
    return [
        Job(case, seed, output / case.label / f"seed-{seed}", output)
        for case in cases
        for seed in case.settings["run"]["seeds"]
    ]


def is_done(job: Job) -> bool:
    """Whether a run has ended; one with other settings is refused, but it may have more rounds now."""
    saved = _saved(job.folder)
    if saved is None:
        return False
    different = differences(saved.config, job.settings)
    old, new = different.get("run.rounds", (0, 0))
    longer = isinstance(old, int) and old < new
    if longer:
        del different["run.rounds"]
    if different:
        key, (old, new) = next(iter(different.items()))
        raise SettingsError(
            f"{job.folder} holds a run with other settings: {key} was {old!r} and is now {new!r}; "
            "give another folder with --output"
        )
    status = saved.info["status"]
    return status in DONE and not (longer and status == "finished")


def holds_results(output: Path) -> bool:
    """Whether there is a run in a folder already."""
    return output.is_dir() and next(output.rglob("run.json"), None) is not None


def differences(first: Any, second: Any) -> dict[str, tuple[Any, Any]]:
    """Return the dotted keys at which nested settings differ, with both values, None where there is none.

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


def run(job: Job, progress: bool | None) -> dict[str, Any]:
    """Do a run, or what is left of it; return its line of the table."""
    if is_done(job):
        return line(job)
    built, options = build(job.settings), how(job.settings)
    reference = reference_of(job) if job.settings["run"]["reference"] else None
    recorder = Recorder(
        job.folder,
        built.problem,
        name=job.name,
        config=job.settings,
        reference=reference,
        model=built.model,
        truth=built.truth,
        voxel=built.voxel,
        history=job.settings["run"]["history"],
    )
    recorder.solve(resume=True, seed=job.seed, metrics=built.metrics, progress=progress, **options)
    return line(job)


def mark_interrupted(job: Job) -> None:
    """Say of a run whose process was ended that it is interrupted."""
    saved = _saved(job.folder)
    if saved is not None and saved.info["status"] == "running":
        ended = {"status": "interrupted", "message": "stopped by the user", "ended": now()}
        writing.write_json(job.folder / "run.json", saved.info | ended)


def reference_of(job: Job) -> float:
    """Return the minimum of a run's problem, found once for all runs that share it."""
    digest = hashlib.sha256(problem_key(job.settings).encode()).hexdigest()[:16]
    path = job.output / "references" / f"{digest}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return float(json.loads(path.read_text())["objective"])
    began = time.perf_counter()
    objective = build(job.settings).reference()
    writing.write_json(path, {"objective": objective, "seconds": time.perf_counter() - began})
    return objective


def line(job: Job) -> dict[str, Any]:
    """Return what a table says of a run."""
    saved = load(job.folder)
    return {"folder": str(job.folder), "setting": job.case.changes, **summary(saved)}


def summary(saved: SavedRun) -> dict[str, Any]:
    """Return a run in numbers: how it ended, how near it came, what that cost, and its metrics at the end."""
    info, history = saved.info, saved.history
    error = relative_error(info["objective"], info.get("reference"))
    certificate = info.get("certificate") or {}
    metrics = {name: float(history[name][-1]) for name in history if name not in RESERVED and history.rows}
    return {
        "name": info["name"],
        "seed": info["seed"],
        "status": info["status"],
        "rounds": info["rounds"],
        "objective": info["objective"],
        "relative_error": error,
        "relative_gap": certificate.get("relative_gap"),
        **metrics,
        **{name: info[name] for name in Traffic().totals},
        "seconds": info["seconds"],
    }


def _saved(folder: Path) -> SavedRun | None:
    try:
        return load(folder)
    except RunFolderError:
        if (folder / "run.json").exists():
            raise
        return None
