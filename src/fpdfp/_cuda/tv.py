"""Total variation on the GPU: the same as :mod:`fpdfp._kernels.tv`, over CuPy arrays."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from fpdfp._cuda.source import C_NAMES
from fpdfp._kernels.tv import check_dual_step, check_gradient
from fpdfp._typing import Array

THREADS = 256
#: A block has this many threads along z and y; those at its rim only prepare what the others need.
TILE_Z, TILE_Y = 32, 16
#: A block goes over this many planes across the x axis, and works out one plane of its neighbour again.
SLAB = 16

SOURCE = r"""
typedef unsigned long long u64;

template <typename T>
__device__ __forceinline__ T clip(T x, T lower, T upper) { return x < lower ? lower : x > upper ? upper : x; }

template <typename T>
__global__ void gradient(const T* __restrict__ x, int nx, int ny, int nz, T* __restrict__ out) {
    const u64 plane = (u64)ny * nz, size = nx * plane;
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= size) return;
    x += blockIdx.y * size;
    out += blockIdx.y * 3 * size;
    const int i = at / plane, j = at / nz % ny, k = at % nz;
    const T here = x[at];
    out[at] = i + 1 < nx ? x[at + plane] - here : T(0);
    out[at + size] = j + 1 < ny ? x[at + nz] - here : T(0);
    out[at + 2 * size] = k + 1 < nz ? x[at + 1] - here : T(0);
}

template <typename T>
__device__ __forceinline__ T adjoint_at(const T* __restrict__ v, u64 at, int i, int j, int k, int nx, int ny, int nz) {
    const u64 plane = (u64)ny * nz, size = nx * plane;
    T sum = T(0);
    if (i > 0) sum += v[at - plane];
    if (i + 1 < nx) sum -= v[at];
    if (j > 0) sum += v[at + size - nz];
    if (j + 1 < ny) sum -= v[at + size];
    if (k > 0) sum += v[at + 2 * size - 1];
    if (k + 1 < nz) sum -= v[at + 2 * size];
    return sum;
}

template <typename T>
__global__ void adjoint(const T* __restrict__ v, int nx, int ny, int nz, T* __restrict__ out) {
    const u64 plane = (u64)ny * nz, size = nx * plane;
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= size) return;
    out[blockIdx.y * size + at] =
        adjoint_at(v + blockIdx.y * 3 * size, at, at / plane, at / nz % ny, at % nz, nx, ny, nz);
}

