"""Survival curves, log-rank tests, concordance and periods against loops over all rows and closed forms."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from fpdfp.errors import ArgumentError
from fpdfp.losses import Cox
from fpdfp.survival import Baseline, Concordance, LogRank, RiskCounts, Times, kaplan_meier, log_rank, split_periods


def draw(seed: int, rows: int = 50, *, late: bool = False) -> tuple[Times, Any, np.random.Generator]:
    """Times with ties, and a group of each row."""
    rng = np.random.default_rng(seed)
    time = 1.0 + np.round(rng.exponential(5.0, rows), 0)
    entry = time - np.round(rng.exponential(4.0, rows), 0) - 1.0 if late else None
    return Times.of(time, rng.random(rows) < 0.6, entry), rng.integers(0, 3, rows), rng


@given(seed=st.integers(0, 10**6), late=st.booleans())
def test_counts_are_those_of_a_loop_and_add_up(seed: int, late: bool) -> None:
    rows, groups, rng = draw(seed, late=late)
    counts = RiskCounts.of(rows, groups, 3)
    for k, t in enumerate(counts.times):
        for group in range(3):
            own = groups == group
            assert counts.at_risk[group, k] == (own & (rows.entry < t) & (rows.time >= t)).sum()
            assert counts.events[group, k] == (own & rows.event & (rows.time == t)).sum()
            assert counts.censored[group, k] == (own & ~rows.event & (rows.time == t)).sum()
    site = rng.integers(0, 2, len(groups))
    parts = [
        RiskCounts.of(Times(*(one[site == i] for one in rows)), groups[site == i], 3, times=times)
        for i in (0, 1)
        for times in (counts.times, None)
    ]
    for total in (RiskCounts.total(parts[::2]), parts[1] + parts[3]):  # at the same times, and at the times of each
        np.testing.assert_array_equal(total.times, counts.times)
        np.testing.assert_array_equal(total.at_risk, counts.at_risk)
        np.testing.assert_array_equal(total.events, counts.events)


@given(seed=st.integers(0, 10**6), late=st.booleans(), least=st.integers(0, 6))
def test_coarse_counts_hide_small_cells_and_keep_all_rows(seed: int, late: bool, least: int) -> None:
    rows, groups, _ = draw(seed, rows=200, late=late)
    counts = RiskCounts.of(rows, groups, 3)
    coarse = counts.coarsen(least)
    for cells in (coarse.start, coarse.entered, coarse.events, coarse.censored):
        assert not ((cells > 0) & (cells < least)).any()
    np.testing.assert_array_equal(coarse.events.sum(axis=1), counts.events.sum(axis=1))
    assert (coarse.left.sum(axis=1) <= counts.left.sum(axis=1)).all()
    assert np.isin(coarse.times, counts.times).all()
    # At every time at least as many are at risk as there were, and not many more.
    place = np.searchsorted(counts.times, coarse.times)
    more = coarse.at_risk - counts.at_risk[:, place]
    assert more.min() >= 0
    if not late:
        assert more.max() <= 2 * max(least - 1, 0) + coarse.at_risk[:, -1].max() + 2 * least
    whole, hidden = kaplan_meier(counts), kaplan_meier(coarse)
    early = whole.times[whole.survival > 0.3]
    assert np.abs(hidden.at(early) - whole.at(early)).max() < 0.02 + 6 * least / 200


@given(seed=st.integers(0, 10**6), late=st.booleans(), least=st.integers(0, 6))
def test_spread_counts_keep_all_rows(seed: int, late: bool, least: int) -> None:
    rows, groups, _ = draw(seed, rows=200, late=late)
    counts = RiskCounts.of(rows, groups, 3)
    coarse = counts.coarsen(least)
    spread = coarse.spread(counts.times)
    if least < 2:
        assert spread is coarse
        return
    assert not spread.delayed
    np.testing.assert_array_equal(spread.times, counts.times)
    np.testing.assert_array_equal(spread.start + spread.entered.sum(axis=1), coarse.start + coarse.entered.sum(axis=1))
    if not late:  # where rows enter late, some may leave no sooner than they enter
        np.testing.assert_array_equal(spread.events.sum(axis=1), coarse.events.sum(axis=1))
        np.testing.assert_array_equal(spread.left.sum(axis=1), coarse.left.sum(axis=1))
    assert spread.at_risk.min() >= 0
    with pytest.raises(ArgumentError, match="times must be the requested times"):
        coarse.spread([0.5, *counts.times[-1:] + 1.0])


def test_curves_of_sites_that_hide_small_cells_are_right_on_average() -> None:
    """Three sites of 130 rows, thirty studies: the mean error, and the largest, with counts spread and as they come."""
    rng, grid, errors = np.random.default_rng(0), np.arange(2.0, 302.0, 2.0), []
    for _ in range(30):
        sites = []
        for _ in range(3):
            time, censored = rng.exponential(30.0, 130), rng.exponential(40.0, 130)
            sites.append(Times.of(np.minimum(time, censored) + 0.5, time <= censored))
        exact = kaplan_meier(RiskCounts.total(RiskCounts.of(site) for site in sites)).at(grid)
        told = [RiskCounts.of(site, times=grid).coarsen(3) for site in sites]
        errors.append([
            kaplan_meier(RiskCounts.total(parts)).at(grid) - exact
            for parts in (told, [one.spread(grid) for one in told])
        ])  # fmt: skip
    delayed, spread = np.moveaxis(np.array(errors), 1, 0)
    assert 0.015 < delayed.mean() < 0.035
    assert abs(spread.mean()) < 0.006
    assert np.abs(delayed).max() > 0.12
    assert np.abs(spread).max() < 0.09


def test_counts_that_cannot_be_hidden_are_refused() -> None:
    rows = Times.of([1.0, 2.0, 3.0, 4.0], [1, 0, 0, 0])
    with pytest.raises(ArgumentError, match="no group has cells of fewer than 3 rows"):
        RiskCounts.of(rows).coarsen(3)
    times = Times.of(np.arange(1.0, 9.0), np.ones(8))
    with pytest.raises(ArgumentError, match="no group has cells of fewer than 3 rows"):  # two rows outlive the times
        RiskCounts.of(times, times=[3.0, 6.0]).coarsen(3)
    censored = RiskCounts.of(Times.of(np.arange(1.0, 9.0), [1, 1, 1, 0, 0, 0, 1, 1]), times=[3.0, 6.0]).coarsen(3)
    assert censored.left.tolist() == [[3.0]]  # three that were censored stay as well


def test_kaplan_meier_of_a_textbook() -> None:
    """Remission of leukaemia with 6-mercaptopurine: D. R. Cox and D. Oakes, Analysis of Survival Data, 1984, page 8."""
    time = [6, 6, 6, 7, 10, 13, 16, 22, 23, 6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    curve = kaplan_meier(RiskCounts.of(Times.of(time, [1] * 9 + [0] * 12)))
    inside = curve.events > 0
    np.testing.assert_allclose(curve.survival[inside], [0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448], atol=5e-4)
    np.testing.assert_allclose(curve.error[inside], [0.0764, 0.0869, 0.0963, 0.1068, 0.1141, 0.1282, 0.1346], atol=5e-5)
    np.testing.assert_allclose(curve.lower[inside][[0, -1]], [0.720, 0.249], atol=5e-4)
    np.testing.assert_allclose(curve.upper[inside][[0, -1]], [1.0, 0.807], atol=5e-4)
    assert curve.median == 23.0
    assert np.isnan(curve.quantile(0.9)[0])
    assert list(curve.frame().columns)[:3] == ["time", "at_risk", "events"]


@pytest.mark.parametrize("scale", ["log", "log-log", "plain"])
def test_without_censoring_curves_are_shares(scale: Any) -> None:
    curve = kaplan_meier(RiskCounts.of(Times.of([1.0, 2.0, 3.0, 4.0], np.ones(4))), scale=scale, level=0.9)
    share = np.array([0.75, 0.5, 0.25])
    np.testing.assert_allclose(curve.survival, [*share, 0.0])
    error = np.sqrt(share * (1 - share) / 4)
    np.testing.assert_allclose(curve.error[:3], error)
    z = norm.ppf(0.95)
    wanted = {
        "plain": share - z * error,
        "log": share * np.exp(-z * error / share),
        "log-log": share ** np.exp(-z * error / (share * np.log(share))),
    }[scale]
    np.testing.assert_allclose(curve.lower[:3], np.maximum(wanted, 0.0))
    assert np.isnan(curve.lower[3])
    assert curve.median == 2.5  # the middle of the time at which the curve is a half
    mean, deviation = curve.restricted_mean(4.0)
    assert mean == pytest.approx(2.5)
    assert deviation == pytest.approx(np.sqrt(np.var([1, 2, 3, 4]) / 4), rel=1e-12)


def textbook_log_rank(rows: Times, groups: Any, rho: float) -> tuple[Any, Any, Any]:
    """Observed, expected and covariance, time by time."""
    observed, expected, variance, before = np.zeros(3), np.zeros(3), np.zeros((3, 3)), 1.0
    for t in np.unique(rows.time[rows.event]):
        risk = (rows.entry < t) & (rows.time >= t)
        dying = rows.event & (rows.time == t)
        n, d = risk.sum(), dying.sum()
        own = np.array([(risk & (groups == g)).sum() for g in range(3)])
        weight = before**rho
        observed += weight * np.array([(dying & (groups == g)).sum() for g in range(3)])
        expected += weight * d * own / n
        if n > 1:
            variance += weight**2 * d * (n - d) / (n - 1) * (np.diag(own / n) - np.outer(own, own) / n**2)
        before *= 1 - d / n
    return observed, expected, variance


@pytest.mark.parametrize("rho", [0.0, 1.0])
@given(seed=st.integers(0, 10**6), late=st.booleans())
def test_log_rank_sums_are_those_of_a_loop(rho: float, seed: int, late: bool) -> None:
    rows, groups, _ = draw(seed, late=late)
    sums = LogRank.of(RiskCounts.of(rows, groups, 3), rho)
    observed, expected, variance = textbook_log_rank(rows, groups, rho)
    np.testing.assert_allclose(sums.observed, observed, atol=1e-10)
    np.testing.assert_allclose(sums.expected, expected, atol=1e-10)
    np.testing.assert_allclose(sums.variance, variance, atol=1e-10)


def test_the_log_rank_test_is_the_score_test_of_cox() -> None:
    """Without ties, the score test of an indicator in Cox's model, stratified or not, is the log-rank test."""
    rng = np.random.default_rng(3)
    rows = Times.of(rng.exponential(3.0, 80), rng.random(80) < 0.7)
    groups, site = rng.integers(0, 2, 80), rng.integers(0, 3, 80)
    losses = Cox(groups[:, None].astype(float), rows.time, rows.event, clients=site)
    shares = losses.sizes.astype(float)
    hessian = losses.hessian(np.zeros(1), shares)
    assert hessian is not None
    score = losses.gradient(np.zeros(1), shares)[0] ** 2 / hessian[0, 0]
    parts = [RiskCounts.of(Times(*(one[site == i] for one in rows)), groups[site == i], 2) for i in range(3)]
    assert log_rank(parts).statistic == pytest.approx(score, rel=1e-10)
    assert log_rank(parts).df == 1
    with pytest.raises(ArgumentError, match="two or more"):
        LogRank.of(RiskCounts.of(rows))


