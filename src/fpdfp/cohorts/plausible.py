"""Whether what sites say can be: numbers within bounds, consistent with each other and with those of other sites.

A site may lie about its data, and no one can see that. But a number that no table has, or that makes the answers of all
other sites vanish, is refused, and the site is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fpdfp._array import to_host
from fpdfp._typing import Array
from fpdfp.cohorts.collector import Decoded
from fpdfp.cohorts.losses import LossBounds, LossFacts
from fpdfp.cohorts.serialization import NUMBER, OUTSIDE, ROWS, check_numbers
from fpdfp.errors import MessageError

#: This many times what there is to compare it with a reply may be.
FACTOR = 1e3
#: A reply is judged by earlier ones alone after this many rounds: at first, differences may be nothing but rounding.
ROUNDS = 3


class Outliers:
    """Tells replies that are far too large, from what was accepted before.

    Parameters
    ----------
    scaling, lipschitz
        N w_i of all clients, None where all are 1, and their Lipschitz constants.
    """

    def __init__(self, scaling: Array | None, lipschitz: Array) -> None:
        ones = np.ones(len(lipschitz))
        weights = ones if scaling is None else np.asarray(scaling, dtype=np.float64)
        usable = np.isfinite(lipschitz) & (lipschitz > 0)
        constants = np.where(usable, lipschitz, 1.0) if usable.all() else ones
        #: For each unit and client, the size of one.
        self._units = np.stack([ones, weights, weights * constants])
        #: The largest norm of each field in each unit.
        self._largest: dict[str, Array] = {}
        self._rounds = 0

    def find(self, replies: Mapping[int, Decoded], memory: Any = ()) -> dict[int, str]:
        """Return which sites' replies are far too large, and what is wrong with each."""
        found: dict[int, str] = {}
        if not replies:
            return found
        for field, name in enumerate(next(iter(replies.values())).fields):
            norms = {site: self._norms(reply, field) for site, reply in replies.items()}
            # Of any field: one that is nothing but rounding at first may grow a thousandfold.
            known = np.max([*self._largest.values(), np.zeros(3)], axis=0)
            for site, own in norms.items():
                # Mostly what was accepted before settles it, and nothing else has to be looked at.
                if not (own.max(axis=1) > FACTOR * known).all():
                    continue
                others = [one for other, one in norms.items() if other != site]
                if not others and self._rounds < ROUNDS:
                    continue
                beside = np.median(np.concatenate(others, axis=1), axis=1) if others else np.zeros(3)
                scale = np.maximum(np.maximum(known, self._memory_norms(memory)), beside)
                if (scale > 0).all() and (own.max(axis=1) > FACTOR * scale).all():
                    found[site] = (
                        f"the norm of {name!r} is {own[0].max():.3g}, more than {FACTOR:g} times what others send and "
                        f"what was sent before ({scale[0]:.3g})"
                    )
        return found

    def accept(self, replies: Sequence[Decoded]) -> None:
        """Take note of the replies of a round."""
        self._rounds += 1
        for reply in replies:
            for field, name in enumerate(reply.fields):
                largest = self._norms(reply, field).max(axis=1)
                self._largest[name] = np.maximum(self._largest.get(name, largest), largest)

    def _norms(self, reply: Decoded, field: int) -> Array:
        """Return the norm of a field for each unit and client of a site."""
        rows = to_host(reply.arrays[field]).reshape(len(reply.clients), -1)
        norms: Array = np.linalg.norm(rows.astype(np.float64, copy=False), axis=1)
        return norms / self._units[:, reply.clients]

    def _memory_norms(self, memory: Any) -> Array:
        """Return the largest norm of what the server knows that clients remember, in each unit."""
        largest = np.zeros(3)
        for name in getattr(memory, "_fields", ()):
            array = to_host(getattr(memory, name))
            if name != "version" and array.dtype.kind == "f" and array.ndim > 1 and len(array) == self._units.shape[1]:
                rows = np.linalg.norm(array.reshape(len(array), -1).astype(np.float64), axis=1)
                largest = np.maximum(largest, (rows / self._units).max(axis=1))
        return largest


#: With this many times the rows, or the weight of a row, of the others' median a site would be the answer alone: the
#: others would change it by less than one part in a million, which is less than any standard error.
TIMES = 1e6
#: With such a constant the steps of a run are so much shorter that it does not end; a tiny one makes it diverge.
CONSTANTS = 1e9


def check_facts(name: str, facts: LossFacts, bounds: LossBounds) -> None:
    """Refuse facts and bounds of a site's losses (rows, values, constants) that cannot be."""
    if int(facts.sizes.max(initial=0)) > ROWS or int(facts.sizes.sum()) > ROWS:
        raise MessageError(f"{name} reports {int(facts.sizes.sum())} rows, more than a table can have")
    finite = _finite(bounds.lipschitz)
    if finite.max(initial=0.0) > NUMBER or not bounds.least_convexity <= finite.min(initial=np.inf) * (1 + 1e-6):
        raise MessageError(
            f"{name} reports losses with Lipschitz constants of {finite.max(initial=0.0):.3g} that are strongly "
            f"convex by {bounds.least_convexity:.3g}, which cannot be"
        )
    for what in ("probe", "values"):
        given = getattr(facts, what)
        if (abs(given[given != OUTSIDE]) > NUMBER).any():
            raise MessageError(f"{name} reports losses of {abs(given).max():.3g} at a point, which cannot be")


