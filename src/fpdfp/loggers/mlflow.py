"""MLflow."""

from __future__ import annotations

import time
from typing import Any

from fpdfp import _checks
from fpdfp.engines import Result, Run
from fpdfp.loggers.base import Logger
from fpdfp.loggers.described import outcome

#: MLflow's status of runs that did not end normally.
STATUS = {"interrupted": "KILLED", "diverged": "FAILED"}
#: The longest value of a parameter or a tag that every store takes.
LONGEST = 500


class MLflow(Logger):
    """Log a run to MLflow: ``fpdfp.solve(…, callbacks=[MLflow("a9a", name="first")])``.

    Every column of the history is a metric whose step is the round, hyper-parameters are parameters, and the
    certificate is in metrics that begin with ``end.``. If a run of MLflow is active (``with mlflow.start_run(): …``),
    the logger writes to it and leaves it open.

    A resumed run continues the run of the same name in the experiment, and no row is logged twice.

    Parameters
    ----------
    experiment
        The name of the experiment, which is created if needed.
    name
        The name of the run, by which it is found when it is resumed; by default MLflow chooses one.
    tracking_uri
        Where MLflow keeps runs; by default MLflow's own setting (``MLFLOW_TRACKING_URI``).
    run_id
        The id of a run to log to.
    tags
        Tags of the run, strings by name.

    Attributes
    ----------
    run_id
        The id of the run that is logged to, once there is one.

    Examples
    --------
    >>> MLflow("a9a", name="first")
    MLflow('a9a', name='first')
    """

    def __init__(
        self,
        experiment: str = "fpdfp",
        *,
        name: str | None = None,
        tracking_uri: str | None = None,
        run_id: str | None = None,
        tags: dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        given = {"experiment": experiment, "name": name, "tracking_uri": tracking_uri, "run_id": run_id}
        for what, value in given.items():
            if not (value is None and what != "experiment") and not (isinstance(value, str) and value):
                raise TypeError(f"{what} must be a non-empty string, got {value!r}")
        if name is not None and "'" in name and '"' in name:
            raise ValueError(f"name must not have both kinds of quotes, since MLflow cannot find it then, got {name!r}")
        if tags is not None and not isinstance(tags, dict):
            raise TypeError(f"tags must be a dictionary of strings, got {_checks.kind(tags)}")
        self.experiment = experiment
        self.name = name
        self.tracking_uri = tracking_uri
        self.run_id = run_id
        self.tags = {str(key): str(value) for key, value in (tags or {}).items()}
        self._given_id = run_id
        self._client: Any = None
        self._last = -1
        self._owned = True

    def __repr__(self) -> str:
        return f"MLflow({self.experiment!r}" + (f", name={self.name!r})" if self.name is not None else ")")

    def open(self, run: Run, values: dict[str, str | int | float]) -> int:
        try:
            import mlflow
            from mlflow.entities import Param, RunTag
        except ImportError as error:
            raise ImportError(f"logging to MLflow needs its package: pip install mlflow-skinny ({error})") from error
        self._client = mlflow.MlflowClient(tracking_uri=self.tracking_uri)
        active = mlflow.active_run() if self._given_id is None and self.tracking_uri is None else None
        self._owned = active is None
        found = self._given_id or (active.info.run_id if active is not None else None)
        if found is None and run.history.rows:
            found = self._earlier()
        if found is None:
            self.run_id = self._client.create_run(self._experiment_id(), run_name=self.name).info.run_id
            self._last = -1
        else:
            self.run_id = found
            self._last = max(
                (metric.step for metric in self._client.get_metric_history(found, "objective")), default=-1
            )
            if self._owned:
                self._client.update_run(found, status="RUNNING")
        if self._last < 0:
            params = [Param(key, str(value)[:LONGEST]) for key, value in values.items()]
            tags = [RunTag(key, value) for key, value in self.tags.items()]
            self._client.log_batch(self.run_id, params=params, tags=tags)
        return 0

    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(self.experiment)
        made: str = self._client.create_experiment(self.experiment) if found is None else found.experiment_id
        return made

    def _earlier(self) -> str | None:
        """Return the latest run of this name, for one that is resumed."""
        if self.name is None:
            return None
        quote = '"' if "'" in self.name else "'"
        named = f"attributes.run_name = {quote}{self.name}{quote}"
        runs = self._client.search_runs([self._experiment_id()], named, order_by=["attributes.start_time DESC"])
        return runs[0].info.run_id if runs else None

    def log(self, row: dict[str, float]) -> None:
        step = int(row["round"])
        if step > self._last:
            self._metrics({name: value for name, value in row.items() if name != "round"}, step)
            self._last = step

    def _metrics(self, values: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(name, float(value), now, step) for name, value in values.items()]
        self._client.log_batch(self.run_id, metrics=metrics)

    def close(self, result: Result) -> None:
        self._metrics({f"end.{name}": value for name, value in outcome(result).items()}, result.rounds)
        self._tag("fpdfp.status", result.status)
        self._tag("fpdfp.message", result.message)
        self._stop(STATUS.get(result.status, "FINISHED"))

    def abandon(self, error: BaseException) -> None:
        self._tag("fpdfp.status", "failed")
        self._tag("fpdfp.message", f"{type(error).__name__}: {error}")
        self._stop("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")

    def _tag(self, key: str, value: str) -> None:
        self._client.set_tag(self.run_id, key, value[:LONGEST])

    def _stop(self, status: str) -> None:
        if self._owned:
            self._client.set_terminated(self.run_id, status)
