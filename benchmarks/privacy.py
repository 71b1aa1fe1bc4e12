"""What masks and differential privacy cost: time; accuracy and objective of private models; coverage of intervals.

    python -m benchmarks.privacy                                  # masks, utility on five data sets, coverage
    python -m benchmarks.privacy masks
    python -m benchmarks.privacy rounds
    python -m benchmarks.privacy features                         # bits of fits at the level sums, by columns
    python -m benchmarks.privacy rounding
    python -m benchmarks.privacy utility --only breast-cancer a9a --tables FILE
    python -m benchmarks.privacy few                              # with which mechanism few rows are served better
    python -m benchmarks.privacy coverage --studies 100
    python -m benchmarks.privacy utility --diffprivlib PYTHON     # diffprivlib alone, in an environment of its own

Masks: the time that one site takes to mask a million integers of 64 and 128 bits for nine peers; to turn numbers
into 128-bit integers and back; to make and check the keys of 30 sites; and to seal, open, answer and open a message of
2,000 bytes.

Rounds: an l1-penalised logistic model of ten columns at 3 and 10 sites, each a process of its own behind a hub, at the
levels ``filter`` and ``sums``: rounds to a relative gap of 1e-6 with exact messages, and what a round takes. Features:
the same at three sites at the level ``sums`` with 20, 200 and 400 columns, by the default and a first-order method.

Rounding: what integers of 8, 12 and 14 bits under a step that all sites share would tell of single sites, if
first-order rounds sent them in place of 128 bits. Three sites round the change of their gradients at random; an analyst
sees 2,500 sums of the same change, and finds the fractions that each site has rounded from the moments of these sums.

Utility: l2-regularised logistic regression at ε = 0.5, 1, 3 and 10, δ = 1e-6, one row more or less. "Excess" is the
objective over its minimum without privacy, on the training rows as they are; accuracy is on held-out rows. All settings
stand in this file and were fixed before its first run. Radii are public bounds of the columns or typical lengths of
rows, and long rows are scaled to them. The constant of diffprivlib alone is the best of five on two pilot seeds. In one
place are ``newton``, ``statistics`` and ``gradients`` of :mod:`fpdfp.privacy.fit`, objective perturbation (A. Redberg,
A. Koskela and Y.-X. Wang, *Improving the privacy and practicality of objective perturbation for differentially private
linear learners*, 2023; the exact minimum that its proof needs), and diffprivlib (pure ε). Then Newton steps at five
sites with masked sums, one of which may collude, and with all the noise at each site.

Few rows: Newton steps beside statistics on parts of three of these sets, for which one to four Newton steps would be
taken, with a ridge of 0.01.

Coverage: simulated studies of d standard normal covariates with an intercept, at three sites with masked sums; rows
longer than the radius are dropped. Intervals that are refused are counted apart.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import functools
import itertools
import math
import multiprocessing
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize
from sklearn import datasets as bundled

import fpdfp
from benchmarks import _tools
from benchmarks._contenders import markdown
from fpdfp.privacy.accounting import delta_of, mu_of
from fpdfp.privacy.fit import Goal, NoisySum, gradients, newton, statistics
from fpdfp.privacy.noise import discrete_gaussian_noise
from fpdfp.privacy.releases import GRID, Release, bounded, exact_sum, read_sum

EPSILONS, DELTA = (0.5, 1.0, 3.0, 10.0), 1e-6
#: Fresh seeds; those below 1,000 served while the mechanisms were chosen.
SEEDS = 9000
PILOTS, CONSTANTS = 2, (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
SITES = 5
#: What diffprivlib is run with: rows, constants and a seed in a file, coefficients in another.
PEER = """
import sys, warnings
warnings.filterwarnings("ignore")
import numpy as np
from diffprivlib.models import LogisticRegression
given = np.load(sys.argv[1])
model = LogisticRegression(
    epsilon=float(given["epsilon"]), data_norm=float(given["radius"]) * (1 + 1e-7), C=float(given["constant"]),
    fit_intercept=False, random_state=int(given["seed"]), max_iter=500,
).fit(given["X"], given["y"])
np.save(sys.argv[2], model.coef_[0])
"""


class Task(NamedTuple):
    """Training and test rows, the weight of the ridge, and the radius."""

    X: Any
    y: Any
    test: Any
    labels: Any
    ridge: float
    radius: float


class Case(NamedTuple):
    """How a task is drawn from a seed, and how many seeds there are."""

    draw: Callable[[Path, int], Task]
    seeds: int


def signs(y: Any) -> Any:
    return np.where(np.asarray(y) > 0, 1.0, -1.0)


def ones(X: Any) -> Any:
    return np.column_stack([np.asarray(X.toarray() if hasattr(X, "toarray") else X, np.float64), np.ones(X.shape[0])])


def cut(X: Any, y: Any, rows: int, seed: int, ridge: float, radius: float) -> Task:
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:rows], order[rows:]
    return Task(X[train], y[train], X[test], y[test], ridge, radius)


def breast_cancer(data: Path, seed: int) -> Task:
    X, y = bundled.load_breast_cancer(return_X_y=True)
    return cut(ones((X - X.mean(0)) / X.std(0)), signs(y), 455, seed, 1e-2, 3.5)


def digits(data: Path, seed: int) -> Task:
    """Even against odd, from the pixels of 8 × 8 images."""
    X, y = bundled.load_digits(return_X_y=True)
    return cut(ones(X / 16), signs(y % 2), 1437, seed, 1e-2, 4.0)


_read: dict[str, tuple[Any, Any]] = {}


def read(data: Path, name: str, **options: Any) -> tuple[Any, Any]:
    if name not in _read:
        found = fpdfp.datasets.load(name, directory=data, **options)
        _read[name] = (ones(found.X), signs(found.y))
    return _read[name]


def a9a(data: Path, seed: int) -> Task:
    """Fourteen ones a row and an intercept: no row is longer than √15."""
    train, test = read(data, "a9a"), read(data, "a9a.t", n_features=123)
    return Task(*train, *test, 1e-4, math.sqrt(15))


def covtype(data: Path, seed: int) -> Task:
    """Ten columns in [0, 1], one area and one soil of many, and an intercept: √13."""
    X, y = read(data, "covtype")
    chosen = np.random.default_rng(seed).choice(len(y), 30_000, replace=False)
    return cut(X[chosen], y[chosen], 20_000, seed, 1e-3, math.sqrt(13))


def patients(data: Path, seed: int) -> Task:
    """Whether simulated patients are readmitted: age and pressure in public ranges, stages, sex and treatment."""
    table = fpdfp.datasets.patients(10_000, seed).dropna()
    stages = [table["stage"] == stage for stage in ("II", "III", "IV")]
    age, pressure = (table["age"] - 18) / 81, (table["pressure"] - 60) / 180
    X = np.column_stack([age, pressure, *stages, table["sex"] == "female", table["treated"]]).astype(float)
    # age, pressure and the intercept at most 1; at most one stage, sex and treatment: √6
    return cut(ones(X), signs(table["readmitted"]), 7500, seed, 1e-4, math.sqrt(6))


CASES = {
    "breast-cancer": Case(breast_cancer, 40),
    # the radius that the prototype had chosen on other seeds
    "breast-cancer-2": Case(lambda data, seed: breast_cancer(data, seed)._replace(radius=2.0), 40),
    "digits": Case(digits, 20),
    "patients": Case(patients, 20),
    "a9a": Case(a9a, 10),
    "covtype": Case(covtype, 10),
}


def objective(task: Task, x: Any) -> float:
    return float(np.logaddexp(0, -task.y * (task.X @ x)).mean() + task.ridge / 2 * x @ x)


def minimum(X: Any, y: Any, ridge: float, linear: Any = 0.0) -> Any:
    """Minimise Σ log(1 + exp(−y⟨a, x⟩)) + ½ ridge‖x‖² + ⟨linear, x⟩."""
    found = minimize(
        lambda x: (
            float(np.logaddexp(0, -y * (X @ x)).sum() + ridge / 2 * x @ x + np.sum(linear * x)),
            -(y / (1 + np.exp(np.clip(y * (X @ x), -500, 500)))) @ X + ridge * x + linear,
        ),
        np.zeros(X.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 3000, "ftol": 1e-15, "gtol": 1e-8},
    )  # fmt: skip
    return found.x


def perturbation_delta(epsilon: float, radius: float, ridge: float, noise: float) -> float:
    """Return δ of objective perturbation for a logistic loss (Redberg, Koskela and Wang 2023, Theorem 3.1)."""
    curvature = radius**2 / 4
    if curvature >= ridge:
        return 1.0
    less = epsilon - abs(math.log(1 - curvature / ridge))
    rest = less - radius**2 / (2 * noise**2)
    if rest >= 0:
        return 2 * delta_of(less, radius / noise)
    return (1 - math.exp(rest)) + math.exp(rest) * 2 * delta_of(radius**2 / (2 * noise**2), radius / noise)


def perturbed(task: Task, X: Any, y: Any, epsilon: float, seed: int) -> Any:
    """Return the minimum of a perturbed objective, for a trusted place that has all rows; choose ridge, then noise."""
    radius, least, d = task.radius, task.ridge * len(y), task.X.shape[1]
    best = None
    for factor in (1.2, 1.5, 2, 3, 5, 10, 20, 50, 100):
        ridge = max(radius**2 / 4 * factor, least)

        def excess(log: float, ridge: float = ridge) -> float:
            return perturbation_delta(epsilon, radius, ridge, math.exp(log)) - DELTA

        low, high = math.log(radius * 1e-2), math.log(radius * 1e4)
        if excess(low) <= 0 or excess(high) >= 0:
            continue
        noise = math.exp(brentq(excess, low, high))
        # noise and bias, where ‖x‖ is about 1
        score = d * noise**2 / ridge + ridge
        if best is None or score < best[0]:
            best = (score, ridge, noise)
    assert best is not None
    _, ridge, noise = best
    return minimum(X, y, ridge, noise * np.random.default_rng(seed).standard_normal(d))


class Peer:
    """Runs diffprivlib in another interpreter."""

    def __init__(self, python: str) -> None:
        self.python = python

    def fit(self, X: Any, y: Any, epsilon: float, radius: float, constant: float, seed: int) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            given, found = Path(folder) / "given.npz", Path(folder) / "found.npy"
            np.savez(given, X=X, y=y, epsilon=epsilon, radius=radius, constant=constant, seed=seed)
            subprocess.run([self.python, "-c", PEER, str(given), str(found)], check=True)
            return np.load(found)


def masks(repeats: int = 5) -> dict[str, float]:
    """Return milliseconds of processor time, the least of some repeats."""
    from fpdfp.federation.seal import Sealer, Secret, Unsealer
    from fpdfp.privacy.fixed_point import from_wide, to_wide
    from fpdfp.privacy.masks import add_masks

    seen: dict[str, list[float]] = {}

    def measure(what: str, call: Callable[[], Any]) -> Any:
        start = time.process_time()
        found = call()
        seen.setdefault(what, []).append(1e3 * (time.process_time() - start))
        return found

    rng = np.random.default_rng(SEEDS)
    short, numbers = rng.integers(-127, 128, 10**6), rng.standard_normal(10**6)
    ann, north = Secret(bytes(32)), Secret(b"n" * 32)
    sealer = Sealer("study", ann, {"north": north.public})
    unsealer = Unsealer("study", north, {"ann": ann.public})
    sealer.meet("north", unsealer.respond("ann", sealer.greet("north"), bytes))

    def speak() -> None:
        asked = sealer.seal("north", bytes(2000))
        sealer.open("north", asked, unsealer.respond("ann", asked, bytes))

    for _ in range(repeats):
        pairs = {f"peer {i}": secrets.token_bytes(32) for i in range(9)}
        words = short.view(np.uint64)
        measure("mask, 64 bits", functools.partial(add_masks, words, "own", pairs, secrets.token_bytes(32)))
        wide = measure("to 128 bits", lambda: to_wide(numbers, 10))
        measure("from 128 bits", functools.partial(from_wide, wide))
        measure("mask, 128 bits", functools.partial(add_masks, wide, "own", pairs, secrets.token_bytes(32)))
        measure("keys of 30 sites", make_keys)
        measure("a sealed message", speak)
    return {what: min(times) for what, times in seen.items()}


def make_keys(count: int = 30) -> None:
    from fpdfp.federation.seal import Secret
    from fpdfp.privacy.masks import Membership, pair_keys, run_key

    own = {f"site {i}": Secret(secrets.token_bytes(32)) for i in range(count)}
    membership, run = Membership({name: one.public for name, one in own.items()}), secrets.token_bytes(32)
    keys = {name: run_key(one.derive(b"run"), one.identity, membership, run) for name, one in own.items()}
    for name, one in own.items():
        pair_keys(name, one.derive(b"run"), keys, membership, run)


class Fit(NamedTuple):
    """A fit to 1e-6: sites, rows at each, columns, the level and the method."""

    sites: int
    rows: int
    columns: int
    level: str
    method: str


METHODS: dict[str, Any] = {
    "ProximalNewton": fpdfp.ProximalNewton(), "FPDFP": fpdfp.FPDFP(),
    "ShiftedPDFP": fpdfp.ShiftedPDFP(preconditioner="auto"),
}  # fmt: skip
ROUNDS = [
    Fit(*one) for one in itertools.product((3, 10), (300,), (10,), ("filter", "sums"), ("ProximalNewton", "FPDFP"))
]
FEATURES = [
    Fit(3, rows, d, "sums", method)
    for rows, d in ((300, 20), (1200, 200), (2200, 400))
    for method in ("ProximalNewton", "ShiftedPDFP")
]


def rounds(fits: list[Fit]) -> list[dict[str, Any]]:
    """Return rounds to 1e-6, and seconds and bytes of a round, of sites in processes of their own."""
    import pandas

    from fpdfp.federation.rehearse import Rehearsal
    from fpdfp.federation.seal import Secret

    rng, found = np.random.default_rng(SEEDS), []
    for (count, rows, d, level), group in itertools.groupby(fits, lambda fit: fit[:4]):
        with tempfile.TemporaryDirectory() as name:
            folder, files, columns = Path(name), {}, [f"x{j}" for j in range(d)]
            for place in range(count):
                X = rng.standard_normal((rows, d))
                table = pandas.DataFrame(X, columns=columns)
                table["y"] = (rng.random(rows) < 1 / (1 + np.exp(-X[:, 0] + X[:, 1]))).astype(int)
                files[f"s{place}"] = folder / f"s{place}.csv"
                table.to_csv(files[f"s{place}"], index=False)
            lines = [f"level = '{level}'", "analyses = 1000000", "refusals = 1000000"]
            if level == "sums":
                lines += ["[members]", *(f"{one} = '{Secret.of(folder / one).public.hex()}'" for one in files)]
            lines += [f"[columns_of_the_table.{one}]\ntype = 'number'" for one in columns]
            lines += ["[columns_of_the_table.y]\ntype = 'truth'"]
            (folder / "policy.toml").write_text("\n".join(lines))
            with (
                Rehearsal(folder, files, folder / "policy.toml") as running,
                fpdfp.Federation(running.study.folder) as federation,
            ):
                for fit in group:
                    run = fpdfp.RunOptions(rounds=2000, tol=1e-6, compressor=None, progress=False)
                    model = fpdfp.FederatedLogisticRegression(
                        fpdfp.L1(0.01), method=METHODS[fit.method], inference=False, standardize=False, run=run
                    )
                    result = model.fit(federation, "y ~ " + " + ".join(columns)).result_
                    carried, seconds = result.wire, float(result.history.seconds[-1])
                    assert carried is not None
                    found.append({
                        "sites": count, "columns": d, "level": level, "method": fit.method, "rounds": result.rounds,
                        "ms a round": 1e3 * seconds / result.rounds,
                        "bytes up a round": result.traffic["rounds"].up / 8 / result.rounds,
                        "bytes on the wire": carried.up + carried.down,
                    })  # fmt: skip
                    print(found[-1], file=sys.stderr, flush=True)
    return found


def rounding(draws: int = 2500, sites: int = 3, rows: int = 600, columns: int = 50) -> list[dict[str, Any]]:
    """Return how well sums of rounded changes of gradients tell what single sites have rounded."""
    rng, found = np.random.default_rng(SEEDS), []
    X = rng.standard_normal((sites, rows, columns)) + 0.3 * rng.standard_normal((sites, 1, columns))
    y = signs(rng.random((sites, rows)) < 1 / (1 + np.exp(-X[:, :, 0])))
    x = rng.standard_normal(columns)
    x /= np.linalg.norm(x)
    slopes = y[:, :, None] * X * (1 / (1 + np.exp(y * (X @ x))) - 0.5)[:, :, None]
    largest = max(float(np.linalg.norm(one, 2)) ** 2 / rows / 4 for one in X)
    for bits in (8, 12, 14):
        change = -slopes.mean(axis=1) / (largest / (2 ** (bits - 1) - 1))  # in steps, as long as x
        sums = np.array([np.floor(change + rng.random(change.shape)).sum(axis=0) for _ in range(draws)])
        rest = np.sort(change - np.floor(change), axis=0)
        told = np.stack([parts_of(column) for column in sums.T], axis=1)
        found.append({
            "bits": bits, "below a step": float((np.abs(change) < 1).mean()),
            "error": float(np.median(np.abs(told - rest))),
            "error from the sum": float(np.median(np.abs(rest - rest.mean(axis=0)))),
        })  # fmt: skip
    return found


def parts_of(sums: Any) -> Any:
    """Return three fractions, sorted, from sums of numbers that were rounded up with these probabilities."""
    mean, spread, third = sums.mean(), sums.var(), ((sums - sums.mean()) ** 3).mean()
    best, parts = math.inf, np.zeros(3)
    for whole in range(3):
        first = mean % 1 + whole
        second = first - spread
        cubes = (third - first + 3 * second) / 2
        # Newton's identities: the polynomial whose roots have these sums of powers
        roots = np.roots([1, -first, (first**2 - second) / 2, -(first**3 - 3 * first * second + 2 * cubes) / 6])
        wrong = np.abs(roots.imag).sum() + np.abs(roots.real - np.clip(roots.real, 0, 1)).sum()
        if wrong < best:
            best, parts = float(wrong), np.sort(np.clip(roots.real, 0, 1))
    return parts


class Words:
    """Uniform words of a generator, in the place of a site's keyed stream."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def words(self, count: int) -> Any:
        return self.rng.integers(0, 1 << 64, count, np.uint64, endpoint=False)


