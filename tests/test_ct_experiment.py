"""The second experiment as the paper prints it: its objective, its runs one by one, and its page."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.declarative import pool
from fpdfp.declarative.build import build, solve_options
from fpdfp.declarative.runner import run_job
from fpdfp.declarative.scan import Scan
from fpdfp.declarative.settings import PRINTED
from reproduce import ct, runs
from reproduce.__main__ import main
from reproduce.ct import (
    CLIENTS,
    LAMBDA,
    NOISE_VARIANCE,
    SEVERAL,
    SIZES,
    Size,
    evaluations,
    lines_of,
    messages,
    plan,
)
from reproduce.runs import Bench, Case, declare
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


MICRO = Size("micro", Scan(PRINTED, (6, 6, 4), (8, 6), 34), 8, 4)
TINY = SIZES[PRINTED, "tiny"]


@pytest.fixture(scope="module")
def matrix() -> Any:
    """Joseph's matrix as the textbook has it."""
    return joseph(MICRO.build().geometry, 2)


def test_the_objective_is_the_printed_one(matrix: Any) -> None:
    """Against Joseph's matrix, with voxels of side 1."""
    where = MICRO.build()
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
    where, bench = MICRO.build(), Bench("ct", tmp_path, MICRO.declare(), pool.bar())
    job = bench.job(plan(where, Case(5, None), 0, 3, None))
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


def test_the_default_is_the_printed_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(ct, "reproduce", lambda **options: ran.append(options["model"]))
    for options in ([], ["--model", "printed"], ["--model", "mean"]):
        assert main(["ct", "--output", str(tmp_path), *options]) == 0
    assert ran == ["printed", "printed", "mean"]


@pytest.mark.parametrize("options", [["a9a", "--only", "n5-exact"], ["theory", "--data", "."], ["ct", "--jobs", "2"]])
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
    assert summary["missing"] == []
    assert len(summary["runs"]) == 2 * len(SEVERAL) + 3 + 2
    for name, one in summary["runs"].items():
        assert one["round"][-1] == (20 if name.startswith("ours") else ROUNDS)
        assert one["bits_up"] == sorted(one["bits_up"])
        assert one["psnr"][-1] > one["psnr"][0]
        assert one["slice_psnr"][-1] > one["slice_psnr"][0]
        assert one["objective"][-1] < one["objective"][0]
    assert summary["lowest"] <= summary["minimum"]["objective"]
    page = (results / "claims.md").read_text()
    assert "Runs that are missing" not in page
    assert f"--rounds {ROUNDS} --seeds 2" in page
    for claim in summary["claims"]:
        assert claim["claim"] in page
        assert claim["verdict"] in page
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
def test_a_page_of_what_is_there_says_what_is_missing(results: Path, tmp_path: Path) -> None:
    for name in ("n5-exact-seed0", "n5-s1000-seed0"):
        shutil.copytree(results / "runs" / name, tmp_path / "runs" / name)
    summary = ct.reproduce("tiny", tmp_path, page=True, **FEW)
    assert summary is not None
    assert "n5-s500-seed0" in summary["missing"]
    assert {claim["verdict"] for claim in summary["claims"][:6]} == {"not judged"}
    assert "n5-s500-seed0" in (tmp_path / "claims.md").read_text().split("Runs that are missing here: ")[1]
    with pytest.raises(ValueError, match="holds a run with other settings"):
        ct.reproduce("tiny", tmp_path, page=True, device="cpu", rounds=10)
    with pytest.raises(ValueError, match="runs of 64 rounds"):
        ct.reproduce("tiny", tmp_path / "empty", page=True, device="cpu")


