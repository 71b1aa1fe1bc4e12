"""The default method with `tol=`, which is not told its target, beside the best of tuned rivals that are.

    python -m benchmarks.default --tables FILE

The default is `fpdfp.solve(problem, tol=ε)`: it stops at a certified gap, and what the certificates cost is counted. A
rival is stopped when its true error is at most ε, and sends nothing to find out: RandProx and FedDR with the best of a
grid of steps and levels for that accuracy, NewtonPDFP, and ProximalNewton where everyone takes part. Counted are all
bits up and down but for evaluations and the certificate of the result.

The default runs with each preference, `"rounds"`, `"bits"` and `"balanced"`, and is compared with the best rival in
rounds, in bits and in their product; each has a best rival of its own. Nothing in the package was tuned on the sets
that are HELD_OUT; the others were looked at while the choice was made.
"""

from __future__ import annotations

import argparse
import json
import math
import operator
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets as bundled

import fpdfp
from benchmarks._contenders import markdown
from benchmarks._problems import DATA
from fpdfp._numbers import format_bits
from fpdfp._typing import Array

TARGETS = (1e-3, 1e-6)
GAMMAS, LEVELS = (0.5, 2.0, 8.0), (2, 5, 20)
#: The most rounds of the default and of rivals, and of Newton methods, whose rounds are dear.
ROUNDS, NEWTON_ROUNDS = 1500, 60
#: How the file of tables begins.
TABLES = """\
Rounds and bits of the default with a tolerance, and of the best rivals, for each set. default.md describes them.
Made by `python -m benchmarks.default --tables FILE`, with the options on that page.
"""
#: What is compared, and the preference of ``solve`` that is judged by it.
RESPECTS = {"rounds": "rounds", "bits": "bits", "product": "balanced"}
#: So many times what the best rival takes is enough.
ENOUGH = 1.5


class Case(NamedTuple):
    """A problem, and how many clients take part in a round; None for all."""

    problem: fpdfp.Problem
    per_round: int | None = None


