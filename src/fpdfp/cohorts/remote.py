"""Clients that are elsewhere, as the server asks them: what every engine with sites has."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import hashlib
import logging
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.collector import (
    Ask,
    Check,
    Collector,
    Decoded,
    Early,
    Known,
    Outliers,
    Session,
    SiteRecord,
    Tree,
    among,
    check_at,
    check_rows,
    compare_facts,
    decode_once,
    decode_update,
    join,
)
from fpdfp.cohorts.local import (
    Clients,
    Participants,
    allocate_memory,
    has_large_copies,
    put_back,
    take_rows,
)
from fpdfp.cohorts.losses import At, Bounds, Constants, Duals, Facts, LossBounds, LossFacts, probe
from fpdfp.cohorts.question import Question, tuple_kind
from fpdfp.cohorts.requests import Address, Job, Place, Reply, Request, dump
from fpdfp.cohorts.serialization import OUTSIDE, pack
from fpdfp.cohorts.site import Certificate, Memory, Update
from fpdfp.compress import Compressed, Compressor
from fpdfp.errors import AbsentError, ArgumentTypeError, DivergenceError, MessageError
from fpdfp.linops import LinOp
from fpdfp.losses.base import Form, Losses
from fpdfp.losses.linear import CURVATURES, DENSE_HESSIAN, form_rounding, sum_rounding
from fpdfp.methods.base import Algorithm, Certifying, Method, Remembering
from fpdfp.methods.base import Question as Asked
from fpdfp.precondition import Preconditioner
from fpdfp.precondition.base import Announced, full
from fpdfp.precondition.cost import Network
from fpdfp.precondition.exchange import Slopes
from fpdfp.problem import Problem
from fpdfp.quadratic.statement import Work
from fpdfp.rng import Draws
from fpdfp.traffic import NOTHING, Answers, Bits, Carried, Downlink, Kept, digest, is_zero

if TYPE_CHECKING:
    from fpdfp.engines.prepare import RunOptions
    from fpdfp.engines.run import Run


class RemoteClients(Clients):
    """The clients of a problem whose losses are at the sites of an engine."""

    # A question takes a while, so that more is asked at a time.
    at_once = 1 << 26

    def __init__(self, engine: RemoteEngine, problem: Problem) -> None:
        super().__init__(problem)
        self._engine = engine

    @property
    def names(self) -> Sequence[str]:
        return self._engine.names

    def take_part(self, run: Run) -> Participants:
        return RemoteParticipants(self._engine, run)

    def _send(self, question: Question, clients: IntArray, seed: int, *, each: bool = False) -> tuple[Any, int]:
        engine = self._engine
        if not (isinstance(question, Slopes) and question.values):
            return engine.gather(self.problem, question, clients, seed, each=each)
        losses: RemoteLosses = self.problem.losses  # type: ignore[assignment]
        engine.session.point = None
        sent, bits = engine.gather(self.problem, question, clients, seed, each=each)
        x = question.points_at(losses.shape).x[0].astype(losses.dtype)
        engine.session.point = x
        losses.check_plausible(x, {"values": sent.value, "gradients": sent.slope}, self.problem.scaling)
        return sent, bits


class RemoteEngine(abc.ABC):
    """An engine whose clients are at sites: a subclass carries requests, and the rest is the same for all.

    Parameters
    ----------
    deadline
        Seconds after which a round continues without those that have not answered; None waits for all clients.
    min_clients
        How many clients' replies a round needs at least; with fewer it waits, and asks the others again.
    patience
        Seconds after which a round (or the setup) that still has too few replies gives up.
    norm_bound
        The largest norm that a field of a reply may have; longer ones are shortened to it. By default, ``"auto"``, a
        reply counts as absent if it is a thousand times larger than all that it can be compared with
        (:mod:`fpdfp.cohorts.collector`). None for no bound.

    Attributes
    ----------
    collector
        Waits for replies.
    known, session
        What sites have received, and their state in a run.
    run_id
        The name of the run, kept through restarts of the server.
    agreed
        The coordinates that constants are requested in.
    """

    #: Whether the server may see all that clients remember (inside one organisation), or only what they have sent.
    trusted: bool = False
    #: Whether an exchange takes so long that one is to carry all that can be asked at once.
    slow: bool = False
    #: Seconds before sites that did not answer are asked once more.
    pause: float = 0.2

    def __init__(
        self,
        deadline: float | None = None,
        min_clients: int = 1,
        patience: float = 600.0,
        norm_bound: float | Literal["auto"] | None = "auto",
    ) -> None:
        self.collector = Collector(self, deadline, min_clients, patience)
        automatic = norm_bound is None or (isinstance(norm_bound, str) and norm_bound == "auto")
        self.norm_bound = norm_bound if automatic else _checks.real("norm_bound", norm_bound, positive=True)
        self.known = Known()
        self.session = Session(known=self.known)
        self.run_id = secrets.token_hex(8)
        self.agreed: Preconditioner | None = None
        self._losses: RemoteLosses | None = None

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
        return request.write(dump)

    def key(self, job: Job, run_id: str) -> str:
        """Return a key that distinguishes a job of a run from others: the same for a server that was restarted."""
        return hashlib.sha256(run_id.encode() + pack(dump(job))).hexdigest()[:32]

    @property
    def fixed_bound(self) -> float | None:
        """The bound to which both sides shorten replies, None if missing."""
        return self.norm_bound if isinstance(self.norm_bound, float) else None

    @property
    def totals(self) -> SiteRecord:
        """The outcome of the exchanges with all sites in the latest run."""
        names = ("asked", "answered", "absent", "refused", "healed")
        records = self.collector.records.values()
        return SiteRecord(**{name: sum(getattr(one, name) for one in records) for name in names})

    @contextlib.contextmanager
    def started(self) -> Iterator[None]:
        """Within this, the sites are there; where they were not before, they are dismissed after it."""
        yield

    def losses(self) -> RemoteLosses:
        """Return the losses of all clients; their data stays where it is."""
        if self._losses is None:
            self._losses = self.ask_facts()
        return self._losses

    def ask_facts(self, features: bytes = b"") -> RemoteLosses:
        """Ask all sites what must be known of their losses, as functions of some features."""
        request = Request((Facts(), Bounds()), Address(features=features))

        def check(site: int, reply: Reply) -> None:
            check_rows(reply.part("bounds").lipschitz, reply.part("facts").sizes.shape)

        replies = self.ask_all(request, check)
        facts, bounds = ([reply.part(name) for reply in replies] for name in ("facts", "bounds"))
        return RemoteLosses(self, facts, bounds, features)

    def declare(self, problems: int, folds: int) -> None:  # noqa: B027 - most engines have no policies
        """Announce to sites that related problems are about to be solved together, if their policies require it."""

    def attach(self, problem: Problem) -> Problem:
        """Return the problem with its losses at the sites."""
        if getattr(problem.losses, "engine", None) is not self:
            raise ArgumentTypeError("problem", f"must have the losses of this engine, got {problem.losses!r}")
        return problem

    def add_options(self, problem: Problem, options: RunOptions, method: Method | None) -> RunOptions:
        """Return the options of a run with what this engine adds to them: nothing, where it keeps no records."""
        return options

    @property
    def numbers(self) -> list[IntArray]:
        """The numbers of each site's clients."""
        return self.losses().numbers

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
        *,
        from_zero: bool,
    ) -> None:
        """Begin a run: each site receives the run's description with its next request."""
        told = algorithm.for_sites()
        jobs = [Job(told, compressors, downlink, place, self.fixed_bound) for place in self.places(problem, seed)]
        keys = [self.key(job, self.run_id) for job in jobs]
        features = getattr(problem.losses, "features", b"")
        self.session = Session(
            jobs, keys, known=self.known, features=features, trusted=self.trusted, from_zero=from_zero
        )

    def ask_all(self, request: Request, check: Check) -> list[Reply]:
        """Ask all sites the same, and along with it what comes next if that was said; return what they all answer."""
        if not self.names:
            raise RuntimeError("the engine has no sites: it was closed, or has not been started")
        asked = dict.fromkeys(range(len(self.names)), request)
        session, coming = self.session, self.session.coming if self.slow else None
        if coming is not None and request.about.features == session.features:
            updates = session.updates(coming)
            asked |= {site: request.replace(update) for site, update in updates.items()}
            session.coming = None  # requested once

            def keep_early(site: int, reply: Reply) -> None:
                check(site, reply)
                if Update.name in reply.answers:
                    early.replies[site] = reply

            early = session.early = Early(coming.round, {}, list(updates.values()))
            replies = self.collector.collect_all(asked, session, keep_early)
        else:
            replies = self.collector.collect_all(asked, session, check)
        return [replies[site] for site in range(len(asked))]

    def drop_early(self) -> None:
        """Forget a round that was requested ahead and is not done."""
        early = self.session.early
        if early is not None:
            self.collector.waste([reply.part(Update.name) for reply in early.replies.values()])
            self.collector.waste_requests([Request((update,)) for update in early.asked])
            self.session.early = None

    def check_rows(self, site: int, array: Array | None, shape: tuple[int, ...]) -> None:
        """Refuse what is not a row of numbers for each client of a site."""
        check_rows(array, (len(self.numbers[site]), *shape))

    # What is asked before the rounds, and between them.

    def clients(self, problem: Problem) -> RemoteClients:
        """Return the clients of a problem, who are asked questions."""
        return RemoteClients(self, problem)

    def gather(
        self, problem: Problem, question: Question, clients: IntArray, seed: int, *, each: bool = False
    ) -> tuple[Any, int]:
        """Return what some clients send once, before the first round, as the server decodes it, and its bits."""
        own = [among(clients, numbers) for numbers in self.numbers]
        features = getattr(problem.losses, "features", b"")
        asked = {
            site: Request((question,), Address(features=features, place=place, clients=own[site], each=each))
            for site, place in enumerate(self.places(problem, seed))
            if len(own[site])
        }
        messages = question.messages(problem.model.shape)
        found: dict[int, Decoded] = {}

        def check(site: int, reply: Reply) -> None:
            found[site] = decode_once(reply.part(question.name), own[site], messages, question.sent_dtype)

        self.collector.collect_all(asked, self.session, check)
        parts = [found[site] for site in asked]
        first = self.names[next(iter(asked))]
        for site, part in zip(asked, parts, strict=True):
            if part.shapes != parts[0].shapes:
                raise MessageError(
                    f"{self.names[site]} and {first} disagree on what is sent once: have they the same kind of losses?"
                )
        _, sent, bits, _ = join(parts, np)
        return sent, bits

    def constants(self, factor: LinOp | None, batch_size: int | None, features: bytes = b"") -> Array:
        """Return the Lipschitz constants in other coordinates, or what mini-batches of a size add to them."""
        # A preconditioner is shorter than the map that it stands for.
        known = self.agreed is not None and self.agreed.factor is factor
        ask = Constants(None if known else factor, self.agreed if known else None, batch_size)

        def check(site: int, reply: Reply) -> None:
            self.check_rows(site, reply.part("constants").constants, ())

        replies = self.ask_all(Request((ask,), Address(features=features)), check)
        return np.concatenate([reply.part("constants").constants for reply in replies])

    def at(self, x: Array, parts: Sequence[Any], features: bytes = b"") -> dict[str, Array]:
        """Return f_i(x) of all clients (``"values"``), ∇f_i(x) (``"gradients"``), or both."""
        self.session.point = None
        asked = Request((At(x, list(parts)),), Address(features=features))
        replies = self.ask_all(asked, lambda site, reply: self._check_at(site, reply, x, parts))
        self.session.point = x
        return {part: np.concatenate([reply.part("at")[part] for reply in replies]) for part in parts}

    def _check_at(self, site: int, reply: Reply, x: Array, parts: Sequence[Any]) -> None:
        """Refuse what is not the values or gradients of a site's clients at a point."""
        for part in parts:
            self.check_rows(site, reply.part("at").get(part), () if part == "values" else x.shape)

    def duals(
        self,
        x: Array,
        ask: Mapping[str, Any],
        weights: Array,
        shapes: Mapping[str, tuple[int, ...]],
        parts: Sequence[Any] = (),
        features: bytes = b"",
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the sums over sites of what is asked of dual points near x; infinite where one is.

        Sites are sent x only if they were not asked about it just before. With ``parts`` they also send these at x
        as well (:meth:`at`), and the rows of clients are returned too.
        """

        def check(site: int, reply: Reply) -> None:
            for name, shape in shapes.items():
                check_rows(getattr(reply.part("duals"), name), shape)
            if parts:
                self._check_at(site, reply, x, parts)

        session, point = self.session, digest([x])
        told = session.point is not None and digest([session.point]) == point
        session.point = x
        before = (At(x, list(parts)),) if parts else ()
        there = None if told or parts else x
        asked = {
            site: Request((*before, Duals(point, weights=weights[numbers], x=there, **ask)), Address(features=features))
            for site, numbers in enumerate(self.numbers)
        }
        replies = self.collector.collect_all(asked, session, check)
        duals = [replies[site].part("duals") for site in asked]
        sums = {name: np.sum([getattr(one, name) for one in duals], axis=0) for name in shapes}
        if "gap" in shapes and any(float(one.gap) < 0 for one in duals):
            sums["gap"] = np.array(np.inf)
        found = {part: np.concatenate([replies[site].part("at")[part] for site in asked]) for part in parts}
        return sums, found


class FramedDownlink(Downlink):
    """The same for clients that are elsewhere: a difference is quantized once, and its frames are kept with it."""

    def __init__(self, compressor: Compressor) -> None:
        super().__init__(compressor)
        self._made: tuple[tuple[Any, ...], list[Compressed], list[bytes]] | None = None

    def compress(self, kept: Kept, message: Any, seed: int, k: int) -> list[Compressed]:
        return self._make(kept, message, seed, k)[0]

    def frames(self, kept: Kept, message: Any, seed: int, k: int) -> list[bytes]:
        """Return the messages that take clients from the model they keep to the one that ``send`` gives them."""
        return self._make(kept, message, seed, k)[1]

    def _make(self, kept: Kept, message: Any, seed: int, k: int) -> tuple[list[Compressed], list[bytes]]:
        of = (seed, k, *map(id, kept.message), *map(id, message))
        if self._made is None or self._made[0][: len(of)] != of:
            compressor, done, frames = self.compressor, [], list[bytes]()
            for one in self.differences(kept, message, seed, k):
                quantized = compressor.quantize(*one)
                done.append(Compressed(compressor.dequantize(quantized), compressor.nbits(quantized)))
                frames += compressor.encode(quantized)
            # With the arrays themselves, so that no others get their places in memory.
            self._made = (*of, kept.message, message), done, frames
        return self._made[1:]


class RemoteParticipants(Participants):
    """The clients of a run at the sites of an engine.

    ``memory`` is what the server knows of what clients remember, with the number of messages that it has confirmed to
    each (``version``). The fields that depend on decoded messages alone are always those of the clients. The others,
    where the server may know them at all, are those of the last checkpoint.
    """

    # What sites do not need is not asked of them; and they choose their threads themselves.
    rehearses = False

    def __init__(self, engine: RemoteEngine, run: Run) -> None:
        super().__init__(run)
        kept: Any = ()
        if isinstance(run.algorithm, Remembering):
            kept = allocate_memory(run.algorithm, run.problem.n_clients, self.folder)
        fields = (*getattr(kept, "_fields", ()), "version")
        self.memory = tuple_kind("Memory", fields)(*kept, np.zeros(run.problem.n_clients, dtype=np.int64))
        self.engine, self.collector = engine, engine.collector
        self.losses: RemoteLosses = run.problem.losses  # type: ignore[assignment]
        self.losses.answers.forget()
        self.outliers = Outliers(run.problem.scaling, self.losses.lipschitz())
        self.collector.upkeep = NOTHING
        if run.downlink is not None:
            run.downlink = FramedDownlink(run.downlink.compressor)
        # Not that of another run on the same sites; a run that is continued has its own.
        engine.run_id = secrets.token_hex(8)
        self.start()

    def start(self) -> None:
        """Tell the sites what is run."""
        run = self.run
        downlink = None if run.downlink is None else run.downlink.compressor
        zero = run.kept is not None and is_zero(run.kept.message)
        self.engine.begin(run.problem, run.algorithm, run.compressors, downlink, run.seed, from_zero=zero)

    @property
    def folder(self) -> Path | None:
        folder, file, algorithm = super().folder, self.run.options.file, self.run.algorithm
        if folder is not None or not isinstance(algorithm, Remembering):
            return folder
        if not has_large_copies(algorithm, self.run.problem.n_clients):
            return None
        return Path(tempfile.gettempdir()) if file is None else file.parent

    @property
    def upkeep(self) -> Bits:  # type: ignore[override]
        return self.collector.upkeep

    def remember(self, clients: IntArray, memory: Any) -> None:
        for kept, new in zip(self.memory, memory, strict=True):
            kept[clients] = new

    def listen(self, stopped: Callable[[], bool]) -> None:
        self.collector.stopped = stopped

    def sites(self) -> list[dict[str, Any]]:
        records = self.collector.records
        return [{"name": name} | dataclasses.asdict(records[i]) for i, name in enumerate(self.engine.names)]

    def labels(self) -> dict[str, str]:
        return {"run": self.engine.run_id}

    def resume(self, labels: Mapping[str, str]) -> None:
        self.engine.run_id = labels.get("run", self.engine.run_id)
        self.start()

    @contextlib.contextmanager
    def evaluating(self, *, last: bool) -> Any:
        """Within this, sites that do not answer are not waited for; a slow engine requests what comes next as well."""
        with self.collector.hurry(), self.asking_ahead(last=last):
            yield

    def ending(self) -> contextlib.AbstractContextManager[None]:
        self.engine.drop_early()
        return self.collector.ending()

    @contextlib.contextmanager
    def asking_ahead(self, *, last: bool) -> Any:
        """Within this, a slow engine requests what comes next as well."""
        session = self.engine.session
        if self.engine.slow and not last:
            run = self.run
            chosen, message, _, _ = run.send_round(run.round)
            session.coming = self._ask(run.round, run.who_answers(chosen, run.round), message)
        self.losses.together = last and self.run.options.tol is not None
        try:
            with super().asking_ahead(last=last):
                yield
        finally:
            session.coming = None  # replies that came along are kept for it
            self.losses.together = False

    def restore_memory(self, saved: Mapping[str, Array]) -> None:
        here = self.memory._asdict()
        known = {name: put_back(array, saved[name]) for name, array in here.items() if name in saved}
        self.memory = self.memory._replace(**known)

    def memory_to_save(self) -> dict[str, Array]:
        names = [name for name in self.memory._fields if name != "version"]
        if self.engine.trusted and set(names) - set(self.run.algorithm.shared_memory):
            with self.collector.hurry(), contextlib.suppress(AbsentError):
                self.memory = self.memory._replace(**self._ask_memory(names))
        return dict(self.memory._asdict())

    def _ask_memory(self, names: list[str]) -> dict[str, Array]:
        """Return all that clients remember."""

        def check(site: int, reply: Reply) -> None:
            for name in names:
                found = reply.part("memory").get(name)
                self.engine.check_rows(site, found, getattr(self.memory, name).shape[1:])

        replies = self._ask_everyone(lambda stamps: Request((Memory(**stamps),)), check)
        parts = [reply.part("memory") for reply in replies]
        self.collector.waste(parts)
        return {name: np.concatenate([part[name] for part in parts]) for name in names}

    def _ask_everyone(self, request: Callable[[dict[str, Any]], Request], check: Check) -> list[Reply]:
        """Ask all clients something, with the stamps of what they remember."""
        session = self.engine.session
        asked = {site: request(session.stamp(self.memory, site, own)) for site, own in enumerate(self.engine.numbers)}
        replies = self.collector.collect_all(asked, session, check)
        return [replies[site] for site in asked]

    def _ask(self, k: int, clients: IntArray, message: Any) -> Ask:
        """Return what is asked of the clients of round k."""
        step = None
        run = self.run
        if isinstance(run.downlink, FramedDownlink) and run.kept is not None:
            step = run.downlink.frames(run.kept, run.algorithm.broadcast(run.state), run.seed, k)
        return Ask(k, clients, self.memory, message, step)

    def work(self, k: int, clients: IntArray, message: Any) -> tuple[IntArray, Any, Any, Work, int]:
        algorithm = self.run.algorithm
        clients, sent, bits, cost = self._collect_round(self._ask(k, clients, message))
        try:
            total = self.total(clients)
            total.add(sent)
            state = total.update(algorithm, self.run.state, k)
        except (ValueError, ArithmeticError) as error:
            # LAPACK and others refuse what is no longer finite.
            raise DivergenceError(f"the server's step failed: {error}") from error
        memory = take_rows(self.memory, clients)
        if isinstance(algorithm, Remembering):
            shared = {name: getattr(memory, name) for name in algorithm.shared_memory}
            memory = memory._replace(**algorithm.remember(algorithm.take_message(shared, message), sent, k))
        memory = memory._replace(version=memory.version + 1)
        return clients, state, memory, cost, bits

    def _collect_round(self, ask: Ask) -> tuple[IntArray, Any, int, Work]:
        """Have the clients of a round do their work, and return what came back in time."""
        run, session, model = self.run, self.engine.session, self.run.problem.model
        session.keep_step(ask)
        early, session.early = session.early, None
        asked = {site: Request((update,)) for site, update in session.updates(ask).items()}
        shapes, dtype = run.algorithm.reply_shapes(), np.dtype(model.dtype)

        def decode(site: int, reply: Reply) -> Decoded:
            clients = among(ask.clients, self.engine.numbers[site])
            bound = self.engine.fixed_bound
            return decode_update(reply.part("update"), clients, shapes, run.compressors, dtype, model.device, bound)

        came = early.replies if early is not None and early.round == ask.round else None
        judge = self._judge if self.engine.norm_bound == "auto" else None
        replies = self.collector.collect_enough(asked, session, decode, came, f"round {ask.round + 1}", judge)
        self.outliers.accept(replies)
        return join(replies, model.xp)

    def _judge(self, replies: Mapping[int, Decoded]) -> dict[int, str]:
        return self.outliers.find(replies, self.memory)

    def certify(self, algorithm: Certifying, question: Asked) -> Array:
        frames = [message.message for message in question.messages]

        def check(site: int, reply: Reply) -> None:
            self.engine.check_rows(site, reply.part("answers").get("answers"), (2,))

        with self.collector.hurry():
            replies = self._ask_everyone(lambda stamps: Request((Certificate(frames=frames, **stamps),)), check)
        answers: Array = np.concatenate([reply.part("answers")["answers"] for reply in replies])
        self.count_answers(answers, question)
        total: Array = answers.sum(axis=0)
        return total


class RemoteDuals:
    """The dual points near x, from sums over sites (:class:`fpdfp.losses.base.DualPoints`)."""

    def __init__(self, losses: RemoteLosses, x: Array, weights: Array) -> None:
        self._losses, self._x, self._weights = losses, x, weights
        self.ridge = np.broadcast_to(
            float(weights.sum()) * (losses.constants()[0] if losses.constants() else losses.least_convexity),
            losses.shape,
        )
        per_class = losses.shape[:-1]
        features = losses.shape[-1:]
        #: A direction, and the gap there that came along with the gradient.
        self._known: tuple[Array, float] | None = None
        self._starts = {"gradient": losses.shape, "sizes": per_class, "columns": features}

    def begin(self) -> None:
        """Ask what is asked first where dual points exist everywhere."""
        if self._losses.family in CURVATURES:
            _ = self._start

    @functools.cached_property
    def _start(self) -> dict[str, Array]:
        """The first question about a point; along with it values and gradients there, where these are not known."""
        losses, point = self._losses, digest([self._x])
        parts = losses.answers.lacking(point, gradients=True, together=True) if losses.family in CURVATURES else ()
        return self._ask("start", self._starts, parts=parts)

    def _ask(
        self,
        part: str,
        shapes: Mapping[str, Shape],
        direction: Array | None = None,
        scale: float | None = None,
        parts: Sequence[Any] = (),
    ) -> dict[str, Array]:
        losses, ask = self._losses, {"part": part, "direction": direction, "scale": scale}
        sums, rows = losses.engine.duals(self._x, ask, self._weights, shapes, parts, losses.features)
        if rows:
            losses.keep(self._x, rows)
        return sums

    def gradient(self, direction: Array | None = None, *, gap: bool = False) -> Array:
        """Return Aᵀcθ with s = 1."""
        if direction is None:
            return self._start["gradient"]
        shapes: dict[str, Shape] = {"gradient": self._losses.shape} | ({"gap": ()} if gap else {})
        found = self._ask("gradient", shapes, direction, 1.0 if gap else None)
        self._known = (direction, float(found["gap"])) if gap else None
        return found["gradient"]

    def gap(self, direction: Array | None, scale: float) -> float:
        """Return Σ c_j (φ(z_j) + φ*(θ_j) − z_j θ_j)."""
        curvature = CURVATURES.get(self._losses.family)
        # Of other families sites describe what rounding adds.
        known = curvature is not None and "_start" in vars(self)
        rounding = form_rounding(curvature, self._start["columns"], self._x) if curvature is not None and known else 0.0
        if direction is None and scale == 1.0 and known:
            return rounding
        if self._known is not None and direction is self._known[0] and scale == 1.0:
            return self._known[1] + rounding
        return float(self._ask("gap", {"gap": ()}, direction, scale)["gap"]) + rounding

    def rounding(self) -> Array:
        """Return what rounding may have done to each entry of the gradient."""
        return sum_rounding(self._start["sizes"], self._start["columns"])

    def hessian_products(self, directions: Array) -> Array:
        """Return the Hessian of h at x times each of some directions."""
        return self._ask("curvature", {"curvature": directions.shape}, directions)["curvature"]

    def hessian(self) -> Array | None:
        """Return the Hessian of h at x as a matrix, None where it would be too large."""
        size = self._x.size
        if size > DENSE_HESSIAN:
            return None
        return full(self._ask("hessian", {"hessian": (size * (size + 1) // 2,)})["hessian"])


log = logging.getLogger("fpdfp.engines")
#: Families whose losses are never negative.
NONNEGATIVE = ("Logistic", "LeastSquares", "Softmax", "GLM", "OperatorLeastSquares", "ProjectionLosses")

#: Families whose slopes are bounded but for a ridge.
BOUNDED = ("Logistic", "Softmax")


class RemoteLosses(Losses):
    """Losses whose data is at sites; the server keeps what they have sent, and requests the rest.

    Values and gradients at the point requested last are kept, since more than one thing may be wanted there.
    """

    def __init__(
        self, engine: RemoteEngine, facts: Sequence[LossFacts], bounds: Sequence[LossBounds], features: bytes = b""
    ) -> None:
        self.engine = engine
        #: The digest of the features that these losses are functions of, empty for all.
        self.features = features
        first = facts[0]
        for name, fact in zip(engine.names, facts, strict=True):
            for what in ("family", "shape", "dtype", "form", "batches", "hessians", "duals", "restricts", "convex"):
                if getattr(fact, what) != getattr(first, what):
                    raise MessageError(
                        f"sites must have losses of the same kind: {what} is {getattr(fact, what)!r} at {name} and "
                        f"{getattr(first, what)!r} at {engine.names[0]}"
                    )
        compare_facts(engine.names, facts, bounds)
        if not features:
            _compare_features(engine.names, [fact.features for fact in facts])
        self._facts, self.shape, self.dtype = first, first.shape, np.dtype(first.dtype)
        self.sizes = np.concatenate([fact.sizes for fact in facts])
        self._lipschitz: Array = np.concatenate([bound.lipschitz for bound in bounds])
        self._convexity = min(bound.least_convexity for bound in bounds)
        self.lower_bound = 0.0 if first.family.split("(")[0] in NONNEGATIVE else -np.inf
        ends = np.cumsum([0, *(len(fact.sizes) for fact in facts)])
        #: The numbers of each site's clients.
        self.numbers = [np.arange(ends[i], ends[i + 1]) for i in range(len(facts))]
        #: Whether gradients are requested along with values, since both are needed: at the end of a run.
        self.together = False
        #: The site of each client, with the client's number there where the site has several.
        self.client_names = np.array(
            [
                name if len(fact.sizes) == 1 else f"{name}, {i}"
                for name, fact in zip(engine.names, facts, strict=True)
                for i in range(len(fact.sizes))
            ]
        )
        self._at_zero = np.concatenate([fact.values for fact in facts])
        points = {"probe": probe(self.shape, self.dtype), "values": np.zeros(self.shape, dtype=self.dtype)}
        self.answers: Answers[Array] = Answers(
            {
                ("values", digest([point])): _known(np.concatenate([getattr(fact, name) for fact in facts]))
                for name, point in points.items()
            }
        )

    def __repr__(self) -> str:
        return f"{self.family} of {self.n_clients} clients at {len(self.engine.names)} sites"

    @property
    def family(self) -> str:
        return self._facts.family

    @property
    def feature_digests(self) -> IntArray:
        return self._facts.features

    @property
    def form(self) -> Form:
        return self._facts.form

    @property
    def nearly_convolution(self) -> bool:
        return self._facts.form == "convolution"

    @property
    def supports_batches(self) -> bool:
        return self._facts.batches

    @property
    def least_convexity(self) -> float:
        return self._convexity

    def values(self, x: Array, clients: IntArray) -> Array:
        raise NotImplementedError("values of single clients are not available at sites: use value, or Cohort.ask_each")

    def gradients(
        self, x: Array, clients: IntArray, batch_size: int | None = None, draws: Draws | None = None
    ) -> Array:
        raise NotImplementedError(
            "gradients of single clients are not available at sites: use gradient, or Cohort.ask_each"
        )

    def value(self, x: Array, weights: Array) -> float:
        return float((weights * self.rows_at(x, gradients=False)).sum())

    def gradient(self, x: Array, weights: Array) -> Array:
        total: Array = np.zeros(self.shape, dtype=np.float64)
        rows = self.rows_at(x, gradients=True)
        for clients in self.chunks():
            part = rows[clients]
            total += (weights[clients].reshape(-1, *[1] * len(self.shape)) * part).sum(axis=0)
        return total.astype(self.dtype, copy=False)

    def rows_at(self, x: Array, *, gradients: bool) -> Array:
        """Return the values, or the gradients, of all clients at a point, for this package alone."""
        self.check(x, np.arange(0), shared=True)
        point = digest([x])
        parts = self.answers.lacking(point, gradients=gradients, together=self.together)
        if parts:
            self.keep(x, self.engine.at(x, parts, self.features))
        return self.answers["gradients" if gradients else "values", point]

    def keep(self, x: Array, found: Mapping[str, Array]) -> None:
        """Check and keep what sites have answered about a point."""
        self.check_plausible(x, found)
        known = {part: _known(one) if part == "values" else one for part, one in found.items()}
        self.answers.keep(digest([x]), known)

    def check_plausible(self, x: Array, found: Mapping[str, Array], scaling: Array | None = None) -> None:
        """Refuse values and gradients of all clients at a point that cannot be, each times a number of the client."""
        if scaling is not None:
            found = {part: one / scaling.reshape(-1, *[1] * (one.ndim - 1)) for part, one in found.items()}
        names = self.client_names.tolist()
        check_at(names, x, found, self._lipschitz, self._at_zero, lower_bound=self.lower_bound)

    @property
    def smooth(self) -> bool:
        return bool(np.isfinite(self._lipschitz).all())

    def lipschitz(self) -> Array:
        return self._lipschitz

    def lipschitz_in(self, factor: LinOp) -> Array:
        return self.engine.constants(factor, None, self.features)

    def batch_smoothness(self, batch_size: int, factor: LinOp | None = None) -> Array:
        return self.engine.constants(factor, batch_size, self.features)

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        # Clients compute with theirs; whether they can is all that a server asks.
        return np.empty((0, *x.shape, *x.shape)) if self._facts.hessians and not len(clients) else None

    def slope_bounds(self, clients: IntArray) -> Array | None:
        # As for hessians.
        bounded = self._facts.duals and self.family in BOUNDED and not len(clients)
        return np.empty((0, self.shape[-1])) if bounded else None

    @property
    def has_duals(self) -> bool:
        """Whether the conjugate of the loss of a row is known."""
        return self._facts.duals

    @property
    def can_restrict(self) -> bool:
        return self._facts.restricts

    @property
    def is_convex(self) -> bool:
        return self._facts.convex

    def restrict(self, features: IntArray) -> RemoteLosses:
        mask = Announced.mask(features, self.shape[-1])
        return self.engine.ask_facts(self.engine.known.keep(features, mask))

    def constants(self) -> tuple[Array, ...]:
        return tuple(self._facts.constants)

    def dual_points(self, x: Array, weights: Array) -> Any:
        return RemoteDuals(self, x, weights) if self.has_duals else None


def _known(values: Array) -> Array:
    """Return values unchanged, infinite where sites have said that a point is outside the domain of their loss."""
    return np.where(values >= OUTSIDE / 2, np.inf, values)


def _compare_features(sites: Sequence[str], features: Sequence[IntArray]) -> None:
    """Refuse sites whose features have other names, or stand in another order."""
    if not any(len(one) for one in features):
        log.warning(
            "no site names its features (feature_names= of its losses): that columns are the same is not checked"
        )
    for site, found in zip(sites, features, strict=True):
        wanted = "sites must have the same features in the same order"
        if len(found) != len(features[0]):
            named, unnamed = (site, sites[0]) if len(found) else (sites[0], site)
            raise MessageError(f"{wanted}: {named} names its features, but {unnamed} does not (feature_names=)")
        different = np.flatnonzero(found != features[0])
        if different.size:
            order = "in another order" if np.array_equal(np.sort(found), np.sort(features[0])) else "with other names"
            shown = ", ".join(map(str, different[:10])) + (", …" if different.size > 10 else "")
            raise MessageError(
                f"{wanted}: {site} has them {order} than {sites[0]}; they differ at the columns {shown} (from 0)"
            )
