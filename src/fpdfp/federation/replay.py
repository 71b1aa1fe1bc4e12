"""The numbers of the last requests of runs, in a file that outlives the process: older requests are refused."""

from __future__ import annotations

import collections
import hashlib
import struct
import time
from pathlib import Path

from fpdfp.engines import files
from fpdfp.errors import MessageError
from fpdfp.federation.slots import Slots, say_full
from fpdfp.federation.text import read_name

FILE = "seen.fpdfp"
#: Of how many runs the last request is known.
RUNS = 1000
#: A line of the file: a run by its digest, and the number of a request. Longer files are written anew.
LINE, LINES = struct.Struct("<16sq"), 16 * RUNS
#: How far the number of a request, which is a time in nanoseconds, may be ahead of this machine's clock: a week.
DAY = 24 * 3600 * 10**9
AHEAD = 7 * DAY


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
    fpdfp.federation.replay.OlderError: a request is older than one that was answered (1, 2)
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

        Runs are told apart by who asks as well: nobody can use up the numbers of another one's run.
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
