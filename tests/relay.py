"""A relay between a node and SuperLink that keeps a copy of every byte: what somebody on the network would see."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"


class Relay:
    """Listens on a port of its own, and hands everything on to another one, both ways."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._server.getsockname()[1]}"
        self._lock = threading.Lock()
        self._streams: list[tuple[bytearray, bytearray]] = []
        self._ended = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def seen(self) -> list[tuple[bytes, bytes]]:
        """What went up and what came down so far, for each connection."""
        with self._lock:
            return [(bytes(up), bytes(down)) for up, down in self._streams]

    def _accept(self) -> None:
        while not self._ended:
            try:
                here, _ = self._server.accept()
            except OSError:
                return
            try:
                there = socket.create_connection((HOST, self._to))
            except OSError:
                here.close()
                continue
            up, down = bytearray(), bytearray()
            with self._lock:
                self._streams.append((up, down))
            for source, target, copy in ((here, there, up), (there, here, down)):
                threading.Thread(target=self._carry, args=(source, target, copy), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, copy: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    copy += data
                target.sendall(data)
        # The other direction ends as well, and its thread with it.
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        source.close()
