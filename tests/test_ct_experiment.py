"""The second experiment: its objective, its runs one by one, and its page."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.declarative import build as building
from fpdfp.declarative import pool
from fpdfp.declarative.build import build, solve_options
from fpdfp.declarative.runner import run_job
from fpdfp.declarative.scan import BuiltScan, fit_volume
from reproduce import ct, runs
from reproduce.__main__ import main
from reproduce.ct import CLIENTS, FEW_ROUNDS, LAMBDA, NOISE_VARIANCE, SEVERAL, lines_of, messages, plan
from reproduce.runs import Bench, Case, build_case, declare, space_out
from tests.test_projector import joseph

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "ct"
ROUNDS = 32
FEW: dict[str, Any] = {"device": "cpu", "rounds": ROUNDS, "seeds": 2}


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no files of figures, where only numbers and words are looked at: they take longer than all else."""
    monkeypatch.setattr(ct, "draw_all", lambda *_: [])


@pytest.fixture(scope="module")
def results(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("tiny")
    ct.reproduce("tiny", folder, **FEW)
    return folder


MICRO = {"data.shape": [6, 6, 4], "data.detector": [8, 6], "data.views": 34}


def micro() -> BuiltScan:
    made: BuiltScan = build_case("ct-tiny", MICRO)
    return made


@pytest.fixture(scope="module")
def matrix() -> Any:
    """Joseph's matrix as the textbook has it."""
    return joseph(micro().geometry, 2)


def test_the_objective_is_the_printed_one(matrix: Any) -> None:
    """Against Joseph's matrix, with voxels of side 1."""
    where = micro()
    truth = where.there.astype(np.float64)
    b = where.projections.astype(np.float64).ravel()
    noise = b - matrix @ truth.ravel()
    assert where.geometry.voxel == (1.0, 1.0, 1.0)
    assert noise.mean() == pytest.approx(0.0, abs=4 * np.sqrt(NOISE_VARIANCE / noise.size))
    assert noise.var() == pytest.approx(NOISE_VARIANCE, rel=4 * np.sqrt(2 / noise.size))
    x = np.random.default_rng(0).standard_normal(where.scan.volume).astype(np.float32)
    steps = [np.diff(x, axis=axis, append=x.take([-1], axis=axis)).astype(np.float64) for axis in range(3)]
    variation = np.sqrt(sum(step**2 for step in steps)).sum()
    wanted = 0.5 * np.sum((matrix @ x.ravel() - b) ** 2) + 1e-3 * variation
    assert where.problem.objective(x) == pytest.approx(wanted, rel=1e-5)
    # The total variation is a small part of that, so once more by itself.
    assert where.problem.penalty.value(where.problem.linop.apply(x)) == pytest.approx(1e-3 * variation, rel=1e-5)
    # f is the mean over clients of f_i = N times the sum over its rays; the step is one over the mean of their norms.
    rays = matrix.reshape(where.scan.views, -1, matrix.shape[1])
    norms = [np.linalg.norm(rays[where.owner == i].reshape(-1, matrix.shape[1]), 2) ** 2 for i in range(CLIENTS)]
    assert float(where.problem.lipschitz.mean()) == pytest.approx(CLIENTS * np.mean(norms), rel=0.02)
    assert (where.tv, LAMBDA) == (1e-3, 1 / 20)


def test_a_round_is_that_of_the_paper(matrix: Any, tmp_path: Path) -> None:
    """A run with exact messages, against Algorithm 4 over dense matrices in double precision."""
    where, bench = micro(), Bench("ct-tiny", tmp_path, MICRO, pool.bar())
    job = plan(bench, where, Case(5, None), 0, 3)
    run_job(job, progress=False)
    x = fpdfp.runs.load(job.folder).x
    assert x is not None
    shape = where.scan.volume
    rays = matrix.reshape(where.scan.views, -1, matrix.shape[1])
    b = where.projections.reshape(where.scan.views, -1).astype(np.float64)
    units = np.eye(144).reshape(*shape, 144)
    gradient = np.concatenate(
        [np.diff(units, axis=e, append=units.take([-1], axis=e)).reshape(144, 144) for e in range(3)]
    )
    gamma, own_x, own_v = job.settings["method"]["step"], np.zeros(144), np.zeros(3 * 144)
    for k in range(3):
        replies = []
        for i in fpdfp.rng.choose_clients(0, k, CLIENTS, 5):
            mine = where.owner == i
            rows = rays[mine].reshape(-1, 144)
            half = own_x - gamma * CLIENTS * rows.T @ (rows @ own_x - b[mine].ravel())
            point = LAMBDA / gamma * gradient @ half + own_v - LAMBDA * gradient @ (gradient.T @ own_v)
            lengths = np.linalg.norm(point.reshape(3, -1), axis=0)
            v = (point.reshape(3, -1) * np.minimum(1.0, where.tv / np.maximum(lengths, 1e-300))).ravel()
            replies.append((half - gamma * gradient.T @ v, v))
        own_x, own_v = (np.mean(part, axis=0) for part in zip(*replies, strict=True))
    np.testing.assert_allclose(x.ravel(), own_x, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("options", [["a9a", "--volume", "a.npy"], ["theory", "--data", "."], ["ct", "--jobs", "2"]])
def test_options_of_another_experiment_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(options)
    assert options[1] in capsys.readouterr().err


def test_help_names_the_experiments(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    said = capsys.readouterr().out
    for word in ("a9a", "covtype", "breast-cancer", "ct", "theory", "the same command continues"):
        assert word in said


def test_everything_is_there(results: Path) -> None:
    summary = json.loads((results / "results.json").read_text())
    assert len(summary["runs"]) == 2 * len(SEVERAL) + 3 + 2
    for name, one in summary["runs"].items():
        assert one["round"][-1] == (20 if name.startswith("ours") else ROUNDS)
        assert one["bits_up"] == sorted(one["bits_up"])
        assert one["psnr"][-1] > one["psnr"][0]
        assert one["slice_psnr"][-1] > one["slice_psnr"][0]
        assert one["objective"][-1] < one["objective"][0]
    assert summary["lowest"] <= summary["minimum"]["objective"]
    assert (summary["rounds"], summary["seeds"]) == (ROUNDS, 2)
    assert all(claim["verdict"] and claim["numbers"] for claim in summary["claims"])
    for name in summary["figures"]:
        assert (results / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    # Runs are folders as `fpdfp run` makes them.
    assert len(fpdfp.runs.find(results / "runs")) == len(summary["runs"])


@pytest.mark.usefixtures("undrawn")
def test_what_is_done_is_not_done_again(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(results, tmp_path / "copy")
    monkeypatch.setattr(runs, "work", lambda *_: pytest.fail("nothing is to be done"))
    summary = ct.reproduce("tiny", tmp_path / "copy", **FEW)
    assert summary is not None
    assert summary["runs"] == json.loads((results / "results.json").read_text())["runs"]


@pytest.mark.usefixtures("undrawn")
def test_runs_in_short_are_taken(results: Path, tmp_path: Path) -> None:
    """As docs/results has those of the paper's size: a file of numbers."""
    kept = json.loads((results / "results.json").read_text())["runs"]["n5-exact-seed0"]
    shutil.copytree(results, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "runs" / "n5-exact-seed0")
    (tmp_path / "copy" / "runs" / "n5-exact-seed0.json").write_text(json.dumps({**kept, "device": "elsewhere"}))
    summary = ct.reproduce("tiny", tmp_path / "copy", **FEW)
    assert "elsewhere" in summary["devices"]
    assert not (tmp_path / "copy" / "runs" / "n5-exact-seed0").exists()


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(results: Path, tmp_path: Path) -> None:
    bench = Bench("ct-tiny", tmp_path, {"data.device": "cpu"}, pool.bar())
    job = plan(bench, build_case("ct-tiny", {}), Case(5, 1000), 1, ROUNDS)

    class Stop(fpdfp.engines.Observer):
        def evaluated(self, run: fpdfp.Run) -> None:
            if run.round >= 5:
                raise KeyboardInterrupt

    built, options = build(job.settings), solve_options(job.settings)
    recorder = fpdfp.runs.Recorder(job.folder, built.problem, config=job.settings)
    with contextlib.suppress(KeyboardInterrupt):
        recorder.solve(seed=1, metrics=built.metrics, progress=False, callbacks=[Stop()], **options)
    assert fpdfp.runs.load(job.folder).info["status"] == "interrupted"
    assert runs.work(job) == (job.name, "finished")
    here, there = (fpdfp.runs.load(folder / job.name).history for folder in (tmp_path, results / "runs"))
    for name in runs.COLUMNS[:2]:
        np.testing.assert_array_equal(here[name], there[name])


def test_ctrl_c_ends_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runs, "run_job", lambda *_, **__: {"status": "interrupted"})
    assert main(["ct", "--size", "tiny", "--device", "cpu", "--output", str(tmp_path)]) == 130
    assert "the same command continues" in capsys.readouterr().err


def test_another_folder_is_needed_for_another_size(results: Path) -> None:
    with pytest.raises(ValueError, match="has results with size 'tiny', not 'small'"):
        ct.reproduce("small", results)


@pytest.mark.parametrize("size", list(FEW_ROUNDS))
def test_the_files_of_settings_are_the_rule(size: str) -> None:
    settings = declare(f"ct-{size}", {})
    assert settings["data"]["model"] == "printed"
    assert settings["split"]["clients"] == CLIENTS
    assert settings["method"]["lam"] == LAMBDA
    assert settings["data"]["noise"] ** 2 == pytest.approx(NOISE_VARIANCE)
    assert settings["run"]["clients_per_round"] == ct.PER_ROUND


def test_the_cases() -> None:
    assert [case.name for case in SEVERAL] == ["n5-exact", "n5-s1000", "n5-s500", "n2-s1000", "n17-s1000"]
    at = space_out(5600, 24, 32)
    assert {700, 1400, 2800, 5600} <= set(at)
    assert len(at) <= 60


def test_the_setting() -> None:
    where = build_case("ct-tiny", {})
    assert sorted(np.bincount(where.owner)) == [2] * CLIENTS
    assert where.there.max() == 1.0
    assert where.there.min() >= 0.0
    building._build.cache_clear()
    np.testing.assert_array_equal(build_case("ct-tiny", {}).projections, where.projections)
    assert where.psnr(where.there + np.float32(0.1)) == pytest.approx(20.0, abs=1e-3)


def test_the_other_scaling_does_not_depend_on_how_fine_the_panel_is() -> None:
    scan = build_case("ct-tiny", {"data.model": "mean"}).scan
    assert scan._replace(detector=(48, 32)).weight == pytest.approx(scan.weight / 4)


def test_a_volume_of_a_file(tmp_path: Path) -> None:
    grid = np.linspace(-1, 1, 32)
    ball = (grid[:, None, None] ** 2 + grid[None, :, None] ** 2 + grid**2 < 0.5).astype(np.float32) * 7.0
    np.save(tmp_path / "ball.npy", ball)
    where = build_case("ct-tiny", {"data.volume": str(tmp_path / "ball.npy")})
    assert where.there.shape == (16, 16, 8)
    assert where.there.max() == 1.0
    # Slices as thick as before: the ball is cut above and below, and round across z.
    middle = where.there[:, :, 4]
    np.testing.assert_allclose(middle, middle.T, atol=1e-6)
    assert middle.sum() == pytest.approx(np.pi * 0.5 * 64, rel=0.1)
    with pytest.raises(ValueError, match="same value everywhere"):
        fit_volume(np.ones((4, 4, 4)), (2, 2, 2))


def test_the_head(data_dir: Path) -> None:
    where = build_case("ct-tiny", {"data.volume": str(data_dir / "head.mat")})
    assert where.there.shape == (16, 16, 8)
    assert "head.mat" in where.source


def test_the_code_of_the_levels_is_as_short_as_any() -> None:
    bits, tiny = {}, build_case("ct-tiny", {})
    for codec in ("auto", ct.CODEC):
        sent = solve_options(declare("ct-tiny", messages(Case(5, 1000), codec)))["compressor"]
        result = fpdfp.solve(tiny.problem, fpdfp.FPDFP(lam=LAMBDA), rounds=8, clients_per_round=5, compressor=sent)
        bits[codec] = result.bits_up
    assert bits["auto"] <= bits[ct.CODEC] <= 1.001 * bits["auto"]


def test_a_device_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fpdfp.ct.device import missing_gpu

    if missing_gpu() is None:
        pytest.skip("there is a GPU")
    assert main(["ct", "--device", "cuda", "--output", str(tmp_path)]) == 1
    assert "needs a GPU" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(file.parent.name for file in RESULTS.glob("*/results.json")))
def test_committed_verdicts_are_what_the_numbers_say(name: str) -> None:
    summary = json.loads((RESULTS / name / "results.json").read_text())
    assert ct.judge(lines_of(summary["runs"])) == summary["claims"]
