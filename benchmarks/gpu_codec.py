"""Quantize, pack, unpack and dequantize on a GPU, against the time that the memory alone would take.

    python -m benchmarks.gpu_codec

The CT message of the paper: a volume of 256 × 256 × 64 and three such volumes of dual variables, 16,777,216
float32 numbers in slices of 65,536 that share a norm, s = 1000, eleven bits a level. Each stage is timed with
events around a run of calls, one message after the other, over rotating inputs larger than the cache. Its floor is
the bytes it must read and write, each once, over the bandwidth of a device-to-device copy measured in the same run.
Needs CuPy and a GPU.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import _tools
from fpdfp import QSGD, _cuda
from fpdfp.rng import Draws

SLICES, SLICE = 256, 65_536
D = SLICES * SLICE
DRAWS = Draws(0, 0, np.array([0]))
CALLS = 20


def milliseconds(work: Callable[[int], Any], repeats: int) -> float:
    """Return the median over runs of the time of a call; a call is told by a number which input to take."""
    import cupy

    times: list[float] = []
    for _ in range(repeats):
        work(0)
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for i in range(CALLS):
            work(i)
        stop.record()
        stop.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, stop) / CALLS)
    return statistics.median(times)


def main() -> None:
    import cupy

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--levels", type=int, default=1000)
    options = parser.parse_args()

    sets = 4
    generator = cupy.random.default_rng(0)
    x = [generator.standard_normal((1, SLICES, SLICE), dtype=np.float32) for _ in range(sets)]
    s = options.levels
    quantizer = QSGD(s, block=(0,), codec="fixed")
    bucketed = QSGD(20, block=512, codec="fixed")
    width = (2 * s).bit_length()
    quantized = [quantizer.quantize(one, DRAWS, 16) for one in x]
    levels: list[Any] = [one.levels for one in quantized]
    packed = [cupy.concatenate([_cuda.pack_fixed(one, -s, width), cupy.zeros(1, np.uint32)]) for one in levels]
    room = cupy.empty(D, dtype=np.int32)
    copy_from, copy_to = cupy.empty(1 << 30, np.uint8), cupy.empty(1 << 30, np.uint8)

    scales, kept = cupy.empty((1, SLICES), np.float32), cupy.empty((1, D), np.int32)

    def rounding(i: int) -> None:
        _cuda.quantize(0, 0, x[i % sets].reshape(1, D), SLICE, s, 0, 0, 16, DRAWS.clients, 0, kept, scales)

    def unpack(i: int) -> None:
        _cuda.unpack_fixed(packed[i % sets], D, -s, s, width, room)

    bandwidth = 2 * copy_from.nbytes / milliseconds(lambda i: copy_to.__setitem__(slice(None), copy_from), 5) / 1e9
    sent = packed[0].nbytes
    stages: dict[str, tuple[Callable[[int], Any], int]] = {
        "quantize": (lambda i: quantizer.quantize(x[i % sets], DRAWS, 16), 8 * D),
        "norms and rounding alone": (rounding, 8 * D),
        "pack": (lambda i: _cuda.pack_fixed(levels[i % sets], -s, width), 4 * D + sent),
        "unpack": (unpack, 4 * D + sent),
        "dequantize": (lambda i: quantizer.dequantize(quantized[i % sets]), 8 * D),
        "quantize, bucket 512, s = 20": (lambda i: bucketed.quantize(x[i % sets], DRAWS, 16), 8 * D),
        "count bits, auto": (lambda i: QSGD(s, block=(0,)).nbits(quantized[i % sets]), 4 * D),
    }
    rows, results = [], {}
    for name, (work, moved) in stages.items():
        taken = milliseconds(work, options.repeats)
        floor = moved / bandwidth / 1e9
        rows.append([name, f"{taken * 1000:.0f}", f"{floor * 1000:.0f}", f"{moved / 1e6:.0f}", f"{floor / taken:.2f}"])
        results[name] = {"microseconds": 1000 * taken, "share_of_floor": floor / taken}
    title = f"{D:,} coordinates on {cupy.cuda.runtime.getDeviceProperties(0)['name'].decode()}, {bandwidth:.2f} TB/s"
    _tools.show(title, ["stage", "µs", "floor, µs", "MB", "floor / time"], rows)
    _tools.finish({"bandwidth_TB_s": bandwidth, **results})


if __name__ == "__main__":
    main()
