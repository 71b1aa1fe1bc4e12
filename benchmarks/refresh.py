"""Rounds of a run that asks for second moments again where the curvature has moved.

    python -m benchmarks.refresh

The default whitens by a bound of the Hessian of logistic losses that holds everywhere. Near the solution the curvature
is smaller, the more so the better a model separates the classes, and it may be small in other directions. Here l1
logistic regression of 30 correlated features among 10 sites is certified to a relative gap of 1e-6, with 11 levels up
and 31 down, and these second moments, all exact and from everyone:

- ``bound``, those of the default, which do not depend on a point;
- ``solution``, weighted with the curvature at the solution, from the first round on: what nobody can know;
- ``refreshed``, first those of the bound, until a relative gap of 1e-2, then those at the point that was found.

What the exact moments take is *not* counted, neither at first nor when they are asked for again. Four kinds of data:
``easy``, classes that overlap; ``separable``, scores twenty times as large; ``rare``, one class of a few per cent; and
``unequal``, every third feature ten times as large. Two l1 weights, 1e-2 and 1e-4 of that for which x is zero.
"""

from __future__ import annotations

import argparse
import math
import statistics
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import fpdfp
from benchmarks import _tools
from benchmarks._contenders import markdown
from fpdfp.precondition import Whitening

SITES, ROWS, FEATURES, TOL, MIDWAY, L2 = 10, 3000, 30, 1e-6, 1e-2, 1e-6
KINDS = ("easy", "separable", "rare", "unequal")
SHARES = (1e-2, 1e-4)
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "refresh.md"


def draw(kind: str, seed: int) -> tuple[Any, Any]:
    """Return features and labels."""
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((ROWS, FEATURES))
    for j in range(1, FEATURES):
        X[:, j] = 0.9 * X[:, j - 1] + math.sqrt(1 - 0.9**2) * X[:, j]
    if kind == "unequal":
        X[:, ::3] *= 10
    score = X @ generator.standard_normal(FEATURES)
    score *= {"easy": 1.0, "separable": 20.0, "rare": 2.0, "unequal": 3.0}[kind] / np.sqrt(np.mean(score**2))
    if kind == "rare":
        score, X = score - 6.0, np.column_stack([X, np.ones(ROWS)])
    return X, (score + generator.logistic(size=ROWS) > 0).astype(float)


def moments(X: Any, x: Any = None) -> Any:
    """Return the second moments weighted with the curvature at x, or with the largest there is."""
    weight = np.full(len(X), 0.25)
    if x is not None:
        chance = 1 / (1 + np.exp(-X @ x))
        weight = chance * (1 - chance)
    return (X * weight[:, None]).T @ X / len(X) + L2 * np.eye(X.shape[1])


def solve(problem: fpdfp.Problem, hessian: Any, tol: float = TOL, x0: Any = None) -> fpdfp.Result:
    """Run the default method with given second moments."""
    method = fpdfp.ShiftedPDFP(preconditioner=Whitening(hessian))
    quantizers: dict[str, Any] = {"compressor": fpdfp.QSGD(11, norm="max"), "downlink": fpdfp.QSGD(31, norm="max")}
    return fpdfp.solve(problem, method, rounds=5000, tol=tol, x0=x0, progress=False, **quantizers)


def compare(kind: str, share: float, seed: int) -> dict[str, float]:
    """Return the rounds with each of the second moments, and how much of the curvature is left."""
    X, y = draw(kind, seed)
    losses = fpdfp.losses.Logistic(X, y, clients=np.arange(ROWS) % SITES, l2=L2)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(share * float(np.abs(X.T @ (y - 0.5)).max()) / ROWS))
    bound = solve(problem, moments(X))
    known = solve(problem, moments(X, bound.x))
    first = solve(problem, moments(X), MIDWAY)
    second = solve(problem, moments(X, first.x), x0=first.x)
    if {one.status for one in (bound, known, first, second)} != {"converged"}:
        raise RuntimeError(f"{kind}, {share:g}, {seed}: a run has not converged")
    left = float(np.trace(moments(X, bound.x)) / np.trace(moments(X)))
    return {
        "curvature": left,
        "bound": bound.rounds,
        "solution": known.rounds,
        "refreshed": first.rounds + second.rounds,
    }


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    lines, found = [], {}
    for kind in KINDS:
        for share in SHARES:
            runs = [compare(kind, share, seed) for seed in range(arguments.seeds)]
            middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
            found[f"{kind} {share:g}"] = middle
            lines.append(
                [kind, f"{share:g}", f"{middle['curvature']:.2f}"]
                + [f"{middle[name]:.0f}" for name in ("bound", "solution", "refreshed")]
            )
            print(" | ".join(lines[-1]), flush=True)
    header = ["data", "l1 weight", "curvature left", "rounds, bound", "at the solution", "refreshed"]
    _tools.show("rounds to a relative gap of 1e-6", header, lines)
    fewest = min(one["refreshed"] / one["bound"] for one in found.values())
    page = f"""# Asking for second moments again

Made by `python -m benchmarks.refresh --seeds {arguments.seeds}`, whose help describes the runs. Rounds until a
relative gap of 1e-6 is certified, medians over {arguments.seeds} draws of the data, with the second moments of
a bound of the Hessian, with those at the solution, and with moments that are requested again at a relative gap
of 1e-2. All of them are exact and their bits are not counted, which favours asking again.

{markdown(header, lines)}
"Curvature left" is the trace of the Hessian at the solution divided by the trace of the bound. A run that asked
again took at least {fewest:.2f} times the rounds of one that kept its first moments, and asking again costs
bits as well. Therefore a run keeps the preconditioner that it has begun with, unless features are excluded and
it begins anew with the others.

Measured on {_tools.machine()}.
"""
    arguments.page.write_text(page)
    _tools.finish({"benchmark": "refresh", "rounds": found})


if __name__ == "__main__":
    main()
