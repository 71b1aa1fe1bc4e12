"""Long runs in which processes are killed: nothing is lost, and the error is that of runs in which none was.

    python -m benchmarks.soak [--only ray|federation] [--rounds 1000]

Ray: 1,000 rounds of the problem of :mod:`benchmarks.engines`, a random worker killed (SIGKILL) every 50 rounds. The
error at the end is compared with that of runs in one process with other seeds and no deaths: their spread.

Federation: 1,000 rounds with three sites as real processes over mutual TLS, everyone needed in every round; a
site killed and started again every 20 rounds, the hub five times and the analyst's process twice. The coefficients are
compared, bit by bit, with those of a run in one process.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import fpdfp
from benchmarks import _federation as trial
from benchmarks import _federation_soak, _tools

SEEDS = 5
ENGINES = ("federation", "ray")


def spread(problem: fpdfp.Problem, method: str, rounds: int, best: float) -> tuple[float, float]:
    """The least and the largest relative error of runs in which nobody dies."""
    errors = [
        fpdfp.solve(problem, rounds=rounds, seed=seed, evaluate_every=rounds, **trial.options(method)).objective / best
        - 1
        for seed in range(SEEDS)
    ]
    return min(errors), max(errors)


def with_ray(problem: fpdfp.Problem, best: float, rounds: int, every: int) -> dict[str, Any]:
    """Runs with Ray, in which a random worker is killed now and then."""
    import ray

    found = {}
    chance = np.random.default_rng(0)
    for method in trial.METHODS:
        with fpdfp.cohorts.Ray(trial.load, n_clients=trial.CLIENTS, actors=2, min_clients=5) as engine:
            there = fpdfp.Problem(engine.losses(), trial.penalty(), trial.graph())
            deaths: list[int] = []

            def murder(run: fpdfp.Run, engine: Any = engine, deaths: list[int] = deaths) -> None:
                if run.round % every == 0 and run.round < rounds:
                    with contextlib.suppress(ray.exceptions.RayError):
                        victim = int(chance.integers(len(engine.actors)))
                        os.kill(ray.get(engine.actors[victim].process.remote(), timeout=60), signal.SIGKILL)
                        deaths.append(run.round)

            started = time.perf_counter()
            result = fpdfp.solve(
                there, rounds=rounds, evaluate_every=rounds, callbacks=[murder], engine=engine, **trial.options(method)
            )
            found[method] = {
                "rounds": result.rounds, "deaths": len(deaths), "absent": engine.totals.absent,
                "healed": engine.totals.healed, "refused": engine.totals.refused,
                "error": problem.objective(result.x) / best - 1, "spread": spread(problem, method, rounds, best),
                "seconds": time.perf_counter() - started,
            }  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=ENGINES, help="one engine alone")
    parser.add_argument("--rounds", type=int, default=1000, help="rounds of the federation")
    arguments = parser.parse_args()
    engines = ENGINES if arguments.only is None else (arguments.only,)
    results: dict[str, Any] = {}
    if "federation" in engines:
        results["federation"] = in_federation(arguments.rounds)
    if "ray" in engines:
        results |= compare_errors()
    _tools.finish(results)


def in_federation(rounds: int) -> dict[str, Any]:
    """Run the federation, and show what was found."""
    with tempfile.TemporaryDirectory() as name:
        one = _federation_soak.run(Path(name), rounds, 20, hub=5, analyst=2)
    header = ["rounds", "killed", "seconds until the next round", "absent / healed", "same bits", "logs", "seconds"]
    row = [
        str(one["rounds"]), ", ".join(f"{who} {count}" for who, count in one["killed"].items()),
        ", ".join(f"{who} {seconds:.1f}" for who, seconds in one["seconds_to_go_on"].items()),
        f"{one['absent']} / {one['healed']}", "yes" if one["same_bits"] else "NO",
        "; ".join(one["damaged_logs"]) or "whole", f"{one['seconds']:.0f}",
    ]  # fmt: skip
    _tools.show("Processes of a federation killed in a long run", header, [row])
    return one


def compare_errors() -> dict[str, Any]:
    """Run on Ray, and show errors beside those of runs without deaths."""
    problem = trial.problem()
    best = fpdfp.minimize(problem, tol=1e-12).objective
    found = {"Ray": with_ray(problem, best, 1000, 50)}
    rows = [
        [
            engine, method, str(one["rounds"]), str(one["deaths"]), f"{one['absent']} / {one['healed']}",
            f"{one['error']:.2e}", f"{one['spread'][0]:.2e} to {one['spread'][1]:.2e}", f"{one['seconds']:.0f}",
        ]
        for engine, methods in found.items() for method, one in methods.items()
    ]  # fmt: skip
    header = ["engine", "method", "rounds", "killed", "absent / healed", "relative error", "without deaths", "seconds"]
    _tools.show("Processes killed in long runs", header, rows)
    return found


if __name__ == "__main__":
    main()
