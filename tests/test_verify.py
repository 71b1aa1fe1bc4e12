"""What a user wrote is compared with itself before it is used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator

import fpdfp
from fpdfp import linops, penalties
from fpdfp.losses import Custom
from tests import helpers

RNG = np.random.default_rng(7)
A = RNG.standard_normal((2, 30, 6))
B = RNG.standard_normal((2, 30))
LARGEST = [float(np.linalg.norm(A[i], 2) ** 2) for i in range(2)]


# Linear maps


def operator(backward: Any, matrix: Any = A[0], dtype: Any = np.float64) -> LinearOperator:
    return LinearOperator(matrix.shape, matvec=lambda x: matrix @ x, rmatvec=backward, dtype=dtype)


WRONG_ADJOINTS = {
    "a scale": lambda v: 1.01 * (A[0].T @ v),
    "a sign": lambda v: -(A[0].T @ v),
    "one entry": lambda v: A[0].T @ v - np.eye(6)[2] * A[0][3, 2] * v[3],
    "an offset": lambda v: A[0].T @ v + 1.0,
    "NaN": lambda v: np.full(6, np.nan),
}


@pytest.mark.parametrize("backward", WRONG_ADJOINTS.values(), ids=list(WRONG_ADJOINTS))
def test_a_wrong_adjoint_is_refused_by_the_name_of_the_argument(backward: Any) -> None:
    losses = fpdfp.losses.LeastSquares(A[1], B[1])
    wrong = operator(backward)
    for linop, name in (
        (wrong, "linop"),
        (linops.VStack([linops.Identity(6), wrong]), r"parts\[1\] of linop"),
        (linops.Compose(wrong, np.eye(6)), "outer of linop"),
    ):
        with pytest.raises(ValueError, match=f"^{name}: the adjoint of .*LinearOperator is not the transpose"):
            fpdfp.Problem(losses, penalties.L1(0.1), linop)
        fpdfp.Problem(losses, penalties.L1(0.1), linop, check=False)
    with pytest.raises(ValueError, match=r"^operators\[1\]: the adjoint of"):
        fpdfp.losses.OperatorLeastSquares([A[0], wrong], [B[0], B[0]])
    fpdfp.losses.OperatorLeastSquares([A[0], wrong], [B[0], B[0]], check=False)


def test_a_map_of_ones_own_is_tried_too() -> None:
    class Twice(linops.LinOp):
        in_shape = out_shape = (6,)
        back = 2.0

        def apply(self, x: Any) -> Any:
            return 2.0 * x

        def adjoint(self, v: Any) -> Any:
            return self.back * v

    losses, map_ = fpdfp.losses.LeastSquares(A[1], B[1]), Twice()
    fpdfp.Problem(losses, penalties.L1(0.1), map_)
    map_.back = 1.99
    with pytest.raises(ValueError, match="linop: the adjoint of Twice is not the transpose"):
        fpdfp.Problem(losses, penalties.L1(0.1), map_)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("size", [(3, 4000), (4000, 3), (1, 1)])
def test_right_adjoints_pass_at_every_scale_in_single_precision_too(scale: float, size: tuple[int, int]) -> None:
    matrix = (scale * RNG.standard_normal(size)).astype(np.float32)
    right = LinearOperator(
        size, matvec=lambda x: matrix @ x.astype(np.float32), rmatvec=lambda v: matrix.T @ v.astype(np.float32)
    )
    X, y = RNG.standard_normal((5, size[1])), RNG.standard_normal(5)
    fpdfp.Problem(fpdfp.losses.LeastSquares(X, y), penalties.L1(0.1), right)


# Losses


def value(i: int, x: Any) -> float:
    return 0.5 * float(np.sum((A[i] @ x - B[i]) ** 2))


def gradient(i: int, x: Any) -> Any:
    return A[i].T @ (A[i] @ x - B[i])


def custom(change: Any = {}, **changes: Any) -> Custom:  # noqa: B006
    arguments = {"value": value, "gradient": gradient, "n_clients": 2, "shape": 6, "lipschitz": LARGEST}
    return Custom(**(arguments | change | changes))


WRONG_LOSSES: dict[str, tuple[dict[str, Any], str]] = {
    "a factor": ({"gradient": lambda i, x: 2.0 * gradient(i, x)}, "gradient of client 0 disagrees with value"),
    "a sign": ({"gradient": lambda i, x: -gradient(i, x)}, "gradient of client 0 disagrees with value"),
    "no target": ({"gradient": lambda i, x: A[i].T @ (A[i] @ x)}, "gradient of client 0 disagrees with value"),
    "a ridge in one alone": ({"gradient": lambda i, x: gradient(i, x) + 3.0 * x}, "disagrees with value"),
    "one client": (
        {"gradient": lambda i, x: gradient(0, x) + (1.5 if i == 1 else 0.0), "value": lambda i, x: value(0, x)},
        "gradient of client 1",
    ),
    "small lipschitz": ({"lipschitz": 0.1}, "lipschitz of client 0 is 0.1, but its gradients at two random points"),
    "strong convexity": ({"strong_convexity": 40.0}, "strong_convexity is 40, but between two random points client 0"),
    "a hessian's factor": ({"hessian": lambda i, x: 2.0 * A[i].T @ A[i]}, "hessian of client 0 does not agree"),
    "a hessian of the other client": ({"hessian": lambda i, x: A[1].T @ A[1]}, "hessian of client 0 does not agree"),
    "a hessian that is not symmetric": ({"hessian": lambda i, x: np.triu(A[i].T @ A[i])}, "is not symmetric"),
    "a factor without lipschitz": (
        {"gradient": lambda i, x: 2.0 * gradient(i, x), "lipschitz": None},
        "gradient of client 0 disagrees with value",
    ),
    "concave": (
        {"value": lambda i, x: -value(i, x), "gradient": lambda i, x: -gradient(i, x)},
        "losses must be convex",
    ),
}


@pytest.mark.parametrize(("change", "message"), WRONG_LOSSES.values(), ids=list(WRONG_LOSSES))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wrong_losses_are_refused(change: Any, message: str, dtype: Any) -> None:
    with pytest.raises(ValueError, match=message):
        custom(change, dtype=dtype)
    custom(change, dtype=dtype, check=False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("labels", [1e-6, 1.0, 1e6])
def test_right_losses_pass_at_every_scale(dtype: Any, columns: float, labels: float) -> None:
    X, y = (columns * A).astype(dtype), (labels * B).astype(dtype)
    scales = np.geomspace(1.0, 1e3, 6).astype(dtype)
    right_losses(X, y, dtype)
    right_losses(X * scales, y, dtype)


def right_losses(X: Any, y: Any, dtype: Any) -> None:
    squared = np.array([np.linalg.norm(one, 2) ** 2 for one in X])
    Custom(
        lambda i, x: 0.5 * np.mean((X[i] @ x - y[i]) ** 2),
        lambda i, x: X[i].T @ (X[i] @ x - y[i]) / 30,
        n_clients=2, shape=6, dtype=dtype, lipschitz=squared / 30,
    )  # fmt: skip
    Custom(
        lambda i, x: np.mean(np.logaddexp(0.0, X[i] @ x)),
        lambda i, x: X[i].T @ (0.5 * (1 + np.tanh(0.5 * (X[i] @ x)))) / 30,
        n_clients=2, shape=6, dtype=dtype, lipschitz=squared / 120,
    )  # fmt: skip


def test_losses_without_a_constant() -> None:
    """Sums of exponentials: their Hessian is checked, Newton steps find the minimum, and other methods refuse."""
    counts = np.array([[1.0, 3.0], [2.0, 5.0]])
    losses = Custom(
        lambda i, x: float(np.sum(np.exp(x) - counts[i] * x)), lambda i, x: np.exp(x) - counts[i],
        hessian=lambda i, x: np.diag(np.exp(x)), n_clients=2, shape=2,
    )  # fmt: skip
    assert np.isinf(losses.lipschitz()).all()
    problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    found = fpdfp.solve(problem, fpdfp.ProximalNewton(), rounds=50, tol=1e-10)
    np.testing.assert_allclose(found.x, np.log(counts.mean(axis=0)), rtol=1e-8)
    np.testing.assert_allclose(fpdfp.minimize(problem).x, np.log(counts.mean(axis=0)), rtol=1e-6)
    for method in (None, fpdfp.FPDFP()):
        with pytest.raises(ValueError, match=r"must have Lipschitz continuous gradients for .*; ProximalNewton needs"):
            fpdfp.solve(problem, method, rounds=5)
    plain = Custom(losses._value, losses._gradient, n_clients=2, shape=2)
    with pytest.raises(ValueError, match="Hessians"):
        fpdfp.solve(fpdfp.Problem(plain, fpdfp.penalties.Zero()), fpdfp.ProximalNewton(), rounds=5)
    with pytest.raises(ValueError, match="hessian must be None unless x is a vector"):
        custom(shape=(2, 3), hessian=lambda i, x: np.eye(6), check=False)
    with pytest.raises(ValueError, match="hessian must return a matrix of shape"):
        custom(hessian=lambda i, x: np.eye(5))
    with pytest.raises(TypeError, match="hessian must be a function or None"):
        custom(hessian=3)


def test_huber_and_a_large_constant_pass() -> None:
    def huber(i: int, x: Any) -> Any:
        r = np.abs(A[i] @ x - B[i])
        return 1e9 + np.sum(np.where(r < 1, 0.5 * r**2, r - 0.5))

    custom(value=huber, gradient=lambda i, x: A[i].T @ np.clip(A[i] @ x - B[i], -1, 1))


def test_losses_of_a_class_of_ones_own_are_tried_by_the_problem() -> None:
    class Own(fpdfp.losses.LeastSquares):
        factor = 1.0

        def gradients(self, *arguments: Any, **named: Any) -> Any:
            return self.factor * super().gradients(*arguments, **named)

    losses = Own(A[0], B[0], clients=np.arange(30) % 3)
    fpdfp.Problem(losses, penalties.L1(0.1))
    losses.factor = 1.1
    with pytest.raises(ValueError, match="losses: gradient of client 0 disagrees with value"):
        fpdfp.Problem(losses, penalties.L1(0.1))
    fpdfp.Problem(losses, penalties.L1(0.1), check=False)


def test_the_packages_own_parts_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("fpdfp._verify._dot_test", never)
    monkeypatch.setattr("fpdfp._verify.verify_losses", never)
    monkeypatch.setattr("fpdfp._verify._Trial", never)
    helpers.graph_guided()


# Penalties


class Uneven(penalties.Penalty):
    """Σ up·max(y, 0) + down·max(−y, 0)."""

    def __init__(self, up: float = 2.0, down: float = 0.5) -> None:
        self.up, self.down = up, down

    def value(self, y: Any) -> float:
        return float(np.sum(self.up * np.maximum(y, 0) + self.down * np.maximum(-y, 0)))

    def prox(self, y: Any, t: float) -> Any:
        return np.maximum(y - t * self.up, 0) + np.minimum(y + t * self.down, 0)

    def conjugate(self, v: Any) -> float:
        slack = 1e-6 * (self.up + self.down) if v.dtype == np.float32 else 1e-12 * (self.up + self.down)
        return 0.0 if np.all((v <= self.up + slack) & (v >= -self.down - slack)) else np.inf


class Ball(penalties.Penalty):
    """The indicator of the unit ball of ℓ2, without any slack in value."""

    finite = False

    def value(self, y: Any) -> float:
        return 0.0 if np.linalg.norm(y) <= 1.0 + 1e-6 else np.inf

    def prox(self, y: Any, t: float) -> Any:
        return y / np.maximum(np.linalg.norm(y, axis=-1, keepdims=True), 1.0)

    project = lambda self, y: self.prox(y, 1.0)  # noqa: E731

    def conjugate(self, v: Any) -> float:
        return float(np.linalg.norm(v))


def spoiled(base: type[penalties.Penalty] = Uneven, /, **functions: Any) -> Any:
    return type("Spoiled", (base,), {**functions, "__module__": __name__})()


def in_place(self: Any, y: Any, t: float) -> Any:
    y[...] = Uneven.prox(self, y, t)
    return y


WRONG_PENALTIES: dict[str, tuple[Any, str]] = {
    "prox without t": (spoiled(prox=lambda self, y, t: Uneven.prox(self, y, 1.0)), "prox of Spoiled does not minimise"),
    "prox with 2t": (spoiled(prox=lambda self, y, t: Uneven.prox(self, y, 2 * t)), "prox of Spoiled does not minimise"),
    "prox with t/2": (spoiled(prox=lambda self, y, t: Uneven.prox(self, y, t / 2)), "prox of Spoiled does not minimis"),
    "prox with 1/t": (
        spoiled(prox=lambda self, y, t: Uneven.prox(self, y, 1 / t)),
        "prox of Spoiled does not minimise",
    ),
    "ends swapped": (spoiled(prox=lambda self, y, t: -Uneven.prox(self, -y, t)), "prox of Spoiled does not minimise"),
    "value halved": (spoiled(value=lambda self, y: Uneven.value(self, y) / 2), "prox of Spoiled does not minimise"),
    "conjugate": (spoiled(conjugate=lambda self, v: 0.1 * float(v @ v)), "conjugate of Spoiled does not agree"),
    "conjugate of half": (spoiled(conjugate=lambda self, v: Uneven.conjugate(self, 2 * v)), "conjugate of Spoiled"),
    "in place": (spoiled(prox=in_place), "prox of Spoiled changes the array"),
    "shape": (spoiled(prox=lambda self, y, t: y.sum()), "prox of Spoiled must give an array of shape"),
    "NaN": (spoiled(value=lambda self, y: np.nan), "value of Spoiled gives nan"),
    "conjugate_prox": (spoiled(conjugate_prox=lambda self, y, sigma: y), "conjugate_prox of Spoiled disagrees with"),
    "finite": (spoiled(Ball, finite=True), "value of Spoiled is infinite .* finite = False"),
    "project": (spoiled(Ball, project=lambda self, y: y), "value of Spoiled is infinite at project"),
    "client axis": (
        spoiled(Ball, prox=lambda self, y, t: y / max(np.linalg.norm(y), 1.0)),
        "prox of Spoiled must take arrays with a leading client axis",
    ),
}


@pytest.mark.parametrize(("wrong", "message"), WRONG_PENALTIES.values(), ids=list(WRONG_PENALTIES))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wrong_penalties_are_refused(wrong: Any, message: str, dtype: Any) -> None:
    losses = fpdfp.losses.LeastSquares(A[0].astype(dtype), B[0].astype(dtype))
    with pytest.raises(ValueError, match=f"^penalty: {message}"):
        fpdfp.Problem(losses, wrong)
    stacked = penalties.Stacked([penalties.L1(0.1), wrong], shapes=[6, 6])
    both = linops.VStack([linops.Identity(6), linops.Identity(6)])
    with pytest.raises(ValueError, match=rf"^parts\[1\] of penalty: {message}"):
        fpdfp.Problem(losses, stacked, both)
    fpdfp.Problem(losses, wrong, check=False)


class Square(penalties.Penalty):
    def __init__(self, weight: float) -> None:
        self.weight = weight

    def value(self, y: Any) -> float:
        return 0.5 * self.weight * float(np.vdot(y, y))

    def prox(self, y: Any, t: float) -> Any:
        return y / (1 + self.weight * t)

    def conjugate(self, v: Any) -> float:
        return 0.5 / self.weight * float(np.vdot(v, v))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weight", [1e-8, 1e-4, 1.0, 1e4, 1e8])
@pytest.mark.parametrize("rows", [1, 6, 3000])
def test_right_penalties_pass_at_every_scale(dtype: Any, weight: float, rows: int) -> None:
    from fpdfp._verify import verify_penalty

    for right in (Uneven(weight, 0.1 * weight), Uneven(0.0, weight), Square(weight), Ball()):
        verify_penalty("penalty", right, (rows,), dtype)


def test_a_prox_of_another_package_that_ignores_its_step_is_refused() -> None:
    class Shrink:
        def __call__(self, x: Any) -> float:
            return float(np.abs(x).sum())

        def prox(self, x: Any, tau: float) -> Any:
            return np.sign(x) * np.maximum(np.abs(x) - 1.0, 0.0)

    with pytest.raises(ValueError, match=r"value and prox of .*Shrink do not belong to one convex function"):
        fpdfp.Problem(fpdfp.losses.LeastSquares(A[0], B[0]), Shrink())
