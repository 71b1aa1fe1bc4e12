"""The runs of an experiment: every setting with every seed, each in a folder, one after the other or side by side."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import re
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer

from fpdfp._settings import Document, SettingsError
from fpdfp._typing import Array, IntArray
from fpdfp.declarative import pool, results
from fpdfp.declarative.build import Built, build, check_fit, problem_key, solve_options
from fpdfp.declarative.settings import Case, Settings, check, read
from fpdfp.engines.result import COLUMNS, SENT, History
from fpdfp.errors import AccuracyWarning, DivergenceWarning, RunFolderError, StepTooLargeWarning
from fpdfp.runs import Recorder, SavedRun, load
from fpdfp.runs.folder import write_json
from fpdfp.runs.recorder import describe_problem, describe_traffic, make_info, now, write_ended
from fpdfp.selection import ManyResult, solve_many
from fpdfp.traffic import Bits, Traffic

#: Runs that have ended so are not done again.
DONE = ("finished", "converged", "stationary", "rounding", "stopped", "diverged")
#: Where arguments of the library come from: their names in errors, and the settings.
ABOUT: dict[str, tuple[str, ...]] = {
    "n_clients": ("split", "clients"),
    "at_least": ("split", "at_least"),
    "column": ("split", "kind"),
    "target": ("data", "label"),
    "site": ("data", "site"),
    "drop": ("data", "drop"),
    "categories": ("data", "categories"),
    "n_features": ("data", "features"),
    "path": ("data", "volume"),
    "y": ("data",),
    "X": ("data",),
    "losses": ("loss",),
    "linop": ("operator",),
    "problem": ("method", "kind"),
    "clients_per_round": ("run", "clients_per_round"),
    "sampling": ("run", "sampling"),
    "drop_out": ("run", "drop_out"),
    "batch_size": ("method", "batch_size"),
    "local_steps": ("method", "local_steps"),
    "strong_convexity": ("loss", "l2"),
}

#: Those of them that are not a setting under another name, but follow from it.
DERIVED = ("column", "problem", "strong_convexity")
#: How runs end, by how their problems do.
STATUS = {"converged": "converged", "stalled": "rounding", "unfinished": "finished"}
MESSAGES = {
    "converged": "no decrease beyond tol is expected",
    "rounding": "the objective does not decrease any more",
    "finished": "all rounds are done",
    "interrupted": "stopped by the user",
}


class Job(NamedTuple):
    """A run: what it is called in tables and reports, its settings, seed and folder, and the experiment's folder.

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


def is_done(job: Job) -> bool:
    """Whether a run has ended; one with other settings is refused, but it may have more rounds now."""
    saved = _load_saved(job.folder)
    if saved is None:
        return False
    config = saved.config
    with contextlib.suppress(SettingsError):
        # A setting that was not there when the run was written has its default.
        config = check(Document(job.folder / "config.toml", config, {}))
    different = results.differences(config, job.settings)
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


def run_job(job: Job, progress: bool | None, reference: float | None = None) -> dict[str, Any]:
    """Do a run, or what is left of it; return its line of the table. The minimum is found where it is not given."""
    if is_done(job):
        return line(job)
    built, options = build(job.settings), solve_options(job.settings)
    if reference is None and job.settings["run"]["reference"]:
        reference = find_reference(job)
    recorder = Recorder(
        job.folder, built.problem, name=job.name, config=job.settings, reference=reference, model=built.model,
        truth=built.truth, voxel=built.voxel, history=job.settings["run"]["history"],
    )  # fmt: skip
    recorder.solve(resume=True, seed=job.seed, metrics=built.metrics, progress=progress, **options)
    return line(job)


def mark_interrupted(job: Job) -> None:
    """Say of a run whose process was ended that it is interrupted."""
    saved = _load_saved(job.folder)
    if saved is not None and saved.info["status"] == "running":
        ended = {"status": "interrupted", "message": "stopped by the user", "ended": now()}
        write_json(job.folder / "run.json", saved.info | ended)


def line(job: Job) -> dict[str, Any]:
    """Return what a table says about a run."""
    saved = load(job.folder)
    return {"folder": str(job.folder), "setting": job.changes, **results.summary(saved)}


def _load_saved(folder: Path) -> SavedRun | None:
    try:
        return load(folder)
    except RunFolderError:
        if (folder / "run.json").exists():
            raise
        return None


def find_reference(job: Job) -> float:
    """Return the minimum of a run's problem, found once for all runs that share it."""
    digest = hashlib.sha256(problem_key(job.settings).encode()).hexdigest()[:16]
    path = job.output / "references" / f"{digest}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return float(json.loads(path.read_text())["objective"])
    began = time.perf_counter()
    objective = build(job.settings).reference()
    write_json(path, {"objective": objective, "seconds": time.perf_counter() - began})
    return objective


