"""Participants drawn with unequal probabilities: their distribution in closed form, methods, and sites."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.cohorts.local import RunningMean
from fpdfp.errors import ArgumentError, CheckpointError
from fpdfp.methods.shifted import ShiftMemory
from fpdfp.sampling import SMALLEST, Sampling, importance, inclusion_probabilities
from tests import helpers
from tests.loopback import Loopback

SMALL = [
    ([0.3, 0.9, 0.5, 0.7, 0.2, 0.4], 3),
    ([0.6, 0.6, 0.8, 0.5, 0.5], 3),
    ([0.5, 0.5, 0.5, 0.5], 2),
    ([0.1, 0.2, 0.3, 0.4], 1),
    ([1.0, 0.75, 0.75, 0.5], 3),
    ([0.95, 0.95, 0.95, 0.15], 3),
]
QSGD = fpdfp.QSGD(7, norm="max")
Law = dict[frozenset[int], float]


def law(probabilities: list[float]) -> Law:
    """The probability of each set, by integration over the uniform numbers: outcomes of a stratum are intervals."""
    sampling = Sampling(np.array(probabilities))
    strata = sampling.strata
    found: Law = {}
    if not strata.count:
        return {frozenset(sampling.certain.tolist()): 1.0}
    starts = np.concatenate([[0.0], strata.ends])
    outcomes = []
    for t, (last, before, passes) in enumerate(zip(strata.last, strata.before, strata.passes, strict=True)):
        parts = [
            (j, (min(starts[j + 1], t + before) - max(starts[j], t)) / before)
            for j in range(last)
            if min(starts[j + 1], t + before) > max(starts[j], t) + 1e-14
        ]
        outcomes.append([(j, go, part * (passes if go else 1 - passes)) for j, part in parts for go in (True, False)])
    for path in itertools.product(*outcomes):
        met, goes = np.array([one[0] for one in path]), np.array([one[1] for one in path])
        drawn = frozenset([*sampling.certain.tolist(), *strata.settle(met, goes).tolist()])
        found[drawn] = found.get(drawn, 0.0) + float(np.prod([one[2] for one in path]))
    return found


def pivotal(probabilities: list[float]) -> Law:
    """The law of ordered pivotal sampling as Deville and Tillé print it, by following all its branches."""
    found: Law = {}

    def follow(p: list[float], likely: float) -> None:
        undecided = [i for i, one in enumerate(p) if 1e-12 < one < 1 - 1e-12]
        if len(undecided) < 2:
            drawn = frozenset(i for i, one in enumerate(p) if one > 0.5)
            found[drawn] = found.get(drawn, 0.0) + likely
            return
        i, j = undecided[:2]
        total = p[i] + p[j]
        for one, other in ((i, j), (j, i)):
            if total < 1:  # one goes out, the other takes all
                part, after = p[other] / total, {one: 0.0, other: total}
            else:  # one stays in, the other has what is left
                part, after = (1 - p[other]) / (2 - total), {one: 1.0, other: total - 1}
            follow([after.get(k, value) for k, value in enumerate(p)], likely * part)

    follow(list(probabilities), 1.0)
    return found


@pytest.mark.parametrize(("probabilities", "count"), SMALL)
def test_the_law_of_a_draw_is_that_of_ordered_pivotal_sampling(probabilities: list[float], count: int) -> None:
    ours, textbook = law(probabilities), pivotal(probabilities)
    assert sum(ours.values()) == pytest.approx(1.0, abs=1e-12)
    for drawn in ours.keys() | textbook.keys():
        assert ours.get(drawn, 0.0) == pytest.approx(textbook.get(drawn, 0.0), abs=1e-12)
    assert {len(drawn) for drawn, likely in ours.items() if likely > 1e-12} == {count}
    clients = range(len(probabilities))
    once = np.array([sum(q for drawn, q in ours.items() if i in drawn) for i in clients])
    np.testing.assert_allclose(once, probabilities, atol=1e-12)
    # No two clients are together more often than if they were drawn independently.
    for i, j in itertools.combinations(clients, 2):
        together = sum(q for drawn, q in ours.items() if i in drawn and j in drawn)
        assert together <= once[i] * once[j] + 1e-12


@pytest.mark.parametrize(("probabilities", "count"), SMALL)
def test_the_weighted_mean_is_unbiased_and_its_variance_bounded(probabilities: list[float], count: int) -> None:
    sampling, p = Sampling(np.array(probabilities)), np.array(probabilities)
    rows = np.random.default_rng(1).standard_normal((len(p), 3))
    laws = law(probabilities)
    means = {drawn: (sampling.weights[list(drawn)] @ rows[list(drawn)]) / count for drawn in laws}
    expected = sum(q * means[drawn] for drawn, q in laws.items())
    np.testing.assert_allclose(expected, rows.mean(axis=0), atol=1e-12)
    variance = sum(q * ((means[drawn] - rows.mean(axis=0)) ** 2).sum() for drawn, q in laws.items())
    # Lemma 4 of docs/mathematics.md.
    assert variance <= ((2 * (1 - p) / p) * (rows**2).sum(axis=1)).sum() / len(p) ** 2 + 1e-12


def test_draws_have_the_law_they_should() -> None:
    probabilities = SMALL[0][0]
    sampling, laws, rounds = Sampling(np.array(probabilities)), law(probabilities), 4000
    counts: dict[frozenset[int], int] = {}
    for k in range(rounds):
        clients = sampling.draw(5, k)
        assert (np.diff(clients) > 0).all()
        chosen = frozenset(clients.tolist())
        counts[chosen] = counts.get(chosen, 0) + 1
    assert set(counts) <= {drawn for drawn, q in laws.items() if q > 1e-12}
    for drawn, q in laws.items():
        assert abs(counts.get(drawn, 0) / rounds - q) <= 5 * np.sqrt(q * (1 - q) / rounds) + 1e-9
    np.testing.assert_array_equal(sampling.draw(5, 7), Sampling(np.array(probabilities)).draw(5, 7))


@pytest.mark.parametrize("count", [1, 7, 40, 99])
def test_probabilities_are_proportional_but_for_those_of_one(count: int) -> None:
    weights = np.random.default_rng(count).random(100) ** 6 + 1e-6
    p = inclusion_probabilities(weights, count)
    assert p.sum() == pytest.approx(count, abs=1e-9)
    assert 0 < p.min() <= p.max() <= 1
    ratios = (p / weights)[p < 1]
    if len(ratios):
        np.testing.assert_allclose(ratios, ratios[0])
        assert (weights[p == 1] * ratios[0] >= 1 - 1e-9).all()
    sampling = Sampling(p)
    assert {len(set(sampling.draw(0, k).tolist())) for k in range(20)} == {count}


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        ([0.3, 0.3, 0.3], "must add up to a whole number of clients, got 0.9"),
        ([1.5, 0.5], "must be a number above 0 and at most 1 for each client"),
        ([0.0, 0.5, 0.5], "must be a number above 0"),
        ([np.nan, 0.5], "must be a number above 0"),
        ([[0.5, 0.5]], "must be a number above 0"),
    ],
)
def test_probabilities_that_are_none(probabilities: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Sampling(np.array(probabilities))


def test_constants_of_zero_are_drawn_as_well() -> None:
    assert importance(np.zeros(3)).tolist() == [1.0, 1.0, 1.0]
    assert (importance(np.array([0.0, 1.0, 100.0])) > 0).all()


def unequal(*, clients: int = 40, large: int = 2, scale: float = 30.0, d: int = 10) -> fpdfp.Problem:
    """Least squares with two clients whose Lipschitz constants are about 30 times those of the others."""
    generator = np.random.default_rng(0)
    owner = np.repeat(np.arange(clients), 15)
    X = generator.standard_normal((len(owner), d)) * np.where(owner < large, np.sqrt(scale), 1.0)[:, None]
    y = X @ np.repeat([1.0, -1.0], d // 2) + 0.3 * generator.standard_normal(len(owner))
    losses = fpdfp.losses.LeastSquares(X, y, clients=owner, l2=0.05)
    return fpdfp.Problem(losses, fpdfp.penalties.L1(0.05), fpdfp.linops.Difference(d))


def rounds_to(problem: fpdfp.Problem, method: Any, error: float, best: float, **options: Any) -> int:
    def close(run: fpdfp.Run) -> bool:
        return run.problem.objective(run.x) <= best * (1 + error)

    result = fpdfp.solve(
        problem, method, rounds=1500, clients_per_round=4, callbacks=[close], evaluate_every=1500, **options
    )
    return result.rounds if result.status == "stopped" else 1500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "error", "ratio"),
    [(fpdfp.ShiftedPDFP(), 1e-8, 0.7), (fpdfp.FPDFP(), 1e-2, 0.5)],
    ids=["shifted", "FPDFP"],
)
def test_importance_needs_fewer_rounds_where_clients_differ_much(method: Any, error: float, ratio: float) -> None:
    problem = unequal()
    best = fpdfp.minimize(problem, tol=1e-10).objective
    rounds = {
        sampling: np.mean([rounds_to(problem, method, error, best, sampling=sampling, seed=seed) for seed in range(3)])
        for sampling in ("uniform", "importance")
    }
    assert rounds["importance"] <= ratio * rounds["uniform"]


@pytest.mark.parametrize(
    ("method", "options", "rounds", "error"),
    [
        (fpdfp.ShiftedPDFP(), {"sampling": "importance"}, 400, 1e-8),
        (fpdfp.ShiftedPDFP(preconditioner="moments"), {"sampling": "importance", "drop_out": 0.2}, 400, 1e-8),
        (fpdfp.ShiftedPDFP(batch_size=5), {"sampling": "importance", "compressor": QSGD}, 800, 1e-6),
        (fpdfp.ShiftedPDFP(momentum=False), {"sampling": np.linspace(0.5, 2.0, 12)}, 800, 1e-8),
        (fpdfp.FPDFP(), {"sampling": "importance"}, 2000, 2e-3),
        (fpdfp.FPDFP(), {"sampling": np.linspace(0.5, 2.0, 12), "drop_out": 0.2}, 2000, 2e-3),
        (fpdfp.StatelessPDFP(), {"sampling": "importance"}, 1000, 2e-3),
    ],
    ids=["shifted", "preconditioned", "batches", "weights", "FPDFP", "FPDFP weights", "stateless"],
)  # fmt: skip
def test_it_converges_to_the_reference_solution(method: Any, options: Any, rounds: int, error: float) -> None:
    problem = unequal(clients=12, scale=8.0, d=6)
    best = fpdfp.minimize(problem, tol=1e-12)
    result = fpdfp.solve(problem, method, rounds=rounds, clients_per_round=4, evaluate_every=rounds, **options)
    assert result.certificate.objective <= best.objective * (1 + error)
    np.testing.assert_allclose(result.x, best.x, atol=10 * np.sqrt(error))


@pytest.mark.parametrize("longer", [1.0, 20.0])
def test_the_theorem_for_unequal_probabilities(longer: float) -> None:
    """E[Ψ⁺] ≤ factor Ψ over all draws, with the code's own server step; with a far longer step it fails."""
    generator = np.random.default_rng(3)
    X, y, owner = generator.standard_normal((24, 3)), generator.standard_normal(24), np.repeat(np.arange(6), 4)
    X[:4] *= 3.0
    losses = fpdfp.losses.LeastSquares(X, y, clients=owner, l2=0.1)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.05))
    best, everyone = fpdfp.minimize(problem, tol=1e-13).x, problem.local(np.arange(6))
    p = np.array(SMALL[0][0])
    noise, smooth = 2 * (1 - p) / (6 * p), problem.lipschitz
    gamma = longer / (smooth.mean() + 6 * (noise * smooth).max())
    method = fpdfp.ShiftedPDFP(gamma, momentum=False, shift_step=1.0)
    algorithm = helpers.prepare(problem, method, clients_per_round=3, sampling=p)
    weights, targets = Sampling(p).weights, everyone.gradients(best)

    def lyapunov(x: Any, shifts: Any) -> float:
        return float(((x - best) ** 2).sum() + 4 * gamma**2 * (noise / p @ ((shifts - targets) ** 2).sum(axis=1)) / 6)

    factor, worst = max(1 - gamma * problem.strong_convexity, 1 - p.min() / 2), 0.0
    for _ in range(10):
        x, shifts = best + generator.standard_normal(3), targets + generator.standard_normal((6, 3))
        state, after = algorithm.init(x)._replace(shift=shifts.mean(axis=0)), 0.0
        for drawn, chance in law(SMALL[0][0]).items():
            chosen = sorted(drawn)
            reply = algorithm.client_update(problem.local(np.array(chosen), ShiftMemory(shifts[chosen])),
                                            algorithm.broadcast(state), 0, None).reply  # fmt: skip
            total = RunningMean(algorithm.double, weights[chosen])
            total.add(reply)
            new, moved = total.update(algorithm, state, 0), shifts.copy()
            moved[chosen] = algorithm.remember({"shift": shifts[chosen]}, reply, 0)["shift"]
            np.testing.assert_allclose(new.shift, moved.mean(axis=0), atol=1e-12)
            after += chance * lyapunov(new.x, moved)
        worst = max(worst, after / (factor * lyapunov(x, shifts)))
    assert (worst <= 1 + 1e-9) == (longer == 1.0)


