"""Coefficient maps over sites (TV-l1 logistic regression): all sites together, each alone, and SpaceNet of nilearn.

    python -m benchmarks.maps                             100,072 voxels, 1,000 subjects, 5 sites
    python -m benchmarks.maps --side 16 --subjects 200    seconds

The subjects are a generated cohort with a known map (``datasets.image_cohort``); 1,000 others judge. Times are those of
whole calls, kernels compiled. The objective is evaluated by the same function for all, relative to the best one, a long
run of ours among them. SpaceNet's solver (``nilearn.decoding``, if it is installed) gets all images in one place and
the same weights, in both conventions of their scale, of which the better one counts.
"""

from __future__ import annotations

import argparse
import importlib
import time
import warnings
from typing import Any

import numpy as np

import fpdfp
from benchmarks import _tools
from fpdfp._typing import Array
from fpdfp.datasets import ImageCohort, image_cohort


def problem_of(cohort: ImageCohort, penalty: fpdfp.TotalVariation) -> fpdfp.Problem:
    """Return the objective, with an intercept as the last coefficient."""
    rows = np.column_stack([cohort.images, np.ones(len(cohort.images), dtype=np.float32)]).astype(np.float64)
    losses = fpdfp.losses.Logistic(rows, 2.0 * cohort.outcomes - 1.0)
    gradient = fpdfp.linops.MaskedGradient(cohort.mask, others=1)
    single = np.full(rows.shape[1], penalty.strength * float(penalty.l1))  # type: ignore[arg-type]
    single[-1] = 0.0
    shapes = [gradient.out_shape, gradient.in_shape]
    parts = [fpdfp.penalties.GroupL12(penalty.strength, axis=0), fpdfp.penalties.L1(single)]
    both = fpdfp.linops.VStack([gradient, fpdfp.linops.Identity(gradient.in_shape)])
    return fpdfp.Problem(losses, fpdfp.penalties.Stacked(parts, shapes), both)


def fitted(cohort: ImageCohort, penalty: fpdfp.TotalVariation, groups: Any, rounds: int, tol: float | None) -> Array:
    model = fpdfp.FederatedLogisticRegression(penalty, run=fpdfp.RunOptions(rounds=rounds, tol=tol))
    model.fit(cohort.images, cohort.outcomes, groups)
    return np.append(model.coef_.ravel(), model.intercept_)


def spacenet(cohort: ImageCohort, penalty: fpdfp.TotalVariation, scale: float, most: int) -> Array | None:
    try:
        solvers: Any = importlib.import_module("nilearn.decoding.space_net_solvers")
    except ImportError:
        return None
    l1 = float(penalty.l1)  # type: ignore[arg-type]
    found, *_ = solvers.tvl1_solver(
        cohort.images.astype(np.float64), 2.0 * cohort.outcomes - 1.0, scale * penalty.strength * (1.0 + l1),
        l1 / (1.0 + l1), cohort.mask, loss="logistic", max_iter=most, tol=1e-5,
    )  # fmt: skip
    return np.asarray(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=56, help="voxels along a side of the cube around the mask")
    parser.add_argument("--subjects", type=int, default=1000)
    parser.add_argument("--weight", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--tol", type=float, default=1e-3, help="0: all rounds, without a certificate")
    parser.add_argument("--most", type=int, default=200, help="iterations of SpaceNet")
    parser.add_argument("--exact", type=int, default=1000, help="rounds of the reference")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    shape = (given.side,) * 3
    cohort = image_cohort(shape, subjects=given.subjects, sites=5)
    new = image_cohort(shape, subjects=1000, sites=5, seed=1)
    penalty = fpdfp.TotalVariation(given.weight, mask=cohort.mask)
    problem, truth = problem_of(cohort, penalty), cohort.truth[cohort.mask]
    small = image_cohort((8, 8, 8), subjects=50, sites=5)
    fitted(small, fpdfp.TotalVariation(0.05, mask=small.mask), small.sites, 5, None)  # compiles

    found: dict[str, tuple[Array, float]] = {}

    def measure(name: str, work: Any) -> None:
        began = time.perf_counter()
        x = work()
        if x is not None:
            found[name] = x, time.perf_counter() - began

    tol = given.tol or None
    measure("5 sites together", lambda: fitted(cohort, penalty, cohort.sites, given.rounds, tol))
    measure("one place", lambda: fitted(cohort, penalty, np.zeros(given.subjects, dtype=int), given.rounds, tol))
    for site in range(5):
        own = cohort.sites == site
        alone = cohort._replace(images=cohort.images[own], outcomes=cohort.outcomes[own])
        measure(
            f"site {site + 1} alone, {int(own.sum())} subjects",
            lambda alone=alone, own=own: fitted(
                alone, penalty, np.zeros(int(own.sum()), dtype=int), given.rounds, None
            ),
        )
    for scale, name in ((1.0, "SpaceNet"), (float(given.subjects), "SpaceNet, weights times subjects")):
        measure(name, lambda scale=scale: spacenet(cohort, penalty, scale, given.most))
    measure("reference", lambda: fitted(cohort, penalty, cohort.sites, given.exact, None))

    values = {name: float(problem.evaluate(x)[0]) for name, (x, _) in found.items()}
    best = min(values.values())
    rows, results = [], {}
    for name, (x, seconds) in found.items():
        right = float(((new.images @ x[:-1] + x[-1] > 0) == (new.outcomes > 0)).mean())
        likeness = float(np.corrcoef(x[:-1], truth)[0, 1]) if np.ptp(x[:-1]) else 0.0
        results[name] = {
            "seconds": seconds,
            "above": values[name] / best - 1.0,
            "accuracy": right,
            "likeness": likeness,
        }
        rows.append((name, f"{seconds:.1f}", f"{values[name] / best - 1.0:.1e}", f"{right:.3f}", f"{likeness:.3f}"))
    header = ("", "seconds", "objective above the best", "accuracy", "correlation with the truth")
    _tools.show(f"{len(truth):,} voxels, {given.subjects:,} subjects", header, rows)
    _tools.finish({"results": results, "voxels": len(truth), "subjects": given.subjects})


if __name__ == "__main__":
    main()