class Sites:
    """The mechanism without processes, masks and ledgers: the sum over all rows, rounded, and the noise of all sites.

    Rounding is once for all sites, where sites round each for itself: a difference of 1e-6 of a sensitivity.
    """

    def __init__(self, task: Task, count: int, colluding: int | None = None, *, seed: Any) -> None:
        self.task, self.count = task, count
        self.shares = 1 if colluding is None else count - colluding
        self.words, self.kept = Words(np.random.default_rng(seed)), dict[tuple[Any, Any], Any]()

    def __call__(self, release: Release) -> NoisySum:
        task, d = self.task, self.task.X.shape[1]
        which = (release.loss, release.long_rows)
        if which not in self.kept:
            self.kept[which] = bounded(task.X, task.y, task.radius, *which)
        total = np.rint(exact_sum(release, self.kept[which], task.radius) / (release.sensitivity(task.radius) / GRID))
        scale = release.scale(d, self.shares)
        noise: Any = sum(discrete_gaussian_noise(self.words, scale, len(total)) for _ in range(self.count))  # type: ignore[arg-type]
        deviation = release.standard_deviation(task.radius, d, self.count, self.shares)
        return NoisySum(read_sum(release, total + noise, task.radius), deviation)


def utility(
    data: Path, only: list[str], epsilons: list[float], peer: Peer | None, share: float, first: int
) -> list[dict[str, Any]]:
    rows = []
    for name, epsilon in itertools.product(only, epsilons):
        case = CASES[name]
        seeds = [first + i for i in range(max(1, round(case.seeds * share)))]
        found: dict[str, list[tuple[float, float]]] = {}
        constant = best_constant(peer, case, data, epsilon) if peer else 0.0
        for seed in seeds:
            task = case.draw(data, seed)
            if name != "a9a" or seed == seeds[0]:
                least = minimum(task.X, task.y, task.ridge * len(task.y))
                base = objective(task, least)
            goal = Goal(
                len(task.y), task.X.shape[1], task.radius, mu_of(epsilon, DELTA), DELTA, task.ridge, long_rows="scale"
            )
            kept = bounded(task.X, task.y, task.radius, "logistic", "scale")
            dropped = dataclasses.replace(goal, long_rows="drop")
            draw = itertools.count(1000 * round(10 * epsilon))

            def sites(
                count: int, colluding: int | None = None, seed: int = seed, task: Task = task, draw: Any = draw
            ) -> Any:
                return Sites(task, count, colluding, seed=[seed, next(draw)])

            if peer:
                models = {"diffprivlib": peer.fit(*kept, epsilon, task.radius, constant, seed)}
            else:
                models = {
                    "no privacy": least,
                    "newton": newton(sites(1), goal).x,
                    "newton, long rows dropped": newton(sites(1), dropped).x,
                    "statistics": statistics(sites(1), goal)().x,
                    "statistics, long rows dropped": statistics(sites(1), dropped)().x,
                    "gradients": gradients(sites(1), goal).x,
                    "objective perturbation": perturbed(task, *kept, epsilon, seed),
                    f"newton, {SITES} sites, masked": newton(sites(SITES, 1), goal).x,
                    f"newton, {SITES} sites, noise at each": newton(sites(SITES), goal).x,
                }
            for method, x in models.items():
                accuracy = float((signs(task.test @ x) == task.labels).mean())
                found.setdefault(method, []).append((objective(task, x) - base, accuracy))
        for method, pairs in found.items():
            excess, accuracy = np.mean(pairs, axis=0)
            error = np.std(pairs, axis=0, ddof=1) / math.sqrt(len(pairs)) if len(pairs) > 1 else [math.nan] * 2
            row = {
                "data": name,
                "epsilon": epsilon,
                "method": method,
                "seeds": len(pairs),
                "excess": float(excess),
                "excess_error": float(error[0]),
                "accuracy": float(accuracy),
                "accuracy_error": float(error[1]),
            }
            rows.append(row)
            print(row, file=sys.stderr, flush=True)  # what is done is there where the rest is interrupted
    return rows


