"""Sealed messages: who runs the hub can neither read, change nor replay them, nor ask in an analyst's name."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fpdfp.errors import ArgumentError, MessageError
from fpdfp.federation.seal import NONCE, NUMBER, SESSION, Pins, Sealer, Secret, Unsealer

pytest.importorskip("cryptography")
ANN, NORTH, SOUTH, EVE = (Secret(bytes([i]) * 32) for i in range(4))


def pair() -> tuple[Sealer, Unsealer]:
    ann = Sealer("study", ANN, {"north": NORTH.public, "south": SOUTH.public})
    north = Unsealer("study", NORTH, {"ann": ANN.public})
    ann.meet("north", north.respond("ann", ann.greet("north"), bytes))
    return ann, north


def test_requests_and_replies_arrive_and_are_short() -> None:
    ann, north = pair()
    for body in (b"", b"a request", bytes(100_000)):
        asked = ann.seal("north", body)
        came: list[bytes] = []

        def answer(plain: bytes) -> bytes:
            came.append(plain)  # noqa: B023
            return b"reply to " + plain

        reply = north.respond("ann", asked, answer)
        assert came == [body]
        assert ann.open("north", asked, reply) == b"reply to " + body
        assert len(asked) - len(body) == 33
        assert len(reply) - len(b"reply to " + body) == 29


def test_a_message_costs_less_than_a_millisecond() -> None:
    ann, north = pair()
    times = []
    for _ in range(200):
        start = time.perf_counter()
        asked = ann.seal("north", bytes(2000))
        ann.open("north", asked, north.respond("ann", asked, bytes))
        times.append(time.perf_counter() - start)
    assert sorted(times)[100] < 1e-3


def test_every_flipped_bit_is_refused_both_ways() -> None:
    ann, north = pair()
    asked = ann.seal("north", b"how many rows?")
    reply = north.respond("ann", asked, lambda _: b"a sum")
    for place in range(1, len(asked)):
        changed = bytearray(asked)
        changed[place] ^= 1
        if place <= SESSION:
            assert north.respond("ann", bytes(changed), bytes) == b"U"
        else:
            with pytest.raises(MessageError, match="changed on its way"):
                north.respond("ann", bytes(changed), bytes)
    for place in range(1, len(reply)):
        changed = bytearray(reply)
        changed[place] ^= 1
        with pytest.raises(MessageError, match="changed on its way"):
            ann.open("north", asked, bytes(changed))


def test_a_reply_opens_under_no_other_request() -> None:
    ann, north = pair()
    first, second = ann.seal("north", b"one"), ann.seal("north", b"one")
    reply = north.respond("ann", first, lambda _: b"old")
    with pytest.raises(MessageError, match="changed on its way"):
        ann.open("north", second, reply)
    assert first[1 + SESSION + NUMBER :] != second[1 + SESSION + NUMBER :]


def test_a_replayed_request_gets_no_second_reply_under_the_same_nonce() -> None:
    ann, north = pair()
    asked = ann.seal("north", b"one")
    replies = {north.respond("ann", asked, lambda _: b"reply")[1 : 1 + NONCE] for _ in range(20)}
    assert len(replies) == 20


def test_nobody_else_can_greet_in_an_analysts_name() -> None:
    north = Unsealer("study", NORTH, {"ann": ANN.public})
    eve = Sealer("study", EVE, {"north": NORTH.public})
    with pytest.raises(MessageError, match="not signed by ann"):
        north.respond("ann", eve.greet("north"), bytes)
    with pytest.raises(MessageError, match="does not know the key of eve"):
        north.respond("eve", eve.greet("north"), bytes)
    with pytest.raises(MessageError, match="answers sealed requests alone"):
        north.respond("ann", b"a plain request", bytes)


def test_a_greeting_is_for_one_site_of_one_study() -> None:
    ann = Sealer("study", ANN, {"north": NORTH.public, "south": SOUTH.public})
    south = Unsealer("study", SOUTH, {"ann": ANN.public})
    with pytest.raises(MessageError, match="not signed by ann"):
        south.respond("ann", ann.greet("north"), bytes)
    other = Unsealer("another study", NORTH, {"ann": ANN.public})
    with pytest.raises(MessageError, match="not signed by ann"):
        other.respond("ann", ann.greet("north"), bytes)


def test_the_hub_cannot_answer_in_a_sites_name() -> None:
    ann = Sealer("study", ANN, {"north": NORTH.public})
    hub = Unsealer("study", EVE, {"ann": ANN.public})
    for reply in (b"H" + bytes(96), b"", b"nothing"):
        ann.greet("north")
        with pytest.raises(MessageError):
            ann.meet("north", reply)
    with pytest.raises(MessageError):
        hub.respond("ann", ann.greet("north"), bytes)  # the greeting names north's key
    # an answer to another greeting
    north = Unsealer("study", NORTH, {"ann": ANN.public})
    old = north.respond("ann", ann.greet("north"), bytes)
    ann.greet("north")
    with pytest.raises(MessageError, match="not signed by north"):
        ann.meet("north", old)


def test_a_session_is_its_analysts_alone() -> None:
    ann, north = pair()
    with pytest.raises(MessageError, match="another analyst's than the hub says"):
        north.respond("bob", ann.seal("north", b"one"), bytes)


def test_a_site_that_was_restarted_is_greeted_again() -> None:
    ann, _ = pair()
    restarted = Unsealer("study", NORTH, {"ann": ANN.public})
    asked = ann.seal("north", b"one")
    assert ann.open("north", asked, restarted.respond("ann", asked, bytes)) is None
    ann.forget("north")
    assert not ann.knows("north")
    ann.meet("north", restarted.respond("ann", ann.greet("north"), bytes))
    again = ann.seal("north", b"one")
    assert ann.open("north", again, restarted.respond("ann", again, bytes)) == b"one"


def test_an_unknown_site_is_not_greeted() -> None:
    with pytest.raises(ArgumentError, match="must have keys that you know"):
        Sealer("study", ANN, {}).greet("north")


def test_pins(tmp_path: Path) -> None:
    pins = Pins(tmp_path)
    assert pins.read() == {}
    pins.add("north", NORTH.public.hex())
    pins.add("south", SOUTH.public.hex())
    pins.add("north", NORTH.public.hex())
    assert pins.read() == {"north": NORTH.public, "south": SOUTH.public}
    with pytest.raises(ArgumentError, match="has another key"):
        pins.add("north", EVE.public.hex())
    with pytest.raises(ArgumentError, match="64 digits"):
        pins.add("west", "ab")
    assert pins.path.stat().st_mode & 0o77 == 0
