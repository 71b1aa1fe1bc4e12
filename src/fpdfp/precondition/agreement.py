"""What clients and server agree on before the first round: coordinates in which a problem is better conditioned."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

from fpdfp._typing import IntArray, Shape
from fpdfp.compress import Compressor
from fpdfp.losses.base import Losses
from fpdfp.precondition import exchange
from fpdfp.precondition.base import Preconditioner
from fpdfp.precondition.cost import Circumstances
from fpdfp.precondition.fourier import Fourier
from fpdfp.precondition.quantized import QuantizedMoments
from fpdfp.precondition.structure import Structure
from fpdfp.problem import LocalLosses, Model
from fpdfp.steps import Constants

#: What a user may ask for: coordinates, how to find them, the name of a way, or none.
Wanted = Preconditioner | QuantizedMoments | exchange.Kind | None


class Exchange(Protocol):
    """What some clients send once; the server sees sums of it."""

    def draw_clients(self, n_clients: int, seed: int) -> IntArray:
        """Return who is asked."""

    def count_numbers(self, model: Model) -> int:
        """Return how many numbers a client works with: so many clients are asked at a time as fit into memory."""

    def gather(self, model: Model, local: LocalLosses) -> Any:
        """Return what clients send: a named tuple of arrays with a leading client axis."""

    def messages(self, model: Model) -> dict[str, tuple[Compressor, Shape]]:
        """Return what each field goes through, and its shape; nothing where fields are sent as they are."""

    def add_up(self, sent: Any, places: IntArray) -> Any:
        """Return sums over clients of what they sent, given their places among those who are asked."""


class Clients(Protocol):
    """All clients, as an agreement sees them: sums of what they send, and their constants."""

    model: Model
    losses: Losses

    def describe(self) -> Circumstances:
        """Return what is known of the run before anyone is asked."""

    def add_up(self, question: Exchange) -> tuple[Any, int]:
        """Return sums of what clients send once, and how many of them were asked."""

    def constants(self, coordinates: Preconditioner | None) -> Constants:
        """Return the clients' constants in some coordinates."""


@dataclasses.dataclass(frozen=True)
class Agreement:
    """What was agreed on.

    Attributes
    ----------
    coordinates
        The coordinates to work in; None for those of x.
    reason
        Why, where they were chosen automatically.
    """

    coordinates: Preconditioner | None = None
    reason: str = ""

    @property
    def bits(self) -> int:
        """The bits with which the server tells one client."""
        return 0 if self.coordinates is None else self.coordinates.bits


def agree(wanted: Wanted, clients: Clients) -> Agreement:
    """Have clients send what a preconditioner is made of, and return it; ``"auto"`` takes one if it is to pay."""
    if wanted is None or isinstance(wanted, Preconditioner):
        return Agreement(wanted)
    given = clients.describe() if wanted == "auto" else None
    question = wanted if given is None else exchange.plan(clients.losses, clients.model, given)
    reason = ""
    if isinstance(question, Structure):
        assert given is not None
        sums, _ = clients.add_up(question)
        seen = question.build(sums, clients.model, clients.losses.n_clients, given)
        return Agreement(seen.preconditioner, seen.reason)
    while isinstance(question, QuantizedMoments):
        sums, _ = clients.add_up(question)
        choice = question.build(sums, clients.model, clients.losses.n_clients, given)
        if not isinstance(choice.preconditioner, str | QuantizedMoments):
            return Agreement(choice.preconditioner, choice.reason)
        question = choice.preconditioner
        reason = (
            "clients find their features too ill conditioned for quantized moments" if question == "moments" else ""
        )
    if question is None:
        return Agreement()
    sums, count = clients.add_up(exchange.Exact(question))
    means = exchange.divide(sums, count)
    try:
        coordinates = exchange.build(means, clients.model.shape)
    except ValueError as error:
        if given is not None:
            return Agreement(None, reason)
        raise ValueError(f"preconditioner={wanted!r} does not fit these losses: {error}") from error
    if given is not None and isinstance(coordinates, Fourier) and not _helps(coordinates, means, clients):
        return Agreement(None, reason)
    return Agreement(coordinates, reason)


def _helps(coordinates: Fourier, means: exchange.Once, clients: Clients) -> bool:
    """Whether a Fourier transform makes the problem better conditioned, by the clients' constants in it."""
    assert isinstance(means, exchange.Response)
    return coordinates.helps(float(means.lipschitz[0]), clients.constants(coordinates).lipschitz_mean)
