"""Linear maps: adjoints, norms, batches."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator

from fpdfp import linops
from fpdfp.linops import Compose, Gradient, Identity, VStack
from fpdfp.linops import base as norm
from fpdfp.linops.base import squared_norm_bound
from fpdfp.linops.maps import Filter


def dense(linop: linops.LinOp) -> Any:
    """The matrix of a map, column by column."""
    unit = np.eye(linop.size_in).reshape(linop.size_in, *linop.in_shape)
    return np.stack([linop.apply(e).ravel() for e in unit], axis=1)


def maps(seed: int, a: int, b: int, c: int) -> list[linops.LinOp]:
    generator = np.random.default_rng(seed)
    matrix = generator.standard_normal((a, b))
    sparse = scipy.sparse.random_array((a, b), density=0.4, rng=generator)
    return [
        linops.Identity((a, b)),
        linops.Matrix(matrix),
        linops.Matrix(sparse),
        linops.EachRow(matrix, c),
        linops.EachRow(sparse, c),
        linops.Wrapped(aslinearoperator(matrix)),
        linops.Wrapped(aslinearoperator(generator.standard_normal((c, a * b))), in_shape=(a, b)),
        linops.Difference(a + 1),
        linops.Gradient((a,)),
        linops.Gradient((a, b)),
        linops.Gradient((a, b, c)),
        linops.MaskedGradient(np.ones((a, b), dtype=bool)),
        linops.MaskedGradient(np.arange(a * b * c).reshape(a, b, c) % 4 != 1, others=2),
        linops.VStack([linops.Gradient((a, b)), linops.Identity((a, b))]),
        linops.VStack([matrix, sparse, linops.Identity(b)]),
        linops.Diagonal(matrix),
        linops.Compose(linops.Gradient(b), generator.standard_normal((b, c))),
        linops.Compose(linops.Gradient((a, b)), linops.Diagonal(matrix)),
    ]


sizes = st.integers(1, 7)


@given(seed=st.integers(0, 10**6), a=sizes, b=sizes, c=sizes)
def test_adjoint_norm_and_batches(seed: int, a: int, b: int, c: int) -> None:
    for linop in maps(seed, a, b, c):
        assert linops.adjoint_error(linop, seed) < 1e-13
        matrix = dense(linop)
        true = float(np.linalg.norm(matrix, 2) ** 2)
        # A mask with holes has a bound alone: that of its longest rows.
        loose = isinstance(linop, linops.MaskedGradient) and linop.out_shape[1] < linop.size_in
        assert (
            true * (1 - 1e-12) <= linop.squared_norm <= (4 * linop.out_shape[0] if loose else max(true * 1.001, 1e-10))
        )
        generator = np.random.default_rng(seed)
        x = generator.standard_normal((9, *linop.in_shape))
        v = generator.standard_normal((9, *linop.out_shape))
        np.testing.assert_allclose(linop.apply(x[0]).ravel(), matrix @ x[0].ravel(), atol=1e-12)
        np.testing.assert_allclose(linop.adjoint(v[0]).ravel(), matrix.T @ v[0].ravel(), atol=1e-12)
        for i in (0, 3, 8):
            np.testing.assert_array_equal(linop.apply(x)[i], linop.apply(x[i]))
            np.testing.assert_array_equal(linop.adjoint(v)[i], linop.adjoint(v[i]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float32_batches_have_the_bits_of_single_vectors(dtype: Any) -> None:
    generator = np.random.default_rng(0)
    for matrix in (
        generator.standard_normal((30, 21)),
        scipy.sparse.random_array((30, 21), density=0.3, rng=generator),
    ):
        for linop in (linops.Matrix(matrix.astype(dtype)), linops.EachRow(matrix.astype(dtype), rows=3)):
            x = generator.standard_normal((17, *linop.in_shape)).astype(dtype)
            together = linop.apply(x)
            assert together.dtype == dtype
            for i in range(17):
                np.testing.assert_array_equal(together[i], linop.apply(x[i]))


def test_gradient_is_the_forward_difference_with_neumann_boundary() -> None:
    x = np.arange(24.0).reshape(2, 3, 4) ** 2
    for axis in range(3):
        expected = np.diff(x, axis=axis, append=np.take(x, [-1], axis=axis))
        np.testing.assert_array_equal(linops.Gradient((2, 3, 4)).apply(x)[axis], expected)


def test_gradient_norm_is_below_twelve_in_three_dimensions() -> None:
    assert 11.9 < linops.Gradient((256, 256, 64)).squared_norm < 12


@pytest.mark.parametrize("kind", ["matrix", "operator", "large sparse"])
def test_large_maps_get_a_bound_that_holds_and_is_tight(kind: str) -> None:
    """The top of the spectrum is clustered, which is what makes a plain power iteration stop too low."""
    generator = np.random.default_rng(3)
    size = 1500
    spectrum = np.concatenate([np.linspace(0.9, 1.0, 500), np.linspace(0, 0.9, size - 500)])
    if kind == "large sparse":
        operator: Any = scipy.sparse.diags_array(np.sqrt(spectrum)).tocsr()[generator.permutation(size)]
        bound = squared_norm_bound(operator)
    else:
        q, _ = np.linalg.qr(generator.standard_normal((size, size)))
        matrix = q * np.sqrt(spectrum)
        bound = squared_norm_bound(matrix if kind == "matrix" else linops.Wrapped(aslinearoperator(matrix)))
    assert 1.0 <= bound <= 1.01


@pytest.mark.parametrize("spectrum", ["clustered", "one", "spread", "flat"])
@pytest.mark.parametrize("found", [1.0, 0.97, 0.5])
def test_bounds_that_cholesky_verifies_hold(spectrum: str, found: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where Lanczos finds too little: a bound that is not shown to be one is not returned."""
    size = 450
    generator = np.random.default_rng(5)
    values = {
        "clustered": np.concatenate([np.linspace(0.999, 1.0, 200), np.linspace(0, 0.9, size - 200)]),
        "one": np.eye(1, size)[0],
        "spread": np.geomspace(1e-12, 1.0, size),
        "flat": np.ones(size),
    }[spectrum]
    q, _ = np.linalg.qr(generator.standard_normal((size, size)))
    matrix = q * np.sqrt(values)
    ritz = norm._largest_ritz
    monkeypatch.setattr(norm, "_largest_ritz", lambda *given: found * ritz(*given))
    assert np.linalg.norm(matrix, 2) ** 2 <= squared_norm_bound(matrix) <= 1.02


