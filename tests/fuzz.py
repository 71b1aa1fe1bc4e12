"""Decode damaged messages, most of them with a checksum that is right, and see that nothing bad comes of it.

    python -m tests.fuzz --messages 1000000 --seed 1 --jobs 2
    python -m tests.fuzz --requests 1000000 --seed 1 --jobs 2
    python -m tests.fuzz --replies 1000000 --seed 1 --jobs 2

The second sends forged requests to a site (:mod:`tests.fuzz_requests`), the third forged replies to the server
(:mod:`tests.fuzz_replies`).

A message is refused with MessageError, or it gives a finite array of the shape and dtype expected, soon. Message i of a
seed is always the same: ``--first i --messages 1`` makes it again.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import math
import multiprocessing
import os
import random
import resource
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

import numpy as np

from fpdfp import compress
from fpdfp.compress import NUQSGD, QSGD, Compressor, Full, Half, Natural, RandK, Sign, TopK
from fpdfp.errors import MessageError
from fpdfp.rng import Draws
from tests.wire_reader import Cursor, read_header, seal

LIMIT = 2**20
#: The longest that one message may take, in seconds.
PATIENCE = 2.0
#: MiB that a process may take: an array of the limit has 8 MiB.
MEMORY = 700
#: Messages between two lines of progress.
CHUNK = 10_000
#: Of so many messages one is large.
RARITY = 200
CHECKSUM = 4
SHAPES = [(), (1,), (5,), (0,), (40,), (3, 7), (2, 3, 4), (600,)]
LARGE = (40_000,)

BYTES = [0, 1, 2, 127, 128, 254, 255]
NUMBERS = [0, 1, 2, 3, 5, 127, 128, 511, 1022, 1023, 2**14, 2**20, 2**20 + 1, 2**28, *(2**31 + i for i in range(-3, 2))]
NUMBERS += [2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63]
FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-45, 1.1754944e-38, 3.4028235e38, math.inf, -math.inf, math.nan]


class Original(NamedTuple):
    """A message as it should be, and what its receiver expects."""

    compressor: Compressor
    shape: tuple[int, ...]
    dtype: Any
    message: bytes
    #: Where the numbers of the header start, and where the body does.
    varints: tuple[int, ...]
    body: int


class Failure(NamedTuple):
    """A damaged message that did harm."""

    number: int
    what: str


class Outcome(NamedTuple):
    """What became of some messages."""

    total: int
    accepted: int
    failures: list[Failure]


@functools.cache
def corpus() -> tuple[list[Original], list[Original]]:
    """Return messages of every kind, the small and the large ones."""
    small = [original for shape in SHAPES for original in originals(shape)]
    return small, list(originals(LARGE))


def originals(shape: tuple[int, ...]) -> Iterator[Original]:
    """Make messages about arrays of one shape."""
    generator = np.random.default_rng(7)
    normal = generator.standard_normal(shape)
    heavy = np.sign(normal) * np.exp(3 * generator.standard_normal(shape))
    sparse = np.where(generator.random(shape) < 0.1, normal, 0.0)
    clients = Draws(3, 1, np.arange(3))
    for dtype in (np.float32, np.float64):
        arrays = np.clip([normal, heavy, sparse], -6e4, 6e4).astype(dtype)
        for compressor in compressors(len(shape)):
            for message in compressor.encode(compressor.quantize(arrays, clients, 16)):
                cursor = Cursor(message)
                header = read_header(cursor)
                ends = [i + 1 for i in range(4, cursor.position) if i == 4 or message[i] < 128]
                assert len(ends) == 1 + len(header.shape) + len(header.parameters)
                yield Original(compressor, shape, dtype, message, tuple(ends[:-1]), cursor.position)


def compressors(n_dimensions: int) -> Iterator[Compressor]:
    """Compressors of every kind, with every code."""
    yield Full()
    yield Half("float16")
    yield Half("bfloat16", random=False)
    for codec in ("fixed", "omega", "rans", "adaptive", "auto"):
        yield QSGD(5, codec=codec)
        yield QSGD(2**20, block=None, norm="max", codec=codec)
        yield QSGD(100, block=(n_dimensions - 1,) if n_dimensions else 3, codec=codec)
        yield NUQSGD(30, block=16, codec=codec)
        yield Natural(codec)
        yield Sign(codec=codec)
        yield Sign(random=False, block=3, codec=codec)
        yield RandK(0.2, codec)
        yield TopK(3, codec)


def flip_bits(rng: random.Random, data: bytearray, original: Original) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def overwrite_bytes(rng: random.Random, data: bytearray, original: Original) -> None:
    for _ in range(rng.choice((1, 1, 2, 4))):
        data[rng.randrange(len(data))] = some_byte(rng)


def truncate(rng: random.Random, data: bytearray, original: Original) -> None:
    del data[rng.randrange(len(data)) if rng.random() < 0.3 else max(0, len(data) - rng.randint(1, 9)) :]


def extend(rng: random.Random, data: bytearray, original: Original) -> None:
    data += bytes(rng.randint(1, 9)) if rng.random() < 0.5 else rng.randbytes(rng.randint(1, 40))


def splice(rng: random.Random, data: bytearray, original: Original) -> None:
    """Go on with another message, from its body or from anywhere."""
    other = pick(rng)
    if rng.random() < 0.5:
        data[original.body :] = other.message[other.body : -CHECKSUM]
    else:
        data[rng.randrange(len(data)) :] = other.message[rng.randrange(len(other.message)) : -CHECKSUM]


def edit_varint(rng: random.Random, data: bytearray, original: Original) -> None:
    """Put another number into the header."""
    places = [at for at in original.varints if at < len(data)]
    if not places:
        return
    at = rng.choice(places)
    end = at
    while end < len(data) - 1 and data[end] >= 128:
        end += 1
    old = data[at] & 127
    number = rng.choice(NUMBERS) if rng.random() < 0.5 else max(0, old + rng.randint(-3, 3))
    written = bytearray()
    while number >= 128:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    if rng.random() < 0.05:
        written[-1] |= 128
        written.append(0)
    data[at : end + 1] = written


def swap_kind(rng: random.Random, data: bytearray, original: Original) -> None:
    """Say that the message is of another compressor or dtype."""
    if len(data) > 3:
        data[3] = rng.randrange(9) | rng.choice((0, 0, 0, 1, 1, 1, 2, 7)) << 5


def swap_code(rng: random.Random, data: bytearray, original: Original) -> None:
    """Say that the levels are in another code, or that there are more dimensions, or fewer."""
    if len(data) > 4:
        data[4] = data[4] & 0xF0 | rng.randrange(9) if rng.random() < 0.8 else rng.randrange(256)


def edit_float(rng: random.Random, data: bytearray, original: Original) -> None:
    """Put another number where the scales or the numbers are."""
    kind, width = ("<f", 4) if rng.random() < 0.7 else ("<d", 8)
    at = original.body + width * rng.randrange(4)
    if at + width <= len(data):
        data[at : at + width] = struct.pack(kind, rng.choice(FLOATS))


def edit_payload(rng: random.Random, data: bytearray, original: Original) -> None:
    """Overwrite, remove or repeat a part of the body."""
    if len(data) <= original.body:
        return
    begin = rng.randrange(original.body, len(data))
    end = min(len(data), begin + rng.randint(1, 12))
    match rng.randrange(4):
        case 0:
            data[begin:end] = bytes([some_byte(rng)]) * (end - begin)
        case 1:
            data[begin:end] = rng.randbytes(end - begin)
        case 2:
            del data[begin:end]
        case 3:
            data[begin:begin] = data[begin:end]


def edit_stream(rng: random.Random, data: bytearray, original: Original) -> None:
    """Overwrite one of the first bytes of the body, where models and parameters are."""
    at = original.body + rng.randrange(16)
    if at < len(data):
        data[at] = some_byte(rng)


Mutation = Callable[[random.Random, bytearray, Original], None]
MUTATIONS: list[Mutation] = [
    flip_bits, overwrite_bytes, truncate, extend, splice, edit_varint, edit_varint, swap_kind, swap_code, edit_float,
    edit_payload, edit_payload, edit_stream, edit_stream,
]  # fmt: skip


def some_byte(rng: random.Random) -> int:
    return rng.choice(BYTES) if rng.random() < 0.5 else rng.randrange(256)


def pick(rng: random.Random) -> Original:
    """Choose a message, seldom a large one."""
    small, large = corpus()
    return rng.choice(small if rng.randrange(RARITY) else large)


def forge(seed: int, index: int) -> tuple[Original, bytes]:
    """Return a message and what it was before."""
    rng = random.Random(seed << 40 | index)
    original = pick(rng)
    sealed = rng.random() < 0.9
    data = bytearray(original.message[:-CHECKSUM] if sealed else original.message)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if data:
            rng.choice(MUTATIONS)(rng, data, original)
    return original, seal(bytes(data)) if sealed else bytes(data)


def examine(original: Original, message: bytes) -> bool:
    """Decode a message in both ways; return whether any was accepted, raise AssertionError if it did harm."""
    generic = attempt(lambda: compress.decode(message, limit=LIMIT))
    if generic is not None:
        header = read_header(Cursor(message))
        check_array(generic, header.shape, header.dtype)
        if generic.size > LIMIT:
            raise AssertionError(f"{generic.size} entries are over the limit")
    expected = attempt(lambda: original.compressor.decode([message], original.shape, original.dtype))
    if expected is not None:
        check_array(expected, (1, *original.shape), np.dtype(original.dtype))
    # Several messages are read by other kernels than one alone.
    pair = [message, original.message] if len(message) % 2 else [original.message, message]
    both = attempt(lambda: original.compressor.decode(pair, original.shape, original.dtype))
    if (both is None) != (expected is None):
        raise AssertionError("together with another message it is read otherwise than alone")
    if both is not None and not np.array_equal(both[pair.index(message)], expected[0]):
        raise AssertionError("together with another message it holds other numbers than alone")
    return generic is not None or expected is not None


def attempt(decode: Callable[[], Any]) -> Any:
    """Return the array that a message gives, or None if it is refused."""
    begin = time.process_time()  # not that of other processes
    try:
        array = decode()
    except MessageError:
        array = None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the panics of extensions are no Exceptions
        raise AssertionError(f"{type(error).__name__}: {error}") from error
    taken = time.process_time() - begin
    if taken > PATIENCE:
        raise AssertionError(f"it took {taken:.1f} s")
    return array


def check_array(array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise AssertionError unless an array is finite and of a shape and dtype."""
    if (array.shape, array.dtype) != (shape, dtype):
        raise AssertionError(f"{array.dtype} of shape {array.shape} instead of {dtype} of shape {shape}")
    if not np.isfinite(array).all():
        raise AssertionError("a number is not finite")


