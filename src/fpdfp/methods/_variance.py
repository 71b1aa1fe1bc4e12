"""Mini-batch gradients whose noise vanishes: loopless SVRG."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fpdfp._array import beside
from fpdfp._typing import Array
from fpdfp.methods._memory import start_points
from fpdfp.problem import LocalLosses, Model
from fpdfp.rng import Draws, Purpose


class Anchors(NamedTuple):
    """What a client compares with: a point w_i, ∇f_i(w_i), and whether there is one yet."""

    point: Array
    slope: Array
    known: Array

    @classmethod
    def empty(cls, n_clients: int, model: Model) -> Anchors:
        """Return the anchors of clients that have not taken part yet."""
        point, slope = start_points(model, n_clients), start_points(model, n_clients)
        return cls(point, slope, np.zeros(n_clients, dtype=bool))


def gradients(
    local: LocalLosses, z: Array, anchors: Anchors, batch_size: int, refresh: float | None, draws: Draws
) -> tuple[Array, Anchors]:
    """Return the estimates of the clients' gradients at z, and their anchors after the round.

    ::

        with probability p:   ∇f_i(z), and w_i ← z
        otherwise:            ∇f_batch(z) − ∇f_batch(w_i) + ∇f_i(w_i)

    (D. Kovalev, S. Horváth and P. Richtárik, "Don't jump through hoops and remove those loops: SVRG and Katyusha are
    better without the outer loop", ALT 2020.) Without ``refresh`` p is the batch's share of the client's samples. A
    client that takes part for the first time has no w_i, and computes the full gradient.
    """
    sizes = local.losses.sizes[local.clients]
    chance = np.minimum(batch_size / sizes, 1.0) if refresh is None else np.full(len(sizes), refresh)
    coins = draws.words(Purpose.REFRESH, 1)[:, 0] / 2.0**32
    full = ~anchors.known | (coins < chance)
    estimates = np.empty_like(anchors.slope)
    if full.any():
        whole = local._replace(clients=local.clients[full])
        estimates[full] = whole.gradients(z)
    part = ~full
    if part.any():
        some, draw = local._replace(clients=local.clients[part]), draws._replace(clients=draws.clients[part])
        there = some.gradients(anchors.point[part], batch_size, draw)
        estimates[part] = some.gradients(z, batch_size, draw) - there + anchors.slope[part]
    wide = beside(full.reshape(-1, *[1] * z.ndim), z)
    return estimates, Anchors(
        np.where(wide, z, anchors.point), np.where(wide, estimates, anchors.slope), np.ones_like(full)
    )
