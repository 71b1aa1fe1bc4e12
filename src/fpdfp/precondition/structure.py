"""What second moments look like where there are too many to send: neighbours, and a few steep directions."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._array import to_host
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.compress import QSGD, Compressor, Natural
from fpdfp.losses.base import Losses
from fpdfp.precondition import cost
from fpdfp.precondition.base import Preconditioner
from fpdfp.precondition.blocks import Blocks, Group, count_numbers, groups
from fpdfp.precondition.low_rank import LowRank
from fpdfp.precondition.moments import NO_BOUNDS, filled, nearest_powers, powers_above, variances
from fpdfp.precondition.scaling import Scaling
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Purpose, choose_clients

#: Features in a block, directions in a sketch, and directions that only tell how much of the moments is missed.
BLOCK, RANK, TESTS = 64, 24, 4
#: No site forms larger blocks than this, whatever it is asked.
LARGEST_BLOCK = 1024
#: The levels of moments in blocks, of a sketch, and of gradients.
LEVELS, SKETCH_LEVELS, SLOPE_LEVELS = 31, 255, 255
#: The fewest clients that are asked, and the rows for each feature of a block that they have together.
CLIENTS, ENOUGH = 4, 8.0
#: Eigenvalues of a block are raised to so many times the noise.
FLOOR = 1.0
#: The step of announced roots, in units of √(least eigenvalue/size).
ROOT_STEP = 0.5
#: So many of the steepest directions are made as flat as the next; a sketch shows those after the first third too flat.
STEEPEST = (1, 3, 8)
#: What a preconditioner is worth is predicted on so many features: those with the largest slopes.
ACTIVE = 400
#: Of so many of them coordinates are computed at a time.
AT_A_TIME = 32
#: Curvatures are raised to this part of what most of these features have: to stretch features that hardly occur helps
#: little, and the few clients that have them would then need short steps.
LEAST, MOST_OF_THEM = 0.25, 0.1
#: Where features are stretched, rounds were about so many times what was predicted: clients then differ more.
STRETCHED = 1.75
#: A preconditioner is to be so much better than none: no prediction is finer than that.
WORTHWHILE = 0.8
#: Where so much of the moments is neither between neighbours nor in steep directions, all moments are considered.
MISSED = 0.5

NAMES = {"none": "no preconditioner", "diagonal": "the diagonal", "blocks": "blocks of neighbours"}


class Sent(NamedTuple):
    """What a client sends.

    Powers of two above the diagonal of its bound, the blocks of that relative to them, its product with public
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


