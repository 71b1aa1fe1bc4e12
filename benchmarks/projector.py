"""The X-ray transform: ours against ITK-RTK and a textbook ray loop, and how ours scales.

    python -m benchmarks.projector

A volume of 128 × 128 × 32 and 64 views of 256 × 192 in float32, in the same process and on one core. *Peers*: Joseph's
method of ITK-RTK (forward and back projection), and ours ray by ray, as the textbook has it, in Numba. All compute the
same arrays, which is checked before anything is timed: a contender that differs by more than a relative 1e-3 ends the
run. Each one's turn comes once in every repeat; a ratio is the median over repeats of two times of the same repeat.
*Scaling*: the seconds of ours with cores, with views, and with volume and panel. *GPU*, where there is one: ours at the
size of the paper, beside the time that moving volume and projections once takes.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import _tools
from fpdfp._typing import Array
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.projector import XRayTransform, frames

VOLUME, DETECTOR, VIEWS = (128, 128, 32), (256, 192), 64
#: From the source to the axis and to the panel, in widths of the volume.
RADIUS, DISTANCE = 4.0, 6.0
AGREE = 1e-3
#: Beyond the outermost voxels ours fades to zero, while ITK-RTK cuts off: they are compared away from there.
INSIDE = (slice(2, -2),) * 3
OURS, RTK, RAYS = "ours", "ITK-RTK, Joseph", "textbook rays, Numba"
WAYS = ("forward", "adjoint")

Pair = tuple[Callable[[], Array], Callable[[], Array]]


def scan(volume: tuple[int, int, int] = VOLUME, detector: tuple[int, int] = DETECTOR, views: int = VIEWS) -> ConeBeam:
    width = float(volume[0])
    # Not from 0 on: at 45° the middle of the panel is as much along x as along y, and rounding would choose for each.
    angles = 0.01 + np.arange(views) * (2 * math.pi / views)
    return ConeBeam.circular(volume, detector, angles=angles, source=RADIUS * width, panel=DISTANCE * width)


def arrays(geometry: ConeBeam) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x = np.zeros(geometry.volume, dtype=np.float32)
    x[INSIDE] = rng.random(x[INSIDE].shape, dtype=np.float32)
    return x, rng.random(geometry.data_shape, dtype=np.float32)


def ours(geometry: ConeBeam, x: Array, y: Array) -> Pair:
    A = XRayTransform(geometry)
    return lambda: A.apply(x), lambda: A.adjoint(y)


def textbook(geometry: ConeBeam, x: Array, y: Array) -> Pair:
    from fpdfp._kernels import rays

    tables, views = frames(geometry), np.arange(geometry.n_views)

    def forward() -> Array:
        out = np.empty_like(y)
        rays.forward(x, *tables, 2, views, out)
        return out

    def adjoint() -> Array:
        out = np.zeros_like(x)
        rays.adjoint(y, *tables, 2, views, out)
        return out

    return forward, adjoint


def itk_rtk(geometry: ConeBeam, x: Array, y: Array) -> Pair | None:
    """ITK-RTK, which turns around its y: our (x, y, z) are its (z, x, y). None where it is not installed."""
    try:
        itk: Any = importlib.import_module("itk")
        rtk = itk.RTK
    except (ImportError, AttributeError):
        return None
    itk.MultiThreaderBase.SetGlobalDefaultNumberOfThreads(1)
    circle = rtk.ThreeDCircularProjectionGeometry.New()
    for source in geometry.sources:
        angle = math.degrees(math.atan2(source[1], source[0]))
        circle.AddProjection(RADIUS * VOLUME[0], DISTANCE * VOLUME[0], angle)

    def image(array: Array, sides: tuple[float, float, float]) -> Any:
        # The axes of an image are those of the array from the last to the first.
        made = itk.image_from_array(np.ascontiguousarray(array.transpose(0, 2, 1)))
        made.SetSpacing(sides)
        middle = [
            -0.5 * (n - 1) * side for n, side in zip(made.GetLargestPossibleRegion().GetSize(), sides, strict=True)
        ]
        made.SetOrigin(middle)
        return made

    pixel = float(np.linalg.norm(geometry.u[0])), float(np.linalg.norm(geometry.v[0])), 1.0
    volume, projections = image(x, geometry.voxel), image(y, pixel)
    no_volume, no_projections = image(np.zeros_like(x), geometry.voxel), image(np.zeros_like(y), pixel)
    kind = type(volume)

    def work(name: str, start: Any, argument: Any) -> Callable[[], Array]:
        def run() -> Array:
            one = getattr(rtk, name)[kind, kind].New()
            one.SetInput(0, start)
            one.SetInput(1, argument)
            one.SetGeometry(circle)
            one.InPlaceOff()
            one.Update()
            found: Array = itk.array_view_from_image(one.GetOutput()).transpose(0, 2, 1)
            return found

        return run

    return (
        work("JosephForwardProjectionImageFilter", no_projections, volume),
        work("JosephBackProjectionImageFilter", no_volume, projections),
    )


def seconds(work: Callable[[], Array], clock: Callable[[], float]) -> float:
    started = clock()
    work()
    return clock() - started


def check(found: Array, wanted: Array, name: str) -> float:
    """Return by how much a contender's result differs from ours; refuse one that does something else."""
    error = float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
    if not error <= AGREE:
        raise AssertionError(f"{name} differs from ours by {error:.1e}: it does not do the same work")
    return error


