"""How often confidence intervals cover the true coefficients, in simulated studies.

    python -m benchmarks.coverage                        # 2,000 studies of each family, at 3 and at 20 sites
    python -m benchmarks.coverage --only poisson cox     # some of the families
    python -m benchmarks.coverage --studies 200 --jobs 1

Every result with an interval has a row: coefficients of all families, with clusters, random effects and Firth's
penalty, pooled coefficients, quantiles in units from 0.001 to 1,000, areas under ROC curves, calibration, concordance,
Kaplan–Meier curves, the debiased lasso; and of log-rank tests the share that is not significant where groups do not
differ.

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
import pandas as pd
from scipy import stats

import fpdfp
from benchmarks import _tools
from benchmarks._contenders import markdown
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
    raise ValueError(f"no family {name!r}")


def study(name: str, sites: int, rng: np.random.Generator) -> list[bool]:
    """Return which coefficients of a generalised linear or a Cox model the intervals of one study cover."""
    X, site = covariates(rng, sites, 3)
    if name == "cox":
        model: Any = fpdfp.FederatedCoxRegression(baseline=False).fit(X, times_of(rng, X, site), groups=site)
        true = TRUE[1:]
    else:
        family, y = draw(name, rng, TRUE[0] + X @ TRUE[1:])
        model, true = fpdfp.FederatedGLM(family).fit(X, y, groups=site), TRUE
    return covered(model.table().intervals(), true)


def covered(limits: Any, true: Any) -> list[bool]:
    """Return which true values lie between limits."""
    return [bool(low <= one <= high) for one, (low, high) in zip(true, limits, strict=True)]


def times_of(rng: np.random.Generator, X: Any, site: Any) -> Any:
    """Return times and events of rows, with another hazard at each site."""
    hazard = np.exp(X @ TRUE[1:]) * np.linspace(0.5, 2.0, int(site.max()) + 1)[site]
    time, censored = rng.exponential(1.0 / hazard), rng.exponential(2.0, len(X))
    return np.column_stack([np.minimum(time, censored), time <= censored])


def clusters(name: str, sites: int, rng: np.random.Generator) -> list[bool]:
    """Counts of subjects with five rows each and a frailty of their own; errors clustered by subject."""
    X, site = covariates(rng, sites, 3)
    subject = np.arange(len(X)) // 5
    frailty = rng.gamma(2.0, 0.5, len(X))[subject]
    y = rng.poisson(frailty * np.exp(TRUE[0] + X @ TRUE[1:]))
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y, subject=subject, site=site)
    model = fpdfp.FederatedGLM("poisson").fit(table, "y ~ a + b + c + cluster(subject)", groups="site")
    return covered(model.table(errors="robust").intervals(), TRUE)


def random_effects(name: str, sites: int, rng: np.random.Generator) -> list[bool]:
    """A gaussian model with a random intercept of each site; the coefficients of features."""
    X, site = covariates(rng, sites, 3)
    y = TRUE[0] + X @ TRUE[1:] + 0.5 * rng.standard_normal(sites)[site] + rng.normal(0.0, 1.3, len(X))
    model = fpdfp.FederatedGLM("gaussian", site_effects="random").fit(X, y, groups=site)
    return covered(model.table().intervals()[1:], TRUE[1:])


def quantiles(name: str, sites: int, rng: np.random.Generator) -> list[bool]:
    """A quantile of outcomes whose spread grows with the covariate, in units from a thousandth to a thousand."""
    level, rows = float(name.split()[1]), int(name.split()[2])
    x, scale, q = rng.uniform(0.0, 2.0, rows), 10.0 ** int(rng.integers(-3, 4)), stats.norm.ppf(level)
    y = scale * (1.0 + 2.0 * x + (0.5 + x) * rng.standard_normal(rows))
    model = fpdfp.FederatedGLM(Quantile(level=level)).fit(x[:, None], y, groups=np.arange(rows) % sites)
    return covered(model.table().intervals() / scale, [1.0 + 0.5 * q, 2.0 + q])


def ordinal(name: str, sites: int, rng: np.random.Generator) -> list[bool]:
    X, site = covariates(rng, sites, 3)
    cuts = np.array([-0.8, 0.6])
    y = np.digitize(X @ TRUE[1:] + rng.logistic(size=len(X)), cuts)
    model = fpdfp.FederatedOrdinalRegression().fit(X, y, groups=site)
    return covered(model.table().intervals(), np.append(TRUE[1:], cuts))


def multinomial(name: str, sites: int, rng: np.random.Generator) -> list[bool]:
    X, site = covariates(rng, sites, 3)
    both = np.array([TRUE, [-0.2, 0.0, 0.5, -0.4]])
    z = np.column_stack([np.zeros(len(X)), both[:, 0] + X @ both[:, 1:].T])
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    model = fpdfp.FederatedMultinomialRegression().fit(X, y, groups=site)
    return covered(model.table().intervals(), both.ravel())


def quasi(name: str, sites: int, rng: np.random.Generator) -> list[bool]:
    """Counts with twice the variance of Poisson's, or shares of ten with twice that of the binomial family."""
    X, site = covariates(rng, sites, 3)
    eta = TRUE[0] + X @ TRUE[1:]
    if name == "quasi-poisson":
        y: Any = rng.negative_binomial(np.exp(eta), 0.5)
        return covered(fpdfp.FederatedGLM(name).fit(X, y, groups=site).table().intervals(), TRUE)
    p = 1.0 / (1.0 + np.exp(-eta))
    y = rng.binomial(10, rng.beta(8.0 * p, 8.0 * (1.0 - p))) / 10.0
    model = fpdfp.FederatedGLM(name).fit(X, y, groups=site, sample_weight=np.full(len(X), 10.0))
    return covered(model.table().intervals(), TRUE)


