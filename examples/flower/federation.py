"""A whole federation on this machine, of real processes: a SuperLink and SuperNodes with TLS and node authentication.

For demonstrations, tests and trials before a deployment. What is here is what the units for systemd do in production,
with the ports of the loopback interface in place of a network.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from examples.flower.processes import Child, Found, find_marked, kill_marked
from fpdfp import _checks
from fpdfp.flower import certificates
from fpdfp.flower.control import Control, NodeStatus, RunStatus

Value = str | int | float | bool
T = TypeVar("T")

HOST = "127.0.0.1"
#: By these variables our processes are found again: all of a federation's, and those of one of its parts.
MARK = "FPDFP_FEDERATION"
PART = "FPDFP_FEDERATION_PART"
SUPERLINK = "superlink"
SERVER_APP = "flwr-serverapp"
CLIENT_APP = "flwr-clientapp"
#: Nothing leaves the machine but messages to SuperLink: no telemetry, no look for updates, no packages fetched.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
#: Seconds between two looks of Flower's helpers for work: a second by default, and most of it wasted in a round.
POLL = "0.05"
#: A node that died counts as online for so long (two heartbeats of 30 s), and is refused until then.
ONLINE = 60.0


class FederationError(RuntimeError):
    """Something in a federation did not start, or a run failed: the message has the end of the log."""


class Node(NamedTuple):
    """A SuperNode: its site's name, its key, its folder for memory, its port, and the process."""

    site: str
    keys: certificates.Pair
    state: Path
    port: int
    child: Child


