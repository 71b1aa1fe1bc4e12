"""What a statistician would be misled by: each case was wrong or silent once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from fpdfp.errors import ArgumentError, DataWarning
from fpdfp.inference import forest_plot
from fpdfp.survival import Concordance, Times
from tests import r_cases

STUDY = r_cases.cases("study")


@pytest.mark.parametrize("data", ["both", "lung"])
def test_the_error_of_a_concordance_knows_clusters(data: str) -> None:
    case, table = STUDY[f"concordance {data}"], r_cases.study(data)
    table = table.dropna(subset=[case["cluster"]])
    formula = f"{case['formula']} + cluster({case['cluster']})"
    found = fpdfp.FederatedCoxRegression(ties="breslow").fit(table, formula).concordance_
    assert found is not None
    assert found.index == pytest.approx(case["r"]["index"], rel=1e-9)
    assert found.error == pytest.approx(case["r"]["error"], rel=1e-6)
    apart = fpdfp.FederatedCoxRegression(ties="breslow").fit(table, case["formula"]).concordance_
    assert apart is not None
    assert abs(found.error / apart.error - 1.0) > 0.02
    with pytest.raises(ArgumentError, match="clusters must have one label"):
        Concordance.of(Times.of([1.0, 2.0], [1, 1]), [0.0, 1.0], clusters=[1])


def test_clusters_of_a_matrix_are_those_of_a_formula() -> None:
    table = r_cases.study("both")
    y = table[["time", "event"]].to_numpy()
    by_matrix = fpdfp.FederatedCoxRegression().fit(table[["nodes", "age"]].to_numpy(), y, clusters=table["id"])
    by_formula = fpdfp.FederatedCoxRegression().fit(table, "Surv(time, event) ~ nodes + age + cluster(id)")
    assert by_matrix.concordance_ is not None
    assert by_formula.concordance_ is not None
    assert by_matrix.concordance_.error == pytest.approx(by_formula.concordance_.error, rel=1e-9)
    assert by_formula.concordance(table).error == pytest.approx(by_formula.concordance_.error, rel=1e-9)


@pytest.mark.parametrize("name", [name for name in STUDY if name.startswith("aliased")])
def test_empty_cells_are_aliased_as_in_r(name: str) -> None:
    case, table = STUDY[name], r_cases.study("quine")
    model = fpdfp.FederatedGLM("poisson").fit(table, case["formula"], groups=np.arange(len(table)) % 3)
    r, found = case["r"], model.table()
    assert len(model.aliased_) == len(r["aliased"]) > 0
    assert model.deviance_ == pytest.approx(r["deviance"], rel=1e-9)
    assert model.summary().df_residual == r["df"]
    assert not set(model.aliased_) & set(model.coefficients_)
    np.testing.assert_allclose(sorted(found.coefficients), sorted(r["coefficients"]), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(sorted(found.standard_errors), sorted(r["errors"]), rtol=1e-6)
    shown = str(model.summary())
    assert all(one in shown.split("not estimated")[1] for one in model.aliased_)
    # Predictions are those of all columns, and a saved model knows what is left out.
    assert np.isfinite(model.predict(table)).all()
    assert sum(model.predict(table)) == pytest.approx(table["Days"].sum(), rel=1e-8)


def test_aliased_coefficients_are_saved(tmp_path: Any) -> None:
    model = fpdfp.FederatedGLM("poisson").fit(r_cases.study("quine"), "Days ~ Age * Lrn")
    model.save(tmp_path / "model.json")
    again = fpdfp.load_model(tmp_path / "model.json")
    assert str(again.summary()) == str(model.summary())
    assert again.aliased_ == model.aliased_


@pytest.mark.parametrize(
    "formula",
    ["Surv(time, event) ~ log(time)", "Surv(time, event) ~ age:event", "Surv(time, event) ~ age:log(time):sqrt(time)",
     "Surv(time, event) ~ age:I(time * sex)", "Surv(time, event) ~ age + event",
     "Surv(time, event) ~ offset(log(time))", "Surv(time, event) ~ age + strata(event)"],
)  # fmt: skip
def test_what_happened_is_no_covariate(formula: str) -> None:
    with pytest.raises(ArgumentError, match="of the response is on the right of '~' too"):
        fpdfp.FederatedCoxRegression().fit(r_cases.study("lung"), formula)
    with pytest.raises(ArgumentError, match="'age' of the response is on the right"):
        fpdfp.FederatedGLM().fit(r_cases.study("lung"), "age ~ sex + log(age)")


def test_imputed_means_are_said_to_make_errors_too_small() -> None:
    table = r_cases.study("lung")
    assert table["ph.ecog"].isna().any()
    with pytest.warns(DataWarning, match=r"means were put in where ph\.ecog had no value"):
        model = fpdfp.FederatedGLM().fit(table, "age ~ `ph.ecog`", missing="mean")
    assert "too small" in str(model.summary())


def test_warnings_name_arguments_that_exist() -> None:
    table = r_cases.study("birthwt")
    model = fpdfp.FederatedGLM("binomial").fit(table, "low ~ age", groups=np.arange(len(table)) % 4)
    with pytest.warns(DataWarning, match="errors='jackknife' is more careful"):
        model.table(errors="sites")
    model = fpdfp.FederatedGLM("binomial").fit(table, "low ~ age", groups=np.arange(len(table)) % 2)
    with pytest.raises(ArgumentError, match="errors 'sites' needs the sums of at least 3 sites"):
        model.table(errors="sites")


def test_the_information_of_a_cox_model_is_the_observed_one() -> None:
    model = fpdfp.FederatedCoxRegression().fit(r_cases.study("lung"), "Surv(time, event) ~ age")
    assert "of the model (observed information)" in str(model.summary())


def test_forest_plots_have_the_errors_that_were_asked_for() -> None:
    table = r_cases.study("birthwt")
    model = fpdfp.FederatedGLM("poisson").fit(table, "ftv ~ age", groups=np.arange(len(table)) % 3)
    plain, robust = model.heterogeneity("age"), model.heterogeneity("age", errors="HC1")
    assert not np.allclose(plain.standard_errors, robust.standard_errors, rtol=0.02)
    assert "robust (HC1)" in str(robust)
    assert "by one Newton step from the common fit" in str(plain)
    assert "Newton step" in forest_plot(plain).axes[0].get_title(loc="left")


def test_random_effects_are_in_the_summary() -> None:
    table = r_cases.study("lung").dropna(subset=["inst"])
    model = fpdfp.FederatedGLM(site_effects="random").fit(table, "age ~ sex", groups="inst")
    shown = str(model.summary())
    assert f"{model.site_variance_:.6g}" in next(line for line in shown.split("\n") if "τ²" in line)
    assert "site effects" in shown


def separated() -> pd.DataFrame:
    """Three sites; at the third the exposed alone have events."""
    rng = np.random.default_rng(5)
    table = pd.DataFrame({"dose": rng.normal(size=240), "site": np.repeat(["a", "b", "c"], 80)})
    table["exposed"] = rng.binomial(1, 0.5, 240)
    table["died"] = rng.binomial(1, 1 / (1 + np.exp(1.0 - 0.8 * table["exposed"])))
    own = table["site"] == "c"
    table.loc[own, "died"] *= table.loc[own, "exposed"]
    return table


def test_a_site_whose_outcomes_are_separated_has_no_fit_of_its_own() -> None:
    table = separated()
    fits = fpdfp.fit_sites(fpdfp.FederatedGLM("binomial"), table, "died ~ exposed + dose", groups="site")
    assert set(fits.models) == {"a", "b"}
    assert "exposed" in fits.refused["c"]
    assert "no fit at c" in str(fits)
    assert "by one Newton step" in str(
        fpdfp.FederatedGLM("binomial").fit(table, "died ~ exposed + dose", groups="site").heterogeneity("exposed")
    )


@pytest.mark.parametrize("name", ["binomial", "poisson", "gaussian", "cox"])
def test_fits_of_sites_are_those_of_their_own_rows(name: str) -> None:
    data = {"binomial": "birthwt", "poisson": "quine", "gaussian": "lung", "cox": "colon"}[name]
    formula = {"binomial": "low ~ age + smoke", "poisson": "Days ~ Sex + Eth", "gaussian": "age ~ sex",
               "cox": "Surv(time, event) ~ rx + age"}[name]  # fmt: skip
    table = r_cases.study(data)
    own = np.arange(len(table)) % 3
    model: Any = fpdfp.FederatedCoxRegression() if name == "cox" else fpdfp.FederatedGLM(name)
    fits = fpdfp.fit_sites(model, table, formula, groups=own)
    for site, found in fits.tables().items():
        alone = type(model)(**model.get_params(deep=False)).fit(table[own == int(site)], formula).table()
        assert found is not None
        np.testing.assert_allclose(found.coefficients, alone.coefficients, rtol=1e-7)
        np.testing.assert_allclose(found.standard_errors, alone.standard_errors, rtol=1e-7)
    each = dict(enumerate(table[own == k] for k in range(3)))
    assert str(fpdfp.fit_sites(model, each, formula)) == str(fits)


def test_lists_and_dictionaries_of_files_are_sites(tmp_path: Any) -> None:
    table = r_cases.study("birthwt")
    parts = {name: table[np.arange(len(table)) % 3 == k] for k, name in enumerate(("east", "north", "south"))}
    whole = pd.concat([one.assign(clinic=name) for name, one in parts.items()])
    wanted = fpdfp.FederatedGLM("binomial").fit(whole, "low ~ age", groups="clinic").summary()
    paths = {name: tmp_path / f"{name}.csv" for name in parts}
    for name, path in paths.items():
        parts[name].to_csv(path, index=False)
    for given in (parts, paths, list(paths.values()), [str(path) for path in paths.values()]):
        found = fpdfp.FederatedGLM("binomial").fit(given, "low ~ age").summary()
        assert str(found) == str(wanted)
    with pytest.raises(ArgumentError, match="each site has a table of its own"):
        fpdfp.FederatedGLM("binomial").fit(parts, "low ~ age", groups="clinic")
    with pytest.raises(ArgumentError, match="files of different names"):
        fpdfp.FederatedGLM("binomial").fit([paths["east"], paths["east"]], "low ~ age")
    assert fpdfp.survival_curves([*parts.values()], "Surv(bwt, low) ~ 1")["all"].at_risk[0] == len(table)
