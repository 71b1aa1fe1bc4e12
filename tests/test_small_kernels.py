"""What stands in for kernels until they are compiled, and how kernels are chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fpdfp._kernels import elias, measure, norms, philox, quantize, rounding
from fpdfp.compress import codecs


def kernel(call: Any) -> Any:
    """The compiled kernel behind a function that may use NumPy instead."""
    return call.__wrapped__


def numbers(seed: int, rows: int, size: int, kind: str, dtype: Any) -> Any:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((rows, size)) * np.exp2(rng.integers(-40, 40, (rows, 1)))
    if kind == "tiny":
        values *= 1e-300 if dtype == np.float64 else 1e-35
    if kind == "zeros":
        values[rng.random(values.shape) < 0.8] = 0.0
        values[:: max(1, rows // 2)] = 0.0
    if kind == "powers":
        values = np.exp2(np.floor(values % 7)) * np.sign(values)
    if kind == "infinite":
        values[0, size // 2] = rng.choice([np.inf, -np.inf, np.nan])
    with np.errstate(over="ignore"):
        return values.astype(dtype)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 4),
    size=st.sampled_from([1, 3, 31, 64, 65, 256, 300, 1025, 2100]),
    block=st.sampled_from([1, 7, 64, 512, 5000]),
    levels=st.sampled_from([1, 2, 4, 20, 127, 1000, 10**6]),
    way=st.sampled_from([(quantize.UNIFORM, norms.L2), (quantize.UNIFORM, norms.MAX), (quantize.EXPONENTIAL, norms.L2),
                         (quantize.EXPONENTIAL, norms.POWER), (quantize.COIN, norms.MAX), (quantize.SIGN, norms.MEAN)]),
    kind=st.sampled_from(["plain", "tiny", "zeros", "powers", "infinite"]),
    dtype=st.sampled_from([np.float64, np.float32]),
)  # fmt: skip
def test_numpy_quantizes_and_counts_to_the_last_bit(
    seed: int, rows: int, size: int, block: int, levels: int, way: tuple[int, int], kind: str, dtype: Any
) -> None:
    values = numbers(seed, rows, size, kind, dtype)
    s = 1 if way[0] in (quantize.COIN, quantize.SIGN) else min(levels, 60) if way[0] == quantize.EXPONENTIAL else levels
    block = min(block, size)
    clients = np.arange(5, 5 + rows)
    draws = (seed & 0xFFFFFFFF, seed >> 5, 16 | 3 << 8, clients, 7)
    found = []
    for roundtrip in (kernel(quantize.roundtrip), rounding.roundtrip):
        where = np.empty((rows, size), np.int32), np.empty((rows, -(-size // block)), np.float32), np.empty_like(values)
        roundtrip(*way, values, block, s, *draws, *where)
        found.append(where)
    for compiled, plain in zip(*found, strict=True):
        assert compiled.tobytes() == plain.tobytes()
    rounded, scales, _ = found[0]
    if kind == "infinite":
        return
    bounds = (-1, 0) if way[0] in (quantize.COIN, quantize.SIGN) else (-s, s)
    for code in (measure.AUTO, measure.FIXED, measure.RICE, measure.RANS, measure.GAMMA, measure.OMEGA):
        arguments = (code, rounded, scales, block, *bounds, *codecs.tables())
        assert measure._is_small(*arguments)
        counted = np.empty(rows, np.int64), np.empty(rows, np.int64)
        kernel(measure.count_bits)(*arguments, counted[0])
        measure._count_plainly(*arguments, counted[1])
        np.testing.assert_array_equal(*counted)


@pytest.mark.parametrize("size", [1, 255, 256, 257, 1000])
def test_numpy_draws_the_words_of_the_kernel(size: int) -> None:
    clients = np.array([0, 3, 2**32 - 1])
    words = np.empty((3, size), np.uint32)
    philox.fill_words(2**32 - 1, 12345, 8 | 9 << 8, clients, 2**32 - 2, words)
    np.testing.assert_array_equal(rounding.draw_words(2**32 - 1, 12345, 8 | 9 << 8, clients, 2**32 - 2, size), words)


@pytest.mark.parametrize("kind", [elias.GAMMA, elias.OMEGA])
def test_tables_hold_the_codes_of_the_kernel(kind: int) -> None:
    table = elias.make_table(kind)
    for k in (1, 2, 3, 17, 256, elias.TABLE - 1):
        assert (int(table[k]) >> 6, int(table[k]) & 63) == elias.codeword(kind, k)
