"""The X-ray transform on the processor: against textbook matrices and closed forms; adjoints, threads, groups."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpdfp import linops
from fpdfp._kernels import rays
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.projector import XRayTransform, frames


def joseph(geometry: ConeBeam, axes: int) -> Any:
    """The matrix of Joseph's method as the textbook has it: one ray, one plane, four voxels at a time."""
    size, voxel, centre = (np.array(part) for part in (geometry.volume, geometry.voxel, geometry.centre))
    matrix = np.zeros((*geometry.data_shape, *geometry.volume))
    ways = [geometry.rays(view) for view in range(geometry.data_shape[0])]
    for ray in np.ndindex(*geometry.data_shape):
        source, way = geometry.sources[ray[0]], ways[ray[0]][ray[1:]]
        main = int(np.argmax(np.abs(way / voxel)[:axes]))
        length = np.linalg.norm(way) * voxel[main] / abs(way[main])
        for plane in range(size[main]):
            t = (centre[main] + (plane - (size[main] - 1) / 2) * voxel[main] - source[main]) / way[main]
            place = (source + t * way - centre) / voxel + (size - 1) / 2
            below = np.floor(place).astype(int)
            for corner in itertools.product(*([0] if axis == main else [0, 1] for axis in range(3))):
                at = below + corner
                at[main] = plane
                shares = [1.0 if e == main else 1 - abs(place[e] - at[e]) for e in range(3)]
                if (at >= 0).all() and (at < size).all():
                    matrix[(*ray, *at)] += length * math.prod(shares)
    return matrix.reshape(math.prod(geometry.data_shape), -1)


def random_scan(seed: int, *, most: int = 7) -> ConeBeam:
    """A straight scan: rectangular voxels, shifted volumes and panels, truncation, short arcs, helices."""
    rng = np.random.default_rng(seed)
    volume = tuple(int(n) for n in rng.integers(1, most + 1, 3))
    detector = tuple(int(n) for n in rng.integers(1, most + 3, 2))
    voxel = rng.uniform(0.4, 2.0, 3)
    centre = rng.uniform(-2, 2, 3) * rng.integers(0, 2)
    reach = float(np.linalg.norm(voxel * volume) / 2 + np.linalg.norm(centre))
    source = reach * rng.uniform(1.05, 6)
    panel = source + reach * rng.uniform(0.2, 3)
    fit = 2.0 * reach * panel / source
    pixel = tuple(fit / n * rng.uniform(0.2, 1.5) for n in detector)
    options: dict[str, Any] = {
        "angles": rng.uniform(0, 7) + np.arange(rng.integers(1, 6)) * rng.uniform(0.05, 1.3),
        "source": source,
        "panel": panel,
        "voxel": tuple(voxel),
        "centre": tuple(centre),
        "pixel": pixel,
        "offset": tuple(rng.uniform(-0.3, 0.3, 2) * fit * rng.integers(0, 2)),
    }
    if rng.integers(0, 2):
        return ConeBeam.helical(volume, detector, pitch=reach * rng.uniform(-1, 1), **options)
    return ConeBeam.circular(volume, detector, **options)


