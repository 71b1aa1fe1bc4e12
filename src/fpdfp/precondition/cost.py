"""Predicted cost of a run, by which a preconditioner is chosen: rounds, bits both ways, and time.

Before anyone is asked, only sizes are known: N clients, n of them a round, d features, the rows of a client, the bits
of a round, and the accuracy ε that the run is for, k = log10(1/ε). Second moments from m clients with s levels then are
predicted to cost

    once     d(d + 1)/2 numbers of 0.45 log2 s bits from each of m clients, of 0.45 log2(s√m) − 1 bits to each of N
    rounds   √(N/n) k^1.4 (1 + d/rows of m clients) + 0.4 ν k^4.5,   ν = 2√(d/6m)/s

The first term is what clients that take part now and then, and messages of few levels, cost on a problem that is
perfectly conditioned. Here ν is the error that the levels leave, relative to the largest curvature. Constants were
fitted to a9a and covtype: they distinguish 10 rounds from 40, not 10 from 12.

Once some clients have sent their moments the server knows more. Half of them make the preconditioner, the other half
describe what it is worth. Accelerated gradient steps on the quadratic of the other half's moments and of the gradients
are counted until ε, with it and without (:func:`simulated`), and √(N/n) k^1.4 is added to both. (What all clients have
sent is judged by itself.) For many features, parts of their moments are requested (:mod:`fpdfp.precondition.partial`).

Where a :class:`Network` is given, rounds and bits become seconds. Clients send and receive at the same time, each over
a line of its own, and every exchange, of a round or before the first, takes its latency as well.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Literal, NamedTuple, get_args

import numpy as np

from fpdfp import _checks
from fpdfp._numbers import accelerate, format_bits
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError

#: What a user would rather save: rounds, bits, the product of the two, or time on the network as it was measured.
Word = Literal["balanced", "rounds", "bits", "time"]
PREFERENCES: tuple[Word, ...] = get_args(Word)
#: The numbers of levels, and of clients besides all, that are considered.
LEVELS = (15, 31, 63, 127, 255, 511)
CLIENTS = (3, 5, 10, 20, 50, 100, 200, 500, 1000)
#: The bits of an entry of x and of a gradient in a look for a relative gap of 1e-3, and what its messages have besides:
#: the loss, headers and scales, up and down.
LOOK_BITS, LOOK_UP, LOOK_DOWN = 16, 288, 144
#: By the bits of second derivatives of a quadratic loss: about how many Newton steps it takes to 1e-3 or 1e-6, and the
#: relative gap that the first one leads to. On eight sets of 8 to 80 features, none of them held out, the geometric
#: means of steps are 1.1, 1.4 and 2.5.
MODELS = {24: (1.0, 1e-8), 16: (1.4, 1e-5), 10: (2.5, 1e-3)}
#: The bits of second derivatives of other losses, and what the messages have besides.
MODEL_BITS, MODEL_UP = 12, 288
#: Simulated rounds end here.
MOST = 2000


@dataclasses.dataclass(frozen=True)
class Network:
    """Latency and bandwidth: with ``prefer=Network(…)``, automatic choices save time.

    Clients work at the same time, each with a line of its own to the server. So an exchange in which a client sends u
    bits and receives w takes ``latency + u/up + w/down`` seconds.

    Parameters
    ----------
    latency
        Seconds that an exchange takes however little is sent: the way there and back, and what clients compute.
    up, down
        Bits a second from a client to the server, and from the server to a client.

    Examples
    --------
    Sites with 10 Mbit/s up and 50 Mbit/s down that answer within 80 ms:

    >>> network = Network(latency=0.08, up=10e6, down=50e6)
    >>> network.seconds(1e6, 5e6)
    0.28

    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1))
    >>> fpdfp.solve(problem, rounds=100, tol=1e-6, prefer=network).status
    'converged'
    """

    latency: float
    up: float
    down: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "latency", _checks.real("latency", self.latency, at_least=0.0))
        for name in ("up", "down"):
            object.__setattr__(self, name, _checks.real(name, getattr(self, name), positive=True))

    def seconds(self, up: float, down: float, exchanges: float = 1.0) -> float:
        """Return the time of some exchanges in which a client sends and receives given numbers of bits in all."""
        return exchanges * self.latency + up / self.up + down / self.down


#: What is to be saved: something in a word, or time.
Prefer = Word | Network
#: Sites of one country: taken for the network where none was measured.
TYPICAL = Network(latency=0.05, up=20e6, down=50e6)


def check_preference(prefer: object) -> None:
    """Refuse what is neither a word nor a network."""
    if not isinstance(prefer, Network) and prefer not in PREFERENCES:
        words = ", ".join(map(repr, PREFERENCES))
        raise ArgumentError("prefer", f"must be one of {words}, or an fpdfp.Network, got {prefer!r}")


class Circumstances(NamedTuple):
    """The sizes of a run, known before it begins.

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

    def price(
        self, rounds: float, once_up: float = 0.0, once_down: float = 0.0, senders: int = 0, exchanges: int = 0
    ) -> Price:
        """The cost of rounds and of what is sent once, for given numbers of clients and exchanges."""
        seconds = 0.0
        if isinstance(self.prefer, Network):
            n, network = self.clients_per_round, self.prefer
            seconds = rounds * network.seconds(self.round_up / n, self.round_down / n)
            # What is announced goes to all clients.
            seconds += network.seconds(once_up / max(senders, 1), once_down / self.n_clients, exchanges)
        return Price(rounds, once_up + rounds * self.round_up, once_down + rounds * self.round_down, seconds)

    def score(self, price: Price) -> float:
        """The quantity to minimise."""
        if isinstance(self.prefer, Network):
            return price.seconds
        if self.prefer == "rounds":
            return price.rounds
        bits = price.up + price.down
        return bits if self.prefer == "bits" else bits * price.rounds

    def show(self, price: Price) -> str:
        """Write a price, with the time where that counts."""
        text = f"{price.rounds:.0f} rounds and {format_bits(price.up + price.down)}"
        return f"{text} in {price.seconds:.3g} s" if isinstance(self.prefer, Network) else text


