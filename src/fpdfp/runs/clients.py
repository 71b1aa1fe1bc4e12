"""The part of ``run.json`` that describes the clients and their data."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp.losses import Logistic, Softmax
from fpdfp.problem import Problem

#: So many clients are described one by one.
MOST = 1000


def describe_clients(problem: Problem, classes: list[str] | None) -> list[dict[str, Any]]:
    """Return name, samples, weight and, for classes, the labels of the first clients."""
    losses = problem.losses
    count = min(problem.n_clients, MOST)
    names = np.asarray(getattr(losses, "client_names", np.arange(count)))
    clients = [
        {"name": str(names[i]), "samples": int(losses.sizes[i]), "share": float(problem.weights[i])}
        for i in range(count)
    ]
    if isinstance(losses, Logistic | Softmax):
        for i, client in enumerate(clients):
            client["labels"] = _labels(losses.targets_of(i), classes, binary=isinstance(losses, Logistic))
    return clients


def _labels(targets: Any, classes: list[str] | None, *, binary: bool) -> dict[str, int]:
    found, counts = np.unique(targets, return_counts=True)
    names = []
    for value in found.tolist():
        number = int(value > 0) if binary else int(value)
        names.append(f"{value:g}" if classes is None else classes[number])
    return dict(zip(names, counts.tolist(), strict=True))
