"""Callbacks that write runs to TensorBoard and MLflow, and the base class of loggers for other tools."""

from __future__ import annotations

import abc
import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fpdfp._warn import warn
from fpdfp.engines import Observer, Result, Run
from fpdfp.engines.checkpoint import describe

__all__ = ["Logger", "MLflow", "TensorBoard", "parameters"]


def parameters(run: Run, rounds: int) -> dict[str, str | int | float]:
    """Return the problem, the method with every hyper-parameter, messages, participation and seed, by name."""
    problem, sampling = run.problem, run.options.sampling
    found: dict[str, Any] = {
        "losses": repr(problem.losses),
        "penalty": repr(problem.penalty),
        "linop": repr(problem.linop),
        "clients": problem.n_clients,
        "clients_per_round": run.clients_per_round,
        "messages_up": run.compression[0],
        "messages_down": run.compression[1],
        "sampling": sampling if isinstance(sampling, str) else "weights",
        "drop_out": run.drop_out,
        "seed": run.seed,
        "rounds": rounds,
        "method": type(run.method).__name__,
    }
    both: tuple[Any, Any] = (run.method, run.algorithm)
    for settings in both:  # the algorithm has the values that were chosen for "auto"
        shown = [field.name for field in dataclasses.fields(settings) if field.repr and field.name != "method"]
        found |= {f"method.{name}": getattr(settings, name) for name in shown}
    return {name: value if type(value) in (int, float, str) else describe(value) for name, value in found.items()}


