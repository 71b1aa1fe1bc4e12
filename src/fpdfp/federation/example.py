"""A table of made-up patients of three hospitals, to try a federation with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fpdfp import _checks

if TYPE_CHECKING:
    import pandas

HOSPITALS = ("north", "east", "south")
STAGES = ("I", "II", "III", "IV")


def make_patients(rows: int = 900, seed: int = 0) -> pandas.DataFrame:
    """Return a table of patients who never lived: hospital, age, sex, stage, pressure, and whether one died.

    Hospitals differ in age and stage, and some pressures are missing. The logarithm of the odds of ``died`` is
    -5 + 0.05 age + 0.02 (pressure - 130), and 0, 0.5, 1 or 1.8 more by stage.

    Parameters
    ----------
    rows
        The number of patients, at least 100.
    seed
        The seed of the draws.

    Examples
    --------
    >>> table = make_patients()
    >>> list(table.columns)
    ['hospital', 'age', 'sex', 'stage', 'pressure', 'died']
    >>> int(table["pressure"].isna().sum())
    20
    """
    import pandas

    rows = _checks.integer("rows", rows, at_least=100)
    generator = np.random.default_rng(_checks.integer("seed", seed, at_least=0))
    place = generator.choice(3, rows, p=[0.45, 0.33, 0.22])
    age = np.clip(generator.normal(58 + 5 * place, 12), 18, 99).round()
    shares = np.array([[0.4, 0.3, 0.2, 0.1], [0.3, 0.3, 0.25, 0.15], [0.2, 0.3, 0.3, 0.2]])
    stage = (generator.random(rows)[:, None] > np.cumsum(shares, axis=1)[place]).sum(axis=1).clip(max=3)
    pressure = generator.normal(115 + 0.35 * age, 12).round()
    odds = -5 + 0.05 * age + 0.02 * (pressure - 130) + np.array([0.0, 0.5, 1.0, 1.8])[stage]
    died = generator.random(rows) < 1 / (1 + np.exp(-odds))
    pressure[generator.random(rows) < 0.03] = np.nan
    return pandas.DataFrame(
        {
            "hospital": np.array(HOSPITALS)[place],
            "age": age.astype(int),
            "sex": np.where(generator.random(rows) < 0.5, "female", "male"),
            "stage": np.array(STAGES)[stage],
            "pressure": pressure,
            "died": died.astype(int),
        }
    )


def write_patients(path: Path, rows: int = 900) -> Path:
    """Write such a table as a CSV file; one that is there is not overwritten."""
    table = make_patients(rows)
    with path.open("x", encoding="utf-8", newline="") as file:
        table.to_csv(file, index=False)
    return path
