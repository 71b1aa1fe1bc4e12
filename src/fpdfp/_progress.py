"""A progress bar on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from fpdfp._numbers import format_bits


class Bar:
    """The bar of a run: round, objective, bits up, time left.

    Parameters
    ----------
    rounds, done
        How many rounds there are in all, and how many are done already.
    enabled
        True or False; None shows the bar only where standard error is a terminal.
    label
        What is counted.
    sends
        Whether anything is sent whose bits are to be shown.
    """

    def __init__(
        self, rounds: int, done: int, enabled: bool | None, *, sends: bool = True, label: str = "round"
    ) -> None:
        self._sends, self._label = sends, label
        self._enabled = sys.stderr.isatty() if enabled is None else enabled
        self._rounds = rounds
        self._done = done
        self._progress: Any = None

    def __enter__(self) -> Bar:
        if self._enabled:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn(self._label),
                MofNCompleteColumn(),
                BarColumn(),
                TextColumn("objective {task.fields[objective]}"),
                *([TextColumn("{task.fields[bits]} up")] if self._sends else []),
                TimeRemainingColumn(),
                console=Console(stderr=True, force_terminal=True),
            )
            self._progress.start()
            self._task = self._progress.add_task(
                "", total=self._rounds, completed=self._done, objective="…", bits="0 bit"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def update(self, done: int, objective: float, bits: int) -> None:
        """Show the numbers of the latest evaluation."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done, objective=f"{objective:.6g}", bits=format_bits(bits))
