"""Theorems 1 and 2 of the paper, measured on a problem whose constants are known exactly.

The problem is that of ``theory.toml``: client i has S samples f_ij(x) = ½(x − a_ij)ᵀH(x − a_ij) with one diagonal H for
all (:mod:`fpdfp.declarative.quadratics`). So the noise of a mini-batch and the distance of a client's gradient from the
mean gradient do not depend on x, and the bounds that the theorems assume hold with numbers that can be computed:

    f strongly convex with μ and smooth with 1/β, the least and the largest entry of H      (Assumptions 1 and 2)
    E‖Q(x) − x‖² ≤ q‖x‖², q the bound of the quantizer                                      (Assumption 3)
    E‖∇̃f_i(x) − ∇f_i(x)‖² ≤ σ², mean_i ‖∇f_i(x) − ∇f(x)‖² ≤ δ²                             (Assumptions 4 and 5)
    ‖v_i‖ ≤ M = w√m: clients' duals are in the box of the l1 norm with weight w             (Assumption 6)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import fpdfp
from fpdfp import steps
from fpdfp._typing import Array
from fpdfp.declarative import made
from fpdfp.declarative.build import build, solve_options
from fpdfp.declarative.quadratics import BuiltQuadratics
from fpdfp.experiments.cases import declare
from fpdfp.linops import LinOp

GIVEN = declare("theory", {})
CLIENTS, SAMPLES, FEATURES = GIVEN["split"]["clients"], GIVEN["data"]["samples"], GIVEN["data"]["features"]
BATCH, WEIGHT = GIVEN["method"]["batch_size"], GIVEN["penalty"]["weight"]
#: Clients in a round and levels of the quantizer, where there is noise of either.
PER_ROUND, LEVELS = GIVEN["run"]["clients_per_round"], GIVEN["compressor"]["levels"]
ROUNDS, SEEDS = GIVEN["run"]["rounds"], len(GIVEN["run"]["seeds"])
#: Slopes are taken from this round on.
FIRST = 200


def build_quadratics(full_row_rank: bool) -> BuiltQuadratics:
    """Make the problem: B takes differences and has full row rank, or is [differences; I]."""
    built = build(declare("theory", {"operator.stacked": not full_row_rank}))
    assert isinstance(built, BuiltQuadratics)
    return built


CURVATURES: Array = build_quadratics(True).curvatures
#: D₁ of both theorems, between 0 and 2μ.
D1 = float(CURVATURES.min())


def problem(full_row_rank: bool, penalty: fpdfp.penalties.Penalty | None = None) -> fpdfp.Problem:
    """Return the problem, with another penalty if one is given."""
    right = build_quadratics(full_row_rank).problem
    return right if penalty is None else fpdfp.Problem(right.losses, penalty, right.linop, check=False)


class Constants(NamedTuple):
    """What the theorems' bounds are made of; ``noisy`` where clients are drawn and messages are quantized."""

    mu: float
    lipschitz: float
    sigma2: float
    delta2: float
    q: float
    dual2: float
    rho_max: float
    rho_min: float
    noisy: bool

    @property
    def lam(self) -> float:
        """λ = 1/ρ_max(BBᵀ)."""
        return 1.0 / self.rho_max

    @property
    def drawn(self) -> float:
        """4(1 + q)(N − n)/(n(N − 1)), the factor of drawing n of N clients."""
        return float(4 * (1 + self.q) * (CLIENTS - PER_ROUND) / (PER_ROUND * (CLIENTS - 1)))

    @property
    def growth(self) -> float:
        """3/β² + C₁ + C₂ of Lemmas 5 and 6, the factor of γ_k²‖x_k − x*‖²."""
        return self.lipschitz**2 * (3 + (8 * (self.drawn + 1 + self.q) if self.noisy else 0))

    @property
    def d2(self) -> float:
        """D₂ as the proofs give it: 3(σ² + δ²), ‖v − v*‖² ≤ 4M², and M²/λ outside the factor 2ρ_max."""
        c0 = 4 * self.sigma2 + 8 * self.delta2 + 8 * self.rho_max * self.dual2 + self.dual2 / self.lam
        return 3 * (self.sigma2 + self.delta2) + (self.drawn + 1 + self.q) * c0 * self.noisy

    @property
    def printed_d2(self) -> float:
        """D₂ as Lemma 6 prints it."""
        c0 = 4 * self.sigma2 + 8 * self.delta2 + 2 * self.rho_max * (2 * self.dual2 + self.dual2 / self.lam)
        return self.sigma2 + self.delta2 + (self.drawn + 1 + self.q) * c0 * self.noisy

    @property
    def largest_step(self) -> float:
        """The γ from which on Lemma 6 holds: (3/β² + C₁ + C₂)γ ≤ 2μ − D₁."""
        return (2 * self.mu - D1) / self.growth


def constants(full_row_rank: bool, noisy: bool) -> Constants:
    """Return the constants of a setting."""
    built = build_quadratics(full_row_rank)
    a, model = built.centres, built.problem.model
    within = CURVATURES * (a - a.mean(axis=1, keepdims=True))
    between = CURVATURES * (a.mean(axis=1) - a.mean(axis=(0, 1)))
    (m,) = model.dual_shape
    spectrum = np.linalg.eigvalsh(matrix(model.linop) @ matrix(model.linop).T)
    return Constants(
        mu=float(CURVATURES.min()),
        lipschitz=float(CURVATURES.max()),
        # A mean over a batch without replacement.
        sigma2=float((within**2).sum(axis=2).mean(axis=1).max() * (SAMPLES - BATCH) / (SAMPLES - 1) / BATCH),
        delta2=float((between**2).sum(axis=1).mean()),
        q=max(fpdfp.QSGD(LEVELS).omega(size) for size in (FEATURES, m)) if noisy else 0.0,
        dual2=WEIGHT**2 * m,
        rho_max=float(spectrum[-1]),
        rho_min=max(float(spectrum[0]), 0.0) if full_row_rank else 0.0,
        noisy=noisy,
    )


