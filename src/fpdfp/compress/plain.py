"""Compressors that send numbers unchanged, or in 16 bits."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fpdfp import _checks, _cuda, _kernels
from fpdfp._array import namespace, to_host
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.compress import codecs
from fpdfp.compress.base import (
    Body,
    Compressed,
    Compressor,
    Parts,
    Quantized,
    damage_error,
    frame_bits,
    on_device,
    refuse_nonfinite,
    to_sendable,
    write_varint,
)
from fpdfp.compress.wire import read_varint
from fpdfp.errors import ArgumentTypeError
from fpdfp.rng import Draws, check_draws

#: Zeros are left out of so many numbers or more, if at most one in so many is not zero.
LEAST_SPARSE, SPARSE = 64, 8
#: Places of so many numbers are written in the Elias omega code, those of more by rANS, which describes its model.
FEW = 32


class ValueCompressor(Compressor):
    """What compressors without levels share."""

    def item(self, dtype: Any) -> np.dtype[Any]:
        """Return the type of the numbers that are sent."""
        return np.dtype(dtype)

    def body_bits(self, quantized: Quantized) -> IntArray:
        values = values_of(quantized)
        return np.full(len(values), 8 * self.item(quantized.dtype).itemsize * values.shape[1], dtype=np.int64)

    def pack(self, quantized: Quantized, row: int) -> Parts:
        return Parts(codecs.NO_CODE, [to_little_endian(values_of(quantized)[row])])

    def unpack(self, body: Body, shape: Shape, dtype: Any, device: str = "cpu") -> Quantized:
        item = self.item(dtype)
        if body.code != codecs.NO_CODE or len(body.data) != item.itemsize * math.prod(shape):
            raise damage_error("its length does not fit its shape")
        values = np.frombuffer(body.data, dtype=item.newbyteorder("<")).astype(item)
        return self.make(shape, dtype, values=on_device(device).asarray(values)[None])


@dataclasses.dataclass(frozen=True)
class Full(ValueCompressor):
    """Messages at full precision: every number unchanged.

    Where at most an eighth of 64 or more numbers is not zero, only those are sent, with their places.

    >>> import numpy as np
    >>> Full().compress(np.zeros((2, 10)), None, 0).bits  # 6 bytes of header, 80 of numbers, 4 of checksum
    array([720, 720])
    >>> Full().compress(np.eye(1, 100), None, 0).bits
    array([159])
    """

    wire_id: ClassVar[int] = 0
    n_parameters: ClassVar[int] = 0

    def omega(self, shape: int | Shape) -> float:
        return 0.0

    def quantize(self, arrays: Array, draws: Draws | None, purpose: int) -> Quantized:
        arrays = to_sendable(arrays)
        refuse_nonfinite(arrays, "")
        rows = arrays.reshape(len(arrays), math.prod(arrays.shape[1:]))
        return self.make(tuple(arrays.shape[1:]), arrays.dtype, values=rows)

    def dequantize(self, quantized: Quantized) -> Array:
        self.check_source(quantized)
        values = values_of(quantized)
        return values.reshape(len(values), *quantized.shape)

    def compress(self, arrays: Array, draws: Draws | None, purpose: int) -> Compressed:
        arrays = to_sendable(arrays)
        refuse_nonfinite(arrays, "")
        return Compressed(arrays, exact_bits(arrays))

    def body_bits(self, quantized: Quantized) -> IntArray:
        return number_bits(values_of(quantized))

    def pack(self, quantized: Quantized, row: int) -> Parts:
        return pack_numbers(values_of(quantized)[row])

    def unpack(self, body: Body, shape: Shape, dtype: Any, device: str = "cpu") -> Quantized:
        if body.code == codecs.NO_CODE:
            return super().unpack(body, shape, dtype, device)
        values = unpack_numbers(body, math.prod(shape), np.dtype(dtype))
        return self.make(shape, dtype, values=on_device(device).asarray(values)[None])

    def parameters(self, shape: Shape) -> tuple[int, ...]:
        return ()

    @classmethod
    def from_parameters(cls, parameters: Sequence[int]) -> Full:
        return cls()


@functools.lru_cache(maxsize=256)
def plain_bits(shape: Shape, dtype: np.dtype[Any]) -> int:
    """Return the bits of an array at full precision with few zeros, with header and checksum."""
    # bytes and integers are framed as numbers are
    framed = dtype if dtype.kind == "f" else np.dtype(np.float32)
    return 8 * dtype.itemsize * math.prod(shape) + frame_bits(Full(), shape, framed)


def has_few_zeros(rows: Array, count: int = 1) -> bool:
    """Whether it is certain that each of ``count`` rows has so few zeros that it is sent with them."""
    size = rows.size // (count or 1)
    return size < LEAST_SPARSE or int(namespace(rows).count_nonzero(rows)) > (count - 1) * size + size // SPARSE


def exact_bits(arrays: Array) -> IntArray:
    """Return the bits of each client's array at full precision, with header and checksum."""
    shape = arrays.shape[1:]
    size = math.prod(shape)
    frame = plain_bits(shape, arrays.dtype) - 8 * arrays.dtype.itemsize * size
    return number_bits(arrays.reshape(len(arrays), size)) + frame


