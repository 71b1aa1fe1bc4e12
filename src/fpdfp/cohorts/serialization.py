"""Parcels: what server and sites send each other, as bytes without pickles.

A parcel holds a tree of dictionaries, lists, texts, numbers, bytes and arrays::

    version (1 byte)  tree  CRC-32 (4 bytes)

Every value of the tree begins with a byte that describes what it is; lengths are variable-length integers::

    00–3f  an integer from 0 to 63            a3  an integer: its length in bytes, and these (little-endian, signed)
    40–5f  a text of 0 to 31 bytes (UTF-8)    a4  a float (8 bytes)
    60–7f  0 to 31 bytes                      a5  a text: its length, and it
    80–8f  a list of 0 to 15 values           a6  bytes: their length, and they
    90–9f  a dictionary of 0 to 15 entries    a7  a list: its length, and its values
    a0 a1 a2   None, False, True              a8  a dictionary: its length, and its entries
    b0–b5  an array: its shape, its numbers   b8–bd  one with few numbers that are not zero: shape, code, length, body
    c2 c3  integers of 4 or 8 bytes that are sent in fewer: shape, bytes of each, numbers

A shape is a number of axes, and their lengths. The name of an entry is a byte, the number of one of ``NAMES``, or ff, a
length and a text. The body of an array with few numbers that are not zero is that of a message of
:class:`fpdfp.compress.Full`. Nothing in a parcel is ever executed. Arrays take no more memory than the parcel itself,
apart from zeros, which have a limit, and the number of values, each of which takes some hundred bytes, has one too.

What a parcel holds is then checked against type annotations (:func:`validate`): what a coordinator sends is what a
constructor says that it takes.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
import types
import typing
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from fpdfp._array import to_host
from fpdfp._typing import Array
from fpdfp.compress.base import NO_CODE, Body, write_varint
from fpdfp.compress.plain import pack_numbers, unpack_numbers
from fpdfp.errors import MessageError

#: The first byte. Parcels of version 1 began with these letters.
VERSION, FIRST_VERSION = 2, b"FPDP"
TAIL, FLOAT = struct.Struct("<I"), struct.Struct("<d")
#: What arrays may hold; all little-endian.
DTYPES = ("|b1", "|u1", "<i4", "<i8", "<f4", "<f8")
#: How many values a tree may have.
MOST_VALUES = 1 << 20
#: How deep a tree may be.
DEPTH = 32
#: The most bytes in memory of an array that is sent without its zeros, and of all those of a parcel.
WITHOUT_ZEROS, ALL_WITHOUT_ZEROS = 1 << 25, 1 << 29
SMALL_TEXT, SMALL_BYTES, SMALL_LIST, SMALL_DICT = 0x40, 0x60, 0x80, 0x90
NONE, FALSE, TRUE, INTEGER, REAL, TEXT, BYTES, LIST, DICT = range(0xA0, 0xA9)
ARRAY, SPARSE, NARROW = 0xB0, 0xB8, 0xC0
SPELLED = 255
#: The names that are sent as one byte. New ones come last, since a name is known by its place.
NAMES = (
    "run", "sequence", "site", "sites", "kind", "model", "plan", "spec", "request", "question", "reply", "needs",
    "needs_model", "refused", "error", "seen", "key", "job", "features", "mask", "place", "clients", "class", "fields",
    "arrays", "frames", "bits", "work", "diverged", "update", "round", "message", "epoch", "to", "whole", "start",
    "steps", "zero", "versions", "digests", "copies", "answers", "memory", "facts", "constants", "at", "duals", "x",
    "parts", "values", "gradients", "point", "part", "weights", "direction", "scale", "factor", "coordinates",
    "batch_size", "difference", "slope", "triangle", "hessian", "linear", "v", "sums", "moments", "schema", "columns",
    "name", "unit", "missing", "levels", "counts", "least", "largest", "distinct", "rows", "design", "terms", "column",
    "value", "response", "coded", "price", "problems", "folds", "conversation", "number", "needs_head", "bounds",
    "lipschitz", "least_convexity", "family", "shape", "dtype", "sizes", "form", "batches", "hessians", "restricts",
    "convex", "probe", "numbers", "slopes", "scales", "entries", "roots", "ridge", "score", "meat", "gradient",
    "outside", "matrix", "diagonal", "powers", "sketch", "rounds",
)  # fmt: skip
NUMBER_OF = {name: number for number, name in enumerate(NAMES)}


def pack(tree: Any) -> bytes:
    """Return a tree as bytes.

    >>> import numpy as np
    >>> parcel = pack({"round": 3, "x": np.arange(3.0), "frames": [b"abc"]})
    >>> unpack(parcel)
    {'round': 3, 'x': array([0., 1., 2.]), 'frames': [b'abc']}
    >>> len(parcel)
    42
    """
    writer = _Writer()
    writer.write(tree, 0)
    checksum = 0
    for piece in writer.pieces:
        checksum = zlib.crc32(piece, checksum)
    return b"".join((*writer.pieces, TAIL.pack(checksum)))


def unpack(parcel: bytes) -> Any:
    """Return the tree of a parcel; raise MessageError if it is damaged or none."""
    data = memoryview(parcel)
    if len(data) < 2 + TAIL.size:
        raise MessageError(f"a parcel of {len(data)} bytes is too short to be one")
    if bytes(data[:4]) == FIRST_VERSION:
        raise MessageError(f"a parcel has version 1; this package reads version {VERSION}")
    if data[0] != VERSION:
        raise MessageError("this is not a parcel of fpdfp: its first byte is wrong")
    if zlib.crc32(data[: -TAIL.size]) != TAIL.unpack(data[-TAIL.size :])[0]:
        raise MessageError("a parcel is damaged: its checksum is wrong")
    reader = _Reader(data[: -TAIL.size])
    tree = reader.read(0)
    if reader.at != len(reader.data):
        raise MessageError("a parcel is damaged: it holds more than its tree says")
    return tree


class _Writer:
    """The pieces of a parcel."""

    def __init__(self) -> None:
        self.pieces: list[Any] = [bytes([VERSION])]
        self.values = 0

    def write(self, value: Any, depth: int) -> None:
        """Add a value."""
        self.values += 1
        if depth > DEPTH:
            raise ValueError(f"a parcel's tree may be {DEPTH} deep, this one is deeper")
        if self.values > MOST_VALUES:
            raise ValueError(f"a parcel's tree may have {MOST_VALUES:,} values, this one has more")
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool):
            self.pieces.append(bytes([NONE if value is None else TRUE if value else FALSE]))
        elif isinstance(value, int):
            self.integer(value)
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError("a parcel's numbers must be finite")
            self.pieces.append(bytes([REAL]) + FLOAT.pack(value))
        elif isinstance(value, str):
            text = value.encode("utf-8", "surrogatepass")
            self.head(SMALL_TEXT, TEXT, 32, len(text))
            self.pieces.append(text)
        elif isinstance(value, bytes | bytearray | memoryview):
            self.head(SMALL_BYTES, BYTES, 32, len(value))
            self.pieces.append(value)
        elif isinstance(value, dict):
            self.head(SMALL_DICT, DICT, 16, len(value))
            for name, one in value.items():
                self.name(name)
                self.write(one, depth + 1)
        elif isinstance(value, list | tuple):
            self.head(SMALL_LIST, LIST, 16, len(value))
            for one in value:
                self.write(one, depth + 1)
        else:
            self.array(value)

    def head(self, small: int, large: int, most: int, length: int) -> None:
        """Add what a value is, and its length."""
        self.pieces.append(bytes([small + length]) if length < most else bytes([large]) + write_varint(length))

    def integer(self, value: int) -> None:
        """Add an integer."""
        if 0 <= value < SMALL_TEXT:
            self.pieces.append(bytes([value]))
            return
        length = value.bit_length() // 8 + 1
        if length > 255:
            raise ValueError("a parcel's integers must have at most 255 bytes")
        self.pieces.append(bytes([INTEGER, length]) + value.to_bytes(length, "little", signed=True))

    def name(self, name: Any) -> None:
        """Add the name of an entry."""
        if not isinstance(name, str):
            raise TypeError(f"the names in a parcel must be texts, got {name!r}")
        number = NUMBER_OF.get(name)
        if number is not None:
            self.pieces.append(bytes([number]))
            return
        text = name.encode("utf-8", "surrogatepass")
        self.pieces.append(bytes([SPELLED]) + write_varint(len(text)) + text)

    def array(self, value: Any) -> None:
        """Add an array."""
        array = np.ascontiguousarray(to_host(value))
        array = array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(np.shape(value))
        if array.dtype.str not in DTYPES:
            raise TypeError(f"a parcel cannot hold {type(value).__name__} of dtype {array.dtype}")
        kind = DTYPES.index(array.dtype.str)
        shape = b"".join(map(write_varint, (array.ndim, *array.shape)))
        if array.dtype.kind == "f" and array.nbytes <= WITHOUT_ZEROS:
            code, found = pack_numbers(array.reshape(-1))
            if code != NO_CODE:
                body = b"".join(found)
                self.pieces += [bytes([SPARSE + kind]) + shape + bytes([code]) + write_varint(len(body)), body]
                return
        if array.dtype.kind == "i" and (width := _width(array)) < array.itemsize:
            self.pieces.append(bytes([NARROW + kind]) + shape + bytes([width]))
            array = array.astype(f"<i{width}")
        else:
            self.pieces.append(bytes([ARRAY + kind]) + shape)
        self.pieces.append(array.reshape(-1).view(np.uint8).data if array.size else b"")


def _width(array: Array) -> int:
    """Return in how many bytes each integer of an array fits."""
    if not array.size:
        return array.itemsize
    lowest, highest = int(array.min()), int(array.max())
    return next(n for n in (1, 2, 4, 8) if -(1 << 8 * n - 1) <= lowest and highest < 1 << 8 * n - 1)


class _Reader:
    """The rest of a parcel."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 1
        self.zeros = self.values = 0

    def read(self, depth: int) -> Any:
        """Return the next value."""
        self.values += 1
        if depth > DEPTH:
            raise MessageError(f"a parcel's tree may be {DEPTH} deep, this one is deeper")
        if self.values > MOST_VALUES:
            raise MessageError(f"a parcel's tree may have {MOST_VALUES:,} values, this one has more")
        tag = self.byte()
        if tag < SMALL_TEXT:
            return tag
        if tag < SMALL_LIST or tag in (TEXT, BYTES):
            small = SMALL_TEXT if tag < SMALL_BYTES else SMALL_BYTES
            data = self.take(tag - small if tag < SMALL_LIST else self.varint())
            return self.text(data) if (small == SMALL_TEXT and tag < SMALL_LIST) or tag == TEXT else bytes(data)
        if tag < SMALL_DICT or tag == LIST:
            return [self.read(depth + 1) for _ in range(self.count(tag - SMALL_LIST if tag < SMALL_DICT else None))]
        if tag < NONE or tag == DICT:
            count = self.count(tag - SMALL_DICT if tag < NONE else None)
            return {self.name(): self.read(depth + 1) for _ in range(count)}
        if tag <= TRUE:
            return (None, False, True)[tag - NONE]
        if tag == INTEGER:
            return int.from_bytes(self.take(self.byte()), "little", signed=True)
        if tag == REAL:
            found = FLOAT.unpack(self.take(8))[0]
            if not math.isfinite(found):
                raise MessageError("a parcel is damaged: a number is not finite")
            return found
        kind = tag & 7
        if kind >= len(DTYPES) or tag - kind not in (ARRAY, SPARSE, NARROW):
            raise MessageError("a parcel is damaged: a value is of no known kind")
        return self.array(tag - kind, np.dtype(DTYPES[kind]))

    def byte(self) -> int:
        """Return the next byte."""
        return self.take(1)[0]

    def varint(self) -> int:
        """Return the next length."""
        found = 0
        for shift in range(0, 63, 7):
            byte = self.byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
        raise MessageError("a parcel is damaged: a length is too large")

    def count(self, known: int | None) -> int:
        """Return how many values follow, each of which has a byte at least."""
        count = self.varint() if known is None else known
        if count > len(self.data) - self.at:
            raise MessageError("a parcel is damaged: it is shorter than its tree says")
        return count

    def text(self, data: memoryview) -> str:
        """Return a text."""
        try:
            return bytes(data).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise MessageError("a parcel is damaged: a text is not UTF-8") from None

    def name(self) -> str:
        """Return the name of an entry."""
        number = self.byte()
        if number == SPELLED:
            return self.text(self.take(self.varint()))
        if number >= len(NAMES):
            raise MessageError("a parcel is damaged: an entry has no known name")
        return NAMES[number]

    def array(self, how: int, dtype: np.dtype[Any]) -> Array:
        """Return an array: a copy, so that it is aligned and can be written to."""
        axes = self.varint()
        if axes > DEPTH:
            raise MessageError(f"a parcel is damaged: an array has more than {DEPTH} axes")
        shape = [self.varint() for _ in range(axes)]
        # NumPy counts bytes in 63 bits, also of arrays that are empty.
        if math.prod(max(n, 1) for n in shape) >= 1 << 59:
            raise MessageError("a parcel is damaged: the shape of an array is too large")
        size = math.prod(shape)
        if how == SPARSE:
            self.zeros += dtype.itemsize * size
            if dtype.kind != "f" or self.zeros > ALL_WITHOUT_ZEROS:
                raise MessageError("a parcel is damaged: the description of an array is invalid, or it is too large")
            code = self.byte()
            return unpack_numbers(Body(code, bytes(self.take(self.varint()))), size, dtype).reshape(shape)
        stored = dtype
        if how == NARROW:
            width = self.byte()
            if dtype.kind != "i" or width not in (1, 2, 4) or width >= dtype.itemsize:
                raise MessageError("a parcel is damaged: integers of an unknown width")
            stored = np.dtype(f"<i{width}")
        found = np.frombuffer(self.take(stored.itemsize * size), dtype=stored).reshape(shape)
        return found.astype(dtype)

    def take(self, length: int) -> memoryview:
        """Return the next bytes."""
        if length > len(self.data) - self.at:
            raise MessageError("a parcel is damaged: it is shorter than its tree says")
        self.at += length
        return self.data[self.at - length : self.at]