def utility_tables(rows: list[dict[str, Any]]) -> str:
    """Return the excess objective with its error, and the accuracy, as a table for each ε."""
    methods, names = (list(dict.fromkeys(row[what] for row in rows)) for what in ("method", "data"))
    cells = {}
    for row in rows:
        accuracy = f"{100 * row['accuracy']:.1f} %"
        excess = f"{row['excess']:.4f} ± {row['excess_error']:.4f}, "
        cells[row["epsilon"], row["data"], row["method"]] = ("" if row["method"] == "no privacy" else excess) + accuracy
    return "".join(
        f"\n## ε = {epsilon:g}\n\n"
        + markdown(["data", *methods], [[name, *(cells[epsilon, name, one] for one in methods)] for name in names])
        for epsilon in dict.fromkeys(row["epsilon"] for row in rows)
    )


#: Parts of data sets, by the number of rows, and ε.
FEW = [
    ("a9a", 500, 1.0), ("a9a", 1000, 1.0), ("a9a", 1000, 0.5), ("a9a", 2500, 1.0), ("covtype", 300, 1.0),
    ("covtype", 600, 1.0), ("covtype", 1500, 1.0), ("patients", 150, 1.0), ("patients", 300, 1.0),
    ("patients", 700, 1.0),
]  # fmt: skip


