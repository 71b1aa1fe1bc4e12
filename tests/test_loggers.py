"""Loggers against what TensorBoard and MLflow themselves read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import loggers
from fpdfp.engines.result import SENT

# Before MLflow is loaded: tests tell nobody of themselves, and its plain files are enough for them.
os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}

COLUMNS = {"objective", *SENT, "step", "seconds", "size"}


def problem() -> fpdfp.Problem:
    generator = np.random.default_rng(0)
    X = generator.standard_normal((40, 6))
    losses = fpdfp.losses.LeastSquares(X, X @ np.arange(6.0), clients=np.arange(40) % 4, l2=0.1)
    return fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(6))


def solve(*callbacks: Any, rounds: int = 12, **options: Any) -> fpdfp.Result:
    given: dict[str, Any] = {
        "clients_per_round": 2,
        "evaluate_every": 3,
        "metrics": {"size": lambda x: float(np.abs(x).sum())},
        "callbacks": callbacks,
    }
    return fpdfp.solve(problem(), fpdfp.FPDFP(), rounds=rounds, **(given | options))


# TensorBoard


def events(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return read


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events(folder).Scalars(tag)]


def test_tensorboard_reads_the_history(tmp_path: Path) -> None:
    result = solve(loggers.TensorBoard(tmp_path / "run"))
    tags = set(events(tmp_path / "run").Tags()["scalars"])
    assert {tag for tag in tags if not tag.startswith("end/")} == COLUMNS
    for name in COLUMNS:
        steps, values = zip(*scalars(tmp_path / "run", name), strict=True)
        np.testing.assert_array_equal(steps, result.history["round"])
        np.testing.assert_allclose(values, result.history[name], rtol=1e-6)


def test_tensorboard_reads_the_certificate_and_the_hyperparameters(tmp_path: Path) -> None:
    from tensorboard.plugins.hparams import plugin_data_pb2

    result = solve(loggers.TensorBoard(tmp_path))
    ((step, objective),) = scalars(tmp_path, "end/objective")
    assert step == 12
    assert objective == pytest.approx(result.objective, rel=1e-6)
    assert not result.is_certified
    content = events(tmp_path).SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    started = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert started["method"].string_value == "FPDFP"
    assert started["seed"].number_value == 0
    assert started["clients_per_round"].number_value == 2
    assert started["penalty"].string_value == "L1(0.1)"
    assert "method.local_steps" in started


def test_a_resumed_run_goes_on_in_its_folder(tmp_path: Path) -> None:
    def crash(run: fpdfp.Run) -> None:
        if run.round == 8:
            (tmp_path / "kept.npz").write_bytes((tmp_path / "run.npz").read_bytes())
            raise RuntimeError("the power is off")

    folder = tmp_path / "log"
    how: dict[str, Any] = {"checkpoint": tmp_path / "run.npz", "checkpoint_every": 5}
    with pytest.raises(RuntimeError, match="the power is off"):
        solve(loggers.TensorBoard(folder), crash, **how)
    assert [step for step, _ in scalars(folder, "objective")] == [0, 3, 6]
    # The checkpoint of round 5 does not know of round 6.
    resumed = solve(loggers.TensorBoard(folder), checkpoint=tmp_path / "kept.npz", resume=True)
    whole = solve()
    steps, values = zip(*scalars(folder, "objective"), strict=True)
    assert steps == (0, 3, 6, 9, 12)
    np.testing.assert_allclose(values, whole.history.objective, rtol=1e-6)
    np.testing.assert_array_equal(resumed.x, whole.x)


def test_a_resumed_run_in_a_new_folder_has_the_whole_history(tmp_path: Path) -> None:
    solve(rounds=6, checkpoint=tmp_path / "run.npz")
    solve(loggers.TensorBoard(tmp_path / "log"), checkpoint=tmp_path / "run.npz", resume=True)
    assert [step for step, _ in scalars(tmp_path / "log", "objective")] == [0, 3, 6, 9, 12]


def test_a_new_run_takes_the_place_of_another(tmp_path: Path) -> None:
    logger = loggers.TensorBoard(tmp_path)
    solve(logger)
    solve(logger, rounds=4)
    assert [step for step, _ in scalars(tmp_path, "objective")] == [0, 3, 4]


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    with pytest.raises(ValueError, match="folder must be a folder, got the file"):
        loggers.TensorBoard(tmp_path / "log")


PROGRAM = """
import os, sys, time
import numpy as np, fpdfp
from fpdfp import loggers
losses = fpdfp.losses.LeastSquares(np.eye(4), np.arange(4.0), clients=[0, 1, 0, 1])
def told(run):
    if run.round == 3:
        print("running", flush=True)
    time.sleep(0.01)
result = fpdfp.solve(fpdfp.Problem(losses, fpdfp.penalties.L1(0.1)), fpdfp.FPDFP(), rounds=100_000, evaluate_every=1,
                     callbacks=[told, loggers.TensorBoard(sys.argv[1])], progress=False)