#: Integers are less than this: NumPy has no larger ones.
LARGEST = 1 << 63

#: The most rows: a column of them has 16 GiB.
ROWS = 1 << 31
#: The largest number in an answer: a sum over this many rows of squares of numbers of 1e15; in single precision, 1e11.
NUMBER, SINGLE = 1e40, 1e32
#: What is sent for the value of a loss outside its domain.
OUTSIDE = 1e100

#: Returns a value if it is what an annotation says, else raises MessageError.
Check = Callable[[Any], Any]


@functools.cache
def constructor_hints(kind: type) -> dict[str, Any]:
    """Return the annotations of the fields of a dataclass or a named tuple that its constructor takes."""
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind) if field.init]
    else:
        names = list(kind._fields)  # type: ignore[attr-defined]
    hints = typing.get_type_hints(kind)
    unchecked = [name for name in names if hints[name] is Any or name.startswith("_")]
    if unchecked:
        raise TypeError(f"{kind.__name__} cannot be sent: nothing is said of the type of {', '.join(unchecked)}")
    return {name: hints[name] for name in names}


def validate(value: Any, hint: Any, name: str) -> Any:
    """Return a value that is what an annotation says; lists stand for tuples. Raise MessageError for any other.

    Numbers must be finite, but for those in arrays whose annotation is ``np.ndarray`` alone. A dictionary stands for a
    dataclass.

    >>> validate([1, 2], tuple[int, ...], "shape")
    (1, 2)
    >>> validate("1", int | None, "rows")
    Traceback (most recent call last):
      ...
    fpdfp.errors.MessageError: rows: must be int or None, got str
    """
    return _inside(name, check_of(hint), value)


