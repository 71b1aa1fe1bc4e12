"""Waiting for sites: deadlines, retries, and replies, which are checked, decoded, put together or refused."""

from __future__ import annotations

import abc
import collections
import contextlib
import dataclasses
import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts import spec
from fpdfp.cohorts.question import Columns, tuple_kind
from fpdfp.cohorts.requests import Job, Reply, Request
from fpdfp.cohorts.rounds import Update, WorkDone
from fpdfp.cohorts.serialization import pack
from fpdfp.cohorts.session import Session
from fpdfp.cohorts.site import shorten
from fpdfp.cohorts.validation import NUMBER
from fpdfp.compress import Compressor
from fpdfp.compress.plain import plain_bits
from fpdfp.errors import AbsentError, DivergenceError, MessageError, StoppedError
from fpdfp.precondition.cost import Network
from fpdfp.quadratic.statement import Work
from fpdfp.traffic import NOTHING, Bits, Carried, payload

#: The largest number that a reply may hold, by its bytes: its square is still a number.
LARGEST = {4: 1e18, 8: NUMBER}


class DivergedError(MessageError):
    """A site's numbers are no longer of a reasonable size."""


class Decoded(NamedTuple):
    """A site's messages as arrays, one for each field, with a row for each client; their bits, and what they cost."""

    clients: IntArray
    fields: tuple[str, ...]
    arrays: list[Array]
    bits: int
    work: Work = Work()

    @property
    def shapes(self) -> list[Shape]:
        """Of one client's arrays."""
        return [array.shape[1:] for array in self.arrays]


class Arrived(NamedTuple):
    """The replies of a round: whose they are, their decoded values, bits and costs."""

    clients: IntArray
    sent: Any
    bits: int
    work: Work


def decode(
    part: WorkDone | Columns,
    clients: IntArray,
    shapes: Mapping[str, Shape],
    compressors: Mapping[str, Compressor],
    dtype: np.dtype[Any],
    device: str = "cpu",
    norm_bound: float | None = None,
) -> Decoded:
    """Return a site's messages as arrays; raise MessageError for anything that is not what was requested."""
    frames, bits = part.frames, part.bits
    if set(frames) != set(shapes) or bits is None or bits.shape != (len(shapes), len(clients)):
        raise MessageError(f"a reply must have the fields {sorted(shapes)} and bits for {len(clients)} clients")
    arrays = []
    for field, (name, shape) in enumerate(shapes.items()):
        if len(frames[name]) != len(clients):
            raise MessageError(f"a reply must have a message of each of the {len(clients)} clients in {name!r}")
        lengths = np.array([8 * len(frame) for frame in frames[name]])
        if ((lengths - bits[field] < 0) | (lengths - bits[field] >= 8)).any():
            raise MessageError(f"the messages in {name!r} are not as long as the reply says")
        numbers = compressors[name].decode(frames[name], shape, dtype, device)
        if numbers.size and float(abs(numbers).max()) > LARGEST[numbers.dtype.itemsize]:
            raise DivergedError(f"the numbers in {name!r} are too large")
        arrays.append(shorten(numbers, norm_bound))
    return Decoded(np.asarray(clients), tuple(shapes), arrays, int(bits.sum()))


def decode_update(part: WorkDone, *how: Any) -> Decoded:
    """Return a round's messages of a site as arrays (:func:`decode`), with what they cost."""
    if part.diverged:
        raise DivergedError("its numbers are no longer finite")
    return decode(part, *how)._replace(work=Work(*part.work))


def decode_once(part: Columns, clients: IntArray, messages: Mapping[str, tuple[Compressor, Shape]]) -> Decoded:
    """Return what a site's clients send once; raise MessageError for anything that cannot be what was requested."""
    if messages:
        shapes = {name: shape for name, (_, shape) in messages.items()}
        compressors = {name: compressor for name, (compressor, _) in messages.items()}
        return decode(part, clients, shapes, compressors, np.dtype(np.float32))
    if not part.fields or len(part.arrays) != len(part.fields):
        raise MessageError("what is sent once must have an array for each field")
    for array in part.arrays:
        check_rows(array, (len(clients), *array.shape[1:]))
    bits = sum(len(array) * plain_bits(array.shape[1:], array.dtype) for array in part.arrays)
    return Decoded(clients, tuple(part.fields), part.arrays, bits)


