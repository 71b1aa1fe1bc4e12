"""Rows that belong together: robust errors of Cox by subjects, at sites, and what a site refuses of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from fpdfp import FederatedCoxRegression
from fpdfp.errors import ArgumentError, RefusalError
from fpdfp.losses import Cox
from tests.r_cases import frame
from tests.test_cox_estimator import DeskCohort

FORMULA = "Surv(start, stop, status) ~ age + treated + marker"


def subjects() -> pd.DataFrame:
    return frame("counting").rename(columns={"id": "subject", "site": "hospital"})


@pytest.fixture
def desks(tmp_path: Path) -> Any:
    made: list[DeskCohort] = []

    def make(table: pd.DataFrame) -> DeskCohort:
        made.append(DeskCohort(table, tmp_path / str(len(made))))
        return made[-1]

    yield make
    for cohort in made:
        for desk in cohort.desks:
            desk.close()


def test_sites_give_the_bits_of_a_table(desks: Any) -> None:
    table = subjects()
    model = FederatedCoxRegression(baseline=False).fit(table, f"{FORMULA} + cluster(subject)", groups="hospital")
    known, plain = (model.table(errors=kind).covariance for kind in ("robust", "model"))
    there = FederatedCoxRegression(baseline=False).fit(desks(table), f"{FORMULA} + cluster(subject)")
    np.testing.assert_array_equal(there.table(errors="robust").covariance, known)
    by_rows = FederatedCoxRegression(baseline=False).fit(table, FORMULA, groups="hospital")
    np.testing.assert_array_equal(by_rows.table().covariance, plain)  # no cluster enters these
    assert np.abs(by_rows.table(errors="robust").covariance / known - 1).max() > 1e-3


def test_few_clusters_are_not_told(desks: Any) -> None:
    """With and without one pair of rows that belong together, errors would differ by a product of these two."""
    table = subjects()
    table["pair"] = np.arange(len(table))
    table.loc[table.index[1], "pair"] = 0
    with pytest.raises(RefusalError, match="clusters only if 3 of them have several rows"):
        FederatedCoxRegression(baseline=False).fit(desks(table), f"{FORMULA} + cluster(pair)")
    table["patient_id"] = table["subject"]  # a name that sites do not allow
    with pytest.raises(ArgumentError, match="does not allow the column 'patient_id'"):
        FederatedCoxRegression(baseline=False).fit(desks(table), f"{FORMULA} + cluster(patient_id)")


def test_parts_keep_clusters_and_wrong_ones_are_refused() -> None:
    table = subjects()
    X, y = table[["age", "treated"]].to_numpy(float), table[["start", "stop", "status"]].to_numpy(float)
    losses = Cox(X, y[:, 1], y[:, 2], table["hospital"], entry=y[:, 0], clusters=table["subject"])
    x, last = np.array([0.01, -0.2]), losses.n_clients - 1
    whole = losses.sums_at(x, np.array([last]), robust=True)
    part = losses.part(np.array([last])).sums_at(x, np.array([0]), robust=True)
    assert whole is not None
    assert part is not None
    np.testing.assert_array_equal(part.meat, whole.meat)
    own = (table["hospital"] == np.unique(table["hospital"])[last]).to_numpy()
    scores = pd.DataFrame(losses.scores(x, last)).groupby(table["subject"].to_numpy()[own]).sum().to_numpy()
    np.testing.assert_allclose(whole.meat[0], (scores.T @ scores)[np.tril_indices(2)], rtol=1e-10)
    with pytest.raises(ArgumentError, match="clusters must have one label"):
        Cox(X, y[:, 1], y[:, 2], clusters=[1, 2])
    for wrong in ("cluster(subject, age)", "cluster(age + 1)", "cluster(subject) + cluster(age)"):
        with pytest.raises(ArgumentError, match="cluster"):
            FederatedCoxRegression().fit(table, f"{FORMULA} + {wrong}", groups="hospital")
    with pytest.raises(ArgumentError, match="clusters must be None with a formula"):
        FederatedCoxRegression().fit(table, FORMULA, groups="hospital", clusters=table["subject"])
    with pytest.raises(ArgumentError, match="for FederatedCoxRegression"):
        fpdfp.survival_curves(table, "Surv(stop, status) ~ treated + cluster(subject)", groups="hospital")
