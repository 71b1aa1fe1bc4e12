"""Trouble in a federation, each kind survived and named: full disks, slow sites, clocks, changed data, forgery."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

import fpdfp
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.losses import At
from fpdfp.cohorts.requests import Request
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.errors import MessageError, RefusalError
from fpdfp.federation import audit, framing
from fpdfp.federation.agent import alone, respond
from fpdfp.federation.framing import Message, RefusedError
from fpdfp.federation.guard import RequestGuard as Desk
from fpdfp.federation.hub import Hub, Peer
from fpdfp.federation.keys import About
from fpdfp.federation.policy import Policy
from fpdfp.federation.rollback import FILE, LINE, LINES, OlderError, ReplayGuard, Slots
from tests.desks import ANALYST, PLAIN, close_all, make_desk
from tests.federation_trial import SITES, AgentThread, HubThread, Trial, TrialDesk, parts, running
from tests.helpers import graph_guided

FULL = "this site cannot write to its disk (No space left on device), and nothing leaves until it can"
OPTIONS: dict[str, Any] = {"rounds": 8, "compressor": fpdfp.QSGD(5), "seed": 3}


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture(scope="module")
def whole() -> fpdfp.Problem:
    return graph_guided(clients=3, rows=30, d=12)


@pytest.fixture(scope="module")
def expected(whole: fpdfp.Problem) -> Any:
    return fpdfp.solve(whole, fpdfp.FPDFP(), **OPTIONS)


@contextlib.contextmanager
def files_of_at_most(length: int) -> Iterator[None]:
    """Within this, files cannot become longer: what is written beyond is cut off, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Table:
    """A site's table that has but one model."""

    def __init__(self, losses: Any, fingerprint: str = "first") -> None:
        self._losses, self.fingerprint = losses, fingerprint

    def losses(self, spec: Any, site: str) -> Any:
        return self._losses

    def answer(self, question: Any, check: Any = None, site: str = "") -> Any:
        raise NotImplementedError


def real_desk(folder: Path, name: str, losses: Any, fingerprint: str = "first") -> Desk:
    return Desk(name, Table(losses, fingerprint), Policy.allowing_everything(), folder / name / "desk", PLAIN)


def problem_at(engine: Any, whole: fpdfp.Problem) -> fpdfp.Problem:
    return fpdfp.Problem(engine.losses(), whole.penalty, whole.linop)


