"""Softmax losses against textbook formulas, other packages, and logistic losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.special import softmax as probabilities

import fpdfp
from fpdfp import linops, penalties
from fpdfp.losses import Logistic, Softmax
from fpdfp.quadratic import newton
from fpdfp.rng import Draws
from tests import helpers

CLIENTS = np.arange(4)
RIDGE = np.array([0.0, 0.5, 0.02, 0.1, 0.3, 0.05])


def data(seed: int = 0, rows: int = 90, d: int = 6, classes: int = 3) -> tuple[Any, Any, Any]:
    """Sparse rows of four clients."""
    X, y, _ = helpers.softmax(clients=1, rows=rows, d=d, classes=classes, seed=seed)
    generator = np.random.default_rng(seed)
    y[:classes] = np.arange(classes)
    owner = np.concatenate([CLIENTS, generator.integers(0, 4, rows - 4)])
    return X * (generator.random(X.shape) < 0.6), y, generator.permutation(owner)


def form(X: Any, sparse: bool) -> Any:
    return scipy.sparse.csr_array(X) if sparse else X


def textbook(X: Any, y: Any, x: Any, l2: Any) -> tuple[float, Any]:
    """Value and gradient of one client's loss, as a book would write them."""
    z = X @ x.T
    chosen = np.eye(len(x))[y]
    value = np.mean(logsumexp(z, axis=1) - (z * chosen).sum(axis=1)) + (l2 * x**2).sum() / 2
    return float(value), (probabilities(z, axis=1) - chosen).T @ X / len(y) + l2 * x


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("l2", [0.0, 0.3, RIDGE], ids=["none", "one", "each"])
@given(seed=st.integers(0, 10**6), classes=st.integers(2, 9))
def test_values_and_gradients_of_each_client(sparse: bool, l2: Any, seed: int, classes: int) -> None:
    X, y, owner = data(seed, classes=classes)
    losses = Softmax(form(X, sparse), y, clients=owner, l2=l2)
    assert losses.shape == (classes, 6)
    x = np.random.default_rng(seed).standard_normal(losses.shape)
    clients = np.array([2, 0, 3])
    values, gradients = losses.values(x, clients), losses.gradients(x, clients)
    for row, client in enumerate(clients):
        value, gradient = textbook(X[owner == client], y[owner == client], x, l2)
        assert values[row] == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(gradients[row], gradient, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_and_hessians_are_differences(sparse: bool, rng: np.random.Generator) -> None:
    X, y, owner = data()
    losses, weights = Softmax(form(X, sparse), y, clients=owner, l2=RIDGE), np.array([0.1, 0.2, 0.3, 0.4])
    x, u = rng.standard_normal((2, *losses.shape))
    h = 1e-5
    slopes = (losses.values(x + h * u, CLIENTS) - losses.values(x - h * u, CLIENTS)) / (2 * h)
    np.testing.assert_allclose((losses.gradients(x, CLIENTS) * u).sum(axis=(1, 2)), slopes, rtol=1e-7)
    change = (losses.gradient(x + h * u, weights) - losses.gradient(x - h * u, weights)) / (2 * h)
    np.testing.assert_allclose(losses.hessian_product(x, u, weights), change, atol=1e-8)
    hessian = losses.hessian(x, weights)
    assert hessian is not None
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-15)
    np.testing.assert_allclose(
        (hessian @ u.ravel()).reshape(x.shape), losses.hessian_product(x, u, weights), atol=1e-13
    )


@pytest.mark.parametrize("sparse", [False, True])
def test_two_classes_are_logistic_in_the_difference(sparse: bool, rng: np.random.Generator) -> None:
    X, y, owner = data(classes=2)
    two, one = Softmax(form(X, sparse), y, clients=owner), Logistic(form(X, sparse), y, clients=owner)
    x = rng.standard_normal((2, 6))
    np.testing.assert_allclose(two.values(x, CLIENTS), one.values(x[1] - x[0], CLIENTS), rtol=1e-13)
    slope = one.gradients(x[1] - x[0], CLIENTS)
    np.testing.assert_allclose(two.gradients(x, CLIENTS), np.stack([-slope, slope], axis=1), atol=1e-14)
    # mini-batches draw the rows that those of other losses draw
    draws = Draws(3, 4, CLIENTS)
    slope = one.gradients(x[1] - x[0], CLIENTS, 5, draws)
    np.testing.assert_allclose(two.gradients(x, CLIENTS, 5, draws), np.stack([-slope, slope], axis=1), atol=1e-14)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("batch_size", [None, 1, 37, 1000])
