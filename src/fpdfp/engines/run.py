"""The in-process engine: all clients of a round in a dozen array calls."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from fpdfp._array import beside, namespace, read_only
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.compress import Full
from fpdfp.engines.result import History
from fpdfp.errors import ArgumentError, DivergenceError
from fpdfp.methods.base import Algorithm, Certifying, Question, Remembering, TracksObjective, WeightedMeans
from fpdfp.penalties.wrapped import Wrapped
from fpdfp.problem import TINY, Certificate
from fpdfp.quadratic.statement import Work
from fpdfp.rng import QUANTIZE, Draws, OwnDraws, Purpose, choose_clients
from fpdfp.traffic import Bits, Kept, Traffic, full_bits

if TYPE_CHECKING:
    from fpdfp._kernels.jit import Watch
    from fpdfp.engines.options import RunOptions
    from fpdfp.engines.prepare import Prepared

#: A round is computed for about so many numbers of replies at a time, if a client sends at least so many: arrays stay
#: in the processor's caches, and every thread has a batch.
BATCH, LONG = 1 << 20, 1 << 12
#: Arrays of what clients remember of more bytes than this are kept in a file, where there is a folder for it.
SPILLED = 1 << 26
#: The server's copies of what clients elsewhere remember are kept in a file in any case if they have more bytes.
SPILLED_COPIES = 1 << 28

T = TypeVar("T")


class _Round(NamedTuple):
    """A round that is done: whose replies arrived, who was written to, what they remember, and the run after it."""

    clients: IntArray
    chosen: IntArray
    memory: Any
    state: Any
    work: Work
    round: int
    bits: Bits
    seconds: float
    kept: Kept | None


class Certified(NamedTuple):
    """What clients have certified: a bound of F(x) − F*, F(x), what that is compared with, and x as it was sent."""

    gap: float
    objective: float
    scale: float
    x: Array

    def refine(self, certificate: Certificate) -> Certificate:
        """Return a certificate of this x, or of one made from it, with this bound where it is the smaller one."""
        gap = self.gap + max(certificate.objective - self.objective, 0.0)
        if certificate.gap is not None and certificate.gap <= gap:
            return certificate
        return certificate._replace(gap=gap)


class Run:
    """A run under way, as callbacks see it.

    Attributes
    ----------
    problem, method, options
        What is run.
    algorithm
        What the method was prepared to: its step, λ and all else are chosen.
    compressors, clients_per_round, seed
        What replies go through, n, and the seed.
    sampling
        Who takes part, where clients are drawn with unequal probabilities: a :class:`fpdfp.sampling.Sampling`.
    round
        Rounds done.
    state
        The method's state, a named tuple of arrays.
    memory
        What clients keep between rounds, a named tuple of arrays with a leading client axis; empty for most methods.
    work
        What inner solves have cost the clients so far.
    traffic
        All bits that were sent so far, by kind: a :class:`fpdfp.traffic.Traffic`.
    bits_up, bits_down
        Those of the rounds.
    kept
        What both sides know of the server's messages, where those are compressed.
    seconds
        Time spent in rounds.
    history
        The table so far.

    Where a run is restricted to some features, callbacks see the problem that was given, and x and v with all features.
    """

    def __init__(self, prepared: Prepared, options: RunOptions, start: Array) -> None:
        self.problem, choices, _, self.algorithm, self.meter, self.sampling = prepared
        self.prepared, self.options = prepared, options
        self.method, self.compressors, self.downlink, self.clients_per_round = choices
        self.seed, self.drop_out = options.seed, options.drop_out
        self.state = self.algorithm.init(start)
        self.memory: Any = ()
        if isinstance(self.algorithm, Remembering):
            self.memory = allocate_memory(self.algorithm, self.problem.n_clients, self._folder)
        #: Room for what all clients remember after a round.
        self._spare: Any = None
        self.kept: Kept | None = None
        if self.downlink is not None:
            self.kept = self.downlink.start(self.algorithm.broadcast(self.state), self.problem.n_clients)
        self.work = Work()
        self.round = 0
        self.seconds = 0.0
        self.history = History()
        #: The objective at the start, or where the gap was looked at last; evaluations have no part in it.
        self.level = math.inf
        self.stop_reason: str | None = None
        #: How the run has ended, where it has reached its tolerance or can get no further, for a checkpoint.
        self.ended = ""
        #: When to look next whether the tolerance is reached, and what the server has kept of x, for a checkpoint.
        self.schedule, self.known = "", ""
        #: The round after which this run began: not 0 where it continues another one with other features.
        self.first_round = 0
        #: What inner solves have cost the server before that.
        self.spent = Work()
        #: Whether the run does not go on from a checkpoint: what is asked when it begins is then counted.
        self.is_fresh = True
        self._pending: _Round | None = None
        #: Told what rounds take, where threads were chosen.
        self._watch: Watch | None = None

    @property
    def traffic(self) -> Traffic:
        """All that was sent so far."""
        return self.meter.traffic

    @property
    def bits_up(self) -> int:
        """What clients have sent in the rounds."""
        return self.meter.rounds.up

    @property
    def bits_down(self) -> int:
        """What the server has sent in the rounds."""
        return self.meter.rounds.down

    @property
    def server_work(self) -> Work:
        """What inner solves have cost the server so far."""
        return self.spent + self.algorithm.server_work(self.state)

    @property
    def x(self) -> Array:
        """The current x, not to be written to."""
        return read_only(self.algorithm.solution(self.state)[0])

    @property
    def v(self) -> Array | None:
        """The current dual, None where the method keeps none."""
        return self.algorithm.solution(self.state)[1]

    @property
    def compression(self) -> tuple[str, str]:
        """What messages go through, up and down, in words."""
        different = {repr(one) for one in self.compressors.values()}
        up = different.pop() if len(different) == 1 else ", ".join(f"{k}: {v!r}" for k, v in self.compressors.items())
        return up, repr(Full() if self.downlink is None else self.downlink.compressor)

    def stop(self, reason: str = "a callback asked for it") -> None:
        """End the run after this round."""
        self.stop_reason = reason

    def advance(self) -> None:
        """Do one round; raise DivergenceError, and leave everything as it was, if it gives no numbers."""
        before = self.seconds
        self._pending = self._round(self.round)
        self.commit()
        if self._watch is not None:
            self._watch.note(self.seconds - before)

    def commit(self) -> None:
        """Make a round that is done count; if Ctrl-C cut that short, doing it again makes it whole."""
        done = self._pending
        if done is None:
            return
        if done.memory is self._spare and done.memory:
            before, self.memory = self.memory, done.memory
            self._spare = before if before is not done.memory else None
        else:
            for kept, new in zip(self.memory, done.memory, strict=True):
                kept[done.clients] = new
        if done.kept is not None:
            done.kept.seen[done.chosen] = done.kept.sent
        _, _, _, self.state, self.work, self.round, bits, self.seconds, self.kept = done
        self.meter.rounds = bits
        self._pending = None

    @contextlib.contextmanager
    def choosing_threads(self) -> Iterator[None]:
        """Within this, kernels use one thread or all, by a trial of the next round and by how long rounds take."""
        from fpdfp._kernels.jit import fastest

        losses, count = self.problem.losses, self.clients_per_round
        if losses.xp is not np:
            yield
            return
        batch = getattr(self.method, "batch_size", None)
        rows = np.minimum(losses.sizes[:count], batch or np.inf).sum()
        with fastest(self.rehearse, int(rows) * math.prod(losses.shape)) as self._watch:
            yield

    def rehearse(self) -> None:
        """Do the next round and forget it."""
        # What goes wrong here goes wrong again in the round itself, and is dealt with there.
        with contextlib.suppress(DivergenceError):
            self._round(self.round)

    def _round(self, k: int) -> _Round:
        """Do round k, and change nothing."""
        from fpdfp._kernels.jit import working_time

        started = working_time()
        chosen, message, kept, bits_down = self._sent(k)
        clients = self._that_answer(chosen, k)
        state, work, bits_up = self.state, self.work, 0
        if not len(clients):
            memory = take_rows(self.memory, clients)
        else:
            clients, state, memory, cost, bits_up = self._exchanged(k, clients, message)
            work = work + cost
            x = self.algorithm.solution(state)[0]
            if not math.isfinite(float(np.vdot(x, x))):
                raise DivergenceError("the iterate is no longer finite")
        # Absolute values, so that a commit that was cut short can be done once more.
        return _Round(
            clients, chosen, memory, state, work, k + 1, Bits(self.bits_up + bits_up, self.bits_down + bits_down),
            self.seconds + working_time() - started, kept,
        )  # fmt: skip

    def _sent(self, k: int) -> tuple[IntArray, Any, Kept | None, int]:
        """Return who takes part in round k, the message as they get it, what is kept of it, and its bits."""
        chosen = self._choose(k)
        message = self.algorithm.broadcast(self.state)
        if self.downlink is None:
            return chosen, message, None, len(chosen) * sum([full_bits(array) for array in message if array.size])
        assert self.kept is not None
        return chosen, *self.downlink.send(self.kept, message, chosen, self.seed, k)

    def _choose(self, k: int) -> IntArray:
        """Return who is to take part in round k."""
        if self.sampling is not None:
            return self.sampling.draw(self.seed, k)
        return choose_clients(self.seed, k, self.problem.n_clients, self.clients_per_round)

    def _total(self, clients: IntArray) -> Total:
        """Return what adds up the replies of some clients."""
        return Total(self.algorithm.double, None if self.sampling is None else self.sampling.weights[clients])

    def _exchanged(self, k: int, clients: IntArray, message: Any) -> tuple[IntArray, Any, Any, Work, int]:
        """Return who has answered, the state after that, what they remember then, what it cost them, and its bits."""
        algorithm, total, work, bits = self.algorithm, self._total(clients), Work(), 0
        batches = self._batches(clients)
        after: Any = None if len(batches) == 1 else self._room(len(clients))

        def answer(own: IntArray) -> tuple[Any, Any, Work, int]:
            draws = OwnDraws(self.seed, k, own)
            local = self.problem.local(own, take_rows(self.memory, own))
            update = algorithm.client_update(local, message, k, draws)
            sent, sent_bits = self._transmit(update.reply, draws)
            memory: Any = ()
            if update.memory and isinstance(algorithm, Remembering):
                memory = algorithm.confirm(update.memory, sent, k)
            if after:
                first = int(np.searchsorted(clients, own[0]))
                for rows, new in zip(after, memory, strict=True):
                    rows[first : first + len(own)] = new
            return sent, memory if after is None else after, update.work, sent_bits

        for sent, memory, cost, sent_bits in work_through(batches, answer, self._threads(len(batches))):
            total.add(sent)
            after, work, bits = memory, work + cost, bits + sent_bits
        return clients, total.update(algorithm, self.state, k), after, work, bits

    def _batches(self, clients: IntArray) -> list[IntArray]:
        """Return the clients of a round, all at once or some at a time, which changes nothing but time and memory."""
        return divide(clients, self._longest)

    @functools.cached_property
    def _longest(self) -> int:
        """How many numbers the longest part of a reply has; 0 where a GPU has all at once."""
        if self.problem.losses.xp is not np:
            return 0
        return max(map(math.prod, self.algorithm.reply_shapes().values()))

    def _threads(self, batches: int) -> int:
        """Return how many batches to work on at once; with one thread kernels use as many as they may."""
        if batches < 2:
            return 1
        problem = self.problem
        used = (problem.penalty, *self.compressors.values())
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
        if count < self.problem.n_clients:
            return empty_memory(self.memory, count, self._folder)
        if self._spare is None:
            self._spare = empty_memory(self.memory, count, self._folder)
        return self._spare

    @property
    def _folder(self) -> Path | None:
        """Where large arrays of what clients remember are kept; None for memory."""
        given = self.options.scratch
        return None if given is None else Path(given)

    def _that_answer(self, chosen: IntArray, k: int) -> IntArray:
        """Return those of the chosen clients whose replies arrive."""
        if self.drop_out == 0:
            return chosen
        coins = Draws(self.seed, k, chosen).words(Purpose.DROP_OUT, 1)[:, 0] / 2.0**32
        return chosen[coins >= self.drop_out]

    def _transmit(self, reply: Any, draws: Draws) -> tuple[Any, int]:
        """Return replies as the server decodes them, and their bits."""
        decoded, total = [], 0
        for field, (name, arrays) in enumerate(zip(reply._fields, reply, strict=True)):
            try:
                values, bits = self.compressors[name].compress(arrays, draws, QUANTIZE + field)
            except FloatingPointError as error:
                raise DivergenceError(str(error)) from error
            decoded.append(values)
            total += int(np.add.reduce(bits))
        return type(reply)(*decoded), total

    def _answers(self, algorithm: Certifying, question: Question) -> Array:
        """Return the sum of what all clients answer, and count its bits."""
        total: Array = np.zeros(2)
        for clients in self.problem.losses.chunks():
            local = self.problem.local(clients, take_rows(self.memory, clients))
            answers = algorithm.answer(local, question.arrays)
            self._count_answers(answers, question)
            total += answers.sum(axis=0)
        return total

    def _count_answers(self, answers: Array, question: Question) -> None:
        """Count a question to some clients, and their answers."""
        self.meter.count("certificate", len(answers) * full_bits(answers[0]), len(answers) * question.bits)

    def evaluating(self, *, last: bool) -> contextlib.AbstractContextManager[None]:
        """Return a context for evaluations between rounds, or after the last one."""
        return self.asking_ahead(last=last)

    def ending(self) -> contextlib.AbstractContextManager[None]:
        """Return a context for what is asked when the rounds are over."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def asking_ahead(self, *, last: bool) -> Iterator[None]:
        """Within this, an engine may ask clients for more than is wanted yet; ``last``: for gradients with values."""
        self.meter.together = last and self.options.tol is not None
        try:
            yield
        finally:
            self.meter.together = False

    def restore_memory(self, saved: Mapping[str, Array]) -> None:
        """Have clients remember what a checkpoint has; what another engine has added to it is not needed here."""
        if self.memory:
            here = {name: put_back(array, saved[name]) for name, array in self.memory._asdict().items()}
            self.memory = restore(self.memory, here)

    def listen(self, stopped: Callable[[], bool]) -> None:
        """Be told how to find out that the user wants to stop, for engines that wait."""

    def sites(self) -> list[dict[str, Any]]:
        """Return what became of the exchanges with each site; nothing where clients are in this process."""
        return []

    def labels(self) -> dict[str, str]:
        """Return what a checkpoint is to say beside what tells runs apart."""
        return {
            "ended": self.ended,
            "schedule": self.schedule,
            "known": " ".join(self.meter.known(self.x)),
        }

    def resumed(self, labels: Mapping[str, str]) -> None:
        """Take note of what a checkpoint says beside what tells runs apart."""
        self.is_fresh = False
        for name in ("ended", "schedule", "known"):
            setattr(self, name, labels.get(name, ""))

    def memory_to_save(self) -> dict[str, Array]:
        """Return what clients remember, for a checkpoint."""
        return dict(self.memory._asdict()) if self.memory else {}

    @property
    def scale(self) -> float:
        """What a gap is compared with, as far as the server knows: that of ``level``, or of the last point accepted."""
        level = self.level
        if isinstance(self.algorithm, TracksObjective):
            known = self.algorithm.known_objective(self.state)
            level = known if math.isfinite(known) else level
        return max(abs(level), self.problem.least_scale, TINY)

    def evaluate(self) -> tuple[float, float]:
        """Return the objective, g at the nearest point of its domain, and how far away that is.

        Where the replies of a round have told the objective, it is that of the point which was accepted last.
        """
        algorithm, problem = self.algorithm, self.problem
        if not isinstance(algorithm, TracksObjective):
            return problem.evaluate(self.x)
        image = problem.linop.apply(self.x)
        violation = 0.0 if problem.penalty.finite else float(np.abs(problem.penalty.project(image) - image).max())
        return algorithm.known_objective(self.state), violation

    @property
    def can_predict_gap(self) -> bool:
        """Whether the server itself can tell when a look at the gap is not worth while."""
        if isinstance(self.algorithm, TracksObjective):
            return True
        return isinstance(self.algorithm, Certifying) and self.problem.can_expect

    @property
    def can_certify(self) -> bool:
        """Whether clients can certify a gap by two numbers each."""
        known = self.problem.losses.least_convexity > 0 and self.problem.penalty.has_conjugate
        return isinstance(self.algorithm, Certifying) and known

    def predicted_gap(self) -> float:
        """Return the gap that the server expects from what it knows itself; 0 where it knows nothing."""
        algorithm = self.algorithm
        if isinstance(algorithm, TracksObjective):
            return algorithm.expected_gap(self.state)
        if not (isinstance(algorithm, Certifying) and self.problem.can_expect):
            return 0.0
        x, v = algorithm.solution(self.state)
        if v is None:
            return 0.0
        return self.problem.expected_gap(x, v, algorithm.estimate_slope(self.state), self.scale)

    def certify(self, *, fine: bool = False, slack: float = 0.0) -> Certified | None:
        """Have every client send its part of a duality gap, and count the bits.

        x is sent in single precision, or with ``fine`` in that of the model. What else is sent is rounded as far as a
        gap of about ``slack`` allows, and what that changes is added to the gap. None where the method or the problem
        has no such certificate.
        """
        problem, algorithm = self.problem, self.algorithm
        if not (isinstance(algorithm, Certifying) and self.can_certify):
            return None
        question = algorithm.question(self.state, fine=fine, slack=slack)
        answers = self._answers(algorithm, question) / problem.n_clients
        value, gap = algorithm.conclude(self.state, question.arrays, answers)
        if gap is None:
            return None
        x = problem.model.xp.asarray(question.arrays.x, dtype=problem.model.dtype)
        return Certified(gap, value, max(abs(value), problem.least_scale, TINY), x)


