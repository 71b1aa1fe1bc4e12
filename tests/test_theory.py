"""The proofs of docs/mathematics.md in numbers: each lemma and each contraction, with expectations that are exact.

Problems are so small that all sets of clients and all outcomes of a compressor can be listed.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import fpdfp
from fpdfp import compress, linops, penalties
from fpdfp.methods import randprox
from fpdfp.methods._forms import Control, Difference, Primal
from fpdfp.problem import LocalLosses
from tests import helpers

D, CLIENTS, MU = 3, 3, 0.1
#: Outcomes of a compressor with their chances.
Outcomes = Callable[[Any], list[tuple[float, Any]]]


def rand_one(x: Any) -> list[tuple[float, Any]]:
    """All that RandK(1) can make of x."""
    return [(1 / len(x), len(x) * np.where(np.arange(len(x)) == j, x, 0.0)) for j in range(len(x))]


def ternary(x: Any) -> list[tuple[float, Any]]:
    """All that QSGD(1, norm="max") can make of x: each entry is 0 or ±‖x‖_∞."""
    largest = np.abs(x).max()
    chance = np.abs(x) / largest
    kept = [np.array(kept) for kept in itertools.product((False, True), repeat=len(x))]
    return [(float(np.where(one, chance, 1 - chance).prod()), np.where(one, np.sign(x) * largest, 0.0)) for one in kept]


def exact(x: Any) -> list[tuple[float, Any]]:
    return [(1.0, x)]


COMPRESSORS: dict[str, tuple[compress.Compressor, Outcomes]] = {
    "RandK": (compress.RandK(1), rand_one),
    "QSGD": (fpdfp.QSGD(1, norm="max"), ternary),
    "Full": (compress.Full(), exact),
}


def rounds(differences: Any, n: int, outcomes: Outcomes) -> Iterator[tuple[float, Any, Any]]:
    """All that a round can bring: its chance, who takes part, and what they send."""
    sets = list(itertools.combinations(range(len(differences)), n))
    for chosen in sets:
        for sent in itertools.product(*(outcomes(differences[i]) for i in chosen)):
            yield math.prod(chance for chance, _ in sent) / len(sets), list(chosen), np.stack([m for _, m in sent])


@pytest.mark.parametrize("name", COMPRESSORS)
def test_the_outcomes_are_those_of_the_compressor(name: str) -> None:
    compressor, outcomes = COMPRESSORS[name]
    x = np.array([[0.3, -2.0, 1.1]])
    listed = outcomes(x[0])
    assert sum(chance for chance, _ in listed) == pytest.approx(1)
    np.testing.assert_allclose(sum(chance * m for chance, m in listed), x[0], atol=1e-12)
    error = sum(chance * np.sum((m - x[0]) ** 2) for chance, m in listed)
    assert error <= compressor.omega((D,)) * np.sum(x**2)
    for seed in range(20):
        sent = compressor.compress(x, fpdfp.rng.Draws(seed, 0, np.array([0])), int(fpdfp.rng.Purpose.QUANTIZE)).values
        assert min(np.abs(sent[0] - m).max() for _, m in listed) < 1e-5


class Tiny(NamedTuple):
    """A problem with its solution, and its clients."""

    problem: fpdfp.Problem
    x: Any
    v: Any
    local: LocalLosses

    @classmethod
    def of(cls, linop: linops.LinOp, clients: int = CLIENTS, loss: Any = fpdfp.losses.LeastSquares) -> Tiny:
        generator = np.random.default_rng(3)
        X = generator.standard_normal((4 * clients, D)) * [1.0, 2.0, 0.5]
        owner = np.repeat(np.arange(clients), 4)
        losses = loss(X, np.sign(generator.standard_normal(len(X))), clients=owner, l2=MU)
        problem = fpdfp.Problem(losses, penalties.L1(0.05), linop)
        B = np.stack([linop.apply(row) for row in np.eye(D)], axis=1)
        gamma, lam = 1 / float(problem.lipschitz.mean()), 1 / np.linalg.norm(B, 2) ** 2
        x, v = np.zeros(D), np.zeros(len(B))
        for _ in range(5000):
            half = x - gamma * problem.gradient(x)
            v = np.clip(lam / gamma * B @ (half - gamma * B.T @ v) + v, -0.05, 0.05)
            x = half - gamma * B.T @ v
        assert np.abs(problem.gradient(x) + B.T @ v).max() < 1e-14
        return cls(problem, x, v, LocalLosses(losses, np.arange(clients), None))

    def prepared(self, method: Any, compressor: compress.Compressor, n: int) -> Any:
        """The method as ``solve`` prepares it."""
        seen: list[Any] = []
        fpdfp.solve(
            self.problem, method, rounds=1, clients_per_round=n, compressor=compressor,
            callbacks=[lambda run: seen.append(run.algorithm)],
        )  # fmt: skip
        return seen[0]

    def states(self, count: int = 12) -> Iterator[tuple[Any, Any, Any]]:
        """Points, duals and shifts, near the solution and far from it."""
        generator = np.random.default_rng(0)
        slopes = self.local.gradients(self.x)
        for _ in range(count):
            near, dual, other = 10.0 ** generator.uniform(-3, 2, 3)
            x = self.x + near * generator.standard_normal(D)
            shifts = slopes + other * generator.standard_normal(slopes.shape)
            if generator.random() < 0.5:
                shifts = shifts - (shifts - self.local.gradients(x)).mean(axis=0)  # differences without a mean
            yield x, self.v + dual * generator.standard_normal(self.v.shape), shifts


def square(array: Any) -> float:
    return float(np.sum(array**2))


def mean_square(rows: Any) -> float:
    return square(rows) / len(rows)


def sampling(count: int, n: int) -> float:
    return (count - n) / (n * (count - 1)) if count > 1 else 0.0


SETTINGS = [(name, n) for name in COMPRESSORS for n in (1, 2, 3)]


@pytest.mark.parametrize(("name", "n"), SETTINGS)
def test_lemma_1_the_variance_of_the_estimate(name: str, n: int) -> None:
    compressor, outcomes = COMPRESSORS[name]
    bound = sampling(CLIENTS, n) + compressor.omega((D,)) / n
    generator = np.random.default_rng(1)
    for centred in (False, True):
        differences = generator.standard_normal((CLIENTS, D))
        if centred:
            differences -= differences.mean(axis=0)
        average, variance = np.zeros(D), 0.0
        for chance, _, sent in rounds(differences, n, outcomes):
            average += chance * sent.mean(axis=0)
            variance += chance * square(sent.mean(axis=0) - differences.mean(axis=0))
        np.testing.assert_allclose(average, differences.mean(axis=0), atol=1e-12)
        assert variance <= bound * mean_square(differences) * (1 + 1e-12)
        if centred and name != "QSGD":  # then nothing is lost
            assert variance == pytest.approx(bound * mean_square(differences), rel=1e-5)


def test_clients_are_not_drawn_independently() -> None:
    """With ω'/N, as if each client took part by a coin of its own, lemma 1 would be wrong."""
    differences = np.array([[1.0, -1.0, 2.0], [-1.0, 1.0, -2.0]])
    variance = sum(chance * square(sent.mean(axis=0)) for chance, _, sent in rounds(differences, 1, exact))
    omega_prime = 2 / 1 - 1
    assert variance > 1.9 * omega_prime / 2 * mean_square(differences)
    assert variance == pytest.approx(sampling(2, 1) * mean_square(differences))


