"""Newton steps in few features: where they lead is certified, and what they cost is counted, also at sites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import losses, penalties
from fpdfp.cohorts.losses import LocalModels
from fpdfp.engines import finish
from fpdfp.engines.stopping import Stopping
from fpdfp.errors import MessageError
from fpdfp.precondition import cost
from fpdfp.precondition.base import Announced
from tests import helpers
from tests.loopback import Loopback


@pytest.fixture(autouse=True)
def affordable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems of tests are so small that a Newton step costs more than all rounds, and Newton's method less."""
    helpers.take_shifted(monkeypatch)
    begin_at(monkeypatch, 8)


def begin_at(monkeypatch: pytest.MonkeyPatch, first: float) -> None:
    """Have runs try Newton steps at some round, and once more at four times as many rounds."""

    def is_due(self: finish.Finish) -> bool:
        return self.applies and self.run.round >= first and self.run.round >= 4 * self.since[0]

    monkeypatch.setattr(finish.Finish, "is_due", is_due)


def draw_problem(seed: int = 0, kind: str = "logistic", **given: Any) -> fpdfp.Problem:
    """Neighbours alike, a few features that matter, an intercept without a weight, clients of different sizes."""
    rng = np.random.default_rng(seed)
    n, d = 300, 40
    X = rng.standard_normal((n, d))
    for j in range(2, d):
        X[:, j] = 0.8 * X[:, j - 1] + 0.6 * X[:, j]
    X[:, 0] = 1.0
    z = X[:, ::8] @ rng.standard_normal(5) + 0.5 * rng.standard_normal(n)
    clients = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    y = z if kind == "least squares" else (z > 0).astype(float)
    family = losses.LeastSquares if kind == "least squares" else losses.Logistic
    smooth = family(X, y, clients=clients, **{"l2": 1e-3, **given})
    weight = np.full(d, 0.03)
    weight[0] = 0.0
    return fpdfp.Problem(smooth, penalties.L1(weight), weights="samples")