print(result.status, result.rounds)
"""


def test_ctrl_c_closes_the_log_with_all_rows(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    status, rounds = process.communicate(timeout=60)[0].split()
    assert status == "interrupted"
    assert [step for step, _ in scalars(tmp_path, "objective")] == list(range(int(rounds) + 1))
    assert scalars(tmp_path, "end/rounds") == [(int(rounds), float(rounds))]


# MLflow


@pytest.fixture
def client(tmp_path: Path) -> Any:
    mlflow = pytest.importorskip("mlflow", reason="needs MLflow")
    return mlflow.MlflowClient(tracking_uri=(tmp_path / "store").as_uri())


def logger_of(client: Any, **options: Any) -> loggers.MLflow:
    return loggers.MLflow("trials", tracking_uri=client.tracking_uri, **options)


def steps(client: Any, logger: loggers.MLflow, name: str = "objective") -> list[int]:
    return sorted(metric.step for metric in client.get_metric_history(logger.run_id, name))


def test_mlflow_reads_the_history_the_parameters_and_the_certificate(client: Any) -> None:
    logger = logger_of(client, name="first")
    result = solve(logger)
    run = client.get_run(logger.run_id)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "first")
    assert client.get_experiment(run.info.experiment_id).name == "trials"
    assert {name for name in run.data.metrics if not name.startswith("end/")} == COLUMNS
    for name in COLUMNS:
        read = sorted((metric.step, metric.value) for metric in client.get_metric_history(logger.run_id, name))
        assert read == list(zip(result.history["round"].tolist(), result.history[name].tolist(), strict=True))
    assert "end/relative_gap" not in run.data.metrics  # a run without tol is not certified for its log
    assert run.data.metrics["end/bits_up"] == result.bits_up
    assert run.data.metrics["end/total_up"] == result.total_up
    assert run.data.params["method"] == "FPDFP"
    assert run.data.params["seed"] == "0"
    assert run.data.tags["fpdfp.status"] == "finished"


def test_mlflow_continues_the_run_of_an_id(client: Any, tmp_path: Path) -> None:
    first = logger_of(client)
    solve(first, rounds=6, checkpoint=tmp_path / "run.npz")
    again = logger_of(client, run_id=first.run_id)
    solve(again, checkpoint=tmp_path / "run.npz", resume=True)
    assert again.run_id == first.run_id
    assert steps(client, again) == [0, 3, 6, 9, 12]
    assert client.get_run(again.run_id).info.status == "FINISHED"
    other = logger_of(client)
    solve(other, checkpoint=tmp_path / "run.npz", resume=True)
    assert other.run_id != first.run_id
    assert steps(client, other) == [0, 3, 6, 9, 12]


def test_a_new_run_is_a_new_run_of_mlflow(client: Any) -> None:
    logger = logger_of(client, name="one")
    solve(logger, rounds=3)
    before = logger.run_id
    solve(logger, rounds=3)
    assert logger.run_id != before
    assert steps(client, logger) == [0, 3]


def test_mlflow_is_told_how_a_run_ended(client: Any) -> None:
    def fail(run: fpdfp.Run) -> None:
        raise RuntimeError("no more")

    logger = logger_of(client)
    with pytest.raises(RuntimeError, match="no more"):
        solve(logger, fail)
    run = client.get_run(logger.run_id)
    assert (run.info.status, run.data.tags["fpdfp.status"]) == ("FAILED", "failed: RuntimeError: no more")
    assert steps(client, logger) == [0]

    def interrupt(run: fpdfp.Run) -> None:
        if run.round == 4:
            signal.raise_signal(signal.SIGINT)

    result = solve(logger, interrupt)
    assert result.status == "interrupted"
    assert client.get_run(logger.run_id).info.status == "KILLED"
    assert steps(client, logger) == [0, 3, result.rounds]
    with pytest.warns(fpdfp.errors.DivergenceWarning), pytest.warns(fpdfp.errors.StepTooLargeWarning):
        fpdfp.solve(problem(), fpdfp.FPDFP(step=1e6), rounds=30, callbacks=[logger])
    assert client.get_run(logger.run_id).info.status == "FAILED"


def test_a_run_of_mlflow_that_is_active_is_left_open(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", client.tracking_uri)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(client.tracking_uri)
    try:
        with mlflow.start_run() as active:
            logger = loggers.MLflow()
            solve(logger, rounds=3)
            assert logger.run_id == active.info.run_id
            assert client.get_run(logger.run_id).info.status == "RUNNING"
        assert client.get_run(logger.run_id).info.status == "FINISHED"
    finally:
        mlflow.set_tracking_uri(before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"experiment": ""}, "experiment must be a non-empty string, got ''"),
        ({"name": 3}, "name must be a non-empty string, got 3"),
        ({"tracking_uri": ""}, "tracking_uri must be a non-empty string, got ''"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        loggers.MLflow(**arguments)


# Both


@pytest.mark.parametrize(
    ("name", "kind", "command"),
    [
        ("tensorboard", lambda: loggers.TensorBoard("never"), "pip install tensorboard"),
        ("mlflow", loggers.MLflow, "pip install mlflow-skinny"),
    ],
)
def test_a_missing_package_says_how_to_get_it(
    name: str, kind: Any, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in list(sys.modules):
        if module.split(".")[0] == name:
            monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=command):
        solve(kind())
    assert list(tmp_path.iterdir()) == []


def test_trouble_with_a_log_does_not_end_a_run(tmp_path: Path) -> None:
    class Away(loggers.TensorBoard):
        away = True

        def log(self, step: int, values: dict[str, float]) -> None:
            if self.away and step > 0:
                self.away = step < 9
                raise OSError("no route to host")
            super().log(step, values)

        def evaluated(self, run: fpdfp.Run) -> None:
            self.away = 0 < run.round < 9
            super().evaluated(run)

    with pytest.warns(
        RuntimeWarning, match=r"Away could not log \(OSError: no route to host\); the run continues"
    ) as told:
        result = solve(Away(tmp_path))
    assert len(told) == 1
    assert result.status == "finished"
    # What could not be logged is logged later.
    assert [step for step, _ in scalars(tmp_path, "objective")] == [0, 3, 6, 9, 12]


def test_two_loggers_get_along(client: Any, tmp_path: Path) -> None:
    mlflow = logger_of(client)
    solve(mlflow, loggers.TensorBoard(tmp_path / "log"))
    assert steps(client, mlflow) == [step for step, _ in scalars(tmp_path / "log", "objective")] == [0, 3, 6, 9, 12]
