"""The a9a-sized problem of the engines' benchmarks, in this process, in actors, and at the sites of a federation."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import scipy.sparse

import fpdfp

ROWS, D, CLIENTS = 26_053, 123, 20
WEIGHT, L2 = 1e-4, 1e-3
QUANTIZER = fpdfp.QSGD(20, norm="max")

METHODS = ("FPDFP", "shifted")
#: Relative errors; FPDFP with its fixed quantizer needs too many rounds for the smaller one.
ERRORS = {"FPDFP": (1e-3,), "shifted": (1e-3, 1e-6)}


def data() -> tuple[Any, Any, Any]:
    """One-hot groups, as in a9a: 14 ones among 123 columns in every row; labels that depend on them."""
    generator = np.random.default_rng(0)
    edges = np.linspace(0, D, 15).astype(int)
    columns = np.stack([generator.integers(a, b, ROWS) for a, b in itertools.pairwise(edges)], axis=1)
    X = scipy.sparse.csr_array((np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, 14)), (ROWS, D))
    truth = generator.standard_normal(D)
    y = np.where(X @ truth + generator.logistic(size=ROWS) > 0, 1.0, -1.0)
    return X, y, np.sort(generator.integers(0, CLIENTS, ROWS))


def graph() -> Any:
    G = scipy.sparse.random_array((D, D), density=0.05, rng=np.random.default_rng(1))
    return scipy.sparse.vstack([G, scipy.sparse.eye_array(D)]).tocsr()


def penalty() -> fpdfp.penalties.Penalty:
    return fpdfp.penalties.L1(WEIGHT)


def load(clients: Any) -> fpdfp.losses.Losses:
    """The losses of some clients."""
    X, y, owner = data()
    mine = np.isin(owner, clients)
    return fpdfp.losses.Logistic(X[mine], y[mine], clients=owner[mine], l2=L2)


def problem() -> fpdfp.Problem:
    """The whole problem, in this process."""
    return fpdfp.Problem(load(np.arange(CLIENTS)), penalty(), graph())


def options(method: str) -> dict[str, Any]:
    """The arguments of ``solve`` for a method."""
    return {"method": fpdfp.FPDFP(), "compressor": QUANTIZER} if method == "FPDFP" else {}


def times_to(where: fpdfp.Problem, method: str, best: float, engine: Any = None) -> dict[str, Any]:
    """The rounds and the seconds by the clock to each error, with an evaluation after every round."""
    found: dict[str, Any] = {}
    started = time.perf_counter()

    def near(run: fpdfp.Run) -> bool:
        error = float(run.history.last()["objective"]) / best - 1.0
        for one in ERRORS[method]:
            if error <= one and f"{one:g}" not in found:
                found[f"{one:g}"] = {"rounds": run.round, "seconds": time.perf_counter() - started}
        return len(found) == len(ERRORS[method])

    fpdfp.solve(where, rounds=20_000, evaluate_every=1, callbacks=[near], engine=engine, **options(method))
    if len(found) < len(ERRORS[method]):
        raise RuntimeError(f"{method} did not come to {ERRORS[method]}")
    return found
