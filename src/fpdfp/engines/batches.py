"""Rounds a few clients at a time: arrays stay in the processor's caches, and every thread has a batch."""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from fpdfp._array import beside
from fpdfp._typing import Array, IntArray
from fpdfp.methods.base import Algorithm, WeightedMeans

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
    """The mean of replies that come in batches: to the last bit that of all of them, added in order.

    With ``weights``, one for each client in the order in which replies are added, there is also their weighted mean.
    """

    def __init__(self, double: tuple[str, ...], weights: Array | None = None) -> None:
        self.double, self.count, self.weights = double, 0, weights
        self._weighted = None if weights is None else Total(double)
        self._sums: list[Array] = []
        self._kind: Any = tuple

    def add(self, sent: Any) -> None:
        """Add the replies of some clients."""
        if self.weights is not None and self._weighted is not None:
            self._weighted.add(self._weigh(sent, self.weights[self.count : self.count + len(sent[0])]))
        if not self.count:
            self._kind = type(sent)
            for name, replies in zip(sent._fields, sent, strict=True):
                self._sums.append(replies.sum(0, np.float64 if name in self.double else None))
        else:
            for total, replies in zip(self._sums, sent, strict=True):
                for row in replies:
                    np.add(total, row, out=total)
        self.count += len(sent[0])

    def _weigh(self, sent: Any, weights: Array) -> Any:
        """Return each reply times its weight, in the precision of its mean."""
        weighed = []
        for name, replies in zip(sent._fields, sent, strict=True):
            dtype = np.float64 if name in self.double else replies.dtype
            factors = weights.astype(dtype).reshape(-1, *[1] * (replies.ndim - 1))
            weighed.append(replies * beside(factors, replies))
        return type(sent)(*weighed)

    def mean(self) -> Any:
        """Return the mean of each field."""
        return self._kind(*[total / self.count for total in self._sums])

    def update(self, algorithm: Algorithm, state: Any, k: int) -> Any:
        """Return the server's state after round k with these replies."""
        if self.weights is None or self._weighted is None:
            return algorithm.server_update(state, self.mean(), k, self.count)
        means = WeightedMeans(self._weighted.mean(), self.mean(), float(self.weights.mean()))
        return algorithm.weighted_update(state, means, k, self.count)


def work_through(batches: Iterable[IntArray], work: Callable[[IntArray], T], threads: int) -> Iterator[T]:
    """Return what ``work`` returns for each batch, in their order, with so many threads, kernels using one each."""
    return map(work, batches) if threads == 1 else _with_threads(batches, work, threads)


def _with_threads(batches: Iterable[IntArray], work: Callable[[IntArray], T], threads: int) -> Iterator[T]:
    from fpdfp._kernels.jit import use

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