def test_the_servers_shift_stays_the_mean_of_the_clients() -> None:
    runs: list[fpdfp.Run] = []
    fpdfp.solve(
        unequal(), fpdfp.ShiftedPDFP(), rounds=30, clients_per_round=4, sampling="importance", drop_out=0.3,
        callbacks=[runs.append],
    )  # fmt: skip
    run = runs[-1]
    np.testing.assert_allclose(run.state.shift, run.memory.shift.mean(axis=0), rtol=1e-12, atol=1e-12)


def test_everyone_is_everyone() -> None:
    problem = unequal(clients=6)
    plain, by_weights = (
        fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=5, sampling=s) for s in ("uniform", [1.0] * 5 + [9.0])
    )
    np.testing.assert_array_equal(plain.x, by_weights.x)


@pytest.mark.parametrize("sampling", ["importance", [3.0, 1.0, 1.0, 0.5, 2.0, 1.0]], ids=["importance", "weights"])
@pytest.mark.parametrize(
    "method",
    [fpdfp.FPDFP(batch_size=5), fpdfp.ShiftedPDFP(preconditioner="moments"), fpdfp.StatelessPDFP(), None],
    ids=["FPDFP", "shifted", "stateless", "automatic"],
)
def test_sites_give_the_same_bits(method: Any, sampling: Any) -> None:
    problem = helpers.graph_guided(clients=6)
    options = {"rounds": 12, "clients_per_round": 3, "sampling": sampling, "drop_out": 0.2, "seed": 4}
    here = fpdfp.solve(problem, method, **options)
    crew = Loopback(problem, sites=3)
    there = fpdfp.Problem(crew.losses(), problem.penalty, problem.linop, weights=problem.weights)
    away = fpdfp.solve(there, method, engine=crew, **options)
    np.testing.assert_array_equal(here.x, away.x)
    assert here.traffic["rounds"] == away.traffic["rounds"]


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (None, {"sampling": "optimal"}, "must be 'uniform', 'importance' or weights of the clients, got 'optimal'"),
        (None, {"sampling": [1.0, 0.0, 1.0, 1.0, 1.0]}, "positive weight for each client, got an array with 0"),
        (None, {"sampling": [[1.0]]}, "positive weight for each client, got an array of shape"),
        (None, {"sampling": None}, "weights of the clients, got None"),
        (None, {"sampling": dict.fromkeys(range(5), 1.0)}, "weights of the clients, got dict"),
        (None, {"sampling": [True] * 5}, "weights of the clients, got truth values"),
        (
            None,
            {"sampling": [1e-300, 1.0, 1.0, 1.0, 1.0]},
            "must not be too unequal .* at least 1e-09 times the largest, got 1e-300 and 1",
        ),
        (None, {"sampling": [1.0, 2.0]}, "a weight for each of the 5 clients, got 2"),
        (fpdfp.FedAvg(penalty="ignore"), {"sampling": "importance"}, "'uniform' for FedAvg; FPDFP, .*ShiftedPDFP"),
        (fpdfp.ErrorFeedbackPDFP(), {"sampling": "importance"}, "'uniform' for ErrorFeedbackPDFP; FPDFP"),
    ],
)
def test_errors_name_the_argument(method: Any, options: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"sampling must be .*{message}|sampling {message}") as caught:
        fpdfp.solve(helpers.graph_guided(), method, rounds=1, clients_per_round=2, **options)
    assert caught.value.argument == "sampling"


