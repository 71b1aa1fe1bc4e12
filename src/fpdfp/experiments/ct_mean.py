"""``fpdfp reproduce ct --model mean``: the second experiment with another scaling of the data term."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import fpdfp
from fpdfp._array import to_host
from fpdfp.ct.device import device_name, module_for
from fpdfp.ct.reconstruction import reconstruct
from fpdfp.experiments import ct_figures, ct_mean_claims, ct_mean_page, pool
from fpdfp.experiments.ct_cases import FIXED_LEVELS, PAPER, PARTICIPATION, cases, label, our_cases
from fpdfp.experiments.ct_mean_runs import DECAYS, FIRST_STAGE, GAMMAS, Bench, Line, line
from fpdfp.experiments.ct_setting import CLIENTS, MEAN, NOISE_VARIANCE, SCANS, TV, Scan, Setting, setting
from fpdfp.experiments.reproduce import Clock, rounded
from fpdfp.experiments.runs import Case, Step

#: Iterations for the minimum, and the relative change at which they end.
ITERATIONS, ENOUGH = 100, 1e-6


def reproduce(
    size: str,
    output: Path,
    *,
    volume: Path | None = None,
    device: str = "auto",
    rounds: int | None = None,
    tune_at: str | None = None,
) -> dict[str, Any]:
    """Run the experiment at a size and write its results into a folder.

    Runs that are done are kept in ``runs`` in that folder, so that the same call goes on where another was interrupted.
    The steps are tuned at the size ``tune_at``, by default at the small one: in units of 1/L they carry over.
    """
    from rich.console import Console

    console, clock, chosen = Console(), Clock(), SCANS[MEAN, size]
    module, folder = module_for(device), output / "runs"
    rounds = chosen.rounds if rounds is None else rounds
    tuned_size = SCANS[MEAN, tune_at or ("tiny" if size == "tiny" else "small")]
    folder.mkdir(parents=True, exist_ok=True)
    where = setting(chosen, module, volume)
    console.print(f"{where.problem}; {where.source}; on the {'CPU' if module is np else 'GPU'}")
    clock.lap("data")
    _ = where.problem.lipschitz
    clock.lap("constants")
    best = minimum(where)
    console.print(f"minimum: {best['objective']:.7g}, {best['psnr']:.2f} dB")
    clock.lap("minimum")
    tuned_rounds = min(rounds, tuned_size.rounds)
    with pool.bar() as bar:
        there = Bench(where if tuned_size == chosen else setting(tuned_size, module, volume), folder, bar)
        steps = {n: there.tune(n, tuned_rounds) for n in PARTICIPATION}
        clock.lap("tuning of FPDFP")
        bench = there if tuned_size == chosen else Bench(where, folder, bar)
        lines = measured(bench, steps, rounds, tuned_rounds, min(rounds, chosen.few))
        clock.lap("runs")
    # In single precision any of them may be the nearest to the minimum.
    best["objective"] = min(best["objective"], *rounded([one.objective.min() for one in lines.values()]))
    summary = results(where, best, lines, rounds, tuned_rounds, tuned_size)
    (output / "results.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    names = ct_figures.draw(lines, to_host(where.truth[:, :, where.middle]), best["objective"], output)
    (output / "claims.md").write_text(ct_mean_page.write(summary, names))
    clock.lap("figures and text")
    times = {"device": device_name(module), "laps": clock.laps, "runs": bench.times()}
    (output / "times.json").write_text(json.dumps(times, indent=1) + "\n")
    for claim in summary["claims"]:
        console.print(f"[bold]{claim['verdict']}[/bold]: {claim['claim']}")
    console.print(f"{clock}\nresults, figures and claims: {output}", highlight=False)
    return summary


def minimum(where: Setting) -> dict[str, float]:
    """The minimum and its minimiser's PSNR, by the centralised method."""
    module = "cpu" if isinstance(where.truth, np.ndarray) else "cuda"
    found = reconstruct(
        where.projections,
        where.geometry,
        tv=TV / (where.scan.views * where.scan.weight),
        nonnegative=False,
        iterations=ITERATIONS,
        tol=ENOUGH,
        device=module,
        progress=False,
    )
    if found.status == "interrupted":
        raise KeyboardInterrupt
    objective = where.problem.objective(found.volume)
    objective, quality = rounded([objective, where.psnr(found.volume)])
    return {"objective": objective, "psnr": quality, "iterations": found.iterations}


def measured(bench: Bench, steps: dict[int, Step], rounds: int, tuned_rounds: int, few: int) -> dict[Case, Line]:
    """Run every case; c is in units of one over the rounds, and so carries over to other numbers of them."""
    jobs = [
        bench.job(case, steps[case.n]._replace(decay=steps[case.n].decay * tuned_rounds / rounds), rounds)
        for case in cases()
    ]
    jobs += [bench.job(case, None, few) for case in our_cases()]
    found = bench.compute("runs,", jobs)
    return {job.case: line(bench, job, one) for job, one in zip(jobs, found, strict=True)}


def results(
    where: Setting, best: dict[str, float], lines: dict[Case, Line], rounds: int, tuned_rounds: int, tuned_size: Scan
) -> dict[str, Any]:
    """Everything in numbers, so that figures can be drawn anew from it."""
    size, geometry = where.scan, where.geometry
    return {
        "experiment": "federated cone-beam CT with total variation",
        "version": fpdfp.__version__,
        "model": size.model,
        "size": size.name,
        "problem": {
            "volume": size.volume, "detector": size.detector, "views": size.views, "voxel": size.voxel,
            "source": size.distances[0], "panel": size.distances[1], "weight_of_a_ray": size.pixel_area,
            "pixel": rounded([np.linalg.norm(geometry.u[0]), np.linalg.norm(geometry.v[0])]),
            "clients": CLIENTS, "mu": TV, "noise_variance": NOISE_VARIANCE, "file": where.file, "truth": where.source,
            "projections": where.kind,
            "largest_line_integral": float(f"{float(where.projections.max()):.3g}"),
            "L": float(where.problem.lipschitz.mean()), "rho_max": where.problem.linop.squared_norm,
        },
        "minimum": best,
        "tuning": {
            "what": "FPDFP's step γ_k = γ0/(1 + ck), for each n", "levels": FIXED_LEVELS, "size": tuned_size.name,
            "gamma0_times_L": GAMMAS, "c_times_rounds": DECAYS, "by": "objective",
            "rounds": [max(1, round(FIRST_STAGE * tuned_rounds)), tuned_rounds],
        },
        "rounds": rounds,
        "cases": [described(one, rounds) for one in lines.values()],
        "claims": [claim._asdict() for claim in ct_mean_claims.judge(lines)],
    }  # fmt: skip


def described(one: Line, rounds: int) -> dict[str, Any]:
    """A case in numbers."""
    step = {} if one.step is None else {
        "gamma0_times_L": one.step.gamma, "c_times_rounds": float(f"{one.step.decay * rounds:.6g}"),
    }  # fmt: skip
    return {
        "label": label(one.case), "method": one.case.method, "clients_per_round": one.case.n, "levels": one.case.levels,
        **step, "psnr_in_the_paper": PAPER.get(one.case), "bits_once_up": one.once_up,
        "round": [int(k) for k in one.rounds], "objective": rounded(one.objective), "psnr": rounded(one.psnr),
        "bits_up": [int(bits) for bits in one.bits_up], "bits_down": [int(bits) for bits in one.bits_down],
    }  # fmt: skip