def firth(name: str, sites: int, rng: np.random.Generator) -> list[bool]:
    """A rare outcome in 60 rows, separated in some studies: limits of the penalised profile likelihood."""
    X, owner = rng.standard_normal((60, 2)), np.arange(60) % sites
    X[:, 1] = X[:, 1] > 0.8
    true = np.array([-1.5, 0.8, 1.0])
    y = (rng.random(60) < 1.0 / (1.0 + np.exp(-(true[0] + X @ true[1:])))).astype(int)
    model = fpdfp.FederatedLogisticRegression("firth").fit(X, y, groups=owner)
    found = model.profile_intervals(X, y, owner)
    return covered(np.column_stack([found.lower, found.upper]), true)


def meta(name: str, sites: int, rng: np.random.Generator) -> list[bool]:
    """The pooled coefficients of fits of the sites: fixed effects of one truth, or the mean of several."""
    X, site = covariates(rng, sites, 1)
    slopes = 0.4 + (0.3 * rng.standard_normal(sites) if name != "meta, fixed" else np.zeros(sites))
    y = 0.2 + slopes[site] * X[:, 0] + rng.normal(0.0, 1.0, len(X))
    fits = fpdfp.fit_sites(fpdfp.FederatedGLM("gaussian"), pd.DataFrame({"x": X[:, 0], "y": y, "site": site}), "y ~ x",
                           groups="site")  # fmt: skip
    found = fits.meta("x")
    pooled = {"meta, fixed": "fixed", "meta, Knapp-Hartung": "random", "meta, DerSimonian-Laird": "dersimonian_laird"}[
        name
    ]
    one = getattr(found, pooled)
    return [bool(one.lower <= 0.4 <= one.upper)]


def evaluation(name: str, sites: int, rng: np.random.Generator) -> list[bool]:
    """The area under the ROC curve, or the calibration, of a model at new rows; the truth is that of 60,000 others."""
    X, site = covariates(rng, sites, 3)

    def outcomes(rows: Any) -> Any:
        return (rng.random(len(rows)) < 1.0 / (1.0 + np.exp(-(TRUE[0] + 2.0 * rows @ TRUE[1:])))).astype(int)

    model = fpdfp.FederatedLogisticRegression("none").fit(X[::2], outcomes(X)[::2], groups=site[::2])
    new, population = X[1::2], X[rng.integers(len(X), size=60_000)]
    shift = rng.standard_normal((len(X), 3))
    new, population = new + shift[1::2], population + rng.standard_normal(population.shape)
    found = model.evaluate(new, outcomes(new), groups=site[1::2]).overall
    z, y = model.decision_function(population), outcomes(population)
    if name == "auc":
        ranks = stats.rankdata(z)
        hits = int(y.sum())
        true = [(ranks[y == 1].sum() - hits * (hits + 1) / 2) / (hits * (len(y) - hits))]
        names = ["auc"]
    else:
        true, names = list(recalibrate(z, y)), ["calibration intercept", "calibration slope"]
    return covered([(found[one].lower, found[one].upper) for one in names], true)


