"""Relative entropies of changed probabilities and rates, without loss of digits."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp._typing import Array


def kullback_leibler(change: Array, before: Array) -> Array:
    """Return (p + δ) log((p + δ)/p) − δ for probabilities p and changes δ, with 0 log 0 = 0; infinite where p + δ < 0.

    Over changes that add up to 0, it adds up to the divergence. Every term is at least 0, whatever rounding does.

    >>> kullback_leibler(np.array([0.5, -0.5]), np.array([0.5, 0.5])).round(4)
    array([0.1931, 0.5   ])
    """
    after = before + change
    ratio = np.where(before > 0, change / np.where(before > 0, before, 1.0), np.where(change > 0, np.inf, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        terms: Any = np.maximum(after * np.log1p(np.maximum(ratio, -1.0)) - change, 0.0)
    return np.where(after > 0, terms, np.where(after < 0, np.inf, before))


def relative_entropy(after: Array, before: Array) -> Array:
    """Return b − a + a log(a/b) for a ≥ 0 and b > 0; infinite where a < 0.

    >>> relative_entropy(np.array([0.0, 1.0]), np.array([2.0, 1.0]))
    array([2., 0.])
    """
    with np.errstate(all="ignore"):
        ratio = (after - before) / before
        found: Array = np.where(after > 0, after * np.log1p(ratio) - (after - before), before)
    return np.where(after >= 0, np.maximum(found, 0.0), np.inf)
