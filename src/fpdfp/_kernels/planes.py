"""Where a line goes through the planes of a volume: what the projectors share."""

from __future__ import annotations

import math
from typing import Any

from fpdfp._kernels.jit import inline


@inline
def crossed(first: Any, step: Any, begin: Any, end: Any, size: Any) -> Any:
    """Return the range of those planes i of ``begin`` to ``end`` where first + i · step may lie in (−1, size).

    It is a plane too long on either side, so that rounding loses none; the caller looks at each plane.
    """
    if step == 0.0:
        return begin, end if -1.0 < first < size else begin
    a, b = (-1.0 - first) / step, (size - first) / step
    if a > b:
        a, b = b, a
    # Compared as floats: a line that is almost parallel to the planes' normal leaves them very far away.
    lo = begin if a <= begin else end if a >= end else math.floor(a)
    hi = end if b >= end - 1 else begin if b < begin else math.ceil(b) + 1
    return max(lo, begin), min(hi, end)


@inline
def neighbours(g: Any, size: Any) -> Any:
    """Return the two voxels beside g in (−1, size) and how far g is from the first; outside ones have no share.

    The result is (first, its share, second, its share).
    """
    below = math.floor(g)
    share = g - below
    if below < 0:
        return 0, 0.0, 0, share
    if below + 1 >= size:
        return below, 1.0 - share, below, 0.0
    return below, 1.0 - share, below + 1, share
