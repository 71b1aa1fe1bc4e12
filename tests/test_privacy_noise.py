"""The discrete Gaussian distribution, drawn exactly, and the accounting of μ."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chisquare, ks_2samp, norm

from fpdfp._kernels import discrete_gaussian
from fpdfp.errors import ArgumentError
from fpdfp.privacy.accounting import delta_of, epsilon_of, mu_of
from fpdfp.privacy.noise import Stream, discrete_gaussian_noise

pytest.importorskip("cryptography")


def stream(purpose: str) -> Stream:
    return Stream(bytes(32), purpose.encode())


def probabilities(s: int, reach: int) -> np.ndarray:
    k = np.arange(-reach, reach + 1)
    p = np.exp(-(k**2) / (2.0 * s * s))
    return np.asarray(p / p.sum())


@pytest.mark.parametrize("s", [1, 2, 3, 7, 25])
def test_draws_have_the_exact_probabilities(s: int) -> None:
    """A chi-square test of a million draws against the probability of every integer."""
    n, reach = 1_000_000, 9 * s
    draws = discrete_gaussian_noise(stream(f"exact {s}"), s, n)
    expected = probabilities(s, reach) * n
    counts = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1)
    often = expected > 20
    assert (
        chisquare(
            np.append(counts[often], counts[~often].sum()), np.append(expected[often], expected[~often].sum())
        ).pvalue
        > 1e-4
    )


@pytest.mark.parametrize("s", [10**5, 2**20, 2**34, 2**50])
def test_large_scales_are_nearly_gaussian(s: int) -> None:
    draws = discrete_gaussian_noise(stream(f"large {s}"), s, 400_000)
    cuts = norm.ppf(np.arange(1, 100) / 100) * s
    counts = np.bincount(np.searchsorted(cuts, draws + 0.5), minlength=100)
    assert chisquare(counts).pvalue > 1e-4
    assert abs((draws.astype(float) / s) ** 2 - 1).mean() == pytest.approx(0.9679, abs=0.01)  # E|Z² − 1|


def test_draws_agree_with_opendp() -> None:
    opendp = pytest.importorskip("opendp.prelude")
    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T=int)), opendp.l2_distance(T=float)
    for s in (5, 300):
        theirs = np.array(opendp.m.make_gaussian(*space, scale=float(s))([0] * 30_000))
        ours = discrete_gaussian_noise(stream(f"opendp {s}"), s, 30_000)
        jitter = np.random.default_rng(s).random((2, 30_000))  # ties would make the test conservative
        assert ks_2samp(theirs + jitter[0], ours + jitter[1]).pvalue > 1e-4


def test_draws_are_a_function_of_the_stream_however_it_is_cut() -> None:
    words = stream("cut").words(200_000)
    whole = np.empty(1000, np.int64)
    done, used = discrete_gaussian.draw(12, words, whole)
    assert done == 1000
    for piece in (37, 100, 1001):
        parts, place, given, held = np.empty(1000, np.int64), 0, 0, words[:0]
        while place < 1000:
            held = np.concatenate([held, words[given : given + piece]])
            given += piece
            more, taken = discrete_gaussian.draw(12, held, parts[place:])
            place, held = place + more, held[taken:]
        assert (parts == whole).all()
    again = discrete_gaussian_noise(stream("cut"), 12, 1000)
    assert (again == whole).all()
    assert used < 40 * 1000


def test_keys_and_purposes_give_other_noise() -> None:
    draws = [
        discrete_gaussian_noise(Stream(key, p), 10**6, 100) for key in (bytes(32), b"k" * 32) for p in (b"a", b"b")
    ]
    assert all((one != two).any() for i, one in enumerate(draws) for two in draws[:i])


@pytest.mark.parametrize("scale", [0, -1, 1.5, 2**51])
def test_scales_that_are_refused(scale: int) -> None:
    with pytest.raises(ArgumentError, match="scale must be an integer"):
        discrete_gaussian_noise(stream("bad"), scale, 1)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_epsilon_delta_and_mu(epsilon: float, delta: float) -> None:
    mu = mu_of(epsilon, delta)
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-9)
    plain = norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
    assert plain == pytest.approx(delta, rel=1e-6, abs=1e-15)
    assert delta_of(epsilon, mu) <= delta


def test_squares_of_mu_add_up_as_losses_of_privacy_do() -> None:
    """The accountant of dp-accounting, which composes distributions of losses, finds the same ε."""
    pytest.importorskip("dp_accounting")
    from dp_accounting import GaussianDpEvent, SelfComposedDpEvent, pld

    for epsilon in (0.5, 3.0):
        mu = mu_of(epsilon, 1e-6)
        for releases in (1, 20):
            accountant = pld.PLDAccountant(value_discretization_interval=1e-5 if epsilon < 1 else 1e-4)
            accountant.compose(SelfComposedDpEvent(GaussianDpEvent(math.sqrt(releases) / mu), releases))
            assert accountant.get_epsilon(1e-6) == pytest.approx(epsilon, abs=2e-3)


@pytest.mark.parametrize("sites", [3, 5, 20])
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_sums_of_shares_are_as_private_as_one_gaussian(sites: int, epsilon: float) -> None:
    """δ at ε of the noise that remains if one site colludes, from exact probabilities, beside the formula."""
    shift, mu = 128, mu_of(epsilon, 1e-6)
    share = shift / mu / math.sqrt(sites - 1)
    k = np.arange(-int(12 * share) - 10, int(12 * share) + 11)
    p = np.exp(-(k**2) / (2 * share**2))
    p /= p.sum()
    total = np.ones(1)
    for _ in range(sites - 1):
        total = np.convolve(total, p)
    here, there = np.append(np.zeros(shift), total), np.append(total, np.zeros(shift))
    delta = np.maximum(here - math.exp(epsilon) * there, 0).sum()
    assert delta == pytest.approx(1e-6, rel=1e-3)
    assert delta <= 1e-6 * (1 + 1e-4)


@pytest.mark.parametrize(
    ("epsilon", "delta", "name"),
    [
        (0.0, 1e-6, "epsilon"),
        (math.nan, 1e-6, "epsilon"),
        (101.0, 1e-6, "epsilon"),
        (1.0, 0, "delta"),
        (1.0, 1, "delta"),
    ],
)
def test_the_accounting_refuses_what_is_no_budget(epsilon: float, delta: float, name: str) -> None:
    with pytest.raises(ArgumentError, match=name):
        mu_of(epsilon, delta)
