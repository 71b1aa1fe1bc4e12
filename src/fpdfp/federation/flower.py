"""Flower as the way to the sites: the same questions, the same site, guard and log, carried by a Flower federation.

At a site a process of its own holds the data and answers behind its policy, as ``fpdfp federation join`` does::

    python -m fpdfp.federation.flower --site north --folder /srv/fpdfp --data patients.csv

Flower's SuperNode runs :func:`client_app`, which passes bytes on to that process through a socket in its folder: what
Flower starts never sees the data. The coordinator's ServerApp asks the sites through :class:`FlowerFederation`::

    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        federation = FlowerFederation(grid, "results")
        model = fpdfp.FederatedGLM("binomial").fit(federation, "died ~ age + C(stage)")

Flower does not name the analyst to sites: anyone who may start runs at the SuperLink is one analyst to them, named
"flower".
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fpdfp import __version__
from fpdfp._numbers import one_thread
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.errors import AbsentError, MessageError
from fpdfp.federation import keys
from fpdfp.federation.agent import Desk, alone, digest_of_data, open_guard, respond
from fpdfp.federation.analyst import LONGEST, Federation
from fpdfp.federation.commands import log_to_stderr
from fpdfp.federation.connection import SiteStatus, Status, Usage
from fpdfp.federation.framing import Message, Receiver
from fpdfp.federation.keys import About
from fpdfp.federation.rollback import ReplayGuard
from fpdfp.federation.text import log, read_name, read_release, refuse_unprintable

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

#: The socket in a site's folder, and the name under which bytes are in Flower's messages.
SOCKET, RECORD = "flower.sock", "fpdfp"
#: Who asks, as far as a site is told.
ASKER = {"name": "flower", "role": "analyst", "fingerprint": "0"}
#: Seconds in which a site says its name.
HELLO = 60.0


class SiteServer:
    """The process of a site: it answers what comes through the socket in its folder, one request after the other.

    Parameters
    ----------
    name, study
        The names of the site and of the study.
    desk
        What answers: the guard of the site.
    folder
        The folder of the site, for its owner alone.
    data
        A digest of the data, for analyses that are repeated later.
    """

    def __init__(self, name: str, study: str, desk: Desk, folder: Path, data: str = "") -> None:
        self.about = About(read_name("study", study), "site", read_name("site", name), "")
        self._desk, self._folder, self._data = desk, folder, data
        self._seen, self._heads = ReplayGuard(folder), Receiver()
        self._ended = threading.Event()

    def run(self) -> None:
        """Answer until :meth:`stop`."""
        path = self._folder / SOCKET
        path.unlink(missing_ok=True)
        before = os.umask(0o177)  # for the owner of the folder alone
        try:
            listener = Listener(str(path), "AF_UNIX")
        finally:
            os.umask(before)
        with listener, one_thread():
            log.info("%s answers at %s", self.about.name, path)
            while not self._ended.is_set():
                with contextlib.suppress(OSError, EOFError), listener.accept() as line:
                    self._answer(line)
        path.unlink(missing_ok=True)

    def _answer(self, line: Connection) -> None:
        body = line.recv_bytes(LONGEST)
        if not body:  # someone asks who this is, or ends this process
            said = {"name": self.about.name, "study": self.about.study, "software": __version__, "data": self._data}
            line.send_bytes(pack(said))
            return
        line.send_bytes(
            respond(Message("ask", {"asker": ASKER}, body), self.about, self._desk, self._seen, self._heads)
        )

    def stop(self) -> None:
        """End after the request that is being answered."""
        self._ended.set()
        with contextlib.suppress(OSError, EOFError):
            pass_on(self._folder, b"")


def pass_on(folder: Path | str, body: bytes) -> bytes:
    """Send bytes to the process of a site, and return what it answers."""
    with Client(str(Path(folder) / SOCKET), "AF_UNIX") as line:
        line.send_bytes(body)
        return line.recv_bytes()


def client_app() -> ClientApp:
    """Return the app that a SuperNode runs: it passes requests on to the process of the site.

    The folder of the site comes from the configuration of the node: ``--node-config 'folder="/srv/fpdfp"'``.
    """
    from flwr.app import ConfigRecord, Context, RecordDict
    from flwr.app import Message as Carried
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query()  # type: ignore[untyped-decorator]
    def answer(message: Carried, context: Context) -> Carried:
        started = time.monotonic()
        folder = context.node_config.get("folder")
        if not isinstance(folder, str):
            raise ValueError('the configuration of the node must name the folder of the site: folder="…"')
        reply = pass_on(folder, bytes(message.content.config_records[RECORD]["body"]))
        said = ConfigRecord({"body": reply, "seconds": time.monotonic() - started})
        return Carried(RecordDict({RECORD: said}), reply_to=message)

    return app


class GridLink:
    """Flower's grid as the way to the sites, in place of :class:`fpdfp.federation.connection.Connection`.

    Parameters
    ----------
    grid
        The grid of a ServerApp.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.usage = Usage()
        self._nodes: dict[str, int] = {}

    def close(self) -> None:
        """Do nothing: the grid is the ServerApp's."""

    def status(self) -> Status:
        """Ask all nodes who they are."""
        nodes = {str(node): node for node in self._grid.get_node_ids()}
        self._nodes, sites, study = {}, [], ""
        for node, (body, _) in self._send(dict.fromkeys(nodes, b""), nodes, HELLO).items():
            said = unpack(body)
            refuse_unprintable(said)
            name, study = read_name("the name of a site", said.get("name")), read_name("study", said.get("study"))
            if name in self._nodes:
                raise MessageError(f"two nodes of the federation are the site {name}")
            self._nodes[name] = nodes[node]
            now, known = datetime.datetime.now(datetime.UTC), (said.get("software"), said.get("data"))
            software, data = map(read_release, known)
            sites.append(SiteStatus(name, "joined", True, now, software, data=data))
        return Status(study, __version__, sites, [])

    def exchange(self, parcels: Mapping[str, bytes], timeout: float, limit: int = LONGEST) -> dict[str, Any]:
        """Send sites their requests; return by the deadline what came: bytes, or AbsentError."""
        started = time.monotonic()
        replies = self._send(parcels, self._nodes, timeout)
        elapsed = time.monotonic() - started
        self.usage.exchanges, self.usage.waited = self.usage.exchanges + 1, self.usage.waited + elapsed
        found: dict[str, Any] = {}
        for name, parcel in parcels.items():
            self.usage.down += len(parcel)
            if name not in replies:
                found[name] = AbsentError("Flower has brought no reply by the deadline")
                continue
            body, busy = replies[name]
            self.usage.up += len(body)
            self.usage.note(name, elapsed, min(busy, elapsed), len(body), len(parcel))
            long = f"it has {len(body)} bytes, more than any that was asked for ({limit})"
            found[name] = body if len(body) <= limit else MessageError(long)
        return found

    def _send(
        self, parcels: Mapping[str, bytes], nodes: Mapping[str, int], timeout: float
    ) -> dict[str, tuple[bytes, float]]:
        """Send nodes their bytes; return those that came back, and the seconds that the sites took for them."""
        from flwr.app import ConfigRecord, RecordDict
        from flwr.app import Message as Carried

        names = {nodes[name]: name for name in parcels}
        messages = [
            Carried(
                content=RecordDict({RECORD: ConfigRecord({"body": parcel})}), message_type="query",
                dst_node_id=nodes[name], ttl=max(timeout, 1.0),
            )
            for name, parcel in parcels.items()
        ]  # fmt: skip
        found: dict[str, tuple[bytes, float]] = {}
        for one in self._grid.send_and_receive(messages, timeout=timeout):
            name = names.get(one.metadata.src_node_id)
            if name is None:
                continue
            if one.has_error():
                log.warning("%s: Flower says: %s", name, one.error.reason)
                continue
            record = one.content.config_records.get(RECORD)
            body, busy = (None, None) if record is None else (record.get("body"), record.get("seconds"))
            if isinstance(body, bytes) and isinstance(busy, float):
                found[name] = body, busy
        return found