@pytest.mark.parametrize("method", [None, fpdfp.FPDFP(), fpdfp.StatelessPDFP()])
def test_weights_may_be_as_unequal_as_is_said(method: Any) -> None:
    weights = [SMALLEST, 1.0, 1.0, 1.0, 1.0]
    result = fpdfp.solve(helpers.graph_guided(), method, rounds=5, clients_per_round=2, sampling=weights)
    assert result.rounds == 5
    assert np.isfinite(result.x).all()


def test_a_checkpoint_is_of_one_sampling(tmp_path: Any) -> None:
    problem, file = helpers.graph_guided(), tmp_path / "run.npz"
    options = {"clients_per_round": 2, "sampling": "importance", "checkpoint": file}
    fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=4, **options)
    gone_on = fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=9, resume=True, **options)
    straight = fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=9, clients_per_round=2, sampling="importance")
    np.testing.assert_array_equal(gone_on.x, straight.x)
    for other in ("uniform", [1.0, 2.0, 3.0, 4.0, 5.0]):
        with pytest.raises(CheckpointError, match="clients_per_round was 2 by importance"):
            fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=9, resume=True, **{**options, "sampling": other})


def test_estimators_take_it() -> None:
    X, y, owner = helpers.classification(clients=6)
    model = fpdfp.models.FederatedLogisticRegression(
        fpdfp.ElasticNet(0.051, l1_ratio=1 / 51),
        run=fpdfp.RunOptions(rounds=400, tol=1e-05, clients_per_round=3, sampling="importance"),
    )
    model.fit(X, y, groups=owner)
    assert model.result_.status == "converged"
