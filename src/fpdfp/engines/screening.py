"""Screening: features that are zero in every solution are left out, and a run goes on with those that are left.

There are two rules, whose proofs are in ``docs/theory.md``: one from bounds of the slopes of the losses, before
the first round, and one from a duality gap between rounds ("gap safe"). Either asks the clients once for a number for
each feature. When at most a third of the features is left, clients are told which, and the run begins anew with the
smaller problem: its solutions are those of the whole one, and so are its certificates.
"""

from __future__ import annotations

import json
import logging
import math
from typing import Any

import numpy as np

from fpdfp._array import to_host
from fpdfp._typing import Array
from fpdfp.engines.features import Left
from fpdfp.engines.options import RunOptions
from fpdfp.engines.prepare import AskedClients, choose
from fpdfp.engines.run import Run
from fpdfp.engines.traffic import Meter, Traffic
from fpdfp.errors import AbsentError
from fpdfp.methods.base import Method
from fpdfp.penalties.l1 import L1
from fpdfp.precondition.exchange import FeatureBounds
from fpdfp.problem import Problem

log = logging.getLogger("fpdfp.engines")
#: Problems with fewer features are not screened.
LEAST = 1000
#: Nor are runs in which clients take part so rarely that what all of them send once would be most of it.
RARE = 100
#: A run begins anew where at most this part of the features is left; clients are asked where the server expects less.
WORTH, EXPECTED = 1 / 3, 1 / 4
#: The gap is about this part of what the server expects from a noisy gradient, where clients certify it and elsewhere.
CERTIFIED, OTHERWISE = 0.5, 0.3
#: After a look that was in vain, the next one is after so many times the rounds, if half as many features are expected.
PATIENCE = 1.5
#: What rounding may do to a bound.
MARGIN = 1.0 + 1e-6


def applies(problem: Problem, method: Method | None, options: RunOptions, least: int = LEAST) -> bool:
    """Whether a run is screened: an automatic one to a tolerance, with an l1 norm of many features."""
    if method is not None or options.tol is None or problem.n_clients > RARE * (options.clients_per_round or np.inf):
        return False
    known = problem.losses.can_restrict and problem.losses.shape[-1] >= least
    return known and isinstance(problem.penalty, L1) and problem.linop.is_identity


def remain_by_slopes(weight: Any, slopes: Array) -> Array:
    """Return which entries may be non-zero: those whose loss may have a slope of the weight of the penalty."""
    return ~np.asarray(MARGIN * slopes < weight)


def remain_by_gap(weight: Any, v: Array, gap: float, curvatures: Array) -> Array:
    """Return which entries may be non-zero, given a dual point and its gap: those with |v_j| + √(2 H_jj G) ≥ w_j."""
    # Infinite curvatures give no number where the gap is 0, and then nothing is said.
    with np.errstate(invalid="ignore"):
        return ~np.asarray(MARGIN * (np.abs(v) + np.sqrt(2.0 * curvatures * gap)) < weight)


def restrict(problem: Problem, remain: Array, sizes: Array, since: int) -> Left | None:
    """Return the features of which an entry remains, if they are few enough; the largest one where none does."""
    shape = problem.model.shape
    features = np.flatnonzero(np.broadcast_to(remain, shape).reshape(-1, shape[-1]).any(axis=0))
    if len(features) > WORTH * shape[-1]:
        return None
    return Left(features if len(features) else np.array([np.argmax(sizes)]), shape, since)


def count_told(meter: Meter, left: Left) -> None:
    """Count that the server tells every client which features are left."""
    meter.count("preconditioner", 0, meter.n_clients * left.mask.bits)


def screen_start(problem: Problem, method: Method | None, options: RunOptions) -> tuple[Left | None, Traffic]:
    """Return the features that are left before the first round, None for all, and what was sent for it."""
    meter = Meter(problem.losses)
    if not (applies(problem, method, options) and problem.losses.slope_bounds(np.arange(0)) is not None):
        return None, meter.traffic
    clients = AskedClients(problem, choose(problem, method, options), options)
    sums, count = clients.add_up(FeatureBounds("slopes"))
    slopes = sums[0] / count
    left = restrict(problem, remain_by_slopes(_weight(problem), slopes), slopes, 0)
    if left is not None:
        meter.count_facts(problem.losses, problem.model)  # those of the smaller problem come on top
        count_told(meter, left)
    meter.count("preconditioner", clients.bits, 0)
    return left, meter.traffic


class Screening:
    """Looks from time to time whether a gap leaves few features.

    The server predicts what is left from what it knows, and only asks the clients for a gap where that is little.

    Parameters
    ----------
    run
        The run, to which screening applies.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        clients = AskedClients(run.problem, run.prepared.choices, run.options)
        sums, count = clients.add_up(FeatureBounds("curvatures"))
        self.curvatures: Array = sums[0] / count
        self.share = CERTIFIED if run.problem.losses.least_convexity > 0 else OTHERWISE
        if run.is_fresh:
            run.meter.count("preconditioner", clients.bits, 0)
        n_features = run.problem.model.shape[-1]
        #: The round of the next look, and the most features that are to be expected then.
        schedule: list[Any] = json.loads(run.screening) if run.screening else [1, EXPECTED * n_features]
        self.next_round, self.most = schedule

    def look(self, found: tuple[Array, float, int] | None) -> Left | None:
        """Return the features that are left if they are few.

        ``found`` is a dual point with its gap and round, for which clients have been asked already.
        """
        run = self.run
        if found is None or found[2] != run.round:
            if run.round < self.next_round or not self._is_promising():
                return None
            try:
                with run.evaluating(last=True):
                    found = self._ask()
            except AbsentError as error:
                log.warning("round %d is not screened: %s", run.round, error)
        if found is None:
            return None
        left = restrict(run.problem, self._remain(*found[:2]), self.curvatures, run.round)
        if left is not None:
            count_told(run.meter, left)
        return left

    def _is_promising(self) -> bool:
        """Whether few features are expected to be left; the next look is then when there are fewer yet."""
        run = self.run
        remain = self._remain(run.dual_point, self.share * run.outlook())
        expected = int(remain.reshape(-1, remain.shape[-1]).any(axis=0).sum())
        if expected > self.most:
            return False
        self.next_round, self.most = math.ceil(PATIENCE * run.round), expected / 2
        run.screening = json.dumps([self.next_round, self.most])
        return True

    def _remain(self, v: Array, gap: float) -> Array:
        return remain_by_gap(_weight(self.run.problem), to_host(v), gap, self.curvatures)

    def _ask(self) -> tuple[Array, float, int] | None:
        """Return a dual point, its gap and the round, None where there is no bound."""
        run = self.run
        certified = run.certify(slack=run.outlook())
        if certified is not None:
            return run.dual_point, certified.gap, run.round
        certificate = run.problem.certificate(run.x, run.v, thorough=False)
        return None if certificate.gap is None else (certificate.v, certificate.gap, run.round)


def _weight(problem: Problem) -> Any:
    assert isinstance(problem.penalty, L1)
    return problem.penalty.weight
