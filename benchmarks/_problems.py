"""The graph-guided logistic problems of the benchmarks: a9a, covtype, and a small one that is always there."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import NamedTuple

import fpdfp
from fpdfp.experiments import graph_guided as graph_guided_setting
from fpdfp.experiments.graph_guided import TASKS

N = 100
#: Where data sets lie unless --data says otherwise.
DATA = Path(os.environ.get("FPDFP_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SETS = ("a9a", "covtype")
#: Breast-cancer data of scikit-learn, among as many clients.
SMALL = TASKS["breast-cancer"]._replace(clients=N)


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

    That is ``"iid"``, ``"label"`` or ``"dirichlet 0.3"``, as in ``fpdfp.experiments.graph_guided.deal``. The optimum is
    the same for all.
    """
    made, best, label = _pooled(folder, name)
    suffix = {"iid": "", "label": ", sorted by label"}.get(split, f", {split.replace('dirichlet', 'Dirichlet')}")
    return Setting(label + suffix, made.problem if split == "iid" else made.dealt(split), made.central(), best)


@functools.lru_cache(maxsize=1)
def _pooled(folder: Path, name: str) -> tuple[graph_guided_setting.Setting, float, str]:
    there = name in SETS and is_there(folder, name)
    made = graph_guided_setting.setting(TASKS[name] if there else SMALL, folder)
    best = fpdfp.reference_solution(made.central(), tol=1e-9).objective
    return made, best, name if there else "breast cancer"