def describe(original: Original, message: bytes) -> str:
    """Say what a message was made of."""
    return f"{original.compressor}, {original.shape}, {message.hex()}"


def run(kind: str, first: int, count: int, seed: int) -> Outcome:
    """Forge some messages, requests or replies of a seed, and see what becomes of them.

    ``kind`` is a module with the functions ``forge``, ``examine`` and ``describe``.
    """
    module, accepted, failures = importlib.import_module(kind), 0, []
    for index in range(first, first + count):
        original, forged = module.forge(seed, index)
        try:
            accepted += module.examine(original, forged)
        except AssertionError as error:
            failures.append(Failure(index, f"{module.describe(original, forged)}: {error}"))
    return Outcome(count, accepted, failures)


def prepare() -> None:
    """Decode every message as it is, so that kernels are compiled before anything is timed."""
    warnings.simplefilter("error")
    for original in [*corpus()[0], *corpus()[1]]:
        for count in (1, 2):
            original.compressor.decode(count * [original.message], original.shape, original.dtype)


def outcomes(kind: str, tasks: list[tuple[int, int, int]], jobs: int) -> Iterator[Outcome]:
    """Do the tasks in other processes, so that one which crashes is seen."""
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=importlib.import_module(kind).prepare) as pool:
        found = {pool.submit(run, kind, *task): task for task in tasks}
        for future in as_completed(found):
            try:
                yield future.result()
            except BrokenProcessPool:
                first, count, _ = found[future]
                yield Outcome(count, 0, [Failure(first, f"a process died, at one of these {count} or of others")])


