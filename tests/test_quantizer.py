"""The compressors: unbiased where they say so, within their variance bounds, with the values they promise.

That bits and bytes are right is in ``test_wire.py``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import fpdfp
from fpdfp import QSGD, compress
from fpdfp.compress import NUQSGD, Full, Half, Natural, RandK, Sign, TopK
from fpdfp.rng import Draws

ONE = Draws(0, 0, np.array([0]))


@st.composite
def messages(draw: Any) -> tuple[QSGD, Any]:
    quantizer = QSGD(
        levels=draw(st.sampled_from([1, 2, 5, 20, 1000, 2**20])),
        block=draw(st.sampled_from([None, 1, 3, 16, 1000])),
        norm=draw(st.sampled_from(["l2", "max"])),
    )
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    shape = draw(st.sampled_from([(1,), (5,), (40,), (3, 7), (2, 3, 4), (300,), (2100,)]))
    width = 32 if dtype == np.float32 else 64
    elements = st.one_of(st.just(0.0), st.floats(-(2.0**99), 2.0**99, width=width))
    return quantizer, draw(arrays(dtype, (2, *shape), elements=elements))


@given(messages())
def test_values_are_the_neighbouring_levels(message: tuple[QSGD, Any]) -> None:
    """Q(x)_i is one of the two multiples of ‖x‖/s around x_i, and keeps its sign."""
    quantizer, values = message
    quantized = quantizer.quantize(values, Draws(1, 2, np.arange(2)), 16)
    decoded = quantizer.dequantize(quantized)
    assert decoded.shape == values.shape
    assert decoded.dtype == values.dtype
    assert quantized.levels is not None
    assert quantized.scales is not None
    assert abs(quantized.levels).max() <= quantizer.levels
    block = quantizer.block or values[0].size
    unit = np.repeat(quantized.scales.astype(np.float64) / quantizer.levels, block, axis=1)[:, : values[0].size]
    flat, out = values.reshape(2, -1).astype(np.float64), decoded.reshape(2, -1).astype(np.float64)
    assert (abs(out - flat) <= unit * (1 + 1e-5)).all()
    assert (out * flat >= 0).all()


@given(messages())
def test_norms_are_rounded_up_by_less_than_a_float32(message: tuple[QSGD, Any]) -> None:
    quantizer, values = message
    quantized = quantizer.quantize(values, Draws(1, 2, np.arange(2)), 16)
    assert quantized.scales is not None
    norms = quantized.scales.astype(np.float64)
    block = quantizer.block or values[0].size
    flat = values.reshape(2, -1).astype(np.longdouble)
    for b in range(norms.shape[1]):
        part = flat[:, b * block : (b + 1) * block]
        exact = abs(part).max(axis=1) if quantizer.norm == "max" else np.sqrt((part**2).sum(axis=1))
        assert (norms[:, b] >= exact * (1 - 1e-13)).all()
        assert (norms[:, b] <= exact * (1 + 2e-7) + 2e-45).all()


TRIALS = 20_000
SPREAD = np.copysign(np.geomspace(0.02, 1.0, 30), np.random.default_rng(7).standard_normal(30))
UNBIASED = [
    *(QSGD(s, block=b, norm=n) for s in (1, 4, 20) for b in (None, 7) for n in ("l2", "max")),
    QSGD(4, block=(0,)),
    *(NUQSGD(s, block=b, norm=n) for s in (1, 3, 8) for b in (None, 7) for n in ("l2", "max")),
    Natural(),
    Sign(),
    Sign(block=7),
    RandK(1),
    RandK(7),
    RandK(0.5),
    Half("float16"),
    Half("bfloat16"),
    Full(),
]


@pytest.mark.parametrize("compressor", UNBIASED, ids=repr)
def test_unbiased_with_bounded_variance(compressor: compress.Compressor) -> None:
    """20,000 draws of 30 entries: each mean within 5.5 standard errors, the variance within its bound.

    The chance of a false alarm is 4e-8 a comparison, about 1e-6 a test and 4e-5 for all of them together (normal
    tails; the seeds are fixed, so it is seen at once or never). A quantizer that always rounds to the nearest
    level is hundreds of standard errors away. A draw has 32 bits, and a scale is rounded up by up to one part in
    2^23: means may be off by that.
    """
    assert compressor.unbiased
    x = SPREAD.reshape(5, 6)
    draws = Draws(11, 0, np.arange(TRIALS))
    values = compressor.compress(np.broadcast_to(x, (TRIALS, 5, 6)), draws, 16).values
    error = values - x
    deviation = error.std(axis=0)
    # A rare outcome of chance p gives a standard error from p·TRIALS samples: allow for those never seen.
    largest = abs(values).max(axis=0) + abs(x)
    allowed = 5.5 * deviation / math.sqrt(TRIALS) + 20 * largest / TRIALS + 2.5e-7
    assert (abs(error.mean(axis=0)) <= allowed).all()

    squares = (error**2).sum(axis=(1, 2))
    uncertainty = squares.std() / math.sqrt(TRIALS)
    assert squares.mean() - 5.5 * uncertainty <= compressor.omega((5, 6)) * (x**2).sum()


@pytest.mark.parametrize("norm", ["l2", "max"])
@pytest.mark.parametrize("block", [None, 7])
@pytest.mark.parametrize("levels", [1, 4, 20])
def test_variances_are_those_of_the_probabilities(norm: str, block: int | None, levels: int) -> None:
    """The exact variances of Q_s: they would show a wrong step or a wrong norm too."""
    d = 30 if block is None else block
    sizes = [part @ part if norm == "l2" else abs(part).max() ** 2 for part in np.split(SPREAD, range(d, 30, d))]
    unit = np.repeat(np.sqrt(sizes) / levels, d)[:30]
    fraction = (abs(SPREAD) / unit) % 1.0
    variance = fraction * (1 - fraction) * unit**2

    quantizer = QSGD(levels, block=block, norm=norm)
    error = quantizer.compress(np.broadcast_to(SPREAD, (TRIALS, 30)), Draws(11, 0, np.arange(TRIALS)), 16).values
    squares = ((error - SPREAD) ** 2).sum(axis=1)
    assert squares.mean() == pytest.approx(variance.sum(), abs=5.5 * squares.std() / math.sqrt(TRIALS))


def test_variances_between_powers_of_two() -> None:
    """(2^(e+1) − x)(x − 2^e) for each entry, natural and NUQSGD."""
    x = np.array([3.0, -5.0, 0.7, 1.0, 0.01])
    lower = 2.0 ** np.floor(np.log2(abs(x)))
    variance = (2 * lower - abs(x)) * (abs(x) - lower)
    for compressor, scale in ((Natural(), 1.0), (NUQSGD(20, norm="max"), 0.8)):
        # With the largest entry −5 as the norm, the levels are 5, 5/2, …: scaled, they are powers of two again.
        y = x * scale if isinstance(compressor, Natural) else np.array([8.0, *(x[[0, 2, 3, 4]])])
        expected = variance if isinstance(compressor, Natural) else np.array([0.0, *variance[[0, 2, 3, 4]]])
        draws = Draws(5, 0, np.arange(TRIALS))
        errors = compressor.compress(np.broadcast_to(y, (TRIALS, 5)), draws, 16).values - y
        squares = errors**2
        allowed = 5.5 * squares.std(axis=0) / math.sqrt(TRIALS) + 1e-12
        assert (abs(squares.mean(axis=0) - expected) <= allowed).all()


def test_bounds_hold_where_variances_are_largest() -> None:
    """Exact variances of Q_s, and of powers of two, at points halfway between levels, for all scales and sizes."""
    for s in (1, 2, 7, 100, 2**12):
        for d in (1, 2, 5, 64):
            for fraction in (0.3, 0.5, 0.7):
                y = np.full(d, fraction / s)
                y[0] = math.sqrt(max(0.0, 1.0 - (d - 1) * y[0] ** 2))
                y /= np.linalg.norm(y)
                scaled = (abs(y) * s) % 1.0
                variance = float((scaled * (1 - scaled)).sum()) / s**2
                assert variance <= QSGD(s, None).omega(d)
                largest = abs(y).max()
                scaled = (abs(y) / largest * s) % 1.0
                variance = float((scaled * (1 - scaled)).sum()) * (largest / s) ** 2
                assert variance <= QSGD(s, None, "max").omega(d) * float(y @ y)
    assert Natural().omega(5) == pytest.approx(2 / 9 / (16 / 9), rel=1e-6)  # at 4/3 of a power of two
    assert QSGD(2**24 - 1).omega(1) > 2.0**-48  # float32 has no more digits than that


@pytest.mark.parametrize(
    "compressor", [TopK(1), TopK(7), TopK(0.4), Sign(random=False), Half("bfloat16", random=False)], ids=repr
)
def test_biased_ones_say_so_and_keep_their_bounds(compressor: compress.Compressor) -> None:
    assert not compressor.unbiased
    x = np.random.default_rng(3).standard_normal((500, 30)) * np.geomspace(1e-3, 1e3, 500)[:, None]
    error = compressor.compress(x, Draws(0, 0, np.arange(500)), 16).values - x
    assert ((error**2).sum(axis=1) <= compressor.omega(30) * (x**2).sum(axis=1) * (1 + 1e-12)).all()


def test_a_method_that_needs_unbiased_messages_refuses_others() -> None:
    problem = fpdfp.Problem(fpdfp.losses.Logistic(np.eye(4), np.array([1.0, -1.0, 1.0, -1.0])), fpdfp.penalties.L1(0.1))
    with pytest.raises(ValueError, match=r"compressor must be unbiased for FPDFP, .* got TopK\(k=2"):
        fpdfp.solve(problem, fpdfp.FPDFP(), rounds=2, compressor=TopK(2))
    assert fpdfp.solve(problem, rounds=2, compressor=RandK(2)).rounds == 2


def test_the_largest_entries_are_chosen_the_first_of_equal_ones() -> None:
    generator = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        x = (0.1 * generator.integers(-4, 5, (6, 1000))).astype(dtype)
        for k in (1, 10, 500, 999, 1000, 5000):
            values = TopK(k).compress(x, Draws(0, 0, np.arange(6)), 16).values
            order = np.argsort(-abs(x), axis=1, kind="stable")[:, :k]
            expected = np.zeros_like(x)
            np.put_along_axis(expected, order, np.take_along_axis(x, order, axis=1), axis=1)
            np.testing.assert_array_equal(values, expected)


def test_random_subsets_have_the_size_asked_for() -> None:
    x = np.ones((50, 333))
    values = RandK(0.1).compress(x, Draws(0, 3, np.arange(50)), 16).values
    assert ((values != 0).sum(axis=1) == 34).all()
    np.testing.assert_array_equal(values[values != 0], 333 / 34)
    assert len({tuple(np.flatnonzero(row)) for row in values}) == 50


@given(arrays(np.float32, (1, 50), elements=st.floats(-(2.0**15), 2.0**15, width=32)))
def test_nearest_half_precision_is_that_of_numpy(x: Any) -> None:
    np.testing.assert_array_equal(Half("float16", random=False).compress(x, ONE, 16).values, x.astype(np.float16))
    bits = x.view(np.uint32).astype(np.uint64)
    nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    np.testing.assert_array_equal(Half("bfloat16", random=False).compress(x, ONE, 16).values, nearest)


@given(arrays(np.float64, (1, 40), elements=st.floats(-(2.0**99), 2.0**99)))
def test_natural_compression_gives_the_powers_around(x: Any) -> None:
    out = Natural().compress(x, ONE, 16).values
    big = abs(x) >= abs(x).max() * 2.0**-1000
    mantissa, exponent = np.frexp(abs(x[big]))
    lower, upper = np.ldexp(0.5, exponent), np.ldexp(np.where(mantissa == 0.5, 0.5, 1.0), exponent)
    lower[x[big] == 0] = upper[x[big] == 0] = 0.0
    assert ((abs(out[big]) == lower) | (abs(out[big]) == upper)).all()
    assert (out * x >= 0).all()


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 5)])
def test_slices_along_axes_are_blocks(shape: tuple[int, ...]) -> None:
    """One norm for each index along the axes: the same as quantizing every slice by itself."""
    x = np.random.default_rng(0).standard_normal((2, *shape))
    for axes in {(0,), (len(shape) - 1,), tuple(range(len(shape)))}:
        quantizer = QSGD(7, block=axes, norm="max")
        quantized = quantizer.quantize(x, Draws(0, 0, np.arange(2)), 16)
        others = tuple(i + 1 for i in range(len(shape)) if i not in axes)
        expected = abs(x).max(axis=others) if others else abs(x)
        assert quantized.scales is not None
        np.testing.assert_allclose(quantized.scales.reshape(expected.shape), expected, rtol=2e-7)
        spread = np.expand_dims(expected, others) if others else expected
        assert (abs(quantizer.dequantize(quantized) - x) <= spread / 7 * (1 + 1e-6)).all()
        assert quantizer.omega(shape) == pytest.approx(QSGD(7, None, "max").omega(x[0].size // expected[0].size))


@pytest.mark.parametrize("compressor", UNBIASED, ids=repr)
def test_draws_depend_on_client_round_and_purpose_alone(compressor: compress.Compressor) -> None:
    x = np.random.default_rng(0).standard_normal((3, 20, 35))
    together = compressor.compress(x, Draws(4, 6, np.array([2, 9, 5])), 17)
    for i, client in enumerate([2, 9, 5]):
        alone = compressor.compress(x[i : i + 1], Draws(4, 6, np.array([client])), 17)
        np.testing.assert_array_equal(alone.values[0], together.values[i])
        assert alone.bits[0] == together.bits[i]
    if not isinstance(compressor, Full):
        other = compressor.compress(x, Draws(4, 6, np.array([2, 9, 5])), 16).values
        assert (other != together.values).any()


@pytest.mark.parametrize("compressor", [*UNBIASED, Sign(random=False), TopK(2)], ids=repr)
def test_what_is_not_finite_is_refused(compressor: compress.Compressor) -> None:
    values = [np.nan, np.inf, -np.inf]
    if not isinstance(compressor, Full | RandK | TopK):  # those send float64 as it is
        values.append(1e40)
    for value in values:
        for position in (0, 4, 9):
            x = np.ones((2, 5, 2))
            x[1].flat[position] = value
            with pytest.raises(FloatingPointError, match="a message holds NaN, infinities"):
                compressor.quantize(x, Draws(0, 0, np.arange(2)), 16)


def test_what_overflows_when_it_is_scaled_up_is_refused() -> None:
    x = np.full((1, 100), 3e38, dtype=np.float32)
    with pytest.raises(FloatingPointError, match="NaN, infinities or values beyond"):
        RandK(1).compress(x, ONE, 16)
    with pytest.raises(FloatingPointError, match="beyond the range of float16"):
        Half("float16").compress(x, ONE, 16)
    with pytest.raises(FloatingPointError, match="NaN, infinities or values beyond"):
        Natural().compress(x, ONE, 16)


@pytest.mark.parametrize("scale", [5e-324, 2e-313, 1e-300, 1e-38, 1e-20, 1e37])
def test_tiny_and_huge_vectors(scale: float) -> None:
    x = scale * np.array([[3.0, -4.0, 0.0, 1e-3]])
    values = QSGD(1000).compress(x, ONE, 16).values
    assert np.isfinite(values).all()
    assert abs(values - x).max() <= max(5 * scale / 1000 * 1.001, 1.5e-45)
    natural = Natural().compress(x, ONE, 16).values
    assert (abs(natural - x) <= abs(x)).all()


@pytest.mark.parametrize("compressor", [QSGD(4), NUQSGD(4), Natural(), Sign(), RandK(1), Half("float16")], ids=repr)
@pytest.mark.parametrize(
    "clients",
    [np.array([0]), np.array([], int), np.arange(4), np.zeros((3, 1), int), np.array([0.0, 1.0, 2.0]), None,
     np.array([0, 1, -1]), np.array([0, 1, 2**32]), np.array(["a", "b", "c"])],
)  # fmt: skip
def test_a_client_for_every_row(compressor: compress.Compressor, clients: Any) -> None:
    """Kernels read a client's number for every row: too few would be read from beyond the array."""
    with pytest.raises(ValueError, match="draws: clients must be"):
        compressor.compress(np.ones((3, 5)), Draws(0, 0, clients), 16)


