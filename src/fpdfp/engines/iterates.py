"""Iterates that are kept along a run, for what is to be known of them later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpdfp._array import to_host
from fpdfp._typing import Array
from fpdfp.engines.loop import Observer

if TYPE_CHECKING:
    from fpdfp.engines.result import Result
    from fpdfp.engines.run import Run

#: The next round that is kept is so much later than the last one, and this many numbers are kept at most.
GROWTH, ROOM = 1.08, 1 << 22


class Iterate(NamedTuple):
    """A point of a run: the rounds done, what was sent so far without evaluations, and x."""

    round: int
    bits_up: int
    bits_down: int
    x: Array


class Iterates(Observer):
    """Keeps x after the first rounds, and after ever fewer of the later ones; of runs one after the other.

    Up to the twelfth each round is kept, and then one in 1.08 as many: some 70 of 1,000. If these are more than four
    million numbers, every second is dropped.

    Attributes
    ----------
    kept
        The points, the last x of the last run included.

    Examples
    --------
    >>> import fpdfp
    >>> problem = fpdfp.Problem(fpdfp.losses.LeastSquares(np.eye(2), [4.0, 2.0]), fpdfp.penalties.L1(0.1))
    >>> iterates = Iterates()
    >>> result = fpdfp.solve(problem, fpdfp.PDFP(), rounds=30, callbacks=[iterates])
    >>> [one.round for one in iterates.kept][-5:], bool((iterates.kept[-1].x == result.x).all())
    ([23, 25, 27, 29, 30], True)
    """

    def __init__(self) -> None:
        self.kept: list[Iterate] = []
        self._growth = GROWTH
        self._before = Iterate(0, 0, 0, np.zeros(0))

    def started(self, run: Run, rounds: int) -> None:
        self._before = self.kept[-1]._replace(x=np.zeros(0)) if self.kept else self._before
        self._keep(run, run.x)

    def __call__(self, run: Run) -> None:
        """Keep x if it is time."""
        last = self.kept[-1].round - self._before.round
        if run.round >= max(last + 1, round(last * self._growth)):
            self._keep(run, run.x)

    def finished(self, run: Run, result: Result) -> None:
        # A run that has diverged goes back to a round before.
        self.kept = [one for one in self.kept if one.round - self._before.round < max(result.rounds, 1)]
        self._keep(run, result.x)

    def _keep(self, run: Any, x: Array) -> None:
        sent, before = run.traffic.before_the_end.totals, self._before
        self.kept.append(
            Iterate(
                before.round + run.round,
                before.bits_up + sent["total_up"] - sent["evaluation_up"],
                before.bits_down + sent["total_down"] - sent["evaluation_down"],
                np.array(to_host(x), dtype=np.float64),
            )
        )
        if len(self.kept) * x.size > ROOM and len(self.kept) > 3:
            self.kept, self._growth = self.kept[::2], self._growth**2
