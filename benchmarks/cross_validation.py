"""A cross-validation in the exchanges of one fit: rounds, bits, accuracy, and time against glmnet and scikit-learn.

    python -m benchmarks.cross_validation [--case words]

l1 logistic regression on a9a (in --data, $FPDFP_DATA or ../shared/data; breast-cancer data of scikit-learn where it is
not there) without an intercept, among 20 sites: 100 weights down to 1e-4 of the largest, with all rows and without
those of each of 5 folds, by `fpdfp.solve_many` to a relative accuracy of 1e-6. With `--case words` the word counts of
`benchmarks.bag_of_words` (16,000 texts, 62,000 words) with 50 weights down to 0.05 of the largest; with `--case dense`
1,000 rows with 3,000 features, neighbours of which have a correlation of 0.6, among 10 sites, and the same weights.

Rounds are compared with those of the default method at the smallest weight, and bits with such fits of all problems. Of
these the ones with all rows at --sample weights are run, and their mean counts for all; --all runs all of them. The
accuracy is the largest relative error of objectives at --sample of the problems, against `fpdfp.minimize` to 1e-10.

`cv.glmnet` (in R) and `LogisticRegressionCV(solver="saga")` get the same rows in one place, the same folds and weights,
and the loosest of a ladder of tolerances whose objectives, of the fits that they return, are as accurate as ours must
be; or the tightest one. saga gets --saga weights, evenly spaced from the largest down to the smallest, and its time is
multiplied up to all. What is not installed is left out by name.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.io
import scipy.signal
import scipy.sparse

import fpdfp
from benchmarks import _tools
from benchmarks._problems import DATA, SMALL, is_there, load
from benchmarks.bag_of_words import draw_texts

SITES, FOLDS, TOL = 20, 5, 1e-6
#: How many weights, and the least relative to the largest.
CASES = {"a9a": (100, 1e-4), "words": (50, 0.05), "dense": (50, 0.05)}
GLMNET, SAGA = (1e-7, 1e-9, 1e-11, 1e-13), (1e-1, 1e-2, 1e-3, 1e-4)
SCRIPT = r"""
suppressPackageStartupMessages({library(Matrix); library(glmnet)})
folder <- commandArgs(TRUE)[1]
X <- as(readMM(file.path(folder, "X.mtx")), "CsparseMatrix")
rows <- read.csv(file.path(folder, "rows.csv"))
grid <- scan(file.path(folder, "grid.txt"), quiet = TRUE)
for (thresh in as.numeric(commandArgs(TRUE)[-1])) {
  seconds <- system.time(fit <- suppressWarnings(cv.glmnet(
    X, rows$y, family = "binomial", lambda = grid, foldid = rows$fold, standardize = FALSE, intercept = FALSE,
    thresh = thresh, maxit = 1e6)))["elapsed"]
  beta <- matrix(0, length(grid), ncol(X))
  found <- t(as.matrix(fit$glmnet.fit$beta))
  beta[seq_len(nrow(found)), ] <- found
  write.table(beta, file.path(folder, paste0("beta-", thresh, ".txt")), row.names = FALSE, col.names = FALSE)
  cat(thresh, seconds, nrow(found), "\n")
}
"""


class Rows(NamedTuple):
    """The rows, their labels of 0 and 1, sites and folds, and the weights from the largest down."""

    X: Any
    y: np.ndarray
    site: np.ndarray
    fold: np.ndarray
    alphas: np.ndarray

    def problem(self, alpha: float, fold: int = -1, *, sites: bool = False) -> fpdfp.Problem:
        """Return the problem of a weight without the rows of a fold, in one place or at the sites."""
        kept = self.fold != fold
        losses = fpdfp.losses.Logistic(self.X[kept], self.y[kept], clients=self.site[kept] if sites else None)
        return fpdfp.Problem(losses, fpdfp.penalties.L1(alpha), weights="samples")


class Best:
    """Least objectives, to 1e-10."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self._found = rows, {}  # type: tuple[Rows, dict[tuple[float, int], tuple[fpdfp.Problem, float]]]

    def error(self, alpha: float, fold: int, x: np.ndarray) -> float:
        """Return by how much the objective at x is above the least one, relative to that."""
        if (alpha, fold) not in self._found:
            problem = self.rows.problem(alpha, fold)
            self._found[alpha, fold] = problem, problem.objective(fpdfp.minimize(problem, tol=1e-10).x)
        problem, least = self._found[alpha, fold]
        return float(problem.objective(x) / least - 1.0)


