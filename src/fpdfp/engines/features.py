"""The features that are left in a run after screening, and the run as others see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fpdfp._array import namespace, read_only
from fpdfp._typing import Array, IntArray, Shape

if TYPE_CHECKING:
    from fpdfp.engines.run import Run
    from fpdfp.problem import Problem


class Left(NamedTuple):
    """The features that are left.

    Attributes
    ----------
    numbers
        Their numbers among all features.
    shape
        The shape of x with all features.
    since
        The round after which all others were left out.
    """

    numbers: IntArray
    shape: Shape
    since: int

    def lift(self, x: Array) -> Array:
        """Return x with all features: zero in those that were left out."""
        whole: Array = namespace(x).zeros(self.shape, dtype=x.dtype)
        whole[..., self.numbers] = x
        return whole

    def __str__(self) -> str:
        return f"{len(self.numbers):,} of {self.shape[-1]:,} left after round {self.since}"


class WholeRun:
    """A run with the features that are left, as callbacks and metrics see it: with the problem that was given.

    x and v have all features; everything else is that of the run.
    """

    def __init__(self, run: Run, problem: Problem, left: Left) -> None:
        self._run, self._left, self.problem = run, left, problem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    @property
    def x(self) -> Array:
        """The current x, not to be written to."""
        return read_only(self._left.lift(self._run.x))

    @property
    def v(self) -> Array | None:
        """The current dual, None where the method keeps none."""
        v = self._run.v
        return None if v is None else self._left.lift(v)
