"""The graph-guided logistic problems of the benchmarks: a9a, covtype, and a small one that is always there."""

from __future__ import annotations

import lzma
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp

N = 100
#: Where data sets lie unless --data says otherwise.
DATA = Path(os.environ.get("FPDFP_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


class DataSet(NamedTuple):
    """A LIBSVM file: its features, the label that counts as 1, the rows for training, the penalty of its graph."""

    file: str
    features: int
    positive: float
    training: int
    alpha: float


SETS = {
    "a9a": DataSet("a9a.xz", 123, 1.0, 26_053, 0.02),
    "covtype": DataSet("covtype.libsvm.binary.scale.xz", 54, 2.0, 464_809, 0.02),
}


class Setting(NamedTuple):
    """The problem among clients, the same with all data in one place, and its optimum."""

    name: str
    federated: fpdfp.Problem
    central: fpdfp.Problem
    best: float


def libsvm(folder: Path, name: str) -> tuple[Any, Any] | None:
    """The training rows of a data set, in a random order, if it is there."""
    from sklearn.datasets import load_svmlight_file

    chosen = SETS[name]
    path = folder / chosen.file
    if not path.is_file():
        return None
    with lzma.open(path) as file:
        X, y = load_svmlight_file(file, n_features=chosen.features)
    order = np.random.default_rng(0).permutation(len(y))[: chosen.training]
    return X[order], np.where(y[order] == chosen.positive, 1.0, -1.0)


def breast_cancer() -> tuple[Any, Any]:
    """569 rows of scikit-learn, standardised, in a random order."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return ((X - X.mean(axis=0)) / X.std(axis=0))[order], y[order]


def graph_guided(folder: Path, name: str, split: str = "iid") -> Setting:
    """B = [G; I], μ1 = μ2 = 1e-5 (1e-3 for the small set), N = 100 clients with equal shares of the training rows.

    ``split`` deals rows out in a random order (``"iid"``) or sorted by label (``"label"``): then most clients have rows
    of one class alone.
    """
    found = libsvm(folder, name) if name in SETS else None
    X, y = breast_cancer() if found is None else found
    weight, alpha = (1e-3, 0.1) if found is None else (1e-5, SETS[name].alpha)
    B = fpdfp.datasets.feature_graph(X, alpha=alpha).stacked()
    owner = np.arange(len(y)) % N
    if split == "label":
        owner = np.empty(len(y), dtype=np.int64)
        owner[np.argsort(y, kind="stable")] = np.arange(len(y)) * N // len(y)
    penalty = fpdfp.penalties.L1(weight)
    federated = fpdfp.Problem(fpdfp.losses.Logistic(X, y, clients=owner, l2=weight), penalty, B, weights="samples")
    central = fpdfp.Problem(fpdfp.losses.Logistic(X, y, l2=weight), penalty, B)
    best = fpdfp.reference_solution(central, tol=1e-9).objective
    label = "breast cancer" if found is None else name
    return Setting(label if split == "iid" else f"{label}, sorted by label", federated, central, best)