class Means(NamedTuple):
    """Means over so many clients of what they sent, and the variances of what rounding did to those of the blocks."""

    clients: int
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

    They send the moments of neighbouring features, some at a time, and the products of all moments with a few random
    directions, all quantized. From these the server makes a block-diagonal preconditioner and one of low rank, predicts
    what each is worth, and announces the best. The number of features is not limited.

    Parameters
    ----------
    clients
        How many clients are asked.
    accuracy
        The relative error that a run is for.
    block
        How many neighbouring features are in a block.
    """

    clients: int
    accuracy: float
    block: int = BLOCK

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", _checks.integer("clients", self.clients, at_least=1))
        object.__setattr__(self, "block", _checks.integer("block", self.block, at_least=1, at_most=LARGEST_BLOCK))

    @classmethod
    def plan(cls, losses: Losses, given: cost.Circumstances) -> Structure:
        """Return what is to be asked: of as many clients as have enough rows for a block."""
        return cls(max(CLIENTS, math.ceil(ENOUGH * BLOCK / given.rows)), given.accuracy)

    def draw_clients(self, n_clients: int, seed: int) -> IntArray:
        """Return who is asked."""
        return choose_clients(seed, 0, n_clients, min(self.clients, n_clients), Purpose.ONCE_CLIENTS)

    def messages(self, model: Model) -> dict[str, tuple[Compressor, Shape]]:
        """Return what each field goes through, and its shape."""
        d = model.shape[-1]
        return {
            "sizes": (Natural(), (d,)),
            "blocks": (QSGD(LEVELS, block=None, norm="max"), (count_numbers(d, self.block),)),
            "sketch": (QSGD(SKETCH_LEVELS, block=None, norm="max"), (RANK + TESTS, d)),
            "slope": (QSGD(SLOPE_LEVELS, block=None, norm="max"), model.shape),
        }

    def count_numbers(self, model: Model) -> int:
        """How many numbers a client works with."""
        return sum(math.prod(shape) for _, shape in self.messages(model).values())

    def gather(self, model: Model, local: LocalLosses) -> Sent:
        """Return what each of some clients sends."""
        d = model.shape[-1]
        diagonals, blocks = local.curvature_diagonals(), local.curvature_blocks(self.block)
        sketch = local.curvature_products(directions(d))
        if diagonals is None or blocks is None or sketch is None:
            raise ValueError(NO_BOUNDS)
        sizes = powers_above(diagonals)
        slope = to_host(local.gradients(model.xp.zeros(model.shape, dtype=model.dtype)))
        relative = np.stack(
            [np.clip(one / weights(own, self.block), -1, 1) for one, own in zip(blocks, sizes, strict=True)]
        )
        fields = (sizes, relative, np.clip(sketch, -1e17, 1e17), np.clip(slope, -1e17, 1e17))
        return Sent(*(field.astype(np.float32) for field in fields))

    def add_up(self, sent: Any, places: IntArray) -> Sums:
        """Return sums over clients of what they sent."""
        sizes = sent.sizes.astype(np.float64)
        blocks, errors = (np.zeros((2, sent.blocks.shape[1])) for _ in range(2))
        for half, one, own in zip(places % 2, sent.blocks, sizes, strict=True):
            weight = weights(own, self.block)
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
        seen = Seen(self._mean(sums, m, (0, 1)), self.block, model)
        candidates = seen.candidates(rows)
        # Half of the clients make blocks, the others say what these are worth; what all have sent is no sample.
        first, second = (
            (seen, seen)
            if m in (1, n_clients)
            else (Seen(self._mean(sums, m, (half,)), self.block, model) for half in (0, 1))
        )
        # What is done to each row of x is the same: one tells all.
        rounds = second.predict(first.candidates(None), self.accuracy)
        prices = {
            name: given.price(given.floor + rounds[name], 0.0, 0.0 if one is None else n_clients * one.bits)
            for name, one in candidates.items()
        }
        scores = {name: given.score(price) for name, price in prices.items()}
        scores["none"] *= WORTHWHILE
        best = min(scores, key=scores.__getitem__)
        who = "all clients" if m == n_clients else f"{m} of {n_clients} clients"
        told = ", ".join(f"{given.show(price)} with {NAMES.get(name, name)}" for name, price in prices.items())
        reason = f"{NAMES.get(best, best)}, from {who}; predicted to {given.accuracy:g}: {told}"
        return Choice(candidates[best], reason, prices[best], seen.missed)


class Seen:
    """What the server has seen of the mean of the clients' moments.

    Attributes
    ----------
    means
        Means over clients of what they sent.
    active
        The features that matter.
    diagonal, scale
        The diagonal of the moments, not less than is to be told from others, and the powers of two next to it.
    curvatures, steep
        The curvatures of steep directions, the largest first, and these, as columns.
    """

    def __init__(self, means: Means, size: int, model: Model) -> None:
        self.means, self.size = means, size
        self.active = self._active(model)
        diagonal = filled(means.sizes)
        self.diagonal = np.maximum(diagonal, LEAST * float(np.quantile(diagonal[self.active], MOST_OF_THEM)))
        self.scale = nearest_powers(self.diagonal)
        self.curvatures, self.steep = self._sketched()

    def _sketched(self) -> tuple[Array, Array]:
        """Return the steep directions of a sketch Y = ΩH, by Nyström's method.

        With a shift ν above the noise, H + νI ≈ (Y + νΩ)ᵀ(ΩYᵀ + νΩΩᵀ)⁻¹(Y + νΩ) (J. A. Tropp, A. Yurtsever, M. Udell
        and V. Cevher, "Fixed-rank approximation of a positive-semidefinite matrix from streaming data", NeurIPS 2017).
        """
        d = len(self.diagonal)
        tests = directions(d)[:RANK]
        images = self.means.sketch[:RANK]
        # An entry is off by a uniform error of a step, over the root of the number of clients.
        noise = float(np.abs(images).max()) / SKETCH_LEVELS * math.sqrt(d / (6.0 * self.means.clients))
        shift = max(noise, 1e-300)
        images = images + shift * tests
        core = images @ tests.T
        values, vectors = np.linalg.eigh((core + core.T) / 2.0)
        kept = values > 1e-6 * values[-1]
        if not kept.any():
            return np.ones(1), np.eye(d, 1)
        half = images.T @ (vectors[:, kept] / np.sqrt(values[kept]))
        basis, lengths, _ = np.linalg.svd(half, full_matrices=False)
        found = np.maximum(lengths**2 - shift, 0.0)
        many = max(1, int((found > shift).sum()))
        return np.maximum(found[:many], shift), basis[:, :many]

    @functools.cached_property
    def blocks(self) -> list[tuple[Group, Array, float]]:
        """The blocks of each group relative to the scale, eigenvalues raised to the noise, and the least of these."""
        found = []
        for group in groups(len(self.diagonal), self.size):
            part = self.scale[group.feature : group.feature + group.many * group.size].reshape(group.many, -1)
            outer = part[:, :, None] * part[:, None, :]
            matrices = group.read_symmetric(self.means.blocks) / np.sqrt(outer)
            own = self.means.sizes[group.feature : group.feature + group.many * group.size].reshape(group.many, -1)
            lifted = self.diagonal[group.feature : group.feature + group.many * group.size].reshape(group.many, -1)
            matrices[:, np.arange(group.size), np.arange(group.size)] += (lifted - own) / part
            noise = 2.0 * np.sqrt((group.read_symmetric(self.means.variance) / outer).sum(axis=2).max(axis=1))
            values, vectors = np.linalg.eigh(matrices)
            least = np.maximum(FLOOR * noise, group.size * 2.0**-21 * np.maximum(values[:, -1], 1.0))
            raised = (vectors * np.maximum(values, least[:, None])[:, None, :]) @ vectors.swapaxes(1, 2)
            found.append((group, (raised + raised.swapaxes(1, 2)) / 2.0, float(least.min())))
        return found

    def candidates(self, rows: int | None) -> dict[str, Preconditioner | None]:
        """Return what could be announced."""
        roots, least = [], math.inf
        for group, matrices, smallest in self.blocks:
            lower = np.tril_indices(group.size)
            roots.append(np.linalg.cholesky(matrices)[:, lower[0], lower[1]].ravel())
            least = min(least, smallest)
        numbers = np.concatenate(roots)
        step = ROOT_STEP * math.sqrt(least / self.size)
        levels = max(1, math.ceil(float(np.abs(numbers).max()) * (1.0 + 1e-6) / step))
        return {
            "none": None,
            "diagonal": Scaling.coarse(self.scale, rows),
            "blocks": Blocks.coarse(numbers, self.scale, min(levels, QSGD.most_levels), self.size, rows),
        } | self._low_ranks(rows)

    def _low_ranks(self, rows: int | None) -> dict[str, Preconditioner | None]:
        """Return what could be announced of the steep directions: some of them, made as flat as the next."""
        return {
            f"rank {k}": LowRank(self.steep[:, :k], self.curvatures[:k] / self.curvatures[k], rows)
            for k in STEEPEST
            if k < len(self.curvatures)
        }

    def predict(self, candidates: dict[str, Preconditioner | None], accuracy: float) -> dict[str, float]:
        """Simulate rounds on the features that matter, in the metric of each candidate.

        A proximal step in the coordinates of S is one in the metric M = S⁻ᵀS⁻¹; once it is known which features are not
        zero, it moves on these alone, and then the pencil of H and M restricted to them says how fast.
        """
        active = self.active
        hessian, b = self.hessian(), -np.atleast_2d(self.means.slope)[:, active]
        rounds = {}
        for name, one in candidates.items():
            root = np.eye(len(active))
            if one is not None:
                images = columns_of(one, active)
                root = np.linalg.cholesky(images @ images.T)
            inverse = np.linalg.inv(root)
            steps = cost.simulated(inverse @ hessian @ inverse.T, b @ inverse.T, accuracy)
            rounds[name] = steps * (STRETCHED if isinstance(one, Scaling | Blocks) else 1.0)
        return rounds

    def _active(self, model: Model) -> IntArray:
        """Return the features that matter: those with the largest slopes once the penalty has had its part."""
        slopes = np.atleast_2d(self.means.slope)
        if model.linop.is_identity:
            at = model.xp.asarray(slopes.reshape(model.shape), dtype=model.dtype)
            left = np.abs(np.atleast_2d(to_host(model.penalty.prox(at, 1.0))))
            if left.max() > 0:
                slopes = left
        sizes = np.linalg.norm(slopes, axis=0)
        order: IntArray = np.argsort(-sizes, kind="stable")[:ACTIVE]
        return np.sort(order[sizes[order] > 0] if (sizes > 0).any() else order)

    def hessian(self) -> Array:
        """Return the moments between the features that matter, as far as blocks and steep directions tell."""
        active = self.active
        low = (self.steep[active] * self.curvatures) @ self.steep[active].T
        matrix = low.copy()
        for group, matrices, _ in self.blocks:
            for block in range(group.many):
                first = group.feature + block * group.size
                inside = np.flatnonzero((active >= first) & (active < first + group.size))
                if len(inside):
                    own = active[inside] - first
                    roots = np.sqrt(self.scale[active[inside]])
                    matrix[np.ix_(inside, inside)] = matrices[block][np.ix_(own, own)] * np.outer(roots, roots)
        # Between blocks only steep directions are known: together they need not be positive.
        values, vectors = np.linalg.eigh(matrix)
        floor = 1e-3 * float(np.median(self.diagonal[active]))
        raised: Array = (vectors * np.maximum(values, min(floor, float(values[-1])))) @ vectors.T
        return raised

    @property
    def missed(self) -> float:
        """The part of the products with test directions that neither blocks nor steep directions explain."""
        d = len(self.diagonal)
        tests, images = directions(d)[RANK:], self.means.sketch[RANK:]
        explained = (tests @ self.steep * self.curvatures) @ self.steep.T
        roots = np.sqrt(self.scale)
        for group, matrices, _ in self.blocks:
            end = group.feature + group.many * group.size
            here = slice(group.feature, end)
            shape = (group.many, group.size)
            basis = self.steep[here].reshape(*shape, -1)
            low = (basis * self.curvatures) @ basis.swapaxes(1, 2)
            scale = roots[here].reshape(*shape, 1)
            rest = matrices * scale * scale.swapaxes(1, 2) - low
            explained[:, here] += np.einsum("bij,tbj->tbi", rest, tests[:, here].reshape(-1, *shape)).reshape(
                -1, end - group.feature
            )
        lost = float(np.square((images - explained) / roots).sum())
        return lost / max(float(np.square(images / roots).sum()), 1e-300)


def directions(features: int) -> Array:
    """Return public random directions of length 1, as rows: signs, which are the same on every machine."""
    bits = np.random.default_rng(0x5EED).integers(0, 2, (RANK + TESTS, features), dtype=np.int8)
    return (2.0 * bits - 1.0) / math.sqrt(features)


def weights(sizes: Array, size: int) -> Array:
    """The root of the product of two sizes for each number of a client's blocks; 1 where there is none."""
    roots, parts = np.sqrt(np.where(sizes > 0, sizes, 1.0)), []
    for group in groups(len(sizes), size):
        own = roots[group.feature : group.feature + group.many * group.size].reshape(group.many, group.size)
        rows, columns = np.tril_indices(group.size)
        parts.append((own[:, rows] * own[:, columns]).ravel())
    return np.concatenate(parts)


def columns_of(one: Preconditioner, features: IntArray) -> Array:
    """Return the coordinates of some unit vectors, as rows; a few at a time, since they are as long as x."""
    found = np.zeros((len(features), *one.shape))
    found[np.arange(len(features)), features] = 1.0
    for first in range(0, len(features), AT_A_TIME):
        found[first : first + AT_A_TIME] = one.coordinates(found[first : first + AT_A_TIME])
    return found
