"""The folders of runs: what is written, when, and how it is read back."""

from __future__ import annotations

import errno
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp._sections import plain
from fpdfp.errors import RunFolderError, StorageError
from fpdfp.report.describe import describe
from fpdfp.runs import Recorder, find, linear_model, load, toml
from tests import helpers
from tests.loopback import Loopback

ROUNDS = 24


def recorded(folder: Path, **options: Any) -> tuple[fpdfp.Result, fpdfp.runs.SavedRun]:
    problem = helpers.graph_guided(clients=6)
    result = Recorder(folder, problem).solve(fpdfp.FPDFP(), rounds=ROUNDS, evaluate_every=4, **options)
    return result, load(folder)


def test_a_folder_has_what_the_run_had(tmp_path: Path) -> None:
    result, run = recorded(tmp_path / "first", seed=3)
    names = sorted(file.name for file in run.path.iterdir())
    assert names == [
        "best.npz", "checkpoint.npz", "config.toml", "final.npz", "history.csv", "model.json", "run.json",
    ]  # fmt: skip
    np.testing.assert_array_equal(run.x, result.x)
    np.testing.assert_array_equal(run.v, result.v)
    assert list(run.history) == list(result.history)
    for name in result.history:
        np.testing.assert_array_equal(run.history[name], result.history[name])
        assert run.history[name].dtype == result.history[name].dtype
    info = run.info
    assert (info["format"], info["name"], info["status"], info["seed"]) == (1, "first", "finished", 3)
    assert info["rounds"] == info["planned_rounds"] == ROUNDS
    assert info["bits_up"] == result.bits_up
    assert (info["total_up"], info["total_down"]) == (result.total_up, result.total_down)
    assert fpdfp.traffic.Traffic(info["traffic"]) == result.traffic
    assert info["objective"] == result.objective
    assert info["certificate"] is None  # nobody has asked for it
    assert info["kind"] == "linear"
    assert info["created"] <= info["ended"]
    assert set(info["versions"]) == {"fpdfp", "python", "numpy", "scipy", "numba", "platform"}
    assert run.config["run"]["clients_per_round"] == 6


def test_clients_say_what_they_hold(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 4)), np.arange(30) % 3 == 0
    losses = fpdfp.losses.Logistic(X, y, clients=np.repeat(["east", "west"], [10, 20]), l2=0.1)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.01), weights="samples")
    graph = fpdfp.datasets.as_graph([(0, 1, 0.5)], 3)
    model = linear_model(["a", "b", "c", "one"], intercept=3, graph=graph, classes=["ill", "well"])
    Recorder(tmp_path, problem, model=model).solve(rounds=2)
    run = load(tmp_path)
    assert run.info["clients"] == [
        {"name": "east", "samples": 10, "share": pytest.approx(1 / 3), "labels": {"ill": 6, "well": 4}},
        {"name": "west", "samples": 20, "share": pytest.approx(2 / 3), "labels": {"ill": 14, "well": 6}},
    ]
    assert run.model == model


def test_the_best_is_the_least_objective(tmp_path: Path) -> None:
    problem = helpers.graph_guided(clients=6)
    options: dict[str, Any] = {"rounds": ROUNDS, "clients_per_round": 2, "compressor": fpdfp.QSGD(1), "seed": 1}
    seen: dict[int, Any] = {}

    class Keep(fpdfp.engines.Observer):
        def evaluated(self, run: fpdfp.Run) -> None:
            seen[run.round] = run.x.copy()

    result = Recorder(tmp_path, problem).solve(fpdfp.FPDFP(step=2.0), callbacks=[Keep()], **options)
    best = load(tmp_path).best
    assert best is not None
    assert best.objective == result.history.objective.min()
    assert best.round == result.history.round[result.history.objective.argmin()]
    np.testing.assert_array_equal(best.x, seen[best.round])


def test_every_evaluation_is_on_disk_at_once_and_files_are_whole(tmp_path: Path) -> None:
    rows, states = [], set()

    class Look(fpdfp.engines.Observer):
        def __call__(self, run: fpdfp.Run) -> None:
            saved = load(tmp_path)
            rows.append((run.round, saved.history.round[-1]))
            states.add(saved.info["status"])

    problem = helpers.graph_guided(clients=6)
    recorder = Recorder(tmp_path, problem)
    recorder.solve(fpdfp.FPDFP(), rounds=10, evaluate_every=2, callbacks=[Look()])
    assert rows == [(k, k - k % 2) for k in range(1, 11)]
    assert states == {"running"}
    assert not list(tmp_path.glob(".*"))


def test_options_go_to_solve_as_well(tmp_path: Path) -> None:
    problem = helpers.graph_guided(clients=6)
    result = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=5, **Recorder(tmp_path, problem).options())
    np.testing.assert_array_equal(load(tmp_path).x, result.x)