def test_numbers_of_clients_may_be_of_any_integer_type() -> None:
    x = np.random.default_rng(0).standard_normal((3, 50))
    expected = QSGD(3).compress(x, Draws(0, 0, np.array([5, 1, 9])), 16).values
    for clients in (np.array([5, 1, 9], np.uint8), np.array([5, 0, 1, 0, 9])[::2], [5, 1, 9]):
        np.testing.assert_array_equal(QSGD(3).compress(x, Draws(0, 0, clients), 16).values, expected)


def test_what_another_compressor_quantized_is_refused() -> None:
    x = np.ones((1, 600))
    quantized = QSGD(4).quantize(x, ONE, 16)
    for other in (QSGD(5), QSGD(4, block=2), NUQSGD(4), Sign(), TopK(2), Full(), Half("float16")):
        for use in (other.dequantize, other.nbits, other.encode):
            with pytest.raises(ValueError, match="quantized must come from"):
                use(quantized)
    assert QSGD(4, codec="fixed").nbits(quantized)[0] > 0


@pytest.mark.parametrize("compressor", [*UNBIASED, TopK(2)], ids=repr)
def test_no_clients_and_no_entries(compressor: compress.Compressor) -> None:
    for shape in ((0, 5, 2), (2, 0, 3)):
        draws = Draws(0, 0, np.arange(shape[0]))
        quantized = compressor.quantize(np.zeros(shape), draws, 16)
        assert compressor.dequantize(quantized).shape == shape
        messages = compressor.encode(quantized)
        assert len(messages) == len(compressor.nbits(quantized)) == shape[0]
        assert compressor.decode(messages, shape[1:], np.float64).shape == shape