def restore(fresh: Any, saved: Mapping[str, Array]) -> Any:
    """Return saved arrays in a named tuple like a fresh one, each in the memory that the fresh one's is in."""
    return type(fresh)(**{name: namespace(getattr(fresh, name)).asarray(array) for name, array in saved.items()})


def divide(clients: IntArray, numbers: int) -> list[IntArray]:
    """Return the clients of a round in batches that are not too much, if each sends so many numbers.

    >>> [len(batch) for batch in divide(np.arange(25), 100_000)]
    [10, 10, 5]
    """
    if numbers < LONG or len(clients) * numbers <= BATCH:
        return [clients]
    length = max(1, BATCH // numbers)
    return [clients[first : first + length] for first in range(0, len(clients), length)]


class Total:
    """The mean of replies that come in batches: to the last bit that of all of them, added in order.

    With ``weights``, one for each client in the order in which replies are added, there is also their weighted mean.
    """

    def __init__(self, double: tuple[str, ...], weights: Array | None = None) -> None:
        self.double, self.count, self.weights = double, 0, weights
        self._weighted = None if weights is None else Total(double)
        self._sums: list[Array] = []
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
            return algorithm.server_update(state, self.mean(), k, self.count)
        means = WeightedMeans(self._weighted.mean(), self.mean(), float(self.weights.mean()))
        return algorithm.weighted_update(state, means, k, self.count)


def work_through(batches: Iterable[IntArray], work: Callable[[IntArray], T], threads: int) -> Iterator[T]:
    """Return what ``work`` returns for each batch, in their order, with so many threads, kernels using one each."""
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
    """Return the bytes of an array like that of one client for so many."""
    return int(one.nbytes) * n_clients


def has_large_copies(algorithm: Remembering, n_clients: int) -> bool:
    """Whether a server's copies of what clients remember are kept in a file in any case."""
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
    """Return saved rows: in the file of an array that is in one, else as they are."""
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
