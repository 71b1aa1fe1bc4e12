"""Damaged messages are refused, or give an array like any other."""

from __future__ import annotations

from typing import Any

import pytest

from fpdfp.cohorts.question import questions
from fpdfp.cohorts.requests import classes
from tests import fuzz, fuzz_replies, fuzz_requests
from tests.fuzz_requests import at, places


def test_damaged_messages_do_no_harm() -> None:
    fuzz.prepare()
    outcome = fuzz.run("tests.fuzz", 0, 10_000, seed=0)
    assert outcome.failures == []
    assert 0.02 * outcome.total < outcome.accepted < 0.5 * outcome.total  # they get past the checksum, but not far


@pytest.mark.parametrize("kind", [fuzz_requests, fuzz_replies])
def test_forged_requests_and_replies_do_no_harm(kind: Any) -> None:
    kind.prepare()
    outcome = fuzz.run(kind.__name__, 0, 2000, seed=0)
    assert outcome.failures == []
    assert 0.02 * outcome.total < outcome.accepted < 0.5 * outcome.total


def test_every_class_that_may_be_sent_is_forged() -> None:
    trees = [recorded.tree for recorded in fuzz_requests.corpus()]
    found = {at(tree, path) for tree in trees for path in places(tree) if path[-1] == "class"}
    assert found == set(classes())


def test_every_question_about_losses_and_runs_is_forged() -> None:
    asked = {name for recorded in fuzz_requests.corpus() for name in recorded.tree}
    assert {name for name, kind in questions().items() if kind.reveals.of != "table"} <= asked
