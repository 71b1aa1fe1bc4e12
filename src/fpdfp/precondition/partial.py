"""Many features: the choice between no preconditioner, a diagonal and a few steep directions.

All clients send the diagonal of their bound, as powers of two. A few clients send the products of their bound with
public random directions, and their gradient at zero. The server takes the bound to be the steep directions that these
products show, plus a diagonal, and counts accelerated steps on that quadratic in the coordinates of each candidate.
The length of a step is what all clients allow for in these coordinates.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._array import to_host
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.question import Question, question, reveals
from fpdfp.compress import QSGD, Compressor
from fpdfp.precondition import cost
from fpdfp.precondition.base import Preconditioner
from fpdfp.precondition.coordinates import LowRank, Scaling
from fpdfp.precondition.quantized import NAMES, NO_BOUNDS, filled, nearest_powers
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Purpose, choose_clients

#: Directions in a sketch, and its levels.
RANK, LEVELS = 32, 255
#: The fewest clients that send a sketch, and the rows that they have together: about 16 for each direction.
CLIENTS, ROWS = 4, 500
#: Numbers of directions that are made as flat as the next. A sketch underestimates the curvature of its last half.
STEEPEST = (8, 16)
#: The number of features on which steps are counted: those with the largest slopes.
ACTIVE = 400
#: Powers of two above numbers are 1/ln 2 times as large on average.
ABOVE = 1.0 / math.log(2.0)


class Sent(NamedTuple):
    """The message of a client: products of its bound with public directions, and its gradient at zero."""

    sketch: Array
    slope: Array


@question("sketch")
@dataclasses.dataclass(frozen=True)
class Sketch(Question):
    """A few clients send the products of their second moments with public random directions.

    Parameters
    ----------
    clients
        How many clients are asked.
    """

    clients: int

    reveals = reveals(settings="clients", uses="curvature_products gradients")

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", _checks.integer("clients", self.clients, at_least=1))

    def draw_clients(self, n_clients: int, seed: int) -> IntArray:
        """Return who is asked."""
        return choose_clients(seed, 0, n_clients, min(self.clients, n_clients), Purpose.ONCE_CLIENTS)

    @property
    def tells_pairs(self) -> bool:
        """Products of second moments with directions are products of pairs of features."""
        return True

    def messages(self, shape: Shape) -> dict[str, tuple[Compressor, Shape]]:
        """Return what each field goes through, and its shape."""
        quantizer = QSGD(LEVELS, block=None, norm="max")
        return {"sketch": (quantizer, (RANK, shape[-1])), "slope": (quantizer, shape)}

    def count_numbers(self, shape: Shape) -> int:
        """The number of numbers that a client works with."""
        return RANK * shape[-1] + math.prod(shape)

    def answer(self, local: LocalLosses) -> Sent:
        """Return what each of some clients sends."""
        losses = local.losses
        sketch = local.curvature_products(directions(losses.shape[-1]))
        if sketch is None:
            raise ValueError(NO_BOUNDS)
        slope = to_host(local.gradients(losses.xp.zeros(losses.shape, dtype=losses.dtype)))
        return Sent(*(np.clip(field, -1e17, 1e17).astype(np.float32) for field in (sketch, slope)))


class PartialMoments:
    """The server's estimate of the mean of the clients' bounds.

    Parameters
    ----------
    sizes
        The mean over all clients of powers of two above the diagonal.
    sent
        The means of what some clients sent.
    clients
        The number of these.
    model
        Shapes, penalty and linear map.
    """

    def __init__(self, sizes: Array, sent: Sent, clients: int, model: Model) -> None:
        self.diagonal, self.slope, self.clients, self.model = filled(sizes), sent.slope, clients, model
        self.curvatures, self.steep = find_steep(sent.sketch, clients)

    @property
    def rows(self) -> int | None:
        """The number of rows that x has; None for a vector."""
        return self.model.shape[0] if len(self.model.shape) == 2 else None

    def candidates(self) -> dict[str, Scaling | LowRank | None]:
        """Return what could be announced."""
        found: dict[str, Scaling | LowRank | None] = {"none": None}
        powers = nearest_powers(self.diagonal)
        # Of features that are alike, rounding makes two powers that follow each other.
        if powers.max() > 2.0 * powers.min():
            found["diagonal"] = Scaling.coarse(powers, self.rows)
        for k in STEEPEST:
            if k < len(self.curvatures):
                found[f"rank {k}"] = LowRank(self.steep[:, :k], self.curvatures[:k] / self.curvatures[k], self.rows)
        return found

    def active(self) -> IntArray:
        """Return the features that matter: those with the largest slopes once the penalty has had its part."""
        model, slopes = self.model, np.atleast_2d(self.slope)
        if model.linop.is_identity:
            at = model.xp.asarray(slopes.reshape(model.shape), dtype=model.dtype)
            left = np.abs(np.atleast_2d(to_host(model.penalty.prox(at, 1.0))))
            slopes = left if left.max() > 0 else slopes
        sizes = np.linalg.norm(slopes, axis=0)
        order: IntArray = np.argsort(-sizes, kind="stable")[:ACTIVE]
        return np.sort(order[sizes[order] > 0] if (sizes > 0).any() else order)

    def hessian(self, active: IntArray) -> Array:
        """Return the bound between some features: the steep directions, and a diagonal."""
        low = (self.steep[active] * self.curvatures) @ self.steep[active].T
        diagonal = self.diagonal[active] / ABOVE
        matrix: Array = low + np.diag(np.maximum(diagonal - np.diag(low), 0.0))
        return matrix

    def choose(
        self, given: cost.Circumstances, smoothness: Callable[[Preconditioner | None], float]
    ) -> tuple[Preconditioner | None, str]:
        """Return the candidate with the lowest predicted price, and why.

        ``smoothness`` announces coordinates to all clients and returns the mean of their Lipschitz constants. The
        cheapest candidate is announced first. It is taken unless the constants make it more expensive than another.
        """
        active, candidates, prices, asked = self.active(), self.candidates(), {}, set()
        hessian, b = self.hessian(active), -np.atleast_2d(self.slope)[:, active]

        def price(one: Scaling | LowRank | None, largest: float) -> cost.Price:
            # A proximal step in the coordinates of S is one in the metric S⁻ᵀS⁻¹, restricted to these features.
            root = np.eye(len(active)) if one is None else np.linalg.cholesky(one.metric(active))
            inside = np.linalg.solve(root, np.linalg.solve(root, hessian).T)
            steps = cost.simulated(inside, np.linalg.solve(root, b.T).T, given.accuracy, largest)
            return given.price(given.floor + steps, 0.0, 0.0 if one is None else given.n_clients * one.bits)

        prices = {name: price(one, 0.0) for name, one in candidates.items()}
        while (best := min(prices, key=lambda name: given.score(prices[name]))) not in asked:
            asked.add(best)
            prices[best] = price(candidates[best], smoothness(candidates[best]))
        told = ", ".join(f"{given.show(price)} with {NAMES.get(name, name)}" for name, price in prices.items())
        who = f"with a sketch of {self.clients} of {given.n_clients} clients"
        return candidates[best], f"{NAMES.get(best, best)}, {who}; predicted to {given.accuracy:g}: {told}"


def find_steep(sketch: Array, clients: int) -> tuple[Array, Array]:
    """Return the curvatures of the steep directions of a sketch Y = ΩH, the largest first, and these, as columns.

    With a shift ν above the noise, H + νI ≈ (Y + νΩ)ᵀ(ΩYᵀ + νΩΩᵀ)⁻¹(Y + νΩ) (J. A. Tropp, A. Yurtsever, M. Udell and
    V. Cevher, "Fixed-rank approximation of a positive-semidefinite matrix from streaming data", NeurIPS 2017).
    """
    d = sketch.shape[1]
    tests = directions(d)
    # An entry is off by a uniform error of a step, over the root of the number of clients.
    noise = float(np.abs(sketch).max()) / LEVELS * math.sqrt(d / (6.0 * clients))
    shift = max(noise, 1e-300)
    images = sketch + shift * tests
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


def directions(features: int) -> Array:
    """Return public random directions of length 1, as rows: signs, which are the same on every machine."""
    bits = np.random.default_rng(0x5EED).integers(0, 2, (RANK, features), dtype=np.int8)
    return (2.0 * bits - 1.0) / math.sqrt(features)
