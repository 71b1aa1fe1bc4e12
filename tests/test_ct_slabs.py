"""Volumes in slabs are those of the whole, from and to files, and end in time."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from fpdfp import ct
from fpdfp.ct.slabs import SlabProjector, cut

SCAN = ct.ConeBeam.circular((20, 22, 10), (32, 16), views=24, source=80.0, panel=120.0, offset=(3.0, 0.0))
#: Bytes for which the volume takes several slabs.
FEW = 5e4


def test_slabs_cover_the_volume() -> None:
    slabs = cut(SCAN, 6)
    assert [slab.planes for slab in slabs] == [slice(0, 6), slice(6, 12), slice(12, 18), slice(18, 20)]
    for slab in slabs:
        first = SCAN.first_voxel + np.array([slab.planes.start * SCAN.voxel[0], 0, 0])
        np.testing.assert_allclose(slab.geometry.first_voxel, first)


def test_filtered_back_projection_from_a_file_to_a_file(tmp_path: Path) -> None:
    data = ct.phantoms.thorax(SCAN).project(SCAN)
    np.save(tmp_path / "views.npy", data)
    views = np.load(tmp_path / "views.npy", mmap_mode="r")
    out = np.lib.format.open_memmap(tmp_path / "volume.npy", mode="w+", dtype=np.float32, shape=SCAN.volume)
    found = ct.fdk_in_slabs(views, SCAN, out, memory=FEW, device="cpu", window="hann")
    assert found is out
    whole = ct.fdk(data, SCAN, window="hann")
    np.testing.assert_allclose(np.load(tmp_path / "volume.npy"), whole, atol=1e-5 * float(np.abs(whole).max()))


def test_projections_in_slabs_are_those_of_the_whole() -> None:
    rng = np.random.default_rng(0)
    x = rng.random(SCAN.volume, dtype=np.float32)
    y = rng.random(SCAN.data_shape, dtype=np.float32)
    some, whole = SlabProjector(SCAN, 2e4, np), ct.XRayTransform(SCAN)
    assert len(some.slabs) > 2
    assert len(some.parts) > 2
    np.testing.assert_allclose(some.apply(x, np.empty_like(y)), whole.apply(x), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(some.adjoint(y, np.empty_like(x)), whole.adjoint(y), rtol=1e-4, atol=1e-4)


def test_total_variation_in_slabs() -> None:
    data = ct.phantoms.thorax(SCAN).project(SCAN)
    data += 0.05 * data.max() * np.random.default_rng(1).standard_normal(data.shape, dtype=np.float32)
    residuals: list[float] = []
    how = {"tv": 0.01, "iterations": 60, "device": "cpu"}
    some = ct.reconstruct_in_slabs(data, SCAN, memory=4e5, callback=lambda _, r: residuals.append(r), **how)  # type: ignore[arg-type]
    one = ct.reconstruct_in_slabs(data, SCAN, memory=1e9, **how)  # type: ignore[arg-type]
    np.testing.assert_allclose(some, one, atol=1e-3 * float(one.max()))
    assert len(residuals) == 60
    assert residuals[-1] < residuals[0]
    exact = ct.reconstruct(data, SCAN, tv=0.01, iterations=100, tol=0.0, device="cpu", progress=False)
    assert ct.psnr(some, exact.volume) > 35


def test_time_and_arguments() -> None:
    data = np.zeros(SCAN.data_shape, dtype=np.float32)
    with pytest.raises(TimeoutError, match="the time for this computation is over"):
        ct.fdk_in_slabs(data, SCAN, device="cpu", until=time.monotonic() - 1.0)
    with pytest.raises(ValueError, match="projections must be of float32, got float64"):
        ct.fdk_in_slabs(data.astype(np.float64), SCAN, device="cpu")
    with pytest.raises(ValueError, match="projections must be an array of NumPy of shape"):
        ct.fdk_in_slabs(data[1:], SCAN, device="cpu")
    with pytest.raises(ValueError, match="out must be a writable float32 array"):
        ct.fdk_in_slabs(data, SCAN, np.empty((2, 2, 2)), device="cpu")
    flat = ct.ConeBeam.circular((8, 8, 4), (12, 8), views=12, source=40.0, panel=60.0, voxel=(1.0, 1.0, 2.0))
    with pytest.raises(ValueError, match="geometry must have cubic voxels"):
        ct.reconstruct_in_slabs(np.zeros(flat.data_shape, np.float32), flat, tv=0.1, device="cpu")
