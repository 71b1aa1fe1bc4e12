"""The sites' app without processes: requests that it refuses, what it remembers, and what leaves the site."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("flwr")

import fpdfp
from fpdfp.engines import outbox
from fpdfp.engines.envelope import Envelope, open_envelope, seal
from fpdfp.engines.job import Job, Place
from fpdfp.engines.parcel import pack
from fpdfp.engines.remote_engine import RemoteEngine
from fpdfp.errors import AbsentError, MessageError
from fpdfp.flower.client import client_app, respond
from fpdfp.flower.commands import app
from fpdfp.flower.records import KIND, NAME, from_record, to_record
from fpdfp.flower.server import FlowerEngine, say, server_app
from tests.helpers import graph_guided, prepare

ROOT = Path(__file__).resolve().parents[1]
Config = Mapping[str, Any]


def problem() -> fpdfp.Problem:
    return graph_guided(clients=3, rows=20, d=6)


def load(site: str, config: Config) -> Any:
    return problem().losses.part(np.array([0, 1] if site == "north" else [2]))


class Direct(RemoteEngine):
    """Sites that are a function call away; ``requests`` has the parcels that were sent."""

    slow = True

    def __init__(self, configs: Mapping[str, dict[str, Any]], run_id: str = "run") -> None:
        super().__init__(patience=1.0)
        self.configs = configs
        self.run_id = run_id
        self.sequence = 0
        self.parcels: list[tuple[str, bytes]] = []
        self.load: Callable[[str, Config], Any] = load

    @property
    def names(self) -> list[str]:
        return list(self.configs)

    def carry(self, asked: Mapping[int, dict[str, Any]], deadline: float | None) -> dict[int, Any]:
        replies: dict[int, Any] = {}
        for site, request in asked.items():
            self.sequence += 1
            name = self.names[site]
            parcel = seal(Envelope(self.run_id, self.sequence, name, request))
            self.parcels.append((name, parcel))
            contents = open_envelope(respond(parcel, self.configs[name], self.load)).contents
            replies[site] = MessageError(contents["error"]) if "error" in contents else contents
        return replies


def configurations(folder: Path) -> dict[str, dict[str, Any]]:
    return {name: {"site": name, "state": str(folder / name)} for name in ("north", "east")}


@pytest.fixture
def configs(tmp_path: Path) -> dict[str, dict[str, Any]]:
    return configurations(tmp_path)


@pytest.fixture(scope="module")
def two_rounds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Direct]:
    """The sites' folders after two rounds, and the crew that had them done."""
    folder = tmp_path_factory.mktemp("sites")
    crew, whole = Direct(configurations(folder)), problem()
    fpdfp.solve(fpdfp.Problem(crew.losses(), whole.penalty, whole.linop), rounds=2, engine=crew)
    return folder, crew


@pytest.fixture
def crew(tmp_path: Path, two_rounds: tuple[Path, Direct]) -> Direct:
    """A crew whose sites have done two rounds, as their folders say."""
    folder, crew = two_rounds
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return crew


def said(reply: bytes) -> dict[str, Any]:
    return open_envelope(reply).contents


def hello(sequence: int = 1, site: str = "north", run: str = "other") -> bytes:
    return seal(Envelope(run, sequence, site, {"facts": {}}))


def memory(config: Config) -> Path:
    return Path(config["state"]) / "memory.fpdfp"


def update(crew: Direct, name: str = "north") -> bytes:
    """The last request for a round that a site was sent."""
    return [one for to, one in crew.parcels if to == name and "update" in open_envelope(one).contents][-1]


def again(parcel: bytes, sequence: int) -> bytes:
    return seal(open_envelope(parcel)._replace(sequence=sequence))


# What is answered


def test_sites_behind_parcels_give_the_same_bits(configs: dict[str, dict[str, Any]]) -> None:
    crew, whole = Direct(configs), problem()
    there = fpdfp.solve(fpdfp.Problem(crew.losses(), whole.penalty, whole.linop), rounds=4, engine=crew)
    here = fpdfp.solve(whole, rounds=4)
    assert there.x.tobytes() == here.x.tobytes()
    assert there.traffic == here.traffic


def test_the_same_request_has_the_same_reply(crew: Direct, configs: dict[str, dict[str, Any]]) -> None:
    parcel = again(update(crew), 10**6)
    first, second = (respond(parcel, configs["north"], load) for _ in range(2))
    assert first == second
    assert "update" in said(first)


