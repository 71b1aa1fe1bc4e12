"""A federation of real processes: what it computes, what it survives, what it refuses, and what can be read on the way.

An exchange takes seconds, so runs are few, and several tests look at the same one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("flwr")

from examples.flower.federation import Federation

import fpdfp
from fpdfp.engines.envelope import Envelope, seal
from fpdfp.engines.parcel import MAGIC, VERSION, unpack
from fpdfp.flower import certificates
from fpdfp.flower.control import RunStatus
from tests import flower_trial
from tests.flower_trial import SEED, SITES, worked, write_app
from tests.relay import Relay

# One federation for all of them: with pytest-xdist they need --dist loadgroup.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
#: Where the processes find the package and the tests.
SOURCES = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
ROUNDS = 3
#: Seconds after which a round of the troubled run is over.
DEADLINE = 20.0
#: The rounds of that run.
LONG = 9


class Trial(NamedTuple):
    """A federation, the relay through which north reaches it, and a folder for apps and results."""

    federation: Federation
    relay: Relay
    folder: Path

    def state(self, site: str) -> Path:
        return self.federation.folder / "state" / site

    def behave(self, site: str, what: dict[int, str]) -> None:
        """Tell a site what to do in which rounds, and forget what it did before."""
        (self.state(site) / "worked").unlink(missing_ok=True)
        (self.state(site) / "behave").write_text(json.dumps(what))

    def outbox(self) -> list[bytes]:
        """What north has sent."""
        return [path.read_bytes() for path in sorted((self.folder / "outbox").glob("*.parcel"))]


class Outcome(NamedTuple):
    """How a run ended: its arrays, its totals, what Flower says, and what was logged."""

    arrays: dict[str, Any]
    summary: dict[str, Any]
    status: RunStatus
    log: str
    seconds: float


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    folder = tmp_path_factory.mktemp("flower")
    federation = Federation(
        folder / "federation",
        list(SITES),
        node_config={"north": {"outbox": str(folder / "outbox")}},
        environment={"PYTHONPATH": SOURCES, "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2", "OMP_NUM_THREADS": "1"},
        start_nodes=False,
    )
    with federation, Relay(federation.port) as relay:
        for site in SITES:
            federation.start_node(site, superlink=relay.address if site == "north" else None)
        federation.wait_online(list(SITES))
        yield Trial(federation, relay, folder)
    assert federation.processes() == []


def outcome(trial: Trial, run: int, output: Path, started: float) -> Outcome:
    status = trial.federation.wait(run, timeout=400)
    with np.load(output, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    summary = json.loads(str(arrays["summary"]))
    return Outcome(arrays, summary, status, trial.federation.run_log(run), time.monotonic() - started)


def expected(rounds: int, sites: Sequence[str] = tuple(SITES)) -> fpdfp.Result:
    """What one process computes that has all data."""
    return fpdfp.solve(flower_trial.problem(sites), rounds=rounds, seed=SEED)


def same(found: Outcome, wanted: fpdfp.Result) -> None:
    assert found.arrays["x"].tobytes() == wanted.x.tobytes()
    assert found.arrays["v"].tobytes() == wanted.v.tobytes()
    assert found.summary["bits_up"] == wanted.bits_up
    assert found.summary["bits_down"] == wanted.bits_down
    assert found.summary["rounds"] == wanted.rounds
    np.testing.assert_array_equal(found.arrays["history/objective"][-1], wanted.history["objective"][-1])


# A run in which nothing goes wrong.


class Calm(NamedTuple):
    """The run, what the relay saw of it, what north sent, and how many messages each site was sent."""

    outcome: Outcome
    seen: list[tuple[bytes, bytes]]
    sent: list[bytes]
    messages: int


@pytest.fixture(scope="module")
def calm(trial: Trial) -> Calm:
    app = write_app(trial.folder / "calm")
    output = trial.folder / "calm.npz"
    started = time.monotonic()
    run = trial.federation.run(app, {"rounds": ROUNDS, "output": str(output)})
    done = outcome(trial, run, output, started)
    messages = sum(len(worked(trial.state(site))) for site in SITES)
    return Calm(done, trial.relay.seen(), trial.outbox(), messages)


def test_the_same_bits_as_in_one_process(calm: Calm) -> None:
    same(calm.outcome, expected(ROUNDS))
    assert (calm.outcome.summary["absent"], calm.outcome.summary["refused"], calm.outcome.summary["healed"]) == (0,) * 3


def test_bytes_on_the_way(calm: Calm, record_property: Any) -> None:
    """Flower's own part of a message is some two kilobytes, whatever is in it; ours is the rest."""
    status, summary = calm.outcome.status, calm.outcome.summary
    numbers = {
        "messages": calm.messages,
        "flower_down": status.bytes_sent,
        "flower_up": status.bytes_received,
        "parcels_down": summary["bytes_down"],
        "parcels_up": summary["bytes_up"],
        "rounds_down": summary["bits_down"] // 8,
        "rounds_up": summary["bits_up"] // 8,
        "wire_up_north": sum(len(up) for up, _ in calm.seen),
        "wire_down_north": sum(len(down) for _, down in calm.seen),
        "parcels_up_north": sum(map(len, calm.sent)),
        "seconds": round(calm.outcome.seconds, 1),
    }
    print(json.dumps(numbers))
    record_property("bytes", numbers)
    assert 0 < status.bytes_sent - summary["bytes_down"] <= 2500 * calm.messages
    assert 0 < status.bytes_received - summary["bytes_up"] <= 2500 * calm.messages
    # The outbox has a copy of all that left, to the byte.
    assert len(calm.sent) == calm.messages // len(SITES)
    assert sum(map(len, calm.sent)) < summary["bytes_up"]


