"""A small federation in this process: a hub and sites in threads, with real certificates and real connections."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

import fpdfp
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.site import Site
from fpdfp.errors import MessageError
from fpdfp.federation.agent import Agent
from fpdfp.federation.analyst import Asking, FederationEngine
from fpdfp.federation.connection import Connection, enrol
from fpdfp.federation.framing import Backoff
from fpdfp.federation.hub import Hub
from fpdfp.federation.keys import Asker, Identity, Study, read_invitation

SITES = ("north", "east", "south")
MODEL = {"trial": 1}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class HubThread:
    """A hub in a thread."""

    def __init__(self, study: Study, **options: Any) -> None:
        self.hub = Hub(study, **{"bind": "127.0.0.1", **options})
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.hub.start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self.hub.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class TrialDesk:
    """Answers as a desk does, without a policy."""

    audit = None

    def __init__(self, losses: Any, trouble: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.losses = losses
        self.site: Site | None = None
        self.trouble = trouble
        #: From which round on it refuses.
        self.refuses = math.inf
        self.askers: set[Asker] = set()

    def answer(self, asked: dict[str, Any], asker: Asker) -> dict[str, Any]:
        self.askers.add(asker)
        if self.trouble is not None:
            self.trouble(asked)
        if asked["kind"] == "echo":
            return {"reply": {"body": asked["body"]}}
        if asked["kind"] == "policy":
            return {"refused": "this site has 5 rows, and needs 10"}
        if asked["kind"] != "request":
            raise MessageError(f"a request of the kind {asked['kind']!r} is not known")
        if asked["request"].get("update", {}).get("round", 0) >= self.refuses:
            return {"refused": "this site has told enough"}
        if self.site is None and "spec" not in asked:
            return {"needs_model": True}
        if self.site is None:
            assert asked["spec"] == MODEL
            self.site = Site(self.losses)
        return {"reply": self.site.handle(parcels.load(asked["request"]))}


class AgentThread:
    """A site in a thread."""

    def __init__(self, identity: Identity, desk: Any) -> None:
        self.desk = desk
        self.agent = Agent(identity, desk, Backoff(0.02, 0.2))
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.agent.run()
        except Exception as error:
            self.error = error

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.agent.stop()
        self.thread.join(10)
        assert not self.thread.is_alive()


class Relay:
    """Stands between somebody and the hub, keeps a copy of every byte, and cuts a connection when told to.

    ``seen`` holds what went up and what came down, for each connection.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._left: dict[bool, float] = {True: math.inf, False: math.inf}
        self.seen: list[tuple[bytearray, bytearray]] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def cut(self, *, up: bool, after: int) -> None:
        """Cut once, when so many more bytes have gone to the hub (``up``) or come from it."""
        self._left[up] = after

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._server.accept()
                self.seen.append((bytearray(), bytearray()))
                there = socket.create_connection(("127.0.0.1", self._to))
                for source, target, up in ((here, there, True), (there, here, False)):
                    copy = self.seen[-1][0 if up else 1]
                    threading.Thread(target=self._carry, args=(source, target, up, copy), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, up: bool, copy: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                copy += data
                self._left[up] -= len(data)
                if self._left[up] < 0:
                    self._left[up] = math.inf
                    break
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


class Trial:
    """A study with its hub and its sites."""

    def __init__(self, folder: Path, sites: Sequence[str] = SITES, port: int | None = None) -> None:
        self.study = Study.create(folder / "study", sites, hosts=["127.0.0.1"], port=port or free_port())
        self.folder = folder
        self.link = Connection(self.study.analyst)
        self.asking = Asking(self.link)

    def join(self, site: str) -> Identity:
        folder = self.folder / site
        if (folder / "identity.toml").exists():
            return Identity(folder)
        path = self.study.folder / "invitations" / f"invitation-{site}.zip"
        return enrol(read_invitation(path), folder)

    def engine(self, sites: Sequence[str] = SITES, **options: Any) -> FederationEngine:
        engine = FederationEngine(self.asking, sites, MODEL, **{"patience": 120.0, "deadline": 60.0, **options})
        engine.pause = 0.05
        return engine

    def online(self) -> set[str]:
        return {site.name for site in self.link.status().sites if site.online}

    def wait(self, sites: Sequence[str] = SITES, seconds: float = 10.0) -> None:
        until = time.monotonic() + seconds
        while self.online() != set(sites):
            assert time.monotonic() < until, f"{self.online()} are there, not {sites}"
            time.sleep(0.01)


def parts(problem: fpdfp.Problem, sites: int = len(SITES)) -> list[Any]:
    return [problem.losses.part(part) for part in np.array_split(np.arange(problem.n_clients), sites)]


@contextlib.contextmanager
def running(trial: Trial, desks: Sequence[Any], sites: Sequence[str] = SITES) -> Iterator[list[AgentThread]]:
    """Within this, hub and sites run."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(HubThread(trial.study))
        stack.callback(trial.link.close)
        pairs = zip(sites, desks, strict=True)
        agents = [stack.enter_context(AgentThread(trial.join(site), desk)) for site, desk in pairs]
        trial.wait(sites)
        yield agents