def test_what_sites_did_is_kept_over_processes(tmp_path: Path) -> None:
    """A run that goes on with another engine counts on, and one with the same engine counts nothing twice."""
    original = helpers.graph_guided(clients=6)

    def go(engine: Loopback, folder: str, rounds: int) -> list[dict[str, Any]]:
        problem = fpdfp.Problem(engine.losses(), original.penalty, original.linop)
        Recorder(tmp_path / folder, problem).solve(fpdfp.FPDFP(), rounds=rounds, resume=True)
        return list(load(tmp_path / folder).info["sites"])

    engine = Loopback(original, sites=3)
    first, same = go(engine, "one", 5), go(engine, "one", 10)
    others = [go(Loopback(original, sites=3), "two", rounds) for rounds in (5, 10, 15)]
    for site in range(3):
        # Another engine finds sites that do not know the run, and tells them.
        assert [one[site]["healed"] for one in (first, same, *others)] == [0, 0, 0, 1, 2]
        # Ten rounds are twice five; with those of the first five counted twice there would be three times as many.
        assert 2 * first[site]["asked"] <= same[site]["asked"] < 2.5 * first[site]["asked"]


def test_sites_say_how_they_answered(tmp_path: Path) -> None:
    def trouble(site: int, request: dict[str, Any], reply: bytes) -> bytes | None:
        if site == 1 and request.get("update", {}).get("round") == 2:
            return None
        return reply[:-1] if site == 0 and request.get("update", {}).get("round") == 3 else reply

    engine = Loopback(helpers.graph_guided(clients=6), sites=3, trouble=trouble)
    original = helpers.graph_guided(clients=6)
    problem = fpdfp.Problem(engine.losses(), original.penalty, original.linop)
    Recorder(tmp_path / "run", problem).solve(fpdfp.FPDFP(), rounds=5, engine=engine)
    info = load(tmp_path / "run").info
    assert [site["name"] for site in info["sites"]] == list(engine.names)
    assert [site["absent"] for site in info["sites"]] == [0, 1, 0]
    assert [site["refused"] for site in info["sites"]] == [1, 0, 0]
    assert "checksum" in info["sites"][0]["last_refusal"]
    for site in info["sites"]:
        assert site["asked"] == site["answered"] + site["absent"] + site["healed"] + site["refused"]
    assert info["elapsed"] > info["seconds"] > 0
    described = describe(tmp_path / "run")
    assert [site["refused"] for site in described["sites"]] == [1, 0, 0]
    assert described["elapsed"] == info["elapsed"]


def test_a_run_that_is_stopped_and_goes_on_leaves_the_files_of_one_that_was_not(tmp_path: Path) -> None:
    problem = helpers.graph_guided(clients=6)
    options: dict[str, Any] = {"clients_per_round": 3, "compressor": fpdfp.QSGD(3), "evaluate_every": 4}

    def interrupt(run: fpdfp.Run) -> None:
        if run.round == 9:
            raise KeyboardInterrupt

    Recorder(tmp_path / "whole", problem).solve(fpdfp.FPDFP(), rounds=ROUNDS, **options)
    with pytest.raises(KeyboardInterrupt):
        Recorder(tmp_path / "parts", problem).solve(fpdfp.FPDFP(), rounds=ROUNDS, callbacks=[interrupt], **options)
    part = load(tmp_path / "parts")
    assert part.info["status"] == "interrupted"
    assert part.v is None
    assert part.x is not None
    created = part.info["created"]
    Recorder(tmp_path / "parts", problem).solve(fpdfp.FPDFP(), rounds=ROUNDS, resume=True, **options)
    for name in ("final.npz", "best.npz"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert load(tmp_path / "parts").info["created"] == created
    whole, parts = (load(tmp_path / name).history for name in ("whole", "parts"))
    for name in set(whole) - {"seconds"}:
        np.testing.assert_array_equal(whole[name], parts[name])


def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    def fail(run: fpdfp.Run) -> None:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        recorded(tmp_path, callbacks=[fail])
    info = load(tmp_path).info
    assert (info["status"], info["message"]) == ("failed", "RuntimeError: no more")


def test_a_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path)
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(FileExistsError, match="resume=True"):
        recorded(tmp_path)
    assert (tmp_path / "run.json").read_bytes() == before


def test_what_another_run_has_left_is_not_mixed_in(tmp_path: Path) -> None:
    recorded(tmp_path)
    (tmp_path / "run.json").unlink()
    (tmp_path / "checkpoint.npz").unlink()
    (tmp_path / ".run.json.1.tmp").write_text("torn")
    problem = helpers.graph_guided(clients=6)

    def look(run: fpdfp.Run) -> None:
        assert load(tmp_path).history.rows == 2
        assert load(tmp_path).v is None

    Recorder(tmp_path, problem).solve(fpdfp.FPDFP(), rounds=1, callbacks=[look])
    assert not list(tmp_path.glob(".*.tmp"))


