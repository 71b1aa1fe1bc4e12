"""Every method on one graph-guided logistic problem: rounds, bits and seconds to three relative errors.

    python -m benchmarks.methods

The problem is the paper's: a9a (in --data, $FPDFP_DATA or ../shared/data; breast-cancer data of scikit-learn where it
is not there), N = 100 clients with equal shares of the training rows, B = [G; I], μ1 = μ2 = 1e-5 (1e-3 for the smaller
set). n = 20 clients take part in a round, with full local gradients, and send QSGD messages of 20 levels where the
method allows it. PDFP and Condat–Vũ have everyone send full gradients; SPDFP and Chambolle–Pock hold all data in one
place. Methods for f alone take subgradients of g∘B; FedMiD and its kin solve the prox of g∘B to a relative 1e-2.

The step of each method is tuned on one grid, γ_k = γ0/(1 + ck) with γ0 in {1/4, 1/2, 1, 2, 4, 8, 16, 32}/L and c in
{0, 0.001, 0.01}, L the mean of the clients' Lipschitz constants; methods with a constant step have c = 0 alone. All
settings run 250 rounds, the best third goes on to 1,000, the best two of those to the end, by relative error. A run of
the best setting by itself is then timed. Settings that are done are kept in --output, and a second call goes on there.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import lzma
import math
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import fpdfp
from benchmarks import _tools
from fpdfp import steps
from fpdfp.engines.checkpoint import fingerprint
from fpdfp.engines.progress import format_bits

TARGETS = (1e-2, 1e-3, 1e-4)
GAMMAS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
DECAYS = (0.0, 0.001, 0.01)
#: Rounds of a stage of tuning, and the share of its settings that goes on.
STAGES = ((250, 1 / 3), (1000, 1 / 3))
N, PER_ROUND, LEVELS, LOCAL_STEPS, BATCH = 100, 20, 20, 5, 50


class Contender(NamedTuple):
    """A method as it is run here: from its schedule or constant step, and how."""

    make: Callable[[Any], Any]
    central: bool = False
    everyone: bool = False
    compressed: bool = True
    falling: bool = True


INNER = fpdfp.InnerSolve(tol=1e-2)
CONTENDERS: dict[str, Contender] = {
    "FPDFP": Contender(fpdfp.FPDFP),
    "FPDFP, τ = 5": Contender(lambda step: fpdfp.FPDFP(step, local_steps=LOCAL_STEPS)),
    "FedSGD (∂)": Contender(lambda step: fpdfp.FedSGD(step, penalty="subgradient")),
    "FedAvg (∂), τ = 5": Contender(
        lambda step: fpdfp.FedAvg(step, LOCAL_STEPS, penalty="subgradient"), compressed=False
    ),
    "FedPAQ (∂), τ = 5": Contender(lambda step: fpdfp.FedPAQ(step, LOCAL_STEPS, penalty="subgradient")),
    "FedProx (∂), τ = 5, ρ = 0.1": Contender(lambda step: fpdfp.FedProx(0.1, step, LOCAL_STEPS, penalty="subgradient")),
    "FedMiD, τ = 5": Contender(lambda step: fpdfp.FedMiD(step, LOCAL_STEPS, inner=INNER)),
    "FedDualAvg, τ = 5": Contender(lambda step: fpdfp.FedDualAvg(step, LOCAL_STEPS, inner=INNER)),
    "Fast-FedDualAvg, τ = 5": Contender(
        lambda step: fpdfp.FastFedDualAvg(step, LOCAL_STEPS, inner=INNER), falling=False
    ),
    "PDFP": Contender(fpdfp.PDFP, everyone=True),
    "SPDFP, batches of 50": Contender(lambda step: fpdfp.SPDFP(step, BATCH), central=True),
    "Condat–Vũ": Contender(fpdfp.CondatVu, everyone=True, falling=False),
    "Chambolle–Pock": Contender(fpdfp.ChambollePock, central=True, falling=False),
}


class Setting(NamedTuple):
    """The problem among clients, the same with all data in one place, and its optimum."""

    name: str
    federated: fpdfp.Problem
    central: fpdfp.Problem
    best: float


def a9a(folder: Path) -> tuple[Any, Any] | None:
    """The training rows of a9a, if they are there."""
    from sklearn.datasets import load_svmlight_file

    path = folder / "a9a.xz"
    if not path.is_file():
        return None
    with lzma.open(path) as file:
        X, y = load_svmlight_file(file, n_features=123)
    order = np.random.default_rng(0).permutation(len(y))[: int(0.8 * len(y)) + 5]
    return X[order], y[order]


def breast_cancer() -> tuple[Any, Any]:
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return ((X - X.mean(axis=0)) / X.std(axis=0))[order], y[order]


def setting(folder: Path) -> Setting:
    found = a9a(folder)
    X, y = breast_cancer() if found is None else found
    weight = 1e-3 if found is None else 1e-5
    B = fpdfp.datasets.feature_graph(X, alpha=0.1 if found is None else 0.02).stacked()
    penalty = fpdfp.penalties.L1(weight)
    losses = fpdfp.losses.Logistic(X, y, clients=np.arange(len(y)) % N, l2=weight)
    federated = fpdfp.Problem(losses, penalty, B, weights="samples")
    central = fpdfp.Problem(fpdfp.losses.Logistic(X, y, l2=weight), penalty, B)
    best = fpdfp.reference_solution(central, tol=1e-8).objective
    return Setting("breast cancer" if found is None else "a9a", federated, central, best)


def settings_of(contender: Contender) -> Iterable[tuple[float, float]]:
    """The (γ0 L, c) of the grid that a contender takes."""
    return [(gamma, decay) for gamma in GAMMAS for decay in (DECAYS if contender.falling else (0.0,))]


def run(where: Setting, name: str, gamma: float, decay: float, rounds: int, every: int) -> Any:
    """Run a contender until it is within the smallest target, or to the end; None where the step is refused."""
    contender = CONTENDERS[name]
    problem = where.central if contender.central else where.federated
    gamma0 = gamma / float(where.federated.lipschitz.mean())
    method = contender.make(steps.Decreasing(gamma0, decay) if decay else steps.Constant(gamma0))

    def close(now: fpdfp.Run) -> bool:
        return now.history.last()["objective"] <= where.best * (1 + TARGETS[-1])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # steps are meant to be too large sometimes
        try:
            return fpdfp.solve(
                problem,
                method,
                rounds=rounds,
                clients_per_round=None if contender.central or contender.everyone else PER_ROUND,
                compressor=fpdfp.QSGD(LEVELS) if method.traits.compression and contender.compressed else None,
                evaluate_every=every,
                callbacks=[close],
                progress=False,
            )
        except ValueError:
            return None


def score(where: Setting, result: Any) -> float:
    """What settings are ranked by: the relative error at the end, or fewer rounds where all was reached."""
    if result is None or result.status == "diverged":
        return math.inf
    error = result.history.objective[-1] / where.best - 1
    return error if error > TARGETS[-1] else -1.0 / float(result.history["round"][-1])


_where: Setting


def _start_worker(folder: Path) -> None:
    global _where  # noqa: PLW0603 - a worker process has one problem
    _where = setting(folder)


def _work(name: str, gamma: float, decay: float, rounds: int) -> float:
    return score(_where, run(_where, name, gamma, decay, rounds, every=10))


class Tuning:
    """Scores of settings, kept in a file of JSON lines so that nothing is done twice."""

    def __init__(self, path: Path, problem: str, bar: Progress, pool: Any, rounds: int) -> None:
        self.path, self.problem, self.bar, self.pool, self.rounds = path, problem, bar, pool, rounds
        self.known: dict[str, float] = {}
        if path.is_file():
            self.known = dict(json.loads(line) for line in path.read_text().splitlines() if line.endswith("]"))

    def key(self, name: str, gamma: float, decay: float, rounds: int) -> str:
        return f"{self.problem} {name} {gamma:g} {decay:g} {rounds}"

    def best(self, name: str) -> tuple[float, float]:
        """Return the best setting of a contender."""
        left = list(settings_of(CONTENDERS[name]))
        for rounds, share in (*STAGES, (self.rounds, 0.0)):
            task = self.bar.add_task(f"{name}: {rounds} rounds", total=len(left))
            jobs = {one: self.key(name, *one, rounds) for one in left}
            todo = {
                self.pool.submit(_work, name, *one, rounds): key for one, key in jobs.items() if key not in self.known
            }
            self.bar.update(task, completed=len(left) - len(todo))
            for job in concurrent.futures.as_completed(todo):
                self.known[todo[job]] = job.result()
                with self.path.open("a") as file:
                    file.write(json.dumps([todo[job], job.result()]) + "\n")
                self.bar.advance(task)
            self.bar.remove_task(task)
            left.sort(key=lambda one: self.known[jobs[one]])
            left = left[: max(2, math.ceil(share * len(left)))]
        return left[0]


def reached(where: Setting, history: fpdfp.History, target: float) -> dict[str, float] | None:
    """The totals at the first evaluation within a relative error."""
    within = np.flatnonzero(history.objective <= where.best * (1 + target))
    if not len(within):
        return None
    first = within[0]
    return {name: float(history[name][first]) for name in ("round", "bits_up", "bits_down", "seconds")}


def write(found: dict[str, float] | None) -> list[str]:
    if found is None:
        return ["not reached", "", "", ""]
    bits = [format_bits(found["bits_up"]), format_bits(found["bits_down"])]
    return [f"{found['round']:,.0f}", *bits, f"{found['seconds']:.3g}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("FPDFP_DATA", shared)))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/output"))
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--only", nargs="*", default=list(CONTENDERS), help="names of methods")
    arguments = parser.parse_args()
    unknown = set(arguments.only) - set(CONTENDERS)
    if unknown:
        parser.error(f"--only must name some of {', '.join(CONTENDERS)}, got {', '.join(unknown)}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    where = setting(arguments.data)
    os.environ["NUMBA_NUM_THREADS"] = "1"  # of the workers, which share the cores
    pool = concurrent.futures.ProcessPoolExecutor(
        max_workers=os.cpu_count(),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(arguments.data,),
    )
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
    chosen: dict[str, tuple[float, float]] = {}
    try:
        with pool, Progress(*columns, console=Console(stderr=True)) as bar:
            path = arguments.output / "methods.jsonl"
            tuning = Tuning(path, fingerprint(where.federated), bar, pool, arguments.rounds)
            for name in arguments.only:
                chosen[name] = tuning.best(name)
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        raise SystemExit(f"interrupted; what is done is in {arguments.output}, and the same command goes on") from None
    rows, results = [], {}
    for name, (gamma, decay) in chosen.items():
        result = run(where, name, gamma, decay, arguments.rounds, every=1)
        found = {target: reached(where, result.history, target) for target in TARGETS}
        last = result.history.objective[-1] / where.best - 1
        for target in TARGETS:
            label = [name, f"{gamma:g}/L, c = {decay:g}"] if target == TARGETS[0] else ["", f"ends at {last:.1e}"]
            rows.append([*(label if target != TARGETS[2] else ["", ""]), f"{target:g}", *write(found[target])])
        inner = {column: int(result.history[column][-1]) for column in result.history if column.startswith("inner_")}
        results[name] = {
            "gamma_times_L": gamma,
            "decay": decay,
            "relative_error": float(last),
            "rounds": result.rounds,
            **inner,
            **{f"{target:g}": value for target, value in found.items()},
        }
    header = ["method", "best step", "error", "rounds", "bits up", "bits down", "seconds"]
    _tools.show(f"{where.name}: to relative errors of the objective, at most {arguments.rounds} rounds", header, rows)
    _tools.finish({"problem": where.name, "optimum": where.best, "methods": results, "ratios": ratios(results)})


def ratios(results: dict[str, Any]) -> dict[str, Any]:
    """Rounds and bits up of each method over those of FPDFP, to each target that both reached."""
    ours = results.get("FPDFP", {})
    return {
        name: {
            f"{target:g}": {
                kind: round(one[f"{target:g}"][kind] / ours[f"{target:g}"][kind], 3) for kind in ("round", "bits_up")
            }
            for target in TARGETS
            if ours.get(f"{target:g}") and one[f"{target:g}"] and ours[f"{target:g}"]["round"]
        }
        for name, one in results.items()
        if name != "FPDFP"
    }


if __name__ == "__main__":
    main()
