"""The dual step that primal-dual methods share, in one pass for a total variation and for ‖Bx‖₁ with a sparse B."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fpdfp._array import namespace
from fpdfp._typing import Array
from fpdfp.linops import Gradient, LinOp, Matrix, VStack
from fpdfp.linops.maps import tv_kernels
from fpdfp.penalties import L1, GroupL12, NonNegative, Penalty, Stacked

if TYPE_CHECKING:
    from fpdfp.problem import Model


class TotalVariation(NamedTuple):
    """g(Bx) = weight · ‖∇x‖ of a volume, isotropic or not, with x ≥ 0 or not."""

    weight: float
    isotropic: bool


def dual_step(model: Model, half: Array, v: Array, gamma: float, sigma: float) -> Array:
    """Return v⁺ = prox_{σg*}( v + σB(half − γBᵀv) ), over a client axis of both or of ``half`` alone."""
    kind = _fused(model, half, v)
    if kind is not None:
        return _one_pass(kind, model, half, v, gamma, sigma, wants_x=False)[1]
    if _is_sparse_l1(model, half, v):
        return _sparse_pass(model, half, v, gamma, sigma, wants_x=False)[1]
    image = model.linop.apply(half - gamma * model.linop.adjoint(v))
    return model.penalty.conjugate_prox(sigma * image + v, sigma)


def primal_dual_step(model: Model, half: Array, v: Array, gamma: float, sigma: float) -> tuple[Array, Array]:
    """Return x⁺ = half − γBᵀv⁺, and the v⁺ of :func:`dual_step`."""
    kind = _fused(model, half, v)
    if kind is not None:
        return _one_pass(kind, model, half, v, gamma, sigma, wants_x=True)
    if _is_sparse_l1(model, half, v):
        return _sparse_pass(model, half, v, gamma, sigma, wants_x=True)
    new_v = dual_step(model, half, v, gamma, sigma)
    return half - gamma * model.linop.adjoint(new_v), new_v


def pdfp_step(model: Model, x: Array, slopes: Array, v: Array, gamma: float, sigma: float) -> tuple[Array, Array]:
    """Return what :func:`primal_dual_step` does from half = x − γ · slopes, with one x for all or one for each."""
    alike = x.dtype == slopes.dtype and x.shape in (slopes.shape[1:], slopes.shape)
    if type(gamma) is float and alike and _is_sparse_l1(model, slopes, v):
        return _sparse_pass(model, x, v, gamma, sigma, wants_x=True, slopes=slopes)
    return primal_dual_step(model, x - gamma * slopes, v, gamma, sigma)


def total_variation(model: Model) -> TotalVariation | None:
    """Say which total variation g∘B is; None if it is something else."""
    linop, penalty = model.linop, model.penalty
    if isinstance(linop, VStack) and isinstance(penalty, Stacked):
        if len(linop.parts) != 2 or len(penalty.parts) != 2 or penalty.shapes[0] != linop.parts[0].out_shape:
            return None
        if not linop.parts[1].is_identity or type(penalty.parts[1]) is not NonNegative:
            return None
        linop, penalty = linop.parts[0], penalty.parts[0]
    return _of_gradient(linop, penalty)


def _of_gradient(linop: LinOp, penalty: Penalty) -> TotalVariation | None:
    if type(linop) is not Gradient or len(linop.in_shape) != 3:
        return None
    if type(penalty) is GroupL12 and penalty.axis == 0 and isinstance(penalty.weight, float):
        return TotalVariation(penalty.weight, isotropic=True)
    if type(penalty) is L1 and isinstance(penalty.weight, float):
        return TotalVariation(penalty.weight, isotropic=False)
    return None


def _fused(model: Model, half: Array, v: Array) -> TotalVariation | None:
    """Return the total variation if there is a kernel for it and for these arrays."""
    if len(model.shape) != 3:  # the kernels are for volumes; said first, since most problems are not
        return None
    if half.dtype != v.dtype or half.dtype.char not in "fd" or half.size == 0:
        return None
    if v.ndim > len(model.dual_shape) and v.shape[:1] != half.shape[: half.ndim - 3]:
        return None
    return total_variation(model)


def _is_sparse_l1(model: Model, half: Array, v: Array) -> bool:
    """Whether g∘B is a multiple of ‖Bx‖₁ with a sparse matrix B, and these are arrays with a client axis."""
    linop, penalty = model.linop, model.penalty
    return (
        type(linop) is Matrix and linop.sparse and type(penalty) is L1 and type(penalty.weight) is float
        and penalty.weight > 0 and type(half) is np.ndarray and half.ndim == 2
        and half.dtype.char in "fd" and half.dtype == v.dtype
        and half.shape[1:] == linop.in_shape and v.shape[-1:] == linop.out_shape
        and (v.ndim == 1 or v.shape[0] in (1, half.shape[0]))
    )  # fmt: skip


def _sparse_pass(
    model: Model, x: Array, v: Array, gamma: float, sigma: float, *, wants_x: bool, slopes: Array | None = None
) -> tuple[Array, Array]:
    linop: Any = model.linop
    weight: float = model.penalty.weight  # type: ignore[attr-defined]
    (rows,), (columns,), dtype = linop.out_shape, linop.in_shape, x.dtype
    count = len(x if slopes is None else slopes)
    slopes = np.empty((0, columns), dtype=dtype) if slopes is None else np.ascontiguousarray(slopes)
    x, v = np.ascontiguousarray(x).reshape(-1, columns), np.ascontiguousarray(v).reshape(-1, rows)
    new_v = np.empty((count, rows), dtype=dtype)
    new_x = np.empty((count, columns if wants_x else 0), dtype=dtype)
    linop.dual_step(x, slopes, v, float(gamma), float(sigma), weight, new_x, new_v)
    return new_x, new_v


def _one_pass(
    kind: TotalVariation, model: Model, half: Array, v: Array, gamma: float, sigma: float, *, wants_x: bool
) -> tuple[Array, Array]:
    xp, shape = namespace(half), model.linop.in_shape
    components = model.linop.size_out // model.linop.size_in
    halves = xp.ascontiguousarray(half).reshape(-1, *shape)
    duals = xp.ascontiguousarray(v).reshape(-1, components, *shape)
    new_v = xp.empty((len(halves), components, *shape), dtype=half.dtype)
    new_x = xp.empty(halves.shape if wants_x else (len(halves), 0, 0, 0), dtype=half.dtype)
    constants = np.array([1.0, gamma, sigma, kind.weight], dtype=half.dtype)
    tv_kernels(half).dual_step(halves, duals, kind.isotropic, constants, wants_x, new_v, new_x)
    lead = half.shape[: half.ndim - len(shape)]
    return new_x.reshape(half.shape) if wants_x else half, new_v.reshape(*lead, *model.dual_shape)
