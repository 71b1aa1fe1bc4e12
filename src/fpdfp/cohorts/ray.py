"""Ray: clients in the actors of a cluster, for a group that shares one.

An actor holds the losses of some clients for the whole run; a round is one request to each actor, and one reply with
its clients' encoded messages. The server never needs their data: ``load`` runs in the actors.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fpdfp import _checks
from fpdfp._numbers import one_thread
from fpdfp._typing import IntArray
from fpdfp.cohorts.collector import Tree
from fpdfp.cohorts.remote import RemoteEngine, RemoteLosses
from fpdfp.cohorts.requests import Job, Request
from fpdfp.cohorts.site import Site
from fpdfp.errors import AbsentError, ArgumentError
from fpdfp.losses.base import Losses
from fpdfp.problem import Problem

#: What a round asks.
PLAIN = frozenset({"key", "update", "at", "answers", "memory"})

log = logging.getLogger("fpdfp.engines")


class Worker:
    """The program of an actor: a site, whose losses are loaded when it starts, and again if it is restarted."""

    def __init__(self, source: Any, clients: IntArray, threads: int) -> None:
        import numba
        import ray

        from fpdfp._kernels.jit import use

        numba.set_num_threads(max(1, min(threads, numba.config.NUMBA_NUM_THREADS)))
        # Kernels for several threads, with one, would start and wait for it.
        use.one_thread = threads == 1
        # In a list, a reference is not looked up before the constructor is called, and again when it is called anew.
        # For good: to set the limit for each request would take longer than some of them.
        self.blas = one_thread()
        self.blas.__enter__()
        self.site = Site(source(clients) if callable(source) else ray.get(source[0]))

    def handle(self, request: bytes) -> bytes:
        """Answer a request; both are one piece of bytes each, which Ray carries sooner than many small arrays."""
        return pickle.dumps(self.site.handle(pickle.loads(request)), protocol=5)

    def process(self) -> int:
        """Return the number of this process."""
        return os.getpid()

    def node(self) -> str:
        """Return the name of the node that this process runs on."""
        import ray

        return str(ray.get_runtime_context().get_node_id())


class Ray(RemoteEngine):
    """Clients in Ray actors.

    ::

        engine = fpdfp.cohorts.Ray(load, n_clients=20, actors=4)      # load(clients) returns the losses of some clients
        with engine:
            problem = fpdfp.Problem(engine.losses(), penalty, linop)  # their data stays in the actors
            result = fpdfp.solve(problem, rounds=100, engine=engine)

    or, where the data is in this process already, ``fpdfp.solve(problem, rounds=100, engine=fpdfp.cohorts.Ray())``,
    which sends each actor its part, once. Same seed, same participants: the same bits as in one process.

    An actor that dies is restarted by Ray, loads its data again, and is sent what its clients remembered; the round in
    which it died continues without it, if there are ``min_clients`` others.

    Parameters
    ----------
    load
        A function of an array of client numbers that returns the losses of those clients, in this order.
    n_clients
        How many clients there are, where ``load`` is given.
    actors
        How many actors; by default as many as Ray has CPUs, at most one for each client.
    gpus
        How many GPUs an actor gets, a fraction if several share one; ``load`` then returns losses that live there.
    threads
        How many threads an actor computes with; by default its share of this machine's.
    deadline, min_clients, patience, norm_bound
        See :class:`fpdfp.cohorts.remote.RemoteEngine`.
    address
        Of a running cluster, as ``ray.init`` takes it; by default the one that is there, or a new one on this machine.

    Notes
    -----
    Actors are trusted: what they send is checked, but requests and replies are pickled, as Ray does it. Between
    organisations use :class:`fpdfp.Federation`.
    """

    trusted = True

    def __init__(
        self,
        load: Callable[[IntArray], Losses] | None = None,
        n_clients: int | None = None,
        *,
        actors: int | None = None,
        gpus: float = 0.0,
        threads: int | None = None,
        deadline: float | None = None,
        min_clients: int = 1,
        patience: float = 600.0,
        norm_bound: float | Literal["auto"] | None = "auto",
        address: str | None = None,
    ) -> None:
        super().__init__(deadline, min_clients, patience, norm_bound)
        if load is not None and not callable(load):
            raise TypeError(f"load must be a function of client numbers, got {type(load).__name__}")
        if (load is None) != (n_clients is None):
            raise ValueError("load and n_clients belong together: give both, or neither where the problem has the data")
        self._load = load
        self.n_clients = None if n_clients is None else _checks.integer("n_clients", n_clients, at_least=1)
        self._asked_actors = None if actors is None else _checks.integer("actors", actors, at_least=1)
        self._gpus = _checks.real("gpus", gpus, at_least=0.0)
        self._threads = None if threads is None else _checks.integer("threads", threads, at_least=1)
        self._address = address
        self.actors: list[Any] = []
        self._sources: list[Any] = []
        self._late: dict[int, Any] = {}
        self._initialised = False

    @property
    def names(self) -> Sequence[str]:
        return [f"actor {site}" for site in range(len(self.actors))]

    def __enter__(self) -> Ray:
        if self._load is not None and not self.actors:
            assert self.n_clients is not None
            self._hire(self.n_clients)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Dismiss the actors."""
        if not self.actors and not self._initialised:
            return
        import ray

        for actor in self.actors:
            with contextlib.suppress(Exception):
                ray.kill(actor)
        self.actors, self._sources, self._late, self._losses = [], [], {}, None
        if self._initialised:
            ray.shutdown()
            self._initialised = False

    @contextlib.contextmanager
    def started(self) -> Iterator[None]:
        if self.actors:
            yield
            return
        with self:
            yield

    def losses(self) -> RemoteLosses:
        if self._load is not None:
            self.__enter__()
        if not self.actors:
            raise ValueError("load must be given for losses that are in the actors from the start")
        return super().losses()

    def attach(self, problem: Problem) -> Problem:
        losses = problem.losses
        if isinstance(losses, RemoteLosses):
            return super().attach(problem)
        if self._load is not None:
            raise ArgumentError("problem", "must have the losses of the engine (engine.losses()) where load is given")
        if losses.device != "cpu":
            raise ValueError("load must be given for losses on a GPU: each actor makes the losses of its clients")
        if self.actors:
            self.close()
        self._hire(losses.n_clients, losses.part)
        return Problem(super().losses(), problem.penalty, problem.linop, weights=problem.weights)

    def _hire(self, n_clients: int, part: Callable[[IntArray], Losses] | None = None) -> None:
        """Start the actors, each with its share of the clients, which they load, or of which they are sent a part."""
        try:
            import ray
        except ImportError as error:
            raise ImportError("engine=Ray() needs Ray: pip install ray") from error
        if not ray.is_initialized():
            quiet: dict[str, Any] = {"include_dashboard": False} if self._address is None else {}
            ray.init(address=self._address, log_to_driver=False, logging_level=logging.ERROR, **quiet)
            self._initialised = True
        cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        count = min(self._asked_actors or cpus, n_clients)
        threads = self._threads or max(1, (os.cpu_count() or 1) // count)
        # Actors that are more than there are free CPUs share them, and do not wait for ever.
        free = ray.available_resources().get("CPU", 0.0)
        options: dict[str, Any] = {"num_cpus": 1.0 if free >= count else 0.0, "num_gpus": self._gpus}
        options["scheduling_strategy"] = "SPREAD"
        # Ray's own record of every call would take longer than some calls.
        options["enable_task_events"] = False
        kind = ray.remote(max_restarts=-1, max_task_retries=0, **options)(Worker)
        for clients in np.array_split(np.arange(n_clients), count):
            if part is not None:
                # Kept here, since an actor that is restarted requests it again.
                self._sources.append(ray.put(part(clients)))
            self.actors.append(kind.remote(self._load if part is None else [self._sources[-1]], clients, threads))

    def write(self, request: Request) -> Tree:
        # Problems may have parts that were written in a notebook.
        return request.write()

    def key(self, job: Job, run_id: str) -> str:
        return secrets.token_hex(8)

    def carry(self, asked: Mapping[int, Tree], deadline: float | None) -> dict[int, Any]:
        import ray
        from ray.exceptions import RayActorError, RayError, RayTaskError

        replies: dict[int, Any] = {}
        sent = {}
        for site, request in asked.items():
            late = self._late.pop(site, None)
            if late is not None:
                if not ray.wait([late], timeout=0)[0]:
                    self._late[site] = late
                    replies[site] = AbsentError("it is still busy with an earlier request")
                    continue
                log.info("a late reply of %s is dropped", self.names[site])
            # The requests of a round are plain data.
            dumps = pickle.dumps if set(request) <= PLAIN else ray.cloudpickle.dumps
            sent[self.actors[site].handle.remote(dumps(request, protocol=5))] = site
        if not sent:
            return replies
        started = time.monotonic()
        try:
            # Mostly all is well, and this is much sooner done than waiting first and then getting one after the other.
            return replies | dict(
                zip(sent.values(), map(pickle.loads, ray.get(list(sent), timeout=deadline)), strict=True)
            )
        except RayError:
            left = None if deadline is None else max(0.0, deadline - (time.monotonic() - started))
        done, waiting = ray.wait(list(sent), num_returns=len(sent), timeout=left)
        for reference in waiting:
            self._late[sent[reference]] = reference
        for reference in done:
            try:
                replies[sent[reference]] = pickle.loads(ray.get(reference))
            except RayActorError as error:
                if getattr(error, "_actor_init_failed", False):
                    raise RuntimeError(f"load failed in {self.names[sent[reference]]}: {error}") from error
                replies[sent[reference]] = AbsentError(f"its process died ({type(error).__name__})")
            except RayTaskError as error:
                raise error.as_instanceof_cause() from None
            except RayError as error:
                replies[sent[reference]] = AbsentError(f"Ray says: {type(error).__name__}")
        return replies
