"""Settings of single features, by number or by name: factors of penalties, limits, starting values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError


class Names(NamedTuple):
    """The names of the features, and the term of the formula that each belongs to (itself without a formula)."""

    features: Sequence[str]
    terms: Sequence[str]

    def look_up(self, argument: str, given: Mapping[Any, Any], default: Any, *others: str) -> list[Any]:
        """Return what is given for each feature, by its name or by its term, then for the other names allowed."""
        known = {*self.features, *self.terms, *others}
        strange = [str(name) for name in given if str(name) not in known]
        if strange:
            listed = ", ".join(map(repr, [*self.features, *others][:8]))
            raise ArgumentError(f"{argument}:", f"{strange[0]!r} is not a feature or term; features are {listed}")
        by_name = {str(name): value for name, value in given.items()}
        pairs = zip(self.features, self.terms, strict=True)
        found = [by_name.get(name, by_name.get(term, default)) for name, term in pairs]
        return found + [by_name.get(name, default) for name in others]

    def numbers(self, argument: str, given: Any, default: float, *, infinite: bool = False) -> Array:
        """Return a number for each feature, of one for all, an array, or a dictionary."""
        values = self.look_up(argument, given, default) if isinstance(given, Mapping) else given
        array = _floats(argument, values, infinite=infinite)
        if array.shape not in ((), (len(self.features),)):
            raise ArgumentError(
                argument, f"must have a number for each of the {len(self.features)} features, got shape {array.shape}"
            )
        return np.broadcast_to(array, (len(self.features),)).copy()


class Limits(NamedTuple):
    """The least and the largest value that each coefficient may have."""

    lower: Array
    upper: Array


def find_factors(given: Any, names: Names) -> Array:
    """Return the factor of each feature's penalty, 1 where nothing is said."""
    if given is None:
        return np.ones(len(names.features))
    factors = names.numbers("factors", given, 1.0)
    if (factors < 0).any():
        raise ArgumentError("factors", f"must be at least 0, got {factors.min():g}")
    return factors


def find_limits(given: Any, names: Names) -> Limits | None:
    """Return the limits of each coefficient, None if missing at all."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        free = (-np.inf, np.inf)
        pairs = [_pair(pair) for pair in names.look_up("bounds", given, free)]
        lower, upper = (np.array([pair[i] for pair in pairs], dtype=np.float64) for i in range(2))
    else:
        first, second = _pair(given)
        lower = names.numbers("bounds", -np.inf if first is None else first, 0.0, infinite=True)
        upper = names.numbers("bounds", np.inf if second is None else second, 0.0, infinite=True)
    wrong = np.flatnonzero((lower > upper) | (lower == np.inf) | (upper == -np.inf))
    if wrong.size:
        j = int(wrong[0])
        raise ArgumentError(
            "bounds",
            f"must leave a value to every coefficient, got {lower[j]:g} to {upper[j]:g} for {names.features[j]}",
        )
    return None if np.isinf(lower).all() and np.isinf(upper).all() else Limits(lower, upper)


def find_start(given: Any, names: Names, *, intercept: bool, classes: int | None) -> Array | None:
    """Return the values that coefficients start from, the intercept last if there is one; None for the usual start."""
    if given is None:
        return None
    d = len(names.features)
    more = int(intercept)
    if isinstance(given, Mapping):
        if classes is not None:
            raise ArgumentError("start", f"must be an array with a row for each of the {classes} classes")
        others = ("Intercept",) if intercept else ()
        return _floats("start", names.look_up("start", given, 0.0, *others))
    array = _floats("start", given)
    rows = () if classes is None else (classes,)
    if array.shape == (*rows, d) and more:
        array = np.concatenate([array, np.zeros((*rows, 1))], axis=-1)
    if array.shape != (*rows, d + more):
        beside = ", and perhaps the intercept after them" if intercept else ""
        raise ArgumentError(
            "start", f"must have shape {(*rows, d)}, one for each coefficient{beside}, got {array.shape}"
        )
    return array


def _pair(given: Any) -> tuple[Any, Any]:
    if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str) or len(given) != 2:
        raise ArgumentError(
            "bounds", "must be a pair (lower, upper) of numbers or arrays, or a dictionary of such pairs"
        )
    return tuple(_limit(one, i) if np.ndim(one) == 0 else one for i, one in enumerate(given))  # type: ignore[return-value]


def _limit(given: Any, side: int) -> float:
    return (-np.inf, np.inf)[side] if given is None else float(_floats("bounds", given, infinite=True))


def _floats(argument: str, values: Any, *, infinite: bool = False) -> Array:
    if not infinite:
        return _checks.float_array(argument, values, dtype=np.float64)
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ArgumentError(argument, "must be numbers") from None
    if np.isnan(array).any():
        raise ArgumentError(argument, "must not be NaN")
    return array
