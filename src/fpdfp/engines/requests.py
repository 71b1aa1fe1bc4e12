"""What can be asked of a site, and what it answers: the parts of requests and replies, with the type of every field."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.question import Question
from fpdfp.cohorts.validation import validate
from fpdfp.compress.base import DTYPES
from fpdfp.compress.wire import DEFAULT_LIMIT
from fpdfp.engines.job import Job, Place
from fpdfp.errors import MessageError
from fpdfp.linops import LinOp
from fpdfp.losses.base import Form
from fpdfp.precondition import Preconditioner
from fpdfp.precondition.base import Announced
from fpdfp.rng import MAX_ROUNDS

#: What a site may claim at most: the samples of a client, any number, and the steps of inner solves.
LARGEST_SIZE, LARGEST_NUMBER, LARGEST_WORK = 1 << 40, 1e150, (1 << 31) - 1
#: What is sent for the value of a loss outside its domain.
OUTSIDE = 1e100


@dataclasses.dataclass(frozen=True)
class FactsRequest:
    """What the server must know of the losses before it can choose steps."""


@dataclasses.dataclass(frozen=True)
class GatherRequest:
    """What some clients send once, before the first round."""

    question: Question
    place: Place
    clients: IntArray


@dataclasses.dataclass(frozen=True)
class ConstantsRequest:
    """Lipschitz constants in the coordinates of a factor, or of a preconditioner; or what mini-batches add to them."""

    factor: LinOp | None = None
    coordinates: Preconditioner | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise MessageError(f"batch_size must be at least 1, got {self.batch_size}")


@dataclasses.dataclass(frozen=True)
class AtRequest:
    """f_i(x), ∇f_i(x) or both."""

    x: Array
    parts: list[Literal["values", "gradients"]]


@dataclasses.dataclass(frozen=True)
class DualsRequest:
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
class AnswersRequest(Stamped):
    """What all clients certify of the gap: the encoded arrays of the method's question."""

    frames: list[bytes]


@dataclasses.dataclass(frozen=True)
class MemoryRequest(Stamped):
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
class UpdateRequest(Stamped):
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

    ``features`` is the digest of the features that it is about, empty for all; a site that was not told them yet gets
    them as ``mask``. The parts are answered in the order in which they stand here.
    """

    key: str = ""
    job: Job | None = None
    features: bytes = b""
    mask: Announced | None = None
    facts: FactsRequest | None = None
    gather: GatherRequest | None = None
    constants: ConstantsRequest | None = None
    at: AtRequest | None = None
    duals: DualsRequest | None = None
    answers: AnswersRequest | None = None
    memory: MemoryRequest | None = None
    update: UpdateRequest | None = None

    @classmethod
    def read(cls, given: Any) -> Request:
        """Return the request of a dictionary; raise MessageError for anything that cannot be one."""
        made: Request = validate(given, cls, "a request")
        return made

    @property
    def parts(self) -> list[str]:
        """The names of what is asked."""
        return [name for name in PARTS if getattr(self, name) is not None]

    @property
    def needs_job(self) -> bool:
        """Whether a site must know the job to answer."""
        return not ROUNDS.isdisjoint(self.parts)


@dataclasses.dataclass(frozen=True)
class FactsReply:
    """What the server must know of a site's losses, and their values at a probe and at zero."""

    family: str
    shape: Shape
    dtype: Literal["<f4", "<f8"]
    sizes: IntArray
    lipschitz: np.ndarray  # infinite ones too
    least_convexity: float
    form: Form
    batches: bool
    hessians: bool
    duals: bool
    restricts: bool
    convex: bool
    features: IntArray
    constants: list[Array]
    probe: Array
    values: Array

    def __post_init__(self) -> None:
        if min(self.shape, default=1) < 1 or math.prod(self.shape) > DEFAULT_LIMIT:
            raise MessageError(f"shape must be lengths of at least 1, of at most {DEFAULT_LIMIT:,} entries in all")
        rows = (len(self.sizes),) if self.sizes.ndim == 1 and self.sizes.size else (1,)
        if self.sizes.shape != rows or not ((self.sizes >= 1) & (self.sizes <= LARGEST_SIZE)).all():
            raise MessageError("sizes must say of each client how many samples it has")
        for name in ("lipschitz", "probe", "values"):
            if getattr(self, name).shape != rows:
                raise MessageError(f"{name} must be numbers of shape {rows}")
        for name in ("probe", "values"):
            if float(abs(getattr(self, name)).max()) > LARGEST_NUMBER:
                raise MessageError(f"{name} must not be too large")
        if not ((self.lipschitz >= 0) & ((self.lipschitz <= LARGEST_NUMBER) | np.isposinf(self.lipschitz))).all():
            raise MessageError("lipschitz must be at least 0")
        if not 0 <= self.least_convexity <= LARGEST_NUMBER:
            raise MessageError("least_convexity must be at least 0")
        if self.features.shape not in ((0,), self.shape[-1:]):
            raise MessageError("features must be a digest of the name of each feature, or empty")


