"""Questions: everything that a site can be asked.

A question is a frozen dataclass in the file of the capability that needs it::

    @question("information")                          # its name on the wire and in a site's policy
    @dataclass(frozen=True)
    class Information(Question):
        x: Array
        robust: bool = False

        reveals = reveals(points="x", settings="robust", uses="sums_at")

        def answer(self, local: LocalLosses) -> InformationSums: ...

A site's guard reads ``reveals`` before anything is computed. ``answer`` receives the data behind an :class:`Offer`,
which has the operations that the declaration names and no others. In one process the data are the caller's own, and
``answer`` receives them unchanged.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import importlib
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np

from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.serialization import check_numbers, constructor_hints, validate
from fpdfp.compress import Compressor
from fpdfp.compress.plain import payload
from fpdfp.errors import ArgumentError, MessageError, Refusal
from fpdfp.folds import Folds

#: What may be known of losses without their rows: every question may read it.
PUBLIC = frozenset({
    "shape", "dtype", "xp", "device", "n_clients", "sizes", "family", "form", "nearly_convolution", "smooth",
    "supports_batches", "can_restrict", "has_duals", "is_convex", "least_convexity", "constants", "ridge_of_x",
    "feature_digests", "concurrent",
})  # fmt: skip
#: The operation that hands over the rows themselves, for questions that no other operation serves.
ROWS = "rows"
#: The names of what requests are about, and of what replies say besides answers.
RESERVED = frozenset({"key", "job", "features", "mask", "epoch", "place", "clients", "each", "needs"})
#: The modules that define questions; a site knows the questions of these alone.
HOMES = (
    "precondition.exchange", "precondition.quantized", "precondition.partial", "methods.newton",
    "cohorts.losses", "cohorts.many_points", "cohorts.site", "federation.questions",
)  # fmt: skip


class Reveals(NamedTuple):
    """The declaration of a question for the guard.

    Attributes
    ----------
    of
        What is asked: the losses of a model, a site's table, or a client's part in a run.
    points, weights, designs, settings
        Its fields: points at which losses are evaluated; weights of rows or clients; designs and models, which name
        columns; and all others. Every field is in exactly one of these.
    uses
        The operations of the data that ``answer`` may call, next to those that are public.
    """

    of: Literal["losses", "table", "run"]
    points: tuple[str, ...]
    weights: tuple[str, ...]
    designs: tuple[str, ...]
    settings: tuple[str, ...]
    uses: frozenset[str]

    @property
    def fields(self) -> tuple[str, ...]:
        """All fields that are declared."""
        return (*self.points, *self.weights, *self.designs, *self.settings)


def reveals(
    of: Literal["losses", "table", "run"] = "losses",
    *,
    points: str = "",
    weights: str = "",
    designs: str = "",
    settings: str = "",
    uses: str = "",
) -> Reveals:
    """Return a declaration; each argument holds names, separated by spaces.

    >>> reveals(points="x", uses="values gradients").points
    ('x',)
    """
    groups = [tuple(one.split()) for one in (points, weights, designs, settings)]
    return Reveals(of, groups[0], groups[1], groups[2], groups[3], frozenset(uses.split()))


class Points(NamedTuple):
    """The points that a question is about.

    Attributes
    ----------
    x
        The points, one a row, each with the shape of the losses.
    held, folds
        The fold of rows that is excluded at each point, −1 for none, and how folds are drawn; None for no folds.
    """

    x: Array
    held: IntArray
    folds: Folds | None = None


#: An answer that is sent unchanged: an array for each field, with a row for each client.
Rows = dict[str, Array]


@dataclasses.dataclass(frozen=True)
class Encoded:
    """An answer as encoded messages: one for each field and client, and their bits."""

    frames: dict[str, list[bytes]] = dataclasses.field(default_factory=dict)
    bits: IntArray | None = None

    unbounded: ClassVar[tuple[str, ...]] = ("bits",)  # those of the messages that come along


class Question(abc.ABC):
    """Something that sites are asked.

    A subclass without ``reveals`` cannot be registered, and a question that is not registered cannot be sent.

    Attributes
    ----------
    name
        Under which the question is registered.
    reveals
        What it declares for the guard.
    answers
        What an answer arrives as: by default rows of clients; or a dataclass, whose fields are checked by their types.
    """

    name: ClassVar[str]
    reveals: ClassVar[Reveals]
    answers: ClassVar[Any] = Rows | Encoded
    #: The precision in which messages of clients are decoded.
    sent_dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float32)
    #: Whether clients may be asked some at a time, and the sums of their parts be added.
    in_parts: ClassVar[bool] = True
    #: Whether an answer of one site is none of its results, so that a policy which shows none lets it through: the
    #: schema alone, since sites are asked for the names and types of their columns one by one.
    plain: ClassVar[bool] = False

    @abc.abstractmethod
    def answer(self, data: Any) -> Any:
        """Return what the clients of a site answer.

        A named tuple of arrays with a leading client axis is sent as rows, or through what :meth:`messages` names.
        """

    @property
    def sent_bits(self) -> int:
        """The bits of the question to one client."""
        return payload(self)

    @property
    def tells_pairs(self) -> bool:
        """Whether the answer reveals products of pairs of features, as second moments and Hessians do."""
        return False

    def check(self, answer: Any) -> None:  # noqa: B027 - most have nothing more to check
        """Raise MessageError for an answer that cannot be one to this question, beyond the types of its fields."""

    def points_at(self, shape: Shape) -> Points | None:
        """Return the points at which losses of a shape are evaluated; None for a question without points."""
        found = [getattr(self, field) for field in self.reveals.points if self.reveals.of == "losses"]
        given = [one for one in found if one is not None]
        if not given:
            return None
        if any(one.shape != shape for one in given):
            raise MessageError(f"a question must be about points of shape {shape}")
        return Points(np.stack(given), np.full(len(given), -1))

    def draw_clients(self, n_clients: int, seed: int) -> IntArray:
        """Return who is asked: by default all clients."""
        return np.arange(n_clients)

    def count_numbers(self, shape: Shape) -> int:
        """Return the count of numbers that a client works with; it limits the clients asked at a time."""
        return int(np.prod(shape)) ** 2

    def messages(self, shape: Shape) -> dict[str, tuple[Compressor, Shape]]:
        """Return what each field of an answer goes through, and its shape; nothing where fields are sent unchanged.

        ``shape`` is the losses' shape.
        """
        return {}

    def add_up(self, sent: Any, places: IntArray, times: Array | None = None) -> Any:
        """Return sums over clients of what they sent, by default in float64.

        Parameters
        ----------
        sent
            The answers, with a leading client axis; for a question about tables a list of the sites' answers.
        places
            The places of these clients among those asked.
        times
            How often each client counts at each of the question's points; only for questions about many points.
        """
        if isinstance(sent, list):
            return sum(sent[1:], start=sent[0])
        return type(sent)(*(array.sum(axis=0, dtype=np.float64) for array in sent))


Kind = TypeVar("Kind", bound=type[Question])
_REGISTERED: dict[str, type[Question]] = {}


def question(name: str) -> Callable[[Kind], Kind]:
    """Register a frozen dataclass as a question under a name; refuse one that does not declare each of its fields."""

    def register(kind: Kind) -> Kind:
        parameters = getattr(kind, "__dataclass_params__", None)
        if not issubclass(kind, Question) or parameters is None or not parameters.frozen:
            raise TypeError(f"{kind.__name__} must be a frozen dataclass derived from Question")
        if not isinstance(kind.__dict__.get("reveals"), Reveals):
            raise TypeError(f"{kind.__name__} must declare what it reveals")
        declared, fields = kind.reveals.fields, tuple(constructor_hints(kind))
        if sorted(declared) != sorted(fields):
            raise TypeError(f"{kind.__name__} must declare each of its fields once: {sorted(fields)}, got {declared}")
        if name in RESERVED or not name.isidentifier():
            raise TypeError(f"{name!r} cannot be the name of a question")
        if _REGISTERED.get(name, kind).__qualname__ != kind.__qualname__:
            raise TypeError(f"there are two questions of the name {name!r}")
        kind.name = name
        _REGISTERED[name] = kind
        return kind

    return register


@functools.cache
def questions() -> Mapping[str, type[Question]]:
    """Return all questions of the package by their names."""
    for home in HOMES:
        importlib.import_module(f"fpdfp.{home}")
    package = {name: kind for name, kind in _REGISTERED.items() if kind.__module__.removeprefix("fpdfp.") in HOMES}
    return dict(sorted(package.items()))


def read_answer(question: Question, given: Any, name: str = "an answer") -> Any:
    """Return the answer to a question; raise MessageError for anything that cannot be one.

    Fields are checked by their types, by the question, and by one rule for all numbers.
    """
    try:
        answer = validate(given, question.answers, name)
    except ArgumentError as error:
        raise MessageError(f"{name}: {error}") from None
    try:
        question.check(answer)
        check_numbers(answer)
    except MessageError as error:
        raise MessageError(f"{name}: {error}") from None
    return answer


class Offer:
    """Data as a question's ``answer`` receives them: with the operations that it declares, and no others.

    ``isinstance`` sees the class of the data. A guard may derive from it, and look at the arguments of an operation.

    >>> import fpdfp, numpy as np
    >>> losses = fpdfp.losses.LeastSquares(np.eye(2), [1.0, 2.0])
    >>> offer = Offer(losses, frozenset({"values"}))
    >>> offer.values(np.zeros(2), np.array([0]))
    array([1.25])
    >>> offer.gradients
    Traceback (most recent call last):
      ...
    fpdfp.errors.Refusal: a question uses 'gradients', which it does not declare
    """

    __slots__ = ("__data", "__uses")

    def __init__(self, data: Any, uses: frozenset[str]) -> None:
        self.__data, self.__uses = data, uses

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self.__data.__class__

    def __repr__(self) -> str:
        return f"the data of a site, for {', '.join(sorted(self.__uses)) or 'nothing'}"

    def __getattr__(self, name: str) -> Any:
        if name not in PUBLIC and name not in self.__uses:
            raise Refusal(f"a question uses {name!r}, which it does not declare")
        if name == ROWS:
            return self.__data
        found = getattr(self.__data, name)
        if name == "restrict":  # losses of fewer features are behind the same door
            return lambda *given: Offer(found(*given), self.__uses)
        return found


def rows_of(data: Any) -> Any:
    """Return the data themselves, for a question that declares that it uses ``rows``."""
    return data.rows if type(data) is not data.__class__ else data


@functools.lru_cache(maxsize=64)
def tuple_kind(name: str, fields: tuple[str, ...]) -> Callable[..., Any]:
    """Return the kind of a named tuple with some fields: messages, questions and replies are known by these."""
    try:
        return namedtuple(name, fields)
    except (ValueError, TypeError) as error:
        raise MessageError(f"a message must have fields with valid names: {error}") from None


class Total(NamedTuple):
    """The joint answer of the clients of a cohort.

    Attributes
    ----------
    sums
        What :meth:`fpdfp.cohorts.question.Question.add_up` makes of the answers: sums, or means.
    asked
        How many clients were asked.
    up, down
        The bits of all answers, and of the question to all of them.
    """

    sums: Any
    asked: int
    up: int
    down: int


class Each(NamedTuple):
    """The answers of single clients, or of sites with tables, in order; and the bits of all of them."""

    answers: list[Any]
    up: int
    down: int


class Cohort(abc.ABC):
    """The clients of a study, wherever they are: the only way from mathematics to their data.

    What is asked is a :class:`fpdfp.cohorts.question.Question`. An answer is a sum over clients, so that nothing above
    this package has the numbers of one of them. What needs these, as a forest plot does, states it by :meth:`ask_each`,
    which a site's policy allows or not.
    """

    @property
    @abc.abstractmethod
    def names(self) -> Sequence[str]:
        """The names of the sites, in the order in which their answers are added up."""

    @abc.abstractmethod
    def ask(self, question: Question, clients: IntArray | None = None) -> Total:
        """Return the sums of what clients answer.

        Parameters
        ----------
        question
            What is asked.
        clients
            Who is asked, by number; by default those whom the question draws, which mostly are all.
        """

    @abc.abstractmethod
    def ask_each(self, question: Question) -> Each:
        """Return what each client, or each site with a table, answers."""