def test_decoded_arrays_can_be_written_to() -> None:
    for compressor in (Full(), QSGD(3), Half("float16"), TopK(2)):
        messages = compressor.encode(compressor.quantize(np.ones((1, 5)), ONE, 16))
        compressor.decode(messages, (5,), np.float64)[0, 0] = 7.0
        compress.decode(messages[0])[0] = 7.0


@pytest.mark.slow
def test_any_layout_of_an_array_gives_the_same() -> None:
    x = np.random.default_rng(0).standard_normal((2, 30, 40))
    draws = Draws(0, 0, np.arange(2))
    wide = np.zeros((4, 60, 40))
    wide[::2, ::2] = x
    frozen = x.copy()
    frozen.flags.writeable = False
    for compressor in (QSGD(3), Natural(), TopK(5), RandK(0.1), Half("bfloat16"), Full()):
        expected = compressor.compress(x, draws, 16)
        for same in (np.asfortranarray(x), wide[::2, ::2], x[:, ::-1][:, ::-1], x.astype(">f8"), frozen):
            found = compressor.compress(same, draws, 16)
            np.testing.assert_array_equal(found.values, expected.values)
            np.testing.assert_array_equal(found.bits, expected.bits)


def test_zero_is_sent_as_zero_and_takes_a_scale_a_block() -> None:
    values, bits = QSGD(5, block=4).compress(np.zeros((2, 10)), Draws(0, 0, np.arange(2)), 16)
    np.testing.assert_array_equal(values, np.zeros((2, 10)))
    assert bits.tolist() == [8 * (9 + 3 * 4 + 4)] * 2


