"""The agreement of clients and server before the first round: coordinates with a better condition."""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol

from fpdfp.cohorts.question import Question, Total
from fpdfp.losses.base import Losses
from fpdfp.precondition import cost, exchange, partial
from fpdfp.precondition.base import Preconditioner
from fpdfp.precondition.coordinates import Fourier, Whitening
from fpdfp.precondition.quantized import FEW, QuantizedMoments
from fpdfp.problem import Model
from fpdfp.steps import Constants

#: What a user may request: coordinates, how to find them, the name of a way, or none.
Wanted = Preconditioner | QuantizedMoments | exchange.Kind | None
#: Up to this many features all second moments are sent in float32 where rounds are all that counts, 2 MB from each.
MOMENTS = 1000
TOO_COARSE = "clients find their features too ill conditioned for quantized moments"


class Clients(Protocol):
    """All clients, as an agreement sees them: sums of what they send, and their constants."""

    model: Model
    losses: Losses

    def describe(self) -> cost.Circumstances:
        """Return what is known of the run before anyone is asked."""

    def ask(self, question: Question) -> Total:
        """Return sums of what clients send once."""

    def constants(self, coordinates: Preconditioner | None) -> Constants:
        """Return the clients' constants in some coordinates."""


@dataclasses.dataclass(frozen=True)
class Agreement:
    """The result of an agreement.

    Attributes
    ----------
    coordinates
        The coordinates to work in; None for the coordinates of x.
    reason
        Why, where they were chosen automatically.
    """

    coordinates: Preconditioner | None = None
    reason: str = ""


def agree(wanted: Wanted, clients: Clients) -> Agreement:
    """Have clients send what a preconditioner is made of, and return it; ``"auto"`` takes one if it is to pay."""
    if wanted is None or isinstance(wanted, Preconditioner):
        return Agreement(wanted)
    if wanted == "auto":
        return choose(clients)
    if isinstance(wanted, QuantizedMoments):
        return agree_on_moments(wanted, clients, None)
    try:
        return Agreement(ask_exact(wanted, clients)[0])
    except ValueError as error:
        raise ValueError(f"preconditioner={wanted!r} does not fit these losses: {error}") from error


def choose(clients: Clients) -> Agreement:
    """Return what is predicted to pay; where rounds are all that counts, what is known to need the fewest."""
    given, features = clients.describe(), clients.losses.shape[-1]
    kind = automatic(clients.losses, MOMENTS if given.prefer not in ("balanced", "bits") else FEW)
    if kind is None:
        return Agreement()
    if kind == "diagonal":
        return choose_for_many(clients, given)
    if kind == "moments" and given.prefer != "rounds":
        return agree_on_moments(QuantizedMoments(*cost.choose(given, features), given.accuracy), clients, given)
    return agree_on_exact(kind, clients)


def automatic(losses: Losses, most: int = MOMENTS) -> exchange.Kind | None:
    """Return the kind of preconditioner that losses allow, second moments for at most a given number of features."""
    if losses.form in ("linear", "quadratic"):
        return "moments" if losses.shape[-1] <= most else "diagonal"
    return "fourier" if losses.form == "convolution" else None


def choose_for_many(clients: Clients, given: cost.Circumstances) -> Agreement:
    """Have all clients send a diagonal and a few a sketch, and return what these parts of moments say."""
    sums, count, *_ = clients.ask(QuantizedMoments(0))
    asked = max(partial.CLIENTS, math.ceil(partial.ROWS / given.rows))
    sent, senders, *_ = clients.ask(partial.Sketch(asked))
    means = partial.Sent(*(field / senders for field in sent))
    parts = partial.PartialMoments(sums[0] / count, means, senders, clients.model)
    return Agreement(*parts.choose(given, lambda one: clients.constants(one).lipschitz_mean))


def agree_on_moments(question: QuantizedMoments, clients: Clients, given: cost.Circumstances | None) -> Agreement:
    """Have clients send quantized moments, and exact ones where these are too coarse."""
    sums, asked, *_ = clients.ask(question)
    made, reason = question.build(sums, clients.model, clients.losses.n_clients, given)
    if made == "moments":
        return agree_on_exact(made, clients, TOO_COARSE)
    if given is not None and asked < clients.losses.n_clients and not isinstance(made, Whitening) and sums.sizes.any():
        return agree_on_diagonal(clients, reason)
    return Agreement(made, reason)


def agree_on_diagonal(clients: Clients, reason: str) -> Agreement:
    """Have all clients send their diagonals where a few have shown that their second moments are not worth more.

    With heavy tails a few clients do not determine the sizes of features. This was measured for t distributions with
    1.5 to 3 degrees of freedom, 60 to 200 features and 12 of 60 clients a round. In seven draws of eleven, runs to
    1e-6 take 0.35 to 0.83 times the rounds without a preconditioner. In three draws they take about as many, and in
    one at least 1.7 times as many.
    """
    sums = clients.ask(QuantizedMoments(0)).sums
    made, source = QuantizedMoments(0).build(sums, clients.model, clients.losses.n_clients, None)
    return Agreement(made if isinstance(made, Preconditioner) else None, f"{source}, since some say: {reason}")


def agree_on_exact(kind: exchange.Kind, clients: Clients, reason: str = "") -> Agreement:
    """Have clients send numbers in full; no preconditioner where these make none, or none that helps."""
    try:
        coordinates, means = ask_exact(kind, clients)
    except ValueError:
        return Agreement(None, reason)
    if isinstance(coordinates, Fourier):
        assert isinstance(means, exchange.Response)
        here = clients.constants(coordinates).lipschitz_mean
        if not coordinates.helps(float(means.lipschitz[0]), here):
            return Agreement(None, reason)
    return Agreement(coordinates, reason)


def ask_exact(kind: exchange.Kind, clients: Clients) -> tuple[Preconditioner, exchange.Once]:
    """Have all clients send what a preconditioner of a kind is made of, and return it and the means."""
    sums, count, *_ = clients.ask(exchange.Exact(kind))
    means = exchange.divide(sums, count)
    return exchange.build(means, clients.model.shape), means
