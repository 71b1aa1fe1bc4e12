"""What a hostile coordinator writes by hand: designs that single out rows, and ways around rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fpdfp.engines import spec
from fpdfp.engines.losses import At
from fpdfp.engines.parcel import pack, unpack
from fpdfp.engines.requests import Request
from fpdfp.errors import ArgumentError, MessageError
from fpdfp.federation import audit, questions
from fpdfp.federation.asked import columns_of
from fpdfp.federation.designs import check_columns, leverages
from fpdfp.federation.desk import STOPPED, Desk
from fpdfp.federation.exposure import TOO_FEW, watch
from fpdfp.federation.points import SIZES, Earlier
from fpdfp.federation.policy import Budget, Policy, RefusedError
from fpdfp.federation.questions import ModelSpec, MomentsQuestion, SumsQuestion
from fpdfp.federation.table import SiteTable
from fpdfp.formula.coding import Design, Term
from fpdfp.formula.tree import Arithmetic, Call, Coded, Column, Comparison, Missing, Number, Numeric, Spline
from fpdfp.losses import Logistic
from tests.desks import ANALYST, close_all, gradient, make_desk

AGE, INCOME, DIED = Column("age"), Column("income"), Column("died")
NONE = np.zeros(0)


@pytest.fixture
def table() -> SiteTable:
    """Return 400 rows, among them one of age 101."""
    rng = np.random.default_rng(0)
    n = 400
    age = rng.integers(30, 90, n)
    age[17] = 101
    return SiteTable.read(
        pd.DataFrame(
            {
                "age": age, "income": rng.lognormal(3.0, 0.5, n), "died": rng.integers(0, 2, n),
                "birth_year": 2000 - age, "zip": rng.choice(["a", "b"], n),
            }
        )
    )  # fmt: skip


@pytest.fixture
def desk(table: SiteTable, tmp_path: Path) -> Iterator[Desk]:
    with Desk("north", table, Policy(), tmp_path / "north") as made:
        yield made


def design(*values: Any, response: Any = DIED, filled: tuple[str, ...] = (), missing: Any = "drop") -> Design:
    """Return a design of expressions, or of factors."""
    factors = [one if isinstance(one, Coded | Spline) else Numeric(f"x{i}", one) for i, one in enumerate(values)]
    terms = tuple(Term((factor,), i) for i, factor in enumerate(factors))
    return Design(response, terms, tuple(f"x{i}" for i in range(len(terms))), filled, missing)


def is_old() -> Comparison:
    """Return what is true of one row."""
    return Comparison("==", AGE, Number(101.0))


def ask(desk: Desk, question: Any, **others: Any) -> dict[str, Any]:
    """Ask a desk a question, or for the gradient at zero of a model; return what it says."""
    asked: dict[str, Any] = {"run": "run", "sequence": 1}
    if isinstance(question, ModelSpec):
        x = others.pop("x", np.zeros(len(question.ridge)))
        tree = Request((At(np.asarray(x), ["gradients"]),)).write(spec.dump)
        asked |= {"kind": "request", "model": "m", "spec": questions.dump(question), "request": tree}
    else:
        asked |= questions.write(question)
    return desk.answer(unpack(pack(asked | others)), ANALYST)


def model(given: Design, **others: Any) -> ModelSpec:
    """Return a logistic model of a design, as it is."""
    d = given.width
    fields: dict[str, Any] = {
        "means": np.zeros(len(given.filled)), "centre": np.zeros(d), "scale": np.ones(d), "intercept": True,
        "family": "Logistic", "classes": (0, 1), "ridge": np.zeros(d + 1),
    }  # fmt: skip
    return ModelSpec(given, **(fields | others))


class TestColumns:
    @pytest.mark.parametrize(
        "given",
        [
            design(Coded("zip", "zip", ("a", "b"), 0)),
            design(AGE, filled=("birth_year",), missing="mean"),
            design(AGE, Missing("zip")),
            design(AGE, response=Comparison("==", Column("birth_year"), Number(1950.0))),
        ],
    )
    def test_forbidden_columns_are_refused_wherever_a_design_names_them(self, given: Design, desk: Desk) -> None:
        for question in (SumsQuestion(given), MomentsQuestion(given, np.zeros(len(given.filled))), model(given)):
            assert ask(desk, question)["refused"] == "this site does not answer for one of the columns of the model"

    def test_no_kind_of_node_hides_a_column(self) -> None:
        """Every text of a node that formulas read as a column is one that the desk looks at."""
        from fpdfp.formula import tree

        nodes = [Column("a"), Missing("a"), Coded("n", "a", ("x", "y")), tree.Categorical("n", "a")]
        for node in nodes:
            assert list(columns_of(questions.dump(node))) == list(tree.columns_of(node)) == ["a"]


class TestDesigns:
    def test_terms_that_are_no_numbers_count_nothing(self, desk: Desk) -> None:
        """log(age − 101 + …) is no number in the rows that one likes: told, their number would be any count."""
        one = Call("log", Arithmetic("-", Number(1.0), is_old()))
        many = Call("log", Arithmetic("-", AGE, Number(60.0)))
        alone, often = ask(desk, SumsQuestion(design(AGE, one))), ask(desk, SumsQuestion(design(AGE, many)))
        assert alone["refused"].endswith("in some rows of this site")
        assert often["refused"].endswith("rows of this site: the term 'x1'")
        assert not any(letter.isdigit() for letter in alone["refused"])

    @pytest.mark.parametrize("small", [1.0, 1e-6, 1e-9])
    def test_a_row_hidden_behind_another_column(self, small: float, desk: Desk, table: SiteTable) -> None:
        """The difference of two columns is one row's, however small; at full precision it is that row."""
        other = Arithmetic("+", AGE, Arithmetic("*", Number(small), Arithmetic("*", is_old(), INCOME)))
        given = design(AGE, other)
        mean = table.answer(MomentsQuestion(given, NONE)).mean  # type: ignore[union-attr]
        assert (mean[1] - mean[0]) * 400 / small == pytest.approx(table.columns["income"].numbers[17], rel=1e-2)
        for question in (MomentsQuestion(given, NONE), model(given)):
            assert "tell no fewer than 3 of its rows" in ask(desk, question)["refused"]

    def test_a_scale_at_which_squares_vanish_hides_nothing(self, desk: Desk) -> None:
        peak = Arithmetic("+", AGE, Arithmetic("*", Number(1e5), is_old()))
        for scale in (1.0, 1e200):
            refused = ask(desk, model(design(peak), scale=np.array([scale])), model=f"{scale}")
            assert "tell no fewer than 3" in refused["refused"]

    def test_a_peak_at_two_rows(self, desk: Desk, table: SiteTable) -> None:
        """No single row has all of it, and each would be half."""
        income = np.sort(table.columns["income"].numbers)
        gaps = np.diff(income)
        place = int(gaps.argmin())
        away = Arithmetic("-", INCOME, Number(float(income[place : place + 2].mean())))
        steep = Number(-0.1 / float(gaps[place]) ** 2)
        peak = Call("exp", Arithmetic("*", steep, Arithmetic("**", away, Number(2.0))))
        assert leverages(table.matrix_of(design(peak), NONE)).max() < 0.95
        assert "tell no fewer than 3" in ask(desk, MomentsQuestion(design(peak), NONE))["refused"]

    def test_means_for_what_is_missing_do_not_single_out_rows(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        pressure = rng.normal(size=200)
        pressure[:2] = np.nan
        rows = SiteTable.read(pd.DataFrame({"pressure": pressure, "died": rng.integers(0, 2, 200)}))
        given = design(Column("pressure"), filled=("pressure",), missing="mean")
        with Desk("north", rows, Policy(), tmp_path) as made:
            assert "reply" in ask(made, MomentsQuestion(given, np.zeros(1)))
            assert "refused" in ask(made, MomentsQuestion(given, np.array([1e9])))
            assert "refused" in ask(made, model(given, means=np.array([1e9])))

    def test_more_columns_than_a_model_may_have(self, desk: Desk) -> None:
        many = design(*(Comparison(">", AGE, Number(float(k))) for k in range(41)))
        for question in (SumsQuestion(many), MomentsQuestion(many, NONE), model(many)):
            assert "coefficients for each of its rows" in ask(desk, question)["refused"]
        with pytest.raises(RefusedError, match="at most 2,000 columns"):
            check_columns(np.random.default_rng(0).normal(size=(10, 2001)), 3)

    def test_designs_without_end(self) -> None:
        knots = tuple(map(float, range(1, 400)))
        wide = Spline("s", "bs", AGE, knots, 0.0, 400.0)
        with pytest.raises(ArgumentError, match="at most 100,000 columns"):
            Design(DIED, (Term((wide, wide), 0),), ("s",))
        for change in ({"degree": 10**9}, {"degree": -1}, {"lower": 500.0}, {"knots": (2.0, 1.0)}):
            with pytest.raises(ArgumentError, match="a spline has"):
                dataclasses.replace(wide, **change)

    def test_leverages_are_those_of_an_orthonormal_basis(self) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(50, 5)) * 10.0 ** np.array([-200, -5, 0, 5, 150])
        exact = np.square(np.linalg.qr(X / np.abs(X).max(axis=0))[0]).sum(axis=1)
        np.testing.assert_allclose(leverages(np.c_[X, X[:, 1]]), exact, rtol=1e-9)
        assert leverages(np.zeros((4, 0))).tolist() == [0.0] * 4


