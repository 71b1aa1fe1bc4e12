"""Callbacks that are told more than that a round is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fpdfp.engines.result import Result
    from fpdfp.engines.run import Run


class Observer:
    """A callback of ``fpdfp.solve`` that is told of all that happens: subclass it and give what is wanted.

    >>> import numpy as np
    >>> import fpdfp
    >>> class Teller(fpdfp.engines.Observer):
    ...     def evaluated(self, run):
    ...         print(run.round, round(run.history.last()["objective"], 3))
    >>> losses = fpdfp.losses.LeastSquares(np.eye(2), [4.0, 2.0])
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1))
    >>> _ = fpdfp.solve(problem, fpdfp.PDFP(), rounds=2, callbacks=[Teller()])
    0 5.0
    1 0.58
    2 0.58
    """

    def __call__(self, run: Run) -> Any:
        """Be told that a round is done; True ends the run."""

    def started(self, run: Run, rounds: int) -> None:
        """Be told that a run begins, or goes on from a checkpoint, and how many rounds it is to have in all."""

    def evaluated(self, run: Run) -> None:
        """Be told that the history has a new row."""

    def saved(self, run: Run) -> None:
        """Be told that a checkpoint is written."""

    def finished(self, run: Run, result: Result) -> None:
        """Be told how a run ended."""

    def failed(self, run: Run, error: BaseException) -> None:
        """Be told that a run ends with an error, which is raised after this."""
