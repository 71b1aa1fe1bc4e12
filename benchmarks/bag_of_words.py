"""Logistic regression on word counts: rounds and bits with few features first and with all features.

    python -m benchmarks.bag_of_words [--sites 20] [--alpha 0.003] [--l2 0]

Rows are texts of about 80 words, drawn with frequencies 1/rank^1.05; 50 of the 2,000 most frequent words say something
about the label. ``default`` begins with few features; ``all features`` is the same method by name. Bits are those of
all kinds of messages, all sites together.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import scipy.sparse

import fpdfp
from benchmarks import _tools
from fpdfp._typing import Array

RELEVANT, FREQUENT = 50, 2000


def draw_texts(rows: int, features: int, seed: int = 0, length: int = 80) -> tuple[scipy.sparse.csr_array, Array]:
    """Return word counts and labels."""
    generator = np.random.default_rng(seed)
    shares = 1.0 / np.arange(1, features + 1) ** 1.05
    lengths = generator.poisson(length, rows) + 5
    ends = np.cumsum(shares / shares.sum())
    words = np.minimum(np.searchsorted(ends, generator.random(lengths.sum())), features - 1)
    texts = np.repeat(np.arange(rows), lengths)
    X = scipy.sparse.csr_array((np.ones(len(words)), (texts, words)), shape=(rows, features))
    X.sum_duplicates()
    weights = np.zeros(features)
    relevant = generator.choice(min(FREQUENT, features), RELEVANT, replace=False)
    weights[relevant] = 1.5 * generator.standard_normal(RELEVANT)
    forms = X @ weights
    chances = 1.0 / (1.0 + np.exp(forms.mean() - forms))
    return X, np.where(generator.random(rows) < chances, 1.0, -1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=16_000)
    parser.add_argument("--features", type=int, default=62_000)
    parser.add_argument("--sites", type=int, default=20)
    parser.add_argument("--alpha", type=float, default=0.003)
    parser.add_argument("--l2", type=float, default=0.0)
    parser.add_argument("--tol", type=float, default=1e-5)
    options = parser.parse_args()

    X, y = draw_texts(options.rows, options.features)
    losses = fpdfp.losses.Logistic(X, y, clients=np.arange(options.rows) % options.sites, l2=options.l2)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(options.alpha))
    by_name: dict[str, Any] = {
        "method": fpdfp.ShiftedPDFP(preconditioner="auto"),
        "compressor": fpdfp.QSGD(5, norm="max"),
        "downlink": fpdfp.QSGD(31, norm="max"),
    }
    runs: dict[str, dict[str, Any]] = {"default": {}, "all features": by_name}
    rows, results = [], {}
    for name, given in runs.items():
        started = time.perf_counter()
        result = fpdfp.solve(problem, rounds=2000, tol=options.tol, **given)
        results[name] = {
            "status": result.status,
            "rounds": result.rounds,
            "features": options.features if result.features is None else len(result.features.numbers),
            "nonzero": int((result.x != 0).sum()),
            "objective": result.objective,
            "mbit_up": result.total_up / 1e6,
            "mbit_down": result.total_down / 1e6,
            "seconds": time.perf_counter() - started,
        }
        rows.append([name, *(f"{one:.6g}" if isinstance(one, float) else str(one) for one in results[name].values())])
    header = ["", "status", "rounds", "features left", "non-zero", "objective", "Mbit up", "Mbit down", "seconds"]
    _tools.show(f"{options.rows:,} texts, {options.features:,} words, {options.sites} sites", header, rows)
    _tools.finish({**vars(options), **results})


if __name__ == "__main__":
    main()
