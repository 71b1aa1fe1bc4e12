"""A site's log of what was asked and what left: lines of JSON, each with the hash of the one before.

A changed, removed or inserted line breaks the chain, and :func:`verify` says where. A log that was cut off at its end
is a valid chain: so the file ``audit.head`` next to it holds the number and the hash of the last line. Anyone who may
write the folder can write both anew. To notice that too, note the hash that :func:`verify` returns somewhere else now
and then, and give it to the next ``verify``. The hub and analysts remember lines too
(:mod:`fpdfp.federation.rollback`).

Every line is handed to the operating system before a reply leaves, so it survives the end of the process. It is forced
to the disk with every refusal, hold and first request of a run, and otherwise once a second: a power cut takes the
lines of a second at most. The head is written with these too, and otherwise every ten seconds.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import errno
import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fpdfp import _files as files
from fpdfp.federation.rollback import DIGITS, Anchor
from fpdfp.federation.text import log, printable

LOG, HEAD = "audit.jsonl", "audit.head"
#: Seconds after which lines are forced to the disk, and between two heads while nothing but answers is written.
EVERY, HEAD_EVERY = 1.0, 10.0
#: What the first line has in place of the hash of the one before.
NOTHING = "0" * 64


@dataclasses.dataclass(frozen=True)
class Entry:
    """A line of the log.

    Attributes
    ----------
    number, time
        Its number from 1, and the time by the site's clock.
    asker, role, fingerprint, study
        Who asked, as the hub says: the connection proves the hub, and the hub has checked the asker's certificate.
    run, kind, asked
        Of which run it is, its kind, and what was asked, in words.
    left
        How many bytes left.
    outcome
        ``"answered"``, ``"refused"``, ``"not released"`` or ``"failed"``.
    why
        The rule, and all detail; it stays here.
    spent
        What the ledger counts after it.
    before, hash
        The hash of the line before, and of this one.
    """

    number: int
    time: str
    asker: str
    role: str
    fingerprint: str
    study: str
    run: str
    kind: str
    asked: str
    left: int
    outcome: str
    why: str
    spent: dict[str, float]
    before: str
    hash: str = ""

    def sealed(self) -> Entry:
        """Return the entry with its hash."""
        return dataclasses.replace(self, hash=self.digest())

    def digest(self) -> str:
        """Return the hash of all other fields."""
        fields = {name: value for name, value in vars(self).items() if name != "hash"}
        return hashlib.sha256(json.dumps(fields, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    def __str__(self) -> str:
        why = f": {self.why}" if self.why else ""
        who = f"{self.asker} ({self.role}, key {self.fingerprint[:16]})"
        return f"{self.number}  {self.time}  {who}  {self.asked}  {self.outcome}{why}  {self.left} bytes left"


class Verdict(NamedTuple):
    """The result of a check of a log.

    Attributes
    ----------
    entries, hash
        How many lines there are, and the hash of the last.
    faults
        What is wrong, in words; empty if nothing is.
    """

    entries: int
    hash: str
    faults: tuple[str, ...]


class Audit:
    """The log of a site; one process writes it at a time.

    Parameters
    ----------
    folder
        The site's folder.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        handle = os.open(folder / LOG, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        # Without a buffer: a line that could not be written must not come later, in the place of another.
        self._file = os.fdopen(handle, "a+b", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise RuntimeError(f"another process answers for this site already: it has {folder / LOG} open") from None
        self._drop_half_line()
        verdict = verify(folder)
        if verdict.faults:
            self._file.close()
            raise RuntimeError(
                f"the log of this site is damaged ({verdict.faults[0]}): look into it, move {folder / LOG} and "
                f"{folder / HEAD} elsewhere, and start again"
            )
        self.last = last_entry(folder)
        self._syncing = threading.Lock()
        #: When the head was written last, and the last line that was forced to the disk.
        self._headed, self._synced = -HEAD_EVERY, self.last
        #: What forces lines to the disk that were not yet; None where there is nothing to force.
        self._later: threading.Timer | None = None
        #: Whether that has failed: then nothing is written that is not forced to the disk at once.
        self._failed = False

    def _drop_half_line(self) -> None:
        """Remove a line that a power cut has left unfinished: nothing was sent before its line was whole."""
        contents = (self.folder / LOG).read_bytes()
        if contents and not contents.endswith(b"\n"):
            self._file.truncate(contents.rfind(b"\n") + 1)

    @property
    def anchor(self) -> Anchor:
        """The others' record of this log: the number and the hash of its last line."""
        return Anchor(0, NOTHING[:DIGITS]) if self.last is None else Anchor(self.last.number, self.last.hash[:DIGITS])

    def has(self, anchor: Anchor) -> bool:
        """Whether a line that others remember is one of this log."""
        hashes = (entry.hash for entry in entries(self.folder) if entry.number == anchor.number)
        return anchor.number == 0 or any(one.startswith(anchor.hash) for one in hashes)

    def append(self, *, sync: bool = False, **fields: Any) -> Entry:
        """Write a line; with ``sync`` it is on the disk when this returns. Raise OSError where it cannot be written.

        Without it, it is a second later, by a thread: requests do not wait for the disk. A line that is written and
        cannot be forced to the disk stays: the log may say that more left than did.
        """
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        fields = {name: printable(value) if isinstance(value, str) else value for name, value in fields.items()}
        number, before = (0, NOTHING) if self.last is None else (self.last.number, self.last.hash)
        entry = Entry(number=number + 1, time=now, before=before, **fields).sealed()
        self._write(json.dumps(vars(entry), ensure_ascii=False).encode() + b"\n")
        self.last = entry
        if sync or self._failed or number == 0:  # the first line has its head from the start
            self.sync()
        elif self._later is None:
            self._start_timer()
        return entry

    def _start_timer(self) -> None:
        self._later = threading.Timer(EVERY, self._sync_later)
        self._later.daemon = True
        self._later.start()

    def _write(self, line: bytes) -> None:
        """Write a line, all of it or none."""
        length = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            self._file.truncate(length)
            raise

    def sync(self, *, head: bool = True) -> None:
        """Force all lines to the disk, and write the head."""
        with self._syncing:
            last, handle = self.last, self._file.fileno()
            if last is not self._synced:
                os.fsync(handle)
                self._synced = last
            if last is not None and head:
                contents = json.dumps({"number": last.number, "hash": last.hash}).encode()
                files.write_whole(self.folder / HEAD, contents, flush=True, private=True)
                self._headed = time.monotonic()
            self._failed = False

    def _sync_later(self) -> None:
        self._later = None
        try:
            # A head is a file of its own, and takes the disk twice as long as all lines of a second.
            due = time.monotonic() - self._headed >= HEAD_EVERY
            self.sync(head=due)
            if not due and self._later is None:
                self._start_timer()
        except OSError as error:
            self._failed = True
            log.error("the log of this site cannot be forced to the disk: %s", error)
        except ValueError:
            return  # it was closed meanwhile, and forced to the disk then

    def close(self) -> None:
        """Force everything to the disk, and let another process write."""
        if self._later is not None:
            self._later.cancel()
        if not self._file.closed:
            try:
                self.sync()
            finally:
                with self._syncing:
                    self._file.close()


def entries(folder: Path) -> Iterator[Entry]:
    """Yield the lines of a log; raise ValueError, with its number, for one that is not valid."""
    try:
        lines = (folder / LOG).read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    if lines[-1]:
        raise ValueError(f"line {len(lines)} is cut off")
    for number, line in enumerate(lines[:-1], 1):
        try:
            yield Entry(**json.loads(line))
        except (ValueError, TypeError):
            raise ValueError(f"line {number} cannot be read") from None


def last_entry(folder: Path) -> Entry | None:
    """Return the last line of a log, None if it has none."""
    found = collections.deque(entries(folder), maxlen=1)
    return found[0] if found else None


def verify(folder: Path, known: str | None = None) -> Verdict:
    """Check a log: that every line follows from the one before, and that none is missing at the end.

    ``known`` is a hash that was noted earlier: it must belong to some line.
    """
    faults, number, before, seen = [], 0, NOTHING, {NOTHING}
    hashes = [NOTHING]
    try:
        for entry in entries(folder):
            number += 1
            if entry.number != number or entry.before != before:
                faults.append(f"line {number} does not follow from the one before it: a line was removed or inserted")
                break
            if entry.hash != entry.digest():
                faults.append(f"line {number} was changed")
                break
            before = entry.hash
            seen.add(before)
            hashes.append(before)
    except ValueError as error:
        faults.append(str(error))
    if not faults:
        faults += _compare_head(folder, hashes)
    if not faults and known is not None and known not in seen:
        faults.append(f"no line has the hash {known}: the log was written anew")
    return Verdict(number, before, tuple(faults))


def _compare_head(folder: Path, hashes: list[str]) -> list[str]:
    try:
        head = json.loads((folder / HEAD).read_bytes())
        number, last = int(head["number"]), str(head["hash"])
    except FileNotFoundError:
        return [] if len(hashes) == 1 else ["the file audit.head is missing"]
    except (ValueError, KeyError, TypeError):
        return ["the file audit.head cannot be read"]
    if number >= len(hashes):
        return [f"there are {len(hashes) - 1} lines, and there were {number}: the end was cut off"]
    return [] if hashes[number] == last else [f"line {number} is not the one that was written last"]