def matrix(linop: LinOp) -> Array:
    """B as an array."""
    return np.stack([linop.apply(unit) for unit in np.eye(FEATURES)], axis=1)


class Measured(NamedTuple):
    """‖x_k − x*‖² and ‖v_k − v*‖² for k = 0, 1, …, a row for each seed, and the steps γ_k."""

    primal: Array
    dual: Array
    gammas: Array
    lam: float

    @property
    def lyapunov(self) -> Array:
        """‖x_k − x*‖² + γ_k²/λ ‖v_k − v*‖²."""
        return np.asarray(self.primal + self.gammas**2 / self.lam * self.dual)

    @property
    def weighted(self) -> Array:
        """Σ γ_j ‖x_j − x*‖² / Σ γ_j over j ≤ k, which is at least the least of ‖x_j − x*‖²."""
        return np.asarray(np.cumsum(self.gammas * self.primal, axis=1) / np.cumsum(self.gammas))


def measure(
    full_row_rank: bool,
    noisy: bool,
    schedule: steps.Schedule,
    *,
    rounds: int = ROUNDS,
    seeds: int = SEEDS,
    penalty: fpdfp.penalties.Penalty | None = None,
    done: Callable[[], None] = lambda: None,
) -> Measured:
    """Run FPDFP on mini-batches, with n of N clients and quantized messages if ``noisy``; distances are to the optimum.

    ``penalty`` is what the method uses instead of the right one; ``done`` is called after each seed.
    """
    best = fpdfp.minimize(problem(full_row_rank), tol=1e-13)
    given = problem(full_row_rank, penalty)
    exact = {} if noisy else {"compressor": {"kind": "none"}, "run.clients_per_round": CLIENTS}
    run = {"method.step": made.plain(schedule), "run.rounds": rounds, "run.evaluate_every": rounds}
    options = solve_options(declare("theory", {"operator.stacked": not full_row_rank, **run, **exact}))
    distances = np.empty((2, seeds, rounds + 1))
    distances[0, :, 0], distances[1, :, 0] = np.sum(best.x**2), np.sum(best.v**2)
    for seed in range(seeds):

        def record(run: fpdfp.Run, seed: int = seed) -> None:
            distances[0, seed, run.round] = np.sum((run.x - best.x) ** 2)
            distances[1, seed, run.round] = np.sum((run.v - best.v) ** 2)

        fpdfp.solve(given, seed=seed, callbacks=[record], progress=False, **options)
        done()
    gammas = np.array([schedule(k) for k in range(rounds + 1)])
    return Measured(distances[0], distances[1], gammas, given.model.largest_lambda)


def bound_theorem1(found: Measured, known: Constants, d2: float | None = None) -> Array:
    """Bound Σ γ_j E‖x_j − x*‖² / Σ γ_j, as the proof of Theorem 1 does: (V_0 + D₂ Σ γ_j²) / (D₁ Σ γ_j), for every k.

    The theorem itself says no more than that the least of E‖x_j − x*‖² goes to 0, since the bound does.
    """
    d2 = known.d2 if d2 is None else d2
    start = float(found.lyapunov[:, 0].mean())
    return np.asarray((start + d2 * np.cumsum(found.gammas**2)) / (D1 * np.cumsum(found.gammas)))


def first_round(found: Measured, known: Constants) -> int:
    """K of Theorem 2: from there on Lemma 6 holds, and λρ_min(BBᵀ) is at least D₁γ_k."""
    small = found.gammas <= min(known.largest_step, known.lam * known.rho_min / D1)
    return int(np.argmax(small)) if small.any() else len(small)


def bound_theorem2(found: Measured, known: Constants, d2: float | None = None) -> tuple[Array, Array]:
    """Bound E‖x_k − x*‖² + γ_k²/λ E‖v_k − v*‖² as Theorem 2 does, for k > K; return k and the bound."""
    d2 = known.d2 if d2 is None else d2
    first = first_round(found, known)
    k = np.arange(first + 1, len(found.gammas))
    start = float(found.lyapunov[:, first].mean())
    before = D1 * (k - 1) + 1
    return k, np.asarray(((D1 * first + 1) / before) ** 2 * start + 4 * d2 / (before * D1))


def slope(values: Array, start: int = FIRST) -> float:
    """The slope of log mean against log k, the mean over seeds and over neighbouring rounds from ``start`` on."""
    edges = np.geomspace(start, values.shape[1] - 1, 13).astype(int)
    means = [values[:, low:high].mean() for low, high in itertools.pairwise(edges)]
    return float(np.polyfit(np.log(np.sqrt(edges[:-1] * edges[1:])), np.log(means), 1)[0])


def schedule_theorem1(known: Constants) -> steps.Schedule:
    """Steps with infinite sum and finite sum of squares, small enough for Lemma 6 from the start."""
    return steps.Decreasing(known.largest_step, 0.01, power=0.6)


def schedule_theorem2() -> steps.Schedule:
    """The steps of Theorem 2."""
    return steps.Theorem2(D1)
