"""Waiting for sites: deadlines, retries, and replies, which are checked, decoded, put together or refused.

A site may lie about its data, and no one can see that. But a number that no table has, or that makes the answers of all
other sites vanish, is refused, and the site is named.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._array import to_host
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.losses import Duals, LossBounds, LossFacts
from fpdfp.cohorts.question import Encoded, Question, Rows, tuple_kind
from fpdfp.cohorts.requests import Job, Reply, Request, shorten
from fpdfp.cohorts.serialization import NUMBER, OUTSIDE, ROWS
from fpdfp.cohorts.site import Message, Stamped, Update, WorkDone
from fpdfp.compress import Compressor
from fpdfp.compress.base import DTYPES
from fpdfp.compress.plain import plain_bits
from fpdfp.errors import AbsentError, DivergenceError, MessageError, StoppedError
from fpdfp.precondition.base import Announced
from fpdfp.quadratic.statement import Work
from fpdfp.rng import Draws
from fpdfp.traffic import FULL, NOTHING, Bits, digest, payload

if TYPE_CHECKING:
    from fpdfp.cohorts.remote import RemoteEngine

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


class Known:
    """What the sites of an engine have received last: features and the job of a run, by their keys.

    A set of features is distinguished from others by its digest, which is empty for all of them.
    """

    def __init__(self) -> None:
        self.masks: dict[bytes, Announced] = {}
        self._keys: dict[tuple[int, str], bytes | str] = {}

    def keep(self, numbers: IntArray, mask: Announced) -> bytes:
        """Keep a mask for sites that need it, and return its digest."""
        self.masks[found := digest([numbers])] = mask
        return found

    def has(self, site: int, what: str, key: bytes | str) -> bool:
        """Whether a site has something."""
        return self._keys.get((site, what)) == key

    def note(self, site: int, what: str, key: bytes | str) -> None:
        """Take note that a site has something now."""
        self._keys[site, what] = key

    def forget(self, site: int, what: str) -> None:
        """Take note that a site does not have it."""
        self._keys.pop((site, what), None)


class Session:
    """The state of sites in a run: its job, the model that differences refer to, and the point that was asked about.

    Parameters
    ----------
    jobs, keys
        What each site must know of the run, and what distinguishes it from other runs; none before a run.
    known
        What sites have received.
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
        known: Known,
        features: bytes = b"",
        trusted: bool = False,
        from_zero: bool = False,
    ) -> None:
        self.features, self._known = features, known
        self.point: Array | None = None
        self.coming: Ask | None = None
        self.early: Early | None = None
        self._jobs, self._keys, self._trusted = list(jobs), list(keys), trusted
        self._shared = jobs[0].algorithm.shared_memory if jobs else ()
        for site in range(len(jobs)):
            known.forget(site, "job")  # a site may have been restarted since
        self._epoch = secrets.token_hex(8)
        self._positions: dict[int, int] = dict.fromkeys(range(len(jobs)), 0) if from_zero else {}
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
            mask = None if self._known.has(site, "features", features) else self._known.masks[features]
            told |= {"features": features, "mask": mask}
        if request.needs_job:
            key = self._keys[site]
            told |= {"key": key, "job": None if self._known.has(site, "job", key) else self._jobs[site]}
            told |= {"epoch": self._epoch if request.find(Update) is not None else ""}
        return request.concerning(**told)

    def note_answer(self, site: int, request: Request) -> None:
        """Take note that a site has answered a request: it knows what was in it."""
        self._lacking.pop(site, None)
        for what, key in (("features", request.about.features), ("job", request.about.key)):
            if key:
                self._known.note(site, what, key)

    def note_needs(self, site: int, said: Sequence[str]) -> set[str]:
        """Take note of what a site says it needs."""
        self._lacking[site] = NEEDS & set(said)
        return self._lacking[site]

    def supply(self, site: int, request: Request) -> Request:
        """Return a request with what the site has said it needs."""
        needs = self._lacking.get(site, set())
        for what in needs & {"features", "job"}:
            self._known.forget(site, what)
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
    arrays: Rows
    bits: int
    work: Work = Work()

    @property
    def shapes(self) -> list[tuple[str, Shape]]:
        """The fields, and the shapes of one client's arrays."""
        return [(name, array.shape[1:]) for name, array in self.arrays.items()]


