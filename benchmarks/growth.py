"""The cost of a round, in time and memory, as the number of clients grows from 100 to a million.

    python -m benchmarks.growth

Each client holds 4 rows with 14 of 123 entries non-zero; a round draws n = 20 of N clients and does the whole of
FPDFP: full local gradients, B = [G; I], prox, both messages quantized, exact bits. ``set-up`` is what is done once:
sorting and checking the data, and the clients' Lipschitz constants. ``memory of rounds`` is the most that was
allocated at any time during the rounds, beyond the data.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
import tracemalloc
from typing import Any

import numpy as np
import scipy.sparse

import fpdfp
from benchmarks import _tools
from benchmarks.simulation import D, graph

ROWS, ENTRIES, n = 4, 14, 20
MEMORY_ROUNDS = 50


def build(clients: int) -> tuple[fpdfp.Problem, int]:
    """Make the problem and say how many bytes its data takes."""
    generator = np.random.default_rng(0)
    rows = clients * ROWS
    width = D // ENTRIES
    columns = generator.integers(0, width, (rows, ENTRIES), dtype=np.int32) + width * np.arange(ENTRIES, dtype=np.int32)
    starts = np.arange(0, columns.size + 1, ENTRIES)
    X = scipy.sparse.csr_array((np.ones(columns.size), columns.ravel(), starts), (rows, D))
    y = np.where(generator.random(rows) < 0.3, 1.0, -1.0)
    losses = fpdfp.losses.Logistic(X, y, clients=np.repeat(np.arange(clients), ROWS), l2=1e-3)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(1e-4), graph())
    _ = problem.lipschitz
    return problem, X.data.nbytes + X.indices.nbytes + X.indptr.nbytes + y.nbytes


def run(problem: fpdfp.Problem, rounds: int) -> fpdfp.Result:
    arguments: dict[str, Any] = {"clients_per_round": n, "compressor": fpdfp.QSGD(20), "evaluate_every": rounds}
    return fpdfp.solve(problem, fpdfp.FPDFP(), rounds=rounds, **arguments)


class Memory:
    """A callback that asks how much is allocated at most while the rounds go on."""

    def __init__(self) -> None:
        self.peak = 0

    def __call__(self, run: fpdfp.Run) -> None:
        if run.round == 1:
            tracemalloc.start()
        elif run.round < MEMORY_ROUNDS:  # the last round is followed by an evaluation, which sees all clients
            self.peak = tracemalloc.get_traced_memory()[1]


def peak_memory(problem: fpdfp.Problem) -> int:
    memory = Memory()
    arguments: dict[str, Any] = {"clients_per_round": n, "compressor": fpdfp.QSGD(20), "evaluate_every": MEMORY_ROUNDS}
    fpdfp.solve(problem, fpdfp.FPDFP(), rounds=MEMORY_ROUNDS, callbacks=[memory], **arguments)
    tracemalloc.stop()
    return memory.peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 10_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    problems, rows, results = {}, [], []
    for clients in options.clients:
        started = time.perf_counter()
        problem, size = build(clients)
        problems[str(clients)] = (problem, size, time.perf_counter() - started)

    rounds: int = options.rounds

    def rate(problem: fpdfp.Problem) -> float:
        return rounds / float(run(problem, rounds).history.seconds[-1])

    measures = {name: functools.partial(rate, problem) for name, (problem, _, _) in problems.items()}
    rates = _tools.interleaved(measures, options.repeats)
    for name, (problem, size, seconds) in problems.items():
        memory = peak_memory(problem)
        micro = 1e6 / statistics.median(rates[name])
        rows.append(
            [f"{int(name):,}", f"{micro:.0f} µs", f"{memory / 1e6:.2f} MB", f"{size / 1e6:,.1f} MB", f"{seconds:.1f} s"]
        )
        results.append({"clients": int(name), "round_us": micro, "round_bytes": memory, "setup_s": seconds})
    _tools.show("cost of a round with n = 20", ["clients N", "round", "memory of rounds", "data", "set-up"], rows)
    first, last = str(options.clients[0]), str(options.clients[-1])
    _tools.finish(
        {
            "benchmark": "growth",
            "rounds": results,
            "time_ratio_largest_to_smallest": _tools.ratio(rates, first, last),
            "memory_ratio_largest_to_smallest": results[-1]["round_bytes"] / results[0]["round_bytes"],
        }
    )


if __name__ == "__main__":
    main()
