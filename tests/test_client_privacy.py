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
