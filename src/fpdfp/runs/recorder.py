"""Recording runs in folders: during the run, or when it has ended."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import json
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._array import to_host
from fpdfp._sections import FILES
from fpdfp._typing import Array
from fpdfp.cohorts.record import fingerprint
from fpdfp.ct.losses import ProjectionLosses
from fpdfp.datasets.graph import FeatureGraph
from fpdfp.engines.loop import Observer
from fpdfp.engines.result import History, Result
from fpdfp.engines.run import Run
from fpdfp.engines.solve import solve
from fpdfp.losses import Logistic, Softmax
from fpdfp.losses.linear import LinearModel
from fpdfp.methods.base import Method
from fpdfp.pooled.solver import Minimum
from fpdfp.problem import Certificate, Problem
from fpdfp.runs import toml
from fpdfp.runs.folder import FORMAT, Best, arrow, load, write_arrays, write_file, write_history, write_json
from fpdfp.traffic import Traffic

#: This many clients are described one by one.
MOST_CLIENTS = 1000
#: Writing the best x may take this share of the time; for small x that is no limit.
SHARE = 0.05


class Recorder(Observer):
    """Write the folder of a run of ``fpdfp.solve``: settings, history, result, and a checkpoint to resume from.

    Files are complete at any moment, and every evaluation is written to disk immediately.

    Parameters
    ----------
    folder
        The folder; it is created if needed.
    problem
        The problem.
    name
        The name of the run in tables and reports; by default the folder's name.
    config
        The settings that led to this run, for ``config.toml``; by default a description of method and problem.
    reference
        The minimum F*, if it is known: a number or a result of ``fpdfp.minimize``.
    model
        For linear models, a result of :func:`linear_model`; by default features have the names that the losses know, or
        numbers.
    truth, voxel
        For CT, the true volume and the sides of a voxel.
    history
        ``"csv"`` or ``"parquet"``, which needs pyarrow.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(4), [4.0, 4.1, 0.0, 0.1], clients=[0, 1, 0, 1], l2=0.1)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = fpdfp.runs.Recorder(folder, problem, name="small").solve(fpdfp.PDFP(), rounds=10)
    ...     run = fpdfp.runs.load(folder)
    ...     print(run, run.history.rows, (run.x == result.x).all())
    SavedRun('small': finished, 10 rounds) 11 True
    """

    def __init__(
        self,
        folder: str | Path,
        problem: Problem,
        *,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        reference: float | Minimum | None = None,
        model: Mapping[str, Any] | None = None,
        truth: Any = None,
        voxel: Any = 1.0,
        history: str = "csv",
    ) -> None:
        if not isinstance(problem, Problem):
            raise TypeError(f"problem must be an fpdfp.Problem, got {_checks.kind(problem)}")
        self.folder = Path(folder)
        self.problem = problem
        self.name = self.folder.resolve().name if name is None else str(name)
        self.config = None if config is None else dict(config)
        self.reference = reference.objective if isinstance(reference, Minimum) else reference
        if self.reference is not None:
            self.reference = _checks.real("reference", self.reference)
        self.form = _checks.choice("history", history, ("csv", "parquet"))
        if self.form == "parquet":
            arrow()
        self.model = None if model is None else dict(model)
        if model is None and isinstance(problem.losses, LinearModel):
            named = problem.losses.feature_names
            self.model = linear_model(named or [f"x{i}" for i in range(problem.losses.n_features)])
        self.truth = None if truth is None else np.asarray(to_host(truth), dtype=np.float32)
        self.voxel = np.asarray(voxel, dtype=np.float64)
        self._info: dict[str, Any] = {}
        self._best: Best | None = None
        self._best_written = True
        self._next_best = 0.0
        self._before = self._began = 0.0
        self._visited: list[Any] = []

    @property
    def checkpoint(self) -> Path:
        """The checkpoint to resume from."""
        return self.folder / "checkpoint.npz"

    def options(self, *, resume: bool = False) -> dict[str, Any]:
        """Return the arguments of ``fpdfp.solve`` that attach this recorder.

        With ``resume`` the run continues from the checkpoint in the folder, if there is one. Without it, a folder that
        already holds a run raises an error.
        """
        if not resume and (self.folder / "run.json").exists():
            raise FileExistsError(
                f"{self.folder} already holds a run; give resume=True to continue it, or another folder"
            )
        return {"callbacks": [self], "checkpoint": self.checkpoint, "resume": resume}

    def solve(
        self, method: Method | None = None, *, resume: bool = False, callbacks: Any = (), **options: Any
    ) -> Result:
        """Call ``fpdfp.solve`` with the recorder's problem and options, and with the given ones."""
        own = self.options(resume=resume) | {"callbacks": [*callbacks, self]}
        return solve(self.problem, method, **own, **options)

    def started(self, run: Run, rounds: int) -> None:
        goes_on = run.history.rows > 0
        self._clear(goes_on)
        known = self._read_info() if goes_on else {}
        elapsed = known.get("elapsed")
        self._before, self._began = float(elapsed) if isinstance(elapsed, int | float) else 0.0, time.monotonic()
        self._visited = known.get("sites") or []
        self._info = make_info(
            self.name,
            created=str(known.get("created") or now()),
            status="running",
            rounds=run.round,
            planned_rounds=rounds,
            **describe_traffic(run.traffic),
            seconds=run.seconds,
            elapsed=self._before,
            sites=add_visits(self._visited, run.participants.sites()),
            seed=run.seed,
            reference=self.reference,
            method=run.algorithm.summary,
            messages=list(run.compression),
            kind=self._kind,
            **describe_problem(self.problem, self.model),
        )
        config = self._describe(run, rounds) if self.config is None else self.config
        write_file(self.folder / "config.toml", toml.dumps(config).encode())
        if self.model is not None:
            write_json(self.folder / "model.json", self.model)
        if self.truth is not None:
            write_arrays(self.folder / "truth.npz", {"volume": self.truth, "voxel": self.voxel})
        self._write(run)

    def evaluated(self, run: Run) -> None:
        row = run.history.last()
        if self._best is None or row["objective"] < self._best.objective:
            self._best = Best(np.array(to_host(run.x)), run.round, float(row["objective"]))
            self._best_written = False
        self._write(run)
        if time.monotonic() >= self._next_best:
            self._write_best()

    def saved(self, run: Run) -> None:
        self._write_best()
        write_arrays(self.folder / "final.npz", {"x": run.x})

    def finished(self, run: Run, result: Result) -> None:
        self._write_best()
        write_arrays(self.folder / "final.npz", {"x": result.x, "v": result.v}, flush=True)
        self._info |= {
            "objective": result.objective,
            "certificate": describe_certificate(result.certificate) if _wants_certificate(run, result) else None,
            "rounds": result.rounds,
            **describe_traffic(result.traffic),
        }
        self._end(run, result.status, result.message)

    def failed(self, run: Run, error: BaseException) -> None:
        if not self._info:
            return
        interrupted = isinstance(error, KeyboardInterrupt)
        status = "interrupted" if interrupted else "failed"
        # The disk may be what failed; the error itself is raised regardless.
        with contextlib.suppress(OSError):
            self._end(run, status, "stopped by the user" if interrupted else f"{type(error).__name__}: {error}")

    def _end(self, run: Run, status: str, message: str) -> None:
        self._info |= {"ended": now(), "status": status, "message": message, **self._measure(run)}
        write_history(self.folder, run.history, self.form, flush=True)
        write_json(self.folder / "run.json", self._info, flush=True)

    def _write(self, run: Run) -> None:
        """Bring the table and what is known of the run up to date."""
        if run.history.rows:
            self._info["objective"] = run.history.last()["objective"]
        self._info |= {"rounds": run.round, **describe_traffic(run.traffic), **self._measure(run)}
        write_history(self.folder, run.history, self.form)
        write_json(self.folder / "run.json", self._info)

    def _measure(self, run: Run) -> dict[str, Any]:
        """Return the time of the rounds, the time by the clock (evaluations and waiting too), and each site's part."""
        elapsed = self._before + time.monotonic() - self._began
        return {
            "seconds": run.seconds,
            "elapsed": elapsed,
            "sites": add_visits(self._visited, run.participants.sites()),
        }

    def _write_best(self) -> None:
        if self._best is None or self._best_written:
            return
        began = time.monotonic()
        write_arrays(self.folder / "best.npz", self._best._asdict())
        self._best_written = True
        ended = time.monotonic()
        self._next_best = ended + (ended - began) / SHARE

    def _clear(self, goes_on: bool) -> None:
        """Remove files of another run, unless this run resumes from its checkpoint."""
        if goes_on and (self.folder / "run.json").exists():
            with contextlib.suppress(ValueError, OSError):
                self._best = load(self.folder).best
        if not self.folder.is_dir():
            return
        files = ("final.npz", "best.npz", "model.json", "truth.npz", "history.csv", "history.parquet", *FILES)
        stale = () if goes_on else files
        for file in [*map(self.folder.joinpath, stale), *self.folder.glob(".*.tmp")]:
            file.unlink(missing_ok=True)

    def _read_info(self) -> dict[str, Any]:
        """Return what the folder says about a run that continues; nothing where it cannot be read."""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((self.folder / "run.json").read_text())
            return found if isinstance(found, dict) else {}
        return {}

    @property
    def _kind(self) -> str:
        # Sites do not say more of their losses than is needed; who names the coefficients knows that it is linear.
        if isinstance(self.problem.losses, LinearModel) or self.model is not None:
            return "linear"
        return "ct" if isinstance(self.problem.losses, ProjectionLosses) else "other"

    def _describe(self, run: Run, rounds: int) -> dict[str, Any]:
        """Return the configuration of a run that was given none."""
        return {
            "name": self.name,
            "problem": repr(self.problem),
            "method": run.algorithm.summary,
            "messages": list(run.compression),
            "run": {
                "rounds": rounds, "clients_per_round": run.clients_per_round, "seed": run.seed,
                "sampling": run.options.sampling, "drop_out": run.drop_out,
            },
        }  # fmt: skip


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

    The folder has no checkpoint to resume from.

    Parameters
    ----------
    folder
        The folder; one that already holds a run is refused.
    result
        What the run returned.
    name, config, model
        As of :class:`Recorder`.
    x
        The coefficients that the model names; by default the result's.
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
    info = make_info(
        title,
        status=result.status,
        message=result.message,
        rounds=result.rounds,
        objective=result.objective,
        **describe_traffic(result.traffic),
        seconds=float(history["seconds"][-1]) if history.rows else None,
        seed=seed,
        certificate=describe_certificate(result.certificate) if result.is_certified else None,
        method=method,
        messages=list(result.compression),
        kind="other" if model is None else "linear",
        clients=[{"name": one, "samples": count, "share": count / rows} for one, count in samples.items()],
        clients_in_all=len(samples),
    )
    write_ended(path, info, history, result.x if x is None else x, config or {"name": title, "method": method}, model)
    return path


