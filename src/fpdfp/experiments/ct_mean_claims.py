"""The comparisons of the paper's second experiment with the model ``mean``: numbers of one seed, without verdicts."""

from __future__ import annotations

import numpy as np

from fpdfp._units import format_bits
from fpdfp.experiments.cases import Case
from fpdfp.experiments.claims import Claim
from fpdfp.experiments.ct_lines import Line, Lines
from fpdfp.experiments.ct_runs import CLIENTS, FIXED_LEVELS, LEVELS, OURS, PAPER, PARTICIPATION, PER_ROUND, short

#: Within this of a PSNR counts as having reached it, in dB.
CLOSE = 0.1
MEASURED = "measured"


def judge(lines: Lines) -> list[Claim]:
    """Return every comparison with its numbers."""
    return [by_levels(lines), by_participation(lines), bits_a_round(lines), bits_for_the_same(lines), beyond(lines)]


def by_levels(lines: Lines) -> Claim:
    """Claim 3 of the paper."""
    ladder, exact = [lines[Case(PER_ROUND, levels)] for levels in LEVELS], lines[Case(PER_ROUND, None)]
    losses = [f"s = {levels} {decibels(ended(exact) - ended(lines[Case(PER_ROUND, levels)]))}" for levels in LEVELS[:2]]
    sent = lines[Case(PER_ROUND, FIXED_LEVELS)].bits_up[0, -1] / exact.bits_up[0, -1]
    return Claim(
        f"Levels (n = {PER_ROUND}).",
        MEASURED,
        f"PSNR {listed(ladder)}; the paper has {reported(ladder)}. Lost against exact messages: {', '.join(losses)}. "
        f"s = {FIXED_LEVELS} sends {100 * sent:.1f} % of the bits of exact messages.",
    )


def by_participation(lines: Lines) -> Claim:
    """Claim 4 of the paper."""
    several, everyone = [lines[Case(n, FIXED_LEVELS)] for n in PARTICIPATION], lines[Case(CLIENTS, FIXED_LEVELS)]
    few, some = (lines[Case(n, FIXED_LEVELS)] for n in (PARTICIPATION[0], PER_ROUND))
    lost = [f"n = {one.case.n} {decibels(ended(everyone) - ended(one))}" for one in (few, some)]
    confounded = "" if len({one.step for one in several}) == 1 else (
        " Not all have the same step, so that these are not differences of participation alone."
    )  # fmt: skip
    return Claim(
        f"Participation (s = {FIXED_LEVELS}).",
        MEASURED,
        f"PSNR {listed(several)}; the paper has {reported(several)}. Lost against everyone: {', '.join(lost)}."
        f"{confounded}",
    )


def bits_a_round(lines: Lines) -> Claim:
    """Claim 5 of the paper."""
    theirs = [one for one in lines.values() if one.case.method != OURS]
    each = ", ".join(f"{one.case.label} {format_bits(one.bits_up[0, -1] / one.rounds[-1])}" for one in theirs)
    return Claim("Bits up a round.", MEASURED, f"{each}.")


def bits_for_the_same(lines: Lines) -> Claim:
    """Claim 5, in terms of the image."""
    theirs = [one for one in lines.values() if one.case.method != OURS]
    target = min(one.psnr.max() for one in theirs) - CLOSE
    needed = {one.case: reached(one, target) for one in theirs}
    each = ", ".join(
        f"{case.label} {rounds:.0f} rounds, {format_bits(bits)}" for case, (rounds, bits) in needed.items()
    )
    return Claim("Bits up for an image.", MEASURED, f"to {target:.2f} dB, which all reach: {each}.")


def beyond(lines: Lines) -> Claim:
    """What the shifted method needs for the best image of FPDFP."""
    theirs = [one for one in lines.values() if one.case.method != OURS]
    best = max(theirs, key=ended)
    texts = []
    for one in lines.values():
        if one.case.method == OURS:
            rounds, bits = reached(one, ended(best) - CLOSE)
            texts.append(
                f"{one.case.label}: {rounds:.0f} rounds and {format_bits(bits)} up, and {format_bits(one.once_up)} "
                f"once; after {one.rounds[-1]:.0f} rounds {ended(one):.2f} dB"
                if np.isfinite(rounds)
                else f"{one.case.label}: not reached, {ended(one):.2f} dB after {one.rounds[-1]:.0f} rounds"
            )
    rounds, bits = reached(best, ended(best) - CLOSE)
    return Claim(
        "Beyond the paper: what the shifted method needs, with nothing tuned.",
        MEASURED,
        f"of FPDFP's images at the end the best has {ended(best):.2f} dB ({best.case.label}); it is within {CLOSE:g} "
        f"dB of that after {rounds:.0f} rounds and {format_bits(bits)} up. To the same: {'; '.join(texts)}. The best "
        f"of all evaluations: FPDFP {max(one.psnr.max() for one in theirs):.2f} dB, ours "
        f"{max(one.psnr.max() for one in lines.values() if one.case.method == OURS):.2f} dB.",
    )


def reached(one: Line, target: float) -> tuple[float, float]:
    """The rounds and bits up to the first evaluation with a PSNR of at least this; infinite if there is none."""
    there = np.flatnonzero(one.psnr[0] >= target)
    return (float(one.rounds[there[0]]), float(one.bits_up[0, there[0]])) if len(there) else (np.inf, np.inf)


def ended(one: Line) -> float:
    """The PSNR at the end."""
    return float(one.psnr[0, -1])


def decibels(lost: float) -> str:
    """A loss in words; one that cannot be seen in two digits has no sign."""
    return f"{round(lost, 2) + 0.0:.2f} dB"


def listed(some: list[Line]) -> str:
    """PSNRs in a row."""
    return ", ".join(f"{short(one.case, [each.case for each in some])} {ended(one):.2f}" for one in some)


def reported(some: list[Line]) -> str:
    """Those of the paper."""
    return ", ".join(f"{short(one.case, [each.case for each in some])} {PAPER[one.case]:.2f}" for one in some)