def main() -> int:
    parser = argparse.ArgumentParser(description="Decode damaged messages, or answer forged requests or replies.")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--requests", type=int, help="send so many requests instead")
    parser.add_argument("--replies", type=int, help="send so many replies instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first message")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    kind = "tests.fuzz_requests" if options.requests else "tests.fuzz_replies" if options.replies else "tests.fuzz"
    options.messages = options.requests or options.replies or options.messages
    end = options.first + options.messages
    tasks = [(begin, min(CHUNK, end - begin), options.seed) for begin in range(options.first, end, CHUNK)]
    count = accepted = failed = 0
    begin = time.perf_counter()
    for done, outcome in enumerate(outcomes(kind, tasks, options.jobs), 1):
        count, accepted, failed = count + outcome.total, accepted + outcome.accepted, failed + len(outcome.failures)
        for failure in outcome.failures[:10]:
            print(f"seed {options.seed}, message {failure.number}: {failure.what}")
        if done % 10 == 0 or done == len(tasks):
            rate = count / (time.perf_counter() - begin)
            refused = count - accepted - failed
            print(
                f"{count}: {refused} refused, {accepted} accepted, {failed} failed, {rate:.0f} messages/s", flush=True
            )
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"at most {memory:.0f} MiB of memory in a process")
    if memory > MEMORY:
        print(f"more than {MEMORY} MiB: a message made its reader allocate more than its limit allows")
        failed += 1
    print(f"{count - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
