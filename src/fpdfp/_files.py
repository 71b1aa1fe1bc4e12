"""Files that are whole or absent: written next to the old one, flushed, renamed over it, with a digest at the end."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

#: Bytes of the digest at the end of a file.
SEAL = 32
#: Bytes that are read at a time.
PIECE = 1 << 20


def write_whole(path: Path, *pieces: bytes, flush: bool = False, private: bool = False) -> None:
    """Write a file so that readers see the old one or the new one; raise OSError and leave the old one.

    With ``flush`` a crash leaves one of them as well. A ``private`` file is for its owner alone.
    """
    with _replacing(path, flush=flush, private=private) as file:
        file.writelines(pieces)


@contextlib.contextmanager
def _replacing(path: Path, *, flush: bool, private: bool) -> Iterator[BinaryIO]:
    """Give a file that takes the place of the old one when it has been written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            if flush:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if flush:
        sync_directory(path.parent)


def write_sealed(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file with a digest at its end, so that a crash leaves the old one or the new one."""
    with _replacing(path, flush=True, private=True) as file:
        write(file)
        length = file.seek(0, os.SEEK_END)
        seal = _digest(file, length)
        file.seek(length)
        file.write(seal)


@contextlib.contextmanager
def open_sealed(path: Path) -> Iterator[BinaryIO]:
    """Open a file with a digest at its end, if that is right: a flipped bit anywhere is seen."""
    with path.open("rb") as file:
        length = max(file.seek(0, os.SEEK_END) - SEAL, 0)
        found = _digest(file, length)
        if file.read() != found:
            raise ValueError("it is cut off or damaged")
        file.seek(0)
        yield file


def read_sealed(path: Path) -> bytes:
    """Return the contents of a file with a digest at its end."""
    with open_sealed(path) as file:
        return file.read()[:-SEAL]


def _digest(file: BinaryIO, length: int) -> bytes:
    """Return the digest of the first a given number of bytes of a file, and leave it behind them."""
    summary = hashlib.sha256()
    file.seek(0)
    while length:
        piece = file.read(min(PIECE, length))
        summary.update(piece)
        length -= len(piece)
    return summary.digest()


def sync_directory(directory: Path) -> None:
    """Make a rename itself survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
