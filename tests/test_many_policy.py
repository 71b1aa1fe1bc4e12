"""Questions about many points and folds at sites with a policy: what is answered, and attacks by a coordinator."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from fpdfp.cohorts.many_points import ZERO, DualSums, Evaluated, Evaluations, HeldScores, Scored, SentDuals
from fpdfp.cohorts.requests import Address, Place, Request
from fpdfp.compress.fixed import EXACT
from fpdfp.errors import Refusal
from fpdfp.federation import audit
from fpdfp.federation.guard import TOO_FEW
from fpdfp.federation.guard import RequestGuard as Desk
from fpdfp.federation.policy import Policy
from fpdfp.folds import Folds
from tests.desks import ask, close_all, make_desk
from tests.levels import at_all_levels  # noqa: F401 — each question is asked at all levels
from tests.loopback import Loopback
from tests.test_cox_estimator import DeskCohort

OPEN = Policy.allowing_everything()
#: The one client of a site, as questions name it.
EVERYONE = Address(place=Place(np.array([0]), None, 1.0, 0), clients=np.array([0]))
NO_PRODUCTS = Policy(kinds=tuple(kind for kind in Policy().kinds if kind != "products"))


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close all desks."""
    yield
    close_all()


def make_rows(n: int = 600, d: int = 4, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.normal(size=(n, d - 1)), np.ones((n, 1))], axis=1)
    return X, (X[:, 0] + rng.logistic(size=n) > 0).astype(float)


def question(points: Any, held: Any = None, folds: Folds | None = None, curved: Any = ()) -> Evaluations:
    points = np.atleast_2d(np.asarray(points, dtype=np.float64))
    held = np.full(len(points), -1) if held is None else np.asarray(held, dtype=np.int64)
    units = np.full(points.shape[1], ZERO, dtype=np.uint8)
    there = np.ones(points.shape, dtype=bool)
    numbers = np.asarray(curved, dtype=np.int64)
    return Evaluations.of(points, there, (EXACT, EXACT), held, numbers, units=units, folds=folds)


def declare(desk: Desk, problems: int = 10, plan: str = "plan") -> Any:
    return ask(desk, kind="plan", plan=plan, problems=problems, folds=5)


def many(desk: Desk, points: Any, held: Any = None, folds: Folds | None = None, curved: Any = (), **more: Any) -> Any:
    """Ask a desk about many points, and return what it says."""
    asked = question(points, held, folds, curved)
    request = Request((asked,), EVERYONE)
    sent = Evaluated(**ask(desk, request, **{"plan": "plan"} | more)[asked.name])
    return asked.add_up(sent, np.arange(len(sent.numbers)))


def held_scores(desk: Desk, points: Any, held: Any, folds: Folds, score: str, *cells: Any) -> Any:
    """Ask a desk for scores of the rows that are left out, and return the sums."""
    asked = HeldScores(question(points, held, folds), score, *cells)
    request = Request((asked,), EVERYONE)
    sent = Scored(**ask(desk, request, plan="plan")[asked.name])
    return asked.add_up(sent, np.arange(len(sent.sums))).sums


def desk_of(folder: Path, policy: Policy | None = None, rows: Any = None, problems: int = 10) -> Desk:
    X, y = rows or make_rows()
    desk = make_desk(X, y, folder, policy)
    declare(desk, problems)
    return desk


