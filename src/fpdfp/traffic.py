"""The traffic of a run: bits up and down, by kind, and the server's messages as differences.

A client is counted as a site of its own, and a message as what it holds: numbers, with the header and the checksum of
its frame (:mod:`fpdfp.compress.wire`). A run in one process counts what a deployment would send, by the same formulas,
and a run that was resumed counts as one that was not interrupted. Not counted are the envelopes around messages (names
of fields, numbers of rounds, versions and digests), which depend on the engine.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from fpdfp._array import namespace
from fpdfp._numbers import format_bits
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.compress import Compressed, Compressor, Full
from fpdfp.compress.plain import exact_bits, has_few_zeros, plain_bits
from fpdfp.compress.plain import payload as payload
from fpdfp.losses.base import Losses
from fpdfp.rng import Draws, Purpose
from fpdfp.steps import shift_step

Kind = Literal["rounds", "preconditioner", "facts", "evaluation", "certificate", "end", "upkeep"]
#: The kinds of messages, and what is sent in each.
KINDS: dict[str, str] = {
    "rounds": "the server's messages and the clients' replies of all rounds",
    "preconditioner": "sent once: what a preconditioner is made of, and the preconditioner; bounds and slopes for "
    "the choice of features, and which ones are chosen",
    "facts": "before the first round: sizes, constants, digests of feature names, values and gradients at the start; "
    "the arrays of g and B",
    "evaluation": "x and the clients' values, for the history alone; evaluate_every says how often",
    "certificate": "what tol asks of the clients",
    "end": "gradients, values and sums at dual points for the certificate of the result, when that is read; Hessians "
    "for the names of features that separate outcomes",
    "upkeep": "sent again or not used: lost replies, rounds that were taken back, copies for sites and checkpoints",
}
#: How many answers about points a server keeps.
KEPT = 5
#: What each client says about its losses: its size, Lipschitz and convexity constants, and its values at two points.
FACTS = 5

FLOAT = np.dtype(np.float64)
#: What is sent unchanged.
FULL = Full()
T = TypeVar("T")


#: Counts exchanges by purpose, where someone wants to know; and the purpose of all exchanges, where one is stated.
_exchanges: contextvars.ContextVar[dict[str, int] | None] = contextvars.ContextVar("exchanges", default=None)
_purpose: contextvars.ContextVar[str] = contextvars.ContextVar("purpose", default="")


@contextlib.contextmanager
def counting_exchanges() -> Iterator[dict[str, int]]:
    """Within this, count the exchanges with clients by purpose: each asks all that take part something at once.

    In one process these are the exchanges that the same would take with clients at sites.

    >>> with counting_exchanges() as counts:
    ...     count_exchange("schema")
    ...     with for_purpose("null deviance"):
    ...         count_exchange("rounds")
    >>> counts
    {'schema': 1, 'null deviance': 1}
    """
    counts: dict[str, int] = {}
    token = _exchanges.set(counts)
    try:
        yield counts
    finally:
        _exchanges.reset(token)


@contextlib.contextmanager
def for_purpose(purpose: str) -> Iterator[None]:
    """Within this, exchanges are for a purpose, whatever is asked."""
    token = _purpose.set(purpose)
    try:
        yield
    finally:
        _purpose.reset(token)


def count_exchange(what: str) -> None:
    """Count an exchange; ``what`` is its purpose where none is stated."""
    counts, purpose = _exchanges.get(), _purpose.get() or what
    if counts is not None:
        counts[purpose] = counts.get(purpose, 0) + 1


class Bits(NamedTuple):
    """Bits that clients have sent (up) and that the server has sent (down)."""

    up: int
    down: int


NOTHING = Bits(0, 0)


class Carried(NamedTuple):
    """Bytes that went over a network, from clients (up) and to them (down), with all that is around messages."""

    up: int
    down: int


class Traffic(Mapping[str, Bits]):
    """The bits of a run by kind of message, all clients together.

    >>> traffic = Traffic().plus("rounds", 1000, 2000).plus("end", 64, 0)
    >>> traffic["rounds"].down, traffic["facts"].up
    (2000, 0)
    >>> traffic.up, traffic.down
    (1064, 2000)
    >>> print(traffic)
    total bits    1.06 kbit up, 2 kbit down
      rounds          1 kbit up, 2 kbit down
      end             64 bit up, 0 bit down
    """

    def __init__(self, bits: Mapping[str, Iterable[int]] | None = None) -> None:
        given = dict(bits or {})
        self._bits = {kind: Bits(*map(int, given.pop(kind, NOTHING))) for kind in KINDS}
        if given:
            raise ValueError(f"traffic: kinds are {', '.join(KINDS)}, got {', '.join(given)}")

    def __getitem__(self, kind: str) -> Bits:
        return self._bits[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._bits)

    def __len__(self) -> int:
        return len(self._bits)

    def __repr__(self) -> str:
        return f"Traffic({ {kind: tuple(bits) for kind, bits in self._bits.items() if any(bits)} })"

    def __str__(self) -> str:
        sent = {kind: bits for kind, bits in self.items() if any(bits)}
        rows = [f"  {kind:<15} {format_bits(bits.up)} up, {format_bits(bits.down)} down" for kind, bits in sent.items()]
        return "\n".join([f"total bits    {format_bits(self.up)} up, {format_bits(self.down)} down", *rows])

    @property
    def up(self) -> int:
        """All that clients have sent."""
        return sum(bits.up for bits in self._bits.values())

    @property
    def down(self) -> int:
        """All that the server has sent."""
        return sum(bits.down for bits in self._bits.values())

    @property
    def totals(self) -> dict[str, int]:
        """The totals for tables: everything, evaluations, rounds, and what was sent once."""
        shown = {"evaluation": self["evaluation"], "bits": self["rounds"], "bits_once": self["preconditioner"]}
        both = {"total": Bits(self.up, self.down), **shown}
        return {f"{name}_{way}": getattr(bits, way) for name, bits in both.items() for way in ("up", "down")}

    def plus(self, kind: Kind, up: int, down: int) -> Traffic:
        """Return the traffic with more of a kind."""
        return self.having(kind, Bits(self[kind].up + up, self[kind].down + down))

    def having(self, kind: Kind, bits: Bits) -> Traffic:
        """Return the traffic with other bits of a kind."""
        return Traffic({**self._bits, kind: bits})

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic({kind: Bits(a.up + b.up, a.down + b.down) for kind, a in self.items() for b in [other[kind]]})

    @property
    def before_the_end(self) -> Traffic:
        """The traffic without the end's: what a run has sent that may continue."""
        return self.having("end", NOTHING)

    def undone(self, rounds: Bits) -> Traffic:
        """Return the traffic when the rounds are taken back to what they had sent before."""
        lost = self["rounds"]
        return self.having("rounds", rounds).plus("upkeep", lost.up - rounds.up, lost.down - rounds.down)


