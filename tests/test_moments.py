"""Second moments that some clients send in few bits: what is sent, what is made of it, and when it is asked for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import fpdfp
from fpdfp.engines.prepare import RunOptions
from fpdfp.precondition import QuantizedMoments, Scaling, Whitening, cost, quantized
from fpdfp.precondition.base import full, lower
from fpdfp.precondition.quantized import Sums, powers_above
from fpdfp.rng import Draws, Purpose, choose_clients
from tests import helpers
from tests.loopback import Loopback


def decoded(problem: fpdfp.Problem, asks: QuantizedMoments, clients: Any, seed: int) -> Any:
    """What the server decodes of what clients send."""
    sent, messages = asks.answer(problem.local(clients)), asks.messages(problem.model.shape)
    draws = Draws(seed, 0, clients)
    return type(sent)(*(
        messages[name][0].compress(array, draws, Purpose.ONCE + field).values
        for field, (name, array) in enumerate(zip(sent._fields, sent, strict=True))
    ))  # fmt: skip


def correlated(d: int = 40, rows: int = 4000, clients: int = 20, spread: float = 1.0, seed: int = 0) -> fpdfp.Problem:
    """Features whose neighbours are alike, of scales that grow by ``spread`` in all."""
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((rows, d))
    for j in range(1, d):
        X[:, j] = 0.95 * X[:, j - 1] + np.sqrt(1 - 0.95**2) * X[:, j]
    y = (X @ generator.standard_normal(d) + generator.standard_normal(rows) > 0).astype(float)
    X *= spread ** np.linspace(-0.5, 0.5, d)
    loss = fpdfp.losses.Logistic(X, y, clients=np.arange(rows) % clients, l2=1e-4)
    return fpdfp.Problem(loss, fpdfp.penalties.L1(1e-4))


def unconnected(rows: int = 5000, d: int = 300, clients: int = 100) -> fpdfp.Problem:
    """Sparse features that have nothing to do with each other: there is nothing to whiten."""
    generator = np.random.default_rng(0)
    X = sparse.random(rows, d, density=0.05, random_state=generator, data_rvs=generator.standard_normal, format="csr")
    y = (X @ generator.standard_normal(d) > 0).astype(float)
    loss = fpdfp.losses.Logistic(X, y, clients=np.arange(rows) % clients, l2=1e-3)
    return fpdfp.Problem(loss, fpdfp.penalties.L1(1e-4))


class TestExchange:
    """What clients send, and what the server makes of it."""

    def test_the_mean_over_seeds_is_exact(self) -> None:
        problem, asks = correlated(d=6), QuantizedMoments(7)
        clients = np.arange(20)
        exact = lower(problem.local(clients).curvatures()).mean(axis=0)
        found = []
        for seed in range(150):
            sums = asks.add_up(decoded(problem, asks, clients, seed), clients)
            assert isinstance(sums, Sums)
            found.append((sums.even + sums.odd) / 20)
        error = np.std(found, axis=0) / np.sqrt(150)
        assert (np.abs(np.mean(found, axis=0) - exact) <= 5 * error + 1e-7).all()

    @pytest.mark.parametrize("levels", [3, 15, 255])
    @pytest.mark.parametrize("make", [correlated, unconnected])
    def test_the_noise_is_estimated_within_a_factor(self, make: Any, levels: int) -> None:
        """From what was decoded alone, beside the error that it really has."""
        problem, asks, clients = make(), QuantizedMoments(levels), np.arange(10)
        exact = full(lower(problem.local(clients).curvatures()).mean(axis=0))
        sums = asks.add_up(decoded(problem, asks, clients, 3), clients)
        assert isinstance(sums, Sums)
        true = np.linalg.norm(full((sums.even + sums.odd) / 10) - exact, 2)
        variance = full((sums.even_variance + sums.odd_variance) / 100)
        estimate = 2 * np.sqrt(variance.sum(axis=1).max())
        assert 0.8 * true <= estimate <= 3 * true

    def test_sizes_are_powers_of_two_above(self) -> None:
        assert powers_above(np.array([0.0, 1.0, 1.1, 3e-40, 1e30])).tolist() == [0, 1, 2, 2**-59, 2.0**59]
        problem = correlated(spread=1e8)
        sent = QuantizedMoments(15).answer(problem.local(np.arange(3)))
        assert float(np.abs(sent.triangle).max()) <= 1.0  # type: ignore[union-attr]

    def test_who_sends_is_drawn_by_the_seed(self) -> None:
        asks = QuantizedMoments(15, clients=5)
        drawn = [tuple(asks.draw_clients(100, seed)) for seed in range(20)]
        assert len(set(drawn)) == 20
        assert all(len(set(one)) == 5 for one in drawn)
        assert drawn[0] != tuple(choose_clients(0, 0, 100, 5))  # not those of the first round
        assert asks.draw_clients(3, 0).tolist() == [0, 1, 2]

    def test_the_bits_are_those_of_the_messages(self) -> None:
        problem, asks = correlated(), QuantizedMoments(15, clients=5)
        clients = asks.draw_clients(20, 7)
        sent, messages = asks.answer(problem.local(clients)), asks.messages(problem.model.shape)
        length = 0
        for field, (name, array) in enumerate(zip(sent._fields, sent, strict=True)):
            compressor = messages[name][0]
            frames = compressor.encode(compressor.quantize(array, Draws(7, 0, clients), Purpose.ONCE + field))
            length += sum(8 * len(frame) for frame in frames)
        result = fpdfp.solve(problem, fpdfp.ShiftedPDFP(preconditioner=asks), rounds=1, seed=7)
        assert length - 8 * 15 < result.bits_once_up <= length
        whitening = result.algorithm.coordinates  # type: ignore[union-attr]
        assert result.bits_once_down == 20 * whitening.bits
        told = sum(8 * len(part.message) for part in whitening.announced)
        assert told - 16 < whitening.bits <= told < 40 * 41 / 2 * 12

    @pytest.mark.parametrize("scale", [None, 2.0 ** np.arange(12.0)])
    def test_a_coarse_root_is_near_enough(self, scale: Any) -> None:
        """The announced root has a positive diagonal, and its coordinates are nearly white, whatever the rounding."""
        generator = np.random.default_rng(1)
        root = generator.standard_normal((12, 12)) * np.geomspace(1, 1e-2, 12)
        matrix = root @ root.T + 1e-3 * np.eye(12)
        made = quantized.announced(matrix, float(np.linalg.eigvalsh(matrix)[0]), scale, None)
        hessian = matrix if scale is None else matrix * np.sqrt(np.outer(scale, scale))
        values = np.linalg.eigvalsh(made.inverse.T @ hessian @ made.inverse)
        assert values[0] > 0.3
        assert values[-1] < 2.5
        assert made.bits < 32 * 78

    def test_all_clients_give_a_bound(self) -> None:
        """The smoothness that is claimed is above that of the mean of all bounds."""
        problem = correlated(d=8)
        method = fpdfp.ShiftedPDFP(preconditioner=QuantizedMoments(255))
        made = fpdfp.solve(problem, method, rounds=1).algorithm.coordinates  # type: ignore[union-attr]
        bounds = problem.local(np.arange(20)).curvatures()
        assert bounds is not None
        hessian = bounds.mean(axis=0)
        true = np.linalg.eigvalsh(made.inverse.T @ hessian @ made.inverse)[-1]
        assert true <= made.smoothness < 3 * true
        some = fpdfp.ShiftedPDFP(preconditioner=QuantizedMoments(255, clients=19))
        assert fpdfp.solve(problem, some, rounds=1).algorithm.coordinates.smoothness is None  # type: ignore[union-attr]

    def test_the_diagonal_alone(self) -> None:
        problem = correlated(spread=1e6)
        result = fpdfp.solve(problem, fpdfp.ShiftedPDFP(preconditioner=QuantizedMoments(0)), rounds=1)
        made = result.algorithm.coordinates  # type: ignore[union-attr]
        assert isinstance(made, Scaling)
        diagonals = problem.local(np.arange(20)).curvature_diagonals()
        assert diagonals is not None
        exact = diagonals.mean(axis=0)
        ratio = made.factor.factors**2 * exact
        assert ratio.min() > 0.3
        assert ratio.max() < 1.5
        assert result.bits_once_up < 20 * 40 * 10

    def test_losses_without_bounds_are_refused(self) -> None:
        target = np.ones(3)
        loss = fpdfp.losses.Custom(
            lambda i, x: 0.5 * float(((x - target) ** 2).sum()), lambda i, x: x - target,
            n_clients=2, shape=(3,), lipschitz=1.0, strong_convexity=1.0,
        )  # fmt: skip
        problem = fpdfp.Problem(loss, fpdfp.penalties.L1(0.1))
        with pytest.raises(ValueError, match="QuantizedMoments needs losses with known bounds"):
            fpdfp.solve(problem, fpdfp.ShiftedPDFP(preconditioner=QuantizedMoments(15)), rounds=1)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: QuantizedMoments(-1), "levels must be an integer of at least 0"),
            (lambda: QuantizedMoments(3, clients=0), "clients must be an integer of at least 1"),
            (lambda: fpdfp.solve(helpers.graph_guided(), rounds=1, prefer="speed"), "prefer must be one of"),  # type: ignore[arg-type]
            (lambda: fpdfp.solve(helpers.graph_guided(), rounds=1, accuracy=2.0), "accuracy must be below 1"),
        ],
    )
    def test_wrong_arguments_are_named(self, make: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make()


class TestChoice:
    """What is asked, by what it is predicted to cost."""

    def given(self, **others: Any) -> cost.Circumstances:
        return cost.Circumstances(**{
            "n_clients": 100, "clients_per_round": 20, "rows": 260.0, "round_up": 9e3, "round_down": 7e4,
            "accuracy": 1e-3, "prefer": "balanced", **others,
        })  # fmt: skip

    def test_finer_moments_for_more_accuracy(self) -> None:
        noises = [cost.noise(123, *cost.choose(self.given(accuracy=a), 123)[::-1]) for a in (1e-1, 1e-2, 1e-4, 1e-7)]
        assert noises == sorted(noises, reverse=True)
        assert noises[-1] < noises[0] / 10

    def test_more_clients_where_each_has_few_rows(self) -> None:
        few, many = (cost.choose(self.given(rows=rows), 123)[1] for rows in (10.0, 10_000.0))
        assert few > many

    def test_bits_ask_for_less_than_rounds(self) -> None:
        words: tuple[cost.Word, ...] = ("balanced", "rounds", "bits")
        up = [cost.once(self.given(), 123, *cost.choose(self.given(prefer=p), 123))[0] for p in words]
        balanced, rounds, bits = up
        assert bits <= balanced <= rounds

    def test_slow_lines_ask_for_less_than_slow_answers(self) -> None:
        """With a latency alone the choice is that of rounds."""

        def sent(prefer: Any) -> float:
            return cost.once(self.given(), 123, *cost.choose(self.given(prefer=prefer), 123))[0]

        slow, mixed, far = (fpdfp.Network(latency, up, 1e6) for latency, up in ((0, 1e3), (1, 1e6), (1e3, 1e9)))
        assert sent(slow) <= sent(mixed) <= sent(far)
        assert sent(slow) < sent(far)
        assert sent(far) == sent("rounds")

    def test_time_is_that_of_exchanges_and_lines(self) -> None:
        given = self.given(prefer=fpdfp.Network(latency=2.0, up=100.0, down=1000.0))
        price = given.price(3, once_up=5000.0, once_down=2e6, senders=5, exchanges=1)
        # A round: 9e3/20 bits up and 7e4/20 down; once: 1000 bits from each of 5 clients, 2e4 to each of 100.
        assert price.seconds == pytest.approx(3 * (2 + 4.5 + 3.5) + 2 + 10 + 20)
        assert given.score(price) == price.seconds
        assert "in 62 s" in given.show(price)

    @pytest.mark.parametrize(
        ("name", "value"), [("latency", -1.0), ("latency", math.nan), ("up", 0.0), ("down", "fast"), ("down", math.inf)]
    )
    def test_a_network_of_impossible_speed_is_refused(self, name: str, value: Any) -> None:
        with pytest.raises((ValueError, TypeError), match=f"{name} must be a finite number"):
            fpdfp.Network(**{"latency": 0.1, "up": 1e6, "down": 1e6, name: value})

    def test_a_result_tells_the_time_that_was_predicted(self) -> None:
        far = fpdfp.Network(latency=10.0, up=1e9, down=1e9)
        result = fpdfp.solve(correlated(), rounds=1, clients_per_round=4, prefer=far)
        assert isinstance(result.algorithm.coordinates, Whitening)  # type: ignore[union-attr]
        assert " s with whitening" in str(result)

    def test_a_simulation_counts_rounds(self) -> None:
        slope = np.ones(50)
        assert cost.simulated(np.eye(50), slope, 1e-9) == 1
        stiff = cost.simulated(np.diag(np.geomspace(1, 1e-4, 50)), slope, 1e-6)
        assert 100 < stiff < cost.MOST
        assert cost.simulated(np.diag(np.geomspace(1, 1e-4, 50)), np.stack([slope, slope]), 1e-6) == stiff

    @pytest.mark.parametrize("prefer", ["balanced", "bits"])
    def test_connected_features_are_whitened(self, prefer: Any) -> None:
        result = fpdfp.solve(correlated(), rounds=1, clients_per_round=4, prefer=prefer)
        assert isinstance(result.algorithm.coordinates, Whitening)  # type: ignore[union-attr]
        assert "predicted to 1e-06" in str(result)
        assert result.bits_once_up < 0.3 * 20 * (32 * 40 * 41 / 2)

    @pytest.mark.parametrize("prefer", ["balanced", "bits"])
    def test_what_does_not_pay_is_not_sent(self, prefer: Any) -> None:
        """300 features among 100 clients: in float32 second moments take 144 Mbit each way."""
        result = fpdfp.solve(unconnected(), rounds=1, clients_per_round=20, prefer=prefer)
        assert result.algorithm.coordinates is None  # type: ignore[union-attr]
        assert result.bits_once_up < 3e6
        assert result.bits_once_down < 5e6  # some candidate was announced, to ask for constants
        assert "no preconditioner" in str(result)

    def test_rounds_have_everyone_send_float32(self) -> None:
        result = fpdfp.solve(correlated(), rounds=1, prefer="rounds")
        assert result.bits_once_up == 20 * (32 * 40 * 41 // 2 + 88)

    def test_badly_scaled_features(self) -> None:
        """Noise is looked at relative to each feature, and nothing is lost."""
        problem = correlated(spread=1e6)
        result = fpdfp.solve(problem, rounds=400, tol=1e-6)
        assert result.status == "converged"

    def test_a_target_comes_from_tol(self) -> None:
        assert RunOptions(rounds=1).aim == 1e-6
        assert RunOptions(rounds=1, tol=1e-3).aim == 1e-6  # a looser tolerance ends the same run earlier
        assert RunOptions(rounds=1, tol=1e-9).aim == 1e-6
        assert RunOptions(rounds=1, tol=1e-3, accuracy=1e-2).aim == 1e-2


@pytest.mark.parametrize("name", ["crude", "automatic", "diagonal"])
@pytest.mark.parametrize("seed", [0, 5])
def test_sites_elsewhere_give_the_same_bits(name: str, seed: int) -> None:
    problem = correlated(d=12, rows=600, clients=8)
    method = {
        "crude": fpdfp.ShiftedPDFP(preconditioner=QuantizedMoments(15, clients=3)), "automatic": None,
        "diagonal": fpdfp.ShiftedPDFP(preconditioner=QuantizedMoments(0)),
    }[name]  # fmt: skip
    here = fpdfp.solve(problem, method, rounds=8, seed=seed, clients_per_round=3)
    crew = Loopback(problem, sites=3)
    there = fpdfp.Problem(crew.losses(), problem.penalty, problem.linop, weights=problem.weights)
    away = fpdfp.solve(there, method, rounds=8, seed=seed, clients_per_round=3, engine=crew)
    np.testing.assert_array_equal(here.x, away.x)
    assert (here.bits_once_up, here.bits_once_down) == (away.bits_once_up, away.bits_once_down)
    assert (here.bits_up, here.bits_down) == (away.bits_up, away.bits_down)
    asked = [len(request["clients"]) for request in crew.requests if "clients" in request]
    assert sum(asked) == (3 if name == "crude" else 8)


def test_two_seeds_give_different_moments() -> None:
    problem = correlated(d=10, rows=400, clients=8)
    method = fpdfp.ShiftedPDFP(preconditioner=QuantizedMoments(15, clients=3))
    one, same, other = (fpdfp.solve(problem, method, rounds=2, seed=seed).x for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_run_goes_on_with_another_tolerance(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was chosen for the first one is kept."""
    helpers.take_shifted(monkeypatch)
    problem, file = correlated(d=12, rows=600, clients=8), tmp_path / "run.npz"
    first = fpdfp.solve(problem, rounds=3, tol=1e-2, checkpoint=file)
    then = fpdfp.solve(problem, rounds=300, tol=1e-9, checkpoint=file, resume=True)
    assert first.algorithm.coordinates.bits == then.algorithm.coordinates.bits  # type: ignore[union-attr]
    assert then.certificate.relative_gap is not None
    assert then.certificate.relative_gap <= 1e-8


