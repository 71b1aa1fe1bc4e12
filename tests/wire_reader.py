"""A plain and slow reader of messages, written from ``docs/wire-format.md`` alone: the independent check of the format.

Nothing of the package is used here. What a reader must refuse is refused with ValueError where that is a matter of a
line; how sturdy the package itself is, other tests ask.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Levels = npt.NDArray[np.int64]

FULL, QSGD, NUQSGD, NATURAL, SIGN, HALF, RANDK, TOPK = range(8)
FIXED, OMEGA, RANS, DRAWN, ADAPTIVE = 1, 3, 5, 7, 8
#: Codes that were used once; a reader refuses them.
RESERVED = (2, 4, 6)
N_PARAMETERS = {FULL: 0, QSGD: 3, NUQSGD: 3, NATURAL: 0, SIGN: 2, HALF: 2, RANDK: 1, TOPK: 1}

ESCAPE = 255
TOTAL = 4096
LOWEST_STATE = 2**24


class Header(NamedTuple):
    """What a message says about itself."""

    compressor: int
    dtype: np.dtype[Any]
    code: int
    shape: tuple[int, ...]
    parameters: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of entries of the array."""
        return math.prod(self.shape)


class Cursor:
    """Bytes, and how far they have been read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        """Read some bytes."""
        check(0 <= count <= self.left, "the message ends too early")
        self.position += count
        return self.data[self.position - count : self.position]

    def byte(self) -> int:
        """Read one byte."""
        return self.take(1)[0]

    def numbers(self, dtype: str, count: int) -> npt.NDArray[Any]:
        """Read some numbers of a little-endian dtype."""
        return np.frombuffer(self.take(count * np.dtype(dtype).itemsize), dtype)

    def varint(self) -> int:
        """Read groups of seven bits, the lowest first."""
        value = 0
        for group in range(9):
            byte = self.byte()
            value |= (byte & 127) << (7 * group)
            if byte < 128:
                check(byte > 0 or group == 0, "a varint ends in a group of 0")
                return value
        raise ValueError("a varint has more than nine bytes")

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return len(self.data) - self.position


class Bits:
    """A stream of bits, the lowest of each byte first."""

    def __init__(self, data: bytes) -> None:
        self.bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").tolist()
        self.position = 0

    def bit(self) -> int:
        """Read one bit."""
        return self.number(1)

    def number(self, width: int) -> int:
        """Read a number of some bits, the lowest first."""
        end = self.position + width
        check(end <= len(self.bits), "a stream of bits ends too early")
        value = sum(bit << i for i, bit in enumerate(self.bits[self.position : end]))
        self.position = end
        return value

    def gamma(self) -> int:
        """Read an Elias gamma code."""
        zeros = 0
        while not self.bit():
            zeros += 1
        return self.number(zeros) + (1 << zeros)

    def omega(self) -> int:
        """Read an Elias omega code."""
        value = 1
        while self.bit():
            value = self.number(value) + (1 << value)
        return value

    def end(self) -> None:
        """Check that nothing is left but the zeros that fill a byte."""
        rest = self.bits[self.position :]
        check(len(rest) < 8 and not any(rest), "a stream of bits goes on after its end")


def check(condition: bool, otherwise: str) -> None:
    """Refuse the message unless a condition holds."""
    if not condition:
        raise ValueError(otherwise)


def read(message: bytes) -> npt.NDArray[Any]:
    """Return the array of a message."""
    check(len(message) >= 9, "the message is too short")
    content, (checksum,) = message[:-4], struct.unpack("<I", message[-4:])
    check(zlib.crc32(content) == checksum, "the checksum is wrong")
    cursor = Cursor(content)
    header = read_header(cursor)
    values = read_body(header, cursor)
    check(cursor.left == 0, "the body goes on after its end")
    check(bool(np.isfinite(values).all()), "a number is not finite")
    return values


def seal(content: bytes) -> bytes:
    """Return a message of a header and a body: add the checksum."""
    return content + struct.pack("<I", zlib.crc32(content))


def read_header(cursor: Cursor) -> Header:
    """Read what comes before the body."""
    check(cursor.take(2) == b"fp", "not a message")
    check(cursor.byte() == 1, "an unknown version")
    first, second = cursor.byte(), cursor.byte()
    compressor = first & 31
    check(compressor in N_PARAMETERS, "an unknown compressor")
    check(first >> 5 <= 1, "an unknown dtype")
    shape = tuple(cursor.varint() for _ in range(second >> 4))
    parameters = tuple(cursor.varint() for _ in range(N_PARAMETERS[compressor]))
    return Header(compressor, np.dtype(("<f4", "<f8")[first >> 5]), second & 15, shape, parameters)


def read_body(header: Header, cursor: Cursor) -> npt.NDArray[Any]:
    """Read what comes after the header; return the array."""
    if header.compressor in (RANDK, TOPK):
        return read_subset(header, cursor).reshape(header.shape)
    if header.compressor not in (FULL, HALF):
        return read_blocks(header, cursor)
    if header.compressor == FULL and header.code:
        return read_sparse(header, cursor).reshape(header.shape)
    check(header.code == 0, "a code without levels")
    if header.compressor == FULL:
        return cursor.numbers(header.dtype.str, header.size).reshape(header.shape)
    return read_half(header, cursor).reshape(header.shape)


def read_sparse(header: Header, cursor: Cursor) -> npt.NDArray[Any]:
    """Read the numbers that are not zero, and where they belong."""
    count = cursor.varint()
    check(header.size >= 64 and 8 * count <= header.size, "too many numbers to leave out zeros")
    numbers = cursor.numbers(header.dtype.str, count)
    sent = read_levels(header.code, cursor, header.size, 0, 1) == 1
    check(int(sent.sum()) == count, "as many ones as numbers")
    values = np.zeros(header.size, header.dtype)
    values[sent] = numbers
    return values


def read_half(header: Header, cursor: Cursor) -> npt.NDArray[Any]:
    """Read numbers of 16 bits."""
    kind, at_random = header.parameters
    check(kind <= 1 and at_random <= 1, "a parameter is out of range")
    if kind == 0:
        return cursor.numbers("<f2", header.size).astype(header.dtype)
    words = cursor.numbers("<u2", header.size).astype(np.uint32)
    return (words << 16).view(np.float32).astype(header.dtype)


def read_subset(header: Header, cursor: Cursor) -> npt.NDArray[Any]:
    """Read the numbers of a subset of the entries, and where they belong."""
    (k,) = header.parameters
    check(min(1, header.size) <= k <= header.size, "a parameter is out of range")
    numbers = cursor.numbers(header.dtype.str, k)
    if header.code == DRAWN:
        check(header.compressor == RANDK, "only RandK draws its entries")
        sent = draw_subset(cursor.numbers("<u4", 5).tolist(), header.size, k)
    else:
        sent = read_levels(header.code, cursor, header.size, 0, 1) == 1
    check(int(sent.sum()) == k, "as many ones as numbers")
    values = np.zeros(header.size, header.dtype)
    values[sent] = numbers
    return values


def read_blocks(header: Header, cursor: Cursor) -> npt.NDArray[Any]:
    """Read a scale for every block, and the levels of those that have one."""
    order, sizes = split(header)
    scales = cursor.numbers("<f4", len(sizes)).astype(np.float64)
    check(bool(np.isfinite(scales).all() and (scales >= 0).all()), "a scale is not a number from 0")
    scale = np.repeat(scales, sizes)
    sent = scale != 0
    levels = np.zeros(header.size, np.int64)
    levels[sent] = read_levels(header.code, cursor, int(sent.sum()), *bounds(header))
    values = np.where(sent, stand_for(header, levels, scale), 0.0).astype(header.dtype)
    return np.transpose(values.reshape([header.shape[axis] for axis in order]), np.argsort(order))


def split(header: Header) -> tuple[list[int], list[int]]:
    """Return the order of the axes in which entries are sent, and the number of entries of each block.

    An array without entries has no blocks.
    """
    order = list(range(len(header.shape)))
    blocks = {QSGD: 1, NUQSGD: 1, SIGN: 1}.get(header.compressor)
    number = 0 if blocks is None else header.parameters[blocks]
    if number == 0:
        return order, [header.size] if header.size else []
    if number % 2 == 0:
        block = number // 2
        return order, [min(block, header.size - start) for start in range(0, header.size, block)]
    check(number >> 1 < 1 << len(order), "an axis that the array does not have")
    first = [axis for axis in order if number >> (axis + 1) & 1]
    others = [axis for axis in order if axis not in first]
    block = math.prod(header.shape[axis] for axis in others)
    return first + others, [block] * (header.size // block if block else 0)


def bounds(header: Header) -> tuple[int, int]:
    """Return the lowest and the highest level of a compressor with scales."""
    if header.compressor == SIGN:
        check(header.parameters[0] <= 1, "a parameter is out of range")
        return -1, 0
    if header.compressor == NATURAL:
        return -1022, 1022
    s, _, norm = header.parameters
    check(s >= 1 and norm <= 1, "a parameter is out of range")
    return -s, s


def stand_for(header: Header, levels: Levels, scale: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the values of levels, in float64."""
    if header.compressor == QSGD:
        return scale / header.parameters[0] * levels
    if header.compressor == SIGN:
        return scale * (1 + 2 * levels)
    return np.sign(levels) * np.ldexp(scale, 1 - abs(levels))