@functools.cache
def check_of(hint: Any) -> Check:
    """Return the check of an annotation."""
    origin, args = get_origin(hint), get_args(hint)
    if hasattr(origin, "__value__"):  # an alias of PEP 695, as NDArray is since NumPy 2.5
        return check_of(origin.__value__[args])
    if origin in (Union, types.UnionType):
        return _one_of(args)
    if origin is Literal:
        return _plain(hint, lambda value: isinstance(value, str) and value in args)
    if origin is list or (origin is tuple and args[-1] is Ellipsis):
        return _many(origin, check_of(args[0]), hint)
    if origin is tuple:
        return _several([check_of(one) for one in args], hint)
    if origin is dict:
        return _names(check_of(args[1]), hint)
    if (origin or hint) is np.ndarray:
        return _array(get_args(args[1])[0] if args else None, hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return lambda value: build(hint, value) if isinstance(value, dict) else _instance(value, hint)
    if hint in (None, type(None)):
        return _plain(hint, lambda value: value is None)
    if hint is int:
        return _plain(hint, lambda value: type(value) is int and abs(value) < LARGEST)
    if hint is float:
        return _plain(hint, _is_float)
    return _plain(hint, lambda value: isinstance(value, hint))


def build(kind: type, given: Mapping[str, Any]) -> Any:
    """Return a dataclass made of the fields in a dictionary, each of which must be what its annotation says."""
    checks = _field_checks(kind)
    if not checks.keys() >= given.keys():
        strange = ", ".join(sorted(ascii(name) for name in given if name not in checks))
        raise MessageError(f"is made of {sorted(checks)}, not of {strange}")
    fields = _each(given, checks.__getitem__)
    try:
        return kind(**fields)
    except TypeError as error:
        raise MessageError(f"cannot be built: {error}") from None


@functools.cache
def _field_checks(kind: type) -> dict[str, Check]:
    return {name: check_of(hint) for name, hint in constructor_hints(kind).items()}


def _each(given: Mapping[str, Any], check_for: Callable[[str], Check]) -> dict[str, Any]:
    """Check the values of a dictionary; an error begins with the name of the first that is refused."""
    made, name = {}, ""
    try:
        for name, value in given.items():
            made[name] = check_for(name)(value)
    except MessageError as error:
        raise MessageError(f"{name}: {error}") from None
    return made


def _inside(name: Any, check: Check, value: Any) -> Any:
    """Check a value; an error begins with its name."""
    try:
        return check(value)
    except MessageError as error:
        raise MessageError(f"{name}: {error}") from None


def _one_of(hints: tuple[Any, ...]) -> Check:
    checks = [check_of(hint) for hint in hints]

    def check(value: Any) -> Any:
        refused = []
        for one in checks:
            try:
                return one(value)
            except MessageError as error:
                refused.append(error)
        if isinstance(value, list | dict | np.ndarray):
            raise refused[0]
        raise MessageError(f"must be {' or '.join(map(_describe, hints))}, got {_show(value)}")

    return check


def _plain(hint: Any, is_one: Callable[[Any], bool]) -> Check:
    def check(value: Any) -> Any:
        if is_one(value):
            return value
        raise MessageError(f"must be {_describe(hint)}, got {_show(value)}")

    return check


def _is_float(value: Any) -> bool:
    """Whether a value is a finite number; a whole one does."""
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is int and abs(value) < LARGEST


def _instance(value: Any, kind: type) -> Any:
    if isinstance(value, kind):
        return value
    raise MessageError(f"must be {_describe(kind)}, got {_show(value)}")


def _many(kind: type, one: Check, hint: Any) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise MessageError(f"must be {_describe(hint)}, got {_show(value)}")
        made: list[Any] = []
        # One block for all of them: a round has hundreds of messages.
        try:
            for part in value:
                made.append(one(part))  # noqa: PERF401 - the error describes how many were right
        except MessageError as error:
            raise MessageError(f"{len(made)}: {error}") from None
        return made if kind is list else kind(made)

    return check


def _several(checks: list[Check], hint: Any) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(checks):
            raise MessageError(f"must be {_describe(hint)}, got {_show(value)}")
        return tuple(_inside(i, one, part) for i, (one, part) in enumerate(zip(checks, value, strict=True)))

    return check


def _names(one: Check, hint: Any) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            raise MessageError(f"must be {_describe(hint)}, got {_show(value)}")
        for name in value:
            if not isinstance(name, str) or not name.replace("_", "a").isalnum() or name.startswith("_"):
                raise MessageError(f"has a name that must not be: {name!a}")
        return _each(value, lambda _: one)

    return check


def _array(wanted: Any, hint: Any) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            raise MessageError(f"must be {_describe(hint)}, got {_show(value)}")
        if value.dtype.kind not in "fiub" or (wanted not in (None, Any) and value.dtype != wanted):
            numbers = _describe(wanted) if isinstance(wanted, type) and wanted is not Any else "real numbers"
            raise MessageError(f"must hold {numbers}, got {value.dtype}")
        if wanted is not None and value.dtype.kind == "f" and not np.isfinite(value).all():
            raise MessageError("must be finite")
        return value

    return check


def check_numbers(value: Any) -> None:
    """Refuse an answer with numbers, anywhere in it, that no table gives: too large, or of too many rows.

    Integers count rows, but in fields that :attr:`unbounded` of their class names, as digests and pairs of rows.
    """
    if dataclasses.is_dataclass(value):
        free = getattr(value, "unbounded", ())
        for field in dataclasses.fields(value):
            try:
                if field.name not in free:
                    check_numbers(getattr(value, field.name))
            except MessageError as error:
                raise MessageError(f"{field.name}: {error}") from None
    elif isinstance(value, Mapping):
        check_numbers(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            check_numbers(one)
    elif isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iuf":
        most = ROWS if value.dtype.kind != "f" else SINGLE if value.dtype.itemsize == 4 else NUMBER
        sizes = np.abs(value.astype(np.float64))
        _check_number(float(sizes[np.isfinite(sizes) & (sizes != OUTSIDE)].max(initial=0.0)), most)
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        _check_number(abs(value), ROWS if isinstance(value, int) else NUMBER)


def _check_number(largest: float, most: float) -> None:
    if largest > most == ROWS:
        raise MessageError(f"a site cannot have {largest:.3g} rows")
    if largest > most:
        raise MessageError(f"an answer has the number {largest:.3g}, which no table gives")


def _show(value: Any) -> str:
    return repr(value) if isinstance(value, int | float) else type(value).__name__


def _describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if hint is type(None):
        return "None"
    return str(hint if get_args(hint) else getattr(hint, "__name__", hint))
