"""Survival against R's package survival, on tied times, late entries, start–stop rows, strata, weights and offsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import survival
from tests.r_cases import cases, frame, numbers, times

R = cases("survival")
COX = {name: case for name, case in R.items() if name.startswith("cox")}


def losses(case: dict[str, Any]) -> fpdfp.losses.Cox:
    data = times(case)
    return fpdfp.losses.Cox(
        data.X,
        data.time,
        data.event,
        data.clients,
        entry=data.entry,
        ties=case["ties"],
        strata=data.strata,
        weights=data.weights,
        offset=data.offset,
    )


@pytest.mark.parametrize("name", COX)
def test_the_partial_likelihood(name: str) -> None:
    cox, r = losses(COX[name]), COX[name]["r"]
    x, everyone = numbers(r["coefficients"]), np.arange(cox.n_clients)
    for point, expected in ((x, r["log_likelihood"]), (np.zeros_like(x), r["null_log_likelihood"])):
        assert -float(cox.sizes @ cox.values(point, everyone)) == pytest.approx(expected, rel=1e-9)
    assert np.abs(cox.sizes @ cox.gradients(x, everyone)).max() < 1e-6
    information = np.einsum("i,ijk->jk", cox.sizes.astype(float), cox.hessians(x, everyone))
    np.testing.assert_allclose(np.linalg.inv(information), r["covariance"], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", COX)
def test_baseline_hazards(name: str) -> None:
    cox, r = losses(COX[name]), COX[name]["r"]
    x = numbers(r["coefficients"])
    # Without newdata R's hazard is that of a row with the mean offset.
    lift = float(np.exp(frame("survival")["lean"].mean())) if "offset" in name else 1.0
    clients = np.unique(data) if (data := times(COX[name]).clients) is not None else np.array(["all"])
    for client, label in enumerate(clients):
        for found in cox.hazards(x, client):
            stratum = f"{label}, {found.stratum}" if "grades" in name else label
            known = r["hazard"][stratum]
            # R has a row for each time at which somebody leaves; between events the hazard stays.
            at = np.searchsorted(numbers(known["time"]), found.times)
            np.testing.assert_allclose(lift * np.cumsum(found.hazard), numbers(known["hazard"])[at], rtol=1e-6)


@pytest.mark.parametrize("name", COX)
def test_concordance(name: str) -> None:
    r, data = COX[name]["r"], times(COX[name])
    score = data.X @ numbers(r["coefficients"]) + (0.0 if data.offset is None else data.offset)
    score = score.round(10)  # rows with the same covariates are ties, whatever rounding says
    sites = np.zeros(len(score)) if data.clients is None else data.clients
    parts = []
    for site in np.unique(sites):
        own = sites == site
        rows = survival.Times.of(data.time[own], data.event[own], None if data.entry is None else data.entry[own])
        more = {"strata": data.strata, "weights": data.weights}
        chosen = {key: None if value is None else value[own] for key, value in more.items()}
        parts.append(survival.Concordance.of(rows, score[own], **chosen))
    found = sum(parts[1:], parts[0])
    assert found.index == pytest.approx(r["concordance"], rel=1e-6)
    assert found.concordant == pytest.approx(r["pairs"]["concordant"], rel=1e-9)
    assert found.discordant == pytest.approx(r["pairs"]["discordant"], rel=1e-9)
    assert found.tied == pytest.approx(r["pairs"]["tied.x"], rel=1e-9)
    assert found.error == pytest.approx(r["concordance_error"], rel=1e-6)


def counts(groups: str | None = None, entry: bool = False) -> list[survival.RiskCounts]:
    """The counts of each site, in the groups of a column."""
    table = frame("survival")
    codes = np.zeros(len(table), dtype=int) if groups is None else np.unique(table[groups], return_inverse=True)[1]
    found = []
    for _, part in table.groupby("site"):
        rows = survival.Times.of(part["time"], part["status"], part["entry"] if entry else None)
        found.append(survival.RiskCounts.of(rows, codes[part.index], codes.max() + 1))
    return found


def same_curve(found: survival.SurvivalCurve, r: dict[str, Any]) -> None:
    happens = found.events > 0
    names = {"time": "times", "n_risk": "at_risk", "n_event": "events", "survival": "survival", "error": "error"}
    for theirs, ours in (names | {"lower": "lower", "upper": "upper"}).items():
        known = numbers(r[theirs])
        some = np.isfinite(known) & (numbers(r["survival"]) > 0)  # R has no error where nobody is left
        np.testing.assert_allclose(getattr(found, ours)[happens][some], known[some], rtol=1e-6)


def test_kaplan_meier_over_sites() -> None:
    total = survival.RiskCounts.total(counts())
    r = R["kaplan-meier"]["r"]
    curve = survival.kaplan_meier(total)
    same_curve(curve, r["curves"]["all"])
    assert [curve.quantile(share)[0] for share in (0.25, 0.5, 0.75)] == r["quartiles"]
    same_curve(survival.kaplan_meier(total, scale="log-log"), R["kaplan-meier, log-log"]["r"]["curves"]["all"])
    late = survival.RiskCounts.total(counts(entry=True))
    same_curve(survival.kaplan_meier(late), R["kaplan-meier, entry"]["r"]["curves"]["all"])


def test_kaplan_meier_of_groups_and_of_sites() -> None:
    total, r = survival.RiskCounts.total(counts("treated")), R["kaplan-meier, treated"]["r"]
    for number, quartiles in enumerate(r["quartiles"]):
        curve = survival.kaplan_meier(total.group(number))
        same_curve(curve, r["curves"][str(number)])
        assert [curve.quantile(share)[0] for share in (0.25, 0.5, 0.75)] == quartiles
    for site, part in zip("abc", counts(), strict=True):
        same_curve(survival.kaplan_meier(part), R["kaplan-meier, sites"]["r"]["curves"][site])


def test_log_rank() -> None:
    by_grade = counts("grade")
    pooled = survival.LogRank.of(survival.RiskCounts.total(by_grade))
    parts = [survival.LogRank.of(part) for part in by_grade]
    for found, name in ((pooled, "log-rank"), (sum(parts[1:], parts[0]), "log-rank, sites")):
        r = R[name]["r"]
        np.testing.assert_allclose(found.observed, r["observed"])
        np.testing.assert_allclose(found.expected, r["expected"], rtol=1e-6)
        np.testing.assert_allclose(found.variance, r["variance"], rtol=1e-6, atol=1e-9)
        assert found.test().statistic == pytest.approx(r["chi2"], rel=1e-6)
    assert survival.log_rank(by_grade).statistic == pytest.approx(R["log-rank, sites"]["r"]["chi2"], rel=1e-6)
