"""Which entries of an array share a scale."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._array import namespace
from fpdfp._typing import Array, Shape
from fpdfp.compress.base import size_of
from fpdfp.errors import ArgumentTypeError

#: The default bucket, as in the experiments of the QSGD paper.
BUCKET = 512
#: So that twice it can be sent.
LARGEST = 2**61

BlockSpec = int | tuple[int, ...] | None


def check(block: Any) -> BlockSpec:
    """Return a block specification in plain integers."""
    if block is None:
        return None
    if isinstance(block, bool) or not (isinstance(block, tuple | list) or hasattr(block, "__index__")):
        raise ArgumentTypeError("block", f"must be an integer of at least 1, a tuple of axes or None, got {block!r}")
    if isinstance(block, tuple | list):
        axes = tuple(_checks.integer("block: an axis", axis, at_least=0, at_most=14) for axis in block)
        if len(set(axes)) != len(axes) or not axes:
            raise ValueError(f"block: axes must be different and at least one, got {axes}")
        return tuple(sorted(axes))
    return _checks.integer("block", block, at_least=1, at_most=LARGEST)


def length(block: BlockSpec, shape: int | Shape) -> int:
    """Return how many entries share a scale in arrays of a size or shape."""
    if isinstance(block, tuple):
        if np.ndim(shape) == 0:
            raise TypeError("shape: give the shape of the array, not its size, where blocks are slices along axes")
        return length_in(block, _checks.shape("shape", shape))
    return length_in(block, (size_of(shape),))


def length_in(block: BlockSpec, shape: Shape) -> int:
    """Return the same for the shape of an array."""
    if isinstance(block, tuple):
        check_axes(block, shape)
        return max(1, math.prod(n for axis, n in enumerate(shape) if axis not in block))
    size = math.prod(shape)
    return max(1, size if block is None else min(block, size))


def check_axes(block: tuple[int, ...], shape: Shape) -> None:
    """Raise an error for axes that an array does not have."""
    if block[-1] >= len(shape):
        raise ValueError(f"block: axis {block[-1]} does not exist in an array of shape {shape}")


def lay_out(block: BlockSpec, arrays: Array) -> Array:
    """Return arrays as rows, the entries of a block next to each other."""
    if arrays.ndim == 2 and not isinstance(block, tuple):
        return arrays
    shape = tuple(arrays.shape[1:])
    if isinstance(block, tuple):
        check_axes(block, shape)
        order = _order(block, shape)
        if order != list(range(len(shape))):
            arrays = arrays.transpose(0, *(axis + 1 for axis in order))
    return arrays.reshape(len(arrays), math.prod(shape))


def put_back(block: BlockSpec, rows: Array, shape: Shape) -> Array:
    """Undo :func:`lay_out`."""
    if len(shape) == 1 and not isinstance(block, tuple):
        return rows
    order = _order(block, shape) if isinstance(block, tuple) else []
    if order == list(range(len(order))):
        return rows.reshape(len(rows), *shape)
    arrays = rows.reshape(len(rows), *(shape[axis] for axis in order))
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return namespace(rows).ascontiguousarray(arrays.transpose(0, *(axis + 1 for axis in inverse)))


def _order(block: tuple[int, ...], shape: Shape) -> list[int]:
    return [*block, *(axis for axis in range(len(shape)) if axis not in block)]


def to_parameter(block: BlockSpec, shape: Shape) -> int:
    """Write a specification as an integer: 0, twice the bucket, or twice the set of axes plus one."""
    if block is None:
        return 0
    if isinstance(block, tuple):
        check_axes(block, shape)
        return 2 * sum(1 << axis for axis in block) + 1
    return 2 * block


def from_parameter(number: int) -> BlockSpec:
    """Undo :func:`to_parameter`."""
    if number == 0:
        return None
    half = number // 2
    return check(tuple(axis for axis in range(half.bit_length()) if half >> axis & 1) if number % 2 else half)
