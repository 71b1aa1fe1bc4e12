"""What a hostile coordinator writes by hand: designs that single out rows, and ways around rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.losses import At
from fpdfp.cohorts.requests import Request
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.errors import ArgumentError, MessageError, Refusal
from fpdfp.federation import audit, questions
from fpdfp.federation.guard import STOPPED, check_columns, leverages
from fpdfp.federation.guard import RequestGuard as Desk
from fpdfp.federation.policy import Policy
from fpdfp.federation.questions import ModelSpec, MomentsQuestion, SumsQuestion
from fpdfp.federation.table import SiteTable
from fpdfp.formula.coding import Design, Term
from fpdfp.formula.tree import Arithmetic, Call, Coded, Column, Comparison, Missing, Number, Numeric, Poly, Spline
from tests.desks import ANALYST
from tests.levels import at_all_levels  # noqa: F401 — each question is asked at all levels

AGE, INCOME, DIED = Column("age"), Column("income"), Column("died")
NONE = np.zeros(0)
BEHIND = Policy(off=frozenset({"places"}))


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
    """Return a site that has approved whatever stands anywhere, so that the rules behind this one are seen."""
    with Desk("north", table, BEHIND, tmp_path / "north") as made:
        yield made


def design(*values: Any, response: Any = DIED, filled: tuple[str, ...] = (), missing: Any = "drop") -> Design:
    """Return a design of expressions, or of factors."""
    factors = [one if isinstance(one, Coded | Poly | Spline) else Numeric(f"x{i}", one) for i, one in enumerate(values)]
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
        tree = Request((At(np.asarray(x), ["gradients"]),)).write(parcels.dump)
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
            assert "does not allow the column" in ask(desk, question)["refused"]


class TestDesigns:
    def test_terms_that_are_no_numbers_count_nothing(self, desk: Desk) -> None:
        """log(age − 101 + …) is no number in the rows that one likes: told, their number would be any count."""
        one = Call("log", Arithmetic("-", Number(1.0), is_old()))
        many = Call("log", Arithmetic("-", AGE, Number(60.0)))
        alone, often = ask(desk, SumsQuestion(design(AGE, one))), ask(desk, SumsQuestion(design(AGE, many)))
        assert alone["refused"].endswith("not finite in some rows of this site: the term 'x1'")
        assert alone == often

    @pytest.mark.parametrize("small", [1.0, 1e-6, 1e-9])
    def test_a_row_hidden_behind_another_column(self, small: float, desk: Desk, table: SiteTable) -> None:
        """The difference of two columns is one row's, however small; at full precision it is that row."""
        other = Arithmetic("+", AGE, Arithmetic("*", Number(small), Arithmetic("*", is_old(), INCOME)))
        given = design(AGE, other)
        mean = table.answer(MomentsQuestion(given, NONE)).mean  # type: ignore[union-attr]
        assert (mean[1] - mean[0]) * 400 / small == pytest.approx(table.columns["income"].numbers[17], rel=1e-2)
        for question in (MomentsQuestion(given, NONE), model(given)):
            assert "nearly one row's alone" in ask(desk, question)["refused"]

    def test_a_scale_at_which_squares_vanish_hides_nothing(self, desk: Desk) -> None:
        peak = Arithmetic("+", AGE, Arithmetic("*", Number(1e5), is_old()))
        for scale in (1.0, 1e200):
            refused = ask(desk, model(design(peak), scale=np.array([scale])), model=f"{scale}")
            assert "fewer than 3 rows" in refused["refused"]

    def test_a_peak_at_two_rows(self, desk: Desk, table: SiteTable) -> None:
        """No single row has all of it, and each would be half."""
        income = np.sort(table.columns["income"].numbers)
        gaps = np.diff(income)
        place = int(gaps.argmin())
        away = Arithmetic("-", INCOME, Number(float(income[place : place + 2].mean())))
        steep = Number(-0.1 / float(gaps[place]) ** 2)
        peak = Call("exp", Arithmetic("*", steep, Arithmetic("**", away, Number(2.0))))
        assert leverages(table.matrix_of(design(peak), NONE)).max() < 0.95
        assert "fewer than 3 rows" in ask(desk, MomentsQuestion(design(peak), NONE))["refused"]

    def test_moments_with_the_weights_of_few_rows(self, desk: Desk) -> None:
        """Weights that all but two rows lack: the mean is between these, though the columns themselves are allowed."""
        few = Arithmetic("+", Number(1e-9), Comparison(">", AGE, Number(99.0)))
        given = dataclasses.replace(design(INCOME), weights=few)
        assert "reply" in ask(desk, MomentsQuestion(given, NONE))
        refused = ask(desk, MomentsQuestion(given, NONE, weighted=True))["refused"]
        assert "weights" in refused

    def test_means_for_what_is_missing_do_not_single_out_rows(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        table = pd.DataFrame({"pressure": rng.normal(size=200), "died": rng.integers(0, 2, 200)})
        given = design(Column("pressure"), filled=("pressure",), missing="mean")
        for missing, told in ((2, "refused"), (3, "reply")):
            rows = SiteTable.read(table.assign(pressure=table.pressure.where(table.index >= missing)))
            with Desk("north", rows, Policy(), tmp_path / told) as made:
                for mean in (0.0, 1.0):
                    assert told in ask(made, MomentsQuestion(given, np.array([mean])))
                    assert told in ask(made, model(given, means=np.array([mean])), model=f"{mean}")

    def test_more_columns_than_a_model_may_have(self, desk: Desk) -> None:
        many = design(*(Comparison(">", AGE, Number(float(k))) for k in range(81)))
        for question in (SumsQuestion(many), MomentsQuestion(many, NONE), model(many)):
            assert "coefficients for each of its rows" in ask(desk, question)["refused"]
        with pytest.raises(Refusal, match="at most 2,000 columns"):
            check_columns(np.random.default_rng(0).normal(size=(10, 2001)), [], Policy())

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
    def test_what_belongs_to_one_analysis_is_free(self, desk: Desk) -> None:
        given = design(AGE, INCOME)
        for question in (SumsQuestion(given, (0, 1)), MomentsQuestion(given, NONE), model(given)):
            assert "reply" in ask(desk, question)
        assert desk.budget.spent.total == 1
        centred = design(Arithmetic("/", Arithmetic("-", AGE, Number(60.0)), Number(12.0)), INCOME)
        assert "reply" in ask(desk, model(centred), model="centred")
        assert desk.budget.spent.total == 1
        assert "reply" in ask(desk, model(design(AGE)), model="another")
        assert desk.budget.spent.total == 2

    def test_analyses_are_counted_over_restarts(self, table: SiteTable, tmp_path: Path) -> None:
        policy = Policy(analyses=2)
        for names in (("age", "income"), ("age",)):
            with Desk("north", table, policy, tmp_path) as made:
                for name in names:
                    assert "reply" in ask(made, model(design(Column(name))), model=name)
        with Desk("north", table, policy, tmp_path) as made:
            told = ask(made, model(design(AGE, INCOME)), model="both")
            assert told == {"refused": "this site has answered the 2 analyses that it allows; ask it for more",
                            "rule": "budget"}  # fmt: skip
            assert made.answer({"kind": "budget", "run": "r"}, ANALYST)["reply"] == {
                "spent": 2, "allowed": 2, "refusals": 0,
            }  # fmt: skip

    def test_scalings_and_points_without_end_cost_analyses(self, table: SiteTable, tmp_path: Path) -> None:
        with Desk("north", table, Policy(), tmp_path) as made:
            for k in range(17):
                assert "reply" in ask(made, model(design(AGE), scale=np.array([1.0 + k])), model=f"{k}")
            assert made.budget.spent.total == 3
            made.budget.spend_points(next(iter(made.budget.spent.points)), 10_000)
            assert made.budget.spent.total == 5

    def test_refusals_and_failures_tell_whether_rows_exist_and_are_counted(
        self, table: SiteTable, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        policy = Policy(refusals=4, off=frozenset({"places"}))
        failing = model(design(AGE, Call("log", Arithmetic("-", Number(1.0), is_old()))))
        with Desk("north", table, policy, tmp_path) as made:
            for i in range(2):
                assert "refused" in ask(made, MomentsQuestion(design(is_old()), NONE))
                assert ask(made, failing, model=f"{i}") == {"error": "ArgumentError at the site; its log says more"}
        with Desk("north", table, policy, tmp_path) as made:
            assert "until its owner has looked" in ask(made, MomentsQuestion(design(AGE), NONE))["refused"]
            (made.folder / STOPPED).unlink()
            assert "reply" in ask(made, MomentsQuestion(design(AGE), NONE))


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
