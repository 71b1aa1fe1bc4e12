"""Distributions of outcomes and their links, one a file; :func:`make` returns one by its name."""

from pathlib import Path

from fpdfp._kernels.jit import forget_stale_code
from fpdfp.families.base import Family
from fpdfp.families.binomial import Binomial
from fpdfp.families.gamma import Gamma
from fpdfp.families.gaussian import Gaussian
from fpdfp.families.inverse_gaussian import InverseGaussian
from fpdfp.families.named import make
from fpdfp.families.negative_binomial import NegativeBinomial
from fpdfp.families.poisson import Poisson
from fpdfp.families.quantile import Quantile
from fpdfp.families.tweedie import Tweedie

forget_stale_code(Path(__file__).parent)

__all__ = [
    "Binomial",
    "Family",
    "Gamma",
    "Gaussian",
    "InverseGaussian",
    "NegativeBinomial",
    "Poisson",
    "Quantile",
    "Tweedie",
    "make",
]
