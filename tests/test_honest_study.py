"""An honest study gets through with default policies, and says what it has cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.honest_study import SIZES, make_patients, study
from tests.test_cox_estimator import DeskCohort


def test_an_honest_study_in_this_process(tmp_path: Path) -> None:
    sites: Any = DeskCohort(make_patients(SIZES), tmp_path)
    for name, found in study(sites):
        print(name, type(found).__name__, [desk.budget.spent.total for desk in sites.desks])
    for desk in sites.desks:
        assert desk.budget.spent.refusals == 0
        assert desk.budget.spent.total <= 30
        desk.close()
