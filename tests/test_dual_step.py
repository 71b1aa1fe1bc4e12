"""The dual step in one pass with a sparse B is that of NumPy and SciPy, step by step, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fpdfp
from fpdfp import linops, penalties
from fpdfp._kernels import quantize, streams
from fpdfp.linops.maps import Filter
from fpdfp.penalties import L1
from fpdfp.problem import Model
from fpdfp.quadratic.dual import DualSteps
from fpdfp.quadratic.statement import Distance


def textbook(B: Any, weight: float, half: Any, v: Any, gamma: float, sigma: float) -> tuple[Any, Any]:
    """One client after the other; entries of a row of B are added in their order, in float64."""

    def times(matrix: Any, vector: Any) -> Any:
        out = np.empty(matrix.shape[0], dtype=half.dtype)
        for row in range(matrix.shape[0]):
            total = 0.0
            for p in range(matrix.indptr[row], matrix.indptr[row + 1]):
                total += float(matrix.data[p]) * float(vector[matrix.indices[p]])
            out[row] = total
        return out

    transpose = B.T.tocsr()
    new_x, new_v = [], []
    for i, one in enumerate(half):
        dual = v if v.ndim == 1 else v[i]
        image = times(B, one - gamma * times(transpose, dual))
        new_v.append(np.clip(sigma * image + dual, -weight, weight).astype(half.dtype))
        new_x.append(one - gamma * times(transpose, new_v[-1]))
    return np.array(new_x), np.array(new_v)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("clients", [1, 3, 16, 37])
@pytest.mark.parametrize("shared", [True, False])
def test_a_sparse_matrix_and_an_l1_norm(dtype: Any, clients: int, shared: bool) -> None:
    rng = np.random.default_rng(clients)
    B = scipy.sparse.random_array((19, 11), density=0.3, rng=rng, dtype=dtype).tocsr()
    losses = fpdfp.losses.LeastSquares(np.eye(11, dtype=dtype), np.ones(11, dtype=dtype))
    model = fpdfp.Problem(losses, fpdfp.penalties.L1(0.02), B).model
    half = rng.standard_normal((clients, 11)).astype(dtype)
    half[0, 0] = -0.0
    v = (0.01 * rng.standard_normal((19,) if shared else (clients, 19))).astype(dtype)
    x, dual = model.primal_dual_step(half, v, 0.013, 0.37)
    expected_x, expected_v = textbook(B, 0.02, half, v, 0.013, 0.37)
    assert x.tobytes() == expected_x.tobytes()
    assert dual.tobytes() == expected_v.tobytes()
    assert model.dual_step(half, v, 0.013, 0.37).tobytes() == expected_v.tobytes()
    assert 0 < (abs(dual) == dtype(0.02)).sum() < dual.size
    point = half[0] if shared else half[::-1]
    stepped = model.pdfp_step(point, half, v, 0.013, 0.37)
    for one, other in zip(stepped, model.primal_dual_step(point - 0.013 * half, v, 0.013, 0.37), strict=True):
        assert one.tobytes() == other.tobytes()
        assert one.dtype == dtype


def test_what_is_no_number_stays_so() -> None:
    B = scipy.sparse.eye_array(3).tocsr()
    model = fpdfp.Problem(fpdfp.losses.LeastSquares(np.eye(3), np.ones(3)), fpdfp.penalties.L1(0.1), B).model
    x, v = model.primal_dual_step(np.array([[np.nan, 1.0, 2.0], [1.0, 1.0, 1.0]]), np.zeros(3), 0.1, 1.0)
    assert np.isnan(x).tolist() == np.isnan(v).tolist() == [[True, False, False], [False] * 3]


@pytest.mark.parametrize("codec", [streams.AUTO, streams.RANS, streams.OMEGA])
def test_small_arrays_are_compressed_at_once(codec: int) -> None:
    values = np.random.default_rng(0).standard_normal((5, 130)) * np.array([[1.0], [0.0], [1e-3], [5.0], [1.0]])
    found = []
    for compress in (quantize.compress_at_once.__wrapped__, quantize.compress_in_steps):  # type: ignore[attr-defined]
        out, bits = np.empty_like(values), np.empty(5, np.int64)
        draws = (3, 4, 16, np.arange(5), 7)
        assert compress(0, 0, values, 100, 20, *draws, codec, -20, 20, *streams.tables(), 7, out, bits)
        found.append((out, bits))
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()
    assert found[0][1][1] == 7
    assert (found[0][1][[0, 2, 3, 4]] > 130).all()


@pytest.mark.parametrize("scaled", [False, True], ids=["B", "BS"])
def test_several_dual_steps_in_one_call_are_those_of_one_after_the_other(scaled: bool) -> None:
    rng = np.random.default_rng(0)
    matrix = linops.Matrix(scipy.sparse.random_array((50, 30), density=0.1, rng=rng).tocsr())
    linop = linops.Compose(matrix, linops.Diagonal(rng.uniform(0.1, 10.0, 30))) if scaled else matrix
    model = Model(L1(0.3).bind((50,)), linop, (30,), np.dtype(np.float64))
    y, v = rng.standard_normal((1, 30)), rng.uniform(-0.3, 0.3, (1, 50))
    found = []
    for fused in (True, False):
        steps = DualSteps(model, Distance(y, 2.0), v, 1e-6, (0.0, 1.0), origin=y)
        assert steps.fused is not None
        steps.fused = steps.fused if fused else None
        found.append(steps.run(500))
    assert found[0].work == found[1].work
    assert found[0].work.steps > 20
    np.testing.assert_array_equal(found[0].u, found[1].u)
    np.testing.assert_array_equal(found[0].v, found[1].v)
    assert (v != found[0].v).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("clients", [0, 3])
@pytest.mark.parametrize("constrained", [False, True])
def test_a_step_with_a_filtered_gradient_is_that_of_the_formula(dtype: Any, clients: int, constrained: bool) -> None:
    """The kernel of a volume's total variation, at a filtered point, against the separate parts."""
    shape, rng = (4, 5, 6), np.random.default_rng(3)
    smooth = Filter(shape, 1.0 / (1.0 + np.abs(np.fft.rfftn(rng.standard_normal(shape)))))
    outer: Any = linops.Gradient(shape)
    penalty: Any = penalties.GroupL12(0.3, axis=0)
    if constrained:
        outer = linops.VStack([outer, linops.Identity(shape)])
        penalty = penalties.Stacked([penalty, penalties.NonNegative()], shapes=[(3, *shape), shape])
    linop = linops.Compose(outer, smooth)
    fit = fpdfp.losses.OperatorLeastSquares([linops.Identity(shape)], [np.zeros(shape)])
    model = fpdfp.Problem(fit, penalty, linop).model
    lead = (clients,) if clients else ()
    half = rng.standard_normal((*lead, *shape)).astype(dtype)
    v = (0.2 * rng.standard_normal((*lead, *linop.out_shape))).astype(dtype)
    x, new_v = model.primal_dual_step(half, v, 0.4, 0.7)
    expected_v = model.penalty.conjugate_prox(v + 0.7 * linop.apply(half - 0.4 * linop.adjoint(v)), 0.7)
    close: dict[str, Any] = {"rtol": 0.0, "atol": 1e-5 if dtype == np.float32 else 1e-13}
    np.testing.assert_allclose(new_v, expected_v, **close)
    np.testing.assert_allclose(x, half - 0.4 * linop.adjoint(expected_v), **close)
    assert x.dtype == new_v.dtype == dtype
