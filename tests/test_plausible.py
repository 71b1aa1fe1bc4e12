"""Lies about rows, weights and constants: bounded, consistent with each other, or the site is named."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from fpdfp.cohorts.collector import compare, compare_answers
from fpdfp.cohorts.question import questions as all_questions
from fpdfp.cohorts.serialization import NUMBER, ROWS
from fpdfp.datasets import Moments
from fpdfp.errors import MessageError
from fpdfp.federation import questions
from fpdfp.federation.cohort import LocalCohort
from fpdfp.federation.questions import DescriptionQuestion, HistogramQuestion, MomentsQuestion, Sums, SumsQuestion
from fpdfp.federation.table import SiteTable
from fpdfp.formula.coding import Design, Term
from fpdfp.formula.tree import Coded, Column, Numeric, Survival
from fpdfp.traffic import digest
from tests import fuzz_replies
from tests.helpers import graph_guided
from tests.loopback import Loopback

#: What a site says of its losses in place of the truth, and the words that name it.
LIES: list[tuple[str, Any, str]] = [
    (
        "sizes",
        lambda old: np.full_like(old, 1 << 39),
        "the reply of site 1 was refused: .* a site cannot have 5.5e.11 rows",
    ),
    ("sizes", lambda old: np.full_like(old, ROWS // 4), "site 1 reports .* rows, and the others report"),
    ("lipschitz", lambda old: np.full_like(old, 1e140), "the reply of site 1 was refused: .* the number 1e.140"),
    ("lipschitz", lambda old: old * 1e12, "site 1 reports .* Lipschitz constant of .* others"),
    ("lipschitz", lambda old: old * 1e-12, r"site 1 reports .*(curvature|strongly convex)"),
    ("least_convexity", lambda old: 1e30, "site 1 reports .* strongly convex by 1e.30, which cannot be"),
    ("least_convexity", lambda old: 1e300, "the reply of site 1 was refused: .* must be at least 0"),
    ("probe", lambda old: np.full_like(old, 1e140), "the reply of site 1 was refused: .* the number 1e.140"),
    ("values", lambda old: np.full_like(old, -1e140), "the reply of site 1 was refused: .* the number 1e.140"),
    ("values", lambda old: np.full_like(old, 1e300), "the reply of site 1 was refused: .* too large"),
]


@pytest.mark.parametrize(("field", "lie", "words"), LIES)
def test_facts(field: str, lie: Any, words: str) -> None:
    problem = graph_guided(clients=3, rows=30, d=6)

    class Lying(Loopback):
        def carry(self, asked: Any, deadline: Any) -> Any:
            replies = super().carry(asked, deadline)
            if "facts" in asked.get(1, {}):
                told = next(replies[1][name] for name in ("facts", "bounds") if field in replies[1][name])
                told[field] = lie(told[field])
            return replies

    assert len(Loopback(problem, 3).losses().sizes) == 3
    with pytest.raises((MessageError, fpdfp.errors.AbsentError), match=words):
        Lying(problem, 3, patience=0.5).losses()


@pytest.mark.parametrize("others", [[1.0], [1.0, 2.0], [1.0, 2.0, 3.0]])
def test_a_site_that_would_be_the_answer_alone_is_named(others: list[float]) -> None:
    names = ["a", "b", "c", "d"][: len(others) + 1]
    compare(names, [*others, 9e5 * float(np.median(others))], 1e6, "{} rows")
    with pytest.raises(MessageError, match=f"^{names[-1]} reports"):
        compare(names, [*others, 2e6 * float(np.median(others))], 1e6, "{} rows")
    compare(["a"], [1e30], 1e6, "{}")
    compare(names, [*[0.0] * len(others), 1e30], 1e6, "{}")  # those without any say nothing


def cohort() -> tuple[LocalCohort, Any]:
    generator = np.random.default_rng(0)
    table = pd.DataFrame({
        "age": generator.normal(60, 9, 90), "stage": generator.choice(["I", "II"], 90), "w": generator.random(90),
        "died": generator.integers(0, 2, 90), "site": np.repeat(["north", "east", "south"], 30),
    })  # fmt: skip
    found = LocalCohort(table, "site")
    seen: list[Any] = []
    gather = found.gather

    def keep(question: Any, names: Any, *, each: bool) -> Any:
        answers = gather(question, names, each=each)
        seen.extend((question, answer) for answer in answers)
        return answers

    found.gather = keep  # type: ignore[method-assign]
    fpdfp.FederatedLogisticRegression(fpdfp.L1(0.1)).fit(found, "died ~ age + stage", weights="w")
    return found, seen


def take(question: Any, answer: Any) -> Any:
    """Return what is read of an answer that a site sends."""
    return questions.read_answer(question, questions.write_answer(answer))


def test_true_answers_pass() -> None:
    _, seen = cohort()
    assert {type(answer) for _, answer in seen} >= {Sums}
    for question, answer in seen:
        take(question, answer)
    for question in {id(question): question for question, _ in seen}.values():
        compare_answers(["north", "east", "south"], [answer for asked, answer in seen if asked is question])


def sums() -> Any:
    return next((question, answer) for question, answer in cohort()[1] if isinstance(question, SumsQuestion))


@pytest.mark.parametrize("change", [
    {"rows": 1 << 39}, {"weight": 1e300}, {"weight": -1.0}, {"weight": float("nan")}, {"used": 0},
    {"sums": np.array([1e200])}, {"classes": np.array([1 << 40, 1])}, {"classes": np.array([29, 29])},
    {"levels": [np.array([30, 30])]}, {"invalid": np.array([31])},
])  # fmt: skip
def test_sums(change: dict[str, Any]) -> None:
    question, answer = sums()
    with pytest.raises(MessageError):
        take(question, dataclasses.replace(answer, **change))


@pytest.mark.parametrize("change", [{"weight": 1e30}, {"rows": 1 << 30, "used": 1 << 30}])
def test_weights_and_rows_against_those_of_others(change: dict[str, Any]) -> None:
    true = dataclasses.replace(sums()[1], weight=15.0)
    compare_answers(["north", "east", "south"], [true] * 3)
    with pytest.raises(MessageError, match=r"^east reports"):
        compare_answers(["north", "east", "south"], [true, dataclasses.replace(true, **change), true])


def test_moments() -> None:
    true = Moments(30, np.zeros(2), np.array([[4.0, 1.0], [1.0, 9.0]]))
    terms = tuple(Term((Numeric(name, Column(name)),), i) for i, name in enumerate("ab"))
    asked = MomentsQuestion(Design(Column("y"), terms, ("a", "b")), np.zeros(0), diagonal=False)
    take(asked, true)
    for scatter in ([[4.0, 7.0], [7.0, 9.0]], [[4.0, 1.0], [1.0, NUMBER * 10]]):
        with pytest.raises(MessageError, match=r"moments must|no table gives"):
            take(asked, dataclasses.replace(true, scatter=np.array(scatter)))


def test_every_number_of_every_answer_is_bounded() -> None:
    """Whatever an answer is made of: each number of it in turn is a lie."""
    for question, answer in cohort()[1]:
        for field in dataclasses.fields(answer):
            old = getattr(answer, field.name)
            lies: list[Any] = []
            if isinstance(old, np.ndarray) and old.dtype.kind == "f":
                lies.append(np.full_like(old, 1e300))
            elif isinstance(old, float) or (isinstance(old, int) and not isinstance(old, bool)):
                lies.append(type(old)(10**60))
            for lie in lies:
                if np.size(lie):
                    with pytest.raises(MessageError):
                        take(question, dataclasses.replace(answer, **{field.name: lie}))


def test_constants_of_another_type() -> None:
    """A site may send integers where numbers are asked for."""
    losses = Loopback(graph_guided(clients=2, rows=30, d=6), 2)

    class Rounded(Loopback):
        def carry(self, asked: Any, deadline: Any) -> Any:
            replies = super().carry(asked, deadline)
            for reply in replies.values():
                reply["bounds"]["lipschitz"] = np.ceil(reply["bounds"]["lipschitz"]).astype(np.int64)
            return replies

    found = Rounded(graph_guided(clients=2, rows=30, d=6), 2).losses()
    np.testing.assert_array_equal(found.lipschitz(), np.ceil(losses.losses().lipschitz()))


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the places of all numbers in an answer, and these."""
    if isinstance(tree, dict | list | tuple):
        for name, one in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(one, (*path, name))
    elif isinstance(tree, np.ndarray | int | float) and not isinstance(tree, bool) and np.size(tree):
        yield path, tree


