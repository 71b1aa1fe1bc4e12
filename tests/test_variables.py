"""Variables that sites make: definitions, durations, units and conditions of rows, as pandas makes them by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from fpdfp.errors import ArgumentError
from fpdfp.federation.cohort import LocalCohort
from fpdfp.federation.guard import RequestGuard
from fpdfp.federation.policy import Policy
from fpdfp.federation.questions import DescriptionQuestion, SchemaQuestion, SumsQuestion
from fpdfp.federation.table import SiteTable
from fpdfp.formula.parsing import name_of, parse, parse_variable
from fpdfp.formula.tree import Arithmetic, Column, Comparison, Number, Poly
from tests.desks import ANALYST
from tests.test_cox_estimator import DeskCohort
from tests.test_designs import ask, design, model


@pytest.fixture
def patients() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    n = 600
    born = pd.Timestamp("1930-01-01") + pd.to_timedelta(rng.integers(0, 15_000, n), unit="D")
    frame = pd.DataFrame({
        "age": rng.integers(20, 90, n).astype(float), "smoking": rng.choice(["never", "former", "current", "?"], n),
        "born": born.strftime("%Y-%m-%d"), "visit": "2020-03-04", "score": rng.integers(0, 4, n),
        "hospital": rng.choice(["a", "b", "c"], n),
    })  # fmt: skip
    frame.loc[5, ["age", "born"]] = None
    frame["died"] = (rng.random(n) < 1 / (1 + np.exp(2.0 - frame.age.fillna(50) / 40))).astype(int)
    frame["alive"] = 2 - frame.died
    return frame


def fit(table: Any, formula: str, groups: Any = "hospital") -> fpdfp.FederatedGLM:
    return fpdfp.FederatedGLM("binomial").fit(table, formula, groups=groups)


def values(model: fpdfp.FederatedGLM) -> list[float]:
    return list(model.coefficients_.values())


class TestDefinitions:
    @pytest.mark.parametrize(
        ("definition", "by_hand"),
        [
            ("cut(age, [40, 60])", lambda t: np.digitize(t.age, [40, 60], right=True).astype(str)),
            ("cut(age, [40, 60], right=False)", lambda t: np.digitize(t.age, [40, 60]).astype(str)),
            ("cut(age / 10, [4, 6], labels=['c', 'b', 'a'])",
             lambda t: np.digitize(t.age, [40, 60], right=True).astype(str)),
            ("recode(smoking, {'never': 'no', 'former': 'yes', 'current': 'yes', '?': None})",
             lambda t: t.smoking.map({"never": "no", "former": "yes", "current": "yes"})),
            ("recode(score, {0: 5, 3: None})", lambda t: t.score.map({0: 5, 1: 1, 2: 2})),
            ("recode(score, {0: 'none', 1: 'some', 2: 'some', 3: 'some'})", lambda t: np.where(t.score == 0, "a", "b")),
            ("years(born, visit)", lambda t: (pd.Timestamp("2020-03-04") - pd.to_datetime(t.born)).dt.days / 365.25),
            ("days(born, visit)", lambda t: (pd.Timestamp("2020-03-04") - pd.to_datetime(t.born)).dt.days),
            ("cut(years(born, visit), [60, 75])",
             lambda t: np.digitize((pd.Timestamp("2020-03-04") - pd.to_datetime(t.born)).dt.days / 365.25, [60, 75],
                                   right=True).astype(str)),
        ],
    )  # fmt: skip
    def test_as_pandas_makes_it(self, patients: pd.DataFrame, definition: str, by_hand: Any) -> None:
        found = fit(patients, f"died ~ {definition}")
        made = patients.assign(made=by_hand(patients))
        if "age" in definition or "born" in definition:
            made.loc[patients.age.isna(), "made"] = None
        wanted = fit(made, "died ~ made")
        assert values(found) == pytest.approx(values(wanted), rel=1e-12, abs=1e-12)
        rows = made.dropna().iloc[:9]
        assert found.predict(rows) == pytest.approx(wanted.predict(rows), rel=1e-12)

    def test_levels_are_in_the_order_of_the_intervals(self, patients: pd.DataFrame) -> None:
        found = fit(patients, "died ~ cut(age, [9, 40, 60])")  # 9: in no row
        assert list(found.coefficients_)[1:] == ["cut(age, [9, 40, 60])[T.> 60]"] or list(found.coefficients_) == [
            "Intercept", "cut(age, [9, 40, 60])[T.(40, 60]]", "cut(age, [9, 40, 60])[T.> 60]"
        ]  # fmt: skip
        other = fit(patients, "died ~ C(cut(age, [40, 60]), ref='> 60')")
        assert "C(cut(age, [40, 60]), ref='> 60')[T.<= 40]" in other.coefficients_

    def test_new_values_are_in_the_order_in_which_they_are_written(self, patients: pd.DataFrame) -> None:
        text = "recode(smoking, {'never': 'no', 'current': 'yes', 'former': 'before'})"
        assert [one.split("[")[1] for one in fit(patients, f"died ~ {text}").coefficients_ if "[" in one] == [
            "T.yes]", "T.before]", "T.?]"
        ]  # fmt: skip

    def test_units(self, patients: pd.DataFrame) -> None:
        frame, kinds = patients[["died"]].assign(weight=50.0 + patients.score * 9.0), {"weight": {"unit": "kg"}}
        american = frame.assign(weight=frame.weight / 0.45359237)
        tables = {
            "a": SiteTable.read(frame[:300], kinds, derives=True),
            "b": SiteTable.read(american[300:], {"weight": {"unit": "lb"}}, derives=True),
        }
        with pytest.raises(ArgumentError, match="different units: kg at a, lb at b"):
            fit(tables, "died ~ weight", None)
        found = fit(tables, "died ~ convert(weight, 'kg', {'lb': 0.45359237})", None)
        assert values(found) == pytest.approx(values(fit(frame.assign(s=1), "died ~ weight", "s")), rel=1e-9)
        with pytest.raises(ArgumentError, match="must be a number in one of the units g"):
            fit(tables, "died ~ convert(weight, 'g', {'t': 1e6})", None)

    def test_dates(self, patients: pd.DataFrame) -> None:
        declared = patients.assign(born=pd.to_datetime(patients.born).dt.strftime("%d.%m.%Y"))
        table = SiteTable.read(declared, {"born": {"type": "date", "format": "%d.%m.%Y"}}, derives=True)
        found = table.column("years(born, visit)").numbers
        assert np.array_equal(found, SiteTable.read(patients, derives=True).column("years(born, visit)").numbers)
        with pytest.raises(ArgumentError, match="holds dates at a, b, c; write years"):
            fit(patients, "died ~ born")
        with pytest.raises(ArgumentError, match="must hold dates, but its type is number"):
            fit(patients, "died ~ years(age, visit)")
        with pytest.raises(ArgumentError, match="or declare their format"):
            SiteTable.read(declared, {"born": {"type": "date"}})

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("cut(age)", "is to be written as cut"), ("cut(age, [60, 40])", "increasing"),
            ("cut(age, ['a'])", "increasing"),
            ("cut(age, [1], labels=['a'])", "2 different texts"), ("cut(age, [1], right=1)", "right must be"),
            ("cut(age, x)", "numbers, texts, lists"), ("recode(a, 3)", "takes a dictionary"),
            ("recode(a + 1, {1: 2})", "the name of a column"), ("recode(a, {1: [2]})", "None for no value"),
            ("years(a)", "two columns of dates"), ("convert(a, 'kg', {'lb': 0})", "positive"),
            ("convert(a, 3, {'lb': 1})", "is to be written"), ("cut(scale(age), [1])", "terms only"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_read_is_refused(self, text: str, problem: str) -> None:
        with pytest.raises(ArgumentError, match=problem):
            parse_variable(text)
        with pytest.raises(ArgumentError, match=problem):
            parse(f"y ~ {text}")

    def test_names(self) -> None:
        assert name_of("cut( `my age`,[40,60] )") == "cut(`my age`, [40, 60])"
        assert parse("y ~ cut(`my age`,[40,60])").columns == ["y", "cut(`my age`, [40, 60])"]
        assert parse("Surv(years(a, b), died) ~ x").columns == ["years(a, b)", "died", "x"]


class TestSite:
    """What a site answers: what a person has approved, and nothing else."""

    @pytest.fixture
    def guard(self, patients: pd.DataFrame, tmp_path: Path) -> Iterator[RequestGuard]:
        with RequestGuard("north", SiteTable.read(patients), Policy(), tmp_path) as made:
            yield made

    def test_a_definition_is_a_column_only_where_it_is_approved(self, guard: RequestGuard) -> None:
        names = ("cut(age, [40, 60])", "years(born, visit)")

        def told() -> list[str]:
            return [one["name"] for one in ask(guard, SchemaQuestion(names))["reply"]["columns"]]

        assert told() == []
        for name in names:
            assert "does not allow" in ask(guard, SumsQuestion(design(Column(name))))["refused"]
            assert "does not allow" in ask(guard, DescriptionQuestion((name,)))["refused"]
        for name, text in (("group", "cut(age,[40,60])"), ("years", names[1])):
            reply = guard.answer({"kind": "propose", "run": "r", "name": name, "text": text}, ANALYST)
            assert reply["reply"][name] == "waiting"
        assert told() == []
        for name in ("group", "years"):
            guard.approvals.answer(name, "yes")
        assert told() == list(names)
        for name in ("years", names[1]):
            assert "reply" in ask(guard, SumsQuestion(design(Column(name))))
        # Not what it is made of, and nothing that is near it.
        for name in ("born", "cut(age, [40, 61])", "years(visit, born)", "cut(years(born, visit), [60])"):
            reply = ask(guard, SumsQuestion(design(Column(name))))
            assert "refused" in reply or (name == "born" and "error" in reply), name

    def test_the_person_sees_counts(self, guard: RequestGuard, patients: pd.DataFrame) -> None:
        old = int((patients.age > 60).sum())
        rare = next(age for age in range(62, 89) if 0 < (patients.age == age).sum() < 10)
        texts = {
            "group": "cut(age, [40, 60])", "near": "cut(age, [40, 60.5])", "other": f"cut(age, [40, {rare - 1}])",
            "later": f"cut(age, [40, {rare}])",
        }  # fmt: skip
        for name, text in texts.items():
            guard.answer({"kind": "propose", "run": "r", "name": name, "text": text}, ANALYST)
            guard.approvals.answer(name, "yes")
        counts = {name: one.counts for name, one in guard.approvals.read().items()}
        assert f"> 60: {old}; no value in 1" in counts["group"]
        assert "differs" not in counts["near"]
        assert f"differs from other in {(patients.age == rare).sum()} rows" in counts["later"]

    def test_what_a_site_cannot_compute_is_said(self, guard: RequestGuard) -> None:
        for text in ("cut(weight, [3])", "years(age, visit)", "convert(age, 'months', {'years': 12})"):
            reply = guard.answer({"kind": "propose", "run": "r", "name": "x", "text": text}, ANALYST)
            assert "cannot be computed here" in reply["error"]


class TestRows:
    def test_as_a_table_of_these_rows(self, patients: pd.DataFrame) -> None:
        cohort = LocalCohort(patients, "hospital")
        found = fit(cohort.filter("age >= 40"), "died ~ age + C(score)", None)
        wanted = fit(patients[patients.age >= 40], "died ~ age + C(score)")
        assert found.coefficients_ == wanted.coefficients_
        assert found.summary().more["rows with"] == "age >= 40"
        assert found.rows_ == wanted.rows_
        cohort.propose("adult", "age >= 40")
        assert fit(cohort.filter("adult"), "died ~ age + C(score)", None).coefficients_ == wanted.coefficients_
        assert cohort.propose().loc["adult"].tolist() == ["yes"] * 3
        with pytest.raises(ArgumentError, match=r"write \(age >= 40\) & \(score > 1\)"):
            cohort.filter("age >= 40").filter("score > 1")
        with pytest.raises(ArgumentError, match="true or false"):
            cohort.filter("age")
        with pytest.raises(ArgumentError, match="rows at every site, got none at 'a'"):
            cohort.filter("age > 1000")

    @pytest.fixture
    def guard(self, patients: pd.DataFrame, tmp_path: Path) -> Iterator[RequestGuard]:
        variables = {
            "a": "age >= 40", "b": "age >= 41", "c": "age < 40", "last": "age >= 89",
            "left": "(age >= 40) & (score > 0)", "right": "(age >= 40) & (score == 0) & (age < 89)", "known": "age > 0",
        }  # fmt: skip
        with RequestGuard("north", SiteTable.read(patients), Policy(variables=variables), tmp_path) as made:
            yield made

    def test_conditions_that_differ_in_few_rows_are_refused(self, guard: RequestGuard, patients: pd.DataFrame) -> None:
        question = SumsQuestion(design(Column("score"), response=Column("died")))
        assert 0 < (patients.age == 40).sum() < 10
        assert "reply" in ask(guard, question)
        found = ask(guard, question, rows="age >= 40")
        assert found["reply"]["used"] == (patients.age >= 40).sum()
        assert ask(guard, question, rows="a")["reply"]["used"] == found["reply"]["used"]
        # Two conditions on both sides of few rows, and one that leaves few or leaves them out.
        for condition in ("b", "age >= 41", "last", "known", "c"):
            assert "tells fewer than 10 rows" in ask(guard, question, rows=condition)["refused"], condition
        for condition in ("age >= 42", "score > 1", "(age >= 40) | (score > 1)"):
            assert "must be a column of this site" in ask(guard, question, rows=condition)["refused"]
        assert "must be a text" in ask(guard, question, rows=3)["error"]
        assert "cannot be used" in ask(guard, question, rows="weight > 3")["error"]

    def test_what_conditions_tell_together_is_refused(self, guard: RequestGuard, patients: pd.DataFrame) -> None:
        """Those of 40 less those with a score, less those without who are younger than 89, are few rows."""
        question = SumsQuestion(design(Column("age"), response=Column("died")))
        few = patients[(patients.age >= 89) & (patients.score == 0)]
        assert 0 < len(few) < 10
        for condition in ("a", "left"):
            if "refused" in ask(guard, question, rows=condition):
                pytest.fail(condition)
        assert "tells fewer than 10 rows" in ask(guard, question, rows="right")["refused"]

    def test_conditions_are_remembered(self, guard: RequestGuard, patients: pd.DataFrame) -> None:
        question = SumsQuestion(design(Column("score"), response=Column("died")))
        assert "reply" in ask(guard, question, rows="age >= 40")
        guard.close()
        with RequestGuard("north", SiteTable.read(patients), guard._policy, guard.folder) as again:
            assert "refused" in ask(again, question, rows="age >= 41")
            assert "reply" in ask(again, question, rows="a")

    def test_models_of_other_rows_are_other_models(self, guard: RequestGuard) -> None:
        asked = model(design(Column("score"), response=Column("died")))
        whole, some = ask(guard, asked)["reply"], ask(guard, asked, rows="age >= 40")["reply"]
        assert str(whole) != str(some)
        assert guard.budget.spent.total == 2
        condition = Comparison(">=", Column("age"), Number(40.0))
        assert condition in guard.policy.approved


class TestFederation:
    """The same digits at the desks of sites with the default policy as on a table, and what is refused there."""

    @pytest.fixture
    def sites(self, patients: pd.DataFrame, tmp_path: Path) -> Iterator[DeskCohort]:
        made = DeskCohort(patients, tmp_path)
        yield made
        for desk in made.desks:
            desk.close()

    @staticmethod
    def propose(sites: DeskCohort, name: str, definition: str) -> None:
        for desk in sites.desks:
            desk.answer({"kind": "propose", "run": "r", "name": name, "text": definition}, ANALYST)
            desk.approvals.answer(name, "yes")

    @pytest.mark.parametrize(
        "formula",
        [
            "died ~ ns(age, df=4) + C(score)", "died ~ bs(age, df=5)", "died ~ poly(age, 2) + ns(score, df=1)",
            "cbind(died, alive) ~ age",
        ],
    )  # fmt: skip
    def test_quantiles_and_moments(self, sites: DeskCohort, patients: pd.DataFrame, formula: str) -> None:
        found, wanted = fit(sites, formula, None), fit(patients, formula)
        assert found.coefficients_ == wanted.coefficients_
        assert found.table().frame().equals(wanted.table().frame())
        # Other models of the column go by the same edges, and a part of the rows as well.
        if "ns(age" in formula:
            assert fit(sites, "died ~ ns(age, df=3)", None).coefficients_ == fit(
                patients, "died ~ ns(age, df=3)"
            ).coefficients_  # fmt: skip
            self.propose(sites, "some", "score > 0")
            some, local = sites.filter("some"), LocalCohort(patients, "hospital").filter("score > 0")
            assert fit(some, formula, None).coefficients_ == fit(local, formula, None).coefficients_

    def test_definitions(self, sites: DeskCohort, patients: pd.DataFrame) -> None:
        formula = "died ~ cut(age, [40, 60]) + years(born, visit)"
        with pytest.raises(ArgumentError, match=r"a, b, c has not approved cut\(age, \[40, 60\]\): federation.propose"):
            fit(sites, formula, None)
        self.propose(sites, "group", "cut(age,[40,60])")
        self.propose(sites, "duration", "years(born, visit)")
        found, wanted = fit(sites, formula, None), fit(patients, formula)
        assert found.coefficients_ == wanted.coefficients_
        assert list(fit(sites, "died ~ group + duration", None).coefficients_.values()) == values(wanted)
        smoker = "recode(smoking, {'never': 'no', 'former': 'yes', 'current': 'yes', '?': 'unknown'})"
        self.propose(sites, "smoker", smoker)
        local = LocalCohort(patients, "hospital")
        local.propose("smoker", smoker)
        shown = [str(fpdfp.table_one(one, ["score"], by="smoker")) for one in (sites, local)]
        assert shown[0] == shown[1]

    def test_knots_are_not_for_the_analyst(self, sites: DeskCohort, patients: pd.DataFrame) -> None:
        desk = sites.desks[0]
        found = fit(sites, "died ~ ns(age, df=3)", None)
        knots: Any = found.plan_.design.terms[0].factors[0]
        edges = desk.budget.spent.edges["age"]
        spline = parse("y ~ ns(age, knots=[41.5, 60], lower_bound=20, upper_bound=80)").terms[0][0]
        spline = dataclasses.replace(spline, name="s")
        own = {"response": Column("died")}
        assert "knots that this site has not approved" in ask(desk, SumsQuestion(design(spline, **own)))["refused"]
        near = dataclasses.replace(knots, knots=(edges[40], edges[60]))
        assert near.knots != knots.knots
        assert (
            "only at the times, or edges, that were asked for first"
            in ask(desk, SumsQuestion(design(near, **own)))["refused"]
        )
        assert "reply" in ask(desk, SumsQuestion(design(knots, **own)))
        # Centres of polynomials that round values to few.
        poly = Poly("p", Column("age"), 2, (1e17, 50.0), (0.0, 1.0), (1.0, 1.0))
        assert "far from its values" in ask(desk, SumsQuestion(design(poly, **own)))["refused"]
        poly = Poly("p", Column("age"), 2, (50.0, 50.0), (0.0, 1e19), (1.0, 1.0))
        assert "far from its values" in ask(desk, SumsQuestion(design(poly, **own)))["refused"]
        trials = design(
            Column("age"), response=Arithmetic("/", Column("died"), Arithmetic("+", Column("died"), Column("age")))
        )
        for weights in (Column("age"), Arithmetic("+", Column("age"), Column("died"))):
            asked = SumsQuestion(dataclasses.replace(trials, weights=weights))
            assert "must be a column of this site" in ask(desk, asked)["refused"]

    def test_weights_by_a_model_that_was_fitted_here(self, sites: DeskCohort, patients: pd.DataFrame) -> None:
        treated, outcome = "died ~ age + score", "score ~ died"
        given, known = fit(sites, treated, None), fit(patients, treated)
        weights = fpdfp.InverseProbability(given)
        model = fpdfp.FederatedGLM().fit(sites, outcome, weights=weights)
        local = fpdfp.FederatedGLM().fit(patients, outcome, groups="hospital", weights=fpdfp.InverseProbability(known))
        assert model.coefficients_ == local.coefficients_
        assert str(model.table()) == str(local.table())
        assert "inverse probability of died ~ age + score" in "".join(
            one.read_text(errors="replace") for one in sites.desks[0].folder.iterdir() if one.is_file()
        )
        # Other coefficients, and those of a model that was fitted elsewhere.
        node = weights.describe()
        asked = SumsQuestion(design(Column("died"), response=Column("score")))
        for changed in (
            dataclasses.replace(node, coefficients=tuple(one * 1.0001 for one in node.coefficients)),
            dataclasses.replace(node, treatment=dataclasses.replace(node.treatment, terms=node.treatment.terms[:1]),
                                coefficients=node.coefficients[1:]),
        ):  # fmt: skip
            question = dataclasses.replace(asked, design=dataclasses.replace(asked.design, weights=changed))
            assert "were fitted here" in ask(sites.desks[0], question)["refused"]
        with pytest.raises(ArgumentError, match="use wald_test"):
            model.compare(local)
        for wrong, problem in (
            (fpdfp.FederatedLogisticRegression(fpdfp.L1(0.1)).fit(patients, treated, groups="hospital"), "a penalty"),
            (fpdfp.FederatedGLM().fit(patients, "age ~ score", groups="hospital"), "logistic or binomial"),
            (fpdfp.FederatedGLM("binomial"), "fitted to a formula"), ("score", "fitted to a formula"),
            (fpdfp.FederatedGLM("binomial", site_effects="fixed").fit(patients, treated, "hospital"), "site effects"),
        ):  # fmt: skip
            with pytest.raises(ArgumentError, match=problem):
                fpdfp.InverseProbability(wrong)
