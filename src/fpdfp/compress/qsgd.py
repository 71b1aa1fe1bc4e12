"""The low-precision quantizer Q_s of Definition 1."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

from fpdfp import _checks
from fpdfp._typing import Shape
from fpdfp.compress import blocks, codecs
from fpdfp.compress.base import with_rounding
from fpdfp.compress.levels import LevelCompressor

#: Signed levels are held in 32 bits.
MAX_LEVELS = 2**31 - 2


@dataclasses.dataclass(frozen=True)
class QSGD(LevelCompressor):
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
        How levels are written: ``"fixed"``, ``"gamma"``, ``"omega"`` (Elias codes, dense or sparse, whichever is
        shorter), ``"rice"``, ``"rans"`` (an entropy coder), ``"ans"`` (that of the package constriction), or
        ``"auto"``: the shortest of the first five for each message.

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

    levels: int
    block: blocks.BlockSpec = blocks.BUCKET
    norm: str = "l2"
    codec: str = "auto"

    wire_id: ClassVar[int] = 1
    n_parameters: ClassVar[int] = 3

    def __post_init__(self) -> None:
        # Plain integers: NumPy's small ones would overflow in the bounds.
        object.__setattr__(self, "levels", _checks.integer("levels", self.levels, at_least=1, at_most=MAX_LEVELS))
        object.__setattr__(self, "block", blocks.check(self.block))
        _checks.choice("norm", self.norm, ("l2", "max"))
        codecs.check(self.codec)

    @property
    def block_spec(self) -> blocks.BlockSpec:
        return self.block

    @property
    def rounding(self) -> int:
        return self.roundings.index("uniform")

    @property
    def scale_kind(self) -> int:
        return self.scale_kinds.index(self.norm)

    @property
    def s(self) -> int:
        return self.levels

    def omega(self, shape: int | Shape) -> float:
        """Return ω with E‖Q(x) − x‖² ≤ ω‖x‖² for arrays of a size or shape, with norms of at least 2⁻¹²⁶.

        With d the entries of a block and ‖·‖ its norm, an entry's variance is at most (‖x‖/2s)² and at most
        ‖x‖|x_i|/s. Summed, the first is at most (d/4s²)‖x‖₂²; the second is at most (√d/s)‖x‖₂² for the l2
        norm and ((1 + √d)/2s)‖x‖₂² for the max norm.
        """
        return with_rounding(spread(self.norm, blocks.length(self.block, shape), 1 / self.levels))

    def parameters(self, shape: Shape) -> tuple[int, ...]:
        return self.levels, blocks.to_parameter(self.block, shape), self.scale_kind

    @classmethod
    def from_parameters(cls, parameters: Sequence[int]) -> QSGD:
        levels, block, kind = parameters
        return cls(levels, blocks.from_parameter(block), cls.scale_kinds[kind])


def spread(norm: str, d: int, step: float) -> float:
    """Bound the relative variance of rounding d entries to multiples of ``step`` times their norm."""
    linear = math.sqrt(d) if norm == "l2" else (1 + math.sqrt(d)) / 2
    return min(d * step**2 / 4, linear * step)
