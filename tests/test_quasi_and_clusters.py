"""Quasi-likelihoods, and errors of rows that belong together, as R and its package sandwich have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.errors import ArgumentError, RefusalError
from tests import r_cases
from tests.test_cox_estimator import DeskCohort

STUDY = r_cases.cases("study")


def read(name: str) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    case = STUDY[name]
    table = r_cases.study(case["data"])
    if name.startswith("quasi") and case["data"] == "veteran":
        table["prior"] /= 10
    given = {} if case.get("weights", "one") == "one" else {"weights": case["weights"]}
    return case, table, given


@pytest.mark.parametrize("name", [name for name in STUDY if name.startswith("quasi")])
def test_quasi_likelihoods_are_those_of_r(name: str) -> None:
    case, table, given = read(name)
    family = "quasi-poisson" if name.startswith("quasipoisson") else "quasi-binomial"
    model = fpdfp.FederatedGLM(family).fit(table, case["formula"], groups=np.arange(len(table)) % 3, **given)
    found, r, summary = model.table(), case["r"], model.summary()
    np.testing.assert_allclose(found.coefficients, r["coefficients"], rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(found.standard_errors, r["errors"], rtol=1e-6)
    np.testing.assert_allclose(found.p_values, r["p"], rtol=1e-5, atol=1e-15)
    assert summary.dispersion == pytest.approx(r["dispersion"], rel=1e-6)
    assert summary.deviance == pytest.approx(r["deviance"], rel=1e-8)
    assert summary.df_residual == r["df"]
    assert summary.aic is None
    assert "; t with" in str(summary)


@pytest.mark.parametrize("name", [name for name in STUDY if name.startswith("clustered")])
def test_clustered_errors_are_those_of_sandwich(name: str) -> None:
    case, table, _ = read(name)
    formula = f"{case['formula']} + cluster({case['cluster']})"
    # Clusters are within sites.
    sites = np.unique(table[case["cluster"]].to_numpy(str), return_inverse=True)[1] % 3
    model = fpdfp.FederatedGLM(case["family"]).fit(table, formula, groups=sites)
    found = model.table(errors="robust")
    np.testing.assert_allclose(found.coefficients, case["r"]["coefficients"], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.standard_errors, case["r"]["clustered"], rtol=1e-6)
    assert f"clustered by {case['cluster']}" in found.errors
    apart = fpdfp.FederatedGLM(case["family"]).fit(table, case["formula"], groups=sites).table(errors="HC0")
    assert not np.allclose(apart.standard_errors, found.standard_errors, rtol=0.01)
    assert "errors='robust'" in str(model.summary())


def test_logistic_and_linear_models_take_clusters() -> None:
    table = r_cases.study("both")
    for model, family, formula in (
        (fpdfp.FederatedLogisticRegression(), "binomial", "event ~ nodes + cluster(id)"),
        (fpdfp.FederatedLinearRegression(), "gaussian", "time ~ nodes + cluster(id)"),
    ):
        one: Any = model
        found = one.fit(table, formula).table(errors="robust")
        same = fpdfp.FederatedGLM(family).fit(table, formula).table(errors="robust")
        np.testing.assert_allclose(found.standard_errors, same.standard_errors, rtol=1e-5)
    with pytest.raises(ArgumentError, match="models of times and of one linear predictor"):
        fpdfp.FederatedMultinomialRegression().fit(table.assign(rx=table["rx"]), "rx ~ nodes + cluster(id)")
    with pytest.raises(ArgumentError, match="takes one column"):
        fpdfp.FederatedGLM().fit(table, "time ~ nodes + cluster(id, rx)")


def test_few_clusters_are_not_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = r_cases.study("birthwt").assign(subject=np.arange(189), hospital=np.array(list("abc"))[np.arange(189) % 3])
    table["bwt"] += rng.normal(size=189)
    table.loc[3, "subject"] = 0  # two rows of one subject, and all others apart
    cohort = DeskCohort(table, tmp_path / "few", None)
    with pytest.raises(RefusalError, match="clusters only if 3 of them have several rows"):
        fpdfp.FederatedGLM().fit(cohort, "bwt ~ age + cluster(subject)")
    for desk in cohort.desks:
        desk.close()
    many = DeskCohort(table.assign(subject=np.arange(189) // 9), tmp_path / "many", None)
    found = fpdfp.FederatedGLM().fit(many, "bwt ~ age + cluster(subject)").table(errors="robust")
    whole = fpdfp.FederatedGLM().fit(
        table.assign(subject=np.arange(189) // 9), "bwt ~ age + cluster(subject)", groups="hospital"
    )
    np.testing.assert_allclose(found.standard_errors, whole.table(errors="robust").standard_errors, rtol=1e-9)
    for desk in many.desks:
        desk.close()


def test_quasi_models_at_a_policy_have_the_classes_of_theirs(tmp_path: Path) -> None:
    """The guard looks at events of a quasi-binomial model as at those of a binomial one."""
    table = r_cases.study("birthwt").assign(hospital=np.array(list("abc"))[np.arange(189) % 3])
    table["rare"] = (table.index < 3) * 1.0
    cohort = DeskCohort(table, tmp_path, None)
    with pytest.raises(RefusalError, match="classes of at least 3 rows only"):
        fpdfp.FederatedGLM("quasi-binomial").fit(cohort, "rare ~ age")
    for desk in cohort.desks:
        desk.close()
