"""The second experiment with the model ``mean`` in words: the page that ``fpdfp reproduce ct --model mean`` writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fpdfp._units import format_bits
from fpdfp.declarative.settings import MEAN
from fpdfp.experiments.ct_runs import DUAL_STEPS, LEVELS_DOWN, LEVELS_UP, SIZES
from fpdfp.experiments.page import braces, rows, upper

PAGE = """\
# Federated cone-beam CT, the data term rescaled: size {name}

Made by `{command}`
(fpdfp {version}); everything in numbers is in [results.json](results.json), times are in [times.json](times.json).

    min  1/V Σ_views a/2 ‖A_view x − b_view‖² + μ ‖∇x‖_1,2,   μ = {mu:g}

This is **not the paper's model**, which `fpdfp reproduce ct` has, and on which its claims are judged
([results](../../index.md)). The data term here is a mean over views and an integral over the panel (a = {weight:.4g} is
the area of a pixel, seen at the axis, in faces of voxels), and voxels have a side of {voxel:g}, not 1. Two things
change. Beside the data term, μ weighs {ratio:.2g} times as much (V/a over the square of the side), so that the total
variation smooths what is noise, that of the data and that of the quantizers alike. And line integrals are {smaller:g}
times smaller under the same noise, so that the noise of the data decides how good an image can be. What the quantizers
add is small beside that, and numbers of levels that differ in the printed model do not here.

{volume} voxels, {views} views of {detector} pixels on a circle; the source is {source:g} from
the axis, the panel {panel:g} from the source, with pixels of {pixel} that just see the volume. The truth is {truth},
with values from 0 to 1; {projections}. Gaussian noise of mean 0 and variance {noise:g} is added (line integrals go up
to {largest:.3g}). The views are dealt out at random to {clients} clients. Blocks of the quantizer: one norm for each
slice of x, one for each slice and component of v. λ = 1/ρ_max(∇∇ᵀ) = 1/{rho:.4g}. Ours is the shifted method
(`fpdfp.ShiftedPDFP`, Fourier preconditioner, {dual_steps} dual steps a round) with max-norm QSGD of {levels_up} levels
up and {levels_down} down.

Tuned, for each n with s = {tuned_levels} {tuned_at}: FPDFP's step γ_k = γ0/(1 + ck). First γ0 in {gammas}/L with c = 0
by the objective after {first_stage} rounds, L the mean of the clients' Lipschitz constants; then c in {decays}/rounds
by the objective after {tuned_rounds} rounds. All levels have the step of their n; of ours nothing is tuned. The minimum
that curves are compared with is the least objective seen, {objective:.6g}, or that of `fpdfp.ct.reconstruct` (without
constraints, {reference_iterations} iterations), whose PSNR is {best_psnr:.2f} dB. PSNRs are those of the volume.

{table}

Where the best PSNR comes before the end, the minimiser is not the best image, and a run that ends nearer to it may end
with a smaller PSNR than others.

## The paper's comparisons with this scaling

One seed, so that there is no spread to judge differences by.

{claims}

## Figures

{figures}
"""


def write(summary: dict[str, Any], figures: Sequence[str]) -> str:
    """Return the page in Markdown, from the results."""
    problem, tuning, best = summary["problem"], summary["tuning"], summary["minimum"]
    return PAGE.format(
        **{name: problem[name] for name in ("voxel", "views", "source", "panel", "truth", "projections", "clients")},
        name=summary["size"],
        command=command(summary),
        version=summary["version"],
        rounds=summary["rounds"],
        mu=problem["mu"],
        ratio=problem["views"] / problem["weight_of_a_ray"] / problem["voxel"] ** 2,
        smaller=1 / problem["voxel"],
        weight=problem["weight_of_a_ray"],
        noise=problem["noise_variance"],
        largest=problem["largest_line_integral"],
        volume=" × ".join(map(str, problem["volume"])),
        detector=" × ".join(map(str, problem["detector"])),
        pixel=" × ".join(f"{side:.4g}" for side in problem["pixel"]),
        rho=problem["rho_max"],
        dual_steps=DUAL_STEPS,
        levels_up=LEVELS_UP,
        levels_down=LEVELS_DOWN,
        tuned_levels=tuning["levels"],
        tuned_at=f"at size {tuning['size']}",
        gammas=braces(tuning["gamma0_times_L"]),
        decays=braces(tuning["c_times_rounds"]),
        first_stage=tuning["rounds"][0],
        tuned_rounds=tuning["rounds"][1],
        reference_iterations=best["iterations"],
        objective=best["objective"],
        best_psnr=best["psnr"],
        table=table(summary["cases"], summary["rounds"]),
        claims="\n".join(f"* {one['claim']} {upper(one['numbers'])}" for one in summary["claims"]),
        figures="\n\n".join(f"![{one}]({one}.png)" for one in figures),
    )


def command(summary: dict[str, Any]) -> str:
    """The command that makes the page."""
    rounds, file = summary["rounds"], summary["problem"]["file"]
    given = "" if rounds == SIZES[MEAN, summary["size"]].rounds else f" --rounds {rounds}"
    return f"fpdfp reproduce ct --model mean --size {summary['size']}{given}" + (f" --volume {file}" if file else "")


def table(cases: Sequence[dict[str, Any]], rounds: int) -> str:
    """What became of every case."""
    header = [
        f"case ({rounds} rounds unless said)", "step", "PSNR at the end", "best, after", "in the paper", "objective",
        "bits up a round", "bits up",
    ]  # fmt: skip
    return rows(header, list(map(row, cases)))


def row(case: dict[str, Any]) -> list[str]:
    """A line of the table."""
    rounds, sent = case["round"][-1], case["bits_up"][-1]
    label, step = case["label"], f"{case.get('gamma0_times_L', 0):g}/L, c = {case.get('c_times_rounds', 0):g}/rounds"
    bits = format_bits(sent)
    if "gamma0_times_L" not in case:
        label, step = f"{label}, {rounds} rounds", "nothing tuned"
        bits += f" and {format_bits(case['bits_once_up'])} once"
    paper = "" if case["psnr_in_the_paper"] is None else f"{case['psnr_in_the_paper']:.2f}"
    best = max(range(len(case["psnr"])), key=case["psnr"].__getitem__)
    return [
        label, step, f"{case['psnr'][-1]:.2f}", f"{case['psnr'][best]:.2f}, {case['round'][best]}", paper,
        f"{case['objective'][-1]:.6g}", format_bits(sent / rounds), bits,
    ]  # fmt: skip
