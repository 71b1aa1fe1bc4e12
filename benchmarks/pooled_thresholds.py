"""The numbers that steer `fpdfp.minimize`, halved and doubled, on problems that they were not fitted on.

    python -m benchmarks.pooled_thresholds [--only TEXT]

Each cell has two medians, divided by those with the present value: of the steps, over the problems and tolerances
where these change (in brackets the range of the ratios and how many change), and of the processor time of all runs. A
number is flat if both medians of times are within 10 %: a step may take more or less time. A run that does not converge
is named. One thread.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import warnings
from collections.abc import Iterator

import numba
import numpy as np
import scipy.ndimage
import scipy.sparse
from threadpoolctl import threadpool_limits

import fpdfp
from benchmarks._ablation_thresholds import POOLED
from benchmarks.solvers import differences

TOLERANCES = (1e-3, 1e-7)
#: Medians of times that differ by no more are those of a flat curve.
FLAT = 0.1


def outcomes(forms: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw outcomes of a logistic model."""
    return np.where(rng.random(len(forms)) < 1.0 / (1.0 + np.exp(-forms)), 1.0, -1.0)


def maps() -> Iterator[fpdfp.Problem]:
    """Fewer rows than voxels of a line, an image and a volume."""
    for number, (shape, rows, smooth, weight, l2) in enumerate((
        ((12, 12, 12), 120, 1.0, 5e-4, 0.0), ((40, 50), 150, 2.0, 2e-3, 0.0), ((13, 13, 13), 200, 0.7, 1e-3, 1e-2),
    )):  # fmt: skip
        rng, size = np.random.default_rng(100 + number), int(np.prod(shape))
        X = np.stack([scipy.ndimage.gaussian_filter(rng.standard_normal(shape), smooth).ravel() for _ in range(rows)])
        X, truth = X / X.std(), np.zeros(shape)
        truth[tuple(slice(side // 4, side // 2) for side in shape)] = 1.0
        forms = X @ truth.ravel()
        forms *= 2.0 / forms.std()
        parts = []
        for along in range(len(shape)):
            part = scipy.sparse.identity(1)
            for axis, side in enumerate(shape):
                part = scipy.sparse.kron(part, differences(side) if axis == along else scipy.sparse.identity(side))
            parts.append(part)
        B = scipy.sparse.vstack([*parts, 0.3 * scipy.sparse.identity(size)]).tocsr()
        losses: fpdfp.losses.Losses = fpdfp.losses.Logistic(X, outcomes(forms, rng), l2=l2)
        if number == 1:
            losses = fpdfp.losses.LeastSquares(X, forms + rng.standard_normal(rows), l2=l2)
        yield fpdfp.Problem(losses, fpdfp.penalties.L1(weight), B)


def sets() -> Iterator[fpdfp.Problem]:
    """Norms of entries and groups: thin and thick sparse rows, dense ones, counts."""
    rng = np.random.default_rng(200)
    for rows, features, entries in ((2000, 8000, 8), (3000, 400, 30)):
        X = scipy.sparse.random_array((rows, features), density=entries / features, format="csr", rng=rng)
        y = outcomes(3.0 * X[:, :40].sum(axis=1) - 1.0, rng)
        yield fpdfp.Problem(fpdfp.losses.Logistic(X, y), fpdfp.penalties.L1(1e-3))
    X = rng.standard_normal((4000, 300)) + rng.standard_normal((4000, 1))
    forms = X[:, :30] @ rng.standard_normal(30) / 5.0
    yield fpdfp.Problem(fpdfp.losses.Logistic(X, outcomes(forms, rng)), fpdfp.penalties.L1(3e-3))
    groups = fpdfp.penalties.GroupL12(0.02, groups=np.arange(300) // 4)
    yield fpdfp.Problem(fpdfp.losses.LeastSquares(X, forms + rng.standard_normal(4000)), groups)
    counts = rng.poisson(np.exp(0.3 * forms)) * 1.0
    yield fpdfp.Problem(fpdfp.losses.GLM(X[:, :60], counts, family="poisson"), fpdfp.penalties.L1(0.02))


def composites() -> Iterator[fpdfp.Problem]:
    """Differences and graphs, constraints, and features of very different sizes."""
    rng = np.random.default_rng(300)
    X, steps = rng.standard_normal((1500, 300)), np.repeat(rng.standard_normal(10), 30) / 10.0
    yield fpdfp.Problem(
        fpdfp.losses.LeastSquares(X, X @ steps + rng.standard_normal(1500)), fpdfp.penalties.L1(0.02), differences(300)
    )
    B = differences(100)
    y = outcomes(X[:, :100] @ steps[:100], rng)
    yield fpdfp.Problem(fpdfp.losses.Logistic(X[:, :100], y, l2=1e-3), fpdfp.penalties.L1(0.01), B)
    yield fpdfp.Problem(
        fpdfp.losses.Logistic(X[:, :100] * 10.0 ** rng.uniform(-3, 3, 100), y), fpdfp.penalties.Box(0, 1)
    )
    parts = [fpdfp.penalties.L1(0.01), fpdfp.penalties.NonNegative()]
    linop = fpdfp.linops.VStack([fpdfp.linops.Matrix(B), fpdfp.linops.Identity(100)])
    yield fpdfp.Problem(fpdfp.losses.Logistic(X[:, :100], y), fpdfp.penalties.Stacked(parts, [99, 100]), linop)


def measure(problems: list[fpdfp.Problem]) -> list[tuple[float, int, bool]]:
    """Return seconds, steps and whether each run converged."""
    found = []
    for problem in problems:
        for tol in TOLERANCES:
            started = time.process_time()
            best = fpdfp.minimize(problem, tol=tol)
            found.append((time.process_time() - started, best.newton_steps, best.converged))
    return found


def sweep(name: str, problems: list[fpdfp.Problem], present: list[tuple[float, int, bool]]) -> str:
    """Return a row of the table."""
    one, cells, medians, failures = POOLED[name], [], [], 0
    for factor in (0.5, 2.0):
        with contextlib.ExitStack() as patched:
            for patch in one.patches(name, factor):
                patched.enter_context(patch)
            other = measure(problems)
        both = list(zip(present, other, strict=True))
        steps = [after[1] / before[1] for before, after in both if after[1] != before[1]]
        seconds = float(np.median([after[0] / before[0] for before, after in both]))
        failed = sum(before[2] and not after[2] for before, after in both)
        failures += failed
        medians.append(seconds)
        span = (
            f"{np.median(steps):.2f} ({min(steps):.2f} to {max(steps):.2f}; {len(steps)} of {len(both)})"
            if steps
            else "same"
        )
        cells.append(f"{span} · {seconds:.2f}" + (f", {failed} fail" if failed else ""))
    if failures:
        verdict = "needed: another value makes a run fail"
    elif all(abs(middle - 1.0) <= FLAT for middle in medians):
        verdict = "flat"
    else:
        verdict = "better elsewhere" if min(medians) < 1.0 - FLAT else "steep, near its best"
    return f"| `{name}` | {one.value(name)} | {one.steers} | {cells[0]} | {cells[1]} | {verdict} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="only the numbers whose names contain this")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    numba.set_num_threads(1)
    print("| threshold | value | steers | half | double | verdict |\n| --- | --- | --- | --- | --- | --- |")
    with threadpool_limits(1):
        large, others = list(maps()), [*sets(), *composites()]
        measure([*large, *others])  # compiles
        kinds = {True: (large, measure(large)), False: (others, measure(others))}
        for name, one in POOLED.items():
            if arguments.only not in name:
                continue
            if one.change is None:
                print(f"| `{name}` | {one.value(name)} | {one.steers} |  |  | {one.why} |", flush=True)
            else:
                print(sweep(name, *kinds["wide" in name]), flush=True)


if __name__ == "__main__":
    main()