def few(data: Path, first: int, seeds: int = 20) -> list[dict[str, Any]]:
    rows = []
    for name, count, epsilon in FEW:
        excess: list[tuple[float, float]] = []
        for seed in range(first, first + seeds):
            whole = CASES[name].draw(data, seed)
            chosen = np.random.default_rng(seed).choice(len(whole.y), count, replace=False)
            task = whole._replace(X=whole.X[chosen], y=whole.y[chosen], ridge=1e-2)
            mu = mu_of(epsilon, DELTA)
            goal = Goal(count, task.X.shape[1], task.radius, mu, DELTA, task.ridge, long_rows="scale")
            base = objective(task, minimum(task.X, task.y, task.ridge * count))
            fits = newton(Sites(task, 1, seed=[seed, 1]), goal).x, statistics(Sites(task, 1, seed=[seed, 2]), goal)().x
            excess.append((objective(task, fits[0]) - base, objective(task, fits[1]) - base))
        mean, error = np.mean(excess, axis=0), np.std(excess, axis=0, ddof=1) / math.sqrt(seeds)
        told = [f"{one:.4f} ± {other:.4f}" for one, other in zip(mean, error, strict=True)]
        rows.append({
            "data": name, "rows": count, "epsilon": epsilon, "steps": goal.steps, "newton": told[0],
            "statistics": told[1],
        })  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def best_constant(peer: Peer, case: Case, data: Path, epsilon: float) -> float:
    def excess(constant: float) -> float:
        total = 0.0
        for seed in range(SEEDS - PILOTS, SEEDS):
            task = case.draw(data, seed)
            kept = bounded(task.X, task.y, task.radius, "logistic", "scale")
            total += objective(task, peer.fit(*kept, epsilon, task.radius, constant, seed))
        return total

    return min(CONSTANTS, key=excess)


