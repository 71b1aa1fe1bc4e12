"""Newton directions for the prox of g∘B in the coordinates of a preconditioner, where features meet few others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from scipy.linalg import LinAlgError, solveh_banded
from scipy.sparse import csgraph

from fpdfp._typing import Array, IntArray, Shape
from fpdfp.linops import LinOp, VStack
from fpdfp.penalties import GroupL12, SparseGroup, Stacked
from fpdfp.penalties.base import Penalty
from fpdfp.precondition.base import Preconditioner
from fpdfp.problem import Model
from fpdfp.quadratic.accelerated import as_sparse

#: Multiplications that a direction may cost.
CHEAP = 1 << 26


class Coupling:
    """B as a sparse matrix, and which entries of Bx the prox of g computes from each other.

    The derivative D of such a prox is zero but between entries of a set, so that the k-th entries of all sets are
    looked at together.
    """

    def __init__(self, linop: Any, sets: IntArray) -> None:
        self.linop = linop
        numbers = np.unique(sets, return_inverse=True)[1]
        order, sizes = np.argsort(numbers, kind="stable"), np.bincount(numbers)
        count = len(numbers)
        rank = np.empty(count, dtype=np.int64)
        rank[order] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        self.probes = np.zeros((int(sizes.max()), count))
        self.probes[rank, np.arange(count)] = 1.0
        members = np.full((len(sizes), len(self.probes)), -1)
        members[numbers, rank] = np.arange(count)
        columns = members[numbers].T
        self.kept = columns >= 0
        self.rows, self.columns = np.nonzero(self.kept)[1], columns[self.kept]

    @classmethod
    def of(cls, model: Model) -> Coupling | None:
        """Return that of a model, None where it is not known or would be large."""
        if model.device != "cpu" or len(model.shape) != 1:
            return None
        linop, sets = _sparse(model.linop), _sets(model.penalty, model.dual_shape)
        if linop is None or sets is None:
            return None
        sizes = np.bincount(sets)
        return cls(linop, sets) if int(sizes.max()) * len(sets) <= CHEAP else None

    def derivative(self, apply: Callable[[Array], Array]) -> Any:
        """Return D as a sparse matrix."""
        shape = (self.kept.shape[1],) * 2
        return scipy.sparse.csr_array((apply(self.probes)[self.kept], (self.rows, self.columns)), shape)

    def band(self, metric: Any) -> Band:
        """Return the order of features in which M + BᵀDB has a narrow band, and how narrow."""
        sizes = abs(self.linop)
        coupled = scipy.sparse.csr_array(abs(metric) + sizes.T @ self.derivative(np.ones_like) @ sizes)
        order = csgraph.reverse_cuthill_mckee(coupled, symmetric_mode=True).astype(np.int64)
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        rows, columns = coupled.nonzero()
        return Band(order, int(np.abs(places[rows] - places[columns]).max()))


class Band(NamedTuple):
    """An order of features, and the width of a band beside the diagonal."""

    order: IntArray
    width: int

    @property
    def is_cheap(self) -> bool:
        """Whether a system with such a band is solved fast enough to be solved many times a round."""
        return len(self.order) * (self.width + 1) ** 2 <= CHEAP


class Banded:
    """Solves (I/t + σ(BS)ᵀD BS) d = r, where D is the derivative of a penalty's prox.

    With M = S⁻ᵀS⁻¹ this is (M/t + σBᵀDB) Sd = S⁻ᵀr. Where S whitens blocks of features, and a row of B has few of them,
    that matrix has a narrow band once features are put in the reversed order of Cuthill and McKee.
    """

    def __init__(self, coupling: Coupling, band: Band, coordinates: Preconditioner, metric: Any) -> None:
        self.coupling, self.band, self.coordinates = coupling, band, coordinates
        self.linop, self.metric = coupling.linop[:, band.order], metric[band.order][:, band.order]

    @classmethod
    def of(cls, model: Model, coordinates: Preconditioner | None) -> Banded | None:
        """Return how directions of a model are found, None where that is not known or takes long."""
        metric = None if coordinates is None else coordinates.metric
        coupling = None if metric is None else Coupling.of(model)
        if coordinates is None or coupling is None:
            return None
        band = coupling.band(metric)
        return cls(coupling, band, coordinates, metric) if band.is_cheap else None

    def lengths(self) -> Array:
        """Return the squared lengths of the rows of BS, as if S were diagonal."""
        squares: Array = self.linop.power(2) @ (1.0 / self.metric.diagonal())
        return squares

    def find(self, t: float, derivative: Callable[[Array], Array], sigma: float, right: Array) -> Array:
        """Return d."""
        order, width = self.band
        system = self.metric / t + sigma * (self.linop.T @ self.coupling.derivative(derivative) @ self.linop)
        entries = scipy.sparse.triu(system, format="coo")
        rows, columns = entries.coords
        band = np.zeros((width + 1, len(order)))
        band[width + rows - columns, columns] = entries.data
        found = np.empty_like(right)
        found[order] = _solve_positive(band, self.coordinates.gradient(right)[order])
        return self.coordinates.coordinates(found)


def _solve_positive(band: Array, right: Array) -> Array:
    """Solve a positive semidefinite system, with as little regularisation as makes it definite."""
    ridge = 0.0
    while True:
        try:
            solution: Array = solveh_banded(band, right)
            if np.isfinite(solution).all():
                return solution
        except LinAlgError:
            pass
        ridge = max(10.0 * ridge, 1e-14 * float(band[-1].mean()))
        band[-1] += ridge


def _sparse(linop: LinOp) -> Any | None:
    """Return B as a sparse matrix, None for one that is not given by its entries."""
    if isinstance(linop, VStack):
        parts = [_sparse(part) for part in linop.parts]
        return None if any(part is None for part in parts) else scipy.sparse.csr_array(scipy.sparse.vstack(parts))
    return scipy.sparse.eye_array(linop.size_in, format="csr") if linop.is_identity else as_sparse(linop)


def _sets(penalty: Penalty, shape: Shape) -> IntArray | None:
    """Return the number of the set of each entry that the prox computes together, None where that is not known."""
    if isinstance(penalty, Stacked):
        found, first = [], 0
        for part, own in zip(penalty.parts, penalty.shapes, strict=True):
            sets = _sets(part, own)
            if sets is None:
                return None
            found.append(first + sets)
            first += int(sets.max()) + 1
        return np.concatenate(found)
    if isinstance(penalty, GroupL12 | SparseGroup):
        return None if penalty.groups is None else penalty.groups.ravel()
    return np.arange(math.prod(shape)) if penalty.separable else None