def digest(arrays: Any) -> bytes:
    """Eight bytes that distinguish points or memories, to the last bit, also on a GPU."""
    summary = hashlib.blake2b(digest_size=8)
    for array in arrays:
        if namespace(array) is np:
            summary.update(np.ascontiguousarray(array).tobytes())
        else:
            from fpdfp._cuda.digest import digest as digest_there

            summary.update(digest_there(array))
    return summary.digest()


class Answers(Generic[T]):
    """The server's store of answers about points: the latest ones, and for good the answers with the facts.

    Keys are ``("values", point)`` and ``("gradients", point)``, a point being named by its digest.
    """

    def __init__(self, facts: dict[tuple[str, bytes], T]) -> None:
        self._facts = facts
        self._latest: dict[tuple[str, bytes], T] = {}

    def lacking(self, point: bytes, *, gradients: bool, together: bool) -> tuple[str, ...]:
        """Return what has to be asked where values, or gradients, are wanted.

        ``together`` requests gradients along with values that have to be requested regardless.
        """
        if self._knows("gradients" if gradients else "values", point):
            return ()
        parts = ("values", "gradients") if gradients or together else ("values",)
        return tuple(part for part in parts if not self._knows(part, point))

    def _knows(self, part: str, point: bytes) -> bool:
        return (part, point) in self._latest or (part, point) in self._facts

    def parts(self, point: bytes) -> list[str]:
        """Return what is kept about a point."""
        return [part for part in ("values", "gradients") if self._knows(part, point)]

    def __getitem__(self, key: tuple[str, bytes]) -> T:
        return self._latest[key] if key in self._latest else self._facts[key]

    def keep(self, point: bytes, answers: Mapping[str, T]) -> None:
        """Keep answers about a point, and forget the oldest ones."""
        new = {(part, point): answer for part, answer in answers.items()}
        self._latest = dict([*self._latest.items(), *new.items()][-KEPT:])

    def forget(self) -> None:
        """Keep the facts alone: another run begins."""
        self._latest = {}


