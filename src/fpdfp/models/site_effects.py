"""Intercepts of sites, for rows whose site is said."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.errors import ArgumentError


def effects_of(site: Any, sites: Any, effects: Array, rows: int, *, random: bool = False) -> Array:
    """Return the intercepts of the sites of rows, in their last axis.

    ``effects`` has, in its last axis, those of all ``sites``, or of all but the first, whose own is 0. Where they are
    random those of other sites, or of none, are 0.

    >>> effects_of(["b", "a"], ["a", "b"], np.array([0.5]), 2)
    array([0.5, 0. ])
    """
    if site is None and random:
        return np.zeros((*effects.shape[:-1], rows))
    if site is None:
        raise ArgumentError("site", f"must say where rows are from, with site effects: one of {list(sites)}")
    whole = effects if random else np.concatenate([np.zeros((*effects.shape[:-1], 1)), effects], axis=-1)
    place = {str(name): j for j, name in enumerate(sites)}
    names = [str(site)] * rows if isinstance(site, str) or np.ndim(site) == 0 else [str(one) for one in site]
    strange = [name for name in names if name not in place]
    if len(names) != rows or (strange and not random):
        raise ArgumentError("site", f"must be one of {', '.join(place)} for each of the {rows} rows")
    whole = np.concatenate([whole, np.zeros((*effects.shape[:-1], 1))], axis=-1)
    return np.asarray(whole[..., [place.get(name, -1) for name in names]])
