"""Many runs on a pool of processes, each kept in a line of a file as soon as it is done, so that none is done twice."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fpdfp.methods import Method

#: Parts of the package that change no run.
LOOKERS_ON = ("cli.py", "declarative", "demo.py", "estimators", "loggers.py", "report", "runs")


def code(kind: type[Method]) -> str:
    """A digest of the source of a method and of the modules that it uses: scores of other code are not taken."""
    bases = [base for base in kind.__mro__ if issubclass(base, Method) and base is not Method]
    sources = {base.__module__: inspect.getsource(sys.modules[base.__module__]) for base in bases}
    for text in list(sources.values()):
        for name in re.findall(r"from (fpdfp\.methods\.\w+) import", text):
            if name != "fpdfp.methods.base":
                sources[name] = inspect.getsource(sys.modules[name])
    return hashlib.sha256("".join(sources[name] for name in sorted(sources)).encode()).hexdigest()[:12]


def package_code() -> str:
    """A digest of the whole package but for what changes no run: estimators, what looks on and reports."""
    import fpdfp

    root = Path(fpdfp.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        if file.relative_to(root).parts[0] not in LOOKERS_ON:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


class Scores:
    """What came of runs, by key, in a file of JSON lines; those that are not there are done on a pool.

    ``work`` is called in a worker with a job, a tuple whose first entry is its key, and returns the key and the result,
    None if it was interrupted. Lines that were cut off by a crash are not taken.
    """

    def __init__(self, path: Path, pool: Any, work: Callable[[Any], tuple[str, Any]], progress: Any) -> None:
        self.path, self.pool, self.work, self.progress = path, pool, work, progress
        text = path.read_text() if path.is_file() else ""
        self.known: dict[str, Any] = dict(json.loads(line) for line in text.splitlines() if line.endswith("]"))
        if text and not text.endswith("\n"):
            path.write_text("".join(json.dumps(list(one)) + "\n" for one in self.known.items()))

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
        todo = {job[0]: job for job in jobs if job[0] not in self.known}
        left, total = sum(map(cost, todo.values())), sum(map(cost, jobs))
        task = self.progress.add_task(title, total=total, completed=total - left)
        for key, value in self.pool.imap_unordered(self.work, list(todo.values())):
            if value is None:
                raise KeyboardInterrupt
            self.known[key] = value
            with self.path.open("a") as file:
                file.write(json.dumps([key, value]) + "\n")
            self.progress.update(task, advance=cost(todo[key]), description=f"{title} {say(todo[key], value)}".strip())
        self.progress.remove_task(task)
        if todo and not self.progress.console.is_terminal:
            self.progress.console.print(f"{title} {len(todo)} runs done")
        return [self.known[job[0]] for job in jobs]
