"""Compressors without scales: they send numbers unchanged, in 16 bits, or a few of them exactly."""

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
from fpdfp.compress.base import (
    NO_CODE,
    Body,
    Compressed,
    Compressor,
    Parts,
    Quantized,
    check_codec,
    count_bits,
    damage_error,
    decode_levels,
    encode_row,
    frame_bits,
    on_device,
    refuse_nonfinite,
    size_of,
    to_sendable,
    with_rounding,
    write_varint,
)
from fpdfp.compress.wire import read_varint
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.rng import Draws, check_draws

#: Zeros are excluded of this many numbers or more, if at most one in this many is not zero.
LEAST_SPARSE, SPARSE = 64, 8
#: Places of this many numbers are written in the Elias omega code, those of more by rANS, which describes its model.
FEW = 32
#: The code of positions that the receiver draws again: 20 bytes, the key and counter they come from.
ORIGIN = 7
ORIGIN_BYTES = 20


class ValueCompressor(Compressor):
    """The part that compressors without levels share."""

    def item(self, dtype: Any) -> np.dtype[Any]:
        """Return the type of the numbers that are sent."""
        return np.dtype(dtype)

    def body_bits(self, quantized: Quantized) -> IntArray:
        values = values_of(quantized)
        return np.full(len(values), 8 * self.item(quantized.dtype).itemsize * values.shape[1], dtype=np.int64)

    def pack(self, quantized: Quantized, row: int) -> Parts:
        return Parts(NO_CODE, [to_little_endian(values_of(quantized)[row])])

    def unpack(self, body: Body, shape: Shape, dtype: Any, device: str = "cpu") -> Quantized:
        item = self.item(dtype)
        if body.code != NO_CODE or len(body.data) != item.itemsize * math.prod(shape):
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
        rows, shape = _rows(arrays)
        refuse_nonfinite(rows, "")
        return self.make(shape, rows.dtype, values=rows)

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
        if body.code == NO_CODE:
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
    """Whether each of ``count`` rows certainly has too few zeros to be worth a list of them."""
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
            places = count_bits(codec, _places(rows[few]), ones, size, 0, 1)
            bits[few] = lengths + item * counts[few] + places
    return bits


def pack_numbers(numbers: Array) -> Parts:
    """Write a row of numbers: all of them; or how many are not zero, these, and a row of ones at their places."""
    if numbers.size >= LEAST_SPARSE:
        places = _places(numbers)
        count = int(places.sum())
        if SPARSE * count <= numbers.size:
            code, pieces = encode_row("omega" if count <= FEW else "rans", places, 0, 1)
            return Parts(code, [write_varint(count), to_little_endian(numbers[places.astype(bool)]), *pieces])
    return Parts(NO_CODE, [to_little_endian(numbers)])


def unpack_numbers(body: Body, size: int, item: np.dtype[Any]) -> Array:
    """Read the numbers of a row of which few are not zero."""
    count, start = read_varint(body.data, 0, len(body.data))
    end = start + count * item.itemsize
    if size < LEAST_SPARSE or SPARSE * count > size or end > len(body.data):
        raise damage_error("its number of places is wrong")
    places = decode_levels(Body(body.code, body.data[end:]), size, 0, 1)
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
    >>> from fpdfp.rng import Draws
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
        rows, shape = _rows(arrays)
        draws = check_draws(draws, purpose, len(rows))
        xp = namespace(rows)
        codes = xp.empty(rows.shape, dtype=np.uint16)
        good = xp.empty(len(rows), dtype=np.bool_)
        k0, k1 = draws.key
        half = _kernels.quantize.half if xp is np else _cuda.half
        half(
            self.random, *FORMATS[self.format], rows, k0, k1, draws.tag(purpose), draws.clients, draws.round, codes,
            good,
        )  # fmt: skip
        if not bool(good.all()):
            hint = "; bfloat16 has that of float32" if self.format == "float16" else ""
            raise FloatingPointError(
                f"a message holds NaN, infinities or values beyond the range of {self.format}{hint}"
            )
        return self.make(shape, rows.dtype, values=codes)

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


