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


def to_host(array: Array) -> Array:
    """Return an array in the memory of this machine: itself, or a copy of one on the GPU."""
    host: Array = array.get() if hasattr(array, "get") else array
    return host


def read_only(array: Array) -> Array:
    """Return a view that a user's function cannot change the array through."""
    view = array.view()
    view.flags.writeable = False
    return view