def numbers_in(tree: Any) -> Iterator[bytes]:
    """Every float64 of a tree's arrays, and every frame, as they stand in a parcel."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list):
        for one in tree:
            yield from numbers_in(one)
    elif isinstance(tree, bytes) and len(tree) >= 8:
        yield tree
    elif isinstance(tree, np.ndarray) and tree.dtype == np.float64:
        yield from (number.tobytes() for number in tree.ravel() if number != 0 and number.tobytes()[:4] != bytes(4))


def test_nothing_can_be_read_on_the_wire(calm: Calm) -> None:
    up, down = (b"".join(parts) for parts in zip(*calm.seen, strict=True))
    data = set(numbers_in(flower_trial.rows("north")))
    x = set(numbers_in(calm.outcome.arrays["x"]))
    ours = {number for parcel in calm.sent for number in numbers_in(unpack(parcel))}
    words = {MAGIC + bytes([VERSION]), b"north", b"fpdfp", b"ShiftedPDFP"}
    assert len(data) == 60 * flower_trial.D
    assert len(x) >= 6
    assert len(ours) > 50

    # All that north sent, and more, went through here, and each connection begins with TLS's handshake.
    assert len(up) > sum(map(len, calm.sent))
    assert all(first[:3] == b"\x16\x03\x01" and back[:2] == b"\x16\x03" for first, back in calm.seen if first and back)
    found = [needle for needle in words | data | x | ours if needle in up or needle in down]
    assert found == []

    # The same search finds them all where nothing is encrypted.
    plain = b"".join(calm.sent)
    assert all(needle in plain for needle in ours | {MAGIC + bytes([VERSION]), b"north"})
    request = seal(Envelope("run", 1, "north", {"at": {"x": calm.outcome.arrays["x"]}, "rows": b"".join(data)}))
    assert all(needle in request for needle in x | data)


# A run in which the server is killed twice.


def test_a_server_that_is_killed_goes_on_to_the_same_bits(trial: Trial) -> None:
    federation = trial.federation
    sites, rounds = ["north", "east"], 2
    app = write_app(trial.folder / "killed", sites=sites, evaluate_every=rounds)
    output, checkpoint = trial.folder / "killed.npz", trial.folder / "killed-checkpoint.npz"
    config: dict[str, Any] = {"rounds": rounds, "output": str(output), "checkpoint": str(checkpoint)}
    for site in sites:
        trial.behave(site, {})
    started = time.monotonic()

    def kill(run: int) -> None:
        [server] = federation.server_apps()
        os.kill(server.pid, signal.SIGKILL)
        federation.wait_for(lambda: not federation.server_apps(), 10)
        federation.stop_run(run)

    # Between two rounds: the first has been saved, and the second is about to be asked for.
    run = federation.run(app, config)
    federation.wait_for(checkpoint.exists, 200, pause=0.01)
    kill(run)
    # In the middle of a round: a site is at work on the last one, for the server that goes on from the checkpoint.
    trial.behave("east", {})
    run = federation.run(app, config)
    federation.wait_for(lambda: rounds - 1 in worked(trial.state("east")), 200, pause=0.01)
    kill(run)
    assert not output.exists()
    done = outcome(trial, federation.run(app, config), output, started)
    same(done, expected(rounds, sites))
    print(f"{done.seconds:.1f} s")


# A run in which nearly everything goes wrong.


@pytest.fixture(scope="module")
def troubled(trial: Trial) -> Outcome:
    """A run in which sites send nonsense, are slow, and die.

    North has two of the four clients, and a round needs two replies. A site that is to be killed in a round sleeps
    first, so that it is certainly at work.
    """
    federation = trial.federation
    app = write_app(trial.folder / "troubled", min_clients=2, evaluate_every=100)
    output = trial.folder / "troubled.npz"
    trial.behave("north", {4: "slow 60"})
    trial.behave("east", {1: "garbage", 2: "shape", 3: "oversized", 6: "slow 60"})
    trial.behave("south", {1: "nan", 2: "replay", 3: f"slow {DEADLINE + 2}"})
    started = time.monotonic()
    run = federation.run(app, {"rounds": LONG, "output": str(output), "deadline": DEADLINE})

    # North dies in the middle of a round, which ends at its deadline, and finds all that it remembers when it is back.
    federation.wait_for(lambda: 4 in worked(trial.state("north")), 300)
    federation.kill("north")
    (trial.state("north") / "behave").unlink()
    federation.wait_for(lambda: "north is absent" in federation.run_log(run), 60, pause=0.5)
    federation.restart("north", at_once=True)
    # East dies in the middle of a later one, loses all that it remembers, and is back before the deadline.
    federation.wait_for(lambda: 6 in worked(trial.state("east")), 200)
    federation.kill("east")
    shutil.rmtree(trial.state("east"))
    federation.restart("east", at_once=True)
    return outcome(trial, run, output, started)


def confirmed(log: str) -> dict[int, list[int]]:
    """How many messages of each client have counted, after each round."""
    found = re.findall(r"confirmed (\d+): \[([\d, ]*)\]", log)
    return {int(round_): [int(one) for one in counts.split(",")] for round_, counts in found}


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ("east", "not a parcel of fpdfp"),
        ("south", "damaged"),
        ("east", r"shape \(13,\)"),
        ("south", "not about request"),
        ("east", "longer than any that was asked for"),
    ],
    ids=["garbage", "not finite", "wrong shape", "replayed", "oversized"],
)
def test_nonsense_is_refused_by_name(troubled: Outcome, site: str, words: str) -> None:
    assert re.search(rf"the reply of {site} is refused: .*{words}", troubled.log), troubled.log


def test_what_is_refused_does_not_count(troubled: Outcome) -> None:
    assert troubled.summary["refused"] == 5
    counts = confirmed(troubled.log)
    assert [counts[k][:3] for k in (1, 2, 3, 4)] == [[1, 1, 1], [2, 2, 1], [3, 3, 1], [4, 4, 1]]
    assert [counts[k][3] for k in (1, 2, 3)] == [1, 1, 1]


def test_a_round_ends_at_its_deadline(troubled: Outcome, trial: Trial) -> None:
    """South is slow in round 4, and north dies in round 5: the others' replies are enough."""
    counts = confirmed(troubled.log)
    assert counts[4][3] == counts[3][3]
    assert counts[5][:2] == counts[4][:2]
    assert "south is absent: no reply by the deadline" in troubled.log
    # Who dies may be missed by the deadline, or by Flower before it: the sentence differs.
    assert "north is absent: " in troubled.log
    # South's late reply is about a request whose time is over: it counts in no round, and south goes on.
    assert worked(trial.state("south")).count(3) == 1
    assert counts[LONG][3] > counts[4][3]


