"""The command that reconstructs a scan from its folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fpdfp import ct
from fpdfp.cli import app
from fpdfp.ct.command import read_scan

#: Sixteen by sixteen pixels after binning; the panel is shifted by two of the small pixels.
SCAN = ct.ConeBeam.circular((24, 24, 16), (48, 32), views=40, source=100.0, panel=150.0, pixel=1.0, offset=(2.0, 0.0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chest = ct.phantoms.thorax(SCAN)
    counts = 200 + np.random.default_rng(0).poisson(20000 * np.exp(-0.05 * chest.project(SCAN)))
    images = counts.swapaxes(1, 2)[:, ::-1].astype(np.uint16)  # rows from the top
    np.save(tmp_path / "views.npy", images)
    np.save(tmp_path / "dark.npy", np.full((2, 32, 48), 200, dtype=np.uint16))
    (tmp_path / "scan.toml").write_text(
        'images = "views.npy"\ndark = "dark.npy"\nsource = 100.0\npanel = 150.0\npixel = 1.0\nbin = 2\n'
    )
    return tmp_path


def test_images_become_line_integrals(folder: Path) -> None:
    scan = read_scan(folder)
    assert scan.projections.shape == (40, 24, 16) == scan.geometry.data_shape
    exact = 0.05 * ct.phantoms.thorax(SCAN).project(SCAN).reshape(40, 24, 2, 16, 2).mean(axis=(2, 4))
    assert float(np.abs(scan.projections - exact).mean()) < 0.02
    raw = np.load(folder / "views.npy")
    np.save(folder / "turned.npy", raw.swapaxes(1, 2)[:, :, ::-1])
    text = (folder / "scan.toml").read_text().replace("views.npy", "turned.npy").replace('dark = "dark.npy"\n', "")
    (folder / "scan.toml").write_text(text + 'axis = "horizontal"\n')
    shape = read_scan(folder).projections.shape
    assert shape == scan.projections.shape


def test_a_folder_becomes_a_volume_a_report_and_a_picture(folder: Path) -> None:
    output = folder / "chest.nii.gz"
    how = ["ct", "reconstruct", str(folder), "-o", str(output), "--tv", "0.003", "--device", "cpu", "--quiet"]
    told = CliRunner().invoke(app, how)
    assert told.exit_code == 0, told.output
    assert "sense of rotation as given" in told.output
    volume = ct.load_volume(output)
    assert volume.data.shape == (24, 24, 16)
    report = json.loads((folder / "chest.json").read_text())
    assert report["calibration"]["offset"] == pytest.approx(1.0, abs=0.1)  # two of the small pixels
    assert report["reconstruction"]["tv"] == 0.003
    assert report["curve"] == []
    page = (folder / "chest.html").read_text(encoding="utf-8")
    assert page.count('class="part">') == 1
    assert "{{" not in page
    assert f"<td>{report['calibration']['offset']:.5g}</td>" in page


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("souce = 1.0\n", "has no key 'souce'; did you mean 'source'"),
        ("angles = [0.0, 1.0]\n", "angles must be as many as there are images, 40, got 2"),
        ("voxel = -1.0\n", "voxel must be a finite number of at least 0, got -1"),
    ],
)
def test_mistakes_in_the_description_are_told(folder: Path, change: str, message: str) -> None:
    with (folder / "scan.toml").open("a") as file:
        file.write(change)
    told = CliRunner().invoke(app, ["ct", "reconstruct", str(folder), "-o", str(folder / "x.npy"), "--device", "cpu"])
    assert told.exit_code == 2
    assert message in " ".join(told.output.split())


def test_other_mistakes_are_told(folder: Path) -> None:
    how = ["ct", "reconstruct", str(folder), "--device", "cpu", "-o"]
    told = CliRunner().invoke(app, [*how, str(folder / "x.npy"), "--tv", "much"])
    assert told.exit_code == 2
    assert "tv must be a number of at least 0, or 'auto', got 'much'" in told.output
    told = CliRunner().invoke(app, [*how, str(folder / "none" / "x.npy")])
    assert told.exit_code == 2
    assert "folder not found" in told.output
