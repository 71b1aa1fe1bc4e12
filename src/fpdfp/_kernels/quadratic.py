"""Quadratics with norms of blocks or absolute differences: coordinate descent, Hessians of norms, proxes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64

from fpdfp._kernels.jit import inline, reduction, serial


@reduction
def add_multiple(a: Any, factor: Any, b: Any) -> None:
    """Add a multiple of one vector to another."""
    for j in range(a.size):
        a[j] += factor * b[j]


@inline
def measure_block(first: Any, last: Any, u: Any, slope: Any, weight: Any) -> Any:
    """Return the norms of a block of u, of the slope of the smooth part, and of the shortest subgradient."""
    norm, steep, along = 0.0, 0.0, 0.0
    for k in range(first, last):
        norm += u[k] * u[k]
        steep += slope[k] * slope[k]
    norm, steep = np.sqrt(norm), np.sqrt(steep)
    if norm == 0.0:
        return norm, steep, max(steep - weight, 0.0)
    for k in range(first, last):
        along += (slope[k] + weight / norm * u[k]) ** 2
    return norm, steep, np.sqrt(along)


@inline
def measure_entry(u: Any, slope: Any, weight: Any) -> Any:
    """Do so for a block of one entry."""
    norm, steep = abs(u), abs(slope)
    return norm, steep, abs(slope + np.copysign(weight, u)) if norm > 0.0 else max(steep - weight, 0.0)


@serial
def block_residuals(u: Any, slope: Any, starts: Any, weights: Any, out: Any) -> None:
    """Write the norm of the shortest subgradient in each block, for the slope of the smooth part."""
    single = u.size == weights.size
    for g in range(weights.size):
        if single:
            out[g] = measure_entry(u[g], slope[g], weights[g])[2]
        else:
            out[g] = measure_block(starts[g], starts[g + 1], u, slope, weights[g])[2]


@serial
def estimate_gap(u: Any, slope: Any, starts: Any, weights: Any, curved: Any, value: Any) -> Any:
    """Return about what the duality gap is, from the optimality conditions of some blocks and F(x) = ``value``.

    ``curved`` is by how much F curves along a block at least, or, where it has no weight, about how much.
    """
    total, scale, single = 0.0, 1.0, u.size == weights.size
    for g in range(weights.size):
        weight, bend = weights[g], curved[g]
        if single:
            norm, steep, residual = measure_entry(u[g], slope[g], weight)
        else:
            norm, steep, residual = measure_block(starts[g], starts[g + 1], u, slope, weight)
        held = norm > 0.0 and weight > 0.0
        total += norm * residual if held else 0.0
        free = 0.0 if held else residual
        total += free * free / (2.0 * bend) if bend > 0.0 else 0.0
        if bend == 0.0 and scale * steep > weight > 0.0:
            # Without curvature the dual point is scaled until it is feasible.
            scale = weight / steep
    return total + (1.0 - scale) * value


@serial
def descend(
    gram: Any, slope: Any, u: Any, starts: Any, weights: Any, bounds: Any, sweeps: Any, step: Any
) -> None:  # fmt: skip
    """Minimise ½uᵀHu + bᵀu + Σ_G w_G ‖u_G‖ over one block after the other, a given multiple of.

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
    """Write u ≈ argmin_u ½ Σ_i m_i (u_i − t_i)² + Σ_e w_e |(Bu)_e|, within a gap or some steps.

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
    data: Any, indices: Any, indptr: Any, ridge: Any, weights: Any, lengths: Any, start: Any, centre: Any, u: Any,
    image: Any, slope: Any, sweeps: Any,
) -> None:  # fmt: skip
    """Minimise ⟨s, u − c⟩ + ½ ‖A(u − c)‖² + ½ Σ R_k (u_k − c_k)² + Σ λ_k |u_k| over one column of A after another.

    A is CSC; ``image`` is A(u − c), kept up to date, and ``lengths`` are 1 / (‖a_k‖² + R_k), or 0 for a coordinate that
    stays unchanged. The first sweep is over all columns; it writes the slope along each before its coordinate moves.
    The others are over those whose coordinate is not 0 after it.
    """
    places, count = np.arange(u.size), u.size
    for sweep in range(sweeps):
        kept = 0
        for m in range(count):
            k = places[m]
            first, last = uint64(indptr[k]), uint64(indptr[k + 1])
            total = start[k] + ridge[k] * (u[k] - centre[k])
            for p in range(first, last):
                total += data[p] * image[uint64(indices[p])]
            if sweep == 0:
                slope[k] = total
            target = u[k] - lengths[k] * total
            size = abs(target) - lengths[k] * weights[k]
            new = np.copysign(size, target) if size > 0.0 else 0.0
            change = new - u[k]
            if change != 0.0:
                u[k] = new
                for p in range(first, last):
                    image[uint64(indices[p])] += change * data[p]
            places[kept] = k
            kept += 1 if new != 0.0 else 0
        count = kept


@serial
def scale_columns(
    data: Any, indices: Any, indptr: Any, roots: Any, ridge: Any, scaled: Any, lengths: Any
) -> None:  # fmt: skip
    """Write the entries of a CSC matrix times a number for each row, and 1 / (‖a_k‖² + R_k) of what becomes of it."""
    for k in range(lengths.size):
        total = ridge[k]
        for p in range(uint64(indptr[k]), uint64(indptr[k + 1])):
            scaled[p] = data[p] * roots[uint64(indices[p])]
            total += scaled[p] * scaled[p]
        lengths[k] = 1.0 / total if total > 0.0 else 0.0
