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
