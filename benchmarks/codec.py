"""Bits and speed of the codes, of long and of short messages; and zstandard, where it is installed.

    python -m benchmarks.codec
    python -m benchmarks.codec --short

A Gaussian vector of 4,194,304 float32 coordinates, quantized in three ways. *Bits*: whole messages (header,
norms, levels, checksum) per coordinate, for every code, beside the entropy of the levels plus the norms; zstandard
packs the levels as int8, at level 1. *Speed*, on one core, in the same run, each contender in turn: ours quantizes
and encodes, and decodes and dequantizes, with the default code; zstandard is timed for the levels alone, which it
is given.

*Short messages*: means of whole messages of 10 to 100,000 numbers, for every code. The numbers are Gaussian (dense), a
tenth of them (sparse), or Gaussian with scales exp(2 z), z Gaussian, of their own (heavy), as differences of models
are.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import _tools
from fpdfp import QSGD
from fpdfp.compress import Quantized
from fpdfp.rng import Draws

D = 1 << 22
SETTINGS: dict[str, dict[str, Any]] = {
    "l2, bucket 512, s = 20": {"levels": 20, "block": 512},
    "l2, bucket 4096, s = 1000": {"levels": 1000, "block": 4096},
    "max norm, s = 20": {"levels": 20, "block": None, "norm": "max"},
}
CODES = ("fixed", "omega", "rans", "adaptive", "auto")
#: Numbers in a short message, and how many messages are averaged.
SHORT = {10: 1000, 100: 300, 1000: 50, 10_000: 5, 100_000: 1}
KINDS = ("dense", "sparse", "heavy")
LEVELS = (5, 11, 31)
DRAWS = Draws(0, 0, np.array([0]))


def entropy(quantized: Quantized) -> float:
    """Bits per coordinate: the empirical entropy of the levels, and the norms."""
    assert quantized.levels is not None
    assert quantized.scales is not None
    _, counts = np.unique(quantized.levels, return_counts=True)
    p = counts / counts.sum()
    return float(-(p * np.log2(p)).sum() + 32 * quantized.scales.size / D)


def bits(setting: dict[str, Any], quantized: Quantized) -> dict[str, float]:
    found = {}
    for code in CODES:
        compressor = QSGD(**setting, codec=code)
        [message] = compressor.encode(quantized)
        foreseen = int(compressor.nbits(quantized)[0])
        if not 0 <= 8 * len(message) - foreseen < 8:
            raise AssertionError(f"{code}: {foreseen} bits were foreseen, {8 * len(message)} made")
        found[code] = 8 * len(message) / D
    return found


def timed(work: Callable[[], Any]) -> float:
    """Millions of bytes of float32 a second."""
    started = time.perf_counter()
    work()
    return 4 * D / 1e6 / (time.perf_counter() - started)


def ours(setting: dict[str, Any], x: Any) -> dict[str, Callable[[], Any]]:
    compressor = QSGD(**setting)
    [message] = compressor.encode(compressor.quantize(x, DRAWS, 16))
    return {
        "ours, encode": lambda: compressor.encode(compressor.quantize(x, DRAWS, 16)),
        "ours, decode": lambda: compressor.decode([message], x.shape[1:], x.dtype),
    }


def short_arrays(kind: str, size: int, count: int, rng: np.random.Generator) -> Any:
    normal = rng.standard_normal((count, size))
    if kind == "sparse":
        return np.where(rng.random((count, size)) < 0.1, normal, 0.0)
    return normal * np.exp(2 * rng.standard_normal((count, size))) if kind == "heavy" else normal


def short_messages() -> dict[str, dict[str, float]]:
    """Return the mean bits of whole messages."""
    found = {}
    rng = np.random.default_rng(0)
    for (size, count), kind, levels, norm in itertools.product(SHORT.items(), KINDS, LEVELS, ("l2", "max")):
        x = short_arrays(kind, size, count, rng)
        quantized = QSGD(levels, norm=norm).quantize(x, Draws(0, 0, np.arange(count)), 16)
        found[f"{size:,} {kind}, s = {levels}, {norm}"] = {
            code: float(QSGD(levels, norm=norm, codec=code).nbits(quantized).mean()) for code in CODES
        }
    return found


def zstandard(levels: Any) -> tuple[dict[str, Callable[[], Any]], float | None]:
    try:
        import zstandard as zstd
    except ImportError:
        return {}, None
    data = levels.astype(np.int8 if abs(levels).max() < 128 else np.int16).tobytes()
    compressor, decompressor = zstd.ZstdCompressor(level=1), zstd.ZstdDecompressor()
    packed = compressor.compress(data)
    work = {
        "zstandard, encode": lambda: compressor.compress(data),
        "zstandard, decode": lambda: decompressor.decompress(packed),
    }
    return work, 8 * len(packed) / D


def main() -> None:
    import numba

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--short", action="store_true", help="count the bits of short messages alone")
    options = parser.parse_args()
    numba.set_num_threads(1)
    if options.short:
        counted = short_messages()
        rows = [[name, *(f"{bits:,.1f}" for bits in one.values())] for name, one in counted.items()]
        _tools.show("Mean bits of a message", ["message", *CODES], rows)
        _tools.finish(counted)
        return

    x = np.random.default_rng(0).standard_normal((1, D)).astype(np.float32)
    sizes: list[list[str]] = []
    speeds: list[list[str]] = []
    results: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        quantized = QSGD(**setting).quantize(x, DRAWS, 16)
        assert quantized.levels is not None
        levels = quantized.levels[0]
        floor = entropy(quantized)
        found = bits(setting, quantized)
        others, packed = zstandard(levels)
        shown = (f"{b:.4f} ({100 * (b / floor - 1):+.2f} %)" for b in found.values())
        sizes.append([name, f"{floor:.4f}", *shown, "not installed" if packed is None else f"{packed:.3f}"])
        work = ours(setting, x) | others
        for one in work.values():
            one()
        measures = {key: functools.partial(timed, one) for key, one in work.items()}
        seen = _tools.interleaved(measures, options.repeats)
        speeds += [[name if i == 0 else "", key, _tools.spread(values)] for i, (key, values) in enumerate(seen.items())]
        results[name] = {
            "entropy_bits": floor,
            "auto_over_entropy": found["auto"] / floor,
            "encode_MB_s": statistics.median(seen["ours, encode"]),
            "decode_MB_s": statistics.median(seen["ours, decode"]),
            **{
                f"{way}_over_zstandard": _tools.ratio(seen, f"ours, {way}", f"zstandard, {way}")
                for way in ("encode", "decode")
                if f"zstandard, {way}" in seen
            },
        }

    _tools.show("Bits per coordinate (above the entropy)", ["quantizer", "entropy + norms", *CODES, "zstandard"], sizes)
    _tools.show("MB of float32 a second, one core: median (range)", ["quantizer", "what", "MB/s"], speeds)
    _tools.finish(results)


if __name__ == "__main__":
    main()
