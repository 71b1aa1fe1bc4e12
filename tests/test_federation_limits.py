"""What a peer can take of a hub, a site or an analyst is bounded, for each and in all: every resource."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

import grpc

from fpdfp.errors import MessageError
from fpdfp.federation import framing, keys
from fpdfp.federation.connection import Stream, enrol
from fpdfp.federation.framing import HEAD, MAGIC, METHOD, Inbox, LostError, Message, RefusedError, encode, hello
from fpdfp.federation.hub import Limits, Peer, Rate
from fpdfp.federation.keys import Identity, read_invitation
from tests.federation_trial import AgentThread, HubThread, Trial, TrialDesk

#: The limits that a test below is about.
TESTED: set[str] = set()


def about(*names: str) -> Callable[[Any], Any]:
    TESTED.update(names)
    return lambda test: test


class Raw:
    """A stream of bytes of somebody who has a certificate, and does what it wants."""

    def __init__(self, identity: Identity, *, greets: bool = True) -> None:
        own = identity.credentials
        secure = grpc.ssl_channel_credentials(own.authority, own.key, own.certificate)
        self._channel = grpc.secure_channel(identity.about.address, secure, options=framing.CLIENT_OPTIONS)
        self._parts: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.call = self._channel.stream_stream(METHOD)(iter(self._parts.get, None))
        self.ended = threading.Event()
        if greets:
            self.send(*encode(hello(*identity.about[:3])))
            assert next(self.call)

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self._parts.put(part)

    def code(self, seconds: float = 10.0) -> Any:
        """Wait for the end of the stream; return its status."""

        def read() -> None:
            with contextlib.suppress(grpc.RpcError):
                for _ in self.call:
                    pass
            self.ended.set()

        threading.Thread(target=read, daemon=True).start()
        assert self.ended.wait(seconds), "the stream stays open"
        return self.call.code()

    def is_open(self) -> bool:
        return bool(self.call.is_active())

    def close(self) -> None:
        self._parts.put(None)
        self.call.cancel()
        self._channel.close()


@contextlib.contextmanager
def study(folder: Path, **limits: Any) -> Iterator[tuple[Trial, HubThread]]:
    trial = Trial(folder, ["north", "east"])
    with HubThread(trial.study, limits=Limits(**limits)) as hub, contextlib.closing(trial.link):
        yield trial, hub


def wait_until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def beginning(length: int, sent: int) -> bytes:
    """The beginning of a message with a body of some length."""
    head = b'{"kind":"reply","id":1}'
    return HEAD.pack(MAGIC, len(head), length) + head + bytes(sent)


class TestHub:
    @about("hello")
    @pytest.mark.parametrize("said", [b"", b"FPD1", beginning(1 << 20, 10)])
    def test_somebody_who_says_nothing_is_not_waited_for(self, tmp_path: Path, said: bytes) -> None:
        with study(tmp_path, hello=0.3) as (trial, hub):
            silent = Raw(trial.join("north"), greets=False)
            silent.send(*([said] if said else []))
            silent.code()
            wait_until(lambda: not hub.hub._streams)
            silent.close()

    @about("streams", "streams_in_all")
    @pytest.mark.parametrize("limits", [{"streams": 3}, {"streams_in_all": 4}])
    def test_there_are_so_many_streams(self, tmp_path: Path, limits: dict[str, int]) -> None:
        with study(tmp_path, **limits) as (trial, hub):
            assert trial.link.status().study == "study"
            site = trial.join("north")
            streams = [Raw(site, greets=False) for _ in range(3)]
            wait_until(lambda: hub.hub._streams.total() == 4)
            more = Raw(site, greets=False)
            assert more.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            with pytest.raises(LostError, match="too many connections"):
                Stream(site.about, site.credentials)
            for one in (*streams, more):
                one.close()
            wait_until(lambda: hub.hub._streams.total() == 1)
            with Stream(site.about, site.credentials):
                pass

    @about("connections", "connections_at_once")
    def test_a_certificate_connects_so_often(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """Otherwise its refusals fill the hub's log."""
        with study(tmp_path, connections=2.0, connections_at_once=3.0) as (trial, hub):
            site = trial.join("north")
            caplog.clear()
            lost = 0
            for _ in range(20):
                with pytest.raises((LostError, RefusedError), match=r"too many connections|does not serve") as error:
                    Stream(site.about._replace(name="east"), site.credentials)
                lost += error.type is LostError
            assert lost >= 10
            assert caplog.text.count("a connection is refused") == 20 - lost
            time.sleep(1.0)
            wait_until(lambda: not hub.hub._streams)

    @about("memory")
    def test_so_much_waits_for_one_who_takes_nothing(self, tmp_path: Path) -> None:
        with study(tmp_path, memory=1 << 22, unanswered=10**6, unanswered_in_all=10**6) as (trial, hub):
            deaf = Raw(trial.join("north"))
            peer = next(one for one in hub.hub._peers if one.member.name == "north")
            said: list[str] = []
            for _ in range(40):
                came = trial.asking.ask("x", {"north": {"kind": "echo", "body": bytes(1 << 20)}}, 0.05)
                said.append(str(came.get("north")))
                assert peer.queued <= (1 << 22) + 4096
            assert "it does not take what it was sent" in said
            deaf.close()

    @about("memory_in_all")
    def test_so_much_waits_in_all_and_the_largest_goes_first(self, tmp_path: Path) -> None:
        with study(tmp_path, memory_in_all=5 << 20) as (trial, hub):
            small, large = Raw(trial.join("north")), Raw(trial.join("east"))
            small.send(beginning(100 << 20, 1 << 20))
            wait_until(lambda: sum(one.held for one in hub.hub._peers) > 1 << 19)
            large.send(*[beginning(100 << 20, 1 << 20), *[bytes(1 << 20)] * 20])
            large.code()
            assert small.is_open()
            assert sum(one.held for one in hub.hub._peers) < 5 << 20
            assert trial.online() == {"north"}
            for one in (small, large):
                one.close()

    @about("stalled")
    @pytest.mark.parametrize("how", ["takes nothing", "does not go on"])
    def test_somebody_who_stalls_is_dropped(self, tmp_path: Path, how: str) -> None:
        with study(tmp_path, stalled=0.5) as (trial, _):
            stalls = Raw(trial.join("north"))
            if how == "takes nothing":
                for _ in range(8):
                    trial.asking.ask("x", {"north": {"kind": "echo", "body": bytes(1 << 20)}}, 0.05)
            else:
                stalls.send(beginning(1000, 10))
            wait_until(lambda: trial.online() == set())
            stalls.close()

    @about("unanswered", "unanswered_in_all")
    def test_a_site_owes_so_many_answers(self, tmp_path: Path) -> None:
        with study(tmp_path, unanswered=5, unanswered_in_all=8) as (trial, hub):
            ada = enrol(read_invitation(trial.study.invite("ada", "analyst")), tmp_path / "ada")
            silent = Raw(trial.join("north"))
            peer = next(one for one in hub.hub._peers if one.member.name == "north")

            def flood(identity: Identity) -> list[str]:
                with Stream(identity.about, identity.credentials) as stream:
                    for number in range(20):
                        stream.send(Message("ask", {"id": number, "to": [["north", 0]], "left": 0.4}))
                    stream.send(Message("status", {"id": 1}))
                    said: list[str] = []
                    for message in stream:
                        if message.kind == "status":
                            return said
                        said.append(str(message.about["why"]))
                return []

            assert flood(trial.study.analyst) == ["it owes too many answers"] * 15
            assert len(flood(ada)) == 17
            assert len(peer.asked) == 8
            time.sleep(0.5)  # nobody waits for those any longer
            assert len(flood(ada)) == 15
            silent.close()

    @about("messages", "messages_at_once")
    def test_messages_come_no_faster_than_others_can_be_served(self, tmp_path: Path) -> None:
        with study(tmp_path, messages=1000.0, messages_at_once=500.0) as (trial, _):
            ada = enrol(read_invitation(trial.study.invite("ada", "analyst")), tmp_path / "ada")
            with Stream(ada.about, ada.credentials) as stream:
                started, count = time.monotonic(), 0
                for number in range(20):  # each counts for 100: the first five at once, and ten in a second
                    stream.send(Message("status", {"id": number}))
                for message in stream:
                    count += message.kind == "status"
                    if count == 10:
                        break
                    assert trial.link.status(timeout=5.0).study == "study"
                assert time.monotonic() - started > 0.3

    def test_all_limits_are_tested(self) -> None:
        assert {field.name for field in dataclasses.fields(Limits)} == TESTED

    def test_what_is_kept_of_somebody_is_listed(self) -> None:
        """A new field of a peer is a new thing that can grow: say here what bounds it."""
        bounded = {
            "queue": "memory", "queued": "a number", "asked": "unanswered", "decoder": "memory",
            "said": "three short fields",
            "told": "a number for each site of the study",
        }  # fmt: skip
        flags = {"member", "fingerprint", "invited", "limits", "since", "ready", "cut", "took", "came", "ended"}
        assert {field.name for field in dataclasses.fields(Peer)} == {*bounded, *flags}

    def test_a_long_hello_is_not_kept(self, tmp_path: Path) -> None:
        with study(tmp_path) as (trial, hub):
            site = trial.join("north")
            said = hello(*site.about[:3])
            long = Raw(site, greets=False)
            long.send(*encode(said._replace(about={**said.about, "more": "x" * 60000})))
            wait_until(lambda: any(one.member.name == "north" for one in hub.hub._peers))
            peer = next(one for one in hub.hub._peers if one.member.name == "north")
            assert set(peer.said) == {"software", "time", "data"}
            long.close()

    def test_a_request_to_many_sites_counts_for_many(self) -> None:
        from fpdfp.federation.hub import STATUS, cost

        assert [cost(Message("ask", {"to": [["a", 0]] * n})) for n in (0, 1, 500)] == [1, 1, 500]
        assert cost(Message("status", {})) == STATUS
        rate = Rate(10.0, 5.0)
        assert [rate.take() for _ in range(5)] == [0.0] * 5
        assert 0.05 < rate.take() <= 0.1


