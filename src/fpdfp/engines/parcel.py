"""Parcels: what server and sites send each other, as bytes without pickles.

A parcel holds a tree of dictionaries, lists, texts, numbers, bytes and arrays::

    "FPDP"  version  length of the tree (4 bytes)  tree (JSON)  buffers, one after the other  CRC-32 (4 bytes)

In the tree an array is ``{"$": [dtype, shape]}`` and bytes are ``{"$": length}``; their buffers follow in the order of
the tree. An array of floating-point numbers with few that are not zero is ``{"$": [dtype, shape, code, length]}``, and
its buffer the body of a message of :class:`fpdfp.compress.Full`. Nothing in a parcel is ever executed. Arrays take no
more memory than the parcel itself, apart from zeros, which have a limit, and the tree, which takes some fifty times its
length, is short.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from typing import Any

import numpy as np

from fpdfp._array import to_host
from fpdfp._typing import Array
from fpdfp.compress.base import NO_CODE, Body
from fpdfp.compress.plain import pack_numbers, unpack_numbers
from fpdfp.errors import MessageError

MAGIC, VERSION = b"FPDP", 1
HEAD, TAIL = struct.Struct("<4sBI"), struct.Struct("<I")
#: What arrays may hold; all little-endian.
DTYPES = ("|b1", "|u1", "<i4", "<i8", "<f4", "<f8")
#: What a tree holds as it is; most of its leaves are of exactly these types.
PLAIN = frozenset({type(None), bool, int, float, str})
#: How long a tree may be, without its arrays and bytes.
TREE = 1 << 22
#: How deep a tree may be.
DEPTH = 32
#: The most bytes in memory of an array that is sent without its zeros, and of all those of a parcel.
WITHOUT_ZEROS, ALL_WITHOUT_ZEROS = 1 << 25, 1 << 29


def pack(tree: Any) -> bytes:
    """Return a tree as bytes.

    >>> import numpy as np
    >>> parcel = pack({"round": 3, "x": np.arange(3.0), "frames": [b"abc"]})
    >>> unpack(parcel)
    {'round': 3, 'x': array([0., 1., 2.]), 'frames': [b'abc']}
    """
    buffers: list[Any] = []
    text = json.dumps(_outline(tree, buffers, 0), allow_nan=False, separators=(",", ":")).encode()
    if len(text) > TREE:
        raise ValueError(f"a parcel's tree may have {TREE} bytes, this one has {len(text)}")
    head = HEAD.pack(MAGIC, VERSION, len(text))
    checksum = zlib.crc32(text, zlib.crc32(head))
    for buffer in buffers:
        checksum = zlib.crc32(buffer, checksum)
    return b"".join((head, text, *buffers, TAIL.pack(checksum)))


def unpack(parcel: bytes) -> Any:
    """Return the tree of a parcel; raise MessageError if it is damaged or none."""
    data = memoryview(parcel)
    if len(data) < HEAD.size + TAIL.size:
        raise MessageError(f"a parcel of {len(data)} bytes is too short to be one")
    magic, version, length = HEAD.unpack(data[: HEAD.size])
    if magic != MAGIC:
        raise MessageError("this is not a parcel of fpdfp: its first bytes are wrong")
    if version != VERSION:
        raise MessageError(f"a parcel has version {version}; this package reads version {VERSION}")
    if zlib.crc32(data[: -TAIL.size]) != TAIL.unpack(data[-TAIL.size :])[0]:
        raise MessageError("a parcel is damaged: its checksum is wrong")
    end = HEAD.size + length
    if length > TREE:
        raise MessageError(f"a parcel's tree may have {TREE} bytes, this one has {length}")
    if end > len(data) - TAIL.size:
        raise MessageError("a parcel is damaged: its tree is cut off")
    try:
        outline = json.loads(bytes(data[HEAD.size : end]))
    except (ValueError, RecursionError) as error:
        raise MessageError(f"a parcel is damaged: its tree cannot be read ({error})") from None
    reader = _Reader(data[end : -TAIL.size])
    tree = reader.fill(outline, 0)
    if reader.at != len(reader.data):
        raise MessageError("a parcel is damaged: it holds more than its tree says")
    return tree


def _outline(value: Any, buffers: list[Any], depth: int) -> Any:
    """Return a tree with places instead of arrays and bytes, and add those to the buffers."""
    if depth > DEPTH:
        raise ValueError(f"a parcel's tree may be {DEPTH} deep, this one is deeper")
    if type(value) in PLAIN or isinstance(value, int | float | str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        buffers.append(value)
        return {"$": len(value)}
    if isinstance(value, dict):
        if any(not isinstance(name, str) or name == "$" for name in value):
            raise TypeError(f"the names in a parcel must be texts other than '$', got {sorted(map(repr, value))}")
        return {name: _outline(one, buffers, depth + 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_outline(one, buffers, depth + 1) for one in value]
    if isinstance(value, np.generic):
        return value.item()
    array = np.ascontiguousarray(to_host(value))
    array = array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(np.shape(value))
    if array.dtype.str not in DTYPES:
        raise TypeError(f"a parcel cannot hold {type(value).__name__} of dtype {array.dtype}")
    if array.dtype.kind == "f" and array.nbytes <= WITHOUT_ZEROS:
        code, pieces = pack_numbers(array.reshape(-1))
        if code != NO_CODE:
            buffers.append(b"".join(pieces))
            return {"$": [array.dtype.str, list(array.shape), code, len(buffers[-1])]}
    buffers.append(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return {"$": [array.dtype.str, list(array.shape)]}


class _Reader:
    """What is left of a parcel's buffers."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0
        self.zeros = 0

    def fill(self, outline: Any, depth: int) -> Any:
        """Return an outline with arrays and bytes in their places."""
        if depth > DEPTH:
            raise MessageError(f"a parcel's tree may be {DEPTH} deep, this one is deeper")
        if type(outline) in PLAIN:
            return outline
        if isinstance(outline, list):
            return [self.fill(one, depth + 1) for one in outline]
        if not isinstance(outline, dict):
            return outline
        if "$" not in outline:
            return {name: self.fill(one, depth + 1) for name, one in outline.items()}
        place = outline["$"]
        if type(place) is int:
            return bytes(self.take(place))
        if not isinstance(place, list) or len(place) not in (2, 4) or place[0] not in DTYPES:
            raise MessageError("a parcel is damaged: the place of an array must be a dtype and a shape")
        dtype, shape = np.dtype(place[0]), place[1]
        if not isinstance(shape, list):
            raise MessageError("a parcel is damaged: the shape of an array must be a list of lengths")
        if any(type(n) is not int or n < 0 for n in shape) or len(shape) > DEPTH:
            raise MessageError("a parcel is damaged: the shape of an array must be a list of lengths")
        # NumPy counts bytes in 63 bits, also of arrays that are empty.
        if math.prod(max(n, 1) for n in shape) >= 1 << 59:
            raise MessageError("a parcel is damaged: the shape of an array is too large")
        if len(place) == 4:
            return self.fill_zeros(dtype, shape, *place[2:])
        # A copy, so that arrays are aligned and can be written to.
        return np.frombuffer(self.take(dtype.itemsize * math.prod(shape)), dtype=dtype).reshape(shape).copy()

    def fill_zeros(self, dtype: np.dtype[Any], shape: list[int], code: Any, length: Any) -> Array:
        """Return an array of which few numbers are not zero."""
        size = math.prod(shape)
        self.zeros += dtype.itemsize * size
        if type(code) is not int or type(length) is not int or dtype.kind != "f" or self.zeros > ALL_WITHOUT_ZEROS:
            raise MessageError("a parcel is damaged: the description of an array is invalid, or it is too large")
        return unpack_numbers(Body(code, bytes(self.take(length))), size, dtype).reshape(shape)

    def take(self, length: int) -> memoryview:
        """Return the next bytes."""
        if length < 0 or self.at + length > len(self.data):
            raise MessageError("a parcel is damaged: it is shorter than its tree says")
        self.at += length
        return self.data[self.at - length : self.at]
