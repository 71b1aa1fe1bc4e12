"""Losses in single precision, by ``dtype=``: what becomes float32, what stays float64, and what can be certified."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fpdfp
from fpdfp.errors import ArgumentError

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
    assert reached.rounds < 30
    assert reached.x.dtype == np.float32
    # The bound is about the rounded rows; those as they were have their minimum within rounding of them.
    best = fpdfp.minimize(double, tol=1e-12).objective
    assert abs(double.objective(reached.x.astype(np.float64)) - best) <= 1e-7 * best
    # More digits than float32 has are not claimed.
    further = fpdfp.solve(single, rounds=100, tol=1e-12)
    assert further.status != "converged"
    assert further.certificate.relative_gap is not None
    assert 1e-12 < further.certificate.relative_gap < 1e-7


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