class Steps:
    """Notes what Newton steps lead to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ended: list[bool] = []
        original = Stopping._finish

        def noted(stopping: Stopping) -> Any:
            ending = original(stopping)
            self.ended.append(ending is not None)
            return ending

        monkeypatch.setattr(Stopping, "_finish", noted)


@pytest.mark.parametrize("kind", ["logistic", "least squares"])
@pytest.mark.parametrize("ridge", [1e-3, 0.0])
@pytest.mark.parametrize("tol", [1e-5, 1e-9])
def test_the_certified_gap_is_never_too_small(
    tol: float, ridge: float, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    for seed in range(2):
        problem = draw_problem(seed, kind, l2=ridge)
        result = fpdfp.solve(problem, rounds=600, tol=tol)
        best = fpdfp.minimize(problem, tol=1e-13)
        assert result.status == "converged"
        assert result.certificate.gap is not None
        assert result.certificate.gap <= tol * result.certificate.scale
        true = problem.objective(result.x) - best.objective
        assert true <= result.certificate.gap + 1e-13 * best.objective
        assert np.isclose(result.objective, problem.objective(result.x), rtol=1e-13)
        assert problem.penalty.conjugate(result.v) == 0
    assert any(steps.ended)


def test_steps_that_lead_nowhere_cost_bits_and_rounds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw_problem()
    given: dict[str, Any] = {"rounds": 600, "tol": 1e-6}
    good = fpdfp.solve(problem, **given)
    right = finish.Finish._minimise

    def astray(self: finish.Finish, *about: Any) -> Any:
        x, v = right(self, *about)
        return 3.0 * x, v

    monkeypatch.setattr(finish.Finish, "_minimise", astray)
    result = fpdfp.solve(problem, **given)
    begin_at(monkeypatch, np.inf)
    plain = fpdfp.solve(problem, **given)
    assert result.status == plain.status == good.status == "converged"
    assert good.rounds < plain.rounds
    assert abs(result.rounds - plain.rounds) < 15
    assert result.certificate.relative_gap is not None
    assert result.certificate.relative_gap <= 1e-6


@pytest.mark.parametrize("rounds", [8, 9, 12])
def test_no_more_steps_are_taken_than_there_are_rounds(rounds: int) -> None:
    result = fpdfp.solve(draw_problem(), rounds=rounds, tol=1e-300)
    assert result.rounds == rounds
    assert result.history["round"][-1] == rounds


def test_sites_take_the_same_step_and_count_the_same() -> None:
    problem = draw_problem()
    given: dict[str, Any] = {"rounds": 600, "tol": 1e-6}
    whole = fpdfp.solve(problem, **given)
    engine = Loopback(problem)
    there = fpdfp.Problem(engine.losses(), problem.penalty, weights="samples")
    result = fpdfp.solve(there, **given)
    np.testing.assert_array_equal(result.x, whole.x)
    assert result.rounds == whole.rounds
    assert result.traffic == whole.traffic
    assert result.certificate.gap == pytest.approx(whole.certificate.gap, rel=1e-6)
    assert any("local_models" in request for request in engine.requests)


def test_resuming_gives_the_same_end(tmp_path: Path) -> None:
    problem = draw_problem()
    given: dict[str, Any] = {"rounds": 600, "tol": 1e-6, "checkpoint_every": 1}
    whole = fpdfp.solve(problem, checkpoint=tmp_path / "whole", **given)
    for cut in (7, 600):  # interrupted just before the steps, and not at all
        file = tmp_path / str(cut)

        def stop(run: Any, cut: int = cut) -> bool:
            return bool(run.round == cut)

        fpdfp.solve(problem, checkpoint=file, callbacks=[stop], **given)
        again = fpdfp.solve(problem, checkpoint=file, resume=True, **given)
        np.testing.assert_array_equal(again.x, whole.x)
        np.testing.assert_array_equal(again.v, whole.v)
        assert again.traffic == whole.traffic
        assert str(again) == str(whole)
        assert again.certificate.residual == whole.certificate.residual
    finer = fpdfp.solve(problem, checkpoint=tmp_path / "600", resume=True, **{**given, "tol": 1e-9})
    assert finer.status == "converged"
    assert finer.certificate.relative_gap is not None
    assert finer.certificate.relative_gap <= 1e-9


def test_a_model_is_that_of_the_loss() -> None:
    problem, features = draw_problem(), np.array([0, 3, 17, 39])
    x = np.zeros(40)
    x[features] = [0.3, -1.0, 0.5, 2.0]
    everyone = np.arange(4)
    question = LocalModels(Announced.plain(x), Announced.mask(features, 40))
    sums = question.add_up(question.answer(problem.local(everyone)), everyone)
    rows, columns = np.tril_indices(4)
    hessian = problem.losses.hessian(x, problem.weights)
    assert hessian is not None
    np.testing.assert_allclose(sums.triangle / 4, hessian[np.ix_(features, features)][rows, columns], rtol=1e-5)


def test_questions_that_make_no_sense_are_refused() -> None:
    problem, mask = draw_problem(), Announced.mask(np.array([1, 3]), 40)
    for x, asked, what in (
        (Announced.plain(np.ones(40)), mask, "zero in features that are not requested"),
        (Announced.plain(np.zeros(39)), mask, "a point of shape"),
        (None, Announced.plain(np.zeros(40)), "a one at least"),
        (None, Announced.plain(np.full(40, 0.5)), "a zero or a one"),
        (None, Announced.plain(np.ones(41)), "for each of the 40 features"),
    ):
        question = LocalModels(x, asked)
        with pytest.raises(MessageError, match=what):
            question.points_at((40,))
        with pytest.raises(MessageError, match=what):
            question.answer(problem.local(np.arange(4)))
    with pytest.raises(MessageError, match="no model in some features"):
        LocalModels(None, mask).points_at((2, 40))
    with pytest.raises(fpdfp.errors.ArgumentError, match="levels"):
        LocalModels(levels=0)
    with pytest.raises(FloatingPointError, match="NaN"):
        Announced.plain(np.array([0.0, np.nan]))


@pytest.mark.parametrize("kind", ["fused", "grouped"])
def test_steps_are_taken_with_any_finite_penalty(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, problem = Steps(monkeypatch), draw_problem()
    penalty = penalties.L1(0.03) if kind == "fused" else penalties.GroupL12(0.03, groups=np.arange(40) // 4)
    other = fpdfp.Problem(problem.losses, penalty, fpdfp.linops.Difference(40) if kind == "fused" else None)
    result = fpdfp.solve(other, rounds=600, tol=1e-6)
    assert result.status == "converged"
    assert result.objective <= fpdfp.minimize(other, tol=1e-9).objective * (1 + 1e-6)
    assert any(steps.ended)


def test_methods_that_were_asked_for_and_limits_take_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, problem = Steps(monkeypatch), draw_problem()
    fpdfp.solve(problem, fpdfp.ShiftedPDFP(preconditioner="moments"), rounds=60, tol=1e-6)
    fpdfp.solve(fpdfp.Problem(problem.losses, penalties.NonNegative()), rounds=60, tol=1e-6)
    fpdfp.solve(problem, rounds=60)
    assert not steps.ended


@pytest.mark.parametrize("prefer", ["balanced", "rounds", "bits", fpdfp.Network(0.1, 1e6, 1e7)])
def test_steps_begin_when_they_cost_what_was_spent(prefer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    helpers.take_shifted(monkeypatch)
    seen: list[bool] = []
    original = finish.Finish.is_due

    def is_due(self: finish.Finish) -> bool:
        due = original(self)
        once = self.run.traffic["preconditioner"]  # a part of the product of rounds and bits, and spent otherwise
        start = (0, 0, 0) if prefer == "balanced" else (0, *once)
        if self.run.round:
            count = len(self.features(self.run.x, self.run.algorithm.estimate_slope(self.run.state)))  # type: ignore
            spent, given = self._spent(start), self._given
            model = cost.of_models(given, count, cost.MODEL_BITS)
            steps = model.plus(self._price_steps(finish.STEPS + 1))._replace(rounds=finish.STEPS)
            assert due == (given.score(spent.plus(steps)) <= given.score(spent.plus(spent)))
            seen.append(due)
        return due

    monkeypatch.setattr(finish.Finish, "is_due", is_due)
    result = fpdfp.solve(draw_problem(), rounds=600, tol=1e-6, prefer=prefer)
    assert result.status == "converged"
    assert seen == sorted(seen)
    assert seen[-1]
