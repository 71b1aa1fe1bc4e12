"""Norms of groups of entries, alone and with an l1 norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from fpdfp import _checks
from fpdfp._array import beside, namespace
from fpdfp._typing import Array, IntArray, Sent, Shape
from fpdfp.errors import ArgumentError
from fpdfp.penalties.base import Penalty, describe, shrink_within
from fpdfp.penalties.separable import L1

#: The most axes that an array of NumPy has.
MOST_AXES = 64


class GroupL12(Penalty):
    """The group norm ‖y‖_{1,2}: a weighted sum of the Euclidean norms of groups of entries.

    Either ``axis`` makes the groups, the entries along that axis (isotropic total variation is
    ``GroupL12(μ, axis=0)`` after :class:`fpdfp.linops.Gradient`), or ``groups`` names the group of each entry
    (the group lasso).

    Parameters
    ----------
    weight
        One weight for all groups, or one for each; none negative.
    groups
        The label of each entry's group; groups are numbered in sorted order.
    axis
        The axis whose entries form a group, counted without the client axis.

    Examples
    --------
    >>> import numpy as np
    >>> GroupL12(2.0, groups=["a", "a", "b"]).value(np.array([3.0, 4.0, -1.0]))
    12.0
    >>> GroupL12(1.0, axis=0).prox(np.array([[3.0, 0.3], [4.0, 0.4]]), 1.0)
    array([[2.4, 0. ],
           [3.2, 0. ]])
    """

    sent: ClassVar[Sent] = {"weight": float | Array, "groups": IntArray | None, "axis": int | None}

    def __init__(self, weight: Any, *, groups: Any = None, axis: int | None = None) -> None:
        if (groups is None) == (axis is None):
            raise ValueError("give either groups or axis")
        array = _checks.weights("weight", weight)
        self.weight = float(array) if array.ndim == 0 else array
        self.axis = None if axis is None else _checks.integer("axis", axis, at_least=-MOST_AXES)
        #: The number of each entry's group, where they are named.
        self.groups: Any = None
        self._ndim: int | None = None
        if groups is not None:
            labels = np.asarray(groups)
            if labels.ndim == 0 or labels.size == 0:
                raise ValueError(f"groups must have one label for each entry of an array, got shape {labels.shape}")
            names, codes = _checks.labels("groups", labels)
            if array.ndim and array.shape != names.shape:
                raise ArgumentError(
                    "weight", f"must be one number or one for each of {len(names)} groups, got shape {array.shape}"
                )
            self.groups = codes
            order = np.argsort(codes, axis=None, kind="stable")
            self._order = order
            self._starts = np.searchsorted(codes.ravel()[order], np.arange(len(names)))

    def bind(self, shape: Shape) -> GroupL12:
        if self.axis is None:
            if shape != self.groups.shape:
                raise ArgumentError(
                    "groups",
                    f"must have one label for each entry of Bx, of shape {shape}, got shape {self.groups.shape}",
                )
            return self
        if not -len(shape) <= self.axis < len(shape):
            raise ValueError(f"axis must be an axis of Bx, of shape {shape}, got {self.axis}")
        axis = self.axis % len(shape)
        others = shape[:axis] + shape[axis + 1 :]
        if isinstance(self.weight, np.ndarray) and self.weight.shape != others:
            raise ArgumentError(
                "weight", f"must be one number or have the shape {others} of the groups, got {self.weight.shape}"
            )
        bound = GroupL12(self.weight, axis=axis)
        bound._ndim = len(shape)
        return bound

    def rescale(self, factors: Array) -> GroupL12 | None:
        """Return the norm of y in units of these factors; None where entries of a group have different ones."""
        if self.axis is not None:
            one = np.take(factors, 0, axis=self.axis)
            same = (factors == np.expand_dims(one, self.axis)).all()
            return GroupL12(self.weight * one, axis=self.axis).bind(factors.shape) if same else None
        one = factors.ravel()[self._order][self._starts]
        return GroupL12(self.weight * one, groups=self.groups) if (factors == one[self.groups]).all() else None

    def restrict(self, features: IntArray) -> GroupL12:
        """Return the norm of some entries, for groups that are named."""
        numbers, codes = np.unique(self.groups[features], return_inverse=True)
        return GroupL12(self.weight if isinstance(self.weight, float) else self.weight[numbers], groups=codes)

    def _norms(self, y: Array) -> Array:
        """The norm of each group."""
        norms: Array = namespace(y).sqrt(self._group_sums(y * y))
        return norms

    def _axis_of(self, y: Array) -> int:
        assert self.axis is not None
        return self.axis if self._ndim is None else self.axis + y.ndim - self._ndim

    def _spread(self, factor: Array, y: Array) -> Array:
        """Give each entry the factor of its group."""
        if self.axis is None:
            return factor[..., self.groups]
        expanded: Array = namespace(y).expand_dims(factor, self._axis_of(y))
        return expanded

    def value(self, y: Array) -> float:
        return float((beside(self.weight, y) * self._norms(y)).sum())

    def prox(self, y: Array, t: float) -> Array:
        xp = namespace(y)
        norms = self._norms(y)
        factor = xp.maximum(norms - t * beside(self.weight, y), 0.0) / xp.where(norms > 0, norms, 1.0)
        shrunk: Array = y * self._spread(factor, y)
        return shrunk.astype(y.dtype, copy=False)

    def conjugate(self, v: Array) -> float:
        rounding = 1.0 + 32 * np.finfo(v.dtype).eps
        return 0.0 if bool((self._norms(v) <= beside(self.weight * rounding, v)).all()) else np.inf

    def conjugate_scale(self, v: Array) -> float:
        return shrink_within(self._norms(v), beside(self.weight, v))

    def conjugate_prox(self, y: Array, sigma: float) -> Array:
        xp = namespace(y)
        norms = self._norms(y)
        factor = xp.minimum(beside(self.weight, y) / xp.where(norms > 0, norms, 1.0), 1.0)
        projected: Array = y * self._spread(xp.where(norms > 0, factor, 0.0), y)
        return projected.astype(y.dtype, copy=False)

    def subgradient(self, y: Array) -> Array:
        xp = namespace(y)
        norms = self._norms(y)
        factor = xp.where(norms > 0, beside(self.weight, y) / xp.where(norms > 0, norms, 1.0), 0.0)
        directions: Array = y * self._spread(factor, y)
        return directions.astype(y.dtype, copy=False)

    def conjugate_prox_derivative(self, y: Array, sigma: float) -> Callable[[Array], Array]:
        norms = self._norms(y)
        outside = (norms > self.weight) | (np.asarray(self.weight) == 0)
        safe = np.where(norms > 0, norms, 1.0)
        scale = self._spread(np.where(outside, self.weight / safe, 1.0), y)
        direction = y * self._spread(np.where(outside, 1.0 / safe, 0.0), y)

        def derivative(u: Array) -> Array:
            along = self._group_sums(direction * u)
            result: Array = scale * (u - direction * self._spread(along, u))
            return result

        return derivative

    def _group_sums(self, y: Array) -> Array:
        if self.axis is None:
            # Sorted by group, so that a sum over a group is a sum over a slice, whatever the client axis.
            flat = y.reshape(*y.shape[: y.ndim - self.groups.ndim], -1)
            sums: Array = np.add.reduceat(flat[..., self._order], self._starts, axis=-1)
            return sums
        total: Array = y.sum(axis=self._axis_of(y))
        return total

    def _parameters(self) -> str:
        groups = f"{len(self._starts)} groups" if self.axis is None else f"axis={self.axis}"
        return f"{describe(self.weight)}, {groups}"


class SparseGroup(Penalty):
    """g(y) = Σ_j w_j |y_j| + Σ_g c_g ‖y_g‖: zeros of whole groups, and within groups.

    Its prox is the prox of the l1 norm followed by the prox of the group norm.

    Parameters
    ----------
    weight
        The weight w of the l1 norm: one for all entries, or one for each.
    group_weight
        The weight c of the group norm: one for all groups, or one for each.
    groups
        The label of each entry's group; groups are numbered in sorted order.

    References
    ----------
    N. Simon, J. Friedman, T. Hastie and R. Tibshirani, "A sparse-group lasso", J. Comput. Graph. Stat. 22 (2013).

    Examples
    --------
    >>> import numpy as np
    >>> SparseGroup(1.0, 2.5, groups=["a", "a", "b"]).prox(np.array([4.0, 5.0, 3.0]), 1.0)
    array([1.5, 2. , 0. ])
    """

    sent: ClassVar[Sent] = {"weight": float | Array, "group_weight": float | Array, "groups": IntArray}

    def __init__(self, weight: Any, group_weight: Any, groups: Any) -> None:
        norms = _checks.weights("group_weight", group_weight)  # an error of GroupL12 would name its own argument
        self._l1, self._norms = L1(weight), GroupL12(norms, groups=groups)
        self.weight, self.group_weight, self.groups = self._l1.weight, self._norms.weight, self._norms.groups

    def bind(self, shape: Shape) -> SparseGroup:
        self._l1.bind(shape)
        self._norms.bind(shape)
        return self

    def restrict(self, features: IntArray) -> SparseGroup:
        """Return the penalty of some entries."""
        norms = self._norms.restrict(features)
        return SparseGroup(self._l1.restrict(features).weight, norms.weight, groups=norms.groups)

    def value(self, y: Array) -> float:
        return self._l1.value(y) + self._norms.value(y)

    def prox(self, y: Array, t: float) -> Array:
        return self._norms.prox(self._l1.prox(y, t), t)

    def conjugate(self, v: Array) -> float:
        # The sum of both sets: what is left of v after the l1 norm's part must be within the balls of groups.
        ball, weights = beside(self.group_weight, v), self._norms._norms(np.broadcast_to(self.weight, v.shape))
        allowed = ball + 32 * np.finfo(v.dtype).eps * (ball + beside(weights, v))
        return 0.0 if bool((self._norms._norms(self._l1.prox(v, 1.0)) <= allowed).all()) else np.inf

    def conjugate_prox(self, y: Array, sigma: float) -> Array:
        both: Array = self._l1.conjugate_prox(y, sigma) + self._norms.conjugate_prox(self._l1.prox(y, 1.0), sigma)
        return both

    def subgradient(self, y: Array) -> Array:
        total: Array = self._l1.subgradient(y) + self._norms.subgradient(y)
        return total

    def conjugate_prox_derivative(self, y: Array, sigma: float) -> Callable[[Array], Array]:
        # σ prox_{g/σ}(y/σ) = soft(y) − P(soft(y)), with soft that of the l1 norm, and P the projection on the balls.
        clip = self._l1.conjugate_prox_derivative(y, sigma)
        ball = self._norms.conjugate_prox_derivative(self._l1.prox(y, 1.0), sigma)

        def derivative(u: Array) -> Array:
            kept = u - clip(u)
            change: Array = u - (kept - ball(kept))
            return change

        return derivative

    def _parameters(self) -> str:
        return f"{self._l1._parameters()}, {self._norms._parameters()}"
