"""The ways kernels are compiled."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.compiler import CompilerBase, DefaultPassBuilder

F = TypeVar("F", bound=Callable[..., Any])


def forget_stale_code(folder: Path) -> None:
    """Delete the machine code that Numba keeps of a folder's kernels if any of their sources has changed.

    Numba looks at a kernel's own file, but not at those of the kernels that were compiled into it.
    """
    stamp = "\n".join(f"{f.name} {f.stat().st_mtime_ns} {f.stat().st_size}" for f in sorted(folder.glob("*.py")))
    cache = folder / "__pycache__"
    mark = cache / "sources.txt"
    # Where nothing can be written here, Numba keeps nothing here either.
    with contextlib.suppress(OSError):
        if mark.is_file() and mark.read_text() == stamp:
            return
        cache.mkdir(exist_ok=True)
        for kept in (*cache.glob("*.nbi"), *cache.glob("*.nbc")):
            kept.unlink(missing_ok=True)
        mark.write_text(stamp)


forget_stale_code(Path(__file__).parent)


def serial(function: F) -> F:
    """Compile a function that other kernels call, or that is too small for threads."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def inline(function: F) -> F:
    """Compile a helper that is always inlined into the kernel that calls it."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")(function))


def reduction(function: F) -> F:
    """Compile a sum whose order the compiler may choose, so that processors can do several terms at once.

    The order is fixed when the kernel is compiled; it does not depend on data or threads.
    """
    free = {"reassoc", "contract"}
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=free)(function))


class _Disjoint(CompilerBase):  # type: ignore[misc]
    """Promise the compiler that the arrays a function is given do not overlap."""

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]


def side_by_side(function: F) -> F:
    """Compile a short loop over entries of arrays that do not overlap, so that processors do several at once.

    Without that promise the machine code checks for overlap before every loop, or does one entry after the other. It is
    put into the kernel that calls it: to call it would take as long as the loop.
    """
    options: Any = {"fastmath": {"contract"}, "pipeline_class": _Disjoint, "forceinline": True}
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function))


def threaded(function: F) -> F:
    """Compile a loop over clients (``prange``) for all threads.

    Starting the threads is cheap, so there is no second, serial version: one piece of machine code computes a
    client's result, whoever else is in the batch and however many threads there are. Called from Python alone.
    """
    compiled = numba.njit(cache=True, nogil=True, error_model="numpy", parallel=True)(function)

    @functools.wraps(function)
    def call(*args: Any) -> None:
        _threads.start()
        compiled(*args)

    return cast(F, call)


class _Threads:
    """Whether this process has started threads, and whether a fork has taken them away."""

    def __init__(self) -> None:
        self.started = False
        self.lost = False
        os.register_at_fork(after_in_child=self._forked)

    def start(self) -> None:
        """Refuse to run where threads were lost: the process would hang or be ended."""
        if self.lost:
            raise RuntimeError(
                "this process was forked after fpdfp had started its threads, which do not survive a fork; "
                "start worker processes with the 'spawn' or 'forkserver' method"
            )
        self.started = True

    def _forked(self) -> None:
        self.lost = self.started


_threads = _Threads()
