"""Files that may be compressed: recognised by their first bytes, read as if they were not."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fpdfp.errors import DataSetError

#: The name endings of compressed files; whether a file is compressed is decided by its first bytes.
ENDINGS = (".xz", ".bz2", ".gz")

_MAGIC: tuple[tuple[bytes, str, Any], ...] = (
    (b"\xfd7zXZ\x00", "xz", lzma.open),
    (b"BZh", "bzip2", bz2.open),
    (b"\x1f\x8b", "gzip", gzip.open),
)


@contextmanager
def unpack(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file for reading, decompressed if necessary; damage raises a ``DataSetError``."""
    with path.open("rb") as file:
        first = file.read(8)
        file.seek(0)
        found = next((how for magic, *how in _MAGIC if first.startswith(magic)), None)
        if found is None:
            yield file
            return
        kind, opener = found
        try:
            # the buffer hands out lines without a call into Python for each
            with opener(file) as stream, io.BufferedReader(stream, 1 << 20) as buffered:
                yield buffered
        except _DAMAGE as error:
            raise _damaged(path, kind, error) from error
        except (DataSetError, ValueError):
            # an error in the text may be damage that the checksum at the end of the file would have shown
            file.seek(0)
            try:
                with opener(file) as stream:
                    while stream.read(1 << 20):
                        pass
            except _DAMAGE as error:
                raise _damaged(path, kind, error) from error
            raise


_DAMAGE = (EOFError, lzma.LZMAError, zlib.error, OSError)


def _damaged(path: Path, kind: str, error: BaseException) -> BaseException:
    if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of the format
        return error
    return DataSetError(f"{path} is cut off or damaged: it starts as a {kind} file, but {error}")


def sha256(path: Path) -> str:
    """Return the digest of the unpacked file."""
    digest = hashlib.sha256()
    with unpack(path) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def without_ending(name: str) -> str:
    """Return a file's name without the ending of a compressed file.

    >>> without_ending("people.csv.gz")
    'people.csv'
    """
    for ending in ENDINGS:
        if name.lower().endswith(ending):
            return name[: -len(ending)]
    return name
