"""The choice of the method where none is given: one function for ``solve``, estimators, selection and federations.

With d coefficients, N clients of which n take part in a round, and k = log10(1/tol) digits, what is sent is

    ShiftedPDFP        few bits for each number, in the rounds and with the moments that
                       :mod:`fpdfp.precondition.cost` predicts
    Newton steps       about 6 d(d + 1) + 16 d bits from all clients in each of 4 + log2(k) exchanges; where f is
                       quadratic, one model and looks of 16 d bits up and down (:mod:`fpdfp.engines.finish`)
    ProximalNewton     d(d + 3)/2 numbers of 64 bits from all clients in each of as many exchanges

``solve`` begins with Newton steps where they are predicted to cost less than ShiftedPDFP, in the sense of ``prefer``.
An estimator takes the first or the last method, whichever is predicted to take less time. The prediction is for a
typical network unless ``prefer`` is one, or ``"time"`` for the network of a federation as it was measured. So a fit on
one machine takes the same steps as one across sites. The choice does not depend on ``tol``: a looser one ends the same
run earlier.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fpdfp._typing import Shape
from fpdfp.compress import QSGD, Compressor
from fpdfp.errors import ArgumentError
from fpdfp.methods.base import Method
from fpdfp.methods.proximal_newton import ProximalNewton
from fpdfp.methods.shifted import ShiftedPDFP
from fpdfp.methods.stateless import StatelessPDFP
from fpdfp.precondition import cost
from fpdfp.precondition.cost import TYPICAL, Network, Prefer
from fpdfp.precondition.quantized import FEW
from fpdfp.rng import Draws

if TYPE_CHECKING:
    from fpdfp.engines.prepare import RunOptions
    from fpdfp.losses.base import Losses
    from fpdfp.problem import Problem

#: What a run is for. ``"solve"``: the method with the lowest price. ``"fit"``: the one that takes the least time on a
#: network. ``"exact"``: Newton's method where Hessians can be sent, since standard errors are those of the exact
#: estimate.
Purpose = Literal["solve", "fit", "exact"]
#: The most coefficients for which clients send Hessians: with 1,000 a message has 4 MB.
MOST_COEFFICIENTS = 1000
#: The most clients that send Hessians in every round where another method would do.
MOST_CLIENTS = 50
#: A network on which only exchanges count.
EXCHANGES = Network(latency=1.0, up=1e18, down=1e18)
#: Exchanges of Newton's method before it converges quadratically, with the last: 3 to 8 on the sets of
#: ``benchmarks.default`` and of the ablation to 1e-3, and one more to 1e-6.
FAR = 4.0
#: Exchanges of Newton's method where f is quadratic.
STEPS = 2.0
#: A short message is mostly header and norm, so that finer levels cost little.
SHORT = 64
#: The levels of automatic quantizers: up, up for short messages, and down.
LEVELS, LEVELS_OF_SHORT, LEVELS_DOWN = 5, 11, 31


#: The methods for smooth losses. The steps of "NewtonSteps" are as in :mod:`fpdfp.engines.finish`, before any round.
AUTOMATIC: dict[str, Method] = {
    "ShiftedPDFP": ShiftedPDFP(preconditioner="auto"),
    "NewtonSteps": ShiftedPDFP(),
    "Diagonal": ShiftedPDFP(preconditioner="diagonal"),
    "ProximalNewton": ProximalNewton(),
}


def choose_method(
    problem: Problem, options: RunOptions, purpose: Purpose = "solve", *, name: str | None = None
) -> Method:
    """Return the method of a run for which none is given; ``name`` continues an earlier choice."""
    losses = problem.losses
    if not losses.smooth:
        return _choose_newton(problem, options)
    if options.stateless:
        return StatelessPDFP(preconditioner="auto")
    return AUTOMATIC[name if name in AUTOMATIC else _choose_name(problem, options, purpose)]


def name_method(method: Method) -> str:
    """Return the name by which an automatic method is chosen again, when its run is resumed."""
    return next((name for name, one in AUTOMATIC.items() if one == method), type(method).__name__)


def _choose_name(problem: Problem, options: RunOptions, purpose: Purpose) -> str:
    """Return the name of the method for smooth losses whose clients remember something."""
    # Without a tolerance nothing ends the expensive rounds of Newton's method.
    if not _can_send_hessians(problem.losses) or (purpose == "solve" and not _is_plain(problem, options)):
        return "ShiftedPDFP"
    if purpose == "exact":
        return "ProximalNewton"
    prices = predict_prices(problem, options, purpose)
    return min(prices, key=prices.__getitem__)


def predict_prices(problem: Problem, options: RunOptions, purpose: Purpose) -> dict[str, float]:
    """Return what each method that fits is predicted to cost, from sizes alone."""
    losses, network = problem.losses, name_network(options.prefer, getattr(problem.losses, "engine", None))
    if purpose == "fit" and not isinstance(network, Network):
        network = EXCHANGES if network == "rounds" else TYPICAL
    count, d = problem.n_clients, math.prod(losses.shape)
    n = max(1, int((options.clients_per_round or count) * (1.0 - options.drop_out)))
    up, down = (typical_bits(one, losses.shape) for one in choose_quantizers(problem, options))
    rows = float(losses.sizes.sum()) / count
    given = cost.Circumstances(count, n, rows, n * up, min(64.0 * n * d, count * down), options.aim, network)
    steps, look = FAR + math.log2(given.digits), cost.of_look(given, d)
    first = cost.of_moments(given, losses.shape[-1], *cost.choose(given, losses.shape[-1])).plus(look)
    prices = {"ShiftedPDFP": given.score(first)}
    if purpose == "fit" and suits_newton(d, count, options):
        vectors, triangles = 64.0 * count * d, count * d * (d + 1) / 2
        steps = STEPS if losses.form == "quadratic" else steps
        exact = given._replace(round_up=vectors + 64.0 * triangles, round_down=vectors)
        prices["ProximalNewton"] = given.score(exact.price(steps).plus(look))
    if purpose == "solve" and problem.can_expect and losses.can_restrict:
        quadratic = losses.form == "quadratic"
        newton = (
            cost.of_quadratic(given, d, cost.choose_bits(given, d)) if quadratic else cost.of_steps(given, d, steps)
        )
        prices["NewtonSteps"] = given.score(newton)
    return prices


def choose_quantizers(problem: Problem, options: RunOptions) -> tuple[Compressor, Compressor]:
    """Return the quantizers of automatic messages, up and down."""
    levels = LEVELS_OF_SHORT if problem.linop.size_in <= SHORT else LEVELS
    # Without memory, rounding adds to a noise that does not vanish.
    return QSGD(LEVELS_DOWN if options.stateless else levels, norm="max"), QSGD(LEVELS_DOWN, norm="max")


def typical_bits(compressor: Compressor, shape: Shape, dtype: Any = np.float64) -> float:
    """Return the bits of a message of normal numbers."""
    sample = np.random.default_rng(0).standard_normal((1, *shape)).astype(dtype)
    return float(compressor.compress(sample, Draws(0, 0, np.zeros(1, dtype=np.int64)), 0).bits[0])


def _can_send_hessians(losses: Losses) -> bool:
    """Whether clients know their Hessians, and these are small enough to be sent."""
    small = len(losses.shape) == 1 and losses.shape[0] <= MOST_COEFFICIENTS
    return small and losses.xp is np and losses.hessians(np.zeros(losses.shape), np.arange(0)) is not None


def _is_plain(problem: Problem, options: RunOptions) -> bool:
    """Whether this is a run to a tolerance in double precision with a finite penalty, and prices can be predicted.

    With more features clients send parts of their second moments, and sizes do not predict what these are worth.
    """
    few = problem.losses.shape[-1] <= (FEW if options.prefer == "balanced" else MOST_COEFFICIENTS)
    return few and options.tol is not None and problem.model.dtype == np.float64 and problem.penalty.finite


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
    everyone = options.clients_per_round in (None, clients) and options.drop_out == 0.0
    return is_automatic(options) and everyone and coefficients <= MOST_COEFFICIENTS and clients <= MOST_CLIENTS


def is_automatic(options: RunOptions) -> bool:
    """Whether messages and participation are left to the choice."""
    given = (options.compressor, options.downlink, options.sampling)
    return options.prefer != "bits" and given == ("auto", "auto", "uniform")


def name_network(prefer: Prefer, engine: Any) -> Prefer:
    """Return what is to be saved, with a network in place of ``"time"``: the engine's, or a typical one."""
    if prefer != "time":
        return prefer
    return (None if engine is None else engine.network) or TYPICAL
