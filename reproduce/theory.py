"""``python -m reproduce theory``: Theorems 1 and 2, measured on a problem whose constants are known exactly.

The problem is that of ``theory.toml``: client i has S samples f_ij(x) = ½(x − a_ij)ᵀH(x − a_ij) with one diagonal H for
all. So the noise of a mini-batch and the distance of a client's gradient from the mean gradient do not depend on x. The
page (``paper.md``) states the assumptions, the theorems and their bounds.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp import steps
from fpdfp.declarative import pool
from fpdfp.declarative.build import BuiltQuadratics, solve_options
from fpdfp.errors import ArgumentError
from reproduce.output import COLOURS, Curve, Panel, draw, publish
from reproduce.runs import Array, build_case, declare

GIVEN = declare("theory", {})
CLIENTS, SAMPLES, FEATURES = GIVEN["split"]["clients"], GIVEN["data"]["samples"], GIVEN["data"]["features"]
BATCH, WEIGHT = GIVEN["method"]["batch_size"], GIVEN["penalty"]["weight"]
#: Clients in a round and levels of the quantizer, where there is noise of either.
PER_ROUND, LEVELS = GIVEN["run"]["clients_per_round"], GIVEN["compressor"]["levels"]
ROUNDS, SEEDS = GIVEN["run"]["rounds"], len(GIVEN["run"]["seeds"])
#: Slopes are taken from this round on; fewer rounds than the second would not be enough.
FIRST, LEAST = 200, 400


def build_quadratics(full_row_rank: bool) -> BuiltQuadratics:
    """Make the problem: B takes differences and has full row rank, or is [differences; I]."""
    built: BuiltQuadratics = build_case("theory", {"operator.stacked": not full_row_rank})
    return built


CURVATURES: Array = build_quadratics(True).curvatures
#: μ, and D₁ of both theorems, which is between 0 and 2μ.
D1 = float(CURVATURES.min())


class Constants(NamedTuple):
    """What the theorems' bounds are made of.

    ``largest_step`` is the γ from which on Lemma 6 holds, (3/β² + C₁ + C₂)γ ≤ 2μ − D₁. ``d2`` is D₂ as the proofs give
    it, ``printed_d2`` as Lemma 6 prints it.
    """

    mu: float
    lipschitz: float
    sigma2: float
    delta2: float
    q: float
    rho_max: float
    rho_min: float
    d2: float
    printed_d2: float
    largest_step: float


def constants(full_row_rank: bool, noisy: bool) -> Constants:
    """Return the constants of a setting; ``noisy`` where clients are drawn and messages are quantized."""
    built = build_quadratics(full_row_rank)
    a, model = built.centres, built.problem.model
    within = CURVATURES * (a - a.mean(axis=1, keepdims=True))
    between = CURVATURES * (a.mean(axis=1) - a.mean(axis=(0, 1)))
    (m,) = model.dual_shape
    B = np.stack([model.linop.apply(unit) for unit in np.eye(FEATURES)], axis=1)
    spectrum, lipschitz = np.linalg.eigvalsh(B @ B.T), float(CURVATURES.max())
    rho, dual2 = float(spectrum[-1]), WEIGHT**2 * m
    # A mean over a batch without replacement.
    sigma2 = float((within**2).sum(axis=2).mean(axis=1).max() * (SAMPLES - BATCH) / (SAMPLES - 1) / BATCH)
    delta2 = float((between**2).sum(axis=1).mean())
    q = max(fpdfp.QSGD(LEVELS).omega(size) for size in (FEATURES, m)) if noisy else 0.0
    # Of drawing n of N clients, 4(1 + q)(N − n)/(n(N − 1)), and of quantizing.
    factor = float(4 * (1 + q) * (CLIENTS - PER_ROUND) / (PER_ROUND * (CLIENTS - 1))) + 1 + q
    noise = 4 * sigma2 + 8 * delta2
    return Constants(
        D1, lipschitz, sigma2, delta2, q, rho, max(float(spectrum[0]), 0.0) if full_row_rank else 0.0,
        3 * (sigma2 + delta2) + factor * (noise + 8 * rho * dual2 + dual2 * rho) * noisy,
        sigma2 + delta2 + factor * (noise + 2 * rho * (2 * dual2 + dual2 * rho)) * noisy,
        (2 * D1 - D1) / (lipschitz**2 * (3 + (8 * factor if noisy else 0))),
    )  # fmt: skip


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
    full_row_rank: bool, noisy: bool, schedule: steps.Schedule, *, rounds: int = ROUNDS, seeds: int = SEEDS,
    penalty: fpdfp.penalties.Penalty | None = None,
) -> Measured:  # fmt: skip
    """Run FPDFP on mini-batches, with n of N clients and quantized messages if ``noisy``; distances are to the optimum.

    ``penalty`` is what the method uses instead of the right one.
    """
    right = build_quadratics(full_row_rank).problem
    given = right if penalty is None else fpdfp.Problem(right.losses, penalty, right.linop, check=False)
    exact = {} if noisy else {"compressor": {"kind": "none"}, "run.clients_per_round": CLIENTS}
    run = {"run.rounds": rounds, "run.evaluate_every": rounds, **exact}
    options = solve_options(declare("theory", {"operator.stacked": not full_row_rank, **run}))
    options["method"] = fpdfp.FPDFP(schedule, batch_size=BATCH)
    best, distances = fpdfp.minimize(right, tol=1e-13), np.empty((2, seeds, rounds + 1))
    distances[:, :, 0] = np.array([[np.sum(best.x**2)], [np.sum(best.v**2)]])
    for seed in range(seeds):

        def record(run: fpdfp.Run, seed: int = seed) -> None:
            distances[:, seed, run.round] = np.sum((run.x - best.x) ** 2), np.sum((run.v - best.v) ** 2)

        fpdfp.solve(given, seed=seed, callbacks=[record], progress=False, **options)
    gammas = np.array([schedule(k) for k in range(rounds + 1)])
    return Measured(distances[0], distances[1], gammas, given.model.largest_lambda)


def bound_theorem1(found: Measured, known: Constants) -> Array:
    """Bound Σ γ_j E‖x_j − x*‖² / Σ γ_j, as the proof of Theorem 1 does: (V_0 + D₂ Σ γ_j²) / (D₁ Σ γ_j), for every k.

    The theorem itself says no more than that the least of E‖x_j − x*‖² goes to 0, since the bound does.
    """
    start = float(found.lyapunov[:, 0].mean())
    return np.asarray((start + known.d2 * np.cumsum(found.gammas**2)) / (D1 * np.cumsum(found.gammas)))


def first_round(found: Measured, known: Constants) -> int:
    """K of Theorem 2: from there on Lemma 6 holds, and λρ_min(BBᵀ) is at least D₁γ_k."""
    small = found.gammas <= min(known.largest_step, known.rho_min / known.rho_max / D1)
    return int(np.argmax(small)) if small.any() else len(small)


def bound_theorem2(found: Measured, known: Constants) -> tuple[Array, Array]:
    """Bound E‖x_k − x*‖² + γ_k²/λ E‖v_k − v*‖² as Theorem 2 does, for k > K; return k and the bound."""
    first = first_round(found, known)
    k = np.arange(first + 1, len(found.gammas))
    start = float(found.lyapunov[:, first].mean())
    before = D1 * (k - 1) + 1
    return k, np.asarray(((D1 * first + 1) / before) ** 2 * start + 4 * known.d2 / (before * D1))


def slope(values: Array, start: int = FIRST) -> float:
    """The slope of log mean against log k, the mean over seeds and over neighbouring rounds from ``start`` on."""
    edges = np.geomspace(start, values.shape[1] - 1, 13).astype(int)
    means = [values[:, low:high].mean() for low, high in itertools.pairwise(edges)]
    return float(np.polyfit(np.log(np.sqrt(edges[:-1] * edges[1:])), np.log(means), 1)[0])


class Setting(NamedTuple):
    """A line of the page: B of full row rank or not, all noise or that of mini-batches alone, which steps."""

    theorem: int
    name: str
    full_row_rank: bool
    noisy: bool
    kind: str

    @property
    def known(self) -> Constants:
        return constants(self.full_row_rank, self.noisy)

    @property
    def schedule(self) -> steps.Schedule:
        """Its steps; those for Theorem 1 have infinite sum, finite sum of squares, and suit Lemma 6 from the start."""
        if self.kind == "Theorem 2":
            return steps.Theorem2(D1)
        largest = self.known.largest_step
        return steps.Constant(largest) if self.kind == "constant" else steps.Decreasing(largest, 0.01, power=0.6)

    def bound(self, found: Measured) -> tuple[Array, Array, Array]:
        """What the theorem bounds: rounds, values for each seed, and the bound, which is empty where there is none."""
        everywhere = np.arange(len(found.gammas))
        if self.theorem == 1:
            proved = self.kind == "Theorem 1"
            return everywhere, found.weighted, bound_theorem1(found, self.known) if proved else np.empty(0)
        if not self.full_row_rank:
            return everywhere, found.primal, np.empty(0)
        k, bound = bound_theorem2(found, self.known)
        return k, found.lyapunov[:, k], bound


SETTINGS = (
    Setting(1, "n of N clients, quantized", False, True, "Theorem 1"),
    Setting(1, "everyone, exact messages", False, False, "Theorem 1"),
    Setting(1, "n of N clients, quantized, constant step", False, True, "constant"),
    Setting(2, "n of N clients, quantized", True, True, "Theorem 2"),
    Setting(2, "everyone, exact messages", True, False, "Theorem 2"),
    Setting(2, "B of deficient row rank: seen, not proved", False, True, "Theorem 2"),
)


def reproduce(output: Path, rounds: int | None = None, seeds: int | None = None) -> dict[str, Any]:
    """Measure what the theorems bound, and write figures, page and numbers into a folder."""
    rounds, seeds, found = rounds or ROUNDS, seeds or SEEDS, dict[Setting, Measured]()
    if rounds < LEAST:
        raise ArgumentError("rounds", f"must be at least {LEAST}, for slopes and for Theorem 2, got {rounds}")
    with pool.bar() as bar:
        for one in bar.track(SETTINGS, description="theorems"):
            found[one] = measure(one.full_row_rank, one.noisy, one.schedule, rounds=rounds, seeds=seeds)
    known = constants(full_row_rank=False, noisy=True)
    summary = {
        "version": fpdfp.__version__, "rounds": rounds, "seeds": seeds,
        "problem": {
            "clients": CLIENTS, "samples": SAMPLES, "features": FEATURES, "batch": BATCH, "n": PER_ROUND,
            "levels": LEVELS, "weight": WEIGHT, "mu": known.mu, "lipschitz": known.lipschitz, "sigma2": known.sigma2,
            "delta2": known.delta2, "q": known.q, "m1": 2 * FEATURES - 1, "m2": FEATURES - 1,
        },
        "theorems": {
            str(number): [describe(one, measured) for one, measured in found.items() if one.theorem == number]
            for number in (1, 2)
        },
    }  # fmt: skip
    draw(output, {f"theorem{number}": panels(number, found) for number in (1, 2)})
    publish(output, summary, judge(summary))
    return summary


def judge(summary: dict[str, Any]) -> list[dict[str, str]]:
    """The theorems with their verdicts: whether what is measured is below the bound, where there is one."""
    return [
        {
            "claim": f"Theorem {number}, {one['name']}: at most {one['largest_share_of_bound']:.2g} of the bound",
            "verdict": "confirmed" if one["largest_share_of_bound"] <= 1 else "refuted",
        }
        for number, entries in summary["theorems"].items()
        for one in entries
        if one["bound_at_the_end"] is not None
    ]


def describe(one: Setting, measured: Measured) -> dict[str, Any]:
    """A setting in numbers; ``at_the_end`` is E‖x_k − x*‖² over the last tenth of the rounds."""
    k, values, bound = one.bound(measured)
    mean = values.mean(axis=0)
    return {
        "name": one.name, "steps": one.kind, "gamma0": float(measured.gammas[0]),
        "D2": one.known.d2, "D2_as_printed": one.known.printed_d2,
        "K": int(k[0]) - (one.theorem == 2) if len(bound) else None,
        "at_the_end": float(measured.primal[:, -(len(measured.gammas) // 10) :].mean()),
        "slope": slope(measured.lyapunov if one.full_row_rank else measured.primal),
        "bounded_at_the_end": float(mean[-1]), "bound_at_the_end": float(bound[-1]) if len(bound) else None,
        "largest_share_of_bound": float((mean / bound).max()) if len(bound) else None,
    }  # fmt: skip


def panels(theorem: int, found: dict[Setting, Measured]) -> list[Panel]:
    """The error of a theorem's settings, and what the theorem bounds beside the bound."""
    errors, bounds, those = [], [], [(one, measured) for one, measured in found.items() if one.theorem == theorem]
    for (one, measured), colour in zip(those, COLOURS, strict=False):
        k, values, bound = one.bound(measured)
        shown = np.unique(np.geomspace(1, len(measured.gammas) - 1, 200).astype(int))
        errors.append(Curve(shown, measured.primal[:, shown], one.name, colour, "-" if len(bound) else ":"))
        if len(bound):
            some = np.unique(np.geomspace(1, len(k) - 1, 200).astype(int))
            bounds.append(Curve(k[some], values[:, some], one.name, colour))
            bounds.append(Curve(k[some], bound[None, some], "its bound", colour, "--"))
    what = "Σ γ_j E‖x_j − x*‖² / Σ γ_j" if theorem == 1 else "E‖x − x*‖² + (γ²/λ) E‖v − v*‖²"
    title = f"Theorem {theorem}: mean and range over seeds"
    return [
        Panel(errors, "round k", "E‖x_k − x*‖²", title, "xy", np.mean),
        Panel(bounds, "round k", what, "what is bounded, and the bound", "xy", np.mean),
    ]
