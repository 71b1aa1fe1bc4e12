"""Requests and replies: questions to a site and its answers, with what these are about: the run, and its place.

What questions and runs are made of (methods, penalties, maps, compressors) is written as trees for parcels.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from fpdfp import _checks, rng
from fpdfp._array import beside, to_host
from fpdfp._typing import Array, IntArray, Sent, Shape, SparseRows
from fpdfp.cohorts.question import Question, questions, read_answer
from fpdfp.cohorts.serialization import constructor_hints, validate
from fpdfp.compress import Compressor
from fpdfp.errors import MessageError
from fpdfp.linops import LinOp
from fpdfp.methods.base import Algorithm
from fpdfp.penalties import Penalty
from fpdfp.precondition.base import Announced
from fpdfp.problem import Model
from fpdfp.traffic import parts_of


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a site in a federation.

    Attributes
    ----------
    numbers
        The numbers of the site's clients in the whole federation.
    scaling, total
        N w_i of the site's clients, None where all are 1, and the sum of all weights.
    seed
        The seed of the run.
    """

    numbers: IntArray
    scaling: Array | None
    total: float
    seed: int

    def __post_init__(self) -> None:
        rng.check_seed(self.seed)
        _checks.real("total", self.total, positive=True)
        numbers, scaling = self.numbers, self.scaling
        if numbers.ndim != 1 or not len(numbers) or numbers[0] < 0 or (np.diff(numbers) <= 0).any():
            raise ValueError("numbers must be client numbers in ascending order")
        if scaling is not None and (scaling.shape != numbers.shape or not (scaling > 0).all()):
            raise ValueError("scaling must be a positive number for each client")


@dataclasses.dataclass(frozen=True)
class Job:
    """The description of a run for a site.

    Attributes
    ----------
    algorithm
        What runs, with what is public of the problem.
    compressors
        One for each field of a reply.
    downlink
        What the server's messages go through; None where they come unchanged.
    place
        The place of the site.
    norm_bound
        The largest norm that a field of a reply may have; longer ones are shortened by both sides. None for none.
    """

    algorithm: Algorithm
    compressors: dict[str, Compressor]
    downlink: Compressor | None
    place: Place
    norm_bound: float | None = None

    def __post_init__(self) -> None:
        if self.norm_bound is not None:
            _checks.real("norm_bound", self.norm_bound, positive=True)


def shorten(arrays: Array, bound: float | None) -> Array:
    """Return each client's array, at most as long as the bound; both sides do this to what was decoded."""
    if bound is None:
        return arrays
    lengths = np.array([float(np.linalg.norm(to_host(array).astype(np.float64).ravel())) for array in arrays])
    factors = np.where(lengths > bound, bound / np.maximum(lengths, 1e-300), 1.0)
    if (factors == 1.0).all():
        return arrays
    column = factors.reshape(-1, *[1] * (arrays.ndim - 1)).astype(arrays.dtype)
    short: Array = arrays * beside(column, arrays)
    return short


Kind = TypeVar("Kind", bound=Question)


@dataclasses.dataclass(frozen=True)
class Address:
    """The subject of questions.

    Attributes
    ----------
    key, job
        The key of a run; and the run itself, for a site that did not receive it yet.
    features, mask
        The digest of the features that the losses are functions of, empty for all; these, for a site that did not
        receive them.
    epoch
        Since which start of the server the rounds of the run count.
    place, clients
        The site's place in the federation, and the numbers of the clients that are asked, in ascending order: all
        without weights if missing.
    each
        Whether the answers are to be seen one by one, and not as a sum over sites.
    """

    key: str = ""
    job: Job | None = None
    features: bytes = b""
    mask: Announced | None = None
    epoch: str = ""
    place: Place | None = None
    clients: IntArray | None = None
    each: bool = False

    def __post_init__(self) -> None:
        if (self.place is None) != (self.clients is None):
            raise MessageError("clients and place must be given together")


