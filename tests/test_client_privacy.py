"""Client-level privacy of simulations: clipping, noise, and the price by our accounting and by dp-accounting's."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import fpdfp
from fpdfp import ClientPrivacy
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.privacy.accounting import mu_of


class Reply(NamedTuple):
    x: np.ndarray
    v: np.ndarray


def problem(clients: int = 40, seed: int = 0) -> fpdfp.Problem:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((10 * clients, 4))
    y = np.where(rng.random(len(X)) < 1 / (1 + np.exp(-X @ [1.0, -1.0, 0.0, 0.5])), 1.0, -1.0)
    return fpdfp.Problem(
        fpdfp.losses.Logistic(X, y, clients=np.arange(len(X)) % clients, l2=0.1), fpdfp.penalties.Zero()
    )


def run(privacy: ClientPrivacy | None, rounds: int = 30, **options: Any) -> fpdfp.Result:
    return fpdfp.solve(
        problem(), fpdfp.PDFP(), rounds=rounds, privacy=privacy, progress=False, compressor=None, **options
    )


def test_without_noise_and_clipping_nothing_changes() -> None:
    plain, private = run(None), run(ClientPrivacy(clip=1e9, noise=1e-18))
    np.testing.assert_allclose(private.x, plain.x, atol=1e-7)
    assert plain.privacy is None


def test_the_noise_is_as_large_as_promised_and_a_function_of_seed_and_round() -> None:
    privacy = ClientPrivacy(clip=2.0, noise=3.0)
    mean = Reply(np.zeros((300, 100)), np.zeros(500))
    first = privacy.perturb(mean, 20, seed=5, k=7)
    assert first.x.std() == pytest.approx(3.0 * 2.0 / 20, rel=0.02)
    assert (privacy.perturb(mean, 20, seed=5, k=7).x == first.x).all()
    for seed, k in ((6, 7), (5, 8)):
        assert abs(np.corrcoef(privacy.perturb(mean, 20, seed, k).x.ravel(), first.x.ravel())[0, 1]) < 0.02


@pytest.mark.filterwarnings("ignore::fpdfp.errors.StepTooLargeWarning")
def test_one_client_moves_a_mean_by_at_most_the_clip() -> None:
    """The mean of clipped replies with and without what one client holds, however large that is."""
    seen: list[np.ndarray] = []

    class Watched(ClientPrivacy):
        def perturb(self, mean: Any, count: int, seed: int, k: int) -> Any:
            seen.append(np.concatenate([np.ravel(one) for one in mean]) * count)
            return mean

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), rng.choice([-1.0, 1.0], 60)
    for factor in (1.0, 1e4):
        Z = X.copy()
        Z[:6] *= factor
        losses = fpdfp.losses.Logistic(Z, y, clients=np.arange(60) // 6, l2=0.1)
        made = fpdfp.Problem(losses, fpdfp.penalties.Zero())
        fpdfp.solve(made, fpdfp.FedAvg(step=0.1), rounds=1, privacy=Watched(0.05, 1.0), progress=False, compressor=None)
    assert 1e-6 < np.linalg.norm(seen[0] - seen[-1]) <= 2 * 0.05 * (1 + 1e-6)


def test_all_clients_in_every_round_cost_a_gaussian_mechanism() -> None:
    result = run(ClientPrivacy(clip=1.0, noise=10.0, delta=1e-6), rounds=25)
    assert result.privacy is not None
    assert mu_of(result.privacy.epsilon, 1e-6) == pytest.approx(math.sqrt(25) / 10.0, rel=1e-9)
    assert result.privacy.unit == "one client more or less"
    assert "25 × mean of replies" in str(result.privacy)


def test_some_clients_cost_what_dp_accounting_says() -> None:
    """Numbers of dp-accounting itself, for a mechanism whose sum moves by twice the clip where a client is replaced."""
    dp = pytest.importorskip("dp_accounting")
    from dp_accounting import rdp

    result = fpdfp.solve(
        problem(), fpdfp.FedAvg(step=0.1), rounds=50, privacy=ClientPrivacy(clip=1.0, noise=8.0, delta=1e-5),
        clients_per_round=4, progress=False,
    )  # fmt: skip
    assert result.privacy is not None
    accountant = rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp.SampledWithoutReplacementDpEvent(40, 4, dp.GaussianDpEvent(4.0)), 50)
    assert result.privacy.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-12)
    assert result.privacy.unit == "one client in the place of another"
    # sampling helps: all of them with the same noise cost more
    assert result.privacy.epsilon < ClientPrivacy(1.0, 4.0, 1e-5).spent(50, 40, 40).epsilon


@pytest.mark.parametrize("noise", [2.0, 10.0, 100.0])
def test_our_accounting_is_that_of_dp_accounting(noise: float) -> None:
    dp = pytest.importorskip("dp_accounting")
    from dp_accounting import pld

    accountant = pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dp.GaussianDpEvent(noise), 30)
    assert ClientPrivacy(1.0, noise, 1e-6).spent(30, 7, 7).epsilon == pytest.approx(
        accountant.get_epsilon(1e-6), rel=2e-3
    )


def theorem(noise: float, rounds: int, clients: int, of: int, delta: float) -> float:
    """ε by Theorem 9 of Wang, Balle and Kasiviswanathan (2019), and by Canonne et al. (2020) from Rényi to (ε, δ)."""
    share, best = clients / of, math.inf
    for order in range(2, 200):
        rdp = [2.0 * j / noise**2 for j in range(order + 1)]  # j (2 clip)²/(2 noise² clip²)
        parts = [0.0, 2 * math.log(share) + math.log(math.comb(order, 2)) + math.log(
            min(4 * math.expm1(rdp[2]), 2 * math.exp(rdp[2]))
        )]  # fmt: skip
        parts += [
            math.log(2) + j * math.log(share) + math.log(math.comb(order, j)) + (j - 1) * rdp[j]
            for j in range(3, order + 1)
        ]
        whole = rounds * float(np.logaddexp.reduce(parts)) / (order - 1)
        best = min(best, whole + math.log1p(-1 / order) - math.log(delta * order) / (order - 1))
    return best


def exact(noise: float, rounds: int, share: float, delta: float) -> float:
    """ε of the mixtures (1 − γ)N(0, s²) + γN(±1, s²), from the distribution of losses: less than of some other pair."""
    from scipy.signal import fftconvolve
    from scipy.stats import norm

    z = np.linspace(-1 - 12 * noise, 1 + 12 * noise, 200_001)
    here, there = ((1 - share) * norm.pdf(z, 0, noise) + share * norm.pdf(z, c, noise) for c in (1.0, -1.0))
    step = 2e-4
    losses, mass = np.rint(np.log(here / there) / step).astype(int), here / here.sum()
    low = losses.min()
    once = np.bincount(losses - low, mass)
    total, place = once, low
    for _ in range(rounds - 1):
        total, place = fftconvolve(total, once), place + low
        kept = np.flatnonzero(total > 1e-18)
        total, place = total[kept[0] : kept[-1] + 1], place + kept[0]
    values = step * (place + np.arange(len(total)))

    def excess(epsilon: float) -> float:
        above = values > epsilon
        return float((total[above] * -np.expm1(epsilon - values[above])).sum()) - delta

    from scipy.optimize import brentq

    return float(brentq(excess, 1e-6, values[-1]))


@pytest.mark.parametrize(
    ("noise", "rounds", "clients", "of"), [(8.0, 50, 4, 40), (4.0, 20, 10, 200), (6.0, 30, 20, 40)]
)
def test_the_price_of_some_clients_lies_between_two_other_computations(
    noise: float, rounds: int, clients: int, of: int
) -> None:
    """The control: with a quarter of the noise no price that is said suffices."""
    pytest.importorskip("dp_accounting")
    said = ClientPrivacy(1.0, noise, 1e-5).spent(rounds, clients, of).epsilon
    assert exact(noise, rounds, clients / of, 1e-5) <= said <= theorem(noise, rounds, clients, of, 1e-5) * (1 + 1e-9)
    assert exact(noise / 4, rounds, clients / of, 1e-5) > said


class HalfNoise(ClientPrivacy):
    """Adds half of the noise that it says."""

    def perturb(self, mean: Any, count: int, seed: int, k: int) -> Any:
        return type(mean)(*((a + b) / 2 for a, b in zip(mean, super().perturb(mean, count, seed, k), strict=True)))


class Unclipped(ClientPrivacy):
    """Does not shorten replies."""

    def shorten(self, arrays: Any) -> Any:
        return arrays


def audit(privacy: ClientPrivacy, runs: int = 300) -> float:
    """Return a lower bound of μ, 99.9 % certain: x tells runs with and without a client whose reply is long."""
    from scipy.stats import beta, norm

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), rng.choice([-1.0, 1.0], 60)
    X[:6, 0], y[:6] = 100.0, 1.0
    found = []
    for present in (True, False):
        rows = np.where(np.arange(60) < 6, float(present), 1.0)[:, None] * X
        losses = fpdfp.losses.Logistic(rows, y, clients=np.arange(60) // 6, l2=0.1)
        made = fpdfp.Problem(losses, fpdfp.penalties.Zero())
        seeds = range(0 if present else runs, runs if present else 2 * runs)
        options: dict[str, Any] = {"rounds": 1, "privacy": privacy, "progress": False, "compressor": None}
        found.append([
            fpdfp.solve(made, fpdfp.FedAvg(step=0.001), seed=seed, **options).x[0] for seed in seeds
        ])  # fmt: skip
    edge = np.median(found[1])
    hits, alarms = ((np.array(one) > edge).sum() for one in found)
    low = beta.ppf(0.0005, hits, runs - hits + 1) if hits else 0.0
    high = beta.ppf(0.9995, alarms + 1, runs - alarms)
    return float(norm.ppf(low) - norm.ppf(high))


@pytest.mark.filterwarnings("ignore::fpdfp.errors.StepTooLargeWarning")
def test_an_audit_of_runs_stays_below_the_price_and_its_controls_do_not() -> None:
    claimed = 1.0 / 0.7  # one round with all clients
    assert audit(ClientPrivacy(0.02, 0.7)) < claimed
    assert audit(HalfNoise(0.02, 0.7)) > claimed
    assert audit(Unclipped(0.02, 0.7)) > claimed


def test_more_noise_is_less_accurate() -> None:
    best = run(None, rounds=200).objective
    gaps = [
        np.mean([run(ClientPrivacy(2.0, noise), rounds=60, seed=seed).objective - best for seed in range(4)])
        for noise in (0.1, 10.0)
    ]
    assert gaps[0] < 0.02 < gaps[1]


def test_a_run_is_continued_with_the_same_noise(tmp_path: Path) -> None:
    privacy, file = ClientPrivacy(1.0, 2.0), tmp_path / "run.npz"
    run(privacy, rounds=10, checkpoint=file)
    continued, whole = run(privacy, rounds=30, checkpoint=file, resume=True), run(privacy, rounds=30)
    assert (continued.x == whole.x).all()
    assert continued.privacy == whole.privacy
    with pytest.raises(fpdfp.errors.CheckpointError, match="privacy"):
        run(ClientPrivacy(1.0, 0.1), rounds=40, checkpoint=file, resume=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tol": 1e-3}, "tol must be None with privacy"),
        ({"drop_out": 0.1}, "privacy must be None with drop_out"),
        ({"sampling": "importance", "clients_per_round": 3}, "privacy must be None with drop_out, sampling"),
        ({"method": fpdfp.ShiftedPDFP()}, "clients remember something"),
        ({"method": fpdfp.StatelessPDFP(preconditioner="moments")}, "with a preconditioner"),
        ({"method": None}, "give method"),
        ({"privacy": 3.0}, "privacy must be fpdfp.ClientPrivacy"),
    ],
)
def test_what_would_not_be_private_is_refused(options: dict[str, Any], message: str) -> None:
    given = {"method": fpdfp.PDFP(), "rounds": 5, "privacy": ClientPrivacy(1.0, 1.0), "progress": False} | options
    with pytest.raises((ArgumentError, ArgumentTypeError), match=message):
        fpdfp.solve(problem(), **given)


@pytest.mark.parametrize("bad", [{"clip": 0}, {"noise": -1}, {"delta": 1.0}, {"clip": math.inf}])
def test_prices_that_are_none(bad: dict[str, float]) -> None:
    with pytest.raises(ArgumentError):
        ClientPrivacy(**({"clip": 1.0, "noise": 1.0} | bad))