def test_a_reply_does_not_depend_on_the_batch_of_clients(sparse: bool, dtype: Any, batch_size: int | None) -> None:
    X, y, owner = data(5, rows=400, d=37, classes=5)
    losses = Softmax(form(X, sparse).astype(dtype), y, clients=owner, l2=0.1)
    x = np.random.default_rng(0).standard_normal((4, 5, 37)).astype(dtype)
    for points in (x, x[0]):
        together = losses.gradients(points, CLIENTS, batch_size, Draws(1, 2, CLIENTS))
        assert together.dtype == dtype
        for client in CLIENTS:
            only, point = np.array([client]), points[client] if points.ndim == 3 else points
            alone = losses.gradients(point, only, batch_size, Draws(1, 2, only))
            np.testing.assert_array_equal(alone[0], together[client])
            np.testing.assert_array_equal(losses.values(x[0], only)[0], losses.values(x[0], CLIENTS)[client])


@pytest.mark.parametrize("sparse", [False, True])
def test_float32_is_nearly_float64(sparse: bool, rng: np.random.Generator) -> None:
    X, y, owner = data(d=30, rows=200)
    x = rng.standard_normal((3, 30)).astype(np.float32)
    wide = Softmax(form(X.astype(np.float32).astype(np.float64), sparse), y, clients=owner, l2=np.linspace(0, 1, 30))
    narrow = Softmax(form(X.astype(np.float32), sparse), y, clients=owner, l2=np.linspace(0, 1, 30))
    np.testing.assert_allclose(narrow.gradients(x, CLIENTS), wide.gradients(x, CLIENTS), atol=2e-6)
    np.testing.assert_allclose(narrow.values(x, CLIENTS), wide.values(x, CLIENTS), rtol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_extreme_margins_do_not_overflow(sparse: bool) -> None:
    losses = Softmax(form(np.array([[1e4, 1.0], [1.0, 1e4]]), sparse), [0, 1], n_classes=3)
    one = np.array([0])
    right, wrong = np.array([[1e4, 0.0], [0.0, 1e4], [0.0, 0.0]]), np.array([[-1e4, 0.0], [0.0, -1e4], [0.0, 0.0]])
    assert losses.values(right, one)[0] == 0.0
    np.testing.assert_array_equal(losses.gradients(right, one), 0.0)
    assert losses.values(wrong, one)[0] == pytest.approx(1e8, rel=1e-3)
    assert np.isfinite(losses.gradients(wrong, one)).all()
    small = losses.values(np.array([[2e-3, 0.0], [0.0, 2e-3], [-2e-3, -2e-3]]), one)[0]
    assert 0 < small < 1e-8  # and not rounded away, since 1 is not added to it


def test_the_bound_of_the_hessian_holds(rng: np.random.Generator) -> None:
    """Böhning's: at every x, and nearly reached by two classes at zero."""
    X, y, owner = data(classes=4)
    losses = Softmax(X, y, clients=owner, l2=RIDGE)
    blocks = losses.curvatures(CLIENTS)
    assert blocks is not None
    assert blocks.shape == (4, 6, 6)
    diagonals = losses.curvature_diagonals(CLIENTS)
    np.testing.assert_allclose(diagonals, np.diagonal(blocks, axis1=1, axis2=2), atol=1e-14)
    S, scales = rng.standard_normal((6, 6)), 0.1 + rng.random((4, 6))
    in_rows = losses.lipschitz_in(linops.EachRow(S, 4))
    in_scales = losses.lipschitz_in(linops.Diagonal(scales))
    in_other = losses.lipschitz_in(linops.Compose(linops.EachRow(S, 4), linops.Diagonal(scales)))
    for size in (0.0, 0.1, 1.0, 10.0):
        x = size * rng.standard_normal(losses.shape)
        for client in CLIENTS:
            hessian = losses.hessian(x, (client == CLIENTS).astype(float))
            assert hessian is not None
            assert np.linalg.eigvalsh(np.kron(np.eye(4), blocks[client]) - hessian)[0] >= -1e-12
            assert np.linalg.eigvalsh(hessian)[-1] <= losses.lipschitz()[client]
            whitened = np.kron(np.eye(4), S).T @ hessian @ np.kron(np.eye(4), S)
            assert np.linalg.eigvalsh(whitened)[-1] <= in_rows[client]
            scaled = scales.ravel() * hessian * scales.ravel()[:, None]
            assert np.linalg.eigvalsh(scaled)[-1] <= in_scales[client]
            both = scales.ravel() * whitened * scales.ravel()[:, None]
            assert np.linalg.eigvalsh(both)[-1] <= in_other[client]
    np.testing.assert_allclose(in_rows, np.linalg.eigvalsh(S.T @ blocks @ S)[:, -1], rtol=1e-8)
    two = Softmax(X, y > 1)
    flat = two.hessian(np.zeros((2, 6)), np.ones(1))
    assert flat is not None
    assert np.linalg.eigvalsh(flat)[-1] == pytest.approx(two.lipschitz()[0], rel=1e-9)


def test_batch_smoothness_bounds_single_samples(rng: np.random.Generator) -> None:
    X, y, owner = data()
    losses = Softmax(X, y, clients=owner, l2=RIDGE)
    S = rng.standard_normal((6, 6))
    for factor, rows in ((None, X), (linops.EachRow(S, 3), X @ S), (linops.Diagonal(np.tile(S[0], (3, 1))), X * S[0])):
        norm = 1.0 if factor is None else factor.squared_norm
        for client in CLIENTS:
            largest = 0.5 * (rows[owner == client] ** 2).sum(axis=1).max() + 0.5 * norm
            assert losses.batch_smoothness(1, factor)[client] == pytest.approx(largest)
    assert (losses.batch_smoothness(1000) == 0).all()


def test_convexity_is_that_of_the_ridge() -> None:
    X, y, owner = data()
    weights = np.array([0.1, 0.2, 0.3, 1.4])
    assert Softmax(X, y, clients=owner, l2=RIDGE).strong_convexity(weights) == 0.0
    losses = Softmax(X, y, clients=owner, l2=RIDGE + 0.1)
    assert losses.strong_convexity(weights) == pytest.approx(0.2)
    assert losses.least_convexity == 0.1
    assert repr(losses) == "Softmax(dense 90 × 6, 3 classes, 4 clients, l2=0.1 to 0.6)"


def test_large_hessians_are_not_formed() -> None:
    X, y = np.ones((4, 700)), [0, 1, 2, 0]
    losses = Softmax(X, y)
    assert losses.hessian(np.zeros((3, 700)), np.ones(1)) is None
    assert losses.curvatures(np.arange(1)) is not None


def test_scikit_learn_finds_the_same() -> None:
    from sklearn.linear_model import LogisticRegression

    X, y, _ = helpers.softmax(clients=1, rows=300, d=8, classes=4)
    l2 = 0.01
    best = fpdfp.minimize(fpdfp.Problem(Softmax(X, y, l2=l2), penalties.Zero()), tol=1e-14)
    model = LogisticRegression(C=1 / (len(y) * l2), fit_intercept=False, solver="lbfgs", tol=1e-12, max_iter=10_000)
    np.testing.assert_allclose(best.x, model.fit(X, y).coef_, atol=1e-6)


@pytest.mark.parametrize("l2", [0.0, 0.05, np.array([0.0, 0.1, 0.2, 0.3])], ids=["none", "one", "each"])
def test_clarabel_finds_the_same(l2: Any) -> None:
    import cvxpy as cp

    X, y, _ = helpers.softmax(clients=1, rows=40, d=4)
    problem = fpdfp.Problem(Softmax(X, y, l2=l2), penalties.L1(0.03))
    best = fpdfp.minimize(problem, tol=1e-11)
    assert best.converged
    x = cp.Variable((3, 4))
    z = X @ x.T
    value = (cp.sum(cp.log_sum_exp(z, axis=1)) - cp.sum(cp.multiply(np.eye(3)[y], z))) / len(y)
    ridge = cp.sum(cp.multiply(np.broadcast_to(l2, (3, 4)), cp.square(x))) / 2
    other = cp.Problem(cp.Minimize(value + ridge + 0.03 * cp.sum(cp.abs(x))))
    other.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    assert best.objective == pytest.approx(other.value, rel=1e-9)
    np.testing.assert_allclose(best.x, x.value, atol=1e-5)


@pytest.mark.parametrize("size", [None, 0], ids=["factorised", "conjugate gradients"])
def test_the_flat_direction_is_no_trouble(size: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ridge and penalty the same may be added to the rows of all classes: any of those x is a solution."""
    if size is not None:
        monkeypatch.setattr(newton, "DENSE_COLUMNS", size)
    X, y, owner = helpers.softmax()
    best = fpdfp.minimize(fpdfp.Problem(Softmax(X, y, clients=owner), penalties.Zero()), tol=1e-10)
    assert best.converged
    assert best.certificate.residual.norm < 1e-9
    np.testing.assert_allclose(best.x.sum(axis=0), 0.0, atol=1e-6)  # started at zero, it stays there


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n", [5, 2])
@pytest.mark.parametrize("l2", [0.0, 0.01], ids=["no ridge", "ridge"])
def test_nothing_set_reaches_the_optimum(sparse: bool, n: int, l2: float) -> None:
    X, y, owner = helpers.softmax()
    problem = fpdfp.Problem(Softmax(form(X * (abs(X) > 0.3), sparse), y, clients=owner, l2=l2), penalties.L1(0.01))
    assert helpers.reaches(problem, None, 600, error=1e-8, clients_per_round=n)


@pytest.mark.parametrize("kind", ["moments", "diagonal", "auto"])
def test_clients_send_what_one_class_has(kind: Any) -> None:
    X, y, owner = helpers.softmax()
    problem = fpdfp.Problem(Softmax(X, y, clients=owner, l2=0.01), penalties.L1(0.01))
    methods: list[Any] = []
    method = fpdfp.ShiftedPDFP(preconditioner=kind)
    result = fpdfp.solve(
        problem, method, rounds=1, prefer="rounds", callbacks=[lambda run: methods.append(run.algorithm)]
    )
    numbers = 12 if kind == "diagonal" else 78
    assert result.bits_once_up == result.bits_once_down == 5 * (32 * numbers + 80)
    assert methods[0].factor.in_shape == (3, 12)
    # the Hessian at zero, in the new coordinates, is below the bound that the step comes from
    columns = np.eye(36).reshape(36, 3, 12)
    hessian = np.stack([
        methods[0].factor.adjoint(problem.losses.hessian_product(0 * e, methods[0].factor.apply(e), problem.weights))
        for e in columns
    ]).reshape(36, 36)  # fmt: skip
    bound = problem.lipschitz_in(methods[0].factor).mean()
    assert np.linalg.eigvalsh(hessian)[-1] <= min(bound, methods[0].coordinates.smoothness or bound) * (1 + 1e-6)
    assert helpers.reaches(problem, method, 600, error=1e-8)


def test_mini_batches_and_other_methods() -> None:
    problem = helpers.zoo()["softmax"]
    best = fpdfp.minimize(problem, tol=1e-10).objective
    start = problem.objective(np.zeros(problem.model.shape)) - best
    for method, rounds, share in ((fpdfp.FPDFP(), 200, 0.01), (fpdfp.ShiftedPDFP(batch_size=10), 400, 1e-3)):
        assert fpdfp.solve(problem, method, rounds=rounds).objective - best < share * start
    narrow = fpdfp.Problem(Softmax(*helpers.softmax()[:2], l2=0.01), penalties.L1(0.01))
    gap = fpdfp.solve(narrow, fpdfp.PDFP(), rounds=300).certificate.relative_gap
    assert gap is not None
    assert gap < 1e-6


def test_from_clients() -> None:
    X, y, owner = data()
    parts, targets = [X[owner == i] for i in CLIENTS], [y[owner == i] for i in CLIENTS]
    together = Softmax.from_clients(parts, targets, l2=RIDGE, n_classes=5)
    assert together.shape == (5, 6)
    x = np.random.default_rng(0).standard_normal((5, 6))
    expected = Softmax(X, y, clients=owner, l2=RIDGE, n_classes=5).gradients(x, CLIENTS)
    np.testing.assert_array_equal(together.gradients(x, CLIENTS), expected)


def test_a_class_without_rows_is_only_pushed_down() -> None:
    X, y, _ = data()
    losses = Softmax(X, y, n_classes=4)
    value, gradient = textbook(X, y, np.zeros((4, 6)), 0.0)
    assert losses.values(np.zeros((4, 6)), np.array([0]))[0] == pytest.approx(value)
    np.testing.assert_allclose(losses.gradients(np.zeros((4, 6)), np.array([0]))[0], gradient, atol=1e-14)


X0 = np.eye(3)
BAD: list[tuple[Any, str]] = [
    (lambda: Softmax(X0, [0, 1, 0.5]), "y must hold classes, whole numbers from 0 on, got 0.5"),
    (lambda: Softmax(X0, [0, 1, -1]), "y must hold classes, whole numbers from 0 on, got -1"),
    (lambda: Softmax(X0, [0, 1, np.nan]), "y must be finite"),
    (lambda: Softmax(X0, ["a", "b", "c"]), "y must hold real numbers"),
    (lambda: Softmax(X0, [0, 0, 0]), "y must hold at least two classes, but every label is 0"),
    (lambda: Softmax(X0, [0, 2, 3]), "y has no row of class 1; give n_classes"),
    (lambda: Softmax(X0, [1, 2, 2]), "y has no row of class 0; give n_classes"),
    (lambda: Softmax(X0, [0, 1, 10**12]), "y has no row of class 2; give n_classes"),
    (lambda: Softmax(X0, [0, 1, 3], n_classes=3), "y must hold classes from 0 to 2 when n_classes=3, got 3"),
    (lambda: Softmax(X0, [0, 0, 0], n_classes=1), "n_classes must be an integer of at least 2, got 1"),
    (lambda: Softmax(X0, [0, 1, 1], n_classes=2.5), "n_classes must be an integer of at least 2, got 2.5"),
    (lambda: Softmax(X0, [0, 1]), "X and y must have the same length, got 3 rows and 2 entries"),
    (lambda: Softmax(X0, np.eye(3)), "y must be one-dimensional"),
    (lambda: Softmax(np.ones(3), [0, 1, 2]), "X must be two-dimensional"),
    (lambda: Softmax(X0 * np.nan, [0, 1, 2]), "X must be finite"),
    (lambda: Softmax(X0, [0, 1, 2], l2=[0.1, 0.2]), "l2 must be one number, or one for each of the 3 features"),
    (lambda: Softmax(X0, [0, 1, 2], l2=-0.1), "l2 must be a finite number of at least 0"),
    (lambda: Softmax(X0, [0, 1, 2], l2=[0.1, 0.2, -0.3]), "l2 must be at least 0 for every feature, got -0.3"),
    (lambda: Softmax(X0, [0, 1, 2]).values(np.ones(9), np.array([0])), r"x must have shape \(3, 3\)"),
    (lambda: Softmax(X0, [0, 1, 2]).gradients(np.ones((2, 3)), np.array([0])), r"x must have shape \(3, 3\)"),
    (lambda: Softmax(X0, [0, 1, 2]).gradients(X0, np.array([0]), 2), "draws must be given"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_arguments_are_named(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_a_preconditioner_for_vectors_is_refused() -> None:
    method = fpdfp.ShiftedPDFP(preconditioner=fpdfp.precondition.Whitening(np.eye(12)))
    with pytest.raises(ValueError, match=r"preconditioner must be for x of shape \(3, 12\), got one for \(12,\)"):
        fpdfp.solve(helpers.zoo()["softmax"], method, rounds=1)


def test_dual_points_of_weighted_rows_are_those_of_repeated_rows() -> None:
    X, y, _ = data()
    times = np.random.default_rng(1).integers(1, 4, len(y))
    share = np.array([times.sum() / len(y)])  # losses are divided by the number of rows
    x, u = np.random.default_rng(2).standard_normal((2, 3, 6))
    weighted = Softmax(X, y, weights=times).dual_points(x, np.ones(1))
    repeated = Softmax(np.repeat(X, times, axis=0), np.repeat(y, times)).dual_points(x, share)
    assert weighted is not None
    assert repeated is not None
    np.testing.assert_allclose(weighted.gradient(), repeated.gradient(), atol=1e-13)
    np.testing.assert_allclose(weighted.gradient(u), repeated.gradient(u), atol=1e-13)
    np.testing.assert_allclose(weighted.hessian_products(u[None]), repeated.hessian_products(u[None]), atol=1e-13)
    assert weighted.gap(0.1 * u, 0.9) == pytest.approx(repeated.gap(0.1 * u, 0.9), rel=1e-12)
