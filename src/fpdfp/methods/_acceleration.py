"""Momentum that restarts, and a step that grows and shrinks with what the run shows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fpdfp._momentum import accelerate
from fpdfp._typing import Array

#: Progress is smoothed with this weight of the past; when it exceeds the best so far by this factor, there is an alarm.
PAST, ALARM = 0.7, 64.0
#: Before the shifts are learned progress says less, and so much more is allowed.
LOOSE = 16.0
#: A step grows by at most GROWTH in a round, up to LARGEST times where it began, and to SAFE over the curvature seen,
#: which is forgotten at the rate FORGET.
GROWTH, LARGEST, SAFE, FORGET = 2.0, 8.0, 0.8, 0.8


class Momentum(NamedTuple):
    """The momentum of FISTA, with a largest value.

    It is restarted where it points uphill (B. O'Donoghue and E. Candès, "Adaptive restart for accelerated gradient
    schemes", Foundations of Computational Mathematics 15, 2015).
    """

    theta: float
    largest: float

    def halve(self) -> Momentum:
        """Restart, and halve the largest momentum for good."""
        return Momentum(1.0, self.largest / 2.0)

    def advance(self, moved: Array, step: Array) -> tuple[float, Momentum]:
        """Return β for z⁺ = x + β·step after a round that went from z to x = z − moved, with step = x − x_before."""
        theta = 1.0 if float(np.vdot(moved, step)) > 0 else self.theta
        beta, following = accelerate(theta)
        return min(beta, self.largest), Momentum(following, self.largest)


class StepControl(NamedTuple):
    """The factor of a step, by the curvature that gradients show and by the progress of the run.

    Attributes
    ----------
    cut
        The factor by which alarms have shortened the step.
    smoothed, least
        Squared progress ‖z − x‖²/γ², smoothed over rounds, and its least.
    growth
        The factor by which the step has grown.
    curvature
        The curvature seen lately.
    """

    cut: float = 1.0
    smoothed: float = np.inf
    least: float = np.inf
    growth: float = 1.0
    curvature: float = 0.0

    @property
    def factor(self) -> float:
        """The factor of the step."""
        return self.cut * self.growth

    def grow(self, moved: Array, turned: Array, gamma: float) -> StepControl:
        """Return the control with a step that fits the curvature which gradients at two points show.

        For f convex with an L-Lipschitz gradient, ‖∇f(z) − ∇f(z')‖² ≤ L⟨∇f(z) − ∇f(z'), z − z'⟩. The least such L, as
        far as the last rounds know it, takes the place of the bound that γ was chosen from. Noise makes it look larger.
        """
        product = float(np.vdot(moved, turned))
        seen = float(np.vdot(turned, turned)) / product if product > 0 else 1.0 / gamma
        curvature = max(seen, FORGET * self.curvature)
        growth = max(1.0, min(GROWTH * self.growth, LARGEST, SAFE / (curvature * gamma)))
        return self._replace(growth=growth, curvature=curvature)

    def watch(self, moved: Array, gamma: float, learned: bool) -> tuple[bool, StepControl]:
        """Return whether there is an alarm, and the control after a round; an alarm halves the step for good.

        There is one when ‖z − x‖/γ, smoothed over rounds, has grown to eight times its least since the shifts were
        ``learned``, or to thirty times its least before.
        """
        progress = float(np.vdot(moved, moved)) / gamma**2
        smoothed = progress if self.smoothed == np.inf else PAST * self.smoothed + (1.0 - PAST) * progress
        least = min(self.least, smoothed if learned else LOOSE * smoothed)
        if smoothed > ALARM * least:
            return True, StepControl(self.cut / 2.0, smoothed, smoothed, 1.0, self.curvature)
        return False, self._replace(smoothed=smoothed, least=least)
