"""How much methods suffer where clients differ: one problem, its rows dealt out in six ways.

    python -m benchmarks.heterogeneity

Graph-guided logistic regression on a9a (in --data, $FPDFP_DATA or ../shared/data; breast-cancer data of scikit-learn
where it is not there), N = 100 clients, n = 20 in a round. Rows are dealt out in equal shares at random (iid), in
shares of every label that are drawn from a Dirichlet distribution with concentration 10, 1, 0.3 and 0.1 (the smaller,
the more clients differ, in size as well), and sorted by label. Weights are by samples, so that the problem and its
optimum are the same for all. `default` is `fpdfp.solve` with nothing given; the others are tuned anew for each way of
dealing by the one rule of `fpdfp.tuning`, and run with three other seeds. Runs that are done are kept in
--output, and a second call goes on there. The page is written to --page.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import _contenders, _tools, _tuning
from benchmarks._contenders import CONTENDERS, PER_ROUND, Cell
from benchmarks._problems import DATA, N, Setting
from fpdfp import tuning
from fpdfp.declarative import pool

SPLITS = ("iid", "dirichlet 10", "dirichlet 1", "dirichlet 0.3", "dirichlet 0.1", "label")
RIVALS = ("RandProx", "SCAFFOLD (∂), τ = 5", "FedDR")
TARGETS = (1e-2, 1e-3)
SEEDS = (1, 2, 3)
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "heterogeneity.md"

Results = dict[str, dict[str, dict[float, Cell | None]]]


def differ(where: Setting) -> tuple[float, float]:
    """How clients differ: the largest number of rows over the mean one, and the spread of their gradients at zero."""
    losses = where.federated.losses
    share = N * float(losses.sizes.max()) / float(losses.sizes.sum())
    clients = np.arange(N)
    own = losses.gradients(np.zeros(losses.shape), clients)
    mean = where.federated.gradient(np.zeros(losses.shape))
    spread = float(np.sqrt(where.federated.weights @ np.square(own - mean).sum(axis=1)) / np.linalg.norm(mean))
    return share, spread


INTRODUCTION = """# Clients that differ

Made by `python -m benchmarks.heterogeneity{options}`, whose help describes runs
and tuning: graph-guided logistic regression on {name}, N = {clients} clients, n = {n} in a round, at most
{rounds:,} rounds, the same rows dealt out in {ways} ways.
Rounds · bits in both directions, set-up included: medians of {seeds} seeds.
[A text file]({text}) has the ranges.
"""


def page(name: str, facts: dict[str, tuple[float, float]], results: Results, rounds: int, options: str) -> str:
    """Write the page."""
    words = INTRODUCTION.format(
        name=name, clients=N, n=PER_ROUND, rounds=rounds, seeds=len(SEEDS), ways=len(facts), options=options,
        text=PAGE.with_suffix(".txt").name,
    )  # fmt: skip
    parts = [words, "How much they differ:\n"]
    header = ["rows", "largest client over the mean", "spread of ∇f_i(0) over ‖∇f(0)‖"]
    parts.append(_contenders.markdown(header, [[s, f"{a:.1f}", f"{b:.2f}"] for s, (a, b) in facts.items()]))
    parts += [table(results, target, lambda cell: cell.medians) for target in TARGETS]
    parts.append(at_the_end(results))
    return "\n".join(parts)


def table(results: Results, target: float, write: Callable[[Cell], str]) -> str:
    """Write what each method needs to an accuracy, with a column for each way of dealing out rows."""
    rows = [
        [name, *(write(cell) if (cell := one[name][target]) else "not reached" for one in results.values())]
        for name in next(iter(results.values()))
    ]
    return f"## To a relative error of {target:g}\n\n{_contenders.markdown(['method', *results], rows)}"


def at_the_end(results: Results) -> str:
    """Name the methods that would take a larger or a smaller step than the grid has."""
    names = {
        name: None
        for one in results.values()
        for name, cells in one.items()
        if CONTENDERS[name].tuned and any(cell and tuning.at_the_end(cell.choice) for cell in cells.values())
    }
    return f"With a best step at an end of the grid: {'; '.join(names)}.\n" if names else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/output"))
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--rounds", type=_tuning.positive, default=250)
    parser.add_argument("--jobs", type=_tuning.positive, default=None, help="processes; by default one for each core")
    parser.add_argument("--rivals", nargs="*", choices=list(CONTENDERS), default=list(RIVALS), metavar="METHOD")
    parser.add_argument("--splits", nargs="+", choices=SPLITS, default=list(SPLITS), metavar="SPLIT")
    arguments = parser.parse_args()
    results: Results = {}
    facts: dict[str, tuple[float, float]] = {}
    try:
        with (
            pool.bar() as bar,
            pool.workers(_contenders.start_worker, arguments.data, jobs=arguments.jobs) as processes,
        ):
            scores = _contenders.open_scores(arguments.output, "heterogeneity", processes, bar)
            for split in arguments.splits:
                where = _contenders.setting(arguments.data, split)
                comparison = _contenders.Comparison(where, split, scores, arguments.rounds)
                facts[split] = differ(where)
                names = ("default", "FPDFP", *arguments.rivals)
                results[split] = {name: _contenders.measure(comparison, name, SEEDS) for name in names}
    except KeyboardInterrupt:
        raise SystemExit(f"interrupted; what is done is in {arguments.output}, and the same command goes on") from None
    name = _contenders.setting(arguments.data, "iid").name
    given = "" if tuple(arguments.rivals) == RIVALS else " ".join([" --rivals", *map(shlex.quote, arguments.rivals)])
    arguments.page.write_text(page(name, facts, results, arguments.rounds, given))
    ranges = "\n".join(table(results, target, str) for target in TARGETS)
    arguments.page.with_suffix(".txt").write_text(ranges)
    _tools.finish({"problem": name, "page": str(arguments.page)})


if __name__ == "__main__":
    main()
