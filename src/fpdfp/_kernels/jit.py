"""The one way kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])

#: Below this many elementary operations a kernel runs on one thread: starting a team costs more.
PARALLEL_THRESHOLD = 400_000


def serial(function: F) -> F:
    """Compile for one thread; ``prange`` then means ``range``."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def inline(function: F) -> F:
    """Compile a helper that is always inlined into the kernel that calls it."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")(function))


class Kernel:
    """A kernel in a serial and a threaded version; the amount of work decides which one runs.

    Both versions compute the same bits: threads share nothing but read-only inputs.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self._serial = serial(function)
        self._threaded = numba.njit(cache=True, nogil=True, error_model="numpy", parallel=True)(function)
        self.__doc__ = function.__doc__

    def __call__(self, work: int, *args: Any) -> None:
        """Run on ``args``; ``work`` is a rough count of elementary operations."""
        if work < PARALLEL_THRESHOLD:
            self._serial(*args)
        else:
            self._threaded(*args)
