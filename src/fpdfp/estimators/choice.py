"""Which method a formula is fitted with: the one that is predicted to take less time on a network between sites.

A round takes an exchange, and the time to send its bits. With d columns, N sites and k = log10(1/tol) digits,

    Newton's method    2 + log2(k) + 4 rounds of d(d + 3)/2 numbers of 64 bits from each site, and what is sent once
    the default        k^1.4 rounds of few bits (:mod:`fpdfp.precondition.cost`), and moments of about 4 bits once

The network is the same for all fits unless it is given, so that a fit on one machine takes the same steps as one across
sites.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from fpdfp.methods import NewtonPDFP
from fpdfp.methods.base import Method

#: Rounds of Newton's method before it converges quadratically.
FAR = 4.0
#: The most columns for which Hessians are formed.
MOST = 500


class Network(NamedTuple):
    """Seconds of an exchange, and the bits a second that the server receives; by default two sites of one country."""

    latency: float = 0.05
    bandwidth: float = 20e6


def seconds_of_newton(columns: int, sites: int, digits: float, network: Network) -> float:
    """Predict the time of Newton's method."""
    rounds = 2.0 + FAR + math.log2(max(digits, 1.0))
    numbers = columns * (columns + 3) / 2
    return rounds * (network.latency + 64.0 * numbers * sites / network.bandwidth)


def seconds_of_default(columns: int, sites: int, digits: float, network: Network) -> float:
    """Predict the time of the default method."""
    rounds = 1.0 + math.pow(max(digits, 1.0), 1.4)
    once = 4.0 * sites * columns * (columns + 1) / 2
    return rounds * (network.latency + 8.0 * columns * sites / network.bandwidth) + once / network.bandwidth


def choose_method(
    columns: int, sites: int, tol: float | None, prefer: Any, *, has_hessians: bool, everyone: bool
) -> Method | None:
    """Return Newton's method where it is predicted to take less time, else None for the default of ``solve``.

    ``prefer`` is ``"bits"`` for the default in any case, ``"rounds"`` for the fewest exchanges, or anything with a
    ``latency`` and a ``bandwidth`` that were measured.
    """
    if prefer == "bits" or not has_hessians or not everyone or columns > MOST:
        return None
    network = Network()
    if hasattr(prefer, "latency") and hasattr(prefer, "bandwidth"):
        network = Network(float(prefer.latency), float(prefer.bandwidth))
    if prefer == "rounds":
        network = Network(1.0, math.inf)
    digits = -math.log10(1e-6 if tol is None else min(tol, 0.1))
    newton, default = (predict(columns, sites, digits, network) for predict in (seconds_of_newton, seconds_of_default))
    return NewtonPDFP() if newton < default else None
