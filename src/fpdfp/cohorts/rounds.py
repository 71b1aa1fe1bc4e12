"""Questions of a run: a round's work, what clients certify of the gap, and what they remember."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, NamedTuple, Protocol

from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.question import Question, question, reveals
from fpdfp.errors import MessageError
from fpdfp.rng import MAX_ROUNDS

#: The most steps of inner solves that a site may claim.
LARGEST_WORK = (1 << 31) - 1


class Lacking(NamedTuple):
    """The parts that a site lacks to answer."""

    needs: tuple[str, ...]


class Participation(Protocol):
    """A site's part in a run, as questions see it."""

    def find(self, numbers: IntArray | None) -> IntArray:
        """Return the places here of clients that the server names by their numbers; None for all."""

    def find_all(self, numbers: IntArray | None) -> IntArray:
        """Return the places of all clients, if it is them who are named."""

    def agree(self, ask: Stamped, own: IntArray, *, forget: bool = True) -> bool:
        """Compare what clients remember with the server's stamps; False where a copy is needed."""

    def receive(self, message: Message, k: int) -> Any:
        """Return the server's message, None if what its differences refer to is not here."""

    def work(self, own: IntArray, message: Any, k: int) -> WorkDone:
        """Do a round's work of some of the clients."""

    def certify(self, frames: list[bytes]) -> Array:
        """Return what all clients certify of the gap."""

    def remember(self) -> dict[str, Array]:
        """Return all that the clients remember."""


@dataclasses.dataclass(frozen=True)
class Stamped(Question):
    """A question to clients with memory, with the server's stamps of that memory.

    Attributes
    ----------
    versions, digests
        The stamps: how many messages of each client have been confirmed, one number where it is the same for all.
    clients
        The numbers of those who are asked, None for all of the site.
    copies
        What they should remember, for those that disagree.
    """

    versions: IntArray | int
    digests: list[bytes]
    clients: IntArray | None = dataclasses.field(default=None, kw_only=True)
    copies: dict[str, dict[str, Array]] = dataclasses.field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        count = len(self.digests) if self.clients is None else len(self.clients)
        shapes = {(count,)} if isinstance(self.versions, int) else {(count,), self.versions.shape}
        if shapes != {(len(self.digests),)} or (self.clients is not None and self.clients.shape != (count,)):
            raise MessageError("versions and digests must belong to the clients of the request")

    def version_of(self, place: int) -> int:
        """Return the version of one of the clients that are asked."""
        return self.versions if isinstance(self.versions, int) else int(self.versions[place])

    @abc.abstractmethod
    def answer(self, data: Participation) -> Any:
        """Return what the clients answer, or what the site lacks."""


@dataclasses.dataclass(frozen=True)
class Message:
    """The server's message of a round: whole, or as the differences that lead to it.

    Attributes
    ----------
    whole
        The encoded arrays.
    steps
        The encoded differences of each step; the last one leads to this round's message.
    zero
        Whether the first difference is one to zeros, which every site knows.
    """

    #: Written as its fields alone, since the type of a question's field describes what it is.
    is_part = True

    whole: list[bytes] | None = None
    steps: list[list[bytes]] = dataclasses.field(default_factory=list)
    zero: bool = False


@dataclasses.dataclass(frozen=True)
class WorkDone:
    """The clients' messages, the bits of each by field and client, and what inner solves cost.

    ``diverged`` says that there are none, since numbers are no longer finite.
    """

    frames: dict[str, list[bytes]] = dataclasses.field(default_factory=dict)
    bits: IntArray | None = None
    work: tuple[int, int] = (0, 0)
    diverged: str = ""

    unbounded = ("bits", "work")  # those of the messages that come along; counts of steps

    def __post_init__(self) -> None:
        if not all(0 <= count <= LARGEST_WORK for count in self.work):
            raise MessageError("work must be two counts")


@question("update")
@dataclasses.dataclass(frozen=True)
class Update(Stamped):
    """A round's work of some of the clients."""

    round: int
    message: Message

    reveals = reveals(
        "run", points="message", settings="clients versions digests copies round",
        uses="find agree receive work values gradients hessians informations lipschitz start_model curvatures "
        "curvature_diagonals curvature_products",
    )  # fmt: skip
    answers = WorkDone

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.round <= MAX_ROUNDS:
            raise MessageError(f"round must be from 0 to {MAX_ROUNDS}, got {self.round}")

    def answer(self, data: Participation) -> WorkDone | Lacking:
        """Return the clients' messages."""
        own = data.find(self.clients)
        agreed, message = data.agree(self, own), data.receive(self.message, self.round)
        if not agreed or message is None:
            return Lacking(("memory",) * (not agreed) + ("model",) * (message is None))
        return data.work(own, message, self.round)


@dataclasses.dataclass(frozen=True)
class Certified:
    """Two numbers for each client."""

    answers: Array


@question("answers")
@dataclasses.dataclass(frozen=True)
class Certificate(Stamped):
    """The clients' part of a certificate: the encoded arrays of the method's question."""

    frames: list[bytes]

    reveals = reveals(
        "run",
        points="frames",
        settings="clients versions digests copies",
        uses="find_all agree certify values gradients lipschitz",
    )
    answers = Certified

    def answer(self, data: Participation) -> Certified | Lacking:
        """Return what the clients certify."""
        agreed = data.agree(self, data.find_all(self.clients), forget=False)
        return Certified(data.certify(self.frames)) if agreed else Lacking(("memory",))


@dataclasses.dataclass(frozen=True)
class Remembered:
    """The memory of the clients, a row for each."""

    memory: dict[str, Array]


@question("memory")
@dataclasses.dataclass(frozen=True)
class Memory(Stamped):
    """All that the clients remember, for a server that may know it."""

    reveals = reveals("run", settings="clients versions digests copies", uses="find_all agree remember")
    answers = Remembered

    def answer(self, data: Participation) -> Remembered | Lacking:
        """Return what the clients remember."""
        agreed = data.agree(self, data.find_all(self.clients), forget=False)
        return Remembered(data.remember()) if agreed else Lacking(("memory",))