@dataclasses.dataclass(frozen=True)
class Request:
    """Questions that are asked at once, at most one of each name, and what they are about."""

    questions: tuple[Question, ...] = ()
    about: Address = Address()

    @classmethod
    def read(cls, given: Any) -> Request:
        """Return the request of a dictionary; raise MessageError for anything that cannot be one."""
        if not isinstance(given, dict):
            raise MessageError(f"a request: must be Request, got {type(given).__name__}")
        known = questions()
        about = validate({name: one for name, one in given.items() if name not in known}, Address, "a request")
        asked = [validate(one, known[name], f"a request: {name}") for name, one in given.items() if name in known]
        if not asked:
            raise MessageError("a request: must have a question")
        return cls(tuple(asked), about)

    def find(self, kind: type[Kind]) -> Kind | None:
        """Return the question of a kind, None where it is not asked."""
        return next((one for one in self.questions if isinstance(one, kind)), None)

    def replace(self, *changed: Question) -> Request:
        """Return the request with some questions in place of others with the same name, or after the others."""
        new = {one.name: one for one in self.questions} | {one.name: one for one in changed}
        return dataclasses.replace(self, questions=tuple(new.values()))

    def without(self, kind: type[Question]) -> Request:
        """Return the request without a question."""
        return dataclasses.replace(self, questions=tuple(one for one in self.questions if not isinstance(one, kind)))

    def concerning(self, **changes: Any) -> Request:
        """Return the request with some of what it is about changed."""
        return dataclasses.replace(self, about=dataclasses.replace(self.about, **changes)) if changes else self

    @property
    def needs_job(self) -> bool:
        """Whether a site must know the run to answer."""
        return any(one.reveals.of == "run" for one in self.questions)

    def write(self, encode: Callable[[Any], Any] = lambda value: value) -> dict[str, Any]:
        """Return the request as a dictionary, without what is as by default: each question under its name."""
        return write(self.about, encode) | {one.name: write(one, encode) for one in self.questions}


@dataclasses.dataclass(frozen=True)
class Reply:
    """The answer of a site: to every question, by its name; or the names of what it lacks to answer."""

    needs: list[str] = dataclasses.field(default_factory=list)
    answers: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, given: Any, request: Request) -> Reply:
        """Return the reply to a request; raise MessageError for anything that cannot be one."""
        if not isinstance(given, dict):
            raise MessageError(f"a reply: must be Reply, got {type(given).__name__}")
        if "needs" in given:
            if set(given) != {"needs"}:
                raise MessageError("a reply: must have answers, or name what it needs")
            return cls(validate(given["needs"], list[str], "a reply: needs"))
        asked = {one.name: one for one in request.questions}
        strange = ", ".join(sorted(ascii(name) for name in given if name not in asked))
        if strange:
            raise MessageError(f"a reply: is made of {sorted(asked)}, not of {strange}")
        came = {name: one for name, one in given.items() if one is not None}
        return cls([], {name: read_answer(asked[name], one, f"a reply: {name}") for name, one in came.items()})

    def part(self, name: str) -> Any:
        """Return the answer to a question that was asked."""
        found = self.answers.get(name)
        if found is None:
            raise MessageError(f"a reply must have the requested part {name!r}")
        return found

    def without(self, name: str) -> Reply:
        """Return the reply without an answer."""
        return Reply(self.needs, {other: one for other, one in self.answers.items() if other != name})

    def write(self) -> dict[str, Any]:
        """Return the reply as a dictionary."""
        return (
            {"needs": self.needs}
            if self.needs
            else {name: one if isinstance(one, dict) else write(one) for name, one in self.answers.items()}
        )


def write(part: Any, encode: Callable[[Any], Any] = lambda value: value) -> dict[str, Any]:
    """Return a dataclass as a dictionary, without what is as by default."""
    tree = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if isinstance(value, Question) or getattr(type(value), "is_part", False):
            tree[field.name] = write(value, encode)
        elif type(value) is not type(default) or not _same(value, default):
            tree[field.name] = encode(value)
    return tree