class TestAnswers:
    def test_the_sums_are_those_of_the_rows(self, tmp_path: Path) -> None:
        X, y = make_rows()
        points, folds = np.random.default_rng(1).normal(size=(3, 4)) * 0.3, Folds(5, 3, stratified=True)
        found = many(desk_of(tmp_path), points, [-1, 0, 4], folds, [1])
        labels, p = folds.draw(y), 1 / (1 + np.exp(-(X @ points.T)))
        for place, fold in enumerate([-1, 0, 4]):
            kept = labels != fold
            np.testing.assert_allclose(found.slopes[place], (p[:, place] - y)[kept] @ X[kept] / len(y), atol=1e-12)
        weights = p[:, 1] * (1 - p[:, 1])
        np.testing.assert_allclose(found.hessians[0], (X.T * weights) @ X / len(y), atol=1e-3)

    def test_what_is_counted_and_logged(self, tmp_path: Path) -> None:
        desk = make_desk(*make_rows(), tmp_path)
        assert declare(desk, 201) == {"price": 1, "problems": 201, "folds": 5}
        many(desk, np.zeros((6, 4)), [-1, 0, 1, 2, 3, 4], Folds(5), [0])
        assert list(desk.budget.spent.points.values()) == [7]  # the Hessian is at one of them
        assert desk.budget.spent.total == 1
        desk.close()
        said = [json.loads(line)["asked"] for line in (desk.folder / audit.LOG).read_text().splitlines()]
        assert said == [
            "leave for a declared path or cross-validation: 201 problems, 5 folds",
            "losses and gradients at 6 points, at 5 of them without a fold of the rows; 1 Hessians",
        ]

    def test_a_person_is_told_what_a_plan_is(self) -> None:
        from fpdfp.federation.outbox import Envelope, lines, seal

        parcel = seal(Envelope("run", 1, "north", {"reply": {"price": 7.0, "problems": 600, "folds": 5}}))
        text = "\n".join(lines(parcel))
        assert "a path or a cross-validation of so many problems and folds may begin" in text
        assert "reply/problems: 600" in text

    def test_points_without_end_cost_analyses(self, tmp_path: Path) -> None:
        desk = make_desk(*make_rows(), tmp_path, Policy(analyses=2))
        for _ in range(2):
            many(desk, np.zeros((4000, 4)))
        with pytest.raises(Refusal, match="the 2 analyses that it allows"):
            many(desk, np.zeros((4000, 4)))

    def test_hessians_are_moments(self, tmp_path: Path) -> None:
        desk = desk_of(tmp_path, NO_PRODUCTS)
        many(desk, np.zeros((1, 4)))
        with pytest.raises(Refusal, match="second moments"):
            many(desk, np.zeros((1, 4)), curved=[0])

    def test_brier_scores_are_looked_at_and_counted_as_gradients_are(self, tmp_path: Path) -> None:
        X, y = make_rows()
        folds, points = Folds(5, 3, stratified=True), np.random.default_rng(1).normal(size=(2, 4)) * 0.3
        desk = desk_of(tmp_path)
        labels = folds.draw(y)
        found = held_scores(desk, points, [0, 3], folds, "brier")
        for sums, x, fold in zip(found, points, (0, 3), strict=True):
            p, target = 1 / (1 + np.exp(-(X @ x)[labels == fold])), y[labels == fold]
            np.testing.assert_allclose(sums[:4], [len(p), len(p), ((p - target) ** 2).sum(), len(p)], rtol=1e-6)
            assert not sums[4:].any()  # what standard errors would need is not told
        assert list(desk.budget.spent.points.values()) == [2]
        with pytest.raises(Refusal, match=TOO_FEW):
            held_scores(desk, np.array([[1e4, 0.0, 0.0, 0.0]]), [0], folds, "brier")
        with pytest.raises(Refusal, match=r"fewer than 10 rows|least 10 rows"):
            held_scores(desk, np.zeros((1, 4)), [0], Folds(300, 1), "brier")
        desk.close()
        said = [json.loads(line)["asked"] for line in (desk.folder / audit.LOG).read_text().splitlines()]
        assert said[1] == "scores (brier) of the rows that are left out, at 2 points"

    @pytest.mark.parametrize("score", ["accuracy", "auc", "moments"])
    def test_counts_of_rows_at_many_points_are_refused(self, score: str, tmp_path: Path) -> None:
        """Between two points at which a count differs by one a row changes sides: a bisection finds where it is."""
        folds = Folds(5, 3, stratified=True)
        cells = (np.zeros(1), np.ones(1)) if score == "auc" else ()
        with pytest.raises(Refusal, match=r"counts at many points tell single ones; use model\.evaluate"):
            held_scores(desk_of(tmp_path / "strict"), np.zeros((1, 4)), [0], folds, score, *cells)
        assert held_scores(desk_of(tmp_path / "open", OPEN), np.zeros((1, 4)), [0], folds, score, *cells).size

    def test_bounds_of_gaps(self, tmp_path: Path) -> None:
        """Dual points near points are treated as these: counted, logged, looked at; and as second moments."""

        def bounds(desk: Desk, points: Any, folds: Folds | None = None) -> Any:
            about = question(points, [0] if folds else None, folds)
            asked = DualSums.along(about, np.zeros((1, 4)), shared=np.zeros((0, 4)), steps=np.zeros((1, 0)),
                                   shrinks=np.ones(1))  # fmt: skip
            request = Request((asked,), EVERYONE)
            return SentDuals(**ask(desk, request, plan="plan")[asked.name])

        desk = desk_of(tmp_path / "default")
        assert 0 <= bounds(desk, np.full((1, 4), 0.1), Folds(5)).numbers[0, 0] < 1e-20
        assert list(desk.budget.spent.points.values()) == [1]
        with pytest.raises(Refusal, match=TOO_FEW):
            bounds(desk, [[1e4, 0.0, 0.0, 0.0]])
        with pytest.raises(Refusal, match="at least 10 rows"):
            bounds(desk, np.zeros((1, 4)), Folds(300))
        desk.close()
        said = [json.loads(line)["asked"] for line in (desk.folder / audit.LOG).read_text().splitlines()]
        assert "sums for error bounds at 1 points, at 1 of them without a fold of the rows" in said
        with pytest.raises(Refusal, match="second moments"):
            bounds(desk_of(tmp_path / "moments", NO_PRODUCTS), np.zeros((1, 4)))

    def test_folds_of_the_rows_themselves(self, tmp_path: Path) -> None:
        with pytest.raises(AssertionError, match="folds from 0 to 1 of their own"):
            many(desk_of(tmp_path), np.zeros((1, 4)), [0], Folds(2, given=True))


