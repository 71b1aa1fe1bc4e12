"""Folds of rows: which rows are excluded together."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray


@dataclasses.dataclass(frozen=True)
class Folds:
    """Rows of each client in a number of folds, drawn by the client itself.

    Folds of one client differ in size by at most one row. Who knows the seed and the number of rows knows the folds, so
    that nothing is sent.

    Parameters
    ----------
    count
        How many folds there are, at least 2.
    seed
        Of the draw.
    stratified
        Whether the rows of each class (of few different outcomes) are spread evenly too.
    repeats
        How often rows are divided anew; the folds of all divisions are numbered one after the other.
    given
        Whether rows have folds of their own instead (:attr:`fpdfp.losses.Losses.folds`).

    Examples
    --------
    >>> import numpy as np
    >>> Folds(3).draw(np.zeros(8))
    array([0, 1, 2, 1, 1, 0, 0, 2])
    """

    count: int
    seed: int = 0
    stratified: bool = False
    given: bool = False
    repeats: int = 1

    def __post_init__(self) -> None:
        _checks.integer("count", self.count, at_least=2, at_most=1 << 16)
        _checks.integer("seed", self.seed, at_least=0, at_most=(1 << 63) - 1)
        _checks.flag("stratified", self.stratified)
        _checks.flag("given", self.given)
        _checks.integer("repeats", self.repeats, at_least=1, at_most=1 if self.given else 1 << 10)

    @property
    def all(self) -> int:
        """The number of folds in all divisions."""
        return self.count * self.repeats

    def draw(self, y: Array, repeat: int = 0) -> IntArray:
        """Return the fold of each row of a client in one of the divisions, given the outcomes."""
        order: Any = np.argsort(np.random.Philox([self.seed, repeat]).random_raw(len(y)), kind="stable")
        if self.stratified:
            order = order[np.argsort(y[order], kind="stable")]
        labels = np.empty(len(y), dtype=np.int64)
        labels[order] = np.arange(len(y)) % self.count + self.count * repeat
        return labels