def group(jobs: Sequence[Job]) -> list[list[Job]]:
    """Return which runs are done at once: those with ``run.together`` that differ in the penalty alone."""
    found: dict[str, list[Job]] = {}
    for number, job in enumerate(jobs):
        rest = {name: value for name, value in job.settings.items() if name != "penalty"}
        key = json.dumps(rest, sort_keys=True) if job.settings["run"]["together"] else str(number)
        found.setdefault(key, []).append(job)
    return list(found.values())


def run_together(jobs: Sequence[Job], progress: bool | None) -> None:
    """Solve the problems of some runs at once, and write the folders of those that were begun.

    Answers are kept until all have ended, so that an interrupted group continues to the same bits.
    """
    ordered = sorted(jobs, key=lambda job: -float(job.settings["penalty"].get("weight", 0.0)))
    built = [build(job.settings) for job in ordered]
    run = ordered[0].settings["run"]
    text = json.dumps([job.settings for job in ordered], sort_keys=True)
    kept = ordered[0].output / "together" / hashlib.sha256(text.encode()).hexdigest()[:16]
    began = time.perf_counter()
    found = solve_many(
        [one.problem for one in built], tol=run["tol"], rounds=run["rounds"], progress=progress, checkpoint=kept
    )
    seconds = time.perf_counter() - began
    interrupted = "unfinished" in found.status and found.rounds < run["rounds"]
    ups, downs = (share(bits, found.evaluations) for bits in (found.bits_up, found.bits_down))
    together = {
        "runs": len(found.status), "rounds": found.rounds, "total_up": found.bits_up, "total_down": found.bits_down,
        "seconds": seconds,
    }  # fmt: skip
    for place, (job, one) in enumerate(zip(ordered, built, strict=True)):
        if not np.isfinite(found.objective[place]):
            continue  # it was not begun
        status = "interrupted" if interrupted else STATUS[found.status[place]]
        traffic = Traffic({"rounds": Bits(int(ups[place]), int(downs[place]))})
        known = {
            "rounds": found.rounds, "planned_rounds": run["rounds"], "objective": float(found.objective[place]),
            "seconds": seconds / len(jobs), "elapsed": seconds / len(jobs), "seed": job.seed, "kind": "linear",
            "reference": find_reference(job) if run["reference"] else None,
            "method": "many problems at once (fpdfp.solve_many)", "messages": ["fixed point, by the tolerance"],
        }  # fmt: skip
        info = make_info(
            job.name, status=status, message=MESSAGES[status], **describe_traffic(traffic), **known,
            **describe_problem(one.problem, one.model), estimated_gap=float(found.gap[place]), together=together,
        )  # fmt: skip
        history = _make_history(one, found, place, traffic, seconds / len(jobs))
        write_ended(job.folder, info, history, found.x[place], job.settings, one.model, form=run["history"], best=True)
    if not np.isfinite(found.objective).any():
        raise KeyboardInterrupt
    if found.converged:
        shutil.rmtree(kept)


