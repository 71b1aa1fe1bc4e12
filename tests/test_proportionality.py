"""The test of proportional hazards is that of R's ``cox.zph``, at a table and at sites."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fpdfp
from fpdfp.errors import ArgumentError, MessageError, RefusalError
from fpdfp.federation.policy import Policy
from fpdfp.federation.questions import ProportionalityQuestion, read_answer, write_answer
from tests import r_cases
from tests.test_cox_estimator import DeskCohort

STUDY = r_cases.cases("study")
CASES = [name for name in STUDY if name.startswith("zph")]


@pytest.mark.parametrize("transform", ["identity", "log"])
@pytest.mark.parametrize("name", CASES)
def test_it_is_that_of_r(name: str, transform: str) -> None:
    case, table = STUDY[name], r_cases.study(STUDY[name]["data"])
    tight = fpdfp.RunOptions(tol=1e-13)
    model = fpdfp.FederatedCoxRegression(ties=case["ties"], baseline=False, run=tight).fit(table, case["formula"])
    found, r = model.check_proportional_hazards(table, transform=transform).frame(), case["r"][transform]  # type: ignore[arg-type]
    assert list(found.index)[:-1] == r["names"][:-1]
    np.testing.assert_allclose(found["chi2"], r["chi2"], rtol=1e-6)
    np.testing.assert_allclose(found["p"], r["p"], rtol=1e-6)
    assert found["df"].tolist() == r["df"]


def test_sites_have_hazards_of_their_own(tmp_path: Path) -> None:
    """Sites are strata, at a table, in a formula, and behind default policies."""
    table = r_cases.study("veteran").assign(hospital=np.array(list("ab"))[np.arange(137) % 2])
    formula = "Surv(time, event) ~ karno + age"
    model = fpdfp.FederatedCoxRegression(baseline=False).fit(table, formula, groups="hospital")
    found = model.check_proportional_hazards(table, "hospital")
    stratified = fpdfp.FederatedCoxRegression(baseline=False).fit(table, f"{formula} + strata(hospital)")
    wanted = stratified.check_proportional_hazards(table)
    np.testing.assert_allclose(found.frame()["chi2"], wanted.frame()["chi2"], rtol=1e-6)
    cohort = DeskCohort(table, tmp_path / "open", None)
    np.testing.assert_allclose(
        model.check_proportional_hazards(cohort).frame()["chi2"], found.frame()["chi2"], rtol=1e-9
    )
    closed = DeskCohort(table, tmp_path / "closed", Policy(kinds=tuple(k for k in Policy().kinds if k != "products")))
    with pytest.raises(RefusalError, match="products"):
        model.check_proportional_hazards(closed)
    for desk in (*cohort.desks, *closed.desks):
        desk.close()


def test_what_cannot_be_tested_is_named() -> None:
    table = r_cases.study("lung")
    model = fpdfp.FederatedCoxRegression(baseline=False).fit(table, "Surv(time, event) ~ age")
    with pytest.raises(ArgumentError, match="transform must be one of"):
        model.check_proportional_hazards(table, transform="km")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="must be a Cox model of a formula"):
        fpdfp.FederatedGLM().fit(table, "age ~ sex").fitted_.check_proportional_hazards(table)
    early = table.assign(time=table["time"] - table["time"].min())
    with pytest.raises(ArgumentError, match="must be 'identity' where events are at times of at most 0"):
        model.check_proportional_hazards(early)


def test_forged_sums_are_refused() -> None:
    table = r_cases.study("lung")
    model = fpdfp.FederatedCoxRegression(baseline=False).fit(table, "Surv(time, event) ~ age + sex")
    asked: list[ProportionalityQuestion] = []

    class Listening(fpdfp.federation.cohort.LocalCohort):  # type: ignore[name-defined]
        def ask(self, question, clients=None):  # type: ignore[no-untyped-def]
            asked.append(question)
            return super().ask(question, clients)

    cohort = Listening(table)
    model.check_proportional_hazards(cohort)
    tree = write_answer(cohort.tables[0].answer(asked[0]))
    assert read_answer(asked[0], tree).events == 165
    for change in ({"score": np.zeros(3)}, {"information": np.zeros((1, 2))}, {"events": 999}, {"rows": -1}):
        with pytest.raises(MessageError):
            read_answer(asked[0], tree | change)


VARYING = r_cases.cases("likelihood")


@pytest.mark.parametrize("name", [name for name in VARYING if name.startswith("varying")])
def test_effects_that_change_with_time_are_those_of_rows_split_at_all_events(name: str) -> None:
    """As R's survSplit with the covariate at the end of each stretch, which coxph's tt() is too."""
    case = VARYING[name]
    table, r = r_cases.study(case["data"], "likelihood"), case["r"]
    tight = fpdfp.RunOptions(tol=1e-12)
    model = fpdfp.FederatedCoxRegression(ties=case["ties"], run=tight).fit(table, case["formula"], groups="site")
    found = model.table()
    np.testing.assert_allclose(found.coefficients, r["coefficients"], rtol=1e-6)
    np.testing.assert_allclose(found.standard_errors, r["errors"], rtol=1e-6)
    assert model.deviance_ == pytest.approx(-2.0 * r["loglik"][1], rel=1e-9)
    assert model.null_deviance_ == pytest.approx(-2.0 * r["loglik"][0], rel=1e-9)
    assert sum(model.rows_.values()) == len(table)
    assert "likelihood ratio" in str(model.summary())
    # A person's rows belong together, so that robust errors are not those of stretches.
    robust = model.table(errors="robust").standard_errors
    assert (np.abs(np.log(robust / found.standard_errors)) < 1.0).all()
    for ask in (model.predict, model.evaluate, model.concordance, model.check_proportional_hazards):
        with pytest.raises(ArgumentError, match="change with time"):
            ask(table)
    with pytest.raises(ArgumentError, match="effects change with time"):
        model.predict_survival(table)


def test_effects_that_change_with_time_behind_policies(tmp_path: Path) -> None:
    """A site looks at people, and not at the stretches of their rows."""
    table = r_cases.study("veteran", "likelihood")
    formula = "Surv(time, status) ~ karno + karno:log(time)"
    near = fpdfp.FederatedCoxRegression(baseline=False).fit(table, formula, groups="site")
    cohort = DeskCohort(table.rename(columns={"site": "hospital"}), tmp_path / "all")
    far = fpdfp.FederatedCoxRegression(baseline=False).fit(cohort, formula)
    np.testing.assert_allclose(far.table().coefficients, near.table().coefficients, rtol=1e-9)
    few = table[table["site"] == 0].iloc[:8].assign(hospital=0)
    small = DeskCohort(few, tmp_path / "few")
    with pytest.raises(RefusalError, match="rows"):
        fpdfp.FederatedCoxRegression(baseline=False).fit(small, formula)
    for desk in (*cohort.desks, *small.desks):
        desk.close()


def test_penalties_and_effects_that_change_with_time_do_not_go_together() -> None:
    table = r_cases.study("veteran", "likelihood")
    for model in (fpdfp.FederatedCoxRegression("l1"), fpdfp.FederatedCoxRegression(standardize=True)):
        with pytest.raises(ArgumentError, match="effects change with time"):
            model.fit(table, "Surv(time, status) ~ karno + karno:log(time)", groups="site")
