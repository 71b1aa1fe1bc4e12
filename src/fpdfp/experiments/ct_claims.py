"""What the paper claims of its second experiment, and what the runs say to it: verdicts for the printed model alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fpdfp._typing import Array
from fpdfp._units import format_bits
from fpdfp.experiments import ties
from fpdfp.experiments.cases import Case
from fpdfp.experiments.claims import Claim, verdict_of
from fpdfp.experiments.ct_lines import HORIZONS, Comparison, Line, Lines, compare, find_same_seeds, outcome, write_loss
from fpdfp.experiments.ct_runs import (
    CLIENTS,
    FIXED_LEVELS,
    LEVELS,
    PAPER,
    PARTICIPATION,
    PER_ROUND,
    cases,
    our_cases,
    short,
)

COARSE, ENOUGH, EXACT = (Case(PER_ROUND, levels) for levels in (LEVELS[0], FIXED_LEVELS, None))
FEW, EVERYONE = (Case(n, FIXED_LEVELS) for n in (PARTICIPATION[0], CLIENTS))
NOT_JUDGED, ONE_SEED, TIE = "not judged", "one seed", "a tie"
#: "At first": after these parts of the rounds.
EARLY = (1 / 100, 1 / 32, *HORIZONS[:-1])
#: Within this of a PSNR counts as having reached it, with the model ``mean``, in dB.
CLOSE = 0.1
#: What the paper calls sufficient may lose this part of what the setting loses that it calls worse.
PART = 0.5


class MissingError(Exception):
    """A claim needs a case that has no runs."""


class Known(dict[Case, Line]):
    """The lines that are there."""

    def __missing__(self, case: Case) -> Line:
        raise MissingError(f"runs are missing: {case.label}.")


def judge(lines: Lines) -> list[Claim]:
    """Return every claim with its verdict; one whose runs are missing is not judged."""
    claims: dict[str, Callable[[Lines], tuple[str, str]]] = {
        f"Claim 3: a smaller s ends at a higher objective and a worse image (n = {PER_ROUND}).": coarser_is_worse,
        f"Claim 3: a smaller s converges faster (n = {PER_ROUND}).": coarser_is_faster,
        f"Claim 3: s = {FIXED_LEVELS} is sufficient (it costs 0.08 dB in the paper).": levels_suffice,
        f"Claim 3: s = {LEVELS[0]} is not (1.02 dB below s = {FIXED_LEVELS} in the paper).": too_few_levels,
        f"Claim 4: n = {PER_ROUND} is enough (it costs 0.04 dB in the paper).": clients_suffice,
        f"Claim 4: n = {FEW.n} is not (0.68 dB below n = {PER_ROUND} in the paper).": too_few_clients,
        "Claim 5: bits grow with the rounds in proportion, and quantized messages are shorter.": bits_are_saved,
        "Claim 5: quantization and partial participation need the fewest bits for an image.": fewest_bits,
        "Beyond the paper: what the shifted method needs, with nothing tuned.": beyond,
    }
    known, judged = Known(lines), []
    for text, of in claims.items():
        try:
            verdict, numbers = of(known)
        except MissingError as missing:
            verdict, numbers = NOT_JUDGED, str(missing)
        judged.append(Claim(text, verdict, numbers))
    return judged


def coarser_is_worse(lines: Lines) -> tuple[str, str]:
    """Claim 3, the ladder of levels."""
    pairs = {
        f"with s = {LEVELS[0]} instead of s = {FIXED_LEVELS}": compare(lines[COARSE], lines[ENOUGH]),
        f"with s = {FIXED_LEVELS} instead of exact messages": compare(lines[ENOUGH], lines[EXACT]),
    }
    others = {
        f"with s = {levels} instead of exact messages": compare(lines[Case(PER_ROUND, levels)], lines[EXACT])
        for levels in LEVELS
        if levels not in (LEVELS[0], FIXED_LEVELS, None) and Case(PER_ROUND, levels) in lines
    }
    texts = [f"{name}: {one}" for name, one in (pairs | others).items()]
    return worse(list(pairs.values())), f"{'; '.join(texts)}."


def coarser_is_faster(lines: Lines) -> tuple[str, str]:
    """Claim 3, the speed: against rounds, and against bits."""
    coarse, exact = lines[COARSE], lines[EXACT]
    by_rounds = [compare(coarse, exact, part).objective for part in EARLY]
    by_bits = [for_the_same_bits(coarse, exact, part) for part in EARLY]
    faster = [shows(list(map(outcome, some)), "better", "worse") for some in (by_rounds, by_bits)]
    verdict = f"{faster[0]} against rounds, {faster[1]} against bits" if NOT_JUDGED not in faster else NOT_JUDGED
    texts = [
        f"after {coarse.rounds[coarse.at(part)]:.0f} rounds {write_loss(rounds, ' %', 3, 100.0)}, for the same bits "
        f"{write_loss(bits, ' %', 3, 100.0)}"
        for part, rounds, bits in zip(EARLY, by_rounds, by_bits, strict=True)
    ]
    return verdict, f"the objective of s = {LEVELS[0]} against exact messages: {'; '.join(texts)}."


def for_the_same_bits(one: Line, other: Line, part: float) -> ties.Comparison:
    """The relative difference of the objective of one case to that which another has for as many bits."""
    mine, theirs = find_same_seeds(one, other)
    bits, ours = one.bits_up[mine, one.at(part)], one.objective[mine, one.at(part)]
    reference = [
        np.interp(sent, other.bits_up[row], np.log(other.objective[row]))
        for sent, row in zip(bits, theirs, strict=True)
    ]
    return ties.compare_ratio(ours, np.exp(reference))


def levels_suffice(lines: Lines) -> tuple[str, str]:
    """Claim 3, the levels that suffice."""
    enough, little = compare(lines[ENOUGH], lines[EXACT]), compare(lines[COARSE], lines[EXACT])
    return suffices(enough, little), (
        f"against exact messages, s = {FIXED_LEVELS}: {enough}; s = {LEVELS[0]}: {little}. s = {FIXED_LEVELS} sends "
        f"{share(lines[ENOUGH], lines[EXACT]):.1f} % of the bits of exact messages."
    )


def too_few_levels(lines: Lines) -> tuple[str, str]:
    """Claim 3, the levels that are too few."""
    coarse = compare(lines[COARSE], lines[ENOUGH])
    return worse([coarse]), f"with s = {LEVELS[0]} instead of s = {FIXED_LEVELS}: {coarse}."


def clients_suffice(lines: Lines) -> tuple[str, str]:
    """Claim 4, the participation that suffices."""
    some, few = compare(lines[ENOUGH], lines[EVERYONE]), compare(lines[FEW], lines[EVERYONE])
    several = [n for n in PARTICIPATION if n not in (FEW.n, PER_ROUND, CLIENTS) and Case(n, FIXED_LEVELS) in lines]
    others = "".join(f"; n = {n}: {compare(lines[Case(n, FIXED_LEVELS)], lines[EVERYONE])}" for n in several)
    return suffices(some, few), (
        f"against everyone, n = {PER_ROUND}: {some}{others}; n = {FEW.n}: {few}. n = {PER_ROUND} sends "
        f"{share(lines[ENOUGH], lines[EVERYONE]):.1f} % of the bits of everyone."
    )


def too_few_clients(lines: Lines) -> tuple[str, str]:
    """Claim 4, the participation that does not suffice."""
    few = compare(lines[FEW], lines[ENOUGH])
    return worse([few]), f"with n = {FEW.n} instead of n = {PER_ROUND}: {few}."


def bits_are_saved(lines: Lines) -> tuple[str, str]:
    """Claim 5."""
    theirs = of_the_paper(lines, EXACT, ENOUGH)
    rates = {one.case: one.bits_up.mean(axis=0)[1:] / one.rounds[1:] for one in theirs}
    late = {case: rate[len(rate) // 3 :] for case, rate in rates.items()}
    proportional = all((abs(rate / rate[-1] - 1) < 0.1).all() for rate in late.values())
    exact = rates[EXACT][-1]
    shorter = all(rate[-1] < exact for case, rate in rates.items() if case.n == PER_ROUND and case != EXACT)
    each = ", ".join(f"{case.label} {format_bits(rate[-1])}" for case, rate in rates.items())
    return verdict_of(proportional and shorter), f"bits up a round: {each}."


def fewest_bits(lines: Lines) -> tuple[str, str]:
    """Claim 5, in terms of the image."""
    theirs = of_the_paper(lines, EXACT, ENOUGH, EVERYONE)
    target = min(middle(one).max() for one in theirs)
    needed = {one.case: find_reached(one, target) for one in theirs}
    least = min(needed, key=lambda case: needed[case][1])
    each = list_bits(needed)
    return verdict_of(least.levels is not None and least.n < CLIENTS), (
        f"bits up to {target:.2f} dB in the slice, which all reach: {each}."
    )


def beyond(lines: Lines) -> tuple[str, str]:
    """What the shifted method needs for the best objective and image of FPDFP."""
    theirs = of_the_paper(lines)
    mine = [lines[case] for case in our_cases()]
    best = max(theirs, key=lambda one: middle(one).max())
    lowest = min(theirs, key=lambda one: one.objective[:, -1].mean())
    target, goal = middle(best).max(), lowest.objective[:, -1].mean()
    texts = []
    for one in mine:
        rounds, bits = find_reached(one, target)
        image = f"{rounds:.0f} rounds and {total(one, bits)}" if np.isfinite(rounds) else "not reached"
        below = np.flatnonzero(one.objective.mean(axis=0) <= goal)
        least = f"{one.rounds[below[0]]:.0f} rounds" if len(below) else "not reached"
        texts.append(
            f"{one.case.label}: that image {image}, that objective {least}; after {one.rounds[-1]:.0f} rounds "
            f"{one.objective[:, -1].mean():.6g} and {middle(one)[-1]:.2f} dB, at best {middle(one).max():.2f} dB"
        )
    rounds, bits = find_reached(best, target)
    return "measured", (
        f"FPDFP's best slice has {target:.2f} dB ({best.case.label}, {rounds:.0f} rounds, {format_bits(bits)} up), "
        f"its least objective is {goal:.6g} ({lowest.case.label}, {lowest.rounds[-1]:.0f} rounds). {'; '.join(texts)}."
    )


def of_the_paper(lines: Lines, *needed: Case) -> list[Line]:
    """The cases of the paper's method that are there; some must be."""
    return [lines[case] for case in cases() if case in lines or case in needed]


