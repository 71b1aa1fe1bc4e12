"""Newton directions of a prox of g∘B whose systems have a narrow band: B sparse, small groups in g."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from scipy.linalg import LinAlgError, solveh_banded
from scipy.sparse import csgraph

from fpdfp._typing import Array, IntArray, Shape
from fpdfp.linops import Compose, Diagonal, LinOp, VStack
from fpdfp.penalties import GroupL12, SparseGroup, Stacked
from fpdfp.penalties.base import Penalty
from fpdfp.quadratic.accelerated import as_sparse

if TYPE_CHECKING:
    from fpdfp.problem import Model

#: Multiplications that a direction may cost.
CHEAP = 1 << 26


class Banded:
    """Solves (I/t + σBᵀDB) d = r, where D is the derivative of a penalty's prox.

    D is zero but between entries of Bu that the prox computes from each other: the groups of a group norm, or single
    entries. So the k-th entries of all sets are looked at together. With features in the reversed order of Cuthill and
    McKee the system has a narrow band.

    E. Cuthill and J. McKee, "Reducing the bandwidth of sparse symmetric matrices", Proc. 24th ACM National Conference
    (1969).
    """

    def __init__(self, linop: Any, sets: IntArray) -> None:
        numbers = np.unique(sets, return_inverse=True)[1]
        order, sizes, count = np.argsort(numbers, kind="stable"), np.bincount(numbers), len(numbers)
        rank = np.empty(count, dtype=np.int64)
        rank[order] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        self.probes = np.zeros((int(sizes.max()), count))
        self.probes[rank, np.arange(count)] = 1.0
        members = np.full((len(sizes), len(self.probes)), -1)
        members[numbers, rank] = np.arange(count)
        columns = members[numbers].T
        self.kept = columns >= 0
        self.entries = np.nonzero(self.kept)[1], columns[self.kept]
        size = abs(linop)
        coupled = scipy.sparse.csr_array(
            scipy.sparse.eye_array(linop.shape[1]) + size.T @ self._derivative(np.ones_like) @ size
        )
        self.order = csgraph.reverse_cuthill_mckee(coupled, symmetric_mode=True).astype(np.int64)
        places = np.empty_like(self.order)
        places[self.order] = np.arange(len(places))
        rows, others = coupled.nonzero()
        self.width = int(np.abs(places[rows] - places[others]).max())
        self.linop = linop[:, self.order]

    @classmethod
    def of(cls, model: Model) -> Banded | None:
        """Return how directions of a model are found, None where that is not known or takes long."""
        if model.device != "cpu" or len(model.shape) != 1:
            return None
        linop, sets = _sparse(model.linop), _sets(model.penalty, model.dual_shape)
        if linop is None or sets is None or int(np.bincount(sets).max()) * len(sets) > CHEAP:
            return None
        found = cls(linop, sets)
        return found if len(found.order) * (found.width + 1) ** 2 <= CHEAP else None

    @property
    def squares(self) -> Array:
        """The squared lengths of the rows of B."""
        lengths: Array = self.linop.power(2).sum(axis=1)
        return lengths

    def _derivative(self, apply: Callable[[Array], Array]) -> Any:
        """Return D as a sparse matrix."""
        return scipy.sparse.csr_array((apply(self.probes)[self.kept], self.entries), (self.kept.shape[1],) * 2)

    def find(self, t: float, derivative: Callable[[Array], Array], sigma: float, right: Array) -> Array:
        """Return d."""
        system = sigma * (self.linop.T @ self._derivative(derivative) @ self.linop)
        entries = scipy.sparse.triu(system, format="coo")
        rows, columns = entries.coords
        band = np.zeros((self.width + 1, len(self.order)))
        band[self.width + rows - columns, columns] = entries.data
        band[-1] += 1.0 / t
        found = np.empty_like(right)
        found[self.order] = _solve_positive(band, right[self.order])
        return found


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
    if linop.is_identity:
        return scipy.sparse.eye_array(linop.size_in, format="csr")
    if isinstance(linop, Diagonal):
        return scipy.sparse.diags_array(np.asarray(linop.factors, dtype=np.float64).ravel()).tocsr()
    if not isinstance(linop, VStack | Compose):
        return as_sparse(linop)
    inside = linop.parts if isinstance(linop, VStack) else (linop.outer, linop.inner)
    parts: list[Any] = [_sparse(part) for part in inside]
    if any(part is None for part in parts):
        return None
    return scipy.sparse.csr_array(scipy.sparse.vstack(parts) if isinstance(linop, VStack) else parts[0] @ parts[1])


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
