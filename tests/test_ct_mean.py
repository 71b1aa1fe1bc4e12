"""The second experiment with the model ``mean``: its setting, its results, going on after an interruption."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fpdfp.declarative import build
from fpdfp.declarative.scan import fit_volume
from fpdfp.declarative.settings import MEAN
from fpdfp.experiments import ct_claims, ct_mean, ct_page
from fpdfp.experiments.cases import Case, Step
from fpdfp.experiments.ct_lines import Line, lines_of
from fpdfp.experiments.ct_mean import reproduce
from fpdfp.experiments.ct_runs import CLIENTS, OURS, SIZES, digest, evaluations

pytestmark = pytest.mark.slow

FIGURES = ("levels", "participation", "bits", "against-bits", "slices-levels", "slices-participation")
FEW: dict[str, Any] = {"rounds": 20, "device": "cpu"}


@pytest.fixture(scope="module", autouse=True)
def small_grid() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ct_mean, "GAMMAS", (1.0, 1.5))
        patch.setattr(ct_mean, "DECAYS", (0.0, 2.0))
        yield


@pytest.fixture(scope="module")
def results(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("tiny")
    reproduce("tiny", folder, **FEW)
    return folder


def test_everything_is_there(results: Path) -> None:
    summary = json.loads((results / "results.json").read_text())
    assert len(summary["cases"]) == 10
    for case in summary["cases"]:
        assert case["round"][0] == 0
        assert case["round"][-1] == 20
        assert case["bits_up"] == sorted(case["bits_up"])
        assert case["psnr"][-1] > case["psnr"][0]
        assert case["objective"][-1] >= summary["minimum"]["objective"] * (1 - 1e-4)
    assert [case["psnr_in_the_paper"] for case in summary["cases"]] == [
        44.76, 45.78, 45.83, 45.86, 45.86, 45.10, 45.92, 45.82, None, None,
    ]  # fmt: skip
    for name in FIGURES:
        assert (results / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    text = (results / "claims.md").read_text()
    assert "not the paper's model" in text
    for claim in summary["claims"]:
        assert claim["claim"] in text
        assert claim["verdict"] == "measured"
    times = json.loads((results / "times.json").read_text())
    assert all(0 < one["rounds"] < one["seconds"] for one in times["runs"].values())


def test_what_is_done_is_not_done_again(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "copy")
    runs = tmp_path / "copy" / "runs"
    done = {file.name: file.read_bytes() for file in runs.glob("*.json")}
    # A crash leaves a run without its numbers.
    lost = sorted(runs.glob("n10-s1000-*.json"))[-1]
    lost.unlink()
    reproduce("tiny", tmp_path / "copy", **FEW)
    for name in ("results.json", "claims.md", "levels.svg", "slices-levels.png"):
        assert (tmp_path / "copy" / name).read_bytes() == (results / name).read_bytes(), name
    kept = {file.name: file.read_bytes() for file in runs.glob("*.json")}
    assert set(kept) == set(done)
    assert {name for name in done if kept[name] != done[name]} <= {lost.name}


def test_the_setting() -> None:
    size = SIZES[MEAN, "tiny"]
    where = size.build()
    assert sorted(np.bincount(where.owner)) == [2] * CLIENTS
    assert where.there.max() == 1.0
    assert where.there.min() >= 0.0
    build._build.cache_clear()
    again = size.build()
    assert digest(size, again) == digest(size, where)
    np.testing.assert_array_equal(again.projections, where.projections)
    # The data term does not depend on how fine the panel is.
    finer = size.scan._replace(detector=(48, 32))
    assert finer.weight == pytest.approx(where.scan.weight / 4)
    assert where.psnr(where.there + np.float32(0.1)) == pytest.approx(20.0, abs=1e-3)


def test_a_volume_of_a_file(tmp_path: Path) -> None:
    grid = np.linspace(-1, 1, 32)
    ball = (grid[:, None, None] ** 2 + grid[None, :, None] ** 2 + grid**2 < 0.5).astype(np.float32) * 7.0
    np.save(tmp_path / "ball.npy", ball)
    where = SIZES[MEAN, "tiny"].build(volume=tmp_path / "ball.npy")
    assert where.there.shape == (16, 16, 8)
    assert where.there.max() == 1.0
    # Slices as thick as before: the ball is cut above and below, and round across z.
    middle = where.there[:, :, 4]
    np.testing.assert_allclose(middle, middle.T, atol=1e-6)
    assert middle.sum() == pytest.approx(np.pi * 0.5 * 64, rel=0.1)
    with pytest.raises(ValueError, match="same value everywhere"):
        fit_volume(np.ones((4, 4, 4)), (2, 2, 2))


def test_the_head(data_dir: Path) -> None:
    where = SIZES[MEAN, "tiny"].build(volume=data_dir / "head.mat")
    assert where.there.shape == (16, 16, 8)
    assert "head.mat" in where.source


def test_evaluations_are_few() -> None:
    at = evaluations(MEAN, 400)
    assert at[0] == 1
    assert at[-1] == 400
    assert len(at) < 35


@pytest.mark.parametrize("name", ["mean-paper", "mean-paper-head", "mean-small"])
def test_committed_pages_say_what_the_numbers_say(name: str) -> None:
    folder = Path(__file__).parents[1] / "docs" / "results" / "ct" / name
    summary = json.loads((folder / "results.json").read_text())
    assert (folder / "claims.md").read_text() == ct_page.write_mean(summary, FIGURES)
    assert [claim._asdict() for claim in ct_claims.judge_mean(lines_in(summary))] == summary["claims"]


def lines_in(summary: dict[str, Any]) -> dict[Case, Line]:
    """The lines of results."""
    steps, runs = {}, {}
    for one in summary["cases"]:
        case = Case(one["clients_per_round"], one["levels"], one["method"])
        steps[case] = None if case.method == OURS else Step(one["gamma0_times_L"], one["c_times_rounds"])
        more = {"unit": one["label"], "seed": 1, "status": "finished", "slice_psnr": one["psnr"], "bits_once_down": 0}
        runs[one["label"]] = {**one, **more}
    return {case: line._replace(step=steps[case]) for case, line in lines_of(runs, {}).items()}


def test_other_steps_are_pointed_out(results: Path) -> None:
    lines = lines_in(json.loads((results / "results.json").read_text()))
    everyone, some = Case(CLIENTS, 1000), Case(5, 1000)
    same = {case: one._replace(step=lines[some].step) for case, one in lines.items()}
    assert "same step" not in ct_claims.by_participation(same)
    other = same | {everyone: same[everyone]._replace(step=Step(1.0, 7.0))}
    assert "Not all have the same step" in ct_claims.by_participation(other)