class TestFullDisk:
    def rows(self) -> tuple[Any, Any]:
        generator = np.random.default_rng(0)
        return generator.normal(size=(200, 4)), generator.integers(0, 2, 200).astype(float)

    @pytest.mark.parametrize("room", [0, 10, 200])
    def test_a_line_of_the_log_that_does_not_fit(self, tmp_path: Path, room: int) -> None:
        """Part of a line fits, then nothing: nothing leaves, the log stays whole, and goes on when there is room."""
        desk = make_desk(*self.rows(), tmp_path)
        asked = {"kind": "schema", "run": "r", "sequence": 1}
        assert "reply" in desk.answer(dict(asked), ANALYST)
        # The budget is shorter than what was written of the log by now.
        for _ in range(3):
            desk.answer(dict(asked), ANALYST)
        log = desk.folder / audit.LOG
        length = log.stat().st_size
        with files_of_at_most(length + room):
            for _ in range(2):
                said = desk.answer(dict(asked), ANALYST)
                assert set(said) == {"error"}
                assert said["error"].startswith("this site cannot write to its disk (")
        assert log.stat().st_size == length
        assert "reply" in desk.answer(dict(asked), ANALYST)
        assert audit.verify(desk.folder).faults == ()
        assert audit.verify(desk.folder).entries == 5

    def test_a_budget_that_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What was counted and could not be written is written as soon as there is room, before anything leaves."""
        desk = make_desk(*self.rows(), tmp_path)
        at = Request((At(np.zeros(4), ["values"]),)).write(parcels.dump)
        model = {"kind": "request", "run": "r", "sequence": 1, "model": "m", "spec": {}, "request": at}
        assert "reply" in desk.answer({"kind": "schema", "run": "r", "sequence": 1}, ANALYST)
        real = os.open

        def fails(path: Any, *others: Any, **options: Any) -> int:
            if "budget" in str(path):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(path, *others, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", fails)
            assert desk.answer(dict(model), ANALYST) == {"error": FULL}
            assert desk.answer(dict(model), ANALYST) == {"error": FULL}
        assert not desk.budget.path.exists()
        assert desk.answer(dict(model), ANALYST)["reply"]["at"]["values"].shape == (1,)
        assert desk.budget.path.exists()
        # As after a power cut: what is on the disk agrees with the log.
        desk.audit.close()
        again = make_desk(*self.rows(), tmp_path)
        assert again.budget.spent.total == 1

    def test_a_run_goes_on_when_there_is_room_again(
        self, tmp_path: Path, whole: fpdfp.Problem, expected: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        trial = Trial(tmp_path)
        desks = [real_desk(tmp_path, name, part) for name, part in zip(SITES, parts(whole), strict=True)]
        write, tried = desks[1].audit._write, list[int]()

        def no_room(line: bytes) -> None:
            tried.append(len(line))
            if 8 <= len(tried) < 11:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write(line)

        desks[1].audit._write = no_room  # type: ignore[method-assign]
        with running(trial, desks):
            engine = trial.engine()
            result = fpdfp.solve(problem_at(engine, whole), fpdfp.FPDFP(), engine=engine, **OPTIONS)
        assert caplog.text.count(f"the reply of east is refused: {FULL}") == 3
        np.testing.assert_array_equal(result.x, expected.x)
        for desk in desks:
            desk.close()
            assert audit.verify(desk.folder).faults == ()

    def test_the_analysts_disk_is_full(
        self, tmp_path: Path, whole: fpdfp.Problem, expected: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The run ends with an error that names the file; the same call goes on with it when there is room."""
        trial = Trial(tmp_path)
        folder = tmp_path / "runs" / "first"
        real, wrote = os.open, list[str]()

        def fails(path: Any, *others: Any, **options: Any) -> int:
            if str(path).startswith(str(folder)) and len(wrote) >= 12:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            wrote.append(str(path))
            return real(path, *others, **options)

        with running(trial, [TrialDesk(part) for part in parts(whole)]):

            def solve() -> Any:
                engine = trial.engine()
                engine.recorder = lambda problem: fpdfp.runs.Recorder(folder, problem)
                return fpdfp.solve(problem_at(engine, whole), fpdfp.FPDFP(), engine=engine, **OPTIONS)

            with monkeypatch.context() as patch:
                patch.setattr(os, "open", fails)
                with pytest.raises(Exception, match="No space left on device") as error:
                    solve()
            assert str(folder) in str(error.value)
            np.testing.assert_array_equal(solve().x, expected.x)
        assert fpdfp.runs.load(folder).info["status"] == "finished"


class TestSlowSite:
    def test_is_absent_where_others_are_enough(
        self, tmp_path: Path, whole: fpdfp.Problem, caplog: pytest.LogCaptureFixture
    ) -> None:
        trial = Trial(tmp_path)

        def slow(asked: dict[str, Any]) -> None:
            if asked["request"].get("update") is not None:
                time.sleep(1.0)

        first, second, third = parts(whole)
        desks = [TrialDesk(first), TrialDesk(second), TrialDesk(third, slow)]
        with running(trial, desks):
            engine = trial.engine(min_clients=2, deadline=0.3)
            options = OPTIONS | {"rounds": 4, "evaluate_every": 4}
            assert fpdfp.solve(problem_at(engine, whole), fpdfp.FPDFP(), engine=engine, **options).rounds == 4
        assert engine.totals.absent >= 3
        assert "south is absent: no reply by the deadline" in caplog.text
        assert "north is absent" not in caplog.text

    def test_is_waited_for_where_all_are_needed(self, tmp_path: Path, whole: fpdfp.Problem, expected: Any) -> None:
        """Also beyond the deadline: to ask it anew each time the deadline is over would never end."""
        trial = Trial(tmp_path)

        def slow(asked: dict[str, Any]) -> None:
            if asked["request"].get("update", {}).get("round") == 4:
                time.sleep(0.5)

        first, second, third = parts(whole)
        desks = [TrialDesk(first), TrialDesk(second), TrialDesk(third, slow)]
        with running(trial, desks):
            engine = trial.engine(deadline=0.2, patience=20.0)
            result = fpdfp.solve(problem_at(engine, whole), fpdfp.FPDFP(), engine=engine, **OPTIONS)
        np.testing.assert_array_equal(result.x, expected.x)


