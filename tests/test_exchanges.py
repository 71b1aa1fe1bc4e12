"""``exchanges_`` counts every request to the sites, as the analyst's own counter does, and there are few."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from tests.honest_study import SIZES, make_patients
from tests.sites_here import FederationHere

TABLE = make_patients(SIZES)
TABLE["visits"] = np.random.default_rng(0).poisson(np.exp(0.02 * (TABLE.age - 56) + 0.3 * TABLE.female))
PLAIN = fpdfp.FederatedLogisticRegression("none")
MODELS: dict[str, tuple[Any, str]] = {
    "three coefficients": (PLAIN, "disease ~ age + female"),
    "eleven": (
        PLAIN,
        "disease ~ pressure + cholesterol + rate + oldpeak + C(stage) + age + female + diabetes + angina",
    ),
    "squares": (fpdfp.FederatedLinearRegression("none"), "pressure ~ age + female"),
    "counts": (fpdfp.FederatedGLM("poisson"), "visits ~ age + female"),
    "offset": (fpdfp.FederatedGLM("poisson"), "visits ~ age + offset(female)"),
    "lasso": (fpdfp.FederatedLogisticRegression(fpdfp.L1(0.02)), "disease ~ age + female + rate"),
    "times": (fpdfp.FederatedCoxRegression(baseline=np.arange(90.0, 1500.0, 90.0)), "Surv(time, died) ~ age + female"),
    "order": (fpdfp.FederatedOrdinalRegression(order=["I", "II", "III"]), "stage ~ age"),
    "classes": (PLAIN, "stage ~ age"),
    "cross-validation": (
        fpdfp.FederatedLogisticRegressionCV("l1", cv=fpdfp.CrossValidation(5, alphas=10), standardize=True),
        "disease ~ age + female + rate",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_request_is_counted(name: str, tmp_path: Path) -> None:
    model, formula = MODELS[name]
    with FederationHere(TABLE, tmp_path) as sites:
        found = model.fit(sites, formula)
        found.summary()
        assert sum(found.exchanges_.values()) == sites.usage.exchanges, sites.link.seen
    away = found.coef_.copy(), dict(found.exchanges_)
    here = model.fit(TABLE, formula, groups="hospital")
    np.testing.assert_array_equal(here.coef_, away[0])
    assert here.exchanges_ | {"level": 1} == away[1]  # of a table's sites it is known


@pytest.mark.parametrize("name", ["three coefficients", "eleven", "squares"])
def test_a_fit_with_its_summary_takes_ten_exchanges_besides_its_rounds(name: str, tmp_path: Path) -> None:
    model, formula = MODELS[name]
    with FederationHere(TABLE, tmp_path) as sites:
        found = model.fit(sites, formula)
        found.summary()
        assert sites.usage.exchanges - found.n_iter_ <= 10


@pytest.mark.parametrize(("family", "link", "outcome"), [
    ("binomial", "logit", "disease"), ("binomial", "cloglog", "disease"), ("binomial", "probit", "disease"),
    ("poisson", "log", "visits"), ("gaussian", "identity", "pressure"), ("gamma", "log", "creatinine"),
])  # fmt: skip
def test_the_null_deviance_is_that_of_the_mean_of_all_outcomes(family: str, link: str, outcome: str) -> None:
    """In two exchanges, of whatever link; by the definition of the deviance."""
    found = fpdfp.FederatedGLM(family, link).fit(TABLE, f"{outcome} ~ age", groups="hospital")
    y = TABLE[outcome].to_numpy(dtype=np.float64)
    mean = y.mean()
    with np.errstate(divide="ignore", invalid="ignore"):
        units = {
            "binomial": -2.0 * np.where(y > 0, np.log(mean), np.log1p(-mean)),
            "poisson": 2.0 * (np.where(y > 0, y * np.log(y / mean), 0.0) - (y - mean)),
            "gaussian": np.square(y - mean),
            "gamma": 2.0 * ((y - mean) / mean - np.log(y / mean)),
        }
    assert found.null_deviance_ == pytest.approx(units[family].sum(), rel=1e-12)
    assert found.exchanges_["null deviance"] == 2


def test_with_an_offset_the_null_model_is_fitted() -> None:
    """Its mean is not that of all outcomes: Σ (y − μ) = 0 at μ = exp(b + offset)."""
    found = fpdfp.FederatedGLM("poisson").fit(TABLE, "visits ~ age + offset(female)", groups="hospital")
    y, shift = TABLE["visits"].to_numpy(dtype=np.float64), TABLE["female"].to_numpy(dtype=np.float64)
    mean = np.exp(shift) * y.sum() / np.exp(shift).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        units = 2.0 * (np.where(y > 0, y * np.log(y / mean), 0.0) - (y - mean))
    assert found.null_deviance_ == pytest.approx(units.sum(), rel=1e-10)


def test_a_site_that_has_forgotten_a_model_is_told_again(tmp_path: Path) -> None:
    with FederationHere(TABLE, tmp_path) as sites:
        known = PLAIN.fit(sites, "disease ~ age").coef_.copy()
        for _, guard, _, _ in sites.link.sites.values():
            guard._models.clear()
        np.testing.assert_array_equal(PLAIN.fit(sites, "disease ~ age").coef_, known)
