"""The low-precision quantizer Q_s of Definition 1."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.compress.base import Compressed, Compressor
from fpdfp.rng import Draws

#: What rounding the norm up to float32 can add to a variance.
NORM_ROUNDING = 1.0 + 2.0**-22
#: Up to this integer the lengths of Elias codes are looked up.
TABLE = 4096
#: Signed levels are held in 32 bits.
MAX_LEVELS = 2**31 - 2


class Quantized(NamedTuple):
    """Levels from −s to s, and a norm for each block: the array is norm · level / s."""

    levels: Array
    norms: Array


@dataclasses.dataclass(frozen=True)
class QSGD(Compressor):
    r"""Stochastic rounding to s levels of the norm, unbiased.

    .. math:: Q_s(x)_i = \|x\| \, \mathrm{sign}(x_i) \, ξ_i, \qquad
              ξ_i = \begin{cases} ℓ/s & \text{with probability } 1 - (s|x_i|/\|x\| - ℓ) \\
              (ℓ + 1)/s & \text{otherwise} \end{cases}

    with ℓ = ⌊s|x_i|/‖x‖⌋, and Q(0) = 0. The norm is sent as a float32, rounded up before it is used, so that
    rounding it costs no bias.

    Bits are counted exactly. A block takes 32 bits for its norm; a block of norm 0 sends nothing more.

    * ``codec="elias"``: each message takes the shorter of two codes, told apart by one bit. Dense: for every
      entry the Elias omega code of |level| + 1, then a sign bit if the level is not zero. Sparse: the omega
      code of one plus the number of non-zero levels of the block, then for each of them the omega code of
      the distance from the one before, a sign bit, and the omega code of |level|.
    * ``codec="fixed"``: ⌈log₂(2s + 1)⌉ bits for every entry.

    Parameters
    ----------
    levels
        s, at least 1.
    block
        Entries that share a norm, in C order; None takes the whole array as one block.
    norm
        ``"l2"``, as in the paper, or ``"max"``, with less variance and more bits.
    codec
        ``"elias"`` or ``"fixed"``.

    References
    ----------
    D. Alistarh, D. Grubic, J. Li, R. Tomioka and M. Vojnović, "QSGD: communication-efficient SGD via gradient
    quantization and encoding", NeurIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from fpdfp.rng import Draws
    >>> values, bits = QSGD(4).compress(np.array([[3.0, -4.0, 0.0]]), Draws(0, 0, np.array([0])), 16)
    >>> values
    array([[ 2.5 , -3.75,  0.  ]])
    >>> bits
    array([45])
    """

    levels: int
    block: int | None = None
    norm: str = "l2"
    codec: str = "elias"

    unbiased = True

    def __post_init__(self) -> None:
        # Plain integers: NumPy's small ones would overflow in the bounds.
        object.__setattr__(self, "levels", _checks.integer("levels", self.levels, at_least=1, at_most=MAX_LEVELS))
        if self.block is not None:
            object.__setattr__(self, "block", _checks.integer("block", self.block, at_least=1))
        _checks.choice("norm", self.norm, ("l2", "max"))
        _checks.choice("codec", self.codec, ("elias", "fixed"))

    def omega(self, size: int) -> float:
        """Return ω with E‖Q(x) − x‖² ≤ ω‖x‖² for arrays of ``size`` entries, with norms of at least 2⁻¹²⁶.

        With d the entries of a block and ‖·‖ its norm, an entry's variance is at most (‖x‖/2s)² and at most
        ‖x‖|x_i|/s. Summed, the first is at most (d/4s²)‖x‖₂²; the second is at most (√d/s)‖x‖₂² for the l2
        norm and ((1 + √d)/2s)‖x‖₂² for the max norm.
        """
        d = self._block_of(size)
        s = self.levels
        spread = math.sqrt(d) / s if self.norm == "l2" else (1 + math.sqrt(d)) / (2 * s)
        return min(d / (4 * s**2), spread) * NORM_ROUNDING

    def quantize(self, arrays: Array, draws: Draws, purpose: int) -> Quantized:
        """Return the levels and norms of each client's array; refuse what is not finite."""
        from fpdfp._kernels import quantize as kernels

        flat, block, norms = self._lay_out(arrays)
        levels = np.empty(flat.shape, dtype=np.int32)
        k0, k1 = draws.key
        kernels.quantize(
            self._kind, flat, block, self.levels, k0, k1, draws.tag(purpose), draws.clients,
            draws.round, levels, norms,
        )  # fmt: skip
        _refuse_nonfinite(norms)
        return Quantized(levels, norms)

    def dequantize(self, quantized: Quantized, shape: Shape, dtype: Any) -> Array:
        """Return the arrays that levels and norms stand for."""
        from fpdfp._kernels import quantize as kernels

        levels, norms = quantized
        out = np.empty(levels.shape, dtype=dtype)
        kernels.dequantize(levels, norms, self._block_of(levels.shape[1]), self.levels, out)
        return out.reshape(shape)

    def nbits(self, quantized: Quantized) -> IntArray:
        """Return the exact length in bits of each client's message, without encoding it."""
        from fpdfp._kernels import quantize as kernels

        levels, norms = quantized
        bits = np.empty(len(levels), dtype=np.int64)
        block = self._block_of(levels.shape[1])
        kernels.count_bits(
            self._coding, levels, norms, block, self.levels, _omega_lengths(), bits
        )  # fmt: skip
        return bits

    def compress(self, arrays: Array, draws: Draws, purpose: int) -> Compressed:
        """Quantize, dequantize and count in one pass: what the three methods above give."""
        from fpdfp._kernels import quantize as kernels

        flat, block, norms = self._lay_out(arrays)
        out = np.empty(flat.shape, dtype=arrays.dtype)
        bits = np.empty(len(flat), dtype=np.int64)
        k0, k1 = draws.key
        kernels.roundtrip(
            self._kind, self._coding, flat, block, self.levels, k0, k1, draws.tag(purpose),
            draws.clients, draws.round, _omega_lengths(), norms, out, bits,
        )  # fmt: skip
        _refuse_nonfinite(norms)
        return Compressed(out.reshape(arrays.shape), bits)

    @property
    def _kind(self) -> int:
        return ("l2", "max").index(self.norm)

    @property
    def _coding(self) -> int:
        return ("elias", "fixed").index(self.codec)

    def _lay_out(self, arrays: Array) -> tuple[Array, int, Array]:
        """Return the arrays as rows, the length of a block, and room for the norms."""
        flat = np.ascontiguousarray(arrays).reshape(len(arrays), -1)
        block = self._block_of(flat.shape[1])
        return flat, block, np.empty((len(flat), -(-flat.shape[1] // block)), dtype=np.float32)

    def _block_of(self, size: int) -> int:
        return size if self.block is None else min(self.block, size)


def _refuse_nonfinite(norms: Array) -> None:
    if not np.isfinite(norms).all():
        raise FloatingPointError("a message holds NaN, infinities or values beyond the range of float32")


@functools.cache
def _omega_lengths() -> IntArray:
    """The lengths of the Elias omega codes of 0 (unused), 1, …, TABLE − 1."""
    from fpdfp._kernels.quantize import omega_length

    return np.array([0, *(omega_length(k) for k in range(1, TABLE))], dtype=np.int64)
