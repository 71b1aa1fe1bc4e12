"""Checks of the arrays that kernels are handed: compiled code does not look where it reads and writes."""

from __future__ import annotations

from typing import Any


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


def check_product(matrix: Any, vectors: Any, out: Any) -> None:
    """Refuse a matrix, vectors and results that do not fit each other."""
    rows, columns = matrix.shape
    if vectors.shape != (len(vectors), columns) or out.shape != (len(vectors), rows):
        raise ValueError(f"a matrix of shape {matrix.shape} does not take {vectors.shape} to {out.shape}")
