"""The interface of compressors, and what they share: the codes of levels, and the frames of messages."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fpdfp import _checks, _cuda, _kernels
from fpdfp._array import namespace, to_host
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.errors import MessageError
from fpdfp.rng import Draws

#: The least number of samples on which a typical error is measured.
SAMPLE = 1 << 12
#: The dtypes that are sent without conversion.
NATIVE = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
#: The first bytes of a message, and the version of their layout.
MAGIC, VERSION = b"fp", 1
#: The dtypes that messages can have, and the most dimensions of an array.
DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
MAX_DIMENSIONS = 15
CHECKSUM_BYTES = 4
#: The number of a compressor has five bits.
WIRE_IDS = 32
#: The codes of levels by name; the numbers stand in messages.
CODES = {"fixed": 1, "omega": 3, "rans": 5, "adaptive": 8, "auto": 15}
#: Numbers of codes that are no longer read, and stay reserved.
FORMER = {2: "Elias gamma", 4: "Rice", 6: "ANS of constriction"}
#: Stands in messages without levels.
NO_CODE = 0
#: Levels up to which several messages are written and read in one call.
SHORT = 1 << 14
#: What else a scale cannot hold.
LIMIT = " or values beyond the range of float32"


class Compressed(NamedTuple):
    """Arrays as the receiver decodes them, and the bits that each client's message took."""

    values: Array
    bits: IntArray


@dataclasses.dataclass(frozen=True, eq=False)
class Quantized:
    """The contents of messages before they are written as bytes, with a row for each client.

    Attributes
    ----------
    source
        The compressor: its number in messages, and its parameters there.
    shape, dtype
        Of one client's array.
    levels
        Integers in the order in which they are sent, None for a compressor without levels.
    scales
        A float32 for each block of levels; the levels of a block of scale 0 are not sent.
    values
        Numbers that are sent unchanged.
    origin
        Where the positions of a random subset come from: the five words of Philox's counter and key.
    """

    source: tuple[int, ...]
    shape: Shape
    dtype: Any
    levels: Array | None = None
    scales: Array | None = None
    values: Array | None = None
    origin: Array | None = None


class Body(NamedTuple):
    """The part of a message after its header: the code of its levels, and its bytes."""

    code: int
    data: bytes


class Parts(NamedTuple):
    """The same before it is joined: its pieces, in order."""

    code: int
    pieces: list[Any]


