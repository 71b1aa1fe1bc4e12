"""Variables that analysts propose: a person at the site sees what they are, and models may use those with a yes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fpdfp.federation.approvals import FILE, MOST, MOST_EACH
from fpdfp.federation.commands import app
from fpdfp.federation.guard import RequestGuard
from fpdfp.federation.policy import Policy
from fpdfp.federation.table import SiteTable
from fpdfp.formula.tree import Column, Comparison, Number
from tests.desks import ANALYST
from tests.test_designs import ask, design, model


@pytest.fixture
def table() -> SiteTable:
    rng = np.random.default_rng(0)
    return SiteTable.read(pd.DataFrame({"age": rng.integers(30, 90, 400), "died": rng.integers(0, 2, 400)}))


@pytest.fixture
def guard(table: SiteTable, tmp_path: Path) -> Iterator[RequestGuard]:
    with RequestGuard("north", table, Policy(), tmp_path) as made:
        yield made


def propose(guard: RequestGuard, name: Any = None, text: Any = None) -> Any:
    reply = guard.answer({"kind": "propose", "run": "r", "name": name, "text": text}, ANALYST)
    return reply.get("reply", reply)


def command(*arguments: str) -> str:
    found = CliRunner().invoke(app, ["approve", *arguments])
    assert found.exit_code == 0, found.output
    return found.output


def test_from_the_proposal_to_the_model(guard: RequestGuard) -> None:
    elderly = Comparison(">=", Column("age"), Number(65.0))
    assert "propose it" in ask(guard, model(design(elderly)))["refused"]
    assert propose(guard, "elderly", "age >= 65") == {"elderly": "waiting"}
    assert "elderly = age >= 65\n    true in 1" in command(str(guard.folder))
    assert "proposed by ann" in command(str(guard.folder), "elderly", "later")
    assert propose(guard) == {"elderly": "not yet"}
    assert "propose it" in ask(guard, model(design(elderly)))["refused"]
    assert "does not allow" not in str(ask(guard, model(design(elderly))))
    command(str(guard.folder), "elderly", "yes")
    # As it is written, and by its name.
    assert "reply" in ask(guard, model(design(elderly)), model="written")
    assert "reply" in ask(guard, model(design(Column("elderly"))), model="named")
    other = Comparison(">=", Column("age"), Number(66.0))
    assert "propose it" in ask(guard, model(design(other)), model="other")["refused"]
    command(str(guard.folder), "elderly", "no")
    assert "propose it" in ask(guard, model(design(elderly)), model="again")["refused"]


def test_a_policy_defines_variables(table: SiteTable, tmp_path: Path) -> None:
    policy = Policy(variables={"elderly": "age >= 65", "curve": "bs(age, knots=[50], lower_bound=18, upper_bound=99)"})
    with RequestGuard("north", table, policy, tmp_path) as guard:
        assert propose(guard) == {"elderly": "yes", "curve": "yes"}
        assert "reply" in ask(guard, model(design(Column("elderly"))))
        columns = guard.answer({"kind": "schema", "run": "r", "question": {"columns": None}}, ANALYST)["reply"][
            "columns"
        ]
        assert [one["name"] for one in columns] == ["age", "died", "elderly"]


def test_proposals_expire_and_are_bounded(guard: RequestGuard) -> None:
    propose(guard, "elderly", "age >= 65")
    path = guard.folder / FILE
    tree = json.loads(path.read_text())
    tree["elderly"]["day"] = "2020-01-01"
    path.write_text(json.dumps(tree))
    assert propose(guard) == {"elderly": "expired"}
    assert propose(guard, "elderly", "age >= 70") == {"elderly": "waiting"}
    for k in range(MOST_EACH - 1):
        propose(guard, f"v{k}", "age >= 65")
    assert "proposals of yours wait" in propose(guard, "more", "age >= 65")["error"]
    for k in range(MOST_EACH - 1, MOST - 1):
        asked = {"kind": "propose", "run": "r", "name": f"v{k}", "text": "age >= 65"}
        assert "reply" in guard.answer(asked, ANALYST._replace(name=f"ann{k // MOST_EACH}"))
    last = {"kind": "propose", "run": "r", "name": "more", "text": "age >= 65"}
    assert "as many proposals" in guard.answer(last, ANALYST._replace(name="bob"))["error"]
    for name, text in (("a b", "age > 1"), ("age", "age > 1"), ("x", "age > 1\n"), ("x", "age >"), ("x", "a" * 501)):
        assert "error" in propose(guard, name, text)
    assert "another definition" in propose(guard, "elderly", "age >= 71")["error"]


def test_a_variable_near_an_approved_one_is_shown_with_it(guard: RequestGuard, table: SiteTable) -> None:
    """Two cuts on both sides of one person's age: each is harmless, and both tell that person."""
    age = np.sort(table.columns["age"].numbers)
    low, high = float(age[-1]), float(age[-1]) + 1.0
    propose(guard, "elderly", f"age >= {low}")
    guard.approvals.answer("elderly", "yes")
    propose(guard, "older", f"age >= {high}")
    propose(guard, "young", "age < 0")
    counts = {name: one.counts for name, one in guard.approvals.read().items()}
    rows = int((age == low).sum())
    assert f"differs from elderly in {rows} rows, which two models would tell" in counts["older"]
    assert "differs" not in counts["elderly"]
