"""Time and memory of large simulations and servers; every case in a process of its own.

    python -m benchmarks.scale                  # all cases
    python -m benchmarks.scale clients sites    # some of them

* ``clients``: a million clients with two sparse rows of 10,000 features each; 1,000 take part in a round, and nobody
  remembers anything (``stateless=True``), 20 rounds.
* ``softmax``: 20 classes × 60,000 word counts, 1.2 million coefficients, 20 sites, 20 rounds.
* ``sites``: 1,000 sites × 100,000 features, all in every round, shifts and messages as by default. The part of a round
  that is not gradients: differences to shifts, quantizers, exact bits, the clients' memory and the server's step. Once
  with 1% of the entries of gradients other than zero, and x at zero; once with 22%, and x dense. With
  other work on the machine the clock says little: the time of all threads together is shown beside it.
* ``sparse``: one client with 10 million non-zeros.
* ``map``: dense float32 rows in a file that is mapped into memory: what is read of it can be dropped at any time and is
  no memory of the process; that of its own ("anonymous") must stay far below the size of the file.
* ``remembered``: what a run takes in memory with 500 and with 5,000 clients that remember 20,000 numbers each, 50 of
  them in a round; for methods without memory as well.

Memory is the largest resident set of the process, as the system reports it, with 0.25 GB of Python and its packages;
"added" is what it grew by after the rows had been made. Anonymous memory is looked at every 10 ms (Linux).
"Data" is the size of the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import fpdfp
from benchmarks import _tools

GB = 1e9


def sparse_rows(rows: int, features: int, entries: int, dtype: Any = np.float64) -> Any:
    """Return rows with so many entries each, at random places, that losses need not copy."""
    generator = np.random.default_rng(0)
    # One entry in each part of the features, so that places are sorted and none comes twice.
    width = features // entries
    columns = generator.integers(0, width, (rows, entries), dtype=np.int32)
    columns += np.arange(0, width * entries, width, dtype=np.int32)
    data = generator.random(rows * entries, dtype=np.float32).astype(dtype, copy=False)
    pointers = np.arange(0, rows * entries + 1, entries, dtype=np.int32)
    X = scipy.sparse.csr_array((data, columns.ravel(), pointers), (rows, features))
    for array in (X.data, X.indices, X.indptr):
        array.setflags(write=False)
    return X


def ready(X: Any) -> dict[str, Any]:
    """Return the size of the rows; from here on the peak of memory is noted anew (Linux)."""
    parts = (X.data, X.indices, X.indptr) if scipy.sparse.issparse(X) else (X,)
    before = memory_of("self", "VmRSS")
    if before:
        Path("/proc/self/clear_refs").write_text("5")
    return {"data": sum(part.nbytes for part in parts) / GB, "before": before / GB}


def labels(rows: int, classes: int = 2) -> Any:
    return np.random.default_rng(1).integers(0, classes, rows).astype(float)


def timed(problem: fpdfp.Problem, method: Any = None, **options: Any) -> dict[str, Any]:
    """Solve, and return what a round took and what came of it."""
    started = time.perf_counter()
    result = fpdfp.solve(problem, method, evaluate_every=options["rounds"], progress=False, **options)
    objectives = result.history.objective
    return {
        "seconds": time.perf_counter() - started,
        "seconds_of_a_round": float(result.history.seconds[-1]) / result.rounds,
        "objective": [float(objectives[0]), float(objectives[-1])],
    }


def clients() -> dict[str, Any]:
    count, rows = 1_000_000, 2_000_000
    X = sparse_rows(rows, 10_000, 10)
    ready_data = ready(X)
    losses = fpdfp.losses.Logistic(X, labels(rows), clients=np.repeat(np.arange(count), 2), l2=1e-3)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(1e-4))
    return ready_data | timed(problem, rounds=20, clients_per_round=1000, stateless=True)


def softmax() -> dict[str, Any]:
    rows, classes = 20_000, 20
    X = sparse_rows(rows, 60_000, 80)
    ready_data = ready(X)
    losses = fpdfp.losses.Softmax(X, labels(rows, classes), clients=np.repeat(np.arange(20), rows // 20), l2=1e-3)
    return ready_data | timed(fpdfp.Problem(losses, fpdfp.penalties.L1(1e-4)), rounds=20)


def sites(entries: int, weight: float) -> dict[str, Any]:
    count, features = 1000, 100_000
    X = sparse_rows(50 * count, features, entries)
    ready_data = ready(X)
    losses = fpdfp.losses.Logistic(X, labels(50 * count), clients=np.repeat(np.arange(count), 50), l2=1e-3)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(weight))
    # What runs by default, without the search for a preconditioner.
    quantizers = {"compressor": fpdfp.QSGD(5, norm="max"), "downlink": fpdfp.QSGD(31, norm="max")}
    clocks: list[tuple[float, float]] = []

    def note(run: fpdfp.Run) -> None:
        clocks.append((run.seconds, time.process_time()))

    result = timed(problem, fpdfp.ShiftedPDFP(), rounds=6, callbacks=[note], **quantizers)
    rounds = np.diff(np.array(clocks), axis=0)[1:]
    x, parts = np.zeros(features), np.array_split(np.arange(count), 100)
    spent = []
    for _ in range(3):
        begun = time.perf_counter(), time.process_time()
        for part in parts:
            losses.gradients(x, part)
        spent.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    (wall, cpu), (gradients, gradients_cpu) = rounds.min(axis=0), np.array(spent).min(axis=0)
    return {
        **ready_data,
        **result,
        "seconds_of_a_round": wall,
        "seconds_of_gradients": gradients,
        "seconds_beside_gradients": wall - gradients,
        "seconds_of_all_threads_beside_gradients": cpu - gradients_cpu,
    }


def sparse() -> dict[str, Any]:
    X = sparse_rows(100_000, 50_000, 100)
    ready_data = ready(X)
    losses = fpdfp.losses.Logistic(X, labels(100_000), l2=1e-3)
    return ready_data | timed(fpdfp.Problem(losses, fpdfp.penalties.L1(1e-4)), fpdfp.PDFP(), rounds=20)


def mapped() -> dict[str, Any]:
    rows, features = 400_000, 500  # the constants of clients take some fifty passes over them
    with tempfile.NamedTemporaryFile(suffix=".npy", dir=Path.cwd()) as file:
        X = np.lib.format.open_memmap(file.name, "w+", dtype=np.float32, shape=(rows, features))
        generator = np.random.default_rng(0)
        for first in range(0, rows, 10_000):
            X[first : first + 10_000] = generator.standard_normal((10_000, features), dtype=np.float32)
        X.flush()
        y = (X[:, 0] > 0).astype(np.float32)
        del X
        X = np.load(file.name, mmap_mode="r")
        ready_data = ready(X)
        losses = fpdfp.losses.Logistic(X, y, clients=np.repeat(np.arange(10), rows // 10), l2=1e-3)
        problem = fpdfp.Problem(losses, fpdfp.penalties.L1(1e-4))
        return ready_data | timed(problem, fpdfp.ShiftedPDFP(), rounds=5)


def remembered(name: str, count: int, *, in_file: bool = False) -> dict[str, Any]:
    X = sparse_rows(count, 20_000, 5)
    ready_data = ready(X)
    losses = fpdfp.losses.Logistic(X, labels(count), clients=np.arange(count), l2=1e-3)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(1e-4))
    # FedDR needs exact replies.
    options: dict[str, Any] = {} if name == "FedDR" else {"compressor": fpdfp.QSGD(5)}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        options |= {"scratch": folder} if in_file else {}
        return ready_data | timed(problem, getattr(fpdfp, name)(), rounds=40, clients_per_round=50, **options)


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "clients": clients,
    "softmax": softmax,
    "sites": lambda: sites(20, 1e-4),
    "sites: most of x is not zero": lambda: sites(500, 1e-6),
    "sparse": sparse,
    "map": mapped,
    **{
        f"remembered: {name}, {count:,} clients": lambda name=name, count=count: remembered(name, count)  # type: ignore[misc]
        for name in ("ShiftedPDFP", "StatelessPDFP", "FPDFP", "FedDR")
        for count in (500, 5000)
    },
    "remembered: ShiftedPDFP, 5,000 clients, in a file": lambda: remembered("ShiftedPDFP", 5000, in_file=True),
}


def measure(name: str) -> dict[str, Any]:
    """Run a case in a process of its own, and add its memory."""
    command = [sys.executable, "-m", "benchmarks.scale", "--alone", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        anonymous = 0
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            anonymous = max(anonymous, memory_of(process.pid, "RssAnon"))
            time.sleep(0.01)
        assert process.stdout is not None
        said = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"the case {name!r} failed")
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found | {"anonymous": anonymous / GB}


def memory_of(pid: int | str, kind: str) -> int:
    """Return the bytes of a process's memory of a kind; 0 where the system does not say."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    lines = [line for line in status.splitlines() if line.startswith(kind)]
    return 1024 * int(lines[0].split()[1]) if lines else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="some of: clients, softmax, sites, sparse, map, remembered")
    parser.add_argument("--alone", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        import resource

        found = CASES[options.alone]()
        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GB
        added = memory_of("self", "VmHWM") / GB - found.pop("before")
        print(json.dumps(found | {"peak": peak, "added": added}, default=float))
        return
    chosen = [name for name in CASES if not options.cases or name.split(":")[0] in options.cases]
    if not chosen:
        parser.error(f"no case is called {', '.join(options.cases)}")
    found = {}
    for name in chosen:
        found[name] = measure(name)
        print(f"{name}: {found[name]['seconds']:.0f} s", file=sys.stderr)
    header = ["case", "seconds", "of a round", "beside gradients", "data GB", "added GB", "peak GB", "anonymous GB"]
    rows = [
        [
            name, f"{one['seconds']:.1f}", f"{one['seconds_of_a_round']:.3g}",
            f"{one['seconds_beside_gradients']:.2f}" if "seconds_beside_gradients" in one else "",
            *(f"{one[key]:.2f}" for key in ("data", "added", "peak", "anonymous")),
        ]
        for name, one in found.items()
    ]  # fmt: skip
    _tools.show("scale", header, rows)
    _tools.finish({"benchmark": "scale", "cases": found})


if __name__ == "__main__":
    main()
