"""Clients that are elsewhere: the same bits as in one process, whatever is lost, damaged or forged on the way."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fpdfp
from fpdfp import _files as files
from fpdfp.cohorts import requests as parcels
from fpdfp.cohorts.requests import Job, Place, shorten
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.cohorts.site import Site
from fpdfp.traffic import payload
from tests import helpers
from tests.loopback import Loopback

QSGD = fpdfp.QSGD(7, norm="max")
METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    "automatic": (None, {}),
    "FPDFP": (fpdfp.FPDFP(local_steps=2, batch_size=5), {"compressor": QSGD, "clients_per_round": 3}),
    "shifted, mini-batches": (
        fpdfp.ShiftedPDFP(batch_size=7),
        {"compressor": QSGD, "clients_per_round": 2, "downlink": fpdfp.QSGD(31, norm="max")},
    ),
    "RandProx": (fpdfp.RandProx(), {"clients_per_round": 4}),
    "error feedback": (fpdfp.ErrorFeedbackPDFP(), {"compressor": fpdfp.compress.TopK(3)}),
    "inner solves": (fpdfp.FedMiD(inner=fpdfp.InnerSolve()), {"compressor": QSGD}),
    "FedDualAvg": (fpdfp.FedDualAvg(inner=fpdfp.InnerSolve()), {}),
    "FedDR": (fpdfp.FedDR(inner=fpdfp.InnerSolve()), {"clients_per_round": 3}),
    "SCAFFOLD": (fpdfp.Scaffold(local_steps=3, penalty="subgradient"), {"clients_per_round": 3, "drop_out": 0.2}),
    "FedADMM": (fpdfp.FedADMM(local_steps=3, penalty="subgradient"), {"clients_per_round": 3}),
    "Newton": (fpdfp.NewtonPDFP(), {"compressor": {"hessian": fpdfp.compress.TopK(5)}, "clients_per_round": 3}),
    "drop-outs": (fpdfp.ShiftedPDFP(), {"compressor": QSGD, "drop_out": 0.3}),
}


def away(problem: fpdfp.Problem, **options: Any) -> tuple[Loopback, fpdfp.Problem]:
    """The problem with its clients at sites."""
    crew = Loopback(problem, **options)
    return crew, fpdfp.Problem(crew.losses(), problem.penalty, problem.linop, weights=problem.weights)


def same(one: fpdfp.Result, other: fpdfp.Result) -> None:
    np.testing.assert_array_equal(one.x, other.x)
    # Where a method keeps no dual, v is that of the certificate, whose sums sites and one process round differently.
    np.testing.assert_allclose(one.v, other.v, rtol=1e-9, atol=1e-12)
    for kind in set(one.traffic) - {"upkeep"}:
        assert one.traffic[kind] == other.traffic[kind]
    np.testing.assert_array_equal(one.history.objective, other.history.objective)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("slow", [False, True], ids=["quick", "slow"])
def test_the_same_bits_as_in_one_process(name: str, slow: bool) -> None:
    problem = helpers.graph_guided(clients=6)
    method, options = METHODS[name]
    here = fpdfp.solve(problem, method, rounds=20, seed=3, **options)
    crew, there = away(problem, sites=3)
    crew.slow = slow
    same(here, fpdfp.solve(there, method, rounds=20, seed=3, engine=crew, **options))
    assert (crew.totals.refused, crew.totals.absent) == (0, 0)


@pytest.mark.parametrize("losses", ["softmax", "least squares", "custom"])
def test_the_same_bits_for_all_kinds_of_losses(losses: str) -> None:
    problem = {"softmax": softmax, "least squares": helpers.fused_regression, "custom": custom}[losses]()
    batch = None if losses == "custom" else 4
    method = fpdfp.ShiftedPDFP(batch_size=batch)
    here = fpdfp.solve(problem, method, rounds=15, compressor=QSGD, clients_per_round=2)
    crew, there = away(problem, sites=2)
    same(here, fpdfp.solve(there, method, rounds=15, compressor=QSGD, clients_per_round=2, engine=crew))


def softmax() -> fpdfp.Problem:
    X, y, owner = helpers.softmax()
    return fpdfp.Problem(fpdfp.losses.Softmax(X, y, clients=owner, l2=0.1), fpdfp.penalties.L1(0.01))


def custom() -> fpdfp.Problem:
    targets = np.random.default_rng(0).standard_normal((4, 3))
    losses = fpdfp.losses.Custom(
        lambda i, x: 0.5 * float(((x - targets[i]) ** 2).sum()), lambda i, x: x - targets[i],
        n_clients=4, shape=(3,), lipschitz=1.0, strong_convexity=1.0,
    )  # fmt: skip
    return fpdfp.Problem(losses, fpdfp.penalties.L1(0.1))


def test_weights_by_samples_and_certificates() -> None:
    X, y, owner = helpers.classification(clients=4)
    owner = np.minimum(owner, np.arange(len(owner)) // 13)
    losses = fpdfp.losses.Logistic(X, y, clients=owner, l2=0.1)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.01), helpers.graph(12), weights="samples")
    here = fpdfp.solve(problem, rounds=300, tol=1e-6)
    crew, there = away(problem, sites=3)
    result = fpdfp.solve(there, rounds=300, tol=1e-6, engine=crew)
    assert here.status == result.status == "converged"
    same(here, result)


def test_a_slow_engine_asks_for_a_round_along_with_the_objective() -> None:
    problem = helpers.graph_guided(clients=6)
    crew, there = away(problem, sites=2)
    crew.slow = True
    crew.requests.clear()
    fpdfp.solve(there, rounds=10, prefer="rounds", engine=crew)
    # What is asked once, the constants and the first round, then one exchange for each round, the last of them for the
    # certificate; and for the bounds of that three more.
    assert len(crew.requests) == 2 * (2 + 1 + 10)


@pytest.mark.parametrize("slow", [False, True], ids=["quick", "slow"])
def test_a_difference_of_the_server_is_quantized_once(slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = helpers.graph_guided(clients=6)
    crew, there = away(problem, sites=2)
    crew.slow = slow
    asked = []
    for name in ("quantize", "compress"):
        real = getattr(fpdfp.QSGD, name)

        def counted(self: Any, arrays: Any, draws: Any, purpose: int, real: Any = real) -> Any:
            asked.append((draws.round, purpose))
            return real(self, arrays, draws, purpose)

        monkeypatch.setattr(fpdfp.QSGD, name, counted)
    options: dict[str, Any] = {"compressor": None, "downlink": fpdfp.QSGD(31, norm="max")}
    fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=6, engine=crew, **options)
    downlink = [k for k, purpose in asked if purpose == fpdfp.rng.Purpose.DOWNLINK]
    assert downlink == list(range(6))


def test_what_is_sent_is_what_is_counted() -> None:
    problem = helpers.graph_guided(clients=4, d=60)
    crew, there = away(problem, sites=4)
    crew.up.clear()
    result = fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=30, compressor=QSGD, evaluate_every=30, engine=crew)
    frames = sum(
        len(frame) for reply in crew.up if "update" in reply
        for frames in reply["update"]["frames"].values() for frame in frames
    )  # fmt: skip
    assert 0 <= 8 * frames - result.bits_up < 8 * 4 * 30


class TestTrouble:
    """Replies that are lost, damaged or forged count as absent, and the run goes on."""

    @pytest.fixture
    def problem(self) -> fpdfp.Problem:
        return helpers.fused_regression(clients=6, spread=0.3)

    @pytest.mark.parametrize("slow", [False, True], ids=["quick", "slow"])
    def test_lost_replies_and_restarts(self, problem: fpdfp.Problem, slow: bool) -> None:
        chance = np.random.default_rng(0)
        crew, there = away(problem, sites=3)
        crew.slow = slow

        def trouble(site: int, request: dict[str, Any], reply: bytes) -> bytes | None:
            if "update" not in request:
                return reply
            if chance.random() < 0.05:
                crew.restart(site)
            return None if chance.random() < 0.15 else reply

        crew.trouble = trouble
        options: dict[str, Any] = {"compressor": QSGD, "downlink": fpdfp.QSGD(31, norm="max")}
        result = fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=400, evaluate_every=50, engine=crew, **options)
        assert crew.totals.absent > 20
        assert crew.totals.healed > 10
        crew.trouble = None
        best = fpdfp.minimize(problem, tol=1e-12).objective
        assert problem.objective(result.x) / best - 1 < 1e-8

    def test_who_took_part_is_all_that_matters(self, problem: fpdfp.Problem) -> None:
        """Without site 1 in some rounds the bits are those of a run in one process with the same participants."""
        missing = {3, 4, 9}

        def trouble(site: int, request: dict[str, Any], reply: bytes) -> bytes | None:
            return None if site == 1 and request.get("update", {}).get("round") in missing else reply

        crew, there = away(problem, sites=3, trouble=trouble)
        result = fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=15, compressor=QSGD, engine=crew)

        class Absent(fpdfp.engines.run.Run):
            def who_answers(self, chosen: Any, k: int) -> Any:
                return chosen[~np.isin(chosen, [2, 3])] if k in missing else chosen

        solve = sys.modules["fpdfp.engines.solve"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(solve, "Run", Absent)
            here = fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=15, compressor=QSGD)
        np.testing.assert_array_equal(result.x, here.x)
        assert result.bits_up == here.bits_up

    def test_too_few_replies_are_waited_for(self, problem: fpdfp.Problem) -> None:
        tries = {"count": 0}

        def trouble(site: int, request: dict[str, Any], reply: bytes) -> bytes | None:
            if site == 1 and request.get("update", {}).get("round") == 2:
                tries["count"] += 1
                return reply if tries["count"] > 2 else None
            return reply

        crew, there = away(problem, sites=2, trouble=trouble, min_clients=6, patience=30.0)
        crew.pause = 0.0
        same(
            fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=5, compressor=QSGD),
            fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=5, compressor=QSGD, engine=crew),
        )
        assert tries["count"] == 3

    def test_a_site_that_cannot_be_healed_in_time_is_healed_with_the_next_request(self, problem: fpdfp.Problem) -> None:
        """A first exchange that takes all the time of a round, since another site is slow, leaves none for the rest."""
        limit = 0.1

        class Slow(Loopback):
            def carry(self, asked: Mapping[int, dict[str, Any]], deadline: float | None) -> dict[int, Any]:
                if deadline == 0:
                    return {}
                replies = super().carry(asked, deadline)
                if deadline is not None and deadline <= limit:
                    time.sleep(limit)
                return replies

        crew = Slow(problem, sites=2)
        crew.collector.deadline, crew.slow = limit, True
        versions = []

        def forget(run: fpdfp.Run) -> None:
            versions.append(run.memory.version.tolist())
            if run.round == 2:
                crew.restart(0)

        there = fpdfp.Problem(crew.losses(), problem.penalty, problem.linop)
        fpdfp.solve(there, rounds=5, engine=crew, callbacks=[forget], evaluate_every=5)
        assert versions == [[k] * 6 for k in (1, 2)] + [[k] * 3 + [k + 1] * 3 for k in (2, 3, 4)]

    def test_patience_ends_with_the_names(self, problem: fpdfp.Problem, tmp_path: Path) -> None:
        crew, there = away(problem, sites=2, min_clients=6, patience=0.05)
        crew.trouble = lambda site, request, reply: None if request.get("update", {}).get("round") == 3 else reply
        path = tmp_path / "run.npz"
        with pytest.raises(
            fpdfp.errors.AbsentError, match=r"round 4: 0 of 6 clients have answered within 0.05 s, and 6 are"
        ):
            fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=9, engine=crew, checkpoint=path, checkpoint_every=100)
        crew.trouble = None
        whole = fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=9)
        same(whole, fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=9, engine=crew, checkpoint=path, resume=True))

    def test_a_site_that_is_gone_at_the_end(self, problem: fpdfp.Problem, caplog: pytest.LogCaptureFixture) -> None:
        crew, there = away(problem, sites=3, patience=0.05)
        crew.trouble = lambda site, request, reply: None if site == 2 and crew.rounds_done >= 4 else reply
        result = fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=8, engine=crew)
        assert result.rounds == 8
        assert np.isfinite(result.x).all()
        assert np.isnan(result.objective)
        assert "nothing is certified: site 2 did not answer" in caplog.text

    @pytest.mark.parametrize(
        ("forge", "words"),
        [
            (lambda tree: b"", "too short"),
            (lambda tree: os.urandom(400), "not a parcel of fpdfp"),
            (lambda tree: pack(tree)[:-9] + b"123456789", "checksum is wrong"),
            (lambda tree: pack(["list"]), "a reply: must be Reply, got list"),
            (lambda tree: pack({}), "must have the requested part 'update'"),
            (lambda tree: pack({"update": None}), "must have the requested part 'update'"),
            (lambda tree: pack({"update": {"frames": {}, "bits": 0, "work": []}}), "a reply: update: bits: must be"),
            (lambda tree: forged(tree, lambda frame: frame[:-1]), "not as long as the reply says|checksum"),
            (lambda tree: forged(tree, lambda frame: nan_message()), "not finite|holds"),
            (lambda tree: forged(tree, lambda frame: other_shape(), bits=True), "a message holds"),
            (lambda tree: forged(tree, lambda frame: frame + bytes(10**6)), "checksum|not as long"),
            (lambda tree: pack({"needs": ["everything"]}), "still lacks"),
            (lambda tree: pack({"needs": 3}), "a reply: needs: must be list"),
        ],
    )  # fmt: skip
    def test_forged_replies(
        self, problem: fpdfp.Problem, caplog: pytest.LogCaptureFixture, forge: Any, words: str
    ) -> None:
        def trouble(site: int, request: dict[str, Any], reply: bytes) -> bytes | None:
            if site == 1 and request.get("update", {}).get("round") in (2, 5):
                made: bytes = forge(unpack(reply))
                return made
            return reply

        crew, there = away(problem, sites=3, trouble=trouble)
        with caplog.at_level(logging.WARNING, "fpdfp.engines"):
            result = fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=60, engine=crew)
        assert crew.totals.refused == 2
        assert "the reply of site 1 is refused" in caplog.text
        assert re.search(words, caplog.text), caplog.text
        assert result.status == "finished"
        best = fpdfp.minimize(problem, tol=1e-12).objective
        assert problem.objective(result.x) / best - 1 < 1e-3

    def test_values_that_are_no_numbers_are_not_recorded(self, problem: fpdfp.Problem) -> None:
        def trouble(site: int, request: dict[str, Any], reply: bytes) -> bytes | None:
            tree = unpack(reply)
            if site == 0 and "at" in tree and crew.rounds_done == 2:
                tree["at"]["values"] = np.array([np.nan, 1.0])
            return pack(tree)

        crew, there = away(problem, sites=3)
        crew.trouble = trouble
        result = fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=6, engine=crew)
        assert result.history["round"].tolist() == [0, 1, 2, 4, 5, 6]

    def test_a_norm_bound_shortens_what_is_too_long(self, problem: fpdfp.Problem) -> None:
        exact = fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=80)
        crew, there = away(problem, sites=3, norm_bound=100.0)
        same(exact, fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=80, engine=crew))
        crew, there = away(problem, sites=3, norm_bound=0.5)
        result = fpdfp.solve(there, fpdfp.ShiftedPDFP(0.2, momentum=False), rounds=600, engine=crew)
        assert (crew.totals.refused, crew.totals.healed) == (0, 0)  # both sides shorten alike
        assert result.objective / exact.objective - 1 < 1e-3
        arrays = np.array([[3.0, 4.0], [0.3, 0.4]])
        np.testing.assert_allclose(shorten(arrays, 1.0), [[0.6, 0.8], [0.3, 0.4]])

    def test_divergence_is_told_as_in_one_process(self, problem: fpdfp.Problem) -> None:
        crew, there = away(problem, sites=2)
        with pytest.warns(fpdfp.errors.DivergenceWarning), pytest.warns(fpdfp.errors.StepTooLargeWarning):
            result = fpdfp.solve(there, fpdfp.FPDFP(1e6), rounds=300, evaluate_every=300, engine=crew)
        assert result.status == "diverged"


class TestCheckpoints:
    """A server that is killed goes on from its checkpoint, to the same bits."""

    @pytest.mark.parametrize("at", [1, 7, 13])
    @pytest.mark.parametrize("every", [1, 5])
    def test_a_server_killed_anywhere(self, tmp_path: Path, at: int, every: int) -> None:
        problem = helpers.graph_guided(clients=6)
        options: dict[str, Any] = {"rounds": 20, "compressor": QSGD, "clients_per_round": 4}
        options |= {"downlink": fpdfp.QSGD(31, norm="max")}
        whole = fpdfp.solve(problem, fpdfp.ShiftedPDFP(), **options)
        path = tmp_path / "run.npz"
        crew, there = away(problem, sites=3)

        class KilledError(BaseException):
            pass

        def trouble(site: int, request: dict[str, Any], reply: bytes) -> bytes | None:
            if site == 2 and request.get("update", {}).get("round", -1) >= at and not crew.quiet:
                crew.quiet = True
                raise KilledError  # the other sites have done the round's work
            return reply

        crew.trouble = trouble
        crew.quiet = True
        saves = sys.modules["fpdfp.engines.loop"]
        real = saves.Loop.save

        def save(loop: Any) -> None:
            if not crew.dead:
                real(loop)
            crew.quiet = False

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(saves.Loop, "save", save)
            crew.dead = False
            with contextlib.suppress(KilledError):
                fpdfp.solve(
                    there, fpdfp.ShiftedPDFP(), engine=crew, checkpoint=path, checkpoint_every=every,
                    callbacks=[lambda run: setattr(crew, "dead", run.round >= at and every == 1)], **options,
                )  # fmt: skip
        # A new server, which knows nothing but the checkpoint; the sites are those that were there.
        again = Loopback(problem, sites=3)
        again.sites = crew.sites
        there = fpdfp.Problem(again.losses(), problem.penalty, problem.linop)
        result = fpdfp.solve(there, fpdfp.ShiftedPDFP(), engine=again, checkpoint=path, resume=path.exists(), **options)
        np.testing.assert_array_equal(result.x, whole.x)
        np.testing.assert_array_equal(result.v, whole.v)
        assert result.bits_up == whole.bits_up

    def test_checkpoints_go_from_one_engine_to_another(self, tmp_path: Path) -> None:
        problem = helpers.graph_guided(clients=6)
        options: dict[str, Any] = {"compressor": QSGD, "clients_per_round": 4, "evaluate_every": 5}
        whole = fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=20, **options)
        first, second = tmp_path / "first.npz", tmp_path / "second.npz"
        crew, there = away(problem, sites=3)
        fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=10, engine=crew, checkpoint=first, **options)
        here = fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=20, resume=first, **options)
        np.testing.assert_array_equal(here.x, whole.x)
        fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=10, checkpoint=second, **options)
        crew, there = away(problem, sites=2)
        result = fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=20, engine=crew, resume=second, **options)
        np.testing.assert_array_equal(result.x, whole.x)

    def test_a_full_disk_leaves_the_old_checkpoint(self, tmp_path: Path) -> None:
        """In a process that may not write files longer than the first checkpoint."""
        program = """
