"""Arrays, penalties and maps of other packages on the GPU, and what is refused there.

``python -m tests.test_gpu_interop`` runs the same on a machine without pytest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import fpdfp
from fpdfp import linops, penalties
from fpdfp._array import namespace
from tests import gpu_checks
from tests.test_gpu_engine import CLOSE, SHAPE, assert_close, problem


class Tensor:
    """A tensor of another package: nothing but DLPack."""

    def __init__(self, array: Any, requires_grad: bool = False) -> None:
        self._array = array
        self.requires_grad = requires_grad

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class SoftThreshold:
    """The l1 norm as PyProximal has it, for vectors of NumPy and of CuPy."""

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def __call__(self, x: Any) -> float:
        return self.weight * float(abs(x).sum())

    def prox(self, x: Any, tau: float) -> Any:
        xp = namespace(x)
        return xp.sign(x) * xp.maximum(abs(x) - tau * self.weight, 0.0)


class Differences:
    """Differences of neighbours as SciPy and PyLops have maps, for vectors of NumPy and of CuPy."""

    def __init__(self, length: int) -> None:
        self.shape = (length - 1, length)

    def matvec(self, x: Any) -> Any:
        return x[1:] - x[:-1]

    def rmatvec(self, v: Any) -> Any:
        padded = namespace(v).pad(v, 1)
        return padded[:-1] - padded[1:]


def refused(action: Callable[[], Any], *words: str) -> None:
    """Assert that an action ends with a TypeError that has some words."""
    told = ""
    try:
        action()
    except TypeError as error:
        told = str(error)
    assert told, f"not refused: {words}"
    assert all(word in told for word in words), told


def check_penalty() -> None:
    import cupy

    y = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    wrapped, own = penalties.as_penalty(SoftThreshold(0.3)).bind((4, 5)), penalties.L1(0.3)
    for function in ("prox", "conjugate_prox"):
        assert_close(getattr(wrapped, function)(cupy.asarray(y), 0.5), getattr(own, function)(y, 0.5), 1e-5, function)
    assert abs(wrapped.value(cupy.asarray(y[0])) - own.value(y[0])) <= 1e-4


def check_map() -> None:
    import cupy

    x = np.random.default_rng(1).standard_normal((3, 12)).astype(np.float32)
    there, here = linops.aslinop(Differences(12)), linops.Difference(12)
    assert_close(there.apply(cupy.asarray(x)), here.apply(x), 1e-6, "apply")
    assert_close(there.adjoint(cupy.asarray(x[:, 1:])), here.adjoint(x[:, 1:]), 1e-6, "adjoint")


def check_runs() -> None:
    """A whole run with penalty and map of another package is that with ours."""
    import cupy

    there = problem(cupy).losses
    size = int(np.prod(SHAPE))
    wrapped = fpdfp.Problem(there, SoftThreshold(0.1), linops.Wrapped(Differences(size), SHAPE, (size - 1,)))
    on_host = linops.Wrapped(Differences(size), SHAPE, (size - 1,))
    own = fpdfp.Problem(problem(np).losses, penalties.L1(0.1), on_host)
    step = 0.5 * own.default_step
    found = fpdfp.solve(wrapped, fpdfp.FPDFP(step=step, lam=0.25), rounds=15)
    expected = fpdfp.solve(own, fpdfp.FPDFP(step=step, lam=0.25), rounds=15)
    assert_close(found.x, expected.x, CLOSE, "a run")
    assert found.certificate.gap is None


def check_starts() -> None:
    """A start is taken from either memory, and from tensors in both."""
    import cupy

    start = np.random.default_rng(2).random(SHAPE).astype(np.float32)
    given = (start, cupy.asarray(start), Tensor(start), Tensor(cupy.asarray(start)))
    results = [fpdfp.solve(problem(cupy), fpdfp.FPDFP(), rounds=3, x0=x0) for x0 in given]
    for result in results:
        assert bool((result.x == results[0].x).all())
    refused(
        lambda: fpdfp.solve(problem(cupy), rounds=1, x0=Tensor(cupy.asarray(start), requires_grad=True)),
        "x0 must not be a tensor that requires a gradient",
    )


def check_refusals() -> None:
    """What works in the memory of the processor says so by the name of the argument."""
    import cupy
    import cupyx.scipy.sparse

    eye, ones = np.eye(4), np.ones(4)
    losses = fpdfp.losses.LeastSquares(eye, ones)
    there = "must be in the memory of the processor"
    regression = fpdfp.FederatedLinearRegression()
    matrix, vector = cupy.asarray(eye), cupy.asarray(ones)
    for A, b in ((matrix, vector), (Tensor(matrix), Tensor(vector))):
        refused(partial(fpdfp.losses.LeastSquares, A, ones), "X", there)
        refused(partial(fpdfp.losses.LeastSquares, eye, b), "y", there)
        refused(partial(fpdfp.losses.LeastSquares, eye, ones, clients=b), "clients", there)
        refused(partial(fpdfp.Problem, losses, penalties.L1(0.1), A), "linop", there)
        refused(partial(regression.fit, A, ones), "X", there)
        refused(partial(regression.fit, eye, b), "y", there)
    sparse = cupyx.scipy.sparse.csr_matrix(cupy.asarray(eye))
    refused(partial(fpdfp.losses.LeastSquares, sparse, ones), "X", there)
    refused(partial(fpdfp.Problem, losses, penalties.L1(0.1), sparse), "linop", there)


def check_pytorch() -> None:
    """Tensors of PyTorch itself, where it is installed."""
    try:
        import torch
    except ImportError:
        return
    import cupy

    start = torch.rand(SHAPE, generator=torch.Generator().manual_seed(0))
    here, there = (fpdfp.solve(problem(cupy), fpdfp.FPDFP(), rounds=3, x0=x0) for x0 in (start, start.cuda()))
    assert bool((here.x == there.x).all())
    refused(
        partial(fpdfp.solve, problem(cupy), rounds=1, x0=start.cuda().requires_grad_()),
        "x0 must not be a tensor that requires a gradient: give .detach()",
    )
    refused(
        partial(fpdfp.losses.LeastSquares, torch.eye(3).cuda(), np.ones(3)),
        "X must be in the memory of the processor, got a Tensor on the GPU",
    )
    eye = torch.eye(3, dtype=torch.float64)
    found = fpdfp.losses.LeastSquares(eye, torch.ones(3), clients=torch.arange(3))
    assert found.n_clients == 3
    refused(
        partial(fpdfp.losses.LeastSquares, eye.requires_grad_(), torch.ones(3)), "X must not be a tensor that requires"
    )


CHECKS = {
    check.__name__: check
    for check in (check_penalty, check_map, check_runs, check_starts, check_refusals, check_pytorch)
}


def test_other_packages_on_the_gpu() -> None:
    gpu_checks.run_in_test(CHECKS)


def test_the_stand_ins_are_what_they_stand_for() -> None:
    """On arrays of NumPy, so that what is checked on a GPU is right."""
    generator = np.random.default_rng(3)
    y = generator.standard_normal((3, 12))
    wrapped, own = penalties.as_penalty(SoftThreshold(0.3)).bind((12,)), penalties.L1(0.3)
    np.testing.assert_allclose(wrapped.conjugate_prox(y, 0.5), own.conjugate_prox(y, 0.5), atol=1e-14)
    there, here = linops.aslinop(Differences(12)), linops.Difference(12)
    np.testing.assert_allclose(there.apply(y), here.apply(y))
    np.testing.assert_allclose(there.adjoint(y[:, 1:]), here.adjoint(y[:, 1:]))


if __name__ == "__main__":
    gpu_checks.run(CHECKS)