@dataclasses.dataclass(frozen=True)
class GatherReply:
    """What clients send once: arrays as they are, or messages and the bits of each, by field and client."""

    fields: list[str] = dataclasses.field(default_factory=list)
    arrays: list[Array] = dataclasses.field(default_factory=list)
    frames: dict[str, list[bytes]] = dataclasses.field(default_factory=dict)
    bits: IntArray | None = None

    def __post_init__(self) -> None:
        if any(array.dtype not in DTYPES and array.dtype != np.uint8 for array in self.arrays):
            raise MessageError("arrays must hold float32, float64 or bytes")


@dataclasses.dataclass(frozen=True)
class ConstantsReply:
    """A number for each client."""

    constants: Array

    def __post_init__(self) -> None:
        if not ((self.constants >= 0) & (self.constants <= LARGEST_NUMBER)).all():
            raise MessageError("constants must be at least 0 and not too large")


@dataclasses.dataclass(frozen=True)
class AtReply:
    """A row for each client of what was asked for."""

    values: Array | None = None
    gradients: Array | None = None


@dataclasses.dataclass(frozen=True)
class DualsReply:
    """A site's part of what was asked of dual points; a gap below 0 stands for an infinite one."""

    gradient: Array | None = None
    sizes: Array | None = None
    columns: Array | None = None
    curvature: Array | None = None
    gap: Array | None = None
    hessian: Array | None = None


@dataclasses.dataclass(frozen=True)
class AnswersReply:
    """Two numbers for each client."""

    answers: Array


@dataclasses.dataclass(frozen=True)
class MemoryReply:
    """What the clients remember, a row for each."""

    memory: dict[str, Array]


@dataclasses.dataclass(frozen=True)
class UpdateReply:
    """The clients' messages, the bits of each by field and client, and what inner solves cost.

    ``diverged`` says that there are none, since numbers are no longer finite.
    """

    frames: dict[str, list[bytes]] = dataclasses.field(default_factory=dict)
    bits: IntArray | None = None
    work: tuple[int, int] = (0, 0)
    diverged: str = ""

    def __post_init__(self) -> None:
        if not all(0 <= count <= LARGEST_WORK for count in self.work):
            raise MessageError("work must be two counts")


@dataclasses.dataclass(frozen=True)
class Reply:
    """What a site answers: a part for each that was asked for, or the names of what it lacks to answer."""

    needs: list[str] = dataclasses.field(default_factory=list)
    facts: FactsReply | None = None
    gather: GatherReply | None = None
    constants: ConstantsReply | None = None
    at: AtReply | None = None
    duals: DualsReply | None = None
    answers: AnswersReply | None = None
    memory: MemoryReply | None = None
    update: UpdateReply | None = None

    @classmethod
    def read(cls, given: Any) -> Reply:
        """Return the reply of a dictionary; raise MessageError for anything that cannot be one."""
        made: Reply = validate(given, cls, "a reply")
        return made

    def part(self, name: str) -> Any:
        """Return a part that was asked for."""
        found = getattr(self, name)
        if found is None:
            raise MessageError(f"a reply must have the part {name!r} that was asked for")
        return found


#: What a request may ask, in the order in which it is answered.
PARTS = ("facts", "gather", "constants", "at", "duals", "answers", "memory", "update")
#: Those of them for which a site must know the job.
ROUNDS = frozenset({"answers", "memory", "update"})


def write(part: Any, encode: Callable[[Any], Any] = lambda value: value) -> dict[str, Any]:
    """Return a request, a reply, or a part of one, as a dictionary, without what is as by default."""
    tree = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if isinstance(value, PARTS_OF_EXCHANGES):
            tree[field.name] = write(value, encode)
        elif type(value) is not type(default) or value != default:
            tree[field.name] = encode(value)
    return tree


#: What requests and replies are made of, beside numbers and objects of the run.
PARTS_OF_EXCHANGES = (
    FactsRequest, GatherRequest, ConstantsRequest, AtRequest, DualsRequest, Stamped, Message,
    FactsReply, GatherReply, ConstantsReply, AtReply, DualsReply, AnswersReply, MemoryReply, UpdateReply,
)  # fmt: skip