@pytest.mark.parametrize("spectrum", ["clustered", "one", "spread", "flat", "two"])
def test_bounds_that_end_early_hold(spectrum: str) -> None:
    """Whatever the eigenvalues are, and with fewer steps where they are apart."""
    size, taken = 2000, 0
    values = {
        "clustered": np.concatenate([np.linspace(0.99, 1.0, 400), np.linspace(0, 0.9, size - 400)]),
        "one": np.eye(1, size)[0],
        "spread": np.geomspace(1e-12, 1.0, size),
        "flat": np.ones(size),
        "two": np.concatenate([np.linspace(0, 0.5, size - 1), [1.0]]),
    }[spectrum]

    def gram(u: Any) -> Any:
        nonlocal taken
        taken += 1
        return values * u

    bound = norm.largest_eigenvalue_bound(gram, (size,), 60, near=1.1)
    assert 1.0 <= bound <= 1.1 * (1.0 + 1e-12)
    assert taken <= 30
    assert 1.0 <= norm.largest_eigenvalue_bound(gram, (size,), 60) <= 1.1


def test_a_bound_is_not_believed_while_the_start_may_hide_an_eigenvector() -> None:
    """An eigenvector with so little of the start as chance allows once in 10⁵ draws: steps go on until it is seen."""
    size = 2000
    values = np.append(np.linspace(0, 0.5, size - 1), 1.0)
    start = norm.random_start((size,))
    start[-1] = 1e-5 / np.sqrt(size)
    start /= np.linalg.norm(start)
    assert norm.largest_eigenvalue_bound(lambda u: values * u, (size,), 60, start, near=1.1) >= 1.0


@pytest.mark.parametrize("shape", [(7,), (1,), (2, 5), (6, 4), (3, 1, 8), (5, 4, 6)])
def test_maps_of_filtered_images_have_bounds_by_frequency(shape: tuple[int, ...]) -> None:
    """Against singular values of the dense matrix: the bound holds, and is reached up to the edges of the image."""
    size, generator = int(np.prod(shape)), np.random.default_rng(0)
    response = np.fft.rfftn(generator.standard_normal(shape))
    smooth = Filter(shape, 1.0 / np.sqrt(1.0 + 5.0 * np.abs(response)))
    for outer in (
        Gradient(shape),
        VStack([Gradient(shape), Identity(shape)]),
        VStack([Identity(shape), Identity(shape)]),
    ):
        both = Compose(outer, smooth)
        dense = both.apply(np.eye(size).reshape(size, *shape)).reshape(size, -1)
        exact = float(np.linalg.norm(dense, 2)) ** 2
        assert exact <= both.squared_norm * (1.0 + 1e-12)
        assert both.squared_norm <= outer.squared_norm * smooth.squared_norm * 1.5
    assert VStack([Gradient(size), np.ones((1, size))]).periodic is None


def test_zero_map() -> None:
    assert linops.Matrix(np.zeros((3, 4))).squared_norm == 0.0
    assert linops.Gradient((1, 1)).squared_norm < 1e-30


def test_pylops_operators_are_maps() -> None:
    pylops = pytest.importorskip("pylops")
    ours = linops.aslinop(pylops.FirstDerivative(10, kind="forward", edge=False))
    assert linops.adjoint_error(ours) < 1e-14
    x = np.random.default_rng(0).standard_normal(10)
    np.testing.assert_allclose(ours.apply(x)[:-1], np.diff(x))


