"""Participants drawn with unequal probabilities: a fixed number of them, each with the probability that it was given.

A :class:`Sampling` draws sets of n of N clients in which client i is with probability p_i. The mean of n/(N p_i) times
what the clients of a set send then has the mean over all clients for its expectation (D. G. Horvitz and D. J.
Thompson, "A generalization of sampling without replacement from a finite universe", Journal of the American
Statistical Association 47 (1952)).

The scheme is ordered pivotal sampling (J.-C. Deville and Y. Tillé, "Unequal probability sampling without replacement
through a splitting method", Biometrika 85 (1998)): two clients at a time settle which of them stays in. It can be drawn
stratum by stratum (G. Chauvet, "On a characterization of ordered pivotal sampling", Bernoulli 18 (2012)). No two
clients are together in a set more often than if they were drawn independently (P. Brändén and J. Jonasson, "Negative
dependence in sampling", Scandinavian Journal of Statistics 39 (2012)), which systematic sampling does not have and
which bounds the variance (``docs/mathematics.md``).
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError
from fpdfp.rng import Draws, Purpose

#: Importance sampling draws no client less often than one whose constant is this part of the mean.
FLOOR = 0.1
#: No weight may be less than this part of the largest: what is below it is lost in the rounding of probabilities.
SMALLEST = 1e-9
#: Probabilities that near to 1 are 1: what is left of them is rounding.
ROUNDING = 1e-9
CERTAIN = 1.0 - ROUNDING


def importance(lipschitz: Array) -> Array:
    """Return the weights of importance sampling: Lipschitz constants, small ones raised to a tenth of the mean.

    A client with a constant of zero still has a gradient, and what a client remembers is renewed only when it is drawn.

    >>> importance(np.array([0.0, 1.0, 3.0, 4.0])).tolist()
    [0.2, 1.0, 3.0, 4.0]
    """
    raised: Array = np.maximum(lipschitz, FLOOR * lipschitz.mean())
    return raised if raised.any() else np.ones(len(lipschitz))


def inclusion_probabilities(weights: Array, count: int) -> Array:
    """Return probabilities with the sum ``count``, proportional to positive weights but for those that would exceed 1.

    >>> inclusion_probabilities(np.array([1.0, 1.0, 2.0, 12.0]), 2).tolist()
    [0.25, 0.25, 0.5, 1.0]
    """
    order = np.argsort(-weights, kind="stable")
    ordered = weights[order] / weights.max()
    # Those with the largest weights are certain, as long as their part of what is left is at least one client.
    rest = np.cumsum(ordered[::-1])[::-1]
    left = count - np.arange(len(weights))
    certain = int(np.argmin((left > 0) & (left * ordered >= CERTAIN * rest)))
    probabilities = np.ones(len(weights))
    probabilities[order[certain:]] = (count - certain) * ordered[certain:] / rest[certain]
    return probabilities


@dataclasses.dataclass(frozen=True, eq=False)
class Sampling:
    """Sets of clients of a fixed size, with the probability of each client to be in a set.

    Attributes
    ----------
    probabilities
        p_i, above 0 and at most 1; their sum is a whole number n below N, the size of the sets.

    Examples
    --------
    >>> sampling = Sampling(np.array([0.25, 0.25, 0.5, 1.0]))
    >>> [sampling.draw(seed=7, round_=k).tolist() for k in range(4)]
    [[1, 3], [2, 3], [0, 3], [1, 3]]
    >>> sampling.weights.tolist()
    [2.0, 2.0, 1.0, 0.5]
    """

    probabilities: Array

    def __post_init__(self) -> None:
        p = self.probabilities
        if p.ndim != 1 or not ((p > 0) & (p <= 1 + ROUNDING)).all():
            raise ArgumentError("probabilities", "must be a number above 0 and at most 1 for each client")
        if abs(p.sum() - round(float(p.sum()))) > ROUNDING * len(p):
            raise ArgumentError("probabilities", f"must add up to a whole number of clients, got {p.sum():g}")

    @functools.cached_property
    def count(self) -> int:
        """n, the size of a set."""
        return round(float(self.probabilities.sum()))

    @functools.cached_property
    def weights(self) -> Array:
        """n/(N p_i): the mean over a set of what its clients send, multiplied by these, is right in expectation."""
        weights: Array = self.count / (len(self.probabilities) * self.probabilities)
        return weights

    @functools.cached_property
    def certain(self) -> IntArray:
        """The clients that are in every set."""
        return np.flatnonzero(self.probabilities >= CERTAIN)

    @functools.cached_property
    def strata(self) -> Strata:
        """The way in which the others are drawn."""
        return Strata(np.flatnonzero(self.probabilities < CERTAIN), self.probabilities, self.count - len(self.certain))

    def draw(self, seed: int, round_: int) -> IntArray:
        """Return the clients of a round, in ascending order, in a time of O(n log N)."""
        strata = self.strata
        words = Draws(seed, round_, np.zeros(1, dtype=np.int64)).words(Purpose.PARTICIPATION, 4 * strata.count)[0]
        high, low = words.astype(np.uint64).reshape(2, 2, strata.count)
        uniform = ((high << np.uint64(21)) | (low >> np.uint64(11))) * 2.0**-53
        chosen = np.concatenate([self.certain, strata.choose(uniform[0], uniform[1])])
        chosen.sort()
        return chosen


class Strata:
    """Clients side by side on a line, each as long as its probability, cut into strata of length 1.

    Every stratum gives one client to a set. The last client of a stratum may reach over into the next one. The others
    settle which one of them is to meet it, by their lengths. One of these two stays in the set, and the other continues
    to the next stratum, with the part that reaches over for its length.
    """

    def __init__(self, clients: IntArray, probabilities: Array, count: int) -> None:
        self.clients, self.count = clients, count
        ends = np.cumsum(probabilities[clients])
        ends = np.append(ends[:-1] * (count / ends[-1]), float(count)) if count else ends
        cuts = np.arange(1.0, count + 1.0)
        #: Where each client ends, and the last client of each stratum.
        self.ends, self.last = ends, np.searchsorted(ends, cuts)
        over, start = ends[self.last] - cuts, ends[self.last - 1]
        #: How much of a stratum is before its last client, and the probability that this one continues.
        self.before = start - (cuts - 1.0)
        self.passes = (1.0 - (ends[self.last] - start)) / (1.0 - over)

    def choose(self, meeting: Array, passing: Array) -> IntArray:
        """Return a client of each stratum, from two uniform numbers for each: who meets the last one, and who stays."""
        where = np.arange(self.count) + meeting * self.before
        met = np.searchsorted(self.ends, where, side="right")
        return self.settle(np.minimum(met, self.last - 1), passing < self.passes)

    def settle(self, met: IntArray, passes: Array) -> IntArray:
        """Return a client of each stratum, from who meets the last one, and whether that one continues.

        If it is the part of the client that reaches over, it is the one that has come from the stratum before.
        """
        stays = np.empty(self.count, dtype=np.int64)
        coming = before = -1
        for t, (other, last) in enumerate(zip(met.tolist(), self.last.tolist(), strict=True)):
            meets = coming if other == before else other
            stays[t], coming = (meets, last) if passes[t] else (last, meets)
            before = last
        return self.clients[stays]
