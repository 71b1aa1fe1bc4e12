"""Small things that all arrays share."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np

from fpdfp._typing import Array

#: What NumPy computes with; made once, since to make it takes longer than to ask.
_OF_NUMPY = (np.ndarray, np.generic, float, int)


def namespace(array: Any) -> ModuleType:
    """Return ``numpy`` or ``cupy``, whichever made the array."""
    if isinstance(array, _OF_NUMPY):
        return np
    return sys.modules[type(array).__module__.split(".")[0]]


def to_host(array: Array) -> Array:
    """Return an array in the memory of this machine: itself, or a copy of one on the GPU."""
    host: Array = array.get() if hasattr(array, "get") else array
    return host


def read_only(array: Array) -> Array:
    """Return a view that a user's function cannot change the array through; on the GPU an ordinary view."""
    view = array.view()
    if namespace(array) is np:
        view.flags.writeable = False
    return view


def beside(array: Any, other: Array) -> Any:
    """Return a number or an array as arithmetic with another array needs it: besides one on the GPU it is there too."""
    xp = namespace(other)
    if xp is np:
        return array
    return float(array) if np.ndim(array) == 0 else xp.asarray(array)


def dots(a: Array, b: Array) -> Array:
    """The inner product of each row, in float64."""
    products = np.multiply(a, b, dtype=np.float64).reshape(len(a), -1)
    xp = namespace(products)
    # A GPU would have one block add up a row.
    total: Array = products.sum(axis=1) if xp is np else xp.stack([row.sum() for row in products])
    return total


def norms(a: Array) -> Array:
    """The norm of each row, in float64."""
    lengths: Array = np.sqrt(dots(a, a))
    return lengths


class Constant:
    """An array that does not change: it is copied once to each kind of memory and to each precision it is needed in.

    >>> Constant(np.array([1.0, 2.0])).like(np.ones(3, dtype=np.float32))
    array([1., 2.], dtype=float32)
    """

    def __init__(self, values: Array) -> None:
        self.values = values
        self._copies: dict[tuple[str, str], Array] = {}

    def like(self, other: Array) -> Array:
        """Return it in the memory and the precision of another array."""
        xp = namespace(other)
        key = xp.__name__, other.dtype.char
        if key not in self._copies:
            self._copies[key] = xp.asarray(self.values.astype(other.dtype, copy=False))
        return self._copies[key]
