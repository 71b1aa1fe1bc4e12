"""Symmetric matrices as they are sent: their lower triangles, flat."""

from __future__ import annotations

import math

import numpy as np

from fpdfp._typing import Array


def lower(matrices: Array) -> Array:
    """The lower triangles of symmetric matrices, flat."""
    rows, columns = np.tril_indices(matrices.shape[-1])
    return matrices[..., rows, columns]


def full(triangle: Array) -> Array:
    """The symmetric matrix of a lower triangle."""
    d = side(triangle)
    matrix = np.zeros((d, d))
    matrix[np.tril_indices(d)] = triangle
    return matrix + np.tril(matrix, -1).T


def side(triangle: Array) -> int:
    """How many rows the matrix of a lower triangle has."""
    return (math.isqrt(8 * len(triangle) + 1) - 1) // 2
