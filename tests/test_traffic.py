"""Every kind of message is counted: by hand, against real parcels, in one process as elsewhere, and when resumed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.cohorts.question import Question, questions
from fpdfp.traffic import KINDS, Bits, Traffic
from tests import helpers
from tests.loopback import Loopback

#: Clients, features, and the sizes of messages in bits: header and checksum are 10 bytes, 9 without a shape.
N, D = 4, 12
VECTOR, NUMBER = 64 * D + 80, 64 + 72
WEIGHT = 64 + 80
#: What a certificate asks beside the gradient: the gradient of the same rows in another sum, how large slopes and
#: columns are (a number and a vector), and the gap at two dual points that were scaled (a number each, for the scale).
#: Each of these three questions has the weight of the client; x was told with the question for the gradient.
SUMS = Bits(NUMBER + 2 * VECTOR + 2 * NUMBER, 3 * WEIGHT + 2 * NUMBER)
QSGD = fpdfp.QSGD(7, norm="max")
#: Questions that are asked once, before the rounds or between them.
ONCE = {name for name, kind in questions().items() if kind.answers is Question.answers}


@pytest.fixture(scope="module")
def problem() -> fpdfp.Problem:
    return helpers.graph_guided(clients=N, d=D)


def away(problem: fpdfp.Problem, **options: Any) -> tuple[Loopback, fpdfp.Problem]:
    crew = Loopback(problem, sites=N, **options)
    return crew, fpdfp.Problem(crew.losses(), problem.penalty, problem.linop, weights=problem.weights)


def public() -> int:
    """The bits of B, a sparse matrix: each entry with its column, and where each row begins; g is a single number."""
    B = helpers.graph(D)
    return int(B.nnz * (64 + 32) + 32 * (B.shape[0] + 1))


def test_by_hand(problem: fpdfp.Problem) -> None:
    given = {"compressor": fpdfp.QSGD(11, norm="max"), "downlink": fpdfp.QSGD(31, norm="max")}
    method = fpdfp.ShiftedPDFP(preconditioner="moments")
    result = fpdfp.solve(problem, method, rounds=40, tol=1e-6, evaluate_every=2, **given)
    assert result.status == "converged"
    assert result.rounds < 40
    rows = result.rounds // 2  # those of certificates cost nothing more
    assert not result.is_certified
    assert result.traffic["end"] == (0, 0)
    _ = result.certificate
    traffic = result.traffic
    # Five numbers of each client, among them its value at zero, and a constant in other coordinates.
    assert traffic["facts"] == (N * (5 * 64 + 80 + NUMBER), N * public())
    triangle = 32 * D * (D + 1) // 2 + 80
    assert traffic["preconditioner"] == (N * triangle, N * triangle)
    # The start is known by then.
    assert traffic["evaluation"] == (rows * N * NUMBER, rows * N * VECTOR)
    # x in float32 for this tolerance, what the shifts lack, in fewer bits, and a bound of rounding, for two numbers
    asked, rest = divmod(traffic["certificate"].up, N * (2 * 64 + 80))
    assert asked >= 1
    assert rest == 0
    known = 32 * D + 80 + 64 + 80
    assert asked * N * known < traffic["certificate"].down <= asked * N * (known + 32 * D + 80)
    # The value and the gradient at x as it was certified, rounded to float32, and what a certificate asks beside them.
    assert traffic["end"] == (N * (NUMBER + VECTOR + SUMS.up), N * (VECTOR + SUMS.down))
    assert traffic["upkeep"] == (0, 0)
    assert result.total_up == sum(bits.up for bits in traffic.values())
    assert result.total_down == sum(bits.down for bits in traffic.values())
    assert (result.bits_up, result.bits_once_up) == (traffic["rounds"].up, traffic["preconditioner"].up)
    assert (result.bits_down, result.bits_once_down) == (traffic["rounds"].down, traffic["preconditioner"].down)


def test_a_certificate_is_sent_for_when_it_is_read(problem: fpdfp.Problem) -> None:
    result = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=6)
    assert result.traffic["evaluation"] == (6 * N * NUMBER, 6 * N * VECTOR)
    assert result.traffic["end"] == (0, 0)
    before = result.total_up
    assert result.certificate.gap is not None
    assert result.traffic["end"] == (N * (VECTOR + SUMS.up), N * (VECTOR + SUMS.down))
    assert result.total_up == before + result.traffic["end"].up
    again = pickle.loads(pickle.dumps(fpdfp.solve(problem, fpdfp.FPDFP(), rounds=6)))
    assert again.certificate.gap == result.certificate.gap
    result = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=6)
    rarely = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=6, evaluate_every=6)
    assert rarely.traffic["evaluation"] == (N * NUMBER, N * VECTOR)
    assert rarely.total_up - result.total_up == -5 * N * NUMBER


def test_a_tolerance_without_certificates_of_the_clients_takes_gradients(problem: fpdfp.Problem) -> None:
    result = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=6, tol=1e-12)
    # Up to round 10 there is a look after every round, at the value and the gradient.
    up, down = 6 * (NUMBER + VECTOR + SUMS.up), 6 * (VECTOR + SUMS.down)
    assert result.traffic["certificate"] == (N * up, N * down)
    assert result.traffic["evaluation"] == (0, 0)
    assert result.traffic["end"] == (N * SUMS.up, N * SUMS.down)
    assert result.history.round.tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_mini_batches_take_a_constant_of_each_client(problem: fpdfp.Problem) -> None:
    plain, batches = (fpdfp.solve(problem, fpdfp.FPDFP(batch_size=b), rounds=2) for b in (None, 5))
    assert batches.traffic["facts"].up - plain.traffic["facts"].up == N * NUMBER


def test_the_history_has_totals(problem: fpdfp.Problem) -> None:
    method = fpdfp.ShiftedPDFP(preconditioner="moments")
    given = {"compressor": fpdfp.QSGD(11, norm="max"), "downlink": fpdfp.QSGD(31, norm="max")}
    result = fpdfp.solve(problem, method, rounds=8, tol=1e-14, evaluate_every=1, **given)
    history = result.history
    assert (np.diff(history.total_up) > 0).all()
    assert (np.diff(history.total_down) > 0).all()
    np.testing.assert_array_equal(history.evaluation_up, np.arange(9) * N * NUMBER)
    np.testing.assert_array_equal(history.evaluation_down, np.arange(9) * N * VECTOR)
    assert history.total_up[0] == (result.traffic["facts"].up + result.traffic["preconditioner"].up)
    # Gradients came with the last row, and count for the end, which rows leave out. After it clients certify the gap
    # with two numbers each, which is too large, and so a certificate is computed, and once more for the result.
    assert result.traffic["certificate"].up == N * (2 * 64 + 80 + SUMS.up)
    assert result.total_up - history.total_up[-1] == N * (VECTOR + 2 * 64 + 80 + 2 * SUMS.up)


def test_print(problem: fpdfp.Problem) -> None:
    text = str(fpdfp.solve(problem, rounds=5)).splitlines()
    at = next(i for i, line in enumerate(text) if line.startswith("total bits"))
    kinds = [line.split()[0] for line in text[at + 1 :] if line.startswith("  ")]
    assert kinds == ["rounds", "preconditioner", "facts", "evaluation", "end"]
    assert all(kind in KINDS for kind in kinds)


METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    "automatic": (None, {}),
    "tolerance": (None, {"tol": 1e-6}),
    "from elsewhere": (None, {"x0": np.linspace(-1, 1, D), "evaluate_every": 7}),
    "FPDFP": (fpdfp.FPDFP(batch_size=5), {"compressor": QSGD, "clients_per_round": 3, "tol": 1e-9}),
    "given coordinates": (
        fpdfp.ShiftedPDFP(preconditioner=fpdfp.precondition.Whitening(np.diag(np.linspace(1, 2, D))), batch_size=7),
        {"compressor": QSGD},
    ),
    "moments": (
        fpdfp.ShiftedPDFP(preconditioner=fpdfp.precondition.QuantizedMoments(31, clients=2)),
        {"compressor": QSGD},
    ),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("slow", [False, True], ids=["quick", "slow"])
def test_parcels_hold_what_is_counted(name: str, slow: bool, problem: fpdfp.Problem) -> None:
    method, options = METHODS[name]
    here = fpdfp.solve(problem, method, rounds=20, seed=3, **options)
    crew, there = away(problem)
    crew.slow = slow
    result = fpdfp.solve(there, method, rounds=20, seed=3, engine=crew, **options)
    for kind in set(KINDS) - {"upkeep"}:
        assert result.traffic[kind] == here.traffic[kind], kind
    # A slow engine may have asked for a round that is not done; nothing else is sent beside what is counted.
    assert here.traffic["upkeep"] == (0, 0)
    assert slow or result.traffic["upkeep"] == (0, 0)
    ahead = slow and result.status == "converged" and options.get("evaluate_every") is not None
    assert (result.traffic["upkeep"].up > 0) == ahead
    if not ahead:
        np.testing.assert_array_equal(result.history.total_up, here.history.total_up)
        np.testing.assert_array_equal(result.history.total_down, here.history.total_down)
    found = contents(crew, result.rounds)
    traffic = result.traffic
    asked = [traffic[kind] for kind in ("facts", "evaluation", "certificate", "end")]
    up, down = ("facts", "constants", "at", "duals", "answers", "models"), ("job", "at", "duals", "answers", "models")
    # Messages fill up their last byte.
    surplus = sum(found[f"{part} up"] for part in up) - sum(bits.up for bits in asked)
    assert 0 <= surplus < 8 * found["frames of models"] + 1
    # g and B are counted also where a run ends before its first round, with which sites receive them.
    unsent = 0 if found["job down"] else N * public()
    surplus = sum(found[f"{part} down"] for part in down) + unsent - sum(bits.down for bits in asked)
    assert 0 <= surplus <= 7 * found["frames asked"]
    for way in ("up", "down"):
        assert 0 <= found[f"update {way}"] - getattr(traffic["rounds"], way) < 8 * found[f"frames {way}"] + 1
    assert 0 <= found["gather up"] - traffic["preconditioner"].up < 8 * found["once up"] + 1


def contents(crew: Loopback, rounds: int) -> dict[str, int]:
    """The bits of what was really sent, by what was asked, as messages of one client each."""
    found = dict.fromkeys(
        (f"{part} {way}" for way in ("up", "down") for part in (
            "facts", "constants", "at", "duals", "gather", "once", "answers", "update", "frames", "job", "models",
        )), 0
    ) | {"frames asked": 0, "frames of models": 0}  # fmt: skip

    def add(name: str, arrays: Any) -> None:
        for array in arrays:
            found[name] += 8 * np.asarray(array).nbytes + 8 * (9 + np.ndim(array))

    for request, reply in zip(crew.requests, crew.up, strict=True):
        if "facts" in request:
            facts = reply["facts"]
            bounds = reply["bounds"]
            numbers = [facts["sizes"], bounds["lipschitz"], facts["probe"], facts["values"]]
            add("facts up", [np.concatenate([*numbers, [bounds["least_convexity"]]])])
            add("facts up", facts["constants"])
            add("facts up", [facts["features"]] if len(facts["features"]) else [])
            rest = {
                "family",
                "shape",
                "dtype",
                "form",
                "batches",
                "hessians",
                "duals",
                "restricts",
                "convex",
                "constants",
                "features",
            }
            assert set(facts) == rest | {"sizes", "probe", "values"}
        if "constants" in request:
            add("constants up", [one[0] for one in reply["constants"].values()])
        for name in set(request) & {"local_models", "slopes"}:
            frames = [frame for frames in reply[name]["frames"].values() for frame in frames]
            asked = [request[name][field]["fields"]["message"] for field in ("x", "mask") if field in request[name]]
            found["models up"] += sum(8 * len(frame) for frame in frames)
            found["models down"] += sum(8 * len(message) for message in asked)
            found["frames of models"] += len(frames)
            found["frames asked"] += len(asked)
        for name in set(request) & ONCE - {"local_models", "slopes"}:
            add("gather up", [array[0] for array in reply[name].values() if "frames" not in reply[name]])
            once = [frame for frames in reply[name].get("frames", {}).values() for frame in frames]
            found["gather up"] += sum(8 * len(frame) for frame in once)
            found["once up"] += len(once)
        if "at" in request:
            add("at down", [request["at"]["x"]])
            add("at up", [reply["at"][part][0] for part in request["at"]["parts"]])
        if "duals" in request:
            ask = request["duals"]
            assert {"weights", "part", "point"} <= set(ask) <= {"x", "weights", "direction", "scale", "part", "point"}
            told = [ask.get(name) for name in ("x", "weights", "direction", "scale")]
            add("duals down", [one for one in told if one is not None])
            add("duals up", reply["duals"].values())
        if "answers" in request:
            found["answers down"] += 8 * sum(map(len, request["answers"]["frames"]))
            found["frames asked"] += len(request["answers"]["frames"])
            add("answers up", [reply["answers"]["answers"][0]])
        if "job" in request:
            found["job down"] += arrays_in([request["job"]["fields"]["algorithm"]["fields"]["model"]])
        if "update" in request and request["update"]["round"] < rounds:
            message = request["update"]["message"]
            frames = [*message.get("whole", ()), *(frame for step in message.get("steps", ()) for frame in step)]
            up = [frame for frames in reply["update"]["frames"].values() for frame in frames]
            for way, sent in (("down", frames), ("up", up)):
                found[f"update {way}"] += sum(8 * len(frame) for frame in sent)
                found[f"frames {way}"] += len(sent)
    return found


def arrays_in(trees: Any) -> int:
    total = 0
    for tree in trees:
        if isinstance(tree, dict):
            total += arrays_in(tree.values())
        elif isinstance(tree, list):
            total += arrays_in(tree)
        elif isinstance(tree, np.ndarray):
            total += 8 * tree.nbytes
    return total


@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_has_the_traffic_of_an_uninterrupted_one(
    name: str, problem: fpdfp.Problem, tmp_path: Path
) -> None:
    method, options = METHODS[name]
    options = {**options, "evaluate_every": 5}
    path = tmp_path / "run.npz"
    whole = fpdfp.solve(problem, method, rounds=20, **options)
    for stop in (1, 3, 4, 5):

        def end(run: fpdfp.Run, stop: int = stop) -> bool:
            return run.round == stop

        fpdfp.solve(problem, method, rounds=20, checkpoint=path, callbacks=[end], **options)
        resumed = fpdfp.solve(problem, method, rounds=20, resume=path, **options)
        assert resumed.traffic == whole.traffic
        assert (resumed.status, resumed.rounds) == (whole.status, whole.rounds)
        again = fpdfp.solve(problem, method, rounds=20, resume=path, **options)
        assert again.traffic == whole.traffic
        np.testing.assert_array_equal(resumed.history.total_up, whole.history.total_up)
    if "tol" in options:  # a gradient at the end may have served for the tolerance too
        return
    fpdfp.solve(problem, method, rounds=5, checkpoint=path, **options)
    further = fpdfp.solve(problem, method, rounds=20, resume=path, **options)
    assert further.traffic == whole.traffic
    again = fpdfp.solve(problem, method, rounds=20, resume=path, **options)
    assert again.traffic == whole.traffic


def test_what_is_lost_and_sent_again_is_counted_apart(problem: fpdfp.Problem) -> None:
    def trouble(site: int, request: dict[str, Any], reply: bytes) -> bytes | None:
        if site == 1 and request.get("update", {}).get("round") == 2:
            crew.restart(site)
            return b"nonsense"
        return reply

    crew, there = away(problem, trouble=trouble)
    result = fpdfp.solve(there, fpdfp.ShiftedPDFP(), rounds=6, compressor=QSGD, engine=crew)
    assert crew.totals.healed == 1
    # The site is sent its job, what it remembered, and the message once more.
    assert result.traffic["upkeep"].down > public() + 64 * D
    whole = fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=6, compressor=QSGD)
    assert result.traffic["evaluation"] == whole.traffic["evaluation"]
    assert result.traffic["rounds"].down == whole.traffic["rounds"].down
    assert result.traffic["rounds"].up < whole.traffic["rounds"].up


def test_names_of_features_are_counted(problem: fpdfp.Problem) -> None:
    X, y, owner = helpers.classification(clients=N, d=D)
    losses = [
        fpdfp.losses.Logistic(X, y, clients=owner, feature_names=names) for names in (None, [f"f{j}" for j in range(D)])
    ]
    unnamed, named = (fpdfp.Problem(one, problem.penalty, problem.linop) for one in losses)
    before, here = (fpdfp.solve(one, fpdfp.PDFP(), rounds=1).traffic for one in (unnamed, named))
    assert here["facts"] == (before["facts"].up + N * VECTOR, before["facts"].down)  # eight bytes for each
    crew, there = away(named)
    assert fpdfp.solve(there, fpdfp.PDFP(), rounds=1, engine=crew).traffic == here


def test_two_runs_at_the_same_sites_count_the_same(problem: fpdfp.Problem) -> None:
    crew, there = away(problem)
    first, second = (fpdfp.solve(there, rounds=5, engine=crew) for _ in range(2))
    assert first.traffic == second.traffic == fpdfp.solve(problem, rounds=5).traffic


@pytest.mark.filterwarnings("ignore::fpdfp.errors.StepTooLargeWarning")
def test_rounds_that_are_taken_back_are_counted(problem: fpdfp.Problem) -> None:
    with pytest.warns(fpdfp.errors.DivergenceWarning):
        result = fpdfp.solve(problem, fpdfp.PDFP(step=200.0), rounds=500, evaluate_every=3)
    assert result.status == "diverged"
    assert result.rounds % 3 == 0
    assert result.bits_up == result.history.bits_up[-1]
    assert result.traffic["upkeep"].up > 0


def test_traffic() -> None:
    traffic = Traffic({"rounds": [10, 20]}).plus("end", 1, 2)
    assert traffic == {kind: Bits(0, 0) for kind in KINDS} | {"rounds": Bits(10, 20), "end": Bits(1, 2)}
    assert traffic.undone(Bits(4, 5)) == Traffic({"rounds": (4, 5), "end": (1, 2), "upkeep": (6, 15)})
    assert repr(traffic) == "Traffic({'rounds': (10, 20), 'end': (1, 2)})"
    assert traffic.totals["total_down"] == 22
    with pytest.raises(ValueError, match="kinds are rounds, preconditioner"):
        Traffic({"others": (1, 2)})
