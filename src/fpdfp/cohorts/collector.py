"""Waiting for sites: deadlines, retries, and replies, which are checked, decoded, put together or refused."""

from __future__ import annotations

import abc
import collections
import contextlib
import dataclasses
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.losses import Duals
from fpdfp.cohorts.question import Columns, Question, tuple_kind
from fpdfp.cohorts.requests import Job, Message, Reply, Request, Stamped, Update, WorkDone
from fpdfp.cohorts.serialization import NUMBER, pack
from fpdfp.cohorts.site import shared_memory, shorten
from fpdfp.compress import Compressor
from fpdfp.compress.plain import plain_bits
from fpdfp.errors import AbsentError, DivergenceError, MessageError, StoppedError
from fpdfp.precondition.base import Announced
from fpdfp.precondition.cost import Network
from fpdfp.quadratic.statement import Work
from fpdfp.rng import Draws
from fpdfp.traffic import FULL, NOTHING, Bits, Carried, digest, payload

#: How many of the server's differences are kept for sites that missed some.
LOG = 64
#: What a site may say that it needs.
NEEDS = {"features", "job", "memory", "model", "point"}
NO_DRAWS = Draws(0, 0, np.zeros(1, dtype=np.int64))


class Ask(NamedTuple):
    """The server's requests to the clients of a round.

    Attributes
    ----------
    round, clients
        k, and the numbers of the clients.
    memory
        The server's copies of what all clients remember, and their versions.
    message
        What the clients are to compute with: a named tuple of arrays.
    step
        The difference that leads to it, a frame for each field; None where the message goes out unchanged.
    """

    round: int
    clients: IntArray
    memory: Any
    message: Any
    step: list[bytes] | None


class Early(NamedTuple):
    """Replies of a round that came along with something else, and what was requested them."""

    round: int
    replies: dict[int, Reply]
    asked: list[Update]


class Masks:
    """The features that the sites of an engine know.

    A set of features is distinguished from others by its digest, which is empty for all of them.
    """

    def __init__(self) -> None:
        self._masks: dict[bytes, Announced] = {}
        self._told: dict[int, bytes] = {}

    def keep(self, numbers: IntArray, mask: Announced) -> bytes:
        """Keep a mask for sites that need it, and return its digest."""
        self._masks[found := digest([numbers])] = mask
        return found

    def for_site(self, site: int, features: bytes) -> Announced | None:
        """Return the mask of some features, None if a site knows them."""
        return None if not features or self._told.get(site) == features else self._masks[features]

    def note(self, site: int, features: bytes) -> None:
        """Take note that a site knows some features."""
        if features:
            self._told[site] = features

    def forget(self, site: int) -> None:
        """Take note that a site does not know them."""
        self._told.pop(site, None)


