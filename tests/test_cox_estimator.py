"""Cox regression as an estimator: of rows, of tables with formulas, and of sites behind their desks."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

import fpdfp
from fpdfp import FederatedCoxRegression
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.errors import ArgumentError, MessageError, Refusal, RefusalError, SeparationError
from fpdfp.federation import questions
from fpdfp.federation.analyst import refusal
from fpdfp.federation.cohort import LocalCohort, TableCohort
from fpdfp.federation.guard import RequestGuard as Desk
from fpdfp.federation.policy import Policy
from fpdfp.federation.questions import BaselineQuestion, ConcordanceQuestion, RiskQuestion
from fpdfp.federation.table import SiteTable
from fpdfp.formula import parse
from fpdfp.losses import Cox
from fpdfp.models.penalty import KINDS
from fpdfp.survival import Concordance, RiskCounts, Times, kaplan_meier, split_periods
from tests.desks import ANALYST, Desks
from tests.r_cases import cases, numbers, times
from tests.test_cox import textbook

FORMULA = "Surv(time, died) ~ age + C(stage) + strata(sex)"


def make_table(seed: int = 1, rows: int = 400) -> pd.DataFrame:
    """Patients of three hospitals, with ties, late entries and a missing age."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({
        "age": rng.normal(60.0, 8.0, rows), "sex": rng.choice(["F", "M"], rows),
        "stage": rng.choice(["I", "II", "III"], rows), "hospital": rng.choice(["north", "south", "west"], rows),
        "weight": rng.integers(1, 4, rows).astype(float), "lean": rng.normal(0.0, 0.2, rows),
    })  # fmt: skip
    risk = 0.03 * (table["age"] - 60) + 0.5 * (table["stage"] == "II") + 0.9 * (table["stage"] == "III")
    time, censored = np.ceil(rng.exponential(30 * np.exp(-risk))), np.ceil(rng.exponential(40.0, rows))
    table["time"], table["died"] = np.minimum(time, censored) + 1, time <= censored
    table["entry"] = np.maximum(np.floor(table["time"] * rng.uniform(-0.5, 0.9, rows)), 0.0)
    table.loc[5, "age"] = np.nan
    return table


TABLE = make_table()


def dense(table: pd.DataFrame) -> Any:
    """The features of the formula."""
    return np.column_stack([table["age"], table["stage"] == "II", table["stage"] == "III"]).astype(float)


@pytest.fixture(scope="module")
def fitted() -> FederatedCoxRegression:
    return FederatedCoxRegression().fit(TABLE, FORMULA, groups="hospital")


def test_a_formula_is_the_maximum_of_the_partial_likelihood(fitted: FederatedCoxRegression) -> None:
    used = TABLE.dropna()
    X, strata = dense(used), np.unique(used["hospital"] + used["sex"], return_inverse=True)[1]
    value, gradient, hessian = textbook(
        X, fitted.coef_, used["time"].to_numpy(), used["died"].to_numpy(), strata=strata
    )
    assert np.abs(np.linalg.solve(hessian, gradient)).max() < 1e-8
    assert fitted.deviance_ == pytest.approx(2 * value, rel=1e-12)
    null = textbook(X, np.zeros(3), used["time"].to_numpy(), used["died"].to_numpy(), strata=strata)
    assert fitted.null_deviance_ == pytest.approx(2 * null[0], rel=1e-12)
    assert fitted.score_statistic_ == pytest.approx(null[1] @ np.linalg.solve(null[2], null[1]), rel=1e-9)
    np.testing.assert_allclose(fitted.table().covariance, np.linalg.inv(hessian), rtol=1e-9)
    assert list(fitted.coefficients_) == ["age", "C(stage)[T.II]", "C(stage)[T.III]"]
    assert fitted.n_iter_ <= 5
    assert fitted.left_out_["south"] + fitted.left_out_["north"] + fitted.left_out_["west"] == 1
    assert fitted.events_ is not None
    assert sum(fitted.events_.values()) == used["died"].sum()


