"""Losses own their rows, and kernels may be launched from several threads of Python, whatever threads Numba has."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fpdfp

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
