"""Rounds per second of a simulated federation: ours, NumPy, SciPy, and pfl where it is installed.

    python -m benchmarks.simulation

Three pieces of work, each measured for all contenders in turn within the same run:

* *gradient*: N = 100 clients with 260 dense rows each, d = 123; a round draws n = 20 clients and a batch of 32
  rows of each, without replacement, takes a gradient step at each and averages. Ours, a NumPy loop over
  clients, NumPy vectorised over clients (also with batches drawn with replacement, which is cheaper to
  vectorise and is not the same work), and pfl (``pip install 'fpdfp[bench]'``).
* *full*: the same with B = [G; I], the prox, both messages quantized and their exact bits counted. Ours alone,
  against the plain NumPy loop above that does none of it.
* *sparse*: N = 100 clients with 14 of 123 entries of each row non-zero, 26,053 rows, full local gradients, the
  whole of FPDFP. Ours, and the same algorithm with SciPy's sparse products in a loop over clients.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

import fpdfp
from benchmarks import _tools, peers_scipy

N, ROWS, D, n, BATCH, STEP = 100, 260, 123, 20, 32, 0.01


def dense_data() -> tuple[Any, Any, Any]:
    generator = np.random.default_rng(0)
    X = generator.standard_normal((N * ROWS, D))
    y = np.where(generator.random(N * ROWS) < 0.5, -1.0, 1.0)
    return X, y, np.repeat(np.arange(N), ROWS)


def sparse_data() -> tuple[Any, Any, Any]:
    """One-hot groups, as in a9a: 14 ones among 123 columns in every row."""
    generator = np.random.default_rng(0)
    rows = 26_053
    edges = np.linspace(0, D, 15).astype(int)
    columns = np.stack([generator.integers(a, b, rows) for a, b in itertools.pairwise(edges)], axis=1)
    X = scipy.sparse.csr_array((np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, 14)), (rows, D))
    y = np.where(generator.random(rows) < 0.24, 1.0, -1.0)
    return X, y, np.sort(generator.integers(0, N, rows))


def graph() -> Any:
    G = scipy.sparse.random_array((D, D), density=0.05, rng=np.random.default_rng(1))
    return scipy.sparse.vstack([G, scipy.sparse.eye_array(D)]).tocsr()


def ours(problem: fpdfp.Problem, batch_size: int | None, compressor: Any, rounds: int) -> float:
    method = fpdfp.FPDFP(step=STEP, batch_size=batch_size)
    result = fpdfp.solve(
        problem, method, rounds=rounds, clients_per_round=n, compressor=compressor, evaluate_every=rounds
    )
    return rounds / float(result.history.seconds[-1])


def timed(work: Callable[[int], Any], rounds: int) -> float:
    work(max(1, rounds // 20))
    started = time.perf_counter()
    work(rounds)
    return rounds / (time.perf_counter() - started)


def numpy_loop(X: Any, y: Any, rounds: int) -> Any:
    parts = [(X[i * ROWS : (i + 1) * ROWS], y[i * ROWS : (i + 1) * ROWS]) for i in range(N)]
    generator = np.random.default_rng(0)
    x = np.zeros(D)
    for _ in range(rounds):
        total = np.zeros(D)
        for i in generator.choice(N, n, replace=False):
            rows = generator.choice(ROWS, BATCH, replace=False)
            A, b = parts[i][0][rows], parts[i][1][rows]
            total += A.T @ (-b / (1.0 + np.exp(b * (A @ x)))) / BATCH
        x = x - STEP * total / n
    return x


def numpy_vectorised(X: Any, y: Any, rounds: int, replace: bool) -> Any:
    X, y = X.reshape(N, ROWS, D), y.reshape(N, ROWS)
    generator = np.random.default_rng(0)
    x = np.zeros(D)
    for _ in range(rounds):
        clients = generator.choice(N, n, replace=False)[:, None]
        if replace:
            rows = generator.integers(0, ROWS, (n, BATCH))
        else:
            rows = generator.random((n, ROWS)).argpartition(BATCH - 1, axis=1)[:, :BATCH]
        A, b = X[clients, rows], y[clients, rows]
        weights = -b / (1.0 + np.exp(b * (A @ x))) / BATCH
        x = x - STEP * np.matmul(weights[:, None, :], A)[:, 0].mean(axis=0)
    return x


def pfl_rate(X: Any, y: Any, clients: Any, rounds: int) -> float | None:
    try:
        from benchmarks.peers_pfl import rounds_per_second

        return rounds_per_second(X, y, clients, n=n, batch_size=BATCH, step=STEP, rounds=rounds, seed=0)
    except ImportError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=2000)
    options = parser.parse_args()
    rounds, quarter = options.rounds, max(1, options.rounds // 4)

    X, y, clients = dense_data()
    B = graph()
    losses = fpdfp.losses.Logistic(X, y, clients=clients)
    plain = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    full = fpdfp.Problem(losses, fpdfp.penalties.L1(1e-5), B)
    quantizer = fpdfp.QSGD(levels=20)
    dense = _tools.interleaved(
        {
            "ours, gradient": lambda: ours(plain, BATCH, None, rounds),
            "ours, full": lambda: ours(full, BATCH, quantizer, rounds),
            "NumPy vectorised": lambda: timed(lambda k: numpy_vectorised(X, y, k, replace=False), rounds),
            "NumPy vectorised, with replacement": lambda: timed(
                lambda k: numpy_vectorised(X, y, k, replace=True), rounds
            ),
            "NumPy loop": lambda: timed(lambda k: numpy_loop(X, y, k), quarter),
        },
        options.repeats,
    )
    peer = pfl_rate(X, y, clients, min(rounds, 300))

    Xs, ys, owners = sparse_data()
    problem = fpdfp.Problem(fpdfp.losses.Logistic(Xs, ys, clients=owners, l2=1e-5), fpdfp.penalties.L1(1e-5), B)
    rival = peers_scipy.Federation(Xs, ys, owners, B, l2=1e-5, weight=1e-5, lam=problem.model.largest_lambda)
    sparse = _tools.interleaved(
        {
            "ours, sparse": lambda: ours(problem, None, quantizer, rounds),
            "SciPy loop": lambda: timed(lambda k: rival.run(k, n=n, step=STEP, levels=20), quarter),
        },
        options.repeats,
    )

    rows = [[name, _tools.spread(values)] for name, values in (dense | sparse).items()]
    rows.insert(5, ["pfl", f"{peer:,.0f}" if peer is not None else "not installed"])
    _tools.show("rounds per second, median (range)", ["", "rounds/s"], rows)
    _tools.finish(
        {
            "benchmark": "simulation",
            "gradient_over_numpy_vectorised": _tools.ratio(dense, "ours, gradient", "NumPy vectorised"),
            "gradient_over_numpy_vectorised_with_replacement": _tools.ratio(
                dense, "ours, gradient", "NumPy vectorised, with replacement"
            ),
            "gradient_over_numpy_loop": _tools.ratio(dense, "ours, gradient", "NumPy loop"),
            "full_over_numpy_loop": _tools.ratio(dense, "ours, full", "NumPy loop"),
            "gradient_over_pfl": None if peer is None else float(np.median(dense["ours, gradient"])) / peer,
            "sparse_over_scipy_loop": _tools.ratio(sparse, "ours, sparse", "SciPy loop"),
        }
    )


if __name__ == "__main__":
    main()
