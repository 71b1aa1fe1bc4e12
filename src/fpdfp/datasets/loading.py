"""Loading data sets: registered ones by name, others from LIBSVM, CSV, TSV and Parquet files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.datasets import readers, registry
from fpdfp.datasets.registry import ENDINGS, REGISTRY, Registered, cache_folder
from fpdfp.errors import ArgumentError, ArgumentTypeError, DataSetError

#: The version of the cache: files of other versions are not read.
FORMAT = 3
#: Smaller files are not cached: reading them again takes no longer.
SMALL = 1 << 16

_FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
    ".txt": "libsvm",
}


@dataclass(frozen=True, repr=False, eq=False)
class DataSet:
    """Rows of features with labels, as ``fpdfp.datasets.load`` returns them.

    Attributes
    ----------
    name
        The registered name, or the name of the file.
    X
        The features: a SciPy ``csr_array`` from a LIBSVM file, a C-ordered float64 array from a table.
    y
        The labels: floats, or text where the target column of a table holds text.
    site
        The site of each row (integers, other numbers or text), or None.
    feature_names
        The names of the columns of X, or None.
    source
        The file that was read.

    Examples
    --------
    >>> import numpy as np
    >>> DataSet("tiny", np.eye(3), np.array(["no", "yes", "no"]), None, ("a", "b", "c"), "tiny.csv")
    DataSet('tiny': 3 rows, 3 features, dense, 2 labels)
    """

    name: str
    X: Any
    y: Array
    site: Array | None
    feature_names: tuple[str, ...] | None
    source: str

    def __repr__(self) -> str:
        rows, features = self.X.shape
        parts = [f"{rows:,} rows", f"{features:,} features"]
        if isinstance(self.X, np.ndarray):
            parts.append("dense")
        else:
            parts.append(f"{self.X.nnz:,} entries stored ({self.X.nnz / (rows * features):.1%})")
        distinct = len(np.unique(self.y))
        if self.y.dtype.kind == "U" or distinct <= 20:
            parts.append(f"{distinct} label{'s' if distinct != 1 else ''}")
        if self.site is not None:
            parts.append(f"{len(np.unique(self.site)):,} sites")
        return f"DataSet({self.name!r}: {', '.join(parts)})"


def load(
    source: str | os.PathLike[str],
    *,
    directory: str | os.PathLike[str] | None = None,
    target: str | None = None,
    site: str | None = None,
    drop: Sequence[str] = (),
    categories: str = "error",
    n_features: int | None = None,
    download: bool = True,
    progress: bool | None = None,
) -> DataSet:
    r"""Load a data set by its registered name, or from a file.

    Registered are ``"a9a"``, ``"a9a.t"`` (its test rows) and ``"covtype"`` (cover type 2 against the rest), all from
    the LIBSVM site, with labels −1 and +1; ``fpdfp.datasets.registry.REGISTRY`` lists their sources. They are searched
    in ``directory``, or else in the folder of the environment variable ``FPDFP_DATA`` and then in the user's cache, to
    which they are downloaded. Their checksum is verified.

    A data set that was read once is cached as plain arrays, so that reading it again is fast. The environment variable
    ``FPDFP_CACHE`` sets another folder for the cache, which may be deleted at any time.

    Parameters
    ----------
    source
        A registered name, or the path of a file. A table (``.csv``, ``.tsv``) names its columns in the first line. A
        Parquet file (``.parquet``) needs ``pip install pyarrow``. A file with another ending, such as ``.libsvm``,
        ``.svm``, ``.svmlight`` or ``.txt``, is a LIBSVM file. All but Parquet files may be compressed by xz, bzip2 or
        gzip. A registered name goes before a file of that name: write ``"./a9a"`` for the file.
    directory
        Where a registered set lies, plain or compressed; it must be there.
    target
        The column of a table that becomes y.
    site
        The column of a table with the site of each row.
    drop
        Columns of a table to exclude.
    categories
        How to treat text columns among the features: ``"error"`` raises an error; ``"onehot"`` makes a 0/1 column named
        ``"column=value"`` for every value, in sorted order, up to 10,000 per column. Columns of dates, and those with
        more than ten distinct values and at least half as many as rows (identifiers, names), raise an error.
    n_features
        The number of features of a LIBSVM file; by default the largest index in it.
    download
        Whether a registered set may be downloaded.
    progress
        Whether to show a bar for a download; None shows it if standard error is a terminal.

    Raises
    ------
    fpdfp.errors.DataSetError
        The data set cannot be found, fetched or read.
    ValueError, TypeError
        An argument is wrong, or does not fit the file.

    Warns
    -----
    fpdfp.errors.DataWarning
        A column of integers counts the rows, has the name of an identifier, or looks like dates (20240301).

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "people.csv"
    >>> _ = path.write_text("age,job,hospital,ill\n34,nurse,A,no\n51,clerk,B,yes\n47,nurse,B,no\n")
    >>> people = load(path, target="ill", site="hospital", categories="onehot")
    >>> people
    DataSet('people': 3 rows, 3 features, dense, 2 labels, 2 sites)
    >>> people.feature_names
    ('age', 'job=clerk', 'job=nurse')
    >>> people.X[1], str(people.y[1]), str(people.site[1])
    (array([51.,  1.,  0.]), 'yes', 'B')
    >>> folder.cleanup()
    """
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"source must be a registered name or a path, got {_checks.kind(source)}")
    for argument, value in (("target", target), ("site", site)):
        if value is not None and not isinstance(value, str):
            raise ArgumentTypeError(argument, f"must be the name of a column, got {value!r}")
    if isinstance(drop, str) or not all(isinstance(name, str) for name in drop):
        raise ArgumentTypeError("drop", f"must be a tuple or list of names of columns, got {drop!r}")
    if directory is not None and not isinstance(directory, str | os.PathLike):
        raise TypeError(f"directory must be the path of a folder, got {_checks.kind(directory)}")
    _checks.choice("categories", categories, ("error", "onehot"))
    _checks.flag("download", download)
    if progress is not None:
        _checks.flag("progress", progress)
    if n_features is not None:
        n_features = _checks.integer("n_features", n_features, at_least=1)

    entry = REGISTRY.get(source) if isinstance(source, str) else None
    path = _path(source, directory) if entry is None else None
    form = "libsvm" if path is None else _format(path)
    if form == "libsvm":
        _refuse_options(source, "a LIBSVM file, which has no named columns", target=target, site=site, drop=tuple(drop))
        if categories != "error":
            raise ArgumentError("categories", f"is for tables; {source} is read as a LIBSVM file, which holds no text")
    if entry is not None:
        if n_features not in (None, entry.features):
            raise ArgumentError("n_features", f"of {entry.name!r} is {entry.features}, got {n_features}: leave it out")
        return _load_registered(entry, registry.locate(entry, directory, download, progress))
    assert path is not None
    if form == "libsvm":
        return _from_libsvm(path, n_features)
    _refuse_options(source, "a table, which has the columns that it names", n_features=n_features)
    return _from_table(path, form, _choice(target, site, tuple(drop), categories))


def _path(source: str | os.PathLike[str], directory: Any) -> Path:
    path = Path(source).expanduser()
    if not path.is_file():
        separators = {os.sep, os.altsep or os.sep}
        if isinstance(source, str) and not separators & set(source):
            raise ValueError(f"source must be one of {', '.join(map(repr, REGISTRY))} or a file, got {source!r}")
        raise FileNotFoundError(f"source: {path}: file not found")
    if directory is not None:
        raise ValueError(f"directory is for registered names; source is the file {path}")
    return path


def _format(path: Path) -> str:
    """Return the format of a file, from its name or else its first bytes."""
    found = _FORMATS.get(Path(_without_ending(path.name)).suffix.lower())
    if found is not None:
        return found
    with path.open("rb") as file:
        return "parquet" if file.read(len(readers.MAGIC)) == readers.MAGIC else "libsvm"


def _refuse_options(source: Any, what: str, **options: Any) -> None:
    for name, value in options.items():
        if value not in (None, ()):
            raise ValueError(f"{name}={value!r} does not apply: {source} is read as {what}")


def _choice(target: str | None, site: str | None, drop: tuple[str, ...], categories: str) -> readers.Choice:
    if target is None:
        raise ArgumentError("target", "must name the column of a table that becomes y, got None")
    if target == site:
        raise ValueError(f"target and site must be different columns, got {target!r} for both")
    for name in (target, site):
        if name in drop:
            raise ArgumentError("drop", f"must not name {name!r}, which is the target or the site")
    return readers.Choice(target, site, drop, categories)


def _sparse(X: Any, y: Array) -> dict[str, Array | None]:
    return {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape), "y": y}


def _data_set(name: str, path: Path, arrays: dict[str, Any]) -> DataSet:
    X, names = arrays.get("X"), arrays.get("feature_names")
    if X is None:
        import scipy.sparse

        parts = (arrays["data"], arrays["indices"], arrays["indptr"])
        X = scipy.sparse.csr_array(parts, shape=tuple(arrays["shape"].tolist()))
    return DataSet(
        name, X, arrays["y"], arrays.get("site"), None if names is None else tuple(names.tolist()), str(path)
    )


def _load_registered(entry: Registered, path: Path) -> DataSet:
    def read() -> dict[str, Array | None]:
        try:
            X, y, sha256 = readers.read_libsvm(path, entry.features)
        except (DataSetError, ValueError):
            # that the file is another one matters more than what is wrong with it
            registry.verify(entry, readers.sha256(path), str(path))
            raise
        registry.verify(entry, sha256, str(path))
        return _sparse(X, np.where(y == entry.positive, 1.0, -1.0))

    # with the checksum among the options, arrays in the cache were verified when they were read
    options = {"format": "registered", "sha256": entry.sha256, "features": entry.features, "positive": entry.positive}
    return _data_set(entry.name, path, _cached(path, options, read))


def _from_libsvm(path: Path, n_features: int | None) -> DataSet:
    def read() -> dict[str, Array | None]:
        X, y, _ = readers.read_libsvm(path, n_features)
        return _sparse(X, y)

    return _data_set(_name(path), path, _cached(path, {"format": "libsvm", "n_features": n_features}, read))


def _from_table(path: Path, form: str, choice: readers.Choice) -> DataSet:
    def read() -> dict[str, Array | None]:
        if form == "parquet":
            return readers.read_parquet(path, choice)
        return readers.read_csv(path, "," if form == "csv" else "\t", choice)

    options = {"format": form, **choice._asdict(), "drop": sorted(choice.drop)}
    data = _data_set(_name(path), path, _cached(path, options, read))
    assert data.feature_names is not None
    readers.warn_of_numbers(path, data.feature_names, data.X)
    return data


def _name(path: Path) -> str:
    """Return a file's name without the endings of formats and compression."""
    name = Path(_without_ending(path.name))
    return name.stem if name.suffix.lower() in _FORMATS else name.name


