"""The data sets of the comparison with R: seeded, small, at sites with different covariates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, list[Any]]
Numbers = NDArray[np.float64]
SITES = ("a", "b", "c")


def build_study() -> Columns:
    """Return 240 rows with an outcome for every family; site c alone knows the group "rare"; values are missing."""
    rng = np.random.default_rng(20)
    n = 240
    place = np.repeat([0, 1, 2], [60, 80, 100])
    x1 = rng.normal(0.3 * place - 0.3, 1 + 0.2 * place)
    x2 = rng.uniform(0.2, 2.0, n) + 0.2 * place
    group = rng.choice(["high", "low", "mid"], n, p=[0.3, 0.4, 0.3]).astype(object)
    group[(place == 2) & (rng.random(n) < 0.2)] = "rare"
    effect = np.array([{"high": 0.0, "low": -0.3, "mid": 0.2, "rare": 0.4}[g] for g in group])
    x1, x2 = x1.round(3), x2.round(3)
    eta = 0.2 + 0.4 * x1 - 0.3 * x2 + effect
    months = rng.uniform(1, 12, n).round(2)
    trials = rng.integers(1, 9, n)
    mean = np.exp(eta)
    columns: dict[str, Any] = {
        "site": np.array(SITES)[place],
        "x1": x1,
        "x2": x2,
        "group": group,
        "weight": rng.uniform(0.5, 2.5, n).round(2),
        "months": months,
        "trials": trials,
        "real": eta + rng.normal(0, 0.8, n),
        "positive": mean + 3 + rng.normal(0, 0.5, n),
        "disease": rng.binomial(1, 1 / (1 + np.exp(-eta))),
        "seldom": rng.binomial(1, np.exp(np.clip(-2.2 + 0.15 * x1 + 0.2 * x2, None, -0.3))),
        "share": rng.binomial(trials, 1 / (1 + np.exp(-eta))) / trials,
        "count": rng.poisson(mean * months / 4),
        "visits": rng.poisson(1 + 2 * x2 + 0.5 * np.abs(x1)),
        "cost": rng.gamma(2.0, mean / 2.0),
        "delay": rng.wald(mean, 2.0),
        "crowded": rng.negative_binomial(1.7, 1.7 / (1.7 + 3 * mean)),
        "claim": [rng.gamma(1.5, 0.8 * m, rng.poisson(m)).sum() for m in mean],
        "stage": np.digitize(eta + rng.logistic(0, 1, n), [-1.0, 0.3, 1.5]) + 1,
    }
    # The largest of scores with Gumbel noise is a draw from a multinomial logit.
    scores = np.column_stack([np.zeros(n), 0.5 * x1 - 0.2, -0.6 * x1 + 0.5 * x2])
    columns["kind"] = np.array(["car", "foot", "train"])[np.argmax(scores + rng.gumbel(size=(n, 3)), axis=1)]
    out = {name: tidy(values, 17 if name == "share" else 6) for name, values in columns.items()}
    for name, many in (("x2", 7), ("group", 4), ("count", 3)):
        for row in rng.choice(n, many, replace=False):
            out[name][int(row)] = None
    return out


def build_survival() -> Columns:
    """Return 210 subjects with tied times, late entries and censoring; hazards differ between sites."""
    rng = np.random.default_rng(21)
    n = 210
    place = np.repeat([0, 1, 2], [50, 70, 90])
    age = rng.normal(60 + 3 * place, 9, n).round(0)
    treated = rng.binomial(1, 0.4 + 0.1 * place)
    grade = rng.choice(["G1", "G2", "G3"], n, p=[0.3, 0.4, 0.3])
    rate = np.exp(0.03 * (age - 60) - 0.5 * treated + 0.35 * (grade == "G3") - 2.0 + 0.4 * place)
    time = np.ceil(rng.exponential(1 / rate) * 2) / 2
    end = np.ceil(rng.uniform(4, 24, n) * 2) / 2
    entry = np.where(rng.random(n) < 0.5, 0.0, np.floor(rng.uniform(0, 1, n) * np.minimum(time, end) * 2) / 2)
    observed = np.minimum(time, end)
    columns = {
        "site": np.array(SITES)[place],
        "age": age,
        "treated": treated,
        "grade": grade,
        "weight": rng.uniform(0.5, 2.0, n).round(2),
        "lean": rng.normal(0, 0.2, n).round(3),
        "entry": np.minimum(entry, observed - 0.5),
        "time": observed,
        "status": (time <= end).astype(int),
    }
    return {name: tidy(values) for name, values in columns.items()}


def build_counting(subjects: Columns) -> Columns:
    """Return the subjects in start–stop form: a marker is measured at entry and every five months."""
    rng = np.random.default_rng(22)
    rows: list[dict[str, Any]] = []
    for i, (time, status) in enumerate(zip(subjects["time"], subjects["status"], strict=True)):
        marker = rng.normal()
        for start in np.arange(0, time, 5.0):
            stop = min(start + 5.0, time)
            last = stop == time
            row = {name: subjects[name][i] for name in ("site", "age", "treated")}
            rows.append(
                row
                | {"id": i, "start": start, "stop": stop, "status": int(last and status), "marker": round(marker, 3)}
            )
            marker = 0.7 * marker + 0.5 * rng.normal() + 0.1
    return {name: tidy(np.array([row[name] for row in rows])) for name in rows[0]}


def build_wide() -> Columns:
    """Return 150 rows with eight correlated columns, of which three matter."""
    rng = np.random.default_rng(23)
    n, p = 150, 8
    place = np.repeat([0, 1, 2], 50)
    common = rng.normal(size=(n, 1))
    X = (rng.normal(size=(n, p)) + 0.6 * common + 0.3 * place[:, None]) * np.array([1, 2, 0.5, 1, 1, 3, 1, 1])
    eta = X[:, :3] @ [0.5, -0.3, 0.8] + 0.1
    columns: dict[str, Any] = {"site": np.array(SITES)[place]}
    columns |= {f"z{j + 1}": X[:, j].round(3) for j in range(p)}
    columns |= {
        "weight": rng.uniform(0.5, 2.0, n).round(2),
        "lean": rng.normal(0, 0.3, n).round(3),
        "real": eta + rng.normal(size=n),
        "binary": rng.binomial(1, 1 / (1 + np.exp(-eta))),
        "count": rng.poisson(np.exp(0.5 * eta)),
        "time": np.ceil(rng.exponential(np.exp(-0.6 * eta)) * 10) / 10,
        "status": rng.binomial(1, 0.7, n),
    }
    return {name: tidy(values) for name, values in columns.items()}


def build_clusters() -> Columns:
    """Return 20 sites of 15 rows, each with a level of its own, for random intercepts."""
    rng = np.random.default_rng(24)
    place = np.repeat(np.arange(20), 15)
    x = rng.normal(0.02 * place, 1, 300).round(3)
    eta = -0.2 + 0.6 * x + rng.normal(0, 0.7, 20)[place]
    columns = {
        "site": np.array([f"s{i:02d}" for i in range(20)])[place],
        "x": x,
        "disease": rng.binomial(1, 1 / (1 + np.exp(-eta))),
        "count": rng.poisson(np.exp(eta)),
    }
    return {name: tidy(values) for name, values in columns.items()}


def build_separated() -> Columns:
    """Return rows whose outcome is known from x (complete), or from one group (quasi-complete)."""
    rng = np.random.default_rng(25)
    place = np.repeat([0, 1, 2], 20)
    x = rng.normal(size=60).round(3)
    group = rng.choice(["p", "q", "r"], 60)
    quasi = np.where(group == "q", 1, rng.binomial(1, 0.5, 60))
    columns = {
        "site": np.array(SITES)[place],
        "x": x,
        "other": rng.normal(size=60).round(3),
        "group": group,
        "complete": (x > 0.1).astype(int),
        "quasi": quasi,
        "none": np.where(group == "q", 0, rng.poisson(2, 60)),
        "time": rng.integers(1, 30, 60),
        "status": np.where(group == "q", 0, rng.binomial(1, 0.7, 60)),
    }
    return {name: tidy(values) for name, values in columns.items()}


def build_all() -> dict[str, Columns]:
    """Return every data set by name."""
    survival = build_survival()
    return {
        "study": build_study(),
        "survival": survival,
        "counting": build_counting(survival),
        "wide": build_wide(),
        "clusters": build_clusters(),
        "separated": build_separated(),
    }


def tidy(values: Any, digits: int = 6) -> list[Any]:
    """Return a column as plain values, reals with few significant digits (R reads the same decimals)."""
    array = np.asarray(values)
    if array.dtype.kind == "f":
        return [int(value) if value == int(value) else float(f"{value:.{digits}g}") for value in array]
    return [value if isinstance(value, str) else int(value) for value in array.tolist()]