def test_numpy_integers_are_taken_as_integers() -> None:
    assert QSGD(np.uint8(16)).omega(100) == QSGD(16).omega(100)
    assert QSGD(np.int32(65536), block=np.int8(7)) == QSGD(65536, block=7)


def test_full_precision_counts_the_bits_of_the_numbers() -> None:
    full = Full()
    assert full.compress(np.zeros((3, 4, 5)), Draws(0, 0, np.arange(3)), 16).bits.tolist() == [20 * 64 + 8 * 11] * 3
    assert full.compress(np.zeros((1, 5), np.float32), ONE, 16).bits.tolist() == [5 * 32 + 8 * 10]
    assert full.omega(10) == 0.0


BAD: list[tuple[Any, str]] = [
    (lambda: QSGD(0), "levels must be an integer of at least 1"),
    (lambda: QSGD(-3), "levels must be an integer of at least 1"),
    (lambda: QSGD(2.5), "levels must be an integer"),
    (lambda: QSGD(True), "levels must be an integer"),
    (lambda: QSGD(4, block=0), "block must be an integer of at least 1"),
    (lambda: QSGD(4, block=(0, 0)), "block: axes must be different"),
    (lambda: QSGD(4, block=()), "block: axes must be different and at least one"),
    (lambda: QSGD(4, block=(-1,)), "block: an axis must be an integer of at least 0"),
    (lambda: QSGD(4, block=(2,)).omega((3, 4)), r"block: axis 2 does not exist in an array of shape \(3, 4\)"),
    (lambda: QSGD(4, block=(0,)).omega(12), "shape: give the shape of the array, not its size"),
    (lambda: QSGD(4, block=(1,)).compress(np.ones((1, 3)), ONE, 16), "block: axis 1 does not exist in an array"),
    (lambda: QSGD(4, norm="l1"), "norm must be one of 'l2', 'max'"),
    (lambda: QSGD(4, codec="zip"), "codec must be one of 'fixed', 'omega', 'rans', 'adaptive', 'auto'"),
    (lambda: NUQSGD(0), "levels must be an integer of at least 1 and at most 1022"),
    (lambda: NUQSGD(2000), "levels must be an integer of at least 1 and at most 1022"),
    (lambda: Natural(codec="elias"), "codec must be one of"),
    (lambda: Sign(random=1), "random must be True or False"),
    (lambda: Half("float8"), "format must be one of 'float16', 'bfloat16'"),
    (lambda: Half("float16", random=None), "random must be True or False"),
    (lambda: QSGD(4, block="all"), "block must be an integer of at least 1, a tuple of axes or None, got 'all'"),
    (lambda: QSGD(4, block=2**62), "block must be an integer of at least 1 and at most"),
    (lambda: QSGD(4).omega(-5), "shape: a length must be an integer of at least 0"),
    (lambda: QSGD(4).omega("5"), "shape: a length must be an integer"),
    (lambda: RandK(4).omega((2.5,)), "shape: a length must be an integer"),
    (lambda: TopK(0), "k must be an integer of at least 1"),
    (lambda: TopK(1.5), "k must be an integer of at least 1 or a share above 0 and below 1"),
    (lambda: TopK(1.0), "k must be an integer of at least 1 or a share above 0 and below 1"),
    (lambda: RandK(0.0), "k must be an integer of at least 1 or a share above 0 and below 1"),
    (lambda: RandK(math.nan), "k must be an integer of at least 1 or a share above 0 and below 1"),
    (lambda: RandK("3"), "k must be an integer of at least 1 or a share above 0 and below 1, got '3'"),
    (lambda: QSGD(4).compress([[1.0]], ONE, 16), "arrays must be a NumPy or CuPy array without a mask, got list"),
    (lambda: Full().compress([[1.0]], None, 16), "arrays must be a NumPy or CuPy array without a mask, got list"),
    (lambda: QSGD(4).compress(np.ma.ones((1, 2)), ONE, 16), "without a mask, got MaskedArray"),
    (lambda: Full().compress(np.ones((1, 2), complex), None, 16), "arrays must be float32 or float64"),
    (lambda: QSGD(4).compress(np.ones((1, 2)), None, 16), "draws must be fpdfp.rng.Draws"),
    (lambda: QSGD(4).compress(np.ones((1, 2)), Draws(-1, 0, np.array([0])), 16), "draws: seed must be an integer"),
    (lambda: RandK(1).compress(np.ones((1, 2)), Draws(0, -1, np.array([0])), 16), "draws: round must be an integer"),
    (lambda: Half("float16").compress(np.ones((1, 2)), ONE, 256), "purpose must be an integer of at least 0 and at"),
    (lambda: Sign().compress(np.ones((1, 2)), Draws(0, 0, np.array([0]), 2**24), 16), "draws: step must be"),
    (lambda: QSGD(4).encode(np.ones((1, 2))), "quantized must be what quantize\\(\\) returned, got ndarray"),
    (lambda: QSGD(4).decode(b"fp", (1,), np.float64), "messages must be a list of messages, got one"),
    (lambda: QSGD(4).decode([], 5, np.float64), "shape must be a tuple of lengths, got 5"),
    (lambda: QSGD(4).decode([], (-5,), np.float64), "shape: a length must be an integer of at least 0"),
    (lambda: QSGD(4).decode([], (5,), np.float16), "dtype must be float32 or float64, got float16"),
    (lambda: QSGD(4).decode([], (5,), np.float64, device="gpu"), "device must be one of 'cpu', 'cuda'"),
    (lambda: QSGD(4).compress(np.ones((1, 3), int), ONE, 16), "arrays must be float32 or float64"),
    (lambda: QSGD(4).compress(np.ones((1, 3), np.float16), ONE, 16), "arrays must be float32 or float64"),
    (lambda: TopK(4).compress(np.array(1.0), ONE, 16), "with a leading client axis"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_arguments_are_named(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()
