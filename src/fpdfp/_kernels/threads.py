"""How many threads kernels use, chosen by trying."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import numba

#: Compiling takes less than this: work that takes longer the first time is not tried a second time.
COMPILING = 30.0
#: Work that takes longer than this is worth all threads, and too dear to repeat for a trial.
SURE = 0.02
TRIALS = 3


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
    together = _seconds(work)
    if together > SURE:
        return available
    together = min(together, *(_seconds(work) for _ in range(TRIALS)))
    numba.set_num_threads(1)
    alone = min(_seconds(work) for _ in range(TRIALS))
    return 1 if alone <= together else available


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
