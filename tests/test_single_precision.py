"""Losses in single precision, by ``dtype=``: what becomes float32, what stays float64, and what can be certified."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fpdfp
from fpdfp.errors import AccuracyWarning, ArgumentError

KINDS: list[Any] = [fpdfp.losses.Logistic, fpdfp.losses.LeastSquares, fpdfp.losses.Softmax]


def data() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((400, 30))
    y = np.where(rng.random(400) < 1 / (1 + np.exp(-X[:, :3].sum(axis=1))), 1.0, 0.0)
    return X, y, np.arange(400) % 8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_dtype_is_that_of_converted_rows(kind: Any, form: Any) -> None:
    X, y, owner = data()
    asked = kind(form(X), y, clients=owner, l2=0.1, dtype=np.float32)
    given = kind(form(X.astype(np.float32)), y, clients=owner, l2=0.1)
    x = np.full(asked.shape, 0.1, dtype=np.float32)
    everyone = np.arange(8)
    assert asked.dtype == np.float32
    assert asked._rows.X.data.nbytes * 2 == kind(form(X), y, clients=owner)._rows.X.data.nbytes
    gradients = asked.gradients(x, everyone)
    assert gradients.dtype == np.float32
    np.testing.assert_array_equal(gradients, given.gradients(x, everyone))
    assert kind(form(X.astype(np.float32)), y, clients=owner, dtype="float64").dtype == np.float64
    assert asked.part(np.array([1, 2])).dtype == np.float32


def test_what_is_certified_in_single_precision() -> None:
    X, y, owner = data()
    penalty = fpdfp.penalties.L1(1e-3)
    single = fpdfp.Problem(fpdfp.losses.Logistic(X, y, clients=owner, l2=1e-3, dtype=np.float32), penalty)
    double = fpdfp.Problem(fpdfp.losses.Logistic(X, y, clients=owner, l2=1e-3), penalty)
    reached = fpdfp.solve(single, rounds=100, tol=1e-8)
    assert reached.status == "converged"
    assert reached.x.dtype == np.float32
    # The bound is about the rounded rows; those as they were have their minimum within rounding of them.
    best = fpdfp.minimize(double, tol=1e-12).objective
    assert abs(double.objective(reached.x.astype(np.float64)) - best) <= 1e-7 * best
    # Near a minimum an x of seven digits has an objective of twice as many; no more are claimed than it has.
    further = fpdfp.solve(single, rounds=100, tol=1e-16)
    assert further.status != "converged"
    rounded = fpdfp.losses.Logistic(X.astype(np.float32).astype(np.float64), y, clients=owner, l2=1e-3)
    same = fpdfp.Problem(rounded, penalty)
    excess = same.objective(further.x.astype(np.float64)) - fpdfp.minimize(same, tol=1e-14).objective
    assert further.certificate.gap is not None
    assert excess <= further.certificate.gap < 1e-7 * best


def test_clients_by_parts_take_a_dtype() -> None:
    X, y, _ = data()
    losses = fpdfp.losses.LeastSquares.from_clients([X[:200], X[200:]], [y[:200], y[200:]], dtype=np.float32)
    assert losses.dtype == np.float32


@pytest.mark.parametrize("dtype", [np.int64, "half", "no such"])
def test_other_dtypes_are_refused(dtype: Any) -> None:
    with pytest.raises(ArgumentError, match="dtype must be float32 or float64, got"):
        fpdfp.losses.LeastSquares(np.eye(2), np.ones(2), dtype=dtype)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_numbers_beyond_float32_are_refused(form: Any) -> None:
    with pytest.raises(ArgumentError, match="X must hold numbers within the range of float32"):
        fpdfp.losses.LeastSquares(form(1e300 * np.eye(2)), np.ones(2), dtype=np.float32)
    with pytest.raises(ArgumentError, match="y must hold numbers within the range of float32"):
        fpdfp.losses.LeastSquares(form(np.eye(2)), [1e300, 0.0], dtype=np.float32)


def test_the_order_of_bytes_does_not_change_the_precision() -> None:
    assert fpdfp.losses.LeastSquares(np.eye(2, dtype=">f4"), np.ones(2)).dtype == np.float32


@pytest.mark.parametrize("kind", [fpdfp.losses.Logistic, fpdfp.losses.LeastSquares])
@pytest.mark.parametrize(
    "penalty", [fpdfp.penalties.L1(0.01), fpdfp.penalties.GroupL12(0.02, groups=np.arange(99) // 3)]
)
def test_gaps_of_maps_hold_for_the_same_data_in_double_precision(kind: Any, penalty: Any) -> None:
    # Bx and g(Bx) in single precision had gaps of a fifth of the distance to the minimum.
    rng = np.random.default_rng(0)
    for l2 in (1e-3, 0.0):
        X = rng.standard_normal((60, 100)).astype(np.float32)
        y = np.sign(X[:, :20].sum(axis=1) + rng.standard_normal(60))
        single, double = (
            fpdfp.Problem(kind(X.astype(dtype), y, l2=l2), penalty, fpdfp.linops.Difference(100))
            for dtype in (np.float32, np.float64)
        )
        least = fpdfp.minimize(double, tol=1e-11).objective
        for tol in (1e-4, 1e-5, 1e-6):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", AccuracyWarning)
                best = fpdfp.minimize(single, tol=tol)
            assert best.certificate.gap is not None
            excess = double.objective(best.x.astype(np.float64)) - least
            assert best.certificate.gap >= excess - 2e-9 * least
