"""The interface of linear maps, and upper bounds of ‖B‖², from which stable steps and λ can be chosen."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fpdfp._array import namespace
from fpdfp._numbers import round_up
from fpdfp._typing import Array, Shape
from fpdfp.errors import ArgumentError


class LinOp(abc.ABC):
    """A linear map from arrays of ``in_shape`` to arrays of ``out_shape``.

    Both directions also accept arrays with a leading client axis. The result for a client then has the same bits as
    without the others.

    Attributes
    ----------
    in_shape, out_shape
        The shapes of an argument and of a result, without the client axis.
    """

    in_shape: Shape
    out_shape: Shape

    @abc.abstractmethod
    def apply(self, x: Array) -> Array:
        """Return B x."""

    @abc.abstractmethod
    def adjoint(self, v: Array) -> Array:
        """Return Bᵀ v."""

    @functools.cached_property
    def squared_norm(self) -> float:
        """An upper bound of ‖B‖², the largest eigenvalue of BBᵀ, as tight as can be computed cheaply."""
        return round_up(self._squared_norm())

    def _squared_norm(self) -> float:
        return squared_norm_bound(self)

    @property
    def periodic(self) -> Array | None:
        """The squared gains of a convolution C with ‖Bx‖ ≤ ‖Cx‖ for all x, where one is known.

        Its edges wrap round, and there is a gain for each frequency of ``rfftn``.
        """
        return None

    @property
    def is_identity(self) -> bool:
        """Whether this is the identity, for which methods use a shorter formula."""
        return False

    @property
    def size_in(self) -> int:
        """The number of entries of an argument."""
        return int(np.prod(self.in_shape))

    @property
    def size_out(self) -> int:
        """The number of entries of a result."""
        return int(np.prod(self.out_shape))

    def batch_of(self, array: Array, shape: Shape, name: str) -> int | None:
        """Return the length of the client axis, None without one; raise an error for any other shape."""
        if array.shape == shape:
            return None
        if array.shape[1:] == shape:
            return int(array.shape[0])
        raise ArgumentError(name, f"must have shape {shape}, or that with a leading client axis, got {array.shape}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_shape} → {self.out_shape})"


def adjoint_error(linop: LinOp, rng: np.random.Generator | int = 0, dtype: Any = np.float64) -> float:
    """Return |⟨Bx, v⟩ − ⟨x, Bᵀv⟩| relative to ‖Bx‖‖v‖ + ‖x‖‖Bᵀv‖ for random x and v.

    For a correct adjoint it is about the rounding error of ``dtype``.

    >>> from fpdfp.linops import Gradient
    >>> adjoint_error(Gradient((4, 5, 6))) < 1e-14
    True
    """
    generator = np.random.default_rng(rng)
    x = generator.standard_normal(linop.in_shape).astype(dtype)
    v = generator.standard_normal(linop.out_shape).astype(dtype)
    forward = linop.apply(x)
    backward = linop.adjoint(v)
    error = abs(float(np.vdot(forward, v)) - float(np.vdot(x, backward)))
    scale = float(np.linalg.norm(forward) * np.linalg.norm(v) + np.linalg.norm(x) * np.linalg.norm(backward))
    return error / scale if scale > 0 else error


#: Up to this side a matrix goes through LAPACK.
DENSE = 1000
#: From this side on bounds are verified by Cholesky, after this many steps of Lanczos, with so much added in turn.
VERIFIED, VERIFIED_STEPS, SLACKS = 400, 40, (0.001, 0.02)
#: The longest side for LAPACK of a matrix of which less than a part is there.
SPARSE_SIDE, EMPTY = 200, 0.1
#: The chance that a bound does not hold; and that one for steps does not, which may be up to twice as large.
FAILURE, LIKELY = 1e-12, 1e-6
#: Lanczos takes as many steps as fit into this many operations, within these limits.
BUDGET = 10**10
MIN_STEPS, MAX_STEPS = 40, 200
#: Lanczos vectors are kept for reorthogonalisation, at most this many numbers in all where steps allow.
MEMORY = 1 << 27
#: Dense matrices are read some rows at a time, of this many entries.
AT_A_TIME = 1 << 20
#: The smallest entry of a vector of power steps relative to its largest.
FLOOR = 1e-6


def squared_norm_bound(operator: Any, at_most: int = MAX_STEPS) -> float:
    """Return an upper bound of the largest eigenvalue of BBᵀ for a matrix or a :class:`LinOp`.

    There are three ways, and the cheapest that applies is taken.

    * A matrix whose shorter side is short, and whose Gram matrix G takes little time, goes through LAPACK. The
      eigenvalue is raised by a bound of LAPACK's rounding error. From a side of 400 on, a Cholesky factor of cI − G
      shows sooner that c is a bound, with c a little above what Lanczos finds.
    * Any other map goes through Lanczos from a random start. The Ritz value θ is at most ‖B‖², and by
      J. Kuczyński and H. Woźniakowski, "Estimating the largest eigenvalue by the power and Lanczos algorithms
      with a random start", SIAM J. Matrix Anal. Appl. 13 (1992), Theorem 4.2,

          P(θ < (1 − ε)‖B‖²) ≤ 1.648 √p exp(−√ε (2k − 1))

      after k steps in p dimensions. The bound is θ/(1 − ε), with ε such that this probability is 1e-12.
    * For a matrix, ‖B‖² ≤ ‖B‖₁ ‖B‖_∞ always holds, and the smaller bound is taken.

    Fewer steps than ``MAX_STEPS`` take less time and give a looser bound.
    """
    if isinstance(operator, LinOp):
        linop = operator
        if linop.size_in <= linop.size_out:
            return largest_eigenvalue_bound(lambda u: linop.adjoint(linop.apply(u)), linop.in_shape, at_most)
        return largest_eigenvalue_bound(lambda u: linop.apply(linop.adjoint(u)), linop.out_shape, at_most)
    matrix = operator
    rows, columns = matrix.shape
    entries = int(getattr(matrix, "nnz", rows * columns))
    side = min(rows, columns)
    # A Gram matrix that is nearly empty takes LAPACK longer than Lanczos takes.
    if side <= (SPARSE_SIDE if entries < EMPTY * rows * columns else DENSE) and entries * side <= BUDGET:
        return _dense_bound(matrix)
    steps = min(max(BUDGET // (4 * max(entries, 1)), MIN_STEPS), at_most)
    if columns <= rows:
        bound = largest_eigenvalue_bound(lambda u: sum_parts(matrix, u), (columns,), steps)
    else:
        bound = largest_eigenvalue_bound(lambda u: matrix @ (matrix.T @ u), (rows,), steps)
    return min(bound, _entry_bound(matrix))


def sum_parts(matrix: Any, u: Array) -> Array:
    """Return AᵀAu, where A is long and in single precision some rows at a time.

    NumPy makes a copy in double precision for a product with u: of all rows it would be twice as large as A, for every
    product, also where A is a map of a file.
    """
    if not isinstance(matrix, np.ndarray) or matrix.dtype == u.dtype or matrix.size <= AT_A_TIME:
        image: Array = matrix.T @ (matrix @ u)
        return image
    total = np.zeros(matrix.shape[1])
    for part in _parts(matrix):
        rows = part.astype(u.dtype)
        total += rows.T @ (rows @ u)
    return total


def _parts(matrix: Array) -> Iterator[Array]:
    """Yield some rows after the other."""
    step = max(1, AT_A_TIME // matrix.shape[1])
    for first in range(0, len(matrix), step):
        yield matrix[first : first + step]


def _dense_bound(matrix: Any) -> float:
    matrix = matrix.astype(np.float64)
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    if not isinstance(gram, np.ndarray):
        gram = gram.toarray()
    largest = _verified_bound(gram) if len(gram) >= VERIFIED else float(np.linalg.eigvalsh(gram)[-1])
    inner = int(max(matrix.shape))
    return max(largest, 0.0) * (1.0 + 16 * (len(gram) + inner) * float(np.finfo(np.float64).eps))


def _verified_bound(gram: Array) -> float:
    """Return c for which cI − G has a Cholesky factor, at most a fiftieth above the largest eigenvalue of G."""
    from scipy.linalg.lapack import dpotrf

    theta = _largest_ritz(*_lanczos(lambda u: gram @ u, (len(gram),), VERIFIED_STEPS, random_start((len(gram),))))
    for slack in SLACKS:
        bound = theta * (1.0 + slack)
        shifted = -gram
        shifted.flat[:: len(gram) + 1] += bound
        # Transposed, since LAPACK has columns one after the other; the matrix is its own transpose.
        if dpotrf(shifted.T, clean=0, overwrite_a=1)[1] == 0:
            return bound
    return float(np.linalg.eigvalsh(gram)[-1])


def _entry_bound(matrix: Any) -> float:
    columns: Any = 0.0
    rows = 0.0
    for part in _parts(matrix) if isinstance(matrix, np.ndarray) and matrix.size else (matrix,):
        size = abs(part)
        columns += size.sum(axis=0, dtype=np.float64)
        rows = max(rows, float(size.sum(axis=1, dtype=np.float64).max()))
    rounding = 4 * int(sum(matrix.shape)) * float(np.finfo(np.float64).eps)
    return float(np.max(columns)) * rows * (1.0 + rounding)


def positive_norm_bound(gram: Callable[[Array], Array], start: Array, steps: int, near: float = 1.0) -> float:
    """Bound the largest eigenvalue of a Gram operator that has no negative entries.

    For every positive vector w the largest entry of (Gw)/w is an upper bound (L. Collatz, Mathematische Zeitschrift 48
    (1942) 221-226; H. Wielandt). Power steps from a positive start turn w towards the best one; they end when the bound
    is at most ``near`` times Rayleigh's quotient, a lower one.
    """
    vector, bound = start, np.inf
    for _ in range(steps):
        image = gram(vector)
        bound = min(bound, float((image / vector).max()))
        if bound <= max(near * float(np.vdot(vector, image)) / float(np.vdot(vector, vector)), 0.0):
            break
        # Entries that should be zero are rounding errors.
        vector = np.maximum(image / image.max(), vector.dtype.type(FLOOR))
    return max(bound, 0.0)


def random_start(shape: Shape, xp: Any = np) -> Array:
    """Return a random unit vector, always the same one, in memory or on the GPU."""
    vector: Array = xp.asarray(np.random.default_rng(20240229).standard_normal(int(np.prod(shape))))
    vector /= np.linalg.norm(vector)
    return vector


def largest_eigenvalue_bound(
    gram: Callable[[Array], Array], shape: Shape, steps: int, start: Array | None = None, near: float | None = None
) -> float:
    """Bound the largest eigenvalue of a Gram operator, by Lanczos with full reorthogonalisation.

    ``start`` is :func:`random_start` for the shape, where that is at hand; the operator works on arrays of its kind.
    With ``near`` the steps end when a given multiple of the largest Ritz value is a bound, but for the chance LIKELY.
    """
    dimension = int(np.prod(shape))
    steps = min(dimension, steps, max(MIN_STEPS, MEMORY // dimension))
    start = random_start(shape) if start is None else start
    diagonal, off = _lanczos(gram, shape, steps, start, near)
    theta, taken = _largest_ritz(diagonal, off), len(diagonal)
    if near is not None and _excludes(diagonal, off, near * theta, dimension):
        return near * theta
    if taken < steps or taken == dimension:
        # The Krylov space is exhausted: a random start has a part in every eigenspace, so θ is exact up to the
        # rounding of the operator, which may compute in float32.
        return theta * (1.0 + 1e-5)
    epsilon = (math.log(1.648 * math.sqrt(dimension) / FAILURE) / (2 * taken - 1)) ** 2
    return theta / (1.0 - epsilon)


def _lanczos(
    gram: Callable[[Array], Array], shape: Shape, steps: int, vector: Array, near: float | None = None
) -> tuple[list[float], list[float]]:
    """Return the diagonal of the tridiagonal matrix, and the entries besides it."""
    xp = namespace(vector)
    basis = xp.empty((steps, vector.size))
    diagonal: list[float] = []
    off: list[float] = []
    for k in range(steps):
        basis[k] = vector
        # A copy: it is changed, and may be the vector itself.
        image: Array = xp.array(gram(vector.reshape(shape)), dtype=np.float64).ravel()
        along = vector @ image
        known = basis[: k + 1]
        for _ in range(2):  # twice is enough (Kahan and Parlett)
            image -= known.T @ (known @ image)
        # One wait for a GPU in a step; whatever is not finite shows in the length.
        length = float(np.linalg.norm(image))
        if not math.isfinite(length):
            raise ValueError("linop gives NaN or infinite values for a finite argument")
        diagonal.append(float(along))
        if length <= 1e-13 * max(abs(value) for value in diagonal) or k + 1 == steps:
            break
        if near is not None and _excludes(diagonal, off, near * _largest_ritz(diagonal, off), vector.size):
            break
        off.append(length)
        vector = image / length
    return diagonal, off


def _largest_ritz(diagonal: list[float], off: list[float]) -> float:
    """Return the largest eigenvalue of a tridiagonal matrix, 0 for a negative one."""
    from scipy.linalg import eigvalsh_tridiagonal

    ritz = eigvalsh_tridiagonal(np.array(diagonal), np.array(off)) if off else np.array(diagonal)
    return max(float(ritz[-1]), 0.0)


def _excludes(diagonal: list[float], off: list[float], bound: float, dimension: int) -> bool:
    """Whether a number above the largest Ritz value bounds all eigenvalues, but for the chance LIKELY.

    The steps find polynomials φ_j of which φ_j(G)b, with b the start, are orthonormal. A unit eigenvector u with
    eigenvalue λ thus has Σφ_j(λ)² ≤ 1/(u·b)². The sum grows beyond the largest Ritz value, and |u·b| is below
    LIKELY √(π/2d) with no more than that chance.
    """
    last, current, total = 0.0, 1.0, 1.0
    for j in range(len(off)):
        last, current = current, ((bound - diagonal[j]) * current - (off[j - 1] * last if j else 0.0)) / off[j]
        total += current * current
    return total * LIKELY**2 * math.pi / 2.0 >= dimension


def as_matrix(linop: LinOp, dtype: np.dtype[np.floating]) -> Array:
    """Return Bᵀ as rows B e_1, B e_2, …, each of the shape of Bx."""
    unit = np.eye(linop.size_in, dtype=dtype).reshape(linop.size_in, *linop.in_shape)
    return linop.apply(unit)
