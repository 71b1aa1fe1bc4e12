"""Few features first: a run begins with those that are likely to matter, and all others are looked at in between.

The server guesses from the clients' slopes, sent in few levels, which features are not zero, and the run begins with
these alone. At moderate gaps clients send the slopes of all features at the point that was found, and the server
guesses again.

When the tolerance is reached, what is certified is the problem with all features. Those that are left out are zero, and
add nothing to the gap if |∂f/∂x_j| ≤ w_j: then the dual point of the smaller problem, with v_j = −∂f/∂x_j for the
others, is one of the whole problem. That is seen from slopes in few levels, whose errors are known; of features that
may then be steeper, from slopes in more levels. Those that still may be are added. Where the smaller problem has no
such bound, all gradients are sent as they are.
"""

from __future__ import annotations

import math

import numpy as np

from fpdfp._array import to_host
from fpdfp._typing import Array, IntArray
from fpdfp.engines.features import Left
from fpdfp.engines.options import RunOptions
from fpdfp.engines.run import Certified, Run
from fpdfp.engines.slopes import Slopemeter, measure
from fpdfp.engines.stopping import Ending, say_gap
from fpdfp.engines.traffic import Meter, Traffic
from fpdfp.methods.base import Method
from fpdfp.penalties.l1 import L1
from fpdfp.problem import Certificate, Problem

#: Runs with fewer features begin with all of them.
FEWEST = 128
#: So do runs in which clients take part so rarely that what all of them send once would be most of it.
RARE = 100
#: And runs in which more than this part of the features would be chosen.
WORTH = 1 / 3
#: The most features of a guess, but twice those that are not zero: of so many all second moments are affordable.
MOST = 256
#: The last guess may have so many times the root of the number of all features, the one before half of that: what is
#: sent once for these costs little beside another look at the slopes of all, which a guess that is too small takes.
ROOT = 5.0
#: The relative gaps at which the server guesses again, for the first time and for the last.
FIRST, LOOSE = 1e-1, 1e-2
#: Features are added whose slopes are so large a part of their weights, in a guess and beside some that are certain.
NEAR, NEARLY = 0.9, 0.95
#: Each time that the certificate of all features is not small enough, that of the chosen ones is to be so much smaller;
#: a run whose tolerance would become less than this part goes on with all of them.
TIGHTER, TIGHTEST = 0.5, 0.1


def applies(problem: Problem, method: Method | None, options: RunOptions) -> bool:
    """Whether a run begins with few features: an automatic one to a tolerance, with an l1 norm of many features."""
    if method is not None or options.tol is None or problem.n_clients > RARE * (options.clients_per_round or np.inf):
        return False
    known = problem.losses.can_restrict and problem.losses.shape[-1] >= FEWEST
    return known and isinstance(problem.penalty, L1) and problem.linop.is_identity


def count_told(meter: Meter, left: Left) -> None:
    """Count that the server tells every client which features are left."""
    meter.count("preconditioner", 0, meter.n_clients * left.mask.bits)


def begin(problem: Problem, method: Method | None, options: RunOptions, start: Array) -> tuple[Left | None, Traffic]:
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
    meter.count_facts(problem.losses, problem.model)  # those of the smaller problem come on top
    first = Left(numbers, problem.model.shape, 0, max(options.tol, FIRST))
    count_told(meter, first)
    return first, meter.traffic