def test_rows_and_a_formula_give_the_same_model(fitted: FederatedCoxRegression) -> None:
    used = TABLE.dropna()
    y = np.array(list(zip(used["died"], used["time"], strict=True)), dtype=[("died", bool), ("time", float)])
    model = FederatedCoxRegression().fit(dense(used), y, groups=used["hospital"], strata=used["sex"])
    np.testing.assert_allclose(model.coef_, fitted.coef_, rtol=1e-12)
    assert model.deviance_ == pytest.approx(fitted.deviance_, rel=1e-12)
    np.testing.assert_allclose(model.table().covariance, fitted.table().covariance, rtol=1e-10)  # fmt: skip
    assert model.concordance_ is not None
    assert fitted.concordance_ is not None
    assert model.concordance_.index == fitted.concordance_.index
    assert model.baselines_ is not None
    assert fitted.baselines_ is not None
    for site, strata in fitted.baselines_.items():
        for sex, one in strata.items():
            np.testing.assert_allclose(model.baselines_[site][sex.removeprefix("sex=")].hazard, one.hazard, rtol=1e-10)
    sparse = FederatedCoxRegression().fit(
        scipy.sparse.csr_array(dense(used)), y, groups=used["hospital"], strata=used["sex"]
    )
    np.testing.assert_allclose(sparse.coef_, fitted.coef_, rtol=1e-10)


def test_standardized_features_change_nothing_but_the_path(fitted: FederatedCoxRegression) -> None:
    scaled = FederatedCoxRegression(standardize=True).fit(TABLE, FORMULA, groups="hospital")
    np.testing.assert_allclose(scaled.coef_, fitted.coef_, rtol=1e-9)
    new = TABLE.iloc[:3].drop(columns=["time", "died"])
    curves = [m.predict_survival(new, [5.0, 20.0], site="west", stratum="sex=M") for m in (fitted, scaled)]
    np.testing.assert_allclose(curves[0].survival, curves[1].survival, rtol=1e-9)
    assert curves[0].lower is not None
    assert curves[1].lower is not None
    np.testing.assert_allclose(curves[0].lower, curves[1].lower, rtol=1e-8)
    assert (curves[0].lower < curves[0].survival).all()


def test_entries_weights_offsets_and_ties() -> None:
    used = TABLE.dropna()
    formula = "Surv(entry, time, died) ~ age + C(stage) + offset(lean)"
    for ties in ("efron", "breslow"):
        model = FederatedCoxRegression(ties=ties, baseline=False, run=fpdfp.RunOptions(tol=1e-12)).fit(  # type: ignore[arg-type]
            TABLE, formula, groups="hospital", weights="weight"
        )
        _, gradient, hessian = textbook(
            dense(used), model.coef_, used["time"].to_numpy(), used["died"].to_numpy(),
            entry=used["entry"].to_numpy(), weights=used["weight"].to_numpy(), offset=used["lean"].to_numpy(),
            strata=np.unique(used["hospital"], return_inverse=True)[1], ties=ties,
        )  # fmt: skip
        assert np.abs(np.linalg.solve(hessian, gradient)).max() < 1e-8
        np.testing.assert_allclose(model.table().covariance, np.linalg.inv(hessian), rtol=1e-8)
        assert model.baselines_ is None
        with pytest.raises(ArgumentError, match="it was not asked for"):
            model.predict_survival(used)
        y = used[["entry", "time", "died"]].to_numpy(dtype=float)
        rows = FederatedCoxRegression(ties=ties, baseline=False, run=fpdfp.RunOptions(tol=1e-12)).fit(  # type: ignore[arg-type]
            dense(used), y, groups=used["hospital"], sample_weight=used["weight"], offset=used["lean"]
        )
        np.testing.assert_allclose(rows.coef_, model.coef_, rtol=1e-9)
        np.testing.assert_allclose(rows.table(errors="robust").covariance, model.table(errors="robust").covariance, rtol=1e-7)  # fmt: skip  # noqa: E501


