"""What second moments look like where there are too many to send: neighbours, and a few steep directions."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._array import to_host
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.compress import QSGD, Compressor, Natural
from fpdfp.precondition import cost
from fpdfp.precondition.base import Announced, Preconditioner
from fpdfp.precondition.layout import Layout, by_structure
from fpdfp.precondition.moments import NO_BOUNDS, powers_above, variances
from fpdfp.precondition.seen import RANK, SKETCH_LEVELS, TESTS, Means, Seen, directions
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Purpose, choose_clients

#: Features in a block.
BLOCK = 64
#: No site forms larger blocks than this, whatever it is asked.
LARGEST_BLOCK = 1024
#: The levels of moments in blocks, and of gradients.
LEVELS, SLOPE_LEVELS = 31, 255
#: The fewest clients that are asked, and the rows for each feature of a block that they have together.
CLIENTS, ENOUGH = 4, 8.0
#: A preconditioner is to be so much better than none: with group norms predicted rounds were off by a third.
WORTHWHILE = 0.7
#: Where so much of the moments is neither between neighbours nor in steep directions, all moments are considered.
MISSED = 0.5

NAMES = {"none": "no preconditioner", "diagonal": "the diagonal"}
#: Blocks by what they are made of.
NEIGHBOURS, GROUPS, GRAPH = "blocks of neighbours", "blocks of groups", "blocks of the graph of B"


class Sent(NamedTuple):
    """What a client sends.

    Powers of two above the diagonal of its bound, blocks of that relative to them, its product with public
    directions, and the client's gradient at zero.
    """

    sizes: Array
    blocks: Array
    sketch: Array
    slope: Array


class Sums(NamedTuple):
    """Sums over clients of what they sent, and of the variances of what rounding did to the blocks.

    Blocks and variances are those of every other client, and of the others.
    """

    sizes: Array
    blocks: Array
    variance: Array
    sketch: Array
    slope: Array


class Choice(NamedTuple):
    """What is predicted best: a preconditioner, or none; why; what it costs; and the part of moments that is missed."""

    preconditioner: Preconditioner | None
    reason: str
    price: cost.Price
    missed: float


@dataclasses.dataclass(frozen=True)
class Structure:
    """A few clients tell what their second moments look like, in some hundred bits for each feature.

    They send the moments of features that are in a block together, and the products of all moments with a few random
    directions, all quantized. Blocks are of neighbours, unless the penalty or the linear map couples features. From
    these the server makes a block-diagonal preconditioner and one of low rank, predicts what each is worth, and
    announces the best. The number of features is not limited.

    Parameters
    ----------
    clients
        How many clients are asked.
    accuracy
        The relative error that a run is for.
    block
        How many features are in a block, at most.
    labels
        The number of the block of each feature; None for blocks of neighbours.
    """

    clients: int
    accuracy: float
    block: int = BLOCK
    labels: Announced | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", _checks.integer("clients", self.clients, at_least=1))
        object.__setattr__(self, "block", _checks.integer("block", self.block, at_least=1, at_most=LARGEST_BLOCK))

    @classmethod
    def plan(cls, model: Model, given: cost.Circumstances) -> Structure:
        """Return what is to be asked: of as many clients as have enough rows for a block."""
        coupled = by_structure(model, BLOCK)
        clients = max(CLIENTS, math.ceil(ENOUGH * BLOCK / given.rows))
        return cls(clients, given.accuracy, labels=None if coupled is None else coupled.labels)

    def layout(self, features: int) -> Layout:
        """Return the blocks of so many features."""
        if self.labels is None:
            return Layout.by_index(features, self.block)
        if self.labels.array.shape != (features,):
            raise ValueError(f"labels must be the number of a block for each of {features} features")
        return Layout.from_labels(self.labels.array, self.block)

    @property
    def told(self) -> int:
        """The bits with which a client is told which features are in a block."""
        return 0 if self.labels is None else self.labels.bits

    def draw_clients(self, n_clients: int, seed: int) -> IntArray:
        """Return who is asked."""
        return choose_clients(seed, 0, n_clients, min(self.clients, n_clients), Purpose.ONCE_CLIENTS)

    def messages(self, model: Model) -> dict[str, tuple[Compressor, Shape]]:
        """Return what each field goes through, and its shape."""
        d = model.shape[-1]
        return {
            "sizes": (Natural(), (d,)),
            "blocks": (QSGD(LEVELS, block=None, norm="max"), (self.layout(d).count_numbers,)),
            "sketch": (QSGD(SKETCH_LEVELS, block=None, norm="max"), (RANK + TESTS, d)),
            "slope": (QSGD(SLOPE_LEVELS, block=None, norm="max"), model.shape),
        }

    def count_numbers(self, model: Model) -> int:
        """How many numbers a client works with."""
        return sum(math.prod(shape) for _, shape in self.messages(model).values())

    def gather(self, model: Model, local: LocalLosses) -> Sent:
        """Return what each of some clients sends."""
        d = model.shape[-1]
        layout = self.layout(d)
        diagonals, blocks = local.curvature_diagonals(), local.curvature_blocks(layout.sizes, layout.order)
        sketch = local.curvature_products(directions(d))
        if diagonals is None or blocks is None or sketch is None:
            raise ValueError(NO_BOUNDS)
        sizes = powers_above(diagonals)
        slope = to_host(local.gradients(model.xp.zeros(model.shape, dtype=model.dtype)))
        relative = np.stack(
            [np.clip(one / weights(own, layout), -1, 1) for one, own in zip(blocks, sizes, strict=True)]
        )
        fields = (sizes, relative, np.clip(sketch, -1e17, 1e17), np.clip(slope, -1e17, 1e17))
        return Sent(*(field.astype(np.float32) for field in fields))

    def add_up(self, sent: Any, places: IntArray) -> Sums:
        """Return sums over clients of what they sent."""
        sizes = sent.sizes.astype(np.float64)
        blocks, errors = (np.zeros((2, sent.blocks.shape[1])) for _ in range(2))
        layout = self.layout(sizes.shape[1])
        for half, one, own in zip(places % 2, sent.blocks, sizes, strict=True):
            weight = weights(own, layout)
            blocks[half] += one * weight
            errors[half] += variances(one, LEVELS) * weight**2
        sketch, slope = (part.sum(axis=0, dtype=np.float64) for part in (sent.sketch, sent.slope))
        return Sums(sizes.sum(axis=0), blocks, errors, sketch, slope)

    @staticmethod
    def _mean(sums: Sums, m: int, which: tuple[int, ...]) -> Means:
        """Return means over m clients, blocks of all of them or of half of them."""
        count = sum((m + 1 - half) // 2 for half in which)
        blocks, variance = (sum(part[half] for half in which) for part in (sums.blocks, sums.variance))
        return Means(m, sums.sizes / m, blocks / count, variance / count**2, sums.sketch / m, sums.slope / m)

    def build(self, sums: Sums, model: Model, n_clients: int, given: cost.Circumstances) -> Choice:
        """Return what is predicted best."""
        m = min(self.clients, n_clients)
        rows = model.shape[0] if len(model.shape) == 2 else None
        layout = self.layout(model.shape[-1])
        seen = Seen(self._mean(sums, m, (0, 1)), layout, model)
        candidates = seen.candidates(rows)
        # Half of the clients make blocks, the others say what these are worth; what all have sent is no sample.
        first, second = (
            (seen, seen)
            if m in (1, n_clients)
            else (Seen(self._mean(sums, m, (half,)), layout, model) for half in (0, 1))
        )
        # What is done to each row of x is the same: one tells all.
        rounds = second.predict(first.candidates(None), given)
        prices = {
            name: given.price(given.floor + rounds[name], 0.0, 0.0 if one is None else n_clients * one.bits)
            for name, one in candidates.items()
        }
        scores = {name: given.score(price) for name, price in prices.items()}
        scores["none"] *= WORTHWHILE
        best = min(scores, key=scores.__getitem__)
        who = "all clients" if m == n_clients else f"{m} of {n_clients} clients"
        coupled = GROUPS if model.linop.is_identity else GRAPH
        names = NAMES | {"blocks": NEIGHBOURS if self.labels is None else coupled}
        told = ", ".join(f"{given.show(price)} with {names.get(name, name)}" for name, price in prices.items())
        reason = f"{names.get(best, best)}, from {who}; predicted to {given.accuracy:g}: {told}"
        return Choice(candidates[best], reason, prices[best], seen.missed)


def weights(sizes: Array, layout: Layout) -> Array:
    """The root of the product of two sizes for each number of a client's blocks; 1 where there is none."""
    roots, parts = layout.arrange(np.sqrt(np.where(sizes > 0, sizes, 1.0))), []
    for group in layout.groups:
        own = group.part(roots)
        rows, columns = np.tril_indices(group.size)
        parts.append((own[:, rows] * own[:, columns]).ravel())
    return np.concatenate(parts)
