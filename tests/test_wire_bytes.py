"""A round costs little more on the wire than its messages: heads are sent once, and what sites share goes out once."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.errors import MessageError
from fpdfp.federation.agent import respond
from fpdfp.federation.framing import (
    MOST,
    PART,
    Message,
    Receiver,
    Sender,
    join_head,
    pack_together,
    split_head,
    unpack_together,
)
from fpdfp.federation.keys import About
from fpdfp.federation.rollback import ReplayGuard
from tests.federation_trial import Trial, TrialDesk, running

WHOLE = {
    "run": "r", "sites": 3, "site": "north", "kind": "echo", "model": "m", "body": 1,
    "request": {"key": "k", "epoch": "e", "features": b"f", "at": {"x": 1}},
}  # fmt: skip
ABOUT = About("study", "site", "north", "")


def asker(fingerprint: str = "ab") -> dict[str, Any]:
    return {"name": "ann", "role": "analyst", "fingerprint": fingerprint}


class TestConversations:
    def test_a_request_comes_out_as_it_was(self) -> None:
        sender, receiver = Sender(), Receiver()
        first = sender.shorten("north", WHOLE, 100)
        assert receiver.read(first, "ab") == {**WHOLE, "sequence": 100}
        sender.note_answer("north", WHOLE, 100)
        short = sender.shorten("north", WHOLE, 103)
        assert set(short) == {"conversation", "number", "body", "request"}
        assert short["request"] == {"at": {"x": 1}}
        assert receiver.read(short, "ab") == {**WHOLE, "sequence": 103}
        assert join_head(*split_head(WHOLE)) == WHOLE

    def test_heads_are_those_of_who_sent_them(self) -> None:
        receiver = Receiver()
        receiver.read({**WHOLE, "sequence": 1}, "ab")
        short = {"conversation": split_head(WHOLE).digest, "number": 1}
        assert receiver.read(short, "cd") is None
        assert receiver.read(short, "ab") is not None

    def test_few_heads_are_kept_and_no_long_ones(self) -> None:
        receiver = Receiver()
        for number in range(MOST + 1):
            receiver.read({"run": f"run {number}", "sequence": number}, "ab")
        assert receiver.read({"conversation": split_head({"run": "run 0"}).digest, "number": 0}, "ab") is None
        assert receiver.read({"conversation": split_head({"run": "run 1"}).digest, "number": 0}, "ab") is not None
        receiver.read({"run": "x" * 2000, "sequence": 1}, "ab")
        assert receiver.read({"conversation": split_head({"run": "x" * 2000}).digest, "number": 0}, "ab") is None

    @pytest.mark.parametrize("forged", [{"conversation": "x"}, {"conversation": b"x", "number": -1},
                                        {"conversation": b"x", "number": True}])  # fmt: skip
    def test_forged_names_are_refused(self, forged: dict[str, Any]) -> None:
        with pytest.raises(MessageError, match="must name its conversation"):
            Receiver().read(forged, "ab")

    def test_a_site_answers_nothing_of_a_head_that_it_does_not_know(self) -> None:
        asked: list[Any] = []
        short = {"conversation": split_head(WHOLE).digest, "number": 1, "body": 1}
        message = Message("ask", {"id": 1, "asker": asker()}, pack(short))
        reply = unpack(respond(message, ABOUT, TrialDesk(None, asked.append), ReplayGuard(), Receiver()))
        assert reply == {"needs_head": True, "conversation": short["conversation"], "number": 1}
        assert asked == []

    def test_an_older_number_of_a_conversation_is_refused(self) -> None:
        heads, seen, desk = Receiver(), ReplayGuard(), TrialDesk(None)
        whole = {name: WHOLE[name] for name in ("run", "sites", "site", "kind", "body")}

        def ask(tree: dict[str, Any]) -> Any:
            return unpack(respond(Message("ask", {"id": 1, "asker": asker()}, pack(tree)), ABOUT, desk, seen, heads))

        assert "reply" in ask({**whole, "sequence": 10})
        short = {"conversation": split_head(whole).digest, "body": 1}
        assert "reply" in ask({**short, "number": 2})
        assert "older than one that was answered (11, 12)" in ask({**short, "number": 1})["error"]


class TestTogether:
    def test_what_sites_share_is_sent_once(self) -> None:
        body = 20 * np.random.default_rng(0).bytes(200)
        message = Message("ask", {"id": 1, "to": [[f"site{i}", 200] for i in range(20)]}, body)
        packed = pack_together(message)
        assert len(packed.body) < 400
        assert unpack_together(packed) == body
        alone = message._replace(about={"id": 1, "to": [["north", len(body)]]})
        assert pack_together(alone) == alone

    @pytest.mark.parametrize("length", [-1, PART + 1, True, "1", 1 << 40])
    def test_lengths_are_bounded(self, length: Any) -> None:
        with pytest.raises(MessageError, match="deflated from at most"):
            unpack_together(Message("ask", {"whole": length}, zlib.compress(bytes(10))))

    @pytest.mark.parametrize("body", [b"x", zlib.compress(bytes(11)), zlib.compress(bytes(9)),
                                      zlib.compress(bytes(10))[:-2], zlib.compress(bytes(10)) + b"x",
                                      zlib.compress(bytes(1 << 26))])  # fmt: skip
    def test_what_is_not_so_long_is_refused(self, body: bytes) -> None:
        with pytest.raises(MessageError, match=r"inflated|deflated from 10 bytes"):
            unpack_together(Message("ask", {"whole": 10}, body))


@pytest.mark.slow
def test_a_round_costs_little_more_than_its_messages(tmp_path: Path) -> None:
    """With 20 sites, 123 features and the default method: it was 5.3 times what is counted."""
    sites, d = 20, 123
    rng = np.random.default_rng(0)
    X = rng.normal(size=(sites * 40, d))
    y = np.where(rng.random(len(X)) < 0.5, 1.0, -1.0)
    losses = fpdfp.losses.Logistic(X, y, clients=np.repeat(np.arange(sites), 40), l2=1e-2)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(1e-3))
    names = [f"site{number}" for number in range(sites)]
    trial = Trial(tmp_path, names)
    with running(trial, [TrialDesk(losses.part(np.array([number]))) for number in range(sites)], names):
        engine, marks = trial.engine(names), list[tuple[int, int]]()
        usage = engine.link.usage

        def mark(run: Any) -> None:
            marks.append((usage.up + usage.down, run.traffic.up + run.traffic.down))

        there = fpdfp.Problem(engine.losses(), problem.penalty, problem.linop)
        result = fpdfp.solve(there, rounds=12, evaluate_every=12, engine=engine, callbacks=[mark])
    (wire, counted), (wire_later, counted_later) = marks[1], marks[-2]
    assert (wire_later - wire) < 1.5 * (counted_later - counted) / 8
    assert result.wire is not None
    assert result.wire.up + result.wire.down >= wire_later - wire
    assert "on the wire" in str(result)
    here = fpdfp.solve(problem, rounds=12, evaluate_every=12)
    np.testing.assert_array_equal(result.x, here.x)
    assert here.wire is None
