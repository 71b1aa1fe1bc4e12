"""Summaries with ratios, and several models side by side, as text, HTML, LaTeX and CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.inference import model_table
from tests import r_cases

TABLE = r_cases.study("birthwt")
SITES = np.arange(len(TABLE)) % 3
STUDY = r_cases.cases("study")


@pytest.mark.parametrize(
    ("model", "formula", "ratio"),
    [
        (fpdfp.FederatedLogisticRegression(), "low ~ age + smoke", "odds ratio"),
        (fpdfp.FederatedGLM("poisson"), "ftv ~ age + smoke", "rate ratio"),
        (fpdfp.FederatedGLM("gamma", "log"), "bwt ~ age + smoke", "ratio of means"),
        (fpdfp.FederatedCoxRegression(), "Surv(bwt, low) ~ age + smoke", "hazard ratio"),
        (fpdfp.FederatedGLM("binomial", "cloglog"), "low ~ age + smoke", "hazard ratio"),
        (fpdfp.FederatedGLM(), "bwt ~ age + smoke", None),
        (fpdfp.FederatedGLM("binomial", "probit"), "low ~ age + smoke", None),
    ],
)
def test_ratios_are_beside_coefficients_where_they_mean_something(model: Any, formula: str, ratio: str | None) -> None:
    fitted = model.fit(TABLE, formula, groups=SITES)
    columns = fitted.summary().frame()
    table = fitted.table()
    if ratio is None:
        assert list(columns) == list(table.frame())
        with pytest.raises(ArgumentError, match="is not a ratio"):
            fitted.summary(ratios=True)
        return
    place = list(table.names).index("smoke")
    lower, upper = np.exp(table.intervals()[place])
    assert columns.loc["smoke", ratio] == pytest.approx(np.exp(table.coefficients[place]), rel=1e-12)
    assert columns.loc["smoke", "2.5 %"] == pytest.approx(lower, rel=1e-12)
    assert columns.loc["smoke", "97.5 %"] == pytest.approx(upper, rel=1e-12)
    assert "Intercept" not in columns.index or np.isnan(columns.loc["Intercept", ratio])
    assert list(fitted.summary(ratios=False).frame()) == list(table.frame())


def test_events_are_counted() -> None:
    events = int(TABLE["low"].sum())
    for model, formula in (
        (fpdfp.FederatedLogisticRegression(), "low ~ age"),
        (fpdfp.FederatedCoxRegression(), "Surv(bwt, low) ~ age"),
    ):
        summary = model.fit(TABLE, formula, groups=SITES).summary()
        assert summary.events == events
        assert f"{events} with the event" in str(summary)


@pytest.fixture
def shown() -> Any:
    crude = fpdfp.FederatedLogisticRegression().fit(TABLE, "low ~ smoke", groups=SITES)
    adjusted = fpdfp.FederatedLogisticRegression().fit(TABLE, "low ~ smoke + age + race", groups=SITES)
    lasso = fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01)).fit(TABLE, "low ~ smoke + age + race", groups=SITES)
    return model_table({"crude": crude, "adjusted": adjusted, "lasso": lasso}, names={"smoke": "smoking & co"})


def test_models_side_by_side(shown: Any, tmp_path: Path) -> None:
    text = str(shown)
    odds, low, high = STUDY["odds"]["r"]["smoke"]  # of R's glm, Wald intervals
    assert f"{odds:.3f} ({low:.3f} to {high:.3f})" in text
    line = next(line for line in text.split("\n") if line.startswith("race[black]"))
    assert "1 (reference)" in line
    assert "penalty l1" in text.split("lasso:")[1]
    frame = shown.frame()
    assert list(dict.fromkeys(frame.columns.get_level_values(0))) == ["crude", "adjusted", "lasso"]
    assert set(frame.loc["rows", :].astype(str)) == {"189", ""}
    assert frame.loc["events", ("adjusted", "odds ratio (95 %)")] == "59"
    latex = shown.to_latex()
    assert r"smoking \& co" in latex
    assert latex.count(r"\\") == len(shown.rows) + 2 + len(shown.notes)
    assert r"\toprule" in latex
    assert "<table>" in shown.to_html()
    assert "smoking &amp; co" in shown._repr_html_()
    assert shown.to_csv(tmp_path / "table.csv") is None
    assert (tmp_path / "table.csv").read_text().startswith(",crude,,adjusted")


def test_a_summary_is_a_table_in_latex(tmp_path: Path) -> None:
    summary = fpdfp.FederatedLogisticRegression().fit(TABLE, "low ~ smoke + race", groups=SITES).summary()
    latex = summary.to_latex()
    assert latex is not None
    assert "odds ratio" in latex
    assert r"97.5 \%" in latex
    assert summary.to_html(tmp_path / "page.html") is None
    assert "<b>FederatedLogisticRegression" in (tmp_path / "page.html").read_text()
    penalised = fpdfp.FederatedLogisticRegression("l1").fit(TABLE, "low ~ smoke", groups=SITES).summary()
    assert "no standard errors" in str(penalised.to_latex())


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentTypeError, match="models must be a dictionary"):
        model_table([])  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="fitted models or summaries, got"):
        model_table({"a": 1})
    model = fpdfp.FederatedLogisticRegression().fit(TABLE, "low ~ smoke", groups=SITES)
    with pytest.raises(ArgumentError, match="path cannot be written"):
        model_table({"a": model}).to_csv(tmp_path / "nowhere" / "table.csv")