#: Rows, columns and ε of the studies of coverage.
STUDIES = tuple(itertools.product((2000, 10_000, 50_000), (5, 10, 20), (1.0, 3.0, 10.0)))


def study(n: int, d: int, epsilon: float, number: int) -> float | None:
    """Return the share of coefficients that the intervals of a simulated study cover; None where they are refused."""
    rng = np.random.default_rng([SEEDS, n, d, round(epsilon), number])
    X = np.column_stack([rng.standard_normal((n, d - 1)), np.ones(n)])
    true = np.append(rng.uniform(-0.6, 0.6, d - 1), -0.3)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-X @ true)), 1.0, -1.0)
    radius = 1.3 * math.sqrt(d)
    goal = Goal(n, d, radius, mu_of(epsilon, DELTA), DELTA)
    fit = newton(Sites(Task(X, y, None, None, 0.0, radius), 3, 1, seed=rng.integers(1 << 63)), goal)
    if fit.covariance is None:
        return None
    low, high = fit.intervals().T
    return float(((low <= true) & (true <= high)).mean())


def coverage(studies: int, workers: int, first: int = 0) -> list[dict[str, Any]]:
    rows = []
    with concurrent.futures.ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for n, d, epsilon in STUDIES:
            told = [functools.partial(study, n, d, epsilon, first + number) for number in range(studies)]
            found = list(pool.map(_call, told, chunksize=4))
            covered = [one for one in found if one is not None]
            if 0 < len(covered) < studies / 4:  # few show intervals: as many more as it takes
                more = range(first + studies, first + 20 * studies)
                found += pool.map(_call, [functools.partial(study, n, d, epsilon, k) for k in more], chunksize=16)
                covered = [one for one in found if one is not None]
            row = {
                "rows": n,
                "columns": d,
                "epsilon": epsilon,
                "refused": len(found) - len(covered),
                "covered": float(np.mean(covered)) if covered else None,
                "error": float(np.std(covered) / math.sqrt(len(covered))) if covered else None,
            }
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    return rows