@pytest.mark.parametrize(
    ("penalty", "options"),
    [
        ("l1", {}), ("elasticnet", {}), ("ridge", {}), ("group", {"groups": [0, 1, 1]}), ("fused", {}),
        ("graph", {"graph": np.ones((3, 3)) - np.eye(3)}),
    ],
)  # fmt: skip
def test_all_penalties(penalty: Any, options: dict[str, Any]) -> None:
    used = TABLE.dropna()
    X = dense(used)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = used[["time", "died"]].to_numpy(dtype=float)
    model = FederatedCoxRegression(
        KINDS[penalty](0.02, **options), baseline=False, run=fpdfp.RunOptions(tol=1e-10)
    ).fit(X, y, groups=used["hospital"])
    assert model.information_ is None
    with pytest.raises(ArgumentError, match="inference"):
        model.table()
    assert "no standard errors" in str(model.summary())
    better = model.result_.objective
    rng = np.random.default_rng(0)
    problem = fpdfp.Problem(
        Cox(X, y[:, 0], y[:, 1], used["hospital"], l2=0.02 if penalty == "ridge" else 0.01 * (penalty == "elasticnet")),
        fpdfp.penalties.Zero() if penalty == "ridge" else fpdfp.penalties.L1(0.01 if penalty == "elasticnet" else 0.02),
        weights="samples",
    )
    if penalty in ("l1", "elasticnet", "ridge"):
        np.testing.assert_allclose(model.coef_, fpdfp.minimize(problem).x, atol=1e-6)
        for _ in range(5):
            assert problem.evaluate(model.coef_ + 0.01 * rng.standard_normal(3))[0] > better


def test_scores_and_concordance(fitted: FederatedCoxRegression) -> None:
    used = TABLE.dropna()
    times = Times.of(used["time"], used["died"])
    risk = dense(used) @ fitted.coef_
    np.testing.assert_allclose(fitted.predict(used), risk, rtol=1e-12)
    assert fitted.score(used) == pytest.approx(Concordance.of(times, risk, strata=used["sex"]).index, rel=1e-12)
    within = Concordance.of(times, risk.round(10), strata=used["sex"] + used["hospital"])
    assert fitted.concordance_ is not None
    assert fitted.concordance_.index == pytest.approx(within.index, rel=1e-12)
    rows = FederatedCoxRegression().fit(dense(used), used[["time", "died"]].to_numpy(dtype=float))
    assert rows.score(dense(used), used[["time", "died"]].to_numpy(dtype=float)) > 0.6
    with pytest.raises(ArgumentError, match="times of rows"):
        rows.score(dense(used))


def test_a_summary_says_it_all(fitted: FederatedCoxRegression) -> None:
    text = str(fitted.summary())
    for said in ("Cox, link log", "with the event", "concordance 0.", "likelihood ratio", "score", "hazard ratio"):
        assert said in text
    assert "degrees of freedom\nnull" not in text
    smaller = FederatedCoxRegression(baseline=False).fit(
        TABLE.dropna(), "Surv(time, died) ~ C(stage) + strata(sex)", groups="hospital"
    )
    larger = FederatedCoxRegression(baseline=False).fit(TABLE.dropna(), FORMULA, groups="hospital")
    test = smaller.compare(larger)
    assert test.df == 1
    assert test.statistic == pytest.approx(smaller.deviance_ - larger.deviance_)


