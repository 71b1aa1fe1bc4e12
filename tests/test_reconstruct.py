"""Centralised reconstruction: it finds the minimiser, stops, refuses what does not fit, and goes on without a GPU."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import ct
from fpdfp._array import to_host
from fpdfp.ct import device, phantoms
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.losses import ProjectionLosses
from fpdfp.ct.phantoms import psnr
from fpdfp.ct.reconstruction import minimise, reconstruct
from fpdfp.ct.solver import Solver
from fpdfp.ct.weight import absolute_weight, pixel_at_axis, size_of
from fpdfp.errors import AccuracyWarning

SCAN = ConeBeam.circular((12, 12, 6), (18, 12), views=20, source=48.0, panel=72.0)
#: The weight that the data of this file ask for, relative to them; some 0.3 in the objective.
TV = 0.02


@pytest.fixture(scope="module")
def data() -> Any:
    noise = np.random.default_rng(0).standard_normal(SCAN.data_shape, dtype=np.float32)
    projections = phantoms.thorax(SCAN).project(SCAN) + noise
    return projections.astype(np.float32)


ANY = (-math.inf, math.inf)


def problem_of(data: Any, bounds: tuple[float, float], weight: float) -> fpdfp.Problem:
    losses = ProjectionLosses(data, SCAN)
    gradient, tv = fpdfp.linops.Gradient(SCAN.volume), fpdfp.penalties.GroupL12(weight, axis=0)
    if bounds == ANY:
        return fpdfp.Problem(losses, tv, gradient, weights=[1 / SCAN.n_views])
    both = fpdfp.linops.VStack([gradient, fpdfp.linops.Identity(SCAN.volume)])
    g = fpdfp.penalties.Stacked([tv, fpdfp.penalties.Box(*bounds)], [(3, *SCAN.volume), SCAN.volume])
    return fpdfp.Problem(losses, g, both, weights=[1 / SCAN.n_views])


@pytest.mark.parametrize("bounds", [ANY, (0.0, math.inf), (0.1, 0.6), (-math.inf, 0.5)])
def test_it_finds_the_minimiser(data: Any, bounds: tuple[float, float]) -> None:
    found = reconstruct(data, SCAN, tv=TV, bounds=bounds, iterations=150, tol=0.0, device="cpu")
    problem = problem_of(data, bounds, found.weight)
    best = fpdfp.solve(problem, fpdfp.PDFP(), rounds=1000, evaluate_every=1000)
    value = problem.evaluate(found.volume)[0]
    assert value == pytest.approx(found.objective, rel=1e-5)
    assert value <= best.objective * (1 + 1e-4)
    assert float(np.abs(found.volume - best.x).max()) < 0.02
    assert found.volume.min() >= bounds[0] - 1e-6
    assert found.volume.max() <= bounds[1] + 1e-6


def test_it_needs_fewer_passes_than_pdfp() -> None:
    scan = ConeBeam.circular((32, 32, 8), (48, 24), views=40, source=128.0, panel=192.0)
    data = phantoms.thorax(scan).project(scan)
    data += np.random.default_rng(0).standard_normal(scan.data_shape, dtype=np.float32)
    losses, tv = ProjectionLosses(data, scan), fpdfp.penalties.GroupL12(0.5, axis=0)
    problem = fpdfp.Problem(losses, tv, fpdfp.linops.Gradient(scan.volume), weights=[1 / scan.n_views])
    exact = minimise(data, scan, 0.5, bounds=ANY, iterations=60, tol=0.0, device="cpu").objective
    found = minimise(data, scan, 0.5, bounds=ANY, iterations=12, tol=0.0, device="cpu")
    slow = fpdfp.solve(problem, fpdfp.PDFP(), rounds=36, evaluate_every=36)
    assert found.objective - exact < 0.5 * (slow.objective - exact)


def test_it_improves_on_its_start_and_stops(data: Any) -> None:
    truth = phantoms.thorax(SCAN).volume(SCAN)
    found = reconstruct(data, SCAN, tv=TV, device="cpu", iterations=100, metrics={"psnr": lambda x: psnr(x, truth)})
    quality = found.history["psnr"]
    assert quality[-1] > quality[0] + 1.0
    assert found.status == "stationary"
    assert found.iterations == len(found.history["seconds"]) - 1 < 100
    assert found.history["change"][-1] <= 1e-4 < found.history["change"][-2]
    assert found.volume.dtype == np.float32
    assert "stationary after" in str(found)


def test_the_same_call_gives_the_same_bits(data: Any) -> None:
    both = [reconstruct(data, SCAN, tv=TV, device="cpu", iterations=5).volume for _ in range(2)]
    np.testing.assert_array_equal(*both)


@pytest.mark.slow
def test_double_precision_and_no_regulariser(data: Any) -> None:
    found = reconstruct(data.astype(np.float64), SCAN, tv=0.0, bounds=ANY, iterations=10, tol=0.0, device="cpu")
    assert found.volume.dtype == np.float64
    assert found.history["objective"][-1] < found.history["objective"][0]


def test_a_helix_starts_from_zero(caplog: pytest.LogCaptureFixture) -> None:
    scan = ConeBeam.helical((8, 8, 8), (12, 12), views=24, pitch=4.0, source=30.0, panel=45.0)
    projections = phantoms.thorax(scan).project(scan)
    with caplog.at_level(logging.WARNING, logger="fpdfp.ct"):
        found = reconstruct(projections, scan, tv=1e-3, iterations=20, device="cpu")
    assert "starting from zero" in caplog.text
    assert found.history["objective"][-1] < 0.1 * found.history["objective"][0]


def test_ctrl_c_returns_what_is_there(data: Any) -> None:
    calls = []

    def press(x: Any) -> float:
        calls.append(x)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return 0.0

    found = reconstruct(data, SCAN, tv=TV, device="cpu", iterations=50, tol=0.0, metrics={"press": press})
    assert found.status == "interrupted"
    assert found.iterations == 2
    assert np.isfinite(found.volume).all()


def test_what_does_not_fit_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"projections must have shape \(20, 18, 12\), got \(19, 18, 12\)"):
        reconstruct(data[1:], SCAN)
    broken = data.copy()
    broken[3, 4, 5] = np.nan
    with pytest.raises(ValueError, match=r"projections must be finite.*\(3, 4, 5\)"):
        reconstruct(broken, SCAN)
    with pytest.raises(TypeError, match="geometry must be"):
        reconstruct(data, "scan")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tv must be"):
        reconstruct(data, SCAN, tv=-1.0)
    with pytest.raises(ValueError, match="tv must be a number of at least 0, or 'auto', got 'best'"):
        reconstruct(data, SCAN, tv="best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tv must be a number where there are less than 10 views"):
        reconstruct(data[:9], SCAN.subset(range(9)), device="cpu")
    with pytest.raises(ValueError, match="device must be one of"):
        reconstruct(data, SCAN, device="tpu")


@pytest.mark.skipif(device.missing_gpu() is None, reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_a_line(data: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="fpdfp.ct"):
        found = reconstruct(data, SCAN, tv=0.0, bounds=ANY, iterations=1)
    assert found.device == "cpu"
    assert [record.getMessage().endswith("running on the CPU") for record in caplog.records] == [True]
    with pytest.raises(RuntimeError, match="needs a GPU"):
        reconstruct(data, SCAN, device="cuda")


@pytest.mark.skipif(device.missing_gpu() is not None, reason="there is no GPU")
def test_the_gpu_gives_the_same_volume(data: Any) -> None:
    import cupy

    here = reconstruct(data, SCAN, tv=TV, iterations=10, tol=0.0, device="cpu")
    there = reconstruct(cupy.asarray(data), SCAN, tv=TV, iterations=10, tol=0.0)
    assert there.device == "cuda"
    assert float(np.abs(to_host(there.volume) - here.volume).max()) < 1e-3


def test_psnr() -> None:
    truth = np.zeros((4, 4))
    truth[0, 0] = 2.0
    assert psnr(truth + 0.2, truth) == pytest.approx(20.0)
    assert psnr(truth + 0.2, truth, peak=1.0) == pytest.approx(20.0 - 10 * np.log10(4.0))
    assert psnr(truth, truth) == np.inf
    with pytest.raises(ValueError, match="image must have the shape"):
        psnr(truth[1:], truth)


@pytest.mark.parametrize(
    ("volume", "detector", "how"),
    [
        ((16, 16, 8), (32, 4), {"views": 12, "pixel": 1.0, "offset": (0.0, 6.0)}),
        ((33, 33, 9), (4, 4), {"views": 5}),
    ],
)
def test_a_middle_that_no_ray_meets(volume: Any, detector: Any, how: Any) -> None:
    scan = ct.ConeBeam.circular(volume, detector, source=60.0, panel=90.0, **how)
    found = ct.reconstruct(np.ones(scan.data_shape), scan, tv=1e-3, iterations=5, device="cpu", progress=False)
    assert np.isfinite(found.volume).all()
    assert found.history["objective"][-1] < found.history["objective"][0] * (1 + 1e-9)


def test_a_volume_that_no_ray_meets_is_refused() -> None:
    scan = ct.ConeBeam.circular((8, 8, 4), (4, 4), views=5, source=60.0, panel=90.0, pixel=1.0, offset=(60.0, 0.0))
    with pytest.raises(ValueError, match="no ray of any view meets the volume"):
        ct.reconstruct(np.ones(scan.data_shape), scan, tv=1e-3, device="cpu", progress=False)


def test_units_do_not_matter() -> None:
    scan = ct.ConeBeam.circular((12, 12, 4), (18, 8), views=12, source=48.0, panel=72.0)
    data = ct.phantoms.thorax(scan).project(scan).astype(np.float32)
    one = ct.reconstruct(data, scan, tv=1e-3, iterations=4, device="cpu", progress=False)
    for unit in (2.0**80, 2.0**-80):
        other = ct.reconstruct(data * np.float32(unit), scan, tv=1e-3, iterations=4, device="cpu", progress=False)
        np.testing.assert_array_equal(other.volume / np.float32(unit), one.volume)
        assert other.objective == pytest.approx(one.objective * unit**2)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int64, bool])
def test_psnr_of_integers_is_that_of_their_values(kind: Any) -> None:
    a, b = np.array([[0, 1, 1]], dtype=kind), np.array([[1, 1, 1]], dtype=kind)
    assert ct.psnr(a, b) == pytest.approx(10 * np.log10(3))
    assert ct.psnr(a.tolist(), b.tolist()) == pytest.approx(10 * np.log10(3))
    with pytest.raises(ValueError, match="image must be finite"):
        ct.psnr(np.array([np.nan]), np.array([1.0]))


def test_tv_does_not_depend_on_units_of_length_or_shapes_of_voxels() -> None:
    how = {"views": 12, "source": 48.0, "panel": 72.0}
    scan = ct.ConeBeam.circular((12, 12, 4), (18, 8), **how)  # type: ignore[arg-type]
    data = ct.phantoms.thorax(scan).project(scan)
    one = ct.reconstruct(data, scan, tv=1e-2, iterations=8, device="cpu", progress=False)
    u, v = (float(np.linalg.norm(step[0])) / 4 for step in (scan.u, scan.v))
    smaller = ct.ConeBeam.circular(
        (12, 12, 4), (18, 8), views=12, source=12.0, panel=18.0, voxel=0.25, pixel=(u, v)
    )  # fmt: skip
    other = ct.reconstruct(data, smaller, tv=1e-2, iterations=8, device="cpu", progress=False)
    np.testing.assert_allclose(other.volume / 4, one.volume, atol=1e-4 * float(one.volume.max()))


@pytest.mark.parametrize(("layers", "side"), [(8, 3.0), (24, 1.0), (48, 0.5)])
def test_the_weight_of_one_object_is_nearly_the_same_with_any_voxels(layers: int, side: float) -> None:
    pixel = (2.0, 1.5)
    scan = ct.ConeBeam.circular(
        (32, 32, layers), (48, 36), views=10, source=120.0, panel=180.0, voxel=(1.0, 1.0, side), pixel=pixel
    )
    ball = ct.Ellipsoids([[0, 0, 0]], [[10, 10, 10]], [1.0])
    x = ball.volume(scan)
    weight = absolute_weight(1.0, ball.project(scan), scan)
    solver = Solver(ball.project(scan), scan, weight, ANY, np)
    # The area of the ball, up to what a coarse gradient adds; the unit is S · V / p per voxel face, with S = 20.
    value = solver.penalty.value(solver.gradient.apply(x)) * pixel_at_axis(scan) / size_of(ball.project(scan))
    assert value == pytest.approx(4 * np.pi * 100, rel=0.2)


def test_a_large_weight_converges_or_warns() -> None:
    scan = ct.ConeBeam.circular((24, 24, 12), (36, 18), views=30, source=120.0, panel=180.0)
    data = ct.phantoms.thorax(scan).project(scan)
    one = ct.XRayTransform(scan).apply(np.ones(scan.volume, dtype=np.float32))
    level = float((one * data).sum() / (one * one).sum())
    constant = float(((level * one - data) ** 2).sum()) / (2 * scan.n_views)
    how: Any = {"bounds": (0.0, math.inf), "tol": 1e-4, "device": "cpu", "progress": False}
    with pytest.warns(AccuracyWarning, match="the regulariser converges slowly"):
        minimise(data, scan, 1e4, iterations=3, **how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        found = minimise(data, scan, 100.0, iterations=50, **how)
    # It ended 2.5 times above the constant volume when a proximal step took ten dual steps, whatever their gap.
    assert found.objective < 1.02 * constant


@pytest.mark.parametrize("noise", [0.02, 0.08])
def test_left_out_views_choose_the_weight(noise: float) -> None:
    scan = ct.ConeBeam.circular((24, 24, 8), (36, 12), views=30, source=128.0, panel=192.0)
    truth = phantoms.thorax(scan).volume(scan)
    clean = ct.XRayTransform(scan).apply(truth)
    data = clean + noise * clean.max() * np.random.default_rng(7).standard_normal(clean.shape, dtype=np.float32)
    found = reconstruct(data, scan, device="cpu", progress=False)
    assert not found.finer
    assert found.scores.shape[0] == 2
    assert found.scores.shape[1] >= 3
    best = max(
        psnr(reconstruct(data, scan, tv=factor * found.tv, iterations=20, device="cpu", progress=False).volume, truth)
        for factor in (0.25, 0.5, 1.0, 2.0, 4.0)
    )
    assert psnr(found.volume, truth) > best - 0.2


def test_exact_data_on_coarse_voxels_take_smaller_ones() -> None:
    scan = ct.ConeBeam.circular((16, 16, 4), (24, 8), views=30, source=86.0, panel=129.0)
    head = phantoms.shepp_logan(scan)
    data = head.project(scan)
    data += 0.005 * data.max() * np.random.default_rng(7).standard_normal(data.shape, dtype=np.float32)
    found = reconstruct(
        data, scan, device="cpu", progress=False, metrics={"psnr": lambda x: psnr(x, head.volume(scan))}
    )
    assert found.finer
    assert found.volume.shape == scan.volume
    same = reconstruct(data, scan, tv=found.tv, device="cpu", progress=False)
    assert found.history["psnr"][-1] > psnr(same.volume, head.volume(scan)) + 1.0


def test_tilted_panels_are_reconstructed_like_upright_ones() -> None:
    scan = ct.ConeBeam.circular((24, 24, 16), (40, 28), views=40, source=96.0, panel=144.0)
    angle = np.deg2rad(2.0)
    turned = dataclasses.replace(
        scan, u=np.cos(angle) * scan.u + np.sin(angle) * scan.v, v=np.cos(angle) * scan.v - np.sin(angle) * scan.u
    )
    assert not turned.is_straight
    chest = phantoms.thorax(scan)
    how: Any = {"tv": 1e-3, "iterations": 10, "device": "cpu", "progress": False}
    one = reconstruct(chest.project(scan), scan, **how)
    other = reconstruct(chest.project(turned), turned, **how)
    assert psnr(other.volume, chest.volume(scan)) > psnr(one.volume, chest.volume(scan)) - 0.5


def test_directions_have_factors(data: Any) -> None:
    factors = (1.0, 0.5, 0.25)
    found = reconstruct(data, SCAN, tv=TV, bounds=ANY, axes=factors, iterations=100, tol=0.0, device="cpu")
    problem = problem_of(data, ANY, found.weight)
    scale = np.broadcast_to(np.array(factors)[:, None, None, None], (3, *SCAN.volume))
    weighted = fpdfp.linops.Compose(fpdfp.linops.Diagonal(scale.copy()), problem.linop)
    other = fpdfp.Problem(problem.losses, problem.penalty, weighted, weights=[1 / SCAN.n_views])
    best = fpdfp.solve(other, fpdfp.PDFP(), rounds=600, evaluate_every=600)
    assert found.objective == pytest.approx(other.evaluate(found.volume)[0], rel=1e-5)
    assert found.objective <= best.objective * (1 + 1e-4)
    with pytest.raises(ValueError, match="axes must be"):
        reconstruct(data, SCAN, axes=(1.0, 0.0, 1.0))


def test_a_checkpoint_is_continued(data: Any, tmp_path: Path) -> None:
    file = tmp_path / "chest.npz"
    how: dict[str, Any] = {"tv": "auto", "iterations": 30, "tol": 0.0, "device": "cpu", "progress": False}
    whole = reconstruct(data, SCAN, **how)
    seen: list[int] = []

    def interrupt(iteration: int, volume: Any) -> None:
        seen.append(iteration)
        assert volume.shape == SCAN.volume
        if iteration == 4:
            os.kill(os.getpid(), signal.SIGINT)

    first = reconstruct(data, SCAN, checkpoint=file, callback=interrupt, **how)
    assert first.status == "interrupted"
    assert seen[-1] in (4, 5)
    with pytest.raises(ValueError, match="is of other projections or options"):
        reconstruct(data, SCAN, checkpoint=file, **{**how, "tv": TV})
    began: list[int] = []
    second = reconstruct(data, SCAN, checkpoint=file, callback=lambda k, _: began.append(k), **how)
    assert began[0] == seen[-1] + 1
    assert second.tv == whole.tv
    np.testing.assert_array_equal(second.scores, whole.scores)
    assert psnr(second.volume, whole.volume) > 40
    assert not file.exists()
    file.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="cannot be read"):
        reconstruct(data, SCAN, checkpoint=file, **how)
    with pytest.raises(ValueError, match=r"checkpoint must be a \.npz file in a folder that is there"):
        reconstruct(data, SCAN, checkpoint=tmp_path / "chest.pickle", **how)