class TestCertificates:
    def renewals(self, identity: Identity, count: int) -> list[str]:
        said = []
        for _ in range(count):
            try:
                with Stream(identity.about, identity.credentials) as stream:
                    request = keys.make_request(keys.make_key(), identity.about.name)
                    stream.send(Message("renew", {"request": request.decode()}))
                    said.append(next(iter(stream)).kind)
            except MessageError as error:
                said.append(str(error))
        return said

    def test_one_that_is_valid_for_long_is_not_renewed(self, tmp_path: Path) -> None:
        with study(tmp_path) as (trial, _):
            said = self.renewals(trial.join("north"), 3)
            assert said == ["it is not time to renew the certificate of north"] * 3
            assert len(trial.study.registry.named("north").certificates) == 1

    def test_one_that_ends_soon_is_renewed_twice_at_most_until_a_new_one_is_used(self, tmp_path: Path) -> None:
        with study(tmp_path) as (trial, _):
            site = trial.join("north")
            key = site.credentials.key
            short = keys.sign_request(trial.study.authority, keys.make_request(key, "north"), "north", "site", days=50)
            site.replace(key, short)
            trial.study.registry.add_certificate("north", short)
            with Stream(site.about, site.credentials) as stream:
                for _ in range(5):
                    stream.send(Message("renew", {"request": keys.make_request(key, "north").decode()}))
                came: list[Message] = []
                with pytest.raises(RefusedError, match="not time to renew"):
                    came.extend(iter(stream))
            assert len(trial.study.registry.named("north").certificates) == 3

    def test_an_invitation_is_signed_so_often_for_one_key(self, tmp_path: Path) -> None:
        with study(tmp_path) as (trial, _):
            invited = read_invitation(trial.study.folder / "invitations" / "invitation-north.zip")
            request = keys.make_request(keys.make_key(), "north").decode()
            said: list[str] = []
            with contextlib.suppress(RefusedError), Stream(invited.about, invited.credentials) as stream:
                for _ in range(30):
                    stream.send(Message("enrol", {"request": request}))
                said.extend(message.kind for message in stream)
            assert said == ["certificate"] * 10