def test_parquet_where_it_is_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    problem = helpers.graph_guided(clients=6)
    result = Recorder(tmp_path, problem, history="parquet").solve(fpdfp.FPDFP(), rounds=5)
    assert not (tmp_path / "history.csv").exists()
    history = load(tmp_path).history
    for name in result.history:
        np.testing.assert_array_equal(history[name], result.history[name])


def test_a_frame_has_the_relative_error(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    problem = helpers.graph_guided(clients=6)
    best = fpdfp.minimize(problem)
    Recorder(tmp_path, problem, reference=best).solve(fpdfp.FPDFP(), rounds=5)
    frame = load(tmp_path).frame()
    expected = frame["objective"] / best.objective - 1
    np.testing.assert_allclose(frame["relative_error"], expected, rtol=1e-9)


def test_a_ct_run_keeps_its_truth(tmp_path: Path) -> None:
    scan = fpdfp.ct.ConeBeam.circular((8, 8, 4), (12, 8), views=6, source=30.0, panel=45.0)
    truth = np.ones((8, 8, 4))
    losses = fpdfp.ct.ProjectionLosses(fpdfp.ct.XRayTransform(scan).apply(truth), scan, clients=[0, 1] * 3, l2=0.1)
    problem = fpdfp.Problem(losses, fpdfp.penalties.GroupL12(0.01, axis=0), fpdfp.linops.Gradient((8, 8, 4)))
    Recorder(tmp_path, problem, truth=truth, voxel=0.5).solve(fpdfp.FPDFP(), rounds=2)
    run = load(tmp_path)
    assert run.info["kind"] == "ct"
    assert run.model is None
    assert run.truth is not None
    assert run.truth.dtype == np.float32
    np.testing.assert_array_equal(run.truth, truth)
    assert run.voxel == 0.5


def test_many_clients_are_not_all_written_down(tmp_path: Path) -> None:
    losses = fpdfp.losses.LeastSquares(np.ones((1500, 1)), np.ones(1500), clients=np.arange(1500), l2=0.1)
    Recorder(tmp_path, fpdfp.Problem(losses, fpdfp.penalties.L1(0.1))).solve(rounds=1)
    info = load(tmp_path).info
    assert (len(info["clients"]), info["clients_in_all"]) == (1000, 1500)


def test_json_is_strict() -> None:
    text = json.dumps(plain({"a": np.float64("nan"), "b": np.arange(2), "c": [float("inf")]}), allow_nan=False)
    assert json.loads(text) == {"a": None, "b": [0, 1], "c": [None]}


def test_settings_come_back_from_toml() -> None:
    settings = {
        "name": 'a "name"\n\x7f', "empty": [], "on": True, "big": 10**12, "small": 1e-300, "far": float("inf"),
        "split": {"kind": "iid", "odd key": [1, 2.5], "deep": {"er": "\\"}}, "nothing": {},
        "list": [{"a": 1}],
    }  # fmt: skip
    assert tomllib.loads(toml.dumps(settings)) == settings


def test_runs_are_found_under_folders_files_and_themselves(tmp_path: Path) -> None:
    for name in ("b/seed-10", "b/seed-2", "a"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.json").write_text('{"format": 1}')
    expected = [tmp_path / "a", tmp_path / "b/seed-2", tmp_path / "b/seed-10"]
    assert find(tmp_path) == expected
    assert find([tmp_path / "a" / "run.json", tmp_path]) == expected
    assert find(tmp_path / "a") == expected[:1]
    with pytest.raises(RunFolderError, match="does not exist"):
        find(tmp_path / "c")


def test_what_is_no_run_or_damaged_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"no run\.json"):
        load(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunFolderError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(RunFolderError, match="format"):
        load(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 1}')
    (tmp_path / "final.npz").write_text("torn")
    (tmp_path / "history.csv").write_text("round,objective\n1\n")
    run = load(tmp_path)
    for read in (lambda: run.x, lambda: run.history):
        with pytest.raises(RunFolderError, match="cannot be read"):
            read()


def test_a_full_disk_leaves_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def full(self: Path, target: Any) -> Path:
        if target == tmp_path / "history.csv" and target.exists() and len(target.read_text().splitlines()) == 7:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StorageError, match=r"history\.csv could not be written .* the old files are intact"):
        Recorder(tmp_path, helpers.graph_guided(clients=6)).solve(fpdfp.FPDFP(), rounds=20, evaluate_every=1)
    assert load(tmp_path).history.round.tolist() == [0, 1, 2, 3, 4, 5]
    assert not list(tmp_path.glob(".*"))
    monkeypatch.undo()
    Recorder(tmp_path, helpers.graph_guided(clients=6)).solve(fpdfp.FPDFP(), rounds=20, evaluate_every=1, resume=True)
    assert load(tmp_path).history.rows == 21


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"history": "xlsx"}, "history must be one of 'csv', 'parquet'"),
        ({"reference": "small"}, "reference must be a finite number"),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Recorder(tmp_path, helpers.graph_guided(clients=6), **given)
    with pytest.raises(TypeError, match="problem must be"):
        Recorder(tmp_path, None)
