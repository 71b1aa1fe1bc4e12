"""A study as it is done: what an honest analyst asks of four hospitals, and of a fifth that is too small."""

from __future__ import annotations

import copy
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fpdfp
from fpdfp.federation.rehearse import Rehearsal, split

#: The rows of each hospital.
SIZES = {"basel": 300, "cleveland": 260, "long_beach": 180, "zurich": 120}
SMALL = {"aarau": 50}
NUMBERS = ("age", "pressure", "cholesterol", "rate", "oldpeak", "weight", "creatinine", "glucose")
TRUTHS = ("female", "smoker", "angina", "diabetes")
GRID = np.arange(30.0, 1500.0, 30.0)
NINE = "age + pressure + cholesterol + rate + oldpeak + female + smoker + angina + diabetes"


INTRODUCTION = f"""# An honest study through default policies

`make study` runs it: `python -m tests.honest_study docs/results/study.md`. Five hospitals with made-up patients
({", ".join(f"{name} {rows}" for name, rows in (SIZES | SMALL).items())} rows), a hub and an analyst are processes of
their own on one machine, connected over TLS. All policies are the defaults. The last hospital receives one model
alone, which has too many coefficients for its rows: it refuses, and the model is fitted without it. Nothing else is
refused, which a test checks. Seconds depend on the machine and on what else it does; bytes are those on the
wire of the analyst, both ways through the hub.

"""


def make_patients(sizes: dict[str, int], seed: int = 1) -> pd.DataFrame:
    """Return made-up patients with chest pain, as four heart studies have had them."""
    rng = np.random.default_rng(seed)
    n = sum(sizes.values())
    table = pd.DataFrame({"hospital": np.repeat(list(sizes), list(sizes.values()))})
    table["age"] = rng.normal(56, 9, n).round().clip(30, 85)
    for name, share in zip(TRUTHS, (0.38, 0.42, 0.35, 0.4), strict=True):
        table[name] = (rng.random(n) < share).astype(int)
    table["pressure"] = (rng.normal(132, 17, n) + 0.4 * (table.age - 56)).round()
    table["cholesterol"] = rng.normal(246, 48, n).round()
    table["rate"] = (rng.normal(149, 21, n) - 0.9 * (table.age - 56)).round()
    table["oldpeak"] = rng.gamma(1.6, 0.7, n).round(1)
    table["weight"] = rng.normal(79, 13, n).round(1)
    table["creatinine"] = rng.lognormal(0.0, 0.25, n).round(2)
    table["glucose"] = rng.lognormal(1.7, 0.2, n).round(1)
    table["arm"] = rng.choice(["new", "usual"], n)
    table["stage"] = rng.choice(["I", "II", "III"], n, p=[0.4, 0.35, 0.25])
    risk = 0.04 * (table.age - 56) - 0.015 * (table.rate - 149) + 0.5 * table.oldpeak - 0.6 * table.female
    risk += 0.7 * table.angina + 0.3 * table.diabetes + 0.3 * (table.stage == "III") - 0.4 * (table.arm == "new")
    table["disease"] = (risk - 0.6 + rng.logistic(size=n) > 0).astype(int)
    times = rng.exponential(900.0 * np.exp(-0.5 * risk))
    end = rng.uniform(300.0, 1800.0, n)
    table["time"], table["died"] = np.ceil(np.minimum(times, end)), (times < end).astype(int)
    table.loc[rng.random(n) < 0.02, "cholesterol"] = np.nan
    return table


def study(sites: Any, **options: Any) -> Iterator[tuple[str, Any]]:
    """Ask all of a study; yield what each step is called, and what came of it."""
    logistic = fpdfp.FederatedLogisticRegression("none")
    yield "table of sizes", sites.describe() if hasattr(sites, "describe") else None
    yield "survival by arm", fpdfp.survival_curves(sites, "Surv(time, died) ~ arm", times=GRID)
    for group in ("arm", "stage", "female"):
        yield f"log-rank test of {group}", fpdfp.log_rank_test(sites, f"Surv(time, died) ~ C({group})")
    for column in (*NUMBERS[:5], *TRUTHS, "stage"):
        yield f"disease by {column}", fit(logistic, sites, f"disease ~ {column}", options)
    base = "disease ~ age + female"
    for added in (" + pressure", " + oldpeak + angina", " + C(stage) + smoker", " + rate + diabetes"):
        yield f"model with{added}", fit(logistic, sites, base + added, options)
    yield "model of nine", fit(logistic, sites, f"disease ~ {NINE}", options)
    cox = fpdfp.FederatedCoxRegression(baseline=GRID)
    yield "hazards", fit(cox, sites, "Surv(time, died) ~ age + female + oldpeak + angina + arm", options)
    small = fit(logistic, sites, f"{base} + angina", options)
    for added in ("diabetes", "C(stage)"):
        large = fit(logistic, sites, f"{base} + angina + {added}", options)
        yield f"likelihood-ratio test of {added}", small.compare(large)
    path = fpdfp.FederatedLogisticRegressionCV("l1", cv=fpdfp.CrossValidation(5, alphas=20), standardize=True)
    yield "lasso path", fit(path, sites, f"disease ~ {' + '.join((*NUMBERS, *TRUTHS))}", options)
    model = fit(logistic, sites, f"disease ~ {NINE}", options)
    yield "evaluation", model.evaluate(sites)


def fit(model: Any, sites: Any, formula: str, options: dict[str, Any]) -> Any:
    """Fit a model, and have it summarised."""
    import sklearn.base

    fitted = sklearn.base.clone(model).fit(sites, formula, **options)
    fitted.summary()
    return fitted


def main(page: Path | None = None) -> None:
    """Run the study through real processes with default policies, print what it cost, and write a page of it."""
    lines: list[str] = []

    def say(*new: str) -> None:
        lines.extend(new)
        print(*new, sep="\n", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "patients.csv"
        make_patients(SIZES | SMALL).to_csv(table, index=False)
        tables = split(table, "hospital", Path(folder) / "tables")
        with Rehearsal(Path(folder), tables) as rehearsal, fpdfp.Federation(rehearsal.study.folder) as sites:
            say("| step | seconds | exchanges | kB up | kB down |", "| --- | --- | --- | --- | --- |")
            started = last = time.monotonic()
            used = copy.copy(sites.usage)
            for name, _ in study(sites.without(list(SMALL))):
                now, usage = time.monotonic(), copy.copy(sites.usage)
                say(
                    f"| {name} | {now - last:.1f} | {usage.exchanges - used.exchanges} | "
                    f"{(usage.up - used.up) / 1e3:.1f} | {(usage.down - used.down) / 1e3:.1f} |"
                )
                last, used = now, usage
            model = fpdfp.FederatedLogisticRegression(penalty="none")
            model.fit(sites, f"disease ~ {NINE}", on_refusal="exclude")
            usage, seconds = sites.usage, time.monotonic() - started
            say(
                f"| all, and the model of nine with five hospitals | {seconds:.1f} | {usage.exchanges} | "
                f"{usage.up / 1e3:.1f} | {usage.down / 1e3:.1f} |",
                "", "The budget of each hospital afterwards, in analyses:", "", "```", str(sites.budget()), "```",
            )  # fmt: skip
    if page is not None:
        page.write_text(INTRODUCTION + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
