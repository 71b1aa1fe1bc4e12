"""A block-diagonal preconditioner: the inverse of what is between the features of each block."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, Shape
from fpdfp.compress import QSGD
from fpdfp.linops import EachRow, LinOp, Matrix
from fpdfp.precondition.base import Announced, Coded
from fpdfp.precondition.layout import Group, Layout


class Blocks(Coded):
    """P = H⁻¹ for a block-diagonal matrix H: the features of a block are whitened together.

    With H_b = C_bC_bᵀ for each block, S has the blocks C_b⁻ᵀ. With one feature in every block this is a
    :class:`Scaling`, with a single block a :class:`Whitening`. Blocks take far fewer numbers than a whitening, and do
    nearly as well if features that are correlated are in one block: neighbours, if features are measurements in the
    order of time or place, or features that the penalty or the linear map couples. For x of several rows the same is
    done to each of them.

    Parameters
    ----------
    hessians
        The blocks H_b, symmetric and positive definite. Without ``labels``, all must be of one size, but for the last,
        which may be smaller.
    rows
        How many rows x has; by default x is a vector.
    labels
        The number of the block of each feature, from 0 on, in the order of ``hessians``; within a block, features have
        the order of their numbers. By default, features follow each other block by block.

    Examples
    --------
    >>> import numpy as np
    >>> made = Blocks([np.array([[4.0, 2.0], [2.0, 2.0]]), np.array([[9.0]])])
    >>> made.factor.apply(made.coordinates(np.array([1.0, 2.0, 3.0]))).round(6)
    array([1., 2., 3.])
    >>> Blocks([np.eye(2), np.array([[9.0]])], labels=[0, 1, 0]).factor.apply(np.array([1.0, 6.0, 3.0]))
    array([1., 2., 3.])
    """

    def __init__(self, hessians: Any, rows: int | None = None, *, labels: Any = None) -> None:
        blocks = [_checks.float_array("hessians", block, dtype=np.float64) for block in hessians]
        if not blocks or any(block.ndim != 2 or block.shape[0] != block.shape[1] for block in blocks):
            raise ValueError("hessians must be square matrices, at least one")
        nears = [1e-6 * float(np.abs(block).max(initial=0.0)) for block in blocks]
        if not all(
            np.allclose(block, block.T, rtol=1e-6, atol=near) for block, near in zip(blocks, nears, strict=True)
        ):
            raise ValueError("hessians must be symmetric")
        size, sizes = max(map(len, blocks)), [len(block) for block in blocks]
        if labels is None and (any(one != size for one in sizes[:-1]) or sizes[-1] > size):
            raise ValueError("hessians must be of one size, but for the last, which may be smaller")
        numbered = None if labels is None else _checks.float_array("labels", labels)
        if numbered is not None and (numbered != np.rint(numbered)).any():
            raise ValueError("labels must be whole numbers")
        layout = None if numbered is None else Layout.from_labels(numbered, size)
        if layout is not None and layout.sizes.tolist() != sizes:
            raise ValueError("labels must name as many features of each block as its matrix has")
        try:
            roots = [np.linalg.cholesky(block) for block in blocks]
        except np.linalg.LinAlgError:
            raise ValueError("hessians must be positive definite: add a ridge to them") from None
        numbers = np.concatenate([root[np.tril_indices(len(root))] for root in roots])
        announced: tuple[Announced, ...] = (Announced.plain(numbers.astype(np.float32)),)
        if layout is not None:
            announced += (Announced.plain(np.ones(sum(sizes), dtype=np.float32)), layout.labels)
        self._announce(announced, sum(sizes), size, rows)

    @classmethod
    def from_messages(cls, announced: tuple[Announced, ...], features: int, size: int, rows: int | None) -> Self:
        """Return the one that the server announces.

        That is the triangles of all C_b, the powers of two of a scale, and, but for neighbours, numbers of blocks.
        """
        made = cls.__new__(cls)
        made._announce(announced, features, size, rows)
        return made

    @classmethod
    def coarse(cls, roots: Array, scale: Array, levels: int, layout: Layout, rows: int | None) -> Self:
        """Return the one with these roots, their rows multiplied with those of a scale, rounded to so many levels."""
        from fpdfp.compress import Natural

        parts: tuple[Announced, ...] = (
            Announced.rounded(QSGD(levels, block=None, norm="max"), roots.astype(np.float32)),
            Announced.rounded(Natural(), scale.astype(np.float32)),
        )
        if layout.order is not None:
            parts += (layout.labels,)
        return cls.from_messages(parts, len(scale), int(layout.sizes.max()), rows)

    def _announce(self, announced: tuple[Announced, ...], features: int, size: int, rows: int | None) -> None:
        """Take what is announced, if it is triangles with positive diagonals and perhaps a positive scale."""
        features, size = _checks.integer("features", features, at_least=1), _checks.integer("size", size, at_least=1)
        if len(announced) not in (1, 2, 3):
            raise ValueError(f"announced must be one to three messages, got {len(announced)}")
        layout = Layout.from_labels(announced[2].array, size) if announced[2:] else Layout.by_index(features, size)
        if announced[0].array.shape != (layout.count_numbers,) or layout.sizes.sum() != features:
            raise ValueError(f"announced must hold the triangles of {features} features in blocks of {size}")
        for part in announced[1:2]:
            if part.array.shape != (features,) or not (part.array > 0).all():
                raise ValueError(f"announced must hold a positive scale for each of {features} features")
        for group in layout.groups:
            if not (np.diagonal(group.read(announced[0].array), axis1=1, axis2=2) > 0).all():
                raise ValueError("announced must hold triangles with positive diagonals")
        self.announced, self.features, self.size, self.layout = announced, features, size, layout
        self.rows = None if rows is None else _checks.integer("rows", rows, at_least=1)

    @property
    def shape(self) -> Shape:
        return self.with_rows((self.features,))

    def _roots(self) -> Iterator[tuple[Group, Array]]:
        """Yield the roots C_b, group by group."""
        scale = None
        if len(self.announced) > 1:
            scale = self.layout.arrange(np.sqrt(self.announced[1].array.astype(np.float64)))
        for group in self.layout.groups:
            roots = group.read(self.announced[0].array.astype(np.float64))
            if scale is not None:
                roots *= group.part(scale)[:, :, None]
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
        if self.layout.order is not None:
            places = self.layout.places
            matrix = csr_array(matrix[places][:, places])
        return Matrix(matrix) if self.rows is None else EachRow(matrix, self.rows)

    def coordinates(self, x: Array) -> Array:
        return self._inverse_adjoint.adjoint(x)

    def gradient(self, slope: Array) -> Array:
        return self._inverse_adjoint.apply(slope)

    @property
    def metric(self) -> Any | None:
        if self.rows is not None:
            return None
        root = self._inverse_adjoint.matrix  # type: ignore[attr-defined]
        return root @ root.T
