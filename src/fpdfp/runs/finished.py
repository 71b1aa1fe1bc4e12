"""Writing the folder of a run that has ended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp.engines.result import Result
from fpdfp.runs import toml, writing
from fpdfp.runs.recorder import FORMAT, describe_certificate, describe_traffic, now, versions


def write_result(
    folder: str | Path,
    result: Result,
    *,
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    x: Any = None,
    clients: Mapping[str, int] | None = None,
    seed: int | None = None,
) -> Path:
    """Write the folder of a run that has ended, for reports; :class:`Recorder` writes one during a run.

    There is no checkpoint in it to resume from.

    Parameters
    ----------
    folder
        The folder; one that already holds a run is refused.
    result
        What the run returned.
    name, config, model
        As of :class:`Recorder`.
    x
        The coefficients that the model names; by default those of the result.
    clients
        The samples of each client by name.
    seed
        The seed of the run.

    Examples
    --------
    >>> import tempfile
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [1.0, 1.0, 0.0, 0.0], clients=[0, 0, 1, 1], l2=0.1)
    >>> result = fpdfp.solve(fpdfp.Problem(losses, fpdfp.penalties.L1(0.1)), rounds=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fpdfp.runs.load(write_result(f"{folder}/run", result, name="small"))
    SavedRun('small': finished, 10 rounds)
    """
    path = Path(folder)
    if (path / "run.json").exists():
        raise FileExistsError(f"{path} already holds a run; give another folder")
    title = path.resolve().name if name is None else str(name)
    method = "" if result.algorithm is None else result.algorithm.summary
    history, samples = result.history, dict(clients or {})
    rows = sum(samples.values()) or 1
    info = {
        "format": FORMAT,
        "name": title,
        "created": now(),
        "ended": now(),
        "status": result.status,
        "message": result.message,
        "rounds": result.rounds,
        "planned_rounds": None,
        "objective": result.objective,
        **describe_traffic(result.traffic),
        "seconds": float(history["seconds"][-1]) if history.rows else None,
        "elapsed": None,
        "sites": [],
        "seed": seed,
        "reference": None,
        "certificate": describe_certificate(result.certificate) if result.is_certified else None,
        "method": method,
        "messages": list(result.compression),
        "versions": versions(),
        "kind": "other" if model is None else "linear",
        "problem": None,
        "clients": [{"name": one, "samples": count, "share": count / rows} for one, count in samples.items()],
        "clients_in_all": len(samples),
    }
    writing.write(path / "config.toml", toml.dumps(dict(config or {"name": title, "method": method})).encode())
    if model is not None:
        writing.write_json(path / "model.json", model)
    writing.write_arrays(path / "final.npz", {"x": np.asarray(result.x if x is None else x)})
    writing.write_history(path, history, "csv")
    writing.write_json(path / "run.json", info, flush=True)
    return path
