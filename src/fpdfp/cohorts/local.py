"""Clients of a problem, and their part in a run; those in this process are asked in a dozen array calls."""

from __future__ import annotations

import abc
import contextlib
import contextvars
import functools
import math
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fpdfp._array import beside, namespace
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.cohorts.question import Cohort, Each, Question, Total
from fpdfp.cohorts.record import keep
from fpdfp.compress.plain import plain_bits
from fpdfp.errors import ArgumentError, DivergenceError
from fpdfp.methods.base import Algorithm, Certifying, Remembering, WeightedMeans
from fpdfp.methods.base import Question as Asked
from fpdfp.penalties.wrapped import Wrapped
from fpdfp.privacy.clients import ClientPrivacy
from fpdfp.problem import Problem
from fpdfp.quadratic.statement import Work
from fpdfp.rng import QUANTIZE, Draws, OwnDraws, Purpose
from fpdfp.traffic import NOTHING, Bits, count_exchange, full_bits

if TYPE_CHECKING:
    from fpdfp._kernels.jit import Watch
    from fpdfp.engines.run import Run

#: A round is computed for about this many numbers of replies at a time, if a client sends at least this many: arrays
#: stay in the processor's caches, and every thread has a batch.
BATCH, LONG = 1 << 20, 1 << 12
#: Arrays of what clients remember of more bytes than this are kept in a file, where there is a folder for it.
SPILLED = 1 << 26
#: The server's copies of what clients elsewhere remember are kept in a file regardless if they have more bytes.
SPILLED_COPIES = 1 << 28

T = TypeVar("T")