def worse(comparisons: Sequence[Comparison]) -> str:
    """Whether one of each pair is worse than the other beyond the tie zone, in the objective and in the slice."""
    return shows([found for one in comparisons for found in one.outcomes], "worse", "better")


def shows(outcomes: Sequence[str], claimed: str, opposite: str) -> str:
    """The verdict on a claim about several outcomes."""
    if ONE_SEED in outcomes:
        return NOT_JUDGED
    count = outcomes.count(claimed)
    if count:
        return "confirmed" if count == len(outcomes) else "confirmed in part"
    return "refuted" if opposite in outcomes else TIE


def suffices(enough: Comparison, little: Comparison) -> str:
    """Whether something loses nothing beyond the tie zone; in part, if it loses far less than something else does."""
    if ONE_SEED in enough.outcomes:
        return NOT_JUDGED
    if "worse" not in enough.outcomes:
        return "confirmed"
    far_less = all(
        one.difference <= PART * other.difference for one, other in zip(enough.judged, little.judged, strict=True)
    )
    return "confirmed in part" if far_less else "refuted"


def middle(one: Line) -> Array:
    """The PSNR of the slice at each evaluation, the mean over seeds."""
    mean: Array = one.slice_psnr.mean(axis=0)
    return mean


def find_reached(one: Line, target: float, column: str = "slice_psnr") -> tuple[float, float]:
    """The rounds and bits up to the first evaluation with such a PSNR; infinite if there is none."""
    there = np.flatnonzero(getattr(one, column).mean(axis=0) >= target)
    if not len(there):
        return np.inf, np.inf
    return float(one.rounds[there[0]]), float(one.bits_up[:, there[0]].mean())


