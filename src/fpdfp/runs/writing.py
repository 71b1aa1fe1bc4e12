"""Files of a run folder: complete at any moment, written beside the old one and renamed over it."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._array import to_host
from fpdfp._sections import plain
from fpdfp.engines import files
from fpdfp.engines.checkpoint import to_archive
from fpdfp.engines.result import History
from fpdfp.errors import StorageError


def write(path: Path, contents: bytes, *, flush: bool = False) -> None:
    """Write a file so that readers see the old one or the new one; with ``flush`` a power cut does as well."""
    try:
        files.write_whole(path, contents, flush=flush)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"{path} could not be written ({reason}); the old files are intact") from error


def write_json(path: Path, value: Any, *, flush: bool = False) -> None:
    """Write strict JSON: what is not a finite number becomes null."""
    text = json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False)
    write(path, (text + "\n").encode(), flush=flush)


def write_arrays(path: Path, arrays: Mapping[str, Any], *, flush: bool = False) -> None:
    """Write an ``.npz`` archive."""
    plain = {name: np.asarray(to_host(array)) for name, array in arrays.items()}
    write(path, to_archive(plain), flush=flush)


def write_history(folder: Path, history: History, form: str, *, flush: bool = False) -> None:
    """Write the table of a run, as CSV or as Parquet."""
    if form == "csv":
        write(folder / "history.csv", history.as_csv().encode(), flush=flush)
        return
    pyarrow, parquet = arrow()
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table({name: history[name] for name in history}), buffer)
    write(folder / "history.parquet", buffer.getvalue(), flush=flush)


def arrow() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module; raise an error that says how to install them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install 'fpdfp[parquet]'") from None
    return pyarrow, pyarrow.parquet