@pytest.mark.parametrize(("name", "n"), SETTINGS)
def test_lemma_2_shifts_come_nearer(name: str, n: int) -> None:
    compressor, outcomes = COMPRESSORS[name]
    omega = compressor.omega((D,))
    alpha, beta = 1 / (1 + omega), n / (CLIENTS * (1 + omega))
    tiny = Tiny.of(linops.Identity(D))
    targets = tiny.local.gradients(tiny.x)
    for x, _, shifts in tiny.states(4):
        slopes, after = tiny.local.gradients(x), 0.0
        for chance, chosen, sent in rounds(slopes - shifts, n, outcomes):
            moved = shifts.copy()
            moved[chosen] += alpha * sent
            after += chance * mean_square(moved - targets)
        bound = (1 - beta) * mean_square(shifts - targets) + beta * mean_square(slopes - targets)
        assert after <= bound * (1 + 1e-12)
        if name != "QSGD":
            assert after == pytest.approx(bound, rel=1e-5)


def test_lemma_3_the_primal_dual_step() -> None:
    tiny = Tiny.of(linops.Difference(D))
    model, generator = tiny.problem.model, np.random.default_rng(2)
    B = np.diff(np.eye(D), axis=0)
    gamma, lam = 0.7, model.largest_lambda
    M = np.eye(len(B)) - lam * B @ B.T
    for x, v, _ in tiny.states():
        estimate = generator.standard_normal(D)
        half = x - gamma * estimate
        new_v = np.clip(lam / gamma * B @ half + M @ v, -0.05, 0.05)
        new_x = half - gamma * B.T @ new_v
        before = square(half - tiny.x + gamma * tiny.problem.gradient(tiny.x))
        bound = before + gamma**2 / lam * (v - tiny.v) @ M @ (v - tiny.v)
        assert square(new_x - tiny.x) + gamma**2 / lam * square(new_v - tiny.v) <= bound * (1 + 1e-10)


