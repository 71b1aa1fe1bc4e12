"""Concave penalties, MCP and SCAD: the slope at each coefficient, by which the next l1 problem is weighted."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError

Concave = Literal["mcp", "scad"]
#: What ``concavity`` is by default, and what it must be above.
USUAL: dict[str, float] = {"mcp": 3.0, "scad": 3.7}
LEAST: dict[str, float] = {"mcp": 1.0, "scad": 2.0}
#: The most l1 problems, and the change of weights, relative to alpha, at which they have settled.
STEPS, SETTLED = 50, 1e-6


def check_concavity(name: str, given: float | None) -> float:
    """Return the concavity γ of MCP, or a of SCAD."""
    if given is None:
        return USUAL[name]
    value = _checks.real("concavity", given)
    if value <= LEAST[name]:
        raise ArgumentError("concavity", f"must be above {LEAST[name]:g} for {name}, got {value:g}")
    return value


def slopes(name: str, x: Array, weight: Array, concavity: float) -> Array:
    """Return the slope of the penalty at the size of x, where ``weight`` is the slope at 0.

    >>> slopes("mcp", np.array([0.0, 1.5, 9.0]), np.ones(3), 3.0)
    array([1. , 0.5, 0. ])
    >>> slopes("scad", np.array([0.5, 2.35, 9.0]), np.ones(3), 3.7)
    array([1. , 0.5, 0. ])
    """
    size = np.abs(x)
    if name == "mcp":
        found: Array = np.maximum(weight - size / concavity, 0.0)
        return found
    beyond = np.maximum(concavity * weight - size, 0.0) / (concavity - 1.0)
    return np.where(size <= weight, weight, beyond)


def values(name: str, x: Array, weight: Array, concavity: float) -> Array:
    """Return the penalty of each coefficient: the integral of :func:`slopes`.

    >>> values("mcp", np.array([0.0, 3.0, 9.0]), np.ones(3), 3.0)
    array([0. , 1.5, 1.5])
    >>> values("scad", np.array([1.0, 3.7, 9.0]), np.ones(3), 3.7)
    array([1.  , 2.35, 2.35])
    """
    size = np.abs(x)
    if name == "mcp":
        near = np.minimum(size, concavity * weight)
        flat: Array = weight * near - near**2 / (2.0 * concavity)
        return flat
    first, second = np.minimum(size, weight), np.clip(size, weight, concavity * weight) - weight
    whole: Array = weight * first + weight * second - second**2 / (2.0 * (concavity - 1.0))
    return whole
