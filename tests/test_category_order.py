"""The order of categories is that of the data type, of the sites' declarations, or asked for; summaries name it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from fpdfp.errors import ArgumentError
from tests import r_cases

LEVELS = ["Low", "Medium", "High"]


def housing() -> pd.DataFrame:
    return r_cases.study("housing")


def test_an_ordered_factor_keeps_its_order() -> None:
    """As MASS::polr, on the data of its help page; alphabetically it would be High < Low < Medium."""
    case, table = r_cases.cases("study")["polr"]["r"], housing()
    model = fpdfp.FederatedOrdinalRegression().fit(table, "Sat ~ Infl + Type + Cont", weights="Freq")
    assert list(model.classes_) == LEVELS
    # R's reference levels too: the first category, not the first in the alphabet.
    assert list(model.coefficients_) == [
        "Infl[T.Medium]", "Infl[T.High]", "Type[T.Apartment]", "Type[T.Atrium]", "Type[T.Terrace]", "Cont[T.High]",
        "Low|Medium", "Medium|High",
    ]  # fmt: skip
    found = model.table()
    np.testing.assert_allclose(found.coefficients, case["coefficients"], rtol=1e-6)
    np.testing.assert_allclose(found.standard_errors, case["errors"], rtol=1e-5)
    assert "Low < Medium < High" in str(model.summary())


def test_each_site_lacks_a_level() -> None:
    table = housing()
    table["site"] = np.arange(len(table)) % 4
    table = table[
        ~((table["site"] == 0) & (table["Sat"] == "Medium")) & ~((table["site"] == 1) & (table["Infl"] == "Low"))
    ]
    model = fpdfp.FederatedOrdinalRegression().fit(table, "Sat ~ Infl", groups="site", weights="Freq")
    assert list(model.classes_) == LEVELS
    assert list(model.coefficients_)[:2] == ["Infl[T.Medium]", "Infl[T.High]"]


def test_texts_without_an_order_are_refused() -> None:
    table = housing().astype({"Sat": object})
    with pytest.raises(ArgumentError, match="order must list the classes from the lowest to the highest"):
        fpdfp.FederatedOrdinalRegression().fit(table, "Sat ~ Infl", weights="Freq")
    codes = table[["Freq"]].to_numpy(float)
    with pytest.raises(ArgumentError, match="order must list the classes"):
        fpdfp.FederatedOrdinalRegression().fit(codes, table["Sat"].to_numpy(str))
    asked = fpdfp.FederatedOrdinalRegression(order=LEVELS).fit(table, "Sat ~ Infl", weights="Freq")
    given = fpdfp.FederatedOrdinalRegression().fit(
        table, "Sat ~ Infl", weights="Freq", levels={"Sat": LEVELS, "Infl": LEVELS}
    )
    assert list(asked.classes_) == list(given.classes_) == LEVELS


def test_a_matrix_with_an_ordered_response() -> None:
    table = housing()
    X = table[["Freq"]].to_numpy(float)
    assert list(fpdfp.FederatedOrdinalRegression().fit(X, table["Sat"]).classes_) == LEVELS


def test_sites_that_declare_different_orders_are_named() -> None:
    up = pd.Categorical(["Low", "High"] * 20, categories=["Low", "High"], ordered=True)
    down = pd.Categorical(["Low", "High"] * 20, categories=["High", "Low"], ordered=True)
    frames = [pd.DataFrame({"pain": one, "y": np.arange(40.0)}) for one in (up, down)]
    with pytest.raises(ArgumentError, match="in different orders: Low < High at a; High < Low at b"):
        fpdfp.FederatedGLM().fit({"a": frames[0], "b": frames[1]}, "y ~ pain")


def test_declared_reference_levels_and_events() -> None:
    table = r_cases.study("birthwt")
    race = pd.Categorical(table["race"], categories=["white", "black", "other"])
    outcome = pd.Categorical(np.where(table["low"] == 1, "low", "normal"), categories=["normal", "low"])
    named = table.assign(race=race, outcome=outcome)
    model = fpdfp.FederatedGLM("binomial").fit(named, "outcome ~ race + age", groups=np.arange(len(table)) % 3)
    numbers = fpdfp.FederatedGLM("binomial").fit(table.assign(race=race), "low ~ race + age")
    assert "race[T.black]" in model.coefficients_
    assert model.coefficients_ == pytest.approx(numbers.coefficients_, rel=1e-9)
    shown = str(model.summary())
    assert "outcome = low" in shown
    assert "race: white" in shown  # the reference


@pytest.mark.parametrize(
    ("model", "formula", "words"),
    [
        (fpdfp.FederatedLogisticRegression(penalty="none"), "outcome ~ age", "outcome = normal"),
        (fpdfp.FederatedMultinomialRegression(), "race ~ age", "race, against black"),
        (fpdfp.FederatedGLM("binomial"), "low ~ age", "low = 1"),
        (fpdfp.FederatedGLM("poisson"), "ftv ~ age", "ftv"),
        (fpdfp.FederatedCoxRegression(), "Surv(bwt, low) ~ age", "low = 1"),
    ],
)
def test_every_summary_says_what_is_modelled(model: Any, formula: str, words: str) -> None:
    table = r_cases.study("birthwt")
    table["outcome"] = np.where(table["low"] == 1, "low", "normal")
    fitted = model.fit(table, formula, groups=np.arange(len(table)) % 3)
    line = next(one for one in str(fitted.summary()).split("\n") if one.startswith("models"))
    assert words in line
