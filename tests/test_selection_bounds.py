"""Upper bounds of the gaps of many problems: never below the true gaps, and near them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import losses, penalties
from fpdfp.cohorts.local import clients_of
from fpdfp.cohorts.many_points import ZERO, DualSums, Evaluations
from fpdfp.compress.fixed import EXACT
from fpdfp.errors import MessageError
from tests.test_selection import BINARY, COLUMNS, FOLD, ROWS, SITE, B, X, make
from tests.test_selection_dense import hard_cases, losses_of

SHAPES: dict[str, tuple[Any, Any]] = {
    "l1": (penalties.L1, None),
    "intercept": (lambda a: penalties.L1(a * np.r_[0.0, np.ones(COLUMNS - 1)]), None),
    "elastic net": (lambda a: penalties.ElasticNet(a / 2, a / 2), None),
    "positive": (lambda a: penalties.ElasticNet(a, 0.0, lower=0.0), None),
    "group": (lambda a: penalties.GroupL12(a, groups=np.array([0, 0, 1, 1, 2, 2])), None),
    "sparse group": (lambda a: penalties.SparseGroup(a / 2, a / 2, groups=np.array([0, 0, 1, 1, 2, 2])), None),
    "fused": (penalties.L1, B),
}
WEIGHTS = (0.2, 0.05, 0.01)


def true_gaps(problems: list[fpdfp.Problem], found: fpdfp.ManyResult) -> Any:
    """Return how far solutions are above the least objectives, relative to these."""
    pairs = [
        (one.objective(x), one.objective(fpdfp.minimize(one, tol=1e-12).x))
        for one, x in zip(problems, found.x, strict=False)
    ]
    return np.array([(own - least) / abs(own) for own, least in pairs])


@pytest.mark.parametrize("kind", ["logistic", "least squares", "poisson", "weighted"])
@pytest.mark.parametrize("shape", SHAPES)
def test_bounds_are_above_the_gaps(kind: str, shape: str) -> None:
    penalty, linop = SHAPES[shape]
    whole = make(kind)
    problems = [fpdfp.Problem(whole, penalty(a), linop, weights="samples") for a in WEIGHTS]
    for tol in (1e-2, 1e-6):
        found = fpdfp.solve_many(problems, tol=tol, certify=True)
        assert found.converged
        assert found.certified.all()
        assert (found.gap >= true_gaps(problems, found) - 1e-13).all()
        assert found.gap.max() <= 30 * tol


@pytest.mark.parametrize("l2", [0.1, "all but one"])
def test_losses_with_a_ridge(l2: Any) -> None:
    ridge = np.r_[0.0, np.full(COLUMNS - 1, 0.05)] if isinstance(l2, str) else l2
    whole = losses.LeastSquares(X, X[:, 0] + 0.1, clients=SITE, l2=ridge)
    problems = [fpdfp.Problem(whole, penalties.L1(a), weights="samples") for a in WEIGHTS]
    found = fpdfp.solve_many(problems, tol=1e-6, certify=True)
    assert found.certified.all()
    assert (found.gap >= true_gaps(problems, found) - 1e-13).all()
    assert found.gap.max() <= 1e-4


@pytest.mark.parametrize("name", hard_cases())
def test_hard_cases(name: str) -> None:
    kind, features, y, options = hard_cases()[name]
    whole = losses_of(kind, features, y, **options)
    problem = fpdfp.Problem(whole, penalties.L1(1.0), weights="samples")
    path = fpdfp.path(problem, alphas=5, ratio=1e-2, tol=1e-4, certify=True)
    assert path.certified.all()
    for alpha, x, gap in zip(path.alphas, path.coef, path.gap, strict=True):
        one = fpdfp.Problem(whole, penalties.L1(float(alpha)), weights="samples")
        own, least = one.objective(x), one.objective(fpdfp.minimize(one, tol=1e-12).x)
        assert gap >= (own - least) / abs(own) - 1e-13


@pytest.mark.parametrize("kind", ["logistic", "weighted"])
def test_rows_and_clients_left_out(kind: str) -> None:
    whole = make(kind)
    whole.folds = whole.place_rows(FOLD[np.argsort(SITE, kind="stable")])
    problem = fpdfp.Problem(whole, penalties.L1(0.02), weights="samples")
    for folds, held, rows in (
        (fpdfp.Folds(4, given=True), [0, 3], [np.flatnonzero(k != FOLD) for k in (0, 3)]),
        ([0, 1, 0], [0, 1], [np.flatnonzero(SITE == 1), np.flatnonzero(SITE != 1)]),
    ):
        found = fpdfp.solve_many([problem] * 2, folds=folds, held_out=held, tol=1e-3, certify=True)
        assert found.certified.all()
        for k, some in enumerate(rows):
            share = 1.0
            if kind == "weighted":  # the mean loss of the rows that are used is what is penalised
                weights = 1.0 + np.arange(ROWS) % 3
                mean = weights.mean() if isinstance(folds, fpdfp.Folds) else 1.0
                share = weights[some].mean() / mean if isinstance(folds, fpdfp.Folds) else 1.0
            single = fpdfp.Problem(make(kind, some), penalties.L1(0.02 * share), weights="samples")
            own = single.objective(found.x[k])
            gap = (own - fpdfp.minimize(single, tol=1e-12).objective) / own
            assert gap - 1e-13 <= found.gap[k] <= 0.05
            assert found.objective[k] == pytest.approx(own / share, rel=1e-9)


def test_where_there_is_no_bound() -> None:
    for whole in (make("cox"), losses.GLM(X, BINARY, SITE, "binomial", link="probit")):
        found = fpdfp.solve_many([fpdfp.Problem(whole, penalties.L1(0.05), weights="samples")], certify=True)
        assert not found.certified.any()
        assert np.isfinite(found.gap).all()


def ask(**changed: Any) -> DualSums:
    """Return a question about two points and a direction, with some fields changed."""
    points, units = np.array([[0.1, 0.0, 0.2], [0.0, 0.3, 0.0]]), np.full(3, ZERO, dtype=np.uint8)
    none = np.zeros(0, dtype=np.int64)
    about = Evaluations.of(
        points, points != 0, (EXACT, EXACT), np.array([-1, 1]), none, units=units, folds=fpdfp.Folds(2), rest_bits=EXACT
    )
    moves = 0.5 * (points != 0)
    question = DualSums.along(
        about, moves, wants="gap", shared=np.eye(3)[:1], steps=np.array([[0.1], [0.2]]), shrinks=np.array([0.9, 1.0])
    )
    return DualSums(**vars(question) | changed)


def test_sums_at_dual_points() -> None:
    """The gap of a scaled dual point, and its gradient, against their formulas."""
    rng = np.random.default_rng(0)
    rows, y = rng.standard_normal((40, 3)), rng.standard_normal(40)
    problem = fpdfp.Problem(losses.LeastSquares(rows, y, clients=np.arange(40) % 2), penalties.L1(1.0))
    question = ask()
    (numbers, *_), _, up, down = clients_of(problem).ask(question)
    labels = np.empty(40, dtype=np.int64)
    for client in range(2):
        labels[client::2] = fpdfp.Folds(2).draw(y[client::2])
    directions, points = question.directions(3), question.points(3)
    np.testing.assert_allclose(directions, 0.5 * (points != 0) + [[0.1, 0, 0], [0.2, 0, 0]], atol=1e-3)
    for p, (fold, scale) in enumerate(((-1, 0.9), (1, 1.0))):
        z, kept = rows @ points[p], labels != fold
        theta = scale * (z - y - rows @ directions[p])
        young = 0.5 * (z - y) ** 2 + 0.5 * theta**2 + y * theta - z * theta
        assert numbers[p, 0] == pytest.approx(young[kept].sum() / 40, rel=1e-9)
    means = clients_of(problem).ask(ask(wants="gradient", shrinks=np.zeros(0))).sums
    theta = rows @ points[1] - y - rows @ directions[1]
    np.testing.assert_allclose(means.slopes[1], (theta * (labels != 1)) @ rows / 40, atol=1e-12)
    assert up > 0
    assert down > 0


def test_rounded_gradients_are_within_their_errors() -> None:
    rng = np.random.default_rng(1)
    rows, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    problem = fpdfp.Problem(losses.LeastSquares(rows, y, clients=np.arange(60) % 3), penalties.L1(1.0))
    exact = clients_of(problem).ask(ask(wants="gradient", shrinks=np.zeros(0))).sums
    coarse = clients_of(problem).ask(ask(wants="gradient", shrinks=np.zeros(0), slope_bits=7, rest_bits=4)).sums
    apart = np.abs(exact.slopes - coarse.slopes)
    assert (apart <= coarse.errors).all()
    assert apart.max() > 1e-4


def test_damaged_questions_are_refused() -> None:
    for name, value in (
        ("wants", "rows"), ("shrinks", np.array([0.5, 1.5])), ("shrinks", np.zeros(0)), ("steps", np.zeros((1, 1))),
        ("moves", np.zeros(0, dtype=np.uint8)), ("shared", np.full((1, 3), np.nan)), ("curved", np.array([0])),
        ("asked", np.zeros((1, 1), dtype=np.uint8)), ("rest_bits", 40),
    ):  # fmt: skip
        with pytest.raises(MessageError):
            ask(**{name: value})
    with pytest.raises(MessageError, match="4 entries"):
        ask().directions(4)
    problem = fpdfp.Problem(make("cox"), penalties.L1(0.1))
    with pytest.raises(MessageError, match="conjugates"):
        clients_of(problem).ask(ask())