def join(replies: Sequence[Decoded], xp: Any) -> Arrived:
    """Return replies of several sites as one, in the order of client numbers."""
    clients = np.concatenate([reply.clients for reply in replies])
    order = np.argsort(clients)
    arrays = [xp.concatenate(parts)[order] for parts in zip(*(reply.arrays for reply in replies), strict=True)]
    work = Work()
    for reply in replies:
        work = work + reply.work
    sent = tuple_kind("Reply", replies[0].fields)(*arrays)
    return Arrived(clients[order], sent, sum(reply.bits for reply in replies), work)


def check_rows(array: Array | None, rows: Shape) -> None:
    """Refuse what is not numbers of a shape whose first axis is that of a site's clients."""
    if array is None or array.shape != rows:
        raise MessageError(f"it must be numbers of shape {rows}, got {getattr(array, 'shape', None)}")


log = logging.getLogger("fpdfp.engines")
#: How often a site is sent what it lacks: the job, and then what goes with it.
ATTEMPTS = 3
#: At the end of a run sites are waited for this many deadlines.
LAST = 3.0
#: Says which replies cannot be used besides the others, and why.
Judge = Callable[[Mapping[int, Decoded]], Mapping[int, str]]
#: Refuses a site's reply by raising an error.
Check = Callable[[int, Reply], None]


#: A request as it is carried: a dictionary of what is asked.
Tree = dict[str, Any]


class Transport(abc.ABC):
    """Carries requests to sites."""

    #: Whether the server may see all that clients remember (inside one organisation), or only what they have sent.
    trusted: bool = False
    #: Whether an exchange takes so long that one is to carry all that can be asked at once.
    slow: bool = False
    #: Seconds before sites that did not answer are asked once more.
    pause: float = 0.2

    @property
    def network(self) -> Network | None:
        """The latency and the bandwidth of the way to the sites, as measured; None where they are not."""
        return None

    @property
    def carried(self) -> Carried | None:
        """The bytes that went over the network so far; None where no one counts them."""
        return None

    @property
    @abc.abstractmethod
    def names(self) -> Sequence[str]:
        """The names of the sites, in the order of their clients' numbers."""

    @abc.abstractmethod
    def carry(self, asked: Mapping[int, Tree], deadline: float | None) -> dict[int, Any]:
        """Send each site its request; return the replies by the deadline: dictionaries, or exceptions."""

    def write(self, request: Request) -> Tree:
        """Return a request as it is carried: by default without anything but numbers, texts and arrays."""
        return request.write(spec.dump)

    def key(self, job: Job, run_id: str) -> str:
        """Return a key that distinguishes a job of a run from others: the same for a server that was restarted."""
        return hashlib.sha256(run_id.encode() + pack(spec.dump(job))).hexdigest()[:32]


@dataclasses.dataclass
class Totals:
    """Counts of refused and missing replies, and of memories that were sent again."""

    refused: int = 0
    absent: int = 0
    healed: int = 0


@dataclasses.dataclass
class SiteRecord:
    """The outcome of the exchanges with one site; seconds and bytes where the engine notes them."""

    asked: int = 0
    answered: int = 0
    absent: int = 0
    refused: int = 0
    healed: int = 0
    waited: float = 0.0
    bytes_down: int = 0
    bytes_up: int = 0
    last_refusal: str = ""


