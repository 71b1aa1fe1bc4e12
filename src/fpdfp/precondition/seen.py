"""What the server makes of parts of second moments: preconditioners, and a prediction of what each is worth."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from fpdfp._array import to_host
from fpdfp._typing import Array, IntArray
from fpdfp.compress import QSGD
from fpdfp.precondition import cost
from fpdfp.precondition.base import Preconditioner
from fpdfp.precondition.blocks import Blocks
from fpdfp.precondition.expected import expect
from fpdfp.precondition.layout import Group, Layout
from fpdfp.precondition.low_rank import LowRank
from fpdfp.precondition.moments import filled, nearest_powers
from fpdfp.precondition.scaling import Scaling
from fpdfp.problem import Model

#: Directions in a sketch, and directions that only tell how much of the moments is missed.
RANK, TESTS = 24, 4
#: The levels of a sketch.
SKETCH_LEVELS = 255
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


class Means(NamedTuple):
    """Means over so many clients of what they sent, and the variances of what rounding did to those of the blocks."""

    clients: int
    sizes: Array
    blocks: Array
    variance: Array
    sketch: Array
    slope: Array


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

    def __init__(self, means: Means, layout: Layout, model: Model) -> None:
        self.means, self.layout, self.model = means, layout, model
        self.active = self._active()
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
        scale, sizes, diagonal = map(self.layout.arrange, (self.scale, self.means.sizes, self.diagonal))
        for group in self.layout.groups:
            part, own, lifted = map(group.part, (scale, sizes, diagonal))
            outer = part[:, :, None] * part[:, None, :]
            matrices = group.read_symmetric(self.means.blocks) / np.sqrt(outer)
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
        step = ROOT_STEP * math.sqrt(least / float(self.layout.sizes.max()))
        levels = max(1, math.ceil(float(np.abs(numbers).max()) * (1.0 + 1e-6) / step))
        return {
            "none": None,
            "diagonal": Scaling.coarse(self.scale, rows),
            "blocks": Blocks.coarse(numbers, self.scale, min(levels, QSGD.most_levels), self.layout, rows),
        } | self._low_ranks(rows)

    def _low_ranks(self, rows: int | None) -> dict[str, Preconditioner | None]:
        """Return what could be announced of the steep directions: some of them, made as flat as the next."""
        return {
            f"rank {k}": LowRank(self.steep[:, :k], self.curvatures[:k] / self.curvatures[k], rows)
            for k in STEEPEST
            if k < len(self.curvatures)
        }

    def predict(self, candidates: dict[str, Preconditioner | None], given: cost.Circumstances) -> dict[str, float]:
        """Simulate rounds on the features that matter, in the metric of each candidate.

        A proximal step in the coordinates of S is one in the metric M = S⁻ᵀS⁻¹; once it is known which features are not
        zero, it moves on these alone, and then the pencils of H and M and of ∇²g and M restricted to them say how fast.
        """
        active, hessian = self.active, self.hessian()
        b = -np.atleast_2d(self.means.slope)[:, active]
        expected = expect(self.model, active, hessian, b)
        inside = np.ix_(expected.free, expected.free)
        # Where nothing curves but f, flat directions that were not seen cost the others as much as short steps do here.
        curved = bool(expected.curvature.any())
        rounds = {}
        for name, one in candidates.items():
            metric = np.eye(len(active))
            if one is not None:
                images = columns_of(one, active)
                metric = images @ images.T
            largest = float(np.linalg.eigvalsh(within(hessian, np.linalg.cholesky(metric)))[-1])
            root = np.linalg.cholesky(metric[inside])
            stretched = isinstance(one, Scaling | Blocks)
            steps = cost.count_proximal(
                within(hessian[inside], root),
                within(expected.curvature, root),
                root.T @ expected.x,
                given.smoothness(len(self.diagonal), largest) if stretched and curved else largest,
                given.accuracy,
            )
            rounds[name] = steps * (STRETCHED if stretched else 1.0)
        return rounds

    def _active(self) -> IntArray:
        """Return the features that matter: those with the largest slopes once the penalty has had its part."""
        model, slopes = self.model, np.atleast_2d(self.means.slope)
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
        active, places = self.active, self.layout.places[self.active]
        low = (self.steep[active] * self.curvatures) @ self.steep[active].T
        matrix = low.copy()
        for group, matrices, _ in self.blocks:
            for block in range(group.many):
                first = group.feature + block * group.size
                inside = np.flatnonzero((places >= first) & (places < first + group.size))
                if len(inside):
                    own = places[inside] - first
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
        arranged, basis, scale = map(self.layout.arrange, (tests, self.steep.T, roots))
        more = np.zeros_like(arranged)
        for group, matrices, _ in self.blocks:
            flat, part = group.part(basis), group.part(scale)
            low = np.einsum("kbi,k,kbj->bij", flat, self.curvatures, flat)
            rest = matrices * part[:, :, None] * part[:, None, :] - low
            more[:, group.feature : group.end] = np.einsum("bij,tbj->tbi", rest, group.part(arranged)).reshape(
                len(more), -1
            )
        explained += self.layout.restore(more)
        lost = float(np.square((images - explained) / roots).sum())
        return lost / max(float(np.square(images / roots).sum()), 1e-300)


def within(matrix: Array, root: Array) -> Array:
    """Return R⁻¹AR⁻ᵀ for a triangular R."""
    half = np.linalg.solve(root, matrix)
    found: Array = np.linalg.solve(root, half.T)
    return found


def directions(features: int) -> Array:
    """Return public random directions of length 1, as rows: signs, which are the same on every machine."""
    bits = np.random.default_rng(0x5EED).integers(0, 2, (RANK + TESTS, features), dtype=np.int8)
    return (2.0 * bits - 1.0) / math.sqrt(features)


def columns_of(one: Preconditioner, features: IntArray) -> Array:
    """Return the coordinates of some unit vectors, as rows; a few at a time, since they are as long as x."""
    found = np.zeros((len(features), *one.shape))
    found[np.arange(len(features)), features] = 1.0
    for first in range(0, len(features), AT_A_TIME):
        found[first : first + AT_A_TIME] = one.coordinates(found[first : first + AT_A_TIME])
    return found
