"""What sites send back in a round: checked, decoded and put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray, Shape
from fpdfp.compress import Compressor
from fpdfp.compress.plain import plain_bits
from fpdfp.engines.site import shortened
from fpdfp.engines.tuples import named
from fpdfp.errors import MessageError
from fpdfp.methods.base import Work

#: The largest number that a reply may hold, by its bytes: its square is still a number.
LARGEST = {4: 1e18, 8: 1e150}


class DivergedError(MessageError):
    """A site's numbers are no longer of a reasonable size."""


class Reply(NamedTuple):
    """A site's reply, decoded: an array for each field, with a row for each client."""

    clients: IntArray
    fields: tuple[str, ...]
    arrays: list[Array]
    bits: int
    work: Work


class Arrived(NamedTuple):
    """What came back in a round: whose replies, as the server decodes them, their bits, and what they cost."""

    clients: IntArray
    sent: Any
    bits: int
    work: Work


def decoded(
    part: Mapping[str, Any],
    clients: IntArray,
    shapes: Mapping[str, Shape],
    compressors: Mapping[str, Compressor],
    dtype: np.dtype[Any],
    device: str,
    norm_bound: float | None,
) -> Reply:
    """Return a site's messages as arrays; raise MessageError for anything that is not what was asked for."""
    if "diverged" in part:
        raise DivergedError("its numbers are no longer finite")
    frames, bits = part["frames"], np.asarray(part["bits"])
    if set(frames) != set(shapes) or bits.shape != (len(shapes), len(clients)) or bits.dtype.kind != "i":
        raise MessageError(f"a reply must have the fields {sorted(shapes)} and bits for {len(clients)} clients")
    arrays = []
    for field, (name, shape) in enumerate(shapes.items()):
        if not isinstance(frames[name], list) or len(frames[name]) != len(clients):
            raise MessageError(f"a reply must have a message of each of the {len(clients)} clients in {name!r}")
        lengths = np.array([8 * len(frame) for frame in frames[name]])
        if ((lengths - bits[field] < 0) | (lengths - bits[field] >= 8)).any():
            raise MessageError(f"the messages in {name!r} are not as long as the reply says")
        numbers = compressors[name].decode(frames[name], shape, dtype, device)
        if numbers.size and float(abs(numbers).max()) > LARGEST[numbers.dtype.itemsize]:
            raise DivergedError(f"the numbers in {name!r} are too large")
        arrays.append(shortened(numbers, norm_bound))
    work = part["work"]
    if not isinstance(work, list) or len(work) != 2 or any(type(n) is not int or not 0 <= n < 1 << 31 for n in work):
        raise MessageError("work must be two counts")
    return Reply(np.asarray(clients), tuple(shapes), arrays, int(bits.sum()), Work(*work))


class OnceReply(NamedTuple):
    """What a site's clients send before the first round, decoded."""

    fields: tuple[str, ...]
    arrays: list[Array]
    bits: int

    @property
    def shapes(self) -> list[Shape]:
        """Of one client's arrays."""
        return [array.shape[1:] for array in self.arrays]


def decoded_once(
    part: Mapping[str, Any], clients: IntArray, messages: Mapping[str, tuple[Compressor, Shape]]
) -> OnceReply:
    """Return what a site's clients send once; raise MessageError for anything that cannot be what was asked for."""
    if messages:
        shapes = {name: shape for name, (_, shape) in messages.items()}
        compressors = {name: compressor for name, (compressor, _) in messages.items()}
        reply = decoded({"work": [0, 0], **part}, clients, shapes, compressors, np.dtype(np.float32), "cpu", None)
        return OnceReply(reply.fields, reply.arrays, reply.bits)
    fields, arrays = tuple(map(str, part["fields"])), list(part["arrays"])
    if not fields or len(arrays) != len(fields):
        raise MessageError("what is sent once must have an array for each field")
    for array in arrays:
        check_rows(array, (len(clients), *array.shape[1:]))
    return OnceReply(fields, arrays, sum(len(array) * plain_bits(array.shape[1:], array.dtype) for array in arrays))


def joined(replies: Sequence[Reply], xp: Any) -> Arrived:
    """Return replies of several sites as one, in the order of client numbers."""
    clients = np.concatenate([reply.clients for reply in replies])
    order = np.argsort(clients)
    arrays = [xp.concatenate(parts)[order] for parts in zip(*(reply.arrays for reply in replies), strict=True)]
    work = Work()
    for reply in replies:
        work = work + reply.work
    sent = named("Reply", replies[0].fields)(*arrays)
    return Arrived(clients[order], sent, sum(reply.bits for reply in replies), work)


def check_rows(array: Any, rows: Shape) -> None:
    """Refuse what is not finite numbers of a shape whose first axis is that of a site's clients."""
    if not isinstance(array, np.ndarray) or array.shape != rows or array.dtype.kind not in "fib":
        raise MessageError(f"it must be numbers of shape {rows}, got {getattr(array, 'shape', type(array))}")
    if not np.isfinite(array).all():
        raise MessageError("it holds NaN or infinities")
