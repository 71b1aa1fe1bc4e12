"""Minimising a quadratic model of f plus g∘B, on the server."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.linops import Compose, Matrix
from fpdfp.methods.base import Work
from fpdfp.methods.inner import InnerSolve, dense, needs_inner, prox
from fpdfp.penalties.base import Zero
from fpdfp.penalties.elastic_net import ElasticNet
from fpdfp.pooled.quadratic import Blocks, Quadratic
from fpdfp.pooled.working_set import blocks_of
from fpdfp.problem import Model

#: Eigenvalues below this, in coordinates with a diagonal of ones, are taken for 0: the model is flat there.
FLAT = 1e-13


class Minimised(NamedTuple):
    """Where a model plus g∘B is least, its dual, and what that took."""

    x: Array
    v: Array
    work: Work


def minimise(model: Model, hessian: Array, linear: Array, x: Array, v: Array, inner: InnerSolve) -> Minimised:
    """Minimise ½uᵀHu + ⟨q, u⟩ + g(Bu) from x and its dual v.

    Along directions in which H is flat u stays where x is.
    """
    if model.linop.is_identity and isinstance(model.penalty, ElasticNet) and model.penalty.l2.any():
        # The ridge of g belongs to the quadratic: it may bend what is flat in H.
        ridge, rest = np.broadcast_to(model.penalty.l2, x.shape), model.penalty.without_ridge()
        before = np.zeros_like(v) if isinstance(rest, Zero) else v - ridge * x
        found = minimise(model._replace(penalty=rest), hessian + np.diag(ridge), linear, x, before, inner)
        return found._replace(v=found.v + ridge * found.x)
    blocks = blocks_of(model.penalty, len(x)) if model.linop.is_identity else None
    if blocks is not None and not isinstance(model.penalty, Zero):
        return _minimise_on_blocks(blocks, hessian, hessian @ x + linear, x)
    scale = 1.0 / np.sqrt(np.where(np.diag(hessian) > 0, np.diag(hessian), 1.0))
    values, vectors = np.linalg.eigh(hessian * np.outer(scale, scale))
    curved = values > FLAT * max(float(values[-1]), 1.0)
    # In coordinates u = x + R w with H = I the model is ½‖w + Rᵀ(Hx + q)‖².
    R = scale[:, None] * vectors[:, curved] / np.sqrt(values[curved])
    y = -(R.T @ (hessian @ x + linear))
    if isinstance(model.penalty, Zero) or not curved.any():
        return Minimised(x + R @ y, v, Work())
    centre = np.linalg.pinv(R) @ x
    if not curved.all():
        # What is flat is fixed: g sees it as a constant, so that steps are taken in all directions, some very steep.
        values = np.where(curved, values, max(float(values[-1]), 1.0))
        R = scale[:, None] * vectors / np.sqrt(values)
        y, centre = -(R.T @ (hessian @ x + linear)), np.linalg.solve(R, x)
    space = model._replace(linop=Compose(model.linop, Matrix(R)), shape=(R.shape[1],), dtype=np.dtype(np.float64))
    solved = prox(
        space, (centre + y)[None], 1.0, v[None], inner if needs_inner(space) else None, origin=centre[None],
        matrix=dense(space),
    )  # fmt: skip
    u, v = R @ solved.u[0], solved.v[0]
    if model.linop.is_identity:
        # v is a subgradient at u up to rounding: a prox step along it gives zeros and limits exactly.
        t = 1.0 / max(float(np.diag(hessian).max()), 1e-300)
        u, v = model.penalty.prox(u + t * v, t), model.penalty.conjugate_prox(u / t + v, 1.0 / t)
    return Minimised(u, v, solved.work)


def _minimise_on_blocks(blocks: Blocks, hessian: Array, slope: Array, x: Array) -> Minimised:
    """Do so for norms of blocks of coordinates, such as the l1 norm: coordinates that vanish are exactly 0."""
    order = blocks.coordinates
    u = x.copy()
    u[order] = Quadratic(hessian[np.ix_(order, order)], blocks).minimise(x[order], slope[order])
    dual = -(slope + hessian @ (u - x))[order]
    norms = blocks.norms(dual)
    # What rounding has left of the condition |v| ≤ weight.
    shares = np.where(norms > blocks.weights, blocks.weights / np.where(norms > 0, norms, 1.0), 1.0)
    v = np.empty_like(dual)
    v[order] = blocks.spread(shares) * dual
    return Minimised(u, v, Work())
