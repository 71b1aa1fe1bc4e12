"""The ways kernels are compiled, and how many threads they use: one, or all."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.event import Listener, register

log = logging.getLogger("fpdfp.kernels")

F = TypeVar("F", bound=Callable[..., Any])


def forget_stale_code(folder: Path) -> None:
    """Delete the machine code that Numba keeps of a folder's kernels if any of their sources has changed.

    Numba looks at a kernel's own file, but not at the files of kernels that were compiled into it.
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


class KeptCode(FunctionCache):  # type: ignore[misc]
    """Numba's store of a kernel's machine code on disk, that a full disk does not turn into an error."""

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            log.info(
                "machine code of %s could not be kept, so the next process compiles it again: %s", self._name, error
            )


def _njit(function: F, **options: Any) -> F:
    dispatcher = numba.njit(nogil=True, error_model="numpy", **options)(function)
    dispatcher._cache = KeptCode(function)
    return cast(F, dispatcher)


def serial(function: F) -> F:
    """Compile a function that other kernels call, or that is too small for threads."""
    return _njit(function)


def inline(function: F) -> F:
    """Compile a helper that is always inlined into the kernel that calls it."""
    return _njit(function, inline="always")


def reduction(function: F) -> F:
    """Compile a sum whose order the compiler may choose, so that processors can do several terms at once.

    The order is fixed when the kernel is compiled; it does not depend on data or threads.
    """
    return _njit(function, fastmath={"reassoc", "contract"})


class _Disjoint(CompilerBase):  # type: ignore[misc]
    """Promise the compiler that the arrays a function is given do not overlap."""

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]


def side_by_side(function: F) -> F:
    """Compile a short loop over entries of arrays that do not overlap, so that processors do several at once.

    Without that promise the machine code checks for overlap before every loop, or does one entry after the other. It is
    put into the kernel that calls it: to call it would take as long as the loop. A product that is added may be rounded
    together with the sum.
    """
    return _disjoint(function, {"contract"})


def strictly_side_by_side(function: F) -> F:
    """Do the same, and round every product and every sum on its own."""
    return _disjoint(function, set())


def _disjoint(function: F, free: set[str]) -> F:
    return _njit(function, fastmath=free, pipeline_class=_Disjoint, forceinline=True)


#: Where no argument of a kernel has more entries than this, threads take longer to start than the kernel.
SMALL = 1 << 16


def threaded(function: F) -> F:
    """Compile a loop over clients (``prange``) twice: for all threads, and for one. Called from Python alone.

    Sums whose order the compiler may choose (``reduction``) are compiled on their own and called by both. So a client's
    bits depend neither on who else is in the batch nor on the number of threads. The version for one thread compiles in
    a third of the time, and is the only one that small problems need; ``alone`` of what is returned is that version.
    """
    alone = serial(_renamed(function, "alone"))
    together = _njit(function, parallel=True)

    @functools.wraps(function)
    def call(*args: Any) -> None:
        if use.one_thread or all(arg.size <= SMALL for arg in args if isinstance(arg, np.ndarray)):
            alone(*args)
        else:
            _threads.launch(together, args)

    call.alone = alone  # type: ignore[attr-defined]
    return cast(F, call)


def _renamed(function: F, suffix: str) -> F:
    """Return a copy of a function under another name: Numba keeps machine code by name, whatever the options."""
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__)
    copy.__qualname__ = f"{function.__qualname__}_{suffix}"
    copy.__module__ = function.__module__
    return cast(F, copy)


class _Use(threading.local):
    """Whether kernels use one thread, for each thread of Python that calls them."""

    one_thread = numba.config.NUMBA_NUM_THREADS == 1


use = _Use()


