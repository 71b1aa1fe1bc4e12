"""Momentum that restarts, and is cut where it does harm."""

from __future__ import annotations

import numpy as np

from fpdfp._typing import Array

#: Progress is smoothed with this weight of the past; when it exceeds the best so far by this factor, momentum is cut.
PAST, ALARM = 0.7, 16.0


def start(momentum: bool) -> Array:
    """Return the control before the first round.

    It holds θ of the momentum, the largest momentum, the factor of the step, and the smoothed and the least squared
    progress.
    """
    return np.array([1.0, 1.0 if momentum else 0.0, 1.0, np.inf, np.inf])


def scale(control: Array) -> float:
    """The factor of the step."""
    return float(control[2])


def following(control: Array, z: Array, x: Array, last: Array, gamma: float, learned: bool) -> tuple[float, Array]:
    """Return β for z⁺ = x + β (x − last), and the control after a round that went from z to x with step γ.

    The momentum is that of FISTA, restarted where it points uphill (B. O'Donoghue and E. Candès, "Adaptive restart
    for accelerated gradient schemes", Foundations of Computational Mathematics 15, 2015). Once ``learned``, when
    ‖z − x‖/γ, smoothed over rounds, has grown to four times its least, the largest momentum and the step are halved for
    good.
    """
    theta, cap, factor, smoothed, best = control
    moved = z - x
    progress = float(np.vdot(moved, moved)) / gamma**2
    smoothed = progress if smoothed == np.inf else PAST * smoothed + (1.0 - PAST) * progress
    best = min(best, smoothed) if learned else np.inf
    if smoothed > ALARM * best:
        theta, cap, factor, best = 1.0, cap / 2.0, factor / 2.0, smoothed
    if float(np.vdot(moved, x - last)) > 0:
        theta = 1.0
    after = (1.0 + np.sqrt(1.0 + 4.0 * theta**2)) / 2.0
    beta = min((theta - 1.0) / after, cap)
    return float(beta), np.array([after, cap, factor, smoothed, best])
