"""Answers of clients, stored in a folder: a run that was interrupted continues there, and asks nothing twice.

What the server does with answers is a function of them. So a run begins anew, is given the answers that are there, and
asks on from where it was: to the bits of a run that was not interrupted, and with its counts.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import json
import os
import secrets
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from fpdfp import _files as files
from fpdfp._array import to_host
from fpdfp._typing import Array
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.losses import probe
from fpdfp.cohorts.question import Question, tuple_kind
from fpdfp.cohorts.requests import write
from fpdfp.cohorts.serialization import pack
from fpdfp.errors import ArgumentError, CheckpointError
from fpdfp.losses.linear import LinearModel
from fpdfp.problem import Problem

FORMAT = 1
#: Beside an answer: its bits.
BITS = "bits up"
#: The file that describes what run it is.
ABOUT = "about.json"
_current: contextvars.ContextVar[Record | None] = contextvars.ContextVar("record", default=None)


class Record:
    """A folder of answers; within the context all questions go through it.

    Parameters
    ----------
    folder
        Where answers are written, in a file each.
    problem
        The losses that are asked; a record of others is refused.
    """

    def __init__(self, folder: str | os.PathLike[str], problem: Problem) -> None:
        self.folder = Path(folder)
        self._number = 0
        about = {"format": str(FORMAT), "problem": _recognise(problem)}
        labels = getattr(problem.losses, "folds", None)
        if labels is not None:
            about["folds of rows"] = digest(labels)
        try:
            if (self.folder / ABOUT).exists():
                found = json.loads((self.folder / ABOUT).read_text(encoding="utf-8"))
                compare(found, about, self.folder)
                self.plan = str(found["plan"])
                return
            if self.folder.exists() and any(self.folder.iterdir()):
                raise CheckpointError(f"{self.folder} holds other files: give a folder for this checkpoint alone")
            #: The name by which sites know a path or a cross-validation: one that continues is not paid for again.
            self.plan = secrets.token_hex(8)
            text = json.dumps(about | {"plan": self.plan}) + "\n"
            files.write_whole(self.folder / ABOUT, text.encode(), flush=True, private=True)
        except OSError as error:
            raise CheckpointError(f"the checkpoint {self.folder} cannot be used: {error}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"{self.folder / ABOUT} does not describe a checkpoint: {error}") from error

    def __enter__(self) -> Self:
        self._number = 0
        self._token = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._token)

    def keep(self, asked: str, compute: Callable[[], Mapping[str, Array]]) -> Mapping[str, Array]:
        """Return the next answer, from its file if it is there; ``asked`` is a digest of the question."""
        path = self.folder / f"{self._number:05d}.npz"
        self._number += 1
        if not path.exists():
            found = dict(compute())
            try:
                files.write_sealed(path, lambda file: np.savez(file, question=np.array(asked), **_named(found)))
            except OSError as error:
                raise CheckpointError(f"the checkpoint {path} could not be written: {error}") from error
            return found
        try:
            with files.open_sealed(path) as file, np.load(file, allow_pickle=False) as archive:
                before = str(archive["question"])
                found = {name.removeprefix("answer/"): archive[name] for name in archive.files if name != "question"}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"{path} is not readable: {error}") from error
        if before != asked:
            raise CheckpointError(
                f"the checkpoint {self.folder} is of a different run, which asked something else in exchange "
                f"{self._number}: the data, problems, their order, folds and tol must be the same"
            )
        return found


def _recognise(problem: Problem) -> str:
    """Return a digest that distinguishes problems, by losses at a probe or, where these are infinite, by their rows."""
    point = probe(problem.model.shape, problem.model.dtype)
    found = fingerprint(problem)
    if np.isfinite(values_of_clients(problem, point)).all():
        return found
    if not isinstance(problem.losses, LinearModel):
        raise ArgumentError("checkpoint", f"must be None for {problem.losses!r}: changed data could not be recognised")
    rows = problem.losses._rows
    arrays = (*problem.losses._matrix, rows.y, rows.weights, rows.shifts)
    return " ".join([found, *(digest(one) for one in arrays if one is not None)])


def _named(arrays: Mapping[str, Array]) -> dict[str, Any]:
    return {f"answer/{name}": array for name, array in arrays.items()}


def open_record(folder: str | os.PathLike[str] | None, problem: Problem) -> contextlib.AbstractContextManager[Any]:
    """Return the record of a folder as a context; one without effect if missing."""
    return contextlib.nullcontext() if folder is None else Record(folder, problem)


def keep(question: Question, ask: Callable[[], tuple[Any, int]]) -> tuple[Any, int]:
    """Return an answer, a named tuple of arrays, and its bits through the record of the run, if it has one."""
    record = _current.get()
    if record is None:
        return ask()

    def found() -> dict[str, Array]:
        answer, up = ask()
        return {**{name: np.asarray(one) for name, one in answer._asdict().items()}, BITS: np.array(up)}

    kept = dict(record.keep(hashlib.sha256(pack({question.name: write(question, parcels.dump)})).hexdigest(), found))
    up = int(kept.pop(BITS))
    return tuple_kind("Answer", tuple(kept))(*kept.values()), up


def plan_name() -> str:
    """Return the name of a path or a cross-validation: the name in its record, or a new one."""
    record = _current.get()
    return secrets.token_hex(8) if record is None else record.plan


def compare(found: Mapping[str, str], wanted: Mapping[str, str], path: Path) -> None:
    """Refuse a checkpoint of a different run, and describe what differs."""
    different = [
        f"{name} was {found.get(name, 'not recorded')} and is now {value}"
        for name, value in wanted.items()
        if found.get(name) != value
    ]
    if different:
        raise CheckpointError(f"the checkpoint {path} is of a different run: " + "; ".join(different))


def values_of_clients(problem: Problem, point: Array) -> Array:
    """Return the loss of each client at a point, to distinguish problems: sites send it before a run."""
    losses: Any = problem.losses
    if hasattr(losses, "rows_at"):
        found: Array = losses.rows_at(point, gradients=False)
        return found
    return problem.losses.values(point, np.arange(problem.n_clients))


def fingerprint(problem: Problem) -> str:
    """Return a short digest that distinguishes problems: every client's size, weight and loss at a probe, g and B.

    Losses enter with ten digits, since their last bits may differ between machines and numbers of threads.
    """
    point = problem.model.xp.asarray(probe(problem.model.shape, problem.model.dtype))
    image = problem.linop.apply(point)
    losses = values_of_clients(problem, point)
    kinds = [problem.losses.family, *(type(one).__qualname__ for one in (problem.penalty, problem.linop))]
    summary = hashlib.sha256(repr(kinds).encode())
    for array in (
        problem.losses.sizes,
        problem.weights,
        _ten_digits(losses),
        _ten_digits(image),
        _ten_digits(problem.penalty.prox(image, 1.0)),
        *problem.losses.constants(),
    ):
        summary.update(np.ascontiguousarray(array).tobytes())
    return summary.hexdigest()[:16]


def _ten_digits(values: Array) -> Array:
    """Round each number to ten significant digits."""
    flat = np.asarray(to_host(values), dtype=np.float64).ravel()
    with np.errstate(divide="ignore"):
        exponent = np.where((flat == 0) | ~np.isfinite(flat), 0.0, np.floor(np.log10(np.abs(flat))))
    rounded: Array = np.round(flat / 10.0**exponent, 9) * 10.0**exponent
    return rounded + 0.0  # no negative zeros


def digest(array: Array) -> str:
    """Return a short digest of an array's bits."""
    return hashlib.sha256(np.ascontiguousarray(to_host(array)).tobytes()).hexdigest()[:16]