def test_who_was_killed_takes_part_again(troubled: Outcome, trial: Trial) -> None:
    counts = confirmed(troubled.log)
    assert "east is absent" in troubled.log
    assert counts[LONG][0] > counts[5][0]
    # It may be back in time for the very round in which it died.
    assert counts[LONG][2] > counts[6][2]
    assert troubled.summary["healed"] >= 1  # east had forgotten everything
    assert 4 in worked(trial.state("north"))  # north had not
    assert min(one for one in worked(trial.state("east")) if one >= 0) > 5


def test_trouble_does_not_spoil_the_result(troubled: Outcome) -> None:
    print(f"{troubled.seconds:.1f} s, {troubled.summary}")
    problem = flower_trial.problem()
    best = fpdfp.minimize(problem, tol=1e-12).objective
    assert troubled.summary["status"] == "finished"
    assert problem.objective(troubled.arrays["x"]) == pytest.approx(best, rel=2e-3)


# Who is not let in.


def test_strangers_are_refused(trial: Trial, tmp_path: Path) -> None:
    federation = trial.federation
    certificates.make_all(tmp_path / "others", ["127.0.0.1"], ["north"])
    # A key that nobody has registered; and a site that is to trust an authority which did not sign SuperLink's.
    stranger = federation.start_node("stranger")
    deceived = federation.start_node("deceived", authority=tmp_path / "others" / "superlink" / "ca.pem")
    # A key that is registered, and revoked later.
    certificates.make_node_key(federation.keys("west").key.parent)
    federation.register("west")
    west = federation.start_node("west")
    federation.wait_online(["west"])
    federation.unregister("west")
    for node in (stranger, deceived, west):
        federation.wait_for(lambda node=node: not node.child.running, 30)  # type: ignore[misc]
    assert stranger.child.returncode == 1
    assert "Failed to activate SuperNode" in federation.log("stranger")
    assert deceived.child.returncode == 1
    assert "CERTIFICATE_VERIFY_FAILED" in federation.log("deceived")
    west = federation.start_node("west")
    federation.wait_for(lambda: not west.child.running, 30)
    assert west.child.returncode == 1
    assert "Failed to activate SuperNode" in federation.log("west")
    status = federation.node_status()
    assert {"stranger", "deceived"}.isdisjoint(status)
    assert status["west"].status == "unregistered"
