"""Times of events: who is at risk when, survival curves, tests and measures, as sums over sites."""

from fpdfp.survival.baseline import Baseline, SurvivalCurves
from fpdfp.survival.concordance import Concordance
from fpdfp.survival.counts import PersonPeriods, RiskCounts, RiskTotal, split_periods
from fpdfp.survival.curves import SurvivalCurve, kaplan_meier
from fpdfp.survival.log_rank import LogRank, log_rank
from fpdfp.survival.response import Times

__all__ = [
    "Baseline",
    "Concordance",
    "LogRank",
    "PersonPeriods",
    "RiskCounts",
    "RiskTotal",
    "SurvivalCurve",
    "SurvivalCurves",
    "Times",
    "kaplan_meier",
    "log_rank",
    "split_periods",
]