class TestThisSide:
    """What a hub can take of a site and of an analyst."""

    def test_an_inbox_holds_so_many_and_so_much(self) -> None:
        inbox: Inbox[int] = Inbox(3, 100)
        assert inbox.put(0, 1000)  # one may always wait
        assert not inbox.put(1, 1, timeout=0.01)
        assert inbox.get() == 0
        assert [inbox.put(number, 10, timeout=0.01) for number in range(4)] == [True, True, True, False]
        assert inbox.held == 30
        threading.Timer(0.1, inbox.get).start()
        assert inbox.put(4, 10, timeout=5.0)
        inbox.close()
        assert not inbox.put(5)
        assert [inbox.get() for _ in range(3)] == [1, 2, 4]
        with pytest.raises(queue.Empty):
            inbox.get()

    def test_a_site_reads_no_faster_than_it_answers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        go, held = threading.Event(), list[int]()
        with study(tmp_path) as (trial, _):
            monkeypatch.setattr("fpdfp.federation.connection.Inbox", lambda: held_inbox(held))
            with AgentThread(trial.join("north"), TrialDesk(None, lambda _: go.wait(10.0))):
                trial.wait(["north"])
                for _ in range(12):
                    trial.asking.ask("x", {"north": {"kind": "echo", "body": bytes(1 << 20)}}, 0.05)
                assert 1 << 20 < max(held) <= 3 << 20
                go.set()
                said = trial.asking.ask("x", {"north": {"kind": "echo", "body": 1}}, 20.0)
                assert said["north"]["reply"] == {"body": 1}

    def test_an_analyst_does_not_keep_what_the_hub_sends_unasked(self, tmp_path: Path) -> None:
        """The hub sends replies that nobody has asked for, without end: what waits is bounded."""
        with study(tmp_path) as (trial, hub):
            assert trial.link.status().study == "study"
            peer = next(one for one in hub.hub._peers if one.member.name == "coordinator")
            trial.link._arrived._length = 3 << 20

            def flood() -> None:
                for _ in range(64):
                    peer.send(Message("reply", {"id": 10**6, "site": "north"}, bytes(1 << 20)))

            hub._loop.call_soon_threadsafe(flood)
            time.sleep(1.0)
            assert trial.link._arrived.held <= 3 << 20
            assert trial.link.status(timeout=20.0).study == "study"

    def test_a_hub_that_takes_nothing_is_given_up(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("fpdfp.federation.connection.STALLED", 0.3)
        with study(tmp_path) as (trial, hub):
            site = trial.join("north")
            with Stream(site.about, site.credentials) as stream:
                stream._unsent._length = 1 << 20
                stop = threading.Event()
                hub._loop.call_soon_threadsafe(stop.wait, 20.0)  # the hub is busy with something else
                said = ""
                for _ in range(64):
                    try:
                        stream.send(Message("reply", {"id": 1}, bytes(1 << 20)))
                    except LostError as error:
                        said = str(error)
                        break
                stop.set()
                assert said == "the hub has taken nothing for 0.3 s"

    def test_a_message_is_of_limited_length(self) -> None:
        decoder = framing.Decoder(100)
        list(decoder.feed(beginning(1 << 40, 1 << 20)))
        assert decoder.held == 0


def held_inbox(held: list[int]) -> Inbox[Any]:
    class Watched(Inbox[Any]):
        def put(self, one: Any, length: int = 0, timeout: float | None = None) -> bool:
            done = super().put(one, length, timeout)
            held.append(self.held)
            return done

    return Watched(length=3 << 20)


class TestHostileHub:
    """What a hub does to a site or an analyst: neither ends, and neither keeps more than it must."""

    @pytest.mark.parametrize(
        "what",
        [
            b"XXXX" + bytes(40),
            HEAD.pack(MAGIC, 1 << 30, 0),
            HEAD.pack(MAGIC, 2, 0) + b"[]",
            HEAD.pack(MAGIC, 6000, 0) + b"[" * 6000,
            b"".join(encode(Message("certificate", {"certificate": "none"}))),
            b"".join(encode(Message("ask", {"id": {"a": 1}, "left": float("nan"), "asker": 7}, b"x"))),
            b"".join(encode(Message("ask", {}))),
        ],
    )
    def test_a_site_comes_back_whatever_it_is_sent(self, tmp_path: Path, what: bytes) -> None:
        with study(tmp_path) as (trial, hub), AgentThread(trial.join("north"), TrialDesk(None)) as agent:
            trial.wait(["north"])
            peer = next(one for one in hub.hub._peers if one.member.name == "north")

            def send() -> None:
                peer.queue.append([what])
                peer.queued += len(what)
                peer.ready.set()

            hub._loop.call_soon_threadsafe(send)
            time.sleep(0.3)
            tree = {"north": {"kind": "echo", "body": 1}}
            wait_until(lambda: isinstance(trial.asking.ask("x", tree, 5.0)["north"], dict))
            assert agent.error is None

    def test_a_long_status_is_not_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with study(tmp_path) as (trial, hub):
            assert trial.link.status().study == "study"
            monkeypatch.setattr(trial.study.__class__, "warnings", lambda _: ["x" * (5 << 20)])
            with pytest.raises(MessageError, match="status cannot be read"):
                trial.link.status()
            assert hub.hub._peers


@pytest.mark.parametrize("damage", range(40, 400, 24))
def test_a_damaged_invitation_is_one_sentence(tmp_path: Path, damage: int) -> None:
    trial = Trial(tmp_path, ["north"])
    path = trial.study.folder / "invitations" / "invitation-north.zip"
    contents = bytearray(path.read_bytes())
    contents[damage] ^= 0xFF
    path.write_bytes(bytes(contents))
    with contextlib.suppress(ValueError):
        read_invitation(path)
