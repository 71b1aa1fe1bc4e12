"""The GPU draws, rounds and counts as the processor does, to the last bit.

``python -m tests.test_gpu`` runs the same on a machine without pytest, and prints each check as it ends. Most of the
time is the processor's: its kernels are compiled on the first run, and 92 compressors take some 5 s for each array of
70,000 numbers. The short arrays come first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fpdfp._array import to_host
from fpdfp.compress import NUQSGD, QSGD, Compressor, Full, Half, Natural, RandK, Sign, TopK
from fpdfp.rng import Draws
from tests import gpu_checks

SHAPES = [(1,), (5,), (255,), (700,), (3, 7, 50), (2, 1025), (70_000,)]
DRAWS = Draws(3, 5, np.array([4, 0, 9]))


def compressors(shape: tuple[int, ...]) -> list[Compressor]:
    blocks: list[Any] = [None, 1, 3, 100, 512, 3000, (0,), (len(shape) - 1,)]
    found: list[Compressor] = [QSGD(s, b, n) for s in (1, 20, 1000, 2**20) for b in blocks for n in ("l2", "max")]
    found += [NUQSGD(s, b, n) for s in (1, 4, 30) for b in (None, 100) for n in ("l2", "max")]
    found += [Sign(random=r, block=b) for r in (True, False) for b in (None, 100, 3000)]
    found += [Half(f, random=r) for f in ("float16", "bfloat16") for r in (True, False)]
    return [*found, Natural(), RandK(0.1), RandK(3), TopK(0.1), TopK(2), Full()]


def data(shape: tuple[int, ...], dtype: Any, kind: str) -> Any:
    generator = np.random.default_rng(1)
    x = generator.standard_normal((3, *shape))
    if kind == "sparse":
        x *= generator.random(x.shape) < 0.01
    if kind == "steps":
        x = np.round(4 * x) / 64
        x[1] = 0.0
    if kind == "tails":
        x = np.clip(generator.standard_t(1, x.shape), -3e4, 3e4)
    if kind == "tiny":
        x *= 1e-200 if dtype == np.float64 else 1e-38
    return x.astype(dtype)


def check_same(shape: tuple[int, ...], dtype: Any, kind: str) -> None:
    import cupy

    x = data(shape, dtype, kind)
    for compressor in compressors(shape):
        here = compressor.quantize(x, DRAWS, 16)
        there = compressor.quantize(cupy.asarray(x), DRAWS, 16)
        for name in ("levels", "scales", "values"):
            one, other = getattr(here, name), getattr(there, name)
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_array_equal(one, other.get(), err_msg=f"{compressor} {shape} {dtype} {kind} {name}")
        values = compressor.dequantize(here)
        assert values.dtype == x.dtype
        np.testing.assert_array_equal(values, to_host(compressor.dequantize(there)), err_msg=repr(compressor))
        np.testing.assert_array_equal(compressor.nbits(here), compressor.nbits(there), err_msg=f"{compressor} {kind}")


def check_messages(shape: tuple[int, ...], dtype: Any, kind: str) -> None:
    import cupy

    x = data(shape, dtype, kind)
    made: list[Compressor] = [QSGD(20, codec=c) for c in ("fixed", "omega", "rans", "adaptive", "auto")]
    made += [QSGD(1000, (0,), codec="fixed"), Natural(), Sign(), RandK(3), TopK(0.1), Half("float16"), Full()]
    for compressor in made:
        there = compressor.quantize(cupy.asarray(x), DRAWS, 16)
        messages = compressor.encode(there)
        assert messages == compressor.encode(compressor.quantize(x, DRAWS, 16)), f"{compressor} {shape} {kind}"
        back = compressor.decode(messages, shape, dtype, device="cuda")
        np.testing.assert_array_equal(to_host(back), to_host(compressor.dequantize(there)), err_msg=repr(compressor))


def check_bad_numbers_are_refused() -> None:
    import cupy

    for value in (np.nan, np.inf, -np.inf):
        x = cupy.ones((3, 2000))
        x[1, 1500] = value
        for compressor in compressors((2000,)):
            try:
                compressor.quantize(x, DRAWS, 16)
            except FloatingPointError:
                continue
            raise AssertionError(f"{compressor} took {value}")


def check_counts_for_every_code() -> None:
    """nbits of a GPU array is that of the same array here, for each code by itself."""
    import cupy

    for kind, codec in itertools.product(("dense", "sparse", "steps", "tails"), ("fixed", "omega", "rans", "adaptive")):
        x = data((70_000,), np.float32, kind)
        for compressor in (QSGD(20, codec=codec), QSGD(10**6, None, codec=codec), QSGD(3, (0,), codec=codec)):
            here = compressor.quantize(x, DRAWS, 16)
            there = compressor.quantize(cupy.asarray(x), DRAWS, 16)
            np.testing.assert_array_equal(
                compressor.nbits(here), compressor.nbits(there), err_msg=f"{compressor} {kind}"
            )


def check_digests() -> None:
    """Every changed bit, moved entry and other length gives another digest."""
    import cupy

    from fpdfp._cuda.digest import digest

    for dtype in (np.float32, np.float64):
        x = data((70_000,), dtype, "dense")[0]
        arrays = [x, x[:-1], np.roll(x, 1), np.where(np.arange(len(x)) == 69_999, np.nextafter(x, dtype(9)), x), -x]
        found = {digest(cupy.asarray(one)) for one in arrays}
        assert len(found) == len(arrays)
        assert digest(cupy.asarray(x).reshape(100, 700)[:, ::2]) == digest(
            cupy.asarray(x.reshape(100, 700)[:, ::2].copy())
        )


CHECKS: dict[str, Callable[[], None]] = {
    "bad numbers": check_bad_numbers_are_refused,
    "counts for every code": check_counts_for_every_code,
    "digests": check_digests,
    **{
        f"{check.__name__} {shape} {dtype.__name__} {kind}": partial(check, shape, dtype, kind)
        for shape in SHAPES
        for dtype in (np.float32, np.float64)
        for kind in ("dense", "sparse", "steps", "tails", "tiny")
        for check in (check_same, check_messages)
    },
}


def test_the_gpu_does_as_the_processor_does() -> None:
    gpu_checks.run_in_test(CHECKS)


if __name__ == "__main__":
    gpu_checks.run(CHECKS)