def put(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return an answer with another number in one place."""
    if not path:
        return value
    changed = dict(tree) if isinstance(tree, dict) else list(tree)
    changed[path[0]] = put(tree[path[0]], path[1:], value)
    return changed


def lies_about(old: Any) -> list[Any]:
    """Return what a site may say in place of a number: that of rows, and those that no table gives."""
    if isinstance(old, np.ndarray):
        if old.dtype.kind == "f":
            largest = [3e38] if old.dtype.itemsize == 4 else [1e140, -1e140, 1e300]
            first = np.arange(old.size).reshape(old.shape) == 0
            return [np.where(first, lie, old).astype(old.dtype) for lie in largest]
        return [np.full_like(old, 1 << 39)] if old.dtype == np.int64 else []
    return [1 << 39] if isinstance(old, int) else [1e140, -1e140, 1e300]


def accepted(tree: Any, read: Callable[[Any], Any]) -> list[tuple[Any, ...]]:
    """Return the places where a lie is taken for the truth."""
    read(tree)
    found = []
    for path, old in leaves(tree):
        for lie in lies_about(old):
            with contextlib.suppress(MessageError):
                read(put(tree, path, lie))
                found.append((*path, lie if np.ndim(lie) == 0 else lie.flat[0]))
    return found


def test_lies_in_every_field_of_every_answer() -> None:
    """All questions, all fields: rows of a table that nobody has, and numbers that no table gives."""
    asked, wrong = set[str](), dict[str, Any]()
    for answered in fuzz_replies.corpus():
        names = [one.name for one in answered.asked.questions]
        asked |= {*names}
        told = accepted(answered.tree, functools.partial(fuzz_replies.read, answered))
        if told:
            wrong[str(names)] = told
    for question, answer in table_answers():
        asked.add(question.name)
        told = accepted(questions.write_answer(answer), functools.partial(questions.read_answer, question))
        if told:
            wrong[question.name] = told
    assert not wrong
    # A certificate of a method's own is two numbers, and no run of two rounds asks for it.
    assert set(all_questions()) - asked <= {"answers"}


def table_answers() -> Iterator[tuple[Any, Any]]:
    """Yield each question about a table, and its answer."""
    rng, n = np.random.default_rng(0), 60
    table = SiteTable.read(pd.DataFrame({
        "age": rng.normal(60, 9, n), "time": rng.integers(1, 30, n) * 1.0, "died": rng.integers(0, 2, n),
        "arm": rng.choice(["new", "old"], n), "stage": rng.choice(["I", "II"], n),
    }))  # fmt: skip
    age, arm = Numeric("age", Column("age")), Coded("arm", "arm", ("new", "old"))
    times = Survival(Column("time"), Column("died"))
    terms = (Term((age,), 0),)

    def spec(response: Any, family: Any, **others: Any) -> Any:
        d = 1 if family == "Cox" else 2
        return questions.ModelSpec(Design(response, terms, ("age",)), np.zeros(0), np.zeros(1), np.ones(1), d == 2,
                                   family, ridge=np.zeros(d), **others)  # fmt: skip

    cox, logistic = spec(times, "Cox", classes=()), spec(Column("died"), "Logistic", classes=(0, 1))
    q, x, two = questions, np.array([0.01]), np.array([0.01, -0.5])
    grid = np.array([5.0, 10.0, 20.0])
    for question in (
        q.SchemaQuestion(), q.SumsQuestion(logistic.design, (0, 1)),
        q.MomentsQuestion(logistic.design, np.zeros(0), False),
        q.RiskQuestion(times, arm, grid), q.LogRankQuestion(times, arm), q.BaselineQuestion(cox, x, grid),
        q.ConcordanceQuestion(cox, x), q.ProportionalityQuestion(cox, x), q.EvaluationQuestion(logistic, two, [two]),
        q.CalibrationQuestion(logistic, two, np.array([0.0, 1.0])), DescriptionQuestion(("age",), (arm,)),
        HistogramQuestion(("age",), [np.array([50.0, 60.0])]),
    ):  # fmt: skip
        yield question, table.answer(question, site="north")


@pytest.mark.parametrize(("part", "times"), [("values", 10.0), ("gradients", 10.0), ("gradients", 1e6)])
@pytest.mark.parametrize("family", ["Logistic", "LeastSquares", "Softmax"])
def test_values_and_gradients_fit_to_the_constants_of_a_site(family: str, part: str, times: float) -> None:
    """A site tells how far its gradient can change, and its loss at zero: all else is bounded by these."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 90) if family == "Softmax" else rng.choice([-1.0, 1.0], 90)
    losses = getattr(fpdfp.losses, family)(rng.normal(size=(90, 4)), y, clients=np.arange(90) % 3, l2=0.1)
    problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())

    class Lying(Loopback):
        lies = False

        def carry(self, asked: Any, deadline: Any) -> Any:
            replies = super().carry(asked, deadline)
            if self.lies and "at" in asked.get(1, {}):
                root = np.sqrt(facts.answers["values", digest([zero])][1]) + np.sqrt(facts.lipschitz()[1] / 2) * norm
                most = root**2 if part == "values" else np.sqrt(2 * facts.lipschitz()[1]) * root
                told = replies[1]["at"][part]
                told[...] = times * most / np.sqrt(told.size)
            return replies

    engine = Lying(problem, 3)
    facts = engine.losses()
    zero, weights = np.zeros(losses.shape), np.full(3, 1 / 3)
    for scale in (0.01, 1.0, 100.0):
        x = rng.normal(size=losses.shape) * scale
        norm, engine.lies = float(np.linalg.norm(x)), False
        assert np.isfinite(facts.gradient(x, weights)).all()  # the truth is within the bounds
        assert np.isfinite(facts.value(x, weights))
        engine.lies, x = True, x * 1.001
        norm = float(np.linalg.norm(x))
        with pytest.raises(MessageError, match=f"site 1 sends {part} of"):
            facts.value(x, weights) if part == "values" else facts.gradient(x, weights)