def test_a_site_says_who_it_is(configs: dict[str, dict[str, Any]]) -> None:
    reply = respond(seal(Envelope("run", 0, "*", {"hello": {}})), configs["east"], load)
    assert open_envelope(reply) == Envelope("run", 0, "east", {"hello": {"site": "east"}})


# What is refused


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
        lambda parcel: pack(["no", "envelope"]),
        lambda parcel: pack({"run": "r", "sequence": "1", "site": "north", "contents": {}}),
        lambda parcel: pack({"run": "r", "sequence": True, "site": "north", "contents": {}}),
    ],
)
def test_damaged_requests_are_refused(
    crew: Direct, configs: dict[str, dict[str, Any]], damage: Callable[[bytes], bytes]
) -> None:
    before = memory(configs["north"]).read_bytes()
    reply = open_envelope(respond(damage(update(crew)), configs["north"], load))
    assert list(reply.contents) == ["error"]
    assert reply.site == "north"
    assert memory(configs["north"]).read_bytes() == before


def test_requests_for_others_are_refused(configs: dict[str, dict[str, Any]]) -> None:
    assert said(respond(hello(site="east"), configs["north"], load)) == {
        "error": "a request is for east, this is north"
    }


def test_a_node_must_say_which_site_it_is(tmp_path: Path) -> None:
    assert "--node-config" in said(respond(hello(), {"state": str(tmp_path)}, load))["error"]


def test_old_requests_are_refused(crew: Direct, configs: dict[str, dict[str, Any]]) -> None:
    before = memory(configs["north"]).read_bytes()
    reply = said(respond(again(update(crew), 1), configs["north"], load))
    assert "older than one that was answered" in reply["error"]
    assert memory(configs["north"]).read_bytes() == before


def test_a_job_of_another_size_is_refused(crew: Direct, configs: dict[str, dict[str, Any]]) -> None:
    envelope = open_envelope(next(one for _, one in crew.parcels if "job" in open_envelope(one).contents))
    memory(configs["north"]).unlink()
    reply = respond(again(seal(envelope), 10**6), configs["north"], lambda site, config: load("east", config))
    assert said(reply)["error"] == "this site has 1 clients, the server counts 2"


@pytest.mark.parametrize(
    "contents",
    [
        {"job": {"method": 1}},
        {"update": {}, "key": "k"},
        {"gather": {"job": {"class": "os:system"}}},
        {"constants": {"factor": {"class": "subprocess:Popen", "fields": {}}}},
        {"at": {"x": "text", "parts": ["values"]}},
        {"at": {"x": np.zeros(7), "parts": ["values"]}},
        {"at": {"x": np.full(6, np.nan), "parts": ["values"]}},
        {"at": {"x": np.zeros(6), "parts": ["data"]}},
        {"at": {"x": np.zeros(6), "parts": 3}},
        {"update": 3},
        {"facts": {}, "key": [], "job": []},
    ],
)
def test_requests_that_make_no_sense_are_errors(
    crew: Direct, configs: dict[str, dict[str, Any]], contents: dict[str, Any]
) -> None:
    before = memory(configs["north"]).read_bytes()
    reply = said(respond(seal(Envelope("run", 10**6, "north", contents)), configs["north"], load))
    assert set(reply) <= {"error", "needs", "at"}
    # A reply of numbers is one only where a site can tell nothing wrong from the request.
    assert "at" not in reply or contents["at"]["parts"] == ["values"]
    assert memory(configs["north"]).read_bytes() == before or "error" not in reply


# What is told


