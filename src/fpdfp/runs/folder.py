"""The folder of a run: the files in it, how they are written and how they are read.

Files are complete at any moment: they are written next to the old ones and renamed over them.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import re
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _files as files
from fpdfp._array import to_host
from fpdfp._sections import plain
from fpdfp._typing import Array
from fpdfp.engines.checkpoint import to_archive
from fpdfp.engines.result import INTEGERS, History
from fpdfp.errors import RunFolderError, StorageError

#: The version of the format, in ``run.json``.
FORMAT = 1


def write_file(path: Path, contents: bytes, *, flush: bool = False) -> None:
    """Write a file so that readers see the old one or the new one; with ``flush`` a power cut does as well."""
    try:
        files.write_whole(path, contents, flush=flush)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"{path} could not be written ({reason}); the old files are intact") from error


def write_json(path: Path, value: Any, *, flush: bool = False) -> None:
    """Write strict JSON: what is not a finite number becomes null."""
    text = json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False)
    write_file(path, (text + "\n").encode(), flush=flush)


def write_arrays(path: Path, arrays: Mapping[str, Any], *, flush: bool = False) -> None:
    """Write an ``.npz`` archive."""
    plain = {name: np.asarray(to_host(array)) for name, array in arrays.items()}
    write_file(path, to_archive(plain), flush=flush)


def write_history(folder: Path, history: History, form: str, *, flush: bool = False) -> None:
    """Write the table of a run, as CSV or as Parquet."""
    if form == "csv":
        write_file(folder / "history.csv", history.as_csv().encode(), flush=flush)
        return
    pyarrow, parquet = arrow()
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table({name: history[name] for name in history}), buffer)
    write_file(folder / "history.parquet", buffer.getvalue(), flush=flush)


def arrow() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module; raise an error that describes how to install them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install pyarrow") from None
    return pyarrow, pyarrow.parquet


class Best(NamedTuple):
    """The evaluation with the smallest objective: its x, its round, its objective."""

    x: Array
    round: int
    objective: float


def relative_error(objective: float | None, reference: float | None) -> float | None:
    """Return (F − F*)/|F*|; None if one of them is unknown or F* is 0.

    >>> relative_error(1.5, 1.0)
    0.5
    """
    if objective is None or not reference:
        return None
    return (objective - reference) / abs(reference)


class SavedRun:
    """A run read from its folder, finished or not; files are read once, when needed.

    Attributes
    ----------
    path
        The folder.
    info
        The contents of ``run.json``: name, status, totals, certificate, versions, clients.
    """

    def __init__(self, path: Path, info: dict[str, Any]) -> None:
        self.path = path
        self.info = info

    def __repr__(self) -> str:
        name, status, rounds = (self.info.get(key) for key in ("name", "status", "rounds"))
        return f"SavedRun({name!r}: {status}, {rounds} rounds)"

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """The settings of the run; empty if they are missing."""
        path = self.path / "config.toml"
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (ValueError, OSError) as error:
            raise _damage_error(path, error) from error

    @functools.cached_property
    def history(self) -> History:
        """The history of the run; without rows before the first evaluation."""
        for path, read in ((self.path / "history.csv", _from_csv), (self.path / "history.parquet", _from_parquet)):
            try:
                return read(path)
            except FileNotFoundError:
                continue
            except (ValueError, OSError, KeyError, StopIteration) as error:
                raise _damage_error(path, error) from error
        return History()

    @functools.cached_property
    def _final(self) -> dict[str, Array]:
        return _arrays(self.path / "final.npz")

    @property
    def x(self) -> Array | None:
        """The final x, or the latest checkpoint's, or else the best; None at first."""
        if "x" in self._final:
            return self._final["x"]
        return None if self.best is None else self.best.x

    @property
    def v(self) -> Array | None:
        """The final dual; None during the run."""
        return self._final.get("v")

    @functools.cached_property
    def best(self) -> Best | None:
        """The evaluation with the smallest objective; None before there is any."""
        found = _arrays(self.path / "best.npz")
        if not {"x", "round", "objective"} <= set(found):
            return None
        return Best(found["x"], int(found["round"]), float(found["objective"]))

    @functools.cached_property
    def model(self) -> dict[str, Any] | None:
        """The meaning of the numbers of a linear model; None for other kinds."""
        path = self.path / "model.json"
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            raise _damage_error(path, error) from error
        return found

    @functools.cached_property
    def truth(self) -> Array | None:
        """The true volume of a CT run; None for other kinds."""
        return _arrays(self.path / "truth.npz").get("volume")

    @property
    def voxel(self) -> Array | None:
        """The sides of a voxel of the true volume."""
        return _arrays(self.path / "truth.npz").get("voxel")

    def frame(self) -> Any:
        """Return the history as a pandas data frame, with ``relative_error`` if the minimum is known."""
        import pandas

        table = pandas.DataFrame({name: self.history[name] for name in self.history})
        reference = self.info.get("reference")
        if reference:
            table["relative_error"] = (table["objective"] - reference) / abs(reference)
        return table


def load(path: str | Path) -> SavedRun:
    """Read the folder of a run.

    Parameters
    ----------
    path
        The folder, or a file in it.

    Raises
    ------
    fpdfp.errors.RunFolderError
        The run is missing, or its ``run.json`` is damaged.
    """
    folder = Path(path)
    if folder.is_file():
        folder = folder.parent
    file = folder / "run.json"
    try:
        info = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise RunFolderError(f"{folder} is not the folder of a run: it has no run.json") from None
    except (ValueError, OSError) as error:
        raise _damage_error(file, error) from error
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        raise RunFolderError(f"{file} has another format than this version writes, {FORMAT}")
    return SavedRun(folder, info)


def find(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """Return the folders of runs under folders, sorted, with 2 before 10; a file counts as its folder.

    Raises
    ------
    fpdfp.errors.RunFolderError
        One of the paths does not exist.

    Examples
    --------
    >>> find([])
    []
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    found: set[Path] = set()
    for one in map(Path, given):
        if not one.exists():
            raise RunFolderError(f"{one} does not exist")
        folder = one.parent if one.is_file() else one
        found |= {file.parent for file in folder.rglob("run.json")}
    return sorted(found, key=natural)


def natural(path: Path) -> list[tuple[int, float, str]]:
    """Return what orders the numbers in names as numbers: 1e-3 before 0.05 before 0.5 before 2 before 10.

    >>> sorted(map(Path, ["l2=10", "l2=0.05", "l2=1e-3", "l2=2", "l2=0.5"]), key=natural)
    [PosixPath('l2=1e-3'), PosixPath('l2=0.05'), PosixPath('l2=0.5'), PosixPath('l2=2'), PosixPath('l2=10')]
    """
    parts = re.split(r"((?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])|\d+)", str(path))
    return [(0, float(part), "") if i % 2 else (1, 0.0, part) for i, part in enumerate(parts)]


def _damage_error(path: Path, error: Exception) -> RunFolderError:
    return RunFolderError(f"{path} cannot be read: {error}")


def _arrays(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        return {}
    except (ValueError, OSError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise _damage_error(path, error) from error


def _from_csv(path: Path) -> History:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        names = next(reader)
        rows = list(reader)
    if any(len(row) != len(names) for row in rows):
        raise ValueError("a line has more or fewer entries than the first")
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    return History(
        {
            name: [int(entry) if name in INTEGERS else float(entry) for entry in column]
            for name, column in zip(names, columns, strict=True)
        }
    )


def _from_parquet(path: Path) -> History:
    _, parquet = arrow()
    return History(parquet.read_table(path).to_pydict())