def look_at_others(
    problem: Problem, method: Method | None, options: RunOptions, run: Run, ending: Ending
) -> Ending | Left:
    """Return how a run ends that has reached the tolerance of its features, or those that it goes on with."""
    left, tol = run.left, options.tol
    assert left is not None
    assert tol is not None
    # Where a Newton step has led to the tolerance, that is the point.
    step = None if ending.certificate is None else ending.certified
    own = run.x if step is None else step.x
    x = left.lift(own)
    support = _support(x)
    if left.until > tol:
        looked = Slopemeter(problem, method, options).guess(x)
        run.meter.count("preconditioner", looked.up, looked.down)
        ratios = looked.ratios
        until = tol if left.until <= LOOSE else max(tol, LOOSE)
        ratios[support] = np.inf
        most = ROOT * math.sqrt(len(ratios)) * (0.5 if until > tol else 1.0)
        added = _steepest(ratios, NEAR, max(MOST, int(most), 2 * len(support)))
    elif _is_simple(run.problem):
        certificate = run.problem.metered(run.meter).certificate(own, thorough=False)
        enough = certificate.gap is not None and certificate.gap <= tol * certificate.scale
        looked = Slopemeter(problem, method, options).bound(x, left.numbers)
        run.meter.count("certificate", looked.up, looked.down)
        ratios = looked.ratios
        others = np.setdiff1d(np.arange(len(ratios)), left.numbers)
        if enough and not (ratios[others] > 1.0).any():
            return _end(certificate._replace(v=_extend(problem, certificate.v, looked.slopes, left)), x, tol)
        # Few, so that the run goes on in coordinates that are as good; but nearly as steep ones would be next.
        until = left.until if enough else TIGHTER * left.until
        added = np.union1d(left.numbers, others[ratios[others] > NEARLY])
    else:
        whole = problem.metered(run.meter)
        certificate = whole.certificate(x, find_dual(whole, x), thorough=False)
        if certificate.gap is not None and certificate.gap <= tol * certificate.scale:
            return _end(certificate, x, tol)
        ratios, until = measure(problem, whole.gradient(x)), TIGHTER * left.until
        added = np.union1d(left.numbers, np.flatnonzero(ratios >= NEAR))
    # Where x is zero and no slope is near its weight, one feature is left all the same.
    numbers = np.union1d(support, added) if len(support) or len(added) else np.array([np.argmax(ratios)])
    if len(numbers) > WORTH * len(ratios) or until < TIGHTEST * tol:
        numbers, until = np.arange(len(ratios)), 0.0
    chosen = Left(numbers, left.shape, run.round, until)
    count_told(run.meter, chosen)
    return chosen


def _is_simple(problem: Problem) -> bool:
    """Whether bounds of a problem rest on its gradient alone: it has dual points, and nothing is without a penalty."""
    assert isinstance(problem.penalty, L1)
    return problem.losses.has_duals and bool(np.all(np.asarray(problem.penalty.weight) > 0))


def _end(certificate: Certificate, x: Array, tol: float) -> Ending:
    """Return how a run ends whose certificate is good enough."""
    gap, scale = certificate.gap, certificate.scale
    assert gap is not None
    return Ending("converged", say_gap(gap / scale, tol), Certified(gap, certificate.objective, scale, x), certificate)


def _extend(problem: Problem, v: Array, slopes: Array, left: Left) -> Array:
    """Return a dual point of some features with what is known of the others, within their weights."""
    assert isinstance(problem.penalty, L1)
    xp, weight = problem.model.xp, problem.penalty.weight
    whole: Array = xp.clip(xp.asarray(-slopes, dtype=v.dtype), -weight, weight)
    whole[..., left.numbers] = v
    return whole


def find_dual(problem: Problem, x: Array) -> Array:
    """Return the dual point nearest to −∇f(x)."""
    assert isinstance(problem.penalty, L1)
    v: Array = problem.model.xp.clip(-problem.gradient(x), -problem.penalty.weight, problem.penalty.weight)
    return v


def _steepest(ratios: Array, least: float, most: int) -> IntArray:
    """Return the features with the largest ratios, of those that have at least so much."""
    order = np.argsort(-ratios, kind="stable")[:most]
    found: IntArray = order[ratios[order] >= least]
    return found


def _support(x: Array) -> IntArray:
    """Return the features that are not zero."""
    return np.flatnonzero(to_host(x).reshape(-1, x.shape[-1]).any(axis=0))
