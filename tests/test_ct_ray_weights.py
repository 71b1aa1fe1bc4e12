"""Weights of rays: in losses and in reconstructions, for noise that differs and for pixels that do not count."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import ct

SCAN = ct.ConeBeam.circular((12, 12, 6), (18, 12), views=20, source=48.0, panel=72.0)


def data_of(noise: float = 0.02) -> Any:
    clean = ct.phantoms.thorax(SCAN).project(SCAN)
    return clean + noise * clean.max() * np.random.default_rng(0).standard_normal(clean.shape, dtype=np.float32)


def test_losses_are_those_of_the_weighted_matrix() -> None:
    data, rng = data_of(), np.random.default_rng(1)
    weights = rng.uniform(0.0, 2.0, data.shape).astype(np.float32)
    losses = ct.ProjectionLosses(data, SCAN, np.arange(20) % 2, ray_weights=weights)
    x = rng.random(SCAN.volume, dtype=np.float32)
    residual = (ct.XRayTransform(SCAN).apply(x) - data).astype(np.float64)
    clients = np.arange(2)
    for client in clients:
        own = np.arange(20) % 2 == client
        assert losses.values(x, clients)[client] == pytest.approx(0.5 * (weights * residual**2)[own].sum(), rel=1e-4)
        some = (weights * residual).astype(np.float32) * own[:, None, None]
        expected = ct.XRayTransform(SCAN).adjoint(some)
        np.testing.assert_allclose(losses.gradients(x, clients)[client], expected, rtol=1e-3, atol=1e-3)
        d = rng.standard_normal(SCAN.volume).astype(np.float32)
        image = ct.XRayTransform(SCAN).apply(d)[own]
        assert (weights[own] * image**2).sum() <= losses.lipschitz()[client] * (d**2).sum()


def test_a_reconstruction_with_weights_minimises_the_weighted_objective() -> None:
    data = data_of()
    weights = np.random.default_rng(2).uniform(0.2, 2.0, data.shape).astype(np.float32)
    found = ct.reconstruct(
        data, SCAN, tv=0.02, ray_weights=weights, bounds=(-math.inf, math.inf), iterations=150, tol=0.0, device="cpu"
    )
    losses = ct.ProjectionLosses(data, SCAN, ray_weights=weights)
    tv = fpdfp.penalties.GroupL12(found.weight, axis=0)
    problem = fpdfp.Problem(losses, tv, fpdfp.linops.Gradient(SCAN.volume), weights=[1 / SCAN.n_views])
    assert problem.evaluate(found.volume)[0] == pytest.approx(found.objective, rel=1e-5)
    best = fpdfp.solve(problem, fpdfp.PDFP(), rounds=800, evaluate_every=800)
    assert found.objective <= best.objective * (1 + 1e-4)


def test_pixels_that_do_not_count_do_no_harm() -> None:
    data, truth = data_of(), ct.phantoms.thorax(SCAN).volume(SCAN)
    bad = np.random.default_rng(3).random(data.shape) < 0.05
    broken = np.where(bad, 50.0, data).astype(np.float32)
    how: Any = {"tv": 0.02, "iterations": 30, "device": "cpu", "progress": False}
    good = ct.psnr(ct.reconstruct(data, SCAN, **how).volume, truth)
    with_mask = ct.reconstruct(broken, SCAN, ray_weights=(~bad).astype(np.float32), **how)
    assert ct.psnr(with_mask.volume, truth) > good - 0.5
    assert ct.psnr(ct.reconstruct(broken, SCAN, **how).volume, truth) < good - 5.0


def test_weights_of_counts_help_where_noise_differs() -> None:
    truth = ct.phantoms.thorax(SCAN).volume(SCAN)
    truth *= 4.0 / float(ct.XRayTransform(SCAN).apply(truth).max())
    rng = np.random.default_rng(4)
    counts = np.maximum(rng.poisson(400 * np.exp(-ct.XRayTransform(SCAN).apply(truth))), 1)
    data = -np.log(counts / 400).astype(np.float32)
    weights = ct.count_weights(data, 400.0, electronic=3.0)
    assert weights.mean() == pytest.approx(1.0, rel=1e-5)
    how: Any = {"iterations": 60, "device": "cpu", "progress": False}

    def best(**given: Any) -> float:
        found = [ct.reconstruct(data, SCAN, tv=tv, **given, **how).volume for tv in (1e-4, 3e-4, 1e-3, 3e-3)]
        return max(ct.psnr(one, truth) for one in found)

    assert best(ray_weights=weights) > best() + 0.3


def test_tilted_panels_and_mistakes() -> None:
    angle = np.deg2rad(2.0)
    turned = dataclasses.replace(
        SCAN, u=np.cos(angle) * SCAN.u + np.sin(angle) * SCAN.v, v=np.cos(angle) * SCAN.v - np.sin(angle) * SCAN.u
    )
    data = ct.phantoms.thorax(SCAN).project(turned)
    ones = np.ones_like(data)
    how: Any = {"tv": 0.01, "iterations": 5, "device": "cpu", "progress": False}
    weighted, plain = ct.reconstruct(data, turned, ray_weights=ones, **how), ct.reconstruct(data, turned, **how)
    np.testing.assert_allclose(weighted.volume, plain.volume, atol=1e-4 * float(plain.volume.max()))
    with pytest.raises(ValueError, match="ray_weights must not be negative"):
        ct.reconstruct(data, turned, ray_weights=-ones, **how)
    with pytest.raises(ValueError, match="ray_weights must have shape"):
        ct.ProjectionLosses(data, SCAN, ray_weights=ones[1:])