def concordance_loop(rows: Times, risk: Any, strata: Any, weights: Any) -> tuple[Any, Any]:
    """Concordant, discordant and tied pairs, and the derivative of the index in each weight by differences."""
    n = len(risk)

    def sums(w: Any) -> Any:
        total = np.zeros(3)
        for i in np.flatnonzero(rows.event):
            for j in range(n):
                later = rows.time[j] > rows.time[i] or (rows.time[j] == rows.time[i] and not rows.event[j])
                if strata[i] != strata[j] or not later or not rows.entry[j] < rows.time[i]:
                    continue
                total[0 if risk[i] > risk[j] else 1 if risk[i] < risk[j] else 2] += w[i] * w[j]
        return total

    def index(w: Any) -> float:
        a, b, c = sums(w)
        return float((a + c / 2) / (a + b + c))

    h = 1e-6
    slopes = [(index(weights + h * (np.arange(n) == j)) - index(weights - h * (np.arange(n) == j))) / (2 * h) for j in range(n)]  # fmt: skip  # noqa: E501
    return sums(weights), np.array(slopes)


@pytest.mark.parametrize("seed", range(4))
def test_concordance_is_that_of_all_pairs(seed: int) -> None:
    rows, strata, rng = draw(seed, rows=20, late=seed % 2 == 1)
    risk = np.round(rng.standard_normal(20), 0)
    weights = rng.integers(1, 4, 20).astype(float) if seed > 1 else np.ones(20)
    found = Concordance.of(rows, risk, strata=strata, weights=weights)
    sums, slopes = concordance_loop(rows, risk, strata, weights)
    np.testing.assert_allclose([found.concordant, found.discordant, found.tied], sums, atol=1e-9)
    assert found.error == pytest.approx(np.sqrt(((weights * slopes) ** 2).sum()), rel=1e-5)
    apart = [
        Concordance.of(Times(*(one[strata == s] for one in rows)), risk[strata == s], weights=weights[strata == s])
        for s in np.unique(strata)
    ]
    total = sum(apart[1:], start=apart[0])
    assert total.index == pytest.approx(found.index, rel=1e-12)
    assert total.error == pytest.approx(found.error, rel=1e-9)
    assert "concordance" in str(total)