@pytest.mark.parametrize("kind", [ValueError, MessageError, KeyError, MemoryError])
def test_the_text_of_an_error_stays_at_the_site(
    configs: dict[str, dict[str, Any]], kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    def failing(site: str, config: Config) -> Any:
        raise kind("patient 4711 has no age")

    reply = respond(hello(), configs["north"], failing)
    name = "RuntimeError" if kind is MessageError else kind.__name__
    assert said(reply) == {"error": f"{name} at the site; its log says more"}
    assert b"4711" not in reply
    assert "4711" in caplog.text


def test_load_must_return_losses(configs: dict[str, dict[str, Any]], caplog: pytest.LogCaptureFixture) -> None:
    def wrong(site: str, config: Config) -> Any:
        return np.ones(3)

    reply = said(respond(hello(), configs["north"], wrong))
    assert reply == {"error": "TypeError at the site; its log says more"}
    assert "load must return one of fpdfp.losses, got ndarray" in caplog.text


# What is remembered


def test_calls_at_once_wait_for_each_other(crew: Direct, configs: dict[str, dict[str, Any]]) -> None:
    at_once, most = 0, 0
    counting = threading.Lock()

    def slowly(site: str, config: Config) -> Any:
        nonlocal at_once, most
        with counting:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.05)
        with counting:
            at_once -= 1
        return load(site, config)

    parcel = again(update(crew), 10**6)
    replies: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: replies.append(respond(parcel, configs["north"], slowly))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert len(set(replies)) == 1
    assert len(replies) == 4


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "another version", "directory"])
def test_a_damaged_memory_is_asked_for(
    crew: Direct, configs: dict[str, dict[str, Any]], damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    from fpdfp.engines import files

    path = memory(configs["north"])
    whole = path.read_bytes()
    if damage == "another version":
        files.write_sealed(path, lambda file: file.write(pack({"old": 1})))
    elif damage == "directory":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes({"cut": whole[:-5], "flipped": changed(whole, 40), "empty": b""}[damage])
    envelope = open_envelope(update(crew))
    contents = {name: one for name, one in envelope.contents.items() if name != "job"}
    reply = said(respond(seal(envelope._replace(sequence=10**6, contents=contents)), configs["north"], load))
    assert reply == {"needs": ["job"]}
    assert "cannot be read" in caplog.text


def test_a_site_that_forgot_is_healed(configs: dict[str, dict[str, Any]]) -> None:
    whole, crew = problem(), Direct(configs)

    def forget(run: fpdfp.Run) -> None:
        if run.round == 2:
            memory(configs["north"]).unlink()
        if run.round == 3:
            memory(configs["east"]).write_bytes(b"nothing")

    there = fpdfp.Problem(crew.losses(), whole.penalty, whole.linop)
    done = fpdfp.solve(there, rounds=5, engine=crew, callbacks=[forget])
    assert done.x.tobytes() == fpdfp.solve(whole, rounds=5).x.tobytes()
    assert crew.totals.healed >= 2


def test_a_site_that_cannot_be_healed_in_time_is_healed_with_the_next_request(
    configs: dict[str, dict[str, Any]],
) -> None:
    """A first exchange that takes all of a round's time, since another site is slow, leaves none for what it lacks."""

    class Slow(Direct):
        def carry(self, asked: Mapping[int, dict[str, Any]], deadline: float | None) -> dict[int, Any]:
            hurried = deadline is not None and deadline <= 0.1
            if hurried and deadline == 0:
                return {}
            replies = super().carry(asked, deadline)
            if hurried:
                time.sleep(0.1)
            return replies

    whole, crew = problem(), Slow(configs)
    crew.collector.deadline = 0.1
    versions = []

    def forget(run: fpdfp.Run) -> None:
        versions.append(run.memory.version.tolist())
        if run.round == 2:
            memory(configs["north"]).unlink()

    there = fpdfp.Problem(crew.losses(), whole.penalty, whole.linop)
    fpdfp.solve(there, rounds=5, engine=crew, callbacks=[forget], evaluate_every=5)
    assert versions == [[1, 1, 1], [2, 2, 2], [2, 2, 3], [3, 3, 4], [4, 4, 5]]


def test_another_run_begins_with_other_data(crew: Direct, configs: dict[str, dict[str, Any]]) -> None:
    """What a site remembers of a run is nothing to the next, for which it may have more clients or features."""
    other = graph_guided(clients=4, rows=10, d=5)
    parts = {"north": [0], "east": [1, 2, 3]}
    crew = Direct(configs, "another run")
    crew.load = lambda site, config: other.losses.part(np.array(parts[site]))
    there = fpdfp.solve(fpdfp.Problem(crew.losses(), other.penalty, other.linop), rounds=3, engine=crew)
    assert there.x.tobytes() == fpdfp.solve(other, rounds=3).x.tobytes()


FULL_DISK = """
import json, resource, sys
from pathlib import Path
from tests import test_flower_app as t
import fpdfp
from fpdfp.errors import CheckpointError

folder = Path(sys.argv[1])
configs = t.configurations(folder)

def fill(run):
    if run.round == 2:  # from now on no file can be longer than this: writes fail as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))

whole = t.problem()
if sys.argv[2] == "checkpoint":
    try:
        fpdfp.solve(whole, rounds=5, checkpoint=folder / "run.npz", checkpoint_every=1, callbacks=[fill])
    except CheckpointError as error:
        print(error)
else:
    crew = t.Direct(configs)
    fpdfp.solve(fpdfp.Problem(crew.losses(), whole.penalty, whole.linop), rounds=2, engine=crew)
    path = t.memory(configs["north"])
    before = path.read_bytes()
    parcel = t.again(t.update(crew), 10**6)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
    reply = t.respond(parcel, configs["north"], t.load)
    print(json.dumps([t.said(reply), path.read_bytes() == before, sorted(p.name for p in path.parent.iterdir())]))
"""


def full_disk(tmp_path: Path, what: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path), what], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_full_disk_leaves_the_checkpoint_as_it_was(tmp_path: Path) -> None:
    said = full_disk(tmp_path, "checkpoint")
    assert "could not be written" in said
    assert "the old one is intact" in said
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]
    rounds: list[int] = []
    done = fpdfp.solve(
        problem(),
        rounds=5,
        checkpoint=tmp_path / "run.npz",
        resume=True,
        callbacks=[lambda run: rounds.append(run.round)],
    )
    # Callbacks come before the checkpoint of a round, so that of round 1 is the last one that could be written.
    assert rounds == [2, 3, 4, 5]
    assert done.x.tobytes() == fpdfp.solve(problem(), rounds=5).x.tobytes()