def dot_error(forward: Array, back: Array, x: Array, y: Array) -> float:
    wide, other = forward.astype(np.float64), back.astype(np.float64)
    difference = float(np.vdot(wide, y)) - float(np.vdot(x, other))
    return abs(difference) / float(np.linalg.norm(wide) * np.linalg.norm(y.astype(np.float64)))


def against_peers(repeats: int) -> dict[str, Any]:
    """Time ours and the peers on one core, show a table, and return the ratios."""
    geometry = scan()
    x, y = arrays(geometry)
    pairs = {OURS: ours(geometry, x, y), RTK: itk_rtk(geometry, x, y), RAYS: textbook(geometry, x, y)}
    there = {name: pair for name, pair in pairs.items() if pair is not None}
    wanted = [work() for work in there[OURS]]
    where: tuple[Any, Any] = ..., INSIDE
    errors = {
        name: [check(work()[part], one[part], name) for work, one, part in zip(pair, wanted, where, strict=True)]
        for name, pair in there.items()
    }
    works = {f"{name}: {way}": work for name, pair in there.items() for way, work in zip(WAYS, pair, strict=True)}
    seen = _tools.interleaved(
        {name: functools.partial(seconds, work, time.process_time) for name, work in works.items()}, repeats
    )
    rows, results = [], {}
    for name in pairs:
        for index, way in enumerate(WAYS):
            if name not in there:
                rows.append([name, way, "not installed", "", ""])
                continue
            times = seen[f"{name}: {way}"]
            ratio = _tools.ratio(seen, f"{name}: {way}", f"{OURS}: {way}")
            shown = f"{statistics.median(times):.3f} ({min(times):.3f} to {max(times):.3f})"
            rows.append([name, way, shown, f"{ratio:.1f}", f"{errors[name][index]:.1e}"])
            results[f"{name}: {way}"] = {"seconds": statistics.median(times), "best": min(times), "over_ours": ratio}
    header = ["", "", "seconds: median (range)", "times ours", "differs from ours"]
    _tools.show(f"{VOLUME} → {VIEWS} views of {DETECTOR}, float32, one core", header, rows)
    return {**results, "dot_test": dot_error(wanted[0], wanted[1], x, y)}


def scaling(repeats: int) -> dict[str, Any]:
    """Time ours with cores, views and sizes, show a table, and return the seconds."""
    import numba

    cores = numba.config.NUMBA_NUM_THREADS
    cases: dict[str, tuple[ConeBeam, int]] = {
        f"{count} of {cores} cores": (scan(), count) for count in sorted({1, min(2, cores), cores})
    }
    cases |= {f"{views} views": (scan(views=views), cores) for views in (16, 32, 64, 128)}
    cases |= {
        f"{4 * n} × {4 * n} × {n}, panel {8 * n} × {6 * n}": (scan((4 * n, 4 * n, n), (8 * n, 6 * n)), cores)
        for n in (8, 16, 32, 64)
    }
    rows, results = [], {}
    for name, (geometry, count) in cases.items():
        numba.set_num_threads(count)
        best = []
        for work in ours(geometry, *arrays(geometry)):
            work()
            best.append(min(seconds(work, time.perf_counter) for _ in range(repeats)))
        steps = geometry.n_views * geometry.detector[0] * geometry.volume[0] * geometry.volume[2]
        rows.append([name, *(f"{one:.4f}" for one in best), *(f"{1e9 * one / steps:.2f}" for one in best)])
        results[name] = dict(zip(WAYS, best, strict=True))
    numba.set_num_threads(cores)
    header = ["", "forward, s", "adjoint, s", "forward, ns", "adjoint, ns"]
    _tools.show("Ours: best time; and per view, column, plane and slice", header, rows)
    return results


