"""Ties: what the seeds can tell apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from fpdfp.experiments.ties import compare, zone


def test_the_zone_is_that_of_the_paired_t_test() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        these, those = generator.standard_normal((2, 5)) + np.array([[0.0], [1.5]])
        found = compare(these, those)
        interval = scipy.stats.ttest_rel(these, those).confidence_interval(0.95)
        assert found.difference - found.zone == pytest.approx(interval.low)
        assert found.difference + found.zone == pytest.approx(interval.high)
        assert found.tied == (interval.low <= 0 <= interval.high)
        assert found.less + found.tied + found.more == 1


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


def test_runs_that_diverge_are_worse() -> None:
    bad, good = np.array([1.0, math.inf, 1.0]), np.array([5.0, 6.0, 7.0])
    assert compare(bad, good).more
    assert compare(good, bad).less
    assert compare(bad, bad).tied
    assert not compare(bad, good).alike


def test_no_noise_no_zone() -> None:
    assert zone(np.array([1.0, 1.0])) == 0.0
    assert compare([2.0, 2.0], [1.0, 1.0]).more
    assert compare([2.0, 2.0], [2.0, 2.0]).tied


def test_cases_need_the_same_seeds() -> None:
    with pytest.raises(ValueError, match=r"same seeds.*\(2,\), \(3,\)"):
        compare(np.zeros(2), np.zeros(3))
