"""Quadratics with a Gram matrix and norms of blocks: coordinate descent, and the Hessian of the norms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64

from fpdfp._kernels.jit import reduction, serial


@reduction
def add_multiple(a: Any, factor: Any, b: Any) -> None:
    """Add a multiple of one vector to another."""
    for j in range(a.size):
        a[j] += factor * b[j]


@serial
def descend(
    gram: Any, slope: Any, u: Any, starts: Any, weights: Any, bounds: Any, sweeps: Any, step: Any
) -> None:  # fmt: skip
    """Minimise ½uᵀHu + bᵀu + Σ_G w_G ‖u_G‖ over one block after the other, so many times.

    ``slope`` is Hu + b, kept up to date; ``bounds`` are the largest eigenvalues of the blocks of H, and ``step`` is
    room for the largest block. Between two sweeps over all blocks there are four over those that are not 0.
    """
    for sweep in range(sweeps):
        moved = False
        for g in range(starts.size - 1):
            first, last = starts[g], starts[g + 1]
            bound = bounds[g]
            if sweep % 5:
                zero = True
                for k in range(first, last):
                    zero = zero and u[k] == 0.0
                if zero:
                    continue
            norm = 0.0
            for k in range(first, last):
                step[k - first] = bound * u[k] - slope[k]
                norm += step[k - first] ** 2
            norm = np.sqrt(norm)
            if bound > 0.0:
                factor = (1.0 - weights[g] / norm) / bound if norm > weights[g] else 0.0
            elif weights[g] > 0.0:
                factor = 0.0  # f does not depend on this block
            else:
                continue
            for k in range(first, last):
                change = factor * step[k - first] - u[k]
                if change != 0.0:
                    # to the very number: a coordinate that becomes 0 must be 0
                    u[k] = factor * step[k - first]
                    add_multiple(slope, change, gram[k])
                    moved = True
        if not moved and sweep % 5 == 0:
            break


@serial
def bend(system: Any, place: Any, u: Any, starts: Any, weights: Any, norms: Any) -> None:
    """Add the Hessian of w_G ‖u_G‖ for every larger block that is not 0; ``place`` says where a coordinate comes."""
    for g in range(starts.size - 1):
        first, last = starts[g], starts[g + 1]
        if last - first == 1 or norms[g] == 0.0 or weights[g] == 0.0:
            continue
        factor = weights[g] / norms[g]
        for k in range(first, last):
            line = system[place[k]]
            for m in range(first, last):
                line[place[m]] -= factor * (u[k] / norms[g]) * (u[m] / norms[g])
            line[place[k]] += factor


@serial
def descend_columns(
    data: Any, indices: Any, indptr: Any, columns: Any, curvatures: Any, ridge: Any, weights: Any, bounds: Any,
    start: Any, centre: Any, u: Any, image: Any, sweeps: Any,
) -> None:  # fmt: skip
    """Minimise ⟨s, u − c⟩ + ½ Σ_j w_j (A(u − c))_j² + ½ Σ R_k (u_k − c_k)² + Σ λ_k |u_k| over one column after another.

    A has some columns of a CSC matrix; ``image`` is A(u − c), kept up to date, and ``bounds`` are Σ_j w_j a_jk² + R_k.
    Between two sweeps over all columns there are four over those whose coordinate is not 0.
    """
    for sweep in range(sweeps):
        moved = False
        for k in range(columns.size):
            if (sweep % 5 and u[k] == 0.0) or bounds[k] == 0.0:
                continue
            first, last = uint64(indptr[columns[k]]), uint64(indptr[columns[k] + 1])
            slope = start[k] + ridge[k] * (u[k] - centre[k])
            for p in range(first, last):
                j = uint64(indices[p])
                slope += data[p] * curvatures[j] * image[j]
            target = u[k] - slope / bounds[k]
            size = abs(target) - weights[k] / bounds[k]
            new = np.copysign(size, target) if size > 0.0 else 0.0
            change = new - u[k]
            if change != 0.0:
                u[k] = new
                for p in range(first, last):
                    image[uint64(indices[p])] += change * data[p]
                moved = True
        if not moved and sweep % 5 == 0:
            break


@serial
def curve_columns(
    data: Any, indices: Any, indptr: Any, columns: Any, curvatures: Any, ridge: Any, bounds: Any
) -> None:  # fmt: skip
    """Write Σ_j w_j a_jk² + R_k of some columns."""
    for k in range(columns.size):
        total = ridge[k]
        for p in range(uint64(indptr[columns[k]]), uint64(indptr[columns[k] + 1])):
            total += data[p] * data[p] * curvatures[uint64(indices[p])]
        bounds[k] = total


@serial
def slope_columns(
    data: Any, indices: Any, indptr: Any, columns: Any, curvatures: Any, ridge: Any, start: Any, centre: Any, u: Any,
    image: Any, slope: Any,
) -> None:  # fmt: skip
    """Write the slope of the quadratic at u, for some columns."""
    for k in range(columns.size):
        total = start[k] + ridge[k] * (u[k] - centre[k])
        for p in range(uint64(indptr[columns[k]]), uint64(indptr[columns[k] + 1])):
            j = uint64(indices[p])
            total += data[p] * curvatures[j] * image[j]
        slope[k] = total