@pytest.mark.filterwarnings("ignore:FederatedCoxRegression may not have reached")
@pytest.mark.parametrize("name", ["x0", "x1"])
def test_a_likelihood_without_a_maximum_is_named(name: str) -> None:
    """The largest value of those at risk has every event; or a group has no events at all."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    X[:, 1] = np.arange(60) % 5 == 0
    time, event = (10.0 - X[:, 0], np.ones(60)) if name == "x0" else (rng.exponential(1.0, 60), X[:, 1] == 0)
    with pytest.raises(SeparationError, match=f"outcomes are separated by .*{name}.* whose coefficients grow"):
        FederatedCoxRegression(baseline=False).fit(X, np.column_stack([time, event]), groups=np.arange(60) % 2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:separation")
def test_estimator_checks() -> None:
    tied = "Efron's ties of weighted rows are not those of repeated rows"
    failing = {f"check_sample_weight_equivalence_on_{name}_data": tied for name in ("dense", "sparse")}
    check_estimator(FederatedCoxRegression(fpdfp.Ridge(0.1)), expected_failed_checks=failing, on_skip=None)
    check_estimator(FederatedCoxRegression(fpdfp.Ridge(0.1), ties="breslow"), on_skip=None)
    model = clone(FederatedCoxRegression(fpdfp.L1(0.1), ties="breslow"))
    assert model.ties == "breslow"
    with pytest.raises(NotFittedError):
        model.predict(np.zeros((1, 2)))


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("time ~ age", r"response must be Surv\(time, event\)"),
        ("Surv(time) ~ age", r"Surv takes \(time, event\) or \(start, stop, event\)"),
        ("Surv(time, died, sex, 1) ~ age", "Surv takes"),
        ("Surv(time, sex) ~ age", "holds texts"),
        ("Surv(time, age) ~ stage", "not an event time in .* rows at"),
        ("Surv(time, entry, died) ~ age", "not an event time in"),
        ("Surv(time, died) ~ age + strata(1 + 2)", "strata.* takes the names of columns"),
        ("Surv(time, died) ~ age + strata(age)", "must hold texts or integers to define strata"),
    ],
)
def test_formulas_that_are_refused(formula: str, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        FederatedCoxRegression().fit(TABLE, formula, groups="hospital")


def test_other_models_refuse_times() -> None:
    with pytest.raises(ArgumentError, match="is for FederatedCoxRegression"):
        fpdfp.FederatedLinearRegression().fit(TABLE, "Surv(time, died) ~ age", groups="hospital")
    with pytest.raises(ArgumentError, match=r"strata.* needs a response Surv"):
        fpdfp.FederatedLinearRegression().fit(TABLE, "time ~ age + strata(sex)", groups="hospital")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"y": np.column_stack([np.arange(1.0, 5.0), np.zeros(4)])}, "y must have an event in some row"),
        ({"y": np.ones((3, 2))}, "y must have a time for each of the 4 rows"),
        ({"strata": ["a", "b"]}, "strata must have one label"),
        ({"sample_weight": [-1.0, 1.0, 1.0, 1.0]}, "sample_weight must be at least zero"),
        ({"offset": [1.0]}, "offset must have shape"),
        ({"weights": "w"}, "weights must be None without a formula"),
    ],
)
def test_rows_that_are_refused(change: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {"X": np.eye(4), "y": np.column_stack([np.arange(1.0, 5.0), np.ones(4)])} | change
    with pytest.raises(ArgumentError, match=says):
        FederatedCoxRegression().fit(**given)


def test_curves_of_groups_over_sites() -> None:
    used = TABLE.dropna(subset=["stage"])
    curves = fpdfp.survival_curves(TABLE, "Surv(entry, time, died) ~ stage", groups="hospital")
    assert list(curves) == ["I", "II", "III"]
    for level, curve in curves.items():
        own = used[used["stage"] == level]
        whole = kaplan_meier(RiskCounts.of(Times.of(own["time"], own["died"], own["entry"])))
        np.testing.assert_allclose(curve.at(whole.times), whole.survival, rtol=1e-12)
        np.testing.assert_allclose(curve.error[np.isin(curve.times, whole.times)], whole.error, rtol=1e-12)
    assert curves.frame()["group"].nunique() == 3
    assert "median" in str(curves)
    coarse = fpdfp.survival_curves(TABLE, "Surv(time, died) ~ 1", groups="hospital", times=np.arange(5.0, 300.0, 5.0))
    # The life table by hand: of those censored within an interval half are at risk.
    time, died, survival = TABLE["time"].to_numpy(), TABLE["died"].to_numpy() == 1, 1.0
    for end, found in zip(coarse["all"].times, coarse["all"].survival, strict=True):
        inside = (time > end - 5.0) & (time <= end)
        lost = (inside & ~died & (time < end)).sum() / 2.0
        survival *= 1.0 - (inside & died).sum() / ((time > end - 5.0).sum() - lost)
        assert found == pytest.approx(survival, rel=1e-12)
    with pytest.raises(ArgumentError, match="one column after"):
        fpdfp.survival_curves(TABLE, "Surv(time, died) ~ stage + sex", groups="hospital")


def test_log_rank_tests_over_sites() -> None:
    """Stratified or not, without ties, it is the score test of Cox."""
    table = TABLE.dropna().copy()
    table["time"] += np.random.default_rng(0).uniform(0.0, 1e-3, len(table))
    for formula in ("Surv(time, died) ~ stage + strata(sex)", "Surv(time, died) ~ stage"):
        test = fpdfp.log_rank_test(table, formula, groups="hospital")
        cox = FederatedCoxRegression(baseline=False).fit(table, formula, groups="hospital")
        assert test.statistic == pytest.approx(cox.score_statistic_, rel=1e-9)
        assert test.df == 2
    pooled = fpdfp.log_rank_test(table, "Surv(time, died) ~ stage", groups="hospital", stratify=False)
    cox = FederatedCoxRegression(baseline=False).fit(table.drop(columns="hospital"), "Surv(time, died) ~ stage")
    assert pooled.statistic == pytest.approx(cox.score_statistic_, rel=1e-9)
    with pytest.raises(ArgumentError, match="must name the column of the groups"):
        fpdfp.log_rank_test(table, "Surv(time, died) ~ 1", groups="hospital")
    with pytest.raises(ArgumentError, match="exact times"):
        fpdfp.log_rank_test(table, "Surv(time, died) ~ stage", groups="hospital", times=[1.0])


class DeskCohort(TableCohort):
    """Sites that answer through their desks, and refuse what their policy does not allow."""

    names: Sequence[str] = ()

    def __init__(self, table: pd.DataFrame, folder: Path, policy: Policy | None = None) -> None:
        local = LocalCohort(table, "hospital")
        self.names = local.names
        self.desks = [
            Desk(name, one, policy or Policy(), folder / name)
            for name, one in zip(local.names, local.tables, strict=True)
        ]

    def gather(self, question: Any, names: Sequence[str], *, each: bool) -> list[Any]:
        answers, refused = [], {}
        for desk in self.desks:
            asked = {**questions.write(question), "run": "run", "sequence": 1} | ({"each": True} if each else {})
            asked |= {"rows": self.rows} if self.rows else {}
            reply = unpack(pack(desk.answer(unpack(pack(asked)), ANALYST)))
            if "refused" in reply:
                refused[desk.name] = reply["refused"]
                continue
            assert "reply" in reply, reply
            answers.append(questions.read_answer(question, reply["reply"]))
        if refused:
            raise refusal(refused)
        return answers

    def without(self, sites: Any) -> DeskCohort:
        """Return some of the sites."""
        made = copy.copy(self)
        made.desks = [desk for desk in self.desks if desk.name not in sites]
        made.names = [desk.name for desk in made.desks]
        return made

    def losses(self, spec: Any) -> Any:
        """Return losses at the desks."""
        return Desks(self.desks, questions.dump(spec), rows=self.rows).losses()

    def _take(self, condition: str) -> DeskCohort:
        return copy.copy(self)


@pytest.fixture
def cohort(tmp_path: Path) -> Iterator[DeskCohort]:
    made = DeskCohort(TABLE, tmp_path)
    yield made
    for desk in made.desks:
        desk.close()


def test_sites_give_the_same_bits_as_a_table(cohort: DeskCohort, fitted: FederatedCoxRegression) -> None:
    model = FederatedCoxRegression(baseline=np.arange(5.0, 205.0, 5.0)).fit(cohort, FORMULA)
    np.testing.assert_array_equal(model.coef_, fitted.coef_)
    assert model.deviance_ == fitted.deviance_
    assert model.null_deviance_ == fitted.null_deviance_
    np.testing.assert_array_equal(model.table().covariance, fitted.table().covariance)
    assert model.concordance_ is not None
    assert fitted.concordance_ is not None
    assert model.concordance_.index == fitted.concordance_.index
    assert model.baselines_ is not None
    assert fitted.baselines_ is not None
    for site, strata in model.baselines_.items():
        for name, one in strata.items():
            assert one.events.min() >= 3  # the least number of rows in a cell
            np.testing.assert_array_equal(one.hazard, fitted.baselines_[site][name].at(one.times).hazard)


def test_curves_and_tests_at_sites(cohort: DeskCohort) -> None:
    grid = np.arange(2.0, 302.0, 2.0)
    exact = fpdfp.survival_curves(TABLE, "Surv(time, died) ~ stage", groups="hospital", times=grid)
    for level, curve in fpdfp.survival_curves(cohort, "Surv(time, died) ~ stage", times=grid).items():
        early = grid[exact[level].at(grid) > 0.5]
        assert np.abs(curve.at(early) - exact[level].at(early)).max() < 0.05  # small cells are moved to later times
        assert np.isin(curve.times, grid).all()
    stratified = fpdfp.log_rank_test(cohort, "Surv(time, died) ~ stage + strata(sex)")
    known = fpdfp.log_rank_test(TABLE, "Surv(time, died) ~ stage + strata(sex)", groups="hospital")
    assert stratified.statistic == known.statistic
    pooled = [
        fpdfp.log_rank_test(TABLE if groups else cohort, "Surv(time, died) ~ stage", groups, stratify=False, times=grid)
        for groups in (None, "hospital")
    ]
    assert pooled[0].statistic == pytest.approx(pooled[1].statistic, rel=0.2)
    with pytest.raises(RefusalError, match="at given times only"):
        fpdfp.survival_curves(cohort, "Surv(time, died) ~ stage")


def test_no_site_tells_of_few_rows(cohort: DeskCohort) -> None:
    response = parse("Surv(time, died) ~ 1").response
    grid = np.arange(1.0, 300.0)
    for answer in cohort.ask_each(RiskQuestion(response, None, grid)).answers:  # type: ignore[arg-type]
        for cells in (answer.entered, answer.events, answer.censored):
            assert not ((cells > 0) & (cells < 3)).any()
    for text in (
        "Surv(time, I(age > 60)) ~ 1",
        "Surv(time, (died == 1) & (age > 60)) ~ 1",
        "Surv(time + age, died) ~ 1",
    ):
        with pytest.raises((RefusalError, ArgumentError), match="must be a column of this site"):
            cohort.ask(RiskQuestion(parse(text).response, None, grid))  # type: ignore[arg-type]


def test_hazards_at_steep_points_are_refused(cohort: DeskCohort) -> None:
    local = LocalCohort(TABLE, "hospital")
    spec = model_spec(local)
    steep, grid = np.array([50.0, 0.0, 0.0]), np.arange(5.0, 205.0, 5.0)
    for question in (BaselineQuestion(spec, steep, grid), ConcordanceQuestion(spec, steep)):
        with pytest.raises(RefusalError, match="too few of its rows"):
            cohort.ask(question)
    assert len(cohort.ask_each(ConcordanceQuestion(spec, np.zeros(3))).answers) == 3


def model_spec(cohort: Any) -> Any:
    """The model of the formula, as sites get it."""
    seen: list[Any] = []

    class Watching(LocalCohort):
        def losses(self, spec: Any) -> Any:
            seen.append(spec)
            return super().losses(spec)

    FederatedCoxRegression(baseline=False).fit(Watching(TABLE, "hospital"), FORMULA)
    return seen[0]


def test_a_site_that_refuses_hazards_leaves_a_model_without(cohort: DeskCohort) -> None:
    model = FederatedCoxRegression().fit(cohort, FORMULA)
    assert model.baselines_ is None
    assert model.concordance_ is not None
    with pytest.raises(ArgumentError, match=r"at given times only.* \(give baseline=\["):
        model.predict_survival(TABLE, site="north", stratum="sex=F")


def test_strata_of_few_rows_are_refused(tmp_path: Path) -> None:
    table = TABLE.copy()
    table.loc[table.index[table["hospital"] == "west"][:2], "sex"] = "X"
    sites = DeskCohort(table, tmp_path, Policy())
    with pytest.raises((RefusalError, Refusal), match="strata of at least 3 rows"):
        FederatedCoxRegression().fit(sites, FORMULA)
    for desk in sites.desks:
        desk.close()


def test_forged_questions_and_answers_are_refused() -> None:
    spec = model_spec(None)
    with pytest.raises(MessageError, match="3 coefficients of a Cox model"):
        BaselineQuestion(spec, np.zeros(2))
    response = parse("Surv(time, died) ~ 1").response
    question = RiskQuestion(response)  # type: ignore[arg-type]
    site, *_ = LocalCohort(TABLE, "hospital").ask_each(question).answers
    tree = questions.write_answer(site)
    assert isinstance(questions.read_answer(question, tree), RiskCounts)
    for name, wrong in (("events", tree["left"] + 1.0), ("start", np.zeros(2)), ("times", tree["times"][::-1].copy())):
        with pytest.raises(MessageError):
            questions.read_answer(question, tree | {name: wrong})
    assert isinstance(SiteTable.read(TABLE).answer(question), RiskCounts)


def test_hazards_of_periods_are_shared_by_sites(cohort: DeskCohort) -> None:
    """A binomial regression of rows by periods, split here, at a table's sites, and behind desks."""
    edges, used = [0.0, 6.0, 12.0, 24.0, 48.0], TABLE.dropna()
    rows = split_periods(Times.of(used["time"], used["died"]), edges)
    X = np.hstack([dense(used)[rows.row], (rows.period[:, None] == np.arange(4)).astype(float)])
    by_hand = fpdfp.FederatedGLM("binomial", "cloglog", fit_intercept=False, run=fpdfp.RunOptions(tol=1e-12)).fit(
        X, rows.event
    )
    fitted = [
        fpdfp.FederatedGLM("binomial", "cloglog", run=fpdfp.RunOptions(tol=1e-12)).fit(
            source, "Surv(time, died) ~ age + C(stage)", groups, periods=edges
        )
        for source, groups in ((TABLE, "hospital"), (cohort, None))
    ]
    for model in fitted:
        names = list(model.coefficients_)
        assert names[3:] == ["period (0, 6]", "period (6, 12]", "period (12, 24]", "period (24, 48]"]
        np.testing.assert_allclose(list(model.coefficients_.values()), by_hand.coef_, rtol=1e-7)
        np.testing.assert_allclose(model.table().covariance, by_hand.table().covariance, rtol=1e-6)
    assert fitted[0].coefficients_ == fitted[1].coefficients_
    hazards = fitted[0].predict_hazards(used.iloc[:3])
    z = dense(used)[:3] @ by_hand.coef_[:3]
    np.testing.assert_allclose(hazards, 1 - np.exp(-np.exp(z[:, None] + by_hand.coef_[3:])), rtol=1e-6)
    with pytest.raises(ArgumentError, match="must be given when the model is fitted"):
        by_hand.predict_hazards(X)
    with pytest.raises(ArgumentError, match="periods must be None without a formula"):
        fpdfp.FederatedGLM("poisson").fit(TABLE, "Surv(time, died) ~ age", "hospital", periods=edges)