def recalibrate(z: Any, y: Any) -> tuple[float, float]:
    """Return the intercept of a logistic regression with the offset z, and the slope of one on z."""
    intercept, both = 0.0, np.array([0.0, 1.0])
    A = np.column_stack([np.ones(len(z)), z])
    for _ in range(25):
        p = 1.0 / (1.0 + np.exp(-(intercept + z)))
        intercept += (y - p).sum() / (p * (1.0 - p)).sum()
        p = 1.0 / (1.0 + np.exp(-(A @ both)))
        both = both + np.linalg.solve(A.T @ (A * (p * (1.0 - p))[:, None]), A.T @ (y - p))
    return intercept, float(both[1])


def concordance(name: str, sites: int, rng: np.random.Generator) -> list[bool]:
    """The concordance of a model at new rows; the truth is that of 1,500 others at each site."""
    X, site = covariates(rng, sites, 3)
    model = fpdfp.FederatedCoxRegression(baseline=False).fit(X[::2], times_of(rng, X, site)[::2], groups=site[::2])
    rows, own = X[1::2], site[1::2]
    more = rng.integers(len(rows), size=1_500 * sites)
    population, owner = rows[more] + rng.standard_normal((len(more), 3)), own[more]
    rows = rows + rng.standard_normal(rows.shape)
    found = model.concordance(rows, times_of(rng, rows, own), strata=own)
    true = model.concordance(population, times_of(rng, population, owner), strata=owner).index
    return [bool(abs(found.index - true) <= 1.96 * found.error)]


def kaplan_meier(name: str, sites: int, rng: np.random.Generator) -> list[bool]:
    """Survival at three times, of exponential times that are censored."""
    rows = sites * SITES[sites]
    time, censored = rng.exponential(1.0, rows), rng.exponential(2.0, rows)
    table = pd.DataFrame({"t": np.minimum(time, censored), "d": (time <= censored).astype(int)})
    curve = fpdfp.survival_curves(table, "Surv(t, d) ~ 1", groups=np.arange(rows) % sites)["all"]
    at = np.array([0.25, 0.7, 1.5])
    places = np.searchsorted(curve.times, at, side="right") - 1
    return covered(np.column_stack([curve.lower, curve.upper])[places], np.exp(-at))


def log_rank(name: str, sites: int, rng: np.random.Generator) -> list[bool]:
    """Whether a log-rank test of two groups with the same hazard is not significant at 5 %."""
    rows = sites * SITES[sites]
    time, censored = rng.exponential(1.0, rows), rng.exponential(2.0, rows)
    table = pd.DataFrame({"t": np.minimum(time, censored), "d": (time <= censored).astype(int),
                          "arm": rng.integers(0, 2, rows).astype(str)})  # fmt: skip
    return [fpdfp.log_rank_test(table, "Surv(t, d) ~ arm", groups=np.arange(rows) % sites).p >= 0.05]


def penalised(name: str, sites: int, rng: np.random.Generator) -> list[bool]:
    """Return which coefficients the debiased intervals of a penalised study cover, active ones first."""
    X, site = covariates(rng, sites, MANY)
    true = np.concatenate([ACTIVE, np.zeros(MANY - len(ACTIVE))])
    y = (rng.random(len(X)) < 1.0 / (1.0 + np.exp(-(X @ true)))).astype(float)
    alpha = 0.5 * np.sqrt(np.log(MANY) / len(X))
    model = fpdfp.FederatedGLM("binomial", penalty=fpdfp.L1(alpha), inference=True).fit(X, y, groups=site)
    return covered(model.debiased_table().intervals()[1:], true)


CASES: dict[str, Callable[[str, int, np.random.Generator], list[bool]]] = {
    **dict.fromkeys(
        ("gaussian", "binomial logit", "binomial probit", "binomial cloglog", "poisson", "negative binomial", "gamma",
         "inverse gaussian", "tweedie", "cox"),
        study,
    ),
    **dict.fromkeys(("quasi-poisson", "quasi-binomial"), quasi),
    "clusters": clusters,
    "random effects": random_effects,
    "ordinal": ordinal,
    "multinomial": multinomial,
    "firth": firth,
    **dict.fromkeys(("meta, fixed", "meta, Knapp-Hartung", "meta, DerSimonian-Laird"), meta),
    **dict.fromkeys(("auc", "calibration"), evaluation),
    "concordance": concordance,
    "kaplan-meier": kaplan_meier,
    "log-rank": log_rank,
    **dict.fromkeys((f"quantile {level} {rows}" for level in (0.25, 0.5, 0.9) for rows in (200, 500, 2000)), quantiles),
    "debiased": penalised,
}  # fmt: skip