class FlowerFederation(Federation):
    """The sites of a Flower federation, for a ServerApp: what :class:`fpdfp.Federation` is for a hub.

    Parameters
    ----------
    grid
        The grid of the ServerApp.
    folder
        Where the folders of runs are written, under ``runs``.
    sites
        The names of the sites to ask, in the order in which their sums are added; by default all, sorted.
    deadline, min_sites, patience, norm_bound, run
        See :class:`fpdfp.Federation`.
    """

    def __init__(
        self, grid: Grid, folder: Path | str, *, sites: Sequence[str] | None = None, deadline: float = 600.0,
        min_sites: int | None = None, patience: float = 3600.0, norm_bound: float | Literal["auto"] | None = "auto",
        run: str | None = None,
    ) -> None:  # fmt: skip
        link = GridLink(grid)
        self.privacy = None
        self._settle(link, Path(folder), deadline, min_sites, patience, norm_bound, run)
        self._chosen = None if sites is None else list(sites)
        _ = self.names  # so that nodes are known before sites are asked

    def __repr__(self) -> str:
        return f"FlowerFederation({', '.join(self.names)})"

    def _warnings(self) -> list[str]:
        return []  # certificates are those of Flower


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the process of a site until it is interrupted or terminated."""
    parser = argparse.ArgumentParser(prog="python -m fpdfp.federation.flower", description=main.__doc__)
    parser.add_argument("--site", required=True, help="the name of the site")
    parser.add_argument("--study", default="study", help="the name of the study, for the log")
    parser.add_argument("--folder", required=True, type=Path, help="for the log, the budget and the socket")
    parser.add_argument("--data", required=True, type=Path, help="the table: CSV or Parquet")
    parser.add_argument("--policy", type=Path, help="by default policy.toml in the folder, written if missing")
    given = parser.parse_args(arguments)
    log_to_stderr()
    keys.make_private_folder(given.folder)
    with alone(given.folder), open_guard(given.site, given.folder, given.data, given.policy) as desk:
        data = digest_of_data(given.folder, str(getattr(desk.table, "fingerprint", "")))
        server = SiteServer(given.site, given.study, desk, given.folder, data)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: threading.Thread(target=server.stop, daemon=True).start())
        server.run()


if __name__ == "__main__":
    main()