def _same(value: Any, default: Any) -> bool:
    """Whether a value is as by default; an array is where both are empty."""
    if isinstance(value, np.ndarray):
        return value.size == 0 and (value.shape, value.dtype) == (default.shape, default.dtype)
    return bool(value == default)


class Made(NamedTuple):
    """The way an object is made anew at a site: its constructor, which checks arguments, and their types."""

    make: Callable[..., Any]
    hints: Mapping[str, Any]


#: What is public of a problem names its dtype.
MODEL: Sent = {
    "penalty": Penalty, "linop": LinOp, "shape": Shape, "dtype": Literal["<f4", "<f8"],
    "device": Literal["cpu", "cuda"],
}  # fmt: skip


@functools.cache
def sendable() -> dict[type, Made]:
    """Return the classes whose objects may be sent: those that the fields of questions and of runs are of.

    A field's type stands for the classes of its part of the package that derive from it and say what makes them: by
    their fields, or by ``sent`` (:data:`fpdfp._typing.Sent`). A class with a field of which nothing can be sent cannot
    be sent either.
    """
    found: dict[type, Made] = {}
    asked = [kind for kind in questions().values() if kind.reveals.of != "table"]
    for hint in [hint for kind in (Address, *asked) for hint in constructor_hints(kind).values()]:
        _find_sendable(hint, found)
    return found


def _find_sendable(hint: Any, found: dict[type, Made]) -> bool:
    """Add the classes that a type stands for; return whether there is one, or the type is of none."""
    arguments = get_args(hint)
    if arguments and not isinstance(hint, type):
        return min((_find_sendable(one, found) for one in {*arguments} - {type(None)}), default=True)
    if not isinstance(hint, type) or not hint.__module__.startswith("fpdfp.") or hint is SparseRows:
        return True
    if issubclass(hint, Question) or getattr(hint, "is_part", False):
        return True  # written as fields alone
    part = hint.__module__.split(".")[1]
    package = importlib.import_module(f"fpdfp.{part}")
    for name in getattr(package, "__all__", ()):
        getattr(package, name)  # loads the modules of the part
    # Classes of users derive from those of the package as well; none of them may be sent, whatever its module's name.
    own = (kind for kind in _derived(hint) if f"{kind.__module__}.".startswith(f"fpdfp.{part}."))
    usable = [kind for kind in own if _add(kind, found)]
    return bool(usable)


