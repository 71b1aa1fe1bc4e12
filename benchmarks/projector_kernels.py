"""Kernels of the X-ray transform on a GPU, compared at the size of the paper: the package's and others.

    python -m benchmarks.projector_kernels

A volume of 256 × 256 × 64 and 668 views of 512 × 384 in float32. *Forward*: the package's kernel, where a thread has
rows above a base row, and ``forward_centred``, where it has rows on both sides, with several shapes of blocks.
*Adjoint*: the package's kernel, which takes second differences of sums in double precision, and ``adjoint_moments``,
which takes differences of sums and first moments in integers. Each line is printed when it is known: the median of some
repeats in ms, and by how much the result differs from the package's. Small scans of other shapes are compared first.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import _tools
from benchmarks._projector_source import SOURCE
from benchmarks.projector import scan
from fpdfp._cuda import xray
from fpdfp._cuda.xray_source import SOURCE as PACKAGE
from fpdfp._typing import Array
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.projector import XRayTransform

ROWS, BLOCKS = (8, 6, 4, 2, 1), (3, 4, 5)
#: Columns of a block and planes that it blends at a time.
SHAPES = ((2, 16), (2, 32), (4, 8), (4, 16), (4, 32), (5, 16))
#: What the adjoint keeps of crossings: a warp's 32 times 32 bytes, for 16 warps.
PASSAGES = 16 * 32 * 32
#: Rows that 20 bits after the point of a 32-bit integer leave room for.
MOST_ROWS = 2047
#: By how much results may differ from the package's.
AGREE = 1e-5

CASES = {
    "fits": ConeBeam.circular((40, 40, 12), (56, 72), views=24, source=160.0, panel=240.0),
    "odd": ConeBeam.circular((33, 47, 70), (50, 91), views=20, voxel=(1.2, 0.9, 0.4), source=160.0, panel=240.0),
    "truncated": ConeBeam.circular(
        (40, 40, 13), (30, 31), views=24, pixel=(1.0, 0.4), offset=(3.0, 2.0), source=160.0, panel=240.0
    ),
    "fine rows": ConeBeam.circular((24, 24, 130), (20, 700), views=7, source=160.0, panel=240.0),
    "helix": ConeBeam.helical(
        (40, 40, 30), (56, 40), views=30, pitch=20.0, pixel=(1.7, 1.0), source=160.0, panel=240.0
    ),
}


@functools.cache
def _module() -> Any:
    cupy: Any = importlib.import_module("cupy")
    names = [f"forward_centred<{rows}, {blocks}>" for rows in ROWS for blocks in BLOCKS if rows > 2 or blocks == 4]
    return cupy.RawModule(
        code=PACKAGE + SOURCE,
        options=("--std=c++17",),
        name_expressions=[*names, "sum_moments", "adjoint_moments", "tile_columns"],
    )


@functools.cache
def kernel(name: str) -> Any:
    return _module().get_function(name)


class Other:
    """The other kernels for one scan."""

    def __init__(self, transform: XRayTransform) -> None:
        cupy: Any = importlib.import_module("cupy")
        self.cupy, self.columns = cupy, transform._device_tables
        self.volume, (self.nu, self.nv) = transform.in_shape, transform.geometry.detector
        self.views = cupy.arange(transform.geometry.n_views, dtype=np.int64)
        paths, tables = transform._columns
        last = np.where(paths[..., 0] == 0, self.volume[0] - 1, self.volume[1] - 1)
        nearest = np.minimum(paths[..., 1], paths[..., 1] + last * paths[..., 2]).min(axis=1)
        #: The largest distance of two knots, in rows.
        self.spacing = 1.0 / float((nearest * tables[:, 1]).min())
        if not 0 < self.spacing < 30 or self.nv > MOST_ROWS:
            raise ValueError(f"knots are up to {self.spacing:.3g} of {self.nv} rows apart")
        # Data of so many bits: the first moment of a column's data between two knots is below 2^31 then.
        self.bits = min(26, math.floor(31 - math.log2(0.5 * (self.spacing + 2) ** 2)))

    @property
    def rows(self) -> int:
        """The most rows of a thread: those on one side rise by less than a voxel."""
        return next(rows for rows in ROWS if rows // 2 * self.columns.rise < 0.999)

    def forward(self, x: Array, rows: int, in_block: int, planes: int, blocks: int) -> Array:
        nx, ny, nz = self.volume
        out: Array = self.cupy.empty((len(self.views), self.nu, self.nv), dtype=np.float32)
        groups = min(-(-self.nv // rows), 128)
        in_block = max(1, min(in_block, 256 // groups))
        threads = 32 * -(-groups * in_block // 32)
        shared = in_block * planes * (32 + 4 * (-(-nz // 4) * 4 + 8))
        run = kernel(f"forward_centred<{rows}, {blocks}>")
        xray._allow(run, shared, f"lines of {nz} voxels")
        run(
            (-(-self.nu // in_block), len(self.views), -(-self.nv // (rows * groups))),
            (threads,),
            (x, *map(np.int32, (nx, ny, nz)), self.columns.paths, self.columns.views, self.views,
             *map(np.int32, (self.nu, self.nv, planes, groups, in_block)), out),
            shared_mem=shared,
        )  # fmt: skip
        return out

    def adjoint(self, y: Array, batch: int) -> Array:
        cupy, i32 = self.cupy, np.int32
        nx, ny, nz = self.volume
        out: Array = cupy.zeros(self.volume, dtype=np.float32)
        pitch = self.nv + 2 + self.nv % 2
        step = max(1, xray.SUMS // (8 * self.nu * pitch))
        tiles = -(-nx // xray.TILE), -(-ny // xray.TILE)
        shared = 4 * xray.TILE**2 * xray.DEPTH + PASSAGES + batch * 2 * 8 * pitch
        run = kernel("adjoint_moments")
        xray._allow(run, shared, f"a tile of voxels and columns of {self.nv} pixels")
        for first in range(0, len(self.views), step):
            views = self.views[first : first + step]
            count = len(views) * self.nu
            sums = cupy.empty((len(views), self.nu, pitch, 2), dtype=np.int32)
            kernel("sum_moments")(
                (-(-count // 8),), (256,),
                (y[first : first + step], self.columns.paths, self.columns.views, views,
                 *map(i32, (self.nu, self.nv, pitch)), np.int64(count), i32(self.bits), sums),
            )  # fmt: skip
            starts = cupy.asarray([0, len(views)], dtype=np.int32)
            ranges = cupy.empty((tiles[0] * tiles[1], len(views), 2), dtype=np.int32)
            kernel("tile_columns")(
                (-(-ranges.size // 512),), (256,),
                (self.columns.views, views, *map(i32, (len(views), nx, ny, self.nu)), ranges),
            )  # fmt: skip
            run(
                (tiles[0] * tiles[1], -(-nz // xray.DEPTH), 1), (32 * xray.WARPS,),
                (sums, self.columns.paths, self.columns.views, views, i32(len(views)), ranges, starts,
                 *map(i32, (nx, ny, nz, self.nu, self.nv, pitch, batch)), out),
                shared_mem=shared,
            )  # fmt: skip
        return out


def milliseconds(work: Callable[[], Any], repeats: int) -> float:
    cupy: Any = importlib.import_module("cupy")
    work()
    times = []
    for _ in range(repeats):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(float(cupy.cuda.get_elapsed_time(begin, end)))
    return statistics.median(times)


def difference(one: Array, other: Array) -> float:
    return float(abs((one - other).astype(np.float64)).max() / abs(other).max())


def dot_error(forward: Array, back: Array, x: Array, y: Array) -> float:
    cupy: Any = importlib.import_module("cupy")
    wide = forward.astype(np.float64)
    apart = float((wide * y).sum()) - float((x * back.astype(np.float64)).sum())
    return abs(apart) / float(cupy.linalg.norm(wide) * cupy.linalg.norm(y))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    try:
        cupy: Any = importlib.import_module("cupy")
        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # whatever keeps CuPy from a GPU
        print(f"no GPU: {type(error).__name__}: {str(error).splitlines()[0]}")
        return
    rng = cupy.random.default_rng(0)
    for name, geometry in CASES.items():
        transform = XRayTransform(geometry)
        other = Other(transform)
        x, y = (rng.standard_normal(shape, dtype=np.float32) for shape in (transform.in_shape, transform.out_shape))
        wanted, back = transform.apply(x), transform.adjoint(y)
        found, found_back = other.forward(x, other.rows, 4, 16, 4), other.adjoint(y, 2)
        errors = difference(found, wanted), difference(found_back, back), dot_error(found, found_back, x, y)
        print(f"{name}: forward {errors[0]:.1e}, adjoint {errors[1]:.1e}, dot test {errors[2]:.1e}", flush=True)
    transform = XRayTransform(scan((256, 256, 64), (512, 384), 668))
    other = Other(transform)
    x, y = (rng.random(shape, dtype=np.float32) for shape in (transform.in_shape, transform.out_shape))
    wanted, back = transform.apply(x), transform.adjoint(y)
    print(f"rows rise by {other.columns.rise:.3f}, knots are {other.spacing:.2f} rows apart", flush=True)
    rows: list[tuple[str, float, float]] = []

    def note(name: str, work: Callable[[], Array], reference: Array) -> None:
        try:
            row = name, milliseconds(work, repeats), difference(work(), reference)
        except Exception as error:  # the other variants are measured nevertheless
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
            return
        rows.append(row)
        print(f"{row[0]}: {row[1]:.2f} ms, differs by {row[2]:.1e}", flush=True)

    note("forward, package", lambda: transform.apply(x), wanted)
    note("adjoint, package", lambda: transform.adjoint(y), back)
    for batch in (2, 3, 4, 5):
        note(f"adjoint, moments, {batch} columns", functools.partial(other.adjoint, y, batch), back)
    for (in_block, planes), blocks, own in itertools.product(SHAPES, BLOCKS, [r for r in ROWS if 4 <= r <= other.rows]):
        name = f"forward, centred, {own} rows, {in_block} columns, {planes} planes, at least {blocks} blocks"
        note(name, functools.partial(other.forward, x, own, in_block, planes, blocks), wanted)
    best = {way: min((row for row in rows if row[0].startswith(way)), key=lambda row: row[1]) for way in ("f", "a")}
    _tools.show(
        "the fastest", ("", "ms", "differs from the package's"),
        [(name, f"{time:.2f}", f"{error:.1e}") for name, time, error in best.values()],
    )  # fmt: skip
    _tools.finish({"rows": [{"kernel": name, "ms": time, "differs": error} for name, time, error in rows]})


if __name__ == "__main__":
    main()
