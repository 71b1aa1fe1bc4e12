"""SuperLink, with everything but the sites' interface closed to other machines.

Flower serves three interfaces on one port: ``/v1/fleet/`` for the SuperNodes, who sign every call with their key;
``/v1/control/``, by which runs are started and keys registered, and ``/v1/runtime/`` for the server's app. The second
asks for no credentials: whoever reaches the port could run code at every site. So it is refused here unless the
call comes from this machine, together with everything else that is not the sites'.

A call comes from this machine if the connection does and no proxy has marked it as passed on. The mark matters, because
uvicorn puts its own middleware for proxies around all of Flower's: where it trusts a host (``FORWARDED_ALLOW_IPS``),
the address that is seen here is the one that the caller has written into ``X-Forwarded-For``, and no longer that of the
connection.

``python -m fpdfp.flower.guard`` takes the place of ``flower-superlink``, with the same options.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

log = logging.getLogger("fpdfp.flower")

#: What other machines may call: only the interface whose calls are signed.
OPEN = "/v1/fleet/"
#: Of these, nodes may not register themselves: keys are registered by whoever runs the federation.
CLOSED = frozenset({"/v1/fleet/register-node"})
#: What the paths of the sites' interface are made of: anything else, such as an encoded line break, is no path of it.
PATH = re.compile(r"[A-Za-z0-9/_-]+")
#: What proxies add to a call. Only where there is the first of them does uvicorn change the caller's address.
PASSED_ON = frozenset({b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"forwarded", b"via"})
#: Set to 1, these make SuperLink serve the old interfaces by gRPC, on ports of their own that are not guarded.
UNGUARDED = ("FLWR_INTERNAL_GRPC_CONTROL_API", "FLWR_INTERNAL_GRPC_FLEET_API")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Guard:
    """An ASGI middleware that answers 403 where another machine calls what is not the sites' interface."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a call on, or refuse it."""
        if scope["type"] == "lifespan" or is_allowed(scope["path"], scope.get("client"), scope.get("headers", ())):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"only the sites' interface is open to other machines\n"})
        else:
            await send({"type": "websocket.close", "code": 1008})


def is_allowed(path: str, client: tuple[str, int] | None, headers: Iterable[tuple[bytes, bytes]] = ()) -> bool:
    r"""Whether a call may be made: from this machine any, from another one or through a proxy only the sites'.

    >>> is_allowed("/v1/control/start-run", ("127.0.0.1", 4711))
    True
    >>> is_allowed("/v1/control/start-run", ("192.0.2.7", 4711))
    False
    >>> is_allowed("/v1/fleet/pull-messages", ("192.0.2.7", 4711))
    True
    >>> is_allowed("/v1/fleet/register-node\n", ("192.0.2.7", 4711))
    False
    >>> is_allowed("/v1/control/start-run", ("127.0.0.1", 4711), [(b"x-forwarded-for", b"127.0.0.1")])
    False
    """
    if path.startswith(OPEN) and path not in CLOSED and PATH.fullmatch(path) is not None:
        return True
    if client is None or any(name.lower() in PASSED_ON for name, _ in headers):
        return False
    return _is_loopback(client[0])


def refusal(environment: Mapping[str, str]) -> str | None:
    """Why SuperLink is not started with these variables, if it is not.

    >>> refusal({}) is None, refusal({"FORWARDED_ALLOW_IPS": "127.0.0.1,::1"}) is None
    (True, True)
    >>> print(refusal({"FORWARDED_ALLOW_IPS": "*"}))
    FORWARDED_ALLOW_IPS must be unset or name this machine's loopback addresses only, got '*': no proxy is trusted here
    """
    trusted = environment.get("FORWARDED_ALLOW_IPS", "")
    if not all(_is_loopback(host.strip()) for host in trusted.split(",") if host.strip()):
        return (
            "FORWARDED_ALLOW_IPS must be unset or name this machine's loopback addresses only, "
            f"got {trusted!r}: no proxy is trusted here"
        )
    for name in UNGUARDED:
        if environment.get(name) == "1":
            return f"{name} must be unset: it would open a port that is not guarded"
    return None


def _is_loopback(host: str) -> bool:
    """Whether this is an address, or a network of addresses, of the loopback interface."""
    try:
        return ipaddress.ip_network(host).is_loopback
    except ValueError:
        return False


def superlink() -> None:
    """Run ``flower-superlink`` behind the guard."""
    reason = refusal(os.environ)
    if reason is not None:
        raise SystemExit(reason)

    from fpdfp.flower.expiry import warn_of_arguments

    for sentence in warn_of_arguments(sys.argv):
        log.warning("%s", sentence)

    from flwr.superlink import extensions, main
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    others = extensions.get_middleware
    extensions.get_middleware = lambda: (Middleware(Guard), *others())
    # Flower has no public place for a middleware: where this one is no longer asked for, nothing is served at all.
    present: list[object] = [middleware.cls for middleware in main._get_middleware()]
    if present[:1] != [Guard]:
        raise RuntimeError("this version of flwr cannot be guarded: fpdfp needs flwr>=1.41,<1.43")
    flower_superlink()


if __name__ == "__main__":
    superlink()
