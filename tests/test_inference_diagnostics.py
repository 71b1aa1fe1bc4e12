"""Histograms of sites, ROC curves, calibration and residuals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, RefusalError
from fpdfp.inference import (
    Information,
    ResidualHistogram,
    ScoreHistogram,
    calibrate,
    calibration_table,
    chance_edges,
    residual_histogram,
    roc_curve,
    score_histogram,
)
from tests.textbook_glm import by_site, information


def chances(seed: int, rows: int = 400) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    eta = rng.normal(-1.0, 1.5, size=rows)
    return 1 / (1 + np.exp(-eta)), (rng.random(rows) < 1 / (1 + np.exp(-0.3 - 0.7 * eta))).astype(float)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=60),
    st.integers(0, 6),
)
def test_every_count_is_large_enough_or_none(data: list[tuple[int, bool]], least: int) -> None:
    scores, events = np.array([one[0] / 20 for one in data]), np.array([float(one[1]) for one in data])
    small = any(0 < count < least for count in (events.sum(), (1 - events).sum()))
    if small:
        with pytest.raises(RefusalError, match=f"fewer than {least} rows of a kind"):
            score_histogram(scores, events, np.linspace(0, 1, 11), least=least)
        return
    made = score_histogram(scores, events, np.linspace(0, 1, 11), least=least)
    for counts in (made.positives, made.negatives):
        assert ((counts == 0) | (counts >= least)).all()
    assert (made.lower[0], made.upper[-1]) == (0.0, 1.0)
    np.testing.assert_array_equal(made.lower[1:], made.upper[:-1])
    assert made.positives.sum() == events.sum()
    assert made.rows.sum() == len(data)
    assert made.predicted.sum() == pytest.approx(scores.sum())
    residuals = residual_histogram(scores, np.linspace(0, 1, 11), least=min(least, len(data)))
    assert ((residuals.counts == 0) | (residuals.counts >= min(least, len(data)))).all()


def test_histograms_of_sites_add_up() -> None:
    scores, events = chances(0)
    whole = score_histogram(scores, events)
    total = sum(score_histogram(scores[s::3], events[s::3]) for s in range(3))
    assert isinstance(total, ScoreHistogram)
    np.testing.assert_array_equal(total.lower, whole.lower)
    np.testing.assert_array_equal(total.positives, whole.positives)
    np.testing.assert_allclose(total.predicted, whole.predicted)
    # Cells that differ stand beside each other.
    careful = sum(score_histogram(scores[s::3], events[s::3], least=5) for s in range(3))
    assert isinstance(careful, ScoreHistogram)
    assert (careful.positives.sum(), careful.negatives.sum()) == (events.sum(), (1 - events).sum())
    assert (careful.lower[1:] < careful.upper[:-1]).any()
    for counts in (careful.positives, careful.negatives):
        assert ((counts == 0) | (counts >= 5)).all()


def test_the_area_is_within_its_bound() -> None:
    scores, events = chances(1, 900)
    exact = roc_auc_score(events, scores)
    for edges, least in [(None, 0), (None, 5), (np.linspace(0, 1, 6), 0)]:
        curve = roc_curve(sum(score_histogram(scores[s::3], events[s::3], edges, least=least) for s in range(3)))
        assert abs(curve.area - exact) <= curve.error
        polygon = np.trapezoid(curve.true_positive_rates, curve.false_positive_rates)
        assert polygon == pytest.approx(curve.area, abs=1e-12 if least == 0 else curve.error)
        for rates in (curve.false_positive_rates, curve.true_positive_rates):
            assert (rates[0], rates[-1]) == (0.0, 1.0)
            assert (np.diff(rates) >= 0).all()
        for place in (3, -3) if least == 0 else ():
            above = scores >= curve.thresholds[place]
            assert curve.true_positive_rates[place] == pytest.approx(above[events == 1].mean())
    assert roc_curve(score_histogram(scores, events)).error < 0.01
    assert roc_curve(sum(score_histogram(scores[s::3], events[s::3], least=5) for s in range(3))).error < 0.06


def test_the_error_of_the_area_is_delong_s() -> None:
    scores, events = np.round(chances(2, 150)[0], 2), chances(2, 150)[1]
    positive, negative = scores[events == 1], scores[events == 0]
    wins = (positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)
    variance = wins.mean(1).var(ddof=1) / len(positive) + wins.mean(0).var(ddof=1) / len(negative)
    edges = np.concatenate([[0.0], np.arange(100) / 100 + 0.005, [1.0]])
    curve = roc_curve(score_histogram(scores, events, edges))
    assert curve.area == pytest.approx(wins.mean())
    assert curve.standard_error == pytest.approx(np.sqrt(variance))
    lower, upper = curve.interval()
    odds, error = np.log(curve.area / (1 - curve.area)), np.sqrt(variance) / curve.area / (1 - curve.area)
    assert lower == pytest.approx(1 / (1 + np.exp(-odds + 1.959964 * error)) - curve.error, rel=1e-6)
    assert lower < curve.area < upper
    assert "area under the ROC curve 0." in str(curve)


def test_curves_at_the_ends() -> None:
    perfect = roc_curve(score_histogram([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1]))
    assert (perfect.area, perfect.error, perfect.interval()) == (1.0, 0.0, (1.0, 1.0))
    single = roc_curve(score_histogram([0.1, 0.9], [0, 1]))
    assert np.isnan(single.standard_error)
    with pytest.raises(ArgumentError, match="with an event and without, got 2 and 0"):
        roc_curve(score_histogram([0.1, 0.2], [1, 1]))
    with pytest.raises(ArgumentError, match="must be a ScoreHistogram"):
        roc_curve(residual_histogram([0.1]))


def test_calibration_is_a_logistic_regression_on_the_linear_predictor() -> None:
    scores, events = chances(3)
    eta = np.log(scores / (1 - scores))
    X = np.stack([np.ones_like(eta), eta], axis=1)
    owner = np.arange(len(eta)) % 3
    asked = []

    def ask(x: Array) -> list[Information]:
        asked.append(x)
        return by_site("binomial", X, events, owner, x)

    found = calibrate(ask)
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(eta[:, None], events)
    assert (found.intercept, found.slope) == pytest.approx((model.intercept_[0], model.coef_[0, 0]), abs=1e-5)
    assert found.exchanges == len(asked) <= 6
    assert found.test.df == 2
    assert found.test.p < 0.05, "the chances were made too extreme"
    assert "intercept = slope = (0, 1)" in str(found)


def test_calibration_of_a_fit_to_its_own_rows_is_perfect_at_once() -> None:
    scores, events = chances(4)
    x = np.array([0.0, 1.0])
    eta = np.log(scores / (1 - scores))
    X = np.stack([np.ones_like(eta), eta], axis=1)
    for _ in range(30):
        total = information("binomial", X, events, x)
        x = x + total.invert() @ total.score
    again = np.stack([np.ones_like(eta), X @ x], axis=1)
    found = calibrate(lambda z: [information("binomial", again, events, z)])
    assert (found.intercept, found.slope, found.exchanges) == (0.0, 1.0, 1)
    assert found.test.statistic == 0.0


def test_calibration_from_far_away_halves_its_steps() -> None:
    rng = np.random.default_rng(5)
    eta = rng.normal(size=200) * 2.0
    events = (rng.random(200) < 1 / (1 + np.exp(-eta / 2 + 3))).astype(float)
    X = np.stack([np.ones(200), eta], axis=1)
    asked = []

    def ask(x: Array, y: Array = events) -> list[Information]:
        asked.append(information("poisson", X, y, x))
        return asked[-1:]

    found = calibrate(ask)
    np.testing.assert_allclose(asked[-1].score, 0.0, atol=1e-6)
    assert found.exchanges == len(asked)
    # A step may go too far: the deviance grows there, and the next point is nearer.
    asked.clear()
    calibrate(lambda x: ask(x, 40.0 + 3.0 * events))
    deviances = np.array([one.deviance for one in asked])
    assert (np.diff(deviances) > 1.0).any()
    assert deviances[-1] == deviances.min()


def test_what_cannot_be_calibrated_is_refused() -> None:
    X = np.stack([np.ones(40), np.linspace(-3, 3, 40)], axis=1)
    separated = (X[:, 1] > 0).astype(float)
    with pytest.raises(ArgumentError, match="no intercept and slope in 5 exchanges: does η separate"):
        calibrate(lambda z: [information("binomial", X, separated, z)], most=5)
    with pytest.raises(ArgumentError, match="got 1 coefficients"):
        calibrate(lambda z: [information("binomial", X[:, :1], separated, z[:1])])
    with pytest.raises(ArgumentError, match="with the deviance"):
        calibrate(lambda z: [Information.of_rows(X, np.ones(40), np.ones(40), weight=40)])


def test_calibration_tables_have_groups_of_equal_size() -> None:
    scores, events = chances(6, 2000)
    histogram = score_histogram(scores, events)
    table = calibration_table(histogram, 10)
    assert len(table.rows) == 10
    assert np.abs(table.rows - 200).max() < 60
    # Groups of one histogram are intervals of the chance.
    cell = np.searchsorted(np.cumsum(table.rows), np.argsort(np.argsort(scores)), side="right")
    for group in range(10):
        assert table.observed[group] == pytest.approx(events[cell == group].mean())
        assert table.predicted[group] == pytest.approx(scores[cell == group].mean())
    limits = stats.binomtest(int(events[cell == 3].sum()), int(table.rows[3])).proportion_ci(method="wilson")
    assert (table.lower[3], table.upper[3]) == pytest.approx((limits.low, limits.high))
    test = table.hosmer_lemeshow(fitted=False)
    expected = table.predicted * table.rows
    counts = table.observed * table.rows
    assert test.statistic == pytest.approx(((counts - expected) ** 2 / (expected * (1 - table.predicted))).sum())
    assert (test.df, table.hosmer_lemeshow(fitted=True).df) == (10, 8)
    assert list(table.frame().columns) == ["rows", "predicted", "observed", "lower", "upper"]
    assert "predicted" in str(table)
    careful = calibration_table(sum(score_histogram(scores[s::4], events[s::4], least=5) for s in range(4)))
    assert careful.rows.sum() == 2000
    assert (np.diff(careful.predicted) > 0).all()
    assert careful.predicted @ careful.rows == pytest.approx(scores.sum())
    assert np.abs(careful.predicted - table.predicted).max() < 0.05
    coarse = calibration_table(histogram, 1)
    assert coarse.rows.tolist() == [2000.0]
    with pytest.raises(ArgumentError, match="no degree of freedom for 1 groups"):
        coarse.hosmer_lemeshow(fitted=True)
    with pytest.raises(ArgumentError, match="at least one row"):
        calibration_table(score_histogram([], []))
    with pytest.raises(ArgumentError, match="must be a ScoreHistogram"):
        calibration_table(residual_histogram([0.1]))
    with pytest.raises(ArgumentError, match="other than 0 and 1"):
        calibration_table(score_histogram([0.0, 0.0], [0, 1])).hosmer_lemeshow(fitted=False)


def test_quantiles_of_residuals_lie_in_their_cells() -> None:
    residuals = np.random.default_rng(7).normal(size=1000) * 2
    made = sum(residual_histogram(residuals[s::4], least=5) for s in range(4))
    assert isinstance(made, ResidualHistogram)
    for name, (lower, upper) in made.summary().items():
        exact = np.quantile(residuals, float(name[:-2]) / 100, method="inverted_cdf")
        assert lower <= exact <= upper
    assert made.quantile(0.5)[1] - made.quantile(0.5)[0] < 0.35
    assert made.quantile(0.0)[0] == -np.inf


def test_arguments_are_checked() -> None:
    for scores, events, edges, said in [
        ([1.5], [1], None, "scores must have one chance"),
        ([0.5], [2], None, "outcomes must be 0 or 1"),
        ([0.5], [1], [0.1, 1.0], "edges must begin with 0 and end with 1"),
        ([0.5], [1], [0.0, 0.7, 0.7, 1.0], "increasing"),
    ]:
        with pytest.raises(ArgumentError, match=said):
            score_histogram(scores, events, edges)
    with pytest.raises(ArgumentError, match="include all residuals"):
        residual_histogram([3.0], [0.0, 1.0])
    with pytest.raises(ArgumentError, match="one for each row"):
        residual_histogram([[3.0]])
    with pytest.raises(ArgumentError, match="level must be from 0 to 1"):
        residual_histogram([0.0]).quantile(50)
    with pytest.raises(ArgumentError, match="at least one row"):
        residual_histogram([]).quantile(0.5)
    with pytest.raises(TypeError):
        score_histogram([0.5], [1]) + residual_histogram([0.5])
    assert len(chance_edges(10)) == 11
