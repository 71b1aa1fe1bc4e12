"""The sites that hold the clients, as the server sees them."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.compress import Compressor
from fpdfp.engines.downlink import FULL
from fpdfp.engines.job import Job, Place
from fpdfp.engines.ledger import digest, shared_memory
from fpdfp.engines.local import DivergenceError, StoppedError
from fpdfp.engines.parcel import payload
from fpdfp.engines.replies import (
    LARGEST,
    Arrived,
    DivergedError,
    OnceReply,
    Reply,
    check_rows,
    decoded,
    decoded_once,
    joined,
)
from fpdfp.engines.requests import ROUNDS
from fpdfp.engines.traffic import NOTHING, Bits
from fpdfp.engines.tuples import named
from fpdfp.errors import AbsentError, MessageError
from fpdfp.linops import LinOp
from fpdfp.methods.base import Algorithm
from fpdfp.precondition import Preconditioner
from fpdfp.precondition.agreement import Exchange
from fpdfp.problem import Problem
from fpdfp.rng import Draws

if TYPE_CHECKING:
    from fpdfp.engines.remote import RemoteLosses

log = logging.getLogger("fpdfp.engines")
#: How many of the server's differences are kept for sites that missed some.
LOG = 64
#: How often a site is sent what it lacks: the job, and then what goes with it.
ATTEMPTS = 3
#: At the end of a run sites are waited for so many deadlines.
LAST = 3.0
#: What a site may say that it needs.
NEEDS = {"job", "memory", "model", "point"}
#: Refuses a site's reply by raising an error.
Check = Callable[[int, dict[str, Any]], None]


class Ask(NamedTuple):
    """What the server asks of the clients of a round.

    Attributes
    ----------
    round, clients
        k, and the numbers of the clients.
    memory
        The server's copies of what all clients remember, and their versions.
    message
        What the clients are to compute with: a named tuple of arrays.
    step
        The difference that leads to it, a frame for each field; None where the message goes out as it is.
    """

    round: int
    clients: IntArray
    memory: Any
    message: Any
    step: list[bytes] | None


class Early(NamedTuple):
    """Replies of a round that came along with something else."""

    round: int
    replies: dict[int, Any]
    asked: list[Any]


@dataclasses.dataclass
class Totals:
    """How often replies were refused or did not come, and how often a site was sent what it lacked."""

    refused: int = 0
    absent: int = 0
    healed: int = 0


class Crew(abc.ABC):
    """The sites that hold the clients: carries requests, and makes sense of what comes back.

    An engine gives :meth:`post`, and the sites' names; all else is the same for all engines. A reply that is late,
    damaged, not finite, of the wrong shape or size, or about something else counts as absent, and the log names the
    site and what was wrong.

    Parameters
    ----------
    deadline
        Seconds after which a round goes on without those that have not answered; None waits for everyone.
    min_clients
        How many clients' replies a round needs at least; with fewer it waits, and asks the others again.
    patience
        Seconds after which a round (or the setup) that still has too few replies gives up.
    norm_bound
        The largest norm that a field of a reply may have; longer ones are shortened to it. None for no bound.
    """

    #: Whether the server may see all that clients remember (inside one organisation), or only what they have sent.
    trusted = False
    #: Whether an exchange takes so long that one is to carry all that can be asked at once.
    slow = False
    #: Seconds before sites that did not answer are asked once more.
    pause = 0.2
    #: Whether a run is about to end, and what is asked last may be asked together.
    finishing = False

    def __init__(
        self,
        deadline: float | None = None,
        min_clients: int = 1,
        patience: float = 600.0,
        norm_bound: float | None = None,
    ) -> None:
        self.deadline = None if deadline is None else _checks.real("deadline", deadline, positive=True)
        self.min_clients = _checks.integer("min_clients", min_clients, at_least=1)
        self.patience = _checks.real("patience", patience, positive=True)
        self.norm_bound = None if norm_bound is None else _checks.real("norm_bound", norm_bound, positive=True)
        self.totals = Totals()
        self.run_id = secrets.token_hex(8)
        self.numbers: list[IntArray] = []
        self.stopped: Callable[[], bool] = lambda: False
        self._losses: RemoteLosses | None = None
        self._jobs: list[Any] = []
        self._keys: list[str] = []
        self._told: dict[int, str] = {}
        self._lacking: dict[int, set[str]] = {}
        self._positions: dict[int, int] = {}
        self._steps: list[tuple[int, list[bytes]]] = []
        self._early: Early | None = None
        self._next: Ask | None = None
        self._whole: tuple[Any, list[bytes]] | None = None
        self._hurried = False
        #: The coordinates that constants are asked for in.
        self.agreed: Preconditioner | None = None
        #: The point that all sites were told last.
        self._point: Array | None = None
        #: The bits of what was sent again, of replies that were of no use, and of copies for checkpoints.
        self.upkeep = NOTHING

    # What an engine gives.

    @property
    @abc.abstractmethod
    def names(self) -> Sequence[str]:
        """The names of the sites, in the order of their clients' numbers."""

    @abc.abstractmethod
    def post(self, requests: Mapping[int, dict[str, Any]], deadline: float | None) -> dict[int, Any]:
        """Send each site its request; return the replies by the deadline: dictionaries, or exceptions."""

    def portable(self, value: Any) -> Any:
        """Return a job, or a map, as it is sent."""
        return value

    def key(self, job: Job) -> str:
        """Return what tells a job from others."""
        return secrets.token_hex(8)

    @contextlib.contextmanager
    def started(self) -> Iterator[None]:
        """Within this, the sites are there; where they were not before, they are dismissed after it."""
        yield

    # What is the same for all.

    def losses(self) -> RemoteLosses:
        """Return the losses of all clients; their data stays where it is."""
        from fpdfp.engines.remote import RemoteLosses, check_facts

        if self._losses is None:
            replies = self.everyone({"facts": {}}, lambda site, reply: check_facts(reply["facts"]))
            self._losses = RemoteLosses(self, [replies[site]["facts"] for site in range(len(self.names))])
        return self._losses

    def attach(self, problem: Problem) -> Problem:
        """Return the problem with its losses at the sites."""
        if getattr(problem.losses, "crew", None) is not self:
            raise TypeError(f"problem must have the losses of this engine, got {problem.losses!r}")
        return problem

    def everyone(self, parts: dict[str, Any], check: Check) -> dict[int, Any]:
        """Ask all sites the same, and along with it what comes next, if that was said; wait for all of them."""
        if not self.names:
            raise RuntimeError("the engine has no sites: it was closed, or has not been started")
        asked = {site: dict(parts) for site in range(len(self.names))}
        coming = self._next if self.slow else None
        if coming is not None:
            for site, part in self._parts(coming).items():
                asked[site]["update"] = part
        replies = self.collect(asked, check)
        if coming is not None:
            early = {site: one for site, one in replies.items() if "update" in one}
            self._early = Early(coming.round, early, [one["update"] for one in asked.values() if "update" in one])
            self._next = None  # asked for once
        return self._all(asked, replies)

    def all_of(self, asked: dict[int, dict[str, Any]], check: Check) -> dict[int, Any]:
        """Ask sites, and wait for all of them."""
        return self._all(asked, self.collect(asked, check))

    def _all(self, asked: Mapping[int, Any], replies: dict[int, Any]) -> dict[int, Any]:
        missing = [self.names[site] for site in asked if site not in replies]
        if missing:
            rest = [{**one, "update": None} for one in (*replies.values(), *asked.values())]
            self._wasted(rest[: len(replies)], rest[len(replies) :])
            raise AbsentError(f"{', '.join(missing)} did not answer; {len(replies)} of {len(asked)} sites did")
        return replies

    def _wasted(self, up: Any, down: Any) -> None:
        """Count what came from sites, and what was sent to them, beside what a run without trouble sends."""
        self.upkeep = Bits(self.upkeep.up + payload(up), self.upkeep.down + payload(down))

    def drop_early(self) -> None:
        """Forget a round that was asked for ahead and is not done."""
        if self._early is not None:
            self._wasted([reply["update"] for reply in self._early.replies.values()], self._early.asked)
            self._early = None

    def collect(self, asked: dict[int, dict[str, Any]], check: Check) -> dict[int, Any]:
        """Ask sites until all have answered, or patience ends; once only where we are in a hurry."""
        replies: dict[int, Any] = {}
        started, wait = time.monotonic(), self.deadline
        while True:
            waiting = {site: request for site, request in asked.items() if site not in replies}
            left = max(0.0, self.patience - (time.monotonic() - started))
            limit = self.deadline if self._hurried else left if wait is None else min(wait, left)
            # What is asked before the rounds may take longer than a round; but what a process has taken with it when
            # it died never comes.
            wait = None if wait is None else 2.0 * wait
            for site, reply in self.exchange(waiting, limit).items():
                try:
                    check(site, reply)
                    replies[site] = reply
                except Exception as error:
                    self._wasted(reply, ())
                    self.refuse(site, error)
            if len(replies) == len(asked) or self._hurried or time.monotonic() - started > self.patience:
                return replies
            if self.stopped():
                raise StoppedError
            time.sleep(self.pause)
            self._wasted((), [request for site, request in asked.items() if site not in replies])

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

    @contextlib.contextmanager
    def hurry(self) -> Iterator[None]:
        """Within this, sites that do not answer by the deadline are not asked again."""
        self._hurried = True
        try:
            yield
        finally:
            self._hurried = False

    def exchange(self, asked: Mapping[int, dict[str, Any]], deadline: float | None) -> dict[int, Any]:
        """Send requests, give sites what they say they need, and return the replies that can be used."""
        started = time.monotonic()
        deadline = self.patience if deadline is None else deadline
        replies: dict[int, Any] = {}
        # Who lacked something, and could not be given it in time, gets it with the next request.
        waiting = {site: self._supplied(site, one, self._lacking.get(site, set())) for site, one in asked.items()}
        for attempt in range(ATTEMPTS):
            if not waiting:
                break
            left = max(0.0, deadline - (time.monotonic() - started))
            waiting = {
                site: request | (self._heading(site) if ROUNDS & set(request) else {})
                for site, request in waiting.items()
            }
            self._wasted((), list(waiting.values()) if attempt else ())
            answered = self.post(waiting, left)
            again = {}
            for site, request in waiting.items():
                reply = answered.get(site, AbsentError("no reply by the deadline"))
                if isinstance(reply, Exception):
                    self.refuse(site, reply)
                elif not isinstance(reply, dict):
                    self.refuse(site, MessageError("it is no dictionary of what was asked"))
                elif "needs" in reply:
                    again[site] = self._supplied(site, request, self._needs(site, reply["needs"]))
                else:
                    self._lacking.pop(site, None)
                    if "key" in request:
                        self._told[site] = request["key"]
                    replies[site] = reply
            waiting = again
        for site in waiting:
            self.refuse(site, MessageError("it still lacks what it was sent"))
        return replies

    def refuse(self, site: int, why: Any) -> None:
        """Count a site as absent, and say why."""
        if isinstance(why, AbsentError):
            self.totals.absent += 1
            log.warning("%s is absent: %s", self.names[site], why)
        else:
            self.totals.refused += 1
            what = why if isinstance(why, MessageError) else f"it makes no sense ({type(why).__name__}: {why})"
            log.warning("the reply of %s is refused: %s", self.names[site], what)

    def _heading(self, site: int) -> dict[str, Any]:
        """Return which job a request is about, and the job itself for a site that was not told it yet."""
        key = self._keys[site]
        return {"key": key} if self._told.get(site) == key else {"key": key, "job": self._jobs[site]}

    def _needs(self, site: int, said: Any) -> set[str]:
        """Take note of what a site says it needs."""
        needs = NEEDS & set(map(str, said if isinstance(said, list) else ()))
        log.info("%s needs %s", self.names[site], ", ".join(sorted(needs)))
        self.totals.healed += 1
        self._lacking[site] = needs
        return needs

    def _supplied(self, site: int, asked: dict[str, Any], needs: set[str]) -> dict[str, Any]:
        """Return a request with what the site needs."""
        request = dict(asked)
        if "job" in needs:
            self._told.pop(site, None)
        if "point" in needs and "duals" in request:
            request["duals"] = request["duals"] | {"x": self._point}
        for name in ("update", "answers", "memory"):
            part = request.get(name)
            if part is None:
                continue
            if needs & {"model", "job"} and name == "update":
                self._positions.pop(site, None)
                request[name] = part = part | {"message": self._message(site, self._asked)}
            if needs & {"memory", "job"}:
                request[name] = part | {"copies": self._copies(part["clients"])}
        return request

    def _copies(self, clients: Any) -> dict[str, Any]:
        """Return what clients should remember: all of it where the server may know, else what they have sent."""
        shared = shared_memory(self._prepared)
        names = [name for name in self._memory._fields if name != "version" and (self.trusted or name in shared)]
        return {str(i): {name: getattr(self._memory, name)[i] for name in names} for i in map(int, clients)}

    # The setup.

    def places(self, problem: Problem, seed: int) -> list[Place]:
        """Return the place of each site."""
        scaling, total = problem.scaling, problem.total_weight
        return [Place(numbers, None if scaling is None else scaling[numbers], total, seed) for numbers in self.numbers]

    def begin(
        self,
        problem: Problem,
        algorithm: Algorithm,
        compressors: dict[str, Compressor],
        downlink: Compressor | None,
        seed: int,
        zero: bool = False,
    ) -> None:
        """Tell all sites, with their next request, what is run; ``zero``: differences begin at zero."""
        told = algorithm.for_sites()
        jobs = [Job(told, compressors, downlink, place, self.norm_bound) for place in self.places(problem, seed)]
        self._compressors, self._model, self._prepared = compressors, problem.model, algorithm
        self._jobs = [self.portable(job) for job in jobs]
        self._keys = [self.key(job) for job in jobs]
        self._memory = named("Memory", ())()
        self._epoch = secrets.token_hex(8)
        self._told, self._steps, self._early, self._next = {}, [], None, None
        self._positions = dict.fromkeys(range(len(self.names)), 0) if zero else {}
        self._lacking = {}
        self._point = None

    def gather(self, problem: Problem, question: Exchange, clients: IntArray, seed: int) -> tuple[Any, int]:
        """Return what some clients send once, before the first round, as the server decodes it, and its bits."""
        exchange = self.portable(question)
        own = [clients[(clients >= numbers[0]) & (clients <= numbers[-1])] for numbers in self.numbers]
        asked = {
            site: {"gather": {"exchange": exchange, "place": self.portable(place), "clients": own[site]}}
            for site, place in enumerate(self.places(problem, seed))
            if len(own[site])
        }
        messages = question.messages(problem.model)
        found: dict[int, OnceReply] = {}

        def check(site: int, reply: dict[str, Any]) -> None:
            found[site] = decoded_once(reply["gather"], own[site], messages)

        self.all_of(asked, check)
        parts = [found[site] for site in asked]
        first = self.names[next(iter(asked))]
        for site, part in zip(asked, parts, strict=True):
            if part.fields != parts[0].fields or part.shapes != parts[0].shapes:
                raise MessageError(
                    f"{self.names[site]} and {first} disagree on what is sent once: have they the same kind of losses?"
                )
        arrays = [np.concatenate(one) for one in zip(*(part.arrays for part in parts), strict=True)]
        return named("Once", parts[0].fields)(*arrays), sum(part.bits for part in parts)

    def constants(self, factor: LinOp | None, batch_size: int | None) -> Array:
        """Return the Lipschitz constants in other coordinates, or what mini-batches of a size add to them."""
        # A preconditioner is shorter than the map that it stands for.
        known = self.agreed is not None and self.agreed.factor is factor
        what = {"coordinates": self.portable(self.agreed)} if known else {"factor": self.portable(factor)}
        asked = {site: {"constants": {"batch_size": batch_size} | what} for site in range(len(self.names))}

        def check(site: int, reply: dict[str, Any]) -> None:
            found = reply["constants"]["constants"]
            self._check_rows(site, found, ())
            if not ((found >= 0) & (found <= LARGEST[8])).all():
                raise MessageError("constants must be at least 0 and not too large")

        replies = self.all_of(asked, check)
        rows: Array = np.concatenate([replies[site]["constants"]["constants"] for site in range(len(self.names))])
        return rows

    # The rounds.

    def update(self, ask: Ask) -> Arrived:
        """Have the clients of a round do their work, and return what came back in time."""
        self._asked, self._memory = ask, ask.memory
        if ask.step is not None:
            self._steps = [*((k, step) for k, step in self._steps if k != ask.round), (ask.round, ask.step)][-LOG:]
        needed = min(self.min_clients, len(ask.clients))
        early = self._early if self._early is not None and self._early.round == ask.round else None
        self._early = None
        good: dict[int, Reply] = {}
        requests = {site: {"update": part} for site, part in self._parts(ask).items()}
        started = time.monotonic()
        # Who was asked along with something else, and did not answer, is absent already.
        replies = self.exchange(requests, self.deadline) if early is None else early.replies
        while True:
            found, diverging = self._checked(requests, replies)
            good |= found
            count = sum(len(reply.clients) for reply in good.values())
            if count >= needed:
                break
            if set(requests) - set(good) <= diverging:
                raise DivergenceError("a message holds NaN, infinities or numbers that are too large")
            if self.stopped():
                raise StoppedError
            if time.monotonic() - started > self.patience:
                raise AbsentError(
                    f"round {ask.round + 1}: {count} of {len(ask.clients)} clients have answered within "
                    f"{self.patience:g} s, and {needed} are needed"
                )
            time.sleep(self.pause)
            asked = {site: request for site, request in requests.items() if site not in good}
            self._wasted((), list(asked.values()))
            replies = self.exchange(asked, self.deadline)
        return joined([good[site] for site in sorted(good)], self._model.xp)

    def _parts(self, ask: Ask) -> dict[int, dict[str, Any]]:
        """Return what each site of a round is asked."""
        parts = {}
        for site, numbers in enumerate(self.numbers):
            # The clients of a site have consecutive numbers.
            clients = ask.clients[(ask.clients >= numbers[0]) & (ask.clients <= numbers[-1])]
            if len(clients):
                part = {"round": ask.round, "message": self._message(site, ask), "clients": clients}
                parts[site] = part | self._stamps(ask.memory, clients)
        return parts

    def _stamps(self, memory: Any, clients: IntArray) -> dict[str, Any]:
        shared = [getattr(memory, name) for name in shared_memory(self._prepared)]
        return {
            "versions": memory.version[clients],
            "digests": [digest(copy[client] for copy in shared) for client in clients],
        }

    def _message(self, site: int, ask: Ask) -> dict[str, Any]:
        """Return the server's message to a site: the differences that it lacks, or all of it if that is shorter."""
        head: dict[str, Any] = {"fields": list(ask.message._fields), "to": ask.round + 1, "epoch": self._epoch}
        position = self._positions.get(site)
        if ask.step is not None and position is not None and position <= ask.round:
            steps = {k: step for k, step in [*self._steps, (ask.round, ask.step)] if k >= position}
            length = sum(len(frame) for step in steps.values() for frame in step)
            if len(steps) == ask.round + 1 - position and length <= sum(array.nbytes for array in ask.message):
                self._positions[site] = ask.round + 1
                start = {"zero": True} if position == 0 else {}
                return head | start | {"start": position, "steps": [steps[k] for k in sorted(steps)]}
        self._positions[site] = ask.round + 1
        if self._whole is None or self._whole[0] is not ask.message:
            self._whole = (
                ask.message,
                [FULL.encode(FULL.quantize(array[None], NO_DRAWS, 0))[0] for array in ask.message],
            )
        return head | {"whole": self._whole[1]}

    def _checked(
        self, requests: Mapping[int, dict[str, Any]], replies: Mapping[int, Any]
    ) -> tuple[dict[int, Reply], set[int]]:
        """Return the replies that are what was asked for, decoded, and the sites whose numbers are none any more."""
        good, diverging = {}, set()
        for site, reply in replies.items():
            try:
                good[site] = decoded(
                    reply["update"], requests[site]["update"]["clients"], self._prepared.reply_shapes(),
                    self._compressors, np.dtype(self._model.dtype), self._model.device, self.norm_bound,
                )  # fmt: skip
            except Exception as error:
                self._wasted(reply, ())
                self.refuse(site, error)
                if isinstance(error, DivergedError):
                    diverging.add(site)
        return good, diverging

    def expect(self, ask: Ask) -> None:
        """Say what will be asked next, so that a slow engine can ask it along with something else."""
        self._next = self._asked = ask
        self._memory = ask.memory

    def forget_next(self) -> None:
        """Take back what was said of the next round; replies that came along are kept for it."""
        self._next = None

    def answers(self, question: Any, memory: Any) -> Array:
        """Return what all clients certify."""
        self._memory = memory
        fields, arrays = list(question._fields), list(question)
        asked = {
            site: {"answers": {"fields": fields, "arrays": arrays, "clients": clients} | self._stamps(memory, clients)}
            for site, clients in enumerate(self.numbers)
        }
        replies = self.all_of(asked, lambda site, reply: self._check_rows(site, reply["answers"]["answers"], (2,)))
        rows: Array = np.concatenate([replies[site]["answers"]["answers"] for site in range(len(asked))])
        return rows

    def remembered(self, memory: Any) -> dict[str, Array]:
        """Return all that clients remember; only where the server may know it."""
        self._memory = memory
        asked = {
            site: {"memory": {"clients": clients} | self._stamps(memory, clients)}
            for site, clients in enumerate(self.numbers)
        }
        fields = [name for name in memory._fields if name != "version"]

        def check(site: int, reply: dict[str, Any]) -> None:
            for name in fields:
                self._check_rows(site, reply["memory"]["memory"][name], getattr(memory, name).shape[1:])

        replies = self.all_of(asked, check)
        parts = [replies[site]["memory"]["memory"] for site in range(len(asked))]
        self._wasted(parts, ())
        return {name: np.concatenate([part[name] for part in parts]) for name in fields}

    def _check_rows(self, site: int, array: Any, shape: tuple[int, ...]) -> None:
        check_rows(array, (len(self.numbers[site]), *shape))

    def at(self, x: Array, parts: Sequence[str]) -> dict[str, Array]:
        """Return f_i(x) of all clients (``"values"``), ∇f_i(x) (``"gradients"``), or both."""
        shapes = {"values": (), "gradients": x.shape}

        def check(site: int, reply: dict[str, Any]) -> None:
            for part in parts:
                self._check_rows(site, reply["at"][part], shapes[part])

        self._point = None
        replies = self.everyone({"at": {"x": x, "parts": list(parts)}}, check)
        self._point = x
        return {part: np.concatenate([replies[site]["at"][part] for site in range(len(self.names))]) for part in parts}

    def duals(
        self, x: Array, ask: Mapping[str, Any], weights: Array, shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, Array]:
        """Return the sums over sites of what is asked of dual points near x; infinite where one is.

        Sites are sent x only if they were not asked about it just before.
        """

        def check(site: int, reply: dict[str, Any]) -> None:
            for name, shape in shapes.items():
                check_rows(reply["duals"][name], shape)

        point = digest([x])
        whole = {"point": point, **ask}
        if self._point is None or digest([self._point]) != point:
            whole["x"] = x
        self._point = x
        asked = {site: {"duals": {**whole, "weights": weights[numbers]}} for site, numbers in enumerate(self.numbers)}
        replies = self.all_of(asked, check)
        parts = [replies[site]["duals"] for site in range(len(self.names))]
        sums = {name: np.sum([part[name] for part in parts], axis=0) for name in shapes}
        if "gap" in shapes and any(float(part["gap"]) < 0 for part in parts):
            sums["gap"] = np.array(np.inf)
        return sums


NO_DRAWS = Draws(0, 0, np.zeros(1, dtype=np.int64))
