"""Scores by their names."""

from __future__ import annotations

from typing import Any

from fpdfp.errors import ArgumentError
from fpdfp.scores.auc import AUC
from fpdfp.scores.base import Score, outcome_of
from fpdfp.scores.means import AbsoluteError, Accuracy, Brier, Deviance, SquaredError
from fpdfp.scores.times import ConcordanceScore, PartialDeviance

KINDS: tuple[type[Score], ...] = (
    Deviance, Brier, Accuracy, AUC, SquaredError, AbsoluteError, PartialDeviance, ConcordanceScore,
)  # fmt: skip


def names_for(family: Any) -> tuple[str, ...]:
    """Return the names of the scores of a family.

    >>> names_for("binomial"), names_for("poisson")
    (('deviance', 'brier', 'accuracy', 'auc'), ('deviance', 'mse', 'mae'))
    """
    return tuple(kind.name for kind in KINDS if outcome_of(family) in kind.outcomes)


def by_name(name: str, family: Any) -> Score:
    """Return a score.

    Parameters
    ----------
    name
        ``"deviance"``, ``"brier"``, ``"accuracy"``, ``"auc"``, ``"mse"``, ``"mae"`` or ``"concordance"``.
    family
        One of :mod:`fpdfp.families` or its name, or ``"multinomial"``, ``"ordinal"`` or ``"cox"``.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> score = fpdfp.scores.by_name("brier", "binomial")
    >>> north = score.sums(np.array([0.5, -1.0, 2.0]), np.array([1, 0, 1]), None, "binomial")
    >>> south = score.sums(np.array([0.0, 0.3]), np.array([1, 0]), None, "binomial")
    >>> round(score.finish(north + south).value, 4)
    0.1618
    """
    accepted = names_for(family)
    if not isinstance(name, str) or name not in accepted:
        shown = family if isinstance(family, str) else family.name
        raise ArgumentError("name", f"must be one of {', '.join(accepted)} for the family {shown}, got {name!r}")
    return next(kind for kind in KINDS if kind.name == name and outcome_of(family) in kind.outcomes)()