def write_ended(
    folder: Path, info: Mapping[str, Any], history: History, x: Any, config: Mapping[str, Any],
    model: Mapping[str, Any] | None, *, form: str = "csv", best: bool = False,
) -> None:  # fmt: skip
    """Write the folder of a run that has ended, ``run.json`` last; with ``best`` the last x is the best as well."""
    write_file(folder / "config.toml", toml.dumps(config).encode())
    if model is not None:
        write_json(folder / "model.json", model)
    write_arrays(folder / "final.npz", {"x": x}, flush=True)
    if best:
        write_arrays(folder / "best.npz", {"x": x, "round": info["rounds"], "objective": info["objective"]})
    write_history(folder, history, form, flush=True)
    write_json(folder / "run.json", {**info, "ended": now()}, flush=True)


def linear_model(
    features: Sequence[str],
    *,
    intercept: int | None = None,
    graph: FeatureGraph | None = None,
    classes: Any = None,
    standardized: bool | None = None,
    scales: Array | None = None,
) -> dict[str, Any]:
    """Describe a linear model for a :class:`Recorder`.

    Parameters
    ----------
    features
        The names of all columns, the intercept's among them.
    intercept
        The number of the column of ones, or None.
    graph
        The graph of features, or None. It may have fewer features than there are columns.
    classes
        The names of the classes in their order; for logistic losses first −1, then 1.
    standardized
        Whether coefficients are per standard deviation of their features, or per unit; None if unknown.
    scales
        The standard deviation of each column, 1 for the intercept; None if unknown. Reports show their products.

    Examples
    --------
    >>> import fpdfp
    >>> graph = fpdfp.datasets.as_graph([(0, 1, 0.5)], 2)
    >>> described = linear_model(["age", "weight", "one"], intercept=2, graph=graph)
    >>> described["features"], described["edges"]
    (['age', 'weight', 'one'], [[0, 1, 0.5]])
    """
    edges = []
    if graph is not None:
        upper, _ = graph.signed_edges()
        edges = [[int(i), int(j), float(weight)] for i, j, weight in zip(upper.row, upper.col, upper.data, strict=True)]
    return {
        "features": [str(name) for name in features],
        "intercept": intercept,
        "edges": edges,
        "classes": None if classes is None else [str(name) for name in classes],
        "standardized": standardized,
        "scales": None if scales is None else np.asarray(scales, dtype=np.float64).tolist(),
    }


