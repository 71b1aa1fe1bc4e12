"""Protection against rollback: the numbers of requests at a site, and the last lines of sites' logs elsewhere.

A site refuses a request that is older than one of its run (:class:`ReplayGuard`); the numbers are in a file of slots
that outlives the process.

A site's log is a chain of hashes (:mod:`fpdfp.federation.audit`), and each line describes what the site has spent.
Anyone who may write the site's folder can put an older copy of all of it in its place. So others remember the number
and the hash of a line (:class:`Anchors`): the hub of each site, and each analyst of those that have answered. A site
says the number and hash of its last line when it connects, and with its answers now and then. A log that has become
shorter, or has another line of that number, is named and refused, until the coordinator accepts it (``fpdfp federation
forget``).
"""

from __future__ import annotations

import collections
import errno
import hashlib
import json
import os
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fpdfp import _files as files
from fpdfp.errors import MessageError
from fpdfp.federation.text import read_name

FILE = "seen.fpdfp"
#: Of how many runs the last request is known.
RUNS = 1000
#: A line of the file: a run by its digest, and the number of a request. Longer files are written anew.
LINE, LINES = struct.Struct("<16sq"), 16 * RUNS
#: How far the number of a request, which is a time in nanoseconds, may be ahead of this machine's clock: a week.
DAY = 24 * 3600 * 10**9
AHEAD = 7 * DAY
ANCHORS = "anchors.json"
FORMAT = 1
#: Seconds between two anchors that are sent on a connection, and between two times at which a file of them is written.
EVERY = 10.0
#: This many digits of a hash are sent and kept: 64 bits.
DIGITS = 16


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
        """Yield what is in the places; what a power cut has left of the last is excluded."""
        if self.path.exists():
            contents = self.path.read_bytes()
            for start in range(0, len(contents) - self.length + 1, self.length):
                yield contents[start : start + self.length]

    def write(self, place: int, content: bytes) -> None:
        """Write a place; raise OSError if the disk is full."""
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


class OlderError(MessageError):
    """A request is older than one of its run that was answered."""

    def __init__(self, sequence: int, seen: int) -> None:
        super().__init__(f"a request is older than one that was answered ({sequence}, {seen})")
        self.seen = seen


class ReplayGuard:
    """The numbers of the last requests of runs, so that older ones are refused; the same one may come again.

    A number is written before its request is answered.

    Parameters
    ----------
    folder
        The site's folder; None for memory alone.

    Examples
    --------
    >>> seen = ReplayGuard()
    >>> seen.check("run", 2)
    >>> seen.check("run", 1)
    Traceback (most recent call last):
      ...
    fpdfp.federation.rollback.OlderError: a request is older than one that was answered (1, 2)
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._runs: collections.OrderedDict[bytes, int] = collections.OrderedDict()
        self._slots = None if folder is None else Slots(folder / FILE, LINE.size)
        self._lines = 0
        for line in self._slots or ():
            self._keep(*LINE.unpack(line))
            self._lines += 1

    def knows(self, run: str, asker: str) -> bool:
        """Whether a run is one of those whose last request is known."""
        return _digest(run, asker) in self._runs

    def check(self, run: str, sequence: int, asker: str = "") -> None:
        """Refuse a request that is older than one of its run, and take note of it.

        Runs are distinguished by who asks as well: no one can use up the numbers of another one's run.
        """
        try:
            read_name("the name of a run", run)
        except ValueError as error:
            raise MessageError(str(error)) from None
        if not 0 <= sequence < 1 << 63:
            raise MessageError("the number of a request must have at most 63 bits, and no sign")
        if sequence > time.time_ns() + AHEAD:
            days = (sequence - time.time_ns()) / DAY
            raise MessageError(
                f"the number of a request is the time at which it is sent, and this one is {days:.0f} days ahead of "
                "this site's clock: set the clock, or the number would block the run"
            )
        name = _digest(run, asker)
        seen = self._runs.get(name, -1)
        if sequence < seen:
            raise OlderError(sequence, seen)
        if sequence > seen:
            try:
                self._write(name, sequence)
            except OSError as error:
                raise MessageError(say_full(error)) from None
        self._keep(name, sequence)

    def close(self) -> None:
        """Close the file."""
        if self._slots is not None:
            self._slots.close()

    def _keep(self, name: bytes, sequence: int) -> None:
        self._runs[name] = sequence
        self._runs.move_to_end(name)
        if len(self._runs) > RUNS:
            self._runs.popitem(last=False)

    def _write(self, name: bytes, sequence: int) -> None:
        if self._slots is None:
            return
        if self._lines >= LINES:
            self._slots.close()
            lines = [LINE.pack(*one) for one in self._runs.items()]
            files.write_whole(self._slots.path, *lines, flush=True, private=True)
            self._lines = len(lines)
        self._slots.write(self._lines, LINE.pack(name, sequence))
        if name not in self._runs:
            self._slots.sync()  # as its first line in the log is
        self._lines += 1


def _digest(run: str, asker: str) -> bytes:
    return hashlib.sha256(f"{asker} {run}".encode()).digest()[:16]


class Anchor(NamedTuple):
    """A line of a log: its number and the beginning of its hash."""

    number: int
    hash: str


def read_anchor(value: Any) -> Anchor | None:
    """Return what a peer says about its log; None where it says nothing that can be understood."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    number, digest = value
    if type(number) is not int or not 0 <= number < 1 << 53 or re.fullmatch("[0-9a-f]{16}", str(digest)) is None:
        return None
    return Anchor(number, str(digest))