def shifted_growth(
    name: str, n: int, linop: linops.LinOp, longer: float = 1.0, count: int = 12, remark: bool = False
) -> float:
    """The largest E[Ψ⁺]/(factor Ψ) over many states, with the code's own server step; with that of the remark if so."""
    compressor, outcomes = COMPRESSORS[name]
    tiny = Tiny.of(linop)
    omega, largest = compressor.omega((D,)), float(tiny.problem.lipschitz.max())
    noise = sampling(CLIENTS, n) + omega / n
    zeta = sampling(CLIENTS, n)
    gamma = longer / (largest * (max(1 + 4 * zeta, 6 * zeta) + 6 * omega / n if remark else 1 + 6 * noise))
    given = fpdfp.ShiftedPDFP(gamma, dual_steps=1, momentum=False, shift_step=1 / (1 + omega))
    method, model = tiny.prepared(given, compressor, n), tiny.problem.model
    lam, rate = model.largest_lambda, n / (CLIENTS * (1 + omega))
    factors = [1 - gamma * MU, 1 - rate / 2]
    dual = 0.0 if linop.is_identity else gamma**2 / lam
    if dual:
        factors.append(1 - lam * np.linalg.eigvalsh(np.diff(np.eye(D), axis=0) @ np.diff(np.eye(D), axis=0).T).min())
    targets = tiny.local.gradients(tiny.x)

    def lyapunov(x: Any, v: Any, shifts: Any) -> float:
        distance = square(x - tiny.x) + dual * square(v - tiny.v)
        return distance + 4 * noise / rate * gamma**2 * mean_square(shifts - targets)

    largest_ratio = 0.0
    for x, v, shifts in tiny.states(count):
        state = method.init(x)._replace(v=v[None], shift=shifts.mean(axis=0))
        after = 0.0
        for chance, chosen, sent in rounds(tiny.local.gradients(x) - shifts, n, outcomes):
            reply = Difference(sent)
            new = method.server_update(state, helpers.mean_of(reply, method.double), 0, len(sent))
            moved = shifts.copy()
            moved[chosen] = method.remember({"shift": shifts[chosen]}, reply, 0)["shift"]
            np.testing.assert_allclose(new.shift, moved.mean(axis=0), atol=1e-12)
            after += chance * lyapunov(new.x, new.v[0], moved)
        largest_ratio = max(largest_ratio, after / (max(factors) * lyapunov(x, v, shifts)))
    return largest_ratio