def test_a_full_disk_leaves_a_site_s_memory_as_it_was(tmp_path: Path) -> None:
    reply, intact, names = json.loads(full_disk(tmp_path, "memory"))
    assert reply == {"error": "OSError at the site; its log says more"}
    assert intact
    assert names == ["lock", "memory.fpdfp"]


# What leaves


@pytest.fixture
def box(tmp_path: Path, configs: dict[str, dict[str, Any]]) -> Path:
    configs["north"]["outbox"] = str(tmp_path / "outbox")
    return tmp_path / "outbox"


def files_in(folder: Path, suffix: str = ".parcel") -> list[Path]:
    return sorted(folder.glob(f"*{suffix}"))


def test_the_outbox_has_what_left(configs: dict[str, dict[str, Any]], box: Path) -> None:
    replies = [respond(hello(sequence), configs["north"], load) for sequence in (1, 2)]
    assert [path.read_bytes() for path in files_in(box)] == replies
    error = respond(b"nonsense", configs["north"], load)
    assert files_in(box)[-1].read_bytes() == error
    assert not files_in(box, ".waiting")


def held(config: Config, meanwhile: Callable[[Path], Any]) -> bytes:
    """The reply to a request, for which something happens while it is held."""
    replies: list[bytes] = []
    thread = threading.Thread(target=lambda: replies.append(respond(hello(), config, load)))
    thread.start()
    box = Path(config["outbox"])
    until = time.monotonic() + 20
    while not files_in(box, ".waiting") and time.monotonic() < until:
        time.sleep(0.01)
    assert not replies
    meanwhile(files_in(box)[0])
    thread.join(20)
    return replies[0]


def test_a_reply_that_is_held_leaves_when_it_is_released(configs: dict[str, dict[str, Any]], box: Path) -> None:
    config = configs["north"] | {"hold": 30.0}
    reply = held(config, outbox.release)
    assert "facts" in said(reply)
    assert [path.read_bytes() for path in files_in(box)] == [reply]
    assert len(list(box.iterdir())) == 1


@pytest.mark.parametrize("how", ["refused", "forgotten"])
def test_nothing_of_a_reply_that_is_not_released_leaves(
    configs: dict[str, dict[str, Any]], box: Path, how: str
) -> None:
    if how == "refused":
        reply = held(configs["north"] | {"hold": 30.0}, outbox.refuse)
    else:
        reply = respond(hello(), configs["north"] | {"hold": 0.3}, load)
    assert open_envelope(reply) == Envelope("other", 1, "north", {"error": "its reply was not released"})
    [refused] = files_in(box, ".refused")
    assert "facts" in said(refused.read_bytes())
    assert [path.read_bytes() for path in files_in(box)] == [reply]
    assert not files_in(box, ".waiting")


