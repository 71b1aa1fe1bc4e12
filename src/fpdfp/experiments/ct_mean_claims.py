"""What the paper claims of its second experiment, and what our runs say to it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from fpdfp.engines.progress import format_bits
from fpdfp.experiments.claims import Claim, verdict_of
from fpdfp.experiments.ct_cases import FIXED_LEVELS, LEVELS, OURS, PAPER, PARTICIPATION, PER_ROUND, label, short
from fpdfp.experiments.ct_mean_runs import Line
from fpdfp.experiments.ct_setting import CLIENTS
from fpdfp.experiments.runs import Case

#: In dB: what cannot be seen, and what can.
CLOSE, APART = 0.1, 0.3

Lines = Mapping[Case, Line]


def judge(lines: Lines) -> list[Claim]:
    """Return every claim with its verdict."""
    return [
        finer_is_better(lines),
        a_thousand_levels_suffice(lines),
        five_hundred_do_not(lines),
        some_are_as_good_as_all(lines),
        two_are_too_few(lines),
        bits_are_saved(lines),
        fewer_bits_for_the_same(lines),
        beyond(lines),
    ]


def finer_is_better(lines: Lines) -> Claim:
    """Claim 3, the ladder."""
    ladder = [lines[Case(PER_ROUND, levels)] for levels in LEVELS]
    rising = all(fine.ended > coarse.ended - 0.02 for coarse, fine in itertools.pairwise(ladder))
    return Claim(
        f"Claim 3: more levels never give a worse image (n = {PER_ROUND}).",
        verdict_of(rising),
        f"PSNR {listed(ladder)}; the paper has {reported(ladder)}. Up to 0.02 dB worse counts as no worse.",
    )


def a_thousand_levels_suffice(lines: Lines) -> Claim:
    """Claim 3, the levels that suffice."""
    quantized, exact = lines[Case(PER_ROUND, FIXED_LEVELS)], lines[Case(PER_ROUND, None)]
    lost, sent = exact.ended - quantized.ended, quantized.bits_up[-1] / exact.bits_up[-1]
    return Claim(
        f"Claim 3: {FIXED_LEVELS} levels cost next to nothing (0.08 dB in the paper).",
        verdict_of(lost <= CLOSE),
        f"they cost {decibels(lost)} against exact messages, and send {100 * sent:.1f} % of their bits.",
    )


def five_hundred_do_not(lines: Lines) -> Claim:
    """Claim 3, the levels that are too few."""
    coarse, exact = lines[Case(PER_ROUND, LEVELS[0])], lines[Case(PER_ROUND, None)]
    lost = exact.ended - coarse.ended
    return Claim(
        f"Claim 3: {LEVELS[0]} levels are too few (1.10 dB in the paper).",
        verdict_of(lost >= APART),
        f"they cost {decibels(lost)}; the objective ends at {coarse.objective[-1]:.5g}, at {exact.objective[-1]:.5g} "
        "with exact messages.",
    )


def some_are_as_good_as_all(lines: Lines) -> Claim:
    """Claim 4, the participation that suffices."""
    several, everyone = [lines[Case(n, FIXED_LEVELS)] for n in PARTICIPATION], lines[Case(CLIENTS, FIXED_LEVELS)]
    some = lines[Case(PER_ROUND, FIXED_LEVELS)]
    lost, sent = everyone.ended - some.ended, some.bits_up[-1] / everyone.bits_up[-1]
    return Claim(
        f"Claim 4: n = {PER_ROUND} is as good as everyone (0.04 dB in the paper).",
        verdict_of(lost <= CLOSE),
        f"PSNR {listed(several)}; the paper has {reported(several)}. n = {PER_ROUND} costs {decibels(lost)} and sends "
        f"{100 * sent:.1f} % of the bits of everyone.",
    )


def two_are_too_few(lines: Lines) -> Claim:
    """Claim 4, the participation that does not suffice."""
    few, everyone = lines[Case(PARTICIPATION[0], FIXED_LEVELS)], lines[Case(CLIENTS, FIXED_LEVELS)]
    lost = everyone.ended - few.ended
    return Claim(
        f"Claim 4: n = {PARTICIPATION[0]} is too few (0.72 dB in the paper).",
        verdict_of(lost >= APART),
        f"it costs {decibels(lost)} after {few.rounds[-1]:.0f} rounds.",
    )


def bits_are_saved(lines: Lines) -> Claim:
    """Claim 5."""
    theirs = [one for one in lines.values() if one.case.method != OURS]
    rates = {one.case: one.bits_up[1:] / one.rounds[1:] for one in theirs}
    late = {case: rate[len(rate) // 3 :] for case, rate in rates.items()}
    proportional = all((abs(rate / rate[-1] - 1) < 0.1).all() for rate in late.values())
    exact = lines[Case(PER_ROUND, None)].bits_up[-1]
    shorter = all(lines[Case(PER_ROUND, levels)].bits_up[-1] < exact for levels in LEVELS if levels is not None)
    each = ", ".join(f"{label(case)} {format_bits(rate[-1])}" for case, rate in rates.items())
    return Claim(
        "Claim 5: bits grow with the rounds in proportion, and quantized messages are shorter.",
        verdict_of(proportional and shorter),
        f"bits up a round: {each}.",
    )


def fewer_bits_for_the_same(lines: Lines) -> Claim:
    """Claim 5, in terms of the image."""
    theirs = [one for one in lines.values() if one.case.method != OURS]
    target = min(one.psnr.max() for one in theirs) - CLOSE
    needed = {one.case: reached(one, target) for one in theirs}
    least = min(needed, key=lambda case: needed[case][1])
    each = ", ".join(
        f"{label(case)} {rounds:.0f} rounds, {format_bits(bits)}" for case, (rounds, bits) in needed.items()
    )
    return Claim(
        "Claim 5: fitting levels and participation need the fewest bits for an image.",
        verdict_of(least.levels is not None and least.n < CLIENTS),
        f"to {target:.2f} dB, which all reach: {each}.",
    )


def beyond(lines: Lines) -> Claim:
    """What the shifted method needs for the best image of FPDFP."""
    theirs = [one for one in lines.values() if one.case.method != OURS]
    best = max(theirs, key=lambda one: one.ended)
    texts = []
    for one in lines.values():
        if one.case.method == OURS:
            rounds, bits = reached(one, best.ended - CLOSE)
            texts.append(
                f"{label(one.case)}: {rounds:.0f} rounds and {format_bits(bits)} up, and {format_bits(one.once_up)} "
                f"once; after {one.rounds[-1]:.0f} rounds {one.ended:.2f} dB"
                if np.isfinite(rounds)
                else f"{label(one.case)}: not reached, {one.ended:.2f} dB after {one.rounds[-1]:.0f} rounds"
            )
    rounds, bits = reached(best, best.ended - CLOSE)
    return Claim(
        "Beyond the paper: what the shifted method needs, with nothing tuned.",
        "measured",
        f"of FPDFP's images at the end the best has {best.ended:.2f} dB ({label(best.case)}); it is within {CLOSE:g} "
        f"dB of that after {rounds:.0f} rounds and {format_bits(bits)} up. To the same: {'; '.join(texts)}. The best "
        f"of all evaluations: FPDFP {max(one.psnr.max() for one in theirs):.2f} dB, ours "
        f"{max(one.psnr.max() for one in lines.values() if one.case.method == OURS):.2f} dB.",
    )


def reached(one: Line, target: float) -> tuple[float, float]:
    """The rounds and bits up to the first evaluation with a PSNR of at least this; infinite if there is none."""
    there = np.flatnonzero(one.psnr >= target)
    return (float(one.rounds[there[0]]), float(one.bits_up[there[0]])) if len(there) else (np.inf, np.inf)


def decibels(lost: float) -> str:
    """A loss in words; one that cannot be seen in two digits has no sign."""
    return f"{round(lost, 2) + 0.0:.2f} dB"


def listed(some: list[Line]) -> str:
    """PSNRs in a row."""
    return ", ".join(f"{short(one.case, [each.case for each in some])} {one.ended:.2f}" for one in some)


def reported(some: list[Line]) -> str:
    """Those of the paper."""
    return ", ".join(f"{short(one.case, [each.case for each in some])} {PAPER[one.case]:.2f}" for one in some)