@pytest.mark.usefixtures("undrawn")
def test_runs_in_short_are_taken(results: Path, tmp_path: Path) -> None:
    """As docs/results has those of the paper's size: a file of numbers, and one with the slice."""
    kept = json.loads((results / "results.json").read_text())["runs"]["n5-exact-seed0"]
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "n5-exact-seed0.json").write_text(json.dumps({**kept, "device": "elsewhere"}))
    np.savez(tmp_path / "runs" / "n5-exact-seed0.npz", picture=np.zeros((16, 16), dtype=np.float16))
    summary = ct.reproduce("tiny", tmp_path, page=True, **FEW)
    assert summary is not None
    assert summary["devices"] == ["elsewhere"]


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(results: Path, tmp_path: Path) -> None:
    bench = Bench("ct", tmp_path, SIZES[PRINTED, "tiny"].declare(), pool.bar())
    job = bench.job(plan(TINY.build(), Case(5, 1000), 1, ROUNDS, None))

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


def test_just_some_runs(tmp_path: Path) -> None:
    assert ct.reproduce("tiny", tmp_path, only=["n2-s1000"], device="cpu", rounds=10, seeds=1) is None
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["n2-s1000-seed0"]
    assert not (tmp_path / "results.json").exists()


def test_ctrl_c_ends_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runs, "run_job", lambda *_, **__: {"status": "interrupted"})
    assert main(["ct", "--size", "tiny", "--device", "cpu", "--output", str(tmp_path)]) == 130
    assert "the same command continues" in capsys.readouterr().err


def test_bad_selections_and_folders(results: Path) -> None:
    with pytest.raises(ValueError, match="only must be one of n5-s500"):
        ct.reproduce("tiny", results, only=["n3"], **FEW)
    with pytest.raises(ValueError, match="has results with size 'tiny', not 'small'"):
        ct.reproduce("small", results, page=True)


def test_the_file_of_settings_is_the_rule() -> None:
    settings = declare("ct", {})
    assert settings["split"]["clients"] == CLIENTS
    assert settings["method"]["lam"] == LAMBDA
    assert settings["data"]["noise"] ** 2 == pytest.approx(NOISE_VARIANCE)
    small = SIZES[PRINTED, "small"]
    assert declare("ct", small.declare()) == settings
    assert (settings["run"]["rounds"], settings["run"]["clients_per_round"]) == (small.rounds, ct.PER_ROUND)


def test_the_cases() -> None:
    assert [case.name for case in SEVERAL] == ["n5-exact", "n5-s1000", "n5-s500", "n2-s1000", "n17-s1000"]
    at = evaluations(PRINTED, 5600)
    assert {700, 1400, 2800, 5600} <= set(at)
    assert len(at) <= 60


def test_the_code_of_the_levels_is_as_short_as_any() -> None:
    bits, tiny = {}, TINY.build()
    for codec in ("auto", ct.CODEC):
        sent = solve_options(declare("ct", messages(Case(5, 1000), codec)))["compressor"]
        result = fpdfp.solve(tiny.problem, fpdfp.FPDFP(lam=LAMBDA), rounds=8, clients_per_round=5, compressor=sent)
        bits[codec] = result.bits_up
    assert bits["auto"] <= bits[ct.CODEC] <= 1.001 * bits["auto"]


def test_a_device_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fpdfp.ct.device import missing_gpu

    if missing_gpu() is None:
        pytest.skip("there is a GPU")
    assert main(["ct", "--device", "cuda", "--output", str(tmp_path)]) == 1
    assert "needs a GPU" in capsys.readouterr().err


PRINTED_PAGES = sorted(file.parent.name for file in RESULTS.glob("*/results.json") if "mean" not in file.parent.name)


@pytest.mark.parametrize("name", PRINTED_PAGES)
def test_committed_pages_say_what_the_numbers_say(name: str) -> None:
    summary = json.loads((RESULTS / name / "results.json").read_text())
    assert summary["model"] == PRINTED
    assert (RESULTS / name / "claims.md").read_text() == ct.write(summary)
    assert ct.judge(lines_of(summary["runs"])) == summary["claims"]
