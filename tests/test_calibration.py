"""Calibration finds what synthetic scans were made with, and improves the measured one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from benchmarks.calibration import scan_of

from fpdfp import ct
from fpdfp.ct.command import EXAMPLE, enlarged, read_scan
from fpdfp.errors import AccuracyWarning


@pytest.mark.parametrize(
    ("sense", "offset", "tilt", "arc", "share", "noise", "phantom"),
    [
        (1, 2.7, 0.0, 360, 1.0, 0.02, "thorax"),
        (-1, -6.3, 1.3, 360, 1.0, 0.0, "shepp_logan"),
        (-1, 4.1, -1.8, 225, 1.0, 0.02, "thorax"),
        (1, -3.2, 0.7, 360, 0.75, 0.1, "thorax"),
    ],
)
def test_a_scan_with_known_errors(
    sense: int, offset: float, tilt: float, arc: float, share: float, noise: float, phantom: str
) -> None:
    made, nominal = scan_of(sense, offset, tilt, arc=np.deg2rad(arc), share=share)
    data = getattr(ct.phantoms, phantom)(nominal).project(made)
    data += noise * data.max() * np.random.default_rng(3).standard_normal(data.shape, dtype=np.float32)
    found = ct.calibrate(data, nominal)
    assert found.sense == sense
    assert found.margin > 1.02
    assert found.offset == pytest.approx(offset, abs=0.04 if noise < 0.1 else 0.1)
    assert found.tilt == pytest.approx(tilt, abs=0.1)
    assert found.residual < found.given
    for name in ("u", "v", "panels", "sources"):
        true, corrected = getattr(made, name), getattr(found.geometry, name)
        np.testing.assert_allclose(corrected, true, atol=2e-3 * np.abs(true).max())


def test_what_is_not_looked_for_stays(tmp_path: Path) -> None:
    made, nominal = scan_of(1, 2.0, 0.0, arc=2 * np.pi, share=1.0)
    data = ct.phantoms.thorax(nominal).project(made)
    found = ct.calibrate(data, nominal, sense=False, tilt=False)
    assert (found.sense, found.tilt) == (1, 0.0)
    assert np.isnan(found.margin)
    assert found.offset == pytest.approx(2.0, abs=0.04)
    assert found.geometry.is_straight
    figure = found.plot(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000
    assert len(figure.axes) == 2
    assert f"sense of rotation as given; offset {found.offset:+.2f} pixels" in str(found)
    with pytest.warns(AccuracyWarning, match="reach: the offset found, .* pixels, is at the end of the search"):
        ct.calibrate(data, nominal, sense=False, tilt=False, reach=1.0)


def test_few_views_of_a_small_fan_tell_the_sense() -> None:
    scan = ct.ConeBeam.circular((24, 24, 6), (36, 24), views=30, source=100.0, panel=150.0, voxel=0.5)
    found = ct.calibrate(ct.phantoms.thorax(scan).project(scan), scan, tilt=False)
    assert found.sense == 1  # a filtered back-projection alone predicts better with the other one
    assert found.margin > 1.02


def test_a_round_object_does_not_tell_the_sense() -> None:
    _, nominal = scan_of(1, 0.0, 0.0, arc=2 * np.pi, share=1.0)
    data = ct.Ellipsoids([[0, 0, 0]], [[20, 20, 20]], [1.0]).project(nominal)
    with pytest.warns(AccuracyWarning, match="hardly tell the sense of rotation"):
        ct.calibrate(data, nominal, tilt=False)


def test_what_cannot_be_calibrated_is_refused() -> None:
    _, nominal = scan_of(1, 0.0, 0.0, arc=2 * np.pi, share=1.0)
    data = np.ones(nominal.data_shape, dtype=np.float32)
    with pytest.raises(ValueError, match="projections must be at least 4 views"):
        ct.calibrate(data[:3], nominal.subset([0, 1, 2]))
    with pytest.raises(ValueError, match="reach must be"):
        ct.calibrate(data, nominal, reach=-1.0)
    helix = ct.ConeBeam.helical((8, 8, 8), (12, 12), views=24, pitch=4.0, source=30.0, panel=45.0)
    with pytest.raises(ValueError, match="geometry must be a scan on a circle"):
        ct.calibrate(np.ones(helix.data_shape), helix)


def test_air_is_found_beside_the_object() -> None:
    rng = np.random.default_rng(0)
    beam = np.linspace(8000, 10000, 12)
    raw = np.tile(beam, (20, 80, 1))
    raw[:, 20:60] *= 0.3
    raw[:8, :20] *= 0.5  # the object reaches one side in some views
    raw = rng.poisson(raw).astype(np.float64) + 100.0
    flat = ct.air(raw, np.full((80, 12), 100.0))
    assert flat.shape == (80, 12)
    np.testing.assert_allclose(flat[0] - 100, beam, rtol=0.005)
    raw[:, :, 4] = rng.poisson(3000.0, (20, 80))  # in one row it fills the view
    with pytest.warns(AccuracyWarning, match="the object fills the view in 1 of 12 rows, the first of them 4"):
        flat = ct.air(raw)
    assert flat[0, 4] in (flat[0, 3], flat[0, 5])
    with pytest.raises(ValueError, match=r"raw must have shape \(views, nu, nv\)"):
        ct.air(raw[0])


def test_a_volume_wider_than_the_view_is_found() -> None:
    scan = ct.ConeBeam.circular((64, 64, 24), (48, 40), views=60, source=100.0, panel=150.0, pixel=1.0)
    data = ct.phantoms.thorax(scan).project(scan)  # 48 pixels show a disc of 31 voxels
    found = ct.calibrate(data, scan, sense=False, tilt=False)
    assert found.extent >= 1.25
    assert found.offset == pytest.approx(0.0, abs=0.1)
    whole = ct.ConeBeam.circular((32, 32, 24), (64, 40), views=60, source=100.0, panel=150.0, pixel=1.0)
    assert ct.calibrate(ct.phantoms.thorax(whole).project(whole), whole, sense=False, tilt=False).extent == 1.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fpdfp.errors.AccuracyWarning")
def test_the_measured_scan() -> None:
    data, nominal = read_scan(EXAMPLE)
    left = np.arange(2, 120, 4)
    kept = np.setdiff1d(np.arange(120), left)
    calibrated = ct.calibrate(data[kept], nominal.subset(kept))
    assert calibrated.sense == -1
    assert calibrated.margin > 1.5
    assert calibrated.extent > 1.0
    used = enlarged(calibrated.geometry, calibrated.extent)
    # The weight is near the one that is found by default, which takes minutes.
    found = ct.reconstruct(data[kept], used, tv=7.3e-4, iterations=12, device="cpu", progress=False)
    views, straight = ct.rectify(
        data[left], calibrated.apply(dataclasses.replace(nominal, volume=used.volume).subset(left))
    )
    seen = ct.XRayTransform(straight).apply(found.volume)
    assert float(np.linalg.norm(seen - views) / np.linalg.norm(views)) < 0.11  # 0.23 without a calibration
