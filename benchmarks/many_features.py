"""Rounds and bits of the default method as the number of features grows from 10 to 100,000.

    python -m benchmarks.many_features

l1-penalised logistic regression among 10 sites, certified to a relative gap of 1e-6, everything automatic. Three kinds
of features: ``ar``, neighbours alike (an autoregression of 0.95); ``block``, groups of 50 that are alike (correlation
0.8) and nothing between groups; ``words``, counts of words in texts of 80 words on 20 topics, as they are. 4,000 rows
(1,000 where there are more than 10,000 features; of the dense kinds in single precision there), ridge 1e-3, and a tenth
of the least l1 weight for which the solution is zero. "Without" is the same without a preconditioner, with all features
throughout, for at most --without of them.

Then cases in which a preconditioner was once not found: as many rows as features, the raw table of breast cancer data;
and what setting up takes: time, and memory beyond the data. The page and the plot are written to --page, and --quick
leaves out more than 2,500 features and writes nothing. The command fails where rounds or bits jump between neighbouring
numbers of features.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import fpdfp
from benchmarks import _tools
from benchmarks._contenders import markdown
from fpdfp._numbers import format_bits

SITES, TOL, ROUNDS = 10, 1e-6, 1000
KINDS = ("ar", "block", "words")
FEATURES = (10, 30, 100, 200, 300, 500, 990, 1010, 2500, 10_000, 30_000, 100_000)
QUICK, WITHOUT = 2500, 1010
#: Rounds may change by this factor from one number of features to the next, and bits by the second, up also by as much
#: as there are more features.
ROUNDS_JUMP, BITS_JUMP = 2.5, 3.0
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "many-features.md"
#: Numbers of features, as the tables write them, that the page shows; a text file beside it has all.
SHOWN = ("300", "10,000", "100,000")


def rows_of(kind: str, d: int, seed: int) -> tuple[Any, Any]:
    """Return features and labels."""
    generator = np.random.default_rng(seed)
    rows = 4000 if d <= 10_000 else 1000
    if kind == "words":
        return words(d, rows, generator)
    X = generator.standard_normal((rows, d), dtype=np.float64 if d <= 10_000 else np.float32)
    if kind == "ar":
        for j in range(1, d):
            X[:, j] = 0.95 * X[:, j - 1] + math.sqrt(1 - 0.95**2) * X[:, j]
    else:
        common = generator.standard_normal((rows, -(-d // 50)), dtype=X.dtype)
        X *= math.sqrt(0.2)
        for j in range(d):
            X[:, j] += math.sqrt(0.8) * common[:, j // 50]
    chosen = generator.choice(d, min(20, d), replace=False)
    score = X[:, chosen] @ generator.standard_normal(len(chosen))
    return X, (score + generator.standard_normal(rows) > 0).astype(float)


def words(d: int, rows: int, generator: np.random.Generator) -> tuple[Any, Any]:
    """Return counts of words in texts, each on some of 20 topics, and which half of the topics a text is on."""
    topics = 20
    often = 1.0 / (generator.permutation(d) + 2.7)
    shares = often * generator.lognormal(0.0, 1.5, (topics, d))
    limits = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    mix = generator.dirichlet(np.full(topics, 0.2), rows)
    length = generator.poisson(80, rows) + 5
    text = np.repeat(np.arange(rows), length)
    drawn = generator.random(len(text))
    topic = (drawn[:, None] > np.cumsum(mix, axis=1)[text]).sum(axis=1).clip(max=topics - 1)
    place, word = generator.random(len(text)), np.empty(len(text), dtype=np.int64)
    for one in range(topics):
        word[topic == one] = np.searchsorted(limits[one], place[topic == one]).clip(max=d - 1)
    X = scipy.sparse.csr_array((np.ones(len(text)), (text, word)), (rows, d))
    X.sum_duplicates()
    return X, (mix[:, : topics // 2].sum(axis=1) + 0.1 * generator.standard_normal(rows) > 0.5).astype(float)


def problem_of(X: Any, y: Any, l2: float = 1e-3, sites: int = SITES) -> fpdfp.Problem:
    """Return the problem among sites."""
    rows = X.shape[0]
    largest = float(np.abs(X.T @ (y - 0.5)).max()) / rows
    losses = fpdfp.losses.Logistic(X, y, clients=np.arange(rows) % sites, l2=l2)
    return fpdfp.Problem(losses, fpdfp.penalties.L1(0.1 * largest))


def solve(problem: fpdfp.Problem, *, without: bool = False) -> dict[str, Any]:
    """Run the default method, or the same without a preconditioner, and return what it took."""
    started = time.perf_counter()
    quantizers = {"compressor": fpdfp.QSGD(5, norm="max"), "downlink": fpdfp.QSGD(31, norm="max")}
    method, options = (fpdfp.ShiftedPDFP(), quantizers) if without else (None, {})
    result = fpdfp.solve(problem, method, rounds=ROUNDS, tol=TOL, progress=False, **options)  # type: ignore[arg-type]
    return taken(result, time.perf_counter() - started)


def taken(result: fpdfp.Result, seconds: float) -> dict[str, Any]:
    """Return what a run took: the bits of rounds, of what is sent once, and of certificates."""
    coordinates = getattr(result.algorithm, "coordinates", None)
    counted = [result.traffic[kind] for kind in ("rounds", "preconditioner", "certificate")]
    return {
        "status": result.status, "rounds": result.rounds, "up": sum(one.up for one in counted),
        "once_up": int(result.bits_once_up), "down": sum(one.down for one in counted), "seconds": seconds,
        "preconditioner": "none" if coordinates is None else type(coordinates).__name__,
    }  # fmt: skip


def breaks(runs: dict[str, dict[int, dict[str, dict[str, Any]]]]) -> list[str]:
    """Say where rounds or bits jump between neighbouring numbers of features."""
    found = []
    for kind, by_number in runs.items():
        for (d, one), (next_d, other) in itertools.pairwise(by_number.items()):
            rounds = other["default"]["rounds"] / one["default"]["rounds"]
            before, after = (run["default"]["up"] + run["default"]["down"] for run in (one, other))
            if not 1 / ROUNDS_JUMP <= rounds <= ROUNDS_JUMP:
                found.append(f"{kind}: {rounds:.2f} times the rounds from {d} to {next_d} features")
            if not 1 / BITS_JUMP <= after / before <= BITS_JUMP * next_d / d:
                found.append(f"{kind}: {after / before:.2f} times the bits from {d} to {next_d} features")
    return found


def cells(found: dict[str, Any]) -> list[str]:
    """Write what a run took."""
    rounds = f"{found['rounds']}" if found["status"] == "converged" else f"more than {found['rounds']:,}"
    up = f"{format_bits(found['up'])} ({format_bits(found['once_up'])})"
    return [found["preconditioner"], rounds, up, format_bits(found["down"]), f"{found['seconds']:.1f} s"]


def edges() -> dict[str, dict[str, Any]]:
    """Run the cases in which no preconditioner was once found."""
    found = {}
    for rows in (40, 60, 61):
        generator = np.random.default_rng(0)
        X = generator.standard_normal((rows, 60))
        y = (X @ generator.standard_normal(60) + generator.standard_normal(rows) > 0).astype(float)
        found[f"{rows} rows × 60 features"] = solve(problem_of(X, y, l2=1e-4, sites=4))
    from sklearn.datasets import load_breast_cancer

    started = time.perf_counter()
    result = fpdfp.FederatedLogisticRegression().fit(*load_breast_cancer(return_X_y=True)).result_
    found["raw breast cancer data, the default estimator"] = taken(result, time.perf_counter() - started)
    return found


def set_ups() -> dict[str, dict[str, float]]:
    """Measure the time and the memory of one round and all that comes before it."""
    generator = np.random.default_rng(0)

    def labels(X: Any) -> Any:
        return (X @ generator.standard_normal(X.shape[1]) > 0).astype(float)

    def problem(X: Any, clients: Any) -> fpdfp.Problem:
        return fpdfp.Problem(fpdfp.losses.Logistic(X, labels(X), clients=clients, l2=1e-3), fpdfp.penalties.L1(1e-3))

    def sparse(shape: tuple[int, int], density: float) -> Any:
        return scipy.sparse.random_array(shape, density=density, format="csr", rng=0)

    cases: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "1,500 clients × 1,000 features": (generator.standard_normal((3000, 1000)), np.arange(3000) % 1500, {}),
        "the same, prefer='rounds'": (
            generator.standard_normal((3000, 1000)), np.arange(3000) % 1500, {"prefer": "rounds"},
        ),
        "20,000 clients × 100 features": (generator.standard_normal((40_000, 100)), np.arange(40_000) % 20_000, {}),
        "100,000 × 1,000 sparse, 100 clients": (sparse((100_000, 1000), 0.01), np.arange(100_000) % 100, {}),
        "300,000 clients, 100 features": (
            sparse((600_000, 100), 0.1), np.arange(600_000) // 2, {"clients_per_round": 20},
        ),
        "100,000 × 1,000 in float32, 100 clients": (
            generator.standard_normal((100_000, 1000), dtype=np.float32), np.arange(100_000) // 1000, {},
        ),
    }  # fmt: skip
    found = {}
    for name, (X, clients, options) in cases.items():
        seconds, memory = math.inf, 0
        for traced in (False, True):
            made = problem(X, clients)  # constants are kept: each time anew
            if traced:
                tracemalloc.start()
            started = time.perf_counter()
            fpdfp.solve(made, rounds=1, progress=False, **options)
            seconds = min(seconds, time.perf_counter() - started)
            if traced:
                memory = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
        found[name] = {"seconds": seconds, "bytes": memory}
    return found


def draw(runs: dict[str, dict[int, dict[str, dict[str, Any]]]], file: Path) -> None:
    """Plot rounds and bits against features."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for kind, colour in zip(KINDS, ("C0", "C1", "C2"), strict=True):
        for which, style in (("default", "-o"), ("without", ":")):
            at = [d for d in runs[kind] if runs[kind][d].get(which, {}).get("status") == "converged"]
            name = kind if which == "default" else None
            left.plot(at, [runs[kind][d][which]["rounds"] for d in at], style, color=colour, label=name, ms=3)
            bits = [runs[kind][d][which]["up"] + runs[kind][d][which]["down"] for d in at]
            right.plot(at, bits, style, color=colour, ms=3)
    left.set(xscale="log", yscale="log", xlabel="features", ylabel="rounds")
    right.set(xscale="log", yscale="log", xlabel="features", ylabel="bits, both ways")
    left.legend(frameon=False)
    figure.savefig(file, metadata={"Date": None})