@pytest.mark.parametrize("linop", [linops.Difference(D), linops.Identity(D)], ids=["one dual step", "exact prox"])
@pytest.mark.parametrize(("name", "n"), SETTINGS)
def test_theorem_1_the_shifted_method(name: str, n: int, linop: linops.LinOp) -> None:
    assert shifted_growth(name, n, linop) <= 1 + 1e-9


@pytest.mark.parametrize(("name", "n"), SETTINGS)
def test_the_slightly_longer_step(name: str, n: int) -> None:
    assert shifted_growth(name, n, linops.Identity(D), remark=True) <= 1 + 1e-9


def test_theorem_1_would_fail_for_a_longer_step() -> None:
    assert shifted_growth("RandK", 1, linops.Identity(D), longer=6.0, count=60) > 1


def prox_of(tiny: Tiny, method: Any, x: Any, slope: Any) -> Any:
    """The server's x⁺ for a mean shift ĝ and a round without news."""
    state = method.init(x)._replace(shift=slope)
    return method.server_update(state, Difference(np.zeros(D)), 0, 1).x


def feedback_growth(k: int, n: int, longer: float = 1.0, root: float = math.sqrt(2.0), count: int = 30) -> float:
    """The largest E[V⁺]/(factor V) of error feedback with top-k over many states."""
    tiny, compressor = Tiny.of(linops.Identity(D)), compress.TopK(k)
    r = math.sqrt(1 - (1 - compressor.omega((D,))) * n / CLIENTS)
    problem = tiny.problem
    smoothness = float(problem.lipschitz.mean())
    rms = math.sqrt(float((problem.lipschitz**2).mean()))
    gamma = longer / (smoothness + root * rms * r / (1 - r))
    method = tiny.prepared(fpdfp.ErrorFeedbackPDFP(gamma), compressor, n)
    # With √2 the factor is that of the theorem; with 1 nothing grows.
    weight, factor = (gamma / (1 - r), max(1 - gamma * MU, (1 + r) / 2)) if root > 1 else (gamma / (2 * (1 - r)), 1.0)
    best = problem.objective(tiny.x)

    def lyapunov(x: Any, shifts: Any) -> float:
        return problem.objective(x) - best + weight * mean_square(shifts - tiny.local.gradients(x))

    largest = 0.0
    for x, _, shifts in tiny.states(count):
        new_x = prox_of(tiny, method, x, shifts.mean(axis=0))
        differences, after = tiny.local.gradients(new_x) - shifts, 0.0
        for chance, chosen, _ in rounds(differences, n, exact):
            moved = shifts.copy()
            draws = fpdfp.rng.Draws(0, 0, np.array(chosen))
            moved[chosen] += compressor.compress(differences[chosen], draws, int(fpdfp.rng.Purpose.QUANTIZE)).values
            after += chance * lyapunov(new_x, moved)
        largest = max(largest, after / (factor * lyapunov(x, shifts)))
    return largest


@pytest.mark.parametrize("root", [1.0, math.sqrt(2.0)])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_theorem_2_error_feedback(k: int, n: int, root: float) -> None:
    assert feedback_growth(k, n, root=root) <= 1 + 1e-9


def test_theorem_2_would_fail_for_a_longer_step() -> None:
    with pytest.warns(fpdfp.errors.StepTooLargeWarning):
        assert feedback_growth(1, 3, longer=40.0) > 1


@pytest.mark.parametrize("n", [1, 3])
def test_the_automatic_step_of_error_feedback_is_that_of_theorem_2(n: int) -> None:
    tiny, compressor = Tiny.of(linops.Identity(D)), compress.TopK(1)
    r = math.sqrt(1 - (1 - compressor.omega((D,))) * n / CLIENTS)
    rms = math.sqrt(float((tiny.problem.lipschitz**2).mean()))
    step = tiny.prepared(fpdfp.ErrorFeedbackPDFP(), compressor, n).step(0)
    assert step == pytest.approx(1 / (tiny.problem.lipschitz.mean() + math.sqrt(2) * rms * r / (1 - r)))


