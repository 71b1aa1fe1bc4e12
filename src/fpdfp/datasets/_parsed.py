"""Data sets that were read before, cached as plain arrays."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.datasets._folders import cache_folder
from fpdfp.datasets.dataset import DataSet

#: Raised when what is kept changes, so that files of other versions are not read.
FORMAT = 2
#: Smaller files are not cached: reading them again takes no longer.
SMALL = 1 << 16


def through(path: Path, options: dict[str, Any], name: str, read: Callable[[], DataSet]) -> DataSet:
    """Return the data set of a file as it is kept, or else read it and keep it.

    Parameters
    ----------
    path
        The file.
    options
        How it is read: what would make another data set of the same file.
    name
        The name of the data set.
    read
        What reads it.
    """
    if path.stat().st_size < SMALL:
        return read()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20))
    digest.update(json.dumps([FORMAT, options], sort_keys=True).encode())
    kept = cache_folder() / "parsed" / f"{digest.hexdigest()}.npz"
    known = _recall(kept, name, str(path))
    if known is not None:
        return known
    data = read()
    _keep(kept, data)
    return data


def _recall(kept: Path, name: str, source: str) -> DataSet | None:
    """Return the data set cached in a file; None if there is no such file or it is damaged."""
    try:
        with kept.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return _from_arrays({key: arrays[key] for key in arrays.files}, name, source)
    except (OSError, EOFError, KeyError, TypeError, ValueError, MemoryError, NotImplementedError, zipfile.BadZipFile):
        return None


def _keep(kept: Path, data: DataSet) -> None:
    """Write a data set so that no half-written file is ever seen; where that cannot be done, do without."""
    part = None
    try:
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, part = tempfile.mkstemp(prefix=".", suffix=".part", dir=kept.parent)
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **_to_arrays(data))
        Path(part).replace(kept)
    except OSError:  # no such folder, no right to write, no room
        pass
    finally:
        if part is not None:
            with contextlib.suppress(OSError):
                Path(part).unlink(missing_ok=True)


def _to_arrays(data: DataSet) -> dict[str, Any]:
    arrays = {"y": data.y}
    if isinstance(data.X, np.ndarray):
        arrays["X"] = data.X
    else:
        arrays |= {"data": data.X.data, "indices": data.X.indices, "indptr": data.X.indptr}
        arrays["shape"] = np.array(data.X.shape)
    if data.site is not None:
        arrays["site"] = data.site
    if data.feature_names is not None:
        arrays["feature_names"] = np.array(data.feature_names)
    return arrays


def _from_arrays(arrays: dict[str, Array], name: str, source: str) -> DataSet:
    X: Any = arrays.get("X")
    if X is None:
        import scipy.sparse

        parts = (arrays["data"], arrays["indices"], arrays["indptr"])
        X = scipy.sparse.csr_array(parts, shape=tuple(int(n) for n in arrays["shape"]))
    y, site, names = arrays["y"], arrays.get("site"), arrays.get("feature_names")
    if X.shape[0] != len(y) or (site is not None and len(site) != len(y)):
        raise ValueError("the arrays do not belong together")
    return DataSet(name, X, y, site, None if names is None else tuple(map(str, names)), source)
