"""Files that are whole or absent: written beside the old one, flushed, renamed over it, with a digest at the end."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

#: Bytes of the digest at the end of a file.
SEAL = 32


def write_sealed(path: Path, contents: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one; raise OSError and leave the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(contents)
            file.write(hashlib.sha256(contents).digest())
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def read_sealed(path: Path) -> bytes:
    """Return the contents of a file if its digest is right: a flipped bit anywhere is seen."""
    return opened(path.read_bytes())


def opened(sealed: bytes) -> bytes:
    """Return what is before the digest, if that is right."""
    contents, seal = sealed[:-SEAL], sealed[-SEAL:]
    if hashlib.sha256(contents).digest() != seal:
        raise ValueError("it is cut off or damaged")
    return contents


def sync_directory(directory: Path) -> None:
    """Make a rename itself survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
