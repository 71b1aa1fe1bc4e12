"""What clients remember, kept in agreement with the server through losses, crashes and restarts.

The shifted methods rest on the server's mean of what clients remember: one client whose memory is not what the server
thinks would bias every round from then on. So a client's memory changes only when the server has confirmed its message,
and whenever the two meet they compare stamps, a version and a digest:

* the same stamp: all is well, and what the server did not confirm is forgotten;
* the server is one version ahead, and the client still holds what it sent then: the confirmation was lost on its way,
  and the client makes up for it;
* anything else (a client restored from an old backup, a server restarted from a checkpoint): the server sends its copy.

The server can keep a copy of every client's memory because that depends on decoded messages alone: what a run whose
clients are elsewhere calls its memory (:mod:`fpdfp.engines.remote_run`). The in-process engine has one memory for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fpdfp._array import namespace
from fpdfp._typing import Array
from fpdfp.engines.traffic import digest
from fpdfp.errors import MessageError
from fpdfp.methods.base import Algorithm, Remembering


class Stamp(NamedTuple):
    """What the two sides compare: how many messages have been confirmed, and a digest of the memory after them."""

    version: int
    digest: bytes


def shared_memory(algorithm: Algorithm) -> tuple[str, ...]:
    """Return the fields of a client's memory that the server can follow."""
    return algorithm.shared_memory if isinstance(algorithm, Remembering) else ()


class ClientLedger:
    """A client's side: its memory, and what it has sent that is not confirmed yet.

    Parameters
    ----------
    algorithm
        As for the server.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.memory: Any = algorithm.init_memory(1) if isinstance(algorithm, Remembering) else ()
        self.version = 0
        self._pending: tuple[Any, Any, int] | None = None
        self._before: tuple[Any, int] | None = None

    def stamp(self) -> Stamp:
        """Return the client's own stamp."""
        return Stamp(self.version, digest(getattr(self.memory, name)[0] for name in shared_memory(self.algorithm)))

    def hold(self, memory: Any, decoded: Any, k: int) -> None:
        """Hold what was sent in round k until the server confirms it.

        ``memory`` is that of the update, ``decoded`` the reply as the server decodes it.
        """
        self._pending = (memory, decoded, k)

    def confirm(self) -> None:
        """The server has what was sent: remember it."""
        if self._pending is None:
            raise RuntimeError("nothing was sent that could be confirmed")
        self._before = self.memory, self.version
        if isinstance(self.algorithm, Remembering):
            self.memory = self.algorithm.confirm(*self._pending)
        self.version += 1
        self._pending = None

    def agrees(self, server: Stamp, *, forget: bool = True) -> bool:
        """Compare with the server's stamp, and make up for a lost confirmation; False if a copy is needed.

        A server that was restarted may be one version behind: what the client remembered then is kept for that. With
        ``forget`` what was sent and is not confirmed is forgotten.
        """
        if self._pending is not None and server.version == self.version + 1:
            kept = self.memory, self.version, self._pending, self._before
            self.confirm()
            if self.stamp() == server:
                return True
            self.memory, self.version, self._pending, self._before = kept
        if forget:
            self._pending = None
        if self._before is not None and server.version == self._before[1]:
            after = self.memory, self.version
            self.memory, self.version = self._before
            if self.stamp() == server:
                self._before = self._pending = None
                return True
            self.memory, self.version = after
        return self.stamp() == server

    def adopt(self, copy: dict[str, Array], server: Stamp) -> None:
        """Take the server's copy for what this client remembers of its messages."""
        known = self.memory._asdict() if self.memory else {}
        rows = {name: array[None].copy() for name, array in copy.items()}
        for name, array in rows.items():
            if name not in known or (array.shape, array.dtype) != (known[name].shape, known[name].dtype):
                raise MessageError(
                    f"copy must hold arrays of {sorted(known)} as a client has them, got another {name!a}"
                )
        if digest(copy.get(name, ()) for name in shared_memory(self.algorithm)) != server.digest:
            raise MessageError("copy must be that of the server's stamp: it was damaged on its way")
        if rows:
            self.memory = self._place(rows)
        self.version, self._pending, self._before = server.version, None, None

    def _place(self, arrays: Mapping[str, Array]) -> Any:
        """Return a memory with some arrays, each where this method has it: here, or on a GPU."""
        if not arrays:
            return self.memory
        placed = {name: namespace(getattr(self.memory, name)).asarray(array) for name, array in arrays.items()}
        return self.memory._replace(**placed)
