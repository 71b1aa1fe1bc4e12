"""A federation over real connections: same bits as a simulation, and what happens when something fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

import fpdfp
from fpdfp.cohorts.requests import Job, Place
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.errors import AbsentError, RefusalError
from fpdfp.federation import keys
from fpdfp.federation.agent import respond
from fpdfp.federation.analyst import Asking, gather_answers
from fpdfp.federation.framing import Message, clock_difference
from fpdfp.federation.keys import About
from fpdfp.federation.rollback import ReplayGuard
from tests.federation_trial import (
    SITES,
    AgentThread,
    HubThread,
    Relay,
    Trial,
    TrialDesk,
    parts,
    running,
)
from tests.helpers import graph_guided, prepare


@pytest.fixture(scope="module")
def whole() -> fpdfp.Problem:
    return graph_guided(clients=3, rows=30, d=12)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, whole: fpdfp.Problem) -> Iterator[Trial]:
    trial = Trial(tmp_path_factory.mktemp("federation"))
    with running(trial, [TrialDesk(part) for part in parts(whole)]):
        yield trial


@pytest.mark.parametrize("method", [None, fpdfp.FPDFP()], ids=["default", "FPDFP"])
def test_same_bits_as_a_simulation(shared: Trial, whole: fpdfp.Problem, method: Any) -> None:
    engine = shared.engine()
    there = fpdfp.Problem(engine.losses(), whole.penalty, whole.linop)
    options: dict[str, Any] = {"rounds": 15, "compressor": fpdfp.QSGD(5), "seed": 3}
    expected = fpdfp.solve(whole, method, **options)
    result = fpdfp.solve(there, method, engine=engine, **options)
    np.testing.assert_array_equal(result.x, expected.x)
    np.testing.assert_array_equal(result.v, expected.v)
    assert (result.traffic.up, result.traffic.down) == (expected.traffic.up, expected.traffic.down)
    assert engine.totals.absent == engine.totals.refused == 0
    assert engine.link.usage.latency is not None
    assert set(engine.link.usage.sites) == set(SITES)


def problem_at(engine: Any, whole: fpdfp.Problem) -> fpdfp.Problem:
    return fpdfp.Problem(engine.losses(), whole.penalty, whole.linop)


def test_long_messages_are_carried_in_parts(shared: Trial) -> None:
    body = np.random.default_rng(0).bytes(9_000_001)
    came = shared.asking.ask("echo", {key: {"kind": "echo", "body": body} for key in SITES}, 60.0)
    assert [came[site]["reply"]["body"] == body for site in SITES] == [True] * 3
    assert shared.link.usage.bandwidth is not None


def test_a_reply_that_is_too_long_is_dropped(shared: Trial) -> None:
    trees = {"north": {"kind": "echo", "body": bytes(4_000_000)}, "east": {"kind": "echo", "body": b"short"}}
    came = shared.asking.ask("echo", trees, 60.0, limit=1 << 21)
    assert "bytes, more than any that was asked for" in str(came["north"])
    assert came["east"]["reply"]["body"] == b"short"


def test_what_a_site_refuses_is_told_in_its_words(shared: Trial) -> None:
    with pytest.raises(RefusalError, match=r"^east refuses: this site has 5 rows, and needs 10$"):
        gather_answers(
            shared.asking, "refused", {"north": {"kind": "echo", "body": b""}, "east": {"kind": "policy"}}, 9
        )


def test_errors_of_a_site_say_nothing_of_its_data(shared: Trial, caplog: pytest.LogCaptureFixture) -> None:
    came = shared.asking.ask("bad", {"north": {"kind": "echo"}, "east": {"kind": "strange"}}, 9)
    assert str(came["north"]) == "KeyError at the site; its log says more"
    assert str(came["east"]) == "a request of the kind 'strange' is not known"


def test_older_requests_are_refused_and_the_server_catches_up(shared: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {"north": {"kind": "echo", "body": b"1"}}
    assert shared.asking.ask("clock", tree, 9)["north"]["reply"]
    late = Asking(shared.link)  # another process of the analyst, whose clock has gone back by a day
    day = 24 * 3600 * 10**9
    monkeypatch.setattr("fpdfp.federation.analyst.time.time_ns", lambda real=time.time_ns: real() - day)
    assert "older than one that was answered" in str(late.ask("clock", tree, 9)["north"])
    assert late.ask("clock", tree, 9)["north"]["reply"] == {"body": b"1"}


def test_sites_learn_who_asks(tmp_path: Path, shared: Trial) -> None:
    seen: list[Any] = []
    fingerprint = keys.fingerprint(shared.study.analyst.credentials.certificate)
    member = shared.study.registry.find(fingerprint)
    assert member is not None
    assert member.name == "coordinator"
    message = Message("ask", {"id": 1, "asker": {"name": "ada", "role": "analyst", "fingerprint": fingerprint}},
                      pack({"kind": "x", "run": "r", "sequence": 1, "site": "north"}))  # fmt: skip

    class Desk:
        def answer(self, asked: dict[str, Any], asker: Any) -> dict[str, Any]:
            seen.append(asker)
            return {"reply": {}}

    about = About("study", "site", "north", "")
    assert unpack(respond(message, about, Desk(), ReplayGuard()))["reply"] == {}
    assert seen == [("ada", "analyst", fingerprint, "study")]
    other = unpack(respond(message, about._replace(name="east"), Desk(), ReplayGuard()))
    assert other["error"] == "a request is for 'north', this is east"


def test_an_absent_site_is_named(shared: Trial) -> None:
    came = shared.asking.ask("x", {"west": {"kind": "echo"}}, 9)
    assert str(came["west"]) == "the study has no site of this name"
    with pytest.raises(AbsentError, match="west: the study has no site"):
        gather_answers(shared.asking, "x", {"west": {"kind": "echo"}}, 9)


@pytest.mark.parametrize("what", ["site", "hub"])
def test_same_bits_after_a_restart_in_the_middle(
    tmp_path: Path, whole: fpdfp.Problem, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A site, or the hub, ends in the middle of a round, and comes back having forgotten everything."""
    trial = Trial(tmp_path)
    options: dict[str, Any] = {"rounds": 12, "compressor": fpdfp.QSGD(5), "seed": 3}
    expected = fpdfp.solve(whole, fpdfp.FPDFP(), **options)
    losses = parts(whole)
    with contextlib.ExitStack() as outer, contextlib.ExitStack() as hubs, contextlib.ExitStack() as east:
        hubs.enter_context(HubThread(trial.study))
        outer.callback(trial.link.close)
        for site, one in zip(SITES, losses, strict=True):
            (east if site == "east" else outer).enter_context(AgentThread(trial.join(site), TrialDesk(one)))
        trial.wait()

        def disturb(run: fpdfp.Run) -> None:
            if run.round == 6 and what == "hub":
                hubs.close()
                hubs.enter_context(HubThread(trial.study))
            elif run.round == 6:
                east.close()
                east.enter_context(AgentThread(trial.join("east"), TrialDesk(losses[1])))

        engine = trial.engine()
        result = fpdfp.solve(problem_at(engine, whole), fpdfp.FPDFP(), engine=engine, callbacks=[disturb], **options)
        np.testing.assert_array_equal(result.x, expected.x)
        np.testing.assert_array_equal(result.v, expected.v)
        if what == "site":
            assert engine.totals.healed > 0


