"""Losses over projections: values, gradients, constants, mini-batches, and runs of methods with them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import linops, penalties
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.losses import ProjectionLosses
from fpdfp.ct.projector import XRayTransform
from fpdfp.rng import Draws
from tests import helpers

SHAPE, VIEWS = (8, 7, 4), 11
OWNERS = np.array(["b", "a", "c", "a", "a", "b", "c", "a", "a", "c", "a"])


@functools.cache
def scan() -> ConeBeam:
    return ConeBeam.circular(SHAPE, (12, 8), views=VIEWS, source=40.0, panel=60.0)


@functools.cache
def matrix() -> Any:
    """The projector as a matrix (views, pixels, voxels)."""
    unit = np.eye(int(np.prod(SHAPE))).reshape(-1, *SHAPE)
    return XRayTransform(scan()).apply(unit).reshape(len(unit), VIEWS, -1).transpose(1, 2, 0)


def truth() -> Any:
    x = np.zeros(SHAPE, dtype=np.float32)
    x[2:6, 2:5, 1:3] = 1.0
    x[3, 3, 2] = 2.0
    return x


def data() -> Any:
    noise = np.random.default_rng(1).standard_normal(scan().data_shape)
    return (XRayTransform(scan()).apply(truth()) + 0.05 * noise).astype(np.float32)


def losses(**kwargs: Any) -> ProjectionLosses:
    return ProjectionLosses(data(), scan(), OWNERS, **kwargs)


def point(clients: int | None = None) -> Any:
    shape = SHAPE if clients is None else (clients, *SHAPE)
    return np.random.default_rng(2).random(shape).astype(np.float32)


EVERYONE = np.arange(3)


@pytest.mark.parametrize("scale", ["sum", "mean"])
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_values_gradients_and_hessians_are_those_of_matrices(scale: str, l2: float) -> None:
    ours = losses(scale=scale, l2=l2)
    assert ours.sizes.tolist() == [6, 2, 3]
    assert ours.client_names.tolist() == ["a", "b", "c"]
    x, b = point(), data().reshape(VIEWS, -1)
    values, gradients = ours.values(x, EVERYONE), ours.gradients(x, EVERYONE)
    assert gradients.dtype == ours.dtype == np.float32
    weights = np.array([0.5, 0.2, 0.3])
    hessian = np.zeros((x.size, x.size))
    for i, name in enumerate("abc"):
        A = matrix()[name == OWNERS].reshape(-1, x.size)
        residual = A @ x.ravel().astype(np.float64) - b[name == OWNERS].ravel()
        c = 1.0 if scale == "sum" else 1.0 / len(residual)
        assert values[i] == pytest.approx(c * residual @ residual / 2 + l2 * float((x * x).sum()) / 2, rel=1e-5)
        expected = c * (A.T @ residual).reshape(SHAPE) + l2 * x
        np.testing.assert_allclose(gradients[i], expected, rtol=0, atol=1e-5 * abs(expected).max())
        hessian += weights[i] * (c * A.T @ A + l2 * np.eye(x.size))
    direction = point()[::-1]
    product = ours.hessian_product(x, direction, weights)
    expected = (hessian @ direction.ravel()).reshape(SHAPE)
    np.testing.assert_allclose(product, expected, rtol=0, atol=1e-5 * abs(expected).max())
    together = ours.gradient(x, weights)
    np.testing.assert_allclose(together, np.tensordot(weights, gradients, 1), rtol=1e-4, atol=1e-5)


def test_a_client_has_the_same_bits_whoever_else_is_there() -> None:
    ours, x = losses(scale="mean"), point()
    whole, values = ours.gradients(x, EVERYONE), ours.values(x, EVERYONE)
    for clients in ([2], [1, 2], [2, 0], [0, 1]):
        np.testing.assert_array_equal(ours.gradients(x, np.array(clients)), whole[clients])
        np.testing.assert_array_equal(ours.values(x, np.array(clients)), values[clients])
    each = np.stack([x, 2 * x, x])
    apart = ours.gradients(each, EVERYONE)
    np.testing.assert_array_equal(apart[[0, 2]], whole[[0, 2]])
    np.testing.assert_array_equal(apart[1], ours.gradients(2 * x, np.array([1]))[0])


@pytest.mark.parametrize("views", [1, 2, 3, 7])
def test_little_memory_takes_clients_in_turn(views: int) -> None:
    """Room for some views at a time; a client with more is worked out in parts."""
    small, large, x = losses(memory=views * 2 * 4 * 12 * 8), losses(), point()
    np.testing.assert_allclose(small.values(x, EVERYONE), large.values(x, EVERYONE), rtol=1e-6)
    one, other = small.gradients(x, EVERYONE), large.gradients(x, EVERYONE)
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * abs(other).max())
    for client in EVERYONE:
        np.testing.assert_array_equal(small.gradients(x, np.array([client]))[0], one[client])


def test_constants_bound_the_matrices_closely() -> None:
    for scale in ("sum", "mean"):
        ours = losses(scale=scale, l2=0.1)
        for i, name in enumerate("abc"):
            A = matrix()[name == OWNERS].reshape(-1, int(np.prod(SHAPE)))
            c = 1.0 if scale == "sum" else 1.0 / len(A)
            true = c * np.linalg.norm(A, 2) ** 2 + 0.1
            assert true <= ours.lipschitz()[i] <= 1.02 * true
            largest = max(np.linalg.norm(view, 2) ** 2 for view in matrix()[name == OWNERS])
            m, b = ours.sizes[i], 2
            needed = (m - b) / (b * max(m - 1, 1)) * (m * c * largest + 0.1) if m > b else 0.0
            assert needed <= ours.batch_smoothness(b)[i] <= 3 * needed


def test_constants_in_other_coordinates() -> None:
    ours = losses()
    factor = linops.Diagonal(np.linspace(0.5, 2.0, int(np.prod(SHAPE))).reshape(SHAPE))
    found = ours.lipschitz_in(factor)
    for i, name in enumerate("abc"):
        A = matrix()[name == OWNERS].reshape(-1, int(np.prod(SHAPE))) * factor.factors.ravel()
        true = np.linalg.norm(A, 2) ** 2
        assert true <= found[i] <= 1.3 * true


def test_unseen_voxels_do_not_spoil_the_constants() -> None:
    narrow = ConeBeam.circular(SHAPE, (4, 2), views=3, source=40.0, panel=60.0, pixel=0.5)
    operator = XRayTransform(narrow)
    assert (operator.adjoint(np.ones(narrow.data_shape)) == 0).any()
    A = operator.apply(np.eye(int(np.prod(SHAPE))).reshape(-1, *SHAPE)).reshape(int(np.prod(SHAPE)), -1)
    bound = ProjectionLosses(np.zeros(narrow.data_shape), narrow).lipschitz()[0]
    true = np.linalg.norm(A, 2) ** 2
    assert true <= bound <= 1.3 * true


def test_no_ray_through_the_volume_means_no_curvature() -> None:
    aside = ConeBeam.circular(SHAPE, (2, 2), views=2, source=40.0, panel=60.0, pixel=0.5, offset=(50.0, 0.0))
    assert ProjectionLosses(np.zeros(aside.data_shape), aside).lipschitz().tolist() == [0.0]


def test_batches_are_views_and_unbiased() -> None:
    ours, x = losses(), point()
    whole = ours.gradients(x, EVERYONE)
    single = {}
    for view in range(VIEWS):
        alone = ProjectionLosses(data()[[view]], scan().subset([view]))
        single[view] = alone.gradients(x, np.array([0]))[0]
    seen: set[int] = set()
    for k in range(40):
        drawn = ours.gradients(x, EVERYONE, 1, Draws(3, k, EVERYONE))
        for client, name in enumerate("abc"):
            own = np.flatnonzero(name == OWNERS).tolist()
            close = [v for v in own if np.allclose(drawn[client], len(own) * single[v], rtol=1e-4, atol=1e-3)]
            assert len(close) == 1
            seen.update(close)
        np.testing.assert_array_equal(ours.gradients(x, EVERYONE[1:], 1, Draws(3, k, EVERYONE[1:])), drawn[1:])
    assert seen == set(range(VIEWS))
    np.testing.assert_array_equal(ours.gradients(x, EVERYONE, 100, Draws(3, 0, EVERYONE)), whole)
    two = np.mean([ours.gradients(x, EVERYONE[:1], 2, Draws(3, k, EVERYONE[:1]))[0] for k in range(400)], axis=0)
    assert np.linalg.norm(two - whole[0]) < 0.1 * np.linalg.norm(whole[0])


def test_bad_arguments_are_refused() -> None:
    good = data()
    with pytest.raises(ValueError, match="projections must have shape"):
        ProjectionLosses(good[1:], scan(), OWNERS)
    with pytest.raises(ValueError, match="projections must be finite"):
        ProjectionLosses(np.where(good > 1, np.nan, good), scan(), OWNERS)
    with pytest.raises(ValueError, match="clients must have one entry for each of the 11 views"):
        ProjectionLosses(good, scan(), OWNERS[1:])
    with pytest.raises(ValueError, match="scale must be one of"):
        ProjectionLosses(good, scan(), OWNERS, scale="median")
    with pytest.raises(ValueError, match="memory must be"):
        ProjectionLosses(good, scan(), OWNERS, memory=0)
    with pytest.raises(TypeError, match="geometry must be"):
        ProjectionLosses(good, "scan", OWNERS)  # type: ignore[arg-type]
    ours = losses()
    with pytest.raises(ValueError, match="x must have shape"):
        ours.values(np.zeros((2, 2, 2), dtype=np.float32), EVERYONE)
    with pytest.raises(IndexError, match="clients must be numbers"):
        ours.gradients(point(), np.array([3]))
    with pytest.raises(ValueError, match="draws must be given"):
        ours.gradients(point(), EVERYONE, 1)


def total_variation(nonnegative: bool = False, **kwargs: Any) -> fpdfp.Problem:
    group = penalties.GroupL12(0.05, axis=0)
    if not nonnegative:
        return fpdfp.Problem(losses(**kwargs), group, linops.Gradient(SHAPE))
    both = penalties.Stacked([group, penalties.NonNegative()], shapes=[(3, *SHAPE), SHAPE])
    return fpdfp.Problem(losses(**kwargs), both, linops.VStack([linops.Gradient(SHAPE), linops.Identity(SHAPE)]))


@pytest.mark.parametrize("nonnegative", [False, helpers.slow(True, True)])
def test_methods_reconstruct(nonnegative: bool) -> None:
    problem = total_variation(nonnegative)
    best = fpdfp.solve(problem, fpdfp.PDFP(), rounds=600, progress=False)
    start = problem.evaluate(np.zeros(SHAPE, dtype=np.float32))[0]
    error = np.linalg.norm(best.x - truth()) / np.linalg.norm(truth())
    assert error < 0.2
    quantizer = fpdfp.QSGD(levels=50, norm="max", block=100 if nonnegative else (2,))
    runs = {
        fpdfp.FPDFP(): 0.1,
        fpdfp.FPDFP(batch_size=1): 0.3,
        fpdfp.ShiftedPDFP(): 1e-3,
        fpdfp.ShiftedPDFP(preconditioner="fourier"): 1e-3,
        fpdfp.ShiftedPDFP(batch_size=2): 2e-2,
    }
    for method, allowed in runs.items():
        result = fpdfp.solve(
            problem, method, rounds=150, clients_per_round=2, compressor=quantizer, evaluate_every=50, progress=False
        )
        assert result.x.dtype == np.float32
        assert result.objective - best.objective < allowed * (start - best.objective), method


def test_the_default_method_finds_coordinates() -> None:
    """Without a method solve takes a Fourier preconditioner, or sees that it does not help."""
    problem = total_variation()
    result = fpdfp.solve(problem, rounds=100, progress=False)
    best = fpdfp.solve(problem, fpdfp.PDFP(), rounds=600, progress=False)
    assert result.objective < best.objective * 1.05


def test_checkpoints_go_on_to_the_same_bits(tmp_path: Any) -> None:
    problem = total_variation()
    keywords: dict[str, Any] = {"clients_per_round": 2, "compressor": fpdfp.QSGD(20), "progress": False}
    for method in (fpdfp.FPDFP(), fpdfp.ShiftedPDFP()):
        whole = fpdfp.solve(problem, method, rounds=12, **keywords)
        path = tmp_path / f"{type(method).__name__}.npz"
        fpdfp.solve(problem, method, rounds=5, checkpoint=path, **keywords)
        resumed = fpdfp.solve(problem, method, rounds=12, checkpoint=path, resume=True, **keywords)
        np.testing.assert_array_equal(whole.x, resumed.x)