class Price(NamedTuple):
    """Rounds, bits up and down, and seconds where a network is known."""

    rounds: float
    up: float
    down: float
    seconds: float = 0.0

    def plus(self, other: Price) -> Price:
        """Return what both cost, one after the other."""
        return Price(*map(sum, zip(self, other, strict=True)))


def noise(d: int, clients: int, levels: int) -> float:
    """The error that levels leave in the mean of some clients' moments, relative to the largest curvature."""
    return 2.0 * math.sqrt(d / (6.0 * clients)) / levels


def once(given: Circumstances, d: int, levels: int, clients: int) -> tuple[float, float]:
    """The bits of second moments, up and down, predicted from sizes for given numbers of levels and clients."""
    numbers = d * (d + 1) / 2
    up = clients * numbers * 0.45 * math.log2(levels)
    return up, given.n_clients * numbers * max(0.5, 0.45 * math.log2(levels * math.sqrt(clients)) - 1.0)


def of_moments(given: Circumstances, d: int, levels: int, clients: int) -> Price:
    """The cost of a run with second moments, predicted from sizes for given numbers of levels and clients."""
    rounds = given.floor * (1.0 + d / (clients * given.rows))
    rounds += 0.4 * noise(d, clients, levels) * math.pow(given.digits, 4.5)
    return given.price(rounds, *once(given, d, levels, clients), clients, 1)


def look_bits(gap: float) -> float:
    """The bits of an entry in a look for a relative gap: each tenth takes 3.3 more."""
    return LOOK_BITS + math.log2(max(1e-3 / gap, 1.0))


def of_look(given: Circumstances, size: int, looks: float = 1.0, gap: float = 1e-3) -> Price:
    """The cost of looks at the gap by gradients of all clients, for a relative gap."""
    n, bits = given.n_clients * looks, look_bits(gap) * size
    return given.price(0.0, n * (bits + LOOK_UP), n * (bits + LOOK_DOWN), given.n_clients, math.ceil(looks))


def of_models(given: Circumstances, features: int, bits: int, models: float = 1.0) -> Price:
    """The cost of second derivatives of all clients in some features, at some points."""
    n, triangle = given.n_clients * models, features * (features + 1) / 2
    return given.price(
        0.0, n * (bits * triangle + MODEL_UP), n * LOOK_BITS * features, given.n_clients, math.ceil(models)
    )


def of_steps(given: Circumstances, size: int, steps: float) -> Price:
    """The cost of Newton steps with a new model of all features in each: the looks after them, and the one before."""
    models = of_models(given, size, MODEL_BITS, steps)
    return models.plus(of_look(given, size, 1.0 + steps))._replace(rounds=steps)


def of_quadratic(given: Circumstances, size: int, bits: int) -> Price:
    """The cost of Newton steps for a quadratic loss, with one model."""
    steps, gap = MODELS[bits]
    return of_models(given, size, bits).plus(of_look(given, size, 1.0 + steps, gap))._replace(rounds=steps)


def choose_bits(given: Circumstances, size: int) -> int:
    """Return the bits of second derivatives of a quadratic loss."""
    return min(MODELS, key=lambda bits: given.score(of_quadratic(given, size, bits)))


def choose(given: Circumstances, d: int) -> tuple[int, int]:
    """Return how many levels and clients second moments are to have."""
    clients = [*(m for m in CLIENTS if m < given.n_clients), given.n_clients]
    return min(itertools.product(LEVELS, clients), key=lambda one: given.score(of_moments(given, d, *one)))


def simulated(hessian: Array, slope: Array, accuracy: float, smoothness: float = 0.0) -> int:
    """Count accelerated gradient steps on ½⟨x, Hx⟩ − ⟨b, x⟩ from zero until the gap is so small a part of the first.

    H is positive definite; b may have several rows, each a problem of its own. Steps have the length 1/L, L the largest
    eigenvalue or ``smoothness``, if that is larger.
    """
    values, vectors = np.linalg.eigh(hessian)
    return count_steps(values, np.atleast_2d(slope) @ vectors, accuracy, smoothness)


def count_steps(values: Array, slope: Array, accuracy: float, smoothness: float = 0.0) -> int:
    """Count the steps of :func:`simulated` for a diagonal H, given by its eigenvalues."""
    if values.max() <= 0:
        return 1  # the data of a client may be all zeros
    b = np.linalg.norm(np.atleast_2d(slope), axis=0)
    values = np.maximum(values, 1e-12 * values.max())
    gamma, best = 1.0 / max(float(values.max()), smoothness), b / values
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
