"""What a site does: it holds some clients' losses, answers the server's requests, and keeps what clients remember.

A request is a dictionary with a part for each thing that is asked (``facts``, ``gather``, ``constants``, ``at``,
``duals``, ``update``, ``answers``, ``memory``), and so is the reply. The requests of any engine are the same: Ray
hands them to an actor, Flower sends them over a network. A request that comes twice has the same reply, since all
randomness is a function of seed, round and client, and a client's memory changes only when the server has confirmed
what was sent (:mod:`fpdfp.engines.ledger`). What a site lacks to answer (the description of the run, a memory that
agrees with the server's copy, the model that differences refer to, the point that a question is about) it names under
``needs``, and the server sends it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fpdfp._array import namespace, to_host
from fpdfp._blas import one_thread
from fpdfp._typing import Array, IntArray
from fpdfp.compress import Compressor
from fpdfp.engines.checkpoint import probe
from fpdfp.engines.downlink import FULL, Downlink
from fpdfp.engines.ledger import ClientLedger, Stamp, digest
from fpdfp.engines.local import QUANTIZE
from fpdfp.engines.tuples import named
from fpdfp.errors import MessageError
from fpdfp.linops import Identity
from fpdfp.losses._linear import LinearModel
from fpdfp.losses.base import Losses
from fpdfp.methods.base import Algorithm
from fpdfp.penalties.zero import Zero
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Draws, Purpose

#: What a request may ask, in the order in which it is answered.
PARTS = ("facts", "gather", "constants", "at", "duals", "answers", "memory", "update")
#: Those of them for which a site must know the job.
ROUNDS = {"answers", "memory", "update"}


class Job(NamedTuple):
    """What a site must know of a run.

    Attributes
    ----------
    task
        The algorithm that runs, or what clients are asked once before that.
    compressors
        One for each field of a reply.
    downlink
        What the server's messages go through; None where they come as they are.
    numbers
        The numbers of the site's clients in the whole federation.
    scaling, total
        N w_i of the site's clients, None where all are 1, and the sum of all weights.
    seed
        The seed of the run.
    norm_bound
        The largest norm that a field of a reply may have; longer ones are shortened by both sides. None for none.
    """

    task: Any
    compressors: dict[str, Compressor]
    downlink: Compressor | None
    numbers: IntArray
    scaling: Array | None
    total: float
    seed: int
    norm_bound: float | None = None


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
    """

    def __init__(self, losses: Losses) -> None:
        if not isinstance(losses, Losses):
            raise TypeError(f"load must return one of fpdfp.losses, got {type(losses).__name__}")
        self.losses = losses
        self.job: Job | None = None
        self.key = ""
        self.downlink: Downlink | None = None
        self.ledgers: list[ClientLedger] = []
        self.seen: Seen | None = None
        #: The point that the server has asked about last, which questions about dual points refer to by its digest.
        self.point: Array | None = None

    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request."""
        if "job" in request and (self.job is None or self.key != request["key"]):
            self.begin(request["job"], request["key"])
        if set(request) & ROUNDS and (self.job is None or self.key != request["key"]):
            return {"needs": ["job"]}
        with one_thread():
            reply: dict[str, Any] = {}
            for part in PARTS:
                if part in request:
                    reply[part] = getattr(self, part)(request[part])
        needs = sorted({need for part in reply.values() if isinstance(part, dict) for need in part.get("needs", ())})
        return reply | ({"needs": needs} if needs else {})

    def begin(self, job: Job, key: str) -> None:
        """Take part in a run."""
        self.job, self.key = self._fitting(job), key
        self.downlink = None if job.downlink is None else Downlink(job.downlink)
        self.ledgers = [ClientLedger(self.job.task) for _ in range(self.losses.n_clients)]
        self.seen = None

    def _fitting(self, job: Job) -> Job:
        """Return a job as it is done here; refuse one that is not for these losses."""
        if len(job.numbers) != self.losses.n_clients:
            raise MessageError(f"this site has {self.losses.n_clients} clients, the server counts {len(job.numbers)}")
        if not isinstance(job.task, Algorithm):
            return job
        model = job.task.model
        if model.shape != self.losses.shape or np.dtype(model.dtype) != self.losses.dtype:
            raise MessageError(
                f"this site's losses take x of shape {self.losses.shape} and {self.losses.dtype}, the run has "
                f"{model.shape} and {model.dtype}"
            )
        # The server need not have a GPU where a site has one.
        model = model._replace(device=self.losses.device)
        return job._replace(task=dataclasses.replace(job.task, model=model))

    def facts(self, _: Any) -> dict[str, Any]:
        """What the server must know of the losses before it can choose steps, and what it asks in any case."""
        losses = self.losses
        zero = losses.xp.zeros(losses.shape, dtype=losses.dtype)
        return {
            "family": losses.family,
            "shape": list(losses.shape),
            "dtype": np.dtype(losses.dtype).str,
            "sizes": losses.sizes,
            "lipschitz": losses.lipschitz(),
            "least_convexity": losses.least_convexity,
            "form": losses.form,
            "batches": losses.supports_batches,
            "hessians": losses.hessians(zero, np.arange(0)) is not None,
            "duals": isinstance(losses, LinearModel),
            "features": losses.feature_digests,
            "constants": [np.asarray(one, dtype=np.float64) for one in losses.constants()],
            "probe": losses.values(self._here(probe(losses.shape, losses.dtype)), self._all),
            "values": losses.values(zero, self._all),
        }

    def gather(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        """What a method asks of some clients once."""
        job = self._fitting(ask["job"])
        own = self._own(ask["clients"], job)
        # Without g and B, which sites are told once the rounds begin.
        shape = self.losses.shape
        model = Model(Zero().bind(shape), Identity(shape), shape, self.losses.dtype, self.losses.device)
        sent = job.task.gather(model, LocalLosses(self.losses, own, job.scaling, (), job.total))
        messages = job.task.messages(model)
        if not messages:
            return {"fields": list(sent._fields), "arrays": [to_host(array) for array in sent]}
        draws = Draws(job.seed, 0, job.numbers[own])
        frames, bits = {}, np.zeros((len(sent), len(own)), dtype=np.int64)
        for field, (name, array) in enumerate(zip(sent._fields, sent, strict=True)):
            compressor = messages[name][0]
            quantized = compressor.quantize(array, draws, Purpose.ONCE + field)
            frames[name], bits[field] = compressor.encode(quantized), compressor.nbits(quantized)
        return {"frames": frames, "bits": bits}

    def constants(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        """Lipschitz constants in the method's coordinates, or what mini-batches add to them."""
        factor = ask["factor"] if "factor" in ask else ask["coordinates"].factor
        if ask.get("batch_size") is not None:
            return {"constants": self.losses.batch_smoothness(int(ask["batch_size"]), factor)}
        if factor is None:
            raise MessageError("Lipschitz constants are asked for in other coordinates, and there are none")
        return {"constants": self.losses.lipschitz_in(factor)}

    def at(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        """f_i(x), ∇f_i(x) or both, as losses give them."""
        self.point = ask["x"]
        x, parts = self._here(ask["x"]), ask["parts"]
        given = {"values": self.losses.values, "gradients": self.losses.gradients}
        if not isinstance(parts, list) or not set(parts) <= set(given):
            raise MessageError(f"parts must be of {sorted(given)}")
        return {part: to_host(given[part](x, self._all)) for part in parts}

    def duals(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        """What a bound of F(x) − F* is computed from, summed over the site's clients."""
        from fpdfp.engines.remote_duals import answer

        if "x" in ask:
            self.point = ask["x"]
        if self.point is None or digest([self.point]) != ask["point"]:
            return {"needs": ["point"]}
        return answer(self.losses, self.point, ask)

    def answers(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        """What the clients certify of the gap."""
        wrong = self._agree(ask, self._all, forget=False)
        if wrong:
            return {"needs": ["memory"], "clients": wrong}
        question = named("Question", tuple(ask["fields"]))(*map(self._here, ask["arrays"]))
        job = self._job
        memory = self._memory(self._all)
        return {"answers": to_host(job.task.answer(self._local(self._all, memory), question))}

    def memory(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        """All that the clients remember, for a server that may know it."""
        wrong = self._agree(ask, self._all, forget=False)
        if wrong:
            return {"needs": ["memory"], "clients": wrong}
        memory = self._memory(self._all)
        return {"memory": {name: to_host(array) for name, array in memory._asdict().items()} if memory else {}}

    def update(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        """A round's work of some of the clients: their messages."""
        job, k = self._job, int(ask["round"])
        own = self._own(ask["clients"])
        wrong = self._agree(ask, own)
        message = self._receive(ask["message"])
        if wrong or message is None:
            return {"needs": ["memory"] * bool(wrong) + ["model"] * (message is None), "clients": wrong}
        draws = Draws(job.seed, k, job.numbers[own])
        update = job.task.client_update(self._local(own, self._memory(own)), message, k, draws)
        frames, bits, decoded = {}, np.zeros((len(update.reply), len(own)), dtype=np.int64), []
        for field, (name, arrays) in enumerate(zip(update.reply._fields, update.reply, strict=True)):
            compressor = job.compressors[name]
            try:
                quantized = compressor.quantize(arrays, draws, QUANTIZE + field)
            except FloatingPointError as error:
                return {"diverged": str(error)}
            frames[name], bits[field] = compressor.encode(quantized), compressor.nbits(quantized)
            decoded.append(shortened(compressor.dequantize(quantized).reshape(arrays.shape), job.norm_bound))
        sent = type(update.reply)(*decoded)
        for row, i in enumerate(own):
            self.ledgers[i].sent(_row(update.memory, row), _row(sent, row), k)
        return {"frames": frames, "bits": bits, "work": list(update.work)}

    def export(self) -> dict[str, Any]:
        """Return all that must outlive this process, but for the job: a tree for a parcel."""
        seen = None if self.seen is None else self.seen._asdict() | {"arrays": list(self.seen.arrays)}
        ledgers = [ledger.export() for ledger in self.ledgers]
        return {"key": self.key, "ledgers": ledgers, "seen": seen, "point": self.point}

    def restore(self, job: Job, saved: Mapping[str, Any]) -> None:
        """Go on with what another process has exported."""
        self.begin(job, saved["key"])
        for ledger, kept in zip(self.ledgers, saved["ledgers"], strict=True):
            ledger.restore(kept, self._here)
        self.point = saved.get("point")
        if saved["seen"] is not None:
            seen = saved["seen"]
            self.seen = Seen(tuple(map(self._here, seen["arrays"])), int(seen["position"]), str(seen["epoch"]))

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

    def _local(self, own: IntArray, memory: Any = ()) -> LocalLosses:
        return LocalLosses(self.losses, own, self._job.scaling, memory, self._job.total)

    def _own(self, clients: Any, job: Job | None = None) -> IntArray:
        """Return the places here of clients that the server names by their numbers."""
        known = (job or self._job).numbers
        numbers = np.asarray(clients, dtype=np.int64)
        places = np.searchsorted(known, numbers)
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

    def _agree(self, ask: Mapping[str, Any], own: IntArray, *, forget: bool = True) -> list[int]:
        """Compare what clients remember with the server's stamps, take its copies, and name those that disagree.

        What was sent and is not confirmed is forgotten only when a round is asked for: it may have been asked for along
        with something else, and be confirmed later.
        """
        wrong = []
        copies = ask.get("copies", {})
        for row, i in enumerate(own):
            ledger, number = self.ledgers[i], int(self._job.numbers[i])
            stamp = Stamp(int(ask["versions"][row]), bytes(ask["digests"][row]))
            if ledger.agrees(stamp, forget=forget):
                continue
            if str(number) not in copies:
                wrong.append(number)
                continue
            ledger.adopt(copies[str(number)], stamp)
        return wrong

    def _receive(self, ask: Mapping[str, Any]) -> Any:
        """Return the server's message, None if what its differences refer to is not here."""
        downlink = self.downlink
        kind = named("Message", tuple(ask["fields"]))
        if "whole" in ask:
            arrays = tuple(
                self._decoded(FULL, frame, shape) for frame, shape in zip(ask["whole"], ask["shapes"], strict=True)
            )
            self.seen = Seen(arrays, int(ask["to"]), str(ask["epoch"]))
            return kind(*arrays)
        if "zero" in ask and (self.seen is None or self.seen.epoch != ask["epoch"]):
            zeros = tuple(self.losses.xp.zeros(tuple(shape), dtype=self.losses.dtype) for shape in ask["zero"])
            self.seen = Seen(zeros, 0, str(ask["epoch"]))
        # A server that was restarted may have gone another way since.
        if self.seen is None or self.seen.epoch != ask["epoch"]:
            return None
        if self.seen.position == int(ask["to"]):
            return kind(*self.seen.arrays)
        if self.seen.position != int(ask["from"]) or downlink is None:
            return None
        arrays = self.seen.arrays
        for frames in ask["steps"]:
            arrays = tuple(
                there + downlink.share(there.shape) * self._decoded(downlink.compressor, frame, there.shape)
                for there, frame in zip(arrays, frames, strict=True)
            )
        self.seen = Seen(arrays, int(ask["to"]), self.seen.epoch)
        return kind(*arrays)

    def _decoded(self, compressor: Compressor, frame: bytes, shape: Any) -> Array:
        array: Array = compressor.decode([frame], tuple(shape), self.losses.dtype, self.losses.device)[0]
        return array


def shortened(arrays: Array, bound: float | None) -> Array:
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
