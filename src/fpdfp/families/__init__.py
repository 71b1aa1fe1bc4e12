"""Distributions of outcomes and their links; :func:`make` returns one by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fpdfp import _checks
from fpdfp._kernels.jit import forget_stale_code
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.families.base import Family
from fpdfp.families.binomial import Binomial, QuasiBinomial
from fpdfp.families.continuous import Gamma, Gaussian, InverseGaussian, Quantile, Tweedie
from fpdfp.families.counts import NegativeBinomial, Poisson, QuasiPoisson

__all__ = [
    "Binomial", "Family", "Gamma", "Gaussian", "InverseGaussian", "NegativeBinomial", "Poisson", "Quantile",
    "QuasiBinomial", "QuasiPoisson", "Tweedie", "make",
]  # fmt: skip

forget_stale_code(Path(__file__).parent)

FAMILIES = (
    Gaussian, Binomial, Poisson, Gamma, InverseGaussian, NegativeBinomial, Tweedie, Quantile, QuasiPoisson,
    QuasiBinomial,
)  # fmt: skip
NAMED: dict[str, type[Family]] = {kind.name: kind for kind in FAMILIES}


def make(family: Any, link: str | None = None, **parameters: float) -> Family:
    """Return a family: by its name, with a link (None for the usual one) and parameters, or as it is given.

    >>> make("poisson")
    Poisson(link='log')
    >>> make("tweedie", power=1.2)
    Tweedie(link='log', power=1.2)
    """
    if isinstance(family, Family):
        if link not in (None, family.link) or parameters:
            raise ArgumentError("link", f"must be None where family is a Family, which has its own, got {link!r}")
        return family
    if not isinstance(family, str):
        raise ArgumentTypeError("family", f"must be a name or a Family, got {_checks.kind(family)}")
    kind = NAMED[_checks.choice("family", family, tuple(NAMED))]
    strange = [name for name in parameters if name not in kind.parameter_names]
    if strange:
        wanted = ", ".join(kind.parameter_names) or "none"
        raise ArgumentError(strange[0], f"is not a parameter of the family {kind.name}, whose parameters are: {wanted}")
    return kind("" if link is None else _checks.choice("link", link, kind.links), **parameters)
