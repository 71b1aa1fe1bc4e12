"""Separation: coefficients that a likelihood drives to infinity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fpdfp._typing import Array

#: Directions in which less than this part of the information of the null model is left …
KEPT = 1e-4
#: … and less than that of so many events are separated.
EVENTS = 1e-2
#: A coefficient is named if it has this part of the largest share in a direction.
SHARE = 0.1


def find_separated(fitted: Array, null: Array, events: float, names: Sequence[str]) -> list[str]:
    """Return the names of the coefficients that have no finite estimate, in models without a dispersion.

    Where a level of a column, or a combination of columns, has outcomes of one kind alone, the likelihood grows as long
    as coefficients do. A fit then ends somewhere on the way, at a point where next to nothing is known of them: along
    some direction the information vanishes, beside that of the model of the intercept alone.

    Parameters
    ----------
    fitted, null
        The summed information at the fit, and at the model with the intercept alone.
    events
        The information on the intercept of the latter, which is the number of events for counts.
    names
        Of the coefficients.

    Examples
    --------
    >>> null = np.array([[20.0, 5.0], [5.0, 5.0]])  # the intercept, and a group with a quarter of the rows …
    >>> find_separated(np.array([[15.0, 1e-7], [1e-7, 1e-7]]), null, 20.0, ["Intercept", "group"])  # … all of one kind
    ['group']
    """
    scale = 1.0 / np.sqrt(np.diag(null))
    values, vectors = np.linalg.eigh(null * np.outer(scale, scale))
    varies = values > np.finfo(float).eps * len(values) * values[-1]
    whiten = vectors[:, varies] / np.sqrt(values[varies])
    left, directions = np.linalg.eigh(whiten.T @ (fitted * np.outer(scale, scale)) @ whiten)
    gone = (left < KEPT) & (left * events < EVENTS)
    shares = np.abs(whiten @ directions[:, gone]).max(axis=1, initial=0.0)
    return [name for name, share in zip(names, shares, strict=True) if share > SHARE * max(shares.max(), 1e-300)]
