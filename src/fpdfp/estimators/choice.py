"""Which method a formula is fitted with: the one that is predicted to take less time on a network between sites.

With d columns and k = log10(1/tol) digits, a site sends

    Newton's method    d(d + 3)/2 numbers of 64 bits in each of 4 + log2(k) exchanges
    the default        few bits in each of 1 + k^1.4 exchanges (:mod:`fpdfp.precondition.cost`), and moments of about
                       4 bits once

The network is the same for all fits unless ``prefer`` is one, or ``"time"`` for that of a federation as it was
measured. So by default a fit on one machine takes the same steps as one across sites.
"""

from __future__ import annotations

import math

from fpdfp.methods import ProximalNewton
from fpdfp.methods.base import Method
from fpdfp.precondition.cost import TYPICAL, Network, Prefer

#: Exchanges of Newton's method before it converges quadratically, with the last.
FAR = 4.0
#: The most columns for which Hessians are formed, and the most sites that send them.
MOST_COLUMNS, MOST_SITES = 500, 50
#: A network on which only exchanges count.
EXCHANGES = Network(latency=1.0, up=1e18, down=1e18)


def seconds_of_newton(columns: int, digits: float, network: Network) -> float:
    """Predict the time of Newton's method."""
    exchanges = FAR + math.log2(digits)
    numbers = columns * (columns + 3) / 2
    return network.seconds(64.0 * exchanges * numbers, 64.0 * exchanges * columns, exchanges)


def seconds_of_default(columns: int, digits: float, network: Network) -> float:
    """Predict the time of the default method."""
    exchanges = 1.0 + math.pow(digits, 1.4)
    once = 4.0 * columns * (columns + 1) / 2
    return network.seconds(once + 8.0 * exchanges * columns, once + 8.0 * exchanges * columns, exchanges)


def choose_method(
    columns: int, sites: int, tol: float | None, prefer: Prefer, *, has_hessians: bool, everyone: bool
) -> Method | None:
    """Return Newton's method where it is predicted to take less time, else None for the default of ``solve``.

    ``prefer`` is ``"bits"`` for the default in any case, ``"rounds"`` for the fewest exchanges, or a network.
    """
    if prefer == "bits" or not has_hessians or not everyone or columns > MOST_COLUMNS or sites > MOST_SITES:
        return None
    network = prefer if isinstance(prefer, Network) else EXCHANGES if prefer == "rounds" else TYPICAL
    digits = max(1.0, -math.log10(1e-6 if tol is None else min(tol, 0.1)))
    newton, default = (predict(columns, digits, network) for predict in (seconds_of_newton, seconds_of_default))
    return ProximalNewton() if newton < default else None