def test_a_site_that_dies_while_it_works(
    tmp_path: Path, whole: fpdfp.Problem, caplog: pytest.LogCaptureFixture
) -> None:
    trial = Trial(tmp_path)
    losses = parts(whole)
    started: list[AgentThread] = []

    def die(asked: dict[str, Any]) -> None:
        if asked["request"].get("update", {}).get("round") == 4:
            started[1].desk.trouble = None
            line = started[1].agent._stream
            assert line is not None
            line.close()  # as if the process had been killed: no word of farewell

    desks = [TrialDesk(losses[0]), TrialDesk(losses[1], die), TrialDesk(losses[2])]
    options: dict[str, Any] = {"rounds": 8, "compressor": fpdfp.QSGD(5), "seed": 3}
    expected = fpdfp.solve(whole, fpdfp.FPDFP(), **options)
    with running(trial, desks) as agents:
        started += agents
        engine = trial.engine()
        result = fpdfp.solve(problem_at(engine, whole), fpdfp.FPDFP(), engine=engine, **options)
        np.testing.assert_array_equal(result.x, expected.x)
        assert engine.totals.absent > 0
        assert "east is absent: its connection was lost before it had answered" in caplog.text


@pytest.mark.parametrize("cut", ["to the site", "to the hub"])
def test_a_connection_cut_in_the_middle_of_a_message(
    tmp_path: Path, whole: fpdfp.Problem, cut: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The network drops the connection of one site when so many bytes have passed; the next one stays."""
    trial = Trial(tmp_path)
    body = np.random.default_rng(0).bytes(3_000_000)
    with HubThread(trial.study), Relay(trial.study.port) as relay, contextlib.ExitStack() as stack:
        stack.callback(trial.link.close)
        identity = trial.join("north")
        identity.about = identity.about._replace(address=f"127.0.0.1:{relay.port}")
        stack.enter_context(AgentThread(identity, TrialDesk(parts(whole)[0])))
        trial.wait(["north"])
        relay.cut(up=cut == "to the hub", after=1_500_000)
        first = trial.asking.ask("echo", {"north": {"kind": "echo", "body": body}}, 20.0)["north"]
        assert str(first) == "its connection was lost before it had answered"
        trial.wait(["north"])
        again = trial.asking.ask("echo", {"north": {"kind": "echo", "body": body}}, 20.0)["north"]
        assert again["reply"]["body"] == body


def test_the_analysts_connection_is_cut(tmp_path: Path, whole: fpdfp.Problem) -> None:
    """What was asked is sent again over the next connection, within the same exchange."""
    trial = Trial(tmp_path)
    body = np.random.default_rng(0).bytes(3_000_000)
    with running(trial, [TrialDesk(part) for part in parts(whole)]), Relay(trial.study.port) as relay:
        trial.link.close()
        trial.link.identity.about = trial.link.identity.about._replace(address=f"127.0.0.1:{relay.port}")
        relay.cut(up=False, after=1_500_000)
        came = trial.asking.ask("echo", {key: {"kind": "echo", "body": body} for key in SITES}, 20.0)
        assert all(came[site]["reply"]["body"] == body for site in SITES)
        assert len(relay.seen) == 2
        trial.link.close()


def numbers_in(tree: Any) -> Iterator[bytes]:
    """Every float64 of a tree's arrays, and every message of at least eight bytes, as they stand in a parcel."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list):
        for one in tree:
            yield from numbers_in(one)
    elif isinstance(tree, bytes) and len(tree) >= 8:
        yield tree
    elif isinstance(tree, np.ndarray) and tree.dtype == np.float64:
        yield from (number.tobytes() for number in tree.ravel() if number != 0 and number.tobytes()[:4] != bytes(4))


def test_nothing_can_be_read_on_the_wire(tmp_path: Path, whole: fpdfp.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who sees every byte between a site and the hub finds no row, no model, no message and no name."""
    trial, sent = Trial(tmp_path), list[bytes]()
    real = respond

    def keep(*given: Any) -> bytes:
        sent.append(real(*given))
        return sent[-1]

    monkeypatch.setattr("fpdfp.federation.agent.respond", keep)
    losses = parts(whole)
    with HubThread(trial.study), Relay(trial.study.port) as relay, contextlib.ExitStack() as stack:
        stack.callback(trial.link.close)
        identity = trial.join("north")
        identity.about = identity.about._replace(address=f"127.0.0.1:{relay.port}")
        stack.enter_context(AgentThread(identity, TrialDesk(losses[0])))
        trial.wait(["north"])
        engine = trial.engine(["north"])
        result = fpdfp.solve(problem_at(engine, whole), rounds=3, engine=engine)
        assert result.certificate.gap is not None
    data = set(numbers_in(losses[0]._rows.X))  # type: ignore[attr-defined]
    x = set(numbers_in(result.x))
    ours = {number for parcel in sent for number in numbers_in(unpack(parcel))}
    words = {b"north", b"fpdfp", b"ShiftedPDFP"}
    assert len(data) == 30 * 12
    assert len(x) >= 6
    assert len(ours) > 20
    up, down = (b"".join(map(bytes, streams)) for streams in zip(*relay.seen, strict=True))
    # All that north sent went through here, and each connection begins with the handshake of TLS.
    assert len(up) > sum(map(len, sent))
    assert all(first[:3] == b"\x16\x03\x01" and back[:2] == b"\x16\x03" for first, back in relay.seen)
    assert [needle for needle in words | data | x | ours if needle in up or needle in down] == []
    # The same search finds them where nothing is encrypted.
    plain = b"".join(sent)
    assert all(needle in plain for needle in ours | {b"north"})
    assert all(needle in pack({"x": result.x, "rows": b"".join(data)}) for needle in x | data)


def test_the_longest_reply_is_that_of_the_largest_site(shared: Trial, whole: fpdfp.Problem) -> None:
    algorithm = prepare(graph_guided(clients=5), fpdfp.FPDFP(0.1))
    engine = shared.engine()
    sizes = []
    for run in ("first", "second"):
        for numbers in (np.arange(4), np.arange(4, 5)):
            engine.key(Job(algorithm, {}, None, Place(numbers, None, 1.0, 0)), run)
            sizes.append(engine._longest)
    assert sizes[0] == sizes[1] == sizes[2] == sizes[3] < 1 << 28


def test_requests_that_nobody_waits_for_are_left_out(tmp_path: Path, whole: fpdfp.Problem) -> None:
    trial = Trial(tmp_path)
    done: list[int] = []

    def slow(asked: dict[str, Any]) -> None:
        done.append(asked["body"])
        time.sleep(0.5 if asked["body"] == 1 else 0.0)

    desks = [TrialDesk(None, slow), TrialDesk(None), TrialDesk(None)]
    with running(trial, desks):
        for number in (1, 2, 3):
            trial.asking.ask("slow", {"north": {"kind": "echo", "body": number}}, 0.1)
        came = trial.asking.ask("slow", {"north": {"kind": "echo", "body": 4}}, 10.0)
        assert came["north"]["reply"]["body"] == 4
        assert done == [1, 4]


@pytest.mark.parametrize("needed", [None, 2])
def test_a_refusal_in_the_middle_ends_the_run_unless_others_are_enough(
    tmp_path: Path, whole: fpdfp.Problem, needed: int | None
) -> None:
    trial = Trial(tmp_path)
    desks = [TrialDesk(part) for part in parts(whole)]
    desks[1].refuses = 3
    with running(trial, desks):
        engine = trial.engine(min_clients=needed)
        options: dict[str, Any] = {"rounds": 6, "evaluate_every": 6, "engine": engine}
        if needed is None:
            with pytest.raises(RefusalError, match=r"^east refuses: this site has told enough$"):
                fpdfp.solve(problem_at(engine, whole), fpdfp.FPDFP(), **options)
        else:
            assert fpdfp.solve(problem_at(engine, whole), fpdfp.FPDFP(), **options).rounds == 6
        assert engine.refusals[0] == ("east", "this site has told enough")


def test_a_site_that_came_back_and_refuses_ends_the_run(tmp_path: Path, whole: fpdfp.Problem) -> None:
    """It is asked alone then, and to ask it again and again would be of no use."""
    trial = Trial(tmp_path)
    desks = [TrialDesk(part) for part in parts(whole)]
    desks[1].refuses = 1
    with running(trial, desks):
        engine = trial.engine()
        engine.losses()
        with pytest.raises(RefusalError, match="told enough"):
            engine.carry({1: {"update": {"round": 1}}}, 5.0)


def test_a_clock_is_compared_when_it_was_said_and_not_later() -> None:
    said = {"time": time.time() - 3600.0}
    assert clock_difference(said, said["time"] + 5.0) is None
    assert clock_difference(said) == "1.0 hours behind this machine's"