def randprox_growth(name: str, n: int, step: Any = "auto", rough: float = 1.0) -> float:
    """The largest E[V⁺]/(factor V) of RandProx over many states, with the code's own local and server steps."""
    compressor, outcomes = COMPRESSORS[name]
    tiny = Tiny.of(linops.Identity(D))
    omega, L = compressor.omega((D,)), float(tiny.problem.lipschitz.max())
    spread = 1 + sampling(CLIENTS, n) + omega / n
    method = tiny.prepared(fpdfp.RandProx(step), compressor, n)
    gamma, tau = method.step(0), method.tau
    assert gamma * tau * spread == pytest.approx(1 - randprox.MARGIN)
    assert method.ridge == pytest.approx(MU)
    assert method.accuracy == pytest.approx(math.sqrt(randprox.MARGIN * randprox.SHARE * tau / L))
    method = dataclasses.replace(method, accuracy=rough * method.accuracy)
    rate, extra = n / (CLIENTS * (1 + omega)), (2 - randprox.SHARE) / L
    factor = max(1 / (1 + 2 * gamma * MU), 1 - rate * extra / (1 / tau + extra))
    targets = tiny.local.gradients(tiny.x) - MU * tiny.x

    def lyapunov(x: Any, controls: Any) -> float:
        return float(square(x - tiny.x) / gamma + (1 / tau + extra) / rate * mean_square(controls - targets))

    largest = 0.0
    for start, _, controls in tiny.states(30):
        state = method.init(start)._replace(control=controls.mean(axis=0))
        x = method.server_update(state, Difference(np.zeros(D)), 0, 1).x
        local = tiny.local._replace(memory=Control(controls))
        draws = fpdfp.rng.Draws(0, 0, tiny.local.clients)
        differences = method.client_update(local, Primal(x), 0, draws).reply.difference
        after = 0.0
        for chance, chosen, sent in rounds(differences, n, outcomes):
            moved = controls.copy()
            moved[chosen] = method.remember({"control": controls[chosen]}, Difference(sent), 0)["control"]
            after += chance * lyapunov(x - gamma * sent.mean(axis=0), moved)
        largest = max(largest, after / (factor * lyapunov(start, controls)))
    return largest


@pytest.mark.parametrize("step", ["auto", helpers.slow(0.01, True), helpers.slow(100.0, True)])
@pytest.mark.parametrize(("name", "n"), SETTINGS)
def test_theorem_3_randprox(name: str, n: int, step: Any) -> None:
    assert randprox_growth(name, n, step) <= 1 + 1e-9


def test_theorem_3_would_fail_for_rough_local_solves() -> None:
    assert randprox_growth("Full", 3, 10.0, rough=100.0) > 1


def test_the_papers_constant_needs_its_correction() -> None:
    """E‖x⁺ − x_k‖² + (γ²/λ)‖v⁺‖² ≤ 8γ²L²‖x_k − x*‖² + γ²C₀ of Appendix B, in one dimension, at x_k = x*.

    f(x) = ½(x − c)², g = M|·|, B = b with b² < ½: one client, no noise, v* = M, and v_k = −M.
    """
    b, M, gamma, lam = 0.3, 2.0, 0.5, 0.01
    solution = 1.0
    slope = -b * M  # so that c = x* + bM
    v = float(np.clip(lam / gamma * b * (solution - gamma * slope) - (1 - lam * b * b) * M, -M, M))
    x = solution - gamma * slope - gamma * b * v
    left = (x - solution) ** 2 + gamma**2 / lam * v**2
    printed = 2 * b * b * (2 * M**2 + M**2 / lam)
    corrected = 8 * b * b * M**2 + M**2 / lam
    assert (v - M) ** 2 > 2 * M**2
    assert left > gamma**2 * printed
    assert left <= gamma**2 * corrected
