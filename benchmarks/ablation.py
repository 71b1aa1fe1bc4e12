"""The default method without one of its parts at a time: rounds and bits both ways to three relative errors.

    python -m benchmarks.ablation

Graph-guided logistic regression on a9a (in --data, $FPDFP_DATA or ../shared/data; breast-cancer data of scikit-learn
where it is not there), N = 100 clients, n = 20 in a round, as `benchmarks/_problems.py` has it. Nothing is tuned: all
steps are automatic. Without shifts, clients send compressed gradients instead of differences (α = 0). The proved form
is the shifted method without preconditioner and momentum, with exact messages down, α = 1/(1 + ω) and the constant step
1/(L_max(1 + 6ω'/N)) of its docstring, ω the bound of the compressor; its prox is as exact as the default's, where the
theory wants it exact. Five seeds: medians and ranges. Bits are those of both directions together, with all that is sent
once. The page is written to --page.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fpdfp
from benchmarks import _contenders, _tools, _tuning
from benchmarks._contenders import UNTUNED
from benchmarks._problems import DATA, N, Setting, graph_guided
from fpdfp._numbers import format_bits
from fpdfp.engines.options import RunOptions
from fpdfp.engines.prepare import choose

TARGETS = (1e-2, 1e-3, 1e-6)
SEEDS = (1, 2, 3, 4, 5)
PER_ROUND = 20
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "ablation.md"


class Case(NamedTuple):
    """A method, and how messages are compressed in both directions."""

    method: Any
    compressor: Any
    downlink: Any


def cases(problem: fpdfp.Problem) -> dict[str, Case]:
    """The default, and the default without a part."""
    method: Any
    method, compressors, server_side, _ = choose(problem, None, RunOptions(rounds=1))
    assert server_side is not None
    compressor, downlink = compressors["difference"], server_side.compressor
    omega = compressor.omega(problem.model.shape)
    spread = (1.0 + omega) * problem.n_clients / PER_ROUND - 1.0
    step = 1.0 / (float(problem.lipschitz.max()) * (1.0 + 6.0 * spread / problem.n_clients))
    proved = fpdfp.ShiftedPDFP(step, momentum=False, shift_step=1.0 / (1.0 + omega))
    return {
        "default": Case(method, compressor, downlink),
        "without momentum": Case(dataclasses.replace(method, momentum=False), compressor, downlink),
        "without preconditioner": Case(dataclasses.replace(method, preconditioner=None), compressor, downlink),
        "without shifts": Case(dataclasses.replace(method, shift_step=0.0), compressor, downlink),
        "with exact messages down": Case(method, compressor, None),
        "with exact messages up": Case(method, None, downlink),
        "the proved form": Case(proved, compressor, None),
    }


def run(where: Setting, case: Case, rounds: int, seed: int) -> tuple[_tuning.Outcome, float]:
    """Run a case to the smallest error, or to the end; return what came of it and what was sent once."""
    result = _tuning.run_until(
        where, where.federated, case.method, TARGETS[-1], rounds=rounds, clients_per_round=PER_ROUND, seed=seed,
        compressor=case.compressor, downlink=case.downlink, evaluate_every=1,
    )  # fmt: skip
    return _tuning.outcome(where, result, TARGETS), float(result.bits_once_up + result.bits_once_down)


def row(name: str, outcomes: Sequence[tuple[_tuning.Outcome, float]]) -> list[str]:
    """Write a line of the table."""
    totals = [one.totals for one, _ in outcomes]
    cells = [str(_contenders.cell(totals, target, UNTUNED) or "not reached") for target in TARGETS]
    ends = sorted(one.error for one, _ in outcomes)
    once = outcomes[0][1]
    return [name, format_bits(once) if once else "nothing", *cells, f"{ends[len(ends) // 2]:.1e}"]


INTRODUCTION = """# What each part of the default method does

Made by `python -m benchmarks.ablation`, whose help says what is run: graph-guided logistic regression on {name}, N =
{clients} clients, n = {n} in a round, nothing tuned, at most {rounds:,} rounds. Rounds · bits up and down together, all
that is sent once included, to relative errors of the objective; medians of {seeds} seeds, and their ranges. "Ends at"
is the median of the relative errors at the end of the run, or when 1e-6 was reached.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--rounds", type=_tuning.positive, default=1000)
    arguments = parser.parse_args()
    where = graph_guided(arguments.data, "a9a")
    rows = []
    for name, case in cases(where.federated).items():
        rows.append(row(name, [run(where, case, arguments.rounds, seed) for seed in SEEDS]))
        print(" | ".join(rows[-1]), flush=True)
    header = ["method", "sent once", *(f"to {target:g}" for target in TARGETS), "ends at"]
    words = INTRODUCTION.format(
        name=where.name, clients=N, n=PER_ROUND, rounds=arguments.rounds, seeds=len(SEEDS)
    )  # fmt: skip
    arguments.page.write_text(words + "\n" + _contenders.markdown(header, rows))
    _tools.finish({"problem": where.name, "page": str(arguments.page)})


if __name__ == "__main__":
    main()
