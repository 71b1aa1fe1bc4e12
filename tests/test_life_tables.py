"""Curves of counts between times: near those of exact times, and within their bounds, at a table and at sites."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from fpdfp import survival_curves
from fpdfp.survival import RiskCounts, Times, kaplan_meier
from fpdfp.survival.counts import RiskTotal
from fpdfp.survival.curves import bound_survival
from tests import r_cases

DATA = {"lung": 91.3, "veteran": 60.0, "pbc": 365.25, "colon": 365.25}


def exact_curve(name: str, times: Any) -> tuple[Any, Any]:
    """The curve of R at some times, with its standard errors."""
    case = r_cases.cases("study")[f"survfit {name}"]["r"]
    place = np.searchsorted(case["time"], times, "right")
    return np.append(1.0, case["survival"])[place], np.append(0.0, np.array(case["error"], dtype=float))[place]


@pytest.mark.parametrize("name", DATA)
def test_counts_by_years_are_near_the_exact_curve(name: str) -> None:
    table = r_cases.study(name)
    grid = np.arange(1, int(table["time"].max() / DATA[name]) + 2) * DATA[name]
    sites = np.arange(len(table)) % 3
    curve = survival_curves(table, "Surv(time, event) ~ 1", groups=sites, times=grid)["all"]
    exact, error = exact_curve(name, curve.times)
    assert curve.least is not None
    assert curve.largest is not None
    assert (curve.least <= exact + 1e-9).all()
    assert (exact <= curve.largest + 1e-9).all()
    known = (exact > 0) & (error > 0)
    assert (np.abs(curve.survival - exact)[known] < 0.4 * error[known]).all()
    # Without the correction it is further off, always upwards.
    raw = np.cumprod(1.0 - curve.events / curve.at_risk)
    assert np.abs(raw - exact).max() > 2.0 * np.abs(curve.survival - exact).max()
    # At exact times nothing is corrected and nothing is bounded.
    whole = survival_curves(table, "Surv(time, event) ~ 1", groups=sites)["all"]
    case = r_cases.cases("study")[f"survfit {name}"]["r"]
    np.testing.assert_allclose(whole.survival, case["survival"], rtol=1e-12)
    assert whole.least is None


@pytest.mark.parametrize("least", [1, 3, 5])
@pytest.mark.parametrize("seed", range(8))
def test_bounds_hold_where_sites_hide_small_cells(least: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    grid = np.arange(1.0, 31.0) * 4.0
    sites = []
    for _ in range(3):
        time, censored = rng.exponential(30.0, 80), rng.exponential(40.0, 80)
        sites.append(Times.of(np.minimum(time, censored) + 0.5, time <= censored))
    exact = kaplan_meier(RiskCounts.total(map(RiskCounts.of, sites))).at(grid)
    parts = [RiskCounts.of(site, times=grid).coarsen(least) for site in sites]
    total = RiskTotal.of(parts, grid, late_entries=False)
    assert total.ends is not None
    lower, upper = bound_survival(*total.ends)
    assert (lower <= exact + 1e-12).all()
    assert (exact <= upper + 1e-12).all()
    assert (lower <= upper).all()


def test_late_entries() -> None:
    """Those who enter between two times count half; there are no bounds, since few may be at risk at first."""
    rng = np.random.default_rng(1)
    entry = rng.uniform(0.0, 5.0, 600)
    time = entry + rng.exponential(6.0, 600)
    rows, grid = Times.of(np.minimum(time, 12.0), time < 12.0, entry), np.arange(1.0, 13.0)
    total = RiskTotal.of([RiskCounts.of(rows, times=grid)], grid, late_entries=True)
    assert total.ends is None
    # Conditional on the first two years, when few are at risk.
    exact, found = kaplan_meier(RiskCounts.of(rows)).at(grid[2:]), kaplan_meier(total.counts).at(grid[2:])
    np.testing.assert_allclose(found / found[0], exact / exact[0], atol=0.02)


def test_times_on_the_grid_are_exact() -> None:
    table = pd.DataFrame({"years": [1, 2, 2, 3, 4, 4, 5, 5], "died": [1, 0, 1, 1, 0, 1, 0, 0]})
    by_years = survival_curves(table, "Surv(years, died) ~ 1", times=[1, 2, 3, 4, 5])["all"]
    whole = survival_curves(table, "Surv(years, died) ~ 1")["all"]
    np.testing.assert_array_equal(by_years.survival, whole.survival)
    assert by_years.least is None
