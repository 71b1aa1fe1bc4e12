"""Differential privacy: sensitivities, the ledger, models from noisy sums, and audits whose controls must fail."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.stats import beta, norm

import fpdfp
from fpdfp.errors import ArgumentError, Refusal
from fpdfp.privacy import accounting, releases
from fpdfp.privacy.fit import Goal, NoisySum, gradients, newton, statistics
from fpdfp.privacy.ledger import Ledger
from fpdfp.privacy.noise import Stream, discrete_gaussian_noise
from fpdfp.privacy.releases import GRID, Release, Rows, add_noise, bounded, exact_sum, full_matrix, lower_triangle
from tests.private_sites import LocalSites, PrivateSite, request_digest

pytest.importorskip("cryptography")


def table(n: int = 3000, d: int = 4, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.standard_normal((n, d - 1)), np.ones(n)])
    w = np.linspace(-0.8, 0.8, d)
    return Rows(X, np.where(rng.random(n) < 1 / (1 + np.exp(-X @ w)), 1.0, -1.0))


def split(rows: Rows, radius: float, n: int = 3, ledgers: list[Ledger] | None = None) -> list[PrivateSite]:
    return [
        PrivateSite(rows.X[i::n], rows.y[i::n], radius, bytes([i]) * 32, ledgers[i] if ledgers else None)
        for i in range(n)
    ]


def exact(rows: Rows, radius: float):  # type: ignore[no-untyped-def]
    """Sums without noise: the methods without privacy."""
    return lambda release: NoisySum(
        exact_sum(release, bounded(*rows, radius, release.loss, release.long_rows), radius), 0.0
    )


X3 = np.array([0.5, -2.0, 1.0])


@pytest.mark.parametrize(
    "release",
    [
        Release("moments", 1.0),
        Release("moments", 1.0, "squares"),
        Release("gradient", 1.0, x=X3),
        Release("gradient", 1.0, x=1e6 * X3),
        Release("hessian", 1.0, x=np.zeros(3)),
        Release("hessian", 1.0, x=X3),
        Release("statistics", 1.0),
        Release("statistics", 1.0, "squares"),
    ],
    ids=lambda release: f"{release.kind}-{release.loss}",
)
@pytest.mark.parametrize("long_rows", ["drop", "scale"])
def test_no_row_changes_a_sum_by_more_than_the_sensitivity(release: Release, long_rows: str) -> None:
    """Any row, also an absurd one, added to any table, before and after rounding; a row at the bound attains it."""
    release = dataclasses.replace(release, long_rows=long_rows)
    rng, radius, largest = np.random.default_rng(1), 1.7, 0.0
    for trial in range(200):
        X = rng.standard_normal((6, 3)) * 10.0 ** rng.uniform(-2, 3 if trial % 2 else 0)
        # the last row, which is the one that counts, is exactly as long as the radius in every third trial
        if trial % 3 == 0:
            X[-1] *= radius / np.linalg.norm(X[-1])
        y = rng.choice([-1.0, 1.0], 6) * (1.0 if release.loss == "logistic" else 1e-6 if trial % 3 == 0 else 3.0)
        X[-1] *= 1 - 1e-9
        with_row = exact_sum(release, bounded(X, y, radius, release.loss, long_rows), radius)
        without = exact_sum(release, bounded(X[:-1], y[:-1], radius, release.loss, long_rows), radius)
        sensitivity = release.sensitivity(radius)
        largest = max(largest, float(np.linalg.norm(with_row - without)) / sensitivity)
        assert largest <= 1 + 1e-9
        step = sensitivity / GRID
        rounded = np.linalg.norm(np.rint(with_row / step) - np.rint(without / step))
        assert rounded <= GRID + math.sqrt(release.length(3)) + 1e-3
    if release.kind != "gradient" or abs(release.x).max() > 100:
        assert largest > 0.35  # no bound is far too large


def test_the_sensitivity_is_attained() -> None:
    radius, row = 2.0, np.array([[2.0, 0.0, 0.0]])
    y = np.ones(1)
    for release, share in (
        (Release("moments", 1.0), 1.0),
        (Release("statistics", 1.0), 1.0),
        (Release("hessian", 1.0, x=np.zeros(3)), 1.0),
        (Release("gradient", 1.0, x=np.array([-100.0, 0, 0])), 1.0),
    ):
        total = exact_sum(release, Rows(row, y), radius)
        assert np.linalg.norm(total) == pytest.approx(share * release.sensitivity(radius), rel=1e-6)


def test_long_missing_and_infinite_rows() -> None:
    X = np.array([[1.0, 0.0], [3.0, 0.0], [np.nan, 0.0], [np.inf, 0.0], [0.0, 1.0]])
    y = np.array([1.0, 1.0, 1.0, 1.0, np.nan])
    assert bounded(X, y, 2.0, "logistic", "drop").X.tolist() == [[1, 0]]
    assert bounded(X, y, 2.0, "logistic", "scale").X.tolist() == [[1, 0], [2, 0]]
    # with squares the outcome belongs to the row
    assert len(bounded(X[:1], np.array([1.8]), 2.0, "squares", "drop").y) == 0
    with pytest.raises(ArgumentError, match="y must be −1 or 1"):
        bounded(X[:1], np.array([0.5]), 2.0, "logistic", "drop")


def test_triangles_keep_the_norm() -> None:
    rng = np.random.default_rng(2)
    A = rng.standard_normal((7, 7))
    A += A.T
    assert np.linalg.norm(lower_triangle(A)) == pytest.approx(np.linalg.norm(A), rel=1e-14)
    assert full_matrix(lower_triangle(A), 7) == pytest.approx(A, rel=1e-15)


@pytest.mark.parametrize("shares", [1, 4])
def test_noise_has_the_deviation_that_is_promised(shares: int) -> None:
    release, n = Release("gradient", 0.3, x=np.zeros(2000)), 5
    total = np.zeros(2000)
    drawn = sum(
        add_noise(release, total, 3.0, 2000, Stream(bytes([i]) * 32, b"x"), shares).astype(float) for i in range(n)
    )
    found = releases.read_sum(release, drawn, 3.0).std()
    assert found == pytest.approx(release.standard_deviation(3.0, 2000, n, shares), rel=0.06)
    assert found == pytest.approx(3.0 / 0.3 * math.sqrt(n / shares), rel=0.06)


def test_the_same_request_has_the_same_reply_and_no_other_has() -> None:
    rows = table(300)
    site = PrivateSite(*rows, 3.0, b"k" * 32)
    release = Release("gradient", 0.3, x=np.zeros(4))
    first = site.answer(release)
    assert (PrivateSite(*rows, 3.0, b"k" * 32).answer(release) == first).all()
    others = [
        site.answer(dataclasses.replace(release, mu=0.30001)),
        site.answer(dataclasses.replace(release, x=np.full(4, 1e-300))),
        site.answer(dataclasses.replace(release, long_rows="scale")),
        site.answer(release, shares=2),
        site.answer(release, about=b"another design"),
        PrivateSite(*rows, 3.0, b"l" * 32).answer(release),
        PrivateSite(rows.X[:-1], rows.y[:-1], 3.0, b"k" * 32).answer(release),
    ]
    for other in others:
        # the noise differs everywhere: a difference of two replies is not a difference of two sums
        assert (np.abs(other - first) > 1000).all()


def test_digests_of_requests_differ_in_every_part() -> None:
    base = Release("hessian", 0.3, x=np.zeros(2))
    different = [
        request_digest(one, about)
        for one, about in (
            (base, b""),
            (base, b"x"),
            (dataclasses.replace(base, mu=0.31), b""),
            (dataclasses.replace(base, kind="gradient"), b""),
            (dataclasses.replace(base, long_rows="scale"), b""),
            (dataclasses.replace(base, x=np.array([0.0, 1e-300])), b""),
            (dataclasses.replace(base, x=np.zeros(3)), b""),
        )
    ]
    assert len(set(different)) == len(different)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "rows"}, "kind must be one of"),
        ({"mu": 0.0}, "mu must be between"),
        ({"mu": math.nan}, "mu must be between"),
        ({"loss": "poisson"}, "loss must be one of"),
        ({"long_rows": "keep"}, "long_rows must be one of"),
        ({"x": np.array([np.nan])}, r"numbers of at most 1e\+100"),
        ({"x": np.array([1e300, -1e300])}, r"numbers of at most 1e\+100"),
        ({"x": None}, "x must be given"),
        ({"kind": "moments"}, "x must be given"),
        ({"loss": "squares"}, "whose gradients have no bound"),
    ],
)
def test_releases_that_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Release(**({"kind": "gradient", "mu": 0.1, "x": np.zeros(2)} | given))


# ---------------------------------------------------------------- the ledger


def test_squares_of_mu_add_up_across_runs_and_analysts(tmp_path: Path) -> None:
    part = accounting.mu_of(1.0, 1e-6) * math.sqrt(0.3)
    with Ledger(tmp_path / "ledger", 1.0, 1e-6) as ledger:
        for i, analyst in enumerate("ab"):
            ledger.spend("data", f"request {i}", part, "gradient", analyst)
            ledger.spend("data", f"request {i}", part, "gradient", analyst)  # the same costs nothing
    with Ledger(tmp_path / "ledger", 1.0, 1e-6) as ledger:
        ledger.spend("data", "request 2", part, "gradient", "c")
        before = ledger.head
        with pytest.raises(Refusal, match=r"privacy budget of this site is spent: epsilon 0\.94"):
            ledger.spend("data", "request 3", part, "gradient", "d")
        assert ledger.head == before
        ledger.spend("data", "request 0", part, "gradient", "d")
        ledger.spend("data", "rest", ledger.left("data"), "gradient", "d")
        assert ledger.account("data").spent == pytest.approx(1.0, abs=1e-9)
        assert ledger.account("data").spent <= 1.0
        assert ledger.left("data") < 1e-6
        assert [entry.analyst for entry in ledger.entries.values()] == ["a", "b", "c", "d"]


def test_data_that_have_changed_need_a_person(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", 1.0, 1e-6) as ledger:
        ledger.spend("old", "r", 0.1, "gradient", "a")
        with pytest.raises(Refusal, match="a person at the site must open an account"):
            ledger.spend("new", "r", 0.1, "gradient", "a")
        ledger.open("new")
        ledger.spend("new", "r", 0.1, "gradient", "a")
    with Ledger(tmp_path / "ledger", 1.0, 1e-6) as ledger:
        assert [account.releases for account in ledger.accounts()] == [1, 1]


def test_a_file_that_is_no_ledger(tmp_path: Path) -> None:
    for i, record in enumerate((b"{", b'["spend", 1]', b'["spend", "d", "t", "x", "w", "a", "n"]', b"[]")):
        path = tmp_path / str(i)
        from fpdfp.privacy.journal import Journal

        with Journal(path) as journal:
            journal.append(record)
        with pytest.raises(RuntimeError, match="is not a ledger"):
            Ledger(path, 1.0, 1e-6)


def test_a_ledger_that_is_cut_off_at_any_byte_has_every_release_that_left(tmp_path: Path) -> None:
    path, ends = tmp_path / "ledger", [0]
    with Ledger(path, 1.0, 1e-6) as ledger:
        for i in range(4):
            ledger.spend("data", f"{i}", 0.05, "gradient", "a")
            ends.append(path.stat().st_size)
    data = path.read_bytes()
    for length in range(0, len(data) + 1, 3):
        path.write_bytes(data[:length])
        with Ledger(path, 1.0, 1e-6) as ledger:
            assert len(ledger.entries) == sum(end <= length for end in ends[1:])


def test_no_reply_leaves_before_its_price_is_on_disk_when_killed(tmp_path: Path) -> None:
    """A site answers until it is killed with signal 9; every reply that was read is in the ledger."""
    program = (
        "import sys\nimport numpy as np\nfrom pathlib import Path\nfrom fpdfp.privacy.ledger import Ledger\n"
        "from tests.private_sites import PrivateSite\nfrom fpdfp.privacy.releases import Release\n"
        "ledger = Ledger(Path(sys.argv[1]), 10.0, 1e-6)\n"
        "site = PrivateSite(np.ones((5, 2)), np.ones(5), 2.0, bytes(32), ledger)\n"
        "n = len(ledger.entries)\n"
        "while True:\n    site.answer(Release('gradient', 1e-3, x=np.full(2, float(n))))\n    n += 1\n"
        "    print(n, flush=True)\n"
    )
    path = tmp_path / "ledger"
    for _ in range(3):
        command, here = [sys.executable, "-c", program, str(path)], Path(__file__).parents[1]
        with subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(5)]
            os.kill(process.pid, signal.SIGKILL)
            lines += process.stdout.read().splitlines()
        with Ledger(path, 10.0, 1e-6) as ledger:
            assert len(ledger.entries) >= int(lines[-1])


def test_a_site_stops_when_its_budget_is_spent(tmp_path: Path) -> None:
    rows = table(3000)
    ledgers = [Ledger(tmp_path / f"{i}", 1.0, 1e-6) for i in range(3)]
    sites = LocalSites(split(rows, 3.5, 3, ledgers), colluding=1)
    goal = Goal(3000, 4, 3.5, ledgers[0].mu, 1e-6)
    first = newton(sites, goal)
    assert first.privacy.epsilon == pytest.approx(1.0, abs=1e-9)
    assert (newton(sites, goal).x == first.x).all()  # the same run has the same replies, and costs nothing
    with pytest.raises(Refusal, match="budget of this site is spent"):
        newton(sites, dataclasses.replace(goal, rows=3001))
    for ledger in ledgers:
        assert ledger.account(next(iter(ledger._opened))).releases == len(first.privacy.releases)
        ledger.close()


# ---------------------------------------------------------------- models


def logistic_minimum(rows: Rows, ridge: float) -> np.ndarray:
    X, y = rows
    found = minimize(
        lambda x: np.logaddexp(0, -y * (X @ x)).mean() + ridge / 2 * x @ x,
        np.zeros(X.shape[1]),
        jac=lambda x: -(y / (1 + np.exp(y * (X @ x)))) @ X / len(y) + ridge * x,
        options={"gtol": 1e-11},
    )
    return np.asarray(found.x)


@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_newton_steps_without_noise_reach_the_minimum(ridge: float) -> None:
    rows = table()
    goal = Goal(3000, 4, 100.0, 1.0, 1e-6, ridge=ridge)
    assert newton(exact(rows, 100.0), goal, steps=12).x == pytest.approx(logistic_minimum(rows, ridge), abs=1e-7)


def test_newton_steps_with_a_penalty_reach_its_minimum() -> None:
    rows = table()
    for penalty, linop in (
        (fpdfp.penalties.L1(0.05), None),
        (fpdfp.penalties.L1(0.05), fpdfp.linops.Difference(4)),
    ):
        goal = Goal(3000, 4, 100.0, 1.0, 1e-6, penalty=penalty, linop=linop)
        problem = fpdfp.Problem(fpdfp.losses.Logistic(*rows), penalty, linop or fpdfp.linops.Identity((4,)))
        best = fpdfp.minimize(problem, tol=1e-10).x
        assert newton(exact(rows, 100.0), goal, steps=16).x == pytest.approx(best, abs=1e-5)
        found = gradients(exact(rows, 5.0), dataclasses.replace(goal, radius=5.0), rounds=400).x
        kept = bounded(*rows, 5.0, "logistic", "drop")
        problem = fpdfp.Problem(fpdfp.losses.Logistic(*kept), penalty, linop or fpdfp.linops.Identity((4,)))
        assert found == pytest.approx(fpdfp.minimize(problem, tol=1e-10).x, abs=5e-4)


def test_statistics_of_squares_are_least_squares_for_any_ridge() -> None:
    X, _ = table()
    y = X @ [1.0, 2.0, 0.0, -1.0] + np.random.default_rng(3).standard_normal(3000)
    fit = statistics(exact(Rows(X, y), 100.0), Goal(3000, 4, 100.0, 1.0, 1e-6, loss="squares"))
    assert fit().x == pytest.approx(np.linalg.lstsq(X, y, rcond=None)[0], rel=1e-9)
    ridged = np.linalg.solve(X.T @ X + 3000 * 0.5 * np.eye(4), X.T @ y)
    assert fit(ridge=0.5).x == pytest.approx(ridged, rel=1e-9)
    sparse = fit(penalty=fpdfp.penalties.L1(0.9)).x
    assert sparse[2] == 0
    assert fit().privacy == fit(ridge=1.0).privacy


def test_a_private_model_is_near_and_says_what_it_cost() -> None:
    rows = table(30_000)
    sites = LocalSites(split(rows, 3.5), colluding=1)
    goal = Goal(30_000, 4, 3.5, accounting.mu_of(3.0, 1e-6), 1e-6)
    fit = newton(sites, goal)
    best = logistic_minimum(bounded(*rows, 3.5, "logistic", "drop"), 0.0)
    assert fit.x == pytest.approx(best, abs=0.05)
    assert fit.privacy.epsilon == pytest.approx(3.0, abs=1e-9)
    assert fit.privacy.mu == pytest.approx(goal.mu, rel=1e-12)
    assert "epsilon = 3, delta = 1e-06" in str(fit.privacy)
    ends = fit.intervals()
    assert (ends[:, 0] < fit.x).all()
    assert (fit.x < ends[:, 1]).all()
    for other in (gradients(sites, goal), statistics(sites, goal)()):
        assert other.x == pytest.approx(best, abs=0.5)
        with pytest.raises(RuntimeError, match="intervals are not available"):
            other.intervals()


def test_intervals_are_refused_where_they_would_be_wrong() -> None:
    small = newton(LocalSites(split(table(2000, 10), 4.0), colluding=1), Goal(2000, 10, 4.0, 0.2367, 1e-6))
    with pytest.raises(RuntimeError, match="the noise dominates"):
        small.intervals()
    rows = table(30_000)
    sites, goal = LocalSites(split(rows, 3.5)), Goal(30_000, 4, 3.5, 2.0, 1e-6)
    for changed in ({"ridge": 0.1}, {"penalty": fpdfp.penalties.L1(0.01)}, {"long_rows": "scale"}):
        with pytest.raises(RuntimeError, match="without ridge, penalty and scaled rows"):
            newton(sites, dataclasses.replace(goal, **changed)).intervals()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda sites, goal: newton(sites, dataclasses.replace(goal, loss="squares")), "use statistics"),
        (lambda sites, goal: gradients(sites, dataclasses.replace(goal, loss="squares")), "use statistics"),
        (lambda sites, goal: newton(sites, goal, steps=1), "steps must be at least 2"),
        (lambda sites, goal: dataclasses.replace(goal, rows=0), "rows must be positive"),
        (lambda sites, goal: dataclasses.replace(goal, ridge=-1.0), "ridge must not be negative"),
        (lambda sites, goal: LocalSites(sites.sites, colluding=2), "colluding must leave at least two"),
    ],
)
def test_arguments_that_are_refused(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ArgumentError, match=message):
        call(LocalSites(split(table(30), 3.5)), Goal(30, 4, 3.5, 1.0, 1e-6))


# ---------------------------------------------------------------- audits


def lower_bound(epsilon: float, scale_factor: float, colluding: int, sites: int = 5) -> float:
    """A lower bound of ε, right with 95 %, for whoever knows all but one row and the noise of the colluding sites.

    The canary is a row at the radius; one threshold, Clopper and Pearson's bounds of both error rates, and the μ of a
    Gaussian mechanism with these.
    """
    trials, release = 120_000, Release("gradient", accounting.mu_of(epsilon, 1e-6), x=np.zeros(1))
    scale = round(release.scale(1, sites - 1) * scale_factor)
    streams = [Stream(bytes([i, colluding, round(100 * scale_factor)]) + bytes(29), b"audit") for i in range(sites)]
    seen: list[Any] = [
        sum(discrete_gaussian_noise(stream, scale, trials) for stream in streams[colluding:]) + present * GRID
        for present in (0, 1)
    ]
    false_alarms, misses = int((seen[0] > GRID / 2).sum()), int((seen[1] <= GRID / 2).sum())

    def highest(count: int) -> float:
        return float(beta.ppf(0.975, count + 1, trials - count))

    mu = norm.isf(highest(false_alarms)) - norm.ppf(highest(misses))
    if mu <= 0:
        return 0.0
    return float(brentq(lambda e: accounting.delta_of(e, mu) - 1e-6, 0, 100))


def test_a_canary_audit_stays_below_epsilon_and_its_controls_do_not() -> None:
    for epsilon in (1.0, 3.0):
        found = lower_bound(epsilon, 1.0, colluding=1)
        assert 0.6 * epsilon < found < epsilon  # the audit has power
        assert lower_bound(epsilon, 0.5, colluding=1) > epsilon, "half the noise is caught"
        shared_for_all = math.sqrt(4 / 5)
        assert lower_bound(epsilon, shared_for_all, colluding=1) > epsilon, "noise for N, not N − c, is caught"
        assert lower_bound(epsilon, 1.0, colluding=2) > epsilon, "one more colluding site than was allowed is caught"
