"""Sums of weights of lower, higher and equal ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp._kernels.jit import serial


@serial
def count_ranks(rank: Any, weight: Any, most: Any, sequence: Any, asked: Any, size: Any, out: Any) -> None:
    """Write, for each question, the weight of the first ``most`` entries with a lower, a higher and the same rank.

    ``sequence`` has the numbers of the questions, such that ``most`` does not decrease; ranks are below ``size``. Sums
    over lower ranks are kept in a Fenwick tree.
    """
    tree, equal = np.zeros(size + 1), np.zeros(size)
    total, done = 0.0, 0
    for q in range(sequence.size):
        i = sequence[q]
        while done < most[i]:
            place = rank[done] + 1
            equal[rank[done]] += weight[done]
            total += weight[done]
            while place <= size:
                tree[place] += weight[done]
                place += place & -place
            done += 1
        lower, place = 0.0, asked[i]
        while place > 0:
            lower += tree[place]
            place -= place & -place
        out[i, 0] = lower
        out[i, 2] = equal[asked[i]]
        out[i, 1] = total - lower - out[i, 2]