def total(one: Line, bits: float) -> str:
    """Bits up with what is sent once."""
    return f"{format_bits(bits + one.once_up)} up in all ({format_bits(one.once_up)} of them once)"


def share(one: Line, other: Line) -> float:
    """The bits of one case in percent of those of another."""
    return 100 * float(one.bits_up[:, -1].mean() / other.bits_up[:, -1].mean())


def judge_mean(lines: Lines) -> list[Claim]:
    """Return every comparison of the model ``mean`` with its numbers: those of one seed, without verdicts."""
    comparisons: dict[str, Callable[[Lines], str]] = {
        f"Levels (n = {PER_ROUND}).": by_levels,
        f"Participation (s = {FIXED_LEVELS}).": by_participation,
        "Bits up a round.": bits_a_round,
        "Bits up for an image.": bits_for_the_same,
        "Beyond the paper: what the shifted method needs, with nothing tuned.": beyond_mean,
    }
    return [Claim(text, "measured", of(lines)) for text, of in comparisons.items()]


def by_levels(lines: Lines) -> str:
    """Claim 3 of the paper."""
    ladder, exact = [lines[Case(PER_ROUND, levels)] for levels in LEVELS], lines[EXACT]
    losses = [f"s = {one.case.levels} {decibels(ended(exact) - ended(one))}" for one in ladder[:2]]
    return (
        f"PSNR {list_psnr(ladder)}; the paper has {list_reported(ladder)}. Lost against exact messages: "
        f"{', '.join(losses)}. "
        f"s = {FIXED_LEVELS} sends {share(lines[ENOUGH], exact):.1f} % of the bits of exact messages."
    )


