"""What is found of each row, or of rows together, in one go: derivatives of losses, shares of changes, ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp._kernels.jit import serial

LOGISTIC = 0
SQUARED = 1


def look_at(kind: Any, forms: Any, y: Any, weights: Any, losses: Any, slopes: Any, curvatures: Any) -> None:
    """Write φ of each row, and its first and second derivatives times the weight of the row."""
    if kind == SQUARED:
        look_at_squares(forms, y, weights, losses, slopes, curvatures)
        return
    # NumPy does several exponentials at once, which takes a tenth of the time of one after the other.
    small = np.exp(-np.abs(y * forms))
    np.log1p(small, out=losses)
    look_at_margins(forms, y, weights, small, losses, slopes, curvatures)


@serial
def look_at_squares(forms: Any, y: Any, weights: Any, losses: Any, slopes: Any, curvatures: Any) -> None:
    for j in range(forms.size):
        away = forms[j] - y[j]
        losses[j] = 0.5 * away * away
        slopes[j] = weights[j] * away
        curvatures[j] = weights[j]


@serial
def look_at_margins(
    forms: Any, y: Any, weights: Any, small: Any, losses: Any, slopes: Any, curvatures: Any
) -> None:  # fmt: skip
    """Do so for the logistic loss, given exp(−|yz|), whose log1p is in ``losses``."""
    for j in range(forms.size):
        margin = y[j] * forms[j]
        losses[j] += max(-margin, 0.0)
        share = 1.0 / (1.0 + small[j])
        # the probability of the other class, without cancellation
        other = small[j] * share if margin > 0 else share
        slopes[j] = -weights[j] * y[j] * other
        curvatures[j] = weights[j] * small[j] * share * share


@serial
def share_of_one(new: Any, old: Any, folds: Any, count: Any, least: Any, rounding: Any) -> Any:
    """Return the largest share of one row in a change that fewer effective rows than ``least`` share, or 0.

    That is looked at over all rows and over those of each fold, whose numbers are below ``count``. Changes of at most
    ``rounding`` are none.
    """
    sums = np.zeros((count, 3))  # the sum of changes, of their squares, and the largest
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
