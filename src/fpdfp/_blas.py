"""BLAS with one thread: it then rounds the same way on any number of cores."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any


@functools.cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401 - brings a BLAS of its own, which the controller must find
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _Limit:
    """How many contexts there are around what runs now: the first sets the limit, which takes its time."""

    def __init__(self) -> None:
        self.depth = 0
        self.set: Any = None
        self.lock = threading.Lock()


_limit = _Limit()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Within this context, BLAS uses one thread."""
    with _limit.lock:
        if _limit.depth == 0:
            _limit.set = _controller().limit(limits=1, user_api="blas")
        _limit.depth += 1
    try:
        yield
    finally:
        with _limit.lock:
            _limit.depth -= 1
            if _limit.depth == 0:
                _limit.set.restore_original_limits()