@pytest.mark.parametrize("hours", [-24, 24])
@pytest.mark.parametrize("who", ["hub", "analyst"])
def test_the_clock_of_the_hub_or_an_analyst_is_off_by_a_day(
    tmp_path: Path, who: str, hours: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = framing.hello

    def hello(study: str, role: str, name: str, *others: Any) -> Message:
        message = real(study, role, name, *others)
        message.about["time"] += 3600 * hours * (role == who)
        return message

    for module in ("hub", "connection"):
        monkeypatch.setattr(f"fpdfp.federation.{module}.hello", hello)
    if who == "analyst":
        monkeypatch.setattr(
            "fpdfp.federation.analyst.time.time_ns", lambda now=time.time_ns: now() + hours * 3600 * 10**9
        )
    trial = Trial(tmp_path, ["north"])
    with running(trial, [TrialDesk(None)], ["north"]):
        assert trial.asking.ask("x", {"north": {"kind": "echo", "body": 1}}, 5.0)["north"]["reply"] == {"body": 1}
    whose = "coordinator" if who == "analyst" else "the hub"
    assert f"the clock of {whose} is 24.0 hours {'ahead of' if hours > 0 else 'behind'} this machine's" in caplog.text


class TestChangedData:
    def test_the_run_ends_and_says_why(self, tmp_path: Path, whole: fpdfp.Problem, expected: Any) -> None:
        """A site comes back with another table: its part of the sum would be about something else."""
        trial = Trial(tmp_path)
        losses = parts(whole)
        with contextlib.ExitStack() as outer, contextlib.ExitStack() as east:
            outer.enter_context(HubThread(trial.study))
            outer.callback(trial.link.close)

            def start(stack: contextlib.ExitStack, site: str, part: Any, data: str) -> None:
                desk = stack.enter_context(real_desk(tmp_path, site, part, data))
                stack.enter_context(AgentThread(trial.join(site), desk))

            for site, part in zip(SITES, losses, strict=True):
                start(east if site == "east" else outer, site, part, "first")
            trial.wait()

            def run(data: str) -> Any:
                def restart(run: fpdfp.Run) -> None:
                    if run.round == 4:
                        east.close()
                        start(east, "east", losses[1], data)

                engine = trial.engine()
                there = problem_at(engine, whole)
                return fpdfp.solve(there, fpdfp.FPDFP(), engine=engine, callbacks=[restart], **OPTIONS)

            np.testing.assert_array_equal(run("first").x, expected.x)
            with pytest.raises(RefusalError, match="east refuses: the data of this site have changed since this run"):
                run("second")
            # A new run is about the new data.
            assert run("second").rounds == OPTIONS["rounds"]

    def test_any_change_of_a_table_is_seen(self) -> None:
        pandas = pytest.importorskip("pandas")
        from fpdfp.federation.table import SiteTable

        def fingerprint(**changed: Any) -> str:
            columns = {"age": [61.0, 48.5, None], "stage": ["I", "II", "I"]} | changed
            return SiteTable.read(pandas.DataFrame(columns)).fingerprint

        first = fingerprint()
        assert fingerprint() == first
        others = [
            fingerprint(age=[61.0, 48.5, 0.0]), fingerprint(age=[61.0, 48.6, None]), fingerprint(more=[1, 2, 3]),
            fingerprint(stage=["I", "III", "I"]), fingerprint(stage=["I", "I", "II"]),
        ]  # fmt: skip
        assert len({first, *others}) == 6


def test_two_processes_with_one_folder(tmp_path: Path, whole: fpdfp.Problem) -> None:
    with alone(tmp_path), pytest.raises(RefusedError, match="another process is running with"), alone(tmp_path):
        pass
    with (
        contextlib.closing(real_desk(tmp_path, "north", parts(whole)[0])),
        pytest.raises(RuntimeError, match="another process"),
    ):
        real_desk(tmp_path, "north", parts(whole)[0])


def test_requests_that_come_again_or_out_of_order(tmp_path: Path, whole: fpdfp.Problem) -> None:
    """All requests of a run are kept, and sent again later: nothing is answered but the last, and that to the bit."""
    desk, kept, about, seen = (
        TrialDesk(parts(whole)[0]),
        list[Message](),
        About("study", "site", "north", ""),
        ReplayGuard(),
    )
    asker = {"name": "ann", "role": "analyst", "fingerprint": "ab"}
    for number in range(1, 6):
        body = pack({"kind": "echo", "body": number, "run": "r", "sequence": number, "site": "north"})
        kept.append(Message("ask", {"id": number, "asker": asker}, body))
    first = [respond(message, about, desk, seen) for message in kept]
    again = [unpack(respond(message, about, desk, seen)) for message in kept]
    assert all("older than one that was answered" in reply["error"] for reply in again[:-1])
    assert pack(again[-1]) == first[-1]
    # The log says who asks: without that nothing is answered.
    nobody = unpack(respond(Message("ask", {"id": 6}, kept[-1].body), about, desk, seen))
    assert nobody["error"] == "the hub must say who asks"


def changed(parcel: bytes, at: int) -> bytes:
    return parcel[:at] + bytes([parcel[at] ^ 1]) + parcel[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda parcel: b"",
        lambda parcel: parcel[:20],
        lambda parcel: parcel[:-1],
        lambda parcel: parcel + b"x",
        lambda parcel: changed(parcel, 0),
        lambda parcel: changed(parcel, 4),
        lambda parcel: changed(parcel, len(parcel) // 2),
        lambda parcel: pack(["no", "request"]),
        lambda parcel: pack({"kind": "echo", "run": 1, "sequence": 9, "site": "north"}),
        lambda parcel: pack({"kind": "echo", "run": "r", "sequence": "9", "site": "north"}),
        lambda parcel: pack({"kind": "echo", "run": "r", "sequence": True, "site": "north"}),
        lambda parcel: pack({"kind": "echo", "run": "r", "sequence": 9, "site": "east"}),
        lambda parcel: pack({"kind": "echo", "run": "r", "sequence": 9}),
    ],
)
def test_damaged_requests_are_refused(tmp_path: Path, damage: Any) -> None:
    """Nothing reaches the desk, and a damaged request does not count as the latest one."""
    asked: list[Any] = []
    desk, about, seen = TrialDesk(None, asked.append), About("study", "site", "north", ""), ReplayGuard(tmp_path)
    said = {"id": 1, "asker": {"name": "ann", "role": "analyst", "fingerprint": "ab"}}
    parcel = pack({"kind": "echo", "body": 1, "run": "r", "sequence": 8, "site": "north"})
    reply = unpack(respond(Message("ask", said, damage(parcel)), about, desk, seen))
    assert set(reply) == {"error", "run", "sequence", "site"}
    assert reply["site"] == "north"
    assert asked == []
    assert unpack(respond(Message("ask", said, parcel), about, desk, seen))["reply"] == {"body": 1}
    seen.close()


class TestRequestNumbers:
    def test_are_known_after_a_restart_of_the_site(self, tmp_path: Path) -> None:
        """Nothing is closed, as where the process was killed."""
        for number in (1, 2, 5):
            ReplayGuard(tmp_path).check("first", number)
            ReplayGuard(tmp_path).check("second", 10 * number)
        again = ReplayGuard(tmp_path)
        again.check("first", 5)
        with pytest.raises(OlderError, match=r"\(4, 5\)"):
            again.check("first", 4)
        with pytest.raises(OlderError, match=r"\(49, 50\)"):
            again.check("second", 49)
        assert (tmp_path / FILE).stat().st_size == 6 * LINE.size
        assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600

    def test_the_file_stays_short(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Slots, "sync", lambda _: None)  # 8,000 times takes long on some disks
        seen = ReplayGuard(tmp_path)
        for number in range(LINES + 10):
            seen.check("long" if number % 2 else f"run-{number}", number)
        assert (tmp_path / FILE).stat().st_size < 1100 * LINE.size
        with pytest.raises(OlderError):
            ReplayGuard(tmp_path).check("long", LINES)
        ReplayGuard(tmp_path).check("run-0", 0)  # so many others were answered since that it is not known any more
        seen.close()

    def test_what_cannot_be_written_is_not_answered(self, tmp_path: Path) -> None:
        seen = ReplayGuard(tmp_path)
        seen.check("run", 1)
        with files_of_at_most(LINE.size + 5), pytest.raises(MessageError, match="this site cannot write to its disk"):
            seen.check("run", 2)
        assert len(list(Slots(tmp_path / FILE, LINE.size))) == 1
        seen.check("run", 1)
        seen.check("run", 3)
        with pytest.raises(OlderError):
            ReplayGuard(tmp_path).check("run", 2)
        seen.close()

    @pytest.mark.parametrize("number", [-1, 1 << 63])
    def test_must_be_numbers_of_63_bits(self, number: int) -> None:
        with pytest.raises(MessageError, match="at most 63 bits"):
            ReplayGuard().check("run", number)

    def test_a_site_that_is_started_again_refuses_old_requests(self, tmp_path: Path) -> None:
        trial = Trial(tmp_path, ["north"])
        with HubThread(trial.study), contextlib.closing(trial.link):
            parcels = {"north": pack({"kind": "echo", "body": 1, "run": "r", "sequence": 7, "site": "north"})}
            older = {"north": pack({"kind": "echo", "body": 1, "run": "r", "sequence": 6, "site": "north"})}
            for asked in (parcels, older):
                with AgentThread(trial.join("north"), TrialDesk(None)):
                    trial.wait(["north"])
                    said = unpack(trial.link.exchange(asked, 5.0)["north"])
                trial.wait([])  # the hub has noticed that it is gone
            assert said["seen"] == 7


class TestForgingHub:
    """A hub that changes what passes through it: by chance or on purpose, once."""

    @pytest.mark.parametrize("what", ["flipped", "swapped", "older"])
    def test_replies_that_were_changed_are_refused_and_asked_again(
        self, tmp_path: Path, whole: fpdfp.Problem, expected: Any, what: str, caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        real, bodies, done = Hub._reply, dict[str, list[bytes]](), list[str]()

        def forge(hub: Hub, peer: Peer, message: Message) -> None:
            name = peer.member.name
            kept = bodies.setdefault(name, [])
            kept.append(message.body)
            body = message.body
            if name == "south" and len(kept) == 6:
                done.append(name)
                if what == "flipped":
                    body = changed(body, len(body) // 2)
                body = {"flipped": body, "swapped": bodies["north"][-1], "older": kept[-2]}[what]
            real(hub, peer, message._replace(body=body))

        monkeypatch.setattr(Hub, "_reply", forge)
        trial = Trial(tmp_path)
        with running(trial, [TrialDesk(part) for part in parts(whole)]):
            engine = trial.engine()
            result = fpdfp.solve(problem_at(engine, whole), fpdfp.FPDFP(), engine=engine, **OPTIONS)
        assert done == ["south"]
        words = {
            "flipped": "its checksum is wrong",
            "swapped": "it is (from another|not about)",
            "older": "it is not about",
        }
        assert re.search(f"the reply of south is refused: .*{words[what]}", caplog.text)
        assert engine.totals.refused == 1
        np.testing.assert_array_equal(result.x, expected.x)

    def test_requests_that_were_changed_are_not_answered(
        self, tmp_path: Path, whole: fpdfp.Problem, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trial = Trial(tmp_path)
        send = Peer.send

        def flip(peer: Peer, message: Message) -> bool:
            if message.kind == "ask":
                message = message._replace(body=message.body[:30] + bytes([message.body[30] ^ 4]) + message.body[31:])
            return send(peer, message)

        with running(trial, [TrialDesk(None)] * 3):
            monkeypatch.setattr(Peer, "send", flip)
            came = trial.asking.ask("x", {"north": {"kind": "echo", "body": 1}}, 9.0)["north"]
            assert isinstance(came, Exception)
            assert "it is not about request" in str(came)

    def test_what_the_hub_says_of_the_asker_is_written_down_and_opens_nothing(self, tmp_path: Path) -> None:
        """The hub has the study's authority, so a site cannot tell; its policy is the same whoever asks."""
        generator = np.random.default_rng(0)
        desk = make_desk(generator.normal(size=(5, 4)), np.array([0.0, 1, 0, 1, 0]), tmp_path)
        at = Request((At(np.zeros(4), ["values"]),)).write(parcels.dump)
        asked = {"kind": "request", "run": "r", "sequence": 1, "model": "m", "spec": {}, "request": at}
        answers = [desk.answer(dict(asked), ANALYST._replace(name=name)) for name in ("ann", "coordinator", "north")]
        assert answers == [{"refused": "this site takes part with at least 10 rows only", "rule": "rows"}] * 3
        assert [entry.asker for entry in audit.entries(desk.folder)] == ["ann", "coordinator", "north"]
