"""When two cases of an experiment differ by more than their seeds do.

Cases of a comparison run with the same seeds, so that they are compared seed by seed: the same seed draws the same
clients, and what it does to both cases cancels in their difference.
"""

from __future__ import annotations

import enum
import math
from typing import NamedTuple

import numpy as np
import scipy.special

from fpdfp._typing import Array

#: The confidence of the interval for the mean difference.
CONFIDENCE = 0.95


class Comparison(NamedTuple):
    """One case against another, seed by seed.

    Attributes
    ----------
    difference
        The mean over seeds of the first minus the second.
    zone
        The tie zone: half the width of the 95 % confidence interval of that mean (Student's t over the paired
        differences). Infinite for a single seed, which tells nothing about a spread.
    spread
        By how much one run differs from the next: the larger of the two cases' standard deviations over seeds. Not a
        number for a single seed.
    seeds
        How many seeds there are.
    """

    difference: float
    zone: float
    spread: float
    seeds: int

    @property
    def tied(self) -> bool:
        """Whether the seeds cannot tell the cases apart: the difference is within the tie zone."""
        return abs(self.difference) <= self.zone

    @property
    def less(self) -> bool:
        """Whether the first is less than the second by more than the tie zone."""
        return self.difference < -self.zone

    @property
    def more(self) -> bool:
        """Whether the first is more than the second by more than the tie zone."""
        return self.difference > self.zone

    @property
    def alike(self) -> bool:
        """Whether single runs cannot tell the cases apart: the difference is within the spread of runs.

        With many seeds even an unimportant difference is more than the tie zone, and with few seeds an important one is
        less. One that is smaller than what another seed changes is of no account to somebody who runs either case once.
        """
        return abs(self.difference) <= self.spread


def compare(these: Array, those: Array) -> Comparison:
    """Compare two cases by a value for each seed, given in the same order of seeds.

    A run that diverged has an infinite value: then the difference is infinite and the zone zero.

    >>> compare(np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.1, 3.9])).less
    True
    >>> compare(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.1, 0.9])).tied
    True
    """
    these, those = np.asarray(these, dtype=float), np.asarray(those, dtype=float)
    if these.shape != those.shape or these.ndim != 1:
        raise ValueError(f"both cases need a value for each of the same seeds, got shapes {these.shape}, {those.shape}")
    seeds = len(these)
    if not seeds:
        return Comparison(math.nan, math.inf, math.nan, 0)
    with np.errstate(invalid="ignore"):
        differences = these - those
    if not np.isfinite(differences).all():
        both = not (np.isfinite(these).all() or np.isfinite(those).all())
        return Comparison(0.0 if both else float(np.nansum(differences)), 0.0, 0.0, seeds)
    if seeds == 1:
        return Comparison(float(differences[0]), math.inf, math.nan, seeds)
    spread = float(max(these.std(ddof=1), those.std(ddof=1)))
    return Comparison(float(np.mean(differences)), zone(differences), spread, seeds)


def compare_ratio(these: Array, those: Array) -> Comparison:
    """Compare two cases by the relative difference of the first to the second, seed by seed."""
    these, those = np.asarray(these, dtype=float), np.asarray(those, dtype=float)
    both = np.isinf(these) & np.isinf(those)
    return compare(np.where(both, 1.0, these) / np.where(both, 1.0, those), np.ones(len(those)))


def zone(differences: Array) -> float:
    """Half the width of the confidence interval of the mean of differences, one for each seed (at least two).

    >>> round(zone(np.array([-1.0, 0.0, 1.0])), 3)
    2.484
    """
    count = len(differences)
    quantile = scipy.special.stdtrit(count - 1, 0.5 + CONFIDENCE / 2)
    return float(quantile * np.std(differences, ddof=1) / math.sqrt(count))


class Outcome(enum.StrEnum):
    """What becomes of one case against another at a horizon, where less is better."""

    BETTER = "better"
    WORSE = "worse"
    TIED = "tied"
    TOGETHER = "falling together"


def decide(found: Comparison, fall: float = 0.0) -> Outcome:
    """Decide a comparison at a horizon.

    ``fall`` is by how much the cases fall over the last tenth of the rounds (the larger of the two, see
    :func:`measure_fall`). A difference that is no more than this is one of a few rounds, whatever the tie zone: the
    cases fall together, and the horizon decides nothing. Where the fall is within the tie zone the cases are flat, as
    far as the seeds can tell, and a difference within the zone is a tie.

    >>> decide(Comparison(-3.0, 1.0, 1.0, 5)), decide(Comparison(-3.0, 1.0, 1.0, 5), fall=4.0)
    (<Outcome.BETTER: 'better'>, <Outcome.TOGETHER: 'falling together'>)
    """
    if abs(found.difference) <= max(found.zone, abs(fall)):
        return Outcome.TOGETHER if abs(fall) > found.zone else Outcome.TIED
    return Outcome.BETTER if found.difference < 0 else Outcome.WORSE


def judge_better(outcome: Outcome) -> str:
    """The verdict on the claim that the first case is better."""
    return {
        Outcome.BETTER: "confirmed", Outcome.WORSE: "refuted", Outcome.TIED: "tied", Outcome.TOGETHER: "undecided",
    }[outcome]  # fmt: skip


def judge_as_good(found: Comparison, outcome: Outcome) -> str:
    """The verdict on the claim that the first case is as good as the second.

    It is if it is better, or if single runs cannot tell the two apart. A tie beyond that says that there are too few
    seeds.
    """
    if outcome is Outcome.TOGETHER:
        return "undecided"
    if outcome is Outcome.BETTER or found.alike:
        return "confirmed"
    return "refuted" if outcome is Outcome.WORSE else "undecided"


def measure_fall(before: Array, after: Array) -> float:
    """By how much a value fell, in the mean over seeds; 0 where the seeds cannot tell, or where it is infinite."""
    found = compare(before, after)
    return 0.0 if found.tied or not math.isfinite(found.difference) else found.difference
