"""Interrupted paths and cross-validations: they go on to the bits of those that were not, and ask nothing twice."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from fpdfp.cohorts.local import Clients
from fpdfp.cohorts.many_points import Evaluations
from fpdfp.errors import CheckpointError
from tests.test_cox_estimator import DeskCohort

RNG = np.random.default_rng(0)
X = RNG.standard_normal((240, 5))
Y = (X[:, 0] - 0.5 * X[:, 1] + RNG.logistic(size=240) > 0).astype(float)
SITE = np.arange(240) % 4


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list of all questions that clients were asked."""
    seen: list[Any] = []
    plain = Evaluations.answer

    def answer(self: Any, *given: Any) -> Any:
        seen.append(self)
        return plain(self, *given)

    monkeypatch.setattr(Evaluations, "answer", answer)
    return seen


def problems(labels: Any = Y, weights: Any = (0.1, 0.03, 0.01, 0.003)) -> list[fpdfp.Problem]:
    losses = fpdfp.losses.Logistic(X, labels, clients=SITE)
    return [fpdfp.Problem(losses, fpdfp.penalties.L1(one)) for one in weights] * 2


HELD = [None] * 4 + [1] * 4


def interrupt_after(count: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Press Ctrl-C in one of the exchanges; return what makes that stop."""
    plain, seen = Clients.ask, [0]

    def press(*given: Any, **more: Any) -> Any:
        seen[0] += 1
        if seen[0] == count:
            signal.raise_signal(signal.SIGINT)
        return plain(*given, **more)

    monkeypatch.setattr(Clients, "ask", press)
    return lambda: monkeypatch.setattr(Clients, "ask", plain)


def test_solve_many_goes_on(tmp_path: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fpdfp.solve_many(problems(), folds=2, held_out=HELD, tol=1e-8)
    count = len(asked)
    assert whole.converged
    undo = interrupt_after(3, monkeypatch)
    part = fpdfp.solve_many(problems(), folds=2, held_out=HELD, tol=1e-8, checkpoint=tmp_path / "many")
    undo()
    assert part.rounds == 3
    assert "unfinished" in part.status
    assert len(asked) == count + 3
    again = fpdfp.solve_many(problems(), folds=2, held_out=HELD, tol=1e-8, checkpoint=tmp_path / "many")
    assert len(asked) == 2 * count
    third = fpdfp.solve_many(problems(), folds=2, held_out=HELD, tol=1e-8, checkpoint=tmp_path / "many")
    assert len(asked) == 2 * count
    for found in (again, third):
        for name, value in vars(whole).items():
            np.testing.assert_array_equal(getattr(found, name), value, err_msg=name)


def test_more_rounds_go_on(tmp_path: Path, asked: list[Any]) -> None:
    short = fpdfp.solve_many(problems(), rounds=2, checkpoint=tmp_path)
    assert not short.converged
    whole, again = fpdfp.solve_many(problems()), fpdfp.solve_many(problems(), checkpoint=tmp_path)
    assert len(asked) == 2 * whole.rounds
    assert again.x.tobytes() == whole.x.tobytes()


def test_other_runs_are_refused(tmp_path: Path) -> None:
    fpdfp.solve_many(problems(), checkpoint=tmp_path / "many")
    with pytest.raises(CheckpointError, match=r"is of a different run: problem was"):
        fpdfp.solve_many(problems(1.0 - Y), checkpoint=tmp_path / "many")
    with pytest.raises(CheckpointError, match="asked something else in exchange 2: the data, problems, their order"):
        fpdfp.solve_many(problems(weights=(0.1, 0.05)), checkpoint=tmp_path / "many")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("important")
    with pytest.raises(CheckpointError, match="holds other files"):
        fpdfp.solve_many(problems(), checkpoint=tmp_path / "other")
    damaged = tmp_path / "many" / "00001.npz"
    damaged.write_bytes(damaged.read_bytes()[:-40])
    with pytest.raises(CheckpointError, match=r"00001\.npz is not readable"):
        fpdfp.solve_many(problems(), checkpoint=tmp_path / "many")
    (tmp_path / "many" / "about.json").write_text("[]")
    with pytest.raises(CheckpointError, match="does not describe a checkpoint"):
        fpdfp.solve_many(problems(), checkpoint=tmp_path / "many")
    with pytest.raises(CheckpointError, match="cannot be used"):
        fpdfp.solve_many(problems(), checkpoint=damaged)


@pytest.mark.parametrize("what", ["path", "stability", "bootstrap_sites", "problem"])
def test_paths_go_on(what: str, tmp_path: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def find(checkpoint: Path | None) -> Any:
        if what == "problem":
            return fpdfp.path(problems()[0], alphas=6, checkpoint=checkpoint)
        site = np.arange(240) % 6
        options: dict[str, Any] = {"path": {"alphas": 6}, "stability": {"alphas": 3, "pairs": 2}}.get(
            what, {"draws": 4}
        )
        model = fpdfp.FederatedLogisticRegression(fpdfp.L1(0.02))
        return getattr(model, what)(X, Y, site, checkpoint=checkpoint, **options)

    whole = find(None)
    count = len(asked)
    plain = Evaluations.answer

    def crash(self: Any, *given: Any) -> Any:
        if len(asked) == count + 3:
            raise ConnectionError("the power is off")
        return plain(self, *given)

    monkeypatch.setattr(Evaluations, "answer", crash)
    with pytest.raises(ConnectionError):
        find(tmp_path)
    monkeypatch.setattr(Evaluations, "answer", plain)
    again = find(tmp_path)
    assert len(asked) == 2 * count
    for name, value in vars(whole).items():
        np.testing.assert_array_equal(getattr(again, name), value, err_msg=name)


def test_cross_validation_goes_on(tmp_path: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(folder: Path | None, **more: Any) -> Any:
        made = fpdfp.FederatedLogisticRegressionCV(
            cv=fpdfp.CrossValidation(3, alphas=6, scoring="auc", checkpoint=folder), **more
        )
        return made.fit(X, Y, SITE)

    whole = fit(None)
    count = len(asked)
    undo = interrupt_after(4, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path)
    undo()
    again = fit(tmp_path)
    assert len(asked) == 2 * count
    third = fit(tmp_path)
    assert len(asked) == 2 * count
    for found in (again, third):
        for name in ("coef_", "intercept_", "scores_", "alpha_", "n_iter_", "bits_up_", "bits_down_", "score_bound_"):
            np.testing.assert_array_equal(getattr(found, name), getattr(whole, name), err_msg=name)
        assert not {"checkpoint", "resume"} & set(vars(found))
    with pytest.raises(CheckpointError, match="different run"):
        fit(tmp_path, standardize=False)


def test_folds_of_rows_must_be_the_same(tmp_path: Path) -> None:
    fpdfp.FederatedLogisticRegressionCV(cv=fpdfp.CrossValidation(SITE, alphas=3, checkpoint=tmp_path)).fit(X, Y)
    with pytest.raises(CheckpointError, match="folds of rows was"):
        fpdfp.FederatedLogisticRegressionCV(
            cv=fpdfp.CrossValidation(SITE[::-1].copy(), alphas=3, checkpoint=tmp_path)
        ).fit(X, Y)


def test_data_are_recognised_where_losses_are_infinite(tmp_path: Path) -> None:
    cost = RNG.gamma(2.0, 1.0 / (2.0 + 0.3 * X[:, 0]))

    def solve(outcome: Any, checkpoint: Path | None) -> Any:
        losses = fpdfp.losses.GLM(np.column_stack([X, np.ones(240)]), outcome, SITE, "gamma", link="inverse")
        made = [fpdfp.Problem(losses, fpdfp.penalties.L1(one)) for one in (0.1, 0.01)]
        return fpdfp.solve_many(made, checkpoint=checkpoint)

    whole = solve(cost, None)
    for _ in range(2):
        again = solve(cost, tmp_path)
        assert again.x.tobytes() == whole.x.tobytes()
        assert (again.rounds, again.bits_up) == (whole.rounds, whole.bits_up)
    with pytest.raises(CheckpointError, match="different run"):
        solve(cost + 0.1, tmp_path)


def test_sites_are_not_asked_nor_paid_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.standard_normal((1200, 3)), columns=list("abc"))
    table["died"] = (table["a"] + rng.logistic(size=1200) > 0).astype(int)
    table["hospital"] = np.array(["north", "south"])[np.arange(1200) % 2]

    def fit(cohort: DeskCohort, folder: Path | None) -> Any:
        model = fpdfp.FederatedLogisticRegressionCV(cv=fpdfp.CrossValidation(3, alphas=5, checkpoint=folder))
        return model.fit(cohort, "died ~ a + b + c")

    whole_cohort, cohort = (DeskCohort(table, tmp_path / name) for name in ("one", "two"))
    try:
        whole = fit(whole_cohort, None)
        undo = interrupt_after(3, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            fit(cohort, tmp_path / "kept")
        undo()
        again = fit(cohort, tmp_path / "kept")
        assert again.scores_.tobytes() == whole.scores_.tobytes()
        assert again.coef_.tobytes() == whole.coef_.tobytes()
        for here, there in zip(cohort.desks, whole_cohort.desks, strict=True):
            spent, once = here.budget.spent, there.budget.spent
            assert spent.total == once.total
    finally:
        for desk in (*cohort.desks, *whole_cohort.desks):
            desk.close()
