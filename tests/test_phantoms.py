"""Ellipsoids against their definition: points inside, numerical line integrals, masses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fpdfp.ct import ConeBeam, phantoms
from fpdfp.ct.phantoms import Ellipsoids


def orthogonal(rng: np.random.Generator, count: int) -> Any:
    return np.linalg.qr(rng.standard_normal((count, 3, 3)))[0]


def some_ellipsoids(rng: np.random.Generator, count: int = 4, reach: float = 6.0) -> Ellipsoids:
    return Ellipsoids(
        rng.uniform(-reach, reach, (count, 3)) / 2,
        rng.uniform(0.5, reach / 2, (count, 3)),
        rng.uniform(-1, 2, count),
        orthogonal(rng, count),
    )


def tilted(scan: ConeBeam, rng: np.random.Generator, by: float = 0.2) -> ConeBeam:
    """The same scan with panels that are turned a little in all directions, and pixels that are not rectangles."""
    turn = np.linalg.qr(np.eye(3) + by * rng.standard_normal((scan.n_views, 3, 3)))[0]
    turn *= np.sign(np.einsum("nii->ni", turn))[:, None, :]
    u, v = (np.einsum("nij,nj->ni", turn, way) for way in (scan.u, scan.v))
    return ConeBeam(scan.volume, scan.detector, scan.sources, scan.panels, u + 0.1 * v, v, scan.voxel, scan.centre)


def scans(rng: np.random.Generator) -> list[ConeBeam]:
    both: dict[str, Any] = {"source": 30.0, "panel": 45.0, "voxel": (1.0, 1.2, 0.8)}
    circle = ConeBeam.circular((12, 10, 14), (9, 7), views=5, offset=(1.5, -2.0), **both)
    helix = ConeBeam.helical((12, 10, 14), (8, 6), views=5, pitch=6.0, centre=(1.0, -1.0, 0.5), **both)
    return [circle, helix, tilted(circle, rng)]


def summed_along(ellipsoids: Ellipsoids, start: Any, way: Any, reach: float, samples: int) -> float:
    """The line integral by the midpoint rule, over the part of the line that is near the origin."""
    direction = way / np.linalg.norm(way)
    middle = -start @ direction
    step = 2 * reach / samples
    places = middle + (np.arange(samples) + 0.5) * step - reach
    return float(ellipsoids.at(start + places[:, None] * direction).sum() * step)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6))
def test_projections_are_line_integrals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = some_ellipsoids(rng)
    for scan in scans(rng):
        found = shapes.project(scan, dtype=np.float64)
        assert found.shape == scan.data_shape
        view, a, b = (int(rng.integers(n)) for n in scan.data_shape)
        pixels = [(view, a, b), (0, scan.detector[0] // 2, scan.detector[1] // 2)]
        for view, a, b in pixels:
            expected = summed_along(shapes, scan.sources[view], scan.rays(view)[a, b], 15.0, 30_000)
            # A midpoint may be on the wrong side of a surface: a step of each of eight surfaces at most.
            assert found[view, a, b] == pytest.approx(expected, abs=8 * 2 * 30 / 30_000)


def chord(ellipsoid: Ellipsoids, start: Any, ways: Any) -> Any:
    """The textbook: the roots of a quadratic equation, for every line."""
    inverse = np.linalg.inv(ellipsoid.rotations[0] * ellipsoid.axes[0])
    p, w = inverse @ (start - ellipsoid.centres[0]), ways @ inverse.T
    square, mixed, constant = (w * w).sum(-1), w @ p, p @ p - 1
    roots = np.sqrt(np.maximum(mixed**2 - square * constant, 0.0)) / square
    return 2 * ellipsoid.densities[0] * roots * np.linalg.norm(ways, axis=-1)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_projections_have_all_digits_and_miss_no_pixel(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scan = tilted(ConeBeam.circular((12, 12, 12), (31, 23), views=3, source=40.0, panel=60.0), rng)
    inside = scan.sources[1] + rng.uniform(-1, 1, 3)  # the source is in this one: it is seen everywhere
    beside = scan.sources[2] + scan.u[2] * 3
    for centre in (rng.uniform(-6, 6, 3), inside, beside):
        one = Ellipsoids([centre], rng.uniform(0.2, 5.0, (1, 3)), [1.5], orthogonal(rng, 1))
        found = one.project(scan, dtype=np.float64)
        for view in range(scan.n_views):
            expected = chord(one, scan.sources[view], scan.rays(view))
            # Near the edge of the shadow the textbook loses digits, under a square root.
            np.testing.assert_allclose(found[view], expected, rtol=1e-6, atol=1e-5)
            well = expected > 0.1 * expected.max()
            np.testing.assert_allclose(found[view][well], expected[well], rtol=1e-9)


def test_a_source_at_the_centre_of_a_ball_sees_its_diameter() -> None:
    scan = ConeBeam.circular((4, 4, 4), (5, 5), angles=[0.3], source=20.0, panel=30.0)
    ball = Ellipsoids(scan.sources, [[2.0, 2.0, 2.0]], [1.0])
    np.testing.assert_allclose(ball.project(scan, dtype=np.float64), 4.0, rtol=1e-12)


def test_the_volume_is_the_mean_over_each_voxel(rng: np.random.Generator) -> None:
    scan = scans(rng)[1]
    shapes = some_ellipsoids(rng)
    fine = 8
    sides, size = np.array(scan.voxel), np.array(scan.volume)
    grids = [
        c + ((np.arange(n * fine) + 0.5) / fine - 0.5 * n) * s for c, n, s in zip(scan.centre, size, sides, strict=True)
    ]
    image = shapes.at(np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1))
    expected = image.reshape(size[0], fine, size[1], fine, size[2], fine).mean(axis=(1, 3, 5))
    found = shapes.volume(scan, supersample=fine, dtype=np.float64)
    # Along z the volume is exact, and the sampled one is not, on the surfaces.
    np.testing.assert_allclose(found, expected, atol=0.1)
    assert np.abs(found - expected).mean() < 2e-3
    assert shapes.volume(scan, supersample=fine).dtype == np.float32


def test_masses_agree() -> None:
    scan = ConeBeam.circular((24, 20, 22), (240, 240), views=3, source=1e5, panel=1.1e5, voxel=(0.9, 1.1, 1.0))
    shapes = some_ellipsoids(np.random.default_rng(3))
    assert np.abs(shapes.bounds).max() < 10
    voxel = math.prod(scan.voxel)
    errors = [abs(shapes.volume(scan, k, np.float64).sum() * voxel / shapes.mass - 1) for k in (1, 8)]
    assert errors[1] < 1e-3 < 10 * errors[0]
    # From far away a view is a parallel projection, enlarged a little, and holds all of the mass.
    pixel = np.linalg.norm(np.cross(scan.u, scan.v), axis=1) / 1.1**2
    seen = shapes.project(scan, np.float64).sum(axis=(1, 2)) * pixel
    np.testing.assert_allclose(seen, shapes.mass, rtol=2e-3)


def test_stretching_and_adding(rng: np.random.Generator) -> None:
    one, other = some_ellipsoids(rng, 3), some_ellipsoids(rng, 2)
    points = rng.uniform(-8, 8, (200, 3))
    factors, move = np.array([2.0, 0.5, 3.0]), np.array([1.0, -2.0, 0.3])
    np.testing.assert_allclose(one.stretched(factors, move).at(points * factors + move), one.at(points))
    assert one.stretched(factors, move).mass == pytest.approx(one.mass * factors.prod())
    both = one + other
    assert len(both) == 5
    np.testing.assert_allclose(both.at(points), one.at(points) + other.at(points))
    with pytest.raises(TypeError):
        one + 1  # type: ignore[operator]


def test_angles_turn_about_z() -> None:
    rod = Ellipsoids([[0, 0, 0]], [[5, 1, 1]], [1.0], [math.pi / 2])
    np.testing.assert_array_equal(rod.at([[0, 4, 0], [4, 0, 0]]), [1.0, 0.0])
    np.testing.assert_allclose(rod.bounds, [[-1, -5, -1], [1, 5, 1]], atol=1e-12)


def grid_of(scan: ConeBeam, count: int) -> Any:
    half = 0.5 * np.array(scan.volume) * scan.voxel
    lines = [c + h * np.linspace(-1, 1, count) for c, h in zip(scan.centre, half, strict=True)]
    return np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1)


SLABS: list[dict[str, Any]] = [
    {"volume": (256, 256, 64)},
    {"volume": (64, 64, 8), "voxel": (0.5, 0.5, 1.0), "centre": (3.0, -2.0, 5.0)},
    {"volume": (40, 30, 50)},
]


@pytest.mark.parametrize("slab", SLABS)
def test_phantoms_fit_the_volume(slab: dict[str, Any]) -> None:
    scan = ConeBeam.circular(detector=(40, 20), views=4, source=900.0, panel=1200.0, **slab)
    half = 0.5 * np.array(scan.volume) * scan.voxel
    for phantom, densities in (
        (phantoms.shepp_logan(scan), [0.0, 0.1, 0.2, 0.3, 1.0]),
        (phantoms.thorax(scan), [0.0, 0.25, 0.6, 1.0, 1.04, 1.06, 1.8]),
    ):
        assert (np.abs(phantom.bounds - scan.centre) <= half).all()
        # No two organs overlap that should not, and nothing sticks out of the body.
        assert set(phantom.at(grid_of(scan, 61)).round(9).ravel()) <= set(densities)
        data = phantom.project(scan)
        assert data.dtype == np.float32
        assert (data >= 0).all()
        assert data.max() > 0
        assert (data[:, [0, -1]] == 0).all()


def test_shepp_logan_looks_the_same_from_the_left_but_for_the_ventricles() -> None:
    scan = ConeBeam.circular((64, 64, 64), (8, 8), views=2, source=200.0, panel=300.0)
    image = phantoms.shepp_logan(scan).volume(scan)
    assert image[32, 32, 32] == pytest.approx(0.2)
    assert image[39, 32, 32] == pytest.approx(0.0, abs=1e-6)
    assert image.max() == pytest.approx(1.0)
    assert np.abs(image[:8]).max() == 0


def test_nodules_are_round_in_a_flat_volume() -> None:
    scan = ConeBeam.circular((256, 256, 64), (8, 8), views=2, source=900.0, panel=1200.0)
    axes = phantoms.thorax(scan).axes[-5:]
    assert (axes == axes[:, :1]).all()
    assert axes.max() == pytest.approx(0.045 * 128)


def test_wrong_arguments_are_named() -> None:
    ok: dict[str, Any] = {"centres": [[0, 0, 0]], "axes": [[1, 1, 1]], "densities": [1.0]}
    for name, value, message in (
        ("centres", [[0, 0]], r"centres must have shape \(1, 3\)"),
        ("axes", [[1, 0, 1]], "axes must be greater than 0, got 0"),
        ("axes", [[1, np.nan, 1]], "axes must be finite"),
        ("densities", [], "densities must be a list of at least one number"),
        ("densities", [[1.0]], "densities must be a list"),
        ("rotations", [1.0, 2.0], "rotations must be 1 angles or 1 matrices"),
        ("rotations", [np.ones((3, 3))], "rotations: the columns of matrix 0 are not orthonormal"),
    ):
        with pytest.raises(ValueError, match=message):
            Ellipsoids(**{**ok, name: value})
    ball = Ellipsoids(**ok)
    scan = ConeBeam.circular((4, 4, 4), (5, 5), views=2, source=20.0, panel=30.0)
    with pytest.raises(ValueError, match="supersample must be an integer of at least 1"):
        ball.volume(scan, supersample=0)
    for call in (ball.project, ball.volume, phantoms.thorax, phantoms.shepp_logan):
        with pytest.raises(TypeError, match=r"geometry must be a fpdfp\.ct\.ConeBeam, got int"):
            call(3)
    for dtype in (np.int32, "nonsense"):
        with pytest.raises(ValueError, match="dtype must be float32 or float64"):
            ball.project(scan, dtype=dtype)
    with pytest.raises(ValueError, match="points must have three coordinates"):
        ball.at([1.0, 2.0])
    with pytest.raises(ValueError, match="factors must be greater than 0"):
        ball.stretched((1, -1, 1))
    assert not ball.centres.flags.writeable
    assert repr(ball) == "Ellipsoids(1 of them)"
