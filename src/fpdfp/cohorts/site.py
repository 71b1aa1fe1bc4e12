"""Sites: a site holds some clients' losses, answers the server's requests, and keeps what clients remember.

The questions of a run's rounds are here as well: an update, a certificate, and the memory of clients. Requests
(:mod:`fpdfp.cohorts.requests`) are the same for any engine: Ray hands them to an actor, a federation sends them over a
network. A request that comes twice has the same reply, since all randomness is a function of seed, round and client,
and a client's memory changes only when the server has confirmed what was sent. A site names under ``needs`` what it
lacks to answer, and the server sends it. This may be the description of the run, a memory that agrees with the
server's copy, the model that differences refer to, the point that a question is about, or the features that are left.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpdfp._array import namespace, to_host
from fpdfp._numbers import one_thread
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.losses import At, Duals, check_coordinates, check_factor
from fpdfp.cohorts.question import Encoded, Offer, Question, Rows, question, reveals, tuple_kind
from fpdfp.cohorts.requests import Job, Place, Reply, Request, shorten
from fpdfp.compress import Compressor, decode
from fpdfp.errors import MessageError
from fpdfp.losses.base import Losses
from fpdfp.methods.base import Algorithm, Certifying, Remembering
from fpdfp.precondition.base import read_mask
from fpdfp.precondition.exchange import Slopes
from fpdfp.problem import LocalLosses
from fpdfp.rng import MAX_ROUNDS, QUANTIZE, Draws, Purpose
from fpdfp.traffic import FULL, Downlink, digest

if TYPE_CHECKING:
    from fpdfp._kernels.jit import Trial


#: The most steps of inner solves that a site may claim.
LARGEST_WORK = (1 << 31) - 1


class Lacking(NamedTuple):
    """The parts that a site lacks to answer."""

    needs: tuple[str, ...]


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
    def answer(self, data: Site) -> Any:
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
class WorkDone(Encoded):
    """The clients' messages, and what inner solves cost; ``diverged`` where numbers are no longer finite."""

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

    def answer(self, data: Site) -> WorkDone | Lacking:
        """Return the clients' messages."""
        own = data.find(self.clients)
        agreed, message = data.agree(self, own), data.receive(self.message, self.round)
        if not agreed or message is None:
            return Lacking(("memory",) * (not agreed) + ("model",) * (message is None))
        return data.work(own, message, self.round)


@question("answers")
@dataclasses.dataclass(frozen=True)
class Certificate(Stamped):
    """The clients' part of a certificate, two numbers each: the encoded arrays of the method's question."""

    frames: list[bytes]

    reveals = reveals(
        "run",
        points="frames",
        settings="clients versions digests copies",
        uses="find_all agree certify values gradients lipschitz",
    )
    answers = Rows

    def answer(self, data: Site) -> Rows | Lacking:
        """Return what the clients certify."""
        agreed = data.agree(self, data.find_all(self.clients), forget=False)
        return {"answers": data.certify(self.frames)} if agreed else Lacking(("memory",))


@question("memory")
@dataclasses.dataclass(frozen=True)
class Memory(Stamped):
    """All that the clients remember, for a server that may know it."""

    reveals = reveals("run", settings="clients versions digests copies", uses="find_all agree remember")
    answers = Rows

    def answer(self, data: Site) -> Rows | Lacking:
        """Return what the clients remember."""
        agreed = data.agree(self, data.find_all(self.clients), forget=False)
        return data.remember() if agreed else Lacking(("memory",))


class Stamp(NamedTuple):
    """A stamp: the number of confirmed messages, and a digest of the memory after them."""

    version: int
    digest: bytes


