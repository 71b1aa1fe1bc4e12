"""What `fpdfp.minimize` is made of, beside dense textbook versions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from benchmarks._dual_path import solve_dual_path

import fpdfp
from fpdfp._kernels.quadratic import estimate_gap
from fpdfp._kernels.rows import look_at
from fpdfp.penalties.base import Penalty
from fpdfp.pooled import fit
from fpdfp.pooled.fit import Columns
from fpdfp.quadratic.blocks import BlockDescent, Blocks
from fpdfp.quadratic.columns import ColumnDescent


@pytest.mark.parametrize("kind", [fpdfp.losses.Logistic, fpdfp.losses.LeastSquares])
def test_what_is_seen_of_rows(kind: Any) -> None:
    forms = np.array([0.0, 1.5, -1.5, 40.0, -40.0, 800.0, -800.0])
    y, weights = np.array([1.0, -1.0, 1.0, 1.0, 1.0, -1.0, -1.0]), np.linspace(0.1, 0.7, 7)
    losses = kind(np.eye(7), y)
    found = np.empty((3, 7))
    look_at(kind.kind, forms, y, weights, *found)
    expected = [losses._phi(forms, y), weights * losses._slopes(forms, y), weights * losses._second(forms, y)]
    # φ'' of NumPy loses the last digits where probabilities are near 1.
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("sparse", [False, True])
def test_columns_are_those_of_dense_rows(sparse: bool) -> None:
    """In their place, and as a copy."""
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((60, 12), density=0.4, format="csr", rng=rng)
    columns, weights = np.array([7, 2, 11, 3]), rng.random(60)
    some, dense = Columns(X if sparse else X.toarray()).select(columns), X.toarray()[:, columns]
    assert (some.columns is None) == sparse
    x, slopes = rng.standard_normal(4), rng.standard_normal(60)
    for these in (some, some.copy()):
        np.testing.assert_allclose(these.times(x), dense @ x, atol=1e-14)
        np.testing.assert_allclose(these.pick(these.back(slopes)), dense.T @ slopes, atol=1e-14)
        np.testing.assert_allclose(these.gram(weights, 1), dense.T @ (weights[:, None] * dense), atol=1e-13)
    alone = some.copy().X
    np.testing.assert_array_equal(alone.toarray() if sparse else alone, dense)


def test_the_hessian_of_norms_of_blocks_is_that_of_differences() -> None:
    rng = np.random.default_rng(2)
    starts, weights = np.array([0, 1, 4, 6, 8]), np.array([0.3, 0.5, 0.0, 2.0])
    u = np.where(np.arange(8) < 6, rng.standard_normal(8), 0.0)
    blocks = Blocks(np.arange(8), starts, weights)
    free = np.arange(6)
    bent = BlockDescent(np.eye(8), blocks)._bend(free, u, blocks.norms(u)) - np.eye(6)

    def slope(at: Any) -> Any:
        norms = np.repeat(weights[:3] / np.array([abs(at[0]), *map(np.linalg.norm, (at[1:4], at[4:6]))]), [1, 3, 2])
        return norms * at

    for k in range(6):
        step = 1e-6 * np.eye(6)[k]
        np.testing.assert_allclose(bent[k], (slope(u[:6] + step) - slope(u[:6] - step)) / 2e-6, atol=1e-8)


@pytest.mark.parametrize(
    "penalty",
    [
        fpdfp.penalties.L1(0.3),
        fpdfp.penalties.L1([0.0, 1.0, 0.5, 0.2, 0.7, 0.1]),
        fpdfp.penalties.GroupL12(0.4, groups=[0, 1, 0, 2, 2, 1]),
        fpdfp.penalties.GroupL12([0.4, 0.0, 2.0], groups=[0, 1, 0, 2, 2, 1]),
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_scales_of_dual_points_are_those_of_bisection(penalty: Penalty, size: float) -> None:
    rng = np.random.default_rng(1)
    for v in (size * rng.standard_normal(6), np.zeros(6)):
        scale = penalty.conjugate_scale(v)
        assert scale == pytest.approx(Penalty.conjugate_scale(penalty, v), rel=1e-13, abs=1e-15)
        assert penalty.conjugate(scale * v) == 0.0


def test_a_hessian_that_has_learned_fits_the_step() -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((4000, 4))
    losses = fpdfp.losses.Logistic(X, np.sign(X[:, 0] + rng.standard_normal(4000)))
    whole = fit.Fit(fpdfp.Problem(losses, fpdfp.penalties.L1(0.01)))
    curvature = fit.Curvature(whole, whole.data, slice(None))
    first = whole.at(np.zeros(4))
    assert curvature.move(first.curvatures)
    step = np.array([0.3, -0.1, 0.2, 0.0])
    second = whole.at(step)
    change = whole.back(second, whole.data)[0] - whole.back(first, whole.data)[0]
    assert not np.allclose(curvature.hessian @ step, change, rtol=1e-6)
    assert curvature.learn(step, change)
    np.testing.assert_allclose(curvature.hessian @ step, change, rtol=1e-10)
    assert np.linalg.eigvalsh(curvature.hessian)[0] > 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("linop", [None, fpdfp.linops.Difference(30)], ids=["l1", "differences"])
def test_warm_starts_and_certificates(dtype: Any, linop: Any) -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((2000, 30)).astype(dtype)
    y = np.sign(X[:, :3].sum(axis=1) + rng.standard_normal(2000))
    losses = fpdfp.losses.Logistic(X, y, l2=1e-3)
    tol = 1e-6 if dtype == np.float32 else 1e-9
    near = fpdfp.minimize(fpdfp.Problem(losses, fpdfp.penalties.L1(0.011), linop), tol)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.01), linop)
    cold, warm = fpdfp.minimize(problem, tol), fpdfp.minimize(problem, tol, x0=near.x)
    assert warm.x.dtype == dtype
    assert warm.converged
    assert warm.newton_steps <= cold.newton_steps
    # Linear forms that were added up over the steps claim no more than those of x itself.
    again = problem.certificate(warm.x, warm.v)
    assert again.objective == pytest.approx(warm.objective, rel=1e-6 if dtype == np.float32 else 1e-13)
    assert again.gap is not None
    assert again.gap <= 2 * tol * again.objective


@pytest.mark.parametrize("weight", [1.0, 0.1, 0.01])
def test_the_dual_path_agrees(weight: float) -> None:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((200, 30))
    y = X @ np.repeat(rng.standard_normal(6), 5) + rng.standard_normal(200)
    B = scipy.sparse.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(29, 30)).tocsr()
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(X, y, l2=1e-3), fpdfp.penalties.L1(weight), B)
    np.testing.assert_allclose(solve_dual_path(X, y, B, weight, 1e-3), fpdfp.minimize(problem, tol=1e-12).x, atol=1e-9)


@pytest.mark.parametrize("sizes", [[1] * 12, [1, 3, 2, 4, 2]])
def test_estimates_of_gaps_follow_from_optimality_conditions(sizes: list[int]) -> None:
    rng = np.random.default_rng(5)
    starts = np.append(0, np.cumsum(sizes))
    weights = np.where(np.arange(len(sizes)) == 1, 0.0, rng.uniform(0.3, 1.0, len(sizes)))
    curved = np.where(np.arange(len(sizes)) % 3 == 1, 0.4, 0.0)
    blocks = Blocks(np.arange(12), starts, weights)
    u = rng.standard_normal(12) * np.repeat(np.arange(len(sizes)) % 2, sizes)
    slope, value = rng.standard_normal(12), 3.0
    total, excess, residuals = 0.0, 0.0, []
    for g in range(len(sizes)):
        some, weight = slice(starts[g], starts[g + 1]), float(weights[g])
        own, steep = u[some], slope[some]
        norm, size = float(np.linalg.norm(own)), float(np.linalg.norm(steep))
        residual = float(np.linalg.norm(steep + weight * own / norm)) if norm else max(size - weight, 0.0)
        residuals.append(residual)
        total += norm * residual if norm and weight else residual**2 / (2 * curved[g]) if curved[g] else 0.0
        excess = max(excess, 1 - weight / size if not curved[g] and weight and size > weight else 0.0)
    np.testing.assert_allclose(blocks.residuals(u, slope), residuals, rtol=1e-14)
    found = estimate_gap(u, slope, starts, weights, curved, value)
    assert excess > 0
    assert found == pytest.approx(total + excess * value, rel=1e-13)


def test_sparse_columns_have_the_minimum_of_their_hessian() -> None:
    rng = np.random.default_rng(6)
    A = scipy.sparse.random_array((40, 30), density=0.2, format="csc", rng=rng)
    columns, curvatures = rng.permutation(30)[:20], rng.random(40)
    ridge, weights = np.full(20, 0.01), np.full(20, 0.05)
    x, slope = rng.standard_normal(20) * (rng.random(20) < 0.3), rng.standard_normal(20)
    dense = A.toarray()[:, columns]
    hessian = dense.T @ (curvatures[:, None] * dense) + 0.01 * np.eye(20)
    blocks = Blocks(np.arange(20), np.arange(21), weights)
    expected = BlockDescent(hessian, blocks).minimise(x, slope)

    def near(u: Any, at: Any) -> bool:
        return bool(blocks.residuals(u, at).max() < 1e-12)

    found = ColumnDescent(A, columns, ridge, weights).minimise(curvatures, x, slope, near)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_array_equal(found == 0, expected == 0)
