"""The ways in which a site has divided its rows into folds: few, and such that they tell nothing of few rows together.

Sums with a fold left out and sums over all rows tell the sum over the fold. What many divisions of the same rows tell
at one point are sums that have one weight for all rows of a *cell*: of those rows that are in the same fold in each
division. So where every cell has enough rows, no combination of answers is about fewer.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fpdfp._typing import IntArray
from fpdfp.federation.points import Earlier
from fpdfp.federation.policy import RefusedError

#: Of how many different numbers of rows divisions are kept: there are as many as patterns of missing values.
SIZES = 512


class Partitions:
    """Divisions of the rows that a site has answered for, by the number of rows, in files that outlive the process.

    Parameters
    ----------
    most
        How many there may be of one number of rows.
    least
        How many rows each cell must have.
    folder, data
        As of :class:`fpdfp.federation.points.Earlier`.
    """

    def __init__(self, most: int, least: int, folder: Path | None = None, data: str = "") -> None:
        self.most, self.least = most, least
        self._kept = Earlier(most, folder, data, SIZES)

    def admit(self, labels: IntArray) -> None:
        """Take note of a division, given the fold of each row; refuse one too many, and one that leaves small cells."""
        known = self._kept.of(len(labels))
        if any(np.array_equal(labels, old) for old in known):
            return
        if len(known) >= self.most:
            raise RefusedError(
                f"this site divides the same rows into folds in at most {self.most} ways "
                "(most_divisions under [points] of its policy.toml)",
                f"there were {len(known)} for {len(labels)} rows",
            )
        cells = np.stack([labels, *known], axis=1)
        smallest = int(np.unique(cells, axis=0, return_counts=True)[1].min())
        if smallest < self.least:
            raise RefusedError(
                f"this site divides its rows into folds only such that at least {self.least} rows stay together in all "
                "the ways in which it has done so",
                f"{smallest} rows would",
            )
        self._kept.add(np.asarray(labels, dtype=np.float64))

    def close(self) -> None:
        """Close the files."""
        self._kept.close()