import resource, signal, sys
import numpy as np, fpdfp
from tests import helpers
path = sys.argv[1]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
problem = helpers.graph_guided(clients=6)
def fill(run):
    if run.round == 5:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=20, checkpoint=path, checkpoint_every=1, callbacks=[fill])
except fpdfp.errors.CheckpointError as error:
    print(error)
"""
        path = tmp_path / "run.npz"
        done = subprocess.run(
            [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True,
            cwd=Path(__file__).parent.parent,
        )  # fmt: skip
        assert "could not be written" in done.stdout
        assert "the old one is intact" in done.stdout
        assert [child.name for child in tmp_path.iterdir()] == ["run.npz"]
        problem = helpers.graph_guided(clients=6)
        whole = fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=20)
        same(whole, fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=20, resume=path))


class TestParcels:
    """What goes over the network is never executed, and never longer than it says."""

    trees = st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
        | st.text() | st.binary(),
        lambda children: st.lists(children) | st.dictionaries(st.text(), children),
        max_leaves=20,
    )  # fmt: skip

    @given(trees)
    def test_any_tree_comes_back(self, tree: Any) -> None:
        assert unpack(pack(tree)) == tree

    @pytest.mark.parametrize("dtype", ["?", "u1", "i4", "i8", "f4", "f8"])
    @pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3)])
    def test_arrays_come_back(self, dtype: str, shape: tuple[int, ...]) -> None:
        array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
        (back,) = unpack(pack([array]))
        np.testing.assert_array_equal(back, array)
        assert back.dtype == array.dtype

    @pytest.mark.parametrize("dtype", ["f4", "f8"])
    @pytest.mark.parametrize("nonzero", [0, 5, 100, 101])
    def test_arrays_come_back_without_their_zeros(self, dtype: str, nonzero: int) -> None:
        array = np.zeros((4, 200), dtype=dtype)
        array.flat[np.random.default_rng(0).choice(800, nonzero, replace=False)] = 1.5
        parcel = pack([array])
        (back,) = unpack(parcel)
        np.testing.assert_array_equal(back, array)
        assert back.dtype == array.dtype
        assert (len(parcel) < array.nbytes / 4) == (nonzero <= 100)
        assert 0 <= len(parcel) - payload([array]) / 8 < 100

    def test_zeros_have_a_limit(self) -> None:
        many = pack([np.zeros(1 << 22) for _ in range(17)])
        assert len(many) < 2000
        with pytest.raises(fpdfp.errors.MessageError, match="too large"):
            unpack(many)

    @given(st.data())
    def test_damage_is_seen(self, data: st.DataObject) -> None:
        parcel = bytearray(pack({"x": np.arange(5.0), "frames": [b"abc"], "round": 3}))
        at = data.draw(st.integers(0, len(parcel) - 1))
        parcel[at] ^= data.draw(st.integers(1, 255))
        with pytest.raises(fpdfp.errors.MessageError):
            unpack(bytes(parcel))
        with pytest.raises(fpdfp.errors.MessageError):
            unpack(bytes(parcel[:at]))

    def test_what_cannot_be_sent(self) -> None:
        with pytest.raises(TypeError, match="dtype complex128"):
            pack(np.zeros(2, dtype=complex))
        with pytest.raises(TypeError, match="names in a parcel must be texts"):
            pack({1: 1})
        deep: Any = []
        for _ in range(40):
            deep = [deep]
        with pytest.raises(ValueError, match="deep"):
            pack(deep)


class TestDescriptions:
    """Methods, penalties and maps are told in words and numbers, not in code."""

    @pytest.mark.parametrize(
        "value",
        [
            fpdfp.penalties.L1(np.array([0.1, 0.2])),
            fpdfp.penalties.GroupL12(0.3, groups=[0, 0, 1]).bind((3,)),
            fpdfp.penalties.Box(-1.0, np.inf),
            fpdfp.linops.Gradient((4, 5)),
            fpdfp.linops.aslinop(helpers.graph(6)),
            fpdfp.FPDFP(fpdfp.steps.Constant(0.1), local_steps=3),
            fpdfp.QSGD(5, norm="max"),
            fpdfp.compress.TopK(3),
        ],
        ids=repr,
    )
    def test_objects_come_back(self, value: Any) -> None:
        back = parcels.load(unpack(pack(parcels.dump(value))))
        assert type(back) is type(value)
        assert repr(back) == repr(value)
        if isinstance(value, fpdfp.linops.LinOp):
            x = np.random.default_rng(0).standard_normal(value.in_shape)
            np.testing.assert_array_equal(back.apply(x), value.apply(x))
        if isinstance(value, fpdfp.penalties.Penalty):
            y = np.array([0.5, -2.0, 1.0])[: 2 if "(2,)" in repr(value) else 3]
            np.testing.assert_array_equal(back.prox(y, 0.3), value.prox(y, 0.3))

    def test_code_is_refused(self) -> None:
        import scipy.sparse.linalg

        wrapped = fpdfp.linops.aslinop(scipy.sparse.linalg.aslinearoperator(np.eye(3)))
        with pytest.raises(TypeError, match="cannot be sent to sites"):
            parcels.dump(wrapped)
        with pytest.raises(TypeError, match="cannot be sent to sites"):
            parcels.dump(lambda x: x)

    @pytest.mark.parametrize(
        "name",
        [
            "os:system",
            "fpdfp.cli:app",
            "fpdfp.cohorts.site:Site",
            "fpdfp.penalties.separable:np",
            "fpdfp.penalties.separable:L1.x",
            "x",
        ],
    )
    def test_other_classes_are_refused(self, name: str) -> None:
        with pytest.raises(fpdfp.errors.MessageError, match="not a class that may be sent"):
            parcels.load({"class": name, "fields": {}})

    @given(TestParcels.trees)
    def test_nonsense_is_refused_or_harmless(self, tree: Any) -> None:
        with contextlib.suppress(fpdfp.errors.MessageError):
            parcels.load(tree)

    def test_jobs(self) -> None:
        problem = helpers.graph_guided(clients=3)
        algorithm = helpers.prepare(problem, fpdfp.FPDFP(0.1))
        job = Job(algorithm, {"x": QSGD, "v": QSGD}, None, Place(np.arange(3), None, 1.0, 5))
        back = parcels.load(unpack(pack(parcels.dump(job))), Job)
        assert repr(back.algorithm) == repr(job.algorithm)
        site = Site(problem.losses)
        with pytest.raises(fpdfp.errors.MessageError, match="algorithm: must be Algorithm, got NoneType"):
            site.handle(parcels.load({"job": {"algorithm": None}}))
        with pytest.raises(fpdfp.errors.MessageError, match="must be dict, got list"):
            parcels.load([], dict)
        with pytest.raises(fpdfp.errors.MessageError, match="must be Request, got list"):
            site.handle([])  # type: ignore[arg-type]


class TestSites:
    """What a site refuses."""

    def test_jobs_for_others(self) -> None:
        problem = helpers.graph_guided(clients=3)
        site = Site(problem.losses.part(np.array([0, 1])))
        job = Job(helpers.prepare(problem, fpdfp.FPDFP(0.1)), {}, None, Place(np.arange(3), None, 1.0, 5))
        with pytest.raises(fpdfp.errors.MessageError, match="this site has 2 clients, the server counts 3"):
            site.begin(job, "key")
        other = helpers.prepare(helpers.graph_guided(clients=2, d=5), fpdfp.FPDFP(0.1))
        job = Job(other, {}, None, Place(np.arange(2), None, 1.0, 5))
        with pytest.raises(fpdfp.errors.MessageError, match=r"x of shape \(12,\)"):
            site.begin(job, "key")
        with pytest.raises(TypeError, match=r"load must return one of fpdfp\.losses, got int"):
            Site(3)  # type: ignore[arg-type]

    def test_a_request_that_comes_twice_has_the_same_reply(self) -> None:
        problem = helpers.graph_guided(clients=4)
        crew, there = away(problem, sites=2)
        crew.twice = True
        here = fpdfp.solve(problem, rounds=12)
        same(here, fpdfp.solve(there, rounds=12, engine=crew))

    def test_sealed_files(self, tmp_path: Path) -> None:
        path = tmp_path / "memory"
        files.write_sealed(path, lambda file: file.write(b"abc"))
        assert files.read_sealed(path) == b"abc"
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(ValueError, match="cut off or damaged"):
            files.read_sealed(path)


class TestMistakes:
    """What is refused before any work is done."""

    def test_engines(self) -> None:
        problem = helpers.graph_guided(clients=4)
        with pytest.raises(TypeError, match=r"engine must be one of fpdfp.engines or None, got .*str"):
            fpdfp.solve(problem, rounds=3, engine="ray")  # type: ignore[arg-type]
        crew, there = away(problem)
        with pytest.raises(TypeError, match="problem must have the losses of this engine"):
            fpdfp.solve(problem, rounds=3, engine=crew)
        with pytest.raises(ValueError, match="method must be one whose clients keep nothing that"):
            fpdfp.solve(there, fpdfp.SVRGPDFP(), rounds=3, engine=crew)
        with pytest.raises(NotImplementedError, match=r"single clients .* Cohort.ask_each"):
            there.losses.gradients(np.zeros(12), np.arange(4), 3)

    @pytest.mark.parametrize(
        ("option", "value"), [("deadline", 0.0), ("min_clients", 0), ("patience", -1.0), ("norm_bound", 0.0)]
    )
    def test_options(self, option: str, value: Any) -> None:
        with pytest.raises(ValueError, match=option):
            Loopback(helpers.graph_guided(clients=2), **{option: value})

    def test_sites_that_differ(self) -> None:
        problem = helpers.graph_guided(clients=4)
        crew = Loopback(problem)
        crew.sites[1] = Site(helpers.graph_guided(clients=2, d=5).losses)
        with pytest.raises(fpdfp.errors.MessageError, match=r"shape is \(5,\) at site 1 and \(12,\) at site 0"):
            crew.losses()

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            (["dose", "age", "sex"], "site 1 has them in another order than site 0; they differ at the columns 0, 1"),
            (["age", "dose", "gender"], "site 1 has them with other names than site 0; they differ at the columns 2 "),
            (None, "site 0 names its features, but site 1 does not"),
        ],
    )
    def test_sites_whose_features_differ_by_name(self, names: list[str] | None, message: str) -> None:
        X, y = np.random.default_rng(0).standard_normal((8, 3)), np.tile([0.0, 1.0], 4)
        owners = np.arange(8) // 4
        ours = fpdfp.losses.Logistic(X, y, clients=owners, feature_names=["age", "dose", "sex"])
        crew = Loopback(fpdfp.Problem(ours, fpdfp.penalties.L1(0.1)))
        crew.losses()
        crew = Loopback(fpdfp.Problem(ours, fpdfp.penalties.L1(0.1)))
        crew.sites[1] = Site(fpdfp.losses.Logistic(X[4:], y[4:], feature_names=names))
        with pytest.raises(fpdfp.errors.MessageError, match=f"same features in the same order: {re.escape(message)}"):
            crew.losses()

    def test_features_without_names_are_not_compared(self, caplog: pytest.LogCaptureFixture) -> None:
        Loopback(helpers.graph_guided(clients=2)).losses()
        assert "no site names its features" in caplog.text

    def test_names_of_features_are_those_of_a_table(self) -> None:
        pandas = pytest.importorskip("pandas")
        table = pandas.DataFrame({"age": [1.0, 2.0], "dose": [3.0, 4.0]})
        assert fpdfp.losses.Logistic(table, [0, 1]).feature_names == ("age", "dose")
        assert fpdfp.losses.Softmax(table, [0, 1]).part(np.array([0])).feature_names == ("age", "dose")
        assert fpdfp.losses.Logistic(np.eye(2), [0, 1]).feature_names is None
        with pytest.raises(ValueError, match="feature_names must be one name for each of the 2 features, got 3"):
            fpdfp.losses.LeastSquares(np.eye(2), [0, 1], feature_names=["a", "b", "c"])

    def test_clients_have_the_names_of_their_sites(self) -> None:
        names = Loopback(helpers.graph_guided(clients=3)).losses().client_names
        assert names.tolist() == ["site 0, 0", "site 0, 1", "site 1"]

    def test_facts_that_cannot_be(self) -> None:
        problem = helpers.graph_guided(clients=4)

        def trouble(site: int, request: dict[str, Any], reply: bytes) -> bytes:
            tree = unpack(reply)
            tree["bounds"]["lipschitz"] = -tree["bounds"]["lipschitz"]
            return pack(tree)

        crew = Loopback(problem, trouble=trouble, patience=0.05)
        with pytest.raises(fpdfp.errors.AbsentError, match="site 0, site 1 did not answer"):
            crew.losses()


def forged(tree: Any, change: Any, bits: bool = False) -> bytes:
    """A reply with its first message changed, and perhaps with what it says of its length."""
    frames = next(iter(tree["update"]["frames"].values()))
    frames[0] = change(frames[0])
    if bits:
        tree["update"]["bits"][0, 0] = 8 * len(frames[0])
    return pack(tree)


def nan_message() -> bytes:
    """A message with numbers that are none, checksum and all."""
    import struct
    import zlib

    (good,) = fpdfp.compress.Full().encode(fpdfp.compress.Full().quantize(np.ones((1, 8)), draws(), 16))
    body = bytearray(good[:-4])
    body[-8:] = struct.pack("<d", float("nan"))
    return bytes(body) + struct.pack("<I", zlib.crc32(bytes(body)))


def other_shape() -> bytes:
    return fpdfp.compress.Full().encode(fpdfp.compress.Full().quantize(np.ones((1, 9)), draws(), 16))[0]


def draws() -> Any:
    return fpdfp.rng.Draws(0, 0, np.zeros(1, dtype=np.int64))


class TestReviewed:
    """What a careful reader found, and must not come back."""

    def test_asking_ahead_and_certificates_with_mini_batches(self) -> None:
        problem = helpers.graph_guided(clients=6)
        method = fpdfp.ShiftedPDFP(batch_size=7)
        options: dict[str, Any] = {"rounds": 40, "tol": 1e-9, "compressor": QSGD}
        crew, there = away(problem, sites=3)
        crew.slow = True
        same(fpdfp.solve(problem, method, **options), fpdfp.solve(there, method, engine=crew, **options))
        assert crew.totals.healed == 0

    def test_a_model_of_before_the_restart_is_not_taken_for_the_new_one(self, tmp_path: Path) -> None:
        """The server dies having sent a model, goes on earlier, and one site misses its first message."""
        problem = helpers.graph_guided(clients=6)
        options: dict[str, Any] = {"compressor": QSGD, "downlink": fpdfp.QSGD(31, norm="max"), "evaluate_every": 50}
        path = tmp_path / "run.npz"
        crew, there = away(problem, sites=3)
        crew.slow = True
        fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=5, engine=crew, checkpoint=path, **options)
        saved = path.read_bytes()
        fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=7, engine=crew, checkpoint=path, resume=True, **options)
        path.write_bytes(saved)
        again = Loopback(problem, sites=3)
        again.sites = crew.sites
        again.deaf = lambda site, request: site == 1 and request.get("update", {}).get("round") == 5
        there = fpdfp.Problem(again.losses(), problem.penalty, problem.linop)
        fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=9, engine=again, checkpoint=path, resume=True, **options)
        models = [site.seen.arrays[0] for site in again.sites if site.seen is not None]
        np.testing.assert_array_equal(models[0], models[1])
        np.testing.assert_array_equal(models[0], models[2])

    @pytest.mark.parametrize("trusted", [False, True])
    @pytest.mark.parametrize("at", [3, 4])
    def test_private_memory_goes_on_after_a_restart(self, tmp_path: Path, trusted: bool, at: int) -> None:
        problem = helpers.graph_guided(clients=6)
        method, options = fpdfp.FedMiD(inner=fpdfp.InnerSolve()), {"compressor": QSGD, "rounds": 9}
        whole = fpdfp.solve(problem, method, **options)
        path = tmp_path / "run.npz"
        crew, there = away(problem, sites=3)
        crew.slow, crew.trusted = not trusted, trusted

        class KilledError(BaseException):
            pass

        def kill(run: Any) -> None:
            if run.round == at:
                raise KilledError

        # With a round asked for ahead, sites are further than the checkpoint when the server dies.
        with contextlib.suppress(KilledError):
            fpdfp.solve(there, method, engine=crew, checkpoint=path, checkpoint_every=1, callbacks=[kill], **options)
        again = Loopback(problem, sites=3)
        again.slow, again.trusted = not trusted, trusted
        if not trusted:
            again.sites = crew.sites
        there = fpdfp.Problem(again.losses(), problem.penalty, problem.linop)
        result = fpdfp.solve(there, method, engine=again, checkpoint=path, resume=True, **options)
        np.testing.assert_array_equal(result.x, whole.x)

    @pytest.mark.parametrize("method", [fpdfp.ShiftedPDFP(), fpdfp.FPDFP()], ids=repr)
    def test_an_absent_site_does_not_end_a_run_with_a_tolerance(self, method: Any) -> None:
        problem = helpers.graph_guided(clients=6)
        crew, there = away(problem, sites=3, deadline=0.05, patience=0.5)
        crew.trouble = lambda site, request, reply: None if site == 1 and 2 <= crew.rounds_done <= 5 else reply
        result = fpdfp.solve(there, method, rounds=12, tol=1e-15, engine=crew)
        assert result.rounds == 12

    def test_numbers_that_are_too_large_are_refused(self) -> None:
        problem = helpers.graph_guided(clients=6)

        def trouble(site: int, request: dict[str, Any], reply: bytes) -> bytes | None:
            if site != 1 or request.get("update", {}).get("round") != 2:
                return reply
            tree = unpack(reply)
            full = fpdfp.compress.Full()
            frames = full.encode(full.quantize(np.full((2, 12), 1e200), fpdfp.rng.Draws(0, 0, np.arange(2)), 16))
            tree["update"]["frames"]["difference"] = frames
            tree["update"]["work"] = [2**64, 0]
            return pack(tree)

        crew, there = away(problem, sites=3, trouble=trouble)
        result = fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=20, engine=crew)
        assert crew.totals.refused == 1
        assert np.isfinite(result.objective)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("family", None), ("form", "cubic"), ("constants", 3), ("sizes", np.array([2**62, 1])),
            ("least_convexity", -1.0), ("lipschitz", np.ones(3)), ("dtype", "<f2"),
            ("shape", [-12]), ("shape", [2**31]),
        ],
    )  # fmt: skip
    def test_facts_that_cannot_be_name_the_site(self, name: str, value: Any, caplog: pytest.LogCaptureFixture) -> None:
        def trouble(site: int, request: dict[str, Any], reply: bytes) -> bytes:
            tree = unpack(reply)
            if site == 1:
                tree["facts" if name in tree["facts"] else "bounds"][name] = value
            return pack(tree)

        crew = Loopback(helpers.graph_guided(clients=4), trouble=trouble, patience=0.05)
        with pytest.raises(fpdfp.errors.AbsentError, match=r"^site 1 did not answer"):
            crew.losses()
        assert "the reply of site 1 is refused" in caplog.text

    def test_repeated_clients_are_refused(self) -> None:
        problem = helpers.graph_guided(clients=3)
        site = Site(problem.losses)
        algorithm = helpers.prepare(problem, fpdfp.FPDFP(0.1))
        job = Job(algorithm, {"x": QSGD, "v": QSGD}, None, Place(np.arange(3), None, 1.0, 5))
        site.begin(job, "key")
        asked = {"round": 0, "message": {}}
        for clients in (np.zeros(3, dtype=np.int64), np.array([2, 1]), np.array([3]), np.array([-1]), np.arange(0)):
            stamps = {"clients": clients, "versions": np.zeros_like(clients), "digests": [b""] * len(clients)}
            with pytest.raises(fpdfp.errors.MessageError, match=r"in the order of their numbers|at least one"):
                site.handle({"key": "key", "update": asked | stamps})

    def test_constants_before_any_run(self) -> None:
        problem = helpers.graph_guided(clients=4)
        _, there = away(problem)
        np.testing.assert_array_equal(there.losses.batch_smoothness(3), problem.losses.batch_smoothness(3))
