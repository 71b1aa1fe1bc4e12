"""The paper's first experiment: graph-guided logistic regression among 100 clients.

    min  1/m Σ_j log(1 + exp(−b_j s_jᵀx)) + μ1/2 ‖x‖² + μ2 ‖Bx‖₁,   B = [G; I]

with G by sparse inverse covariance selection on the training features. What the paper leaves open is fixed here: the
number of clients, the split (dealt out at random), the seed of the split into training and test rows, the penalty of
the graphical lasso.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp import datasets
from fpdfp._typing import Array
from fpdfp.datasets import FeatureGraph, feature_graph


class Task(NamedTuple):
    """A data set and how it is used.

    Attributes
    ----------
    name
        Its name.
    training
        How many rows are for training; the rest are for testing.
    clients, per_round
        How many clients there are, and how many of them take part in a round where the levels vary.
    participation
        How many take part in a round where that varies.
    weight
        μ1 and μ2.
    alpha
        The penalty of the graphical lasso.
    rounds, seeds
        Rounds of FPDFP, and how many seeds are run beside those of the tuning.
    studies
        Whether there are also runs with each case tuned for itself, and with every step of the grid for every number of
        levels; they multiply the cost.
    """

    name: str
    training: int
    clients: int
    per_round: int
    participation: tuple[int, ...]
    weight: float
    alpha: float
    rounds: int
    seeds: int
    studies: bool = True


TASKS = {
    "a9a": Task("a9a", 26_053, 100, 20, (10, 20, 50, 100), 1e-5, 0.02, 4000, 5),
    "covtype": Task("covtype", 464_809, 100, 20, (5, 20, 50, 100), 1e-5, 0.02, 16_000, 3, studies=False),
    "breast-cancer": Task("breast-cancer", 455, 20, 10, (2, 5, 10, 20), 1e-3, 0.1, 500, 5),
}


class Setting(NamedTuple):
    """The problem of a task among clients, the graph, and the rows to train and to test on."""

    task: Task
    problem: fpdfp.Problem
    graph: FeatureGraph
    features: Any
    labels: Array
    test_features: Any
    test_labels: Array

    def central(self) -> fpdfp.Problem:
        """The same problem with all rows in one place."""
        losses = fpdfp.losses.Logistic(self.features, self.labels, l2=self.task.weight)
        return fpdfp.Problem(losses, self.problem.penalty, self.problem.linop)

    def dealt(self, split: str) -> fpdfp.Problem:
        """The same problem with the rows dealt out in another way."""
        owner = deal(self.labels, self.task.clients, split)
        losses = fpdfp.losses.Logistic(self.features, self.labels, clients=owner, l2=self.task.weight)
        return fpdfp.Problem(losses, self.problem.penalty, self.problem.linop, weights="samples")

    def margins(self, x: Array) -> Array:
        """b_j s_jᵀx over the test rows."""
        margins: Array = self.test_labels * (self.test_features @ x)
        return margins

    def test_loss(self, x: Array) -> float:
        """The mean logistic loss over the test rows, without ridge and penalty."""
        return float(np.logaddexp(0.0, -self.margins(x)).mean())

    def accuracy(self, x: Array) -> float:
        """The share of the test rows that x classifies rightly."""
        return float(np.mean(self.margins(x) > 0))


def rows_of(name: str, directory: Any = None) -> tuple[Any, Array]:
    """Return all rows of a task's data set and their labels, −1 and 1."""
    if name != "breast-cancer":
        data = datasets.load(name, directory=directory)
        return data.X, data.y
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), np.where(y > 0, 1.0, -1.0)


def deal(labels: Array, clients: int, split: str) -> Array:
    """Return who holds each of some rows that are in random order.

    ``split`` deals them out in equal shares at random (``"iid"``) or sorted by label (``"label"``: then most clients
    have rows of one class alone), or in shares of every label that are drawn from a Dirichlet distribution
    (``"dirichlet 0.3"``: the smaller the number, the more clients differ, in size as well).
    """
    if split == "iid":
        return np.arange(len(labels)) % clients
    if split == "label":
        return datasets.splits.by_label(labels, clients)
    return datasets.splits.dirichlet(labels, clients, float(split.removeprefix("dirichlet ")))


def setting(task: Task, directory: Any = None, split: str = "iid") -> Setting:
    """Load the data, split it, find the graph, deal the training rows out as :func:`deal` does."""
    X, y = rows_of(task.name, directory)
    train, test = datasets.splits.train_test(len(y), task.training, seed=0)
    graph = feature_graph(X[train], alpha=task.alpha)
    owner = deal(y[train], task.clients, split)
    losses = fpdfp.losses.Logistic(X[train], y[train], clients=owner, l2=task.weight)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(task.weight), graph.stacked(), weights="samples")
    return Setting(task, problem, graph, X[train], y[train], X[test], y[test])


@functools.lru_cache(maxsize=1)
def cached_setting(task: Task, directory: Any = None) -> Setting:
    """Like ``setting``, kept for the next call in this process."""
    return setting(task, directory)
