"""One bit for every entry."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from fpdfp import _checks
from fpdfp._typing import Shape
from fpdfp.compress import blocks, codecs
from fpdfp.compress.base import with_rounding
from fpdfp.compress.quantizers import LevelCompressor
from fpdfp.errors import ArgumentTypeError


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
    block: blocks.BlockSpec = blocks.BUCKET
    codec: str = "auto"

    wire_id: ClassVar[int] = 4
    n_parameters: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if not isinstance(self.random, bool):
            raise ArgumentTypeError("random", f"must be True or False, got {self.random!r}")
        object.__setattr__(self, "block", blocks.check(self.block))
        codecs.check(self.codec)

    @property
    def unbiased(self) -> bool:
        return self.random

    @property
    def block_spec(self) -> blocks.BlockSpec:
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
        d = blocks.length(self.block, shape)
        return with_rounding(d * (1.0 + 2.0**-21) - 1.0 if self.random else 1.0 - 1.0 / d)

    def parameters(self, shape: Shape) -> tuple[int, ...]:
        return int(self.random), blocks.to_parameter(self.block, shape)

    @classmethod
    def from_parameters(cls, parameters: Sequence[int]) -> Sign:
        random, block = parameters
        return cls(bool(_checks.integer("random", random, at_least=0, at_most=1)), blocks.from_parameter(block))
