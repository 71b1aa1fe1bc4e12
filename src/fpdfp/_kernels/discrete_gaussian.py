"""Exact draws of the discrete Gaussian distribution from a stream of uniform words, with integers alone.

P(k) ∝ exp(−k²/2s²) on all integers, s an integer. The method is Algorithm 3 of Canonne, Kamath and Steinke (*The
discrete Gaussian for differential privacy*, 2020): a draw of the discrete Laplace distribution of scale s is accepted
with probability exp(−(|k| − s)²/2s²). With |k| − s = ±(q s + r) that is a product of probabilities exp(−1/2),
exp(−r/s) and exp(−r²/2s²), each of which is drawn by comparing integers of 64 bits: no probability is rounded.

A kernel that runs out of words returns how many draws are whole and how many words these took, and is called again with
more. So draws are a function of the stream, however it is cut.
"""

from __future__ import annotations

from typing import Any

from numba import int64, uint64

from fpdfp._kernels.jit import inline, serial

#: The place of a stream that has run out.
EMPTY = -1


@inline
def _below(bound: Any, words: Any, place: Any) -> Any:
    """Return a uniform integer below ``bound``, by rejection, and the next place."""
    bound = uint64(bound)
    # 2^64 − (2^64 mod bound): words from there on are thrown away, so that every integer has as many words
    excess = (~uint64(0) % bound + uint64(1)) % bound
    drawn = uint64(0)
    found = False
    while not found:
        if place < 0 or place >= words.size:
            place = EMPTY
            found = True
        else:
            word = uint64(words[place])
            place += 1
            if excess == uint64(0) or word < uint64(0) - excess:
                drawn = word % bound
                found = True
    return drawn, place


@serial
def _has(numerator: Any, denominator: Any, words: Any, place: Any) -> Any:
    """Draw an event of probability numerator/denominator ≤ 1."""
    drawn, place = _below(denominator, words, place)
    return drawn < uint64(numerator), place


@serial
def _decays(r: Any, s: Any, power: Any, words: Any, place: Any) -> Any:
    """Draw an event of probability exp(−γ), γ = (r/s)^power/power ≤ 1, for power 1 or 2.

    With A_k of probability γ/k, the first k at which A_k fails is odd with that probability.
    """
    k = 1
    while place >= 0:
        goes_on, place = _has(r, s, words, place)
        if goes_on and power == 2:
            goes_on, place = _has(r, s, words, place)
            if goes_on:
                goes_on, place = _has(1, 2, words, place)
        if goes_on and k > 1:
            goes_on, place = _has(1, k, words, place)
        if not goes_on:
            break
        k += 1
    return k % 2 == 1, place


@serial
def _laplace(s: Any, words: Any, place: Any) -> Any:
    """Draw an integer with P(k) ∝ exp(−|k|/s)."""
    while place >= 0:
        u, place = _below(s, words, place)
        kept, place = _decays(int64(u), s, 1, words, place)
        if not kept:
            continue
        v = 0
        more = True
        while more and place >= 0:
            more, place = _decays(1, 1, 1, words, place)
            v += 1 if more else 0
        size = int64(u) + s * v
        negative, place = _has(1, 2, words, place)
        if negative and size == 0:
            continue
        return -size if negative else size, place
    return 0, place


@serial
def _accepts(size: Any, s: Any, words: Any, place: Any) -> Any:
    """Draw an event of probability exp(−(size − s)²/2s²)."""
    distance = abs(size - s)
    q, r = distance // s, distance % s
    for _ in range(q * q):
        kept, place = _decays(1, 1, 2, words, place)
        if not kept or place < 0:
            return False, place
    for _ in range(q):
        kept, place = _decays(r, s, 1, words, place)
        if not kept or place < 0:
            return False, place
    return _decays(r, s, 2, words, place)


@serial
def draw(s: Any, words: Any, draws: Any) -> Any:
    """Write draws; return how many are whole, and how many words these took."""
    used = 0
    for i in range(draws.size):
        place = used
        accepted = False
        k = int64(0)
        while not accepted:
            k, place = _laplace(s, words, place)
            if place >= 0:
                accepted, place = _accepts(abs(k), s, words, place)
            if place < 0:
                return i, used
        draws[i] = k
        used = place
    return draws.size, used