def test_integers_and_other_formats_are_taken() -> None:
    np.testing.assert_array_equal(linops.aslinop([[1, 2], [3, 4]]).apply(np.ones(2)), [3.0, 7.0])
    np.testing.assert_array_equal(
        linops.aslinop(scipy.sparse.coo_matrix(([1, 1], ([0, 0], [1, 1])), (1, 2))).apply(np.ones(2)), [2.0]
    )


def broken_csr() -> Any:
    matrix = scipy.sparse.csr_array(np.eye(3))
    matrix.indices[0] = -1
    return matrix


@pytest.mark.parametrize("shape", [(1500, 1700), (30, 20)])
def test_bounds_hold_in_float32(shape: tuple[int, int]) -> None:
    constant = np.full(shape, np.float32(0.1))
    true = float(np.float64(np.float32(0.1))) ** 2 * shape[0] * shape[1]
    assert squared_norm_bound(constant) >= true
    generator = np.random.default_rng(0)
    for _ in range(20):
        matrix = generator.standard_normal((39, 30)).astype(np.float32)
        operator = linops.Wrapped(aslinearoperator(matrix))
        assert operator.squared_norm >= np.linalg.norm(matrix.astype(np.float64), 2) ** 2


def test_the_dtype_of_x_is_kept() -> None:
    for matrix in (np.eye(3), scipy.sparse.eye_array(3)):
        assert linops.Matrix(matrix).apply(np.ones(3, np.float32)).dtype == np.float32


BAD: list[tuple[Any, str]] = [
    (lambda: linops.aslinop("B"), "linop must be an array"),
    (lambda: linops.Matrix(np.ones(3)), "matrix must be a matrix"),
    (lambda: linops.Matrix(np.ones((0, 3))), "matrix must be a matrix"),
    (lambda: linops.Matrix([[np.nan, 1.0]]), "matrix must be finite"),
    (lambda: linops.Matrix(scipy.sparse.csr_array([[np.inf, 1.0]])), "the stored entries of matrix must be finite"),
    (lambda: linops.Matrix([[1j]]), "must hold real numbers"),
    (lambda: linops.Wrapped(aslinearoperator(np.fft.fft(np.eye(3)))), "a linear map must be real"),
    (lambda: linops.Matrix(broken_csr()), "matrix is not a valid sparse matrix"),
    (lambda: linops.Gradient(()), "shape must have at least one axis"),
    (lambda: linops.Gradient((2, 2, 2, 2)), "shape must have 1, 2 or 3 axes"),
    (lambda: linops.Gradient((2, 0)), "shape must be an integer of at least 1"),
    (lambda: linops.Difference(1), "size must be an integer of at least 2"),
    (lambda: linops.VStack([]), "parts must hold at least one map"),
    (lambda: linops.VStack([linops.Identity(2), linops.Identity(3)]), r"parts\[1\] acts on shape"),
    (lambda: linops.Wrapped(aslinearoperator(np.eye(4)), in_shape=(3,)), "in_shape must have 4 entries"),
    (lambda: linops.Matrix(np.eye(3)).apply(np.ones(4)), "x must have shape"),
    (lambda: linops.EachRow(np.eye(3), rows=0), "rows must be an integer of at least 1"),
    (lambda: linops.EachRow(np.ones(3), rows=2), "matrix must be a matrix"),
    (lambda: linops.EachRow(np.eye(3), rows=2).apply(np.ones((3, 3))), r"x must have shape \(2, 3\)"),
    (lambda: linops.EachRow(np.ones((4, 3)), rows=2).adjoint(np.ones((2, 3))), r"v must have shape \(2, 4\)"),
    (lambda: linops.Gradient((2, 3)).adjoint(np.ones((2, 3))), "v must have shape"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_arguments_are_named(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_a_map_that_gives_nan_is_refused() -> None:
    broken = scipy.sparse.linalg.LinearOperator((3, 3), matvec=lambda x: x * np.nan, rmatvec=lambda x: x, dtype=float)
    with pytest.raises(ValueError, match="linop gives NaN"):
        _ = linops.Wrapped(broken).squared_norm


def test_norm_of_a_long_matrix_in_single_precision_takes_no_copy_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some rows at a time, the bound is that of all at once, up to rounding."""
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((3000, 40), dtype=np.float32)
    u = rng.standard_normal(40)
    monkeypatch.setattr(norm, "DENSE", 0)  # by Lanczos
    at_once, bound = norm.sum_parts(matrix, u), norm.squared_norm_bound(matrix)
    monkeypatch.setattr(norm, "AT_A_TIME", 1000)
    np.testing.assert_allclose(norm.sum_parts(matrix, u), at_once, rtol=1e-12)
    np.testing.assert_allclose(norm.squared_norm_bound(matrix), bound, rtol=1e-9)
    assert bound >= np.linalg.norm(matrix.astype(float), 2) ** 2
    tracemalloc.start()
    norm.sum_parts(matrix, u)
    assert tracemalloc.get_traced_memory()[1] < matrix.nbytes / 4
    tracemalloc.stop()
