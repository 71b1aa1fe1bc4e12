"""Lies about rows, weights and constants: bounded, consistent with each other, or the site is named."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from fpdfp.cohorts.plausible import NUMBER, ROWS, check_answer, compare, compare_answers
from fpdfp.datasets import Moments
from fpdfp.errors import MessageError
from fpdfp.federation.cohort import LocalCohort
from fpdfp.federation.questions import Sums, SumsQuestion
from tests.helpers import graph_guided
from tests.loopback import Loopback

#: What a site says of its losses in place of the truth, and the words that name it.
LIES: list[tuple[str, Any, str]] = [
    ("sizes", lambda old: np.full_like(old, 1 << 39), "site 1 reports 549755813888 rows"),
    ("sizes", lambda old: np.full_like(old, ROWS // 4), "site 1 reports .* rows, and the others report"),
    ("lipschitz", lambda old: np.full_like(old, 1e140), "site 1 reports .* Lipschitz constants of 1e.140"),
    ("lipschitz", lambda old: old * 1e12, "site 1 reports .* Lipschitz constant of .* others"),
    ("lipschitz", lambda old: old * 1e-12, r"site 1 reports .*(curvature|strongly convex)"),
    ("least_convexity", lambda old: 1e30, "site 1 reports .* strongly convex by 1e.30, which cannot be"),
    ("least_convexity", lambda old: 1e300, "site 1|must be at least 0"),
    ("probe", lambda old: np.full_like(old, 1e140), "site 1 reports losses of 1e.140 at a point"),
    ("values", lambda old: np.full_like(old, -1e140), "site 1 reports losses of 1e.140 at a point"),
    ("values", lambda old: np.full_like(old, 1e300), "site 1|too large"),
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


def test_true_answers_pass() -> None:
    _, seen = cohort()
    assert {type(answer) for _, answer in seen} >= {Sums}
    for _, answer in seen:
        check_answer(answer)
    for question in {id(question): question for question, _ in seen}.values():
        compare_answers(["north", "east", "south"], [answer for asked, answer in seen if asked is question])


def sums() -> Any:
    return next(answer for question, answer in cohort()[1] if isinstance(question, SumsQuestion))


@pytest.mark.parametrize("change", [
    {"rows": 1 << 39}, {"weight": 1e300}, {"weight": -1.0}, {"weight": float("nan")}, {"used": 0},
    {"sums": np.array([1e200])}, {"classes": np.array([1 << 40, 1])}, {"classes": np.array([29, 29])},
    {"levels": [np.array([30, 30])]}, {"invalid": np.array([31])},
])  # fmt: skip
def test_sums(change: dict[str, Any]) -> None:
    lie = dataclasses.replace(sums(), **change)
    with pytest.raises(MessageError):
        check_answer(lie)


@pytest.mark.parametrize("change", [{"weight": 1e30}, {"rows": 1 << 30, "used": 1 << 30}])
def test_weights_and_rows_against_those_of_others(change: dict[str, Any]) -> None:
    true = dataclasses.replace(sums(), weight=15.0)
    compare_answers(["north", "east", "south"], [true] * 3)
    with pytest.raises(MessageError, match=r"^east reports"):
        compare_answers(["north", "east", "south"], [true, dataclasses.replace(true, **change), true])


def test_moments() -> None:
    true = Moments(30, np.zeros(2), np.array([[4.0, 1.0], [1.0, 9.0]]))
    check_answer(true)
    for scatter in ([[4.0, 7.0], [7.0, 9.0]], [[4.0, 1.0], [1.0, NUMBER * 10]]):
        with pytest.raises(MessageError, match=r"moments must|no table gives"):
            check_answer(dataclasses.replace(true, scatter=np.array(scatter)))


def test_every_number_of_every_answer_is_bounded() -> None:
    """Whatever an answer is made of: each number of it in turn is a lie."""
    for _, answer in cohort()[1]:
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
                        check_answer(dataclasses.replace(answer, **{field.name: lie}))


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
