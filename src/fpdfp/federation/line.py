"""A connection to the hub, as a site or an analyst has it."""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fpdfp.federation import keys
from fpdfp.federation.channel import (
    CLIENT_OPTIONS,
    LONGEST,
    LONGEST_HEAD,
    METHOD,
    PROTOCOL,
    Decoder,
    LostError,
    Message,
    RefusedError,
    agree,
    encode,
    hello,
    split,
)
from fpdfp.federation.identity import About, Credentials

#: Seconds to wait for a connection and the hub's hello.
PATIENCE = 20.0


class Line:
    """A stream to the hub and back, on which both sides have said hello.

    Parameters
    ----------
    about, credentials
        Who connects, where to, and with what.
    limit
        The longest body that is taken.
    protocol
        The versions of the protocol that are spoken.

    Attributes
    ----------
    said
        What the hub's hello says.
    sent, received
        Bytes so far, with all that is around messages but that of HTTP/2 and TLS.
    """

    def __init__(
        self, about: About, credentials: Credentials, limit: int = LONGEST, protocol: tuple[int, int] = PROTOCOL
    ) -> None:
        import grpc

        problem = keys.validity(credentials.certificate).problem()
        if problem is not None:
            raise RefusedError(
                f"{about.name} cannot connect: {problem}; set the clock, or ask the coordinator for a new invitation"
            )
        self.about = about
        self.sent = self.received = 0
        self._queue: queue.SimpleQueue[list[bytes] | None] = queue.SimpleQueue()
        self._decoder = Decoder(LONGEST_HEAD)
        self._closed = False
        secure = grpc.ssl_channel_credentials(credentials.authority, credentials.key, credentials.certificate)
        self._channel = grpc.secure_channel(
            about.address, secure, options=CLIENT_OPTIONS, compression=grpc.Compression.NoCompression
        )
        try:
            self._stream = self._channel.stream_stream(METHOD)(self._outgoing())
            self.send(hello(about.study, about.role, about.name, protocol))
            self._messages = self._incoming()
            # Somebody who takes the connection and says nothing is not waited for.
            alarm = threading.Timer(PATIENCE, self._stream.cancel)
            alarm.daemon = True
            alarm.start()
            try:
                first = next(self._messages)
            except LostError:
                raise LostError(explain(about, credentials)) from None
            finally:
                alarm.cancel()
            self._decoder.limit = limit
            agree(first.about, "the hub", about.name, protocol)
            self.said = first.about
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, message: Message) -> None:
        """Send a message; it goes out as soon as those before it are out."""
        self._queue.put(encode(message))

    def __iter__(self) -> Iterator[Message]:
        """Yield messages until the connection ends; raise LostError if that was not asked for."""
        return self._messages

    def limit(self, length: int) -> None:
        """Set the longest body that is taken from now on."""
        self._decoder.limit = length

    def close(self) -> None:
        """End the connection."""
        self._closed = True
        self._queue.put(None)
        if hasattr(self, "_stream"):
            self._stream.cancel()
        self._channel.close()

    def _outgoing(self) -> Iterator[bytes]:
        while True:
            pieces = self._queue.get()
            # What is ready by now goes out together.
            ready: list[bytes] = []
            while pieces is not None:
                ready += pieces
                try:
                    pieces = self._queue.get_nowait()
                except queue.Empty:
                    break
            for part in split(ready):
                self.sent += len(part)
                yield part
            if pieces is None:
                return

    def _incoming(self) -> Iterator[Message]:
        import grpc

        try:
            for part in self._stream:
                self.received += len(part)
                for message in self._decoder.feed(part):
                    if message.kind == "refused":
                        raise RefusedError(str(message.about.get("why"))[:1000])
                    yield message
        except grpc.RpcError as error:
            if not self._closed:
                details: Any = getattr(error, "details", lambda: "")()
                raise LostError(f"the connection to the hub was lost ({details})") from None
        if not self._closed:
            raise LostError("the hub has closed the connection")


def explain(about: About, credentials: Credentials) -> str:
    """Say why there is no connection: no name, no route, nobody there, or a certificate that is not believed."""
    host, _, port = about.address.rpartition(":")
    host = host.strip("[]")
    start = f"{about.name} cannot reach the hub at {about.address}"
    try:
        with tempfile.TemporaryDirectory() as folder:
            own = Path(folder) / "own.pem"
            keys.write_private(own, credentials.key + credentials.certificate)
            context = ssl.create_default_context(cadata=credentials.authority.decode())
            context.load_cert_chain(own)
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection((host, int(port)), timeout=5.0) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            connection.settimeout(1.0)
            # With TLS 1.3 it is only now that the hub says what it thinks of our certificate.
            with contextlib.suppress(TimeoutError):
                connection.recv(1)
    except ssl.SSLCertVerificationError as error:
        return f"{start}: this machine does not believe its certificate ({error.verify_message}); is the clock right?"
    except ssl.SSLError as error:
        return f"{start}: it does not believe this side's certificate ({error.reason}); is a clock wrong?"
    except OSError as error:
        return f"{start}: {error}"
    return f"{start}: no answer within {PATIENCE:g} s"
