"""Multiples of penalties."""

from __future__ import annotations

from fpdfp.errors import ArgumentError
from fpdfp.penalties import L1, ElasticNet, GroupL12, SparseGroup, Stacked
from fpdfp.penalties.base import Penalty


def multiply(penalty: Penalty, factor: float) -> Penalty:
    """Return α g; limits of coefficients stay as they are.

    >>> multiply(L1(2.0), 0.5)
    L1(1)
    """
    if isinstance(penalty, L1):
        return L1(factor * penalty.weight)
    if isinstance(penalty, ElasticNet):
        return ElasticNet(factor * penalty.l1, factor * penalty.l2, penalty.lower, penalty.upper)
    if isinstance(penalty, GroupL12):
        return GroupL12(factor * penalty.weight, groups=penalty.groups, axis=penalty.axis)
    if isinstance(penalty, SparseGroup):
        return SparseGroup(factor * penalty.weight, factor * penalty.group_weight, groups=penalty.groups)
    if isinstance(penalty, Stacked):
        return Stacked([multiply(part, factor) for part in penalty.parts], list(penalty.shapes))
    raise ArgumentError(
        "problem", f"must have an l1, elastic-net or group penalty for a path, got {type(penalty).__name__}"
    )
