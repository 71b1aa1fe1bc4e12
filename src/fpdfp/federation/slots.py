"""A file of places of one length that a site writes in place, and that outlives the process."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path


class Slots:
    """A file of places of one length, for its owner alone.

    What is written is not forced to the disk: it outlives a process that is killed; a power cut may cost the last
    seconds.

    Parameters
    ----------
    path
        The file; it is made when it is first written to.
    length
        The bytes of a place.
    """

    def __init__(self, path: Path, length: int) -> None:
        self.path, self.length = path, length
        self._file = -1

    def __iter__(self) -> Iterator[bytes]:
        """Yield what is in the places; what a power cut has left of the last is left out."""
        if self.path.exists():
            contents = self.path.read_bytes()
            for start in range(0, len(contents) - self.length + 1, self.length):
                yield contents[start : start + self.length]

    def write(self, place: int, content: bytes) -> None:
        """Write a place; raise OSError where there is no room."""
        if self._file < 0:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        if os.pwrite(self._file, content, place * self.length) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self) -> None:
        """Force what was written to the disk."""
        if self._file >= 0:
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def remove(self) -> None:
        """Close the file, and remove it."""
        self.close()
        self.path.unlink(missing_ok=True)


def say_full(error: OSError) -> str:
    """Say that nothing leaves since it cannot be written down: it is asked again, until it can."""
    return f"this site cannot write to its disk ({error.strerror}), and nothing leaves until it can"
