"""Problems in the form in which many are solved at once: x is one vector, and an l1 norm is that of its entries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpdfp._typing import Array, Shape
from fpdfp.errors import ArgumentError
from fpdfp.linops import Identity, LinOp, Matrix
from fpdfp.penalties import L1, ElasticNet, GroupL12, SparseGroup, Zero
from fpdfp.penalties.base import Penalty
from fpdfp.problem import Model


def flatten(model: Model) -> Model:
    """Return g and B as functions of the entries of x, one row after the other.

    >>> one = Model(L1(2.0), Identity((3, 4)), (3, 4), np.dtype(np.float64))
    >>> flatten(one).shape, flatten(one).penalty
    ((12,), L1(weights of shape (12,)))
    """
    if len(model.shape) == 1:
        return _take_entries(model)
    d = math.prod(model.shape)
    linop: LinOp = Identity((d,))
    if not model.linop.is_identity:
        from scipy.sparse import csr_array

        images = model.linop.apply(np.eye(d).reshape(d, *model.shape)).reshape(d, -1)
        linop = Matrix(csr_array(images.T))
    penalty = _flatten_penalty(model.penalty, model.linop.out_shape)
    return _take_entries(Model(penalty.bind(linop.out_shape), linop, (d,), np.dtype(np.float64)))


def _take_entries(model: Model) -> Model:
    """Return the l1 norm of multiples of single entries, such as of all but the intercept, as one with weights."""
    if not isinstance(model.linop, Matrix) or not isinstance(model.penalty, L1):
        return model
    from scipy.sparse import csr_array

    rows = csr_array(model.linop.matrix, copy=True)
    rows.eliminate_zeros()
    if (np.diff(rows.indptr) > 1).any():
        return model
    weights = np.repeat(np.broadcast_to(model.penalty.weight, (rows.shape[0],)), np.diff(rows.indptr))
    total = np.bincount(rows.indices, weights * np.abs(rows.data), minlength=model.shape[0])
    return model._replace(penalty=L1(total), linop=Identity(model.shape))


def _flatten_penalty(penalty: Penalty, shape: Shape) -> Penalty:
    """Return a penalty of arrays of a shape as one of vectors."""

    def spread(values: Any) -> Array:
        return np.broadcast_to(values, shape).ravel()

    if isinstance(penalty, Zero) or len(shape) == 1:
        return penalty
    if isinstance(penalty, L1):
        return L1(spread(penalty.weight))
    if isinstance(penalty, ElasticNet):
        return ElasticNet(*map(spread, (penalty.l1, penalty.l2, penalty.lower, penalty.upper)))
    if isinstance(penalty, SparseGroup):
        return SparseGroup(spread(penalty.weight), penalty.group_weight, groups=penalty.groups.ravel())
    if isinstance(penalty, GroupL12):
        if penalty.axis is None:
            return GroupL12(penalty.weight, groups=penalty.groups.ravel())
        along = penalty.axis % len(shape)
        others = tuple(size for axis, size in enumerate(shape) if axis != along)
        numbers = np.expand_dims(np.arange(math.prod(others)).reshape(others), along)
        weights = penalty.weight if np.ndim(penalty.weight) == 0 else np.ravel(penalty.weight)
        return GroupL12(weights, groups=spread(numbers))
    raise ArgumentError(
        "problems", f"must have an l1, elastic-net or group penalty for several classes, got {type(penalty).__name__}"
    )
