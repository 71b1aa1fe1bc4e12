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
from reproduce import ct
from reproduce.ct import CLIENTS, SIZES, evaluations, reproduce

pytestmark = pytest.mark.slow

FIGURES = ("levels", "participation", "bits", "against-bits", "slices-levels", "slices-participation")
FEW: dict[str, Any] = {"model": MEAN, "rounds": 20, "device": "cpu"}


@pytest.fixture(scope="module", autouse=True)
def small_grid() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ct, "GAMMAS", (1.0, 1.5))
        patch.setattr(ct, "DECAYS", (0.0, 2.0))
        yield


@pytest.fixture(scope="module")
def results(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("tiny")
    reproduce("tiny", folder, **FEW)
    return folder


def test_everything_is_there(results: Path) -> None:
    summary = json.loads((results / "results.json").read_text())
    assert len(summary["runs"]) == 10
    for one in summary["runs"].values():
        assert one["round"][-1] == 20
        assert one["bits_up"] == sorted(one["bits_up"])
        assert one["psnr"][-1] > one["psnr"][0]
        assert one["objective"][-1] >= summary["lowest"]
    assert set(summary["tuning"]["steps"]) == {"2", "5", "10", "17"}
    for name in FIGURES:
        assert (results / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    text = (results / "claims.md").read_text()
    assert "not the paper's model" in text
    for paper in ("44.76", "45.78", "45.83", "45.86", "45.10", "45.92", "45.82"):
        assert f"| {paper} |" in text
    for claim in summary["claims"]:
        assert claim["claim"] in text
        assert claim["verdict"] == "measured"


def test_what_is_done_is_not_done_again(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "copy")
    folder = tmp_path / "copy" / "runs"
    done = {file: file.stat().st_mtime_ns for file in folder.rglob("run.json")}
    lost = folder / "n10-s1000-seed1"
    shutil.rmtree(lost)
    reproduce("tiny", tmp_path / "copy", **FEW)
    old, new = (json.loads((one / "results.json").read_text()) for one in (results, tmp_path / "copy"))
    assert new["claims"] == old["claims"]
    assert {file for file, at in done.items() if file.stat().st_mtime_ns != at} == {lost / "run.json"}


def test_the_setting() -> None:
    size = SIZES[MEAN, "tiny"]
    where = size.build()
    assert sorted(np.bincount(where.owner)) == [2] * CLIENTS
    assert where.there.max() == 1.0
    assert where.there.min() >= 0.0
    build._build.cache_clear()
    again = size.build()
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
    summary, page = json.loads((folder / "results.json").read_text()), (folder / "claims.md").read_text()
    for one in summary["claims"]:
        assert f"* {one['claim']} {one['numbers'][0].upper()}{one['numbers'][1:]}" in page
    for one in summary["cases"]:
        (row,) = [line for line in page.splitlines() if line.startswith((f"| {one['label']} |", f"| {one['label']}, "))]
        assert f"| {one['psnr'][-1]:.2f} | {max(one['psnr']):.2f}, " in row
        assert f"| {one['objective'][-1]:.6g} |" in row
