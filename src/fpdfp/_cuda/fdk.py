"""Back projection of filtered views on the GPU, as :mod:`fpdfp._kernels.fdk` does it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from fpdfp._typing import Array

SOURCE = r"""
typedef long long i64;
// As in fpdfp._kernels.fdk.
#define EDGE (0.5 + 1e-9)

// One thread a voxel; the threads of a warp are neighbours along z, and so are the pixels they read.
template <typename T>
__global__ void back_project(const T* __restrict__ filtered, const double* __restrict__ tables, int views, int nu,
                             int nv, int nx, int ny, int nz, T* __restrict__ out) {
    int k = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y, i = blockIdx.z;
    if (k >= nz || j >= ny) return;
    i64 where = ((i64)i * ny + j) * nz + k;
    T sum = out[where];
    for (int view = 0; view < views; ++view) {
        const double* t = tables + 10 * view;
        double depth = t[0] + i * t[1] + j * t[2];
        double scale = 1.0 / depth;
        double u = (t[3] + i * t[4] + j * t[5]) * scale + t[6];
        double v = (t[7] + k * t[8]) * scale + t[9];
        if (!(u >= -EDGE && u <= nu - 1 + EDGE && v >= -EDGE && v <= nv - 1 + EDGE)) continue;
        u = fmin(fmax(u, 0.0), nu - 1.0);
        v = fmin(fmax(v, 0.0), nv - 1.0);
        int a = (int)u, b = (int)v, c = min(b + 1, nv - 1);
        T q = (T)(u - a), p = (T)(v - b);
        const T* near = filtered + ((i64)view * nu + a) * nv;
        const T* far = filtered + ((i64)view * nu + min(a + 1, nu - 1)) * nv;
        T left = near[b] + p * (near[c] - near[b]);
        T right = far[b] + p * (far[c] - far[b]);
        sum += (T)(scale * scale) * (left + q * (right - left));
    }
    out[where] = sum;
}
"""

#: By the characters of the dtypes.
C_NAMES = {"f": "float", "d": "double"}
#: Threads of a block along z and along y.
BLOCK = (32, 4)


@functools.cache
def _kernel(kind: str) -> Any:
    import cupy

    name = f"back_project<{C_NAMES[kind]}>"
    return cupy.RawModule(code=SOURCE, options=("--std=c++14",), name_expressions=[name]).get_function(name)


def back_project(filtered: Array, tables: Array, out: Array) -> None:
    """Add to every voxel what the views show at its shadow."""
    import cupy

    views, nu, nv = filtered.shape
    nx, ny, nz = out.shape
    grid = (-(-nz // BLOCK[0]), -(-ny // BLOCK[1]), nx)
    sizes = tuple(np.int32(size) for size in (views, nu, nv, nx, ny, nz))
    _kernel(out.dtype.char)(grid, (*BLOCK, 1), (filtered, cupy.asarray(tables), *sizes, out))