def by_participation(lines: Lines) -> str:
    """Claim 4 of the paper."""
    several = [lines[Case(n, FIXED_LEVELS)] for n in PARTICIPATION]
    lost = [f"n = {one.case.n} {decibels(ended(lines[EVERYONE]) - ended(one))}" for one in several[:2]]
    same = len({one.step for one in several}) == 1
    confounded = " Not all have the same step, so that these are not differences of participation alone."
    return (
        f"PSNR {list_psnr(several)}; the paper has {list_reported(several)}. Lost against everyone: {', '.join(lost)}."
        f"{'' if same else confounded}"
    )


def bits_a_round(lines: Lines) -> str:
    """Claim 5 of the paper."""
    rates = [f"{one.case.label} {format_bits(one.bits_up[0, -1] / one.rounds[-1])}" for one in of_the_paper(lines)]
    return f"{', '.join(rates)}."


def bits_for_the_same(lines: Lines) -> str:
    """Claim 5, in terms of the image."""
    theirs = of_the_paper(lines)
    target = min(one.psnr.max() for one in theirs) - CLOSE
    needed = {one.case: find_reached(one, target, "psnr") for one in theirs}
    return f"to {target:.2f} dB, which all reach: {list_bits(needed)}."


def beyond_mean(lines: Lines) -> str:
    """What the shifted method needs for the best image of FPDFP."""
    theirs, ours = of_the_paper(lines), [lines[case] for case in our_cases()]
    best, texts = max(theirs, key=ended), []
    for one in ours:
        rounds, bits = find_reached(one, ended(best) - CLOSE, "psnr")
        texts.append(
            f"{one.case.label}: {rounds:.0f} rounds and {format_bits(bits)} up, and {format_bits(one.once_up)} "
            f"once; after {one.rounds[-1]:.0f} rounds {ended(one):.2f} dB"
            if np.isfinite(rounds)
            else f"{one.case.label}: not reached, {ended(one):.2f} dB after {one.rounds[-1]:.0f} rounds"
        )
    rounds, bits = find_reached(best, ended(best) - CLOSE, "psnr")
    highest = [max(one.psnr.max() for one in some) for some in (theirs, ours)]
    return (
        f"of FPDFP's images at the end the best has {ended(best):.2f} dB ({best.case.label}); it is within {CLOSE:g} "
        f"dB of that after {rounds:.0f} rounds and {format_bits(bits)} up. To the same: {'; '.join(texts)}. The best "
        f"of all evaluations: FPDFP {highest[0]:.2f} dB, ours {highest[1]:.2f} dB."
    )


def list_bits(needed: dict[Case, tuple[float, float]]) -> str:
    """What each case needed."""
    return ", ".join(
        f"{case.label} {rounds:.0f} rounds, {format_bits(bits)}" for case, (rounds, bits) in needed.items()
    )


def ended(one: Line) -> float:
    """The PSNR at the end."""
    return float(one.psnr[0, -1])


def decibels(lost: float) -> str:
    """A loss in words; one that cannot be seen in two digits has no sign."""
    return f"{round(lost, 2) + 0.0:.2f} dB"


def list_psnr(some: list[Line]) -> str:
    """PSNRs in a row."""
    return ", ".join(f"{short(one.case, [each.case for each in some])} {ended(one):.2f}" for one in some)


def list_reported(some: list[Line]) -> str:
    """Those of the paper."""
    return ", ".join(f"{short(one.case, [each.case for each in some])} {PAPER[one.case]:.2f}" for one in some)
