"""Ctrl-C that waits for the round to end, so that nothing is lost."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """While active, the first Ctrl-C only sets ``requested``; a second one acts at once.

    Outside the main thread signals cannot be handled, and nothing changes.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: Any = None
        self._active = False

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
            self._active = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._active:
            signal.signal(signal.SIGINT, self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
