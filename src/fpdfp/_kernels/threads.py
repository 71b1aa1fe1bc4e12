"""How many threads kernels use: one, or all."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import numba

from fpdfp._kernels.jit import SMALL, use

#: Work that takes longer than this is worth all threads, and too expensive to repeat for a trial.
SURE = 1.0
#: All threads must be faster than one by this factor: those that wait for work keep cores from other processes.
MARGIN = 1.1
#: Work that comes over a network and takes no longer than this is one thread's.
SHORT = 0.005
#: At most so many trials with each number of threads, and at most so many seconds of them.
TRIALS, PATIENCE = 5, 0.02


def count() -> int:
    """Return how many threads kernels use here."""
    return 1 if use.one_thread else int(numba.get_num_threads())


@contextlib.contextmanager
def fastest(work: Callable[[], object], size: int) -> Iterator[None]:
    """Within the context, use one thread or all, whichever does ``work`` sooner, which is done several times.

    Where the work has a ``size`` of few entries, threads take longer to start than to finish it: that is one thread's,
    and nothing is timed. Results do not depend on the choice.
    """
    before = use.one_thread
    try:
        use.one_thread = before or size <= SMALL or _is_faster_alone(work)
        yield
    finally:
        use.one_thread = before


class Trial:
    """Chooses one thread or all by what the work itself takes: some of it is done with each in turn, and nothing twice.

    For work that comes again and again over a network, and that nobody may repeat for a trial. What one thread does
    within some milliseconds stays with it: threads that wait for the next request keep cores from other processes.
    """

    def __init__(self) -> None:
        self._taken: dict[bool, list[float]] = {True: [], False: []}
        #: Whether one thread is used; None as long as it is not known.
        self.alone: bool | None = None

    @contextlib.contextmanager
    def working(self, *, timed: bool) -> Iterator[None]:
        """Within this, use what is faster as far as is known; what is ``timed`` is of the kind that comes again."""
        before = use.one_thread
        trying = timed and self.alone is None and not before
        if trying:
            use.one_thread = len(self._taken[True]) <= len(self._taken[False]) + 1
        elif self.alone:
            use.one_thread = True
        alone, started = use.one_thread, time.perf_counter()
        try:
            yield
        finally:
            use.one_thread = before
        if trying:
            self._taken[alone].append(time.perf_counter() - started)
            self._choose()

    def _choose(self) -> None:
        alone, together = self._taken[True], self._taken[False]
        # The first of each compiles.
        if len(alone) > 1 and min(alone) < SHORT:
            self.alone = True
        elif len(together) == TRIALS:
            self.alone = min(alone) < MARGIN * min(together)


def _is_faster_alone(work: Callable[[], object]) -> bool:
    if numba.get_num_threads() == 1:
        return True
    work()  # compiles
    if _seconds(work, alone=False) > SURE:
        return False
    spent, alone, together = 0.0, list[float](), list[float]()
    use.one_thread = True
    work()  # compiles
    # In turn, so that a slow moment of the machine hits both; the least, since all else is disturbance.
    while len(alone) < TRIALS and spent < PATIENCE:
        alone.append(_seconds(work, alone=True))
        together.append(_seconds(work, alone=False))
        spent += alone[-1] + together[-1]
    return min(alone) < MARGIN * min(together)


def _seconds(work: Callable[[], object], *, alone: bool) -> float:
    use.one_thread = alone
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
