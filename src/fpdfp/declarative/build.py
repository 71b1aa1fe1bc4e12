"""What settings describe: the problem, what to measure, the method and its messages."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import fpdfp
from fpdfp._typing import Array, IntArray
from fpdfp.datasets import splits
from fpdfp.declarative import made
from fpdfp.declarative.settings import DEFAULTS, Settings, run_options
from fpdfp.engines.options import RunOptions
from fpdfp.engines.prepare import choose
from fpdfp.errors import ArgumentError

#: The sections that the problem depends on.
OF_THE_PROBLEM = ("data", "split", "loss", "operator", "penalty")
#: How near the reference is to the minimum, relative to it.
TOLERANCE = 1e-10
#: How many problems are kept: sweeps mostly change the method.
KEPT = 4


@dataclasses.dataclass(frozen=True)
class Built:
    """A problem and what belongs to it.

    Attributes
    ----------
    problem
        What is minimised.
    metrics
        What is measured at every evaluation.
    reference
        Finds the minimum.
    model
        What the numbers of a linear model mean, else None.
    truth, voxel
        The true volume of a scan, else None, and the side of a voxel.
    """

    problem: fpdfp.Problem
    metrics: dict[str, Callable[[Array], float]]
    reference: Callable[[], float]
    model: dict[str, Any] | None = None
    truth: Array | None = None
    voxel: float = 1.0


def build(settings: Settings) -> Built:
    """Make the problem of some settings; the latest ones are kept."""
    return _build(problem_key(settings))


def problem_key(settings: Settings) -> str:
    """Return a text that is the same where the problem is."""
    return json.dumps({name: settings[name] for name in OF_THE_PROBLEM if name in settings}, sort_keys=True)


@functools.lru_cache(maxsize=KEPT)
def _build(key: str) -> Built:
    settings = json.loads(key)
    home = {"table": "rows", "ct": "scan", "quadratics": "quadratics"}[settings["data"]["kind"]]
    built: Built = importlib.import_module(f"fpdfp.declarative.{home}").build(settings)
    return built


def deal(
    split: dict[str, Any], count: int, order: Callable[[int], IntArray], labels: Any = None, site: Any = None
) -> IntArray:
    """Return who holds each row or view; ``order`` gives the random order in which they are where it is the data's."""
    kind, clients = split["kind"], split.get("clients", 1)
    if kind == "by_column":
        return splits.by_column(site)
    if split.get("seed") == "data":
        if clients > count:
            raise ArgumentError(
                "split.clients", f"must leave one of {count} rows or views for every client, got {clients}"
            )
        owners: IntArray = np.empty(count, dtype=np.int64)
        owners[order(count)] = np.arange(count) % clients
        return owners
    given = {name: value for name, value in split.items() if name not in ("kind", "clients", "weights")}
    dealt: IntArray = getattr(splits, kind)(labels if kind in ("by_label", "dirichlet") else count, clients, **given)
    return dealt


def make_penalty(penalty: dict[str, Any]) -> fpdfp.penalties.Penalty:
    """Make a penalty that needs no more than its own settings; that of images is the total variation."""
    kind = penalty["kind"]
    if kind == "l1":
        return fpdfp.penalties.L1(penalty["weight"])
    if kind == "tv":
        return fpdfp.penalties.GroupL12(penalty["weight"], axis=0)
    if kind == "box":
        return fpdfp.penalties.Box(penalty["lower"], penalty["upper"])
    return fpdfp.penalties.NonNegative() if kind == "non-negative" else fpdfp.penalties.Zero()


def solve_options(settings: Settings) -> dict[str, Any]:
    """Return method, messages and the rest of what ``fpdfp.solve`` is to be given."""
    run, method = settings["run"], settings["method"]
    # What stands for None in a file: a word, or 0.
    options = {
        name: None if option.default is None and run[name] in (DEFAULTS.get(name), 0) else run[name]
        for name, option in run_options().items()
    }
    for name, option in run_options().items():
        if isinstance(table := options[name], Mapping):
            options[name] = made.remake(table, option.tables)
    return {
        "method": None if method["kind"] == "automatic" else made.remake(method, made.METHODS),
        "compressor": made.remake_messages(settings["compressor"]),
        "downlink": made.remake_messages(settings["downlink"]),
        "engine": fpdfp.engines.Ray() if run["engine"] == "ray" else None,
        **options,
    }


def check_fit(settings: Settings) -> None:
    """Refuse a method or messages that do not fit the problem, before any of the runs begins."""
    options = solve_options(settings)
    method, _ = options.pop("method"), options.pop("engine")
    choose(build(settings).problem, method, RunOptions(**options))
