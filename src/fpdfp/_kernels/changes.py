"""How many rows share the change of probabilities between two points."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp._kernels.jit import serial


@serial
def find_lonely(new: Any, old: Any, folds: Any, sums: Any, least: Any, rounding: Any) -> Any:
    """Return the largest share of one row in a change that fewer effective rows than ``least`` share, or 0.

    That is looked at over all rows and over those of each fold, of which ``sums`` has a line: room for the sum of
    changes, of their squares, and the largest. Changes of at most ``rounding`` are none.
    """
    sums[:] = 0.0
    for i in range(new.size):
        change = abs(new[i] - old[i])
        line = sums[folds[i]]
        line[0] += change
        line[1] += change * change
        line[2] = max(line[2], change)
    found = 0.0
    total, squares, largest = 0.0, 0.0, 0.0
    for fold in range(sums.shape[0]):
        line = sums[fold]
        total += line[0]
        squares += line[1]
        largest = max(largest, line[2])
        if line[2] > rounding and line[0] * line[0] < least * line[1]:
            found = max(found, line[2] / line[0])
    if largest > rounding and total * total < least * squares:
        found = max(found, largest / total)
    return found


def share_of_one(new: Any, old: Any, folds: Any, count: int, least: float, rounding: float) -> float:
    """Do the same with room of its own; ``folds`` are numbers below ``count``."""
    return float(find_lonely(new, old, folds, np.empty((count, 3)), least, rounding))
