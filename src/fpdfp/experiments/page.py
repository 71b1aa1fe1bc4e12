"""The claims in words: the page that ``fpdfp reproduce`` writes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from fpdfp.experiments import ties
from fpdfp.experiments.cases import LAST
from fpdfp.experiments.graph_guided import FINALISTS

PAGE = """\
# Graph-guided logistic regression: {name}

Made by `fpdfp reproduce {name}` (fpdfp {version}, {rounds} rounds, {count} seeds); everything in numbers is in
[results.json](results.json).

{training_rows:,} training rows of {features} features, dealt out at random to {clients} clients; {test_rows:,} rows to
test on. μ1 = {mu1:g}, μ2 = {mu2:g}; B = [G; I] with a graph of {edges} edges from the graphical lasso with penalty
{alpha:g} (shrinkage {shrinkage:g}). Full local gradients. F* = {objective:.12g}, certified to a relative
{relative_gap:.1e} by [optimum.npz](optimum.npz), its x and v.

## One step for all cases

A case that has another step than the one it is compared with differs from it in two ways. So all cases of FPDFP run
with the same step γ_k = γ0/(1 + ck), tuned on the case that both comparisons have in common ({on}): γ0 in {gammas}/L,
L = {L:.4g} the mean of the clients' Lipschitz constants, and c in {decays}, by the objective at the end. All settings
run {first_stage} rounds with seed {seeds[0]}; of each c the best γ0, of c = 0 the best two, run {rounds}; and the best
{finalists} of those also with seed {seeds[1]}. What is shown are other seeds, {first} to {last}: medians, and ranges as
bands. "At the end" is the mean over the last {last_part:g} % of the rounds, since with some clients a round the last
iterate is noisy; test losses and accuracies in the table are those of the last iterate.

{table}
{own}
## Horizons

Relative errors at several horizons (each the mean over the last {last_part:g} % of the rounds up to there, the median
over seeds), all with the step above:

{horizons}

What each horizon says to the claims; where one word stands, objective and accuracy agree:

{verdicts}

## The paper's claims

At the last horizon:

{verdict_table}

The numbers, with the common step unless said:

{claims}

How it is judged: a case is compared with another seed by seed. The difference of the means counts if it is more than
the tie zone, half the width of its {confidence:g} % confidence interval (Student's t over the paired differences), and
more than what either case falls in the last tenth of the rounds; where it is less than that fall, the cases still fall
together, and the horizon decides nothing (*undecided*). *Tied* means that the cases are flat and within the tie zone.
*As good as* means better, or a difference below the standard deviation of single runs over seeds; a tie beyond that is
undecided, for want of seeds. Accuracies are judged in the same way, as the share of the test rows that are wrong. At
{confidence:g} % one in twenty ties is taken for a difference by chance, so that a single odd verdict means little.

What changed: in an earlier version of this page each case had a step of its own, "as good as" meant a relative error
at most 10 % larger, and there was one horizon, 3,000 rounds for a9a and 2,000 for covtype. Cases with different steps
could not be compared, and at 2,000 rounds those of covtype had not parted.

## Figures

{figures}
"""

OWN = """
## Each case tuned for itself

As the paper has it: the same grid and stages for each case alone. Where steps differ, differences between cases are
not those of levels and clients alone.

{table}
"""

NO_STUDIES = """
Cases tuned each for itself, and every step of the grid for several numbers of levels, were not run for {name}: they
multiply the cost. [a9a](../a9a/claims.md) has them.
"""

HEADER = """\
| case ({rounds} rounds unless said) | step | relative error at the end | test loss | accuracy | Mbit up, in all |
| --- | --- | --- | --- | --- | --- |
"""


def write(name: str, summary: dict[str, Any], figures: Sequence[str]) -> str:
    """Return the page of a task in Markdown, from its results."""
    problem, tuning, rounds = summary["problem"], summary["tuning"], summary["rounds"]
    own = summary["each_tuned_for_itself"]
    return PAGE.format(
        **problem,
        **problem["graph"],
        **summary["optimum"],
        name=name,
        version=summary["version"],
        on=tuning["on"],
        gammas=braces(tuning["gamma0_times_L"]),
        decays=braces(tuning["c"]),
        L=tuning["L"],
        seeds=tuning["seeds"],
        last_part=100 * LAST,
        rounds=rounds,
        first_stage=tuning["stages"][0][0],
        finalists=FINALISTS,
        count=len(summary["seeds"]),
        first=summary["seeds"][0],
        last=summary["seeds"][-1],
        table=table(summary["cases"], rounds),
        own=OWN.format(table=table(own, rounds)) if own else NO_STUDIES.format(name=name),
        horizons=transposed("case", [one["error"] for one in summary["horizons"]], summary["horizons"], "{:.2e}"),
        verdicts=transposed("claim", [one["verdicts"] for one in summary["horizons"]], summary["horizons"], "{}"),
        verdict_table=verdict_table(summary["claims"], bool(own)),
        claims="\n".join(map(item, summary["claims"])),
        confidence=100 * ties.CONFIDENCE,
        figures="\n\n".join(f"![{one}]({one}.png)" for one in figures),
    )


def rows(header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *cells])


def table(cases: Sequence[dict[str, Any]], rounds: int) -> str:
    """The table of cases."""
    return HEADER.format(rounds=rounds) + "\n".join(map(row, cases))


def transposed(what: str, columns: Sequence[dict[str, Any]], horizons: Sequence[dict[str, Any]], form: str) -> str:
    """A table with a column for each horizon."""
    header = [what, *(f"{one['rounds']:,} rounds" for one in horizons)]
    return rows(header, [[name, *(form.format(column[name]) for column in columns)] for name in columns[0]])


def verdict_table(claims: Sequence[dict[str, str]], own: bool) -> str:
    """The claims with their verdicts; with a column for cases tuned each for itself, if there are any."""
    header = ["claim", "one step for all", *(["each tuned for itself"] if own else [])]
    return rows(header, [[one["claim"], one["verdict"], *([one["own"]] if own else [])] for one in claims])


def braces(values: Sequence[float]) -> str:
    """A set of numbers."""
    return "{" + ", ".join(f"{value:g}" for value in values) + "}"


def row(case: dict[str, Any]) -> str:
    """A line of the table."""
    sent = case["bits_up"]["median"][-1] / 1e6
    if "gamma0_times_L" in case:
        end = " (end of the grid)" if case["at_the_end_of_the_grid"] else ""
        label, step = case["label"], f"{case['gamma0_times_L']:g}/L, c = {case['c']:g}{end}"
        bits = f"{sent:,.1f}"
    else:
        label, step = f"{case['label']}, {case['round'][-1]} rounds", "default settings"
        once = case["bits_once_up"] / 1e6
        bits = f"{sent + once:,.1f}, of which {once:,.1f} once"
    ended = f"{statistics.median(case['error_at_the_end']):.2e} | {case['test_loss']['median'][-1]:.5f}"
    return f"| {label} | {step} | {ended} | {100 * case['accuracy']['median'][-1]:.2f} % | {bits} |"


def item(claim: dict[str, str]) -> str:
    """A claim, its verdict and its numbers."""
    return f"* **{claim['verdict']}**: {claim['claim']} {upper(claim['numbers'])}"


def upper(text: str) -> str:
    """A text that begins with a capital letter."""
    return text[0].upper() + text[1:]