class SubsetCompressor(Compressor):
    """The part that random-k and top-k share: which entries they choose is all that differs."""

    k: int | float
    codec: str

    n_parameters: ClassVar[int] = 1

    def count(self, size: int) -> int:
        """Return how many of ``size`` entries are sent."""
        if isinstance(self.k, float):  # rounded, since 0.07 · 100 is a little above 7
            return min(size, max(1, math.ceil(round(self.k * size, 9))))
        return min(size, self.k)

    def body_bits(self, quantized: Quantized) -> IntArray:
        values = values_of(quantized)
        return 8 * quantized.dtype.itemsize * values.shape[1] + self.position_bits(quantized)

    def position_bits(self, quantized: Quantized) -> IntArray:
        """Return the exact bits of the positions: a row of zeros and ones."""
        mask = _mask_of(quantized)
        scales = namespace(mask).ones((len(mask), 1), dtype=np.float32)
        return count_bits(self.codec, mask, scales, max(1, mask.shape[1]), 0, 1)

    def pack(self, quantized: Quantized, row: int) -> Parts:
        code, positions = encode_row(self.codec, _mask_of(quantized)[row], 0, 1)
        return Parts(code, [to_little_endian(values_of(quantized)[row]), *positions])

    def unpack(self, body: Body, shape: Shape, dtype: Any, device: str = "cpu") -> Quantized:
        size = math.prod(shape)
        k, item = self.count(size), np.dtype(dtype)
        end = k * item.itemsize
        if len(body.data) < end:
            raise damage_error("it is cut off")
        values = np.frombuffer(body.data, dtype=item.newbyteorder("<"), count=k).astype(item, copy=False)
        mask = self.read_positions(Body(body.code, body.data[end:]), size)
        if np.count_nonzero(mask) != k:
            raise damage_error("its number of positions is wrong")
        xp = on_device(device)
        return self.make(shape, dtype, levels=xp.asarray(mask)[None], values=xp.asarray(values)[None])

    def read_positions(self, body: Body, size: int) -> Array:
        """Read the row of zeros and ones."""
        return decode_levels(body, size, 0, 1)

    def dequantize(self, quantized: Quantized) -> Array:
        self.check_source(quantized)
        mask, values = _mask_of(quantized), values_of(quantized)
        out = namespace(mask).zeros(mask.shape, dtype=quantized.dtype)
        out[mask.astype(bool)] = values.ravel()
        return out.reshape(len(mask), *quantized.shape)

    def parameters(self, shape: Shape) -> tuple[int, ...]:
        return (self.count(math.prod(shape)),)

    def _check(self) -> None:
        accepted = "an integer of at least 1 or a share above 0 and below 1"
        if isinstance(self.k, float | np.floating):
            object.__setattr__(self, "k", float(self.k))
            if not 0 < self.k < 1:
                raise ArgumentError("k", f"must be {accepted}, got {self.k}")
        elif isinstance(self.k, bool) or not hasattr(self.k, "__index__"):
            raise ArgumentTypeError("k", f"must be {accepted}, got {self.k!r}")
        else:
            object.__setattr__(self, "k", _checks.integer("k", self.k, at_least=1))
        check_codec(self.codec)


@dataclasses.dataclass(frozen=True)
class TopK(SubsetCompressor):
    """The k entries of largest size, exactly, and zeros for the others: **biased**.

    Methods whose theory needs unbiased messages raise an error. Of entries of equal size the first ones are sent.

    Parameters
    ----------
    k
        How many entries are sent: an integer, or a share of them as a float below 1.
    codec
        How their positions are written: as for :class:`QSGD`, of a row of zeros and ones.

    References
    ----------
    S. U. Stich, J.-B. Cordonnier and M. Jaggi, "Sparsified SGD with memory", NeurIPS 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from fpdfp.rng import Draws
    >>> TopK(2).compress(np.array([[3.0, -4.0, 0.5]]), Draws(0, 0, np.array([0])), 16).values
    array([[ 3., -4.,  0.]])
    >>> TopK(2).unbiased
    False
    """

    k: int | float
    codec: str = "auto"

    wire_id: ClassVar[int] = 7

    def __post_init__(self) -> None:
        self._check()

    @property
    def unbiased(self) -> bool:
        return False

    def omega(self, shape: int | Shape) -> float:
        """Return 1 − k/d, since the smallest entries are omitted."""
        size = size_of(shape)
        return 1.0 - self.count(size) / size if size else 0.0

    def quantize(self, arrays: Array, draws: Draws, purpose: int) -> Quantized:
        rows, shape = _rows(arrays)
        refuse_nonfinite(rows, "")
        # Numbers without their signs have the order of their bits.
        keys = rows.view(f"u{rows.dtype.itemsize}") & ((1 << 8 * rows.dtype.itemsize - 1) - 1)
        k = self.count(rows.shape[1])
        mask = choose_largest(keys, k)
        values = rows[mask.astype(bool)].reshape(len(rows), k)
        return self.make(shape, rows.dtype, levels=mask, values=values)

    @classmethod
    def from_parameters(cls, parameters: Sequence[int]) -> TopK:
        return cls(max(1, parameters[0]))  # 0 for an empty array