def decode(
    part: Encoded,
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
    arrays: Rows = {}
    for field, (name, shape) in enumerate(shapes.items()):
        if len(frames[name]) != len(clients):
            raise MessageError(f"a reply must have a message of each of the {len(clients)} clients in {name!r}")
        lengths = np.array([8 * len(frame) for frame in frames[name]])
        if ((lengths - bits[field] < 0) | (lengths - bits[field] >= 8)).any():
            raise MessageError(f"the messages in {name!r} are not as long as the reply says")
        numbers = compressors[name].decode(frames[name], shape, dtype, device)
        if numbers.size and float(abs(numbers).max()) > LARGEST[numbers.dtype.itemsize]:
            raise DivergedError(f"the numbers in {name!r} are too large")
        arrays[name] = shorten(numbers, norm_bound)
    return Decoded(np.asarray(clients), arrays, int(bits.sum()))


def decode_update(part: WorkDone, *how: Any) -> Decoded:
    """Return a round's messages of a site as arrays (:func:`decode`), with what they cost."""
    if part.diverged:
        raise DivergedError("its numbers are no longer finite")
    return decode(part, *how)._replace(work=Work(*part.work))


def decode_once(
    part: Rows | Encoded, clients: IntArray, messages: Mapping[str, tuple[Compressor, Shape]], dtype: np.dtype[Any]
) -> Decoded:
    """Return what a site's clients send once; raise MessageError for anything that cannot be what was requested."""
    if bool(messages) != isinstance(part, Encoded):
        raise MessageError("what is sent once must be messages where there are compressors, and arrays elsewhere")
    if isinstance(part, Encoded):
        shapes = {name: shape for name, (_, shape) in messages.items()}
        compressors = {name: compressor for name, (compressor, _) in messages.items()}
        return decode(part, clients, shapes, compressors, dtype)
    if not part:
        raise MessageError("what is sent once must have an array for each field")
    for array in part.values():
        check_rows(array, (len(clients), *array.shape[1:]))
        if array.dtype not in DTYPES and array.dtype != np.uint8:
            raise MessageError("arrays must hold float32, float64 or bytes")
    bits = sum(len(array) * plain_bits(array.shape[1:], array.dtype) for array in part.values())
    return Decoded(clients, part, bits)


def join(replies: Sequence[Decoded], xp: Any) -> tuple[IntArray, Any, int, Work]:
    """Return whose replies these are, all values, and their bits and costs; sites are in the order of their clients."""
    clients = np.concatenate([reply.clients for reply in replies])
    fields = tuple(replies[0].arrays)
    sent = tuple_kind("Reply", fields)(*(xp.concatenate([one.arrays[name] for one in replies]) for name in fields))
    return clients, sent, sum(reply.bits for reply in replies), sum((reply.work for reply in replies), Work())


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


@dataclasses.dataclass
class SiteRecord:
    """The outcome of the exchanges with one site; seconds and bytes where the engine notes them.

    Counted are requests, replies, those that were missing or refused, and what a site lacked and was sent again.
    """

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
        The engine, which carries requests.
    deadline, min_clients, patience
        As the user gives them to an engine (:class:`fpdfp.cohorts.remote.RemoteEngine`).

    Attributes
    ----------
    records
        What became of the exchanges with each site in this run.
    upkeep
        The bits of what was sent again, of replies that were of no use, and of copies for checkpoints.
    stopped
        Whether the user wants to stop.
    """

    def __init__(self, transport: RemoteEngine, deadline: float | None, min_clients: int, patience: float) -> None:
        self.transport = transport
        self.deadline = None if deadline is None else _checks.real("deadline", deadline, positive=True)
        self.min_clients = _checks.integer("min_clients", min_clients, at_least=1)
        self.patience = _checks.real("patience", patience, positive=True)
        self.upkeep = NOTHING
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
        """Ask sites until all have answered; raise AbsentError if some do not in time, in a hurry after one attempt."""
        replies: dict[int, Reply] = {}
        refused = {site: self.records[site].refused for site in asked}
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
            if len(replies) == len(asked):
                return replies
            if self._hurried or time.monotonic() - started > self.patience:
                break
            self._pause()
            self.waste_requests([request for site, request in asked.items() if site not in replies])
        # A round that was requested along with it is counted where it is used, or dropped.
        self.waste([one.without(Update.name) for one in replies.values()])
        self.waste_requests([one.without(Update) for one in asked.values()])
        missing = {site: self.transport.names[site] for site in asked if site not in replies}
        said = [
            f"; the reply of {name} was refused: {self.records[site].last_refusal}"
            for site, name in missing.items()
            if self.records[site].refused > refused[site]
        ]
        raise AbsentError(
            f"{', '.join(missing.values())} did not answer; {len(replies)} of {len(asked)} sites did" + "".join(said)
        )

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
            record.absent += 1
            log.warning("%s is absent: %s", name, why)
        else:
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


#: This many times what there is to compare it with a reply may be.
FACTOR = 1e3
#: A reply is judged by earlier ones alone after this many rounds: at first, differences may be nothing but rounding.
ROUNDS = 3


class Outliers:
    """Tells replies that are far too large, from what was accepted before.

    Parameters
    ----------
    scaling, lipschitz
        N w_i of all clients, None where all are 1, and their Lipschitz constants.
    """

    def __init__(self, scaling: Array | None, lipschitz: Array) -> None:
        ones = np.ones(len(lipschitz))
        weights = ones if scaling is None else np.asarray(scaling, dtype=np.float64)
        usable = np.isfinite(lipschitz) & (lipschitz > 0)
        constants = np.where(usable, lipschitz, 1.0) if usable.all() else ones
        #: For each unit and client, the size of one.
        self._units = np.stack([ones, weights, weights * constants])
        #: The largest norm of each field in each unit.
        self._largest: dict[str, Array] = {}
        self._rounds = 0

    def find(self, replies: Mapping[int, Decoded], memory: Any = ()) -> dict[int, str]:
        """Return which sites' replies are far too large, and what is wrong with each."""
        found: dict[int, str] = {}
        if not replies:
            return found
        for name in next(iter(replies.values())).arrays:
            norms = {site: self._norms(reply, name) for site, reply in replies.items()}
            # Of any field: one that is nothing but rounding at first may grow a thousandfold.
            known = np.max([*self._largest.values(), np.zeros(3)], axis=0)
            for site, own in norms.items():
                # Mostly what was accepted before settles it, and nothing else has to be looked at.
                if not (own.max(axis=1) > FACTOR * known).all():
                    continue
                others = [one for other, one in norms.items() if other != site]
                if not others and self._rounds < ROUNDS:
                    continue
                beside = np.median(np.concatenate(others, axis=1), axis=1) if others else np.zeros(3)
                scale = np.maximum(np.maximum(known, self._memory_norms(memory)), beside)
                if (scale > 0).all() and (own.max(axis=1) > FACTOR * scale).all():
                    found[site] = (
                        f"the norm of {name!r} is {own[0].max():.3g}, more than {FACTOR:g} times what others send and "
                        f"what was sent before ({scale[0]:.3g})"
                    )
        return found

    def accept(self, replies: Sequence[Decoded]) -> None:
        """Take note of the replies of a round."""
        self._rounds += 1
        for reply in replies:
            for name in reply.arrays:
                largest = self._norms(reply, name).max(axis=1)
                self._largest[name] = np.maximum(self._largest.get(name, largest), largest)

    def _norms(self, reply: Decoded, name: str) -> Array:
        """Return the norm of a field for each unit and client of a site."""
        rows = to_host(reply.arrays[name]).reshape(len(reply.clients), -1)
        norms: Array = np.linalg.norm(rows.astype(np.float64, copy=False), axis=1)
        return norms / self._units[:, reply.clients]

    def _memory_norms(self, memory: Any) -> Array:
        """Return the largest norm of what the server knows that clients remember, in each unit."""
        largest = np.zeros(3)
        for name in getattr(memory, "_fields", ()):
            array = to_host(getattr(memory, name))
            if name != "version" and array.dtype.kind == "f" and array.ndim > 1 and len(array) == self._units.shape[1]:
                rows = np.linalg.norm(array.reshape(len(array), -1).astype(np.float64), axis=1)
                largest = np.maximum(largest, (rows / self._units).max(axis=1))
        return largest


#: With this many times the rows, or the weight of a row, of the others' median a site would be the answer alone: the
#: others would change it by less than one part in a million, which is less than any standard error.
TIMES = 1e6
#: With such a constant the steps of a run are so much shorter that it does not end; a tiny one makes it diverge.
CONSTANTS = 1e9


def check_facts(name: str, facts: LossFacts, bounds: LossBounds) -> None:
    """Refuse facts and bounds of a site's losses that contradict each other; each number is bounded already."""
    if int(facts.sizes.sum()) > ROWS:
        raise MessageError(f"{name} reports {int(facts.sizes.sum())} rows, more than a table can have")
    finite = _finite(bounds.lipschitz)
    if not bounds.least_convexity <= finite.min(initial=np.inf) * (1 + 1e-6):
        raise MessageError(
            f"{name} reports losses with Lipschitz constants of {finite.max(initial=0.0):.3g} that are strongly "
            f"convex by {bounds.least_convexity:.3g}, which cannot be"
        )


def compare_facts(names: Sequence[str], facts: Sequence[LossFacts], bounds: Sequence[LossBounds]) -> None:
    """Check the facts and bounds of each site, and refuse a site whose facts would decide the answer alone."""
    for name, one, own in zip(names, facts, bounds, strict=True):
        check_facts(name, one, own)
    compare(names, [float(one.sizes.sum()) for one in facts], TIMES, "{:.0f} rows")
    largest = [float(_finite(one.lipschitz).max(initial=0.0)) for one in bounds]
    compare(names, largest, CONSTANTS, "losses with a Lipschitz constant of {:.3g}")
    known = [i for i, constant in enumerate(largest) if constant > 0]
    compare([names[i] for i in known], [1.0 / largest[i] for i in known], CONSTANTS, "losses of curvature 1/{:.3g}")


def check_at(
    names: Sequence[Any], x: Array, found: Mapping[str, Array], lipschitz: Array, at_zero: Array, *, lower_bound: float
) -> None:
    """Refuse values and gradients of clients at a point that their own constants and values at zero exclude.

    Of a loss f ≥ 0 whose gradient has the Lipschitz constant L, √f(x) ≤ √f(0) + √(L/2)‖x‖, and ‖∇f(x)‖ ≤ √(2L f(x)).
    A factor of 2 is left for rounding.
    """
    if lower_bound < 0.0:
        return
    known = np.where(at_zero < OUTSIDE, at_zero, np.inf)
    norm = float(np.linalg.norm(to_host(x).astype(np.float64).ravel()))
    root = np.sqrt(np.maximum(known, 0.0)) + np.sqrt(lipschitz / 2.0) * norm
    for part, most in (("values", root**2), ("gradients", np.sqrt(2.0 * lipschitz) * root)):
        if part not in found:
            continue
        rows = to_host(found[part]).astype(np.float64).reshape(len(names), -1)
        given = np.linalg.norm(np.where(rows < OUTSIDE, rows, 0.0), axis=1)
        wrong = np.flatnonzero(given > 2.0 * most + 1e-6)
        if wrong.size:
            client = int(wrong[0])
            raise MessageError(
                f"{names[client]} sends {part} of {given[client]:.3g} at a point where its constants allow "
                f"{most[client]:.3g}: these numbers contradict each other"
            )


def _finite(numbers: Array) -> Array:
    """Return the numbers that are finite, whatever their type."""
    given = np.asarray(numbers, dtype=np.float64)
    return given[np.isfinite(given)]


def compare(names: Sequence[str], numbers: Sequence[float], times: float, words: str) -> None:
    """Refuse a number that is a given multiple of the median of the other sites' numbers.

    >>> compare(["north", "east", "south"], [100.0, 5e11, 200.0], 1e6, "{:.0f} rows")
    Traceback (most recent call last):
      ...
    fpdfp.errors.MessageError: east reports 500000000000 rows, and the others report 150 rows in the median: \
its answer would decide the result
    """
    given = np.asarray(numbers, dtype=np.float64)
    if len(given) < 2:
        return
    site = int(given.argmax())
    others = float(np.median(np.delete(given, site)))
    if others > 0 and given[site] > times * others:
        raise MessageError(
            f"{names[site]} reports {words.format(given[site])}, and the others report {words.format(others)} "
            "in the median: its answer would decide the result"
        )


def compare_answers(names: Sequence[str], answers: Sequence[Any]) -> None:
    """Refuse an answer about a table with which one site would be the answer alone."""
    rows = [getattr(one, "used", getattr(one, "rows", None)) for one in answers]
    if not all(isinstance(one, int) for one in rows):
        return
    compare(names, [float(one) for one in rows if one is not None], TIMES, "{:.0f} rows")
    weights = [
        one.weight / used if isinstance(getattr(one, "weight", None), float) and used else 0.0
        for one, used in zip(answers, rows, strict=True)
    ]
    known = [i for i, weight in enumerate(weights) if weight > 0]
    compare([names[i] for i in known], [weights[i] for i in known], TIMES, "a weight of {:.3g} for a row")
