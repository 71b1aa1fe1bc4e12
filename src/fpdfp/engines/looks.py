"""Looks at the gap in few bits: clients send their gradients in levels, and the bound allows for the rounding.

The server rounds x before it is sent, and what is certified is the rounded point. Entries of x and of gradients have as
many levels as the gap that is looked for needs. The bound of F(x) − F* allows for any gradient within the known error
of the sum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.cohorts.local import clients_of
from fpdfp.compress import QSGD
from fpdfp.engines.run import Run
from fpdfp.precondition.base import Announced
from fpdfp.precondition.cost import look_bits
from fpdfp.precondition.exchange import MOST_LEVELS, Slopes
from fpdfp.problem import Certificate, Seen

#: The largest relative gap that a run looks for. After a look the next one is for the next smaller power of ten: so the
#: looks of a run do not depend on its tolerance, and a looser one ends it earlier.
LOOSEST = 1e-3
#: The smallest relative gap that is looked for with rounded gradients.
SMALLEST = 1e-8


class Look(NamedTuple):
    """A look at the gap.

    Attributes
    ----------
    x
        The point as clients received it.
    slope
        The gradient of f there.
    certificate
        What it shows.
    """

    x: Array
    slope: Array
    certificate: Certificate


def count_levels(gap: float) -> int:
    """Return the levels of entries for a relative gap.

    >>> count_levels(1e-3), count_levels(1e-4)
    (32767, 327678)
    """
    return int(min(2.0 ** (look_bits(gap) - 1) - 1, MOST_LEVELS))


def look(run: Run, x: Array, v: Array | None, gap: float, *, rounded: bool = True) -> Look:
    """Ask all clients for their losses and gradients at about x, as precisely as a relative gap needs.

    Parameters
    ----------
    run, x, v
        The run, a point, and a dual point if there is one.
    gap
        The relative gap that is looked for.
    rounded
        Whether x and gradients may be rounded, where the problem has bounds with that.
    """
    problem = run.problem
    if not (rounded and problem.can_round and problem.model.xp is np):
        x = problem.model.make_feasible(x)
        certificate = problem.certificate(x, v, thorough=False, slopes_only=problem.slopes_suffice)
        return Look(x, problem.gradient(x).astype(np.float64), certificate)
    levels = count_levels(gap)
    told = announce(x, levels)
    x = np.zeros_like(x) if told is None else told.array.astype(x.dtype)
    question = Slopes(told, levels, values=True)
    sums, count, up, down = clients_of(problem).ask(question, seed=run.options.seed)
    run.meter.count("certificate", up, down)
    run.meter.tell(x)
    if not np.isfinite(sums.error):
        return look(run, x, v, gap, rounded=False)
    seen = Seen(float(sums.value) / count, sums.slope / count, float(sums.error) / count)
    certificate = problem.certificate(x, v, thorough=False, slopes_only=True, seen=seen)
    return Look(x, seen.gradient, certificate)


def announce(x: Array, levels: int) -> Announced | None:
    """Return x in a message with some levels, to the nearest of which each entry is rounded; None for zero.

    So entries that are equal stay equal.
    """
    largest = float(np.abs(x).max())
    if largest == 0.0:
        return None
    unit = float(np.nextafter(np.float32(largest), np.float32(np.inf))) / levels
    return Announced.rounded(QSGD(levels, block=None, norm="max"), unit * np.rint(x.astype(np.float64) / unit))