class Clients(Cohort):
    """The clients of a problem.

    Parameters
    ----------
    problem
        The problem, whose weights count in what is asked.
    """

    #: Answers are added up as they come, about this many numbers at a time.
    at_once: int

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @abc.abstractmethod
    def _send(self, question: Question, clients: IntArray, seed: int, *, each: bool = False) -> tuple[Any, int]:
        """Return what some clients answer, as the server decodes it, with a leading client axis; and its bits.

        ``each`` says that answers are to be seen one by one.
        """

    def ask(
        self, question: Question, clients: IntArray | None = None, *, seed: int = 0, times: Array | None = None
    ) -> Total:
        """Return the sums of what clients answer.

        Parameters
        ----------
        question, clients
            What is asked, and of whom.
        seed
            From which clients are drawn, and with which their answers are rounded.
        times
            How often each client counts, a row for each, at each of the question's points; None for once everywhere.
        """
        if clients is None:
            clients = question.draw_clients(self.problem.n_clients, seed)
        sums, up = keep(question, lambda: self._add_up(question, clients, seed, times))
        return Total(sums, len(clients), up, len(clients) * question.sent_bits)

    def _add_up(self, question: Question, clients: IntArray, seed: int, times: Array | None) -> tuple[Any, int]:
        """Return the sums of what some clients answer, and the bits of all answers."""
        count_exchange(question.name)
        sums, up, length = None, 0, len(clients)
        if question.in_parts:
            length = max(1, self.at_once // question.count_numbers(self.problem.model.shape))
        for first in range(0, len(clients), length):
            some = clients[first : first + length]
            sent, bits = self._send(question, some, seed)
            part = question.add_up(sent, np.arange(first, first + len(some)), times)
            sums = part if sums is None else type(part)(*map(np.add, sums, part))
            up += bits
        return sums, up

    @abc.abstractmethod
    def take_part(self, run: Run) -> Participants:
        """Return the clients' part in a run."""

    def ask_each(self, question: Question) -> Each:
        clients = np.arange(self.problem.n_clients)

        def send() -> tuple[Any, int]:
            count_exchange(question.name)
            return self._send(question, clients, 0, each=True)

        sent, up = keep(question, send)
        rows = [type(sent)(*(array[i] for array in sent)) for i in range(len(clients))]
        return Each(rows, up, len(clients) * question.sent_bits)


class LocalClients(Clients):
    """Clients in this process: the question is asked of all at once, and nothing is serialised."""

    at_once = 1 << 22

    @property
    def names(self) -> Sequence[str]:
        return [f"client {number}" for number in range(self.problem.n_clients)]

    def _send(self, question: Question, clients: IntArray, seed: int, *, each: bool = False) -> tuple[Any, int]:
        sent = question.answer(self.problem.local(clients))
        messages = question.messages(self.problem.model.shape)
        if not messages:
            return sent, sum(plain_bits(array.shape[1:], array.dtype) * len(array) for array in sent)
        draws = Draws(seed, 0, clients)
        done = [
            messages[name][0].compress(array, draws, Purpose.ONCE + field)
            for field, (name, array) in enumerate(zip(sent._fields, sent, strict=True))
        ]
        return type(sent)(*(one.values for one in done)), sum(int(one.bits.sum()) for one in done)

    def take_part(self, run: Run) -> Participants:
        return LocalParticipants(run)


def clients_of(problem: Problem) -> Clients:
    """Return the clients of a problem, wherever they are."""
    engine: Any = getattr(problem.losses, "engine", None)
    found: Clients = LocalClients(problem) if engine is None else engine.clients(problem)
    return found


class Participants(abc.ABC):
    """The clients' part in a run: what they remember, a round's work, what they certify.

    Parameters
    ----------
    run
        The run.

    Attributes
    ----------
    memory
        What clients keep between rounds, as far as it is known here: a named tuple of arrays with a leading client
        axis, empty for most methods.
    upkeep
        The bits of what was sent again, or in vain.
    """

    memory: Any
    upkeep: Bits = NOTHING
    #: Whether a round may be done and forgotten, before the first one.
    rehearses: bool = True

    def __init__(self, run: Run) -> None:
        self.run = run

    @abc.abstractmethod
    def work(self, k: int, clients: IntArray, message: Any) -> tuple[IntArray, Any, Any, Work, int]:
        """Return who has answered, the state after that, what they remember then, what it cost them, and its bits."""

    @abc.abstractmethod
    def certify(self, algorithm: Certifying, question: Asked) -> Array:
        """Return the sum of what all clients answer to the question of a certificate, and count its bits."""

    @abc.abstractmethod
    def remember(self, clients: IntArray, memory: Any) -> None:
        """Have some clients remember something from now on; doing it twice changes nothing."""

    @abc.abstractmethod
    def restore_memory(self, saved: Mapping[str, Array]) -> None:
        """Have clients remember what a checkpoint has; what another cohort has added to it is not needed here."""

    def memory_to_save(self) -> dict[str, Array]:
        """Return what clients remember, for a checkpoint."""
        return dict(self.memory._asdict()) if self.memory else {}

    def total(self, clients: IntArray) -> RunningMean:
        """Return what adds up the replies of some clients."""
        run = self.run
        return RunningMean(run.algorithm.double, None if run.sampling is None else run.sampling.weights[clients])

    def count_answers(self, answers: Array, question: Asked) -> None:
        """Count a question to some clients, and their answers."""
        self.run.meter.count("certificate", len(answers) * full_bits(answers[0]), len(answers) * question.bits)

    @property
    def folder(self) -> Path | None:
        """The folder for large arrays of clients' memory; None for main memory."""
        given = self.run.options.scratch
        return None if given is None else Path(given)

    @contextlib.contextmanager
    def choosing_threads(self, rehearse: Callable[[], None]) -> Iterator[None]:
        """Within this, what computes here chooses its threads."""
        yield

    def note(self, seconds: float) -> None:  # noqa: B027 - for those who compute here
        """Record the time of a round."""

    def evaluating(self, *, last: bool) -> contextlib.AbstractContextManager[None]:
        """Return a context for evaluations between rounds, or after the last one."""
        return self.asking_ahead(last=last)

    def ending(self) -> contextlib.AbstractContextManager[None]:
        """Return a context for what is asked when the rounds are over."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def asking_ahead(self, *, last: bool) -> Iterator[None]:
        """Within this, an engine may ask clients for more than is wanted yet; ``last``: for gradients with values."""
        self.run.meter.together = last and self.run.options.tol is not None
        try:
            yield
        finally:
            self.run.meter.together = False

    def listen(self, stopped: Callable[[], bool]) -> None:  # noqa: B027 - for those who wait
        """Take the function that reports whether the user wants to stop."""

    def sites(self) -> list[dict[str, Any]]:
        """Return what became of the exchanges with each site; nothing where clients are in this process."""
        return []

    def labels(self) -> dict[str, str]:
        """Return these clients' part of a checkpoint."""
        return {}

    def resume(self, labels: Mapping[str, str]) -> None:  # noqa: B027 - most are known by nothing
        """Take note of what a checkpoint says about these clients."""


class LocalParticipants(Participants):
    """Clients in this process: all of a round in a dozen array calls."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        #: What shortens replies and adds noise to their mean, None for nothing.
        self.privacy: ClientPrivacy | None = run.options.privacy
        if self.privacy is not None and (isinstance(run.algorithm, Remembering) or run.algorithm.factor is not None):
            raise ArgumentError(
                "privacy", "must be None for methods whose clients remember something, or with a preconditioner: both "
                "depend on what clients have sent without noise",
            )  # fmt: skip
        self.memory = ()
        if isinstance(run.algorithm, Remembering):
            self.memory = allocate_memory(run.algorithm, run.problem.n_clients, self.folder)
        #: Room for what all clients remember after a round.
        self._spare: Any = None
        #: Told what rounds take, where threads were chosen.
        self._watch: Watch | None = None

    def work(self, k: int, clients: IntArray, message: Any) -> tuple[IntArray, Any, Any, Work, int]:
        run, total = self.run, self.total(clients)
        # All at once or some at a time, which changes nothing but time and memory.
        batches = divide(clients, self._longest)
        if len(batches) == 1:
            sent, memory, work, bits = self._answer(k, clients, message)
            total.add(sent)
            return clients, total.update(run.algorithm, run.state, k), memory, work, bits
        work, bits, after = Work(), 0, self._room(len(clients))

        def answer(own: IntArray) -> tuple[Any, Work, int]:
            sent, memory, cost, sent_bits = self._answer(k, own, message)
            if after:
                first = int(np.searchsorted(clients, own[0]))
                for rows, new in zip(after, memory, strict=True):
                    rows[first : first + len(own)] = new
            return sent, cost, sent_bits

        for sent, cost, sent_bits in work_through(batches, answer, self._threads(len(batches))):
            total.add(sent)
            work, bits = work + cost, bits + sent_bits
        return clients, total.update(run.algorithm, run.state, k), after, work, bits

    def _answer(self, k: int, clients: IntArray, message: Any) -> tuple[Any, Any, Work, int]:
        """Return the replies of some clients as they are decoded, their memory after that, their work, and the bits."""
        run, algorithm = self.run, self.run.algorithm
        draws = OwnDraws(run.seed, k, clients)
        local = run.problem.local(clients, take_rows(self.memory, clients))
        reply, memory, work = algorithm.client_update(local, message, k, draws)
        sent, bits = self._transmit(reply, draws)
        if memory and isinstance(algorithm, Remembering):
            memory = algorithm.confirm(memory, sent, k)
        return sent, memory, work, bits

    @functools.cached_property
    def _longest(self) -> int:
        """The number of numbers that the longest part of a reply has; 0 where a GPU has all at once."""
        if self.run.problem.losses.xp is not np:
            return 0
        return max(map(math.prod, self.run.algorithm.reply_shapes().values()))

    def _threads(self, batches: int) -> int:
        """Return how many batches to work on at once; with one thread kernels use as many as they may."""
        if batches < 2:
            return 1
        problem = self.run.problem
        used = (problem.penalty, *self.run.compressors.values())
        ours = all(type(one).__module__.startswith("fpdfp.") and not isinstance(one, Wrapped) for one in used)
        # What others have written may keep something between calls.
        if not (problem.losses.concurrent and problem.linop.is_identity and ours):
            return 1
        from fpdfp._kernels.jit import count_threads

        return min(batches, count_threads())

    def _room(self, count: int) -> Any:
        """Return room for what the clients of a round remember after it."""
        if not self.memory:
            return ()
        if count < self.run.problem.n_clients:
            return empty_memory(self.memory, count, self.folder)
        if self._spare is None:
            self._spare = empty_memory(self.memory, count, self.folder)
        return self._spare

    def _transmit(self, reply: Any, draws: Draws) -> tuple[Any, int]:
        """Return replies as the server decodes them, and their bits."""
        decoded, total = [], 0
        for field, (name, arrays) in enumerate(zip(reply._fields, reply, strict=True)):
            try:
                values, bits = self.run.compressors[name].compress(arrays, draws, QUANTIZE + field)
            except FloatingPointError as error:
                raise DivergenceError(str(error)) from error
            decoded.append(values)
            total += int(np.add.reduce(bits))
        sent = type(reply)(*decoded)
        return sent if self.privacy is None else self.privacy.shorten(sent), total

    def total(self, clients: IntArray) -> RunningMean:
        total = super().total(clients)
        if self.privacy is not None:
            privacy, seed = self.privacy, self.run.seed
            total.perturb = lambda mean, count, k: privacy.perturb(mean, count, seed, k)
        return total

    def certify(self, algorithm: Certifying, question: Asked) -> Array:
        total: Array = np.zeros(2)
        for clients in self.run.problem.losses.chunks():
            local = self.run.problem.local(clients, take_rows(self.memory, clients))
            answers = algorithm.answer(local, question.arrays)
            self.count_answers(answers, question)
            total += answers.sum(axis=0)
        return total

    def remember(self, clients: IntArray, memory: Any) -> None:
        if memory is self._spare and memory:
            before, self.memory = self.memory, memory
            self._spare = before if before is not memory else None
        else:
            for kept, new in zip(self.memory, memory, strict=True):
                kept[clients] = new

    def restore_memory(self, saved: Mapping[str, Array]) -> None:
        if self.memory:
            here = {name: put_back(array, saved[name]) for name, array in self.memory._asdict().items()}
            self.memory = restore(self.memory, here)

    @contextlib.contextmanager
    def choosing_threads(self, rehearse: Callable[[], None]) -> Iterator[None]:
        """Within this, kernels use one thread or all, by a trial of the next round and by how long rounds take."""
        from fpdfp._kernels.jit import fastest

        losses, count = self.run.problem.losses, self.run.clients_per_round
        if losses.xp is not np:
            yield
            return
        batch = getattr(self.run.method, "batch_size", None)
        rows = np.minimum(losses.sizes[:count], batch or np.inf).sum()
        with fastest(rehearse, int(rows) * math.prod(losses.shape)) as self._watch:
            yield

    def note(self, seconds: float) -> None:
        if self._watch is not None:
            self._watch.note(seconds)


def restore(fresh: Any, saved: Mapping[str, Array]) -> Any:
    """Return saved arrays in a named tuple like a fresh one, each in the memory that the fresh one's is in."""
    return type(fresh)(**{name: namespace(getattr(fresh, name)).asarray(array) for name, array in saved.items()})


def divide(clients: IntArray, numbers: int) -> list[IntArray]:
    """Return the clients of a round in batches that are not too much, if each sends a given number of numbers.

    >>> [len(batch) for batch in divide(np.arange(25), 100_000)]
    [10, 10, 5]
    """
    if numbers < LONG or len(clients) * numbers <= BATCH:
        return [clients]
    length = max(1, BATCH // numbers)
    return [clients[first : first + length] for first in range(0, len(clients), length)]


class RunningMean:
    """The mean of replies that come in batches: to the last bit the mean of all of them, added in order.

    With ``weights``, one for each client in the order in which replies are added, there is also their weighted mean.
    """

    def __init__(self, double: tuple[str, ...], weights: Array | None = None) -> None:
        self.double, self.count, self.weights = double, 0, weights
        self._weighted = None if weights is None else RunningMean(double)
        self._sums: list[Array] = []
        #: Adds noise to the mean of a number of replies in a round, where it is to have some.
        self.perturb: Callable[[Any, int, int], Any] | None = None
        self._kind: Any = tuple

    def add(self, sent: Any) -> None:
        """Add the replies of some clients."""
        if self.weights is not None and self._weighted is not None:
            self._weighted.add(self._weigh(sent, self.weights[self.count : self.count + len(sent[0])]))
        if not self.count:
            self._kind = type(sent)
            for name, replies in zip(sent._fields, sent, strict=True):
                self._sums.append(replies.sum(0, np.float64 if name in self.double else None))
        else:
            for total, replies in zip(self._sums, sent, strict=True):
                for row in replies:
                    np.add(total, row, out=total)
        self.count += len(sent[0])

    def _weigh(self, sent: Any, weights: Array) -> Any:
        """Return each reply times its weight, in the precision of its mean."""
        weighed = []
        for name, replies in zip(sent._fields, sent, strict=True):
            dtype = np.float64 if name in self.double else replies.dtype
            factors = weights.astype(dtype).reshape(-1, *[1] * (replies.ndim - 1))
            weighed.append(replies * beside(factors, replies))
        return type(sent)(*weighed)

    def mean(self) -> Any:
        """Return the mean of each field."""
        return self._kind(*[total / self.count for total in self._sums])

    def update(self, algorithm: Algorithm, state: Any, k: int) -> Any:
        """Return the server's state after round k with these replies."""
        if self.weights is None or self._weighted is None:
            mean = self.mean() if self.perturb is None else self.perturb(self.mean(), self.count, k)
            return algorithm.server_update(state, mean, k, self.count)
        means = WeightedMeans(self._weighted.mean(), self.mean(), float(self.weights.mean()))
        return algorithm.weighted_update(state, means, k, self.count)


def work_through(batches: Iterable[IntArray], work: Callable[[IntArray], T], threads: int) -> Iterator[T]:
    """Return the results of ``work`` for each batch, in order, with some threads; kernels use one thread each."""
    return map(work, batches) if threads == 1 else _with_threads(batches, work, threads)


def _with_threads(batches: Iterable[IntArray], work: Callable[[IntArray], T], threads: int) -> Iterator[T]:
    from fpdfp._kernels.jit import use

    def alone(batch: IntArray) -> T:
        use.one_thread = True  # of this thread
        return work(batch)

    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[T]] = deque()
        for batch in batches:
            waiting.append(pool.submit(contextvars.copy_context().run, alone, batch))
            if len(waiting) > threads + 1:  # no more than that is kept at a time
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def allocate_memory(algorithm: Remembering, n_clients: int, folder: Path | None) -> Any:
    """Return what clients remember before the first round; in files in ``folder`` where arrays are large.

    Neither takes room before it is written to: what clients remember that have not taken part costs nothing.
    """
    one = algorithm.init_memory(1)
    if folder is None or all(memory_size(array, n_clients) <= SPILLED for array in one):
        try:
            return algorithm.init_memory(n_clients)
        except MemoryError:
            total = sum(memory_size(array, n_clients) for array in one)
            raise ArgumentError(
                "scratch",
                f"must be a folder with room for {total / 1e9:.3g} GB, what clients remember, which is more than this "
                "machine has of memory; stateless=True is for clients that remember nothing",
            ) from None
    return type(one)(*(_repeat(array, n_clients, folder) for array in one))


def memory_size(one: Array, n_clients: int) -> int:
    """Return the bytes of the arrays of that many clients, each like the given one."""
    return int(one.nbytes) * n_clients


def has_large_copies(algorithm: Remembering, n_clients: int) -> bool:
    """Whether a server's copies of what clients remember are kept in a file regardless."""
    return sum(memory_size(array, n_clients) for array in algorithm.init_memory(1)) > SPILLED_COPIES


def empty_memory(memory: Any, count: int, folder: Path | None) -> Any:
    """Return room for what ``count`` clients remember."""
    return type(memory)(*(_empty((count, *array.shape[1:]), array.dtype, folder) for array in memory))


def _repeat(one: Array, n_clients: int, folder: Path) -> Array:
    """Return an array with the same for each of n clients."""
    if namespace(one) is not np or memory_size(one, n_clients) <= SPILLED:
        repeated: Array = namespace(one).repeat(one, n_clients, axis=0)
        return repeated
    array = _empty((n_clients, *one.shape[1:]), one.dtype, folder)
    if one.any():  # a new file holds zeros
        array[:] = one
    return array


def _empty(shape: Shape, dtype: Any, folder: Path | None) -> Array:
    """Return an array in memory, or, if it is large and there is a folder, in a file that goes with it."""
    if folder is None or math.prod(shape) * np.dtype(dtype).itemsize <= SPILLED:
        return np.empty(shape, dtype=dtype)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(prefix=".fpdfp-memory-", dir=folder) as file:
            # A view without the methods of memory maps, so that rows of it are plain arrays. The map keeps the file.
            return np.memmap(file, dtype=dtype, mode="w+", shape=shape).view(np.ndarray)
    except OSError as error:
        raise ArgumentError("scratch", f"must be a folder that can be written to, got {folder}: {error}") from None


def put_back(here: Array, saved: Array) -> Array:
    """Return saved rows: in the file of an array that is in one, else unchanged."""
    if not is_spilled(here):
        return saved
    here[:] = saved
    return here


def is_spilled(array: Array) -> bool:
    """Whether an array is in a file."""
    return isinstance(getattr(array, "base", None), np.memmap)


def take_rows(memory: Any, clients: IntArray) -> Any:
    """Return what some clients remember, in ascending order: without a copy where they follow each other."""
    if not memory:
        return ()
    if len(clients) and clients[-1] - clients[0] + 1 == len(clients):
        rows = slice(int(clients[0]), int(clients[-1]) + 1)
        return type(memory)(*(array[rows] for array in memory))
    return type(memory)(*(array[clients] for array in memory))
