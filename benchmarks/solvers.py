"""`fpdfp.minimize` beside the solvers that a person would use with all data in one place.

    python -m benchmarks.solvers [--tasks table,l1,sparse,composite,map] [--only TEXT] [--budget 20] [--peer adelie …]

* ``table``: six sizes of linear models with an l1 norm and a ridge (both with a weight of 1e-3), among N clients;
* ``l1``: the lasso, l1 logistic regression and the group lasso on a9a, on bag-of-words features (16,000 × 62,000,
  drawn) and on dense 10⁴ × 10³ data;
* ``sparse``: l1 logistic regression on rows with 15 entries, and an l1 norm with counts (Poisson);
* ``composite``: g(Bx) with differences along chains and grids, and with a graph;
* ``map``: logistic regression on smooth images of 16³ and 32³ voxels, fewer of them than voxels, with an anisotropic
  total variation and an l1 norm.

Peers: SAGA, liblinear and coordinate descent of scikit-learn, skglm, celer, glum, adelie (extra ``peers``); cvxpy with
Clarabel and SCS, OSQP, PyProximal, a dense dual path algorithm and FISTA in NumPy for g(Bx). One that is not installed
is named. Everyone has one thread, and data in the layout that it likes best. A solver that is told a tolerance or a
number of steps is run with one after another, from loose to tight; what counts is the fastest run that comes within a
relative 1e-4, 1e-6 and 1e-9 of the minimum, the minimum being certified to a smaller gap. `fpdfp.minimize` is told
these three tolerances, and its time includes the certificate. Seconds are those of the processor, which on a machine
with nothing else to do are those of the clock; compilation is done before. A solver that needs longer than the budget
for one run gets no tighter one.

a9a is looked for in --data, $FPDFP_DATA or ../shared/data; breast-cancer data of scikit-learn stand in for it.
"""

from __future__ import annotations

import argparse
import functools
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import scipy.linalg  # brings a BLAS of its own, which gets one thread too
import scipy.ndimage
import scipy.sparse
from threadpoolctl import threadpool_limits

import fpdfp
from benchmarks import _tools
from benchmarks._peers import GENERIC, SPECIALISTS, Peer, Task
from benchmarks._problems import DATA, SMALL, is_there, load

LEVELS = (1e-4, 1e-6, 1e-9)
OURS = "fpdfp.minimize"
#: Runs that take less than this are repeated, and the shortest counts.
SHORT, REPEATS = 2.0, 3


