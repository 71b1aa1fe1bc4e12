"""What R says of small data sets (tests/data/r, written by ``python -m tools.r_fixtures``), as the tests read it."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

FOLDER = Path(__file__).parent / "data" / "r"
#: R's names of families, where they are not those of the package.
FAMILIES = {"Gamma": "gamma", "inverse.gaussian": "inverse gaussian"}


@functools.cache
def cases(topic: str) -> dict[str, dict[str, Any]]:
    """Return the cases of a topic by name, "glm" for instance; "r" is what R said."""
    found: dict[str, dict[str, Any]] = json.loads((FOLDER / f"{topic}.json").read_text())["cases"]
    return found


@functools.cache
def _data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "data.json").read_text())
    return found


def frame(name: str) -> pd.DataFrame:
    """Return a data set; missing values are NaN, or None in a column of texts."""
    return pd.DataFrame(_data()[name])


def numbers(value: Any) -> NDArray[np.float64]:
    """Return numbers of a fixture as an array (R has no scalars: one number is written as such)."""
    return np.atleast_1d(np.array(value, dtype=float))


@dataclass(frozen=True)
class Rows:
    """The complete rows of a case, coded by formulaic."""

    X: NDArray[np.float64]
    y: NDArray[np.float64]
    weights: NDArray[np.float64]
    offset: NDArray[np.float64]
    sites: NDArray[Any]
    names: list[str]


def rows(case: dict[str, Any], formula: str | None = None) -> Rows:
    """Return the rows that a case uses, coded independently of the package."""
    from formulaic import model_matrix

    text = case["formula"] if formula is None else formula
    table = frame(case["data"])
    offset = re.search(r"\+ offset\((.*)\)$", text)
    text = text[: offset.start()] if offset else text
    used = [name for name in table.columns if re.search(rf"\b{name}\b", text + (offset.group(1) if offset else ""))]
    table = table.dropna(subset=used)
    shift = np.zeros(len(table))
    if offset:
        column = re.sub(r"log\((.*)\)", r"\1", offset.group(1))
        shift = table[column].to_numpy(float)
        shift = np.log(shift) if "log" in offset.group(1) else shift
    matrix = model_matrix(text.split("~")[1], table)
    weights = table[case["weights"]].to_numpy(float) if case.get("weights") else np.ones(len(table))
    y = table[text.split("~")[0].strip()]
    codes = y.to_numpy(float) if pd.api.types.is_numeric_dtype(y) else pd.Categorical(y).codes.astype(float)
    return Rows(matrix.to_numpy(dtype=float), codes, weights, shift, table["site"].to_numpy(), list(matrix.columns))


@dataclass(frozen=True)
class Times:
    """The rows of a Cox model, coded by formulaic; clients are the sites where the model is stratified by them."""

    X: NDArray[np.float64]
    time: NDArray[np.float64]
    event: NDArray[np.float64]
    entry: NDArray[np.float64] | None
    clients: NDArray[Any] | None
    strata: NDArray[Any] | None
    weights: NDArray[np.float64] | None
    offset: NDArray[np.float64] | None


def times(case: dict[str, Any]) -> Times:
    """Return the rows of a case of coxph."""
    from formulaic import model_matrix

    table = frame(case["data"])
    left, right = case["formula"].split(" ~ ")
    columns = re.findall(r"\w+", left)[1:]
    terms = re.sub(r" \+ (strata|offset)\([^)]*\)", "", right)
    strata = re.search(r"strata\((.*?)\)", right)
    by = strata.group(1).split(", ") if strata else []
    offset = re.search(r"offset\((.*?)\)", right)
    X = model_matrix(terms, table).drop(columns="Intercept").to_numpy(dtype=float)
    *begin, end, event = (table[name].to_numpy(float) for name in columns)
    return Times(
        X,
        end,
        event,
        begin[0] if begin else None,
        table["site"].to_numpy() if "site" in by else None,
        table["grade"].to_numpy() if "grade" in by else None,
        table[case["weights"]].to_numpy(float) if case["weights"] else None,
        table[offset.group(1)].to_numpy(float) if offset else None,
    )


@functools.cache
def _study(name: str, topic: str) -> pd.DataFrame:
    told = cases(topic)[f"data {name}"]["r"]
    levels, ordered = told["levels"] or {}, told["ordered"] or []
    return pd.DataFrame({
        column: pd.Categorical(values, levels[column], ordered=column in ordered) if column in levels else values
        for column, values in told["columns"].items()
    })  # fmt: skip


def study(name: str, topic: str = "study") -> pd.DataFrame:
    """Return a public data set of R; factors are categorical, their levels in R's order."""
    return _study(name, topic).copy()
