"""An honest study gets through default policies, and it is known what it has cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fpdfp
from fpdfp.errors import RefusalError
from tests.honest_study import NINE, SIZES, SMALL, make_patients, study
from tests.test_cox_estimator import DeskCohort


def test_an_honest_study_of_four_hospitals(tmp_path: Path) -> None:
    sites: Any = DeskCohort(make_patients(SIZES), tmp_path)
    steps = [name for name, _ in study(sites)]
    assert len(steps) == 25
    for desk in sites.desks:
        assert desk.budget.spent.refusals == 0
        assert desk.budget.spent.total == 23
        desk.close()


def test_a_fifth_hospital_that_is_too_small_stays_out(tmp_path: Path) -> None:
    """Ten coefficients are a fifth of 50 rows, and some 49 have no missing values."""
    sites: Any = DeskCohort(make_patients(SIZES | SMALL), tmp_path)
    model = fpdfp.FederatedLogisticRegression("none")
    with pytest.raises(RefusalError, match=r"aarau refuses: .* at most 0\.2 coefficients") as error:
        model.fit(sites, f"disease ~ {NINE}")
    assert list(error.value.sites) == ["aarau"]
    model.fit(sites, f"disease ~ {NINE}", on_refusal="exclude")
    assert list(model.rows_) == sorted(SIZES)
    assert "without aarau  this site answers for at most 0.2 coefficients" in str(model.summary())
    assert model.fit(sites, "disease ~ age").excluded_ == {}
    for desk in sites.desks:
        desk.close()
