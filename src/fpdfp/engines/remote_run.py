"""A run whose clients are elsewhere."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.collector import Arrived, Check, Decoded, decode_update, join
from fpdfp.cohorts.plausible import Outliers
from fpdfp.cohorts.question import tuple_kind
from fpdfp.cohorts.remote import RemoteEngine
from fpdfp.cohorts.remote_losses import RemoteLosses
from fpdfp.cohorts.requests import Reply, Request
from fpdfp.cohorts.rounds import Certificate, Memory
from fpdfp.cohorts.session import Ask, among
from fpdfp.cohorts.site import shared_memory
from fpdfp.compress import Compressed, Compressor
from fpdfp.engines.run import Run, has_large_copies, put_back, take_rows
from fpdfp.errors import AbsentError, DivergenceError
from fpdfp.methods.base import Certifying, Question, Remembering
from fpdfp.quadratic.statement import Work
from fpdfp.traffic import NOTHING, Downlink, Kept, Traffic, is_zero

if TYPE_CHECKING:
    from fpdfp.engines.options import RunOptions
    from fpdfp.engines.prepare import Prepared


class FramedDownlink(Downlink):
    """The same for clients that are elsewhere: a difference is quantized once, and its frames are kept with it."""

    def __init__(self, compressor: Compressor) -> None:
        super().__init__(compressor)
        self._made: tuple[tuple[Any, ...], list[Compressed], list[bytes]] | None = None

    def compress(self, kept: Kept, message: Any, seed: int, k: int) -> list[Compressed]:
        return self._make(kept, message, seed, k)[0]

    def frames(self, kept: Kept, message: Any, seed: int, k: int) -> list[bytes]:
        """Return the messages that take clients from the model they keep to the one that ``send`` gives them."""
        return self._make(kept, message, seed, k)[1]

    def _make(self, kept: Kept, message: Any, seed: int, k: int) -> tuple[list[Compressed], list[bytes]]:
        of = (seed, k, *map(id, kept.message), *map(id, message))
        if self._made is None or self._made[0][: len(of)] != of:
            compressor, done, frames = self.compressor, [], list[bytes]()
            for one in self.differences(kept, message, seed, k):
                quantized = compressor.quantize(*one)
                done.append(Compressed(compressor.dequantize(quantized), compressor.nbits(quantized)))
                frames += compressor.encode(quantized)
            # With the arrays themselves, so that no others get their places in memory.
            self._made = (*of, kept.message, message), done, frames
        return self._made[1:]


class RemoteRun(Run):
    """A run whose clients are at the sites of an engine.

    ``memory`` is what the server knows of what clients remember, with the number of messages that it has confirmed to
    each (``version``): the fields that depend on decoded messages alone are always those of the clients; the others,
    where the server may know them at all, are those of the last checkpoint.
    """

    def __init__(self, engine: RemoteEngine, prepared: Prepared, options: RunOptions, start: Array) -> None:
        super().__init__(prepared, options, start)
        fields = (*getattr(self.memory, "_fields", ()), "version")
        versions = np.zeros(self.problem.n_clients, dtype=np.int64)
        self.memory = tuple_kind("Memory", fields)(*self.memory, versions)
        self.engine, self.collector = engine, engine.collector
        self.losses: RemoteLosses = self.problem.losses  # type: ignore[assignment]
        self.losses.answers.forget()
        self.outliers = Outliers(self.problem.scaling, self.losses.lipschitz())
        self.collector.upkeep = NOTHING
        if self.downlink is not None:
            self.downlink = FramedDownlink(self.downlink.compressor)
        # Not that of another run on the same sites; a run that is continued has its own.
        engine.run_id = secrets.token_hex(8)
        self.start()

    def start(self) -> None:
        """Tell the sites what is run."""
        downlink = None if self.downlink is None else self.downlink.compressor
        zero = self.kept is not None and is_zero(self.kept.message)
        self.engine.begin(self.problem, self.algorithm, self.compressors, downlink, self.seed, from_zero=zero)

    @property
    def _folder(self) -> Path | None:
        folder, file = super()._folder, self.options.file
        if folder is not None or not isinstance(self.algorithm, Remembering):
            return folder
        if not has_large_copies(self.algorithm, self.problem.n_clients):
            return None
        return Path(tempfile.gettempdir()) if file is None else file.parent

    @property
    def traffic(self) -> Traffic:
        return self.meter.traffic.plus("upkeep", *self.collector.upkeep)

    @contextlib.contextmanager
    def choosing_threads(self) -> Iterator[None]:
        """Choose nothing: sites compute, and choose for themselves."""
        yield

    def rehearse(self) -> None:
        """Do nothing: what sites do not need is not asked of them."""

    def listen(self, stopped: Callable[[], bool]) -> None:
        self.collector.stopped = stopped

    def sites(self) -> list[dict[str, Any]]:
        records = self.collector.records
        return [{"name": name} | dataclasses.asdict(records[i]) for i, name in enumerate(self.engine.names)]

    def labels(self) -> dict[str, str]:
        return super().labels() | {"run": self.engine.run_id}

    def resumed(self, labels: Mapping[str, str]) -> None:
        super().resumed(labels)
        self.engine.run_id = labels.get("run", self.engine.run_id)
        self.start()

    @contextlib.contextmanager
    def evaluating(self, *, last: bool) -> Any:
        """Within this, sites that do not answer are not waited for; a slow engine asks for what comes next as well."""
        with self.collector.hurry(), self.asking_ahead(last=last):
            yield

    def ending(self) -> contextlib.AbstractContextManager[None]:
        self.engine.drop_early()
        return self.collector.ending()

    @contextlib.contextmanager
    def asking_ahead(self, *, last: bool) -> Any:
        """Within this, a slow engine asks for what comes next as well."""
        session = self.engine.session
        if self.engine.slow and not last:
            chosen, message, _, _ = self._sent(self.round)
            session.coming = self._ask(self.round, self._that_answer(chosen, self.round), message)
        self.losses.together = last and self.options.tol is not None
        try:
            with super().asking_ahead(last=last):
                yield
        finally:
            session.coming = None  # replies that came along are kept for it
            self.losses.together = False

    def restore_memory(self, saved: Mapping[str, Array]) -> None:
        here = self.memory._asdict()
        known = {name: put_back(array, saved[name]) for name, array in here.items() if name in saved}
        self.memory = self.memory._replace(**known)

    def memory_to_save(self) -> dict[str, Array]:
        names = [name for name in self.memory._fields if name != "version"]
        if self.engine.trusted and set(names) - set(shared_memory(self.algorithm)):
            with self.collector.hurry(), contextlib.suppress(AbsentError):
                self.memory = self.memory._replace(**self._ask_memory(names))
        return dict(self.memory._asdict())

    def _ask_memory(self, names: list[str]) -> dict[str, Array]:
        """Return all that clients remember."""

        def check(site: int, reply: Reply) -> None:
            for name in names:
                found = reply.part("memory").memory.get(name)
                self.engine.check_rows(site, found, getattr(self.memory, name).shape[1:])

        replies = self._ask_everyone(lambda stamps: Request((Memory(**stamps),)), check)
        parts = [reply.part("memory").memory for reply in replies]
        self.collector.waste(parts)
        return {name: np.concatenate([part[name] for part in parts]) for name in names}

    def _ask_everyone(self, request: Callable[[dict[str, Any]], Request], check: Check) -> list[Reply]:
        """Ask all clients something, with the stamps of what they remember."""
        session = self.engine.session
        asked = {site: request(session.stamp(self.memory, site, own)) for site, own in enumerate(self.engine.numbers)}
        replies = self.collector.collect_all(asked, session, check)
        return [replies[site] for site in asked]

    def _ask(self, k: int, clients: IntArray, message: Any) -> Ask:
        """Return what is asked of the clients of round k."""
        step = None
        if isinstance(self.downlink, FramedDownlink) and self.kept is not None:
            step = self.downlink.frames(self.kept, self.algorithm.broadcast(self.state), self.seed, k)
        return Ask(k, clients, self.memory, message, step)

    def _exchanged(self, k: int, clients: IntArray, message: Any) -> tuple[IntArray, Any, Any, Work, int]:
        algorithm = self.algorithm
        clients, sent, bits, cost = self._collect_round(self._ask(k, clients, message))
        try:
            total = self._total(clients)
            total.add(sent)
            state = total.update(algorithm, self.state, k)
        except (ValueError, ArithmeticError) as error:
            # LAPACK and others refuse what is no longer finite.
            raise DivergenceError(f"the server's step failed: {error}") from error
        memory = take_rows(self.memory, clients)
        if isinstance(algorithm, Remembering):
            shared = {name: getattr(memory, name) for name in algorithm.shared_memory}
            memory = memory._replace(**algorithm.remember(algorithm.take_message(shared, message), sent, k))
        memory = memory._replace(version=memory.version + 1)
        return clients, state, memory, cost, bits

    def _collect_round(self, ask: Ask) -> Arrived:
        """Have the clients of a round do their work, and return what came back in time."""
        session, model = self.engine.session, self.problem.model
        session.keep_step(ask)
        early, session.early = session.early, None
        asked = {site: Request((update,)) for site, update in session.updates(ask).items()}
        shapes, dtype = self.algorithm.reply_shapes(), np.dtype(model.dtype)

        def decode(site: int, reply: Reply) -> Decoded:
            clients = among(ask.clients, self.engine.numbers[site])
            bound = self.engine.fixed_bound
            return decode_update(reply.part("update"), clients, shapes, self.compressors, dtype, model.device, bound)

        came = early.replies if early is not None and early.round == ask.round else None
        judge = self._judge if self.engine.norm_bound == "auto" else None
        replies = self.collector.collect_enough(asked, session, decode, came, f"round {ask.round + 1}", judge)
        self.outliers.accept(replies)
        return join(replies, model.xp)

    def _judge(self, replies: Mapping[int, Decoded]) -> dict[int, str]:
        return self.outliers.find(replies, self.memory)

    def _answers(self, algorithm: Certifying, question: Question) -> Array:
        frames = [message.message for message in question.messages]

        def check(site: int, reply: Reply) -> None:
            self.engine.check_rows(site, reply.part("answers").answers, (2,))

        with self.collector.hurry():
            replies = self._ask_everyone(lambda stamps: Request((Certificate(frames=frames, **stamps),)), check)
        answers: Array = np.concatenate([reply.part("answers").answers for reply in replies])
        self._count_answers(answers, question)
        total: Array = answers.sum(axis=0)
        return total
