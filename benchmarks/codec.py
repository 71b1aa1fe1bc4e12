"""Bits per coordinate and speed of the codes: ours, constriction and zstandard where they are installed.

    python -m benchmarks.codec

A Gaussian vector of 4,194,304 float32 coordinates, quantized in three ways. *Bits*: whole messages (header,
norms, levels, checksum) per coordinate, for every code, beside the entropy of the levels plus the norms; zstandard
packs the levels as int8, at level 1. *Speed*, on one core, in the same run, each contender in turn: ours quantizes
and encodes, and decodes and dequantizes, with the default code; constriction and zstandard are timed for the
levels alone, which they are given.
"""

from __future__ import annotations

import argparse
import functools
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
CODES = ("fixed", "gamma", "omega", "rice", "rans", "ans", "auto")
DRAWS = Draws(0, 0, np.array([0]))


def entropy(quantized: Quantized) -> float:
    """Bits per coordinate: the empirical entropy of the levels, and the norms."""
    assert quantized.levels is not None
    assert quantized.scales is not None
    _, counts = np.unique(quantized.levels, return_counts=True)
    p = counts / counts.sum()
    return float(-(p * np.log2(p)).sum() + 32 * quantized.scales.size / D)


def bits(setting: dict[str, Any], quantized: Quantized) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for code in CODES:
        compressor = QSGD(**setting, codec=code)
        try:
            [message] = compressor.encode(quantized)
        except ImportError:
            found[code] = None
            continue
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


def constriction(levels: Any) -> dict[str, Callable[[], Any]]:
    try:
        from constriction import stream
    except ImportError:
        return {}
    symbols = (levels - levels.min()).astype(np.int32)
    model = stream.model.Categorical(np.bincount(symbols).astype(np.float32), perfect=False)

    def encode() -> Any:
        coder = stream.stack.AnsCoder()
        coder.encode_reverse(symbols, model)
        return coder.get_compressed()

    packed = encode()
    return {
        "constriction, encode": encode,
        "constriction, decode": lambda: stream.stack.AnsCoder(packed).decode(model, symbols.size),
    }


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
    options = parser.parse_args()
    numba.set_num_threads(1)

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
        shown = (None if b is None else f"{b:.4f} ({100 * (b / floor - 1):+.2f} %)" for b in found.values())
        last = None if packed is None else f"{packed:.3f}"
        sizes.append([name, f"{floor:.4f}", *(one or "not installed" for one in (*shown, last))])
        work = ours(setting, x) | constriction(levels) | others
        for one in work.values():
            one()
        measures = {key: functools.partial(timed, one) for key, one in work.items()}
        seen = _tools.interleaved(measures, options.repeats)
        speeds += [[name if i == 0 else "", key, _tools.spread(values)] for i, (key, values) in enumerate(seen.items())]
        auto, rans, ans = found["auto"], found["rans"], found["ans"]
        assert auto is not None
        assert rans is not None
        results[name] = {
            "entropy_bits": floor,
            "auto_over_entropy": auto / floor,
            "ans_over_entropy": None if ans is None else ans / floor,
            "encode_MB_s": statistics.median(seen["ours, encode"]),
            "decode_MB_s": statistics.median(seen["ours, decode"]),
            **{
                f"{way}_over_{peer}": _tools.ratio(seen, f"ours, {way}", f"{peer}, {way}")
                for peer in ("constriction", "zstandard")
                for way in ("encode", "decode")
                if f"{peer}, {way}" in seen
            },
        }

    _tools.show("Bits per coordinate (above the entropy)", ["quantizer", "entropy + norms", *CODES, "zstandard"], sizes)
    _tools.show("MB of float32 a second, one core: median (range)", ["quantizer", "what", "MB/s"], speeds)
    _tools.finish(results)


if __name__ == "__main__":
    main()
