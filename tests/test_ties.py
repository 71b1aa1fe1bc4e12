"""Ties: what the seeds can tell apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from reproduce.runs import Comparison, compare, decide, judge_as_good, judge_better, measure_fall


def test_the_zone_is_that_of_the_paired_t_test() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        these, those = generator.standard_normal((2, 5)) + np.array([[0.0], [1.5]])
        found = compare(these, those)
        interval = scipy.stats.ttest_rel(these, those).confidence_interval(0.95)
        assert found.difference - found.zone == pytest.approx(interval.low)
        assert found.difference + found.zone == pytest.approx(interval.high)
        assert found.tied == (interval.low <= 0 <= interval.high)
        assert found.more == (interval.low > 0)


def test_equal_cases_are_mostly_tied() -> None:
    generator = np.random.default_rng(1)
    tied = [compare(*generator.standard_normal((2, 5))).tied for _ in range(2000)]
    assert 0.93 < np.mean(tied) < 0.97


def test_what_seeds_have_in_common_cancels() -> None:
    common = 10 * np.arange(5.0)
    found = compare(common + np.array([1.0, 1.1, 0.9, 1.0, 1.05]), common)
    assert found.more
    assert found.alike  # but a single run cannot tell
    assert not compare([1.0, 1.1, 0.9, 1.0, 1.05], np.zeros(5)).alike


def test_one_seed_tells_nothing() -> None:
    assert compare([1.0], [2.0]).tied
    assert compare([1.0], [2.0]).zone == math.inf
    assert not compare([1.0], [2.0]).alike
    assert judge_as_good(compare([1.0], [2.0]), decide(compare([1.0], [2.0]))) == "undecided"


def test_runs_that_diverge_are_worse() -> None:
    bad, good = np.array([1.0, math.inf, 1.0]), np.array([5.0, 6.0, 7.0])
    assert compare(bad, good).more
    assert decide(compare(good, bad)) == "better"
    assert compare(bad, bad).tied
    assert not compare(bad, good).alike


def test_no_noise_no_zone() -> None:
    assert compare([2.0, 2.0], [1.0, 1.0]).zone == 0.0
    assert compare([2.0, 2.0], [1.0, 1.0]).more
    assert compare([2.0, 2.0], [2.0, 2.0]).tied


def test_cases_need_the_same_seeds() -> None:
    with pytest.raises(ValueError, match=r"same seeds.*\(2,\), \(3,\)"):
        compare(np.zeros(2), np.zeros(3))


@pytest.mark.parametrize(
    ("difference", "fall", "outcome", "better", "as_good"),
    [
        (-3.0, 0.0, "better", "confirmed", "confirmed"),
        (3.0, 0.0, "worse", "refuted", "refuted"),
        (1.5, 0.0, "worse", "refuted", "confirmed"),  # within the spread of runs
        (0.5, 0.0, "tied", "tied", "confirmed"),
        (0.5, 0.9, "tied", "tied", "confirmed"),  # the fall is within the tie zone
        (0.5, 4.0, "falling together", "undecided", "undecided"),
        (3.0, 4.0, "falling together", "undecided", "undecided"),
        (5.0, 4.0, "worse", "refuted", "refuted"),
        (-5.0, 4.0, "better", "confirmed", "confirmed"),
    ],
)
def test_verdicts(difference: float, fall: float, outcome: str, better: str, as_good: str) -> None:
    found = Comparison(difference, zone=1.0, spread=2.0, seeds=5)
    assert decide(found, fall) == outcome
    assert judge_better(found, outcome) == better
    assert judge_as_good(found, outcome) == as_good


def test_a_tie_for_want_of_seeds_does_not_make_cases_as_good() -> None:
    found = Comparison(2.0, zone=3.0, spread=1.0, seeds=2)
    assert decide(found) == "tied"
    assert judge_as_good(found, "tied") == "undecided"


def test_a_fall_counts_if_the_seeds_tell() -> None:
    assert measure_fall([2.0, 2.1, 2.2], [1.0, 1.1, 1.3]) == pytest.approx(2.9 / 3)
    assert measure_fall([2.0, 1.0, 2.2], [1.0, 2.1, 1.3]) == 0.0
    assert measure_fall([math.inf, 1.0], [1.0, 1.0]) == 0.0