class Compressor(abc.ABC):
    """A map from arrays to shorter messages, over a leading client axis.

    A simulation calls :meth:`compress`, which returns what the receiver decodes and the exact bits of the messages;
    they are not serialised. A deployment calls :meth:`quantize` and :meth:`encode` at the sender and :meth:`decode` at
    the receiver, with the same arrays and messages of the same length (``docs/wire-format.md``).
    """

    #: The number of the compressor in a message, from 0 to 31.
    wire_id: ClassVar[int]

    @property
    def unbiased(self) -> bool:
        """Whether E[Q(x)] = x."""
        return True

    @abc.abstractmethod
    def omega(self, shape: int | Shape) -> float:
        """Return a bound ω of the relative error for arrays of a size or shape: E‖Q(x) − x‖² ≤ ω‖x‖²."""

    def typical_omega(self, shape: int | Shape) -> float:
        """Return the relative error ‖Q(x) − x‖²/‖x‖² that a sample of normally distributed arrays has, at most ω.

        For max-norm quantizers with few levels it is far below the bound, which holds for the worst x.
        """
        sizes = _checks.shape("shape", (shape,) if np.ndim(shape) == 0 else shape)
        return min(_sample_error(type(self), self.parameters(sizes), sizes), self.omega(shape))

    @abc.abstractmethod
    def quantize(self, arrays: Array, draws: Draws, purpose: int) -> Quantized:
        """Return the contents of each client's message; raise an error for arrays that are not finite."""

    @abc.abstractmethod
    def dequantize(self, quantized: Quantized) -> Array:
        """Return the arrays that messages represent, one for each client."""

    @abc.abstractmethod
    def body_bits(self, quantized: Quantized) -> IntArray:
        """Return the exact length of each message without header and checksum."""

    @abc.abstractmethod
    def pack(self, quantized: Quantized, row: int) -> Parts:
        """Write one client's message without header and checksum."""

    @abc.abstractmethod
    def unpack(self, body: Body, shape: Shape, dtype: Any, device: str = "cpu") -> Quantized:
        """Read what :meth:`pack` wrote; raise MessageError if it cannot have been written by it."""

    def pack_all(self, quantized: Quantized) -> Iterable[Parts]:
        """Write every client's message without header and checksum, long ones lazily."""
        return (self.pack(quantized, row) for row in range(_rows(quantized)))

    def unpack_all(self, bodies: Sequence[Body], shape: Shape, dtype: Any, device: str = "cpu") -> list[Quantized]:
        """Read what :meth:`pack_all` wrote, into one row for each message: in one piece, or in one for each."""
        return [self.unpack(body, shape, dtype, device) for body in bodies]

    @abc.abstractmethod
    def parameters(self, shape: Shape) -> tuple[int, ...]:
        """Return the integers that describe this compressor in a message for an array of this shape."""

    @classmethod
    @abc.abstractmethod
    def from_parameters(cls, parameters: Sequence[int]) -> Compressor:
        """Return the compressor that integers of a message describe; raise ValueError or TypeError if invalid."""

    #: How many integers :meth:`parameters` returns.
    n_parameters: ClassVar[int]

    def nbits(self, quantized: Quantized) -> IntArray:
        """Return the exact length in bits of each client's message, without encoding it.

        A message fills whole bytes: ``8 * len(message)`` is this, rounded up to a multiple of 8.
        """
        self.check_source(quantized)
        return self.body_bits(quantized) + frame_bits(self, quantized.shape, quantized.dtype)

    def encode(self, quantized: Quantized) -> list[bytes]:
        """Return each client's message."""
        from fpdfp.compress import wire

        self.check_source(quantized)
        return wire.encode(self, quantized, self.pack_all(quantized))

    def decode(self, messages: Sequence[bytes], shape: Shape, dtype: Any, device: str = "cpu") -> Array:
        """Return the arrays of messages that this compressor made of arrays of this shape and dtype.

        Parameters
        ----------
        messages
            A message of each client.
        shape, dtype
            Of a client's array.
        device
            ``"cpu"``, or ``"cuda"`` for CuPy arrays.

        Raises
        ------
        MessageError
            If a message is truncated, damaged, or of another shape, dtype or compressor.
        """
        from fpdfp.compress import wire

        xp = on_device(device)
        shape, dtype = _checks.shape("shape", shape), wire.check_dtype(dtype)
        if isinstance(messages, bytes | bytearray | memoryview):
            raise TypeError("messages must be a list of messages, got one: give [message]")
        if not len(messages):
            return xp.empty((0, *shape), dtype=dtype)
        parts = self.unpack_all(wire.bodies_as(self, messages, shape, dtype), shape, dtype, device)
        if len(parts) > 1 and all(part.values is None and part.origin is None for part in parts):
            # Levels of all messages are turned into numbers at once.
            joined = {name: xp.concatenate([getattr(part, name) for part in parts]) for name in ("levels", "scales")}
            parts = [self.make(shape, dtype, **joined)]
        rows = len(messages) // len(parts)
        arrays = [wire.dequantize_finite(self, part).reshape(rows, *shape) for part in parts]
        return arrays[0] if len(arrays) == 1 else xp.concatenate(arrays)

    def make(self, shape: Shape, dtype: Any, **parts: Array | None) -> Quantized:
        """Return the contents of messages of this compressor."""
        return Quantized((self.wire_id, *self.parameters(shape)), shape, dtype, **parts)

    def check_source(self, quantized: Quantized) -> None:
        """Raise an error for contents that another compressor made."""
        if not isinstance(quantized, Quantized):
            raise TypeError(f"quantized must be what quantize() returned, got {type(quantized).__name__}")
        if quantized.source != (self.wire_id, *self.parameters(quantized.shape)):
            raise ValueError(f"quantized must come from {self!r}, but another compressor made it")

    def compress(self, arrays: Array, draws: Draws, purpose: int) -> Compressed:
        """Compress each client's array; return what the receiver decodes and the exact bits of the messages."""
        quantized = self.quantize(arrays, draws, purpose)
        return Compressed(self.dequantize(quantized), self.nbits(quantized))


