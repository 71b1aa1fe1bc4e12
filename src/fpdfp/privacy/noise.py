"""Exact draws of the discrete Gaussian distribution, from a keyed stream.

Noise is a function of a secret of the site and of the request, so the same request has the same reply, also after a
restart, and averaging repeated replies removes nothing. The draws are exact (:mod:`fpdfp._kernels.discrete_gaussian`);
the time they take depends on them, so replies should not leave at once where someone can measure microseconds.
"""

from __future__ import annotations

import hmac
from typing import Any

import numpy as np

from fpdfp._kernels import discrete_gaussian
from fpdfp.errors import ArgumentError

#: Words that a draw takes on average, rounded up, and the most that are made at a time.
WORDS, MOST = 24, 1 << 18
#: The largest standard deviation for which 64-bit integers suffice.
LARGEST = 1 << 50
#: Bytes of a key.
KEY = 32


class Stream:
    """Uniform words of 64 bits, a function of a key and a purpose.

    Parameters
    ----------
    key
        A secret of 32 bytes.
    purpose
        What the words are for: no two uses may have the same.
    """

    def __init__(self, key: bytes, purpose: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        if len(key) != KEY:
            raise ArgumentError("key", f"must have {KEY} bytes, got {len(key)}")
        seed = hmac.digest(key, b"fpdfp stream" + purpose, "sha256")
        self._cipher = Cipher(algorithms.ChaCha20(seed, bytes(16)), None).encryptor()

    def words(self, count: int) -> Any:
        """Return the next words."""
        return np.frombuffer(self._cipher.update(bytes(8 * count)), "<u8")


def discrete_gaussian_noise(stream: Stream, scale: int, count: int) -> Any:
    """Return independent integers with P(k) ∝ exp(−k²/2 scale²).

    >>> draws = discrete_gaussian_noise(Stream(bytes(32), b"example"), 1000, 5)
    >>> draws.dtype, bool((abs(draws) < 6000).all())
    (dtype('int64'), True)
    """
    if type(scale) is not int or not 1 <= scale <= LARGEST:
        raise ArgumentError("scale", f"must be an integer from 1 to 2^50, got {scale}")
    draws = np.empty(count, np.int64)
    done, words = 0, np.empty(0, np.uint64)
    while done < count:
        words = np.concatenate([words, stream.words(min(WORDS * (count - done) + WORDS, MOST))])
        whole, used = discrete_gaussian.draw(scale, words, draws[done:])
        done, words = done + whole, words[used:]
    return draws