def make_info(name: str, **known: Any) -> dict[str, Any]:
    """Return what ``run.json`` holds: what is known of a run, and what stands for the rest."""
    return {
        "format": FORMAT,
        "name": name,
        "created": now(),
        "ended": None,
        "status": "",
        "message": "",
        "rounds": 0,
        "planned_rounds": None,
        "objective": None,
        **describe_traffic(Traffic()),
        "seconds": None,
        "elapsed": None,
        "sites": [],
        "seed": None,
        "reference": None,
        "certificate": None,
        "method": "",
        "messages": [],
        "versions": versions(),
        "kind": "other",
        "problem": None,
        "clients": [],
        "clients_in_all": 0,
        **known,
    }


def describe_problem(problem: Problem, model: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a key of the problem, and name, samples, weight and labels of the first clients."""
    losses, classes = problem.losses, None if model is None else model["classes"]
    count = min(problem.n_clients, MOST_CLIENTS)
    names = np.asarray(getattr(losses, "client_names", np.arange(count)))
    clients: list[dict[str, Any]] = [
        {"name": str(names[i]), "samples": int(losses.sizes[i]), "share": float(problem.weights[i])}
        for i in range(count)
    ]
    if isinstance(losses, Logistic | Softmax):
        for i, client in enumerate(clients):
            client["labels"] = _labels(losses.targets_of(i), classes, binary=isinstance(losses, Logistic))
    return {"problem": fingerprint(problem), "clients": clients, "clients_in_all": problem.n_clients}


def _labels(targets: Any, classes: list[str] | None, *, binary: bool) -> dict[str, int]:
    found, counts = np.unique(targets, return_counts=True)
    names = []
    for value in found.tolist():
        number = int(value > 0) if binary else int(value)
        names.append(f"{value:g}" if classes is None else classes[number])
    return dict(zip(names, counts.tolist(), strict=True))


def now() -> str:
    """The time, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def add_visits(before: list[Any], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what became of the exchanges with each site, with those before the run was resumed.

    >>> before = [{"name": "north", "healed": 2, "last_refusal": "late"}]
    >>> add_visits(before, [{"name": "north", "healed": 1, "last_refusal": ""}])
    [{'name': 'north', 'healed': 3, 'last_refusal': 'late'}]
    """
    known = {one.get("name"): one for one in before if isinstance(one, dict)}
    return [
        {
            key: value + known[site["name"]].get(key, 0) if isinstance(value, int | float)
            else value or known[site["name"]].get(key, "")
            for key, value in site.items()
        } if site["name"] in known else site
        for site in now
    ]  # fmt: skip


def describe_traffic(traffic: Traffic) -> dict[str, Any]:
    """Return the bits of a run as ``run.json`` has them: totals, and a line for each kind of message."""
    return {**traffic.totals, "traffic": {kind: list(bits) for kind, bits in traffic.items()}}


def _wants_certificate(run: Run, result: Result) -> bool:
    """Whether a certificate is recorded: in runs to a tolerance, and where it is known."""
    return result.is_certified or run.options.tol is not None


def describe_certificate(certificate: Certificate) -> dict[str, float | None]:
    """A certificate in numbers."""
    return {
        "gap": certificate.gap,
        "relative_gap": certificate.relative_gap,
        "primal": certificate.residual.primal,
        "dual": certificate.residual.dual,
        "violation": certificate.violation,
    }


def versions() -> dict[str, str]:
    """The versions of the software and the machine."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("fpdfp", "numpy", "scipy", "numba"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found
