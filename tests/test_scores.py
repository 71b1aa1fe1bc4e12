"""Scores from sums over rows: against scikit-learn, loops over pairs, and refits; bounds that are never violated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn import metrics

import fpdfp
from fpdfp import scores
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.scores.auc import AUC, TOLERANCE, divide
from fpdfp.scores.named import ConcordanceScore
from fpdfp.survival import Concordance, Times


def made(seed: int, rows: int = 500) -> tuple[Array, Array, Array]:
    """Return linear predictors, outcomes and weights."""
    rng = np.random.default_rng(seed)
    eta = rng.normal(-1.0, 1.5, rows)
    y = (rng.random(rows) < 1 / (1 + np.exp(-eta))).astype(float)
    return eta, y, rng.exponential(size=rows) * (rng.random(rows) < 0.9)


def add_up(score: Any, eta: Array, y: Array, weights: Array | None, family: Any, sites: int = 3) -> Array:
    """Return the sums of rows at several sites."""
    parts = [slice(site, None, sites) for site in range(sites)]
    found = [score.sums(eta[own], y[own], None if weights is None else weights[own], family) for own in parts]
    assert {(one.shape, one.dtype) for one in found} == {(found[0].shape, np.dtype(np.float64))}
    total: Array = np.sum(found, axis=0)
    return total


@pytest.mark.parametrize("weighted", [False, True])
def test_means_are_those_of_scikit_learn(weighted: bool) -> None:
    eta, y, given = made(0)
    weights = given if weighted else None
    chance = 1 / (1 + np.exp(-eta))
    wanted = {
        "deviance": 2 * metrics.log_loss(y, chance, sample_weight=weights),
        "brier": metrics.brier_score_loss(y, chance, sample_weight=weights),
        "accuracy": metrics.accuracy_score(y, chance > 0.5, sample_weight=weights),
    }
    for name, value in wanted.items():
        score = scores.by_name(name, "binomial")
        found = score.finish(add_up(score, eta, y, weights, "binomial"))
        assert found.value == pytest.approx(value, rel=1e-12)
        assert found.bound == 0.0
        assert score.greater_is_better == (name == "accuracy")


@pytest.mark.parametrize("family", ["gaussian", "poisson", "gamma"])
def test_numbers(family: str) -> None:
    rng = np.random.default_rng(1)
    eta, weights = rng.normal(0.5, 0.4, 200), rng.exponential(size=200)
    known = fpdfp.families.make(family, "log" if family == "gamma" else None)
    mu = known.mean(eta)
    draw, deviance = {
        "gaussian": (lambda: rng.normal(mu), metrics.mean_squared_error),
        "poisson": (lambda: rng.poisson(mu).astype(float), metrics.mean_poisson_deviance),
        "gamma": (lambda: rng.gamma(2.0, mu), metrics.mean_gamma_deviance),
    }[family]
    y = draw()
    wanted = {
        "deviance": deviance(y, mu, sample_weight=weights),
        "mse": metrics.mean_squared_error(y, mu, sample_weight=weights),
        "mae": metrics.mean_absolute_error(y, mu, sample_weight=weights),
    }
    assert scores.names_for(known) == tuple(wanted)
    for name, value in wanted.items():
        score = scores.by_name(name, known)
        assert score.finish(add_up(score, eta, y, weights, known)).value == pytest.approx(value, rel=1e-10)


def test_standard_errors_of_means() -> None:
    eta, y, weights = made(2)
    left = (y - 1 / (1 + np.exp(-eta))) ** 2
    score = scores.by_name("brier", "binomial")
    found = score.finish(score.sums(eta, y, None, "binomial"))
    assert found.standard_error == pytest.approx(left.std(ddof=1) / np.sqrt(len(y)), rel=1e-10)
    found = score.finish(score.sums(eta, y, weights, "binomial"))
    n, mean = np.count_nonzero(weights), np.average(left, weights=weights)
    error = np.sqrt(n / (n - 1) * (weights**2 * (left - mean) ** 2).sum()) / weights.sum()
    assert found.standard_error == pytest.approx(error, rel=1e-10)
    assert np.isnan(score.finish(np.zeros(6)).value)


def test_shares_of_trials_are_trials() -> None:
    rng = np.random.default_rng(3)
    eta, trials = rng.normal(size=60), rng.integers(1, 6, 60)
    hits = rng.binomial(trials, 1 / (1 + np.exp(-eta)))
    place = np.repeat(np.arange(60), trials)
    single = (np.arange(len(place)) - np.repeat(np.cumsum(trials) - trials, trials) < hits[place]).astype(float)
    for name in ("brier", "accuracy", "auc"):
        score = scores.by_name(name, "binomial")
        grouped = score.finish(score.sums(eta, hits / trials, trials, "binomial"))
        apart = score.finish(score.sums(eta[place], single, None, "binomial"))
        assert grouped[:2] == pytest.approx(apart[:2], rel=1e-12)


@pytest.mark.parametrize("family", ["multinomial", "ordinal"])
def test_classes(family: str) -> None:
    rng = np.random.default_rng(4)
    eta, weights = rng.normal(size=(400, 3)) * 2, rng.exponential(size=400)
    chances = np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True)
    y = np.array([rng.choice(3, p=one) for one in chances])
    areas = [metrics.roc_auc_score(y == k, chances[:, k], sample_weight=weights) for k in range(3)]
    wanted = {
        "deviance": 2 * metrics.log_loss(y, chances, sample_weight=weights),
        "brier": np.average(((chances - np.eye(3)[y]) ** 2).sum(axis=1), weights=weights),
        "accuracy": metrics.accuracy_score(y, chances.argmax(axis=1), sample_weight=weights),
        "auc": np.mean(areas),
    }
    for name, value in wanted.items():
        score = scores.by_name(name, family)
        for shown in (eta, np.log(chances)):
            found = score.finish(add_up(score, shown, y, weights, family))
            assert abs(found.value - value) <= found.bound + 1e-12
            assert found.standard_error > 0
    assert found.bound < 4e-3
    with pytest.raises(ArgumentError, match="numbers of classes from 0 to 2"):
        scores.by_name("brier", family).sums(eta, y + 1, None, family)


def exact_area(eta: Array, y: Array, weights: Array) -> float:
    """Return the area from all pairs."""
    events, others = np.flatnonzero(y), np.flatnonzero(1 - y)
    wins = (eta[events, None] > eta[others]) + 0.5 * (eta[events, None] == eta[others])
    pairs = weights[events, None] * weights[others]
    return float((pairs * wins).sum() / pairs.sum())


def check_area(eta: Array, y: Array, weights: Array | None) -> int:
    """Compare with all pairs, before and after each refinement; return how many there were."""
    exact = exact_area(eta, y, np.ones(len(y)) if weights is None else weights)
    score: Any = scores.by_name("auc", "binomial")
    steps = -1
    while score is not None:
        sums = add_up(score, eta, y, weights, "binomial")
        found = score.finish(sums)
        assert abs(found.value - exact) <= found.bound + 1e-12
        score, steps = score.refine(sums), steps + 1
    assert found.bound <= TOLERANCE
    return steps


#: Single numbers that are far from all usual ones, or next to each other.
NUMBERS = st.one_of(
    st.floats(-20, 20), st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 5e-324, 0.3, float(np.nextafter(0.3, 1.0))]),
)  # fmt: skip


@settings(max_examples=40)
@given(st.data(), st.sampled_from(["usual", "ties", "wild", "equal", "narrow"]), st.booleans())
def test_the_bound_of_the_area_is_never_violated(data: Any, kind: str, weighted: bool) -> None:
    seed = data.draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    rows = data.draw(st.integers(2, 60))
    if kind == "wild":
        eta = np.array(data.draw(st.lists(NUMBERS, min_size=rows, max_size=rows)))
    else:
        eta = {
            "usual": rng.normal(size=rows) * rng.exponential(3), "ties": rng.integers(-2, 2, rows) / 3.0,
            "equal": np.full(rows, rng.normal() * 10.0 ** rng.integers(-300, 300)),
            "narrow": rng.normal() + rng.normal(size=rows) * 10.0 ** -rng.integers(1, 15),
        }[kind]  # fmt: skip
    y = (rng.random(rows) < rng.choice([0.02, 0.5])).astype(float)
    y[:2] = 0.0, 1.0
    weights = rng.exponential(size=rows) + 1e-3 if weighted else None
    assert check_area(eta, y, weights) <= 20


@pytest.mark.parametrize("seed", range(3))
def test_the_area_of_test_sets_is_within_a_thousandth(seed: int) -> None:
    from sklearn.datasets import load_breast_cancer
    from sklearn.linear_model import LogisticRegression

    eta, y, weights = made(seed, 4000)
    exact = metrics.roc_auc_score(y, eta, sample_weight=weights)
    score = scores.by_name("auc", "binomial")
    sums = add_up(score, eta, y, weights, "binomial")
    assert abs(score.finish(sums).value - exact) < 1e-4, "half of a pair is right on average"
    assert score.finish(sums).bound < 2e-3
    finer = score.refine(sums)
    assert finer is not None
    found = finer.finish(add_up(finer, eta, y, weights, "binomial"))
    assert abs(found.value - exact) <= found.bound <= TOLERANCE
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    eta = LogisticRegression(C=10.0**-seed).fit(X[::2], y[::2]).decision_function(X[1::2])
    found = score.finish(score.sums(eta, y[1::2], None, "binomial"))
    assert abs(found.value - metrics.roc_auc_score(y[1::2], eta)) <= min(found.bound, 1e-3)


def test_the_error_of_the_area_is_delong_s() -> None:
    eta, y, _ = made(5, 300)
    positive, negative = eta[y == 1], eta[y == 0]
    wins = (positive[:, None] > negative).astype(float)
    variance = wins.mean(1).var(ddof=1) / len(positive) + wins.mean(0).var(ddof=1) / len(negative)
    score = scores.by_name("auc", "binomial")
    assert score.finish(score.sums(eta, y, None, "binomial")).standard_error == pytest.approx(variance**0.5, rel=1e-3)
    doubled = score.finish(score.sums(eta, y, np.full(300, 2.0), "binomial"))
    assert doubled.standard_error == pytest.approx(variance**0.5, rel=1e-3), "all weights may be multiplied"


def test_areas_without_meaning() -> None:
    score = scores.by_name("auc", "binomial")
    sums = score.sums(np.zeros(3), np.ones(3), None, "binomial")
    assert np.isnan(score.finish(sums).value)
    assert score.refine(sums) is None
    with pytest.raises(ArgumentError, match="sums must be of this score: 2054 numbers"):
        score.finish(np.zeros(7))
    with pytest.raises(ArgumentError, match="edges must be finite"):
        AUC([-np.inf, 0.0])
    with pytest.raises(ArgumentError, match="y must be 0 or 1, or shares"):
        score.sums(np.zeros(2), np.array([0, 2]), None, "binomial")


@example(0.0, 5e-324, 4)
@example(1.7976931348623155e308, np.inf, 3)
@example(-np.inf, -8.0, 100)
@given(NUMBERS, NUMBERS, st.integers(1, 50))
def test_cells_are_divided_inside(lower: float, upper: float, count: int) -> None:
    if not lower < upper:
        return
    found = divide(lower, upper, count)
    assert ((found > lower) & (found < upper)).all()
    # Where there is a number between, one is found.
    assert len(found) or np.nextafter(lower, np.inf) >= upper


def test_times() -> None:
    rng = np.random.default_rng(6)
    risk, weights, strata = rng.normal(size=120), rng.exponential(size=120), rng.integers(0, 2, 120)
    times = Times.of(np.ceil(rng.exponential(np.exp(-risk)) * 5), rng.random(120) < 0.7)
    score = scores.by_name("concordance", "cox")
    assert isinstance(score, ConcordanceScore)
    known = Concordance.of(times, risk, strata=strata, weights=weights)
    found = score.finish(score.sums(risk, times, weights, "cox", strata=strata))
    assert found == pytest.approx((known.index, 0.0, known.error))
    assert found == score.finish(score.sums(risk, (times, strata), weights, "cox"))
    partial = scores.by_name("deviance", "cox")
    losses = fpdfp.losses.Cox(risk[:, None], times.time, times.event, weights=weights)
    wanted = 2.0 * 120 * losses.values(np.ones(1), np.arange(1))[0] / weights[times.event].sum()
    assert partial.finish(partial.sums(risk, times, weights, "cox")).value == pytest.approx(wanted)
    nobody = times._replace(event=np.zeros(120, dtype=bool))
    assert np.isnan(partial.finish(partial.sums(risk, nobody, None, "cox")).value)
    with pytest.raises(ArgumentTypeError, match=r"y must be fpdfp\.survival\.Times"):
        score.sums(risk, np.ones(120), None, "cox")


def test_names_are_checked() -> None:
    with pytest.raises(ArgumentError, match=r"name must be one of deviance, brier, accuracy, auc for the family binom"):
        scores.by_name("mse", "binomial")
    with pytest.raises(ArgumentError, match=r"name must be one of deviance, concordance for the family cox"):
        scores.by_name("auc", "cox")
    with pytest.raises(ArgumentError, match=r"family must be one of gaussian, .*, cox, or a Family"):
        scores.by_name("auc", "binomal")
    score = scores.by_name("brier", "binomial")
    for eta, y, weights, said in [
        ([[0.0]], [0], None, "eta must have one number for each row"),
        ([np.inf], [0], None, "eta must be finite"),
        ([0.0], [0, 1], None, "y must have an outcome for each of the 1 rows"),
        ([0.0], [0], [-1.0], "weights must be at least 0"),
    ]:
        with pytest.raises(ArgumentError, match=said):
            score.sums(np.array(eta), np.array(y), weights, "binomial")
    assert repr(score) == "Brier()"
    assert repr(AUC()) == "AUC(1026 cells)"
