"""Every method on one graph-guided logistic problem: rounds and bits both ways to four relative errors.

    python -m benchmarks.methods

The problem is the paper's: a9a (in --data, $FPDFP_DATA or ../shared/data; breast-cancer data of scikit-learn where it
is not there), N = 100 clients with equal shares of the training rows, B = [G; I], μ1 = μ2 = 1e-5 (1e-3 for the smaller
set). n = 20 clients take part in a round, with full local gradients. PDFP, Condat–Vũ and Zhang, Hu and Johansson's
method have everyone take part; SPDFP, SVRG-PDFP and Chambolle–Pock hold all data in one place. Methods for f alone take
subgradients of g∘B; FedMiD (with the server's prox, as in its paper) and its kin solve the prox of g∘B to a relative
1e-2.

All are tuned by the one rule of `fpdfp.tuning`: steps, and levels of QSGD messages where the method compresses
(the number k of entries that are kept for the top-k messages of EF21); for FedDR the step is η, for FedADMM 1/ρ. The
shifted methods and RandProx also compress the server's messages, with 31 levels. `default` is `fpdfp.solve` with
nothing given, NewtonPDFP chooses its steps itself: neither is tuned. Bits are those of both directions together, with
all that is sent once. The setting that is best for an accuracy with seed 0 runs again with seeds 1, 2 and 3; what is
shown are medians, and the range of rounds. Runs that are done are kept in --output, and a second call goes on there.
The page is written to --page.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import _contenders, _tools, _tuning
from benchmarks._contenders import CONTENDERS, PER_ROUND, TARGETS, Cell
from benchmarks._problems import DATA, N, Setting
from fpdfp import tuning
from fpdfp._numbers import format_bits
from fpdfp.declarative import pool

SEEDS = (1, 2, 3)
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "methods-a9a.md"

Results = dict[str, dict[float, Cell | None]]


def page(where: Setting, results: Results, rounds: int) -> str:
    """Write the page: medians alone, with a link to the text file that has the rest."""
    names = [f"to {target:g}" for target in TARGETS]
    rows = [
        [name, *(cell.medians if (cell := one[target]) else "not reached" for target in TARGETS)]
        for name, one in results.items()
    ]
    parts = [
        f"# All methods on {where.name}\n",
        INTRODUCTION.format(name=where.name, clients=N, n=PER_ROUND, rounds=rounds, seeds=len(SEEDS)),
        f"[A text file]({PAGE.with_suffix('.txt').name}) has ranges, bits in each direction and settings.\n",
        _contenders.markdown(["method", *names], rows),
        "## Fewest bits and rounds\n",
        _contenders.markdown(["relative error", "fewest bits", "fewest rounds"], leaders(results)),
        "Methods that hold all data in one place are excluded here, since they need not send anything.\n",
        left_out(results),
    ]
    return "\n".join(parts)


def tables(where: Setting, results: Results) -> str:
    """Write what the page leaves out: ranges over seeds, bits in each direction, settings."""
    names = [f"to {target:g}" for target in TARGETS]
    rows = [[name, *(str(one[target] or "not reached") for target in TARGETS)] for name, one in results.items()]
    return "\n".join([
        f"All methods on {where.name}: rounds and bits up and down together, medians and ranges over seeds\n",
        _contenders.markdown(["method", *names], rows),
        "Bits up and down, and the settings\n",
        _contenders.markdown(["method", *names], details(results)),
    ])  # fmt: skip


INTRODUCTION = """Made by `python -m benchmarks.methods`, whose help describes runs and tuning: the paper's
graph-guided logistic problem on {name}, N = {clients} clients, n = {n} in a round, at most {rounds:,} rounds. Rounds
and bits in both directions, set-up included, to relative errors of the objective: medians of {seeds} seeds, with the
setting that needs the fewest bits. (∂) means subgradients of g∘B.
"""


def left_out(results: Results) -> str:
    """Name the methods of the table that ``--only`` left out."""
    names = [name for name in CONTENDERS if name not in results]
    return f"Not run this time: {'; '.join(names)}.\n" if names else ""


def leaders(results: Results) -> list[list[str]]:
    """The best federated method at every accuracy, by bits and by rounds."""
    rows = []
    for target in TARGETS:
        there = {name: cell for name, one in results.items() if (cell := one[target]) and not CONTENDERS[name].central}
        if not there:
            rows.append([f"{target:g}", "none", "none"])
            continue
        bits = min(there, key=lambda name: there[name].both.median)
        rounds = min(there, key=lambda name: there[name].rounds.median)
        rows.append([
            f"{target:g}",
            f"{bits}: {format_bits(there[bits].both.median)}",
            f"{rounds}: {there[rounds].rounds.median:,.0f}",
        ])  # fmt: skip
    return rows


def details(results: Results) -> list[list[str]]:
    """Bits in each direction, and the setting behind them."""
    return [[name, *(detail(name, one[target]) for target in TARGETS)] for name, one in results.items()]


def detail(name: str, cell: Cell | None) -> str:
    """Write bits up, bits down and the setting."""
    if cell is None:
        return ""
    text = f"{format_bits(cell.up.median)} up, {format_bits(cell.down.median)} down"
    if not CONTENDERS[name].tuned:
        return text
    choice = str(cell.choice).replace("s =", "k =") if "top-k" in name else str(cell.choice)
    return f"{text}; {choice}" + (" (end of grid)" if tuning.at_the_end(cell.choice) else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/output"))
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--rounds", type=_tuning.positive, default=1000)
    parser.add_argument("--jobs", type=_tuning.positive, default=None, help="processes; by default one for each core")
    parser.add_argument("--only", nargs="+", default=list(CONTENDERS), help="names of methods, in quotes")
    arguments = parser.parse_args()
    unknown = set(arguments.only) - set(CONTENDERS)
    if unknown:
        names = "; ".join(map(repr, CONTENDERS))
        parser.error(f"--only must name some of {names}; got {'; '.join(map(repr, unknown))}")
    where = _contenders.setting(arguments.data, "iid")
    results: Results = {}
    try:
        with (
            pool.bar() as bar,
            pool.workers(_contenders.start_worker, arguments.data, jobs=arguments.jobs) as processes,
        ):
            scores = _contenders.open_scores(arguments.output, "methods", processes, bar)
            comparison = _contenders.Comparison(where, "iid", scores, arguments.rounds)
            for name in arguments.only:
                results[name] = _contenders.measure(comparison, name, SEEDS)
    except KeyboardInterrupt:
        raise SystemExit(f"interrupted; what is done is in {arguments.output}, and the same command goes on") from None
    arguments.page.write_text(page(where, results, arguments.rounds))
    arguments.page.with_suffix(".txt").write_text(tables(where, results))
    _tools.finish({"problem": where.name, "optimum": where.best, "page": str(arguments.page)})


if __name__ == "__main__":
    main()
