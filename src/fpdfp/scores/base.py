"""Scores: numbers that describe how good predictions are, from sums over rows."""

from __future__ import annotations

import abc
import math
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from fpdfp import _checks, families
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.families import Family

#: What outcomes are: two classes, or shares of trials; numbers; several classes; times of events.
Outcome = Literal["binary", "numbers", "classes", "times"]
#: Families that are no :class:`fpdfp.families.Family`, by the names that estimators give them.
OTHERS: dict[str, Outcome] = {"multinomial": "classes", "ordinal": "classes", "cox": "times"}


class Estimate(NamedTuple):
    """The value of a score.

    Attributes
    ----------
    value
        The score; NaN where it has no meaning, as the area under the ROC curve of a single class.
    bound
        The value differs from the exact one by at most this, by what binning hides; 0 for exact sums.
    standard_error
        By which the score of other rows of the same kind would differ; NaN if unknown.
    """

    value: float
    bound: float
    standard_error: float


#: Of a score that has no meaning for the rows there are.
NOTHING = Estimate(math.nan, math.nan, math.nan)


class Score(abc.ABC):
    """A score of predictions.

    Attributes
    ----------
    name
        Its name for :func:`fpdfp.scores.by_name`.
    greater_is_better
        Whether larger values mean better predictions.
    outcomes
        The kinds of outcomes that it is for.
    """

    name: ClassVar[str]
    greater_is_better: ClassVar[bool]
    outcomes: ClassVar[tuple[Outcome, ...]]

    @abc.abstractmethod
    def sums(self, eta: Array, y: Any, weights: Array | None, family: Any) -> Array:
        """Return sums over rows, which add up over clients and sites.

        Parameters
        ----------
        eta
            The linear predictor of each row, offset included; of several classes a column for each, of which the
            softmax are the chances (logarithms of chances are such); of times the risk.
        y
            The outcome of each row: a number, 0 or 1 or a share, the number of a class from 0, or
            :class:`fpdfp.survival.Times`.
        weights
            The weight of each row, None for 1.
        family
            As of :func:`fpdfp.scores.by_name`.

        Returns
        -------
        array of shape (k,)
            In float64, of the same length for all clients.
        """

    @abc.abstractmethod
    def finish(self, sums: Array) -> Estimate:
        """Return the score from the sums of all rows."""

    def refine(self, sums: Array) -> Self | None:
        """Return a score of the same name whose bound is smaller; None if that is small enough, or cannot be."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def outcome_of(family: Any) -> Outcome:
    """Return what the outcomes of a family are.

    >>> outcome_of("poisson"), outcome_of(families.Binomial("probit")), outcome_of("multinomial")
    ('numbers', 'binary', 'classes')
    """
    name = family if isinstance(family, str) else getattr(family, "name", None)
    if isinstance(name, str) and name.lower() in OTHERS:
        return OTHERS[name.lower()]
    known = (*families.NAMED, *OTHERS)
    if not isinstance(name, str) or name not in known:
        raise ArgumentError("family", f"must be one of {', '.join(known)}, or a Family, got {_checks.kind(family)}")
    return "binary" if name in ("binomial", "quasi-binomial") else "numbers"


def as_family(family: Any) -> Family:
    """Return a family of numbers or of two classes, by its name or as it is given."""
    return families.make(family)


def read_rows(eta: Any, y: Any, weights: Any, *, classes: bool = False) -> tuple[Array, Array, Array]:
    """Return predictors, outcomes and weights of rows, which must fit together."""
    found = np.asarray(eta, dtype=np.float64)
    if found.ndim != 1 + classes:
        wanted = "a column for each class" if classes else "one number for each row"
        raise ArgumentError("eta", f"must have {wanted}, got shape {found.shape}")
    # The logarithm of a chance of 0 is minus infinity.
    if np.isnan(found).any() or (found == np.inf).any() or (not classes and np.isinf(found).any()):
        raise ArgumentError("eta", "must be finite")
    targets = np.asarray(y, dtype=np.float64)
    if targets.shape != found.shape[:1]:
        raise ArgumentError("y", f"must have an outcome for each of the {len(found)} rows, got shape {targets.shape}")
    given = read_weights(weights, len(found))
    return found, targets, given


def read_weights(weights: Any, rows: int) -> Array:
    """Return the weight of each row, 1 where none are given."""
    if weights is None:
        return np.ones(rows)
    given = _checks.float_array("weights", weights, shape=(rows,), dtype=np.float64)
    if (given < 0).any():
        raise ArgumentError("weights", f"must be at least 0, got {given.min():g}")
    return given


def log_chances(eta: Array) -> Array:
    """Return the logarithms of the chances of classes, a column for each."""
    from scipy.special import log_softmax

    found: Array = log_softmax(eta, axis=1)
    return found
