"""CT data and angles that are not what they are used as."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

from fpdfp import ct
from fpdfp.errors import DataWarning

RNG = np.random.default_rng(0)


def scan(views: int = 40, detector: tuple[int, int] = (32, 32), **changes: Any) -> ct.ConeBeam:
    given = {"source": 100.0, "panel": 150.0, "views": views} | changes
    return ct.ConeBeam.circular((24, 24, 24), detector, **given)


def uses(projections: Any, geometry: ct.ConeBeam) -> list[Any]:
    return [
        lambda: ct.fdk(projections, geometry),
        lambda: ct.reconstruct(projections, geometry, tv=0.0, bounds=(-math.inf, math.inf), iterations=1, device="cpu"),
        lambda: ct.ProjectionLosses(projections, geometry),
    ]


def objects(geometry: ct.ConeBeam) -> dict[str, ct.Ellipsoids]:
    return {
        "thorax": ct.phantoms.thorax(geometry),
        "head": ct.phantoms.shepp_logan(geometry),
        "ball": ct.Ellipsoids([[0, 0, 0]], [[8, 8, 8]], [1.0]),
        "ball beside the axis": ct.Ellipsoids([[6, 0, 0]], [[3, 3, 3]], [1.0]),
        "ball above": ct.Ellipsoids([[0, 0, 7]], [[3, 3, 3]], [1.0]),
        "flat": ct.Ellipsoids([[2, 1, 0]], [[9, 5, 2]], [1.0]),
        "larger than the panel sees": ct.Ellipsoids([[0, 0, 0]], [[40, 40, 40]], [1.0]),
        "pipe": ct.Ellipsoids([[0, 0, 0], [0, 0, 0]], [[11.5, 11.5, 60], [11.0, 11.0, 60]], [1.0, -1.0]),
    }


NAMES = list(objects(scan()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("panel", [(32, 32), (48, 20)])
@pytest.mark.parametrize("source", [40.0, 100.0, 1000.0])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_line_integrals_give_no_alarm(name: str, panel: tuple[int, int], source: float, noise: float) -> None:
    from fpdfp.ct.scans import warn_of_projections

    geometry = scan(detector=panel, source=source, panel=1.5 * source)
    data = objects(geometry)[name].project(geometry)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_projections(data + noise * data.max() * 0.1 * RNG.standard_normal(data.shape), geometry)
        warn_of_projections(np.maximum(data, 1e-3), geometry)
        warn_of_projections(np.full_like(data, 2.0), geometry)


@pytest.mark.parametrize("name", ["thorax", "head"])
@pytest.mark.parametrize("gain", [1.0, 20000.0])
def test_counts_and_transmissions_are_warned_of(name: str, gain: float) -> None:
    geometry = scan(pixel=1.6)
    data = objects(geometry)[name].project(geometry)
    counts = gain * np.exp(-data / data.max() * 3)
    for use in uses(counts.astype(np.float32), geometry):
        with pytest.warns(DataWarning, match="look like counts or transmissions, not line integrals"):
            use()


def test_integers_are_counts() -> None:
    for use in uses(np.ones(scan().data_shape, dtype=np.uint16), scan()):
        with pytest.raises(
            TypeError, match="must be line integrals in floating point, got uint16, which looks like counts"
        ):
            use()


@pytest.mark.parametrize("name", ["thorax", "head", "flat", "ball beside the axis"])
@pytest.mark.parametrize("arc", [2 * math.pi, 4.0])
def test_swapped_axes_of_square_panels_are_warned_of(name: str, arc: float) -> None:
    geometry = scan(arc=arc)
    data = objects(geometry)[name].project(geometry).swapaxes(1, 2).copy()
    for use in uses(data, geometry):
        with pytest.warns(DataWarning, match=r"columns \(u\) and rows \(v\) look swapped"):
            use()


def test_swapped_axes_are_named_by_their_shape() -> None:
    geometry = scan(detector=(32, 20))
    for use in uses(np.ones((40, 20, 32)), geometry):
        with pytest.raises(ValueError, match=r"must have shape \(40, 32, 20\).*the axes are in another order"):
            use()


DEGREES = {
    "a turn": np.arange(360.0),
    "half a turn": np.linspace(0, 180, 60),
    "fine": np.linspace(0, 360, 3600),
    "few": np.array([0.0, 90.0]),
    "an arc": np.linspace(-30, 30, 31),
    "in any order": np.random.default_rng(0).permutation(np.arange(0, 360, 2.0)),
}


@pytest.mark.parametrize("angles", DEGREES.values(), ids=list(DEGREES))
def test_degrees_are_refused_or_declared(angles: Any) -> None:
    with pytest.raises(ValueError, match=r'angles look like degrees.*unit="degrees"'):
        scan(views=None, angles=angles)  # type: ignore[arg-type]
    declared = scan(views=None, angles=angles, unit="degrees")  # type: ignore[arg-type]
    radians = scan(views=None, angles=np.radians(angles))  # type: ignore[arg-type]
    np.testing.assert_allclose(declared.sources, radians.sources, atol=1e-9)
    scan(views=None, angles=angles, unit="radians")  # type: ignore[arg-type]


def test_an_arc_in_degrees() -> None:
    with pytest.raises(ValueError, match="views and arc look like degrees"):
        scan(100, arc=360.0)
    np.testing.assert_allclose(scan(100, arc=180.0, unit="degrees").sources, scan(100, arc=math.pi).sources, atol=1e-9)
    np.testing.assert_allclose(scan(100, unit="degrees").sources, scan(100).sources, atol=1e-9)
    with pytest.raises(ValueError, match="unit must be one of"):
        scan(100, unit="grad")


RADIANS = {
    "a turn": np.linspace(0, 2 * math.pi, 7),
    "two turns, few views": np.linspace(0, 4 * math.pi, 12),
    "ten turns": np.linspace(0, 20 * math.pi, 400),
    "one view": np.array([90.0]),
    "the same view again": np.array([90.0, 90.0]),
    "backwards": -np.linspace(0, 2 * math.pi, 100),
    "from anywhere": 1000 + np.linspace(0, 2 * math.pi, 100),
}


@pytest.mark.parametrize("angles", RADIANS.values(), ids=list(RADIANS))
def test_radians_give_no_alarm(angles: Any) -> None:
    scan(views=None, angles=angles)  # type: ignore[arg-type]


def test_helices_have_many_turns() -> None:
    given: Any = {"pitch": 1.0, "source": 60.0, "panel": 90.0}
    for turns, views in ((3, 24), (20, 400), (60, 12_000)):
        ct.ConeBeam.helical((8, 8, 8), (9, 9), views=views, arc=2 * math.pi * turns, **given)
    with pytest.raises(ValueError, match="angles look like degrees"):
        ct.ConeBeam.helical((8, 8, 8), (9, 9), angles=np.arange(720.0), **given)
    ct.ConeBeam.helical((8, 8, 8), (9, 9), angles=np.arange(720.0), unit="degrees", **given)