def draw(rows: int, features: int, *, logistic: bool, density: float | None = None) -> tuple[Any, np.ndarray]:
    """Draw normal features and targets that depend on a tenth of them."""
    rng = np.random.default_rng(0)
    if density is None:
        X: Any = rng.standard_normal((rows, features))
    else:
        X = scipy.sparse.random_array(
            (rows, features),
            density=density,
            format="csr",
            rng=rng,
            data_sampler=rng.standard_normal,
        )
    x = np.zeros(features)
    some = max(3, features // 10)
    x[rng.choice(features, some, replace=False)] = rng.standard_normal(some)
    return X, targets(X @ x, logistic, rng)


def targets(forms: np.ndarray, logistic: bool, rng: np.random.Generator) -> np.ndarray:
    if logistic:
        return np.where(rng.random(len(forms)) < 1 / (1 + np.exp(-forms)), 1.0, -1.0)
    return forms + rng.standard_normal(len(forms))


def draw_words(*, logistic: bool, rows: int = 16_000, features: int = 62_000, length: int = 100) -> Any:
    """Draw documents whose words follow Zipf's law, with logarithms of counts in rows of unit length."""
    rng = np.random.default_rng(0)
    shares = 1.0 / np.arange(1.0, features + 1.0)
    words = rng.choice(features, size=(rows, length), p=shares / shares.sum())
    counts = scipy.sparse.coo_array(
        (np.ones(words.size), (np.repeat(np.arange(rows), length), words.ravel())), shape=(rows, features)
    ).tocsr()
    counts.data = np.log1p(counts.data)
    X = scipy.sparse.diags_array(1.0 / np.sqrt(counts.power(2).sum(axis=1))) @ counts
    x = np.zeros(features)
    x[rng.choice(2000, 50, replace=False)] = 20 * rng.standard_normal(50)
    return scipy.sparse.csr_array(X), targets(X @ x, logistic, rng)


def table() -> Iterator[Task]:
    for name, rows, features, clients, logistic, density in (
        ("10⁵ × 30, logistic", 10**5, 30, 1000, True, None),
        ("10⁶ × 100, logistic", 10**6, 100, 100, True, None),
        ("10⁶ × 100, least squares", 10**6, 100, 100, False, None),
        ("5·10⁴ × 300 sparse, logistic", 5 * 10**4, 300, 100, True, 0.05),
        ("10⁵ × 1,000 sparse, logistic", 10**5, 1000, 100, True, 0.01),
        ("10⁴ × 1,000, logistic", 10**4, 1000, 10, True, None),
    ):
        X, y = draw(rows, features, logistic=logistic, density=density)
        yield Task(name, X, y, logistic, l1=1e-3, l2=1e-3, clients=clients)


def largest_weight(X: Any, y: np.ndarray, logistic: bool, group: int = 1) -> float:
    """Return the least l1 weight for which 0 is a solution."""
    slope = X.T @ (y / 2 if logistic else y) / len(y)
    padded = np.append(slope, np.zeros(-len(slope) % group)).reshape(-1, group)
    return float(np.linalg.norm(padded, axis=1).max())


def l1(folder: Path) -> Iterator[Task]:
    a9a = load(folder, "a9a")
    name = "a9a" if is_there(folder, "a9a") else SMALL
    for kind, logistic, group in (("lasso", False, 1), ("l1 logistic", True, 1), ("group lasso", False, 5)):
        for label, (X, y), share in (
            (name, (a9a.features, a9a.labels), 0.001),
            ("words", draw_words(logistic=logistic), 0.05),
            ("dense 10⁴ × 10³", draw(10**4, 10**3, logistic=logistic), 0.02),
        ):
            width = X.shape[1] - X.shape[1] % group
            kept = X[:, :width] if width < X.shape[1] else X
            yield Task(
                f"{kind}, {label}",
                kept,
                y,
                logistic,
                share * largest_weight(kept, y, logistic, group),
                group_size=group,
            )


def sparse() -> Iterator[Task]:
    rng = np.random.default_rng(0)
    for rows, features in ((1500, 6000), (5000, 20_000)):
        places = np.repeat(np.arange(rows), 15), rng.integers(0, features, 15 * rows)
        X = scipy.sparse.coo_array((rng.standard_normal(15 * rows), places), shape=(rows, features)).tocsr()
        x = np.zeros(features)
        x[rng.choice(features, features // 10, replace=False)] = 3 * rng.standard_normal(features // 10)
        y = targets(X @ x, True, rng)
        yield Task(f"l1 logistic, {rows:,} × {features:,}, 15 a row", X, y, True, 0.1 * largest_weight(X, y, True))
    X = rng.standard_normal((20_000, 40))
    y = rng.poisson(np.exp(X[:, :8] @ (0.3 * rng.standard_normal(8)))) * 1.0
    weight = 0.1 * float(np.abs(X.T @ (1.0 - y)).max()) / len(y)
    yield Task("l1 Poisson, 20,000 × 40", X, y, False, weight, counts=True)


def images() -> Iterator[Task]:
    for side, rows in ((16, 300), (16, 1000), (32, 300), (32, 1000)):
        rng, shape = np.random.default_rng(0), (side,) * 3
        x, a = np.zeros(shape), side // 4
        x[a : 2 * a, a : 2 * a, a : 2 * a] = 1.0
        x[2 * a : 3 * a, 2 * a : 3 * a, a : 2 * a] = -1.0
        X = np.stack([scipy.ndimage.gaussian_filter(rng.standard_normal(shape), 1.5).ravel() for _ in range(rows)])
        X /= X.std()
        forms = X @ x.ravel()
        y = targets(2 * forms / forms.std(), True, rng)
        along, eye = differences(side), scipy.sparse.identity(side)
        parts = [[along, eye, eye], [eye, along, eye], [eye, eye, along]]
        B = [scipy.sparse.kron(scipy.sparse.kron(first, second), third) for first, second, third in parts]
        B = scipy.sparse.vstack([*B, 0.5 * scipy.sparse.identity(side**3)]).tocsr()
        yield Task(f"map, {rows:,} × {side}³", X, y, True, 2e-4, B=B, clients=5)


def differences(count: int) -> Any:
    """Return the differences of neighbours as a matrix."""
    return scipy.sparse.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(count - 1, count)).tocsr()


def composite(folder: Path) -> Iterator[Task]:
    rng = np.random.default_rng(0)
    for name, rows, features, logistic in (
        ("fused least squares", 4000, 400, False),
        ("fused logistic", 4000, 200, True),
        ("fused least squares", 20_000, 2000, False),
    ):
        X = rng.standard_normal((rows, features))
        x = np.repeat(rng.standard_normal(features // 20), 20) / np.sqrt(features)
        y = targets(2 * X @ x, logistic, rng)
        yield Task(f"{name}, {rows:,} × {features:,}", X, y, logistic, 0.01, 1e-3, B=differences(features))
    for name, rows, side, logistic in (
        ("grid least squares", 16_000, 40, False),
        ("grid logistic", 4000, 20, True),
    ):
        x = np.zeros((side, side))
        x[side // 8 : side // 2, side // 8 : side // 2] = 1.0
        x[side // 4 : 3 * side // 4, side // 3 : 7 * side // 8] -= 0.6
        along, across = differences(side), scipy.sparse.identity(side)
        B = scipy.sparse.vstack([scipy.sparse.kron(along, across), scipy.sparse.kron(across, along)]).tocsr()
        X = rng.standard_normal((rows, side * side))
        y = targets(2 * X @ (x.ravel() / np.linalg.norm(x)), logistic, rng)
        yield Task(f"{name}, {rows:,} × {side}²", X, y, logistic, 0.01, 1e-3, B=B)
    a9a = load(folder, "a9a")
    assert a9a.graph is not None
    name = "a9a" if is_there(folder, "a9a") else SMALL
    yield Task(f"graph-guided logistic, {name}", a9a.features, a9a.labels, True, a9a.l2, a9a.l2, B=a9a.graph.stacked())


def seconds(prepare: Callable[[], Callable[[], Any]]) -> tuple[Any, float]:
    """Return what a solver found, and the processor time that it took; what is prepared for each run has no time."""
    least = np.inf
    for _ in range(REPEATS):
        solve = prepare()
        started = time.process_time()
        found = solve()
        least = min(least, time.process_time() - started)
        if least > SHORT:
            break
    return found, least


def climb(
    solve: Callable[[float], Any], ladder: Any, problem: fpdfp.Problem, minimum: float, budget: float
) -> dict[float, float]:
    """Return the processor time to each level that a solver reaches."""
    reached: dict[float, float] = {}
    for rung in ladder:
        try:
            found, took = seconds(lambda rung=rung: functools.partial(solve, rung))  # type: ignore[misc]
        except Exception as error:  # a peer that fails on a task is shown without a number
            print(f"  failed at {rung:g}: {type(error).__name__}: {str(error)[:100]}", flush=True)
            break
        if found is None:
            break
        gap = problem.objective(np.asarray(found, dtype=np.float64)) / minimum - 1.0
        for level in LEVELS:
            if gap <= level:
                reached[level] = min(took, reached.get(level, np.inf))
        if LEVELS[-1] in reached or took > budget:
            break
    return reached


def compare(task: Task, peers: dict[str, Peer], budget: float) -> dict[str, dict[float, float]]:
    """Return the times of everyone for one task."""
    problem = task.problem()
    best = fpdfp.minimize(problem, tol=1e-11)
    # Even the smallest level is judged by what is certain.
    minimum = best.objective - (best.certificate.gap or np.inf)
    ours = {}
    for level in LEVELS:
        # A new problem for each run: what one run finds out about a problem, such as norms, is kept with it.
        found, took = seconds(lambda level=level: functools.partial(fpdfp.minimize, task.problem(), tol=level))  # type: ignore[misc]
        assert found.converged, f"{task.name}: {found}"
        assert found.objective <= minimum * (1 + level)
        ours[level] = took
    times = {OURS: ours}
    for name, peer in peers.items():
        if not peer.is_there:
            continue
        solve = peer.prepare(task)
        if solve is not None:
            times[name] = climb(solve, peer.ladder, problem, minimum, budget)
    return times


def warm_up(peers: dict[str, Peer]) -> None:
    """Compile what is compiled, on small problems of every form."""
    for task in small_tasks():
        fpdfp.minimize(task.problem(), tol=1e-4)
        for peer in peers.values():
            solve = peer.prepare(task) if peer.is_there else None
            if solve is not None:
                solve(peer.ladder[1])


def small_tasks() -> Iterator[Task]:
    for logistic in (True, False):
        for density in (None, 0.2):
            X, y = draw(300, 20, logistic=logistic, density=density)
            for l2, group in ((0.0, 1), (1e-2, 1), (0.0, 5)):
                yield Task("small", X, y, logistic, 1e-2, l2, group)
    X, y = draw(300, 20, logistic=False)
    yield Task("small counts", X, np.abs(np.rint(y)), False, 1e-2, counts=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    groups = "table,l1,sparse,composite,map"
    parser.add_argument("--tasks", default=groups, help=f"which of {groups}")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of the longest run of a peer")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the tasks whose names contain this")
    names = [*SPECIALISTS, *GENERIC]
    parser.add_argument(
        "--peer", action="append", choices=names, metavar="NAME", help=f"only these of: {'; '.join(names)}"
    )
    arguments = parser.parse_args()
    numba.set_num_threads(1)
    with threadpool_limits(1):
        run(arguments)


def run(arguments: argparse.Namespace) -> None:
    """Measure what was asked for."""
    warnings.simplefilter("ignore")  # peers warn of steps that were too few, which is the point of a ladder
    missing = sorted({peer.package for peer in (*SPECIALISTS.values(), *GENERIC.values()) if not peer.is_there})
    if missing:
        print(f"not installed, so not compared: {', '.join(missing)}", flush=True)
    groups = {
        "table": (SPECIALISTS, table),
        "l1": (SPECIALISTS, lambda: l1(arguments.data)),
        "sparse": (SPECIALISTS, sparse),
        "composite": (GENERIC, lambda: composite(arguments.data)),
        "map": (GENERIC, images),
    }
    results: dict[str, Any] = {}
    for group in arguments.tasks.split(","):
        everyone, tasks = groups[group]
        peers = {name: peer for name, peer in everyone.items() if arguments.peer is None or name in arguments.peer}
        if everyone is SPECIALISTS:
            warm_up(peers)
        else:
            fpdfp.minimize(next(iter(tasks())).problem(), tol=1e-2)
        for task in tasks():
            if arguments.only not in task.name:
                continue
            times = compare(task, peers, arguments.budget)
            header = ["solver", *(f"seconds to {level:g}" for level in LEVELS)]
            shown = [
                [name, *(f"{t[level]:.3f}" if level in t else "–" for level in LEVELS)] for name, t in times.items()
            ]
            _tools.show(task.name, header, shown)
            results[task.name] = {
                f"{level:g}": {
                    "seconds": {name: round(t[level], 4) for name, t in times.items() if level in t},
                    "ours_over_best": _ratio(times, level, min),
                }
                for level in LEVELS
            }  # fmt: skip
    _tools.finish({"missing": missing, "tasks": results})


def _ratio(times: dict[str, dict[float, float]], level: float, choose: Callable[[list[float]], float]) -> float | None:
    """Return our time over that of the best peer; None where no peer came so close."""
    peers = [t[level] for name, t in times.items() if name != OURS and level in t]
    return round(times[OURS][level] / choose(peers), 3) if peers else None


if __name__ == "__main__":
    main()
