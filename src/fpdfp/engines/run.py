"""The in-process engine: all clients of a round in a dozen array calls."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpdfp._array import read_only
from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.local import clients_of, take_rows
from fpdfp.compress import Full
from fpdfp.engines.result import History
from fpdfp.errors import DivergenceError
from fpdfp.methods.base import Certifying, TracksObjective
from fpdfp.problem import TINY, Certificate
from fpdfp.quadratic.statement import Work
from fpdfp.rng import Draws, Purpose, choose_clients
from fpdfp.traffic import NOTHING, Bits, Kept, Traffic, count_exchange, full_bits

if TYPE_CHECKING:
    from fpdfp.engines.prepare import Prepared, RunOptions


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
    """A certified bound of F(x) − F*, with F(x), its scale, and x as it was sent."""

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
        self.method, self.compressors, self.downlink, self.clients_per_round, *_ = choices
        self.seed, self.drop_out = options.seed, options.drop_out
        self.state = self.algorithm.init(start)
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
        #: Where steps between rounds have led, for those who look on; the next round begins at the method's own x.
        self.reached: Array | None = None
        #: How the run has ended, where it has reached its tolerance or can get no further, for a checkpoint.
        self.ended = ""
        #: When to look next whether the tolerance is reached, and what the server has kept of x, for a checkpoint.
        self.schedule, self.known = "", ""
        #: The round after which this run began: not 0 where it continues another one with other features.
        self.first_round = 0
        #: What inner solves have cost the server before that.
        self.spent = Work()
        #: Whether the run does not continue from a checkpoint: what is asked when it begins is then counted.
        self.is_fresh = True
        self._pending: _Round | None = None
        #: The clients' part in the run.
        self.participants = clients_of(self.problem).take_part(self)

    @property
    def traffic(self) -> Traffic:
        """All that was sent so far."""
        upkeep = self.participants.upkeep
        return self.meter.traffic if upkeep == NOTHING else self.meter.traffic.plus("upkeep", *upkeep)

    @property
    def bits_up(self) -> int:
        """The messages of clients in the rounds."""
        return self.meter.rounds.up

    @property
    def bits_down(self) -> int:
        """The messages of the server in the rounds."""
        return self.meter.rounds.down

    @property
    def server_work(self) -> Work:
        """The cost of inner solves at the server so far."""
        return self.spent + self.algorithm.server_work(self.state)

    @property
    def memory(self) -> Any:
        """The memory of clients between rounds, as far as it is known here."""
        return self.participants.memory

    @memory.setter
    def memory(self, memory: Any) -> None:
        self.participants.memory = memory

    @property
    def x(self) -> Array:
        """The current x, not to be written to."""
        return read_only(self.algorithm.solution(self.state)[0] if self.reached is None else self.reached)

    @property
    def v(self) -> Array | None:
        """The current dual, None where the method keeps none."""
        return self.algorithm.solution(self.state)[1]

    @property
    def compression(self) -> tuple[str, str]:
        """A description of the compressors, up and down."""
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
        self.participants.note(self.seconds - before)

    def commit(self) -> None:
        """Make a round that is done count; if Ctrl-C cut that short, doing it again makes it whole."""
        done = self._pending
        if done is None:
            return
        count_exchange("rounds")
        self.participants.remember(done.clients, done.memory)
        if done.kept is not None:
            done.kept.seen[done.chosen] = done.kept.sent
        _, _, _, self.state, self.work, self.round, bits, self.seconds, self.kept = done
        self.meter.rounds = bits
        self._pending = self.reached = None

    def rehearse(self) -> None:
        """Do the next round and forget it, where that can be done."""
        if self.participants.rehearses:
            # What goes wrong here goes wrong again in the round itself, and is dealt with there.
            with contextlib.suppress(DivergenceError):
                self._round(self.round)

    def _round(self, k: int) -> _Round:
        """Do round k, and change nothing."""
        started = self._clock()
        chosen, message, kept, bits_down = self.send_round(k)
        clients = self.who_answers(chosen, k)
        state, work, bits_up = self.state, self.work, 0
        if not len(clients):
            memory = take_rows(self.memory, clients)
        else:
            clients, state, memory, cost, bits_up = self.participants.work(k, clients, message)
            work = work + cost
            x = self.algorithm.solution(state)[0]
            if not math.isfinite(float(np.vdot(x, x))):
                raise DivergenceError("the iterate is no longer finite")
        # Absolute values, so that a commit that was cut short can be done once more.
        up, down = self.meter.rounds
        return _Round(
            clients, chosen, memory, state, work, k + 1, Bits(up + bits_up, down + bits_down),
            self.seconds + self._clock() - started, kept,
        )  # fmt: skip

    @functools.cached_property
    def _clock(self) -> Callable[[], float]:
        """The clock that stands still while kernels are compiled."""
        from fpdfp._kernels.jit import working_time

        return working_time

    def send_round(self, k: int) -> tuple[IntArray, Any, Kept | None, int]:
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

    def who_answers(self, chosen: IntArray, k: int) -> IntArray:
        """Return the chosen clients whose replies arrive."""
        if self.drop_out == 0:
            return chosen
        coins = Draws(self.seed, k, chosen).words(Purpose.DROP_OUT, 1)[:, 0] / 2.0**32
        return chosen[coins >= self.drop_out]

    def labels(self) -> dict[str, str]:
        """Return what a checkpoint is to say besides what distinguishes runs."""
        return {
            "ended": self.ended,
            "schedule": self.schedule,
            "known": " ".join(self.meter.known(self.algorithm.solution(self.state)[0])),
            **self.participants.labels(),
        }

    def resumed(self, labels: Mapping[str, str]) -> None:
        """Take note of what a checkpoint says besides what distinguishes runs."""
        self.is_fresh = False
        for name in ("ended", "schedule", "known"):
            setattr(self, name, labels.get(name, ""))
        self.participants.resume(labels)

    @property
    def scale(self) -> float:
        """The scale of a gap, as far as the server knows: of ``level``, or of the last point accepted."""
        level = self.level
        if isinstance(self.algorithm, TracksObjective):
            known = self.algorithm.known_objective(self.state)
            level = known if math.isfinite(known) else level
        return max(abs(level), self.problem.least_scale, TINY)

    def evaluate(self) -> tuple[float, float]:
        """Return the objective, g at the nearest point of its domain, and how far away that is.

        If the replies of a round contain the objective, it belongs to the point accepted last.
        """
        algorithm, problem = self.algorithm, self.problem
        if not isinstance(algorithm, TracksObjective):
            return problem.evaluate(self.x)
        image = problem.linop.apply(self.x)
        violation = 0.0 if problem.penalty.finite else float(np.abs(problem.penalty.project(image) - image).max())
        return algorithm.known_objective(self.state), violation

    @property
    def can_predict_gap(self) -> bool:
        """Whether the server itself knows when a look at the gap is not worth while."""
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

        x is sent in single precision, or with ``fine`` in the model's precision. What else is sent is rounded as far as
        a gap of about ``slack`` allows, and what that changes is added to the gap. None where the method or the problem
        has no such certificate.
        """
        problem, algorithm = self.problem, self.algorithm
        if not (isinstance(algorithm, Certifying) and self.can_certify):
            return None
        count_exchange("certificate")
        question = algorithm.question(self.state, fine=fine, slack=slack)
        answers = self.participants.certify(algorithm, question) / problem.n_clients
        value, gap = algorithm.conclude(self.state, question.arrays, answers)
        if gap is None:
            return None
        x = problem.model.xp.asarray(question.arrays.x, dtype=problem.model.dtype)
        return Certified(gap, value, max(abs(value), problem.least_scale, TINY), x)
