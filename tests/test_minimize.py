"""`minimize` against other solvers and closed forms."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
import scipy.sparse

import fpdfp
from fpdfp.errors import AccuracyWarning
from fpdfp.pooled import lagrangian, wide, working_set
from fpdfp.quadratic import newton
from tests import helpers


def cvxpy_objective(problem: fpdfp.Problem, X: Any, y: Any, owner: Any, l2: float, regulariser: Any) -> float:
    """Minimise with cvxpy and Clarabel, an interior-point method that shares no code with ours."""
    import cvxpy as cp

    x = cp.Variable(X.shape[1])
    clients = np.unique(owner)
    smooth = 0
    for client in clients:
        rows = owner == client
        if isinstance(problem.losses, fpdfp.losses.Logistic):
            fit = cp.sum(cp.logistic(-cp.multiply(y[rows], X[rows] @ x)))
        else:
            fit = cp.sum_squares(X[rows] @ x - y[rows]) / 2
        smooth = smooth + fit / (rows.sum() * len(clients))
    objective = smooth + l2 / 2 * cp.sum_squares(x)
    penalty, constraints = regulariser(cp, x)
    model = cp.Problem(cp.Minimize(objective + penalty), constraints)
    settings = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
    return float(model.solve(solver=cp.CLARABEL, **settings))


def test_graph_guided_logistic_regression_agrees_with_clarabel() -> None:
    X, y, owner = helpers.classification()
    B = helpers.graph(12)
    problem = helpers.graph_guided()
    best = fpdfp.minimize(problem, tol=1e-10)
    other = cvxpy_objective(problem, X, y, owner, 0.05, lambda cp, x: (0.02 * cp.norm1(B @ x), []))
    assert best.objective == pytest.approx(other, rel=1e-8, abs=1e-8)
    assert best.certificate.relative_gap is not None
    assert best.certificate.relative_gap is not None
    assert best.certificate.relative_gap <= 1e-10


REGULARISERS: dict[str, tuple[fpdfp.penalties.Penalty, Any, Any]] = {
    "l1": (fpdfp.penalties.L1(0.1), None, lambda cp, x: (0.1 * cp.norm1(x), [])),
    "groups": (
        fpdfp.penalties.GroupL12(0.1, groups=np.arange(12) // 3),
        None,
        lambda cp, x: (0.1 * sum(cp.norm2(x[3 * k : 3 * k + 3]) for k in range(4)), []),
    ),
    "fused": (
        fpdfp.penalties.L1(0.05),
        fpdfp.linops.Difference(12),
        lambda cp, x: (0.05 * cp.norm1(cp.diff(x)), []),
    ),
    "box": (fpdfp.penalties.Box(-0.1, 0.2), None, lambda cp, x: (0, [x >= -0.1, x <= 0.2])),
    "non-negative": (fpdfp.penalties.NonNegative(), None, lambda cp, x: (0, [x >= 0])),
}


@pytest.mark.parametrize("name", REGULARISERS)
@pytest.mark.parametrize("kind", [fpdfp.losses.Logistic, fpdfp.losses.LeastSquares])
def test_every_penalty_agrees_with_clarabel(name: str, kind: Any) -> None:
    penalty, linop, regulariser = REGULARISERS[name]
    X, y, owner = helpers.classification()
    problem = fpdfp.Problem(kind(X, y, clients=owner, l2=0.01), penalty, linop)
    best = fpdfp.minimize(problem, tol=1e-10)
    assert best.converged
    other = cvxpy_objective(problem, X, y, owner, 0.01, regulariser)
    assert best.objective == pytest.approx(other, rel=1e-8, abs=1e-8)


def test_isotropic_total_variation_agrees_with_clarabel() -> None:
    import cvxpy as cp

    generator = np.random.default_rng(0)
    noisy = np.kron(np.array([[0.0, 1.0], [1.0, 0.0]]), np.ones((3, 4))) + 0.2 * generator.standard_normal((6, 8))
    losses = fpdfp.losses.OperatorLeastSquares([fpdfp.linops.Identity((6, 8))], [noisy], scale="sum")
    linop = fpdfp.linops.Gradient((6, 8))
    problem = fpdfp.Problem(losses, fpdfp.penalties.GroupL12(0.3, axis=0), linop)
    best = fpdfp.minimize(problem, tol=1e-9)

    matrix = np.stack([linop.apply(e).ravel() for e in np.eye(48).reshape(48, 6, 8)], axis=1)
    x = cp.Variable(48)
    gradient = cp.reshape(matrix @ x, (2, 48), order="C")
    model = cp.Problem(cp.Minimize(cp.sum_squares(x - noisy.ravel()) / 2 + 0.3 * cp.sum(cp.norm2(gradient, axis=0))))
    model.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    assert best.objective == pytest.approx(float(model.value), rel=1e-8)
    np.testing.assert_allclose(best.x.ravel(), x.value, atol=1e-4)


def test_identity_lasso_in_closed_form() -> None:
    b = np.array([3.0, -0.05, 0.4, -2.0])
    losses = fpdfp.losses.OperatorLeastSquares([np.eye(4)], [b], scale="sum")
    best = fpdfp.minimize(fpdfp.Problem(losses, fpdfp.penalties.L1(0.5)))
    np.testing.assert_allclose(best.x, [2.5, 0.0, 0.0, -1.5], atol=1e-9)


def test_without_strong_convexity_there_is_a_gap_too() -> None:
    X, y, owner = helpers.classification(rows=4, clients=2, d=20)
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(X, y, clients=owner), fpdfp.penalties.L1(0.1))
    best = fpdfp.minimize(problem, tol=1e-10)
    assert best.converged
    assert best.certificate.relative_gap is not None
    assert best.certificate.relative_gap <= 1e-10
    assert best.certificate.residual.norm < 1e-8
    other = cvxpy_objective(problem, X, y, owner, 0.0, lambda cp, x: (0.1 * cp.norm1(x), []))
    assert best.objective == pytest.approx(other, rel=1e-8)


@pytest.mark.parametrize("name", ["graph-guided", "fused", "group lasso", "softmax", "TV and non-negative"])
def test_conjugate_gradients_reach_what_factorisation_reaches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = fpdfp.minimize(helpers.zoo()[name], tol=1e-10)
    monkeypatch.setattr(newton, "DENSE_COLUMNS", 0)
    iterative = fpdfp.minimize(helpers.zoo()[name], tol=1e-10)
    assert iterative.objective == pytest.approx(dense.objective, rel=1e-9)


@pytest.mark.parametrize("mean", [10.0, 1000.0])
def test_features_far_from_zero_without_a_ridge(mean: float) -> None:
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((120, 20)) + mean, np.where(rng.random(120) < 0.5, 1.0, -1.0)
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y), fpdfp.penalties.L1(1e-3))
    best = fpdfp.minimize(problem, tol=1e-9)
    assert best.converged
    other = cvxpy_objective(problem, X, y, np.zeros(120, dtype=int), 0.0, lambda cp, x: (1e-3 * cp.norm1(x), []))
    assert best.objective <= other * (1 + 1e-7)


def test_losses_without_a_bound_are_stationary_and_not_converged() -> None:
    losses = fpdfp.losses.Custom(
        value=lambda i, x: float(np.logaddexp(x, -x).sum()),
        gradient=lambda i, x: np.tanh(x),
        n_clients=1, shape=(3,), lipschitz=1.0,
    )  # fmt: skip
    best = fpdfp.minimize(fpdfp.Problem(losses, fpdfp.penalties.Zero()), x0=np.ones(3))
    assert (best.converged, best.stationary) == (False, True)
    assert best.certificate.gap is None


def test_an_unreachable_tolerance_is_told() -> None:
    with pytest.warns(AccuracyWarning, match="instead of tol=1e-30"):
        best = fpdfp.minimize(helpers.graph_guided(), tol=1e-30)
    assert not best.converged
    assert best.certificate.relative_gap is not None
    assert best.certificate.relative_gap < 1e-12


def test_degenerate_data() -> None:
    X, y, owner = helpers.classification()
    best = fpdfp.minimize(fpdfp.Problem(fpdfp.losses.LeastSquares(0 * X, y), fpdfp.penalties.L1(0.1)))
    np.testing.assert_array_equal(best.x, np.zeros(12))
    single = fpdfp.losses.Logistic(X.astype(np.float32), y, clients=owner, l2=0.05)
    with pytest.warns(AccuracyWarning):
        rough = fpdfp.minimize(fpdfp.Problem(single, fpdfp.penalties.L1(0.02)))
    assert rough.newton_steps < 500
    exact = fpdfp.minimize(fpdfp.Problem(fpdfp.losses.Logistic(X, y, clients=owner, l2=0.05), fpdfp.penalties.L1(0.02)))
    assert rough.objective == pytest.approx(exact.objective, rel=1e-5)


def test_single_precision_ends_where_rounding_does() -> None:
    # The augmented Lagrangian has a smaller gap, but no entry of its x is zero, and 2,000 features take it minutes.
    X, y = np.random.default_rng(0).standard_normal((300, 40)), np.arange(300) % 7.0
    X[:, 0] += y
    exact, rough = (fpdfp.losses.LeastSquares(X, y, dtype=dtype) for dtype in (np.float64, np.float32))
    with pytest.warns(AccuracyWarning):
        found = fpdfp.minimize(fpdfp.Problem(rough, fpdfp.penalties.L1(0.2)))
    best = fpdfp.minimize(fpdfp.Problem(exact, fpdfp.penalties.L1(0.2)))
    np.testing.assert_array_equal(found.x != 0, best.x != 0)
    assert 0 < np.count_nonzero(best.x) < 40
    assert found.certificate.relative_gap is not None
    assert 1e-10 < found.certificate.relative_gap < 1e-6


def test_a_warm_start_is_used() -> None:
    problem = helpers.graph_guided()
    cold = fpdfp.minimize(problem)
    warm = fpdfp.minimize(problem, x0=cold.x)
    assert warm.objective == pytest.approx(cold.objective, rel=1e-10)
    assert warm.newton_steps <= cold.newton_steps


def test_the_text_says_what_was_reached() -> None:
    text = str(fpdfp.minimize(helpers.graph_guided()))
    assert "objective" in text
    assert "relative gap" in text


@pytest.mark.parametrize("tol", [0.5, 0.1, 1e-2, 1e-6])
def test_a_loose_tolerance_is_one_of_the_gap(tol: float) -> None:
    # The first iterates have no gap here, and a residual of 0.1 went with six times the least objective.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((14, 29)) + 3 * rng.standard_normal((14, 1))
    y = X @ np.repeat([1.0, 0, -1], [10, 10, 9]) + 0.3 * rng.standard_normal(14)
    weight = 0.01 * float(np.abs(X.T @ y / 14).max())
    linop = fpdfp.linops.Difference(29)
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(X, y), fpdfp.penalties.L1(weight), linop)
    least = fpdfp.minimize(problem, tol=1e-10).objective
    best = fpdfp.minimize(problem, tol)
    assert best.converged
    assert best.certificate.gap is not None
    assert best.objective - least <= best.certificate.gap <= tol * best.objective


def test_a_residual_without_a_gap_must_be_small() -> None:
    losses = fpdfp.losses.Custom(
        value=lambda i, x: float((np.logaddexp(x, -x) - 0.5 * x).sum()),
        gradient=lambda i, x: np.tanh(x) - 0.5,
        n_clients=1, shape=(3,), lipschitz=1.0,
    )  # fmt: skip
    best = fpdfp.minimize(fpdfp.Problem(losses, fpdfp.penalties.Zero()), tol=0.5)
    assert best.stationary
    np.testing.assert_allclose(best.x, np.arctanh(0.5), rtol=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_limits_are_kept_with_fewer_rows_than_features(seed: int) -> None:
    # The least objective may be 0, where every gap is large beside it.
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((8, 24)), rng.standard_normal(8) * rng.choice([0.3, 1, 3])
    best = fpdfp.minimize(fpdfp.Problem(fpdfp.losses.LeastSquares(X, y), fpdfp.penalties.Box(-0.1, 0.3)), tol=1e-6)
    assert best.converged
    assert best.certificate.violation == 0
    assert best.x.min() >= -0.1
    assert best.x.max() <= 0.3


@pytest.mark.parametrize("linop", [None, fpdfp.linops.Difference(6)], ids=["signs", "order"])
@pytest.mark.parametrize("seed", range(4))
def test_features_that_are_the_same_with_constraints(seed: int, linop: Any) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((60, 6)), np.where(rng.random(60) < 0.5, 1.0, -1.0)
    X[:, 0] = X[:, -1]
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y), fpdfp.penalties.NonNegative(), linop)
    best = fpdfp.minimize(problem, tol=1e-8)
    assert best.converged

    def constrain(cp: Any, x: Any) -> tuple[Any, list[Any]]:
        return 0, [(x if linop is None else cp.diff(x)) >= 0]

    other = cvxpy_objective(problem, X, y, np.zeros(60, dtype=int), 0.0, constrain)
    assert best.objective == pytest.approx(other, rel=1e-7)
    assert best.certificate.violation <= (0 if linop is None else 1e-7)


def test_constraints_at_a_solution_of_zero() -> None:
    # Beside ‖Bx‖, which is rounding there, every violation is large.
    for linop in (None, fpdfp.linops.Difference(6), np.eye(6) + np.eye(6, k=1)):
        losses = fpdfp.losses.LeastSquares(np.eye(6), -np.arange(1.0, 7.0))
        best = fpdfp.minimize(fpdfp.Problem(losses, fpdfp.penalties.NonNegative(), linop))
        assert best.converged
        assert best.certificate.violation <= 1e-9


def test_what_was_not_reached_is_named() -> None:
    problem = helpers.zoo()["non-negative"]
    certificate = problem.certificate(fpdfp.minimize(problem).x)

    def compare(gap: float | None, violation: float) -> lagrangian.Reached:
        iterate = lagrangian.Iterate(
            certificate.v, certificate.v, certificate._replace(gap=gap, scale=1.0), 1e-3, violation
        )
        return iterate.compare(1e-2, 1e-6)

    # Violations are in units of what rounding can do.
    assert compare(1e-18, 2.0) == ("violation of constraints", 2.0, 1.0)
    assert compare(None, 2.0) == ("violation of constraints", 2.0, 1.0)
    assert compare(0.5, 0.1) == ("duality gap", 0.5, 1e-2)
    assert compare(1e-3, 1.0).enough
    assert compare(None, 0.0) == ("residual", 1e-3, 1e-6)


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
@pytest.mark.parametrize("seed", range(12))
def test_a_converged_point_satisfies_the_constraints(seed: int, tol: float) -> None:
    # B has more rows than columns for some seeds, so that only x = 0 is allowed, and columns of very different sizes.
    rng = np.random.default_rng(seed)
    rows, count = int(rng.integers(15, 60)), int(rng.integers(2, 15))
    units = 10.0 ** rng.uniform(-6, 6, count) if seed % 3 == 0 else np.ones(count)
    X = rng.standard_normal((rows, count)) * units
    y = X @ (rng.standard_normal(count) / units) + rng.standard_normal(rows)
    losses = (
        fpdfp.losses.Logistic(X, (y > 0) * 1.0, np.arange(rows) % 3)
        if seed % 2
        else fpdfp.losses.LeastSquares(X, y, np.arange(rows) % 3, l2=1e-3)
    )
    penalty = fpdfp.penalties.NonNegative() if seed % 4 < 2 else fpdfp.penalties.Box(-0.3, 0.2)
    linop = rng.standard_normal((int(rng.integers(1, 2 * count)), count))
    problem = fpdfp.Problem(losses, penalty, linop)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        best = fpdfp.minimize(problem, tol=tol)
    if best.converged:
        assert best.certificate.violation == 0
        assert problem.objective(best.x) == pytest.approx(best.objective, rel=1e-12)
    else:
        assert seed % 3 == 0


def test_equalities_hold_up_to_rounding() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 8)), rng.standard_normal(30)
    linop, right = rng.standard_normal((3, 8)), rng.standard_normal(3)
    best = fpdfp.minimize(fpdfp.Problem(fpdfp.losses.LeastSquares(X, y), fpdfp.penalties.Box(right, right), linop))
    assert best.converged
    np.testing.assert_allclose(linop @ best.x, right, rtol=0, atol=1e-13)
    # The same by elimination.
    inside = np.linalg.svd(linop)[2][3:].T
    start = np.linalg.pinv(linop) @ right
    exact = start + inside @ np.linalg.lstsq(X @ inside, y - X @ start, rcond=None)[0]
    np.testing.assert_allclose(best.x, exact, atol=1e-5)


def test_limits_are_kept_by_conjugate_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newton, "DENSE_COLUMNS", 0)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 150))
    y = X @ np.sort(rng.standard_normal(150)) + rng.standard_normal(100)
    losses = fpdfp.losses.LeastSquares(X, y, l2=1e-1)
    best = fpdfp.minimize(fpdfp.Problem(losses, fpdfp.penalties.NonNegative(), fpdfp.linops.Difference(150)), tol=1e-3)
    assert best.converged
    assert np.diff(best.x).min() >= -1e-13


def coefficient_map(side: int, rows: int, seed: int = 0, **options: Any) -> Any:
    """Logistic regression on smooth images, with an anisotropic total variation and an l1 norm of the coefficients."""
    rng = np.random.default_rng(seed)
    shape = (side,) * 3
    truth = np.zeros(shape)
    truth[side // 4 : side // 2, side // 4 : side // 2, side // 4 : side // 2] = 1.0
    X = np.stack([scipy.ndimage.gaussian_filter(rng.standard_normal(shape), 1.5).ravel() for _ in range(rows)])
    X /= X.std()
    forms = X @ truth.ravel()
    y = (2.0 * forms / forms.std() + rng.logistic(size=rows) > 0) * 1.0
    along = scipy.sparse.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(side - 1, side))
    eye = scipy.sparse.eye_array(side)
    parts = [[along, eye, eye], [eye, along, eye], [eye, eye, along]]
    differences = [scipy.sparse.kron(scipy.sparse.kron(a, b), c) for a, b, c in parts]
    linop = scipy.sparse.vstack([*differences, 0.5 * scipy.sparse.eye_array(side**3)]).tocsr()
    losses = fpdfp.losses.Logistic(X, y, np.arange(rows) % 5, **options)
    return fpdfp.Problem(losses, fpdfp.penalties.L1(2e-4), linop)


@pytest.mark.parametrize("l2", [0.0, 1e-3], ids=["no ridge", "ridge"])
def test_a_map_with_more_features_than_rows_is_certified(l2: float) -> None:
    problem = coefficient_map(12, 60, l2=l2)
    exact = fpdfp.minimize(problem, tol=1e-9)
    assert exact.converged
    for tol in (1e-3, 1e-6):
        best = fpdfp.minimize(problem, tol=tol)
        assert best.converged
        assert best.objective <= exact.objective * (1.0 + tol)
        assert best.certificate.gap is not None
        assert best.objective - exact.objective <= best.certificate.gap <= tol * best.objective
        again = problem.certificate(best.x, best.certificate.v)
        assert again.gap is not None
    assert exact.newton_steps <= 20_000
    assert fpdfp.minimize(problem, tol=1e-3).newton_steps <= 0.5 * exact.newton_steps


def test_a_map_with_an_intercept_is_certified() -> None:
    problem = coefficient_map(12, 60)
    X = np.hstack([problem.losses._rows.X, np.ones((60, 1))])
    linop = scipy.sparse.hstack([problem.linop.matrix, scipy.sparse.csr_array((problem.linop.size_out, 1))])
    losses = fpdfp.losses.Logistic(X, problem.losses._rows.y)
    whole = fpdfp.Problem(losses, problem.penalty, linop.tocsr())
    best = fpdfp.minimize(whole, tol=1e-3)
    assert best.converged
    gap = whole.certificate(best.x, best.certificate.v).gap
    assert gap is not None
    assert gap <= 1e-3 * best.objective
    assert best.objective <= fpdfp.minimize(problem, tol=1e-3).objective * (1 + 1e-3)


def test_a_map_is_solved_as_other_ways_solve_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of this size Newton systems can be factorised, so that both ways are open.
    problem = coefficient_map(6, 40)
    newton_way = fpdfp.minimize(problem, tol=1e-9)
    monkeypatch.setattr(wide, "has_newton_systems", lambda linop: False)
    for rows in ("dense", "sparse", "single"):
        X = problem.losses._rows.X
        kind = {"dense": X, "sparse": scipy.sparse.csr_array(X), "single": X.astype(np.float32)}[rows]
        losses = fpdfp.losses.Logistic(kind, problem.losses._rows.y)
        primal_dual = fpdfp.minimize(fpdfp.Problem(losses, problem.penalty, problem.linop), tol=1e-5)
        assert primal_dual.converged
        assert primal_dual.objective == pytest.approx(newton_way.objective, rel=2e-5)


def test_least_squares_and_groups_of_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 64)), rng.standard_normal(30)
    linop = fpdfp.linops.Compose(fpdfp.linops.Difference(64), fpdfp.linops.Identity((64,)))
    penalty = fpdfp.penalties.GroupL12(0.05, groups=np.arange(63) // 3)
    ridge = np.where(np.arange(64) == 0, 0.0, 0.1)
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(X, y, l2=ridge), penalty, linop)
    newton_way = fpdfp.minimize(problem, tol=1e-9)
    monkeypatch.setattr(wide, "has_newton_systems", lambda linop: False)
    assert wide.is_wide(problem)
    primal_dual = fpdfp.minimize(problem, tol=1e-6)
    assert primal_dual.converged
    assert primal_dual.objective == pytest.approx(newton_way.objective, rel=2e-6)


def draw_sparse(rows: int, features: int, entries: int = 15) -> tuple[Any, np.ndarray]:
    """Draw rows with few entries, and labels that a tenth of the features explain."""
    rng = np.random.default_rng(0)
    places = np.repeat(np.arange(rows), entries), rng.integers(0, features, rows * entries)
    X = scipy.sparse.coo_array((rng.standard_normal(rows * entries), places), shape=(rows, features)).tocsr()
    x = np.zeros(features)
    x[rng.choice(features, features // 10, replace=False)] = 3 * rng.standard_normal(features // 10)
    return X, (rng.random(rows) < 1 / (1 + np.exp(-(X @ x)))) * 1.0


@pytest.mark.parametrize("l2", [0.0, 1e-3])
@pytest.mark.parametrize("kind", [fpdfp.losses.Logistic, fpdfp.losses.LeastSquares])
def test_sparse_rows_have_sparse_solutions(kind: Any, l2: float) -> None:
    # More coefficients than a Hessian is made of are not 0.
    X, y = draw_sparse(5000, 20_000)
    losses = kind(X, y, l2=l2)
    weight = float(np.abs(losses.gradient(np.zeros(20_000), np.ones(1))).max()) / 10
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(weight))
    best = fpdfp.minimize(problem, tol=1e-9)
    assert best.converged
    assert 1000 < np.count_nonzero(best.x) < 10_000
    # The optimality condition, coordinate by coordinate.
    slope = problem.gradient(best.x)
    there = best.x != 0
    np.testing.assert_allclose(slope[there], -weight * np.sign(best.x[there]), rtol=1e-4)
    assert np.abs(slope[~there]).max() <= weight * (1 + 1e-4)


def test_sparse_columns_and_a_hessian_have_the_same_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = draw_sparse(600, 2000)
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y), fpdfp.penalties.L1(5e-4))
    by_column = fpdfp.minimize(problem, tol=1e-10)
    monkeypatch.setattr(working_set, "SWEEPS", 10**9)
    with_hessian = fpdfp.minimize(problem, tol=1e-10)
    assert by_column.converged
    assert with_hessian.converged
    np.testing.assert_allclose(by_column.x, with_hessian.x, atol=1e-6)
    assert np.array_equal(by_column.x == 0, with_hessian.x == 0)


@pytest.mark.parametrize("weight", [0.0, 0.02])
@pytest.mark.parametrize("family", ["poisson", "binomial", "gaussian"])
def test_families_take_newton_steps_on_working_sets(family: str, weight: float) -> None:
    rng = np.random.default_rng(0)
    X = np.hstack([np.ones((300, 1)), rng.standard_normal((300, 9))])
    forms = X @ (0.4 * rng.standard_normal(10))
    y = {
        "poisson": rng.poisson(np.exp(forms)) * 1.0,
        "binomial": (rng.random(300) < 1 / (1 + np.exp(-forms))) * 1.0,
        "gaussian": forms + rng.standard_normal(300),
    }[family]
    options = {"weights": rng.uniform(0.5, 2.0, 300), "offset": 0.3 * rng.standard_normal(300)}
    losses = fpdfp.losses.GLM(X, y, np.arange(300) % 3, family, **options)
    penalty = fpdfp.penalties.L1(np.append(0.0, np.full(9, weight)))
    problem = fpdfp.Problem(losses, penalty)
    assert working_set.find_blocks(problem) is not None
    best = fpdfp.minimize(problem, tol=1e-9)
    other = lagrangian.solve_alike(problem, 1e-9, np.zeros(10))
    assert best.converged
    assert best.objective == pytest.approx(problem.objective(best.x), rel=1e-12)
    assert best.objective == pytest.approx(other.certificate.objective, rel=1e-8)
    np.testing.assert_allclose(best.x, other.x, atol=1e-4)
    if weight:
        assert np.array_equal(best.x == 0, np.abs(other.x) < 1e-6)


@pytest.mark.parametrize(
    ("penalty", "linop"),
    [(fpdfp.penalties.L1(0.05), None), (fpdfp.penalties.L1(0.05), fpdfp.linops.Difference(4))],
)
def test_losses_that_are_infinite_at_zero(penalty: Any, linop: Any) -> None:
    """Gamma outcomes with the inverse link, whose linear predictors are positive."""
    rng = np.random.default_rng(3)
    X, y = np.c_[np.ones(60), 0.3 * rng.standard_normal((60, 3))], rng.gamma(2.0, 0.5, 60)
    problem = fpdfp.Problem(fpdfp.losses.GLM(X, y, family="gamma", l2=0.01), penalty, linop)
    assert problem.objective(np.zeros(4)) == np.inf
    best = fpdfp.minimize(problem)
    import cvxpy as cp

    x = cp.Variable(4)
    seen = x if linop is None else cp.diff(x)
    value = cp.sum(cp.multiply(y, X @ x) - cp.log(X @ x)) / 60 + 0.005 * cp.sum_squares(x) + 0.05 * cp.norm1(seen)
    cp.Problem(cp.Minimize(value)).solve(solver="CLARABEL")
    assert best.converged
    np.testing.assert_allclose(best.x, x.value, atol=1e-3)
    assert best.objective == pytest.approx(problem.objective(x.value), rel=1e-7)


def test_where_losses_are_finite_must_be_said_if_it_is_not_found() -> None:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((40, 3))
    problem = fpdfp.Problem(fpdfp.losses.GLM(X, rng.gamma(2.0, 0.5, 40), family="gamma"), fpdfp.penalties.L1(0.1))
    with pytest.raises(ValueError, match="x0 must be a point where the losses are finite"):
        fpdfp.minimize(problem)


@pytest.mark.parametrize("penalty", [fpdfp.penalties.Zero(), fpdfp.penalties.NonNegative()])
def test_a_ridge_leaves_nothing_separated(penalty: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3)) * [1e5, 1.0, 1.0]
    best = fpdfp.minimize(fpdfp.Problem(fpdfp.losses.Logistic(X, np.sign(X[:, 0]), l2=1e-6), penalty), tol=1e-8)
    assert best.converged


@pytest.mark.parametrize(("seed", "loss"), [(21, "squares"), (23, "counts"), (37, "logistic"), (47, "counts")])
def test_constraints_that_do_not_bind_leave_certificates(seed: int, loss: str) -> None:
    """Fewer rows than features, a total variation, and x > 0: no dual of the signs has room for what is left."""
    rng = np.random.default_rng(seed)
    count = int(rng.choice([12, 40, 150]))
    size = int(rng.choice([3, 8, 15, 30]))
    weight = float(10 ** rng.uniform(-1, 1.0))
    rng.choice([0, 0, 0.1])
    X = rng.standard_normal((count, size))
    forms = X @ np.abs(rng.standard_normal(size)) * (1 if seed % 2 else -1)
    if loss == "squares":
        losses: Any = fpdfp.losses.LeastSquares(X, forms + rng.standard_normal(count))
    elif loss == "logistic":
        losses = fpdfp.losses.Logistic(X, np.where(forms + 2 * rng.standard_normal(count) > 0, 1.0, -1.0))
    else:
        y = rng.poisson(np.exp(0.2 * forms.clip(-9, 9))) * 1.0
        losses = fpdfp.losses.GLM(0.2 * X, y, family="poisson")
    parts = [fpdfp.penalties.L1(weight), fpdfp.penalties.NonNegative()]
    linop = fpdfp.linops.VStack([fpdfp.linops.Difference(size), fpdfp.linops.Identity(size)])
    best = fpdfp.minimize(fpdfp.Problem(losses, fpdfp.penalties.Stacked(parts, [size - 1, size]), linop))
    assert best.x.min() > 0
    assert best.converged
