"""What a site does: it holds some clients' losses, answers the server's requests, and keeps what clients remember.

The requests (:mod:`fpdfp.engines.requests`) of any engine are the same: Ray hands them to an actor, a federation sends
them over a network. A request that comes twice has the same reply, since all randomness is a function of seed, round
and client, and a client's memory changes only when the server has confirmed what was sent
(:mod:`fpdfp.engines.ledger`). What a site lacks to answer (the description of the run, a memory that
agrees with the server's copy, the model that differences refer to, the point that a question is about, the features
that are left) it names under ``needs``, and the server sends it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpdfp._array import namespace, to_host
from fpdfp._numbers import one_thread
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.question import Offer, Question
from fpdfp.compress import Compressor, decode
from fpdfp.engines import requests
from fpdfp.engines.checkpoint import probe
from fpdfp.engines.job import Job, Place
from fpdfp.engines.ledger import ClientLedger, Stamp
from fpdfp.engines.requests import (
    OUTSIDE,
    AnswersReply,
    AnswersRequest,
    AtReply,
    AtRequest,
    ConstantsReply,
    ConstantsRequest,
    DualsReply,
    DualsRequest,
    FactsReply,
    FactsRequest,
    GatherReply,
    GatherRequest,
    MemoryReply,
    MemoryRequest,
    Message,
    Reply,
    Request,
    Stamped,
    UpdateReply,
    UpdateRequest,
)
from fpdfp.engines.run import QUANTIZE
from fpdfp.engines.traffic import FULL, Downlink, digest
from fpdfp.engines.tuples import tuple_kind
from fpdfp.errors import MessageError
from fpdfp.linops import LinOp
from fpdfp.losses.base import Losses
from fpdfp.losses.linear import LinearModel
from fpdfp.methods.base import Certifying
from fpdfp.precondition import Preconditioner
from fpdfp.precondition.base import Announced
from fpdfp.problem import LocalLosses
from fpdfp.rng import Draws, Purpose

if TYPE_CHECKING:
    from fpdfp._kernels.jit import Trial

#: How many local steps a site takes for a client in a round, those of inner solves included. More are refused, so that
#: a forged number cannot keep a site busy for long.
MOST_STEPS = 250_000
#: The shape and the dtype of each field of a message.
Layout = dict[str, tuple[Shape, "np.dtype[Any]"]]


class Seen(NamedTuple):
    """The model that differences refer to, how many differences are in it, and since which start of the server."""

    arrays: tuple[Array, ...]
    position: int
    epoch: str


class Lacking(NamedTuple):
    """What a site lacks to answer."""

    needs: tuple[str, ...]


class Site:
    """Some clients, wherever they are.

    Parameters
    ----------
    losses
        Their losses.
    offer
        What hands the losses to questions; by default with the operations that these declare.
    """

    def __init__(self, losses: Losses, offer: Callable[[Question, Losses], Any] | None = None) -> None:
        if not isinstance(losses, Losses):
            raise TypeError(f"load must return one of fpdfp.losses, got {type(losses).__name__}")
        self.offer = offer or (lambda question, data: Offer(data, question.reveals.uses))
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
        #: The point that the server has asked about last, which questions about dual points refer to by its digest.
        self.point: Array | None = None
        #: The largest norm of an array in the reply to the last round.
        self.largest = 0.0
        self._threads = _trial()

    def handle(self, request: Mapping[str, Any] | Request) -> dict[str, Any]:
        """Answer a request: a dictionary with a part for each thing that is asked, and so is the reply."""
        asked = request if isinstance(request, Request) else Request.read(request)
        if asked.mask is not None:
            self._restrict(read_mask(asked.mask, self.whole.shape[-1]))
        if not self._turn_to(asked.features):
            return requests.write(Reply(needs=["features", "job"] if asked.needs_job else ["features"]))
        # A question about all features may bring a job along that is about some: that is told again where it is needed.
        fits = asked.job is not None and (asked.needs_job or asked.job.algorithm.model.shape == self.losses.shape)
        if asked.job is not None and fits and (self.job is None or self.key != asked.key):
            self.begin(asked.job, asked.key)
        if asked.needs_job and (self.job is None or self.key != asked.key):
            return requests.write(Reply(needs=["job"]))
        if asked.needs_job and self._job.algorithm.model.shape != self.losses.shape:
            raise MessageError("features must be those that the job is about")
        with one_thread(), self._threads.working(timed=asked.update is not None):
            parts = {part: getattr(self, part)(getattr(asked, part)) for part in asked.parts}
        needs = sorted({need for part in parts.values() if isinstance(part, Lacking) for need in part.needs})
        return requests.write(Reply(needs=needs) if needs else Reply(**parts))

    def _restrict(self, features: IntArray) -> None:
        """Keep the losses as functions of some features."""
        if self.some is None or not np.array_equal(self.some[1], features):
            with refusing("a mask"):
                self.some = digest([features]), features, self.whole.restrict(features)

    def _turn_to(self, features: bytes) -> bool:
        """Answer with the losses as functions of some features, told by their digest; False if they are not here."""
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
            self._check_coordinates(getattr(job.algorithm, "coordinates", None))
            self._check_factor(job.algorithm.factor)
            # The server need not have a GPU where a site has one.
            algorithm = dataclasses.replace(job.algorithm, model=model._replace(device=self.losses.device))
        return dataclasses.replace(job, algorithm=algorithm)

    def _check_place(self, place: Place) -> None:
        """Refuse the place of another site."""
        if len(place.numbers) != self.losses.n_clients:
            raise MessageError(f"this site has {self.losses.n_clients} clients, the server counts {len(place.numbers)}")

    def _check_coordinates(self, coordinates: Preconditioner | None) -> None:
        """Refuse coordinates of other points than those of the losses, before a factor is built of them."""
        if coordinates is not None and coordinates.shape != self.losses.shape:
            raise MessageError(
                f"coordinates must be for arrays of shape {self.losses.shape}, got some for {coordinates.shape}"
            )

    def _check_factor(self, factor: LinOp | None) -> None:
        """Refuse a map that does not take points of the losses to such."""
        shape = self.losses.shape
        if factor is not None and not factor.in_shape == factor.out_shape == shape:
            raise MessageError(f"a factor must map arrays of shape {shape} to such, got {factor!r}")

    def facts(self, _: FactsRequest) -> FactsReply:
        """What the server must know of the losses before it can choose steps, and what it asks in any case."""
        losses = self.losses
        zero = losses.xp.zeros(losses.shape, dtype=losses.dtype)
        return FactsReply(
            family=losses.family,
            shape=losses.shape,
            dtype="<f4" if losses.dtype == np.float32 else "<f8",
            sizes=losses.sizes,
            lipschitz=losses.lipschitz(),
            least_convexity=losses.least_convexity,
            form=losses.form,
            batches=losses.supports_batches,
            hessians=losses.hessians(zero, np.arange(0)) is not None,
            duals=isinstance(losses, LinearModel) and losses.has_duals,
            restricts=losses.can_restrict,
            convex=losses.is_convex,
            features=losses.feature_digests,
            constants=[np.asarray(one, dtype=np.float64) for one in losses.constants()],
            probe=_bounded(losses.values(self._here(probe(losses.shape, losses.dtype)), self._all)),
            values=_bounded(losses.values(zero, self._all)),
        )

    def gather(self, ask: GatherRequest) -> GatherReply:
        """What a method asks of some clients once."""
        self._check_place(ask.place)
        own = self._own(ask.clients, ask.place)
        local = self._local(own, place=ask.place)
        offered: Any = self.offer(ask.question, self.losses)
        sent = ask.question.answer(local._replace(losses=offered))
        messages = ask.question.messages(self.losses.shape)
        if not messages:
            return GatherReply(list(sent._fields), [to_host(array) for array in sent])
        draws = Draws(ask.place.seed, 0, ask.place.numbers[own])
        frames, bits = {}, np.zeros((len(sent), len(own)), dtype=np.int64)
        for field, (name, array) in enumerate(zip(sent._fields, sent, strict=True)):
            compressor = messages[name][0]
            quantized = compressor.quantize(array, draws, Purpose.ONCE + field)
            frames[name], bits[field] = compressor.encode(quantized), compressor.nbits(quantized)
        return GatherReply(frames=frames, bits=bits)

    def constants(self, ask: ConstantsRequest) -> ConstantsReply:
        """Lipschitz constants in the method's coordinates, or what mini-batches add to them."""
        self._check_coordinates(ask.coordinates)
        factor = ask.factor if ask.coordinates is None else ask.coordinates.factor
        self._check_factor(factor)
        if ask.batch_size is not None:
            return ConstantsReply(self.losses.batch_smoothness(ask.batch_size, factor))
        if factor is None:
            raise MessageError("Lipschitz constants are asked for in other coordinates, and there are none")
        return ConstantsReply(self.losses.lipschitz_in(factor))

    def at(self, ask: AtRequest) -> AtReply:
        """f_i(x), ∇f_i(x) or both, as losses give them."""
        self.point = self._check_point(ask.x)
        x, given = self._here(ask.x), {"values": self.losses.values, "gradients": self.losses.gradients}
        with np.errstate(all="ignore"):
            found = {part: to_host(given[part](x, self._all)) for part in ask.parts}
        if "values" in found:
            found["values"] = _bounded(found["values"])
        return AtReply(**found)

    def _check_point(self, x: Array) -> Array:
        """Return x if it is a point of the losses."""
        if x.shape != self.losses.shape or x.dtype.kind != "f":
            raise MessageError(f"x must be a point of shape {self.losses.shape}, got {x.dtype} of {x.shape}")
        return x

    def duals(self, ask: DualsRequest) -> DualsReply | Lacking:
        """What a bound of F(x) − F* is computed from, summed over the site's clients."""
        from fpdfp.engines.remote_duals import answer

        if ask.x is not None:
            self.point = self._check_point(ask.x)
        if self.point is None or digest([self.point]) != ask.point:
            return Lacking(("point",))
        return DualsReply(**answer(self.losses, self.point, ask))

    def answers(self, ask: AnswersRequest) -> AnswersReply | Lacking:
        """What the clients certify of the gap."""
        if not self._agree(ask, self._own_all(ask), forget=False):
            return Lacking(("memory",))
        algorithm = self._job.algorithm
        if not isinstance(algorithm, Certifying):
            raise MessageError(f"{algorithm.summary} has no certificate of its own")
        question = self._question(algorithm, ask.frames)
        memory = self._memory(self._all)
        return AnswersReply(to_host(algorithm.answer(self._local(self._all, memory), question)))

    def _own_all(self, ask: Stamped) -> IntArray:
        """Return the places of all clients, if it is them who are asked."""
        own = self._own(ask.clients)
        if len(own) != self.losses.n_clients:
            raise MessageError("this is asked of all clients of a site")
        return own

    def _question(self, algorithm: Certifying, frames: list[bytes]) -> Any:
        """Return the server's question, if it is one of the algorithm's."""
        zero = self.losses.xp.zeros(self.losses.shape, dtype=self.losses.dtype)
        layout = _layout(algorithm.question(self._job.algorithm.init(zero), fine=True).arrays)
        arrays = [decode(frame, limit=max(1, zero.size)) for frame in frames]
        if [array.shape for array in arrays] != [shape for shape, _ in layout.values()]:
            raise MessageError(f"a question must have the fields {list(layout)}, in their shapes")
        return tuple_kind("Question", tuple(layout))(*map(self._here, arrays))

    def memory(self, ask: MemoryRequest) -> MemoryReply | Lacking:
        """All that the clients remember, for a server that may know it."""
        if not self._agree(ask, self._own_all(ask), forget=False):
            return Lacking(("memory",))
        memory = self._memory(self._all)
        return MemoryReply({name: to_host(array) for name, array in memory._asdict().items()} if memory else {})

    def update(self, ask: UpdateRequest) -> UpdateReply | Lacking:
        """A round's work of some of the clients: their messages."""
        job, k = self._job, ask.round
        own = self._own(ask.clients)
        agreed, message = self._agree(ask, own), self._receive(ask.message)
        if not agreed or message is None:
            return Lacking(("memory",) * (not agreed) + ("model",) * (message is None))
        draws = Draws(job.place.seed, k, job.place.numbers[own])
        update = job.algorithm.client_update(self._local(own, self._memory(own)), message, k, draws)
        self.largest = 0.0
        frames, bits, decoded = {}, np.zeros((len(update.reply), len(own)), dtype=np.int64), []
        for field, (name, arrays) in enumerate(zip(update.reply._fields, update.reply, strict=True)):
            compressor = job.compressors[name]
            try:
                quantized = compressor.quantize(arrays, draws, QUANTIZE + field)
            except FloatingPointError as error:
                return UpdateReply(diverged=str(error))
            frames[name], bits[field] = compressor.encode(quantized), compressor.nbits(quantized)
            found = compressor.dequantize(quantized).reshape(arrays.shape)
            rows = to_host(found).reshape(len(own), -1).astype(np.float64, copy=False)
            with np.errstate(over="ignore"):  # a run that diverges is told elsewhere
                self.largest = max(self.largest, math.sqrt(np.einsum("ij,ij->i", rows, rows).max()))
            decoded.append(shorten(found, job.norm_bound))
        sent = type(update.reply)(*decoded)
        for row, i in enumerate(own):
            self.ledgers[i].hold(_row(update.memory, row), _row(sent, row), k)
        return UpdateReply(frames, bits, (update.work.steps, update.work.unsolved))

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

    def _local(self, own: IntArray, memory: Any = (), place: Place | None = None) -> LocalLosses:
        place = place or self._job.place
        return LocalLosses(self.losses, own, place.scaling, memory, place.total)

    def _own(self, numbers: IntArray, place: Place | None = None) -> IntArray:
        """Return the places here of clients that the server names by their numbers."""
        known = (place or self._job.place).numbers
        if numbers.ndim != 1 or not len(numbers):
            raise MessageError("clients must be numbers of clients, at least one")
        places: IntArray = np.searchsorted(known, numbers)
        here = known[np.minimum(places, len(known) - 1)]
        if not np.array_equal(here, numbers) or (numbers[1:] <= numbers[:-1]).any():
            raise MessageError("the server must ask for clients of this site, in the order of their numbers")
        return places

    def _memory(self, own: IntArray) -> Any:
        """Return what some clients remember, with a leading client axis."""
        memories = [self.ledgers[i].memory for i in own]
        if not memories or not memories[0]:
            return ()
        # Some of it may be on the processor where the rest is on a GPU.
        return type(memories[0])(*(namespace(parts[0]).concatenate(parts) for parts in zip(*memories, strict=True)))

    def _agree(self, ask: Stamped, own: IntArray, *, forget: bool = True) -> bool:
        """Compare what clients remember with the server's stamps, and take its copies; False where one is lacking.

        What was sent and is not confirmed is forgotten only when a round is asked for: it may have been asked for along
        with something else, and be confirmed later.
        """
        agreed = True
        for i, version, known in zip(own, ask.versions, ask.digests, strict=True):
            stamp, copy = Stamp(int(version), known), ask.copies.get(str(self._job.place.numbers[i]))
            if self.ledgers[i].agrees(stamp, forget=forget):
                continue
            if copy is None:
                agreed = False
            else:
                self.ledgers[i].adopt(copy, stamp)
        return agreed

    def _receive(self, sent: Message) -> Any:
        """Return the server's message, None if what its differences refer to is not here."""
        downlink, layout = self.downlink, self.layout
        if sent.fields != list(layout):
            raise MessageError(f"a message must have the fields {list(layout)}")
        kind = tuple_kind("Message", tuple(layout))
        if sent.whole is not None:
            arrays = self._decode(FULL, sent.whole)
            self.seen = Seen(arrays, sent.to, sent.epoch)
            return kind(*arrays)
        if sent.zero and (self.seen is None or self.seen.epoch != sent.epoch):
            zeros = tuple(self.losses.xp.zeros(shape, dtype=dtype) for shape, dtype in layout.values())
            self.seen = Seen(zeros, 0, sent.epoch)
        # A server that was restarted may have gone another way since.
        if self.seen is None or self.seen.epoch != sent.epoch:
            return None
        if self.seen.position == sent.to:
            return kind(*self.seen.arrays)
        if self.seen.position != sent.start or downlink is None:
            return None
        arrays = self.seen.arrays
        for frames in sent.steps:
            differences = self._decode(downlink.compressor, frames)
            arrays = tuple(
                there + downlink.share(there.shape) * one for there, one in zip(arrays, differences, strict=True)
            )
        self.seen = Seen(arrays, sent.to, sent.epoch)
        return kind(*arrays)

    def _decode(self, compressor: Compressor, frames: list[bytes]) -> tuple[Array, ...]:
        """Return the arrays of a message, each in the shape and dtype that the method's has."""
        if len(frames) != len(self.layout):
            raise MessageError(f"a message must have {len(self.layout)} arrays, got {len(frames)}")
        return tuple(
            compressor.decode([frame], shape, dtype, self.losses.device)[0]
            for frame, (shape, dtype) in zip(frames, self.layout.values(), strict=True)
        )