def test_what_cannot_be_kept_does_not_leave(configs: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    reply = respond(hello(), configs["north"] | {"outbox": str(tmp_path / "file")}, load)
    assert said(reply) == {"error": "its reply could not be kept"}


def test_a_refused_reply_changes_nothing(configs: dict[str, dict[str, Any]], box: Path) -> None:
    """A site whose reply to a round was refused takes part in the next one as if it had not been asked."""

    def broken(site: str, config: Config) -> Any:
        return 1 if site == "north" else load(site, config)

    def solved(name: str, trouble: Callable[[Direct, int], None]) -> fpdfp.Result:
        crew = Direct({site: config | {"state": config["state"] + name} for site, config in configs.items()})
        whole = fpdfp.Problem(crew.losses(), problem().penalty, problem().linop)
        callbacks = [lambda run: trouble(crew, run.round)]
        result = fpdfp.solve(whole, rounds=5, engine=crew, callbacks=callbacks, evaluate_every=5)
        assert crew.totals.refused == 1
        return result

    def hold(crew: Direct, done: int) -> None:
        crew.configs["north"]["hold"] = 0.01 if done == 2 else 0.0

    def fail(crew: Direct, done: int) -> None:
        crew.load = broken if done == 2 else load

    assert solved("held", hold).x.tobytes() == solved("broken", fail).x.tobytes()


def test_the_outbox_is_its_owners_whatever_the_umask(configs: dict[str, dict[str, Any]], box: Path) -> None:
    before = os.umask(0)
    try:
        respond(hello(), configs["north"], load)
    finally:
        os.umask(before)
    assert box.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in files_in(box)] == [0o600]


def test_every_byte_of_a_message_is_shown(crew: Direct, configs: dict[str, dict[str, Any]]) -> None:
    reply = respond(again(update(crew), 10**6), configs["north"], load)
    shown = list(outbox.lines(reply))
    assert shown[0] == f"{len(reply)} bytes from north: request 1000000 of run {open_envelope(reply).run}"
    at = shown.index("byte by byte:")
    assert bytes.fromhex("".join(line[10:57] for line in shown[at + 1 :])) == reply
    text = "\n".join(shown[:at])
    assert "which stand for float64 of shape (6,): [" in text
    assert text.count("update/frames/") == 2
    assert "  update/bits: int64 of shape (1, 2): [[" in text
    assert "46 50 44 50" in shown[at + 1]
    assert shown[at + 1].endswith("FPDP" + shown[at + 1][-12:])


def test_texts_and_numbers_are_shown() -> None:
    parcel = seal(Envelope("r", 3, "north", {"a": {"b": 1.5, "c": "text"}, "d": [1, 2], "e": b"xy", "f": bytes(40)}))
    assert list(outbox.lines(parcel))[1:6] == [
        "  a/b: 1.5", "  a/c: 'text'", "  d: [1, 2]", "  e: 2 bytes, 7879", f"  f: 40 bytes, {'00' * 16}…",
    ]  # fmt: skip


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_inspect(configs: dict[str, dict[str, Any]], box: Path, tmp_path: Path) -> None:
    reply = respond(hello(), configs["north"], load)
    done = invoke("inspect", files_in(box)[0])
    assert done.exit_code == 0
    assert done.output.splitlines() == list(outbox.lines(reply))
    (tmp_path / "damaged").write_bytes(changed(reply, 50))
    (tmp_path / "no envelope").write_bytes(pack([1]))
    for name, words in (
        ("damaged", "checksum is wrong"), ("no envelope", "not an envelope of fpdfp"), ("missing", "No such file"),
    ):  # fmt: skip
        done = invoke("inspect", tmp_path / name)
        assert done.exit_code == 1
        assert words in done.output


def test_the_commands_release_and_refuse(configs: dict[str, dict[str, Any]], box: Path) -> None:
    config = configs["north"] | {"hold": 30.0}
    reply = held(config, lambda path: invoke("release", path))
    assert "facts" in said(reply)
    [path] = files_in(box)
    for command in ("release", "refuse"):
        done = invoke(command, path)
        assert done.exit_code == 1
        assert "is not waiting to be released" in done.output
    assert path.read_bytes() == reply  # still what left
    path.unlink()
    assert said(held(config, lambda path: invoke("refuse", path))) == {"error": "its reply was not released"}


