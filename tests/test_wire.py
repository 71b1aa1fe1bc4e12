"""Messages: as long as was counted, read alike by every reader, and refused when they are not what they should be."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as drawn_arrays

from fpdfp import compress
from fpdfp.compress import NUQSGD, QSGD, Compressor, Full, Half, Natural, RandK, Sign, TopK
from fpdfp.errors import MessageError
from fpdfp.rng import Draws
from tests import wire_reader
from tests.wire_reader import Cursor, read_header, seal

CODECS = ["fixed", "omega", "rans", "adaptive", "auto"]
SHAPES = [(), (1,), (5,), (40,), (3, 7), (2, 3, 4), (0,), (3, 0), (600,), (1500,)]
PURPOSE = 16
KINDS = ["zeros", "normal", "repeated", "sparse", "heavy", "steps", "dead blocks", "tiny", "huge"]


def make(kind: str, shape: tuple[int, ...], seed: int) -> Any:
    """Arrays as they occur, and as they should not."""
    generator = np.random.default_rng(seed)
    normal = generator.standard_normal(shape)
    match kind:
        case "zeros":
            return np.zeros(shape)
        case "repeated":
            return generator.choice([-1.5, 0.0, 2.0], shape)
        case "sparse":
            return np.where(generator.random(shape) < 0.05, normal, 0.0)
        case "heavy":
            return np.sign(normal) * np.exp(4 * normal)
        case "steps":
            return np.sign(normal) * 2.0 ** generator.integers(-90, 90, shape)
        case "dead blocks":
            return np.where(np.arange(normal.size).reshape(shape) % 9 < 4, 0.0, normal)
        case "tiny":
            return 10.0 ** generator.choice([-300, -44, -40, -30], shape) * normal
        case "huge":
            return 1e30 * normal
    return normal


@st.composite
def client_arrays(draw: st.DrawFn, largest: float = 1e30) -> Any:
    """Arrays of two clients, of one shape and dtype."""
    shape = (2, *draw(st.sampled_from(SHAPES)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    if np.prod(shape) <= 50 and draw(st.booleans()):
        width = 8 * np.dtype(dtype).itemsize
        return draw(drawn_arrays(dtype, shape, elements=st.floats(-(2.0**15), 2.0**15, width=width)))
    seed = draw(st.integers(0, 2**32 - 1))
    both = [make(draw(st.sampled_from(KINDS)), shape[1:], seed + i) for i in range(2)]
    return np.clip(both, -largest, largest).astype(dtype)


def blocks(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    """What may share a scale in arrays of a shape."""
    axes = [tuple(i for i in range(len(shape)) if 1 << i & subset) for subset in range(1, 1 << len(shape))]
    return st.sampled_from([512, 1, 3, None, *axes])


@st.composite
def shares(draw: st.DrawFn) -> int | float:
    """How many entries to send."""
    return draw(st.one_of(st.integers(1, 50), st.floats(0.01, 0.99)))


Maker = Callable[[st.DataObject, tuple[int, ...], str], Compressor]


def qsgd(data: st.DataObject, shape: tuple[int, ...], codec: str) -> Compressor:
    levels = data.draw(st.sampled_from([1, 2, 7, 100, 1000, 2**20, 2**31 - 2]))
    return QSGD(levels, data.draw(blocks(shape)), data.draw(st.sampled_from(["l2", "max"])), codec)


def nuqsgd(data: st.DataObject, shape: tuple[int, ...], codec: str) -> Compressor:
    levels = data.draw(st.sampled_from([1, 2, 7, 30, 300, 1022]))
    return NUQSGD(levels, data.draw(blocks(shape)), data.draw(st.sampled_from(["l2", "max"])), codec)


def sign(data: st.DataObject, shape: tuple[int, ...], codec: str) -> Compressor:
    return Sign(data.draw(st.booleans()), data.draw(blocks(shape)), codec)


def natural(data: st.DataObject, shape: tuple[int, ...], codec: str) -> Compressor:
    return Natural(codec)


def rand_k(data: st.DataObject, shape: tuple[int, ...], codec: str) -> Compressor:
    return RandK(data.draw(shares()), codec)


def top_k(data: st.DataObject, shape: tuple[int, ...], codec: str) -> Compressor:
    return TopK(data.draw(shares()), codec)


def same(a: Any, b: Any) -> bool:
    """Whether arrays are the same to the last bit, the signs of zeros among them."""
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


def check_messages(compressor: Compressor, arrays: Any, seed: int = 0) -> list[bytes]:
    """Compress in every way there is, read in every way there is; return the messages."""
    draws = Draws(seed, 3, np.arange(len(arrays)))
    quantized = compressor.quantize(arrays, draws, PURPOSE)
    values, bits, messages = (
        compressor.dequantize(quantized),
        compressor.nbits(quantized),
        compressor.encode(quantized),
    )
    assert values.dtype == arrays.dtype
    assert values.shape == arrays.shape
    assert same(compressor.decode(messages, arrays.shape[1:], arrays.dtype), values)
    for message, length, value in zip(messages, bits.tolist(), values, strict=True):
        assert 0 <= 8 * len(message) - length < 8
        assert same(np.asarray(compress.decode(message)), np.asarray(value))
        assert same(wire_reader.read(message), np.asarray(value))
    compressed = compressor.compress(arrays, draws, PURPOSE)
    assert same(compressed.values, values)
    assert compressed.bits.tolist() == bits.tolist()
    return messages


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("maker", [qsgd, nuqsgd, natural, sign, rand_k, top_k])
@settings(max_examples=30)
@given(data=st.data())
def test_readers_agree(maker: Maker, codec: str, data: st.DataObject) -> None:
    arrays = data.draw(client_arrays())
    compressor = maker(data, arrays.shape[1:], codec)
    check_messages(compressor, arrays, data.draw(st.integers(0, 2**64 - 1)))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 20, 127, 1000, 100_000])
@pytest.mark.parametrize("block", [None, 7, 512])
def test_many_messages_at_once_are_those_of_one_after_the_other(codec: str, count: int, block: int | None) -> None:
    arrays = np.stack([make(kind, (700,), seed) for seed, kind in enumerate(KINDS) if kind not in ("tiny", "steps")])
    compressor = QSGD(count, block=block, norm="max", codec=codec)
    quantized = compressor.quantize(arrays, Draws(1, 2, np.arange(len(arrays))), PURPOSE)
    assert quantized.levels is not None
    assert quantized.scales is not None
    rows = [
        compressor.make(quantized.shape, quantized.dtype, levels=levels[None], scales=scales[None])
        for levels, scales in zip(quantized.levels, quantized.scales, strict=True)
    ]
    messages = compressor.encode(quantized)
    assert messages == [compressor.encode(row)[0] for row in rows]
    alone = [compressor.decode([message], (700,), np.float64)[0] for message in messages]
    assert np.array_equal(compressor.decode(messages, (700,), np.float64), alone)


def test_one_damaged_message_among_many_is_named() -> None:
    compressor = QSGD(20)
    quantized = compressor.quantize(make("normal", (3, 90), 0), Draws(0, 0, np.arange(3)), PURPOSE)
    messages = compressor.encode(quantized)
    cut = seal(messages[1][:-9])
    with pytest.raises(MessageError, match="cut off"):
        compressor.decode([messages[0], cut, messages[2]], (90,), np.float64)


@settings(max_examples=30)
@given(arrays=client_arrays(largest=6e4), kind=st.sampled_from(["float16", "bfloat16"]), at_random=st.booleans())
def test_readers_agree_on_half(arrays: Any, kind: str, at_random: bool) -> None:
    check_messages(Half(kind, random=at_random), arrays)


@settings(max_examples=30)
@given(arrays=client_arrays())
def test_readers_agree_on_full(arrays: Any) -> None:
    for message, array in zip(check_messages(Full(), arrays), arrays, strict=True):
        assert same(wire_reader.read(message), array)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("compressor", [QSGD, NUQSGD, Natural, Sign, RandK, TopK])
def test_readers_agree_on_large_arrays(compressor: Callable[..., Compressor], codec: str) -> None:
    """40,000 entries are read from four states at once."""
    arguments: dict[Any, Any] = {QSGD: {"levels": 30, "block": None}, NUQSGD: {"levels": 12}, RandK: {"k": 900}}
    arguments[TopK] = {"k": 0.3}
    arrays = make("normal", (1, 40_000), 5).astype(np.float32)
    [message] = check_messages(compressor(codec=codec, **arguments.get(compressor, {})), arrays)
    assert codec == "auto" or message[4] & 15 == {"fixed": 1, "omega": 3, "rans": 5, "adaptive": 8}[codec]


def draw_levels(kind: str, size: int) -> Any:
    """Integers that a model of their kind describes best, or that need escapes."""
    generator = np.random.default_rng(8)
    plain = np.round(20 * generator.standard_normal(size))
    match kind:
        case "geometric":
            return np.round(generator.laplace(scale=3, size=size))
        case "table":
            return generator.choice([-90.0, 3.0, 70.0], size)
        case "escapes":
            return np.where(np.arange(size) % (size // 10) == 5, 90_000 * np.sign(plain), plain)
        case "shift":
            return np.round(3000 * generator.standard_normal(size))
    return plain


@pytest.mark.parametrize("size", [3000, 40_000])
def test_every_model_is_read(size: int) -> None:
    """With s the largest level and the norm "max", whole numbers are their own levels."""
    shifts, models, escapes = set(), set(), set()
    for kind in ("geometric", "Gaussian", "table", "shift", "escapes"):
        levels = draw_levels(kind, size)
        compressor = QSGD(int(abs(levels).max()), block=None, norm="max", codec="rans")
        [message] = check_messages(compressor, levels[None])
        cursor = Cursor(message)
        read_header(cursor)
        cursor.take(4)
        first = cursor.byte()
        shifts.add(first & 31 > 0)
        models.add(first >> 5 & 3)
        escapes.add(first >> 7)
    assert (shifts, models, escapes) == ({False, True}, {0, 1, 2}, {0, 1})


# What must be refused.

COMPRESSORS: list[Compressor] = [
    Full(),
    Half("float16"),
    Half("bfloat16", random=False),
    QSGD(4),
    QSGD(4, block=2, norm="max", codec="adaptive"),
    QSGD(4, block=(0,), codec="fixed"),
    QSGD(4, codec="omega"),
    QSGD(4, codec="adaptive"),
    QSGD(4, codec="rans"),
    NUQSGD(4),
    Natural(),
    Sign(),
    Sign(random=False, codec="rans"),
    RandK(2),
    RandK(2, codec="adaptive"),
    TopK(0.5),
    TopK(2, codec="omega"),
]
SMALL = np.array([[3.0, -4.0, 0.0, 0.5, 0.25, -1.0]]).reshape(1, 2, 3)


def one_message(compressor: Compressor, arrays: Any = SMALL) -> bytes:
    [message] = compressor.encode(compressor.quantize(arrays, Draws(1, 2, np.arange(1)), PURPOSE))
    return message


def refuse(compressor: Compressor, message: bytes, shape: tuple[int, ...] = (2, 3), dtype: Any = np.float64) -> None:
    """Check that both readers of the package refuse a message."""
    with pytest.raises(MessageError):
        compressor.decode([message], shape, dtype)
    with pytest.raises(MessageError):
        compress.decode(message)


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
class TestDamage:
    def test_truncated(self, compressor: Compressor) -> None:
        message = one_message(compressor)
        for length in range(len(message)):
            refuse(compressor, message[:length])

    def test_truncated_with_a_checksum(self, compressor: Compressor) -> None:
        message = one_message(compressor)
        for length in range(len(message) - 4):
            refuse(compressor, seal(message[:length]))

    def test_extended(self, compressor: Compressor) -> None:
        message = one_message(compressor)
        for more in (b"\0", b"\xff", b"\0\0\0\1"):
            refuse(compressor, message + more)
            refuse(compressor, seal(message[:-4] + more))

    def test_bits_flipped(self, compressor: Compressor) -> None:
        message = one_message(compressor)
        for bit in range(8 * len(message)):
            flipped = bytearray(message)
            flipped[bit // 8] ^= 1 << bit % 8
            refuse(compressor, bytes(flipped))

    @pytest.mark.parametrize(
        ("at", "byte"), [(0, ord("F")), (1, 0), (2, 0), (2, 2), (2, 255)], ids=["f", "p", "v0", "v2", "v255"]
    )
    def test_first_bytes_and_version(self, compressor: Compressor, at: int, byte: int) -> None:
        content = bytearray(one_message(compressor)[:-4])
        content[at] = byte
        refuse(compressor, seal(bytes(content)))

    def test_unknown_compressor_dtype_and_code(self, compressor: Compressor) -> None:
        content = one_message(compressor)[:-4]
        kind, code = content[3], content[4]
        for third, fourth in [
            (kind & ~31 | 31, code),
            (kind & ~31 | 8, code),
            (kind | 64, code),
            (kind | 128, code),
        ] + [
            (kind, code & ~15 | unknown)
            for unknown in (2, 4, 6, 9, 15, *([7] if not isinstance(compressor, RandK) else []))
        ]:
            refuse(compressor, seal(content[:3] + bytes([third, fourth]) + content[5:]))

    def test_shape_and_dtype_are_those_expected(self, compressor: Compressor) -> None:
        message = one_message(compressor)
        for shape in [(6, 1), (3, 2), (7, 1), (2, 3, 1), (0, 1), (2**30, 2**30)]:
            with pytest.raises(MessageError):
                compressor.decode([message], shape, np.float64)
        with pytest.raises(MessageError):
            compressor.decode([message], (2, 3), np.float32)

    def test_compressor_is_the_one_expected(self, compressor: Compressor) -> None:
        message = one_message(compressor)
        parameters = (type(compressor), compressor.parameters((2, 3)))
        for other in COMPRESSORS:
            if (type(other), other.parameters((2, 3))) == parameters:
                assert same(other.decode([message], (2, 3), np.float64)[0], compress.decode(message))
            else:
                with pytest.raises(MessageError):
                    other.decode([message], (2, 3), np.float64)

    def test_only_bytes(self, compressor: Compressor) -> None:
        message = one_message(compressor)
        wrongs: list[Any] = [message.hex(), list(message), None, 7, np.frombuffer(message, np.int8)]
        for wrong in wrongs:
            with pytest.raises(TypeError):
                compressor.decode([wrong], (2, 3), np.float64)
            with pytest.raises(TypeError):
                compress.decode(wrong)
        for right in (bytearray(message), memoryview(message)):
            assert same(compress.decode(right), compress.decode(message))

    @pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_only_finite_arrays_are_sent(self, compressor: Compressor, dtype: Any, number: float) -> None:
        arrays = np.concatenate([SMALL, SMALL]).astype(dtype)
        arrays[1, 1, 2] = number
        draws = Draws(1, 2, np.arange(2))
        with pytest.raises(FloatingPointError):
            compressor.quantize(arrays, draws, PURPOSE)
        if not isinstance(compressor, Full):
            with pytest.raises(FloatingPointError):
                compressor.compress(arrays, draws, PURPOSE)


@pytest.mark.parametrize(
    ("compressor", "number"),
    [
        (Half("float16"), 65_520.0),
        (Half("float16", random=False), -1e6),
        (Half("bfloat16"), 3.4e38),
        (QSGD(4), 1e39),
        (QSGD(4, norm="max"), 1e300),
        (NUQSGD(4), -1e39),
        (Natural(), 1e39),
        (Sign(), 1e39),
        (Sign(random=False), 1e300),
        (RandK(1), 1e308),
    ],
    ids=repr,
)
def test_numbers_out_of_range_are_not_sent(compressor: Compressor, number: float) -> None:
    with pytest.raises(FloatingPointError):
        compressor.compress(np.full((1, 6), number), Draws(1, 2, np.arange(1)), PURPOSE)


@pytest.mark.parametrize("compressor", [QSGD(4), NUQSGD(4, block=3), Natural(), Sign(), Sign(random=False)], ids=repr)
@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, -1.0, -1e-45])
def test_scales(compressor: Compressor, scale: float) -> None:
    content = one_message(compressor)[:-4]
    cursor = Cursor(content)
    read_header(cursor)
    at = cursor.position
    refuse(compressor, seal(content[:at] + np.float32(scale).tobytes() + content[at + 4 :]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("size", "nonzero"), [(64, 0), (64, 8), (64, 9), (63, 0), (1000, 3), (5000, 625)])
def test_zeros_are_left_out_of_exact_messages_where_few_numbers_are_not_zero(
    dtype: Any, size: int, nonzero: int
) -> None:
    rng = np.random.default_rng(size + nonzero)
    array = np.zeros((2, size), dtype=dtype)
    array[0, rng.choice(size, nonzero, replace=False)] = rng.standard_normal(nonzero)
    array[1, 0] = -0.0  # kept with its sign
    for message, sent in zip(check_messages(Full(), array), array, strict=True):
        np.testing.assert_array_equal(np.signbit(wire_reader.read(message)), np.signbit(sent))
    short, signed = (8 * len(message) for message in Full().encode(Full().quantize(array, None, 0)))
    whole = 8 * size * array.itemsize
    assert (short < 0.5 * whole) == (size >= 64 and 8 * nonzero <= size)
    assert (signed < 0.5 * whole) == (size >= 64)


@pytest.mark.parametrize("compressor", [Full(), Half("float16"), Half("bfloat16"), RandK(2), TopK(2)], ids=repr)
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers(compressor: Compressor, number: float, dtype: Any) -> None:
    content = one_message(compressor, SMALL.astype(dtype))[:-4]
    cursor = Cursor(content)
    read_header(cursor)
    at = cursor.position
    damage = dtype(number).tobytes()
    if isinstance(compressor, Half):
        damage = np.float16(number).tobytes() if compressor.format == "float16" else np.float32(number).tobytes()[2:]
    refuse(compressor, seal(content[:at] + damage + content[at + len(damage) :]), dtype=dtype)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("values", [[100.0, 1.0], [-100.0, 100.0, 3.0, 0.0], [100.0] * 40])
def test_levels_out_of_range(codec: str, values: list[float]) -> None:
    """A message of 100 levels says that it has 64."""
    arrays = np.array([values])
    content = bytearray(one_message(QSGD(100, norm="max", codec=codec), arrays)[:-4])
    assert content[6] == 100
    content[6] = 64
    refuse(QSGD(64, norm="max"), seal(bytes(content)), (len(values),))


def raw(kind: int, code: int, shape: tuple[bytes, ...], parameters: bytes, body: bytes) -> bytes:
    """Return a message made by hand."""
    return seal(b"fp\x01" + bytes([kind, code | len(shape) << 4]) + b"".join(shape) + parameters + body)


def varint(number: int) -> bytes:
    groups = [number >> 7 * i & 127 for i in range(max(1, -(-number.bit_length() // 7)))]
    return bytes([group | 128 for group in groups[:-1]] + groups[-1:])


ZERO, ONE = b"\0", b"\x01"
BY_HAND = {
    "a varint that ends in 0": raw(0, 0, (b"\x81\0",), b"", bytes(4)),
    "a varint of ten bytes": raw(0, 0, (b"\x80" * 9 + b"\x01",), b"", b""),
    "a varint cut off": raw(0, 0, (b"\x81",), b"", b""),
    "dimensions cut off": raw(0, 0, (b"",) * 3, b"", b""),
    "levels of Full": raw(0, 1, (ONE,), b"", bytes(4)),
    "too many numbers for zeros to be left out": raw(
        0, 1, (varint(64),), b"", varint(9) + bytes(36) + b"\xff\1" + bytes(6)
    ),
    "a place of Full without a number": raw(0, 1, (varint(64),), b"", varint(1) + bytes(4) + b"\3" + bytes(7)),
    "fewer numbers than it says": raw(0, 1, (varint(64),), b"", varint(8) + bytes(4)),
    "no count of numbers": raw(0, 1, (varint(64),), b"", b""),
    "QSGD of no levels": raw(1, 1, (ONE,), b"\0\0\0", b"\0\0\x80?\0"),
    "QSGD of too many levels": raw(1, 0, (ONE,), varint(2**62) + b"\0\0", bytes(4)),
    "QSGD of an unknown norm": raw(1, 0, (ONE,), b"\x04\0\x02", bytes(4)),
    "NUQSGD of too many levels": raw(2, 0, (ONE,), varint(1023) + b"\0\0", bytes(4)),
    "an axis too many": raw(1, 0, (ONE,), b"\x04\x05\0", bytes(4)),
    "no axis at all": raw(1, 0, (ONE,), b"\x04\x01\0", bytes(4)),
    "a code of no levels": raw(1, 1, (ONE,), b"\x04\0\0", bytes(4)),
    "levels of no code": raw(1, 0, (ONE,), b"\x04\0\0", b"\0\0\x80?\0"),
    "Sign, neither drawn nor kept": raw(4, 0, (ONE,), b"\x02\0", bytes(4)),
    "Half of an unknown format": raw(5, 0, (ONE,), b"\x02\0", bytes(2)),
    "Half, rounded in an unknown way": raw(5, 0, (ONE,), b"\0\x02", bytes(2)),
    "no entry of one": raw(6, 1, (ONE,), b"\0", b"\0"),
    "two entries of one": raw(7, 1, (ONE,), b"\x02", bytes(8) + b"\x01"),
    "a number without a place": raw(7, 1, (ONE,), b"\x01", bytes(4) + b"\0"),
    "a place without a number": raw(7, 1, (b"\x02",), b"\x01", bytes(4) + b"\x03"),
    "places drawn for TopK": raw(7, 7, (ONE,), b"\x01", bytes(4) + bytes(20)),
    "places drawn from 16 bytes": raw(6, 7, (ONE,), b"\x01", bytes(4) + bytes(16)),
    "places drawn from 24 bytes": raw(6, 7, (ONE,), b"\x01", bytes(4) + bytes(24)),
    "a shape that no array can have": raw(0, 0, (varint(2**40), varint(2**40), ZERO), b"", b""),
    "a signalling NaN": raw(5 | 1 << 5, 0, (ONE,), b"\x01\0", b"\x81\x7f"),
    "padding that is not 0": raw(4, 1, (ONE,), b"\x01\0", b"\0\0\x80?" + b"\x03"),
}


@pytest.mark.parametrize("message", BY_HAND.values(), ids=BY_HAND.keys())
def test_made_by_hand(message: bytes) -> None:
    with pytest.raises(MessageError):
        compress.decode(message)


def test_made_by_hand_and_right() -> None:
    """The messages above are refused for what they are named after: these are their like, without it."""
    for message, values in [
        (raw(0, 0, (ONE,), b"", np.float32(2).tobytes()), [2.0]),
        (raw(1, 0, (ONE,), b"\x04\0\0", bytes(4)), [0.0]),
        (raw(1, 0, (ONE,), b"\x04\x03\0", bytes(4)), [0.0]),
        (raw(4, 1, (ONE,), b"\x01\0", b"\0\0\x80?" + b"\x01"), [1.0]),
        (raw(5, 0, (ONE,), b"\0\x01", np.float16(3).tobytes()), [3.0]),
        (raw(7, 1, (b"\x02",), b"\x01", np.float32(7).tobytes() + b"\x02"), [0.0, 7.0]),
        (raw(6, 7, (ONE,), b"\x01", np.float32(7).tobytes() + bytes(20)), [7.0]),
    ]:
        assert compress.decode(message).tolist() == values
        assert wire_reader.read(message).tolist() == values


@pytest.mark.parametrize(
    "shape",
    [
        (2**28 + 1,),
        (2**14, 2**14 + 1),
        (2**62,),
        (2**63 - 1,),
        (2**32, 2**32),
        (2**62, 2**62, 2**62),
        (2**62, 0),
        (0, 2**40, 2**40),
    ],
)
@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (0, b""),
        (1, b"\x04\0\0"),
        (1, b"\x04\x02\0"),
        (1, b"\x04\x03\0"),
        (3, b""),
        (4, b"\0\0"),
        (5, b"\0\0"),
        (7, ONE),
    ],
)
def test_large_shapes_are_not_allocated(shape: tuple[int, ...], kind: int, parameters: bytes) -> None:
    message = raw(kind, 0, tuple(varint(n) for n in shape), parameters, bytes(8))
    tracemalloc.start()
    try:
        with pytest.raises(MessageError):
            compress.decode(message)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_the_number_of_a_compressor_fits_its_five_bits() -> None:
    class Strange(Full):
        wire_id = 32

    with pytest.raises(ValueError, match="wire_id must be from 0 to 31, got 32"):
        one_message(Strange())


def test_limit() -> None:
    [message] = Full().encode(Full().quantize(np.zeros((1, 10)), Draws(0, 0, np.arange(1)), PURPOSE))
    assert compress.decode(message, limit=10).shape == (10,)
    with pytest.raises(MessageError, match="limit"):
        compress.decode(message, limit=9)


def test_compressors_with_codes_need_not_agree_on_one() -> None:
    arrays = make("normal", (1, 40), 0)
    for codec in CODECS:
        message = one_message(QSGD(4, codec=codec), arrays)
        assert same(QSGD(4).decode([message], (40,), np.float64)[0], compress.decode(message))


#: Messages of version 1 as they must be read for good: QSGD(9) of sixty numbers, in each code.
KEPT = {
    "fixed": (
        "66700101113c0980080019cc0441cb2494d249a82594104a09a994564249ad94144a4a2565143a49259492524925a45442c9"
        "a4040aeec626"
    ),
    "omega": ("66700101133c0980080019cc0441db81b8b449142969619202190a080e32210d8404a41c850382d2"),
    "rans": ("66700101153c0980080019cc044100046f4bc31e4a6500ef34fb6f8a89f9f2d695395c0235a2ec48a3a0cc"),
    "adaptive": "66700101183c0980080019cc0441915780a8569e0cac0ff9943659fa869395cd0059aad200",
}
#: The same in codes that are no longer read.
FORMER = {
    "gamma": ("66700101123c0980080019cc04418cac7b656ad555b65a6cd1228514f552172955a426079314d6b1"),
    "rice": ("66700101143c0980080019cc0441e07de2f44f8ac6933d96cdbe752636d3261f8d1521cc"),
    "ans": ("66700101163c0980080019cc044100046f4bbc9d13ec59cef516564ab6810a6eeff05083980a0000000000000000c10da9cc"),
}


@pytest.mark.parametrize("codec", CODECS[:-1])
def test_messages_of_version_one_stay_readable(codec: str) -> None:
    expected = wire_reader.read(bytes.fromhex(KEPT["fixed"]))
    x = np.random.default_rng(3).standard_normal((1, 60)).astype(np.float32)
    assert abs(expected - x[0]).max() < np.linalg.norm(x) / 9
    [values] = QSGD(9).decode([bytes.fromhex(KEPT[codec])], (60,), np.float32)
    np.testing.assert_array_equal(values, expected)
    quantized = QSGD(9).quantize(x, Draws(1, 2, np.array([3])), PURPOSE)
    assert QSGD(9, codec=codec).encode(quantized)[0].hex() == KEPT[codec]


@pytest.mark.parametrize("code", ["gamma", "rice", "ans"])
def test_former_codes_are_refused_by_name(code: str) -> None:
    message = bytes.fromhex(FORMER[code])
    for decode in (compress.decode, lambda m: QSGD(9).decode([m], (60,), np.float32)):
        with pytest.raises(MessageError, match=f"(?i)code [246] .*{code}.* no longer reads; the codes are 'fixed'"):
            decode(message)
    with pytest.raises(ValueError, match="no longer used"):
        wire_reader.read(message)


@pytest.mark.parametrize("kind", KINDS)
def test_auto_is_the_shortest_of_the_codes(kind: str) -> None:
    for size in (1, 30, 700, 5000):
        x = make(kind, (2, size), 3)
        for levels in (1, 30, 5000):
            quantized = QSGD(levels).quantize(x, Draws(1, 2, np.arange(2)), PURPOSE)
            *others, adaptive = [QSGD(levels, codec=c).nbits(quantized) for c in CODECS[:-1]]
            least, bits = np.min(others, axis=0), QSGD(levels).nbits(quantized)
            if size <= 4096:
                np.testing.assert_array_equal(bits, np.minimum(least, adaptive))
            elif levels <= 127:  # the adaptive code is slower, and not tried
                np.testing.assert_array_equal(bits, least)
            else:  # it must save a 64th
                assert all(
                    b in (a, o) and b <= min(o, a * 65 / 64) for a, o, b in zip(adaptive, least, bits, strict=True)
                )


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("size", "zeros"),
    [*itertools.product([300, 3000], range(4)), (32_768, 1), (32_768, 2), (60_000, 1)],
)
def test_tokens_that_hardly_occur_have_a_frequency(codec: str, size: int, zeros: int) -> None:
    """Levels of ±1 with very few zeros: a model that forgets the zeros would be the cheapest."""
    x = np.where(np.random.default_rng(0).random((1, size)) < 0.5, 1.0, -1.0)
    x[0, 100 * np.arange(zeros)] = 0.0
    for compressor in (QSGD(1, block=None, norm="max", codec=codec), Natural(codec=codec)):
        check_messages(compressor, x)


def test_states_that_are_almost_full() -> None:
    """The words that four states can hold back are allowed for: 160 positions spread over all four."""
    for size in (45_649, 45_726, 45_733, 45_740):
        x = np.zeros((1, size))
        x[0, 4 * np.random.default_rng(size).permutation(size // 4 - 1)[:160] + np.arange(160) % 4] = 1.0
        check_messages(TopK(160, codec="rans"), x)


def test_runs_of_one_level() -> None:
    """They take almost nothing in the adaptive code; a carry may go through many bytes."""
    check_messages(Sign(random=False, block=None, codec="adaptive"), np.linspace(1.0, -1.0, 3000)[None])
    check_messages(TopK(0.1, codec="adaptive"), np.repeat([9.0, 1.0], [300, 2700])[None])
    for levels in (1, 127):
        x = np.repeat([1.0, -1.0], 1000)[None]
        check_messages(QSGD(levels, norm="max", codec="adaptive"), x)


@pytest.mark.parametrize("codec", ["rans", "adaptive"])
def test_words_stay_within_their_bound_in_the_worst_order(codec: str) -> None:
    """Tokens ordered so that each step rounds up as much as it can, as far as a greedy order finds that."""
    generator = np.random.default_rng(1)
    for weights in ([0.9, 0.09, 0.01], [0.5, 0.499, 0.001], np.full(255, 1 / 255)):
        levels = generator.choice(len(weights), 20_000, p=np.array(weights) / np.sum(weights)) - len(weights) // 2
        for order in (np.sort(levels), np.sort(levels)[::-1], levels, levels[np.argsort(levels % 7, kind="stable")]):
            x = order.astype(float)[None]
            x[0, 0] = 127.0
            check_messages(QSGD(127, block=None, norm="max", codec=codec), x)
