"""A run whose clients are elsewhere."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.engines.crew import Ask, Crew
from fpdfp.engines.downlink import is_zero
from fpdfp.engines.ledger import shared_memory
from fpdfp.engines.local import DivergenceError, Run, mean_of
from fpdfp.engines.traffic import NOTHING, Traffic
from fpdfp.engines.tuples import named
from fpdfp.errors import AbsentError
from fpdfp.methods.base import Certifying, Remembering, Work

if TYPE_CHECKING:
    from fpdfp.engines.options import RunOptions
    from fpdfp.engines.prepare import Prepared


class RemoteRun(Run):
    """A run whose clients are at the sites of a crew.

    ``memory`` is what the server knows of what clients remember, with the number of messages that it has confirmed to
    each (``version``): the fields that depend on decoded messages alone are always those of the clients; the others,
    where the server may know them at all, are those of the last checkpoint.
    """

    def __init__(self, crew: Crew, prepared: Prepared, options: RunOptions, start: Array) -> None:
        super().__init__(prepared, options, start)
        fields = (*getattr(self.memory, "_fields", ()), "version")
        versions = np.zeros(self.problem.n_clients, dtype=np.int64)
        self.memory = named("Memory", fields)(*self.memory, versions)
        self.crew = crew
        crew.upkeep = NOTHING
        self.problem.losses.answers.forget()  # type: ignore[attr-defined]
        # Not that of another run on the same sites; a run that is continued has its own.
        crew.run_id = secrets.token_hex(8)
        self.start()

    def start(self) -> None:
        """Tell the sites what is run."""
        downlink = None if self.downlink is None else self.downlink.compressor
        zero = self.kept is not None and is_zero(self.kept.message)
        self.crew.begin(self.problem, self.algorithm, self.compressors, downlink, self.seed, zero)

    @property
    def traffic(self) -> Traffic:
        return self.meter.traffic.plus("upkeep", *self.crew.upkeep)

    def rehearse(self) -> None:
        """Do nothing: what sites do not need is not asked of them."""

    @property
    def asks_freely(self) -> bool:
        return not self.crew.slow

    def listen(self, stopped: Callable[[], bool]) -> None:
        self.crew.stopped = stopped

    def labels(self) -> dict[str, str]:
        return super().labels() | {"run": self.crew.run_id}

    def resumed(self, labels: Mapping[str, str]) -> None:
        super().resumed(labels)
        self.crew.run_id = labels.get("run", self.crew.run_id)
        self.start()

    @contextlib.contextmanager
    def evaluating(self, *, last: bool) -> Any:
        """Within this, sites that do not answer are not waited for; a slow engine asks for what comes next as well."""
        with self.crew.hurry(), self.asking_ahead(last=last):
            yield

    def ending(self) -> contextlib.AbstractContextManager[None]:
        self.crew.drop_early()
        return self.crew.ending()

    @contextlib.contextmanager
    def asking_ahead(self, *, last: bool) -> Any:
        """Within this, a slow engine asks for what comes next as well."""
        if self.crew.slow and not last:
            chosen, message, _, _ = self._sent(self.round)
            self.crew.expect(self._ask(self.round, self._that_answer(chosen, self.round), message))
        self.crew.finishing = last
        try:
            with super().asking_ahead(last=last):
                yield
        finally:
            self.crew.forget_next()
            self.crew.finishing = False

    def restore_memory(self, saved: Mapping[str, Array]) -> None:
        here = self.memory._asdict()
        self.memory = self.memory._replace(**{name: saved.get(name, array) for name, array in here.items()})

    def memory_to_save(self) -> dict[str, Array]:
        names = [name for name in self.memory._fields if name != "version"]
        if self.crew.trusted and set(names) - set(shared_memory(self.algorithm)):
            with self.crew.hurry(), contextlib.suppress(AbsentError):
                self.memory = self.memory._replace(**self.crew.remembered(self.memory))
        return dict(self.memory._asdict())

    def _ask(self, k: int, clients: IntArray, message: Any) -> Ask:
        """Return what is asked of the clients of round k."""
        step = None
        if self.downlink is not None:
            assert self.kept is not None
            wanted = self.algorithm.broadcast(self.state)
            step = self.downlink.frames(self.kept, wanted, self.seed, k)
        return Ask(k, clients, self.memory, message, step)

    def _exchanged(self, k: int, clients: IntArray, message: Any, memory: Any) -> tuple[IntArray, Any, Any, Work, int]:
        algorithm = self.algorithm
        clients, sent, bits, cost = self.crew.update(self._ask(k, clients, message))
        try:
            state = algorithm.server_update(self.state, mean_of(sent, algorithm.double), k, len(clients))
        except (ValueError, ArithmeticError) as error:
            # LAPACK and others refuse what is no longer finite.
            raise DivergenceError(f"the server's step failed: {error}") from error
        memory = self._memory_of(clients)
        if isinstance(algorithm, Remembering):
            shared = {name: getattr(memory, name) for name in algorithm.shared_memory}
            memory = memory._replace(**algorithm.remember(shared, sent, k))
        memory = memory._replace(version=memory.version + 1)
        return clients, state, memory, cost, bits

    def _answers(self, algorithm: Certifying, question: Any) -> Array:
        with self.crew.hurry():
            answers: Array = self.crew.answers(question, self.memory)
        self._count_answers(answers, question)
        total: Array = answers.sum(axis=0)
        return total
