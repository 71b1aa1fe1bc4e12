"""Numbers that distinguish arrays on the GPU, without a copy of them in the memory of the host."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from fpdfp._typing import Array

#: The finalizer of SplitMix64 (G. Steele, D. Lea and C. Flood, OOPSLA 2014) of a word and of its place.
MIX = """
unsigned long long z = ((unsigned long long)i << 32 | word) + 0x9E3779B97F4A7C15ull;
z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
mixed = z ^ (z >> 31);
"""


def digest(array: Array) -> bytes:
    """Return eight bytes, others with every change of a bit but for one in 2⁶⁴."""
    import cupy

    words = cupy.ascontiguousarray(array).ravel().view(np.uint32)
    return int(_mix()(words).sum()).to_bytes(8, "little")


@functools.cache
def _mix() -> Any:
    import cupy

    return cupy.ElementwiseKernel("uint32 word", "uint64 mixed", MIX, "fpdfp_mix")
