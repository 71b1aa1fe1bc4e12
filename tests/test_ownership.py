"""Problems own their arrays, and kernels may be launched from several threads of Python, whatever threads Numba has."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse

import fpdfp
from fpdfp import _checks, linops, penalties

CLIENTS = [None, [0, 0, 1, 1], [1, 0, 1, 0]]


@pytest.mark.parametrize("clients", CLIENTS)
@pytest.mark.parametrize("make", [np.array, scipy.sparse.csr_array, scipy.sparse.csc_array])
def test_edits_do_not_change_losses(make: Any, clients: Any) -> None:
    X, y = make(np.arange(1.0, 9.0).reshape(4, 2)), np.arange(4.0)
    losses = fpdfp.losses.LeastSquares(X, y, clients=clients)
    before = losses.values(np.ones(2), np.arange(losses.n_clients))
    (X if isinstance(X, np.ndarray) else X.data)[:] = 7.0
    y[:] = 5.0
    np.testing.assert_array_equal(losses.values(np.ones(2), np.arange(losses.n_clients)), before)


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_are_checked_a_part_at_a_time(order: Any) -> None:
    """A mask of all entries would be a quarter of rows that are in a file because they are too large for memory."""
    X = np.zeros((4, 1 << 20), dtype=np.float32, order=order)
    tracemalloc.start()
    _checks.finite("X", X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 2 * _checks.AT_A_TIME + (1 << 16)
    X[2, 5] = X[3, 7] = np.nan
    with pytest.raises(ValueError, match=r"2 of its 4194304 entries .* the first is at index \(2, 5\)"):
        _checks.finite("X", X)


def test_edits_of_a_table_do_not_change_losses() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(np.ones((3, 2)))
    losses = fpdfp.losses.LeastSquares(table, np.ones(3))
    table.iloc[:, :] = 5.0
    assert losses.value(np.zeros(2), np.ones(1)) == 0.5
    assert losses.value(np.ones(2), np.ones(1)) == 0.5


def test_read_only_arrays_are_not_copied(tmp_path: Any) -> None:
    X = np.arange(8.0).reshape(4, 2)
    np.save(tmp_path / "X.npy", X)
    X.setflags(write=False)
    assert np.shares_memory(fpdfp.losses.LeastSquares(X, np.ones(4))._rows.X, X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert np.shares_memory(fpdfp.losses.LeastSquares(mapped, np.ones(4))._rows.X, mapped)


ARRAY = np.array([0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
GROUPS = np.array([0, 1, 0, 1, 2, 2])


class Case(NamedTuple):
    """How to make a penalty or a map of arrays, which are its arguments and nothing else."""

    make: Callable[..., Any]
    arrays: tuple[Any, ...]


#: Every penalty and every map, those without arrays as None.
PENALTIES: dict[str, Case | None] = {
    "L1": Case(penalties.L1, (ARRAY,)),
    "Box": Case(penalties.Box, (-0.2 * ARRAY, 0.1 * ARRAY)),
    "ElasticNet": Case(penalties.ElasticNet, (0.1 * ARRAY, ARRAY, -ARRAY, ARRAY)),
    "GroupL12": Case(lambda weight, groups: penalties.GroupL12(weight, groups=groups), (ARRAY[:3], GROUPS)),
    "SparseGroup": Case(penalties.SparseGroup, (0.1 * ARRAY, ARRAY[:3], GROUPS)),
    "Stacked": Case(
        lambda weight, upper: penalties.Stacked([penalties.L1(weight), penalties.Box(0.0, upper)], [3, 3]),
        (ARRAY[:3], ARRAY[3:]),
    ),
    "NonNegative": None,
    "Zero": None,
    "Wrapped": None,  # an operator of another package: its functions are the user's
    "Penalty": None,
    "as_penalty": None,
}
MATRIX = np.arange(18.0).reshape(3, 6) / 10
LINOPS: dict[str, Case | None] = {
    "Matrix": Case(linops.Matrix, (MATRIX,)),
    "Diagonal": Case(linops.Diagonal, (ARRAY,)),
    "EachRow": Case(lambda matrix: linops.EachRow(matrix, rows=2), (MATRIX[:, :3],)),
    "Compose": Case(linops.Compose, (MATRIX, np.eye(6) + 0.1)),
    "VStack": Case(lambda *parts: linops.VStack(parts), (MATRIX, np.eye(6))),
    "aslinop": Case(linops.aslinop, (MATRIX,)),
    "Difference": None,
    "Gradient": None,
    "Identity": None,
    "LinOp": None,
    "MaskedGradient": None,  # keeps numbers that it has computed from the mask
    "Wrapped": None,  # as above
    "adjoint_error": None,
}


def test_no_penalty_and_no_map_is_forgotten() -> None:
    assert set(PENALTIES) == set(penalties.__all__)
    assert set(LINOPS) == set(linops.__all__)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("marked", [False, True], ids=["writable", "read-only view"])
@pytest.mark.parametrize("name", [name for name, case in (PENALTIES | LINOPS).items() if case])
def test_edits_change_no_penalty_and_no_map(name: str, marked: bool, dtype: Any) -> None:
    case = (PENALTIES | LINOPS)[name]
    assert case is not None
    arrays = [np.array(4 * array if array.dtype.kind == "f" else array, dtype=dtype) for array in case.arrays]
    twin = case.make(*(array.copy() for array in arrays))
    given = [array.view() for array in arrays] if marked else arrays
    for array in given:
        array.setflags(write=not marked)
    made = case.make(*given)
    for array in arrays:
        array[...] = 30 * array[::-1] + 1
    assert probe(made) == probe(twin)


def probe(made: Any) -> list[Any]:
    """Return the objective of a problem with a penalty or a map, and proxes or products."""
    shape = made.in_shape if isinstance(made, linops.LinOp) else (6,)
    losses = fpdfp.losses.Custom(lambda i, x: 0.0, lambda i, x: 0.0 * x, n_clients=1, shape=shape, lipschitz=1.0)
    x = np.linspace(-1.0, 2.0, 6).reshape(shape)
    if isinstance(made, linops.LinOp):
        problem = fpdfp.Problem(losses, penalties.L1(0.1), made)
        image = made.apply(x)
        return [problem.objective(x), made.squared_norm, image.tolist(), made.adjoint(image).tolist()]
    problem = fpdfp.Problem(losses, made)
    slopes = made.conjugate_prox_derivative(x, 0.3)(np.ones(6)).tolist()
    proxes = [made.prox(x, 0.3).tolist(), made.conjugate_prox(x, 0.3).tolist()]
    return [problem.objective(x), *proxes, slopes, made.conjugate(0.1 * x), made.value(x), repr(made)]


LABELS = np.array([0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 1.0, 0.0])
ROWS: dict[str, Any] = {
    "X": np.arange(24.0).reshape(8, 3) % 7 / 7,
    "y": LABELS,
    "clients": np.array([0, 0, 0, 0, 1, 1, 1, 1]),
    "l2": np.array([0.1, 0.2, 0.3]),
}
WEIGHED = ROWS | {"weights": np.linspace(0.5, 1.5, 8), "offset": np.linspace(-0.1, 0.1, 8)}
#: Every loss with all its arguments that are arrays.
LOSSES: dict[str, dict[str, Any] | None] = {
    "LeastSquares": ROWS,
    "Logistic": ROWS | {"y": (LABELS > 0) * 2.0 - 1.0},
    "Softmax": ROWS | {"weights": np.linspace(0.5, 1.5, 8)},
    "GLM": WEIGHED,
    "Multinomial": WEIGHED,
    "Ordinal": WEIGHED,
    "Cox": {name: WEIGHED[name] for name in ("X", "clients", "l2", "weights", "offset")}
    | {"time": np.arange(8.0) + 2.0, "event": (LABELS > 0) * 1.0, "entry": np.linspace(0.0, 1.0, 8)}
    | {"strata": np.arange(8) % 2, "clusters": np.arange(8) // 2},
    "OperatorLeastSquares": None,  # below
    "Custom": None,  # functions of the user
    "Losses": None,
}


@pytest.mark.parametrize("marked", [False, True], ids=["writable", "read-only view"])
@pytest.mark.parametrize("name", sorted(fpdfp.losses.__all__))
def test_edits_of_any_argument_change_no_losses(name: str, marked: bool) -> None:
    arguments = LOSSES[name]
    if arguments is None:
        return
    arrays = {argument: np.array(array) for argument, array in arguments.items()}
    given = {argument: array.view() if marked else array for argument, array in arrays.items()}
    for array in given.values():
        array.setflags(write=not marked)
    make = getattr(fpdfp.losses, name)
    losses, twin = make(**given), make(**arguments)
    for array in arrays.values():
        array[...] = 30 * array[::-1] + 1
    x, clients = np.full(losses.shape, 0.2), np.arange(2)
    if name == "Ordinal":
        x[-2:] = [-1.0, 1.0]
    np.testing.assert_array_equal(losses.values(x, clients), twin.values(x, clients))
    np.testing.assert_array_equal(losses.gradients(x, clients), twin.gradients(x, clients))


def test_a_loop_that_edits_its_weights_makes_different_problems() -> None:
    losses, w, B = fpdfp.losses.LeastSquares(np.eye(2), np.ones(2)), np.ones(2), np.eye(2)
    problems = []
    for _ in range(3):
        w *= 0.1
        B *= 2.0
        problems.append(fpdfp.Problem(losses, penalties.L1(w), B))
    zero = fpdfp.losses.LeastSquares(np.eye(2), np.ones(2)).value(np.ones(2), np.ones(1))
    assert [problem.objective(np.ones(2)) - zero for problem in problems] == pytest.approx([0.4, 0.08, 0.016])


def test_edits_of_the_weights_of_clients_change_no_problem() -> None:
    losses = fpdfp.losses.LeastSquares(np.eye(2), np.ones(2), clients=[0, 1])
    weights = np.array([0.25, 0.75])
    problem = fpdfp.Problem(losses, penalties.Zero(), weights=weights)
    weights[:] = 9.0
    assert problem.objective(np.array([0.0, 1.0])) == 0.125


def counts(**options: Any) -> Any:
    """Rows with zeros that are stored."""
    X = scipy.sparse.csr_array(np.array([[1, 2, 0], [3, 4, 5]]), **options)
    X.data[[0, 3]] = 0
    return X


@pytest.mark.parametrize("frozen", [(), ("data",), ("data", "indices")])
@pytest.mark.parametrize("options", [{}, {"dtype": np.float32}, {"dtype": np.float64}])
@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
def test_edits_of_any_part_of_a_sparse_matrix_change_no_losses(
    kind: str, options: Any, frozen: tuple[str, ...]
) -> None:
    for stored in (np.int64, np.float64):
        X = counts(dtype=stored).asformat(kind)
        for part in frozen if kind == "csr" else ():
            getattr(X, part).setflags(write=False)
        twin = fpdfp.losses.LeastSquares(counts(dtype=stored), np.ones(2), **options)
        losses = fpdfp.losses.LeastSquares(X, np.ones(2), **options)
        B, same = linops.Matrix(X), linops.Matrix(counts(dtype=stored))
        for part in ("data", "indices", "indptr", "row", "col", "offsets"):
            if isinstance(array := getattr(X, part, None), np.ndarray) and array.flags.writeable:
                array[...] = array.ravel()[::-1].reshape(array.shape).copy()
        x = np.array([1.0, 2.0, 3.0], dtype=losses.dtype)
        assert losses.value(x, np.ones(1)) == twin.value(x, np.ones(1))
        assert B.apply(x).tolist() == same.apply(x).tolist()


@pytest.mark.parametrize("options", [{}, {"dtype": np.float32}])
def test_zeros_may_be_removed_later(options: Any) -> None:
    X = counts(dtype=np.int64)
    losses = fpdfp.losses.LeastSquares(X, np.ones(2), **options)
    twin = fpdfp.losses.LeastSquares(X.toarray(), np.ones(2), **options)
    X.eliminate_zeros()
    x = np.array([1.0, 2.0, 3.0], dtype=losses.dtype)
    assert losses.value(x, np.ones(1)) == pytest.approx(twin.value(x, np.ones(1)))


def test_a_sparse_matrix_that_is_read_only_is_not_copied() -> None:
    X = scipy.sparse.csr_array(np.arange(8.0).reshape(4, 2))
    for array in (X.data, X.indices, X.indptr):
        array.setflags(write=False)
    rows = fpdfp.losses.LeastSquares(X, np.ones(4))._rows.X
    assert all(np.shares_memory(getattr(rows, part), getattr(X, part)) for part in ("data", "indices", "indptr"))


def test_edits_of_data_of_operators_change_no_losses() -> None:
    data = [np.ones(2), np.ones(2)]
    losses = fpdfp.losses.OperatorLeastSquares([np.eye(2), np.eye(2)], data)
    before = losses.values(np.zeros(2), np.arange(2))
    data[0][:] = 7.0
    np.testing.assert_array_equal(losses.values(np.zeros(2), np.arange(2)), before)


def test_edits_of_projections_change_no_losses() -> None:
    scan = fpdfp.ct.ConeBeam.circular((8, 8, 4), (12, 8), views=6, source=30.0, panel=45.0)
    projections = fpdfp.ct.XRayTransform(scan).apply(np.ones((8, 8, 4), dtype=np.float32))
    losses = fpdfp.ct.ProjectionLosses(projections, scan)
    x = np.zeros((8, 8, 4), dtype=np.float32)
    before = losses.values(x, np.arange(1))
    projections *= 2.0
    np.testing.assert_array_equal(losses.values(x, np.arange(1)), before)
    projections.setflags(write=False)
    assert np.shares_memory(fpdfp.ct.ProjectionLosses(projections, scan)._data, projections)


def test_who_can_write_to_an_array_decides(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.arange(8.0).reshape(4, 2))

    def is_copied(given: Any) -> bool:
        return not np.shares_memory(_checks.own_array("X", given), given)

    loaded = np.load(tmp_path / "X.npy")  # a view of an array that nothing else refers to
    assert is_copied(loaded)
    loaded.setflags(write=False)
    assert not is_copied(loaded)
    assert is_copied(loaded[1:])  # two views: it cannot be seen that neither writes
    base = np.arange(8.0)
    view = base.view()
    view.setflags(write=False)
    assert is_copied(view)
    base.setflags(write=False)
    assert not is_copied(view)
    assert not is_copied(np.load(tmp_path / "X.npy", mmap_mode="r")[1:])
    for mode in ("r+", "c"):
        mapped = np.load(tmp_path / "X.npy", mmap_mode=mode)
        mapped.setflags(write=False)
        assert is_copied(mapped)
    buffer = bytearray(32)
    frozen = np.frombuffer(buffer)
    frozen.setflags(write=False)
    assert is_copied(frozen)
    assert not is_copied(np.frombuffer(bytes(32)))


PROGRAM = """
import threading
import numba
import numpy as np
import fpdfp

X = np.ones((1 << 15, 4))
losses = fpdfp.losses.LeastSquares(X, np.ones(len(X)), clients=np.arange(len(X)) // 512)
everyone = np.arange(losses.n_clients)
expected = losses.gradients(np.ones(4), everyone)
wrong = []

def work():
    for _ in range(50):
        if not np.array_equal(losses.gradients(np.ones(4), everyone), expected):
            wrong.append(1)

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong
print(numba.threading_layer())
"""


def test_several_threads_with_the_threads_that_numba_brings() -> None:
    settings = {"NUMBA_THREADING_LAYER": "workqueue", "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=os.environ | settings, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["workqueue"]
