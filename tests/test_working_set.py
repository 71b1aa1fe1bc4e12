"""Few features first: a guess may be wrong, the result is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import losses, penalties
from fpdfp.engines import checkpoint, working_set
from fpdfp.engines.options import RunOptions
from fpdfp.engines.slopes import Slopemeter
from fpdfp.precondition.base import Announced
from fpdfp.precondition.exchange import Slopes
from fpdfp.rng import Draws
from tests.loopback import Loopback


def draw(rows: int = 240, d: int = 600, **given: Any) -> fpdfp.Problem:
    """Least squares with features that are alike, of which few matter, at three clients; one has no weight."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((rows, d)) + np.repeat(rng.standard_normal((rows, d // 10)), 10, axis=1)
    y = X[:, :80:10] @ np.array([3.0, -2, 2, -3, 1, 1, -1, 2]) + 0.1 * rng.standard_normal(rows)
    smooth = losses.LeastSquares(X, y, clients=np.arange(rows) % 3, **{"l2": 0.01, **given})
    return fpdfp.Problem(smooth, penalties.L1(np.where(np.arange(d) == 5, 0.0, 1.0)))


@pytest.fixture(scope="module")
def problem() -> fpdfp.Problem:
    return draw()


@pytest.fixture(scope="module")
def best(problem: fpdfp.Problem) -> Any:
    return fpdfp.minimize(problem, tol=1e-9)


def check(result: fpdfp.Result, problem: fpdfp.Problem, best: Any, tol: float) -> None:
    """What a result says of the whole problem is so."""
    gap = result.certificate.gap
    assert gap is not None
    assert -1e-9 * best.objective <= result.objective - best.objective <= gap
    assert gap <= tol * abs(result.objective)
    assert np.isclose(problem.objective(result.x), result.objective, rtol=1e-12)
    assert result.x.shape == result.v.shape == result.certificate.v.shape == problem.model.shape
    assert problem.penalty.conjugate(result.v) == 0


def test_few_features_are_enough(problem: fpdfp.Problem, best: Any) -> None:
    result = fpdfp.solve(problem, rounds=600, tol=1e-6)
    assert result.status == "converged"
    assert result.left is not None
    assert not result.left.is_certain
    assert len(result.left.numbers) < 200
    check(result, problem, best, 1e-6)
    quantizers: Any = {"compressor": fpdfp.QSGD(5, norm="max"), "downlink": fpdfp.QSGD(31, norm="max")}
    whole = fpdfp.solve(problem, fpdfp.ShiftedPDFP(preconditioner="auto"), rounds=600, tol=1e-6, **quantizers)
    assert result.bits_up < whole.bits_up / 2


