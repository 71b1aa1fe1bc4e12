"""An analyst's way to the sites: one message to the hub for all of them, and their replies."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import json
import logging
import queue
import statistics
import threading
import time
from collections.abc import Mapping
from typing import Any

from fpdfp.errors import AbsentError, MessageError
from fpdfp.federation.agent import renew, take_certificate
from fpdfp.federation.channel import LONGEST, PART, Backoff, LostError, Message, RefusedError, clock_difference
from fpdfp.federation.identity import Identity
from fpdfp.federation.line import Line

log = logging.getLogger("fpdfp.federation")
#: Requests to several sites go in one message of at most so many bytes, if there are more than one.
TOGETHER = 1 << 26
#: Exchanges that the latency is the median of; those with at most so many bytes, and with at least so many.
RECENT, SHORT, LONG = 50, 1 << 14, 1 << 18


@dataclasses.dataclass
class Measured:
    """What exchanges took, without the time for which sites computed."""

    latencies: collections.deque[float] = dataclasses.field(default_factory=lambda: collections.deque(maxlen=RECENT))
    rates: collections.deque[float] = dataclasses.field(default_factory=lambda: collections.deque(maxlen=RECENT))

    def note(self, seconds: float, length: int) -> None:
        """Take note of a request and its reply: how long they were under way, and their bytes."""
        if length <= SHORT:
            self.latencies.append(seconds)
        elif length >= LONG:
            self.rates.append(length / max(seconds - (self.latency or 0.0), 1e-6))

    @property
    def latency(self) -> float | None:
        """Seconds there and back for a short message; None before there was one."""
        return statistics.median(self.latencies) if self.latencies else None

    @property
    def bandwidth(self) -> float | None:
        """Bytes a second; None before there was a long message."""
        return statistics.median(self.rates) if self.rates else None


@dataclasses.dataclass
class SiteUsage:
    """What the exchanges with one site have cost so far."""

    waited: float = 0.0
    up: int = 0
    down: int = 0


@dataclasses.dataclass
class Usage:
    """What a federation has cost so far.

    Attributes
    ----------
    exchanges
        How often sites were asked.
    up, down
        Bytes from the hub to this process, and from here to the hub: sites' replies, and requests.
    waited
        Seconds for which this process has waited, in all.
    sites
        The same for each site: seconds until its replies came, and the bytes of requests and replies.
    """

    exchanges: int = 0
    up: int = 0
    down: int = 0
    waited: float = 0.0
    sites: dict[str, SiteUsage] = dataclasses.field(default_factory=lambda: collections.defaultdict(SiteUsage))


class Link:
    """A connection of an analyst to the hub, made when it is needed and again when it is lost.

    Parameters
    ----------
    identity
        Who the analyst is.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.measured, self.usage = Measured(), Usage()
        self._line: Line | None = None
        self._certificate = b""
        self._arrived: queue.SimpleQueue[Message | Exception] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._alone = threading.RLock()

    def close(self) -> None:
        """End the connection; the next exchange makes another."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def exchange(self, parcels: Mapping[str, bytes], timeout: float, limit: int = LONGEST) -> dict[str, Any]:
        """Send sites their requests; return by the deadline what came: bytes, or AbsentError.

        Where the connection is lost meanwhile, what was not answered is sent again. ``limit`` is the longest reply that
        is taken.
        """
        found: dict[str, Any] = {}
        with self._alone:
            started = time.monotonic()
            until = started + timeout
            try:
                while len(found) < len(parcels):
                    waiting = {name: parcel for name, parcel in parcels.items() if name not in found}
                    try:
                        line = self._connect(until)
                    except LostError as error:
                        found |= {name: AbsentError(str(error)) for name in waiting}
                        break
                    before = line.sent, line.received
                    try:
                        if self._ask(line, waiting, found, until, limit):
                            break
                    except LostError as error:
                        log.warning("%s", error)
                        self.close()
                    finally:
                        self.usage.down += line.sent - before[0]
                        self.usage.up += line.received - before[1]
            finally:
                self.usage.exchanges += 1
                self.usage.waited += time.monotonic() - started
        return found

    def status(self, timeout: float = 20.0) -> dict[str, Any]:
        """Return what the hub says of the sites."""
        with self._alone:
            until = time.monotonic() + timeout
            line = self._connect(until)
            number = next(self._numbers)
            line.send(Message("status", {"id": number}))
            while True:
                message = self._next(until)
                if message is None:
                    raise LostError(f"the hub has not answered within {timeout:g} s")
                if message.kind == "status" and message.about.get("id") == number:
                    return {**message.about, **json.loads(message.body)}

    def _ask(self, line: Line, waiting: dict[str, bytes], found: dict[str, Any], until: float, limit: int) -> bool:
        """Ask once; return whether the time is over."""
        line.limit(max(limit, PART))
        numbers = set()
        started = time.monotonic()
        for group in _groups(waiting):
            number = next(self._numbers)
            numbers.add(number)
            to = [[name, len(waiting[name])] for name in group]
            about = {"id": number, "to": to, "left": max(0.0, until - started)}
            line.send(Message("ask", about, b"".join(waiting[name] for name in group)))
        while any(name not in found for name in waiting):
            message = self._next(until)
            if message is None:
                return True
            site = message.about.get("site")
            if message.about.get("id") not in numbers or site not in waiting or site in found:
                continue  # late, or about something else
            if message.kind == "absent":
                found[site] = AbsentError(str(message.about.get("why"))[:200])
            elif message.kind == "reply":
                elapsed, busy = time.monotonic() - started, message.about.get("seconds")
                length = len(waiting[site]) + len(message.body)
                if isinstance(busy, int | float) and 0 <= busy <= elapsed:
                    self.measured.note(elapsed - busy, length)
                used = self.usage.sites[site]
                used.waited, used.up, used.down = (
                    used.waited + elapsed, used.up + len(message.body), used.down + len(waiting[site])
                )  # fmt: skip
                found[site] = message.body
                if message.dropped:
                    found[site] = MessageError(
                        f"it has {message.dropped} bytes, more than any that was asked for ({limit})"
                    )
        return False

    def _next(self, until: float) -> Message | None:
        """Return the next message; None when the time is over. Raise LostError where the connection is lost."""
        try:
            came = self._arrived.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return None
        if isinstance(came, RefusedError) and self.identity.credentials.certificate != self._certificate:
            raise LostError("the certificate was renewed by another process")
        if isinstance(came, Exception):
            self.close()
            raise came
        if came.kind == "certificate":
            take_certificate(self.identity, came)
        return came

    def _connect(self, until: float) -> Line:
        """Return the connection, or make one; raise LostError if there is none in time."""
        backoff = Backoff(longest=5.0)
        while self._line is None:
            credentials = self.identity.credentials
            try:
                line = Line(self.identity.about, credentials)
            except LostError as error:
                wait = backoff.seconds()
                if time.monotonic() + wait > until:
                    raise
                log.warning("%s; trying again", error)
                time.sleep(wait)
                continue
            self._certificate = credentials.certificate
            self._arrived = queue.SimpleQueue()
            threading.Thread(target=_read, args=(line, self._arrived), daemon=True).start()
            self._line = line
            difference = clock_difference(line.said)
            if difference is not None:
                log.warning("the clock of the hub is %s", difference)
            if self.identity.validity.is_due():
                log.warning("%s; it is being renewed", self.identity.warn())
                renew(self.identity, line)
        return self._line


def _read(line: Line, arrived: queue.SimpleQueue[Message | Exception]) -> None:
    with contextlib.suppress(GeneratorExit):
        try:
            for message in line:
                arrived.put(message)
        except Exception as error:
            arrived.put(error)


def _groups(parcels: Mapping[str, bytes]) -> list[list[str]]:
    """Return the names in groups whose parcels go in one message."""
    groups: list[list[str]] = []
    length = 0
    for name, parcel in parcels.items():
        if not groups or length + len(parcel) > TOGETHER:
            groups.append([])
            length = 0
        groups[-1].append(name)
        length += len(parcel)
    return groups
