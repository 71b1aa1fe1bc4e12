"""What the server sends as quantized differences against a model that both sides keep."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.compress import Compressed, Compressor, Full
from fpdfp.compress.plain import exact_bits, has_few_zeros, plain_bits
from fpdfp.rng import Draws, Purpose
from fpdfp.steps import shift_step

#: What is sent as it is.
FULL = Full()


def full_bits(array: Array) -> int:
    """The size of an array as an uncompressed message."""
    # Most messages have few zeros, which is soon seen.
    if has_few_zeros(array):
        return plain_bits(array.shape, array.dtype)
    return int(exact_bits(array[None])[0])


def is_zero(message: Any) -> bool:
    """Whether a message holds nothing but zeros."""
    return not any(bool(array.any()) for array in message)


class Kept(NamedTuple):
    """What both sides know of the server's messages.

    Attributes
    ----------
    message
        The model that both sides keep: w, a tuple of arrays like the server's message.
    sent
        The bits of all differences so far, each counted once.
    seen
        For each client, ``sent`` when it was last brought up to date; −1 before the first time, unless the run starts
        at zero, which everyone knows.
    """

    message: tuple[Array, ...]
    sent: int
    seen: IntArray


class Downlink:
    """The server's side: w ← w + a C(z − w), and w is what clients compute with.

    A client that takes part again is sent all differences since the last time, or w itself if that is shorter. The
    errors z − w stay with the server and are sent later, so they vanish with the differences (K. Gruntkowska, A. Tyurin
    and P. Richtárik, "EF21-P and friends: improved theoretical communication complexity for distributed optimization
    with bidirectional compression", ICML 2023). a is 1 for biased compressors, and for unbiased ones what
    :func:`fpdfp.steps.shift_step` gives.
    """

    def __init__(self, compressor: Compressor) -> None:
        self.compressor = compressor
        self.share = functools.cache(self._share)

    def start(self, message: Any, n_clients: int) -> Kept:
        """Before the first round: the first message goes out as it is, unless it is zero."""
        seen = np.full(n_clients, 0 if is_zero(message) else -1, dtype=np.int64)
        return Kept(tuple(array.copy() for array in message), 0, seen)

    def send(self, kept: Kept, message: Any, clients: IntArray, seed: int, k: int) -> tuple[Any, Kept, int]:
        """Return the message as the clients of round k get it, what is kept after it, and the bits for all of them."""
        arrays, sent = [], kept.sent
        for there, (values, bits) in zip(kept.message, self.compress(kept, message, seed, k), strict=True):
            arrays.append(there + self.share(there.shape) * values[0])
            sent += int(bits[0])
        whole = sum(full_bits(array) for array in arrays)
        seen = kept.seen[clients]
        missed = np.where(seen < 0, whole, np.minimum(sent - seen, whole))
        return type(message)(*arrays), Kept(tuple(arrays), sent, kept.seen), int(missed.sum())

    def compress(self, kept: Kept, message: Any, seed: int, k: int) -> list[Compressed]:
        """Return the difference of each field as clients decode it, and its bits."""
        return [self.compressor.compress(*one) for one in self.differences(kept, message, seed, k)]

    def differences(self, kept: Kept, message: Any, seed: int, k: int) -> Iterator[tuple[Array, Draws, int]]:
        """Yield what a compressor is given for each field: the difference, and what it rounds with."""
        draws = Draws(seed, k, np.zeros(1, dtype=np.int64))
        for field, (wanted, there) in enumerate(zip(message, kept.message, strict=True)):
            yield (wanted - there)[None], draws, Purpose.DOWNLINK + field

    def _share(self, shape: tuple[int, ...]) -> float:
        """a: how much of a decoded difference is taken."""
        if not self.compressor.unbiased:
            return 1.0
        return shift_step(self.compressor.typical_omega(shape), self.compressor.omega(shape))


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