class TestAmounts:
    def test_sums_and_moments_count(self, desk: Desk) -> None:
        before = desk.ledger.spent.bits
        assert "reply" in ask(desk, MomentsQuestion(design(AGE, INCOME), NONE))
        middle = desk.ledger.spent.bits
        assert "reply" in ask(desk, SumsQuestion(design(AGE), (0, 1)))
        assert before < middle < desk.ledger.spent.bits

    def test_other_models_under_the_name_of_one_run_are_other_runs(self, desk: Desk) -> None:
        first = {"run": "run", "model": "m", "spec": 1, "request": {"update": {}}}
        assert desk._admit(first, "request", "run")
        assert not desk._admit(first, "request", "run")
        assert desk._admit(first | {"spec": 2}, "request", "run")
        assert desk.ledger.spent.runs == 2
        # Nothing is begun where the site does not know the model yet.
        assert not desk._admit({name: first[name] for name in ("run", "model", "request")}, "request", "other")

    def test_models_are_counted_without_runs_and_by_what_they_are(self, table: SiteTable, tmp_path: Path) -> None:
        policy = Policy(budget=Budget(models=2))
        for names in (("a", "b", "c"), ("d",)):
            with Desk("north", table, policy, tmp_path) as made:
                for name in names:
                    assert "reply" in ask(made, model(design(AGE)), model=name)
        with Desk("north", table, policy, tmp_path) as made:
            assert "reply" in ask(made, model(design(AGE), ridge=np.full(2, 0.1)), model="a")
            assert "as many models" in ask(made, model(design(AGE), ridge=np.full(2, 0.2)), model="b")["refused"]
            assert made.ledger.spent.runs == 0

    def test_questions_that_may_differ_in_one_row_are_counted(self, table: SiteTable, tmp_path: Path) -> None:
        with Desk("north", table, Policy(budget=Budget(models=2)), tmp_path) as made:
            for cut in (60.0, 61.0, 60.0):
                assert "reply" in ask(made, MomentsQuestion(design(Comparison(">", AGE, Number(cut))), NONE))
            for kind in (MomentsQuestion(design(AGE), NONE), SumsQuestion(design(AGE))):
                assert "as many models and questions" in ask(made, kind)["refused"]

    def test_refusals_and_failures_tell_whether_rows_exist_and_are_counted(
        self, table: SiteTable, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        policy = Policy(budget=Budget(refusals=4))
        failing = model(design(AGE, Call("log", Arithmetic("-", Number(1.0), is_old()))))
        with Desk("north", table, policy, tmp_path) as made:
            for i in range(2):
                assert "refused" in ask(made, MomentsQuestion(design(is_old()), NONE))
                assert ask(made, failing, model=f"{i}") == {"error": "ArgumentError at the site; its log says more"}
        with Desk("north", table, policy, tmp_path) as made:
            assert "until its owner has looked" in ask(made, MomentsQuestion(design(AGE), NONE))["refused"]
            (made.folder / STOPPED).unlink()
            assert "reply" in ask(made, MomentsQuestion(design(AGE), NONE))


class TestEarlierPoints:
    def test_other_names_models_and_features_do_not_make_a_site_forget(self) -> None:
        """Two points that differ in one row's probability alone are refused, however they are asked for."""
        rng = np.random.default_rng(0)
        X = np.c_[rng.normal(size=(400, 2)), np.zeros(400), np.ones(400)]
        X[0, 2] = 1.0
        y = rng.integers(0, 2, 400).astype(float)
        y[:2] = 0.0, 1.0
        one, step = np.arange(1), np.array([0.0, 0.0, 1.0, 0.0])
        policy, earlier = Policy(), Earlier(64)
        watch(Logistic(X, y), policy, earlier).gradients(np.zeros(4), one)
        again = watch(Logistic(X, y, l2=0.1), policy, earlier)
        for asked, x in ((again, step), (again.restrict(np.array([1, 2, 3])), step[1:])):
            with pytest.raises(RefusedError, match=TOO_FEW):
                asked.gradients(x, one)

    def test_a_restart_of_the_site_does_not_make_it_forget(self, tmp_path: Path) -> None:
        """Nothing is closed, as where the process was killed; points of other data are of no use, and go."""
        rng = np.random.default_rng(0)
        X = np.c_[rng.normal(size=(400, 2)), np.zeros(400), np.ones(400)]
        X[0, 2] = 1.0
        losses = Logistic(X, np.arange(400) % 2.0)
        one, step = np.arange(1), np.array([0.0, 0.0, 1.0, 0.0])
        watch(losses, Policy(), Earlier(64, tmp_path, "first")).gradients(np.zeros(4), one)
        with pytest.raises(RefusedError, match=TOO_FEW):
            watch(losses, Policy(), Earlier(64, tmp_path, "first")).gradients(step, one)
        watch(losses, Policy(), Earlier(64, tmp_path, "second")).gradients(step, one)
        assert [path.name for path in tmp_path.iterdir()] == ["second-400.points"]
        assert (tmp_path / "second-400.points").stat().st_mode & 0o777 == 0o600

    def test_the_newest_points_of_few_sizes_are_kept(self, tmp_path: Path) -> None:
        for start in (0, 5):
            earlier = Earlier(3, tmp_path)
            for number in range(start, start + 5):
                earlier.add(np.full(4, number / 10))
            assert [p[0] for p in Earlier(3, tmp_path).of(4)] == [(start + i) / 10 for i in (2, 3, 4)]
            earlier.close()
        for size in range(10, 10 + SIZES):
            earlier.add(np.zeros(size))
        assert len(list(tmp_path.iterdir())) == SIZES
        assert len(earlier.of(4)) == len(Earlier(3, tmp_path).of(4)) == 0
        earlier.close()

    def test_a_desk_keeps_them_in_its_folder(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(200, 4)), np.arange(200) % 2.0
        gradient(make_desk(*rows, tmp_path), np.zeros(4))
        close_all()
        assert len(make_desk(*rows, tmp_path)._earlier.of(200)) == 1
        close_all()


class TestHostileSite:
    def test_counts_and_moments_that_cannot_be(self, table: SiteTable) -> None:
        given = design(AGE, Coded("zip", "zip", ("a", "b"), 0))
        for question in (SumsQuestion(given, (0, 1)), MomentsQuestion(given, NONE)):
            tree = questions.write_answer(table.answer(question))
            questions.read_answer(question, tree)
            changes: list[dict[str, Any]] = [{"scatter": -tree["scatter"]}] if "scatter" in tree else []
            if not changes:
                changes = [{"classes": np.array([-1, 401])}, {"levels": [np.array([400])]}, {"rows": 10, "used": 10}]
            for change in changes:
                with pytest.raises(MessageError, match="must have"):
                    questions.read_answer(question, tree | change)


class TestLog:
    def test_names_cannot_write_lines_of_the_log(self, desk: Desk) -> None:
        forged = "run\n2  2026-01-01  boss (owner)  nothing  answered\x1b[2J\ud800"
        desk.answer({"kind": "schema\n", "run": forged}, ANALYST._replace(name="a\nb"))
        desk.close()
        assert audit.verify(desk.folder).faults == ()
        entry = audit.last_entry(desk.folder)
        assert entry is not None
        assert str(entry).isprintable()
        assert "\\n2  2026" in entry.run
