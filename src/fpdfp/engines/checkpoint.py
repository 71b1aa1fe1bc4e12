"""Checkpoints: the state of a run in one file, written so that a crash leaves the old one or the new one.

A checkpoint is a ``.npz`` archive without pickles, followed by the digest of its bytes. It holds the arrays of the
method's state, of the clients' memory and of what the server has sent, and the columns of the history. A JSON text has
the round, the totals and a description of the run. Randomness is a function of seed and round, so no generator state
is needed.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _files as files
from fpdfp._array import to_host
from fpdfp._typing import Array
from fpdfp.engines.result import FeatureSubset, History
from fpdfp.errors import CheckpointError
from fpdfp.steps import Schedule
from fpdfp.traffic import Kept, Traffic

FORMAT = 5


class Checkpoint(NamedTuple):
    """All that is needed to continue."""

    round: int
    first_round: int
    state: dict[str, Array]
    memory: dict[str, Array]
    kept: Kept | None
    work: tuple[int, ...]
    traffic: Traffic
    seconds: float
    history: History
    description: dict[str, str]
    features: FeatureSubset | None = None


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write atomically: into a temporary file next to it, flushed to disk, then renamed over the old one."""
    meta = {
        "format": FORMAT,
        "round": checkpoint.round,
        "first_round": checkpoint.first_round,
        "work": checkpoint.work,
        "traffic": dict(checkpoint.traffic),
        "seconds": checkpoint.seconds,
        "description": checkpoint.description,
        "columns": list(checkpoint.history),
    }
    arrays: dict[str, Any] = {"meta": np.array(json.dumps(meta))}
    arrays |= {f"state/{name}": to_host(array) for name, array in checkpoint.state.items()}
    arrays |= {f"memory/{name}": to_host(array) for name, array in checkpoint.memory.items()}
    if checkpoint.kept is not None:
        arrays |= {f"kept/{number:03d}": to_host(array) for number, array in enumerate(checkpoint.kept.message)}
        arrays |= {"seen": checkpoint.kept.seen, "sent": np.array(checkpoint.kept.sent)}
    if checkpoint.features is not None:
        arrays |= {f"features/{name}": np.asarray(value) for name, value in checkpoint.features._asdict().items()}
    arrays |= {f"history/{name}": checkpoint.history[name] for name in checkpoint.history}
    try:
        files.write_sealed(path, lambda file: np.savez(file, **arrays))
    except OSError as error:
        raise CheckpointError(f"the checkpoint {path} could not be written ({error}); the old one is intact") from error


def to_archive(arrays: Mapping[str, Any]) -> bytes:
    """Return arrays as the bytes of an ``.npz`` archive."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def check_path(path: Path) -> None:
    """Refuse a path that no checkpoint can be written to, before any work is done."""
    if path.is_dir():
        raise CheckpointError(f"the checkpoint {path} is a directory; give the name of a file")
    handle, temporary = _temporary(path)
    os.close(handle)
    Path(temporary).unlink()


def _temporary(path: Path) -> tuple[int, str]:
    """Make an empty file next to the checkpoint."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise CheckpointError(f"the checkpoint {path} cannot be written: {error}") from error


def load(path: Path) -> Checkpoint:
    """Read a checkpoint; a missing, cut or foreign file is an error that states it."""
    try:
        with files.open_sealed(path) as file, np.load(file, allow_pickle=False) as archive:
            contents = {name: archive[name] for name in archive.files}
        meta = json.loads(str(contents["meta"]))
        if meta["format"] != FORMAT:
            raise CheckpointError(
                f"the checkpoint {path} has format {meta['format']}, but this version reads format {FORMAT}"
            )
        return Checkpoint(
            round=int(meta["round"]),
            first_round=int(meta["first_round"]),
            state=_under("state/", contents),
            memory=_under("memory/", contents),
            kept=_read_kept(contents),
            work=tuple(map(int, meta["work"])),
            traffic=Traffic(meta["traffic"]),
            seconds=float(meta["seconds"]),
            history=History({name: contents[f"history/{name}"].tolist() for name in meta["columns"]}),
            description=dict(meta["description"]),
            features=_read_features(contents),
        )
    except FileNotFoundError:
        raise CheckpointError(f"{path}: checkpoint not found") from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path} is not a readable checkpoint: {error}") from error


def _read_kept(contents: Mapping[str, Array]) -> Kept | None:
    if "seen" not in contents:
        return None
    arrays = _under("kept/", contents)
    return Kept(tuple(arrays[name] for name in sorted(arrays)), int(contents["sent"]), contents["seen"])


def _read_features(contents: Mapping[str, Array]) -> FeatureSubset | None:
    if "features/numbers" not in contents:
        return None
    numbers, shape, since, until = (contents[f"features/{name}"] for name in FeatureSubset._fields)
    return FeatureSubset(numbers, tuple(map(int, shape)), int(since), float(until))


def _under(prefix: str, contents: Mapping[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in contents.items() if name.startswith(prefix)}


def describe(value: object) -> str:
    """Write a method, schedule or compressor so that equal ones are written alike, here and elsewhere.

    Numbers that were chosen automatically have ten digits, a schedule is described by its steps, and an object without
    a text of its own by its type.
    """
    if isinstance(value, Schedule):
        steps = ", ".join(f"{value(k):.9e}" for k in (0, 1, 10, 1000, 100_000))
        return f"steps {steps}"
    if isinstance(value, float):
        return f"{value:.10g}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (f"{field.name}={describe(getattr(value, field.name))}" for field in dataclasses.fields(value))
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {describe(one)}" for name, one in value.items())
    return type(value).__qualname__ if type(value).__repr__ is object.__repr__ else repr(value)
