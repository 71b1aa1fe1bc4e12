"""The choice of the method of a fit, for ``solve``, estimators, selection and federations alike.

With d columns and k = log10(1/tol) digits, a site sends

    Newton's method    d(d + 3)/2 numbers of 64 bits in each of 4 + log2(k) exchanges
    the default        few bits in each of 1 + k^1.4 exchanges (:mod:`fpdfp.precondition.cost`), and moments of about
                       4 bits once

The network is the same for all fits unless ``prefer`` is a network, or ``"time"``: then it is the network of the
federation, as measured. So by default a fit on one machine takes the same steps as a fit across sites.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from fpdfp.methods.base import Method
from fpdfp.methods.proximal_newton import ProximalNewton
from fpdfp.methods.shifted import ShiftedPDFP
from fpdfp.methods.stateless import StatelessPDFP
from fpdfp.precondition.cost import TYPICAL, Network, Prefer

#: The most coefficients for which Hessians are formed unasked: a site then sends 4 MB in an exchange.
MOST_COLUMNS = 1000
#: The most sites that send Hessians unasked, except where no other method is as exact.
MOST_SITES = 50
#: Exchanges of Newton's method before it converges quadratically, with the last.
FAR = 4.0
#: A network on which only exchanges count.
EXCHANGES = Network(latency=1.0, up=1e18, down=1e18)


Newton = Literal["never", "faster", "exact", "always"]


@dataclasses.dataclass(frozen=True)
class Fit:
    """A fit, described as far as the choice of its method needs it.

    Attributes
    ----------
    columns, sites
        The number of coefficients, and of clients.
    newton
        Where Newton's method is to be taken: ``"never"``; where it is predicted to be ``"faster"``; for the
        ``"exact"`` maximum of a likelihood, wherever it is affordable; or ``"always"``, for losses that other methods
        cannot minimise or not exactly enough. In any case only up to ``MOST_COLUMNS`` columns.
    tol
        The relative gap to reach, None for 1e-6.
    prefer
        What is to be saved: as for :func:`fpdfp.solve`, with a network in place of ``"time"``.
    all_clients
        Whether all clients participate in all rounds.
    """

    columns: int
    sites: int
    newton: Newton
    tol: float | None = None
    prefer: Prefer = "balanced"
    all_clients: bool = True


def choose_method(fit: Fit) -> Method | None:
    """Return Newton's method where a fit is to be made with it, else None for the default of ``solve``."""
    if fit.newton == "never" or fit.columns > MOST_COLUMNS:
        return None
    if fit.newton != "always" and not (fit.all_clients and fit.sites <= MOST_SITES):
        return None
    return ProximalNewton() if fit.newton != "faster" or _is_faster(fit) else None


def default_method(*, stateless: bool) -> Method:
    """Return what ``solve`` runs where neither a method nor Newton's is wanted."""
    return StatelessPDFP(preconditioner="auto") if stateless else ShiftedPDFP(preconditioner="auto")


def _is_faster(fit: Fit) -> bool:
    """Whether Newton's method is predicted to take less time than the default."""
    if fit.prefer == "bits":
        return False
    network = fit.prefer if isinstance(fit.prefer, Network) else EXCHANGES if fit.prefer == "rounds" else TYPICAL
    digits = max(1.0, -math.log10(1e-6 if fit.tol is None else min(fit.tol, 0.1)))
    return _seconds_of_newton(fit.columns, digits, network) < _seconds_of_default(fit.columns, digits, network)


def _seconds_of_newton(columns: int, digits: float, network: Network) -> float:
    """Predict the time of Newton's method."""
    exchanges = FAR + math.log2(digits)
    numbers = columns * (columns + 3) / 2
    return network.seconds(64.0 * exchanges * numbers, 64.0 * exchanges * columns, exchanges)


def _seconds_of_default(columns: int, digits: float, network: Network) -> float:
    """Predict the time of the default method."""
    exchanges = 1.0 + math.pow(digits, 1.4)
    once = 4.0 * columns * (columns + 1) / 2
    return network.seconds(once + 8.0 * exchanges * columns, once + 8.0 * exchanges * columns, exchanges)