@dataclasses.dataclass(frozen=True)
class RandK(SubsetCompressor):
    """A random k of the d entries, multiplied by d/k, and zeros for the others: unbiased.

    The entries are those with the k smallest of d drawn words. The receiver can draw them again, so the positions take
    at most 20 bytes. These bytes contain the seed of the run; use another ``codec`` if a reader of the messages must
    not know it.

    Parameters
    ----------
    k
        How many entries are sent: an integer, or a share of them as a float below 1.
    codec
        How their positions are written: as for :class:`QSGD`, of a row of zeros and ones; or ``"auto"``: the
        shortest of those, or 20 bytes to draw them again.

    References
    ----------
    J. Konečný and P. Richtárik, "Randomized distributed mean estimation: accuracy vs. communication", Frontiers in
    Applied Mathematics and Statistics 4 (2018).

    Examples
    --------
    >>> import numpy as np
    >>> from fpdfp.rng import Draws
    >>> RandK(2).compress(np.array([[3.0, -4.0, 0.5]]), Draws(0, 0, np.array([0])), 16).values
    array([[ 0.  , -6.  ,  0.75]])
    """

    k: int | float
    codec: str = "auto"

    wire_id: ClassVar[int] = 6

    def __post_init__(self) -> None:
        self._check()

    def omega(self, shape: int | Shape) -> float:
        """Return d/k − 1, with an allowance for rounding to the precision of the message."""
        size = size_of(shape)
        return with_rounding(size / self.count(size) - 1.0) if size else 0.0

    def quantize(self, arrays: Array, draws: Draws, purpose: int) -> Quantized:
        rows, shape = _rows(arrays)
        draws = check_draws(draws, purpose, len(rows))
        refuse_nonfinite(rows, "")
        n, d = rows.shape
        k = self.count(d)
        k0, k1 = draws.key
        origin = np.empty((n, 5), dtype=np.uint32)
        origin[:] = k0, k1, draws.tag(purpose), 0, draws.round
        origin[:, 3] = draws.clients
        mask = _draw_positions(origin, d, k, namespace(rows))
        with np.errstate(over="ignore"):
            values = multiply(rows[mask.astype(bool)].reshape(n, k), d / max(k, 1), rows.dtype)
        refuse_nonfinite(values)
        return self.make(shape, rows.dtype, levels=mask, values=values, origin=origin)

    def position_bits(self, quantized: Quantized) -> IntArray:
        bits = super().position_bits(quantized)
        known = quantized.origin is not None
        return np.minimum(bits, 8 * ORIGIN_BYTES) if self.codec == "auto" and known else bits

    def pack(self, quantized: Quantized, row: int) -> Parts:
        if self.codec == "auto" and quantized.origin is not None:
            one = dataclasses.replace(quantized, levels=_mask_of(quantized)[row : row + 1])
            if super().position_bits(one)[0] > 8 * ORIGIN_BYTES:
                origin = to_little_endian(quantized.origin[row])
                return Parts(ORIGIN, [to_little_endian(values_of(quantized)[row]), origin])
        return super().pack(quantized, row)

    def read_positions(self, body: Body, size: int) -> Array:
        if body.code != ORIGIN:
            return super().read_positions(body, size)
        if len(body.data) != ORIGIN_BYTES:
            raise damage_error("its positions are cut off")
        origin = np.frombuffer(body.data, dtype="<u4").astype(np.uint32)
        mask: Array = _draw_positions(origin[None], size, self.count(size), np)[0]
        return mask

    @classmethod
    def from_parameters(cls, parameters: Sequence[int]) -> RandK:
        return cls(max(1, parameters[0]))  # 0 for an empty array


def choose_largest(keys: Array, k: int) -> Array:
    """Return 1 for the k largest keys of each row, of equal ones the first, and 0 for the others."""
    xp = namespace(keys)
    chosen = xp.zeros(keys.shape, dtype=np.int32)
    if k == 0:
        return chosen
    if xp is np:
        _kernels.quantize.select_largest(keys, 8 * keys.dtype.itemsize, k, chosen)
        return chosen
    for row, target in zip(keys, chosen, strict=True):
        least = xp.partition(row, row.size - k)[row.size - k]
        ties = row == least
        missing = k - (row > least).sum()
        target[:] = (row > least) | (ties & (xp.cumsum(ties) <= missing))
    return chosen


def _draw_positions(origin: Array, size: int, k: int, xp: Any) -> Array:
    """Return 1 for the k entries whose words are smallest, and 0 for the others."""
    words = xp.empty((len(origin), size), dtype=np.uint32)
    fill = _kernels.philox.fill_words if xp is np else _cuda.fill_words
    for row, (k0, k1, tag, client, round_) in enumerate(origin.tolist()):
        fill(k0, k1, tag, np.array([client]), round_, words[row : row + 1])
    return choose_largest(~words, k)


def _rows(arrays: Array) -> tuple[Array, Shape]:
    arrays = to_sendable(arrays)
    shape = tuple(arrays.shape[1:])
    return arrays.reshape(len(arrays), math.prod(shape)), shape


def _mask_of(quantized: Quantized) -> Array:
    if quantized.levels is None:
        raise TypeError("quantized must come from a compressor that sends positions")
    return quantized.levels


def payload(tree: Any) -> int:
    """Return the bits of the arrays and bytes in a tree or a dataclass, without what is around them.

    >>> import numpy as np
    >>> payload({"round": 3, "x": np.arange(3.0), "frames": [b"abc"]})
    216
    """
    if dataclasses.is_dataclass(tree):
        tree = vars(tree)
    if isinstance(tree, dict | list | tuple):
        return sum(map(payload, tree.values() if isinstance(tree, dict) else tree))
    if isinstance(tree, np.ndarray) and tree.dtype.kind == "f":
        return int(number_bits(np.ascontiguousarray(tree).reshape(1, -1))[0])
    return 8 * (len(tree) if isinstance(tree, bytes) else int(getattr(tree, "nbytes", 0)))
