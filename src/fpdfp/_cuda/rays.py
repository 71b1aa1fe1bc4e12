"""The X-ray transform ray by ray on the GPU, for any position of source and panel.

The same samples as :mod:`fpdfp._kernels.rays` takes. In the transpose many rays add to a voxel in an order that is not
fixed, so that its last bits may differ from call to call. Straight scans have kernels of their own, which do not.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from fpdfp._kernels.scans import Frames
from fpdfp._typing import Array, Shape

THREADS = 128

SOURCE = r"""
typedef long long i64;

// Calls visit(offset, weight) for every voxel that a ray samples; returns the way from plane to plane.
template <class Visit>
__device__ __forceinline__ double walk(
    const double* frame, const double* voxel, const int* shape, int a, int b, Visit visit
) {
    const double *source = frame, *way = frame + 3, *across = frame + 6, *up = frame + 9;
    double d[3], square = 0.0;
    for (int e = 0; e < 3; ++e) {
        d[e] = way[e] + a * across[e] + b * up[e];
        square += d[e] * voxel[e] * d[e] * voxel[e];
    }
    int main = 0;
    for (int e = 1; e < 3; ++e) if (fabs(d[e]) > fabs(d[main])) main = e;
    const int p = main == 0 ? 1 : 0, q = main == 2 ? 1 : 2;
    const i64 apart[3] = {(i64)shape[1] * shape[2], shape[2], 1};
    for (int i = 0; i < shape[main]; ++i) {
        const double t = (i - source[main]) / d[main];
        const double g = source[p] + t * d[p], h = source[q] + t * d[q];
        if (g <= -1.0 || g >= shape[p] || h <= -1.0 || h >= shape[q] || t <= 0.0) continue;
        const double j = floor(g), k = floor(h);
        for (int n = 0; n < 4; ++n) {
            const int jj = (int)j + (n & 1), kk = (int)k + (n >> 1);
            if (jj < 0 || jj >= shape[p] || kk < 0 || kk >= shape[q]) continue;
            const double wj = n & 1 ? g - j : 1.0 - (g - j), wk = n >> 1 ? h - k : 1.0 - (h - k);
            visit(i * apart[main] + jj * apart[p] + kk * apart[q], wj * wk);
        }
    }
    return sqrt(square) / fabs(d[main]);
}

extern "C" __global__ void forward(
    const float* x, const int* shape, const double* frames, const double* voxel, const i64* views, int nu, int nv,
    i64 rays, float* y
) {
    const i64 ray = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (ray >= rays) return;
    const double* frame = frames + views[ray / ((i64)nu * nv)] * 12;
    double sum = 0.0;
    const double length = walk(
        frame, voxel, shape, (int)(ray / nv % nu), (int)(ray % nv), [&](i64 at, double w) { sum += w * x[at]; }
    );
    y[ray] = (float)(sum * length);
}

extern "C" __global__ void adjoint(
    const float* y, const int* shape, const double* frames, const double* voxel, const i64* views, const i64* groups,
    int nu, int nv, i64 rays, float* x
) {
    const i64 ray = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (ray >= rays) return;
    const i64 n = ray / ((i64)nu * nv);
    const double* frame = frames + views[n] * 12;
    float* volume = x + groups[n] * (i64)shape[0] * shape[1] * shape[2];
    const int a = (int)(ray / nv % nu), b = (int)(ray % nv);
    const double value = y[ray] * walk(frame, voxel, shape, a, b, [](i64, double) {});
    walk(frame, voxel, shape, a, b, [&](i64 at, double w) { atomicAdd(volume + at, (float)(w * value)); });
}
"""


@functools.cache
def _kernel(name: str) -> Any:
    import cupy

    return cupy.RawModule(code=SOURCE, options=("--std=c++17",)).get_function(name)


def forward(x: Array, frames: Frames, views: Array, detector: tuple[int, int]) -> Array:
    """Return the projections of a volume in some views, given by their numbers on the GPU."""
    import cupy

    out = cupy.empty((len(views), *detector), dtype=np.float32)
    if out.size:
        _kernel("forward")(
            (-(-out.size // THREADS),), (THREADS,),
            (x, cupy.asarray(np.array(x.shape, dtype=np.int32)), frames.frames, frames.voxel, views,
             *map(np.int32, detector), np.int64(out.size), out),
        )  # fmt: skip
    return out


def adjoint_groups(y: Array, frames: Frames, views: Array, groups: Any, n_groups: int, volume: Shape) -> Array:
    """Return for each group of views the adjoint of its projections."""
    import cupy

    out = cupy.zeros((n_groups, *volume), dtype=np.float32)
    if y.size:
        _kernel("adjoint")(
            (-(-y.size // THREADS),), (THREADS,),
            (y, cupy.asarray(np.array(volume, dtype=np.int32)), frames.frames, frames.voxel, views,
             cupy.asarray(groups), *map(np.int32, y.shape[1:]), np.int64(y.size), out),
        )  # fmt: skip
    return out
