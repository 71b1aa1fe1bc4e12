"""Construction of g and B from the name of a penalty."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from fpdfp import _checks, linops, penalties
from fpdfp._typing import Array
from fpdfp.datasets import FeatureGraph
from fpdfp.errors import ArgumentError
from fpdfp.models.by_feature import Limits

Name = Literal["graph", "fused", "group", "sparse group", "l1", "elasticnet", "mcp", "scad", "ridge", "none"]
NAMES: tuple[Name, ...] = (
    "graph", "fused", "group", "sparse group", "l1", "elasticnet", "mcp", "scad", "ridge", "none"
)  # fmt: skip


class Structure(NamedTuple):
    """What an estimator penalises: g, B (None: the identity), and the ridge of each column."""

    penalty: penalties.Penalty
    linop: linops.LinOp | None
    ridge: Array

    def restrain(
        self, columns: Columns, limits: Limits | None, ridge: float = 0.0, *, absorb: bool = False
    ) -> Structure:
        """Return the same with limits of the features' coefficients, and a ridge of the intercepts of sites.

        With ``absorb`` the ridge of columns becomes a part of the penalty, so that losses need not have it.
        """
        if absorb and self.ridge.any():
            own = np.concatenate([self.ridge, np.zeros(columns.all - len(self.ridge))])
            return self._replace(ridge=np.zeros_like(self.ridge))._add(columns, limits, own)
        if limits is None and not ridge:
            return self
        l2 = np.zeros(columns.all)
        l2[columns.of_rows - columns.effects : columns.of_rows] = ridge
        return self._add(columns, limits, l2)

    def _add(self, columns: Columns, limits: Limits | None, l2: Array) -> Structure:
        """Return the same with limits, and a ridge of each column as a part of the penalty."""
        lower, upper = np.full(columns.all, -np.inf), np.full(columns.all, np.inf)
        if limits is not None:
            lower[: columns.features], upper[: columns.features] = limits
        entries = [columns.repeat(one) for one in (l2, lower, upper)]
        if self.linop is None and isinstance(self.penalty, penalties.Zero | penalties.L1):
            l1 = self.penalty.weight if isinstance(self.penalty, penalties.L1) else 0.0
            return self._replace(penalty=penalties.ElasticNet(l1, *entries))
        shape = entries[0].shape
        first = linops.Identity(shape) if self.linop is None else self.linop
        both = penalties.Stacked([self.penalty, penalties.ElasticNet(0.0, *entries)], [first.out_shape, shape])
        return self._replace(penalty=both, linop=linops.VStack([first, linops.Identity(shape)]))


class Columns(NamedTuple):
    """The columns of the model: features, perhaps an intercept after them, intercepts of sites, and thresholds.

    ``classes`` is the number of classes that have coefficients each: x has a row for each, or is all of these one after
    the other if it is ``flat``. Thresholds have no column of rows. Nothing of them and of intercepts is penalised,
    except intercepts of sites if they are ``random``.
    """

    features: int
    intercept: bool
    classes: int | None = None
    effects: int = 0
    thresholds: int = 0
    flat: bool = False
    random: bool = False

    @property
    def of_rows(self) -> int:
        """The number of columns that rows have."""
        return self.features + int(self.intercept) + self.effects

    @property
    def all(self) -> int:
        """The number of coefficients, of one class if classes have their own."""
        return self.of_rows + self.thresholds

    def square(self, ridge: Array, x: Array) -> float:
        """Return Σ r_j x_j² over the columns of rows, and over classes."""
        return float((ridge * x.reshape(-1, self.all)[:, : self.of_rows] ** 2).sum())

    def spread(self, of_features: Any) -> Array:
        """Weights of the features, with 0 for the intercept, for every class."""
        weights = np.zeros(self.all)
        weights[: self.features] = of_features
        return self.repeat(weights)

    def repeat(self, values: Array) -> Array:
        """The same for every class."""
        if self.classes is None:
            return values
        return np.tile(values, self.classes if self.flat else (self.classes, 1))

    def map(self, matrix: Any) -> linops.LinOp:
        """A sparse matrix over the features as a map of the model, class by class."""
        wide = matrix.tocsr(copy=True)
        wide.resize(matrix.shape[0], self.all)
        if self.flat and self.classes is not None:
            import scipy.sparse

            return linops.Matrix(scipy.sparse.kron(scipy.sparse.eye_array(self.classes), wide, format="csr"))
        return linops.Matrix(wide) if self.classes is None else linops.EachRow(wide, self.classes)


def build(
    name: Name,
    columns: Columns,
    *,
    alpha: float,
    l1_ratio: float,
    l1_weight: float,
    l2: float,
    feature_groups: Any,
    structure: Any,
    factors: Array,
) -> Structure:
    """Return g, B and the ridge of a penalty; ``structure`` is the matrix of a graph or of differences.

    ``factors`` multiply the penalty of each feature.
    """
    ridge = np.zeros(columns.of_rows)
    own = l2 + {"elasticnet": alpha * (1.0 - l1_ratio), "ridge": alpha}.get(name, 0.0)
    ridge[: columns.features] = own * factors
    if name in ("ridge", "none"):
        return Structure(penalties.Zero(), None, ridge)
    if name in ("l1", "elasticnet", "mcp", "scad"):
        weight = alpha * (l1_ratio if name == "elasticnet" else 1.0)
        return Structure(penalties.L1(columns.spread(weight * factors)), None, ridge)
    if name in ("group", "sparse group"):
        share = l1_ratio if name == "sparse group" else 0.0
        codes, of_groups = _groups(name, columns, alpha * (1.0 - share), feature_groups, factors)
        if name == "group":
            return Structure(penalties.GroupL12(of_groups, groups=codes), None, ridge)
        single = columns.spread(alpha * share * factors)
        return Structure(penalties.SparseGroup(single, of_groups, groups=codes), None, ridge)
    import scipy.sparse

    parts, weights = [structure], [np.full(structure.shape[0], alpha)]
    if l1_weight > 0 or structure.shape[0] == 0:
        parts.append(scipy.sparse.eye_array(columns.features))
        weights.append(alpha * l1_weight * factors)
    B = scipy.sparse.vstack(parts).tocsr()
    return Structure(penalties.L1(columns.repeat(np.concatenate(weights))), columns.map(B), ridge)


def differences(features: int) -> Any:
    """The (d − 1) × d matrix of the fused lasso."""
    import scipy.sparse

    ones = np.ones(max(features - 1, 0))
    return scipy.sparse.diags_array([-ones, ones], offsets=[0, 1], shape=(features - 1, features)).tocsr()


def no_edges(features: int) -> FeatureGraph:
    """The graph without edges."""
    import scipy.sparse

    return FeatureGraph(scipy.sparse.csr_array((features, features)))


def _groups(name: str, columns: Columns, alpha: float, feature_groups: Any, factors: Array) -> tuple[Array, Array]:
    """Return the group of each entry, and the weights of groups: alpha times the root of their size, and a factor."""
    if feature_groups is None:
        raise ValueError(f'feature_groups must name the group of each feature if penalty="{name}", got None')
    labels = np.asarray(feature_groups)
    if labels.shape != (columns.features,):
        raise ValueError(
            f"feature_groups must have one label for each of the {columns.features} features, got shape {labels.shape}"
        )
    names, codes = _checks.labels("feature_groups", labels)
    of_groups = np.zeros(len(names))
    of_groups[codes] = factors
    odd = np.flatnonzero(of_groups[codes] != factors)
    if odd.size:
        raise ArgumentError(
            "penalty_weights", f"must be the same for all features of a group, but not in {str(names[codes[odd[0]]])!r}"
        )
    weights = alpha * np.sqrt(np.bincount(codes) * (columns.classes or 1)) * of_groups
    free = columns.all - columns.features
    if free:
        codes, weights = np.append(codes, np.full(free, len(names))), np.append(weights, 0.0)
    return columns.repeat(codes), weights
