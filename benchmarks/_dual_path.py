"""The dual path algorithm of the generalised lasso, a dense textbook version.

R. J. Tibshirani and J. Taylor, "The solution path of the generalized lasso", Annals of Statistics 39 (2011). With
H = XᵀX/n + l2·I and b = Xᵀy/n the dual of min ½xᵀHx − bᵀx + λ‖Bx‖₁ is

    min ½ (b − Bᵀu)ᵀH⁻¹(b − Bᵀu)  subject to  |u_i| ≤ λ,

whose solution is piecewise linear in λ. From the λ at which the first u_i is at its bound, λ goes down from one event
to the next: a coordinate comes to its bound, or leaves it. The inverse of G = BH⁻¹Bᵀ on the coordinates inside their
bounds is updated at each event, and computed afresh now and then. G must be regular, as it is for differences along a
path.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

#: Events after which the inverse is computed afresh.
REFRESH = 100
#: Levels this close to each other are the same, up to rounding.
AGAIN = 1e-9


def solve_dual_path(X: np.ndarray, y: np.ndarray, B: Any, weight: float, l2: float) -> np.ndarray:
    """Return argmin ‖y − Xx‖²/2n + l2/2 ‖x‖² + weight ‖Bx‖₁."""
    rows, columns = X.shape
    rows_of_B = B.toarray()
    factor = scipy.linalg.cho_factor(X.T @ X / rows + l2 * np.eye(columns))
    b = X.T @ y / rows
    G = rows_of_B @ scipy.linalg.cho_solve(factor, rows_of_B.T)
    c = rows_of_B @ scipy.linalg.cho_solve(factor, b)
    u = _follow(G, c, weight)
    x: np.ndarray = scipy.linalg.cho_solve(factor, b - rows_of_B.T @ u)
    return x


def _follow(G: np.ndarray, c: np.ndarray, weight: float) -> np.ndarray:
    """Return the dual solution at a weight, from infinity down."""
    count = len(c)
    signs = np.zeros(count)
    inverse = np.zeros((count, count))
    level, events, moved = np.inf, 0, -1
    while True:
        inside = np.flatnonzero(signs == 0)
        if events % REFRESH == 0:
            inverse[:] = 0.0
            inverse[np.ix_(inside, inside)] = np.linalg.inv(G[np.ix_(inside, inside)])
        # Inside, u = start − λ·slope; what is left of Bx at the bounds is rest − λ·fall.
        start, slope = inverse @ np.where(signs == 0, c, 0.0), inverse @ np.where(signs == 0, G @ signs, 0.0)
        rest, fall = c - G @ start, G @ signs - G @ slope
        with np.errstate(divide="ignore", invalid="ignore"):
            both = np.stack([start / (slope + 1.0), start / (slope - 1.0)])
            leaves = np.where((signs * rest < 0) & (signs * fall < 0), rest / fall, -np.inf)
        # What rounding puts just before the last event is still to come, except for what moved there.
        both[(signs != 0) | ~(both <= level * (1 + AGAIN))] = -np.inf
        leaves[~(leaves <= level * (1 + AGAIN))] = -np.inf
        if moved >= 0:
            both[both[:, moved] >= level * (1 - AGAIN), moved] = -np.inf
            leaves[moved] = -np.inf if leaves[moved] >= level * (1 - AGAIN) else leaves[moved]
        hits, side = both.max(axis=0), np.where(both[0] >= both[1], 1.0, -1.0)
        hit, leave = int(hits.argmax()), int(leaves.argmax())
        after = max(hits[hit], leaves[leave])
        if after <= weight:
            u: np.ndarray = np.where(signs == 0, start - weight * slope, weight * signs)
            return u
        level, events = min(float(after), level), events + 1
        if hits[hit] >= leaves[leave]:
            moved, signs[hit] = hit, side[hit]
            column = inverse[:, hit].copy()
            inverse -= np.outer(column, column) / column[hit]
            inverse[hit], inverse[:, hit] = 0.0, 0.0
        else:
            moved, signs[leave] = leave, 0.0
            column = inverse @ G[:, leave]
            gap = G[leave, leave] - G[leave] @ column
            column[leave] = -1.0
            inverse += np.outer(column, column) / gap