def draw_rows(folder: Path, case: str) -> tuple[Any, np.ndarray, int]:
    """Return the rows of a case, their labels of 0 and 1, and how many sites there are."""
    if case == "words":
        X, y = draw_texts(16_000, 62_000)
        return X, (y > 0).astype(float), SITES
    if case == "dense":
        rng = np.random.default_rng(0)
        X = scipy.signal.lfilter([0.8], [1.0, -0.6], rng.standard_normal((1000, 3000)), axis=1)
        return X, (X[:, ::200] @ rng.standard_normal(15) + rng.logistic(size=1000) > 0).astype(float), SITES // 2
    made = load(folder, "a9a")
    return scipy.sparse.csr_array(made.features), (np.asarray(made.labels) > 0).astype(float), SITES


def read(folder: Path, case: str = "a9a") -> Rows:
    """Return the rows, dealt out to sites in turn, with the folds that the sites draw."""
    X, y, sites = draw_rows(folder, case)
    site = np.arange(len(y)) % sites
    fold = np.empty(len(y), dtype=np.int64)
    for one in range(sites):
        fold[site == one] = fpdfp.Folds(FOLDS).draw(y[site == one])
    largest = float(np.abs(X.T @ (y - 0.5)).max()) / len(y)
    count, ratio = CASES[case]
    return Rows(X, y, site, fold, largest * np.logspace(0, np.log10(ratio), count))


def solve_all(rows: Rows) -> tuple[fpdfp.ManyResult, float]:
    """Solve all problems; return the result and the seconds."""
    losses = fpdfp.losses.Logistic(rows.X, rows.y, clients=rows.site)
    penalties = [fpdfp.penalties.L1(float(alpha)) for alpha in rows.alphas]
    problems = [fpdfp.Problem(losses, one, weights="samples") for one in penalties]
    held = [fold for fold in (None, *range(FOLDS)) for _ in problems]
    started = time.perf_counter()
    found = fpdfp.solve_many(problems * (FOLDS + 1), folds=FOLDS, held_out=held, tol=TOL, rounds=500, progress=False)
    return found, time.perf_counter() - started


def fit_separately(rows: Rows, wanted: list[tuple[float, int]]) -> dict[str, Any]:
    """Run the default method for some weights and folds."""
    rounds, bits = [], []
    for alpha, fold in wanted:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = fpdfp.solve(rows.problem(alpha, fold, sites=True), rounds=3000, tol=TOL, progress=False)
        rounds.append(found.rounds)
        bits.append(found.total_up + found.total_down)
    return {"rounds": rounds, "mbit": float(np.mean(bits)) / 1e6}


def run_glmnet(rows: Rows, best: Best, sample: np.ndarray) -> dict[str, Any] | None:
    """Return the time and the accuracy of cv.glmnet, None where there is no R with glmnet."""
    there = (
        shutil.which("Rscript")
        and not subprocess.run(["Rscript", "-e", "library(glmnet)"], capture_output=True, check=False).returncode
    )
    if not there:
        return None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scipy.io.mmwrite(folder / "X.mtx", scipy.sparse.coo_array(rows.X))
        np.savetxt(
            folder / "rows.csv", np.column_stack([rows.y, rows.fold + 1]), "%d", ",", header="y,fold", comments=""
        )
        np.savetxt(folder / "grid.txt", rows.alphas, "%.17g")
        (folder / "cv.R").write_text(SCRIPT)
        for thresh in GLMNET:
            done = subprocess.run(
                ["Rscript", folder / "cv.R", folder, f"{thresh:g}"], capture_output=True, text=True, check=True
            )
            _, seconds, count = done.stdout.split()
            beta = np.loadtxt(folder / f"beta-{thresh:g}.txt")
            errors = [best.error(float(rows.alphas[k]), -1, beta[k]) for k in sample if k < int(count)]
            result = {"thresh": thresh, "seconds": float(seconds), "error": max(errors), "weights": int(count)}
            print(f"cv.glmnet, thresh {thresh:g}: {result}", flush=True)
            if result["error"] <= TOL:
                break
    return result


