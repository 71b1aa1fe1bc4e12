"""The X-ray transform of straight scans on the GPU."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fpdfp._cuda.xray_source import SOURCE
from fpdfp._typing import Array, IntArray, Shape

#: Rows that a thread of the forward projection can have: those on one side of the middle rise by less than a voxel.
ROWS = (6, 4, 2, 1)
#: Columns of a block of the forward projection, and threads for the rows of one, at most.
COLUMNS, MOST_THREADS = 2, 128
#: What the forward projection keeps of blended lines in a block, in bytes, and planes at most.
LINES, MOST_PLANES = 28_000, 32
#: A block of the adjoint has this many lines of voxels a side, of such a length; the same numbers are in the source.
TILE, DEPTH = 16, 64
WARPS = 16
#: Shared memory of a block of the adjoint at most: two such fit a multiprocessor of a large GPU.
ROOMY = 115_600
#: Voxels are numbered in 32 bits.
MOST_VOXELS = 2**31 - 1
MOST_COLUMNS = 16
#: Of that, what is known of how columns cross planes.
CROSSINGS = WARPS * 32 * 24
#: Sums over columns that the adjoint keeps at a time, in bytes.
SUMS = 1 << 29


class DeviceColumns(NamedTuple):
    """The numbers of ``_kernels.scans.Columns`` on the GPU, and how far rows are apart at most, in voxels."""

    paths: Array
    views: Array
    rise: float


def place(paths: Array, views: Array, volume: Shape) -> DeviceColumns:
    """Copy the numbers of a scan to the GPU."""
    import cupy

    if math.prod(volume) > MOST_VOXELS:
        raise ValueError(f"volumes on the GPU may have at most {MOST_VOXELS} voxels, got {math.prod(volume)}")
    last = np.where(paths[..., 0] == 0, volume[0] - 1, volume[1] - 1)
    farthest = np.maximum(paths[..., 1], paths[..., 1] + last * paths[..., 2]).max(axis=1)
    rise = float((farthest * views[:, 1]).max())
    return DeviceColumns(cupy.asarray(paths), cupy.asarray(views), rise)


OTHERS = ("sum_twice", "tile_columns", "adjoint")


@functools.cache
def _kernel(name: str) -> Any:
    import cupy

    names = [f"forward<{rows}>" for rows in ROWS]
    module = cupy.RawModule(code=SOURCE, options=("--std=c++17",), name_expressions=[*names, *OTHERS])
    return module.get_function(name)


def forward(x: Array, columns: DeviceColumns, views: Array, nv: int) -> Array:
    """Return the projections of a volume in some views, given by their numbers on the GPU."""
    import cupy

    nz, nu = x.shape[2], columns.paths.shape[1]
    out = cupy.empty((len(views), nu, nv), dtype=np.float32)
    if len(views) == 0:
        return out
    rows = next(rows for rows in ROWS if rows // 2 * columns.rise < 0.999)
    groups = min(-(-nv // rows), MOST_THREADS)
    line = 32 + 4 * (-(-nz // 4) * 4 + 8)
    in_block = 1 if 4 * COLUMNS * line > LINES else COLUMNS
    planes = max(1, min(MOST_PLANES, LINES // (in_block * line)))
    shared = in_block * planes * line
    kernel = _kernel(f"forward<{rows}>")
    _allow(kernel, shared, f"lines of {nz} voxels")
    kernel(
        (-(-nu // in_block), len(views), -(-nv // (rows * groups))),
        (32 * -(-groups * in_block // 32),),
        (x, *map(np.int32, x.shape), columns.paths, columns.views, views,
         *map(np.int32, (nu, nv, planes, groups, in_block)), out),
        shared_mem=shared,
    )  # fmt: skip
    return out


def adjoint_groups(y: Array, columns: DeviceColumns, views: Array, groups: Any, n_groups: int, volume: Shape) -> Array:
    """Return for each group of views the adjoint of its projections; ``groups`` is in ascending order."""
    import cupy

    nu, nv = y.shape[1:]
    out = cupy.zeros((n_groups, *volume), dtype=np.float32)
    pitch = (nv + 5) // 4 * 4
    owners = np.asarray(groups)
    for part in _portions(owners, max(1, SUMS // (4 * nu * pitch))):
        sums = cupy.empty((part.stop - part.start, nu, pitch), dtype=np.uint32)
        units = cupy.empty(sums.shape[:2], dtype=np.float32)
        count = sums.shape[0] * nu
        _kernel("sum_twice")(
            (-(-count // 8),), (256,),
            (y[part], columns.paths, columns.views, views[part], np.int32(nu), np.int32(nv), np.int32(pitch),
             np.int64(count), sums, units),
        )  # fmt: skip
        _add_planes(sums, units, columns, views[part], owners[part], nv, out)
    return out


def _portions(groups: IntArray, most: int) -> Iterator[slice]:
    """Yield views that are treated together: whole groups, or parts of one group that is too large by itself.

    So a group is divided in the same way anyone who else is there, and has the same bits.
    """
    edges = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
    first = 0
    for begin, end in itertools.pairwise(edges):
        if end - first > most and begin > first:
            yield slice(first, begin)
            first = begin
        while end - first > most:
            yield slice(first, first + most)
            first += most
            if end - first <= most and first < end:
                yield slice(first, end)
                first = end
    if first < len(groups):
        yield slice(first, len(groups))


def _add_planes(
    sums: Array, units: Array, columns: DeviceColumns, views: Array, groups: Any, nv: int, out: Array
) -> None:  # fmt: skip
    """Add to each group's volume what its columns give, summed twice."""
    import cupy

    (nx, ny, nz), (_, nu, pitch) = out.shape[1:], sums.shape
    lowest, highest = int(groups[0]), int(groups[-1])
    starts = cupy.asarray(np.searchsorted(groups, np.arange(lowest, highest + 2)).astype(np.int32))
    kernel = _kernel("adjoint")
    room = min(ROOMY, _most_shared()) - 4 * TILE * TILE * DEPTH - CROSSINGS
    batch = max(1, min(MOST_COLUMNS, room // (2 * 4 * pitch)))
    shared = 4 * TILE * TILE * DEPTH + CROSSINGS + batch * 2 * 4 * pitch
    _allow(kernel, shared, f"a tile of voxels and columns of {nv} pixels")
    tiles = -(-nx // TILE), -(-ny // TILE)
    ranges = cupy.empty((tiles[0] * tiles[1], len(views), 2), dtype=np.int32)
    i32 = np.int32
    _kernel("tile_columns")(
        (-(-ranges.size // 512),), (256,),
        (columns.views, views, i32(len(views)), i32(nx), i32(ny), i32(nu), ranges),
    )  # fmt: skip
    kernel(
        (tiles[0] * tiles[1], -(-nz // DEPTH), highest - lowest + 1),
        (32 * WARPS,),
        (sums, units, columns.paths, columns.views, views, i32(len(views)), ranges, starts,
         *map(i32, (nx, ny, nz, nu, nv, pitch, batch)), out[lowest : highest + 1]),
        shared_mem=shared,
    )  # fmt: skip


@functools.cache
def _most_shared() -> int:
    import cupy

    attribute = cupy.cuda.runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin
    return int(cupy.cuda.runtime.deviceGetAttribute(attribute, cupy.cuda.runtime.getDevice()))


def _allow(kernel: Any, shared: int, why: str) -> None:
    """Let a kernel use an amount of shared memory."""
    if shared > _most_shared():
        raise ValueError(
            f"this scan needs {shared} bytes of shared memory for {why}, but this GPU gives a block {_most_shared()}; "
            "use the CPU"
        )
    if kernel.max_dynamic_shared_size_bytes < shared:
        kernel.max_dynamic_shared_size_bytes = shared
