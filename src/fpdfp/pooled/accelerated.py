"""Quadratic models with g(Bx), minimised by accelerated proximal gradient steps.

A step takes one product with the Hessian and a prox, so that tens of them take less time than one Newton system. Steps
are measured by the diagonal of the Hessian, and their length follows from the curvature that they meet.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from fpdfp._momentum import accelerate
from fpdfp._typing import Array
from fpdfp.linops.base import LinOp
from fpdfp.penalties.base import Penalty
from fpdfp.pooled.proxes import Prox

#: After this part of the steps it is looked at whether the others will suffice.
TRIAL = 0.2
#: How much larger than what was met the curvature is taken to be, and than the last one at least; how much more than
#: what it was taken to be a step may meet (with momentum, steps are stable up to 4/3); the part of the accuracy that a
#: prox gets.
SAFE, MORE, STABLE, PART = 1.02, 1.2, 1.25, 0.1
#: The smallest entry of the metric, relative to the largest, and the smallest objective, relative to that at the start.
LEAST, LEFT = 1e-12, 0.1


class Minimum(NamedTuple):
    """Where m + g∘B was found to be least, its dual, and whether that is near enough."""

    u: Array
    v: Array
    enough: bool


class Model(Protocol):
    """m(u) = gᵀ(u − x) + ½ (u − x)ᵀH(u − x), with x, g and the diagonal of H."""

    centre: Array
    slope: Array
    diagonal: Array

    def gradient(self, u: Array) -> Array:
        """Return ∇m(u)."""


def minimise(
    model: Model,
    linop: LinOp,
    penalty: Penalty,
    prox: Prox,
    v: Array,
    ridge: Array,
    enough: float,
    share: float,
    most: int,
    likely: float = math.inf,
    objective: float = math.inf,
) -> Minimum:
    """Minimise m + g∘B from the centre of the model, in at most so many steps, and if it is likely to take so many.

    The error of u and v is g(Bu) + g*(v) − ⟨Bu, v⟩ + Σ_k r_k²/2R_k with r = ∇m(u) + Bᵀv and R the ridge, which is a
    bound of what is left to gain where R is a part of H. It is to become ``enough``, or a ``share`` of the decrease.
    Where the model is f itself, ``enough`` is for the objective at the centre, and is less for a smaller one.
    """
    metric = np.maximum(model.diagonal, LEAST * float(model.diagonal.max()))
    u, slope = model.centre, model.slope
    start = penalty.value(linop.apply(u))
    ahead, slope_ahead = u, slope
    # The largest curvature is more than the diagonal, unless there is nothing else.
    stretch, theta = SAFE * MORE, 1.0
    best, least, before = (u, v), np.inf, np.inf
    trial = max(1, round(TRIAL * most))
    for step in range(most):
        while True:
            stretched = stretch * metric
            target = ahead - slope_ahead / stretched
            new, v = prox.apply(target, stretched, v, PART * enough)
            slope_new = model.gradient(new)
            change = new - ahead
            size, bend = float(change @ (metric * change)), float(change @ (slope_new - slope_ahead))
            stable = bend <= STABLE * stretch * size
            if bend > (1.0 + 1e-9) * stretch * size:
                stretch = SAFE * max(bend / size, MORE * stretch)
            if stable:
                break
        # A prox has Bᵀv = M (t − u).
        rest, image = slope_new + stretched * (target - new), linop.apply(new)
        value = penalty.value(image)
        error = abs(value - float(image @ v)) + float((rest * rest / (2.0 * ridge)).sum())
        if error < least:
            best, least = (new, v), error
        decrease = start - value - 0.5 * float((new - model.centre) @ (model.slope + slope_new))
        goal = max(enough * max(1.0 - decrease / objective, LEFT), share * decrease)
        if error <= goal:
            return Minimum(new, v, True)
        # To shrink the error tenfold takes about as many steps as the curvature is times the diagonal.
        if step == 0 and stretch * math.log10(error / goal) > likely:
            break
        if step % trial == trial - 1:
            # At this rate there would not be steps enough.
            if least >= before or (most - step) * math.log(before / least) < trial * math.log(least / enough):
                break
            before = least
        if float((metric * (ahead - new)) @ (new - u)) > 0.0:
            theta = 1.0
        momentum, theta = accelerate(theta)
        # The gradient of a quadratic is affine, so that no product is needed where the next step starts.
        ahead, slope_ahead = new + momentum * (new - u), slope_new + momentum * (slope_new - slope)
        u, slope = new, slope_new
    return Minimum(*best, False)
