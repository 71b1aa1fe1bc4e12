"""Rounds per second of every engine on one problem: in-process, Ray and a federation.

    python -m benchmarks.engines [--without ray] [--runs 7] [--actors 1 2 4 8 20]

The problem is of the size of a9a (26,053 rows of 123 features, 14 of them ones) among 20 clients, who all take part in
every round: graph-guided logistic regression. In Ray they are in 2 actors; in the federation at 3 sites, which are real
processes on this machine, with mutual TLS. For each engine: rounds per second with FPDFP (20 levels) and with the
default method, without evaluations, and the time by the clock to relative errors of 1e-3 and, for the default method,
1e-6, with an evaluation after every round. Since all engines compute the same bits, the rounds to an error are the
same. With ``--actors``, the same rounds are also timed in other numbers of actors. ``benchmarks.federation`` has more
sites, and the bytes that a round sends.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import fpdfp
from benchmarks import _federation as trial
from benchmarks import _tools

#: Rounds of a run in-process and with Ray; in the federation, and in other numbers of actors.
ROUNDS, ROUNDS_THERE = 500, 100
METHODS = trial.METHODS


def rate(
    problem: fpdfp.Problem, method: str, engine: Any = None, *, runs: int, rounds: int = ROUNDS
) -> tuple[float, float]:
    """Rounds per second, without evaluations: the median and the best of several runs, after one that is not timed."""
    seconds = []
    for _ in range(runs + 1):
        result = fpdfp.solve(problem, rounds=rounds, evaluate_every=rounds, engine=engine, **trial.options(method))
        seconds.append(float(result.history.seconds[-1]))
    return rounds / statistics.median(seconds[1:]), rounds / min(seconds[1:])


def scaling(numbers: list[int], runs: int) -> dict[int, dict[str, float]]:
    """Rounds per second in each number of actors, the median of several runs."""
    found: dict[int, dict[str, float]] = {}
    for actors in numbers:
        say(f"Ray, {actors} actors …")
        with fpdfp.cohorts.Ray(trial.load, n_clients=trial.CLIENTS, actors=actors) as engine:
            there = fpdfp.Problem(engine.losses(), trial.penalty(), trial.graph())
            found[actors] = {
                method: rate(there, method, engine, runs=runs, rounds=ROUNDS_THERE)[0] for method in METHODS
            }
        say(f"{actors} actors: " + ", ".join(f"{each:.3g} rounds/s {m}" for m, each in found[actors].items()))
    return found


def say(what: str) -> None:
    """Say what is measured now, or was."""
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--without", choices=["federation", "ray"], action="append", default=[], help="engines to leave out"
    )
    parser.add_argument("--runs", type=int, default=7, help="runs that are timed, in-process, with Ray and there")
    parser.add_argument("--actors", type=int, nargs="*", default=[], help="numbers of Ray's actors to compare")
    arguments = parser.parse_args()

    problem = trial.problem()
    best = fpdfp.minimize(problem, tol=1e-10).objective
    rates: dict[str, dict[str, float]] = {}
    times: dict[str, dict[str, Any]] = {}
    by_actors: dict[int, dict[str, float]] = {}
    missing: list[str] = []

    best_rates: dict[str, dict[str, float]] = {"in-process": {}}
    rates["in-process"], times["in-process"] = {}, {}
    say("in-process …")
    for method in METHODS:
        rates["in-process"][method], best_rates["in-process"][method] = rate(problem, method, runs=arguments.runs)
        times["in-process"][method] = trial.times_to(problem, method, best)

    def shown(name: str, method: str) -> str:
        best_rate = f" (best {best_rates[name][method]:.3g})" if name in best_rates else ""
        return f"{rates[name][method]:.3g}{best_rate}"

    def compare(name: str, engine: Any, there: fpdfp.Problem, rounds: int) -> None:
        say(f"{name} …")
        rates[name], best_rates[name], times[name] = {}, {}, {}
        for method in METHODS:
            rates[name][method], best_rates[name][method] = rate(
                there, method, engine, runs=arguments.runs, rounds=rounds
            )
            say(f"{name}, {method}: {shown(name, method)} rounds/s")
            times[name][method] = found = trial.times_to(there, method, best, engine)
            for error, one in times["in-process"][method].items():
                assert found[error]["rounds"] == one["rounds"], "engines must compute the same bits"

    if "ray" not in arguments.without:
        try:
            with fpdfp.cohorts.Ray(trial.load, n_clients=trial.CLIENTS, actors=2) as engine:
                compare("Ray", engine, fpdfp.Problem(engine.losses(), trial.penalty(), trial.graph()), ROUNDS)
            by_actors = scaling(arguments.actors, arguments.runs)
        except ImportError as error:
            missing.append(str(error))
    if "federation" not in arguments.without:
        try:
            from benchmarks import federation

            with federation.running(3) as (link, names):
                compare("federation", *federation.at_sites(link, names), ROUNDS_THERE)
        except ImportError as error:
            missing.append(str(error))
    columns = [(method, f"{error:g}") for method in METHODS for error in trial.ERRORS[method]]
    header = ["engine", *(f"rounds/s {m}" for m in METHODS), *(f"s to {error} {m}" for m, error in columns)]
    rows = [
        [name, *(shown(name, m) for m in METHODS), *(f"{times[name][m][error]['seconds']:.3g}" for m, error in columns)]
        for name in rates
    ]
    known = times["in-process"]
    needed = ", ".join(f"{m} to {error} {known[m][error]['rounds']}" for m, error in columns)
    _tools.show(f"20 clients, all in every round; rounds: {needed}", header, rows)
    if by_actors:
        rows = [[str(actors), *(f"{one[m]:.3g}" for m in METHODS)] for actors, one in by_actors.items()]
        _tools.show("Ray: 20 clients in so many actors", ["actors", "rounds/s FPDFP", "rounds/s shifted"], rows)
    for line in missing:
        print(f"not measured: {line}")
    ratios = {
        name: {m: rates["in-process"][m] / rates[name][m] for m in METHODS} for name in rates if name != "in-process"
    }
    _tools.finish({
        "rounds_per_second": rates, "best": best_rates, "times": times,
        "slower_than_in_process": ratios, "actors": by_actors, "missing": missing,
    })  # fmt: skip


if __name__ == "__main__":
    main()
