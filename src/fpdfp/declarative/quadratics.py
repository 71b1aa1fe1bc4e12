"""Quadratics whose constants are known exactly, for measuring what theorems say.

Client i has S samples f_ij(x) = ½(x − a_ij)ᵀH(x − a_ij) with one diagonal H for all.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import fpdfp
from fpdfp._typing import Array
from fpdfp.declarative.build import TOLERANCE, Built, make_penalty
from fpdfp.linops import Difference, Identity, LinOp, VStack


@dataclasses.dataclass(frozen=True)
class BuiltQuadratics(Built):
    """A problem on quadratics: with the a_ij and the diagonal of H."""

    centres: Any = None
    curvatures: Any = None


def build(settings: dict[str, Any]) -> BuiltQuadratics:
    """Make the problem: the a_ij are a signal with one jump, moved for each client and for each sample."""
    data, clients = settings["data"], settings["split"]["clients"]
    samples, features = data["samples"], data["features"]
    generator = np.random.default_rng(data["seed"])
    signal = np.where(np.arange(features) < features // 2, 1.0, -0.5)
    moved = signal + 0.15 * generator.standard_normal((clients, 1, features))
    a: Array = moved + 0.3 * generator.standard_normal((clients, samples, features))
    curvatures = np.linspace(1.0, 2.0, features)

    def value(i: int, x: Array) -> float:
        return float(0.5 * np.mean(np.sum(curvatures * (x - a[i]) ** 2, axis=-1)))

    def gradient(i: int, x: Array, chosen: Any) -> Array:
        mean = a[i].mean(axis=0) if chosen is None else a[i, chosen].mean(axis=0)
        return np.asarray(curvatures * (x - mean))

    losses = fpdfp.losses.Custom(
        value, gradient, n_clients=clients, shape=features, lipschitz=float(curvatures.max()),
        strong_convexity=float(curvatures.min()), sizes=[samples] * clients,
    )  # fmt: skip
    linop: LinOp = Difference(features)
    if settings["operator"]["stacked"]:
        linop = VStack([linop, Identity(features)])
    problem = fpdfp.Problem(losses, make_penalty(settings["penalty"]), linop)
    return BuiltQuadratics(
        problem, {}, lambda: fpdfp.minimize(problem, tol=TOLERANCE).objective, centres=a,
        curvatures=curvatures,
    )  # fmt: skip
