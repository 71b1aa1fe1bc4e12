"""Cohorts: the clients of a study, who are asked questions and answer in sums."""

from typing import TYPE_CHECKING

from fpdfp._lazy import attach

if TYPE_CHECKING:
    from fpdfp.cohorts.question import Cohort
    from fpdfp.cohorts.ray import Ray

__all__ = ["Cohort", "Ray"]
__getattr__ = attach(__name__, {"question": "Cohort", "ray": "Ray"})