class TestAttacks:
    def test_folds_of_single_rows(self, tmp_path: Path) -> None:
        """What a fold takes off a gradient is the sum over it: with as many folds as rows, each row."""
        X, y = make_rows(300)
        folds, points = Folds(300), np.zeros((301, 4))

        def attack(desk: Desk) -> Any:
            slopes = many(desk, points, np.arange(-1, 300), folds).slopes
            singles = slopes[0] - slopes[1:]
            return singles / singles[:, -1:]

        rows = attack(desk_of(tmp_path / "open", OPEN, (X, y), 300))
        np.testing.assert_allclose(rows[folds.draw(y)], X, atol=1e-6)
        with pytest.raises(Refusal, match="at least 10 rows"):
            attack(desk_of(tmp_path / "default", None, (X, y), 300))

    def test_steep_planes_in_one_question(self, tmp_path: Path) -> None:
        X, y = make_rows(2000)
        direction = np.array([1.0, -0.5, 0.3, 0.0])
        forms = np.sort(X @ direction)
        cuts = (forms[1000:1003] + forms[1001:1004]) / 2
        points = 1e9 * (direction - cuts[:, None] * np.eye(4)[3])

        def attack(desk: Desk) -> Any:
            return 2000 * np.diff(many(desk, points).slopes, axis=0)

        found = -attack(desk_of(tmp_path / "open", OPEN, (X, y)))
        assert all((np.abs(X - row).max(axis=1) < 1e-4).any() for row in found)
        desk = desk_of(tmp_path / "default", None, (X, y))
        with pytest.raises(Refusal, match=TOO_FEW):
            attack(desk)
        assert desk.budget.spent.refusals == 1

    def test_one_refused_point_hides_all(self, tmp_path: Path) -> None:
        desk = desk_of(tmp_path)
        steep = np.full(4, 1e6)
        for _ in range(30):
            with pytest.raises(Refusal, match=TOO_FEW):
                many(desk, [np.zeros(4), steep])
        with pytest.raises(Refusal, match="until its owner has looked"):
            many(desk, np.zeros((1, 4)))

    def test_a_plane_is_too_steep_for_a_fold(self, tmp_path: Path) -> None:
        """Of 2,000 rows enough share the transition, and a fifth of them in each fold: these could be separated."""
        X, y = make_rows(2000)
        point = 40.0 * np.array([1.0, 0.0, 0.0, 0.0])
        desk = desk_of(tmp_path, None, (X, y))
        many(desk, [point], [-1], Folds(5))
        with pytest.raises(Refusal, match=TOO_FEW):
            many(desk, [point], [0], Folds(5))

    def test_a_change_of_one_row_in_a_fold(self, tmp_path: Path) -> None:
        """Five rows change, each in a fold of its own: over all rows that is allowed, and over a fold it is one row."""
        rng = np.random.default_rng(0)
        folds = Folds(5)
        y = (rng.random(1000) < 0.5).astype(float)
        labels = folds.draw(y)
        few = np.array([np.flatnonzero(labels == fold)[3] for fold in range(5)])
        X = np.stack([rng.random(1000) < 0.5, np.zeros(1000), rng.normal(size=1000), np.ones(1000)], axis=1)
        X[:, 1] = X[:, 0]
        X[few, 1] = 1.0 - X[few, 0]
        points = [np.zeros(4), np.array([1e-3, -1e-3, 0.0, 0.0])]
        desk = desk_of(tmp_path / "all", None, (X, y))
        many(desk, points, [-1, -1])

        def attack(desk: Desk) -> Any:
            slopes = many(desk, [*points, *points], [-1, -1, 0, 0], folds).slopes
            return (slopes[1] - slopes[3]) - (slopes[0] - slopes[2])

        change = attack(desk_of(tmp_path / "without", Policy(off=frozenset({"folds"})), (X, y)))
        np.testing.assert_allclose(change / change[3], X[few[0]], atol=1e-4)
        with pytest.raises(Refusal, match="fewer than 3 rows from all others in a fold"):
            attack(desk)

    def test_a_rare_level_in_a_fold(self, tmp_path: Path) -> None:
        """Nine rows have a level, which is enough for a site; one or two of them are in each fold."""
        X, y = make_rows(500)
        X[:, 1] = np.arange(500) < 9
        desk = desk_of(tmp_path, None, (X, y))
        many(desk, np.zeros((1, 4)))
        with pytest.raises(Refusal, match="in a fold; use fewer folds"):
            many(desk, np.zeros((1, 4)), [0], Folds(5))

    def test_as_many_folds_as_rows_tell_single_rows(self, tmp_path: Path) -> None:
        """Sums over folds of many divisions are a linear system, whose solution is what each row has."""
        X, y = make_rows(100)

        def attack(desk: Desk, seeds: int) -> Any:
            masks, sums = [], []
            for seed in range(seeds):
                folds = Folds(5, seed)
                slopes = many(desk, np.zeros((6, 4)), np.arange(-1, 5), folds).slopes
                masks += [folds.draw(y) == fold for fold in range(5)]
                sums += [100 * (slopes[0] - one) for one in slopes[1:]]
            found = np.linalg.lstsq(np.array(masks, dtype=float), np.array(sums), rcond=None)[0]
            return np.abs(found / found[:, -1:] - X).max()

        assert attack(desk_of(tmp_path / "without", Policy(off=frozenset({"folds"})), (X, y)), 40) < 1e-6
        desk = desk_of(tmp_path / "default", None, (X, y))
        with pytest.raises(Refusal, match="as many folds as it allows"):
            attack(desk, 40)
        desk.close()
        # A restart does not forget them, and what was answered is answered again.
        again = make_desk(X, y, tmp_path / "default")
        many(again, np.zeros((1, 4)), [0], Folds(5, 1))
        for model in ({}, {"l2": 0.5}):
            with pytest.raises(Refusal, match="as many folds as it allows"):
                many(again, np.zeros((1, 4)), [0], Folds(5, 30), model=model)


