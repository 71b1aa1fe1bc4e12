"""What can be asked of a site: the parts of a request, with the type of every field."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from fpdfp._typing import Array, IntArray
from fpdfp.engines.hints import fit
from fpdfp.engines.job import Job, Place
from fpdfp.errors import MessageError
from fpdfp.linops import LinOp
from fpdfp.precondition import Preconditioner, QuantizedMoments
from fpdfp.precondition.exchange import Exact
from fpdfp.precondition.structure import Structure
from fpdfp.rng import MAX_ROUNDS


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the server must know of the losses before it can choose steps."""


@dataclasses.dataclass(frozen=True)
class Gather:
    """What some clients send once, before the first round."""

    exchange: Exact | QuantizedMoments | Structure
    place: Place
    clients: IntArray


@dataclasses.dataclass(frozen=True)
class Constants:
    """Lipschitz constants in the coordinates of a factor, or of a preconditioner; or what mini-batches add to them."""

    factor: LinOp | None = None
    coordinates: Preconditioner | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise MessageError(f"batch_size must be at least 1, got {self.batch_size}")


@dataclasses.dataclass(frozen=True)
class At:
    """f_i(x), ∇f_i(x) or both."""

    x: Array
    parts: list[Literal["values", "gradients"]]


@dataclasses.dataclass(frozen=True)
class Duals:
    """What a bound of F(x) − F* is computed from; x is that of the digest ``point``, which may be known already."""

    point: bytes
    part: Literal["start", "gradient", "curvature", "gap", "hessian"]
    weights: Array
    direction: Array | None = None
    scale: float | None = None
    x: Array | None = None


@dataclasses.dataclass(frozen=True)
class Stamped:
    """What is asked of clients that remember something: with the stamps of what the server thinks they do.

    ``copies`` are for those that disagree.
    """

    clients: IntArray
    versions: IntArray
    digests: list[bytes]
    copies: dict[str, dict[str, Array]] = dataclasses.field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        if self.versions.shape != self.clients.shape or len(self.digests) != len(self.clients):
            raise MessageError("versions and digests must be those of the clients that are asked")


@dataclasses.dataclass(frozen=True)
class Answers(Stamped):
    """What all clients certify of the gap: the method's question."""

    fields: list[str]
    arrays: list[Array]


@dataclasses.dataclass(frozen=True)
class Memory(Stamped):
    """All that the clients remember."""


@dataclasses.dataclass(frozen=True)
class Message:
    """The server's message: whole, or as the differences that lead to it.

    Attributes
    ----------
    fields
        The names of its arrays.
    epoch
        Since which start of the server positions count.
    to
        The position of the message.
    whole
        The encoded arrays.
    start, steps
        The position that differences begin at, and the encoded differences of each step.
    zero
        Whether position 0 is all zeros, which every site knows.
    """

    fields: list[str]
    epoch: str
    to: int
    whole: list[bytes] | None = None
    start: int | None = None
    steps: list[list[bytes]] = dataclasses.field(default_factory=list)
    zero: bool = False


@dataclasses.dataclass(frozen=True)
class Update(Stamped):
    """A round's work of some of the clients."""

    round: int
    message: Message

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.round <= MAX_ROUNDS:
            raise MessageError(f"round must be from 0 to {MAX_ROUNDS}, got {self.round}")


@dataclasses.dataclass(frozen=True)
class Request:
    """What is asked at once, with the key of its job and, for a site that was not told it yet, the job itself.

    The parts are answered in the order in which they stand here.
    """

    key: str = ""
    job: Job | None = None
    facts: Facts | None = None
    gather: Gather | None = None
    constants: Constants | None = None
    at: At | None = None
    duals: Duals | None = None
    answers: Answers | None = None
    memory: Memory | None = None
    update: Update | None = None

    @classmethod
    def read(cls, given: Any) -> Request:
        """Return the request of a dictionary; raise MessageError for anything that cannot be one."""
        made: Request = fit(given, cls, "a request")
        return made

    @property
    def parts(self) -> list[str]:
        """The names of what is asked."""
        return [name for name in PARTS if getattr(self, name) is not None]

    @property
    def needs_job(self) -> bool:
        """Whether a site must know the job to answer."""
        return not ROUNDS.isdisjoint(self.parts)


#: What a request may ask, in the order in which it is answered.
PARTS = ("facts", "gather", "constants", "at", "duals", "answers", "memory", "update")
#: Those of them for which a site must know the job.
ROUNDS = frozenset({"answers", "memory", "update"})


def write(part: Any, encode: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a request, or a part of one, as a dictionary, without what is as by default."""
    tree = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if isinstance(value, PARTS_OF_REQUESTS):
            tree[field.name] = write(value, encode)
        elif type(value) is not type(default) or value != default:
            tree[field.name] = encode(value)
    return tree


#: What a request is made of, beside numbers and objects of the run.
PARTS_OF_REQUESTS = (Facts, Gather, Constants, At, Duals, Stamped, Message)
