"""How many threads kernels use, chosen by trying."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator

import numba

#: Compiling takes less than this: work that takes longer the first time is not tried a second time.
COMPILING = 30.0
#: Work that takes longer than this is worth all threads, and too dear to repeat for a trial.
SURE = 1.0
#: All threads must be faster than one by this factor: those that wait for work keep cores from other processes.
MARGIN = 1.1
#: At most so many trials, and at most so many seconds of them with each number of threads.
TRIALS, PATIENCE = 15, 0.3


@contextlib.contextmanager
def fastest(work: Callable[[], object]) -> Iterator[None]:
    """Within the context, use one thread or all, whichever does ``work`` sooner.

    On small problems, and where other processes keep the cores busy, threads wait for each other longer than
    they compute. Results do not depend on the choice.
    """
    available = numba.get_num_threads()
    try:
        numba.set_num_threads(_choose(work, available))
        yield
    finally:
        numba.set_num_threads(available)


def _choose(work: Callable[[], object], available: int) -> int:
    first = _seconds(work)  # compiles
    if available == 1 or first > COMPILING:
        return available
    once = _seconds(work)
    if once > SURE:
        return available
    trials = max(1, min(TRIALS, int(PATIENCE / once)))
    # In turn, so that a slow moment of the machine hits both.
    seconds: dict[int, list[float]] = {available: [], 1: []}
    for _ in range(trials):
        for count, seen in seconds.items():
            numba.set_num_threads(count)
            # Threads of the trial before wait for more, and take cores meanwhile.
            work()
            seen.append(_seconds(work))
    alone, together = statistics.median(seconds[1]), statistics.median(seconds[available])
    return available if MARGIN * together < alone else 1


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