def tilted(geometry: ConeBeam, seed: int = 0) -> ConeBeam:
    """The same scan turned around any axis, and its panels tilted."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    lean = 0.1 * rng.standard_normal((2, *geometry.u.shape))
    u = geometry.u @ turn + lean[0] * np.linalg.norm(geometry.u, axis=1, keepdims=True)
    v = geometry.v @ turn + lean[1] * np.linalg.norm(geometry.v, axis=1, keepdims=True)
    return dataclasses.replace(
        geometry, sources=geometry.sources @ turn, panels=geometry.panels @ turn, u=u, v=v, centre=(0.0, 0.0, 0.0)
    )


def scan(volume: Any = (9, 7, 5), detector: Any = (11, 8), views: int = 6, **options: Any) -> ConeBeam:
    options = {"angles": 0.1 + np.arange(views) * 1.1, "unit": "radians", "source": 30.0, "panel": 45.0, **options}
    return ConeBeam.circular(volume, detector, **options)


def pair(A: XRayTransform, dtype: Any = np.float64, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(A.in_shape).astype(dtype), rng.standard_normal(A.out_shape).astype(dtype)


def by_rays(geometry: ConeBeam, x: Any, y: Any) -> tuple[Any, Any]:
    """Both directions ray by ray, along x and y as in straight scans."""
    forward, back = np.empty_like(y), np.zeros_like(x)
    views = np.arange(geometry.n_views)
    rays.forward(x, *frames(geometry), 2, views, forward)
    rays.adjoint(y, *frames(geometry), 2, views, back)
    return forward, back


def close(got: Any, wanted: Any, tolerance: float) -> None:
    assert np.linalg.norm(got - wanted) <= tolerance * np.linalg.norm(wanted)


@given(seed=st.integers(0, 10**6))
def test_straight_scans_have_the_textbook_matrix(seed: int) -> None:
    geometry = random_scan(seed, most=4)
    A = XRayTransform(geometry)
    assert geometry.is_straight
    x, y = pair(A, seed=seed)
    matrix = joseph(geometry, axes=2)
    size = 1 + float(np.linalg.norm(matrix))  # a panel may see nothing of a small volume
    np.testing.assert_allclose(A.apply(x).ravel(), matrix @ x.ravel(), atol=1e-12 * size)
    np.testing.assert_allclose(A.adjoint(y).ravel(), matrix.T @ y.ravel(), atol=1e-12 * size)


@given(seed=st.integers(0, 10**6))
def test_tilted_panels_have_the_textbook_matrix(seed: int) -> None:
    geometry = tilted(scan((4, 3, 5), (4, 5), 3, voxel=(1.0, 1.3, 0.8), offset=(0.7, -0.4)), seed)
    A = XRayTransform(geometry)
    assert not geometry.is_straight
    x, y = pair(A, seed=seed)
    matrix = joseph(geometry, axes=3)
    np.testing.assert_allclose(A.apply(x).ravel(), matrix @ x.ravel(), atol=1e-12)
    np.testing.assert_allclose(A.adjoint(y).ravel(), matrix.T @ y.ravel(), atol=1e-12)
    assert linops.adjoint_error(A, seed) < 1e-14


@given(seed=st.integers(0, 10**6))
def test_adjoint_is_the_transpose(seed: int) -> None:
    A = XRayTransform(random_scan(seed, most=24))
    x, y = pair(A, seed=seed)
    forward, back = A.apply(x), A.adjoint(y)
    scale = np.linalg.norm(forward) * np.linalg.norm(y) + 1e-3  # a panel may see nothing of a small volume
    assert abs(np.vdot(forward, y) - np.vdot(x, back)) <= 1e-9 * scale
    # In float32 what is left is the rounding of the results themselves.
    x, y = pair(A, np.float32, seed)
    forward, back = A.apply(x), A.adjoint(y)
    assert forward.dtype == back.dtype == np.float32
    difference = np.vdot(forward.astype(float), y) - np.vdot(x.astype(float), back)
    assert abs(difference) <= 1e-6 * scale


def test_float32_adjoint_of_a_larger_scan() -> None:
    A = XRayTransform(scan((48, 40, 12), (56, 40), 24, source=200.0, panel=300.0, voxel=(1.0, 1.1, 0.9)))
    x, y = pair(A, np.float32)
    forward, back = A.apply(x).astype(float), A.adjoint(y).astype(float)
    assert abs(np.vdot(forward, y) - np.vdot(x, back)) <= 1e-9 * np.linalg.norm(forward) * np.linalg.norm(y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pixel": (0.7, 0.2)},  # the panel misses parts of the volume on all sides
        {"pixel": (6.0, 9.0)},  # rows farther apart than voxels
        {"offset": (9.0, -5.0), "voxel": (1.0, 0.6, 1.7)},
        {"angles": 0.1 + np.linspace(0, 3.5, 12), "centre": (1.0, -2.0, 3.0)},
    ],
)
def test_fast_form_equals_rays(options: dict[str, Any], dtype: Any) -> None:
    geometry = scan((20, 26, 12), (30, 25), 12, source=60.0, panel=95.0, **options)
    A = XRayTransform(geometry)
    x, y = pair(A, dtype)
    tolerance = 1e-6 if dtype == np.float32 else 1e-12
    for got, wanted in zip((A.apply(x), A.adjoint(y)), by_rays(geometry, x, y), strict=True):
        close(got, wanted, tolerance)


def test_helices_equal_rays() -> None:
    geometry = ConeBeam.helical((16, 14, 40), (20, 12), views=33, pitch=12.0, source=50.0, panel=80.0, pixel=1.8)
    A = XRayTransform(geometry)
    x, y = pair(A)
    for got, wanted in zip((A.apply(x), A.adjoint(y)), by_rays(geometry, x, y), strict=True):
        close(got, wanted, 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lean", [False, True])
def test_bits_do_not_depend_on_threads(lean: bool, dtype: Any) -> None:
    geometry = scan((17, 21, 9), (40, 13), 19)
    A = XRayTransform(tilted(geometry) if lean else geometry)
    x, y = pair(A, dtype)
    before = numba.get_num_threads()
    seen = []
    try:
        for count in {1, 2, numba.config.NUMBA_NUM_THREADS} & set(range(1, numba.config.NUMBA_NUM_THREADS + 1)):
            numba.set_num_threads(count)
            seen.append((A.apply(x), A.adjoint(y)))
    finally:
        numba.set_num_threads(before)
    for forward, back in seen[1:]:
        np.testing.assert_array_equal(forward, seen[0][0])
        np.testing.assert_array_equal(back, seen[0][1])


@pytest.mark.parametrize("lean", [False, True])
def test_subsets_and_groups(lean: bool) -> None:
    geometry = scan(views=40)
    A = XRayTransform(tilted(geometry) if lean else geometry)
    x, y = pair(A)
    views = np.array([30, 3, 3, 17, 2, *range(20, 40)])
    np.testing.assert_array_equal(A.apply_views(x, views), A.apply(x)[views])
    np.testing.assert_array_equal(A.apply_views(x, views), XRayTransform(A.geometry.subset(views)).apply(x))
    groups = np.array([0, 0, 2, 2, 2, *[3] * 20])
    several = A.adjoint_groups(y[views], views, groups, 5)
    assert several.shape == (5, *A.in_shape)
    for group in range(5):
        mine = views[groups == group]
        alone = A.adjoint_groups(y[mine], mine, np.zeros(len(mine), dtype=int), 1)
        np.testing.assert_array_equal(several[group], alone[0])
        if len(mine):
            np.testing.assert_array_equal(alone[0], XRayTransform(A.geometry.subset(mine)).adjoint(y[mine]))
    assert not several[[1, 4]].any()
    np.testing.assert_array_equal(A.adjoint_groups(y, np.arange(40), np.zeros(40, int), 1)[0], A.adjoint(y))
    assert A.apply_views(x, []).shape == (0, *A.geometry.detector)
    assert A.adjoint_groups(y[:0], [], [], 0).shape == (0, *A.in_shape)


def test_client_axis() -> None:
    A = XRayTransform(scan())
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3, *A.in_shape)), rng.standard_normal((3, *A.out_shape))
    for i in range(3):
        np.testing.assert_array_equal(A.apply(x)[i], A.apply(x[i]))
        np.testing.assert_array_equal(A.adjoint(y)[i], A.adjoint(y[i]))
    assert A.apply(x[:0]).shape == (0, *A.out_shape)


def test_any_layout_and_kind_of_numbers() -> None:
    A = XRayTransform(scan())
    x, y = pair(A)
    np.testing.assert_array_equal(A.apply(np.asfortranarray(x)), A.apply(x))
    np.testing.assert_array_equal(A.adjoint(np.asfortranarray(y)), A.adjoint(y))
    counts = np.arange(A.size_in).reshape(A.in_shape)
    np.testing.assert_array_equal(A.apply(counts), A.apply(counts.astype(float)))


@pytest.mark.parametrize("lean", [False, True])
def test_norm(lean: bool) -> None:
    geometry = scan((8, 7, 3), (9, 5), 5, pixel=(1.1, 1.3))
    A = XRayTransform(tilted(geometry) if lean else geometry)
    matrix = np.stack([A.apply(e).ravel() for e in np.eye(A.size_in).reshape(-1, *A.in_shape)], axis=1)
    true = float(np.linalg.norm(matrix, 2) ** 2)
    assert true * (1 - 1e-12) <= A.squared_norm <= true * 1.01


def test_a_panel_that_sees_nothing() -> None:
    A = XRayTransform(scan(offset=(500.0, 500.0), pixel=1.0))
    x, y = pair(A)
    assert not A.apply(x).any()
    assert not A.adjoint(y).any()
    assert A.squared_norm < 1e-20


def distances(geometry: ConeBeam) -> Any:
    """How far the line of each ray is from the origin."""
    ways = np.stack([geometry.rays(view) for view in range(geometry.n_views)])
    sources = np.broadcast_to(geometry.sources[:, None, None], ways.shape)
    return np.linalg.norm(np.cross(sources, ways), axis=-1) / np.linalg.norm(ways, axis=-1)


def squares(size: int, inner: int = 1) -> Any:
    """The squared distance from the centre of the points of a cube of side 2, ``inner`` of them along each voxel."""
    points = (np.arange(size * inner) + 0.5) / (0.5 * size * inner) - 1.0
    return points[:, None, None] ** 2 + points[:, None] ** 2 + points**2


def refined(size: int) -> ConeBeam:
    """A cube of side 2 in finer and finer voxels, seen by finer and finer pixels."""
    return ConeBeam.circular(
        (size,) * 3, (size + 1, size), angles=[0.0, 0.4, 2.0], source=6.0, panel=9.0, voxel=2 / size, pixel=4.0 / size
    )


SIZES = (10, 14, 20, 28, 40)


def order(errors: list[float]) -> float:
    """The power of the side of a voxel that the errors follow."""
    return -float(np.polyfit(np.log(SIZES), np.log(errors), 1)[0])


def test_projections_of_a_ball_converge() -> None:
    radius, errors = 0.8, []
    for size in SIZES:
        geometry = refined(size)
        covered = (squares(size, 4) <= radius**2).reshape(size, 4, size, 4, size, 4).mean(axis=(1, 3, 5))
        chord = 2 * np.sqrt(np.maximum(radius**2 - distances(geometry) ** 2, 0))
        errors.append(float(np.linalg.norm(XRayTransform(geometry).apply(covered) - chord) / np.linalg.norm(chord)))
    # The chord rises like a square root from the edge: off by √h on the h-wide rim is h in the mean square.
    assert errors[-1] < 0.03
    assert order(errors) > 0.95


def test_projections_of_a_smooth_ball_converge_with_order_two() -> None:
    radius, errors = 0.8, []
    for size in SIZES:
        geometry = refined(size)
        values = np.maximum(1 - squares(size) / radius**2, 0) ** 2
        exact = 16 / 15 * radius * np.maximum(1 - (distances(geometry) / radius) ** 2, 0) ** 2.5
        errors.append(float(np.linalg.norm(XRayTransform(geometry).apply(values) - exact) / np.linalg.norm(exact)))
    assert order(errors) > 1.9


def test_errors() -> None:
    A = XRayTransform(scan())
    x, y = pair(A)
    with pytest.raises(TypeError, match=r"geometry must be a fpdfp\.ct\.ConeBeam, got str"):
        XRayTransform("scan")
    with pytest.raises(ValueError, match=r"x must have shape \(9, 7, 5\), or that with a leading client axis"):
        A.apply(x[1:])
    with pytest.raises(ValueError, match="v must have shape"):
        A.adjoint(x)
    with pytest.raises(TypeError, match="x must hold real numbers, got dtype complex128"):
        A.apply(x + 1j)
    with pytest.raises(ValueError, match=r"x must have shape \(9, 7, 5\), got \(2, 9, 7, 5\)"):
        A.apply_views(np.stack([x, x]), [0])
    with pytest.raises(IndexError, match="views must be numbers from 0 to 5"):
        A.apply_views(x, [0, 6])
    with pytest.raises(IndexError, match="views must be numbers from 0 to 5"):
        A.apply_views(x, [-1])
    with pytest.raises(TypeError, match="views must be a list of integers"):
        A.apply_views(x, [0.5])
    with pytest.raises(TypeError, match="views must be a list of integers"):
        A.apply_views(x, 3)
    with pytest.raises(ValueError, match="y must have shape"):
        A.adjoint_groups(y, [0, 1], [0, 0], 1)
    with pytest.raises(ValueError, match="groups must have a number for each of the 2 views, got 1"):
        A.adjoint_groups(y[:2], [0, 1], [0], 1)
    for groups in ([1, 0], [-1, 0], [0, 2]):
        with pytest.raises(ValueError, match="groups must be numbers from 0 to 1 in ascending order"):
            A.adjoint_groups(y[:2], [0, 1], groups, 2)
    with pytest.raises(ValueError, match="n_groups must be an integer of at least 0"):
        A.adjoint_groups(y[:2], [0, 1], [0, 0], -1)


def test_a_group_is_divided_the_same_whoever_is_there(rng: np.random.Generator) -> None:
    """What the GPU treats together: its sums then have the same bits, however many groups there are."""
    from fpdfp._cuda.xray import _portions

    for _ in range(300):
        sizes, most = rng.integers(1, 12, rng.integers(1, 7)), int(rng.integers(1, 15))
        groups = np.repeat(np.arange(len(sizes)), sizes)
        portions = list(_portions(groups, most))
        assert [i for part in portions for i in range(part.start, part.stop)] == list(range(len(groups)))
        assert all(part.stop - part.start <= most for part in portions)
        for group, size in enumerate(sizes):
            shares = [int((groups[part] == group).sum()) for part in portions]
            alone = [part.stop - part.start for part in _portions(np.zeros(size, dtype=np.int64), most)]
            assert [share for share in shares if share] == alone


def test_masked_arrays_and_swapped_distances_are_refused() -> None:
    scan = ConeBeam.circular((4, 4, 4), (3, 3), views=2, source=20.0, panel=30.0)
    with pytest.raises(TypeError, match="x must not be a masked array"):
        XRayTransform(scan).apply(np.ma.masked_array(np.ones((4, 4, 4)), mask=True))
    with pytest.raises(ValueError, match="panel is the distance from the source to the panel"):
        ConeBeam.circular((4, 4, 4), (3, 3), views=2, source=20.0, panel=10.0)