class Session:
    """The state of sites in a run: its job, the model that differences refer to, and the point that was asked about.

    Parameters
    ----------
    jobs, keys
        What each site must know of the run, and what distinguishes it from other runs; none before a run.
    masks
        The features that sites know.
    trusted
        Whether clients that lost what they remember are sent all of it, or only what they have sent themselves.
    from_zero
        Whether differences begin at zero, which all sites know.

    Attributes
    ----------
    features
        The digest of the features that the run is about, empty for all.
    point
        The point that all sites received last.
    coming
        What will be asked next, if it is to be asked along with something else.
    early
        What came of that.
    """

    def __init__(
        self,
        jobs: Sequence[Job] = (),
        keys: Sequence[str] = (),
        *,
        masks: Masks,
        features: bytes = b"",
        trusted: bool = False,
        from_zero: bool = False,
    ) -> None:
        self.features, self._masks = features, masks
        self.point: Array | None = None
        self.coming: Ask | None = None
        self.early: Early | None = None
        self._jobs, self._keys, self._trusted = list(jobs), list(keys), trusted
        self._shared = shared_memory(jobs[0].algorithm) if jobs else ()
        self._epoch = secrets.token_hex(8)
        self._positions: dict[int, int] = dict.fromkeys(range(len(jobs)), 0) if from_zero else {}
        self._told: dict[int, str] = {}
        self._lacking: dict[int, set[str]] = {}
        self._steps: list[tuple[int, list[bytes]]] = []
        self._whole: tuple[Any, list[bytes]] | None = None
        self._asked: Ask | None = None
        self._memory: Any = ()

    def address(self, site: int, request: Request) -> Request:
        """Return a request with its features and the key of its job, and these themselves for a site without them."""
        told: dict[str, Any] = {}
        features = self.features if request.needs_job else request.about.features
        if features:
            told |= {"features": features, "mask": self._masks.for_site(site, features)}
        if request.needs_job:
            key = self._keys[site]
            told |= {"key": key, "job": None if self._told.get(site) == key else self._jobs[site]}
            told |= {"epoch": self._epoch if request.find(Update) is not None else ""}
        return request.concerning(**told)

    def note_answer(self, site: int, request: Request) -> None:
        """Take note that a site has answered a request: it knows what was in it."""
        self._lacking.pop(site, None)
        self._masks.note(site, request.about.features)
        if request.about.key:
            self._told[site] = request.about.key

    def note_needs(self, site: int, said: Sequence[str]) -> set[str]:
        """Take note of what a site says it needs."""
        self._lacking[site] = NEEDS & set(said)
        return self._lacking[site]

    def supply(self, site: int, request: Request) -> Request:
        """Return a request with what the site has said it needs."""
        needs = self._lacking.get(site, set())
        if "features" in needs:
            self._masks.forget(site)
        if "job" in needs:
            self._told.pop(site, None)
        changed: dict[str, Question] = {}
        duals, update = request.find(Duals), request.find(Update)
        if "point" in needs and duals is not None:
            changed[duals.name] = dataclasses.replace(duals, x=self.point)
        if needs & {"model", "job"} and update is not None and self._asked is not None:
            self._positions.pop(site, None)
            changed[update.name] = dataclasses.replace(update, message=self._message(site, self._asked))
        if needs & {"memory", "job"}:
            for one in (changed.get(one.name, one) for one in request.questions):
                if isinstance(one, Stamped):
                    changed[one.name] = dataclasses.replace(one, copies=self._copies(site, one))
        return request.replace(*changed.values()) if changed else request

    def _copies(self, site: int, asked: Stamped) -> dict[str, dict[str, Array]]:
        """Return what clients should remember: all of it where the server may know, else what they have sent."""
        clients = self._jobs[site].place.numbers if asked.clients is None else asked.clients
        names = [name for name in self._memory._fields if name != "version" and (self._trusted or name in self._shared)]
        return {str(i): {name: getattr(self._memory, name)[i, ...] for name in names} for i in map(int, clients)}

    def stamp(self, memory: Any, site: int, clients: IntArray) -> dict[str, Any]:
        """Return the stamps of a site's clients for a request; clients that disagree are sent their memory."""
        self._memory = memory
        shared = [getattr(memory, name) for name in self._shared]
        digests = [digest(copy[client] for copy in shared) for client in clients]
        versions = memory.version[clients]
        same = int(versions[0]) if (versions == versions[0]).all() else versions
        everyone = len(clients) == len(self._jobs[site].place.numbers)
        return {"clients": None if everyone else clients, "versions": same, "digests": digests}

    def updates(self, ask: Ask) -> dict[int, Update]:
        """Return what each site of a round is asked."""
        self._asked = ask
        parts = {}
        for site, job in enumerate(self._jobs):
            clients = among(ask.clients, job.place.numbers)
            if len(clients):
                message = self._message(site, ask)
                parts[site] = Update(round=ask.round, message=message, **self.stamp(ask.memory, site, clients))
        return parts

    def keep_step(self, ask: Ask) -> None:
        """Keep the difference of a round, for sites that miss it."""
        if ask.step is not None:
            self._steps = [*((k, step) for k, step in self._steps if k != ask.round), (ask.round, ask.step)][-LOG:]

    def _message(self, site: int, ask: Ask) -> Message:
        """Return the server's message to a site: the differences that it lacks, or all of it if that is shorter."""
        position = self._positions.get(site)
        self._positions[site] = ask.round + 1
        if ask.step is not None and position is not None and position <= ask.round:
            steps = {k: step for k, step in [*self._steps, (ask.round, ask.step)] if k >= position}
            length = sum(len(frame) for step in steps.values() for frame in step)
            if len(steps) == ask.round + 1 - position and length <= sum(array.nbytes for array in ask.message):
                lacking = [steps[k] for k in sorted(steps)]
                return Message(steps=lacking, zero=position == 0)
        if self._whole is None or self._whole[0] is not ask.message:
            frames = [FULL.encode(FULL.quantize(array[None], NO_DRAWS, 0))[0] for array in ask.message]
            self._whole = ask.message, frames
        return Message(whole=self._whole[1])


def among(clients: IntArray, numbers: IntArray) -> IntArray:
    """Return the given clients that belong to a site, whose clients have consecutive numbers."""
    own: IntArray = clients[(clients >= numbers[0]) & (clients <= numbers[-1])]
    return own


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


def decode_once(
    part: Columns, clients: IntArray, messages: Mapping[str, tuple[Compressor, Shape]], dtype: np.dtype[Any]
) -> Decoded:
    """Return what a site's clients send once; raise MessageError for anything that cannot be what was requested."""
    if messages:
        shapes = {name: shape for name, (_, shape) in messages.items()}
        compressors = {name: compressor for name, (compressor, _) in messages.items()}
        return decode(part, clients, shapes, compressors, dtype)
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
    """Refuse anything but numbers with a first axis for a site's clients."""
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
        return request.write(parcels.dump)

    def key(self, job: Job, run_id: str) -> str:
        """Return a key that distinguishes a job of a run from others: the same for a server that was restarted."""
        return hashlib.sha256(run_id.encode() + pack(parcels.dump(job))).hexdigest()[:32]


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

        ``early`` are replies that came already. ``name`` names the round in an error. ``judge`` names which of the
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
