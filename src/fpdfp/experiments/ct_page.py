"""The second experiment in words: the page that ``fpdfp reproduce ct`` writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp._units import format_bits
from fpdfp.declarative.settings import PRINTED
from fpdfp.experiments import ties
from fpdfp.experiments.ct_claims import PART
from fpdfp.experiments.ct_lines import HORIZONS, LAST, PER, Line, Lines, lines_of
from fpdfp.experiments.ct_runs import (
    DUAL_STEPS,
    LEVELS_DOWN,
    LEVELS_UP,
    OURS,
    PAPER,
    SEEDS,
    SIZES,
    cases,
    our_cases,
)
from fpdfp.experiments.page import item, rows

PAGE = """\
# Federated cone-beam CT as the paper prints it: size {name}

Made by `{command}` (fpdfp {version}, on {devices}); everything in numbers is in [results.json](results.json).{missing}

    min  ½ ‖A x − b‖² + μ ‖∇x‖_1,2,   b = A x₀ + ε,   μ = {mu:g}

a plain sum over all rays, with voxels of side 1 and Gaussian noise ε of mean 0 and variance {noise:g}. {volume} voxels,
{views} views of {detector} pixels on a circle; the source is {source:g} from the axis, the panel {panel:g} from the
source, with pixels of {pixel} that just see the volume: the paper gives neither distances nor pixel sizes. The truth x₀
is {truth}, with values from 0 to 1; {projections}, in float32, so that data and reconstruction share the discretisation
error (an "inverse crime"), as the paper's formula has it. Line integrals go up to {largest:.3g}. The noise alone has
½‖ε‖² ≈ {floor:.6g}, and an x that fits some of it has less. The views are dealt out at random to {clients} clients.
{size_note}
**One rule for all cases**: FPDFP with λ = 1/20, as in the paper, and the constant step γ = {step:g}/L with L = {L:.5g}
the mean of the clients' Lipschitz constants; nothing is tuned. QSGD with one norm for each slice of x, and one for each
slice and component of v; levels are written by an entropy coder (rANS), and every bit of the messages is counted. A
seed draws the participants and the rounding; data and split are the same for all. PSNRs have a peak of 1; the paper's
stand under slices, so that the middle slice stands beside them, and the volume as well. Ours is the shifted method
(`fpdfp.ShiftedPDFP`, Fourier preconditioner, {dual_steps} dual steps a round) with max-norm QSGD of {levels_up} levels
up and {levels_down} down.

## At the end

{table}

Means over seeds, with ranges in brackets.{minimum}

## On the way

PSNR of the middle slice in dB (mean over seeds) after parts of the rounds, and slopes at the end per {per} rounds:
those of lines fitted to the evaluations of the last {last:.4g} % of the rounds.

{horizons}

A case whose slopes are not near zero has not come to its end, and comparisons with it are for this number of rounds.
Where the PSNR falls while the objective still falls, the image begins to fit the noise, and μ = {mu:g} beside a plain
sum over all rays does not keep it from that.

## The paper's claims

{claims}

A claim is judged on the objective and on the PSNR of the middle slice, both. Two cases are compared seed by seed: a
loss is the mean of the differences (relative for the objective; positive means worse), and its **tie zone** is the half
width of its two-sided {confidence:g} % t interval over the seeds; within it, the comparison is a tie. With one seed
there is no spread, and nothing is judged. "Sufficient" and "enough" are confirmed where nothing is lost beyond the tie
zone, and in part where both losses are at most {part:g} % of those of the setting that the paper calls worse.
"Converges faster" is judged on the objective.

## Figures

F_low is the lowest objective seen, {lowest:.7g}. Lines are medians over seeds, bands their ranges; slices are those of
the first seed.

