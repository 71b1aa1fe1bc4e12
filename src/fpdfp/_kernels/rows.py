"""Quantities of each row, or of rows together, in one pass: derivatives of losses, shares of changes, ranks."""

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
