"""Losses against dense textbook formulas and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

import fpdfp
from fpdfp.cohorts.record import fingerprint
from fpdfp.losses import Custom, LeastSquares, Logistic, Losses, OperatorLeastSquares
from fpdfp.rng import Draws
from tests import helpers


def data(seed: int, rows: int = 60, d: int = 7, clients: int = 4) -> tuple[Any, Any, Any]:
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((rows, d)) * (generator.random((rows, d)) < 0.5)
    owner = np.concatenate([np.arange(clients), generator.integers(0, clients, rows - clients)])
    y = np.where(generator.random(rows) < 0.5, 1.0, -1.0)
    y[:2] = [1.0, -1.0]
    return X, y, generator.permutation(owner)


def textbook(kind: type, X: Any, y: Any, x: Any, l2: Any) -> tuple[float, Any]:
    """Value and gradient of one client's loss, as a book would write them."""
    if kind is Logistic:
        value = np.mean(np.log1p(np.exp(-y * (X @ x))))
        gradient = X.T @ (-y * expit(-y * (X @ x))) / len(y)
    else:
        value = np.sum((X @ x - y) ** 2) / (2 * len(y))
        gradient = X.T @ (X @ x - y) / len(y)
    return float(value + (l2 * x) @ x / 2), gradient + l2 * x