def _bounded(values: Array) -> Array:
    """Return values as they can be sent: a large number stands for those of points outside the domain of a loss."""
    return np.nan_to_num(values, nan=OUTSIDE, posinf=OUTSIDE).clip(max=OUTSIDE)


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


def shorten(arrays: Array, bound: float | None) -> Array:
    """Return each client's array, at most as long as the bound; both sides do this to what was decoded."""
    if bound is None:
        return arrays
    lengths = np.array([float(np.linalg.norm(to_host(array).astype(np.float64).ravel())) for array in arrays])
    factors = np.where(lengths > bound, bound / np.maximum(lengths, 1e-300), 1.0)
    if (factors == 1.0).all():
        return arrays
    from fpdfp._array import beside

    column = factors.reshape(-1, *[1] * (arrays.ndim - 1)).astype(arrays.dtype)
    short: Array = arrays * beside(column, arrays)
    return short


def _row(arrays: Any, row: int) -> Any:
    """Return one client's part of a named tuple, with a client axis of length one."""
    return type(arrays)(*(array[row : row + 1] for array in arrays)) if arrays else ()


def read_mask(mask: Announced, n_features: int) -> IntArray:
    """Return the features of a mask; raise MessageError for anything else."""
    array = mask.array
    if array.shape != (n_features,) or not ((array == 0) | (array == 1)).all() or not array.any():
        raise MessageError(f"mask must have a zero or a one for each of the {n_features} features, and a one at least")
    return np.flatnonzero(array)
