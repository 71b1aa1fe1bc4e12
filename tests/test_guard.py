"""The guard is closed: every question and every operation of the data is listed, and what is not is refused."""

from __future__ import annotations

import contextlib
import inspect
import logging
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.cohorts.question import PUBLIC, Reveals, questions
from fpdfp.errors import Refusal
from fpdfp.federation import guard
from fpdfp.federation.guard import ALL, AT_POINT, AT_POINTS, KINDS, PAIRS, REFUSED, SUMS, GuardedData, Model
from fpdfp.federation.policy import Policy
from fpdfp.formula import tree
from fpdfp.losses.base import Losses
from tests import attacks
from tests.desks import guarded

#: What a site's question of a round uses of the site itself, and not of its losses.
OF_THE_SITE = frozenset({"find", "find_all", "agree", "receive", "work", "certify", "remember"})


def kinds_of_losses() -> list[type[Any]]:
    found: list[type[Any]] = [Losses]
    for kind in found:
        below: list[type[Any]] = kind.__subclasses__()
        found += [one for one in below if one.__module__.startswith("fpdfp.")]
    return found


class TestClosed:
    def test_every_question_declares_operations_that_the_guard_knows(self) -> None:
        for name, kind in questions().items():
            assert isinstance(kind.reveals, Reveals), name
            if kind.reveals.of in ("losses", "run"):
                assert kind.reveals.uses <= ALL | OF_THE_SITE, (name, kind.reveals.uses - ALL)

    def test_operations_are_in_one_group_each(self) -> None:
        groups = [AT_POINT, AT_POINTS, PAIRS, SUMS, frozenset(REFUSED)]
        assert sum(map(len, groups)) == len(ALL)
        assert not ALL & PUBLIC

    def test_every_other_attribute_of_losses_is_refused(self) -> None:
        X = np.random.default_rng(0).normal(size=(60, 2))
        data = guarded(fpdfp.losses.Logistic(X, np.arange(60) % 2))
        names = {name for kind in kinds_of_losses() for name, _ in inspect.getmembers(kind)}
        names |= set(vars(fpdfp.losses.Logistic(X, np.arange(60) % 2))) | {"_rows", "rows_of", "new_method"}
        closed = sorted(name for name in names - ALL - PUBLIC if not name.startswith("__"))
        assert len(closed) > 30
        for name in closed:
            if name in ("_model", "_uses"):
                continue
            with pytest.raises(Refusal, match="does not declare"):
                getattr(data, name)

    def test_an_operation_that_a_question_does_not_declare_is_refused(self) -> None:
        losses = fpdfp.losses.Logistic(np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2)
        data: Any = GuardedData(Model(losses, Policy()), frozenset({"values"}))
        assert data.values(np.zeros(2), np.arange(1)).shape == (1,)
        for name in sorted(ALL - {"values"}):
            with pytest.raises(Refusal, match="does not declare"):
                getattr(data, name)

    def test_every_kind_of_request_is_of_a_kind_of_the_policy(self) -> None:
        assert set(KINDS.values()) <= {*Policy().kinds, "tests", "products"}
        table = {name for name, kind in questions().items() if kind.reveals.of == "table"}
        assert table <= set(KINDS)

    def test_every_node_of_formulas_is_decided_on(self) -> None:
        """A new node of expressions stands nowhere before somebody has said where."""
        nodes = {name for name, one in vars(tree).items() if isinstance(one, type) and one.__module__ == tree.__name__}
        plain = {"Column", "Missing"}
        refused = {"Number", "Text", "Comparison", "Logic", "Standard"}
        decided = {"Call", "Arithmetic", "Spline", "Coded", "Numeric", "Categorical", "Survival", "Formula"}
        # Of these there are columns, where a site has approved them.
        decided |= {"Cut", "Recode", "Elapsed", "Converted"}
        # Of a formula alone, and with centres that are near the values.
        decided |= {"Knotless", "Poly"}
        assert nodes == plain | refused | decided
        one = tree.Column("age")
        examples = [tree.Number(1.0), tree.Text("x"), tree.Comparison("==", one, one), tree.Logic("and", one, one),
                    tree.Standard("center", one), tree.Call("exp", one), tree.Call("abs", one), tree.Call("not", one),
                    tree.Arithmetic("*", one, one), tree.Arithmetic("/", one, tree.Number(2.0)),
                    tree.Arithmetic("**", one, tree.Number(40.0)), tree.Call("log", tree.Call("log", one))]  # fmt: skip
        for node in examples:
            with pytest.raises(Refusal, match="neither a column nor"):
                guard._check_factor(tree.Numeric("x", node), Policy(), {})


class TestGenerator:
    """The attack generator in its short form; `make attack` runs it for minutes."""

    @pytest.fixture(autouse=True)
    def quiet(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.CRITICAL, "fpdfp.federation")

    def test_the_default_policy(self) -> None:
        found = attacks.run(Policy(), 300, 1000)
        assert (found.answers.total() >= 300, found.rows) == (True, 0)

    @pytest.mark.parametrize(
        "rule", ["places", "cells", "leverage", "weights", "domain", "folds", "constants", "hiding"]
    )
    def test_without_a_rule(self, rule: str) -> None:
        assert attacks.run(Policy(off=frozenset({rule})), 10**6, 2000, until_found=True).rows == 1

    def test_every_question_is_asked(self) -> None:
        """Rounds, certificates and memories have operations of the data in place of answers of their own."""
        rng, asked = np.random.default_rng(0), set[str]()
        for _ in range(600):
            for make in (lambda: attacks.asked_at(rng, np.zeros(3)), lambda: attacks.asked_of_a_table(rng)):
                with contextlib.suppress(ValueError):
                    asked.add(make().name)
        assert set(questions()) - asked == {"update", "answers", "memory"}

    @pytest.mark.slow
    @pytest.mark.parametrize("rule", attacks.NEEDED)
    def test_every_rule_is_needed(self, rule: str) -> None:
        assert attacks.run(Policy(off=frozenset({rule})), 10**6, 20_000, until_found=True).rows == 1


def test_an_answer_that_nobody_has_declared_does_not_leave() -> None:
    with pytest.raises(Refusal, match="'Rows'"):
        guard.protect(type("Rows", (), {})(), Policy())
