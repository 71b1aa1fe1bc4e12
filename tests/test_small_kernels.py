"""What stands in for kernels until they are compiled, and how kernels are chosen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fpdfp
from fpdfp._kernels import codes, glm, jit, philox, quantize, streams
from fpdfp._kernels.glm import Scalar
from tests.test_federation_trouble import files_of_at_most


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


#: Ways of rounding, with the scales that they are used with.
WAYS = [
    (quantize.UNIFORM, quantize.L2),
    (quantize.UNIFORM, quantize.MAX),
    (quantize.EXPONENTIAL, quantize.L2),
    (quantize.EXPONENTIAL, quantize.POWER),
    (quantize.COIN, quantize.MAX),
    (quantize.SIGN, quantize.MEAN),
]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 4),
    size=st.sampled_from([1, 3, 31, 64, 65, 256, 300, 1025, 2100]),
    block=st.sampled_from([1, 7, 64, 512, 5000]),
    levels=st.sampled_from([1, 2, 4, 20, 127, 1000, 10**6]),
    way=st.sampled_from(WAYS),
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
    for roundtrip in (kernel(quantize.roundtrip), quantize._roundtrip_plainly):
        where = np.empty((rows, size), np.int32), np.empty((rows, -(-size // block)), np.float32), np.empty_like(values)
        roundtrip(*way, values, block, s, *draws, *where)
        found.append(where)
    for compiled, plain in zip(*found, strict=True):
        assert compiled.tobytes() == plain.tobytes()
    rounded, scales, _ = found[0]
    if kind == "infinite":
        return
    bounds = (-1, 0) if way[0] in (quantize.COIN, quantize.SIGN) else (-s, s)
    for code in (streams.AUTO, streams.FIXED, streams.ADAPTIVE, streams.RANS, streams.OMEGA):
        arguments = (code, rounded, scales, block, *bounds, *streams.tables())
        assert streams._is_small(*arguments)
        counted = np.empty(rows, np.int64), np.empty(rows, np.int64)
        kernel(streams.count_bits)(*arguments, counted[0])
        streams._count_plainly(*arguments, counted[1])
        np.testing.assert_array_equal(*counted)


@pytest.mark.parametrize("size", [1, 255, 256, 257, 1000])
def test_numpy_draws_the_words_of_the_kernel(size: int) -> None:
    clients = np.array([0, 3, 2**32 - 1])
    words = np.empty((3, size), np.uint32)
    philox.fill_words(2**32 - 1, 12345, 8 | 9 << 8, clients, 2**32 - 2, words)
    np.testing.assert_array_equal(quantize.draw_words(2**32 - 1, 12345, 8 | 9 << 8, clients, 2**32 - 2, size), words)


def test_tables_hold_the_codes_of_the_kernel() -> None:
    table = codes.make_table()
    for k in (1, 2, 3, 17, 256, codes.TABLE - 1):
        assert (int(table[k]) >> 6, int(table[k]) & 63) == codes.codeword(k)


def gradients(rows: int, features: int) -> Any:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((rows, features)), np.ones(rows)
    offsets = np.linspace(0, rows, 6).astype(np.int64)
    out = np.empty((5, features))
    points = rng.standard_normal((1, features))
    slope = glm.logistic_slope.address
    form, matrix = (slope, 0.0, 0.0, None, None), (X, None, None, None)
    where = np.arange(rows), offsets, np.arange(5), None
    glm.gradients(*form, *matrix, y, *where, points, np.ones(features), out)
    return out


def test_kernels_for_one_thread_and_for_all_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for alone in (True, False):
        monkeypatch.setattr(jit.use, "one_thread", alone)
        assert jit.SMALL < 1000 * 67
        found.append(gradients(1000, 67).tobytes())
    assert found[0] == found[1]


def test_threads_are_chosen_by_time_and_small_work_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit.use, "one_thread", False)
    monkeypatch.setattr(numba, "get_num_threads", lambda: 4)
    calls, clock = 0, 0.0
    monkeypatch.setattr("fpdfp._kernels.jit.time.perf_counter", lambda: clock)

    def work() -> None:
        nonlocal calls, clock
        calls += 1
        clock += 0.002 if jit.use.one_thread == slow_alone else 0.001

    for slow_alone in (True, False):
        with jit.fastest(work, jit.SMALL + 1):
            assert jit.use.one_thread is not slow_alone
        assert not jit.use.one_thread
    assert 0 < calls <= 2 * (3 + 2 * jit.TRIALS)
    calls = 0
    with jit.fastest(work, jit.SMALL):
        assert jit.use.one_thread
    assert calls == 0


def test_a_machine_that_becomes_busy_gets_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit.use, "one_thread", False)
    watch = jit.Watch(0.001)
    for seconds in (0.0005, 0.05, 0.05, 0.05, 0.05, 0.0005, 0.0005, 0.05, 0.05):
        watch.note(seconds)
        assert not jit.use.one_thread  # a few slow rounds are chance
    for _ in range(2):
        watch.note(0.05)
    assert jit.use.one_thread


def test_rounds_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose rounds have become slow goes over to one thread, and ends with the choice that was there before."""
    monkeypatch.setattr(jit.use, "one_thread", False)
    monkeypatch.setattr(jit, "_time_alone", lambda work: 1e-9)
    X = np.random.default_rng(0).standard_normal((1000, 100))
    losses = fpdfp.losses.LeastSquares(X, X[:, 0], clients=np.arange(1000) % 4)
    seen: list[bool] = []
    fpdfp.solve(
        fpdfp.Problem(losses, fpdfp.penalties.Zero()), fpdfp.PDFP(), rounds=12,
        callbacks=[lambda run: seen.append(jit.use.one_thread)],
    )  # fmt: skip
    assert seen == [False] * (jit.TRIALS - 1) + [True] * (13 - jit.TRIALS)
    assert not jit.use.one_thread


