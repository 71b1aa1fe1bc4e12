"""Which features are whitened together: neighbours, or those that the penalty or the linear map couples."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csgraph, csr_array

from fpdfp._typing import Array, IntArray
from fpdfp.compress import QSGD
from fpdfp.linops import Difference
from fpdfp.penalties.group import GroupL12
from fpdfp.penalties.sparse_group import SparseGroup
from fpdfp.precondition.banded import Band, Coupling
from fpdfp.precondition.base import Announced
from fpdfp.problem import Model

#: Rows of B with more entries than this couple too much to say what belongs together.
LONGEST = 64


class Group(NamedTuple):
    """Blocks of one size that follow each other: where their numbers and their features begin, and how many there are.

    Numbers are the lower triangles of all blocks, one after the other; features are counted in the order of blocks.
    """

    number: int
    feature: int
    many: int
    size: int

    @property
    def end(self) -> int:
        """Where the features of the next group begin."""
        return self.feature + self.many * self.size

    def part(self, array: Array) -> Array:
        """Return what of an array along features, in the order of blocks, belongs to each block."""
        return array[..., self.feature : self.end].reshape(*array.shape[:-1], self.many, self.size)

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


class Layout:
    """Blocks of features.

    Parameters
    ----------
    sizes
        How many features each block has.
    order
        The features, block by block; None where they stand in that order.
    """

    def __init__(self, sizes: IntArray, order: IntArray | None = None) -> None:
        self.sizes, self.order = sizes, order

    @classmethod
    def by_index(cls, features: int, size: int) -> Self:
        """Return blocks of so many neighbours; the last one may be smaller."""
        count, rest = divmod(features, size)
        return cls(np.array([size] * count + [rest] * bool(rest)))

    @classmethod
    def from_labels(cls, labels: Array, size: int) -> Self:
        """Return the layout that numbers of blocks stand for, one for each feature, if no block is larger than that."""
        numbers = np.rint(labels)
        if labels.ndim != 1 or not labels.size or not np.isfinite(labels).all() or (numbers < 0).any():
            raise ValueError("labels must be the number of a block for each feature")
        if numbers.max() >= labels.size:
            raise ValueError("labels must number blocks from 0 on, without gaps")
        blocks = numbers.astype(np.int64)
        sizes = np.bincount(blocks)
        if not sizes.all() or sizes.max() > size:
            raise ValueError(f"labels must number blocks from 0 on, without gaps, of at most {size} features each")
        return cls(sizes, np.argsort(blocks, kind="stable"))

    @functools.cached_property
    def labels(self) -> Announced:
        """The number of the block of each feature, as it is announced."""
        blocks = np.repeat(np.arange(len(self.sizes)), self.sizes)
        labels = np.empty(len(blocks), dtype=np.float32)
        labels[slice(None) if self.order is None else self.order] = blocks
        short = Announced.rounded(QSGD(max(1, len(self.sizes) - 1), block=None, norm="max"), labels)
        return short if np.array_equal(np.rint(short.array), labels) else Announced.plain(labels)

    @functools.cached_property
    def groups(self) -> tuple[Group, ...]:
        """Blocks of one size that follow each other, together."""
        found, number, feature = [], 0, 0
        for size, same in itertools.groupby(self.sizes.tolist()):
            group = Group(number, feature, len(list(same)), size)
            found.append(group)
            number, feature = number + group.many * size * (size + 1) // 2, group.end
        return tuple(found)

    @property
    def pattern(self) -> Any:
        """A sparse matrix with ones between features that are in a block together."""
        ends = np.cumsum(self.sizes)
        columns = np.concatenate(
            [np.tile(np.arange(end - size, end), size) for size, end in zip(self.sizes, ends, strict=True)]
        )
        indptr = np.concatenate([[0], np.cumsum(np.repeat(self.sizes, self.sizes))])
        matrix = csr_array((np.ones(len(columns)), columns, indptr))
        return matrix if self.order is None else csr_array(matrix[self.places][:, self.places])

    @property
    def count_numbers(self) -> int:
        """How many numbers the triangles of all blocks have."""
        return int((self.sizes * (self.sizes + 1) // 2).sum())

    @functools.cached_property
    def places(self) -> IntArray:
        """Where each feature stands in the order of blocks."""
        places = np.arange(int(self.sizes.sum()))
        if self.order is not None:
            places[self.order] = places.copy()
        return places

    def arrange(self, array: Array) -> Array:
        """Return an array along features in the order of blocks."""
        return array if self.order is None else array[..., self.order]

    def restore(self, array: Array) -> Array:
        """Return an array in the order of blocks in that of features."""
        return array if self.order is None else array[..., self.places]


def by_structure(model: Model, size: int) -> Layout | None:
    """Return blocks of features that a model couples, of at most so many; None where it says nothing of the kind.

    Groups of a penalty of x itself are kept together, or the connected components of the graph of a sparse B, in which
    features are neighbours that a row has both of. Small ones share a block, large ones are cut: components in the
    reversed order of Cuthill and McKee, in which neighbours are near each other.
    """
    if len(model.shape) != 1:
        return None
    if not model.linop.is_identity:
        return _by_graph(model, size)
    labels = model.penalty.groups if isinstance(model.penalty, GroupL12 | SparseGroup) else None
    if labels is None or labels.shape != model.shape:
        return None
    sets = np.bincount(labels)
    return None if sets.max() == 1 else packed(np.argsort(labels, kind="stable"), sets, size)


def _by_graph(model: Model, size: int) -> Layout | None:
    """Return blocks of the graph of B, smaller ones where the prox of g∘B would otherwise take the server long.

    In the metric of such blocks dual steps are slow: what is alike there is what B takes differences of. So systems
    with a narrow band are to be solved (:class:`fpdfp.precondition.banded.Banded`).
    """
    # Differences of neighbours make blocks of these.
    coupling = None if isinstance(model.linop, Difference) else Coupling.of(model)
    if coupling is None:
        return None
    lengths = np.diff(coupling.linop.indptr)
    sizes = abs(coupling.linop[lengths <= LONGEST])
    graph = csr_array(sizes.T @ sizes)
    count, labels = csgraph.connected_components(graph, directed=False)
    if count == model.shape[0]:
        return None
    near = csgraph.reverse_cuthill_mckee(graph, symmetric_mode=True).astype(np.int64)
    order, sets = near[np.argsort(labels[near], kind="stable")], np.bincount(labels)
    for part in (size, size // 2, size // 4, size // 8):
        layout = packed(order, sets, max(part, 1))
        if Band(order, int(layout.sizes.max())).is_cheap and coupling.band(layout.pattern).is_cheap:
            return layout
    return None


def packed(order: IntArray, sets: IntArray, size: int) -> Layout:
    """Return blocks of at most so many features, in an order in which sets of them follow each other."""
    sizes = np.array(list(pack(sets.tolist(), size)))
    # Blocks of one size together, which is faster to compute with.
    blocks, rank = np.split(order, np.cumsum(sizes)[:-1]), np.argsort(-sizes, kind="stable")
    return Layout(sizes[rank], np.concatenate([np.sort(blocks[i]) for i in rank]))


def pack(together: Iterable[int], size: int) -> Iterator[int]:
    """Yield sizes of blocks, none above ``size``: small sets that follow each other share one, large ones are cut."""
    filled = 0
    for count in together:
        if filled and filled + count > size:
            yield filled
            filled = 0
        pieces = -(-count // size)
        if pieces > 1:
            yield from (count // pieces + (i < count % pieces) for i in range(pieces))
        else:
            filled += count
    if filled:
        yield filled
