"""Files that are whole or absent: written beside the old one, flushed, renamed over it, with a digest at the end."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

#: Bytes of the digest at the end of a file.
SEAL = 32


def write_whole(path: Path, *pieces: bytes, flush: bool = False, private: bool = False) -> None:
    """Write a file so that readers see the old one or the new one; raise OSError and leave the old one.

    With ``flush`` a crash leaves one of them as well. A ``private`` file is for its owner alone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            if flush:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if flush:
        sync_directory(path.parent)


def write_sealed(path: Path, contents: bytes) -> None:
    """Write a file with a digest at its end, so that a crash leaves the old one or the new one."""
    write_whole(path, contents, hashlib.sha256(contents).digest(), flush=True, private=True)


def read_sealed(path: Path) -> bytes:
    """Return the contents of a file if its digest is right: a flipped bit anywhere is seen."""
    return unseal(path.read_bytes())


def unseal(sealed: bytes) -> bytes:
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
