"""A block-diagonal preconditioner: the inverse of what is between neighbouring features."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, Shape
from fpdfp.compress import QSGD
from fpdfp.linops import EachRow, LinOp, Matrix
from fpdfp.precondition.base import Announced, Coded


class Group(NamedTuple):
    """Blocks of one size that follow each other: where their numbers and their features begin, and how many there are.

    Numbers are the lower triangles of all blocks, one after the other.
    """

    number: int
    feature: int
    many: int
    size: int

    def read(self, numbers: Array) -> Array:
        """Return the lower triangular matrices of the group's blocks."""
        rows, columns = np.tril_indices(self.size)
        end = self.number + self.many * len(rows)
        matrices = np.zeros((self.many, self.size, self.size))
        matrices[:, rows, columns] = numbers[self.number : end].reshape(self.many, len(rows))
        return matrices

    def read_symmetric(self, numbers: Array) -> Array:
        """Return the symmetric matrices of the group's blocks."""
        matrices = self.read(numbers)
        return matrices + np.tril(matrices, -1).swapaxes(1, 2)


def groups(features: int, size: int) -> Iterator[Group]:
    """Yield the blocks of so many features: those of the size that is wanted, and what is left."""
    count, rest = divmod(features, size)
    if count:
        yield Group(0, 0, count, size)
    if rest:
        yield Group(count * size * (size + 1) // 2, count * size, 1, rest)


def count_numbers(features: int, size: int) -> int:
    """How many numbers the triangles of all blocks have."""
    return sum(group.many * group.size * (group.size + 1) // 2 for group in groups(features, size))


class Blocks(Coded):
    """P = H⁻¹ for a block-diagonal matrix H: features are whitened with their neighbours, ``size`` at a time.

    With H_b = C_bC_bᵀ for each block, S has the blocks C_b⁻ᵀ. One feature in a block is a :class:`Scaling`, one block a
    :class:`Whitening`; between the two a block costs few numbers, and does nearly as well where features that matter to
    each other are near each other, as measurements in the order of time or place are. For x of several rows the same is
    done to each of them.

    Parameters
    ----------
    hessians
        The blocks H_b, symmetric and positive definite; all of one size, but for the last, which may be smaller.
    rows
        How many rows x has; by default x is a vector.

    Examples
    --------
    >>> import numpy as np
    >>> made = Blocks([np.array([[4.0, 2.0], [2.0, 2.0]]), np.array([[9.0]])])
    >>> made.factor.apply(made.coordinates(np.array([1.0, 2.0, 3.0]))).round(6)
    array([1., 2., 3.])
    """

    def __init__(self, hessians: Any, rows: int | None = None) -> None:
        blocks = [_checks.float_array("hessians", block, dtype=np.float64) for block in hessians]
        if not blocks or any(block.ndim != 2 or block.shape[0] != block.shape[1] for block in blocks):
            raise ValueError("hessians must be square matrices, at least one")
        size = len(blocks[0])
        if any(len(block) != size for block in blocks[:-1]) or len(blocks[-1]) > size:
            raise ValueError("hessians must be of one size, but for the last, which may be smaller")
        try:
            roots = [np.linalg.cholesky(block) for block in blocks]
        except np.linalg.LinAlgError:
            raise ValueError("hessians must be positive definite: add a ridge to them") from None
        numbers = np.concatenate([root[np.tril_indices(len(root))] for root in roots])
        self._announce((Announced.plain(numbers.astype(np.float32)),), sum(map(len, blocks)), size, rows)

    @classmethod
    def from_messages(cls, announced: tuple[Announced, ...], features: int, size: int, rows: int | None) -> Self:
        """Return the one that the server announces: the triangles of all C_b, and the powers of two of a scale."""
        made = cls.__new__(cls)
        made._announce(announced, features, size, rows)
        return made

    @classmethod
    def coarse(cls, roots: Array, scale: Array, levels: int, size: int, rows: int | None) -> Self:
        """Return the one with these roots, their rows multiplied with those of a scale, rounded to so many levels."""
        from fpdfp.compress import Natural

        parts = (
            Announced.rounded(QSGD(levels, block=None, norm="max"), roots.astype(np.float32)),
            Announced.rounded(Natural(), scale.astype(np.float32)),
        )
        return cls.from_messages(parts, len(scale), size, rows)

    def _announce(self, announced: tuple[Announced, ...], features: int, size: int, rows: int | None) -> None:
        """Take what is announced, if it is triangles with positive diagonals and perhaps a positive scale."""
        features, size = _checks.integer("features", features, at_least=1), _checks.integer("size", size, at_least=1)
        if len(announced) not in (1, 2):
            raise ValueError(f"announced must be one or two messages, got {len(announced)}")
        if announced[0].array.shape != (count_numbers(features, size),):
            raise ValueError(f"announced must hold the triangles of {features} features in blocks of {size}")
        for part in announced[1:]:
            if part.array.shape != (features,) or not (part.array > 0).all():
                raise ValueError(f"announced must hold a positive scale for each of {features} features")
        for group in groups(features, size):
            if not (np.diagonal(group.read(announced[0].array), axis1=1, axis2=2) > 0).all():
                raise ValueError("announced must hold triangles with positive diagonals")
        self.announced, self.features, self.size = announced, features, size
        self.rows = None if rows is None else _checks.integer("rows", rows, at_least=1)

    @property
    def shape(self) -> Shape:
        return self.with_rows((self.features,))

    def _roots(self) -> Iterator[tuple[Group, Array]]:
        """Yield the roots C_b, group by group."""
        for group in groups(self.features, self.size):
            roots = group.read(self.announced[0].array.astype(np.float64))
            if len(self.announced) > 1:
                end = group.feature + group.many * group.size
                scale = np.sqrt(self.announced[1].array[group.feature : end].astype(np.float64))
                roots *= scale.reshape(group.many, group.size, 1)
            yield group, roots

    @functools.cached_property
    def factor(self) -> LinOp:  # type: ignore[override]
        return self._map([(group, np.linalg.inv(roots).swapaxes(1, 2)) for group, roots in self._roots()], upper=True)

    @functools.cached_property
    def _inverse_adjoint(self) -> LinOp:
        return self._map(list(self._roots()), upper=False)

    def _map(self, blocks: list[tuple[Group, Array]], *, upper: bool) -> LinOp:
        """Return the map of triangular blocks."""
        from scipy.sparse import csr_array

        data, indices, lengths = [], [], []
        for group, matrices in blocks:
            rows, columns = (np.triu_indices if upper else np.tril_indices)(group.size)
            starts = group.feature + group.size * np.arange(group.many)
            data.append(matrices[:, rows, columns].ravel())
            indices.append((starts[:, None] + columns).ravel())
            lengths.append(np.tile(np.bincount(rows), group.many))
        indptr = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
        shape = (self.features, self.features)
        matrix = csr_array((np.concatenate(data), np.concatenate(indices), indptr), shape)
        return Matrix(matrix) if self.rows is None else EachRow(matrix, self.rows)

    def coordinates(self, x: Array) -> Array:
        return self._inverse_adjoint.adjoint(x)

    def gradient(self, slope: Array) -> Array:
        return self._inverse_adjoint.apply(slope)