def test_concordance_of_perfect_and_of_no_order() -> None:
    rows = Times.of(np.arange(1.0, 11.0), np.ones(10))
    assert Concordance.of(rows, -np.arange(10.0)).index == 1.0
    assert Concordance.of(rows, np.arange(10.0)).index == 0.0
    assert Concordance.of(rows, np.zeros(10)).index == 0.5
    assert np.isnan(Concordance.of(Times.of([1.0], [1]), [0.0]).index)


def test_curves_of_new_rows_and_their_errors() -> None:
    """Errors against simulated coefficients, and without features against those of Nelson and Aalen."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    time = rng.exponential(np.exp(-X @ [0.5, -0.3]))
    losses = Cox(X, time, np.ones(300), ties="breslow")
    x, hessian = np.zeros(2), np.eye(2)
    for _ in range(10):
        hessian = losses.hessians(x, np.array([0]))[0]  # type: ignore[index]
        x = x - np.linalg.solve(hessian, losses.gradient(x, np.ones(1)))
    V = np.linalg.inv(hessian * 300)
    (found,) = losses.hazards(x, 0)
    whole = Baseline.of(*found[1:])
    new = np.array([[0.0, 0.0], [1.0, -1.0]])
    found_curves = whole.at([0.5, 1.0]).curves(new, x, V)
    curves, lower, upper = found_curves.survival, found_curves.lower, found_curves.upper
    assert lower is not None
    assert upper is not None
    truth = np.exp(-np.exp(new @ [0.5, -0.3])[:, None] * [0.5, 1.0])
    assert ((lower < truth) & (truth < upper)).all()
    np.testing.assert_allclose(curves, whole.at([0.5, 1.0]).survival(new @ x))
    # The derivative of the logarithm of a curve in the coefficients, by differences.
    h = 1e-6
    z = norm.ppf(0.975)
    for row in range(2):
        slopes = []
        for step in h * np.eye(2):
            ends = [Baseline.of(*losses.hazards(x + s, 0)[0][1:]).at([0.5, 1.0]).survival(new[row] @ (x + s)) for s in (step, -step)]  # fmt: skip  # noqa: E501
            slopes.append((np.log(ends[0]) - np.log(ends[1])) / (2 * h))
        own = np.exp(new[row] @ x) ** 2 * whole.at([0.5, 1.0]).variance
        wanted = np.sqrt(own + np.einsum("it,ij,jt->t", np.array(slopes), V, np.array(slopes)))
        np.testing.assert_allclose(np.log(upper[row] / curves[row]) / z, wanted, rtol=1e-5)


def test_coarse_baselines_have_enough_events_and_the_same_end() -> None:
    rng = np.random.default_rng(1)
    (found,) = Cox(rng.standard_normal((90, 1)), rng.exponential(1.0, 90), rng.random(90) < 0.6).hazards(np.ones(1), 0)
    whole = Baseline.of(*found[1:])
    coarse = whole.coarsen(7)
    assert coarse.events.min() >= 7
    assert coarse.events.sum() == whole.events.sum()
    assert coarse.hazard[-1] == whole.hazard[-1]
    np.testing.assert_array_equal(coarse.hazard, whole.at(coarse.times).hazard)
    with pytest.raises(ArgumentError, match="at least 100 events"):
        whole.coarsen(100)


@given(seed=st.integers(0, 10**6), late=st.booleans())
def test_periods_are_those_of_a_loop(seed: int, late: bool) -> None:
    rows, _, rng = draw(seed, late=late)
    rows = Times(rows.time + rng.choice([0.0, 0.5], len(rows.time)), rows.event, rows.entry)
    edges = np.array([0.0, 2.0, 3.0, 6.0, 9.0])
    found = split_periods(rows, edges)
    wanted = []
    for j in range(len(rows.time)):
        for k, (a, b) in enumerate(itertools.pairwise(edges)):
            happens = bool(rows.event[j]) and a < rows.time[j] <= b
            if rows.entry[j] <= a < rows.time[j] and (happens or rows.time[j] >= b):
                wanted.append((j, k, float(happens)))
    assert list(zip(found.row.tolist(), found.period.tolist(), found.event.tolist(), strict=True)) == wanted


@pytest.mark.parametrize(
    ("y", "says"),
    [
        ([1.0, 2.0], "matrix with the columns"),
        ([[1.0, 2.0, 1.0, 0.0]], "matrix with the columns"),
        (np.array([(1.0, 2.0)], dtype=[("time", float), ("stop", float)]), "field of truth values"),
        ([[1.0, 2.0]], "event must hold 1 or True"),
        ([[2.0, 1.0, 1.0]], "entry must be less than time"),
    ],
)
def test_responses_that_are_none_are_refused(y: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        Times.read(y)


def test_responses_of_all_kinds() -> None:
    records = np.array([(True, 2.0, 1.0), (False, 3.0, 0.0)], dtype=[("died", bool), ("time", float), ("entry", float)])
    for y in (records, [[1.0, 2.0, 1], [0.0, 3.0, 0]]):
        found = Times.read(y)
        assert found.time.tolist() == [2.0, 3.0]
        assert found.entry.tolist() == [1.0, 0.0]
        assert found.event.tolist() == [True, False]
