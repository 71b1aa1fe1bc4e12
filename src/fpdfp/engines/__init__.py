"""The road of a run: options, preparation, rounds, checkpoints and the result; and what carries questions to sites."""

from typing import TYPE_CHECKING

from fpdfp._lazy import attach

if TYPE_CHECKING:
    from fpdfp.engines.loop import Observer
    from fpdfp.engines.options import RunOptions
    from fpdfp.engines.ray import Ray
    from fpdfp.engines.result import History, Result
    from fpdfp.engines.run import Run
    from fpdfp.engines.traffic import Traffic

__all__ = ["History", "Observer", "Ray", "Result", "Run", "RunOptions", "Traffic"]
__getattr__ = attach(
    __name__,
    {
        "loop": "Observer",
        "options": "RunOptions",
        "ray": "Ray",
        "result": "History Result",
        "run": "Run",
        "traffic": "Traffic",
    },
)