def number_bits(rows: Array) -> IntArray:
    """Return the bits of each row of numbers: of all of them, or of those that are not zero and their places."""
    item, size = 8 * rows.dtype.itemsize, rows.shape[1]
    bits: IntArray = np.empty(len(rows), dtype=np.int64)
    bits.fill(item * size)
    # Most messages have few zeros: only where all rows together have enough can one of them leave them out.
    if has_few_zeros(rows, len(rows)):
        return bits
    counts = to_host((_patterns(rows) != 0).sum(axis=1))
    sparse = SPARSE * counts <= size
    for codec, chosen in (("omega", counts <= FEW), ("rans", counts > FEW)):
        few = np.flatnonzero(sparse & chosen)
        if few.size:
            ones = namespace(rows).ones((len(few), 1), dtype=np.float32)
            lengths = np.array([8 * len(write_varint(count)) for count in counts[few].tolist()])
            places = codecs.count(codec, _places(rows[few]), ones, size, 0, 1)
            bits[few] = lengths + item * counts[few] + places
    return bits


def pack_numbers(numbers: Array) -> Parts:
    """Write a row of numbers: all of them; or how many are not zero, these, and a row of ones at their places."""
    if numbers.size >= LEAST_SPARSE:
        places = _places(numbers)
        count = int(places.sum())
        if SPARSE * count <= numbers.size:
            code, pieces = codecs.encode("omega" if count <= FEW else "rans", places, 0, 1)
            return Parts(code, [write_varint(count), to_little_endian(numbers[places.astype(bool)]), *pieces])
    return Parts(codecs.NO_CODE, [to_little_endian(numbers)])


def unpack_numbers(body: Body, size: int, item: np.dtype[Any]) -> Array:
    """Read the numbers of a row of which few are not zero."""
    count, start = read_varint(body.data, 0, len(body.data))
    end = start + count * item.itemsize
    if size < LEAST_SPARSE or SPARSE * count > size or end > len(body.data):
        raise damage_error("its number of places is wrong")
    places = codecs.decode(Body(body.code, body.data[end:]), size, 0, 1)
    if np.count_nonzero(places) != count:
        raise damage_error("its number of places is wrong")
    numbers = np.zeros(size, dtype=item)
    numbers[places.astype(bool)] = np.frombuffer(body.data[start:end], dtype=item.newbyteorder("<"))
    return numbers


def _patterns(numbers: Array) -> Array:
    """Return numbers as the integers of their bits: a zero with a sign is sent."""
    return numbers.view(f"u{numbers.dtype.itemsize}")


def _places(numbers: Array) -> Array:
    return (_patterns(numbers) != 0).astype(np.int32)


class _Format(NamedTuple):
    """A 16-bit format: digits after the first, smallest exponent, and the bits of infinity."""

    digits: int
    lowest: int
    infinity: int


FORMATS = {"float16": _Format(10, -14, 0x7C00), "bfloat16": _Format(7, -126, 0x7F80)}


