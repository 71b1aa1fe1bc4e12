"""The in-process engine: all clients of a round in a dozen array calls."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fpdfp._array import read_only
from fpdfp._typing import Array, IntArray
from fpdfp.compress import Compressor
from fpdfp.engines.history import History
from fpdfp.engines.setup import full_bits
from fpdfp.methods.base import Method, Update, Work
from fpdfp.problem import Problem
from fpdfp.rng import Draws, Purpose, choose_clients

#: A plain integer, since arithmetic with an enumeration is slow.
QUANTIZE = int(Purpose.QUANTIZE)


class DivergenceError(ArithmeticError):
    """The iterate, a message or the objective is no longer a finite number of a reasonable size."""


class _Round(NamedTuple):
    """A round that is done: who took part, what they remember, and the run after it."""

    clients: IntArray
    memory: Any
    state: Any
    work: Work
    round: int
    bits_up: int
    bits_down: int
    seconds: float


class Run:
    """A run under way, as callbacks see it.

    Attributes
    ----------
    problem, method, compressors, seed, clients_per_round
        What is run; the method is prepared, so its step and λ are chosen.
    round
        Rounds done.
    state
        The method's state, a named tuple of arrays.
    memory
        What clients keep between rounds, a named tuple of arrays with a leading client axis; empty for most methods.
    work
        What inner solves have cost the clients so far.
    bits_up, bits_down
        Totals so far.
    bits_once_up, bits_once_down
        What was sent once, before the first round, and is not in the totals.
    seconds
        Time spent in rounds.
    history
        The table so far.
    """

    def __init__(
        self,
        problem: Problem,
        method: Method,
        compressors: Mapping[str, Compressor],
        clients_per_round: int,
        seed: int,
        state: Any,
        memory: Any = (),
    ) -> None:
        self.problem = problem
        self.method = method
        self.compressors = dict(compressors)
        self.clients_per_round = clients_per_round
        self.seed = seed
        self.state = state
        self.memory = memory
        self.work = Work()
        self.round = 0
        self.bits_up = 0
        self.bits_down = 0
        self.bits_once_up = 0
        self.bits_once_down = 0
        self.seconds = 0.0
        self.history = History()
        self.stop_reason: str | None = None
        self._pending: _Round | None = None

    @property
    def x(self) -> Array:
        """The current x, not to be written to."""
        return read_only(self.method.solution(self.state)[0])

    @property
    def v(self) -> Array | None:
        """The current dual, None where the method keeps none."""
        return self.method.solution(self.state)[1]

    def stop(self, reason: str = "a callback asked for it") -> None:
        """End the run after this round."""
        self.stop_reason = reason

    def advance(self) -> None:
        """Do one round; raise DivergenceError, and leave everything as it was, if it gives no numbers."""
        started = time.perf_counter()
        clients, state, update, bits_up, bits_down = self._round(self.round)
        # Absolute values, so that a commit that was cut short can be done once more.
        self._pending = _Round(
            clients, update.memory, state, self.work + update.work, self.round + 1, self.bits_up + bits_up,
            self.bits_down + bits_down, self.seconds + time.perf_counter() - started,
        )  # fmt: skip
        self.commit()

    def commit(self) -> None:
        """Make a round that is done count; if Ctrl-C cut that short, doing it again makes it whole."""
        if self._pending is None:
            return
        for kept, new in zip(self.memory, self._pending.memory, strict=True):
            kept[self._pending.clients] = new
        _, _, self.state, self.work, self.round, self.bits_up, self.bits_down, self.seconds = self._pending
        self._pending = None

    def rehearse(self) -> None:
        """Do the next round and forget it."""
        # What goes wrong here goes wrong again in the round itself, and is dealt with there.
        with contextlib.suppress(DivergenceError):
            self._round(self.round)

    def _round(self, k: int) -> tuple[IntArray, Any, Update, int, int]:
        """Return who took part in round k, the state after it, what clients gave back, and the bits sent in it."""
        problem, method = self.problem, self.method
        clients = choose_clients(self.seed, k, problem.n_clients, self.clients_per_round)
        draws = Draws(self.seed, k, clients)
        message = method.broadcast(problem.model, self.state)
        memory = type(self.memory)(*(kept[clients] for kept in self.memory)) if self.memory else ()
        update = method.client_update(problem.model, problem.local(clients, memory), message, k, draws)
        reply = update.reply
        decoded = []
        bits_up = 0
        for field, (name, arrays) in enumerate(zip(reply._fields, reply, strict=True)):
            try:
                values, bits = self.compressors[name].compress(arrays, draws, QUANTIZE + field)
            except FloatingPointError as error:
                raise DivergenceError(str(error)) from error
            decoded.append(values)
            bits_up += int(bits.sum())
        sent = type(reply)(*decoded)
        state = method.server_update(problem.model, self.state, sent, k)
        update = update._replace(memory=method.confirm(problem.model, update.memory, sent, k))
        x = method.solution(state)[0]
        if not math.isfinite(float(np.vdot(x, x))):
            raise DivergenceError("the iterate is no longer finite")
        bits_down = sum(full_bits(array) for array in message if array.size)
        return clients, state, update, bits_up, len(clients) * bits_down
