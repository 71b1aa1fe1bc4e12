"""Whatever a user has for B, as a :class:`LinOp`."""

from __future__ import annotations

from typing import Any

from fpdfp.linops.base import LinOp
from fpdfp.linops.matrix import Matrix
from fpdfp.linops.wrapped import Wrapped


def aslinop(value: Any, *, name: str = "linop") -> LinOp:
    """Return a linear map for an array, a sparse matrix, a ``LinearOperator`` or a :class:`LinOp`.

    >>> aslinop([[1.0, -1.0]])
    Matrix((2,) → (1,))
    """
    if isinstance(value, LinOp):
        return value
    if hasattr(value, "matvec") and hasattr(value, "rmatvec") and hasattr(value, "shape"):
        return Wrapped(value)
    if hasattr(value, "tocsr") or hasattr(value, "__array__") or isinstance(value, list | tuple):
        return Matrix(value, name=name)
    raise TypeError(
        f"{name} must be an array, a sparse matrix, a SciPy LinearOperator or an fpdfp.linops map, "
        f"got {type(value).__name__}"
    )
