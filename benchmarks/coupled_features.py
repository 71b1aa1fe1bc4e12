"""Blocks of features that a penalty or a linear map couples, beside blocks of neighbours and other preconditioners.

    python -m benchmarks.coupled_features

Logistic regression among 10 sites, 4,000 rows, ridge 1e-3, a relative gap of 1e-6, the default method. Features come
in a random order, so that neighbours have nothing in common. ``groups``: groups of 50 features, each an autoregression
of 0.95, and a group norm of these, of a tenth or a fiftieth of the least weight for which the solution is zero.
``graph``: one autoregression of 0.95, and the l1 norm of the differences of features that were neighbours in it, for at
most 1,000 features.
Each preconditioner is announced as it would be if it were predicted best; "chosen" is what is. The page is written to
--page.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse

import fpdfp
from benchmarks import _tools
from benchmarks._contenders import markdown
from fpdfp._units import format_bits
from fpdfp.precondition import cost, exchange, structure
from fpdfp.precondition.seen import Seen

SITES, ROWS, TOL, ROUNDS, GROUP = 10, 4000, 1e-6, 600, 50
FEATURES = (300, 1000, 3000)
CASES = ("groups, 1/10", "groups, 1/50", "graph")
#: What is announced; all second moments, and the graph, for at most so many features.
WAYS = ("none", "rank 8", "neighbours", "coupled", "whitening")
LARGEST = 1000
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "coupled-features.md"


def problem_of(case: str, d: int, seed: int) -> fpdfp.Problem:
    """Return the problem, features in a random order."""
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((ROWS, d))
    for j in range(1, d):
        if case == "graph" or j % GROUP:
            X[:, j] = 0.95 * X[:, j - 1] + math.sqrt(1 - 0.95**2) * X[:, j]
    steps = GROUP if case != "graph" else 20
    x = np.zeros(d)
    for one in generator.choice(d // steps, min(4, d // steps), replace=False):
        part = slice(steps * one, steps * (one + 1))
        x[part] = 0.3 * generator.standard_normal() if case == "graph" else 0.2 * generator.standard_normal(steps)
    y = (X @ x + generator.standard_normal(ROWS) > 0).astype(float)
    order = generator.permutation(d)
    losses = fpdfp.losses.Logistic(X[:, order], y, clients=np.arange(ROWS) % SITES, l2=1e-3)
    slope = X[:, order].T @ (y - 0.5) / ROWS
    if case == "graph":
        place = np.argsort(order)
        ends = np.stack([place[:-1], place[1:]], axis=1).ravel()
        signs = np.tile([-1.0, 1.0], d - 1)
        B = scipy.sparse.csr_array((signs, ends, 2 * np.arange(d)), (d - 1, d))
        return fpdfp.Problem(losses, fpdfp.penalties.L1(0.25 * float(np.abs(slope).max())), fpdfp.linops.Matrix(B))
    labels = order // GROUP
    weight = (0.1 if case.endswith("10") else 0.02) * float(np.sqrt(np.bincount(labels, slope**2)).max())
    return fpdfp.Problem(losses, fpdfp.penalties.GroupL12(weight, groups=labels))


@contextlib.contextmanager
def announcing(way: str | None) -> Iterator[None]:
    """Within this, one preconditioner is predicted best, whatever it is worth."""
    with contextlib.ExitStack() as stack:
        if way is None:
            yield
            return
        name = {"neighbours": "blocks", "coupled": "blocks"}.get(way, way)

        def predict(self: Seen, candidates: dict[str, Any], given: Any) -> dict[str, float]:
            return {one: 1.0 if one == name else 1e9 for one in candidates}

        def all_moments(losses: Any, model: Any, given: cost.Circumstances) -> Any:
            return fpdfp.precondition.QuantizedMoments(*cost.crudest(given, losses.shape[-1]), given.accuracy)

        stack.enter_context(mock.patch.object(Seen, "predict", predict))
        if way == "whitening":
            stack.enter_context(mock.patch.object(exchange, "plan", all_moments))
        if way != "coupled":
            stack.enter_context(mock.patch.object(structure, "by_structure", mock.Mock(return_value=None)))
        yield


def solve(problem: fpdfp.Problem, way: str | None) -> dict[str, Any]:
    """Run the default method and return what it took."""
    started = time.perf_counter()
    with announcing(way):
        result = fpdfp.solve(problem, rounds=ROUNDS, tol=TOL, progress=False)
    coordinates = getattr(result.algorithm, "coordinates", None)
    counted = [result.traffic[kind] for kind in ("rounds", "preconditioner", "certificate")]
    return {
        "status": result.status, "rounds": result.rounds, "up": sum(one.up for one in counted),
        "down": sum(one.down for one in counted), "seconds": time.perf_counter() - started,
        "preconditioner": "none" if coordinates is None else type(coordinates).__name__,
    }  # fmt: skip


def cell(found: dict[str, Any]) -> str:
    """Write rounds, and bits up and down."""
    rounds = str(found["rounds"]) if found["status"] == "converged" else f"more than {found['rounds']}"
    return f"{rounds}, {format_bits(found['up'])} + {format_bits(found['down'])}"


INTRODUCTION = """# Features that are coupled

Made by `python -m benchmarks.coupled_features{given}`, whose help says what is run: logistic regression among
{sites} sites, certified to a relative gap of {tol:g}, features in a random order. Number of draws of the data:
{seeds}; of several, the one with the median number of rounds is shown. Cells have rounds, and bits up and down.
"Neighbours" are blocks of 64 features in the order of the columns, "coupled" are blocks made from the groups of
the penalty or from the graph of B. "Chosen" is what `solve` takes by default, according to its predictions. The bits
of all columns include those of the question that this choice rests on.

"""


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--features", type=int, nargs="+", default=list(FEATURES))
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    runs: dict[str, Any] = {}
    lines = []
    for case in arguments.cases:
        for d in [one for one in arguments.features if case != "graph" or one <= LARGEST]:
            drawn: dict[str | None, list[dict[str, Any]]] = {}
            for seed in range(arguments.seeds):
                problem = problem_of(case, d, seed)
                for way in (*WAYS, None):
                    if way != "whitening" or d <= LARGEST:
                        drawn.setdefault(way, []).append(solve(problem, way))
            median = {way: sorted(all_, key=lambda one: one["rounds"])[len(all_) // 2] for way, all_ in drawn.items()}
            runs[f"{case}, {d}"] = {way or "chosen": one for way, one in median.items()}
            chosen = median[None]
            shown = [cell(median[way]) if way in median else "not run" for way in WAYS]
            lines.append([case, f"{d:,}", *shown, f"{chosen['preconditioner']}: {cell(chosen)}"])
            print(" | ".join(lines[-1]), flush=True)
    header = ["case", "features", "no preconditioner", "rank 8", "neighbours", "coupled", "all moments", "chosen"]
    _tools.show("coupled features", header, lines)
    page = INTRODUCTION.format(
        given="".join(f" {one}" for one in sys.argv[1:]), sites=SITES, tol=TOL, seeds=arguments.seeds
    )
    arguments.page.write_text(page + markdown(header, lines) + f"\nMeasured on {_tools.machine()}.\n")
    _tools.finish({"benchmark": "coupled_features", "runs": runs})


if __name__ == "__main__":
    main()
