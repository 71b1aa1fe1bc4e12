"""What sites send back in a round: checked, decoded and put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.question import Columns
from fpdfp.compress import Compressor
from fpdfp.compress.plain import plain_bits
from fpdfp.engines.rounds import WorkDone
from fpdfp.engines.site import shorten
from fpdfp.engines.tuples import tuple_kind
from fpdfp.errors import MessageError
from fpdfp.quadratic.statement import Work

#: The largest number that a reply may hold, by its bytes: its square is still a number.
LARGEST = {4: 1e18, 8: 1e150}


class DivergedError(MessageError):
    """A site's numbers are no longer of a reasonable size."""


class Decoded(NamedTuple):
    """A site's messages as arrays, one for each field, with a row for each client; their bits, and what they cost."""

    clients: IntArray
    fields: tuple[str, ...]
    arrays: list[Array]
    bits: int
    work: Work = Work()

    @property
    def shapes(self) -> list[Shape]:
        """Of one client's arrays."""
        return [array.shape[1:] for array in self.arrays]


class Arrived(NamedTuple):
    """What came back in a round: whose replies, as the server decodes them, their bits, and what they cost."""

    clients: IntArray
    sent: Any
    bits: int
    work: Work


def decode(
    part: WorkDone | Columns,
    clients: IntArray,
    shapes: Mapping[str, Shape],
    compressors: Mapping[str, Compressor],
    dtype: np.dtype[Any],
    device: str = "cpu",
    norm_bound: float | None = None,
) -> Decoded:
    """Return a site's messages as arrays; raise MessageError for anything that is not what was requested."""
    frames, bits = part.frames, part.bits
    if set(frames) != set(shapes) or bits is None or bits.shape != (len(shapes), len(clients)):
        raise MessageError(f"a reply must have the fields {sorted(shapes)} and bits for {len(clients)} clients")
    arrays = []
    for field, (name, shape) in enumerate(shapes.items()):
        if len(frames[name]) != len(clients):
            raise MessageError(f"a reply must have a message of each of the {len(clients)} clients in {name!r}")
        lengths = np.array([8 * len(frame) for frame in frames[name]])
        if ((lengths - bits[field] < 0) | (lengths - bits[field] >= 8)).any():
            raise MessageError(f"the messages in {name!r} are not as long as the reply says")
        numbers = compressors[name].decode(frames[name], shape, dtype, device)
        if numbers.size and float(abs(numbers).max()) > LARGEST[numbers.dtype.itemsize]:
            raise DivergedError(f"the numbers in {name!r} are too large")
        arrays.append(shorten(numbers, norm_bound))
    return Decoded(np.asarray(clients), tuple(shapes), arrays, int(bits.sum()))


def decode_update(part: WorkDone, *how: Any) -> Decoded:
    """Return a round's messages of a site as arrays (:func:`decode`), with what they cost."""
    if part.diverged:
        raise DivergedError("its numbers are no longer finite")
    return decode(part, *how)._replace(work=Work(*part.work))


def decode_once(part: Columns, clients: IntArray, messages: Mapping[str, tuple[Compressor, Shape]]) -> Decoded:
    """Return what a site's clients send once; raise MessageError for anything that cannot be what was requested."""
    if messages:
        shapes = {name: shape for name, (_, shape) in messages.items()}
        compressors = {name: compressor for name, (compressor, _) in messages.items()}
        return decode(part, clients, shapes, compressors, np.dtype(np.float32))
    if not part.fields or len(part.arrays) != len(part.fields):
        raise MessageError("what is sent once must have an array for each field")
    for array in part.arrays:
        check_rows(array, (len(clients), *array.shape[1:]))
    bits = sum(len(array) * plain_bits(array.shape[1:], array.dtype) for array in part.arrays)
    return Decoded(clients, tuple(part.fields), part.arrays, bits)


def join(replies: Sequence[Decoded], xp: Any) -> Arrived:
    """Return replies of several sites as one, in the order of client numbers."""
    clients = np.concatenate([reply.clients for reply in replies])
    order = np.argsort(clients)
    arrays = [xp.concatenate(parts)[order] for parts in zip(*(reply.arrays for reply in replies), strict=True)]
    work = Work()
    for reply in replies:
        work = work + reply.work
    sent = tuple_kind("Reply", replies[0].fields)(*arrays)
    return Arrived(clients[order], sent, sum(reply.bits for reply in replies), work)


def check_rows(array: Array | None, rows: Shape) -> None:
    """Refuse what is not numbers of a shape whose first axis is that of a site's clients."""
    if array is None or array.shape != rows:
        raise MessageError(f"it must be numbers of shape {rows}, got {getattr(array, 'shape', None)}")
