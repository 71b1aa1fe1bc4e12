"""The road of a run: options, preparation, rounds, checkpoints and the result; and what carries questions to sites."""

from typing import TYPE_CHECKING

from fpdfp._lazy import attach

if TYPE_CHECKING:
    from fpdfp.engines.loop import Observer
    from fpdfp.engines.prepare import RunOptions
    from fpdfp.engines.result import History, Result
    from fpdfp.engines.run import Run

__all__ = ["History", "Observer", "Result", "Run", "RunOptions"]
__getattr__ = attach(
    __name__,
    {
        "loop": "Observer",
        "prepare": "RunOptions",
        "result": "History Result",
        "run": "Run",
    },
)
