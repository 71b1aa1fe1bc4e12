"""What leaves a site: the copies that it keeps, what waits for a person, and what a person is shown."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fpdfp.cohorts.serialization import pack
from fpdfp.federation import outbox
from fpdfp.federation.commands import app
from fpdfp.federation.guard import NOT_RELEASED, OUTBOX
from fpdfp.federation.guard import RequestGuard as Desk
from fpdfp.federation.outbox import Envelope, open_envelope, seal
from fpdfp.federation.policy import Policy
from tests.desks import ANALYST, Desks, close_all, make_desk

COPIES = Policy(copies=True)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_all()


def desk_with(policy: Policy, folder: Path) -> Desk:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(200, 3)), np.ones(200)])
    return make_desk(X, (X[:, 0] + rng.logistic(size=200) > 0).astype(float), folder, policy)


#: By this policy the answer to a question about columns waits for a person.
HELD = Policy(hold=("schema",))


def ask(desk: Desk, sequence: int = 1) -> dict[str, Any]:
    return desk.answer({"kind": "schema", "run": "r", "sequence": sequence, "question": {}}, ANALYST)


def files_in(desk: Desk, suffix: str = ".parcel") -> list[Path]:
    return sorted((desk.folder / OUTBOX).glob(f"*{suffix}"))


def held(desk: Desk, meanwhile: Callable[[Path], Any]) -> dict[str, Any]:
    """The reply to a request, for which something happens while it is held."""
    replies: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: replies.append(ask(desk)))
    thread.start()
    until = time.monotonic() + 20
    while not files_in(desk, ".waiting") and time.monotonic() < until:
        time.sleep(0.01)
    assert not replies
    meanwhile(files_in(desk)[0])
    thread.join(20)
    return replies[0]


def test_the_outbox_has_what_left(tmp_path: Path) -> None:
    desk = desk_with(COPIES, tmp_path)
    replies = [ask(desk, sequence) for sequence in (1, 2)]
    assert [open_envelope(path.read_bytes()) for path in files_in(desk)] == [
        Envelope("r", sequence, "north", reply) for sequence, reply in enumerate(replies, start=1)
    ]
    assert not files_in(desk, ".waiting")


def test_without_copies_nothing_is_kept(tmp_path: Path) -> None:
    desk = desk_with(Policy(), tmp_path)
    assert "reply" in ask(desk)
    assert files_in(desk) == []


def test_a_reply_that_is_held_leaves_when_it_is_released(tmp_path: Path) -> None:
    desk = desk_with(HELD, tmp_path)
    desk.wait = 30.0
    reply = held(desk, outbox.release)
    assert "reply" in reply
    assert [open_envelope(path.read_bytes()).contents for path in files_in(desk)] == [reply]
    assert len(list((desk.folder / OUTBOX).iterdir())) == 1


@pytest.mark.parametrize("how", ["refused", "forgotten"])
def test_nothing_of_a_reply_that_is_not_released_leaves(how: str, tmp_path: Path) -> None:
    if how == "refused":
        desk = desk_with(HELD, tmp_path)
        desk.wait = 30.0
        reply = held(desk, outbox.refuse)
    else:
        desk = desk_with(HELD, tmp_path)
        desk.wait = 0.3
        reply = ask(desk)
    assert reply == {"refused": NOT_RELEASED}
    [refused] = files_in(desk, ".refused")
    assert "reply" in open_envelope(refused.read_bytes()).contents
    assert files_in(desk) == files_in(desk, ".waiting") == []


def test_what_cannot_be_kept_does_not_leave(tmp_path: Path) -> None:
    desk = desk_with(COPIES, tmp_path)
    (desk.folder / OUTBOX).write_text("no folder")
    reply = ask(desk)
    assert set(reply) == {"error"}
    assert reply["error"].startswith("this site cannot write to its disk")


def test_the_outbox_is_its_owners_whatever_the_umask(tmp_path: Path) -> None:
    desk = desk_with(COPIES, tmp_path)
    before = os.umask(0)
    try:
        ask(desk)
    finally:
        os.umask(before)
    assert (desk.folder / OUTBOX).stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in files_in(desk)] == [0o600]


def test_every_byte_of_a_message_is_shown(tmp_path: Path) -> None:
    desk = desk_with(COPIES, tmp_path)
    Desks([desk]).fit(rounds=2)
    parcels = [path.read_bytes() for path in files_in(desk)]
    parcel = [one for one in parcels if "update" in open_envelope(one).contents.get("reply", {})][-1]
    shown = list(outbox.lines(parcel))
    assert shown[0] == f"{len(parcel)} bytes from north: request 1 of run {open_envelope(parcel).run}"
    at = shown.index("byte by byte:")
    assert bytes.fromhex("".join(line[10:57] for line in shown[at + 1 :])) == parcel
    text = "\n".join(shown[:at])
    assert "it tells a round's work" in text
    assert "which stand for float64 of shape (4,): [" in text
    assert text.count("reply/update/frames/") == 1
    assert "  reply/update/bits: int64 of shape (1, 1): [[" in text
    assert shown[at + 1].endswith("  " + "".join(chr(one) if 32 <= one < 127 else "." for one in parcel[:16]))
    assert open_envelope(parcel).run in "".join(line[59:] for line in shown[at + 1 :])


def test_texts_and_numbers_are_shown() -> None:
    parcel = seal(Envelope("r", 3, "north", {"a": {"b": 1.5, "c": "text"}, "d": [1, 2], "e": b"xy", "f": bytes(40)}))
    assert list(outbox.lines(parcel))[1:6] == [
        "  a/b: 1.5", "  a/c: 'text'", "  d: [1, 2]", "  e: 2 bytes, 7879", f"  f: 40 bytes, {'00' * 16}…",
    ]  # fmt: skip


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_inspect(tmp_path: Path) -> None:
    desk = desk_with(COPIES, tmp_path)
    ask(desk)
    [path] = files_in(desk)
    done = invoke("inspect", path)
    assert done.exit_code == 0
    assert done.output.splitlines() == [str(path), *outbox.lines(path.read_bytes())]
    parcel = path.read_bytes()
    (tmp_path / "damaged").write_bytes(parcel[:50] + bytes([parcel[50] ^ 1]) + parcel[51:])
    (tmp_path / "no envelope").write_bytes(pack([1]))
    for name, words in (
        ("damaged", "checksum is wrong"), ("no envelope", "not an envelope of fpdfp"), ("missing", "No such file"),
    ):  # fmt: skip
        done = invoke("inspect", tmp_path / name)
        assert done.exit_code == 1
        assert words in done.output


def test_the_commands_release_and_refuse(tmp_path: Path) -> None:
    desk = desk_with(HELD, tmp_path)
    desk.wait = 30.0
    reply = held(desk, lambda path: invoke("release", path))
    assert "reply" in reply
    [path] = files_in(desk)
    for command in ("release", "refuse"):
        done = invoke(command, path)
        assert done.exit_code == 1
        assert "is not waiting to be released" in done.output
    assert open_envelope(path.read_bytes()).contents == reply  # still what left
    path.unlink()
    assert held(desk, lambda path: invoke("refuse", path.parents[1])) == {"refused": NOT_RELEASED}
