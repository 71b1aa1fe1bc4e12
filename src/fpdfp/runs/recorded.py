"""Writing the folder of a run that has ended, where there was no run of ``fpdfp.solve``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fpdfp._typing import Array
from fpdfp.engines.checkpoint import fingerprint
from fpdfp.engines.result import History
from fpdfp.engines.traffic import Traffic
from fpdfp.problem import Problem
from fpdfp.runs import clients, toml, writing
from fpdfp.runs.recorder import FORMAT, describe_traffic, now, versions


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a run has ended: what of it is in ``run.json`` and ``history.csv``.

    Attributes
    ----------
    x
        The solution.
    status, message
        As of :class:`fpdfp.Result`.
    rounds, planned
        The exchanges, and how many there might have been.
    traffic
        What was sent.
    seconds
        How long it took.
    history
        Its table.
    method, messages
        The method and the messages, in words.
    more
        Further entries of ``run.json``.
    """

    x: Array
    status: str
    message: str
    rounds: int
    planned: int
    traffic: Traffic
    seconds: float
    history: History
    method: str
    messages: list[str]
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def write_folder(
    folder: Path, problem: Problem, ended: Ended, *, name: str, seed: int, config: Mapping[str, Any],
    model: Mapping[str, Any], reference: float | None, form: str,
) -> None:  # fmt: skip
    """Write the folder of a run of a linear model, as :class:`fpdfp.runs.Recorder` does; ``run.json`` is the last."""
    objective = float(ended.history.objective[-1])
    writing.write(folder / "config.toml", toml.dumps(config).encode())
    writing.write_json(folder / "model.json", model)
    writing.write_arrays(folder / "final.npz", {"x": ended.x}, flush=True)
    writing.write_arrays(folder / "best.npz", {"x": ended.x, "round": ended.rounds, "objective": objective})
    writing.write_history(folder, ended.history, form, flush=True)
    info = {
        "format": FORMAT,
        "name": name,
        "created": now(),
        "ended": now(),
        "status": ended.status,
        "message": ended.message,
        "rounds": ended.rounds,
        "planned_rounds": ended.planned,
        "objective": objective,
        **describe_traffic(ended.traffic),
        "seconds": ended.seconds,
        "elapsed": ended.seconds,
        "sites": [],
        "seed": seed,
        "reference": reference,
        "certificate": None,
        "method": ended.method,
        "messages": ended.messages,
        "versions": versions(),
        "kind": "linear",
        "problem": fingerprint(problem),
        "clients": clients.describe_clients(problem, model["classes"]),
        "clients_in_all": problem.n_clients,
        **ended.more,
    }
    writing.write_json(folder / "run.json", info, flush=True)