def on_gpu(repeats: int) -> dict[str, Any]:
    """Time ours on the GPU at the size of the paper, beside what must at least be done; say so where there is none."""
    try:
        cupy: Any = importlib.import_module("cupy")
        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # whatever keeps CuPy from a GPU
        print(f"no GPU: {type(error).__name__}: {str(error).splitlines()[0]}")
        return {}
    geometry = scan((256, 256, 64), (512, 384), 668)
    A = XRayTransform(geometry)
    rng = cupy.random.default_rng(0)
    x = rng.random(geometry.volume, dtype=np.float32)
    y = rng.random(geometry.data_shape, dtype=np.float32)

    def milliseconds(work: Callable[[], Any]) -> float:
        work()
        times = []
        for _ in range(max(repeats, 10)):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            work()
            end.record()
            end.synchronize()
            times.append(float(cupy.cuda.get_elapsed_time(begin, end)))
        return statistics.median(times)

    other = cupy.empty_like(y)
    bandwidth = 2 * y.nbytes / milliseconds(lambda: cupy.copyto(other, y)) * 1e3
    moved = x.nbytes + y.nbytes
    crossings = plane_crossings(geometry)
    found = {"forward": milliseconds(lambda: A.apply(x)), "adjoint": milliseconds(lambda: A.adjoint(y))}
    clients = np.sort(np.arange(195) % 5)
    found["forward, 195 views"] = milliseconds(lambda: A.apply_views(x, np.arange(195)))
    found["adjoint, 195 views in 5 groups"] = milliseconds(
        lambda: A.adjoint_groups(y[:195], np.arange(195), clients, 5)
    )
    wide, back = A.apply(x).astype(np.float64), A.adjoint(y).astype(np.float64)
    dot = abs(float((wide * y).sum()) - float((x * back).sum())) / float(cupy.linalg.norm(wide) * cupy.linalg.norm(y))
    rows = [[name, f"{one:.2f}"] for name, one in found.items()]
    rows += [
        [f"floor: {moved / 1e9:.2f} GB moved once at {bandwidth / 1e12:.1f} TB/s", f"{1e3 * moved / bandwidth:.2f}"],
        [f"{crossings / 1e6:.0f} million crossings of a column and a plane: forward, ns each",
         f"{1e6 * found['forward'] / crossings:.3f}"],
        ["adjoint, ns each", f"{1e6 * found['adjoint'] / crossings:.3f}"],
        ["dot test", f"{dot:.1e}"],
    ]  # fmt: skip
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    _tools.show(f"{geometry.volume} → {geometry.n_views} views of {geometry.detector} on {name}", ["", "ms"], rows)
    return {
        "device": name, "milliseconds": found, "dot_test": dot, "gigabytes": moved / 1e9,
        "floor_milliseconds": 1e3 * moved / bandwidth, "crossings": crossings,
    }  # fmt: skip


def plane_crossings(geometry: ConeBeam) -> int:
    """Count how often a detector column, seen from above, crosses a plane of voxels within the volume."""
    from fpdfp._kernels.scans import AXIS, FIRST, SLOPE, START, STEP
    from fpdfp.ct.projector import columns

    paths, (nx, ny, _), total = columns(geometry).paths, geometry.volume, 0
    for axis, n, m in ((0, nx, ny), (1, ny, nx)):
        one = paths[paths[..., AXIS] == axis]
        at_first, change = one[:, START] + one[:, FIRST] * one[:, SLOPE], one[:, STEP] * one[:, SLOPE]
        for i in range(n):
            g = at_first + i * change
            total += int(((g > -1) & (g < m)).sum())
    return total


def main() -> None:
    import numba

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gpu-only", action="store_true", help="leave the processor out")
    options = parser.parse_args()
    if options.gpu_only:
        _tools.finish({"gpu": on_gpu(options.repeats)})
        return
    numba.set_num_threads(1)
    peers = against_peers(options.repeats)
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    _tools.finish({"peers": peers, "scaling": scaling(options.repeats), "gpu": on_gpu(options.repeats)})


if __name__ == "__main__":
    main()