def standardise(X: Array) -> Array:
    """Return columns of mean 0 and deviation 1."""
    deviation = X.std(axis=0)
    scaled: Array = (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    return scaled


def classify(X: Any, y: Array, clients: int, l1: float = 1e-3, l2: float = 1e-4, *, by_label: bool = False) -> Any:
    """Return l1-penalised logistic regression, rows dealt out in turn or sorted by label."""
    owner = np.arange(len(y)) % clients
    if by_label:
        order = np.argsort(y, kind="stable")
        X, y, owner = X[order], y[order], np.arange(len(y)) * clients // len(y)
    return fpdfp.Problem(fpdfp.losses.Logistic(X, y * 1.0, clients=owner, l2=l2), fpdfp.penalties.L1(l1))


def breast_cancer(data: Path) -> Case:
    X, y = bundled.load_breast_cancer(return_X_y=True)
    return Case(classify(standardise(X), y, 20))


def diabetes(data: Path) -> Case:
    X, y = bundled.load_diabetes(return_X_y=True)
    losses = fpdfp.losses.LeastSquares(standardise(X), standardise(y), clients=np.arange(len(y)) % 20)
    return Case(fpdfp.Problem(losses, fpdfp.penalties.L1(0.01)))


def wine(data: Path) -> Case:
    X, y = bundled.load_wine(return_X_y=True)
    return Case(classify(standardise(X), y == 0, 10))


def heavy_tails(data: Path) -> Case:
    rng = np.random.default_rng(0)
    X, w = rng.standard_t(2.0, (6000, 400)), np.where(rng.random(400) < 0.1, rng.standard_normal(400), 0.0)
    z = X @ w
    return Case(classify(X, z / np.median(np.abs(z)) + rng.logistic(size=6000) > 0, 60, l2=1e-3), 12)


def sorted_levels(data: Path) -> Case:
    rng = np.random.default_rng(1)
    y, columns = rng.random(8000) < 0.48, []
    for levels in (6, 4, 10, 2, 9, 2, 2, 2, 12, 2, 5, 4, 4, 9, 9, 4, 3, 5, 9, 6, 7):
        p, q = (rng.dirichlet(np.full(levels, 0.5)) for _ in range(2))
        columns.append(np.eye(levels)[np.where(y, rng.choice(levels, 8000, p=p), rng.choice(levels, 8000, p=q))])
    return Case(classify(np.hstack(columns), y, 20, 1e-4, by_label=True))


def a9a(data: Path) -> Case:
    found = fpdfp.datasets.load("a9a", directory=data)
    return Case(classify(found.X, np.asarray(found.y) > 0, 20, 1e-4, 0.0))


def digits(data: Path) -> Case:
    X, y = bundled.load_digits(return_X_y=True)
    return Case(classify(X / 16.0, y >= 5, 30))


def iris(data: Path) -> Case:
    X, y = bundled.load_iris(return_X_y=True)
    return Case(classify(np.column_stack([X, np.ones(len(y))]), y == 1, 6), 3)


def housing(data: Path) -> Case:
    """Eight skewed, correlated features as those of California's housing."""
    rng = np.random.default_rng(4)
    X = np.exp(rng.standard_normal((4000, 8)) @ rng.standard_normal((8, 8)) / 2.0)
    y = np.log1p(X) @ rng.standard_normal(8) + rng.standard_normal(4000)
    losses = fpdfp.losses.LeastSquares(standardise(X), standardise(y), clients=np.arange(4000) % 40)
    return Case(fpdfp.Problem(losses, fpdfp.penalties.L1(0.01)), 10)


def redundant(data: Path) -> Case:
    X, y = bundled.make_classification(6000, 150, n_informative=30, n_redundant=60, random_state=5)
    return Case(classify(standardise(X), y, 50), 10)


def informative(data: Path) -> Case:
    X, y = bundled.make_classification(3000, 40, n_informative=35, n_redundant=0, flip_y=0.1, random_state=6)
    return Case(classify(X, y, 15))


def fused(data: Path) -> Case:
    rng = np.random.default_rng(7)
    X = rng.standard_normal((2000, 80)) @ np.linalg.cholesky(0.9 ** np.abs(np.subtract.outer(range(80), range(80)))).T
    y = X @ np.repeat([0.0, 1.0, -1.0, 0.0], 20) / 4.0 + rng.logistic(size=2000) > 0
    losses = fpdfp.losses.Logistic(X, y * 1.0, clients=np.arange(2000) % 25, l2=1e-4)
    return Case(fpdfp.Problem(losses, fpdfp.penalties.L1(1e-3), fpdfp.linops.Difference(80)), 5)


def covtype(data: Path) -> Case:
    found = fpdfp.datasets.load("covtype", directory=data)
    rows = np.random.default_rng(8).permutation(found.X.shape[0])[:10_000]
    return Case(classify(found.X[rows], np.asarray(found.y)[rows] > np.min(found.y), 50, 1e-4), 10)


def friedman(data: Path) -> Case:
    """Ten features of which five count, one of them squared; least squares, some clients a round."""
    X, y = bundled.make_friedman1(3000, noise=1.0, random_state=9)
    losses = fpdfp.losses.LeastSquares(standardise(X), standardise(y), clients=np.arange(3000) % 30, l2=1e-4)
    return Case(fpdfp.Problem(losses, fpdfp.penalties.L1(0.01)), 6)


def hastie(data: Path) -> Case:
    """Ten normal features and their squares, of which the sum decides."""
    X, y = bundled.make_hastie_10_2(6000, random_state=10)
    return Case(classify(standardise(np.hstack([X, X**2])), y > 0, 40), 8)


def moons(data: Path) -> Case:
    """Two half moons in polynomials of degree 4."""
    X, y = bundled.make_moons(1500, noise=0.2, random_state=11)
    powers = [X[:, 0] ** i * X[:, 1] ** j for i in range(5) for j in range(5 - i) if i + j]
    return Case(classify(standardise(np.column_stack(powers)), y > 0, 12))


def quantiles(data: Path) -> Case:
    """Twelve normal features of different variance, and shells around the mean."""
    X, y = bundled.make_gaussian_quantiles(cov=2.0, n_samples=3000, n_features=12, n_classes=2, random_state=12)
    X = X * np.logspace(-1, 1, 12)
    return Case(classify(np.hstack([X, standardise(X**2)]), y > 0, 20), 5)


def cancer_area(data: Path) -> Case:
    """The mean area of a tumour from 29 features that say much about it."""
    X, _ = bundled.load_breast_cancer(return_X_y=True)
    X = standardise(X)
    losses = fpdfp.losses.LeastSquares(np.delete(X, 3, axis=1), X[:, 3], clients=np.arange(len(X)) % 15)
    return Case(fpdfp.Problem(losses, fpdfp.penalties.L1(0.005)))


def counts(data: Path) -> Case:
    """Counts of sixty words in documents with several labels, of which the first is asked for."""
    X, y = bundled.make_multilabel_classification(4000, 60, n_classes=5, n_labels=2, random_state=13)
    return Case(classify(standardise(X), y[:, 0], 24), 6)


def circles(data: Path) -> Case:
    """Two circles in polynomials of degree 5."""
    X, y = bundled.make_circles(1600, noise=0.15, factor=0.6, random_state=14)
    powers = [X[:, 0] ** i * X[:, 1] ** j for i in range(6) for j in range(6 - i) if i + j]
    return Case(classify(standardise(np.column_stack(powers)), y > 0, 16))


def low_rank(data: Path) -> Case:
    """Sixty features that are nearly combinations of ten; least squares, some clients a round."""
    X = standardise(bundled.make_low_rank_matrix(2500, 60, effective_rank=10, random_state=15))
    rng = np.random.default_rng(15)
    y = X @ np.where(rng.random(60) < 0.2, rng.standard_normal(60), 0.0) + rng.standard_normal(2500)
    losses = fpdfp.losses.LeastSquares(X, standardise(y), clients=np.arange(2500) % 25, l2=1e-4)
    return Case(fpdfp.Problem(losses, fpdfp.penalties.L1(0.01)), 5)


def swiss_roll(data: Path) -> Case:
    """The place along a rolled sheet from polynomials of degree 3; least squares."""
    X, t = bundled.make_swiss_roll(1800, noise=0.3, random_state=16)
    a, b, c = standardise(X).T
    powers = [a**i * b**j * c**k for i in range(4) for j in range(4 - i) for k in range(4 - i - j) if i + j + k]
    X = standardise(np.column_stack(powers))
    losses = fpdfp.losses.LeastSquares(X, standardise(t), clients=np.arange(1800) % 18)
    return Case(fpdfp.Problem(losses, fpdfp.penalties.L1(0.005)))


def uncorrelated(data: Path) -> Case:
    """Forty normal features of which four count; least squares, some clients a round."""
    X, y = bundled.make_sparse_uncorrelated(2400, 40, random_state=17)
    losses = fpdfp.losses.LeastSquares(standardise(X), standardise(y), clients=np.arange(2400) % 20, l2=1e-4)
    return Case(fpdfp.Problem(losses, fpdfp.penalties.L1(0.01)), 5)


def blobs(data: Path) -> Case:
    """Eight overlapping clusters in 25 dimensions, of two classes."""
    X, y = bundled.make_blobs(3000, 25, centers=8, cluster_std=6.0, random_state=18)
    return Case(classify(standardise(X), y % 2, 30), 6)


TUNING: tuple[Callable[[Path], Case], ...] = (
    breast_cancer, diabetes, wine, heavy_tails, sorted_levels, a9a, digits, iris, housing, informative, cancer_area,
)  # fmt: skip
HELD_OUT: tuple[Callable[[Path], Case], ...] = (
    redundant, fused, covtype, friedman, hastie, moons, quantiles, counts, circles, low_rank, swiss_roll,
    uncorrelated, blobs,
)  # fmt: skip
SETS = {one.__name__: one for one in (*TUNING, *HELD_OUT)}


class Cost(NamedTuple):
    """What a run took."""

    name: str
    rounds: float
    bits: float

    @property
    def product(self) -> float:
        """Rounds times bits."""
        return self.rounds * self.bits


def measure_default(case: Case, tol: float, prefer: Any) -> Cost | None:
    """Run the default until it certifies the tolerance; None where it does not."""
    result = fpdfp.solve(
        case.problem, rounds=ROUNDS, tol=tol, clients_per_round=case.per_round, prefer=prefer, progress=False
    )
    if result.status != "converged":
        return None
    kinds = [bits for kind, bits in result.traffic.items() if kind not in ("evaluation", "end")]
    return Cost(prefer, max(1.0, result.rounds), sum(map(sum, kinds)))


def measure_rival(case: Case, name: str, method: Any, best: float, **options: Any) -> dict[float, Cost]:
    """Run a rival until it is within the last target, and return what each of them took."""

    def is_close(run: fpdfp.Run) -> bool:
        return bool(run.history.last()["objective"] <= best * (1.0 + TARGETS[-1]))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some steps of a grid are meant to be too large
        history = fpdfp.solve(
            case.problem, method, clients_per_round=case.per_round, callbacks=[is_close],
            evaluate_every=1, progress=False, **options,
        ).history  # fmt: skip
    found = {}
    for target in TARGETS:
        within = np.flatnonzero(history.objective <= best * (1.0 + target))
        if len(within):
            k = within[0]
            bits = sum(history[f"total_{way}"][k] - history[f"evaluation_{way}"][k] for way in ("up", "down"))
            found[target] = Cost(name, max(1.0, float(history["round"][k])), float(bits))
    return found


def measure_rivals(case: Case) -> dict[float, list[Cost]]:
    """Return what all rivals took with all their settings, for each target."""
    best = fpdfp.minimize(case.problem, tol=1e-10).objective
    step = 1.0 / float(case.problem.lipschitz.mean())
    runs: list[tuple[str, Any, dict[str, Any]]] = [("NewtonPDFP", fpdfp.NewtonPDFP(), {"rounds": NEWTON_ROUNDS})]
    if case.per_round is None:
        runs.append(("ProximalNewton", fpdfp.ProximalNewton(), {"rounds": NEWTON_ROUNDS}))
    inner = fpdfp.InnerSolve(tol=1e-2)
    runs += [("FedDR", fpdfp.FedDR(gamma * step, inner=inner), {"rounds": ROUNDS}) for gamma in (*GAMMAS, 32.0)]
    for levels in LEVELS:
        quantizers = {
            "compressor": fpdfp.QSGD(levels, norm="max"), "downlink": fpdfp.QSGD(31, norm="max"), "rounds": ROUNDS,
        }  # fmt: skip
        runs += [("RandProx", fpdfp.RandProx(gamma * step), quantizers) for gamma in GAMMAS]
    costs: dict[float, list[Cost]] = {target: [] for target in TARGETS}
    for name, method, options in runs:
        try:
            found = measure_rival(case, name, method, best, **options)
        except fpdfp.errors.ArgumentError as error:
            print(f"    {name} does not fit: {error}", flush=True)
            continue
        for target, one in found.items():
            costs[target].append(one)
    return costs


def read_rivals(file: Path | None, name: str, case: Case) -> dict[float, list[Cost]]:
    """Return what rivals took, from the file of an earlier call if it is there, and kept in it otherwise."""
    known = json.loads(file.read_text()) if file is not None and file.exists() else {}
    if name not in known:
        measured = {f"{target:g}": costs for target, costs in measure_rivals(case).items()}
        known = (json.loads(file.read_text()) if file is not None and file.exists() else {}) | {name: measured}
        if file is not None:
            file.write_text(json.dumps(known))
    return {float(target): [Cost(*one) for one in costs] for target, costs in known[name].items()}


def compare(
    name: str, data: Path, file: Path | None
) -> tuple[list[list[str]], dict[tuple[float, str, str], float | None]]:
    """Return the rows of a set, and ratios by error, preference and what is compared, None where no rival is there.

    They are infinite where the default fails.
    """
    case = SETS[name](data)
    rivals, ratios = read_rivals(file, name, case), dict[tuple[float, str, str], float | None]()
    rows = []
    for target in TARGETS:
        row = [name, f"{target:g}"]
        best = {what: min(rivals[target], key=operator.attrgetter(what), default=None) for what in RESPECTS}
        for prefer in RESPECTS.values():
            mine = measure_default(case, target, prefer)
            row.append("not certified" if mine is None else f"{mine.rounds:,.0f} · {format_bits(mine.bits)}")
            shown = []
            for what, rival in best.items():
                ratio = None
                if rival is not None:
                    ratio = math.inf if mine is None else getattr(mine, what) / getattr(rival, what)
                ratios[target, prefer, what] = ratio
                shown.append("–" if ratio is None else f"{ratio:.2f}")
            row.append(", ".join(shown))
        row += [
            "none gets there" if one is None else f"{one.name} {one.rounds:,.0f} · {format_bits(one.bits)}"
            for one in best.values()
        ]
        rows.append(row)
        print(*row, sep=" | ", file=sys.stderr, flush=True)
    return rows, ratios


def show_summary(found: dict[str, dict[tuple[float, str, str], float | None]], names: Sequence[str]) -> None:
    """Print on how many sets the default takes at most 1.5 times what the best rival does, and the largest ratio."""
    rows = []
    for target in TARGETS:
        for prefer in RESPECTS.values():
            row = [f"{target:g}", prefer]
            for what in RESPECTS:
                given = [found[name][target, prefer, what] for name in names]
                ratios = [0.0 if one is None else one for one in given]
                row.append(f"{sum(one <= ENOUGH for one in ratios)} of {len(ratios)}, largest {max(ratios):.2f}")
            rows.append(row)
    print(markdown(["error", "preference", *RESPECTS], rows), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--rivals", type=Path, help="a file that keeps what rivals take, for later calls")
    parser.add_argument("--tables", type=Path, help="a file that the tables of all sets are written to")
    arguments = parser.parse_args()
    header = ["set", "error", *(f"{title}`{one}`" for one in RESPECTS.values() for title in ("", "ratios, "))]
    header += [f"best rival in {what}" for what in RESPECTS]
    tables = TABLES
    for kind in (HELD_OUT, TUNING):
        names = [one.__name__ for one in kind if one.__name__ in arguments.sets]
        if not names:
            continue
        title = "## " + ("Held-out sets" if kind is HELD_OUT else "Other sets") + "\n\n"
        rows, found = list[list[str]](), {}
        for name in names:
            try:
                more, found[name] = compare(name, arguments.data, arguments.rivals)
            except fpdfp.errors.DataSetError as error:
                print(f"    {name} is not there: {error}", flush=True)
            else:
                rows += more
        tables += "\n" + title + markdown(header, rows)
        print(title, end="")
        show_summary(found, list(found))
    if arguments.tables is not None:
        arguments.tables.write_text(tables)


if __name__ == "__main__":
    main()
