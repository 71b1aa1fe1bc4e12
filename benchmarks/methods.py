"""Every method on one graph-guided logistic problem: rounds, bits and seconds to three relative errors.

    python -m benchmarks.methods

The problem is the paper's: a9a (in --data, $FPDFP_DATA or ../shared/data; breast-cancer data of scikit-learn where it
is not there), N = 100 clients with equal shares of the training rows, B = [G; I], μ1 = μ2 = 1e-5 (1e-3 for the smaller
set). n = 20 clients take part in a round, with full local gradients, and send QSGD messages of 20 levels where the
method allows it. PDFP and Condat–Vũ have everyone send full gradients; SPDFP and Chambolle–Pock hold all data in one
place. Methods for f alone take subgradients of g∘B; FedMiD and its kin solve the prox of g∘B to a relative 1e-2.

The step of each method is tuned on one grid, γ_k = γ0/(1 + ck) with γ0 in {1/4, 1/2, 1, 2, 4, 8, 16, 32}/L and c in
{0, 0.001, 0.01}, L the mean of the clients' Lipschitz constants; methods with a constant step have c = 0 alone. All
settings run 250 rounds, the best third goes on to 1,000, the best two of those to the end, by relative error, all with
seed 0. The best setting then runs by itself with seeds 1, 2 and 3, timed; what is shown are medians ("not reached" if
two of three runs do not). A best step at the end of the grid is marked. Settings that are done are kept in --output,
and a second call goes on there.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fpdfp
from benchmarks import _tools, _tuning
from benchmarks._problems import DATA, N, Setting, graph_guided
from fpdfp.engines.checkpoint import describe, fingerprint
from fpdfp.engines.progress import format_bits
from fpdfp.experiments import pool

TARGETS = (1e-2, 1e-3, 1e-4)
GAMMAS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
DECAYS = (0.0, 0.001, 0.01)
SEEDS = (1, 2, 3)
PER_ROUND, LEVELS, LOCAL_STEPS, BATCH = 20, 20, 5, 50
INNER = fpdfp.InnerSolve(tol=1e-2)
PROX_OF_F = fpdfp.InnerSolve(tol=1e-6, max_steps=10_000)


class Contender(NamedTuple):
    """A method as it is run here: from its schedule or constant step, and how."""

    make: Callable[[Any], Any]
    central: bool = False
    everyone: bool = False
    falling: bool = True
    random: bool = True


CONTENDERS: dict[str, Contender] = {
    "FPDFP": Contender(fpdfp.FPDFP),
    "FPDFP, τ = 5": Contender(lambda step: fpdfp.FPDFP(step, local_steps=LOCAL_STEPS)),
    "FedSGD (∂)": Contender(lambda step: fpdfp.FedSGD(step, penalty="subgradient")),
    "FedAvg (∂), τ = 5": Contender(lambda step: fpdfp.FedAvg(step, LOCAL_STEPS, penalty="subgradient")),
    "FedPAQ (∂), τ = 5": Contender(lambda step: fpdfp.FedPAQ(step, LOCAL_STEPS, penalty="subgradient")),
    "FedProx (∂), τ = 5, ρ = 0.1": Contender(lambda step: fpdfp.FedProx(0.1, step, LOCAL_STEPS, penalty="subgradient")),
    "FedMiD, τ = 5": Contender(lambda step: fpdfp.FedMiD(step, LOCAL_STEPS, inner=INNER)),
    "FedDualAvg, τ = 5": Contender(lambda step: fpdfp.FedDualAvg(step, LOCAL_STEPS, inner=INNER)),
    "Fast-FedDualAvg, τ = 5": Contender(
        lambda step: fpdfp.FastFedDualAvg(step, LOCAL_STEPS, inner=INNER), falling=False
    ),
    "Fast-FedDualAvg, τ = 5, restarts": Contender(
        lambda step: fpdfp.FastFedDualAvg(step, LOCAL_STEPS, inner=INNER, restarts=(100, 300, 1000)), falling=False
    ),
    "PDFP": Contender(fpdfp.PDFP, everyone=True, random=False),
    "SPDFP, batches of 50": Contender(lambda step: fpdfp.SPDFP(step, BATCH), central=True),
    "Condat–Vũ": Contender(fpdfp.CondatVu, everyone=True, falling=False, random=False),
    "Chambolle–Pock": Contender(
        lambda step: fpdfp.ChambollePock(step, inner=PROX_OF_F), central=True, falling=False, random=False
    ),
}


def settings_of(contender: Contender) -> list[tuple[float, float]]:
    """The (γ0 L, c) of the grid that a contender takes."""
    return [(gamma, decay) for gamma in GAMMAS for decay in (DECAYS if contender.falling else (0.0,))]


def method_of(where: Setting, name: str, gamma: float, decay: float) -> Any:
    return CONTENDERS[name].make(_tuning.schedule(where, gamma, decay))


def run(where: Setting, name: str, gamma: float, decay: float, rounds: int, every: int, seed: int = 0) -> fpdfp.Result:
    """Run a contender until it is within the smallest target, or to the end."""
    contender = CONTENDERS[name]
    method = method_of(where, name, gamma, decay)
    return _tuning.run_until(
        where,
        where.central if contender.central else where.federated,
        method,
        TARGETS[-1],
        rounds=rounds,
        clients_per_round=None if contender.central or contender.everyone else PER_ROUND,
        compressor=fpdfp.QSGD(LEVELS) if method.traits.compression else None,
        seed=seed,
        evaluate_every=every,
    )


def score(where: Setting, result: fpdfp.Result) -> float:
    """What settings are ranked by: the relative error at the end, or fewer rounds where all was reached."""
    if result.status == "diverged":
        return math.inf
    error = float(result.history.objective[-1] / where.best - 1)
    return error if error > TARGETS[-1] else -1.0 / float(result.history["round"][-1])


_where: Setting


def _start_worker(folder: Path) -> None:
    global _where  # noqa: PLW0603 - a worker process has one problem
    _where = graph_guided(folder, "a9a")


def _work(job: tuple[str, str, float, float, int]) -> tuple[str, float]:
    key, name, gamma, decay, rounds = job
    return key, score(_where, run(_where, name, gamma, decay, rounds, every=10))


class Tuning:
    """The best setting of each contender."""

    def __init__(self, where: Setting, scores: pool.Scores, rounds: int) -> None:
        self.where, self.scores = where, scores
        self.stages = _tuning.stages(rounds, lambda _: 1)
        self.problem = fingerprint(where.federated)

    def key(self, name: str, gamma: float, decay: float, rounds: int) -> str:
        """Return what a score belongs to: problem, code, method with its hyper-parameters, how it is run."""
        method = method_of(self.where, name, gamma, decay)
        what = f"{self.problem} {pool.code(type(method))} {describe(method)}"
        return f"{what} {PER_ROUND} of {N}, s = {LEVELS}, {rounds} rounds"

    def best(self, name: str) -> tuple[float, float]:
        def score(settings: Sequence[tuple[float, float]], rounds: int) -> list[float]:
            jobs = [(self.key(name, *one, rounds), name, *one, rounds) for one in settings]
            return self.scores.compute(f"{name}: {rounds} rounds", jobs)

        return pool.halve(settings_of(CONTENDERS[name]), self.stages, score)[0]


def reached(where: Setting, results: list[fpdfp.Result], target: float) -> dict[str, float] | None:
    """Medians over runs of the totals at the first evaluation within a relative error; None if most never got there."""
    firsts = [_tuning.first_within(where, result.history, target, MEASURES) for result in results]
    found = [first for first in firsts if first is not None]
    if 2 * len(found) <= len(results):
        return None
    # Runs that did not get there count as slower than all others.
    return {name: sorted(one[name] for one in found)[len(results) // 2] for name in MEASURES}


MEASURES = ("round", "bits_up", "bits_down", "seconds")


def write(found: dict[str, float] | None) -> list[str]:
    if found is None:
        return ["not reached", "", "", ""]
    bits = [format_bits(found["bits_up"]), format_bits(found["bits_down"])]
    return [f"{found['round']:,.0f}", *bits, f"{found['seconds']:.3g}"]


def measure(where: Setting, name: str, gamma: float, decay: float, rounds: int) -> dict[str, Any]:
    """Run the best setting of a contender by itself, and say how far it got."""
    seeds = SEEDS if CONTENDERS[name].random else SEEDS[:1]
    results = [run(where, name, gamma, decay, rounds, every=1, seed=seed) for seed in seeds]
    inner = [
        sum(int(result.history[column][-1]) for column in ("inner_clients", "inner_server")) / result.rounds
        for result in results
        if "inner_clients" in result.history
    ]
    return {
        "gamma_times_L": gamma,
        "decay": decay,
        "end_of_grid": gamma in (GAMMAS[0], GAMMAS[-1]),
        "relative_error": statistics.median(float(one.history.objective[-1] / where.best - 1) for one in results),
        "inner_steps_per_round": statistics.median(inner) if inner else 0.0,
        **{f"{target:g}": reached(where, results, target) for target in TARGETS},
    }


def rows_of(name: str, one: dict[str, Any]) -> list[list[str]]:
    edge = " (end of grid)" if one["end_of_grid"] else ""
    inner = one["inner_steps_per_round"]
    notes = [
        f"{one['gamma_times_L']:g}/L, c = {one['decay']:g}{edge}",
        f"ends at {one['relative_error']:.1e}",
        f"{inner:,.0f} inner steps a round" if inner else "",
    ]
    return [
        [name if target == TARGETS[0] else "", note, f"{target:g}", *write(one[f"{target:g}"])]
        for target, note in zip(TARGETS, notes, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/output"))
    parser.add_argument("--rounds", type=_tuning.positive, default=2000)
    parser.add_argument("--only", nargs="+", default=list(CONTENDERS), help="names of methods, in quotes")
    arguments = parser.parse_args()
    unknown = set(arguments.only) - set(CONTENDERS)
    if unknown:
        names = "; ".join(map(repr, CONTENDERS))
        parser.error(f"--only must name some of {names}; got {'; '.join(map(repr, unknown))}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    where = graph_guided(arguments.data, "a9a")
    try:
        with pool.bar() as bar:
            methods = bar.add_task("tuning", total=len(arguments.only))
            chosen: dict[str, tuple[float, float]] = {}
            with pool.workers(_start_worker, arguments.data) as processes:
                scores = pool.Scores(arguments.output / "methods.jsonl", processes, _work, bar)
                tuning = Tuning(where, scores, arguments.rounds)
                for name in arguments.only:
                    chosen[name] = tuning.best(name)
                    bar.advance(methods)
            methods = bar.add_task("timing", total=len(arguments.only))
            results = {}
            for name, best in chosen.items():
                results[name] = measure(where, name, *best, arguments.rounds)
                bar.advance(methods)
    except KeyboardInterrupt:
        raise SystemExit(f"interrupted; what is tuned is in {arguments.output}, and the same command goes on") from None
    header = ["method", "best step", "error", "rounds", "bits up", "bits down", "seconds"]
    rows = [row for name, one in results.items() for row in rows_of(name, one)]
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
