"""Coefficient maps over sites: against a generic solver, together against alone, on surfaces, and on digits."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

import fpdfp
from fpdfp import linops
from fpdfp._typing import Array
from fpdfp.datasets import image_cohort


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


def generic(model: fpdfp.ImageMap, images: Array, y: Array) -> tuple[Array, float]:
    """Return the coefficients that Clarabel finds, and the objective."""
    rows = np.asarray(images, dtype=np.float64)
    x, c = cp.Variable(rows.shape[1]), cp.Variable()
    forms = rows @ x + c
    if model.family == "binomial":
        loss = cp.sum(cp.logistic(cp.multiply(1.0 - 2.0 * y, forms))) / len(y)
    else:
        loss = 0.5 * cp.sum_squares(forms - y) / len(y)
    if model.mask is not None:
        gradient = linops.MaskedGradient(model.mask)
        matrices = np.array([gradient.apply(row) for row in np.eye(rows.shape[1])]).transpose(1, 2, 0)
        parts = cp.vstack([matrix @ x for matrix in matrices])
    else:
        parts = cp.vstack([x[model.edges[:, 1]] - x[model.edges[:, 0]]])
    across = cp.sum(cp.norm(parts, 2, axis=0)) if model.penalty == "tv" else cp.sum(cp.abs(parts))
    penalty = model.weight * (model.l1_ratio * cp.norm1(x) + (1 - model.l1_ratio) * across)
    problem = cp.Problem(cp.Minimize(loss + penalty))
    problem.solve(solver=cp.CLARABEL)
    return np.asarray(x.value), float(problem.value)


@pytest.mark.parametrize(("family", "penalty"), [("binomial", "tv"), ("gaussian", "fused")])
def test_it_is_the_minimum_that_a_generic_solver_finds(family: Any, penalty: Any) -> None:
    cohort = image_cohort((8, 8), subjects=90, sites=3, family=family)
    images = cohort.images.astype(np.float64)
    model = fpdfp.ImageMap(cohort.mask, family=family, penalty=penalty, weight=0.03, l1_ratio=0.3, tol=1e-6)
    model.fit(images, cohort.outcomes, cohort.sites)
    exact, objective = generic(model, images, cohort.outcomes)
    assert model.result_.objective == pytest.approx(objective, rel=2e-6)
    np.testing.assert_allclose(model.coef_, exact, atol=2e-2 * float(np.abs(exact).max()))
    np.testing.assert_array_equal(model.map_[cohort.mask], model.coef_)
    assert not model.map_[~cohort.mask].any()


def test_a_surface() -> None:
    # A ring of vertices, half of which matter.
    count, rng = 30, np.random.default_rng(1)
    edges = np.stack([np.arange(count), (np.arange(count) + 1) % count], axis=1)
    truth = np.where(np.arange(count) < 15, 1.0, 0.0)
    values = rng.standard_normal((120, count))
    y = values @ truth + 0.5 * rng.standard_normal(120)
    model = fpdfp.ImageMap(edges=edges, family="gaussian", penalty="fused", weight=0.05, tol=1e-7)
    model.fit(values, y, np.arange(120) % 3)
    exact, objective = generic(model, values, y)
    assert model.result_.objective == pytest.approx(objective, rel=1e-6)
    np.testing.assert_allclose(model.coef_, exact, atol=1e-2)
    assert model.map_ is model.coef_
    assert model.score(values, y) > 0.9


def test_sites_together_find_what_one_place_finds_and_more_than_each_alone() -> None:
    cohort = image_cohort((12, 12), subjects=300, sites=4, noise=1.0, seed=3)
    images, y, sites = cohort.images, cohort.outcomes, cohort.sites
    new = image_cohort((12, 12), subjects=2000, sites=4, noise=1.0, seed=4)  # the same map, other subjects
    others, outcomes = new.images, new.outcomes
    model = fpdfp.ImageMap(cohort.mask, weight=0.02, tol=1e-4)
    together = clone(model).fit(images, y, sites)
    pooled = clone(model).fit(images, y)
    assert together.result_.objective == pytest.approx(pooled.result_.objective, rel=2e-4)
    assert together.score(others, outcomes) == pytest.approx(pooled.score(others, outcomes), abs=0.01)
    np.testing.assert_allclose(together.coef_, pooled.coef_, atol=0.02 * float(np.abs(pooled.coef_).max()))

    def likeness(one: fpdfp.ImageMap) -> float:
        return float(np.corrcoef(one.coef_, cohort.truth[cohort.mask])[0, 1])

    for site in range(4):
        own = sites == site
        alone = clone(model).fit(images[own], y[own])
        assert alone.score(others, outcomes) < together.score(others, outcomes)
        assert likeness(alone) < likeness(together)


def test_digits() -> None:
    digits = load_digits(n_class=10)
    some = np.isin(digits.target, (3, 8))
    images, y = digits.images[some] / 16.0, digits.target[some]
    kept = np.arange(len(y)) % 3 > 0
    model = fpdfp.ImageMap(np.ones((8, 8), dtype=bool), weight=3e-3, tol=1e-2)
    model.fit(images[kept], y[kept], np.arange(int(kept.sum())) % 5)
    assert model.score(images[~kept], y[~kept]) > 0.9
    assert set(model.predict(images)) == {3, 8}
    chances = model.predict_proba(images)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    # What is right of the left strokes of an 8 tells it from a 3.
    assert model.map_[2:4, 2].sum() > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": -1.0}, "weight must be"),
        ({"l1_ratio": 1.5}, "l1_ratio must be from 0 to 1, got 1.5"),
        ({"penalty": "ridge"}, "penalty must be one of"),
        ({"family": "poisson"}, "family must be one of"),
        ({"mask": None}, "give either mask or edges"),
        ({"edges": [[0, 1]]}, "give either mask or edges"),
        ({"mask": None, "edges": [[0, 1]]}, "penalty must be 'fused' with edges"),
        ({"mask": None, "edges": [[0, 0]], "penalty": "fused"}, "edges must join two different vertices"),
        ({"mask": np.ones((3, 3), dtype=bool)}, "images must have 9 entries for each subject"),
    ],
)
def test_mistakes_are_told(change: dict[str, Any], message: str) -> None:
    cohort = image_cohort((8, 8), subjects=20, sites=2)
    model = fpdfp.ImageMap(cohort.mask).set_params(**change)
    with pytest.raises(ValueError, match=message):
        model.fit(cohort.images, cohort.outcomes)


def test_outcomes_and_groups_are_checked() -> None:
    cohort = image_cohort((8, 8), subjects=20, sites=2)
    model = fpdfp.ImageMap(cohort.mask)
    with pytest.raises(ValueError, match="y must have an outcome for each of 20 subjects"):
        model.fit(cohort.images, cohort.outcomes[1:])
    with pytest.raises(ValueError, match="y must have two classes, got 1"):
        model.fit(cohort.images, np.ones(20))
    with pytest.raises(ValueError, match="groups must have an entry for each of 20 subjects"):
        model.fit(cohort.images, cohort.outcomes, [1, 2])
    with pytest.raises(ValueError, match="shape must have 2 or 3 axes of at least 8 voxels"):
        image_cohort((4, 4))