@pytest.mark.parametrize("name", [name for name in cases("survival") if name.startswith("cox")])
def test_estimates_tests_and_rounds_of_r(name: str) -> None:
    case = cases("survival")[name]
    rows, r = times(case), case["r"]
    columns = [rows.time, rows.event] if rows.entry is None else [rows.entry, rows.time, rows.event]
    model = FederatedCoxRegression(ties=case["ties"], baseline=False).fit(
        rows.X, np.column_stack(columns), rows.clients, strata=rows.strata, sample_weight=rows.weights,
        offset=rows.offset,
    )  # fmt: skip
    np.testing.assert_allclose(model.coef_, numbers(r["coefficients"]), rtol=1e-6)
    np.testing.assert_allclose(model.table().covariance, r["covariance"], rtol=1e-6, atol=1e-12)
    assert model.score_statistic_ == pytest.approx(float(np.ravel(r["score_test"])[0]), rel=1e-6)
    assert model.n_iter_ <= r["iterations"]


def test_a_site_that_shows_no_results_of_its_own_has_a_part_in_sums(tmp_path: Path) -> None:
    sites = DeskCohort(TABLE, tmp_path, Policy(single_sites=False))
    spec = model_spec(None)
    question = ConcordanceQuestion(spec, np.zeros(3))
    with pytest.raises(RefusalError, match="results by themselves"):
        sites.ask_each(question)
    told, local = sites.ask(question), LocalCohort(TABLE, "hospital").ask(question)
    assert str(told.sums) == str(local.sums)
    assert told.asked == len(sites.names)
    assert told.up == local.up
    assert len(sites.ask_each(questions.SchemaQuestion()).answers) == told.asked
    # A sum over one site is that site's result.
    with pytest.raises(RefusalError, match="results by themselves"):
        sites.ask(question, np.array([0]))
    for desk in sites.desks:
        desk.close()
