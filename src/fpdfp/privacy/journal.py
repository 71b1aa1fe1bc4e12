"""A journal: records that are on disk before a reply leaves, and that survive a crash at any byte.

A record is its length (4 bytes), its contents, and the SHA-256 of the record before it and these contents. So records
cannot be exchanged, changed or removed from the middle without notice. A record that a crash has cut off is at the end,
and its reply never left: it is removed when the journal is opened. A journal that lacks whole records at its end is
valid in itself; who keeps :attr:`Journal.head` elsewhere notices that too.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from typing import BinaryIO

from fpdfp import _files as files

#: The first bytes of the file; their digest is what the first record follows.
START = b"fpdfp journal 1\n"
LENGTH, DIGEST = 4, 32
#: The longest contents of a record.
LONGEST = 1 << 20


class Journal:
    """Records in a file, one after the other; one process at a time has it open.

    Parameters
    ----------
    path
        The file, created if missing.

    Attributes
    ----------
    records
        The contents of all records, the oldest first.
    head
        The digest of the last record.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Journal(Path(folder.name) / "sums.journal") as journal:
    ...     journal.append(b"one")
    >>> with Journal(Path(folder.name) / "sums.journal") as journal:
    ...     journal.records
    [b'one']
    >>> folder.cleanup()
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.records: list[bytes] = []
        self.head = hashlib.sha256(START).digest()
        new = not self.path.exists()
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        self._file: BinaryIO = os.fdopen(handle, "r+b", buffering=0)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RuntimeError(f"{self.path} is open in another process") from None
            self._end = self._read(self._file.read())
            self._file.truncate(self._end)
            if self._end == 0:
                self._write(START)
            if new:
                files.sync_directory(self.path.parent)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def append(self, contents: bytes) -> None:
        """Write a record, and return when it is on disk."""
        if len(contents) > LONGEST:
            raise ValueError(f"a record must have at most {LONGEST} bytes, got {len(contents)}")
        head = hashlib.sha256(self.head + contents).digest()
        self._write(len(contents).to_bytes(LENGTH, "big") + contents + head)
        self.records.append(contents)
        self.head = head

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, data: bytes) -> None:
        """Write at the end, all or nothing: after an error what is half written is removed."""
        try:
            self._file.seek(self._end)
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
            os.fsync(self._file.fileno())
        except BaseException:
            self._file.truncate(self._end)
            raise
        self._end += len(data)

    def _read(self, data: bytes) -> int:
        """Read all records; return where the last whole one ends."""
        if START.startswith(data[: len(START)]) and len(data) < len(START):
            return 0
        if not data.startswith(START):
            raise RuntimeError(f"{self.path} is not a journal")
        place = len(START)
        while place + LENGTH <= len(data):
            length = int.from_bytes(data[place : place + LENGTH], "big")
            end = place + LENGTH + length + DIGEST
            if length > LONGEST:
                raise RuntimeError(f"{self.path} is damaged at byte {place}")
            if end > len(data):
                break
            contents = data[place + LENGTH : end - DIGEST]
            head = hashlib.sha256(self.head + contents).digest()
            if head != data[end - DIGEST : end]:
                raise RuntimeError(f"{self.path} is damaged at byte {place}")
            self.records.append(contents)
            self.head, place = head, end
        return place
