"""The second experiment as the paper prints it: its objective, its runs one by one, and its page."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fpdfp
from fpdfp.cli import app
from fpdfp.declarative.pool import Store
from fpdfp.declarative.scan import Scan
from fpdfp.declarative.settings import PRINTED
from fpdfp.experiments import ct, ct_claims, ct_figures, ct_page, ct_runs
from fpdfp.experiments.cases import Case, declare
from fpdfp.experiments.ct import SEVERAL, plan
from fpdfp.experiments.ct_lines import lines_of
from fpdfp.experiments.ct_runs import (
    CLIENTS,
    COLUMNS,
    LAMBDA,
    NOISE_VARIANCE,
    SIZES,
    Bench,
    Size,
    Unit,
    cases,
    compressors,
    evaluations,
    name_of,
)  # fmt: skip
from tests.test_projector import joseph

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "ct"
ROUNDS = 32
FEW: dict[str, Any] = {"device": "cpu", "rounds": ROUNDS, "seeds": 2}


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no files of figures, where only numbers and words are looked at: they take longer than all else."""
    monkeypatch.setattr(ct_figures, "save", lambda *_: None)


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
    where, bench = MICRO.build(), Bench(tmp_path, MICRO)
    unit, case = Unit("n5-exact-seed0", Case(5, None), 0, 3), Case(5, None)
    found, x = bench.solve_federated(unit, case, None) or pytest.fail("stopped")
    shape = where.scan.volume
    rays = matrix.reshape(where.scan.views, -1, matrix.shape[1])
    b = where.projections.reshape(where.scan.views, -1).astype(np.float64)
    units = np.eye(144).reshape(*shape, 144)
    gradient = np.concatenate(
        [np.diff(units, axis=e, append=units.take([-1], axis=e)).reshape(144, 144) for e in range(3)]
    )
    gamma, own_x, own_v = found["step"], np.zeros(144), np.zeros(3 * 144)
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
    for name in ("ct", "ct_mean"):
        monkeypatch.setattr(f"fpdfp.experiments.{name}.reproduce", lambda *_, which=name, **__: ran.append(which))
    for options in ([], ["--model", "printed"], ["--model", "mean"]):
        done = CliRunner().invoke(app, ["reproduce", "ct", "--output", str(tmp_path), *options])
        assert done.exit_code == 0, done.output
    assert ran == ["ct", "ct", "ct_mean"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["ct", "--model", "mean", "--minutes", "3"], "--minutes"),
        (["ct", "--tune-at", "small"], "--tune-at"),
        (["a9a", "--only", "n5-exact"], "--only"),
    ],
)
def test_options_of_another_experiment_are_refused(options: list[str], words: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["reproduce", *options, "--output", str(tmp_path)])
    assert done.exit_code == 2
    assert words in done.output


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
    for file in (results / "runs").glob("*.npz"):
        assert file.stat().st_size < 300_000
    assert not list((results / "runs").glob("*.checkpoint"))


