"""What settings describe: the problem, what to measure, the method and its messages."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import fpdfp
from fpdfp._typing import Array, IntArray
from fpdfp.datasets import splits
from fpdfp.declarative import made
from fpdfp.declarative.settings import Settings
from fpdfp.engines.options import RunOptions
from fpdfp.engines.prepare import choose

#: The sections that the problem depends on.
OF_THE_PROBLEM = ("data", "split", "loss", "operator", "penalty")
#: How many problems are kept: sweeps mostly change the method.
KEPT = 4


class Built(NamedTuple):
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
    return _built(problem_key(settings))


def problem_key(settings: Settings) -> str:
    """Return a text that is the same where the problem is."""
    return json.dumps({name: settings[name] for name in OF_THE_PROBLEM if name in settings}, sort_keys=True)


@functools.lru_cache(maxsize=KEPT)
def _built(key: str) -> Built:
    settings = json.loads(key)
    if settings["data"]["kind"] == "ct":
        from fpdfp.declarative import scan

        return scan.build(settings)
    from fpdfp.declarative import rows

    return rows.build(settings)


def dealt(split: dict[str, Any], count: int, labels: Any = None, site: Any = None) -> IntArray:
    """Return who holds each row or view."""
    given = {name: value for name, value in split.items() if name not in ("kind", "clients", "weights")}
    if split["kind"] == "by_column":
        return splits.by_column(site)
    deal = getattr(splits, split["kind"])
    first = labels if split["kind"] in ("by_label", "dirichlet") else count
    owners: IntArray = deal(first, split["clients"], **given)
    return owners


def how(settings: Settings) -> dict[str, Any]:
    """Return method, messages and the rest of what ``fpdfp.solve`` is to be given."""
    run = settings["run"]
    method = settings["method"]
    return {
        "method": None if method["kind"] == "automatic" else made.remake(method, made.METHODS),
        "compressor": _messages(settings["compressor"]),
        "downlink": _messages(settings["downlink"]),
        "rounds": run["rounds"],
        "clients_per_round": None if run["clients_per_round"] == "all" else run["clients_per_round"],
        "tol": run["tol"] or None,
        "evaluate_every": None if run["evaluate_every"] == "automatic" else run["evaluate_every"],
        "drop_out": run["drop_out"],
        "engine": fpdfp.engines.Ray() if run["engine"] == "ray" else None,
    }


def _messages(settings: dict[str, Any]) -> Any:
    if settings["kind"] in ("automatic", "none"):
        return "auto" if settings["kind"] == "automatic" else None
    return made.remake(settings, made.COMPRESSORS)


def check_fit(settings: Settings) -> None:
    """Refuse a method or messages that do not fit the problem, before any of the runs begins."""
    options = how(settings)
    method, _ = options.pop("method"), options.pop("engine")
    choose(build(settings).problem, method, RunOptions(**options))