# Flower's messages


def test_parcels_in_records() -> None:
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    parcel = seal(Envelope("r", 1, "north", {}))
    assert from_record(to_record(parcel), len(parcel)) == parcel
    with pytest.raises(MessageError, match="longer than any that was asked for"):
        from_record(to_record(parcel), len(parcel) - 1)
    numpy = ArrayRecord({NAME: Array(np.zeros(3))})
    two = ArrayRecord({name: Array(dtype="uint8", shape=(1,), stype=KIND, data=b"x") for name in (NAME, "b")})
    for content in (RecordDict(), RecordDict({"x": two}), RecordDict({NAME: two}), RecordDict({NAME: ConfigRecord()})):
        with pytest.raises(MessageError, match="does not hold one parcel"):
            from_record(content, 100)
    with pytest.raises(MessageError, match="an array that is not a parcel"):
        from_record(RecordDict({NAME: numpy}), 1000)


def test_load_and_sites_are_checked() -> None:
    with pytest.raises(TypeError, match="load must be a function"):
        client_app(3)
    for sites in ([], "north", ["north", "north"]):
        with pytest.raises(ValueError, match="sites must be different names"):
            server_app(fpdfp.penalties.L1(1.0), sites=sites)


class Grid:
    """Flower's grid as far as the server's app uses it, with nodes that answer as a function says."""

    def __init__(self, nodes: list[tuple[int, str]], answer: Callable[[int, bytes], bytes | None]) -> None:
        self.nodes, self.answer = nodes, answer
        self.replies: dict[str, Any] = {}

    def get_nodes(self) -> list[Any]:
        from types import SimpleNamespace

        return [SimpleNamespace(node_id=number, name=name) for number, name in self.nodes]

    def get_node_ids(self) -> list[int]:
        return [number for number, _ in self.nodes]

    def push_messages(self, messages: list[Any]) -> Iterator[str]:
        from types import SimpleNamespace

        for message in messages:
            number = message.metadata.dst_node_id
            name = f"message {len(self.replies)} to {number}"
            parcel = self.answer(number, from_record(message.content, 1 << 30))
            metadata = SimpleNamespace(reply_to_message_id=name, src_node_id=number)
            self.replies[name] = (
                None
                if parcel is None
                else SimpleNamespace(metadata=metadata, content=to_record(parcel), has_error=lambda: False)
            )
            yield name

    def pull_messages(self, names: list[str]) -> list[Any]:
        return [self.replies[name] for name in names if self.replies[name] is not None]

    def send_and_receive(self, messages: list[Any], timeout: float | None = None) -> list[Any]:
        return self.pull_messages(list(self.push_messages(messages)))


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> type[Grid]:
    """Make grids in a process that Flower takes for that of a run."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    return Grid


def echo(number: int, parcel: bytes) -> bytes:
    envelope = open_envelope(parcel)
    return seal(envelope._replace(site="north", contents={"node": number}))


def test_a_node_is_the_site_that_its_key_was_registered_for(grid: type[Grid]) -> None:
    crew = FlowerEngine(grid([(1, "north"), (2, "evil")], echo), ["north"], deadline=1.0)
    assert crew.carry({0: {}}, 1.0) == {0: {"node": 1}}
    # While north is away, another node cannot take its place by saying so.
    crew = FlowerEngine(grid([(2, "evil")], echo), ["north"], deadline=1.0)
    assert isinstance(crew.carry({0: {}}, 1.0)[0], AbsentError)


def test_nodes_without_names_are_asked(grid: type[Grid]) -> None:
    def answer(number: int, parcel: bytes) -> bytes:
        envelope = open_envelope(parcel)
        return seal(envelope._replace(site=["north", "east"][number - 1], contents={"node": number}))

    crew = FlowerEngine(grid([(1, ""), (2, "")], answer), ["east", "north"], deadline=1.0)
    assert crew.carry({0: {}, 1: {}}, 1.0) == {0: {"node": 2}, 1: {"node": 1}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"run": "another"}, "of run 'another', not about"),
        ({"sequence": 5}, "about request 5 of run"),
        ({"site": "east"}, "it is from 'east'"),
        ({"contents": {"error": "KeyError at the site"}}, "KeyError at the site"),
    ],
)
def test_replies_about_something_else_are_refused(grid: type[Grid], change: dict[str, Any], words: str) -> None:
    nodes = grid([(1, "north")], lambda number, parcel: seal(open_envelope(parcel)._replace(**change)))
    reply = FlowerEngine(nodes, ["north"], deadline=1.0).carry({0: {}}, 1.0)[0]
    assert isinstance(reply, MessageError)
    assert words in str(reply)


def test_replies_that_are_too_long_or_missing(grid: type[Grid]) -> None:
    crew = FlowerEngine(grid([(1, "north")], lambda number, parcel: bytes(100)), ["north"], deadline=1.0)
    crew.longest = 99
    assert "longer than any" in str(crew.carry({0: {}}, 1.0)[0])
    assert "not a parcel" in str(FlowerEngine(crew._grid, ["north"]).carry({0: {}}, 1.0)[0])
    assert FlowerEngine(grid([(1, "north")], lambda number, parcel: None), ["north"]).carry({0: {}}, 0.3) == {}


def test_the_server_app_runs_what_it_was_given(
    grid: type[Grid], configs: dict[str, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is set for one run counts, unless it is empty; the app goes on from its checkpoint."""
    from types import SimpleNamespace

    whole, names = problem(), list(configs)

    def answer(number: int, parcel: bytes) -> bytes:
        return respond(parcel, configs[names[number - 1]], load)

    def run(**config: Any) -> dict[str, Any]:
        nodes = grid([(number, name) for number, name in enumerate(names, start=1)], answer)
        app(nodes, SimpleNamespace(run_config=config))
        return dict(np.load(tmp_path / "result.npz"))

    app: Any = server_app(
        whole.penalty, whole.linop, sites=names, rounds=9, seed=5, weights="uniform", evaluate_every=2,
        checkpoint=tmp_path / "run.npz", output=tmp_path / "result.npz",
    )  # fmt: skip
    first = run(rounds=2, seed=3, checkpoint="", other=1)
    here = fpdfp.solve(whole, rounds=2, seed=3, evaluate_every=2)
    np.testing.assert_array_equal(first["x"], here.x)
    np.testing.assert_array_equal(first["history/total_up"], here.history.total_up)
    further = run(rounds=4, seed=3)
    np.testing.assert_array_equal(further["x"], fpdfp.solve(whole, rounds=4, seed=3, evaluate_every=2).x)
    told = capsys.readouterr().out
    assert [line.split(":")[0] for line in told.splitlines() if line.startswith("round ")] == [
        "round 1", "round 2", "round 3", "round 4",
    ]  # fmt: skip
    assert "0 absent, 0 refused, 0 healed" in told


