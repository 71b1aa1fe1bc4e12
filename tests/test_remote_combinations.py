"""Every method, preconditioner and compressor that go together: the same bits at sites as in one process."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import compress, methods, precondition
from tests.loopback import Loopback

D = 6
COMPRESSORS: list[Any] = [
    None, compress.QSGD(7, norm="max"), compress.NUQSGD(6), compress.Natural(), compress.Sign(), compress.RandK(3),
    compress.Half("bfloat16"), compress.TopK(2), compress.Sign(random=False), compress.Half("float16", random=False),
]  # fmt: skip
PRECONDITIONERS: list[Any] = [
    "auto", "moments", "diagonal", "fourier", precondition.QuantizedMoments(31), precondition.QuantizedMoments(0),
    precondition.QuantizedMoments(15, clients=2), precondition.Scaling(np.arange(1.0, D + 1)),
    precondition.Whitening(np.diag(np.arange(1.0, D + 1)) + 0.1), precondition.Fourier(np.eye(D)[D // 2]),
]  # fmt: skip
INNER = methods.InnerSolve()
METHODS: list[Any] = [
    methods.FPDFP(local_steps=2, batch_size=4), methods.FPDFPIdentity(), methods.ShiftedPDFP(),
    methods.ShiftedPDFP(batch_size=4), methods.ErrorFeedbackPDFP(), methods.PDFP(), methods.SPDFP(batch_size=4),
    methods.CondatVu(), methods.ChambollePock(), methods.RandProx(), methods.FedMiD(inner=INNER),
    methods.FedDualAvg(inner=INNER), methods.FastFedDualAvg(inner=INNER), methods.FedDR(inner=INNER),
    methods.FedAvg(local_steps=2), methods.FedPAQ(local_steps=2), methods.FedProx(0.1, local_steps=2), methods.FedSGD(),
    methods.Scaffold(local_steps=2), methods.FedADMM(local_steps=2), methods.StatelessPDFP(preconditioner="moments"),
    methods.NewtonPDFP(), methods.ProximalNewton(),
]  # fmt: skip


def problem(method: Any, dtype: Any = np.float64) -> fpdfp.Problem:
    """The hardest problem that a method takes."""
    generator = np.random.default_rng(3)
    X = generator.standard_normal((40, D)).astype(dtype)
    y = np.where(generator.random(40) < 0.5, 1.0, -1.0).astype(dtype)
    owner = None if method.traits.needs_one_client else np.arange(40) % 4
    losses = fpdfp.losses.Logistic(X, y, clients=owner, l2=0.1)
    if method.solves == "f":
        return fpdfp.Problem(losses, fpdfp.penalties.Zero())
    linop = fpdfp.linops.Difference(D) if method.solves == "f + g∘B" else None
    return fpdfp.Problem(losses, fpdfp.penalties.L1(0.05), linop)


def compare(whole: fpdfp.Problem, method: Any, **options: Any) -> None:
    """Run a method in this process and at sites, and compare."""
    engine = Loopback(whole, sites=min(2, whole.n_clients))
    there = fpdfp.Problem(engine.losses(), whole.penalty, whole.linop)
    options = {"rounds": 2, "evaluate_every": 2, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = fpdfp.solve(whole, method, **options)
        away = fpdfp.solve(there, method, engine=engine, **options)
    np.testing.assert_array_equal(here.x, away.x)
    assert (here.bits_up, here.bits_down) == (away.bits_up, away.bits_down)
    assert (engine.totals.refused, engine.totals.absent) == (0, 0)


def goes_with(method: Any, compressor: Any) -> bool:
    """Whether a method's traits allow a compressor."""
    traits = method.traits
    if compressor is None or not traits.compression:
        return compressor is None
    # Methods for biased compressors correct their errors, which must be smaller than what is sent.
    small: bool = compressor.omega(D) < 1
    return compressor.unbiased if traits.needs_unbiased else small


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_every_method_with_every_compressor(method: Any) -> None:
    whole = problem(method)
    for compressor in COMPRESSORS:
        if goes_with(method, compressor):
            compare(whole, method, compressor=compressor)
    if method.traits.downlink:
        for compressor in COMPRESSORS[1:]:
            compare(whole, method, downlink=compressor)


def test_methods_of_the_list_are_all_that_sites_can_run() -> None:
    kinds = {getattr(methods, name) for name in methods.__all__}
    run = {kind for kind in kinds if getattr(getattr(kind, "traits", None), "restorable", False)}
    assert run == {type(method) for method in METHODS}


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_every_method_in_single_precision(method: Any) -> None:
    compare(problem(method, np.float32), method)


@pytest.mark.parametrize("kind", [methods.ShiftedPDFP, methods.ErrorFeedbackPDFP], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("coordinates", PRECONDITIONERS, ids=repr)
def test_every_preconditioner_with_every_compressor(kind: Any, coordinates: Any) -> None:
    whole = problem(kind())
    for compressor in COMPRESSORS:
        if goes_with(kind, compressor):
            compare(whole, kind(preconditioner=coordinates), compressor=compressor)
    compare(whole, kind(preconditioner=coordinates, batch_size=3), downlink=compress.QSGD(31, norm="max"))


@pytest.mark.parametrize("prefer", ["balanced", "rounds", "bits"])
def test_more_features_than_moments_are_sent_of(prefer: Any) -> None:
    generator = np.random.default_rng(0)
    X, y = generator.standard_normal((40, 1001)), np.tile([1.0, -1.0], 20)
    losses = fpdfp.losses.Logistic(X, y, clients=np.arange(40) % 2, l2=0.1)
    compare(fpdfp.Problem(losses, fpdfp.penalties.L1(0.01)), None, prefer=prefer)


@pytest.mark.parametrize("coordinates", ["fourier", "auto"])
def test_images(coordinates: Any) -> None:
    generator = np.random.default_rng(0)
    maps = [fpdfp.linops.Matrix(np.eye(20) + 0.1 * generator.standard_normal((20, 20))) for _ in range(2)]
    losses = fpdfp.losses.OperatorLeastSquares(
        [fpdfp.linops.Wrapped(_flat(one), in_shape=(4, 5), out_shape=(20,)) for one in maps],
        [generator.standard_normal(20) for _ in maps], l2=0.05,
    )  # fmt: skip
    tv = fpdfp.Problem(losses, fpdfp.penalties.GroupL12(0.05, axis=0), fpdfp.linops.Gradient((4, 5)))
    compare(tv, fpdfp.ShiftedPDFP(preconditioner=coordinates), compressor=compress.QSGD(7))


def _flat(matrix: fpdfp.linops.Matrix) -> Any:
    from scipy.sparse.linalg import aslinearoperator

    return aslinearoperator(matrix.matrix)
