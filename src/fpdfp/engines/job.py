"""What a site must know of a run."""

from __future__ import annotations

import dataclasses

import numpy as np

from fpdfp import _checks, rng
from fpdfp._typing import Array, IntArray
from fpdfp.compress import Compressor
from fpdfp.methods.base import Algorithm


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a site in a federation.

    Attributes
    ----------
    numbers
        The numbers of the site's clients in the whole federation.
    scaling, total
        N w_i of the site's clients, None where all are 1, and the sum of all weights.
    seed
        The seed of the run.
    """

    numbers: IntArray
    scaling: Array | None
    total: float
    seed: int

    def __post_init__(self) -> None:
        rng.check_seed(self.seed)
        _checks.real("total", self.total, positive=True)
        numbers, scaling = self.numbers, self.scaling
        if numbers.ndim != 1 or not len(numbers) or numbers[0] < 0 or (np.diff(numbers) <= 0).any():
            raise ValueError("numbers must be those of clients, in ascending order")
        if scaling is not None and (scaling.shape != numbers.shape or not (scaling > 0).all()):
            raise ValueError("scaling must be a positive number for each client")


@dataclasses.dataclass(frozen=True)
class Job:
    """What a site must know of a run.

    Attributes
    ----------
    algorithm
        What runs, with what is public of the problem.
    compressors
        One for each field of a reply.
    downlink
        What the server's messages go through; None where they come unchanged.
    place
        The place of the site.
    norm_bound
        The largest norm that a field of a reply may have; longer ones are shortened by both sides. None for none.
    """

    algorithm: Algorithm
    compressors: dict[str, Compressor]
    downlink: Compressor | None
    place: Place
    norm_bound: float | None = None

    def __post_init__(self) -> None:
        if self.norm_bound is not None:
            _checks.real("norm_bound", self.norm_bound, positive=True)
