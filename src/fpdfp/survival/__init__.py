"""Times of events: who is at risk when, survival curves, tests and measures, as sums over sites."""

from fpdfp.survival.baseline import Baseline
from fpdfp.survival.concordance import Concordance
from fpdfp.survival.counts import RiskCounts
from fpdfp.survival.curves import SurvivalCurve, kaplan_meier
from fpdfp.survival.log_rank import LogRank, LogRankTest, log_rank
from fpdfp.survival.periods import PersonPeriods, split_periods
from fpdfp.survival.response import Times

__all__ = [
    "Baseline",
    "Concordance",
    "LogRank",
    "LogRankTest",
    "PersonPeriods",
    "RiskCounts",
    "SurvivalCurve",
    "Times",
    "kaplan_meier",
    "log_rank",
    "split_periods",
]
