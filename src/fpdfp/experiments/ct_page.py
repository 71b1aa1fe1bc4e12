"""The second experiment in words: the page that ``fpdfp reproduce ct`` writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp._units import format_bits
from fpdfp.declarative.settings import MEAN, PRINTED
from fpdfp.experiments import ct_runs as scans
from fpdfp.experiments.ct_claims import PART
from fpdfp.experiments.ct_lines import HORIZONS, LAST, PER, Line, Lines, lines_of
from fpdfp.experiments.ct_runs import cases, our_cases
from fpdfp.experiments.page import braces, fill, rows, upper


def fill_scan(template: str, summary: dict[str, Any], figures: Sequence[str], usual: Any, **more: Any) -> str:
    """Return a page about scans; options of the command are told where they are not the usual ones."""
    problem = summary["problem"]
    file = summary.get("file", problem.get("file"))
    model = "" if summary["model"] == PRINTED else f" --model {summary['model']}"
    given = "".join(f" --{name} {summary[name]}" for name, value in usual.items() if summary[name] != value)
    command = f"fpdfp reproduce ct{model} --size {summary['size']}{given}" + (f" --volume {file}" if file else "")
    sides = {name: " × ".join(map("{:.4g}".format, problem[name])) for name in ("volume", "detector", "pixel")}
    ours = {"dual_steps": scans.DUAL_STEPS, "levels_up": scans.LEVELS_UP, "levels_down": scans.LEVELS_DOWN}
    return fill(template, summary, figures, command=command, **sides, **ours, **more)


def write(summary: dict[str, Any]) -> str:
    """Return the page in Markdown, from the results."""
    lines, size, file = lines_of(summary["runs"], {}), summary["size"], summary["file"]
    usual = {"rounds": scans.SIZES[PRINTED, size].rounds, "seeds": 1 if file else scans.SEEDS}
    return fill_scan(
        "ct",
        summary,
        summary["figures"],
        usual,
        name=size + (f", {file}" if file else ""),
        devices=" and ".join(summary["devices"]),
        missing=missing(summary["missing"], summary["codes"]),
        size_note=size_note(summary["problem"]["volume"]),
        table=table(lines, summary["rounds"]),
        minimum=minimum(summary["minimum"], lines),
        per=f"{PER:,}",
        last=100 * LAST,
        horizons=horizons(lines),
        part=100 * PART,
    )


def write_mean(summary: dict[str, Any], figures: Sequence[str]) -> str:
    """Return the page of the model ``mean`` in Markdown, from the results."""
    problem, tuning = summary["problem"], summary["tuning"]
    return fill_scan(
        "ct-mean",
        summary,
        figures,
        {"rounds": scans.SIZES[MEAN, summary["size"]].rounds},
        ratio=problem["views"] / problem["weight_of_a_ray"] / problem["voxel"] ** 2,
        smaller=1 / problem["voxel"],
        gammas=braces(tuning["gamma0_times_L"]),
        decays=braces(tuning["c_times_rounds"]),
        table=table_mean(summary["cases"], summary["rounds"]),
        claims="\n".join(f"* {one['claim']} {upper(one['numbers'])}" for one in summary["claims"]),
    )


def missing(names: Sequence[str], codes: Sequence[str]) -> str:
    """What the page lacks."""
    texts = [f" Runs that are missing here: {', '.join(names)}."] if names else []
    if len(codes) > 1:
        texts.append(f" The runs were made by {len(codes)} states of the package's code.")
    return "".join(texts)


def size_note(volume: Sequence[int]) -> str:
    """What a smaller slice means for the levels."""
    theirs, here = scans.SIZES[PRINTED, "paper"].scan.volume, volume[0] * volume[1]
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
    paper = scans.PAPER.get(one.case)
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
    theirs = [one for one in in_order(lines) if one.case.method != scans.OURS]
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


def table_mean(cases: Sequence[dict[str, Any]], rounds: int) -> str:
    """What became of every case."""
    header = [
        f"case ({rounds} rounds unless said)", "step", "PSNR at the end", "best, after", "in the paper", "objective",
        "bits up a round", "bits up",
    ]  # fmt: skip
    return rows(header, list(map(row_mean, cases)))


def row_mean(case: dict[str, Any]) -> list[str]:
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
