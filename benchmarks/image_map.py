"""A coefficient map over sites: a large one, and one beside the solver of nilearn's SpaceNet.

    python -m benchmarks.image_map                     a map of 20³ voxels beside SpaceNet
    python -m benchmarks.image_map --side 58 --subjects 1000 --skip-peer

Subjects at five sites have an image and a diagnosis; the model is logistic regression with total variation and an l1
norm; its weight is a twentieth of the largest entry of the gradient at zero. *Federated* and *pooled* are
``FederatedLogisticRegression`` with the default method and ``tol``. *SpaceNet* is ``tvl1_solver`` of nilearn with its
default settings, on the same numbers, with the same objective: the mask is the whole box, since nilearn also penalises
differences across the edge of a mask. Given are seconds of the wall clock and of the processor, the objective above
the least one that any found, relative to it, the accuracy for new subjects, and the correlation with the true map; and
after how long SpaceNet is within 1e-3 of the least objective. It may take ``--limit`` seconds. Each site alone has the
same weight. With ``--long`` a run to a gap of 1e-6 checks how far the objective is from its minimum.
"""

from __future__ import annotations

import argparse
import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter

import fpdfp
from benchmarks import _tools
from fpdfp._typing import Array

SITES = 5


def in_box(cohort: Any, seed: int = 1) -> Array:
    """Return the images of a cohort as rows of the whole box, with smoothed noise outside the mask."""
    rng = np.random.default_rng(seed)
    images = np.empty((len(cohort.images), cohort.mask.size), dtype=np.float32)
    for row, image in zip(images, cohort.images, strict=True):
        whole = gaussian_filter(rng.standard_normal(cohort.mask.shape, dtype=np.float32), 1.0)
        whole /= whole.std()
        whole[cohort.mask] = image
        row[:] = whole.ravel()
    return images


def objective(images: Array, y: Array, penalty: Any, coef: Array, intercept: float) -> float:
    """Return the mean log-loss plus the penalty, in double precision."""
    signs = np.where(y > 0, 1.0, -1.0)
    loss = float(np.logaddexp(0.0, -signs * (images @ coef + intercept)).mean())
    differences = fpdfp.linops.MaskedGradient(penalty.mask).apply(coef)
    across = float(np.sqrt((differences**2).sum(axis=0)).sum())
    value: float = loss + penalty.weight * (across + penalty.l1 * float(np.abs(coef).sum()))
    return value


def accuracy(images: Array, y: Array, coef: Array, intercept: float) -> float:
    return float(((images @ coef + intercept > 0) == (y > 0)).mean())


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - wall, time.process_time() - processor


def fit(images: Array, y: Array, sites: Array | None, penalty: Any, tol: float) -> Any:
    model = fpdfp.FederatedLogisticRegression(penalty, standardize=False, run=fpdfp.RunOptions(rounds=1000, tol=tol))
    return model.fit(images, y, sites)


def space_net(images: Array, y: Array, penalty: Any, limit: float) -> tuple[Array, float, list[Any]]:
    """Return the coefficients of nilearn's solver, the intercept, and the energy by time."""
    solvers: Any = importlib.import_module("nilearn.decoding.space_net_solvers")
    began, trace = time.perf_counter(), []

    def note(values: dict[str, Any]) -> bool:
        trace.append((time.perf_counter() - began, float(values["old_energy"]) / len(y)))
        return trace[-1][0] > limit

    w, _, _ = solvers.tvl1_solver(
        images.astype(np.float64), np.where(y > 0, 1.0, -1.0), len(y) * penalty.weight * (1 + penalty.l1),
        penalty.l1 / (1 + penalty.l1), penalty.mask, loss="logistic", callback=note,
    )  # fmt: skip
    return w[:-1], float(w[-1]), trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=20)
    parser.add_argument("--subjects", type=int, default=400)
    parser.add_argument("--weight", type=float, default=None, help="instead of the one by the rule above")
    parser.add_argument("--l1", type=float, default=0.5)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that SpaceNet may take")
    parser.add_argument("--long", action="store_true", help="also run to a gap of 1e-6")
    parser.add_argument("--skip-peer", action="store_true", help="leave SpaceNet and pooled data out")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    cohort = fpdfp.datasets.image_cohort((given.side,) * 3, subjects=2 * given.subjects, sites=SITES)
    # Alternately for fitting and for testing: each has subjects of all sites.
    boxes = cohort.images if given.skip_peer else in_box(cohort)
    mask = cohort.mask if given.skip_peer else np.ones_like(cohort.mask)
    truth = cohort.truth[mask]
    images, y, sites = boxes[::2], cohort.outcomes[::2], cohort.sites[::2]
    others, outcomes = boxes[1::2], cohort.outcomes[1::2]
    slopes = images.T @ (y - y.mean()).astype(np.float32) / len(y)
    weight = float(abs(slopes).max()) / 20 if given.weight is None else given.weight
    penalty = fpdfp.TotalVariation(weight, mask=mask, l1=given.l1)
    found: dict[str, tuple[Array, float, float, float]] = {}

    def ours(name: str, rows: Any, at: Array | None, tol: float) -> None:
        model, wall, processor = timed(lambda: fit(images[rows], y[rows], at, penalty, tol))
        found[name] = model.coef_.ravel().astype(np.float64), float(np.ravel(model.intercept_)[0]), wall, processor
        print(f"{name}: {wall:.1f} s, {processor:.1f} s of the processor; {model.result_.status}", flush=True)

    # Kernels are compiled, or read from where they are kept, before anything is timed.
    small = fpdfp.datasets.image_cohort((16, 16, 16), subjects=100, sites=SITES)
    fit(small.images, small.outcomes, small.sites, fpdfp.TotalVariation(0.05, mask=small.mask), 1e-2)
    ours("federated", slice(None), sites, given.tol)
    trace: list[Any] = []
    if not given.skip_peer:
        ours("pooled", slice(None), None, given.tol)
        (coef, intercept, trace), wall, processor = timed(lambda: space_net(images, y, penalty, given.limit))
        found["SpaceNet"] = coef, intercept, wall, processor
        for site in range(SITES):
            ours(f"site {site + 1} alone", sites == site, None, given.tol)
    if given.long:
        ours("long run", slice(None), sites, 1e-6)
    values = {name: objective(images, y, penalty, coef, b) for name, (coef, b, _, _) in found.items()}
    least = min(values.values())
    rows: list[list[str]] = []
    results: dict[str, dict[str, Any]] = {}
    for name, (coef, intercept, wall, processor) in found.items():
        right = accuracy(others, outcomes, coef, intercept)
        like = float(np.corrcoef(coef, truth)[0, 1])
        excess = values[name] / least - 1.0
        rows.append([name, f"{wall:.1f}", f"{processor:.1f}", f"{excess:.1e}", f"{right:.3f}", f"{like:.3f}"])
        results[name] = {"wall": wall, "processor": processor, "objective": values[name], "accuracy": right,
                         "correlation": like}  # fmt: skip
    if trace:
        near = [seconds for seconds, value in trace if value <= least * (1.0 + 1e-3)]
        results["SpaceNet"]["within 1e-3"] = near[0] if near else None
        print("SpaceNet: within 1e-3 of the least objective " + (f"after {near[0]:.1f} s" if near else "never"))
    header = ("", "seconds", "of the processor", "objective above the least", "accuracy", "correlation")
    _tools.show(f"{images.shape[1]} voxels, {len(y)} subjects at {SITES} sites", header, rows)
    _tools.finish({"voxels": images.shape[1], "subjects": len(y), "weight": weight, "fits": results})


if __name__ == "__main__":
    main()
