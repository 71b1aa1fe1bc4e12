"""SuperLink, with everything but the sites' interface closed to other machines.

Flower serves three interfaces on one port: ``/v1/fleet/`` for the SuperNodes, who sign every call with their key;
``/v1/control/``, by which runs are started and keys registered, and ``/v1/runtime/`` for the server's app. The second
asks for no credentials: whoever reaches the port could run code at every site. So it is refused here unless the
call comes from this machine, together with everything else that is not the sites'.

``python -m fpdfp.flower.guard`` takes the place of ``flower-superlink``, with the same options.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

#: What other machines may call: only the interface whose calls are signed.
OPEN = "/v1/fleet/"
#: Of these, nodes may not register themselves: keys are registered by whoever runs the federation.
CLOSED = frozenset({"/v1/fleet/register-node"})

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Guard:
    """An ASGI middleware that answers 403 where another machine calls what is not the sites' interface."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a call on, or refuse it."""
        if scope["type"] == "lifespan" or allowed(scope["path"], scope.get("client")):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"only the sites' interface is open to other machines\n"})
        else:
            await send({"type": "websocket.close", "code": 1008})


def allowed(path: str, client: tuple[str, int] | None) -> bool:
    """Whether a call may be made: from this machine any, from another one only the sites'.

    >>> allowed("/v1/control/start-run", ("127.0.0.1", 4711)), allowed("/v1/control/start-run", ("192.0.2.7", 4711))
    (True, False)
    >>> allowed("/v1/fleet/pull-messages", ("192.0.2.7", 4711))
    True
    """
    if path.startswith(OPEN) and path not in CLOSED:
        return True
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False


def superlink() -> None:
    """Run ``flower-superlink`` behind the guard."""
    from flwr.superlink import extensions, main
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    others = extensions.get_middleware
    extensions.get_middleware = lambda: (Middleware(Guard), *others())
    # Flower has no public place for a middleware: where this one is no longer asked for, nothing is served at all.
    present: list[object] = [middleware.cls for middleware in main._get_middleware()]
    if Guard not in present:
        raise RuntimeError("this version of flwr cannot be guarded: fpdfp needs flwr>=1.41,<1.43")
    flower_superlink()


if __name__ == "__main__":
    superlink()
