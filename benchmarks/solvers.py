"""Against what a person would use instead, with all data in one place and to the same objective.

    python -m benchmarks.solvers

Two problems on the training rows of a9a (in --data, $FPDFP_DATA or ../shared/data; breast-cancer data of scikit-learn
where it is not there): the graph-guided one of the paper, by cvxpy with Clarabel and by `fpdfp.minimize`; and
l1-penalised logistic regression (B = I, α = 1e-4), by scikit-learn's LogisticRegression with SAGA, by
`fpdfp.minimize`, and by `fpdfp.solve` with nothing given, among 100 clients in this process.

Each solver has its objective evaluated by the same function. A solver that is told a tolerance or a number of steps
gets the smallest of a ladder with which it comes within a relative 1e-6 of the optimum; what is timed is that run
alone. Compilation is done before. Clarabel takes minutes, and shows its progress with --verbose.
"""

from __future__ import annotations

import argparse
import functools
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from benchmarks import _tools
from benchmarks._problems import DATA, SMALL, is_there, load
from fpdfp.declarative.rows import BuiltRows

CLOSE = 1e-6
ALPHA = 1e-4


class Timed(NamedTuple):
    """What a solver found, how long it took, and how it was set."""

    objective: float
    seconds: float
    how: str


def timed(solve: Callable[[], Any], problem: fpdfp.Problem, how: str) -> Timed:
    started = time.perf_counter()
    x = solve()
    seconds = time.perf_counter() - started
    return Timed(problem.objective(np.asarray(x, dtype=np.float64)), seconds, how)


def least_effort(
    ladder: Iterable[Any], solve: Callable[[Any], Any], problem: fpdfp.Problem, best: float, word: str
) -> Timed:
    """Return the first rung of a ladder that is close enough, else the last."""
    found = None
    for rung in ladder:
        found = timed(functools.partial(solve, rung), problem, f"{word} {rung:g}")
        if found.objective <= best * (1 + CLOSE):
            break
    assert found is not None
    return found


def clarabel(where: BuiltRows, verbose: bool) -> Any:
    """The graph-guided problem as one writes it in cvxpy."""
    import cvxpy as cp
    import scipy.sparse

    assert where.graph is not None
    B, weight = where.graph.stacked(), where.l2
    x = cp.Variable(where.features.shape[1])
    signed = scipy.sparse.diags_array(-where.labels) @ where.features
    loss = cp.sum(cp.logistic(signed @ x)) / len(where.labels)
    objective = loss + weight / 2 * cp.sum_squares(x) + weight * cp.norm1(B @ x)
    cp.Problem(cp.Minimize(objective)).solve(solver=cp.CLARABEL, verbose=verbose)
    return x.value


def graph_guided(where: BuiltRows, verbose: bool) -> tuple[dict[str, Timed], float]:
    problem = where.problem  # among 100 clients, whose gradients are computed by all threads
    fpdfp.minimize(problem, tol=1e-2)  # compiles
    ours = timed(lambda: fpdfp.minimize(problem, tol=1e-9).x, problem, "tol 1e-09, certified")
    theirs = timed(lambda: clarabel(where, verbose), problem, "as it comes")
    return {"cvxpy, Clarabel": theirs, "fpdfp.minimize": ours}, theirs.seconds / ours.seconds


def saga(where: BuiltRows, steps: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    C = 1.0 / (ALPHA * len(where.labels))
    model = LogisticRegression(l1_ratio=1.0, C=C, solver="saga", tol=1e-12, max_iter=steps, fit_intercept=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it does not know when it is close enough
        return model.fit(where.features, where.labels).coef_[0]


def lasso(where: BuiltRows) -> tuple[dict[str, Timed], dict[str, float]]:
    penalty, owner = fpdfp.penalties.L1(ALPHA), np.arange(len(where.labels)) % 100
    problem = fpdfp.Problem(fpdfp.losses.Logistic(where.features, where.labels), penalty)
    losses = fpdfp.losses.Logistic(where.features, where.labels, clients=owner)
    federated = fpdfp.Problem(losses, penalty, weights="samples")
    best = fpdfp.minimize(problem, tol=1e-9).objective

    def simulated(rounds: int) -> Any:
        return fpdfp.solve(federated, rounds=int(rounds), evaluate_every=int(rounds)).x

    def certified(tol: float) -> Any:
        return fpdfp.minimize(problem, tol=tol).x

    simulated(2)
    found = {
        "scikit-learn, SAGA": least_effort(
            (10, 20, 50, 100, 200, 500, 1000, 2000, 5000), lambda steps: saga(where, steps), problem, best, "max_iter"
        ),
        "fpdfp.minimize": least_effort(10.0 ** -np.arange(2, 10), certified, problem, best, "tol"),
        "fpdfp.solve, 100 clients": least_effort(range(10, 500, 5), simulated, problem, best, "rounds"),
    }
    peer = found["scikit-learn, SAGA"].seconds
    return found, {name: peer / one.seconds for name, one in found.items() if name.startswith("fpdfp")}


def rows(found: dict[str, Timed]) -> list[list[str]]:
    best = min(one.objective for one in found.values())
    return [
        [name, one.how, f"{one.objective:.10f}", f"{one.objective / best - 1:.1e}", f"{one.seconds:.2f}"]
        for name, one in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--verbose", action="store_true", help="show what Clarabel does")
    arguments = parser.parse_args()
    where = load(arguments.data, "a9a")
    header = ["solver", "set to", "objective", "relative error", "seconds"]
    name = "a9a" if is_there(arguments.data, "a9a") else SMALL
    sparse, ratios = lasso(where)
    _tools.show(f"{name}: l1-penalised logistic regression, B = I", header, rows(sparse))
    guided, ratio = graph_guided(where, arguments.verbose)
    _tools.show(f"{name}: graph-guided logistic regression, B = [G; I]", header, rows(guided))
    _tools.finish({
        "data": name,
        "clarabel_over_reference": round(ratio, 1),
        "saga_over_reference": round(ratios["fpdfp.minimize"], 2),
        "saga_over_solve": round(ratios["fpdfp.solve, 100 clients"], 2),
        "seconds": {
            title: {key: round(one.seconds, 3) for key, one in found.items()}
            for title, found in (("l1", sparse), ("graph-guided", guided))
        },
    })  # fmt: skip


if __name__ == "__main__":
    main()
