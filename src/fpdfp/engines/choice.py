"""Which method runs when none is given: one function for ``solve``, estimators, selection and federations.

With d coefficients and k = log10(1/tol) digits, a client sends

    Newton's method    d(d + 3)/2 numbers of 64 bits in each of 4 + log2(k) exchanges
    ShiftedPDFP        few bits in each of 1 + k^1.4 exchanges (:mod:`fpdfp.precondition.cost`), and moments of about
                       4 bits once

An estimator takes the one that is predicted to take less time. The network is the same for all fits unless ``prefer``
is one, or ``"time"`` for that of a federation as it was measured. So a fit on one machine takes the same steps as one
across sites.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fpdfp.errors import ArgumentError
from fpdfp.methods.base import Method
from fpdfp.methods.proximal_newton import ProximalNewton
from fpdfp.methods.shifted import ShiftedPDFP
from fpdfp.methods.stateless import StatelessPDFP
from fpdfp.precondition.cost import TYPICAL, Network, Prefer

if TYPE_CHECKING:
    from fpdfp.engines.options import RunOptions
    from fpdfp.losses.base import Losses
    from fpdfp.problem import Problem

#: What a run is for. ``"solve"``: the method with the fewest bits. ``"fit"``: the method that takes less time on a
#: network. ``"exact"``: Newton's method where Hessians can be sent, since standard errors are those of the exact
#: estimate.
Purpose = Literal["solve", "fit", "exact"]
#: The most coefficients for which clients send Hessians: with 1,000 a message has 4 MB.
MOST_COEFFICIENTS = 1000
#: The most clients that send Hessians where another method would do: traffic grows with their number.
MOST_CLIENTS = 50
#: Exchanges of Newton's method before it converges quadratically, with the last.
FAR = 4.0
#: A network on which only exchanges count.
EXCHANGES = Network(latency=1.0, up=1e18, down=1e18)


def choose_method(problem: Problem, options: RunOptions, purpose: Purpose = "solve") -> Method:
    """Return the method of a run for which none is given."""
    losses = problem.losses
    if not losses.smooth:
        return _choose_newton(problem, options)
    if options.stateless:
        return StatelessPDFP(preconditioner="auto")
    if purpose == "solve" or not _can_send_hessians(losses):
        return ShiftedPDFP(preconditioner="auto")
    count, network = math.prod(losses.shape), name_network(options.prefer, getattr(losses, "engine", None))
    faster = suits_newton(count, losses.n_clients, options) and takes_less_time(count, options.aim, network)
    return ProximalNewton() if purpose == "exact" or faster else ShiftedPDFP(preconditioner="auto")


def _can_send_hessians(losses: Losses) -> bool:
    """Whether clients know their Hessians, and these are small enough to be sent."""
    small = math.prod(losses.shape) <= MOST_COEFFICIENTS
    return small and losses.hessians(np.zeros(losses.shape), np.arange(0)) is not None


def _choose_newton(problem: Problem, options: RunOptions) -> Method:
    """Return Newton's method for losses without Lipschitz constants; refuse what it cannot do."""
    losses = problem.losses
    if options.clients_per_round not in (None, losses.n_clients) or options.drop_out > 0:
        raise ArgumentError(
            "clients_per_round",
            f"must be None, and drop_out 0, where no method is given: {losses!r} has no Lipschitz continuous "
            "gradients, and Newton's method needs all clients",
        )
    if not _can_send_hessians(losses):
        raise ArgumentError(
            "losses",
            f"must have Lipschitz continuous gradients, or at most {MOST_COEFFICIENTS:,} coefficients, got {losses!r} "
            f"with {math.prod(losses.shape):,}; give method=fpdfp.ProximalNewton() to send larger Hessians",
        )
    return ProximalNewton()


def suits_newton(coefficients: int, clients: int, options: RunOptions) -> bool:
    """Whether Newton's method may run where another one would do: few Hessians, and nothing said against them."""
    automatic = isinstance(options.compressor, str) and isinstance(options.downlink, str) and options.prefer != "bits"
    everyone = options.clients_per_round in (None, clients) and options.drop_out == 0.0
    return automatic and everyone and coefficients <= MOST_COEFFICIENTS and clients <= MOST_CLIENTS


def takes_less_time(coefficients: int, accuracy: float, prefer: Prefer) -> bool:
    """Whether Newton's method is predicted to take less time than :class:`fpdfp.ShiftedPDFP`."""
    network = prefer if isinstance(prefer, Network) else EXCHANGES if prefer == "rounds" else TYPICAL
    digits = max(1.0, -math.log10(accuracy))
    exchanges, numbers = FAR + math.log2(digits), coefficients * (coefficients + 3) / 2
    newton = network.seconds(64.0 * exchanges * numbers, 64.0 * exchanges * coefficients, exchanges)
    rounds, once = 1.0 + math.pow(digits, 1.4), 4.0 * coefficients * (coefficients + 1) / 2
    sent = once + 8.0 * rounds * coefficients
    return newton < network.seconds(sent, sent, rounds)


def name_network(prefer: Prefer, engine: Any) -> Prefer:
    """Return what is to be saved, with a network in place of ``"time"``: the engine's, or a typical one."""
    if prefer != "time":
        return prefer
    return (None if engine is None else engine.network) or TYPICAL