class Federation:
    """Start a SuperLink and SuperNodes, run apps in them, kill and restart any of them, and end them all.

    Everything is kept in one folder: ``certificates``, ``logs``, ``state`` with a folder for each site,
    ``superlink.db`` and Flower's own files. Leaving the ``with`` block ends every process, also after an error or
    Ctrl-C.

    Parameters
    ----------
    folder
        Where everything is kept; made where it does not exist. Keys that are there are used again.
    sites
        The names of the sites, one SuperNode each.
    node_config
        For some or all of the sites, what its SuperNode hands to the app beside ``site`` and ``state``.
    environment
        Variables for all processes beside those of this process.
    start_nodes
        Whether ``start`` also starts the SuperNodes and waits for them.
    host
        The address on which SuperLink listens: that of the loopback interface, or ``0.0.0.0`` for every one.

    Examples
    --------
    >>> with Federation("federation", ["north", "east"]) as federation:  # doctest: +SKIP
    ...     run = federation.run("app", {"rounds": 10})
    ...     federation.wait(run, timeout=300)
    """

    def __init__(
        self,
        folder: Path | str,
        sites: Sequence[str] = ("north", "east", "south"),
        *,
        node_config: Mapping[str, Mapping[str, Value]] | None = None,
        environment: Mapping[str, str] | None = None,
        start_nodes: bool = True,
        host: str = HOST,
    ) -> None:
        self.host = host
        self.folder = Path(folder).resolve()
        self.sites = tuple(certificates.site_name(f"sites[{i}]", site) for i, site in enumerate(sites))
        self.node_config = {site: dict(config) for site, config in (node_config or {}).items()}
        for site in self.node_config:
            if site not in self.sites:
                raise ValueError(f"node_config must be for sites of {', '.join(self.sites)}, got {site!r}")
        self._start_nodes = _checks.flag("start_nodes", start_nodes)
        self._id = uuid.uuid4().hex
        self._environment = self._make_environment(environment or {})
        self.port = free_port()
        self.nodes: dict[str, Node] = {}
        self.node_ids: dict[str, int] = {}
        self._supervisors: dict[str, _Supervisor] = {}
        self._control: Control | None = None
        self._superlink: Child | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Where things are

    @property
    def address(self) -> str:
        """SuperLink's ``host:port``."""
        return f"{HOST}:{self.port}"

    @property
    def authority(self) -> Path:
        """The certificate of the authority that signed SuperLink's."""
        return self.folder / "certificates" / "superlink" / "ca.pem"

    @property
    def logs(self) -> Path:
        """The folder of the logs: ``superlink.log``, ``run-ID.log`` of a ServerApp, ``node-NAME.log`` of a site."""
        return self.folder / "logs"

    def log(self, name: str = SUPERLINK) -> str:
        """All that SuperLink or a site's SuperNode (with its ClientApps) has printed; ServerApps: see ``run_log``."""
        return self._child(name).text()

    @property
    def environment(self) -> dict[str, str]:
        """The variables for a ``flwr`` command that is to speak to this federation."""
        return dict(self._environment)

    # Start and end

    def start(self) -> None:
        """Make keys where there are none, start SuperLink, register the keys, start the SuperNodes, wait for them."""
        certificates.make_all(self.folder / "certificates", [HOST, "localhost"], self.sites)
        self._write_connection()
        self.start_superlink()
        for site in self.sites:
            self.register(site)
        if self._start_nodes:
            for site in self.sites:
                self.start_node(site)
            self.wait_online(self.sites)

    def stop(self) -> None:
        """End every process of the federation, and whatever they have started."""
        for supervisor in self._supervisors.values():
            supervisor.stop()
        self._supervisors.clear()
        if self._control is not None:
            self._control.close()
            self._control = None
        try:
            children = [node.child for node in self.nodes.values()]
            for child in children:  # all at once: each takes a moment to say goodbye
                if child.running and child.pid is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child.pid, 15)
            for child in children:
                child.stop(patience=5.0)
            if self._superlink is not None:
                self._superlink.stop(patience=5.0)
        finally:
            kill_marked(MARK, self._id)

    def start_superlink(self, timeout: float = 60.0) -> None:
        """Start SuperLink, or start it again on the same port with the same database, and wait until it answers."""
        folder = self.folder / "certificates" / "superlink"
        command = [
            *(sys.executable, "-m", "fpdfp.flower.guard"),
            *("--host", self.host, "--port", str(self.port)),
            *("--ssl-ca-certfile", str(folder / "ca.pem")),
            *("--ssl-certfile", str(folder / "server.pem"), "--ssl-keyfile", str(folder / "server.key")),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
            *("--database", str(self.folder / "superlink.db")),
        ]
        self._superlink = Child(
            command, log=self.logs / "superlink.log", environment=self._environment, mark=(PART, self._part(SUPERLINK))
        )
        self._superlink.start()
        self._until(self._healthy, timeout, "SuperLink to answer", SUPERLINK)

    def start_node(
        self,
        site: str,
        *,
        keys: certificates.Pair | None = None,
        authority: Path | str | None = None,
        config: Mapping[str, Value] | None = None,
        superlink: str | None = None,
    ) -> Node:
        """Start a site's SuperNode, without waiting for SuperLink to accept it.

        ``keys`` and ``authority`` take the place of the site's own, to see a node refused. A site that is none of the
        federation's gets a fresh key, which nobody has registered. ``superlink`` is another way to SuperLink: the
        ``host:port`` of a proxy.
        """
        certificates.site_name("site", site)
        if keys is None:
            keys = self.keys(site)
            if not keys.key.exists():
                certificates.make_node_key(keys.key.parent)
        state = self.folder / "state" / site
        state.mkdir(parents=True, exist_ok=True)
        port = free_port()
        own = {"site": site, "state": str(state), **self.node_config.get(site, {}), **(config or {})}
        command = [
            program("flower-supernode"),
            *("--superlink", superlink or self.address),
            *("--root-certificates", str(authority if authority is not None else self.authority)),
            *("--auth-supernode-private-key", str(keys.key)),
            *("--host", HOST, "--port", str(port)),
            *("--node-config", toml_pairs(own)),
        ]
        child = Child(
            command, log=self.logs / f"node-{site}.log", environment=self._environment, mark=(PART, self._part(site))
        )
        node = Node(site, keys, state, port, child)
        self.nodes[site] = node
        child.start()
        return node

    # Keys

    def keys(self, site: str) -> certificates.Pair:
        """Where a site's key pair is."""
        folder = self.folder / "certificates" / "sites" / site
        return certificates.Pair(folder / "node.key", folder / "node.pub")

    def register(self, site: str) -> int:
        """Make a site's public key known to SuperLink; returns the id that the node will have."""
        known = {node.name: node.node_id for node in self.control.nodes() if node.status != "unregistered"}
        if site not in known:
            known[site] = self.control.register(self.keys(site).public, site)
        self.node_ids[site] = known[site]
        return known[site]

    def unregister(self, site: str) -> None:
        """Revoke a site's key, whether its node runs or not."""
        self.control.unregister(self.node_ids[site])

    # Kill and restart

    def kill(self, name: str) -> None:
        """Kill SuperLink or a site's SuperNode with SIGKILL, and all its helpers and apps, as a power cut would."""
        self._drop_supervisor(name)
        self._child(name).kill()

    def stop_part(self, name: str) -> None:
        """Stop SuperLink or a site's SuperNode as systemd does: it says goodbye."""
        self._drop_supervisor(name)
        self._child(name).stop()

    def restart(self, name: str, *, at_once: bool = False, timeout: float = 90.0) -> None:
        """Start SuperLink or a site's SuperNode again, and wait until it serves.

        SuperLink takes a killed node for online until its heartbeats have been missing for a minute, and refuses it
        until then: the node is started again and again, as systemd does it. ``at_once`` signs the dead node off with
        its own key first, so that there is nothing to wait for.
        """
        if name == SUPERLINK:
            self._child(SUPERLINK).stop()
            self.start_superlink(timeout)
            return
        node = self._node(name)
        node.child.stop()
        if at_once:
            sign_off(self.address, self.authority, node.keys.key, self.node_ids[name])
        began = time.time()
        self.supervise(name)
        self.wait_online([name], timeout, since=began)

    def supervise(self, site: str, pause: float = 2.0) -> None:
        """Start a site's SuperNode, and again whenever it ends, until it is stopped or killed through us."""
        self._drop_supervisor(site)
        self._supervisors[site] = _Supervisor(self._node(site).child, pause)

    # Runs

    def run(self, app: Path | str, config: Mapping[str, Value] | None = None) -> int:
        """Start a run of the app in a folder, with ``flwr run``; returns the run's id, while it goes on.

        Only keys that stand in the app's ``[tool.flwr.app.config]`` can be given in ``config``.
        """
        command = [program("flwr"), "run", str(Path(app).resolve()), "local", "--format", "json"]
        if config:
            command += ["--run-config", toml_pairs(config)]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=120, check=False)
        with contextlib.suppress(ValueError, KeyError, TypeError):
            answer = json.loads(done.stdout[done.stdout.index("{") :])
            return int(answer["run-id"])
        raise FederationError(f"flwr run did not start {app}:\n{done.stdout}{done.stderr}")

    def status(self, run_id: int) -> RunStatus:
        """How a run stands."""
        return self.control.run(run_id)

    def wait(
        self,
        run_id: int,
        timeout: float = 600.0,
        *,
        check: bool = True,
        show: Callable[[str], object] | None = None,
    ) -> RunStatus:
        """Wait until a run has ended; with ``check``, an error where it did not end well.

        ``show`` is called with each line that the ServerApp prints, meanwhile.
        """
        deadline = time.monotonic() + timeout
        shown = 0
        while True:
            status = self.status(run_id)
            if show is not None:
                lines = self.run_log(run_id).splitlines()
                for line in lines[shown:]:
                    show(line)
                shown = max(shown, len(lines))
            if status.finished:
                break
            if time.monotonic() > deadline:
                raise FederationError(f"run {run_id} has not ended after {timeout:g} s{self._run_tail(run_id)}")
            time.sleep(0.5)
        log = self._run_tail(run_id)
        if check and not status.completed:
            raise FederationError(f"{status}{log}")
        return status

    def run_log(self, run_id: int) -> str:
        """What a run's ServerApp has printed so far; also kept in the folder of the logs."""
        status = self.status(run_id)
        if status.status in ("pending", "starting"):
            return ""
        text = self.control.log(run_id)[0]
        (self.logs / f"run-{run_id}.log").write_text(text)
        return text

    def stop_run(self, run_id: int) -> None:
        """End a run before its time."""
        self.control.stop(run_id)

    # What runs

    @property
    def control(self) -> Control:
        """The connection to SuperLink's control interface."""
        if self._control is None:
            self._control = Control(self.address, self.authority)
        return self._control

    def node_status(self) -> dict[str, NodeStatus]:
        """How the nodes stand, by site; of a site that was registered more than once, the last."""
        return {node.name: node for node in self.control.nodes()}

    def wait_online(self, sites: Sequence[str], timeout: float = 60.0, *, since: float = 0.0) -> None:
        """Wait until the nodes of these sites are online; with ``since``, until they have said so after that time."""

        def online() -> bool:
            nodes = self.node_status()
            return all(
                site in nodes and nodes[site].status == "online" and nodes[site].online_until >= since + ONLINE
                for site in sites
            )

        self._until(online, timeout, f"the nodes of {', '.join(sites)} to be online", *sites)

    def server_apps(self) -> list[Found]:
        """The processes in which ServerApps run."""
        return [process for process in self._child(SUPERLINK).family() if process.program == SERVER_APP]

    def client_apps(self, site: str | None = None) -> list[Found]:
        """The processes in which ClientApps run, at one site or at all."""
        sites = self.nodes if site is None else [site]
        return [
            process for name in sites for process in self._node(name).child.family() if process.program == CLIENT_APP
        ]

    def processes(self) -> list[Found]:
        """All processes of the federation."""
        return find_marked(MARK, self._id)

    def wait_for(self, what: Callable[[], T], timeout: float = 60.0, *, pause: float = 0.05) -> T:
        """Wait until a function returns something true, and return that."""
        deadline = time.monotonic() + timeout
        while not (value := what()):
            if time.monotonic() > deadline:
                raise FederationError(f"waited {timeout:g} s in vain{self._tail(SUPERLINK)}")
            time.sleep(pause)
        return value

    # Inside

    def _make_environment(self, given: Mapping[str, str]) -> dict[str, str]:
        environment = {**os.environ, **QUIET, "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": POLL, **given}
        environment["FLWR_HOME"] = str(self.folder / "flwr")
        environment[MARK] = self._id
        # Flower finds its helpers, and they find Python, by PATH.
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
        environment["PYTHONUNBUFFERED"] = "1"
        return environment

    def _write_connection(self) -> None:
        """Tell the command ``flwr`` where SuperLink is, by the name local."""
        home = self.folder / "flwr"
        home.mkdir(parents=True, exist_ok=True)
        lines = [
            "[superlink]",
            'default = "local"',
            "[superlink.local]",
            f"address = {json.dumps(self.address)}",
            f"root-certificates = {json.dumps(str(self.authority))}",
        ]
        (home / "config.toml").write_text("\n".join(lines) + "\n")

    def _part(self, name: str) -> str:
        return f"{self._id}-{name}"

    def _node(self, site: str) -> Node:
        if site not in self.nodes:
            raise ValueError(f"site must be one whose node was started ({', '.join(self.nodes)}), got {site!r}")
        return self.nodes[site]

    def _child(self, name: str) -> Child:
        if name != SUPERLINK:
            return self._node(name).child
        if self._superlink is None:
            raise FederationError("SuperLink has not been started")
        return self._superlink

    def _drop_supervisor(self, name: str) -> None:
        supervisor = self._supervisors.pop(name, None)
        if supervisor is not None:
            supervisor.stop()

    def _healthy(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.authority))
        try:
            with urllib.request.urlopen(f"https://{self.address}/health", context=context, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _until(self, ready: Callable[[], bool], timeout: float, what: str, *names: str) -> None:
        deadline = time.monotonic() + timeout
        while not ready():
            ended = [name for name in names if name not in self._supervisors and not self._child(name).running]
            if ended or time.monotonic() > deadline:
                why = f"{', '.join(ended)} ended" if ended else f"{timeout:g} s have passed"
                raise FederationError(
                    f"waited for {what}, but {why}{''.join(self._tail(name) for name in ended or names)}"
                )
            time.sleep(0.1)

    def _tail(self, name: str, lines: int = 30) -> str:
        text = "\n".join(self.log(name).splitlines()[-lines:])
        return f"\n--- the end of {self._child(name).log}:\n{text}"

    def _run_tail(self, run_id: int, lines: int = 40) -> str:
        text = "\n".join(self.run_log(run_id).splitlines()[-lines:])
        return f"\n--- the end of {self.logs / f'run-{run_id}.log'}:\n{text}"


class _Supervisor:
    """A thread that starts a process, and again whenever it ends, as systemd does."""

    def __init__(self, child: Child, pause: float) -> None:
        self._child = child
        self._pause = pause
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        while not self._ended.is_set():
            if not self._child.running:
                kill_marked(*self._child.mark)
                self._child.start()
            self._ended.wait(self._pause)

    def stop(self) -> None:
        """Look after the process no longer; it goes on."""
        self._ended.set()
        self._thread.join()


def sign_off(address: str, authority: Path | str, key: Path | str, node_id: int) -> None:
    """Tell SuperLink that a node is gone, in the name of the node that died before it could do so itself."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    private = load_ssh_private_key(Path(key).read_bytes(), None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ValueError(f"key must be a private key on an elliptic curve, but {key} is another kind")
    with FleetHttpClient.from_server_address(
        address,
        insecure=False,
        root_certificates=Path(authority).read_bytes(),
        interceptors=[NodeAuthHttpInterceptor(private, private.public_key())],
    ) as client:
        client.DeactivateNode(DeactivateNodeRequest(node_id=node_id))


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as server:
        server.bind((HOST, 0))
        return int(server.getsockname()[1])


def toml_pairs(values: Mapping[str, Value]) -> str:
    """Values as Flower's ``--node-config`` and ``--run-config`` take them.

    >>> toml_pairs({"site": "north", "rounds": 30, "loud": False})
    'site="north" rounds=30 loud=false'
    """
    return " ".join(f"{name}={json.dumps(value)}" for name, value in values.items())


def program(name: str) -> str:
    """The path of one of Flower's commands: beside this Python, where it is installed there."""
    beside = Path(sys.executable).parent / name
    if beside.exists():
        return str(beside)
    raise FederationError(f"{name} is not installed beside {sys.executable}: pip install 'fpdfp[flower]'")
