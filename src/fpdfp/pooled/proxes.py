"""The prox of a weighted l1 norm of Bx in a diagonal metric, with its dual.

    argmin_u ½ Σ_i m_i (u_i − t_i)² + Σ_e w_e |(Bu)_e|

For differences of neighbours it is exact, for any other sparse B as near as is asked for.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse

from fpdfp._typing import Array, IntArray
from fpdfp.linops import Difference, Matrix
from fpdfp.linops.base import LinOp
from fpdfp.penalties import L1
from fpdfp.penalties.base import Penalty

#: The most dual steps for one prox.
MOST = 2000


class Prox(Protocol):
    """A prox in a diagonal metric."""

    def apply(self, target: Array, metric: Array, v: Array, enough: float) -> tuple[Array, Array]:
        """Return u and its dual, within a duality gap; v is where to start."""


def find_prox(linop: LinOp, penalty: Penalty) -> Prox | None:
    """Return the prox of a penalty of Bx, None for what has another form."""
    if not isinstance(penalty, L1) or len(linop.in_shape) != 1:
        return None
    matrix = as_sparse(linop)
    if matrix is None:
        return None
    weights = np.broadcast_to(np.asarray(penalty.weight, dtype=np.float64).ravel(), (matrix.shape[0],))
    return find_chain(matrix, weights) or SparseProx.of(matrix, weights)


def as_sparse(linop: LinOp) -> Any | None:
    """Return B as a CSR matrix in float64, None for one that is not given by its entries."""
    if isinstance(linop, Difference):
        count = linop.size_in
        return scipy.sparse.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(count - 1, count)).tocsr()
    if isinstance(linop, Matrix) and linop.sparse:
        return linop.matrix.astype(np.float64, copy=False)
    return None


class ChainProx(NamedTuple):
    """B has multiples of differences of neighbours: row e is c_e (x_{j+1} − x_j), and ``edges`` has its j."""

    edges: IntArray
    factors: Array
    weights: Array

    def apply(self, target: Array, metric: Array, v: Array, enough: float) -> tuple[Array, Array]:
        """Return u and its dual, exactly up to rounding."""
        from fpdfp._kernels.differences import prox_chain

        u = np.empty_like(target)
        prox_chain(target, metric, self.weights, u)
        # The dual of u_{j+1} − u_j is what all before have too much.
        dual = np.cumsum(metric * (u - target))[:-1]
        clipped = np.minimum(np.maximum(dual, -self.weights), self.weights)
        return u, clipped[self.edges] / self.factors


def find_chain(matrix: Any, weights: Array) -> ChainProx | None:
    """Return the prox of differences of neighbours, None for a B with any other row."""
    columns = matrix.shape[1]
    if not (np.diff(matrix.indptr) == 2).all():
        return None
    sorted_matrix = matrix if matrix.has_sorted_indices else matrix.sorted_indices()
    places, entries = sorted_matrix.indices.reshape(-1, 2), sorted_matrix.data.reshape(-1, 2)
    edges, factors = places[:, 0], entries[:, 1]
    neighbours = (places[:, 1] == edges + 1) & (entries[:, 0] == -factors) & (factors != 0)
    if not neighbours.all() or np.bincount(edges).max(initial=0) > 1:
        return None
    of_edges = np.zeros(columns - 1)
    of_edges[edges] = weights * np.abs(factors)
    return ChainProx(edges, factors, of_edges)


class SparseProx(NamedTuple):
    """Any sparse B, by dual steps."""

    matrix: Any
    turned: Any
    weights: Array
    #: |B|, and the sums of its columns.
    sizes: Any
    sums: Array

    @classmethod
    def of(cls, matrix: Any, weights: Array) -> SparseProx:
        """Return the prox of a CSR matrix."""
        sizes = abs(matrix)
        return cls(matrix, matrix.T.tocsr(), np.ascontiguousarray(weights), sizes, sizes.sum(axis=0))

    def apply(self, target: Array, metric: Array, v: Array, enough: float) -> tuple[Array, Array]:
        """Return u and its dual, within a duality gap or after MOST steps."""
        from fpdfp._kernels.differences import prox_sparse

        there, back = self.matrix, self.turned
        # Steps of this length are stable whatever B is: A. Chambolle and T. Pock, "Diagonal preconditioning for first
        # order primal-dual algorithms in convex optimization", ICCV 2011.
        sizes = self.sizes @ (self.sums / metric)
        steps = 1.0 / np.where(sizes > 0, sizes, 1.0)
        dual, u = np.minimum(np.maximum(v, -self.weights), self.weights), np.empty_like(target)
        prox_sparse(
            there.data, there.indices, there.indptr, back.data, back.indices, back.indptr, steps, target, metric,
            self.weights, enough, MOST, dual, u,
        )  # fmt: skip
        return u, dual