def _derived(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield a class and all that derive from it."""
    yield kind
    for one in kind.__subclasses__():
        yield from _derived(one)


def _add(kind: type, found: dict[type, Made]) -> bool:
    """Add a class if its objects can be sent; return whether they can."""
    if kind in found:
        return True
    sent = MODEL if kind is Model else vars(kind).get("sent")
    fields = "__dataclass_fields__" in vars(kind) or (issubclass(kind, tuple) and sent is None)
    traits = getattr(kind, "traits", None)
    if inspect.isabstract(kind) or (traits is not None and not traits.restorable) or (sent is None and not fields):
        return False
    hints = (
        constructor_hints(kind) if sent is None else {n: o[1] if isinstance(o, tuple) else o for n, o in sent.items()}
    )
    found[kind] = Made(getattr(kind, "from_messages", kind), hints)
    if not min((_find_sendable(hint, found) for hint in hints.values()), default=True):
        del found[kind]
        return False
    return True


@functools.cache
def classes() -> dict[str, type]:
    """Return the classes by their names in a tree."""
    return {name_of(kind): kind for kind in sendable()}


def name_of(kind: type) -> str:
    """Return the name of a class in a tree: the name of its part of the package, and its own.

    >>> import fpdfp
    >>> name_of(fpdfp.penalties.L1)
    'penalties.L1'
    """
    return f"{kind.__module__.split('.')[1]}.{kind.__qualname__}"


def dump(value: Any) -> Any:
    """Return an object as a tree of a parcel.

    A site must not execute what a server sends, so pickles are not used. An object is written as the name of its class
    and the arguments of its constructor, and made anew by that constructor, which checks them.

    >>> import fpdfp
    >>> tree = dump(fpdfp.penalties.L1(0.5))
    >>> tree
    {'class': 'penalties.L1', 'fields': {'weight': 0.5}}
    >>> load(tree)
    L1(0.5)
    """
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str | bytes | np.ndarray):
        return value
    if isinstance(value, list) or type(value) is tuple:
        return [dump(one) for one in value]
    if isinstance(value, dict):
        return {name: dump(one) for name, one in value.items()}
    if type(value).__module__.startswith("scipy.sparse") and hasattr(value, "tocsr"):
        rows = value.tocsr()
        return {"shape": list(rows.shape), "data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
    kind = type(value)
    if kind not in sendable():
        raise TypeError(
            f"{value!r} cannot be sent to sites: it is a {kind.__module__}.{kind.__qualname__}, and only numbers, "
            "arrays, sparse matrices and the penalties, maps, methods and compressors of fpdfp can"
        )
    if kind is Model:
        parts: Mapping[str, Any] = value._asdict() | {"dtype": value.sent_dtype}
    else:
        hints = sendable()[kind].hints
        parts = parts_of(value) if "sent" in vars(kind) else {name: getattr(value, name) for name in hints}
    return {"class": name_of(kind), "fields": {name: dump(one) for name, one in parts.items()}}


def load(tree: Any, kind: type = object) -> Any:
    """Return the object of a class that a tree stands for; raise MessageError if it stands for none."""
    try:
        return validate(_load(tree), kind, "a description of the run")
    except MessageError:
        raise
    except Exception as error:
        raise MessageError(f"a description of the run cannot be used: {type(error).__name__}: {error}") from error


def _load(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_load(one) for one in tree]
    if not isinstance(tree, dict):
        return tree
    if set(tree) == {"class", "fields"}:
        return _object(tree["class"], tree["fields"])
    if set(tree) == {"shape", "data", "indices", "indptr"}:
        return _matrix(**tree)
    return {name: _load(one) for name, one in tree.items()}


def _object(name: Any, fields: Any) -> Any:
    """Make an object by the constructor of its class, of all of its arguments and nothing else."""
    kind = classes().get(name) if isinstance(name, str) else None
    if kind is None:
        raise MessageError(f"a description of the run names {name!a}, which is not a class that may be sent")
    make, hints = sendable()[kind]
    if not isinstance(fields, dict) or set(fields) != set(hints):
        given = ", ".join(sorted(map(ascii, fields))) if isinstance(fields, dict) else type(fields).__name__
        raise MessageError(f"{name} is made of {sorted(hints)}, a description of the run has {given}")
    return make(**{field: validate(_load(one), hints[field], f"{name}: {field}") for field, one in fields.items()})


def _matrix(shape: Any, data: Any, indices: Any, indptr: Any) -> Any:
    """Make a sparse matrix whose indices are all inside it: kernels do not look."""
    from scipy.sparse import csr_array

    rows, columns = validate(shape, tuple[int, int], "shape")
    parts = [validate(one, np.ndarray, "a sparse matrix") for one in (data, indices, indptr)]
    if any(part.ndim != 1 for part in parts) or any(part.dtype.kind != "i" for part in parts[1:]):
        raise MessageError("a sparse matrix must have a row of numbers, and rows of indices")
    if len(parts[2]) != rows + 1:
        raise MessageError(f"indptr must have a number for each of {rows} rows, and one more, got {len(parts[2])}")
    _checks.compressed_rows(parts[2], parts[1])
    matrix = csr_array(tuple(parts), shape=(rows, columns))
    _checks.sparse_indices("a sparse matrix", matrix)
    return matrix
