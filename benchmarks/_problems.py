"""The graph-guided logistic problems of the benchmarks: a9a, covtype, and a small one that is always there."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import NamedTuple

import fpdfp
from fpdfp.declarative.build import BuiltRows
from reproduce.runs import build_case

N = 100
#: Where data sets lie unless --data says otherwise.
DATA = Path(os.environ.get("FPDFP_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SETS = ("a9a", "covtype")
#: What is there where a data set is not: breast-cancer data of scikit-learn.
SMALL = "breast-cancer"


class Setting(NamedTuple):
    """The problem among clients, the same with all data in one place, and its optimum."""

    name: str
    federated: fpdfp.Problem
    central: fpdfp.Problem
    best: float


def is_there(folder: Path, name: str) -> bool:
    """Whether a data set lies in a folder."""
    try:
        fpdfp.datasets.load(name, directory=folder)
    except fpdfp.errors.DataSetError:
        return False
    return True


def graph_guided(folder: Path, name: str, split: str = "iid") -> Setting:
    """B = [G; I], μ1 = μ2 = 1e-5 (1e-3 for the small set), N = 100 clients, training rows dealt out as ``split`` says.

    That is ``"iid"``, ``"label"`` (sorted by label: then most clients have rows of one class alone) or
    ``"dirichlet 0.3"`` (shares of every label that are drawn from a Dirichlet distribution). The optimum is the same
    for all.
    """
    made, best, label = _pooled(folder, name)
    suffix = {"iid": "", "label": ", sorted by label"}.get(split, f", {split.replace('dirichlet', 'Dirichlet')}")
    return Setting(label + suffix, made.problem if split == "iid" else deal(made, split), central(made), best)


def load(folder: Path, name: str) -> BuiltRows:
    """Return the problem among N clients; that of the small set where the data are not there."""
    there = name in SETS and is_there(folder, name)
    where = {"data.directory": str(folder.absolute())} if there else {}
    made: BuiltRows = build_case(name if there else SMALL, {"split.clients": N, **where})
    return made


def central(made: BuiltRows) -> fpdfp.Problem:
    """Return the problem with all rows in one place."""
    losses = fpdfp.losses.Logistic(made.features, made.labels, l2=made.l2)
    return fpdfp.Problem(losses, made.problem.penalty, made.problem.linop)


def deal(made: BuiltRows, split: str) -> fpdfp.Problem:
    """Return the problem with the rows dealt out in another way."""
    splits = fpdfp.datasets.splits
    owner = (
        splits.by_label(made.labels, N)
        if split == "label"
        else splits.dirichlet(made.labels, N, float(split.removeprefix("dirichlet ")))
    )
    losses = fpdfp.losses.Logistic(made.features, made.labels, clients=owner, l2=made.l2)
    return fpdfp.Problem(losses, made.problem.penalty, made.problem.linop, weights="samples")


@functools.lru_cache(maxsize=1)
def _pooled(folder: Path, name: str) -> tuple[BuiltRows, float, str]:
    made = load(folder, name)
    best = fpdfp.minimize(central(made), tol=1e-9).objective
    return made, best, name if name in SETS and is_there(folder, name) else "breast cancer"
