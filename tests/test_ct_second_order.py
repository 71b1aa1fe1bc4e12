"""Total generalized variation: the minimum that a general solver finds, and ramps without steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fpdfp import ct
from fpdfp._typing import Array
from fpdfp.ct.reconstruction import minimise

SCAN = ct.ConeBeam.circular((6, 5, 4), (9, 6), views=7, source=60.0, panel=90.0)


def dense(apply: Any, shape: tuple[int, ...]) -> Array:
    """Return the matrix of a linear map."""
    size = int(np.prod(shape))
    return np.stack([np.asarray(apply(row.reshape(shape)), dtype=float).ravel() for row in np.eye(size)], axis=1)


def differences(axis: int) -> Array:
    """Return the matrix of the differences along an axis, zero at the end."""

    def apply(x: Array) -> Array:
        return np.diff(x, axis=axis, append=np.take(x, [-1], axis=axis))

    return dense(apply, SCAN.volume)


@pytest.mark.parametrize("second", [0.5, 2.0])
def test_the_minimum_is_that_of_a_general_solver(second: float) -> None:
    cp = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(0)
    truth = np.add.outer(np.add.outer(np.arange(6.0), np.arange(5.0)), np.zeros(4)) / 10.0
    projector = ct.XRayTransform(SCAN)
    data = projector.apply(truth) + 0.05 * rng.standard_normal(SCAN.data_shape)
    weight, matrix = 0.1, dense(projector.apply, SCAN.volume)
    parts = [differences(axis) for axis in range(3)]
    x, s = cp.Variable(matrix.shape[1]), cp.Variable((3, matrix.shape[1]))
    steep = cp.vstack([parts[axis] @ x - s[axis] for axis in range(3)])
    bends = [parts[axis] @ s[axis] for axis in range(3)]
    bends += [(parts[i] @ s[j] + parts[j] @ s[i]) / np.sqrt(2) for i, j in ((0, 1), (0, 2), (1, 2))]
    value = cp.sum_squares(matrix @ x - data.ravel()) / (2 * SCAN.n_views)
    value += weight * (cp.sum(cp.norm(steep, 2, axis=0)) + second * cp.sum(cp.norm(cp.vstack(bends), 2, axis=0)))
    problem = cp.Problem(cp.Minimize(value), [x >= 0])
    problem.solve(solver="CLARABEL")
    found = minimise(
        data, SCAN, weight, bounds=(0.0, np.inf), iterations=600, tol=0.0, device="cpu", second=second, progress=False
    )
    assert problem.value - 1e-9 <= found.objective <= problem.value * (1 + 1e-4)
    assert np.abs(found.volume.ravel() - x.value).max() <= 0.02 * truth.max()


@pytest.mark.slow
def test_a_ramp_stays_a_ramp() -> None:
    scan = ct.ConeBeam.circular((24, 24, 6), (36, 10), views=40, source=200.0, panel=300.0)
    i, j = np.ogrid[-11.5:12, -11.5:12]
    truth = np.where(i**2 + j**2 < 90, 1.0 + 0.05 * i, 0.0)[:, :, None] * np.ones(6)
    rng = np.random.default_rng(1)
    data = ct.XRayTransform(scan).apply(truth.astype(np.float32))
    data += 0.02 * data.max() * rng.standard_normal(data.shape, dtype=np.float32)
    how: dict[str, Any] = {"device": "cpu", "progress": False, "iterations": 60}
    best = {
        second: max(
            ct.psnr(ct.reconstruct(data, scan, tv=tv, second_order=second, **how).volume, truth)
            for tv in (0.001, 0.003, 0.01)
        )
        for second in (None, 2.0)
    }
    assert best[2.0] > best[None] + 0.5


def test_a_factor_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="second_order must be a finite number greater than 0"):
        ct.reconstruct(np.zeros(SCAN.data_shape), SCAN, tv=0.1, second_order=0.0)
