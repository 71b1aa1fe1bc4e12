"""Learning curves: the iterates of a fit, evaluated as the models that shorter fits end with."""

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
from fpdfp.errors import ArgumentError, MessageError, RefusalError
from fpdfp.federation import audit
from fpdfp.federation.cohort import TableCohort
from fpdfp.federation.policy import Policy
from fpdfp.federation.questions import MOST_POINTS, EvaluationQuestion, read_answer, write_answer
from fpdfp.report.describe import describe
from tests.test_cox_estimator import DeskCohort

EXACT = ("accuracy", "deviance", "brier")


def draw(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"hospital": rng.choice(["east", "north", "south"], rows), "age": rng.normal(60, 9, rows)})
    table["dose"] = rng.normal(size=rows)
    eta = 0.07 * (table.age - 60) - 0.7 * table.dose
    table["died"] = (eta + rng.logistic(size=rows) > 0).astype(int)
    table["visits"] = rng.poisson(np.exp(0.3 * eta))
    table["grade"] = np.array(["a", "b", "c"])[np.digitize(eta + rng.logistic(size=rows), [-1.0, 1.0])]
    table["time"] = rng.exponential(np.exp(-0.5 * eta))
    return table


TRAIN, TEST = draw(600, 0), draw(500, 1)
#: The sites of these tests are small, and points are many.
AMPLE = Policy()
SLOW: dict[str, Any] = {"penalty": fpdfp.L1(0.01), "standardize": True, "method": fpdfp.FPDFP()}


@pytest.fixture(scope="module")
def model() -> Any:
    return fpdfp.FederatedLogisticRegression(**SLOW, run=fpdfp.RunOptions(rounds=30, tol=0)).fit(
        TRAIN, "died ~ age + dose", groups="hospital"
    )


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Callable[..., DeskCohort]]:
    made: list[DeskCohort] = []

    def make(policy: Policy | None = None) -> DeskCohort:
        made.append(DeskCohort(TEST, tmp_path / str(len(made)), policy))
        return made[-1]

    yield make
    for one in made:
        for desk in one.desks:
            desk.close()


def test_scores_are_those_of_fits_with_fewer_rounds(model: Any) -> None:
    found = model.learning_curve(TEST, groups="hospital", points=100)
    assert found.rounds[:4].tolist() == [0, 1, 2, 3]
    assert found.rounds[-1] == 30
    for place in (2, 7, len(found.rounds) - 1):
        shorter = fpdfp.FederatedLogisticRegression(
            **SLOW, run=fpdfp.RunOptions(rounds=int(found.rounds[place]), tol=0)
        )
        shorter.fit(TRAIN, "died ~ age + dose", groups="hospital")
        chances = shorter.predict_proba(TEST)[:, 1]
        assert found.overall["brier"][place].value == pytest.approx(np.mean((chances - TEST.died) ** 2), rel=1e-12)
        area = found.overall["auc"][place]
        assert abs(area.value - metrics.roc_auc_score(TEST.died, chances)) <= area.bound
        expected = shorter.evaluate(TEST, groups="hospital")
        for name in (*EXACT, "auc"):
            assert found.overall[name][place] == expected.overall[name]
            for site in found.by_site:
                assert found.by_site[site][name][place] == expected.by_site[site][name]
        spent = shorter.result_.traffic.before_the_end
        assert found.bits_up[place] == spent.up - spent["evaluation"].up
        assert found.bits_down[place] == spent.down - spent["evaluation"].down


def test_rows_of_a_matrix_give_the_same_curve(model: Any) -> None:
    rows, test = (table[["age", "dose"]].to_numpy() for table in (TRAIN, TEST))
    other = fpdfp.FederatedLogisticRegression(**SLOW, run=fpdfp.RunOptions(rounds=30, tol=0)).fit(
        rows, TRAIN.died, groups=TRAIN.hospital
    )
    found = other.learning_curve(test, TEST.died, groups=TEST.hospital)
    expected = model.learning_curve(TEST, groups="hospital")
    np.testing.assert_array_equal(found.rounds, expected.rounds)
    for name in EXACT:
        np.testing.assert_allclose(
            [one.value for one in found.overall[name]], [one.value for one in expected.overall[name]], rtol=1e-9
        )


