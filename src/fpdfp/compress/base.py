"""What every compressor offers."""

from __future__ import annotations

import abc
import dataclasses
from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.rng import Draws


class Compressed(NamedTuple):
    """Arrays as the receiver decodes them, and the bits that each client's message took."""

    values: Array
    bits: IntArray


class Compressor(abc.ABC):
    """A map from arrays to shorter messages, over a leading client axis.

    Attributes
    ----------
    unbiased
        Whether E[Q(x)] = x.
    """

    unbiased: bool

    @abc.abstractmethod
    def omega(self, size: int) -> float:
        """Return a bound ω of the relative variance for arrays of a size: E‖Q(x) − x‖² ≤ ω‖x‖²."""

    @abc.abstractmethod
    def compress(self, arrays: Array, draws: Draws, purpose: int) -> Compressed:
        """Compress each client's array; return what the receiver decodes and the exact bits."""


@dataclasses.dataclass(frozen=True)
class Full(Compressor):
    """Messages at full precision: every number as it is.

    >>> import numpy as np
    >>> Full().compress(np.zeros((2, 10)), None, 0).bits
    array([640, 640])
    """

    unbiased = True

    def omega(self, size: int) -> float:
        return 0.0

    def compress(self, arrays: Array, draws: Draws | None, purpose: int) -> Compressed:
        bits = 8 * arrays.dtype.itemsize * (arrays[0].size if len(arrays) else 0)
        return Compressed(arrays, np.full(len(arrays), bits, dtype=np.int64))
