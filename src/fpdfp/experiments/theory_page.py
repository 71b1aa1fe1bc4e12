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
from fpdfp.errors import ArgumentError
from fpdfp.experiments import theory
from fpdfp.experiments.figures import COLOURS, SETTINGS, figure_of, finish, save
from fpdfp.experiments.page import fill, rows
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


def reproduce(output: Path, *, rounds: int = theory.ROUNDS, seeds: int = theory.SEEDS) -> dict[str, Any]:
    """Measure what the theorems bound, and write figures, page and numbers into a folder."""
    from rich.console import Console

    if rounds < LEAST:
        raise ArgumentError(
            "rounds", f"must be at least {LEAST}, for a slope and for what Theorem 2 says, got {rounds}"
        )
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


def bound_mean(theorem: int, one: Setting, measured: Measured) -> tuple[Array, Array, Array]:
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
            str(theorem): [describe(theorem, *pair) for pair in zip(settings, found[theorem], strict=True)]
            for theorem, settings in SETTINGS_OF.items()
        },
    }  # fmt: skip


def describe(theorem: int, one: Setting, measured: Measured) -> dict[str, Any]:
    """A setting in numbers; ``at_the_end`` is E‖x_k − x*‖² over the last tenth of the rounds."""
    known = theory.constants(one.full_row_rank, one.noisy)
    k, mean, bound = bound_mean(theorem, one, measured)
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
                k, mean, bound = bound_mean(theorem, one, measured)
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
            save({f"theorem{theorem}": figure}, folder)


def write(summary: dict[str, Any]) -> str:
    """Return the page in Markdown, from its results."""
    tables = {f"table{number}": table(number, entries) for number, entries in summary["theorems"].items()}
    shares = {
        f"ratio{number}": f"{max(one['largest_share_of_bound'] or 0.0 for one in entries):.2g}"
        for number, entries in summary["theorems"].items()
    }
    return fill("theory", summary, (), **tables, **shares, start=theory.FIRST)


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
