"""Quantizers: a small integer for every entry and a scale for every block."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from fpdfp import _checks, _cuda, _kernels
from fpdfp._array import namespace, to_host
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.compress.base import (
    CODES,
    SHORT,
    Body,
    Compressed,
    Compressor,
    Parts,
    Quantized,
    check_codec,
    count_bits,
    damage_error,
    decode_levels,
    decode_rows,
    encode_rows,
    frame_bits,
    nonfinite_error,
    refuse_nonfinite,
    size_of,
    to_sendable,
    with_rounding,
)
from fpdfp.errors import ArgumentTypeError
from fpdfp.rng import Draws, check_draws

#: Arrays with at most this many entries in all are compressed in one call, by one thread.
SMALL = 1 << 16
#: The default bucket, as in the experiments of the QSGD paper.
BUCKET = 512
#: So that twice it can be sent.
LARGEST = 2**61

BlockSpec = int | tuple[int, ...] | None


def check_block(block: Any) -> BlockSpec:
    """Return a block specification in plain integers."""
    if block is None:
        return None
    if isinstance(block, bool) or not (isinstance(block, tuple | list) or hasattr(block, "__index__")):
        raise ArgumentTypeError("block", f"must be an integer of at least 1, a tuple of axes or None, got {block!r}")
    if isinstance(block, tuple | list):
        axes = tuple(_checks.integer("block: an axis", axis, at_least=0, at_most=14) for axis in block)
        if len(set(axes)) != len(axes) or not axes:
            raise ValueError(f"block: axes must be different and at least one, got {axes}")
        return tuple(sorted(axes))
    return _checks.integer("block", block, at_least=1, at_most=LARGEST)


def block_length(block: BlockSpec, shape: int | Shape) -> int:
    """Return how many entries share a scale in arrays of a size or shape."""
    if isinstance(block, tuple):
        if np.ndim(shape) == 0:
            raise TypeError("shape: give the shape of the array, not its size, where blocks are slices along axes")
        return length_in(block, _checks.shape("shape", shape))
    return length_in(block, (size_of(shape),))


def length_in(block: BlockSpec, shape: Shape) -> int:
    """Return the same for the shape of an array."""
    if isinstance(block, tuple):
        check_axes(block, shape)
        return max(1, math.prod(n for axis, n in enumerate(shape) if axis not in block))
    size = math.prod(shape)
    return max(1, size if block is None else min(block, size))


def check_axes(block: tuple[int, ...], shape: Shape) -> None:
    """Raise an error for axes that an array does not have."""
    if block[-1] >= len(shape):
        raise ValueError(f"block: axis {block[-1]} does not exist in an array of shape {shape}")


def lay_out(block: BlockSpec, arrays: Array) -> Array:
    """Return arrays as rows, the entries of a block next to each other."""
    if arrays.ndim == 2 and not isinstance(block, tuple):
        return arrays
    shape = tuple(arrays.shape[1:])
    if isinstance(block, tuple):
        check_axes(block, shape)
        order = _order(block, shape)
        if order != list(range(len(shape))):
            arrays = arrays.transpose(0, *(axis + 1 for axis in order))
    return arrays.reshape(len(arrays), math.prod(shape))


def put_back(block: BlockSpec, rows: Array, shape: Shape) -> Array:
    """Undo :func:`lay_out`."""
    if len(shape) == 1 and not isinstance(block, tuple):
        return rows
    order = _order(block, shape) if isinstance(block, tuple) else []
    if order == list(range(len(order))):
        return rows.reshape(len(rows), *shape)
    arrays = rows.reshape(len(rows), *(shape[axis] for axis in order))
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return namespace(rows).ascontiguousarray(arrays.transpose(0, *(axis + 1 for axis in inverse)))


def _order(block: tuple[int, ...], shape: Shape) -> list[int]:
    return [*block, *(axis for axis in range(len(shape)) if axis not in block)]


def to_parameter(block: BlockSpec, shape: Shape) -> int:
    """Write a specification as an integer: 0, twice the bucket, or twice the set of axes plus one."""
    if block is None:
        return 0
    if isinstance(block, tuple):
        check_axes(block, shape)
        return 2 * sum(1 << axis for axis in block) + 1
    return 2 * block


def from_parameter(number: int) -> BlockSpec:
    """Undo :func:`to_parameter`."""
    if number == 0:
        return None
    half = number // 2
    return check_block(tuple(axis for axis in range(half.bit_length()) if half >> axis & 1) if number % 2 else half)


class _Plan(NamedTuple):
    """Constants for compressing arrays of one shape and type."""

    rounding: tuple[int, int]
    s: int
    block: int
    counting: tuple[Any, ...]
    compress: Callable[..., bool]


class LevelCompressor(Compressor):
    """The part that QSGD, NUQSGD, natural compression and signs share: how they round and scale is all that differs."""

    codec: str

    #: The ways of rounding by their number in ``fpdfp._kernels.quantize``.
    roundings: ClassVar[tuple[str, ...]] = ("uniform", "exponential", "coin", "sign")
    #: The scales by their number there.
    scale_kinds: ClassVar[tuple[str, ...]] = ("l2", "max", "mean", "power")

    @property
    @abc.abstractmethod
    def block_spec(self) -> BlockSpec:
        """The entries that share a scale."""

    @property
    @abc.abstractmethod
    def rounding(self) -> int:
        """The rounding of entries, by its number in ``fpdfp._kernels.quantize``."""

    @property
    @abc.abstractmethod
    def scale_kind(self) -> int:
        """The scale of a block, by its number in ``fpdfp._kernels.quantize``."""

    @property
    @abc.abstractmethod
    def s(self) -> int:
        """The number of levels above 0."""

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest level."""
        return -self.s, self.s

    def quantize(self, arrays: Array, draws: Draws, purpose: int) -> Quantized:
        arrays = to_sendable(arrays)
        draws = check_draws(draws, purpose, len(arrays))
        rows, block, scales = self._lay_out(arrays)
        levels = namespace(arrays).empty(rows.shape, dtype=np.int32)
        k0, k1 = draws.key
        copied = _kernels_for(arrays).quantize(
            self.rounding, self.scale_kind, rows, block, self.s, k0, k1, draws.tag(purpose), draws.clients,
            draws.round, levels, scales,
        )  # fmt: skip
        refuse_nonfinite(scales if copied is None else copied)
        return self.make(tuple(arrays.shape[1:]), arrays.dtype, levels=levels, scales=scales)

    def dequantize(self, quantized: Quantized) -> Array:
        self.check_source(quantized)
        levels, scales = _parts(quantized)
        out = namespace(levels).empty(levels.shape, dtype=quantized.dtype)
        block = length_in(self.block_spec, quantized.shape)
        _kernels_for(levels).dequantize(self.rounding, levels, scales, block, self.s, out)
        return put_back(self.block_spec, out, quantized.shape)

    def body_bits(self, quantized: Quantized) -> IntArray:
        levels, scales = _parts(quantized)
        block = length_in(self.block_spec, quantized.shape)
        return 32 * scales.shape[1] + count_bits(self.codec, levels, scales, block, *self.bounds)

    def compress(self, arrays: Array, draws: Draws, purpose: int) -> Compressed:
        """Quantize and dequantize in one pass over each client's array, and count."""
        if type(arrays) is not np.ndarray and namespace(arrays) is not np:
            return super().compress(arrays, draws, purpose)
        arrays = to_sendable(arrays)
        count = len(arrays)
        draws = check_draws(draws, purpose, count)
        shape, dtype = arrays.shape[1:], arrays.dtype
        plan = self._plans.get((shape, dtype)) or self._plan(shape, dtype)
        rows = lay_out(self.block_spec, arrays)
        out = np.empty(rows.shape, dtype=dtype)
        bits = np.empty(count, dtype=np.int64)
        seed, round_, clients, step = draws
        compress: Callable[..., bool] = plan.compress if rows.size <= SMALL else _kernels.quantize.compress_in_steps
        finite = compress(
            *plan.rounding, rows, plan.block, plan.s, seed & 0xFFFFFFFF, seed >> 32, purpose | step << 8, clients,
            round_, *plan.counting, out, bits,
        )  # fmt: skip
        if not finite:
            raise nonfinite_error()
        return Compressed(put_back(self.block_spec, out, shape), bits)

    @functools.cached_property
    def _plans(self) -> dict[tuple[Shape, Any], _Plan]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_plans"}

    def _plan(self, shape: Shape, dtype: Any) -> _Plan:
        """Return all that compressing arrays of this kind needs to know, kept since rounds are short."""
        block = length_in(self.block_spec, shape)
        n_blocks = -(-math.prod(shape) // block)
        added = 32 * n_blocks + frame_bits(self, shape, dtype)
        plan = self._plans[shape, dtype] = _Plan(
            (self.rounding, self.scale_kind), self.s, block,
            (CODES[self.codec], *self.bounds, *_kernels.streams.tables(), added), _kernels.quantize.compress_at_once,
        )  # fmt: skip
        return plan

    def pack(self, quantized: Quantized, row: int) -> Parts:
        levels, scales = _parts(quantized)
        block = length_in(self.block_spec, quantized.shape)
        head = to_host(scales[row]).astype("<f4", copy=False)
        own = slice(row, row + 1)
        [(code, pieces)] = encode_rows(self.codec, levels[own], scales[own], block, *self.bounds)
        return Parts(code, [head.tobytes(), *pieces])

    def pack_all(self, quantized: Quantized) -> Iterable[Parts]:
        levels, scales = _parts(quantized)
        if levels.shape[1] > SHORT or namespace(levels) is not np:
            return super().pack_all(quantized)
        block = length_in(self.block_spec, quantized.shape)
        streams = encode_rows(self.codec, levels, scales, block, *self.bounds)
        heads = scales.astype("<f4", copy=False)
        return [Parts(code, [head.tobytes(), *pieces]) for head, (code, pieces) in zip(heads, streams, strict=True)]

    def unpack_all(self, bodies: Sequence[Body], shape: Shape, dtype: Any, device: str = "cpu") -> list[Quantized]:
        block = length_in(self.block_spec, shape)
        found = decode_rows(bodies, math.prod(shape), block, *self.bounds) if device == "cpu" else None
        if found is None:
            return super().unpack_all(bodies, shape, dtype, device)
        levels, scales = found
        return [self.make(shape, dtype, levels=levels, scales=scales)]

    def unpack(self, body: Body, shape: Shape, dtype: Any, device: str = "cpu") -> Quantized:
        size = math.prod(shape)
        block = length_in(self.block_spec, shape)
        n_blocks = -(-size // block)
        if len(body.data) < 4 * n_blocks:
            raise damage_error("it is cut off")
        scales = np.frombuffer(body.data, dtype="<f4", count=n_blocks).astype(np.float32, copy=False)
        if not np.isfinite(scales).all() or np.signbit(scales).any():
            raise damage_error("a scale is negative or not finite")
        dead = scales == 0
        sizes = np.full(n_blocks, block)
        if n_blocks:
            sizes[-1] = size - block * (n_blocks - 1)
        rest = Body(body.code, body.data[4 * n_blocks :])
        levels = decode_levels(rest, int(sizes[~dead].sum()), *self.bounds, device)
        xp = namespace(levels)
        if dead.any():
            spread = xp.zeros(size, dtype=np.int32)
            spread[xp.asarray(np.repeat(~dead, sizes))] = levels
            levels = spread
        return self.make(shape, dtype, levels=levels[None], scales=xp.asarray(scales)[None])

    def _lay_out(self, arrays: Array) -> tuple[Array, int, Array]:
        """Return the arrays as rows, the length of a block, and room for the scales."""
        rows = lay_out(self.block_spec, arrays)
        block = length_in(self.block_spec, tuple(arrays.shape[1:]))
        xp = namespace(arrays)
        return rows, block, xp.empty((len(rows), -(-rows.shape[1] // block)), dtype=np.float32)


@dataclasses.dataclass(frozen=True)
class NormCompressor(LevelCompressor):
    """The part that QSGD and NUQSGD share: a number of levels of the norm of a block."""

    levels: int
    block: BlockSpec = BUCKET
    norm: str = "l2"
    codec: str = "auto"

    n_parameters: ClassVar[int] = 3
    #: The largest number of levels.
    most_levels: ClassVar[int]

    def __post_init__(self) -> None:
        # Plain integers: NumPy's small ones would overflow in the bounds.
        object.__setattr__(self, "levels", _checks.integer("levels", self.levels, at_least=1, at_most=self.most_levels))
        object.__setattr__(self, "block", check_block(self.block))
        _checks.choice("norm", self.norm, ("l2", "max"))
        check_codec(self.codec)

    @property
    def block_spec(self) -> BlockSpec:
        return self.block

    @property
    def scale_kind(self) -> int:
        return self.scale_kinds.index(self.norm)

    @property
    def s(self) -> int:
        return self.levels

    def parameters(self, shape: Shape) -> tuple[int, ...]:
        return self.levels, to_parameter(self.block, shape), self.scale_kind

    @classmethod
    def from_parameters(cls, parameters: Sequence[int]) -> Self:
        levels, block, kind = parameters
        return cls(levels, from_parameter(block), cls.scale_kinds[kind])


def _parts(quantized: Quantized) -> tuple[Array, Array]:
    if quantized.levels is None or quantized.scales is None:
        raise TypeError("quantized must come from a compressor that sends levels and scales")
    return quantized.levels, quantized.scales


def _kernels_for(array: Array) -> Any:
    """Return the kernels for the machine that holds an array."""
    if namespace(array) is np:
        return _kernels.quantize
    return _cuda


@dataclasses.dataclass(frozen=True)
class QSGD(NormCompressor):
    r"""Stochastic rounding to s levels of the norm, unbiased.

    .. math:: Q_s(x)_i = \|x\| \, \mathrm{sign}(x_i) \, ξ_i, \qquad
              ξ_i = \begin{cases} ℓ/s & \text{with probability } 1 - (s|x_i|/\|x\| - ℓ) \\
              (ℓ + 1)/s & \text{otherwise} \end{cases}

    with ℓ = ⌊s|x_i|/‖x‖⌋, and Q(0) = 0. The norm is sent as a float32, rounded up before it is used, so that
    rounding it costs no bias. A block of norm 0 sends nothing but its norm.

    Parameters
    ----------
    levels
        s, at least 1.
    block
        Entries that share a norm. An integer: that many, in C order. A tuple of axes: one norm for each index
        along them, as ``block=(0,)`` for each slice of a volume. None: the whole array.
    norm
        ``"l2"``, as in the paper, or ``"max"``, with less variance and more bits.
    codec
        How levels are written: ``"fixed"``, ``"omega"`` (the Elias code of the paper, dense or sparse, whichever is
        shorter), ``"rans"`` (an entropy coder that sends its model), ``"adaptive"`` (an entropy coder without a
        model, for short messages), or ``"auto"``. That is the shortest of these for each message. ``"auto"`` takes
        ``"adaptive"`` for more than 4096 levels only if ``levels`` is above 127 and it saves 1.6 %: it is slower.

    References
    ----------
    D. Alistarh, D. Grubic, J. Li, R. Tomioka and M. Vojnović, "QSGD: communication-efficient SGD via gradient
    quantization and encoding", NeurIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from fpdfp.rng import Draws
    >>> x = np.array([[3.0, -4.0, 0.0]])
    >>> values, bits = QSGD(4).compress(x, Draws(0, 0, np.array([0])), 16)
    >>> values
    array([[ 2.5 , -3.75,  0.  ]])
    >>> bits  # 10 bytes of header, 4 of norm, 4 of checksum, and 12 bits for three levels
    array([156])
    >>> message = QSGD(4).encode(QSGD(4).quantize(x, Draws(0, 0, np.array([0])), 16))
    >>> len(message[0])
    20
    >>> QSGD(4).decode(message, (3,), np.float64)
    array([[ 2.5 , -3.75,  0.  ]])
    """

    wire_id: ClassVar[int] = 1
    most_levels: ClassVar[int] = 2**31 - 2  # signed levels are held in 32 bits

    @property
    def rounding(self) -> int:
        return self.roundings.index("uniform")

    def omega(self, shape: int | Shape) -> float:
        """Return ω with E‖Q(x) − x‖² ≤ ω‖x‖² for arrays of a size or shape, with norms of at least 2⁻¹²⁶.

        With d the entries of a block and ‖·‖ its norm, an entry's variance is at most (‖x‖/2s)² and at most
        ‖x‖|x_i|/s. Summed, the first is at most (d/4s²)‖x‖₂²; the second is at most (√d/s)‖x‖₂² for the l2
        norm and ((1 + √d)/2s)‖x‖₂² for the max norm.
        """
        return with_rounding(spread(self.norm, block_length(self.block, shape), 1 / self.levels))


def spread(norm: str, d: int, step: float) -> float:
    """Bound the relative variance of rounding d entries to multiples of ``step`` times their norm."""
    linear = math.sqrt(d) if norm == "l2" else (1 + math.sqrt(d)) / 2
    return min(d * step**2 / 4, linear * step)


#: Powers down to 2^-1021 of the largest: all that float64 has.
MOST_HALVINGS = 1022
#: The relative variance of rounding to one of two neighbouring powers of two, at its worst.
BETWEEN_POWERS = 1 / 8


@dataclasses.dataclass(frozen=True)
class NUQSGD(NormCompressor):
    r"""Stochastic rounding to powers of two of the norm, unbiased.

    .. math:: Q(x)_i = \|x\| \, \mathrm{sign}(x_i) \, ξ_i, \qquad ξ_i ∈ \{0, 2^{1-s}, …, 1/4, 1/2, 1\}

    where ξ_i is one of the two levels around \|x_i\|/‖x‖, drawn so that its mean is that. Small entries, of which
    there are many, get finer levels than with the same number of evenly spaced ones.

    Parameters
    ----------
    levels
        s, the number of levels above 0, from 1 to 1022.
    block, norm, codec
        As for :class:`QSGD`.

    References
    ----------
    A. Ramezani-Kebrya, F. Faghri, I. Markov, V. Aksenov, D. Alistarh and D. M. Roy, "NUQSGD: provably
    communication-efficient data-parallel SGD via nonuniform quantization", JMLR 22 (2021).

    Examples
    --------
    >>> import numpy as np
    >>> from fpdfp.rng import Draws
    >>> NUQSGD(4).compress(np.array([[3.0, -4.0, 0.0]]), Draws(0, 0, np.array([0])), 16).values
    array([[ 2.5, -2.5,  0. ]])
    """

    wire_id: ClassVar[int] = 2
    most_levels: ClassVar[int] = MOST_HALVINGS

    @property
    def rounding(self) -> int:
        return self.roundings.index("exponential")

    def omega(self, shape: int | Shape) -> float:
        """Return ω with E‖Q(x) − x‖² ≤ ω‖x‖², for norms of at least 2⁻¹²⁶.

        Between two powers of two the variance of an entry is at most x_i²/8, below the smallest level ℓ it is that
        of rounding to multiples of ℓ‖x‖ (see :meth:`QSGD.omega`).
        """
        smallest = 2.0 ** (1 - self.levels)
        return with_rounding(BETWEEN_POWERS + spread(self.norm, block_length(self.block, shape), smallest))


@dataclasses.dataclass(frozen=True)
class Natural(LevelCompressor):
    r"""Stochastic rounding of every entry to a power of two, unbiased.

    .. math:: Q(x)_i = \mathrm{sign}(x_i) \cdot \begin{cases} 2^{⌈\log_2|x_i|⌉} & \text{with probability }
              |x_i| 2^{-⌊\log_2|x_i|⌋} - 1 \\ 2^{⌊\log_2|x_i|⌋} & \text{otherwise} \end{cases}

    For an entry its exponent is sent, counted down from the exponent of the smallest power of two above the whole
    array, which is sent once. Entries below 2⁻¹⁰²¹ of that are rounded to 0 or to it. Arrays whose largest entry is
    above 2¹²⁷ raise an error.

    Parameters
    ----------
    codec
        As for :class:`QSGD`.

    References
    ----------
    S. Horváth, C.-Y. Ho, Ľ. Horváth, A. N. Sahu, M. Canini and P. Richtárik, "Natural compression for distributed
    deep learning", MSML 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from fpdfp.rng import Draws
    >>> Natural().compress(np.array([[3.0, -4.0, 0.01]]), Draws(0, 0, np.array([0])), 16).values
    array([[ 2.      , -4.      ,  0.015625]])
    """

    codec: str = "auto"

    wire_id: ClassVar[int] = 3
    n_parameters: ClassVar[int] = 0

    def __post_init__(self) -> None:
        check_codec(self.codec)

    @property
    def block_spec(self) -> BlockSpec:
        return None

    @property
    def rounding(self) -> int:
        return self.roundings.index("exponential")

    @property
    def scale_kind(self) -> int:
        return self.scale_kinds.index("power")

    @property
    def s(self) -> int:
        return MOST_HALVINGS

    def omega(self, shape: int | Shape) -> float:
        return BETWEEN_POWERS

    def parameters(self, shape: Shape) -> tuple[int, ...]:
        return ()

    @classmethod
    def from_parameters(cls, parameters: Sequence[int]) -> Natural:
        return cls()


@dataclasses.dataclass(frozen=True)
class Sign(LevelCompressor):
    r"""The signs of the entries and a scale for each block: drawn at random, unbiased; or unchanged, biased.

    .. math:: Q(x)_i = \|x\|_∞ \cdot \begin{cases} +1 & \text{with probability } (1 + x_i/\|x\|_∞)/2 \\
              -1 & \text{otherwise} \end{cases}
              \qquad\text{or}\qquad Q(x)_i = \tfrac{\|x\|_1}{d} \, \mathrm{sign}(x_i)

    The sign of 0 counts as plus. The second form needs a method that corrects its errors.

    Parameters
    ----------
    random
        Whether signs are drawn at random (unbiased, the default) or sent unchanged (biased).
    block, codec
        As for :class:`QSGD`.

    References
    ----------
    M. Safaryan and P. Richtárik, "Stochastic sign descent methods", ICML 2021; S. P. Karimireddy, Q. Rebjock, S.
    Stich and M. Jaggi, "Error feedback fixes SignSGD and other gradient compression schemes", ICML 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from fpdfp.rng import Draws
    >>> Sign(random=False).compress(np.array([[3.0, -4.0, 0.5]]), Draws(0, 0, np.array([0])), 16).values
    array([[ 2.5, -2.5,  2.5]])
    """

    random: bool = True
    block: BlockSpec = BUCKET
    codec: str = "auto"

    wire_id: ClassVar[int] = 4
    n_parameters: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if not isinstance(self.random, bool):
            raise ArgumentTypeError("random", f"must be True or False, got {self.random!r}")
        object.__setattr__(self, "block", check_block(self.block))
        check_codec(self.codec)

    @property
    def unbiased(self) -> bool:
        return self.random

    @property
    def block_spec(self) -> BlockSpec:
        return self.block

    @property
    def rounding(self) -> int:
        return self.roundings.index("coin" if self.random else "sign")

    @property
    def scale_kind(self) -> int:
        return self.scale_kinds.index("max" if self.random else "mean")

    @property
    def s(self) -> int:
        return 1

    @property
    def bounds(self) -> tuple[int, int]:
        return -1, 0

    def omega(self, shape: int | Shape) -> float:
        """Return ω with E‖Q(x) − x‖² ≤ ω‖x‖², with d the entries of a block, for scales of at least 2⁻¹²⁶.

        Drawn signs: the variance of an entry is ‖x‖_∞² − x_i², at most (d − 1)‖x‖₂² together. Kept signs: the
        error is ‖x‖₂² − ‖x‖₁²/d, at most (1 − 1/d)‖x‖₂².
        """
        d = block_length(self.block, shape)
        return with_rounding(d * (1.0 + 2.0**-21) - 1.0 if self.random else 1.0 - 1.0 / d)

    def parameters(self, shape: Shape) -> tuple[int, ...]:
        return int(self.random), to_parameter(self.block, shape)

    @classmethod
    def from_parameters(cls, parameters: Sequence[int]) -> Sign:
        random, block = parameters
        return cls(bool(_checks.integer("random", random, at_least=0, at_most=1)), from_parameter(block))
