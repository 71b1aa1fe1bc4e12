"""Files, compressed or not, and the cache of arrays that were read from them."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import io
import json
import lzma
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.errors import DataSetError

#: The name endings of compressed files; whether a file is compressed is decided by its first bytes.
ENDINGS = (".xz", ".bz2", ".gz")
#: The version of the cache: files of other versions are not read.
FORMAT = 3
#: Smaller files are not cached: reading them again takes no longer.
SMALL = 1 << 16

_MAGIC: tuple[tuple[bytes, str, Any], ...] = (
    (b"\xfd7zXZ\x00", "xz", lzma.open),
    (b"BZh", "bzip2", bz2.open),
    (b"\x1f\x8b", "gzip", gzip.open),
)
_DAMAGE = (EOFError, lzma.LZMAError, zlib.error, OSError)


class _Digested(io.RawIOBase):
    """A stream that updates a digest with the bytes that are read from it."""

    def __init__(self, stream: Any, digest: Any) -> None:
        self._stream = stream
        self._digest = digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._stream.readinto(buffer)
        self._digest.update(memoryview(buffer)[:count])
        return count


@contextlib.contextmanager
def unpack(path: Path, digest: Any = None) -> Iterator[io.BufferedReader]:
    """Open a file for reading, decompressed if necessary; damage raises a ``DataSetError``.

    ``digest``, an object of :mod:`hashlib`, is updated with the decompressed bytes.
    """
    with path.open("rb") as file:
        first = file.read(8)
    kind, opener = next((how for magic, *how in _MAGIC if first.startswith(magic)), (None, open))
    try:
        with opener(path, "rb") as stream:
            # the buffer returns lines without a call into Python for each
            yield io.BufferedReader(stream if digest is None else _Digested(stream, digest), 1 << 20)
    except _DAMAGE as error:
        raise _damaged(path, kind, error) from error
    except (DataSetError, ValueError):
        # an error in the text may be damage that the checksum at the end of the file would have shown
        try:
            with opener(path, "rb") as stream:
                while kind is not None and stream.read(1 << 20):
                    pass
        except _DAMAGE as error:
            raise _damaged(path, kind, error) from error
        raise


def _damaged(path: Path, kind: str | None, error: BaseException) -> BaseException:
    if kind is None or (isinstance(error, OSError) and error.errno is not None):  # of the disk, not of the format
        return error
    return DataSetError(f"{path} is cut off or damaged: it starts as a {kind} file, but {error}")


def sha256(path: Path) -> str:
    """Return the digest of the unpacked file."""
    with unpack(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def without_ending(name: str) -> str:
    """Return a file's name without the ending of a compressed file.

    >>> without_ending("people.csv.gz")
    'people.csv'
    """
    ending = next((ending for ending in ENDINGS if name.lower().endswith(ending)), "")
    return name[: len(name) - len(ending)]


def find(folder: Path, file: str) -> Path | None:
    """Return the path of a file in a folder, plain or compressed; None if it is not there."""
    places = (folder / (file + ending) for ending in ("", *ENDINGS))
    return next((path for path in places if path.is_file()), None)


def cache_folder() -> Path:
    """Return the user's cache of this package; ``FPDFP_CACHE`` names another."""
    chosen = os.environ.get("FPDFP_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("fpdfp"))


def cached(
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
    arrays = _load(stored)
    if arrays is None:
        arrays = read()
        _store(stored, {name: array for name, array in arrays.items() if array is not None})
    return arrays


def _load(stored: Path) -> dict[str, Array | None] | None:
    """Return the arrays of a file of the cache; None if there is no such file or it is damaged."""
    try:
        with stored.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
            rows = [len(arrays[name]) for name in ("X", "y", "site") if name in arrays]
            if "indptr" in arrays:
                rows.append(len(arrays["indptr"]) - 1)
            return dict(arrays) if "y" in arrays and len(rows) > 1 and len(set(rows)) == 1 else None
    except (OSError, EOFError, KeyError, TypeError, ValueError, MemoryError, NotImplementedError, zipfile.BadZipFile):
        return None


def _store(stored: Path, arrays: dict[str, Array]) -> None:
    """Write arrays beside their file and rename it, so that no reader sees half a file; do nothing if that fails."""
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
