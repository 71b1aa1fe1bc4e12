"""The base of loggers: every evaluation is logged once, and a failing log does not end a run."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any

from fpdfp._warn import warn
from fpdfp.engines import Observer, Result, Run
from fpdfp.loggers.described import parameters


class Logger(Observer, abc.ABC):
    """A callback of ``fpdfp.solve`` that logs every row of the history, the hyper-parameters and the certificate.

    An error at the start is raised. A later error, for example an unreachable server, gives a warning: the run
    continues, and rows that could not be logged are tried again at the next evaluation.

    To log to another tool, write a subclass with ``open``, ``log``, ``close`` and ``abandon``.
    """

    def __init__(self) -> None:
        self._rows = 0
        self._warned = False
        self._is_open = False

    @abc.abstractmethod
    def open(self, run: Run, values: dict[str, str | int | float]) -> int:
        """Begin or continue a log; return how many rows of the history it already has."""

    @abc.abstractmethod
    def log(self, row: dict[str, float]) -> None:
        """Log a row of the history; values that are not finite are not in it."""

    @abc.abstractmethod
    def close(self, result: Result) -> None:
        """Log how a run ended, and end the log."""

    @abc.abstractmethod
    def abandon(self, error: BaseException) -> None:
        """End the log of a run that ends with an error."""

    def started(self, run: Run, rounds: int) -> None:
        self._warned = self._is_open = False
        self._rows = self.open(run, parameters(run, rounds))
        self._is_open = True
        self._catch_up(run)

    def evaluated(self, run: Run) -> None:
        self._try(lambda: self._catch_up(run))

    def finished(self, run: Run, result: Result) -> None:
        self._end(run, lambda: self.close(result))

    def failed(self, run: Run, error: BaseException) -> None:
        if self._is_open:  # another callback may have failed before or after this one had its turn
            self._end(run, lambda: self.abandon(error))

    def _end(self, run: Run, last: Callable[[], Any]) -> None:
        self._is_open = False
        self._try(lambda: self._catch_up(run))
        self._try(last)

    def _catch_up(self, run: Run) -> None:
        history = run.history
        columns = {name: history[name].tolist() for name in history} if self._rows < history.rows else {}
        while self._rows < history.rows:
            row = {name: values[self._rows] for name, values in columns.items()}
            self.log({name: value for name, value in row.items() if math.isfinite(value)})
            self._rows += 1

    def _try(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as error:
            if not self._warned:
                warn(
                    f"{type(self).__name__} could not log ({type(error).__name__}: {error}); the run continues",
                    RuntimeWarning,
                )
            self._warned = True
