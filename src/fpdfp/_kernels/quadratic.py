"""Quadratics with norms of blocks or absolute differences: coordinate descent, Hessians of norms, proxes."""

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
def prox_chain(target: Any, metric: Any, weights: Any, out: Any) -> None:
    """Write argmin_u ½ Σ_i m_i (u_i − t_i)² + Σ_i w_i |u_{i+1} − u_i|, in a time proportional to the length.

    The derivative of the least value of the first terms, as a function of u_i, is piecewise linear. It is kept as a
    list of its kinks: where each is, and by how much slope and intercept change there. N. A. Johnson, "A dynamic
    programming algorithm for the fused lasso and L0-segmentation", J. Comput. Graph. Stat. 22 (2013).
    """
    count = target.size
    kinks, slopes, intercepts = np.empty(2 * count), np.empty(2 * count), np.empty(2 * count)
    lowest, highest = np.empty(count), np.empty(count)
    first, last, before = count, count - 1, 0.0
    for k in range(count - 1):
        m, shift, weight = metric[k], metric[k] * target[k], weights[k]
        # from the left until the derivative is above −w, from the right until it is below w
        slope, intercept, low = m, -shift - before, first
        while low <= last and slope * kinks[low] + intercept <= -weight:
            slope += slopes[low]
            intercept += intercepts[low]
            low += 1
        down, fall, high = m, -shift + before, last
        while high >= low and down * kinks[high] + fall >= weight:
            down -= slopes[high]
            fall -= intercepts[high]
            high -= 1
        lowest[k], highest[k] = (-weight - intercept) / slope, (weight - fall) / down
        first, last = low - 1, high + 1
        kinks[first], slopes[first], intercepts[first] = lowest[k], slope, intercept + weight
        kinks[last], slopes[last], intercepts[last] = highest[k], -down, weight - fall
        before = weight
    slope, intercept = metric[count - 1], -metric[count - 1] * target[count - 1] - before
    while first <= last and slope * kinks[first] + intercept <= 0.0:
        slope += slopes[first]
        intercept += intercepts[first]
        first += 1
    out[count - 1] = -intercept / slope
    for k in range(count - 2, -1, -1):
        out[k] = min(max(out[k + 1], lowest[k]), highest[k])


@serial
def prox_sparse(
    data: Any, indices: Any, indptr: Any, turned_data: Any, turned_indices: Any, turned_indptr: Any, steps: Any,
    target: Any, metric: Any, weights: Any, enough: Any, most: Any, v: Any, out: Any,
) -> None:  # fmt: skip
    """Write u ≈ argmin_u ½ Σ_i m_i (u_i − t_i)² + Σ_e w_e |(Bu)_e|, within a duality gap or after so many steps.

    B and Bᵀ (``turned``) are CSR. The dual v, from which the steps start and which is written, is moved by accelerated
    projected gradient steps whose lengths are given for each entry; u = t − M⁻¹Bᵀv, up to rounding.
    """
    rows, columns = indptr.size - 1, turned_indptr.size - 1
    ahead, new = v.copy(), np.empty(rows)
    theta = 1.0
    for _ in range(most):
        for i in range(columns):
            total = 0.0
            for p in range(turned_indptr[i], turned_indptr[i + 1]):
                total += turned_data[p] * ahead[turned_indices[p]]
            out[i] = target[i] - total / metric[i]
        gap, along = 0.0, 0.0
        for e in range(rows):
            image = 0.0
            for p in range(indptr[e], indptr[e + 1]):
                image += data[p] * out[indices[p]]
            weight = weights[e]
            gap += weight * abs(image) - ahead[e] * image
            new[e] = min(max(ahead[e] + steps[e] * image, -weight), weight)
            along += (new[e] - ahead[e]) * (new[e] - v[e]) / steps[e]
        if gap <= enough:
            v[:] = ahead
            return
        after = 1.0 if along < 0.0 else 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * theta * theta))
        momentum = 0.0 if along < 0.0 else (theta - 1.0) / after
        theta = after
        for e in range(rows):
            # outside of its bounds there would be no gap
            ahead[e] = min(max(new[e] + momentum * (new[e] - v[e]), -weights[e]), weights[e])
            v[e] = new[e]
    for i in range(columns):
        total = 0.0
        for p in range(turned_indptr[i], turned_indptr[i + 1]):
            total += turned_data[p] * v[turned_indices[p]]
        out[i] = target[i] - total / metric[i]


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
