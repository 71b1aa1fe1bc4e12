"""What is said of single rows: weights, offsets, classes' weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError


def column(name: str, value: Any, rows: int) -> Array:
    """Return a number for each row, of one for all or an array."""
    found = _checks.float_array(name, value, dtype=np.float64)
    if found.ndim == 0:
        return np.full(rows, float(found))
    if found.shape != (rows,):
        raise ArgumentError(name, f"must be a number for each of the {rows} rows, got shape {found.shape}")
    return found


def row_weights(sample_weight: Any, rows: int) -> tuple[Array | None, float]:
    """Return weights, None if missing, and what makes their mean 1."""
    if sample_weight is None:
        return None, 1.0
    weights = column("sample_weight", sample_weight, rows)
    if (weights < 0).any() or not weights.any():
        found = "but all are zero" if not weights.any() else f"got {weights.min():g}"
        raise ArgumentError("sample_weight", f"must be at least 0 for all rows, and positive for some, {found}")
    return weights, rows / float(weights.sum())


def refuse_of_rows(**given: Any) -> None:
    """Refuse what is said of rows where a formula says it."""
    for name, value in given.items():
        if value is not None:
            instead = "weights='column'" if name == "sample_weight" else "offset(…) in the formula"
            raise ArgumentError(name, f"must be None with a formula; give {instead}")


def refuse_column(weights: Any) -> None:
    """Refuse the name of a column where there is no table."""
    if weights is not None:
        raise ArgumentError("weights", "must be None without a formula; give sample_weight")


def check_class_weight(given: Any) -> None:
    """Refuse what is neither None, "balanced" nor positive numbers by class."""
    if given is None or (isinstance(given, str) and given == "balanced"):
        return
    if not isinstance(given, Mapping):
        raise ArgumentError("class_weight", "must be None, 'balanced', or a dictionary of positive numbers by class")
    for label, value in given.items():
        _checks.real(f"class_weight of {label!r}", value, positive=True)


def class_weights(given: Any, classes: Any, counts: IntArray) -> Array | None:
    """Return the weight of each class, None where all are 1; ``counts`` are the rows of each over all sites.

    >>> class_weights("balanced", ["no", "yes"], np.array([30, 10]))
    array([0.66666667, 2.        ])
    """
    if given is None:
        return None
    if isinstance(given, str):
        balanced: Array = counts.sum() / (len(counts) * counts)
        return balanced
    known = list(classes)
    strange = [label for label in given if label not in known]
    if strange:
        listed = ", ".join(str(one) for one in known)
        raise ArgumentError("class_weight:", f"{strange[0]!r} is not a class; the classes are {listed}")
    return np.array([float(given.get(label, 1.0)) for label in known])