// v+ = P(v + sigma B(half - gamma B'v)) and x+ = half - gamma B'v+. A block goes from plane to plane with a tile of
// (y, z): its threads share the points half - gamma B'v of a plane, and then the new components along y and z. Threads
// at the rim of the tile belong to the neighbouring tile as well, which writes.
template <typename T, bool ISOTROPIC, bool BOUNDED>
__global__ void dual_step(const T* __restrict__ half, const T* __restrict__ v, int shared_v, int nx, int ny, int nz,
                          T gamma, T sigma, T weight, T* __restrict__ new_v, T* __restrict__ new_x) {
    __shared__ T points[TILE_Y][TILE_Z], second[TILE_Y][TILE_Z], third[TILE_Y][TILE_Z];
    const int slabs = (nx + SLAB - 1) / SLAB;
    const u64 client = blockIdx.z / slabs;
    const int first = blockIdx.z % slabs * SLAB, last = min(first + SLAB, nx);
    const int ty = threadIdx.y, tz = threadIdx.x;
    const int j = (int)blockIdx.y * (TILE_Y - 2) + ty - 1, k = (int)blockIdx.x * (TILE_Z - 2) + tz - 1;
    const bool inside = j >= 0 && j < ny && k >= 0 && k < nz;
    const bool steps = inside && ty < TILE_Y - 1 && tz < TILE_Z - 1, writes = steps && ty > 0 && tz > 0;
    const u64 plane = (u64)ny * nz, size = nx * plane, dual = (BOUNDED ? 4 : 3) * size;
    half += client * size;
    v += shared_v ? 0 : client * dual;
    new_v += client * dual;
    if (new_x) new_x += client * size;

    auto point = [&](int i) {
        const u64 at = i * plane + (u64)j * nz + k;
        T sum = adjoint_at(v, at, i, j, k, nx, ny, nz);
        if (BOUNDED) sum += v[at + 3 * size];
        return half[at] - gamma * sum;
    };

    int i = max(first - 1, 0);
    T here = inside ? point(i) : T(0), before = T(0);
    for (; i < last; ++i) {
        // Beyond the edge the volume goes on as it ends there: the difference is zero.
        const T after = inside && i + 1 < nx ? point(i + 1) : here;
        points[ty][tz] = here;
        __syncthreads();
        const u64 at = i * plane + (u64)j * nz + k;
        T a = T(0), b = T(0), c = T(0), d = T(0);
        if (steps) {
            a = sigma * (after - here) + v[at];
            b = sigma * ((j + 1 < ny ? points[ty + 1][tz] : here) - here) + v[at + size];
            c = sigma * ((k + 1 < nz ? points[ty][tz + 1] : here) - here) + v[at + 2 * size];
            if (ISOTROPIC) {
                const T norm = sqrt((a * a + b * b) + c * c);
                const T factor = norm > T(0) ? clip(weight / norm, T(0), T(1)) : T(0);
                a *= factor; b *= factor; c *= factor;
            } else {
                a = clip(a, -weight, weight);
                b = clip(b, -weight, weight);
                c = clip(c, -weight, weight);
            }
            if (BOUNDED) {
                const T bound = sigma * here + v[at + 3 * size];
                d = bound < T(0) ? bound : T(0);
            }
        }
        second[ty][tz] = b;
        third[ty][tz] = c;
        __syncthreads();
        if (writes && i >= first) {
            new_v[at] = a;
            new_v[at + size] = b;
            new_v[at + 2 * size] = c;
            if (BOUNDED) new_v[at + 3 * size] = d;
            if (new_x) {
                T sum = T(0);
                if (i > 0) sum += before;
                if (i + 1 < nx) sum -= a;
                if (j > 0) sum += second[ty - 1][tz];
                if (j + 1 < ny) sum -= b;
                if (k > 0) sum += third[ty][tz - 1];
                if (k + 1 < nz) sum -= c;
                if (BOUNDED) sum += d;
                new_x[at] = half[at] - gamma * sum;
            }
        }
        before = a;
        here = after;
    }
}
"""

INSTANCES = tuple(
    instance
    for kind in C_NAMES.values()
    for instance in (
        f"gradient<{kind}>",
        f"adjoint<{kind}>",
        *(f"dual_step<{kind}, {iso}, {bounded}>" for iso in ("false", "true") for bounded in ("false", "true")),
    )
)


@functools.cache
def _module() -> Any:
    import cupy

    sizes = (f"-DTILE_Z={TILE_Z}", f"-DTILE_Y={TILE_Y}", f"-DSLAB={SLAB}")
    # Without contraction of products and sums every operation rounds as it does on a processor.
    return cupy.RawModule(code=SOURCE, options=("--std=c++14", "--fmad=false", *sizes), name_expressions=INSTANCES)


@functools.cache
def _kernel(name: str, dtype: str, *of: bool) -> Any:
    arguments = ", ".join([C_NAMES[dtype], *(str(one).lower() for one in of)])
    return _module().get_function(f"{name}<{arguments}>")


def _lengths(shape: tuple[int, ...]) -> tuple[np.int32, ...]:
    return tuple(np.int32(length) for length in shape)


def _voxelwise(name: str, array: Array, shape: tuple[int, ...], out: Array) -> None:
    """Call a kernel with a thread for every voxel, and a row of blocks for every client."""
    blocks = -(-int(np.prod(shape)) // THREADS), len(array)
    _kernel(name, out.dtype.char)(blocks, (THREADS,), (array, *_lengths(shape), out))


def gradient(x: Array, out: Array) -> None:
    """Write ∇x for every client."""
    check_gradient(x, out)
    _voxelwise("gradient", x, x.shape[1:], out)


def adjoint(v: Array, out: Array) -> None:
    """Write ∇ᵀv for every client."""
    check_gradient(out, v)
    _voxelwise("adjoint", v, out.shape[1:], out)


def dual_step(
    half: Array, v: Array, isotropic: bool, constants: Array, wants_x: bool, new_v: Array, new_x: Array
) -> None:
    """Write v⁺ and x⁺, as :func:`fpdfp._kernels.tv.dual_step` does."""
    check_dual_step(half, v, constants, wants_x, new_v, new_x)
    clients, nx, ny, nz = half.shape
    _, gamma, sigma, weight = constants
    blocks = -(-nz // (TILE_Z - 2)), -(-ny // (TILE_Y - 2)), clients * -(-nx // SLAB)
    _kernel("dual_step", half.dtype.char, isotropic, v.shape[1] == 4)(
        blocks,
        (TILE_Z, TILE_Y),
        (
            half, v, np.int32(len(v) == 1), *_lengths((nx, ny, nz)), gamma, sigma, weight, new_v,
            new_x if wants_x else np.uintp(0),
        ),
    )  # fmt: skip
