"""Type aliases that the whole package shares."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
"""A float array; at run time also a CuPy array with the same methods."""

IntArray: TypeAlias = NDArray[np.int64]
Shape: TypeAlias = tuple[int, ...]