def read_levels(code: int, cursor: Cursor, n: int, lo: int, hi: int) -> Levels:
    """Read n levels in a code, up to the end of the body."""
    if n == 0:
        check(code == 0, "a code without levels")
        return np.zeros(0, np.int64)
    check(code not in RESERVED, "a code that is no longer used")
    check(code in (FIXED, OMEGA, RANS, ADAPTIVE), "an unknown code")
    data = cursor.take(cursor.left)
    if code == RANS:
        levels = read_tokens(Cursor(data), n)
    elif code == ADAPTIVE:
        levels = read_adaptive(data, n, lo, hi)
    else:
        bits = Bits(data)
        width = (hi - lo).bit_length()
        levels = [lo + bits.number(width) for _ in range(n)] if code == FIXED else read_omega(bits, n)
        bits.end()
    check(all(lo <= level <= hi for level in levels), "a level is out of range")
    return np.array(levels, np.int64)


def read_omega(bits: Bits, n: int) -> list[int]:
    """Read levels in the Elias omega code, all of them or those that are not 0."""
    levels = [0] * n
    if bits.bit() == 0:
        for i in range(n):
            size = bits.omega() - 1
            levels[i] = -size if size and bits.bit() else size
        return levels
    place = -1
    for _ in range(bits.omega() - 1):
        place += bits.omega()
        check(place < n, "a level beyond the last")
        sign = -1 if bits.bit() else 1
        levels[place] = sign * bits.omega()
    return levels