{figures}
"""


def write(summary: dict[str, Any]) -> str:
    """Return the page in Markdown, from the results."""
    problem, lines = summary["problem"], lines_of(summary["runs"], {})
    return PAGE.format(
        **{name: problem[name] for name in ("views", "source", "panel", "truth", "projections", "clients", "mu", "L")},
        name=summary["size"] + (f", {summary['file']}" if summary["file"] else ""),
        command=command(summary),
        version=summary["version"],
        devices=" and ".join(summary["devices"]),
        missing=missing(summary["missing"], summary["codes"]),
        noise=problem["noise_variance"],
        floor=problem["noise_floor"],
        largest=problem["largest_line_integral"],
        volume=" × ".join(map(str, problem["volume"])),
        detector=" × ".join(map(str, problem["detector"])),
        pixel=" × ".join(f"{side:.4g}" for side in problem["pixel"]),
        size_note=size_note(problem["volume"]),
        step=summary["step_times_L"],
        dual_steps=DUAL_STEPS,
        levels_up=LEVELS_UP,
        levels_down=LEVELS_DOWN,
        table=table(lines, summary["rounds"]),
        minimum=minimum(summary["minimum"], lines),
        per=f"{PER:,}",
        last=100 * LAST,
        horizons=horizons(lines),
        claims="\n".join(map(item, summary["claims"])),
        confidence=100 * ties.CONFIDENCE,
        part=100 * PART,
        lowest=summary["lowest"],
        figures="\n\n".join(f"![{one}]({one}.png)" for one in summary["figures"]),
    )


def command(summary: dict[str, Any]) -> str:
    """The command that makes the page."""
    file, size = summary["file"], summary["size"]
    usual = {"rounds": SIZES[PRINTED, size].rounds, "seeds": 1 if file else SEEDS}
    given = "".join(f" --{name} {summary[name]}" for name, value in usual.items() if summary[name] != value)
    return f"fpdfp reproduce ct --size {size}{given}" + (f" --volume {file}" if file else "")


def missing(names: Sequence[str], codes: Sequence[str]) -> str:
    """What the page lacks."""
    texts = [f" Runs that are missing here: {', '.join(names)}."] if names else []
    if len(codes) > 1:
        texts.append(f" The runs were made by {len(codes)} states of the package's code.")
    return "".join(texts)


def size_note(volume: Sequence[int]) -> str:
    """What a smaller slice means for the levels."""
    theirs, here = SIZES[PRINTED, "paper"].scan.volume, volume[0] * volume[1]
    entries = theirs[0] * theirs[1]
    if here == entries:
        return ""
    ratio = (entries / here) ** 0.5
    return (
        f"A slice has {entries / here:.3g} times fewer entries than at the paper's size, and the relative error of "
        f"QSGD falls with them: s levels here are as fine as {ratio:.3g} s levels there, and verdicts on levels are "
        "for this size alone.\n"
    )


def minimum(found: dict[str, Any] | None, lines: Lines) -> str:
    """What the centralised reconstruction gives."""
    if found is None:
        return ""
    best = max(one.slice_psnr.mean(axis=0).max() for one in lines.values())
    beyond = " Runs have better images on their way: PSNRs at the end depend on where the end is."
    return (
        f" With all views in one place, `fpdfp.ct.reconstruct` (without constraints, {found['iterations']} iterations) "
        f"reaches the objective {found['objective']:.7g}, with {found['slice_psnr']:.2f} dB in the slice and "
        f"{found['psnr']:.2f} dB in the volume.{beyond if best > found['slice_psnr'] else ''}"
    )


def in_order(lines: Lines) -> list[Line]:
    """The lines in the order of the tables."""
    return [lines[case] for case in [*cases(), *our_cases()] if case in lines]


def table(lines: Lines, rounds: int) -> str:
    """What became of every case."""
    header = [
        f"case ({rounds:,} rounds unless said)", "seeds", "objective", "slice, dB", "volume, dB", "in the paper, dB",
        "best slice, after", "bits up a round", "bits up", "bits down",
    ]  # fmt: skip
    return rows(header, [row(one, rounds) for one in in_order(lines)])


def row(one: Line, rounds: int) -> list[str]:
    """A line of the table."""
    done, middle = one.rounds[-1], one.slice_psnr.mean(axis=0)
    best = int(np.argmax(middle))
    up, down = one.bits_up[:, -1].mean(), one.bits_down[:, -1].mean()
    once_up, once_down = (f" and {format_bits(bits)} once" if bits else "" for bits in (one.once_up, one.once_down))
    paper = PAPER.get(one.case)
    return [
        one.case.label + ("" if done == rounds else f", {done:.0f} rounds"), str(len(one.seeds)),
        spread(one.objective[:, -1], 7, "g"), spread(one.slice_psnr[:, -1], 2, "f"), spread(one.psnr[:, -1], 2, "f"),
        "" if paper is None else f"{paper:.2f}", f"{middle[best]:.2f}, {one.rounds[best]:.0f}",
        format_bits(up / done), format_bits(up) + once_up, format_bits(down) + once_down,
    ]  # fmt: skip


def spread(values: Array, digits: int, kind: str) -> str:
    """The mean, and the range where there are several."""
    mean = f"{values.mean():.{digits}{kind}}"
    return mean if len(values) == 1 else f"{mean} ({values.min():.{digits}{kind}} to {values.max():.{digits}{kind}})"


def horizons(lines: Lines) -> str:
    """The slice on the way, and slopes at the end."""
    theirs = [one for one in in_order(lines) if one.case.method != OURS]
    if not theirs:
        return ""
    at = [f"{theirs[0].rounds[theirs[0].at(part)]:,.0f}" for part in HORIZONS]
    header = ["case", *at, "slope of the slice, dB", "of the volume, dB", "of the objective, relative"]
    cells = []
    for one in theirs:
        middle = one.slice_psnr.mean(axis=0)
        relative = one.slope(one.objective) / one.objective[:, -1].mean()
        slopes = [f"{one.slope(one.slice_psnr):+.3f}", f"{one.slope(one.psnr):+.3f}", f"{relative:+.1e}"]
        cells.append([one.case.label, *(f"{middle[one.at(part)]:.2f}" for part in HORIZONS), *slopes])
    return rows(header, cells)
