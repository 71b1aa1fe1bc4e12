"""Type aliases that the whole package shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
"""A float array; at run time also a CuPy array with the same methods."""

IntArray: TypeAlias = NDArray[np.int64]
Shape: TypeAlias = tuple[int, ...]

Sent: TypeAlias = Mapping[str, Any]
"""What makes an object of a class anew at a site: the arguments of its constructor, and the type of each.

A class that declares this may be sent. An argument that has another name as an attribute is a pair: that name, dots
included, and the type. A class with ``from_messages`` is made by that in place of its constructor.
"""


@runtime_checkable
class SparseRows(Protocol):
    """A sparse matrix by rows, as SciPy has it."""

    data: Any
    indices: Any
    indptr: Any