class Meter:
    """Counts what a run sends.

    A :class:`fpdfp.Problem` names which points the losses were asked about (:meth:`asked`), and that clients were asked
    for a constant (:meth:`constant`) or about dual points (:meth:`asked_near`).

    Attributes
    ----------
    n_clients
        N.
    together
        Whether gradients are requested along with values, since both are needed: at the end of a run.
    """

    def __init__(self, losses: Losses) -> None:
        self._traffic = Traffic()
        #: The bits of the rounds so far: a pair of its own, since it changes with every round.
        self.rounds = NOTHING
        self.together = False
        self.n_clients = losses.n_clients
        self._kind: Kind | None = "facts"
        zero = digest([np.zeros(losses.shape, dtype=losses.dtype)])
        self._known: Answers[None] = Answers({("values", zero): None})
        self._point = b""  # the point that clients received last
        self._joined = b""  # that whose gradients were the last thing asked

    @property
    def traffic(self) -> Traffic:
        """All that was sent so far."""
        return self._traffic.having("rounds", self.rounds)

    @traffic.setter
    def traffic(self, traffic: Traffic) -> None:
        self._traffic, self.rounds = traffic, traffic["rounds"]

    def count(self, kind: Kind, up: int, down: int) -> None:
        """Count bits that all clients together have sent, and were sent."""
        self.traffic = self.traffic.plus(kind, up, down)

    def count_facts(self, losses: Losses, told: int) -> None:
        """Count what clients first send about their losses, and the bits that each receives of g and B."""
        names = losses.feature_digests
        up = _bits([(FACTS,), *map(np.shape, losses.constants()), *([names.shape] if names.size else [])])
        self.count("facts", self.n_clients * up, self.n_clients * told)

    @contextlib.contextmanager
    def counting(self, kind: Kind | None) -> Iterator[None]:
        """Within this, questions to the losses are of this kind; None for what was counted before a resumption."""
        before, self._kind = self._kind, kind
        try:
            yield
        finally:
            self._kind = before

    def name_point(self, x: Array) -> bytes:
        """Return a key that distinguishes a point from others: a digest."""
        return digest([x])

    def asked(self, x: Array, point: bytes, *, gradients: bool = False) -> None:
        """Count a point for all clients, and their values or gradients there, unless the server has kept those."""
        n = self.n_clients
        parts = self._known.lacking(point, gradients=gradients, together=self.together)
        if not parts:
            return
        self._known.keep(point, dict.fromkeys(parts))
        self._point, self._joined = point, point if gradients else b""
        if self._kind is None:
            return
        count_exchange(self._kind)
        self.count(self._kind, n * plain_bits((), FLOAT) if "values" in parts else 0, n * full_bits(x))
        if "gradients" in parts:
            # Those that come along with a row of the history are for the end.
            self.count("end" if self._kind == "evaluation" else self._kind, n * plain_bits(x.shape, x.dtype), 0)

    def tell(self, x: Array) -> None:
        """Take note of a point that clients have received with a question that is counted elsewhere."""
        self._point, self._joined = digest([x]), b""

    def asked_near(self, x: Array, up: Sequence[Shape], down: Sequence[Array], *, joins: bool = False) -> None:
        """Count a question about dual points near x, with each client's weight, and x unless that was sent last.

        ``joins`` says that it is asked along with gradients at x, if these have just been asked.
        """
        point, n = digest([x]), self.n_clients
        told, self._point = self._point == point, point
        joined, self._joined = joins and self._joined == point, b""
        if self._kind is not None:
            if not joined:
                count_exchange(self._kind)
            sent = (0 if told else full_bits(x)) + _bits([(1,)]) + sum(full_bits(one.astype(FLOAT)) for one in down)
            self.count(self._kind, n * _bits(up), n * sent)

    def known(self, x: Array) -> list[str]:
        """Return the stored answers about a point."""
        return self._known.parts(digest([x]))

    def saved_bits(self, x: Array) -> int:
        """Return the bits that a question about the values at x does not cost, since the server has kept them."""
        return self.n_clients * plain_bits((), FLOAT) if "values" in self.known(x) else 0

    def resume(self, x: Array, known: Iterable[str]) -> None:
        """Go on from x as the run that was interrupted would have, which had kept that part of x."""
        parts = dict.fromkeys(known)
        self._known.forget()
        self._point = digest([x]) if parts else b""
        self._known.keep(self._point, parts)

    def constant(self) -> None:
        """Count a constant of each client."""
        count_exchange("facts")
        self.count("facts", self.n_clients * plain_bits((), FLOAT), 0)


def _bits(shapes: Iterable[Shape]) -> int:
    """Return the bits of arrays in double precision."""
    return sum(plain_bits(shape, FLOAT) for shape in shapes)


