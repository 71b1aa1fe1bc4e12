"""Quantizers whose levels are powers of two."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from fpdfp._typing import Shape
from fpdfp.compress import blocks, codecs
from fpdfp.compress.base import with_rounding
from fpdfp.compress.levels import LevelCompressor, NormCompressor
from fpdfp.compress.qsgd import spread

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
        return with_rounding(BETWEEN_POWERS + spread(self.norm, blocks.length(self.block, shape), smallest))


@dataclasses.dataclass(frozen=True)
class Natural(LevelCompressor):
    r"""Stochastic rounding of every entry to a power of two, unbiased.

    .. math:: Q(x)_i = \mathrm{sign}(x_i) \cdot \begin{cases} 2^{⌈\log_2|x_i|⌉} & \text{with probability }
              |x_i| 2^{-⌊\log_2|x_i|⌋} - 1 \\ 2^{⌊\log_2|x_i|⌋} & \text{otherwise} \end{cases}

    For an entry its exponent is sent, counted down from that of the smallest power of two above the whole
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
        codecs.check(self.codec)

    @property
    def block_spec(self) -> blocks.BlockSpec:
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