@pytest.mark.usefixtures("undrawn")
def test_what_is_done_is_not_done_again(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (results / "results.json").read_bytes()
    monkeypatch.setattr(ct_runs, "build", lambda *_: pytest.fail("nothing is to be done"))
    ct.reproduce("tiny", results, **FEW)
    assert (results / "results.json").read_bytes() == before


@pytest.mark.usefixtures("undrawn")
def test_a_page_of_what_is_there_says_what_is_missing(results: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for name in ("setting", "n5-exact-seed0", "n5-s1000-seed0"):
        for kind in ("json", "npz"):
            file = f"{name}.{kind}"
            (tmp_path / "runs" / file).write_bytes((results / "runs" / file).read_bytes())
    summary = ct.reproduce("tiny", tmp_path, minutes=0, **FEW)
    assert summary is not None
    assert "n5-s500-seed0" in summary["missing"]
    assert {claim["verdict"] for claim in summary["claims"][:6]} == {"not judged"}
    assert "Runs that are missing here: n5-s500-seed0" in (tmp_path / "claims.md").read_text()
    with pytest.raises(ValueError, match="runs of so many rounds"):
        ct.reproduce("tiny", tmp_path, minutes=0, rounds=10)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = {"only": ["n5-s1000"], "seed": 1, **FEW}
    ticks = iter(range(10_000))
    clock = SimpleNamespace(monotonic=lambda: next(ticks), perf_counter=time.perf_counter)
    monkeypatch.setattr(ct_runs, "time", clock)
    monkeypatch.setattr(ct, "time", SimpleNamespace(monotonic=lambda: 0))
    assert ct.reproduce("tiny", tmp_path, minutes=9.5 / 60, **only) is None
    assert [file.name for file in tmp_path.glob("runs/*.checkpoint")] == ["n5-s1000-seed1.checkpoint"]
    assert not (tmp_path / "runs" / "n5-s1000-seed1.json").exists()
    ct.reproduce("tiny", tmp_path, **only)
    here, there = (Store(folder / "runs").read("n5-s1000-seed1") for folder in (tmp_path, results))
    assert here is not None
    assert there is not None
    for name in COLUMNS:
        assert here[name] == there[name], name


def test_no_run_is_started_that_would_not_fit(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, said = Bench(results / "runs", TINY), list[str]()
    unit = Unit("n17-s1000-seed7", Case(CLIENTS, 1000), 7, ROUNDS)
    other = Unit("n17-s1000-seed0", Case(CLIENTS, 1000), 0, ROUNDS)
    took = bench.store.read(other.name)["seconds_in_rounds"]
    assert bench.expected(unit, [unit]) is None
    assert bench.expected(unit, [unit, other]) == pytest.approx(1.1 * took + ct_runs.BESIDE)
    monkeypatch.setattr(bench, "run", lambda *_: pytest.fail("it was started"))
    bench.run_all([other, unit], time.monotonic() + 5, said.append)
    assert said == ["n17-s1000-seed7: not started, the time is short"]


def test_two_processes_do_not_work_on_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, unit = Bench(tmp_path, TINY), Unit("n5-exact-seed0", Case(5, None), 0, 4)
    monkeypatch.setattr(bench, "run", lambda *_: pytest.fail("it was done twice"))
    with Store(tmp_path).claim(unit.name) as mine:
        assert mine
        bench.run_all([unit], None, lambda _: None)
    with bench.store.claim(unit.name) as mine:
        assert mine


def test_bad_selections_and_folders(results: Path) -> None:
    with pytest.raises(ValueError, match="only must be one of 'n5-s500'"):
        ct.reproduce("tiny", results, only=["n3"], **FEW)
    with pytest.raises(ValueError, match=r"seed must be one that the runs have, \[0, 1\], got 7"):
        ct.reproduce("tiny", results, seed=7, **FEW)
    with pytest.raises(ValueError, match="has runs with size 'tiny', not 'small'"):
        ct.reproduce("small", results, minutes=0)
    with pytest.raises(ValueError, match="minutes must be a finite number of at least 0"):
        ct.reproduce("tiny", results, minutes=-1.0)


def test_the_file_of_settings_is_the_rule() -> None:
    settings = declare("ct", {})
    assert settings["split"]["clients"] == CLIENTS
    assert settings["method"]["lam"] == LAMBDA
    assert settings["data"]["noise"] ** 2 == pytest.approx(NOISE_VARIANCE)
    small = SIZES[PRINTED, "small"]
    assert declare("ct", small.declare()) == settings
    assert (settings["run"]["rounds"], settings["run"]["clients_per_round"]) == (small.rounds, ct_runs.PER_ROUND)


def test_the_plan() -> None:
    units = plan(5600, 100, 3)
    assert len({unit.name for unit in units}) == len(units) == 3 * len(SEVERAL) + 3 + 1 + 2
    assert {unit.case for unit in units} >= set(cases())
    assert [name_of(case) for case in SEVERAL] == ["n5-exact", "n5-s1000", "n5-s500", "n2-s1000", "n17-s1000"]
    at = evaluations(PRINTED, 5600)
    assert {700, 1400, 2800, 5600} <= set(at)
    assert len(at) <= 60


def test_the_code_of_the_levels_is_the_shortest() -> None:
    bits, tiny = {}, TINY.build()
    for codec in ("auto", ct_runs.CODEC):
        sent = compressors(Case(5, 1000), codec)
        result = fpdfp.solve(tiny.problem, fpdfp.FPDFP(lam=LAMBDA), rounds=8, clients_per_round=5, compressor=sent)
        bits[codec] = result.bits_up
    assert bits["auto"] == bits[ct_runs.CODEC]


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    from fpdfp.ct.device import missing_gpu

    if missing_gpu() is None:
        pytest.skip("there is a GPU")
    done = CliRunner().invoke(app, ["reproduce", "ct", "--device", "cuda", "--output", str(tmp_path)])
    assert done.exit_code == 1
    assert "needs a GPU" in done.output


PRINTED_PAGES = sorted(file.parent.name for file in RESULTS.glob("*/results.json") if "mean" not in file.parent.name)


@pytest.mark.parametrize("name", PRINTED_PAGES)
def test_committed_pages_say_what_the_numbers_say(name: str) -> None:
    summary = json.loads((RESULTS / name / "results.json").read_text())
    assert summary["model"] == PRINTED
    assert (RESULTS / name / "claims.md").read_text() == ct_page.write(summary)
    judged = ct_claims.judge(lines_of(summary["runs"], {}))
    assert [claim._asdict() for claim in judged] == summary["claims"]