class Anchors:
    """The lines of sites' logs that are remembered, in a file.

    Parameters
    ----------
    folder
        Where the file is.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     anchors = Anchors(Path(folder))
    ...     print([anchors.check("north", Anchor(number, "0" * 16), "first") for number in (7, 9, 8)])
    [None, None, 'its log has 8 lines, and had 9: an older one was put in its place']
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / ANCHORS
        self._known: dict[str, tuple[Anchor, str]] = {}
        self._saved, self._changed = -EVERY, False
        if self.path.exists():
            try:
                tree = json.loads(self.path.read_bytes())
                written = tree["format"]
                if written == FORMAT:
                    self._known = {site: (Anchor(*anchor), str(era)) for site, (anchor, era) in tree["sites"].items()}
            except (ValueError, KeyError, TypeError, AttributeError):
                raise ValueError(f"{self.path} cannot be read: restore it, or remove it if you know why") from None
            if written != FORMAT:
                raise ValueError(f"{self.path} has format {written}; this release reads format {FORMAT}")

    def era(self, site: str) -> str:
        """Return since which beginning of its log a site is remembered; empty for one that is not."""
        return self._known.get(site, (None, ""))[1]

    def of(self, site: str, era: str) -> Anchor | None:
        """Return what is remembered of a site since its log began, or was accepted."""
        anchor, known = self._known.get(site, (None, ""))
        return anchor if known == era else None

    def check(self, site: str, said: Anchor | None, era: str) -> str | None:
        """Remember what a site says about its log; return what is wrong with it, if anything."""
        wrong, known = self.compare(site, said, era), self.of(site, era)
        if wrong is None and said is not None and said != known:
            self._known[site] = said, era
            self._changed = True
        return wrong

    def compare(self, site: str, said: Anchor | None, era: str) -> str | None:
        """Return what is wrong with what a site says about its log, if anything."""
        known = self.of(site, era)
        if said is None:
            return None if known is None else "it does not say how long its log is, and has said so before"
        if known is not None and said.number < known.number:
            return f"its log has {said.number} lines, and had {known.number}: an older one was put in its place"
        if known is not None and said.number == known.number and said.hash != known.hash:
            return f"line {said.number} of its log is another than before: another log was put in its place"
        return None

    def save(self, *, at_once: bool = False) -> None:
        """Write the file if something has changed, and it was not written just now."""
        if not self._changed or (not at_once and time.monotonic() - self._saved < EVERY):
            return
        tree = {"format": FORMAT, "sites": self._known}
        files.write_whole(self.path, json.dumps(tree, indent=1).encode(), private=True)
        self._saved, self._changed = time.monotonic(), False
