"""Many runs on all cores, each kept in a file as soon as it is done, so that nothing is done twice."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import json
import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.engines.files import write_whole
from fpdfp.methods.base import Method

#: Parts of the package that change no run.
LOOKERS_ON = ("cli.py", "declarative", "estimators", "experiments", "loggers.py", "report", "runs")


def bar() -> Any:
    """A progress bar on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def workers(start: Callable[..., None] | None = None, *arguments: Any, jobs: int | None = None) -> Iterator[Any]:
    """Processes, each with one thread, that are told what to work on by calling ``start`` if it is given."""
    before = os.environ.get("NUMBA_NUM_THREADS")
    os.environ["NUMBA_NUM_THREADS"] = "1"
    try:
        pool = multiprocessing.get_context("spawn").Pool(jobs or cores(), _begin, (start, arguments))
    finally:
        if before is None:
            del os.environ["NUMBA_NUM_THREADS"]
        else:
            os.environ["NUMBA_NUM_THREADS"] = before
    with pool:
        yield pool


def _begin(start: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    # Ctrl-C reaches every process; the one that started them answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if start is not None:
        start(*arguments)


def code(kind: type[Method]) -> str:
    """A digest of the source of a method and of the modules that it uses: scores of other code are not taken."""
    bases = [base for base in kind.__mro__ if issubclass(base, Method) and base is not Method]
    sources = {base.__module__: inspect.getsource(sys.modules[base.__module__]) for base in bases}
    for text in list(sources.values()):
        for name in re.findall(r"from (fpdfp\.methods\.\w+) import", text):
            if name not in ("fpdfp.methods.base", "fpdfp.methods.traits"):
                sources[name] = inspect.getsource(sys.modules[name])
    return hashlib.sha256("".join(sources[name] for name in sorted(sources)).encode()).hexdigest()[:12]


def package_code() -> str:
    """A digest of the whole package but for what changes no run: experiments, estimators, what looks on and reports."""
    import fpdfp

    root = Path(fpdfp.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        if file.relative_to(root).parts[0] not in LOOKERS_ON:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


class Store:
    """What came of runs, by name: in one file of JSON lines, or where the path is a folder, in a file for each.

    A folder is for runs that several processes share out among themselves, and that have pictures. Lines that were cut
    off by a crash are not taken.
    """

    def __init__(self, path: Path) -> None:
        self.folder = path.parent if path.suffix == ".jsonl" else path
        self.lines: dict[str, Any] | None = None
        if path.suffix == ".jsonl":
            self.path, text = path, path.read_text() if path.is_file() else ""
            self.lines = dict(json.loads(line) for line in text.splitlines() if line.endswith("]"))
            if text and not text.endswith("\n"):
                path.write_text("".join(json.dumps(list(one)) + "\n" for one in self.lines.items()))

    def read(self, name: str) -> Any:
        """Return what came of a run; None if it is not there."""
        if self.lines is not None:
            return self.lines.get(name)
        file = self.folder / f"{name}.json"
        return json.loads(file.read_text()) if file.is_file() else None

    def write(self, name: str, contents: Any, picture: Array | None = None) -> None:
        """Keep what came of a run; its picture is written first, so that a run which is there is whole."""
        if self.lines is not None:
            self.lines[name] = contents
            with self.path.open("a") as file:
                file.write(json.dumps([name, contents]) + "\n")
            return
        if picture is not None:
            buffer = io.BytesIO()
            np.savez_compressed(buffer, picture=picture.astype(np.float16))
            write_whole(self.folder / f"{name}.npz", buffer.getvalue())
        write_whole(self.folder / f"{name}.json", (json.dumps(contents, ensure_ascii=False) + "\n").encode())

    def picture(self, name: str) -> Array:
        """Return the picture of a run."""
        with np.load(self.folder / f"{name}.npz") as file:
            picture: Array = file["picture"].astype(np.float32)
        return picture

    def checkpoint(self, name: str) -> Path:
        """Where a run that was stopped is kept until it goes on."""
        return self.folder / f"{name}.checkpoint"

    @contextlib.contextmanager
    def claim(self, name: str) -> Iterator[bool]:
        """Within the context no other process works on a run; False where one does. A claim ends with its process."""
        try:
            import fcntl
        except ImportError:  # no such locks: two processes need --only
            yield True
            return
        with (self.folder / f".{name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True


class Scores:
    """The runs of a store, done on a pool.

    ``work`` is called in a worker with a job, a tuple whose first entry is its key, and returns the key and the result,
    None if it was interrupted.
    """

    def __init__(self, path: Path, pool: Any, work: Callable[[Any], tuple[str, Any]], progress: Any) -> None:
        self.store, self.pool, self.work, self.progress = Store(path), pool, work, progress

    def compute(
        self,
        title: str,
        jobs: Sequence[tuple[Any, ...]],
        cost: Callable[[Any], int] = lambda _: 1,
        say: Callable[[Any, Any], str] = lambda job, result: "",
    ) -> list[Any]:
        """Return the results of jobs in their order; do those that are not known.

        ``cost`` weighs jobs in the progress bar, ``say`` tells of one that is done.
        """
        todo = {job[0]: job for job in jobs if self.store.read(job[0]) is None}
        left, total = sum(map(cost, todo.values())), sum(map(cost, jobs))
        task = self.progress.add_task(title, total=total, completed=total - left)
        for key, value in self.pool.imap_unordered(self.work, list(todo.values())):
            if value is None:
                raise KeyboardInterrupt
            self.store.write(key, value)
            self.progress.update(task, advance=cost(todo[key]), description=f"{title} {say(todo[key], value)}".strip())
        self.progress.remove_task(task)
        if todo and not self.progress.console.is_terminal:
            self.progress.console.print(f"{title} {len(todo)} runs done")
        return [self.store.read(job[0]) for job in jobs]
