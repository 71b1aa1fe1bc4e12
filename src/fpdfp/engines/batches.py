"""Rounds a few clients at a time: arrays stay in the processor's caches, and every thread has a batch."""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from fpdfp._typing import Array, IntArray

#: A round is computed for about so many numbers of replies at a time, if a client sends at least so many.
BATCH, LONG = 1 << 20, 1 << 12

T = TypeVar("T")


def divide(clients: IntArray, numbers: int) -> list[IntArray]:
    """Return the clients of a round in batches that are not too much, if each sends so many numbers.

    >>> [len(batch) for batch in divide(np.arange(25), 100_000)]
    [10, 10, 5]
    """
    if numbers < LONG or len(clients) * numbers <= BATCH:
        return [clients]
    length = max(1, BATCH // numbers)
    return [clients[first : first + length] for first in range(0, len(clients), length)]


class Total:
    """The mean of replies that come in batches: to the last bit that of all of them, added in order."""

    def __init__(self, double: tuple[str, ...]) -> None:
        self.double, self.count = double, 0
        self._sums: list[Array] = []
        self._kind: Any = tuple

    def add(self, sent: Any) -> None:
        """Add the replies of some clients."""
        if not self.count:
            self._kind = type(sent)
            self._sums = [self._first(name, replies) for name, replies in zip(sent._fields, sent, strict=True)]
        else:
            for total, replies in zip(self._sums, sent, strict=True):
                for row in replies:
                    np.add(total, row, out=total)
        self.count += len(sent[0])

    def _first(self, name: str, replies: Array) -> Array:
        total: Array = replies.sum(axis=0, dtype=np.float64) if name in self.double else replies.sum(axis=0)
        return total

    def mean(self) -> Any:
        """Return the mean of each field."""
        return self._kind(*(total / self.count for total in self._sums))


def work_through(batches: Iterable[IntArray], work: Callable[[IntArray], T], threads: int) -> Iterator[T]:
    """Yield what ``work`` returns for each batch, in their order, with so many threads, kernels using one each."""
    from fpdfp._kernels.jit import use

    if threads == 1:
        yield from map(work, batches)
        return

    def alone(batch: IntArray) -> T:
        use.one_thread = True  # of this thread
        return work(batch)

    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[T]] = deque()
        for batch in batches:
            waiting.append(pool.submit(contextvars.copy_context().run, alone, batch))
            if len(waiting) > threads + 1:  # no more than that is kept at a time
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