def table(n: int, d: int = 5) -> tuple[pd.DataFrame, str]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    X[:, 1] += X[:, 0]
    frame = pd.DataFrame(X, columns=[f"v{j}" for j in range(d)])
    frame["died"] = (X[:, 0] + 0.5 * X[:, 2] + rng.logistic(size=n) > 0).astype(int)
    frame["dose"] = X @ np.linspace(1, 0, d) + rng.normal(size=n)
    frame["time"], frame["event"] = rng.exponential(np.exp(-X[:, 0])).round(3) + 0.001, rng.random(n) < 0.8
    frame["stage"] = np.array(["i", "ii", "iii"])[np.digitize(X[:, 0] + rng.logistic(size=n), [-1, 1])]
    frame["hospital"] = np.array(["east", "north", "south"])[np.arange(n) % 3]
    return frame, " + ".join(f"v{j}" for j in range(d))


@pytest.mark.parametrize(
    ("kind", "response", "options"),
    [
        ("FederatedLogisticRegressionCV", "died", {"penalty": "graph", "standardize": True}),
        ("FederatedLogisticRegressionCV", "died", {"folds": "sites"}),
        ("FederatedLinearRegressionCV", "dose", {}),
        ("FederatedGLMCV", "died", {"family": "poisson"}),
        ("FederatedCoxRegressionCV", "Surv(time, event)", {}),
        ("FederatedLogisticRegressionCV", "stage", {"scoring": "brier"}),
        ("FederatedMultinomialRegressionCV", "stage", {"penalty": "elasticnet"}),
        ("FederatedOrdinalRegressionCV", "stage", {"order": ["i", "ii", "iii"]}),
    ],
)
def test_sites_with_the_default_policy_give_the_same_bits(
    kind: str, response: str, options: Any, tmp_path: Path
) -> None:
    frame, terms = table(1500)
    choice = {name: options[name] for name in ("folds", "scoring") if name in options}
    given = {name: value for name, value in options.items() if name not in choice}
    given["cv"] = fpdfp.CrossValidation(**{"folds": 3, "alphas": 5, "ratio": 0.05, "tol": 1e-3} | choice)

    def fit(*data: Any, **more: Any) -> Any:
        return getattr(fpdfp, kind)(**given).fit(*data, **more)

    here = fit(frame, f"{response} ~ {terms}", groups="hospital")
    cohort = DeskCohort(frame, tmp_path)
    there = fit(cohort, f"{response} ~ {terms}")
    for desk in cohort.desks:
        desk.close()
    for name in ("scores_", "alphas_"):
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name))
    np.testing.assert_array_equal(there.path_.coef, here.path_.coef)
    # The fit at the end is that of the estimator without a choice. For Cox sites do not tell whether losses are at
    # least 0, so that it may end a round earlier or later.
    rtol, atol = (1e-5, 1e-7) if "Cox" in kind else (0.0, 0.0)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol, atol)
    np.testing.assert_array_equal(getattr(there, "intercept_", 0.0), getattr(here, "intercept_", 0.0))
    assert (there.alpha_, there.path_.bits_up, there.path_.bits_down) == (
        here.alpha_, here.path_.bits_up, here.path_.bits_down,
    )  # fmt: skip


