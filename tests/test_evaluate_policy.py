"""What sites tell of predictions, by their policy; and a coordinator that asks for more."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

import fpdfp
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.errors import MessageError, RefusalError
from fpdfp.federation import audit, questions
from fpdfp.federation.cohort import TableCohort
from fpdfp.federation.policy import Policy
from fpdfp.federation.questions import CalibrationQuestion, EvaluationQuestion
from fpdfp.scores.site import SiteScores
from tests.desks import ANALYST
from tests.test_cohort import patients
from tests.test_cox_estimator import TABLE as TIMES
from tests.test_cox_estimator import DeskCohort

FORMULA = "died ~ age + stage"
TEST = patients(500, seed=1).dropna()


@pytest.fixture(scope="module")
def model() -> Any:
    return fpdfp.FederatedLogisticRegression("none").fit(patients(300), FORMULA, groups="hospital")


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Callable[..., DeskCohort]]:
    made: list[DeskCohort] = []

    def make(policy: Policy | None = None, table: pd.DataFrame = TEST) -> DeskCohort:
        made.append(DeskCohort(table, tmp_path / str(len(made)), policy))
        return made[-1]

    yield make
    for one in made:
        for desk in one.desks:
            desk.close()


def question_of(model: Any) -> EvaluationQuestion:
    """What the model asks sites."""
    asked: list[Any] = []

    class EndError(Exception):
        pass

    class Cohort(TableCohort):
        names = ("north",)

        def gather(self, question: Any, names: Any, *, each: bool) -> list[Any]:
            asked.append(question)
            raise EndError

        def losses(self, spec: Any) -> Any:
            raise NotImplementedError

    with pytest.raises(EndError):
        model.evaluate(Cohort())
    assert isinstance(asked[0], EvaluationQuestion)
    return asked[0]


def test_no_count_is_small_and_the_bound_is_true(model: Any, sites: Callable[..., DeskCohort]) -> None:
    whole = model.evaluate(TEST, groups="hospital")
    for least in (3, 10):
        cohort = sites(Policy(cell=least))
        for answer in cohort.ask_each(question_of(model)).answers:
            assert isinstance(answer, SiteScores)
            (counts,), (residuals,) = answer.predictors, answer.residuals
            for one in (counts.events, counts.others):
                assert ((one == 0) | (one >= least)).all()
            assert residuals.counts.min() >= least
            # Cells of the grid are no finer than that those with rows have so many on average.
            assert counts.factor > 16
        found = model.evaluate(cohort)
        exact = metrics.roc_auc_score(TEST.died, model.decision_function(TEST))
        area = found.overall["auc"]
        assert abs(area.value - exact) <= area.bound < {3: 0.05, 10: 0.2}[least]
        assert area.lower <= whole.overall["auc"].lower
        for name in ("accuracy", "brier", "deviance"):
            assert found.overall[name] == whole.overall[name]
        for name in ("calibration intercept", "calibration slope"):
            assert found.overall[name].value == pytest.approx(whole.overall[name].value, abs=1e-9)
        assert found.residuals is not None
        assert found.residuals.counts.sum() == len(TEST)


def test_a_site_may_forbid_it(model: Any, sites: Callable[..., DeskCohort]) -> None:
    kinds = tuple(kind for kind in Policy().kinds if kind != "evaluation")
    with pytest.raises(RefusalError, match="does not answer what is of the kind 'evaluation'"):
        model.evaluate(sites(Policy(kinds=kinds)))
    with pytest.raises(RefusalError, match="takes part with at least 300 rows only"):
        model.evaluate(sites(Policy(rows=300)))


def test_few_wrong_predictions_are_not_counted(sites: Callable[..., DeskCohort]) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"hospital": np.repeat(["a", "b"], 100), "u": rng.normal(size=200)})
    table["died"] = (table.u + 0.6 * rng.logistic(size=200) > 0).astype(int)
    model = fpdfp.FederatedLogisticRegression("none").fit(table, "died ~ u", groups="hospital")
    right = model.predict(table) == table.died
    kept = right | (table.hospital == "b") | (np.cumsum(~right) <= 2)
    found = model.evaluate(sites(None, table[kept]))
    assert np.isnan(found.by_site["a"]["accuracy"].value)
    assert found.overall["accuracy"].value == found.by_site["b"]["accuracy"].value
    assert any(line.startswith("a withholds accuracy") for line in found.notes)
    assert "a withholds accuracy" in str(found)
    assert np.isfinite(found.by_site["a"]["brier"].value)


def test_times_at_desks(sites: Callable[..., DeskCohort]) -> None:
    model = fpdfp.FederatedCoxRegression(baseline=False).fit(TIMES, "Surv(time, died) ~ age + stage", "hospital")
    here, there = model.evaluate(TIMES, groups="hospital"), model.evaluate(sites(None, TIMES))
    pd.testing.assert_frame_equal(here.to_frame(), there.to_frame(), check_exact=True)


def test_what_is_asked_is_logged(model: Any, sites: Callable[..., DeskCohort]) -> None:
    cohort = sites()
    model.evaluate(cohort)
    words = [entry.asked for entry in audit.entries(cohort.desks[0].folder)]
    formula = ": died ~ "
    assert words[0].startswith("how good the predictions of a model are" + formula)
    assert words[1].startswith("sums for the calibration of a model" + formula)
    assert cohort.desks[0].budget.spent.total == 1


def test_a_coordinator_cannot_ask_for_finer_cells(model: Any, sites: Callable[..., DeskCohort]) -> None:
    desk = sites().desks[0]

    def ask(tree: dict[str, Any]) -> dict[str, Any]:
        asked = unpack(pack({**tree, "run": "run", "sequence": 1}))
        reply: dict[str, Any] = unpack(pack(desk.answer(asked, ANALYST)))
        return reply

    question = question_of(model)
    tree = questions.write(question)
    for extra in ({"edges": np.linspace(-1, 1, 10**6)}, {"cells": 10**9}, {"factor": 1}, {"least": 0}):
        reply = ask(tree | {"question": tree["question"] | extra})
        assert "is made of" in reply["error"]
    # A steep model would put rows far apart: too few decide there.
    for factor in (1e3, 1e6, np.inf):
        with np.errstate(invalid="ignore"):
            steep = dataclasses.replace(question, x=question.x * factor)
        reply = ask(questions.write(steep))
        assert "too few of its rows" in reply.get("refused", "") or "finite" in reply.get("error", "")
    for point in ([0.0, 1e4], [50.0, 100.0]):
        reply = ask(questions.write(CalibrationQuestion(question.spec, question.x, np.array(point))))
        assert "too few of its rows" in reply["refused"]
    assert "reply" in ask(tree)
    with pytest.raises(MessageError, match="x must be the coefficients of the model, of shape"):
        EvaluationQuestion(question.spec, np.zeros(99))
    with pytest.raises(MessageError, match="point must be the intercept and the slope"):
        CalibrationQuestion(question.spec, question.x, np.zeros(1))
    with pytest.raises(MessageError, match="point must be in float64"):
        CalibrationQuestion(question.spec, question.x, np.zeros(2, dtype=np.float32))


def test_refused_points_count(model: Any, sites: Callable[..., DeskCohort]) -> None:
    cohort = sites(Policy(refusals=2))
    question = question_of(model)
    for factor in (1e3, 2e3):
        with pytest.raises(RefusalError, match="too few of its rows"):
            cohort.ask_each(dataclasses.replace(question, x=question.x * factor))
    with pytest.raises(RefusalError, match="answers nothing until its owner"):
        cohort.ask_each(question)


def test_wrong_answers_are_refused(model: Any, sites: Callable[..., DeskCohort]) -> None:
    question = question_of(model)
    (answer, *_) = sites().ask_each(question).answers
    tree = questions.write_answer(answer)
    again = questions.read_answer(question, tree)
    assert isinstance(again, SiteScores)
    assert again.rows == answer.rows
    counts = tree["predictors"][0]
    changes: list[tuple[dict[str, Any], str]] = [
        ({"rows": 0}, "of at least one row"),
        ({"sums": np.full(12, np.nan)}, "must be finite"),
        ({"sums": "none"}, "must be"),
        ({"own": np.zeros(3)}, "own_sums must be of the coefficients"),
        ({"own_sums": []}, "own must have its sums"),
        ({"predictors": [counts | {"first": counts["first"] + 200}]}, "numbers of cells"),
        ({"predictors": [counts | {"events": counts["events"][1:]}]}, "a number for each cell"),
        ({"predictors": [counts | {"factor": 3}]}, "factor must divide"),
        ({"predictors": [counts | {"events": -counts["events"].astype(np.int32)}]}, "must be at least 0"),
        ({"residuals": [tree["residuals"][0] | {"last": tree["residuals"][0]["last"] + 200}]}, "numbers of cells"),
        ({"strange": 1}, "is made of"),
    ]
    for change, said in changes:
        with pytest.raises(MessageError, match=said):
            questions.read_answer(question, tree | change)
    asked = CalibrationQuestion(question.spec, question.x, np.array([0.0, 1.0]))
    (sums, *_) = sites().ask_each(asked).answers
    short = questions.write_answer(sums) | {"score": np.zeros(1), "hessian": np.zeros((1, 1))}
    with pytest.raises(MessageError, match="sums of rows for 2 coefficients"):
        questions.read_answer(asked, short)