class Decisions:
    """Decisions between 0 and 1, read from a number in an interval."""

    def __init__(self, data: bytes) -> None:
        self.number = int.from_bytes(data)
        self.bits = 8 * len(data)
        #: The interval starts at 0 and is this wide, in units of 2^-(56 + 8 shifts); the number is ``distance``.
        self.width, self.shifts = 2**56, 0
        self.distance = self.number >> (self.bits - 56) if self.bits >= 56 else self.number << (56 - self.bits)
        self.counts: dict[Any, list[int]] = {}
        self.information = 0.0

    def read(self, kind: Any = None) -> int:
        """Read a decision of a kind; None: both outcomes are equally likely."""
        seen = [0, 0] if kind is None else self.counts.setdefault(kind, [0, 0])
        share = self.width // (sum(seen) + 2) * (seen[0] + 1)
        outcome = int(self.distance >= share)
        self.distance, self.width = (self.distance - share, self.width - share) if outcome else (self.distance, share)
        seen[outcome] += 1
        self.information += kind is None
        while self.width < 2**48:
            self.width <<= 8
            self.shifts += 1
            after = self.bits - 56 - 8 * self.shifts
            self.distance = self.distance << 8 | (self.number >> after & 255 if after >= 0 else self._end(after))
        return outcome

    def digits(self, number: int, count: int) -> int:
        """Return a number with so many more digits."""
        for _ in range(count):
            number = 2 * number + self.read()
        return number

    def _end(self, after: int) -> int:
        """Return eight bits of which the last are after the end, zeros."""
        return self.number << -after & 255

    def block(self) -> None:
        """Forget the counts; add what the block took."""
        for a, b in self.counts.values():
            self.information += (math.lgamma(a + b + 2) - math.lgamma(a + 1) - math.lgamma(b + 1)) / math.log(2)
        self.counts.clear()

    def end(self, blocks: int) -> None:
        """Check the length of the number, but for rounding."""
        self.block()
        least, most = math.ceil(self.information), math.ceil(self.information + blocks / 1024)
        check(least <= self.bits < most + 8, "too many bytes, or too few")
        check(self.bits <= most or self.number % 2 ** (self.bits - most) == 0, "bits after the end")