@pytest.mark.parametrize("kind", [Logistic, LeastSquares])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("l2", [0.3, np.linspace(0.0, 0.6, 7)], ids=["one ridge", "a ridge for each feature"])
@given(seed=st.integers(0, 10**6))
def test_values_and_gradients_of_each_client(kind: type[Any], sparse: bool, l2: Any, seed: int) -> None:
    X, y, owner = data(seed)
    losses = kind(scipy.sparse.csr_array(X) if sparse else X, y, clients=owner, l2=l2)
    x = np.random.default_rng(seed).standard_normal(7)
    clients = np.array([2, 0, 3])
    values, gradients = losses.values(x, clients), losses.gradients(x, clients)
    for row, client in enumerate(clients):
        value, gradient = textbook(kind, X[owner == client], y[owner == client], x, l2)
        assert values[row] == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(gradients[row], gradient, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", helpers.zoo())
def test_gradient_hessian_and_constants_of_the_whole(name: str, rng: np.random.Generator) -> None:
    problem = helpers.zoo()[name]
    shape = problem.model.shape
    x, u = rng.standard_normal(shape), rng.standard_normal(shape)
    h = 1e-5
    slope = (problem.smooth_value(x + h * u) - problem.smooth_value(x - h * u)) / (2 * h)
    assert float(np.vdot(problem.gradient(x), u)) == pytest.approx(slope, rel=1e-6)
    change = (problem.gradient(x + h * u) - problem.gradient(x - h * u)) / (2 * h)
    np.testing.assert_allclose(problem.losses.hessian_product(x, u, problem.weights), change, atol=1e-6)
    hessian = problem.losses.hessian(x, problem.weights)
    if hessian is not None:
        np.testing.assert_allclose((hessian @ u.ravel()).reshape(shape), change, atol=1e-6)
        spectrum = np.linalg.eigvalsh(hessian)
        assert spectrum[-1] <= problem.lipschitz.mean() * (1 + 1e-12)
        assert spectrum[0] >= problem.strong_convexity * (1 - 1e-12)


def test_lipschitz_constants_are_the_spectral_norms(rng: np.random.Generator) -> None:
    X, y, owner = data(1, rows=50, d=20)
    for matrix in (X, scipy.sparse.csr_array(X)):
        constants = LeastSquares(matrix, y, clients=owner, l2=0.1).lipschitz()
        for client in range(4):
            part = X[owner == client]
            true = np.linalg.norm(part, 2) ** 2 / len(part) + 0.1
            assert true <= constants[client] <= true * (1 + 1e-9)


def test_strong_convexity_of_least_squares_is_the_least_eigenvalue() -> None:
    problem = helpers.fused_regression()
    hessian = problem.losses.hessian(np.zeros(8), problem.weights)
    assert hessian is not None
    least = float(np.linalg.eigvalsh(hessian)[0])
    assert least * (1 - 1e-9) <= problem.strong_convexity <= least


RIDGE = np.array([0.0, 0.5, 0.02, 0.1, 0.3, 0.05, 0.7])


@pytest.mark.parametrize("sparse", [False, True])
def test_a_ridge_for_each_feature_is_as_much_of_a_column_more(sparse: bool, rng: np.random.Generator) -> None:
    """½ Σ l2_j x_j² is the loss of d rows √(n l2_j) e_j besides those of a client: all bounds must have it."""
    X, y, owner = data(4)
    losses = LeastSquares(scipy.sparse.csr_array(X) if sparse else X, y, clients=owner, l2=RIDGE)
    clients, weights = np.arange(4), np.array([0.1, 0.2, 0.3, 0.4])
    grams = np.stack([X[owner == i].T @ X[owner == i] / (owner == i).sum() + np.diag(RIDGE) for i in clients])
    x, u = rng.standard_normal((2, 7))
    np.testing.assert_allclose(losses.curvatures(clients), grams, atol=1e-13)
    np.testing.assert_allclose(losses.curvature_diagonals(clients), np.diagonal(grams, axis1=1, axis2=2), atol=1e-13)
    np.testing.assert_allclose(losses.hessians(x, clients), grams, atol=1e-13)
    whole = np.einsum("i,ijk->jk", weights, grams)
    np.testing.assert_allclose(losses.hessian(x, weights), whole, atol=1e-13)
    np.testing.assert_allclose(losses.hessian_product(x, u, weights), whole @ u, atol=1e-13)
    assert (losses.lipschitz() >= np.linalg.eigvalsh(grams)[:, -1]).all()
    assert losses.least_convexity == 0.0
    assert losses.strong_convexity(weights) == pytest.approx(float(np.linalg.eigvalsh(whole)[0]), rel=1e-9)
    S = rng.standard_normal((7, 7))
    in_matrix, in_scales = losses.lipschitz_in(fpdfp.linops.Matrix(S)), losses.lipschitz_in(fpdfp.linops.Diagonal(S[0]))
    np.testing.assert_allclose(in_matrix, np.linalg.eigvalsh(S.T @ grams @ S)[:, -1], rtol=1e-8)
    assert (in_scales >= np.linalg.eigvalsh(S[0] * grams * S[0][:, None])[:, -1]).all()
    assert (losses.batch_smoothness(1) > 0.7 * (losses.sizes > 1)).all()
    logistic = Logistic(X, y, clients=owner, l2=RIDGE + 0.01)
    assert logistic.least_convexity == 0.01
    assert logistic.strong_convexity(weights) == pytest.approx(0.01)


@pytest.mark.parametrize("kind", [Logistic, LeastSquares])
def test_equal_ridges_are_one_ridge(kind: type[Any]) -> None:
    X, y, owner = data(6)
    one, each = (kind(X, y, clients=owner, l2=l2) for l2 in (0.1, [0.1] * 7))
    x, clients = np.random.default_rng(0).standard_normal(7), np.arange(4)
    np.testing.assert_array_equal(one.gradients(x, clients), each.gradients(x, clients))
    np.testing.assert_allclose(one.values(x, clients), each.values(x, clients), rtol=1e-15)
    assert repr(one) == f"{kind.__name__}(dense 60 × 7, 4 clients, l2=0.1)"
    assert repr(each) == f"{kind.__name__}(dense 60 × 7, 4 clients, l2=0.1 to 0.1)"
    assert repr(kind(X, y, l2=RIDGE)) == f"{kind.__name__}(dense 60 × 7, 1 clients, l2=0 to 0.7)"


def test_checkpoints_tell_ridges_apart() -> None:
    """Also those whose values at the probe are the same."""
    X, y, owner = data(6)
    probe = np.cos(np.arange(7.0)) ** 2
    spread = 0.1 + 0.01 * np.array([probe[1], -probe[0], 0, 0, 0, 0, 0])
    ridges: list[Any] = [0.1, RIDGE, RIDGE[::-1], spread, 0.0]
    prints = [fingerprint(fpdfp.Problem(Logistic(X, y, clients=owner, l2=l2), fpdfp.penalties.Zero())) for l2 in ridges]
    assert len(set(prints)) == len(ridges)
    same = fpdfp.Problem(Logistic(X, y, clients=owner, l2=np.full(7, 0.1)), fpdfp.penalties.Zero())
    assert fingerprint(same) == prints[0]


def test_the_ridge_of_the_caller_is_copied() -> None:
    ridge = RIDGE.copy()
    losses = LeastSquares(np.eye(7), np.ones(7), l2=ridge)
    ridge[:] = 5.0
    np.testing.assert_array_equal(losses.l2, RIDGE)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("batch_size", [None, 1, 5, 1000])
def test_a_reply_does_not_depend_on_the_batch_of_clients(sparse: bool, dtype: Any, batch_size: int | None) -> None:
    X, y, owner = data(5, rows=400, d=37, clients=16)
    losses = Logistic((scipy.sparse.csr_array(X) if sparse else X).astype(dtype), y, clients=owner, l2=0.1)
    x = np.random.default_rng(0).standard_normal(37).astype(dtype)
    clients = np.arange(16)
    together = losses.gradients(x, clients, batch_size, Draws(1, 2, clients))
    assert together.dtype == dtype
    for client in clients:
        only = np.array([client])
        alone = losses.gradients(x, only, batch_size, Draws(1, 2, only))
        np.testing.assert_array_equal(alone[0], together[client])


def test_a_point_for_each_client() -> None:
    X, y, owner = data(5)
    losses = Logistic(X, y, clients=owner)
    points = np.random.default_rng(0).standard_normal((4, 7))
    together = losses.gradients(points, np.arange(4))
    for client in range(4):
        np.testing.assert_array_equal(together[client], losses.gradients(points[client], np.array([client]))[0])


@pytest.mark.parametrize("sparse", [False, True])
def test_mini_batches_are_unbiased_and_draw_without_replacement(sparse: bool) -> None:
    X, y, owner = data(2, rows=24, clients=2)
    losses = LeastSquares(scipy.sparse.csr_array(X) if sparse else X, y, clients=owner)
    x = np.random.default_rng(0).standard_normal(7)
    clients = np.arange(2)
    rounds = 4000
    draws = np.stack([losses.gradients(x, clients, 3, Draws(0, k, clients)) for k in range(rounds)])
    exact = losses.gradients(x, clients)
    spread = draws.std(axis=0) / np.sqrt(rounds)
    # 14 comparisons at 5 standard errors: a false alarm once in 100,000 seeds.
    assert (abs(draws.mean(axis=0) - exact) <= 5 * spread + 1e-12).all()
    whole = losses.gradients(x, clients, int(losses.sizes.min()), Draws(0, 0, clients))
    np.testing.assert_allclose(whole[losses.sizes.argmin()], exact[losses.sizes.argmin()], rtol=1e-12)


def test_labels_zero_one_and_minus_one_one_are_the_same() -> None:
    X, y, owner = data(3)
    a = Logistic(X, y, clients=owner)
    b = Logistic(X, (y > 0).astype(int), clients=owner)
    c = Logistic(X, y > 0, clients=owner)
    x = np.ones(7)
    np.testing.assert_array_equal(a.gradients(x, np.arange(4)), b.gradients(x, np.arange(4)))
    np.testing.assert_array_equal(a.gradients(x, np.arange(4)), c.gradients(x, np.arange(4)))


def test_extreme_margins_do_not_overflow() -> None:
    losses = Logistic(np.array([[1e4], [-1e4]]), [1, -1])
    clients = np.array([0])
    for x in (-1e4, 1e4):
        value, gradient = losses.values(np.array([x]), clients)[0], losses.gradients(np.array([x]), clients)[0, 0]
        assert np.isfinite(value)
        assert np.isfinite(gradient)
    assert losses.values(np.array([-1e4]), clients)[0] == pytest.approx(1e8)
    assert losses.gradients(np.array([1e4]), clients)[0, 0] == 0.0


def test_client_names_and_order() -> None:
    losses = Logistic(np.arange(8.0).reshape(4, 2), [0, 1, 0, 1], clients=["b", "a", "c", "a"])
    assert losses.client_names.tolist() == ["a", "b", "c"]
    assert losses.sizes.tolist() == [2, 1, 1]


def test_the_data_of_the_caller_is_not_changed() -> None:
    X, y, owner = data(0)
    sparse = scipy.sparse.csr_array(X)
    copies = X.copy(), y.copy(), sparse.copy()
    for matrix in (X, sparse):
        losses = Logistic(matrix, y, clients=owner)
        losses.gradients(np.ones(7), np.arange(4))
        losses.lipschitz()
    np.testing.assert_array_equal(X, copies[0])
    np.testing.assert_array_equal(y, copies[1])
    assert (sparse != copies[2]).nnz == 0


def test_from_clients() -> None:
    X, y, owner = data(0)
    a = LeastSquares(X, y, clients=owner)
    parts, targets = [X[owner == i] for i in range(4)], [y[owner == i] for i in range(4)]
    b = LeastSquares.from_clients(parts, targets)
    c = LeastSquares.from_clients([scipy.sparse.csr_array(part) for part in parts], targets)
    x = np.ones(7)
    np.testing.assert_array_equal(a.gradients(x, np.arange(4)), b.gradients(x, np.arange(4)))
    np.testing.assert_allclose(a.gradients(x, np.arange(4)), c.gradients(x, np.arange(4)), rtol=1e-12)


def test_operators_equal_matrices() -> None:
    X, y, owner = data(0)
    parts, targets = [X[owner == i] for i in range(4)], [y[owner == i] for i in range(4)]
    matrix = LeastSquares.from_clients(parts, targets, l2=0.1)
    operators = OperatorLeastSquares(parts, targets, l2=0.1)
    x = np.random.default_rng(0).standard_normal(7)
    clients = np.arange(4)
    np.testing.assert_allclose(operators.values(x, clients), matrix.values(x, clients))
    np.testing.assert_allclose(operators.gradients(x, clients), matrix.gradients(x, clients))
    np.testing.assert_allclose(operators.lipschitz(), matrix.lipschitz())


def test_custom_losses_and_their_samples() -> None:
    X, y, owner = data(0)
    parts, targets = [X[owner == i] for i in range(4)], [y[owner == i] for i in range(4)]
    matrix = LeastSquares.from_clients(parts, targets)

    def gradient(i: int, x: Any, samples: Any) -> Any:
        A, b = (parts[i], targets[i]) if samples is None else (parts[i][samples], targets[i][samples])
        return A.T @ (A @ x - b) / len(b)

    losses: Losses = Custom(
        lambda i, x: np.sum((parts[i] @ x - targets[i]) ** 2) / (2 * len(targets[i])),
        gradient,
        n_clients=4,
        shape=7,
        lipschitz=matrix.lipschitz(),
        sizes=matrix.sizes,
    )
    x = np.random.default_rng(0).standard_normal(7)
    clients = np.arange(4)
    np.testing.assert_allclose(losses.values(x, clients), matrix.values(x, clients))
    np.testing.assert_allclose(losses.gradients(x, clients), matrix.gradients(x, clients))
    # the same draws pick the same samples
    draws = Draws(3, 4, clients)
    np.testing.assert_allclose(losses.gradients(x, clients, 5, draws), matrix.gradients(x, clients, 5, draws))
    weights = np.full(4, 0.25)
    u = np.random.default_rng(1).standard_normal(7)
    expected = matrix.hessian_product(x, u, weights)
    np.testing.assert_allclose(losses.hessian_product(x, u, weights), expected, rtol=1e-6)


X0, Y0 = np.eye(3), np.array([1.0, -1.0, 1.0])
ZERO = np.array([0])
BAD: list[tuple[Any, str]] = [
    (lambda: Logistic(np.ones(3), Y0), "X must be two-dimensional"),
    (lambda: LeastSquares(np.ones((0, 3)), np.ones(0)), "X must have at least one row"),
    (lambda: Logistic(np.array([[1.0, np.nan]]), [1.0]), "y must hold both classes|X must be finite"),
    (lambda: Logistic(np.where(X0 > 0, np.nan, X0), Y0), "X must be finite, but 3 of its 9 entries"),
    (
        lambda: Logistic(scipy.sparse.csr_array(np.where(X0 > 0, np.inf, 0)), Y0),
        r"the stored entries of X must be finite, but 3 of its 3 .* the first is at index \(0, 0\)",
    ),
    (lambda: Logistic(scipy.sparse.csr_array([[1, 0], [0, 2], [3, np.nan]]), Y0), r"first is at index \(2, 1\)"),
    (lambda: Logistic(X0, Y0[:2]), "X and y must have the same length, got 3 rows and 2"),
    (lambda: Logistic(X0, [1, 2, 1]), r"y must hold labels in \{-1, 1\} or in \{0, 1\}, got 1, 2"),
    (lambda: Logistic(X0, [1, 1, 1]), "y must hold both classes, but every label is 1"),
    (lambda: Logistic(X0, [1, np.nan, 0]), "y must be finite"),
    (lambda: Logistic(X0, ["a", "b", "c"]), "y must hold real numbers"),
    (lambda: Logistic(X0.astype(complex), Y0), "X must hold real numbers"),
    (lambda: Logistic(X0, Y0, clients=[0, 1]), "clients must have one entry for each of the 3 rows"),
    (lambda: Logistic(X0, Y0, clients=[0, np.nan, 1]), "clients must name one for every entry"),
    (lambda: Logistic(X0, Y0, clients=[0, 0, 2], n_clients=4), r"2 of 4 clients hold no rows \(1, 3\)"),
    (lambda: Logistic(X0, Y0, clients=[0, 0, 4], n_clients=4), "clients must be integers from 0 to 3"),
    (lambda: Logistic(X0, Y0, n_clients=2), "n_clients needs clients"),
    (lambda: Logistic(X0, Y0, l2=-1), "l2 must be a finite number of at least 0"),
    (lambda: Logistic(X0, Y0, l2="big"), "l2 must be a finite number"),
    (lambda: Logistic(X0, Y0, l2=[0.1, 0.1]), r"l2 must be one number, or one for each of the 3 features, got shape"),
    (lambda: Logistic(X0, Y0, l2=np.ones((1, 3))), r"l2 must be one number, or one for each of the 3 features"),
    (lambda: LeastSquares(X0, Y0, l2=[0.1, -0.1, 0.0]), "l2 must be at least 0 for every feature, got -0.1 for feat"),
    (lambda: LeastSquares(X0, Y0, l2=[0.1, np.nan, 0.0]), "l2 must be finite"),
    (lambda: LeastSquares(X0, Y0, l2=[[0.1], [0.1, 0.2]]), "l2 cannot be made into an array"),
    (lambda: LeastSquares.from_clients([], []), "at least one client"),
    (lambda: LeastSquares.from_clients([X0, X0[:0]], [Y0, Y0[:0]]), "client 1 holds no rows"),
    (lambda: LeastSquares.from_clients([X0, X0[:, :2]], [Y0, Y0]), "X of client 1 has 2 columns"),
    (lambda: LeastSquares.from_clients([X0], [Y0, Y0]), "a matrix and a target vector for each client, got 1 and 2"),
    (lambda: LeastSquares.from_clients([X0], [Y0[:1]]), "y of client 0 must have shape"),
    (lambda: OperatorLeastSquares([], []), "operators must hold one operator"),
    (lambda: OperatorLeastSquares([X0], [Y0, Y0]), "an operator and a data array for each client, got 1 and 2"),
    (lambda: OperatorLeastSquares([X0, np.eye(4)], [Y0, np.ones(4)]), r"operators\[1\] acts on shape"),
    (lambda: OperatorLeastSquares([X0], [Y0[:2]]), r"data\[0\] must have shape"),
    (lambda: OperatorLeastSquares([X0], [Y0], scale="max"), "scale must be one of 'mean', 'sum'"),
    (
        lambda: OperatorLeastSquares([X0], [Y0]).gradients(np.ones(3), np.array([0]), 2),
        "batch_size must be None",
    ),
    (lambda: Custom(1, abs, n_clients=1, shape=1, lipschitz=1), "value must be a function"),
    (lambda: custom(lipschitz=-1.0), "lipschitz must be one positive number"),
    (lambda: custom(lipschitz=[1.0, 2.0, 3.0]), "lipschitz must be one positive number"),
    (lambda: custom(sizes=[0, 1]), "sizes must hold a positive number"),
    (lambda: custom(dtype=np.int64), "dtype must be float32 or float64"),
    (lambda: custom(shape=(0,)), "shape must be an integer of at least 1"),
    (lambda: custom(gradient=lambda i, x: np.ones(3)).gradients(np.ones(2), ZERO), r"gradient must return an array of"),
    (lambda: custom(gradient=lambda i, x: 1j * x).gradients(np.ones(2), ZERO), "gradient must return real numbers"),
    (lambda: custom(sizes=[2.7, 3.9]), "sizes must hold a positive number"),
    (lambda: custom().gradients(np.ones(3), ZERO), r"x must have shape \(2,\)"),
    (lambda: Logistic(X0, Y0).gradients(np.ones(2), ZERO), r"x must have shape \(3,\)"),
    (lambda: Logistic(X0, Y0).gradients(np.ones(6), ZERO), r"x must have shape \(3,\)"),
    (lambda: Logistic(X0, Y0).values(np.ones(2), ZERO), r"x must have shape \(3,\)"),
    (lambda: Logistic(broken_csr(), Y0), "X is not a valid sparse matrix"),
    (lambda: Logistic(np.ma.masked_less(X0, 0.5), Y0), "X must not be a masked array"),
    (lambda: Logistic(X0, Y0, clients=np.array(["a", None, "b"], dtype=object)), "clients must name one for every"),
    (lambda: Logistic(X0, Y0, clients=np.array([1, np.nan, 2], dtype=object)), "clients must name one for every"),
    (lambda: Logistic(X0, Y0, clients=np.array(["2020", "NaT", "2021"], "M8[Y]")), "clients must name one for every"),
    (lambda: Logistic(X0, Y0, clients=np.array(["a", 1, "b"], dtype=object)), "clients must be of one kind"),
    (lambda: Logistic(X0, Y0).gradients(np.ones(3), np.array([0]), 2), "draws must be given"),
]


def custom(gradient: Any = lambda i, x: x, **changes: Any) -> Custom:
    arguments = {"n_clients": 2, "shape": 2, "lipschitz": 1.0} | changes
    return Custom(lambda i, x: 0.5 * float(x @ x), gradient, **arguments)


def broken_csr() -> Any:
    matrix = scipy.sparse.csr_array(X0)
    matrix.indices[0] = 2**30
    return matrix


@pytest.mark.parametrize("client", [-1, 1, 10**9])
@pytest.mark.parametrize("losses", [Logistic(X0, Y0), OperatorLeastSquares([X0], [Y0])])
def test_clients_that_are_not_there_are_refused(losses: Losses, client: int) -> None:
    for function in (losses.values, losses.gradients):
        with pytest.raises(IndexError, match="clients must be numbers from 0 to 0"):
            function(np.ones(3), np.array([client]))


def test_the_users_functions_cannot_change_x() -> None:
    def spoil(i: int, x: Any) -> Any:
        x -= 1.0
        return x

    with pytest.raises(ValueError, match="read-only"):
        custom(gradient=spoil).gradients(np.ones(2), ZERO)


def test_a_singular_matrix_has_no_strong_convexity() -> None:
    """Rounding over many rows must not pass for curvature: here the true constant is exactly 0."""
    a = 0.7884283065795898
    X = scipy.sparse.csr_array(np.tile([a, 6 * a], (300_000, 1)))
    for matrix in (X, X.toarray()):
        losses = LeastSquares(matrix, np.zeros(300_000))
        assert losses.strong_convexity(np.ones(1)) == 0.0


def test_batch_smoothness_bounds_the_mean_square_of_batch_gradients(rng: np.random.Generator) -> None:
    """E‖∇f_B(x) − ∇f_B(y)‖² ≤ (L + added)² ‖x − y‖² over batches B, for a row that is much larger than the rest."""
    X = rng.standard_normal((30, 5))
    X[3] *= 20
    for matrix in (X, scipy.sparse.csr_array(X)):
        losses = LeastSquares(matrix, np.zeros(30))
        for batch in (1, 4, 30):
            added = float(losses.batch_smoothness(batch)[0])
            changes = [
                losses.gradients(np.ones(5), ZERO, batch, Draws(0, k, ZERO))[0]
                @ np.ones(5) for k in range(300)
            ]  # fmt: skip
            assert np.mean(changes) <= (losses.lipschitz()[0] + added) * 5 * 1.2
        assert losses.batch_smoothness(30)[0] == 0.0
        assert losses.batch_smoothness(1)[0] == pytest.approx((X[3] ** 2).sum())


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_arguments_are_named(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_weights_of_samples_pool_the_loss() -> None:
    X, y, owner = data(0)
    federated = fpdfp.Problem(Logistic(X, y, clients=owner), fpdfp.penalties.Zero(), weights="samples")
    pooled = fpdfp.Problem(Logistic(X, y), fpdfp.penalties.Zero())
    x = np.random.default_rng(0).standard_normal(7)
    assert federated.objective(x) == pytest.approx(pooled.objective(x), rel=1e-13)
    np.testing.assert_allclose(federated.gradient(x), pooled.gradient(x), rtol=1e-11)
    # what clients use has the gradient of the whole as its plain mean
    np.testing.assert_allclose(federated.local(np.arange(4)).gradients(x).mean(axis=0), pooled.gradient(x), rtol=1e-11)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", [Logistic, LeastSquares])
def test_pooled_rows_are_the_weighted_sum_of_the_clients(kind: Any, sparse: bool, rng: np.random.Generator) -> None:
    X, owner = rng.standard_normal((40, 6)), np.arange(40) % 3
    y = np.where(rng.random(40) < 0.5, -1.0, 1.0)
    losses = kind(scipy.sparse.csr_array(X) if sparse else X, y, clients=owner, l2=np.linspace(0.0, 0.5, 6))
    weights, x, u = np.array([0.2, 0.5, 0.3]), rng.standard_normal(6), rng.standard_normal(6)
    pooled = losses.pooled(weights)
    assert pooled is not None
    for point in (x, -x, x + 1e-9):
        np.testing.assert_allclose(pooled.value(point), losses.value(point, weights), rtol=1e-13)
        np.testing.assert_allclose(pooled.gradient(point), losses.gradient(point, weights), rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(pooled.hessian(point), losses.hessian(point, weights), rtol=1e-6)
        np.testing.assert_allclose(
            pooled.hessian_product(point, u), losses.hessian_product(point, u, weights), rtol=1e-11, atol=1e-14
        )
    # A point that has moved in place is another point.
    x[:] = u
    np.testing.assert_allclose(pooled.value(x), losses.value(u, weights), rtol=1e-13)
    assert kind(X.astype(np.float32), y, clients=owner).pooled(weights) is None
