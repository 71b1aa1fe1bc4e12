"""Damaged messages are refused, or give an array like any other."""

from __future__ import annotations

from tests import fuzz


def test_damaged_messages_do_no_harm() -> None:
    fuzz.prepare()
    outcome = fuzz.run(0, 20_000, seed=0)
    assert outcome.failures == []
    assert 0.02 * outcome.total < outcome.accepted < 0.5 * outcome.total  # they get past the checksum, but not far
