"""Choosing a weight by what a cross-validation found."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from fpdfp._typing import Array

Rule = Literal["min", "1se"]
RULES: tuple[Rule, ...] = ("min", "1se")


class Curve(NamedTuple):
    """Scores over the weights: mean and standard error over folds, and which weights are best.

    ``best`` is the weight of the best mean; ``simplest`` the largest weight whose mean is within one standard error of
    that. Both are places in the grid.
    """

    mean: Array
    error: Array
    best: int
    simplest: int


def summarise(scores: Array, weights: Array, *, greater_is_better: bool) -> Curve:
    """Return the curve of scores with a row for each weight, largest first, and a column for each fold.

    Folds are weighted by their size, as in glmnet's ``cv.glmnet``.
    """
    shares = weights / weights.sum()
    mean = scores @ shares
    error = np.sqrt(((scores - mean[:, None]) ** 2) @ shares / max(scores.shape[1] - 1, 1))
    sign = 1.0 if greater_is_better else -1.0
    finite = np.where(np.isfinite(mean), sign * mean, -np.inf)
    best = int(np.argmax(finite))
    within = finite >= finite[best] - error[best]
    return Curve(mean, error, best, int(np.flatnonzero(within)[0]))
