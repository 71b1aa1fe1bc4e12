"""The quantizer Q_s: unbiased, bounded variance, exact bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fpdfp import QSGD
from fpdfp.compress import Compressor, Full
from fpdfp.rng import Draws
from tests import elias

numbers = st.one_of(st.just(0.0), st.floats(-1e30, 1e30))


@st.composite
def messages(draw: Any) -> tuple[QSGD, Any]:
    quantizer = QSGD(
        levels=draw(st.sampled_from([1, 2, 5, 20, 1000, 2**20])),
        block=draw(st.sampled_from([None, 1, 3, 16, 1000])),
        norm=draw(st.sampled_from(["l2", "max"])),
        codec=draw(st.sampled_from(["elias", "fixed"])),
    )
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    shape = draw(st.sampled_from([(1,), (5,), (40,), (3, 7), (2, 3, 4), (300,)]))
    width = 32 if dtype == np.float32 else 64
    elements = st.one_of(st.just(0.0), st.floats(-(2.0**99), 2.0**99, width=width))
    return quantizer, draw(arrays(dtype, (2, *shape), elements=elements))


@given(messages())
def test_bits_are_the_length_of_a_real_encoding(message: tuple[QSGD, Any]) -> None:
    quantizer, values = message
    quantized = quantizer.quantize(values, Draws(0, 0, np.arange(2)), 16)
    block = quantizer.block or values[0].size
    for i, bits in enumerate(quantizer.nbits(quantized).tolist()):
        levels, norms = quantized.levels[i], quantized.norms[i]
        if quantizer.codec == "elias":
            encoded = elias.encode(levels, norms, block)
            decoded, decoded_norms = elias.decode(encoded, levels.size, block)
            np.testing.assert_array_equal(decoded, levels)
            np.testing.assert_array_equal(decoded_norms, norms)
            assert bits == len(encoded)
        else:
            width = math.ceil(math.log2(2 * quantizer.levels + 1))
            sent = sum(len(levels[b * block : (b + 1) * block]) for b in range(len(norms)) if norms[b] > 0)
            assert bits == 32 * len(norms) + width * sent


@given(messages())
def test_values_are_the_neighbouring_levels(message: tuple[QSGD, Any]) -> None:
    """Q(x)_i is one of the two multiples of ‖x‖/s around x_i, and keeps its sign."""
    quantizer, values = message
    draws = Draws(1, 2, np.arange(2))
    decoded, bits = quantizer.compress(values, draws, 16)
    quantized = quantizer.quantize(values, draws, 16)
    np.testing.assert_array_equal(decoded, quantizer.dequantize(quantized, values.shape, values.dtype))
    np.testing.assert_array_equal(bits, quantizer.nbits(quantized))
    assert decoded.shape == values.shape
    assert decoded.dtype == values.dtype
    assert abs(quantized.levels).max() <= quantizer.levels
    block = quantizer.block or values[0].size
    unit = np.repeat(quantized.norms.astype(np.float64) / quantizer.levels, block, axis=1)[:, : values[0].size]
    flat, out = values.reshape(2, -1).astype(np.float64), decoded.reshape(2, -1).astype(np.float64)
    assert (abs(out - flat) <= unit * (1 + 1e-5)).all()
    assert (out * flat >= 0).all()


@given(messages())
def test_norms_are_rounded_up_by_less_than_a_float32(message: tuple[QSGD, Any]) -> None:
    quantizer, values = message
    norms = quantizer.quantize(values, Draws(1, 2, np.arange(2)), 16).norms.astype(np.float64)
    block = quantizer.block or values[0].size
    flat = values.reshape(2, -1).astype(np.longdouble)
    for b in range(norms.shape[1]):
        part = flat[:, b * block : (b + 1) * block]
        exact = abs(part).max(axis=1) if quantizer.norm == "max" else np.sqrt((part**2).sum(axis=1))
        assert (norms[:, b] >= exact * (1 - 1e-13)).all()
        assert (norms[:, b] <= exact * (1 + 2e-7) + 2e-45).all()


def test_zero_is_sent_as_zero() -> None:
    values, bits = QSGD(5, block=4).compress(np.zeros((2, 10)), Draws(0, 0, np.arange(2)), 16)
    np.testing.assert_array_equal(values, np.zeros((2, 10)))
    assert bits.tolist() == [3 * 32 + 1] * 2


@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize("block", [None, 7])
@pytest.mark.parametrize("levels", [1, 4, 20])
def test_unbiased_with_bounded_variance(norm: str, block: int | None, levels: int) -> None:
    """20,000 draws of 30 entries: each mean within 5.5 standard errors, and the variance as it must be.

    The chance of a false alarm is 4e-8 a comparison, 1e-6 a test; the seeds are fixed, so it is seen at once
    or never. A quantizer that always rounds to the nearest level is hundreds of standard errors away.
    """
    generator = np.random.default_rng(7)
    x = np.copysign(np.geomspace(0.02, 1.0, 30), generator.standard_normal(30))
    trials = 20_000
    quantizer = QSGD(levels, block=block, norm=norm)
    draws = Draws(11, 0, np.arange(trials))
    error = quantizer.compress(np.broadcast_to(x, (trials, 30)), draws, 16).values - x

    # The exact variances follow from the probabilities; they would show a wrong step or a wrong norm too.
    d = 30 if block is None else block
    sizes = [part @ part if norm == "l2" else abs(part).max() ** 2 for part in np.split(x, range(d, 30, d))]
    unit = np.repeat(np.sqrt(sizes) / levels, d)[:30]
    fraction = (abs(x) / unit) % 1.0
    variance = fraction * (1 - fraction) * unit**2
    # A draw has 32 bits and a norm is rounded up by up to one part in 2^23.
    assert (abs(error.mean(axis=0)) <= 5.5 * np.sqrt(variance / trials) + 2.5e-7 * unit * levels).all()

    squares = (error**2).sum(axis=1)
    mean, uncertainty = squares.mean(), squares.std() / math.sqrt(trials)
    assert mean == pytest.approx(float(variance.sum()), abs=6 * uncertainty)
    square = float(x @ x)
    assert mean - 5 * uncertainty <= quantizer.omega(30) * square
    assert mean - 5 * uncertainty <= min(d / levels**2, math.sqrt(d) / levels) * square


def test_draws_depend_on_client_round_and_purpose_alone() -> None:
    x = np.random.default_rng(0).standard_normal((3, 700))
    quantizer = QSGD(3, block=100)
    together = quantizer.compress(x, Draws(4, 6, np.array([2, 9, 5])), 17).values
    for i, client in enumerate([2, 9, 5]):
        alone = quantizer.compress(x[i : i + 1], Draws(4, 6, np.array([client])), 17).values
        np.testing.assert_array_equal(alone[0], together[i])
    other = quantizer.compress(x, Draws(4, 6, np.array([2, 9, 5])), 16).values
    assert (other != together).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize("position", [0, 4, 9])
def test_what_is_not_finite_is_refused(value: float, norm: str, position: int) -> None:
    x = np.ones((2, 10))
    x[1, position] = value
    with pytest.raises(FloatingPointError, match="NaN, infinities or values beyond"):
        QSGD(4, norm=norm).compress(x, Draws(0, 0, np.arange(2)), 16)


@pytest.mark.parametrize("scale", [5e-324, 2e-313, 1e-300, 1e-38, 1e-20, 1e37])
def test_tiny_and_huge_vectors(scale: float) -> None:
    x = scale * np.array([[3.0, -4.0, 0.0, 1e-3]])
    values = QSGD(1000).compress(x, Draws(0, 0, np.array([0])), 16).values
    assert np.isfinite(values).all()
    assert abs(values - x).max() <= max(5 * scale / 1000 * 1.001, 1.5e-45)


def test_numpy_integers_are_taken_as_integers() -> None:
    assert QSGD(np.uint8(16)).omega(100) == QSGD(16).omega(100)
    assert QSGD(np.int32(65536), block=np.int8(7)) == QSGD(65536, block=7)


def test_full_precision_counts_the_bits_of_the_numbers() -> None:
    full: Compressor = Full()
    assert full.compress(np.zeros((3, 4, 5)), Draws(0, 0, np.arange(3)), 16).bits.tolist() == [20 * 64] * 3
    assert full.compress(np.zeros((1, 5), np.float32), Draws(0, 0, np.arange(1)), 16).bits.tolist() == [5 * 32]
    assert full.omega(10) == 0.0


BAD: list[tuple[Any, str]] = [
    (lambda: QSGD(0), "levels must be an integer of at least 1"),
    (lambda: QSGD(-3), "levels must be an integer of at least 1"),
    (lambda: QSGD(2.5), "levels must be an integer"),
    (lambda: QSGD(True), "levels must be an integer"),
    (lambda: QSGD(4, block=0), "block must be an integer of at least 1"),
    (lambda: QSGD(4, norm="l1"), "norm must be one of 'l2', 'max'"),
    (lambda: QSGD(4, codec="zip"), "codec must be one of 'elias', 'fixed'"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_arguments_are_named(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()