@pytest.mark.parametrize("l2", [0.0, 1e-6])
def test_means_far_from_zero_are_told_exactly(l2: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is below the noise matters here, which clients see and the server does not."""
    helpers.take_shifted(monkeypatch)
    generator = np.random.default_rng(0)
    X = np.column_stack([100.0 + generator.standard_normal((400, 3)), np.ones(400)])
    y = (X[:, 0] + generator.standard_normal(400) > 100).astype(float)
    loss = fpdfp.losses.Logistic(X, y, clients=np.arange(400) % 4, l2=l2)
    result = fpdfp.solve(fpdfp.Problem(loss, fpdfp.penalties.L1([1e-3, 1e-3, 1e-3, 0.0])), rounds=100, tol=1e-4)
    assert "too ill conditioned for quantized moments" in str(result)
    best = fpdfp.minimize(fpdfp.Problem(loss, fpdfp.penalties.L1([1e-3, 1e-3, 1e-3, 0.0])), tol=1e-8)
    assert result.objective <= best.objective * (1 + 1e-3)


@pytest.mark.parametrize("clients_per_round", [None, 20])
def test_clients_that_are_asked_may_hold_nothing(
    clients_per_round: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a ridge no preconditioner is made of zeros, and who holds something is waited for."""
    helpers.take_shifted(monkeypatch)
    X, y = np.zeros((4000, 50)), np.arange(4000) % 2
    X[:4] = np.random.default_rng(0).standard_normal((4, 50))
    loss = fpdfp.losses.Logistic(X, y, clients=np.arange(4000) // 2)
    problem = fpdfp.Problem(loss, fpdfp.penalties.L1(1e-4))
    result = fpdfp.solve(problem, rounds=40, tol=1e-4, clients_per_round=clients_per_round)
    assert "no preconditioner, since the features of" in str(result)
    assert result.status != "rounding"
    held = fpdfp.ShiftedPDFP(preconditioner=QuantizedMoments(15, clients=3))
    assert fpdfp.solve(problem, held, rounds=2).algorithm.coordinates is None  # type: ignore[union-attr]
