"""Compressors that send a few entries exactly and omit the others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from fpdfp import _checks, _cuda, _kernels
from fpdfp._array import namespace
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.compress import codecs
from fpdfp.compress.base import (
    Body,
    Compressor,
    Parts,
    Quantized,
    damage_error,
    on_device,
    refuse_nonfinite,
    size_of,
    to_sendable,
    with_rounding,
)
from fpdfp.compress.plain import multiply, to_little_endian, values_of
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.rng import Draws, check_draws

#: The code of positions that the receiver draws again: 20 bytes, the key and counter they come from.
ORIGIN = 7
ORIGIN_BYTES = 20


class SubsetCompressor(Compressor):
    """What random-k and top-k share: which entries they choose is all that differs."""

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
        return codecs.count(self.codec, mask, scales, max(1, mask.shape[1]), 0, 1)

    def pack(self, quantized: Quantized, row: int) -> Parts:
        code, positions = codecs.encode(self.codec, _mask_of(quantized)[row], 0, 1)
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
        return codecs.decode(body, size, 0, 1)

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
        codecs.check(self.codec)


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
    >>> from fpdfp.rng import Draws, check_draws
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
    >>> from fpdfp.rng import Draws, check_draws
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
        _kernels.select.select(keys, 8 * keys.dtype.itemsize, k, chosen)
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
    for row, (k0, k1, tag, client, round_) in enumerate(origin.tolist()):
        _fill_words(xp)(k0, k1, tag, np.array([client]), round_, words[row : row + 1])
    return choose_largest(~words, k)


def _fill_words(xp: Any) -> Any:
    if xp is np:
        return _kernels.philox.fill_words
    return _cuda.fill_words


def _rows(arrays: Array) -> tuple[Array, Shape]:
    arrays = to_sendable(arrays)
    shape = tuple(arrays.shape[1:])
    return arrays.reshape(len(arrays), math.prod(shape)), shape


def _mask_of(quantized: Quantized) -> Array:
    if quantized.levels is None:
        raise TypeError("quantized must come from a compressor that sends positions")
    return quantized.levels
