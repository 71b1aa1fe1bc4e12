"""All runs of an experiment: one after the other, or side by side on all cores."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import typer

from fpdfp.declarative import build, execute, results
from fpdfp.declarative.document import SettingsError
from fpdfp.declarative.execute import Job
from fpdfp.declarative.settings import SECTIONS, Case, read
from fpdfp.errors import AccuracyWarning, DivergenceWarning, StepTooLargeWarning

#: Where arguments of the library come from: the first word of its errors, and the setting.
ABOUT = {
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
    "drop_out": ("run", "drop_out"),
    "batch_size": ("method", "batch_size"),
    "local_steps": ("method", "local_steps"),
    "strong_convexity": ("loss", "l2"),
}

#: Those of them that are not a setting under another name, but follow from it.
DERIVED = ("column", "problem", "strong_convexity")


class Outcome(NamedTuple):
    """What came of an experiment.

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


def in_turn(
    file: Path, output: Path | None, assignments: list[str], *, live: bool, resume: bool, quiet: bool
) -> Outcome:
    """Run everything that a file declares, one after the other."""
    cases = read(file, assignments)
    name, folder = _place(cases, output)
    if not resume and execute.holds_results(folder):
        raise SettingsError(f"{folder} holds results already: --resume goes on there, --output takes another folder")
    todo = _checked(cases, folder)
    lines: list[dict[str, Any]] = []
    interrupted = False
    with _page(folder, live):
        for number, job in enumerate(todo, 1):
            if not quiet and len(todo) > 1:
                typer.echo(f"run {number} of {len(todo)}: {job.name}", err=True)
            line = execute.run(job, False if quiet else None)
            lines.append(line)
            if line["status"] == "interrupted":
                interrupted = True
                break
    results.write(folder / "results.csv", lines)
    return Outcome(name, folder, lines, len(todo), interrupted)


def side_by_side(
    file: Path, output: Path | None, assignments: list[str], *, live: bool, jobs: int | None, quiet: bool
) -> Outcome:
    """Run everything that a file declares on all cores; what is done already is not done again."""
    from fpdfp.experiments import pool

    cases = read(file, assignments)
    name, folder = _place(cases, output)
    todo = _checked(cases, folder)
    found = {job.folder: execute.line(job) for job in todo if execute.is_done(job)}
    left = [job for job in todo if job.folder not in found]
    interrupted = False
    with _page(folder, live), contextlib.ExitStack() as stack:
        if left:
            bar = stack.enter_context(pool.bar()) if not quiet else None
            workers = stack.enter_context(pool.workers(_nothing, jobs=min(jobs or pool.cores(), len(left))))
            task = None if bar is None else bar.add_task(name, total=len(todo), completed=len(found))
            try:
                for where, line in workers.imap_unordered(_work, left):
                    found[where] = line
                    _write(folder, todo, found)
                    if bar is not None and task is not None:
                        bar.update(task, advance=1)
            except KeyboardInterrupt:
                interrupted = True
    if interrupted:
        for job in left:
            execute.mark_interrupted(job)
    return Outcome(name, folder, _write(folder, todo, found), len(todo), interrupted)


def _write(folder: Path, todo: Sequence[Job], found: dict[Path, dict[str, Any]]) -> list[dict[str, Any]]:
    """Write the lines of the runs that are done, in the order of the settings."""
    lines = [found[job.folder] for job in todo if job.folder in found]
    results.write(folder / "results.csv", lines)
    return lines


def _nothing() -> None:
    """Start a worker: what it is to do comes with each job."""


def _work(job: Job) -> tuple[Path, dict[str, Any]]:
    with told_warnings():
        return job.folder, execute.run(job, progress=False)


def _place(cases: Sequence[Case], output: Path | None) -> tuple[str, Path]:
    name: str = cases[0].settings["name"]
    if output is None:
        if Path(name).name != name or name in (".", ".."):
            raise SettingsError(f"name must be good for a folder, without slashes, got {name!r}; or give --output")
        output = Path("runs") / name
    if output.exists() and not output.is_dir():
        raise SettingsError(f"--output must be a folder, but {output} is a file")
    return name, output


def _checked(cases: Sequence[Case], folder: Path) -> list[Job]:
    """Return all jobs, if every setting can be run and none of the folders is that of another."""
    todo = execute.jobs(cases, folder)
    for job in todo:
        execute.is_done(job)
    for case in cases:
        try:
            build.check_fit(case.settings)
        except (TypeError, ValueError) as error:
            raise located(error, case) from error
    folder.mkdir(parents=True, exist_ok=True)
    return todo


def located(error: Exception, case: Case) -> SettingsError:
    """Return an error of the library as one about the settings: with the place of what it is about, if it says so."""
    message = str(error)
    about = re.match(r"[\w.]+", message)
    word = "" if about is None else about[0]
    key = tuple(word.split(".")) if word.split(".")[0] in SECTIONS else ABOUT.get(word, ())
    file = str(case.settings["data"].get("file", ""))
    if len(key) == 2 and word in ABOUT and word not in DERIVED:
        message = ".".join(key) + message[len(word) :]  # by the name that it has in the file
    elif file and message.startswith(file):
        key = ("data", "file")
    # So are arguments that the advice is about.
    message = re.sub(r"drop=\('([^']*)',\)", r'data.drop = ["\1"]', message)
    message = message.replace('categories="onehot"', 'data.categories = "onehot"')
    return SettingsError(f"{case.document.place(key)}: {message}")


@contextlib.contextmanager
def _page(folder: Path, live: bool) -> Iterator[None]:
    """Serve the live page meanwhile, if it is wanted."""
    if not live:
        yield
        return
    from fpdfp.report.live import serve

    with serve([folder]) as page:
        typer.echo(f"live: {page.url}", err=True)
        yield
    typer.echo(f"the live page is closed; fpdfp watch {folder} shows it again", err=True)


@contextlib.contextmanager
def told_warnings() -> Iterator[None]:
    """Have warnings told in a line each."""
    with warnings.catch_warnings():
        for kind in (AccuracyWarning, DivergenceWarning, StepTooLargeWarning):
            warnings.simplefilter("always", kind)
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"warning: {message}", err=True)
        yield
