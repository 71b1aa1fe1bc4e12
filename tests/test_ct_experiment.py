"""The second experiment: its setting, its results, its claims, going on after an interruption."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fpdfp.experiments.ct_runs import OURS, Line, cases, evaluations, our_cases
from typer.testing import CliRunner

from fpdfp.cli import app
from fpdfp.experiments import ct_claims, ct_page, ct_runs
from fpdfp.experiments.ct import reproduce
from fpdfp.experiments.ct_setting import CLIENTS, SIZES, fitted, setting
from fpdfp.experiments.runs import Case

FIGURES = ("levels", "participation", "bits", "against-bits", "slices-levels", "slices-participation")
FEW: dict[str, Any] = {"rounds": 20, "device": "cpu"}


@pytest.fixture(scope="module", autouse=True)
def small_grid() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ct_runs, "GAMMAS", (1.0, 1.5))
        patch.setattr(ct_runs, "DECAYS", (0.0, 2.0))
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
    assert {claim["claim"].split(":")[0] for claim in summary["claims"]} >= {"Claim 3", "Claim 4", "Claim 5"}
    for claim in summary["claims"]:
        assert claim["claim"] in text
        assert claim["verdict"] in text
    times = json.loads((results / "times.json").read_text())
    assert all(0 < one["rounds"] < one["seconds"] for one in times["runs"].values())


def test_what_is_done_is_not_done_again(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "copy")
    runs = tmp_path / "copy" / "runs" / "runs.jsonl"
    lines = runs.read_text().splitlines(keepends=True)
    runs.write_text("".join(lines[:-1]) + lines[-1][:50])  # a crash cuts the last line off
    reproduce("tiny", tmp_path / "copy", **FEW)
    for name in ("results.json", "claims.md", "levels.svg", "slices-levels.png"):
        assert (tmp_path / "copy" / name).read_bytes() == (results / name).read_bytes(), name
    assert len(runs.read_text().splitlines()) == len(lines)


def test_the_setting() -> None:
    where = setting(SIZES["tiny"])
    assert sorted(np.bincount(where.owner)) == [2] * CLIENTS
    assert where.truth.max() == 1.0
    assert where.truth.min() >= 0.0
    again = setting(SIZES["tiny"])
    assert again.digest == where.digest
    np.testing.assert_array_equal(again.projections, where.projections)
    # The data term does not depend on how fine the panel is.
    finer = SIZES["tiny"]._replace(detector=(48, 32))
    assert finer.weight == pytest.approx(where.size.weight / 4)
    assert where.psnr(where.truth + np.float32(0.1)) == pytest.approx(20.0, abs=1e-3)


def test_a_volume_of_a_file(tmp_path: Path) -> None:
    grid = np.linspace(-1, 1, 32)
    ball = (grid[:, None, None] ** 2 + grid[None, :, None] ** 2 + grid**2 < 0.5).astype(np.float32) * 7.0
    np.save(tmp_path / "ball.npy", ball)
    where = setting(SIZES["tiny"], volume=tmp_path / "ball.npy")
    assert where.truth.shape == (16, 16, 8)
    assert where.truth.max() == 1.0
    # Slices as thick as before: the ball is cut above and below, and round across z.
    middle = where.truth[:, :, 4]
    np.testing.assert_allclose(middle, middle.T, atol=1e-6)
    assert middle.sum() == pytest.approx(np.pi * 0.5 * 64, rel=0.1)
    with pytest.raises(ValueError, match="same value everywhere"):
        fitted(np.ones((4, 4, 4)), (2, 2, 2))


def test_the_head(data_dir: Path) -> None:
    where = setting(SIZES["tiny"], volume=data_dir / "head.mat")
    assert where.truth.shape == (16, 16, 8)
    assert "head.mat" in where.source


def lines_with(**psnrs: float) -> dict[Case, Line]:
    """Lines that end at given PSNRs, by n and s: n5_s1000 and so on."""
    rounds, lines = np.array([0.0, 1.0, 100.0, 200.0]), {}
    for case in [*cases(), *our_cases()]:
        name = f"n{case.n}" if case.method == OURS else f"n{case.n}_s{case.levels}"
        end = psnrs.get(name, 45.8)
        bits = rounds * case.n * (32 if case.levels is None else np.log2(case.levels))
        psnr = np.array([10.0, 12.0, end - 0.05, end])
        lines[case] = Line(case, None, rounds, 1 / psnr, psnr, bits, bits, 0.0, np.zeros((2, 2)))
    return lines


def test_the_numbers_of_the_paper_confirm_its_claims() -> None:
    named = {f"n{case.n}_s{case.levels}": value for case, value in ct_claims.PAPER.items()}
    claims = ct_claims.judge(lines_with(**named))
    assert [claim.verdict for claim in claims[:6]] == ["confirmed"] * 6


def test_other_numbers_refute_them() -> None:
    lines = lines_with(n5_s500=45.8, n5_s1000=45.0, n2_s1000=45.9)
    verdicts = [claim.verdict for claim in ct_claims.judge(lines)[:5]]
    assert verdicts == ["refuted"] * 5


def test_evaluations_are_few() -> None:
    at = evaluations(400)
    assert at[0] == 1
    assert at[-1] == 400
    assert len(at) < 35


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    from fpdfp.ct.device import missing_gpu

    if missing_gpu() is None:
        pytest.skip("there is a GPU")
    done = CliRunner().invoke(app, ["reproduce", "ct", "--device", "cuda", "--output", str(tmp_path)])
    assert done.exit_code == 1
    assert "needs a GPU" in done.output


@pytest.mark.parametrize("name", ["paper", "paper-head", "small"])
def test_committed_pages_say_what_the_numbers_say(name: str) -> None:
    folder = Path(__file__).parents[1] / "docs" / "results" / "ct" / name
    summary = json.loads((folder / "results.json").read_text())
    assert (folder / "claims.md").read_text() == ct_page.write(summary, FIGURES)
    lines = {}
    for one in summary["cases"]:
        case = Case(one["clients_per_round"], one["levels"], one["method"])
        columns = [np.array(one[column], dtype=np.float64) for column in ct_runs.COLUMNS]
        rounds, objective, bits_up, bits_down, psnr = columns
        lines[case] = Line(
            case, None, rounds, objective, psnr, bits_up, bits_down, one["bits_once_up"], np.zeros((1, 1))
        )
    assert [claim._asdict() for claim in ct_claims.judge(lines)] == summary["claims"]