def _call(work: Callable[[], Any]) -> Any:
    return work()


PARTS = ["masks", "rounds", "features", "rounding", "few", "utility", "coverage"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--epsilon", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("FPDFP_DATA", "../shared/data")))
    parser.add_argument("--diffprivlib", metavar="PYTHON", help="an interpreter with diffprivlib and scikit-learn 1.6")
    parser.add_argument("--share", type=float, default=1.0, help="of the seeds")
    parser.add_argument("--tables", type=Path, help="a file that the tables of utility are added to")
    parser.add_argument("--seed", type=int, default=SEEDS, help="of the first run of utility")
    parser.add_argument("--studies", type=int, default=400)
    parser.add_argument("--first", type=int, default=0, help="the number of the first study")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    parts = given.parts or PARTS
    results: dict[str, Any] = {}
    if "masks" in parts:
        results["masks"] = masks()
        _tools.show("Masks", ["what", "ms"], [[what, f"{ms:.2f}"] for what, ms in results["masks"].items()])
    shorter: list[tuple[str, str, Callable[[], list[dict[str, Any]]]]] = [
        ("rounds", "Rounds to 1e-6", lambda: rounds(ROUNDS)),
        ("features", "Fits at the level sums", lambda: rounds(FEATURES)),
        ("rounding", "What rounded sums tell of single sites", rounding),
        ("few", "Newton steps and statistics with few rows", lambda: few(given.data, given.seed)),
    ]
    for part, title, measure in shorter:
        if part in parts:
            rows = results[part] = measure()
            shown = [[f"{one:,.3g}" if isinstance(one, float) else str(one) for one in row.values()] for row in rows]
            _tools.show(title, list(rows[0]), shown)
    if "utility" in parts:
        peer = Peer(given.diffprivlib) if given.diffprivlib else None
        results["utility"] = utility(given.data, given.only, given.epsilon, peer, given.share, given.seed)
        _tools.show(
            "Excess objective and accuracy, with standard errors",
            ["data", "epsilon", "method", "excess", "accuracy"],
            [
                [row["data"], f"{row['epsilon']:g}", row["method"], f"{row['excess']:.4f} ± {row['excess_error']:.4f}",
                 f"{row['accuracy']:.3f} ± {row['accuracy_error']:.3f}"]
                for row in results["utility"]
            ],
        )  # fmt: skip
        if given.tables is not None:
            with given.tables.open("a", encoding="utf-8") as file:
                file.write(utility_tables(results["utility"]))
    if "coverage" in parts:
        results["coverage"] = coverage(given.studies, given.workers, given.first)
        _tools.show(
            "Coverage of 95 % intervals",
            ["rows", "columns", "epsilon", "covered", "refused"],
            [
                [f"{row['rows']:,}", str(row["columns"]), f"{row['epsilon']:g}",
                 "none" if row["covered"] is None else f"{row['covered']:.3f} ± {row['error']:.3f}",
                 str(row["refused"])]
                for row in results["coverage"]
            ],
        )  # fmt: skip
    _tools.finish(results)


if __name__ == "__main__":
    main()
