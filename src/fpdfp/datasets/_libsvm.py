"""Reading files in the LIBSVM text format: ``label index:value index:value …``, indices from 1."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fpdfp._typing import Array
from fpdfp.datasets import _packed
from fpdfp.errors import ArgumentError, DataSetError


def read(path: Path, n_features: int | None) -> tuple[Any, Array, str]:
    """Return X, y and the sha256 of the unpacked text."""
    from sklearn.datasets import load_svmlight_file

    with _packed.unpack(path) as file:
        lines = Lines(path, file)
        try:
            X, y = load_svmlight_file(lines, zero_based=False)
        except (ValueError, OverflowError) as error:
            raise DataSetError(f"{path}, line {lines.number}: {_wrong(lines.line, error)}") from None
    if len(y) == 0:
        raise DataSetError(f"{path} holds no rows")
    _refuse_nonfinite(path, X, y)
    return _with_columns(path, X, n_features), y, lines.sha256()


class Lines:
    """The lines of a file, counted and digested as they are handed out, so that an error can name its line."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._digest = hashlib.sha256()
        self.number = 0
        self.line = b""

    def read(self) -> bytes:
        """What makes this a file to scikit-learn, which takes the lines one by one."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[bytes]:
        while batch := self._file.readlines(1 << 20):
            self._digest.update(b"".join(batch))
            for line in batch:
                self.number += 1
                self.line = line
                if b"qid:" in line and b"qid:" in line.partition(b"#")[0]:  # scikit-learn would pass over it
                    raise DataSetError(
                        f"{self._path}, line {self.number}: rows grouped by query (qid) are not supported; "
                        "remove the qid entries"
                    )
                yield line

    def sha256(self) -> str:
        """Return the digest of what was handed out."""
        return self._digest.hexdigest()


def _wrong(line: bytes, error: Exception) -> str:
    """Return what is wrong with a line."""
    label, *entries = (part.decode("utf-8", "replace") for part in line.partition(b"#")[0].split())
    if "," in label:
        return f"the label {label!r} is a list; files with several labels a row are not supported"
    if not _parses(float, label):
        return f"the label {label!r} is not a number; a line must read 'label index:value index:value …'"
    previous = 0
    for entry in entries:
        index, colon, value = entry.partition(":")
        if not colon or not _parses(int, index) or not _parses(float, value):
            return f"{entry!r} is not of the form index:value"
        number = int(index)
        if number < 1:
            return f"{entry!r} has index {number}, but indices count from 1"
        if number <= previous:
            return f"{entry!r} comes after index {previous}, but indices must increase"
        previous = number
    return str(error)


def _parses(kind: type, text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def _refuse_nonfinite(path: Path, X: Any, y: Array) -> None:
    bad = np.flatnonzero(~np.isfinite(y))
    if bad.size:
        raise DataSetError(f"{path}, row {bad[0] + 1}: the label is {y[bad[0]]}; labels must be finite")
    bad = np.flatnonzero(~np.isfinite(X.data))
    if bad.size:
        row = int(np.searchsorted(X.indptr, bad[0], side="right"))
        raise DataSetError(
            f"{path}, row {row}: feature {X.indices[bad[0]] + 1} is {X.data[bad[0]]}; values must be finite"
        )


def _with_columns(path: Path, X: Any, n_features: int | None) -> Any:
    """Return X as a CSR array with so many columns, or as many as it needs, and with the smallest indices that do."""
    import scipy.sparse

    largest = int(X.indices.max()) + 1 if X.nnz else 0
    if n_features is None:
        n_features = largest
        if n_features == 0:
            raise DataSetError(f"{path} holds no features: every row is a label alone")
    elif largest > n_features:
        row = int(np.searchsorted(X.indptr, int(X.indices.argmax()), side="right"))
        raise ArgumentError("n_features", f"is {n_features}, but row {row} of {path} has a feature of index {largest}")
    size = np.int32 if max(X.nnz, n_features) <= np.iinfo(np.int32).max else np.int64
    parts = (X.data, X.indices.astype(size), X.indptr.astype(size))
    return scipy.sparse.csr_array(parts, shape=(X.shape[0], n_features))