@pytest.mark.parametrize("tightest", [0.1, 2.0])
def test_a_wrong_guess_is_found_out(
    problem: fpdfp.Problem, best: Any, tightest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one feature first and none added to it, the certificate of all features adds them, or takes all."""
    monkeypatch.setattr(working_set, "_steepest", lambda ratios, least, most: np.array([int(np.argmax(ratios))]))
    monkeypatch.setattr(working_set, "TIGHTEST", tightest)
    result = fpdfp.solve(problem, rounds=2000, tol=1e-5)
    assert result.status == "converged"
    check(result, problem, best, 1e-5)
    assert result.left is not None
    assert (len(result.left.numbers) == 600) == (tightest > 1)


@pytest.mark.parametrize("kind", ["logistic", "squares", "float32", "no ridge"])
def test_few_levels_certify_all_features(kind: str) -> None:
    """Where all features have a penalty, no exact gradient of all features is sent, and the gap is a bound."""
    rng = np.random.default_rng(5)
    rows, d = 300, 2000
    X = rng.standard_normal((rows, d)).astype(np.float32 if kind == "float32" else np.float64)
    y = (X[:, :5] @ np.array([2.0, -2, 1, 1, -1]) + rng.standard_normal(rows) > 0).astype(float)
    given: Any = {"clients": np.arange(rows) % 3, "l2": 0.0 if kind == "no ridge" else 0.01}
    smooth = losses.LeastSquares(X, y, **given) if kind == "squares" else losses.Logistic(X, y, **given)
    problem = fpdfp.Problem(smooth, penalties.L1(0.3 * float(np.abs(X.T @ (y - y.mean())).max()) / rows))
    tol = 1e-4 if kind == "float32" else 1e-6
    result = fpdfp.solve(problem, rounds=2000, tol=tol)
    assert result.status == "converged"
    assert result.left is not None
    assert not result.left.is_certain
    exact = fpdfp.Problem(
        type(smooth)(X.astype(np.float64), y, **given),
        penalties.L1(problem.penalty.weight),  # type: ignore[attr-defined]
    )
    best = fpdfp.minimize(exact, tol=1e-10)
    gap = result.certificate.gap
    assert gap is not None
    error = exact.objective(result.x.astype(np.float64)) - best.objective
    assert -1e-9 <= error <= gap <= tol * abs(result.objective)
    assert problem.penalty.conjugate(result.certificate.v) == 0
    # 4,095 levels and a sign take thirteen bits, or somewhat more where few numbers are large; an exact number 64.
    assert result.traffic["certificate"].up < 3 * 18 * d + 3 * 64 * 20 * len(result.left.numbers)
    # A dual point of the whole problem that is made of exact gradients says the same.
    again = exact.certificate(result.x.astype(np.float64), thorough=False)
    assert again.gap is not None
    assert error <= again.gap <= 1.5 * gap + 1e-9


def test_steep_features_are_never_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was guessed: a feature whose slope may exceed its weight is added before a run ends."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((200, 600))
    y = X[:, :30] @ rng.standard_normal(30) + rng.standard_normal(200)
    problem = fpdfp.Problem(losses.LeastSquares(X, y, clients=np.arange(200) % 4), penalties.L1(0.5))
    monkeypatch.setattr(working_set, "_steepest", lambda ratios, least, most: np.array([int(np.argmax(ratios))]))
    result = fpdfp.solve(problem, rounds=3000, tol=1e-6)
    best = fpdfp.minimize(problem, tol=1e-10)
    assert result.status == "converged"
    assert result.objective - best.objective <= 1e-6 * best.objective
    assert len(np.flatnonzero(best.x)) > 20


def test_a_run_that_ends_early_is_certified_with_all_features(problem: fpdfp.Problem, best: Any) -> None:
    result = fpdfp.solve(problem, rounds=2, tol=1e-6)
    assert result.status == "finished"
    check(result, problem, best, np.inf)


@pytest.mark.parametrize("ridge", [0.0, 0.01])
def test_where_the_penalty_is_too_heavy_zero_is_the_solution(ridge: float) -> None:
    """At zero no slope is near its weight, so that a guess has no feature at all."""
    smooth = draw(d=200, l2=ridge).losses
    steepest = np.abs(smooth.gradient(np.zeros(200), np.full(3, 1 / 3))).max()
    for share in (1.01, 20.0):
        result = fpdfp.solve(fpdfp.Problem(smooth, penalties.L1(share * steepest)), rounds=50, tol=1e-6)
        assert result.status == "converged"
        assert not result.x.any()


def test_sites_begin_with_the_same_features(problem: fpdfp.Problem) -> None:
    here = fpdfp.solve(problem, rounds=600, tol=1e-6, evaluate_every=50)
    there = fpdfp.Problem(Loopback(problem).losses(), problem.penalty)
    result = fpdfp.solve(there, rounds=600, tol=1e-6, evaluate_every=50)
    np.testing.assert_array_equal(result.x, here.x)
    assert result.traffic == here.traffic


def test_a_run_goes_on_to_the_same_bits(problem: fpdfp.Problem, tmp_path: Path) -> None:
    given: dict[str, Any] = {"rounds": 600, "tol": 1e-6, "checkpoint_every": 1, "evaluate_every": 50}
    whole = fpdfp.solve(problem, checkpoint=tmp_path / "whole", **given)
    seen: dict[int, float] = {}
    for cut in (2, whole.left.since if whole.left else 0, whole.rounds - 1):
        file = tmp_path / str(cut)

        def stop(run: fpdfp.Run, cut: int = cut) -> bool:
            return run.round == cut

        fpdfp.solve(problem, checkpoint=file, callbacks=[stop], **given)
        saved = checkpoint.load(file).left
        assert saved is not None
        seen[cut] = saved.until
        again = fpdfp.solve(problem, checkpoint=file, resume=True, **given)
        np.testing.assert_array_equal(again.x, whole.x)
        assert again.traffic == whole.traffic
        assert str(again) == str(whole)
    assert seen[2] == working_set.FIRST
    finer = fpdfp.solve(problem, checkpoint=tmp_path / "whole", resume=True, rounds=2000, tol=1e-8)
    assert finer.status == "converged"
    assert finer.certificate.relative_gap is not None
    assert finer.certificate.relative_gap <= 1e-8


def test_slopes_are_those_at_a_point(problem: fpdfp.Problem) -> None:
    everyone = np.arange(3)
    x = np.zeros(600)
    x[[3, 80]] = 1.0, -2.0
    for point, told in ((np.zeros(600), None), (x, Announced.plain(x.astype(np.float32)))):
        question = Slopes(told)
        sent = question.gather(problem.model, problem.local(everyone))
        [(compressor, shape)] = question.messages(problem.model).values()
        assert sent.slope.shape[1:] == shape
        decoded = compressor.compress(sent.slope, Draws(0, 0, everyone), 0).values
        mean = question.add_up(type(sent)(decoded), everyone)[0] / 3
        np.testing.assert_allclose(mean, problem.gradient(point), atol=np.abs(sent.slope).max() / 255)
    with pytest.raises(ValueError, match=r"x must have shape \(600,\), got \(2,\)"):
        Slopes(Announced.plain(np.ones(2, dtype=np.float32))).gather(problem.model, problem.local(everyone))


def test_slopes_of_some_features() -> None:
    """They are those of all, in the places of a mask; a mask that is none is refused."""
    problem, everyone = draw(), np.arange(3)
    mask = np.zeros(600, dtype=np.float32)
    mask[[2, 80, 599]] = 1.0
    x = Announced.plain(np.linspace(-1, 1, 600).astype(np.float32))
    question = Slopes(x, 4095, Announced.plain(mask))
    sent = question.gather(problem.model, problem.local(everyone))
    whole = Slopes(x, 4095).gather(problem.model, problem.local(everyone))
    np.testing.assert_array_equal(sent.slope, whole.slope[:, [2, 80, 599]])
    assert question.messages(problem.model)["slope"][1] == (3,)
    for wrong in (np.zeros(600), np.full(600, 2.0), np.ones(3)):
        with pytest.raises(ValueError, match="a zero or a one for each of 600 features"):
            Slopes(None, 63, Announced.plain(wrong.astype(np.float32))).messages(problem.model)


@pytest.mark.parametrize("scale", [1.0, 0.999])
def test_bounds_of_slopes_hold_and_are_fine_where_it_matters(problem: fpdfp.Problem, best: Any, scale: float) -> None:
    """No bound is below the slope; features that coarse levels leave in doubt are known to a part in a thousand."""
    x = scale * best.x
    known = np.flatnonzero(x)
    options = RunOptions(rounds=1, tol=1e-6)
    clients = Slopemeter(problem, None, options)
    looked = clients.bound(x, known)
    others = np.setdiff1d(np.arange(600), np.append(known, 5))
    exact = np.abs(problem.gradient(x))
    assert (looked.ratios[others] >= exact[others]).all()
    doubtful = others[looked.ratios[others] > 0.99]
    np.testing.assert_allclose(looked.ratios[doubtful], exact[doubtful], atol=0.05)
    assert looked.up < 3 * (600 * 10 + 100 * 16)
