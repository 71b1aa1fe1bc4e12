"""Rows of samples, dense or sparse, checked and sorted by the client that holds them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError


class Rows(NamedTuple):
    """Samples sorted by client: client i holds rows ``offsets[i]:offsets[i + 1]`` of X and y.

    ``weights`` and ``shifts`` are the weight of each row and what is added to its linear form (or forms, a column for
    each); None where all weights are 1 and nothing is added. ``clusters`` are numbers of rows that belong together,
    None where all are apart.
    """

    X: Any
    y: Array
    offsets: IntArray
    names: Array
    weights: Array | None = None
    shifts: Array | None = None
    clusters: IntArray | None = None

    def take(self, clients: IntArray) -> Rows:
        """Return the rows of some clients."""
        some = np.concatenate([np.arange(self.offsets[i], self.offsets[i + 1]) for i in clients])
        ends = np.concatenate([[0], np.cumsum(np.diff(self.offsets)[clients])]).astype(np.int64)
        rest = (None if one is None else one[some] for one in (self.weights, self.shifts, self.clusters))
        return Rows(self.X[some], self.y[some], ends, self.names[clients], *rest)


def collect(
    X: Any,
    y: Any,
    clients: Any,
    n_clients: int | None,
    dtype: DTypeLike | None = None,
    weights: Any = None,
    shifts: Any = None,
    *,
    width: int | None = None,
) -> Rows:
    """Check the samples and sort them by client, by default in the dtype of X; what is kept, no one else can change.

    With ``width`` there may be as many numbers in ``shifts`` for each row.
    """
    given = X, y
    X = _matrix("X", X, None if dtype is None else check_dtype(dtype))
    with _within_range("y", X.dtype):
        y = _checks.float_array("y", y, dtype=X.dtype)
    if y.ndim != 1:
        raise ArgumentError("y", f"must be one-dimensional, got shape {y.shape}")
    if len(y) != X.shape[0]:
        raise ValueError(f"X and y must have the same length, got {X.shape[0]} rows and {len(y)} entries")
    codes, names = _client_numbers(clients, len(y), n_clients)
    counts = np.bincount(codes, minlength=len(names))
    empty = np.flatnonzero(counts == 0)
    if empty.size:
        shown = ", ".join(map(str, names[empty[:5]])) + (", …" if empty.size > 5 else "")
        raise ValueError(f"clients: {empty.size} of {len(names)} clients hold no rows ({shown}); leave them out")
    if weights is not None or shifts is not None:
        weights = np.ones(len(y)) if weights is None else _numbers("weights", weights, len(y))
        shifts = np.zeros(len(y)) if shifts is None else _numbers("offset", shifts, len(y), width)
        if (weights < 0).any():
            raise ArgumentError("weights", f"must be at least 0, got {weights.min():g}")
        if not np.add.reduceat(weights[np.argsort(codes, kind="stable")], np.cumsum(counts) - counts).all():
            raise ArgumentError("weights", "must be positive for some row of every client")
    if (np.diff(codes) < 0).any():
        order = np.argsort(codes, kind="stable")
        X, y = X[order], y[order]
        weights, shifts = (None if one is None else one[order] for one in (weights, shifts))
    else:
        X, y = _own(X, given[0]), _own(y, given[1])
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Rows(X, np.ascontiguousarray(y), offsets, names, weights, shifts)


def _numbers(name: str, value: Any, count: int, width: int | None = None) -> Array:
    """Return a number for each row, or that many, as an array of its own."""
    found = _checks.float_array(name, value, dtype=np.float64)
    if found.shape not in ((count,), (count, width)):
        raise ArgumentError(name, f"must be a number for each of the {count} rows, got shape {found.shape}")
    return found.copy()


def _own(array: Any, given: Any) -> Any:
    """Return an array or CSR matrix that edits of what was given do not change."""
    if isinstance(array, np.ndarray):
        return _checks.own(array, given)
    if given.format == "csr":  # what was made of another format is new
        for part in ("data", "indices", "indptr"):
            setattr(array, part, _checks.own(getattr(array, part), getattr(given, part)))
    return array


def stack(parts: Sequence[Any], targets: Sequence[Any]) -> tuple[Any, Array, IntArray]:
    """Stack the matrices and targets of clients, in order, and number their rows by client."""
    if len(parts) == 0:
        raise ValueError("parts must hold at least one client, got none")
    if len(parts) != len(targets):
        raise ValueError(
            f"there must be a matrix and a target vector for each client, got {len(parts)} and {len(targets)}"
        )
    matrices = [_matrix(f"X of client {i}", part) for i, part in enumerate(parts)]
    vectors = [_checks.float_array(f"y of client {i}", target) for i, target in enumerate(targets)]
    for i, (matrix, vector) in enumerate(zip(matrices, vectors, strict=True)):
        if matrix.shape[1] != matrices[0].shape[1]:
            raise ArgumentError(
                "X", f"of client {i} has {matrix.shape[1]} columns but client 0's has {matrices[0].shape[1]}"
            )
        if vector.shape != (matrix.shape[0],):
            raise ArgumentError("y", f"of client {i} must have shape ({matrix.shape[0]},), got {vector.shape}")
    owner = np.repeat(np.arange(len(matrices)), [matrix.shape[0] for matrix in matrices])
    if all(isinstance(matrix, np.ndarray) for matrix in matrices):
        return np.concatenate(matrices), np.concatenate(vectors), owner
    import scipy.sparse

    return scipy.sparse.vstack(matrices, format="csr"), np.concatenate(vectors), owner


def check_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Return a dtype that rows can have."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise ArgumentError("dtype", f"must be float32 or float64, got {dtype!r}") from None
    if found not in (np.float32, np.float64):
        raise ArgumentError("dtype", f"must be float32 or float64, got {found}")
    return found


@contextlib.contextmanager
def _within_range(name: str, dtype: Any) -> Iterator[None]:
    """Within this, numbers that a dtype cannot hold are refused instead of becoming infinite."""
    try:
        with np.errstate(over="raise"):
            yield
    except FloatingPointError:
        raise ArgumentError(name, f"must hold numbers within the range of {dtype}") from None


def _matrix(name: str, value: Any, dtype: np.dtype[Any] | None = None) -> Any:
    """Return a finite float matrix: a C-ordered array, or a CSR array with sorted indices."""
    if not hasattr(value, "tocsr"):
        with _within_range(name, dtype):
            array = _checks.float_array(name, value, dtype=dtype)
        if array.ndim != 2:
            raise ArgumentError(name, f"must be two-dimensional (rows, features), got shape {array.shape}")
        _nonempty(name, array.shape)
        return array
    import scipy.sparse

    _checks.sparse_matrix(name, value)
    if dtype is None:
        dtype = _checks.kept_dtype(value.dtype)
    with _within_range(name, dtype):
        matrix = scipy.sparse.csr_array(value, dtype=dtype)
    _nonempty(name, matrix.shape)
    _checks.sparse_indices(name, matrix)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()

    def place(entry: int) -> tuple[int, ...]:
        return int(np.searchsorted(matrix.indptr, entry, side="right")) - 1, int(matrix.indices[entry])

    _checks.finite(f"the stored entries of {name}", matrix.data, place)
    return matrix


def _nonempty(name: str, shape: tuple[int, ...]) -> None:
    if 0 in shape:
        raise ArgumentError(name, f"must have at least one row and one column, got shape {shape}")


def _client_numbers(clients: Any, n_rows: int, n_clients: int | None) -> tuple[IntArray, Array]:
    """Return the client number of every row, and the clients' names in order."""
    if clients is None:
        if n_clients not in (None, 1):
            raise ArgumentError("n_clients", "needs clients: which client holds each row")
        return np.zeros(n_rows, dtype=np.int64), np.array([0])
    labels = _checks.host_array("clients", clients)
    if labels.shape != (n_rows,):
        raise ValueError(f"clients must have one entry for each of the {n_rows} rows of X, got shape {labels.shape}")
    if n_clients is None:
        names, codes = _checks.labels("clients", labels)
        return codes, names
    count = _checks.integer("n_clients", n_clients, at_least=1)
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= count:
        raise ValueError(f"clients must be integers from 0 to {count - 1} when n_clients={count} is given")
    return labels.astype(np.int64), np.arange(count)


def count_classes(labels: Array, n_classes: int | None) -> int:
    """Return the number of classes, if the labels are classes."""
    found = np.unique(labels)
    odd = found[(found < 0) | (found != np.floor(found))]
    if odd.size:
        raise ArgumentError("y", f"must hold classes, whole numbers from 0 on, got {odd[0]:g}")
    if n_classes is not None:
        count = _checks.integer("n_classes", n_classes, at_least=2)
        if found[-1] >= count:
            raise ArgumentError(
                "y", f"must hold classes from 0 to {count - 1} when n_classes={count}, got {found[-1]:g}"
            )
        return count
    if found.size < 2:
        raise ArgumentError(
            "y", f"must hold at least two classes, but every label is {found[0]:g}; give n_classes if there are more"
        )
    if found[-1] >= found.size:
        missing = int(np.flatnonzero(found != np.arange(found.size))[0])
        raise ArgumentError(
            "y", f"has no row of class {missing}; give n_classes if there is such a class, or renumber the classes"
        )
    return int(found.size)