@dataclasses.dataclass(frozen=True)
class Half(ValueCompressor):
    """Numbers in 16 bits: rounded at random, unbiased; or to the nearest, biased.

    float16 has ten digits after the first and a range up to 65,504; bfloat16 seven, and the range of float32.
    Numbers out of range raise an error.

    Parameters
    ----------
    format
        ``"float16"`` or ``"bfloat16"``.
    random
        Whether to round to one of the two neighbours at random such that the mean is kept (the default), or to the
        nearest, with ties to even.

    Examples
    --------
    >>> import numpy as np
    >>> from fpdfp.rng import Draws, check_draws
    >>> Half("bfloat16", random=False).compress(np.array([[np.pi]]), Draws(0, 0, np.array([0])), 16).values
    array([[3.140625]])
    """

    format: str
    random: bool = True

    wire_id: ClassVar[int] = 5
    n_parameters: ClassVar[int] = 2

    def __post_init__(self) -> None:
        _checks.choice("format", self.format, tuple(FORMATS))
        if not isinstance(self.random, bool):
            raise ArgumentTypeError("random", f"must be True or False, got {self.random!r}")

    @property
    def unbiased(self) -> bool:
        return self.random

    def omega(self, shape: int | Shape) -> float:
        """Return ω with E‖Q(x) − x‖² ≤ ω‖x‖², for entries in the range of the format's normal numbers.

        With p digits after the first, neighbours are at most 2⁻ᵖ|x_i| apart: the variance is at most a quarter of
        the square of that, and so is the error of rounding to the nearest.
        """
        return 2.0 ** (-2 * FORMATS[self.format].digits - 2)

    def item(self, dtype: Any) -> np.dtype[Any]:
        return np.dtype(np.uint16)

    def quantize(self, arrays: Array, draws: Draws, purpose: int) -> Quantized:
        arrays = to_sendable(arrays)
        draws = check_draws(draws, purpose, len(arrays))
        rows = arrays.reshape(len(arrays), math.prod(arrays.shape[1:]))
        xp = namespace(arrays)
        codes = xp.empty(rows.shape, dtype=np.uint16)
        good = xp.empty(len(rows), dtype=np.bool_)
        k0, k1 = draws.key
        half = _half_kernel(arrays)
        half(
            self.random, *FORMATS[self.format], rows, k0, k1, draws.tag(purpose), draws.clients, draws.round, codes,
            good,
        )  # fmt: skip
        if not bool(good.all()):
            hint = "; bfloat16 has that of float32" if self.format == "float16" else ""
            raise FloatingPointError(
                f"a message holds NaN, infinities or values beyond the range of {self.format}{hint}"
            )
        return self.make(tuple(arrays.shape[1:]), arrays.dtype, values=codes)

    def unpack(self, body: Body, shape: Shape, dtype: Any, device: str = "cpu") -> Quantized:
        quantized = super().unpack(body, shape, dtype, device)
        infinity = FORMATS[self.format].infinity
        if bool(((values_of(quantized) & infinity) == infinity).any()):
            raise damage_error("a number is not finite")
        return quantized

    def dequantize(self, quantized: Quantized) -> Array:
        self.check_source(quantized)
        codes = values_of(quantized)
        if self.format == "float16":
            numbers = codes.view(np.float16)
        else:
            numbers = (codes.astype(np.uint32) << 16).view(np.float32)
        numbers = multiply(numbers.astype(np.float32, copy=False), 1.0, quantized.dtype)
        return numbers.reshape(len(codes), *quantized.shape)

    def parameters(self, shape: Shape) -> tuple[int, ...]:
        return list(FORMATS).index(self.format), int(self.random)

    @classmethod
    def from_parameters(cls, parameters: Sequence[int]) -> Half:
        number, random = parameters
        return cls(list(FORMATS)[number], bool(_checks.integer("random", random, at_least=0, at_most=1)))


def values_of(quantized: Quantized) -> Array:
    """Return the numbers that a message sends unchanged."""
    if quantized.values is None:
        raise TypeError("quantized must come from a compressor that sends values")
    return quantized.values


def multiply(values: Array, factor: float, dtype: Any) -> Array:
    """Return values times a factor, computed in float64."""
    if namespace(values) is np:
        return (values.astype(np.float64) * factor).astype(dtype)
    return _cuda.multiply(values, factor, dtype)


def to_little_endian(values: Array) -> bytes:
    """Return an array's bytes, in the order that messages have."""
    host = to_host(values)
    return host.astype(host.dtype.newbyteorder("<"), copy=False).tobytes()


def _half_kernel(array: Array) -> Any:
    if namespace(array) is np:
        return _kernels.half.half
    return _cuda.half