CASES: dict[str, tuple[Any, str]] = {
    "newton": (fpdfp.FederatedLogisticRegression("none"), "died ~ age + dose"),
    "softmax": (fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01), standardize=True), "grade ~ age + dose"),
    "by reference": (fpdfp.FederatedLogisticRegression("none"), "grade ~ age + dose"),
    "linear": (fpdfp.FederatedLinearRegression(fpdfp.L1(0.01), standardize=True), "dose ~ age + died"),
    "mcp": (fpdfp.FederatedLinearRegression(fpdfp.MCP(0.1), standardize=True), "dose ~ age + died"),
    "poisson": (fpdfp.FederatedGLM("poisson"), "visits ~ age + dose"),
    "fixed effects": (fpdfp.FederatedGLM("poisson", site_effects="fixed"), "visits ~ age + dose"),
    "random effects": (fpdfp.FederatedGLM("binomial", site_effects="random"), "died ~ age + dose"),
    "multinomial": (fpdfp.FederatedMultinomialRegression(), "grade ~ age + dose"),
    "ordinal": (fpdfp.FederatedOrdinalRegression(order=["a", "b", "c"]), "grade ~ age + dose"),
    "cox": (fpdfp.FederatedCoxRegression(baseline=False), "Surv(time, died) ~ age + dose"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_last_point_is_the_model(case: str) -> None:
    estimator, formula = CASES[case]
    fitted = estimator.fit(TRAIN, formula, groups="hospital")
    found, expected = fitted.learning_curve(TEST, groups="hospital"), fitted.evaluate(TEST, groups="hospital")
    assert found.rounds[0] == 0
    assert found.rounds[-1] == fitted.n_iter_
    assert (np.diff(found.rounds) >= 0).all()
    assert (np.diff(found.bits_up) >= 0).all()
    compared = 0
    for name, column in found.overall.items():
        if not name.startswith("calibration"):
            compared += 1
            assert column[-1].value == pytest.approx(expected.overall[name].value, rel=1e-12, abs=1e-14)
    assert compared >= 2
    assert found.overall["deviance"][-1].value < found.overall["deviance"][0].value


def test_a_choice_comes_before_the_fit() -> None:
    chosen = fpdfp.FederatedLogisticRegressionCV(cv=fpdfp.CrossValidation(2, alphas=5)).fit(
        TRAIN, "died ~ age + dose", groups="hospital"
    )
    found = chosen.learning_curve(TEST, groups="hospital")
    assert found.rounds[0] == chosen.path_.rounds
    assert found.rounds[-1] == chosen.n_iter_
    assert found.bits_up[0] >= chosen.path_.bits_up


def test_sites_with_a_policy_answer_all_points_in_one_question(model: Any, sites: Callable[..., DeskCohort]) -> None:
    here, cohort = model.learning_curve(TEST, groups="hospital"), sites(AMPLE)
    found = model.learning_curve(cohort)
    for name in EXACT:
        assert list(found.overall[name]) == list(here.overall[name])
    for one, other in zip(found.overall["auc"], here.overall["auc"], strict=True):
        assert abs(one.value - other.value) <= one.bound + other.bound
    desk = cohort.desks[0]
    (words,) = [entry.asked for entry in audit.entries(desk.folder)]
    assert words.startswith("how good the predictions of a model are: died ~ ")
    # All points are of one analysis, and each costs as a question of its own would.
    assert list(desk.budget.spent.points.values()) == [1000 * len({one.x.tobytes() for one in model.iterates_.kept
                                                                  if one.round in found.rounds})]  # fmt: skip
    assert desk.budget.spent.total == 1 + desk.budget.spent.counts()["points"] // 5000


def test_sites_refuse_as_they_refuse_evaluations(model: Any, sites: Callable[..., DeskCohort]) -> None:
    kinds = tuple(kind for kind in Policy().kinds if kind != "evaluation")
    with pytest.raises(RefusalError, match="does not answer what is of the kind 'evaluation'"):
        model.learning_curve(sites(Policy(kinds=kinds)))
    with pytest.raises(RefusalError, match="the 0 analyses that it allows"):
        model.learning_curve(sites(Policy(analyses=0)))


def test_no_count_of_any_point_is_small(model: Any, sites: Callable[..., DeskCohort]) -> None:
    asked: list[EvaluationQuestion] = []

    class Cohort(TableCohort):
        names: Any = ()

        def __init__(self, inner: DeskCohort) -> None:
            self.inner, self.names = inner, inner.names

        def gather(self, question: Any, names: Any, *, each: bool) -> Any:
            asked.append(question)
            return self.inner.gather(question, names, each=each)

        def losses(self, spec: Any) -> Any:
            raise NotImplementedError

    cohort = sites(AMPLE)
    model.learning_curve(Cohort(cohort))
    (question,) = asked
    (answer, *_) = cohort.ask_each(question).answers
    assert len(answer.more) == len(question.more) > 5
    for one in answer.more:
        assert len(one.own) == len(one.residuals) == 0
        for counts in (one.predictors[0].events, one.predictors[0].others):
            assert ((counts == 0) | (counts >= 3)).all()
    # A steep point among others refuses all.
    steep = dataclasses.replace(question, more=[*question.more[:3], question.x + 1e4])
    with pytest.raises(RefusalError, match="too few of its rows"):
        cohort.ask_each(steep)
    with pytest.raises(MessageError, match="at most 100 points"):
        dataclasses.replace(question, more=[question.x] * MOST_POINTS)
    with pytest.raises(MessageError, match="x must be the coefficients"):
        dataclasses.replace(question, more=[np.zeros(99)])
    tree = write_answer(answer)
    with pytest.raises(MessageError, match="must be about"):
        read_answer(question, tree | {"more": tree["more"][1:]})
    nested = tree | {"more": [tree, *tree["more"][1:]]}
    with pytest.raises(MessageError, match="no further ones"):
        read_answer(question, nested)


def test_tables_pictures_and_pages(model: Any, tmp_path: Path) -> None:
    found = model.learning_curve(TEST, groups="hospital", points=6)
    assert len(found.rounds) == 6
    frame = found.to_frame()
    assert set(frame.site) == {"all sites", "east", "north", "south"}
    some = frame.query("site == 'all sites' and measure == 'auc'")
    assert some["round"].tolist() == found.rounds.tolist()
    np.testing.assert_array_equal(
        found.plot("auc", x="bits").get_lines()[0].get_xdata(), found.bits_up + found.bits_down
    )
    assert len(found.plot(sites=True).get_lines()) == 4
    with pytest.raises(ArgumentError, match="measure must be"):
        found.plot("gini")
    assert "30" in str(found)
    said = describe(found.save(model.write_run(tmp_path / "run")).parent)["learning_curve"]
    assert said["rounds"] == found.rounds.tolist()
    assert said["bits_up"] == found.bits_up.tolist()
    np.testing.assert_allclose(said["overall"]["auc"], [one.value for one in found.overall["auc"]], rtol=1e-5)
    assert [site["name"] for site in said["sites"]] == ["east", "north", "south"]


def test_wrong_arguments(model: Any, tmp_path: Path) -> None:
    for points in (1, 101):
        with pytest.raises(ArgumentError, match="points must be"):
            model.learning_curve(TEST, groups="hospital", points=points)
    model.save(tmp_path / "model.json")
    with pytest.raises(ArgumentError, match="has no iterates, since it was read from a file"):
        fpdfp.load_model(tmp_path / "model.json").learning_curve(TEST, groups="hospital")
    with pytest.raises(ArgumentError, match="folder must be a run's folder for a model that was read from a file"):
        fpdfp.load_model(tmp_path / "model.json").write_run(tmp_path / "other")
