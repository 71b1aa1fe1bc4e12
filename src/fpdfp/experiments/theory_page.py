"""``fpdfp reproduce theory``: what Theorems 1 and 2 bound, beside their bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp import steps
from fpdfp._typing import Array
from fpdfp.declarative import pool
from fpdfp.experiments import theory
from fpdfp.experiments.figures import COLOURS, SETTINGS, figure_of, finish
from fpdfp.experiments.page import rows
from fpdfp.experiments.theory import Measured


class Setting(NamedTuple):
    """A run of the page: its name, B of full row rank or not, all noise or that of mini-batches alone, which steps."""

    name: str
    full_row_rank: bool
    noisy: bool
    steps: str


SETTINGS_OF: dict[int, tuple[Setting, ...]] = {
    1: (
        Setting("n of N clients, quantized", False, True, "Theorem 1"),
        Setting("everyone, exact messages", False, False, "Theorem 1"),
        Setting("n of N clients, quantized, constant step", False, True, "constant"),
    ),
    2: (
        Setting("n of N clients, quantized", True, True, "Theorem 2"),
        Setting("everyone, exact messages", True, False, "Theorem 2"),
        Setting("B of deficient row rank: seen, not proved", False, True, "Theorem 2"),
    ),
}

#: Fewer rounds would not be enough.
LEAST = 400

PAGE = """\
# Theorems 1 and 2

Made by `fpdfp reproduce theory` (fpdfp {version}, {rounds} rounds, {seeds} seeds); everything in numbers is in
[results.json](results.json).

Both theorems are on FPDFP (Algorithm 4) under six assumptions: ∇f is 1/β-Lipschitz; f is μ-strongly convex; the
quantizer is unbiased with E‖Q(x) − x‖² ≤ q‖x‖²; stochastic gradients are unbiased with a variance of at most σ², for
all x; the clients' gradients differ from the mean gradient by at most δ² in the mean square, for all x; and the
clients' duals are bounded by M. λ is at most 1/ρ_max(BBᵀ).

They are measured where these constants are known exactly: {clients} clients with {samples} samples ½(x − a_ij)ᵀH(x −
a_ij) each, x of {features} numbers, one diagonal H with entries from {mu:g} to {lipschitz:g}, mini-batches of
{batch}, and {weight:g}‖Bx‖₁. With one H for all, σ² = {sigma2:.3f} and δ² = {delta2:.3f} do not depend on x; clients'
duals are in a box, so that M² = m·{weight:g}². Where not everyone takes part, n = {n}; quantized messages are those
of QSGD with s = {levels} (q = {q:.3f}). λ = 1/ρ_max(BBᵀ), D₁ = μ. Expectations are means over seeds.

## Theorem 1: any B

*For decreasing steps with infinite sum and finite sum of squares, liminf E‖x_k − x\\*‖² = 0.* B may have deficient
row rank, as in the paper's experiments; here B = [differences; I], {m1} × {features}. The theorem has no rate, but
its proof bounds the mean of E‖x_j − x\\*‖² weighted by the steps, and with it the least of them:

    min_j≤k E‖x_j − x*‖²  ≤  Σ γ_j E‖x_j − x*‖² / Σ γ_j  ≤  (V_0 + D₂ Σ γ_j²) / (D₁ Σ γ_j)

with V_k = ‖x_k − x\\*‖² + (γ_k²/λ)‖v_k − v\\*‖² and sums over j ≤ k, from the first round on if γ_0 is at most (2μ −
D₁) / (3/β² + C₁ + C₂). The steps are that γ_0 divided by (1 + k/100)^0.6.

{table1}

![Theorem 1](theorem1.png)

The measured mean is at most {ratio1} times the bound in any round. With a constant step, γ_0 of the first line, the
sum of squares is infinite, and the error stops falling.

## Theorem 2: B of full row rank

*For γ_k = 2/(D₁k + 1), 0 < D₁ < 2μ, and B of full row rank, from a round K on*

    E V_k+1  ≤  ((D₁K + 1)/(D₁k + 1))² E V_K + 4D₂/((D₁k + 1)D₁)

B is the {m2} × {features} difference matrix; K is the first round with γ_k at most (2μ − D₁)/(3/β² + C₁ + C₂) and at
most λρ_min(BBᵀ)/D₁. Slopes are those of log E V_k against log k from round {start} on, with means over neighbouring
rounds.

{table2}

![Theorem 2](theorem2.png)

The measured V_k is at most {ratio2} times the bound in any round after K. The third line has no bound: for B of
deficient row rank (ρ_min(BBᵀ) = 0) the proof gives no rate, and that the error falls as fast is seen, not proved.

