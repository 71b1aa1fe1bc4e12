"""Small things that all arrays share."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np

from fpdfp._typing import Array


def namespace(array: Any) -> ModuleType:
    """Return ``numpy`` or ``cupy``, whichever made the array."""
    if isinstance(array, np.ndarray | np.generic | float | int):
        return np
    return sys.modules[type(array).__module__.split(".")[0]]


def read_only(array: Array) -> Array:
    """Return a view that a user's function cannot change the array through."""
    view = array.view()
    view.flags.writeable = False
    return view