class ClientLedger:
    """A client's side: its memory, and what it has sent that is not confirmed yet.

    Parameters
    ----------
    algorithm
        As for the server.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.memory: Any = algorithm.init_memory(1) if isinstance(algorithm, Remembering) else ()
        self.version = 0
        self._pending: tuple[Any, Any, int] | None = None
        self._before: tuple[Any, int] | None = None

    def stamp(self) -> Stamp:
        """Return the client's own stamp."""
        return Stamp(self.version, digest(getattr(self.memory, name)[0] for name in self.algorithm.shared_memory))

    def hold(self, memory: Any, decoded: Any, k: int) -> None:
        """Hold what was sent in round k until the server confirms it.

        ``memory`` comes from the update, ``decoded`` the reply as the server decodes it.
        """
        self._pending = (memory, decoded, k)

    def confirm(self) -> None:
        """The server has what was sent: remember it."""
        if self._pending is None:
            raise RuntimeError("nothing was sent that could be confirmed")
        self._before = self.memory, self.version
        if isinstance(self.algorithm, Remembering):
            self.memory = self.algorithm.confirm(*self._pending)
        self.version += 1
        self._pending = None

    def agrees(self, server: Stamp, *, forget: bool = True) -> bool:
        """Compare with the server's stamp, and make up for a lost confirmation; False if a copy is needed.

        A server that was restarted may be one version behind: what the client remembered then is kept for that. With
        ``forget`` what was sent and is not confirmed is forgotten.
        """
        if self._pending is not None and server.version == self.version + 1:
            kept = self.memory, self.version, self._pending, self._before
            self.confirm()
            if self.stamp() == server:
                return True
            self.memory, self.version, self._pending, self._before = kept
        if forget:
            self._pending = None
        if self._before is not None and server.version == self._before[1]:
            after = self.memory, self.version
            self.memory, self.version = self._before
            if self.stamp() == server:
                self._before = self._pending = None
                return True
            self.memory, self.version = after
        return self.stamp() == server

    def adopt(self, copy: dict[str, Array], server: Stamp) -> None:
        """Take the server's copy for what this client remembers of its messages."""
        known = self.memory._asdict() if self.memory else {}
        rows = {name: array[None].copy() for name, array in copy.items()}
        for name, array in rows.items():
            if name not in known or (array.shape, array.dtype) != (known[name].shape, known[name].dtype):
                raise MessageError(
                    f"copy must hold arrays of {sorted(known)} as a client has them, got another {name!a}"
                )
        if digest(copy.get(name, ()) for name in self.algorithm.shared_memory) != server.digest:
            raise MessageError("copy must match the server's stamp: it was damaged on its way")
        if rows:
            self.memory = self._place(rows)
        self.version, self._pending, self._before = server.version, None, None

    def _place(self, arrays: Mapping[str, Array]) -> Any:
        """Return a memory with some arrays, each where this method has it: here, or on a GPU."""
        if not arrays:
            return self.memory
        placed = {name: namespace(getattr(self.memory, name)).asarray(array) for name, array in arrays.items()}
        return self.memory._replace(**placed)


#: How many local steps a site takes for a client in a round, those of inner solves included. More are refused, so that
#: a forged number cannot keep a site busy for long.
MOST_STEPS = 250_000
#: Returns losses as a question receives them.
Offering = Callable[[Question, Any], Any]
#: The shape and the dtype of each field of a message.
Layout = dict[str, tuple[Shape, "np.dtype[Any]"]]


def offer_declared(question: Question, losses: Losses) -> Any:
    """Return losses with the operations that a question declares, and no others."""
    return Offer(losses, question.reveals.uses)


class Seen(NamedTuple):
    """The model that differences refer to, how many differences are in it, and since which start of the server."""

    arrays: tuple[Array, ...]
    position: int
    epoch: str


