"""Second moments that some clients send in few bits."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._array import to_host
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.question import Question, question, reveals
from fpdfp.compress import QSGD, Compressor, Full, Natural
from fpdfp.precondition.base import Preconditioner, full, lower
from fpdfp.precondition.coordinates import Scaling, Whitening
from fpdfp.precondition.cost import Circumstances, count_steps, simulated
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Purpose, choose_clients

#: The levels of the gradients that go along: they name which directions matter.
SLOPE_LEVELS = 255
#: Eigenvalues are raised to one of these multiples of what the noise is estimated at, as is predicted best.
FLOORS = (0.5, 2.0, 8.0)
#: Where clients find that so coarse moments would take this many times the rounds of a well conditioned problem, as for
#: features whose means are far from zero, all are requested exact ones, if that is predicted to pay.
STRAINED = 4.0
#: Up to this many features ``"auto"`` has clients send all second moments; beyond, it asks what they look like first.
FEW = 256
#: Curvature below the noise is not seen, so that a run without whitening costs more than predicted, by this factor.
UNSEEN = 1.5
#: What is predicted where no one describes what a run is for.
ACCURACY = 1e-6
#: Where the largest second moment is more than this many times the median, noise is looked at relative to each feature.
#: Without this, columns with scales from 1e-3 to 1e3 do not end in 1,500 rounds to 1e-6 (docs/results/ablation.md).
UNEVEN = 1e4
#: The step of the announced root, in units of √(floor/d): its error is then well below what it must not be, √floor.
ROOT_STEP = 0.5
#: Sizes are powers of two within 2⁻⁵⁹ and 2⁵⁹, so that float32 holds all that is made of them.
LARGEST_POWER = 59
NO_BOUNDS = (
    "preconditioner: QuantizedMoments needs losses with known bounds of their Hessians (linear models; with levels for "
    "at most 4,000 features); give another one, or None"
)


#: The report of a choice.
NAMES = {"none": "no preconditioner", "diagonal": "the diagonal", "whitening": "whitening"}


class Sent(NamedTuple):
    """The message of a client: powers of two above the diagonal, the triangle relative to them, its gradient at zero.

    ``rounds`` is what it finds that whitening takes on its own data if no eigenvalue is below the noise.
    """

    sizes: Array
    triangle: Array
    slope: Array
    rounds: Array


class Sizes(NamedTuple):
    """The message of a client if the diagonal is all that is wanted."""

    sizes: Array


class Half(NamedTuple):
    """Sums over every other client: their triangles, and the variances of what rounding did to them."""

    triangle: Array
    variance: Array


class Sums(NamedTuple):
    """Sums over clients: of the two halves of them, of the sizes, the gradients and the rounds."""

    even: Array
    odd: Array
    even_variance: Array
    odd_variance: Array
    sizes: Array
    slope: Array
    rounds: Array


class Choice(NamedTuple):
    """A preconditioner, None where there is better none, or ``"moments"`` where exact ones are needed; and why."""

    preconditioner: Preconditioner | Literal["moments"] | None
    reason: str


@question("quantized_moments")
@dataclasses.dataclass(frozen=True)
class QuantizedMoments(Question):
    """A bound of the Hessian from second moments that some clients send once, a few bits for a number.

    Each of m clients, drawn at random, sends the triangle of its bound relative to powers of two above its diagonal,
    quantized (max-norm QSGD, entropy coded). It also sends the exponents of these powers, and its gradient at zero in
    few levels. Eigenvalues of the mean that are below the noise, which the server estimates from the levels, are
    raised to it. What the server announces to all clients is the Cholesky root of that, quantized with a step to which
    the method is not sensitive; both sides use the quantized one. Since clients compute their Lipschitz constants in
    whatever coordinates come out, steps are safe however rough all this is.

    Parameters
    ----------
    levels
        s; 0 for the diagonal alone, of which the exponents are sent.
    clients
        m; all by default.
    accuracy
        The relative error that a run is for, from which it is predicted what pays.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1))
    >>> method = fpdfp.ShiftedPDFP(preconditioner=fpdfp.precondition.QuantizedMoments(levels=31, clients=1))
    >>> fpdfp.solve(problem, method, rounds=100).certificate.relative_gap < 1e-9
    True
    """

    levels: int
    clients: int | None = None
    accuracy: float = ACCURACY

    reveals = reveals(settings="levels clients accuracy", uses="curvature_diagonals curvatures gradients")

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _checks.integer("levels", self.levels, at_least=0, at_most=2**20))
        if self.clients is not None:
            object.__setattr__(self, "clients", _checks.integer("clients", self.clients, at_least=1))

    def count(self, n_clients: int) -> int:
        """The number of of that a given number of clients send something."""
        return n_clients if self.clients is None else min(self.clients, n_clients)

    def draw_clients(self, n_clients: int, seed: int) -> IntArray:
        """The clients that send something, of a given number."""
        return choose_clients(seed, 0, n_clients, self.count(n_clients), Purpose.ONCE_CLIENTS)

    @property
    def tells_pairs(self) -> bool:
        """Whether products of pairs of features are revealed: not by the diagonal alone."""
        return bool(self.levels)

    def messages(self, shape: Shape) -> dict[str, tuple[Compressor, Shape]]:
        """The compressor of each field of a message, and its shape."""
        d = shape[-1]
        sizes: dict[str, tuple[Compressor, Shape]] = {"sizes": (Natural(), (d,))}
        if not self.levels:
            return sizes
        return sizes | {
            "triangle": (QSGD(self.levels, block=None, norm="max"), (d * (d + 1) // 2,)),
            "slope": (QSGD(SLOPE_LEVELS, block=None, norm="max"), shape),
            "rounds": (Full(), (1,)),
        }

    def count_numbers(self, shape: Shape) -> int:
        """The number of numbers that a client works with."""
        return shape[-1] ** 2 if self.levels else shape[-1]

    def answer(self, local: LocalLosses) -> Sent | Sizes:
        """Return what each of some clients sends."""
        diagonals = local.curvature_diagonals()
        if diagonals is None:
            raise ValueError(NO_BOUNDS)
        sizes = powers_above(diagonals)
        if not self.levels:
            return Sizes(sizes.astype(np.float32))
        triangles = np.empty((len(sizes), sizes.shape[1] * (sizes.shape[1] + 1) // 2), dtype=np.float32)
        losses = local.losses
        slope = to_host(local.gradients(losses.xp.zeros(losses.shape, dtype=losses.dtype)))
        rounds = np.empty((len(sizes), 1), dtype=np.float32)
        for row, own in enumerate(sizes):
            bounds = local._replace(clients=local.clients[row : row + 1]).curvatures()
            if bounds is None:
                raise ValueError(NO_BOUNDS)
            triangles[row] = np.clip(lower(bounds[0]) / weights(own), -1.0, 1.0)
            rounds[row] = self.strain(bounds[0], triangles[row], own, slope[row])
        return Sent(sizes.astype(np.float32), triangles, np.clip(slope, -1e17, 1e17).astype(np.float32), rounds)

    def strain(self, hessian: Array, triangle: Array, sizes: Array, slope: Array) -> int:
        """Simulate the rounds on a client's own data with its exact moments, but for eigenvalues below the noise.

        The server cannot see what is below the noise; a client can.
        """
        spread = variances(triangle, self.levels) * weights(sizes) ** 2 / (self.clients or 1)
        diagonal = filled(sizes)
        roots = np.sqrt(nearest_powers(diagonal)) if is_uneven(diagonal) else np.ones(len(diagonal))
        values, vectors = np.linalg.eigh(hessian / np.outer(roots, roots))
        least = noise_floor(full(spread) / np.outer(roots, roots) ** 2, float(values[-1]), FLOORS[0])
        # Moments and what is made of them have the same eigenvectors.
        raised = np.maximum(values, least)
        return count_steps(values / raised, (-slope / roots) @ vectors / np.sqrt(raised), self.accuracy)

    def add_up(self, sent: Any, places: IntArray, times: Array | None = None) -> Sums | Sizes:
        """Return sums over clients of what they sent, given their places among those who do."""
        sizes = sent.sizes.astype(np.float64)
        if not self.levels:
            return Sizes(sizes.sum(axis=0))
        triangles, errors = (np.zeros((2, sent.triangle.shape[1])) for _ in range(2))
        for place, one, own in zip(places % 2, sent.triangle, sizes, strict=True):
            weight = weights(own)
            triangles[place] += one * weight
            errors[place] += variances(one, self.levels) * weight**2
        slope = sent.slope.sum(axis=0, dtype=np.float64)
        rounds = sent.rounds.sum(axis=0, dtype=np.float64)
        return Sums(triangles[0], triangles[1], errors[0], errors[1], sizes.sum(axis=0), slope, rounds)

    def build(self, sums: Sums | Sizes, model: Model, n_clients: int, given: Circumstances | None) -> Choice:
        """Return the preconditioner that came of it; none, where one is not predicted to pay in the circumstances."""
        m = self.count(n_clients)
        who = "all clients" if m == n_clients else f"{m} of {n_clients} clients"
        shape = model.shape
        rows = shape[0] if len(shape) == 2 else None
        diagonal = filled(sums.sizes / m)
        powers = nearest_powers(diagonal)
        scaling = Scaling.coarse(powers, rows)
        if isinstance(sums, Sizes):
            return Choice(scaling, f"powers of two from {who}")
        if not sums.sizes.any():
            return Choice(None, f"no preconditioner, since the features of {who} that were asked are all zero")
        whole = Half((sums.even + sums.odd) / m, (sums.even_variance + sums.odd_variance) / m**2)
        scale = powers if is_uneven(diagonal) else None
        # An answer of all clients is no sample: it shows its own value.
        parts = (whole, whole) if m == n_clients else halves(sums, m)
        rounds = predicted(*parts, -sums.slope / m, scale, self.accuracy)
        floor = min(FLOORS, key=lambda one: rounds[str(one)])
        whitening = announced(*above_noise(whole, scale, floor), scale, rows)
        if m == n_clients:
            whitening = whitening.bounded(self.bound(whitening, whole.triangle, sums.sizes / m))
        if given is None:
            return Choice(whitening, f"moments of {who}, {self.levels} levels")
        strained = float(sums.rounds[0]) / m
        if strained > STRAINED * given.floor:
            coarse = given.price(given.floor + strained, 0.0, n_clients * whitening.bits)
            numbers = 32.0 * n_clients * len(whole.triangle)
            exact = given.price(2.0 * given.floor, numbers, numbers, n_clients, 1)
            if given.score(exact) < given.score(coarse):
                return Choice("moments", "")
        prices = {
            "none": given.price(given.floor + rounds["none"]),
            "diagonal": given.price(given.floor + rounds["diagonal"], 0.0, n_clients * scaling.bits),
            "whitening": given.price(given.floor + rounds[str(floor)], 0.0, n_clients * whitening.bits),
        }
        scores = {name: (UNSEEN if name != "whitening" else 1.0) * given.score(one) for name, one in prices.items()}
        best = min(scores, key=scores.__getitem__)
        candidates = {"none": None, "diagonal": scaling, "whitening": whitening}
        told = ", ".join(f"{given.show(price)} with {NAMES[name]}" for name, price in prices.items())
        reason = f"{NAMES[best]}, from {who}, {self.levels} levels; predicted to {given.accuracy:g}: {told}"
        return Choice(candidates[best], reason)

    def bound(self, made: Whitening, triangle: Array, sizes: Array) -> float:
        """Return the smoothness that is known for certain where all clients have sent their moments.

        A number of a client is off by at most 1/s of the root of the product of its two sizes. So the mean of the
        bounds is at most what was decoded plus d/s times the sizes.
        """
        d = len(sizes)
        bound = full(triangle)
        bound[np.diag_indices(d)] += d * (1.0 / self.levels + 2.0**-21) * sizes
        S = made.inverse
        return float(np.linalg.eigvalsh(S.T @ bound @ S)[-1]) * (1.0 + 1e-9)


def halves(sums: Sums, m: int) -> tuple[Half, Half]:
    """Return the means of the two halves of m clients; twice the same where there is but one."""
    even, odd = (m + 1) // 2, m // 2
    first = Half(sums.even / even, sums.even_variance / even**2)
    return first, Half(sums.odd / odd, sums.odd_variance / odd**2) if odd else first


def is_uneven(diagonal: Array) -> bool:
    """Whether noise is to be looked at relative to each feature."""
    return float(diagonal.max()) > UNEVEN * float(np.median(diagonal))


def weights(sizes: Array) -> Array:
    """The root of the product of two sizes for each entry of a triangle; 1 for entries without sizes."""
    rows, columns = np.tril_indices(sizes.shape[-1])
    roots = np.sqrt(np.where(sizes > 0, sizes, 1.0))
    product: Array = roots[..., rows] * roots[..., columns]
    return product


def noise_floor(spread: Array, largest: float, floor: float) -> float:
    """Return a multiple of the noise of a matrix whose entries have these variances, above rounding of the largest.

    The norm of a symmetric matrix of independent entries is about 2√(the largest sum of variances in a row).
    """
    noise = 2.0 * math.sqrt(float(spread.sum(axis=1).max()))
    return max(floor * noise, len(spread) * 2.0**-21 * largest, 1e-300)


def above_noise(moments: Half, scale: Array | None, floor: float = FLOORS[0]) -> tuple[Array, float]:
    """Return the matrix of moments with eigenvalues raised to a given multiple of the noise, and the least of them.

    With ``scale`` all this is done relative to the roots of a diagonal.
    """
    matrix, spread = full(moments.triangle), full(moments.variance)
    if scale is not None:
        roots = np.sqrt(scale)
        matrix, spread = matrix / np.outer(roots, roots), spread / np.outer(scale, scale)
    values, vectors = np.linalg.eigh(matrix)
    least = noise_floor(spread, max(float(values[-1]), float(np.diag(matrix).max())), floor)
    raised = (vectors * np.maximum(values, least)) @ vectors.T
    return (raised + raised.T) / 2.0, least


def announced(matrix: Array, least: float, scale: Array | None, rows: int | None) -> Whitening:
    """Return the whitening of a matrix whose eigenvalues are at least ``least``, its root as coarse as it may be."""
    step = ROOT_STEP * math.sqrt(least / len(matrix))
    return Whitening.coarse(matrix, step, scale, rows)


def predicted(first: Half, second: Half, slope: Array, scale: Array | None, accuracy: float) -> dict[str, int]:
    """Simulate rounds on the second half's moments: in no coordinates but x, and in those that the first half gives.

    These are ``"diagonal"``, and a whitening for each of ``FLOORS``.
    """
    hessian = above_noise(second, scale)[0]
    if scale is not None:
        hessian = hessian * np.sqrt(np.outer(scale, scale))

    def inside(factor: Array) -> int:
        return simulated(factor.T @ hessian @ factor, slope @ factor, accuracy)

    rounds = {"none": simulated(hessian, slope, accuracy)}
    rounds["diagonal"] = inside(np.diag(1.0 / np.sqrt(filled(np.diag(full(first.triangle))))))
    for floor in FLOORS:
        root = np.linalg.cholesky(above_noise(first, scale, floor)[0])
        if scale is not None:
            root = np.sqrt(scale)[:, None] * root
        rounds[str(floor)] = inside(np.linalg.inv(root).T)
    return rounds


def powers_above(diagonals: Array) -> Array:
    """The smallest powers of two above given numbers, 0 for zeros."""
    exponents = np.ceil(np.log2(np.where(diagonals > 0, diagonals, 1.0)))
    powers: Array = np.where(diagonals > 0, 2.0 ** np.clip(exponents, -LARGEST_POWER, LARGEST_POWER), 0.0)
    return powers


def nearest_powers(values: Array) -> Array:
    """The powers of two that are nearest to positive numbers, in their logarithms."""
    powers: Array = 2.0 ** np.round(np.log2(values))
    return powers


def variances(decoded: Array, levels: int) -> Array:
    """Estimate the variance of what stochastic rounding to multiples of at most 1/s did to each number.

    Between two multiples it is 1/6 of the squared step on average. A number far below the step is sent as 0 or, rarely,
    as one step, and then its variance is the squared step times that chance: so 0 counts nothing and one step counts
    half. The standard deviation of a sum is right within a factor 1.5 whichever way numbers are spread.
    """
    steps = np.abs(decoded) * levels
    part: Array = np.where(steps < 0.25, 0.0, np.where(steps < 1.5, 0.5, 1.0 / 6.0)) / levels**2
    return part


def filled(curvature: Array) -> Array:
    """Return curvatures with missing ones replaced by the mean of the others: such a coordinate may have any."""
    there = curvature > 0
    return np.where(there, curvature, curvature[there].mean() if there.any() else 1.0)
