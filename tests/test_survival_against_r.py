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


@pytest.mark.parametrize("name", [name for name in COX if "plain" not in name])
def test_robust_errors(name: str) -> None:
    """By rows, and by subjects where these have several rows; in one process and by formula."""
    case, r = COX[name], COX[name]["r"]
    data, table = times(case), frame(case["data"])
    subjects = table.get("id")
    response = [data.time, data.event] if data.entry is None else [data.entry, data.time, data.event]
    model = fpdfp.FederatedCoxRegression(ties=case["ties"], baseline=False, run=fpdfp.RunOptions(tol=1e-12))
    model.fit(
        data.X, np.column_stack(response), groups=data.clients, strata=data.strata, sample_weight=data.weights,
        offset=data.offset, clusters=subjects,
    )  # fmt: skip
    np.testing.assert_allclose(model.table(errors="robust").standard_errors, r["robust"], rtol=1e-6)
    formula = case["formula"].replace(" + strata(site)", "").replace("strata(site, grade)", "strata(grade)")
    formula += "" if subjects is None else " + cluster(id)"
    model.fit(table, formula, groups="site", weights=case["weights"])
    np.testing.assert_allclose(model.table(errors="robust").standard_errors, r["robust"], rtol=1e-6)


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


def fit(case: dict[str, Any], **options: Any) -> fpdfp.FederatedCoxRegression:
    """Fit a case by its formula; sites are strata in any case."""
    formula = case["formula"].replace(" + strata(site)", "").replace("strata(site, ", "strata(")
    groups = "site" if "strata(site" in case["formula"] else None
    model = fpdfp.FederatedCoxRegression(ties=case["ties"], **({"run": fpdfp.RunOptions(tol=1e-12)} | options))
    return model.fit(frame(case["data"]), formula, groups=groups, weights=case["weights"])


@pytest.mark.parametrize("name", COX)
def test_cox_regression(name: str) -> None:
    case, r = COX[name], COX[name]["r"]
    model = fit(case)
    table, summary = model.table(), model.summary()
    np.testing.assert_allclose(table.coefficients, r["coefficients"], rtol=1e-6)
    np.testing.assert_allclose(table.covariance, r["covariance"], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(table.statistics, r["statistic"], rtol=1e-6)
    np.testing.assert_allclose(table.p_values, r["p"], rtol=1e-5)
    assert summary.log_likelihood == pytest.approx(r["log_likelihood"], rel=1e-9)
    assert model.null_deviance_ == pytest.approx(-2.0 * r["null_log_likelihood"], rel=1e-9)
    assert model.score_statistic_ == pytest.approx(r["score_test"], rel=1e-6)
    wald = model.wald_test(list(table.names))
    assert wald.statistic == pytest.approx(r["wald_test"], rel=1e-6)
    assert sum(summary.rows) == r["rows"]
    assert model.concordance_ is not None
    assert model.concordance_.index == pytest.approx(r["concordance"], rel=1e-4)
    assert fit(case, run=fpdfp.RunOptions(tol=1e-8), baseline=False).n_iter_ <= r["iterations"] + 1


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_survival_of_new_rows(ties: str) -> None:
    """Curves, with intervals that allow for the errors of the coefficients."""
    case = COX[f"cox, sites, {ties}"]
    model, table = fit(case), frame("survival")
    for row, known in zip((0, 99), case["r"]["curves"], strict=True):
        (r,) = known.values()
        person = table.iloc[[row]]
        found = model.predict_survival(person, numbers(r["time"]), site=str(person["site"].iloc[0]))
        np.testing.assert_allclose(found.survival[0], r["survival"], rtol=1e-6)
        assert found.lower is not None
        assert found.upper is not None
        np.testing.assert_allclose(found.lower[0], r["lower"], rtol=1e-6)
        np.testing.assert_allclose(found.upper[0], r["upper"], rtol=1e-6)


def test_a_likelihood_without_a_maximum_is_named() -> None:
    r = R["separated"]["r"]
    assert "coefficient may be infinite" in r["warnings"][0]
    with pytest.raises(fpdfp.errors.SeparationError, match=r"group\[T.q\]"):
        fpdfp.FederatedCoxRegression().fit(frame("separated"), "Surv(time, status) ~ other + group", groups="site")


@pytest.mark.parametrize("link", ["logit", "cloglog"])
def test_hazards_in_discrete_time(link: str) -> None:
    """A baseline that sites share: a binomial model of rows by periods."""
    table, r = frame("survival"), R[f"discrete, {link}"]["r"]
    periods = survival.split_periods(survival.Times.of(table["time"], table["status"]), 2.0 * np.arange(7))
    long = table.iloc[periods.row].assign(at=periods.period, event=periods.event).reset_index(drop=True)
    assert len(long) == r["rows"]
    model = fpdfp.FederatedGLM("binomial", link=link, run=fpdfp.RunOptions(tol=1e-12))
    model.fit(long, "event ~ 0 + C(at) + age + treated", groups="site", levels="any")
    np.testing.assert_allclose(model.table().coefficients, r["coefficients"], rtol=1e-6)
    np.testing.assert_allclose(model.table().standard_errors, r["errors"], rtol=1e-6)
    assert model.deviance_ == pytest.approx(r["deviance"], rel=1e-9)
