"""Simulated patients of three hospitals, for examples and rehearsals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fpdfp import _checks

if TYPE_CHECKING:
    import pandas

HOSPITALS = ("north", "east", "south")
STAGES = ("I", "II", "III", "IV")


def patients(rows: int = 900, seed: int = 0) -> pandas.DataFrame:
    """Return a table of simulated patients of three hospitals.

    Hospitals differ in age and stage, and some pressures are missing. Stages add 0, 0.5, 1 or 1.8 to the linear
    predictors of all outcomes:

    * ``died``: log odds −5 + 0.05 age + 0.02 (pressure − 130) + stage.
    * ``readmitted``: log odds −4.5 + 0.05 age + stage − 0.6 treated.
    * ``visits``: Poisson with log mean 0.4 (−1 + stage − 0.6 treated).
    * ``months``, ``relapsed``: exponential times with log hazard −3.5 + stage − 0.6 treated, censored at random.

    Parameters
    ----------
    rows
        The number of patients, at least 100.
    seed
        The seed of the draws.

    Examples
    --------
    >>> table = patients()
    >>> table.groupby("hospital").size().to_dict()
    {'east': 308, 'north': 381, 'south': 211}
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
    worse = np.array([0.0, 0.5, 1.0, 1.8])[stage]
    died = generator.random(rows) < 1 / (1 + np.exp(5 - 0.05 * age - 0.02 * (pressure - 130) - worse))
    pressure[generator.random(rows) < 0.03] = np.nan
    sex = np.where(generator.random(rows) < 0.5, "female", "male")
    treated = generator.integers(0, 2, rows)
    risk = worse - 0.6 * treated
    readmitted = generator.random(rows) < 1 / (1 + np.exp(4.5 - 0.05 * age - risk))
    visits = generator.poisson(np.exp(0.4 * (risk - 1)))
    relapse, censored = generator.exponential(np.exp(3.5 - risk)), generator.uniform(6, 60, rows)
    return pandas.DataFrame(
        {
            "hospital": np.array(HOSPITALS)[place],
            "age": age.astype(int),
            "sex": sex,
            "stage": np.array(STAGES)[stage],
            "pressure": pressure,
            "died": died.astype(int),
            "treated": treated,
            "readmitted": readmitted.astype(int),
            "visits": visits,
            "months": np.minimum(relapse, censored).round(1) + 0.1,
            "relapsed": (relapse <= censored).astype(int),
        }
    )