def _without_ending(name: str) -> str:
    """Return a file's name without the ending of a compressed file."""
    ending = next((ending for ending in ENDINGS if name.lower().endswith(ending)), "")
    return name[: len(name) - len(ending)]


def _cached(
    path: Path, options: Mapping[str, Any], read: Callable[[], dict[str, Array | None]]
) -> dict[str, Array | None]:
    """Return the arrays of a file from the cache; if they are not there, read them and store them.

    ``options`` are the settings of ``read`` that would give other arrays for the same file.
    """
    if path.stat().st_size < SMALL:
        return read()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20))
    digest.update(json.dumps([FORMAT, options], sort_keys=True).encode())
    stored = cache_folder() / "parsed" / f"{digest.hexdigest()}.npz"
    arrays = _load_arrays(stored)
    if arrays is None:
        arrays = read()
        _store_arrays(stored, {name: array for name, array in arrays.items() if array is not None})
    return arrays


def _load_arrays(stored: Path) -> dict[str, Array | None] | None:
    """Return the arrays of a file of the cache; None if the file is missing or damaged."""
    try:
        with stored.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
            rows = [len(arrays[name]) for name in ("X", "y", "site") if name in arrays]
            if "indptr" in arrays:
                rows.append(len(arrays["indptr"]) - 1)
            return dict(arrays) if "y" in arrays and len(rows) > 1 and len(set(rows)) == 1 else None
    except (OSError, EOFError, KeyError, TypeError, ValueError, MemoryError, NotImplementedError, zipfile.BadZipFile):
        return None


def _store_arrays(stored: Path, arrays: dict[str, Array]) -> None:
    """Write arrays next to their file and rename it, so that no reader sees half a file; do nothing if that fails."""
    part = None
    try:
        stored.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, part = tempfile.mkstemp(prefix=".", suffix=".part", dir=stored.parent)
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        Path(part).replace(stored)
    except OSError:  # no such folder, no right to write, no room
        pass
    finally:
        if part is not None:
            with contextlib.suppress(OSError):
                Path(part).unlink(missing_ok=True)
