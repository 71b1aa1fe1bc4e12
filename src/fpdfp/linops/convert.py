"""Conversion of a user's B to a :class:`LinOp`."""

from __future__ import annotations

from typing import Any

from fpdfp._typing import Shape
from fpdfp.errors import ArgumentTypeError
from fpdfp.linops.base import LinOp
from fpdfp.linops.matrix import Matrix
from fpdfp.linops.wrapped import Wrapped


def aslinop(value: Any, *, name: str = "linop", in_shape: Shape | None = None) -> LinOp:
    """Return a linear map for an array, a sparse matrix, a ``LinearOperator`` or a :class:`LinOp`.

    A PyLops operator whose ``dims`` are ``in_shape``, that of x, acts on arrays of that shape; any other operator acts
    on vectors.

    >>> aslinop([[1.0, -1.0]])
    Matrix((2,) → (1,))
    """
    if isinstance(value, LinOp):
        return value
    if hasattr(value, "matvec") and hasattr(value, "rmatvec") and hasattr(value, "shape"):
        dims, dimsd = (_shape(value, attribute) for attribute in ("dims", "dimsd"))
        return Wrapped(value, dims, dimsd) if dims is not None and dims == in_shape else Wrapped(value)
    if any(hasattr(value, attribute) for attribute in ("tocsr", "__array__", "__dlpack__")) or isinstance(
        value, list | tuple
    ):
        return Matrix(value, name=name)
    raise ArgumentTypeError(
        name,
        f"must be an array, a sparse matrix, a SciPy LinearOperator or an fpdfp.linops map, got {type(value).__name__}",
    )


def _shape(operator: Any, attribute: str) -> Shape | None:
    """Return the shape that a PyLops operator has for its arguments or results, None for other operators."""
    found = getattr(operator, attribute, None)
    return None if found is None else tuple(int(length) for length in found)
