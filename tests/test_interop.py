"""Other packages' operators, proxes, matrices, tables and tensors, each against the package itself."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import polars as pl
import pylops
import pyproximal
import pytest
import scipy.sparse
import scipy.sparse.linalg
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import fpdfp
from fpdfp import FederatedLinearRegression, FederatedLogisticRegression, _checks, linops, penalties

ROWS, FEATURES = 60, 12


def data(dtype: Any = np.float64) -> tuple[Any, Any, Any]:
    generator = np.random.default_rng(5)
    X = generator.standard_normal((ROWS, FEATURES))
    y = X @ np.repeat([1.0, 0.0, -0.5], 4) + 0.1 * generator.standard_normal(ROWS)
    return X.astype(dtype), y.astype(dtype), np.arange(ROWS) % 4


def losses(dtype: Any = np.float64, l2: float = 0.01) -> fpdfp.losses.LeastSquares:
    X, y, site = data(dtype)
    return fpdfp.losses.LeastSquares(X, y, clients=site, l2=l2)


# PyLops


def first_differences() -> Any:
    return pylops.FirstDerivative(FEATURES, kind="forward", edge=False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("method", "within"),
    # Where λ is chosen, it is so from two bounds of one norm.
    [(None, 1e-6), (fpdfp.FPDFP(lam=0.25), 1e-13), (fpdfp.FedMiD(step=0.1, inner=fpdfp.InnerSolve()), 1e-6)],
)
def test_a_pylops_operator_is_the_matrix_that_it_stands_for(method: Any, within: float, dtype: Any) -> None:
    operator = first_differences()
    matrix = operator.todense()
    results = [
        fpdfp.solve(fpdfp.Problem(losses(dtype), penalties.L1(0.1), B), method, rounds=30, clients_per_round=3)
        for B in (operator, matrix)
    ]
    assert results[0].x.dtype == dtype
    np.testing.assert_allclose(results[0].x, results[1].x, atol=max(within, 2e-5 if dtype == np.float32 else 0.0))
    assert results[0].bits_up == pytest.approx(results[1].bits_up, rel=0.05)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_pylops_operator_takes_a_client_axis_and_keeps_the_precision(dtype: Any) -> None:
    wrapped = linops.aslinop(first_differences())
    x = np.random.default_rng(0).standard_normal((5, FEATURES)).astype(dtype)
    image = wrapped.apply(x)
    assert image.dtype == dtype
    for row, alone in zip(image, x, strict=True):
        np.testing.assert_array_equal(row, wrapped.apply(alone))
    np.testing.assert_array_equal(wrapped.adjoint(image)[2], wrapped.adjoint(image[2]))
    assert wrapped.squared_norm == pytest.approx(np.linalg.norm(first_differences().todense(), 2) ** 2, rel=1e-4)


def test_a_pylops_gradient_of_an_image_has_the_shapes_of_pylops() -> None:
    image = np.zeros((6, 5))
    image[2:5, 1:3] = 1.0
    views = [pylops.Identity(30), pylops.Diagonal(np.linspace(0.5, 1.5, 30))]
    operators = [linops.Wrapped(view, image.shape, image.shape) for view in views]
    fit = fpdfp.losses.OperatorLeastSquares(operators, [one.apply(image) for one in operators], l2=0.01)
    theirs = fpdfp.Problem(fit, penalties.GroupL12(0.01, axis=0), pylops.Gradient((6, 5), kind="forward", edge=False))
    ours = fpdfp.Problem(fit, penalties.GroupL12(0.01, axis=0), linops.Gradient((6, 5)))
    assert theirs.linop.out_shape == (2, 6, 5)
    found = [fpdfp.solve(one, fpdfp.PDFP(), rounds=200).x for one in (theirs, ours)]
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


def test_pylops_operators_of_clients_can_be_their_losses() -> None:
    X, y, site = data()
    parts = [pylops.MatrixMult(X[site == i]) for i in range(4)]
    fit = fpdfp.losses.OperatorLeastSquares(parts, [y[site == i] for i in range(4)], l2=0.01)
    found = fpdfp.solve(fpdfp.Problem(fit, penalties.L1(0.05)), rounds=300, tol=1e-9).x
    expected = fpdfp.solve(fpdfp.Problem(losses(), penalties.L1(0.05)), rounds=300, tol=1e-9).x
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_complex_pylops_operator_is_refused() -> None:
    with pytest.raises(TypeError, match="a linear map must be real, got an operator of dtype complex"):
        linops.aslinop(pylops.MatrixMult(np.ones((2, 2)) * 1j, dtype=np.complex128))
    says_real = scipy.sparse.linalg.LinearOperator((5, 8), matvec=np.fft.rfft, rmatvec=np.fft.irfft, dtype=float)
    with pytest.raises(TypeError, match=r"a linear map must be real, but .* gives complex numbers"):
        linops.aslinop(says_real).apply(np.ones(8))


# PyProximal


def pairs() -> list[tuple[Any, Any]]:
    weights = np.linspace(0.0, 0.5, FEATURES)
    return [
        (penalties.L1(0.1), pyproximal.L1(0.1)),
        (penalties.L1(0.1), 0.25 * pyproximal.L1(0.4)),
        (penalties.L1(weights), pyproximal.L1(weights)),
        (penalties.Box(-0.3, 0.5), pyproximal.Box(-0.3, 0.5)),
        (penalties.NonNegative(), pyproximal.Box(lower=0.0)),
        (penalties.GroupL12(0.2, groups=np.arange(FEATURES) % 4), pyproximal.L21(3, 0.2)),
        (penalties.GroupL12(0.3, groups=np.zeros(FEATURES, dtype=int)), pyproximal.Euclidean(0.3)),
    ]


@pytest.mark.parametrize(("ours", "theirs"), pairs(), ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_pyproximal_operator_is_our_penalty(ours: Any, theirs: Any, dtype: Any) -> None:
    one, other = (penalties.as_penalty(g).bind((FEATURES,)) for g in (ours, theirs))
    y = np.random.default_rng(1).standard_normal((5, FEATURES)).astype(dtype)
    close: dict[str, Any] = {"rtol": 2e-6, "atol": 2e-6} if dtype == np.float32 else {"rtol": 1e-12, "atol": 1e-14}
    assert one.finite == other.finite
    for function in ("prox", "conjugate_prox"):
        expected, found = (getattr(g, function)(y, 0.7) for g in (one, other))
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, **close)
        np.testing.assert_array_equal(found[3], getattr(other, function)(y[3], 0.7))
    np.testing.assert_allclose(other.project(y), one.project(y), **close)
    for point in (*y, *one.project(y)):
        assert other.value(point) == pytest.approx(one.value(point), rel=1e-5)


@pytest.mark.parametrize(("ours", "theirs"), pairs(), ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("linop", [None, linops.Matrix(np.eye(FEATURES) - np.eye(FEATURES, k=1))], ids=["I", "B"])
def test_whole_runs_with_pyproximal_end_where_ours_do(ours: Any, theirs: Any, linop: Any) -> None:
    method = fpdfp.ShiftedPDFP(preconditioner=None)
    results = [fpdfp.solve(fpdfp.Problem(losses(), g, linop), method, rounds=600, tol=1e-8) for g in (ours, theirs)]
    assert results[1].status == "stationary"
    assert "at most 1e-08; no bound" in results[1].message
    assert results[1].certificate.gap is None
    assert results[1].objective == pytest.approx(results[0].objective, rel=1e-6)
    np.testing.assert_allclose(results[1].x, results[0].x, atol=1e-4)


@pytest.mark.parametrize("method", [None, fpdfp.FPDFP(), fpdfp.FedMiD(step=0.2), fpdfp.NewtonPDFP()])
def test_every_kind_of_method_takes_a_pyproximal_operator(method: Any) -> None:
    ours, theirs = (
        fpdfp.solve(fpdfp.Problem(losses(), g), method, rounds=12) for g in (penalties.L1(0.1), pyproximal.L1(0.1))
    )
    np.testing.assert_allclose(theirs.x, ours.x, atol=1e-5)


@pytest.mark.parametrize(
    ("operator", "constraint"),
    [
        (pyproximal.EuclideanBall(np.zeros(FEATURES), 1.0), lambda x: [cp.norm(x) <= 1.0]),
        (pyproximal.Simplex(FEATURES, 1.0, engine="numpy"), lambda x: [x >= 0, cp.sum(x) == 1.0]),
        (pyproximal.HalfSpace(np.ones(FEATURES), 1.0), lambda x: [cp.sum(x) <= 1.0]),
        (pyproximal.Sum([pyproximal.L1(0.1), pyproximal.Box(0.0, 0.8)]), lambda x: [x >= 0, x <= 0.8]),
    ],
    ids=["ball", "simplex", "half-space", "a sum with a constraint"],
)
def test_constraints_of_pyproximal_are_those_of_cvxpy(operator: Any, constraint: Any) -> None:
    X, y, _ = data()
    problem = fpdfp.Problem(losses(), operator)
    assert not problem.penalty.finite
    result = fpdfp.solve(problem, fpdfp.ShiftedPDFP(preconditioner=None), rounds=500, tol=1e-8)
    x = cp.Variable(FEATURES)
    value = cp.sum_squares(X @ x - y) / (2 * ROWS) + 0.005 * cp.sum_squares(x)
    value = value + 0.1 * cp.norm1(x) if isinstance(operator, pyproximal.Sum) else value
    best = cp.Problem(cp.Minimize(value), constraint(x)).solve(solver=cp.CLARABEL)
    assert result.objective == pytest.approx(best, rel=1e-5)
    assert result.certificate.violation < 1e-6
    np.testing.assert_allclose(result.x, x.value, atol=1e-3)


def test_pyproximal_operators_can_be_parts_of_a_sum() -> None:
    B = linops.VStack([linops.Difference(FEATURES), linops.Identity(FEATURES)])
    shapes = [(FEATURES - 1,), (FEATURES,)]
    ours = penalties.Stacked([penalties.L1(0.1), penalties.NonNegative()], shapes)
    theirs = penalties.Stacked([pyproximal.L1(0.1), pyproximal.Box(lower=0.0)], shapes)
    assert not theirs.has_conjugate
    assert ours.has_conjugate
    found = [
        fpdfp.solve(fpdfp.Problem(losses(), g, B), fpdfp.ShiftedPDFP(preconditioner=None), rounds=500, tol=1e-8).x
        for g in (ours, theirs)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)


def test_a_run_with_a_pyproximal_operator_can_be_resumed(tmp_path: Any) -> None:
    problem = fpdfp.Problem(losses(), pyproximal.L1(0.1), linops.Difference(FEATURES))
    whole = fpdfp.solve(problem, rounds=20, clients_per_round=2)
    fpdfp.solve(problem, rounds=9, clients_per_round=2, checkpoint=tmp_path / "run.npz")
    resumed = fpdfp.solve(problem, rounds=20, clients_per_round=2, checkpoint=tmp_path / "run.npz", resume=True)
    np.testing.assert_array_equal(resumed.x, whole.x)
    other = fpdfp.Problem(losses(), pyproximal.L1(0.2), linops.Difference(FEATURES))
    with pytest.raises(fpdfp.errors.CheckpointError, match="problem was"):
        fpdfp.solve(other, rounds=20, clients_per_round=2, checkpoint=tmp_path / "run.npz", resume=True)


REFUSED: list[tuple[Any, str]] = [
    (pyproximal.L0(0.1), "value and prox of pyproximal.L0 do not belong to one convex function"),
    (pyproximal.SCAD(0.1, 3.7), "do not belong to one convex function"),
    (pyproximal.Log(0.1, 1.0), "do not belong to one convex function"),
    (2.0 * pyproximal.Box(-1.0, 1.0), "do not belong to one convex function"),
    (
        pyproximal.VStack([pyproximal.L1(0.1), pyproximal.Box(-1.0, 1.0)], nn=[6, 6]),
        "for a sum of parts with constraints use fpdfp.penalties.Stacked",
    ),
    (pyproximal.L1(lambda count: 1.0 / (1 + count)), "must depend only on its arguments, but it gave two results"),
    (pyproximal.L21(5), r"pyproximal.L21 cannot be used for Bx of shape \(12,\)"),
    (pyproximal.L1, r"got the class L1: make one, as L1\(…\)"),
    (0.1, "penalty must be one of fpdfp.penalties, or an object with prox"),
]


@pytest.mark.parametrize(("operator", "message"), REFUSED)
def test_what_is_no_convex_penalty_is_refused(operator: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        fpdfp.Problem(losses(), operator)


def test_what_needs_more_than_a_prox_says_so() -> None:
    problem = fpdfp.Problem(losses(), pyproximal.L1(0.1))
    assert problem.duality_gap(np.zeros(FEATURES), np.zeros(FEATURES)) is None
    with pytest.raises(NotImplementedError, match=r"the conjugate of pyproximal.L1 is not known"):
        problem.penalty.conjugate(np.zeros(FEATURES))
    with pytest.raises(ValueError, match=r"the subgradient of pyproximal.L1 is not known, only its prox"):
        fpdfp.solve(problem, fpdfp.FedAvg(step=0.1, penalty="subgradient"), rounds=2)
    with pytest.raises(NotImplementedError, match=r"the derivative of the prox of pyproximal.L1 is not known"):
        fpdfp.minimize(problem)


@given(
    weight=st.floats(0.0, 10.0),
    t=st.floats(1e-3, 1e3),
    y=st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=3, max_size=3),
)
def test_proxes_and_moreau_agree_with_pyproximal_everywhere(weight: float, t: float, y: list[float]) -> None:
    ours, theirs = penalties.L1(weight), penalties.as_penalty(pyproximal.L1(weight)).bind((3,))
    point = np.array(y)
    size = max(1.0, np.abs(point).max(), weight * t)
    np.testing.assert_allclose(theirs.prox(point, t), ours.prox(point, t), atol=1e-14 * size)
    np.testing.assert_allclose(theirs.conjugate_prox(point, t), ours.conjugate_prox(point, t), atol=1e-13 * size)


@given(
    matrix=arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.floats(-1e3, 1e3)),
    clients=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_every_way_to_give_a_matrix_gives_the_same_map(matrix: Any, clients: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, v = (generator.standard_normal((clients, length)) for length in matrix.shape[::-1])
    given = (matrix, scipy.sparse.coo_matrix(matrix), Tensor(matrix), pylops.MatrixMult(matrix), matrix.tolist())
    size = 1.0 + np.abs(matrix).sum() * max(np.abs(x).max(), np.abs(v).max())
    for one in map(linops.aslinop, given):
        np.testing.assert_allclose(one.apply(x), x @ matrix.T, atol=1e-13 * size)
        np.testing.assert_allclose(one.adjoint(v), v @ matrix, atol=1e-13 * size)
        assert one.squared_norm >= np.linalg.norm(matrix, 2) ** 2 * (1 - 1e-9)


# SciPy's sparse matrices

FORMATS = [f"{name}_{kind}" for name in ("csr", "csc", "coo", "bsr") for kind in ("array", "matrix")]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_every_sparse_matrix_is_its_dense_one(form: str, dtype: Any) -> None:
    make = getattr(scipy.sparse, form)
    generator = np.random.default_rng(2)
    X = generator.integers(-2, 3, (ROWS, 4)) * (generator.random((ROWS, 4)) < 0.5)
    y, site = generator.standard_normal(ROWS), np.arange(ROWS) % 3
    B = np.array([[1, -1, 0, 0], [0, 1, -1, 0], [0, 0, 1, -1]])
    single = dtype == np.float32
    fits = [fpdfp.losses.LeastSquares(A, y, clients=site, l2=0.1) for A in (make(X.astype(dtype)), X.astype(dtype))]
    assert fits[0].dtype == fits[1].dtype == (np.float32 if single else np.float64)
    problems = [
        fpdfp.Problem(fit, penalties.L1(0.1), A) for fit, A in zip(fits, (make(B.astype(dtype)), B), strict=True)
    ]
    found, expected = (fpdfp.solve(problem, fpdfp.FPDFP(), rounds=5).x for problem in problems)
    np.testing.assert_allclose(found, expected, atol=1e-5 if single else 1e-12)
    # Sparse columns are scaled and not centred, so that runs with scales come to the same end by other points.
    arguments: dict[str, Any] = {
        "standardize": False, "method": fpdfp.FPDFP(), "run": fpdfp.RunOptions(rounds=5, tol=0)
    }  # fmt: skip
    models = [FederatedLinearRegression(**arguments).fit(A, y) for A in (make(X.astype(dtype)), X.astype(float))]
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, atol=1e-8)
    np.testing.assert_allclose(models[0].predict(make(X.astype(dtype))), models[1].predict(X), atol=1e-8)


def test_sparse_matrices_of_other_things_than_real_numbers_are_refused() -> None:
    wrong = scipy.sparse.csr_array(np.eye(3) * 1j)
    with pytest.raises(TypeError, match="X must hold real numbers, got dtype complex128"):
        fpdfp.losses.LeastSquares(wrong, np.ones(3))
    with pytest.raises(TypeError, match="linop must hold real numbers, got dtype complex128"):
        linops.aslinop(wrong)


# scikit-learn


def test_estimators_are_cloned_and_searched_with_their_parameters() -> None:
    X, y, _ = data()
    model = FederatedLinearRegression(fpdfp.Fused(0.3), method=fpdfp.FPDFP(), run=fpdfp.RunOptions(rounds=7))
    copy = clone(model)
    assert copy is not model
    assert copy.get_params().keys() == model.get_params().keys()
    assert (copy.penalty.weight, copy.penalty.name, copy.run.rounds) == (0.3, "fused", 7)
    assert copy.set_params(standardize=True).standardize
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), FederatedLinearRegression())
    with pytest.warns(UserWarning, match="finds all weights"):
        search = GridSearchCV(pipeline, {"federatedlinearregression__penalty": ["l1", fpdfp.L1(10.0)]}, cv=2).fit(X, y)
    assert search.best_params_ == {"federatedlinearregression__penalty": "l1"}
    assert search.best_estimator_[-1].feature_names_in_[0] == "x0"
    assert cross_val_score(FederatedLinearRegression(), X, y, cv=2).min() > 0.9


# Tables of pandas and Polars


def table(kind: str, **extra: Any) -> Any:
    X = data()[0][:, :3]
    columns = {name: X[:, i] for i, name in enumerate(("age", "dose", "bmi"))}
    return {"pandas": pd.DataFrame, "polars": pl.DataFrame}[kind](columns | extra)


def column(kind: str, values: Any) -> Any:
    return pd.Series(values) if kind == "pandas" else pl.Series(values)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_tables_are_their_arrays_and_have_names(kind: str) -> None:
    X, y, site = data()
    hospital = np.array(["north", "south", "west", "east"])[site]
    model = FederatedLinearRegression(fpdfp.Graph(graph=[("age", "bmi")]))
    model.fit(table(kind), column(kind, y), groups=column(kind, hospital))
    plain = FederatedLinearRegression(fpdfp.Graph(graph=[(0, 2)])).fit(X[:, :3], y, groups=hospital)
    assert list(model.feature_names_in_) == ["age", "dose", "bmi"]
    assert list(model.sites_) == ["east", "north", "south", "west"]
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    np.testing.assert_allclose(model.predict(table(kind)), plain.predict(X[:, :3]), atol=1e-13)
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        model.predict(table(kind)[["dose", "age", "bmi"]])
    classes = np.where(y > 0, "ill", "well")
    classifier = FederatedLogisticRegression(fpdfp.L1(0.1)).fit(table(kind), column(kind, classes))
    assert list(classifier.classes_) == ["ill", "well"]
    assert set(classifier.predict(table(kind))) <= {"ill", "well"}


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_columns_that_are_no_numbers_are_named(kind: str) -> None:
    _, y, _ = data()
    words = ["a", "b"] * (ROWS // 2)
    when = np.full(ROWS, "2024-02-29", dtype="datetime64[ms]")
    wrong: list[Any] = [words, when]
    if kind == "pandas":
        wrong += [pd.Categorical([1, 2] * (ROWS // 2)), pd.Series([1, 2] * (ROWS // 2), dtype=object)]
        wrong += [pd.Categorical([True, False] * (ROWS // 2))]
    else:
        wrong += [pl.Series(words, dtype=pl.Categorical), pl.Series(words, dtype=pl.Enum(["a", "b"]))]
    for values in wrong:
        with pytest.raises(TypeError, match=r"X: the column 'ward' must hold numbers, got .*; encode it"):
            FederatedLinearRegression().fit(table(kind, ward=values), y)
    model = FederatedLinearRegression().fit(table(kind, ward=[1.0, 2.0] * (ROWS // 2)), y)
    with pytest.raises(TypeError, match="X: the column 'ward' must hold numbers"):
        model.predict(table(kind, ward=words))


@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.parametrize("values", [[1.0, None], [1.0, float("nan")], [1, None], [True, None]])
def test_missing_values_are_refused_with_their_column(kind: str, values: list[Any]) -> None:
    _, y, _ = data()
    whole = [values[0]] * (ROWS - 3) + [values[1], values[0], values[1]]
    dtype = {float: "Float64", int: "Int64", bool: "boolean"}[type(values[0])]
    held = pd.Series(whole, dtype=dtype) if kind == "pandas" else pl.Series(whole)
    with pytest.raises(ValueError, match=r"X: the column 'ward' must .* 2 of 60 are missing, the first in row 57"):
        FederatedLinearRegression().fit(table(kind, ward=held), y)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_missing_targets_and_sites_are_refused(kind: str) -> None:
    labels = column(kind, ["a"] * (ROWS - 2) + [None, "b"])
    with pytest.raises(
        ValueError, match="y must have a value for every row, but 1 of 60 is missing, the first in row 58"
    ):
        FederatedLogisticRegression().fit(table(kind), labels)
    with pytest.raises(ValueError, match="groups must name one for every entry, but some are None"):
        FederatedLinearRegression().fit(table(kind), data()[1], groups=labels)
    if kind == "pandas":
        with pytest.raises(ValueError, match="groups must name one for every entry"):
            FederatedLinearRegression().fit(table(kind), data()[1], groups=labels.astype("string"))


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "double[pyarrow]", pd.SparseDtype(float, 0.0)])
def test_numbers_of_pandas_own_kinds_are_numbers(dtype: Any) -> None:
    _, y, _ = data()
    values = [0, 1] * (ROWS // 2)
    frame = pd.DataFrame({"ward": values, "bed": values[::-1]})
    model = FederatedLinearRegression(standardize=False)
    found, expected = (clone(model).fit(frame.astype(kind), y) for kind in (dtype, float))
    np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-12)
    assert list(found.feature_names_in_) == ["ward", "bed"]


def test_lazy_tables_are_refused() -> None:
    with pytest.raises(TypeError, match=r"X must be a table with its rows, got a LazyFrame: give X.collect\(\)"):
        FederatedLinearRegression().fit(table("polars").lazy(), data()[1])


def test_categories_of_a_table_go_through_a_pipeline() -> None:
    from sklearn.compose import make_column_transformer

    frame = table("pandas", ward=pd.Series(["a", "b"] * (ROWS // 2)))
    encoded = make_column_transformer((OneHotEncoder(sparse_output=False), ["ward"]), remainder="passthrough")
    with sklearn.config_context(transform_output="pandas"):
        model = make_pipeline(encoded, FederatedLinearRegression()).fit(frame, data()[1])
    assert list(model[-1].feature_names_in_[:2]) == ["onehotencoder__ward_a", "onehotencoder__ward_b"]


# Tensors


class Tensor:
    """A tensor of another package: nothing but DLPack."""

    def __init__(self, array: Any, device: int = 1, requires_grad: bool = False) -> None:
        self._array = np.ascontiguousarray(array)
        self._device = device
        self.requires_grad = requires_grad

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0


def test_tensors_are_taken_for_data_start_and_operators() -> None:
    X, y, site = data()
    B = np.eye(FEATURES)[1:] - np.eye(FEATURES)[:-1]
    start = np.linspace(-1.0, 1.0, FEATURES)
    results = []
    for kind in (np.asarray, Tensor):
        fit = fpdfp.losses.LeastSquares(kind(X), kind(y), clients=kind(site), l2=0.01)
        problem = fpdfp.Problem(fit, penalties.L1(kind(np.full(FEATURES - 1, 0.1))), kind(B), weights=kind(np.ones(4)))
        results.append(fpdfp.solve(problem, rounds=20, x0=kind(start)))
        assert problem.objective(kind(start)) == pytest.approx(problem.objective(start), rel=1e-14)
    np.testing.assert_array_equal(results[0].x, results[1].x)


def test_tensors_are_taken_by_the_estimators() -> None:
    X, y, site = data()
    found = FederatedLinearRegression().fit(Tensor(X), Tensor(y), groups=Tensor(site))
    expected = FederatedLinearRegression().fit(X, y, groups=site)
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    np.testing.assert_array_equal(found.predict(Tensor(X)), expected.predict(X))


def test_a_tensor_is_not_copied() -> None:
    array = np.ones((4, 3))
    assert np.shares_memory(_checks.float_array("X", Tensor(array)), array)


@pytest.mark.parametrize("name", ["X", "y", "x0", "linop"])
def test_tensors_elsewhere_and_with_gradients_are_refused_by_name(name: str) -> None:
    X, y, _ = data()

    def use(kind: Any) -> None:
        given = {"X": X, "y": y, "x0": np.zeros(FEATURES), "linop": np.eye(FEATURES)}
        given[name] = kind(given[name])
        problem = fpdfp.Problem(fpdfp.losses.LeastSquares(given["X"], given["y"]), penalties.L1(0.1), given["linop"])
        fpdfp.solve(problem, rounds=1, x0=given["x0"])

    with pytest.raises(TypeError, match=f"{name} must be in the memory of the processor, got a Tensor on the GPU"):
        use(lambda array: Tensor(array, device=2))
    with pytest.raises(TypeError, match=rf"{name} must not be a tensor that requires a gradient: give .detach\(\)"):
        use(lambda array: Tensor(array, requires_grad=True))


@pytest.mark.parametrize("name", ["X", "y", "groups"])
def test_the_estimators_refuse_them_too(name: str) -> None:
    X, y, site = data()
    for options, message in (({"device": 2}, "memory of the processor"), ({"requires_grad": True}, "requires a grad")):
        given = {"X": X, "y": y, "groups": site}
        given[name] = Tensor(given[name], **options)
        with pytest.raises(TypeError, match=f"{name} must .*{message}"):
            FederatedLinearRegression().fit(**given)


def test_a_tensor_that_numpy_cannot_read_is_refused() -> None:
    class Odd(Tensor):
        def __dlpack__(self, **kwargs: Any) -> Any:
            raise BufferError("bfloat16 is not supported")

    with pytest.raises(TypeError, match="X cannot be made into an array: bfloat16 is not supported"):
        fpdfp.losses.LeastSquares(Odd(np.eye(2)), np.ones(2))


def test_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    X, y, site = data()
    fit = fpdfp.losses.LeastSquares(torch.tensor(X), torch.tensor(y), clients=torch.tensor(site), l2=0.01)
    expected = fpdfp.solve(fpdfp.Problem(losses(), penalties.L1(0.1)), rounds=10).x
    found = fpdfp.solve(fpdfp.Problem(fit, penalties.L1(0.1)), rounds=10, x0=torch.zeros(FEATURES)).x
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(TypeError, match=r"X must not be a tensor that requires a gradient: give .detach\(\)"):
        fpdfp.losses.LeastSquares(torch.tensor(X, requires_grad=True), y)
