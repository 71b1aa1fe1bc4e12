"""Whole runs on the GPU: x, v, messages and memory are CuPy arrays, and the results are those of the processor.

``python -m tests.test_gpu_engine`` runs the same on a machine without pytest.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fpdfp
from fpdfp import linops, penalties
from fpdfp._array import to_host
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.losses import ProjectionLosses
from fpdfp.ct.projector import XRayTransform
from fpdfp.problem import Model
from fpdfp.rng import Draws
from tests import gpu_checks

SHAPE, VIEWS, CLIENTS = (16, 14, 8), 24, 6
#: How far results of the two may be apart, relative to the largest number; rounding at random may go the other way.
CLOSE, CLOSE_QUANTIZED = 1e-4, 2e-2


def scan() -> ConeBeam:
    return ConeBeam.circular(SHAPE, (24, 16), views=VIEWS, source=80.0, panel=120.0)


def data() -> Any:
    x = np.zeros(SHAPE, dtype=np.float32)
    x[4:12, 3:10, 2:6] = 1.0
    x[6:8, 5:7, 3:5] = 2.0
    noise = 0.05 * np.random.default_rng(0).standard_normal(scan().data_shape)
    return (XRayTransform(scan()).apply(x) + noise).astype(np.float32)


def problem(xp: Any, nonnegative: bool = False, l2: float = 0.0, **kwargs: Any) -> fpdfp.Problem:
    losses = ProjectionLosses(xp.asarray(data()), scan(), np.arange(VIEWS) % CLIENTS, l2=l2, **kwargs)
    group = penalties.GroupL12(0.1, axis=0)
    if not nonnegative:
        return fpdfp.Problem(losses, group, linops.Gradient(SHAPE))
    both = penalties.Stacked([group, penalties.NonNegative()], shapes=[(3, *SHAPE), SHAPE])
    return fpdfp.Problem(losses, both, linops.VStack([linops.Gradient(SHAPE), linops.Identity(SHAPE)]))


def assert_close(there: Any, here: Any, within: float, what: object) -> None:
    assert type(there).__module__.startswith("cupy"), f"{what}: not on the GPU"
    error = float(np.abs(to_host(there) - here).max()) / max(float(np.abs(here).max()), 1e-30)
    assert error <= within, f"{what}: relative error {error:.2g}"


def check_total_variation() -> None:
    """Gradient, adjoint and the fused step have the bits of the processor, but for products that are contracted."""
    import cupy

    generator = np.random.default_rng(0)
    for shape, dtype in itertools.product([(1, 1, 1), (3, 1, 5), (17, 15, 33), (40, 30, 64)], (np.float32, np.float64)):
        x = generator.standard_normal((3, *shape)).astype(dtype)
        v = generator.standard_normal((3, 4, *shape)).astype(dtype)
        gradient, dual = linops.Gradient(shape), (3, *shape)
        within = 1e-6 if dtype == np.float32 else 1e-13
        assert_close(gradient.apply(cupy.asarray(x)), gradient.apply(x), within, f"gradient {shape}")
        assert_close(gradient.adjoint(cupy.asarray(v[:, :3])), gradient.adjoint(v[:, :3]), within, f"adjoint {shape}")
        for penalty in (penalties.GroupL12(0.7, axis=0).bind(dual), penalties.L1(0.7)):
            stack = linops.VStack([gradient, linops.Identity(shape)])
            stacked = penalties.Stacked([penalty, penalties.NonNegative()], shapes=[dual, shape])
            cases: list[tuple[Model, Any]] = [
                (Model(penalty, gradient, shape, np.dtype(dtype)), v[:, :3]),
                (Model(stacked, stack, shape, np.dtype(dtype)), v.reshape(3, -1)),
            ]
            for model, duals in cases:
                for own in (duals, duals[0]):
                    there = model.primal_dual_step(cupy.asarray(x), cupy.asarray(own), 0.3, 0.25)
                    here = model.primal_dual_step(x, own, 0.3, 0.25)
                    for one, other, name in zip(there, here, ("x", "v"), strict=True):
                        assert_close(one, other, within, f"{name} of {penalty} {shape} {dtype}")
                alone = model.primal_dual_step(cupy.asarray(x[1]), cupy.asarray(duals[1]), 0.3, 0.25)
                both = model.primal_dual_step(cupy.asarray(x), cupy.asarray(duals), 0.3, 0.25)
                assert bool((alone[0] == both[0][1]).all())
                assert bool((alone[1] == both[1][1]).all())


def check_penalties() -> None:
    """Every function of the penalties that methods call, on arrays here and there."""
    import cupy

    generator = np.random.default_rng(1)
    dual = (3, 4, 5, 6)
    y = generator.standard_normal((2, *dual)).astype(np.float32)
    found: list[penalties.Penalty] = [
        penalties.L1(0.3),
        penalties.L1(generator.random(dual)),
        penalties.GroupL12(0.3, axis=0).bind(dual),
        penalties.GroupL12(generator.random(dual[1:]), axis=0).bind(dual),
        penalties.Box(-0.1, 0.5),
        penalties.Box(-generator.random(dual), generator.random(dual)),
        penalties.NonNegative(),
        penalties.Zero(),
    ]
    for penalty in found:
        there = cupy.asarray(y)
        assert_close(penalty.prox(there, 0.5), penalty.prox(y, 0.5), 1e-5, penalty)
        assert_close(penalty.conjugate_prox(there, 0.5), penalty.conjugate_prox(y, 0.5), 1e-5, penalty)
        assert_close(penalty.project(there), penalty.project(y), 1e-5, penalty)
        inside = penalty.project(y)[0]
        for function in (penalty.value, penalty.conjugate):
            for points in (y[0], inside, penalty.conjugate_prox(y, 0.5)[0]):
                one, other = function(cupy.asarray(points)), function(points)
                assert one == other or abs(one - other) <= 1e-4 * abs(other), f"{penalty} {function}: {one} {other}"


def check_losses() -> None:
    import cupy

    everyone = np.arange(CLIENTS)
    x = np.random.default_rng(2).random(SHAPE).astype(np.float32)
    for scale, l2, memory in itertools.product(("sum", "mean"), (0.0, 0.2), (2 << 30, 5 * 2 * 4 * 24 * 16)):
        here = problem(np, l2=l2, scale=scale, memory=memory).losses
        there = problem(cupy, l2=l2, scale=scale, memory=memory).losses
        there_x = cupy.asarray(x)
        np.testing.assert_allclose(there.values(there_x, everyone), here.values(x, everyone), rtol=1e-4)
        assert_close(there.gradients(there_x, everyone), here.gradients(x, everyone), CLOSE, "gradients")
        draws = Draws(1, 2, everyone)
        drawn = there.gradients(there_x, everyone, 2, draws)
        assert_close(drawn, here.gradients(x, everyone, 2, draws), CLOSE, "batches")
        each = np.stack([x * (1 + i) for i in range(CLIENTS)])
        assert_close(there.gradients(cupy.asarray(each), everyone), here.gradients(each, everyone), CLOSE, "points")
        weights = np.full(CLIENTS, 1.0 / CLIENTS)
        assert_close(there.gradient(there_x, weights), here.gradient(x, weights), CLOSE, "mean gradient")
        product = there.hessian_product(there_x, there_x, weights)
        assert_close(product, here.hessian_product(x, x, weights), CLOSE, "Hessian")
        np.testing.assert_allclose(there.lipschitz(), here.lipschitz(), rtol=1e-3)
        np.testing.assert_allclose(there.batch_smoothness(2), here.batch_smoothness(2), rtol=1e-3)
        whole = there.gradients(there_x, everyone)
        for clients in ([3], [1, 4], [5, 0]):
            assert bool((there.gradients(there_x, np.array(clients)) == whole[np.array(clients)]).all())
        for losses, wrong in ((here, there_x), (there, x)):
            try:
                losses.values(wrong, everyone)
            except TypeError as error:
                assert "x must be on the device of the projections" in str(error)  # noqa: PT017 - runs without pytest
            else:
                raise AssertionError("x in the other memory was taken")


def methods() -> list[tuple[Any, dict[str, Any], float]]:
    """Methods, how they run, and how far the two results may be apart."""
    quantizer = fpdfp.QSGD(levels=200, norm="max", block=112)
    some: dict[str, Any] = {"clients_per_round": 3, "compressor": quantizer}
    return [
        (fpdfp.PDFP(), {}, CLOSE),
        (fpdfp.FPDFP(), {}, CLOSE),
        (fpdfp.FPDFP(local_steps=3), {"clients_per_round": 4}, CLOSE),
        (fpdfp.FPDFP(batch_size=2), {"clients_per_round": 4}, CLOSE),
        (fpdfp.FPDFP(), some, CLOSE_QUANTIZED),
        (fpdfp.ShiftedPDFP(), {}, 1e-3),
        (fpdfp.ShiftedPDFP(), {**some, "downlink": fpdfp.QSGD(levels=200, norm="max")}, CLOSE_QUANTIZED),
        (fpdfp.ShiftedPDFP(preconditioner="fourier"), some, CLOSE_QUANTIZED),
        (fpdfp.ShiftedPDFP(batch_size=2), some, CLOSE_QUANTIZED),
    ]


def check_runs(nonnegative: bool) -> None:
    import cupy

    for method, how, within in methods():
        here = fpdfp.solve(problem(np, nonnegative), method, rounds=20, evaluate_every=5, progress=False, **how)
        there = fpdfp.solve(problem(cupy, nonnegative), method, rounds=20, evaluate_every=5, progress=False, **how)
        assert_close(there.x, here.x, within, f"x of {method} {how}")
        assert type(there.v).__module__.startswith("cupy")
        assert all(type(value) is float or type(value) is int for value in there.history.last().values())
        np.testing.assert_allclose(there.history.objective, here.history.objective, rtol=10 * within)
        np.testing.assert_allclose(there.history.bits_up, here.history.bits_up, rtol=0.02)
        assert str(there)


def check_everything_is_there() -> None:
    """State, memory and messages are arrays on the GPU, round after round; only small numbers are here."""
    import cupy

    def look(run: fpdfp.Run) -> None:
        for array in (*run.state, *run.memory):
            assert isinstance(array, cupy.ndarray) or array.size <= 100, f"{run.method}: an array is not on the GPU"

    for method in (fpdfp.PDFP(), fpdfp.FPDFP(), fpdfp.ShiftedPDFP()):
        fpdfp.solve(problem(cupy), method, rounds=3, callbacks=[look], progress=False)


def check_start_and_stop() -> None:
    """A start here or there, metrics of x there, a tolerance, and a gap that clients certify."""
    import cupy

    x0 = np.random.default_rng(3).random(SHAPE)
    metrics: dict[str, Callable[[Any], float]] = {"largest": lambda x: float(x.max())}
    starts = (x0, cupy.asarray(x0))
    runs = [
        fpdfp.solve(problem(cupy), fpdfp.PDFP(), rounds=5, x0=start, metrics=metrics, progress=False)
        for start in starts
    ]
    assert bool((runs[0].x == runs[1].x).all())
    assert runs[0].history.largest.shape == runs[0].history.objective.shape
    ridge = problem(cupy, l2=20.0)
    for method in (fpdfp.PDFP(), fpdfp.ShiftedPDFP()):
        done = fpdfp.solve(ridge, method, rounds=2000, tol=1e-3, evaluate_every=10, progress=False)
        assert done.status == "converged", f"{method}: {done}"
    loose = fpdfp.solve(problem(cupy), fpdfp.PDFP(), rounds=3000, tol=1e-2, evaluate_every=50, progress=False)
    assert loose.status == "converged", str(loose)


def check_checkpoints() -> None:
    import cupy

    how: dict[str, Any] = {"clients_per_round": 3, "compressor": fpdfp.QSGD(levels=50), "progress": False}
    with tempfile.TemporaryDirectory() as folder:
        for method in (fpdfp.FPDFP(), fpdfp.ShiftedPDFP()):
            path = Path(folder) / f"{type(method).__name__}.npz"
            extra = {"downlink": fpdfp.QSGD(levels=50)} if isinstance(method, fpdfp.ShiftedPDFP) else {}
            whole = fpdfp.solve(problem(cupy), method, rounds=12, **how, **extra)
            fpdfp.solve(problem(cupy), method, rounds=5, checkpoint=path, **how, **extra)
            resumed = fpdfp.solve(problem(cupy), method, rounds=12, checkpoint=path, resume=True, **how, **extra)
            assert isinstance(resumed.x, cupy.ndarray)
            assert bool((whole.x == resumed.x).all()), method


def check_sites_with_a_gpu() -> None:
    """Clients elsewhere compute on their GPU; the server has none, and its messages are those of the processor."""
    import cupy

    from tests.loopback import Loopback

    options: dict[str, Any] = {"rounds": 12, "compressor": fpdfp.QSGD(levels=500), "clients_per_round": 4}
    for method in (fpdfp.FPDFP(), fpdfp.ShiftedPDFP(), fpdfp.ShiftedPDFP(batch_size=2)):
        extra = {"downlink": fpdfp.QSGD(levels=50)} if isinstance(method, fpdfp.ShiftedPDFP) else {}
        here = problem(np)
        crew = Loopback(problem(cupy), sites=2, patience=60.0)
        there = fpdfp.Problem(crew.losses(), here.penalty, here.linop)
        result = fpdfp.solve(there, method, engine=crew, **options, **extra)
        expected = fpdfp.solve(here, method, **options, **extra).x
        assert isinstance(result.x, np.ndarray)
        error = float(np.abs(result.x - expected).max()) / float(np.abs(expected).max())
        assert error <= CLOSE_QUANTIZED, f"{method}: relative error {error:.2g}"
        assert (crew.totals.refused, crew.totals.absent) == (0, 0)


CHECKS: dict[str, Callable[[], None]] = {
    "total variation": check_total_variation,
    "penalties": check_penalties,
    "losses": check_losses,
    "everything is there": check_everything_is_there,
    "runs": partial(check_runs, False),
    "runs with limits": partial(check_runs, True),
    "start and stop": check_start_and_stop,
    "checkpoints": check_checkpoints,
    "sites with a GPU": check_sites_with_a_gpu,
}


def test_runs_on_the_gpu_are_those_of_the_processor() -> None:
    gpu_checks.run_in_test(CHECKS)


if __name__ == "__main__":
    gpu_checks.run(CHECKS)