class _Threads:
    """Whether this process has started threads, and whether a fork has taken them away.

    Numba's OpenMP and TBB threads can be launched by several threads of Python at a time. Its own, the "workqueue" that
    it uses where neither is there, abort the process then; those are launched by one after the other.
    """

    def __init__(self) -> None:
        self.started = False
        self.lost = False
        self._one_by_one = threading.Lock()
        self._safe: bool | None = None
        os.register_at_fork(after_in_child=self._forked)

    def launch(self, kernel: Any, args: tuple[Any, ...]) -> None:
        """Call a kernel that launches threads."""
        self._start()
        if self._safe:
            kernel(*args)
            return
        with self._one_by_one:
            kernel(*args)
            # It is chosen by the first launch.
            self._safe = numba.threading_layer() != "workqueue"

    def _start(self) -> None:
        """Refuse to run where threads were lost: the process would hang or be ended."""
        if self.lost:
            raise RuntimeError(
                "this process was forked after fpdfp had started its threads, which do not survive a fork; "
                "start worker processes with the 'spawn' or 'forkserver' method"
            )
        self.started = True

    def _forked(self) -> None:
        self.lost = self.started
        self._one_by_one = threading.Lock()


_threads = _Threads()


#: Work that takes longer than this is worth all threads, and too expensive to repeat for a trial.
SURE = 1.0
#: All threads must be faster than one by this factor: those that wait for work keep cores from other processes.
MARGIN = 1.1
#: This many times what one thread took is late.
LATE = 2.0
#: Work that comes over a network and takes no longer than this is one thread's.
SHORT = 0.005
#: At most so many trials with each number of threads, and at most about this many seconds of each.
TRIALS, PATIENCE = 5, 0.01


def count_threads() -> int:
    """Return how many threads kernels use here."""
    return 1 if use.one_thread else int(numba.get_num_threads())


class Watch:
    """Notices that all threads have become slower than one was at the trial, as where other processes use the cores.

    A thread that waits for its core holds up the others for milliseconds, whatever the work: rounds of 0.4 ms took
    6 to 25 ms on two cores under a load of 12.

    Parameters
    ----------
    alone
        What the work took with one thread, in seconds.
    """

    def __init__(self, alone: float) -> None:
        self.alone, self.late = alone, 0

    def note(self, seconds: float) -> None:
        """Take note of what the work took this time, and use one thread from now on if that is often too long."""
        if use.one_thread:
            return
        self.late = self.late + 1 if seconds > LATE * self.alone else max(self.late - 1, 0)
        use.one_thread = self.late == TRIALS


@contextlib.contextmanager
def fastest(work: Callable[[], object], size: int) -> Iterator[Watch]:
    """Within the context, use one thread or all, whichever does ``work`` sooner, which is done several times.

    Where the work has a ``size`` of few entries, threads take longer to start than to finish it: that is one thread's,
    and nothing is timed. Results do not depend on the choice. The watch changes it if the machine becomes busy.
    """
    before = use.one_thread
    try:
        alone = 0.0 if before or size <= SMALL else _time_alone(work)
        use.one_thread = before or alone == 0.0
        yield Watch(alone)
    finally:
        use.one_thread = before