def run_saga(rows: Rows, best: Best, count: int) -> dict[str, Any]:
    """Return the time of LogisticRegressionCV for so many weights, multiplied up to all, and its accuracy."""
    from sklearn.linear_model import LogisticRegressionCV

    some = rows.alphas[np.linspace(0, len(rows.alphas) - 1, count).round().astype(int)]
    folds = [(np.flatnonzero(rows.fold != fold), np.flatnonzero(rows.fold == fold)) for fold in range(FOLDS)]
    # scikit-learn's sums of losses: the fits that are returned leave out a fold
    used = len(folds[0][0])
    settings = {
        "penalty": "l1",
        "solver": "saga",
        "fit_intercept": False,
        "cv": folds,
        "max_iter": 20_000,
        "random_state": 0,
    }
    X = scipy.sparse.csr_matrix(rows.X)
    for tol in SAGA:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            started = time.perf_counter()
            model = LogisticRegressionCV(Cs=1.0 / (some * used), tol=tol, scoring="neg_log_loss", **settings).fit(
                X, rows.y
            )
            seconds = time.perf_counter() - started
        (paths,) = model.coefs_paths_.values()
        errors = [best.error(float(alpha), 0, paths[0][k]) for k, alpha in enumerate(some)]
        result = {"tol": tol, "seconds": seconds * len(rows.alphas) / count, "error": max(errors), "weights": count}
        print(f"saga, tol {tol:g}: {result}", flush=True)
        if result["error"] <= TOL:
            break
    return result


def main() -> None:
    """Run all and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=list(CASES), default="a9a")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--sample", type=int, default=17, help="how many separate fits are run, and problems checked")
    parser.add_argument(
        "--saga", type=int, default=5, help="how many weights LogisticRegressionCV gets; 0: it is left out"
    )
    parser.add_argument("--all", action="store_true", help="run all separate fits")
    given = parser.parse_args()
    rows, name = read(given.data, given.case), given.case
    if name == "a9a" and not is_there(given.data, "a9a"):
        name = SMALL
    sample = np.linspace(0, len(rows.alphas) - 1, given.sample).round().astype(int)
    solve_all(rows._replace(alphas=rows.alphas[:3]))  # compiles
    found, seconds = solve_all(rows)
    print(found, f"{seconds:.2f} s", flush=True)
    best = Best(rows)
    x = found.x.reshape(FOLDS + 1, len(rows.alphas), -1)
    errors = [
        best.error(float(rows.alphas[k]), place % (FOLDS + 1) - 1, x[place % (FOLDS + 1), k])
        for place, k in enumerate(sample)
    ]
    wanted = (
        [(float(a), f) for a in rows.alphas for f in range(-1, FOLDS)]
        if given.all
        else [(float(rows.alphas[k]), -1) for k in sample]
    )
    single = fit_separately(rows, [(float(rows.alphas[-1]), -1)])
    apart = fit_separately(rows, wanted)
    count = (FOLDS + 1) * len(rows.alphas)
    mbit = (found.bits_up + found.bits_down) / 1e6
    results: dict[str, Any] = {
        "data": name, "converged": found.converged, "rounds": found.rounds, "rounds_of_one_fit": single["rounds"][0],
        "mbit": mbit, "mbit_of_separate_fits": count * apart["mbit"], "separate_fits_run": len(wanted),
        "bits_ratio": mbit / (count * apart["mbit"]), "largest_error": max(errors), "seconds": seconds,
    }  # fmt: skip
    peers: dict[str, Callable[[], dict[str, Any] | None]] = {"cv.glmnet": lambda: run_glmnet(rows, best, sample)}
    if given.saga:
        peers["LogisticRegressionCV"] = lambda: run_saga(rows, best, given.saga)
    table = [["fpdfp.solve_many", f"{max(errors):.1e}", f"{seconds:.1f}", "1"]]
    for peer, measure in peers.items():
        one = measure()
        if one is None:
            print(f"{peer} is not installed")
            continue
        results[peer] = one | {"ratio": one["seconds"] / seconds}
        table.append([peer, f"{one['error']:.1e}", f"{one['seconds']:.1f}", f"{one['seconds'] / seconds:.1f}"])
    title = (
        f"{name}: {len(rows.alphas)} weights × {FOLDS} folds, {found.rounds} rounds (one fit: {single['rounds'][0]})"
    )
    _tools.show(title, ["solver", "largest error", "seconds", "ratio"], table)
    _tools.finish(results)


if __name__ == "__main__":
    main()