@pytest.mark.parametrize("option", [{"rounds": 0}, {"tol": -1.0}, {"deadline": 0.0}, {"min_clients": 0}, {"seed": -1}])
def test_options_are_checked_before_the_app_runs(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        server_app(fpdfp.penalties.L1(1.0), sites=["north"], **option)


def test_the_longest_reply_is_that_of_the_largest_site(grid: type[Grid]) -> None:
    algorithm = prepare(graph_guided(clients=5), fpdfp.FPDFP(0.1))
    engine = FlowerEngine(grid([(1, "north"), (2, "south")], echo), ["north", "south"])
    sizes = []
    for run in ("first", "second"):
        for numbers in (np.arange(4), np.arange(4, 5)):
            engine.key(Job(algorithm, {}, None, Place(numbers, None, 1.0, 0)), run)
            sizes.append(engine.longest)
    assert sizes[0] == sizes[1] == sizes[2] == sizes[3] < 1 << 28


def test_lines_of_rounds_tell_the_time_by_the_clock(
    grid: type[Grid], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    crew = FlowerEngine(grid([(1, "north")], echo), ["north"], deadline=1.0)
    began = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began + 291.0)

    def line(run: fpdfp.engines.run.Run) -> None:
        say(run, crew)

    fpdfp.solve(graph_guided(clients=2), fpdfp.PDFP(), rounds=1, callbacks=[line])
    (told,) = [text for text in capsys.readouterr().out.splitlines() if text.startswith("round 1:")]
    assert told.endswith("4 min 51 s since the start")
