"""Total variation of volumes in one pass: the same bits as NumPy's operations over whole arrays."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

import fpdfp
from fpdfp import linops, penalties
from fpdfp.problem import Model
from fpdfp.quadratic import dual as dual_steps

SHAPES = [(1, 1, 1), (1, 5, 3), (4, 1, 6), (3, 4, 1), (2, 2, 2), (5, 6, 7), (16, 3, 4), (17, 5, 9), (40, 3, 2)]
KINDS = ["isotropic", "anisotropic", "isotropic, non-negative", "anisotropic, non-negative"]


def model_of(kind: str, shape: tuple[int, int, int], dtype: Any) -> Model:
    dual = (3, *shape)
    penalty: penalties.Penalty = (
        penalties.L1(0.7) if kind.startswith("an") else penalties.GroupL12(0.7, axis=0).bind(dual)
    )
    linop: linops.LinOp = linops.Gradient(shape)
    if kind.endswith("non-negative"):
        penalty = penalties.Stacked([penalty, penalties.NonNegative()], shapes=[dual, shape])
        linop = linops.VStack([linop, linops.Identity(shape)])
    return Model(penalty, linop, shape, np.dtype(dtype))


def plain_gradient(x: Any) -> Any:
    """∇x of one volume by NumPy."""
    return np.stack([np.diff(x, axis=axis, append=np.take(x, [-1], axis=axis)) for axis in range(3)])


def plain_adjoint(v: Any) -> Any:
    """∇ᵀv of one dual by NumPy."""
    out = np.zeros(v.shape[1:], dtype=v.dtype)
    for axis in range(3):
        part = np.moveaxis(v[axis], axis, 0)[:-1]
        target = np.moveaxis(out, axis, 0)
        target[1:] += part
        target[:-1] -= part
    return out


def arrays(shape: tuple[int, ...], dtype: Any, clients: int = 3, components: int = 3) -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((clients, *shape))
    v = generator.standard_normal((clients, components, *shape)) * (generator.random(shape) < 0.8)
    return x.astype(dtype), v.astype(dtype)


def by_numpy(model: Model, half: Any, v: Any, gamma: float, sigma: float) -> tuple[Any, Any]:
    """The step of one client, an operation after the other."""
    shape = model.shape
    parts = v.reshape(-1, *shape)

    def adjoint(parts: Any) -> Any:
        total = plain_adjoint(parts[:3])
        return total + parts[3] if len(parts) == 4 else total

    point = half - gamma * adjoint(parts)
    image = plain_gradient(point) if len(parts) == 3 else np.concatenate([plain_gradient(point), point[None]])
    new = model.penalty.conjugate_prox((sigma * image).reshape(model.dual_shape) + v, sigma)
    return half - gamma * adjoint(new.reshape(-1, *shape)), new


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_and_adjoint_have_the_bits_of_numpy(shape: tuple[int, int, int], dtype: Any) -> None:
    x, v = arrays(shape, dtype)
    linop = linops.Gradient(shape)
    for i in range(len(x)):
        np.testing.assert_array_equal(linop.apply(x)[i], plain_gradient(x[i]))
        np.testing.assert_array_equal(linop.apply(x[i]), plain_gradient(x[i]))
        np.testing.assert_array_equal(linop.adjoint(v)[i], plain_adjoint(v[i]))
        np.testing.assert_array_equal(linop.adjoint(v[i]), plain_adjoint(v[i]))
    assert linop.apply(x).dtype == linop.adjoint(v).dtype == dtype
    turned = np.asfortranarray(x)
    np.testing.assert_array_equal(linop.apply(turned), linop.apply(x))
    assert linop.apply(x[:0]).shape == (0, 3, *shape)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_step_has_the_bits_of_numpy(shape: tuple[int, int, int], kind: str, dtype: Any) -> None:
    model = model_of(kind, shape, dtype)
    assert dual_steps.total_variation(model) is not None
    half, v = arrays(shape, dtype, components=model.linop.size_out // model.linop.size_in)
    v = v.reshape(len(v), *model.dual_shape)
    gamma, sigma = 0.3, 0.25
    for duals in (v, v[0]):  # one for each client, one for all
        x_new, v_new = model.primal_dual_step(half, duals, gamma, sigma)
        np.testing.assert_array_equal(model.dual_step(half, duals, gamma, sigma), v_new)
        assert x_new.dtype == v_new.dtype == dtype
        for i in range(len(half)):
            own = duals if duals.ndim == len(model.dual_shape) else duals[i]
            x_plain, v_plain = by_numpy(model, half[i], own, gamma, sigma)
            np.testing.assert_array_equal(v_new[i], v_plain)
            np.testing.assert_array_equal(x_new[i], x_plain)
            alone = model.primal_dual_step(half[i], own, gamma, sigma)
            np.testing.assert_array_equal(alone[0], x_plain)
            np.testing.assert_array_equal(alone[1], v_plain)


def test_threads_do_not_change_bits() -> None:
    model = model_of("isotropic", (40, 6, 5), np.float32)
    half, v = arrays(model.shape, np.float32)
    available = numba.get_num_threads()
    together = model.primal_dual_step(half, v, 0.3, 0.25)
    try:
        numba.set_num_threads(1)
        alone = model.primal_dual_step(half, v, 0.3, 0.25)
    finally:
        numba.set_num_threads(available)
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(one, other)


def test_other_penalties_take_the_long_way() -> None:
    shape = (3, 4, 5)
    dual = (3, *shape)
    gradient = linops.Gradient(shape)
    group = penalties.GroupL12(0.1, axis=0).bind(dual)
    stack = linops.VStack([gradient, linops.Identity(shape)])
    nonnegative = penalties.NonNegative()
    others: list[tuple[penalties.Penalty, linops.LinOp]] = [
        (penalties.GroupL12(0.1, axis=1).bind(dual), gradient),
        (penalties.GroupL12(np.full(shape, 0.1), axis=0).bind(dual), gradient),
        (penalties.L1(np.full(dual, 0.1)), gradient),
        (penalties.Zero(), gradient),
        (penalties.L1(0.1), linops.Identity(shape)),
        (penalties.L1(0.1), stack),
        (penalties.Stacked([group, penalties.Box(0.0, 1.0)], shapes=[dual, shape]), stack),
        (penalties.Stacked([nonnegative, group], shapes=[shape, dual]), stack),
    ]
    half, _ = arrays(shape, np.float64)
    for penalty, linop in others:
        model = Model(penalty, linop, shape, np.dtype(np.float64))
        assert dual_steps.total_variation(model) is None
        own = np.zeros((len(half), *linop.out_shape))
        x_new, v_new = model.primal_dual_step(half - 0.3 * (0.1 * half), own, 0.3, 0.1 / 0.3)
        assert x_new.shape == half.shape
        assert v_new.shape == own.shape
    two = Model(penalties.GroupL12(0.1, axis=0).bind((2, 4, 5)), linops.Gradient((4, 5)), (4, 5), np.dtype(np.float64))
    assert dual_steps.total_variation(two) is None


def test_a_denoised_volume_is_optimal() -> None:
    """The fused step inside a solver: min ½‖x − b‖² + TV(x), certified by its duality gap."""
    shape = (6, 5, 4)
    noisy = np.zeros(shape)
    noisy[2:5, 1:4, 1:3] = 1.0
    noisy += 0.1 * np.random.default_rng(0).standard_normal(shape)
    losses = fpdfp.losses.OperatorLeastSquares([linops.Identity(shape)], [noisy], scale="sum", l2=0.01)
    problem = fpdfp.Problem(losses, penalties.GroupL12(0.1, axis=0), linops.Gradient(shape))
    for method in (fpdfp.PDFP(), fpdfp.FPDFP(step=0.5), fpdfp.ShiftedPDFP()):
        result = fpdfp.solve(problem, method, rounds=5000, tol=1e-5, progress=False)
        assert result.status == "converged", method
