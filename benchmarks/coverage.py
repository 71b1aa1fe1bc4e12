"""How often confidence intervals cover the true coefficients, in simulated studies.

    python -m benchmarks.coverage                        # 2,000 studies of each family, at 3 and at 20 sites
    python -m benchmarks.coverage --only poisson cox     # some of the families
    python -m benchmarks.coverage --studies 200 --jobs 1

A study has three covariates whose means and scales differ between sites, and an intercept; the coefficients are the
same at all sites. There are 300 rows at 3 sites, or 800 rows at 20. Each study is fitted by the estimator that a user
calls, and the 95 % intervals of its table are compared with the truth. "Covered" is the share over all coefficients,
with the least and the largest of a single coefficient; its own standard error for one coefficient and 2,000 studies is
0.005. ``debiased``: an l1-penalised logistic regression of 30 covariates, 4 of them active, and its debiased intervals;
what is covered is reported for active and inactive coefficients.

Ctrl-C keeps what was done: results are written to --file after each family, and a run with the same file goes on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import fpdfp
from benchmarks import _tools
from fpdfp.families import Binomial, Gamma, InverseGaussian, Quantile, Tweedie

TRUE = np.array([0.2, 0.4, -0.3, 0.0])
SITES = {3: 100, 20: 40}
#: Covariates of the penalised model, and those that count.
MANY, ACTIVE = 30, np.array([0.8, -0.8, 0.5, -0.5])
LEAST, LARGEST = 0.93, 0.97


def covariates(rng: np.random.Generator, sites: int, count: int) -> tuple[Any, Any]:
    """Return rows and the site of each; every site has other means and scales."""
    size = SITES[sites]
    centres, scales = rng.uniform(-0.5, 0.5, (sites, count)), rng.uniform(0.5, 1.2, (sites, count))
    site = np.repeat(np.arange(sites), size)
    return centres[site] + scales[site] * rng.standard_normal((len(site), count)), site


def tweedie(rng: np.random.Generator, mu: Any, power: float, phi: float) -> Any:
    """Draw a compound Poisson variable: a Poisson number of gamma ones."""
    number = rng.poisson(mu ** (2 - power) / (phi * (2 - power)))
    shape, scale = (2 - power) / (power - 1), phi * (power - 1) * mu ** (power - 1)
    return np.where(number > 0, rng.gamma(np.maximum(number * shape, 1e-9)) * scale, 0.0)


def draw(name: str, rng: np.random.Generator, eta: Any) -> tuple[Any, Any]:
    """Return the family of a study, and outcomes at its linear predictors."""
    if name == "gaussian":
        return "gaussian", eta + rng.normal(0.0, 1.3, len(eta))
    if name.startswith("binomial"):
        family: Any = Binomial(name.split()[1])
        return family, (rng.random(len(eta)) < family.mean(eta)).astype(float)
    mu = np.exp(eta)
    if name == "poisson":
        return "poisson", rng.poisson(mu).astype(float)
    if name == "negative binomial":
        return "negative binomial", rng.negative_binomial(1.5, 1.5 / (1.5 + mu)).astype(float)
    if name == "gamma":
        return Gamma("log"), rng.gamma(2.0, mu / 2.0)
    if name == "inverse gaussian":
        return InverseGaussian("log"), rng.wald(mu, 4.0)
    if name == "tweedie":
        return Tweedie(power=1.5), tweedie(rng, mu, 1.5, 0.8)
    return Quantile(level=0.5), eta + rng.normal(0.0, 1.0, len(eta))


def study(name: str, sites: int, seed: int) -> list[bool]:
    """Return which coefficients the intervals of one study cover."""
    rng = np.random.default_rng([seed, sites, len(name)])
    X, site = covariates(rng, sites, 3)
    if name == "cox":
        hazard = np.exp(X @ TRUE[1:]) * rng.uniform(0.5, 2.0, sites)[site]
        time, censored = rng.exponential(1.0 / hazard), rng.exponential(2.0, len(X))
        y = np.column_stack([np.minimum(time, censored), time <= censored])
        model: Any = fpdfp.FederatedCoxRegression(baseline=False).fit(X, y, groups=site)
        true = TRUE[1:]
    else:
        family, y = draw(name, rng, TRUE[0] + X @ TRUE[1:])
        model, true = fpdfp.FederatedGLM(family).fit(X, y, groups=site), TRUE
    limits = model.table().intervals()
    return [bool(low <= one <= high) for one, (low, high) in zip(true, limits, strict=True)]


def penalised(name: str, sites: int, seed: int) -> list[bool]:
    """Return which coefficients the debiased intervals of a penalised study cover, active ones first."""
    rng = np.random.default_rng([seed, sites, len(name)])
    X, site = covariates(rng, sites, MANY)
    true = np.concatenate([ACTIVE, np.zeros(MANY - len(ACTIVE))])
    y = (rng.random(len(X)) < 1.0 / (1.0 + np.exp(-(X @ true)))).astype(float)
    alpha = 0.5 * np.sqrt(np.log(MANY) / len(X))
    model = fpdfp.FederatedGLM("binomial", penalty=fpdfp.L1(alpha), inference=True).fit(X, y, groups=site)
    limits = model.debiased_table().intervals()[1:]
    return [bool(low <= one <= high) for one, (low, high) in zip(true, limits, strict=True)]


CASES: dict[str, Callable[[str, int, int], list[bool]]] = {
    **dict.fromkeys(
        ("gaussian", "binomial logit", "binomial probit", "binomial cloglog", "poisson", "negative binomial", "gamma",
         "inverse gaussian", "tweedie", "quantile", "cox"),
        study,
    ),
    "debiased": penalised,
}  # fmt: skip


def some(name: str, sites: int, seeds: range) -> list[list[bool] | None]:
    """Run some studies; None for one whose fit did not end as it should, or has no maximum."""
    found: list[list[bool] | None] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in seeds:
            try:
                found.append(CASES[name](name, sites, seed))
            except (Warning, ValueError):
                found.append(None)
    return found


def measure(name: str, sites: int, studies: int, pool: ProcessPoolExecutor, parts: int) -> dict[str, Any]:
    """Return what was covered over all studies."""
    cuts = np.linspace(0, studies, parts + 1).astype(int)
    ranges = [range(a, b) for a, b in itertools.pairwise(cuts)]
    results = pool.map(some, [name] * len(ranges), [sites] * len(ranges), ranges)
    outcomes = [one for part in results for one in part]
    covered = np.array([one for one in outcomes if one is not None], dtype=float)
    shares = covered.mean(axis=0)
    groups = {"all": shares}
    if name == "debiased":
        groups = {"active": shares[: len(ACTIVE)], "inactive": shares[len(ACTIVE) :]}
    return {
        "studies": len(covered),
        "without": len(outcomes) - len(covered),
        **{key: [float(one.mean()), float(one.min()), float(one.max())] for key, one in groups.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--file", type=Path, help="where results are kept after each family")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.file is not None and options.file.is_file():
        found = json.loads(options.file.read_text())
    with ProcessPoolExecutor(options.jobs) as pool:
        for name in options.only:
            for sites in SITES:
                key = f"{name}, {sites} sites"
                if found.get(key, {}).get("asked") == options.studies:
                    continue
                found[key] = measure(name, sites, options.studies, pool, 8 * options.jobs) | {"asked": options.studies}
                if options.file is not None:
                    options.file.write_text(json.dumps(found, indent=1))
                print(key, found[key], flush=True)
    rows = []
    for key, one in found.items():
        for group in ("all", "active", "inactive"):
            if group in one:
                mean, low, high = one[group]
                title = key if group == "all" else f"{key}, {group}"
                shares = [f"{mean:.3f}", f"{low:.3f} to {high:.3f}"]
                rows.append([title, f"{one['studies']:,}", *shares, f"{one['without']}"])
    _tools.show("95 % intervals", ["family", "studies", "covered", "a coefficient", "without an interval"], rows)
    within = all(one["all"][1] >= LEAST and one["all"][2] <= LARGEST for one in found.values() if "all" in one)
    _tools.finish({"benchmark": "coverage", "within": within, "cases": found})


if __name__ == "__main__":
    main()
