"""Fits without a maximum are refused, by the names of the columns that separate outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.errors import RefusalError, SeparationError
from fpdfp.inference.separation import FAR, NOTHING, newton_step
from fpdfp.losses.base import InformationSums
from fpdfp.precondition.base import full
from fpdfp.problem import Problem

#: Families whose likelihood may grow for ever.
FAMILIES = ("binomial", "poisson", "negative binomial", "multinomial", "ordinal", "Cox")


def check_separation(estimator: Any, problem: Problem, x: Array, sums: InformationSums, names: list[str]) -> None:
    """Raise SeparationError if the likelihood of an unpenalised fit has no maximum; ``names`` are of the entries of x.

    It costs nothing where a further Newton step promises nothing; otherwise one exchange, which is counted.
    """
    shape, x = x.shape, x.astype(np.float64).ravel()
    weight, _, deviance, _ = sums.numbers[1:].tolist()
    hessian = full(sums.hessian)
    found = newton_step(sums.score, hessian)
    if not found.is_suspect(0.5 * deviance, weight, estimator._options().tol or 1e-8):
        # All rows are fitted, and none of them has information left: their means are at the end of the scale.
        if deviance < NOTHING * weight and np.abs(hessian).max() < NOTHING * weight:
            _refuse(names, list(range(len(names))))
        return
    try:
        far = estimator._ask_sums(problem, (x + FAR * found.step).reshape(shape), "separation", robust=False)
    except RefusalError:  # a site does not answer where all but a few rows are certain, as they are there
        _refuse(names, found.growing(x))
        return
    if found.separates(deviance, float(far.numbers[3])):
        _refuse(names, found.growing(x))


def _refuse(names: list[str], columns: list[int]) -> None:
    if columns:
        raise SeparationError(list(dict.fromkeys(names[j] for j in columns)))