def parts_of(value: Any) -> dict[str, Any]:
    """Return what makes an object anew, by the ``sent`` of its class; raise TypeError for one without."""
    sent = vars(type(value)).get("sent")
    if sent is None:
        raise TypeError(f"{value!r} cannot be described")
    paths = {name: one[0] if isinstance(one, tuple) else name for name, one in sent.items()}
    return {name: operator.attrgetter(path)(value) for name, path in paths.items()}


def public_bits(model: Any) -> int:
    """Return the bits of the arrays of g and B of a model, which clients receive.

    Zero where these cannot be described without code: sites have them already.
    """

    def arrays(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if value is None or isinstance(value, int | float | str | np.ndarray):
            return value
        if isinstance(value, list | tuple):
            return list(map(arrays, value))
        if type(value).__module__.startswith("scipy.sparse"):
            rows = value.tocsr()
            return [rows.data, rows.indices, rows.indptr]
        return list(map(arrays, parts_of(value).values()))

    try:
        return payload([arrays(model.penalty), arrays(model.linop)])
    except TypeError:
        return 0


def full_bits(array: Array) -> int:
    """The size of an array as an uncompressed message."""
    # Most messages have few zeros, which is soon seen.
    if has_few_zeros(array):
        return plain_bits(array.shape, array.dtype)
    return int(exact_bits(array[None])[0])


def is_zero(message: Any) -> bool:
    """Whether a message holds nothing but zeros."""
    return not any(bool(array.any()) for array in message)


class Kept(NamedTuple):
    """The common state of the server's messages.

    Attributes
    ----------
    message
        The model that both sides keep: w, a tuple of arrays like the server's message.
    sent
        The bits of all differences so far, each counted once.
    seen
        For each client, ``sent`` when it was last brought up to date; −1 before the first time, unless the run starts
        at zero, which all clients know.
    """

    message: tuple[Array, ...]
    sent: int
    seen: IntArray


class Downlink:
    """The server's side: w ← w + a C(z − w), and w is what clients compute with.

    A client that takes part again is sent all differences since the last time, or w itself if that is shorter. The
    errors z − w stay with the server and are sent later, so they vanish with the differences (K. Gruntkowska, A. Tyurin
    and P. Richtárik, "EF21-P and friends: improved theoretical communication complexity for distributed optimization
    with bidirectional compression", ICML 2023). a is 1 for biased compressors, and for unbiased ones what
    :func:`fpdfp.steps.shift_step` gives.
    """

    def __init__(self, compressor: Compressor) -> None:
        self.compressor = compressor
        self.share = functools.cache(self._share)

    def start(self, message: Any, n_clients: int) -> Kept:
        """Before the first round: the first message goes out unchanged, unless it is zero."""
        seen = np.full(n_clients, 0 if is_zero(message) else -1, dtype=np.int64)
        return Kept(tuple(array.copy() for array in message), 0, seen)

    def send(self, kept: Kept, message: Any, clients: IntArray, seed: int, k: int) -> tuple[Any, Kept, int]:
        """Return the message as the clients of round k get it, what is kept after it, and the bits for all of them."""
        arrays, sent = [], kept.sent
        for there, (values, bits) in zip(kept.message, self.compress(kept, message, seed, k), strict=True):
            arrays.append(there + self.share(there.shape) * values[0])
            sent += int(bits[0])
        whole = sum(full_bits(array) for array in arrays)
        seen = kept.seen[clients]
        missed = np.where(seen < 0, whole, np.minimum(sent - seen, whole))
        return type(message)(*arrays), Kept(tuple(arrays), sent, kept.seen), int(missed.sum())

    def compress(self, kept: Kept, message: Any, seed: int, k: int) -> list[Compressed]:
        """Return the difference of each field as clients decode it, and its bits."""
        return [self.compressor.compress(*one) for one in self.differences(kept, message, seed, k)]

    def differences(self, kept: Kept, message: Any, seed: int, k: int) -> Iterator[tuple[Array, Draws, int]]:
        """Yield what a compressor is given for each field: the difference, and what it rounds with."""
        draws = Draws(seed, k, np.zeros(1, dtype=np.int64))
        for field, (wanted, there) in enumerate(zip(message, kept.message, strict=True)):
            yield (wanted - there)[None], draws, Purpose.DOWNLINK + field

    def _share(self, shape: tuple[int, ...]) -> float:
        """a: how much of a decoded difference is taken."""
        if not self.compressor.unbiased:
            return 1.0
        return shift_step(self.compressor.typical_omega(shape), self.compressor.omega(shape))
