"""Preconditioners: that they are what they say, and that coordinates come and go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import linops, losses, penalties, precondition
from fpdfp.linops.base import adjoint_error
from fpdfp.precondition import agreement
from tests import helpers


class Blur(linops.LinOp):
    """A periodic blur."""

    def __init__(self, shape: tuple[int, ...], width: float) -> None:
        self.in_shape = self.out_shape = shape
        frequencies = np.meshgrid(*[np.fft.fftfreq(n) for n in shape], indexing="ij")
        self.gains = np.exp(-width * sum(f**2 for f in frequencies)) + 0.05
        self.axes = tuple(range(-len(shape), 0))

    def apply(self, x: Any) -> Any:
        return np.fft.ifftn(self.gains * np.fft.fftn(x, axes=self.axes), axes=self.axes).real

    def adjoint(self, v: Any) -> Any:
        return self.apply(v)


def deblurring(shape: tuple[int, ...]) -> fpdfp.Problem:
    """Three clients whose blurs differ a little, and total variation."""
    operators = [Blur(shape, 60.0 + 6.0 * i) for i in range(3)]
    truth = np.zeros(shape)
    truth[tuple(slice(n // 4, n // 2) for n in shape)] = 1.0
    generator = np.random.default_rng(0)
    data = [operator.apply(truth) + 0.01 * generator.standard_normal(shape) for operator in operators]
    loss = losses.OperatorLeastSquares(operators, data, scale="sum")
    return fpdfp.Problem(loss, penalties.GroupL12(0.01, axis=0), linops.Gradient(shape))


@pytest.mark.parametrize("shape", [(9,), (6, 7), (4, 6, 5)])
def test_a_convolution_is_inverted(shape: tuple[int, ...]) -> None:
    """For a periodic convolution above the floor SᵀHS is the identity; x → u → x is exact."""
    frequencies = np.meshgrid(*[np.fft.fftfreq(n) for n in shape], indexing="ij")
    spectrum = 1.0 + np.cos(2 * np.pi * sum(frequencies)) ** 2
    kernel = np.fft.ifftn(spectrum).real
    fourier = precondition.Fourier(np.roll(kernel, tuple(n // 2 for n in shape), range(len(shape))))
    u = np.random.default_rng(1).standard_normal((3, *shape))
    x = fourier.factor.apply(u)
    axes = tuple(range(1, x.ndim))
    hessian = np.fft.ifftn(spectrum * np.fft.fftn(x, axes=axes), axes=axes).real
    np.testing.assert_allclose(fourier.factor.adjoint(hessian), u, atol=1e-6)
    np.testing.assert_allclose(fourier.coordinates(x), u, atol=1e-12)
    np.testing.assert_allclose(fourier.gradient(fourier.factor.adjoint(x)), x, atol=1e-12)
    assert adjoint_error(fourier.factor) < 1e-14
    assert fourier.factor.apply(u.astype(np.float32)).dtype == np.float32
    assert np.linalg.norm(fourier.factor.apply(u[0])) ** 2 <= fourier.factor.squared_norm * np.linalg.norm(u[0]) ** 2


def test_the_floor_raises_weak_frequencies() -> None:
    impulse = np.zeros(8)
    impulse[4] = 1.0
    smooth = impulse + np.roll(impulse, 1) / 2 + np.roll(impulse, -1) / 2  # 1 + cos, zero at the highest frequency
    for floor in (0.05, 0.5):
        gains = precondition.Fourier(smooth, floor=floor).factor.gains
        np.testing.assert_allclose(gains.max() ** -2, 2 * floor, rtol=1e-6)


def test_clients_send_their_responses_once() -> None:
    problem = deblurring((12, 10))
    methods: list[Any] = []
    method = fpdfp.ShiftedPDFP(preconditioner="fourier")
    result = fpdfp.solve(problem, method, rounds=1, callbacks=[lambda run: methods.append(run.algorithm)])
    assert result.bits_once_up == 3 * (32 * 120 + 64 + 88 + 80)
    assert result.bits_once_down == 3 * (32 * 120 + 88)
    S = methods[0].factor
    columns = np.eye(120).reshape(120, 12, 10)
    gram = np.stack([
        S.adjoint(problem.losses.hessian_product(0 * e, S.apply(e), problem.weights)).ravel() for e in columns
    ])  # fmt: skip
    assert np.linalg.eigvalsh(gram)[-1] <= problem.lipschitz_in(S).mean()
    assert np.linalg.eigvalsh(gram)[-1] == pytest.approx(1.0, rel=1e-5)


def test_a_blur_takes_fewer_rounds_in_fourier_coordinates() -> None:
    problem = deblurring((12, 12))
    best = fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=500, evaluate_every=500).objective

    def rounds(kind: Any) -> int:
        method, quantizer = fpdfp.ShiftedPDFP(preconditioner=kind), fpdfp.QSGD(7, norm="max")

        def close(run: fpdfp.Run) -> bool:
            return run.problem.objective(run.x) <= best * (1 + 1e-3)

        return fpdfp.solve(
            problem, method, rounds=400, compressor=quantizer, callbacks=[close], evaluate_every=400
        ).rounds

    in_fourier = rounds("fourier")
    assert in_fourier < 0.6 * rounds(None)
    assert rounds("auto") == in_fourier


@pytest.mark.parametrize("kind", [precondition.Whitening, precondition.Scaling])
def test_every_row_of_x_gets_the_same(kind: Any, rng: np.random.Generator) -> None:
    root = rng.standard_normal((5, 5))
    curvature = root @ root.T + np.eye(5) if kind is precondition.Whitening else 0.1 + rng.random(5)
    one, several = kind(curvature), kind(curvature, rows=3)
    u = rng.standard_normal((4, 3, 5))
    assert several.factor.in_shape == several.factor.out_shape == (3, 5)
    for x, slope, point in zip(several.factor.apply(u), several.gradient(u), u, strict=True):
        for k in range(3):
            np.testing.assert_array_equal(x[k], one.factor.apply(point[k]))
            np.testing.assert_array_equal(slope[k], one.gradient(point[k]))
        np.testing.assert_allclose(several.coordinates(x), point, atol=1e-12)
        np.testing.assert_allclose(several.factor.adjoint(slope), point, atol=1e-12)
    np.testing.assert_array_equal(one.numbers, several.numbers)
    assert adjoint_error(several.factor) < 1e-14


def test_auto_takes_what_the_losses_allow() -> None:
    zoo = helpers.zoo()
    assert agreement.automatic(zoo["lasso"].losses) == "moments"
    assert agreement.automatic(zoo["softmax"].losses) == "moments"
    assert agreement.automatic(zoo["isotropic TV"].losses) == "fourier"
    wide = losses.Logistic(np.ones((2, agreement.MOMENTS + 1)), [1.0, -1.0])
    assert agreement.automatic(wide) == "diagonal"
    assert agreement.automatic(losses.Softmax(np.ones((2, agreement.MOMENTS + 1)), [0, 1])) == "diagonal"
    several = losses.Softmax(np.ones((601, 600)), np.arange(601) % 2)  # 1,200 coordinates, but 600 features
    assert agreement.automatic(several) == "moments"


def test_auto_leaves_coordinates_that_do_not_help() -> None:
    """The operators of this one are random: no convolution at all."""
    methods: list[Any] = []
    problem = helpers.zoo()["isotropic TV"]
    fpdfp.solve(problem, rounds=1, callbacks=[lambda run: methods.append(run.algorithm)])
    assert methods[0].coordinates is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: precondition.Fourier(1.0), "response must have the shape of x"),
        (lambda: precondition.Fourier(np.ones(3), centre=(3,)), "centre must be a place in an array of shape"),
        (lambda: precondition.Fourier(np.ones(3), centre=(0, 0)), "centre must be a place"),
        (lambda: precondition.Fourier(np.ones(3), floor=2.0), "floor must be at most 1"),
        (lambda: precondition.Fourier(np.array([1.0, np.nan])), "response must be finite"),
        (lambda: precondition.Fourier(np.zeros(4)).factor, "response must belong to a positive semidefinite"),
        (lambda: precondition.Whitening(np.eye(2), smoothness=0.0), "smoothness must be a finite number greater than"),
        (lambda: precondition.Whitening(np.eye(2), rows=0), "rows must be an integer of at least 1"),
        (lambda: precondition.Scaling(np.ones(2), rows=0), "rows must be an integer of at least 1"),
    ],
)
def test_wrong_arguments_are_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_matrix_of_ones_own_is_not_taken_for_a_bound() -> None:
    """A tenth of the Hessian's bound: the step must come from the losses, or the method diverges."""
    problem = helpers.graph_guided()
    bounds = problem.losses.curvatures(np.arange(5))
    assert bounds is not None
    method = fpdfp.ShiftedPDFP(preconditioner=precondition.Whitening(0.1 * bounds.mean(axis=0)), momentum=False)
    seen: list[Any] = []
    result = fpdfp.solve(problem, method, rounds=300, callbacks=[lambda run: seen.append(run.algorithm)])
    assert seen[0].step(0) < 0.11
    assert result.certificate.relative_gap is not None
    assert result.certificate.relative_gap < 1e-9


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 9])
def test_columns_of_very_different_sizes_get_units_first(seed: int) -> None:
    """With a whitening the first and the fourth of these diverged, and the others took more than 1,500 rounds."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((120, 10)) * 10.0 ** rng.uniform(-6, 6, 10)
    model = fpdfp.losses.Softmax(X, rng.integers(0, 3, 120), np.arange(120) % 4)
    slopes = model.gradients(np.zeros(model.shape), np.arange(4)).mean(axis=0)
    groups = np.tile(np.arange(10), (3, 1))
    penalty = fpdfp.penalties.GroupL12(0.05 * float(np.abs(slopes).max()), groups=groups)
    problem = fpdfp.Problem(model, penalty)
    result = fpdfp.solve(problem, rounds=200, tol=1e-6)
    assert result.status == "converged"
    assert isinstance(result.algorithm.coordinates, precondition.Scaling)  # type: ignore[union-attr]
    # The units are powers of two.
    assert (np.frexp(result.algorithm.coordinates.numbers)[0] == 0.5).all()  # type: ignore[union-attr]


def test_a_group_norm_in_other_units_is_one() -> None:
    rng = np.random.default_rng(0)
    y, factors = rng.standard_normal((3, 4)), np.tile([0.5, 2.0, 1.0, 8.0], (3, 1))
    for penalty in (
        fpdfp.penalties.GroupL12([1.0, 2.0, 3.0, 4.0], groups=np.tile(np.arange(4), (3, 1))),
        fpdfp.penalties.GroupL12(0.7, axis=0).bind((3, 4)),
    ):
        alike = penalty.rescale(factors)
        assert alike is not None
        assert np.isclose(alike.value(y), penalty.value(factors * y), rtol=1e-15)
        assert penalty.rescale(np.arange(1.0, 13.0).reshape(3, 4)) is None
