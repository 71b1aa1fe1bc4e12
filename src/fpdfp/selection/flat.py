"""Problems with coefficients of several classes as problems of one vector."""

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
        return model
    d = math.prod(model.shape)
    linop: LinOp = Identity((d,))
    if not model.linop.is_identity:
        from scipy.sparse import csr_array

        images = model.linop.apply(np.eye(d).reshape(d, *model.shape)).reshape(d, -1)
        linop = Matrix(csr_array(images.T))
    penalty = _flatten_penalty(model.penalty, model.linop.out_shape)
    return Model(penalty.bind(linop.out_shape), linop, (d,), np.dtype(np.float64))


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