@functools.lru_cache(maxsize=64)
def _sample_error(kind: type[Compressor], parameters: tuple[int, ...], shape: Shape) -> float:
    """Return the relative error of a sample; kept, since for volumes it takes a tenth of a second."""
    compressor = kind.from_parameters(parameters)
    rows = max(1, SAMPLE // math.prod(shape))
    arrays = np.random.default_rng(0).standard_normal((rows, *shape)).astype(np.float32)
    values = compressor.dequantize(compressor.quantize(arrays, Draws(0, 0, np.arange(rows)), 0))
    return float(np.square(values - arrays, dtype=np.float64).sum() / np.square(arrays, dtype=np.float64).sum())


def _rows(quantized: Quantized) -> int:
    for part in (quantized.levels, quantized.values):
        if part is not None:
            return len(part)
    raise TypeError("a quantized array holds levels, values or both")


def on_device(device: str) -> Any:
    """Return the array package of a device."""
    _checks.choice("device", device, ("cpu", "cuda"))
    if device == "cpu":
        return np
    try:
        import cupy
    except ImportError as error:
        raise ImportError("device 'cuda' needs CuPy: pip install cupy-cuda12x or cupy-cuda13x") from error
    return cupy


def to_sendable(arrays: Array) -> Array:
    """Return client arrays as they can be sent: contiguous, float32 or float64."""
    # The usual case, in which nothing has to be converted.
    if type(arrays) is np.ndarray and arrays.dtype in NATIVE and arrays.ndim and arrays.flags.c_contiguous:
        return arrays
    if type(arrays).__module__.split(".")[0] not in ("numpy", "cupy") or isinstance(arrays, np.ma.MaskedArray):
        raise TypeError(f"arrays must be a NumPy or CuPy array without a mask, got {type(arrays).__name__}")
    xp = namespace(arrays)
    if arrays.ndim < 1 or arrays.dtype.kind != "f" or arrays.dtype.itemsize not in (4, 8):
        raise TypeError(
            f"arrays must be float32 or float64 with a leading client axis, "
            f"got {arrays.dtype} of shape {tuple(arrays.shape)}"
        )
    if arrays.flags.c_contiguous and arrays.dtype.isnative:
        return arrays
    return xp.ascontiguousarray(arrays, dtype=arrays.dtype.newbyteorder("="))


def refuse_nonfinite(numbers: Array, limit: str = LIMIT) -> None:
    """Raise an error for numbers that are not finite."""
    # A finite sum of squares is sufficient and fast to compute.
    if type(numbers) is np.ndarray and math.isfinite(float(np.vdot(numbers, numbers))):
        return
    if not bool(namespace(numbers).isfinite(numbers).all()):
        raise nonfinite_error(limit)


def nonfinite_error(limit: str = LIMIT) -> FloatingPointError:
    """Return the error for numbers that are not finite."""
    return FloatingPointError(f"a message holds NaN, infinities{limit}")


def with_rounding(omega: float) -> float:
    """Return a bound of the variance that allows for scales rounded up, and values rounded, to float32.

    A scale is above its block's by a factor of up to 1 + 2⁻²³, a value off by up to 2⁻²⁴ of itself.
    """
    return (math.sqrt(omega) * (1 + 2.0**-22) + 2.0**-24 * math.sqrt(1 + omega)) ** 2


def size_of(shape: int | Shape) -> int:
    """Return the number of entries of a size or shape."""
    return math.prod(_checks.shape("shape", (shape,) if np.ndim(shape) == 0 else shape))


def damage_error(what: str) -> MessageError:
    """Return the error for a damaged message."""
    return MessageError(f"a message is damaged: {what}")


def frame_bits(compressor: Compressor, shape: Shape, dtype: Any) -> int:
    """Return the bits of a message's header and checksum."""
    return 8 * (len(header_of(compressor, tuple(shape), np.dtype(dtype))) + CHECKSUM_BYTES)


def header_of(compressor: Compressor, shape: Shape, dtype: np.dtype[Any]) -> bytes:
    """Return the header without the code."""
    return _header(compressor.wire_id, shape, compressor.parameters(shape), dtype)


@functools.lru_cache(maxsize=256)
def _header(wire_id: int, shape: Shape, parameters: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    if len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"arrays may have at most {MAX_DIMENSIONS} dimensions, got shape {shape}")
    if not 0 <= wire_id < WIRE_IDS:
        raise ValueError(f"wire_id must be from 0 to {WIRE_IDS - 1}, got {wire_id}: the header has five bits for it")
    head = bytes([VERSION, wire_id | DTYPES.index(dtype) << 5, len(shape) << 4])
    return MAGIC + head + b"".join(map(write_varint, (*shape, *parameters)))


def write_varint(number: int) -> bytes:
    """Write an integer in groups of seven bits, the lowest first; the top bit says that more follow."""
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def check_codec(codec: Any) -> str:
    """Return the name of a code."""
    return _checks.choice("codec", codec, tuple(CODES))


def count_bits(codec: str, levels: Array, scales: Array, block: int, lowest: int, highest: int) -> IntArray:
    """Return the exact bits of the levels of each row: blocks whose scale is zero have none."""
    if namespace(levels) is not np:
        return _cuda.count_bits(CODES[codec], levels, scales, block, lowest, highest)
    bits = np.empty(len(levels), dtype=np.int64)
    streams = _kernels.streams
    streams.count_bits(CODES[codec], levels, scales, block, lowest, highest, *streams.tables(), bits)
    return bits


def encode_rows(codec: str, levels: Array, scales: Array, block: int, lowest: int, highest: int) -> list[Parts]:
    """Write the levels of each row, all from ``lowest`` to ``highest``, in a code; ``"auto"`` takes the shortest."""
    if namespace(levels) is not np:
        return [
            _encode_on_gpu(codec, _cuda.live_levels(row, scale, block), lowest, highest)
            for row, scale in zip(levels, scales, strict=True)
        ]
    codes, starts, ends = np.empty((3, len(levels)), dtype=np.int64)
    streams = _kernels.streams
    data = streams.encode_rows(
        CODES[codec], levels, scales, block, lowest, highest, *streams.tables(), codes, starts, ends
    ).data  # fmt: skip
    rows = zip(codes.tolist(), starts.tolist(), ends.tolist(), strict=True)
    return [Parts(code, [data[start:end]] if end > start else []) for code, start, end in rows]


def encode_row(codec: str, levels: Array, lowest: int, highest: int) -> Parts:
    """Do the same for one row that is sent whole."""
    scales = namespace(levels).ones((1, 1), dtype=np.float32)
    return encode_rows(codec, levels[None], scales, max(1, levels.size), lowest, highest)[0]


def _encode_on_gpu(codec: str, levels: Array, lowest: int, highest: int) -> Parts:
    if codec != "fixed" or levels.size == 0:
        return encode_row(codec, to_host(levels), lowest, highest)
    width = (highest - lowest).bit_length()
    words = to_host(_cuda.pack_fixed(levels, lowest, width)).astype("<u4", copy=False)
    return Parts(CODES[codec], [words.view(np.uint8).data[: -(-levels.size * width // 8)]])


def decode_levels(body: Body, count: int, lowest: int, highest: int, device: str = "cpu") -> Array:
    """Read ``count`` levels, all from ``lowest`` to ``highest``; on the GPU, if they are wanted there."""
    if count == 0:
        if body.code != NO_CODE or body.data:
            raise damage_error("it has levels where none are due")
        return on_device(device).empty(0, dtype=np.int32)
    if body.code in FORMER:
        raise MessageError(
            f"a message has code {body.code} ({FORMER[body.code]}), which this version no longer reads; "
            "the codes are 'fixed', 'omega', 'rans' and 'adaptive'"
        )
    if body.code not in CODES.values() or body.code == CODES["auto"]:
        raise damage_error(f"code {body.code} is unknown")
    if device != "cpu" and body.code == CODES["fixed"]:
        return _decode_on_gpu(body.data, count, lowest, highest)
    streams, levels = _kernels.streams, np.empty(count, dtype=np.int32)
    data = np.frombuffer(body.data, dtype=np.uint8)
    fault = streams.decode_stream(body.code, data, lowest, highest, streams.tables().logs, levels)
    if fault:
        raise damage_error(streams.FAULTS[fault])
    return on_device(device).asarray(levels)


def _decode_on_gpu(data: bytes, count: int, lowest: int, highest: int) -> Array:
    """Read levels in a fixed number of bits."""
    import cupy

    width = (highest - lowest).bit_length()
    bits = count * width
    if len(data) < -(-bits // 8):
        raise damage_error("its levels are cut off or out of range")
    if len(data) > -(-bits // 8) or (bits % 8 and data[-1] >> bits % 8):
        raise damage_error("there is something after its levels")
    words = np.zeros(len(data) // 4 + 3, dtype="<u4")
    words.view(np.uint8)[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    levels = cupy.empty(count, dtype=np.int32)
    if not _cuda.unpack_fixed(cupy.asarray(words.astype(np.uint32)), count, lowest, highest, width, levels):
        raise damage_error("its levels are cut off or out of range")
    return levels


def decode_rows(bodies: Sequence[Body], size: int, block: int, lowest: int, highest: int) -> tuple[Array, Array] | None:
    """Read the levels and scales of several short messages at once; None where it has to be one after the other.

    That is also where one is damaged: to read it by itself describes how.
    """
    if len(bodies) < 2 or not 0 < size <= SHORT:
        return None
    data = np.frombuffer(b"".join([body.data for body in bodies]), dtype=np.uint8)
    codes = np.array([body.code for body in bodies])
    ends = np.cumsum([len(body.data) for body in bodies])
    levels = np.empty((len(bodies), size), dtype=np.int32)
    scales = np.empty((len(bodies), -(-size // block)), dtype=np.uint32)
    streams = _kernels.streams
    if not streams.decode_rows(data, ends, codes, block, lowest, highest, streams.tables().logs, levels, scales):
        return None
    return levels, scales.view(np.float32)
