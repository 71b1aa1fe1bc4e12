"""One object at three machines: calibrated alone, reconstructed together, judged by left-out views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fpdfp import ct
from fpdfp.ct.together import Site, join

VOLUME = (24, 24, 10)
#: Distances, pixels, views, and the offset of the panel that nobody knows.
LABS: list[tuple[dict[str, Any], tuple[int, int], float]] = [
    ({"views": 40, "source": 96.0, "panel": 144.0, "pixel": 1.5}, (40, 20), 1.3),
    ({"views": 30, "source": 120.0, "panel": 170.0, "pixel": 1.2}, (48, 24), -2.0),
    ({"views": 24, "source": 80.0, "panel": 130.0, "pixel": 2.0}, (32, 16), 0.6),
]
COUNTS = (1600.0, 800.0, 400.0)


def scans() -> list[tuple[Any, ct.ConeBeam, Any]]:
    """Return noisy views of one chest, the geometries as they are believed to be, and the views without noise."""
    made, rng = [], np.random.default_rng(0)
    for (how, detector, offset), counts in zip(LABS, COUNTS, strict=True):
        true = ct.ConeBeam.circular(VOLUME, detector, offset=(offset, 0.0), **how)
        # Of voxels: the error of coarse voxels would hide that of noise.
        lines = ct.XRayTransform(true).apply((0.15 * ct.phantoms.thorax(true).volume(true)).astype(np.float32))
        noisy = np.maximum(rng.poisson(counts * np.exp(-lines)), 1)
        data = -np.log(noisy / counts).astype(np.float32)
        made.append((data, ct.ConeBeam.circular(VOLUME, detector, **how), lines))
    return made


def residual(geometry: ct.ConeBeam, clean: Any, left: Any, x: Any) -> float:
    seen = ct.XRayTransform(geometry.subset(left)).apply(x)
    return float(np.linalg.norm(seen - clean[left]) / np.linalg.norm(clean[left]))


def test_three_labs_together_predict_left_out_views_better_than_each_alone() -> None:
    calibrated = []
    cleans = [clean for _, _, clean in scans()]
    for (data, nominal, _), (how, _, offset) in zip(scans(), LABS, strict=True):
        found = ct.calibrate(data, nominal, sense=False, tilt=False)
        assert found.length == pytest.approx(offset, abs=0.3 * how["pixel"])
        calibrated.append((data, found.geometry))
    lefts = [np.arange(3, len(data), 6) for data, _ in calibrated]
    kept = []
    for (data, geometry), left in zip(calibrated, lefts, strict=True):
        own = np.setdiff1d(np.arange(len(data)), left)
        kept.append((data[own], geometry.subset(own)))
    weights = [
        (data, geometry, np.full(data.shape, counts / COUNTS[0], dtype=np.float32))
        for (data, geometry), counts in zip(kept, COUNTS, strict=True)
    ]
    together = ct.reconstruct_together(weights, tv="auto", rounds=25)
    assert together.curves.shape == (4, 6)
    assert together.tv in together.curves[0]
    assert together.result.total_up > 0
    for (_, geometry), clean, left, some in zip(calibrated, cleans, lefts, kept, strict=True):
        alone = min(
            residual(
                geometry, clean, left, ct.reconstruct(*some, tv=tv, iterations=25, device="cpu", progress=False).volume
            )
            for tv in (0.003, 0.01, 0.03)
        )
        assert residual(geometry, clean, left, together.volume) < 0.95 * alone


def test_scans_are_joined_on_one_panel() -> None:
    sites = [Site(data, geometry, np.ones_like(data)) for data, geometry, _ in scans()]
    whole, owners = join(sites)
    assert whole.geometry.detector == (48, 24)
    assert np.bincount(owners).tolist() == [40, 30, 24]
    x = np.random.default_rng(1).random(VOLUME, dtype=np.float32)
    image = ct.XRayTransform(whole.geometry).apply(x)
    for number, site in enumerate(sites):
        a, b = site.geometry.detector
        own = image[owners == number]
        np.testing.assert_allclose(own[:, :a, :b], ct.XRayTransform(site.geometry).apply(x), rtol=1e-4, atol=1e-3)
        assert not whole.ray_weights[owners == number][:, a:].any()
        assert not whole.ray_weights[owners == number][:, :, b:].any()


def test_mistakes_are_told() -> None:
    (data, geometry, _), (other, elsewhere, _), _ = scans()
    with pytest.raises(ValueError, match="scans must be a list"):
        ct.reconstruct_together([])
    with pytest.raises(ValueError, match="but entry 1 does not"):
        ct.reconstruct_together([(data, geometry), (data,)])
    small = ct.ConeBeam.circular((8, 8, 8), (48, 24), views=30, source=120.0, panel=170.0)
    with pytest.raises(ValueError, match="scans must have the same volume"):
        ct.reconstruct_together([(data, geometry), (other, small)])
    with pytest.raises(ValueError, match="tv must be a number where a site has less than 10 views"):
        ct.reconstruct_together([(data[:8], geometry.subset(range(8)))])
    assert elsewhere.volume == geometry.volume