@pytest.mark.parametrize(("sites", "ridge"), [(1, 0.0), (3, 0.1)])
def test_clients_at_sites_give_the_same_bits(sites: int, ridge: float) -> None:
    X, y = make_rows(400)
    names = [f"v{j}" for j in range(4)]
    losses = fpdfp.losses.Logistic(X, y, clients=np.arange(400) % 5, l2=ridge, feature_names=names)
    here = fpdfp.Problem(losses, fpdfp.penalties.L1(1.0))
    engine = Loopback(here, sites)
    there = fpdfp.Problem(engine.losses(), fpdfp.penalties.L1(1.0))

    def solve(problem: Any) -> Any:
        problems = [
            fpdfp.Problem(problem.losses, fpdfp.penalties.L1(weight)) for _ in range(4) for weight in (0.1, 0.03, 0.01)
        ]
        held = [fold for fold in (None, 0, 1, 2) for _ in range(3)]
        return fpdfp.solve_many(problems, folds=3, held_out=held, progress=False)

    expected, found = solve(here), solve(there)
    for field in dataclasses.fields(expected):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name))


def test_six_hundred_problems_of_ten_features_are_possible_by_default(tmp_path: Path) -> None:
    """The numbers of a cross-validation as it was counted: 700 points in 13 exchanges, at a site of 2,000 rows."""
    X, y = make_rows(2000, 11)
    desk = make_desk(X, y, tmp_path)
    assert declare(desk, 600)["price"] == 1
    rng, folds = np.random.default_rng(0), Folds(5, 0, stratified=True)
    for count in (6, 13, 12, 11, 8, 65, 46, 150, 7, 294, 77):
        many(desk, 0.3 * rng.normal(size=(count, 11)), np.arange(count) % 6 - 1, folds, [0])
    assert desk.budget.spent.refusals == 0