class Collector:
    """Asks sites, and waits for their replies.

    A reply that is late, damaged, not finite, of the wrong shape or size, or about something else counts as absent, and
    the log names the site and what was wrong.

    Parameters
    ----------
    transport
        What carries requests.
    deadline, min_clients, patience
        As the user gives them to an engine (:class:`fpdfp.cohorts.remote.RemoteEngine`).

    Attributes
    ----------
    totals, records
        What went wrong so far, and what became of the exchanges with each site in this run.
    upkeep
        The bits of what was sent again, of replies that were of no use, and of copies for checkpoints.
    stopped
        Whether the user wants to stop.
    """

    def __init__(self, transport: Transport, deadline: float | None, min_clients: int, patience: float) -> None:
        self.transport = transport
        self.deadline = None if deadline is None else _checks.real("deadline", deadline, positive=True)
        self.min_clients = _checks.integer("min_clients", min_clients, at_least=1)
        self.patience = _checks.real("patience", patience, positive=True)
        self.totals, self.upkeep = Totals(), NOTHING
        self.records: dict[int, SiteRecord] = collections.defaultdict(SiteRecord)
        self.stopped: Callable[[], bool] = lambda: False
        self._hurried = False

    @contextlib.contextmanager
    def hurry(self) -> Iterator[None]:
        """Within this, sites that do not answer by the deadline are not asked again."""
        self._hurried = True
        try:
            yield
        finally:
            self._hurried = False

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Within this, the run is done, and sites that are gone are not waited for as long as they were before."""
        patience = self.patience
        if self.deadline is not None:
            self.patience = min(patience, LAST * self.deadline)
        try:
            yield
        finally:
            self.patience = patience

    def collect_all(self, asked: Mapping[int, Request], session: Session, check: Check) -> dict[int, Reply]:
        """Ask sites until all have answered; raise AbsentError if some do not."""
        refused = {site: self.records[site].refused for site in asked}
        replies = self.collect(asked, session, check)
        missing = [self.transport.names[site] for site in asked if site not in replies]
        if missing:
            # A round that was requested along with it is counted where it is used, or dropped.
            self.waste([one.without(Update.name) for one in replies.values()])
            self.waste_requests([one.without(Update) for one in asked.values()])
            said = [
                f"; the reply of {self.transport.names[site]} was refused: {self.records[site].last_refusal}"
                for site in asked
                if site not in replies and self.records[site].refused > refused[site]
            ]
            raise AbsentError(
                f"{', '.join(missing)} did not answer; {len(replies)} of {len(asked)} sites did" + "".join(said)
            )
        return replies

    def collect(self, asked: Mapping[int, Request], session: Session, check: Check) -> dict[int, Reply]:
        """Ask sites until all have answered, or patience ends; once only where we are in a hurry."""
        replies: dict[int, Reply] = {}
        started, wait = time.monotonic(), self.deadline
        while True:
            waiting = {site: request for site, request in asked.items() if site not in replies}
            left = max(0.0, self.patience - (time.monotonic() - started))
            limit = self.deadline if self._hurried else left if wait is None else min(wait, left)
            # What is asked before the rounds may take longer than a round; but what a process has taken with it when
            # it died never comes.
            wait = None if wait is None else 2.0 * wait
            for site, reply in self.exchange(waiting, session, limit).items():
                try:
                    check(site, reply)
                    replies[site] = reply
                except Exception as error:
                    self.waste(reply)
                    self.refuse(site, error)
            if len(replies) == len(asked) or self._hurried or time.monotonic() - started > self.patience:
                return replies
            self._pause()
            self.waste_requests([request for site, request in asked.items() if site not in replies])

    def collect_enough(
        self,
        asked: Mapping[int, Request],
        session: Session,
        decode: Callable[[int, Reply], Decoded],
        early: Mapping[int, Reply] | None,
        name: str,
        judge: Judge | None = None,
    ) -> list[Decoded]:
        """Ask the sites of a round, until enough clients have answered; return their replies, decoded.

        ``early`` are replies that came already. ``name`` is that of the round in an error. ``judge`` names which of the
        replies cannot be used besides the others.
        """
        updates = [request.find(Update) for request in asked.values()]
        count = sum(len(update.digests) for update in updates if update is not None)
        needed = min(self.min_clients, count)
        good: dict[int, Decoded] = {}
        started, wait = time.monotonic(), self.deadline
        # Who was asked along with something else, and did not answer, is absent already.
        replies = self.exchange(asked, session, self.deadline) if early is None else early
        while True:
            diverging = set()
            for site, reply in replies.items():
                try:
                    good[site] = decode(site, reply)
                except Exception as error:
                    self.waste(reply)
                    self.refuse(site, error)
                    diverging |= {site} if isinstance(error, DivergedError) else set()
            for site, why in (judge(good) if judge is not None else {}).items():
                self.waste(replies.get(site))
                self.refuse(site, MessageError(why))
                del good[site]
            answered = sum(len(reply.clients) for reply in good.values())
            if answered >= needed:
                return [good[site] for site in sorted(good)]
            if set(asked) - set(good) <= diverging:
                raise DivergenceError("a message holds NaN, infinities or numbers that are too large")
            if time.monotonic() - started > self.patience and not self.stopped():
                raise AbsentError(
                    f"{name}: {answered} of {count} clients have answered within {self.patience:g} s, and {needed} "
                    "are needed"
                )
            self._pause()
            again = {site: request for site, request in asked.items() if site not in good}
            self.waste_requests(list(again.values()))
            # Without them the round cannot continue: a site that is slower than the deadline is given more time, or it
            # would be asked anew for ever.
            wait = None if wait is None else min(2.0 * wait, max(self.deadline or 0.0, self.patience))
            replies = self.exchange(again, session, wait)

    def _pause(self) -> None:
        """Wait before sites are asked again, unless the user wants to stop."""
        if self.stopped():
            raise StoppedError
        time.sleep(self.transport.pause)

    def exchange(self, asked: Mapping[int, Request], session: Session, deadline: float | None) -> dict[int, Reply]:
        """Send requests, give sites what they say they need, and return the replies that can be used."""
        started = time.monotonic()
        deadline = self.patience if deadline is None else deadline
        replies: dict[int, Reply] = {}
        # Who lacked something, and could not be given it in time, gets it with the next request.
        waiting = {site: session.supply(site, one) for site, one in asked.items()}
        for attempt in range(ATTEMPTS):
            if not waiting:
                break
            left = max(0.0, deadline - (time.monotonic() - started))
            addressed = {site: session.address(site, request) for site, request in waiting.items()}
            trees = {site: self.transport.write(request) for site, request in addressed.items()}
            self._waste((), list(trees.values()) if attempt else ())
            answered = self.transport.carry(trees, left)
            again = {}
            for site, request in addressed.items():
                self.records[site].asked += 1
                came = answered.get(site, AbsentError("no reply by the deadline"))
                try:
                    if isinstance(came, Exception):
                        raise came
                    reply = Reply.read(came, request)
                except Exception as error:
                    self.refuse(site, error)
                    continue
                if reply.needs:
                    needs = session.note_needs(site, reply.needs)
                    log.info("%s needs %s", self.transport.names[site], ", ".join(sorted(needs)))
                    self.totals.healed += 1
                    self.records[site].healed += 1
                    again[site] = session.supply(site, waiting[site])
                else:
                    session.note_answer(site, request)
                    self.records[site].answered += 1
                    replies[site] = reply
            waiting = again
        for site in waiting:
            self.refuse(site, MessageError("it still lacks what it was sent"))
        return replies

    def refuse(self, site: int, why: Any) -> None:
        """Count a site as absent, and say why."""
        name, record = self.transport.names[site], self.records[site]
        if isinstance(why, AbsentError):
            self.totals.absent += 1
            record.absent += 1
            log.warning("%s is absent: %s", name, why)
        else:
            self.totals.refused += 1
            what = str(why) if isinstance(why, MessageError) else f"it cannot be read ({type(why).__name__}: {why})"
            record.refused, record.last_refusal = record.refused + 1, what
            log.warning("the reply of %s is refused: %s", name, what)

    def waste(self, replies: Any) -> None:
        """Count what came from sites besides what a run without trouble sends."""
        self._waste(replies, ())

    def waste_requests(self, asked: Sequence[Request]) -> None:
        """Count what was sent to sites besides what a run without trouble sends."""
        self._waste((), [self.transport.write(request) for request in asked])

    def _waste(self, up: Any, down: Any) -> None:
        self.upkeep = Bits(self.upkeep.up + payload(up), self.upkeep.down + payload(down))