@pytest.mark.parametrize(
    ("alone", "together", "wanted"), [(0.001, 0.0, True), (0.05, 0.01, False), (0.05, 0.048, True)]
)
def test_threads_are_chosen_by_the_work_itself(
    monkeypatch: pytest.MonkeyPatch, alone: float, together: float, wanted: bool
) -> None:
    """Nothing is done twice; the first of each, which compiles, does not count; short work is one thread's."""
    clock, slow = [0.0], {True: 1.0, False: 1.0}
    monkeypatch.setattr("fpdfp._kernels.jit.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr(jit.use, "one_thread", False)
    trial, done = jit.Trial(), list[bool]()
    for _ in range(12):
        with trial.working(timed=True):
            done.append(jit.use.one_thread)
            clock[0] += slow[done[-1]] + (alone if done[-1] else together)
            slow[done[-1]] = 0.0
        with trial.working(timed=False):
            assert jit.use.one_thread is (trial.alone is True)
    assert done[:2] == [True, True]
    assert (trial.alone, done[-1], jit.use.one_thread) == (wanted, wanted, False)
    assert done.count(False) == (0 if alone < jit.SHORT else 5 if wanted else 6)


def test_the_kernel_takes_over_when_numpy_has_taken_as_long_as_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(jit, "time", types.SimpleNamespace(perf_counter=lambda: 0.01 * len(seen)))

    def plain(size: int) -> None:
        seen.append("plain")

    @jit.until_compiled(plain, lambda size: size < 5, 0.025)
    @numba.njit  # type: ignore[untyped-decorator]
    def kernel(size: Any) -> None:
        pass

    for size in (1, 9, 1, 1, 1, 1):
        kernel(size)
    assert seen == ["plain"] * 3


def test_a_line_says_that_kernels_are_compiled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jit._Notice, "AFTER", 0.05)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    notice = jit._Notice()
    with caplog.at_level("INFO", logger="fpdfp.kernels"):
        for _ in range(2):  # each compilation is short; together they are not
            notice.on_start(None)
            time.sleep(0.03)
            notice.on_end(None)
        notice.on_start(None)
        time.sleep(0.2)
        notice.on_end(None)
    assert len(caplog.records) == 1
    assert "compiling" in caplog.text
    assert "compiling" in capsys.readouterr().err


def double(x: float) -> float:
    return 2.0 * x


def add(z: float, y: float, p: float, q: float) -> float:
    return z + y + p + q


def test_a_full_disk_keeps_no_machine_code_and_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="fpdfp.kernels"), files_of_at_most(100):
        assert jit.serial(double)(2.0) == 4.0
        assert Scalar(add)(np.ones(1), np.ones(1), (1.0, 1.0)) == 4.0
    kept = [record.getMessage() for record in caplog.records if "could not be kept" in record.getMessage()]
    assert any("double" in message for message in kept)
    assert any("add" in message for message in kept)


FIRST = """
import time
started = time.perf_counter()
from sklearn.datasets import load_breast_cancer
from fpdfp.models import FederatedLogisticRegression
X, y = load_breast_cancer(return_X_y=True)
FederatedLogisticRegression(standardize=True).fit(X, y, groups=[i % 3 for i in range(len(y))])
print(time.process_time(), time.perf_counter() - started)
"""


@pytest.mark.slow
def test_the_first_fit_of_a_fresh_machine_takes_seconds(tmp_path: Path) -> None:
    """Processor time, so that what else the machine does does not count; five seconds on an idle machine."""
    shutil.copytree(
        Path(jit.__file__).parents[1],
        tmp_path / "fpdfp",
        ignore=lambda folder, names: [n for n in names if n == "__pycache__"],
    )
    (tmp_path / "home").mkdir()
    kept = {"HOME": str(tmp_path / "home"), "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FIRST], cwd=tmp_path, env=os.environ | kept, capture_output=True, text=True, check=True
    )
    assert float(done.stdout.split()[0]) < 10.0