class Logger(Observer, abc.ABC):
    """A callback of ``fpdfp.solve`` that logs every row of the history once, and the certificate at the end.

    An error at the start is raised. A later error, for example an unreachable server, gives a warning: the run
    continues, and rows that could not be logged are logged at the next evaluation that succeeds.

    Subclasses define ``open``, ``log`` and ``close``, and name the package that they need.
    """

    package = ""
    _last, _warned, _is_open = -1, False, False

    @abc.abstractmethod
    def open(self, run: Run, values: dict[str, str | int | float]) -> int:
        """Begin or continue a log with these parameters; return the last round that it has, or −1."""

    @abc.abstractmethod
    def log(self, step: int, values: dict[str, float]) -> None:
        """Log finite numbers of a round; names that begin with ``end/`` are logged once, when a run has ended."""

    @abc.abstractmethod
    def close(self, status: str) -> None:
        """End the log with the status of the result, or with ``failed:`` and the error that ended the run."""

    def started(self, run: Run, rounds: int) -> None:
        self._warned = self._is_open = False
        try:
            self._last = self.open(run, parameters(run, rounds))
        except ImportError as error:
            raise ImportError(
                f"{type(self).__name__} needs its package: pip install {self.package} ({error})"
            ) from error
        self._is_open = True
        self._log_rows(run)

    def evaluated(self, run: Run) -> None:
        self._try(lambda: self._log_rows(run))

    def finished(self, run: Run, result: Result) -> None:
        numbers: dict[str, Any] = {}
        if result.is_certified or run.options.tol is not None:  # without tol no one has asked for it
            certificate = result.certificate
            numbers = {name: getattr(certificate, name) for name in ("gap", "relative_gap", "violation")}
            numbers |= {f"residual_{name}": getattr(certificate.residual, name) for name in ("primal", "dual")}
        numbers |= {"objective": result.objective, "rounds": result.rounds, **result.traffic.totals}
        self.evaluated(run)
        self._try(lambda: self.log(result.rounds, _finite({f"end/{name}": numbers[name] for name in numbers})))
        self._try(lambda: self.close(result.status))
        self._is_open = False

    def failed(self, run: Run, error: BaseException) -> None:
        if self._is_open:  # another callback may have failed before this one was started
            interrupted = isinstance(error, KeyboardInterrupt)
            self.evaluated(run)
            self._try(lambda: self.close("interrupted" if interrupted else f"failed: {type(error).__name__}: {error}"))
            self._is_open = False

    def _log_rows(self, run: Run) -> None:
        columns = {name: run.history[name].tolist() for name in run.history}
        for i, step in enumerate(columns.pop("round", [])):
            if step > self._last:
                self.log(int(step), _finite({name: column[i] for name, column in columns.items()}))
                self._last = step

    def _try(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as error:
            if not self._warned:
                what = f"{type(self).__name__} could not log ({type(error).__name__}: {error}); the run continues"
                warn(what, RuntimeWarning)
            self._warned = True


def _finite(values: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}


class TensorBoard(Logger):
    """Log a run as event files: ``fpdfp.solve(…, callbacks=[TensorBoard("logs/first")])``.

    Columns of the history are scalars against rounds, in single precision; parameters are in the HParams tab. A resumed
    run continues in its folder. A new run in the folder of another one replaces it.

    Parameters
    ----------
    folder
        The folder for event files, one for each run. Give the parent folder to ``tensorboard --logdir``.
    """

    package = "tensorboard"

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.is_file():
            raise ValueError(f"folder must be a folder, got the file {self.folder}")

    def open(self, run: Run, values: dict[str, str | int | float]) -> int:
        from tensorboard.compat.proto import event_pb2 as events
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        last = int(run.history["round"][-1]) if run.history.rows and any(self.folder.glob("events.out.*")) else -1
        self._writer, self._event = EventFileWriter(str(self.folder)), events.Event
        # A reader discards what earlier sessions logged from this step on.
        self._add(last + 1, session_log=events.SessionLog(status=events.SessionLog.START))
        self._add(last + 1, summary=hparams_pb(values, trial_id=self.folder.name))
        return last

    def log(self, step: int, values: dict[str, float]) -> None:
        self._add(step, summary={"value": [{"tag": tag, "simple_value": value} for tag, value in values.items()]})
        self._writer.flush()

    def close(self, status: str) -> None:
        self._writer.close()

    def _add(self, step: int, **what: Any) -> None:
        self._writer.add_event(self._event(wall_time=time.time(), step=step, **what))


class MLflow(Logger):
    """Log a run to MLflow: ``fpdfp.solve(…, callbacks=[MLflow("a9a", name="first")])``.

    Columns of the history are metrics whose step is the round. A run of MLflow that is active is used and left open.

    Parameters
    ----------
    experiment, name, tracking_uri
        The experiment, created if needed; the name of the run and the store, which MLflow chooses by default.
    run_id
        The id of a run to continue, for a run that is resumed. Afterwards the attribute is the id of the run.
    """

    package = "mlflow-skinny"

    def __init__(
        self, experiment: str = "fpdfp", name: Any = None, tracking_uri: Any = None, run_id: Any = None
    ) -> None:
        self.experiment, self.name, self.tracking_uri, self.run_id = experiment, name, tracking_uri, run_id
        for what, value in vars(self).items():
            if not (isinstance(value, str) and value) and not (value is None and what != "experiment"):
                raise TypeError(f"{what} must be a non-empty string, got {value!r}")
        self._given = run_id

    def open(self, run: Run, values: dict[str, str | int | float]) -> int:
        import mlflow

        self._mlflow, self._client = mlflow, mlflow.MlflowClient(tracking_uri=self.tracking_uri)
        active = mlflow.active_run() if self._given is None and self.tracking_uri is None else None
        self._owned, self.run_id = active is None, self._given if active is None else active.info.run_id
        if self.run_id is None:
            known = self._client.get_experiment_by_name(self.experiment)
            experiment = self._client.create_experiment(self.experiment) if known is None else known.experiment_id
            self.run_id = self._client.create_run(experiment, run_name=self.name).info.run_id
        self._client.update_run(self.run_id, status="RUNNING")
        last = max((metric.step for metric in self._client.get_metric_history(self.run_id, "objective")), default=-1)
        for key, value in values.items() if last < 0 else ():
            self._client.log_param(self.run_id, key, str(value)[:500])
        return last

    def log(self, step: int, values: dict[str, float]) -> None:
        metric, now = self._mlflow.entities.Metric, int(1000 * time.time())
        self._client.log_batch(self.run_id, [metric(name, value, now, step) for name, value in values.items()])

    def close(self, status: str) -> None:
        ends = {"interrupted": "KILLED", "diverged": "FAILED", "failed": "FAILED"}
        self._client.set_tag(self.run_id, "fpdfp.status", status[:500])
        if self._owned:
            self._client.set_terminated(self.run_id, ends.get(status.partition(":")[0], "FINISHED"))
