"""Randomness as a function, not a stream.

Every draw is the value of a counter-based hash (Philox4x32-10) at a point

    key     = seed (64 bits)
    counter = (index, purpose + 256 · step, client, round), 32 bits each

so the same seed gives the same draws for any number of threads and any order of clients. Round k can be
redone without replaying the rounds before it, and a checkpoint needs no generator state.
"""

from __future__ import annotations

import enum
import functools
from types import ModuleType
from typing import NamedTuple

import numpy as np

from fpdfp import _checks, _kernels
from fpdfp._typing import Array, IntArray

#: Clients and rounds are 32-bit words of the counter.
MAX_CLIENTS = 2**32
MAX_ROUNDS = 2**32 - 1
#: The seed is a key of 64 bits.
MAX_SEED = 2**64 - 1


class Purpose(enum.IntEnum):
    """The purpose of a draw; draws for different purposes are independent."""

    PARTICIPATION = 0
    BATCH = 1
    REFRESH = 2  # of the reference point of a client of a variance-reduced method
    DROP_OUT = 3
    ONCE_CLIENTS = 4  # the clients that send something before the first round
    ANNOUNCE = 5  # rounding of what the server sends to all clients before the first round
    DOWNLINK = 8  # plus the number of the field in the server's message
    QUANTIZE = 16  # plus the number of the field in the reply
    ONCE = 32  # plus the number of the field in what is sent before the first round


#: Plain integers, since arithmetic with an enumeration is slow.
_PARTICIPATION, QUANTIZE = int(Purpose.PARTICIPATION), int(Purpose.QUANTIZE)


class Draws(NamedTuple):
    """The randomness of some clients in one round: the keys of the hash, not its values.

    Attributes
    ----------
    seed
        The seed of the run, at least 0 and below 2**64.
    round
        The round, counted from 0.
    clients
        The client numbers, one for each entry of the leading axis.
    step
        The local step within the round.
    """

    seed: int
    round: int
    clients: IntArray
    step: int = 0

    @property
    def key(self) -> tuple[int, int]:
        """The seed as the two 32-bit words of the Philox key."""
        return self.seed & 0xFFFFFFFF, self.seed >> 32

    def tag(self, purpose: int) -> int:
        """The counter word that distinguishes purposes and local steps."""
        return purpose | self.step << 8

    def at(self, step: int) -> Draws:
        """The randomness of another local step of the round."""
        return self if step == self.step else self._replace(step=step)

    def words(self, purpose: int, count: int) -> Array:
        """Return ``count`` 32-bit words for every client, as an (n, count) array.

        >>> import numpy as np
        >>> together = Draws(seed=7, round=3, clients=np.array([0, 5, 9])).words(Purpose.QUANTIZE, 4)
        >>> alone = Draws(seed=7, round=3, clients=np.array([5])).words(Purpose.QUANTIZE, 4)
        >>> bool((together[1] == alone[0]).all())
        True
        """
        out = np.empty((len(self.clients), count), dtype=np.uint32)
        k0, k1 = self.key
        _philox().fill_words(k0, k1, self.tag(purpose), self.clients, self.round, out)
        return out


class OwnDraws(Draws):
    """The randomness of a round that an engine has begun: its numbers are known to be right, and not checked again."""

    __slots__ = ()


@functools.cache
def _philox() -> ModuleType:
    """Return the kernels, imported on first use; cached, since even finding an imported module takes time."""
    return _kernels.philox


def check_seed(seed: int) -> int:
    """Return ``seed`` if it is an integer that fits the key."""
    return _checks.integer("seed", seed, at_least=0, at_most=MAX_SEED)


def check_draws(draws: Draws, purpose: int, rows: int) -> Draws:
    """Return where the draws of ``rows`` clients come from, if there is a client for each."""
    if type(draws) is OwnDraws and len(draws.clients) == rows:
        return draws
    if not isinstance(draws, Draws):
        raise TypeError(f"draws must be fpdfp.rng.Draws(seed, round, clients), got {type(draws).__name__}")
    seed, round_, clients, step = draws
    # What engines give is soon seen to be right; otherwise it is found out what is wrong.
    if not (
        type(seed) is type(round_) is type(step) is type(purpose) is int
        and 0 <= seed <= MAX_SEED and 0 <= round_ <= MAX_ROUNDS and 0 <= step < 2**24 and 0 <= purpose <= 255
    ):  # fmt: skip
        _checks.integer("draws: seed", seed, at_least=0, at_most=MAX_SEED)
        _checks.integer("draws: round", round_, at_least=0, at_most=MAX_ROUNDS)
        _checks.integer("draws: step", step, at_least=0, at_most=2**24 - 1)
        _checks.integer("purpose", purpose, at_least=0, at_most=255)
    numbers = clients if type(clients) is np.ndarray else np.asarray(clients)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or len(numbers) != rows:
        raise ValueError(
            f"draws: clients must be one client number for each of the {rows} rows of arrays, whose first axis is that "
            f"of the clients; got {numbers.dtype} of shape {numbers.shape}"
        )
    plain = numbers is clients and numbers.dtype.char == "l" and numbers.flags.c_contiguous
    # Client numbers are 32 bits of the counter. Seen as unsigned, a negative number is a large one.
    if rows and (np.maximum.reduce(numbers.view(np.uint64)) >= MAX_CLIENTS if plain else (numbers >> 32).any()):
        raise ValueError("draws: clients must be at least 0 and below 2**32")
    return draws if plain else draws._replace(clients=np.ascontiguousarray(numbers, dtype=np.int64))


def table_size(count: int) -> int:
    """Return the size of the hash table with which ``count`` distinct integers are drawn."""
    return 1 << max(2, (2 * count - 1).bit_length())


def choose_clients(
    seed: int,
    round: int,  # noqa: A002
    n_clients: int,
    count: int,
    purpose: int = _PARTICIPATION,
) -> IntArray:
    """Draw ``count`` of ``n_clients`` clients, uniformly without replacement, in ascending order.

    The cost depends only on ``count``.

    >>> choose_clients(seed=0, round=0, n_clients=1_000_000, count=3).tolist()
    [399045, 735712, 972241]
    >>> choose_clients(seed=0, round=0, n_clients=3, count=3).tolist()
    [0, 1, 2]
    """
    if count == n_clients:
        return np.arange(n_clients, dtype=np.int64)
    chosen = np.empty(count, dtype=np.int64)
    table = np.empty(table_size(count), dtype=np.int64)
    _philox().sample_subset(seed & 0xFFFFFFFF, seed >> 32, int(purpose), 0, round, n_clients, count, table, chosen)
    chosen.sort()
    return chosen