def read_adaptive(data: bytes, n: int, lo: int, hi: int) -> list[int]:
    """Read levels in the adaptive code."""
    decisions = Decisions(data)
    digits = max(-lo, hi).bit_length()
    levels: list[int] = []
    shift = 0
    for i in range(n):
        if i % 2**14 == 0:
            decisions.block()
            shift = decisions.read() if digits > 1 else 0
            if shift:
                shift = 1 + decisions.digits(0, (digits - 2).bit_length())
            check(shift < digits, "a shift that cannot be")
        size = length = decisions.read("zero")
        while length and length < digits - shift and decisions.read(length):
            length += 1
        if length > 1:
            size = 2 * size + decisions.read("second")
        size = decisions.digits(size, max(length - 2, 0) + shift)
        negative = size > 0 and (decisions.read() == 1 if lo < 0 < hi else lo < 0)
        levels.append(-size if negative else size)
    decisions.end(-(-n // 2**14))
    return levels


def read_tokens(cursor: Cursor, n: int) -> list[int]:
    """Read levels as tokens under a model, and what the tokens leave open."""
    first = cursor.byte()
    shift, model, has_escapes = first & 31, first >> 5 & 3, first >> 7 == 1
    escapes = cursor.numbers("<u4", 1).tolist()[0] if has_escapes else 0
    check(escapes <= n and (escapes > 0) == has_escapes, "a number of escapes that cannot be")
    check(model <= 2, "an unknown model")
    frequencies = read_table(cursor, has_escapes) if model == 2 else read_curve(cursor, model, has_escapes)
    check(sum(frequencies) == TOTAL, "frequencies that do not add up")
    rest_bytes = -(-(shift * (n - escapes) + 32 * escapes) // 8)
    token_bytes = cursor.take(cursor.left - rest_bytes)
    tokens = read_rans(token_bytes, frequencies, n)
    check(tokens.count(ESCAPE) == escapes, "another number of escapes")
    rest = Bits(cursor.take(rest_bytes))
    levels = [signed(rest.number(32)) if t == ESCAPE else ((t - 127) << shift) + rest.number(shift) for t in tokens]
    rest.end()
    return levels


def signed(word: int) -> int:
    """Read 32 bits as two's complement."""
    return word - 2**32 if word >= 2**31 else word


def read_table(cursor: Cursor, has_escapes: bool) -> list[int]:
    """Read the frequencies of a model that lists them."""
    first, last = cursor.byte(), cursor.byte()
    check(first <= last < ESCAPE, "a range of tokens that cannot be")
    tokens = [*range(first, last + 1)] + [ESCAPE] * has_escapes
    bits = Bits(cursor.data[cursor.position :])
    frequencies = [0] * 256
    for token in tokens:
        frequencies[token] = bits.gamma() - 1
    stream = Bits(cursor.take(-(-bits.position // 8)))
    stream.position = bits.position
    stream.end()
    return frequencies


def read_curve(cursor: Cursor, model: int, has_escapes: bool) -> list[int]:
    """Work out the frequencies of a geometric or a Gaussian model."""
    largest, zeros, rate = cursor.take(3)
    check(largest <= 127, "tokens that do not exist")
    free = TOTAL - 2 * largest - has_escapes
    check(free >= 1, "no frequency is left")
    weights = [w for w, _ in zip(gaussian(rate) if model else geometric(rate), range(largest), strict=False)]
    half = (free - max(1, min(16 * zeros, free - 1))) // 2
    shares = [half * w // sum(weights) for w in weights]
    frequencies = [0] * 256
    for k, share in enumerate(shares, 1):
        frequencies[127 + k] = frequencies[127 - k] = 1 + share
    frequencies[127] = free - 2 * sum(shares)
    frequencies[ESCAPE] = int(has_escapes)
    return frequencies


def geometric(rate: int) -> Iterator[int]:
    """Weights that fall by the same factor in every step."""
    w = 2**30
    while True:
        yield w
        w = w * rate // 2**8


def gaussian(rate: int) -> Iterator[int]:
    """Weights that fall by a factor that falls itself."""
    b = 2**16 - (16 + rate % 16) * 2 ** (rate // 16) // 16
    g = b * math.isqrt(2**16 * b) // 2**16
    w = 2**30
    while True:
        yield w
        w = w * g // 2**16
        g = g * b // 2**16


def read_rans(data: bytes, frequencies: list[int], n: int) -> list[int]:
    """Read tokens from one state or four."""
    cursor = Cursor(data)
    states = [int.from_bytes(cursor.take(5), "little") for _ in range(4 if n >= 32768 else 1)]
    check(min(states) >= LOWEST_STATE, "a state is too low")
    check(cursor.left % 2 == 0, "half a word")
    words = iter(cursor.numbers("<u2", cursor.left // 2).tolist())
    starts = [sum(frequencies[:t]) for t in range(256)]
    owner = [t for t in range(256) for _ in range(frequencies[t])]
    tokens = []
    for i in range(n):
        x = states[i % len(states)]
        m = x % TOTAL
        t = owner[m]
        x = frequencies[t] * (x // TOTAL) + m - starts[t]
        if x < LOWEST_STATE:
            word = next(words, None)
            if word is None:
                raise ValueError("words that end too early")
            x = 2**16 * x + word
        states[i % len(states)] = x
        tokens.append(t)
    check(all(x == LOWEST_STATE for x in states), "a state does not end as it began")
    check(not any(words), "a word is left over")
    return tokens


def draw_subset(words: list[int], size: int, k: int) -> npt.NDArray[np.bool_]:
    """Say which entries have the k smallest of the words that are drawn for them."""
    k0, k1, tag, client, turn = words
    j = np.arange(size, dtype=np.uint64)
    first = 64 * (j // 256) + j % 64
    counter = [first, *(np.full(size, word, np.uint64) for word in (tag, client, turn))]
    drawn = np.choose((j % 256 // 64).astype(np.int64), philox(counter, k0, k1)) if size else j
    sent = np.zeros(size, np.bool_)
    sent[np.argsort(drawn, kind="stable")[:k]] = True
    return sent


def philox(counter: list[npt.NDArray[np.uint64]], k0: int, k1: int) -> list[npt.NDArray[np.uint64]]:
    """Philox4x32-10 of Salmon, Moraes, Dror and Shaw (2011), for many counters."""
    c0, c1, c2, c3 = counter
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ np.uint64(k0), p1 & low, (p0 >> half) ^ c3 ^ np.uint64(k1), p0 & low
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]
