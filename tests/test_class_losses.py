"""Multinomial and ordinal losses against closed forms, differences and general minimisers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy import optimize, stats

import fpdfp
from fpdfp.losses import Multinomial, Ordinal

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "multinomial": (Multinomial, {}),
    "logit": (Ordinal, {"link": "logit"}),
    "probit": (Ordinal, {"link": "probit"}),
}


def make(kind: str, *, seed: int = 0, weighted: bool = True, **more: Any) -> Any:
    rng = np.random.default_rng(seed)
    X, y, owner = rng.standard_normal((90, 3)), rng.integers(0, 4, 90), np.arange(90) % 3
    family, options = KINDS[kind]
    options = options | more
    if weighted:
        options["weights"] = rng.uniform(0.5, 2.0, 90)
        if family is Ordinal:
            options["offset"] = rng.normal(0.0, 0.3, 90)
    return family(X, y, clients=owner, l2=[0.1, 0.0, 0.3], **options)


def point(losses: Any, seed: int = 1) -> Any:
    return 0.2 * np.random.default_rng(seed).standard_normal(losses.shape)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives(kind: str) -> None:
    losses, everyone = make(kind), np.arange(3)
    x = point(losses)
    slopes, bends = losses.gradients(x, everyone), losses.hessians(x, everyone)
    for j in range(len(x)):
        e = np.zeros_like(x)
        e[j] = 1e-5
        values = (losses.values(x + e, everyone) - losses.values(x - e, everyone)) / 2e-5
        np.testing.assert_allclose(slopes[:, j], values, atol=1e-9)
        known = (losses.gradients(x + e, everyone) - losses.gradients(x - e, everyone)) / 2e-5
        np.testing.assert_allclose(bends[:, :, j], known, atol=1e-9)
    assert np.linalg.eigvalsh(bends).min() > 0


def textbook(kind: str, losses: Any, x: Any) -> Any:
    """The chance of each class at each row, by the definition."""
    X = losses._rows.X
    if kind == "multinomial":
        e = np.exp(np.column_stack([np.zeros(len(X)), X @ x.reshape(3, 3).T]))
        return e / e.sum(axis=1, keepdims=True)
    cdf = stats.logistic.cdf if kind == "logit" else stats.norm.cdf
    shifts = 0.0 if losses._rows.shifts is None else losses._rows.shifts[:, None]
    cumulative = cdf(losses.thresholds(x) - (X @ x[:3])[:, None] - shifts)
    return np.diff(cumulative, axis=1, prepend=0.0, append=1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_the_definition(kind: str) -> None:
    losses = make(kind)
    x = point(losses)
    chances = textbook(kind, losses, x)
    each = -losses._rows.weights * np.log(chances[np.arange(90), losses._rows.y.astype(int)])
    beta = x.reshape(3, 3) if kind == "multinomial" else x[:3]
    known = each.reshape(3, 30).mean(axis=1) + 0.5 * float((np.array([0.1, 0.0, 0.3]) * beta**2).sum())
    np.testing.assert_allclose(losses.values(x, np.arange(3)), known, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_newton_finds_the_minimum(kind: str) -> None:
    losses = make(kind)
    weights = losses.sizes / losses.sizes.sum()
    known = optimize.minimize(
        losses.value, np.zeros(losses.shape), (weights,), jac=losses.gradient, method="BFGS", options={"gtol": 1e-10}
    )
    problem = fpdfp.Problem(losses, fpdfp.penalties.Zero(), weights="samples")
    found = fpdfp.solve(problem, fpdfp.ProximalNewton(), rounds=30, tol=1e-12)
    assert found.rounds < 10
    np.testing.assert_allclose(found.x, known.x, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_standard_errors(kind: str) -> None:
    losses = make(kind, weight_scale=0.5)
    x = point(losses)
    sums = losses.sums_at(x, np.arange(3), robust=True)
    weights = losses.weights_of_rows
    # The ridge is not in them, and weights are as they were given.
    bare = type(losses)(
        losses._rows.X, losses._rows.y, clients=np.repeat(np.arange(3), 30), weights=weights, **KINDS[kind][1],
        **({} if kind == "multinomial" else {"offset": losses._rows.shifts}),
    )  # fmt: skip
    low = np.tril_indices(len(x))
    np.testing.assert_allclose(sums.score, -30 * bare.gradients(x, np.arange(3)), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(sums.hessian, 30 * bare.hessians(x, np.arange(3))[:, low[0], low[1]], atol=1e-10)
    np.testing.assert_allclose(sums.numbers[:, 3], 60 * bare.values(x, np.arange(3)), rtol=1e-12)
    np.testing.assert_allclose(sums.numbers[:, 1], weights.reshape(3, 30).sum(axis=1), rtol=1e-12)
    chances = textbook(kind, losses, x)
    one_hot = np.eye(4)[losses._rows.y.astype(int)]
    pearson = (weights[:, None] * (one_hot - chances) ** 2 / chances).sum(axis=1).reshape(3, 30).sum(axis=1)
    np.testing.assert_allclose(sums.numbers[:, 4], pearson, rtol=1e-9)
    rows = [
        type(losses)(
            losses._rows.X[[j]], losses._rows.y[[j]], n_classes=4, weights=weights[[j]], **KINDS[kind][1],
            **({} if kind == "multinomial" else {"offset": losses._rows.shifts[[j]]}),
        ).gradients(x, np.array([0]))[0]
        for j in range(30)
    ]  # fmt: skip
    np.testing.assert_allclose(sums.meat[0], (np.transpose(rows) @ rows)[low], atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_rows_parts_and_restrictions(kind: str) -> None:
    losses = make(kind)
    x, everyone = point(losses), np.arange(3)
    shifts = {} if kind == "multinomial" else {"offset": losses._rows.shifts}
    sparse = type(losses)(
        scipy.sparse.csr_array(losses._rows.X), losses._rows.y, clients=np.repeat(everyone, 30), l2=[0.1, 0.0, 0.3],
        weights=losses._rows.weights, **KINDS[kind][1], **shifts,
    )  # fmt: skip
    for name in ("values", "gradients", "hessians"):
        whole = getattr(losses, name)(x, everyone)
        np.testing.assert_allclose(getattr(sparse, name)(x, everyone), whole, rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(getattr(losses.part(np.array([2, 0])), name)(x, np.array([0, 1])), whole[[2, 0]])
        np.testing.assert_array_equal(getattr(losses, name)(x, np.array([1])), whole[[1]])
    some = np.array([0, 2, 3, 5, 6, 8] if kind == "multinomial" else [0, 2, 3, 4, 5])
    few, held = losses.restrict(some), np.zeros_like(x)
    held[some] = x[some]
    np.testing.assert_allclose(few.values(x[some], everyone), losses.values(held, everyone), rtol=1e-13)
    np.testing.assert_allclose(few.gradients(x[some], everyone), losses.gradients(held, everyone)[:, some], atol=1e-13)
    with pytest.raises(fpdfp.errors.ArgumentError, match="features must"):
        losses.restrict(np.array([0, 1]))


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_thresholds_out_of_order_and_far_tails(link: str) -> None:
    losses = Ordinal(np.ones((3, 1)), [0, 1, 2], link=link)
    assert losses.values(np.array([0.0, 1.0, -1.0]), np.array([0]))[0] == np.inf
    far = Ordinal(np.array([[30.0], [-30.0], [30.0]]), [0, 1, 2], link=link)
    for x in (np.array([1.0, 0.0, 0.0]), np.array([-1.0, 0.0, 0.0])):
        assert np.isfinite(far.values(x, np.array([0]))).all()
        assert np.isfinite(far.gradients(x, np.array([0]))).all()
        assert np.isfinite(far.hessians(x, np.array([0]))).all()


def test_two_classes_are_a_logistic_regression() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), rng.integers(0, 2, 40)
    logistic = fpdfp.losses.Logistic(X, y)
    x, one = np.array([0.3, -0.5]), np.array([0])
    np.testing.assert_allclose(Multinomial(X, y).values(x, one), logistic.values(x, one), rtol=1e-12)
    np.testing.assert_allclose(Ordinal(X, y).values(np.append(x, 0.0), one), logistic.values(x, one), rtol=1e-12)


def test_bad_classes() -> None:
    with pytest.raises(fpdfp.errors.ArgumentError, match="no row of class 1"):
        Ordinal(np.ones((2, 1)), [0, 2])
    with pytest.raises(ValueError, match="link"):
        Ordinal(np.ones((2, 1)), [0, 1], link="log")  # type: ignore[arg-type]


def test_certain_mistakes_do_not_overflow() -> None:
    # As on features that were not scaled, where a row may have a loss of thousands.
    losses = Multinomial(np.array([[1e4], [-1e4], [1.0]]), [0, 1, 1], clients=[0, 0, 1])
    with np.errstate(over="raise"):
        sums = losses.sums_at(np.full(losses.shape, 1.0), np.arange(2), robust=True)
    assert sums is not None
    assert all(np.isfinite(one).all() for one in sums)
