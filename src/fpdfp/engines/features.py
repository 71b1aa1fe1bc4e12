"""The features that are left in a run, and the run as others see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpdfp._array import namespace, read_only
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.compress import Natural
from fpdfp.engines.ledger import digest
from fpdfp.errors import MessageError
from fpdfp.precondition.base import Announced

if TYPE_CHECKING:
    from fpdfp.engines.run import Run
    from fpdfp.problem import Problem


class Left(NamedTuple):
    """The features that a run is about; all others are zero.

    Attributes
    ----------
    numbers
        Their numbers among all features.
    shape
        The shape of x with all features.
    since
        The round after which all others were left out.
    until
        0 where all others are zero in every solution; elsewhere they are only likely to be, and are looked at when the
        relative gap of the problem in these features is so small.
    """

    numbers: IntArray
    shape: Shape
    since: int
    until: float = 0.0

    @property
    def is_certain(self) -> bool:
        """Whether all others are zero in every solution."""
        return self.until == 0.0

    def lift(self, x: Array) -> Array:
        """Return x with all features: zero in those that were left out."""
        whole: Array = namespace(x).zeros(self.shape, dtype=x.dtype)
        whole[..., self.numbers] = x
        return whole

    @property
    def mask(self) -> Announced:
        """What clients are told: a one for each feature that is left, a zero for the others."""
        mask = np.zeros(self.shape[-1], dtype=np.float32)
        mask[self.numbers] = 1.0
        return Announced.rounded(Natural(), mask)

    def __str__(self) -> str:
        return f"{len(self.numbers):,} of {self.shape[-1]:,} left after round {self.since}"


class Masks:
    """What the sites of an engine were told of the features that runs are about.

    A set of features is told from others by its digest, which is empty for all of them.
    """

    def __init__(self) -> None:
        self._masks: dict[bytes, Announced] = {}
        self._told: dict[int, bytes] = {}

    def keep(self, numbers: IntArray, mask: Announced) -> bytes:
        """Keep a mask for sites that need it, and return its digest."""
        self._masks[found := digest([numbers])] = mask
        return found

    def for_site(self, site: int, features: bytes) -> Announced | None:
        """Return the mask of some features, None if a site knows them."""
        return None if not features or self._told.get(site) == features else self._masks[features]

    def note(self, site: int, features: bytes) -> None:
        """Take note that a site knows some features."""
        if features:
            self._told[site] = features

    def forget(self, site: int) -> None:
        """Take note that a site does not know them."""
        self._told.pop(site, None)


def read_mask(mask: Announced, n_features: int) -> IntArray:
    """Return the features of a mask; raise MessageError for anything else."""
    array = mask.array
    if array.shape != (n_features,) or not ((array == 0) | (array == 1)).all() or not array.any():
        raise MessageError(f"mask must have a zero or a one for each of the {n_features} features, and a one at least")
    return np.flatnonzero(array)


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
