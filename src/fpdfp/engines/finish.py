"""Early end of a run with an l1 norm: a Newton step in the features that are not zero, certified where it leads.

Near the solution few features count, and clients can afford to send how their losses curve in these. The server then
minimises a quadratic model of f plus the penalty in these features, all others being zero, and requests a certificate
of the point that this leads to. That is a bound like any other, whatever the step was made of: a model that was wrong
costs a look in vain, and the run continues from where it was.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.cohorts.losses import LocalModels
from fpdfp.compress.plain import plain_bits
from fpdfp.engines.prepare import AskedClients
from fpdfp.engines.run import Run
from fpdfp.linops import Identity
from fpdfp.methods.base import Certifying
from fpdfp.penalties.separable import L1
from fpdfp.precondition import LowRank, Whitening, cost
from fpdfp.precondition.base import full
from fpdfp.quadratic.solve import minimise
from fpdfp.quadratic.statement import Quadratic

#: About the bits of a second derivative.
BITS = 12
#: What a step is taken to cost besides these: exchanges, of the model and of the certificate. The bits of the latter
#: are also sent in a run that continues, at its end.
EXCHANGES = 2
#: A run that ends with a step is to cost less than this many times one that continues.
CHEAPER = 1.0
#: The most features of a model: clients send a message of the square of that, 500,000 numbers of BITS, about 0.75 MB.
MOST = 1000
#: Without a ridge a gap is as large as what rounding leaves of the slopes, not its square: not below this tolerance.
COARSE = 1e-8
#: The least eigenvalue of a model, in coordinates with a diagonal of ones.
EPS = 1e-12
#: After a Newton step the relative gap is taken to be at most this many times the square of what the step gains. Steps
#: from farther away are in vain: runs to 1e-3 take 20 % more bits without this (docs/results/ablation.md). On the
#: problems named above a looser tolerance costs up to 2.1 times as much as a tighter one with 100, and 1.55 with 3,000.
SQUARED = 3000.0


class Finish:
    """Takes Newton steps in few features, in runs with a preconditioner from second moments.

    In others clients have not been requested anything of the kind, and are not asked now.

    Parameters
    ----------
    run
        The run.
    tol
        The relative gap that is to be reached.
    """

    def __init__(self, run: Run, tol: float) -> None:
        self.run, self.tol = run, tol
        #: What the last step gained besides the most with which it is trusted.
        self.beyond = 1.0
        problem = run.problem
        losses, penalty = problem.losses, problem.penalty
        self.weights: Array | None = None
        moments = isinstance(getattr(run.algorithm, "coordinates", None), Whitening | LowRank)
        # Where excluded features are still to be checked, a small gap is of no use.
        loose = tol > (run.options.tol or 0.0)
        known = moments and problem.model.xp is np and run.can_predict_gap and not loose
        if known and isinstance(penalty, L1) and problem.linop.is_identity:
            fine_enough = losses.least_convexity > 0 or tol >= COARSE
            if losses.can_restrict and len(losses.shape) == 1 and fine_enough:
                self.weights = np.broadcast_to(np.asarray(penalty.weight, dtype=np.float64), losses.shape)

    def features(self) -> IntArray:
        """Return the features that count: those that are not zero, and those whose slope has its weight."""
        run = self.run
        assert isinstance(run.algorithm, Certifying)
        assert self.weights is not None
        slope = run.algorithm.estimate_slope(run.state)
        return np.flatnonzero((run.x != 0) | (np.abs(slope) >= self.weights))

    def is_affordable(self) -> bool:
        """Whether a model in the features that count costs less than the rounds that are left without it."""
        if self.weights is None:
            return False
        relative = self.run.predicted_gap() / self.run.scale
        # A Newton step from a relative gap r is taken to lead to r². From farther away it would be in vain.
        if not self.tol < relative <= self.tol**0.5:
            return False
        count = len(self.features())
        return 0 < count <= MOST and self._pays(count, relative)

    def _pays(self, count: int, relative: float) -> bool:
        """Whether ending a run with a step in some features is predicted to cost less than continuing.

        ``relative`` is the gap that the server expects; what is left is predicted from the digits that the rounds so
        far have brought.
        """
        run, given = self.run, self._given
        n, single, double = run.problem.n_clients, np.dtype(np.float32), np.dtype(np.float64)
        rounds = run.round - run.first_round
        rest = rounds * math.log(relative / self.tol) / -math.log(min(relative, 0.5))
        up = BITS * count * (count + 1) // 2 + plain_bits((count,), single)
        down = 2 * plain_bits((count,), double)
        kinds = [run.traffic[kind] for kind in ("rounds", "preconditioner", "certificate")]
        so_far = cost.Price(run.round, sum(one.up for one in kinds), sum(one.down for one in kinds))
        ended = given.price(0, n * up, n * down, n, EXCHANGES)._replace(rounds=EXCHANGES)
        return given.score(so_far.plus(ended)) < CHEAPER * given.score(so_far.plus(given.price(rest)))

    @functools.cached_property
    def _given(self) -> cost.Circumstances:
        return AskedClients(self.run.problem, self.run.prepared.choices, self.run.options).describe()

    def step(self) -> Array | None:
        """Ask all clients for a model, and return the point where that is least; None if it is not to be trusted."""
        run, features = self.run, self.features()
        assert self.weights is not None
        x = run.x[features].astype(np.float64)
        question = LocalModels(features, x)
        clients = AskedClients(run.problem, run.prepared.choices, run.options)
        sums, count, *_ = clients.ask(question)
        run.meter.count("certificate", clients.bits, count * question.bits)
        slope, hessian = sums[0] / count, full(sums[1] / count)
        if not (np.diag(hessian) > 0).all():
            return None  # features of so different sizes that rounding has left nothing of some
        hessian = raise_noise(hessian)
        penalty, q = L1(self.weights[features]), Quadratic(hessian, x, slope)
        model = run.problem.model._replace(penalty=penalty, linop=Identity(x.shape), shape=x.shape)
        u = minimise(model, q, np.zeros_like(x)).u
        gain = penalty.value(x) - penalty.value(u) - q.value(u)
        if not math.isfinite(gain):
            return None
        self.beyond = max(gain / run.scale, 0.0) / math.sqrt(self.tol / SQUARED)
        if self.beyond > 1.0:
            return None
        reached = np.zeros(run.problem.model.shape, dtype=run.problem.model.dtype)
        reached[features] = u
        return reached


def raise_noise(matrix: Array) -> Array:
    """Return a symmetric matrix without negative eigenvalues, up to rounding, in coordinates with a diagonal of ones.

    A Hessian that was rounded on its way may have some. They show how large the noise is: eigenvalues below that are
    raised to it.
    """
    roots = np.sqrt(np.maximum(np.diag(matrix), np.finfo(np.float64).tiny))
    values, vectors = np.linalg.eigh(matrix / np.outer(roots, roots))
    if values[0] > EPS:
        return matrix
    raised: Array = (vectors * np.maximum(values, max(-values[0], EPS))) @ vectors.T
    return raised * np.outer(roots, roots)
