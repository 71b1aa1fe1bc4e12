"""Step and momentum of a method that looks after itself."""

from __future__ import annotations

import numpy as np

from fpdfp._typing import Array

#: Progress is smoothed with this weight of the past; when it exceeds the best so far by this factor, momentum is cut.
PAST, ALARM = 0.7, 64.0
#: Before the shifts are learned progress says less, and so much more is allowed.
LOOSE = 16.0
#: A step grows by at most GROWTH in a round, up to LARGEST times where it began, and to SAFE over the curvature seen,
#: which is forgotten at the rate FORGET.
GROWTH, LARGEST, SAFE, FORGET = 2.0, 8.0, 0.8, 0.8


def start(momentum: bool) -> Array:
    """Return the control before the first round.

    It holds θ of the momentum, the largest momentum, the factor by which alarms have cut the step, the smoothed and the
    least squared progress, the factor by which the step has grown, and the curvature seen.
    """
    return np.array([1.0, 1.0 if momentum else 0.0, 1.0, np.inf, np.inf, 1.0, 0.0])


def factor(control: Array) -> float:
    """The factor of the step."""
    return float(control[2] * control[5])


def grown(control: Array, moved: Array, turned: Array, gamma: float) -> Array:
    """Return the control with a step that fits the curvature which gradients at two points show.

    For f convex with an L-Lipschitz gradient, ‖∇f(z) − ∇f(z')‖² ≤ L⟨∇f(z) − ∇f(z'), z − z'⟩. The least such L, as far
    as the last rounds know it, takes the place of the bound that γ was chosen from. Noise makes it look larger.
    """
    product = float(np.vdot(moved, turned))
    seen = float(np.vdot(turned, turned)) / product if product > 0 else 1.0 / gamma
    curvature = max(seen, FORGET * float(control[6]))
    growth = max(1.0, min(GROWTH * float(control[5]), LARGEST, SAFE / (curvature * gamma)))
    return np.array([*control[:5], growth, curvature])


def following(control: Array, z: Array, x: Array, last: Array, gamma: float, learned: bool) -> tuple[float, Array]:
    """Return β for z⁺ = x + β (x − last), and the control after a round that went from z to x with step γ.

    The momentum is that of FISTA, restarted where it points uphill (B. O'Donoghue and E. Candès, "Adaptive restart
    for accelerated gradient schemes", Foundations of Computational Mathematics 15, 2015). When ‖z − x‖/γ,
    smoothed over rounds, has grown to eight times its least since the shifts were ``learned``, or to thirty times its
    least before, the largest momentum and the step are halved for good.
    """
    theta, cap, cut, smoothed, best, growth, curvature = control
    moved = z - x
    progress = float(np.vdot(moved, moved)) / gamma**2
    smoothed = progress if smoothed == np.inf else PAST * smoothed + (1.0 - PAST) * progress
    best = min(best, smoothed if learned else LOOSE * smoothed)
    if smoothed > ALARM * best:
        theta, cap, cut, best, growth = 1.0, cap / 2.0, cut / 2.0, smoothed, 1.0
    if float(np.vdot(moved, x - last)) > 0:
        theta = 1.0
    after = (1.0 + np.sqrt(1.0 + 4.0 * theta**2)) / 2.0
    beta = min((theta - 1.0) / after, cap)
    return float(beta), np.array([after, cap, cut, smoothed, best, growth, curvature])
