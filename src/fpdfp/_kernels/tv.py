"""Total variation of volumes: the gradient, its adjoint, and the whole dual step of a primal-dual method in one pass.

Volumes are ``(clients, nx, ny, nz)``, duals ``(clients, 3, nx, ny, nz)``, with a fourth component where x ≥ 0 is asked
for as well. Kernels see the planes across the x axis as flat arrays of ny · nz entries, ``nz`` to a row. Every entry is
worked out by the operations, and in the order, in which NumPy goes over whole arrays, so that the bits are the same.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

from fpdfp._kernels.jit import serial, threaded

#: A thread works on this many planes at a time; each slab works out a plane of its neighbour again.
SLAB = 16


# Compiled code does not look where it reads and writes, so that shapes are checked before.


def check_gradient(x: Any, v: Any) -> None:
    """Refuse volumes and gradients of volumes that do not fit each other: (clients, nx, ny, nz), (clients, 3, …)."""
    if x.ndim != 4 or v.shape != (len(x), 3, *x.shape[1:]) or x.dtype != v.dtype:
        raise ValueError(f"volumes of shape {x.shape} have no gradient of shape {v.shape}, or not in one precision")


def check_dual_step(half: Any, v: Any, constants: Any, wants_x: bool, new_v: Any, new_x: Any) -> None:
    """Refuse the arrays of a dual step that do not fit each other; there is one dual for all clients, or one each."""
    components, places = new_v.shape[1:2], half.shape[1:]
    fits = half.ndim == 4 and components in ((3,), (4,))
    fits = fits and new_v.shape == (len(half), *components, *places)
    fits = fits and v.shape[1:] == (*components, *places) and len(v) in (1, len(half))
    fits = fits and constants.shape == (4,) and (not wants_x or new_x.shape == half.shape) and len(new_x) == len(half)
    if not fits or any(array.dtype != half.dtype for array in (v, constants, new_v, new_x)):
        raise ValueError(f"volumes of shape {half.shape} do not fit dual variables of shape {v.shape}")


@serial
def pad(v: Any, i: Any, nz: Any, rows: Any, columns: Any) -> None:
    """Write the components along y and z of a plane, with zeros in front of them and for those that count for nothing.

    ``rows`` has a row more than the plane, ``columns`` a number more; they begin with zeros.
    """
    size = v.shape[2]
    rows[nz:size] = v[1, i, : size - nz]
    rows[size:] = rows[0]
    columns[1:] = v[2, i]
    columns[nz::nz] = rows[0]


@serial
def difference(left: Any, right: Any, out: Any) -> None:
    """Write left − right."""
    for t in range(out.size):
        out[t] = left[t] - right[t]


@serial
def add_padded(rows: Any, columns: Any, nz: Any, out: Any) -> None:
    """Add the parts of the adjoint that come from the components along y and z."""
    below, right = rows[nz:], columns[1:]  # since an index that is a sum may be negative, for all the compiler knows
    for t in range(out.size):
        out[t] = (((out[t] + rows[t]) - below[t]) + columns[t]) - right[t]


@serial
def adjoint_plane(before: Any, v: Any, i: Any, nz: Any, zeros: Any, rows: Any, columns: Any, out: Any) -> None:
    """Write plane i of Bᵀv; ``before`` is the first component one plane back."""
    pad(v, i, nz, rows, columns)
    difference(before if i > 0 else zeros, v[0, i] if i + 1 < v.shape[1] else zeros, out)
    add_padded(rows, columns, nz, out)
    if v.shape[0] == 4:
        bound = v[3, i]
        for t in range(out.size):
            out[t] += bound[t]


@serial
def step_back(half: Any, gamma: Any, out: Any) -> None:
    """Replace Bᵀv by half − γBᵀv."""
    for t in range(out.size):
        out[t] = half[t] - gamma * out[t]


@serial
def add_difference(sigma: Any, ahead: Any, here: Any, old: Any, new: Any) -> None:
    """Write σ (ahead − here) + old, as far as ``ahead`` goes, and the old numbers from there on."""
    for t in range(ahead.size):
        new[t] = sigma * (ahead[t] - here[t]) + old[t]
    for t in range(ahead.size, new.size):
        new[t] = old[t]


@serial
def project(isotropic: Any, one: Any, weight: Any, a: Any, b: Any, c: Any) -> None:
    """Project vectors of three components onto a ball, or each component onto an interval."""
    nothing = one - one
    if isotropic:
        for t in range(a.size):
            norm = math.sqrt((a[t] * a[t] + b[t] * b[t]) + c[t] * c[t])
            factor = min(weight / (norm if norm > nothing else one), one) if norm > nothing else nothing
            a[t] *= factor
            b[t] *= factor
            c[t] *= factor
    else:
        for part in (a, b, c):
            for t in range(part.size):
                part[t] = min(max(part[t], -weight), weight)


@serial
def dual_plane(
    here: Any, after: Any, v: Any, i: Any, nz: Any, isotropic: Any, constants: Any, a: Any, b: Any, c: Any, d: Any
) -> None:
    """Write the components of plane i of v⁺ from planes i and i + 1 of half − γBᵀv; the fourth where there is one."""
    one, sigma, weight = constants[0], constants[2], constants[3]
    # Beyond the edge the volume continues as it ends there: the difference is zero.
    add_difference(sigma, after if i + 1 < v.shape[1] else here, here, v[0, i], a)
    add_difference(sigma, here[nz:], here, v[1, i], b)
    add_difference(sigma, here[1:], here, v[2, i], c)
    for t in range(nz - 1, c.size, nz):
        c[t] = v[2, i, t]
    project(isotropic, one, weight, a, b, c)
    if v.shape[0] == 4:
        old = v[3, i]
        for t in range(d.size):
            d[t] = min(sigma * here[t] + old[t], one - one)


@serial
def step_slab(
    half: Any, v: Any, nz: Any, first: Any, last: Any, isotropic: Any, constants: Any, wants_x: Any, new_v: Any,
    new_x: Any,
) -> None:  # fmt: skip
    """Write planes ``first`` to ``last − 1`` of v⁺ and of x⁺ = half − γBᵀv⁺."""
    nx, size = half.shape
    gamma = constants[1]
    zeros = np.zeros(size, dtype=half.dtype)
    rows, columns = np.zeros(size + nz, dtype=half.dtype), np.zeros(size + 1, dtype=half.dtype)
    here, after = np.empty(size, dtype=half.dtype), np.empty(size, dtype=half.dtype)
    edge = np.empty((4, size), dtype=half.dtype)
    before = zeros  # the first component of v⁺ one plane back
    begin = max(first - 1, 0)
    adjoint_plane(v[0, max(begin - 1, 0)], v, begin, nz, zeros, rows, columns, here)
    step_back(half[begin], gamma, here)
    for i in range(begin, last):
        if i + 1 < nx:
            adjoint_plane(v[0, i], v, i + 1, nz, zeros, rows, columns, after)
            step_back(half[i + 1], gamma, after)
        if i < first:
            dual_plane(here, after, v, i, nz, isotropic, constants, edge[0], edge[1], edge[2], edge[3])
            before = edge[0]
        else:
            most = v.shape[0] - 1  # the fourth component, if there is one
            planes = new_v[0, i], new_v[1, i], new_v[2, i], new_v[most, i]
            dual_plane(here, after, v, i, nz, isotropic, constants, *planes)
            if wants_x:
                adjoint_plane(before, new_v, i, nz, zeros, rows, columns, new_x[i])
                step_back(half[i], gamma, new_x[i])
            before = new_v[0, i]
        here, after = after, here


@threaded
def step_slabs(
    half: Any, v: Any, nz: Any, isotropic: Any, constants: Any, wants_x: Any, new_v: Any, new_x: Any
) -> None:
    """Do the dual step over arrays whose planes are flat."""
    slabs = (half.shape[1] + SLAB - 1) // SLAB
    for t in prange(half.shape[0] * slabs):
        client, first = t // slabs, t % slabs * SLAB
        step_slab(
            half[client], v[client if len(v) > 1 else 0], nz, first, min(first + SLAB, half.shape[1]), isotropic,
            constants, wants_x, new_v[client], new_x[client],
        )  # fmt: skip


def dual_step(half: Any, v: Any, isotropic: Any, constants: Any, wants_x: Any, new_v: Any, new_x: Any) -> None:
    """Write v⁺ = P(v + σB(half − γBᵀv)), P the projection, and where it is wanted x⁺ = half − γBᵀv⁺.

    ``v`` has one dual for all clients, or one for each; ``constants`` are 1, γ, σ and the weight in their precision.
    """
    check_dual_step(half, v, constants, wants_x, new_v, new_x)
    nz = half.shape[3]
    step_slabs(flat(half), flat(v), nz, isotropic, constants, wants_x, flat(new_v), flat(new_x))


def flat(array: Any) -> Any:
    """Return arrays with flat planes."""
    return array.reshape(*array.shape[:-2], array.shape[-2] * array.shape[-1])


@serial
def gradient_plane(x: Any, i: Any, nz: Any, out: Any) -> None:
    """Write plane i of the three components of ∇x."""
    here, third = x[i], out[2, i]
    nothing = here[0] - here[0]
    difference(x[i + 1] if i + 1 < x.shape[0] else here, here, out[0, i])
    difference(here[nz:], here, out[1, i, : here.size - nz])
    out[1, i, here.size - nz :] = nothing
    difference(here[1:], here, third[: here.size - 1])
    third[nz - 1 :: nz] = nothing


@threaded
def gradient_planes(x: Any, nz: Any, out: Any) -> None:
    """Write ∇x over arrays whose planes are flat."""
    planes = x.shape[1]
    for t in prange(x.shape[0] * planes):
        gradient_plane(x[t // planes], t % planes, nz, out[t // planes])


def gradient(x: Any, out: Any) -> None:
    """Write ∇x for every client."""
    check_gradient(x, out)
    gradient_planes(flat(x), x.shape[3], flat(out))


@serial
def adjoint_slab(v: Any, nz: Any, first: Any, last: Any, out: Any) -> None:
    """Write planes ``first`` to ``last − 1`` of ∇ᵀv."""
    size = out.shape[1]
    zeros = np.zeros(size, dtype=out.dtype)
    rows, columns = np.zeros(size + nz, dtype=out.dtype), np.zeros(size + 1, dtype=out.dtype)
    for i in range(first, last):
        adjoint_plane(v[0, max(i - 1, 0)], v, i, nz, zeros, rows, columns, out[i])


@threaded
def adjoint_slabs(v: Any, nz: Any, out: Any) -> None:
    """Write ∇ᵀv over arrays whose planes are flat."""
    slabs = (out.shape[1] + SLAB - 1) // SLAB
    for t in prange(out.shape[0] * slabs):
        client, first = t // slabs, t % slabs * SLAB
        adjoint_slab(v[client], nz, first, min(first + SLAB, out.shape[1]), out[client])


def adjoint(v: Any, out: Any) -> None:
    """Write ∇ᵀv for every client."""
    check_gradient(out, v)
    adjoint_slabs(flat(v), v.shape[4], flat(out))
