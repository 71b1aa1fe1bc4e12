"""Coefficient maps over sites: against a generic solver, together against alone, on surfaces, and on digits."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

import fpdfp
from fpdfp import linops, penalties
from fpdfp._typing import Array
from fpdfp.datasets import image_cohort
from fpdfp.problem import Model
from fpdfp.quadratic.dual import DualSteps
from fpdfp.quadratic.statement import Distance


def test_differences_are_those_of_the_whole_image_inside_the_mask() -> None:
    rng = np.random.default_rng(0)
    image, full = rng.standard_normal((4, 5, 3)), np.ones((4, 5, 3), dtype=bool)
    whole = linops.Gradient((4, 5, 3)).apply(image)
    np.testing.assert_array_equal(linops.MaskedGradient(full).apply(image.ravel()), whole.reshape(3, -1))
    mask = rng.random((4, 5, 3)) < 0.7
    expected = whole.copy()
    for axis in range(3):
        follows = np.zeros_like(mask)
        part: list[Any] = [slice(None)] * 3
        part[axis] = slice(-1)
        follows[tuple(part)] = np.moveaxis(np.moveaxis(mask, axis, 0)[1:], 0, axis)
        expected[axis][~follows] = 0.0
    np.testing.assert_array_equal(linops.MaskedGradient(mask).apply(image[mask]), expected[:, mask])
    linop = linops.MaskedGradient(mask, others=2)
    matrix = np.array([linop.apply(row).ravel() for row in np.eye(linop.size_in)])
    assert np.linalg.norm(matrix, 2) ** 2 <= linop.squared_norm
    with pytest.raises(ValueError, match="mask must be an array of 1, 2 or 3 axes of truth values"):
        linops.MaskedGradient(np.ones((3, 3)))


def generic(images: Array, y: Array, parts: Any, penalty: Any, *, isotropic: bool) -> tuple[Array, float]:
    """Return the coefficients that Clarabel finds, and the objective.

    ``parts`` are the matrices of differences along each axis.
    """
    x, c = cp.Variable(images.shape[1]), cp.Variable()
    forms = images @ x + c
    if y.dtype.kind == "i":
        loss = cp.sum(cp.logistic(cp.multiply(1.0 - 2.0 * y, forms))) / len(y)
    else:
        loss = 0.5 * cp.sum_squares(forms - y) / len(y)
    rows = cp.vstack([part @ x for part in parts])
    across = cp.sum(cp.norm(rows, 2, axis=0)) if isotropic else cp.sum(cp.abs(rows))
    problem = cp.Problem(cp.Minimize(loss + penalty.weight * (across + penalty.l1 * cp.norm1(x))))
    problem.solve(solver=cp.CLARABEL)
    return np.asarray(x.value), float(problem.value)


@pytest.mark.parametrize(("family", "isotropic", "l1"), [("binomial", True, 0.5), ("gaussian", False, 1.0)])
def test_it_is_the_minimum_that_a_generic_solver_finds(family: Any, isotropic: bool, l1: float) -> None:
    cohort = image_cohort((8, 8), subjects=90, sites=3, family=family)
    images = cohort.images.astype(np.float64)
    penalty = fpdfp.TotalVariation(0.02, mask=cohort.mask, isotropic=isotropic, l1=l1)
    kind = fpdfp.FederatedLogisticRegression if family == "binomial" else fpdfp.FederatedLinearRegression
    model = kind(penalty, standardize=False, run=fpdfp.RunOptions(rounds=1000, tol=1e-6))
    model = model.fit(images, cohort.outcomes, cohort.sites)
    parts = np.array([linops.MaskedGradient(cohort.mask).apply(row) for row in np.eye(images.shape[1])])
    exact, objective = generic(images, cohort.outcomes, parts.transpose(1, 2, 0), penalty, isotropic=isotropic)
    assert model.result_.objective == pytest.approx(objective, rel=2e-6)
    np.testing.assert_allclose(model.coef_.ravel(), exact, atol=2e-2 * float(np.abs(exact).max()))
    picture = penalty.unmask(model.coef_)
    np.testing.assert_array_equal(picture[cohort.mask], model.coef_.ravel())
    assert not picture[~cohort.mask].any()


def test_a_surface() -> None:
    # A ring of vertices, half of which matter.
    count, rng = 30, np.random.default_rng(1)
    edges = [(i, (i + 1) % count) for i in range(count)]
    truth = np.where(np.arange(count) < 15, 1.0, 0.0)
    values = rng.standard_normal((120, count))
    y = values @ truth + 0.5 * rng.standard_normal(120)
    penalty = fpdfp.Graph(0.05, graph=edges, form="differences", l1=0.5)
    model = fpdfp.FederatedLinearRegression(penalty, standardize=False, run=fpdfp.RunOptions(rounds=1000, tol=1e-7))
    model.fit(values, y, np.arange(120) % 3)
    differences = np.array([np.eye(count)[j] - np.eye(count)[i] for i, j in edges])
    exact, objective = generic(values, y, [differences], penalty, isotropic=False)
    assert model.result_.objective == pytest.approx(objective, rel=1e-6)
    np.testing.assert_allclose(model.coef_.ravel(), exact, atol=1e-2)


def test_several_dual_steps_in_one_call_are_those_of_numpy() -> None:
    cohort = image_cohort((8, 9), subjects=8, sites=2)
    gradient, rng = linops.MaskedGradient(cohort.mask, others=1), np.random.default_rng(2)
    count = gradient.in_shape[0]
    scale = linops.Diagonal(rng.uniform(0.5, 2.0, count))
    for isotropic in (True, False):
        across = penalties.GroupL12(0.3, axis=0) if isotropic else penalties.L1(0.3)
        g = penalties.Stacked([across, penalties.L1(rng.uniform(0.0, 0.2, count))], [gradient.out_shape, (count,)])
        pairs = [(g, linops.VStack([gradient, linops.Identity(count)])), (across, gradient)]
        for penalty, linop in pairs:
            map_ = linops.Compose(linop, scale)
            model = Model(penalty.bind(map_.out_shape), map_, (count,), np.dtype(np.float64), "cpu")
            y = rng.standard_normal((1, count))
            # With an l1 norm, its dual is the best one at once: the same prox, after other steps.
            for steps in (4000,) if penalty is g else (1, 12):
                v = np.zeros((1, *model.dual_shape))
                one = DualSteps(model, Distance(y, 0.7), v, 0.0, (0.0, 1.0), y)
                other = DualSteps(model, Distance(y, 0.7), v, 0.0, (0.0, 1.0), y)
                assert one.fused is not None
                other.fused = None
                fused, plain = one.run(steps), other.run(steps)
                np.testing.assert_allclose(fused.u, plain.u, atol=1e-12 if steps < 100 else 1e-9)
                np.testing.assert_allclose(fused.u, y - 0.7 * map_.adjoint(fused.v), atol=1e-12)
                assert penalty.conjugate(fused.v[0]) < np.inf
                if penalty is across:
                    np.testing.assert_allclose(fused.v, plain.v, atol=1e-12)


def test_sites_together_find_what_one_place_finds_and_more_than_each_alone() -> None:
    cohort = image_cohort((10, 10), subjects=240, sites=4, noise=1.0, seed=3)
    images, y, sites = cohort.images, cohort.outcomes, cohort.sites
    new = image_cohort((10, 10), subjects=2000, sites=4, noise=1.0, seed=4)  # the same map, other subjects
    others, outcomes = new.images, new.outcomes
    penalty = fpdfp.TotalVariation(0.025, mask=cohort.mask)
    model = fpdfp.FederatedLogisticRegression(penalty, run=fpdfp.RunOptions(rounds=1000, tol=1e-4))
    together = clone(model).fit(images, y, sites)
    pooled = clone(model).fit(images, y)
    assert together.result_.objective == pytest.approx(pooled.result_.objective, rel=2e-4)
    assert together.score(others, outcomes) == pytest.approx(pooled.score(others, outcomes), abs=0.01)
    np.testing.assert_allclose(together.coef_, pooled.coef_, atol=0.02 * float(np.abs(pooled.coef_).max()))

    def likeness(one: fpdfp.FederatedLogisticRegression) -> float:
        return float(np.corrcoef(one.coef_.ravel(), cohort.truth[cohort.mask])[0, 1])

    for site in range(4):
        own = sites == site
        alone = clone(model).set_params(run=fpdfp.RunOptions(rounds=1000, tol=1e-3)).fit(images[own], y[own])
        assert alone.score(others, outcomes) < together.score(others, outcomes)
        assert likeness(alone) < likeness(together)


def test_digits() -> None:
    digits = load_digits(n_class=10)
    some = np.isin(digits.target, (3, 8))
    images, y = digits.images[some] / 16.0, digits.target[some]
    kept = np.arange(len(y)) % 3 > 0
    penalty = fpdfp.TotalVariation(1.5e-3, mask=np.ones((8, 8), dtype=bool))
    model = fpdfp.FederatedLogisticRegression(penalty, run=fpdfp.RunOptions(rounds=1000, tol=1e-2))
    model.fit(images[kept].reshape(-1, 64), y[kept], np.arange(int(kept.sum())) % 5)
    assert model.score(images[~kept].reshape(-1, 64), y[~kept]) > 0.9
    # The left strokes of an 8 tell it from a 3.
    assert penalty.unmask(model.coef_)[2:4, 2].sum() > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": -1.0}, "weight must be"),
        ({"mask": np.ones((3, 3))}, "mask must be an array of 1, 2 or 3 axes of truth values"),
        ({"mask": np.ones((3, 3), dtype=bool)}, "mask must have as many voxels as there are features, 44, got 9"),
    ],
)
def test_mistakes_are_told(change: dict[str, Any], message: str) -> None:
    cohort = image_cohort((8, 8), subjects=20, sites=2)

    def fit() -> None:
        penalty = fpdfp.TotalVariation(**{"weight": 0.1, "mask": cohort.mask, **change})
        fpdfp.FederatedLogisticRegression(penalty).fit(cohort.images, cohort.outcomes, cohort.sites)

    with pytest.raises(ValueError, match=message):
        fit()


def test_other_mistakes_are_told() -> None:
    cohort = image_cohort((8, 8), subjects=20, sites=2)
    penalty = fpdfp.TotalVariation(0.1, mask=cohort.mask)
    with pytest.raises(ValueError, match="values must be 44 numbers, one for each voxel, got 3"):
        penalty.unmask([1, 2, 3])
    with pytest.raises(ValueError, match="penalty must not be a total variation where each class"):
        fpdfp.FederatedLogisticRegression(penalty).fit(cohort.images, np.arange(20) % 3, cohort.sites)
    with pytest.raises(ValueError, match="shape must have 2 or 3 axes of at least 8 voxels"):
        image_cohort((4, 4))
