"""What a run is predicted to cost, so that a preconditioner is chosen by its price: rounds, and bits both ways.

Before anyone is asked, only sizes are known: N clients, n of them a round, d features, the rows of a client, the bits
of a round, and the accuracy ε that the run is for, k = log10(1/ε). Second moments from m clients with s levels then are
predicted to cost

    once     d(d + 1)/2 numbers of 0.45 log2 s bits from each of m clients, of 0.45 log2(s√m) − 1 bits to each of N
    rounds   √(N/n) k^1.4 (1 + d/rows of m clients) + 0.4 ν k^4.5,   ν = 2√(d/6m)/s

The first term is what clients that take part now and then, and messages of few levels, cost on a problem that is
perfectly conditioned; ν is the error that the levels leave, relative to the largest curvature. Constants were fitted to
a9a and covtype: they tell 10 rounds from 40, not 10 from 12.

Once some clients have sent their moments the server knows more. Half of them make the preconditioner, the other half
say what it is worth: accelerated gradient steps on the quadratic of the other half's moments and of the gradients are
counted until ε, with it and without (:func:`simulated`), and √(N/n) k^1.4 is added to both. (What all clients have
sent is judged by itself.) Where moments as fine as
they should be cost much, a few clients send coarse ones first, and the others are asked if it is predicted to pay.
"""

from __future__ import annotations

import itertools
import math
from typing import Literal, NamedTuple, get_args

import numpy as np

from fpdfp._momentum import accelerate
from fpdfp._typing import Array

#: What a user would rather save: rounds, bits, or the product of the two.
Prefer = Literal["balanced", "rounds", "bits"]
PREFERENCES: tuple[Prefer, ...] = get_args(Prefer)
#: The numbers of levels, and of clients beside all, that are considered.
LEVELS = (15, 31, 63, 127, 255, 511)
CLIENTS = (3, 5, 10, 20, 50, 100, 200, 500, 1000)
#: A bit up counts as so many down: most networks send that much slower than they receive.
UPLINK = 4.0
#: A first question has so many rows for each feature. It is asked if it costs that much less than the whole, and the
#: whole more than so many rounds.
ENOUGH, CHEAPER, DEAR = 2.0, 2.5, 10.0
#: Simulated rounds end here.
MOST = 2000


class Circumstances(NamedTuple):
    """What is known of a run before it begins.

    Attributes
    ----------
    n_clients, clients_per_round
        N and n.
    rows
        How many rows a client has, on average.
    round_up, round_down
        The bits of a round.
    accuracy
        The relative error that the run is for.
    prefer
        What is to be saved.
    """

    n_clients: int
    clients_per_round: int
    rows: float
    round_up: float
    round_down: float
    accuracy: float
    prefer: Prefer

    @property
    def digits(self) -> float:
        """log10(1/ε), at least 1."""
        return max(1.0, -math.log10(self.accuracy))

    @property
    def floor(self) -> float:
        """The rounds that a perfectly conditioned problem takes."""
        return math.sqrt(self.n_clients / self.clients_per_round) * math.pow(self.digits, 1.4)

    def price(self, rounds: float, once_up: float = 0.0, once_down: float = 0.0) -> Price:
        """What so many rounds cost, with what is sent once."""
        return Price(rounds, once_up + rounds * self.round_up, once_down + rounds * self.round_down)

    def score(self, price: Price) -> float:
        """What is to be as small as possible."""
        if self.prefer == "rounds":
            return price.rounds
        bits = UPLINK * price.up + price.down
        return bits if self.prefer == "bits" else bits * price.rounds


class Price(NamedTuple):
    """Rounds, and bits up and down."""

    rounds: float
    up: float
    down: float


def noise(d: int, clients: int, levels: int) -> float:
    """The error that levels leave in the mean of some clients' moments, relative to the largest curvature."""
    return 2.0 * math.sqrt(d / (6.0 * clients)) / levels


def once(given: Circumstances, d: int, levels: int, clients: int) -> tuple[float, float]:
    """The bits of second moments of so many levels and clients, up and down, as far as sizes tell."""
    numbers = d * (d + 1) / 2
    up = clients * numbers * 0.45 * math.log2(levels)
    return up, given.n_clients * numbers * max(0.5, 0.45 * math.log2(levels * math.sqrt(clients)) - 1.0)


def of_moments(given: Circumstances, d: int, levels: int, clients: int) -> Price:
    """What a run costs with second moments of so many levels and clients, as far as sizes tell."""
    rounds = given.floor * (1.0 + d / (clients * given.rows))
    rounds += 0.4 * noise(d, clients, levels) * math.pow(given.digits, 4.5)
    return given.price(rounds, *once(given, d, levels, clients))


def choose(given: Circumstances, d: int) -> tuple[int, int]:
    """Return how many levels and clients second moments are to have."""
    clients = [*(m for m in CLIENTS if m < given.n_clients), given.n_clients]
    grid = itertools.product(LEVELS, clients)
    return min(grid, key=lambda one: given.score(of_moments(given, d, *one)))


def crudest(given: Circumstances, d: int) -> tuple[int, int]:
    """Return the fewest levels and clients with which second moments are of use."""
    return LEVELS[0], min(given.n_clients, max(3, math.ceil(ENOUGH * d / given.rows)))


def probe(given: Circumstances, d: int) -> tuple[int, int]:
    """Return the levels and clients that are asked for first: few, where it costs much less to learn if it will pay."""
    levels, clients = choose(given, d)
    coarse, few = crudest(given, d)
    few = min(few, clients)
    first, whole = (once(given, d, *one)[0] for one in ((coarse, few), (levels, clients)))
    return (coarse, few) if max(CHEAPER * first, DEAR * given.round_up) < whole else (levels, clients)


def simulated(hessian: Array, slope: Array, accuracy: float) -> int:
    """Count accelerated gradient steps on ½⟨x, Hx⟩ − ⟨b, x⟩ from zero until the gap is so small a part of the first.

    H is positive definite; b may have several rows, each a problem of its own.
    """
    values, vectors = np.linalg.eigh(hessian)
    return count_steps(values, np.atleast_2d(slope) @ vectors, accuracy)


def count_steps(values: Array, slope: Array, accuracy: float) -> int:
    """Count the steps of :func:`simulated` for a diagonal H, given by its eigenvalues."""
    if values.max() <= 0:
        return 1  # the data of a client may be all zeros
    b = np.linalg.norm(np.atleast_2d(slope), axis=0)
    values = np.maximum(values, 1e-12 * values.max())
    gamma, best = 1.0 / float(values.max()), b / values
    x = z = np.zeros_like(b)
    theta, enough = 1.0, accuracy * float(b @ best)
    for k in range(1, MOST + 1):
        moved = z - gamma * (values * z - b)
        if float((z - moved) @ (moved - x)) > 0:
            theta = 1.0
        beta, theta = accelerate(theta)
        z = moved + beta * (moved - x)
        x = moved
        if float(values @ (x - best) ** 2) <= enough:
            return k
    return MOST