class Site:
    """Some clients, wherever they are.

    Parameters
    ----------
    losses
        Their losses.
    offer
        Returns the losses as a question receives them; by default with the operations that it declares.
    """

    def __init__(self, losses: Any, offer: Offering = offer_declared) -> None:
        if not isinstance(losses, Losses):
            raise TypeError(f"load must return one of fpdfp.losses, got {type(losses).__name__}")
        self.offer = offer
        #: The losses as the question that is being answered receives them.
        self._offered: Any = losses
        #: The losses as functions of all features, of some of them (with their digest), and those a request is about.
        self.whole, self.losses = losses, losses
        self.some: tuple[bytes, IntArray, Losses] | None = None
        self.job: Job | None = None
        self.key = ""
        self.downlink: Downlink | None = None
        #: What the messages of the run look like.
        self.layout: Layout = {}
        self.ledgers: list[ClientLedger] = []
        self.seen: Seen | None = None
        #: Since which start of the server the rounds of the request that is being answered count.
        self.epoch = ""
        #: The point that the server has asked about last, which questions about dual points refer to by its digest.
        self.point: Array | None = None
        #: The largest norm of an array in the reply to the last round.
        self.largest = 0.0
        self._threads = _trial()

    def handle(self, request: Mapping[str, Any] | Request) -> dict[str, Any]:
        """Answer a request: a dictionary with a part for each thing that is asked, and so is the reply."""
        asked = request if isinstance(request, Request) else Request.read(request)
        about = asked.about
        if about.mask is not None:
            self._restrict(read_mask(about.mask, self.whole.shape[-1]))
        if not self._turn_to(about.features):
            return Reply(["features", "job"] if asked.needs_job else ["features"]).write()
        # A question about all features may bring a job along that is about some: that is sent again where it is needed.
        fits = about.job is not None and (asked.needs_job or about.job.algorithm.model.shape == self.losses.shape)
        if about.job is not None and fits and (self.job is None or self.key != about.key):
            self.begin(about.job, about.key)
        if asked.needs_job and (self.job is None or self.key != about.key):
            return Reply(["job"]).write()
        if asked.needs_job and self._job.algorithm.model.shape != self.losses.shape:
            raise MessageError("features must be those that the job is about")
        place, self.epoch = about.place, about.epoch
        if place is not None:
            self._check_place(place)
        own = self._all if place is None or about.clients is None else self.find(about.clients, place)
        with one_thread(), self._threads.working(timed=asked.find(Update) is not None):
            found = {one.name: self._answer(one, own, place) for one in asked.questions}
        needs = sorted({need for one in found.values() if isinstance(one, Lacking) for need in one.needs})
        return (Reply(needs) if needs else Reply([], found)).write()

    def _answer(self, question: Question, own: IntArray, place: Place | None) -> Any:
        """Return the answer of some clients to a question, as it is sent."""
        self._offered = self.offer(question, self.losses)
        if question.reveals.of == "run":
            return question.answer(Offer(self, question.reveals.uses))
        if isinstance(question, At | Duals):
            known = self._know_point(question)
            if isinstance(known, Lacking):
                return known
            question = known
        if isinstance(question, Slopes) and question.values:
            self.point = question.points_at(self.losses.shape).x[0].astype(self.losses.dtype)
        scaling, total = (None, 1.0) if place is None else (place.scaling, place.total)
        sent = question.answer(LocalLosses(self._offered, own, scaling, (), total))
        return sent if not isinstance(sent, tuple) else self._encode(question, sent, own, place)

    def _know_point(self, question: At | Duals) -> At | Duals | Lacking:
        """Return a question with its point, which the server has sent now or before."""
        if question.x is not None:
            if question.x.shape != self.losses.shape or question.x.dtype.kind != "f":
                raise MessageError(
                    f"x must be a point of shape {self.losses.shape}, got {question.x.dtype} of {question.x.shape}"
                )
            self.point = question.x
        if isinstance(question, At):
            return question
        if self.point is None or digest([self.point]) != question.point:
            return Lacking(("point",))
        return dataclasses.replace(question, x=self.point)

    def _encode(self, question: Question, sent: Any, own: IntArray, place: Place | None) -> Rows | Encoded:
        """Return an answer in rows, or through the compressors that the question names."""
        messages = question.messages(self.losses.shape)
        if not messages:
            return {name: to_host(array) for name, array in sent._asdict().items()}
        if place is None:
            raise MessageError(f"a question for {question.name} must have a place")
        draws = Draws(place.seed, 0, place.numbers[own])
        frames, bits = {}, np.zeros((len(sent), len(own)), dtype=np.int64)
        for field, (name, array) in enumerate(zip(sent._fields, sent, strict=True)):
            compressor = messages[name][0]
            quantized = compressor.quantize(array, draws, Purpose.ONCE + field)
            frames[name], bits[field] = compressor.encode(quantized), compressor.nbits(quantized)
        return Encoded(frames, bits)

    def _restrict(self, features: IntArray) -> None:
        """Keep the losses as functions of some features."""
        if self.some is None or not np.array_equal(self.some[1], features):
            with refusing("a mask"):
                self.some = digest([features]), features, self.whole.restrict(features)

    def _turn_to(self, features: bytes) -> bool:
        """Answer with the losses as functions of some features, named by their digest; False if they are not here."""
        if not features:
            self.losses = self.whole
        elif self.some is not None and self.some[0] == features:
            self.losses = self.some[2]
        else:
            return False
        return True

    def begin(self, job: Job, key: str) -> None:
        """Take part in a run."""
        job = self._fit_job(job)
        with refusing("a job"):
            layout = _layout(self._first_message(job))
            replies = job.algorithm.reply_shapes()
            if set(job.compressors) != set(replies):
                raise MessageError(f"a job must have a compressor for each of {sorted(replies)}")
            for name, shape in replies.items():
                job.compressors[name].parameters(shape)  # refuses axes that there are not
            if job.downlink is not None:
                for shape, _ in layout.values():
                    job.downlink.parameters(shape)
            ledgers = [ClientLedger(job.algorithm) for _ in range(self.losses.n_clients)]
        self.job, self.key, self.layout, self.ledgers, self.seen = job, key, layout, ledgers, None
        self.downlink = None if job.downlink is None else Downlink(job.downlink)
        self._threads = _trial()

    def _first_message(self, job: Job) -> Any:
        """Return the message that the server of a run sends from zero: others have its fields, shapes and dtypes."""
        zero = self.losses.xp.zeros(self.losses.shape, dtype=self.losses.dtype)
        return job.algorithm.broadcast(job.algorithm.init(zero))

    def _fit_job(self, job: Job) -> Job:
        """Return a job as it is done here; refuse one that is not for these losses."""
        self._check_place(job.place)
        model = job.algorithm.model
        if model.shape != self.losses.shape or np.dtype(model.dtype) != self.losses.dtype:
            raise MessageError(
                f"this site's losses take x of shape {self.losses.shape} and {self.losses.dtype}, the run has "
                f"{model.shape} and {model.dtype}"
            )
        if job.algorithm.client_steps > MOST_STEPS:
            raise MessageError(
                f"a client takes at most {MOST_STEPS:,} steps in a round, the run has {job.algorithm.client_steps:,}"
            )
        with refusing("a job"):
            check_coordinates(getattr(job.algorithm, "coordinates", None), self.losses.shape)
            check_factor(job.algorithm.factor, self.losses.shape)
            # The server need not have a GPU where a site has one.
            algorithm = dataclasses.replace(job.algorithm, model=model._replace(device=self.losses.device))
        return dataclasses.replace(job, algorithm=algorithm)

    def _check_place(self, place: Place) -> None:
        """Refuse the place of another site."""
        if len(place.numbers) != self.losses.n_clients:
            raise MessageError(f"this site has {self.losses.n_clients} clients, the server counts {len(place.numbers)}")

    # A site's part in a run, as its questions see it.

    def find(self, numbers: IntArray | None, place: Place | None = None) -> IntArray:
        """Return the places here of clients that the server names by their numbers; None for all."""
        if numbers is None:
            return self._all
        known = (place or self._job.place).numbers
        if numbers.ndim != 1 or not len(numbers):
            raise MessageError("clients must be numbers of clients, at least one")
        places: IntArray = np.searchsorted(known, numbers)
        here = known[np.minimum(places, len(known) - 1)]
        if not np.array_equal(here, numbers) or (numbers[1:] <= numbers[:-1]).any():
            raise MessageError("the server must request clients of this site, in the order of their numbers")
        return places

    def find_all(self, numbers: IntArray | None) -> IntArray:
        """Return the places of all clients, if it is them who are named."""
        own = self.find(numbers)
        if len(own) != self.losses.n_clients:
            raise MessageError("this is asked of all clients of a site")
        return own

    def agree(self, ask: Stamped, own: IntArray, *, forget: bool = True) -> bool:
        """Compare what clients remember with the server's stamps, and take its copies; False where one is lacking.

        What was sent and is not confirmed is forgotten only when a round is requested: it may have been requested along
        with something else, and be confirmed later.
        """
        agreed = True
        if len(own) != len(ask.digests):
            raise MessageError(f"this site has {self.losses.n_clients} clients, the server counts {len(ask.digests)}")
        for place, (i, known) in enumerate(zip(own, ask.digests, strict=True)):
            stamp = Stamp(ask.version_of(place), known)
            copy = ask.copies.get(str(self._job.place.numbers[i]))
            if self.ledgers[i].agrees(stamp, forget=forget):
                continue
            if copy is None:
                agreed = False
            else:
                self.ledgers[i].adopt(copy, stamp)
        return agreed

    def certify(self, frames: list[bytes]) -> Array:
        """Return what all clients certify of the gap."""
        algorithm = self._job.algorithm
        if not isinstance(algorithm, Certifying):
            raise MessageError(f"{algorithm.summary} has no certificate of its own")
        question = self._question(algorithm, frames)
        return to_host(algorithm.answer(self._local(self._all, self._memory(self._all)), question))

    def _question(self, algorithm: Certifying, frames: list[bytes]) -> Any:
        """Return the server's question, if it is one of the algorithm's."""
        zero = self.losses.xp.zeros(self.losses.shape, dtype=self.losses.dtype)
        layout = _layout(algorithm.question(self._job.algorithm.init(zero), fine=True).arrays)
        arrays = [decode(frame, limit=max(1, zero.size)) for frame in frames]
        if [array.shape for array in arrays] != [shape for shape, _ in layout.values()]:
            raise MessageError(f"a question must have the fields {list(layout)}, in their shapes")
        return tuple_kind("Question", tuple(layout))(*map(self._here, arrays))

    def remember(self) -> dict[str, Array]:
        """Return all that the clients remember."""
        memory = self._memory(self._all)
        return {name: to_host(array) for name, array in memory._asdict().items()} if memory else {}

    def work(self, own: IntArray, message: Any, k: int) -> WorkDone:
        """Do a round's work of some of the clients."""
        job = self._job
        draws = Draws(job.place.seed, k, job.place.numbers[own])
        update = job.algorithm.client_update(self._local(own, self._memory(own)), message, k, draws)
        self.largest = 0.0
        frames, bits, decoded = {}, np.zeros((len(update.reply), len(own)), dtype=np.int64), []
        for field, (name, arrays) in enumerate(zip(update.reply._fields, update.reply, strict=True)):
            compressor = job.compressors[name]
            try:
                quantized = compressor.quantize(arrays, draws, QUANTIZE + field)
            except FloatingPointError as error:
                return WorkDone(diverged=str(error))
            frames[name], bits[field] = compressor.encode(quantized), compressor.nbits(quantized)
            found = compressor.dequantize(quantized).reshape(arrays.shape)
            rows = to_host(found).reshape(len(own), -1).astype(np.float64, copy=False)
            with np.errstate(over="ignore"):  # a run that diverges is reported elsewhere
                self.largest = max(self.largest, math.sqrt(np.einsum("ij,ij->i", rows, rows).max()))
            decoded.append(shorten(found, job.norm_bound))
        sent = type(update.reply)(*decoded)
        for row, i in enumerate(own):
            self.ledgers[i].hold(_row(update.memory, row), _row(sent, row), k)
        return WorkDone(frames, bits, (update.work.steps, update.work.unsolved))

    @property
    def _job(self) -> Job:
        assert self.job is not None
        return self.job

    @property
    def _all(self) -> IntArray:
        return np.arange(self.losses.n_clients)

    def _here(self, array: Any) -> Array:
        """Return an array where the losses are."""
        moved: Array = self.losses.xp.asarray(array)
        return moved

    def _local(self, own: IntArray, memory: Any) -> LocalLosses:
        """Return what an algorithm sees of the data: operations that are sums over rows, and no others."""
        place = self._job.place
        return LocalLosses(self._offered, own, place.scaling, memory, place.total)

    def _memory(self, own: IntArray) -> Any:
        """Return what some clients remember, with a leading client axis."""
        memories = [self.ledgers[i].memory for i in own]
        if not memories or not memories[0]:
            return ()
        # Some of it may be on the processor where the rest is on a GPU.
        return type(memories[0])(*(namespace(parts[0]).concatenate(parts) for parts in zip(*memories, strict=True)))

    def receive(self, sent: Message, k: int) -> Any:
        """Return the server's message of round k, None if what its differences refer to is not here."""
        downlink, layout, epoch, position = self.downlink, self.layout, self.epoch, k + 1
        kind = tuple_kind("Message", tuple(layout))
        if sent.whole is not None:
            arrays = self._decode(FULL, sent.whole)
            self.seen = Seen(arrays, position, epoch)
            return kind(*arrays)
        if sent.zero and (self.seen is None or self.seen.epoch != epoch):
            zeros = tuple(self.losses.xp.zeros(shape, dtype=dtype) for shape, dtype in layout.values())
            self.seen = Seen(zeros, 0, epoch)
        # A server that was restarted may have gone another way since.
        if self.seen is None or self.seen.epoch != epoch:
            return None
        if self.seen.position == position:
            return kind(*self.seen.arrays)
        if self.seen.position != position - len(sent.steps) or downlink is None:
            return None
        arrays = self.seen.arrays
        for frames in sent.steps:
            differences = self._decode(downlink.compressor, frames)
            arrays = tuple(
                there + downlink.share(there.shape) * one for there, one in zip(arrays, differences, strict=True)
            )
        self.seen = Seen(arrays, position, epoch)
        return kind(*arrays)

    def _decode(self, compressor: Compressor, frames: list[bytes]) -> tuple[Array, ...]:
        """Return the arrays of a message, each in the shape and dtype that the method's has."""
        if len(frames) != len(self.layout):
            raise MessageError(f"a message must have {len(self.layout)} arrays, got {len(frames)}")
        return tuple(
            compressor.decode([frame], shape, dtype, self.losses.device)[0]
            for frame, (shape, dtype) in zip(frames, self.layout.values(), strict=True)
        )


def _trial() -> Trial:
    """Return what finds out how many threads a round's work is done with."""
    from fpdfp._kernels.jit import Trial

    return Trial()


@contextlib.contextmanager
def refusing(what: str) -> Iterator[None]:
    """Within this, what cannot be done is the fault of what was sent."""
    try:
        yield
    except MessageError:
        raise
    except Exception as error:
        raise MessageError(f"{what} cannot be used: {type(error).__name__}: {error}") from error


def _layout(arrays: Any) -> Layout:
    """Return the shape and the dtype of each field of a named tuple of arrays."""
    return {name: (array.shape, np.dtype(array.dtype)) for name, array in arrays._asdict().items()}


def _row(arrays: Any, row: int) -> Any:
    """Return one client's part of a named tuple, with a client axis of length one."""
    return type(arrays)(*(array[row : row + 1] for array in arrays)) if arrays else ()
