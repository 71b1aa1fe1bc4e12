"""Messages: a header that describes the contents, the body, and a checksum, as in ``docs/wire-format.md``.

A reader does not trust a message: it compares the checksum first and checks every number before it uses it. It
allocates no more than the receiver's own shape, or its limit, allows.
"""

from __future__ import annotations

import functools
import math
import struct
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._array import namespace
from fpdfp._typing import Array, Shape
from fpdfp.compress.base import (
    CHECKSUM_BYTES,
    DTYPES,
    MAGIC,
    VERSION,
    WIRE_IDS,
    Body,
    Compressor,
    Parts,
    Quantized,
    damage_error,
    header_of,
)
from fpdfp.errors import MessageError

#: The byte that holds the code of the levels.
CODE_AT = 4
#: The most entries that :func:`decode` reads if no shape is given: a gigabyte in float32.
DEFAULT_LIMIT = 2**28


def check_dtype(dtype: Any) -> np.dtype[Any]:
    """Return a dtype that messages can have."""
    found = np.dtype(dtype)
    if found not in DTYPES:
        raise TypeError(f"dtype must be float32 or float64, got {found}")
    return found


class Header(NamedTuple):
    """The header of a message."""

    compressor: Compressor
    shape: Shape
    dtype: np.dtype[Any]
    code: int
    end: int


def encode(compressor: Compressor, quantized: Quantized, clients: Iterable[Parts]) -> list[bytes]:
    """Return each client's message."""
    agreed = header_of(compressor, quantized.shape, np.dtype(quantized.dtype))
    messages = []
    heads: dict[int, tuple[bytes, int]] = {}
    for code, pieces in clients:
        if code not in heads:
            made = agreed[:CODE_AT] + bytes([agreed[CODE_AT] | code]) + agreed[CODE_AT + 1 :]
            heads[code] = made, zlib.crc32(made)
        head, checksum = heads[code]
        for piece in pieces:
            checksum = zlib.crc32(piece, checksum)
        messages.append(b"".join((head, *pieces, struct.pack("<I", checksum))))
    return messages


def bodies_as(compressor: Compressor, messages: Iterable[bytes], shape: Shape, dtype: np.dtype[Any]) -> list[Body]:
    """Return the bodies of messages that this compressor must have made of such arrays."""
    expected = header_of(compressor, shape, dtype)
    before, after, end = expected[:CODE_AT], expected[CODE_AT + 1 :], len(expected)
    bodies = []
    for message in messages:
        data = _check_bytes(message)
        same = data[:CODE_AT] == before and data[CODE_AT + 1 : end] == after
        if not same or data[CODE_AT] & 0xF0 != expected[CODE_AT]:
            seen = parse(data)
            raise MessageError(
                f"a message holds {_describe(seen.compressor, seen.shape, seen.dtype)}; "
                f"expected {_describe(compressor, shape, dtype)}"
            )
        bodies.append(Body(data[CODE_AT] & 15, data[end:-CHECKSUM_BYTES]))
    return bodies


def decode(message: bytes, *, limit: int = DEFAULT_LIMIT) -> Array:
    """Return the array of a message, as described by its header.

    A receiver that knows the shape and the compressor should call the compressor's ``decode``, which checks both.

    Parameters
    ----------
    message
        The bytes.
    limit
        The largest number of entries of an array.

    Examples
    --------
    >>> import numpy as np
    >>> from fpdfp import compress
    >>> from fpdfp.rng import Draws
    >>> quantizer = compress.Natural()
    >>> [message] = quantizer.encode(quantizer.quantize(np.array([[4.0, -1.0]]), Draws(0, 0, np.array([0])), 16))
    >>> compress.decode(message)
    array([ 4., -1.])
    """
    _checks.integer("limit", limit, at_least=1)
    data = _check_bytes(message)
    seen = parse(data)
    if math.prod(max(n, 1) for n in seen.shape) > limit:
        raise MessageError(f"a message holds an array of shape {seen.shape}, over the limit of {limit} entries")
    body = Body(seen.code, data[seen.end : -CHECKSUM_BYTES])
    quantized = seen.compressor.unpack(body, seen.shape, seen.dtype)
    return dequantize_finite(seen.compressor, quantized).reshape(seen.shape)


def parse(message: bytes) -> Header:
    """Read the header of a message whose checksum is right."""
    kind, code = message[3], message[CODE_AT] & 15
    compressors = _registry()
    if message[2] != VERSION:
        raise MessageError(f"a message has version {message[2]} of the format; this package reads version {VERSION}")
    if kind & (WIRE_IDS - 1) not in compressors or kind >> 5 >= len(DTYPES):
        raise damage_error("its compressor or dtype is unknown")
    numbers, at = [], CODE_AT + 1
    n_dimensions = message[CODE_AT] >> 4
    cls = compressors[kind & (WIRE_IDS - 1)]
    for _ in range(n_dimensions + cls.n_parameters):
        number, at = read_varint(message, at, len(message) - CHECKSUM_BYTES)
        numbers.append(number)
    shape = tuple(numbers[:n_dimensions])
    # NumPy counts bytes in 63 bits, also of arrays that are empty.
    if math.prod(max(n, 1) for n in shape) >= 2**59:
        raise damage_error("its shape is too large")
    try:
        compressor = cls.from_parameters(numbers[n_dimensions:])
        again = compressor.parameters(shape)
    except (ValueError, TypeError, IndexError) as error:
        raise damage_error(f"its compressor is invalid ({error})") from None
    if list(again) != numbers[n_dimensions:]:
        raise damage_error("its compressor is invalid")
    return Header(compressor, shape, DTYPES[kind >> 5], code, at)


def dequantize_finite(compressor: Compressor, quantized: Quantized) -> Array:
    """Return the arrays that unpacked messages represent, if they are finite."""
    values: Array = compressor.dequantize(quantized)
    # Finite scales give finite numbers; numbers that were sent unchanged may not be finite.
    if quantized.values is not None and not bool(namespace(values).isfinite(values).all()):
        raise damage_error("a number is not finite")
    return values


def _check_bytes(message: Any) -> bytes:
    """Return the bytes of a message if its length, first bytes and checksum can be right."""
    if not isinstance(message, bytes | bytearray | memoryview):
        raise TypeError(f"message must be bytes, got {type(message).__name__}")
    data = bytes(message)
    if len(data) < CODE_AT + 1 + CHECKSUM_BYTES:
        raise MessageError(f"a message of {len(data)} bytes is too short")
    if data[:2] != MAGIC:
        raise MessageError("not a message of fpdfp: its first bytes are wrong")
    if zlib.crc32(data[:-CHECKSUM_BYTES]) != struct.unpack("<I", data[-CHECKSUM_BYTES:])[0]:
        raise damage_error("its checksum is wrong")
    return data


@functools.cache
def _registry() -> dict[int, type[Compressor]]:
    from fpdfp import compress

    kinds = (getattr(compress, name) for name in compress.__all__)
    return {kind.wire_id: kind for kind in kinds if hasattr(kind, "wire_id")}


def _describe(compressor: Compressor, shape: Shape, dtype: Any) -> str:
    return f"{dtype} of shape {shape} from {compressor!r}"


def read_varint(message: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the integer at a place before the end, and the place after it."""
    number = 0
    for place in range(9):
        if at >= end:
            break
        byte = message[at]
        at += 1
        number |= (byte & 127) << (7 * place)
        if byte < 128:
            if byte == 0 and place > 0:
                break
            return number, at
    raise damage_error("a count is cut off or too long")
