"""Filtered back projection: the right scale in every kind of circular scan, and clear refusals of all others."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpdfp._kernels.fdk import EDGE, back_project
from fpdfp.ct import ConeBeam, XRayTransform, phantoms, psnr
from fpdfp.ct.circle import Coverage, circle, coverage, redundancy
from fpdfp.ct.fdk import WINDOWS, fdk, ramp, tables
from fpdfp.ct.phantoms import Ellipsoids
from fpdfp.errors import AccuracyWarning

TURN = 2 * math.pi
SHORT = math.pi + 0.7


def scan(volume: Any = (32, 32, 32), detector: Any = (64, 64), **options: Any) -> ConeBeam:
    given: dict[str, Any] = {"source": 80.0, "panel": 120.0, **options}
    if "angles" not in given:
        given.setdefault("views", 120)
    return ConeBeam.circular(volume, detector, **given)


def moved(one: ConeBeam, by: Any, flip: bool = False) -> ConeBeam:
    """The same scan elsewhere, with u counted from the other side."""
    sign = -1 if flip else 1
    return dataclasses.replace(
        one, sources=one.sources + by, panels=one.panels + by, u=sign * one.u, centre=tuple(one.centre + np.array(by))
    )


def uneven(seed: int, count: int = 150) -> Any:
    return np.random.default_rng(seed).uniform(0, TURN, count)


SCANS = {
    "full turn": scan(),
    "rectangular voxels": scan((32, 40, 20), voxel=(1.0, 0.8, 1.5)),
    "other units": scan((32, 32, 32), voxel=0.01, source=0.8, panel=1.2),
    "short scan": scan(views=90, arc=SHORT),
    "short scan backwards, with an offset": scan(angles=1.0 - np.arange(90) * SHORT / 90, offset=(3.0, -2.0)),
    "most of a turn": scan(views=150, arc=5.2),
    "random angles": scan(angles=uneven(0)),
    "denser on one side, shuffled": scan(
        angles=np.random.default_rng(1).permutation(
            np.concatenate([np.linspace(0, math.pi, 80, endpoint=False), np.linspace(math.pi, TURN, 40)])
        )
    ),
    "two turns": scan(views=160, arc=2 * TURN),
    "offset of the panel": scan(offset=(6.0, -5.0)),
    "volume beside the axis": scan(centre=(5.0, 2.0, 3.0)),
    "moved axis": moved(scan(), (10.0, 20.0, 5.0)),
    "moved axis, u the other way, short": moved(scan(views=90, arc=SHORT, offset=(2.0, 0.0)), (10.0, 20.0, 5.0), True),
}


@pytest.mark.parametrize("name", SCANS)
def test_a_ball_of_density_one_comes_out_as_one(name: str) -> None:
    geometry = SCANS[name]
    unit = geometry.voxel[0]
    place = np.array(geometry.centre) + np.array([4.0, -3.0, 2.0]) * unit
    ball = Ellipsoids([place], [[8 * unit] * 3], [1.0])
    image = fdk(ball.project(geometry), geometry)
    assert image.shape == geometry.volume
    assert image.dtype == np.float32
    core = Ellipsoids([place], [[5 * unit] * 3], [1.0]).volume(geometry) > 0.999
    around = Ellipsoids([place], [[11 * unit] * 3], [1.0]).volume(geometry) == 0
    assert image[core].mean() == pytest.approx(1.0, abs=0.005)
    assert np.abs(image[core] - 1).max() < 0.02
    assert abs(image[around].mean()) < 0.005
    assert image[around].std() < 0.03


@pytest.mark.parametrize("side", [1, -1])
def test_a_panel_that_sees_one_half_only(side: int) -> None:
    geometry = scan(detector=(64, 64), pixel=0.8, offset=(side * 13.0, 0.0), views=240)
    ball = Ellipsoids([[4, -3, 2]], [[8, 8, 8]], [1.0])
    data = ball.project(geometry)
    assert (data[:, [0, -1]] > 1).any()  # the shadow goes over the edge of the panel
    image = fdk(data, geometry)
    core = Ellipsoids([[4, -3, 2]], [[5, 5, 5]], [1.0]).volume(geometry) > 0.999
    assert image[core].mean() == pytest.approx(1.0, abs=0.01)
    assert np.abs(image[core] - 1).max() < 0.05


def test_a_head_and_the_windows() -> None:
    geometry = scan((48, 48, 12), (96, 32), views=180, source=200.0, panel=300.0)
    head = phantoms.shepp_logan(geometry)
    truth = head.volume(geometry)
    data = head.project(geometry)
    images = {window: fdk(data, geometry, window=window) for window in WINDOWS}
    errors = {window: float(np.sqrt(np.mean((image - truth)[..., 4:8] ** 2))) for window, image in images.items()}
    assert errors["ram-lak"] < 0.05
    assert max(errors.values()) < 0.1
    noise = np.random.default_rng(0).standard_normal(data.shape).astype(np.float32)
    spread = [float(fdk(noise, geometry, window=window).std()) for window in WINDOWS]
    assert spread == sorted(spread, reverse=True)
    means = [float(image[20:28, 20:28, 5:7].mean()) for image in images.values()]
    np.testing.assert_allclose(means, means[0], atol=0.003)


def test_double_precision_and_linearity(rng: np.random.Generator) -> None:
    geometry = scan((10, 12, 8), (20, 14), views=24)
    one, other = rng.standard_normal((2, *geometry.data_shape))
    image = fdk(one, geometry)
    assert image.dtype == np.float64
    np.testing.assert_allclose(fdk(2 * one - other, geometry), 2 * image - fdk(other, geometry), atol=1e-12)
    np.testing.assert_allclose(fdk(one.astype(np.float32), geometry), image, atol=2e-5 * np.abs(image).max())


def test_the_number_of_threads_changes_nothing(rng: np.random.Generator) -> None:
    geometry = scan((10, 12, 8), (20, 14), views=24)
    data = rng.standard_normal(geometry.data_shape).astype(np.float32)
    threads = numba.get_num_threads()
    image = fdk(data, geometry)
    try:
        numba.set_num_threads(1)
        np.testing.assert_array_equal(fdk(data, geometry), image)
    finally:
        numba.set_num_threads(threads)


def test_views_are_filtered_in_parts_of_any_size(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    geometry = scan((10, 12, 8), (20, 14), views=24)
    data = rng.standard_normal(geometry.data_shape).astype(np.float32)
    image = fdk(data, geometry)
    monkeypatch.setattr(sys.modules["fpdfp.ct.fdk"], "CHUNK", 5 * 40 * 14)
    np.testing.assert_array_equal(fdk(data, geometry), image)


def spread_back(filtered: Any, numbers: Any, shape: Any) -> Any:
    """Back projection as its definition says, a view at a time."""
    nu, nv = filtered.shape[1:]
    i, j, k = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij")
    total = np.zeros(shape)
    for view, t in zip(filtered, numbers, strict=True):
        depth = t[0] + i * t[1] + j * t[2]
        u, v = (t[3] + i * t[4] + j * t[5]) / depth + t[6], (t[7] + k * t[8]) / depth + t[9]
        seen = (u >= -EDGE) & (u <= nu - 1 + EDGE) & (v >= -EDGE) & (v <= nv - 1 + EDGE)
        u, v = np.clip(u, 0, nu - 1), np.clip(v, 0, nv - 1)
        a, b = np.minimum(u.astype(int), max(nu - 2, 0)), np.minimum(v.astype(int), max(nv - 2, 0))
        p, q = u - a, v - b
        c, d = np.minimum(a + 1, nu - 1), np.minimum(b + 1, nv - 1)
        near, far = (1 - q) * view[a, b] + q * view[a, d], (1 - q) * view[c, b] + q * view[c, d]
        total += np.where(seen, ((1 - p) * near + p * far) / depth**2, 0.0)
    return total


@pytest.mark.parametrize("detector", [(9, 7), (1, 7), (9, 1), (1, 1), (30, 40)])
@pytest.mark.parametrize("pixel", [0.7, 2.0, 9.0])
def test_back_projection_is_bilinear(detector: Any, pixel: float, rng: np.random.Generator) -> None:
    geometry = scan((7, 6, 9), detector, views=11, pixel=pixel, offset=(1.3, -0.7), voxel=(1.1, 0.9, 1.3))
    filtered = rng.standard_normal(geometry.data_shape)
    numbers = tables(geometry, circle(geometry))
    out = np.zeros(geometry.volume)
    back_project(filtered, numbers, out)
    np.testing.assert_allclose(out, spread_back(filtered, numbers, geometry.volume), atol=1e-10)


def test_shadows_of_voxels_are_where_the_geometry_says() -> None:
    geometry = SCANS["moved axis, u the other way, short"]
    t = tables(geometry, circle(geometry))[:, :, None]
    # The corners of the volume are half a voxel outside the first and the last voxel.
    i, j, k = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)]).T * 32 - 0.5
    depth = t[:, 0] + i * t[:, 1] + j * t[:, 2]
    u, v = (t[:, 3] + i * t[:, 4] + j * t[:, 5]) / depth + t[:, 6], (t[:, 7] + k * t[:, 8]) / depth + t[:, 9]
    expected = geometry.shadow() + 0.5 * (np.array(geometry.detector) - 1)
    np.testing.assert_allclose(np.stack([u, v], axis=-1), expected, atol=1e-9)


def test_the_ramp_is_the_convolution_with_the_textbook_kernel(rng: np.random.Generator) -> None:
    count, spacing = 21, 0.7
    size, response = ramp(count, spacing)
    assert size >= 2 * count - 1
    n = np.arange(-count, count + 1)
    with np.errstate(divide="ignore"):
        kernel = np.where(n == 0, 1 / 4, np.where(n % 2, -1 / (math.pi * n) ** 2, 0.0)) / spacing**2
    line = rng.standard_normal(count)
    expected = spacing * np.convolve(line, kernel)[count : 2 * count]
    found = np.fft.irfft(np.fft.rfft(line, size) * response, size)[:count]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    for window in WINDOWS:
        weakened = ramp(count, spacing, window)[1] / response
        assert weakened[0] == pytest.approx(1.0)
        assert (np.diff(weakened) <= 1e-12).all()


# ---- angles and weights ----


def test_coverage_of_full_turns() -> None:
    for angles in (
        np.arange(7) * TURN / 7,
        np.arange(14) * 2 * TURN / 14,
        np.linspace(0, TURN, 9),
        -np.arange(5) * TURN / 5 + 100.0,
        [0.0, math.pi],
    ):
        covered = coverage(np.array(angles))
        assert covered.is_full
        assert covered.shares.sum() == pytest.approx(TURN)
        assert (covered.shares > 0).all()
    np.testing.assert_allclose(
        coverage(np.array([0.0, 1.0, 3.0, 5.0])).shares, [0.5 * (TURN - 4), 1.5, 2.0, 0.5 * (TURN - 3)]
    )


@given(seed=st.integers(0, 10**6), arc=st.floats(0.5, 5.0), begin=st.floats(-10, 10))
def test_coverage_of_part_of_a_turn(seed: int, arc: float, begin: float) -> None:
    order = np.random.default_rng(seed).permutation(40)
    covered = coverage(begin + order * arc / 40)
    assert not covered.is_full
    assert covered.arc == pytest.approx(arc)
    np.testing.assert_allclose(covered.shares, arc / 40)
    assert (covered.begin - begin + 0.5 * arc / 40 + 1) % TURN == pytest.approx(1.0)


@given(arc=st.floats(math.pi, 6.0), angle=st.floats(0, 7), fan=st.floats(-0.6, 0.6))
def test_every_line_counts_once(arc: float, angle: float, fan: float) -> None:
    covered = Coverage(np.ones(1), 0.3, arc)
    # The same line from its other end.
    angles, fans = np.array([angle, angle + math.pi - 2 * fan]), np.array([fan, -fan])
    here, there = (float(redundancy(covered, angles, fans, 0.6)[one, one]) for one in (0, 1))
    inside = [(a - covered.begin) % TURN <= arc for a in angles]
    assert sum(weight for weight, seen in zip((here, there), inside, strict=True) if seen) == pytest.approx(
        1.0 if any(inside) else 0.0
    )


def test_the_shortest_scan_has_the_weights_of_parker() -> None:
    fan = 0.4
    covered = Coverage(np.ones(1), 0.0, math.pi + 2 * fan)
    angles, fans = np.linspace(0.001, covered.arc - 0.001, 101), np.linspace(-0.39, 0.39, 31)
    found = redundancy(covered, angles, fans, fan)
    b, g = angles[:, None], -fans  # Parker counts fan angles the other way round
    rising = np.sin(math.pi / 4 * b / (fan - g)) ** 2
    falling = np.sin(math.pi / 4 * (math.pi + 2 * fan - b) / (fan + g)) ** 2
    expected = np.where(b < 2 * fan - 2 * g, rising, np.where(b < math.pi - 2 * g, 1.0, falling))
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_shifted_panel_counts_lines_that_it_sees_twice_in_two_parts() -> None:
    covered = Coverage(np.ones(3), 0.0, TURN)
    angles = np.arange(3.0)
    np.testing.assert_array_equal(redundancy(covered, angles, np.linspace(-0.4, 0.4, 9), 0.3), 0.5)
    np.testing.assert_array_equal(redundancy(covered, angles, np.linspace(-0.3, 0.3, 9), 0.5), 0.5)
    fans = np.linspace(-0.1, 0.4, 51)
    for sign in (1, -1):
        weights = redundancy(covered, angles, sign * fans, 0.4)[1]
        np.testing.assert_allclose(weights[:21] + weights[20::-1], 1.0)
        np.testing.assert_array_equal(weights[20:], 1.0)


def test_too_few_angles_are_told() -> None:
    geometry = scan((16, 16, 8), (24, 12), views=40, arc=2.5)
    with pytest.warns(AccuracyWarning, match=r"its angles cover 143°, but 196° are needed"):
        image = fdk(np.ones(geometry.data_shape), geometry)
    assert np.isfinite(image).all()


# ---- refusals ----


def changed(one: ConeBeam, **changes: Any) -> ConeBeam:
    return dataclasses.replace(one, **{name: getattr(one, name) + by for name, by in changes.items()})


def test_scans_that_are_not_on_a_circle_are_refused() -> None:
    one = scan((8, 8, 8), (12, 10), views=12)
    wave = np.sin(np.arange(12.0))[:, None]
    up, out = np.array([0.0, 0.0, 1.0]), one.sources / 80.0
    both: dict[str, Any] = {"source": 80.0, "panel": 120.0}
    for geometry, why, near in (
        (ConeBeam.helical((8, 8, 8), (12, 10), views=12, pitch=5.0, **both), r"\(a helix\?\) changes", False),
        (changed(one, v=0.1 * one.u), "the panel is tilted", True),
        (changed(one, sources=wave * out), "the sources are not on a circle", False),
        (changed(one, sources=0.1 * one.u), "the sources are not on a circle", True),
        (changed(one, panels=wave * out), "the distance from source to panel changes", False),
        (changed(one, panels=wave * one.u), "the panel's offset along u changes", False),
        (changed(one, panels=wave * up), "the panel's height above the source changes", False),
        (changed(one, u=0.01 * wave * one.u), "the distance between columns changes", True),
        (changed(one, v=0.01 * wave * one.v), "the distance between rows changes", True),
        (changed(one, u=-2.0 * one.u * (np.arange(12) % 2)[:, None]), "the direction of u changes", False),
        (one.subset([3]), "at least two views", False),
        (one.subset([3, 3]), "at least two views", False),
    ):
        with pytest.raises(ValueError, match=f"geometry must be a scan on a circle .* {why}"):
            circle(geometry)
        if near:
            assert not fdk(np.zeros(geometry.data_shape), geometry).any()
            continue
        with pytest.raises(ValueError, match=f"geometry must be a scan on a circle .* {why}"):
            fdk(np.zeros(geometry.data_shape), geometry)


@pytest.mark.parametrize("kind", ["rows from the top", "tilted", "jitter"])
def test_scans_near_a_circle_are_resampled(kind: str) -> None:
    one = ConeBeam.circular((24, 24, 16), (40, 28), views=60, source=96.0, panel=144.0)
    rng = np.random.default_rng(0)
    c, s = np.cos(0.03), np.sin(0.03)
    shake = 1e-3 * 96.0
    other = {
        "rows from the top": dataclasses.replace(one, v=-one.v),
        "tilted": dataclasses.replace(one, u=c * one.u + s * one.v, v=c * one.v - s * one.u),
        "jitter": changed(
            one, sources=shake * rng.uniform(-1, 1, (60, 3)), panels=shake * rng.uniform(-1, 1, (60, 3)),
            u=1e-3 * rng.uniform(-1, 1, (60, 3)), v=1e-3 * rng.uniform(-1, 1, (60, 3)),
        ),
    }[kind]  # fmt: skip
    chest = phantoms.thorax(one)
    truth = chest.volume(one)
    exact, found = psnr(fdk(chest.project(one), one), truth), psnr(fdk(chest.project(other), other), truth)
    assert found > exact - 0.3


def test_rows_from_the_top_take_the_fast_projector() -> None:
    one = ConeBeam.circular((6, 7, 5), (9, 8), views=4, source=30.0, panel=45.0)
    other = dataclasses.replace(one, v=-one.v)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(one.volume), rng.standard_normal(one.data_shape)
    A, B = XRayTransform(one), XRayTransform(other)
    np.testing.assert_array_equal(B.apply(x), A.apply(x)[..., ::-1])
    np.testing.assert_array_equal(B.apply_views(x, [2, 1]), A.apply_views(x, [2, 1])[..., ::-1])
    np.testing.assert_array_equal(B.adjoint(y), A.adjoint(y[..., ::-1]))


def test_the_circle_is_found() -> None:
    found = circle(moved(scan(views=7, arc=2.0, offset=(3.0, -1.0), pixel=(0.5, 0.75)), (1.0, 2.0, 3.0)))
    np.testing.assert_allclose(found.axis, (1.0, 2.0), atol=1e-9)
    assert found.turn == 1
    np.testing.assert_allclose((found.radius, found.distance), (80.0, 120.0))
    np.testing.assert_allclose((*found.pitch, *found.offset, found.height), (0.5, 0.75, 3.0, -1.0, 3.0), atol=1e-9)
    np.testing.assert_allclose(found.angles, np.arange(7) * 2.0 / 7, atol=1e-9)


def test_wrong_arguments_are_named() -> None:
    geometry = scan((8, 8, 8), (12, 10), views=12)
    data = np.zeros(geometry.data_shape)
    with pytest.raises(TypeError, match=r"geometry must be a fpdfp\.ct\.ConeBeam"):
        fdk(data, None)
    with pytest.raises(ValueError, match=r"projections must have shape \(12, 12, 10\), got \(11, 12, 10\)"):
        fdk(data[1:], geometry)
    with pytest.raises(ValueError, match="window must be one of 'ram-lak'"):
        fdk(data, geometry, window="box")
    data[1, 2, 3] = np.inf
    with pytest.raises(ValueError, match=r"projections must be finite, .*\(1, 2, 3\)"):
        fdk(data, geometry)


def test_the_gpu_agrees(rng: np.random.Generator) -> None:
    cupy = pytest.importorskip("cupy")
    for name in ("full turn", "rectangular voxels", "moved axis, u the other way, short"):
        geometry = SCANS[name]
        data = rng.standard_normal(geometry.data_shape)
        for kind, close in ((np.float32, 1e-5), (np.float64, 1e-12)):
            here = fdk(data.astype(kind), geometry)
            there: Any = fdk(cupy.asarray(data.astype(kind)), geometry)
            assert there.dtype == kind
            assert np.abs(there.get() - here).max() <= close * np.abs(here).max()
    with pytest.raises(ValueError, match="projections must be finite"):
        fdk(cupy.full(geometry.data_shape, cupy.nan), geometry)
    with pytest.raises(ValueError, match="projections must have shape"):
        fdk(cupy.zeros(3), geometry)


@pytest.mark.parametrize("offset", [12.0, 17.0, 19.0, -17.0])
def test_a_narrow_overlap_leaves_no_bias(offset: float) -> None:
    """A filtered view does not end where the panel does."""
    geometry = scan((40, 40, 8), (40, 24), views=180, source=80.0, panel=120.0, pixel=1.0, offset=(offset, 0.0))
    ball = Ellipsoids([[0, 0, 0]], [[8, 8, 8]], [1.0])
    image, truth = fdk(ball.project(geometry), geometry), ball.volume(geometry)
    assert image[16:24, 16:24, 3:5].mean() == pytest.approx(1.0, abs=0.005)
    assert abs((image - truth)[:, :, 4].mean()) < 0.002


@pytest.mark.parametrize("offset", [-25.0, 19.3, 20.0])
def test_a_panel_that_does_not_see_the_axis_is_told(offset: float) -> None:
    geometry = scan((40, 40, 8), (40, 24), views=60, source=80.0, panel=120.0, pixel=1.0, offset=(offset, 0.0))
    with pytest.warns(AccuracyWarning, match="the panel hardly sees the axis of rotation"):
        fdk(np.ones(geometry.data_shape), geometry)
