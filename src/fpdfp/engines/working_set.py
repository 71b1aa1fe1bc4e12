"""Few features first: a run begins with those that are likely to matter, and all others are checked in between.

The server guesses from the clients' slopes, sent in few levels, which features are not zero, and the run begins with
these alone. At moderate gaps clients send the slopes of all features at the point that was found, and the server
guesses again.

When the tolerance is reached, the problem with all features is certified. Excluded features are zero, and
add nothing to the gap if |∂f/∂x_j| ≤ w_j: then the dual point of the smaller problem, with v_j = −∂f/∂x_j for the
others, is one of the whole problem. That is seen from slopes in few levels, whose errors are known; of features that
may then be steeper, from slopes in more levels. Those that still may be are added. Where the smaller problem has no
such bound, all gradients are sent unchanged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fpdfp._array import read_only, to_host
from fpdfp._typing import Array, IntArray
from fpdfp.compress import QSGD
from fpdfp.engines.prepare import AskedClients, RunOptions, choose
from fpdfp.engines.result import FeatureSubset, find_dual
from fpdfp.engines.run import Certified, Run
from fpdfp.engines.stopping import Ending, say_gap
from fpdfp.methods.base import Method
from fpdfp.penalties.separable import L1
from fpdfp.precondition.base import Announced
from fpdfp.precondition.exchange import Slopes
from fpdfp.problem import Certificate, Problem
from fpdfp.traffic import Meter, Traffic, public_bits

#: Runs with fewer features begin with all of them.
FEWEST = 128
#: So do runs in which clients take part so rarely that what all of them send once would be most of it.
RARE = 100
#: And runs in which more than this part of the features would be chosen.
WORTH = 1 / 3
#: The most features of a guess, but twice those that are not zero: of this many all second moments are affordable.
MOST = 256
#: The relative gaps at which the server guesses again, for the first time and for the last.
FIRST, LOOSE = 1e-1, 1e-2
#: Features are added to a guess whose slopes are so large a part of their weights.
NEAR = 0.9
#: Each time that the certificate of all features is not small enough, that of the chosen ones is to be so much smaller;
#: a run whose tolerance would become less than this part continues with all of them, so that it ends.
TIGHTER, TIGHTEST = 0.5, 0.1
#: The levels of slopes that show which features are likely to matter.
LEVELS = 63
#: The levels of the point that they are sent at.
POINT_LEVELS = 1 << 14
#: The levels of slopes of features that may be steeper than their weights, as far as the first ones show.
FINE = 4095
#: What rounding of a gradient may be besides the weight of the penalty, by the bytes of a number.
ROUNDING = {4: 1e-3, 8: 1e-9}


def applies(problem: Problem, method: Method | None, options: RunOptions) -> bool:
    """Whether a run begins with few features: an automatic one to a tolerance, with an l1 norm of many features."""
    if method is not None or options.tol is None or problem.n_clients > RARE * (options.clients_per_round or np.inf):
        return False
    known = problem.losses.can_restrict and problem.losses.shape[-1] >= FEWEST
    return known and isinstance(problem.penalty, L1) and problem.linop.is_identity


def count_told(meter: Meter, features: FeatureSubset) -> None:
    """Count that the server sends every client which features are chosen."""
    meter.count("preconditioner", 0, meter.n_clients * features.mask.bits)


def choose_features(
    problem: Problem, method: Method | None, options: RunOptions, start: Array
) -> tuple[FeatureSubset | None, Traffic]:
    """Return the features that a run begins with, None for all, and what was sent for it."""
    meter = Meter(problem.losses)
    if not applies(problem, method, options):
        return None, meter.traffic
    assert options.tol is not None
    looked = Slopemeter(problem, method, options).guess(start)
    ratios = looked.ratios
    numbers = np.union1d(_steepest(ratios, min(1.0, float(ratios.max())), MOST), _support(start))
    meter.count("preconditioner", looked.up, looked.down)
    if len(numbers) > WORTH * len(ratios):
        return None, meter.traffic
    meter.count_facts(problem.losses, public_bits(problem.model))  # those of the smaller problem come on top
    first = FeatureSubset(numbers, problem.model.shape, 0, max(options.tol, FIRST))
    count_told(meter, first)
    return first, meter.traffic


def check_excluded_features(
    problem: Problem, method: Method | None, options: RunOptions, run: Run, chosen: FeatureSubset, ending: Ending
) -> Ending | FeatureSubset | None:
    """Return how a run in some features ends that has reached their tolerance, or those to continue with, None for all.

    ``problem`` has all features, and ``run`` belongs to the chosen ones.
    """
    tol = options.tol
    assert tol is not None
    # Where a Newton step has led to the tolerance, that is the point.
    step = None if ending.certificate is None else ending.certified
    own = run.x if step is None else step.x
    x = chosen.lift(own)
    support = _support(x)
    if chosen.until > tol:
        looked = Slopemeter(problem, method, options).guess(x)
        run.meter.count("preconditioner", looked.up, looked.down)
        ratios = looked.ratios
        until = tol if chosen.until <= LOOSE else max(tol, LOOSE)
        ratios[support] = np.inf
        added = _steepest(ratios, NEAR, max(MOST, 2 * len(support)))
    elif _is_simple(run.problem):
        known = None if step is None else ending.certificate
        certificate = known or run.problem.metered(run.meter).certificate(own, thorough=False)
        enough = certificate.gap is not None and certificate.gap <= tol * certificate.scale
        looked = Slopemeter(problem, method, options).bound(x, chosen.numbers)
        run.meter.count("certificate", looked.up, looked.down)
        ratios = looked.ratios
        others = np.setdiff1d(np.arange(len(ratios)), chosen.numbers)
        if enough and not (ratios[others] > 1.0).any():
            return _end(certificate._replace(v=_extend(problem, certificate.v, looked.slopes, chosen)), x, tol)
        # Few, so that the run continues in coordinates that are as good.
        until = chosen.until if enough else TIGHTER * chosen.until
        added = np.union1d(chosen.numbers, others[ratios[others] > 1.0])
    else:
        whole = problem.metered(run.meter)
        certificate = whole.certificate(x, find_dual(whole, x), thorough=False)
        if certificate.gap is not None and certificate.gap <= tol * certificate.scale:
            return _end(certificate, x, tol)
        ratios, until = measure(problem, whole.gradient(x)), TIGHTER * chosen.until
        added = np.union1d(chosen.numbers, np.flatnonzero(ratios >= NEAR))
    # Where x is zero and no slope is near its weight, one feature is left all the same.
    numbers = np.union1d(support, added) if len(support) or len(added) else np.array([np.argmax(ratios)])
    if len(numbers) > WORTH * len(ratios) or until < TIGHTEST * tol:
        return None
    following = FeatureSubset(numbers, chosen.shape, run.round, until)
    count_told(run.meter, following)
    return following


def _is_simple(problem: Problem) -> bool:
    """Whether bounds of a problem rest on its gradient alone: it has dual points, and nothing is without a penalty."""
    assert isinstance(problem.penalty, L1)
    return problem.losses.has_duals and bool(np.all(np.asarray(problem.penalty.weight) > 0))


def _end(certificate: Certificate, x: Array, tol: float) -> Ending:
    """Return how a run ends whose certificate is good enough."""
    gap, scale = certificate.gap, certificate.scale
    assert gap is not None
    return Ending("converged", say_gap(gap / scale, tol), Certified(gap, certificate.objective, scale, x), certificate)


def _extend(problem: Problem, v: Array, slopes: Array, chosen: FeatureSubset) -> Array:
    """Return a dual point of some features with what is known of the others, within their weights."""
    assert isinstance(problem.penalty, L1)
    xp, weight = problem.model.xp, problem.penalty.weight
    whole: Array = xp.clip(xp.asarray(-slopes, dtype=v.dtype), -weight, weight)
    whole[..., chosen.numbers] = v
    return whole


def _steepest(ratios: Array, least: float, most: int) -> IntArray:
    """Return the features with the largest ratios, among ratios of at least ``least``."""
    order = np.argsort(-ratios, kind="stable")[:most]
    found: IntArray = order[ratios[order] >= least]
    return found


def _support(x: Array) -> IntArray:
    """Return the features that are not zero."""
    return np.flatnonzero(to_host(x).reshape(-1, x.shape[-1]).any(axis=0))


class Looked(NamedTuple):
    """Bounds of the slopes of all features.

    Attributes
    ----------
    slopes
        They themselves.
    ratios
        How large they are besides the weights, for each feature; at least that large where bounds are requested. A
        feature is zero in the solution where that is below 1.
    up, down
        The bits that this took.
    """

    slopes: Array
    ratios: Array
    up: int
    down: int


class Slopemeter:
    """Asks the clients of a problem with an l1 norm for their slopes."""

    def __init__(self, problem: Problem, method: Method | None, options: RunOptions) -> None:
        self.problem = problem
        self._clients = AskedClients(problem, choose(problem, method, options), options)
        self._down = 0

    def guess(self, x: Array) -> Looked:
        """Return slopes that are about right, at about x."""
        point = to_host(x).astype(np.float32)
        told = Announced.rounded(QSGD(POINT_LEVELS, block=None, norm="max"), point) if point.any() else None
        slopes, _ = self._ask(Slopes(told, LEVELS))
        return self._tell(slopes, measure(self.problem, slopes))

    def bound(self, x: Array, known: Array) -> Looked:
        """Return bounds of the slopes at x: of features that are not known, fine ones where coarse ones exceed 1."""
        told = Announced.plain(to_host(x))
        slopes, error = self._ask(Slopes(told, LEVELS))
        slack = ROUNDING[np.dtype(self.problem.model.dtype).itemsize]
        ratios = measure(self.problem, np.abs(slopes) + error) + slack
        doubtful = np.setdiff1d(np.flatnonzero(ratios > 1.0), known)
        if len(doubtful):
            mask = FeatureSubset(doubtful, self.problem.model.shape).mask
            slopes[..., doubtful], error = self._ask(Slopes(told, FINE, mask))
            bounds = np.zeros_like(slopes)
            bounds[..., doubtful] = np.abs(slopes[..., doubtful]) + error
            ratios[doubtful] = measure(self.problem, bounds)[doubtful] + slack
        return self._tell(slopes, ratios)

    def _ask(self, question: Slopes) -> tuple[Array, float]:
        """Return means over clients, and their largest error."""
        sums, count, _, down = self._clients.ask(question)
        self._down += down
        return sums.slope / count, float(sums.error) / count

    def _tell(self, slopes: Array, ratios: Array) -> Looked:
        return Looked(slopes, ratios, self._clients.bits, self._down)


def measure(problem: Problem, slopes: Array) -> Array:
    """Return how large the slope of each feature is besides its weight."""
    assert isinstance(problem.penalty, L1)
    weight = np.maximum(to_host(np.asarray(problem.penalty.weight)), 1e-300)
    ratios: Array = (np.abs(to_host(slopes)) / weight).reshape(-1, problem.model.shape[-1]).max(axis=0)
    return ratios


class LiftedRun:
    """A run restricted to some features, as callbacks and metrics see it: with the problem that was given.

    x and v have all features; everything else comes from the run.
    """

    def __init__(self, run: Run, problem: Problem, features: FeatureSubset) -> None:
        self._run, self.features, self.problem = run, features, problem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    @property
    def x(self) -> Array:
        """The current x, not to be written to."""
        return read_only(self.features.lift(self._run.x))

    @property
    def v(self) -> Array | None:
        """The current dual, None where the method keeps none."""
        v = self._run.v
        return None if v is None else self.features.lift(v)
