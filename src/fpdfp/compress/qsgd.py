"""The low-precision quantizer Q_s of Definition 1."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

from fpdfp._typing import Shape
from fpdfp.compress import blocks
from fpdfp.compress.base import with_rounding
from fpdfp.compress.levels import NormCompressor


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
        model, for short messages), or ``"auto"``: the shortest of these for each message. ``"auto"`` takes
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
        return with_rounding(spread(self.norm, blocks.length(self.block, shape), 1 / self.levels))


def spread(norm: str, d: int, step: float) -> float:
    """Bound the relative variance of rounding d entries to multiples of ``step`` times their norm."""
    linear = math.sqrt(d) if norm == "l2" else (1 + math.sqrt(d)) / 2
    return min(d * step**2 / 4, linear * step)