class Trial:
    """Chooses one thread or all by what the work itself takes: some of it is done with each in turn, and nothing twice.

    For work that comes again and again over a network, and that no one may repeat for a trial. What one thread does
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


def _time_alone(work: Callable[[], object]) -> float:
    """Return the seconds that the work takes with one thread, 0 where all threads are not faster."""
    if numba.get_num_threads() == 1:
        return 0.0
    work()  # compiles
    if _seconds(work, alone=False) > SURE:
        return float("inf")
    # One after the other: in turn, each would find the data in the caches of the other's cores.
    together = _least_seconds(work, alone=False)
    _seconds(work, alone=True)  # compiles
    alone = _least_seconds(work, alone=True)
    return 0.0 if alone < MARGIN * together else alone


def _least_seconds(work: Callable[[], object], *, alone: bool) -> float:
    """Return the least time of some trials, since all else is disturbance."""
    taken = [_seconds(work, alone=alone)]
    while len(taken) < TRIALS and sum(taken) < PATIENCE:
        taken.append(_seconds(work, alone=alone))
    return min(taken)


def _seconds(work: Callable[[], object], *, alone: bool) -> float:
    use.one_thread = alone
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def until_compiled(plain: Callable[..., Any], fits: Callable[..., bool], patience: float) -> Callable[[F], F]:
    """Have NumPy do what a kernel does, to the last bit, until compiling the kernel is worth its time.

    Machine code that an earlier process has kept is used at once. ``fits`` states whether the arguments are such that
    ``plain`` can do it; after ``patience`` seconds in it, about what compiling takes, the kernel takes over.
    """

    def wrap(kernel: F) -> F:
        left = patience
        ready: bool | None = None

        @functools.wraps(kernel)
        def call(*args: Any) -> Any:
            nonlocal left, ready
            if ready is None:
                ready = _is_kept(kernel)
            if ready or not fits(*args):
                return kernel(*args)
            started = time.perf_counter()
            done = plain(*args)
            left -= time.perf_counter() - started
            ready = left < 0
            return done

        return cast(F, call)

    return wrap


def _is_kept(kernel: Any) -> bool:
    """Whether Numba has kept machine code of a kernel, for one thread or for all."""
    dispatcher = numba.njit(cache=True)(inspect.unwrap(kernel))
    folder = Path(dispatcher.stats.cache_path)
    name = f"{dispatcher.__module__.rpartition('.')[2]}.{dispatcher.py_func.__qualname__}"
    return any(True for pattern in (f"{name}-*.nbi", f"{name}_alone-*.nbi") for _ in folder.glob(pattern))


def interpret(kernel: Any) -> Any:
    """Return a kernel of integer arithmetic as a function that Python runs, with all kernels that it calls."""
    function = kernel.py_func
    mentioned = [name for name in function.__code__.co_names if name in function.__globals__]
    names = {name: _interpreted(function.__globals__[name]) for name in mentioned}
    return types.FunctionType(function.__code__, function.__globals__ | names)


class _InterpretedModule:
    """A module of kernels, as interpreted functions."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = _interpreted(getattr(self._module, name))
        setattr(self, name, value)
        return value


def _interpreted(value: Any) -> Any:
    """Return what stands in the interpreter for a kernel, a module of kernels or a type of Numba."""
    if hasattr(value, "interpreted"):
        return value.interpreted
    if hasattr(value, "py_func"):
        return interpret(value)
    if isinstance(value, types.ModuleType) and value.__name__.startswith(__package__):
        return _InterpretedModule(value)
    if isinstance(value, numba.types.Type):
        return {numba.int64: int, numba.uint64: _wrapped}[value]
    return value


def _wrapped(value: int) -> int:
    return int(value) & (1 << 64) - 1


class _Notice(Listener):  # type: ignore[misc]
    """Say that kernels are being compiled, once that has taken some time."""

    #: Seconds of silence.
    AFTER = 2.0

    def __init__(self) -> None:
        self.left = self.AFTER
        self.depth = 0
        self.began = 0.0
        self.spent = 0.0
        self.timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        self.depth += 1
        if self.depth > 1:
            return
        self.began = time.perf_counter()
        if self.left > 0:
            self.timer = threading.Timer(self.left, self.say)
            self.timer.daemon = True
            self.timer.start()

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth > 0:
            return
        taken = time.perf_counter() - self.began
        self.spent += taken
        self.left -= taken
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def say(self) -> None:
        """Write a line, on a terminal and into the log."""
        self.left = 0.0
        text = "compiling fpdfp's kernels for this machine: once, at most a minute; later calls start at once"
        log.info(text)
        if sys.stderr.isatty():
            from rich.console import Console

            Console(stderr=True).print(text)


_notice = _Notice()
register("numba:compile", _notice)


def working_time() -> float:
    """Return the seconds of a clock that stands still while kernels are compiled."""
    return time.perf_counter() - _notice.spent
