"""Which array library an array belongs to."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np


def namespace(array: Any) -> ModuleType:
    """Return ``numpy`` or ``cupy``, whichever made the array."""
    if isinstance(array, np.ndarray | np.generic | float | int):
        return np
    return sys.modules[type(array).__module__.split(".")[0]]