## The constants

D₂ is as the proofs give it, which is not as Lemma 6 prints it: the factor 3 of Lemma 2 is lost there (σ² + δ² instead
of 3(σ² + δ²)), ‖v − v\\*‖² ≤ 2M² should be 4M², and M²/λ stands inside the factor 2ρ_max(BBᵀ) instead of beside it:

    D₂ = 3(σ² + δ²) + (4(1 + q)(N − n)/(n(N − 1)) + 1 + q) C₀,   C₀ = 4σ² + 8δ² + 8ρ_max(BBᵀ)M² + M²/λ

and C₀ = 0 with everyone and exact messages. The bounds are worst cases: with quantized messages most of D₂ is M², the
size of the duals, of which the method feels only the noise.
"""


def reproduce(output: Path, *, rounds: int = theory.ROUNDS, seeds: int = theory.SEEDS) -> dict[str, Any]:
    """Measure what the theorems bound, and write figures, page and numbers into a folder."""
    from rich.console import Console

    if rounds < LEAST:
        raise ValueError(f"rounds must be at least {LEAST}, for a slope and for what Theorem 2 says, got {rounds}")
    output.mkdir(parents=True, exist_ok=True)
    found: dict[int, list[Measured]] = {}
    with pool.bar() as bar:
        task = bar.add_task("theorems", total=seeds * sum(map(len, SETTINGS_OF.values())))
        for theorem, settings in SETTINGS_OF.items():
            found[theorem] = [
                theory.measure(
                    one.full_row_rank, one.noisy, schedule(one), rounds=rounds, seeds=seeds,
                    done=lambda: bar.update(task, advance=1),
                )
                for one in settings
            ]  # fmt: skip
    summary = results(found, rounds, seeds)
    (output / "results.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    draw(found, output)
    (output / "claims.md").write_text(write(summary))
    for theorem, entries in summary["theorems"].items():
        for one in entries:
            held = f", at most {one['largest_share_of_bound']:.2g} of the bound" if one["bound_at_the_end"] else ""
            Console().print(
                f"Theorem {theorem}, {one['name']}: {one['at_the_end']:.2e} at the end{held}", highlight=False
            )
    Console().print(f"results, figures and page: {output}", highlight=False)
    return summary


def schedule(one: Setting) -> steps.Schedule:
    """The steps of a setting."""
    known = theory.constants(one.full_row_rank, one.noisy)
    if one.steps == "constant":
        return steps.Constant(known.largest_step)
    return theory.schedule_theorem1(known) if one.steps == "Theorem 1" else theory.schedule_theorem2()


def bounded(theorem: int, one: Setting, measured: Measured) -> tuple[Array, Array, Array]:
    """What a theorem bounds: rounds, the mean over seeds there, and the bound, which is empty where there is none."""
    known = theory.constants(one.full_row_rank, one.noisy)
    if theorem == 1:
        mean = measured.weighted.mean(axis=0)
        k = np.arange(len(mean))
        return k, mean, theory.bound_theorem1(measured, known) if one.steps == "Theorem 1" else np.empty(0)
    if not one.full_row_rank:
        return np.arange(len(measured.gammas)), measured.primal.mean(axis=0), np.empty(0)
    k, bound = theory.bound_theorem2(measured, known)
    return k, measured.lyapunov.mean(axis=0)[k], bound


def results(found: dict[int, list[Measured]], rounds: int, seeds: int) -> dict[str, Any]:
    """Everything in numbers."""
    known = theory.constants(full_row_rank=False, noisy=True)
    return {
        "version": fpdfp.__version__, "rounds": rounds, "seeds": seeds,
        "problem": {
            "clients": theory.CLIENTS, "samples": theory.SAMPLES, "features": theory.FEATURES, "batch": theory.BATCH,
            "n": theory.PER_ROUND, "levels": theory.LEVELS, "weight": theory.WEIGHT, "mu": known.mu,
            "lipschitz": known.lipschitz, "sigma2": known.sigma2, "delta2": known.delta2, "q": known.q,
            "m1": 2 * theory.FEATURES - 1, "m2": theory.FEATURES - 1,
        },
        "theorems": {
            str(theorem): [described(theorem, *pair) for pair in zip(settings, found[theorem], strict=True)]
            for theorem, settings in SETTINGS_OF.items()
        },
    }  # fmt: skip


def described(theorem: int, one: Setting, measured: Measured) -> dict[str, Any]:
    """A setting in numbers; ``at_the_end`` is E‖x_k − x*‖² over the last tenth of the rounds."""
    known = theory.constants(one.full_row_rank, one.noisy)
    k, mean, bound = bounded(theorem, one, measured)
    shown = np.unique(np.geomspace(1, len(k), 60).astype(int)) - 1
    return {
        "name": one.name, "steps": one.steps, "gamma0": float(measured.gammas[0]),
        "D2": known.d2, "D2_as_printed": known.printed_d2, "K": int(k[0]) - (theorem == 2) if len(bound) else None,
        "at_the_end": float(measured.primal[:, -(len(measured.gammas) // 10) :].mean()),
        "slope": theory.slope(measured.lyapunov if one.full_row_rank else measured.primal),
        "bounded_at_the_end": float(mean[-1]), "bound_at_the_end": float(bound[-1]) if len(bound) else None,
        "largest_share_of_bound": float((mean / bound).max()) if len(bound) else None,
        "round": k[shown].tolist(), "measured": mean[shown].tolist(),
        "bound": bound[shown].tolist() if len(bound) else [],
    }  # fmt: skip


def draw(found: dict[int, list[Measured]], folder: Path) -> None:
    """Draw a figure for each theorem: what it bounds, as the mean and the range over seeds, and the bound."""
    from matplotlib import rc_context

    with rc_context(SETTINGS):
        for theorem, settings in SETTINGS_OF.items():
            figure, (error, bounds) = figure_of(2, width=5.0)
            for one, measured, colour in zip(settings, found[theorem], COLOURS, strict=False):
                values = measured.primal
                shown = np.unique(np.geomspace(1, values.shape[1] - 1, 200).astype(int))
                proved = one.steps == f"Theorem {theorem}" and one.full_row_rank == (theorem == 2)
                style = "-" if proved else ":"
                error.plot(shown, values.mean(axis=0)[shown], style, color=colour, label=one.name, linewidth=1.4)
                low, high = values.min(axis=0)[shown], values.max(axis=0)[shown]
                error.fill_between(shown, low, high, color=colour, alpha=0.15, linewidth=0)
                k, mean, bound = bounded(theorem, one, measured)
                some = np.unique(np.geomspace(1, len(k) - 1, 200).astype(int))
                if len(bound):
                    bounds.plot(k[some], mean[some], color=colour, label=one.name, linewidth=1.4)
                    bounds.plot(k[some], bound[some], "--", color=colour, label="its bound", linewidth=1.0)
            what = "Σ γ_j E‖x_j − x*‖² / Σ γ_j" if theorem == 1 else "E‖x − x*‖² + (γ²/λ) E‖v − v*‖²"
            error.set(ylabel="E‖x_k − x*‖²", title=f"Theorem {theorem}: mean and range over seeds")
            bounds.set(ylabel=what, title="what is bounded, and the bound")
            for axes in (error, bounds):
                axes.set(xscale="log", yscale="log")
            finish((error, bounds), "round k")
            figure.savefig(folder / f"theorem{theorem}.png", dpi=110, metadata={"Software": None})
            figure.savefig(folder / f"theorem{theorem}.svg", metadata={"Date": None})


def write(summary: dict[str, Any]) -> str:
    """Return the page in Markdown, from its results."""
    tables = {f"table{number}": table(number, entries) for number, entries in summary["theorems"].items()}
    shares = {
        f"ratio{number}": f"{max(one['largest_share_of_bound'] or 0.0 for one in entries):.2g}"
        for number, entries in summary["theorems"].items()
    }
    return PAGE.format(
        **summary["problem"], **tables, **shares, start=theory.FIRST, version=summary["version"],
        rounds=summary["rounds"], seeds=summary["seeds"],
    )  # fmt: skip


def table(number: str, entries: list[dict[str, Any]]) -> str:
    """The settings of a theorem."""
    slopes = number == "2"
    header = ["setting", "K" if slopes else "γ_0", "D₂ (as printed)", "E‖x_k − x\\*‖² at the end"]
    header += [*(["slope"] if slopes else []), "bounded quantity at the end", "bound"]
    lines = []
    for one in entries:
        start = ("none" if one["K"] is None else str(one["K"])) if slopes else f"{one['gamma0']:.4f}"
        slope = [f"{one['slope']:+.2f}"] if slopes else []
        d2 = f"{one['D2']:.3g} ({one['D2_as_printed']:.3g})"
        held = one["bound_at_the_end"] is not None
        ends = [f"{one[name]:.2e}" if held else "none" for name in ("bounded_at_the_end", "bound_at_the_end")]
        lines.append([one["name"], start, d2, f"{one['at_the_end']:.2e}", *slope, *ends])
    return rows(header, lines)