def share(bits: int, evaluations: IntArray) -> IntArray:
    """Divide the bits of all runs by how often each was asked about, to whole numbers that add up.

    >>> share(10, np.array([1, 1, 2]))
    array([2, 3, 5])
    """
    ends: Array = np.cumsum(np.maximum(evaluations, 1))
    shares: IntArray = np.diff([0, *(bits * int(end) // int(ends[-1]) for end in ends)])
    return shares


def _make_history(built: Built, found: ManyResult, place: int, traffic: Traffic, seconds: float) -> History:
    """Return the table of a run: its start, at zero, and its end."""
    history, x = History(), found.x[place]
    for round_, point, objective, sent in (
        (0, np.zeros_like(x), built.problem.objective(np.zeros_like(x)), False),
        (found.rounds, x, float(found.objective[place]), True),
    ):
        row: dict[str, Any] = dict.fromkeys(COLUMNS, 0) | {"round": round_, "objective": objective, "step": 1.0}
        if sent:
            row |= {name: value for name, value in traffic.totals.items() if name in SENT} | {"seconds": seconds}
        history.append(row | {name: measure(point) for name, measure in built.metrics.items()})
    return history


class Outcome(NamedTuple):
    """The outcome of an experiment.

    Attributes
    ----------
    name, output
        The experiment and its folder.
    lines
        What is known of each run that began.
    planned
        How many runs there are to be.
    interrupted
        Whether the user stopped it.
    """

    name: str
    output: Path
    lines: list[dict[str, Any]]
    planned: int
    interrupted: bool

    def document(self) -> dict[str, Any]:
        """Return it for a program."""
        status = "interrupted" if self.interrupted else "done"
        return {
            "name": self.name, "folder": str(self.output), "status": status, "planned": self.planned,
            "runs": self.lines,
        }  # fmt: skip

    def show(self) -> None:
        """Print a table and where everything is."""
        from rich.console import Console

        console = Console()
        if self.lines:
            console.print(results.table(self.name, self.lines))
        console.print(f"runs and results.csv: {self.output}", highlight=False, soft_wrap=True, markup=False)


def run_file(
    file: Path,
    output: Path | None,
    assignments: list[str],
    *,
    quiet: bool,
    resume: bool,
    jobs: int | None,
    watch: Callable[[Path], contextlib.AbstractContextManager[None]],
) -> Outcome:
    """Run everything that a file declares, in this process if ``jobs`` is 0, else in some processes (None: all cores).

    What is done already is not done again; without ``resume`` a folder that holds results is refused. The runs are done
    within the context that ``watch`` returns for their folder.
    """
    cases = read(file, assignments)
    name, folder = _place(cases, output)
    if not resume and holds_results(folder):
        raise SettingsError(f"{folder} holds results already: --resume continues them, --output takes another folder")
    todo = _check_all(cases, folder)
    found = {job.folder: line(job) for job in todo if is_done(job)}
    left = group([job for job in todo if job.folder not in found])
    interrupted = False
    with watch(folder), contextlib.ExitStack() as stack:
        advance = None
        try:
            if jobs == 0 or not left:
                done = _one_by_one(left, quiet)
            else:
                processes = stack.enter_context(pool.workers(jobs=min(jobs or pool.cores(), len(left))))
                done = processes.imap_unordered(_work, left)
                if not quiet:
                    bar = stack.enter_context(pool.bar())
                    task = bar.add_task(name, total=len(todo), completed=len(found))
                    advance = functools.partial(bar.update, task)
            for rows in done:
                found |= rows
                results.write(folder / "results.csv", _lines(todo, found))
                if advance is not None:
                    advance(advance=len(rows))
                if any(row["status"] == "interrupted" for row in rows.values()):
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            interrupted = True
    for job in itertools.chain(*left) if interrupted else ():
        mark_interrupted(job)
    results.write(folder / "results.csv", _lines(todo, found))
    return Outcome(name, folder, _lines(todo, found), len(todo), interrupted)


def _lines(todo: Sequence[Job], found: dict[Path, dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of the runs that are done, in the order of the settings."""
    return [found[job.folder] for job in todo if job.folder in found]


def _one_by_one(left: Sequence[Sequence[Job]], quiet: bool) -> Iterator[dict[Path, dict[str, Any]]]:
    for number, jobs in enumerate(left, 1):
        if not quiet and len(left) > 1:
            named = jobs[0].name if len(jobs) == 1 else f"{len(jobs)} settings together"
            typer.echo(f"run {number} of {len(left)}: {named}", err=True)
        yield run_jobs(jobs, False if quiet else None)


def _work(jobs: Sequence[Job]) -> dict[Path, dict[str, Any]]:
    with show_warnings():
        return run_jobs(jobs, progress=False)


def run_jobs(jobs: Sequence[Job], progress: bool | None) -> dict[Path, dict[str, Any]]:
    """Do a run, or several at once; return the lines of the table by folder."""
    if jobs[0].settings["run"]["together"]:
        run_together(jobs, progress)
        return {job.folder: line(job) for job in jobs if (job.folder / "run.json").exists()}
    return {job.folder: run_job(job, progress) for job in jobs}


def _place(cases: Sequence[Case], output: Path | None) -> tuple[str, Path]:
    name: str = cases[0].settings["name"]
    if output is None:
        if Path(name).name != name or name in (".", ".."):
            raise SettingsError(f"name must be good for a folder, without slashes, got {name!r}; or give --output")
        output = Path("runs") / name
    if output.exists() and not output.is_dir():
        raise SettingsError(f"--output must be a folder, but {output} is a file")
    return name, output


def _check_all(cases: Sequence[Case], folder: Path) -> list[Job]:
    """Return all jobs, if every setting can be run and no two share a folder."""
    todo = list_jobs(cases, folder)
    for job in todo:
        is_done(job)
    for case in cases:
        try:
            check_fit(case.settings)
        except (TypeError, ValueError) as error:
            raise locate(error, case) from error
    folder.mkdir(parents=True, exist_ok=True)
    return todo


def locate(error: Exception, case: Case) -> SettingsError:
    """Return an error of the library as one about the settings: with the place of what it is about, if it states it."""
    message, argument = str(error), getattr(error, "argument", "")
    key = ABOUT.get(argument) or tuple(argument.split(".") if "." in argument else ())
    file = str(case.settings["data"].get("file", ""))
    if len(key) == 2 and argument in ABOUT and argument not in DERIVED:
        message = ".".join(key) + message[len(argument) :]  # by the name that it has in the file
    elif file and message.startswith(file):
        key = ("data", "file")
    # So are arguments that the advice is about.
    message = re.sub(r"drop=\('([^']*)',\)", r'data.drop = ["\1"]', message)
    message = message.replace('categories="onehot"', 'data.categories = "onehot"')
    return SettingsError(f"{case.document.place(key)}: {message}")


@contextlib.contextmanager
def show_warnings() -> Iterator[None]:
    """Print each warning in a line."""
    with warnings.catch_warnings():
        for kind in (AccuracyWarning, DivergenceWarning, StepTooLargeWarning):
            warnings.simplefilter("always", kind)
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"warning: {message}", err=True)
        yield
