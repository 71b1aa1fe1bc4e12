"""The claims in words: the page that ``fpdfp reproduce`` writes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from fpdfp.experiments import claims
from fpdfp.experiments.runs import FINALISTS, LAST

PAGE = """\
# Graph-guided logistic regression: {name}

Made by `fpdfp reproduce {name}` (fpdfp {version}, {rounds} rounds, {count} seeds); everything in numbers is in
[results.json](results.json).

{training_rows:,} training rows of {features} features, dealt out at random to {clients} clients; {test_rows:,} rows to
test on. μ1 = {mu1:g}, μ2 = {mu2:g}; B = [G; I] with a graph of {edges} edges from the graphical lasso with penalty
{alpha:g} (shrinkage {shrinkage:g}). Full local gradients. F* = {objective:.12g}, certified to a relative
{relative_gap:.1e} by [optimum.npz](optimum.npz), its x and v.

Tuned for each case: FPDFP's step γ_k = γ0/(1 + ck) with γ0 in {gammas}/L, L = {L:.4g} the mean of the clients'
Lipschitz constants, and c in {decays}, by the objective at the end. All settings run {first_stage} rounds with seed
{seeds[0]}; of each c the best γ0, of c = 0 the best two, run {rounds}; and the best {finalists} of those also with seed
{seeds[1]}. What is shown are other seeds, {first} to {last}: medians, and ranges as bands. "At the end" is the mean
over the last {last_part:g} % of the rounds, since with some clients a round the last iterate is noisy; test losses and
accuracies are those of the last iterate.

| case ({rounds} rounds unless said) | step | relative error at the end | test loss | accuracy | Mbit up |
| --- | --- | --- | --- | --- | --- |
{table}

## The paper's claims

{claims}

"As good as" means here a relative error at most {much:g} % larger and an accuracy at most {points:g} percentage points
lower, in the median; "better" and "less accurate" mean so in the median and for most seeds.

## Figures

{figures}
"""


def write(name: str, summary: dict[str, Any], figures: Sequence[str]) -> str:
    """Return the page of a task in Markdown, from its results."""
    problem, tuning, rounds = summary["problem"], summary["tuning"], summary["rounds"]
    return PAGE.format(
        **problem,
        **problem["graph"],
        **summary["optimum"],
        name=name,
        version=summary["version"],
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
        table="\n".join(map(row, summary["cases"])),
        claims="\n".join(map(item, summary["claims"])),
        much=100 * claims.MUCH,
        points=100 * claims.POINTS,
        figures="\n\n".join(f"![{one}]({one}.png)" for one in figures),
    )


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
        label, step = f"{case['label']}, {case['round'][-1]} rounds", "nothing tuned"
        bits = f"{sent:,.2f} and {case['bits_once_up'] / 1e6:,.1f} once"
    ended = f"{statistics.median(case['error_at_the_end']):.2e} | {case['test_loss']['median'][-1]:.5f}"
    return f"| {label} | {step} | {ended} | {100 * case['accuracy']['median'][-1]:.2f} % | {bits} |"


def item(claim: dict[str, str]) -> str:
    """A claim, its verdict and its numbers."""
    return f"* **{claim['verdict']}**: {claim['claim']} {upper(claim['numbers'])}"


def upper(text: str) -> str:
    """A text that begins with a capital letter."""
    return text[0].upper() + text[1:]