def some(name: str, sites: int, seeds: range) -> list[list[bool] | None]:
    """Run some studies; None for one whose fit did not end as it should, or has no maximum."""
    found: list[list[bool] | None] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in seeds:
            try:
                found.append(CASES[name](name, sites, np.random.default_rng([seed, sites, len(name)])))
            except (Warning, ValueError, RuntimeError, ArithmeticError):
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
    parser.add_argument("--sites", nargs="+", type=int, choices=SITES, default=list(SITES))
    parser.add_argument("--file", type=Path, help="where results are kept after each family")
    parser.add_argument("--page", type=Path, help="where the page is written, and coverage-tables.txt next to it")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.file is not None and options.file.is_file():
        found = json.loads(options.file.read_text())
    with ProcessPoolExecutor(options.jobs) as pool:
        for name in options.only:
            for sites in options.sites:
                key = f"{name}, {sites} sites"
                if found.get(key, {}).get("asked") == options.studies:
                    continue
                found[key] = measure(name, sites, options.studies, pool, 8 * options.jobs) | {"asked": options.studies}
                if options.file is not None:
                    options.file.write_text(json.dumps(found, indent=1))
                print(key, found[key], flush=True)
    rows = table_of(found)
    _tools.show("95 % intervals", HEADINGS, rows)
    if options.page is not None:
        options.page.write_text(write_page(rows))
        options.page.with_name("coverage-tables.txt").write_text(write_tables(rows))
    within = all(row[-1] == "yes" for row in rows)
    _tools.finish({"benchmark": "coverage", "within": within, "cases": found})


HEADINGS = ["intervals", "studies", "covered", "a coefficient", "without an interval", "0.93 to 0.97"]


def table_of(found: dict[str, Any]) -> list[list[str]]:
    """Return a row for each case; the last cell compares the mean share with the bounds."""
    rows = []
    for key, one in found.items():
        for group in ("all", "active", "inactive"):
            if group not in one:
                continue
            mean, low, high = one[group]
            error = 2.0 * np.sqrt(mean * (1.0 - mean) / one["studies"])
            open_ = mean + error >= LEAST and mean - error <= LARGEST
            verdict = "yes" if LEAST <= mean <= LARGEST else "undecided" if open_ else "**no**"
            shares = [f"{mean:.3f}", f"{low:.3f} to {high:.3f}"]
            title = key if group == "all" else f"{key}, {group}"
            rows.append([title, f"{one['studies']:,}", *shares, f"{one['without']}", verdict])
    return rows


def summary_of(rows: list[list[str]]) -> list[list[str]]:
    """Return a row for each number of sites: how many cases there are, what they cover, and how many are within."""
    summary = []
    for sites in SITES:
        of = [row for row in rows if f", {sites} sites" in row[0]]
        if of:
            shares, verdicts = sorted(row[2] for row in of), [row[-1] for row in of]
            counts = [f"{verdicts.count(one)}" for one in ("yes", "undecided", "**no**")]
            summary.append([f"{sites}", f"{len(of)}", f"{shares[0]} to {shares[-1]}", *counts])
    return summary


PAGE = """# How often 95 % intervals cover

Made by `python -m benchmarks.coverage --studies N --file FILE --page docs/results/coverage.md`; the help describes
the studies: 300 rows at 3 sites, 800 rows at 20. *Covered* is the mean over coefficients. It is compared with 0.93
and 0.97; *undecided* means that it is within two of its own errors, which are 0.013 for 300 studies and 0.005 for
2,000. [A text file](coverage-tables.txt) has each kind of intervals, and the least and the largest share of a
coefficient.

{summary}
Not within, or undecided:

{others}"""


def write_page(rows: list[list[str]]) -> str:
    """Return the page of results."""
    header = ["sites", "kinds of intervals", "covered", "within", "undecided", "not within"]
    others = [row for row in rows if row[-1] != "yes"]
    return PAGE.format(summary=markdown(header, summary_of(rows)), others=markdown(HEADINGS, others))


def write_tables(rows: list[list[str]]) -> str:
    """Return the file of all rows."""
    return "How often 95 % intervals cover; coverage.md describes the studies.\n\n" + markdown(HEADINGS, rows)


if __name__ == "__main__":
    main()
