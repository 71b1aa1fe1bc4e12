"""Clients that are elsewhere, as the server asks them: what every engine with sites has."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.collector import Check, Collector, Decoded, Totals, Transport, check_rows, decode_once
from fpdfp.cohorts.local import Clients
from fpdfp.cohorts.losses import At, Bounds, Constants, Duals, Facts
from fpdfp.cohorts.question import Question, tuple_kind
from fpdfp.cohorts.requests import Address, Job, Place, Reply, Request
from fpdfp.cohorts.rounds import Update
from fpdfp.cohorts.session import Early, Masks, Session, among
from fpdfp.compress import Compressor
from fpdfp.errors import ArgumentTypeError, MessageError
from fpdfp.linops import LinOp
from fpdfp.methods.base import Algorithm
from fpdfp.precondition import Preconditioner
from fpdfp.problem import Problem
from fpdfp.traffic import digest

if TYPE_CHECKING:
    from fpdfp.cohorts.remote_losses import RemoteLosses
    from fpdfp.engines.options import RunOptions


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

    def _send(self, question: Question, clients: IntArray, seed: int, *, each: bool = False) -> tuple[Any, int]:
        return self._engine.gather(self.problem, question, clients, seed, each=each)


class RemoteEngine(Transport):
    """An engine whose clients are at sites: it carries requests, and the rest is the same for all.

    Parameters
    ----------
    deadline
        Seconds after which a round goes on without those that have not answered; None waits for everyone.
    min_clients
        How many clients' replies a round needs at least; with fewer it waits, and asks the others again.
    patience
        Seconds after which a round (or the setup) that still has too few replies gives up.
    norm_bound
        The largest norm that a field of a reply may have; longer ones are shortened to it. By default, ``"auto"``, a
        reply counts as absent if it is a thousand times larger than all that it can be compared with
        (:mod:`fpdfp.cohorts.plausible`). None for no bound.

    Attributes
    ----------
    collector
        Waits for replies.
    masks, session
        What sites were told of features, and of the run.
    run_id
        The name of the run, kept through restarts of the server.
    agreed
        The coordinates that constants are asked for in.
    """

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
        self.masks = Masks()
        self.session = Session(masks=self.masks)
        self.run_id = secrets.token_hex(8)
        self.agreed: Preconditioner | None = None
        self._losses: RemoteLosses | None = None

    @property
    def fixed_bound(self) -> float | None:
        """The bound to which both sides shorten replies, None where there is none."""
        return self.norm_bound if isinstance(self.norm_bound, float) else None

    @property
    def totals(self) -> Totals:
        """How often replies were refused or did not come, and how often a site was sent what it lacked."""
        return self.collector.totals

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
        from fpdfp.cohorts.remote_losses import RemoteLosses

        request = Request((Facts(), Bounds()), Address(features=features))

        def check(site: int, reply: Reply) -> None:
            check_rows(reply.part("bounds").lipschitz, reply.part("facts").sizes.shape)

        replies = self.ask_all(request, check)
        facts, bounds = ([reply.part(name) for reply in replies] for name in ("facts", "bounds"))
        return RemoteLosses(self, facts, bounds, features)

    def declare(self, problems: int, folds: int) -> None:
        """Tell sites that so many related problems are about to be solved together: nothing where they do not ask."""

    def attach(self, problem: Problem) -> Problem:
        """Return the problem with its losses at the sites."""
        if getattr(problem.losses, "engine", None) is not self:
            raise ArgumentTypeError("problem", f"must have the losses of this engine, got {problem.losses!r}")
        return problem

    def add_options(self, problem: Problem, options: RunOptions) -> RunOptions:
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
        """Begin a run: each site is told what is run with its next request."""
        told = algorithm.for_sites()
        jobs = [Job(told, compressors, downlink, place, self.fixed_bound) for place in self.places(problem, seed)]
        keys = [self.key(job, self.run_id) for job in jobs]
        features = getattr(problem.losses, "features", b"")
        self.session = Session(
            jobs, keys, masks=self.masks, features=features, trusted=self.trusted, from_zero=from_zero
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
            session.coming = None  # asked for once

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
        """Forget a round that was asked for ahead and is not done."""
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
            found[site] = decode_once(reply.part(question.name), own[site], messages)

        self.collector.collect_all(asked, self.session, check)
        parts = [found[site] for site in asked]
        first = self.names[next(iter(asked))]
        for site, part in zip(asked, parts, strict=True):
            if part.fields != parts[0].fields or part.shapes != parts[0].shapes:
                raise MessageError(
                    f"{self.names[site]} and {first} disagree on what is sent once: have they the same kind of losses?"
                )
        arrays = [np.concatenate(one) for one in zip(*(part.arrays for part in parts), strict=True)]
        return tuple_kind("Once", parts[0].fields)(*arrays), sum(part.bits for part in parts)

    def constants(self, factor: LinOp | None, batch_size: int | None, features: bytes = b"") -> Array:
        """Return the Lipschitz constants in other coordinates, or what mini-batches of a size add to them."""
        # A preconditioner is shorter than the map that it stands for.
        known = self.agreed is not None and self.agreed.factor is factor
        ask = Constants(None if known else factor, self.agreed if known else None, batch_size)

        def check(site: int, reply: Reply) -> None:
            self.check_rows(site, reply.part("constants").constants, ())

        asked = dict.fromkeys(range(len(self.names)), Request((ask,), Address(features=features)))
        replies = self.collector.collect_all(asked, self.session, check)
        rows: Array = np.concatenate([replies[site].part("constants").constants for site in asked])
        return rows

    def at(self, x: Array, parts: Sequence[Any], features: bytes = b"") -> dict[str, Array]:
        """Return f_i(x) of all clients (``"values"``), ∇f_i(x) (``"gradients"``), or both."""
        shapes = {"values": (), "gradients": x.shape}

        def check(site: int, reply: Reply) -> None:
            for part in parts:
                self.check_rows(site, getattr(reply.part("at"), part), shapes[part])

        self.session.point = None
        replies = self.ask_all(Request((At(x, list(parts)),), Address(features=features)), check)
        self.session.point = x
        return {part: np.concatenate([getattr(reply.part("at"), part) for reply in replies]) for part in parts}

    def duals(
        self,
        x: Array,
        ask: Mapping[str, Any],
        weights: Array,
        shapes: Mapping[str, tuple[int, ...]],
        features: bytes = b"",
    ) -> dict[str, Array]:
        """Return the sums over sites of what is asked of dual points near x; infinite where one is.

        Sites are sent x only if they were not asked about it just before.
        """

        def check(site: int, reply: Reply) -> None:
            for name, shape in shapes.items():
                check_rows(getattr(reply.part("duals"), name), shape)

        session, point = self.session, digest([x])
        told = session.point is not None and digest([session.point]) == point
        session.point = x
        asked = {
            site: Request(
                (Duals(point, weights=weights[numbers], x=None if told else x, **ask),), Address(features=features)
            )
            for site, numbers in enumerate(self.numbers)
        }
        replies = self.collector.collect_all(asked, session, check)
        parts = [replies[site].part("duals") for site in asked]
        sums = {name: np.sum([getattr(part, name) for part in parts], axis=0) for name in shapes}
        if "gap" in shapes and any(float(part.gap) < 0 for part in parts):
            sums["gap"] = np.array(np.inf)
        return sums