def compare_facts(names: Sequence[str], facts: Sequence[LossFacts], bounds: Sequence[LossBounds]) -> None:
    """Check the facts and bounds of each site, and refuse a site whose facts would decide the answer alone."""
    for name, one, own in zip(names, facts, bounds, strict=True):
        check_facts(name, one, own)
    compare(names, [float(one.sizes.sum()) for one in facts], TIMES, "{:.0f} rows")
    largest = [float(_finite(one.lipschitz).max(initial=0.0)) for one in bounds]
    compare(names, largest, CONSTANTS, "losses with a Lipschitz constant of {:.3g}")
    known = [i for i, constant in enumerate(largest) if constant > 0]
    compare([names[i] for i in known], [1.0 / largest[i] for i in known], CONSTANTS, "losses of curvature 1/{:.3g}")


def check_at(
    names: Sequence[Any], x: Array, found: Mapping[str, Array], lipschitz: Array, at_zero: Array, *, lower_bound: float
) -> None:
    """Refuse values and gradients of clients at a point that their own constants and values at zero exclude.

    Of a loss f ≥ 0 whose gradient has the Lipschitz constant L, √f(x) ≤ √f(0) + √(L/2)‖x‖, and ‖∇f(x)‖ ≤ √(2L f(x)).
    A factor of 2 is left for rounding.
    """
    if lower_bound < 0.0:
        return
    known = np.where(at_zero < OUTSIDE, at_zero, np.inf)
    norm = float(np.linalg.norm(to_host(x).astype(np.float64).ravel()))
    root = np.sqrt(np.maximum(known, 0.0)) + np.sqrt(lipschitz / 2.0) * norm
    for part, most in (("values", root**2), ("gradients", np.sqrt(2.0 * lipschitz) * root)):
        if part not in found:
            continue
        rows = to_host(found[part]).astype(np.float64).reshape(len(names), -1)
        given = np.linalg.norm(np.where(rows < OUTSIDE, rows, 0.0), axis=1)
        wrong = np.flatnonzero(given > 2.0 * most + 1e-6)
        if wrong.size:
            client = int(wrong[0])
            raise MessageError(
                f"{names[client]} sends {part} of {given[client]:.3g} at a point where its constants allow "
                f"{most[client]:.3g}: these numbers contradict each other"
            )


def _finite(numbers: Array) -> Array:
    """Return the numbers that are finite, whatever their type."""
    given = np.asarray(numbers, dtype=np.float64)
    return given[np.isfinite(given)]


def compare(names: Sequence[str], numbers: Sequence[float], times: float, words: str) -> None:
    """Refuse a number that is a given multiple of the median of the other sites' numbers.

    >>> compare(["north", "east", "south"], [100.0, 5e11, 200.0], 1e6, "{:.0f} rows")
    Traceback (most recent call last):
      ...
    fpdfp.errors.MessageError: east reports 500000000000 rows, and the others report 150 rows in the median: \
its answer would decide the result
    """
    given = np.asarray(numbers, dtype=np.float64)
    if len(given) < 2:
        return
    site = int(given.argmax())
    others = float(np.median(np.delete(given, site)))
    if others > 0 and given[site] > times * others:
        raise MessageError(
            f"{names[site]} reports {words.format(given[site])}, and the others report {words.format(others)} "
            "in the median: its answer would decide the result"
        )


def check_answer(answer: Any) -> None:
    """Refuse an answer about a table with numbers that cannot be, or that contradict each other."""
    check_numbers(answer)
    kind = type(answer).__name__
    if kind == "Sums":
        _check_sums(answer)
    if kind == "Moments" and answer.scatter.ndim == 2:
        spread = np.sqrt(np.diagonal(answer.scatter))
        if (abs(answer.scatter) > np.outer(spread, spread) * (1 + 1e-6) + 1e-300).any():
            raise MessageError("moments must have products of features of at most the roots of their squares")


def _check_sums(sums: Any) -> None:
    for what, counts in (("levels", sums.levels), ("classes", [sums.classes])):
        if any(int(one.sum()) > sums.used for one in counts):
            raise MessageError(f"sums must have {what} of at most the {sums.used} rows that are used")
    if (sums.invalid > sums.used).any():
        raise MessageError(f"sums must be of the {sums.used} rows that are used")
    if not 0 <= sums.weight <= NUMBER or (sums.used == 0 and sums.weight > 0):
        raise MessageError(f"sums must have a weight from 0 on, got {sums.weight:.3g}")


def compare_answers(names: Sequence[str], answers: Sequence[Any]) -> None:
    """Refuse an answer about a table with which one site would be the answer alone."""
    rows = [getattr(one, "used", getattr(one, "rows", None)) for one in answers]
    if not all(isinstance(one, int) for one in rows):
        return
    compare(names, [float(one) for one in rows if one is not None], TIMES, "{:.0f} rows")
    weights = [
        one.weight / used if isinstance(getattr(one, "weight", None), float) and used else 0.0
        for one, used in zip(answers, rows, strict=True)
    ]
    known = [i for i, weight in enumerate(weights) if weight > 0]
    compare([names[i] for i in known], [weights[i] for i in known], TIMES, "a weight of {:.3g} for a row")
