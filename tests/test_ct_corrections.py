"""Corrections of line integrals: rings, beam hardening."""

from __future__ import annotations

import numpy as np
import pytest

from fpdfp import ct
from fpdfp._typing import Array

SCAN = ct.ConeBeam.circular((32, 32, 8), (64, 12), views=90, source=128.0, panel=192.0)


def test_stripes_are_removed_and_the_object_is_kept() -> None:
    chest = ct.phantoms.thorax(SCAN)
    clean = chest.project(SCAN)
    stripes = np.zeros((64, 12), dtype=np.float32)
    stripes[[9, 30, 47]] = 0.05 * clean.max()
    mended = ct.remove_rings(clean + stripes)
    assert mended.dtype == np.float32

    def error(data: Array) -> float:
        return float(np.linalg.norm(data - clean))

    assert error(mended) < 0.4 * error(clean + stripes)
    truth = chest.volume(SCAN)
    assert ct.psnr(ct.fdk(mended, SCAN), truth) > ct.psnr(ct.fdk(clean + stripes, SCAN), truth) + 0.5
    assert ct.psnr(ct.fdk(ct.remove_rings(clean), SCAN), truth) > ct.psnr(ct.fdk(clean, SCAN), truth) - 0.05


def test_hardening_is_undone() -> None:
    # Two energies with absorptions 1 and 0.5, equally bright: the polynomial is fitted to steps of known thickness.
    def seen(length: Array) -> Array:
        line: Array = -np.log(0.5 * np.exp(-length) + 0.5 * np.exp(-0.5 * length))
        return line

    steps = np.linspace(0.05, 3.0, 40)
    powers = seen(steps)[:, None] ** np.arange(1, 5)
    coefficients = np.linalg.lstsq(powers, steps, rcond=None)[0]
    lengths = np.random.default_rng(0).uniform(0.0, 3.0, (3, 8, 4))
    np.testing.assert_allclose(ct.correct_hardening(seen(lengths), coefficients), lengths, atol=2e-3)


def test_mistakes_are_told() -> None:
    data = np.ones((3, 9, 2))
    with pytest.raises(ValueError, match="width must be an odd number of at most 9 columns, got 4"):
        ct.remove_rings(data, width=4)
    with pytest.raises(ValueError, match=r"projections must have shape \(views, nu, nv\), got \(9, 2\)"):
        ct.remove_rings(data[0])
    with pytest.raises(ValueError, match="coefficients must give values that grow with the data, from 0 to 1"):
        ct.correct_hardening(data, [1.0, -2.0])
    with pytest.raises(ValueError, match="coefficients must be a list of at least one number"):
        ct.correct_hardening(data, [])