INTRODUCTION = """# Many features

Made by `python -m benchmarks.many_features{given}`, whose help describes the runs: l1 logistic regression among
{sites} sites, certified to a relative gap of {tol:g}, everything automatic. Of {seeds} draws of the data, the
one with the median number of rounds is shown. Bits up include rounds, certificates and set-up (in brackets).
Between neighbouring numbers of features, rounds change by more than a factor of {rounds_jump:g}, or bits by more than
{bits_jump:g} times their number, {jumps}. [A text file]({text}) has all numbers of features, cases with few rows or
features of very different sizes, and the time and memory of setting up.

![Rounds and bits against the number of features](many-features.svg)

*Rounds and bits of three kinds of data against the number of features; dotted without a preconditioner.*

"""


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--features", type=int, nargs="+", default=list(FEATURES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--without", type=int, default=WITHOUT, help="the most features that are run without one")
    parser.add_argument("--skip-set-up", action="store_true", help="leave out what setting up takes")
    arguments = parser.parse_args()
    runs: dict[str, dict[int, dict[str, dict[str, Any]]]] = {kind: {} for kind in KINDS}
    lines = []
    for d in [one for one in arguments.features if not arguments.quick or one <= QUICK]:
        for kind in KINDS:
            drawn = []
            for seed in range(arguments.seeds):
                problem = problem_of(*rows_of(kind, d, seed))
                drawn.append({"default": solve(problem)})
                if d <= arguments.without:
                    drawn[-1]["without"] = solve(problem, without=True)
            runs[kind][d] = sorted(drawn, key=lambda one: one["default"]["rounds"])[len(drawn) // 2]
            both = runs[kind][d]
            without = cells(both["without"])[1:3] if "without" in both else ["not run", ""]
            lines.append([kind, f"{d:,}", *cells(both["default"]), *without])
            print(" | ".join(lines[-1]), flush=True)
    header = ["features", "number", "preconditioner", "rounds", "bits up (once)", "bits down", "time", "rounds without",
              "bits up without"]  # fmt: skip
    _tools.show("the default method", header, lines)
    special, setting_up = edges(), {} if arguments.skip_set_up else set_ups()
    special_lines = [[name, *cells(one)] for name, one in special.items()]
    set_up_lines = [
        [name, f"{one['seconds']:.1f} s", f"{one['bytes'] / 1e6:,.0f} MB"] for name, one in setting_up.items()
    ]
    _tools.show("cases", ["case", *header[2:7]], special_lines)
    _tools.show("setting up, and one round", ["case", "time", "memory beyond the data"], set_up_lines)
    jumps = breaks(runs)
    if not arguments.quick:
        draw(runs, arguments.page.with_suffix(".svg"))
        page = INTRODUCTION.format(
            given="".join(f" {one}" for one in sys.argv[1:]),
            sites=SITES,
            tol=TOL,
            seeds=arguments.seeds,
            rounds_jump=ROUNDS_JUMP,
            bits_jump=BITS_JUMP,
            jumps=", ".join(jumps) or "nowhere here",
            text=arguments.page.with_suffix(".txt").name,
        ) + markdown(header, [line for line in lines if line[1] in SHOWN])
        rest = [markdown(header, lines), markdown(["case", *header[2:7]], special_lines)]
        if set_up_lines:
            rest.append(markdown(["setting up, and one round", "time", "memory beyond the data"], set_up_lines))
        arguments.page.with_suffix(".txt").write_text("\n".join(rest))
        arguments.page.write_text(page + f"\nMeasured on {_tools.machine()}.\n")
    _tools.finish({"benchmark": "many_features", "runs": runs, "cases": special, "set_up": setting_up, "jumps": jumps})
    if jumps:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
