"""Confidence limits of single numbers: shares, areas, means."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError


def quantile_of(level: float, df: float | None = None) -> float:
    """Return how many standard errors confidence limits are away, 1.96 for 0.95; with ``df`` by Student's t.

    >>> round(quantile_of(0.95), 4)
    1.96
    """
    from scipy import stats

    if not 0.0 < _checks.real("level", level) < 1.0:
        raise ArgumentError("level", f"must be between 0 and 1, as 0.95, got {level:g}")
    tail = (1.0 - level) / 2.0
    return float(stats.norm.isf(tail) if df is None else stats.t.isf(tail, df))


def wilson(share: Any, rows: Any, level: float = 0.95) -> tuple[Array, Array]:
    """Return Wilson's limits of shares of a given number of rows each.

    >>> [round(float(limit), 4) for limit in wilson(0.9, 50)]
    [0.7864, 0.9565]
    """
    z, share, rows = quantile_of(level), np.asarray(share, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    centre = (share + z**2 / (2 * rows)) / (1 + z**2 / rows)
    width = z / (1 + z**2 / rows) * np.sqrt(share * (1 - share) / rows + z**2 / (4 * rows**2))
    return np.maximum(centre - width, 0.0), np.minimum(centre + width, 1.0)


def by_log_odds(value: float, error: float, level: float = 0.95) -> tuple[float, float]:
    """Return limits of a number between 0 and 1 from its standard error, on the scale of log-odds.

    At 0 and 1, and without a standard error, the interval is the number itself.

    >>> [round(limit, 4) for limit in by_log_odds(0.8, 0.05)]
    [0.6843, 0.8807]
    """
    z = quantile_of(level)
    if not 0.0 < value < 1.0 or np.isnan(error):
        return value, value
    odds, width = np.log(value / (1.0 - value)), z * error / (value * (1.0 - value))
    lower, upper = (1.0 / (1.0 + np.exp(-np.array([odds - width, odds + width])))).tolist()
    return lower, upper
