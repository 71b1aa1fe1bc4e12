"""The live page that follows runs in progress: a small read-only web server."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from fpdfp import _checks
from fpdfp.report.writing import Reader, page, policy, strict_json

#: Seconds after which a silent connection is closed.
PATIENCE = 30.0
HEADERS = {
    "Cache-Control": "no-cache",
    "Connection": "close",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Board:
    """The contents that are served: the page, the numbers of the runs, and their volumes."""

    def __init__(self, paths: Iterable[str | Path], title: str) -> None:
        self._reader = Reader(paths, title)
        # Large volumes take seconds: the numbers do not wait for them.
        self._reading, self._packing = threading.Lock(), threading.Lock()
        self._volumes: tuple[str, bytes] | None = None

    def page(self) -> bytes:
        """The page, without data, which it requests."""
        empty = {"title": self._reader.title, "runs": [], "federations": []}
        return page(empty, None, live=True).encode()

    def data(self) -> bytes:
        """The numbers of the runs of now, and which version the volumes have."""
        with self._reading:
            folders = self._reader.folders()
            data = self._reader.runs(folders)
            data |= {"live": True, "images": self._reader.images_version(folders)}
            return strict_json(data).encode("utf-8", "replace")

    def volumes(self) -> bytes:
        """The volumes of now."""
        with self._packing:
            folders = self._reader.folders()
            version = self._reader.images_version(folders)
            if self._volumes is None or self._volumes[0] != version:
                self._volumes = version, strict_json(self._reader.volumes(folders)).encode("utf-8", "replace")
            return self._volumes[1]


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of three paths below the token, and refuses everything else."""

    protocol_version = "HTTP/1.1"
    server_version = "fpdfp"
    sys_version = ""
    timeout = PATIENCE
    server: Server

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def __getattr__(self, name: str) -> Any:
        # The base class looks for do_POST and so on, and would answer that they are not implemented.
        if name.startswith("do_"):
            return self._not_allowed
        raise AttributeError(name)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: the terminal is for the run."""

    def _answer(self) -> None:
        if not self.server.knows(self.headers.get("Host")):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this server does not go by that name")
            return
        board = self.server.board
        known: tuple[Callable[[], bytes], str] | None = {
            "/": (board.page, "text/html; charset=utf-8"),
            "/data.json": (board.data, "application/json"),
            "/volumes.json": (board.volumes, "application/json"),
        }.get(self.server.inside(self.path.partition("?")[0]))
        if known is None:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")
            return
        make, kind = known
        try:
            body = make()
        except Exception:
            # Files may be incomplete now and complete a second later: the page asks again.
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the runs cannot be read just now")
            return
        self._send(body, kind)

    def _not_allowed(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "this server can only be read", {"Allow": "GET, HEAD"})

    def _refuse(self, status: HTTPStatus, why: str, headers: dict[str, str] | None = None) -> None:
        self._write(status, f"{why}\n".encode(), {"Content-Type": "text/plain", **(headers or {})})

    def _send(self, body: bytes, kind: str) -> None:
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if tag in self.headers.get("If-None-Match", ""):
            self._write(HTTPStatus.NOT_MODIFIED, None, {"ETag": tag})
        else:
            self._write(HTTPStatus.OK, body, {"Content-Type": kind, "ETag": tag})

    def _write(self, status: HTTPStatus, body: bytes | None, headers: dict[str, str]) -> None:
        try:
            self.send_response(status)
            # One request per connection, so that closing the server ends all connections.
            self.close_connection = True
            rules = f"{policy(live=True)}; frame-ancestors 'none'"
            for name, value in {**HEADERS, "Content-Security-Policy": rules, **headers}.items():
                self.send_header(name, value)
            if body is not None:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if body is not None and self.command != "HEAD":
                self.wfile.write(body)
        except (ConnectionError, TimeoutError):
            pass


class Server(ThreadingHTTPServer):
    """Listens, and knows by which names it may be called."""

    daemon_threads = True
    board: Board

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._host = host
        #: The first part of every path: who does not know it can read nothing, also on this machine.
        self.token = secrets.token_urlsafe(16)
        super().__init__((host, port), Handler)

    def server_bind(self) -> None:
        # Without the look-up of its own name in the DNS that HTTPServer does.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self._host, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that disconnect during a reply."""

    def inside(self, path: str) -> str:
        """Return a path without the token that it must begin with; empty if it does not."""
        token, slash, rest = path.removeprefix("/").partition("/")
        # In constant time, so that the answer's delay does not show how much of a guess was right.
        same = hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())
        return slash + rest if same else ""

    def knows(self, host: str | None) -> bool:
        """Whether a request was meant for this server, and not for a name that someone has pointed at it.

        A page of another site can have its own name resolve to this address (DNS rebinding), but it cannot make a
        browser send another name. Addresses are not names. The port may be another where it is forwarded.
        """
        if not host:
            return False
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if name.lower() in ("localhost", self._host.lower()):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not _is_loopback(self._host)


class Live:
    """A live page that is being served; a context manager that closes it.

    Attributes
    ----------
    url
        The address to open in a browser, with a token: anyone who has it can read the page, and no one else.
    """

    def __init__(self, server: Server, host: str) -> None:
        self._server = server
        shown = "127.0.0.1" if host in ("0.0.0.0", "") else "[::1]" if host == "::" else host
        name = f"[{shown}]" if ":" in shown and shown[0] != "[" else shown
        self.url = f"http://{name}:{server.server_port}/{server.token}/"
        self._thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="fpdfp live page", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"Live({self.url})"

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving; may be called more than once."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(
    paths: str | Path | Iterable[str | Path], host: str = "127.0.0.1", port: int = 0, *, title: str = "live"
) -> Live:
    """Serve a page that shows runs and follows those in progress, until it is closed.

    The page requests news every second. The server is read-only: no request changes anything.

    Parameters
    ----------
    paths
        Folders of runs, or folders that contain some; they need not exist yet.
    host
        The address to listen on; by default only this machine can reach it. Who reads the page must know its ``url``,
        which has a token in it. The connection is not encrypted: do not serve it beyond networks that you trust.
    port
        The port; 0 means any free port.
    title
        The title of the page.

    Examples
    --------
    >>> from urllib.request import urlopen
    >>> with serve("runs-to-come") as page, urlopen(page.url) as answer:
    ...     answer.status
    200
    """
    if not isinstance(host, str) or not host:
        raise ValueError(f"host must be an address or a name, such as '127.0.0.1', got {host!r}")
    port = _checks.integer("port", port, at_least=0, at_most=65535)
    listed = [paths] if isinstance(paths, str | Path) else list(paths)
    try:
        server = Server(host, port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(
            f"the page cannot be served at {host}, port {port}: {reason}; give another host or port"
        ) from error
    server.board = Board(listed, title)
    return Live(server, host)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
